//! The path of a listening Unix socket: checked and bound as one step, and removed only while it
//! still leads to the socket that was bound.
//!
//! A socket file does not go with its process, so a listener has to judge whether the one it finds
//! is served, remove it if not, and bind its own. Two processes that did so side by side could each
//! find the same dead socket, and the second would remove the socket that the first has just bound.
//! So the three steps are done under a lock that only processes of this user can hold: a directory
//! can be locked by every user who may read it.

use super::ListenError;
use crate::base::error::IoError;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Two looks whether the lock on a path is free are so far apart.
const LOOK: Duration = Duration::from_millis(10);
/// The lock is held for some system calls: a process that has it for longer was stopped meanwhile.
const LOOKS_MAX: u32 = 300;

/// A bound path, and which socket it led to.
#[derive(Debug)]
pub(crate) struct BoundPath {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl BoundPath {
    /// Removes the path, unless it leads to something else by now: then another listener has taken
    /// it over.
    ///
    /// The socket still listens: no other listener judges it dead meanwhile, so this takes no lock,
    /// for which a core would have to wait.
    pub(crate) fn remove(&self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode));
        if ours {
            // Best effort: the next listener removes a dead socket itself.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Binds and listens at `path`. A socket that no process serves is replaced; a live one is not, nor
/// any other file.
pub(crate) fn bind(path: &Path) -> Result<(UnixListener, BoundPath), ListenError> {
    let _lock = PathLock::of(path)?;
    remove_if_dead(path)?;
    let listener = UnixListener::bind(path).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse,
        _ => IoError::from_std(&error).into(),
    })?;
    let bound = std::fs::symlink_metadata(path).map_err(|error| IoError::from_std(&error))?;
    let bound = BoundPath { path: path.to_owned(), device: bound.dev(), inode: bound.ino() };
    Ok((listener, bound))
}

/// Removes the socket at `path` if no process serves it.
///
/// # Errors
/// It is served, is no socket, or the operating system refuses.
pub(crate) fn remove_dead(path: &Path) -> Result<(), ListenError> {
    let _lock = PathLock::of(path)?;
    remove_if_dead(path)
}

fn remove_if_dead(path: &Path) -> Result<(), ListenError> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(ListenError::NotASocket);
    }
    match connect_at_once(path) {
        Err(error) if error.errno() == libc::ECONNREFUSED => match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(IoError::from_std(&error).into()),
            _ => Ok(()),
        },
        Err(error) if error.errno() == libc::ENOENT => Ok(()),
        // It answered, its queue is full (EAGAIN), or it is there but not for us: it is alive.
        _ => Err(ListenError::InUse),
    }
}

/// Connects, and does not wait where the listener's queue is full: its process may be stopped.
fn connect_at_once(path: &Path) -> Result<OwnedFd, IoError> {
    // SAFETY: a sockaddr_un is plain integers, for which zero is a value.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(IoError::INVALID);
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, byte) in address.sun_path.iter_mut().zip(bytes) {
        *to = byte.cast_signed() as libc::c_char;
    }
    let flags = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket only takes integers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, flags, 0) };
    if fd < 0 {
        return Err(IoError::last_os());
    }
    // SAFETY: the kernel just gave us this descriptor and nothing else knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` is live and of this length; its path ends with a zero, as it is shorter
    // than the field.
    let rc = unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), len) };
    if rc == 0 { Ok(fd) } else { Err(IoError::last_os()) }
}

/// The lock on a path, by `flock` on a file beside it that is there only as long as the lock is
/// held. It goes with the process that holds it; the next one takes a file that was left behind.
struct PathLock(Option<LockFile>);

struct LockFile {
    /// Closing it releases the lock.
    _file: File,
    path: PathBuf,
}

impl PathLock {
    /// Waits for the lock on a path. There is none where no such file can be made, or where it is
    /// one that other users could lock: then rivals have only the time between two system calls.
    #[expect(clippy::disallowed_methods, reason = "a core that may not wait offloads this")]
    fn of(path: &Path) -> Result<PathLock, ListenError> {
        let Some(name) = path.file_name() else { return Ok(PathLock(None)) };
        let name = [b".", name.as_bytes(), b".lock"].concat();
        let path = path.with_file_name(std::ffi::OsStr::from_bytes(&name));
        for _ in 0..LOOKS_MAX {
            let Some(file) = open_lock(&path) else { return Ok(PathLock(None)) };
            // SAFETY: flock only takes a descriptor, which `file` keeps open, and a flag.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                if is_at(&file, &path) {
                    return Ok(PathLock(Some(LockFile { _file: file, path })));
                }
                // Its holder removed it after it was opened here: another one counts now.
                continue;
            }
            if IoError::last_os().errno() != libc::EWOULDBLOCK {
                return Ok(PathLock(None));
            }
            thread::sleep(LOOK);
        }
        Err(ListenError::PathLocked)
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        // Only the holder removes it, so that two files at one path are never both locked.
        if let Some(lock) = &self.0 {
            let _ = std::fs::remove_file(&lock.path);
        }
    }
}

/// The file that is locked; `None` unless it is one that only this user can open.
fn open_lock(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()?;
    let found = file.metadata().ok()?;
    // SAFETY: geteuid only returns an integer.
    let own = found.uid() == unsafe { libc::geteuid() };
    // A second name of it may be that of a file whose lock means something else.
    let private = own && found.mode() & 0o077 == 0 && found.nlink() <= 1;
    (found.is_file() && private).then_some(file)
}

/// Whether a path leads to an open file.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), std::fs::symlink_metadata(path)) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    #[cfg_attr(miri, ignore = "sockets of the system")]
    fn of_many_that_find_a_dead_socket_one_listens() {
        const RIVALS: usize = 4;
        let temp = tempfile::tempdir().unwrap();
        for round in 0..100 {
            let path = temp.path().join(format!("{round}"));
            drop(UnixListener::bind(&path).unwrap());
            let start = Barrier::new(RIVALS);
            let winners = thread::scope(|scope| {
                let bind_one = || {
                    start.wait();
                    bind(&path).ok()
                };
                let rivals: Vec<_> = (0..RIVALS).map(|_| scope.spawn(bind_one)).collect();
                rivals.into_iter().filter_map(|rival| rival.join().unwrap()).collect::<Vec<_>>()
            });
            assert_eq!(winners.len(), 1, "round {round}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "sockets of the system")]
    fn a_listener_whose_queue_is_full_is_alive() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("s");
        let (listener, _bound) = bind(&path).unwrap();
        // SAFETY: listen only takes integers; called again it only changes the length of the queue.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let queued: Vec<_> = (0..4).map_while(|_| connect_at_once(&path).ok()).collect();
        assert!(queued.len() < 4, "the queue is full");
        assert_eq!(bind(&path).unwrap_err(), ListenError::InUse);
    }

    fn lock(file: &File) {
        // SAFETY: flock only takes a descriptor, which `file` keeps open, and a flag.
        assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }, 0);
    }

    /// Every user who may read the directory can lock it, and one who may write to it can put a
    /// file there.
    #[test]
    #[cfg_attr(miri, ignore = "sockets of the system")]
    #[expect(clippy::disallowed_methods, reason = "the lock is waited for where there is no core")]
    fn what_other_users_can_lock_is_not_waited_for() {
        let temp = tempfile::tempdir().unwrap();
        let (path, beside) = (temp.path().join("s"), temp.path().join(".s.lock"));
        let dir = File::open(temp.path()).unwrap();
        lock(&dir);
        let begun = std::time::Instant::now();
        let (listener, bound) = bind(&path).unwrap();
        bound.remove();
        drop(listener);
        let theirs = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&beside).unwrap();
        lock(&theirs);
        drop(UnixListener::bind(&path).unwrap());
        let (_listener, bound) = bind(&path).unwrap();
        bound.remove();
        std::fs::remove_file(&beside).unwrap();
        std::os::unix::fs::symlink("elsewhere", &beside).unwrap();
        assert!(bind(&path).is_ok() && !temp.path().join("elsewhere").exists());
        assert!(begun.elapsed() < LOOK * LOOKS_MAX / 2, "{:?}", begun.elapsed());
    }

    #[test]
    #[cfg_attr(miri, ignore = "sockets of the system")]
    fn a_path_that_a_process_of_this_user_keeps_locked_is_said_to_be() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("s");
        let held = PathLock::of(&path).unwrap();
        assert_eq!(bind(&path).unwrap_err(), ListenError::PathLocked);
        drop(held);
        assert!(bind(&path).is_ok());
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 1, "no lock stays behind");
    }

    #[test]
    #[cfg_attr(miri, ignore = "sockets of the system")]
    fn the_lock_that_a_killed_process_left_is_taken() {
        let temp = tempfile::tempdir().unwrap();
        let left = temp.path().join(".s.lock");
        drop(OpenOptions::new().write(true).create_new(true).mode(0o600).open(&left).unwrap());
        assert!(bind(&temp.path().join("s")).is_ok());
        assert!(!left.exists());
    }
}
