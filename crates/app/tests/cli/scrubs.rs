//! Scrubs that remember: what rots silently on a member between two of them is told by member,
//! place and file, and made anew from the right side.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use crate::harness::{Room, Said, Serve, require, run, tool};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;

/// Bytes that are nowhere else.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word.to_le_bytes()
    };
    (0..len.div_ceil(8)).flat_map(|_| next()).take(len).collect()
}

/// A tree with files of noise.
fn tree(room: &Room, files: u64, len: usize) -> PathBuf {
    let tree = room.path("tree");
    fs::create_dir_all(tree.join("kept")).unwrap();
    for number in 0..files {
        fs::write(tree.join(format!("kept/file-{number}")), noise(number + 1, len)).unwrap();
    }
    tree
}

/// An image of a file system with the tree, made by the file system's own tool.
fn image(room: &Room, kind: &str, mib: u64, files: u64, len: usize) -> String {
    let (tree, image) = (tree(room, files, len), room.name("image"));
    fs::File::create(&image).unwrap().set_len(mib * MIB).unwrap();
    let tree = tree.to_str().unwrap();
    let done = match kind {
        "ext4" => {
            Command::new("mke2fs").args(["-q", "-F", "-t", "ext4", "-b", "4096", "-d", tree, &image]).status()
        }
        "btrfs" => Command::new("mkfs.btrfs").args(["-q", "-f", "--rootdir", tree, &image]).status(),
        _ => {
            let file = |number| format!("file-{number} ---644 0 0 {tree}/kept/file-{number}\n");
            let files: String = (0..files).map(file).collect();
            let proto = format!("/\n0 0\nd--755 0 0\nkept d--755 0 0\n{files}$\n$\n");
            fs::write(room.path("proto"), proto).unwrap();
            Command::new("mkfs.xfs").args(["-q", "-f", "-p", &room.name("proto"), &image]).status()
        }
    };
    assert!(done.unwrap().success(), "{kind}");
    image
}

/// Where a block of noise is on a member.
fn find(member: &str, block: &[u8]) -> Option<u64> {
    place(&fs::read(member).unwrap(), block)
}

fn place(bytes: &[u8], block: &[u8]) -> Option<u64> {
    let found = bytes.chunks_exact(BLOCK).position(|here| here == block);
    found.map(|at| (at * BLOCK) as u64)
}

/// Where a member's data begins.
fn data_offset(member: &str) -> u64 {
    let examined = run(["examine", "--json", member]).ok().json();
    examined["members"][0]["superblocks"][0]["fields"]["data_offset"].as_u64().unwrap()
}

/// A block of a file that is on `holders` members, in 64 KiB of the members where nothing rots yet:
/// its number in the file, its member and place.
fn choose(
    held: &[Vec<u8>],
    (offset, holders): (u64, usize),
    file: &[u8],
    taken: &mut BTreeSet<u64>,
) -> Option<(usize, usize, u64)> {
    file.chunks_exact(BLOCK).enumerate().find_map(|(number, block)| {
        let on: Vec<_> = (0..).zip(held).filter_map(|(ix, bytes)| Some((ix, place(bytes, block)?))).collect();
        let (member, at) = *on.get(taken.len() % on.len().max(1))?;
        (on.len() == holders && taken.insert((at - offset) >> 16)).then_some((number, member, at))
    })
}

/// Flips a bit of a member behind the server's back.
fn rot(member: &str, at: u64) {
    let file = fs::File::options().read(true).write(true).open(member).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at + 77).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at + 77).unwrap();
}

fn write(serve: &Serve, what: &str) {
    tool("qemu-io", ["-f", "raw", "-c", what, "-c", "flush", &serve.uri]);
}

fn scrub(serve: &Serve, args: &[&str]) -> Said {
    serve.command(&[args, &["--wait"]].concat())
}

fn last(serve: &Serve) -> serde_json::Value {
    serve.array()["scrubs"][0].clone()
}

fn tools() -> bool {
    ["nbdcopy", "qemu-io", "mke2fs", "mkfs.xfs"].into_iter().all(require)
}

/// Twelve blocks of files on each level: each is named and repaired, and nothing else is written.
#[track_caller]
fn rotted_blocks_are_named_and_repaired(level: &str, count: usize, kind: &str, mib: u64) {
    if !tools() {
        return;
    }
    let room = Room::new();
    let data = match level {
        "1" => 1,
        "5" => count as u64 - 1,
        _ => count as u64 - 2,
    };
    let members = room.blank(count, (mib / data + 8) * MIB);
    let args = ["create", "data", "--level", level, "--assume-clean", "--chunk", "64K"].map(str::to_owned);
    let args = if level == "1" { args[..5].to_vec() } else { args.to_vec() };
    run(args.into_iter().chain(members.clone())).ok();
    let image = image(&room, kind, mib, 12, 128 << 10);
    let serve = Serve::start(&room, &[], &members);
    tool("nbdcopy", ["--flush", "--destination-is-zero", &image, &serve.uri]);
    let said = scrub(&serve, &["check", "data", "--record"]).ok();
    assert!(said.stderr.contains("no mismatch, recorded"), "{}", said.stderr);
    assert_eq!(last(&serve)["record"]["recorded"], true);
    write(&serve, &format!("write -P 9 {}k 64k", mib * 1024 + 512));

    let held: Vec<_> = members.iter().map(|member| fs::read(member).unwrap()).collect();
    let (offset, holders) = (data_offset(&members[0]), if level == "1" { count } else { 1 });
    let mut taken = BTreeSet::new();
    let mut places = Vec::new();
    for number in 0..12 {
        let file = noise(number + 1, 128 << 10);
        let (block, member, at) = choose(&held, (offset, holders), &file, &mut taken).unwrap();
        rot(&members[member], at);
        places.push((number, block * BLOCK, &members[member]));
    }

    let said = scrub(&serve, &["check", "data"]);
    assert_eq!(said.status, 1, "{}", said.stderr);
    let found = last(&serve);
    let mismatches = found["mismatches"].as_array().unwrap();
    assert_eq!(mismatches.len(), 12, "{found:#}");
    assert_eq!(found["record"]["proven_sectors"], 12);
    for (number, from, member) in places {
        let named = |one: &serde_json::Value| one["member"] == member.as_str() && one["record"] == "rotted";
        assert!(mismatches.iter().any(named), "{member}: {found:#}");
        let file = format!("data: /kept/file-{number}, bytes {from}..{}", from + 512);
        assert!(said.stderr.contains(&file), "{file}: {}", said.stderr);
    }

    let said = scrub(&serve, &["repair", "data", "--source", "record"]).ok();
    assert!(said.stderr.contains("12 repaired"), "{}", said.stderr);
    for (member, held) in members.iter().zip(&held) {
        let after = fs::read(member).unwrap();
        assert!(after[offset as usize..] == held[offset as usize..], "{member} is what it was");
    }
    scrub(&serve, &["check", "data"]).ok();
    assert_eq!(last(&serve)["record"]["unexplained_sectors"], 0);
    serve.stop();
    let out = room.name("out");
    fs::create_dir(&out).unwrap();
    let get = ["get", "--to", &out, "--path", "/kept"];
    run(get.into_iter().chain(members.iter().map(String::as_str))).ok();
    for number in 0..12 {
        let file = fs::read(format!("{out}/kept/file-{number}")).unwrap();
        assert!(file == noise(number + 1, 128 << 10), "file-{number}");
    }
}

#[test]
fn what_rots_on_a_mirror_of_two_is_named_and_repaired() {
    rotted_blocks_are_named_and_repaired("1", 2, "ext4", 24);
}

#[test]
fn what_rots_on_one_parity_is_named_and_repaired() {
    rotted_blocks_are_named_and_repaired("5", 3, "xfs", 320);
}

#[test]
fn what_rots_on_two_parities_is_named_and_repaired() {
    rotted_blocks_are_named_and_repaired("6", 4, "ext4", 48);
}

/// A mirror with noise on it, recorded.
fn recorded(room: &Room, args: &[&str]) -> (Vec<String>, Serve) {
    let members = room.array("1", 2);
    let serve = Serve::start(room, args, &members);
    fs::write(room.path("noise"), noise(99, 4 << 20)).unwrap();
    tool("nbdcopy", ["--flush", &room.name("noise"), &serve.uri]);
    scrub(&serve, &["check", "data", "--record"]).ok();
    (members, serve)
}

#[test]
fn a_record_outlives_a_kill_and_a_stop_but_not_another_system() {
    if !tools() {
        return;
    }
    let room = Room::new();
    let (members, serve) = recorded(&room, &[]);
    write(&serve, "write -P 7 6M 64k");
    serve.kill();
    let block = &noise(99, 4 << 20)[BLOCK * 40..BLOCK * 41];
    let at = find(&members[1], block).unwrap();
    for round in 0..2 {
        let serve = Serve::start(&room, &[], &members);
        // A resync makes copies agree, whichever is right.
        serve.wait_until("in sync", |array| array["synced"] == true && array["sync"].is_null());
        rot(&members[1], at);
        scrub(&serve, &["repair", "data", "--source", "record"]).ok();
        assert_eq!(find(&members[1], block), Some(at), "round {round}");
        assert_eq!(last(&serve)["record"]["proven_sectors"], 1);
        serve.stop();
    }
    // A server that knows nothing of the record writes.
    let elsewhere = room.name("elsewhere");
    let serve = Serve::start(&room, &["--state-dir", &elsewhere], &members);
    write(&serve, "write -P 8 5M 64k");
    serve.stop();
    let serve = Serve::start(&room, &[], &members);
    scrub(&serve, &["repair", "data", "--source", "record"]).failed(3, "WTL-0276", &["--record"]);
    scrub(&serve, &["check", "data"]).ok();
    assert_eq!(last(&serve)["record"], serde_json::Value::Null, "nothing is compared with a void record");
    serve.stop();
}

#[test]
fn a_record_that_is_lost_or_damaged_costs_knowledge_only() {
    if !tools() {
        return;
    }
    let room = Room::new();
    let (members, serve) = recorded(&room, &[]);
    serve.stop();
    let file = fs::read_dir(room.path("state")).unwrap().map(|entry| entry.unwrap().path());
    let file = file.into_iter().find(|path| path.extension().is_some_and(|end| end == "sums")).unwrap();
    let whole = fs::read(&file).unwrap();
    type Damage<'a> = &'a dyn Fn(&mut Vec<u8>);
    let damages: [Damage<'_>; 4] = [
        &|bytes| bytes.clear(),
        &|bytes| bytes.iter_mut().step_by(512).for_each(|byte| *byte ^= 1),
        &|bytes| bytes.truncate(9000),
        // Only the leaves: the header counts, and nothing is known.
        &|bytes| bytes[16384..].iter_mut().for_each(|byte| *byte = !*byte),
    ];
    for damage in damages {
        let mut bytes = whole.clone();
        damage(&mut bytes);
        fs::write(&file, bytes).unwrap();
        let serve = Serve::start(&room, &[], &members);
        scrub(&serve, &["check", "data"]).ok();
        scrub(&serve, &["check", "data", "--record"]).ok();
        serve.stop();
    }
    let other = Serve::start(&room, &["--read-only"], &members);
    other.command(&["check", "data", "--record"]).failed(1, "WTL-0025", &["read-only"]);
    other.stop();
    let over = room.name("overlay");
    let other = Serve::start(&room, &["--overlay", &over], &members);
    other.command(&["check", "data", "--record"]).failed(1, "WTL-0275", &["overlay"]);
    other.stop();
}

/// Where redundancy is gone, rot is told and nothing is written; what was written is no rot.
#[test]
fn without_redundancy_rot_is_told_and_left() {
    if !tools() {
        return;
    }
    let room = Room::new();
    let (members, serve) = recorded(&room, &["--set", "record=on"]);
    write(&serve, "write -P 7 1M 64k");
    serve.command(&["fail", "data", "1"]).ok();
    let block = &noise(99, 4 << 20)[BLOCK * 600..BLOCK * 601];
    let at = find(&members[0], block).unwrap();
    rot(&members[0], at);
    let said = scrub(&serve, &["check", "data"]);
    assert_eq!(said.status, 1, "{}", said.stderr);
    let found = last(&serve);
    assert_eq!(found["record"]["rotted_sectors"], 128, "{found:#}");
    assert_eq!(found["mismatches"][0]["record"], "rotted, no source");
    assert_eq!(found["mismatches"][0]["slot"], 0);
    assert_eq!(found["record"]["unexplained_sectors"], 0, "what was written is unknown: {found:#}");
    assert_eq!(find(&members[0], block), None);
    serve.stop();
}

/// All copies changed alike, and not through wattle: that stays told until an order accepts it.
#[test]
fn what_changed_alike_on_all_members_is_told_until_it_is_accepted() {
    if !tools() {
        return;
    }
    let room = Room::new();
    let (members, serve) = recorded(&room, &["--set", "record=on"]);
    let block = &noise(99, 4 << 20)[BLOCK * 600..BLOCK * 601];
    for member in &members {
        rot(member, find(member, block).unwrap());
    }
    let unexplained = |args: &[&str], sectors: u64| {
        let said = scrub(&serve, args);
        assert_eq!(said.status, i32::from(sectors > 0), "{args:?}: {}", said.stderr);
        assert_eq!(last(&serve)["record"]["unexplained_sectors"], sectors, "{args:?}");
    };
    unexplained(&["check", "data"], 128);
    unexplained(&["check", "data"], 128);
    unexplained(&["repair", "data", "--source", "record", "--record"], 128);
    let why = serve.command(&["why", "data"]);
    assert!(why.text().contains("128 sectors are not as recorded"), "{}", why.text());
    unexplained(&["check", "data", "--record"], 128);
    unexplained(&["check", "data"], 0);
    serve.stop();
}

/// Through LVM2, on btrfs.
#[test]
fn files_are_named_through_logical_volumes() {
    if !tools() || !require("mkfs.btrfs") {
        return;
    }
    let room = Room::new();
    let members = room.blank(3, 160 * MIB);
    let with =
        |words: &str| -> Said { run(words.split_whitespace().map(str::to_owned).chain(members.clone())) };
    with("create data --level 5 --assume-clean --chunk 64K").ok();
    with("vg create tank -s 4M --no-undo").ok();
    with("lv create tank/first -L 16M --no-undo").ok();
    with("lv create tank/home -L 192M --no-undo").ok();
    let image = image(&room, "btrfs", 192, 3, 256 << 10);
    let serve = Serve::start(&room, &["-V", "tank/home"], &members);
    tool("nbdcopy", ["--flush", &image, &serve.uri]);
    scrub(&serve, &["check", "data", "--record"]).ok();
    let held: Vec<_> = members.iter().map(|member| fs::read(member).unwrap()).collect();
    let (file, mut taken) = (noise(2, 256 << 10), BTreeSet::new());
    let (block, member, at) = choose(&held, (data_offset(&members[0]), 1), &file, &mut taken).unwrap();
    let (member, from) = (&members[member], block * BLOCK);
    let block = &file[from..from + BLOCK];
    rot(member, at);
    let said = scrub(&serve, &["check", "data"]);
    let named = format!("tank/home: /kept/file-1, bytes {from}..{}", from + 512);
    assert!(said.stderr.contains(&named), "{named}: {}", said.stderr);
    scrub(&serve, &["repair", "data", "--source", "record", "--record"]).ok();
    assert_eq!(find(member, block), Some(at));
    serve.stop();
}
