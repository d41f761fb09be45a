//! Directories of version 2: in the inode, in one block, or in many with indexes behind them.
//! Listing needs only the entries; hashes, leaves and free space lie at higher offsets of the file,
//! and are not looked at.

use std::ops::Range;

use crate::bytes::{be16, be32, be64, u8_at};
use crate::error::Error;
use crate::source::FileRun;
use crate::xfs::inode::{Format, Inode};
use crate::xfs::{Xfs, checksum_is_right};
use crate::{DirEntry, EachEntry, FsNode};

/// The indexes start here.
const ENTRIES_END: u64 = 32 << 30;

/// Places of blocks are in units of that.
const SECTOR_BYTES: u64 = 512;

/// Blocks of entries: alone, with their index at the end, and of many; of version 4 and of
/// version 5.
const MAGIC_BLOCK_V4: u32 = 0x5844_3242;
const MAGIC_DATA_V4: u32 = 0x5844_3244;
const MAGIC_BLOCK_V5: u32 = 0x5844_4233;
const MAGIC_DATA_V5: u32 = 0x5844_4433;
const HEADER_V4_BYTES: usize = 16;
const HEADER_V5_BYTES: usize = 64;
const CHECKSUM_AT: usize = 4;
const SECTOR_AT: usize = 8;
const OWNER_AT: usize = 40;

/// In place of an inode's number: space that is free.
const FREE: u16 = 0xffff;

/// Calls `each` for every entry but `.` and `..`.
pub fn list(xfs: &Xfs, inode: &Inode, each: &mut EachEntry<'_>) -> Result<(), Error> {
    if inode.format == Format::Local {
        return short(xfs, inode, each)
            .ok_or_else(|| inode.damaged("a short directory that ends too soon"))?;
    }
    let mut blocks = Blocks {
        xfs,
        inode,
        block: vec![0; xfs.superblock.directory_block_bytes],
        filled: 0,
        places: Vec::new(),
        left: xfs.source.size(),
    };
    let range = 0..inode.metadata.size_bytes.min(ENTRIES_END);
    // The size counts blocks of entries only.
    xfs.runs(inode, &range, &mut |run| blocks.add(run, each))?;
    match blocks.filled {
        0 => Ok(()),
        _ => Err(inode.damaged("a block of the directory is not whole")),
    }
}

/// In the inode. `None` if it ends beyond the fork.
fn short(xfs: &Xfs, inode: &Inode, each: &mut EachEntry<'_>) -> Option<Result<(), Error>> {
    let fork = inode.fork();
    let (count, wide) = (usize::from(u8_at(fork, 0)?), u8_at(fork, 1)? > 0);
    let number_bytes = if wide { 8 } else { 4 };
    let mut at = 2 + number_bytes;
    for _ in 0..count {
        let name_len = usize::from(u8_at(fork, at)?);
        let name = fork.get(at + 3..)?.get(..name_len)?;
        at += 3 + name_len + usize::from(xfs.superblock.ftype);
        let number = if wide { be64(fork, at)? } else { u64::from(be32(fork, at)?) };
        at += number_bytes;
        if name.is_empty() {
            return None;
        }
        if let Err(error) = each(DirEntry { name: name.to_vec(), node: FsNode { tree: 0, inode: number } }) {
            return Some(Err(error));
        }
    }
    Some(Ok(()))
}

/// Puts blocks of the directory, which may consist of several blocks of the file system, together.
struct Blocks<'a> {
    xfs: &'a Xfs,
    inode: &'a Inode,
    block: Vec<u8>,
    filled: usize,
    /// Where the parts of the block lie.
    places: Vec<Range<u64>>,
    /// Bytes that may still come: blocks of directories are not shared.
    left: u64,
}

impl Blocks<'_> {
    fn add(&mut self, run: FileRun, each: &mut EachEntry<'_>) -> Result<(), Error> {
        let left = self.left.checked_sub(run.len);
        self.left = left.ok_or_else(|| self.inode.damaged("it has more blocks than the file system"))?;
        let mut done = 0;
        while done < run.len {
            let len = self.block.len();
            if (run.file_offset + done) % len as u64 != self.filled as u64 {
                return Err(self.inode.damaged("a block of the directory is not whole"));
            }
            let part = ((run.len - done) as usize).min(len - self.filled);
            let filled = self.filled;
            let place = run.disk_offset + done;
            self.xfs.source.read(place, &mut self.block[filled..filled + part])?;
            self.places.push(place..place + part as u64);
            self.filled += part;
            done += part as u64;
            if self.filled == len {
                self.filled = 0;
                self.entries(each)?;
                self.places.clear();
            }
        }
        Ok(())
    }

    fn entries(&self, each: &mut EachEntry<'_>) -> Result<(), Error> {
        let damaged = || self.inode.damaged("a block of the directory is none");
        let block = &self.block[..];
        let version5 = self.xfs.superblock.version5;
        let magic = be32(block, 0).ok_or_else(damaged)?;
        let (alone, header) = match (version5, magic) {
            (false, MAGIC_BLOCK_V4) => (true, HEADER_V4_BYTES),
            (false, MAGIC_DATA_V4) => (false, HEADER_V4_BYTES),
            (true, MAGIC_BLOCK_V5) => (true, HEADER_V5_BYTES),
            (true, MAGIC_DATA_V5) => (false, HEADER_V5_BYTES),
            _ => return Err(damaged()),
        };
        let end = if alone { index_start(block).ok_or_else(damaged)? } else { block.len() };
        let is_right = !version5
            || be64(block, OWNER_AT) == Some(self.inode.number)
                && (checksum_is_right(block, CHECKSUM_AT) || self.is_right_in_parts(header..end));
        if !is_right {
            return Err(self.inode.damaged("the checksum or owner of a block of the directory is wrong"));
        }
        let mut rest = block.get(header..end).ok_or_else(damaged)?;
        while !rest.is_empty() {
            rest = self.entry(rest, each).ok_or_else(damaged)??;
        }
        Ok(())
    }

    /// Whether the log changed the block in parts that lie apart, and it is what its other marks
    /// say: its place, and at the end of each entry where that starts.
    fn is_right_in_parts(&self, entries: Range<usize>) -> bool {
        let is_in_parts =
            self.places.iter().any(|place| self.xfs.directory_parts.range(place.clone()).next().is_some());
        let sector = self.places.first().map(|place| place.start / SECTOR_BYTES);
        let mut at = entries.start;
        while is_in_parts && at < entries.end {
            let Some(len) = self.marked_len(at).filter(|len| *len <= entries.end - at) else { return false };
            at += len;
        }
        is_in_parts && be64(&self.block, SECTOR_AT) == sector && at == entries.end
    }

    /// The length of an entry or of free space that says at its end where it starts.
    fn marked_len(&self, at: usize) -> Option<usize> {
        let bytes = self.block.get(at..)?;
        let len = match be16(bytes, 0)? {
            FREE => Some(usize::from(be16(bytes, 2)?)).filter(|len| *len >= 8 && len % 8 == 0)?,
            _ => self.entry_len(bytes)?,
        };
        (be16(bytes, len - 2).map(usize::from) == Some(at)).then_some(len)
    }

    /// The length of an entry: behind the name come the type, if there is one, and the entry's own
    /// offset, which ends at a multiple of 8.
    fn entry_len(&self, bytes: &[u8]) -> Option<usize> {
        let name_len = usize::from(u8_at(bytes, 8)?);
        Some((9 + name_len + usize::from(self.xfs.superblock.ftype) + 2).next_multiple_of(8))
    }

    /// One entry, or free space; what is left behind it. `None` if it is none.
    fn entry<'b>(&self, bytes: &'b [u8], each: &mut EachEntry<'_>) -> Option<Result<&'b [u8], Error>> {
        if be16(bytes, 0)? == FREE {
            let len = usize::from(be16(bytes, 2)?);
            return (len >= 8 && len % 8 == 0).then(|| bytes.get(len..)).flatten().map(Ok);
        }
        let number = be64(bytes, 0)?;
        let name_len = usize::from(u8_at(bytes, 8)?);
        let name = bytes.get(9..9 + name_len).filter(|name| !name.is_empty())?;
        let rest = bytes.get(self.entry_len(bytes)?..)?;
        if name != b"."
            && name != b".."
            && let Err(error) =
                each(DirEntry { name: name.to_vec(), node: FsNode { tree: 0, inode: number } })
        {
            return Some(Err(error));
        }
        Some(Ok(rest))
    }
}

/// Of a block alone: its index, whose number of entries stands at its end, comes behind the
/// entries.
fn index_start(block: &[u8]) -> Option<usize> {
    const TAIL_BYTES: usize = 8;
    let count = be32(block, block.len() - TAIL_BYTES)? as usize;
    block.len().checked_sub(TAIL_BYTES)?.checked_sub(count.checked_mul(8)?)
}
