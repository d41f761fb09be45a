//! bcache: superblocks of backing devices, whose data begins behind them, and of cache devices; and
//! what a cache device keeps about the data that it has.
//!
//! A cache device is cut into buckets. The newest whole entry of its journal names the bucket of
//! the table of backing devices, the first bucket of generations, and the root of a tree whose
//! leaves say which sectors of which backing device lie where. Keys of the journal lie over those
//! of the leaves. A pointer counts while its generation is its bucket's.
//!
//! Layout: docs/formats.md §29.

mod crc64;
mod extents;
mod journal;
mod key;
mod layout;
mod node;
mod superblock;
mod tables;

pub use extents::{BcacheExtents, CachedRun};
pub use journal::{BcacheJournalEntry, JOURNAL_ENTRY_BYTES_MAX, JournalPlace, seal_entry};
pub use key::{BcacheKey, BcacheKeys, BcachePointer, NODE_KEY_END};
pub use layout::CacheLayout;
pub use node::{BcacheNode, seal_set};
pub use superblock::{
    AT_BYTES, BackingState, BcacheError, BcacheMode, BcacheRole, BcacheSuperblock, MAGIC, SUPERBLOCK_BYTES,
    seal,
};
pub use tables::{BackingTable, GenerationPage, Generations, is_newer, seal_generations};

/// Why a part of a cache's metadata is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheDamage {
    /// It does not begin as it has to.
    #[error("it does not begin with the magic number {expected:#x} of the set")]
    Magic {
        /// What it should begin with.
        expected: u64,
    },
    /// Its checksum is wrong.
    #[error("its checksum is {found:#x}, and should be {computed:#x}")]
    Checksum {
        /// What it says.
        found: u64,
        /// What its bytes give.
        computed: u64,
    },
    /// A version that is not known.
    #[error("its version {0} is not known")]
    Version(u32),
    /// It says that it is longer than its place.
    #[error("it has {words} words of keys, for which there is no room")]
    Length {
        /// Words of 8 bytes.
        words: u64,
    },
    /// Nothing is in it where something has to be.
    #[error("it is empty")]
    Empty,
    /// Something of it lies behind its end.
    #[error("byte {at_bytes} of it, behind its last keys, begins keys that are damaged")]
    Behind {
        /// Where, from its start.
        at_bytes: usize,
    },
    /// A key that cannot be so.
    #[error("its key at byte {at_bytes} {what}")]
    Key {
        /// Where, from the start of what has the key.
        at_bytes: usize,
        /// What is wrong with it.
        what: &'static str,
    },
}
