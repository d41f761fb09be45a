//! The array's home: the one place where its state changes, one change at a time, durable before
//! anything relies on it.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use wattle_rt::sync::OneshotSender;
use wattle_rt::{Core, Instant, Notify, Semaphore, oneshot};

use super::shard::{StateShard, answer};
use super::{GatePermit, JobSignals};
use crate::cores::{self, on_every_core};
use crate::model::error::VolumeError;
use crate::model::fixed::Fixed;
use crate::model::health::{Event, Health, Occupant};
use crate::model::invariant::invariant;
use crate::model::units::{MemberSet, Sector};
use crate::state::intent::IntentHome;
use crate::state::metadata::{ArrayRecord, FailCause, Metadata, RecordCause, SeatRecord};
use crate::state::sums::SumHome;

/// The home of one array, on its home core.
pub(crate) struct Home {
    /// Resync, recovery, check and repair.
    jobs: Rc<dyn JobSignals>,
    pub(super) core: Core,
    pub(super) fixed: Arc<Fixed>,
    pub(super) metadata: Box<dyn Metadata>,
    health: RefCell<Arc<Health>>,
    /// The health as it was last recorded.
    recorded: RefCell<Arc<Health>>,
    dirty: Cell<bool>,
    /// The last record that is durable says dirty.
    recorded_dirty: Cell<bool>,
    pub(super) stopped: Cell<bool>,
    /// One change of state at a time.
    pub(super) transition: Semaphore,
    /// One owner of the whole array at a time.
    exclusive: Semaphore,
    flushes: RefCell<Flushes>,
    /// A member that is absent may hold, unflushed, what was acknowledged before a crash: nothing
    /// counts it out yet.
    absentee_may_return: Cell<bool>,
    /// The superblocks are of this run of the array: members that are absent are counted out.
    has_recorded: Cell<bool>,
    /// Members given up by an order to fail them: whatever fails them, it is that order.
    pub(super) ordered: RefCell<Vec<Occupant>>,
    /// Signalled when anything about the members changed.
    pub(super) changed: Notify,
    /// The write-intent bitmap, if there is one to keep.
    pub(super) intent: RefCell<Option<Rc<IntentHome>>>,
    /// How often another bitmap, or none, took its place.
    pub(super) intents: Cell<u64>,
    /// What recorded scrubs remember.
    pub(super) sums: Option<SumHome>,
}

/// When the failure of members that could not flush is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// Before the flush is answered.
    AtOnce,
    /// With the record that the flush is for.
    WithTheNext,
}

/// What became of a flush of every member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flushed {
    Whole,
    /// Members failed; redundancy makes up for them.
    WithLoss,
}

/// Flush requests that arrive while one runs share the next.
#[derive(Default)]
struct Flushes {
    running: bool,
    waiting: Vec<OneshotSender<Result<(), VolumeError>>>,
}

impl Home {
    /// The home of an array on a core, which it has from now on.
    pub fn start(
        core: &Core,
        fixed: &Arc<Fixed>,
        health: Arc<Health>,
        metadata: Box<dyn Metadata>,
        jobs: Rc<dyn JobSignals>,
    ) -> Rc<Self> {
        let uncertain = fixed.unclean || !health.trust.complete(fixed.geometry.sync_sectors());
        let absentee_may_return =
            !fixed.read_only && fixed.geometry.redundancy() > 0 && uncertain && !health.optimal;
        let store = metadata.sum_store().filter(|_| !fixed.read_only);
        let sums = fixed.sums.as_ref().zip(store).map(|(spec, store)| SumHome::new(spec, store));
        let home = Rc::new(Self {
            jobs,
            sums,
            core: core.clone(),
            fixed: fixed.clone(),
            metadata,
            recorded: RefCell::new(health.clone()),
            health: RefCell::new(health),
            dirty: Cell::new(false),
            recorded_dirty: Cell::new(false),
            stopped: Cell::new(false),
            transition: Semaphore::new(1),
            exclusive: Semaphore::new(1),
            flushes: RefCell::default(),
            absentee_may_return: Cell::new(absentee_may_return),
            has_recorded: Cell::new(false),
            ordered: RefCell::default(),
            changed: Notify::new(),
            intent: RefCell::new(
                (fixed.intent.as_ref().filter(|_| !fixed.read_only))
                    .map(|spec| Rc::new(IntentHome::new(spec, 0, core.cores()))),
            ),
            intents: Cell::new(0),
        });
        core.put_local(fixed.home_key(), home.clone());
        home
    }

    pub fn is_dirty(&self) -> bool {
        self.dirty.get()
    }

    /// Since when the oldest write of the metadata waits for each seat's member.
    pub fn metadata_waits(&self) -> Vec<Option<Instant>> {
        self.health().seats.iter().map(|seat| self.metadata.waits_since(seat.key?)).collect()
    }

    pub fn health(&self) -> Arc<Health> {
        self.health.borrow().clone()
    }

    /// The members as reported. A member becomes in sync only once the superblocks record it: an
    /// operator takes the drive away that was replaced, and a crash before the record would bring
    /// back an array without that drive and with a replacement that was never whole.
    pub fn reported(&self) -> Arc<Health> {
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
            self.commit(RecordCause::Activate, true).await?;
            self.dirty.set(true);
            let (core, delay) = (self.core.clone(), self.fixed.limits.clean_delay);
            self.core.spawn(Self::go_clean_when_idle(Rc::downgrade(self), core, delay));
        }
        invariant!(1, self.dirty.get() && self.recorded_dirty.get());
        self.on_every_core(|shard| async move { shard.gate.set_dirty(shard.core.now()) }).await;
        Ok(())
    }

    /// Before a repair writes: a member that is absent must not be in sync with what the repair
    /// replaces. An array that is clean stays recorded as that: what the repair has not come to
    /// disagrees as before, and a resync after a crash would decide there instead of the operator.
    pub async fn record_repair(&self) -> Result<(), VolumeError> {
        let _turn = self.transition.acquire(1).await;
        if self.has_ended() {
            return Err(VolumeError::Stopped);
        }
        if self.health().broken {
            return Err(VolumeError::Broken);
        }
        match self.has_recorded.get() {
            true => Ok(()),
            false => self.commit(RecordCause::Members, self.dirty.get()).await,
        }
    }

    /// Fails members, those that are still in their seats, and returns when that is durable and
    /// known on every core: what skipped them may be acknowledged.
    pub async fn fail(&self, members: Vec<Occupant>, cause: FailCause) -> Result<(), VolumeError> {
        let _turn = self.transition.acquire(1).await;
        if self.has_ended() {
            return Err(VolumeError::Stopped);
        }
        let health = self.health();
        let still = members.iter().filter(|member| health.holds(**member));
        self.fail_in_turn(still.map(|member| member.seat).collect(), cause).await
    }

    /// Makes every write that any core has acknowledged durable. Requests that come while a flush
    /// runs share the next one.
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
            // One flush at a time, and no change of state beside it: a member's failure to flush is
            // recorded before a later flush is answered, and before the array is
            // recorded clean.
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
            // A member that was away must not undo what is flushed now: the record counts it out.
            self.activate_in_turn().await?;
        }
        self.shard().counters.flushes.add(1);
        self.flush_then_fail(Recorded::AtOnce).await.map(drop)
    }

    /// Flushes every member in use and fails those that could not: what such a member lost is
    /// unknown. Where no redundancy makes up for it, nothing acknowledged since the last good flush
    /// is certain, and the array stays broken (invariant 6). In the array's turn.
    pub(crate) async fn flush_then_fail(&self, recorded: Recorded) -> Result<Flushed, VolumeError> {
        let failed = self.shard().members.flush_members().await;
        if failed.is_empty() {
            return Ok(Flushed::Whole);
        }
        match recorded {
            _ if self.fixed.geometry.redundancy() == 0 => self.enter(Event::Broke).await?,
            Recorded::AtOnce => self.fail_in_turn(failed, FailCause::Flush).await?,
            Recorded::WithTheNext => self.enter_failed(failed, FailCause::Flush).await?,
        }
        invariant!(6, failed.iter().all(|seat| !self.health().state(seat).writable()));
        Ok(Flushed::WithLoss)
    }

    /// Fails members on every core; the cause is reported before any core sees it. The caller
    /// records it.
    pub(crate) async fn enter_failed(&self, seats: MemberSet, cause: FailCause) -> Result<(), VolumeError> {
        let health = self.health();
        let members = seats.iter().map(|seat| (seat, health.seats[seat.index()].key));
        let (ordered, others): (Vec<_>, Vec<_>) = members.partition(|(seat, _)| self.is_ordered(*seat));
        for (members, cause) in [(ordered, FailCause::Order), (others, cause)] {
            if !members.is_empty() {
                self.metadata.failed(&members, cause);
            }
        }
        self.enter(Event::Failed(seats)).await
    }

    /// Runs with nothing else in flight on any core; the array is recorded dirty first.
    pub async fn exclusively<T>(
        self: &Rc<Self>,
        job: impl AsyncFnOnce(GatePermit) -> T,
    ) -> Result<T, VolumeError> {
        let _owner = self.exclusive.acquire(1).await;
        if self.stopped.get() {
            return Err(VolumeError::Stopped);
        }
        self.on_every_core(|shard| async move { shard.gate.close().await }).await;
        // The gates close first: while any gate is open, what comes through it may put pages into
        // any core's cache, or use them.
        self.on_every_core(|shard| async move {
            shard.followers().iter().for_each(|follower| follower.begin_exclusive());
        })
        .await;
        // The permit keeps the array from being recorded clean once it is recorded dirty.
        let shard = self.shard();
        let permit = shard.gate.permit(self.core.now());
        let result = match self.activate().await {
            Ok(()) => Ok(job(permit).await),
            Err(error) => Err(error),
        };
        self.on_every_core(|shard| async move {
            shard.followers().iter().for_each(|follower| follower.end_exclusive());
        })
        .await;
        self.on_every_core(|shard| async move { shard.gate.open() }).await;
        result
    }

    /// Drains, flushes, records clean.
    pub async fn stop(self: &Rc<Self>) -> Result<(), VolumeError> {
        self.jobs.halt().await;
        let _owner = self.exclusive.acquire(1).await;
        if self.stopped.replace(true) {
            return Ok(());
        }
        // Before gates are closed: what is read from redundancy has to get through.
        let given_up = 2 * self.fixed.limits.read_deadline;
        self.on_every_core(move |shard| async move {
            for follower in shard.followers() {
                follower.halt(given_up).await;
            }
        })
        .await;
        self.on_every_core(|shard| async move { shard.gate.close().await }).await;
        let _turn = self.transition.acquire(1).await;
        self.clear_at_stop().await;
        let result = self.deactivate_for_good().await;
        // The home goes first: what finds the home finds its shard too.
        drop(self.core.take_local::<Self>(self.fixed.home_key()));
        self.on_every_core(|shard| async move {
            // What waits at the gate finds the array stopped.
            shard.stopped.set(true);
            shard.gate.open();
            shard.followers().iter().for_each(|follower| follower.leave(&shard.core, &shard.fixed));
            shard.release();
            drop(shard.core.take_local::<StateShard>(shard.fixed.state_key()));
        })
        .await;
        self.changed.notify_all();
        result
    }

    /// Runs while the array is dirty. While it sleeps it keeps nothing of an array that is stopped:
    /// with the home the drives would stay open.
    async fn go_clean_when_idle(home: Weak<Self>, core: Core, delay: Duration) {
        let is_wanted = |home: &Rc<Self>| home.dirty.get() && !home.stopped.get() && !home.health().broken;
        while home.upgrade().is_some_and(|home| is_wanted(&home)) {
            core.sleep(delay).await;
            let Some(home) = home.upgrade() else { return };
            let _turn = home.transition.acquire(1).await;
            if home.dirty.get() && !home.stopped.get() && home.quiet().await {
                // An array that cannot be recorded clean stays dirty: that is what the error left
                // behind.
                let _ = home.deactivate_in_turn().await;
            }
        }
    }

    /// Whether no core has had a change in flight for a while. Cores that say yes let no request
    /// through from here on; should another say no, their next change finds its way through
    /// [`Self::activate`].
    async fn quiet(&self) -> bool {
        let (key, idle) = (self.fixed.state_key(), self.fixed.limits.clean_delay);
        let quiet = cores::each_until(&self.core, move |core| async move {
            let shard = core.local::<StateShard>(key);
            let quiet = shard.is_none_or(|shard| shard.gate.try_set_clean(core.now(), idle));
            if quiet { Ok(()) } else { Err(()) }
        });
        quiet.await.is_ok()
    }

    /// Leaves an array as it should be found: everything on the members, recorded clean if it was
    /// dirty.
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
        self.flush_then_fail(Recorded::AtOnce).await.map(drop)
    }

    /// Dirty to clean. Nothing is in flight.
    async fn deactivate_in_turn(&self) -> Result<(), VolumeError> {
        if self.health().broken {
            return Err(VolumeError::Broken);
        }
        // What is acknowledged must be durable before anything says that copies and parity agree
        // (invariant 3).
        self.flush_then_fail(Recorded::AtOnce).await?;
        invariant!(3, self.shard().gate.holds_writes_back());
        self.commit(RecordCause::Deactivate, false).await?;
        self.dirty.set(false);
        Ok(())
    }

    pub(super) async fn fail_in_turn(&self, slots: MemberSet, cause: FailCause) -> Result<(), VolumeError> {
        let health = self.health();
        if health.broken {
            return Err(VolumeError::Broken);
        }
        let new = slots.without(&health.failed);
        if new.is_empty() {
            return Ok(());
        }
        self.enter_failed(new, cause).await?;
        if self.fixed.read_only {
            return self.settle().await;
        }
        self.commit(RecordCause::Members, self.dirty.get()).await
    }

    /// Makes the present state durable. Members on which that fails are failed, and the smaller
    /// array tries again.
    pub(super) async fn commit(&self, change: RecordCause, dirty: bool) -> Result<(), VolumeError> {
        loop {
            let health = self.health();
            let record = self.record(&health, change, dirty);
            let Err(slots) = self.metadata.commit(&record).await else {
                self.absentee_may_return.set(false);
                self.has_recorded.set(true);
                self.recorded_dirty.set(dirty);
                return self.settle().await;
            };
            let new = slots.without(&health.failed);
            // Each turn fails at least one more member, so turns are bounded by the number of
            // members.
            match new.is_empty() {
                true => self.enter(Event::Broke).await?,
                false => self.enter_failed(new, FailCause::Superblock).await?,
            }
        }
    }

    fn record(&self, health: &Health, change: RecordCause, dirty: bool) -> ArrayRecord {
        let seats = health.members.iter().zip(&health.seats).map(|(&state, seat)| SeatRecord {
            key: seat.key,
            state,
            by_regions: seat.stale.is_some(),
            bad: seat.bad.clone(),
        });
        let synced = health.trust.complete(self.fixed.geometry.sync_sectors());
        ArrayRecord {
            change,
            dirty,
            synced_below: if synced { Sector::MAX } else { health.trust.below },
            failed: health.failed,
            seats: seats.collect(),
        }
    }

    /// Applies an event and tells every core, so that no read is served from a member that missed a
    /// write.
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
        self.jobs.wake();
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
    pub(crate) fn has_ended(&self) -> bool {
        self.core.local::<Self>(self.fixed.home_key()).is_none()
    }

    /// The home core's shard.
    pub fn shard(&self) -> Rc<StateShard> {
        self.core
            .local::<StateShard>(self.fixed.state_key())
            .expect("the home core's shard lives as long as its home")
    }

    pub(crate) async fn on_every_core<F, Fut>(&self, f: F)
    where
        F: Fn(Rc<StateShard>) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        on_every_core(&self.core, self.fixed.state_key(), f).await;
    }
}
