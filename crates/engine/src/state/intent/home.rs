//! The regions as the array's home sees them: which bits are set on the members, and which cores
//! may write where.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use wattle_rt::CoreIx;
use wattle_rt::sync::OneshotSender;

use super::IntentSpec;
use crate::model::error::VolumeError;
use crate::model::health::Health;
use crate::model::invariant::invariant;
use crate::model::regions::Regions;

/// A core that waits for regions.
pub(crate) struct Asking {
    pub core: CoreIx,
    pub regions: Vec<u64>,
    pub sender: OneshotSender<Result<(), VolumeError>>,
}

/// The home's part of an array's write intent. All but [`Self::wait`] happens in the array's turn.
pub(crate) struct IntentHome {
    /// Which bitmap of the array it is: how many came before.
    pub generation: u64,
    /// How often regions that are not in use are looked for.
    pub sweep: Duration,
    /// Bits that are set, durably, on every member in use.
    marked: RefCell<Regions>,
    /// By core, what it was granted.
    held: RefCell<Vec<Regions>>,
    waiting: RefCell<Vec<Asking>>,
    /// A task serves the cores that wait.
    serving: Cell<bool>,
    /// A task sweeps.
    pub sweeping: Cell<bool>,
    /// Bits were set, or members or their state changed: there may be bits to clear. Before that
    /// nothing is written.
    pub used: Cell<bool>,
}

impl IntentHome {
    pub fn new(spec: &IntentSpec, generation: u64, cores: usize) -> Self {
        let none = Regions::new(spec.marked.size(), spec.marked.total());
        Self {
            generation,
            sweep: spec.sweep,
            marked: RefCell::new(spec.marked.clone()),
            held: RefCell::new(vec![none; cores]),
            waiting: RefCell::default(),
            serving: Cell::new(false),
            sweeping: Cell::new(false),
            used: Cell::new(false),
        }
    }

    /// Queues a core that asks; says whether a task has to be started that serves.
    pub fn wait(&self, asking: Asking) -> bool {
        self.waiting.borrow_mut().push(asking);
        !self.serving.replace(true)
    }

    /// All cores that wait; with none, serving ends.
    pub fn take_waiting(&self) -> Vec<Asking> {
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        self.serving.set(!waiting.is_empty());
        waiting
    }

    /// The regions that have to be marked before all of them can go on, ascending.
    pub fn missing(&self, asking: &[Asking]) -> Vec<u64> {
        let marked = self.marked.borrow();
        let asked = asking.iter().flat_map(|asking| &asking.regions).copied();
        let mut missing: Vec<u64> = asked.filter(|&region| !marked.contains(region)).collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// The bits are set on every member in use, durably.
    pub fn set_marked(&self, regions: &[u64]) {
        let mut marked = self.marked.borrow_mut();
        regions.iter().for_each(|&region| marked.insert(region));
    }

    /// Lets a core write to regions that are marked.
    pub fn grant(&self, core: CoreIx, regions: &[u64]) {
        let (marked, mut held) = (self.marked.borrow(), self.held.borrow_mut());
        for &region in regions {
            invariant!(7, marked.contains(region));
            held[core.0].insert(region);
        }
    }

    /// A core has given regions back.
    pub fn released(&self, core: CoreIx, regions: &[u64]) {
        let mut held = self.held.borrow_mut();
        regions.iter().for_each(|&region| held[core.0].remove(region));
    }

    /// Whether a core may write somewhere.
    pub fn any_held(&self) -> bool {
        self.held.borrow().iter().any(|held| !held.is_empty())
    }

    /// The bits that can be cleared once every member is flushed: no core can write there, nothing
    /// there has to be resynced, and no member is away or incomplete that would have to be told
    /// what it misses.
    pub fn clearable(&self, health: &Health) -> Vec<u64> {
        let incomplete = health.rebuilding().any(|(seat, _)| health.seats[seat.index()].stale.is_some());
        if health.broken || incomplete || !health.lost().is_empty() {
            return Vec::new();
        }
        let marked = self.marked.borrow();
        let mut held = Regions::new(marked.size(), marked.total());
        self.held.borrow().iter().for_each(|of_core| held.union_with(of_core));
        let idle = marked.iter().filter(|&region| !held.contains(region));
        idle.filter(|&region| health.trust.covers(marked.range_of(region))).collect()
    }

    /// Adds every region whose bit is set.
    pub fn add_marked(&self, regions: &mut Regions) {
        self.marked.borrow().iter().for_each(|region| regions.insert(region));
    }

    /// The bits are being cleared, on some members at least: a core that writes there marks again.
    pub fn set_unmarked(&self, regions: &[u64]) {
        let held = |region| self.held.borrow().iter().any(|held| held.contains(region));
        invariant!(7, !regions.iter().any(|&region| held(region)));
        let mut marked = self.marked.borrow_mut();
        regions.iter().for_each(|&region| marked.remove(region));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::health::{MemberState, Seat, Trust};
    use crate::model::units::Sector;
    use std::sync::Arc;

    fn home(marked: &[u64]) -> IntentHome {
        let mut regions = Regions::new(Sector(8), Sector(80));
        marked.iter().for_each(|&region| regions.insert(region));
        IntentHome::new(&IntentSpec { marked: regions, sweep: Duration::from_secs(5) }, 0, 2)
    }

    /// Two slots, and a replacement for each.
    fn health(states: [MemberState; 4], stale: Option<u64>, needs: Option<u64>) -> Health {
        let one = |region| {
            let mut regions = Regions::new(Sector(8), Sector(80));
            regions.insert(region);
            Arc::new(regions)
        };
        let mut seats = vec![Seat::default(); 4];
        for (seat, state) in seats.iter_mut().zip(states) {
            seat.stale = stale.filter(|_| matches!(state, MemberState::Rebuilding { .. })).map(one);
        }
        let trust = match needs {
            None => Trust { below: Sector::MAX, needs: None },
            Some(region) => Trust { below: Sector(0), needs: Some(one(region)) },
        };
        Health::new(states.to_vec(), seats, trust)
    }

    /// docs/formats.md §2.3 and §2.4: which bits may go.
    #[test]
    fn bits_go_when_nobody_needs_them() {
        use MemberState::{Faulty, InSync, Missing};
        let rebuilding = MemberState::Rebuilding { valid_below: Sector(8) };
        let clearable = |states, stale, needs| home(&[1, 2, 9]).clearable(&health(states, stale, needs));
        let whole = [InSync, InSync, Missing, Missing];
        assert_eq!(clearable(whole, None, None), [1, 2, 9]);
        assert_eq!(clearable(whole, None, Some(2)), [1, 9], "a resync has to pass first");
        for away in [Missing, Faulty, rebuilding] {
            assert_eq!(
                clearable([InSync, away, Missing, Missing], None, None),
                [],
                "kept for slot 1: {away:?}"
            );
        }
        assert_eq!(
            clearable([InSync, InSync, rebuilding, Missing], None, None),
            [1, 2, 9],
            "it is copied as a whole"
        );
        assert_eq!(
            clearable([InSync, InSync, rebuilding, Missing], Some(9), None),
            [],
            "it is copied by the bits"
        );
        assert_eq!(clearable([InSync, InSync, Faulty, Missing], None, None), [1, 2, 9]);
        let broken = Health { broken: true, ..health(whole, None, None) };
        assert_eq!(home(&[1]).clearable(&broken), [], "what is on which member is not known");
    }

    #[test]
    fn a_region_is_held_until_every_core_has_given_it_back() {
        let (home, whole) = (home(&[1]), health([MemberState::InSync; 4], None, None));
        let (sender, _receiver) = wattle_rt::oneshot();
        let asking = [Asking { core: CoreIx(0), regions: vec![5, 1, 5], sender }];
        assert_eq!(home.missing(&asking), [5], "1 is marked already");
        home.set_marked(&[5]);
        assert_eq!(home.missing(&asking), []);
        home.grant(CoreIx(0), &[1, 5]);
        home.grant(CoreIx(1), &[5]);
        home.released(CoreIx(0), &[1, 5]);
        assert_eq!(home.clearable(&whole), [1]);
        home.released(CoreIx(1), &[5]);
        assert_eq!(home.clearable(&whole), [1, 5]);
        home.set_unmarked(&[1, 5]);
        assert_eq!((home.clearable(&whole), home.any_held()), (vec![], false));
    }
}
