//! Noting changes on every core, as long as any core reads ahead. At the array's home.

use std::rc::Rc;

use crate::cores::{self, on_every_core};
use crate::hints::HintShard;
use crate::model::error::VolumeError;
use crate::state::Home;

impl HintShard {
    /// Has every core note what clients change, and lets all cores read ahead when no change is
    /// under way that is not noted. At the array's home.
    pub async fn note_changes(self: &Rc<Self>, home: &Rc<Home>) -> Result<(), VolumeError> {
        let _turn = self.noting.acquire(1).await;
        if home.has_ended() {
            return Err(VolumeError::Stopped);
        }
        if !self.noted.replace(true) {
            self.on_every_core(|hints| async move { hints.ahead.notes.begin(&hints.writes).await }).await;
            self.stop_noting_when_idle(home);
        }
        self.on_every_core(|hints| async move { hints.ahead.allow() }).await;
        Ok(())
    }

    /// Noting costs every write; what was read ahead, memory.
    fn stop_noting_when_idle(self: &Rc<Self>, home: &Rc<Home>) {
        let (hints, home) = (Rc::downgrade(self), Rc::downgrade(home));
        let (core, idle) = (self.core.clone(), self.ahead.idle());
        self.core.spawn(async move {
            loop {
                core.sleep(idle).await;
                let (Some(hints), Some(home)) = (hints.upgrade(), home.upgrade()) else { return };
                if home.has_ended() || hints.try_stop_noting().await {
                    return;
                }
            }
        });
    }

    async fn try_stop_noting(&self) -> bool {
        let _turn = self.noting.acquire(1).await;
        if self.any_reader().await {
            return false;
        }
        // One after the other: as long as any core reads ahead, every core notes what it changes.
        self.on_every_core(|hints| async move { hints.ahead.forbid() }).await;
        self.on_every_core(|hints| async move { hints.ahead.notes.end() }).await;
        self.noted.set(false);
        true
    }

    async fn any_reader(&self) -> bool {
        let key = self.fixed.hints_key();
        let any = cores::each(&self.core, move |core| async move {
            core.local::<Self>(key).is_some_and(|hints| hints.ahead.has_readers(core.now()))
        });
        any.await.contains(&true)
    }

    async fn on_every_core<F, Fut>(&self, f: F)
    where
        F: Fn(Rc<Self>) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        on_every_core(&self.core, self.fixed.hints_key(), f).await;
    }
}
