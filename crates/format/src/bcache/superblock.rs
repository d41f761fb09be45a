//! Superblocks of bcache: of backing devices, whose data begins behind them, and of cache devices.
//!
//! Layout: docs/formats.md §29.

use super::crc64::crc64;
use crate::bytes::{array, le16, le64};

/// Where the superblock is.
pub const AT_BYTES: u64 = 4096;
/// What is read of it, bytes.
pub const SUPERBLOCK_BYTES: usize = 4096;
/// The magic number, at 24.
pub const MAGIC: [u8; 16] =
    [0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81];
/// Where the keys that the checksum covers begin.
const KEYS_AT: usize = 208;
/// Where data begins on backing devices that do not say it, sectors.
const DATA_SECTOR: u64 = 16;

/// Why a superblock is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BcacheError {
    /// There is none.
    #[error("there is no superblock of bcache")]
    NotFound,
    /// Its checksum is wrong.
    #[error("the checksum of the superblock is {found:#x}, and should be {computed:#x}")]
    Checksum {
        /// What it says.
        found: u64,
        /// What its bytes give.
        computed: u64,
    },
    /// A version that is not known.
    #[error("version {0} of the superblock is not known")]
    Version(u64),
    /// A field that cannot be so.
    #[error("the field {field} is {value}, which cannot be")]
    Field {
        /// Its name.
        field: &'static str,
        /// What it says.
        value: u64,
    },
}

/// What becomes of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BcacheMode {
    /// It goes to both at once.
    WriteThrough,
    /// It goes to the cache first.
    WriteBack,
    /// It goes past the cache.
    WriteAround,
    /// There is no caching.
    None,
}

/// How a backing device stands to its cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackingState {
    /// It has no cache.
    Detached,
    /// The cache has nothing that is not here.
    Clean,
    /// The cache has writes that are not here.
    Dirty,
    /// It was used without its cache since.
    Stale,
}

/// What a device is to bcache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BcacheRole {
    /// It has the data.
    Backing {
        /// Where its data begins, sectors.
        data_sector: u64,
        /// What becomes of a write.
        mode: BcacheMode,
        /// How it stands to its cache.
        state: BackingState,
    },
    /// It has copies of data, and with write-back also the newest.
    Cache,
}

/// A superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BcacheSuperblock {
    /// Its version.
    pub version: u64,
    /// The id of the device.
    pub uuid: [u8; 16],
    /// The id of the caches that it is of, or was.
    pub set_uuid: [u8; 16],
    /// What it is.
    pub role: BcacheRole,
    /// The size of a block to users of the data.
    pub block_bytes: u32,
}

impl BcacheSuperblock {
    /// Reads a superblock from the bytes at [`AT_BYTES`] of a device.
    ///
    /// # Errors
    /// [`BcacheError`]
    pub fn parse(bytes: &[u8]) -> Result<Self, BcacheError> {
        if bytes.len() < KEYS_AT || array::<16>(bytes, 24) != MAGIC {
            return Err(BcacheError::NotFound);
        }
        let field = |field, value| BcacheError::Field { field, value };
        let keys = le16(bytes, 206);
        let end = KEYS_AT + 8 * usize::from(keys);
        let covered = bytes.get(8..end).ok_or(field("keys", keys.into()))?;
        let (found, computed) = (le64(bytes, 0), crc64(covered));
        if found != computed {
            return Err(BcacheError::Checksum { found, computed });
        }
        let (version, flags) = (le64(bytes, 16), le64(bytes, 104));
        let data_sector = match version {
            1 => DATA_SECTOR,
            _ => le64(bytes, 184),
        };
        let role = match version {
            0 | 3 | 5 => BcacheRole::Cache,
            1 | 4 | 6 => BcacheRole::Backing { data_sector, mode: mode(flags)?, state: state(flags) },
            _ => return Err(BcacheError::Version(version)),
        };
        if matches!(role, BcacheRole::Backing { .. }) && !(DATA_SECTOR..1 << 48).contains(&data_sector) {
            return Err(field("data_offset", data_sector));
        }
        let block = le16(bytes, 192);
        if !block.is_power_of_two() || block > 128 {
            return Err(field("block_size", block.into()));
        }
        Ok(Self {
            version,
            uuid: array(bytes, 40),
            set_uuid: array(bytes, 56),
            role,
            block_bytes: u32::from(block) * 512,
        })
    }
}

fn mode(flags: u64) -> Result<BcacheMode, BcacheError> {
    Ok(match flags & 0xf {
        0 => BcacheMode::WriteThrough,
        1 => BcacheMode::WriteBack,
        2 => BcacheMode::WriteAround,
        3 => BcacheMode::None,
        value => return Err(BcacheError::Field { field: "cache mode", value }),
    })
}

fn state(flags: u64) -> BackingState {
    match flags >> 61 & 3 {
        0 => BackingState::Detached,
        1 => BackingState::Clean,
        2 => BackingState::Dirty,
        _ => BackingState::Stale,
    }
}

/// Makes the checksum of a superblock right.
#[doc(hidden)]
pub fn seal(bytes: &mut [u8]) {
    let end = KEYS_AT + 8 * usize::from(le16(bytes, 206));
    if let Some(covered) = bytes.get(8..end) {
        let sum = crc64(covered).to_le_bytes();
        bytes[..8].copy_from_slice(&sum);
    }
}
