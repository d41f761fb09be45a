//! Partition tables: whose partitions are those of an array, and what is told of tables that are
//! not as they should be.

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

/// Partitions that are not known are missing, and that is told.
#[test]
fn a_table_that_hides_partitions_says_so() {
    let room = Room::new();
    let drive = room.device("gpt", 16 << 20);
    run(["partition", &drive, "--part", "1:1M+4M", "--no-undo"]).ok();
    let sound = run(["scan", &drive]).ok();
    assert!(!sound.text().contains("partition table:"), "{}", sound.text());
    // One copy is enough, and that it is the only one is told.
    put(&drive, 512 + 40, &[0xff]);
    for command in ["scan", "examine"] {
        let said = run([command, &drive]).ok();
        assert!(said.text().contains("partition table: the primary GPT: its header's checksum"), "{said:?}");
        let said = run([command, "--json", &drive]).ok().json();
        assert_eq!(said["members"][0]["table_notes"].as_array().unwrap().len(), 1, "{said}");
    }
    put(&drive, (16 << 20) - 512 + 40, &[0xff]);
    let said = run(["scan", &drive]).failed(1, "WTL-0064", &["the primary GPT", "the backup GPT"]);
    assert!(said.text().contains("WTL-0064") && !said.text().contains("gpt:p1"), "{}", said.text());
    run(["cat", &drive]).failed(1, "WTL-0064", &[]);

    // The records of 5 and 6, and the way on leads back to that of 5.
    let drive = room.device("chain", 16 << 20);
    put(&drive, 0, &mbr(&[(0x83, 2048, 2048), (0x05, 8192, 16384)]));
    put(&drive, 8192 * 512, &mbr(&[(0x83, 64, 1024), (0x05, 4096, 4096)]));
    put(&drive, (8192 + 4096) * 512, &mbr(&[(0x83, 64, 1024), (0x05, 0, 4096)]));
    let said = run(["scan", &drive]).failed(1, "WTL-0064", &["after number 6", "circle"]);
    for part in ["p1", "p5", "p6"] {
        assert!(said.text().contains(&format!("chain:{part}")), "{}", said.text());
    }
}
