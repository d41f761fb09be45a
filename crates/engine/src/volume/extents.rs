//! Which parts of a volume are known to be zeros, without reading them: what maps have nowhere, and
//! what lies in holes of members.
//!
//! Invariant: what is called zeros read as zeros at some moment between the call and its answer, by
//! every member that reads may be answered from.

use std::collections::BTreeMap;
use std::ops::Range;

use wattle_rt::Device;

use super::array::ArrayVolume;
use super::mapped::MappedVolume;
use super::{Place, Volume, map};
use crate::model::error::VolumeError;
use crate::model::geometry::LevelKind;
use crate::model::health::Health;
use crate::model::units::{MemberIx, SECTOR_BYTES, Sector};

/// A run of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// How long it is, in bytes.
    pub len_bytes: u64,
    /// It is known to read as zeros.
    pub is_zero: bool,
}

/// So much of an array is looked at by one call: a core does so without a break.
const LOOK_BYTES_MAX: u64 = 256 << 20;
/// Holes of one member that one call learns of.
const HOLES_MAX: usize = 4096;

/// Runs in order, those of a kind that touch made one.
#[derive(Default)]
struct Extents(Vec<Extent>);

impl Extents {
    fn push(&mut self, len_bytes: u64, is_zero: bool) {
        match self.0.last_mut() {
            Some(last) if last.is_zero == is_zero => last.len_bytes += len_bytes,
            _ => self.0.push(Extent { len_bytes, is_zero }),
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
    pub async fn extents(&self, offset_bytes: u64, len_bytes: u64) -> Result<Vec<Extent>, VolumeError> {
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
    async fn extents(&self, offset_bytes: u64, len_bytes: u64) -> Result<Vec<Extent>, VolumeError> {
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
    async fn extents(&self, offset_bytes: u64, len_bytes: u64) -> Vec<Extent> {
        let len_bytes = len_bytes.min(LOOK_BYTES_MAX);
        let (start, end) = self.widen(offset_bytes, len_bytes);
        let health = self.shard.members.health();
        let runs = self.placed_runs(&health, Sector(start / SECTOR_BYTES), Sector(end / SECTOR_BYTES));
        let holes = self.holes_of(&health, &runs).await;
        let mut extents = Extents::default();
        let mut at = start;
        for run in &runs {
            let run_end = at + run.len.0 * SECTOR_BYTES;
            let wanted = run_end.min(offset_bytes + len_bytes).saturating_sub(at.max(offset_bytes));
            let is_hole = |(member, range): &(MemberIx, Range<u64>)| covered(&holes[member], range);
            // A run that lies before the range was looked at for its block's sake.
            if wanted > 0 {
                extents.push(wanted, !run.places.is_empty() && run.places.iter().all(is_hole));
            }
            at = run_end;
        }
        extents.0
    }

    fn placed_runs(&self, health: &Health, mut lba: Sector, end: Sector) -> Vec<PlacedRun> {
        let geometry = self.geometry();
        let mut runs = Vec::new();
        while lba < end {
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

    /// The holes of members that the runs lie on. A thread looks for them: it is file systems that
    /// know.
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
        let nothing_known = |_| members.into_iter().map(|member| (member, Vec::new())).collect();
        self.shard.core.offload(look).await.unwrap_or_else(nothing_known)
    }
}

/// Whether a range lies in one of some holes, which are in order and do not touch.
fn covered(holes: &[Range<u64>], range: &Range<u64>) -> bool {
    let next = holes.partition_point(|hole| hole.end < range.end);
    holes.get(next).is_some_and(|hole| hole.start <= range.start && range.end <= hole.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_covered_by_one_hole_or_not_at_all() {
        let holes = [10..20, 30..40];
        for (range, is_covered) in
            [(10..20, true), (12..13, true), (9..11, false), (19..31, false), (30..40, true), (39..41, false)]
        {
            assert_eq!(covered(&holes, &range), is_covered, "{range:?}");
        }
        assert!(!covered(&[], &(0..1)));
    }
}
