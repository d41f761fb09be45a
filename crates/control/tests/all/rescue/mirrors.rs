//! Arrays without a parity: copies tell of a RAID 10, and what file systems have late on them of
//! linear arrays and RAID 0.

use wattle_control::rescue::{Findings, search};
use wattle_engine::geometry::Level;

use super::arrays::{MIB, Was, file_system, fixture, is, members, tell};

const NEAR_2: u32 = 0x102;
const NEAR_3: u32 = 0x103;
const FAR_2: u32 = 0x201;
const FAR_3: u32 = 0x301;
const OFFSET_2: u32 = 0x1_0201;
const OFFSET_3: u32 = 0x1_0301;

const fn raid10(layout: u32, chunk_kib: u64, offset: u64, slots: usize) -> Was {
    Was::new(Level::Raid10, layout, chunk_kib, offset, slots)
}

/// As [`is`], where members that hold the same may stand for one another.
#[track_caller]
fn is_like(findings: &Findings, was: Was, images: &[Vec<u8>], order: &[usize]) {
    let found = findings.found.first().unwrap_or_else(|| panic!("nothing: {:?}", findings.notes));
    let shape = &found.shape;
    let told = (shape.level, shape.layout, shape.chunk_sectors, shape.data_offset_sectors, shape.slots);
    assert_eq!(told, (was.level, was.layout, was.chunk, was.offset, was.slots), "{}", tell(findings));
    for (slot, who) in found.order.iter().enumerate() {
        if let Some(who) = who {
            assert!(images[order[*who]] == images[slot], "slot {slot}: {}", tell(findings));
        }
    }
    assert!(findings.certain, "{}", tell(findings));
}

#[test]
fn a_raid_10_is_told_by_its_copies() {
    let Some(content) = file_system(96 * MIB, "4096") else { return };
    for (was, order) in [
        (raid10(NEAR_2, 64, 2048, 4), &[2, 0, 3, 1][..]),
        (raid10(NEAR_2, 512, 2048, 3), &[1, 2, 0]),
        (raid10(NEAR_2, 64, 0, 5), &[4, 1, 2, 0, 3]),
        (raid10(NEAR_3, 128, 8192, 6), &[5, 2, 0, 3, 1, 4]),
        (raid10(NEAR_3, 64, 2048, 4), &[3, 2, 0, 1]),
        (raid10(FAR_2, 512, 2048, 4), &[3, 0, 2, 1]),
        (raid10(FAR_2, 64, 8192, 3), &[2, 0, 1]),
        (raid10(FAR_3, 64, 2048, 5), &[2, 0, 1, 4, 3]),
        (raid10(OFFSET_2, 64, 2048, 4), &[1, 3, 0, 2]),
        (raid10(OFFSET_2, 512, 2048, 3), &[0, 2, 1]),
        (raid10(OFFSET_3, 64, 2048, 5), &[4, 3, 2, 1, 0]),
    ] {
        let images = was.lay_out(&content);
        is_like(&search(&members(&images, order)).unwrap(), was, &images, order);
    }
}

#[test]
fn a_raid_10_with_a_member_missing_too() {
    let Some(content) = file_system(96 * MIB, "4096") else { return };
    for (was, order) in [
        (raid10(NEAR_2, 64, 2048, 4), &[3, 0, 1][..]),
        (raid10(NEAR_2, 64, 2048, 3), &[2, 1]),
        (raid10(FAR_2, 64, 2048, 4), &[2, 3, 1]),
        (raid10(OFFSET_2, 64, 2048, 4), &[0, 3, 2]),
    ] {
        let images = was.lay_out(&content);
        is_like(&search(&members(&images, order)).unwrap(), was, &images, order);
    }
}

/// Half of a mirror is older: the order is right, and that something is wrong is said.
#[test]
fn an_old_copy_in_a_raid_10_is_said_to_be_one() {
    let Some(content) = file_system(96 * MIB, "4096") else { return };
    let was = raid10(OFFSET_2, 64, 2048, 4);
    let mut images = was.lay_out(&content);
    let half = images[2].len() / 4;
    images[2][half..].fill(0x55);
    let findings = search(&members(&images, &[1, 3, 0, 2])).unwrap();
    assert!(!findings.certain, "{}", tell(&findings));
}

/// What lies on the members of a linear array of these sizes.
fn linear(content: &[u8], sizes: &[usize], offset_bytes: usize) -> Vec<Vec<u8>> {
    let mut rest = content;
    let lay = |&size: &usize| {
        let (part, after) = rest.split_at(size.min(rest.len()));
        rest = after;
        let mut member = vec![0; offset_bytes + size];
        member[offset_bytes..][..part.len()].copy_from_slice(part);
        member
    };
    sizes.iter().map(lay).collect()
}

#[test]
fn a_linear_array_is_told_by_what_is_late_on_it() {
    let Some(content) = file_system(96 * MIB, "1024") else { return };
    for (sizes, order) in
        [(&[32 * MIB; 3][..], &[2, 0, 1][..]), (&[40 * MIB, 24 * MIB, 32 * MIB], &[1, 2, 0])]
    {
        let images = linear(&content, sizes, MIB);
        let was = Was::new(Level::Linear, 0, 0, 2048, sizes.len());
        is(&search(&members(&images, order)).unwrap(), was, order);
    }
    // All of the file system is on the first one: nothing tells which of the others comes next, or
    // whether any does.
    let images = linear(&content, &[100 * MIB, 32 * MIB], MIB);
    let findings = search(&members(&images, &[1, 0])).unwrap();
    assert!(!findings.certain, "{}", tell(&findings));
}

#[test]
fn a_raid_0_of_unequal_members_is_as_long_as_all_of_them() {
    let Some(content) = file_system(96 * MIB, "1024") else { return };
    // Two zones: 24 MiB of three members, then 12 MiB more of two, from another one of them in the
    // two layouts.
    let chunk = 64 << 10;
    let sizes = [36 * MIB, 24 * MIB, 36 * MIB];
    for layout in [1, 2] {
        let mut images: Vec<_> = sizes.iter().map(|size| vec![0; MIB + size]).collect();
        for (ix, piece) in content.chunks(chunk).enumerate() {
            let first = 72 * MIB / chunk;
            let (slot, row) = match ix.checked_sub(first) {
                None => (ix % 3, ix / 3),
                Some(later) => {
                    let column = if layout == 1 { ix % 2 } else { later % 2 };
                    (2 * column, 24 * MIB / chunk + later / 2)
                }
            };
            images[slot][MIB + row * chunk..][..piece.len()].copy_from_slice(piece);
        }
        let findings = search(&members(&images, &[2, 0, 1])).unwrap();
        let found = &findings.found[0].shape;
        assert_eq!(found.geometry.array_sectors().0 * 512, content.len() as u64, "{}", tell(&findings));
        assert_eq!((found.level, found.chunk_sectors), (Level::Raid0, 128));
    }
}

/// What a kernel wrote: numbers without an end, so that nothing but the copies tells. They tell the
/// layout, and not where it starts.
#[test]
fn mirrors_of_a_real_kernel_are_told_by_their_layout() {
    for (name, layout, slots) in
        [("raid10-4d-n2", NEAR_2, 4), ("raid10-4d-f2", FAR_2, 4), ("raid10-3d-o2", OFFSET_2, 3)]
    {
        let Some(mut images) = fixture(name, slots) else { return };
        images.iter_mut().for_each(|image| image[4096..8192].fill(0));
        let order: Vec<_> = (0..slots).rev().collect();
        let findings = search(&members(&images, &order)).unwrap();
        let shape = &findings.found[0].shape;
        assert_eq!(
            (shape.level, shape.layout, shape.slots),
            (Level::Raid10, layout, slots),
            "{}",
            tell(&findings)
        );
        assert!(!findings.certain, "{}", tell(&findings));
    }
}
