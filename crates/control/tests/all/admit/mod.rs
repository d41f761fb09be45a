//! Which devices may join a running array, and what becomes of it: superblocks made by hand, one
//! row for each device that may be offered.

mod apart;

use wattle_control::admit::{Admission, ArrayNow, OfferedDevice, RunningDevice, Seat, WantedSeat, admit};
use wattle_control::assemble::MemberRecovery;
use wattle_control::bitmap::BitmapBits;
use wattle_control::create::PlannedWrite;
use wattle_control::facts::BitmapContent;
use wattle_control::lineage::SeatedMember;
use wattle_control::signature::FoundSignature;
use wattle_control::{Check, Code, Forced, Problem};
use wattle_engine::Regions;
use wattle_engine::units::Sector;
use wattle_format::md::create::{NewArray, superblock};
use wattle_format::md::{
    BadBlockArea, DeviceFields, DeviceFlags, DeviceRole, Features, PplArea, Superblock, Timestamp, Uuid,
    Version, badblocks, identify, ppl, super_offset_sectors,
};
use wattle_format::probe::SignatureKind;

use crate::support::bits_of;

const SECTORS: u64 = 16384;
/// Its number is the first that is free.
const NEW_UUID: Uuid = Uuid(*b"\0\0\0\0\0\0\0\0new one.");

#[derive(Clone, Copy)]
struct Kind {
    version: Version,
    level: i32,
    size_sectors: u64,
    bitmap: bool,
    ppl: bool,
}

const RAID5: Kind = Kind { version: Version::V12, level: 5, size_sectors: 12288, bitmap: false, ppl: false };

/// The superblock of device `ix` of an array of four: three members, and a number 3 that no device
/// has any more.
fn disk(kind: Kind, set_uuid: Uuid, ix: u32) -> Superblock {
    let at_start = matches!(kind.version, Version::V11 | Version::V12);
    let roles = if kind.version == Version::V090 { 3 } else { 4 };
    let mut roles: Vec<_> = (0..roles).map(DeviceRole::Active).collect();
    roles.truncate(3);
    roles.push(if kind.version == Version::V090 { DeviceRole::Spare } else { DeviceRole::Faulty });
    let array = NewArray {
        version: kind.version,
        set_uuid,
        name: b"host:data".to_vec(),
        ctime: Timestamp { secs: 1000, micros: 0 },
        level: kind.level,
        layout: if kind.level == 5 { 2 } else { 0 },
        chunk_sectors: if kind.level == 1 { 0 } else { 128 },
        raid_disks: 4,
        size_sectors: kind.size_sectors,
        resync_offset: u64::MAX,
        roles,
        bitmap_offset_sectors: kind.bitmap.then_some(if at_start || kind.version == Version::V090 {
            8
        } else {
            -16
        }),
        ppl: kind.ppl.then_some(PplArea { offset_sectors: 8, size_sectors: 1024 }),
        features: Features::default(),
        md_minor: 0,
        nodes: Vec::new(),
    };
    let place = super_offset_sectors(kind.version, SECTORS).unwrap();
    let (data_offset_sectors, data_size_sectors) = match kind.version {
        Version::V090 => (0, place),
        Version::V10 => (0, place - 24),
        _ => (2048, SECTORS - 2048),
    };
    let offset_sectors = if at_start { if kind.ppl { 1032 } else { 16 } } else { -8 };
    let device = DeviceFields {
        dev_number: ix,
        device_uuid: Uuid([ix as u8 + 1; 16]),
        super_offset_sectors: place,
        data_offset_sectors,
        data_size_sectors,
        recovery_offset: None,
        replacement: false,
        bad_block_log: (kind.version != Version::V090).then_some(BadBlockArea {
            offset_sectors,
            size_sectors: 8,
            shift: 0,
        }),
        flags: DeviceFlags::default(),
    };
    let mut superblock = superblock(&array, &device, SECTORS).unwrap();
    superblock.set_events(20);
    superblock
}

const OURS: Uuid = Uuid([7; 16]);

/// Devices of the array, in the slots of their numbers.
fn seated(kind: Kind, slots: &[u16]) -> Vec<SeatedMember> {
    let member = |&slot: &u16| {
        let dev_number = u32::from(slot);
        SeatedMember { slot, dev_number, device_uuid: disk(kind, OURS, dev_number).device_uuid() }
    };
    slots.iter().map(member).collect()
}

/// A device that the array has not always had.
fn joined(slot: u16, dev_number: u32) -> SeatedMember {
    SeatedMember { slot, dev_number, device_uuid: Some(Uuid([dev_number as u8 + 1; 16])) }
}

fn running(kind: Kind) -> ArrayNow {
    let device = |ix: u32| RunningDevice {
        name: format!("m{ix}"),
        dev_number: ix,
        device_uuid: disk(kind, OURS, ix).device_uuid(),
        spare: false,
    };
    ArrayNow {
        template: disk(kind, OURS, 0),
        devices: (0..3).map(device).collect(),
        in_sync: seated(kind, &[0, 1, 2]),
        in_sync_at_start: seated(kind, &[0, 1, 2]),
        left_with: Vec::new(),
        empty: vec![3],
        replacing: Vec::new(),
        bitmap: kind.bitmap.then(|| {
            let BitmapContent { region_sectors, covered_sectors, events_cleared, .. } = bitmap(15, &[]);
            let mut regions = Regions::new(Sector(region_sectors), Sector(covered_sectors));
            [1, 5].into_iter().for_each(|region| regions.insert(region));
            BitmapBits { regions, events_cleared, stale: false }
        }),
        logical_block_bytes: 512,
        shown: Vec::new(),
    }
}

fn offer(size_sectors: u64, superblocks: Vec<Superblock>) -> OfferedDevice {
    OfferedDevice {
        name: "new".to_owned(),
        size_sectors,
        logical_block_bytes: 512,
        superblocks,
        damaged: Vec::new(),
        signatures: Vec::new(),
        bitmap: Some(bitmap(15, &[5])),
    }
}

/// What the bitmap of a device that was of the array says.
fn bitmap(events_cleared: u64, set: &[u64]) -> BitmapContent {
    BitmapContent {
        events: 30,
        events_cleared,
        stale: false,
        region_sectors: 128,
        covered_sectors: 14336,
        sweep_secs: 5,
        bits: bits_of(set),
    }
}

fn ask(offer: &OfferedDevice, running: &ArrayNow, place: WantedSeat) -> Result<Admission, Problem> {
    admit(offer, running, place, NEW_UUID, Forced::default())
}

#[track_caller]
fn refuses(result: Result<Admission, Problem>, code: Code, word: &str) -> Problem {
    let problem = result.map(|admission| admission.seat).expect_err("this must be refused");
    assert_eq!(problem.code, code, "{problem}");
    assert!(problem.what.contains(word) || problem.why.contains(word), "`{word}` is not in: {problem}");
    assert!(problem.what.starts_with("new: ") && problem.next.len() > 10);
    problem
}

/// The member that was in slot 3, as it was `behind` events ago.
fn former(kind: Kind, behind: u64) -> Superblock {
    let mut own = disk(kind, OURS, 3);
    own.set_role(3, DeviceRole::Active(3)).unwrap();
    own.set_events(20 - behind);
    own
}

#[test]
fn an_empty_device_fills_the_empty_slot() {
    for version in [Version::V12, Version::V11, Version::V10] {
        let kind = Kind { version, ..RAID5 };
        let running = running(kind);
        // Another size moves a superblock at the end.
        for size_sectors in [SECTORS, SECTORS + 4096] {
            let admission = ask(&offer(size_sectors, Vec::new()), &running, WantedSeat::Any).unwrap();
            assert_eq!(
                (admission.seat, admission.recovery),
                (Seat::Slot(3), MemberRecovery::Full),
                "{version}"
            );
            let new = &admission.superblock;
            // Number 3 was a member's that may come back.
            assert_eq!(
                (admission.dev_number, new.role(), new.role_of(3)),
                (4, DeviceRole::Active(3), DeviceRole::Faulty)
            );
            assert_eq!((new.recovery_offset(), new.events()), (Some(0), 20));
            assert_eq!((new.device_uuid(), new.set_uuid()), (Some(NEW_UUID), OURS));
            assert_eq!(new.data_offset_sectors(), running.template.data_offset_sectors());
            assert_eq!(Some(new.found_at_sectors()), super_offset_sectors(version, size_sectors));
            // A reader of the device finds exactly this.
            assert_eq!(identify(version, new.bytes(), size_sectors).unwrap().as_ref(), Some(new));
            let [log] = admission.writes.as_slice() else { panic!("{:?}", admission.writes) };
            let area = new.bad_block_log().unwrap();
            assert_eq!(log.offset_bytes, new.sector_from_superblock(area.offset_sectors).unwrap() * 512);
            assert_eq!(log.bytes, badblocks::empty_area(4096));
        }
    }
}

#[test]
fn areas_lie_beside_the_data_on_devices_of_every_size() {
    let kind = Kind { version: Version::V10, bitmap: true, ..RAID5 };
    let admission = ask(&offer(12288 + 40, Vec::new()), &running(kind), WantedSeat::Any).unwrap();
    let new = &admission.superblock;
    let bitmap = new.sector_from_superblock(new.bitmap_offset_sectors().unwrap()).unwrap();
    assert!(new.data_offset_sectors() + new.data_size_sectors() <= bitmap, "the data ends before the bitmap");
    assert!(new.data_size_sectors() >= 12288);
    refuses(ask(&offer(12288 + 24, Vec::new()), &running(kind), WantedSeat::Any), Code::TooSmall, "needed");

    let kind = Kind { ppl: true, ..RAID5 };
    let admission = ask(&offer(SECTORS, Vec::new()), &running(kind), WantedSeat::Any).unwrap();
    let log = admission.writes.iter().find(|write| write.what == "partial parity log").unwrap();
    assert_eq!(log.offset_bytes, 16 * 512);
    assert_eq!(ppl::newest(&log.bytes, &OURS.0).unwrap().header.entries, []);
}

#[test]
fn too_small_by_one_sector() {
    let running = running(RAID5);
    assert!(ask(&offer(2048 + 12288, Vec::new()), &running, WantedSeat::Spare).is_ok());
    for (size_sectors, place) in
        [(2048 + 12287, WantedSeat::Any), (2048 + 12287, WantedSeat::Spare), (8, WantedSeat::Replace(1))]
    {
        let problem =
            refuses(ask(&offer(size_sectors, Vec::new()), &running, place), Code::TooSmall, "12288");
        assert_eq!((problem.exit_code(), problem.force), (1, None));
    }
}

#[test]
fn blocks_that_clients_may_write_in_part() {
    let coarse = OfferedDevice { logical_block_bytes: 4096, ..offer(SECTORS, Vec::new()) };
    let mut running = running(RAID5);
    refuses(ask(&coarse, &running, WantedSeat::Any), Code::BlocksTooLarge, "4096");
    running.logical_block_bytes = 4096;
    assert!(ask(&coarse, &running, WantedSeat::Any).is_ok());
    assert!(ask(&offer(SECTORS, Vec::new()), &running, WantedSeat::Any).is_ok(), "finer ones do");
}

#[test]
fn places_that_there_are_not() {
    let mut running = running(RAID5);
    let new = offer(SECTORS, Vec::new());
    for (place, seat) in [
        (WantedSeat::Slot(3), Seat::Slot(3)),
        (WantedSeat::Replace(1), Seat::Replacement(1)),
        (WantedSeat::Spare, Seat::Spare),
    ] {
        assert_eq!(ask(&new, &running, place).unwrap().seat, seat);
    }
    refuses(ask(&new, &running, WantedSeat::Slot(1)), Code::NoPlace, "slot 1 is not empty");
    refuses(ask(&new, &running, WantedSeat::Slot(9)), Code::NoPlace, "slot 9");
    refuses(ask(&new, &running, WantedSeat::Replace(3)), Code::NoPlace, "no whole member");
    running.replacing.push(1);
    refuses(ask(&new, &running, WantedSeat::Replace(1)), Code::NoPlace, "already");
    running.empty.clear();
    let spare = ask(&new, &running, WantedSeat::Any).unwrap();
    assert_eq!((spare.seat, spare.superblock.role()), (Seat::Spare, DeviceRole::Spare));
    assert_eq!(spare.superblock.recovery_offset(), None);

    let raid0 = Kind { level: 0, size_sectors: 0, ..RAID5 };
    let mut striped = self::running(Kind { ..RAID5 });
    striped.template.set_level(raid0.level);
    refuses(ask(&new, &striped, WantedSeat::Any), Code::NoPlace, "no redundancy");
}

#[test]
fn a_replacement_says_so() {
    let admission = ask(&offer(SECTORS, Vec::new()), &running(RAID5), WantedSeat::Replace(1)).unwrap();
    let new = &admission.superblock;
    assert!(new.features().contains(Features::REPLACEMENT | Features::RECOVERY_OFFSET));
    assert_eq!((new.role(), new.recovery_offset()), (DeviceRole::Active(1), Some(0)));
}

#[test]
fn the_same_device_twice() {
    let running = running(RAID5);
    let itself = OfferedDevice { name: "m1".to_owned(), ..offer(SECTORS, vec![disk(RAID5, OURS, 1)]) };
    for place in [WantedSeat::Any, WantedSeat::Replace(1), WantedSeat::Replace(2), WantedSeat::Spare] {
        let problem = ask(&itself, &running, place).map(|admission| admission.seat).unwrap_err();
        assert_eq!((problem.code, problem.exit_code()), (Code::GivenTwice, 2));
        // Under another name it is a copy, however old: no check overrides that.
        let mut old = disk(RAID5, OURS, 1);
        old.set_events(3);
        let copy = offer(SECTORS, vec![old]);
        let all = Check::ALL.iter().copied().collect();
        refuses(admit(&copy, &running, place, NEW_UUID, all), Code::DuplicateRole, "m1");
    }
}

#[test]
fn what_is_on_a_device_is_named_and_overridden_by_name_only() {
    let running = running(RAID5);
    let ext4 = FoundSignature {
        what: "ext4 `photos`".to_owned(),
        offset_bytes: 1024,
        uuid: None,
        kind: Some(SignatureKind::Ext4),
    };
    let old = FoundSignature {
        what: "damaged md 0.90 superblock".to_owned(),
        offset_bytes: 8_323_072,
        uuid: None,
        kind: None,
    };
    let foreign = disk(RAID5, Uuid([9; 16]), 1);
    let rows = [
        // The bad-block log, and zeros wherever something may be recognised.
        (OfferedDevice { signatures: vec![ext4], ..offer(SECTORS, Vec::new()) }, "photos", 1 + 12),
        (OfferedDevice { damaged: vec![old], ..offer(SECTORS, Vec::new()) }, "byte 8323072", 2),
        (offer(SECTORS, vec![foreign.clone()]), "a member of array host:data (09090909", 1),
        // One of ours is no excuse for what else is there. Its list stays until its superblock is
        // replaced.
        (offer(SECTORS, vec![former(RAID5, 2), foreign]), "a member of array", 0),
    ];
    for (offer, word, writes) in rows {
        let problem = refuses(ask(&offer, &running, WantedSeat::Any), Code::SignatureFound, word);
        assert_eq!((problem.exit_code(), problem.force), (3, Some(Check::Signature)));
        let other = Forced::default().with(Check::SplitBrain).with(Check::DirtyDegraded);
        refuses(admit(&offer, &running, WantedSeat::Any, NEW_UUID, other), Code::SignatureFound, word);
        let forced = Forced::default().with(Check::Signature);
        let admission = admit(&offer, &running, WantedSeat::Any, NEW_UUID, forced).unwrap();
        assert_eq!((admission.overridden.len(), admission.writes.len()), (1, writes), "{word}");
        assert_eq!(admission.recovery, MemberRecovery::Full);
    }
}

#[test]
fn a_member_that_was_away_comes_back_by_the_bitmap() {
    let kind = Kind { bitmap: true, ..RAID5 };
    let running = running(kind);
    for (behind, recovery) in
        [(1, MemberRecovery::Regions), (5, MemberRecovery::Regions), (6, MemberRecovery::Full)]
    {
        let back = offer(SECTORS, vec![former(kind, behind)]);
        let admission = ask(&back, &running, WantedSeat::Any).unwrap();
        assert_eq!((admission.seat, admission.recovery), (Seat::Slot(3), recovery), "{behind}");
        let new = &admission.superblock;
        assert_eq!(new.device_uuid(), Some(Uuid([4; 16])), "it is still itself");
        // What left while it was out may count out its number. Written over, it need not keep that.
        assert_eq!(admission.dev_number == 3, recovery == MemberRecovery::Regions, "{behind}");
        assert_eq!((new.role(), new.recovery_offset(), new.events()), (DeviceRole::Active(3), Some(0), 20));
        assert_eq!(new.features().contains(Features::RECOVERY_BITMAP), recovery == MemberRecovery::Regions);
    }
    // Its bad sectors are as bad as they were, unless all of it is written.
    let mut bad = former(kind, 5);
    bad.add_features(Features::BAD_BLOCKS).unwrap();
    let admission = ask(&offer(SECTORS, vec![bad.clone()]), &running, WantedSeat::Any).unwrap();
    assert!(admission.superblock.features().contains(Features::BAD_BLOCKS) && admission.writes.is_empty());
    bad.set_events(1);
    let admission = ask(&offer(SECTORS, vec![bad.clone()]), &running, WantedSeat::Any).unwrap();
    assert!(!admission.superblock.features().contains(Features::BAD_BLOCKS), "the list counts no more");
    // And stays until the old superblock, which counts on it, is gone.
    assert!(admission.writes.is_empty(), "{:?}", admission.writes);
    bad.set_bad_block_log(None).unwrap();
    let admission = ask(&offer(SECTORS, vec![bad]), &running, WantedSeat::Any).unwrap();
    assert_eq!(admission.writes.len(), 1, "an empty list where there was none");
}

/// A superblock survives a good deal: swap space, a small partition table, the label of a physical
/// volume, a file system made with the end of the device spared. A member of ours with one of these
/// on it was written over as if nothing were there.
#[test]
fn what_somebody_put_on_a_former_member_is_not_written_over() {
    let at = |offset_bytes| FoundSignature {
        what: "swap".to_owned(),
        offset_bytes,
        uuid: Some("a".to_owned()),
        kind: Some(SignatureKind::Swap),
    };
    let data_starts = |version| if matches!(version, Version::V090 | Version::V10) { 0 } else { 2048 * 512 };
    for version in Version::ALL {
        let kind = Kind { version, bitmap: true, ..RAID5 };
        let running = running(kind);
        let own = if version == Version::V090 { disk(kind, OURS, 3) } else { former(kind, 2) };
        let start = data_starts(version);
        let behind = start + 512 * kind.size_sectors;
        for (seen, is_data) in [(4086, start == 0), (start + 512, true), (behind - 1, true), (behind, false)]
        {
            let seen = at(seen);
            let back = OfferedDevice { signatures: vec![seen.clone()], ..offer(SECTORS, vec![own.clone()]) };
            let problem = refuses(ask(&back, &running, WantedSeat::Any), Code::SignatureFound, "swap");
            assert_eq!(problem.force, Some(Check::Signature));
            // A forced device is written from end to end, and nothing is found on it again.
            let forced = Forced::default().with(Check::Signature);
            let admission = admit(&back, &running, WantedSeat::Any, NEW_UUID, forced).unwrap();
            assert_eq!(
                admission.recovery,
                MemberRecovery::Full,
                "{version}: what was written over is in no bitmap"
            );
            let at = admission.superblock.found_at_sectors() * 512;
            let zeroed = |byte: u64| {
                let covers = |write: &&PlannedWrite| {
                    (write.offset_bytes..write.offset_bytes + write.bytes.len() as u64).contains(&byte)
                };
                let first = admission.writes.iter().find(covers);
                first.is_some_and(|write| write.bytes.iter().all(|byte| *byte == 0))
                    || (at..at + 512).contains(&byte)
            };
            for byte in [3, 1080, 4086, 8191, 32769, 65600, SECTORS * 512 - 1] {
                assert!(zeroed(byte), "{version}: byte {byte} may still show something");
            }
            assert!(admission.writes.iter().all(|write| {
                let end = write.offset_bytes + write.bytes.len() as u64;
                end <= at || write.offset_bytes >= at + 512
            }));
            // The array's own content is no reason, where it is.
            let shown = ArrayNow { shown: vec![seen.clone()], ..running.clone() };
            let taken = ask(&back, &shown, WantedSeat::Any);
            assert_eq!(taken.is_ok(), is_data, "{version}: {seen}");
            let other = FoundSignature { uuid: Some("b".to_owned()), ..seen };
            let shown = ArrayNow { shown: vec![other], ..running.clone() };
            refuses(ask(&back, &shown, WantedSeat::Any), Code::SignatureFound, "swap");
        }
    }
}

#[test]
fn what_makes_a_returning_member_like_a_new_one() {
    let kind = Kind { bitmap: true, ..RAID5 };
    let full = |own: Superblock, running: &ArrayNow, place| {
        let admission = ask(&offer(SECTORS, vec![own]), running, place).unwrap();
        assert_eq!(admission.recovery, MemberRecovery::Full);
        assert!(!admission.superblock.features().contains(Features::RECOVERY_BITMAP));
        admission.seat
    };
    let whole = running(kind);
    let mut half = former(kind, 2);
    half.set_recovery_offset(Some(64)).unwrap();
    assert_eq!(full(half.clone(), &whole, WantedSeat::Any), Seat::Slot(3), "it was not whole when it left");
    half.add_features(Features::RECOVERY_BITMAP).unwrap();
    let again = ask(&offer(SECTORS, vec![half]), &whole, WantedSeat::Any).unwrap();
    assert_eq!(again.recovery, MemberRecovery::Regions, "it got what it missed, and bits were kept for it");
    let mut parted = former(kind, 2);
    parted.set_role(0, DeviceRole::Faulty).unwrap();
    assert_eq!(full(parted, &whole, WantedSeat::Any), Seat::Slot(3), "member 0 was not with it");
    assert_eq!(full(former(kind, 2), &whole, WantedSeat::Replace(0)), Seat::Replacement(0), "another slot");
    assert_eq!(full(former(kind, 2), &whole, WantedSeat::Spare), Seat::Spare);
    let no_bitmap = ArrayNow { bitmap: None, ..whole.clone() };
    assert_eq!(full(former(kind, 2), &no_bitmap, WantedSeat::Any), Seat::Slot(3));
    // Reshaped while it was away: bits say nothing of what was moved.
    let shapes: [fn(&mut Superblock); 4] = [
        |own| own.set_layout(0),
        |own| own.set_chunk_sectors(64).unwrap(),
        |own| own.set_raid_disks(5),
        |own| own.set_level(6),
    ];
    for change in shapes {
        let mut other = former(kind, 2);
        change(&mut other);
        assert_eq!(full(other, &whole, WantedSeat::Any), Seat::Slot(3), "its data is in other places");
    }
    let taken = ArrayNow { empty: vec![1], in_sync: seated(kind, &[0, 2, 3]), ..whole };
    assert_eq!(full(former(kind, 2), &taken, WantedSeat::Any), Seat::Slot(1), "its slot is somebody else's");
}

/// Two halves of an array give numbers without knowing of each other.
#[test]
fn numbers_that_are_given_follow_the_ids_of_devices() {
    let given = |id: u8, running: &ArrayNow| {
        let uuid = Uuid([id; 16]);
        let admission = admit(&offer(SECTORS, Vec::new()), running, WantedSeat::Any, uuid, Forced::default());
        let number = admission.unwrap().dev_number;
        assert!((4..128).contains(&number), "behind the slots, and in the table: {number}");
        number
    };
    let numbers: std::collections::BTreeSet<_> = (0..100).map(|id| given(id, &running(RAID5))).collect();
    assert!(numbers.len() > 30, "{numbers:?}");
    // No two devices have one.
    let mut crowded = running(RAID5);
    crowded.devices.extend((4..127).map(|dev_number| RunningDevice {
        name: format!("s{dev_number}"),
        dev_number,
        device_uuid: None,
        spare: true,
    }));
    assert!((0..9).all(|id| given(id, &crowded) == 127));
}

/// Its table names slots only, and another device may have been in them.
#[test]
fn with_metadata_0_90_bits_count_only_for_what_this_array_left_so() {
    let kind = Kind { version: Version::V090, bitmap: true, ..RAID5 };
    let (running, own) = (running(kind), former(kind, 2));
    let recovery = |running: &ArrayNow| {
        ask(&offer(SECTORS, vec![own.clone()]), running, WantedSeat::Any).unwrap().recovery
    };
    assert_eq!(recovery(&running), MemberRecovery::Full);
    let left = ArrayNow { left_with: vec![own.clone()], ..running.clone() };
    assert_eq!(recovery(&left), MemberRecovery::Regions);
}

#[test]
fn a_spare_takes_a_slot_or_replaces_a_member() {
    let mut running = running(RAID5);
    let mut own = disk(RAID5, OURS, 5);
    own.set_role(5, DeviceRole::Spare).unwrap();
    running.devices.push(RunningDevice {
        name: "new".to_owned(),
        dev_number: 5,
        device_uuid: own.device_uuid(),
        spare: true,
    });
    let spare = offer(SECTORS, vec![own]);
    for (place, seat) in
        [(WantedSeat::Slot(3), Seat::Slot(3)), (WantedSeat::Replace(1), Seat::Replacement(1))]
    {
        let admission = ask(&spare, &running, place).unwrap();
        assert_eq!(
            (admission.seat, admission.dev_number, admission.recovery),
            (seat, 5, MemberRecovery::Full)
        );
        assert_eq!(admission.superblock.recovery_offset(), Some(0));
    }
    refuses(ask(&spare, &running, WantedSeat::Any), Code::GivenTwice, "a spare of this array already");
}

/// Its number looked free while it was away, and was given to another.
#[test]
fn a_spare_whose_number_another_device_has_gets_one_of_its_own() {
    for other_is_spare in [true, false] {
        let mut running = running(RAID5);
        let spare = |ix: u8, spare| RunningDevice {
            name: format!("s{ix}"),
            dev_number: 5,
            device_uuid: Some(Uuid([ix; 16])),
            spare,
        };
        running.devices.extend([spare(6, true), spare(0xb0, other_is_spare)]);
        let mut own = disk(RAID5, OURS, 5);
        own.set_role(5, DeviceRole::Spare).unwrap();
        let admission = ask(&offer(SECTORS, vec![own]), &running, WantedSeat::Slot(3)).unwrap();
        assert_eq!((admission.seat, admission.dev_number), (Seat::Slot(3), 4));
        assert_eq!(admission.superblock.role_of(5), DeviceRole::Spare, "that is the other's");
    }
}

#[test]
fn numbers_of_those_who_may_come_back_are_used_last() {
    let mut running = running(RAID5);
    let mut take = |dev_number| {
        let device =
            RunningDevice { name: format!("m{dev_number}"), dev_number, device_uuid: None, spare: true };
        running.devices.push(device);
    };
    (4..1920).for_each(&mut take);
    let admission = ask(&offer(SECTORS, Vec::new()), &running, WantedSeat::Any).unwrap();
    assert_eq!(admission.dev_number, 3, "all others are taken");
    let device = RunningDevice { name: "m3".to_owned(), dev_number: 3, device_uuid: None, spare: true };
    running.devices.push(device);
    refuses(
        ask(&offer(SECTORS, Vec::new()), &running, WantedSeat::Any),
        Code::NoPlace,
        "no device number left",
    );
}

/// 0.90 cannot say how far a member is rebuilt: it stays a spare until it is whole.
#[test]
fn with_metadata_090_a_new_member_is_a_spare_until_it_is_whole() {
    let kind = Kind { version: Version::V090, ..RAID5 };
    let running = running(kind);
    let admission = ask(&offer(SECTORS, Vec::new()), &running, WantedSeat::Any).unwrap();
    assert_eq!((admission.seat, admission.recovery), (Seat::Slot(3), MemberRecovery::Full));
    let new = &admission.superblock;
    assert_eq!((new.role(), new.dev_number()), (DeviceRole::Spare, admission.dev_number));
    assert!(admission.dev_number >= 4, "behind the slots");
    assert_eq!(identify(Version::V090, new.bytes(), SECTORS).unwrap().as_ref(), Some(new));
    refuses(ask(&offer(SECTORS, Vec::new()), &running, WantedSeat::Replace(0)), Code::NoPlace, "0.90");
}
