//! Noting changes on every core, as long as somebody reads ahead ([`crate::ahead`]).

use std::rc::Rc;

use super::super::each_core;
use super::Home;
use crate::array::Shard;
use crate::error::VolumeError;

impl Home {
    /// Has every core note what clients change, and lets all cores read ahead when no change is under way that is not noted.
    pub async fn note_changes(self: &Rc<Self>) -> Result<(), VolumeError> {
        let _turn = self.noting.acquire(1).await;
        if self.has_ended() {
            return Err(VolumeError::Stopped);
        }
        if !self.noted.replace(true) {
            self.on_every_core(|shard| async move { shard.ahead.notes.begin(&shard.writes).await }).await;
            self.stop_noting_when_nobody_reads();
        }
        self.on_every_core(|shard| async move { shard.ahead.allow() }).await;
        Ok(())
    }

    /// Noting costs every write; what was read ahead, memory.
    fn stop_noting_when_nobody_reads(self: &Rc<Self>) {
        let (home, core, idle) = (Rc::downgrade(self), self.core.clone(), self.fixed.tuning.ahead.idle);
        self.core.spawn(async move {
            loop {
                core.sleep(idle).await;
                let Some(home) = home.upgrade() else { return };
                if home.has_ended() || home.try_stop_noting().await {
                    return;
                }
            }
        });
    }

    async fn try_stop_noting(&self) -> bool {
        let _turn = self.noting.acquire(1).await;
        if self.has_readers().await {
            return false;
        }
        // One after the other: as long as any core reads ahead, every core notes what it changes.
        self.on_every_core(|shard| async move { shard.ahead.forbid() }).await;
        self.on_every_core(|shard| async move { shard.ahead.notes.end() }).await;
        self.noted.set(false);
        true
    }

    async fn has_readers(&self) -> bool {
        let mut any = false;
        for index in each_core(&self.core) {
            let key = self.fixed.key;
            any |= self
                .core
                .call(index, move |core| async move {
                    core.local::<Shard>(key).is_some_and(|shard| shard.ahead.has_readers(core.now()))
                })
                .await;
        }
        any
    }
}
