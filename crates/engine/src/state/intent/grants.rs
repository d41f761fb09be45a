//! The home's side of write intent: grants, sweeps, and what is cleared when
//! ([`crate::state::intent`]).

use std::rc::Rc;
use std::sync::Arc;

use wattle_rt::{CoreIx, oneshot};

use crate::cores;
use crate::model::error::VolumeError;
use crate::model::health::{Event, Seat};
use crate::planted::{self, Bug};
use crate::state::Home;
use crate::state::home::{Flushed, Recorded};
use crate::state::intent::{Asking, IntentHome, IntentShard, IntentSpec};
use crate::state::metadata::{FailCause, RecordCause};
use crate::state::{StateShard, answer};

impl Home {
    /// Lets `core` write to `regions`: returns when their bits are durable on every member in use.
    /// Requests that come while the bitmap is being written share the next write.
    ///
    /// # Errors
    /// Too few members are left; or the regions are those of a bitmap that the array had before,
    /// and then the write that asked has gone.
    pub async fn mark(
        self: &Rc<Self>,
        core: CoreIx,
        generation: u64,
        regions: Vec<u64>,
    ) -> Result<(), VolumeError> {
        let intent = self.intent().filter(|intent| intent.generation == generation);
        let intent = intent.ok_or(VolumeError::Stopped)?;
        let (sender, receiver) = oneshot();
        if intent.wait(Asking { core, regions, sender }) {
            self.core.spawn(self.clone().serve_marks(intent));
        }
        receiver.await.unwrap_or(Err(VolumeError::Stopped))
    }

    async fn serve_marks(self: Rc<Self>, intent: Rc<IntentHome>) {
        loop {
            let turn = self.transition.acquire(1).await;
            let waiting = intent.take_waiting();
            if waiting.is_empty() {
                return;
            }
            let result = self.mark_in_turn(&intent, &waiting).await;
            drop(turn);
            waiting.into_iter().for_each(|asking| answer(asking.sender, result));
        }
    }

    async fn mark_in_turn(
        self: &Rc<Self>,
        intent: &IntentHome,
        waiting: &[Asking],
    ) -> Result<(), VolumeError> {
        if self.has_ended() || !self.keeps(intent) {
            return Err(VolumeError::Stopped);
        }
        if self.health().broken {
            return Err(VolumeError::Broken);
        }
        let missing = intent.missing(waiting);
        // Each turn that fails costs at least one member, so turns are bounded by the number of
        // members.
        while !missing.is_empty()
            && let Err(seats) = self.metadata.mark(&missing).await
        {
            let new = seats.without(&self.health().failed);
            if new.is_empty() {
                self.enter(Event::Broke).await?;
            }
            self.fail_in_turn(new, FailCause::Bitmap).await?;
        }
        intent.set_marked(&missing);
        waiting.iter().for_each(|asking| intent.grant(asking.core, &asking.regions));
        self.look_for_idle_regions();
        Ok(())
    }

    /// Sweeps until there is nothing left to clear: after bits were set, and when the members'
    /// state changed.
    pub(in crate::state) fn look_for_idle_regions(&self) {
        let Some(intent) = self.intent() else { return };
        intent.used.set(true);
        let home = self.core.local::<Self>(self.fixed.home_key());
        if let Some(home) = home.filter(|_| !intent.sweeping.replace(true)) {
            self.core.spawn(home.sweep(intent));
        }
    }

    async fn sweep(self: Rc<Self>, intent: Rc<IntentHome>) {
        loop {
            self.core.sleep(intent.sweep).await;
            let _turn = self.transition.acquire(1).await;
            if self.stopped.get() || self.has_ended() || !self.keeps(&intent) {
                return;
            }
            self.take_back(&intent, IntentShard::sweep).await;
            // A member that fails here is recorded as failed, and then there is nothing to clear.
            let _ = self.clear_in_turn(&intent).await;
            if !intent.any_held() {
                intent.sweeping.set(false);
                return;
            }
        }
    }

    /// Asks every core for regions that it does not need. In turn: no grant is made meanwhile.
    async fn take_back(&self, intent: &IntentHome, release: fn(&IntentShard) -> Vec<u64>) {
        let key = self.fixed.state_key();
        let released = cores::each(&self.core, move |core| async move {
            core.local::<StateShard>(key)?.intent().map(|intent| release(&intent))
        });
        for (index, regions) in released.await.into_iter().enumerate() {
            intent.released(CoreIx(index), &regions.unwrap_or_default());
        }
    }

    /// Clears what can be cleared. What was written there must be durable on every member first.
    async fn clear_in_turn(&self, intent: &IntentHome) -> Result<(), VolumeError> {
        let clearable = intent.clearable(&self.health());
        if clearable.is_empty() {
            return Ok(());
        }
        if self.flush_then_fail(Recorded::AtOnce).await? == Flushed::WithLoss {
            return Ok(());
        }
        intent.set_unmarked(&clearable);
        match self.metadata.unmark(&clearable).await {
            Ok(()) => Ok(()),
            Err(seats) => self.fail_in_turn(seats, FailCause::Bitmap).await,
        }
    }

    /// Completes what a member that comes back lacks with what was written since that was looked
    /// up: bits are not cleared while its seat is empty. Nothing is in flight.
    pub(in crate::state) fn add_missed_regions(&self, who: &mut Seat) {
        if let (Some(intent), Some(stale)) = (self.intent(), &mut who.stale) {
            intent.add_marked(Arc::make_mut(stale));
        }
    }

    /// Before the array is left: nothing is in flight and no client writes any more.
    pub(in crate::state) async fn clear_at_stop(&self) {
        let Some(intent) = self.intent().filter(|intent| intent.used.get()) else { return };
        self.take_back(&intent, IntentShard::release_all).await;
        // Bits that stay only cost a little resync; a member that fails here is recorded as failed.
        let _ = self.clear_in_turn(&intent).await;
    }

    /// Keeps the write-intent bitmap that the metadata has ready, in which all bits are set; or
    /// none any more. Returns when the superblocks say so and every core goes by it.
    ///
    /// # Errors
    /// Too few members are left to record it, or the array is stopped.
    pub async fn change_intent(self: &Rc<Self>, spec: Option<IntentSpec>) -> Result<(), VolumeError> {
        if planted::is(Bug::IntentInFlight) {
            return self.change_intent_alone(spec).await;
        }
        let home = self.clone();
        self.exclusively(async move |_pass| home.change_intent_alone(spec).await).await?
    }

    /// Nothing is in flight.
    async fn change_intent_alone(&self, spec: Option<IntentSpec>) -> Result<(), VolumeError> {
        let _turn = self.transition.acquire(1).await;
        if self.has_ended() {
            return Err(VolumeError::Stopped);
        }
        self.metadata.turn_intent(spec.is_some());
        // Until this is durable on all members a crash may leave some that know the bitmap and some
        // that do not. All bits are set, and nothing is in flight that they would be needed for.
        self.commit(RecordCause::Members, self.is_dirty()).await?;
        self.install_intent(spec).await;
        self.look_for_idle_regions();
        Ok(())
    }

    /// Has every core keep a new bitmap, or none. In turn.
    async fn install_intent(&self, spec: Option<IntentSpec>) {
        let generation = self.intents.get() + 1;
        self.intents.set(generation);
        let of_home = spec.as_ref().map(|spec| IntentHome::new(spec, generation, self.core.cores()));
        *self.intent.borrow_mut() = of_home.map(Rc::new);
        self.on_every_core(move |shard| {
            let of_core = spec.as_ref().map(|spec| IntentShard::new(spec, generation));
            async move { shard.set_intent(of_core) }
        })
        .await;
    }

    /// The array's bitmap, if it keeps one.
    fn intent(&self) -> Option<Rc<IntentHome>> {
        self.intent.borrow().clone()
    }

    /// Whether this is the bitmap that the array keeps now.
    fn keeps(&self, intent: &IntentHome) -> bool {
        self.intent.borrow().as_ref().is_some_and(|now| now.generation == intent.generation)
    }
}
