//! The array's state on one core: what a request passes, and how it reaches the home.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use wattle_rt::sync::OneshotSender;
use wattle_rt::{Core, Notify};

use super::counters::{Counters, Requests};
use super::follow::Follow;
use super::gate::{Gate, GatePermit};
use super::home::Home;
use crate::member::Members;
use crate::model::error::VolumeError;
use crate::model::fixed::Fixed;
use crate::model::health::{Health, Occupant};
use crate::model::invariant::invariant;
use crate::model::units::{MemberIx, MemberSet};
use crate::state::intent::IntentShard;
use crate::state::metadata::FailCause;
use crate::state::ppl::LogShard;
use crate::state::sums::NoteShard;

/// The state of an array on one core.
pub(crate) struct StateShard {
    pub core: Core,
    pub fixed: Arc<Fixed>,
    pub members: Rc<Members>,
    pub gate: Rc<Gate>,
    pub stopped: Cell<bool>,
    pub counters: Counters,
    /// Clients' requests that were answered.
    pub requests: Requests,
    /// The write-intent bitmap, if there is one to keep.
    intent: RefCell<Option<Rc<IntentShard>>>,
    /// What is noted for recorded scrubs, if any can be taken.
    pub notes: Option<NoteShard>,
    /// The partial parity log.
    pub log: Option<LogShard>,
    /// The newest epoch of health that is durable in the superblocks.
    recorded_epoch: Cell<u64>,
    recorded: Notify,
    /// What lies above on this core and follows changes of the state.
    followers: RefCell<Vec<Weak<dyn Follow>>>,
}

impl StateShard {
    /// The part of an array on a core, which it has from now on.
    pub fn start(core: &Core, fixed: &Arc<Fixed>, health: &Health) -> Rc<Self> {
        let shard = Rc::new(Self::new(core, fixed.clone(), health));
        core.put_local(fixed.state_key(), shard.clone());
        shard
    }

    fn new(core: &Core, fixed: Arc<Fixed>, health: &Health) -> Self {
        Self {
            core: core.clone(),
            members: Rc::new(Members::new(core, fixed.clone(), health)),
            gate: Rc::new(Gate::new(core.now())),
            stopped: Cell::new(false),
            counters: Counters::default(),
            requests: Requests::new(fixed.limits.late_after),
            notes: fixed.sums.as_ref().filter(|_| !fixed.read_only).map(NoteShard::new),
            intent: RefCell::new(
                (fixed.intent.as_ref().filter(|_| !fixed.read_only))
                    .map(|spec| Rc::new(IntentShard::new(spec, 0))),
            ),
            log: fixed.log.as_ref().map(|spec| LogShard::new(spec, &fixed.geometry)),
            recorded_epoch: Cell::new(0),
            recorded: Notify::new(),
            followers: RefCell::default(),
            fixed,
        }
    }

    /// The write-intent bitmap, if there is one to keep.
    pub fn intent(&self) -> Option<Rc<IntentShard>> {
        self.intent.borrow().clone()
    }

    /// Keeps another write-intent bitmap, or none. Nothing is in flight.
    pub fn set_intent(&self, intent: Option<IntentShard>) {
        *self.intent.borrow_mut() = intent.map(Rc::new);
    }

    /// Has a part that lies above follow the state from now on, as long as it lives.
    pub fn add_follower(&self, follower: Weak<dyn Follow>) {
        self.followers.borrow_mut().push(follower);
    }

    /// What lies above on this core, in the order in which it was added.
    pub fn followers(&self) -> Vec<Rc<dyn Follow>> {
        self.followers.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    pub fn set_health(&self, health: &Health) {
        if self.members.set_health(health) {
            self.followers().iter().for_each(|follower| follower.members_changed());
        }
        // What waits for a record that a broken array will never write must hear of it.
        self.recorded.notify_all();
    }

    /// The array is stopped: what is kept of it from now on keeps none of its drives.
    pub fn release(&self) {
        self.log.iter().for_each(LogShard::begin_anew);
        self.members.release();
    }

    pub fn set_recorded(&self, epoch: u64) {
        self.recorded_epoch.set(epoch.max(self.recorded_epoch.get()));
        self.recorded.notify_all();
    }

    /// Lets a change in, once the array is recorded dirty.
    pub async fn enter_write(&self) -> Result<GatePermit, VolumeError> {
        if self.fixed.read_only {
            return Err(VolumeError::ReadOnly);
        }
        loop {
            self.gate.opened().await;
            self.check_running()?;
            if self.members.is_broken() {
                return Err(VolumeError::Broken);
            }
            if let Some(permit) = self.gate.enter_write(self.core.turn_time()) {
                return Ok(permit);
            }
            self.home(|home| async move { home.activate().await }).await?;
        }
    }

    /// Lets a reconstruction in.
    pub async fn enter_read(&self) -> Result<GatePermit, VolumeError> {
        loop {
            self.gate.opened().await;
            self.check_running()?;
            if let Some(permit) = self.gate.enter_read(self.core.turn_time()) {
                return Ok(permit);
            }
        }
    }

    pub fn check_running(&self) -> Result<(), VolumeError> {
        if self.stopped.get() { Err(VolumeError::Stopped) } else { Ok(()) }
    }

    /// The member that this core knows in a seat.
    pub fn occupant(&self, seat: MemberIx) -> Occupant {
        Occupant { seat, since: self.members.since(seat) }
    }

    /// Fails members at the array's home; returns when what skipped them may be acknowledged.
    pub async fn fail(&self, seats: MemberSet, cause: FailCause) -> Result<(), VolumeError> {
        let members: Vec<Occupant> = seats.iter().map(|seat| self.occupant(seat)).collect();
        let failed = members.clone();
        self.home(move |home| async move { home.fail(failed, cause).await }).await?;
        let is_read = |member: &Occupant| {
            self.occupant(member.seat) == *member && self.members.health().state(member.seat).writable()
        };
        invariant!(2, !members.iter().any(is_read));
        Ok(())
    }

    /// Like [`Self::enter_write`], if nothing has to be waited for. It is not async: nothing can
    /// happen meanwhile.
    pub fn try_enter_write(self: &Rc<Self>) -> Option<GatePermit> {
        if self.fixed.read_only || self.stopped.get() || self.members.is_broken() {
            return None;
        }
        self.gate.enter_write(self.core.turn_time())
    }

    /// Waits until the superblocks say what a plan made in `epoch` took for granted (invariant 2).
    pub async fn recorded(&self, epoch: u64) -> Result<(), VolumeError> {
        while self.recorded_epoch.get() < epoch {
            if self.members.is_broken() {
                return Err(VolumeError::Broken);
            }
            self.recorded.wait().await;
        }
        Ok(())
    }

    /// Makes every acknowledged write of any core durable on every member in use.
    pub async fn flush(&self) -> Result<(), VolumeError> {
        self.check_running()?;
        if self.fixed.read_only {
            return Ok(());
        }
        let began = self.core.turn_time();
        let result = self.home(|home| async move { home.flush().await }).await;
        self.requests.flushed(self.core.turn_time() - began);
        result
    }

    /// Runs `f` at the array's home. A change of state that was begun is finished, whatever becomes
    /// of the client.
    pub async fn home<F, Fut>(&self, f: F) -> Result<(), VolumeError>
    where
        F: FnOnce(Rc<Home>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), VolumeError>> + 'static,
    {
        let key = self.fixed.home_key();
        let change = self.core.call(self.fixed.home, move |core| async move {
            match core.local::<Home>(key) {
                Some(home) => f(home).await,
                None => Err(VolumeError::Stopped),
            }
        });
        self.core.spawn(change).await
    }
}

/// Answers a request. The client may have gone; the work is done all the same.
pub(crate) fn answer<T>(sender: OneshotSender<T>, value: T) {
    let _ = sender.send(value);
}
