//! What a drive holds, and which group it is in, whatever its label and its name look like: nothing
//! is taken that is another's.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use wattle_format::lvm::Label;

use crate::growing::order;
use crate::harness::{Room, Said, Serve, require, run};
use crate::lvm::{Loop, judge};
use crate::undo::{log_of, saving};

const MIB: u64 = 1 << 20;

/// A command on members, with backups in the room.
fn on(room: &Room, words: &str, members: &[&str]) -> Said {
    let backups = room.name("backups");
    run(words.split_whitespace().chain(["--backup-dir", &backups, "--no-undo"]).chain(members.to_vec()))
}

fn put(name: &str, bytes: &[u8], offset_bytes: u64) {
    File::options().write(true).open(name).unwrap().write_all_at(bytes, offset_bytes).unwrap();
}

/// As labels of LVM2 before 2.02.99 are: they do not say whether they are in a group.
fn make_label_old(name: &str) {
    let mut label = Label::find(&fs::read(name).unwrap()[..2048]).unwrap().unwrap();
    label.extension = None;
    put(name, &label.encode().unwrap(), label.sector * 512);
}

/// A partition of Linux's in sector 0, as fdisk makes it. The label in sector 1 stays.
fn partition(name: &str) {
    let mut table = [0; 512];
    table[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 0, 2, 0, 0, 8, 0, 0, 0, 0xf8, 0, 0]);
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    put(name, &table, 0);
}

#[test]
fn a_server_takes_no_drive_of_another_group_whatever_its_label_says() {
    let room = Room::new();
    let [a, x] = ["a", "x"].map(|name| room.device(name, 32 * MIB));
    on(&room, "vg create srv -s 1M", &[&a]).ok();
    on(&room, "lv create srv/own -l 1", &[&a]).ok();
    on(&room, "vg create other -s 1M", &[&x]).ok();
    on(&room, "lv create other/keep -l 20", &[&x]).ok();
    make_label_old(&x);
    let before = fs::read(&x).unwrap();
    let serve = Serve::start(&room, &[], &[&a]);
    for force in ["", " --force=signature"] {
        let refused = order(&room, &serve, &format!("vg extend srv --on {x}{force}"));
        refused.failed(3, "WTL-0132", &["belongs to other and holds keep"]);
    }
    serve.stop();
    assert!(fs::read(&x).unwrap() == before);
}

#[test]
fn what_was_put_beside_the_label_of_an_unused_physical_volume_is_not_taken() {
    let room = Room::new();
    let [a, x] = ["a", "x"].map(|name| room.device(name, 32 * MIB));
    on(&room, "vg create srv -s 1M", &[&a]).ok();
    on(&room, "lv create srv/own -l 1", &[&a]).ok();
    on(&room, "pv create", &[&x]).ok();
    partition(&x);
    let before = fs::read(&x).unwrap();
    let extend = format!("vg extend srv --on {x}");
    on(&room, &extend, &[&a, &x]).failed(3, "WTL-0080", &["MBR"]);
    on(&room, &format!("vg create new --on {x}"), &[&x]).failed(3, "WTL-0080", &["MBR"]);
    let serve = Serve::start(&room, &[], &[&a]);
    order(&room, &serve, &extend).failed(3, "WTL-0080", &["MBR"]);
    assert!(fs::read(&x).unwrap() == before);
    order(&room, &serve, &format!("{extend} --force=signature")).ok();
    serve.stop();
    assert_eq!(fs::read(&x).unwrap()[510..512], [0; 2]);
    // One with nothing beside it joins as it is.
    let y = room.device("y", 32 * MIB);
    on(&room, "pv create", &[&y]).ok();
    make_label_old(&y);
    let id = |name: &str| Label::find(&fs::read(name).unwrap()[..2048]).unwrap().unwrap().id;
    let before = id(&y);
    on(&room, "vg extend srv", &[&a, &x, &y]).ok();
    assert_eq!(id(&y), before);
}

/// A removal that was cut short left the other drive's text, which still names this one.
#[test]
fn a_removal_that_is_completed_does_not_take_a_drive_that_is_used_again() {
    let room = Room::new();
    let [a, b, old] = ["a", "b", "old"].map(|name| room.device(name, 32 * MIB));
    on(&room, "vg create old -s 1M", &[&a, &b]).ok();
    fs::copy(&b, &old).unwrap();
    on(&room, "vg remove old", &[&a, &b]).ok();
    fs::copy(&old, &b).unwrap();
    on(&room, "vg create other -s 1M", &[&a]).ok();
    on(&room, "lv create other/p -l 5", &[&a]).ok();
    let before = fs::read(&a).unwrap();
    on(&room, "vg remove old", &[&a, &b]).failed(1, "WTL-0123", &["missing"]);
    on(&room, &format!("vg reduce old --on {a}"), &[&a, &b]).failed(1, "WTL-0123", &["missing"]);
    on(&room, "lv create old/x -l 3", &[&a, &b]).failed(1, "WTL-0123", &["missing"]);
    assert!(fs::read(&a).unwrap() == before);
    on(&room, "lv create other/q -l 5", &[&a, &b]).ok();
    let listed = run(["vg", "list", &a, &b]).ok();
    assert!(listed.stderr.contains("belongs to the group other now"), "{}", listed.stderr);
    assert!(listed.stderr.contains("old: physical volumes are missing"), "{}", listed.stderr);
}

/// In the group's text the first one is pv0.
#[test]
fn a_physical_volume_is_named_by_what_it_is_on() {
    let room = Room::new();
    let [pv0, pv1] = ["pv0", "pv1"].map(|name| room.device(name, 32 * MIB));
    on(&room, "vg create data -s 1M", &[&pv1, &pv0]).ok();
    on(&room, "lv create data/x -l 4 --on pv0", &[&pv0, &pv1]).ok();
    let devices = || {
        let listed = run(["lv", "list", "--noheadings", "-o", "devices", &pv0, &pv1]).ok();
        listed.text().trim().to_owned()
    };
    assert!(devices().contains("/pv0(0)"), "{}", devices());
    on(&room, "lv move data --from pv0", &[&pv0, &pv1]).ok();
    assert!(devices().contains("/pv1(0)"), "{}", devices());
    let reduced = on(&room, "vg reduce data --on pv0", &[&pv0, &pv1]).ok();
    assert!(reduced.text().contains("/pv0"), "{}", reduced.text());
    on(&room, "pv remove", &[&pv0]).ok();
}

#[test]
fn a_metadata_area_behind_the_data_is_not_made_extents() {
    if !require("lvm") || !require("losetup") {
        return;
    }
    let room = Room::new();
    let a = room.device("a", 64 * MIB);
    let conf = room.path("lvm");
    fs::create_dir(&conf).unwrap();
    let files = [a.clone()];
    if judge(&conf, &files, &format!("pvcreate --pvmetadatacopies 2 {a}")).is_none() {
        return;
    }
    judge(&conf, &files, &format!("vgcreate -s 1m vg {a}")).unwrap();
    let count = || judge(&conf, &files, "pvs --noheadings -o pv_pe_count").unwrap().concat();
    let before = count();
    on(&room, "pv resize", &[&a]).ok();
    assert_eq!(count(), before);
    judge(&conf, &files, &format!("pvresize {a}")).unwrap();
    assert_eq!(count(), before);
}

/// On files it needs none.
#[test]
fn a_group_on_block_devices_is_changed_under_the_lock_of_lvm2() {
    let dir = Path::new("/run/lock/lvm");
    if !require("losetup") || !dir.is_dir() {
        return;
    }
    let room = Room::new();
    let a = room.device("a", 32 * MIB);
    let name = format!("locked{}", std::process::id());
    on(&room, &format!("vg create {name} -s 1M"), &[&a]).ok();
    let path = dir.join(format!("V_{name}"));
    let Ok(theirs) = File::options().create(true).append(true).open(&path) else { return };
    theirs.lock().unwrap();
    on(&room, &format!("lv create {name}/one -l 1"), &[&a]).ok();
    let Some(device) = Loop::new(&a) else { return };
    let before = fs::read(&a).unwrap();
    on(&room, &format!("lv create {name}/two -l 1"), &[&device.0]).failed(3, "WTL-0026", &["LVM2", &name]);
    assert!(fs::read(&a).unwrap() == before);
    fs::remove_file(&path).unwrap();
    drop(theirs);
    on(&room, &format!("lv create {name}/two -l 1"), &[&device.0]).ok();
    assert!(!path.exists());
    // Nor is one taken back beside a command of LVM2's.
    let members = [device.0.clone()];
    let made = saving(&room, &format!("lv create {name}/three -l 1"), &members).ok();
    let undo = format!("undo {}", log_of(&made));
    let theirs = File::options().create(true).append(true).open(&path).unwrap();
    theirs.lock().unwrap();
    let before = fs::read(&a).unwrap();
    saving(&room, &undo, &members).failed(3, "WTL-0026", &["LVM2", &name]);
    assert!(fs::read(&a).unwrap() == before);
    fs::remove_file(&path).unwrap();
    drop(theirs);
    saving(&room, &undo, &members).ok();
    assert!(!path.exists());
}
