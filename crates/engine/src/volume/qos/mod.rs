//! Quality of service: limits of volumes and of their clients, goals of latency, and fair shares
//! when there is too much to do.
//!
//! A volume is put under a [`QosSite`] ([`QosSite::govern`]) before it is offered to clients; what
//! lies below it, and what works on it from inside, is not held back. A request waits before it has
//! taken anything: no lease, permit or lock is held meanwhile. Flushes never wait here.
//!
//! A request passes, in this order, the limits of its client and those of its volume (`rate`:
//! exact over all cores), and then, if several volumes are in use and one of them has a weight or a
//! goal of its own, the core's lane (`lane`): at most so many are under way, and beyond that `fair`
//! says which one is next. Volumes with a goal have a lane of their own; the depth of the other one
//! follows from whether the goals are met (`depth`).
//!
//! What is not limited, and beside which nothing asks for a share, pays for one look at two flags.

mod depth;
mod fair;
mod lane;
mod limits;
mod rate;
mod site;
mod status;

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use wattle_rt::{Core, Either, Instant, race};

use super::changes::{ChangeMap, Changes, CheckpointError};
use super::{Remains, VolumeRef};
use crate::cores;
pub use limits::{
    QOS_BURSTS, QOS_GOALS, QOS_RATES, QOS_WEIGHTS, QosCost, QosLimits, QosRate, QosRates, QosScope, QosUnit,
};
use rate::{Booking, Paid, RateGroup, Rates};
pub use site::QosSite;
use site::{Flow, Gates, SiteShard, VolumeShared};
pub use status::{QosStatus, QosTotals};

/// One client of volumes, on whichever cores it comes: a connection, a host, a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QosClient(u64);

impl QosClient {
    /// Another one.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "each one is another")]
    pub fn new() -> Self {
        // 0 is everything that has no client of its own.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl QosSite {
    /// A volume with limits and a share, none of which are set yet. Clients are given this one.
    #[must_use]
    pub fn govern(&self, volume: VolumeRef) -> VolumeRef {
        VolumeRef::Governed(GovernedHandle {
            volume: Arc::new(volume),
            shared: Arc::new(VolumeShared::new(&self.0)),
        })
    }
}

/// A volume with limits and a share. Cheap to clone; may go to other cores.
#[derive(Debug, Clone)]
pub struct GovernedHandle {
    volume: Arc<VolumeRef>,
    shared: Arc<VolumeShared>,
}

impl GovernedHandle {
    /// The volume itself.
    #[must_use]
    pub fn below(&self) -> &VolumeRef {
        &self.volume
    }

    /// From now on it is noted which parts clients change. In memory: it ends with the volume.
    ///
    /// # Errors
    /// There is one of this name, or there are too many.
    pub fn begin_checkpoint(&self, core: &Core, name: &str) -> Result<(), CheckpointError> {
        self.shared.changes.begin(name, core.wall_clock(), self.volume.size_bytes())
    }

    /// Gives a checkpoint up; whether there was one of this name.
    pub fn end_checkpoint(&self, name: &str) -> bool {
        self.shared.changes.end(name)
    }

    /// What clients see may have changed anywhere, and not by a request of theirs: for every
    /// checkpoint all of it counts as changed.
    pub fn note_all_changed(&self) {
        self.shared.changes.note_all();
    }

    /// What has changed since each checkpoint.
    #[must_use]
    pub fn checkpoints(&self) -> Vec<Arc<ChangeMap>> {
        self.shared.changes.maps()
    }

    /// What clients that have gone left behind.
    #[must_use]
    pub fn remains(&self) -> Arc<Remains> {
        self.shared.remains.clone()
    }

    /// What is set.
    #[must_use]
    pub fn limits(&self) -> QosLimits {
        *self.shared.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These hold from now on; what waits goes on by them.
    pub async fn set(&self, core: &Core, limits: QosLimits) {
        self.shared.set(&limits, core.now().as_nanos());
        self.on_every_core(core, |shard, flow| {
            shard.look_again();
            flow.changed.notify_all();
            (0..shard.lanes.len()).for_each(|lane| lane::go_on(&shard, lane));
        })
        .await;
    }

    /// How it is.
    pub async fn status(&self, core: &Core) -> QosStatus {
        let (key, slot) = (self.shared.site.key, self.shared.slot);
        let totals = cores::each(core, move |core| {
            let flow = core.local::<SiteShard>(key).and_then(|shard| shard.find(slot));
            let totals =
                flow.map(|flow| QosTotals { waiting_shared: flow.queued.get(), ..flow.counts.totals() });
            std::future::ready(totals.unwrap_or_default())
        });
        let totals = totals.await.into_iter().fold(QosTotals::default(), QosTotals::plus);
        let depth_thousandths = self.shared.site.goal_depth(core.now().as_nanos());
        QosStatus { limits: self.limits(), totals, depth_thousandths }
    }

    /// Nothing of it is held back any more: it is about to be stopped, and what waits has to be
    /// answered first.
    pub async fn release(&self, core: &Core) {
        self.shared.released.store(true, Ordering::Release);
        let slot = self.shared.slot;
        self.on_every_core(core, move |shard, flow| {
            flow.changed.notify_all();
            lane::release(&shard, slot);
        })
        .await;
    }

    /// Releases and forgets it; the volume itself goes on. Done again, it does nothing.
    pub async fn end(&self, core: &Core) {
        self.release(core).await;
        let slot = self.shared.slot;
        self.on_every_core(core, move |shard, _| shard.forget(slot)).await;
        self.shared.leave();
    }

    async fn on_every_core(
        &self,
        core: &Core,
        work: impl Fn(Rc<SiteShard>, Rc<Flow>) + Clone + Send + 'static,
    ) {
        let (key, slot) = (self.shared.site.key, self.shared.slot);
        cores::each(core, move |core| {
            let found = core.local::<SiteShard>(key);
            if let Some((shard, flow)) = found.and_then(|shard| shard.find(slot).map(|flow| (shard, flow))) {
                work(shard, flow);
            }
            std::future::ready(())
        })
        .await;
    }

    pub(super) fn pace(&self, core: &Core) -> Rc<Pace> {
        let shard = SiteShard::of(core, &self.shared.site);
        let flow = shard.flow(&self.shared);
        Pace::new(shard, flow, 0)
    }
}

/// How requests of one client to a volume are held back on one core.
pub(super) struct Pace {
    shard: Rc<SiteShard>,
    flow: Rc<Flow>,
    client: u64,
    client_paid: Arc<Paid>,
    /// Its requests pass its limits in their order.
    client_gates: Gates,
}

impl Pace {
    fn new(shard: Rc<SiteShard>, flow: Rc<Flow>, client: u64) -> Rc<Self> {
        let client_paid = flow.shared.client(client);
        Rc::new(Self { shard, flow, client, client_paid, client_gates: Gates::default() })
    }

    /// The same for requests of this client.
    pub fn for_client(&self, client: QosClient) -> Rc<Self> {
        Self::new(self.shard.clone(), self.flow.clone(), client.0)
    }

    pub fn changes(&self) -> &Changes {
        &self.flow.shared.changes
    }

    /// Where it is.
    pub fn core(&self) -> &Core {
        &self.shard.core
    }

    /// Whether requests are counted as under way.
    pub fn shares(&self) -> bool {
        self.flow.shared.site.shares.load(Ordering::Relaxed)
    }

    /// Whether any request has to be looked at.
    #[inline]
    pub fn is_on(&self) -> bool {
        let shared = &self.flow.shared;
        shared.site.shares.load(Ordering::Relaxed) || shared.limited.load(Ordering::Relaxed)
    }

    /// Lets a request in if it need not wait.
    pub fn try_enter(&self, cost: QosCost) -> Option<Turn<'_>> {
        let shared = &self.flow.shared;
        if shared.limited.load(Ordering::Relaxed) && cost.counts() {
            return None;
        }
        let lane = lane::lane_of(&self.flow);
        lane::try_begin(&self.shard, &self.flow, lane, cost)
            .then(|| self.turn(Some(lane), cost, self.shard.now()))
    }

    /// Waits until a request may go.
    pub async fn enter(&self, cost: QosCost) -> Turn<'_> {
        let shared = &self.flow.shared;
        let mut booked = [None, None];
        if shared.limited.load(Ordering::Relaxed) && cost.counts() {
            booked = [
                self.pass(&self.client_gates, &shared.client_rates, &self.client_paid, cost).await,
                self.pass(&self.flow.gates, &shared.volume_rates, &shared.volume_paid, cost).await,
            ];
        }
        let shares = self.shares() && !shared.released.load(Ordering::Relaxed);
        let lane = shares.then(|| lane::lane_of(&self.flow));
        let began = self.shard.now();
        if let Some(lane) = lane {
            lane::begin(&self.shard, &self.flow, lane, self.client, cost).await;
        }
        booked.into_iter().flatten().for_each(Booked::starts);
        self.turn(lane, cost, began)
    }

    fn turn(&self, lane: Option<usize>, cost: QosCost, began: u64) -> Turn<'_> {
        self.flow.counts.came(cost);
        Turn { pace: self, lane, began, is_judged: cost.requests > 0 }
    }

    /// Waits as long as the rates hold a request back.
    async fn pass<'a>(
        &'a self,
        gates: &Gates,
        rates: &Rates,
        paid: &'a Paid,
        cost: QosCost,
    ) -> Option<Booked<'a>> {
        if rates.none() {
            return None;
        }
        let core = &self.shard.core;
        let came = core.now();
        let held = self.flow.counts.held();
        let _first = gates.of(cost).acquire(1).await;
        let booked = self.book(rates, paid, cost).await;
        drop(held);
        let waited = core.now() - came;
        if waited > Duration::ZERO {
            self.flow.counts.limited(waited);
        }
        booked
    }

    /// Books a request in both groups of limits and waits for its time in each of them; nothing
    /// once the volume is released.
    async fn book<'a>(&'a self, rates: &Rates, paid: &'a Paid, cost: QosCost) -> Option<Booked<'a>> {
        let (core, flow) = (&self.shard.core, &self.flow);
        'again: while !flow.shared.released.load(Ordering::Relaxed) {
            let mut booked = Booked { core, paid, booking: Booking::default() };
            for group in RateGroup::ORDER {
                let mut changed = flow.changed.wait();
                let now = core.now().as_nanos();
                let start = paid.reserve(rates, group, cost, now, &mut booked.booking);
                while core.now().as_nanos() < start {
                    let sleep = core.sleep_until(Instant::from_nanos(start));
                    if let Either::First(()) = race(sleep, changed).await {
                        break;
                    }
                    // What was set may have been a weight: its place in line stays.
                    if !booked.booking.is_of(rates) || flow.shared.released.load(Ordering::Relaxed) {
                        continue 'again;
                    }
                    changed = flow.changed.wait();
                }
            }
            return Some(booked);
        }
        None
    }
}

/// What was booked for a request; given back if it is dropped before the request starts.
struct Booked<'a> {
    core: &'a Core,
    paid: &'a Paid,
    booking: Booking,
}

impl Booked<'_> {
    /// The request starts: what was booked for it is used.
    fn starts(mut self) {
        self.booking = Booking::default();
    }
}

impl Drop for Booked<'_> {
    fn drop(&mut self) {
        self.paid.give_back(&self.booking, self.core.now().as_nanos());
    }
}

/// A request that was let in, until it is answered.
pub(super) struct Turn<'a> {
    pace: &'a Pace,
    /// Where it counts as under way.
    lane: Option<usize>,
    began: u64,
    /// How long it takes counts for the goal: what goes on with a long request does not count once
    /// more.
    is_judged: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Pace { shard, flow, .. } = self.pace;
        if let Some(lane) = self.lane {
            shard.answered(flow, lane, self.began, shard.now(), self.is_judged);
            lane::end(shard, flow, lane);
        }
    }
}
