//! Superblocks of all versions: recorded bytes, losslessness, roles and counters, load checks,
//! hazards.

use crate::common::{SIZE_SECTORS, array, big_endian, device, member};
use proptest::prelude::*;
use wattle_format::md::create::{CreateError, NewArray, superblock};
use wattle_format::md::{
    BadBlockArea, ByteOrder, DeviceFields, DeviceRole, Features, PplArea, Reshape, SetError, Superblock,
    SuperblockError, Timestamp, Version, badblocks, identify, read,
};

/// The 1.2 superblock mdadm 4.2 wrote for a RAID 1 with bitmap on 16 MiB devices (docs/formats.md
/// §18.1).
fn vector() -> Vec<u8> {
    let words = "fc4e2ba9 01000000 01000000 00000000 c1101493 bd984888 601259eb 64c1afd5 \
                 286e6f6e 65293a30 00000000 00000000 00000000 00000000 00000000 00000000 \
                 fdce006b 00000000 01000000 00000000 00380000 00000000 00000000 02000000 \
                 08000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
                 00080000 00000000 00380000 00000000 08000000 00000000 00000000 00000000 \
                 00000000 00000000 7f0268b6 1419ee27 d33311e3 27fd3fc6 00000800 10000000 \
                 fdce006b 00000000 00000000 00000000 ffffffff ffffffff fec6ec81 80000000 \
                 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
                 00000100";
    let digits: String = words.split_whitespace().collect();
    let byte = |at: usize| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap();
    let mut bytes: Vec<u8> = (0..digits.len() / 2).map(byte).collect();
    bytes.resize(256 + 2 * 128, 0xff);
    bytes.resize(4096, 0);
    bytes
}

fn vector_device() -> DeviceFields {
    DeviceFields {
        dev_number: 0,
        device_uuid: "7f0268b6:1419ee27:d33311e3:27fd3fc6".parse().unwrap(),
        ..device(Version::V12, 0)
    }
}

fn load(version: Version, bytes: &[u8]) -> Superblock {
    identify(version, bytes, SIZE_SECTORS).unwrap().unwrap()
}

fn problems(version: Version, bytes: &[u8]) -> Vec<SuperblockError> {
    read(version, bytes, SIZE_SECTORS).unwrap().problems().to_vec()
}

#[test]
fn reads_what_mdadm_wrote() {
    let superblock = load(Version::V12, &vector());
    assert_eq!(superblock.checksum(), 0x81ec_c6fe);
    assert_eq!(superblock.computed_checksum(), 0x81ec_c6fe);
    assert_eq!(superblock.set_uuid().to_string(), "c1101493:bd984888:601259eb:64c1afd5");
    assert_eq!((superblock.name().as_str(), superblock.level()), ("(none):0", 1));
    assert_eq!((superblock.size_sectors(), superblock.raid_disks(), superblock.events()), (14336, 2, 0));
    assert_eq!((superblock.data_offset_sectors(), superblock.data_size_sectors()), (2048, 14336));
    assert_eq!((superblock.resync_offset(), superblock.bitmap_offset_sectors()), (u64::MAX, Some(8)));
    let bad_block_log = BadBlockArea { offset_sectors: 16, size_sectors: 8, shift: 0 };
    assert_eq!(superblock.bad_block_log(), Some(bad_block_log));
    assert_eq!(
        (superblock.role(), superblock.role_of(1), superblock.role_of(2)),
        (DeviceRole::Active(0), DeviceRole::Active(1), DeviceRole::Spare)
    );
    assert_eq!(superblock.max_devices(), 128);
    assert_eq!(superblock.bytes()[..], vector()[..]);
}

#[test]
fn writes_what_mdadm_wrote() {
    let new = NewArray {
        set_uuid: "c1101493:bd984888:601259eb:64c1afd5".parse().unwrap(),
        ctime: Timestamp { secs: 0x6b00_cefd, micros: 0 },
        level: 1,
        layout: 0,
        chunk_sectors: 0,
        raid_disks: 2,
        roles: vec![DeviceRole::Active(0), DeviceRole::Active(1)],
        bitmap_offset_sectors: Some(8),
        ..array(Version::V12)
    };
    let made = superblock(&new, &vector_device(), SIZE_SECTORS).unwrap();
    assert_eq!(made.bytes()[..], vector()[..]);
}

#[test]
fn absent_is_not_damaged() {
    assert_eq!(identify(Version::V12, &[0; 4096], SIZE_SECTORS), Ok(None));
    assert_eq!(identify(Version::V12, &[], SIZE_SECTORS), Ok(None));
    assert_eq!(identify(Version::V12, &vector(), 23), Ok(None), "no place for one");
    assert_eq!(identify(Version::V090, &vector(), 16384), Ok(None), "1.x where 0.90 is looked for");
    let mut torn = vector();
    torn[300] ^= 1;
    let damaged = identify(Version::V12, &torn, SIZE_SECTORS).unwrap_err();
    assert!(matches!(damaged.problems(), [SuperblockError::BadChecksum { stored: 0x81ec_c6fe, .. }]));
    assert_eq!(damaged.fields().name(), "(none):0", "still to be shown");
}

/// One row per load check of docs/formats.md §1.5: what is patched into a good 1.2 superblock, and
/// what is said.
#[test]
fn load_checks() {
    type Row = (usize, &'static [u8], SuperblockError);
    let rows: [Row; 14] = [
        (4, &[2], SuperblockError::MajorVersion { found: 2 }),
        (10, &[0x10], SuperblockError::UnknownFeatures(0x10_0000)),
        (9, &[0x04], SuperblockError::ConflictingFeatures(Features::BITMAP | Features::PPL)),
        (9, &[0x10], SuperblockError::Raid0LayoutOnLevel { level: 1 }),
        (13, &[1], SuperblockError::ReservedNotZero { offset: 13 }),
        (255, &[1], SuperblockError::ReservedNotZero { offset: 255 }),
        (228, &[1], SuperblockError::ReservedNotZero { offset: 228 }),
        (224, &[0xff, 1], SuperblockError::LogicalBlockSize { found: 511 }),
        (144, &[16], SuperblockError::WrongOffset { stored: 16, found_at: 8 }),
        (136, &[9, 0], SuperblockError::DataTooSmall { found: 9 }),
        (136, &[1, 0x38], SuperblockError::DeviceTooSmall { need: 14337, have: 14336 }),
        (186, &[9], SuperblockError::BadBlockLogSize { found: 9 }),
        (185, &[64], SuperblockError::BadBlockShift { found: 64 }),
        (128, &[8, 0], SuperblockError::DataOverSuperblock { data_offset: 8, superblock_end: 9 }),
    ];
    for (at, patch, problem) in rows {
        let mut bytes = vector();
        bytes[at..at + patch.len()].copy_from_slice(patch);
        let sum = read(Version::V12, &bytes, SIZE_SECTORS).unwrap().fields().computed_checksum();
        bytes[216..220].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(problems(Version::V12, &bytes), [problem], "byte {at}");
    }
    let mut many = vector();
    many[220..224].copy_from_slice(&1921_u32.to_le_bytes());
    assert!(
        problems(Version::V12, &many).contains(&SuperblockError::TooManyDevices { found: 1921, max: 1920 })
    );
    assert_eq!(
        problems(Version::V12, &vector()[..4095]),
        [SuperblockError::Truncated { need: 4096, got: 4095 }]
    );
}

/// Hazard 5 of docs/formats.md §19: Linux 6.19 writes the logical block size where older kernels
/// demand zero. We read it, keep it through updates, and never add it unasked.
#[test]
fn logical_block_size_is_kept_and_never_added() {
    let mut superblock = member(Version::V12, 0);
    superblock.set_events(5);
    assert_eq!(superblock.bytes()[224..228], [0; 4]);
    superblock.set_logical_block_size(Some(4096)).unwrap();
    let mut again = load(Version::V12, &superblock.bytes()[..]);
    again.set_events(6);
    assert_eq!(again.logical_block_size(), Some(4096));
}

/// Hazard 10: bad block entries count from the start of the device. Moving the data must not move
/// them.
#[test]
fn moving_the_data_leaves_bad_blocks_alone() {
    let mut superblock = member(Version::V12, 0);
    let mut bad = badblocks::BadBlocks::default();
    bad.insert(badblocks::BadRange { sector: 3000, sectors: 8 });
    let area = bad.encode(4096, 0).unwrap();
    superblock.set_data_area(4096, SIZE_SECTORS - 4096).unwrap();
    let place = superblock.bad_block_log().unwrap();
    assert_eq!(place.offset_sectors, 16, "counted from the superblock, not from the data");
    assert_eq!(badblocks::BadBlocks::decode(&area, place.shift).unwrap().ranges()[0].sector, 3000);
}

#[test]
fn made_superblocks_load_in_every_version() {
    for version in Version::ALL {
        for dev_number in 0..4 {
            let made = member(version, dev_number);
            assert_eq!(load(version, &made.bytes()[..]), made, "{version}");
            assert_eq!(made.role(), DeviceRole::Active(dev_number as u16));
            assert_eq!((made.chunk_sectors(), made.size_sectors()), (128, 14336));
            assert_eq!(made.events(), u64::from(!version.is_1x()), "0.90 starts at 1");
            assert_eq!(made.resync_offset(), u64::MAX);
        }
    }
}

#[test]
fn impossible_arrays_are_not_made() {
    let make = |new: &NewArray| superblock(new, &device(new.version, 0), SIZE_SECTORS);
    let long = NewArray { name: vec![b'x'; 33], ..array(Version::V12) };
    assert!(matches!(make(&long), Err(CreateError::DoesNotFit(SetError::TooLarge { .. }))));
    let area = PplArea { offset_sectors: 8, size_sectors: 2048 };
    let both = NewArray { ppl: Some(area), bitmap_offset_sectors: Some(8), ..array(Version::V12) };
    assert!(matches!(make(&both), Err(CreateError::WouldNotLoad(SuperblockError::ConflictingFeatures(_)))));
    let many = NewArray { raid_disks: 28, roles: Vec::new(), ..array(Version::V090) };
    assert!(matches!(make(&many), Err(CreateError::DoesNotFit(_))));
    let journal = NewArray { features: Features::JOURNAL, ..array(Version::V090) };
    assert!(matches!(make(&journal), Err(CreateError::DoesNotFit(SetError::NotInVersion { .. }))));
}

/// Counters and states of the 0.90 table: nr, active, working, failed, spare.
fn counters(superblock: &Superblock) -> [u32; 5] {
    let word = |number: usize| {
        u32::from_le_bytes(superblock.bytes()[4 * number..4 * number + 4].try_into().unwrap())
    };
    [word(9), word(34), word(35), word(36), word(37)]
}

fn states(superblock: &Superblock) -> Vec<(u32, u32, u32)> {
    let used = |d: &wattle_format::md::Descriptor| d.number != 0 || d.state != 0;
    (0..27)
        .filter_map(|index| superblock.descriptor(index))
        .filter(used)
        .map(|d| (d.number, d.raid_disk, d.state))
        .collect()
}

#[test]
fn version_0_roles_follow_md() {
    let mut superblock = member(Version::V090, 3);
    assert_eq!(counters(&superblock), [4, 4, 4, 0, 0]);
    assert_eq!(states(&superblock), [(0, 0, 6), (1, 1, 6), (2, 2, 6), (3, 3, 6)]);

    assert_eq!(superblock.set_role(1, DeviceRole::Faulty), Ok(4), "a failed device leaves its slot");
    assert_eq!(states(&superblock), [(0, 0, 6), (1, 1, 9), (2, 2, 6), (3, 3, 6), (4, 4, 1)]);
    assert_eq!(counters(&superblock), [4, 3, 3, 1, 0]);
    assert_eq!(superblock.descriptor(4).unwrap().minor, 16, "its node goes along");

    assert_eq!(superblock.set_role(5, DeviceRole::Spare), Ok(5));
    assert_eq!(counters(&superblock), [5, 3, 4, 1, 1]);
    assert_eq!(superblock.set_role(5, DeviceRole::Active(1)), Ok(1), "rebuilt: it moves to its slot");
    assert_eq!(counters(&superblock), [5, 4, 4, 0, 0]);
    superblock.remove_device(4).unwrap();
    assert_eq!(states(&superblock), [(0, 0, 6), (1, 1, 6), (2, 2, 6), (3, 3, 6)]);

    assert_eq!(superblock.set_role(3, DeviceRole::Faulty), Ok(4));
    assert_eq!(
        (superblock.dev_number(), superblock.role()),
        (4, DeviceRole::Faulty),
        "this_disk follows its device"
    );
    let before = superblock.clone();
    assert!(superblock.set_role(0, DeviceRole::Active(4)).is_err(), "no such slot");
    assert!(superblock.set_role(0, DeviceRole::Journal).is_err());
    assert_eq!(superblock, before);
    assert_eq!(load(Version::V090, &superblock.bytes()[..]), superblock);
}

#[test]
fn version_0_clean_dirty_and_checkpoint() {
    let mut superblock = member(Version::V090, 0);
    superblock.set_resync_offset(0);
    assert_eq!(superblock.resync_offset(), 0);
    superblock.set_resync_offset(7000);
    superblock.set_events(9);
    assert_eq!(superblock.resync_offset(), 7000, "the checkpoint belongs to the new generation too");
    superblock.set_resync_offset(1 << 40);
    assert_eq!(superblock.resync_offset(), 0xffff_fffe, "less than is known, never more");
    superblock.set_resync_offset(u64::MAX);
    assert_eq!((superblock.resync_offset(), superblock.bytes()[4 * 33]), (u64::MAX, 1));
    // A checkpoint of another generation is no checkpoint.
    superblock.set_resync_offset(7000);
    let mut bytes = superblock.bytes().to_vec();
    bytes[4 * 41] ^= 1;
    assert_eq!(read(Version::V090, &bytes, SIZE_SECTORS).unwrap().fields().resync_offset(), 0);
}

#[test]
fn version_0_written_by_a_big_endian_machine() {
    let mut little = member(Version::V090, 2);
    little.set_events(0x1_0000_0007);
    let mut big = load(Version::V090, &big_endian(&little.bytes()[..]));
    assert_eq!(big.byte_order(), ByteOrder::Big);
    assert_eq!(
        (big.events(), big.set_uuid(), big.role()),
        (little.events(), little.set_uuid(), little.role())
    );
    assert_ne!(big.stored_uuid(), little.stored_uuid(), "its bitmap carries the bytes of that machine");
    for superblock in [&mut little, &mut big] {
        superblock.set_role(0, DeviceRole::Faulty).unwrap();
        superblock.set_events(0x2_0000_0001);
        superblock.set_resync_offset(55);
        superblock.set_utime(Timestamp { secs: 99, micros: 5 });
    }
    assert_eq!(big.bytes()[..], big_endian(&little.bytes()[..])[..], "same changes, its own byte order");
}

#[test]
fn version_0_checks() {
    let word = |number: usize, value: u32| {
        let mut bytes = member(Version::V090, 0).bytes().to_vec();
        bytes[4 * number..4 * number + 4].copy_from_slice(&value.to_le_bytes());
        let mut found = problems(Version::V090, &bytes);
        found.retain(|problem| !matches!(problem, SuperblockError::BadChecksum { .. }));
        found
    };
    assert_eq!(word(2, 92), [SuperblockError::MinorVersion { found: 92 }]);
    assert_eq!(word(10, 0), [SuperblockError::NoRaidDisks]);
    assert_eq!(word(10, 28), [SuperblockError::TooManyDevices { found: 28, max: 27 }]);
    assert_eq!(word(992, 27), [SuperblockError::DeviceNumber { found: 27, max: 26 }]);
    assert_eq!(word(8, 8129), [SuperblockError::DeviceTooSmall { need: 16258, have: 16256 }]);
    // Only the folded checksum counts: another architecture stored it folded further.
    let mut folded = member(Version::V090, 0).bytes().to_vec();
    let sum = u32::from_le_bytes(folded[152..156].try_into().unwrap());
    let once = (sum & 0xffff) + (sum >> 16);
    folded[152..156].copy_from_slice(&once.to_le_bytes());
    assert_eq!(problems(Version::V090, &folded), []);
}

#[test]
fn the_role_table_grows_by_sectors() {
    let mut superblock = member(Version::V12, 0);
    superblock.set_role(128, DeviceRole::Faulty).unwrap();
    assert_eq!((superblock.max_devices(), superblock.role_of(128)), (384, DeviceRole::Faulty));
    assert!((129..384).all(|dev_number| superblock.role_of(dev_number) == DeviceRole::Spare));
    assert!(superblock.set_role(1920, DeviceRole::Spare).is_err());
    assert_eq!(load(Version::V12, &superblock.bytes()[..]), superblock);
}

#[test]
fn a_member_follows_the_freshest() {
    for version in Version::ALL {
        let (mut fresh, mut stale) = (member(version, 0), member(version, 2));
        let number = fresh.set_role(1, DeviceRole::Faulty).unwrap();
        fresh.set_events(40);
        fresh.set_resync_offset(0);
        let own = (stale.device_uuid(), stale.data_offset_sectors(), stale.found_at_sectors());
        stale.follow(&fresh, 2).unwrap();
        assert_eq!(
            (stale.events(), stale.resync_offset(), stale.role_of(number)),
            (40, 0, DeviceRole::Faulty)
        );
        assert_eq!((stale.device_uuid(), stale.data_offset_sectors(), stale.found_at_sectors()), own);
        assert_eq!((stale.dev_number(), stale.role()), (2, DeviceRole::Active(2)));
        assert_eq!(load(version, &stale.bytes()[..]), stale);
        let other = if version == Version::V12 { Version::V11 } else { Version::V12 };
        assert!(stale.follow(&member(other, 0), 2).is_err());
        let again = fresh.for_device(&device(version, 3)).unwrap();
        assert_eq!((again.role(), again.events()), (DeviceRole::Active(3), 40));
        assert_eq!(again.check(SIZE_SECTORS), []);
    }
}

fn a_role() -> impl Strategy<Value = DeviceRole> {
    any::<u16>().prop_map(DeviceRole::from_raw)
}

proptest! {
    /// Random values in every field and every byte the checks leave free: what loads is written
    /// back as it was, and each setter changes its bytes and the checksum, nothing else.
    #[test]
    fn version_1_is_lossless(
        noise in prop::collection::vec(any::<u8>(), 4096),
        version in prop_oneof![Just(Version::V10), Just(Version::V11), Just(Version::V12)],
        max_dev in 1_u32..=1920,
        events: u64, resync: u64, utime: u64, dev_number in 0_u32..1920, role in a_role(),
    ) {
        let made = member(version, 0);
        let mut bytes = noise;
        for (start, end) in [(0, 16), (72, 76), (96, 104), (112, 152), (186, 188), (228, 256)] {
            bytes[start..end].copy_from_slice(&made.bytes()[start..end]);
        }
        bytes[185] &= 63;
        bytes[220..224].copy_from_slice(&max_dev.to_le_bytes());
        bytes[224..228].copy_from_slice(&4096_u32.to_le_bytes());
        if version == Version::V10 {
            bytes[136..144].copy_from_slice(&100_u64.to_le_bytes());
        } else {
            bytes[128..136].copy_from_slice(&2048_u64.to_le_bytes());
        }
        let sum = read(version, &bytes, SIZE_SECTORS).unwrap().fields().computed_checksum();
        bytes[216..220].copy_from_slice(&sum.to_le_bytes());
        let superblock = load(version, &bytes);
        prop_assert_eq!(&superblock.bytes()[..], &bytes[..]);

        let expect = |at: usize, value: &[u8], change: &dyn Fn(&mut Superblock)| {
            let (mut changed, mut wanted) = (superblock.clone(), bytes.clone());
            change(&mut changed);
            wanted[at..at + value.len()].copy_from_slice(value);
            wanted[216..220].copy_from_slice(&changed.computed_checksum().to_le_bytes());
            changed.bytes()[..] == wanted[..]
        };
        prop_assert!(expect(200, &events.to_le_bytes(), &|s| s.set_events(events)));
        prop_assert!(expect(208, &resync.to_le_bytes(), &|s| s.set_resync_offset(resync)));
        let time = Timestamp { secs: utime & 0xff_ffff_ffff, micros: (utime >> 40) as u32 };
        prop_assert!(expect(192, &utime.to_le_bytes(), &|s| s.set_utime(time)));
        if dev_number < max_dev {
            let at = 256 + 2 * dev_number as usize;
            let set = |s: &mut Superblock| { s.set_role(dev_number, role).unwrap(); };
            prop_assert!(expect(at, &role.to_raw().to_le_bytes(), &set));
        }
    }

    /// The same for 0.90 in both byte orders, with noise in every reserved word.
    #[test]
    fn version_0_is_lossless(noise in prop::collection::vec(any::<u8>(), 4096), big: bool, events: u64, utime: u32) {
        let made = member(Version::V090, 1);
        let mut bytes = made.bytes().to_vec();
        for (start, end) in [(3, 5), (11, 13), (16, 32), (41, 43), (50, 64), (66, 128), (133, 160), (997, 1024)] {
            bytes[4 * start..4 * end].copy_from_slice(&noise[4 * start..4 * end]);
        }
        if big {
            bytes = big_endian(&bytes);
        }
        let reseal = |bytes: &mut Vec<u8>| {
            let raw = read(Version::V090, bytes, SIZE_SECTORS).unwrap();
            let sum = raw.fields().computed_checksum();
            bytes[152..156].copy_from_slice(&if big { sum.to_be_bytes() } else { sum.to_le_bytes() });
        };
        reseal(&mut bytes);
        let mut superblock = load(Version::V090, &bytes);
        prop_assert_eq!(&superblock.bytes()[..], &bytes[..]);
        // The noise in 41, 42 is another generation's number, so the checkpoint does not move
        // along.
        prop_assume!(bytes[4 * 39..4 * 41] != bytes[4 * 41..4 * 43]);
        superblock.set_events(events);
        superblock.set_utime(Timestamp { secs: u64::from(utime), micros: 0 });
        let (events, utime) = if big {
            (events.to_be_bytes(), utime.to_be_bytes())
        } else {
            (events.to_le_bytes(), utime.to_le_bytes())
        };
        bytes[156..164].copy_from_slice(&events);
        bytes[128..132].copy_from_slice(&utime);
        reseal(&mut bytes);
        prop_assert_eq!(&superblock.bytes()[..], &bytes[..]);
    }

    #[test]
    fn reshape_reads_back(
        position: u64, new_level: i32, delta_disks: i32, new_layout: u32,
        chunk in 0_u32..1 << 20, down: bool, new_offset in prop::option::of(any::<i32>()),
    ) {
        for version in Version::ALL {
            let reshape = Reshape {
                position, new_level, delta_disks, new_layout,
                new_chunk_sectors: chunk,
                backwards: delta_disks < 0 || delta_disks == 0 && down && version.is_1x(),
                new_offset_sectors: new_offset.filter(|_| version.is_1x()),
            };
            let before = member(version, 0);
            let mut superblock = before.clone();
            superblock.set_reshape(Some(reshape)).unwrap();
            prop_assert_eq!(superblock.reshape(), Some(reshape));
            superblock.set_reshape_position(7);
            prop_assert_eq!(superblock.reshape(), Some(Reshape { position: 7, ..reshape }));
            superblock.set_reshape(None).unwrap();
            prop_assert_eq!(superblock, before);
        }
    }

    /// Any sequence of role changes keeps the 0.90 table consistent with its counters.
    #[test]
    fn version_0_counters_match_the_table(
        steps in prop::collection::vec((0_u32..30, prop::option::of(prop_oneof![
            (0_u16..5).prop_map(DeviceRole::Active), Just(DeviceRole::Spare), Just(DeviceRole::Faulty)])), 0..30),
    ) {
        let mut superblock = member(Version::V090, 2);
        for (dev_number, role) in steps {
            let _ = match role {
                Some(role) => superblock.set_role(dev_number, role).map(|_| ()),
                None => superblock.remove_device(dev_number),
            };
            let table: Vec<_> = (0..27).filter_map(|i| superblock.descriptor(i).map(|d| (i, d))).collect();
            let count = |state: u32| table.iter().filter(|(_, d)| d.is_present() && d.state == state).count() as u32;
            let missing = table.iter().filter(|(_, d)| d.state == 9).count() as u32;
            let (active, faulty, spare) = (count(6), count(1), count(0));
            prop_assert_eq!(counters(&superblock), [active + faulty + spare, active, active + spare, missing, spare]);
            prop_assert_eq!(active + missing, 4, "each slot is held or missing");
            for (index, descriptor) in table {
                prop_assert!(descriptor.state != 6 || (index < 4 && descriptor.raid_disk == index));
                prop_assert!(!descriptor.is_present() || descriptor.number == index);
            }
            prop_assert_eq!(superblock.check(SIZE_SECTORS), vec![]);
        }
    }
}
