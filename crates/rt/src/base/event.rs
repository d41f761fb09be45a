//! An eventfd: what a sleeping core is woken by.

#[cfg(not(any(loom, miri)))]
pub(crate) use system::EventFd;
#[cfg(any(loom, miri))]
pub(crate) use within_process::EventFd;

#[cfg(not(any(loom, miri)))]
mod system {
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
            // SAFETY: an eventfd takes 8 bytes, which `one` has. It cannot be full: a reader
            // empties it.
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
}

/// What stands in for it where there are no system calls: in models (`--cfg loom`) and in Miri.
#[cfg(any(loom, miri))]
mod within_process {
    use crate::base::error::IoError;
    #[cfg(loom)]
    use loom::sync::atomic::AtomicBool;
    #[cfg(miri)]
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering;

    /// It orders nothing: what a core sees once it is awake, the words of the cores must bring.
    pub(crate) struct EventFd(AtomicBool);

    impl EventFd {
        #[expect(clippy::unnecessary_wraps, reason = "as the system's")]
        pub(crate) fn new() -> Result<EventFd, IoError> {
            Ok(EventFd(AtomicBool::new(false)))
        }

        /// Ends the wait.
        pub(crate) fn ring(&self) {
            self.0.swap(true, Ordering::Relaxed);
        }

        /// Takes the ring, so that the next one is heard; whether there was one.
        pub(crate) fn take(&self) -> bool {
            self.0.swap(false, Ordering::Relaxed)
        }

        /// Takes a ring, and waits for it until `is_over`.
        #[cfg(any(miri, test))]
        pub(crate) fn wait(&self, is_over: impl Fn() -> bool) {
            while !self.take() && !is_over() {
                #[cfg(loom)]
                loom::thread::yield_now();
                #[cfg(miri)]
                std::thread::yield_now();
            }
        }

        pub(crate) fn raw_fd(&self) -> i32 {
            -1
        }
    }
}
