//! The census of XFS: inodes by the groups' trees, free space by the trees of free space.

use crate::FileKind;
use crate::census::{CensusLimits, Counting, FileSystemCensus, ForkKind, Ideal, StoredExtent};
use crate::error::Error;
use crate::source::{ByteSource, FileRun};
use crate::xfs::Xfs;
use crate::xfs::fork::{self, Fork};
use crate::xfs::groups::{GroupHeads, INODES_PER_RECORD, InodeRecord};
use crate::xfs::inode::{Format, Inode};

/// Blocks of the longest extent: 21 bits.
const EXTENT_BLOCKS_MAX: u64 = (1 << 21) - 1;

/// Takes it.
///
/// # Errors
/// The file system cannot be opened.
pub fn take(source: ByteSource, limits: CensusLimits) -> Result<FileSystemCensus, Error> {
    let xfs = Xfs::open(source)?;
    let layout = xfs.superblock.layout();
    let block_bytes = layout.block_bytes;
    let groups = layout.groups.min(xfs.blocks_max());
    let ideal = Ideal::Parts(EXTENT_BLOCKS_MAX * block_bytes);
    let mut counting = Counting::new(limits, ideal, groups, layout.group_bytes);
    let mut heads = Vec::new();
    for group in 0..groups {
        match counting.take().and_then(|()| GroupHeads::read(&xfs, group)) {
            Ok(read) => heads.push(read),
            Err(Error::Stopped) => {
                counting.pass_over(Err(Error::Stopped));
                counting.census.free.complete = false;
                break;
            }
            Err(error) => {
                counting.pass_over(Err(error));
                counting.census.free.complete = false;
            }
        }
    }
    let all = heads.iter().map(|heads| heads.inodes).sum();
    counting.census.inodes = all;
    // Both take from the same number of records: free space first, which is never much.
    for heads in &heads {
        free(&xfs, heads, &mut counting);
    }
    for heads in &heads {
        let share = counting.share(heads.inodes, all);
        inodes(&xfs, heads, share, &mut counting);
    }
    Ok(counting.census)
}

fn free(xfs: &Xfs, heads: &GroupHeads, counting: &mut Counting) {
    let block_bytes = xfs.superblock.block_bytes as u64;
    let mut records = counting.limits.records;
    let mut tally = std::mem::take(&mut counting.census.free);
    let mut blocks = 0_u64;
    let result = heads.free(
        xfs,
        &mut || {
            blocks += 1;
            Ok(())
        },
        &mut |run| {
            records = records.checked_sub(1).ok_or(Error::Stopped)?;
            tally.add(run * block_bytes);
            Ok(())
        },
    );
    tally.complete &= result.is_ok();
    counting.limits.records = records.saturating_sub(blocks);
    counting.census.free = tally;
    if !matches!(result, Err(Error::Stopped)) {
        counting.pass_over(result);
    }
}

fn inodes(xfs: &Xfs, heads: &GroupHeads, share: u64, counting: &mut Counting) {
    let mut left = share;
    let counting = std::cell::RefCell::new(counting);
    let result = heads.inodes(xfs, &mut || counting.borrow_mut().take(), &mut |record| {
        chunk(xfs, record, &mut left, &mut counting.borrow_mut())
    });
    counting.into_inner().pass_over(result);
}

fn chunk(xfs: &Xfs, record: InodeRecord, left: &mut u64, counting: &mut Counting) -> Result<(), Error> {
    for number in (0..INODES_PER_RECORD).filter(|ix| record.free >> ix & 1 == 0).map(|ix| record.first + ix) {
        *left = left.checked_sub(1).ok_or(Error::Stopped)?;
        counting.take()?;
        counting.census.inodes_seen += 1;
        let counted = inode(xfs, number, counting);
        match counted {
            Err(Error::Stopped) => return Err(Error::Stopped),
            counted => counting.pass_over(counted),
        }
    }
    Ok(())
}

fn inode(xfs: &Xfs, number: u64, counting: &mut Counting) -> Result<(), Error> {
    let inode = Inode::read_unlinked(xfs, number)?;
    let own = xfs.superblock.own_inodes.contains(&number);
    let kind = match inode.metadata.kind {
        FileKind::File if !own && !inode.realtime => ForkKind::File,
        FileKind::Directory => ForkKind::Directory,
        _ => ForkKind::Other,
    };
    count(xfs, &inode, inode.data_fork(), kind, counting)?;
    match inode.attribute_fork() {
        Some(fork) => count(xfs, &inode, fork, ForkKind::Other, counting),
        None => Ok(()),
    }
}

fn count(
    xfs: &Xfs,
    inode: &Inode,
    fork: Fork<'_>,
    kind: ForkKind,
    counting: &mut Counting,
) -> Result<(), Error> {
    if !matches!(fork.format, Format::Extents | Format::Btree) {
        return Ok(());
    }
    let superblock = &xfs.superblock;
    let block_bytes = superblock.block_bytes as u64;
    counting.fork(kind, |each| {
        fork::extents(xfs, inode, fork, &(0..u64::MAX), &mut |extent| {
            // Another device has the blocks of a realtime file.
            let start = if inode.realtime { 0 } else { superblock.offset_of(extent.start)? };
            let file_offset = extent.first.saturating_mul(block_bytes);
            let run = FileRun::plain(file_offset, start, extent.blocks * block_bytes);
            each(StoredExtent { run, unwritten: extent.unwritten })
        })
    })
}
