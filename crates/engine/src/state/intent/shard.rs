//! The regions as one core sees them.

use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use wattle_rt::Notify;

use super::IntentSpec;
use crate::model::units::Sector;

/// The home has granted the region: its bit is durable on every member, and stays set until this
/// core releases the region.
const GRANTED: u32 = 1 << 31;
/// This core has asked for the region.
const ASKED: u32 = 1 << 30;
/// Sweeps that an unused region is still kept for.
const AGE: u32 = 3 << 28;
const AGE_ONE: u32 = 1 << 28;
/// As after each use: two sweeps.
const YOUNG: u32 = 2 * AGE_ONE;
/// Writes in flight.
const COUNT: u32 = AGE_ONE - 1;
/// Regions in a page of states.
const PAGE: u64 = 1024;

/// One core's part of an array's write intent: a word for each region, nothing shared.
pub(crate) struct IntentShard {
    /// Which bitmap of the array it is part of: how many came before.
    pub generation: u64,
    region_sectors: u64,
    regions: u64,
    /// By region, in pages that are made when they are first used.
    states: Vec<OnceCell<Box<[Cell<u32>]>>>,
    /// The regions that are granted, in no order.
    granted: RefCell<Vec<u64>>,
    /// Signalled when the home has answered.
    answered: Notify,
}

/// A write that is under way in some regions. Leaving them is its drop.
#[must_use = "a write that has left its regions is not covered by their bits"]
pub(crate) struct IntentGuard {
    intent: Rc<IntentShard>,
    regions: Range<u64>,
}

impl IntentShard {
    pub fn new(spec: &IntentSpec, generation: u64) -> Self {
        Self {
            generation,
            region_sectors: spec.marked.size().0,
            regions: spec.marked.count(),
            states: (0..spec.marked.count().div_ceil(PAGE)).map(|_| OnceCell::new()).collect(),
            granted: RefCell::default(),
            answered: Notify::new(),
        }
    }

    /// The regions that a range touches.
    pub fn regions_of(&self, range: Range<Sector>) -> Range<u64> {
        if range.is_empty() {
            return 0..0;
        }
        let end = range.end.0.div_ceil(self.region_sectors).min(self.regions);
        range.start.0 / self.region_sectors..end
    }

    /// Enters a write, if all of its regions are granted. It is not async: nothing can happen
    /// between the check and the count.
    pub fn enter(self: &Rc<Self>, regions: Range<u64>) -> Option<IntentGuard> {
        if regions.clone().any(|region| self.state(region).get() & GRANTED == 0) {
            return None;
        }
        for region in regions.clone() {
            let state = self.state(region);
            debug_assert!(state.get() & COUNT < COUNT, "no more writes in flight than there is memory for");
            state.set((state.get() & !AGE | YOUNG) + 1);
        }
        Some(IntentGuard { intent: self.clone(), regions })
    }

    /// The regions that have to be asked for: not granted, and no write of this core asks for them
    /// yet. The caller asks.
    pub fn ask(&self, regions: Range<u64>) -> Vec<u64> {
        let missing = regions.filter(|&region| self.state(region).get() & (GRANTED | ASKED) == 0);
        missing.inspect(|&region| self.state(region).set(ASKED)).collect()
    }

    /// The home's answer to what was asked for.
    pub fn answer(&self, regions: &[u64], granted: bool) {
        for &region in regions {
            debug_assert_eq!(self.state(region).get(), ASKED, "what is not granted is not in use");
            self.state(region).set(if granted { GRANTED | YOUNG } else { 0 });
        }
        if granted {
            self.granted.borrow_mut().extend(regions);
        }
        self.answered.notify_all();
    }

    /// Waits for the next answer.
    pub fn answered(&self) -> impl Future<Output = ()> + '_ {
        self.answered.wait()
    }

    /// Ages what is not in use and releases what has not been for two sweeps: the next write there
    /// asks again.
    pub fn sweep(&self) -> Vec<u64> {
        self.release(
            |state| {
                if state & COUNT == 0 { state.saturating_sub(AGE_ONE).max(GRANTED) } else { state }
            },
        )
    }

    /// Releases everything. Nothing is in flight.
    pub fn release_all(&self) -> Vec<u64> {
        self.release(|state| {
            debug_assert_eq!(state & COUNT, 0, "nothing is in flight");
            if state & COUNT == 0 { GRANTED } else { state }
        })
    }

    /// Gives each granted region its next state and releases those that are then neither young nor
    /// in use.
    fn release(&self, next: impl Fn(u32) -> u32) -> Vec<u64> {
        let mut released = Vec::new();
        self.granted.borrow_mut().retain(|&region| {
            let state = self.state(region);
            state.set(next(state.get()));
            let keep = state.get() & (AGE | COUNT) != 0;
            if !keep {
                state.set(0);
                released.push(region);
            }
            keep
        });
        released
    }

    fn state(&self, region: u64) -> &Cell<u32> {
        let page =
            self.states[(region / PAGE) as usize].get_or_init(|| (0..PAGE).map(|_| Cell::new(0)).collect());
        &page[(region % PAGE) as usize]
    }
}

impl Drop for IntentGuard {
    fn drop(&mut self) {
        for region in self.regions.clone() {
            let state = self.intent.state(region);
            state.set((state.get() & !AGE | YOUNG) - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::regions::Regions;
    use std::time::Duration;

    fn shard() -> Rc<IntentShard> {
        let marked = Regions::new(Sector(8), Sector(80));
        Rc::new(IntentShard::new(&IntentSpec { marked, sweep: Duration::from_secs(5) }, 0))
    }

    fn granted(intent: &IntentShard, regions: Range<u64>) {
        let asked = intent.ask(regions);
        intent.answer(&asked, true);
    }

    /// The table of docs/formats.md §2.3, row by row: c = 0 is not granted, c = 1 granted for one
    /// more sweep, c = 2 for two.
    #[test]
    fn regions_are_asked_for_counted_aged_and_released() {
        let intent = shard();
        assert!(intent.enter(3..4).is_none(), "c = 0: the bit comes first");
        assert_eq!(intent.ask(3..4), [3]);
        assert!(intent.enter(3..4).is_none(), "asking is not having");
        intent.answer(&[3], true);
        let first = intent.enter(3..4).expect("granted");
        let second = intent.enter(3..4).expect("c >= 2: at once");
        for _ in 0..5 {
            assert_eq!(intent.sweep(), [], "in flight: no sweep takes it");
        }
        drop(first);
        assert_eq!(intent.sweep(), [], "still one in flight");
        drop(second);
        assert_eq!(intent.sweep(), [], "c = 2 to c = 1");
        drop(intent.enter(3..4).expect("c = 1: the bit is still set, so at once"));
        assert_eq!(intent.sweep(), [], "young again");
        assert_eq!(intent.sweep(), [3], "unused for two sweeps");
        assert!(intent.enter(3..4).is_none(), "released: asks again");
        assert_eq!(intent.sweep(), [], "released once");
    }

    #[test]
    fn one_write_asks_for_each_region_and_a_refusal_leaves_it_to_the_next() {
        let intent = shard();
        granted(&intent, 1..2);
        assert_eq!(intent.ask(0..4), [0, 2, 3]);
        assert_eq!(intent.ask(2..5), [4], "the others are on their way");
        intent.answer(&[0, 2, 3], false);
        assert_eq!(intent.ask(0..4), [0, 2, 3]);
        intent.answer(&[0, 2, 3], true);
        assert!(intent.enter(0..4).is_some() && intent.enter(0..5).is_none());
        intent.answer(&[4], true);
        assert!(intent.enter(0..5).is_some());
    }

    #[test]
    fn a_write_that_finds_one_region_missing_counts_in_none() {
        let intent = shard();
        granted(&intent, 0..2);
        assert!(intent.enter(0..3).is_none());
        assert_eq!(intent.release_all(), [0, 1]);
    }

    #[test]
    fn ranges_are_cut_at_the_end() {
        let intent = shard();
        assert_eq!(intent.regions_of(Sector(0)..Sector(1)), 0..1);
        assert_eq!(intent.regions_of(Sector(7)..Sector(9)), 0..2);
        assert_eq!(intent.regions_of(Sector(72)..Sector(900)), 9..10);
        assert!(intent.enter(intent.regions_of(Sector(5)..Sector(5))).is_some(), "nothing needs nothing");
    }
}
