//! `wattle compat`: what keeps a release of Linux from an array is named, and the logical block
//! size that newer kernels write is taken back where that loses nothing, with an undo log.

use std::fs;

use wattle_format::md::{Superblock, Version, identify};

use crate::harness::{Room, run};
use crate::undo::{bytes, log_of, put, round_trip, saving};

/// Where the superblock of version 1.2 is.
const AT: u64 = 4096;

fn superblock(member: &str) -> Superblock {
    let bytes = fs::read(member).unwrap();
    let found = identify(Version::V12, &bytes[AT as usize..AT as usize + 4096], bytes.len() as u64 / 512);
    found.ok().flatten().expect("a superblock of version 1.2")
}

/// States a block size as Linux 6.19 and later do (docs/formats.md §10.1).
fn state(member: &str, block_bytes: u32) {
    let mut superblock = superblock(member);
    superblock.set_logical_block_size(Some(block_bytes)).unwrap();
    put(member, AT, superblock.bytes());
}

fn stated(room: &Room, level: &str, block_bytes: u32) -> Vec<String> {
    let members = room.array(level, 4);
    members.iter().for_each(|member| state(member, block_bytes));
    members
}

#[test]
fn what_linux_6_19_states_is_taken_back_and_brought_back() {
    for level in ["1", "5", "10"] {
        let room = Room::new();
        let members = stated(&room, level, 512);
        let before = bytes(&members);
        let said = run(["compat"].iter().map(|word| (*word).to_owned()).chain(members.clone())).ok();
        assert!(said.text().contains("Linux 6.19 and later"), "{}", said.text());
        let dry = saving(&room, "compat --for 6.12 --dry-run", &members).ok();
        assert!(dry.text().contains("would open in Linux 6.12"), "{}", dry.text());
        assert!(bytes(&members) == before, "looking and --dry-run write nothing");
        round_trip(&room, "compat --for 6.12", &members);
        saving(&room, "compat --for 6.12", &members).ok();
        for (member, before) in members.iter().zip(&before) {
            let after = fs::read(member).unwrap();
            let differ = |at: &usize| before[*at] != after[*at];
            let changed: Vec<_> = (0..after.len()).filter(differ).collect();
            let within = |at: &usize| (AT as usize + 216..AT as usize + 228).contains(at);
            assert!(changed.iter().all(within), "only the field and the checksum: {changed:?}");
            assert_eq!(superblock(member).logical_block_size(), None);
        }
        let again = saving(&room, "compat --for 6.12.95-amd64", &members).ok();
        assert!(again.text().contains("opens in Linux 6.12 as it is"), "{}", again.text());
        run(["cat".to_owned()].into_iter().chain(members)).ok();
    }
}

#[test]
fn what_was_cut_short_is_completed_by_the_same_command() {
    let room = Room::new();
    let members = stated(&room, "5", 512);
    let log = log_of(&saving(&room, "compat --for 6.12", &members).ok());
    state(&members[2], 512);
    let said = saving(&room, "compat --for 6.12", &members).ok();
    assert!(said.text().contains(&members[2]) && !said.text().contains(&members[1]), "{}", said.text());
    assert!(members.iter().all(|member| superblock(member).logical_block_size().is_none()));
    assert!(log != log_of(&said));
}

#[test]
fn blocks_that_members_do_not_have_are_kept() {
    let room = Room::new();
    let members = stated(&room, "5", 4096);
    let before = bytes(&members);
    let said = saving(&room, "compat --for 6.12", &members);
    said.failed(3, "WTL-0361", &["4096", "512", "--force=block-size"]);
    assert!(bytes(&members) == before);
    saving(&room, "compat --for 6.12 --force=block-size", &members).ok();
    assert!(members.iter().all(|member| superblock(member).logical_block_size().is_none()));
}

#[test]
fn what_cannot_be_taken_back_is_named() {
    let room = Room::new();
    let members = room.blank(3, 64 << 20);
    let create = "create log --level 5 --consistency ppl --assume-clean";
    saving(&room, create, &members).ok();
    let before = bytes(&members);
    let said = saving(&room, "compat --for 4.9", &members);
    said.failed(3, "WTL-0360", &["partial parity logs", "--consistency-policy=resync"]);
    let json = saving(&room, "compat --json --for 4.9", &members);
    assert_eq!(json.status, 3);
    let report = json.json();
    assert_eq!(report["arrays"][0]["opens"], false);
    assert_eq!(report["problem"]["code"], "WTL-0360");
    assert!(bytes(&members) == before);
    saving(&room, "compat --for 4.14", &members).ok();
    let typed = saving(&room, "compat --for soon", &members);
    assert!(typed.status == 2 && typed.stderr.contains("6.12"), "{}", typed.stderr);
    let blank = room.blank(1, 1 << 20);
    assert_ne!(saving(&room, "compat --for 6.12", &blank).status, 0);
}

#[test]
fn members_in_use_are_left_alone() {
    let room = Room::new();
    let members = stated(&room, "1", 512);
    let serve = crate::harness::Serve::start(&room, &[], &members);
    saving(&room, "compat --for 6.12", &members).failed(3, "WTL-0026", &[]);
    assert!(members.iter().all(|member| superblock(member).logical_block_size() == Some(512)));
    serve.stop();
}

/// Arrays on arrays: the upper one is written where the lower ones run, and these after it.
#[test]
fn arrays_that_lie_on_arrays_are_made_ready_too() {
    let room = Room::new();
    let members = room.blank(4, 16 << 20);
    for (name, pair) in [("a0", &members[..2]), ("a1", &members[2..])] {
        let create = ["create", name, "--level", "1", "--assume-clean", "--no-undo"].map(str::to_owned);
        run(create.iter().chain(pair)).ok();
    }
    let halves: Vec<String> = ["half-0", "half-1"].map(|name| room.device(name, 12 << 20)).to_vec();
    let create = ["create", "top", "--level", "0", "--chunk", "64K", "--no-undo"].map(str::to_owned);
    run(create.iter().chain(&halves)).ok();
    halves.iter().for_each(|half| state(half, 512));
    for (half, pair) in halves.iter().zip([&members[..2], &members[2..]]) {
        // The volume of a mirror begins where its data does.
        let superblock = superblock(&pair[0]);
        let bytes = fs::read(half).unwrap();
        let len = (superblock.size_sectors() * 512).min(bytes.len() as u64) as usize;
        pair.iter().for_each(|member| put(member, superblock.data_offset_sectors() * 512, &bytes[..len]));
    }
    members.iter().for_each(|member| state(member, 512));
    let all_stated = || {
        let said = run(["compat", "--json"].map(str::to_owned).iter().chain(&members)).ok().json();
        let arrays = said["arrays"].as_array().unwrap();
        assert_eq!(arrays.len(), 3, "{said}");
        arrays.iter().map(|array| array["stated"].as_array().unwrap().len()).collect::<Vec<_>>()
    };
    assert_eq!(all_stated(), [2, 2, 2]);
    let said = saving(&room, "compat --json --for 6.12", &members).ok().json();
    assert_eq!(all_stated(), [0, 0, 0]);
    let earlier = said["earlier_undo_logs"].as_array().unwrap();
    assert_eq!(earlier.len(), 1, "{said}");
    for log in [&said["undo_log"], &earlier[0]] {
        saving(&room, &format!("undo {}", log.as_str().unwrap()), &[]).ok();
    }
    assert_eq!(all_stated(), [2, 2, 2]);
}
