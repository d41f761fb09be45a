//! What a step makes of the sums of the last recorded scrub, and those that it takes.
//!
//! Blocks are judged before redundancy is compared: where a block differs from its sum, and what
//! the others give has that sum, the block rotted silently, and redundancy is compared with what
//! it was. So what is left of a difference is one that sums do not explain.

use std::ops::Range;
use std::rc::Rc;

use wattle_rt::{Buf, BufMut};

use super::RepairSource;
use super::copies::{Piece, Place};
use super::findings::{Mismatch, MismatchKind, SumVerdict};
use super::parity::Part;
use super::unit::{Step, Task, Writes, bytes, differences};
use crate::level::ArrayShard;
use crate::model::health::Health;
use crate::model::sums::SumSpec;
use crate::model::units::{MemberIx, MemberSet, SECTOR_BYTES, Sector};
use crate::planted::{self, Bug};
use crate::state::Home;
use crate::state::sums::{BlockSums, KnownBlock, KnownSums};

/// Whether a sweep takes sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recording {
    Off,
    /// Where a block is not what was recorded, the earlier sum stays: the next sweep tells of it
    /// too.
    Keeps,
    /// Where redundancy agrees, what is there is taken for right.
    Accepts,
}

/// What a sweep does with sums.
#[derive(Debug, Clone, Copy)]
pub(super) struct SumUse {
    /// Whether they are taken.
    pub record: Recording,
    /// Where the last block ends.
    pub end: Sector,
}

/// The sums of a step's blocks.
#[derive(Debug)]
pub(super) struct TakenSums {
    /// The number of the first block.
    pub first: u64,
    /// By block.
    pub sums: Vec<BlockSums>,
}

/// The sums of a step while it is at work.
pub(super) struct StepSums {
    spec: SumSpec,
    end: Sector,
    accepts: bool,
    first: u64,
    known: KnownSums,
    taken: Vec<BlockSums>,
    /// Where redundancy disagrees, and sums do not say why: in the space of
    /// [`crate::model::geometry::Geometry::sync_sectors`].
    disagree: Vec<Range<Sector>>,
}

/// A block that was looked at.
pub(super) struct JudgedBlock {
    index: usize,
    /// Its place in the space of [`crate::model::geometry::Geometry::sync_sectors`].
    sectors: Range<Sector>,
    /// What is to be kept, by lane.
    sums: BlockSums,
    /// It is not what it was, and that is not explained.
    unexplained: bool,
}

impl StepSums {
    /// What is known of a range that the step holds.
    pub async fn fetch(
        shard: &Rc<ArrayShard>,
        task: &Task,
        range: &Range<Sector>,
        sums: SumUse,
    ) -> Option<Self> {
        let spec = shard.fixed.sums.as_ref()?;
        if !matches!(task, Task::Check | Task::Repair(RepairSource::Sums)) {
            return None;
        }
        let record = sums.record != Recording::Off;
        let (key, asked) = (shard.fixed.home_key(), range.clone());
        let known = shard.core.call(shard.fixed.home, move |core| async move {
            core.local::<Home>(key)?.known_sums(&asked, record).await
        });
        let (first, known) = known.await?;
        let void = |slot: MemberIx| known.void.contains(slot);
        let kept = |(number, block): (u64, &KnownBlock)| {
            let mut sums = block.sums.clone();
            sums.resize(spec.lanes, None);
            for (lane, sum) in sums.iter_mut().enumerate() {
                if block.written || slot_of_lane(shard, spec, number, lane).is_none_or(void) {
                    *sum = None;
                }
            }
            sums
        };
        let taken: Vec<BlockSums> = (first..).zip(&known.blocks).map(kept).collect();
        let (end, accepts) = (sums.end, sums.record == Recording::Accepts);
        Some(Self { spec: spec.clone(), end, accepts, first, known, taken, disagree: Vec::new() })
    }

    /// The sums to keep.
    pub fn taken(self) -> TakenSums {
        TakenSums { first: self.first, sums: self.taken }
    }

    /// The blocks that lie in a range as a whole: their index and place.
    fn whole_blocks(&self, range: &Range<Sector>) -> impl Iterator<Item = (usize, Range<Sector>)> + use<> {
        let (block, end, first, range) = (self.spec.block.0, self.end, self.first, range.clone());
        (0..self.taken.len()).filter_map(move |index| {
            let start = Sector((first + index as u64) * block);
            let whole = start..(start + Sector(block)).min(end);
            (whole.start >= range.start && whole.end <= range.end && !whole.is_empty())
                .then_some((index, whole))
        })
    }
}

/// The slot that has a lane of a block.
fn slot_of_lane(shard: &ArrayShard, spec: &SumSpec, number: u64, lane: usize) -> Option<MemberIx> {
    let geometry = &shard.fixed.geometry;
    match geometry.kind() {
        crate::model::geometry::LevelKind::Parity => Some(MemberIx(lane as u16)),
        _ => geometry.copies(Sector(number * spec.block.0)).iter().nth(lane).map(|copy| copy.member),
    }
}

impl Step<'_> {
    /// Redundancy disagrees somewhere. What sums say of it.
    pub(super) fn disagrees(&mut self, sectors: &Range<Sector>) -> SumVerdict {
        let Some(sums) = &mut self.sums else { return SumVerdict::Nothing };
        sums.disagree.push(sectors.clone());
        let index = (sectors.start.0 / sums.spec.block.0).saturating_sub(sums.first) as usize;
        match sums.known.blocks.get(index) {
            Some(block) if block.written => SumVerdict::Written,
            _ => SumVerdict::Nothing,
        }
    }

    /// Keeps the sums of blocks whose redundancy was compared.
    pub(super) fn take_sums(&mut self, judged: Vec<JudgedBlock>) {
        let Some(sums) = &mut self.sums else { return };
        for JudgedBlock { index, sectors, sums: new, unexplained } in judged {
            let overlaps = |other: &Range<Sector>| other.start < sectors.end && sectors.start < other.end;
            if sums.disagree.iter().any(overlaps) {
                // Which member is right is not known: what was known of each stays.
                continue;
            }
            if unexplained {
                self.found.sums.unexplained_sectors += (sectors.end - sectors.start).0;
            }
            sums.taken[index] = new;
        }
    }

    /// The parts of a range that are judged and compared one after the other: blocks, where there
    /// are sums.
    pub(super) fn cells(&self, range: &Range<Sector>) -> Vec<Range<Sector>> {
        let Some(sums) = &self.sums else { return std::iter::once(range.clone()).collect() };
        let block = sums.spec.block.0;
        let next = |at: Sector| Sector((at.0 / block + 1) * block).min(range.end);
        let starts = std::iter::successors(Some(range.start), |at| Some(next(*at)));
        starts.take_while(|at| *at < range.end).map(|at| at..next(at)).collect()
    }

    /// Judges the blocks of rows in a cell, puts what rotted right in `row`, and adds what a
    /// repair writes.
    pub(super) fn judge_rows(
        &mut self,
        health: &Health,
        parts: &[Part],
        row: &mut [Option<BufMut>],
        have: &MemberSet,
        (range, cell): (&Range<Sector>, &Range<Sector>),
        proven: &mut Writes,
    ) -> Vec<JudgedBlock> {
        let Some(sums) = &self.sums else { return Vec::new() };
        let blocks: Vec<_> = sums.whole_blocks(cell).collect();
        let (sum, lanes) = (sums.spec.sum, sums.spec.lanes);
        let mut judged = Vec::with_capacity(blocks.len());
        for (index, sectors) in blocks {
            let Some(sums) = &self.sums else { break };
            let at = bytes(sectors.start - range.start)..bytes(sectors.end - range.start);
            let known = sums.taken[index].clone();
            let mut now: BlockSums = vec![None; lanes];
            for slot in have.iter().filter(|slot| slot.index() < lanes) {
                now[slot.index()] = row[slot.index()].as_ref().map(|buf| sum(&buf[at.clone()]));
            }
            let (differ, compared) = compare(&known, &now);
            self.found.sums.compared_sectors += compared * (sectors.end - sectors.start).0;
            let mut keep = merge(&known, &now);
            let mut unexplained = false;
            if !differ.is_empty() {
                let cut: Vec<Part> = parts.iter().filter_map(|part| cut(part, &at, range)).collect();
                let right = prove_rows(&cut, row, have, &differ, &at, |slot, right| {
                    planted::is(Bug::SumsUnproven) || known[slot.index()] == Some(sum(right))
                });
                let nothing_compared = cut.iter().all(|part| part.missing(have) >= part.parity_at_hand(have));
                let verdict = match (&right, &differ[..]) {
                    (Some(_), _) => Some(SumVerdict::Proven),
                    (None, [_]) if nothing_compared && compared as usize == have.len() => {
                        Some(SumVerdict::Rotted)
                    }
                    _ => None,
                };
                unexplained = verdict.is_none();
                if !(unexplained && sums.accepts) {
                    differ.iter().for_each(|slot| keep[slot.index()] = known[slot.index()]);
                }
                if let Some(verdict) = verdict {
                    let right = right.unwrap_or_default();
                    self.accuse_rows(health, &cut, row, &at, (&differ, verdict), &right, proven);
                }
            }
            judged.push(JudgedBlock { index, sectors, sums: keep, unexplained });
        }
        judged
    }

    /// Reports members that rotted in one block; those that can be made anew are, in memory, and in
    /// a repair on the member.
    #[expect(clippy::too_many_arguments, reason = "all of it is of one block")]
    fn accuse_rows(
        &mut self,
        health: &Health,
        cut: &[Part],
        row: &mut [Option<BufMut>],
        at: &Range<usize>,
        (differ, verdict): (&[MemberIx], SumVerdict),
        right: &[(MemberIx, BufMut)],
        proven: &mut Writes,
    ) {
        let repairs = matches!(self.task, Task::Repair(_));
        for &slot in differ {
            let Some((_, right)) = right.iter().find(|(of, _)| *of == slot) else {
                self.accuse_block(cut, slot, verdict);
                continue;
            };
            let Some(found) = row[slot.index()].as_mut() else { continue };
            for part in cut {
                let here = &found[at.start + part.bytes.start..at.start + part.bytes.end];
                for run in differences(&right[part.bytes.clone()], here, bytes(self.block())) {
                    let sector = |byte: usize| part.sectors.start + Sector(byte as u64 / SECTOR_BYTES);
                    let sectors = sector(run.start)..sector(run.end);
                    let block = part.data().position(|data| data == slot);
                    let place = self.mismatch(part, &sectors, Some(slot), block);
                    self.found.add(Mismatch { sums: verdict, ..place });
                    self.count_rot(verdict, sectors.end - sectors.start);
                    if repairs {
                        let from = part.bytes.start;
                        let buf = Buf::copy_of(&right[from + run.start..from + run.end]);
                        for seat in health.writable_for(slot) {
                            proven.add(seat, sectors.start, buf.clone());
                        }
                    }
                }
            }
            found[at.clone()].copy_from_slice(right);
        }
    }

    /// Reports a member that rotted somewhere in a block: without what it was, nothing says where.
    fn accuse_block(&mut self, cut: &[Part], slot: MemberIx, verdict: SumVerdict) {
        let places = cut.iter().map(|part| {
            let block = part.data().position(|data| data == slot);
            self.mismatch(part, &part.sectors, Some(slot), block)
        });
        let whole = places.reduce(|mut all, next| {
            all.array = all.array.start.min(next.array.start)..all.array.end.max(next.array.end);
            all.member.end = next.member.end;
            all
        });
        let Some(whole) = whole else { return };
        self.count_rot(verdict, whole.member.end - whole.member.start);
        self.found.add(Mismatch { sums: verdict, ..whole });
    }

    fn count_rot(&mut self, verdict: SumVerdict, sectors: Sector) {
        match verdict {
            SumVerdict::Proven => self.found.sums.proven_sectors += sectors.0,
            SumVerdict::Rotted => self.found.sums.rotted_sectors += sectors.0,
            SumVerdict::Nothing | SumVerdict::Written => {}
        }
    }

    /// As [`Self::judge_rows`], of the copies of a piece. Says whether all of them are equal.
    pub(super) fn judge_copies(
        &mut self,
        piece: &Piece,
        found: &mut [(Place, Buf)],
        proven: &mut Writes,
    ) -> (Vec<JudgedBlock>, bool) {
        let Some(sums) = &self.sums else { return (Vec::new(), false) };
        let whole = piece.lba..piece.lba + piece.len;
        let blocks: Vec<_> = sums.whole_blocks(&whole).collect();
        let mut equal = piece.len;
        let (sum, lanes) = (sums.spec.sum, sums.spec.lanes);
        let lane_of = |place: &Place| piece.places[..lanes].iter().position(|other| other == place);
        let repairs = matches!(self.task, Task::Repair(_));
        let mut judged = Vec::with_capacity(blocks.len());
        for (index, sectors) in blocks {
            let Some(sums) = &self.sums else { break };
            let at = bytes(sectors.start - piece.lba)..bytes(sectors.end - piece.lba);
            let known = sums.taken[index].clone();
            let mut now: BlockSums = vec![None; lanes];
            for (place, buf) in found.iter() {
                if let Some(lane) = lane_of(place) {
                    now[lane] = Some(sum(&buf[at.clone()]));
                }
            }
            let (differ, compared) = compare(&known, &now);
            self.found.sums.compared_sectors += compared * (sectors.end - sectors.start).0;
            let mut keep = merge(&known, &now);
            let (mut unexplained, accepts) = (false, sums.accepts);
            // What was summed is in the processor's caches.
            let same = |(_, buf): &(Place, Buf)| buf[at.clone()] == found[0].1[at.clone()];
            if found.iter().skip(1).all(same) {
                equal -= sectors.end - sectors.start;
            }
            for lane in differ.iter().map(|lane| lane.index()) {
                let place = piece.places[lane];
                let source = found.iter().position(|(other, _)| {
                    let other = lane_of(other).filter(|other| *other != lane);
                    let same = |other: usize| planted::is(Bug::SumsUnproven) || now[other] == known[lane];
                    other.is_some_and(same)
                });
                let own = found.iter().position(|(other, _)| *other == place);
                let (verdict, right) = match source {
                    Some(source) => (SumVerdict::Proven, Some(found[source].1.slice(at.clone()))),
                    None if found.len() == 1 => (SumVerdict::Rotted, None),
                    None => {
                        unexplained = true;
                        if !accepts {
                            keep[lane] = known[lane];
                        }
                        continue;
                    }
                };
                let Some(own) = own else { continue };
                keep[lane] = known[lane];
                let here = found[own].1.slice(at.clone());
                let runs = match &right {
                    Some(right) => differences(right, &here, bytes(self.block())),
                    None => std::iter::once(0..here.len()).collect(),
                };
                for run in runs {
                    let offset = |byte: usize| Sector((at.start + byte) as u64 / SECTOR_BYTES);
                    let (from, to) = (offset(run.start), offset(run.end));
                    self.found.add(Mismatch {
                        kind: MismatchKind::Copies { differ: std::iter::once(place.0).collect() },
                        array: piece.lba + from..piece.lba + to,
                        member: place.1 + from..place.1 + to,
                        culprit: Some(place.0),
                        sums: verdict,
                    });
                    self.count_rot(verdict, to - from);
                    if let (true, Some(right)) = (repairs, &right) {
                        proven.add(place.0, place.1 + from, right.slice(run));
                    }
                }
                if let Some(right) = right {
                    let mut whole = BufMut::copy_of(&found[own].1);
                    whole[at.clone()].copy_from_slice(&right);
                    found[own].1 = whole.freeze();
                }
            }
            judged.push(JudgedBlock { index, sectors, sums: keep, unexplained });
        }
        (judged, equal == Sector(0))
    }
}

/// The lanes that differ from their sum, and how many were compared with one.
fn compare(known: &[Option<u64>], now: &[Option<u64>]) -> (Vec<MemberIx>, u64) {
    let pairs = known.iter().zip(now).enumerate();
    let pairs: Vec<_> = pairs.filter_map(|(lane, (known, now))| Some((lane, (*known)?, (*now)?))).collect();
    let differ = pairs.iter().filter(|(_, known, now)| known != now);
    (differ.map(|(lane, ..)| MemberIx(*lane as u16)).collect(), pairs.len() as u64)
}

/// What is found, and what is known where nothing is found.
fn merge(known: &[Option<u64>], now: &[Option<u64>]) -> BlockSums {
    known.iter().zip(now).map(|(known, now)| now.or(*known)).collect()
}

/// The part of a part that lies in a block, with its bytes counted from the start of the block.
fn cut(part: &Part, block: &Range<usize>, range: &Range<Sector>) -> Option<Part> {
    let (from, to) = (part.bytes.start.max(block.start), part.bytes.end.min(block.end));
    (from < to).then(|| Part {
        map: part.map,
        sectors: range.start + Sector(from as u64 / SECTOR_BYTES)
            ..range.start + Sector(to as u64 / SECTOR_BYTES),
        bytes: from - block.start..to - block.start,
    })
}

/// Makes the blocks of `differ` from the others. `None` if that cannot be done, or one of them
/// does not come out as `is_right` says.
fn prove_rows(
    cut: &[Part],
    row: &[Option<BufMut>],
    have: &MemberSet,
    differ: &[MemberIx],
    at: &Range<usize>,
    is_right: impl Fn(MemberIx, &[u8]) -> bool,
) -> Option<Vec<(MemberIx, BufMut)>> {
    let lost: MemberSet = differ.iter().copied().collect();
    let sources = have.without(&lost);
    if cut.iter().any(|part| part.missing(&sources) > part.parity_at_hand(&sources)) {
        return None;
    }
    let mut others: Vec<Option<BufMut>> = row.iter().map(|_| None).collect();
    let data = cut.iter().flat_map(Part::data);
    for slot in data.chain(have.iter()).filter(|slot| slot.index() < row.len()) {
        others[slot.index()].get_or_insert_with(|| match &row[slot.index()] {
            Some(buf) => BufMut::copy_of(&buf[at.clone()]),
            None => BufMut::alloc(at.len()),
        });
    }
    cut.iter().for_each(|part| part.complete(&mut others, &sources, [None, None]));
    let made = |slot: &MemberIx| Some((*slot, others[slot.index()].take()?));
    let made: Vec<_> = differ.iter().filter_map(made).collect();
    let all = made.len() == differ.len() && made.iter().all(|(slot, right)| is_right(*slot, right));
    all.then_some(made)
}
