//! Metadata that device-mapper's targets wrote on a Linux 6.12 kernel (`data/dm`, of the same VG as
//! `data/lvm/every.vg`), and trees that the tools of thin-provisioning-tools made of a description.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use wattle_format::dm::raid::{BITMAP_OFFSET_BYTES, DmRaidShape, Superblock};
use wattle_format::dm::snapshot::{Exceptions, Header};
use wattle_format::dm::thin::{ThinMapping, ThinVolume};
use wattle_format::dm::{ArrayWalk, MetadataError, Walk, cache, thin};
use wattle_format::md::bitmap;

/// Blocks of 4 KiB by their numbers.
struct Blocks(BTreeMap<u64, Vec<u8>>);

impl Blocks {
    /// A recording: number, length, and bytes of each block up to its last that is not zero.
    fn recorded(mut bytes: &[u8]) -> Blocks {
        let mut blocks = BTreeMap::new();
        while let Some((number, rest)) = bytes.split_first_chunk() {
            let (len, rest) = rest.split_first_chunk().unwrap();
            let (block, rest) = rest.split_at(u32::from_le_bytes(*len) as usize);
            let mut block = block.to_vec();
            block.resize(4096, 0);
            blocks.insert(u64::from_le_bytes(*number), block);
            bytes = rest;
        }
        Blocks(blocks)
    }

    fn of(image: &[u8]) -> Blocks {
        Blocks((0..).zip(image.chunks_exact(4096).map(<[u8]>::to_vec)).collect())
    }

    fn walk<const V: usize>(&self, mut walk: Walk<V>) -> Vec<(u64, [u8; V])> {
        let mut entries = Vec::new();
        while let Some(block) = walk.wants() {
            entries.extend(walk.give(&self.0[&block]).unwrap());
        }
        entries
    }

    fn array<const V: usize>(&self, mut array: ArrayWalk<V>) -> Vec<(u64, [u8; V])> {
        let mut values = Vec::new();
        while let Some(block) = array.wants() {
            values.extend(array.give(&self.0[&block]).unwrap());
        }
        assert!(array.is_complete());
        values
    }

    fn mappings(&self, pool: &thin::Superblock, device_id: u64) -> Vec<ThinMapping> {
        let root = self.walk(pool.mapping_root(device_id));
        let Some(&(found, root)) = root.first() else { return Vec::new() };
        assert_eq!(found, device_id);
        let entries = self.walk(pool.mappings(root, 0..=u64::MAX));
        entries.into_iter().map(|entry| pool.mapping(entry).unwrap()).collect()
    }

    fn dirty(&self, cache: &cache::Superblock) -> Vec<u64> {
        let words = self.array(cache.dirty().unwrap());
        words.into_iter().flat_map(|word| cache.dirty_blocks(word)).collect()
    }
}

fn mapping(block: u64, data_block: u64, time: u32) -> ThinMapping {
    ThinMapping { block, data_block, time }
}

/// As thin_dump showed it.
#[test]
fn a_thin_pool() {
    let blocks = Blocks::recorded(include_bytes!("../data/dm/thin.blocks"));
    let pool = thin::Superblock::decode(&blocks.0[&0]).unwrap();
    assert_eq!((pool.transaction_id, pool.time, pool.needs_check, pool.held_root), (10, 1, false, 0));
    assert_eq!((pool.data_block_sectors, pool.data_blocks, pool.metadata_blocks), (128, 512, 512));
    assert_eq!(pool.allocated_data_blocks, 14);
    let devices: Vec<ThinVolume> = blocks.walk(pool.devices()).into_iter().map(ThinVolume::decode).collect();
    assert_eq!(devices.iter().map(|d| d.device_id).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 7, 8, 9]);
    let mapped: Vec<u64> = devices.iter().map(|device| device.mapped_blocks).collect();
    assert_eq!(mapped, [6, 8, 0, 1, 1, 1, 1, 1]);
    let first = ThinVolume {
        device_id: 1,
        mapped_blocks: 6,
        transaction_id: 0,
        creation_time: 0,
        snapshotted_time: 1,
    };
    assert_eq!(devices[0], first);
    for device in &devices {
        let mappings = blocks.mappings(&pool, device.device_id);
        assert_eq!(mappings.len() as u64, device.mapped_blocks, "{device:?}");
    }
    let origin = [(0, 0, 0), (3, 1, 0), (4, 6, 1), (5, 3, 0), (100, 4, 0), (900, 5, 0)];
    assert_eq!(blocks.mappings(&pool, 1), origin.map(|(block, data, time)| mapping(block, data, time)));
    assert_eq!(blocks.mappings(&pool, 2)[5..7], [mapping(800, 7, 1), mapping(801, 8, 1)]);
    assert_eq!(blocks.mappings(&pool, 6), [], "the volume that was removed");
}

#[test]
fn a_cache() {
    let blocks = Blocks::recorded(include_bytes!("../data/dm/cache.blocks"));
    let cache = cache::Superblock::decode(&blocks.0[&0]).unwrap();
    assert_eq!((cache.clean_shutdown, cache.needs_check, cache.version), (true, false, 2));
    assert_eq!((cache.data_block_sectors, cache.cache_blocks, &cache.policy[..4]), (64, 128, &b"smq\0"[..]));
    let mappings: Vec<_> =
        blocks.array(cache.mappings()).into_iter().filter_map(cache::CachedBlock::decode).collect();
    assert_eq!(mappings.len(), 128);
    let first = cache::CachedBlock { cache_block: 0, origin_block: 81, dirty: false };
    assert_eq!(mappings[0], first);
    assert_eq!(blocks.dirty(&cache), Vec::<u64>::new());
    let damaged = cache::Superblock::decode(&[0; 4096]);
    assert_eq!(damaged, Err(MetadataError::Magic { found: 0 }));
}

#[test]
fn an_old_snapshot() {
    let mut store = include_bytes!("../data/dm/snapshot.store").to_vec();
    store.resize(8192, 0);
    let header = Header::decode(&store).unwrap();
    assert_eq!(header, Header { valid: true, chunk_sectors: 8 });
    assert_eq!(header.encode(), store[..16]);
    let mut exceptions = Exceptions::new(header, 8192);
    while let Some(chunk) = exceptions.wants() {
        exceptions.give(&store[4096 * chunk as usize..]).unwrap();
    }
    // Chunks 7 to 26 of the origin were written, then 100 to 102 of the snapshot; each went to the
    // next chunk.
    let copied = (7..=21).chain(22..=26).chain(100..=102);
    let found: Vec<(u64, u64)> = exceptions.iter().collect();
    assert_eq!(found.iter().map(|(origin, _)| *origin).collect::<Vec<_>>(), copied.collect::<Vec<_>>());
    assert_eq!([7, 102, 6].map(|chunk| exceptions.store_chunk(chunk)), [Some(2), Some(24), None]);
}

/// What dm-raid recorded for a raid5_la of four images, and where its bitmap is.
#[test]
fn dm_raid() {
    let mut rmeta = include_bytes!("../data/dm/r5_rmeta_1").to_vec();
    rmeta.resize(8192, 0);
    let superblock = Superblock::decode(&rmeta).unwrap().unwrap();
    assert_eq!(superblock.bytes()[..], rmeta[..512], "lossless");
    let (devices, level, layout, stripe_sectors) = (4, 5, 0, 32);
    let shape =
        DmRaidShape { devices, level, layout, stripe_sectors, array_sectors: 6144, device_sectors: 2048 };
    assert_eq!((superblock.shape(), superblock.position(), superblock.events()), (shape, 1, 20));
    assert_eq!((superblock.resync_offset(), superblock.recovery_offset()), (u64::MAX, u64::MAX));
    assert!((0..4).all(|position| !superblock.is_failed(position)));
    let mut made = Superblock::new(&shape, 1, u64::MAX);
    made.set_events(20);
    assert_eq!(made, superblock, "new superblocks are like the kernel's");
    let bitmap = bitmap::Header::decode(&rmeta[BITMAP_OFFSET_BYTES as usize..]).unwrap();
    assert_eq!(bitmap.sync_size_sectors(), 2048);
    let mut rmeta = include_bytes!("../data/dm/r10_rmeta_3").to_vec();
    rmeta.resize(512, 0);
    assert_eq!(Superblock::decode(&rmeta).unwrap().unwrap().shape().layout, 0x102);
}

/// Runs a tool of thin-provisioning-tools over a description; the image it makes, or `None` if it
/// is not there.
fn restored(tool: &str, arguments: &[&str], description: &str) -> Option<Blocks> {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("in"), description).unwrap();
    fs::write(path("out"), vec![0; 8 << 20]).unwrap();
    match Command::new(tool).args(arguments).args(["-i", &path("in"), "-o", &path("out")]).output() {
        Err(_) => {
            assert!(std::env::var_os("CI").is_none(), "{tool} is not installed, and this is CI");
            eprintln!("SKIPPED: {tool} is not installed; scripts/deps installs it");
            None
        }
        Ok(output) => {
            assert!(output.status.success(), "{tool}: {output:?}");
            Some(Blocks::of(&fs::read(path("out")).unwrap()))
        }
    }
}

/// Enough mappings for trees of three levels.
#[test]
fn large_thin_pools() {
    let map = |device: u64, i: u64| mapping(device * 7 + i * 3 + i / 5, device * 30_000 + i, (i % 3) as u32);
    let count = |device: u64| 70_000 / device.pow(4);
    let devices = || (1..=9).map(|n| n * n);
    let mut description = String::from(
        "<superblock uuid=\"\" time=\"3\" transaction=\"77\" version=\"2\" data_block_size=\"256\" nr_data_blocks=\"3000000\">\n",
    );
    for device in devices() {
        let mapped = count(device);
        writeln!(
            description,
            "<device dev_id=\"{device}\" mapped_blocks=\"{mapped}\" transaction=\"{device}\" creation_time=\"1\" snap_time=\"2\">"
        )
        .unwrap();
        for i in 0..mapped {
            let ThinMapping { block, data_block, time } = map(device, i);
            let places = format!("origin_block=\"{block}\" data_block=\"{data_block}\"");
            writeln!(description, "<single_mapping {places} time=\"{time}\"/>").unwrap();
        }
        description.push_str("</device>\n");
    }
    description.push_str("</superblock>\n");
    let Some(blocks) = restored("thin_restore", &[], &description) else { return };
    let pool = thin::Superblock::decode(&blocks.0[&0]).unwrap();
    assert_eq!((pool.transaction_id, pool.data_block_sectors, pool.data_blocks), (77, 256, 3_000_000));
    let found: Vec<u64> = blocks.walk(pool.devices()).into_iter().map(|(device, _)| device).collect();
    assert_eq!(found, devices().collect::<Vec<_>>());
    for device in devices() {
        let expected: Vec<ThinMapping> = (0..count(device)).map(|i| map(device, i)).collect();
        assert!(blocks.mappings(&pool, device) == expected, "device {device}");
    }
    // Looking for a few blocks reads a few blocks.
    let (_, root) = blocks.walk(pool.mapping_root(1))[0];
    let mut walk = pool.mappings(root, 50_000..=50_010);
    let (mut read, mut entries) = (0, Vec::new());
    while let Some(block) = walk.wants() {
        read += 1;
        entries.extend(
            walk.give(&blocks.0[&block]).unwrap().into_iter().map(|entry| pool.mapping(entry).unwrap()),
        );
    }
    let expected = (0..count(1)).map(|i| map(1, i)).filter(|found| (50_000..=50_010).contains(&found.block));
    assert_eq!(entries, expected.collect::<Vec<_>>());
    assert!((3..=4).contains(&read), "{read}");
}

/// Both versions keep their dirty bits; without a clean shutdown they say nothing.
#[test]
fn large_caches() {
    let dirty = |block: u64| block.is_multiple_of(3) || block > 19_000;
    let cached = || (0..20_000_u64).filter(|block| !block.is_multiple_of(7));
    let mut description = String::from(
        "<superblock uuid=\"\" block_size=\"128\" nr_cache_blocks=\"20000\" policy=\"smq\" hint_width=\"4\">\n<mappings>\n",
    );
    for block in cached() {
        let (origin, dirty) = (block * 11 + 5, dirty(block));
        let places = format!("cache_block=\"{block}\" origin_block=\"{origin}\"");
        writeln!(description, "<mapping {places} dirty=\"{dirty}\"/>").unwrap();
    }
    description.push_str("</mappings>\n<hints></hints>\n</superblock>\n");
    for version in ["1", "2"] {
        let arguments = ["--metadata-version", version];
        let Some(blocks) = restored("cache_restore", &arguments, &description) else { return };
        let cache = cache::Superblock::decode(&blocks.0[&0]).unwrap();
        assert_eq!((cache.version.to_string().as_str(), cache.clean_shutdown), (version, true));
        let mappings: Vec<cache::CachedBlock> =
            blocks.array(cache.mappings()).into_iter().filter_map(cache::CachedBlock::decode).collect();
        let places = mappings.iter().map(|mapping| (mapping.cache_block, mapping.origin_block));
        assert_eq!(
            places.collect::<Vec<_>>(),
            cached().map(|block| (block, block * 11 + 5)).collect::<Vec<_>>()
        );
        let found: Vec<u64> = match version {
            "1" => {
                mappings.iter().filter(|mapping| mapping.dirty).map(|mapping| mapping.cache_block).collect()
            }
            // cache_restore sets the bits of blocks that are not in use.
            _ => blocks.dirty(&cache).into_iter().filter(|block| !block.is_multiple_of(7)).collect(),
        };
        let expected: Vec<u64> = cached().filter(|&block| dirty(block)).collect();
        assert!(found == expected, "version {version}: {} dirty blocks, not {}", found.len(), expected.len());
        assert_eq!(cache.dirty().is_some(), version == "2");
    }
    let Some(blocks) = restored("cache_restore", &["--omit-clean-shutdown"], &description) else { return };
    assert!(!cache::Superblock::decode(&blocks.0[&0]).unwrap().clean_shutdown);
}
