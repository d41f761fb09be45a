//! The array's home: the one place where its state changes, one change at a time, durable before anybody relies on it.

mod intent;
mod notes;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use wattle_rt::sync::OneshotSender;
use wattle_rt::{Core, Notify, Semaphore, oneshot};

use super::health::{Event, Health};
use super::shard::{Shard, answer};
use super::{Fixed, Pass, each_core};
use crate::error::VolumeError;
use crate::intent::IntentHome;
use crate::metadata::{Change, Metadata, Record, SeatRecord};
use crate::sync::Control;
use crate::units::{MemberIx, MemberSet, Sector};

/// Key of an array's home in its core's registry, beside the shard's.
pub(crate) const fn home_key(key: u64) -> u64 {
    key | 1 << 63
}

/// The home of one array, on its home core.
pub(crate) struct Home {
    /// Resync, recovery, check and repair.
    pub(crate) sync: Control,
    pub(super) core: Core,
    pub(super) fixed: Arc<Fixed>,
    metadata: Box<dyn Metadata>,
    health: RefCell<Arc<Health>>,
    /// As it was last recorded.
    recorded: RefCell<Arc<Health>>,
    dirty: Cell<bool>,
    stopped: Cell<bool>,
    /// One change of state at a time.
    pub(super) transition: Semaphore,
    /// One owner of the whole array at a time.
    exclusive: Semaphore,
    flushes: RefCell<Flushes>,
    /// One at a time makes every core note changes, or stop that.
    noting: Semaphore,
    /// Every core notes changes.
    noted: Cell<bool>,
    /// A member that is absent may hold, unflushed, what was acknowledged before a crash: nothing counts it out yet.
    absentee_may_return: Cell<bool>,
    /// Signalled when anything about the members changed.
    pub(super) changed: Notify,
    intent: Option<IntentHome>,
}

/// Flush requests that arrive while one runs share the next.
#[derive(Default)]
struct Flushes {
    running: bool,
    waiting: Vec<OneshotSender<Result<(), VolumeError>>>,
}

impl Home {
    pub fn new(
        core: &Core,
        fixed: &Arc<Fixed>,
        health: Arc<Health>,
        metadata: Box<dyn Metadata>,
    ) -> Rc<Self> {
        let uncertain = fixed.unclean || !health.trust.complete(fixed.geometry.sync_sectors());
        let absentee_may_return =
            !fixed.read_only && fixed.geometry.redundancy() > 0 && uncertain && !health.optimal;
        Rc::new(Self {
            sync: Control::new(&fixed.tuning.sync),
            core: core.clone(),
            fixed: fixed.clone(),
            metadata,
            recorded: RefCell::new(health.clone()),
            health: RefCell::new(health),
            dirty: Cell::new(false),
            stopped: Cell::new(false),
            transition: Semaphore::new(1),
            exclusive: Semaphore::new(1),
            flushes: RefCell::default(),
            noting: Semaphore::new(1),
            noted: Cell::new(false),
            absentee_may_return: Cell::new(absentee_may_return),
            changed: Notify::new(),
            intent: (fixed.intent.as_ref().filter(|_| !fixed.read_only))
                .map(|spec| IntentHome::new(spec, core.cores())),
        })
    }

    pub fn is_dirty(&self) -> bool {
        self.dirty.get()
    }

    pub fn health(&self) -> Arc<Health> {
        self.health.borrow().clone()
    }

    /// The members as others may be told of them. Who is whole now counts as whole when that is recorded: an operator takes the drive
    /// away that was replaced, and a crash before would bring back an array without it whose replacement was never whole.
    pub fn told(&self) -> Arc<Health> {
        let (now, recorded) = (self.health(), self.recorded.borrow().clone());
        if now.more_whole_than(&recorded) {
            let version = if now.broken { now.version } else { recorded.version };
            return Arc::new(Health { version, broken: now.broken, ..Health::clone(&recorded) });
        }
        now
    }

    /// Records the array dirty, and opens every core's gate for changes.
    pub async fn activate(self: &Rc<Self>) -> Result<(), VolumeError> {
        let _turn = self.transition.acquire(1).await;
        if self.stopped.get() {
            return Err(VolumeError::Stopped);
        }
        self.activate_in_turn().await
    }

    async fn activate_in_turn(self: &Rc<Self>) -> Result<(), VolumeError> {
        if self.health().broken {
            return Err(VolumeError::Broken);
        }
        if !self.dirty.get() {
            self.prepare_log().await?;
            self.commit(Change::Activate, true).await?;
            self.dirty.set(true);
            self.core.spawn(self.clone().go_clean_when_idle());
        }
        self.on_every_core(|shard| async move { shard.gate.set_dirty(shard.core.now()) }).await;
        Ok(())
    }

    /// Fails `slots` and returns when that is durable and known on every core: what skipped them may be acknowledged.
    pub async fn fail(&self, slots: MemberSet) -> Result<(), VolumeError> {
        let _turn = self.transition.acquire(1).await;
        if self.has_ended() {
            return Err(VolumeError::Stopped);
        }
        self.fail_in_turn(slots).await
    }

    /// Fails members that a read found gone, if they still sit where they did, each since the version of the health that comes with it.
    /// Reads wait for nobody who takes a seat.
    pub async fn fail_found(&self, found: Vec<(MemberIx, u64)>) -> Result<(), VolumeError> {
        let _turn = self.transition.acquire(1).await;
        if self.has_ended() {
            return Err(VolumeError::Stopped);
        }
        let health = self.health();
        let still = |(seat, since): &&(MemberIx, u64)| health.seats[seat.index()].since == *since;
        self.fail_in_turn(found.iter().filter(still).map(|(seat, _)| *seat).collect()).await
    }

    /// Makes every write that any core has acknowledged durable. Requests that come while a flush runs share the next one.
    pub async fn flush(self: &Rc<Self>) -> Result<(), VolumeError> {
        let (sender, receiver) = oneshot();
        let start = {
            let mut flushes = self.flushes.borrow_mut();
            flushes.waiting.push(sender);
            !std::mem::replace(&mut flushes.running, true)
        };
        if start {
            self.core.spawn(self.clone().run_flushes());
        }
        receiver.await.unwrap_or(Err(VolumeError::Stopped))
    }

    async fn run_flushes(self: Rc<Self>) {
        loop {
            // One flush at a time, and no change of state beside it: a member's failure to flush is recorded before anybody
            // is told that a later flush went well, and before the array is recorded clean.
            let turn = self.transition.acquire(1).await;
            let waiting = {
                let mut flushes = self.flushes.borrow_mut();
                flushes.running = !flushes.waiting.is_empty();
                std::mem::take(&mut flushes.waiting)
            };
            if waiting.is_empty() {
                return;
            }
            let result = self.flush_in_turn().await;
            drop(turn);
            waiting.into_iter().for_each(|sender| answer(sender, result));
        }
    }

    async fn flush_in_turn(self: &Rc<Self>) -> Result<(), VolumeError> {
        if self.has_ended() {
            return Err(VolumeError::Stopped);
        }
        if self.health().broken {
            return Err(VolumeError::Broken);
        }
        if self.absentee_may_return.get() {
            // What is flushed now must not be undone by a member that was away: the record counts it out.
            self.activate_in_turn().await?;
        }
        let shard = self.shard();
        shard.counters.flushes.add(1);
        let failed = shard.flush_members().await;
        if failed.is_empty() {
            return Ok(());
        }
        // What a member lost in a failed flush is unknown, so it is out. Where no redundancy makes up for it, nothing
        // acknowledged since the last good flush is certain, and the array stays broken (invariant 6).
        if self.fixed.geometry.redundancy() == 0 {
            self.enter(Event::Broke).await
        } else {
            self.fail_in_turn(failed).await
        }
    }

    /// Runs with nothing else in flight on any core; the array is recorded dirty first.
    pub async fn exclusively<T>(self: &Rc<Self>, job: impl AsyncFnOnce(Pass) -> T) -> Result<T, VolumeError> {
        let _owner = self.exclusive.acquire(1).await;
        if self.stopped.get() {
            return Err(VolumeError::Stopped);
        }
        self.on_every_core(|shard| async move { shard.gate.close().await }).await;
        // One after the other: while any gate is open, what comes through it may put pages into any core's cache, or use them.
        self.on_every_core(|shard| async move {
            shard.cache.clear();
            shard.ahead.suspend();
        })
        .await;
        // The pass keeps the array from being recorded clean once it is recorded dirty.
        let shard = self.shard();
        let pass = shard.gate.pass(self.core.now());
        let result = match self.activate().await {
            Ok(()) => Ok(job(pass).await),
            Err(error) => Err(error),
        };
        self.on_every_core(|shard| async move {
            shard.cache.clear();
            shard.ahead.resume();
        })
        .await;
        self.on_every_core(|shard| async move { shard.gate.open() }).await;
        result
    }

    /// Drains, flushes, records clean.
    pub async fn stop(self: &Rc<Self>) -> Result<(), VolumeError> {
        self.sync.halt().await;
        let _owner = self.exclusive.acquire(1).await;
        if self.stopped.replace(true) {
            return Ok(());
        }
        // Before gates are closed: what is read from redundancy has to get through.
        let given_up = 2 * self.fixed.tuning.read_deadline;
        self.on_every_core(move |shard| async move { shard.ahead.end(&shard.core, given_up).await }).await;
        self.on_every_core(|shard| async move { shard.gate.close().await }).await;
        let _turn = self.transition.acquire(1).await;
        self.clear_at_stop().await;
        let result = self.deactivate_for_good().await;
        // The home goes first: whoever finds it finds its shard too.
        drop(self.core.take_local::<Self>(home_key(self.fixed.key)));
        self.on_every_core(|shard| async move {
            // Whoever waits at the gate finds the array stopped.
            shard.stopped.set(true);
            shard.gate.open();
            shard.stripes.end();
            drop(shard.core.take_local::<Shard>(shard.fixed.key));
        })
        .await;
        self.changed.notify_all();
        result
    }

    /// Runs while the array is dirty.
    async fn go_clean_when_idle(self: Rc<Self>) {
        let delay = self.fixed.tuning.clean_delay;
        while self.dirty.get() && !self.stopped.get() && !self.health().broken {
            self.core.sleep(delay).await;
            let _turn = self.transition.acquire(1).await;
            if self.dirty.get() && !self.stopped.get() && self.quiet().await {
                // An array that cannot be recorded clean stays dirty: that is what the error left behind.
                let _ = self.deactivate_in_turn().await;
            }
        }
    }

    /// Whether no core has had a change in flight for a while. Those that say yes let none through from here on; should
    /// another say no, their next change finds its way through [`Self::activate`].
    async fn quiet(&self) -> bool {
        for index in each_core(&self.core) {
            let (key, idle) = (self.fixed.key, self.fixed.tuning.clean_delay);
            let quiet = self
                .core
                .call(index, move |core| async move {
                    core.local::<Shard>(key).is_none_or(|shard| shard.gate.try_set_clean(core.now(), idle))
                })
                .await;
            if !quiet {
                return false;
            }
        }
        true
    }

    /// Leaves an array as it should be found: everything on the members, recorded clean if it was dirty.
    async fn deactivate_for_good(&self) -> Result<(), VolumeError> {
        if self.dirty.get() {
            return self.deactivate_in_turn().await;
        }
        if self.fixed.read_only {
            return Ok(());
        }
        if self.health().broken {
            return Err(VolumeError::Broken);
        }
        let failed = self.shard().flush_members().await;
        if failed.is_empty() { Ok(()) } else { self.fail_in_turn(failed).await }
    }

    /// Dirty to clean. Nothing is in flight.
    async fn deactivate_in_turn(&self) -> Result<(), VolumeError> {
        if self.health().broken {
            return Err(VolumeError::Broken);
        }
        // What is acknowledged must be durable before anything says that copies and parity agree (invariant 3).
        let failed = self.shard().flush_members().await;
        if !failed.is_empty() {
            self.fail_in_turn(failed).await?;
        }
        self.commit(Change::Deactivate, false).await?;
        self.dirty.set(false);
        Ok(())
    }

    pub(super) async fn fail_in_turn(&self, slots: MemberSet) -> Result<(), VolumeError> {
        let health = self.health();
        if health.broken {
            return Err(VolumeError::Broken);
        }
        let new = slots.without(&health.failed);
        if new.is_empty() {
            return Ok(());
        }
        self.enter(Event::Failed(new)).await?;
        if self.fixed.read_only {
            return self.settle().await;
        }
        self.commit(Change::Members, self.dirty.get()).await
    }

    /// Makes the present state durable. Members on which that fails are failed, and the smaller array tries again.
    pub(super) async fn commit(&self, change: Change, dirty: bool) -> Result<(), VolumeError> {
        loop {
            let health = self.health();
            let record = self.record(&health, change, dirty);
            let Err(slots) = self.metadata.commit(&record).await else {
                self.absentee_may_return.set(false);
                return self.settle().await;
            };
            let new = slots.without(&health.failed);
            // Each turn fails at least one more member, so turns are bounded by the number of members.
            self.enter(if new.is_empty() { Event::Broke } else { Event::Failed(new) }).await?;
        }
    }

    fn record(&self, health: &Health, change: Change, dirty: bool) -> Record {
        let seats = health.members.iter().zip(&health.seats).map(|(&state, seat)| SeatRecord {
            key: seat.key,
            state,
            by_regions: seat.stale.is_some(),
            bad: seat.bad.clone(),
        });
        let synced = health.trust.complete(self.fixed.geometry.sync_sectors());
        Record {
            change,
            dirty,
            synced_below: if synced { Sector::MAX } else { health.trust.below },
            failed: health.failed,
            seats: seats.collect(),
        }
    }

    /// Applies an event and tells every core, so that no read is served from a member that missed a write.
    pub(super) async fn enter(&self, event: Event) -> Result<(), VolumeError> {
        let health = Arc::new(self.health().apply(&self.fixed.geometry, event));
        *self.health.borrow_mut() = health.clone();
        let broken = health.broken;
        self.on_every_core(move |shard| {
            let health = health.clone();
            async move { shard.set_health(&health) }
        })
        .await;
        self.changed.notify_all();
        self.sync.wake();
        self.look_for_idle_regions();
        if broken { Err(VolumeError::Broken) } else { Ok(()) }
    }

    /// Tells every core that the present state is durable.
    async fn settle(&self) -> Result<(), VolumeError> {
        let health = self.health();
        let epoch = health.epoch;
        *self.recorded.borrow_mut() = health;
        self.on_every_core(move |shard| async move { shard.set_recorded(epoch) }).await;
        self.changed.notify_all();
        Ok(())
    }

    /// The stop is done: the members are no longer ours to write.
    pub(super) fn has_ended(&self) -> bool {
        self.core.local::<Self>(home_key(self.fixed.key)).is_none()
    }

    /// The home core's shard.
    pub fn shard(&self) -> Rc<Shard> {
        self.core.local::<Shard>(self.fixed.key).expect("the home core's shard lives as long as its home")
    }

    pub(crate) async fn on_every_core<F, Fut>(&self, f: F)
    where
        F: Fn(Rc<Shard>) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        for index in each_core(&self.core) {
            let (key, f) = (self.fixed.key, f.clone());
            self.core
                .call(index, move |core| async move {
                    if let Some(shard) = core.local::<Shard>(key) {
                        f(shard).await;
                    }
                })
                .await;
        }
    }
}
