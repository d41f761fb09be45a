//! An eventfd: what a sleeping core is woken by.

use crate::base::error::IoError;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> Result<EventFd, IoError> {
        // SAFETY: eventfd only takes integers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(IoError::last_os());
        }
        // SAFETY: the kernel just gave us this descriptor and nothing else knows it.
        Ok(EventFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes it readable.
    pub(crate) fn ring(&self) {
        let one: u64 = 1;
        // SAFETY: an eventfd takes 8 bytes, which `one` has. It cannot be full: a reader empties
        // it.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Takes the ring, so that the next one is heard.
    pub(crate) fn take(&self) {
        let mut count: u64 = 0;
        // SAFETY: an eventfd gives 8 bytes, which `count` has; it never blocks (EFD_NONBLOCK).
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }

    pub(crate) fn raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}
