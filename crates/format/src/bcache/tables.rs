//! What a cache keeps beside its tree: the generations of buckets, and which backing devices there
//! are.

use super::CacheDamage;
use super::crc64::crc64;
use super::layout::CacheLayout;
use crate::bytes::{array, le64, put_le64};

const MAGIC: u64 = 0x6750_e15f_8733_7f91;
const GENERATIONS_AT: usize = 40;
/// Of a bucket: 16 bits of its priority, 8 of its generation.
const BUCKET_BYTES: usize = 3;
const ENTRY_BYTES: usize = 128;

/// Whether generation `a` came after `b`: they go round.
#[must_use]
pub fn is_newer(a: u8, b: u8) -> bool {
    (1..=128).contains(&a.wrapping_sub(b))
}

/// A bucket of generations.
#[derive(Debug, Clone, Copy)]
pub struct GenerationPage<'a> {
    /// The next one.
    pub next_bucket: u64,
    bytes: &'a [u8],
}

impl<'a> GenerationPage<'a> {
    /// Reads one from the bytes of its bucket.
    ///
    /// # Errors
    /// [`CacheDamage`]
    pub fn parse(layout: &CacheLayout, bytes: &'a [u8]) -> Result<Self, CacheDamage> {
        let covered = bytes.get(8..).filter(|_| bytes.len() > GENERATIONS_AT + BUCKET_BYTES);
        let covered = covered.ok_or(CacheDamage::Empty)?;
        let expected = layout.set_magic ^ MAGIC;
        if le64(bytes, 8) != expected {
            return Err(CacheDamage::Magic { expected });
        }
        let (found, computed) = (le64(bytes, 0), crc64(covered));
        if found != computed {
            return Err(CacheDamage::Checksum { found, computed });
        }
        Ok(Self { next_bucket: le64(bytes, 32), bytes: &bytes[GENERATIONS_AT..] })
    }

    /// The generations that it has, in the order of buckets.
    pub fn generations(&self) -> impl Iterator<Item = u8> + use<'a> {
        self.bytes.chunks_exact(BUCKET_BYTES).map(|bucket| bucket[2])
    }
}

/// The generation of every bucket: a byte each.
#[derive(Debug, Clone, Default)]
pub struct Generations(Vec<u8>);

impl Generations {
    /// Takes the next page; whether every bucket has one now.
    pub fn add(&mut self, layout: &CacheLayout, page: &GenerationPage<'_>) -> bool {
        let lacking = (layout.buckets as usize).saturating_sub(self.0.len());
        self.0.extend(page.generations().take(lacking));
        self.0.len() as u64 >= layout.buckets
    }

    /// A pointer of this generation leads into a bucket: that of the bucket is at least this one.
    /// What is recorded of buckets may be older than what leads into them.
    pub fn raise(&mut self, bucket: u64, generation: u8) {
        if let Some(known) = self.0.get_mut(bucket as usize).filter(|known| is_newer(generation, **known)) {
            *known = generation;
        }
    }

    /// Whether what a pointer of this generation leads to is gone: its bucket was used again.
    #[must_use]
    pub fn is_stale(&self, bucket: u64, generation: u8) -> bool {
        self.0.get(bucket as usize).is_none_or(|known| is_newer(*known, generation))
    }
}

/// The table of backing devices. It has no checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackingTable(Vec<[u8; 16]>);

impl BackingTable {
    /// Reads it from the bytes of its bucket.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        Self(bytes.chunks_exact(ENTRY_BYTES).map(|entry| array(entry, 0)).collect())
    }

    /// The numbers of the backing device with this id: one, or none if the set does not know it.
    pub fn inodes(&self, uuid: [u8; 16]) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.0).filter(move |(_, entry)| **entry == uuid).map(|(inode, _)| inode)
    }
}

/// Makes the magic number and the checksum of a bucket of generations right.
#[doc(hidden)]
pub fn seal_generations(layout: &CacheLayout, bytes: &mut [u8]) {
    if bytes.len() > GENERATIONS_AT {
        put_le64(bytes, 8, layout.set_magic ^ MAGIC);
        let sum = crc64(&bytes[8..]);
        put_le64(bytes, 0, sum);
    }
}
