//! Arrays that a real kernel left in the middle of a reshape (fixtures/reshape): every byte reads
//! back, whole and with every member left out that both geometries can do without, nothing is
//! written, and what cannot be told is an error.

use std::fs;

use serde_json::Value;

use crate::harness::{Room, Said, Serve, fixtures, require, run, tool};

/// A case of fixtures/reshape.
struct Reshaped {
    facts: Value,
    room: Room,
    members: Vec<String>,
}

impl Reshaped {
    /// `None`, loudly, where they cannot be unpacked.
    fn unpack(id: &str) -> Option<Self> {
        if !require("zstd") {
            return None;
        }
        let folder = fixtures().join("reshape").join(id);
        let facts: Value = serde_json::from_slice(&fs::read(folder.join("case.json")).unwrap()).unwrap();
        let room = Room::new();
        let unpack = |ix| {
            let image = room.name(&format!("member-{ix}.img"));
            let packed = folder.join(format!("member-{ix}.img.zst"));
            tool("zstd", ["-dq", packed.to_str().unwrap(), "-o", &image]);
            image
        };
        let members = (0..facts["members"].as_u64().unwrap()).map(unpack).collect();
        Some(Self { facts, room, members })
    }

    fn number(&self, field: &str) -> u64 {
        self.facts[field].as_u64().unwrap()
    }

    /// What the array holds: fixtures/README.md.
    fn expected(&self) -> Vec<u8> {
        let seed = self.number("seed");
        let words = (0..self.number("array_sectors")).map(|sector| word(seed, sector).to_le_bytes());
        words.flat_map(|word| [word; 64].concat()).collect()
    }

    fn without(&self, left_out: &[usize]) -> Vec<String> {
        let members = self.members.iter().enumerate();
        members.filter(|(ix, _)| !left_out.contains(ix)).map(|(_, name)| name.clone()).collect()
    }
}

fn word(seed: u64, sector: u64) -> u64 {
    let mut z = (seed ^ sector).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

fn cat(args: &[&str], members: &[String]) -> Said {
    run(["cat"].iter().chain(args).map(|arg| (*arg).to_owned()).chain(members.iter().cloned()))
}

/// Reads a case whole, without each member, and without more than its sides can do without.
fn check(id: &str) {
    let Some(case) = Reshaped::unpack(id) else { return };
    let expected = case.expected();
    let tolerates = case.number("tolerates") as usize;
    let count = case.members.len();
    let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |other| vec![one, other]));
    let sets = [vec![]].into_iter().chain((0..count).map(|one| vec![one])).chain(pairs.take(4));
    case.room.untouched(|| {
        for left_out in sets {
            let said = cat(&[], &case.without(&left_out));
            if left_out.len() <= tolerates {
                assert!(said.ok().stdout == expected, "{id} without {left_out:?} reads back something else");
            } else if said.status != 0 {
                let said = said.failed(1, "WTL-0048", &["missing"]);
                assert!(said.stdout.is_empty(), "{id} without {left_out:?}: no guess may be written");
            } else {
                // Of copies more may be gone, depending on which.
                assert!(said.stdout == expected, "{id} without {left_out:?} reads back something else");
            }
        }
    });
}

#[test]
fn more_members_read_back() {
    ["r5-grow", "r5-grow-v090", "r6-grow-cut"].into_iter().for_each(check);
}

#[test]
fn fewer_members_read_back() {
    ["r5-shrink", "r10-shrink"].into_iter().for_each(check);
}

#[test]
fn another_chunk_or_layout_reads_back() {
    ["r5-chunk-down", "r5-chunk-back", "r6-layout"].into_iter().for_each(check);
}

#[test]
fn another_level_reads_back() {
    ["r5to6", "r0to5", "r6to5"].into_iter().for_each(check);
}

#[test]
fn raid10_reads_back() {
    ["r10-grow", "r10-chunk"].into_iter().for_each(check);
}

/// Linux 6.12 moves on for up to ten seconds without recording it, and over the old places of what
/// the recorded position needs.
#[test]
fn where_linux_ran_past_its_position_the_new_place_is_read() {
    ["r5-past", "r6-past", "r5-past-back"].into_iter().for_each(check);
}

/// One drive is dead, and of another one sectors were not read where both places agree: what that
/// leaves open is an error, and not the old place.
#[test]
fn what_cannot_be_read_proves_nothing() {
    let Some(case) = Reshaped::unpack("r5-past") else { return };
    let expected = case.expected();
    let members = case.without(&[case.members.len() - 1]);
    let size = fs::metadata(&members[0]).unwrap().len();
    for sectors in [3752..3800, 3000..3008, 2048..3900] {
        let (start, end) = (sectors.start * 512, sectors.end * 512);
        let map = format!(
            "0x0 + 1\n0x0 {start:#x} +\n{start:#x} {:#x} -\n{end:#x} {:#x} +\n",
            end - start,
            size - end
        );
        let map = map.lines().filter(|line| !line.contains(" 0x0 +")).map(|line| format!("{line}\n"));
        fs::write(format!("{}.map", members[0]), map.collect::<String>()).unwrap();
        let said = cat(&[], &members);
        let right = said.stdout.len().min(expected.len());
        assert!(said.stdout[..right] == expected[..right], "{sectors:?}: wrong bytes");
        assert!(said.status != 0 || right == expected.len(), "{sectors:?}: cut off without a word");
    }
}

/// The check is about something: by the recorded position alone such an array reads back wrong.
#[test]
fn an_operator_may_insist_on_the_recorded_position() {
    let Some(case) = Reshaped::unpack("r5-past") else { return };
    let said = cat(&["--force=reshape-position"], &case.members).ok();
    assert_eq!(said.stdout.len(), case.expected().len());
    assert!(said.stdout != case.expected(), "the fixture shows nothing");
}

/// In place nothing on the members tells how far Linux came.
#[test]
fn in_place_what_is_beyond_the_position_is_an_error_without_a_backup_file() {
    let Some(case) = Reshaped::unpack("r5-inplace") else { return };
    let (expected, position) = (case.expected(), case.number("position") as usize * 512);
    let length = position.to_string();
    case.room.untouched(|| {
        let below = cat(&["--length", &length], &case.members).ok();
        assert!(below.stdout == expected[..position], "what has been moved is read");
        let beyond = cat(&["--offset", &length], &case.members);
        assert_ne!(beyond.status, 0, "no guess");
        let scan = run(["scan".to_owned()].into_iter().chain(case.members.clone())).ok();
        let named = format!("bytes {position} to {}", expected.len());
        assert!(scan.text().contains(&named) && scan.text().contains("--backup-file"), "{}", scan.text());
        // This image was stopped where its superblocks say.
        let forced = cat(&["--force=reshape-position"], &case.members).ok();
        assert!(forced.stdout == expected);
    });
}

/// A backup file of the stretch in which the machine died: its superblocks are those of before.
#[test]
fn a_backup_file_gives_what_was_written_over() {
    let Some(case) = Reshaped::unpack("r5-inplace") else { return };
    let (expected, came_to) = (case.expected(), case.number("position"));
    // Linux came to `came_to` and had recorded less; mdadm had kept some more.
    let (recorded, between, kept_to) = (came_to / 2, came_to / 4 * 3, came_to + came_to / 2);
    for member in &case.members {
        set_position(member, recorded);
    }
    let backup = case.room.name("backup");
    let uuid = array_uuid(&case.members[0]);
    let parts = [(recorded, between), (between, kept_to)];
    fs::write(&backup, backup_file(&uuid, parts, &expected)).unwrap();
    let with_it = ["--backup-file", &backup];
    case.room.untouched(|| {
        assert!(cat(&[], &case.members).status != 0, "without it that is not known");
        assert!(cat(&with_it, &case.members).ok().stdout == expected, "whole");
        for out in 0..case.members.len() {
            assert!(cat(&with_it, &case.without(&[out])).ok().stdout == expected, "without {out}");
        }
    });
    // Where Linux stopped just between the parts, the second one proves nothing.
    let between = [(recorded, came_to), (came_to, kept_to)];
    fs::write(&backup, backup_file(&uuid, between, &expected)).unwrap();
    assert_ne!(cat(&with_it, &case.members).status, 0, "it may have been saved too late");
    let insists = [&with_it[..], &["--force=reshape-position"]].concat();
    assert!(cat(&insists, &case.members).ok().stdout == expected, "insisted on");
    // As mdadm 4.2 writes it: after the kernel, from the old places.
    let old_view = cat(&["--force=reshape-position"], &case.members).ok().stdout;
    assert!(old_view != expected, "the stretch was written over");
    fs::write(&backup, backup_file(&uuid, parts, &old_view)).unwrap();
    assert_ne!(cat(&with_it, &case.members).status, 0, "a file that came too late proves nothing");
    // The first part in time, the second too late: one does not vouch for the other.
    let quarter = came_to / 4;
    for member in &case.members {
        set_position(member, quarter);
    }
    let old_view = cat(&["--force=reshape-position"], &case.members).ok().stdout;
    let (from, to) = (2 * quarter as usize * 512, 3 * quarter as usize * 512);
    let mixed = [&expected[..from], &old_view[from..to], &expected[to..]].concat();
    let parts = [(quarter, 2 * quarter), (2 * quarter, 3 * quarter)];
    fs::write(&backup, backup_file(&uuid, parts, &mixed)).unwrap();
    assert_ne!(cat(&with_it, &case.members).status, 0, "a second part that came too late");
    // Of another array.
    fs::write(&backup, backup_file(&[9; 16], parts, &expected)).unwrap();
    assert_ne!(cat(&with_it, &case.members).status, 0, "another array's file");
}

/// Writes another position into a 0.91 superblock.
fn set_position(member: &str, sectors: u64) {
    let mut bytes = fs::read(member).unwrap();
    let at = superblock_at(&bytes);
    bytes[at + 44 * 4..at + 46 * 4].copy_from_slice(&sectors.to_le_bytes());
    bytes[at + 38 * 4..at + 39 * 4].fill(0);
    let words =
        bytes[at..at + 4096].chunks(4).map(|word| u64::from(u32::from_le_bytes(word.try_into().unwrap())));
    let sum: u64 = words.sum();
    let folded = (sum as u32).wrapping_add((sum >> 32) as u32);
    bytes[at + 38 * 4..at + 39 * 4].copy_from_slice(&folded.to_le_bytes());
    fs::write(member, bytes).unwrap();
}

fn superblock_at(bytes: &[u8]) -> usize {
    ((bytes.len() / 512) & !127).saturating_sub(128) * 512
}

fn array_uuid(member: &str) -> Vec<u8> {
    let bytes = fs::read(member).unwrap();
    let at = superblock_at(&bytes);
    [5, 13, 14, 15].into_iter().flat_map(|word| bytes[at + word * 4..at + word * 4 + 4].to_vec()).collect()
}

/// A backup file with two parts of the array (docs/formats.md §9.4), from what the array held.
fn backup_file(uuid: &[u8], parts: [(u64, u64); 2], content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[..16].copy_from_slice(b"md_backup_data-2");
    bytes[16..32].copy_from_slice(uuid);
    let [(start, end), (start2, end2)] = parts;
    let numbers =
        [(40, 8), (48, start), (56, end - start), (72, end - start), (80, start2), (88, end2 - start2)];
    for (at, number) in numbers {
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    for at in [64, 96] {
        bytes[at..at + 4].copy_from_slice(&0x2492_4915_u32.to_le_bytes());
    }
    for (start, end) in parts {
        bytes.extend_from_slice(&content[start as usize * 512..end as usize * 512]);
    }
    bytes
}

/// What is said of such an array, and what next.
#[test]
fn it_is_shown_with_both_geometries_and_served_read_only() {
    let Some(case) = Reshaped::unpack("r5-grow") else { return };
    let members = || case.members.iter().cloned();
    case.room.untouched(|| {
        let scan = run(["scan".to_owned()].into_iter().chain(members())).ok();
        for words in
            ["in the middle of a reshape from raid5", "of 4 members", "of 5 members", "% done", "--read-only"]
        {
            assert!(scan.text().contains(words), "{words}: {}", scan.text());
        }
        let json = run(["scan", "--json"].map(str::to_owned).into_iter().chain(members())).ok().json();
        let array = &json["arrays"][0];
        assert_eq!(array["access"], "read_only");
        assert_eq!(array["size_bytes"], case.number("array_sectors") * 512);
        assert_eq!(array["reshape"]["position_bytes"], case.number("position") * 512);
        assert_eq!(array["problems"][0]["code"], "WTL-0051");
    });
    let refused = Serve::try_start(&case.room, &["--export", "nbd=unix:auto"], &case.members);
    let Err(said) = refused else { panic!("served as if it could be written") };
    assert_eq!(said.status, 3, "{}", said.stderr);
    assert!(said.stderr.contains("WTL-0051") && said.stderr.contains("--read-only"), "{}", said.stderr);
    let server = Serve::start(&case.room, &["--read-only"], &case.members);
    if require("nbdcopy") {
        let copy = case.room.name("copy");
        tool("nbdcopy", [&server.uri, &copy]);
        assert!(fs::read(&copy).unwrap() == case.expected());
    }
    let array = server.array();
    assert_eq!(
        (array["read_only"].as_bool(), array["size_bytes"].as_u64()),
        (Some(true), Some(case.number("array_sectors") * 512))
    );
    assert!(array["notes"].to_string().contains("in the middle of a reshape"), "{array}");
    server.stop();
}
