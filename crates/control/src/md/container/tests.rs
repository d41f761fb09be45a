//! Decisions over metadata that mdadm wrote, and over what damage makes of it.

use wattle_format::ddf::{DdfBadBlockLog, DdfBadBlocks};
use wattle_format::imsm::{self, ImsmMigration};

use super::*;
use crate::md::assemble::{Access, Assembly, Policy, Slot, Verdict, assemble};
use crate::md::facts::MemberFacts;
use crate::md::reason::Reason;

const REBUILD: &[u8] = include_bytes!("../../../../format/tests/data/imsm.bin");
const TWO: &[u8] = include_bytes!("../../../../format/tests/data/imsm-two.bin");
const DDF: &[u8] = include_bytes!("../../../../format/tests/data/ddf.bin");
const SECTORS: u64 = 49152;

fn metadata(drive: &[u8]) -> Option<ContainerMetadata> {
    let mut read =
        |at: u64, len: usize| drive.get(usize::try_from(at).ok()?..)?.get(..len).map(<[u8]>::to_vec);
    read_from(drive.len() as u64, &mut read)?.ok()
}

fn drive<'a>(ix: usize, name: &'a str, metadata: &'a ContainerMetadata) -> ContainerDrive<'a> {
    ContainerDrive { id: MemberId::nth(ix), name, size_sectors: SECTORS, serial: None, metadata }
}

fn facts(placed: &Placed, volume: &str) -> Vec<MemberFacts> {
    let of = placed.extents.iter().filter(|extent| extent.facts.set_name == volume);
    of.map(|extent| extent.member_facts(&format!("{:?}", extent.of))).collect()
}

#[test]
fn a_file_is_the_drive_whose_serial_number_is_in_its_name() {
    let metadata = metadata(TWO).unwrap();
    let names = ["dm-3.img", "dm-0.img", "dm-2.img", "dm-1.img"];
    let drives: Vec<_> = names.iter().enumerate().map(|(ix, name)| drive(ix, name, &metadata)).collect();
    let placed = place(&drives);
    assert!(placed.problems.is_empty() && placed.missing.is_empty(), "{placed:?}");
    for (volume, start) in [("first", 0), ("second", 10240)] {
        let facts = facts(&placed, volume);
        let assembly = assemble(&facts, Policy::default()).unwrap();
        let slots: Vec<_> = assembly.slots.iter().map(|slot| slot.member()).collect();
        assert_eq!(slots, [Some(3), Some(2), Some(1), Some(0)], "by the table: 1, 2, 0, 3");
        assert!(matches!(assembly.access, Access::ReadOnly(_)), "{:?}", assembly.access);
        let starts = placed.extents.iter().filter(|extent| extent.facts.set_name == volume);
        assert!(starts.into_iter().all(|extent| extent.start_sector == start));
    }
}

/// Which of four drives a file without a number is cannot be told, nor which a drive is that tells
/// another number, as a USB bridge does, without a name that says it.
#[test]
fn what_is_not_known_is_not_guessed() {
    let metadata = metadata(TWO).unwrap();
    let drives = [drive(0, "a.img", &metadata), drive(1, "dm-1.img", &metadata)];
    let placed = place(&drives);
    assert_eq!(placed.problems.len(), 1);
    assert_eq!(placed.problems[0].1.code, Code::ContainerDriveUnknown);
    assert!(placed.extents.iter().all(|extent| extent.of == MemberId::nth(1)));
    let bridged = |name| ContainerDrive { serial: Some("WD-1".to_owned()), ..drive(0, name, &metadata) };
    let placed = place(&[bridged("sdb")]);
    assert!(placed.extents.is_empty());
    let problem = &placed.problems[0].1;
    assert_eq!(problem.code, Code::ContainerDriveUnknown);
    assert!(problem.why.contains("WD-1") && problem.why.contains("dm-1"), "{}", problem.why);
    let placed = place(&[bridged("/x/dm-1.img")]);
    assert!(placed.problems.is_empty() && !placed.extents.is_empty());
    // What it says of itself is heard before its name.
    let own = ContainerDrive { serial: Some("/dev/dm-2".to_owned()), ..drive(0, "dm-1.img", &metadata) };
    let by_name = place(&[drive(0, "dm-2.img", &metadata)]);
    assert_eq!(place(&[own]).extents, by_name.extents);
}

#[test]
fn the_drive_that_is_filled_counts_as_far_as_it_is() {
    let metadata = metadata(REBUILD).unwrap();
    let names = ["dm-0", "dm-1", "dm-3", "dm-4"];
    let drives: Vec<_> = names.iter().enumerate().map(|(ix, name)| drive(ix, name, &metadata)).collect();
    let facts = facts(&place(&drives), "first");
    let assembly = assemble(&facts, Policy::default()).unwrap();
    assert_eq!(
        assembly.verdicts[3],
        Verdict::Rebuilding { slot: 1, valid_below_sectors: 2048 },
        "dm-4 takes the place of dm-2"
    );
    assert!(matches!(assembly.slots[1], Slot::Rebuilding { member: 3, .. }));
}

/// An expanded volume has the count of stripes of before: what it holds is told by its size. A size
/// for which no room is reserved is no firmware's.
#[test]
fn a_volume_that_was_expanded_is_as_large_as_its_size_says() {
    let Some(ContainerMetadata::Imsm(mut imsm)) = metadata(TWO) else { panic!() };
    let placed_of = |imsm: &imsm::Imsm| {
        let metadata = ContainerMetadata::Imsm(imsm.clone());
        let names = ["dm-0", "dm-1", "dm-2", "dm-3"].into_iter().enumerate();
        let drives: Vec<_> = names.map(|(ix, name)| drive(ix, name, &metadata)).collect();
        facts(&place(&drives), "second")
    };
    let volume = &mut imsm.volumes[1];
    let members = volume.map.data_members().unwrap();
    let strips = 16384 / u64::from(volume.map.strip_sectors) / u64::from(volume.map.domains);
    (volume.map.data_stripes, volume.map.member_sectors) = (strips, 16640);
    volume.size_sectors = 16384 * members;
    let whole = placed_of(&imsm);
    imsm.volumes[1].map.data_stripes = strips / 2;
    let expanded = placed_of(&imsm);
    assert_eq!(expanded.len(), 4);
    assert_eq!(whole, expanded);
    assert!(whole.iter().all(|member| member.superblock.data_size_sectors == 16384));
    let assembly = assemble(&expanded, Policy::default()).unwrap();
    assert!(matches!(assembly.access, Access::ReadOnly(_)), "{:?}", assembly.access);

    imsm.volumes[1].map.member_sectors = 16000;
    let assembly = assemble(&placed_of(&imsm), Policy::default()).unwrap();
    assert!(matches!(assembly.access, Access::Refused(_)), "{:?}", assembly.access);
}

/// A volume that says that it is degraded, and by which slot, without a mark on that slot.
#[test]
fn the_slot_that_failed_is_not_read_without_a_mark_either() {
    let Some(ContainerMetadata::Imsm(mut imsm)) = metadata(TWO) else { panic!() };
    let map = &mut imsm.volumes[1].map;
    (map.state, map.failed_slot) = (imsm::ImsmMapState::Degraded, 1);
    let metadata = ContainerMetadata::Imsm(imsm);
    let names = ["dm-0", "dm-1", "dm-2", "dm-3"].into_iter().enumerate();
    let drives: Vec<_> = names.map(|(ix, name)| drive(ix, name, &metadata)).collect();
    let assembly = assemble(&facts(&place(&drives), "second"), Policy::default()).unwrap();
    assert_eq!(assembly.missing(), [1]);
}

/// What a resync after a crash has not reached has no right parity, though the volume went idle.
#[test]
fn parity_that_is_being_made_right_is_not_computed_from() {
    for (migration, is_trusted) in [(ImsmMigration::Verify, true), (ImsmMigration::Repair, false)] {
        let Some(ContainerMetadata::Imsm(mut imsm)) = metadata(TWO) else { panic!() };
        let volume = &mut imsm.volumes[1];
        (volume.migration, volume.old_map) = (Some(migration), Some(volume.map.clone()));
        let metadata = ContainerMetadata::Imsm(imsm);
        let drives = ["dm-0", "dm-1", "dm-2"].into_iter().enumerate();
        let drives: Vec<_> = drives.map(|(ix, name)| drive(ix, name, &metadata)).collect();
        let assembly = assemble(&facts(&place(&drives), "second"), Policy::default()).unwrap();
        let refused = |reason: &Reason| matches!(reason, Reason::DirtyDegraded { .. });
        let is_refused = matches!(&assembly.access, Access::Refused(reasons) if reasons.iter().any(refused));
        assert_eq!((assembly.synced(), is_refused), (is_trusted, !is_trusted), "{migration:?}");
    }
}

#[test]
fn a_drive_of_ddf_knows_itself() {
    let metadata = metadata(DDF).unwrap();
    let placed = place(&[drive(0, "any name", &metadata)]);
    let second = facts(&placed, "second");
    let assembly = assemble(&second, Policy::default()).unwrap();
    assert_eq!(assembly.verdicts, [Verdict::Fresh { slot: 0, one_behind: false }]);
    assert_eq!((assembly.array.level, assembly.array.layout, assembly.array.raid_disks), (5, 2, 4));
    let first = facts(&placed, "first");
    assert_eq!((first[0].superblock.level, first[0].superblock.layout), (10, 0x102));
    assert_eq!(placed.missing, [(32768, "the DDF container".to_owned())]);
}

/// What a controller found defective is not taken from that drive; a log that is damaged may list
/// any block of it.
#[test]
fn defective_blocks_of_a_drive_of_ddf_are_not_read() {
    let with = |log: DdfBadBlockLog| {
        let Some(ContainerMetadata::Ddf(mut ddf)) = metadata(DDF) else { panic!() };
        ddf.bad_blocks = log;
        let metadata = ContainerMetadata::Ddf(ddf);
        let members = facts(&place(&[drive(0, "any name", &metadata)]), "second");
        assemble(&members, Policy::default()).unwrap()
    };
    let entry = |start_sector, len_sectors| DdfBadBlocks { start_sector, len_sectors };
    let listed = [entry(2040, 10), entry(3000, 2), entry(4090, 100), entry(40_000, 1)];
    let assembly = with(DdfBadBlockLog::Listed(listed.to_vec()));
    let bad: Vec<_> = assembly.bad[0].iter().map(|run| (run.start.0, run.end.0)).collect();
    assert_eq!(bad, [(0, 2), (952, 954), (2042, 2048)], "the volume has 2048 to 4096 of the drive");
    let refused = |reason: &Reason| matches!(reason, Reason::BadBlocks { .. });
    let is_refused = |assembly: Assembly| match assembly.access {
        Access::Refused(reasons) => reasons.iter().any(refused),
        _ => false,
    };
    assert!(!is_refused(with(DdfBadBlockLog::Foreign)));
    assert!(is_refused(with(DdfBadBlockLog::Damaged)), "no other member has what it may have lost");
}

/// Damage that no checksum sees: no panic, no slot beyond the table, no window beyond the
/// drive.
#[test]
fn metadata_that_makes_no_sense_is_refused_and_never_a_panic() {
    let mut state = 1_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    const EDGES: [u8; 6] = [0, 1, 2, 5, 0x7f, 0xff];
    let ends = metadata(REBUILD).zip(metadata(TWO)).unwrap();
    for round in 0..2000 {
        let (bytes, other) = if round % 2 == 0 { (REBUILD, &ends.1) } else { (TWO, &ends.0) };
        let mut order = [&bytes[1024..1536], &bytes[512..1024]].concat();
        let size = u32::from_le_bytes([order[0x24], order[0x25], order[0x26], order[0x27]]) as usize;
        order.truncate(size);
        for _ in 0..1 + random(4) {
            let at = 0x28 + random(size - 0x28);
            order[at] = if random(2) == 0 { EDGES[random(6)] } else { random(256) as u8 };
        }
        order[0x20..0x24].fill(0);
        let words =
            order.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        let sum = words.fold(0_u32, u32::wrapping_add);
        order[0x20..0x24].copy_from_slice(&sum.to_le_bytes());
        let Ok(decoded) = imsm::Imsm::decode(&order, 512) else { continue };
        let damaged = ContainerMetadata::Imsm(decoded);
        judge(&[drive(0, "dm-0", &damaged), drive(1, "dm-1", other), drive(2, "dm-3", &damaged)]);
    }
    for _ in 0..2000 {
        let Some(ContainerMetadata::Ddf(mut ddf)) = metadata(DDF) else { panic!() };
        for config in &mut ddf.configs {
            match random(9) {
                0 => config.level = random(20) as u8,
                1 => config.qualifier = random(5) as u8,
                2 => config.parts = EDGES[random(6)].max(1),
                3 => config.part = EDGES[random(6)],
                4 => config.chunk_shift = random(256) as u8,
                5 => config.component_sectors = [None, Some(0), Some(u64::MAX), Some(1 << 40)][random(4)],
                6 => config.size_sectors = [None, Some(0), Some(u64::MAX), Some(1)][random(4)],
                7 => config.members[0].start_sector = [u64::MAX, 1 << 40, 32000][random(3)],
                _ => config.members.truncate(1 + random(2)),
            }
        }
        let damaged = ContainerMetadata::Ddf(ddf);
        let whole = metadata(DDF).unwrap();
        judge(&[drive(0, "a", &damaged), drive(1, "b", &whole)]);
    }
}

fn judge(drives: &[ContainerDrive<'_>]) {
    let placed = place(drives);
    for extent in &placed.extents {
        assert!(extent.start_sector + extent.len_sectors <= SECTORS, "{extent:?}");
    }
    let mut uuids: Vec<_> = placed.extents.iter().map(|extent| extent.facts.set_uuid).collect();
    uuids.dedup();
    for uuid in uuids {
        let of = placed.extents.iter().filter(|extent| extent.facts.set_uuid == uuid);
        let facts: Vec<_> = of.map(|extent| extent.member_facts("member")).collect();
        let assembly = assemble(&facts, Policy::default()).unwrap();
        assert!(assembly.access != Access::ReadWrite, "{assembly:?}");
        let _ = (assembly.problems(), assembly.size_sectors(), assembly.refusal());
    }
}
