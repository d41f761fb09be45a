//! Entries of the journal: keys that may not be in the tree yet, and where the tree and the tables
//! are.

use super::CacheDamage;
use super::crc64::crc64;
use super::key::{BcacheKey, BcacheKeys};
use super::layout::CacheLayout;
use crate::bytes::{le16, le32, le64, put_le64};

const MAGIC: u64 = 0x2452_35c1_a362_5032;
/// Where the keys begin.
const KEYS_AT: usize = 240;
/// The only version whose table of backing devices is known.
const VERSION: u32 = 1;
/// Entries are never longer: Linux writes 32 KiB at most with pages of 4 KiB, 512 KiB with pages
/// of 64 KiB.
pub const JOURNAL_ENTRY_BYTES_MAX: usize = 512 << 10;

/// An entry of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BcacheJournalEntry {
    /// Its number: entries are numbered in the order in which they were written.
    pub seq: u64,
    /// The oldest entry that is still needed.
    pub last_seq: u64,
    /// Where the table of backing devices is.
    pub backing_table: BcacheKey,
    /// The root of the tree.
    pub root: BcacheKey,
    /// How many levels of nodes are below the root.
    pub root_level: u16,
    /// The bucket with the first generations.
    pub generations_bucket: u64,
    /// Its keys, in the order in which they were written.
    pub keys: Vec<BcacheKey>,
    /// How long it is, bytes, without what fills its last block.
    pub len_bytes: usize,
}

/// What is at a place of the journal where an entry may begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalPlace {
    /// None of this set.
    Nothing,
    /// One that is not whole: damaged, or cut off by a crash.
    Damaged {
        /// What it says its number is.
        seq: u64,
        /// What is wrong.
        damage: CacheDamage,
    },
    /// One that is whole.
    Whole(Box<BcacheJournalEntry>),
}

impl JournalPlace {
    /// How much of an entry has to be there to know how long it is, bytes.
    pub const HEAD_BYTES: usize = KEYS_AT;

    /// How long the entry is that `head` begins, by its own words, which may be wrong; `None` if
    /// none of this set does.
    #[must_use]
    pub fn len_bytes(layout: &CacheLayout, head: &[u8]) -> Option<usize> {
        let begins = head.len() >= KEYS_AT && le64(head, 8) == layout.set_magic ^ MAGIC;
        begins.then(|| (le32(head, 28) as usize).saturating_mul(8).saturating_add(KEYS_AT))
    }

    /// Looks at the start of `bytes`.
    #[must_use]
    pub fn look(layout: &CacheLayout, bytes: &[u8]) -> Self {
        let Some(len) = Self::len_bytes(layout, bytes) else { return Self::Nothing };
        match BcacheJournalEntry::parse(layout, bytes, len) {
            Ok(entry) => Self::Whole(Box::new(entry)),
            Err(damage) => Self::Damaged { seq: le64(bytes, 16), damage },
        }
    }

    /// Looks at a place where the next entry would be: as [`Self::look`], and one whose magic
    /// number alone is wrong is damaged.
    #[must_use]
    pub fn look_closely(layout: &CacheLayout, bytes: &[u8]) -> Self {
        let found = Self::look(layout, bytes);
        if found != Self::Nothing || bytes.len() < KEYS_AT {
            return found;
        }
        let mut mended = bytes.to_vec();
        let expected = layout.set_magic ^ MAGIC;
        put_le64(&mut mended, 8, expected);
        match Self::look(layout, &mended) {
            Self::Whole(entry) => Self::Damaged { seq: entry.seq, damage: CacheDamage::Magic { expected } },
            _ => Self::Nothing,
        }
    }
}

impl BcacheJournalEntry {
    fn parse(layout: &CacheLayout, bytes: &[u8], len: usize) -> Result<Self, CacheDamage> {
        let words = le32(bytes, 28);
        let covered = bytes.get(8..len).filter(|_| len <= JOURNAL_ENTRY_BYTES_MAX);
        let covered = covered.ok_or(CacheDamage::Length { words: words.into() })?;
        let (found, computed) = (le64(bytes, 0), crc64(covered));
        if found != computed {
            return Err(CacheDamage::Checksum { found, computed });
        }
        let version = le32(bytes, 24);
        if version != VERSION {
            return Err(CacheDamage::Version(version));
        }
        let key = |at_bytes: usize, room: usize| match BcacheKey::parse(&bytes[at_bytes..at_bytes + room]) {
            Ok((key, _)) => Ok(key),
            Err(what) => Err(CacheDamage::Key { at_bytes, what }),
        };
        let keys = BcacheKeys::new(&bytes[KEYS_AT..len], KEYS_AT);
        Ok(Self {
            seq: le64(bytes, 16),
            last_seq: le64(bytes, 32),
            backing_table: key(40, 64)?,
            root: key(104, 64)?,
            root_level: le16(bytes, 168),
            generations_bucket: le64(bytes, 176 + 8 * usize::from(layout.device).min(7)),
            keys: keys.collect::<Result<_, _>>()?,
            len_bytes: len,
        })
    }
}

/// Makes the magic number and the checksum of an entry right.
#[doc(hidden)]
pub fn seal_entry(layout: &CacheLayout, bytes: &mut [u8]) {
    if bytes.len() < KEYS_AT {
        return;
    }
    put_le64(bytes, 8, layout.set_magic ^ MAGIC);
    if let JournalPlace::Damaged { damage: CacheDamage::Checksum { computed, .. }, .. } =
        JournalPlace::look(layout, bytes)
    {
        put_le64(bytes, 0, computed);
    }
}
