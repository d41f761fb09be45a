//! The store of an old (not thin) snapshot: which chunks of the origin were copied to where.
//! docs/formats.md §13.

use std::collections::BTreeMap;

use crate::bytes::{le32, le64, put_le32};

/// Bytes of the header, at the start of the store.
pub const HEADER_BYTES: usize = 16;

const MAGIC: u32 = 0x7041_6e53;
const VERSION: u32 = 1;
const ENTRY_BYTES: u64 = 16;
const SECTOR_BYTES: u64 = 512;
/// Chunks are powers of two: from a sector, which device-mapper refuses to go below, up to LVM2's
/// limit of 512 KiB.
const CHUNK_SECTORS: std::ops::RangeInclusive<u32> = 1..=1024;

/// The header, chunk 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// False once the store overflowed or failed: its contents are worth nothing.
    pub valid: bool,
    /// Unit of copying, in sectors.
    pub chunk_sectors: u32,
}

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Less than asked for.
    #[error("only {got} of {want} bytes of the snapshot's store could be read")]
    Truncated {
        /// Bytes needed.
        want: u64,
        /// Bytes given.
        got: usize,
    },
    /// Not a store. A new one is zero until its snapshot is first activated.
    #[error("the snapshot's store has the magic {found:08x}")]
    Magic {
        /// The stored value.
        found: u32,
    },
    /// A version to come.
    #[error("version {found} of snapshot stores is not known")]
    Version {
        /// The stored value.
        found: u32,
    },
    /// No power of two, or out of bounds.
    #[error("snapshot chunks of {sectors} sectors")]
    ChunkSize {
        /// The stored value.
        sectors: u32,
    },
    /// An exception that points at the store's own tables, or past its end.
    #[error(
        "chunk {origin_chunk} of the origin is said to be in chunk {store_chunk} of the store, which holds no data"
    )]
    StoreChunk {
        /// Chunk of the origin.
        origin_chunk: u64,
        /// Chunk of the store.
        store_chunk: u64,
    },
    /// Two copies of one chunk.
    #[error("chunk {origin_chunk} of the origin is in the store twice")]
    Twice {
        /// Chunk of the origin.
        origin_chunk: u64,
    },
    /// No chunk was asked for.
    #[error("no chunk of the store is wanted")]
    NotWanted,
}

impl Header {
    /// Reads the start of a store.
    pub fn decode(bytes: &[u8]) -> Result<Header, SnapshotError> {
        if bytes.len() < HEADER_BYTES {
            return Err(SnapshotError::Truncated { want: HEADER_BYTES as u64, got: bytes.len() });
        }
        let found = le32(bytes, 0);
        if found != MAGIC {
            return Err(SnapshotError::Magic { found });
        }
        let found = le32(bytes, 8);
        if found != VERSION {
            return Err(SnapshotError::Version { found });
        }
        let sectors = le32(bytes, 12);
        if !sectors.is_power_of_two() || !CHUNK_SECTORS.contains(&sectors) {
            return Err(SnapshotError::ChunkSize { sectors });
        }
        Ok(Header { valid: le32(bytes, 4) != 0, chunk_sectors: sectors })
    }

    /// The header's bytes; the rest of chunk 0 is zero.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        put_le32(&mut bytes, 0, MAGIC);
        put_le32(&mut bytes, 4, u32::from(self.valid));
        put_le32(&mut bytes, 8, VERSION);
        put_le32(&mut bytes, 12, self.chunk_sectors);
        bytes
    }
}

/// The exceptions, collected table by table: read the chunk that it [`wants`](Exceptions::wants),
/// [`give`](Exceptions::give) it, until it wants none.
#[derive(Clone, Debug)]
pub struct Exceptions {
    chunk_bytes: u64,
    store_chunks: u64,
    next_area: Option<u64>,
    copied: BTreeMap<u64, u64>,
}

impl Exceptions {
    /// None yet, of a store of so many sectors.
    #[must_use]
    pub fn new(header: Header, store_sectors: u64) -> Exceptions {
        Exceptions {
            chunk_bytes: u64::from(header.chunk_sectors) * SECTOR_BYTES,
            store_chunks: store_sectors / u64::from(header.chunk_sectors),
            next_area: Some(0),
            copied: BTreeMap::new(),
        }
    }

    /// The chunk of the store to read next: a table. `None` once all are known.
    #[must_use]
    pub fn wants(&self) -> Option<u64> {
        // A table, then as many chunks of data as it has entries; chunk 0 is the header.
        let table = self.next_area?.checked_mul(self.entries() + 1)?.checked_add(1)?;
        (table < self.store_chunks).then_some(table)
    }

    /// Takes the wanted chunk.
    pub fn give(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        let (Some(area), true) = (self.next_area, self.wants().is_some()) else {
            return Err(SnapshotError::NotWanted);
        };
        let want = self.chunk_bytes;
        let Some(table) = bytes.get(..want as usize) else {
            return Err(SnapshotError::Truncated { want, got: bytes.len() });
        };
        self.next_area = Some(area + 1);
        for entry in table.chunks_exact(ENTRY_BYTES as usize) {
            let (origin_chunk, store_chunk) = (le64(entry, 0), le64(entry, 8));
            if store_chunk == 0 {
                self.next_area = None;
                return Ok(());
            }
            let is_table = (store_chunk - 1).is_multiple_of(self.entries() + 1);
            if is_table || store_chunk >= self.store_chunks {
                return Err(SnapshotError::StoreChunk { origin_chunk, store_chunk });
            }
            if self.copied.insert(origin_chunk, store_chunk).is_some() {
                return Err(SnapshotError::Twice { origin_chunk });
            }
        }
        Ok(())
    }

    fn entries(&self) -> u64 {
        self.chunk_bytes / ENTRY_BYTES
    }

    /// Where the store has a chunk of the origin; `None`: it is as in the origin.
    #[must_use]
    pub fn store_chunk(&self, origin_chunk: u64) -> Option<u64> {
        self.copied.get(&origin_chunk).copied()
    }

    /// All pairs of a chunk of the origin and one of the store, by the first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.copied.iter().map(|(&origin, &store)| (origin, store))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header { valid: true, chunk_sectors: 1 };

    fn table(entries: &[(u64, u64)]) -> [u8; 512] {
        let mut table = [0; 512];
        for (entry, (origin, store)) in table.chunks_exact_mut(16).zip(entries) {
            entry[..8].copy_from_slice(&origin.to_le_bytes());
            entry[8..].copy_from_slice(&store.to_le_bytes());
        }
        table
    }

    #[test]
    fn headers() {
        for header in [HEADER, Header { valid: false, chunk_sectors: 1024 }] {
            assert_eq!(Header::decode(&header.encode()), Ok(header));
        }
        assert_eq!(Header::decode(&[0; 16]), Err(SnapshotError::Magic { found: 0 }));
        assert_eq!(Header::decode(&[0; 15]), Err(SnapshotError::Truncated { want: 16, got: 15 }));
        for sectors in [0, 3, 2048, u32::MAX] {
            let bytes = Header { chunk_sectors: sectors, ..HEADER }.encode();
            assert_eq!(Header::decode(&bytes), Err(SnapshotError::ChunkSize { sectors }));
        }
        let mut newer = HEADER.encode();
        newer[8] = 2;
        assert_eq!(Header::decode(&newer), Err(SnapshotError::Version { found: 2 }));
    }

    /// With chunks of a sector a table has 32 entries, so the second table is chunk 34.
    #[test]
    fn tables_follow_one_another() {
        let mut exceptions = Exceptions::new(HEADER, 100);
        assert_eq!(exceptions.wants(), Some(1));
        let full: Vec<_> = (0..32).map(|i| (1000 - i, 2 + i)).collect();
        exceptions.give(&table(&full)).unwrap();
        assert_eq!(exceptions.wants(), Some(34));
        exceptions.give(&table(&[(5, 35)])).unwrap();
        assert_eq!(exceptions.wants(), None);
        assert_eq!(exceptions.give(&table(&[])), Err(SnapshotError::NotWanted));
        assert_eq!(exceptions.iter().count(), 33);
        assert_eq!([1000, 5, 6].map(|chunk| exceptions.store_chunk(chunk)), [Some(2), Some(35), None]);
    }

    #[test]
    fn the_store_ends() {
        let mut exceptions = Exceptions::new(HEADER, 34);
        let full: Vec<_> = (0..32).map(|i| (i, 2 + i)).collect();
        exceptions.give(&table(&full)).unwrap();
        assert_eq!(exceptions.wants(), None, "the next table would be behind the end");
        assert_eq!(Exceptions::new(HEADER, 0).wants(), None);
    }

    #[test]
    fn hostile_exceptions() {
        let give = |entries: &[(u64, u64)]| Exceptions::new(HEADER, 100).give(&table(entries));
        for store_chunk in [1, 34, 67, 100, u64::MAX] {
            let error = SnapshotError::StoreChunk { origin_chunk: 7, store_chunk };
            assert_eq!(give(&[(7, store_chunk)]), Err(error));
        }
        assert_eq!(give(&[(7, 2), (7, 3)]), Err(SnapshotError::Twice { origin_chunk: 7 }));
        let short = Exceptions::new(HEADER, 100).give(&[0; 511]);
        assert_eq!(short, Err(SnapshotError::Truncated { want: 512, got: 511 }));
    }
}
