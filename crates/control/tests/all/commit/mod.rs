//! The superblocks of the next generation: every short sequence of changes, cut at every write,
//! checked against what must always hold.

mod life;

use std::collections::BTreeMap;
use std::sync::Arc;

use wattle_control::assemble::{Access, Assembly, Slot, assemble};
use wattle_control::commit::{MdMetadata, MdState, Round, SuperblockPlace, SuperblockWrite};
use wattle_control::facts::{
    BitmapFacts, CLEAN, DeviceRole, Features, MemberFacts, SuperblockFacts, Version,
};
use wattle_control::{Code, Forced};
use wattle_engine::metadata::{ArrayRecord, FailCause, Metadata, RecordCause, SeatRecord};
use wattle_engine::units::{MemberIx, Sector};
use wattle_engine::{BadRanges, MemberKey, MemberState};
use wattle_format::md::create::{NewArray, superblock};
use wattle_format::md::{DeviceFields, DeviceFlags, PplArea, Superblock, Timestamp, Uuid};
use wattle_rt::{DriveConfig, SimWorld, WallTime, WorldConfig};

const MEMBERS: u16 = 4;
const SECTORS: u64 = 16384;
/// The key of the first spare.
const SPARE: MemberKey = MemberKey(2 * MEMBERS as u32);
const NOW: WallTime = WallTime { secs: 2000, micros: 7 };

fn superblocks(version: Version, bitmap: bool, spares: u16) -> Vec<Superblock> {
    let mut roles: Vec<_> = (0..MEMBERS).map(DeviceRole::Active).collect();
    roles.extend(std::iter::repeat_n(DeviceRole::Spare, usize::from(spares)));
    let array = NewArray {
        version,
        set_uuid: Uuid([5; 16]),
        name: b"host:t".to_vec(),
        ctime: Timestamp { secs: 1000, micros: 0 },
        level: 5,
        layout: 2,
        chunk_sectors: 128,
        raid_disks: u32::from(MEMBERS),
        size_sectors: 14336 - 256,
        resync_offset: CLEAN,
        roles,
        bitmap_offset_sectors: bitmap.then_some(8),
        ppl: None,
        features: Features::default(),
        md_minor: 0,
        nodes: Vec::new(),
    };
    let place = wattle_format::md::super_offset_sectors(version, SECTORS).unwrap();
    let (data_offset_sectors, data_size_sectors) =
        if version == Version::V12 { (2048, 14336) } else { (0, place) };
    (0..MEMBERS + spares)
        .map(|dev_number| {
            let device = DeviceFields {
                dev_number: u32::from(dev_number),
                device_uuid: Uuid([dev_number as u8; 16]),
                super_offset_sectors: place,
                data_offset_sectors,
                data_size_sectors,
                recovery_offset: None,
                replacement: false,
                bad_block_log: None,
                flags: DeviceFlags::default(),
            };
            superblock(&array, &device, SECTORS).unwrap()
        })
        .collect()
}

fn facts(name: String, superblock: &Superblock) -> MemberFacts {
    let mut facts = MemberFacts::new(name, SECTORS, SuperblockFacts::of(superblock));
    if superblock.features().contains(Features::BITMAP) {
        facts.bitmap = BitmapFacts::Version(4);
    }
    facts
}

fn decide<'a>(disks: impl IntoIterator<Item = &'a Superblock>) -> Assembly {
    let members: Vec<_> =
        disks.into_iter().enumerate().map(|(ix, disk)| facts(format!("m{ix}"), disk)).collect();
    assemble(&members, Forced::default()).unwrap()
}

/// The array of these disks, started.
fn start(disks: &[Superblock]) -> MdState {
    let assembly = decide(disks);
    assert!(!matches!(assembly.access, Access::Refused(_)), "{:?}", assembly.access);
    let slots = assembly.slots.iter().map(|slot: &Slot| Some(disks[slot.member()?].clone()));
    let replacements = assembly.replacements.iter().map(|who| Some(disks[(*who)?.member].clone()));
    let seats = slots.chain(replacements).collect();
    MdState::new(&assembly, seats, assembly.spares.iter().map(|&ix| disks[ix].clone()).collect())
}

/// The member in each seat.
#[derive(Debug, Clone, PartialEq)]
struct Seats(Vec<SeatRecord>);

impl Seats {
    fn whole() -> Self {
        let nobody =
            SeatRecord { key: None, state: MemberState::Missing, by_regions: false, bad: Arc::default() };
        let mut seats = Self(vec![nobody; 2 * usize::from(MEMBERS)]);
        (0..MEMBERS).for_each(|slot| seats.put(slot, MemberKey(u32::from(slot)), MemberState::InSync));
        seats
    }

    fn without(slots: &[u16]) -> Self {
        let mut seats = Self::whole();
        for &slot in slots {
            seats.0[usize::from(slot)].state = MemberState::Missing;
            seats.0[usize::from(slot)].key = None;
        }
        seats
    }

    fn put(&mut self, seat: u16, key: MemberKey, state: MemberState) {
        self.0[usize::from(seat)] =
            SeatRecord { key: Some(key), state, by_regions: false, bad: Arc::default() };
    }

    fn with(mut self, seat: u16, key: MemberKey, state: MemberState) -> Self {
        self.put(seat, key, state);
        self
    }

    fn failing(mut self, seat: u16) -> Self {
        self.0[usize::from(seat)].state = MemberState::Faulty;
        self
    }
}

const REBUILDING: MemberState = MemberState::Rebuilding { valid_below: Sector(0) };

fn rebuilt_below(sectors: u64) -> MemberState {
    MemberState::Rebuilding { valid_below: Sector(sectors) }
}

fn record(change: RecordCause, dirty: bool, synced_below: u64, seats: &Seats) -> ArrayRecord {
    let faulty = (0..).zip(&seats.0).filter(|(_, seat)| seat.state == MemberState::Faulty);
    let failed = faulty.map(|(seat, _)| MemberIx(seat)).collect();
    ArrayRecord { change, dirty, synced_below: Sector(synced_below), failed, seats: seats.0.clone() }
}

fn flip(dirty: bool, seats: &Seats) -> ArrayRecord {
    record(if dirty { RecordCause::Activate } else { RecordCause::Deactivate }, dirty, CLEAN, seats)
}

fn members(dirty: bool, seats: &Seats) -> ArrayRecord {
    record(RecordCause::Members, dirty, CLEAN, seats)
}

/// The event counts of a sequence of clean (`-`) and dirty (`*`) rounds.
fn counts(disks: &[Superblock], seats: &Seats, rounds: &str) -> Vec<u64> {
    let mut state = start(disks);
    rounds
        .chars()
        .map(|round| {
            state = state.next(&flip(round == '*', seats), NOW).unwrap().0;
            state.events()
        })
        .collect()
}

/// docs/formats.md §1.5 [K]: created 0, first write 1, clean 2, write 3, clean 2.
#[test]
fn flips_count_as_the_kernel_counts_them() {
    let whole = Seats::whole();
    assert_eq!(counts(&superblocks(Version::V12, false, 0), &whole, "*-*-*-"), [1, 2, 3, 2, 3, 2]);
    assert_eq!(counts(&superblocks(Version::V090, false, 0), &whole, "*-*-*-"), [2, 1, 2, 1, 2, 1]);
}

/// Should the array ever come back to a count that its bitmap was written with, bits of then would
/// be believed, and a resync would skip what was written meanwhile.
#[test]
fn counts_never_go_back_with_a_bitmap() {
    assert_eq!(counts(&superblocks(Version::V12, true, 0), &Seats::whole(), "*-*-"), [1, 2, 3, 4]);
}

#[test]
fn counts_never_go_back_while_degraded_nor_beside_a_replacement() {
    let disks = superblocks(Version::V12, false, 1);
    assert_eq!(counts(&disks[1..4], &Seats::without(&[0]), "*-*-"), [1, 2, 3, 4]);
    let replacing = Seats::whole().with(MEMBERS + 1, SPARE, REBUILDING);
    let state = start(&disks).next(&members(false, &replacing), NOW).unwrap().0;
    let state = state.next(&flip(true, &replacing), NOW).unwrap().0;
    let (state, round) = state.next(&flip(false, &replacing), NOW).unwrap();
    assert_eq!(state.events(), 3);
    assert!(round.newcomers.is_empty() && round.promoted.is_empty());
}

/// An array that was dirty when it was started stays so as long as the engine does not say that it
/// is in sync.
#[test]
fn what_was_not_synchronised_is_not_made_so_by_stopping() {
    let mut disks = superblocks(Version::V12, false, 0);
    disks.iter_mut().for_each(|disk| disk.set_resync_offset(4096));
    let seats = Seats::whole();
    let state = start(&disks);
    let (dirty, round) = state.next(&record(RecordCause::Activate, true, 4096, &seats), NOW).unwrap();
    assert!(round.members.iter().all(|write| write.superblock.resync_offset() == 0));
    let (clean, round) = dirty.next(&record(RecordCause::Deactivate, false, 4096, &seats), NOW).unwrap();
    assert!(round.members.iter().all(|write| write.superblock.resync_offset() == 4096));
    assert_eq!(clean.events(), 2);
    // In sync now; generation 0 said otherwise, so that number is not taken again.
    let (synced, round) = dirty.next(&record(RecordCause::Deactivate, false, CLEAN, &seats), NOW).unwrap();
    assert!(round.members.iter().all(|write| write.superblock.resync_offset() == CLEAN));
    assert_eq!(synced.events(), 2, "never back to a count that meant something else");
}

#[test]
fn checkpoints_are_new_generations_and_say_how_far_it_got() {
    let disks = superblocks(Version::V12, false, 0);
    let seats = Seats::whole().with(2, MemberKey(2), rebuilt_below(512));
    let (state, round) =
        start(&disks).next(&record(RecordCause::Checkpoint, false, 1024, &seats), NOW).unwrap();
    assert_eq!(state.events(), 1);
    for write in &round.members {
        assert_eq!(write.superblock.resync_offset(), 1024);
        let expected = (write.seat == MemberIx(2)).then_some(512);
        assert_eq!(write.superblock.recovery_offset(), expected);
    }
    let mut by_regions = seats;
    by_regions.0[2].by_regions = true;
    let (_, round) = state.next(&record(RecordCause::Checkpoint, true, 1024, &by_regions), NOW).unwrap();
    let features = round.members[2].superblock.features();
    assert!(features.contains(Features(0x80 | 0x2)), "{features:?}");
    assert!(round.members.iter().all(|write| write.superblock.resync_offset() == 0), "writes are in flight");
}

/// The feature is set exactly while the log has entries, on the member that has them.
#[test]
fn bad_blocks_show_in_the_features_of_their_member() {
    let disks = superblocks(Version::V12, false, 0);
    let mut seats = Seats::whole();
    let bad: BadRanges = [Sector(8)..Sector(16)].into_iter().collect();
    seats.0[1].bad = Arc::new(bad);
    let (state, round) = start(&disks).next(&members(true, &seats), NOW).unwrap();
    let marked = |round: &Round| -> Vec<u16> {
        let marked = round.members.iter().filter(|w| w.superblock.features().contains(Features::BAD_BLOCKS));
        marked.map(|write| write.seat.0).collect()
    };
    assert_eq!(marked(&round), [1]);
    let (_, round) = state.next(&members(true, &Seats::whole()), NOW).unwrap();
    assert!(marked(&round).is_empty());
    let old = superblocks(Version::V090, false, 0);
    let refused = start(&old).next(&members(true, &seats), NOW).unwrap_err();
    assert_eq!(
        refused.iter().collect::<Vec<_>>(),
        [MemberIx(1)],
        "0.90 has no log: the member fails instead"
    );
}

/// A crash while a spare is given its slot leaves it a spare one event behind. Recorded in the slot
/// and nothing else, it would be taken for whole at the next start, and its garbage for data.
#[test]
fn a_spare_that_missed_its_promotion_is_recorded_as_empty() {
    let mut disks = superblocks(Version::V12, false, 1);
    disks.remove(3);
    for disk in &mut disks[..3] {
        disk.set_role(3, DeviceRole::Faulty).unwrap();
        disk.set_role(4, DeviceRole::Active(3)).unwrap();
        disk.set_events(1);
    }
    assert!(matches!(decide(&disks).slots[3], Slot::Rebuilding { valid_below_sectors: 0, .. }));
    let seats = Seats::whole().with(3, MemberKey(3), REBUILDING);
    let (_, round) = start(&disks).next(&flip(true, &seats), NOW).unwrap();
    for write in round.seated() {
        disks[write.seat.index()] = write.superblock.clone();
    }
    assert_eq!(disks[3].role(), DeviceRole::Active(3));
    assert!(matches!(decide(&disks).slots[3], Slot::Rebuilding { valid_below_sectors: 0, .. }));
}

#[test]
fn spares_are_written_with_changes_of_membership_only() {
    let disks = superblocks(Version::V12, false, 1);
    let (state, round) = start(&disks).next(&flip(true, &Seats::whole()), NOW).unwrap();
    assert_eq!((round.members.len(), round.spares.len()), (4, 0));
    let (_, round) = state.next(&members(true, &Seats::whole().failing(2)), NOW).unwrap();
    assert_eq!((round.members.len(), round.spares.len()), (3, 1));
    assert!(round.seated().all(|write| write.seat.0 != 2), "a failed member is never written");
    for write in &round.members {
        assert_eq!(write.superblock.role_of(2), DeviceRole::Faulty);
    }
    assert_eq!(round.spares[0].1.role_of(2), DeviceRole::Faulty);
}

/// docs/formats.md §1.2: two devices hold the slot, the second one says that it is a replacement.
#[test]
fn a_replacement_shares_the_slot_until_it_takes_it_over() {
    let disks = superblocks(Version::V12, false, 1);
    let joined = Seats::whole().with(MEMBERS + 1, SPARE, REBUILDING);
    let (state, round) = start(&disks).next(&members(false, &joined), NOW).unwrap();
    let new = &round.newcomers[0].superblock;
    assert!(new.features().contains(Features::REPLACEMENT | Features::RECOVERY_OFFSET));
    assert_eq!((new.role(), new.recovery_offset()), (DeviceRole::Active(1), Some(0)));
    for write in round.seated() {
        assert_eq!(
            (write.superblock.role_of(1), write.superblock.role_of(4)),
            (DeviceRole::Active(1), DeviceRole::Active(1))
        );
        assert_eq!(write.superblock.features().contains(Features::REPLACEMENT), write.key == SPARE);
    }
    let taken = Seats::whole().with(1, SPARE, MemberState::InSync).with(
        MEMBERS + 1,
        MemberKey(1),
        MemberState::Faulty,
    );
    let (_, round) = state.next(&members(false, &taken), NOW).unwrap();
    assert_eq!(round.promoted.len(), 1);
    assert_eq!(round.members.iter().map(|write| write.seat.0).collect::<Vec<_>>(), [0, 2, 3]);
    for write in round.seated() {
        assert_eq!(
            (write.superblock.role_of(1), write.superblock.role_of(4)),
            (DeviceRole::Faulty, DeviceRole::Active(1))
        );
        assert!(!write.superblock.features().intersects(Features::REPLACEMENT | Features::RECOVERY_OFFSET));
    }
}

/// A member that does not flush may have lost what a resync wrote to it. Recorded clean by the
/// others, and back after a crash, it would pass for current.
#[test]
fn where_a_flush_fails_nobody_is_told_anything() {
    for version in [Version::V12, Version::V090] {
        let mut world = SimWorld::new(WorldConfig::default());
        let disks = superblocks(version, false, 0);
        let size_bytes = SECTORS * 512;
        let drives: Vec<_> = disks
            .iter()
            .map(|_| world.add_drive(DriveConfig { size_bytes, ..DriveConfig::default() }))
            .collect();
        let controls: Vec<_> = drives.iter().map(|drive| world.drive(drive)).collect();
        for (control, disk) in controls.iter().zip(&disks) {
            control.poke(disk.found_at_sectors() * 512, disk.bytes());
        }
        let on_disk = |slot: usize| {
            let bytes = controls[slot].peek(disks[slot].found_at_sectors() * 512, 4096);
            wattle_format::md::identify(version, &bytes, SECTORS).unwrap().unwrap().events()
        };
        let before: Vec<u64> = (0..4).map(on_disk).collect();
        controls[2].fail_next_flushes(1);
        let (assembly, mut seats) = (decide(&disks), Seats::whole());
        let who = drives
            .iter()
            .zip(&disks)
            .map(|(device, disk)| Some((SuperblockPlace { device: device.clone() }, disk.clone())));
        let who = who.collect();
        let (first, second) = world
            .run(async |core| {
                let books = MdMetadata::new(&core, &assembly, who, Vec::new());
                let first = books.commit(&record(RecordCause::Checkpoint, false, CLEAN, &seats)).await;
                let told: Vec<u64> = (0..4).map(on_disk).collect();
                assert_eq!(told, before, "{version}");
                seats = seats.failing(2);
                (first, books.commit(&record(RecordCause::Checkpoint, false, CLEAN, &seats)).await)
            })
            .expect_done();
        assert_eq!((first, second), (Err([MemberIx(2)].into_iter().collect()), Ok(())), "{version}");
        let after: Vec<u64> = (0..4).map(on_disk).collect();
        let next = before[0] + 1;
        assert_eq!(after, [next, next, before[2], next], "{version}: it stays one event behind");
    }
}

/// A member that does not take what comes before the superblocks is failed, and the round is
/// decided anew: one event for both. Two would leave the members that a crash keeps from the second
/// one two events behind, and stale.
#[test]
fn a_round_that_was_never_written_burns_no_event() {
    let mut world = SimWorld::new(WorldConfig::default());
    let mut disks = superblocks(Version::V12, false, 0);
    for disk in &mut disks {
        disk.set_ppl_area(PplArea { offset_sectors: 8, size_sectors: 1024 }).unwrap();
        disk.add_features(Features::PPL).unwrap();
    }
    let drive = |disk: &Superblock| {
        let device = world.add_drive(DriveConfig { size_bytes: SECTORS * 512, ..DriveConfig::default() });
        world.drive(&device).poke(disk.found_at_sectors() * 512, disk.bytes());
        device
    };
    let drives: Vec<_> = disks.iter().map(drive).collect();
    // The first thing that is written to it: zeros over its old log.
    world.drive(&drives[2]).fail_next_writes(1);
    let (assembly, seats) = (decide(&disks), Seats::whole());
    let who = drives.iter().zip(&disks);
    let who =
        who.map(|(device, disk)| Some((SuperblockPlace { device: device.clone() }, disk.clone()))).collect();
    let results = world
        .run(async |core| {
            let books = MdMetadata::new(&core, &assembly, who, Vec::new());
            let first = books.commit(&flip(true, &seats)).await;
            (first, books.commit(&members(true, &seats.failing(2))).await)
        })
        .expect_done();
    assert_eq!(results, (Err([MemberIx(2)].into_iter().collect()), Ok(())));
    let on_disk = |device| {
        let bytes = world.drive(device).peek(disks[0].found_at_sectors() * 512, 4096);
        wattle_format::md::identify(Version::V12, &bytes, SECTORS).unwrap().unwrap().events()
    };
    assert_eq!(drives.iter().map(on_disk).collect::<Vec<_>>(), [1, 1, 0, 1]);
}

/// A member that joins may fail before its own record is durable: the last record still has another
/// one in that seat.
#[test]
fn a_failure_is_of_the_member_that_the_engine_names() {
    let mut world = SimWorld::new(WorldConfig::default());
    let disks = superblocks(Version::V12, false, 0);
    let who = disks.iter().enumerate().map(|(slot, disk)| {
        let name = format!("drive{slot}");
        let drive = DriveConfig { size_bytes: SECTORS * 512, name, ..DriveConfig::default() };
        Some((SuperblockPlace { device: world.add_drive(drive) }, disk.clone()))
    });
    let (assembly, who) = (decide(&disks), who.collect());
    let told = world.run(async |core| {
        let books = MdMetadata::new(&core, &assembly, who, Vec::new());
        let members = [(MemberIx(2), Some(MemberKey(0))), (MemberIx(MEMBERS + 1), Some(MemberKey(3)))];
        books.failed(&members, FailCause::Write);
        books.events().since(0).iter().map(|told| told.event.to_string()).collect::<Vec<_>>().join("; ")
    });
    let expected = "drive0 (slot 2) failed: a write to it failed; \
                    drive3 (replacement for slot 1) failed: a write to it failed";
    assert_eq!(told.expect_done(), expected);
}

/// A drive that the system finds again under another name comes back with its number, before it is
/// forgotten under the first.
#[test]
fn a_number_is_free_when_the_last_who_has_it_is_forgotten() {
    let mut state = start(&superblocks(Version::V12, false, 0));
    let again = state.superblock(MemberKey(1)).unwrap().clone();
    let back = state.admit(again, false);
    state.forget(MemberKey(1));
    assert_eq!(state.roles()[1], DeviceRole::Active(1));
    state.forget(back);
    assert_eq!(state.roles()[1], DeviceRole::Spare);
}

/// A device that failed and left would be one that was just not there, and come back as it is: that
/// it failed stays recorded, until it is a spare.
#[test]
fn what_failed_stays_recorded_when_it_has_left() {
    let disks = superblocks(Version::V12, false, 0);
    let (state, _) = start(&disks).next(&members(false, &Seats::whole().failing(2)), NOW).unwrap();
    let failed = MemberKey(2);
    let superblock = state.superblock(failed).unwrap().clone();
    let (mut state, _) = state.next(&members(false, &Seats::without(&[2])), NOW).unwrap();
    state.forget(failed);
    let role =
        |round: &Round| round.members.iter().map(|write| write.superblock.role_of(2)).collect::<Vec<_>>();
    let (mut state, round) = state.next(&members(true, &Seats::without(&[2])), NOW).unwrap();
    assert_eq!(role(&round), [DeviceRole::Faulty; 3]);
    state.admit(superblock, true);
    let (_, round) = state.next(&members(false, &Seats::without(&[2])), NOW).unwrap();
    assert_eq!(role(&round), [DeviceRole::Spare; 3]);
}

/// 0.90 has neither recovery offsets nor replacements: until it is whole, a member is a spare on
/// disk.
#[test]
fn in_version_0_90_a_member_takes_its_slot_when_it_is_whole() {
    let disks = superblocks(Version::V090, false, 1);
    let lost = Seats::whole().failing(2);
    let (state, _) = start(&disks).next(&members(true, &lost), NOW).unwrap();
    let (state, _) = state.next(&members(true, &Seats::without(&[2])), NOW).unwrap();
    let joining = Seats::without(&[2]).with(2, SPARE, rebuilt_below(100));
    let (state, round) = state.next(&members(true, &joining), NOW).unwrap();
    for write in round.seated() {
        assert_eq!(write.superblock.role_of(2), DeviceRole::Faulty, "an empty slot");
    }
    assert_eq!(round.newcomers[0].superblock.role(), DeviceRole::Spare);
    let whole = Seats::whole().with(2, SPARE, MemberState::InSync);
    let (_, round) = state.next(&members(false, &whole), NOW).unwrap();
    let disks: Vec<_> = round.seated().map(|write| write.superblock.clone()).collect();
    let assembly = decide(&disks);
    assert_eq!(
        (assembly.access.clone(), assembly.degraded()),
        (Access::ReadWrite, 0),
        "{:?}",
        assembly.verdicts
    );
}
