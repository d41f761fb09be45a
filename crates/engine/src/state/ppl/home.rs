//! The log's part of an array's changes of state (see [`crate::state::ppl`]).

use std::rc::Rc;

use crate::model::error::VolumeError;
use crate::model::health::Seat;
use crate::state::Home;
use crate::state::home::{Flushed, Recorded};
use crate::state::metadata::FailCause;
use crate::state::ppl;

impl Home {
    /// Empties the members' logs before the array is recorded dirty for the first time; and lets
    /// writes have entries, if all parity is right. In the array's turn, with no write in flight.
    pub(crate) async fn prepare_log(&self) -> Result<(), VolumeError> {
        let shard = self.shard();
        let Some(log) = shard.log.as_ref().filter(|log| !log.is_enabled()) else { return Ok(()) };
        // As of now: a resync may end any time, and what it wrote is not flushed.
        let trusted = self.health().parity_trusted(&self.fixed.geometry);
        loop {
            if trusted && self.flush_then_fail(Recorded::WithTheNext).await? == Flushed::WithLoss {
                continue;
            }
            let failed = ppl::prepare(&shard, log, trusted).await;
            if failed.is_empty() {
                break;
            }
            self.enter_failed(failed, FailCause::Log).await?;
        }
        if trusted {
            self.have_entries().await;
        }
        Ok(())
    }

    /// Lets writes have entries, now that all parity is right: when those that have none have ended
    /// and are flushed, and the members' logs say so.
    pub(crate) async fn enable_log(self: &Rc<Self>) -> Result<(), VolumeError> {
        let home = self.clone();
        self.exclusively(async move |_pass| {
            let shard = home.shard();
            // Every core asks by itself, and what the first one began must not be emptied again.
            let Some(log) = shard.log.as_ref().filter(|log| !log.is_enabled()) else { return Ok(()) };
            home.flush().await?;
            let _turn = home.transition.acquire(1).await;
            loop {
                let failed = ppl::prepare(&shard, log, true).await;
                if failed.is_empty() {
                    break;
                }
                home.fail_in_turn(failed, FailCause::Log).await?;
            }
            home.have_entries().await;
            Ok(())
        })
        .await?
    }

    pub(crate) async fn have_entries(&self) {
        self.on_every_core(|shard| async move {
            if let Some(log) = &shard.log {
                log.enable();
            }
        })
        .await;
    }

    /// Empties the log of a member that is about to join; `false` if that failed, or there is no
    /// room for one.
    pub(crate) async fn clear_log(&self, who: &Seat) -> bool {
        match (&self.fixed.log, &who.device, who.log) {
            (None, ..) => true,
            (Some(spec), Some(device), Some(area)) => {
                let cleared = ppl::clear(&self.core, device, area, spec).await.is_ok();
                let device = device.clone();
                self.on_every_core(move |shard| {
                    let device = device.clone();
                    async move { shard.log.as_ref().into_iter().for_each(|log| log.forget(&device)) }
                })
                .await;
                cleared
            }
            _ => false,
        }
    }
}
