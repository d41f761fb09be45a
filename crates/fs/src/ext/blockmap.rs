//! Block maps of ext2 and ext3: twelve blocks by number, then one, two and three levels of blocks
//! of numbers.

use std::ops::Range;

use crate::bytes::le32;
use crate::error::Error;
use crate::ext::inode::Inode;
use crate::ext::{Ext, attributes};
use crate::source::FileRun;

const DIRECT: usize = 12;
const LEVELS: u32 = 3;

struct Walk<'a> {
    ext: &'a Ext,
    inode: &'a Inode,
    range: &'a Range<u64>,
    each: &'a mut dyn FnMut(FileRun) -> Result<(), Error>,
    /// Neighbours that were found and not yet handed on.
    run: Option<FileRun>,
    /// Blocks that may still come: a block has one owner.
    left: u64,
    /// Blocks of data and of numbers that came.
    came: u64,
    /// Whether the file has all the blocks that its inode counts, once that was asked.
    is_whole: Option<bool>,
}

/// Calls `each` for the runs of the file within a range, neighbours as one.
///
/// A block of numbers has no magic and no checksum: one that was lost is zeros in a copy, and leads
/// to nothing but holes. That there are blocks of data and of numbers is counted in the inode.
///
/// # Errors
/// The map cannot be read, or the file has fewer blocks than its inode counts; or what `each` says.
pub fn runs(
    ext: &Ext,
    inode: &Inode,
    range: &Range<u64>,
    each: &mut dyn FnMut(FileRun) -> Result<(), Error>,
) -> Result<(), Error> {
    let left = ext.blocks_max();
    let mut walk = Walk { ext, inode, range, each, run: None, left, came: 0, is_whole: None };
    walk.all()?;
    let is_all = range.start == 0 && range.end >= inode.metadata.size_bytes;
    match is_all && !walk.is_whole() {
        true => Err(inode.damaged(FEWER)),
        false => Ok(()),
    }
}

const FEWER: &str = "it has fewer blocks than it counts: some of its block numbers are gone";

/// Whether a file has all the blocks that its inode counts. What a map behind the end of the file
/// leads to counts, too.
fn is_whole(ext: &Ext, inode: &Inode) -> bool {
    // Fast commits tell of ranges, and of inodes as they are to be after that.
    if ext.fast.moves(inode.number) || ext.fast.inode(inode.number).is_some() {
        return true;
    }
    let (range, left) = (0..u64::MAX, ext.blocks_max());
    let mut each = |_| Ok(());
    let (each, run) = (&mut each, None);
    let mut walk = Walk { ext, inode, range: &range, each, run, left, came: 0, is_whole: Some(true) };
    // What cannot be read is told where it is.
    let came = walk.all().map(|()| walk.came);
    let block_bytes = ext.superblock.block_bytes as u64;
    let attributes = u64::from(attributes::block_of(inode) != 0);
    came.is_err()
        || came
            .is_ok_and(|came| (came + attributes).saturating_mul(block_bytes) >= inode.metadata.stored_bytes)
}

impl Walk<'_> {
    /// The whole map. An error comes behind all that leads to it.
    fn all(&mut self) -> Result<(), Error> {
        let walked = self.walk_map();
        self.finish()?;
        walked
    }

    fn walk_map(&mut self) -> Result<(), Error> {
        let numbers_per_block = (self.ext.superblock.block_bytes / 4) as u64;
        let mut first = 0;
        for ix in 0..DIRECT + LEVELS as usize {
            let level = (ix + 1).saturating_sub(DIRECT) as u32;
            let block = le32(&self.inode.map, ix * 4).unwrap_or(0);
            self.blocks(first, block, level)?;
            first += numbers_per_block.pow(level);
        }
        Ok(())
    }

    fn is_whole(&mut self) -> bool {
        let (ext, inode) = (self.ext, self.inode);
        *self.is_whole.get_or_insert_with(|| is_whole(ext, inode))
    }

    /// What `block` leads to: data at level 0, else a block of numbers. `first` is the first block
    /// of the file behind it.
    fn blocks(&mut self, first: u64, block: u32, level: u32) -> Result<(), Error> {
        let block_bytes = self.ext.superblock.block_bytes as u64;
        let numbers = block_bytes / 4;
        let span = numbers.pow(level);
        let here = first.saturating_mul(block_bytes)..(first + span).saturating_mul(block_bytes);
        if block == 0 || here.end <= self.range.start || here.start >= self.range.end {
            return Ok(());
        }
        let left = self.left.checked_sub(1);
        self.left = left.ok_or_else(|| self.inode.damaged("it has more blocks than the file system"))?;
        self.came += 1;
        if level == 0 {
            let disk_offset = self.ext.superblock.offset_of(u64::from(block))?;
            return self.data(FileRun::plain(here.start, disk_offset, block_bytes));
        }
        let table = self.ext.block(u64::from(block));
        let table = table.map_err(|why| Error::MapPart { to: here.end, why: Box::new(why) })?;
        // A block of numbers is there for one at least.
        if table.iter().all(|&byte| byte == 0) && !self.is_whole() {
            let what = "a block of block numbers is zeros, and its inode counts more blocks";
            let why = Error::Damaged { structure: "ext block", at: u64::from(block), what };
            return Err(Error::MapPart { to: here.end, why: Box::new(why) });
        }
        for (ix, number) in table.chunks_exact(4).enumerate() {
            let number = le32(number, 0).unwrap_or(0);
            self.blocks(first + ix as u64 * numbers.pow(level - 1), number, level - 1)?;
        }
        Ok(())
    }

    fn data(&mut self, next: FileRun) -> Result<(), Error> {
        if let Some(run) = &mut self.run
            && run.file_offset + run.len == next.file_offset
            && run.disk_offset + run.len == next.disk_offset
        {
            run.len += next.len;
            return Ok(());
        }
        self.finish()?;
        self.run = Some(next);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        match self.run.take().and_then(|run| run.within(self.range)) {
            Some(run) => (self.each)(run),
            None => Ok(()),
        }
    }
}
