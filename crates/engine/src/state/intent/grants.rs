//! The home's side of write intent: grants, sweeps, and what is cleared when
//! ([`crate::state::intent`]).

use std::rc::Rc;
use std::sync::Arc;

use wattle_rt::{CoreIx, oneshot};

use crate::cores;
use crate::model::error::VolumeError;
use crate::model::health::{Event, Seat};
use crate::state::Home;
use crate::state::home::{Flushed, Recorded};
use crate::state::intent::{Asking, IntentHome, IntentShard};
use crate::state::metadata::FailCause;
use crate::state::{StateShard, answer};

impl Home {
    /// Lets `core` write to `regions`: returns when their bits are durable on every member in use.
    /// Requests that come while the bitmap is being written share the next write.
    pub async fn mark(self: &Rc<Self>, core: CoreIx, regions: Vec<u64>) -> Result<(), VolumeError> {
        let Some(intent) = &self.intent else { return Ok(()) };
        let (sender, receiver) = oneshot();
        if intent.wait(Asking { core, regions, sender }) {
            self.core.spawn(self.clone().serve_marks());
        }
        receiver.await.unwrap_or(Err(VolumeError::Stopped))
    }

    async fn serve_marks(self: Rc<Self>) {
        let Some(intent) = &self.intent else { return };
        loop {
            let turn = self.transition.acquire(1).await;
            let waiting = intent.take_waiting();
            if waiting.is_empty() {
                return;
            }
            let result = self.mark_in_turn(intent, &waiting).await;
            drop(turn);
            waiting.into_iter().for_each(|asking| answer(asking.sender, result));
        }
    }

    async fn mark_in_turn(
        self: &Rc<Self>,
        intent: &IntentHome,
        waiting: &[Asking],
    ) -> Result<(), VolumeError> {
        if self.has_ended() {
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
        let Some(intent) = &self.intent else { return };
        intent.used.set(true);
        let home = self.core.local::<Self>(self.fixed.home_key());
        if let Some(home) = home.filter(|_| !intent.sweeping.replace(true)) {
            self.core.spawn(home.sweep());
        }
    }

    async fn sweep(self: Rc<Self>) {
        let (Some(intent), Some(spec)) = (&self.intent, &self.fixed.intent) else { return };
        loop {
            self.core.sleep(spec.sweep).await;
            let _turn = self.transition.acquire(1).await;
            if self.stopped.get() || self.has_ended() {
                return;
            }
            self.take_back(intent, IntentShard::sweep).await;
            // A member that fails here is recorded as failed, and then there is nothing to clear.
            let _ = self.clear_in_turn(intent).await;
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
            core.local::<StateShard>(key).and_then(|shard| shard.intent.as_ref().map(release))
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
        if let (Some(intent), Some(stale)) = (&self.intent, &mut who.stale) {
            intent.add_marked(Arc::make_mut(stale));
        }
    }

    /// Before the array is left: nothing is in flight and no client writes any more.
    pub(in crate::state) async fn clear_at_stop(&self) {
        let Some(intent) = self.intent.as_ref().filter(|intent| intent.used.get()) else { return };
        self.take_back(intent, IntentShard::release_all).await;
        // Bits that stay only cost a little resync; a member that fails here is recorded as failed.
        let _ = self.clear_in_turn(intent).await;
    }
}
