//! What people give by mistake: a drive twice, a spare, a drive of another array, one that is
//! older. The answer may be that nothing is told, never a wrong one.

use wattle_control::rescue::{Findings, search};
use wattle_engine::geometry::Level;

use super::arrays::{MIB, Random, Was, file_system, members, tell};

const RAID_5: Was = Was::new(Level::Raid5, 2, 64, 2048, 3);

/// Either it is not certain, or it is this array with these images in their slots.
#[track_caller]
fn is_right(findings: &Findings, was: Was, right: &[Vec<u8>], given: &[Vec<u8>]) {
    if !findings.certain {
        return;
    }
    let found = &findings.found[0];
    let shape = &found.shape;
    let told = (shape.level, shape.layout, shape.chunk_sectors, shape.data_offset_sectors, shape.slots);
    assert_eq!(told, (was.level, was.layout, was.chunk, was.offset, was.slots), "{}", tell(findings));
    for (slot, who) in found.order.iter().enumerate() {
        assert!(who.is_none_or(|who| given[who] == right[slot]), "slot {slot}: {}", tell(findings));
    }
}

#[track_caller]
fn first_is(findings: &Findings, was: Was, right: &[Vec<u8>], given: &[Vec<u8>]) {
    let all_the_same = Findings { certain: true, ..findings.clone() };
    is_right(&all_the_same, was, right, given);
}

fn with(images: &[Vec<u8>], more: Vec<u8>) -> Vec<Vec<u8>> {
    let mut given = images.to_vec();
    given.insert(1, more);
    given
}

#[test]
fn a_spare_and_a_drive_of_another_array_are_left_out() {
    let Some(content) = file_system(96 * MIB, "4096") else { return };
    let images = RAID_5.lay_out(&content);
    let len = images[0].len();
    let mut other = Was::new(Level::Raid0, 0, 64, 2048, 2).lay_out(&content)[0].clone();
    other.truncate(len);
    for (more, said) in [
        (vec![0; len], "nothing is on disk-1"),
        (Random(1).bytes(len), "without disk-1"),
        (other, "without disk-1"),
    ] {
        let given = with(&images, more);
        let findings = search(&members(&given, &[0, 1, 2, 3])).unwrap();
        first_is(&findings, RAID_5, &images, &given);
        assert!(findings.notes.iter().any(|note| note.contains(said)), "{}", tell(&findings));
    }
}

#[test]
fn a_drive_that_is_given_twice_is_one() {
    let Some(content) = file_system(96 * MIB, "4096") else { return };
    for was in [RAID_5, Was::new(Level::Raid0, 0, 64, 2048, 2), Was::new(Level::Raid6, 2, 64, 2048, 5)] {
        let images = was.lay_out(&content);
        let given = with(&images, images[0].clone());
        let order: Vec<_> = (0..given.len()).collect();
        let findings = search(&members(&given, &order)).unwrap();
        // A RAID 0 and a copy of one of its members are read alike as a RAID 10 that lacks one.
        if findings.found[0].shape.level == Level::Raid10 {
            assert_eq!(
                (was.level, findings.found[0].shape.layout),
                (Level::Raid0, 0x102),
                "{}",
                tell(&findings)
            );
            let order: Vec<_> = findings.found[0].order.iter().flatten().copied().collect();
            assert_eq!(order, [0, 1, 2], "{}", tell(&findings));
            assert!(findings.notes.iter().any(|note| note.contains("disk-0 and disk-1 hold the same")));
            continue;
        }
        first_is(&findings, was, &images, &given);
    }
}

/// A member whose slot was taken by a spare long ago, and one that was left behind.
#[test]
fn an_old_member_makes_it_uncertain() {
    let Some(content) = file_system(96 * MIB, "4096") else { return };
    for was in [
        Was::new(Level::Raid5, 2, 64, 2048, 4),
        Was::new(Level::Raid6, 2, 64, 2048, 5),
        Was::new(Level::Raid1, 0, 0, 2048, 2),
    ] {
        let images = was.lay_out(&content);
        let mut older = content.clone();
        for (ix, piece) in older.chunks_mut(MIB / 2).enumerate() {
            if ix % 3 == 1 && piece.iter().any(|&byte| byte != 0) {
                piece.fill(ix as u8);
            }
        }
        let mut given = images.clone();
        given[1] = was.lay_out(&older)[1].clone();
        let order: Vec<_> = (0..given.len()).rev().collect();
        let findings = search(&members(&given, &order)).unwrap();
        assert!(!findings.certain, "{}", tell(&findings));
        let all = findings.found.iter().flat_map(|one| &one.reasons);
        assert!(
            all.into_iter().any(|reason| reason.contains("older than the others")),
            "{}",
            tell(&findings)
        );
    }
}

#[test]
fn two_arrays_at_once_are_not_one() {
    let Some(content) = file_system(48 * MIB, "4096") else { return };
    let images = RAID_5.lay_out(&content);
    let other: Vec<_> = content.iter().rev().copied().collect();
    let given = [images.clone(), RAID_5.lay_out(&other)].concat();
    let findings = search(&members(&given, &[0, 3, 1, 4, 2, 5])).unwrap();
    assert!(
        findings.notes.iter().any(|note| note.contains("disk-0, disk-1, disk-2 have a common parity")),
        "{}",
        tell(&findings)
    );
    let shape = &findings.found[0].shape;
    assert_eq!((shape.slots, shape.level), (3, Level::Raid5), "{}", tell(&findings));
}

/// One drive with a file system, and others that have nothing to do with it.
#[test]
fn drives_without_an_array_are_none() {
    let Some(content) = file_system(48 * MIB, "4096") else { return };
    for more in
        [Random(5).bytes(content.len()), vec![0x5A; content.len()], content.iter().rev().copied().collect()]
    {
        let findings = search(&members(&[content.clone(), more], &[1, 0])).unwrap();
        assert!(!findings.certain, "{}", tell(&findings));
    }
    let same = vec![vec![0xA5; 16 * MIB]; 3];
    let findings = search(&members(&same, &[0, 1, 2])).unwrap();
    assert!(!findings.certain, "{}", tell(&findings));
}
