//! Files of file systems that Windows makes, on arrays and without.

use std::path::Path;
use std::process::Command;

use crate::harness::{Room, Serve, require, run, tool};

fn made(room: &Room, mkfs: &[&str], size: u64) -> String {
    let image = room.device("image", size);
    tool(mkfs[0], mkfs[1..].iter().copied().chain([image.as_str()]));
    image
}

/// NTFS in a RAID 5 that lacks a member, as on a PC with a RAID of its firmware.
#[test]
fn files_of_ntfs_come_out_of_an_array_without_a_member() {
    if !require("mkntfs") || !require("ntfscp") || !require("nbdcopy") {
        return;
    }
    let room = Room::new();
    let image = made(&room, &["mkntfs", "-q", "-F", "-Q", "-L", "pictures"], 20 << 20);
    let text: Vec<u8> = (0..40_000_u32).flat_map(u32::to_le_bytes).collect();
    let file = room.name("file");
    std::fs::write(&file, &text).unwrap();
    tool("ntfscp", ["-f", &image, &file, "holiday.jpg"]);
    let members = room.array("5", 3);
    let serve = Serve::start(&room, &[], &members);
    tool("nbdcopy", [&image, &serve.uri]);
    serve.stop();
    let left = &members[1..];
    let scanned = run(["scan"].iter().map(|word| (*word).to_owned()).chain(left.iter().cloned())).ok();
    let text_of_scan = String::from_utf8_lossy(&scanned.stdout).into_owned();
    assert!(text_of_scan.contains("ntfs") && text_of_scan.contains("wattle ls"), "{text_of_scan}");
    let listed =
        run(["ls", "--json"].iter().map(|word| (*word).to_owned()).chain(left.iter().cloned())).ok().json();
    assert_eq!(listed["file_system"]["kind"], "ntfs");
    assert_eq!(listed["entries"][0]["path"], "holiday.jpg", "{listed:#}");
    let to = room.name("to");
    run(["get", "--to", &to].iter().map(|word| (*word).to_owned()).chain(left.iter().cloned())).ok();
    assert!(std::fs::read(Path::new(&to).join("holiday.jpg")).unwrap() == text);
}

/// A log that was not closed is in the exit status; a volume that is marked too.
#[test]
fn what_windows_left_open_is_in_the_exit_status() {
    if !require("mkntfs") || !require("mkfs.vfat") || !require("mcopy") {
        return;
    }
    let room = Room::new();
    let image = made(&room, &["mkntfs", "-q", "-F", "-Q", "-f"], 20 << 20);
    let mut bytes = std::fs::read(&image).unwrap();
    let log = bytes.windows(8192).position(|part| part.iter().all(|&byte| byte == 0xff)).unwrap();
    bytes[log..log + 4].copy_from_slice(b"RSTR");
    std::fs::write(&image, bytes).unwrap();
    run(["ls", &image]).failed(1, "WTL-0144", &["its log was not closed"]);
    let stick = room.device("stick", 3 << 20);
    tool("mkfs.vfat", ["-n", "STICK", &stick]);
    let copied = Command::new("mcopy").args(["-i", &stick, &image, "::/image"]).output().unwrap();
    assert!(!copied.status.success(), "it has no room for that");
    let file = room.name("file");
    std::fs::write(&file, b"on a stick").unwrap();
    tool("mcopy", ["-i", &stick, &file, "::/A name.txt"]);
    let said = run(["get", &stick, "--path", "/A name.txt", "--to", "-"]).ok();
    assert_eq!(said.stdout, b"on a stick");
}
