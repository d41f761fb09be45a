//! Owners of blocks of trees: where two files exchanged their whole forks, as `xfs_fsr` has it
//! done, the log has the new roots, and says that the blocks below each have another owner now.

use crate::bytes::{be16, be32, be64};
use crate::source::ByteSource;
use crate::xfs::log::LogDamage;
use crate::xfs::log::buffers::seal_at;
use crate::xfs::superblock::Superblock;

const MAGIC: u32 = 0x424d_4133;
const HEADER_BYTES: usize = 72;
const OWNER: std::ops::Range<usize> = 56..64;
const CHECKSUM_AT: usize = 64;
const LEVELS_MAX: u16 = 9;

/// Makes an inode the owner of all blocks of the tree whose root its fork has.
///
/// # Errors
/// A block cannot be read or is none of such a tree, or there are more than the file system has.
pub fn change(
    source: &mut ByteSource,
    superblock: &Superblock,
    fork: &[u8],
    owner: u64,
) -> Result<(), LogDamage> {
    let none = "the tree of a file whose extents were exchanged is damaged";
    let level = be16(fork, 0).filter(|level| (1..=LEVELS_MAX).contains(level)).ok_or(none)?;
    let records = be16(fork, 2).ok_or(none)?;
    let root = fork.get(4..).and_then(|node| pointers(node, records));
    let mut blocks: Vec<(u64, u16)> = root.ok_or(none)?.into_iter().map(|at| (at, level - 1)).collect();
    let mut left = superblock.blocks.min(source.size() / superblock.block_bytes as u64 + 1);
    while let Some((block, level)) = blocks.pop() {
        left = left.checked_sub(1).ok_or(none)?;
        let offset = superblock.offset_of(block).map_err(|_| none)?;
        let mut bytes = source.bytes(offset, superblock.block_bytes).map_err(|_| none)?;
        if be32(&bytes, 0) != Some(MAGIC) || be16(&bytes, 4) != Some(level) {
            return Err(none);
        }
        if level > 0 {
            let below = be16(&bytes, 6).and_then(|records| pointers(&bytes[HEADER_BYTES..], records));
            blocks.extend(below.ok_or(none)?.into_iter().map(|at| (at, level - 1)));
        }
        if be64(&bytes, OWNER.start) != Some(owner) {
            bytes[OWNER].copy_from_slice(&owner.to_be_bytes());
            seal_at(&mut bytes, CHECKSUM_AT);
            source.overlay(offset, &bytes)?;
        }
    }
    Ok(())
}

/// The pointers of a node behind its header: as many keys as there is space for come first.
fn pointers(node: &[u8], records: u16) -> Option<Vec<u64>> {
    let start = node.len() / 16 * 8;
    (0..usize::from(records)).map(|ix| be64(node, start + ix * 8)).collect()
}
