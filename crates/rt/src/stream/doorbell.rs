//! Events of other processes: counters of the kernel's (`eventfd`) that wake them, or are waited
//! for here.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::signals::Signals;
use super::{Kind, Stream};
use crate::base::error::IoError;

/// An event that another process waits for. Clones by `Arc`; the last one closes it.
#[derive(Debug)]
pub struct Doorbell {
    event: OwnedFd,
}

impl Doorbell {
    /// Takes an event that another process made.
    ///
    /// # Errors
    /// `EINVAL`: it is something else.
    pub fn new(event: OwnedFd) -> Result<Doorbell, IoError> {
        if is_event(event.as_fd()) { Ok(Doorbell { event }) } else { Err(IoError::INVALID) }
    }

    /// Wakes the other process; it never waits for it. An event whose counter is full is left so:
    /// its process is awake, or does not care. Where the kernel has no asynchronous I/O it is a
    /// write, for which a process that works at it can make this thread wait.
    pub fn ring(&self) {
        thread_local! {
            static SIGNALS: Option<Signals> = Signals::new();
        }
        let signal = |signals: &Option<Signals>| {
            signals.as_ref().is_some_and(|signals| signals.signal(self.event.as_fd()).is_ok())
        };
        if !SIGNALS.try_with(signal).unwrap_or(false) {
            self.write();
        }
    }

    fn write(&self) {
        let fd = self.event.as_raw_fd();
        let one = 1u64;
        let mut ready = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
        // SAFETY: the calls read live memory of the lengths given.
        unsafe {
            // A counter that is beyond full is an event too: an error.
            if libc::poll(&raw mut ready, 1, 0) == 1 && ready.revents & libc::POLLOUT != 0 {
                libc::write(fd, (&raw const one).cast(), size_of::<u64>());
            }
        }
    }
}

impl Stream {
    /// An event that another process rings: a receive takes its counter, which is 8 bytes.
    ///
    /// # Errors
    /// `EINVAL`: it is something else.
    pub fn from_event(event: OwnedFd) -> Result<Stream, IoError> {
        if is_event(event.as_fd()) {
            Ok(Stream::of_fd(event, Kind::Bytes, false))
        } else {
            Err(IoError::INVALID)
        }
    }
}

/// Whether it is an event. The link is the kernel's own word: files have paths there.
pub(super) fn is_event(fd: BorrowedFd<'_>) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    link.is_ok_and(|link| link.to_str() == Some("anon_inode:[eventfd]"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::helper_thread;
    use std::os::fd::FromRawFd;
    use std::sync::mpsc;
    use std::time::Duration;

    fn event(value: u32, flags: i32) -> OwnedFd {
        // SAFETY: the descriptor is new and ours.
        unsafe { OwnedFd::from_raw_fd(libc::eventfd(value, flags | libc::EFD_CLOEXEC)) }
    }

    fn add(event: &OwnedFd, count: u64) {
        // SAFETY: it writes a live word.
        assert_eq!(unsafe { libc::write(event.as_raw_fd(), (&raw const count).cast(), 8) }, 8);
    }

    fn take(event: &OwnedFd) -> u64 {
        let mut value = 0u64;
        // SAFETY: it reads into a live word.
        assert_eq!(unsafe { libc::read(event.as_raw_fd(), (&raw mut value).cast(), 8) }, 8);
        value
    }

    #[test]
    #[cfg_attr(miri, ignore = "events")]
    fn it_rings_and_waits_for_nothing() {
        for flags in [0, libc::EFD_NONBLOCK] {
            let own = event(0, flags);
            let bell = Doorbell::new(own.try_clone().unwrap()).unwrap();
            // More often than a thread has room for at once.
            (0..100).for_each(|_| bell.ring());
            assert_eq!(take(&own), 100);
            bell.write();
            assert_eq!(take(&own), 1);
            add(&own, u64::MAX - 1);
            bell.ring();
            bell.write();
        }
        assert!(Doorbell::new(tempfile::tempfile().unwrap().into()).is_err());
        assert!(Stream::from_event(tempfile::tempfile().unwrap().into()).is_err());
        assert!(Stream::from_event(event(0, 0)).is_ok());
    }

    #[test]
    #[cfg_attr(miri, ignore = "events")]
    fn a_process_that_changes_the_mode_of_its_event_is_not_waited_for() {
        let own = event(0, libc::EFD_NONBLOCK);
        let bell = Doorbell::new(own.try_clone().unwrap()).unwrap();
        add(&own, u64::MAX - 1);
        // SAFETY: fcntl only takes integers; the descriptor is open.
        assert_eq!(unsafe { libc::fcntl(own.as_raw_fd(), libc::F_SETFL, 0) }, 0);
        let (tell, told) = mpsc::channel();
        let ring = move || {
            bell.ring();
            tell.send(())
        };
        helper_thread("rings", ring).unwrap();
        let rang = told.recv_timeout(Duration::from_secs(10));
        if rang.is_err() {
            take(&own);
        }
        assert_eq!(rang, Ok(()));
    }
}
