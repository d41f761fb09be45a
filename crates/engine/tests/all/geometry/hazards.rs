//! RAID 10 layouts that lose data by themselves: the judgement against a grid that is filled chunk
//! by chunk, and both against the rules of docs/formats.md §7.4.

use std::collections::BTreeMap;

use wattle_engine::geometry::{Geometry, Hazard, Level, Params};

use super::{component, naive, params};

/// Fills the members' chunks and looks what meets.
fn by_grid(params: &Params) -> Option<Hazard> {
    let chunk = params.chunk.0;
    let array = Geometry::new(params).expect("valid").array_sectors().0;
    let mut grid = BTreeMap::new();
    let mut shared = false;
    for lba in (0..array).step_by(chunk as usize) {
        let copies = naive::raid10(params, lba);
        shared |=
            copies.iter().enumerate().any(|(i, copy)| copies[..i].iter().any(|other| other.0 == copy.0));
        for place in copies {
            if grid.insert(place, lba).is_some_and(|other| other != lba) {
                return Some(Hazard::ChunksCollide);
            }
        }
    }
    shared.then_some(Hazard::CopiesShareMember)
}

/// §7.4, for far-set modes 0 and 2.
fn by_rule(near: u32, far: u32, offset: bool, mode: u32, members: u32) -> bool {
    if near == 1 || far == 1 {
        return false;
    }
    let rows_meet = offset && !members.is_multiple_of(near);
    let sets_meet = mode == 2 && members > 2 * near * far && !members.is_multiple_of(near * far);
    rows_meet || sets_meet
}

#[test]
fn hazards_are_exactly_those_that_happen() {
    let mut found = 0;
    for (near, far) in
        (1..=4).flat_map(|near| (1..=4).map(move |far| (near, far))).filter(|(n, f)| n * f >= 2)
    {
        for (offset, mode) in [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)] {
            for members in near * far..=16 {
                let word = near | far << 8 | offset << 16 | mode << 17;
                let rows = u64::from(3 * members * far);
                let params = params(Level::Raid10, word, 8, members, component(8 * rows));
                let hazard = Geometry::new(&params).expect("valid").hazard();
                assert_eq!(hazard, by_grid(&params), "{word:#x} on {members} members");
                if mode != 1 {
                    let rule =
                        by_rule(near, far, offset == 1, mode, members).then_some(Hazard::ChunksCollide);
                    assert_eq!(hazard, rule, "{word:#x} on {members} members");
                }
                found += usize::from(hazard.is_some());
            }
        }
    }
    assert!(found > 100, "only {found} hazards");
}

#[test]
fn the_kernel_agrees() {
    let hazard = |word, members| {
        Geometry::new(&params(Level::Raid10, word, 8, members, component(8 * 60))).expect("valid").hazard()
    };
    // Built from the model and checked by a kernel: mismatches in the first two, none in the
    // others.
    assert_eq!(hazard(0x10202, 5), Some(Hazard::ChunksCollide));
    assert_eq!(hazard(0x40202, 9), Some(Hazard::ChunksCollide));
    for (word, members) in [(0x40202, 5), (0x40201, 5), (0x50201, 5), (0x40301, 7), (0x203, 7), (0x10202, 4)]
    {
        assert_eq!(hazard(word, members), None, "{word:#x} on {members} members");
    }
    for (word, members) in [(0x20201, 2), (0x20201, 3), (0x20301, 8), (0x20401, 15)] {
        assert_eq!(hazard(word, members), Some(Hazard::CopiesShareMember), "{word:#x} on {members} members");
    }
}
