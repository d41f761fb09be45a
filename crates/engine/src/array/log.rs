//! The log's part of an array's changes of state (see [`crate::log`]).

use std::rc::Rc;

use super::Seat;
use super::health::Event;
use super::home::Home;
use crate::error::VolumeError;
use crate::log;
use crate::units::MemberSet;

impl Home {
    /// Empties the members' logs before the array is recorded dirty for the first time; and lets writes have entries, if all parity
    /// is right. In the array's turn, with no write in flight.
    pub(super) async fn prepare_log(&self) -> Result<(), VolumeError> {
        let shard = self.shard();
        let Some(log) = shard.log.as_ref().filter(|log| !log.is_enabled()) else { return Ok(()) };
        // As of now: a resync may end any time, and what it wrote is not flushed.
        let trusted = self.health().parity_trusted(&self.fixed.geometry);
        loop {
            let mut failed = if trusted { shard.flush_members().await } else { MemberSet::EMPTY };
            if failed.is_empty() {
                failed = log::prepare(&shard, log, trusted).await;
            }
            if failed.is_empty() {
                break;
            }
            self.enter(Event::Failed(failed)).await?;
        }
        if trusted {
            self.have_entries().await;
        }
        Ok(())
    }

    /// Lets writes have entries, now that all parity is right: when those that have none have ended and are flushed, and the members'
    /// logs say so.
    pub async fn enable_log(self: &Rc<Self>) -> Result<(), VolumeError> {
        let home = self.clone();
        self.exclusively(async move |_pass| {
            let shard = home.shard();
            // Every core asks by itself, and what the first one began must not be emptied again.
            let Some(log) = shard.log.as_ref().filter(|log| !log.is_enabled()) else { return Ok(()) };
            home.flush().await?;
            let _turn = home.transition.acquire(1).await;
            loop {
                let failed = log::prepare(&shard, log, true).await;
                if failed.is_empty() {
                    break;
                }
                home.fail_in_turn(failed).await?;
            }
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
                let cleared = log::clear(&self.core, device, area, spec).await.is_ok();
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
