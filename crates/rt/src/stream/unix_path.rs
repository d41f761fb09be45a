//! The path of a listening Unix socket: checked and bound as one step, and removed only while it
//! still leads to the socket that was bound.
//!
//! A socket file does not go with its process, so a listener has to judge whether the one it finds
//! is served, remove it if not, and bind its own. Two processes that did so side by side could each
//! find the same dead socket, and the second would remove the socket that the first has just bound.
//! So the three steps are done under a lock on the directory.

use super::ListenError;
use crate::base::error::IoError;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Two looks whether the lock on a directory is free are so far apart.
const LOOK: Duration = Duration::from_millis(10);
/// The lock is held for some system calls: a process that has it for longer is not one of ours.
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
    pub(crate) fn remove(&self) {
        // Without the lock there is only more time between the look and the removal.
        let _lock = DirLock::of(&self.path);
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
    let _lock = DirLock::of(path)?;
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
    let _lock = DirLock::of(path)?;
    remove_if_dead(path)
}

fn remove_if_dead(path: &Path) -> Result<(), ListenError> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(ListenError::NotASocket);
    }
    match connect_at_once(path) {
        Err(error) if error.errno() == libc::ECONNREFUSED => {
            std::fs::remove_file(path).map_err(|error| IoError::from_std(&error).into())
        }
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

/// The lock on a directory, by `flock`: it goes with the process that holds it.
struct DirLock(#[expect(dead_code, reason = "closing it is what releases the lock")] Option<File>);

impl DirLock {
    /// Waits for the lock on the directory that `path` is in. There is none where the directory
    /// cannot be read or its file system has no locks.
    #[expect(clippy::disallowed_methods, reason = "a listener may be opened where there is no core")]
    fn of(path: &Path) -> Result<DirLock, ListenError> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let Ok(dir) = File::open(parent.unwrap_or(Path::new("."))) else { return Ok(DirLock(None)) };
        for _ in 0..LOOKS_MAX {
            // SAFETY: flock only takes a descriptor, which `dir` keeps open, and a flag.
            if unsafe { libc::flock(dir.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                return Ok(DirLock(Some(dir)));
            }
            if IoError::last_os().errno() != libc::EWOULDBLOCK {
                return Ok(DirLock(None));
            }
            thread::sleep(LOOK);
        }
        Err(ListenError::DirectoryLocked)
    }
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

    #[test]
    #[cfg_attr(miri, ignore = "sockets of the system")]
    fn a_directory_that_stays_locked_is_said_to_be() {
        let temp = tempfile::tempdir().unwrap();
        let other = File::open(temp.path()).unwrap();
        // SAFETY: flock only takes a descriptor, which `other` keeps open, and a flag.
        assert_eq!(unsafe { libc::flock(other.as_raw_fd(), libc::LOCK_EX) }, 0);
        let path = temp.path().join("s");
        assert_eq!(bind(&path).unwrap_err(), ListenError::DirectoryLocked);
        drop(other);
        assert!(bind(&path).is_ok());
    }
}
