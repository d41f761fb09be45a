//! What an array reports of itself.

use std::sync::Arc;
use std::time::Duration;

use wattle_rt::{Core, Device, TrafficTotals};

use crate::cores;
use crate::hints::HintShard;
use crate::hints::cache::CacheStatus;
use crate::job::{FinishedJob, JobShard, ShareDecision, SyncStatus};
use crate::member::Troubles;
use crate::model::fixed::Fixed;
use crate::model::geometry::Level;
use crate::model::health::{Health, MemberState};
use crate::model::units::Sector;
use crate::state::{CounterTotals, Home, RequestLatencies, StateShard};

/// An array as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayStatus {
    /// Its name.
    pub name: String,
    /// Its level.
    pub level: Level,
    /// Its size.
    pub size: Sector,
    /// Its superblocks say dirty.
    pub dirty: bool,
    /// More failed than redundancy covers: writes are refused.
    pub broken: bool,
    /// Nothing is written.
    pub read_only: bool,
    /// How many slots have no member that is in sync.
    pub degraded: usize,
    /// Parity and copies agree below this.
    pub synced_below: Sector,
    /// By slot.
    pub members: Vec<MemberStatus>,
    /// By slot: what is being made to replace its member.
    pub replacements: Vec<MemberStatus>,
    /// Since the start.
    pub counters: CounterTotals,
    /// The clean cache.
    pub cache: CacheStatus,
    /// Clients' requests since the start.
    pub requests: RequestLatencies,
    /// The resync, recovery, check or repair under way.
    pub sync: Option<SyncStatus>,
    /// The last one that ended.
    pub last: Option<FinishedJob>,
    /// The last few checks and repairs that were asked for and ended, the oldest first.
    pub asked_ends: Vec<Arc<FinishedJob>>,
    /// What was decided about the speed of these, the latest last.
    pub decisions: Vec<ShareDecision>,
}

/// One slot as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// Name of the device in the slot, if there is one.
    pub device: Option<String>,
    /// Its state.
    pub state: MemberState,
    /// Read errors since the start, corrected or not.
    pub read_errors: u64,
    /// Reads that it did not answer in time.
    pub late_reads: u64,
    /// It counts as slow: what can be had from others is not asked of it.
    pub slow: bool,
    /// For how long it has answered nothing although something waits for it, writes of the metadata
    /// included.
    pub waits: Duration,
    /// What is under way on it is waited for even when it has failed: tasks carry it out.
    pub awaited: bool,
    /// Sectors in its bad-block log.
    pub bad_sectors: u64,
    /// Of copies: it is read only where no other one can be.
    pub write_mostly: bool,
    /// What went to it since it took the slot; what keeps the metadata writes is not in it.
    pub traffic: TrafficTotals,
}

/// A member that answered nothing for longer than this is silent. A drive that has to spin up
/// takes less.
const SILENT_AFTER: Duration = Duration::from_secs(15);

impl MemberStatus {
    /// For how long it has answered nothing although something waits for it, if that is longer than
    /// a drive that is well needs.
    #[must_use]
    pub fn silent_for(&self) -> Option<Duration> {
        let is_used = matches!(self.state, MemberState::InSync | MemberState::Rebuilding { .. });
        (is_used && self.waits >= SILENT_AFTER).then_some(self.waits)
    }
}

pub(super) async fn collect(core: &Core, fixed: &Arc<Fixed>) -> ArrayStatus {
    let (home_key, jobs_key) = (fixed.home_key(), fixed.jobs_key());
    let (state_key, hints_key) = (fixed.state_key(), fixed.hints_key());
    let home = core
        .call(fixed.home, move |core| async move {
            let (home, jobs) = (core.local::<Home>(home_key)?, core.local::<JobShard>(jobs_key)?);
            let (sync, last) = jobs.control.report(core.now());
            Some((
                home.is_dirty(),
                home.reported(),
                sync,
                last,
                jobs.control.asked_ends(),
                jobs.control.decisions(),
                home.metadata_waits(),
            ))
        })
        .await;
    let mut counters = CounterTotals::default();
    let mut cache = CacheStatus::default();
    let mut requests = RequestLatencies::default();
    let slots = fixed.geometry.raid_disks();
    let mut troubles = vec![Troubles::default(); 2 * slots];
    let parts = cores::each(core, move |core| async move {
        let (shard, hints) = (core.local::<StateShard>(state_key)?, core.local::<HintShard>(hints_key)?);
        let requests = shard.requests.totals();
        Some((shard.counters.totals(), hints.cache.status(), requests, shard.members.troubles()))
    });
    for (totals, kept, answered, more) in parts.await.into_iter().flatten() {
        counters = counters.plus(totals);
        cache = cache.plus(kept);
        requests.add(&answered);
        troubles.iter_mut().zip(&more).for_each(|(sum, more)| sum.add(more));
    }
    let (dirty, health, sync, last, asked_ends, decisions, waits) = match home {
        Some((dirty, health, sync, last, asked_ends, decisions, waits)) => {
            (dirty, Some(health), sync, last, asked_ends, decisions, waits)
        }
        None => (false, None, None, None, Vec::new(), Vec::new(), Vec::new()),
    };
    for (troubles, since) in troubles.iter_mut().zip(waits) {
        since.into_iter().for_each(|since| troubles.unanswered.add_change(since));
    }
    let member = |(seat, troubles): (usize, Troubles)| {
        let who = health.as_ref().map(|health| (health.members[seat], &health.seats[seat]));
        MemberStatus {
            device: who.and_then(|(_, seat)| Some(seat.device.as_ref()?.name().to_string())),
            state: who.map_or(MemberState::Missing, |(state, _)| state),
            read_errors: troubles.read_errors,
            late_reads: troubles.late_reads,
            slow: troubles.slow,
            waits: troubles
                .unanswered
                .since()
                .map_or(Duration::ZERO, |since| core.now().saturating_since(since)),
            awaited: who.is_some_and(|(_, seat)| seat.device.as_ref().is_some_and(Device::is_served)),
            write_mostly: who.is_some_and(|(_, seat)| seat.write_mostly),
            bad_sectors: who.map_or(0, |(_, seat)| seat.bad.sectors()),
            traffic: troubles.traffic,
        }
    };
    let mut members: Vec<_> = troubles.into_iter().enumerate().map(member).collect();
    let replacements = members.split_off(slots);
    let synced = |health: &Arc<Health>| match health.trust.complete(fixed.geometry.sync_sectors()) {
        true => Sector::MAX,
        false => health.trust.below,
    };
    ArrayStatus {
        name: fixed.name.clone(),
        level: fixed.geometry.level(),
        size: fixed.geometry.array_sectors(),
        dirty,
        broken: health.as_ref().is_some_and(|health| health.broken),
        read_only: fixed.read_only,
        degraded: members.iter().filter(|member| member.state != MemberState::InSync).count(),
        synced_below: health.as_ref().map_or(Sector(0), synced),
        members,
        replacements,
        counters,
        cache,
        requests,
        sync,
        last,
        asked_ends,
        decisions,
    }
}
