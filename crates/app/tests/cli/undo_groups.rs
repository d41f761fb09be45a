//! Earlier states of volume groups that are not brought back without asking: by them something that
//! was made since would be cut off, or lie where the group has room. And what else is said and
//! saved of changes of groups.

use std::fs;

use crate::harness::{Room, require, run, tool};
use crate::lvm::{Loop, lvm};
use crate::undo::{log_of, put, saving};

/// Where the first extent of a physical volume is, with extents of 1 MiB.
const DATA_AT: u64 = 1 << 20;

/// An ext2 of so many MiB, by its superblock.
fn ext(name: &str, at: u64, mib: u32) {
    put(name, at + 1024 + 0x4, &(mib * 1024).to_le_bytes());
    put(name, at + 1024 + 0x38, &[0x53, 0xEF]);
}

#[test]
fn a_volume_is_not_cut_off_under_a_file_system_that_grew() {
    let room = Room::new();
    let members = [room.device("a", 32 << 20)];
    saving(&room, "vg create vg -s 1M", &members).ok();
    saving(&room, "lv create vg/home -l 3", &members).ok();
    let undo = format!("undo {}", log_of(&saving(&room, "lv extend vg/home -l +2", &members).ok()));
    ext(&members[0], DATA_AT, 5);
    let refused = room.untouched(|| saving(&room, &undo, &members));
    refused.failed(3, "WTL-0135", &["vg/home", "5242880 bytes", "3145728", "--force=file-system"]);
    let grown = fs::read(&members[0]).unwrap();
    let forced = saving(&room, &format!("{undo} --force=file-system"), &members).ok();
    assert!(forced.stderr.contains("overridden"), "{}", forced.stderr);
    saving(&room, &format!("undo {}", log_of(&forced)), &members).ok();
    assert!(fs::read(&members[0]).unwrap() == grown);
    ext(&members[0], DATA_AT, 3);
    saving(&room, &undo, &members).ok();
    // A volume that came back is given away again only if that is wanted.
    let removed = saving(&room, "lv remove vg/home --force=signature", &members).ok();
    let back = saving(&room, &format!("undo {}", log_of(&removed)), &members).ok();
    let away = format!("undo {}", log_of(&back));
    room.untouched(|| saving(&room, &away, &members)).failed(3, "WTL-0080", &["vg/home", "ext2"]);
    saving(&room, &format!("{away} --force=signature"), &members).ok();
}

#[test]
fn a_drive_that_was_partitioned_since_does_not_come_back_into_its_group() {
    let room = Room::new();
    let members = [room.device("a", 32 << 20), room.device("b", 32 << 20)];
    saving(&room, "vg create vg -s 1M", &members).ok();
    let reduced = saving(&room, &format!("vg reduce vg --on {}", members[1]), &members).ok();
    let undo = format!("undo {}", log_of(&reduced));
    // A table with one partition, from 1 MiB on.
    let blank = fs::read(&members[1]).unwrap();
    put(&members[1], 446 + 4, &[0x83]);
    put(&members[1], 446 + 8, &2048_u32.to_le_bytes());
    put(&members[1], 446 + 12, &32768_u32.to_le_bytes());
    put(&members[1], 510, &[0x55, 0xAA]);
    let refused = room.untouched(|| saving(&room, &undo, &members));
    refused.failed(3, "WTL-0183", &["MBR", "beside the label", "--force=written-since"]);
    saving(&room, &format!("{undo} --force=written-since --dry-run"), &members).ok();
    fs::write(&members[1], blank).unwrap();
    saving(&room, &undo, &members).ok();
}

/// What lies where a volume was before it was moved is old: the backup of `lv move` leads there.
#[test]
fn a_restore_does_not_lead_back_to_where_a_volume_was_moved_from() {
    let room = Room::new();
    let members = [room.device("a", 32 << 20), room.device("b b", 32 << 20)];
    lvm(&room, "vg create vg -s 1M", &members).ok();
    lvm(&room, &format!("lv create vg/home -l 4 --on {}", members[0]), &members).ok();
    let args = ["lv", "move", "vg", "--from", &members[0], "--backup-dir"].map(str::to_owned);
    let backups = room.name("backups");
    let moved = run(args.into_iter().chain([backups.clone()]).chain(members.clone())).ok();
    assert!(moved.text().contains(&format!("pvmove {}", members[0])), "{}", moved.text());
    let args = ["lv", "move", "vg", "--from", &members[1], "--dry-run"].map(str::to_owned);
    let planned = run(args.into_iter().chain(members.clone())).ok();
    assert!(planned.text().contains(&format!("pvmove '{}'", members[1])), "{}", planned.text());
    let mut names: Vec<_> = fs::read_dir(&backups).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let restore = format!("vg restore vg --file {}", names.last().unwrap().display());
    let refused = room.untouched(|| lvm(&room, &restore, &members));
    refused.failed(3, "WTL-0183", &["vg/home lay on", "--force=written-since"]);
    lvm(&room, &format!("{restore} --force=written-since"), &members).ok();
}

#[test]
fn a_drive_that_takes_no_writes_is_refused_before_anything_is_written() {
    if !require("losetup") || !require("blockdev") {
        return;
    }
    let room = Room::new();
    let files = [room.device("a", 32 << 20), room.device("b", 32 << 20)];
    lvm(&room, "vg create vg -s 1M", &files).ok();
    let Some(device) = Loop::new(&files[1]) else { return };
    tool("blockdev", ["--setro", &device.0]);
    let members = [files[0].clone(), device.0.clone()];
    room.untouched(|| lvm(&room, "lv create vg/home -l 3", &members)).failed(1, "WTL-0025", &[&device.0]);
    run(["vg", "list"].map(str::to_owned).into_iter().chain(members.clone())).ok();
    tool("blockdev", ["--setrw", &device.0]);
    lvm(&room, "lv create vg/home -l 3", &members).ok();
}

#[test]
fn a_group_is_not_called_like_a_device() {
    let room = Room::new();
    let members = [room.device("a", 32 << 20)];
    room.untouched(|| lvm(&room, "vg create null", &members)).failed(1, "WTL-0134", &["/dev/null"]);
    lvm(&room, "vg create vg", &members).ok();
    lvm(&room, "vg rename vg null", &members).failed(1, "WTL-0134", &["/dev/null"]);
}
