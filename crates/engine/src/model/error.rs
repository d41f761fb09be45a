//! What a client of a volume, or an operator of an array, can be told. Device errors are values
//! inside the engine and end here.

use thiserror::Error;

use crate::model::units::MemberIx;
use crate::model::whom::Whom;

/// Why a request on a volume was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// The range ends beyond the volume. Nothing was done.
    #[error("the request reaches beyond the end of the volume")]
    OutOfRange,
    /// The array is served read-only. Nothing was done.
    #[error("the array is read-only")]
    ReadOnly,
    /// The data cannot be produced: more members or sectors are gone than redundancy covers, or
    /// parity cannot be trusted.
    #[error("the data cannot be read: it is beyond what redundancy can restore")]
    Unreadable,
    /// The write could not be made durable within redundancy; what the range now holds is any mix
    /// of old and new sectors.
    #[error("the write failed on more members than redundancy covers")]
    WriteFailed,
    /// More members failed than redundancy covers, or refuse to be recorded (another server took
    /// them); every further write and flush gets this answer. Restart after repair.
    #[error("the array is broken: too few members are left that take what is written and recorded")]
    Broken,
    /// The array was stopped.
    #[error("the array is stopped")]
    Stopped,
    /// This part of the volume is on a device that is missing. Nothing was done.
    #[error("this part of the volume is on a device that is missing")]
    Missing,
    /// A member has no space left for this write (a sparse file on a full file system), on a level
    /// that cannot do without it.
    #[error("a member has no space left on its file system")]
    NoSpace,
}

/// Why a member was not failed on the operator's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FailError {
    /// Without this member data would be unreadable.
    #[error("failing member {0} would lose data: the array has no redundancy left for it")]
    LastCopy(MemberIx),
    /// There is no such seat or device in the array, or it has failed already.
    #[error("{0} is no working member")]
    NotPresent(Whom),
    /// The array is served read-only, so nothing can be recorded.
    #[error("the array is read-only")]
    ReadOnly,
    /// The change could not be recorded in the survivors' superblocks.
    #[error("the failure could not be recorded in the survivors' superblocks")]
    NotRecorded,
    /// The array was stopped.
    #[error("the array is stopped")]
    Stopped,
}

/// Why a member was not taken into an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// A working member is in the seat.
    #[error("seat {0} has a working member")]
    Taken(MemberIx),
    /// The array has no such slot, or the slot has no working member to replace.
    #[error("there is nothing to fill in seat {0}")]
    NoSuchSeat(MemberIx),
    /// The device is in another seat of this array.
    #[error("the device is a member of the array already")]
    Member,
    /// Its logical blocks are larger than those the array was started with, so that some requests
    /// would not fit them.
    #[error("the device's logical blocks are larger than the array's")]
    BlockSize,
    /// Nothing could fill it.
    #[error("the array has no redundancy that a new member could be filled from")]
    NoRedundancy,
    /// The array is served read-only.
    #[error("the array is read-only")]
    ReadOnly,
    /// More members failed than redundancy covers.
    #[error("the array is broken: too few members are left that take what is written and recorded")]
    Broken,
    /// The change could not be recorded in the members' superblocks.
    #[error("the new member could not be recorded in the superblocks")]
    NotRecorded,
    /// The array was stopped.
    #[error("the array is stopped")]
    Stopped,
}

impl From<VolumeError> for JoinError {
    fn from(error: VolumeError) -> Self {
        match error {
            VolumeError::Broken => Self::Broken,
            VolumeError::Stopped => Self::Stopped,
            _ => Self::NotRecorded,
        }
    }
}

/// Why a seat was not emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LeaveError {
    /// Its member works: fail it first.
    #[error("the member in seat {0} works; fail it first")]
    InUse(MemberIx),
    /// The seat is empty, or the device is in none.
    #[error("{0} is no member")]
    NotPresent(Whom),
    /// More members failed than redundancy covers.
    #[error("the array is broken: too few members are left that take what is written and recorded")]
    Broken,
    /// The change could not be recorded in the members' superblocks.
    #[error("the removal could not be recorded in the superblocks")]
    NotRecorded,
    /// The array was stopped.
    #[error("the array is stopped")]
    Stopped,
}
