//! Descriptors that another process hands over and that may be anything.
//!
//! Calls on a file of a file system in user space, or across a network, wait for whatever process
//! is there as long as it likes, and so does an access to its pages, and even the call that closes
//! it. A connection can be told to wait as it is closed. So what came is looked at before anything
//! is done with it, by calls that ask only the kernel.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::doorbell::is_event;
use super::socket_option;
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

/// Closes descriptors that may be anything. Those that are not harmless are closed by a thread,
/// which may wait; where as many wait already as there may be, they stay open.
pub(super) fn close(descriptors: Vec<OwnedFd>) {
    const THREADS_MAX: usize = 16;
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    let doubtful = descriptors.into_iter().filter(|fd| !is_harmless(fd.as_fd()));
    // Numbers: a thread that does not start must not have them closed here.
    let doubtful: Vec<RawFd> = doubtful.map(IntoRawFd::into_raw_fd).collect();
    if doubtful.is_empty() {
        return;
    }
    let work = move || {
        for fd in doubtful {
            // SAFETY: it was an owned descriptor that was given up above, and is one again.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        THREADS.fetch_sub(1, Ordering::Relaxed);
    };
    if THREADS.fetch_add(1, Ordering::Relaxed) >= THREADS_MAX || helper_thread("wattle-close", work).is_err()
    {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::shared::SharedMemory;
    use std::fs::File;
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

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
}
