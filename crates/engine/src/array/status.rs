//! What an array reports of itself.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use wattle_rt::{Core, Latencies, TrafficTotals};

use super::home::{Home, home_key};
use super::shard::Shard;
use super::{Fixed, Health, MemberState, each_core};
use crate::cache::CacheStatus;
use crate::geometry::Level;
use crate::sync::{Decision, SyncReport, SyncStatus};
use crate::units::Sector;

/// A counter of one core: no atomics, added up when somebody asks.
#[derive(Debug, Default)]
pub(crate) struct Count(Cell<u64>);

impl Count {
    pub fn add(&self, n: u64) {
        self.0.set(self.0.get() + n);
    }

    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// One core's counters of one array.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub $name: Count,)* }

        /// What an array has done since it was started, all cores together.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub struct CounterTotals { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            fn totals(&self) -> CounterTotals {
                CounterTotals { $($name: self.$name.0.get(),)* }
            }
        }

        impl CounterTotals {
            fn plus(self, other: Self) -> Self {
                Self { $($name: self.$name + other.$name,)* }
            }
        }
    };
}

counters! {
    /// Read requests.
    reads,
    /// Bytes read by clients.
    read_bytes,
    /// Write requests.
    writes,
    /// Bytes written by clients.
    write_bytes,
    /// Flushes of all members; requests that came together share one.
    flushes,
    /// Rows written without reading anything: full stripes.
    rows_full,
    /// Rows written by reconstruct-write.
    rows_reconstruct,
    /// Rows written by read-modify-write.
    rows_read_modify,
    /// Rows written with lost data recovered first, or with no parity left.
    rows_degraded,
    /// Rows read by recovering lost blocks.
    rows_recovered,
    /// Blocks read from members before a write.
    pre_reads,
    /// Write requests that left in a batch with another of the same stripe.
    merged,
    /// Blocks that could not be read and were rewritten from redundancy.
    repaired,
    /// Bytes read ahead of clients that read in sequence.
    ahead_bytes,
    /// Read requests that were answered with what had been read ahead.
    ahead_reads,
    /// Requests whose edges are not on blocks: reads that read more, writes that stop everything else.
    unaligned,
}

/// Clients' requests that one core has answered.
#[derive(Debug)]
pub(crate) struct Requests {
    latencies: RefCell<RequestLatencies>,
    /// Reads and writes that took longer are late.
    late_after: Cell<Duration>,
    late: Count,
}

/// How long clients' requests took since the array was started, all cores together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestLatencies {
    /// Reads.
    pub reads: Latencies,
    /// Writes.
    pub writes: Latencies,
    /// Flushes.
    pub flushes: Latencies,
}

impl Requests {
    pub fn new(late_after: Duration) -> Self {
        Self { latencies: RefCell::default(), late_after: Cell::new(late_after), late: Count::default() }
    }

    pub fn read(&self, took: Duration) {
        self.latencies.borrow_mut().reads.record(took);
        self.late.add(u64::from(took > self.late_after.get()));
    }

    pub fn written(&self, took: Duration) {
        self.latencies.borrow_mut().writes.record(took);
        self.late.add(u64::from(took > self.late_after.get()));
    }

    pub fn flushed(&self, took: Duration) {
        self.latencies.borrow_mut().flushes.record(took);
    }

    /// From now on reads and writes that take longer are late.
    pub fn late_after(&self, time: Duration) {
        self.late_after.set(time);
    }

    /// Reads and writes that were answered, and how many of them were late.
    pub fn answered(&self) -> (u64, u64) {
        let latencies = self.latencies.borrow();
        (latencies.reads.count() + latencies.writes.count(), self.late.get())
    }

    fn totals(&self) -> RequestLatencies {
        self.latencies.borrow().clone()
    }
}

impl RequestLatencies {
    fn add(&mut self, other: &Self) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.flushes.add(&other.flushes);
    }
}

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
    pub last: Option<SyncReport>,
    /// What was decided about the speed of these, the latest last.
    pub decisions: Vec<Decision>,
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
    /// Sectors in its bad-block log.
    pub bad_sectors: u64,
    /// What went to it since it took the slot; what keeps the metadata writes is not in it.
    pub traffic: TrafficTotals,
}

/// What a core saw of a member's troubles.
#[derive(Debug, Clone, Default)]
pub(crate) struct Troubles {
    pub read_errors: u64,
    pub late_reads: u64,
    pub slow: bool,
    pub traffic: TrafficTotals,
}

impl Troubles {
    fn add(&mut self, other: &Self) {
        self.read_errors += other.read_errors;
        self.late_reads += other.late_reads;
        self.slow |= other.slow;
        self.traffic.add(&other.traffic);
    }
}

pub(super) async fn collect(core: &Core, fixed: &Arc<Fixed>) -> ArrayStatus {
    let key = fixed.key;
    let home = core
        .call(fixed.home, move |core| async move {
            core.local::<Home>(home_key(key)).map(|home| {
                let (sync, last) = home.sync.report(core.now());
                (home.is_dirty(), home.told(), sync, last, home.sync.decisions())
            })
        })
        .await;
    let mut counters = CounterTotals::default();
    let mut cache = CacheStatus::default();
    let mut requests = RequestLatencies::default();
    let slots = fixed.geometry.raid_disks();
    let mut troubles = vec![Troubles::default(); 2 * slots];
    for index in each_core(core) {
        let part = core
            .call(index, move |core| async move {
                core.local::<Shard>(key).map(|shard| {
                    let requests = shard.requests.totals();
                    (shard.counters.totals(), shard.cache.status(), requests, shard.troubles())
                })
            })
            .await;
        let Some((totals, kept, answered, more)) = part else { continue };
        counters = counters.plus(totals);
        cache = cache.plus(kept);
        requests.add(&answered);
        troubles.iter_mut().zip(&more).for_each(|(sum, more)| sum.add(more));
    }
    let (dirty, health, sync, last, decisions) = match home {
        Some((dirty, health, sync, last, decisions)) => (dirty, Some(health), sync, last, decisions),
        None => (false, None, None, None, Vec::new()),
    };
    let member = |(seat, troubles): (usize, Troubles)| {
        let who = health.as_ref().map(|health| (health.members[seat], &health.seats[seat]));
        MemberStatus {
            device: who.and_then(|(_, seat)| Some(seat.device.as_ref()?.name().to_string())),
            state: who.map_or(MemberState::Missing, |(state, _)| state),
            read_errors: troubles.read_errors,
            late_reads: troubles.late_reads,
            slow: troubles.slow,
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
        decisions,
    }
}
