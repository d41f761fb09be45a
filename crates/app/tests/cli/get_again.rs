//! `get` into a directory in which something is already, from what is damaged, and onto a disk that
//! is full: what came out before stays, and what did not come out is named.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::copied::{PHOTOS, image, judge, lose, photo, place};
use crate::harness::{Room, run, tool};

fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    entries.map(|name| name.into_string().unwrap()).collect()
}

/// A file that decayed since it came out is not given up for what is left of it.
#[test]
fn what_came_out_before_is_replaced_only_by_what_is_whole() {
    let room = Room::new();
    let Some(image) = image(&room, "ext4") else { return };
    let (to, out) = (room.name("out"), room.path("out"));
    run(["get", "--to", &to, &image]).ok();
    let (before, whole) = (names(&out), fs::read(&image).unwrap());
    let at = place(&whole, &photo(9)[8192..]);
    lose(&image, std::slice::from_ref(&(at..at + 512)));
    fs::write(out.join("photo2"), "another").unwrap();
    let said = run(["get", "--to", &to, "--overwrite", &image]);
    said.failed(1, "WTL-0143", &["not extracted: photo9: bytes 8192 to 12287 of it", "--partial"]);
    assert_eq!(judge(&out), (0, 0), "photo9 is lost, or photo2 was not replaced");
    assert_eq!(names(&out), before, "something was left behind");
    // It is not what a failure recommends.
    let said = run(["get", "--to", &to, &image]);
    assert!(!said.stderr.contains("--overwrite"), "{}", said.stderr);
    said.failed(1, "WTL-0143", &["photo2: something of that name is there already"]);
    assert_eq!(names(&out), before);
}

#[test]
fn what_is_there_and_the_same_is_not_read_again() {
    let room = Room::new();
    let Some(image) = image(&room, "ext4") else { return };
    let (to, out, sums) = (room.name("out"), room.path("out"), room.name("sums"));
    run(["get", "--to", &to, &image]).ok();
    let inode = |name: &str| fs::metadata(out.join(name)).unwrap().ino();
    let before = inode("photo3");
    fs::remove_file(out.join("photo5")).unwrap();
    let said = run(["get", "--to", &to, "--resume", "--json", &image]).ok();
    let report = said.json();
    assert_eq!((&report["files"], &report["kept"]), (&PHOTOS.into(), &(PHOTOS - 1).into()));
    assert_eq!((inode("photo3"), judge(&out)), (before, (0, 0)));
    // Its size and time are the same, its content is not: that is told where sums are wanted.
    let time = fs::metadata(out.join("photo3")).unwrap().modified().unwrap();
    let mut other = photo(3);
    other[77] ^= 1;
    fs::write(out.join("photo3"), other).unwrap();
    fs::File::options().write(true).open(out.join("photo3")).unwrap().set_modified(time).unwrap();
    run(["get", "--to", &to, "--resume", &image]).ok();
    let said = run(["get", "--to", &to, "--resume", "--checksums", &sums, &image]);
    said.failed(1, "WTL-0143", &["photo3: what has its name already is not the same"]);
    assert_eq!(judge(&out), (1, 0));
    run(["get", "--to", &to, "--resume", "--overwrite", "--checksums", &sums, &image]).ok();
    assert_eq!(judge(&out), (0, 0));
    let check = Command::new("sha256sum").args(["-c", "--quiet", &sums]).current_dir(&out).status().unwrap();
    assert!(check.success() && fs::read_to_string(&sums).unwrap().lines().count() == PHOTOS);
}

/// What can be read of a damaged file comes out under another name, with what is missing.
#[test]
fn a_damaged_file_comes_out_in_part_under_another_name() {
    let room = Room::new();
    let Some(image) = image(&room, "ext4") else { return };
    let (to, out) = (room.name("out"), room.path("out"));
    let whole = fs::read(&image).unwrap();
    let first = place(&whole, &photo(9)[8192..]);
    let second = place(&whole, &photo(9)[200_704..]);
    lose(&image, &[first..first + 512, second..second + 8192]);
    let said = run(["get", "--to", &to, "--partial", "--json", &image]);
    let failure = said.json()["not_extracted"][0].clone();
    said.failed(
        1,
        "WTL-0143",
        &["extracted in part: photo9: 12288 of its 270000 bytes are zeros in photo9.partial"],
    );
    assert_eq!((&failure["path"], &failure["partial"]["path"]), (&"photo9".into(), &"photo9.partial".into()));
    let unreadable = serde_json::json!([
        {"offset_bytes": 8192, "len_bytes": 4096}, {"offset_bytes": 200_704, "len_bytes": 8192}
    ]);
    assert_eq!(failure["partial"]["unreadable"], unreadable);
    let mut expected = photo(9);
    expected[8192..12288].fill(0);
    expected[200_704..208_896].fill(0);
    assert!(fs::read(out.join("photo9.partial")).unwrap() == expected);
    assert_eq!(judge(&out), (0, 1), "not under its own name");
    // Again: what came out in part is of the same file.
    run(["get", "--to", &to, "--partial", "--resume", &image]).failed(1, "WTL-0143", &["in part: photo9"]);
    assert!(fs::read(out.join("photo9.partial")).unwrap() == expected);
}

/// A small disk, unmounted in the end.
struct Disk<'a>(&'a Path);

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// What did not come out onto a disk that is full is named, all of it; with room, the rest comes.
#[test]
fn a_full_disk_is_said_with_what_is_still_missing() {
    let room = Room::new();
    let Some(image) = image(&room, "ext4") else { return };
    let dir = room.path("disk");
    fs::create_dir(&dir).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1M", "wattle"]).arg(&dir).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: a disk that is full takes the right to mount one");
        return;
    }
    let disk = Disk(&dir);
    let (to, out) = (room.name("disk/out"), dir.join("out"));
    // It is said before anything is written.
    let said = run(["get", "--to", &to, &image]);
    said.failed(3, "WTL-0201", &["1 MiB are free", "2.25 MiB are needed", "--force=space"]);
    assert_eq!(names(&out), BTreeSet::new());
    let said = run(["get", "--to", &to, "--json", "--force=space", &image]);
    let missing: BTreeSet<_> = said.json()["not_extracted"]
        .as_array()
        .unwrap()
        .iter()
        .map(|failure| failure["path"].as_str().unwrap().to_owned())
        .collect();
    said.failed(1, "WTL-0105", &["No space left on device", "--resume goes on", "not made: No space left"]);
    let (wrong, absent) = judge(&out);
    assert!(wrong == 0 && absent > 0 && absent < PHOTOS, "{absent}");
    for number in 1..=PHOTOS {
        let name = format!("photo{number}");
        assert_eq!(missing.contains(&name), !out.join(&name).exists(), "{name}: {missing:?}");
    }
    assert!(!names(&out).iter().any(|name| name.ends_with(".part")));
    tool("mount", ["-o", "remount,size=64M", dir.to_str().unwrap()]);
    run(["get", "--to", &to, "--resume", &image]).ok();
    assert_eq!(judge(&out), (0, 0));
    // What is there already takes no more room.
    tool("mount", ["-o", "remount,size=2500k", dir.to_str().unwrap()]);
    run(["get", "--to", &to, "--resume", &image]).ok();
    // Replaced, it does for a moment.
    let said = run(["get", "--to", &to, "--overwrite", &image]);
    said.failed(3, "WTL-0201", &["351.56 KiB are needed"]);
    tool("mount", ["-o", "remount,size=3M", dir.to_str().unwrap()]);
    run(["get", "--to", &to, "--overwrite", &image]).ok();
    assert_eq!(judge(&out), (0, 0));
    drop(disk);
}

/// Files as numerous as the disk has inodes, and not one more.
#[test]
fn a_disk_without_inodes_is_told_before_anything_is_written() {
    let room = Room::new();
    let Some(image) = image(&room, "ext4") else { return };
    let dir = room.path("disk");
    fs::create_dir(&dir).unwrap();
    let options = "size=64M,nr_inodes=8";
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "wattle"]).arg(&dir).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: a disk with few inodes takes the right to mount one");
        return;
    }
    let _disk = Disk(&dir);
    let said = run(["get", "--to", &room.name("disk/out"), &image]);
    said.failed(3, "WTL-0201", &["13 files are to be made, and 6 can be"]);
}

/// A directory that there is no room for is named with everything below it.
#[test]
fn what_lies_below_a_directory_without_room_is_named() {
    let room = Room::new();
    let mke2fs = "/usr/sbin/mke2fs";
    if !Path::new(mke2fs).exists() && !crate::harness::require(mke2fs) {
        return;
    }
    let (tree, image) = (room.path("files"), room.device("image", 8 << 20));
    for directory in 0..6 {
        let within = tree.join(format!("directory-{directory}/within"));
        fs::create_dir_all(&within).unwrap();
        for file in 0..3 {
            fs::write(within.join(format!("file-{file}")), "content").unwrap();
        }
    }
    tool(mke2fs, ["-qFtext4", "-d", tree.to_str().unwrap(), &image]);
    let dir = room.path("disk");
    fs::create_dir(&dir).unwrap();
    // Enough for `lost+found` and all of one directory.
    let options = "size=64M,nr_inodes=8";
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "wattle"]).arg(&dir).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: a disk with few inodes takes the right to mount one");
        return;
    }
    let _disk = Disk(&dir);
    let said = run(["get", "--to", &room.name("disk/out"), "--json", "--force=space", &image]);
    let missing: BTreeSet<_> = said.json()["not_extracted"]
        .as_array()
        .unwrap()
        .iter()
        .map(|failure| failure["path"].as_str().unwrap().to_owned())
        .collect();
    said.failed(1, "WTL-0105", &["No space left on device", "--resume goes on"]);
    for directory in 0..6 {
        for file in 0..3 {
            let path = format!("directory-{directory}/within/file-{file}");
            let is_there = dir.join("out").join(&path).exists();
            assert_eq!(missing.contains(&path), !is_there, "{path}: {missing:?}");
        }
    }
}

/// An extended attribute that cannot be read is a failure, into a directory and into an archive;
/// the file came out.
#[test]
fn an_attribute_that_cannot_be_read_is_a_failure() {
    let room = Room::new();
    let debugfs = "/usr/sbin/debugfs";
    let Some(image) = image(&room, "ext4") else { return };
    if !Path::new(debugfs).exists() && !crate::harness::require(debugfs) {
        return;
    }
    // Too large for the inode: it has a block, with a checksum.
    fs::write(room.path("value"), "v".repeat(600)).unwrap();
    let set = format!("ea_set -f {} /photo3 user.large", room.name("value"));
    tool(debugfs, ["-w", "-R", &set, &image]);
    let mut bytes = fs::read(&image).unwrap();
    let at = bytes.windows(600).position(|part| part.iter().all(|byte| *byte == b'v')).unwrap();
    bytes[at] = b'w';
    fs::write(&image, bytes).unwrap();
    let report = |name: &str| {
        let report: serde_json::Value = serde_json::from_slice(&fs::read(room.path(name)).unwrap()).unwrap();
        let photo3 = report["files"].as_array().unwrap().iter().filter(|file| file["path"] == "photo3");
        let photo3: Vec<_> = photo3.collect();
        assert_eq!(photo3.len(), 1, "{report:#}");
        assert_eq!(photo3[0]["state"], "whole");
        assert!(photo3[0]["attributes"][0].as_str().unwrap().contains("checksum"), "{report:#}");
        assert_eq!(report["totals"]["missing"], 0);
        assert_eq!(report["totals"]["whole"], 13);
        assert_eq!(report["exit"]["status"], 1);
    };
    let why = "not extracted as a whole: photo3: without extended attributes: ";
    for (to, name) in [(room.name("out"), "directory.json"), ("-".to_owned(), "archive.json")] {
        let said = run(["get", "--xattrs", "--to", &to, "--report", &room.name(name), &image]);
        said.failed(1, "WTL-0143", &[why]);
        report(name);
    }
    assert_eq!(judge(&room.path("out")), (0, 0));
    // Where they are not asked for, they do not come out anyhow.
    run(["get", "--to", &room.name("without"), &image]).ok();
}

/// A file that claims more than its file system holds, or an owner that is none, keeps no other one
/// from coming out.
#[test]
fn what_a_damaged_inode_claims_stops_nothing_else() {
    let room = Room::new();
    let Some(image) = image(&room, "ext4") else { return };
    let debugfs = "/usr/sbin/debugfs";
    if !Path::new(debugfs).exists() && !crate::harness::require(debugfs) {
        return;
    }
    for field in ["/photo3 size 0x10000000000", "/photo3 blocks 0x80000000", "/photo5 uid 0xffffffff"] {
        tool(debugfs, ["-w", "-R", &format!("set_inode_field {field}"), &image]);
    }
    let out = room.name("out");
    let said = run(["get", "--to", &out, &image]);
    assert!(!said.stderr.contains("WTL-0201"), "{}", said.stderr);
    if rustix::process::geteuid().is_root() {
        said.failed(1, "WTL-0143", &["not extracted as a whole: photo5: without its owner or group"]);
    }
    assert_eq!(fs::read(room.path("out").join("photo5")).unwrap(), photo(5));
    assert_eq!(fs::metadata(room.path("out").join("photo3")).unwrap().len(), 1 << 40);
}

/// A report has every file, what the copy lacks, and the reason of the exit status.
#[test]
fn a_report_says_what_became_of_everything() {
    let room = Room::new();
    let Some(image) = image(&room, "ext4") else { return };
    let (out, text, json) = (room.name("out"), room.name("report.txt"), room.name("report.json"));
    let said = run(["get", "--to", &out, "--report", &text, &image]).ok();
    assert!(!said.stderr.contains("in all:"), "{}", said.stderr);
    let report = fs::read_to_string(&text).unwrap();
    for line in [
        "wattle get: 13 whole, 0 in part, 0 missing",
        "exit status 0: everything came out as it is",
        "  whole    photo7",
        "  extended attributes, with ACLs, labels and capabilities (files that have some: 0)",
    ] {
        assert!(report.lines().any(|found| found == line), "{line}: {report}");
    }

    let whole = fs::read(&image).unwrap();
    let first = place(&whole, &photo(9)[8192..]);
    let inodes = place(&whole, &photo(5));
    lose(&image, &[first.min(inodes)..first.min(inodes) + 512, first.max(inodes)..first.max(inodes) + 512]);
    // A report that is there is not written over, and that is told before anything else is done.
    let said = run(["get", "--to", &room.name("none"), "--report", &text, &image]);
    said.failed(3, "WTL-0161", &["report.txt is there already"]);
    assert_eq!(names(&room.path("none")), BTreeSet::new());
    let out = room.name("again");
    let said = run(["get", "--to", &out, "--partial", "--report", &json, "--json", &image]);
    let printed = said.json()["loss"].clone();
    said.failed(1, "WTL-0143", &["extracted in part: photo9", "extracted in part: photo5"]);
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let totals = serde_json::json!({
        "whole": 11, "partial": 2, "missing": 0, "unreadable_bytes": 8192, "cut_off_bytes": 0, "with_attributes": 0
    });
    assert_eq!(report["totals"], totals);
    assert_eq!((&printed["totals"], printed["files"].as_array().unwrap().len()), (&totals, 2));
    let files = report["files"].as_array().unwrap();
    assert_eq!(files.len(), 13);
    let photo9 = files.iter().find(|file| file["path"] == "photo9").unwrap();
    assert_eq!(photo9["state"], "partial");
    assert_eq!(photo9["unreadable"], serde_json::json!([{"offset_bytes": 8192, "len_bytes": 4096}]));
    let member = &report["members"][0];
    assert_eq!((&member["unread_bytes"], &member["unread_places"]), (&1024.into(), &2.into()));
    assert_eq!((&report["exit"]["status"], &report["exit"]["code"]), (&1.into(), &"WTL-0143".into()));
    // What is read is never written over.
    for option in ["--report", "--checksums"] {
        let said = room.untouched(|| run(["get", "--to", &out, option, &image, "--overwrite", &image]));
        said.failed(3, "WTL-0161", &["copy.img"]);
    }
    run(["get", "--to", "-", "--path", "/photo1", "--report", &json, &image]).failed(
        2,
        "WTL-0001",
        &["--report"],
    );
}

/// A file system that is marked as damaged may lack files without a sign of them.
#[test]
fn what_may_be_missing_without_a_sign_ends_with_status_1() {
    let room = Room::new();
    let Some(image) = image(&room, "ext4") else { return };
    let debugfs = "/usr/sbin/debugfs";
    if !Path::new(debugfs).exists() && !crate::harness::require(debugfs) {
        return;
    }
    tool(debugfs, ["-w", "-R", "set_super_value state 3", &image]);
    let said = run(["get", "--to", &room.name("out"), "--json", &image]);
    let report = said.json();
    assert!(report["file_system"]["left_out"][0].as_str().unwrap().contains("marked as damaged"), "{report}");
    assert_eq!(report["loss"]["file_systems"][0]["left_out"], report["file_system"]["left_out"]);
    said.failed(1, "WTL-0200", &["marked as damaged"]);
    assert_eq!(judge(&room.path("out")), (0, 0));
    // A file that is asked for by its name is all there is of it.
    run(["get", "--to", &room.name("one"), "--path", "/photo3", &image]).ok();
}

/// Files whose extended attributes or ACLs do not come out are counted, and listed with the names.
#[test]
fn attributes_that_do_not_come_out_are_counted_and_listed() {
    let room = Room::new();
    let Some(image) = image(&room, "ext4") else { return };
    let debugfs = "/usr/sbin/debugfs";
    if !Path::new(debugfs).exists() && !crate::harness::require(debugfs) {
        return;
    }
    for command in [
        "ea_set /photo3 user.comment sunset",
        "ea_set /photo3 security.label secret",
        "ea_set /photo7 user.a b",
    ] {
        tool(debugfs, ["-w", "-R", command, &image]);
    }
    let (out, text) = (room.name("out"), room.name("report.txt"));
    let said = run(["get", "--to", &out, "--report", &text, "--json", &image]).ok();
    let loss = &said.json()["loss"];
    assert_eq!(loss["totals"]["with_attributes"], 2, "{loss:#}");
    let listed: Vec<_> =
        loss["files"].as_array().unwrap().iter().map(|file| (&file["path"], &file["attributes"])).collect();
    let names = serde_json::json!(["security.label", "user.comment"]);
    assert_eq!(listed.len(), 2, "{loss:#}");
    let photo3 = listed.iter().find(|(path, _)| *path == "photo3").unwrap();
    let mut found = photo3.1.as_array().unwrap().clone();
    found.sort_by_key(|name| name.as_str().unwrap().to_owned());
    assert_eq!(serde_json::Value::Array(found), names);
    let report = fs::read_to_string(&text).unwrap();
    for line in [
        "exit status 0: everything came out as it is, but for extended attributes (of files: 2)",
        "  extended attributes, with ACLs, labels and capabilities (files that have some: 2)",
        "  whole    photo7 (without its extended attributes: user.a)",
        "  whole    photo8",
    ] {
        assert!(report.lines().any(|found| found == line), "{line}: {report}");
    }
    let said = run(["get", "--to", &room.name("again"), &image]).ok();
    assert!(said.stderr.contains("without the extended attributes or ACLs of 2 of these"), "{}", said.stderr);
    if !crate::harness::require("getfattr") {
        return;
    }
    // Asked for, they come out; a former run's files get them too.
    let value = |name: &str, file: &str| {
        let path = room.path("again").join(file);
        tool("getfattr", ["--only-values", "-n", name, path.to_str().unwrap()])
    };
    let said = run(["get", "--xattrs", "--resume", "--to", &room.name("again"), "--json", &image]).ok();
    assert_eq!(said.json()["loss"]["totals"]["with_attributes"], 0, "{}", said.stderr);
    assert_eq!(value("user.comment", "photo3"), "sunset");
    assert_eq!(value("security.label", "photo3"), "secret");
    let other = room.name("other");
    run(["get", "--xattrs", "--to", &other, "--path", "/photo7", &image]).ok();
    assert_eq!(tool("getfattr", ["--only-values", "-n", "user.a", &format!("{other}/photo7")]), "b");
    run(["get", "--xattrs", "--to", "-", "--path", "/photo7", &image]).failed(2, "WTL-0001", &["--xattrs"]);
}

/// A file that a key or a backup is read from is not what comes out, whatever its name.
#[test]
fn keys_are_not_replaced_by_what_comes_out() {
    let room = Room::new();
    let Some(image) = image(&room, "ext4") else { return };
    let out = room.path("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("photo3"), "a passphrase").unwrap();
    let key = out.join("photo3").to_str().unwrap().to_owned();
    let said = run(["get", "--overwrite", "--to", out.to_str().unwrap(), "--passphrase-file", &key, &image]);
    assert_eq!(said.status, 1, "{said:?}");
    assert_eq!(fs::read(out.join("photo3")).unwrap(), b"a passphrase");
    assert!(out.join("photo7").exists());
}

/// What `btrfs subvolume set-default` chose is shown, as a mount would; that there are others is
/// told by the status, unless a subvolume was asked for.
#[test]
fn of_a_default_subvolume_it_is_told_that_there_are_others() {
    let room = Room::new();
    let mkfs = "/usr/sbin/mkfs.btrfs";
    if !Path::new(mkfs).exists() && !crate::harness::require(mkfs) {
        return;
    }
    let (image, at) = (room.device("image", 128 << 20), room.path("at"));
    tool(mkfs, ["-q", &image]);
    fs::create_dir(&at).unwrap();
    let mounted = Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at).status();
    if !mounted.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("CI").is_none(), "in CI file systems are mounted");
        eprintln!("SKIPPED: a default subvolume takes the right to mount");
        return;
    }
    {
        let _mounted = Disk(&at);
        for name in ["home", "other"] {
            tool("btrfs", ["subvolume", "create", at.join(name).to_str().unwrap()]);
            fs::write(at.join(name).join("file"), name).unwrap();
        }
        tool("btrfs", ["subvolume", "set-default", at.join("home").to_str().unwrap()]);
    }
    let out = |name: &str| room.name(name);
    let said = run(["get", "--to", &out("default"), "--json", &image]);
    let report = said.json();
    let said = said.failed(1, "WTL-0200", &["default subvolume", "--subvolume 5 shows all"]);
    assert_eq!(fs::read(room.path("default/file")).unwrap(), b"home", "{}", said.stderr);
    assert!(!room.path("default/home").exists());
    assert_eq!(report["loss"]["exit"]["code"], "WTL-0200", "{report:#}");
    assert!(report["loss"]["file_systems"][0]["left_out"][0].as_str().unwrap().contains("default subvolume"));
    // All of it, and the same one by its number: nothing is left out.
    run(["get", "--to", &out("all"), "--subvolume", "5", &image]).ok();
    assert_eq!(fs::read(room.path("all/other/file")).unwrap(), b"other");
    let listed = run(["ls", "--subvolume", "5", "--json", &image]).ok();
    assert!(listed.text().contains("other"));
    run(["get", "--to", &out("asked"), "--subvolume", "256", &image]).ok();
    assert_eq!(fs::read(room.path("asked/file")).unwrap(), b"home");
    // A file that is named is all there is of it.
    run(["get", "--to", &out("one"), "--path", "/file", &image]).ok();
}
