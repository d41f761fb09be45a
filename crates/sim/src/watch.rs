//! Watches the engine's promises about metadata, from outside: a [`Metadata`] between the engine
//! and the metadata.
//!
//! 1. No data is written while a member's record says clean.
//! 2. What the engine is told to be durable can be read from the drives by other code, as a power
//!    cut would leave it.
//! 3. Nothing is unflushed when an array is recorded clean.
//! 4. Event counts never go back while the array is degraded.
//! 5. What is recorded in sync is so, durably.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use wattle_engine::metadata::{ArrayRecord, LocalBoxFuture, Metadata, RecordCause};
use wattle_engine::units::{MemberIx, MemberSet, Sector};
use wattle_engine::{BadRanges, FailCause, MemberKey, MemberState};
use wattle_rt::{Core, Instant};

use crate::client;
use crate::lock::lock;
use crate::metadata::{Keys, MetadataModel};
use crate::scrub;
use crate::site::SitePlan;

/// What is known of an array's metadata while it runs.
pub struct Watch {
    metadata: MetadataModel,
    plan: SitePlan,
    /// Sectors are rewritten in passing, or members filled, clean or not: writes and caches prove
    /// nothing.
    repairs: bool,
    /// No client writes, and drives hold what was written to them.
    quiet: bool,
    least_write: Duration,
    dirty_since: Option<Instant>,
    events: u64,
    /// Drives that the last record counts out, or does not know.
    pub out: MemberSet,
    /// Whether the last record says that parity and copies agree when nothing is in flight.
    pub synced: bool,
    /// The first promise that was broken.
    pub broken: Option<String>,
    /// Records committed.
    pub commits: u64,
    /// The program has ended: what completes now was not waited for.
    pub ended: bool,
}

/// Shared between a world's tasks and the checker.
pub type SharedWatch = Arc<Mutex<Watch>>;

impl Watch {
    /// Watches an array from its start.
    #[must_use]
    pub fn new(
        metadata: MetadataModel,
        plan: &SitePlan,
        out: MemberSet,
        repairs: bool,
        quiet: bool,
        least_write: Duration,
    ) -> Watch {
        for control in &plan.controls {
            control.record_writes();
        }
        Watch {
            metadata,
            plan: plan.clone(),
            repairs,
            quiet,
            least_write,
            dirty_since: None,
            events: 0,
            out,
            synced: false,
            broken: None,
            commits: 0,
            ended: false,
        }
    }

    fn accuse(&mut self, what: impl FnOnce() -> String) {
        if self.broken.is_none() {
            self.broken = Some(what());
        }
    }

    /// Drives get things wrong from here on.
    pub fn expect_the_worst(&mut self) {
        self.quiet = false;
    }

    /// Data writes since the last look must have been submitted while the array was recorded dirty.
    pub fn look_at_writes(&mut self) {
        if self.ended {
            return;
        }
        for (drive, control) in self.plan.clone().controls.iter().enumerate() {
            let log = control.take_write_log();
            if self.repairs || self.plan.geometry.redundancy() == 0 {
                continue;
            }
            for write in log {
                let data = self.plan.data_offset * 512;
                let area = data..data + self.data_bytes();
                let early = self.dirty_since.is_none_or(|since| write.completed < since + self.least_write);
                if area.contains(&write.offset_bytes) && early {
                    self.accuse(|| {
                        format!("drive {drive}: {write:?} was sent while the array was recorded clean")
                    });
                }
            }
        }
    }

    /// Bytes of data on a member of an array with redundancy, where all have the same.
    fn data_bytes(&self) -> u64 {
        self.plan.geometry.member_sectors(MemberIx(0)).0 * 512
    }

    /// The drives of the members that take writes, by a record.
    fn members(record: &ArrayRecord) -> impl Iterator<Item = (MemberIx, usize)> + '_ {
        (0..)
            .map(MemberIx)
            .zip(&record.seats)
            .filter(|(_, seat)| seat.state.writable())
            .filter_map(|(ix, seat)| Some((ix, seat.key?.0 as usize)))
    }

    fn before(&mut self, record: &ArrayRecord) {
        self.look_at_writes();
        if record.change != RecordCause::Deactivate || self.repairs {
            return;
        }
        if record.seats.iter().any(|seat| matches!(seat.state, MemberState::Rebuilding { .. }))
            || record.synced_below != Sector::MAX
        {
            return;
        }
        for (_, drive) in Self::members(record) {
            let unflushed = self.plan.controls[drive].unflushed_sectors();
            if unflushed > 0 {
                self.accuse(|| {
                    format!("drive {drive} is to be recorded clean with {unflushed} sectors unflushed")
                });
            }
        }
    }

    fn after(&mut self, record: &ArrayRecord, now: Instant) {
        self.commits += 1;
        match record.change {
            RecordCause::Activate => self.dirty_since = self.dirty_since.or(Some(now)),
            RecordCause::Deactivate => self.dirty_since = None,
            RecordCause::Members | RecordCause::Checkpoint => {}
        }
        let slots = self.plan.geometry.raid_disks();
        self.out = (0..self.plan.controls.len() as u16).map(MemberIx).collect();
        let mut least = u64::MAX;
        // A slot whose member failed has another as long as its replacement is there.
        let replaced = |seat: &MemberIx| record.seats[slots + seat.index()].state.writable();
        let failed: MemberSet =
            record.failed.iter().filter(|seat| seat.index() < slots && !replaced(seat)).collect();
        for (seat, drive) in Self::members(record) {
            self.out.remove(MemberIx(drive as u16));
            if seat.index() < slots {
                self.plan.seat(seat, drive);
            }
            let Some(entry) = self.metadata.entry(&self.plan, drive) else {
                self.accuse(|| format!("drive {drive} has no metadata after a commit"));
                continue;
            };
            least = least.min(entry.events);
            let clean = !record.dirty && record.synced_below == Sector::MAX;
            if entry.clean != clean {
                self.accuse(|| {
                    format!("drive {drive} durably says clean = {} after {record:?}", entry.clean)
                });
            }
            if !failed.without(&entry.out).is_empty() {
                self.accuse(|| format!("drive {drive} durably counts out {:?} after {record:?}", entry.out));
            }
        }
        let whole = record.seats[..slots].iter().filter(|seat| seat.state == MemberState::InSync).count();
        let degraded = whole < slots;
        self.synced = record.synced_below == Sector::MAX;
        *lock(&self.plan.bad) =
            record.seats[..slots].iter().map(|seat| BadRanges::clone(&seat.bad)).collect();
        if self.quiet && self.synced && !degraded {
            let all = self.plan.slots().collect();
            if let Err(what) = scrub::check(&self.plan, all, true) {
                self.accuse(|| format!("recorded in sync and not durable: {what} after {record:?}"));
            }
        }
        if degraded && least <= self.events && least != u64::MAX {
            let before = self.events;
            self.accuse(|| format!("events went from {before} to {least} while degraded"));
        }
        if least != u64::MAX {
            self.events = least;
        }
    }
}

/// Metadata that is watched.
pub struct Watched {
    /// What writes the metadata.
    pub inner: Box<dyn Metadata>,
    /// What drives the keys of records mean.
    pub keys: Keys,
    /// What is known.
    pub watch: SharedWatch,
    /// Where it is told.
    pub truth: client::SharedHistory,
    /// The core it is used on.
    pub core: Core,
}

impl Watched {
    /// A record with the numbers of drives for keys.
    fn by_drive(&self, record: &ArrayRecord) -> ArrayRecord {
        let mut record = record.clone();
        for seat in &mut record.seats {
            seat.key = seat.key.and_then(|key| Some(MemberKey((self.keys)(key)? as u32)));
        }
        record
    }
}

impl Metadata for Watched {
    fn failed(&self, members: &[(MemberIx, Option<MemberKey>)], cause: FailCause) {
        lock(&self.truth).tell(|| format!("failed {members:?}: {cause:?} at {:?}", self.core.now()));
        self.inner.failed(members, cause);
    }

    fn waits_since(&self, member: MemberKey) -> Option<Instant> {
        self.inner.waits_since(member)
    }

    fn give_up(&self, member: MemberKey) {
        self.inner.give_up(member);
    }

    fn turn_intent(&self, on: bool) {
        self.inner.turn_intent(on);
    }

    fn commit<'a>(&'a self, record: &'a ArrayRecord) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(async move {
            lock(&self.truth).tell(|| format!("commit {record:?} at {:?}", self.core.now()));
            let seen = self.by_drive(record);
            lock(&self.watch).before(&seen);
            let result = self.inner.commit(record).await;
            lock(&self.truth).tell(|| format!("commit {record:?}: {result:?} at {:?}", self.core.now()));
            if result.is_ok() {
                lock(&self.watch).after(&seen, self.core.now());
            }
            result
        })
    }

    fn mark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(async move {
            lock(&self.truth).tell(|| format!("mark {regions:?} at {:?}", self.core.now()));
            self.inner.mark(regions).await
        })
    }

    fn unmark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(async move {
            lock(&self.truth).tell(|| format!("unmark {regions:?} at {:?}", self.core.now()));
            self.inner.unmark(regions).await
        })
    }
}
