//! Every bound of the FUSE export, in one place, with its arithmetic.
//!
//! Memory: a core holds a buffer of [`REQUEST_BYTES_MAX`] to receive into, at most [`CORE_BYTES_MAX`] for requests that it has read and not
//! answered, and what one batch brings on top. Beyond that, requests wait in the kernel.

/// The longest read or write; longer ones are cut by the kernel, which sends the parts side by side where it can.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Data of a write up to this length is copied out of the buffer it came in; a longer one takes the buffer with it.
pub const COPY_BYTES_MAX: usize = 64 << 10;

/// Messages that are taken before what came is begun.
pub const MESSAGES_AT_ONCE_MAX: usize = 16;

/// What requests of one core that were read and not answered may hold.
pub const CORE_BYTES_MAX: usize = 64 << 20;

/// Asynchronous requests that the kernel hands out before it makes their callers wait.
pub const BACKGROUND_MAX: u16 = 512;
