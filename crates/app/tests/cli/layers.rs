//! What lies on arrays and in partitions, as an operator sees it: the volume group that a real
//! kernel and LVM2 put on a RAID 5, on whole drives and on partitions of disks.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use crate::harness::{Room, Serve, fixtures, require, run, tool};

const START_SECTORS: u64 = 2048;

/// The fixture's members; `None`, loudly, where they cannot be unpacked.
pub fn unpack(room: &Room) -> Option<Vec<String>> {
    require("zstd").then(|| {
        let unpack = |ix| {
            let image = room.name(&format!("member-{ix}.img"));
            let packed = fixtures().join(format!("lvm-linear-on-raid5/member-{ix}.img.zst"));
            tool("zstd", ["-dq", packed.to_str().unwrap(), "-o", &image]);
            image
        };
        (0..5).map(unpack).collect()
    })
}

pub fn with(args: &[&str], members: &[String]) -> Vec<String> {
    args.iter().map(|arg| (*arg).to_owned()).chain(members.iter().cloned()).collect()
}

/// Disks with one partition each, which holds a member and ends so many bytes before the disk does.
pub fn partitioned(room: &Room, members: &[String], rest_bytes: u64) -> Vec<String> {
    let disk = |(ix, member): (usize, &String)| {
        let content = fs::read(member).unwrap();
        let size_bytes = START_SECTORS * 512 + content.len() as u64 + rest_bytes;
        let name = room.device(&format!("disk{ix}.img"), size_bytes);
        let mut disk = fs::OpenOptions::new().write(true).open(&name).unwrap();
        let mut mbr = [0_u8; 512];
        mbr[450] = 0xFD;
        mbr[454..458].copy_from_slice(&(START_SECTORS as u32).to_le_bytes());
        mbr[458..462].copy_from_slice(&(content.len() as u32 / 512).to_le_bytes());
        mbr[510..].copy_from_slice(&[0x55, 0xAA]);
        disk.write_all(&mbr).unwrap();
        disk.seek(SeekFrom::Start(START_SECTORS * 512)).unwrap();
        disk.write_all(&content).unwrap();
        name
    };
    members.iter().enumerate().map(disk).collect()
}

/// What one client writes would change what the other's volume is made of, below its limits and
/// checkpoints.
#[test]
fn a_volume_and_what_it_lies_on_are_not_both_written() {
    let room = Room::new();
    let Some(members) = unpack(&room) else { return };
    let scan = run(with(&["scan", "--json"], &members)).ok().json();
    let array = scan["arrays"][0]["name"].as_str().unwrap();
    let both = ["-V", array, "-V", "foxtrot/home"];
    let said = Serve::try_start(&room, &both, &members).err().expect("it is refused");
    said.failed(2, "WTL-0007", &["lies on", "both are to be written", "--read-only"]);
    Serve::start(&room, &[&both[..], &["--read-only"]].concat(), &members).stop();
}

/// A superblock of version 0.90 does not say where it is: at the end of the last partition it is at
/// the end of the disk as well.
#[test]
fn an_old_superblock_at_the_end_of_disk_and_partition_is_the_partitions() {
    let room = Room::new();
    let members: Vec<_> = (0..2).map(|ix| room.device(&format!("old-{ix}"), 8 << 20)).collect();
    run(with(&["create", "old", "--level", "1", "--metadata", "0.90"], &members)).ok();
    let disks = partitioned(&room, &members, 0);
    let json = room.untouched(|| run(with(&["scan", "--json"], &disks)).ok().json());
    let array = &json["arrays"][0];
    assert_eq!((&array["slots"], json["arrays"].as_array().unwrap().len()), (&"[UU]".into(), 1));
    assert!(array["members"][0]["member"].as_str().unwrap().ends_with("disk0.img:p1"), "{array}");
    let note = json["members"][0]["note"].as_str().unwrap();
    assert!(note.contains("0.90 superblock is that of partition 1"), "{note}");
    // The disk as a whole, without its table, is a member like any: an array over whole disks stays
    // one.
    let whole = room.untouched(|| run(with(&["scan", "--json"], &members)).ok().json());
    assert_eq!(whole["arrays"][0]["slots"], "[UU]");
}

#[test]
fn the_tree_goes_up_to_the_file_systems() {
    let room = Room::new();
    let Some(members) = unpack(&room) else { return };
    let said = room.untouched(|| run(with(&["scan"], &members)).ok());
    for line in [
        "└─ foxtrot  volume group, 72 MiB, 12 MiB free",
        "   ├─ foxtrot/root  32 MiB, linear",
        "   └─ foxtrot/home  28 MiB, linear, ext4",
    ] {
        assert!(said.text().lines().any(|found| found == line), "{line}: {}", said.text());
    }
    let (picture, picture_of_four) = (room.name("stack.svg"), room.name("degraded.svg"));
    run(with(&["scan", "--svg", &picture], &members)).ok();
    let drawn = fs::read_to_string(&picture).unwrap();
    for text in ["member-4.img", "raid5 [UUUUU]", "foxtrot", "12 MiB free", "foxtrot/home", "linear", "ext4"]
    {
        assert!(drawn.contains(&format!(">{text}</text>")), "{text}: {drawn}");
    }
    // Each member below the array, the array below the group, the group below its two volumes.
    assert_eq!(drawn.matches("<line").count(), 5 + 1 + 2);
    run(with(&["scan", "--svg", &picture_of_four], &members[1..])).ok();
    let drawn = fs::read_to_string(&picture_of_four).unwrap();
    for text in ["degraded", "slot 0", "missing"] {
        assert!(drawn.contains(&format!(">{text}</text>")), "{text}: {drawn}");
    }
    assert_eq!(drawn.matches("<line").count(), 5 + 1 + 2);
    run(with(&["scan", "--svg", "/nonexistent/stack.svg"], &members)).failed(1, "WTL-0105", &["picture"]);
    let json = room.untouched(|| run(with(&["scan", "--json"], &members[1..])).ok().json());
    assert_eq!(json["arrays"][0]["health"], "degraded");
    let group = &json["groups"][0];
    assert_eq!((group["name"].as_str(), group["free_bytes"].as_u64()), (Some("foxtrot"), Some(12 << 20)));
    assert_eq!(group["physical_volumes"][0]["pe_start_bytes"], 1 << 20);
    let names: Vec<_> = json["volumes"].as_array().unwrap().iter().map(|volume| &volume["name"]).collect();
    assert_eq!(names, ["0", "foxtrot/root", "foxtrot/home"]);
    let top: Vec<_> = json["volumes"].as_array().unwrap().iter().map(|volume| &volume["top"]).collect();
    assert_eq!(top, [false, true, true]);
}

#[test]
fn a_volume_is_named_where_there_are_several() {
    let room = Room::new();
    let Some(members) = unpack(&room) else { return };
    run(with(&["cat"], &members)).failed(2, "WTL-0007", &["foxtrot/root, foxtrot/home"]);
    run(with(&["cat", "-V", "foxtrot/usr"], &members)).failed(2, "WTL-0006", &["foxtrot/home"]);
    // The advice is not to name another volume when the array below lacks members.
    let blocked = ["no volume is called foxtrot/home", "2 of 5 members are missing"];
    run(with(&["cat", "-V", "foxtrot/home"], &members[2..])).failed(1, "WTL-0048", &blocked);
    let server = Serve::try_start(&room, &["-V", "foxtrot/home"], &members[2..]).err().unwrap();
    server.failed(1, "WTL-0048", &blocked);
    let array = run(with(&["cat", "-V", "0"], &members)).ok().stdout;
    // Two runs of extents behind one MiB (case.json and guest.log of the fixture).
    let extent = 4 << 20;
    let expected =
        [&array[1 << 20..][..5 * extent], &array[(1 << 20) + 12 * extent..][..3 * extent]].concat();
    for missing in 0..5 {
        let mut members = members.clone();
        members.remove(missing);
        let root = room.untouched(|| run(with(&["cat", "-V", "foxtrot/root"], &members)).ok().stdout);
        assert!(root == expected, "without member {missing}");
    }
    let part =
        run(with(&["cat", "-V", "foxtrot/root", "--offset", "20971008", "--length", "1024"], &members));
    assert!(part.ok().stdout == expected[20_971_008..][..1024], "across the two runs");
}

/// Files are only where a file system is: what else lies on the members need not be known.
#[test]
fn the_only_file_system_is_taken_and_scan_ends_with_the_way_to_it() {
    let room = Room::new();
    let Some(members) = unpack(&room) else { return };
    let said = room.untouched(|| run(with(&["ls"], &members)).ok());
    assert!(said.text().contains("proof.txt"), "{said:?}");
    assert!(said.stderr.contains("foxtrot/home is the only volume with a file system"), "{said:?}");
    // The bytes of a volume are asked for by its name.
    run(with(&["copy", "--to", &room.name("copy")], &members)).failed(2, "WTL-0007", &["foxtrot/root"]);
    let scan = |members: &[String]| run(with(&["scan"], members)).ok().text().to_owned();
    let names = members.join(" ");
    let end = format!("\nFiles are on foxtrot/home, ext4: `wattle ls {names}`\n");
    assert!(scan(&members).ends_with(&end), "{}", scan(&members));

    // A second one has to be told from the first.
    let others = Room::new();
    let [other] = others.blank(1, 8 << 20).try_into().unwrap();
    tool("mkfs.ext4", ["-q", "-F", &other]);
    let both = [&members[..], std::slice::from_ref(&other)].concat();
    let refused = run(with(&["ls"], &both));
    refused.failed(2, "WTL-0007", &["files are on foxtrot/home (ext4)", "member-0 (ext4)"]);
    let scanned = scan(&both);
    let ways: Vec<_> = scanned.lines().rev().take(2).collect();
    assert!(ways[1].ends_with(&format!("`wattle ls {} -V foxtrot/home`", both.join(" "))), "{ways:?}");
    assert!(ways[0].ends_with(&format!("-V {other}`")), "{ways:?}");

    // Where something cannot be looked into, it may hold what is meant.
    let torn = others.array("5", 3);
    let unknown = [&members[..], &torn[..1]].concat();
    run(with(&["ls"], &unknown)).failed(2, "WTL-0007", &["files are on foxtrot/home (ext4)"]);
    run(with(&["ls", "-V", "foxtrot/home"], &unknown)).ok();
}

/// Arrays of a NAS have slots for all bays there could ever be.
#[test]
fn slots_without_members_are_one_line() {
    let room = Room::new();
    let members = room.array("6", 6);
    let text = run(with(&["scan"], &[&members[..2], &members[4..]].concat())).ok().text().to_owned();
    let missing: Vec<_> = text.lines().filter(|line| line.contains("missing  -")).collect();
    assert_eq!(missing, ["  2-3   missing  -       -"]);
    let text =
        run(with(&["scan"], &[&members[..1], &members[2..4], &members[5..]].concat())).ok().text().to_owned();
    let missing: Vec<_> = text.lines().filter(|line| line.contains("missing  -")).collect();
    assert_eq!(missing.len(), 2, "{text}");
}

#[test]
fn the_same_in_partitions_of_disks() {
    let room = Room::new();
    let Some(members) = unpack(&room) else { return };
    let disks = partitioned(&room, &members, 1 << 20);
    let said = room.untouched(|| run(with(&["scan"], &disks)).ok());
    for words in ["MBR partition table", "member of 0", "disk4.img:p1", "foxtrot/home  28 MiB, linear, ext4"]
    {
        assert!(said.text().contains(words), "{words}: {}", said.text());
    }
    let cat = |members: &[String]| run(with(&["cat", "-V", "foxtrot/home"], members)).ok().stdout;
    assert!(room.untouched(|| cat(&disks[1..])) == cat(&members));
}

#[test]
fn a_bare_file_system_is_a_volume() {
    if !require("mkfs.ext4") {
        return;
    }
    let room = Room::new();
    let image = room.device("photos.img", 8 << 20);
    tool("mkfs.ext4", ["-q", "-L", "photos", &image]);
    let said = room.untouched(|| run(["cat", &image]).ok());
    assert!(said.stdout == fs::read(&image).unwrap());
    // One that holds nothing that is known has to be named.
    let blank = room.device("blank.img", 1 << 20);
    run(["cat", &blank]).failed(1, "WTL-0040", &["blank.img"]);
    assert_eq!(run(["cat", "-V", "blank.img", &blank]).ok().stdout.len(), 1 << 20);
}

/// Writes through the volume of one server are there for the next, with any member missing, and
/// nowhere else.
#[test]
fn volumes_are_served_and_written() {
    let room = Room::new();
    if !require("nbdcopy") {
        return;
    }
    let Some(members) = unpack(&room) else { return };
    let home = run(with(&["cat", "-V", "foxtrot/home"], &members)).ok().stdout;
    let server = Serve::start(&room, &[], &members);
    assert!(
        server.said.contains("foxtrot/root: 32 MiB") && server.said.contains("foxtrot/home: 28 MiB"),
        "{}",
        server.said
    );
    let status = server.command(&["status", "--json"]).ok().json();
    let way = |name: &str| {
        let volumes = status["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == name).unwrap();
        volume["exports"][0].as_str().unwrap().to_owned()
    };
    assert_eq!(status["arrays"][0]["name"], "0");
    let copied = room.name("copied");
    tool("nbdcopy", [&way("foxtrot/home"), &copied]);
    assert!(fs::read(&copied).unwrap() == home);
    let pattern: Vec<u8> = (0..32_u32 << 20).map(|at| (at / 4096 * 7 + at % 251) as u8).collect();
    let written = room.name("written");
    fs::write(&written, &pattern).unwrap();
    tool("nbdcopy", ["--flush", &written, &way("foxtrot/root")]);
    let stopped = server.command(&["stop", "foxtrot/root"]).ok();
    assert!(stopped.stderr.contains("stopped"), "{}", stopped.stderr);
    drop(server);
    for missing in 0..5 {
        let mut members = members.clone();
        members.remove(missing);
        let cat = |name| room.untouched(|| run(with(&["cat", "-V", name], &members)).ok().stdout);
        assert!(cat("foxtrot/root") == pattern && cat("foxtrot/home") == home, "without {missing}");
    }
}

#[test]
fn one_volume_is_served_with_what_is_below_it_and_comes_back_after_a_kill() {
    let room = Room::new();
    if !require("nbdcopy") {
        return;
    }
    let Some(members) = unpack(&room) else { return };
    let server = Serve::start(&room, &["-V", "foxtrot/root"], &members);
    let pattern = vec![0x5A; 32 << 20];
    let written = room.name("written");
    fs::write(&written, &pattern).unwrap();
    tool("nbdcopy", ["--flush", &written, &server.uri]);
    let second = Serve::try_start(&Room::new(), &["-V", "foxtrot/home"], &members).err().unwrap();
    second.failed(3, "WTL-0026", &["in use"]);
    server.kill();
    let server = Serve::start(&room, &["-V", "foxtrot/root"], &members);
    let copied = room.name("copied");
    tool("nbdcopy", [&server.uri, &copied]);
    assert!(fs::read(&copied).unwrap() == pattern);
    server.wait_until_good();
    server.stop();
    let read_only = Serve::start(&room, &["-V", "foxtrot/root", "--read-only"], &members[1..]);
    room.untouched(|| drop(read_only));
}

#[test]
fn a_bare_drive_is_served_and_written() {
    if !require("mkfs.ext4") || !require("nbdcopy") {
        return;
    }
    let room = Room::new();
    let image = room.device("photos.img", 8 << 20);
    tool("mkfs.ext4", ["-q", &image]);
    let server = Serve::start(&room, &[], std::slice::from_ref(&image));
    let other = room.device("other.img", 8 << 20);
    tool("mkfs.ext4", ["-q", "-L", "other", &other]);
    tool("nbdcopy", ["--flush", &other, &server.uri]);
    server.command(&["stop", "photos.img"]).ok();
    assert!(fs::read(&image).unwrap() == fs::read(&other).unwrap());
}

/// Arrays whose volumes are the members of an array: read, written, a member failed, stopped, found
/// again.
#[test]
fn arrays_on_arrays() {
    if !require("nbdcopy") {
        return;
    }
    let room = Room::new();
    let inner: Vec<_> = (0..2).map(|ix| room.device(&format!("inner-{ix}"), 8 << 20)).collect();
    run(with(&["create", "inner", "--level", "1"], &inner)).ok();
    let mut drives = Vec::new();
    for (ix, member) in inner.iter().enumerate() {
        let pair = ["a", "b"].map(|side| room.device(&format!("drive-{ix}{side}"), 16 << 20)).to_vec();
        run(with(&["create", &format!("outer{ix}"), "--level", "1"], &pair)).ok();
        let server = Serve::start(&room, &[], &pair);
        let size = server.array()["size_bytes"].as_u64().unwrap();
        fs::OpenOptions::new().write(true).open(member).unwrap().set_len(size).unwrap();
        tool("nbdcopy", ["--flush", member, &server.uri]);
        server.stop();
        drives.extend(pair);
    }
    let said = room.untouched(|| run(with(&["scan"], &drives)).ok());
    assert!(said.text().contains("inner  raid1 [UU], 7 MiB, on outer0, outer1"), "{}", said.text());
    let server = Serve::start(&room, &[], &drives);
    let size = usize::try_from(
        server.command(&["status", "--json"]).ok().json()["volumes"][0]["size_bytes"].as_u64().unwrap(),
    );
    let pattern: Vec<u8> = (0..size.unwrap()).map(|at| (at / 4096 * 3 + at % 253) as u8).collect();
    let written = room.name("written");
    fs::write(&written, &pattern).unwrap();
    tool("nbdcopy", ["--flush", &written, &server.uri]);
    server.command(&["fail", "inner", "outer0"]).ok();
    server.command(&["stop", "inner"]).ok();
    drop(server);
    let said = room.untouched(|| run(with(&["scan"], &drives)).ok());
    assert!(said.text().contains("inner  raid1 [_U]"), "{}", said.text());
    // One drive of four has all of it.
    assert!(run(["cat", &drives[3]]).ok().stdout == pattern);
}

/// Its members are partitions, and show only when what is below runs: it was looked for on drives,
/// where it is not.
#[test]
fn an_array_in_partitions_of_an_array_is_served() {
    let room = Room::new();
    let inner: Vec<_> = (0..2).map(|ix| room.device(&format!("inner-{ix}"), 8 << 20)).collect();
    run(with(&["create", "inner", "--level", "1"], &inner)).ok();
    let outer: Vec<_> = (0..2).map(|ix| room.device(&format!("outer-{ix}"), 20 << 20)).collect();
    // The superblock is at the end: the content starts where the members do.
    run(with(&["create", "outer", "--level", "1", "--metadata", "1.0"], &outer)).ok();
    let sectors = (8 << 20) / 512;
    let mut mbr = [0_u8; 512];
    for ix in 0..2 {
        let start = START_SECTORS as u32 + ix * sectors;
        let entry = &mut mbr[446 + 16 * ix as usize..][..16];
        entry[4] = 0xFD;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&sectors.to_le_bytes());
    }
    mbr[510..].copy_from_slice(&[0x55, 0xAA]);
    for name in &outer {
        let drive = fs::OpenOptions::new().write(true).open(name).unwrap();
        drive.write_all_at(&mbr, 0).unwrap();
        for (ix, member) in inner.iter().enumerate() {
            let at = (START_SECTORS + ix as u64 * u64::from(sectors)) * 512;
            drive.write_all_at(&fs::read(member).unwrap(), at).unwrap();
        }
    }
    let server = Serve::start(&room, &[], &outer);
    let status = server.command(&["status", "--json"]).ok().json();
    let names: Vec<_> = status["arrays"].as_array().unwrap().iter().map(|array| &array["name"]).collect();
    assert_eq!(names, ["outer", "inner"], "{status:#}");
    assert_eq!(status["volumes"][0]["name"], "inner");
    server.stop();
}

/// Two groups have one name: the volume that was named with its group's UUID is the one that is
/// served.
#[test]
fn a_volume_that_is_named_by_its_group_s_uuid_is_served() {
    let room = Room::new();
    let drives = ["a", "b"].map(|name| room.device(name, 16 << 20));
    for (drive, extents) in drives.iter().zip(["4", "6"]) {
        let backups = room.name("backups");
        run(["vg", "create", "vg", "-s", "1M", "--backup-dir", &backups, drive]).ok();
        run(["lv", "create", "vg/home", "-l", extents, "--backup-dir", &backups, drive]).ok();
    }
    let scan = run(["scan", "--json", &drives[0], &drives[1]]).ok().json();
    let groups = scan["groups"].as_array().unwrap();
    for (drive, size) in drives.iter().zip(["vg/home: 4 MiB", "vg/home: 6 MiB"]) {
        let group = groups.iter().find(|group| group["physical_volumes"][0]["member"] == drive.as_str());
        let name = format!("{}/home", group.unwrap()["uuid"].as_str().unwrap());
        let server = Serve::start(&room, &["-V", &name], &drives);
        assert!(server.said.contains(size), "{}", server.said);
        server.stop();
    }
}
