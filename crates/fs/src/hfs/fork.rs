//! Forks: where the data of a file lies. Eight extents are kept with the file, further ones in a
//! tree.
//!
//! TN1150, "Fork Data Structure" and "Extents Overflow File".

use std::ops::Range;

use crate::EachData;
use crate::bytes::{be32, be64};
use crate::error::Error;
use crate::hfs::volume::HfsVolume;
use crate::source::FileRun;

/// Extents of a fork, or of a record of the overflow file.
pub const EXTENTS: usize = 8;
const EXTENT_BYTES: usize = 8;

/// Allocation blocks side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HfsExtent {
    pub start: u32,
    pub count: u32,
}

/// A fork as it is stored.
#[derive(Debug, Clone, Copy, Default)]
pub struct HfsFork {
    pub logical_bytes: u64,
    pub total_blocks: u32,
    pub extents: [HfsExtent; EXTENTS],
}

impl HfsFork {
    pub fn decode(bytes: &[u8], at: usize) -> Option<Self> {
        let extents = extents(bytes, at + 16)?;
        Some(Self { logical_bytes: be64(bytes, at)?, total_blocks: be32(bytes, at + 12)?, extents })
    }
}

/// Eight extents that are stored one behind the other.
pub fn extents(bytes: &[u8], at: usize) -> Option<[HfsExtent; EXTENTS]> {
    let mut extents = [HfsExtent::default(); EXTENTS];
    for (ix, extent) in extents.iter_mut().enumerate() {
        let at = at + ix * EXTENT_BYTES;
        *extent = HfsExtent { start: be32(bytes, at)?, count: be32(bytes, at + 4)? };
    }
    Some(extents)
}

/// An extent, and the block of the fork that it begins with.
#[derive(Debug, Clone, Copy)]
struct Piece {
    first: u64,
    extent: HfsExtent,
}

impl Piece {
    fn end(self) -> u64 {
        self.first + u64::from(self.extent.count)
    }
}

/// Where a fork lies.
#[derive(Debug, Default)]
pub struct HfsForkMap {
    pub logical_bytes: u64,
    /// Of whose fork, to name it when it is damaged.
    pub file: u32,
    /// In the order of the fork, none over another.
    pieces: Vec<Piece>,
    /// Why there may be gaps between these.
    damage: Option<&'static str>,
}

impl HfsForkMap {
    /// The extents that are kept with the file.
    pub fn new(file: u32, fork: &HfsFork) -> Self {
        let mut map = Self { logical_bytes: fork.logical_bytes, file, ..Self::default() };
        map.push_all(0, &fork.extents);
        map
    }

    /// Adds extents that begin with a block of the fork.
    pub fn push_all(&mut self, first: u64, extents: &[HfsExtent]) {
        let mut first = first;
        for &extent in extents.iter().take_while(|extent| extent.count > 0) {
            if first < self.blocks() {
                self.damage = Some("its extents are not in order");
                return;
            }
            self.pieces.push(Piece { first, extent });
            first += u64::from(extent.count);
        }
    }

    /// Notes why extents may be missing.
    pub fn note_damage(&mut self, why: &'static str) {
        self.damage.get_or_insert(why);
    }

    /// The block behind the last one that is known of.
    pub fn blocks(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.end())
    }

    /// Whether all that is stored is known of.
    pub fn is_whole(&self, block_bytes: u64) -> bool {
        self.blocks() >= self.logical_bytes.div_ceil(block_bytes)
    }

    fn damaged(&self, what: &'static str) -> Error {
        Error::Damaged { structure: "HFS+ file", at: self.file.into(), what }
    }

    /// Calls `each` for the runs of a range of the fork, in order. A part whose place is not known
    /// is [`Error::MapPart`].
    pub fn runs(
        &self,
        volume: &HfsVolume,
        range: &Range<u64>,
        each: &mut dyn FnMut(FileRun) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let end = range.end.min(self.logical_bytes);
        let range = range.start..end;
        let block_bytes = volume.header.block_bytes;
        let gap = |to: u64, what| {
            let why = Box::new(self.damaged(what));
            Err(Error::MapPart { to: to.min(self.logical_bytes), why })
        };
        let unknown = self.damage.unwrap_or("the place of a part of it is not known");
        let mut at = range.start;
        let from = self.pieces.partition_point(|piece| piece.end().saturating_mul(block_bytes) <= at);
        for piece in &self.pieces[from..] {
            if at >= end {
                return Ok(());
            }
            let start = piece.first.saturating_mul(block_bytes);
            if start > at {
                return gap(start, unknown);
            }
            let stop = piece.end().saturating_mul(block_bytes);
            if !volume.has_blocks(piece.extent) {
                return gap(stop, "an extent of it lies beyond the end of the volume");
            }
            let run = FileRun::plain(start, volume.offset_of(piece.extent.start), stop - start);
            if let Some(run) = run.within(&range) {
                each(run)?;
            }
            at = stop;
        }
        if at < end { gap(end, unknown) } else { Ok(()) }
    }

    /// Fills `into` from an offset of the fork on.
    pub fn read(&self, volume: &HfsVolume, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let end = offset.checked_add(into.len() as u64).filter(|end| *end <= self.logical_bytes);
        let end = end.ok_or_else(|| self.damaged("a part of it lies behind its end"))?;
        self.runs(volume, &(offset..end), &mut |run| {
            let at = (run.file_offset - offset) as usize;
            volume.source.read(run.disk_offset, &mut into[at..at + run.len as usize])
        })
    }

    /// Hands on the data of a range.
    pub fn deliver(
        &self,
        volume: &HfsVolume,
        range: &Range<u64>,
        each: &mut EachData<'_>,
    ) -> Result<(), Error> {
        self.runs(volume, range, &mut |run| volume.source.deliver(run, each))
    }
}
