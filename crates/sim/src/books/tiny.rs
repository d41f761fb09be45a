//! Metadata in one sector: the least that keeps the engine's promises.
//!
//! A record has a generation, says whether the array is dirty, and which slots are out. The freshest record describes the
//! array; a member is current if that does not count it out. A commit
//! flushes every member and then forces a record of the next generation onto all of them.

use std::cell::RefCell;

use wattle_engine::MemberState;
use wattle_engine::geometry::Kind;
use wattle_engine::metadata::{self, LocalBoxFuture, Metadata};
use wattle_engine::units::{MemberIx, MemberSet};
use wattle_rt::{Buf, BufMut, Core, Device, Durability};

use super::{Entry, Found, Keep, Lenient, Refusal, Start};
use crate::site::Plan;

const MAGIC: u64 = 0x5449_4e59_2042_4f4f;

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    generation: u64,
    dirty: bool,
    /// Dirty even when nothing is in flight: nothing has made parity and copies agree.
    unsynced: bool,
    /// Bit by slot; simulated arrays have fewer than 64.
    out: u64,
}

impl Record {
    fn encode(&self, slot: MemberIx, sector_bytes: usize) -> Buf {
        let flags = u64::from(self.dirty) | u64::from(self.unsynced) << 1;
        let words = [MAGIC, self.generation, flags, self.out, u64::from(slot.0)];
        let mut bytes = BufMut::zeroed(sector_bytes);
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes.freeze()
    }

    fn decode(bytes: &[u8], slot: MemberIx) -> Option<Record> {
        let mut words =
            bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        let mut next = || words.next().unwrap_or(0);
        let (magic, generation, flags, out, of) = (next(), next(), next(), next(), next());
        let record = Record { generation, dirty: flags & 1 == 1, unsynced: flags & 2 == 2, out };
        (magic == MAGIC && of == u64::from(slot.0)).then_some(record)
    }

    fn counts_out(&self, slot: MemberIx) -> bool {
        self.out >> slot.0 & 1 == 1
    }
}

fn redundant(plan: &Plan) -> bool {
    plan.geometry.redundancy() > 0
}

/// Clean records on every drive.
pub fn create(plan: &Plan) {
    let record = Record { generation: 1, dirty: false, unsynced: false, out: 0 };
    for slot in plan.slots() {
        plan.controls[slot.index()].poke(0, &record.encode(slot, plan.sector_bytes as usize));
    }
}

/// Makes every record clean.
pub fn set_clean(plan: &Plan) {
    for slot in plan.slots() {
        let Some(record) = read(plan, slot) else { continue };
        let record = Record { generation: record.generation + 2, dirty: false, unsynced: false, ..record };
        plan.controls[slot.index()].poke(0, &record.encode(slot, plan.sector_bytes as usize));
    }
}

fn read(plan: &Plan, slot: MemberIx) -> Option<Record> {
    let control = &plan.controls[slot.index()];
    if control.is_unreadable(0) { None } else { Record::decode(&control.peek(0, 40), slot) }
}

/// What would survive on a member.
#[must_use]
pub fn entry(plan: &Plan, member: MemberIx) -> Option<Entry> {
    let control = &plan.controls[member.index()];
    if control.is_unreadable(0) {
        return None;
    }
    let record = Record::decode(&control.peek_durable(0, 40), member)?;
    let out = plan.slots().filter(|slot| record.counts_out(*slot)).collect();
    Some(Entry { events: record.generation, clean: !record.dirty && !record.unsynced, out })
}

/// Decides what the array is.
#[must_use]
pub fn assemble(plan: &Plan, present: MemberSet, lenient: Lenient) -> Found {
    let records: Vec<Option<Record>> =
        plan.slots().map(|slot| present.contains(slot).then(|| read(plan, slot)).flatten()).collect();
    let Some(freshest) = records.iter().flatten().max_by_key(|record| record.generation).copied() else {
        return Found::Refused(Refusal::NotEnough);
    };
    let current = |slot: MemberIx| {
        let record = records[slot.index()];
        record.is_some_and(|record| {
            record.generation == freshest.generation || !freshest.counts_out(slot) || lenient.stale
        })
    };
    let states: Vec<_> = plan
        .slots()
        .map(|slot| if current(slot) { MemberState::InSync } else { MemberState::Missing })
        .collect();
    let missing: MemberSet = plan.slots().filter(|slot| !current(*slot)).collect();
    if !plan.geometry.survives(&missing) {
        return Found::Refused(Refusal::NotEnough);
    }
    if !redundant(plan) {
        return Found::Usable(Box::new(Start { states, synced_below: u64::MAX, keep: Keep::Nothing }));
    }
    let of_freshest = records.iter().flatten().filter(|record| record.generation == freshest.generation);
    let unsynced = of_freshest.clone().any(|record| record.dirty || record.unsynced);
    let refused = unsynced && !missing.is_empty() && plan.geometry.kind() == Kind::Parity;
    if refused && !lenient.dirty_degraded {
        return Found::Refused(Refusal::DirtyDegraded);
    }
    let unsynced = unsynced && !refused;
    let out = missing.iter().fold(0, |out, slot| out | 1 << slot.0);
    let record = Record { dirty: false, unsynced, out, ..freshest };
    let synced_below = if unsynced { 0 } else { u64::MAX };
    Found::Usable(Box::new(Start { states, synced_below, keep: Keep::Tiny(record) }))
}

/// Keeps the records of a running array.
pub struct Keeper {
    core: Core,
    members: Vec<Option<Device>>,
    record: RefCell<Record>,
}

impl Keeper {
    pub(super) fn new(core: &Core, devices: &[Device], states: &[MemberState], record: Record) -> Keeper {
        let members =
            devices.iter().zip(states).map(|(device, state)| state.writable().then(|| device.clone()));
        Keeper { core: core.clone(), members: members.collect(), record: RefCell::new(record) }
    }

    async fn write(&self, record: &metadata::Record) -> Result<(), MemberSet> {
        let next = {
            let mut kept = self.record.borrow_mut();
            kept.generation += 1;
            kept.dirty = record.dirty;
            kept.out = record.failed.iter().fold(kept.out, |out, slot| out | 1 << slot.0);
            *kept
        };
        let slots = (0..).map(MemberIx).zip(&self.members);
        let members: Vec<_> = slots
            .filter_map(|(slot, device)| Some((slot, device.as_ref()?)))
            .filter(|(slot, _)| !record.failed.contains(*slot))
            .collect();
        let mut failed = MemberSet::EMPTY;
        let flushes: Vec<_> = members.iter().map(|(slot, device)| (*slot, self.core.flush(device))).collect();
        for (slot, flush) in flushes {
            if flush.await.is_err() {
                failed.insert(slot);
            }
        }
        let writes = members.iter().map(|(slot, device)| {
            let bytes = next.encode(*slot, device.logical_block_bytes() as usize);
            (*slot, self.core.write(device, 0, bytes, Durability::Fua))
        });
        for (slot, write) in writes.collect::<Vec<_>>() {
            if write.await.is_err() {
                failed.insert(slot);
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }
}

impl Metadata for Keeper {
    fn commit<'a>(&'a self, record: &'a metadata::Record) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(self.write(record))
    }
}
