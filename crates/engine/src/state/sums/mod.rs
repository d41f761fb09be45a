//! What a recorded scrub remembers: a sum of every block of every member, and which of them still
//! say something.
//!
//! A sum of a member's block tells silent rot from a change only if no write went to that block
//! since it was taken. The array's space (that of
//! [`crate::model::geometry::Geometry::sync_sectors`]) is divided into regions; a region in which
//! anything was written since its sums were taken is *noted*, and its sums say nothing from then
//! on. The engine decides when what must be durable, a [`SumStore`] decides how; nothing here
//! knows a format or a file.
//!
//! **Invariants.**
//! 1. No write goes to a member before its region is durably noted in every set of sums that has
//!    anything of the region: the last one, and the one that is being taken ([`enter`]).
//! 2. A block's sum is taken, and compared, while its stripe or range is held (invariant 4 of the
//!    crate): every write there has ended or has not begun, and what has ended was noted before it
//!    began. So a block of a region that is not noted *then* was not written since its sum was
//!    taken.
//! 3. A region is *opened* in the set that is being taken, and every core forgets that it was
//!    noted, before the first step there may take a sum: what is written behind the step is noted
//!    anew. An answer of the home to an older question is not believed ([`NoteShard::grant`]).
//! 4. A job that fills a member voids its sums first. What else jobs and reads give to members is
//!    noted like a client's write; but for what a sum itself has proved: that is what was there
//!    when the sum was taken.
//! 5. Where a note cannot be made durable, the sums are given up: the store forgets them, and a
//!    record of the array's state is committed, from which on the store's signature is not that of
//!    the array. Sums never keep a write from being done.
//!
//! The fast way of a write is one look at one word of its own core.

mod home;
mod notes;

use std::ops::Range;
use std::rc::Rc;

use crate::model::error::VolumeError;
pub use crate::model::sums::SumSpec;
use crate::model::units::{MemberSet, Sector};
use crate::state::StateShard;
use crate::state::metadata::LocalBoxFuture;
pub(crate) use home::SumHome;
pub(crate) use notes::NoteShard;

/// The sums of one block, by lane: with parity the slot, of copies which of the copies. `None`
/// where nothing is known.
pub type BlockSums = Vec<Option<u64>>;

/// What is known of a run of blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownSums {
    /// By block.
    pub blocks: Vec<KnownBlock>,
    /// The slots whose member was filled since: its sums say nothing.
    pub void: MemberSet,
}

/// What is known of one block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownBlock {
    /// Its region was written since: there are no sums.
    pub written: bool,
    /// The sums that say something.
    pub sums: BlockSums,
}

/// A note could not be made durable: the sums are given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sums of scrubs cannot be kept")]
pub struct SumsLost;

/// Keeps sums. One per array, used on its home core.
///
/// It has the set of sums that a scrub took last, if any, and while a scrub takes sums a second
/// one. What becomes of the store costs knowledge only, so nothing here fails but
/// what must not pretend.
pub trait SumStore {
    /// Whether there is a set of sums that says anything.
    fn has_sums(&self) -> bool;

    /// These regions are about to be written: their sums say nothing from now on, in the last set
    /// and, where they are open, in the one that is being taken. Durable on return.
    ///
    /// # Errors
    /// It could not be made durable. The store has forgotten all sums then.
    fn note<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), SumsLost>>;

    /// The member in each of these slots is about to be filled: its sums say nothing from now on.
    /// Durable on return.
    ///
    /// # Errors
    /// As [`Self::note`].
    fn void(&self, slots: MemberSet) -> LocalBoxFuture<'_, Result<(), SumsLost>>;

    /// What is known of a run of blocks. Looks at the notes last.
    fn known(&self, blocks: Range<u64>) -> LocalBoxFuture<'_, KnownSums>;

    /// A new set of sums is going to be taken, from the first block on. What was taken of another
    /// that did not come to its end is forgotten.
    fn begin(&self) -> LocalBoxFuture<'_, ()>;

    /// Whether a set of sums is being taken, and this is the next block of it.
    fn is_next(&self, block: u64) -> bool;

    /// Notes of these regions count for the set that is being taken, too, from now on.
    fn open(&self, regions: Range<u64>);

    /// The next blocks of the set that is being taken.
    fn take(&self, blocks: Range<u64>, sums: Vec<BlockSums>) -> LocalBoxFuture<'_, ()>;

    /// The set that was taken is whole: it takes the place of the last one, durably and at once.
    /// Says whether it did.
    ///
    /// # Errors
    /// Which of the two counts is not known. The store has forgotten all sums then.
    fn finish(&self) -> LocalBoxFuture<'_, Result<bool, SumsLost>>;

    /// The set that is being taken will not come to its end.
    fn abandon(&self) -> LocalBoxFuture<'_, ()>;
}

/// Before a write to a range of the space of [`crate::model::geometry::Geometry::sync_sectors`]:
/// returns when its regions are durably noted. The caller has the stripe or the range to itself.
///
/// # Errors
/// The array is stopped or broken.
pub(crate) async fn enter(shard: &Rc<StateShard>, range: Range<Sector>) -> Result<(), VolumeError> {
    let Some(notes) = shard.notes.as_ref().filter(|notes| notes.active()) else { return Ok(()) };
    let regions = notes.regions_of(range);
    while !notes.has(regions.clone()) {
        let wanted = notes.missing(regions.clone());
        let (key, for_home) = (shard.fixed.home_key(), wanted.clone());
        let asked = shard.core.call(shard.fixed.home, move |core| async move {
            match core.local::<crate::state::Home>(key) {
                Some(home) => home.note(for_home).await,
                None => Err(VolumeError::Stopped),
            }
        });
        // To its end, even if the write that asked has gone.
        let epoch = shard.core.spawn(asked).await?;
        notes.grant(&wanted, epoch);
    }
    Ok(())
}
