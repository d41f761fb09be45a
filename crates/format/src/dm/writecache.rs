//! The list at the start of a writecache: which blocks of its origin are newer in it.
//! docs/formats.md §15.

use crate::bytes::{le32, le64};

/// Bytes of the header, at the start of the cache.
pub const HEADER_BYTES: usize = 64;
/// Bytes of an entry; they follow the header.
pub const ENTRY_BYTES: usize = 16;

const MAGIC: u32 = 0x2348_9321;
const VERSION: u32 = 1;
const SECTOR_BYTES: u64 = 512;
const FREE: u64 = u64::MAX;
/// What device-mapper takes: a sector at least, a page at most.
const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 512..=65536;

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Unit of caching, in bytes.
    pub block_bytes: u32,
    /// How many blocks, and entries, there are.
    pub blocks: u64,
    /// What was written under this number, or a later one, was not complete when the cache was used
    /// last, and had not been acknowledged as durable.
    pub sequence: u64,
}

/// A block of the cache that holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Sector of the origin.
    pub sector: u64,
    /// Of several entries for one place the highest counts.
    pub sequence: u64,
}

/// Why there is no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WritecacheError {
    /// Less than a header.
    #[error("only {got} bytes of the writecache's header could be read")]
    Truncated {
        /// Bytes given.
        got: usize,
    },
    /// Not a writecache. A new one is zero until it is first activated.
    #[error("the writecache has the magic {found:08x}")]
    Magic {
        /// The stored value.
        found: u32,
    },
    /// A version to come.
    #[error("version {found} of writecaches is not known")]
    Version {
        /// The stored value.
        found: u32,
    },
    /// No power of two, or out of bounds.
    #[error("writecache blocks of {bytes} bytes")]
    BlockSize {
        /// The stored value.
        bytes: u32,
    },
    /// More blocks than there can be.
    #[error("a writecache of {blocks} blocks")]
    Blocks {
        /// The stored value.
        blocks: u64,
    },
}

impl Header {
    /// Reads the start of a cache.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(bytes: &[u8]) -> Result<Header, WritecacheError> {
        if bytes.len() < HEADER_BYTES {
            return Err(WritecacheError::Truncated { got: bytes.len() });
        }
        let found = le32(bytes, 0);
        if found != MAGIC {
            return Err(WritecacheError::Magic { found });
        }
        let found = le32(bytes, 4);
        if found != VERSION {
            return Err(WritecacheError::Version { found });
        }
        let block_bytes = le32(bytes, 8);
        if !block_bytes.is_power_of_two() || !BLOCK_BYTES.contains(&block_bytes) {
            return Err(WritecacheError::BlockSize { bytes: block_bytes });
        }
        let header = Header { block_bytes, blocks: le64(bytes, 16), sequence: le64(bytes, 24) };
        match header.end_bytes() {
            Some(_) => Ok(header),
            None => Err(WritecacheError::Blocks { blocks: header.blocks }),
        }
    }

    /// Bytes of all entries.
    #[must_use]
    pub fn entries_bytes(&self) -> u64 {
        self.blocks * ENTRY_BYTES as u64
    }

    /// Where block 0 is, in bytes: behind the entries, at the next whole block.
    #[must_use]
    pub fn data_offset_bytes(&self) -> u64 {
        (HEADER_BYTES as u64 + self.entries_bytes()).next_multiple_of(u64::from(self.block_bytes))
    }

    /// Where the last block ends, in bytes; `None` if no device is so large.
    #[must_use]
    pub fn end_bytes(&self) -> Option<u64> {
        let entries = self.blocks.checked_mul(ENTRY_BYTES as u64)?;
        let lists = entries.checked_add(HEADER_BYTES as u64)?;
        let start = lists.checked_next_multiple_of(u64::from(self.block_bytes))?;
        start.checked_add(self.blocks.checked_mul(u64::from(self.block_bytes))?)
    }

    /// What a block holds, by its entry; `None` if it is free, or holds what was not complete.
    #[must_use]
    pub fn entry(&self, bytes: &[u8; ENTRY_BYTES]) -> Option<Entry> {
        let entry = Entry { sector: le64(bytes, 0), sequence: le64(bytes, 8) };
        (entry.sector != FREE && entry.sequence < self.sequence).then_some(entry)
    }

    /// Whether a block of the origin begins at a sector.
    #[must_use]
    pub fn is_aligned(&self, sector: u64) -> bool {
        sector.is_multiple_of(u64::from(self.block_bytes) / SECTOR_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::{put_le32, put_le64};

    fn header(block_bytes: u32, blocks: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        put_le32(&mut bytes, 0, MAGIC);
        put_le32(&mut bytes, 4, VERSION);
        put_le32(&mut bytes, 8, block_bytes);
        put_le64(&mut bytes, 16, blocks);
        put_le64(&mut bytes, 24, 9);
        bytes
    }

    #[test]
    fn headers() {
        let found = Header::decode(&header(4096, 1000)).unwrap();
        assert_eq!(found, Header { block_bytes: 4096, blocks: 1000, sequence: 9 });
        assert_eq!((found.data_offset_bytes(), found.end_bytes()), (16384, Some(16384 + 1000 * 4096)));
        assert!(found.is_aligned(16) && !found.is_aligned(4));
        assert_eq!(Header::decode(&[0; 63]), Err(WritecacheError::Truncated { got: 63 }));
        assert_eq!(Header::decode(&[0; 64]), Err(WritecacheError::Magic { found: 0 }));
        for bytes in [0, 511, 768, 1 << 17, u32::MAX] {
            assert_eq!(Header::decode(&header(bytes, 1)), Err(WritecacheError::BlockSize { bytes }));
        }
        for blocks in [1 << 60, 1 << 52, u64::MAX] {
            assert_eq!(Header::decode(&header(4096, blocks)), Err(WritecacheError::Blocks { blocks }));
        }
        let mut other = header(4096, 1);
        other[4] = 2;
        assert_eq!(Header::decode(&other), Err(WritecacheError::Version { found: 2 }));
    }

    #[test]
    fn entries() {
        let found = Header::decode(&header(4096, 1000)).unwrap();
        let entry = |sector: u64, sequence: u64| {
            let mut bytes = [0; ENTRY_BYTES];
            put_le64(&mut bytes, 0, sector);
            put_le64(&mut bytes, 8, sequence);
            found.entry(&bytes)
        };
        assert_eq!(entry(16, 8), Some(Entry { sector: 16, sequence: 8 }));
        assert_eq!(entry(16, 9), None, "not complete");
        assert_eq!(entry(u64::MAX, u64::MAX), None, "free");
        assert_eq!(entry(u64::MAX, 1), None);
    }
}
