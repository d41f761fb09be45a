//! Devices of bcache, made by bcache-tools: what is on a backing device is read while its cache has
//! nothing newer, and is refused by name where it has. With its cache it is read as Linux reads it
//! (fixtures/bcache: a cache and two backing devices that a real kernel left under load).

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use sha2::{Digest, Sha256};
use wattle_format::bcache::{AT_BYTES, seal};

use crate::harness::{Room, fixtures, require, run, tool};

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
        said.failed(1, "WTL-0025", &["only read", "data of bcache", "--read-only"]);
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
    tool("sh", ["-c", &format!("echo 4096,8192,83 | sfdisk -q --no-tell-kernel {device}")]);
    let said = run(["scan", &device]);
    assert!(!said.text().contains("bcache backing device,"), "{}", said.text());
}

/// The cache of the fixture and its two backing devices; `None`, loudly, where they cannot be
/// unpacked.
fn loaded(room: &Room) -> Option<[String; 3]> {
    if !require("zstd") {
        return None;
    }
    Some(["cache", "backing-0", "backing-1"].map(|name| {
        let packed = fixtures().join(format!("bcache/{name}.img.zst"));
        let image = room.name(name);
        tool("zstd", ["-dqf", packed.to_str().unwrap(), "-o", &image]);
        image
    }))
}

/// What Linux read.
fn expected(name: &str) -> String {
    let text = fs::read_to_string(fixtures().join("bcache/contents.sha256")).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once("  "));
    lines.filter(|(_, of)| *of == name).map(|(sum, _)| sum.to_owned()).next().unwrap()
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn what_only_its_cache_has_is_read_from_there() {
    let room = Room::new();
    let Some([cache, first, second]) = loaded(&room) else { return };
    room.untouched(|| {
        for (name, members) in [
            ("backing-0", [&first, &cache]),
            ("backing-0", [&cache, &first]),
            ("backing-1", [&cache, &second]),
        ] {
            let said = run(["cat", members[0], members[1]]).ok();
            assert_eq!(sum(&said.stdout), expected(name), "{name}: {}", said.stderr);
        }
        // Any part of it is the same as that part of the whole.
        let whole = run(["cat", &cache, &first]).ok().stdout;
        for (from, len) in [(0, 512), (512 * 999, 512 * 77), (1_000_448, 4096 * 3 + 512)] {
            let args = ["cat", "--offset", &from.to_string(), "--length", &len.to_string(), &cache, &first];
            assert!(run(args).ok().stdout == whole[from..from + len], "{from}:{len}");
        }
        // Both at once.
        let volume = format!("{second}:bcache");
        let said = run(["cat", "-V", &volume, &first, &second, &cache]).ok();
        assert_eq!(sum(&said.stdout), expected("backing-1"));
        let said = run(["scan", "--json", &first, &second, &cache]).ok().json();
        let volumes = said["volumes"].as_array().unwrap();
        let cached: Vec<_> =
            volumes.iter().filter(|volume| volume["bcache"]["cache"] == cache.as_str()).collect();
        assert_eq!(cached.len(), 2, "{said}");
        assert!(cached.iter().all(|volume| volume["bcache"]["dirty_bytes"].as_u64().unwrap() > 0));
        let said = run(["scan", &first, &cache]).ok();
        assert!(said.text().contains("read with its cache"), "{}", said.text());
        run(["serve", "--read-only", "--run", "true", &first, &cache]).ok();
    });
}

#[test]
fn without_its_own_cache_a_dirty_device_is_refused() {
    let room = Room::new();
    let Some([cache, first, _]) = loaded(&room) else { return };
    let said = run(["cat", &first]).failed(3, "WTL-0347", &["is not among the members", "--force=cache"]);
    let set = said.stderr.split("the set ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let copy = room.name("copy");
    fs::copy(&cache, &copy).unwrap();
    run(["cat", &first, &cache, &copy]).failed(3, "WTL-0347", &["several members are the cache"]);
    // A cache of another set.
    let file = File::options().read(true).write(true).open(&copy).unwrap();
    let mut bytes = vec![0; 4096];
    file.read_exact_at(&mut bytes, AT_BYTES).unwrap();
    bytes[60] ^= 1;
    seal(&mut bytes);
    file.write_all_at(&bytes, AT_BYTES).unwrap();
    run(["cat", &first, &copy]).failed(3, "WTL-0347", &["copy is of the set", &set]);
    assert_eq!(sum(&run(["cat", &first, &cache, &copy]).ok().stdout), expected("backing-0"));
    // The right set, and another device.
    let mut bytes = vec![0; 4096];
    let file = File::options().read(true).write(true).open(&first).unwrap();
    file.read_exact_at(&mut bytes, AT_BYTES).unwrap();
    bytes[41] ^= 1;
    seal(&mut bytes);
    file.write_all_at(&bytes, AT_BYTES).unwrap();
    run(["cat", &first, &cache]).failed(3, "WTL-0347", &["does not know it"]);
}

#[test]
fn a_damaged_cache_is_refused_with_the_place() {
    let room = Room::new();
    let Some([cache, first, _]) = loaded(&room) else { return };
    let bytes = fs::read(&cache).unwrap();
    // A node of the tree: its magic number follows from the id of the set.
    let set = u64::from_le_bytes(bytes[4096 + 56..4096 + 64].try_into().unwrap());
    let magic = (set ^ 0x9013_5c78_b99e_07f5).to_le_bytes();
    let is_node = |at: &usize| bytes[at + 8..at + 16] == magic;
    let nodes: Vec<_> = (1 << 16..bytes.len()).step_by(4096).filter(is_node).collect();
    let mut damaged = bytes.clone();
    nodes.iter().for_each(|at| damaged[at + 40] ^= 4);
    fs::write(&cache, &damaged).unwrap();
    run(["cat", &first, &cache]).failed(1, "WTL-0349", &["of the tree", "at byte", "--force=cache"]);
    let said = run(["scan", &first, &cache]);
    assert!(said.text().contains("WTL-0349"), "{}{}", said.text(), said.stderr);
    let said = run(["cat", "--force=cache", &first, &cache]).ok();
    assert!(sum(&said.stdout) != expected("backing-0"));
    assert!(said.stderr.contains("what only its cache has is passed over"), "{}", said.stderr);
    // A clean device needs nothing of it.
    set_state(&first, 1);
    let said = run(["cat", &first, &cache]).ok();
    assert!(said.stderr.contains("it is clean, and is read without its cache"), "{}", said.stderr);
    fs::write(&cache, &bytes).unwrap();
    let said = run(["cat", &first, &cache]).ok();
    assert_eq!(sum(&said.stdout), expected("backing-0"));
    // The backing device was used without it: what the cache has does not count any more.
    set_state(&first, 3);
    let said = run(["cat", &first, &cache]).ok();
    assert!(sum(&said.stdout) != expected("backing-0") && said.stderr.contains("used without its cache"));
}

/// Writes that were acknowledged and are only in a cache go with its superblock.
#[test]
fn a_cache_with_what_is_only_there_is_not_erased() {
    let room = Room::new();
    let Some([cache, first, _]) = loaded(&room) else { return };
    for members in [&[&cache][..], &[&cache, &first], &[&first, &cache]] {
        let erase = ["erase", "--dry-run"].into_iter().chain(members.iter().map(|member| member.as_str()));
        let said = room.untouched(|| run(erase.clone()));
        said.failed(3, "WTL-0185", &["only"]);
        run(erase.chain(["--force=in-use"])).ok();
    }
    room.untouched(|| run(["erase", "--dry-run", &cache])).failed(3, "WTL-0185", &["that are only there"]);
    room.untouched(|| run(["erase", "--dry-run", &first])).failed(3, "WTL-0185", &["and dirty"]);
}
