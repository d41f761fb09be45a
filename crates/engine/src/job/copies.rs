//! A step on levels with copies.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use wattle_rt::{Buf, BufMut};

use super::RepairSource;
use super::findings::{Mismatch, MismatchKind};
use super::reads::Missed;
use super::unit::{Attempt, Step, Task, Trouble, Writes, bytes, differences, in_sync};
use crate::level::ArrayShard;
use crate::model::geometry::Geometry;
use crate::model::health::Health;
use crate::model::units::{MemberIx, MemberSet, SECTOR_BYTES, Sector};

/// Where a copy is.
pub(super) type Place = (MemberIx, Sector);

/// A range of the array whose copies are each in one piece.
pub(super) struct Piece {
    pub lba: Sector,
    pub len: Sector,
    /// All copies: those in slots first, in md's order, then those of replacements.
    pub places: Vec<Place>,
    /// The places that are to be filled.
    targets: Vec<Place>,
}

impl Piece {
    fn new(geometry: &Geometry, lba: Sector, len: Sector) -> Self {
        let copies = geometry.copies(lba);
        let slots = geometry.raid_disks() as u16;
        let in_slots = copies.iter().map(|copy| (copy.member, copy.sector));
        let places =
            in_slots.clone().chain(in_slots.map(|(slot, sector)| (MemberIx(slot.0 + slots), sector)));
        Self { lba, len, places: places.collect(), targets: Vec::new() }
    }

    fn sectors(&self, place: Place) -> Range<Sector> {
        place.1..place.1 + self.len
    }

    fn readable(&self, health: &Health, place: Place) -> bool {
        health.readable_at(place.0, self.sectors(place), self.lba..self.lba + self.len)
    }

    fn partly_readable(&self, health: &Health, place: Place, block: Sector) -> bool {
        health.partly_readable(place.0, &self.sectors(place), &(self.lba..self.lba + self.len), block)
    }
}

/// Cuts a range at the ends of chunks.
fn cut(geometry: &Geometry, range: &Range<Sector>) -> impl Iterator<Item = (Sector, Sector)> + use<> {
    let (chunk, end) = (geometry.chunk(), range.end);
    let next = move |at: Sector| match chunk {
        Sector(0) => end,
        Sector(chunk) => Sector((at.0 / chunk + 1) * chunk).min(end),
    };
    std::iter::successors(Some(range.start), move |&at| Some(next(at)))
        .take_while(move |&at| at < end)
        .map(move |at| (at, next(at) - at))
}

/// The pieces of a range: of array sectors, or for a recovery of member sectors.
fn pieces(geometry: &Geometry, task: &Task, range: &Range<Sector>) -> Vec<Piece> {
    let Task::Recover(targets) = task else {
        return cut(geometry, range).map(|(lba, len)| Piece::new(geometry, lba, len)).collect();
    };
    let slots = geometry.raid_disks() as u16;
    let mut pieces: BTreeMap<(Sector, Sector), Piece> = BTreeMap::new();
    for &seat in targets {
        for (sector, len) in cut(geometry, range) {
            // Not every place of a member holds a copy.
            let Some(lba) = geometry.array_sector_at(MemberIx(seat.0 % slots), sector) else { continue };
            let piece = pieces.entry((lba, len)).or_insert_with(|| Piece::new(geometry, lba, len));
            piece.targets.push((seat, sector));
        }
    }
    pieces.into_values().collect()
}

/// The ranges of array sectors that a step needs to itself.
pub(super) fn held(
    shard: &Rc<ArrayShard>,
    task: &Task,
    range: &Range<Sector>,
) -> impl Iterator<Item = (Sector, Sector)> + use<> {
    pieces(&shard.fixed.geometry, task, range).into_iter().map(|piece| (piece.lba, piece.len))
}

/// What came of reading copies, by piece and place.
#[derive(Default)]
struct Copies {
    contents: BTreeMap<(usize, Place), Buf>,
    bad: Vec<Place>,
    /// The places that were not read in time.
    missing: Vec<(usize, Place)>,
}

impl Step<'_> {
    pub(super) async fn copies(&mut self, range: &Range<Sector>, last: bool) -> Result<Attempt, Trouble> {
        let pieces = pieces(&self.shard.fixed.geometry, self.task, range);
        let mut unreadable: BTreeSet<Place> = BTreeSet::new();
        // Members that did not answer here. A recovery asks others, as long as there are any; a
        // resync needs all.
        let mut late = MemberSet::default();
        let everybody: MemberSet = (0..2 * self.slots() as u16).map(MemberIx).collect();
        loop {
            let health = self.health()?;
            let at_hand =
                |piece: &Piece, place: &Place| !unreadable.contains(place) && piece.readable(&health, *place);
            let mut wanted: Vec<(usize, Place)> = Vec::new();
            let mut patient = match self.task {
                Task::Recover(_) => late,
                Task::Resync => everybody,
                Task::Check | Task::Repair(_) => MemberSet::EMPTY,
            };
            for (number, piece) in pieces.iter().enumerate() {
                let here = piece.places.iter().copied().filter(|place| at_hand(piece, place));
                let defect = |place: &Place| in_sync(&health, place.0) && !at_hand(piece, place);
                match self.task {
                    Task::Recover(_) => {
                        // What a copy has is not made from others, and what a member has that is
                        // being filled is not written again.
                        let partly = |place: &Place| piece.partly_readable(&health, *place, self.block());
                        if !last && piece.places.iter().any(partly) {
                            return Ok(Attempt::Split);
                        }
                        let needed: Vec<Place> = self.needed(&health, piece);
                        let source = self.source(&needed, here.clone(), &late);
                        if needed.is_empty() {
                            continue;
                        }
                        match source {
                            Some(source) => {
                                if here.filter(|place| !needed.contains(place)).count() == 1 {
                                    patient.insert(source.0);
                                }
                                wanted.push((number, source));
                            }
                            None if !last => return Ok(Attempt::Split),
                            None => {}
                        }
                    }
                    Task::Check | Task::Repair(_) | Task::Resync => {
                        // No step comes again for what is current on a member that is being filled.
                        let partly = |place: &Place| piece.partly_readable(&health, *place, self.block());
                        if !last && piece.places.iter().any(|place| defect(place) || partly(place)) {
                            return Ok(Attempt::Split);
                        }
                        // What is there once agrees with itself; a check reads it all the same.
                        let alone = *self.task == Task::Resync && here.clone().count() == 1;
                        if !alone || piece.places.iter().any(defect) {
                            wanted.extend(here.map(|place| (number, place)));
                        }
                    }
                }
            }
            let Copies { contents, bad, missing } = self.read_copies(&pieces, wanted, last, &patient).await?;
            if !bad.is_empty() && !last {
                return Ok(Attempt::Split);
            }
            let ask_others = !missing.is_empty() && matches!(self.task, Task::Recover(_));
            if !bad.is_empty() || ask_others {
                unreadable.extend(bad);
                late = late.union(&missing.iter().map(|(_, place)| place.0).collect());
                continue;
            }
            let mut writes = Writes::default();
            let mut proven = Writes::default();
            for (number, piece) in pieces.iter().enumerate() {
                if missing.iter().any(|(other, _)| *other == number) {
                    self.found.late_sectors += piece.len.0;
                    continue;
                }
                let mut found: Vec<(Place, Buf)> = piece
                    .places
                    .iter()
                    .filter_map(|place| contents.get(&(number, *place)).map(|buf| (*place, buf.clone())))
                    .collect();
                let defects: Vec<Place> = piece
                    .places
                    .iter()
                    .copied()
                    .filter(|place| in_sync(&health, place.0) && !at_hand(piece, place))
                    .collect();
                match self.task {
                    Task::Recover(_) => {
                        self.fill(&health, piece, &found, &unreadable, &mut writes).await?;
                    }
                    Task::Resync => self.align(piece, &found, &defects, &unreadable, &mut writes).await?,
                    Task::Check => {
                        let (judged, equal) = self.judge_copies(piece, &mut found, &mut proven);
                        self.compare(piece, None, (&found, equal), &defects, &unreadable, &mut writes);
                        self.take_sums(judged);
                    }
                    Task::Repair(source) => {
                        if !health.trust.covers(piece.lba..piece.lba + piece.len) {
                            return Err(Trouble::Untrusted);
                        }
                        let (judged, equal) = self.judge_copies(piece, &mut found, &mut proven);
                        let copies = (&found[..], equal);
                        self.compare(piece, Some(*source), copies, &defects, &unreadable, &mut writes);
                        self.take_sums(judged);
                    }
                }
            }
            self.store_proven(proven).await?;
            self.store(writes).await?;
            return Ok(Attempt::Done);
        }
    }

    /// The places of a piece that are to be filled and are not current yet.
    fn needed(&self, health: &Health, piece: &Piece) -> Vec<Place> {
        let needs = |place: &Place| {
            health.state(place.0).writable() && !in_sync(health, place.0) && !piece.readable(health, *place)
        };
        piece.targets.iter().copied().filter(needs).collect()
    }

    /// Where a piece is copied from: for a replacement from the member that it replaces, while that
    /// reads. From a member that does not answer in time only if no other has it.
    fn source(
        &self,
        needed: &[Place],
        here: impl Iterator<Item = Place> + Clone,
        late: &MemberSet,
    ) -> Option<Place> {
        let replaced = |place: &Place| {
            needed
                .iter()
                .any(|(seat, at)| *seat != place.0 && self.slot_of(*seat) == place.0 && *at == place.1)
        };
        let all = here.filter(|place| !needed.contains(place));
        all.min_by_key(|place| {
            (late.contains(place.0), self.shard.members.is_slow(place.0), !replaced(place))
        })
    }

    /// Reads copies; those that follow one another on a member as one, unless the last word on each
    /// block is wanted.
    async fn read_copies(
        &mut self,
        pieces: &[Piece],
        mut wanted: Vec<(usize, Place)>,
        last: bool,
        patient: &MemberSet,
    ) -> Result<Copies, Trouble> {
        wanted.sort_unstable_by_key(|(_, place)| *place);
        let mut runs: Vec<(MemberIx, Sector, Vec<BufMut>)> = Vec::new();
        let mut parts: Vec<Vec<(usize, Place)>> = Vec::new();
        let mut end = (MemberIx(0), Sector(0));
        for (number, place) in wanted {
            let len = pieces[number].len;
            let buf = BufMut::alloc(bytes(len));
            match (runs.last_mut(), parts.last_mut()) {
                (Some(run), Some(part)) if !last && end == place && run.2.len() < 256 => {
                    run.2.push(buf);
                    part.push((number, place));
                }
                _ => {
                    runs.push((place.0, place.1, vec![buf]));
                    parts.push(vec![(number, place)]);
                }
            }
            end = (place.0, place.1 + len);
        }
        let (mut copies, mut errors) = (Copies::default(), Vec::new());
        for ((seat, result), part) in self.read(runs, patient).await?.into_iter().zip(parts) {
            match result {
                Ok(bufs) => {
                    let bufs = bufs.into_iter().map(BufMut::freeze);
                    copies.contents.extend(part.into_iter().zip(bufs));
                }
                Err(Missed::Failed(error)) => {
                    errors.push((seat, error));
                    copies.bad.extend(part.into_iter().map(|(_, place)| place));
                }
                Err(Missed::Late) => copies.missing.extend(part),
            }
        }
        self.judge(errors, last).await?;
        Ok(copies)
    }

    /// Recovery of one piece.
    async fn fill(
        &mut self,
        health: &Health,
        piece: &Piece,
        found: &[(Place, Buf)],
        unreadable: &BTreeSet<Place>,
        writes: &mut Writes,
    ) -> Result<(), Trouble> {
        let needed = self.needed(health, piece);
        let Some((_, buf)) = found.first() else {
            // No member has this block.
            for place in needed {
                self.pass_on(place.0, piece.sectors(place)).await?;
            }
            return Ok(());
        };
        needed.iter().for_each(|place| writes.add(place.0, place.1, buf.clone()));
        for place in piece.places.iter().filter(|place| unreadable.contains(place)) {
            self.note(piece.lba..piece.lba + piece.len).await?;
            writes.add(place.0, place.1, buf.clone());
            self.note_repair();
        }
        Ok(())
    }

    /// Resync of one piece: what the first copy says.
    async fn align(
        &mut self,
        piece: &Piece,
        found: &[(Place, Buf)],
        defects: &[Place],
        unreadable: &BTreeSet<Place>,
        writes: &mut Writes,
    ) -> Result<(), Trouble> {
        let Some((first, others)) = found.split_first() else {
            if defects.is_empty() {
                return Ok(());
            }
            self.found.unreadable_sectors += piece.len.0;
            // They agree in that none can be read, and shall go on to.
            for place in defects.iter().filter(|place| unreadable.contains(place)) {
                self.mark_bad(place.0, piece.sectors(*place)).await?;
            }
            return Ok(());
        };
        for (place, buf) in others {
            for run in differences(&first.1, buf, bytes(self.block())) {
                writes.add(place.0, place.1 + Sector(run.start as u64 / SECTOR_BYTES), first.1.slice(run));
            }
        }
        let mut rewritten: BTreeSet<Place> = defects.iter().copied().collect();
        rewritten.extend(unreadable.iter().filter(|place| piece.places.contains(place)));
        for place in rewritten {
            writes.add(place.0, place.1, first.1.clone());
            self.note_repair();
        }
        Ok(())
    }

    /// Check of one piece.
    fn compare(
        &mut self,
        piece: &Piece,
        source: Option<RepairSource>,
        (found, equal): (&[(Place, Buf)], bool),
        defects: &[Place],
        unreadable: &BTreeSet<Place>,
        writes: &mut Writes,
    ) {
        let Some((first, others)) = found.split_first() else {
            if !defects.is_empty() {
                self.found.unreadable_sectors += piece.len.0;
            }
            return;
        };
        let block = bytes(self.block());
        let len = first.1.len();
        let mut agreed = true;
        if !equal && others.iter().any(|(_, buf)| buf[..] != first.1[..]) {
            agreed = false;
            for from in (0..len).step_by(block) {
                let here = from..(from + block).min(len);
                self.compare_block(piece, source, found, here, writes);
            }
        }
        // Known bad sectors stay what they are unless a repair was asked for.
        let mut rewritten = false;
        for place in defects.iter().filter(|place| unreadable.contains(place) || source.is_some()) {
            if agreed {
                writes.add(place.0, place.1, first.1.clone());
                self.note_repair();
                rewritten = true;
            }
        }
        if others.is_empty() && !rewritten && piece.places.len() > 1 {
            self.found.alone_sectors += piece.len.0;
        }
    }

    fn compare_block(
        &mut self,
        piece: &Piece,
        source: Option<RepairSource>,
        found: &[(Place, Buf)],
        here: Range<usize>,
        writes: &mut Writes,
    ) {
        let content = |at: usize| &found[at].1[here.clone()];
        if (1..found.len()).all(|at| content(at) == content(0)) {
            return;
        }
        let votes = |at: usize| (0..found.len()).filter(|other| content(*other) == content(at)).count();
        let majority = (0..found.len()).find(|at| 2 * votes(*at) > found.len());
        let reference = majority.unwrap_or(0);
        let differ: Vec<usize> = (0..found.len()).filter(|at| content(*at) != content(reference)).collect();
        let offset = Sector(here.start as u64 / SECTOR_BYTES);
        let blocks = Sector(here.len() as u64 / SECTOR_BYTES);
        let seats: MemberSet = differ.iter().map(|at| found[*at].0.0).collect();
        let member = found[0].0.1 + offset;
        let verdict = self.disagrees(&(piece.lba + offset..piece.lba + offset + blocks));
        self.found.add(Mismatch {
            kind: MismatchKind::Copies { differ: seats },
            array: piece.lba + offset..piece.lba + offset + blocks,
            member: member..member + blocks,
            culprit: majority.and(match &differ[..] {
                [one] => Some(found[*one].0.0),
                _ => None,
            }),
            sums: verdict,
        });
        let right = match source {
            Some(RepairSource::CopyFrom(slot)) => found.iter().position(|(place, _)| place.0 == slot),
            Some(RepairSource::Majority) => majority,
            _ => None,
        };
        let Some(right) = right else { return };
        self.found.agreed_sectors += blocks.0;
        for (at, (place, _)) in found.iter().enumerate() {
            if content(at) != content(right) {
                writes.add(place.0, place.1 + offset, found[right].1.slice(here.clone()));
            }
        }
    }

    fn note_repair(&mut self) {
        self.found.repaired += 1;
        self.shard.state.counters.repaired.add(1);
    }
}
