//! What NBD clients are told of allocation: nothing that reads as anything else is called zeros.

use std::process::Command;

use crate::harness::{Room, Serve, require, tool};

const BLOCK: usize = 64 << 10;

/// Where there is data, in blocks of 64 KiB: alone, at the ends of chunks, and side by side.
const DATA: [usize; 7] = [0, 7, 8, 9, 40, 63, 101];

/// What the server tells of the whole export: first byte, length, and whether it is zeros.
fn map(uri: &str) -> Vec<(usize, usize, bool)> {
    let text = tool("nbdinfo", ["--map", "--json", uri]);
    let extents: serde_json::Value = serde_json::from_str(&text).expect("a map");
    let extent = |extent: &serde_json::Value| {
        let number = |key: &str| extent[key].as_u64().expect("a number") as usize;
        assert!(matches!(number("type"), 0 | 3), "{extent}");
        (number("offset"), number("length"), number("type") == 3)
    };
    extents.as_array().expect("extents").iter().map(extent).collect()
}

/// The content that clients read, which is compared with what they are told.
fn told_and_read(serve: &Serve, room: &Room, told: &[(usize, usize, bool)]) -> Vec<u8> {
    let copy = room.name("copy");
    let _ = std::fs::remove_file(&copy);
    // As a client that believes what it is told, and one that does not.
    tool("nbdcopy", [&serve.uri, &copy]);
    let believed = std::fs::read(&copy).unwrap();
    let read = Command::new("nbdcopy").args(["--allocated", &serve.uri, "-"]).output().unwrap();
    assert!(read.status.success() && believed == read.stdout);
    let mut end = 0;
    for (offset, len, is_zero) in told {
        assert_eq!(*offset, end, "extents follow each other");
        end += len;
        let zeros = believed[*offset..end].iter().all(|byte| *byte == 0);
        assert!(zeros || !is_zero, "{offset} to {end} is told to be zeros");
    }
    assert_eq!(end, believed.len());
    believed
}

#[test]
fn holes_of_members_are_told_and_nothing_else() {
    if !require("nbdinfo") || !require("nbdcopy") || !require("qemu-io") {
        return;
    }
    for (level, count) in [("0", 3), ("linear", 2), ("1", 2), ("10", 4), ("5", 3), ("6", 5)] {
        let room = Room::new();
        let members = room.blank(count, 16 << 20);
        let create = ["create", "data", "--level", level, "--assume-clean"].map(str::to_owned);
        crate::harness::run(create.into_iter().chain(members.clone())).ok();
        let serve = Serve::start(&room, &["--cores", "2"], &members);
        let before = map(&serve.uri);
        assert!(before.iter().all(|(_, _, is_zero)| *is_zero), "nothing was written: {before:?}");
        for block in DATA {
            let write = format!("write -P {} {} 64k", block + 1, block * BLOCK);
            tool("qemu-io", ["-f", "raw", "-c", &write, &serve.uri]);
        }
        let told = map(&serve.uri);
        let content = told_and_read(&serve, &room, &told);
        for block in DATA {
            assert!(content[block * BLOCK..][..BLOCK].iter().all(|byte| *byte == block as u8 + 1));
        }
        let known: usize = told.iter().filter(|(_, _, is_zero)| *is_zero).map(|(_, len, _)| len).sum();
        assert!(
            known > content.len() / 2,
            "RAID {level}: only {known} bytes are known to be zeros: {told:?}"
        );
        // What was trimmed is a hole again where members can; what is computed is told as data.
        tool("qemu-io", ["-f", "raw", "-c", "discard 0 1M", &serve.uri]);
        told_and_read(&serve, &room, &map(&serve.uri));
        if !matches!(level, "0" | "linear") {
            serve.command(&["fail", "data", &members[0]]).ok();
            let write = format!("write -P 77 {} 64k", 20 * BLOCK);
            tool("qemu-io", ["-f", "raw", "-c", &write, &serve.uri]);
            let content = told_and_read(&serve, &room, &map(&serve.uri));
            assert!(content[20 * BLOCK..][..BLOCK].iter().all(|byte| *byte == 77), "RAID {level}");
        }
        serve.stop();
    }
}

/// The parts that changed since a checkpoint, as an NBD client sees them: first byte and length.
fn changed(uri: &str, checkpoint: &str) -> Vec<(usize, usize)> {
    let text = tool("nbdinfo", [&format!("--map=qemu:dirty-bitmap:{checkpoint}"), "--json", uri]);
    let extents: serde_json::Value = serde_json::from_str(&text).expect("a map");
    let dirty = extents.as_array().expect("extents").iter().filter(|extent| extent["type"] == 1);
    let number = |extent: &serde_json::Value, key: &str| extent[key].as_u64().expect("a number") as usize;
    dirty.map(|extent| (number(extent, "offset"), number(extent, "length"))).collect()
}

#[test]
fn what_changed_since_a_checkpoint_makes_a_backup_whole() {
    if !require("nbdinfo") || !require("nbdcopy") || !require("qemu-io") {
        return;
    }
    let room = Room::new();
    let members = room.array("5", 3);
    let serve = Serve::start(&room, &["--cores", "2"], &members);
    let write = |block: usize, byte: u8| {
        let write = format!("write -P {byte} {} 1000", block * BLOCK + 100);
        tool("qemu-io", ["-f", "raw", "-c", &write, &serve.uri]);
    };
    let content = || {
        let name = room.name("now");
        let _ = std::fs::remove_file(&name);
        tool("nbdcopy", [&serve.uri, &name]);
        std::fs::read(name).unwrap()
    };
    write(3, 1);
    let said = serve.command(&["checkpoint", "data", "monday"]).ok();
    assert!(said.stderr.contains("data: what changes from now on is noted, as monday"), "{}", said.stderr);
    let mut backup = content();
    assert_eq!(changed(&serve.uri, "monday"), []);
    write(5, 2);
    write(6, 3);
    tool("qemu-io", ["-f", "raw", "-c", "write -z 640k 64k", &serve.uri]);
    serve.command(&["checkpoint", "data", "tuesday"]).ok();
    write(40, 4);
    assert_eq!(changed(&serve.uri, "tuesday"), [(40 * BLOCK, BLOCK)]);
    let since_monday = [(5 * BLOCK, 2 * BLOCK), (10 * BLOCK, BLOCK), (40 * BLOCK, BLOCK)];
    assert_eq!(changed(&serve.uri, "monday"), since_monday);
    let now = content();
    assert!(now != backup);
    for (at, len) in since_monday {
        backup[at..at + len].copy_from_slice(&now[at..at + len]);
    }
    assert!(now == backup, "what is not told to have changed has not");
    // Both contexts at once, as QEMU asks.
    let contexts = tool("nbdinfo", [&serve.uri]);
    for context in ["base:allocation", "qemu:dirty-bitmap:monday", "qemu:dirty-bitmap:tuesday"] {
        assert!(contexts.contains(context), "{contexts}");
    }

    let listed = serve.command(&["checkpoint", "data"]).ok();
    let listed = listed.text().to_owned();
    assert!(
        listed.lines().count() == 2 && listed.contains("monday") && listed.contains("256 KiB"),
        "{listed}"
    );
    let json = serve.command(&["checkpoint", "data", "--json"]).ok().json();
    assert_eq!(json["checkpoints"][1]["changed_bytes"], 64 << 10);
    assert!(serve.command(&["status"]).ok().text().contains("checkpoint tuesday"));
    for (name, why) in [("monday", "there is a checkpoint of this name"), ("a b", "that is no name")] {
        serve.command(&["checkpoint", "data", name]).failed(2, "WTL-0001", &[why]);
    }
    serve.command(&["checkpoint", "data", "monday", "--remove"]).ok();
    serve.command(&["checkpoint", "data", "monday", "--remove"]).failed(2, "WTL-0001", &["there is none"]);
    serve.command(&["checkpoint", "nothing", "x"]).failed(1, "WTL-0100", &["nothing"]);
    let map = Command::new("nbdinfo").args(["--map=qemu:dirty-bitmap:monday", &serve.uri]).output().unwrap();
    assert!(!map.status.success(), "a checkpoint that was given up is no context");
    serve.stop();
}
