//! How full ext2, ext3 and ext4 are, by the descriptors of their groups ([`crate::usage`]).

use crate::bytes::{le16, le32};
use crate::error::Error;
use crate::source::ByteSource;
use crate::usage::{FileSystemUsage, READS_MAX};

use super::superblock::{BYTES, OFFSET, Superblock};

/// # Errors
/// The superblock or a descriptor cannot be read, or is damaged.
pub fn usage(source: &ByteSource) -> Result<FileSystemUsage, Error> {
    let superblock = Superblock::read(source)?;
    let bytes = source.bytes(OFFSET, BYTES)?;
    // Of 64-bit ones there is a higher half.
    let word = |low: usize, high: usize| {
        let high = if superblock.is_wide() { le32(&bytes, high).unwrap_or(0) } else { 0 };
        u64::from(le32(&bytes, low).unwrap_or(0)) | u64::from(high) << 32
    };
    let in_blocks =
        |clusters: u64| clusters.saturating_mul(superblock.cluster_bytes() / superblock.block_bytes as u64);
    let free = match superblock.descriptor_blocks() {
        blocks if blocks > READS_MAX => word(0xc, 0x158),
        _ => in_blocks(free_clusters(source, &superblock)?),
    };
    // What mke2fs or the kernel found its own structures to take; 0 where that was never counted.
    let own = in_blocks(le32(&bytes, 0x248).unwrap_or(0).into());
    let reserved = word(0x8, 0x154);
    let bytes = |blocks: u64| blocks.saturating_mul(superblock.block_bytes as u64);
    Ok(FileSystemUsage {
        kind: superblock.features.kind(),
        used_bytes: bytes(superblock.blocks.saturating_sub(own).saturating_sub(free)),
        free_bytes: bytes(free.saturating_sub(reserved)),
    })
}

/// The sum of what the groups count. A block of descriptors is read once.
fn free_clusters(source: &ByteSource, superblock: &Superblock) -> Result<u64, Error> {
    let (mut block, mut bytes) = (None, Vec::new());
    let mut free = 0_u64;
    for group in 0..superblock.layout().groups {
        let (of, at) = superblock.descriptor_of(group);
        if block != Some(of) {
            bytes = source.bytes(superblock.offset_of(of)?, superblock.block_bytes)?;
            block = Some(of);
        }
        let half = |at: usize| le16(&bytes, at).map(u64::from);
        let what = "its descriptor is too short";
        let damaged = || Error::Damaged { structure: "ext group", at: group, what };
        let low = half(at + 0xc).ok_or_else(damaged)?;
        let high = if superblock.has_wide_descriptors() { half(at + 0x2c).ok_or_else(damaged)? } else { 0 };
        free = free.saturating_add(low | high << 16);
    }
    Ok(free)
}
