//! Devices of bcache, made by bcache-tools: what is on a backing device is read while its cache has
//! nothing newer, and is refused by name where it has.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use wattle_format::bcache::{AT_BYTES, seal};

use crate::harness::{Room, require, run, tool};

const DATA_BYTES: u64 = 8 << 20;

/// A backing device with these bytes on it, from 1 MiB on; `None` where it cannot be made.
fn backing(room: &Room, name: &str, data: &[u8]) -> Option<String> {
    if !require("make-bcache") {
        return None;
    }
    let device = room.device(name, data.len() as u64 + (1 << 20));
    tool("make-bcache", ["-B", "--writeback", "-w", "512", "-o", "2048", &device]);
    let file = File::options().write(true).open(&device).unwrap();
    file.write_all_at(data, 1 << 20).unwrap();
    Some(device)
}

/// Gives a backing device a state, as Linux does.
fn set_state(device: &str, state: u64) {
    let file = File::options().read(true).write(true).open(device).unwrap();
    let mut bytes = vec![0; 4096];
    file.read_exact_at(&mut bytes, AT_BYTES).unwrap();
    let flags = u64::from_le_bytes(bytes[104..112].try_into().unwrap()) & !(3 << 61) | state << 61;
    bytes[104..112].copy_from_slice(&flags.to_le_bytes());
    seal(&mut bytes);
    file.write_all_at(&bytes, AT_BYTES).unwrap();
    if require("bcache-super-show") {
        let shown = tool("bcache-super-show", [device]);
        assert!(shown.contains("[match]") && !shown.contains("Invalid"), "{shown}");
    }
}

fn content() -> Vec<u8> {
    (0..DATA_BYTES / 4).flat_map(|at| (at as u32).wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

#[test]
fn a_backing_device_is_read_unless_its_cache_has_newer_data() {
    let room = Room::new();
    let content = content();
    let Some(device) = backing(&room, "backing", &content) else { return };
    for (state, word) in [(0, "writeback, no cache"), (1, "writeback, clean, caches of the set")] {
        set_state(&device, state);
        let said = room.untouched(|| run(["cat", &device])).ok();
        assert!(said.stdout == content, "state {state}");
        let said = run(["scan", &device]).ok();
        assert!(said.text().contains(&format!("bcache backing device, {word}")), "{}", said.text());
    }
    set_state(&device, 2);
    run(["cat", &device]).failed(3, "WTL-0347", &["its newest data is on its cache", "--force=cache"]);
    let said = run(["scan", &device]);
    assert!(said.text().contains("dirty, caches of the set") && said.status == 3, "{}", said.text());
    let said = run(["cat", "--force=cache", &device]).ok();
    assert!(said.stdout == content);
    assert!(said.stderr.contains("--force=cache: what only its cache has is passed over"), "{}", said.stderr);
    set_state(&device, 3);
    let said = run(["cat", &device]).ok();
    assert!(said.stderr.contains("it was used without its cache since"), "{}", said.stderr);
}

#[test]
fn what_is_on_it_is_a_layer_like_any_other() {
    let room = Room::new();
    let arrays = room.array("1", 2);
    let whole = run(["cat", &arrays[0], &arrays[1]]).ok().stdout;
    let mut devices = Vec::new();
    for (nth, member) in arrays.iter().enumerate() {
        let Some(device) = backing(&room, &format!("backing-{nth}"), &fs::read(member).unwrap()) else {
            return;
        };
        devices.push(device);
    }
    let said = run(["cat", &devices[0], &devices[1]]).ok();
    assert!(said.stdout == whole);
    let said = run(["scan", "--json", &devices[0], &devices[1]]).ok().json();
    let volumes = said["volumes"].as_array().unwrap();
    let below = volumes.iter().find(|volume| volume["bcache"].is_object()).unwrap();
    assert_eq!(
        (&below["bcache"]["role"], &below["bcache"]["mode"]),
        (&"backing".into(), &"writeback".into())
    );
    room.untouched(|| {
        let said = run(["serve", "--run", "true", &devices[0], &devices[1]]);
        said.failed(1, "WTL-0025", &["read-only"]);
    });
}

#[test]
fn a_superblock_at_the_end_is_that_of_what_is_on_it() {
    let room = Room::new();
    let arrays = room.blank(2, 16 << 20);
    let create = ["create", "data", "--level", "1", "--metadata", "1.0"];
    run(create.into_iter().chain(arrays.iter().map(String::as_str))).ok();
    let whole = run(["cat", &arrays[0], &arrays[1]]).ok().stdout;
    let Some(device) = backing(&room, "backing", &fs::read(&arrays[0]).unwrap()) else { return };
    assert!(run(["cat", &device]).ok().stdout == whole);
}

#[test]
fn cache_devices_and_damaged_superblocks_are_named() {
    let room = Room::new();
    if !require("make-bcache") {
        return;
    }
    let cache = room.device("cache", 128 << 20);
    tool("make-bcache", ["-C", &cache]);
    let said = run(["scan", &cache]);
    assert!(said.text().contains("bcache cache device of the set"), "{}{}", said.text(), said.stderr);
    run(["cat", &cache]).failed(1, "WTL-0040", &["bcache"]);
    let Some(device) = backing(&room, "backing", &content()) else { return };
    let file = File::options().write(true).open(&device).unwrap();
    file.write_all_at(&[7], AT_BYTES + 60).unwrap();
    run(["cat", &device]).failed(1, "WTL-0348", &["the checksum of the superblock"]);
    // A partition table that was made later.
    let device = backing(&room, "partitioned", &content()).unwrap();
    tool("sh", ["-c", &format!("echo 4096,8192,83 | sfdisk -q {device}")]);
    let said = run(["scan", &device]);
    assert!(!said.text().contains("bcache backing device,"), "{}", said.text());
}
