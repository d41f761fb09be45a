//! Events of other processes: a counter of the kernel's (`eventfd`) that wakes them.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::base::error::IoError;

/// An event that another process waits for. Clones by `Arc`; the last one closes it.
#[derive(Debug)]
pub struct Doorbell {
    event: OwnedFd,
    /// A write returns at once in any case.
    non_blocking: bool,
}

impl Doorbell {
    /// Takes an event that another process made.
    ///
    /// # Errors
    /// It is something else: a write there could take as long as the other side likes.
    pub fn new(event: OwnedFd) -> Result<Doorbell, IoError> {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", event.as_raw_fd()));
        let link = link.map_err(|error| IoError::from_std(&error))?;
        if link.to_str() != Some("anon_inode:[eventfd]") {
            return Err(IoError::INVALID);
        }
        // SAFETY: fcntl only takes integers; the descriptor is open.
        let flags = unsafe { libc::fcntl(event.as_raw_fd(), libc::F_GETFL) };
        Ok(Doorbell { event, non_blocking: flags >= 0 && flags & libc::O_NONBLOCK != 0 })
    }

    /// Wakes the other process. It is a system call of its own, since a ring would hand it to a
    /// thread: the kernel has no write to an event that is known not to wait. An event whose
    /// counter is full is not waited for: its process is awake, or does not care.
    pub fn ring(&self) {
        let fd = self.event.as_raw_fd();
        let one = 1u64;
        // SAFETY: the calls read live memory of the lengths given.
        unsafe {
            if !self.non_blocking {
                let mut ready = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
                if libc::poll(&raw mut ready, 1, 0) != 1 {
                    return;
                }
            }
            libc::write(fd, (&raw const one).cast(), size_of::<u64>());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::FromRawFd;

    fn event(value: u32, flags: i32) -> OwnedFd {
        // SAFETY: the descriptor is new and ours.
        unsafe { OwnedFd::from_raw_fd(libc::eventfd(value, flags | libc::EFD_CLOEXEC)) }
    }

    #[test]
    #[cfg_attr(miri, ignore = "events")]
    fn it_rings_and_waits_for_nothing() {
        for flags in [0, libc::EFD_NONBLOCK] {
            let own = event(0, flags);
            let bell = Doorbell::new(own.try_clone().unwrap()).unwrap();
            bell.ring();
            bell.ring();
            let mut value = 0u64;
            // SAFETY: it reads into a live word.
            let count = unsafe { libc::read(own.as_raw_fd(), (&raw mut value).cast(), 8) };
            assert_eq!((count, value), (8, 2));
            let full = u64::MAX - 1;
            // SAFETY: it writes a live word.
            assert_eq!(unsafe { libc::write(own.as_raw_fd(), (&raw const full).cast(), 8) }, 8);
            bell.ring();
        }
        assert!(Doorbell::new(tempfile::tempfile().unwrap().into()).is_err());
    }
}
