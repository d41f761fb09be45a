//! What lies beyond the position of a reshape, where the superblocks' word alone does not decide.
//!
//! Linux may be further than the position that is recorded. Mostly that does no harm: what it has
//! moved is still at its old place too, because a new position is recorded before an old place that
//! the recorded one needs is written over. There are two exceptions (docs/formats.md §9.3, §9.4):
//!
//! - **Moved by an offset, with as many data members as before.** Linux 6.12 does not look at the
//!   offset in the run that began the reshape, and records positions by time alone. How far it came
//!   shows on the members (`past`): just behind its place the new and the old copy of everything
//!   still agree, for as long as the offset is; before that stretch only the new copy is left. Free
//!   space agrees with free space, so that only blocks count of which no two are the same.
//! - **In place.** The old copy is gone at once, and no member tells how far Linux came. A backup
//!   file tells it where it holds what only the new place has left; one that was written too late
//!   holds what the old places had by then, and proves nothing.
//!
//! What is not proved either way is not read.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use wattle_engine::Volume;
use wattle_engine::units::SECTOR_BYTES;
use wattle_format::md::backup::{ReshapeBackup, ReshapeBackupPart};
use wattle_rt::BufMut;

use super::past::{Compared, Extent, Past, Places, READ_BLOCKS, ran_past};
use crate::md::assemble::ReshapeAssembly;

/// What is compared at once.
const BLOCK_SECTORS: u64 = 8;
const BLOCK_BYTES: usize = (BLOCK_SECTORS * SECTOR_BYTES) as usize;
/// Sectors of each data member beyond the position in which Linux's place is looked for: what it
/// moves in the ten seconds between two records, and some more.
const SEARCH_SECTORS: u64 = 4 << 21;

/// Where a run of the array is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The old geometry.
    Old,
    /// The new geometry.
    New,
    /// A backup file, from this sector of it on.
    Kept {
        /// Which.
        file: usize,
        /// Sector of the file.
        at_sectors: u64,
    },
    /// Not known.
    Unknown,
}

/// A run of the array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// Sectors of the array.
    pub sectors: Range<u64>,
    /// Where they are.
    pub source: Source,
}

/// Both geometries, as far as each can be read.
pub(super) struct Sides<'a> {
    pub reshape: &'a ReshapeAssembly,
    pub old: Option<Volume>,
    pub new: Option<Volume>,
    pub backups: &'a [(ReshapeBackup, Volume)],
}

/// What a part of a backup file proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartProof {
    /// Nothing: it may have been saved after the fact.
    None,
    /// It was saved in time, and all of it was moved.
    Moved,
    /// It was saved in time, and Linux came no further than into it.
    EndsWithin,
}

impl Sides<'_> {
    /// The whole array, in order.
    pub async fn pieces(&self) -> Vec<Piece> {
        let reshape = self.reshape;
        let mut beyond = match (&reshape.doubtful, reshape.moved_sectors) {
            (Some(doubtful), _) => self.doubtful(self.steps_of(doubtful)).await,
            (None, Some(moved)) => match self.ran_past(moved).await {
                Past::Proved { blocks, unread } => {
                    let mut from = blocks * BLOCK_SECTORS;
                    let mut known = vec![(0..from, Source::New)];
                    for blocks in unread {
                        let unread = blocks.start * BLOCK_SECTORS..blocks.end * BLOCK_SECTORS;
                        known.push((from..unread.start, Source::Old));
                        from = unread.end;
                        known.push((unread, Source::Unknown));
                    }
                    known
                }
                Past::Possible(blocks) => vec![(0..blocks * BLOCK_SECTORS, Source::Unknown)],
            },
            (None, None) => Vec::new(),
        };
        let end = self.beyond_sectors();
        let from = beyond.last().map_or(0, |(steps, _)| steps.end);
        beyond.push((from..end, Source::Old));
        let done = reshape.new.sectors.clone();
        let mut pieces: Vec<_> = beyond
            .into_iter()
            .map(|(steps, source)| Piece { sectors: self.sectors(&steps), source })
            .chain([Piece { sectors: done, source: Source::New }])
            .filter(|piece| !piece.sectors.is_empty())
            .collect();
        pieces.sort_by_key(|piece| piece.sectors.start);
        pieces
    }

    /// How much of the array is beyond the position. Steps count from the position, in the
    /// direction of the reshape, in sectors.
    fn beyond_sectors(&self) -> u64 {
        self.reshape.old.sectors.end - self.reshape.old.sectors.start
    }

    /// The sectors of the array of some steps.
    fn sectors(&self, steps: &Range<u64>) -> Range<u64> {
        let position = self.reshape.position_sectors;
        match self.reshape.backwards {
            false => position + steps.start..position + steps.end,
            true => position - steps.end..position - steps.start,
        }
    }

    /// The steps of sectors of the array that are beyond the position.
    fn steps_of(&self, sectors: &Range<u64>) -> Range<u64> {
        let position = self.reshape.position_sectors;
        let end = self.beyond_sectors();
        let (from, to) = match self.reshape.backwards {
            false => (sectors.start.saturating_sub(position), sectors.end.saturating_sub(position)),
            true => (position.saturating_sub(sectors.end), position.saturating_sub(sectors.start)),
        };
        from.min(end)..to.min(end)
    }

    /// How far beyond the position only the new place holds what the array has.
    async fn ran_past(&self, moved_sectors: u64) -> Past {
        let reshape = self.reshape;
        let before_sectors = match reshape.backwards {
            false => reshape.position_sectors,
            true => reshape.size_sectors - reshape.position_sectors,
        };
        let data_disks = reshape.new.geometry.data_disks() as u64;
        let extent = Extent {
            before: before_sectors / BLOCK_SECTORS,
            beyond: self.beyond_sectors() / BLOCK_SECTORS,
            searched: SEARCH_SECTORS.saturating_mul(data_disks) / BLOCK_SECTORS,
            moved: moved_sectors / BLOCK_SECTORS,
            unit: reshape.unit_sectors().div_ceil(BLOCK_SECTORS),
        };
        if self.new.is_none() {
            return Past::Possible(extent.beyond);
        }
        ran_past(self, &extent).await
    }

    /// Compares blocks of the array at both places.
    async fn compare_sectors(&self, sectors: Range<u64>) -> Vec<Compared> {
        let blocks = ((sectors.end - sectors.start) / BLOCK_SECTORS) as usize;
        let (Some(old), Some(new)) = (&self.old, &self.new) else { return vec![Compared::Apart; blocks] };
        if let (Some(old), Some(new)) = (read(old, sectors.clone()).await, read(new, sectors.clone()).await) {
            let blocks = old.chunks(BLOCK_BYTES).zip(new.chunks(BLOCK_BYTES));
            return blocks.map(|(old, new)| Compared::of(old, new)).collect();
        }
        let mut compared = Vec::with_capacity(blocks);
        for start in sectors.step_by(BLOCK_SECTORS as usize).take(blocks) {
            let block = start..start + BLOCK_SECTORS;
            let both = (read(old, block.clone()).await, read(new, block).await);
            compared.push(match both {
                (Some(old), Some(new)) => Compared::of(&old, &new),
                _ => Compared::Unread,
            });
        }
        compared
    }

    /// Reads steps of a volume, by blocks in their order; `None` if that fails.
    async fn read(&self, volume: Option<&Volume>, steps: &Range<u64>) -> Option<Vec<Vec<u8>>> {
        Some(self.in_order(&read(volume?, self.sectors(steps)).await?))
    }

    fn in_order(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let blocks = bytes.chunks(BLOCK_BYTES).map(<[u8]>::to_vec);
        if self.reshape.backwards { blocks.rev().collect() } else { blocks.collect() }
    }

    /// What is known of steps whose old copies may be gone. Every part of a backup file was saved
    /// at a time of its own, and proves only itself.
    async fn doubtful(&self, steps: Range<u64>) -> Vec<(Range<u64>, Source)> {
        let mut rest = if self.reshape.forced { Source::Old } else { Source::Unknown };
        let mut pieces = Vec::new();
        for part in self.kept().into_iter().filter(|(kept, _)| kept.start < steps.end) {
            let proof = self.proof_of(&part, steps.end).await;
            if proof == PartProof::None {
                break;
            }
            pieces.push(part);
            if proof == PartProof::EndsWithin {
                rest = Source::Old;
                break;
            }
        }
        let from = pieces.last().map_or(0, |(kept, _)| kept.end);
        pieces.push((from.min(steps.end)..steps.end, rest));
        pieces
    }

    /// What a part proves by what is at both places now. In the order of the reshape there are
    /// blocks that were moved, which the part has as the new place has them; up to one unit of
    /// stripes that were being moved, which may be anything; and blocks that were not, which it has
    /// as the old place has them. What contradicts that order was not saved in time.
    async fn proof_of(&self, part: &(Range<u64>, Source), end: u64) -> PartProof {
        let unit = self.reshape.unit_sectors() / BLOCK_SECTORS;
        let (mut moved, mut neither, mut number) = (false, 0, 0_u64);
        let mut ends_at: Option<u64> = None;
        let (mut at, end) = (part.0.start, part.0.end.min(end));
        while at < end {
            let range = at..(at + READ_BLOCKS * BLOCK_SECTORS).min(end);
            let copy = self.read_kept(std::slice::from_ref(part), &range).await;
            let (old, new) =
                (self.read(self.old.as_ref(), &range).await, self.read(self.new.as_ref(), &range).await);
            let (Some(copy), Some(old), Some(new)) = (copy, old, new) else { return PartProof::None };
            for ((copy, old), new) in copy.iter().zip(&old).zip(&new) {
                number += 1;
                let is_near = ends_at.is_none_or(|ends| number - ends < unit);
                match (copy == old, copy == new) {
                    (true, true) => {}
                    (false, true) if is_near => moved = true,
                    (true, false) if moved => _ = ends_at.get_or_insert(number),
                    (false, false) if moved && neither < unit => neither += 1,
                    _ => return PartProof::None,
                }
            }
            at = range.end;
        }
        match (moved, ends_at) {
            (false, _) => PartProof::None,
            (true, None) => PartProof::Moved,
            (true, Some(_)) => PartProof::EndsWithin,
        }
    }

    /// The runs that backup files hold without a gap from the position on, in steps.
    fn kept(&self) -> Vec<(Range<u64>, Source)> {
        let parts = self.backups.iter().enumerate();
        let parts = parts.flat_map(|(file, (header, _))| header.parts.iter().map(move |part| (file, *part)));
        let mut parts: Vec<_> = parts.filter_map(|(file, part)| self.kept_part(file, part)).collect();
        parts.sort_by_key(|(steps, _)| steps.start);
        let mut next = 0;
        parts.retain(|(steps, _)| {
            let joins = steps.start == next;
            if joins {
                next = steps.end;
            }
            joins
        });
        parts
    }

    /// The steps of a part of a backup file. What of it is not beyond the position has been moved.
    fn kept_part(&self, file: usize, part: ReshapeBackupPart) -> Option<(Range<u64>, Source)> {
        let whole = part.array_start_sectors..part.array_start_sectors.checked_add(part.len_sectors)?;
        let steps = self.steps_of(&whole);
        let first = self.sectors(&steps).start;
        let at_sectors = part.at_sectors + first.checked_sub(whole.start)?;
        let there = self.backups.get(file)?.1.size_bytes() / SECTOR_BYTES;
        let is_there = at_sectors.checked_add(steps.end - steps.start).is_some_and(|end| end <= there);
        (!steps.is_empty() && is_there).then_some((steps, Source::Kept { file, at_sectors }))
    }

    /// Steps as backup files have them, by blocks in their order.
    async fn read_kept(&self, kept: &[(Range<u64>, Source)], steps: &Range<u64>) -> Option<Vec<Vec<u8>>> {
        let mut bytes: Vec<u8> = Vec::new();
        for (run, source) in kept {
            let part = run.start.max(steps.start)..run.end.min(steps.end);
            let Source::Kept { file, at_sectors } = *source else { continue };
            if part.is_empty() {
                continue;
            }
            let first = at_sectors + self.sectors(&part).start - self.sectors(run).start;
            let read = read(&self.backups.get(file)?.1, first..first + part.end - part.start).await?;
            if self.reshape.backwards {
                bytes.splice(0..0, read.iter().copied());
            } else {
                bytes.extend_from_slice(&read);
            }
        }
        Some(self.in_order(&bytes))
    }
}

impl Places for Sides<'_> {
    async fn beyond(&self, blocks: Range<u64>) -> Vec<Compared> {
        let steps = blocks.start * BLOCK_SECTORS..blocks.end * BLOCK_SECTORS;
        let compared = self.compare_sectors(self.sectors(&steps)).await;
        if self.reshape.backwards { compared.into_iter().rev().collect() } else { compared }
    }

    async fn before(&self, blocks: Range<u64>) -> Vec<Compared> {
        let position = self.reshape.position_sectors;
        let (near, far) = (blocks.start * BLOCK_SECTORS, blocks.end * BLOCK_SECTORS);
        match self.reshape.backwards {
            false => {
                let compared = self.compare_sectors(position - far..position - near).await;
                compared.into_iter().rev().collect()
            }
            true => self.compare_sectors(position + near..position + far).await,
        }
    }
}

impl Compared {
    fn of(old: &[u8], new: &[u8]) -> Self {
        if old != new {
            return Self::Apart;
        }
        if old.iter().all(|byte| Some(byte) == old.first()) {
            return Self::Blank;
        }
        let mut fingerprint = DefaultHasher::new();
        old.hash(&mut fingerprint);
        Self::Same(fingerprint.finish())
    }
}

/// Reads sectors of a volume; `None` if that fails.
async fn read(volume: &Volume, sectors: Range<u64>) -> Option<BufMut> {
    let len = usize::try_from((sectors.end - sectors.start) * SECTOR_BYTES).ok()?;
    let (result, bytes) = volume.read(sectors.start * SECTOR_BYTES, BufMut::alloc(len)).await;
    result.ok().map(|()| bytes)
}
