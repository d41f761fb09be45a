//! FUSE: a directory whose files this process serves, and the queues on which the kernel asks for
//! them.
//!
//! Only the way to the kernel is here: mounting (by `mount(2)` with the rights for it, else through
//! `fusermount3`), a queue for every core, and unmounting. What the messages mean is the export's
//! concern.

mod helper;
mod ring;
mod table;

use crate::base::error::IoError;
use crate::base::system::SignalMask;
use crate::mailbox::mailbox;
use crate::stream::Stream;
use std::cell::Cell;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

pub use ring::{Ring, RingRequest, kernel_queues};
pub use table::{MountEntry, mount_at, mounts_from, mounts_in};

/// What `/proc/mounts` calls the type of our mounts.
pub const MOUNT_TYPE: &str = "fuse.wattle";

const DEVICE: &str = "/dev/fuse";

/// Why a directory could not be mounted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// There is nothing at the path.
    #[error("there is no such directory")]
    Missing,
    /// It is something else.
    #[error("it is not a directory")]
    NotADirectory,
    /// Its files would be hidden.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A running server serves there.
    #[error("another server serves there")]
    InUse,
    /// The kernel has no FUSE, or the sandbox does not show it.
    #[error("there is no /dev/fuse: this kernel or sandbox does not offer FUSE")]
    NoFuse,
    /// Only root may mount by itself, and the program that mounts for others is not there.
    #[error("mounting needs root, or the program fusermount3, which is not installed")]
    NoHelper,
    /// `fusermount3` has printed why.
    #[error("fusermount3 refused")]
    HelperRefused,
    /// The operating system refused.
    #[error(transparent)]
    Other(#[from] IoError),
}

/// Why something stays mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnmountError {
    /// Files there are open, or a loop device or working directory is on it.
    #[error("it is in use")]
    Busy,
    /// Another program has unmounted it.
    #[error("it is not mounted")]
    NotMounted,
    /// The operating system refused.
    #[error(transparent)]
    Other(#[from] IoError),
}

/// A directory served by this process.
#[derive(Debug)]
pub struct FuseMount {
    dir: PathBuf,
    session: OwnedFd,
    by: Rights,
    stale: bool,
    /// From the first queue on, requests may be in our hands: then unmounting must not block a
    /// core.
    served: Cell<bool>,
}

/// By which rights it is mounted and unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rights {
    Own,
    Helper,
}

impl FuseMount {
    /// Mounts on an empty directory. What a server that was killed has left mounted there is
    /// removed first.
    pub fn new(dir: &Path, read_only: bool) -> Result<FuseMount, MountError> {
        let (dir, stale) = make_room(dir)?;
        let (session, by) = match mount_ourselves(&dir, read_only) {
            Err(MountError::Other(error)) if error.errno() == libc::EPERM => {
                (helper::mount(&dir, read_only)?, Rights::Helper)
            }
            mounted => (mounted?, Rights::Own),
        };
        Ok(FuseMount { dir, session, by, stale, served: Cell::new(false) })
    }

    /// Where it is, as an absolute path.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether something that a killed server had left was in the way.
    pub fn was_stale(&self) -> bool {
        self.stale
    }

    /// Whether this process may unmount by itself, whatever is open.
    pub fn is_privileged(&self) -> bool {
        self.by == Rights::Own
    }

    /// A queue of its own for one core: the kernel hands each request to one of them, and its
    /// answer goes there too.
    pub fn queue(&self) -> Result<Stream, IoError> {
        /// `_IOR(229, 0, uint32_t)`.
        const FUSE_DEV_IOC_CLONE: libc::c_ulong = 0x8004_e500;
        self.served.set(true);
        let queue = open_device()?;
        let session = self.session.as_raw_fd().cast_unsigned();
        // SAFETY: the ioctl reads one u32, which lives on our stack; both descriptors are open.
        let rc = unsafe { libc::ioctl(queue.as_raw_fd(), FUSE_DEV_IOC_CLONE as _, &raw const session) };
        if rc == 0 { Ok(Stream::of_messages(queue)) } else { Err(IoError::last_os()) }
    }

    /// Unmounts; with `lazily` the directory is given back even while files are open, and those
    /// answer errors once this process ends.
    ///
    /// # Cancellation
    /// Dropping the future does not stop it.
    pub async fn unmount(&self, lazily: bool) -> Result<(), UnmountError> {
        // The system call waits for requests that are in our hands: a core that made it would wait
        // for itself.
        let (sender, mut receiver) = mailbox();
        let (dir, by) = (self.dir.clone(), self.by);
        let work = move || {
            SignalMask::block_all();
            // The caller may have stopped waiting.
            let _ = sender.send(unmount(&dir, by, lazily));
        };
        let thread = std::thread::Builder::new().name("wattle-umount".to_owned()).spawn(work);
        thread.map_err(|error| UnmountError::Other(IoError::from_std(&error)))?;
        let gone = || Err(UnmountError::Other(IoError::from_errno(libc::ESHUTDOWN)));
        receiver.recv().await.unwrap_or_else(gone)
    }

    /// The owner of the mount, and so of its files: user and group.
    pub fn owner(&self) -> (u32, u32) {
        owner()
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        // A mount that was served and not unmounted in order is left to the kernel, which answers
        // for a process that is gone, and to the next server, which removes it.
        if !self.served.get() {
            let _ = unmount(&self.dir, self.by, true);
        }
    }
}

/// Unmounts whatever is at `dir`; by our own rights, or with those of `fusermount3` for a FUSE
/// mount of this user.
pub fn unmount_dir(dir: &Path, lazily: bool) -> Result<(), UnmountError> {
    match unmount(dir, Rights::Own, lazily) {
        Err(UnmountError::Other(error)) if error.errno() == libc::EPERM => {
            unmount(dir, Rights::Helper, lazily)
        }
        result => result,
    }
}

fn unmount(dir: &Path, by: Rights, lazily: bool) -> Result<(), UnmountError> {
    if by == Rights::Helper {
        return helper::unmount(dir, lazily);
    }
    let path = c_string(dir)?;
    let flags = libc::UMOUNT_NOFOLLOW | if lazily { libc::MNT_DETACH } else { 0 };
    // SAFETY: the path is a live C string.
    if unsafe { libc::umount2(path.as_ptr(), flags) } == 0 {
        return Ok(());
    }
    Err(match IoError::last_os() {
        error if error.errno() == libc::EBUSY => UnmountError::Busy,
        error if matches!(error.errno(), libc::EINVAL | libc::ENOENT) => UnmountError::NotMounted,
        error => error.into(),
    })
}

/// The directory by its absolute path, free to be mounted on, and whether a dead mount had to be
/// removed for that.
fn make_room(dir: &Path) -> Result<(PathBuf, bool), MountError> {
    let dir = absolute(dir)?;
    let stale = mount_at(&dir).is_some_and(|mount| mount.kind == MOUNT_TYPE);
    if stale {
        if !server_is_gone(&dir) {
            return Err(MountError::InUse);
        }
        unmount_dir(&dir, true).map_err(|error| match error {
            UnmountError::Other(error) => MountError::Other(error),
            UnmountError::Busy | UnmountError::NotMounted => MountError::InUse,
        })?;
    }
    let metadata = fs::metadata(&dir).map_err(|error| open_error(&error))?;
    if !metadata.is_dir() {
        return Err(MountError::NotADirectory);
    }
    let mut entries = fs::read_dir(&dir).map_err(|error| open_error(&error))?;
    if entries.next().is_some() { Err(MountError::NotEmpty) } else { Ok((dir, stale)) }
}

/// Whether no server serves a mount any more. Asking may take as long as a live server takes to
/// answer, or for ever: so a thread of its own asks. A server that was killed this moment holds its
/// mount until the kernel has taken down its rings: a question that comes in between ends with
/// `ECONNABORTED` and is asked again. The question is one of which the kernel keeps no answer: what
/// it knows of the directory itself outlives the server.
pub fn server_is_gone(dir: &Path) -> bool {
    const PATIENCE: Duration = Duration::from_secs(10);
    const PAUSE: Duration = Duration::from_millis(10);
    let (sender, answer) = mpsc::channel();
    let dir = dir.to_owned();
    let ask = move || {
        let mut attempts = PATIENCE.as_millis() / PAUSE.as_millis();
        let gone = loop {
            match statistics(&dir).map_err(IoError::errno) {
                Err(libc::ECONNABORTED) if attempts > 0 => {
                    attempts -= 1;
                    #[expect(clippy::disallowed_methods, reason = "no core runs in this thread")]
                    std::thread::sleep(PAUSE);
                }
                asked => break asked == Err(libc::ENOTCONN),
            }
        };
        // The receiver is gone if it took too long.
        let _ = sender.send(gone);
    };
    let asked = std::thread::Builder::new().name("wattle-stat".to_owned()).spawn(ask);
    asked.is_ok() && answer.recv_timeout(PATIENCE).unwrap_or(false)
}

/// Asks for the room on a file system, and forgets it.
fn statistics(dir: &Path) -> Result<(), IoError> {
    let path = c_string(dir)?;
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path is a live C string, and the call only writes what lives until it returns.
    let asked = unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) };
    if asked == 0 { Ok(()) } else { Err(IoError::last_os()) }
}

/// Without links and dots, so that it is found in the table of mounts. The last part is not looked
/// at: the server behind it may be gone.
fn absolute(dir: &Path) -> Result<PathBuf, MountError> {
    let dir = std::path::absolute(dir).map_err(|error| open_error(&error))?;
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
        return Err(MountError::NotEmpty); // The root directory.
    };
    let dir = fs::canonicalize(parent).map_err(|error| open_error(&error))?.join(name);
    let followed =
        if mount_at(&dir).is_none() && dir.is_symlink() { fs::canonicalize(&dir) } else { Ok(dir) };
    followed.map_err(|error| open_error(&error))
}

fn open_error(error: &io::Error) -> MountError {
    match error.kind() {
        io::ErrorKind::NotFound => MountError::Missing,
        io::ErrorKind::NotADirectory => MountError::NotADirectory,
        _ => IoError::from_std(error).into(),
    }
}

fn owner() -> (u32, u32) {
    // SAFETY: these only return integers.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

fn open_device() -> Result<OwnedFd, IoError> {
    let path = c_string(Path::new(DEVICE))?;
    // Many tasks share a queue: a task that comes too late is told to wait instead of blocking its
    // core.
    // SAFETY: the path is a live C string.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK) };
    if fd < 0 {
        return Err(IoError::last_os());
    }
    // SAFETY: the kernel just returned this descriptor, and nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn mount_ourselves(dir: &Path, read_only: bool) -> Result<OwnedFd, MountError> {
    let session = open_device().map_err(device_error)?;
    let (user, group) = owner();
    let fd = session.as_raw_fd();
    let options = format!("fd={fd},rootmode=40000,user_id={user},group_id={group},default_permissions");
    let (target, options) = (c_string(dir)?, c_string(Path::new(&options))?);
    let mut flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    if read_only {
        flags |= libc::MS_RDONLY;
    }
    let kind = c_string(Path::new(MOUNT_TYPE))?;
    // SAFETY: all four are live C strings.
    let rc = unsafe {
        libc::mount(c"wattle".as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast())
    };
    if rc == 0 { Ok(session) } else { Err(device_error(IoError::last_os())) }
}

fn device_error(error: IoError) -> MountError {
    match error.errno() {
        libc::ENOENT | libc::ENODEV | libc::ENXIO => MountError::NoFuse,
        _ => error.into(),
    }
}

fn c_string(path: &Path) -> Result<CString, IoError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| IoError::INVALID)
}
