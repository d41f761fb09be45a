//! Changes of volume groups as values: what comes of each, that no extent ever has two owners, and
//! what is refused.

use wattle_control::lvm::edit::{
    NewLv, NewPv, add_physical, create_group, create_volume, export_group, extend_volume, reduce_volume,
    remove_physical, remove_volume, rename_group, rename_volume, resize_physical, stripes_of,
};
use wattle_control::lvm::flags::{VolumeFlagChanges, set_flags};
use wattle_control::{Code, Problem};
use wattle_format::lvm::{Id, SegmentKind, Stamp, Vg};

fn id(seed: u8) -> Id {
    Id::from_random([seed; 32])
}

fn stamp() -> Stamp {
    Stamp { description: "test".to_owned(), host: "here".to_owned(), time: 1 }
}

fn pv(seed: u8, pe_count: u64) -> NewPv {
    NewPv {
        id: id(seed),
        device: format!("/dev/{seed}"),
        dev_sectors: 1 << 30,
        pe_start: 2048,
        pe_count,
        block_bytes: 512,
    }
}

/// Three physical volumes of 100 extents.
fn group() -> Vg {
    create_group("vg", id(0), 8192, &[pv(1, 100), pv(2, 100), pv(3, 100)]).unwrap()
}

fn create(vg: &Vg, name: &str, seed: u8, extents: u64, stripes: usize) -> Vg {
    let new = NewLv { name, id: id(seed), extents, at_most: false, stripes, stripe_sectors: 128, on: &[] };
    let vg = create_volume(vg, &new, &stamp()).unwrap();
    sound(&vg)
}

/// Without problems, and the same when it was written and read.
fn sound(vg: &Vg) -> Vg {
    assert_eq!(vg.problems(), []);
    let read = Vg::parse(&vg.to_text(&stamp())).unwrap();
    assert_eq!(read.to_text(&stamp()), vg.to_text(&stamp()));
    read
}

#[test]
fn a_striped_volume_grows_and_shrinks_by_whole_stripes() {
    let vg = create(&group(), "s", 10, 6, 3);
    assert_eq!(stripes_of(vg.lv("s").unwrap()), 3);
    let grown = sound(&extend_volume(&vg, "s", (12, false), &[]).unwrap());
    assert_eq!(
        (grown.seqno, grown.lv("s").unwrap().segments.len()),
        (3, 1),
        "right behind, so it is one segment"
    );
    // What is behind it on one device is taken now, so that it goes on elsewhere.
    let blocked = create(&grown, "between", 11, 1, 1);
    let apart = sound(&extend_volume(&blocked, "s", (18, false), &[]).unwrap());
    let s = apart.lv("s").unwrap();
    assert_eq!((s.extents(), s.segments.len()), (18, 2));
    for (asked, left) in [(17, 18), (13, 15), (12, 12), (4, 6), (1, 3)] {
        match reduce_volume(&apart, "s", asked) {
            Ok(reduced) => {
                let reduced = sound(&reduced);
                assert_eq!(reduced.lv("s").unwrap().extents(), left, "{asked}");
                assert!(reduced.lv("s").unwrap().segments.iter().all(|segment| segment.extents % 3 == 0));
            }
            Err(refused) => assert_eq!((refused.code, left), (Code::BadVolume, 18), "{asked}"),
        }
    }
    assert!(reduce_volume(&apart, "s", 0).is_err());
    assert!(reduce_volume(&apart, "s", 18).is_err());
}

#[test]
fn extents_of_volumes_that_go_are_free_again_and_others_stay_put() {
    let mut vg = group();
    for (seed, name) in (10..).zip(["a", "b", "c"]) {
        vg = create(&vg, name, seed, 30, 1);
    }
    let before = vg.lv("c").unwrap().segments.clone();
    let without = sound(&remove_volume(&vg, "b").unwrap());
    assert_eq!(without.lv("c").unwrap().segments, before);
    assert_eq!(without.free_extents("pv0").iter().map(|run| run.end - run.start).sum::<u64>(), 40);
    let renamed = sound(&rename_volume(&without, "c", "b").unwrap());
    assert_eq!(renamed.lv("b").unwrap().segments, before);
    assert_eq!(rename_volume(&without, "c", "a").unwrap_err().code, Code::NameInUse);
    assert_eq!(rename_volume(&without, "c", "a/b").unwrap_err().code, Code::BadVolume);
}

#[test]
fn a_physical_volume_with_extents_in_use_stays_and_keeps_them() {
    let vg = create(&group(), "a", 10, 150, 1);
    assert_eq!(remove_physical(&vg, &id(1), &"pv").unwrap_err().code, Code::VolumeInUse);
    let smaller = sound(&remove_physical(&vg, &id(3), &"pv").unwrap());
    assert_eq!(smaller.pvs.len(), 2);
    let again = sound(&add_physical(&smaller, &[pv(4, 10)]).unwrap());
    assert_eq!(again.pvs[2].name, "pv2", "a name that is free again");
    assert_eq!(add_physical(&smaller, &[pv(1, 10)]).unwrap_err().code, Code::VolumeInUse);
    assert_eq!(add_physical(&smaller, &[pv(5, 0)]).unwrap_err().code, Code::TooSmall);

    assert_eq!(resize_physical(&vg, &id(2), 1 << 20, 49).unwrap_err().code, Code::VolumeInUse);
    let resized = sound(&resize_physical(&vg, &id(2), 1 << 20, 50).unwrap());
    assert_eq!((resized.pvs[1].pe_count, resized.pvs[1].dev_sectors), (50, Some(1 << 20)));
    assert_eq!(create_group("vg", id(0), 3, &[pv(1, 1)]).unwrap_err().code, Code::BadVolume);
    assert_eq!(create_group("v g", id(0), 8192, &[pv(1, 1)]).unwrap_err().code, Code::BadVolume);
}

#[test]
fn what_is_said_of_a_volume_is_said_in_lvms_words() {
    let vg = create(&group(), "a", 10, 4, 1);
    let set = |vg: &Vg, flags: VolumeFlagChanges| set_flags(vg, "a", flags).map(|vg| sound(&vg));
    let words = |vg: &Vg| {
        let lv = vg.lv("a").unwrap();
        (lv.status.join(" "), lv.flags.join(" "))
    };
    let all = VolumeFlagChanges { read_only: Some(true), skipped: Some(true), by_itself: Some(false) };
    let said = set(&vg, all).unwrap();
    assert_eq!(words(&said), ("READ VISIBLE".to_owned(), "ACTIVATION_SKIP NOAUTOACTIVATE".to_owned()));
    assert_eq!(set(&said, all).unwrap_err().code, Code::BadVolume, "it says so already");
    let one = VolumeFlagChanges { skipped: Some(false), ..VolumeFlagChanges::default() };
    assert_eq!(words(&set(&said, one).unwrap()).1, "NOAUTOACTIVATE");
    let none = VolumeFlagChanges { read_only: Some(false), skipped: Some(false), by_itself: Some(true) };
    let unsaid = set(&said, none).unwrap();
    assert_eq!(words(&unsaid), words(&vg));
    assert_eq!(set_flags(&vg, "b", all).unwrap_err().code, Code::NoSuchVolume);
    let mut locked = said.clone();
    locked.lvs[0].flags.push("WRITE_LOCKED".to_owned());
    assert_eq!(set(&locked, none).unwrap_err().code, Code::NotSupportedYet);
}

#[test]
fn exported_is_said_of_the_group_and_of_each_physical_volume() {
    let exported = sound(&export_group(&group(), true).unwrap());
    let says = |words: &[String]| words.iter().any(|word| word == "EXPORTED");
    assert!(says(&exported.status) && exported.pvs.iter().all(|pv| says(&pv.status)));
    let imported = sound(&export_group(&exported, false).unwrap());
    assert!(!says(&imported.status) && imported.pvs.iter().all(|pv| !says(&pv.status)));
}

/// A text with what wattle does not write itself: a raid1 of hidden parts, a snapshot.
#[test]
fn volumes_of_other_kinds_and_their_parts_are_left_alone() {
    let mut vg = create(&create(&group(), "origin", 10, 4, 1), "cow", 11, 4, 1);
    let mut tie = vg.lv("cow").unwrap().clone();
    tie.name = "snapshot0".to_owned();
    tie.id = id(12);
    // LVM2 hides the store, and shows what ties it to its origin: the snapshot goes by the name of
    // the store.
    vg.lvs[1].status.retain(|word| word != "VISIBLE");
    tie.segments[0].kind = SegmentKind::Snapshot {
        origin: "origin".to_owned(),
        store: "cow".to_owned(),
        chunk_sectors: 8,
        merging: false,
    };
    vg.lvs.push(tie);
    assert_eq!(vg.problems(), []);
    for name in ["origin", "cow"] {
        assert_eq!(remove_volume(&vg, name).unwrap_err().code, Code::VolumeInUse, "{name}");
        assert_eq!(reduce_volume(&vg, name, 1).unwrap_err().code, Code::VolumeInUse, "{name}");
        assert_eq!(extend_volume(&vg, name, (9, false), &[]).unwrap_err().code, Code::VolumeInUse, "{name}");
    }
    assert_eq!(remove_volume(&vg, "snapshot0").unwrap_err().code, Code::NoSuchVolume, "hidden");
    let mut mirror = vg.clone();
    mirror.lvs.retain(|lv| lv.name == "origin");
    let SegmentKind::Striped { stripes, .. } = mirror.lvs[0].segments[0].kind.clone() else {
        panic!("linear")
    };
    mirror.lvs[0].segments[0].kind =
        SegmentKind::Mirror { legs: stripes, log: None, region_sectors: None, extents_moved: None };
    assert_eq!(reduce_volume(&mirror, "origin", 1).unwrap_err().code, Code::NotSupportedYet);
}

/// LVM2 would write no other text of such a group, or count its extents wrong.
#[test]
fn what_lvm_could_not_go_on_with_is_refused() {
    let refused = |done: Result<Vg, Problem>, words: &str| {
        let problem = done.unwrap_err();
        assert_eq!(problem.code, Code::BadVolume, "{problem:?}");
        assert!(format!("{problem:?}").contains(words), "{problem:?}");
    };
    // 125 characters for both names.
    let name = "v".repeat(123);
    let vg = create(&group(), &name, 10, 1, 1);
    let new = |name: &str| {
        let new =
            NewLv { name, id: id(11), extents: 1, at_most: false, stripes: 1, stripe_sectors: 0, on: &[] };
        create_volume(&vg, &new, &stamp())
    };
    refused(new(&"w".repeat(124)), "125");
    refused(rename_volume(&vg, &name, &"w".repeat(124)), "125");
    refused(rename_group(&vg, "vgs"), "125");
    assert!(rename_group(&vg, "gv").is_ok());
    refused(new("a_cvol"), "LVM2 calls parts");
    // Extents are counted in 32 bits, in all.
    let half = 1 << 31;
    refused(create_group("vg", id(0), 8, &[pv(1, half), pv(2, half)]), "4294967295");
    let vg = create_group("vg", id(0), 8, &[pv(1, half), pv(2, half - 1)]).unwrap();
    refused(add_physical(&vg, &[pv(3, 1)]), "4294967295");
    refused(resize_physical(&vg, &id(2), 1 << 40, half), "4294967295");
    // A block of a drive belongs to one volume.
    let large = |seed: u8| NewPv { block_bytes: 4096, ..pv(seed, 100) };
    refused(create_group("vg", id(0), 2, &[pv(1, 100), large(2)]), "4096");
    let vg = create_group("vg", id(0), 2, &[pv(1, 100)]).unwrap();
    refused(add_physical(&vg, &[large(2)]), "4096");
    assert!(create_group("vg", id(0), 8, &[large(1)]).is_ok());
}
