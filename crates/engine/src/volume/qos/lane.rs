//! What is under way on a core, and what waits for room.
//!
//! Invariants:
//! 1. While a request waits, another one of the lane is under way, or a timer runs: something comes
//!    back to look for the next one.
//! 2. A volume that has not had its share does not wait for others to come below the bound.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use wattle_rt::{Instant, Latch};

use super::depth::ONE;
use super::fair::FairQueue;
use super::limits::QosCost;
use super::site::{Flow, GOALS, OTHERS, SiteShard};

/// No pause is longer: a drive that hung for once does not stop a volume for minutes.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Volumes of a kind on one core.
#[derive(Default)]
pub(super) struct Lane {
    under_way: Cell<u64>,
    waiting: RefCell<FairQueue<Rc<Waiter>>>,
    /// None begins before then.
    rest_until: Cell<u64>,
    has_timer: Cell<bool>,
}

/// A request that waits.
struct Waiter {
    flow: Rc<Flow>,
    granted: Latch,
    /// Its task has gone.
    gone: Cell<bool>,
}

impl Lane {
    /// None begins for so long.
    pub fn rest(&self, now: u64, pause: Duration) {
        let nanos = pause.min(PAUSE_MAX).as_nanos() as u64;
        self.rest_until.set(self.rest_until.get().max(now + nanos));
    }

    fn has_room(&self, bound: Option<u64>, now: u64) -> bool {
        bound.is_none_or(|bound| {
            self.under_way.get() == 0 && now >= self.rest_until.get()
                || bound >= ONE && (self.under_way.get() + 1) * ONE <= bound
        })
    }

    fn takes(&self, flow: &Flow) {
        self.under_way.set(self.under_way.get() + 1);
        flow.under_way.set(flow.under_way.get() + 1);
    }
}

/// Whose lane it is now.
pub(super) fn lane_of(flow: &Flow) -> usize {
    if flow.shared.goal().is_some() { GOALS } else { OTHERS }
}

/// Begins a request if it need not wait.
pub(super) fn try_begin(shard: &SiteShard, flow: &Flow, number: usize, cost: QosCost) -> bool {
    let (lane, now) = (&shard.lanes[number], shard.now());
    shard.used(flow, now);
    let bound = shard.bound(number, Some(flow), now);
    let mut waiting = lane.waiting.borrow_mut();
    if let Some((bound, part)) = bound {
        let slot = flow.shared.slot;
        let is_free = waiting.is_empty() && lane.has_room(Some(bound), now);
        // Invariant 2.
        let has_right = || {
            bound >= ONE
                && flow.under_way.get() < part.max(1)
                && !waiting.has(slot)
                && waiting.is_behind(slot)
        };
        if !is_free && !has_right() {
            return false;
        }
        waiting.charge(slot, cost.share_bytes(), flow.shared.weight());
    } else if !waiting.is_empty() && waiting.has(flow.shared.slot) {
        return false;
    }
    lane.takes(flow);
    true
}

/// Waits until a request may begin.
pub(super) async fn begin(shard: &Rc<SiteShard>, flow: &Rc<Flow>, number: usize, client: u64, cost: QosCost) {
    if try_begin(shard, flow, number, cost) {
        return;
    }
    let began = shard.now();
    let waiter = Rc::new(Waiter { flow: flow.clone(), granted: Latch::new(), gone: Cell::new(false) });
    flow.queued.set(flow.queued.get() + 1);
    shard.lanes[number].waiting.borrow_mut().push(
        flow.shared.slot,
        client,
        cost.share_bytes(),
        waiter.clone(),
    );
    let leaving = Leaving { shard, number, waiter: &waiter, taken: Cell::new(false) };
    // A bound that ended meanwhile, or a pause that no task waits for the end of.
    go_on(shard, number);
    waiter.granted.wait().await;
    leaving.taken.set(true);
    flow.counts.shared(Duration::from_nanos(shard.now().saturating_sub(began)));
}

/// A task that waits, and may be dropped at any time.
struct Leaving<'a> {
    shard: &'a Rc<SiteShard>,
    number: usize,
    waiter: &'a Rc<Waiter>,
    taken: Cell<bool>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.taken.get() {
            return;
        }
        if self.waiter.granted.is_set() {
            end(self.shard, &self.waiter.flow, self.number);
        } else {
            self.waiter.gone.set(true);
        }
    }
}

/// A request that had begun is over.
pub(super) fn end(shard: &Rc<SiteShard>, flow: &Flow, number: usize) {
    let lane = &shard.lanes[number];
    lane.under_way.set(lane.under_way.get() - 1);
    flow.under_way.set(flow.under_way.get() - 1);
    if !lane.waiting.borrow().is_empty() {
        go_on(shard, number);
    } else if lane.under_way.get() == 0 {
        shard.is_idle(shard.now());
    }
}

/// Begins what waits, as far as there is room.
pub(super) fn go_on(shard: &Rc<SiteShard>, number: usize) {
    let (lane, now) = (&shard.lanes[number], shard.now());
    while !lane.waiting.borrow().is_empty() {
        let bound = shard.bound(number, None, now).map(|(bound, _)| bound);
        if !lane.has_room(bound, now) {
            break;
        }
        let next = lane.waiting.borrow_mut().pop(|slot| shard.weight_of(slot));
        next.into_iter().for_each(|(_, waiter)| grant(lane, &waiter));
    }
    let rests = lane.under_way.get() == 0 && !lane.waiting.borrow().is_empty();
    if rests && !lane.has_timer.replace(true) {
        let (shard, until) = (shard.clone(), Instant::from_nanos(lane.rest_until.get()));
        let core = shard.core.clone();
        core.spawn(async move {
            shard.core.sleep_until(until).await;
            shard.lanes[number].has_timer.set(false);
            go_on(&shard, number);
        });
    }
}

/// Begins all that waits of a volume that is being stopped.
pub(super) fn release(shard: &Rc<SiteShard>, slot: usize) {
    for lane in &shard.lanes {
        loop {
            let next = lane.waiting.borrow_mut().pop_where(|_| 1, |other| other == slot);
            let Some((_, waiter)) = next else { break };
            grant(lane, &waiter);
        }
    }
}

fn grant(lane: &Lane, waiter: &Waiter) {
    waiter.flow.queued.set(waiter.flow.queued.get() - 1);
    if waiter.gone.get() {
        return;
    }
    lane.takes(&waiter.flow);
    waiter.granted.set();
}
