//! What follows from writes to members: the one place where that is decided.
//!
//! A member that missed a client's write would show old content, so it is failed, or where others
//! need it for what they lack, what it missed is recorded as bad; so are sectors that missed a
//! content which redundancy has as well. Sectors that were listed as
//! bad and took a write hold something now, which is recorded before anything relies on it.

use std::ops::Range;

use wattle_rt::IoErrorKind;

use super::StateShard;
use crate::member::{NoRoom, Outcome, WriteCost, WriteLoss};
use crate::model::bad_ranges::BadRanges;
use crate::model::error::VolumeError;
use crate::model::health::Health;
use crate::model::units::{MemberIx, Sector};
use crate::state::metadata::FailCause;

impl StateShard {
    /// Settles a client's change that was planned in `health`: when this returns it may be
    /// acknowledged.
    ///
    /// # Errors
    /// What the client is told. Without redundancy a failed write is the client's to know, and the
    /// member stays.
    pub async fn settle_change(&self, health: &Health, outcome: Outcome) -> Result<(), VolumeError> {
        if !outcome.is_whole() && self.fixed.geometry.redundancy() == 0 {
            return Err(outcome.error());
        }
        if !outcome.is_plain() {
            // Boxed: it is rare, and has more to remember than all the rest of a write.
            Box::pin(self.settle(outcome, WriteCost::Member, NoRoom::Fails)).await?;
        }
        self.recorded(health.epoch).await
    }

    /// Settles writes; returns when it is recorded what follows from them.
    ///
    /// # Errors
    /// The first, after everything was tried. With [`WriteCost::Sectors`],
    /// [`VolumeError::Unreadable`] says that bad sectors could not be recorded, so that nothing may
    /// rely on them. A read that had its data from redundancy does not depend on that; a job that
    /// completes a member does.
    pub async fn settle(
        &self,
        outcome: Outcome,
        cost: WriteCost,
        no_room: NoRoom,
    ) -> Result<(), VolumeError> {
        // Before anything else: exclude the members that missed the write from reads.
        if !outcome.is_whole() && cost == WriteCost::Member {
            self.exclude(&outcome).await.map_err(|_| outcome.error())?;
        }
        let mut result = Ok(());
        if cost == WriteCost::Sectors {
            for loss in outcome.losses {
                result = result.and(self.record_loss(loss).await);
            }
        }
        for (seat, sectors) in outcome.mended {
            self.record_good(seat, sectors, no_room).await?;
        }
        result
    }

    /// Keeps what missed a client's write from being read.
    async fn exclude(&self, outcome: &Outcome) -> Result<(), VolumeError> {
        match &outcome.losses[..] {
            // Sectors of several members would have to be weighed against each other.
            [WriteLoss { seat, sectors, error }]
                if error.kind() == IoErrorKind::Medium && !outcome.forced =>
            {
                let (member, sectors, mended) =
                    (self.occupant(*seat), sectors.clone(), outcome.mended.clone());
                self.home(move |home| async move { home.missed_write(member, sectors, &mended).await }).await
            }
            _ => self.fail(outcome.failed(), FailCause::Write).await,
        }
    }

    /// A member that cannot record its bad sectors, or failed in another way, is failed; so is one
    /// that is to replace another, which still has what it did not take.
    async fn record_loss(&self, WriteLoss { seat, sectors, error }: WriteLoss) -> Result<(), VolumeError> {
        match error.kind() {
            IoErrorKind::Medium if seat.index() < self.fixed.geometry.raid_disks() => {
                let bad = move |bad: &mut BadRanges| bad.insert(sectors);
                let member = self.occupant(seat);
                self.home(move |home| async move { home.set_bad(member, bad).await }).await
            }
            _ => self.fail([seat].into_iter().collect(), FailCause::Write).await,
        }
    }

    /// A bad sector is not read, and one that holds the only copy of something must not count as
    /// bad after a restart.
    async fn record_good(
        &self,
        seat: MemberIx,
        sectors: Range<Sector>,
        no_room: NoRoom,
    ) -> Result<(), VolumeError> {
        let member = self.occupant(seat);
        match no_room {
            NoRoom::Fails => {
                let good = move |bad: &mut BadRanges| bad.remove(sectors);
                self.home(move |home| async move { home.set_bad(member, good).await }).await
            }
            NoRoom::KeepsBad => {
                self.home(move |home| async move { home.mend_if_room(member, sectors).await }).await
            }
        }
    }
}
