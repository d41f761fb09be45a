//! How full XFS is, by the heads of its groups ([`crate::usage`]).

use crate::bytes::{be32, be64};
use crate::error::Error;
use crate::source::ByteSource;
use crate::usage::{FileSystemUsage, READS_MAX};

use super::groups::free_blocks;
use super::superblock::Superblock;

/// Where the superblock counts free blocks (`sb_fdblocks`), and the blocks of its log.
const FREE_AT: usize = 144;
const LOG_BLOCKS_AT: usize = 96;

/// # Errors
/// The superblock or a head cannot be read, or is damaged.
pub fn usage(source: &ByteSource) -> Result<FileSystemUsage, Error> {
    let superblock = Superblock::read(source)?;
    let bytes = source.bytes(0, FREE_AT + 8)?;
    let layout = superblock.layout();
    let free = match layout.groups {
        groups if groups > READS_MAX => be64(&bytes, FREE_AT).unwrap_or(0),
        groups => {
            let mut free = 0_u64;
            for group in 0..groups {
                free = free.saturating_add(free_blocks(source, &superblock, group)?);
            }
            free
        }
    };
    // A log on a device of its own takes nothing here.
    let log = superblock.log.map_or(0, |_| be32(&bytes, LOG_BLOCKS_AT).unwrap_or(0));
    let bytes = |blocks: u64| blocks.saturating_mul(layout.block_bytes);
    Ok(FileSystemUsage {
        kind: layout.kind,
        used_bytes: bytes(superblock.blocks.saturating_sub(log.into()).saturating_sub(free)),
        free_bytes: bytes(free),
    })
}
