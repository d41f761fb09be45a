//! Example structures and a small deterministic generator, shared by the integration tests.

pub mod disk;

use wattle_format::dm::{raid, snapshot};
use wattle_format::lvm::area::Header;
use wattle_format::lvm::label::Area;
use wattle_format::lvm::{Id, Label};
use wattle_format::md::create::{NewArray, superblock};
use wattle_format::md::defaults::{WriteHoleRoom, areas};
use wattle_format::md::{
    DeviceFields, DeviceFlags, DeviceRole, Features, JournalChecksum, Superblock, Timestamp, Uuid, Version,
    badblocks, bitmap, journal, ppl, read,
};
use wattle_format::overlay;
use wattle_format::undo;

/// A header of LUKS1 and the JSON of one of LUKS2, by cryptsetup 2.6.1.
pub const LUKS1: &[u8; 592] = include_bytes!("../../data/luks1.bin");
pub const LUKS2_JSON: &[u8] = include_bytes!("../../data/luks2.json");

/// Sectors of the example component.
pub const SIZE_SECTORS: u64 = 16384;

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// A RAID 5 of four members, as `create` makes it.
pub fn array(version: Version) -> NewArray {
    NewArray {
        version,
        set_uuid: "d4456855:878c1153:a132709f:86ddf6a8".parse().unwrap(),
        name: if version.is_1x() { b"(none):0".to_vec() } else { Vec::new() },
        ctime: Timestamp { secs: 1_795_214_738, micros: 0 },
        level: 5,
        layout: 2,
        chunk_sectors: 128,
        raid_disks: 4,
        size_sectors: 14336,
        resync_offset: u64::MAX,
        roles: (0..4).map(DeviceRole::Active).collect(),
        bitmap_offset_sectors: None,
        ppl: None,
        features: Features::default(),
        md_minor: 0,
        nodes: vec![(254, 0), (254, 16), (254, 32), (254, 48)],
    }
}

pub fn device(version: Version, dev_number: u32) -> DeviceFields {
    let areas = areas(version, SIZE_SECTORS, 14336, WriteHoleRoom::None).unwrap();
    let near_start = matches!(version, Version::V11 | Version::V12);
    DeviceFields {
        dev_number,
        device_uuid: Uuid([dev_number as u8; 16]),
        super_offset_sectors: areas.super_offset_sectors,
        data_offset_sectors: if near_start { 2048 } else { 0 },
        data_size_sectors: if near_start { SIZE_SECTORS - 2048 } else { 16352 },
        recovery_offset: None,
        replacement: false,
        bad_block_log: areas.bad_block_log,
        flags: DeviceFlags::default(),
    }
}

pub fn member(version: Version, dev_number: u32) -> Superblock {
    superblock(&array(version), &device(version, dev_number), SIZE_SECTORS).unwrap()
}

/// A 0.90 superblock as a big-endian machine would have written it: every word swapped, and the
/// halves of the two u64 event counts exchanged.
pub fn big_endian(little: &[u8]) -> Vec<u8> {
    let mut words: Vec<[u8; 4]> = little.chunks_exact(4).map(|w| [w[3], w[2], w[1], w[0]]).collect();
    for low in [39, 41, 44] {
        words.swap(low, low + 1);
    }
    words.concat()
}

/// The header of a reshape's backup file with two parts (docs/formats.md §9.4).
pub fn backup_header() -> Vec<u8> {
    let mut bytes = vec![0; 512];
    bytes[..16].copy_from_slice(b"md_backup_data-2");
    for (at, value) in [(32, 1000), (40, 8), (48, 768), (56, 384), (72, 384), (80, 1152), (88, 384_u64)] {
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    for at in [64, 96] {
        bytes[at..at + 4].copy_from_slice(&0x2492_4915_u32.to_le_bytes());
    }
    bytes
}

/// Valid structures of every kind. Superblocks carry the 8 bytes of component size that the fuzz
/// target expects.
pub fn seeds() -> Vec<Vec<u8>> {
    let sized = |bytes: &[u8]| [&SIZE_SECTORS.to_le_bytes()[..], bytes].concat();
    let mut seeds: Vec<Vec<u8>> =
        Version::ALL.into_iter().map(|version| sized(&member(version, 1).bytes()[..])).collect();
    seeds.push(sized(&big_endian(&member(Version::V090, 1).bytes()[..])));
    let new = bitmap::NewBitmap {
        uuid: [0; 16],
        sync_size_sectors: 14336,
        chunk_bytes: 65536,
        daemon_sleep_secs: 5,
        write_behind: 0,
    };
    seeds.push(bitmap::new_image(&new, 4096).unwrap());
    let mut bad = badblocks::BadBlocks::default();
    bad.insert(badblocks::BadRange { sector: 3000, sectors: 1500 });
    seeds.push([&[0][..], &bad.encode(4096, 0).unwrap()].concat());
    let entry =
        ppl::PplEntry { data_sector: 8, pp_bytes: 8192, data_bytes: 16384, parity_disk: 1, checksum: 0 };
    seeds.push(ppl::Header { generation: 1, entries: vec![entry; 3] }.encode(&[0; 16]).to_vec());
    let payloads = vec![
        journal::Payload::Data { flags: 0, sector: 8, checksums: vec![1, 2] },
        journal::Payload::Flush { flags: 0, stripes: vec![8, 16] },
    ];
    let meta = journal::MetaBlock { seq: 7, position_sectors: 0, payloads };
    seeds.push(meta.encode(JournalChecksum::new(&[0; 16])).unwrap().to_vec());
    seeds.push(backup_header());
    for sector_bytes in [512, 4096] {
        let mut gpt = disk::Disk::new(128, sector_bytes);
        gpt.gpt(&[(40, 49), (50, 79)]);
        gpt.bytes.truncate(5 * 4096);
        seeds.push(gpt.bytes);
    }
    let areas = (0..40).map(|ix| format!("{:#x} 0x60 {}\n", 96 * ix, ['+', '-', '/', '*', '?'][ix % 5]));
    let map = format!("# a map\n0x00000200 - 1\n{}", areas.collect::<String>()).into_bytes();
    seeds.push([&[200_u64.to_le_bytes(), 900_u64.to_le_bytes()].concat()[..], &map].concat());
    seeds.push(map);
    seeds.push(LUKS1.to_vec());
    seeds.push(LUKS2_JSON.to_vec());
    // A node of a cache's tree with two sets, and an entry of its journal. Their targets seal them.
    seeds.push([cache_keys(32, 40), cache_keys(32, 3)].concat());
    seeds.push(cache_keys(240, 20));
    // A superblock of dm-integrity with its journal, as Linux left them.
    seeds.push(include_bytes!("../../data/integrity.bin").to_vec());
    // Ends of drives of containers that mdadm wrote; that of DDF with shorter tables.
    let drives: [&[u8]; 3] = [
        include_bytes!("../../data/imsm.bin"),
        include_bytes!("../../data/imsm-two.bin"),
        include_bytes!("../../data/ddf.bin"),
    ];
    seeds.extend(drives.map(<[u8]>::to_vec));
    let mut mbr = disk::Disk::new(40, 512);
    mbr.mbr_entry(0, 0, 0xfd, 20, 10);
    mbr.mbr_entry(0, 1, 5, 1, 10);
    mbr.mbr_entry(1, 0, 0x8e, 1, 1);
    mbr.mbr_entry(1, 1, 5, 2, 10);
    seeds.push(mbr.bytes);
    let samples = std::array::from_fn(|ix| Some(ix as u32));
    let header = overlay::Header {
        name: "sda".to_owned(),
        sectors: SIZE_SECTORS,
        modified: Some((1, 2)),
        samples,
        inside: vec![(1 << 20, Some(7))],
    };
    seeds.push(header.encode().to_vec());
    seeds.push(undo_seed());
    seeds.extend(lvm_seeds());
    seeds.push(tree());
    seeds
}

/// A log of two ranges, one of which held zeros.
fn undo_seed() -> Vec<u8> {
    let (name, drive) = ("sda".to_owned(), "naa.5".to_owned());
    let target = undo::UndoTarget {
        name,
        place: undo::UndoTargetKind::Array([3; 16]),
        sectors: 128,
        drive,
        samples: [Some(1); 16],
    };
    let range = |sector, before| undo::Range {
        target: 0,
        sector,
        sectors: 1,
        step: 1,
        before,
        written: vec![vec![7], vec![8]],
    };
    let log = undo::UndoLog {
        command: "wattle erase sda".to_owned(),
        time: (1, 2),
        given: vec!["/dev/sda".to_owned()],
        targets: vec![target],
        ranges: vec![range(8, None), range(9, Some(vec![5; 512]))],
    };
    log.encode()
}

/// A label, the header of a metadata area (behind the 8 bytes of its start), texts, a snapshot's
/// store, a dm-raid superblock.
fn lvm_seeds() -> Vec<Vec<u8>> {
    let area = Area { offset_bytes: 4096, size_bytes: 1 << 20 };
    let label = Label::create(Id::from_random([7; 32]), 64 << 20, 0).unwrap();
    let mut header = Header::new(area).unwrap();
    for _ in 0..3 {
        header = header.commit(&[b'x'; 300_000]).unwrap().commit;
    }
    let shape = raid::DmRaidShape {
        devices: 4,
        level: 5,
        layout: 2,
        stripe_sectors: 128,
        array_sectors: 6144,
        device_sectors: 2048,
    };
    let mut store = snapshot::Header { valid: true, chunk_sectors: 1 }.encode().to_vec();
    store.resize(512, 0);
    (0..40_u64).for_each(|i| store.extend([i.to_le_bytes(), (2 + i + i / 32).to_le_bytes()].concat()));
    store.resize(100 * 512, 0);
    let small: &[u8] = b"contents=\"Text Format Volume Group\" version=1 v{id=\"00000000000000000000000000000000\" seqno=1 \
        extent_size=8 physical_volumes{p{id=\"00000000000000000000000000000000\" pe_start=0 pe_count=9}} logical_volumes{l{\
        id=\"00000000000000000000000000000000\" segment_count=1 segment1{start_extent=0 extent_count=2 type=\"striped\" \
        stripes=[\"p\",0]}}m{id=\"00000000000000000000000000000000\" segment_count=1 segment1{start_extent=0 \
        extent_count=2 type=\"raid1\" raids=[\"l\",\"m\"]}}}}";
    vec![
        label.encode().unwrap().to_vec(),
        [&4096_u64.to_le_bytes()[..], header.bytes()].concat(),
        include_bytes!("../../data/lvm/moving.vg").to_vec(),
        small.to_vec(),
        store,
        raid::Superblock::new(&shape, 1, 0).bytes().to_vec(),
    ]
}

/// A node over two leaves, without checksums: the fuzz target adds them.
fn tree() -> Vec<u8> {
    let node = |kind: u32, entries: &[(u64, u64)]| {
        let mut block = vec![0; 4096];
        for (at, word) in [(4, kind), (16, entries.len() as u32), (20, 252), (24, 8)] {
            block[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        for (i, (key, value)) in entries.iter().enumerate() {
            block[32 + 8 * i..40 + 8 * i].copy_from_slice(&key.to_le_bytes());
            block[32 + 8 * (252 + i)..40 + 8 * (252 + i)].copy_from_slice(&value.to_le_bytes());
        }
        block
    };
    let leaf = |from: u64| node(2, &(from..from + 40).map(|key| (key, key << 24)).collect::<Vec<_>>());
    [node(1, &[(0, 1), (40, 2)]), leaf(0), leaf(40)].concat()
}

/// Keys of a cache of bcache behind a head of this size, with the number of its words in it and
/// version 1, in whole blocks.
fn cache_keys(head_bytes: usize, keys: u64) -> Vec<u8> {
    let mut bytes = vec![0; head_bytes];
    bytes[24..28].copy_from_slice(&1_u32.to_le_bytes());
    bytes[28..32].copy_from_slice(&(3 * keys as u32).to_le_bytes());
    for nth in 1..=keys {
        let high = 1 << 63 | 1 << 60 | (nth % 2) << 36 | 8 << 20 | (nth / 30);
        bytes.extend([high, 16 * nth, (16 + nth) << 8 | 7].iter().flat_map(|word: &u64| word.to_le_bytes()));
    }
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// Repairs the checksum of a superblock seed, so that mutations reach the code behind it.
pub fn reseal(bytes: &mut [u8]) {
    let Some((size, block)) = bytes.split_first_chunk_mut::<8>() else { return };
    let size = u64::from_le_bytes(*size);
    for version in Version::ALL {
        if let Some(raw) = read(version, block, size) {
            let at = if version == Version::V090 { 4 * 38 } else { 216 };
            let sum = raw.fields().computed_checksum();
            let order = raw.fields().byte_order();
            let sum = if order == wattle_format::md::ByteOrder::Big {
                sum.to_be_bytes()
            } else {
                sum.to_le_bytes()
            };
            if let Some(target) = block.get_mut(at..at + 4) {
                target.copy_from_slice(&sum);
                return;
            }
        }
    }
}
