//! The clean cache: blocks and parity that writes need, as the members have them.
//!
//! A small write reads before it writes: old data and parity, or the other data of its row. Where
//! the same rows are written again and again, that was read or written a moment ago. Each core
//! keeps such pages of the stripes it owns.
//!
//! **Invariant.** A page equals what a read of that part of its block's member would return if the
//! member answered truthfully. So
//! 1. a page is put in only by the task of its stripe, which has the stripe to itself: what it
//!    read, or what it wrote once every write of it has succeeded, from members that can be read
//!    there, if no member's state has changed since it was planned;
//! 2. a page is taken out before a write to any part of it is sent to a member;
//! 3. everything is taken out when the state of any member changes, and before and after a request
//!    has the array to itself (zeroing, discards, unaligned writes, members that come and go), on
//!    every core while no core lets a request in;
//! 4. what belongs to a stripe is taken out when a job gets the stripe to itself; jobs read members
//!    only;
//! 5. no stripe is leased to another core while a page of it is here ([`crate::lease::words`]).
//!
//! Losing a page is always right, so nothing here can fail.
//!
//! **What stays.** A page gets in when its row is used for the second time in a while, or by a
//! stream; so random writes over a large array leave nothing but a mark. A page that is used again
//! stays longer than one that is not (re-reference intervals, four steps). It begins small and
//! doubles as long as rows come again that would still be here in a larger one, up to a ceiling.
//! Where it costs a busy core more than it saves, nothing is kept for a while ([`worth`]).

mod table;
#[cfg(test)]
mod tests;
mod worth;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;

use wattle_rt::{Buf, CoreIx};

use crate::model::stripe_hash::{self, CLASSES};
use crate::model::units::StripeNo;
use crate::planted::{self, Bug};
pub(crate) use table::PageKey;
use table::{HEAT_MAX, Table, WAYS, Way, class, reachable};
pub use worth::CachePause;
pub(crate) use worth::Spent;
use worth::Worth;

/// What is kept as a whole, unless tests ask for less; also what a buffer of that length or less
/// takes in memory.
const PAGE_BYTES: usize = 4096;

/// For the cache to grow, one row of so many that are used has to come again.
const GROW_AT: u64 = 8;
/// How many rows are looked at before that is decided.
const PERIOD_MIN: u64 = 4096;

/// Why the cache was made larger the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheGrowth {
    /// Its size before.
    pub from_bytes: u64,
    /// Its size since.
    pub to_bytes: u64,
    /// Of so many rows that were written in parts ...
    pub rows: u64,
    /// ... so many had been a while before, and were not there any more.
    pub again: u64,
}

/// What an array's clean cache holds and has done, all cores together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStatus {
    /// Bytes that it never exceeds.
    pub ceiling_bytes: u64,
    /// Bytes that it has room for now.
    pub size_bytes: u64,
    /// Bytes that it holds.
    pub active_bytes: u64,
    /// Blocks that were not read from a member, because they were here.
    pub hits: u64,
    /// Blocks that were read from a member before a write.
    pub misses: u64,
    /// Pages that made room for others.
    pub evictions: u64,
    /// The last time that it was made larger.
    pub growth: Option<CacheGrowth>,
    /// A core keeps nothing at the moment.
    pub pause: Option<CachePause>,
}

impl CacheStatus {
    /// Rows that are written in parts between two decisions whether a cache of this size grows.
    #[must_use]
    pub fn decided_after_rows(size_bytes: u64) -> u64 {
        PERIOD_MIN.max(size_bytes / PAGE_BYTES as u64)
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            ceiling_bytes: self.ceiling_bytes + other.ceiling_bytes,
            size_bytes: self.size_bytes + other.size_bytes,
            active_bytes: self.active_bytes + other.active_bytes,
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            evictions: self.evictions + other.evictions,
            growth: self.growth.or(other.growth),
            pause: self.pause.or(other.pause),
        }
    }
}

/// Bounds of an array's clean cache, and what only tests change.
#[derive(Debug, Clone, Copy)]
pub struct CacheTuning {
    /// Most bytes of clean blocks and parity that all cores together keep (md's
    /// `stripe_cache_size`).
    pub bytes_max: usize,
    /// What is kept or dropped as a whole, at most 4 KiB: tests with small requests have small
    /// pages.
    pub page_bytes: usize,
    /// Rows are kept when they are used for the first time.
    pub at_once: bool,
}

impl Default for CacheTuning {
    fn default() -> Self {
        Self { bytes_max: 64 << 20, page_bytes: PAGE_BYTES, at_once: false }
    }
}

/// Which classes of stripes have a page in a cache: what is kept is not leased to other cores.
/// Called only when the first page of a class comes and when the last one goes.
pub(crate) trait KeptClasses {
    /// How many cores have a cache.
    fn cores(&self) -> usize;

    /// The cache of `owner` holds something of a class from now on. Only while the owner works on a
    /// stripe of it.
    fn keep(&self, owner: CoreIx, class: usize);

    /// The cache holds nothing of the class any more.
    fn keep_none(&self, owner: CoreIx, class: usize);
}

/// One core's clean cache of one array.
pub(crate) struct CleanCache {
    tuning: CacheTuning,
    /// Whether chunks are whole pages: others cannot be kept.
    whole: bool,
    /// Stripes of which something is here are not leased.
    kept: Arc<dyn KeptClasses>,
    core: CoreIx,
    /// This core's share of the ceiling.
    bytes_max: Cell<usize>,
    /// Pages are powers of two.
    page_shift: u32,
    /// Pages of a block.
    pages: u64,
    /// Pages of a stripe, parity included.
    stripe_pages: u64,
    table: RefCell<Table>,
    hits: Cell<u64>,
    misses: Cell<u64>,
    growth: Cell<Option<CacheGrowth>>,
    worth: RefCell<Worth>,
    /// Hits until the end of the last period, and in it; whether it grew in it.
    before: Cell<(u64, u64)>,
    grew: Cell<bool>,
}

impl CleanCache {
    /// The cache of the stripes that `core` owns, of so many `blocks`, parity included, of
    /// `chunk_bytes` each.
    pub fn new(
        tuning: CacheTuning,
        kept: Arc<dyn KeptClasses>,
        core: CoreIx,
        blocks: usize,
        chunk_bytes: u64,
    ) -> Self {
        let page_bytes = tuning.page_bytes as u64;
        debug_assert!(page_bytes.is_power_of_two());
        let pages = chunk_bytes / page_bytes;
        Self {
            tuning,
            whole: chunk_bytes.is_multiple_of(page_bytes),
            bytes_max: Cell::new(tuning.bytes_max / kept.cores()),
            kept,
            core,
            page_shift: page_bytes.trailing_zeros(),
            pages,
            stripe_pages: pages * blocks as u64,
            table: RefCell::default(),
            hits: Cell::default(),
            misses: Cell::default(),
            growth: Cell::default(),
            worth: RefCell::default(),
            before: Cell::default(),
            grew: Cell::default(),
        }
    }

    /// Has another ceiling from now on, of all cores together, and begins anew below it.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.set(bytes_max / self.kept.cores());
        self.growth.set(None);
        self.worth.take();
        let mut table = self.table.borrow_mut();
        self.lend_all(&mut table);
        *table = Table { evictions: table.evictions, ..Table::default() };
    }

    /// Sets that there may be, as far as doubling comes to them.
    fn sets_max(&self) -> usize {
        let sets = if self.whole { self.bytes_max.get() / (WAYS * PAGE_BYTES) } else { 0 };
        reachable(sets)
    }

    /// The whole pages that a range of bytes of a chunk is; `None` if it is none.
    pub fn pages(&self, bytes: &Range<u64>) -> Option<Range<u64>> {
        let page = self.tuning.page_bytes as u64;
        let whole = bytes.start.is_multiple_of(page) && bytes.end.is_multiple_of(page);
        whole.then(|| bytes.start / page..bytes.end / page)
    }

    /// The pages that a range of bytes of a chunk touches.
    pub fn touched(&self, bytes: &Range<u64>) -> Range<u64> {
        let page = self.tuning.page_bytes as u64;
        bytes.start / page..bytes.end.div_ceil(page)
    }

    pub fn page_bytes(&self) -> usize {
        self.tuning.page_bytes
    }

    /// The row, by pages, of a byte of a stripe's data.
    pub fn row_of(&self, byte: u64) -> u64 {
        let page = byte >> self.page_shift;
        if self.pages.is_power_of_two() { page & (self.pages - 1) } else { page % self.pages.max(1) }
    }

    /// The number of a page of a block.
    pub fn key(&self, stripe: StripeNo, block: usize, page: u64) -> PageKey {
        PageKey(stripe.0 * self.stripe_pages + block as u64 * self.pages + page + 1)
    }

    fn stripe_of(&self, key: PageKey) -> StripeNo {
        StripeNo((key.0 - 1) / self.stripe_pages)
    }

    /// Whether anything of a stripe may be here.
    pub fn may_hold(&self, stripe: StripeNo) -> bool {
        let table = self.table.borrow();
        table.active > 0 && table.classes[class(stripe)] > 0
    }

    /// Whether a page is here.
    pub fn has(&self, key: PageKey) -> bool {
        let table = self.table.borrow();
        table.set(key).iter().any(|way| way.key == key && way.page.is_some())
    }

    /// A page, which counts as used.
    pub fn get(&self, key: PageKey) -> Option<Buf> {
        let mut table = self.table.borrow_mut();
        let way = table.set_mut(key).iter_mut().find(|way| way.key == key)?;
        let page = way.page.clone()?;
        way.heat = HEAT_MAX;
        Some(page)
    }

    /// Counts blocks that were found here, and blocks that had to be read.
    pub fn count(&self, hits: u64, misses: u64) {
        self.hits.update(|all| all + hits);
        self.misses.update(|all| all + misses);
    }

    /// Marks a row of a stripe of another core, in which something is written; says whether
    /// something was a while before.
    pub fn row_comes_again(&self, stripe: StripeNo, row: u64) -> bool {
        // The other core is taken to find the same as this one.
        if !self.worth.borrow().keeps() {
            return false;
        }
        let mut table = self.table.borrow_mut();
        self.begun(&mut table) && table.mark(stripe, row)
    }

    /// Announces that [`Self::row_comes_again`] will be asked of a row, after some other work.
    pub fn row_is_coming(&self, stripe: StripeNo, row: u64) {
        let table = self.table.borrow();
        if !table.marks.is_empty() {
            wattle_rt::about_to_change(&table.marks[table.mark_of(stripe, row).0]);
        }
    }

    /// Whether there is a table; makes one if there is to be one.
    fn begun(&self, table: &mut Table) -> bool {
        if table.ways.is_empty() {
            match self.sets_max() {
                0 => return false,
                sets_max => {
                    table.begin(sets_max);
                    let lends = self.kept.cores() > 1 && !planted::is(Bug::CacheLendsKept);
                    table.kept.resize(if lends { CLASSES } else { 0 }, 0);
                }
            }
        }
        true
    }

    /// A row of a stripe is written in parts; says whether its pages are to be kept. `wanted` says
    /// that they are for another reason than that the row comes again, `missed` that any of them
    /// had to be read. `spent` is asked now and then.
    pub fn row_used(
        &self,
        stripe: StripeNo,
        row: u64,
        wanted: bool,
        missed: bool,
        spent: impl FnOnce() -> Spent,
    ) -> bool {
        if !self.begun(&mut self.table.borrow_mut()) || !self.is_worth(spent) {
            return false;
        }
        let mut table = self.table.borrow_mut();
        let again = table.mark(stripe, row);
        table.rows += 1;
        table.again += u64::from(again && missed);
        if table.rows >= PERIOD_MIN.max(table.ways.len() as u64) {
            let (rows, came_again) = (table.rows, table.again);
            (table.rows, table.again) = (0, 0);
            if came_again * GROW_AT >= rows && table.sets < table.sets_max && table.evictions > 0 {
                let bytes = |table: &Table| (table.ways.len() * PAGE_BYTES) as u64;
                let from_bytes = bytes(&table);
                table.grow();
                let to_bytes = bytes(&table);
                self.growth.set(Some(CacheGrowth { from_bytes, to_bytes, rows, again: came_again }));
                self.grew.set(true);
            }
        }
        again || wanted || self.tuning.at_once
    }

    /// A row is written in parts; says whether anything is kept these days.
    fn is_worth(&self, spent: impl FnOnce() -> Spent) -> bool {
        let mut worth = self.worth.borrow_mut();
        let kept = worth.keeps();
        if worth.row() {
            let (until, before) = self.before.get();
            let hits = self.hits.get() - until;
            self.before.set((self.hits.get(), hits));
            let settled = !self.grew.take() && hits <= before + before / 16 + worth::PERIOD / 64;
            worth.period(spent(), settled);
            if kept && !worth.keeps() {
                self.clear();
            }
        }
        worth.keeps()
    }

    /// Puts in what the member has.
    pub fn put(&self, key: PageKey, content: &Buf) {
        debug_assert_eq!(content.len(), self.tuning.page_bytes);
        let mut table = self.table.borrow_mut();
        if table.ways.is_empty() {
            return;
        }
        let page = content.to_keep();
        let way = table.place(key);
        let (before, heat) = (way.key, way.heat);
        let known = before == key;
        let evicted = way.page.is_some() && !known;
        let new = way.page.is_none() || !known;
        *way = Way { key, page: Some(page), heat: if known { heat } else { 1 } };
        if evicted {
            table.evictions += 1;
            self.one_less(&mut table, before);
        }
        if new {
            self.one_more(&mut table, key);
        }
    }

    /// A page has come.
    fn one_more(&self, table: &mut Table, key: PageKey) {
        let stripe = self.stripe_of(key);
        table.active += 1;
        table.classes[class(stripe)] += 1;
        if let Some(pages) = table.kept.get_mut(stripe_hash::class(stripe)) {
            *pages += 1;
            if *pages == 1 {
                self.kept.keep(self.core, stripe_hash::class(stripe));
            }
        }
    }

    /// A page has gone.
    fn one_less(&self, table: &mut Table, key: PageKey) {
        let stripe = self.stripe_of(key);
        table.active -= 1;
        table.classes[class(stripe)] -= 1;
        if let Some(pages) = table.kept.get_mut(stripe_hash::class(stripe)) {
            *pages -= 1;
            if *pages == 0 {
                self.kept.keep_none(self.core, stripe_hash::class(stripe));
            }
        }
    }

    /// Nothing is about to be here any more.
    fn lend_all(&self, table: &mut Table) {
        for (class, pages) in (0..).zip(&mut table.kept) {
            if std::mem::take(pages) > 0 {
                self.kept.keep_none(self.core, class);
            }
        }
    }

    /// Takes a page out: it is about to be written.
    pub fn take_out(&self, key: PageKey) {
        let mut table = self.table.borrow_mut();
        let way = table.set_mut(key).iter_mut().find(|way| way.key == key);
        if way.is_some_and(|way| way.page.take().is_some()) {
            self.one_less(&mut table, key);
        }
    }

    /// Takes out what belongs to a stripe.
    pub fn take_out_stripe(&self, stripe: StripeNo) {
        if self.may_hold(stripe) && !planted::is(Bug::CacheKeepsOverJobs) {
            let first = stripe.0 * self.stripe_pages + 1;
            (first..first + self.stripe_pages).for_each(|key| self.take_out(PageKey(key)));
        }
    }

    /// Takes everything out.
    pub fn clear(&self) {
        let mut table = self.table.borrow_mut();
        if table.active > 0 && !planted::is(Bug::CacheKeepsOverChanges) {
            self.lend_all(&mut table);
            table.ways.fill_with(Way::default);
            table.classes.fill(0);
            table.active = 0;
        }
    }

    pub fn status(&self) -> CacheStatus {
        let table = self.table.borrow();
        CacheStatus {
            ceiling_bytes: if self.sets_max() > 0 { self.bytes_max.get() as u64 } else { 0 },
            size_bytes: (table.ways.len() * PAGE_BYTES) as u64,
            active_bytes: (table.active * PAGE_BYTES) as u64,
            hits: self.hits.get(),
            misses: self.misses.get(),
            evictions: table.evictions,
            growth: self.growth.get(),
            pause: self.worth.borrow().pause(),
        }
    }
}
