//! Where an operation on a drive goes, and when it ends.

use crate::base::error::IoError;
use crate::device::Device;
use crate::device::mem::Memory;

/// When an operation ends.
#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    /// It has ended already; nothing had to be done.
    Known(Result<usize, IoError>),
    /// With the next reap: so much was moved already.
    Soon(usize),
    /// When the backend that gets it says so.
    Open,
}

/// The outcome of an operation on a range that needs no doing.
pub(crate) fn known(device: &Device, offset: u64, len: u64, write: bool) -> Option<Result<usize, IoError>> {
    match device.check_range(offset, len, write) {
        Err(error) => Some(Err(error)),
        Ok(()) if len == 0 => Some(Ok(0)),
        Ok(()) => None,
    }
}

/// Where an operation that moves `len` bytes goes. On a drive in memory it is done here and now,
/// under every backend alike: nothing need hold on to the drive. It ends with the next reap as
/// others do, or tasks would never let one another go first.
pub(crate) fn aim(
    device: &Device,
    offset: u64,
    len: usize,
    known: Option<Result<usize, IoError>>,
    at_once: impl FnOnce(Memory<'_>, u64),
) -> (Option<Device>, u64, Outcome) {
    if let Some(result) = known {
        return (None, offset, Outcome::Known(result));
    }
    let (device, offset) = device.place(offset);
    let Some(memory) = device.as_memory() else { return (Some(device.clone()), offset, Outcome::Open) };
    at_once(memory, offset);
    (None, offset, Outcome::Soon(len))
}
