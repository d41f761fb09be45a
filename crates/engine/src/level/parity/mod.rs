//! Stripes with parity: what is done with what a stripe's task takes from its queue
//! ([`crate::lease::queue`]).
//!
//! A batch is cut into rows (`rows`), each row gets a plan ([`crate::model::plan`]), and the batch
//! is carried out (`write`, `read`) with as few member operations as the rows allow (`transfer`).

mod buffers;
mod cached;
mod compute;
mod logged;
mod read;
mod rows;
mod transfer;
mod unread;
mod write;

use std::ops::Range;
use std::rc::Rc;

use wattle_rt::CoreIx;

use crate::lease::LeaseShard;
use crate::lease::queue::{ReadPiece, StripeLevel, WritePiece, WriteResult, owner};
use crate::level::ArrayShard;
use crate::model::error::VolumeError;
use crate::model::geometry::StripeMap;
use crate::model::health::Health;
use crate::model::plan::{BlockSet, NoPlan, StripeView};
use crate::model::units::{MemberIx, SECTOR_BYTES, Sector, StripeNo};
use rows::{Row, Segments};

impl StripeLevel for ArrayShard {
    fn leases(&self) -> &Rc<LeaseShard> {
        &self.leases
    }

    async fn write(self: &Rc<Self>, stripe: StripeNo, pieces: &[WritePiece]) -> WriteResult {
        Work::new(self, stripe).write(pieces).await
    }

    async fn read(self: &Rc<Self>, stripe: StripeNo, pieces: &mut [ReadPiece]) -> Result<(), VolumeError> {
        Work::new(self, stripe).read(pieces).await
    }
}

/// One stripe being worked on.
struct Work<'a> {
    shard: &'a Rc<ArrayShard>,
    map: StripeMap,
    chunk_bytes: u64,
    /// The core that owns the stripe.
    owner: CoreIx,
}

impl<'a> Work<'a> {
    fn new(shard: &'a Rc<ArrayShard>, stripe: StripeNo) -> Self {
        let geometry = &shard.fixed.geometry;
        Self {
            shard,
            map: geometry.stripe(stripe),
            chunk_bytes: geometry.chunk().0 * SECTOR_BYTES,
            owner: owner(stripe, shard.core.cores()),
        }
    }

    /// Whether this core works on a stripe that another core owns.
    fn is_leased(&self) -> bool {
        self.owner != self.shard.core.index()
    }

    /// Parity agrees with the data in this stripe.
    fn trusted(&self, health: &Health) -> bool {
        // A broken array has writes that reached some members and not others, which nothing records
        // as failed.
        !health.broken && health.trust.covers(self.sectors(0..self.chunk_bytes))
    }

    /// The member data sectors of a range of bytes in the stripe's chunks.
    fn sectors(&self, bytes: Range<u64>) -> Range<Sector> {
        let at = |byte| Sector(self.map.member_sector.0 + byte / SECTOR_BYTES);
        at(bytes.start)..at(bytes.end)
    }

    fn data(&self) -> usize {
        self.map.data_blocks()
    }

    fn blocks(&self) -> usize {
        self.data() + self.parities()
    }

    fn parities(&self) -> usize {
        1 + usize::from(self.map.q().is_some())
    }

    /// Exponent of a data block in Q; where there is no Q any order will do.
    fn exponent(&self, k: usize) -> u8 {
        if self.map.q().is_some() { self.map.exponent(k) } else { k as u8 }
    }

    /// The member that holds a block.
    fn member(&self, block: usize) -> MemberIx {
        match block.checked_sub(self.data()) {
            None => self.map.data_member(block),
            Some(0) => self.map.p(),
            Some(_) => self.map.q().expect("a second parity block exists only where there is a Q"),
        }
    }

    /// A row as `health` has it, without the blocks that could not be read just now.
    fn view(&self, health: &Health, row: &Row, unreadable: &BlockSet, cached: BlockSet) -> StripeView {
        let sectors = self.sectors(row.bytes.clone());
        let all = BlockSet::range(0, self.blocks());
        let those = |takes: &dyn Fn(MemberIx) -> bool| match health.optimal {
            true => all,
            false => all.iter().filter(|&block| takes(self.member(block))).collect(),
        };
        StripeView {
            data: self.data(),
            parities: self.parities(),
            readable: those(&|member| health.readable(member, sectors.clone())).without(unreadable),
            // The replacement of a member that failed takes its writes all the same.
            writable: those(&|member| health.writable_for(member).next().is_some()),
            cached,
            q_first: self.map.q().is_some_and(|q| {
                self.shard.members.queued_bytes(q) < self.shard.members.queued_bytes(self.map.p())
            }),
            trusted: self.trusted(health),
        }
    }

    fn segments(&self, pieces: impl Iterator<Item = (u64, usize)>) -> Segments {
        rows::segments(pieces, self.chunk_bytes)
    }
}

/// What a client is told when there is no plan.
fn refusal(refusal: NoPlan) -> VolumeError {
    match refusal {
        NoPlan::BeyondRedundancy => VolumeError::Broken,
        NoPlan::Unreadable | NoPlan::Untrusted => VolumeError::Unreadable,
    }
}
