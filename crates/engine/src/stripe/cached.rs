//! The clean cache's part of a write ([`crate::cache`] has the invariant).

use std::ops::Range;

use wattle_rt::{Buf, BufMut};

use super::Work;
use super::rows::{Grid, Row};
use crate::array::Health;
use crate::cache::PAGE_BYTES;
use crate::plan::{BlockSet, Method, WritePlan};

/// What a write leaves on the members, to be kept if it succeeds: row, block, content.
pub(super) type Left = Vec<(usize, usize, Buf)>;

impl Work<'_> {
    /// The pages of a row, if it is whole pages.
    fn pages(row: &Row) -> Option<Range<u64>> {
        let page = PAGE_BYTES as u64;
        let whole = row.bytes.start % page == 0 && row.bytes.end % page == 0;
        whole.then(|| row.bytes.start / page..row.bytes.end / page)
    }

    /// The blocks of a row that are in memory.
    pub(super) fn cached(&self, row: &Row) -> BlockSet {
        let (cache, stripe) = (&self.shard.cache, self.map.stripe);
        let Some(pages) = Self::pages(row).filter(|_| cache.may_hold(stripe)) else { return BlockSet::EMPTY };
        let whole = |&block: &usize| pages.clone().all(|page| cache.has(cache.key(stripe, block, page)));
        (0..self.blocks()).filter(whole).collect()
    }

    /// A block of a row from memory.
    pub(super) fn from_cache(&self, row: &Row, block: usize) -> Option<BufMut> {
        let (cache, stripe) = (&self.shard.cache, self.map.stripe);
        let pages = Self::pages(row).filter(|_| cache.may_hold(stripe))?;
        let mut buf = BufMut::alloc(row.len());
        for (page, to) in pages.zip(buf.chunks_exact_mut(PAGE_BYTES)) {
            to.copy_from_slice(&cache.get(cache.key(stripe, block, page))?);
        }
        Some(buf)
    }

    /// Part of a block is about to be written.
    pub(super) fn forget(&self, block: usize, bytes: Range<u64>) {
        let (cache, stripe) = (&self.shard.cache, self.map.stripe);
        if cache.may_hold(stripe) {
            let page = PAGE_BYTES as u64;
            let pages = bytes.start / page..bytes.end.div_ceil(page);
            pages.for_each(|page| cache.take_out(cache.key(stripe, block, page)));
        }
    }

    /// What rows that were not written as a whole will have on the members, as far as it is worth keeping.
    pub(super) fn leaves(
        &self,
        rows: &[Row],
        plans: &[WritePlan],
        fetched: &mut Grid<BufMut>,
        blocks: &Grid<Buf>,
        stream: bool,
    ) -> Left {
        let (cache, stripe) = (&self.shard.cache, self.map.stripe);
        let mut left = Vec::new();
        for (number, (row, plan)) in
            rows.iter().zip(plans).enumerate().filter(|(_, (_, plan))| !plan.fetch.is_empty())
        {
            let Some(pages) = Self::pages(row) else { continue };
            let missed = !plan.fetch.is_subset(&self.cached(row));
            if !cache.row_used(stripe, pages.start, stream, missed) {
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

    /// Keeps what a write has left on the members: it was planned in `health`, and all of it has succeeded.
    pub(super) fn keep(&self, health: &Health, rows: &[Row], left: Left) {
        if self.shard.health().epoch != health.epoch {
            return;
        }
        let (cache, stripe) = (&self.shard.cache, self.map.stripe);
        for (row, block, buf) in left {
            let row = &rows[row];
            let Some(pages) = Self::pages(row) else { continue };
            if !health.readable(self.member(block), self.sectors(row.bytes.clone())) {
                continue;
            }
            for (page, at) in pages.zip((0..).step_by(PAGE_BYTES)) {
                cache.put(cache.key(stripe, block, page), &buf.slice(at..at + PAGE_BYTES));
            }
        }
    }
}
