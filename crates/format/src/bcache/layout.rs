//! How a cache device is laid out, by its superblock.

use super::key::BcacheKey;
use super::superblock::{BcacheError, BcacheRole, BcacheSuperblock};
use crate::bytes::{le16, le64};

/// Bit 0 of the flags: the metadata of the cache is kept.
const SYNCED: u64 = 1;
/// Bit 1: buckets are discarded before they are used again.
const DISCARDS: u64 = 2;
/// The largest bucket that is read: 16 MiB. Where they are larger, tables have another size.
const BUCKET_SECTORS_MAX: u64 = 1 << 15;
const BUCKET_SECTORS_MIN: u64 = 8;
/// Buckets: each takes a byte and a bit of memory.
const BUCKETS_MAX: u64 = 1 << 28;
/// Buckets of a journal that a superblock has room for.
const JOURNAL_BUCKETS_MAX: u16 = 256;
/// The bucket's size is given as its logarithm.
const FEATURE_LOG_BUCKET: u64 = 2;

/// How a cache device is laid out. Its buckets begin at its first sector; what is before
/// `first_bucket` is for the superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLayout {
    /// From the id of the set: begins every magic number of its metadata.
    pub set_magic: u64,
    /// Which device of its set it is.
    pub device: u16,
    /// Sectors of a bucket.
    pub bucket_sectors: u32,
    /// Buckets of the device.
    pub buckets: u64,
    /// The first that is used; the journal begins there.
    pub first_bucket: u64,
    /// Buckets of the journal.
    pub journal_buckets: u16,
    /// Parts of metadata begin at multiples of this, bytes.
    pub block_bytes: usize,
    /// Whether it was used: if not, nothing of its metadata counts.
    pub is_synced: bool,
    /// Whether buckets are discarded before they are used again, those of the journal included.
    pub discards: bool,
}

impl CacheLayout {
    /// Reads what the superblock of a cache device says about it.
    ///
    /// # Errors
    /// [`BcacheError`]: it is that of no cache device, or cannot be.
    pub fn parse(bytes: &[u8]) -> Result<Self, BcacheError> {
        let superblock = BcacheSuperblock::parse(bytes)?;
        let field = |field, value: u64| BcacheError::Field { field, value };
        if superblock.role != BcacheRole::Cache {
            return Err(BcacheError::Version(superblock.version));
        }
        // The checksum covers 208 bytes and the keys; `parse` checked that these are there.
        let features = if superblock.version >= 5 { le64(bytes, 128) } else { 0 };
        if features & !FEATURE_LOG_BUCKET != 0 {
            return Err(field("feature_incompat", features));
        }
        let bucket = match le16(bytes, 194) {
            log if features & FEATURE_LOG_BUCKET != 0 => 1_u64.checked_shl(log.into()).unwrap_or(0),
            sectors => sectors.into(),
        };
        if !bucket.is_power_of_two() || !(BUCKET_SECTORS_MIN..=BUCKET_SECTORS_MAX).contains(&bucket) {
            return Err(field("bucket_size", le16(bytes, 194).into()));
        }
        if u64::from(superblock.block_bytes) > bucket * 512 {
            return Err(field("block_size", superblock.block_bytes.into()));
        }
        let (buckets, first_bucket) = (le64(bytes, 184), u64::from(le16(bytes, 204)));
        if buckets > BUCKETS_MAX {
            return Err(field("nbuckets", buckets));
        }
        let (devices, device) = (le16(bytes, 196), le16(bytes, 198));
        if devices != 1 || device != 0 {
            return Err(field("nr_in_set", devices.into()));
        }
        let journal_buckets = le16(bytes, 206);
        if first_bucket == 0 || first_bucket + u64::from(journal_buckets) > buckets {
            return Err(field("first_bucket", first_bucket));
        }
        if journal_buckets > JOURNAL_BUCKETS_MAX {
            return Err(field("keys", journal_buckets.into()));
        }
        for nth in 0..u64::from(journal_buckets) {
            let bucket = le64(bytes, 208 + 8 * nth as usize);
            if bucket != first_bucket + nth {
                return Err(field("bucket of the journal", bucket));
            }
        }
        let flags = le64(bytes, 104);
        Ok(Self {
            set_magic: le64(bytes, 56),
            device,
            bucket_sectors: bucket as u32,
            buckets,
            first_bucket,
            journal_buckets,
            block_bytes: superblock.block_bytes as usize,
            is_synced: flags & SYNCED != 0,
            discards: flags & DISCARDS != 0,
        })
    }

    /// Bytes of a bucket.
    #[must_use]
    pub fn bucket_bytes(&self) -> usize {
        self.bucket_sectors as usize * 512
    }

    /// Where a bucket begins, bytes; `None` if the device has no such bucket that is used.
    #[must_use]
    pub fn bucket_at_bytes(&self, bucket: u64) -> Option<u64> {
        let is_used = (self.first_bucket..self.buckets).contains(&bucket);
        is_used.then(|| bucket * u64::from(self.bucket_sectors) * 512)
    }

    /// Sectors of the device that buckets lie on.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.buckets * u64::from(self.bucket_sectors)
    }

    /// The bucket that a key's pointer leads into.
    ///
    /// # Errors
    /// Where it cannot lead, in words.
    pub fn bucket_of(&self, key: &BcacheKey) -> Result<u64, &'static str> {
        let pointer = key.pointer.ok_or("has no pointer")?;
        let bucket_sectors = u64::from(self.bucket_sectors);
        let (bucket, within) = (pointer.sector / bucket_sectors, pointer.sector % bucket_sectors);
        if pointer.device != self.device {
            Err("points to another cache device")
        } else if !(self.first_bucket..self.buckets).contains(&bucket) {
            Err("points to where no data is")
        } else if within + u64::from(key.sectors) > bucket_sectors {
            Err("reaches beyond its bucket")
        } else {
            Ok(bucket)
        }
    }
}
