//! A cache's metadata: which blocks it has and which of them are dirty. docs/formats.md §15.

use super::{ArrayWalk, MetadataError, check};
use crate::bytes::{array, le32, le64};

pub(crate) const SALT: u32 = 9_031_977;
const MAGIC: u64 = 0o6_142_003;
const METADATA_BLOCK_SECTORS: u32 = 8;
/// 32 KiB and 1 GiB.
const DATA_BLOCK_SECTORS: std::ops::RangeInclusive<u32> = 64..=2_097_152;
const CLEAN_SHUTDOWN: u32 = 1;
const NEEDS_CHECK: u32 = 2;
const VALID: u64 = 1;
const DIRTY: u64 = 2;
/// As for thin pools.
const MAX_BLOCKS: u64 = 255 * 16_320;

/// The superblock, block 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Whether the dirty bits are true: they are written when the cache is stopped. If not, every
    /// block may be dirty.
    pub clean_shutdown: bool,
    /// A check or repair is due before the cache may be written.
    pub needs_check: bool,
    /// 1 or 2; they keep the dirty bits in different places.
    pub version: u32,
    /// Unit of caching, in sectors.
    pub data_block_sectors: u32,
    /// Blocks the cache has.
    pub cache_blocks: u32,
    /// Name of the policy, zeros behind it.
    pub policy: [u8; 16],
    mapping_root: u64,
    dirty_root: u64,
}

/// A block in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedBlock {
    /// Its number in the cache.
    pub cache_block: u64,
    /// Its number in the slow volume.
    pub origin_block: u64,
    /// Whether it says itself that it is dirty: version 1 only, see [`Superblock::dirty`] for
    /// version 2.
    pub dirty: bool,
}

impl Superblock {
    /// Reads block 0 of a metadata device.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, MetadataError> {
        if let Some(magic) = bytes.get(32..40).map(|magic| le64(magic, 0)).filter(|&magic| magic != MAGIC) {
            return Err(MetadataError::Magic { found: magic });
        }
        let bytes = check(bytes, 0, 8, SALT)?;
        let version = le32(bytes, 40);
        if !(1..=2).contains(&version) {
            return Err(MetadataError::Version { found: version });
        }
        let found = le32(bytes, 252);
        if found != 0 {
            return Err(MetadataError::Features { found });
        }
        let (data_sectors, metadata_sectors) = (le32(bytes, 232), le32(bytes, 236));
        let multiple = data_sectors.is_multiple_of(*DATA_BLOCK_SECTORS.start());
        if metadata_sectors != METADATA_BLOCK_SECTORS
            || !DATA_BLOCK_SECTORS.contains(&data_sectors)
            || !multiple
        {
            return Err(MetadataError::BlockSize { metadata_sectors, data_sectors });
        }
        let flags = le32(bytes, 4);
        Ok(Superblock {
            clean_shutdown: flags & CLEAN_SHUTDOWN != 0,
            needs_check: flags & NEEDS_CHECK != 0,
            version,
            data_block_sectors: data_sectors,
            cache_blocks: le32(bytes, 240),
            policy: array(bytes, 44),
            mapping_root: le64(bytes, 192),
            dirty_root: le64(bytes, 284),
        })
    }

    /// Walks over the blocks of the cache; see [`CachedBlock::decode`].
    #[must_use]
    pub fn mappings(&self) -> ArrayWalk<8> {
        ArrayWalk::new(self.mapping_root, self.cache_blocks.into(), MAX_BLOCKS)
    }

    /// Walks over the dirty bits; see [`Superblock::dirty_blocks`]. `None` in version 1.
    #[must_use]
    pub fn dirty(&self) -> Option<ArrayWalk<8>> {
        let words = u64::from(self.cache_blocks).div_ceil(64);
        (self.version == 2).then(|| ArrayWalk::new(self.dirty_root, words, MAX_BLOCKS))
    }

    /// The blocks that an entry of [`Superblock::dirty`] says are dirty. Of blocks that are not in
    /// use it means nothing: new ones have their bits set.
    pub fn dirty_blocks(&self, (index, word): (u64, [u8; 8])) -> impl Iterator<Item = u64> {
        let (word, blocks) = (u64::from_le_bytes(word), u64::from(self.cache_blocks));
        let set = (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 64 * index + bit);
        set.take_while(move |&block| block < blocks)
    }
}

impl CachedBlock {
    /// An entry of [`Superblock::mappings`]; `None` when the block is not in use.
    #[must_use]
    pub fn decode((cache_block, value): (u64, [u8; 8])) -> Option<CachedBlock> {
        let value = u64::from_le_bytes(value);
        let mapping = CachedBlock { cache_block, origin_block: value >> 16, dirty: value & DIRTY != 0 };
        (value & VALID != 0).then_some(mapping)
    }
}
