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
