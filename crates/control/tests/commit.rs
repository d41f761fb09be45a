//! The superblocks of the next generation: every short sequence of changes, checked against what must always hold, and the
//! write orders on simulated drives.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests are tests")]

use wattle_control::assemble::{Access, Assembly, Slot, assemble};
use wattle_control::commit::MdState;
use wattle_control::facts::{
    BitmapContent, BitmapFacts, CLEAN, Features, MemberFacts, Role, SuperblockFacts, Version,
};
use wattle_control::{Code, Forced};
use wattle_engine::metadata::{Change, Record};
use wattle_engine::units::{MemberIx, Sector};
use wattle_format::md::create::{NewArray, superblock};
use wattle_format::md::{DeviceFields, DeviceFlags, Superblock, Timestamp, Uuid};
use wattle_rt::WallTime;

const MEMBERS: u16 = 4;
const SECTORS: u64 = 16384;

fn superblocks(version: Version, bitmap: bool, spares: u16) -> Vec<Superblock> {
    let mut roles: Vec<_> = (0..MEMBERS).map(Role::Active).collect();
    roles.extend(std::iter::repeat_n(Role::Spare, usize::from(spares)));
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
    MemberFacts {
        name,
        size_sectors: SECTORS,
        superblock: SuperblockFacts {
            version: superblock.version(),
            set_uuid: superblock.set_uuid(),
            set_name: superblock.name(),
            level: superblock.level(),
            layout: superblock.layout(),
            chunk_sectors: superblock.chunk_sectors(),
            size_sectors: superblock.size_sectors(),
            raid_disks: superblock.raid_disks(),
            dev_number: superblock.dev_number(),
            roles: superblock.roles().collect(),
            events: superblock.events(),
            ctime_secs: 0,
            utime_secs: superblock.utime().secs,
            resync_offset: superblock.resync_offset(),
            recovery_offset: superblock.recovery_offset(),
            data_offset_sectors: superblock.data_offset_sectors(),
            data_size_sectors: superblock.data_size_sectors(),
            features: superblock.features(),
        },
        bitmap: if superblock.features().contains(Features::BITMAP) {
            BitmapFacts::Version(4)
        } else {
            BitmapFacts::None
        },
        bad_blocks: Some(Vec::new()),
        journal: None,
        bitmap_content: superblock.features().contains(Features::BITMAP).then(|| BitmapContent {
            events: 0,
            events_cleared: 0,
            stale: false,
            region_sectors: 128,
            covered_sectors: SECTORS,
            sweep_secs: 5,
            set: Vec::new(),
        }),
        ppl: None,
    }
}

fn decide(disks: &[Superblock]) -> Assembly {
    let members: Vec<_> = disks.iter().enumerate().map(|(ix, disk)| facts(format!("m{ix}"), disk)).collect();
    assemble(&members, Forced::default()).unwrap()
}

/// The array of these disks, started.
fn start(disks: &[Superblock]) -> MdState {
    let assembly = decide(disks);
    assert!(assembly.problems().is_empty(), "{:?}", assembly.problems());
    let slots = assembly.slots.iter().map(|slot: &Slot| Some(disks[slot.member()?].clone())).collect();
    MdState::new(&assembly, slots, assembly.spares.iter().map(|&ix| disks[ix].clone()).collect())
}

fn record(dirty: bool, failed: &[u16]) -> Record {
    let change = if dirty { Change::Activate } else { Change::Deactivate };
    let failed = failed.iter().map(|&slot| MemberIx(slot)).collect();
    Record { change, dirty, synced_below: Sector::MAX, failed, seats: Vec::new() }
}

const NOW: WallTime = WallTime { secs: 2000, micros: 7 };

/// The event counts of a sequence of clean (`-`) and dirty (`*`) rounds.
fn counts(disks: &[Superblock], rounds: &str) -> Vec<u64> {
    let mut state = start(disks);
    rounds
        .chars()
        .map(|round| {
            state = state.next(&record(round == '*', &[]), NOW).0;
            state.events()
        })
        .collect()
}

/// docs/formats.md §1.5 [K]: created 0, first write 1, clean 2, write 3, clean 2.
#[test]
fn flips_count_as_the_kernel_counts_them() {
    assert_eq!(counts(&superblocks(Version::V12, false, 0), "*-*-*-"), [1, 2, 3, 2, 3, 2]);
    assert_eq!(counts(&superblocks(Version::V090, false, 0), "*-*-*-"), [2, 1, 2, 1, 2, 1]);
}

/// The bitmap keeps the count of when it was last true. Should the array ever come back to that count, its bits would be
/// believed, and a resync would skip what was written without them.
#[test]
fn counts_never_go_back_with_a_bitmap() {
    assert_eq!(counts(&superblocks(Version::V12, true, 0), "*-*-"), [1, 2, 3, 4]);
}

#[test]
fn counts_never_go_back_while_degraded() {
    let disks = superblocks(Version::V12, false, 0);
    assert_eq!(counts(&disks[1..], "*-*-"), [1, 2, 3, 4]);
}

/// An array that was dirty when it was started stays so: its parity is not known to be right, however clean it is stopped.
#[test]
fn what_was_not_synchronised_is_not_made_so_by_stopping() {
    let mut disks = superblocks(Version::V12, false, 0);
    disks.iter_mut().for_each(|disk| disk.set_resync_offset(4096));
    let (dirty, round) = start(&disks).next(&record(true, &[]), NOW);
    assert!(round.slots.iter().all(|(_, superblock)| superblock.resync_offset() == 0));
    let (clean, round) = dirty.next(&record(false, &[]), NOW);
    assert!(round.slots.iter().all(|(_, superblock)| superblock.resync_offset() == 4096));
    assert_eq!(clean.events(), 2, "never back to a count that meant something else");
}

/// A crash while a spare is given its slot leaves it a spare one event behind. Recorded in the slot and nothing else, it would
/// be taken for whole at the next start, and its garbage for data.
#[test]
fn a_spare_that_missed_its_promotion_is_recorded_as_empty() {
    let mut disks = superblocks(Version::V12, false, 1);
    disks.remove(3);
    for disk in &mut disks[..3] {
        disk.set_role(3, Role::Faulty).unwrap();
        disk.set_role(4, Role::Active(3)).unwrap();
        disk.set_events(1);
    }
    assert!(matches!(decide(&disks).slots[3], Slot::Rebuilding { valid_below_sectors: 0, .. }));
    let (_, round) = start(&disks).next(&record(true, &[]), NOW);
    for (slot, superblock) in round.slots {
        disks[slot.index()] = superblock;
    }
    assert_eq!(disks[3].role(), Role::Active(3));
    assert!(matches!(decide(&disks).slots[3], Slot::Rebuilding { valid_below_sectors: 0, .. }));
}

#[test]
fn spares_are_written_with_changes_of_membership_only() {
    let disks = superblocks(Version::V12, false, 1);
    let (state, round) = start(&disks).next(&record(true, &[]), NOW);
    assert_eq!((round.slots.len(), round.spares.len()), (4, 0));
    let (_, round) = state.next(&record(true, &[2]), NOW);
    assert_eq!((round.slots.len(), round.spares.len()), (3, 1));
    assert!(round.slots.iter().all(|(slot, _)| slot.0 != 2), "a failed member is never written");
    for (_, superblock) in &round.slots {
        assert_eq!(superblock.role_of(2), Role::Faulty);
    }
    assert_eq!(round.spares[0].1.role_of(2), Role::Faulty);
}

/// Rounds to try: dirty, clean, and failing a member while dirty.
const STEPS: [(&str, bool, Option<u16>); 4] =
    [("dirty", true, None), ("clean", false, None), ("lose 1", true, Some(1)), ("lose 2", true, Some(2))];

/// Every sequence of up to four rounds, cut after every subset of the members' writes of the last one: what is on the
/// disks must always assemble to something that is right.
#[test]
fn every_crash_within_every_short_sequence_assembles_to_something_right() {
    for version in [Version::V12, Version::V090] {
        for absent in [None, Some(3u16)] {
            let disks = superblocks(version, false, 0);
            let present: Vec<_> = disks
                .iter()
                .filter(|disk| absent.is_none_or(|slot| disk.dev_number() != u32::from(slot)))
                .cloned()
                .collect();
            explore(&start(&present), &disks, absent, &mut Vec::new(), 4);
        }
    }
}

/// `disks` are all superblocks on disk, the absent and failed ones as they were left.
fn explore(
    state: &MdState,
    disks: &[Superblock],
    absent: Option<u16>,
    history: &mut Vec<usize>,
    depth: usize,
) {
    if depth == 0 {
        return;
    }
    for (step, &(name, dirty, loses)) in STEPS.iter().enumerate() {
        let lost_before: Vec<u16> = history.iter().filter_map(|&ix| STEPS[ix].2).collect();
        // One loss is what RAID 5 covers; the engine asks for no more.
        if loses.is_some() && (!lost_before.is_empty() || absent.is_some()) {
            continue;
        }
        let lost: Vec<u16> = lost_before.iter().copied().chain(loses).collect();
        let (next, round) = state.next(&record(dirty, &lost), NOW);
        history.push(step);
        for arrived in 0u32..1 << round.slots.len() {
            let mut after = disks.to_vec();
            for (ix, (slot, superblock)) in round.slots.iter().enumerate() {
                if arrived >> ix & 1 == 1 {
                    after[slot.index()] = superblock.clone();
                }
            }
            let complete = arrived + 1 == 1 << round.slots.len();
            check(&after, history, complete, &lost, absent, name);
            if complete {
                explore(&next, &after, absent, history, depth - 1);
            }
        }
        history.pop();
    }
}

fn check(
    disks: &[Superblock],
    history: &[usize],
    complete: bool,
    lost: &[u16],
    absent: Option<u16>,
    last: &str,
) {
    let assembly = decide(disks);
    let told =
        || format!("{history:?} ({last}), complete {complete}, absent {absent:?}: {:?}", assembly.verdicts);
    let dirty_before = history.len() > 1 && STEPS[history[history.len() - 2]].1;
    let dirty = STEPS[*history.last().unwrap()].1;
    for &slot in lost.iter().filter(|_| complete) {
        assert_eq!(assembly.slots[usize::from(slot)], Slot::Missing, "a failed member came back: {}", told());
    }
    // Data has been written once a dirty round was complete; from then on nobody may take the absent member for current.
    let written = history.len() > 1 || complete;
    if let Some(slot) = absent.filter(|_| written && STEPS[history[0]].1) {
        assert_eq!(
            assembly.slots[usize::from(slot)],
            Slot::Missing,
            "an absent member came back: {}",
            told()
        );
    }
    match &assembly.access {
        Access::ReadWrite => {}
        // Losing a member of a dirty array and crashing then is the write hole, refused by policy.
        Access::Refused(reasons) => {
            assert_eq!(
                reasons.iter().map(wattle_control::reason::Reason::code).collect::<Vec<_>>(),
                [Code::DirtyDegraded],
                "{}",
                told()
            );
            assert!(dirty || dirty_before, "{}", told());
        }
        Access::ReadOnly(_) => panic!("{}", told()),
    }
    if complete && dirty {
        assert_eq!(assembly.array.resync_offset, 0, "writes may be in flight: {}", told());
    }
    if complete && !dirty {
        assert_eq!(assembly.array.resync_offset, CLEAN, "{}", told());
    }
}
