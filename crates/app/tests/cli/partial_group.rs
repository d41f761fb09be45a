//! A volume group of which a drive is gone: which volumes are whole, how much of the others is
//! lost, and which files that costs.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::copied::{PHOTOS, image, judge, photo, place};
use crate::harness::{Room, run};
use crate::lvm::lvm;

const EXTENT: u64 = 256 << 10;
/// Where extents begin on a physical volume.
const START: u64 = 1 << 20;

#[test]
fn files_that_do_not_need_a_missing_drive_come_out_and_the_others_are_named() {
    let room = Room::new();
    let Some(image) = image(&room, "ext4") else { return };
    let content = fs::read(&image).unwrap();
    fs::remove_file(&image).unwrap();
    // The cut is in the photos.
    let cut = place(&content, &photo(8)) / EXTENT + 1;
    let extents = content.len() as u64 / EXTENT;
    let first = room.device("a", START + cut * EXTENT);
    let second = room.device("b", START + (extents - cut + 8) * EXTENT);
    let both = [first.clone(), second.clone()];
    lvm(&room, "vg create vg -s 256K", &both).ok();
    lvm(&room, &format!("lv create vg/photos -l {cut} --on {first}"), &both).ok();
    lvm(&room, &format!("lv extend vg/photos -l {extents} --on {second}"), &both).ok();
    lvm(&room, &format!("lv create vg/whole -l 4 --on {second}"), &both).ok();
    let (one, other) = content.split_at((cut * EXTENT) as usize);
    for (member, part) in [(&first, one), (&second, other)] {
        File::options().write(true).open(member).unwrap().write_all_at(part, START).unwrap();
    }
    let cat = |words: &[&str], members: &[String]| {
        run(["cat"].iter().chain(words).map(|word| (*word).to_owned()).chain(members.iter().cloned()))
    };
    assert!(cat(&["-V", "vg/photos"], &both).ok().stdout == content, "extents lie elsewhere");

    fs::remove_file(&second).unwrap();
    let scan = room.untouched(|| run(["scan", &first]));
    let lost = "partly on missing physical volumes (";
    assert!(scan.text().contains(lost), "expected `{lost}`: {}", scan.text());
    let report = run(["scan", "--json", &first]).json();
    let volume = |name: &str| {
        let volumes = report["volumes"].as_array().unwrap();
        volumes.iter().find(|volume| volume["name"] == name).unwrap().clone()
    };
    let photos = volume("vg/photos");
    assert_eq!(
        (&photos["partial"], &photos["lost_bytes"]),
        (&true.into(), &((extents - cut) * EXTENT).into())
    );
    assert_eq!(volume("vg/whole")["lost_bytes"], 4 * EXTENT, "it lies behind the other one");

    let (to, out) = (room.name("out"), room.path("out"));
    let said = room.untouched(|| run(["get", "-V", "vg/photos", "--to", &to, &first]));
    let (wrong, missing) = judge(&out);
    let there = fs::read_dir(&out).unwrap().count();
    assert_eq!(wrong, 0, "{}", said.stderr);
    assert!((1..PHOTOS).contains(&missing) && there > 0, "{missing} missing: {}", said.stderr);
    let named = (1..=PHOTOS).filter(|number| said.stderr.contains(&format!("not extracted: photo{number}:")));
    assert_eq!(named.count(), missing, "{}", said.stderr);
    said.failed(1, "WTL-0143", &["on physical volumes that are missing"]);
}

#[test]
fn an_older_copy_of_a_drive_is_told_of_and_not_read() {
    let room = Room::new();
    let files = [room.device("a", 16 << 20), room.device("b", 16 << 20)];
    lvm(&room, "vg create vg -s 1M", &files).ok();
    let copy = room.name("copy");
    fs::copy(&files[1], &copy).unwrap();
    lvm(&room, &format!("lv create vg/first -l 4 --on {}", files[0]), &files).ok();
    lvm(&room, &format!("lv create vg/second -l 4 --on {}", files[1]), &files).ok();
    let told = &["copy", "older text", "--force=older-physical"][..];
    let told_by_scan = [told, &["metadata area 1 of"]].concat();
    run(["scan", &files[0], &copy]).failed(3, "WTL-0187", &told_by_scan);
    run(["cat", "-V", "vg/first", &files[0], &copy]).ok();
    run(["cat", "-V", "vg/second", &files[0], &copy]).failed(3, "WTL-0187", told);
    let forced = run(["cat", "-V", "vg/second", "--force=older-physical", &files[0], &copy]);
    let forced = forced.ok();
    assert!(forced.stderr.contains("may be out of date"), "{}", forced.stderr);
    let why = run(["why", &files[0], &copy]);
    assert!(why.text().contains("WTL-0187"), "{}", why.text());
    let mixed = [files[0].clone(), copy.clone()];
    room.untouched(|| lvm(&room, "lv create vg/third -l 1", &mixed)).failed(3, "WTL-0187", &[]);
}

#[test]
fn partitions_that_are_not_used_have_their_reason_beside_them() {
    let room = Room::new();
    let disk = room.device("disk", 1 << 20);
    let mut mbr = [0; 512];
    for (entry, start, len) in [(446, 64_u32, 32_u32), (462, 128, 4096)] {
        mbr[entry + 4] = 0x83;
        mbr[entry + 8..entry + 12].copy_from_slice(&start.to_le_bytes());
        mbr[entry + 12..entry + 16].copy_from_slice(&len.to_le_bytes());
    }
    mbr[510..].copy_from_slice(&[0x55, 0xAA]);
    File::options().write(true).open(&disk).unwrap().write_all_at(&mbr, 0).unwrap();
    run(["scan", &disk]).failed(1, "WTL-0063", &["partition 2 is not used"]);
    let scan = run(["scan", &disk]);
    assert!(scan.text().contains("copy the drive again, whole"), "{}", scan.text());
    for command in ["why", "examine"] {
        let said = run([command, &disk]);
        assert!(said.text().contains("WTL-0063"), "{command}: {}", said.text());
    }
    let report: serde_json::Value = serde_json::from_slice(&run(["scan", "--json", &disk]).stdout).unwrap();
    assert_eq!(report["members"][0]["unused_partitions"][0]["code"], "WTL-0063");
}
