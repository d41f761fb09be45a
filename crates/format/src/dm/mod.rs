//! What device-mapper's targets keep on disk under LVM2's volumes: docs/formats.md §12 to §15.
//!
//! [`raid`] is the superblock in an rmeta LV, [`snapshot`] the exceptions of an old snapshot,
//! [`thin`] a thin pool's mappings, [`cache`] what a cache holds and what of it is dirty,
//! [`mirror`] where an old mirror's legs are alike, [`writecache`] what is newer in the cache of
//! that kind. The larger ones are trees of blocks. Nothing here does I/O: a walk says with `wants`
//! which block it needs next, and `give` takes it and returns what was in it. However hostile the
//! blocks, a walk ends.

mod array;
mod btree;
pub mod cache;
mod error;
pub mod mirror;
pub mod raid;
pub mod snapshot;
pub mod thin;
pub mod writecache;

pub use array::ArrayWalk;
pub(crate) use array::SALT as ARRAY_SALT;
pub(crate) use btree::SALT as NODE_SALT;
pub use btree::Walk;
pub use error::MetadataError;

/// Bytes of a block of thin and cache metadata.
pub const BLOCK_BYTES: usize = 4096;

/// Takes a block whose checksum (with the salt of its kind) is right and which says that it is
/// block `number`.
fn check(
    bytes: &[u8],
    number: u64,
    number_at: usize,
    salt: u32,
) -> Result<&[u8; BLOCK_BYTES], MetadataError> {
    let block = number;
    let Some(bytes) = bytes.first_chunk() else {
        return Err(MetadataError::Truncated { block, got: bytes.len() });
    };
    let (stored, computed) = (crate::bytes::le32(bytes, 0), checksum(bytes, salt));
    if stored != computed {
        return Err(MetadataError::Checksum { block, stored, computed });
    }
    let stored = crate::bytes::le64(bytes, number_at);
    if stored != number {
        return Err(MetadataError::WrongBlock { block, stored });
    }
    Ok(bytes)
}

/// Persistent-data's checksum: CRC-32C of all but itself, without the final inversion, under a salt
/// for each kind of block.
fn checksum(block: &[u8; BLOCK_BYTES], salt: u32) -> u32 {
    !crc32c::crc32c(&block[4..]) ^ salt
}

/// Gives a block the checksum of its kind.
pub(crate) fn reseal(block: &mut [u8; BLOCK_BYTES], salt: u32) {
    let sum = checksum(block, salt);
    crate::bytes::put_le32(block, 0, sum);
}
