//! Partition tables: whose partitions are those of an array, and what is told of tables that are not
//! as they should be.

use crate::harness::{Room, run};
use crate::undo::put;

/// A boot record: type, start and length of each entry, in sectors.
fn mbr(entries: &[(u8, u32, u32)]) -> [u8; 512] {
    let mut sector = [0; 512];
    for (entry, (kind, start, len)) in sector[446..510].chunks_exact_mut(16).zip(entries) {
        entry[4] = *kind;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&len.to_le_bytes());
    }
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

/// A member with the superblock at its end begins as the array does, with the array's partitions.
#[test]
fn partitions_of_an_array_are_not_those_of_its_member() {
    let room = Room::new();
    let members = room.blank(2, 16 << 20);
    run(["create", "data", &members[0], &members[1], "--level", "1", "--metadata", "1.0"]).ok();
    let table = mbr(&[(0x83, 2048, 8192)]);
    members.iter().for_each(|member| put(member, 0, &table));
    let part = format!("{}:p1", members[1]);
    let other = room.device("other", 16 << 20);
    for args in [
        &["serve", &part][..],
        &["cat", &part],
        &["erase", &part, "--dry-run"],
        &["create", "new", &part, &other, "--level", "1"],
    ] {
        let said = room.untouched(|| run(args)).failed(1, "WTL-0062", &["member of an array", &members[1]]);
        assert!(said.stderr.contains("wattle scan"), "{}", said.stderr);
    }
    // Its own last partition's superblock is at the end of a drive too.
    let drive = room.device("drive", 16 << 20);
    put(&drive, 0, &mbr(&[(0x83, 2048, 32768 - 2048)]));
    for metadata in ["1.0", "0.90"] {
        let part = format!("{drive}:p1");
        let made = ["create", "own", &part, "missing", "--level", "1", "--metadata", metadata, "--no-undo"];
        run(made.into_iter().chain(["--force=signature", "--yes"])).ok();
        run(["cat", &part]).ok();
    }
}
