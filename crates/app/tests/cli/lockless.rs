//! Arrays with a lockless bitmap (version 6, Linux 6.18): what it does not call clean is not
//! trusted, whatever the superblocks say, and all else is read, degraded too.

use std::fs;

use wattle_format::md::{Superblock, Version, identify};

use crate::harness::{Room, Said, Serve, require, run, tool};
use crate::undo::put;

const AT: u64 = 4096;
const CHUNK: u64 = 64 << 10;
/// Data of a stripe: three of four members.
const STRIPE: u64 = 3 * CHUNK;
const CLEAN: u8 = 1;

fn superblock(member: &str) -> Superblock {
    let bytes = fs::read(member).unwrap();
    let found = identify(Version::V12, &bytes[AT as usize..AT as usize + 4096], bytes.len() as u64 / 512);
    found.ok().flatten().expect("a superblock of version 1.2")
}

/// Turns the bitmap of a member into a lockless one, a state for each stripe (docs/formats.md
/// §10.2).
fn lockless(member: &str, states: impl Fn(u64) -> u8) {
    let superblock = superblock(member);
    let offset = superblock.bitmap_offset_sectors().expect("a bitmap") as u64;
    let at = (AT / 512 + offset) * 512;
    let chunks = superblock.size_sectors().div_ceil(CHUNK / 512);
    put(member, at + 4, &6_u32.to_le_bytes());
    put(member, at + 52, &(CHUNK as u32 / 512).to_le_bytes());
    put(member, at + 64, &256_u32.to_le_bytes());
    put(member, at + 256, &[0; 768]);
    put(member, at + 1024, &(0..chunks).map(states).collect::<Vec<_>>());
}

/// Fills a chunk of a member with what is none of the array's, the parity of a stripe that was
/// never synced.
fn spoil_parity(members: &[String], stripe: u64) {
    let member = &members[3 - stripe as usize % 4];
    let start = superblock(member).data_offset_sectors() * 512;
    put(member, start + stripe * CHUNK, &vec![0xa5; CHUNK as usize]);
}

fn stripe_of(members: &[String], stripe: u64) -> Said {
    let (offset, length) = ((stripe * STRIPE).to_string(), STRIPE.to_string());
    let args = ["cat", "--offset", &offset, "--length", &length];
    run(args.iter().map(|arg| (*arg).to_owned()).chain(members.iter().cloned()))
}

#[test]
fn what_a_lockless_bitmap_does_not_call_clean_is_not_computed_from_parity() {
    if !require("nbdcopy") {
        return;
    }
    let room = Room::new();
    let members = room.blank(4, 16 << 20);
    let create = ["create", "lazy", "--level", "5", "--chunk", "64K", "--bitmap", "internal", "--no-undo"];
    run(create.iter().map(|arg| (*arg).to_owned()).chain(members.clone())).ok();
    let size = run(["cat".to_owned()].into_iter().chain(members.clone())).ok().stdout.len();
    let expected: Vec<u8> = (0..size).map(|at| (at ^ at >> 9 ^ at >> 17) as u8).collect();
    let plain = room.name("plain");
    fs::write(&plain, &expected).unwrap();
    let server = Serve::start(&room, &[], &members);
    server.wait_until_good();
    tool("nbdcopy", [&plain, &server.uri]);
    server.stop();
    // Never written, written to, to be synced, being synced, and what later kernels know.
    let doubted: [(u64, u8); 5] = [(5, 0), (9, 2), (14, 3), (21, 4), (30, 6)];
    let state = |stripe| doubted.iter().find(|(at, _)| *at == stripe).map_or(CLEAN, |(_, state)| *state);
    members.iter().for_each(|member| lockless(member, state));
    doubted.iter().for_each(|(stripe, _)| spoil_parity(&members, *stripe));
    room.untouched(|| {
        let whole = run(["cat".to_owned()].into_iter().chain(members.clone())).ok();
        assert!(whole.stdout == expected, "with all members");
        for out in 0..members.len() {
            let mut left = members.clone();
            left.remove(out);
            for stripe in 0..40 {
                let said = stripe_of(&left, stripe);
                let from = (stripe * STRIPE) as usize;
                let right = &expected[from..from + STRIPE as usize];
                let is_doubted = doubted.iter().any(|(at, _)| *at == stripe);
                // Where only parity is missing all data is there.
                if is_doubted && 3 - stripe as usize % 4 != out {
                    assert_eq!(said.status, 1, "stripe {stripe} without {out}");
                    assert!(right.starts_with(&said.stdout), "stripe {stripe} without {out}");
                } else {
                    assert!(said.ok().stdout == right, "stripe {stripe} without {out}");
                }
            }
        }
    });
    let scan = run(["scan".to_owned()].into_iter().chain(members.clone()));
    assert!(scan.text().contains("Linux 6.18") && scan.text().contains("lockless"), "{}", scan.text());
    let server = Serve::start(&room, &[], &members);
    assert_eq!(server.array()["read_only"], true, "nothing here keeps such a bitmap up");
    server.stop();
    // One copy that calls a stripe clean does not make it so.
    lockless(&members[1], |_| CLEAN);
    let left = [&members[0], &members[1], &members[3]].map(Clone::clone);
    assert_eq!(stripe_of(&left, 14).status, 1);
}
