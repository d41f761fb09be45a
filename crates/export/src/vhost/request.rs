//! Requests to a disk, out of the chains of a ring (virtio 1.2, 5.2.6). How a driver cuts a request
//! into segments means nothing: a header, data, and at the end a byte for the status.

use wattle_rt::Unmap;

use super::device::{DiskFacts, RANGE_SECTORS_MAX, RANGES_MAX, SECTOR_BYTES};
use super::memory::{GuestMemory, OutsideMemory};
use super::ring::{Chain, Segment};

/// Bytes of a request's header: type, reserved, sector.
const HEADER_BYTES: usize = 16;
/// Bytes of a range that is discarded or zeroed: sector, sectors, flags.
const RANGE_BYTES: usize = 16;

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockStatus {
    /// It is done.
    Ok = 0,
    /// It failed.
    IoError = 1,
    /// There is no such request.
    Unsupported = 2,
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockCommand {
    /// Fill the data from this byte on.
    Read(u64),
    /// Write the data from this byte on.
    Write(u64),
    /// Make acknowledged writes durable.
    Flush,
    /// Forget ranges, or make them zeros: first byte, bytes, and for zeros whether space may go.
    Ranges(Vec<(u64, u64, Option<Unmap>)>),
    /// Put the serial into the data.
    Serial,
    /// It is answered by this.
    Nothing(BlockStatus),
}

/// A request whose ranges lie in the disk.
#[derive(Debug)]
pub struct BlockRequest {
    /// What to do.
    pub command: BlockCommand,
    /// The data in the guest's memory.
    pub data: Vec<Segment>,
    /// The length of the data in bytes.
    pub data_bytes: u64,
    /// Where the status goes, as the guest names it.
    pub status_at: u64,
}

/// A chain that is no request: it has no header, or no place for a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotARequest {
    /// Too short.
    #[error("a request without a header or a status")]
    Short,
    /// Something of it lies outside of the guest's memory.
    #[error(transparent)]
    Outside(#[from] OutsideMemory),
}

/// Types of requests.
mod kind {
    pub const READ: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const SERIAL: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
}

impl BlockRequest {
    /// Makes a request of a chain.
    ///
    /// # Errors
    /// It is none, and cannot be answered: the ring is not to be gone on with.
    pub fn decode(chain: &Chain, memory: &GuestMemory, facts: &DiskFacts) -> Result<Self, NotARequest> {
        let (readable, writable) = chain.segments.split_at(chain.readable);
        let mut header = [0; HEADER_BYTES];
        let sent = take_front(memory, readable, &mut header)?;
        let (given, status_at) = without_last(writable).ok_or(NotARequest::Short)?;
        if !memory.has(status_at, 1) {
            return Err(OutsideMemory { at: status_at, len: 1 }.into());
        }
        let [k0, k1, k2, k3, _, _, _, _, sector @ ..] = header;
        let (kind, sector) = (u32::from_le_bytes([k0, k1, k2, k3]), u64::from_le_bytes(sector));
        let data = if matches!(kind, kind::READ | kind::SERIAL) { given } else { sent };
        let data_bytes = data.iter().map(|segment| u64::from(segment.len)).sum();
        let command = command(kind, sector, &data, data_bytes, memory, facts);
        Ok(Self { command, data, data_bytes, status_at })
    }
}

fn command(
    kind: u32,
    sector: u64,
    data: &[Segment],
    data_bytes: u64,
    memory: &GuestMemory,
    facts: &DiskFacts,
) -> BlockCommand {
    let failed = BlockCommand::Nothing(BlockStatus::IoError);
    let changes = matches!(kind, kind::WRITE | kind::DISCARD | kind::WRITE_ZEROES);
    if changes && facts.read_only {
        return failed;
    }
    let shared = data.iter().all(|segment| memory.has(segment.at, segment.len.into()));
    if !shared {
        return failed;
    }
    match kind {
        kind::READ | kind::WRITE => match byte_range(sector, data_bytes, facts) {
            Some(_) if data_bytes == 0 => BlockCommand::Nothing(BlockStatus::Ok),
            Some(offset) if kind == kind::READ => BlockCommand::Read(offset),
            Some(offset) => BlockCommand::Write(offset),
            None => failed,
        },
        kind::FLUSH => BlockCommand::Flush,
        kind::SERIAL => BlockCommand::Serial,
        kind::DISCARD | kind::WRITE_ZEROES => {
            ranges(kind == kind::WRITE_ZEROES, data, data_bytes, memory, facts)
                .map_or_else(BlockCommand::Nothing, BlockCommand::Ranges)
        }
        _ => BlockCommand::Nothing(BlockStatus::Unsupported),
    }
}

/// The first byte of a range, if all of it lies in the disk, in whole sectors.
fn byte_range(sector: u64, bytes: u64, facts: &DiskFacts) -> Option<u64> {
    let offset = sector.checked_mul(SECTOR_BYTES)?;
    let end = offset.checked_add(bytes)?;
    (bytes.is_multiple_of(SECTOR_BYTES) && end <= facts.size_bytes).then_some(offset)
}

/// The ranges of a request that discards or zeroes.
fn ranges(
    zeroes: bool,
    data: &[Segment],
    data_bytes: u64,
    memory: &GuestMemory,
    facts: &DiskFacts,
) -> Result<Vec<(u64, u64, Option<Unmap>)>, BlockStatus> {
    const UNMAP: u32 = 1;
    let count = data_bytes / RANGE_BYTES as u64;
    if count == 0 || !data_bytes.is_multiple_of(RANGE_BYTES as u64) || count > RANGES_MAX.into() {
        return Err(BlockStatus::Unsupported);
    }
    let mut bytes = vec![0; data_bytes as usize];
    copy_out(memory, data, &mut bytes).map_err(|_| BlockStatus::IoError)?;
    let (ranges, _) = bytes.as_chunks::<RANGE_BYTES>();
    ranges
        .iter()
        .map(|range| {
            let [s0, s1, s2, s3, s4, s5, s6, s7, n0, n1, n2, n3, flags @ ..] = *range;
            let sector = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
            let (sectors, flags) = (u32::from_le_bytes([n0, n1, n2, n3]), u32::from_le_bytes(flags));
            // A discard with flags asks for something that was not offered.
            if flags & !UNMAP != 0 || (!zeroes && flags != 0) {
                return Err(BlockStatus::Unsupported);
            }
            let len = u64::from(sectors) * SECTOR_BYTES;
            let offset = byte_range(sector, len, facts).filter(|_| sectors <= RANGE_SECTORS_MAX);
            let unmap = if flags & UNMAP != 0 { Unmap::Yes } else { Unmap::No };
            Ok((offset.ok_or(BlockStatus::IoError)?, len, zeroes.then_some(unmap)))
        })
        .collect()
}

/// Copies the first bytes of segments and returns what is left of these.
fn take_front(
    memory: &GuestMemory,
    segments: &[Segment],
    into: &mut [u8],
) -> Result<Vec<Segment>, NotARequest> {
    let (mut done, mut rest) = (0, Vec::with_capacity(segments.len()));
    for segment in segments {
        let count = (into.len() - done).min(segment.len as usize);
        memory.read(segment.at, &mut into[done..done + count])?;
        done += count;
        if (segment.len as usize) > count {
            rest.push(Segment { at: segment.at.wrapping_add(count as u64), len: segment.len - count as u32 });
        }
    }
    if done == into.len() { Ok(rest) } else { Err(NotARequest::Short) }
}

/// Segments without their last byte, and where that is.
fn without_last(segments: &[Segment]) -> Option<(Vec<Segment>, u64)> {
    let last = segments.iter().rposition(|segment| segment.len > 0)?;
    let mut rest = segments[..=last].to_vec();
    rest[last].len -= 1;
    let status_at = rest[last].at.checked_add(rest[last].len.into())?;
    rest.retain(|segment| segment.len > 0);
    Some((rest, status_at))
}

/// Copies the bytes of segments, as many as there is room for.
///
/// # Errors
/// Some lie outside of the guest's memory.
pub fn copy_out(memory: &GuestMemory, segments: &[Segment], into: &mut [u8]) -> Result<(), OutsideMemory> {
    let mut done = 0;
    for segment in segments {
        let count = (into.len() - done).min(segment.len as usize);
        memory.read(segment.at, &mut into[done..done + count])?;
        done += count;
    }
    Ok(())
}

/// Copies bytes into segments, as many as these have room for.
///
/// # Errors
/// Some lie outside of the guest's memory.
pub fn copy_in(memory: &GuestMemory, segments: &[Segment], bytes: &[u8]) -> Result<(), OutsideMemory> {
    let mut done = 0;
    for segment in segments {
        let count = (bytes.len() - done).min(segment.len as usize);
        memory.write(segment.at, &bytes[done..done + count])?;
        done += count;
    }
    Ok(())
}

/// Segments from a byte on, at most `len` bytes of them.
pub fn part_of(segments: &[Segment], from: u64, len: u64) -> Vec<Segment> {
    let (mut skip, mut left, mut part) = (from, len, Vec::new());
    for segment in segments {
        let skipped = skip.min(segment.len.into());
        skip -= skipped;
        let count = (u64::from(segment.len) - skipped).min(left);
        left -= count;
        if count > 0 {
            part.push(Segment { at: segment.at.wrapping_add(skipped), len: count as u32 });
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vhost::memory::GuestRegion;
    use std::sync::Arc;
    use wattle_rt::SharedMemory;

    const SIZE: u64 = 1 << 20;

    fn rig() -> (GuestMemory, DiskFacts) {
        let mut memory = GuestMemory::default();
        let (shared, _) = SharedMemory::create(65536).unwrap();
        memory.add(GuestRegion { guest: 0, user: 0, len: 65536, memory: Arc::new(shared), at: 0 });
        let facts = DiskFacts {
            size_bytes: SIZE,
            read_only: false,
            block_bytes: 512,
            io_min_bytes: 512,
            io_opt_bytes: 0,
        };
        (memory, facts)
    }

    /// A chain with a header at 0, cut after some bytes, and the segments given.
    fn chain(
        memory: &GuestMemory,
        kind: u32,
        sector: u64,
        readable: &[(u64, u32)],
        writable: &[(u64, u32)],
    ) -> Chain {
        memory.write(0, &kind.to_le_bytes()).unwrap();
        memory.write(8, &sector.to_le_bytes()).unwrap();
        let segment = |&(at, len): &(u64, u32)| Segment { at, len };
        let mut chain = Chain::default();
        chain.segments.extend([(0, 5), (5, 11)].iter().map(segment));
        chain.segments.extend(readable.iter().map(segment));
        chain.readable = chain.segments.len();
        chain.segments.extend(writable.iter().map(segment));
        chain
    }

    fn decode(memory: &GuestMemory, facts: &DiskFacts, chain: &Chain) -> BlockRequest {
        BlockRequest::decode(chain, memory, facts).unwrap()
    }

    #[test]
    fn requests_are_read_however_they_are_cut() {
        let (memory, facts) = rig();
        let read = decode(&memory, &facts, &chain(&memory, kind::READ, 8, &[], &[(4096, 500), (9000, 13)]));
        assert_eq!((read.command, read.data_bytes, read.status_at), (BlockCommand::Read(4096), 512, 9012));
        assert_eq!(read.data, [Segment { at: 4096, len: 500 }, Segment { at: 9000, len: 12 }]);
        let write = decode(&memory, &facts, &chain(&memory, kind::WRITE, 2047, &[(4096, 512)], &[(100, 1)]));
        assert_eq!((write.command, write.data_bytes), (BlockCommand::Write(SIZE - 512), 512));
        let flush = decode(&memory, &facts, &chain(&memory, kind::FLUSH, 0, &[], &[(100, 1), (0, 0)]));
        assert_eq!((flush.command, flush.status_at), (BlockCommand::Flush, 100));
    }

    #[test]
    fn what_cannot_be_done_is_answered_by_an_error() {
        let (memory, mut facts) = rig();
        let failed = |status| BlockCommand::Nothing(status);
        let ask = |facts: &DiskFacts, kind, sector, data: (u64, u32)| {
            let (readable, writable) =
                if kind == kind::READ { (None, Some(data)) } else { (Some(data), None) };
            let writable: Vec<_> = writable.into_iter().chain([(100, 1)]).collect();
            decode(&memory, facts, &chain(&memory, kind, sector, readable.as_slice(), &writable)).command
        };
        for kind in [kind::READ, kind::WRITE] {
            assert_eq!(ask(&facts, kind, 2048, (4096, 512)), failed(BlockStatus::IoError), "beyond the end");
            assert_eq!(ask(&facts, kind, u64::MAX, (4096, 512)), failed(BlockStatus::IoError));
            assert_eq!(ask(&facts, kind, 0, (4096, 100)), failed(BlockStatus::IoError), "half a sector");
            assert_eq!(ask(&facts, kind, 0, (65000, 1024)), failed(BlockStatus::IoError), "not shared");
        }
        assert_eq!(ask(&facts, 99, 0, (4096, 512)), failed(BlockStatus::Unsupported));
        facts.read_only = true;
        assert_eq!(ask(&facts, kind::WRITE, 0, (4096, 512)), failed(BlockStatus::IoError));
        assert_eq!(ask(&facts, kind::READ, 0, (4096, 512)), BlockCommand::Read(0));
    }

    #[test]
    fn what_is_no_request_stops_the_ring() {
        let (memory, facts) = rig();
        let fault = |chain: &Chain| BlockRequest::decode(chain, &memory, &facts).unwrap_err();
        assert_eq!(fault(&chain(&memory, 0, 0, &[], &[])), NotARequest::Short, "no status");
        assert_eq!(fault(&chain(&memory, 0, 0, &[], &[(100, 0)])), NotARequest::Short);
        let mut short = chain(&memory, 0, 0, &[], &[(100, 1)]);
        short.segments[1].len = 10;
        assert_eq!(fault(&short), NotARequest::Short, "no whole header");
        let outside = fault(&chain(&memory, 0, 0, &[], &[(65536, 1)]));
        assert_eq!(outside, NotARequest::Outside(OutsideMemory { at: 65536, len: 1 }));
    }

    #[test]
    fn ranges_are_taken_or_refused_as_a_whole() {
        let (memory, facts) = rig();
        let ask = |kind, ranges: &[(u64, u32, u32)]| {
            let bytes: Vec<u8> = ranges
                .iter()
                .flat_map(|(sector, sectors, flags)| {
                    [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
                })
                .collect();
            memory.write(4096, &bytes).unwrap();
            decode(&memory, &facts, &chain(&memory, kind, 0, &[(4096, bytes.len() as u32)], &[(100, 1)]))
                .command
        };
        let discard = ask(kind::DISCARD, &[(0, 8, 0), (16, 1, 0)]);
        assert_eq!(discard, BlockCommand::Ranges(vec![(0, 4096, None), (8192, 512, None)]));
        let zeroes = ask(kind::WRITE_ZEROES, &[(0, 8, 1), (8, 8, 0)]);
        let expected = vec![(0, 4096, Some(Unmap::Yes)), (4096, 4096, Some(Unmap::No))];
        assert_eq!(zeroes, BlockCommand::Ranges(expected));
        let refused = |status| BlockCommand::Nothing(status);
        assert_eq!(ask(kind::DISCARD, &[(0, 8, 1)]), refused(BlockStatus::Unsupported));
        assert_eq!(ask(kind::DISCARD, &[]), refused(BlockStatus::Unsupported));
        assert_eq!(ask(kind::WRITE_ZEROES, &[(0, 8, 0), (2040, 9, 0)]), refused(BlockStatus::IoError));
    }

    #[test]
    fn a_part_of_segments_is_what_lies_there() {
        let segments =
            [Segment { at: 0, len: 10 }, Segment { at: 100, len: 10 }, Segment { at: 50, len: 10 }];
        assert_eq!(part_of(&segments, 5, 10), [Segment { at: 5, len: 5 }, Segment { at: 100, len: 5 }]);
        assert_eq!(part_of(&segments, 25, 100), [Segment { at: 55, len: 5 }]);
        assert_eq!(part_of(&segments, 30, 1), []);
    }
}
