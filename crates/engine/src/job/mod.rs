//! Resync, recovery, replacement, check and repair: one job loop at an array's home, for every
//! level with redundancy.
//!
//! `control` is what an operator asks and is told, `sweep` is the loop that goes over the array
//! once, `pace` how fast it goes, `share` what part of that it takes beside clients, `unit` one
//! step of it with its stripes or ranges held (`hold`), `parity` and `copies` what a step does on
//! either kind of array.
//!
//! Order: resync where parity or copies may disagree; then recovery of the members that are being
//! filled, replacements among them; then what was asked for. What is needed starts by itself, one
//! job at a time.
//!
//! **Invariants.**
//! 1. A step has its stripes (or ranges) to itself from its first read to its last write: no write
//!    of a client comes between (invariant 4 of the crate). It holds a background permit for as
//!    long, so that a request that wants the array to itself waits for it.
//! 2. A position moves over a step only after everything that step had to write was written; it is
//!    recorded only by a record that flushes the members first. So what is recorded as current is
//!    current after a crash.
//! 3. What cannot be had from what is known to be right is never made up: parity that may disagree
//!    recovers nothing, and a sector that is beyond redundancy is recorded as bad on the member
//!    that was to get it, before the position moves over it.
//! 4. A position is never applied to another member than the one that was filled: seats are told
//!    apart by when they were taken.
//! 5. A repair writes only where parity or copies disagree, and only from sources that were read
//!    and are trusted. What it writes it chooses: so before its first write a record counts out
//!    members that are away, and before each the bits of its regions are set, or a member that was
//!    away, or lost what it was given, would be in sync with what was replaced. It needs no dirty
//!    mark: a crash in the middle leaves rows that disagree, as they did before, and a resync after
//!    it would choose otherwise (copies from the first, parity from data that parity proves wrong).
//! 6. Nothing is written that was right: a resync and a repair write only what differs.
//! 7. Writes to copies that the filling of their member has not come to leave that member out: a
//!    step notes where it ends with the core that orders the writes there before it asks for its
//!    ranges, and so comes after every write that left anything to it. A core with a lease of a
//!    range does not know that, and leaves no member out.
//! 8. A step that takes several stripes or ranges takes them in one order, so that no step waits
//!    for a step that waits for it.
//! 9. Sums of a recorded scrub are compared and taken by a step that has its stripes or ranges
//!    (`sums`, and `state/sums` for why they then say something). A member is accused of silent
//!    rot only where what the others give has the sum that was taken of it, or where there is
//!    nothing to compare with and every other member is as it was; and rewritten only in the first
//!    case.

mod control;
mod copies;
mod findings;
mod hold;
mod next;
mod pace;
mod parity;

mod reads;
mod report;
mod shard;
mod share;
mod sums;
mod sweep;
mod unit;

use std::time::Duration;

pub(crate) use control::{Control, Sums};
pub use findings::{Mismatch, MismatchKind, SumFindings, SumVerdict};
pub(crate) use hold::Holds;
pub(crate) use reads::JobReads;
pub use report::{FinishedJob, JobEnd, JobFailure, JobKind, LimitedBy, SyncStatus};
pub(crate) use shard::JobShard;
pub(crate) use sweep::run;

pub use share::{Decided, Goal, ShareDecision};

use std::ops::Range;

use crate::model::units::{MemberIx, Sector};

/// What an operator may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Job {
    /// Reads everything and compares.
    Check {
        /// Only this part of the array; in the unit of
        /// [`crate::model::geometry::Geometry::sync_sectors`].
        range: Option<Range<Sector>>,
    },
    /// Checks, and makes what disagrees agree.
    Repair {
        /// Only this part, as for a check.
        range: Option<Range<Sector>>,
        /// What is taken to be right. May be left out where there is but one way: parity of RAID 4
        /// and 5, the majority of three copies or more.
        source: Option<RepairSource>,
    },
    /// Checks everything, and takes the sums that the next scrub compares with.
    Record(RecordJob),
}

/// What a scrub that records does where a member is not what was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordJob {
    /// Nothing; the earlier sum stays.
    Check,
    /// What redundancy agrees on is taken for right.
    Accept,
    /// What the others prove is repaired; of the rest the earlier sum stays.
    Repair,
}

/// What a repair takes to be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairSource {
    /// The data: parity is made from it anew.
    ParityFromData,
    /// Whatever P and Q prove: where one block explains both, it is rewritten; the rest is reported
    /// and left (RAID 6).
    Raid6Culprit,
    /// The copy on the member in this slot.
    CopyFrom(MemberIx),
    /// What more than half of the copies say; where none has a majority they are left.
    Majority,
    /// The sums that a recorded scrub took: a block that differs from its sum is made anew where
    /// what the others give has that sum; the rest is reported and left.
    Sums,
}

/// Why a job was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// One was asked for already.
    #[error("a check or repair is under way already")]
    AlreadyRunning,
    /// The array is served read-only.
    #[error("the array is read-only")]
    ReadOnly,
    /// The array is broken.
    #[error("more failed than redundancy covers")]
    Broken,
    /// The array is stopped.
    #[error("the array is stopped")]
    Stopped,
    /// Jobs are frozen.
    #[error("jobs are frozen")]
    Frozen,
    /// There is more than one way to repair this array.
    #[error("say what is to be taken for right")]
    NeedsSource,
    /// This array cannot be repaired in this way.
    #[error("this array has no such source to repair from")]
    WrongSource,
    /// The array has no redundancy, or none is left.
    #[error("there is no redundancy to check")]
    NothingToCheck,
    /// There is no place to keep sums of scrubs in, or this array can have none.
    #[error("sums of scrubs are not kept for this array")]
    NoSums,
    /// No scrub has taken sums yet, or they were given up.
    #[error("no scrub has recorded this array")]
    NothingRecorded,
    /// The range is empty or beyond the end.
    #[error("no such range")]
    OutOfRange,
}

/// How fast jobs go, in bytes per second and member (md's `sync_speed_min` and `sync_speed_max`,
/// there in KiB); resync, check and repair of RAID 10 in bytes per second of the array, as md
/// counts there: its positions are recorded in that unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Held even beside clients, if the members can.
    pub min_bytes_per_second: u64,
    /// Never exceeded; [`u64::MAX`] for no limit.
    pub max_bytes_per_second: u64,
}

/// Bounds and times of jobs.
#[derive(Debug, Clone, Copy)]
pub struct JobTuning {
    /// How fast they go.
    pub pace: Pace,
    /// What is steered towards beside clients.
    pub goal: Goal,
    /// How often what is done is recorded.
    pub checkpoint_every: Duration,
    /// Most bytes of a member in one step, a power of two of at least 4 KiB.
    pub step_bytes: u64,
    /// The same while clients are active.
    pub step_beside_clients_bytes: u64,
    /// Most stripes that steps have to themselves at once.
    pub stripes_max: usize,
    /// Most bytes of a member in flight.
    pub window_bytes: u64,
    /// Jobs do not start by themselves.
    pub frozen: bool,
}

impl Default for JobTuning {
    fn default() -> Self {
        Self {
            pace: Pace { min_bytes_per_second: 1000 << 10, max_bytes_per_second: u64::MAX },
            goal: Goal::default(),
            checkpoint_every: Duration::from_secs(10),
            step_bytes: 1 << 20,
            step_beside_clients_bytes: 32 << 10,
            stripes_max: 128,
            window_bytes: 16 << 20,
            frozen: false,
        }
    }
}
