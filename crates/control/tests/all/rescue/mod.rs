//! Arrays whose superblocks are gone or wrong, found again: by parity, by copies, by what file
//! systems have where, by neighbours; and what is not told apart, or nothing, is said to be so.

mod arrays;
mod mirrors;
mod random;
mod wrong;

use arrays::{MIB, Random, Was, file_system, fixture, is, members};
use wattle_control::rescue::search;
use wattle_engine::geometry::Level;

const CASES: [(Was, &[usize]); 7] = [
    (Was::new(Level::Raid5, 2, 64, 2048, 4), &[2, 0, 3, 1]),
    (Was::new(Level::Raid5, 0, 512, 262_144, 3), &[2, 1, 0]),
    (Was::new(Level::Raid5, 3, 16, 0, 5), &[4, 2, 0, 1, 3]),
    (Was::new(Level::Raid6, 2, 128, 8192, 6), &[5, 1, 3, 0, 4, 2]),
    (Was::new(Level::Raid4, 0, 64, 2048, 4), &[3, 1, 2, 0]),
    (Was::new(Level::Raid0, 0, 64, 2048, 3), &[1, 2, 0]),
    (Was::new(Level::Raid1, 0, 0, 2048, 2), &[1, 0]),
];

#[test]
fn an_array_with_a_file_system_is_found_in_any_order() {
    let Some(content) = file_system(96 * MIB, "4096") else { return };
    let (parity, others) = CASES.split_at(5);
    for (was, order) in parity {
        is(&search(&members(&was.lay_out(&content), order)).unwrap(), *was, order);
    }
    // Without a parity there is less to be sure by; then it is not said to be.
    for (was, order) in others {
        let findings = search(&members(&was.lay_out(&content), order)).unwrap();
        if findings.certain {
            is(&findings, *was, order);
        }
    }
}

#[test]
fn with_a_member_missing_too() {
    let Some(content) = file_system(96 * MIB, "1024") else { return };
    for (was, order) in [
        (Was::new(Level::Raid5, 2, 64, 2048, 4), &[3, 0, 2][..]),
        (Was::new(Level::Raid5, 2, 64, 2048, 4), &[2, 1, 3]),
        (Was::new(Level::Raid6, 2, 64, 2048, 5), &[4, 0, 2, 1]),
    ] {
        let images = was.lay_out(&content);
        is(&search(&members(&images, order)).unwrap(), was, order);
    }
}

/// Where the file system starts is on a missing member, and often something else of that stripe is
/// on the other one.
#[test]
fn of_a_raid_6_two_members_may_be_missing() {
    let Some(content) = file_system(96 * MIB, "1024") else { return };
    for (was, order) in [
        (Was::new(Level::Raid6, 2, 64, 2048, 5), &[4, 2, 0][..]),
        (Was::new(Level::Raid6, 2, 64, 2048, 6), &[5, 0, 4, 2]),
        (Was::new(Level::Raid6, 2, 64, 2048, 6), &[0, 4, 3, 2]),
        (Was::new(Level::Raid6, 0, 128, 8192, 7), &[1, 6, 3, 5, 4]),
        (Was::new(Level::Raid6, 2, 64, 2048, 12), &[11, 0, 4, 2, 5, 6, 10, 9, 8, 7]),
    ] {
        is(&search(&members(&was.lay_out(&content), order)).unwrap(), was, order);
    }
}

/// Random data has no neighbours and no structures, but two parities: they tell everything but
/// where data blocks start in a stripe.
#[test]
fn a_raid_6_is_told_by_its_parities_alone() {
    let content = Random(3).bytes(24 * MIB);
    for layout in 0..4 {
        let was = Was::new(Level::Raid6, layout, 64, 2048, 6);
        let order = [3, 5, 0, 4, 1, 2];
        let findings = search(&members(&was.lay_out(&content), &order)).unwrap();
        let found: Vec<_> = findings.found[..2].iter().map(|one| one.shape.layout).collect();
        assert!(found.contains(&layout) && !findings.certain, "{findings:?}");
        for one in &findings.found[..2] {
            let slots: Vec<_> = one.order.iter().map(|who| order[who.unwrap()]).collect();
            assert_eq!(slots, [0, 1, 2, 3, 4, 5]);
            assert_eq!((one.shape.chunk_sectors, one.shape.data_offset_sectors), (was.chunk, was.offset));
        }
    }
}

#[test]
fn random_data_under_one_parity_is_not_told_apart_and_without_any_it_is_nothing() {
    let content = Random(3).bytes(24 * MIB);
    let was = Was::new(Level::Raid5, 2, 64, 2048, 4);
    let findings = search(&members(&was.lay_out(&content), &[1, 0, 3, 2])).unwrap();
    assert!(!findings.certain && findings.notes[0].contains("XOR"), "{findings:?}");
    let alone: Vec<_> = (10..14).map(|seed| Random(seed).bytes(8 * MIB)).collect();
    let findings = search(&members(&alone, &[0, 1, 2, 3])).unwrap();
    assert!(findings.found.is_empty() && !findings.certain, "{findings:?}");
    let empty = vec![vec![0; 8 * MIB]; 4];
    let findings = search(&members(&empty, &[0, 1, 2, 3])).unwrap();
    assert!(findings.found.is_empty() && !findings.certain, "{findings:?}");
    assert!(search(&members(&alone, &[0])).is_err());
}

/// What a kernel and LVM2 wrote.
#[test]
fn a_volume_group_of_a_real_kernel_comes_first_and_nothing_wrong_is_certain() {
    let was = Was::new(Level::Raid5, 2, 256, 2048, 5);
    let Some(mut images) = fixture("lvm-linear-on-raid5", 5) else { return };
    images.iter_mut().for_each(|image| image[4096..8192].fill(0));
    let order = [3, 0, 4, 2, 1];
    // A file system with one file, and random data: enough for the right order to come first, if
    // not for being sure.
    let findings = search(&members(&images, &order)).unwrap();
    let first = &findings.found[0];
    let slots: Vec<_> = first.order.iter().map(|who| order[who.unwrap()]).collect();
    assert_eq!(
        (slots, first.shape.layout, first.shape.chunk_sectors),
        (vec![0, 1, 2, 3, 4], was.layout, was.chunk)
    );
    for missing in 0..5 {
        let order: Vec<_> = order.into_iter().filter(|slot| *slot != missing).collect();
        let findings = search(&members(&images, &order)).unwrap();
        if findings.certain {
            is(&findings, was, &order);
        }
    }
}
