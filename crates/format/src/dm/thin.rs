//! A thin pool's metadata: which of its volumes' blocks are where. docs/formats.md §14.

use super::{BLOCK_BYTES, MetadataError, Walk, check};
use crate::bytes::{array, le32, le64};

pub(crate) const SALT: u32 = 160_774;
const MAGIC: u64 = 27_022_010;
const VERSION: u32 = 2;
const METADATA_BLOCK_SECTORS: u32 = 8;
/// 64 KiB and 1 GiB.
const DATA_BLOCK_SECTORS: std::ops::RangeInclusive<u32> = 128..=2_097_152;
/// Volumes have numbers of 24 bits.
const MAX_DEVICE: u64 = (1 << 24) - 1;
const NEEDS_CHECK: u32 = 1;
/// The largest metadata device there can be: 255 bitmaps of 16320 blocks.
const MAX_BLOCKS: u64 = 255 * 16_320;

/// The superblock, block 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// A check or repair is due before the pool may be written.
    pub needs_check: bool,
    /// Grows with every snapshot.
    pub time: u32,
    /// Must be the pool's in LVM2's text.
    pub transaction_id: u64,
    /// Root of a frozen copy of everything, for user space; 0 if there is none.
    pub held_root: u64,
    /// Unit of allocation, in sectors.
    pub data_block_sectors: u32,
    /// Data blocks of the pool.
    pub data_blocks: u64,
    /// How many of them are in use.
    pub allocated_data_blocks: u64,
    /// Blocks of metadata.
    pub metadata_blocks: u64,
    mapping_root: u64,
    details_root: u64,
}

/// A thin volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinVolume {
    /// Its number, as LVM2's text has it.
    pub device_id: u64,
    /// How many blocks it has.
    pub mapped_blocks: u64,
    /// The transaction that made it.
    pub transaction_id: u64,
    /// The pool's time when it was made.
    pub creation_time: u32,
    /// The pool's time when a snapshot was last taken of it, or of it from another.
    pub snapshotted_time: u32,
}

/// A block that a volume has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinMapping {
    /// Its number in the volume.
    pub block: u64,
    /// Its number in the pool's data.
    pub data_block: u64,
    /// The pool's time when it was mapped: at or before `snapshotted_time` a snapshot may share it.
    pub time: u32,
}

impl Superblock {
    /// Reads block 0 of a metadata device.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, MetadataError> {
        // The magic first: on anything else a checksum says nothing.
        if let Some(magic) = bytes.get(32..40).map(|magic| le64(magic, 0)).filter(|&magic| magic != MAGIC) {
            return Err(MetadataError::Magic { found: magic });
        }
        let bytes: &[u8; BLOCK_BYTES] = check(bytes, 0, 8, SALT)?;
        let found = le32(bytes, 40);
        if found != VERSION {
            return Err(MetadataError::Version { found });
        }
        let found = le32(bytes, 360);
        if found != 0 {
            return Err(MetadataError::Features { found });
        }
        let (data_sectors, metadata_sectors) = (le32(bytes, 336), le32(bytes, 340));
        let multiple = data_sectors.is_multiple_of(*DATA_BLOCK_SECTORS.start());
        if metadata_sectors != METADATA_BLOCK_SECTORS
            || !DATA_BLOCK_SECTORS.contains(&data_sectors)
            || !multiple
        {
            return Err(MetadataError::BlockSize { metadata_sectors, data_sectors });
        }
        Ok(Superblock {
            needs_check: le32(bytes, 4) & NEEDS_CHECK != 0,
            time: le32(bytes, 44),
            transaction_id: le64(bytes, 48),
            held_root: le64(bytes, 56),
            data_block_sectors: data_sectors,
            data_blocks: le64(bytes, 64),
            allocated_data_blocks: le64(bytes, 72),
            metadata_blocks: le64(bytes, 344).min(MAX_BLOCKS),
            mapping_root: le64(bytes, 320),
            details_root: le64(bytes, 328),
        })
    }

    /// Walks over all volumes; see [`ThinVolume::decode`].
    #[must_use]
    pub fn devices(&self) -> Walk<24> {
        Walk::new(self.details_root, 0..=MAX_DEVICE, self.metadata_blocks)
    }

    /// Walks to the root of one volume's mappings: at most one entry, its value for
    /// [`Superblock::mappings`].
    #[must_use]
    pub fn mapping_root(&self, device_id: u64) -> Walk<8> {
        Walk::new(self.mapping_root, device_id..=device_id, self.metadata_blocks)
    }

    /// Walks over a volume's mappings of these blocks; see [`Superblock::mapping`].
    #[must_use]
    pub fn mappings(&self, root: [u8; 8], blocks: std::ops::RangeInclusive<u64>) -> Walk<8> {
        Walk::new(u64::from_le_bytes(root), blocks, self.metadata_blocks)
    }

    /// An entry of a volume's mappings; `None` when it points past the end of the pool's data.
    #[must_use]
    pub fn mapping(&self, (block, value): (u64, [u8; 8])) -> Option<ThinMapping> {
        let value = u64::from_le_bytes(value);
        let (data_block, time) = (value >> 24, (value & 0xff_ffff) as u32);
        (data_block < self.data_blocks).then_some(ThinMapping { block, data_block, time })
    }
}

impl ThinVolume {
    /// An entry of [`Superblock::devices`].
    #[must_use]
    pub fn decode((device_id, value): (u64, [u8; 24])) -> ThinVolume {
        ThinVolume {
            device_id,
            mapped_blocks: u64::from_le_bytes(array(&value, 0)),
            transaction_id: u64::from_le_bytes(array(&value, 8)),
            creation_time: le32(&value, 16),
            snapshotted_time: le32(&value, 20),
        }
    }
}
