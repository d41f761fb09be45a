//! The engine's only view of metadata: a state to be made durable.
//!
//! The engine decides *when* a state must be durable (invariants 1-3 of the crate), its owner
//! decides *how*: which superblocks, which event counts, which bitmap. Nothing in the engine knows
//! a format.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use wattle_rt::Instant;

use crate::model::bad_ranges::BadRanges;
use crate::model::health::{MemberKey, MemberState};
use crate::model::units::{MemberIx, MemberSet, Sector};
use crate::state::sums::SumStore;

/// A future on one core.
pub type LocalBoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Why a record is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordCause {
    /// Clean to dirty: a write waits for it.
    Activate,
    /// Dirty to clean: nothing is in flight and every member was flushed.
    Deactivate,
    /// Members failed, joined, left or are rebuilt, or the bad sectors known of one changed.
    /// Acknowledgements wait for it.
    Members,
    /// A resync or a rebuild has come as far as the record says, and every member was flushed.
    Checkpoint,
}

/// The state of an array that must be durable when [`Metadata::commit`] returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayRecord {
    /// What changed since the last record.
    pub change: RecordCause,
    /// Writes may be in flight.
    pub dirty: bool,
    /// Parity and copies agree below this wherever nothing is in flight: [`Sector::MAX`]
    /// everywhere. In the unit of md's `resync_offset`: member data sectors, for RAID 10 array
    /// sectors.
    pub synced_below: Sector,
    /// Seats with a failed member; that is never written again.
    pub failed: MemberSet,
    /// By seat: the slots, then a replacement for each.
    pub seats: Vec<SeatRecord>,
}

/// The member in a seat, to be made durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeatRecord {
    /// The device; `None` if none is known.
    pub key: Option<MemberKey>,
    /// What it is.
    pub state: MemberState,
    /// It is rebuilt only where the bitmap has bits: re-added after an absence.
    pub by_regions: bool,
    /// Its bad sectors.
    pub bad: Arc<BadRanges>,
}

/// Why a member counts as failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailCause {
    /// The operator's order.
    Order,
    /// A write to it failed.
    Write,
    /// It could not be read: it is gone, or too many of its reads failed.
    Read,
    /// A flush failed: which of its writes are lost is unknown.
    Flush,
    /// Its partial parity log could not be written.
    Log,
    /// Its write-intent bitmap could not be written.
    Bitmap,
    /// Its superblock could not be written.
    Superblock,
    /// Its bad-block log has no room for more.
    BadBlocks,
    /// It does not answer, and was given up.
    Silent,
}

/// Makes records durable on the members. One per array, used on its home core by one task at a
/// time.
pub trait Metadata {
    /// Members fail, for this reason. Called before any other part of the array sees it, and before
    /// the record that says so. The last record may not have them yet: a member that joins may fail
    /// before its own record is durable.
    fn failed(&self, _members: &[(MemberIx, Option<MemberKey>)], _cause: FailCause) {}

    /// Flushes every member that is still part of the array, then writes `record` to all of them,
    /// and returns when it is durable. What a record says of how far parity is right and members
    /// are rebuilt is true only of what was flushed before it: where a flush fails, `record` is
    /// written to no member.
    ///
    /// # Errors
    /// The seats on which it could not be made durable. The engine fails these members and commits
    /// again, so each call that fails shrinks the array; a record is only relied on after an `Ok`.
    fn commit<'a>(&'a self, record: &'a ArrayRecord) -> LocalBoxFuture<'a, Result<(), MemberSet>>;

    /// Sets the bits of `regions` in the write-intent bitmap of every member in use, durably.
    /// Called only for arrays that keep an intent bitmap.
    ///
    /// # Errors
    /// As [`Self::commit`].
    fn mark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>>;

    /// Clears the bits of `regions`; this need not be durable on return.
    ///
    /// # Errors
    /// As [`Self::commit`].
    fn unmark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>>;

    /// The next record says that the array keeps the write-intent bitmap that was made ready, in
    /// which all bits are set; or that it keeps none any more. Nothing is in flight.
    fn turn_intent(&self, _on: bool) {}

    /// Since when the oldest write or flush of the metadata waits for a member.
    fn waits_since(&self, _member: MemberKey) -> Option<Instant> {
        None
    }

    /// Nothing is expected any more of a member, which is to fail: what waits for a write of the
    /// metadata there is answered that it is gone.
    fn give_up(&self, _member: MemberKey) {}

    /// What keeps the sums of recorded scrubs, for arrays that were started with their shape.
    fn sum_store(&self) -> Option<Rc<dyn SumStore>> {
        None
    }
}

/// For arrays without superblocks to write: levels without redundancy, read-only arrays, tests.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMetadata;

impl Metadata for NoMetadata {
    fn commit<'a>(&'a self, _record: &'a ArrayRecord) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn mark<'a>(&'a self, _regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn unmark<'a>(&'a self, _regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
