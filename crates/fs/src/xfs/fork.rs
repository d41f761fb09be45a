//! The map of a file: extents in the inode, or a tree of them.

use std::ops::Range;

use crate::bytes::{be16, be32, be64};
use crate::error::Error;
use crate::source::FileRun;
use crate::xfs::inode::{Format, Inode};
use crate::xfs::{Xfs, checksum_is_right};

const EXTENT_BYTES: usize = 16;

/// Blocks of the tree.
const MAGIC_V4: u32 = 0x424d_4150;
const MAGIC_V5: u32 = 0x424d_4133;
const HEADER_V4_BYTES: usize = 24;
const HEADER_V5_BYTES: usize = 72;
const CHECKSUM_AT: usize = 64;

/// In the inode: level and number of records, then keys, then pointers.
const ROOT_HEADER_BYTES: usize = 4;

/// More levels than any file needs.
const LEVELS_MAX: u16 = 9;

struct Walk<'a> {
    xfs: &'a Xfs,
    inode: &'a Inode,
    fork: Fork<'a>,
    range: &'a Range<u64>,
    each: &'a mut EachForkExtent<'a>,
    /// The first block of the file that has not been passed: extents are in order.
    next: u64,
    /// Blocks of the tree that may still come; each has one owner.
    nodes_left: u64,
}

/// A fork: extents of data or of attributes.
#[derive(Debug, Clone, Copy)]
pub struct Fork<'a> {
    pub bytes: &'a [u8],
    pub format: Format,
    /// How many extents it says that it has.
    pub extents: u64,
    /// It is of the data, not of attributes.
    pub is_data: bool,
}

/// Takes extents as they are stored, in their order.
pub type EachForkExtent<'a> = dyn FnMut(&Extent) -> Result<(), Error> + 'a;

/// Calls `each` for the runs of the file within a range.
pub fn runs(
    xfs: &Xfs,
    inode: &Inode,
    range: &Range<u64>,
    each: &mut dyn FnMut(FileRun) -> Result<(), Error>,
) -> Result<(), Error> {
    let superblock = &xfs.superblock;
    let block_bytes = superblock.block_bytes as u64;
    extents(xfs, inode, inode.data_fork(), range, &mut |extent| {
        let file_offset = extent.first.saturating_mul(block_bytes);
        let run = FileRun::plain(file_offset, 0, extent.blocks * block_bytes);
        // What is allocated and not written reads as zeros, like a hole.
        let Some(run) = run.within(range).filter(|_| !extent.unwritten) else { return Ok(()) };
        let start = superblock.offset_of(extent.start)?;
        superblock.offset_of(extent.start.saturating_add(extent.blocks - 1))?;
        // `within` moved the start on from 0.
        each(FileRun { disk_offset: start + run.disk_offset, ..run })
    })
}

/// Calls `each` for the extents of a fork that do not start beyond a range, which is in bytes.
pub fn extents(
    xfs: &Xfs,
    inode: &Inode,
    fork: Fork<'_>,
    range: &Range<u64>,
    each: &mut EachForkExtent<'_>,
) -> Result<(), Error> {
    let mut walk = Walk { xfs, inode, fork, range, each, next: 0, nodes_left: xfs.blocks_max() };
    if let Some(finished) = xfs.finished.extents(inode.number).filter(|_| fork.is_data) {
        return finished.iter().try_for_each(|extent| walk.extent(extent));
    }
    match fork.format {
        Format::Extents => {
            let len =
                usize::try_from(fork.extents).ok().and_then(|extents| extents.checked_mul(EXTENT_BYTES));
            let records = len.and_then(|len| fork.bytes.get(..len));
            walk.extents(records.ok_or_else(|| inode.damaged("more extents than it has space for"))?)
        }
        Format::Btree => walk.root(),
        Format::Local | Format::Device => Err(inode.damaged("it has no extents")),
    }
}

impl Walk<'_> {
    fn root(&mut self) -> Result<(), Error> {
        let damaged = || self.inode.damaged("the root of its tree of extents is none");
        let fork = self.fork.bytes;
        let level = be16(fork, 0).filter(|level| (1..=LEVELS_MAX).contains(level)).ok_or_else(damaged)?;
        let records = usize::from(be16(fork, 2).ok_or_else(damaged)?);
        self.children(fork.get(ROOT_HEADER_BYTES..).ok_or_else(damaged)?, records, level, u64::MAX)
    }

    /// The records of an inner node: as many keys as there is space for, then the pointers. `end`
    /// is the byte of the file behind all that it is for.
    fn children(&mut self, bytes: &[u8], records: usize, level: u16, end: u64) -> Result<(), Error> {
        let damaged = || map_part(end, self.inode.damaged("a node of its tree of extents is none"));
        let pointers = bytes.len() / 16 * 8;
        if records == 0 || records * 16 > bytes.len() {
            return Err(damaged());
        }
        for ix in 0..records {
            let key = |ix: usize| be64(bytes, ix * 8);
            let first = key(ix).ok_or_else(damaged)?;
            if first.saturating_mul(self.xfs.superblock.block_bytes as u64) >= self.range.end {
                return Ok(());
            }
            // All of it lies before the range.
            let next = (ix + 1 < records).then(|| key(ix + 1)).flatten();
            let block_bytes = self.xfs.superblock.block_bytes as u64;
            if next.is_some_and(|next| next.saturating_mul(block_bytes) <= self.range.start) {
                continue;
            }
            let end = next.map_or(end, |next| next.saturating_mul(block_bytes).min(end));
            self.node(be64(bytes, pointers + ix * 8).ok_or_else(damaged)?, level - 1, end)?;
        }
        Ok(())
    }

    fn node(&mut self, block: u64, level: u16, end: u64) -> Result<(), Error> {
        let damaged = || map_part(end, self.inode.damaged("a node of its tree of extents is none"));
        self.nodes_left = self.nodes_left.checked_sub(1).ok_or_else(damaged)?;
        let superblock = &self.xfs.superblock;
        let bytes = superblock
            .offset_of(block)
            .and_then(|offset| self.xfs.source.bytes(offset, superblock.block_bytes))
            .map_err(|error| map_part(end, error))?;
        let (magic, header) = match superblock.version5 {
            true => (MAGIC_V5, HEADER_V5_BYTES),
            false => (MAGIC_V4, HEADER_V4_BYTES),
        };
        if be32(&bytes, 0) != Some(magic) || be16(&bytes, 4) != Some(level) {
            return Err(damaged());
        }
        if superblock.version5
            && (!checksum_is_right(&bytes, CHECKSUM_AT) || be64(&bytes, 56) != Some(self.inode.number))
        {
            let what = "the checksum or owner of a node of its tree of extents is wrong";
            return Err(map_part(end, self.inode.damaged(what)));
        }
        let records = usize::from(be16(&bytes, 6).ok_or_else(damaged)?);
        match level {
            0 => self.extents(bytes[header..].get(..records * EXTENT_BYTES).ok_or_else(damaged)?),
            _ => self.children(&bytes[header..], records, level, end),
        }
    }

    fn extents(&mut self, records: &[u8]) -> Result<(), Error> {
        for record in records.chunks_exact(EXTENT_BYTES) {
            let (high, low) = (be64(record, 0).unwrap_or(0), be64(record, 8).unwrap_or(0));
            self.extent(&Extent::decode(high, low))?;
        }
        Ok(())
    }

    fn extent(&mut self, extent: &Extent) -> Result<(), Error> {
        if extent.blocks == 0 || extent.first < self.next {
            return Err(self.inode.damaged("its extents are not in order"));
        }
        self.next = extent.first + extent.blocks;
        let block_bytes = self.xfs.superblock.block_bytes as u64;
        match extent.first.saturating_mul(block_bytes) < self.range.end {
            true => (self.each)(extent),
            false => Ok(()),
        }
    }
}

/// What is wrong with a part of the map, which ends at a byte of the file.
fn map_part(to: u64, why: Error) -> Error {
    Error::MapPart { to, why: Box::new(why) }
}

/// 128 bits: unwritten 1, offset in the file 54, start 52, count 21; in blocks.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    pub unwritten: bool,
    pub first: u64,
    /// Its first block, with the group in the high bits.
    pub start: u64,
    /// At least one.
    pub blocks: u64,
}

impl Extent {
    fn decode(high: u64, low: u64) -> Self {
        Self {
            unwritten: high >> 63 != 0,
            first: (high & !(1 << 63)) >> 9,
            start: (high & 0x1ff) << 43 | low >> 21,
            blocks: low & 0x1f_ffff,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_an_extent_belongs_to_one_field() {
        let extent = Extent::decode(1 << 63 | 5 << 9 | 0x1ff, 7 << 21 | 9);
        assert_eq!(
            (extent.unwritten, extent.first, extent.start, extent.blocks),
            (true, 5, 0x1ff << 43 | 7, 9)
        );
        let all = Extent::decode(u64::MAX >> 1, u64::MAX);
        assert_eq!((all.unwritten, all.first, all.start), (false, (1 << 54) - 1, (1 << 52) - 1));
    }
}
