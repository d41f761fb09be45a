//! Geometry against the tables a kernel confirmed, against a slow model, and against itself.

mod hazards;
mod naive;
mod tables;

use std::collections::BTreeSet;

use proptest::prelude::*;
use wattle_engine::geometry::{
    BlockRole, CHUNK_MAX, Geometry, GeometryError, Hazard, Level, LevelKind, Params, ParseLayoutError,
    default_layout, layout_name, parse_layout,
};
use wattle_engine::units::{MemberIx, MemberSet, SECTORS_MAX, Sector, StripeNo};

const RAID6_LAYOUTS: [u32; 14] = [0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20];

/// The component size, or the sizes of the members.
#[derive(Debug, Clone)]
enum Sizes {
    Component(u64),
    Members(Vec<u64>),
}

fn component(sectors: u64) -> Sizes {
    Sizes::Component(sectors)
}

fn params(level: Level, layout: u32, chunk: u64, raid_disks: u32, sizes: Sizes) -> Params {
    let (component, members) = match sizes {
        Sizes::Component(sectors) => (sectors, Vec::new()),
        Sizes::Members(sizes) => (0, sizes.into_iter().map(Sector).collect()),
    };
    Params {
        level,
        layout,
        chunk: Sector(chunk),
        raid_disks,
        component_size: Sector(component),
        member_sizes: members,
    }
}

/// Compares everything a geometry says with the model, sector by sector. Without hazard also checks
/// invariants 1 to 3 and that the maps are undone by their inverses.
fn check(params: &Params) {
    let geometry = Geometry::new(params).unwrap_or_else(|error| panic!("{params:?}: {error}"));
    let expected = naive::places(params);
    assert_eq!(geometry.array_sectors().0, expected.len() as u64, "size of {params:?}");
    let mut taken = BTreeSet::new();
    for (lba, expected) in (0..).map(Sector).zip(&expected) {
        let (found, run) = places(&geometry, lba);
        assert_eq!(&found, expected, "{params:?} lba {lba}");
        assert!(run > Sector::ZERO && lba + run <= geometry.array_sectors(), "{params:?} lba {lba}");
        let last = Sector(lba.0 + run.0 - 1);
        let further: Vec<_> = found.iter().map(|&(member, sector)| (member, sector + run.0 - 1)).collect();
        assert_eq!(places(&geometry, last).0, further, "{params:?} run at {lba}");
        for &(member, sector) in &found {
            let member = MemberIx(member as u16);
            assert!(Sector(sector) < geometry.member_sectors(member), "{params:?} lba {lba}");
            if geometry.hazard().is_none() {
                assert!(taken.insert((member, sector)), "{params:?}: two sectors share {member}:{sector}");
                assert_eq!(geometry.array_sector_at(member, Sector(sector)), Some(lba), "{params:?}");
            }
        }
        let members: BTreeSet<_> = found.iter().map(|place| place.0).collect();
        assert!(members.len() == found.len() || geometry.hazard().is_some(), "{params:?} lba {lba}");
    }
    if geometry.hazard().is_none() {
        for member in (0..geometry.raid_disks() as u16).map(MemberIx) {
            for sector in 0..geometry.member_sectors(member).0 + 20 {
                let holds = geometry.array_sector_at(member, Sector(sector)).is_some();
                assert_eq!(holds, taken.contains(&(member, sector)), "{params:?} {member}:{sector}");
            }
        }
    }
    if geometry.kind() == LevelKind::Parity {
        check_stripes(params, &geometry);
    }
}

/// All places of an array sector, and how far they are contiguous.
fn places(geometry: &Geometry, lba: Sector) -> (Vec<naive::Place>, Sector) {
    match geometry.kind() {
        LevelKind::Striped => {
            let run = geometry.map(lba);
            (vec![(u64::from(run.member.0), run.sector.0)], run.len)
        }
        LevelKind::Mirrored => {
            let copies = geometry.copies(lba);
            (copies.iter().map(|copy| (u64::from(copy.member.0), copy.sector.0)).collect(), copies.run)
        }
        LevelKind::Parity => {
            let run = geometry.data_place(lba);
            (vec![(u64::from(run.member.0), run.sector.0)], run.len)
        }
    }
}

fn check_stripes(params: &Params, geometry: &Geometry) {
    for stripe in 0..geometry.stripes() {
        let map = geometry.stripe(StripeNo(stripe));
        let (_, p, q) = naive::parity_place(params, stripe, 0);
        let place = |member: MemberIx| u64::from(member.0);
        assert_eq!((place(map.p()), map.q().map(place)), (p, q), "{params:?} stripe {stripe}");
        assert_eq!(map.member_sector.0, stripe * params.chunk.0);
        let mut members: BTreeSet<_> = map.q().into_iter().chain([map.p()]).collect();
        for block in 0..map.data_blocks() {
            let member = map.data_member(block);
            assert!(members.insert(member), "{params:?}: two blocks of stripe {stripe} on {member}");
            assert_eq!(geometry.role_in_stripe(StripeNo(stripe), member), BlockRole::Data(block));
            let lba = geometry.array_sector_of(StripeNo(stripe), block, Sector(params.chunk.0 - 1));
            assert_eq!(geometry.locate(lba), (StripeNo(stripe), block, Sector(params.chunk.0 - 1)));
            if map.q().is_some() {
                let exponent = naive::exponents(params, stripe)[member.index()];
                assert_eq!(Some(u64::from(map.exponent(block))), exponent, "{params:?} stripe {stripe}");
            }
        }
        assert_eq!(members.len(), geometry.raid_disks());
        assert_eq!(map.role(map.p()), BlockRole::P);
        assert!(map.q().is_none_or(|q| map.role(q) == BlockRole::Q));
    }
}

#[test]
fn every_parity_layout_follows_the_model_at_every_width() {
    let layouts = [
        (Level::Raid4, &[0, 7][..], 2),
        (Level::Raid5, &[0, 1, 2, 3, 4, 5], 2),
        (Level::Raid6, &RAID6_LAYOUTS, 4),
    ];
    for (level, words, least) in layouts {
        for (&word, members) in words.iter().flat_map(|word| (least..=9).map(move |members| (word, members)))
        {
            check(&params(level, word, 8, members, component(8 * (2 * u64::from(members) + 1) + 5)));
        }
    }
}

#[test]
fn the_widest_raid6_keeps_its_exponents_below_255() {
    for word in RAID6_LAYOUTS {
        let params = params(Level::Raid6, word, 8, 255, component(8 * 256));
        check_stripes(&params, &Geometry::new(&params).expect("255 members are allowed"));
    }
}

#[test]
fn linear_and_raid0_follow_the_model_over_uneven_members() {
    for sizes in [
        vec![40],
        vec![40, 40, 40],
        vec![100, 41, 64, 41],
        vec![33, 80, 200, 80, 129],
        vec![8, 9, 17, 24, 25],
    ] {
        let members = sizes.len() as u32;
        for chunk in [1, 3, 7, 8] {
            for layout in [1, 2] {
                check(&params(Level::Raid0, layout, chunk, members, Sizes::Members(sizes.clone())));
            }
        }
        for chunk in [0, 1, 6, 8] {
            check(&params(Level::Linear, 0, chunk, members, Sizes::Members(sizes.clone())));
        }
    }
}

#[test]
fn copies_beyond_the_inline_ones_are_there_too() {
    for members in [1, 2, 8, 9, 40] {
        check(&params(Level::Raid1, 0, 0, members, component(130)));
    }
    check(&params(Level::Raid10, 0x304, 8, 13, component(8 * 9)));
}

/// Any geometry that can be walked sector by sector.
fn small_params() -> impl Strategy<Value = Params> {
    let sizes =
        |least: u64, members: u32| proptest::collection::vec(least..least * 12 + 30, members as usize);
    let raid0 = (1u64..20, 1u32..7, 1u32..3).prop_flat_map(move |(chunk, members, layout)| {
        sizes(chunk, members)
            .prop_map(move |sizes| params(Level::Raid0, layout, chunk, members, Sizes::Members(sizes)))
    });
    let linear = (0u64..20, 1u32..7).prop_flat_map(move |(chunk, members)| {
        sizes(chunk.max(1), members)
            .prop_map(move |sizes| params(Level::Linear, 0, chunk, members, Sizes::Members(sizes)))
    });
    let raid10 = (1u32..5, 1u32..5, 0u32..6, 0u32..9, 3u32..5, 0u64..150)
        .prop_filter("at least two copies", |(near, far, ..)| near * far >= 2)
        .prop_map(|(near, far, flags, more, shift, extra)| {
            let (members, chunk) = (near * far + more, 1 << shift);
            params(
                Level::Raid10,
                near | far << 8 | flags << 16,
                chunk,
                members,
                component(chunk * u64::from(far) + extra),
            )
        });
    let parity = (0usize..21, 0u32..12, 3u32..6, 0u64..900).prop_map(|(layout, more, shift, extra)| {
        let (level, word, least) = match layout {
            0..14 => (Level::Raid6, RAID6_LAYOUTS[layout], 4),
            14..20 => (Level::Raid5, layout as u32 - 14, 2),
            _ => (Level::Raid4, 0, 2),
        };
        params(level, word, 1 << shift, least + more, component((1 << shift) + extra))
    });
    prop_oneof![raid0, linear, raid10, parity]
}

/// Anything a superblock could say, near the edges most of all.
fn hostile_params() -> impl Strategy<Value = Params> {
    let size = prop_oneof![
        any::<u64>(),
        0u64..5000,
        (0u64..3).prop_map(|back| u64::MAX - back),
        (0u64..3).prop_map(|back| SECTORS_MAX.0 - back),
        (0u32..64).prop_map(|shift| 1 << shift)
    ];
    let level = (0usize..7).prop_map(|level| {
        [Level::Linear, Level::Raid0, Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10]
            [level]
    });
    let layout =
        prop_oneof![any::<u32>(), 0u32..21, (0u32..0x80000), Just(0x102), Just(0x201), Just(0x10203)];
    let members = prop_oneof![any::<u32>(), 0u32..10, 250u32..390];
    let chunk = prop_oneof![size.clone(), (0u32..24).prop_map(|shift| 1 << shift)];
    (level, layout, chunk, members, size.clone(), proptest::collection::vec(size, 0..6), any::<bool>())
        .prop_map(|(level, layout, chunk, members, component, sizes, matching)| Params {
            level,
            layout,
            chunk: Sector(chunk),
            raid_disks: if matching { sizes.len() as u32 } else { members },
            component_size: Sector(component),
            member_sizes: sizes.into_iter().map(Sector).collect(),
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_small_geometry_follows_the_model(params in small_params()) {
        check(&params);
    }

    /// Superblocks are hostile input. Whatever they say: an error, or a geometry whose first, last
    /// and middle sectors are in range and come back. Arithmetic that overflows panics in this
    /// build.
    #[test]
    fn no_superblock_makes_geometry_panic(params in hostile_params(), lba in any::<u64>()) {
        let Ok(geometry) = Geometry::new(&params) else { return Ok(()) };
        let end = geometry.array_sectors();
        prop_assert!(end > Sector::ZERO && end <= SECTORS_MAX);
        prop_assert!(geometry.io_min_bytes() >= 512);
        let members: MemberSet = (0..geometry.raid_disks() as u16).map(MemberIx).collect();
        prop_assert!(!geometry.survives(&members) && geometry.survives(&MemberSet::EMPTY));
        for lba in [0, end.0 - 1, lba % end.0].map(Sector) {
            let (places, run) = places(&geometry, lba);
            prop_assert!(lba + run <= end);
            for (member, sector) in places {
                let (member, sector) = (MemberIx(member as u16), Sector(sector));
                prop_assert!(sector + run <= geometry.member_sectors(member));
                if geometry.hazard().is_none() {
                    prop_assert_eq!(geometry.array_sector_at(member, sector), Some(lba));
                }
            }
        }
    }
}

/// Arrays that a Linux 6.12 kernel made: level, layout, chunk in KiB, members, component; size,
/// minimum and optimal I/O.
#[test]
fn sizes_are_those_a_kernel_reports() {
    #[rustfmt::skip]
    let arrays = [
        (Level::Raid0,  1,       64,  4, 14336, 57344, 65536,  262144),
        (Level::Raid0,  1,       256, 2, 14336, 28672, 262144, 524288),
        (Level::Raid1,  0,       0,   2, 16256, 16256, 512,    0),
        (Level::Raid10, 0x10201, 64,  3, 14336, 21504, 65536,  196608),
        (Level::Raid10, 0x201,   64,  4, 14336, 28672, 65536,  262144),
        (Level::Raid10, 0x102,   64,  4, 14336, 28672, 65536,  131072),
        (Level::Raid10, 0x102,   256, 6, 14336, 43008, 262144, 786432),
        (Level::Raid5,  2,       64,  4, 14336, 43008, 65536,  196608),
        (Level::Raid5,  2,       256, 5, 14336, 57344, 262144, 1048576),
        (Level::Raid6,  2,       64,  6, 14336, 57344, 65536,  262144),
        (Level::Raid6,  2,       512, 6, 14336, 57344, 524288, 2097152),
    ];
    for (level, layout, chunk_kib, members, size, array, io_min, io_opt) in arrays {
        let sizes = if level == Level::Raid0 {
            Sizes::Members(vec![size; members as usize])
        } else {
            component(size)
        };
        let geometry =
            Geometry::new(&params(level, layout, chunk_kib * 2, members, sizes)).expect("a real array");
        let found = (geometry.array_sectors().0, geometry.io_min_bytes(), geometry.io_opt_bytes());
        assert_eq!(found, (array, io_min, io_opt), "{level} {layout:#x} {chunk_kib} KiB x {members}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    use GeometryError as E;
    let error = |level, layout, chunk, members, sizes| {
        Geometry::new(&params(level, layout, chunk, members, sizes)).expect_err("an error")
    };
    let members = |sizes: &[u64]| Sizes::Members(sizes.to_vec());
    assert_eq!(error(Level::Raid5, 2, 0, 4, component(80)), E::ChunkZero { level: Level::Raid5 });
    assert_eq!(error(Level::Raid0, 2, 0, 1, members(&[80])), E::ChunkZero { level: Level::Raid0 });
    let found = Sector(24);
    assert_eq!(
        error(Level::Raid10, 0x102, 24, 4, component(80)),
        E::ChunkNotPowerOfTwo { level: Level::Raid10, found }
    );
    let (min, max) = (Sector(8), CHUNK_MAX);
    assert_eq!(
        error(Level::Raid6, 2, 4, 4, component(80)),
        E::ChunkRange { level: Level::Raid6, min, max, found: Sector(4) }
    );
    let found = Sector(1 << 23);
    assert_eq!(
        error(Level::Raid6, 2, 1 << 23, 4, component(80)),
        E::ChunkRange { level: Level::Raid6, min, max, found }
    );
    for (level, min, max, found) in [
        (Level::Linear, 1, 384, 0),
        (Level::Raid1, 1, 384, 385),
        (Level::Raid4, 2, 255, 1),
        (Level::Raid5, 2, 255, 300),
        (Level::Raid6, 4, 255, 3),
        (Level::Raid6, 4, 255, 256),
        (Level::Raid10, 2, 384, 1),
    ] {
        assert_eq!(error(level, 2, 8, found, component(80)), E::RaidDisks { level, min, max, found });
    }
    for (level, found) in
        [(Level::Raid5, 6), (Level::Raid6, 6), (Level::Raid6, 7), (Level::Raid6, 11), (Level::Raid6, 21)]
    {
        assert_eq!(error(level, found, 8, 4, component(80)), E::Layout { level, found });
    }
    for found in [0x100, 0x002, 0x60102, 0x80102, u32::MAX] {
        let level = Level::Raid10;
        assert_eq!(error(level, found, 8, 4, component(80)), E::Layout { level, found });
    }
    assert_eq!(
        error(Level::Raid10, 0x101, 8, 4, component(80)),
        E::Raid10Copies { near: 1, far: 1, raid_disks: 4 }
    );
    assert_eq!(
        error(Level::Raid10, 0x203, 8, 5, component(80)),
        E::Raid10Copies { near: 3, far: 2, raid_disks: 5 }
    );
    let found = u32::MAX;
    let sizes = members(&[80, 64, 40]);
    assert_eq!(error(Level::Raid0, found, 8, 3, sizes), E::Raid0LayoutUnknown { found });
    assert_eq!(error(Level::Raid0, 1, 8, 3, members(&[80, 40])), E::MemberSizes { expected: 3, found: 2 });
    let (slot, min, found) = (MemberIx(1), Sector(8), Sector(7));
    assert_eq!(error(Level::Raid0, 1, 8, 2, members(&[80, 7])), E::MemberTooSmall { slot, min, found });
    assert_eq!(
        error(Level::Raid1, 0, 0, 2, component(0)),
        E::ComponentTooSmall { min: Sector(1), found: Sector(0) }
    );
    assert_eq!(
        error(Level::Raid10, 0x201, 8, 2, component(15)),
        E::ComponentTooSmall { min: Sector(16), found: Sector(15) }
    );
    let message = error(Level::Raid1, 0, 0, 2, component(u64::MAX)).to_string();
    assert_eq!(
        message,
        "component_size: at most 18014398509481983 sectors expected, found 18446744073709551615"
    );
    let message = error(Level::Raid5, 2, 8, 4, component(SECTORS_MAX.0)).to_string();
    assert!(message.starts_with("array size: at most"), "{message}");
}

/// Where the two layouts place every sector alike, none has to be known: one zone, a second one of
/// one member, zones that start at their first member.
#[test]
fn raid0_needs_a_layout_only_where_the_two_differ() {
    let sizes: [(&[u64], bool); 8] = [
        (&[44, 40], false),
        (&[80, 40], false),
        (&[40, 80], false),
        (&[40, 40, 80], false),
        (&[40, 80, 80], true),
        (&[80, 64, 40], true),
        (&[48, 80, 80], false),
        (&[40, 80, 80, 80], true),
    ];
    let members = |sizes: &[u64]| Sizes::Members(sizes.to_vec());
    for (sizes, differ) in sizes {
        let all: u64 = sizes.iter().map(|size| size / 8 * 8).sum();
        let of = |layout| Geometry::new(&params(Level::Raid0, layout, 8, sizes.len() as u32, members(sizes)));
        let runs = |geometry: &Geometry| {
            (0..all / 8).map(|chunk| geometry.map(Sector(chunk * 8))).collect::<Vec<_>>()
        };
        let (original, alternate) = (runs(&of(1).unwrap()), runs(&of(2).unwrap()));
        assert_eq!(original != alternate, differ, "{sizes:?}");
        assert_eq!(of(0).is_err(), differ, "{sizes:?}");
        assert!(of(0).is_err() || runs(&of(0).unwrap()) == original, "{sizes:?}");
    }
}

#[test]
fn layouts_are_called_what_mdadm_calls_them() {
    for (level, members, text, word) in [
        (Level::Raid0, 2, "original", 1),
        (Level::Raid0, 2, "alternate", 2),
        (Level::Raid5, 3, "ls", 2),
        (Level::Raid5, 3, "right-asymmetric", 1),
        (Level::Raid6, 4, "ra", 1),
        (Level::Raid6, 4, "ddf-N-continue", 10),
        (Level::Raid6, 4, "left-symmetric-6", 18),
        (Level::Raid10, 4, "n2", 0x102),
        (Level::Raid10, 4, "f2", 0x201),
        (Level::Raid10, 4, "o3", 0x10301),
        (Level::Raid10, 4, "near=2, far=2", 0x202),
        (Level::Raid10, 4, "offset=2, far-sets", 0x50201),
    ] {
        assert_eq!(parse_layout(level, members, text), Ok(word), "{level} {text}");
    }
    assert_eq!(layout_name(Level::Raid10, 0x102).as_deref(), Some("near=2"));
    assert_eq!(layout_name(Level::Raid10, 0x10201).as_deref(), Some("offset=2"));
    assert_eq!(layout_name(Level::Raid5, 6), None);
    let words = (0..21).map(|word| (Level::Raid5, word)).chain((0..21).map(|word| (Level::Raid6, word)));
    for (level, word) in words.chain((0..0x70000).step_by(3).map(|word| (Level::Raid10, word))) {
        if let Some(name) = layout_name(level, word) {
            let parsed = parse_layout(level, u32::MAX, &name);
            let copies = if level == Level::Raid10 { (word & 0xff) * (word >> 8 & 0xff) } else { 2 };
            let expected = if copies >= 2 {
                Ok(word)
            } else {
                Err(ParseLayoutError::Copies { copies, raid_disks: u32::MAX })
            };
            assert_eq!(parsed, expected, "{level} {word:#x} {name}");
        }
    }
    for text in ["", "n", "n0", "n256", "x2", "n2,", "near", "n2é", "far-sets"] {
        assert!(parse_layout(Level::Raid10, 4, text).is_err(), "{text}");
    }
    let too_many = ParseLayoutError::Copies { copies: 5, raid_disks: 4 };
    assert_eq!(parse_layout(Level::Raid10, 4, "n5"), Err(too_many));
    assert_eq!(parse_layout(Level::Raid4, 4, "ls"), Err(ParseLayoutError::Unknown { level: Level::Raid4 }));
    assert_eq!(
        [Level::Raid5, Level::Raid6, Level::Raid10, Level::Raid0].map(default_layout),
        [2, 2, 0x102, 1]
    );
}

/// Which losses are survived, for every set of lost members, against the copies of every chunk.
#[test]
fn survival_is_exact() {
    let arrays = [
        params(Level::Linear, 0, 0, 3, Sizes::Members(vec![8, 8, 8])),
        params(Level::Raid0, 1, 8, 3, Sizes::Members(vec![80, 80, 80])),
        params(Level::Raid1, 0, 0, 4, component(80)),
        params(Level::Raid5, 2, 8, 5, component(80)),
        params(Level::Raid6, 2, 8, 6, component(80)),
        params(Level::Raid10, 0x102, 8, 4, component(80)),
        params(Level::Raid10, 0x102, 8, 5, component(80)),
        params(Level::Raid10, 0x102, 8, 5, component(8)),
        params(Level::Raid10, 0x201, 8, 6, component(80)),
        params(Level::Raid10, 0x40201, 8, 6, component(80)),
        params(Level::Raid10, 0x10301, 8, 7, component(80)),
        params(Level::Raid10, 0x202, 8, 6, component(80)),
        params(Level::Raid10, 0x20201, 8, 3, component(80)),
    ];
    for params in arrays {
        let geometry = Geometry::new(&params).expect("valid");
        let members = params.raid_disks as u16;
        let mut always = usize::MAX;
        for mask in 0u32..1 << members {
            let lost: MemberSet = (0..members).filter(|slot| mask >> slot & 1 == 1).map(MemberIx).collect();
            let survives = match geometry.kind() {
                LevelKind::Parity => lost.len() <= if params.level == Level::Raid6 { 2 } else { 1 },
                _ => naive::places(&params)
                    .iter()
                    .all(|copies| copies.iter().any(|copy| !lost.contains(MemberIx(copy.0 as u16)))),
            };
            assert_eq!(geometry.survives(&lost), survives, "{params:?} without {lost:?}");
            if !survives {
                always = always.min(lost.len() - 1);
            }
        }
        assert_eq!(geometry.redundancy(), always, "{params:?}");
    }
}

#[test]
fn another_kind_of_map_is_refused() {
    let geometry = Geometry::new(&params(Level::Raid5, 2, 8, 4, component(80))).expect("valid");
    let refused = |call: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err();
    assert!(refused(&|| drop(geometry.copies(Sector(0)))));
    assert!(refused(&|| {
        let _ = geometry.map(Sector(0));
    }));
    assert!(refused(&|| {
        let _ = geometry.locate(geometry.array_sectors());
    }));
    assert!(refused(&|| {
        let _ = geometry.stripe(StripeNo(geometry.stripes()));
    }));
    assert_eq!(geometry.hazard(), None::<Hazard>);
}
