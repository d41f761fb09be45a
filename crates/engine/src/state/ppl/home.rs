//! The log's part of an array's changes of state (see [`crate::state::ppl`]).

use std::rc::Rc;

use crate::model::error::VolumeError;
use crate::model::health::Seat;
use crate::state::Home;
use crate::state::home::{Flushed, Recorded};
use crate::state::metadata::FailCause;
use crate::state::ppl::{self, LogShard};

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
            home.empty_logs(log).await?;
            home.have_entries().await;
            Ok(())
        })
        .await?
    }

    /// A repair has ended: what it wrote is made durable. It wrote parity without entries, so what
    /// is logged of these rows from before is not right any more: after a crash it would undo the
    /// repair. With no write in flight the logs are emptied.
    pub(crate) async fn settle_repair(self: &Rc<Self>) -> Result<(), VolumeError> {
        if !self.shard().log.as_ref().is_some_and(LogShard::is_enabled) {
            return self.flush().await;
        }
        let home = self.clone();
        self.exclusively(async move |_pass| {
            home.flush().await?;
            let shard = home.shard();
            let Some(log) = &shard.log else { return Ok(()) };
            home.on_every_core(|shard| async move {
                shard.log.iter().for_each(LogShard::begin_anew);
            })
            .await;
            home.empty_logs(log).await
        })
        .await?
    }

    /// Empties all logs. Exclusively, after a flush.
    async fn empty_logs(&self, log: &LogShard) -> Result<(), VolumeError> {
        let _turn = self.transition.acquire(1).await;
        loop {
            let failed = ppl::prepare(&self.shard(), log, true).await;
            if failed.is_empty() {
                return Ok(());
            }
            self.fail_in_turn(failed, FailCause::Log).await?;
        }
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
