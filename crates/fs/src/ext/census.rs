//! The census of ext2, ext3 and ext4: inodes by the groups' bitmaps, free space likewise.

use crate::FileKind;
use crate::census::{CensusLimits, Counting, FileSystemCensus, ForkKind, Ideal, StoredExtent};
use crate::error::Error;
use crate::ext::Ext;
use crate::ext::descriptor::GroupDescriptor;
use crate::ext::extents;
use crate::ext::inode::{Inode, InodeFlags};
use crate::source::ByteSource;

/// Takes it.
///
/// # Errors
/// The file system cannot be opened.
pub fn take(source: ByteSource, limits: CensusLimits) -> Result<FileSystemCensus, Error> {
    let ext = Ext::open(source)?;
    let layout = ext.superblock.layout();
    let groups = layout.groups.min(ext.blocks_max());
    let ideal = Ideal::Bytes(layout.group_bytes.saturating_mul(ext.superblock.groups_together()));
    let mut counting = Counting::new(limits, ideal, groups, layout.group_bytes);
    let mut free = FreeRun::default();
    // The groups' own counts say how many inodes each of them gives.
    let all = in_use(&ext, groups, &mut counting);
    counting.census.inodes = all;
    for group in 0..groups {
        let counted = counting.take().and_then(|()| GroupDescriptor::of(&ext, group));
        let descriptor = match counted {
            Ok(descriptor) => descriptor,
            Err(Error::Stopped) => {
                counting.census.complete = false;
                counting.census.free.complete = false;
                break;
            }
            Err(error) => {
                counting.pass_over(Err(error));
                counting.census.free.complete = false;
                free.end(&ext, &mut counting);
                continue;
            }
        };
        let looked = free_blocks(&ext, group, &descriptor, &mut free, &mut counting);
        if looked.is_err() {
            counting.census.free.complete = false;
            free.end(&ext, &mut counting);
            counting.pass_over(looked);
        }
        let share = counting.share(descriptor.inodes_in_use(&ext.superblock), all);
        let looked = inodes(&ext, group, &descriptor, share, &mut counting);
        counting.pass_over(looked);
    }
    free.end(&ext, &mut counting);
    Ok(counting.census)
}

/// Inodes in use, by the descriptors; what cannot be read has none.
fn in_use(ext: &Ext, groups: u64, counting: &mut Counting) -> u64 {
    let mut all = 0_u64;
    for group in 0..groups.min(counting.limits.records) {
        if let Ok(descriptor) = GroupDescriptor::of(ext, group) {
            all = all.saturating_add(descriptor.inodes_in_use(&ext.superblock));
        }
    }
    all
}

/// Free clusters that follow one another, also from one group to the next.
#[derive(Default)]
struct FreeRun {
    clusters: u64,
}

impl FreeRun {
    fn end(&mut self, ext: &Ext, counting: &mut Counting) {
        counting.census.free.add(self.clusters.saturating_mul(ext.superblock.cluster_bytes()));
        self.clusters = 0;
    }
}

fn free_blocks(
    ext: &Ext,
    group: u64,
    descriptor: &GroupDescriptor,
    free: &mut FreeRun,
    counting: &mut Counting,
) -> Result<(), Error> {
    let superblock = &ext.superblock;
    let clusters = superblock.clusters_of(group).min(superblock.block_bytes as u64 * 8) as usize;
    let bitmap = match descriptor.blocks_uninitialised() {
        false => ext.block(descriptor.block_bitmap)?,
        true => superblock.initial_bitmap(group, descriptor),
    };
    let mut at = 0;
    while at < clusters {
        // Eight at a time, where they are alike.
        let (byte, whole) = (bitmap[at / 8], at % 8 == 0 && at + 8 <= clusters);
        let (step, used) = match byte {
            0 | 0xff if whole => (8, byte != 0),
            _ => (1, byte >> (at % 8) & 1 != 0),
        };
        match used {
            false => free.clusters += step as u64,
            true if free.clusters > 0 => {
                counting.take()?;
                free.end(ext, counting);
            }
            true => {}
        }
        at += step;
    }
    Ok(())
}

fn inodes(
    ext: &Ext,
    group: u64,
    descriptor: &GroupDescriptor,
    share: u64,
    counting: &mut Counting,
) -> Result<(), Error> {
    if descriptor.inodes_uninitialised() {
        return Ok(());
    }
    let superblock = &ext.superblock;
    let mut left = share;
    let bitmap = ext.block(descriptor.inode_bitmap)?;
    let per_group = superblock.inodes_per_group();
    for ix in 0..per_group.min(bitmap.len() as u64 * 8) {
        if bitmap[ix as usize / 8] >> (ix % 8) & 1 == 0 {
            continue;
        }
        left = left.checked_sub(1).ok_or(Error::Stopped)?;
        counting.take()?;
        counting.census.inodes_seen += 1;
        match inode(ext, group.saturating_mul(per_group).saturating_add(ix + 1), counting) {
            Err(Error::Stopped) => return Err(Error::Stopped),
            counted => counting.pass_over(counted),
        }
    }
    Ok(())
}

fn inode(ext: &Ext, number: u64, counting: &mut Counting) -> Result<(), Error> {
    if ext.superblock.is_own_inode(number) {
        return Ok(());
    }
    let inode = Inode::read_unlinked(ext, number)?;
    let kind = match inode.metadata.kind {
        FileKind::File if !inode.flags.contains(InodeFlags::ATTRIBUTE) => ForkKind::File,
        FileKind::Directory => ForkKind::Directory,
        _ => return Ok(()),
    };
    if inode.flags.contains(InodeFlags::INLINE_DATA) {
        return Ok(());
    }
    counting.fork(kind, |each| {
        // What was changed by fast commits is known by its runs only.
        match inode.flags.contains(InodeFlags::EXTENTS) && !ext.fast.moves(number) {
            true => extents::stored(ext, &inode, &mut |run, unwritten| each(StoredExtent { run, unwritten })),
            false => {
                ext.runs(&inode, &(0..u64::MAX), &mut |run| each(StoredExtent { run, unwritten: false }))
            }
        }
    })
}
