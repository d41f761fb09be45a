//! Descriptors that another process hands over and that may be anything.
//!
//! Calls on a file of a file system in user space, or across a network, wait for whatever process
//! is there as long as it likes, and so does an access to its pages, and even the call that closes
//! it. A connection can be told to wait as it is closed. So what came is looked at before anything
//! is done with it, by calls that ask only the kernel.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::doorbell::is_event;
use super::{Stream, socket_option};
use crate::helper::helper_thread;

/// Whether no call on it waits for another process: it is memory (a file of tmpfs or hugetlbfs, as
/// `memfd_create` makes them too), an event, or a Unix socket.
pub(super) fn is_harmless(fd: BorrowedFd<'_>) -> bool {
    is_memory(fd) || is_event(fd) || socket_option(fd, libc::SO_DOMAIN) == Ok(libc::AF_UNIX)
}

/// Whether it is a file whose pages are memory: only such files can be sealed.
fn is_memory(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: fcntl only takes integers; the descriptor is open.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) >= 0 }
}

/// Has the clients of a Unix socket that listens send no descriptors along (Linux 6.16): a
/// receive that expects none closes them, and that may wait. Of other sockets, and before that
/// version, nothing changes.
pub(super) fn refuse(listener: BorrowedFd<'_>) {
    const SO_PASSRIGHTS: libc::c_int = 83;
    let _ = set_option(listener, SO_PASSRIGHTS, &0);
}

fn set_option<T>(socket: BorrowedFd<'_>, name: libc::c_int, value: &T) -> libc::c_int {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is live and so long.
    unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, (&raw const *value).cast(), len) }
}

/// Descriptors that must not be closed where the last use of them ends: a Unix socket has a queue,
/// and what another process put there is closed with it. They are closed by a thread when this is
/// dropped.
#[derive(Debug, Default)]
pub struct KeptOpen(Vec<OwnedFd>);

impl KeptOpen {
    /// A peer has no use for more.
    const MAX: usize = 16;

    /// Those of a peer, and its connection: what it sent last may never be taken out of that.
    #[must_use]
    pub fn of(connection: &Stream) -> KeptOpen {
        let kept = connection.descriptor().and_then(|fd| fd.try_clone_to_owned().ok());
        KeptOpen(kept.into_iter().collect())
    }

    /// Keeps a duplicate if closing may wait; false if that cannot be had.
    pub(super) fn keep(&mut self, fd: BorrowedFd<'_>) -> bool {
        if is_memory(fd) || is_event(fd) {
            return true;
        }
        let kept = fd.try_clone_to_owned().ok().filter(|_| self.0.len() < Self::MAX);
        let is_kept = kept.is_some();
        self.0.extend(kept);
        is_kept
    }
}

impl Drop for KeptOpen {
    fn drop(&mut self) {
        close(std::mem::take(&mut self.0));
    }
}

/// What waits for a thread to close it, and how many such threads there are.
struct Closing {
    waiting: Vec<OwnedFd>,
    threads: usize,
}

static CLOSING: Mutex<Closing> = Mutex::new(Closing { waiting: Vec::new(), threads: 0 });

fn closing() -> MutexGuard<'static, Closing> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes descriptors that may be anything. All but events are closed by threads, which may wait:
/// to free memory takes its time too. Where as many wait already as there may be, these come when
/// one of them is done; where the system gives no thread, with the next that come.
pub(super) fn close(descriptors: Vec<OwnedFd>) {
    const THREADS_MAX: usize = 16;
    let doubtful: Vec<_> = descriptors.into_iter().filter(|fd| !is_event(fd.as_fd())).collect();
    if doubtful.is_empty() {
        return;
    }
    {
        let mut closing = closing();
        closing.waiting.extend(doubtful);
        if closing.threads == THREADS_MAX {
            return;
        }
        closing.threads += 1;
    }
    if helper_thread("wattle-close", close_waiting).is_err() {
        closing().threads -= 1;
    }
}

/// Closes what waits until nothing does. It ends under the lock: what is added later finds that.
fn close_waiting() {
    let next = || {
        let mut closing = closing();
        let fd = closing.waiting.pop();
        closing.threads -= usize::from(fd.is_none());
        fd
    };
    while let Some(fd) = next() {
        // A connection that was told to wait as it is closed does not.
        let at_once = libc::linger { l_onoff: 0, l_linger: 0 };
        set_option(fd.as_fd(), libc::SO_LINGER, &at_once);
        drop(fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::IoError;
    use crate::memory::shared::SharedMemory;
    use std::fs::File;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::FromRawFd;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    #[test]
    #[cfg_attr(miri, ignore = "descriptors of the system")]
    fn only_memory_events_and_unix_sockets_are_harmless() {
        let (_, memory) = SharedMemory::create(4096).unwrap();
        // SAFETY: the descriptor is new and ours.
        let event = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
        let (socket, _other) = UnixStream::pair().unwrap();
        for (what, fd) in [("memory", memory), ("an event", event), ("a Unix socket", socket.into())] {
            assert!(is_harmless(fd.as_fd()), "{what}");
        }
        if let Ok(shm) = tempfile::tempfile_in("/dev/shm") {
            assert!(is_harmless(shm.as_fd()), "a file of tmpfs");
        }
        let (pipe, end) = std::io::pipe().unwrap();
        let others: [(_, OwnedFd); 5] = [
            ("a device", File::open("/dev/zero").unwrap().into()),
            ("a file", File::open("/proc/self/status").unwrap().into()),
            ("a directory", File::open("/proc/self").unwrap().into()),
            ("TCP", TcpListener::bind("127.0.0.1:0").unwrap().into()),
            ("a pipe", pipe.into()),
        ];
        for (what, fd) in &others {
            assert!(!is_harmless(fd.as_fd()), "{what}");
        }
        close(others.into_iter().map(|(_, fd)| fd).collect());
        // The pipe's other end sees when it is closed.
        let mut closed = libc::pollfd { fd: end.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one live entry.
        assert_eq!(unsafe { libc::poll(&raw mut closed, 1, 10_000) }, 1);
    }

    /// A connection that waits for seconds as it is closed: its peer takes nothing.
    fn lingering() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &socket, &[0; 1 << 16]).is_ok() {}
        let seconds = libc::linger { l_onoff: 1, l_linger: 5 };
        assert_eq!(set_option(socket.as_fd(), libc::SO_LINGER, &seconds), 0);
        (socket, peer)
    }

    #[test]
    #[cfg_attr(miri, ignore = "descriptors of the system")]
    #[allow(clippy::disallowed_methods, reason = "real time passes in the kernel")]
    fn what_lies_in_the_queue_of_a_socket_is_closed_elsewhere() {
        let (lingers, _peer) = lingering();
        let (ours, theirs) = Stream::pair().unwrap();
        let (handed, end) = Stream::pair().unwrap();
        end.try_send_along(b"a", Some(lingers.as_fd())).unwrap();
        drop((end, lingers));
        theirs.try_send_along(b"b", Some(handed.as_fd())).unwrap();
        drop(handed);
        let mut kept = KeptOpen::default();
        let (_, descriptors) = ours.try_receive_harmless(&mut [0; 1], &mut kept).unwrap();
        let begun = Instant::now();
        drop(descriptors);
        drop(kept);
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }

    #[test]
    #[cfg_attr(miri, ignore = "descriptors of the system")]
    fn clients_of_a_listener_send_no_descriptors_along() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _listener = crate::Listener::unix(&path).unwrap();
        let client = Stream::connect_unix(&path).unwrap();
        let sent = client.try_send_along(b"a", Some(client.as_fd())).map_err(IoError::errno);
        // Systems before Linux 6.16 know nothing of it.
        assert!(matches!(sent, Ok(()) | Err(libc::EPERM)), "{sent:?}");
        let path = dir.path().join("other");
        let _listener = crate::Listener::unix_for_descriptors(&path).unwrap();
        let client = Stream::connect_unix(&path).unwrap();
        client.try_send_along(b"a", Some(client.as_fd())).unwrap();
    }
}
