//! Where the clean cache has its pages, and the marks of the rows that were used lately.

use wattle_rt::Buf;

use crate::model::stripe_hash::spread;
use crate::model::units::StripeNo;

/// Pages that compete for a place.
pub(super) const WAYS: usize = 8;
/// Sets at the start: 1 MiB.
const SETS_FIRST: usize = 32;
/// How often a page that is used again survives the search for a victim.
pub(super) const HEAT_MAX: u8 = 3;
/// Stripes are counted in so many classes: few, since this is looked at before everything else.
const CLASSES: usize = 1024;
/// Marks of rows, for each page that the cache could hold at most.
const MARKS: usize = 4;

/// A page's number, unique in the array. Zero is the number of none.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PageKey(pub(super) u64);

/// A place for a page.
#[derive(Default)]
pub(super) struct Way {
    pub key: PageKey,
    /// Absent while the page is being written.
    pub page: Option<Buf>,
    pub heat: u8,
}

#[derive(Default)]
pub(super) struct Table {
    pub ways: Vec<Way>,
    pub sets: usize,
    pub sets_max: usize,
    /// Pages that are here.
    pub active: usize,
    pub evictions: u64,
    /// How many there are of each class of stripes.
    pub classes: Vec<u32>,
    /// How many there are of each class that is leased as one, if anything is.
    pub kept: Vec<u32>,
    /// Marks of the rows that were used lately, each in its place or over another's.
    pub marks: Vec<u32>,
    /// Rows used in this period, and those of them that came again in vain.
    pub rows: u64,
    pub again: u64,
}

/// A number as good as random (the finaliser of SplitMix64).
fn mixed(key: u64) -> u64 {
    let key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}

/// The class of a stripe in [`Table::classes`].
pub(super) fn class(stripe: StripeNo) -> usize {
    (spread(stripe) >> (64 - CLASSES.ilog2())) as usize
}

/// As many of `sets` as doubling reaches.
pub(super) fn reachable(sets: usize) -> usize {
    sets >> doublings(sets) << doublings(sets)
}

/// How often a cache doubles until it has so many sets; it begins with [`SETS_FIRST`] or not twice
/// as many.
fn doublings(sets: usize) -> u32 {
    (sets / SETS_FIRST).max(1).ilog2()
}

impl Table {
    /// Begins small.
    pub fn begin(&mut self, sets_max: usize) {
        (self.sets, self.sets_max) = (sets_max >> doublings(sets_max), sets_max);
        self.ways.resize_with(self.sets * WAYS, Way::default);
        self.classes.resize(CLASSES, 0);
        self.marks.resize(MARKS * sets_max * WAYS, 0);
    }

    /// Marks a row as used; says whether it was marked.
    pub fn mark(&mut self, stripe: StripeNo, row: u64) -> bool {
        let (place, mark) = self.mark_of(stripe, row);
        std::mem::replace(&mut self.marks[place], mark) == mark
    }

    /// A row's mark, and the place where it would be.
    pub fn mark_of(&self, stripe: StripeNo, row: u64) -> (usize, u32) {
        let mark = mixed(stripe.0.rotate_left(24) ^ row);
        // As good as a remainder, and a division less.
        let place = ((mark & 0xffff_ffff) * self.marks.len() as u64) >> 32;
        (place as usize, (mark >> 32) as u32 | 1)
    }

    fn at(&self, key: PageKey) -> usize {
        if self.sets == 0 { 0 } else { mixed(key.0) as usize % self.sets * WAYS }
    }

    pub fn set(&self, key: PageKey) -> &[Way] {
        let at = self.at(key);
        &self.ways[at..(at + WAYS).min(self.ways.len())]
    }

    pub fn set_mut(&mut self, key: PageKey) -> &mut [Way] {
        let at = self.at(key);
        let end = (at + WAYS).min(self.ways.len());
        &mut self.ways[at..end]
    }

    /// The page's place, or that of the page that has to make room for it.
    pub fn place(&mut self, key: PageKey) -> &mut Way {
        let set = self.set_mut(key);
        let known = set.iter().position(|way| way.key == key);
        let free = || set.iter().position(|way| way.page.is_none());
        let at = known.or_else(free).unwrap_or_else(|| {
            // What is used again stays for a few rounds.
            loop {
                if let Some(victim) = set.iter().position(|way| way.heat == 0) {
                    break victim;
                }
                set.iter_mut().for_each(|way| way.heat -= 1);
            }
        });
        &mut set[at]
    }

    /// Doubles the number of sets: each goes into two.
    pub fn grow(&mut self) {
        let before = std::mem::take(&mut self.ways);
        self.sets *= 2;
        self.ways.resize_with(self.sets * WAYS, Way::default);
        for way in before.into_iter().filter(|way| way.page.is_some()) {
            let key = way.key;
            *self.place(key) = way;
        }
    }
}
