//! What destructive commands overwrite is saved first and comes back byte for byte; what was
//! written since, other members and damaged logs are refused.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use crate::harness::{Room, Said, require, run, said, tool, wattle};

/// Runs a command on members, with undo logs in the room.
#[track_caller]
pub fn saving(room: &Room, words: &str, members: &[String]) -> Said {
    let logs = room.name("undo");
    let words = words.split_whitespace().map(str::to_owned).chain(["--undo".to_owned(), logs]);
    run(words.chain(members.iter().cloned()))
}

/// The log that a command said it saved.
#[track_caller]
pub fn log_of(said: &Said) -> String {
    let line =
        said.stderr.lines().find_map(|line| line.strip_prefix("wattle: to take this back: wattle undo "));
    line.unwrap_or_else(|| panic!("no log: {}", said.stderr)).to_owned()
}

fn logs(room: &Room) -> Vec<PathBuf> {
    let entries = fs::read_dir(room.path("undo")).map_or(Vec::new(), Iterator::collect);
    entries.into_iter().map(|entry| entry.unwrap().path()).collect()
}

/// The bytes of members.
pub fn bytes(members: &[String]) -> Vec<Vec<u8>> {
    members.iter().map(|name| fs::read(name).unwrap()).collect()
}

pub fn put(name: &str, at: u64, bytes: &[u8]) {
    File::options().write(true).open(name).unwrap().write_all_at(bytes, at).unwrap();
}

/// Does `words`, which must change something, takes it back, and takes that back.
#[track_caller]
pub fn round_trip(room: &Room, words: &str, members: &[String]) -> Said {
    let before = bytes(members);
    let done = saving(room, words, members).ok();
    let after = bytes(members);
    assert!(before != after, "`{words}` changes something");
    let log = log_of(&done);
    let undone = saving(room, &format!("undo {log}"), &[]).ok();
    assert!(bytes(members) == before, "`{words}` is taken back byte for byte");
    // Once more changes nothing and saves nothing.
    let count = logs(room).len();
    let again = saving(room, &format!("undo {log}"), &[]).ok();
    assert!(bytes(members) == before && logs(room).len() == count);
    assert!(again.text().contains("is as it was before"), "{}", again.text());
    saving(room, &format!("undo {}", log_of(&undone)), &[]).ok();
    assert!(bytes(members) == after, "taking back is taken back");
    saving(room, &format!("undo {log}"), &[]).ok();
    assert!(bytes(members) == before);
    done
}

/// What scan, blkid and wipefs find on a file.
fn found(name: &str) -> (String, String, String) {
    let scan = run(["scan", "--json", name]).ok().json();
    let member = &scan["members"][0];
    let ours = format!("{}{}{}", member["signatures"], member["superblocks"], member["array"]);
    // blkid ends with 2 where it finds nothing.
    let blkid = std::process::Command::new("blkid").args(["-p", name]).output().unwrap();
    (ours, String::from_utf8(blkid.stdout).unwrap(), tool("wipefs", ["--noheadings", name]))
}

#[test]
fn after_erase_nothing_is_found_and_undo_brings_all_of_it_back() {
    let tools = ["wipefs", "blkid", "sfdisk", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "mkswap"];
    if !tools.into_iter().all(require) {
        return;
    }
    // With the least size, in MiB, that each takes.
    let makers = [
        ("mkfs.ext4 -q", 32),
        ("mkfs.xfs -q", 300),
        ("mkfs.btrfs -q", 128),
        ("mkswap -f", 32),
        ("sfdisk gpt", 32),
        ("sfdisk dos", 32),
        ("wattle 0.90", 32),
        ("wattle 1.0", 32),
        ("wattle 1.1", 32),
        ("wattle 1.2", 32),
        ("wattle pv", 32),
    ];
    for (maker, size) in makers {
        let room = Room::new();
        let name = room.device("disk", size << 20);
        match maker.split_once(' ') {
            Some(("sfdisk", label)) => {
                let line =
                    format!("printf 'label: {label}\\n,10M\\n,\\n' | sfdisk -q --no-tell-kernel {name}");
                tool("sh", ["-c", &line]);
            }
            Some(("wattle", "pv")) => {
                saving(&room, "pv create", std::slice::from_ref(&name)).ok();
            }
            Some(("wattle", version)) => {
                let other = room.device("other", size << 20);
                run(["create", "data", &name, &other, "-l", "1", "-e", version, "--no-undo"]).ok();
            }
            Some((maker, option)) => {
                tool(maker, [option, &name]);
            }
            None => unreachable!("every maker has an option"),
        }
        let before = found(&name);
        assert!(!before.1.is_empty() && !before.2.is_empty(), "{maker}: {before:?}");
        let member = std::slice::from_ref(&name);
        let dry = room.untouched(|| saving(&room, "erase --dry-run", member)).ok();
        assert!(dry.text().contains("would be erased"), "{maker}: {}", dry.text());
        round_trip(&room, "erase", member);
        saving(&room, "erase", member).ok();
        let after = found(&name);
        assert_eq!((after.1.as_str(), after.2.as_str()), ("", ""), "{maker}: {after:?}");
        let nothing = run(["scan", "--json", &name]).ok().json();
        assert_eq!(nothing["members"][0]["signatures"].as_array().map_or(0, Vec::len), 0, "{maker}");
        let again = room.untouched(|| saving(&room, "erase", member)).ok();
        assert!(again.text().contains("nothing is recognised"), "{maker}: {}", again.text());
    }
}

#[test]
fn what_an_array_or_a_group_needs_is_not_erased() {
    let room = Room::new();
    let members = room.array("5", 3);
    // A process that has it has it alone.
    let serve = crate::harness::Serve::start(&room, &[], &members);
    saving(&room, "erase", &members).failed(3, "WTL-0026", &["member-0"]);
    let client = serve.command(&["status"]).ok();
    assert!(client.text().contains("[UUU] good"), "{}", client.text());
    serve.stop();
    // A crash leaves it dirty.
    let serve = crate::harness::Serve::start(&room, &[], &members);
    if require("qemu-io") {
        tool("qemu-io", ["-f", "raw", "-c", "write 0 64k", &serve.uri]);
        serve.kill();
        let refused =
            room.untouched(|| saving(&room, "erase", &members)).failed(3, "WTL-0185", &["data", "in-use"]);
        assert!(refused.stderr.contains("not stopped"), "{}", refused.stderr);
        round_trip(&room, "erase --force=in-use", &members);
    } else {
        serve.stop();
    }
    let pv = vec![room.device("pv", 32 << 20)];
    run(["vg", "create", "vg", &pv[0], "--no-undo"]).ok();
    room.untouched(|| saving(&room, "erase", &pv)).failed(3, "WTL-0185", &["physical volume of vg"]);
    round_trip(&room, "erase --force=in-use", &pv);
}

/// Three members of an array, erased; what they held, and the log.
fn erased(room: &Room) -> (Vec<String>, Vec<Vec<u8>>, String) {
    let members = room.array("5", 3);
    // Data by which members are told apart.
    for (ix, name) in (1..).zip(&members) {
        put(name, 4 << 20, &[ix].repeat(4 << 20));
    }
    let before = bytes(&members);
    let log = log_of(&saving(room, "erase", &members).ok());
    (members, before, log)
}

#[test]
fn members_are_known_whatever_they_are_called_now() {
    let room = Room::new();
    let (members, before, log) = erased(&room);
    let moved: Vec<_> = ["x", "y", "z"].iter().map(|name| room.name(name)).collect();
    for (old, new) in members.iter().zip([1, 2, 0]) {
        fs::rename(old, &moved[new]).unwrap();
    }
    // One of the old names leads to nothing, and without names nothing is there.
    saving(&room, &format!("undo {log}"), &[]).failed(1, "WTL-0020", &["member-0"]);
    let report = saving(&room, &format!("undo {log} --json"), &moved).ok().json();
    assert_eq!(report["members"][0]["was"], members[0].as_str());
    assert_eq!(report["members"][0]["member"], moved[1].as_str());
    assert!(
        [1, 2, 0].into_iter().zip(&before).all(|(new, before)| fs::read(&moved[new]).unwrap() == *before)
    );
}

#[test]
fn members_that_hold_the_same_are_told_by_their_names_alone() {
    let room = Room::new();
    let members = room.array("1", 2);
    members.iter().for_each(|name| put(name, 4 << 20, &[7].repeat(4 << 20)));
    let before = bytes(&members);
    let log = log_of(&saving(&room, "erase", &members).ok());
    let moved = ["x", "y"].map(|name| room.name(name));
    members.iter().zip(&moved).for_each(|(old, new)| fs::rename(old, new).unwrap());
    room.untouched(|| saving(&room, &format!("undo {log}"), &moved)).failed(
        3,
        "WTL-0182",
        &["could be any of"],
    );
    members.iter().zip(&moved).for_each(|(old, new)| fs::rename(new, old).unwrap());
    let reversed: Vec<_> = members.iter().rev().cloned().collect();
    saving(&room, &format!("undo {log}"), &reversed).ok();
    assert!(bytes(&members) == before);
}

#[test]
fn another_member_is_refused_and_a_missing_one_too() {
    let room = Room::new();
    let (members, before, log) = erased(&room);
    // Another drive has the name now: as large, and blank like one whose superblock was erased.
    fs::rename(&members[1], room.path("away")).unwrap();
    room.device("member-1", 16 << 20);
    let undo = format!("undo {log}");
    room.untouched(|| saving(&room, &undo, &[])).failed(3, "WTL-0182", &["member-1", "does not look like"]);
    fs::remove_file(&members[1]).unwrap();
    room.untouched(|| saving(&room, &undo, &[])).failed(
        3,
        "WTL-0184",
        &["1 of 3", "member-1", "missing-member"],
    );
    let some = saving(&room, &format!("{undo} --force=missing-member"), &[]).ok();
    assert!(some.text().contains("is missing"), "{}", some.text());
    assert!(fs::read(&members[0]).unwrap() == before[0] && fs::read(&members[2]).unwrap() == before[2]);
    // The other one later.
    fs::rename(room.path("away"), &members[1]).unwrap();
    saving(&room, &undo, &[]).ok();
    assert!(bytes(&members) == before);
    // One of another size is none of them.
    let larger = vec![room.device("larger", 17 << 20)];
    room.untouched(|| saving(&room, &undo, &larger)).failed(3, "WTL-0184", &["3 of 3"]);
}

#[test]
fn what_was_written_since_is_not_written_over_without_asking() {
    let room = Room::new();
    let (members, before, log) = erased(&room);
    // The second half of a page, so that some sectors of the range are as they were left.
    put(&members[2], 4096 + 1024, b"something new");
    let undo = format!("undo {log}");
    let refused = room.untouched(|| saving(&room, &undo, &[]));
    refused.failed(3, "WTL-0183", &["member-2", "1 sectors", "byte 5120", "written-since"]);
    let dry = room.untouched(|| saving(&room, &format!("{undo} --force=written-since --dry-run"), &[])).ok();
    assert!(dry.text().contains("512 B written since"), "{}", dry.text());
    let now = bytes(&members);
    let forced = saving(&room, &format!("{undo} --force=written-since"), &[]).ok();
    assert!(bytes(&members) == before);
    saving(&room, &format!("undo {}", log_of(&forced)), &[]).ok();
    assert!(bytes(&members) == now, "also what was new comes back");
}

/// What was made since may leave alone what was erased: a superblock that came back under it would
/// make it a member of the old array again.
#[test]
fn what_was_made_since_is_seen_where_all_that_was_left_is_zeros() {
    let btrfs = |name: &str| put(name, 0x1_0040, b"_BHRfS_M");
    let room = Room::new();
    let (members, before, log) = erased(&room);
    let (undo, blank) = (format!("undo {log}"), bytes(&members));
    btrfs(&members[1]);
    let refused = room.untouched(|| saving(&room, &undo, &[]));
    refused.failed(3, "WTL-0183", &["member-1", "btrfs", "zeros", "--force=written-since"]);
    saving(&room, &format!("{undo} --force=written-since"), &[]).ok();
    fs::write(&members[1], &blank[1]).unwrap();
    saving(&room, &undo, &[]).ok();
    assert!(bytes(&members) == before);

    // An array is known by its id, and no less written since for that.
    let room = Room::new();
    let members = room.blank(2, 16 << 20);
    let create = ["create", "data", &members[0], &members[1], "--level", "1", "--metadata", "1.0"];
    run(create.into_iter().chain(["--assume-clean", "--consistency", "resync", "--no-undo"])).ok();
    saving(&room, "pv create", &members).ok();
    let undo = format!("undo {}", log_of(&saving(&room, "pv remove", &members).ok()));
    members.iter().for_each(|name| btrfs(name));
    room.untouched(|| saving(&room, &undo, &[])).failed(3, "WTL-0183", &["data", "btrfs"]);
}

#[test]
fn what_cannot_be_opened_says_why_it_is_missing() {
    let room = Room::new();
    let (members, before, log) = erased(&room);
    fs::rename(&members[1], room.path("away")).unwrap();
    fs::create_dir(&members[1]).unwrap();
    let undo = format!("undo {log}");
    let refused = room.untouched(|| saving(&room, &undo, &[]));
    let refused = refused.failed(3, "WTL-0184", &["1 of 3", "missing-member", "WTL-00"]);
    assert!(refused.stderr.contains(&format!("why: {}", members[1])), "{}", refused.stderr);
    saving(&room, &format!("{undo} --force=missing-member"), &[]).ok();
    fs::remove_dir(&members[1]).unwrap();
    fs::rename(room.path("away"), &members[1]).unwrap();
    saving(&room, &undo, &[]).ok();
    assert!(bytes(&members) == before);
}

#[test]
fn a_log_that_is_not_whole_is_not_used() {
    let room = Room::new();
    let (members, before, log) = erased(&room);
    let whole = fs::read(&log).unwrap();
    let undo = format!("undo {log}");
    for (what, bytes) in [
        ("cut off", whole[..whole.len() - 1].to_vec()),
        ("no undo log", whole[..10].to_vec()),
        ("no undo log", Vec::new()),
        (
            "damaged",
            whole.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == whole.len() / 2)).collect(),
        ),
        ("version 9", whole.iter().enumerate().map(|(at, byte)| if at == 16 { 9 } else { *byte }).collect()),
    ] {
        fs::write(&log, bytes).unwrap();
        room.untouched(|| saving(&room, &undo, &[])).failed(1, "WTL-0181", &[what]);
        let listed = saving(&room, "undo", &[]).ok();
        assert!(listed.text().contains(what), "{}", listed.text());
    }
    fs::write(&log, whole).unwrap();
    saving(&room, &undo, &[]).ok();
    assert!(bytes(&members) == before);
    saving(&room, "undo /nowhere/at.all", &[]).failed(1, "WTL-0020", &["/nowhere"]);
}

#[test]
fn without_a_log_nothing_is_changed_unless_that_is_wanted() {
    let room = Room::new();
    let members = room.array("5", 3);
    fs::write(room.path("file"), "not a directory").unwrap();
    let args = ["erase".to_owned(), "--undo".to_owned(), room.name("file/undo")];
    room.untouched(|| run(args.into_iter().chain(members.clone()))).failed(
        3,
        "WTL-0180",
        &["--undo", "--no-undo", "nothing was changed"],
    );
    // The disk that logs go to is full: no file grows beyond a block here.
    let full = format!(
        "trap '' XFSZ; ulimit -f 0; exec {} erase --undo {} {}",
        env!("CARGO_BIN_EXE_wattle"),
        room.name("undo"),
        members.join(" ")
    );
    let output = std::process::Command::new("sh").args(["-c", &full]).output().unwrap();
    room.untouched(|| crate::harness::said(output)).failed(3, "WTL-0180", &["nothing was changed"]);
    assert!(logs(&room).is_empty(), "nothing of a log is left");
    let scan = run(["scan".to_owned()].into_iter().chain(members.clone())).ok();
    assert!(scan.text().contains("[UUU] good"), "{}", scan.text());
    let said = run(["erase".to_owned(), "--no-undo".to_owned()].into_iter().chain(members.clone())).ok();
    assert!(!said.stderr.contains("undo"), "{}", said.stderr);
    assert_eq!(run(["erase", "--no-undo", "--undo", "x", "y"]).status, 2);
}

#[test]
fn logs_are_listed_the_newest_first_and_found_by_name() {
    let room = Room::new();
    let none = saving(&room, "undo", &[]).ok();
    assert!(none.stdout.is_empty() && none.stderr.contains("no undo logs"), "{}", none.stderr);
    let members = room.array("5", 3);
    let before: BTreeMap<_, _> = members.iter().map(|name| (name.clone(), fs::read(name).unwrap())).collect();
    for name in &members {
        saving(&room, "erase", std::slice::from_ref(name)).ok();
    }
    let listed = saving(&room, "undo --json", &[]).ok().json();
    assert_eq!(listed["schema_version"], 1);
    let logs = listed["logs"].as_array().unwrap();
    assert_eq!(logs.len(), 3);
    for (log, name) in logs.iter().zip(members.iter().rev()) {
        assert_eq!(log["members"][0], name.as_str());
        assert!(log["command"].as_str().unwrap().contains("erase"), "{log}");
        let file = PathBuf::from(log["log"].as_str().unwrap());
        let stem = file.file_stem().unwrap().to_str().unwrap();
        assert!(stem.contains("-erase-member-"), "{stem}");
        saving(&room, &format!("undo {stem}"), &[]).ok();
        assert!(fs::read(name).unwrap() == before[name]);
    }
    assert!(saving(&room, "undo", &[]).ok().text().contains("undo-erase-member-0"));
}

#[test]
fn an_array_created_by_mistake_is_taken_back() {
    for (level, metadata, consistency) in
        [("5", "1.2", "ppl"), ("1", "1.0", "bitmap"), ("5", "0.90", "bitmap"), ("6", "1.1", "resync")]
    {
        let room = Room::new();
        let members = room.array("5", 4);
        for (ix, name) in (1..).zip(&members) {
            put(name, 0, &[ix].repeat(300 << 10));
            put(name, 4096, &[0; 8192]);
            put(name, (16 << 20) - (200 << 10), &[0x80 | ix].repeat(200 << 10));
        }
        let words = format!(
            "create other --level {level} --metadata {metadata} --consistency {consistency} --assume-clean --force=signature"
        );
        round_trip(&room, &words, &members);
    }
    // The old array is the old array, in the order it had, although the new one had another.
    let room = Room::new();
    let members = room.array("5", 4);
    let wrong: Vec<_> = members.iter().rev().cloned().collect();
    let created = saving(&room, "create data --level 5 --force=signature --assume-clean", &wrong).ok();
    let serve = crate::harness::Serve::start(&room, &[], &members);
    serve.stop();
    // Nothing wrote to it, so nothing is different.
    saving(&room, &format!("undo {}", log_of(&created)), &[]).ok();
    let scan = run(["scan".to_owned()].into_iter().chain(members.clone())).ok();
    assert!(scan.text().contains("[UUUU] good") && scan.text().contains("chunk 64 KiB"), "{}", scan.text());
}

#[test]
fn an_array_that_was_used_is_taken_back_only_if_that_is_wanted() {
    if !require("qemu-io") {
        return;
    }
    let room = Room::new();
    let members = room.array("5", 3);
    let before: Vec<_> = bytes(&members).into_iter().map(|all| all[..1 << 20].to_vec()).collect();
    let created =
        saving(&room, "create data --level 5 --chunk 64K --force=signature --assume-clean", &members).ok();
    let serve = crate::harness::Serve::start(&room, &[], &members);
    tool("qemu-io", ["-f", "raw", "-c", "write 0 64k", &serve.uri]);
    serve.stop();
    let undo = format!("undo {}", log_of(&created));
    room.untouched(|| saving(&room, &undo, &[])).failed(3, "WTL-0183", &["member-0", "written-since"]);
    let forced = saving(&room, &format!("{undo} --force=written-since"), &[]).ok();
    assert!(forced.text().contains("stays as it is"), "{}", forced.text());
    assert!(bytes(&members).iter().zip(before).all(|(now, before)| now[..1 << 20] == before[..]));
}

#[test]
fn partition_tables_and_what_is_made_in_partitions_are_taken_back() {
    let room = Room::new();
    let disks = vec![room.device("a", 32 << 20), room.device("b", 32 << 20)];
    // What no program recognises is kept too.
    disks.iter().for_each(|disk| put(disk, 0, &[7].repeat(40 << 10)));
    let words = "partition --part 1:1M+12M --part 3:16M+8M";
    round_trip(&room, words, &disks);
    saving(&room, words, &disks).ok();
    let parts = |number| disks.iter().map(|disk| format!("{disk}:p{number}")).collect::<Vec<_>>();
    let make = |number| {
        let [one, other] = &parts(number)[..] else { unreachable!() };
        saving(&room, &format!("create data{number} {one} {other} --level 1"), &[])
    };
    let first = make(1).ok();
    make(3).ok();
    let scan = run(["scan".to_owned()].into_iter().chain(disks.clone())).ok();
    assert!(scan.text().contains("data1") && scan.text().contains("data3"), "{}", scan.text());
    // Partitions are members like others: given alone, of several arrays at once, and refused where
    // they are not.
    let both = parts(1).into_iter().chain(parts(3));
    assert!(run(["scan".to_owned()].into_iter().chain(both)).ok().text().contains("data3"));
    make(2).failed(2, "WTL-0003", &["no such partition", "wattle scan"]);
    let twice = [disks[0].clone(), format!("{}:p1", disks[0])];
    run(["scan".to_owned()].into_iter().chain(twice)).failed(2, "WTL-0004", &["same file"]);
    saving(&room, &format!("undo {}", log_of(&first)), &[]).ok();
    let scan = run(["scan".to_owned()].into_iter().chain(disks.clone())).ok();
    assert!(!scan.text().contains("data1") && scan.text().contains("data3"), "{}", scan.text());
    for (part, words) in [("1:0+1M", "byte 0"), ("1:31M+1M", "have room"), ("1:1M+100", "whole sectors")] {
        let blank = [room.device("blank", 32 << 20)];
        saving(&room, &format!("partition --part {part}"), &blank).failed(2, "WTL-0008", &[words]);
    }
    room.untouched(|| saving(&room, words, &disks)).failed(3, "WTL-0080", &["GPT"]);
}

#[test]
fn changes_of_volume_groups_are_taken_back() {
    let room = Room::new();
    let both = vec![room.device("a", 32 << 20), room.device("b", 32 << 20)];
    let backups = room.name("backups");
    let lvm = |words: &str| round_trip(&room, &format!("{words} --backup-dir {backups}"), &both);
    let step = |words: &str| {
        lvm(words);
        saving(&room, &format!("{words} --backup-dir {backups}"), &both).ok();
    };
    for name in &both {
        put(name, 0, &[7].repeat(1 << 20));
        // An ext4, by its magic.
        put(name, 1080, &[0x53, 0xEF]);
    }
    step("pv create --force=signature");
    lvm("pv remove");
    step("vg create vg -s 1M");
    lvm("vg rename vg other");
    put(&both[0], 1 << 20, &[9].repeat(1 << 20));
    step("lv create vg/home -l 3");
    step("lv extend vg/home -l +2");
    lvm("lv reduce vg/home -l -1");
    lvm("lv rename vg/home vg/house");
    step("lv remove vg/home");
    lvm("vg export vg");
    lvm(&format!("vg reduce vg --on {}", both[1]));
    lvm("vg remove vg");
    let backup = fs::read_dir(room.path("backups")).unwrap().next().unwrap().unwrap().path();
    lvm(&format!("vg restore vg --file {}", backup.display()));
    for name in &both {
        File::options().write(true).open(name).unwrap().set_len(40 << 20).unwrap();
    }
    lvm(&format!("pv resize --on {}", both[0]));
}

#[test]
fn a_physical_volume_on_an_array_is_taken_back_through_the_array() {
    let room = Room::new();
    let members = room.array("5", 3);
    let cat = || run(["cat", "-V", "data"].map(str::to_owned).into_iter().chain(members.clone())).ok().stdout;
    if !require("qemu-io") {
        return;
    }
    let serve = crate::harness::Serve::start(&room, &[], &members);
    tool("qemu-io", ["-f", "raw", "-c", "write -P 0x5a 0 2M", &serve.uri]);
    serve.stop();
    let before = cat();
    let made = saving(&room, "vg create tank -s 1M", &members).ok();
    assert!(cat() != before);
    saving(&room, &format!("undo {}", log_of(&made)), &members).ok();
    assert!(cat() == before);
    let scan = run(["scan".to_owned()].into_iter().chain(members.clone())).ok();
    assert!(scan.text().contains("[UUU] good") && scan.text().contains("clean"), "{}", scan.text());
}

/// Members are known by what they are: under other names they are found, in any order, and it is
/// said what each was called.
#[test]
fn members_under_other_names_are_found_and_it_is_said_what_they_were() {
    let room = Room::new();
    let members = room.array("5", 3);
    // Blank drives are alike: of these something tells which is which.
    for (ix, member) in members.iter().enumerate() {
        let byte = |at: usize| ((at * at * (ix + 3)) >> 7) as u8;
        put(member, 2 << 20, &(0..14 << 20).map(byte).collect::<Vec<_>>());
    }
    let before = bytes(&members);
    let log = log_of(&saving(&room, "erase", &members).ok());
    let moved: Vec<_> = (0..3).map(|ix| room.name(&format!("moved-{ix}"))).collect();
    members.iter().zip(&moved).for_each(|(old, new)| fs::rename(old, new).unwrap());
    let given: Vec<_> = moved.iter().rev().cloned().collect();
    let dry = room.untouched(|| saving(&room, &format!("undo {log} --dry-run"), &given)).ok();
    let undone = saving(&room, &format!("undo {log} --json"), &given).ok().json();
    assert!(bytes(&moved) == before, "every byte is as it was");
    for (old, new) in members.iter().zip(&moved) {
        // Whatever the width is: a name, and behind it what it was.
        let said = dry.text().split_whitespace().collect::<Vec<_>>().join(" ");
        let behind = said.split_once(new.as_str()).expect("it is named").1;
        let was = behind.split_once("(it was ").expect("it is said what it was").1;
        assert!(was.starts_with(&format!("{old})")), "{}", dry.text());
        let reports = undone["members"].as_array().unwrap();
        let report = reports.iter().find(|report| report["member"] == **new).unwrap();
        assert_eq!(report["was"], **old, "{undone:#}");
    }
    // Under their own names nothing is said of names.
    moved.iter().zip(&members).for_each(|(new, old)| fs::rename(new, old).unwrap());
    let same = saving(&room, &format!("undo {log} --dry-run"), &[]).ok();
    assert!(!same.text().contains("it was /"), "{}", same.text());
}

/// A lock is waited for, and what its owner wrote until then counts.
#[test]
fn what_is_written_while_a_command_waits_for_the_lock_is_seen() {
    let room = Room::new();
    let drives = room.blank(2, 16 << 20);
    drives.iter().for_each(|drive| put(drive, 4 << 20, &[7; 4096]));
    // It starts dirty, as what its members hold is not known.
    run(["create", "data", &drives[0], &drives[1], "--level", "1", "--no-undo"]).ok();
    let member = fs::read(&drives[0]).unwrap();
    for (args, code) in [
        (&["erase", &drives[0]][..], "WTL-0185"),
        (&["partition", &drives[0], "--part", "1:1M+10M"], "WTL-0080"),
    ] {
        fs::write(&drives[0], vec![0; 16 << 20]).unwrap();
        let owner = File::options().write(true).open(&drives[0]).unwrap();
        owner.lock().unwrap();
        let mut command = wattle();
        let child = command.args(args).arg("--no-undo").stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = child.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(800));
        owner.write_all_at(&member, 0).unwrap();
        owner.unlock().unwrap();
        said(child.wait_with_output().unwrap()).failed(3, code, &["member-0"]);
        assert!(fs::read(&drives[0]).unwrap() == member, "{args:?}");
    }
}

/// A label may name one metadata area any number of times.
#[test]
fn a_label_with_many_areas_is_erased_and_taken_back() {
    use wattle_format::lvm::Label;
    let room = Room::new();
    let drive = [room.device("drive", 16 << 20)];
    run(["pv", "create", &drive[0], "--no-undo"]).ok();
    let mut label = Label::find(&fs::read(&drive[0]).unwrap()).unwrap().unwrap();
    label.metadata_areas = vec![label.metadata_areas[0]; 20];
    put(&drive[0], 512, &label.encode().unwrap());
    round_trip(&room, "erase", &drive);
    round_trip(&room, "pv create --force=signature", &drive);
}
