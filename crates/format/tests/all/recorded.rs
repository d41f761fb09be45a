//! Superblocks of arrays that Linux 6.12 and mdadm 4.2 wrote (the first 512 bytes, all that is not
//! zero, of members under `fixtures/`): they load, and `create` makes the same bytes except for
//! what the kernel updated since.

use wattle_format::md::create::{NewArray, superblock};
use wattle_format::md::defaults::{
    WriteHoleRoom, areas, bitmap_bytes, component_size_sectors, data_offset_sectors, usable_sectors,
};
use wattle_format::md::{DeviceFields, DeviceRole, Features, Version, bitmap, identify};

struct Recorded {
    name: &'static str,
    bytes: &'static [u8],
    version: Version,
    level: i32,
    events: u64,
    role: DeviceRole,
    dev_number: u32,
}

macro_rules! recorded {
    ($name:literal, $version:ident, $level:literal, $events:literal, $slot:literal, $dev_number:literal) => {
        Recorded {
            name: $name,
            bytes: include_bytes!(concat!("../data/", $name, ".superblock")),
            version: Version::$version,
            level: $level,
            events: $events,
            role: DeviceRole::Active($slot),
            dev_number: $dev_number,
        }
    };
}

/// Expected values are those `mdadm --examine` printed in the guest, see each case's `guest.log`.
const RECORDED: [Recorded; 6] = [
    recorded!("raid1-2d-v10-member-0", V10, 1, 18, 0, 0),
    recorded!("raid5-4d-bitmap-member-3", V12, 5, 20, 3, 4),
    recorded!("raid5-4d-one-failed-member-0", V12, 5, 23, 0, 0),
    recorded!("raid0-4d-64k-member-1", V12, 0, 0, 1, 1),
    recorded!("raid10-4d-f2-member-2", V12, 10, 17, 2, 2),
    recorded!("raid6-6d-64k-member-5", V12, 6, 19, 5, 5),
];

/// All members are 8 MiB.
const SIZE_SECTORS: u64 = 16384;

fn block(recorded: &Recorded) -> Vec<u8> {
    let mut bytes = recorded.bytes.to_vec();
    bytes.resize(4096, 0);
    bytes
}

#[test]
fn they_load() {
    for recorded in &RECORDED {
        let superblock = identify(recorded.version, &block(recorded), SIZE_SECTORS).unwrap().unwrap();
        let found = (superblock.level(), superblock.role(), superblock.dev_number());
        assert_eq!(found, (recorded.level, recorded.role, recorded.dev_number), "{}", recorded.name);
        assert_eq!(superblock.resync_offset(), u64::MAX, "{}", recorded.name);
        assert_eq!(superblock.events(), recorded.events, "{}", recorded.name);
    }
}

/// Sizes, offsets and places come from `defaults`, as `create` will choose them; ids, time, roles
/// and events are taken from the recording.
#[test]
fn create_makes_the_same_bytes() {
    for recorded in &RECORDED {
        let there = identify(recorded.version, &block(recorded), SIZE_SECTORS).unwrap().unwrap();
        let chunk_sectors = there.chunk_sectors();
        let version = recorded.version;
        let data_offset_sectors = data_offset_sectors(version, SIZE_SECTORS, chunk_sectors, false);
        let data_size_sectors = usable_sectors(version, SIZE_SECTORS, data_offset_sectors, false);
        let size_sectors = component_size_sectors(version, recorded.level, data_size_sectors, chunk_sectors);
        let guard = match there.features().contains(Features::BITMAP) {
            true => WriteHoleRoom::Bitmap { bytes: bitmap_bytes(size_sectors, 65536) },
            false => WriteHoleRoom::None,
        };
        let areas = areas(version, SIZE_SECTORS, size_sectors, guard).unwrap();
        let array = NewArray {
            version,
            set_uuid: there.set_uuid(),
            name: there.name_bytes().to_vec(),
            ctime: there.ctime(),
            level: recorded.level,
            layout: there.layout(),
            chunk_sectors,
            raid_disks: there.raid_disks(),
            size_sectors,
            resync_offset: u64::MAX,
            roles: there.roles().collect(),
            bitmap_offset_sectors: areas.bitmap_offset_sectors,
            ppl: None,
            features: Features::default(),
            md_minor: 0,
            nodes: Vec::new(),
        };
        let device = DeviceFields {
            dev_number: there.dev_number(),
            device_uuid: there.device_uuid().unwrap(),
            super_offset_sectors: areas.super_offset_sectors,
            data_offset_sectors,
            data_size_sectors,
            recovery_offset: None,
            replacement: false,
            bad_block_log: areas.bad_block_log,
            flags: there.device_flags(),
        };
        let mut made = superblock(&array, &device, SIZE_SECTORS).unwrap();
        made.set_events(there.events());
        made.set_utime(there.utime());
        assert_eq!(made.bytes()[..], there.bytes()[..], "{}", recorded.name);
    }
}

#[test]
fn the_bitmap_is_current_and_clean() {
    let image = include_bytes!("../data/raid5-4d-bitmap-member-3.bitmap");
    let bytes = block(&RECORDED[1]);
    let superblock = identify(Version::V12, &bytes, SIZE_SECTORS).unwrap().unwrap();
    let header = bitmap::Header::decode(image).unwrap();
    let freshness = header.freshness(&superblock.stored_uuid(), superblock.events());
    assert_eq!(freshness, Ok(bitmap::Freshness::Current));
    assert_eq!(header.sync_size_sectors(), superblock.size_sectors());
    assert_eq!(header.bits(), Some(112));
}
