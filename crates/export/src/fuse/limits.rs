//! Every bound of the FUSE export, in one place, with its arithmetic.
//!
//! Memory over the device: a core holds a buffer of [`REQUEST_BYTES_MAX`] to receive into, at most
//! [`CORE_BYTES_MAX`] for requests that it has read and not answered, and what one batch brings on
//! top. Beyond that, requests wait in the kernel.

/// The longest read or write; longer ones are cut by the kernel, which sends the parts side by side
/// where it can.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Data of a write up to this length is copied out of the buffer it came in; a longer one takes the
/// buffer with it.
pub const COPY_BYTES_MAX: usize = 64 << 10;

/// Messages that are taken before what came is begun.
pub const MESSAGES_AT_ONCE_MAX: usize = 16;

/// What requests of one core that were read and not answered may hold.
pub const CORE_BYTES_MAX: usize = 64 << 20;

/// The longest read or write over io_uring, where memory for each of the requests that may be under
/// way is set aside.
pub const SLOT_BYTES: usize = 256 << 10;

/// How many requests may be under way over io_uring: the kernel has a queue for each processor, and
/// each needs some. At 512 slots of 256 KiB these hold 128 MiB at most, once as many long requests
/// have been under way together; beyond 128 processors more.
#[must_use]
pub fn slots_per_queue(kernel_queues: u16) -> usize {
    const SLOTS: usize = 512;
    (SLOTS / usize::from(kernel_queues.max(1))).clamp(4, 64)
}

/// Asynchronous requests that the kernel hands out before it makes their callers wait.
pub const BACKGROUND_MAX: u16 = 512;
