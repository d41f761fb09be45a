//! The process that answers at the other end of a Unix connection: whether it is over, and whether
//! it may hand on what it is sent.
//!
//! A process that has ended does nothing any more, and what it had begun itself is done: the kernel
//! ends a system call of a thread before the thread, and waits for its asynchronous I/O before it
//! reports the process as ended. That says something of a request only if the process carries
//! requests out itself. So:
//!
//! Invariant: [`PeerProcess::is_over`] tells of every request that was sent over the connection,
//! if [`PeerProcess::role`] was [`PeerRole::Keeps`] and the process stayed so. It is `Keeps` only
//! where all of this was seen: the process that sent the first bytes is the one that is watched, it
//! is older than the connection, it has no child and never waited for one, and it has open nothing
//! over which another process or a kernel thread could act for it: no connection but those that
//! were made to it, no pipe from another process, no io_uring (whose requests outlive a process),
//! no device that is not a drive, and no file to write to but on a file system of this machine: a
//! killed process does not wait for what another machine, or a process behind FUSE, was asked to
//! write. Everything else, and whatever cannot be looked at, is `Unknown`.

use super::Stream;
use crate::base::error::IoError;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A process at the other end of a Unix connection.
#[derive(Debug)]
pub struct PeerProcess {
    pid: libc::pid_t,
    pidfd: OwnedFd,
}

/// What a [`PeerProcess`] does with what it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerRole {
    /// It carries it out itself.
    Keeps,
    /// It has connections to others, and may hand it on.
    HandsOn,
    /// That cannot be told.
    Unknown,
}

impl Stream {
    /// Connects to a Unix socket like [`Stream::connect_unix`], and waits for so long for the first
    /// bytes, which tell the process that sent them; they can still be received. No process where
    /// that cannot be told. Blocks.
    pub fn connect_unix_to_peer(
        path: &Path,
        wait: Duration,
    ) -> Result<(Stream, Option<PeerProcess>), IoError> {
        let began = since_boot();
        let socket = connect_with_credentials(path)?;
        let peer = sender_of_first_bytes(&socket, wait).and_then(|pid| PeerProcess::find(pid, began));
        set_pass_credentials(&socket, false)?;
        Ok((Stream::from(socket), peer))
    }
}

impl PeerProcess {
    /// The process of this id, if it is the one that had it at `before`, since the machine started.
    fn find(pid: libc::pid_t, before: Duration) -> Option<Self> {
        // SAFETY: pidfd_open only takes integers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            return None;
        }
        // SAFETY: the kernel just returned this descriptor, and nothing else knows it.
        let pidfd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        let peer = Self { pid, pidfd };
        // An id is given to another process only after the first one has ended.
        (peer.statistics()?.started < before && !peer.is_over()).then_some(peer)
    }

    /// Whether it has ended, with all that it did.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live entry, and no time to wait.
        let count = unsafe { libc::poll(&raw mut poll, 1, 0) };
        // Readable once every thread of it is gone.
        count == 1 && poll.revents & libc::POLLIN != 0
    }

    /// Its number. No other process has it before this one has ended.
    #[must_use]
    pub fn id(&self) -> i32 {
        self.pid
    }

    /// What it does with what it is sent, as far as it shows now: see the module. Blocks.
    #[must_use]
    pub fn role(&self) -> PeerRole {
        self.role_seen().unwrap_or(PeerRole::Unknown)
    }

    /// The same; `None` where nothing could be seen, or what was seen says nothing of what the
    /// process did, because it is ending. Blocks.
    #[must_use]
    pub fn role_seen(&self) -> Option<PeerRole> {
        let role = self.look();
        // What was looked at by its id was the process only if it has the id still.
        role.filter(|_| !self.is_over())
    }

    fn look(&self) -> Option<PeerRole> {
        let open = self.open_files().ok()?;
        let accounted = self.accounted_sockets(&open)?;
        // The standard streams may lead to a log.
        let hands_on = |file: &OpenFile| file.number > 2;
        let mut role = PeerRole::Keeps;
        for file in &open {
            match &file.kind {
                OpenKind::Socket if accounted.contains(&file.inode) => {}
                OpenKind::Socket if hands_on(file) => return Some(PeerRole::HandsOn),
                OpenKind::Pipe if !file.readable || writes(&open, file.inode) => {}
                OpenKind::Harmless => {}
                OpenKind::Socket | OpenKind::Pipe | OpenKind::Other => role = PeerRole::Unknown,
            }
        }
        let alone = self.has_no_child()?;
        let Statistics { waited_for_none, is_ending, .. } = self.statistics()?;
        // It closes one after the other what it had open.
        if is_ending {
            return None;
        }
        Some(if alone && waited_for_none { role } else { PeerRole::Unknown })
    }

    fn proc(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.pid))
    }

    fn open_files(&self) -> io::Result<Vec<OpenFile>> {
        let mut open = Vec::new();
        for entry in fs::read_dir(self.proc("fd"))? {
            let path = entry?.path();
            let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
            let number = number.ok_or(io::ErrorKind::InvalidData)?;
            // One that was closed since the list was made makes the look worthless.
            let (link, target) = (path.symlink_metadata()?, fs::read_link(&path)?);
            let file = fs::metadata(&path)?;
            let readable = link.permissions().mode() & 0o400 != 0;
            let writable = link.permissions().mode() & 0o200 != 0;
            let kind = match OpenKind::of(&file, &target) {
                OpenKind::Harmless if writable && file.is_file() && !is_of_this_machine(&path) => {
                    OpenKind::Other
                }
                kind => kind,
            };
            open.push(OpenFile { number, kind, inode: file.ino(), readable, writable });
        }
        Ok(open)
    }

    /// The inodes of its sockets that listen, or that were made by a connection to one of those.
    fn accounted_sockets(&self, open: &[OpenFile]) -> Option<Vec<u64>> {
        let mut places: BTreeMap<u64, (bool, String)> = BTreeMap::new();
        for line in fs::read_to_string(self.proc("net/unix")).ok()?.lines().skip(1) {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let [_, _, _, flags, _, _, inode, path @ ..] = fields.as_slice() else { continue };
            const LISTENS: u32 = 1 << 16;
            let listens = u32::from_str_radix(flags, 16).ok()? & LISTENS != 0;
            places.insert(inode.parse().ok()?, (listens, path.join(" ")));
        }
        for table in ["net/tcp", "net/tcp6"] {
            // A machine may be without one of them.
            let Ok(text) = fs::read_to_string(self.proc(table)) else { continue };
            for line in text.lines().skip(1) {
                let fields: Vec<&str> = line.split_ascii_whitespace().collect();
                let (Some(local), Some(state), Some(inode)) = (fields.get(1), fields.get(3), fields.get(9))
                else {
                    continue;
                };
                let port = local.rsplit(':').next()?;
                places.insert(inode.parse().ok()?, (*state == "0A", format!("port {port}")));
            }
        }
        // Inodes are numbers of their file system: a file may have that of a socket of another
        // process.
        let own = |inode: &u64| {
            open.iter().any(|file| matches!(file.kind, OpenKind::Socket) && file.inode == *inode)
        };
        let listening: Vec<&str> = places
            .iter()
            .filter(|(inode, (listens, place))| *listens && !place.is_empty() && own(inode))
            .map(|(_, (_, place))| place.as_str())
            .collect();
        let accounted = places.iter().filter(|(_, (_, place))| listening.contains(&place.as_str()));
        Some(accounted.map(|(inode, _)| *inode).collect())
    }

    fn has_no_child(&self) -> Option<bool> {
        for task in fs::read_dir(self.proc("task")).ok()? {
            let children = task.ok()?.path().join("children");
            if !fs::read_to_string(children).ok()?.trim().is_empty() {
                return Some(false);
            }
        }
        Some(true)
    }

    fn statistics(&self) -> Option<Statistics> {
        let text = fs::read_to_string(self.proc("stat")).ok()?;
        // The name is in parentheses and may hold anything.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        // Page faults and time of children that it waited for.
        let waited_for_none = [11, 13, 16, 17].iter().all(|number| field(*number) == Some(0));
        // SAFETY: sysconf only takes an integer.
        let ticks =
            u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|ticks| *ticks > 0)?;
        // Whole ticks: it may have started up to one later.
        let started = Duration::from_nanos((field(22)? + 1) * 1_000_000_000 / ticks);
        const PF_EXITING: u64 = 4;
        Some(Statistics { started, waited_for_none, is_ending: field(9)? & PF_EXITING != 0 })
    }
}

struct Statistics {
    /// Since the machine started.
    started: Duration,
    waited_for_none: bool,
    is_ending: bool,
}

#[derive(Clone)]
struct OpenFile {
    number: RawFd,
    kind: OpenKind,
    inode: u64,
    readable: bool,
    writable: bool,
}

#[derive(Clone, Copy)]
enum OpenKind {
    Socket,
    Pipe,
    /// Files of this machine, drives, and what belongs to the process alone.
    Harmless,
    Other,
}

impl OpenKind {
    fn of(file: &fs::Metadata, target: &Path) -> Self {
        const DEVICES: [&[u8]; 4] = [b"/dev/null", b"/dev/zero", b"/dev/urandom", b"/dev/random"];
        const INODES: [&[u8]; 5] = [
            b"anon_inode:[eventfd]",
            b"anon_inode:[eventpoll]",
            b"anon_inode:[signalfd]",
            b"anon_inode:[timerfd]",
            b"anon_inode:inotify",
        ];
        let (kind, name) = (file.file_type(), target.as_os_str().as_bytes());
        let terminal = name.starts_with(b"/dev/pts/") || name.starts_with(b"/dev/tty");
        match () {
            () if kind.is_socket() => Self::Socket,
            () if kind.is_fifo() => Self::Pipe,
            () if kind.is_file() || kind.is_dir() || kind.is_block_device() => Self::Harmless,
            () if kind.is_char_device() && (terminal || DEVICES.contains(&name)) => Self::Harmless,
            () if INODES.contains(&name) => Self::Harmless,
            () => Self::Other,
        }
    }
}

/// Whether the other end of a pipe is the process's own.
fn writes(open: &[OpenFile], inode: u64) -> bool {
    let is_end = |file: &OpenFile| matches!(file.kind, OpenKind::Pipe) && file.inode == inode;
    open.iter().any(|file| is_end(file) && file.writable && !file.readable)
}

/// Whether what is written to a file is carried out by this machine's kernel alone: by no other
/// machine, and by no process behind FUSE. OverlayFS takes none of those to write to.
fn is_of_this_machine(path: &Path) -> bool {
    const LOCAL: [libc::c_long; 16] = [
        libc::EXT4_SUPER_MAGIC as libc::c_long,
        libc::XFS_SUPER_MAGIC as libc::c_long,
        libc::BTRFS_SUPER_MAGIC as libc::c_long,
        libc::TMPFS_MAGIC as libc::c_long,
        libc::HUGETLBFS_MAGIC as libc::c_long,
        libc::F2FS_SUPER_MAGIC as libc::c_long,
        libc::OVERLAYFS_SUPER_MAGIC as libc::c_long,
        libc::MSDOS_SUPER_MAGIC as libc::c_long,
        libc::NILFS_SUPER_MAGIC as libc::c_long,
        libc::REISERFS_SUPER_MAGIC as libc::c_long,
        0x8584_58f6, // ramfs
        0x2fc1_2fc1, // ZFS
        0xca45_1a4e, // bcachefs
        0x2011_bab0, // exFAT
        0x7366_746e, // NTFS (ntfs3)
        0x3153_464a, // JFS
    ];
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    let mut found = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the path ends with a zero, and `found` has room for what the kernel says of it.
    if unsafe { libc::statfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: the kernel has filled it.
    let kind = unsafe { found.assume_init() }.f_type;
    // Of 32 bits, whatever the width and the sign of the field.
    LOCAL.iter().any(|local| *local as u32 == kind as u32)
}

fn since_boot() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is live; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// A connection over which the kernel tells the sender of what comes, from the first byte on.
fn connect_with_credentials(path: &Path) -> Result<UnixStream, IoError> {
    // SAFETY: socket only takes integers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(IoError::last_os());
    }
    // SAFETY: the kernel just returned this descriptor, and nothing else knows it.
    let socket = UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    set_pass_credentials(&socket, true)?;
    // SAFETY: zeros are a value of it.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    // One stays for the zero at the end.
    if bytes.is_empty() || bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(IoError::INVALID);
    }
    for (to, byte) in address.sun_path.iter_mut().zip(bytes) {
        *to = byte.cast_signed();
    }
    let len = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: `address` is live, of this size, and its path ends with a zero.
    let connected = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len) };
    if connected == 0 { Ok(socket) } else { Err(IoError::last_os()) }
}

fn set_pass_credentials(socket: &UnixStream, on: bool) -> Result<(), IoError> {
    let (value, len) = (libc::c_int::from(on), size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the option's value is a live int of the given size.
    let set = unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PASSCRED, value, len)
    };
    if set == 0 { Ok(()) } else { Err(IoError::last_os()) }
}

/// Room for what the kernel says beside the bytes, aligned for its headers.
type Control = [u64; 16];

/// Looks at the first bytes without taking them.
fn sender_of_first_bytes(socket: &UnixStream, wait: Duration) -> Option<libc::pid_t> {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let millis = libc::c_int::try_from(wait.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: one live entry.
    if unsafe { libc::poll(&raw mut poll, 1, millis) } != 1 {
        return None;
    }
    let (mut byte, mut control): (u8, Control) = (0, [0; 16]);
    let mut segment = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut message = message_with(&raw mut control);
    message.msg_iov = &raw mut segment;
    message.msg_iovlen = 1;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: everything that the message points to is live and of the sizes that it says, and no
    // reference to any of it is made before the call and the last use of the message.
    if unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) } < 1 {
        return None;
    }
    // SAFETY: `control` is live, was initialised, and the kernel has set how much of it it filled.
    unsafe { sender_in(&message) }
}

/// A message with this room, and nothing else.
fn message_with(control: *mut Control) -> libc::msghdr {
    // SAFETY: zeros are a value of it.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_control = control.cast();
    message.msg_controllen = size_of::<Control>() as _;
    message
}

/// The process that the first header of a message names as its sender.
///
/// # Safety
/// The message has a [`Control`] that is live and initialised, of which it says no more than there
/// is, and its pointer may be used for all of it.
unsafe fn sender_in(message: &libc::msghdr) -> Option<libc::pid_t> {
    // SAFETY: the caller vouches for the room. The pointers are made from that to the room, not
    // from one to the header, so that they may be used for what follows the header. Both are within
    // what the header says, which is within the room: that is what the comparison is for.
    let pid = unsafe {
        let header = libc::CMSG_FIRSTHDR(message);
        if header.is_null() {
            return None;
        }
        let (level, kind, len) = ((*header).cmsg_level, (*header).cmsg_type, (*header).cmsg_len);
        let wanted = libc::CMSG_LEN(size_of::<libc::ucred>() as libc::c_uint) as usize;
        let is_ours = level == libc::SOL_SOCKET && kind == libc::SCM_CREDENTIALS;
        if !is_ours || len < wanted as _ || message.msg_controllen < wanted as _ {
            return None;
        }
        libc::CMSG_DATA(header).cast::<libc::ucred>().read_unaligned().pid
    };
    // Zero: of a process that cannot be seen from here.
    (pid > 0).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    const WAIT: Duration = Duration::from_secs(10);

    fn own_process() -> PeerProcess {
        PeerProcess::find(std::process::id().cast_signed(), Duration::MAX).unwrap()
    }

    /// As the kernel lays it out.
    #[test]
    fn the_sender_is_read_from_a_message() {
        let told = |kind: libc::c_int, pid: libc::pid_t, cut: usize| {
            let mut control: Control = [0; 16];
            let mut message = message_with(&raw mut control);
            let len = size_of::<libc::ucred>() as libc::c_uint;
            let own = libc::ucred { pid, uid: 1, gid: 2 };
            // SAFETY: the header and what follows it lie within `control`, which is aligned for
            // the header.
            unsafe {
                let header = libc::CMSG_FIRSTHDR(&raw const message);
                (*header).cmsg_level = libc::SOL_SOCKET;
                (*header).cmsg_type = kind;
                (*header).cmsg_len = libc::CMSG_LEN(len) as _;
                libc::CMSG_DATA(header).cast::<libc::ucred>().write_unaligned(own);
                message.msg_controllen = libc::CMSG_SPACE(len) as usize - cut;
                sender_in(&message)
            }
        };
        assert_eq!(told(libc::SCM_CREDENTIALS, 4711, 0), Some(4711));
        assert_eq!(told(libc::SCM_RIGHTS, 4711, 0), None, "a descriptor");
        assert_eq!(told(libc::SCM_CREDENTIALS, 0, 0), None, "not of this namespace");
        assert_eq!(told(libc::SCM_CREDENTIALS, 4711, 8), None, "cut off");
        assert_eq!(told(libc::SCM_CREDENTIALS, 4711, 24), None, "not even a header");
    }

    #[test]
    #[cfg_attr(miri, ignore = "files")]
    fn files_that_others_carry_out_are_told() {
        assert!(is_of_this_machine(tempfile::NamedTempFile::new().unwrap().path()));
        // What is written there no file system of a drive keeps.
        assert!(!is_of_this_machine(Path::new("/proc/self/comm")));
        assert!(!is_of_this_machine(Path::new("/nowhere")));
    }

    /// A file that is no socket has the number of one that listens.
    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn a_file_with_the_number_of_a_socket_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let inode = fs::metadata(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap().ino();
        let peer = own_process();
        let open = |kind| [OpenFile { number: 7, kind, inode, readable: true, writable: true }];
        assert!(peer.accounted_sockets(&open(OpenKind::Socket)).unwrap().contains(&inode));
        assert!(!peer.accounted_sockets(&open(OpenKind::Harmless)).unwrap().contains(&inode));
        assert!(writes(&[OpenFile { readable: false, ..open(OpenKind::Pipe)[0].clone() }], inode));
        assert!(!writes(&[OpenFile { readable: false, ..open(OpenKind::Harmless)[0].clone() }], inode));
    }

    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn this_process_is_older_than_its_connections_and_not_over() {
        // The system counts in ticks.
        while own_process().statistics().unwrap().started >= since_boot() {
            std::thread::yield_now();
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let (stream, peer) = std::thread::scope(|scope| {
            scope.spawn(|| listener.accept().unwrap().0.write_all(b"first").unwrap());
            Stream::connect_unix_to_peer(&path, WAIT).unwrap()
        });
        let peer = peer.expect("the first bytes tell");
        assert_eq!(peer.pid.unsigned_abs(), std::process::id());
        assert!(!peer.is_over());
        // It holds the client's end, which was not made by a connection to it.
        assert_ne!(peer.role(), PeerRole::Keeps);
        drop(stream);
        let silent = Stream::connect_unix_to_peer(&path, Duration::from_millis(1)).unwrap();
        assert!(silent.1.is_none(), "nothing came");
        assert!(
            PeerProcess::find(std::process::id().cast_signed(), Duration::ZERO).is_none(),
            "it is younger"
        );
        drop(listener);
        assert!(Stream::connect_unix_to_peer(&path, WAIT).is_err());
    }
}
