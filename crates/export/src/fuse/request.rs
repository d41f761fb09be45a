//! What a request asks for, or why it is refused. No I/O: what needs the volume comes out as
//! [`VolumeRequest`], everything else as its answer.

use wattle_rt::{Durability, Unmap};

use super::limits::REQUEST_BYTES_MAX;
use super::protocol::{
    FuseErrno, HEADER_BYTES, Header, Out, SET_OWNERSHIP, SET_SIZE, StructReader, opcodes, open_flags,
};
use super::tree::{File, NodeTree};

/// A request: its header, the structure that belongs to the opcode, and what follows that.
#[derive(Debug, Clone, Copy)]
pub struct FuseRequest<'a> {
    /// The header.
    pub header: Header,
    /// The arguments; [`args_bytes`] long at most.
    pub args: &'a [u8],
    /// A name, or the data of a write.
    pub rest: &'a [u8],
}

/// How to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FuseStep {
    /// With this answer.
    Answer(Out),
    /// No answer is waited for.
    Silence,
    /// With the volume.
    Job(VolumeRequest),
}

/// What a volume is asked for. The range lies inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeRequest {
    /// Which volume.
    pub volume: usize,
    /// What.
    pub command: FuseCommand,
    /// Where.
    pub offset_bytes: u64,
    /// How much.
    pub length_bytes: u64,
}

/// See [`VolumeRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FuseCommand {
    /// Wait until nothing is under way any more for clients that have gone, then answer with these
    /// flags. The file counts as open already.
    Open(u32),
    /// Answer with the range.
    Read,
    /// Write the beginning of the request's data; the answer says how much was written.
    Write(Durability),
    /// Make everything durable.
    Flush,
    /// Make the range read as zeros.
    Zero(Unmap),
}

/// How long the structure of an opcode is, at most. What follows is [`FuseRequest::rest`].
#[must_use]
pub fn args_bytes(opcode: u32) -> usize {
    match opcode {
        opcodes::LOOKUP => 0,
        opcodes::WRITE => 40,
        _ => usize::MAX,
    }
}

/// Decides about a request.
///
/// # Errors
/// `ENOSYS` for what is not known, which the kernel then does itself or does without; `EROFS` for
/// changes of what is only read; `EPERM` for a change of a file's size, owner or mode; `ENOSPC` for
/// writes beyond the end, as of a block device; `ENOENT` and `EINVAL`.
pub fn decide(tree: &NodeTree, request: &FuseRequest<'_>) -> Result<FuseStep, FuseErrno> {
    let (node, args) = (request.header.node, StructReader(request.args));
    let file = || {
        tree.file(node).ok_or(FuseErrno(if tree.node(node).is_some() { libc::EISDIR } else { libc::ENOENT }))
    };
    let answer = |out| Ok(FuseStep::Answer(out));
    match request.header.opcode {
        opcodes::READ => {
            let file = file()?;
            let length = u64::from(args.u32(16)).min(REQUEST_BYTES_MAX as u64);
            let (offset, length) = clip(file, args.u64(8), length);
            match length {
                0 => answer(Out::default()),
                _ => job(file, FuseCommand::Read, offset, length),
            }
        }
        opcodes::WRITE => {
            let file = writable(file()?)?;
            let asked = u64::from(args.u32(16));
            if asked != request.rest.len() as u64 {
                return Err(FuseErrno(libc::EINVAL));
            }
            let (offset, length) = clip(file, args.u64(8), asked);
            let durable = args.u32(32).cast_signed() & libc::O_DSYNC != 0;
            let durability = if durable { Durability::Fua } else { Durability::Cached };
            match (asked, length) {
                (0, _) => answer(Out::default().u32s([0, 0])),
                (_, 0) => Err(FuseErrno(libc::ENOSPC)),
                _ => job(file, FuseCommand::Write(durability), offset, length),
            }
        }
        opcodes::FLUSH | opcodes::FSYNC => job(file()?, FuseCommand::Flush, 0, 0),
        opcodes::FALLOCATE => allocate(file()?, args),
        opcodes::LSEEK => seek(file()?, args).map(FuseStep::Answer),

        opcodes::LOOKUP => {
            let name = request.rest.strip_suffix(b"\0").unwrap_or(request.rest);
            let child = tree.child(node, name).ok_or(FuseErrno(libc::ENOENT))?;
            // The node, its generation; how long its name holds, which may go at any time, and its
            // attributes, of which changes are told.
            let out = Out::default().u64s([child, 0, 0, VALID_SECONDS]).u32s([0, 0]);
            answer(tree.attributes(child, out))
        }
        opcodes::GETATTR => attributes(tree, node),
        opcodes::SETATTR => {
            let what = args.u32(0);
            if let Some(file) = tree.file(node)
                && what & SET_SIZE != 0
                && args.u64(16) != writable(file)?.size_bytes()
            {
                return Err(FuseErrno(libc::EPERM));
            }
            if what & SET_OWNERSHIP != 0 {
                return Err(FuseErrno(libc::EPERM));
            }
            // Times may be set, and stay as they are.
            attributes(tree, node)
        }
        opcodes::ACCESS => match tree.node(node) {
            Some(_) => answer(Out::default()),
            None => Err(FuseErrno(libc::ENOENT)),
        },
        opcodes::OPEN => {
            let (file, wanted) = (file()?, args.u32(0).cast_signed());
            if !tree.is_found(node) {
                return Err(FuseErrno(libc::ENOENT));
            }
            let writes = wanted & libc::O_ACCMODE != libc::O_RDONLY;
            let mut flags = open_flags::DIRECT_IO | open_flags::PARALLEL_DIRECT_WRITES;
            if writes {
                writable(file)?;
            } else {
                flags |= open_flags::NOFLUSH;
            }
            file.opened();
            job(file, FuseCommand::Open(flags), 0, 0)
        }
        opcodes::RELEASE => {
            file()?.closed();
            answer(Out::default())
        }
        opcodes::OPENDIR => match tree.node(node) {
            Some(_) if tree.file(node).is_none() => answer(Out::default().u64s([0, 0])),
            Some(_) => Err(FuseErrno(libc::ENOTDIR)),
            None => Err(FuseErrno(libc::ENOENT)),
        },
        opcodes::READDIR => match tree.node(node) {
            Some(_) => {
                let space = (args.u32(16) as usize).min(REQUEST_BYTES_MAX);
                answer(tree.entries(node, args.u64(8), space))
            }
            None => Err(FuseErrno(libc::ENOENT)),
        },
        opcodes::RELEASEDIR | opcodes::FSYNCDIR | opcodes::DESTROY => answer(Out::default()),
        opcodes::STATFS => answer(tree.statistics()),
        // Nodes stay whether or not the kernel remembers them. Requests are not interrupted: they
        // end by themselves.
        opcodes::FORGET | opcodes::BATCH_FORGET | opcodes::INTERRUPT => Ok(FuseStep::Silence),
        _ => Err(FuseErrno(libc::ENOSYS)),
    }
}

/// The kernel may go by attributes for so long.
const VALID_SECONDS: u64 = 60;

fn attributes(tree: &NodeTree, node: u64) -> Result<FuseStep, FuseErrno> {
    tree.node(node).ok_or(FuseErrno(libc::ENOENT))?;
    Ok(FuseStep::Answer(tree.attributes(node, Out::default().u64s([VALID_SECONDS]).u32s([0, 0]))))
}

fn writable(file: &File) -> Result<&File, FuseErrno> {
    if file.read_only { Err(FuseErrno(libc::EROFS)) } else { Ok(file) }
}

/// The part of a range that lies inside the file.
fn clip(file: &File, offset: u64, length: u64) -> (u64, u64) {
    (offset, length.min(file.size_bytes().saturating_sub(offset)))
}

fn job(
    file: &File,
    command: FuseCommand,
    offset_bytes: u64,
    length_bytes: u64,
) -> Result<FuseStep, FuseErrno> {
    Ok(FuseStep::Job(VolumeRequest { volume: file.volume, command, offset_bytes, length_bytes }))
}

/// `fallocate`. A hole of a file reads as zeros, and loop devices and QEMU build on that: so a
/// punched hole is zeros that may free space, not a discard, after which anything may be read.
fn allocate(file: &File, args: StructReader<'_>) -> Result<FuseStep, FuseErrno> {
    let (offset, length, mode) = (args.u64(8), args.u64(16), args.u32(24).cast_signed());
    let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    let unmap = match mode & !libc::FALLOC_FL_KEEP_SIZE {
        // All space is there already.
        0 => None,
        libc::FALLOC_FL_PUNCH_HOLE => Some(Unmap::Yes),
        libc::FALLOC_FL_ZERO_RANGE => Some(Unmap::No),
        _ => return Err(FuseErrno(libc::EOPNOTSUPP)),
    };
    writable(file)?;
    let end = offset.checked_add(length).ok_or(FuseErrno(libc::EFBIG))?;
    if end > file.size_bytes() && !keeps_size {
        return Err(FuseErrno(libc::ENOSPC));
    }
    match (unmap, clip(file, offset, length)) {
        (None, _) | (_, (_, 0)) => Ok(FuseStep::Answer(Out::default())),
        (Some(unmap), (offset, length)) => job(file, FuseCommand::Zero(unmap), offset, length),
    }
}

/// `lseek` to the next data or the next hole: everything is data.
fn seek(file: &File, args: StructReader<'_>) -> Result<Out, FuseErrno> {
    let offset = args.u64(8);
    let to = match args.u32(16).cast_signed() {
        _ if offset >= file.size_bytes() => return Err(FuseErrno(libc::ENXIO)),
        libc::SEEK_DATA => offset,
        libc::SEEK_HOLE => file.size_bytes(),
        _ => return Err(FuseErrno(libc::EINVAL)),
    };
    Ok(Out::default().u64s([to]))
}

/// Splits a message that was received into its head and body, [`super::protocol::HEAD_BYTES`] and
/// the rest. The two may have to be brought together, for which `joined` has room.
///
/// # Errors
/// A message shorter than it says: nothing that a kernel sends.
pub fn parse<'a>(
    head: &'a [u8],
    body: &'a [u8],
    length_bytes: usize,
    joined: &'a mut Vec<u8>,
) -> Result<FuseRequest<'a>, Malformed> {
    let header = Header::decode(head.first_chunk::<HEADER_BYTES>().ok_or(Malformed)?);
    if header.length_bytes as usize != length_bytes
        || !(HEADER_BYTES..=head.len() + body.len()).contains(&length_bytes)
    {
        return Err(Malformed);
    }
    let in_head = &head[HEADER_BYTES..length_bytes.min(head.len())];
    let in_body = &body[..length_bytes.saturating_sub(head.len())];
    let args_bytes = args_bytes(header.opcode);
    if args_bytes == in_head.len() {
        return Ok(FuseRequest { header, args: in_head, rest: in_body });
    }
    joined.clear();
    joined.extend([in_head, in_body].concat());
    let (args, rest) = joined.split_at(args_bytes.min(joined.len()));
    Ok(FuseRequest { header, args, rest })
}

/// A message that no kernel sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::protocol::{HEAD_BYTES, ROOT_NODE};
    use crate::fuse::tree::{FileFacts, Owner};

    const SIZE: u64 = 1 << 30;
    /// The first file.
    const FILE: u64 = 2;
    const READ_ONLY: u64 = 3;

    fn tree() -> NodeTree {
        let facts = |name: &str, read_only| FileFacts {
            name: name.to_owned(),
            size_bytes: SIZE,
            read_only,
            block_bytes: 4096,
        };
        NodeTree::new(&[facts("a", false), facts("b", true)], Owner::default()).unwrap()
    }

    fn ask(opcode: u32, node: u64, args: &Out, rest: &[u8]) -> Result<FuseStep, FuseErrno> {
        let header = Header { length_bytes: 0, opcode, unique: 1, node };
        decide(&tree(), &FuseRequest { header, args: &args.0, rest })
    }

    fn at(offset: u64, length: u64, command: FuseCommand) -> Result<FuseStep, FuseErrno> {
        Ok(FuseStep::Job(VolumeRequest { volume: 0, command, offset_bytes: offset, length_bytes: length }))
    }

    fn range(offset: u64, length: u32, flags: i32) -> Out {
        Out::default().u64s([0, offset]).u32s([length, 0]).u64s([0]).u32s([flags.cast_unsigned(), 0])
    }

    #[test]
    fn reads_end_where_the_file_ends() {
        let read = |offset, length| ask(opcodes::READ, FILE, &range(offset, length, 0), &[]);
        assert_eq!(read(8192, 4096), at(8192, 4096, FuseCommand::Read));
        assert_eq!(read(SIZE - 100, 4096), at(SIZE - 100, 100, FuseCommand::Read));
        for offset in [SIZE, SIZE + 1, u64::MAX] {
            assert_eq!(read(offset, 4096), Ok(FuseStep::Answer(Out::default())));
        }
        assert_eq!(read(0, u32::MAX), at(0, REQUEST_BYTES_MAX as u64, FuseCommand::Read));
        assert_eq!(ask(opcodes::READ, ROOT_NODE, &range(0, 1, 0), &[]), Err(FuseErrno(libc::EISDIR)));
        assert_eq!(ask(opcodes::READ, 77, &range(0, 1, 0), &[]), Err(FuseErrno(libc::ENOENT)));
    }

    #[test]
    fn writes_are_clipped_as_on_a_block_device_and_as_durable_as_asked() {
        use Durability::{Cached, Fua};
        let write = |offset, length: u32, flags| {
            ask(opcodes::WRITE, FILE, &range(offset, length, flags), &vec![0; length as usize])
        };
        assert_eq!(write(512, 100, 0), at(512, 100, FuseCommand::Write(Cached)));
        assert_eq!(write(0, 100, libc::O_DSYNC), at(0, 100, FuseCommand::Write(Fua)));
        assert_eq!(write(0, 100, libc::O_SYNC), at(0, 100, FuseCommand::Write(Fua)));
        assert_eq!(write(SIZE - 10, 100, 0), at(SIZE - 10, 10, FuseCommand::Write(Cached)));
        assert_eq!(write(SIZE, 1, 0), Err(FuseErrno(libc::ENOSPC)));
        assert_eq!(write(u64::MAX, 1, 0), Err(FuseErrno(libc::ENOSPC)));
        assert_eq!(write(SIZE, 0, 0), Ok(FuseStep::Answer(Out::default().u32s([0, 0]))));
        // Less data than announced.
        assert_eq!(ask(opcodes::WRITE, FILE, &range(0, 10, 0), &[0; 9]), Err(FuseErrno(libc::EINVAL)));
        assert_eq!(ask(opcodes::WRITE, READ_ONLY, &range(0, 1, 0), &[0]), Err(FuseErrno(libc::EROFS)));
    }

    #[test]
    fn a_hole_reads_as_zeros() {
        let allocate = |node, mode: i32, offset: u64, length: u64| {
            let args = Out::default().u64s([0, offset, length]).u32s([mode.cast_unsigned(), 0]);
            ask(opcodes::FALLOCATE, node, &args, &[])
        };
        let (keep, punch, zero) =
            (libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_PUNCH_HOLE, libc::FALLOC_FL_ZERO_RANGE);
        let nothing = Ok(FuseStep::Answer(Out::default()));
        assert_eq!(allocate(FILE, punch | keep, 0, SIZE), at(0, SIZE, FuseCommand::Zero(Unmap::Yes)));
        assert_eq!(allocate(FILE, zero, 1, 2), at(1, 2, FuseCommand::Zero(Unmap::No)));
        assert_eq!(allocate(FILE, zero | keep, SIZE - 1, 9), at(SIZE - 1, 1, FuseCommand::Zero(Unmap::No)));
        assert_eq!(allocate(FILE, punch | keep, SIZE, 9), nothing);
        assert_eq!(allocate(FILE, 0, 0, SIZE), nothing);
        assert_eq!(allocate(FILE, 0, 0, SIZE + 1), Err(FuseErrno(libc::ENOSPC)));
        assert_eq!(allocate(FILE, zero, SIZE, 1), Err(FuseErrno(libc::ENOSPC)));
        assert_eq!(allocate(FILE, zero, u64::MAX, 2), Err(FuseErrno(libc::EFBIG)));
        assert_eq!(allocate(FILE, libc::FALLOC_FL_COLLAPSE_RANGE, 0, 1), Err(FuseErrno(libc::EOPNOTSUPP)));
        assert_eq!(allocate(READ_ONLY, punch | keep, 0, 1), Err(FuseErrno(libc::EROFS)));
    }

    #[test]
    fn a_file_keeps_its_size_owner_and_mode() {
        let set = |node, what: u32, size: u64| {
            let args = Out::default().u32s([what, 0]).u64s([0, size, 0, 0, 0, 0]);
            ask(opcodes::SETATTR, node, &args, &[])
        };
        assert!(matches!(set(FILE, SET_SIZE, SIZE), Ok(FuseStep::Answer(_))));
        // What opening with O_TRUNC comes to.
        assert_eq!(set(FILE, SET_SIZE, 0), Err(FuseErrno(libc::EPERM)));
        assert_eq!(set(READ_ONLY, SET_SIZE, 0), Err(FuseErrno(libc::EROFS)));
        for bit in 0..3 {
            assert_eq!(set(FILE, 1 << bit, 0), Err(FuseErrno(libc::EPERM)));
        }
        assert!(matches!(set(FILE, 1 << 5, 0), Ok(FuseStep::Answer(_))));
    }

    #[test]
    fn what_is_only_read_is_not_opened_for_writing() {
        let open = |node, flags: i32| {
            ask(opcodes::OPEN, node, &Out::default().u32s([flags.cast_unsigned(), 0]), &[])
        };
        let direct = open_flags::DIRECT_IO | open_flags::PARALLEL_DIRECT_WRITES;
        let opened = |volume, flags| {
            let command = FuseCommand::Open(flags);
            Ok(FuseStep::Job(VolumeRequest { volume, command, offset_bytes: 0, length_bytes: 0 }))
        };
        assert_eq!(open(READ_ONLY, libc::O_RDONLY), opened(1, direct | open_flags::NOFLUSH));
        assert_eq!(open(FILE, libc::O_RDWR), opened(0, direct));
        for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_RDWR | libc::O_DIRECT] {
            assert_eq!(open(READ_ONLY, flags), Err(FuseErrno(libc::EROFS)));
        }
    }

    #[test]
    fn everything_is_data() {
        let seek = |offset: u64, whence: i32| {
            let args = Out::default().u64s([0, offset]).u32s([whence.cast_unsigned(), 0]);
            ask(opcodes::LSEEK, FILE, &args, &[])
        };
        assert_eq!(seek(7, libc::SEEK_DATA), Ok(FuseStep::Answer(Out::default().u64s([7]))));
        assert_eq!(seek(7, libc::SEEK_HOLE), Ok(FuseStep::Answer(Out::default().u64s([SIZE]))));
        assert_eq!(seek(SIZE, libc::SEEK_HOLE), Err(FuseErrno(libc::ENXIO)));
    }

    #[test]
    fn any_request_on_any_node_gets_some_answer() {
        let tree = tree();
        for opcode in (0..60).chain([4096, u32::MAX]) {
            for node in [0, ROOT_NODE, FILE, READ_ONLY, 4, u64::MAX] {
                for length in [0, 1, 8, 39, 40, 100] {
                    for byte in [0, 0x41, 0xff] {
                        let bytes = vec![byte; length];
                        let header = Header { length_bytes: 0, opcode, unique: 1, node };
                        // Bounds that are not checked panic here.
                        let _ = decide(&tree, &FuseRequest { header, args: &bytes, rest: &bytes });
                    }
                }
            }
        }
    }

    #[test]
    fn messages_are_taken_apart_wherever_they_were_cut() {
        let message = |opcode: u32, rest: &[u8]| {
            let length = (HEADER_BYTES + rest.len()) as u32;
            let mut bytes = Out::default().u32s([length, opcode]).u64s([9, FILE, 0]).u64s([0]).0;
            bytes.truncate(HEADER_BYTES);
            bytes.extend(rest);
            bytes
        };
        let split = |bytes: &[u8], length: usize| {
            let (head, body) = bytes.split_at(HEAD_BYTES.min(bytes.len()));
            let (mut head, mut body, mut joined) = (head.to_vec(), body.to_vec(), Vec::new());
            head.resize(HEAD_BYTES, 0xee);
            body.resize(4096, 0xee);
            let request = parse(&head, &body, length, &mut joined)?;
            Ok((request.header.opcode, request.args.to_vec(), request.rest.to_vec()))
        };
        let whole = |bytes: &[u8]| split(bytes, bytes.len());
        let name = [b'n'; 100];
        assert_eq!(whole(&message(opcodes::LOOKUP, &name)), Ok((1, vec![], name.to_vec())));
        assert_eq!(whole(&message(opcodes::LOOKUP, b"a\0")), Ok((1, vec![], b"a\0".to_vec())));
        let write = [&[1; 40][..], &[2; 512]].concat();
        assert_eq!(whole(&message(opcodes::WRITE, &write)), Ok((16, vec![1; 40], vec![2; 512])));
        assert_eq!(whole(&message(opcodes::SETATTR, &[3; 88])), Ok((4, vec![3; 88], vec![])));
        assert_eq!(whole(&message(opcodes::DESTROY, &[])), Ok((38, vec![], vec![])));
        let good = message(opcodes::SETATTR, &[3; 88]);
        for length in [0, 39, good.len() - 1, good.len() + 1, usize::MAX] {
            assert_eq!(split(&good, length), Err(Malformed));
        }
    }
}
