//! Devices of dm-integrity that a real kernel wrote (fixtures/integrity): read as Linux read them;
//! what rotted is an error, or comes from the others of an array, and is never data.

use std::fs;
use std::os::unix::fs::FileExt;

use sha2::{Digest, Sha256};

use crate::harness::{Room, Said, Serve, fixtures, require, run, tool};
use crate::undo::{log_of, saving};

/// Where data and tags of the fixtures begin at the earliest: behind their journals.
const AREAS_FROM: u64 = 600 << 10;

/// Devices of the fixture; `None`, loudly, where they cannot be unpacked.
fn unpacked(room: &Room, names: &[&str]) -> Option<Vec<String>> {
    if !require("zstd") {
        return None;
    }
    let unpack = |name: &&str| {
        let packed = fixtures().join(format!("integrity/{name}.img.zst"));
        let image = room.name(name);
        tool("zstd", ["-dqf", packed.to_str().unwrap(), "-o", &image]);
        image
    };
    Some(names.iter().map(unpack).collect())
}

fn key() -> String {
    fixtures().join("integrity/key").to_str().unwrap().to_owned()
}

/// What Linux read.
fn expected(name: &str) -> String {
    let text = fs::read_to_string(fixtures().join("integrity/contents.sha256")).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once("  "));
    lines.filter(|(_, of)| *of == name).map(|(sum, _)| sum.to_owned()).next().unwrap()
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn cat(more: &[&str], members: &[String]) -> Said {
    run(["cat"].into_iter().chain(more.iter().copied()).chain(members.iter().map(String::as_str)))
}

/// Flips a bit of a file.
fn flip(path: &str, at: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn devices_are_read_as_linux_reads_them() {
    let room = Room::new();
    for name in ["cut", "cut4k", "hmac", "bitmap", "direct"] {
        let Some(device) = unpacked(&room, &[name]) else { return };
        let key = key();
        let more = if name == "hmac" { &["--key-file", &key][..] } else { &[] };
        let said = room.untouched(|| cat(more, &device)).ok();
        assert_eq!(sum(&said.stdout), expected(name), "{name}");
        let is_told = said.stderr.contains("have no checksum that counts (the bitmap names them)");
        assert_eq!(is_told, name == "bitmap", "{name}: {}", said.stderr);
    }
}

/// A superblock 0.90 does not say where it lies: it is the member's, unless it lies where that of
/// what is on the device would.
#[test]
fn a_mirror_of_version_0_90_below_one_stays_an_array() {
    let room = Room::new();
    let Some(device) = unpacked(&room, &["direct"]) else { return };
    let members = ["first", "second"].map(|name| room.device(name, 8 << 20));
    let [first, second] = &members;
    let made = ["create", "old", first, second, "--level", "1", "--metadata", "0.90", "--assume-clean"];
    run(made.into_iter().chain(["--no-undo"])).ok();
    let bytes = fs::read(&device[0]).unwrap();
    for member in &members {
        fs::File::options().write(true).open(member).unwrap().write_all_at(&bytes, 0).unwrap();
    }
    let said = run(["scan", first, second]).ok();
    assert!(said.text().contains("raid1") && said.text().contains("UU"), "{}", said.text());
    let said = room.untouched(|| cat(&[], &members)).ok();
    assert_eq!(sum(&said.stdout), expected("direct"));
}

#[test]
fn scan_says_what_they_are() {
    let room = Room::new();
    let Some(devices) = unpacked(&room, &["cut", "cut4k"]) else { return };
    let said = run(["scan", &devices[0]]).ok();
    for words in ["dm-integrity, crc32c, tags of 4 bytes, blocks of 512", "blocks are read from its journal"]
    {
        assert!(said.text().contains(words), "{}", said.text());
    }
    let said = run(["scan", "--json", &devices[1]]).ok().json();
    let volumes = said["volumes"].as_array().unwrap();
    let on = volumes.iter().find(|volume| volume["kind"] == "drive").unwrap();
    let found = &on["integrity"];
    assert_eq!(found["checksum"], "sha1");
    assert_eq!((found["tag_bytes"].as_u64(), found["block_bytes"].as_u64()), (Some(20), Some(4096)));
    assert_eq!(found["provided_bytes"].as_u64(), Some(4992 * 512));
    assert!(found["logged_blocks"].as_u64().unwrap() > 0);
    let inside = volumes.iter().find(|volume| volume["kind"] == "layered").unwrap();
    assert_eq!((inside["size_bytes"].as_u64(), inside["top"].as_bool()), (Some(4992 * 512), Some(true)));
}

/// Wherever a bit flips in data or tags: what comes out is right, or it is an error.
#[test]
fn what_rotted_never_comes_out() {
    let room = Room::new();
    for name in ["cut", "cut4k", "hmac", "direct"] {
        let Some(device) = unpacked(&room, &[name]) else { return };
        let pristine = fs::read(&device[0]).unwrap();
        let key = key();
        let more = if name == "hmac" { &["--key-file", &key][..] } else { &[] };
        let right = cat(more, &device).ok().stdout;
        let mut failed = 0;
        for nth in 0..24 {
            fs::write(&device[0], &pristine).unwrap();
            // The journal too: its blocks have tags of their own.
            flip(&device[0], 8192 + nth * 125_003);
            let said = cat(more, &device);
            assert!(right.starts_with(&said.stdout), "{name}: bit {nth}: what comes out is right");
            assert!(said.status == 0 || said.stdout.len() < right.len(), "{name}: {nth}");
            assert!(said.status != 0 || said.stdout == right, "{name}: {nth}");
            failed += usize::from(said.status != 0);
        }
        assert!(failed > 12, "{name}: most of the device is in use, and {failed} of 24 were seen");
    }
}

#[test]
fn an_array_heals_what_rotted_in_its_members() {
    let room = Room::new();
    for (name, members) in
        [("mirror", &["mirror-0", "mirror-1"][..]), ("parity", &["parity-0", "parity-1", "parity-2"])]
    {
        let Some(devices) = unpacked(&room, members) else { return };
        assert_eq!(sum(&cat(&[], &devices).ok().stdout), expected(name));
        // Another block of every member, so that the others have it.
        for (which, device) in devices.iter().enumerate() {
            for nth in 0..60 {
                flip(device, AREAS_FROM + which as u64 * 16384 + nth * 40960);
            }
        }
        assert_eq!(sum(&cat(&[], &devices).ok().stdout), expected(name), "{name}: healed");
        for lost in &devices {
            let others: Vec<_> = devices.iter().filter(|device| *device != lost).cloned().collect();
            let said = cat(&[], &others);
            assert_ne!(said.status, 0, "{name}: without redundancy it is an error");
        }
    }
}

#[test]
fn a_code_with_a_key_takes_that_key() {
    let room = Room::new();
    let Some(device) = unpacked(&room, &["hmac"]) else { return };
    cat(&[], &device).failed(1, "WTL-0346", &["HMAC", "--key-file"]);
    let wrong = room.name("wrong");
    fs::write(&wrong, "another key").unwrap();
    cat(&["--key-file", &wrong], &device).failed(1, "WTL-0346", &["--key-file-size"]);
    let said = run(["scan", &device[0]]);
    assert_eq!(said.status, 1, "{}", said.stderr);
    assert!(said.text().contains("not opened (WTL-0346)"), "{}", said.text());
}

#[test]
fn a_damaged_journal_is_refused_by_name() {
    let room = Room::new();
    let Some(device) = unpacked(&room, &["cut"]) else { return };
    // What commits the fourth sector of the first section.
    flip(&device[0], 4096 + 4 * 512 - 3);
    cat(&[], &device).failed(3, "WTL-0343", &["sector 3 of section 0", "--force=journal"]);
    let said = cat(&["--force=journal"], &device).ok();
    assert!(said.stderr.contains("its journal is passed over, and what is read may be old"));
    assert_ne!(sum(&said.stdout), expected("cut"), "what was in the journal is not there");
}

#[test]
fn a_copy_that_stopped_early_and_unknown_superblocks_are_refused() {
    let room = Room::new();
    let Some(device) = unpacked(&room, &["cut"]) else { return };
    let pristine = fs::read(&device[0]).unwrap();
    fs::write(&device[0], &pristine[..2 << 20]).unwrap();
    cat(&[], &device).failed(1, "WTL-0081", &["2097152 are there"]);
    for (at, value, word) in [
        (8, 6, "drive's own metadata"),
        (8, 9, "version 9"),
        (27, 1, "flags 0x1000000"),
        (9, 0, "on another device"),
        (28, 5, "log2_sectors_per_block is 5"),
    ] {
        let mut bytes = pristine.clone();
        bytes[at] = value;
        fs::write(&device[0], bytes).unwrap();
        cat(&[], &device).failed(3, "WTL-0345", &[word]);
    }
}

#[test]
fn what_is_opened_to_be_read_is_not_written() {
    let room = Room::new();
    let Some(devices) = unpacked(&room, &["mirror-0", "mirror-1", "cut"]) else { return };
    room.untouched(|| {
        run(["serve", "--read-only", "--run", "true", &devices[0], &devices[1]]).ok();
        run(["serve", "--read-only", "--run", "true", &devices[2]]).ok();
        run(["scan", &devices[2]]).ok();
    });
}

/// A scrub mends every member, so that each is whole without the others.
#[test]
fn an_array_that_is_served_to_be_written_mends_its_members() {
    let room = Room::new();
    if !require("qemu-io") {
        return;
    }
    for (name, members) in
        [("mirror", &["mirror-0", "mirror-1"][..]), ("parity", &["parity-0", "parity-1", "parity-2"])]
    {
        let Some(devices) = unpacked(&room, members) else { return };
        for (which, device) in devices.iter().enumerate() {
            for nth in 0..60 {
                flip(device, AREAS_FROM + which as u64 * 16384 + nth * 40960);
            }
        }
        let serve = Serve::start(&room, &[], &devices);
        let array = serve.array()["name"].as_str().unwrap().to_owned();
        serve.command(&["check", &array, "--wait"]).ok();
        let wrote = tool("qemu-io", ["-f", "raw", "-c", "write -q -P 0x5a 512k 96k", &serve.uri]);
        assert!(!wrote.contains("failed"), "{wrote}");
        serve.kill();
        let whole = cat(&[], &devices).ok().stdout;
        assert!(whole[512 << 10..][..96 << 10].iter().all(|&byte| byte == 0x5a), "{name}");
        for lost in &devices {
            let others: Vec<_> = devices.iter().filter(|device| *device != lost).cloned().collect();
            assert!(cat(&["--force=dirty-degraded"], &others).ok().stdout == whole, "{name} without {lost}");
        }
    }
}

/// That what lies on the devices was not stopped is as good a reason as that of members.
#[test]
fn devices_below_an_array_that_was_not_stopped_are_not_erased() {
    let room = Room::new();
    if !require("qemu-io") {
        return;
    }
    let Some(devices) = unpacked(&room, &["mirror-0", "mirror-1"]) else { return };
    let serve = Serve::start(&room, &[], &devices);
    tool("qemu-io", ["-f", "raw", "-c", "write -q -P 0x5a 512k 96k", &serve.uri]);
    serve.kill();
    for args in [&["erase", "--no-undo"][..], &["erase", "--dry-run"]] {
        let erase = args.iter().copied().chain(devices.iter().map(String::as_str));
        room.untouched(|| run(erase)).failed(3, "WTL-0185", &["mirror-0", "not stopped"]);
    }
}

/// Its journal is brought to its places first, and what the writer leaves behind is read by all.
#[test]
fn a_device_whose_journal_holds_blocks_is_written() {
    let room = Room::new();
    if !require("qemu-io") {
        return;
    }
    for name in ["cut", "cut4k", "hmac"] {
        let Some(device) = unpacked(&room, &[name]) else { return };
        let key = key();
        let more = if name == "hmac" { &["--key-file", &key][..] } else { &[] };
        let mut expected = cat(more, &device).ok().stdout;
        let serve = Serve::start(&room, more, &device);
        let wrote = tool("qemu-io", ["-f", "raw", "-c", "write -q -P 0x33 64k 20k", &serve.uri]);
        assert!(!wrote.contains("failed"), "{wrote}");
        serve.kill();
        expected[64 << 10..84 << 10].fill(0x33);
        assert!(cat(more, &device).ok().stdout == expected, "{name}");
    }
}

/// What cannot be written says so before anything is served.
#[test]
fn a_bitmap_in_use_is_only_read() {
    let room = Room::new();
    let Some(device) = unpacked(&room, &["direct"]) else { return };
    // The journal's place is a bitmap then, in which no bit is set.
    let file = fs::File::options().read(true).write(true).open(&device[0]).unwrap();
    let mut flags = [0];
    file.read_exact_at(&mut flags, 24).unwrap();
    file.write_all_at(&[flags[0] | 4], 24).unwrap();
    file.write_all_at(&[0; 65536], 4096).unwrap();
    room.untouched(|| {
        let said = run(["serve", "--run", "true", &device[0]]);
        said.failed(1, "WTL-0025", &["direct is only read: the bitmap", "--read-only"]);
        run(["serve", "--read-only", "--run", "true", &device[0]]).ok();
    });
}

/// An array's member that is only read says why, as a volume of its own does.
#[test]
fn a_member_that_is_only_read_says_why() {
    let room = Room::new();
    let Some(halves) = unpacked(&room, &["mirror-0", "mirror-1"]) else { return };
    let file = fs::File::options().read(true).write(true).open(&halves[1]).unwrap();
    let mut flags = [0];
    file.read_exact_at(&mut flags, 24).unwrap();
    file.write_all_at(&[flags[0] | 4], 24).unwrap();
    file.write_all_at(&[0; 65536], 4096).unwrap();
    let said = run(["serve", "--run", "true", &halves[0], &halves[1]]);
    let words = ["mirror-1 is only read: the bitmap in place of its journal is in use", "integritysetup"];
    said.failed(1, "WTL-0025", &words);
}

/// What is written to such a device is found in it again.
#[test]
fn what_was_made_on_one_is_taken_back() {
    let room = Room::new();
    let Some(device) = unpacked(&room, &["direct"]) else { return };
    let words = "vg create g -s 256K --force=signature --on direct:integrity --backup-dir";
    let made = saving(&room, &format!("{words} {}", room.name("backups")), &device).ok();
    let undo = format!("undo {}", log_of(&made));
    assert_ne!(sum(&cat(&["-V", "direct:integrity"], &device).ok().stdout), expected("direct"));
    saving(&room, &undo, &[]).ok();
    assert_eq!(sum(&cat(&[], &device).ok().stdout), expected("direct"));
}

/// A device that became a member of an array later still begins with what it was.
#[test]
fn what_is_left_of_one_under_an_array_does_not_count() {
    let room = Room::new();
    let Some(device) = unpacked(&room, &["cut"]) else { return };
    let members = room.array("1", 2);
    let before = cat(&[], &members).ok().stdout;
    let superblock = &fs::read(&device[0]).unwrap()[..512];
    for member in &members {
        let file = fs::File::options().write(true).open(member).unwrap();
        file.write_all_at(superblock, 0).unwrap();
    }
    assert!(cat(&[], &members).ok().stdout == before);
}
