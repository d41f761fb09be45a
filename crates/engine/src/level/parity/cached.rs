//! The clean cache's part of a write ([`crate::hints::cache`] has the invariant).

use std::ops::Range;

use wattle_rt::{Buf, BufMut};

use super::Work;
use super::rows::{Grid, Row};
use crate::hints::cache::Spent;
use crate::model::health::Health;
use crate::model::plan::{BlockSet, Method, WritePlan};

/// What a write leaves on the members, to be kept if it succeeds: row, block, content.
pub(super) type Left = Vec<(usize, usize, Buf)>;

impl Work<'_> {
    /// The blocks of a row that are in memory.
    pub(super) fn cached(&self, row: &Row) -> BlockSet {
        let (cache, stripe) = (&self.shard.hints.cache, self.map.stripe);
        // Most stripes have nothing there, which is quickly seen.
        let Some(pages) = cache.may_hold(stripe).then(|| cache.pages(&row.bytes)).flatten() else {
            return BlockSet::EMPTY;
        };
        let whole = |&block: &usize| pages.clone().all(|page| cache.has(cache.key(stripe, block, page)));
        (0..self.blocks()).filter(whole).collect()
    }

    /// A block of a row from memory.
    pub(super) fn kept(&self, row: &Row, block: usize) -> Option<BufMut> {
        let (cache, stripe) = (&self.shard.hints.cache, self.map.stripe);
        let pages = cache.may_hold(stripe).then(|| cache.pages(&row.bytes)).flatten()?;
        let mut buf = BufMut::alloc(row.len());
        for (page, to) in pages.zip(buf.chunks_exact_mut(cache.page_bytes())) {
            to.copy_from_slice(&cache.get(cache.key(stripe, block, page))?);
        }
        Some(buf)
    }

    /// Part of a block is about to be written.
    pub(super) fn forget(&self, block: usize, bytes: Range<u64>) {
        let (cache, stripe) = (&self.shard.hints.cache, self.map.stripe);
        if cache.may_hold(stripe) {
            cache.touched(&bytes).for_each(|page| cache.take_out(cache.key(stripe, block, page)));
        }
    }

    /// What rows that were not written as a whole will have on the members, as far as it is worth
    /// keeping.
    pub(super) fn leaves(
        &self,
        rows: &[Row],
        plans: &[WritePlan],
        fetched: &mut Grid<BufMut>,
        blocks: &Grid<Buf>,
        again: bool,
    ) -> Left {
        let (cache, stripe) = (&self.shard.hints.cache, self.map.stripe);
        let mut left = Vec::new();
        if self.is_leased() {
            // What this core kept of it, its owner would not know of.
            return left;
        }
        for (number, (row, plan)) in
            rows.iter().zip(plans).enumerate().filter(|(_, (_, plan))| !plan.fetch.is_empty())
        {
            let Some(pages) = cache.pages(&row.bytes) else { continue };
            let found = plan.fetch.intersection(&self.cached(row));
            let wanted = again || !found.is_empty();
            let missed = !plan.fetch.is_subset(&found);
            let spent = || Spent::of(&self.shard.hints.core);
            if !cache.row_used(stripe, pages.start, wanted, missed, spent) {
                continue;
            }
            for block in plan.store.iter() {
                left.extend(blocks.get(number, block).map(|buf| (number, block, buf.clone())));
            }
            if plan.method == Method::Reconstruct {
                for block in plan.fetch.iter() {
                    left.extend(fetched.take(number, block).map(|buf| (number, block, buf.freeze())));
                }
            }
        }
        left
    }

    /// Keeps what a write has left on the members: it was planned in `health`, and all of it has
    /// succeeded.
    pub(super) fn keep(&self, health: &Health, rows: &[Row], left: Left) {
        if self.shard.members.epoch() != health.epoch {
            return;
        }
        let (cache, stripe) = (&self.shard.hints.cache, self.map.stripe);
        for (row, block, buf) in left {
            let row = &rows[row];
            let Some(pages) = cache.pages(&row.bytes) else { continue };
            if !health.readable(self.member(block), self.sectors(row.bytes.clone())) {
                continue;
            }
            for (page, at) in pages.zip((0..).step_by(cache.page_bytes())) {
                cache.put(cache.key(stripe, block, page), &buf.slice(at..at + cache.page_bytes()));
            }
        }
    }
}
