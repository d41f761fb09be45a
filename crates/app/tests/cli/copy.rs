//! `copy`: into a sparse file with a map, gone on with after an end of any kind, and never over
//! what is not its own.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::copied::lose_one;
use crate::get_durable::{Mounted, names};
use crate::harness::{Room, Said, require, run, said, tool, wattle};

const MIB: usize = 1 << 20;

fn copy(args: &[&str]) -> Said {
    run([&["copy"], args].concat())
}

/// Bytes that repeat nowhere, with a run of zeros after every eight MiB.
fn pattern(len: usize) -> Vec<u8> {
    let word = |ix: u64| ix.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    let mut bytes: Vec<u8> = (1..=len.div_ceil(8) as u64).flat_map(word).collect();
    bytes.truncate(len);
    for start in (8 * MIB..len).step_by(16 * MIB) {
        let end = (start + 8 * MIB).min(len);
        bytes[start..end].fill(0);
    }
    bytes
}

/// A drive of that content; its name.
fn drive(room: &Room, name: &str, bytes: &[u8]) -> String {
    fs::write(room.path(name), bytes).unwrap();
    room.name(name)
}

#[test]
fn an_array_and_one_with_a_member_missing() {
    let room = Room::new();
    let members = room.array("5", 4);
    let whole = run(["cat".to_owned()].into_iter().chain(members.clone())).ok().stdout;
    for (name, members) in [("whole", &members[..]), ("degraded", &members[1..])] {
        let to = room.name(name);
        let mut args: Vec<_> = members.iter().map(String::as_str).collect();
        args.extend(["--to", &to]);
        let said = copy(&args).ok();
        assert!(said.text().contains("data: 45 MiB of 45 MiB copied to "), "{}", said.text());
        assert!(fs::read(&to).unwrap() == whole, "{name}");
    }
}

#[test]
fn a_drive_as_it_is_with_holes_where_it_has_zeros() {
    let room = Room::new();
    // No whole number of sectors: an image made with `cat`.
    let bytes = pattern(40 * MIB + 777);
    let (from, to) = (drive(&room, "drive", &bytes), room.name("copy"));
    let report = copy(&["--raw", &from, "--to", &to, "--json"]).ok().json();
    assert_eq!(
        (report["copied_bytes"].as_u64(), report["missing_bytes"].as_u64()),
        (Some(bytes.len() as u64), Some(0))
    );
    assert!(fs::read(&to).unwrap() == bytes);
    let allocated = fs::metadata(&to).unwrap().blocks() * 512;
    assert!(allocated <= 25 * MIB as u64, "{allocated} bytes allocated");
    let map = fs::read_to_string(room.path("copy.map")).unwrap();
    assert!(map.ends_with("0x00000000  0x02800309  +\n"), "{map}");
    // Once more: there is nothing left to do.
    room.untouched(|| copy(&["--raw", &from, "--to", &to]).ok());
}

/// A file of other origin, a member under its own or another name, a directory: none of
/// them may change.
#[test]
fn a_link_where_the_maps_draft_goes_is_not_followed() {
    let room = Room::new();
    let bytes = pattern(MIB);
    let (from, to, map) = (drive(&room, "drive", &bytes), room.name("copy"), room.name("map"));
    let precious = drive(&room, "precious", b"precious");
    std::os::unix::fs::symlink(&precious, format!("{map}.new")).unwrap();
    copy(&["--raw", &from, "--to", &to, "--map", &map]).ok();
    assert_eq!(fs::read(&precious).unwrap(), b"precious");
    assert!(fs::read(&to).unwrap() == bytes);
}

#[test]
fn what_is_not_its_own_is_refused() {
    let room = Room::new();
    let bytes = pattern(MIB);
    let (from, to) = (drive(&room, "drive", &bytes), room.name("copy"));
    let precious = drive(&room, "precious", b"precious");
    fs::hard_link(&from, room.path("hard")).unwrap();
    std::os::unix::fs::symlink(&from, room.path("soft")).unwrap();
    let refused = |args: &[&str], status, code| {
        room.untouched(|| copy(&[&["--raw", &from], args].concat()).failed(status, code, &[]));
    };
    refused(&["--to", &precious], 3, "WTL-0161");
    for member in [&from, &room.name("hard"), &room.name("soft")] {
        refused(&["--to", member, "--overwrite"], 3, "WTL-0161");
        refused(&["--to", &to, "--map", member, "--overwrite"], 3, "WTL-0161");
    }
    refused(&["--to", room.dir.path().to_str().unwrap()], 1, "WTL-0022");
    refused(&["--to", "/dev/null"], 3, "WTL-0161");
    refused(&["--to", &to, "--map", &to], 2, "WTL-0001");
    refused(&["--to", &to, "--map", &precious, "--overwrite"], 3, "WTL-0162");
    refused(&["--to", &room.name("no/where")], 1, "WTL-0105");
    copy(&["--raw", &from, "--to", &room.name("no/where")]).failed(1, "WTL-0105", &["make that directory"]);
    copy(&["--raw", &from, &precious, "--to", &to]).failed(2, "WTL-0001", &[]);
    assert!(!room.path("copy").exists());

    copy(&["--raw", &from, "--to", &precious, "--overwrite"]).ok();
    assert!(fs::read(&precious).unwrap() == bytes);
}

/// Its partitions are the members, not the disk itself.
#[test]
fn a_disk_whose_partition_is_a_member_is_refused_too() {
    let room = Room::new();
    let members = room.array("1", 2);
    let mut disk = vec![0; MIB];
    disk[446 + 4] = 0xfd;
    disk[446 + 8..446 + 12].copy_from_slice(&2048_u32.to_le_bytes());
    disk[446 + 12..446 + 16].copy_from_slice(&(16_u32 << 11).to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk.extend(fs::read(&members[0]).unwrap());
    let disk = drive(&room, "disk", &disk);
    for (to, map) in [(&disk, &room.name("map")), (&room.name("copy"), &disk)] {
        let args = [&disk, &members[1], "--to", to, "--map", map, "--overwrite"];
        room.untouched(|| copy(&args).failed(3, "WTL-0161", &["member"]));
    }
    let to = room.name("copy");
    copy(&[&disk, &members[1], "--to", &to]).ok();
}

/// Drives of one array are of one size: going on with the copy of another one would make a copy of
/// neither.
#[test]
fn a_copy_of_another_drive_is_not_gone_on_with() {
    let room = Room::new();
    let bytes = pattern(4 * MIB);
    let (from, to) = (drive(&room, "drive", &bytes), room.name("copy"));
    copy(&["--raw", &from, "--to", &to]).ok();
    let mut other = bytes.clone();
    other[MIB / 2 + 5] ^= 1;
    let other_drive = drive(&room, "other", &other);
    let again = |from: &str| copy(&["--raw", from, "--to", &to]);
    room.untouched(|| again(&other_drive).failed(3, "WTL-0162", &["bytes"]));
    let larger = drive(&room, "larger", &pattern(5 * MIB)[MIB / 3..]);
    room.untouched(|| again(&larger).failed(3, "WTL-0162", &[]));
    let smaller = drive(&room, "smaller", &pattern(MIB));
    room.untouched(|| again(&smaller).failed(3, "WTL-0162", &["source has 1048576"]));

    File::options().write(true).open(&to).unwrap().set_len(MIB as u64).unwrap();
    room.untouched(|| again(&from).failed(3, "WTL-0162", &["made up to"]));
    fs::remove_file(&to).unwrap();
    room.untouched(|| again(&from).failed(3, "WTL-0162", &[]));
    copy(&["--raw", &other_drive, "--to", &to, "--overwrite"]).ok();
    assert!(fs::read(&to).unwrap() == other);
}

/// What was written and not noted may be anything after a crash. Zeros are not written, so it has
/// to go first.
#[test]
fn a_copy_that_was_killed_is_gone_on_with() {
    let room = Room::new();
    let bytes = pattern(96 * MIB);
    // Half of it is zeros; of these the 8 MiB that the map calls copied stay allocated.
    let (from, to) = (drive(&room, "drive", &bytes), room.name("copy"));
    let mut child = wattle().args(["copy", "--raw", &from, "--to", &to]).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let begun = || fs::metadata(&to).is_ok_and(|metadata| metadata.blocks() > 0);
    while !begun() && child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // The map of the moment: a first part copied, the rest not, whatever the file has there.
    let copied = 20 * MIB;
    let file = File::options().write(true).open(&to).unwrap();
    file.write_all_at(&bytes[..copied], 0).unwrap();
    file.write_all_at(&[0xff; 3 * MIB], 24 * MIB as u64).unwrap();
    let rest = bytes.len() - copied;
    let map = format!("0x0 ? 1\n0x00000000 {copied:#x} +\n{copied:#x} {rest:#x} ?\n");
    fs::write(room.path("copy.map"), map).unwrap();
    copy(&["--raw", &from, "--to", &to]).ok();
    assert!(fs::read(&to).unwrap() == bytes);
    assert!(fs::metadata(&to).unwrap().blocks() * 512 < 58 * MIB as u64, "holes are holes again");
}

#[test]
fn a_copy_that_is_under_way_is_not_disturbed() {
    let room = Room::new();
    let (from, to) = (drive(&room, "drive", &pattern(MIB)), room.name("copy"));
    copy(&["--raw", &from, "--to", &to]).ok();
    let file = File::options().write(true).open(&to).unwrap();
    file.lock().unwrap();
    for overwrite in [&[][..], &["--overwrite"]] {
        let args = [&["--raw", &from, "--to", &to], overwrite].concat();
        room.untouched(|| copy(&args).failed(3, "WTL-0026", &[]));
    }
}

/// The map lies where the copy does, and has room there whatever the copy takes.
#[test]
fn a_copy_that_fills_its_disk_keeps_what_it_read_and_notes_it() {
    let room = Room::new();
    let bytes = pattern(8 * MIB);
    let from = drive(&room, "drive", &bytes);
    let Some(small) = Mounted::of_kind("tmpfs", "size=6M", Path::new("tmpfs"), room.path("small")) else {
        return;
    };
    let at = |name: &str| small.0.join(name).to_str().unwrap().to_owned();
    let (to, report) = (at("copy"), room.name("report.json"));
    let args = ["--raw", &from, "--to", &to];
    let said = copy(&[&args[..], &["--report", &report, "--json"]].concat());
    assert_eq!(said.json()["map"], at("copy.map"), "it is told how far it came");
    let why = ["the file system is full", "and the map says what it is"];
    said.failed(1, "WTL-0105", &why);
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    assert_eq!(
        (&report["files"][0]["state"], &report["exit"]["code"]),
        (&"partial".into(), &"WTL-0105".into())
    );
    assert_eq!(names(&small.0), ["copy", "copy.map"]);
    let map = fs::read_to_string(at("copy.map")).unwrap();
    let copied: usize = map
        .lines()
        .filter(|line| line.ends_with("  +"))
        .map(|line| {
            let number = |ix| line.split_whitespace().nth(ix).unwrap().trim_start_matches("0x");
            let [from, len] = [0, 1].map(|ix| usize::from_str_radix(number(ix), 16).unwrap());
            assert!(fs::read(&to).unwrap()[from..from + len] == bytes[from..from + len], "{map}");
            len
        })
        .sum();
    assert!(copied >= 2 * MIB, "{map}");
    tool("mount", ["-o", "remount,size=32M", small.0.to_str().unwrap()]);
    copy(&args).ok();
    assert!(fs::read(&to).unwrap() == bytes);
}

/// What was read once may not be read again: it goes only when the source has given what follows.
#[test]
fn what_an_interrupted_run_left_stays_where_the_source_fails_now() {
    let room = Room::new();
    let bytes = pattern(4 * MIB);
    let (from, to) = (drive(&room, "drive", &bytes), room.name("copy"));
    lose_one(&from, MIB as u64..2 * MIB as u64);
    fs::write(&to, &bytes).unwrap();
    fs::write(room.path("copy.map"), "0x0 ? 1\n0 0x00400000 ?\n").unwrap();
    copy(&["--raw", &from, "--to", &to]).failed(1, "WTL-0160", &["1 MiB could not be read"]);
    assert!(fs::read(&to).unwrap() == bytes);
}

/// The second run waits for the lock of the first, which ends with a map that says more.
#[test]
fn a_map_is_read_by_the_run_that_has_the_lock() {
    let room = Room::new();
    let (from, to) = (drive(&room, "drive", &pattern(MIB)), room.name("copy"));
    let map = |status| format!("0x0 ? 1\n0 0x00100000 {status}\n");
    // The copy is not what the source gives, so it shows if it is made again.
    fs::write(&to, vec![7; MIB]).unwrap();
    fs::write(room.path("copy.map"), map('?')).unwrap();
    let first = File::options().write(true).open(&to).unwrap();
    first.lock().unwrap();
    let mut second = wattle();
    second.args(["copy", "--raw", &from, "--to", &to]).stderr(std::process::Stdio::piped());
    let second = second.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    fs::write(room.path("copy.map"), map('+')).unwrap();
    drop(first);
    said(second.wait_with_output().unwrap()).failed(3, "WTL-0162", &["is not a copy of"]);
    assert!(fs::read(&to).unwrap() == vec![7; MIB]);
}

/// A member that is a copy may be gone on with until it is locked: then its map says more.
#[test]
fn the_map_of_a_member_is_looked_at_behind_its_lock() {
    let room = Room::new();
    let (from, to) = (drive(&room, "drive", &pattern(MIB)), room.name("copy"));
    lose_one(&from, 4096..8192);
    let first = File::options().write(true).open(&from).unwrap();
    first.lock().unwrap();
    let mut second = wattle();
    second.args(["copy", "--raw", &from, "--to", &to]).stderr(std::process::Stdio::piped());
    let second = second.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    lose_one(&from, 4096..12288);
    drop(first);
    said(second.wait_with_output().unwrap()).failed(3, "WTL-0167", &["changed"]);
}

/// By whatever option it is named, the map of a member is only read.
#[test]
fn the_map_of_a_member_is_not_replaced() {
    let room = Room::new();
    let (from, to) = (drive(&room, "drive", &pattern(MIB)), room.name("copy"));
    lose_one(&from, 4096..8192);
    let map = format!("{from}.map");
    let refused = |args: &[&str]| {
        room.untouched(|| copy(&[&["--raw", &from], args].concat()).failed(3, "WTL-0161", &["drive.map is"]));
    };
    refused(&["--to", &to, "--map", &map, "--overwrite"]);
    refused(&["--to", &map, "--overwrite"]);
    copy(&["--raw", &from, "--to", &to]).failed(1, "WTL-0160", &[]);
    refused(&["--to", &to, "--report", &map]);
}

/// Each goes on with what the other began, and neither reads again what is copied.
#[test]
fn ddrescue_goes_on_with_our_copies_and_we_with_its() {
    if !require("ddrescue") {
        return;
    }
    let room = Room::new();
    let bytes = pattern(8 * MIB);
    let (from, to, map) = (drive(&room, "drive", &bytes), room.name("copy"), room.name("copy.map"));
    tool("ddrescue", ["--quiet", "--size=3MiB", &from, &to, &map]);
    copy(&["--raw", &from, "--to", &to]).ok();
    assert!(fs::read(&to).unwrap() == bytes);

    // Everything but a hole of 1 MiB is copied; in the copy the rest is altered, and stays as it
    // is.
    let ours = fs::read_to_string(&map).unwrap();
    assert!(ours.ends_with("0x00000000  0x00800000  +\n"), "{ours}");
    let begun = ours.replace(
        "0x00000000  0x00800000  +\n",
        "0x00000000  0x00100000  +\n0x00100000  0x00100000  ?\n0x00200000  0x00600000  +\n",
    );
    fs::write(&map, begun).unwrap();
    let file = File::options().write(true).open(&to).unwrap();
    file.write_all_at(&[0; 2 * MIB], MIB as u64).unwrap();
    tool("ddrescue", ["--quiet", &from, &to, &map]);
    let copied = fs::read(&to).unwrap();
    assert!(copied[..2 * MIB] == bytes[..2 * MIB] && copied[2 * MIB..3 * MIB] == vec![0; MIB]);
    let theirs = fs::read_to_string(&map).unwrap();
    assert!(theirs.contains("GNU ddrescue") && theirs.ends_with("0x00000000  0x00800000  +\n"), "{theirs}");
}
