//! What cores share of the volumes of a server, and what a core has of each of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use wattle_rt::sync::{Notify, Semaphore};
use wattle_rt::{Core, CoreIx};

use super::super::Remains;
use super::super::changes::Changes;
use super::depth::{self, Verdict, Window};
use super::lane::Lane;
use super::limits::{QosCost, QosLimits};
use super::rate::{Paid, Rates};
use super::status::FlowCounts;

/// Requests under way on a core, all volumes together, as long as several volumes ask for more:
/// every kind of drive is busy with as many, and what one volume has queued in a drive is not much
/// for the next one to wait for.
const FAIR_DEPTH: u64 = 64;

/// As long a volume without requests counts as used: gaps of its client are no idleness.
pub(super) const ACTIVE_NANOS: u64 = 1_000_000_000;

/// How old what a core knows of others may be.
const LOOK_NANOS: u64 = 1_000_000;

/// With so many requests a volume wants as much as it can get.
const HEAVY: u64 = 8;

/// Volumes that share drives: those of a server. Cheap to clone; may go to other cores.
#[derive(Debug, Clone)]
pub struct QosSite(pub(super) Arc<SiteShared>);

/// What all cores know.
#[derive(Debug)]
pub(super) struct SiteShared {
    /// Of its shards in each core's registry.
    pub key: u64,
    /// Several volumes are there, and one of them asks for more or less than the others: what is
    /// under way is counted, and bounded.
    pub shares: AtomicBool,
    volumes: AtomicUsize,
    /// Those with a weight or a goal of their own.
    asking: AtomicUsize,
    next_slot: AtomicUsize,
    /// The weights of those on each core that want as much as they can get.
    heavy: Box<[HeavyWeight]>,
    /// What volumes without a goal may have under way on a core while one with a goal is used, in
    /// thousandths.
    depth: AtomicU64,
    /// When a volume with a goal was last used.
    goal_seen: AtomicU64,
}

/// A word that one core writes and others read now and then.
#[derive(Debug, Default)]
#[repr(align(128))]
struct HeavyWeight(AtomicU64);

/// What is in it: the weight of what a core has heavy in the lower half; in the upper one which
/// volume it is, by [`name_of`], if that is the only one that is used there, and 0 for several.
const WEIGHT_BITS: u32 = 32;

/// A volume as it is named in that word.
fn name_of(slot: usize) -> u64 {
    u32::try_from(slot + 1).unwrap_or(0).into()
}

impl HeavyWeight {
    fn set(&self, weight: u64, only: Option<u64>) {
        let weight = weight.min(u32::MAX.into());
        self.0.store(only.unwrap_or(0) << WEIGHT_BITS | weight, Ordering::Relaxed);
    }

    /// The weight, and the only volume that it is of.
    fn get(&self) -> (u64, Option<u64>) {
        let word = self.0.load(Ordering::Relaxed);
        (word & u64::from(u32::MAX), Some(word >> WEIGHT_BITS).filter(|name| *name > 0))
    }
}

impl QosSite {
    /// For so many cores, without volumes.
    #[must_use]
    pub fn new(cores: usize) -> Self {
        // Keys of arrays begin at 1, those of mapped volumes at 1 << 62, those of servers across a
        // network at 1 << 61; those of an array's parts have the highest bit.
        static NEXT_KEY: AtomicU64 = AtomicU64::new(1 << 60);
        Self(Arc::new(SiteShared {
            key: NEXT_KEY.fetch_add(1, Ordering::Relaxed),
            shares: AtomicBool::new(false),
            volumes: AtomicUsize::new(0),
            asking: AtomicUsize::new(0),
            next_slot: AtomicUsize::new(0),
            heavy: (0..cores).map(|_| HeavyWeight::default()).collect(),
            depth: AtomicU64::new(FAIR_DEPTH * cores as u64 * depth::ONE),
            goal_seen: AtomicU64::new(0),
        }))
    }
}

impl SiteShared {
    /// Another volume; its number.
    pub fn joins(&self) -> usize {
        self.volumes.fetch_add(1, Ordering::Relaxed);
        self.decide();
        self.next_slot.fetch_add(1, Ordering::Relaxed)
    }

    /// One volume less.
    fn leaves(&self) {
        self.volumes.fetch_sub(1, Ordering::Relaxed);
        self.decide();
    }

    /// A volume asks for more or less than others from now on, or not any more.
    fn asks(&self, before: bool, now: bool) {
        if now && !before {
            self.asking.fetch_add(1, Ordering::Relaxed);
        } else if before && !now {
            self.asking.fetch_sub(1, Ordering::Relaxed);
        }
        self.decide();
    }

    /// A bound leaves drives idle that other volumes do not need: there is one only where it is
    /// asked for. Volumes come, go and are set by one core.
    fn decide(&self) {
        let (volumes, asking) = (self.volumes.load(Ordering::Relaxed), self.asking.load(Ordering::Relaxed));
        self.shares.store(volumes > 1 && asking > 0, Ordering::Relaxed);
    }

    /// The depth without goals, in thousandths.
    fn depth_max(&self) -> u64 {
        FAIR_DEPTH * self.heavy.len() as u64 * depth::ONE
    }

    /// The depth that goals ask for, if a volume with one is used.
    pub fn goal_depth(&self, now: u64) -> Option<u64> {
        let seen = self.goal_seen.load(Ordering::Relaxed);
        (seen > 0 && now.saturating_sub(seen) < ACTIVE_NANOS).then(|| self.depth.load(Ordering::Relaxed))
    }

    fn see_goal(&self, now: u64) {
        // A word that all cores read is not written with each request.
        if now.saturating_sub(self.goal_seen.load(Ordering::Relaxed)) > ACTIVE_NANOS / 10 {
            self.goal_seen.store(now.max(1), Ordering::Relaxed);
        }
    }

    fn judge(&self, verdict: Verdict) {
        let most = self.depth_max();
        let change = |before| Some(depth::after(before, verdict, most));
        // The closure always gives a value.
        let _ = self.depth.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// The weight of what other cores have heavy, and whether any of it may be another volume than
    /// the only one that is used here.
    fn heavy_elsewhere(&self, here: CoreIx, only: Option<u64>) -> (u64, bool) {
        let others = self.heavy.iter().enumerate().filter(|(core, _)| *core != here.0);
        others.map(|(_, word)| word.get()).fold((0, false), |(sum, is_other), (weight, name)| {
            (sum + weight, is_other || weight > 0 && (name.is_none() || name != only))
        })
    }
}

/// What all cores know of a volume.
#[derive(Debug)]
pub(super) struct VolumeShared {
    pub site: Arc<SiteShared>,
    /// Its number in every fair queue.
    pub slot: usize,
    /// It or its clients have limits.
    pub limited: AtomicBool,
    pub volume_rates: Rates,
    pub volume_paid: Paid,
    pub client_rates: Rates,
    clients: Mutex<BTreeMap<u64, Weak<Paid>>>,
    weight: AtomicU32,
    /// 0 for none.
    goal_nanos: AtomicU64,
    /// It is being stopped: nothing is held back any more.
    pub released: AtomicBool,
    /// It counts among the site's volumes no more.
    left: AtomicBool,
    /// On how many cores it wants as much as it can get.
    heavy_cores: AtomicU32,
    /// What was set last.
    pub limits: Mutex<QosLimits>,
    /// What clients have changed since checkpoints.
    pub changes: Changes,
    /// What clients that have gone left behind.
    pub remains: Arc<Remains>,
}

impl VolumeShared {
    pub fn new(site: &Arc<SiteShared>) -> Self {
        let limits = QosLimits::default();
        Self {
            site: site.clone(),
            slot: site.joins(),
            limited: AtomicBool::new(false),
            volume_rates: Rates::default(),
            volume_paid: Paid::default(),
            client_rates: Rates::default(),
            clients: Mutex::default(),
            weight: AtomicU32::new(limits.weight),
            goal_nanos: AtomicU64::new(0),
            released: AtomicBool::new(false),
            left: AtomicBool::new(false),
            heavy_cores: AtomicU32::new(0),
            limits: Mutex::new(limits),
            changes: Changes::default(),
            remains: Arc::default(),
        }
    }

    /// These hold from now on. Tasks that wait are woken by the caller.
    pub fn set(&self, limits: &QosLimits, now: u64) {
        let mut last = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let has_left = self.left.load(Ordering::Relaxed);
        self.site.asks(last.ask_for_shares() && !has_left, limits.ask_for_shares() && !has_left);
        *last = *limits;
        self.volume_rates.set(&limits.volume, limits.burst, now);
        self.client_rates.set(&limits.client, limits.burst, now);
        self.weight.store(limits.weight.max(1), Ordering::Relaxed);
        let goal = limits.goal.map_or(0, |goal| u64::try_from(goal.as_nanos()).unwrap_or(u64::MAX));
        self.goal_nanos.store(goal, Ordering::Relaxed);
        self.limited.store(!self.volume_rates.none() || !self.client_rates.none(), Ordering::Release);
    }

    /// It is no neighbour of the others any more. Done again, it does nothing.
    pub fn leave(&self) {
        let last = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.left.swap(true, Ordering::Relaxed) {
            self.site.asks(last.ask_for_shares(), false);
            self.site.leaves();
        }
    }

    /// What a client has used, on whichever core it comes.
    pub fn client(&self, id: u64) -> Arc<Paid> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(paid) = clients.get(&id).and_then(Weak::upgrade) {
            return paid;
        }
        clients.retain(|_, paid| paid.strong_count() > 0);
        let paid = Arc::new(Paid::default());
        clients.insert(id, Arc::downgrade(&paid));
        paid
    }

    pub fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    pub fn goal(&self) -> Option<u64> {
        Some(self.goal_nanos.load(Ordering::Relaxed)).filter(|goal| *goal > 0)
    }
}

/// Where requests wait for a limit, the first one for its time and the others for the first one:
/// reads and writes apart, since the one may be limited and the other not.
pub(super) struct Gates {
    reads: Semaphore,
    writes: Semaphore,
}

impl Default for Gates {
    fn default() -> Self {
        Self { reads: Semaphore::new(1), writes: Semaphore::new(1) }
    }
}

impl Gates {
    pub fn of(&self, cost: QosCost) -> &Semaphore {
        if cost.is_write { &self.writes } else { &self.reads }
    }
}

/// A volume on one core.
pub(super) struct Flow {
    pub shared: Arc<VolumeShared>,
    /// Requests pass the volume's limits in their order.
    pub gates: Gates,
    /// Limits changed.
    pub changed: Notify,
    pub under_way: Cell<u64>,
    pub queued: Cell<u64>,
    pub counts: FlowCounts,
    last_used: Cell<u64>,
    is_heavy: Cell<bool>,
    window: RefCell<Window>,
}

impl Flow {
    fn new(shared: &Arc<VolumeShared>) -> Rc<Self> {
        Rc::new(Self {
            shared: shared.clone(),
            gates: Gates::default(),
            changed: Notify::new(),
            under_way: Cell::new(0),
            queued: Cell::new(0),
            counts: FlowCounts::default(),
            last_used: Cell::new(0),
            is_heavy: Cell::new(false),
            window: RefCell::default(),
        })
    }

    fn is_used(&self, now: u64) -> bool {
        let used = self.last_used.get();
        self.under_way.get() + self.queued.get() > 0 || used > 0 && now.saturating_sub(used) < ACTIVE_NANOS
    }
}

/// Which of a core's lanes.
pub(super) const GOALS: usize = 0;
pub(super) const OTHERS: usize = 1;

/// The site on one core.
pub(super) struct SiteShard {
    pub core: Core,
    pub shared: Arc<SiteShared>,
    flows: RefCell<BTreeMap<usize, Rc<Flow>>>,
    /// Volumes with a goal, and the others.
    pub lanes: [Lane; 2],
    /// What was found out a moment ago.
    bounds: Cell<Bounds>,
}

/// What a core's lanes may have under way, in thousandths, and the weights that they have it for.
#[derive(Debug, Clone, Copy, Default)]
struct Bounds {
    /// Found out then; 0 for never.
    at: u64,
    of: [u64; 2],
    weights: [u64; 2],
}

impl SiteShard {
    /// The site on this core, which is made if it is not there.
    pub fn of(core: &Core, shared: &Arc<SiteShared>) -> Rc<Self> {
        core.local::<Self>(shared.key).unwrap_or_else(|| {
            let shard = Rc::new(Self {
                core: core.clone(),
                shared: shared.clone(),
                flows: RefCell::default(),
                lanes: [Lane::default(), Lane::default()],
                bounds: Cell::default(),
            });
            core.put_local(shared.key, shard.clone());
            shard
        })
    }

    /// The volume on this core, which is made if it is not there.
    pub fn flow(&self, shared: &Arc<VolumeShared>) -> Rc<Flow> {
        self.flows.borrow_mut().entry(shared.slot).or_insert_with(|| Flow::new(shared)).clone()
    }

    pub fn find(&self, slot: usize) -> Option<Rc<Flow>> {
        self.flows.borrow().get(&slot).cloned()
    }

    /// Forgets a volume, and itself with the last one.
    pub fn forget(&self, slot: usize) {
        let gone = self.flows.borrow_mut().remove(&slot);
        if let Some(flow) = gone
            && flow.is_heavy.replace(false)
        {
            flow.shared.heavy_cores.fetch_sub(1, Ordering::Relaxed);
        }
        self.look_again();
        if self.flows.borrow().is_empty() {
            drop(self.core.take_local::<Self>(self.shared.key));
        }
    }

    pub fn now(&self) -> u64 {
        self.core.turn_time().as_nanos()
    }

    pub fn weight_of(&self, slot: usize) -> u32 {
        self.flows.borrow().get(&slot).map_or(1, |flow| flow.shared.weight())
    }

    /// A request of a volume comes.
    pub fn used(&self, flow: &Flow, now: u64) {
        // It may be what others have to leave room for.
        if !flow.is_used(now) {
            self.look_again();
        }
        flow.last_used.set(now.max(1));
        if flow.shared.goal().is_some() {
            self.shared.see_goal(now);
        }
    }

    /// A request of a volume is answered; `is_judged` says whether its time counts for the goal.
    pub fn answered(&self, flow: &Flow, lane: usize, began: u64, now: u64, is_judged: bool) {
        flow.last_used.set(now.max(1));
        if let Some(goal) = flow.shared.goal().filter(|_| is_judged)
            && let Some(verdict) = flow.window.borrow_mut().answered(began, now, goal)
        {
            self.shared.judge(verdict);
            self.look_again();
        }
        if lane == OTHERS
            && let Some(depth) = self.shared.goal_depth(now)
        {
            let took = Duration::from_nanos(now.saturating_sub(began));
            self.lanes[OTHERS].rest(now, depth::pause(depth, took));
        }
    }

    /// What a lane may have under way, in thousandths of a request, and a volume's part of it in
    /// requests; `None` if there is no bound.
    pub fn bound(&self, lane: usize, flow: Option<&Flow>, now: u64) -> Option<(u64, u64)> {
        if now.saturating_sub(self.bounds.get().at) > LOOK_NANOS || self.bounds.get().at == 0 {
            self.look(now);
        }
        let Bounds { of, weights, .. } = self.bounds.get();
        if of[lane] == u64::MAX {
            return None;
        }
        let weight = flow.map_or(0, |flow| u64::from(flow.shared.weight()));
        Some((of[lane], of[lane] * weight / weights[lane].max(1) / depth::ONE))
    }

    /// Nothing of a lane is under way any more: other cores need not reckon with this one.
    pub fn is_idle(&self, now: u64) {
        if self.shared.heavy[self.core.index().0].get().0 > 0 {
            self.look(now);
        }
    }

    pub fn look_again(&self) {
        self.bounds.set(Bounds { at: 0, ..self.bounds.get() });
    }

    /// Finds out which volumes want how much, and tells other cores.
    fn look(&self, now: u64) {
        let (mut used, mut only, mut heavy, mut weights) = (0, None, 0, [0; 2]);
        for flow in self.flows.borrow().values() {
            let weight = u64::from(flow.shared.weight());
            if flow.is_used(now) {
                used += 1;
                only = Some(name_of(flow.shared.slot)).filter(|_| used == 1);
                weights[if flow.shared.goal().is_some() { GOALS } else { OTHERS }] += weight;
            }
            let is_heavy = flow.under_way.get() + flow.queued.get() >= HEAVY;
            let on = match (flow.is_heavy.replace(is_heavy), is_heavy) {
                (false, true) => flow.shared.heavy_cores.fetch_add(1, Ordering::Relaxed) + 1,
                (true, false) => flow.shared.heavy_cores.fetch_sub(1, Ordering::Relaxed),
                _ => flow.shared.heavy_cores.load(Ordering::Relaxed),
            };
            if is_heavy {
                heavy += weight * 16 / u64::from(on.max(1));
            }
        }
        self.shared.heavy[self.core.index().0].set(heavy, only);
        let (elsewhere, is_other) = self.shared.heavy_elsewhere(self.core.index(), only);
        let mut fair = u64::MAX;
        // A volume that is used on several cores is no neighbour of itself.
        if used > 1 || is_other {
            let mine = heavy.max(1);
            let all = self.shared.depth_max();
            fair = (u128::from(all) * u128::from(mine) / u128::from(mine + elsewhere)) as u64;
            fair = if heavy == 0 { all } else { fair.max(4 * depth::ONE) };
        }
        let squeezed = self.shared.goal_depth(now).filter(|_| weights[OTHERS] > 0).unwrap_or(u64::MAX);
        self.bounds.set(Bounds { at: now.max(1), of: [fair, fair.min(squeezed)], weights });
    }
}
