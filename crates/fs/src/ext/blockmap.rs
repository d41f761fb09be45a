//! Block maps of ext2 and ext3: twelve blocks by number, then one, two and three levels of blocks
//! of numbers.

use std::ops::Range;

use crate::bytes::le32;
use crate::error::Error;
use crate::ext::Ext;
use crate::ext::inode::Inode;
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
}

/// Calls `each` for the runs of the file within a range, neighbours as one.
pub fn runs(
    ext: &Ext,
    inode: &Inode,
    range: &Range<u64>,
    each: &mut dyn FnMut(FileRun) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut walk = Walk { ext, inode, range, each, run: None, left: ext.blocks_max() };
    let numbers_per_block = (ext.superblock.block_bytes / 4) as u64;
    let mut first = 0;
    for ix in 0..DIRECT + LEVELS as usize {
        let level = (ix + 1).saturating_sub(DIRECT) as u32;
        let block = le32(&inode.map, ix * 4).unwrap_or(0);
        walk.blocks(first, block, level)?;
        first += numbers_per_block.pow(level);
    }
    walk.finish()
}

impl Walk<'_> {
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
        if level == 0 {
            let disk_offset = self.ext.superblock.offset_of(u64::from(block))?;
            return self.data(FileRun::plain(here.start, disk_offset, block_bytes));
        }
        let table = self.ext.block(u64::from(block));
        let table = table.map_err(|why| Error::MapPart { to: here.end, why: Box::new(why) })?;
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
