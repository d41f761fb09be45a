//! What an array reports of itself.

use std::cell::Cell;
use std::sync::Arc;

use wattle_rt::Core;

use super::home::{Home, home_key};
use super::shard::Shard;
use super::{Fixed, Health, MemberState, each_core};
use crate::geometry::Level;
use crate::units::Sector;

/// A counter of one core: no atomics, added up when somebody asks.
#[derive(Debug, Default)]
pub(crate) struct Count(Cell<u64>);

impl Count {
    pub fn add(&self, n: u64) {
        self.0.set(self.0.get() + n);
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
    /// Sectors in its bad-block log.
    pub bad_sectors: u64,
}

pub(super) async fn collect(core: &Core, fixed: &Arc<Fixed>) -> ArrayStatus {
    let key = fixed.key;
    let home = core
        .call(fixed.home, move |core| async move {
            core.local::<Home>(home_key(key)).map(|home| (home.is_dirty(), home.health()))
        })
        .await;
    let mut counters = CounterTotals::default();
    let slots = fixed.geometry.raid_disks();
    let mut read_errors = vec![0; 2 * slots];
    for index in each_core(core) {
        let part = core
            .call(index, move |core| async move {
                core.local::<Shard>(key).map(|shard| (shard.counters.totals(), shard.read_errors()))
            })
            .await;
        let Some((totals, errors)) = part else { continue };
        counters = counters.plus(totals);
        read_errors.iter_mut().zip(errors).for_each(|(sum, n)| *sum += n);
    }
    let (dirty, health) = home.map_or((false, None), |(dirty, health)| (dirty, Some(health)));
    let member = |(seat, read_errors): (usize, u64)| match &health {
        None => MemberStatus { device: None, state: MemberState::Missing, read_errors, bad_sectors: 0 },
        Some(health) => MemberStatus {
            device: health.seats[seat].device.as_ref().map(|device| device.name().to_string()),
            state: health.members[seat],
            read_errors,
            bad_sectors: health.seats[seat].bad.sectors(),
        },
    };
    let mut members: Vec<_> = read_errors.into_iter().enumerate().map(member).collect();
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
    }
}
