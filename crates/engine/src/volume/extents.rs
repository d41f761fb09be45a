//! Which parts of a volume are known to be zeros, without reading them: what maps have nowhere, and
//! what lies in holes of members.
//!
//! Invariant: what is called zeros read as zeros at some moment between the call and its answer, by
//! every member that reads may be answered from.

use std::collections::BTreeMap;
use std::ops::Range;

use wattle_rt::{Device, Either, race};

use super::array::ArrayVolume;
use super::mapped::MappedVolume;
use super::{Place, Volume, map};
use crate::model::error::VolumeError;
use crate::model::geometry::LevelKind;
use crate::model::health::Health;
use crate::model::units::{MemberIx, SECTOR_BYTES, Sector};

/// A run of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeExtent {
    /// How long it is, in bytes.
    pub len_bytes: u64,
    /// It is known to read as zeros.
    pub is_zero: bool,
}

/// So much of an array is looked at by one call: a core does so without a break.
const LOOK_BYTES_MAX: u64 = 256 << 20;
/// And so many runs of it, where chunks are small.
const RUNS_MAX: usize = 4096;
/// Holes of one member that one call learns of.
const HOLES_MAX: usize = 4096;
/// Looks for holes at a time, on each core.
const LOOKS_MAX: usize = 8;

/// Runs in order, those of a kind that touch made one.
#[derive(Default)]
struct Extents(Vec<VolumeExtent>);

impl Extents {
    fn push(&mut self, len_bytes: u64, is_zero: bool) {
        match self.0.last_mut() {
            Some(last) if last.is_zero == is_zero => last.len_bytes += len_bytes,
            _ => self.0.push(VolumeExtent { len_bytes, is_zero }),
        }
    }
}

impl Volume {
    /// What is known of a range: runs that cover it from its start on, at least one, and the end of
    /// it only as far as that was cheap to find.
    ///
    /// # Errors
    /// [`VolumeError::OutOfRange`] for an empty range or one beyond the end;
    /// [`VolumeError::Stopped`].
    pub async fn extents(&self, offset_bytes: u64, len_bytes: u64) -> Result<Vec<VolumeExtent>, VolumeError> {
        let end = offset_bytes.checked_add(len_bytes).filter(|end| *end <= self.size_bytes());
        if end.is_none_or(|end| end == offset_bytes) {
            return Err(VolumeError::OutOfRange);
        }
        match &self.place {
            Place::Array(array) => Ok(array.extents(offset_bytes, len_bytes).await),
            Place::Mapped(mapped) => mapped.extents(offset_bytes, len_bytes).await,
        }
    }
}

impl MappedVolume {
    async fn extents(&self, offset_bytes: u64, len_bytes: u64) -> Result<Vec<VolumeExtent>, VolumeError> {
        /// Pieces of one call: what is below is asked for each.
        const PIECES_MAX: usize = 64;
        let opened = self.opened_for(offset_bytes, len_bytes)?;
        let mut extents = Extents::default();
        for piece in opened.map.pieces(offset_bytes, len_bytes).take(PIECES_MAX) {
            let leg = match piece.to {
                map::Place::Zero => {
                    extents.push(piece.len_bytes, true);
                    continue;
                }
                // A read says what is wrong.
                map::Place::Missing => {
                    extents.push(piece.len_bytes, false);
                    continue;
                }
                map::Place::Below(leg) => leg,
            };
            let found = Box::pin(opened.below[leg.below].extents(leg.offset_bytes, piece.len_bytes)).await?;
            let known: u64 = found.iter().map(|extent| extent.len_bytes).sum();
            found.iter().for_each(|extent| extents.push(extent.len_bytes, extent.is_zero));
            if known < piece.len_bytes {
                break;
            }
        }
        Ok(extents.0)
    }
}

/// A run of an array that is in one piece on every member that has it.
struct PlacedRun {
    len: Sector,
    /// Where it is read from, or may be; empty if a read would have to compute it, or fail.
    places: Vec<(MemberIx, Range<u64>)>,
}

impl ArrayVolume {
    async fn extents(&self, offset_bytes: u64, len_bytes: u64) -> Vec<VolumeExtent> {
        let len_bytes = len_bytes.min(LOOK_BYTES_MAX);
        let (start, end) = self.widen(offset_bytes, len_bytes);
        let health = self.shard.members.health();
        let runs = self.placed_runs(&health, Sector(start / SECTOR_BYTES), Sector(end / SECTOR_BYTES));
        let holes = self.holes_of(&health, &runs).await;
        let mut extents = Extents::default();
        let wanted = offset_bytes..offset_bytes + len_bytes;
        let mut at = start;
        for run in &runs {
            let run_bytes = run.len.0 * SECTOR_BYTES;
            for (part, is_zero) in parts(&zeros_of(run, &holes), run_bytes) {
                let (from, to) = (at + part.start, at + part.end);
                let len = to.min(wanted.end).saturating_sub(from.max(wanted.start));
                // Blocks were looked at whole: a part may lie beside the range.
                if len > 0 {
                    extents.push(len, is_zero);
                }
            }
            at += run_bytes;
        }
        extents.0
    }

    fn placed_runs(&self, health: &Health, mut lba: Sector, end: Sector) -> Vec<PlacedRun> {
        let geometry = self.geometry();
        let mut runs = Vec::new();
        while lba < end && runs.len() < RUNS_MAX {
            let mut places = Vec::new();
            // What is stale on a member that comes back is counted in array sectors where there are
            // copies, else in those of the member.
            let mut place = |member: MemberIx, sector: Sector, len: Sector, synced: Sector| {
                if health.readable_at(member, sector..sector + len, synced..synced + len) {
                    let (_, offset) = health.place(member, sector);
                    places.push((member, offset..offset + len.0 * SECTOR_BYTES));
                }
            };
            let len = match geometry.kind() {
                LevelKind::Mirrored => {
                    let copies = geometry.copies(lba);
                    let len = copies.run.min(end - lba);
                    copies.iter().for_each(|copy| place(copy.member, copy.sector, len, lba));
                    len
                }
                LevelKind::Striped | LevelKind::Parity => {
                    let run = match geometry.kind() {
                        LevelKind::Striped => geometry.map(lba),
                        _ => geometry.data_place(lba),
                    };
                    let len = run.len.min(end - lba);
                    place(run.member, run.sector, len, run.sector);
                    len
                }
            };
            runs.push(PlacedRun { len, places });
            lba += len;
        }
        runs
    }

    /// The holes of members that the runs lie on; of members that do not answer within the deadline
    /// for reads, nothing is known. A thread looks for them: it is file systems that know.
    async fn holes_of(&self, health: &Health, runs: &[PlacedRun]) -> BTreeMap<MemberIx, Vec<Range<u64>>> {
        let mut spans: BTreeMap<MemberIx, (Device, Range<u64>)> = BTreeMap::new();
        for (member, range) in runs.iter().flat_map(|run| &run.places) {
            let device = || (health.place(*member, Sector::ZERO).0.clone(), range.clone());
            let (_, span) = spans.entry(*member).or_insert_with(device);
            *span = span.start.min(range.start)..span.end.max(range.end);
        }
        let members: Vec<_> = spans.keys().copied().collect();
        let look = move || {
            let found =
                |(member, (device, span)): (_, (Device, _))| (member, device.holes_blocking(span, HOLES_MAX));
            spans.into_iter().map(found).collect()
        };
        let nothing_known = || members.iter().map(|member| (*member, Vec::new())).collect();
        if self.shard.hole_looks.get() == LOOKS_MAX {
            return nothing_known();
        }
        self.shard.hole_looks.update(|looks| looks + 1);
        let looking = self.shard.core.spawn({
            let shard = self.shard.clone();
            async move {
                let found = shard.core.offload(look).await;
                shard.hole_looks.update(|looks| looks - 1);
                found
            }
        });
        let deadline = self.shard.core.sleep(self.shard.members.deadlines.after());
        match race(looking, deadline).await {
            Either::First(found) => found.unwrap_or_else(|_| nothing_known()),
            Either::Second(()) => nothing_known(),
        }
    }
}

/// The parts of a run, from its start, that are holes wherever it may be read from.
fn zeros_of(run: &PlacedRun, holes: &BTreeMap<MemberIx, Vec<Range<u64>>>) -> Vec<Range<u64>> {
    let of_place = |(member, place): &(MemberIx, Range<u64>)| {
        let first = holes[member].partition_point(|hole| hole.end <= place.start);
        let within = holes[member][first..].iter().take_while(|hole| hole.start < place.end);
        let moved = |hole: &Range<u64>| {
            hole.start.max(place.start) - place.start..hole.end.min(place.end) - place.start
        };
        within.map(moved).collect::<Vec<_>>()
    };
    let mut places = run.places.iter().map(of_place);
    let first = places.next().unwrap_or_default();
    places.fold(first, |zeros, holes| common(&zeros, &holes))
}

/// What lies in ranges of both lists, which are in order.
fn common(one: &[Range<u64>], other: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    while let (Some(a), Some(b)) = (one.peek(), other.peek()) {
        let both = a.start.max(b.start)..a.end.min(b.end);
        let ends_first = a.end <= b.end;
        if !both.is_empty() {
            found.push(both);
        }
        let _ = if ends_first { one.next() } else { other.next() };
    }
    found
}

/// All parts of a run of so many bytes: those that are zeros, and those between them.
fn parts(zeros: &[Range<u64>], run_bytes: u64) -> impl Iterator<Item = (Range<u64>, bool)> {
    let ends = std::iter::once(0).chain(zeros.iter().map(|zero| zero.end));
    let starts = zeros.iter().map(|zero| zero.start).chain([run_bytes]);
    let data = ends.zip(starts).map(|(end, start)| (end..start, false));
    let zeros = zeros.iter().cloned().map(|zero| (zero, true));
    let mut all: Vec<_> = data.chain(zeros).filter(|(part, _)| !part.is_empty()).collect();
    all.sort_unstable_by_key(|(part, _)| part.start);
    all.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_a_hole_in_every_copy_is_zeros() {
        let holes = BTreeMap::from([
            (MemberIx(0), vec![0..10, 20..30, 40..100]),
            (MemberIx(1), vec![1005..1025, 1028..1029, 1060..1061, 1090..2000]),
            (MemberIx(2), vec![]),
        ]);
        let run = |places: &[(u16, Range<u64>)]| {
            let places = places.iter().map(|(member, range)| (MemberIx(*member), range.clone())).collect();
            zeros_of(&PlacedRun { len: Sector(1), places }, &holes)
        };
        assert_eq!(run(&[(0, 5..45)]), [0..5, 15..25, 35..40]);
        assert_eq!(run(&[(0, 0..100), (1, 1000..1100)]), [5..10, 20..25, 28..29, 60..61, 90..100]);
        assert_eq!(run(&[(1, 1000..1100), (0, 0..100)]), run(&[(0, 0..100), (1, 1000..1100)]));
        assert_eq!(run(&[(0, 10..20)]), []);
        assert_eq!(run(&[(0, 0..100), (2, 0..100)]), []);
        assert_eq!(run(&[]), []);
        let zeros = run(&[(0, 5..45)]);
        let all: Vec<_> = parts(&zeros, 50).collect();
        let expected =
            [(0..5, true), (5..15, false), (15..25, true), (25..35, false), (35..40, true), (40..50, false)];
        assert_eq!(all, expected);
        assert_eq!(parts(&[], 50).collect::<Vec<_>>(), [(0..50, false)]);
    }
}
