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
