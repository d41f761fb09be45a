//! What would be written to a part of an array, so that the members that are not there, or not
//! used, do not have it: refused, unless it is what is meant.

use std::fs;
use std::os::unix::fs::FileExt;

use crate::harness::{Room, Said, require, run};
use crate::layers::{partitioned, with};
use crate::luks::{luks2, passphrase};
use crate::undo::{log_of, put, saving};

const MEMBER_BYTES: u64 = 32 << 20;

/// A mirror called `outer` that holds these bytes, whose superblocks are at the ends.
fn mirror(room: &Room, content: &[(u64, Vec<u8>)]) -> [String; 2] {
    let members = ["a", "b"].map(|name| room.device(name, MEMBER_BYTES));
    let words = ["create", "outer", "--level", "1", "--metadata", "1.0", "--consistency", "resync"];
    run(with(&[&words[..], &["--assume-clean", "--no-undo"]].concat(), &members)).ok();
    for member in &members {
        content.iter().for_each(|(at, bytes)| put(member, *at, bytes));
    }
    members
}

/// Flips a bit of the checksum in the superblock that begins at this sector.
fn damage(member: &str, checksum_at: u64) {
    let file = fs::File::options().read(true).write(true).open(member).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, checksum_at).unwrap();
    put(member, checksum_at, &[byte[0] ^ 1]);
}

/// Where the checksum of a superblock of version 1.0 is on these members.
const CHECKSUM_AT: u64 = (MEMBER_BYTES / 512 - 16) / 8 * 8 * 512 + 216;

/// A partition table with partitions one behind the other from 1 MiB on, and what they hold.
fn table(partitions: &[Vec<u8>]) -> Vec<(u64, Vec<u8>)> {
    let (mut mbr, mut content, mut start) = (vec![0; 512], Vec::new(), 2048_u32);
    mbr[510..].copy_from_slice(&[0x55, 0xAA]);
    for (ix, bytes) in partitions.iter().enumerate() {
        let (entry, sectors) = (&mut mbr[446 + 16 * ix..][..16], bytes.len() as u32 / 512);
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&sectors.to_le_bytes());
        content.push((u64::from(start) * 512, bytes.clone()));
        start += sectors;
    }
    content.push((0, mbr));
    content
}

/// It can be read, and is not written but to an overlay.
#[track_caller]
fn only_read(room: &Room, member: &str, more: &[&str]) {
    let said = room.untouched(|| run([&["serve", "--run", "true", member], more].concat()));
    said.failed(1, "WTL-0041", &["is not written", "--read-only"]);
    room.untouched(|| {
        run([&["serve", "--run", "true", "--read-only", member], more].concat()).ok();
        run([&["cat", member], more].concat()).ok();
        let overlay = room.name("overlay");
        run([&["serve", "--run", "true", "--overlay", &overlay, member], more].concat()).ok();
    });
}

#[test]
fn what_lies_on_a_member_whose_superblock_is_damaged_is_only_read() {
    let room = Room::new();
    // A volume of the member itself was refused before.
    let [_, member] = mirror(&room, &[(1080, vec![0x53, 0xEF])]);
    damage(&member, CHECKSUM_AT);
    room.untouched(|| run(["serve", "--run", "true", &member])).failed(1, "WTL-0041", &["1.0 superblock"]);

    let [_, member] = mirror(&room, &table(&[vec![7; 4 << 20], vec![8; 1 << 20]]));
    damage(&member, CHECKSUM_AT);
    only_read(&room, &member, &["-V", "b:p1"]);
}

/// Members of an array in partitions: they are claimed without what they lie on being started.
#[test]
fn an_array_in_partitions_of_such_a_member_is_only_read() {
    let room = Room::new();
    let inner = ["c", "d"].map(|name| room.device(name, 4 << 20));
    run(with(&["create", "inner", "--level", "1", "--assume-clean", "--no-undo"], &inner)).ok();
    let [_, member] = mirror(&room, &table(&inner.map(|name| fs::read(name).unwrap())));
    damage(&member, CHECKSUM_AT);
    only_read(&room, &member, &[]);
}

#[test]
fn what_is_encrypted_on_such_a_member_is_only_read() {
    if !require("cryptsetup") {
        return;
    }
    let room = Room::new();
    let (key, plain) = (passphrase(&room), room.device("plain", 24 << 20));
    luks2(&plain, &[]);
    let [_, member] = mirror(&room, &[(0, fs::read(&plain).unwrap())]);
    damage(&member, CHECKSUM_AT);
    only_read(&room, &member, &["--passphrase-file", &key]);
}

/// A superblock of version 0.90 at the end of the last partition is found at the end of the disk
/// too: damaged, it is still the partition's, and the others have nothing to do with it.
#[test]
fn a_damaged_superblock_of_the_last_partition_is_not_the_disk_s() {
    let room = Room::new();
    let members = ["a", "b"].map(|name| room.device(name, 8 << 20));
    run(with(&["create", "old", "--level", "1", "--metadata", "0.90", "--no-undo"], &members)).ok();
    let disks = partitioned(&room, &members, 0);
    let size = fs::metadata(&disks[0]).unwrap().len();
    // Its checksum is in word 38.
    damage(&disks[0], size / 0x1_0000 * 0x1_0000 - 0x1_0000 + 38 * 4);
    let said = room.untouched(|| run(["scan", "--json", &disks[0]])).json();
    assert_eq!(said["members"][0]["problem"], serde_json::Value::Null, "{said:#}");
    assert_eq!(said["members"][1]["problem"]["code"], "WTL-0041", "{said:#}");
    let note = said["members"][0]["note"].as_str().unwrap();
    assert!(note.contains("0.90 superblock is that of partition 1"), "{note}");
}

/// The slots of the only array on members.
#[track_caller]
fn slots(members: &[String]) -> String {
    let said: Said = run(with(&["scan", "--json"], members)).ok();
    said.json()["arrays"][0]["slots"].as_str().unwrap().to_owned()
}

#[test]
fn half_a_mirror_does_not_become_a_physical_volume_unasked() {
    let room = Room::new();
    let members = room.array("1", 2);
    let half = &members[..1];
    let backups = room.name("backups");
    for words in ["pv create", "pv create --dry-run", &format!("vg create tank --backup-dir {backups}")] {
        let refused = room.untouched(|| saving(&room, words, half));
        refused.failed(3, "WTL-0061", &["slot 1", "--force=missing-member", "wattle erase"]);
    }
    let whole = saving(&room, "pv create", &members).ok();
    assert!(!whole.stderr.contains("degraded"), "{}", whole.stderr);
    assert_eq!(slots(&members), "[UU]");
    // Through the array it was written, and through the array it comes back.
    let undo = format!("undo {}", log_of(&whole));
    room.untouched(|| saving(&room, &undo, half)).failed(3, "WTL-0061", &["slot 1", "missing-member"]);
    saving(&room, &undo, &[]).ok();
    assert_eq!(slots(&members), "[UU]");

    let forced = saving(&room, "pv create --force=missing-member", half).ok();
    assert!(forced.stderr.contains("data is degraded: 1 of its 2 members"), "{}", forced.stderr);
    assert!(forced.stderr.contains("to take the forced start of data back"), "{}", forced.stderr);
    assert_eq!(slots(&members), "[U_]");
    // Now it is recorded: what is done next leaves nothing behind that was not left.
    let known = saving(&room, "pv remove", half).ok();
    assert!(known.stderr.contains("data is degraded"), "{}", known.stderr);
}
