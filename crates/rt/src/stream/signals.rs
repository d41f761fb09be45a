//! A signal to an event of another process that never waits.
//!
//! A write to an event waits where its counter is full and non-blocking mode is off, and the other
//! process may bring about both between any check and the write. What the kernel itself signals
//! leaves a full counter as it is. The kernel's asynchronous I/O signals an event when a request
//! completes, so a request that completes at once is such a signal.

use std::cell::Cell;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::base::error::IoError;

/// Completions that a context has room for.
const ROOM: usize = 32;

/// The kernel's `struct iocb`, on little-endian processors.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buf: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event: u32,
}

/// The kernel's `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Completed {
    data: u64,
    request: u64,
    result: i64,
    result_more: i64,
}

/// A context of asynchronous I/O, for one thread.
pub(super) struct Signals {
    context: libc::c_ulong,
    /// Requests whose completions are still in the context.
    unreaped: Cell<usize>,
}

impl Signals {
    /// `None` where the kernel has no asynchronous I/O, or no more of it.
    pub fn new() -> Option<Signals> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes the context's name into a live word that is 0 before.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, ROOM, &raw mut context) };
        (made == 0).then_some(Signals { context, unreaped: Cell::new(0) })
    }

    /// Signals an event.
    ///
    /// # Errors
    /// What the system says: it was not signalled.
    pub fn signal(&self, event: BorrowedFd<'_>) -> Result<(), IoError> {
        const READ: u16 = 0;
        const SIGNAL_EVENT: u32 = 1;
        if self.unreaped.get() >= ROOM {
            self.reap();
        }
        // Too few bytes for what an event is read in: the read ends at once, with an error.
        let fd = event.as_raw_fd().cast_unsigned();
        let mut request = Request { opcode: READ, fd, flags: SIGNAL_EVENT, event: fd, ..Request::default() };
        let mut list = [&raw mut request];
        let count: libc::c_long = 1;
        // SAFETY: the list has one live request, which the kernel copies; its buffer has no bytes.
        let begun = unsafe { libc::syscall(libc::SYS_io_submit, self.context, count, list.as_mut_ptr()) };
        if begun != 1 {
            return Err(IoError::last_os());
        }
        self.unreaped.set(self.unreaped.get() + 1);
        Ok(())
    }

    fn reap(&self) {
        let mut completed = [Completed::default(); ROOM];
        let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let least: libc::c_long = 0;
        // SAFETY: there is room for as many completions as are asked for; it waits for none.
        unsafe {
            let (room, time) = (completed.as_mut_ptr(), &raw const no_time);
            libc::syscall(libc::SYS_io_getevents, self.context, least, ROOM, room, time);
        }
        self.unreaped.set(0);
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and no request is under way in it.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}
