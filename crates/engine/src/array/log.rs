//! The log's part of an array's changes of state (see [`crate::log`]).

use std::rc::Rc;

use super::Seat;
use super::health::Event;
use super::home::Home;
use crate::error::VolumeError;
use crate::log;

impl Home {
    /// Empties the members' logs before the array is recorded dirty for the first time. In the array's turn.
    pub(super) async fn prepare_log(&self) -> Result<(), VolumeError> {
        let shard = self.shard();
        if shard.log.is_none() {
            return Ok(());
        }
        loop {
            let failed = log::prepare(&shard).await;
            if failed.is_empty() {
                break;
            }
            self.enter(Event::Failed(failed)).await?;
        }
        // No write has begun, so none has begun without an entry.
        if self.health().parity_trusted(&self.fixed.geometry) {
            self.have_entries().await;
        }
        Ok(())
    }

    /// Lets writes have entries, now that all parity is right: when those that have none have ended and are flushed.
    pub async fn enable_log(self: &Rc<Self>) -> Result<(), VolumeError> {
        let home = self.clone();
        self.exclusively(async move |_pass| {
            home.flush().await?;
            home.have_entries().await;
            Ok(())
        })
        .await?
    }

    async fn have_entries(&self) {
        self.on_every_core(|shard| async move {
            if let Some(log) = &shard.log {
                log.enable();
            }
        })
        .await;
    }

    /// Empties the log of a member that is about to join; `false` if that failed, or there is no room for one.
    pub(super) async fn clear_log(&self, who: &Seat) -> bool {
        match (&self.fixed.log, &who.device, who.log) {
            (None, ..) => true,
            (Some(spec), Some(device), Some(area)) => {
                log::clear(&self.core, device, area, spec).await.is_ok()
            }
            _ => false,
        }
    }
}
