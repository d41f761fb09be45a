//! Watches the engine's promises about metadata, from outside: a [`Metadata`] between the engine and the books.
//!
//! 1. No data is written while a member's record says clean.
//! 2. What the engine is told to be durable can be read from the drives by other code, as a power cut would leave it.
//! 3. Nothing is unflushed when an array is recorded clean.
//! 4. Event counts never go back while the array is degraded.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use wattle_engine::metadata::{Change, LocalBoxFuture, Metadata, Record};
use wattle_engine::units::MemberSet;
use wattle_rt::{Core, Instant};

use crate::books::Books;
use crate::client;
use crate::site::Plan;

/// What is known of an array's metadata while it runs.
pub struct Watch {
    books: Books,
    plan: Plan,
    /// Slots that were in sync at the start.
    used: MemberSet,
    synced: bool,
    /// Sectors are rewritten in passing, clean or not: writes and caches prove nothing.
    repairs: bool,
    least_write: Duration,
    dirty_since: Option<Instant>,
    events: u64,
    /// Slots whose failure the engine was told to be durable.
    pub failed: MemberSet,
    /// The first promise that was broken.
    pub broken: Option<String>,
    /// Records committed.
    pub commits: u64,
    /// The program has ended: what completes now was not waited for.
    pub ended: bool,
}

/// Shared between a world's tasks and the checker.
pub type Shared = Arc<Mutex<Watch>>;

/// Locks; one thread runs a world, so nobody waits.
pub fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Watches an array from its start.
    #[must_use]
    pub fn new(
        books: Books,
        plan: &Plan,
        used: MemberSet,
        synced: bool,
        repairs: bool,
        least_write: Duration,
    ) -> Watch {
        for control in &plan.controls {
            control.record_writes();
        }
        Watch {
            books,
            plan: plan.clone(),
            used,
            synced,
            repairs,
            least_write,
            dirty_since: None,
            events: 0,
            failed: MemberSet::EMPTY,
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

    /// Data writes since the last look must have been submitted while the array was recorded dirty.
    pub fn look_at_writes(&mut self) {
        if self.ended {
            return;
        }
        for (slot, control) in self.plan.clone().controls.iter().enumerate() {
            let log = control.take_write_log();
            if self.repairs || self.plan.geometry.redundancy() == 0 {
                continue;
            }
            for write in log {
                let data = self.plan.data_offset * 512;
                let area = data..data + self.data_bytes(slot);
                let early = self.dirty_since.is_none_or(|since| write.completed < since + self.least_write);
                if area.contains(&write.offset_bytes) && early {
                    self.accuse(|| {
                        format!("drive {slot}: {write:?} was sent while the array was recorded clean")
                    });
                }
            }
        }
    }

    fn data_bytes(&self, slot: usize) -> u64 {
        let slot = wattle_engine::units::MemberIx(slot as u16);
        self.plan.geometry.member_sectors(slot).0 * 512
    }

    fn before(&mut self, record: &Record) {
        self.look_at_writes();
        if record.change != Change::Deactivate || self.repairs {
            return;
        }
        for slot in self.used.without(&record.failed).iter() {
            let unflushed = self.plan.controls[slot.index()].unflushed_sectors();
            if unflushed > 0 {
                self.accuse(|| {
                    format!("member {slot} is to be recorded clean with {unflushed} sectors unflushed")
                });
            }
        }
    }

    fn after(&mut self, record: &Record, now: Instant) {
        self.commits += 1;
        match record.change {
            Change::Activate => self.dirty_since = self.dirty_since.or(Some(now)),
            Change::Deactivate => self.dirty_since = None,
            Change::Members | Change::Checkpoint => {}
        }
        self.failed = self.failed.union(&record.failed);
        let mut least = u64::MAX;
        for slot in self.used.without(&record.failed).iter() {
            let Some(entry) = self.books.entry(&self.plan, slot) else {
                self.accuse(|| format!("member {slot} has no metadata after a commit"));
                continue;
            };
            least = least.min(entry.events);
            let clean = !record.dirty && self.synced;
            if entry.clean != clean {
                self.accuse(|| {
                    format!("member {slot} durably says clean = {} after {record:?}", entry.clean)
                });
            }
            if !record.failed.without(&entry.out).is_empty() {
                self.accuse(|| format!("member {slot} durably counts out {:?} after {record:?}", entry.out));
            }
        }
        let degraded = !record.failed.is_empty() || self.used.len() < self.plan.controls.len();
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
    /// Who keeps the books.
    pub inner: Box<dyn Metadata>,
    /// What is known.
    pub watch: Shared,
    /// Where it is told.
    pub truth: client::Shared,
    /// The core it is used on.
    pub core: Core,
}

impl Metadata for Watched {
    fn commit<'a>(&'a self, record: &'a Record) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(async move {
            lock(&self.truth).tell(|| format!("commit {record:?} at {:?}", self.core.now()));
            lock(&self.watch).before(record);
            let result = self.inner.commit(record).await;
            lock(&self.truth).tell(|| format!("commit {record:?}: {result:?} at {:?}", self.core.now()));
            if result.is_ok() {
                lock(&self.watch).after(record, self.core.now());
            }
            result
        })
    }
}
