//! Devices of bcache.

use crate::bcache::{
    self, BackingTable, BcacheExtents, BcacheKey, BcacheNode, BcachePointer, BcacheRole, BcacheSuperblock,
    CacheLayout, GenerationPage, Generations, JournalPlace,
};
use crate::bytes::{put, put_le64};

/// A cache device of 64 buckets of 4 KiB.
const LAYOUT: CacheLayout = CacheLayout {
    set_magic: 0x0123_4567_89ab_cdef,
    device: 0,
    bucket_sectors: 8,
    buckets: 64,
    first_bucket: 2,
    journal_buckets: 4,
    block_bytes: 512,
    is_synced: true,
    discards: false,
};

/// Superblocks of bcache, as they are and with a checksum that is right; the same of every part of
/// a cache's metadata.
pub fn fuzz_bcache(data: &[u8]) {
    let mut sealed = data.to_vec();
    if sealed.len() >= 208 {
        put(&mut sealed, 24, &bcache::MAGIC);
        bcache::seal(&mut sealed);
    }
    for bytes in [data, &sealed] {
        let Ok(found) = BcacheSuperblock::parse(bytes) else { continue };
        assert!(found.block_bytes.is_power_of_two() && found.block_bytes >= 512);
        if let BcacheRole::Backing { data_sector, .. } = found.role {
            assert!((16..1 << 48).contains(&data_sector));
        }
        if let Ok(layout) = CacheLayout::parse(bytes) {
            assert!(layout.bucket_bytes() >= layout.block_bytes);
            assert!(layout.first_bucket + u64::from(layout.journal_buckets) <= layout.buckets);
        }
    }
    node(data);
    journal(data);
    let mut page = data.to_vec();
    bcache::seal_generations(&LAYOUT, &mut page);
    for bytes in [data, &page] {
        let Ok(page) = GenerationPage::parse(&LAYOUT, bytes) else { continue };
        let mut generations = Generations::default();
        let is_whole = generations.add(&LAYOUT, &page);
        assert_eq!(is_whole, page.generations().count() >= 64);
        for bucket in 0..70 {
            generations.raise(bucket, data[0]);
            assert!(bucket < 64 || generations.is_stale(bucket, data[0]));
        }
    }
    let _ = BackingTable::parse(data).inodes([0; 16]).count();
}

fn node(data: &[u8]) {
    let pointer = BcachePointer { device: 0, sector: 80, generation: 3, word: 80 << 8 | 3 };
    let mut sealed = data.to_vec();
    bcache::seal_set(&LAYOUT, pointer, &mut sealed);
    for bytes in [data, &sealed] {
        let Ok(node) = BcacheNode::parse(&LAYOUT, pointer, bytes) else { continue };
        let mut extents = BcacheExtents::default();
        for set in node.sets() {
            for (at_bytes, key) in BcacheNode::keys_of(set).unwrap_or_default() {
                assert!(at_bytes + 16 <= bytes.len());
                lay(&mut extents, &key);
            }
        }
        let runs: Vec<_> = extents.runs().collect();
        let is_apart = |pair: &[bcache::CachedRun]| {
            pair[0].inode < pair[1].inode || pair[0].end_sector <= pair[1].start_sector
        };
        assert!(runs.windows(2).all(is_apart));
    }
}

fn journal(data: &[u8]) {
    let mut sealed = data.to_vec();
    bcache::seal_entry(&LAYOUT, &mut sealed);
    let mut blurred = sealed.clone();
    if blurred.len() >= 16 {
        put_le64(&mut blurred, 8, 5);
    }
    for bytes in [data, &sealed, &blurred] {
        let _ = JournalPlace::look_closely(&LAYOUT, bytes);
        if let JournalPlace::Whole(entry) = JournalPlace::look(&LAYOUT, bytes) {
            assert!(entry.len_bytes <= bytes.len());
            let mut extents = BcacheExtents::default();
            entry.keys.iter().for_each(|key| lay(&mut extents, key));
        }
    }
}

fn lay(extents: &mut BcacheExtents, key: &BcacheKey) {
    if LAYOUT.bucket_of(key).is_ok() {
        extents.overwrite(key, key.pointer);
    }
}
