//! Partition tables: whose partitions are those of an array, and what is told of tables that are
//! not as they should be.

use std::fs;
use std::path::Path;

use crate::fuse::Loop;
use crate::harness::{Room, Serve, require, run, tool};
use crate::luks::{luks2, passphrase};
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

/// Programs that format a drive as a whole leave the second copy of a GPT at its end. No system
/// uses that table any more, and what is written to its partitions would go through what was made.
#[test]
fn what_is_left_of_a_gpt_does_not_outrank_what_was_made_since() {
    if !["mke2fs", "mkfs.exfat", "mkfs.vfat", "cryptsetup"].into_iter().all(require) {
        return;
    }
    let partitioned = |room: &Room| {
        let (drive, image) = (room.device("drive", 64 << 20), room.device("image", 28 << 20));
        run(["partition", &drive, "--part", "1:32M+28M", "--no-undo"]).ok();
        tool("mke2fs", ["-q", "-t", "ext4", &image]);
        put(&drive, 32 << 20, &fs::read(image).unwrap());
        assert!(run(["ls", &drive]).ok().text().contains("lost+found"));
        drive
    };
    for maker in [&["mkfs.exfat"][..], &["mkfs.vfat", "-I"]] {
        let room = Room::new();
        let drive = partitioned(&room);
        tool(maker[0], maker[1..].iter().copied().chain([drive.as_str()]));
        let said = run(["scan", &drive]).ok();
        assert!(said.text().contains("what is left of an older GPT is not used"), "{}", said.text());
        assert!(!said.text().contains("drive:p1"), "{}", said.text());
        assert!(!run(["ls", &drive]).ok().text().contains("lost+found"), "{maker:?}");
        let server = Serve::start(&room, &[], &[&drive]);
        assert!(!server.said.contains("drive:p1"), "{}", server.said);
        server.stop();
    }
    let room = Room::new();
    let (drive, encrypted, key) = (partitioned(&room), room.device("encrypted", 64 << 20), passphrase(&room));
    luks2(&encrypted, &[]);
    put(&drive, 0, &fs::read(encrypted).unwrap()[..16 << 20]);
    run(["ls", &drive]).failed(1, "WTL-0300", &["drive is encrypted"]);
    let said = Serve::try_start(&room, &[], &[&drive]).err().expect("there is no key");
    said.failed(1, "WTL-0300", &[]);
    let server = Serve::start(&room, &["--passphrase-file", &key], &[&drive]);
    assert!(server.said.contains("drive:luks") && !server.said.contains("drive:p1"), "{}", server.said);
    server.stop();
    // The table alone is used as before.
    put(&drive, 0, &vec![0; 16 << 20]);
    assert!(run(["ls", &drive]).ok().text().contains("lost+found"));
}

/// A header that lies elsewhere makes a drive with a table an encrypted one as well.
#[test]
fn a_partition_and_what_is_on_the_whole_drive_are_not_both_written() {
    if !["mke2fs", "cryptsetup"].into_iter().all(require) {
        return;
    }
    let room = Room::new();
    let (drive, header, image) =
        (room.device("drive", 64 << 20), room.device("header", 16 << 20), room.device("image", 28 << 20));
    let (key, named) = (passphrase(&room), format!("{drive}={header}"));
    luks2(&drive, &["--header", &header]);
    put(&drive, 0, &mbr(&[(0x83, 65536, 57344)]));
    tool("mke2fs", ["-q", "-t", "ext4", &image]);
    put(&drive, 32 << 20, &fs::read(image).unwrap());
    let with = ["--header", &named, "--passphrase-file", &key];
    let said = Serve::try_start(&room, &with, &[&drive]).err().expect("both are on one drive");
    said.failed(2, "WTL-0007", &["are both on", "one of them in a partition", "-V"]);
    Serve::start(&room, &[&with[..], &["--read-only"]].concat(), &[&drive]).stop();
    let inside = format!("{drive}:luks");
    Serve::start(&room, &[&with[..], &["-V", &inside]].concat(), &[&drive]).stop();
}

/// Hazard: a disk of sectors of 512 has one thing at eight times the place of a partition that
/// shows nothing, and that partition is written there, over another one. Linux made the partitions
/// of a block device in its sectors.
#[test]
fn partitions_of_a_block_device_are_where_linux_has_them() {
    const MIB: u64 = 1 << 20;
    if !require("losetup") {
        return;
    }
    let room = Room::new();
    let drives = ["a", "b"].map(|name| room.device(name, 256 * MIB));
    for drive in &drives {
        put(drive, 0, &mbr(&[(0x83, 2048, 32768), (0x83, 34816, 16384)]));
        put(drive, 8 * MIB + 4086, b"SWAPSPACE2");
    }
    let image = run(["scan", &drives[0]]).ok();
    assert!(image.text().contains("taken in sectors of 4096, and only read"), "{}", image.text());
    let parts = drives.each_ref().map(|drive| format!("{drive}:p2"));
    let create = ["create", "e", "--level", "1", "--yes", "--no-undo"];
    run(create.into_iter().chain(parts.iter().map(String::as_str))).failed(1, "WTL-0025", &[&parts[0]]);
    let Some(loops) = drives.each_ref().map(|drive| Loop::over(Path::new(drive), &[])).into_iter().collect()
    else {
        return;
    };
    let loops: Vec<Loop> = loops;
    let scan = run(["scan", "--json", &loops[0].0]).ok().json();
    assert_eq!(scan["members"][1]["size_bytes"], 16 * MIB, "{scan:#}");
    let parts: Vec<_> = loops.iter().map(|device| format!("{}:p2", device.0)).collect();
    run(create.into_iter().chain(parts.iter().map(String::as_str))).ok();
    let superblock = fs::read(&drives[0]).unwrap()[(17 * MIB) as usize + 4096..][..4].to_vec();
    assert_eq!(superblock, 0xa92b_4efc_u32.to_le_bytes());
    // Where all of it is found in the other size, that is told.
    let all = room.device("all", 64 * MIB);
    put(&all, 0, &mbr(&[(0x83, 2048, 2048)]));
    put(&all, 8 * MIB + 4086, b"SWAPSPACE2");
    let Some(device) = Loop::over(Path::new(&all), &[]) else { return };
    let scan = run(["scan", &device.0]).ok();
    assert!(scan.text().contains("losetup --sector-size 4096"), "{}", scan.text());
}
