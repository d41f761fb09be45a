//! Metadata in one sector, and a bitmap in another: the least that keeps the engine's promises.
//!
//! A record has a generation and says what the engine wants recorded: whether the array is dirty,
//! how far it is in sync, and which drive is in which seat. The freshest record describes the
//! array; a drive is a member if that names it. A commit flushes every member, and if all of them
//! did, writes the bitmap to all of them, and then forces a record of the next generation onto all
//! of them.

use std::cell::RefCell;

use wattle_engine::geometry::LevelKind;
use wattle_engine::metadata::{self, LocalBoxFuture, Metadata, SeatRecord};
use wattle_engine::units::{MemberIx, MemberSet, Sector};
use wattle_engine::{BadRanges, MemberKey, MemberState};
use wattle_rt::{Buf, BufMut, Core, Device, Durability};

use super::{ArrayStart, AssemblyFound, DriveRecord, Keep, Lenient, Seating, SharedBits, StartRefusal};
use crate::site::SitePlan;

const MAGIC: u64 = 0x5449_4e59_2042_4f4f;

/// Bytes of a record that mean something; the least sector has room for them.
const RECORD_BYTES: usize = 512;

/// Entries of bad sectors that each member may have: eight members have them in one record.
pub const BAD_ENTRIES_MAX: usize = 1;

/// Where the bitmap is, a sector of the drive long.
const BITMAP_AT: u64 = 4096;

/// What is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TinyRecord {
    generation: u64,
    dirty: bool,
    synced_below: u64,
    seats: Vec<SeatRecord>,
}

impl TinyRecord {
    fn new(plan: &SitePlan) -> TinyRecord {
        let slots = plan.geometry.raid_disks();
        let seat = |seat: usize| SeatRecord {
            key: (seat < slots).then_some(MemberKey(seat as u32)),
            state: if seat < slots { MemberState::InSync } else { MemberState::Missing },
            by_regions: false,
            bad: BadRanges::NONE.into(),
        };
        TinyRecord {
            generation: 1,
            dirty: false,
            synced_below: u64::MAX,
            seats: (0..2 * slots).map(seat).collect(),
        }
    }

    fn encode(&self, drive: usize, sector_bytes: usize) -> Buf {
        let mut words = vec![
            MAGIC,
            self.generation,
            u64::from(self.dirty),
            self.synced_below,
            drive as u64,
            self.seats.len() as u64,
        ];
        for seat in &self.seats {
            let (state, valid_below) = match seat.state {
                MemberState::Missing => (0, 0),
                MemberState::InSync => (1, 0),
                MemberState::Rebuilding { valid_below } => (2, valid_below.0),
                MemberState::Faulty => (3, 0),
            };
            let key = seat.key.map_or(0, |key| u64::from(key.0) + 1);
            words.push(key << 8 | state << 1 | u64::from(seat.by_regions));
            words.push(valid_below);
        }
        let seats = (0u64..).zip(&self.seats);
        let bad = seats.flat_map(|(seat, who)| who.bad.iter().map(move |range| (seat, range)));
        let bad: Vec<_> = bad.collect();
        words.push(bad.len() as u64);
        for (seat, range) in bad {
            words.push(seat << 48 | (range.end - range.start).0 << 24 | range.start.0);
        }
        assert!(words.len() * 8 <= RECORD_BYTES, "a record fits the least sector");
        let mut bytes = BufMut::zeroed(sector_bytes);
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes.freeze()
    }

    fn decode(bytes: &[u8], drive: usize) -> Option<TinyRecord> {
        let mut words =
            bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        let mut next = || words.next().unwrap_or(0);
        let (magic, generation, dirty, synced_below, of) = (next(), next(), next(), next(), next());
        let mut seats: Vec<SeatRecord> = Vec::new();
        for _ in 0..next().min(64) {
            let (word, valid_below) = (next(), next());
            let state = match word >> 1 & 3 {
                0 => MemberState::Missing,
                1 => MemberState::InSync,
                2 => MemberState::Rebuilding { valid_below: Sector(valid_below) },
                _ => MemberState::Faulty,
            };
            let key = (word >> 8).checked_sub(1).map(|key| MemberKey(key as u32));
            seats.push(SeatRecord { key, state, by_regions: word & 1 == 1, bad: BadRanges::NONE.into() });
        }
        let mut bad: Vec<BadRanges> = vec![BadRanges::NONE; seats.len()];
        for _ in 0..next().min(64) {
            let word = next();
            let (start, len) = (word & 0xff_ffff, word >> 24 & 0xff_ffff);
            bad.get_mut((word >> 48) as usize)?.insert(Sector(start)..Sector(start + len));
        }
        seats.iter_mut().zip(bad).for_each(|(seat, bad)| seat.bad = bad.into());
        if magic != MAGIC || of != drive as u64 {
            return None;
        }
        Some(TinyRecord { generation, dirty: dirty == 1, synced_below, seats })
    }

    /// The seat of a drive that works.
    fn seat_of(&self, drive: usize) -> Option<usize> {
        let is = |seat: &SeatRecord| seat.state.writable() && seat.key == Some(MemberKey(drive as u32));
        self.seats.iter().position(is)
    }
}

fn redundant(plan: &SitePlan) -> bool {
    plan.geometry.redundancy() > 0
}

/// Clean records on every drive that has a slot.
pub fn create(plan: &SitePlan) {
    let record = TinyRecord::new(plan);
    for drive in 0..plan.geometry.raid_disks() {
        plan.controls[drive].poke(0, &record.encode(drive, plan.sector_bytes as usize));
    }
}

/// Makes the records of `drives` clean, and no region marked.
pub fn set_clean(plan: &SitePlan, drives: MemberSet) {
    for drive in drives.iter().map(MemberIx::index) {
        let control = &plan.controls[drive];
        let Some(record) = read(plan, drive, false) else { continue };
        let record =
            TinyRecord { generation: record.generation + 2, dirty: false, synced_below: u64::MAX, ..record };
        control.poke(0, &record.encode(drive, plan.sector_bytes as usize));
        control.poke(BITMAP_AT, &vec![0; plan.sector_bytes as usize]);
    }
}

fn read(plan: &SitePlan, drive: usize, durable: bool) -> Option<TinyRecord> {
    let control = &plan.controls[drive];
    if control.is_unreadable(0) {
        return None;
    }
    let bytes = if durable { control.peek_durable(0, RECORD_BYTES) } else { control.peek(0, RECORD_BYTES) };
    TinyRecord::decode(&bytes, drive)
}

/// What would survive on a drive.
#[must_use]
pub fn entry(plan: &SitePlan, drive: usize) -> Option<DriveRecord> {
    let record = read(plan, drive, true)?;
    let working = |slot: &MemberIx| record.seats[slot.index()].state.writable();
    Some(DriveRecord {
        events: record.generation,
        clean: !record.dirty && record.synced_below == u64::MAX,
        out: plan.slots().filter(|slot| !working(slot)).collect(),
    })
}

/// Decides what the array on the drives `present` is.
#[must_use]
pub fn assemble(plan: &SitePlan, present: MemberSet, lenient: Lenient) -> AssemblyFound {
    let here = present.iter().map(MemberIx::index);
    let records: Vec<(usize, TinyRecord)> =
        here.filter_map(|drive| Some((drive, read(plan, drive, false)?))).collect();
    // Of equal generations, the one that knows fewer members went on without the others: a commit
    // that was given up for failed may have reached them.
    let rank = |record: &TinyRecord| {
        let working = record.seats.iter().filter(|seat| seat.state.writable()).count();
        (record.generation, std::cmp::Reverse(working))
    };
    let Some((fresh_drive, freshest)) = records.iter().max_by_key(|(_, record)| rank(record)) else {
        return AssemblyFound::Refused(StartRefusal::NotEnough);
    };
    let went_on_alone = |(drive, record): &(usize, TinyRecord)| {
        rank(record) == rank(freshest)
            && record.seat_of(*drive).is_some()
            && record.seat_of(*fresh_drive).is_none()
    };
    if redundant(plan) && records.iter().any(went_on_alone) {
        return AssemblyFound::Refused(StartRefusal::Other("two went on without each other".to_owned()));
    }
    let mut record = freshest.clone();
    let slots = plan.geometry.raid_disks();
    if !redundant(plan) {
        let drives: Vec<usize> = records.iter().map(|(drive, _)| *drive).collect();
        if drives.len() < slots {
            return AssemblyFound::Refused(StartRefusal::NotEnough);
        }
        let seats = (0..2 * slots).map(|seat| match seat < slots {
            true => Seating::in_sync(seat),
            false => Seating::empty(),
        });
        return AssemblyFound::Usable(Box::new(ArrayStart::synced_start(seats.collect(), Keep::Nothing)));
    }
    if lenient.stale {
        for (drive, old) in &records {
            if let Some(seat) =
                old.seat_of(*drive).filter(|seat| *seat < slots && record.seat_of(*drive).is_none())
            {
                record.seats[seat] = old.seats[seat].clone();
            }
        }
    }
    // A member of an earlier generation is current all the same, if the freshest record names it:
    // it missed only records.
    let drives: Vec<usize> = records.iter().map(|(drive, _)| *drive).collect();
    let bits = plan.regions.as_ref().map(|shape| {
        let mut bits = shape.clone();
        for drive in drives.iter().filter(|drive| record.seat_of(**drive).is_some()) {
            let bytes = plan.controls[*drive].peek(BITMAP_AT, plan.sector_bytes as usize);
            (0..bits.count())
                .filter(|bit| bytes[(bit / 8) as usize] >> (bit % 8) & 1 == 1)
                .for_each(|bit| bits.insert(bit));
        }
        bits
    });
    for seat in &mut record.seats {
        if seat.state.writable() && !seat.key.is_some_and(|key| drives.contains(&(key.0 as usize))) {
            seat.state = MemberState::Missing;
            seat.by_regions = false;
        }
    }
    let seating: Vec<Seating> = record
        .seats
        .iter()
        .map(|seat| Seating {
            drive: seat.key.filter(|_| seat.state.writable()).map(|key| key.0 as usize),
            state: if seat.state == MemberState::Faulty { MemberState::Missing } else { seat.state },
            stale: bits.clone().filter(|_| seat.by_regions),
            bad: BadRanges::clone(&seat.bad),
        })
        .collect();
    let lost: MemberSet =
        plan.slots().filter(|slot| seating[slot.index()].state != MemberState::InSync).collect();
    if !plan.geometry.survives(&lost) {
        return AssemblyFound::Refused(StartRefusal::NotEnough);
    }
    let dirty = records.iter().any(|(_, other)| {
        other.generation == record.generation && (other.dirty || other.synced_below != u64::MAX)
    });
    let mut synced_below = if record.dirty { 0 } else { record.synced_below };
    let mut needs = None;
    if dirty && !lost.is_empty() && plan.geometry.kind() == LevelKind::Parity {
        if !lenient.dirty_degraded {
            return AssemblyFound::Refused(StartRefusal::DirtyDegraded);
        }
        synced_below = u64::MAX;
    } else if dirty {
        needs = bits.clone();
    }
    record.dirty = false;
    let keep = Keep::Tiny(record, SharedBits::of(bits.as_ref()));
    AssemblyFound::Usable(Box::new(ArrayStart {
        seats: seating,
        synced_below,
        needs,
        marked: bits,
        replays: false,
        refills: false,
        unclean: dirty,
        keep,
    }))
}

/// Keeps the records of a running array.
pub struct TinyBookkeeper {
    core: Core,
    /// Every drive, by number.
    drives: Vec<Device>,
    record: RefCell<TinyRecord>,
    bits: SharedBits,
    sector_bytes: usize,
}

impl TinyBookkeeper {
    pub(super) fn new(
        core: &Core,
        drives: &[Device],
        record: TinyRecord,
        bits: SharedBits,
        sector_bytes: u32,
    ) -> TinyBookkeeper {
        TinyBookkeeper {
            core: core.clone(),
            drives: drives.to_vec(),
            record: RefCell::new(record),
            bits,
            sector_bytes: sector_bytes as usize,
        }
    }

    /// Seats in use, with their drives.
    fn members(&self, seats: &[SeatRecord]) -> Vec<(MemberIx, usize)> {
        (0..)
            .map(MemberIx)
            .zip(seats)
            .filter(|(_, seat)| seat.state.writable())
            .filter_map(|(ix, seat)| Some((ix, seat.key?.0 as usize)))
            .collect()
    }

    async fn write(&self, wanted: &metadata::ArrayRecord) -> Result<(), MemberSet> {
        let members = self.members(&wanted.seats);
        let mut failed = MemberSet::EMPTY;
        let flushes = members.iter().map(|(seat, drive)| (*seat, self.core.flush(&self.drives[*drive])));
        for (seat, flush) in flushes.collect::<Vec<_>>() {
            if flush.await.is_err() {
                failed.insert(seat);
            }
        }
        if !failed.is_empty() {
            return Err(failed);
        }
        let next = {
            let mut kept = self.record.borrow_mut();
            kept.generation += 1;
            kept.dirty = wanted.dirty;
            kept.synced_below = wanted.synced_below.0;
            kept.seats = wanted.seats.clone();
            kept.clone()
        };
        failed = self.write_bits(&members, Durability::Fua).await;
        let writes = members.iter().map(|(seat, drive)| {
            let bytes = next.encode(*drive, self.sector_bytes);
            (*seat, self.core.write(&self.drives[*drive], 0, bytes, Durability::Fua))
        });
        for (seat, write) in writes.collect::<Vec<_>>() {
            if write.await.is_err() {
                failed.insert(seat);
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }

    async fn write_bits(&self, members: &[(MemberIx, usize)], durability: Durability) -> MemberSet {
        let mut failed = MemberSet::EMPTY;
        let Some(bytes) = self.bits.bytes(self.sector_bytes) else { return failed };
        let writes = members.iter().map(|(seat, drive)| {
            (*seat, self.core.write(&self.drives[*drive], BITMAP_AT, bytes.clone(), durability))
        });
        for (seat, write) in writes.collect::<Vec<_>>() {
            if write.await.is_err() {
                failed.insert(seat);
            }
        }
        failed
    }

    async fn change_bits(&self, regions: &[u64], on: bool, durability: Durability) -> Result<(), MemberSet> {
        self.bits.set(regions, on);
        let members = self.members(&self.record.borrow().seats);
        match self.write_bits(&members, durability).await {
            failed if failed.is_empty() => Ok(()),
            failed => Err(failed),
        }
    }
}

impl Metadata for TinyBookkeeper {
    fn commit<'a>(&'a self, record: &'a metadata::ArrayRecord) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(self.write(record))
    }

    fn mark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(self.change_bits(regions, true, Durability::Fua))
    }

    fn unmark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(self.change_bits(regions, false, Durability::Cached))
    }
}
