//! What a job says of itself.

use std::ops::Range;
use std::time::Duration;

use wattle_rt::Instant;

use super::findings::{Mismatch, SumFindings};
use crate::model::units::{MemberIx, Sector};

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Makes parity or copies agree that may not, after a crash.
    Resync,
    /// Fills members.
    Recover,
    /// Compares.
    Check,
    /// Compares and repairs.
    Repair,
}

/// What a job is limited by at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitedBy {
    /// Nothing is known yet.
    Nothing,
    /// It is paused.
    Paused,
    /// The speed limit.
    SpeedMax,
    /// It makes way for clients.
    Foreground,
    /// The member in this seat takes the longest.
    Member(MemberIx),
}

/// A job under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncStatus {
    /// What it does.
    pub action: JobKind,
    /// It was asked for, of a part of the array only.
    pub is_part: bool,
    /// How far it is: everything below is done. In sectors of a member; for the resync and the
    /// check of RAID 10 of the array.
    pub position: Sector,
    /// Where it ends.
    pub end: Sector,
    /// Bytes per second and member, lately; where `position` counts sectors of the array, of the
    /// array.
    pub speed_bytes_per_second: u64,
    /// How long it will take at this speed, if it moves.
    pub time_left: Option<Duration>,
    /// It is paused.
    pub paused: bool,
    /// What keeps it from going faster.
    pub limited_by: LimitedBy,
    /// Sectors that disagreed so far.
    pub mismatch_sectors: u64,
    /// Sectors that could not be had so far.
    pub unreadable_sectors: u64,
    /// Sectors that were not compared so far, because a member did not answer in time.
    pub late_sectors: u64,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEnd {
    /// All is done.
    Finished,
    /// An operator ended it.
    Aborted,
    /// It cannot go on.
    Failed(JobFailure),
}

/// Why a job cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JobFailure {
    /// Data that is missing could be had only from parity that may be wrong.
    #[error("data is missing where parity may be wrong")]
    Untrusted,
    /// Sectors are bad, and their member has no bad-block log, or no room in it.
    #[error("a member has no room in a bad-block log for sectors that cannot be read")]
    NoRoom,
    /// The array broke.
    #[error("the array is broken")]
    Broken,
}

/// A job that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedJob {
    /// Which one it is of those that were asked for; `None` for what the array does by itself.
    pub number: Option<u64>,
    /// What it did.
    pub action: JobKind,
    /// How it ended.
    pub end: JobEnd,
    /// When it started.
    pub started: Instant,
    /// When it ended.
    pub ended: Instant,
    /// Sectors it went over, of a member or of the array as in [`SyncStatus::position`].
    pub done: Sector,
    /// From where to where that is; all of it was gone over.
    pub covered: Range<Sector>,
    /// Where one ends that goes over the whole array.
    pub whole: Sector,
    /// Sectors that disagreed (md's `mismatch_cnt`), in whole blocks of the members.
    pub mismatch_sectors: u64,
    /// Where they are.
    pub mismatches: Vec<Mismatch>,
    /// How many more places there are than are listed.
    pub mismatches_not_listed: u64,
    /// Of these, those that a repair rewrote so that they agree.
    pub agreed_sectors: u64,
    /// Sectors that could not be had from any source.
    pub unreadable_sectors: u64,
    /// Sectors that were not compared, because a member did not answer in time.
    pub late_sectors: u64,
    /// Sectors that were not compared, because what they would be compared with is missing, or
    /// listed as bad.
    pub alone_sectors: u64,
    /// Sectors that a member was to get and no other has: recorded as bad on it.
    pub bad_sectors_passed_on: u64,
    /// Blocks that could not be read and were rewritten.
    pub repaired: u64,
    /// What the sums of recorded scrubs told.
    pub sums: SumFindings,
}
