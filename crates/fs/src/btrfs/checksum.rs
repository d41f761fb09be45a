//! The four kinds of checksums.

use sha2::Digest;

use crate::error::Error;

/// The longest.
pub const BYTES_MAX: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    Crc32c,
    Xxhash64,
    Sha256,
    Blake2b,
}

impl Checksum {
    pub fn of_type(number: u16) -> Result<Self, Error> {
        match number {
            0 => Ok(Self::Crc32c),
            1 => Ok(Self::Xxhash64),
            2 => Ok(Self::Sha256),
            3 => Ok(Self::Blake2b),
            _ => Err(Error::Unsupported { what: "btrfs with an unknown kind of checksums" }),
        }
    }

    /// Bytes of a checksum of data. Blocks of trees have space for the longest.
    pub fn len(self) -> usize {
        match self {
            Self::Crc32c => 4,
            Self::Xxhash64 => 8,
            Self::Sha256 | Self::Blake2b => BYTES_MAX,
        }
    }

    /// Whether `stored` starts with the checksum of the bytes.
    pub fn is_right(self, bytes: &[u8], stored: &[u8]) -> bool {
        match self {
            Self::Crc32c => stored.starts_with(&crc32c::crc32c(bytes).to_le_bytes()),
            Self::Xxhash64 => stored.starts_with(&twox_hash::XxHash64::oneshot(0, bytes).to_le_bytes()),
            Self::Sha256 => stored.starts_with(&sha2::Sha256::digest(bytes)),
            Self::Blake2b => {
                stored.starts_with(&blake2::Blake2b::<blake2::digest::consts::U32>::digest(bytes))
            }
        }
    }
}
