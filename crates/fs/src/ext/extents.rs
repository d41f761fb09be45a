//! Extent trees of ext4.

use std::ops::Range;

use crate::bytes::{le16, le32};
use crate::error::Error;
use crate::ext::Ext;
use crate::ext::checksum::crc;
use crate::ext::inode::Inode;
use crate::ext::superblock::ExtFeatures;
use crate::source::FileRun;

const MAGIC: u16 = 0xf30a;
const HEADER_BYTES: usize = 12;
const ENTRY_BYTES: usize = 12;

/// Five levels reach farther than the largest file.
const DEPTH_MAX: u16 = 5;

/// Lengths above that are allocated and not written: they read as zeros, like holes.
const LEN_MAX: u16 = 32768;

struct Walk<'a> {
    ext: &'a Ext,
    inode: &'a Inode,
    range: &'a Range<u64>,
    /// Whether `each` is to hear of what is allocated and not written.
    unwritten_too: bool,
    each: &'a mut EachExtent<'a>,
    /// The first block of the file that has not been passed. It only grows, so that no tree is
    /// endless.
    next: u64,
    /// Blocks of data and of the tree itself that may still come: a block has one owner.
    left: u64,
}

/// Takes extents as they are stored, and whether they are not written yet.
pub type EachExtent<'a> = dyn FnMut(FileRun, bool) -> Result<(), Error> + 'a;

/// Calls `each` for the runs of the file within a range.
pub fn runs(
    ext: &Ext,
    inode: &Inode,
    range: &Range<u64>,
    each: &mut dyn FnMut(FileRun) -> Result<(), Error>,
) -> Result<(), Error> {
    walk(ext, inode, range, false, &mut |run, _| each(run))
}

/// Calls `each` for all extents of the file.
pub fn stored(ext: &Ext, inode: &Inode, each: &mut EachExtent<'_>) -> Result<(), Error> {
    walk(ext, inode, &(0..u64::MAX), true, each)
}

fn walk(
    ext: &Ext,
    inode: &Inode,
    range: &Range<u64>,
    unwritten_too: bool,
    each: &mut EachExtent<'_>,
) -> Result<(), Error> {
    let mut walk = Walk { ext, inode, range, unwritten_too, each, next: 0, left: ext.blocks_max() };
    let depth = le16(&inode.map, 6).filter(|depth| *depth <= DEPTH_MAX);
    let depth = depth.ok_or_else(|| inode.damaged("its tree of extents is too deep"))?;
    walk.node(&inode.map, depth, u64::MAX)
}

impl Walk<'_> {
    /// `end` is the byte of the file behind all that the node is for.
    fn node(&mut self, bytes: &[u8], depth: u16, end: u64) -> Result<(), Error> {
        let damaged = || map_part(end, self.inode.damaged("a node of its tree of extents is none"));
        let entries = usize::from(le16(bytes, 2).ok_or_else(damaged)?);
        let fits = HEADER_BYTES + entries * ENTRY_BYTES <= bytes.len();
        if le16(bytes, 0) != Some(MAGIC) || le16(bytes, 6) != Some(depth) || !fits {
            return Err(damaged());
        }
        for ix in 0..entries {
            let at = HEADER_BYTES + ix * ENTRY_BYTES;
            let entry = &bytes[at..at + ENTRY_BYTES];
            let first = u64::from(le32(entry, 0).ok_or_else(damaged)?);
            if first < self.next {
                return Err(map_part(end, self.inode.damaged("its extents are not in order")));
            }
            if first.saturating_mul(self.ext.superblock.block_bytes as u64) >= self.range.end {
                return Ok(());
            }
            match depth {
                0 => self.extent(first, entry, end)?,
                _ => {
                    let next = (ix + 1 < entries).then(|| le32(bytes, at + ENTRY_BYTES)).flatten();
                    self.child(first, (next, end), entry, depth)?;
                }
            }
        }
        Ok(())
    }

    fn child(
        &mut self,
        first: u64,
        (next, end): (Option<u32>, u64),
        entry: &[u8],
        depth: u16,
    ) -> Result<(), Error> {
        // All of it lies before the range.
        let block_bytes = self.ext.superblock.block_bytes as u64;
        if next.is_some_and(|next| u64::from(next) * block_bytes <= self.range.start) {
            return Ok(());
        }
        self.next = first;
        self.take(1)?;
        let end = next.map_or(end, |next| u64::from(next).saturating_mul(block_bytes).min(end));
        let block = self.ext.block(block_of(entry, 4, 8).unwrap_or(u64::MAX));
        let block = block.and_then(|block| self.check(&block).map(|()| block));
        self.node(&block.map_err(|error| map_part(end, error))?, depth - 1, end)
    }

    fn extent(&mut self, first: u64, entry: &[u8], end: u64) -> Result<(), Error> {
        let len = le16(entry, 4).unwrap_or(0);
        let written = len <= LEN_MAX;
        let blocks = u64::from(if written { len } else { len - LEN_MAX });
        if blocks == 0 {
            return Err(map_part(end, self.inode.damaged("an extent without blocks")));
        }
        self.next = first + blocks;
        self.take(blocks)?;
        let start = block_of(entry, 8, 6).unwrap_or(u64::MAX);
        let block_bytes = self.ext.superblock.block_bytes as u64;
        let run = FileRun::plain(first * block_bytes, 0, blocks * block_bytes);
        let Some(run) = run.within(self.range).filter(|_| written || self.unwritten_too) else {
            return Ok(());
        };
        self.ext.superblock.offset_of(start.saturating_add(blocks - 1))?;
        // `within` moved the start on from 0.
        (self.each)(FileRun { disk_offset: start * block_bytes + run.disk_offset, ..run }, !written)
    }

    /// The checksum stands behind the last entry that there is space for.
    fn check(&self, block: &[u8]) -> Result<(), Error> {
        if !self.ext.superblock.features.ro_compat.contains(ExtFeatures::METADATA_CHECKSUMS) {
            return Ok(());
        }
        let tail = HEADER_BYTES + usize::from(le16(block, 4).unwrap_or(0)) * ENTRY_BYTES;
        match block.get(..tail).zip(le32(block, tail)) {
            Some((bytes, sum)) if crc(self.inode.seed, bytes) == sum => Ok(()),
            _ => Err(self.inode.damaged("the checksum of a node of its tree of extents is wrong")),
        }
    }

    fn take(&mut self, blocks: u64) -> Result<(), Error> {
        let left = self.left.checked_sub(blocks);
        self.left = left.ok_or_else(|| self.inode.damaged("it has more blocks than the file system"))?;
        Ok(())
    }
}

/// What is wrong with a part of the map, which ends at a byte of the file.
fn map_part(to: u64, why: Error) -> Error {
    Error::MapPart { to, why: Box::new(why) }
}

/// 48 bits, the high ones elsewhere.
fn block_of(entry: &[u8], low: usize, high: usize) -> Option<u64> {
    Some(u64::from(le32(entry, low)?) | u64::from(le16(entry, high)?) << 32)
}
