//! `wattle audit` on members: for every code a stack with that fault planted, and clean ones of
//! which nothing is said.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Room, Said, Serve, require, run, tool, wattle};

const MIB: u64 = 1 << 20;

fn words(line: &str) -> impl Iterator<Item = String> {
    line.split_whitespace().map(str::to_owned)
}

/// What an audit of members says.
fn audit(members: &[String]) -> Value {
    let said = run(words("audit --json --fail-on never").chain(members.iter().cloned())).ok();
    said.json()
}

/// The codes found, without those of `fine`: what the stack was not planted with and has to have.
fn codes(report: &Value, fine: &[&str]) -> BTreeSet<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    let codes = findings.map(|finding| finding["code"].as_str().unwrap().to_owned());
    codes.filter(|code| !fine.contains(&code.as_str())).collect()
}

/// Exactly one finding, of that code, about that; its numbers name all of `evidence`.
#[track_caller]
fn only(report: &Value, fine: &[&str], code: &str, subject: &str, evidence: &[&str]) {
    assert_eq!(codes(report, fine), BTreeSet::from([code.to_owned()]), "{report:#}");
    let finding =
        report["findings"].as_array().unwrap().iter().find(|finding| finding["code"] == code).unwrap();
    assert!(finding["subject"].as_str().unwrap().ends_with(subject), "{finding:#}");
    for word in evidence {
        assert!(finding["evidence"].as_str().unwrap().contains(word), "{word}: {finding:#}");
    }
    for field in ["cost", "fix", "title"] {
        assert!(!finding[field].as_str().unwrap().is_empty(), "{finding:#}");
    }
}

/// An array without anything that a rule could find.
fn array(room: &Room, name: &str, drives: usize, size: u64, options: &str) -> Vec<String> {
    let members: Vec<_> = (0..drives).map(|ix| room.device(&format!("{name}-{ix}"), size)).collect();
    create(name, &members, options);
    members
}

fn create(name: &str, members: &[String], options: &str) {
    let defaults = match options.contains("--spares") {
        true => "--assume-clean",
        false => "--assume-clean --spares 1",
    };
    run(words(&format!("create {name} {defaults} {options}")).chain(members.iter().cloned())).ok();
}

/// A clean RAID 5 of so many drives of data.
fn raid5(room: &Room, name: &str, data: usize, chunk: &str, size: u64) -> Vec<String> {
    array(room, name, data + 2, size, &format!("--level 5 --chunk {chunk} --consistency ppl"))
}

fn lvm(room: &Room, line: &str, members: &[String]) -> Said {
    let backups = ["--backup-dir".to_owned(), room.name("backups")];
    run(words(line).chain(backups).chain(members.iter().cloned()))
}

/// Writes what is in a file to a volume; its holes are left out.
pub fn put(room: &Room, members: &[String], volume: &str, file: &str) {
    let server = Serve::start(room, &["-V", volume], members);
    tool("nbdcopy", ["--flush", "--destination-is-zero", file, &server.uri]);
    server.stop();
}

/// A file system of that size, made by its own tool.
pub fn file_system(room: &Room, size: u64, line: &str) -> String {
    let image = room.device("file-system", size);
    let mut words = words(line);
    let name = words.next().unwrap();
    tool(&name, words.chain([image.clone()]));
    image
}

/// A disk image with these partitions, in sfdisk's words.
fn disk(room: &Room, name: &str, size: u64, table: &str) -> String {
    let image = room.device(name, size);
    let mut child = Command::new("sfdisk")
        .args(["-q", "--no-reread", "--no-tell-kernel", &image])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(table.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    image
}

fn tools() -> bool {
    ["nbdcopy", "mkfs.xfs", "mke2fs", "sfdisk"].into_iter().all(require)
}

/// What md and wattle make by default, and what the field notes of an operator arrived at by hand:
/// nothing to say.
#[test]
fn a_clean_stack_yields_nothing() {
    if !tools() {
        return;
    }
    let room = Room::new();
    let members = raid5(&room, "data", 4, "256K", 160 * MIB);
    lvm(&room, "vg create tank -s 32M", &members).ok();
    lvm(&room, "lv create tank/root -L 320M", &members).ok();
    lvm(&room, "lv create tank/home -L 128M", &members).ok();
    let image = file_system(&room, 320 * MIB, "mkfs.xfs -q -f -d su=256k,sw=4,agsize=66816k");
    put(&room, &members, "tank/root", &image);
    let image = file_system(&room, 128 * MIB, "mke2fs -q -F -t ext4 -b 4096 -E stride=64,stripe_width=256");
    put(&room, &members, "tank/home", &image);
    let report = audit(&members);
    assert_eq!(codes(&report, &[]), BTreeSet::new(), "{report:#}");
    assert_eq!(report["schema_version"], 1);
    // What only a running system says is not said to be fine.
    let unchecked: Vec<_> = report["unchecked"].as_array().unwrap().iter().map(|un| &un["what"]).collect();
    for what in
        ["read-ahead, stripe cache, threads", "mount options", "alerts", "data: whether it was ever checked"]
    {
        assert!(unchecked.contains(&&what.into()), "{what}: {unchecked:?}");
    }

    let mirror = array(&room, "mirror", 3, 16 * MIB, "--level 1 --bitmap internal");
    assert_eq!(codes(&audit(&mirror), &[]), BTreeSet::new());
    let partitioned = disk(&room, "disk", 16 * MIB, "2048,,fd\n");
    assert_eq!(codes(&audit(&[partitioned]), &[]), BTreeSet::new());
}

#[test]
fn partitions_that_start_where_no_block_does() {
    if !tools() {
        return;
    }
    let room = Room::new();
    let old = disk(&room, "old", 16 * MIB, "63,8192,fd\n16384,,fd\n");
    only(&audit(&[old]), &[], "AUD-101", "old:p1", &["sector 63"]);
    let odd = disk(&room, "odd", 16 * MIB, "2049,,fd\n");
    only(&audit(&[odd]), &[], "AUD-102", "odd:p1", &["sector 2049", "4 KiB"]);

    let members = raid5(&room, "data", 4, "256K", 32 * MIB);
    let table = disk(&room, "table", 120 * MIB, "2560,,83\n");
    put(&room, &members, "data", &table);
    only(
        &audit(&members),
        &[],
        "AUD-103",
        "data:p1",
        &["1280 KiB", "4 x 256 KiB are 1 MiB", "256 KiB beyond"],
    );
}

#[test]
fn volume_groups_that_do_not_fit_the_stripes_below() {
    if !tools() {
        return;
    }
    let room = Room::new();
    // Three drives of data: what starts at 1 MiB starts inside a stripe of 192 KiB.
    let members = raid5(&room, "data", 3, "64K", 64 * MIB);
    let image = room.device("image", 180 * MIB);
    lvm(&room, "vg create tank -s 96M", std::slice::from_ref(&image)).ok();
    put(&room, &members, "data", &image);
    only(&audit(&members), &[], "AUD-104", "data", &["pe_start is 1 MiB", "3 x 64 KiB = 192 KiB"]);

    let members = raid5(&room, "other", 3, "64K", 64 * MIB);
    lvm(&room, "vg create pool -s 1M", &members).ok();
    only(&audit(&members), &[], "AUD-105", "pool", &["1 MiB", "192 KiB"]);
    lvm(&room, "lv create pool/first -L 4M", &members).ok();
    lvm(&room, "lv create pool/second -L 4M", &members).ok();
    only(&audit(&members), &["AUD-105"], "AUD-106", "pool/second", &["64 KiB beyond"]);

    let room = Room::new();
    let mut members = raid5(&room, "one", 4, "64K", 64 * MIB);
    members.extend(raid5(&room, "two", 4, "64K", 64 * MIB));
    lvm(&room, "vg create wide --on one --on two", &members).ok();
    lvm(&room, "lv create wide/fast -l 100%FREE -i 2 -I 64K", &members).ok();
    only(&audit(&members), &[], "AUD-107", "wide/fast", &["64 KiB on each of 2", "256 KiB"]);
}

/// No tool makes such an array today: its superblocks are changed.
#[test]
fn data_that_starts_inside_a_block() {
    const AT: u64 = 4096;
    const SIZE: usize = 80;
    const DATA_OFFSET: usize = 128;
    const DATA_SIZE: usize = 136;
    const CHECKSUM: usize = 216;
    let room = Room::new();
    let members = array(&room, "data", 3, 32 * MIB, "--level 1 --bitmap internal");
    for member in &members {
        let file = fs::OpenOptions::new().read(true).write(true).open(member).unwrap();
        let mut superblock = [0; 1024];
        file.read_exact_at(&mut superblock, AT).unwrap();
        for (at, add) in [(SIZE, -8), (DATA_OFFSET, 1), (DATA_SIZE, -8)] {
            let field: [u8; 8] = superblock[at..at + 8].try_into().unwrap();
            let changed = u64::from_le_bytes(field).checked_add_signed(add).unwrap();
            superblock[at..at + 8].copy_from_slice(&changed.to_le_bytes());
        }
        superblock[CHECKSUM..CHECKSUM + 4].fill(0);
        let devices = u32::from_le_bytes(superblock[220..224].try_into().unwrap()) as usize;
        let words = superblock[..256 + 2 * devices].chunks(4);
        let word = |word: &[u8]| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let sum: u64 = words.map(word).sum();
        let folded = (sum as u32).wrapping_add((sum >> 32) as u32);
        superblock[CHECKSUM..CHECKSUM + 4].copy_from_slice(&folded.to_le_bytes());
        file.write_all_at(&superblock, AT).unwrap();
    }
    only(&audit(&members), &[], "AUD-108", "data-0", &["data of data starts at sector"]);
}

#[test]
fn file_systems_that_do_not_know_what_they_are_on() {
    if !tools() {
        return;
    }
    let room = Room::new();
    let members = raid5(&room, "data", 4, "256K", 160 * MIB);
    let put_and_look = |line: &str| {
        put(&room, &members, "data", &file_system(&room, 600 * MIB, line));
        audit(&members)
    };
    // Without knowing of stripes mkfs.xfs makes groups of round sizes.
    let report = put_and_look("mkfs.xfs -q -f");
    only(&report, &["AUD-206"], "AUD-201", "data", &["xfs", "4 x 256 KiB of data = 1 MiB"]);
    assert!(report["findings"].to_string().contains("mkfs.xfs -d su=256k,sw=4"), "{report:#}");
    let report = put_and_look("mke2fs -q -F -t ext4 -b 4096");
    only(&report, &[], "AUD-201", "data", &["ext4"]);
    assert!(
        report["findings"][0]["fix"].as_str().unwrap().contains("stride=64,stripe_width=256"),
        "{report:#}"
    );
    let report = put_and_look("mkfs.xfs -q -f -d su=64k,sw=16,agsize=66816k");
    only(&report, &[], "AUD-202", "data", &["stripe unit is 64 KiB"]);
    // All drives were counted.
    let report = put_and_look("mkfs.xfs -q -f -d su=256k,sw=5,agsize=66816k");
    only(&report, &[], "AUD-203", "data", &["stripe width is 1280 KiB"]);
    let report = put_and_look("mkfs.xfs -q -f -m crc=0 -d su=256k,sw=4,agsize=66816k");
    only(&report, &[], "AUD-208", "data", &["version 4"]);
    // Groups are rounded by mkfs.xfs if it knows the unit, so the superblock is told it afterwards.
    let image = file_system(&room, 600 * MIB, "mkfs.xfs -q -f -m crc=0 -d agsize=100004k");
    let superblock = fs::OpenOptions::new().write(true).open(&image).unwrap();
    superblock.write_all_at(&[0, 0, 0, 64, 0, 0, 1, 0], 184).unwrap();
    put(&room, &members, "data", &image);
    only(&audit(&members), &["AUD-208"], "AUD-205", "data", &["6 groups", "256 KiB"]);
    // What is after every five stripes starts on the same member.
    let report = put_and_look("mkfs.xfs -q -f -d su=256k,sw=4,agsize=120m");
    only(&report, &[], "AUD-206", "data", &["5 of 5 groups of 120 MiB", "slot"]);
    let fix = "mkfs.xfs -d su=256k,sw=4,agsize=126091264";
    assert!(report["findings"][0]["fix"].as_str().unwrap().ends_with(fix), "{report:#}");
    assert_eq!(codes(&put_and_look(&fix.replace(" -d", " -q -f -d")), &[]), BTreeSet::new());
}

/// Mounts an image, lets `change` work on it, and unmounts it. `false`, said loudly, where that is
/// not possible.
fn mounted(room: &Room, image: &str, change: impl FnOnce(&Path)) -> bool {
    let at = PathBuf::from(room.name("mounted"));
    fs::create_dir_all(&at).unwrap();
    let mount = Command::new("mount").args(["-o", "loop", image]).arg(&at).output().unwrap();
    if !mount.status.success() {
        eprintln!("SKIPPED: mount: {}", String::from_utf8_lossy(&mount.stderr));
        return false;
    }
    change(&at);
    tool("umount", [at.to_str().unwrap()]);
    true
}

/// A file that is written from its end to its start, piece by piece.
fn write_backwards(at: &Path) {
    let file = File::create(at.join("backwards")).unwrap();
    for piece in (0..1500_u64).rev() {
        file.write_all_at(&[7; 4096], piece * 8192).unwrap();
        file.sync_data().unwrap();
    }
}

/// XFS puts such pieces in the order in which they come, one behind the other.
#[test]
fn files_in_many_pieces() {
    if !tools() {
        return;
    }
    let room = Room::new();
    let members = raid5(&room, "data", 4, "256K", 160 * MIB);
    let image = file_system(&room, 600 * MIB, "mkfs.xfs -q -f -d su=256k,sw=4,agsize=66816k");
    let worked = mounted(&room, &image, |at| {
        write_backwards(at);
        fs::write(at.join("whole"), vec![1; 9_000_000]).unwrap();
    });
    if !worked {
        return;
    }
    put(&room, &members, "data", &image);
    let report = audit(&members);
    only(&report, &[], "AUD-209", "data", &["of 2 files", "fragmentation factor"]);
    let finding = &report["findings"][0];
    let said = |field: &str, words: &str| finding[field].as_str().unwrap().contains(words);
    assert!(said("cost", "4 x sata7200 (what the drives are is not known)"), "{finding:#}");
    assert!(said("fix", "xfs_fsr") && said("fix", "largest free run"), "{finding:#}");
    let figures = &report["file_systems"][0];
    assert_eq!((&figures["files"]["files"], &figures["complete"]), (&2.into(), &true.into()), "{figures:#}");
    let number = |at: &str| figures.pointer(at).and_then(Value::as_f64).unwrap();
    assert!(number("/files/extents") > 1000.0, "{figures:#}");
    let (lies, whole) = (number("/reading/seconds"), number("/reading/seconds_whole"));
    assert!(lies > 1.0 && whole < 0.2 && number("/reading/longer_percent") > 900.0, "{figures:#}");
    assert!((number("/reading/gain_seconds") - (lies - whole)).abs() < 1e-4, "{figures:#}");
    assert_eq!(number("/reading/drives"), 4.0);
    // Every group starts somewhere, and files are in one or two of them.
    let starts = figures["groups"]["starts"].as_array().unwrap();
    let sum = |key: &str| starts.iter().map(|start| start[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum("groups") as f64, number("/groups/count"), "{figures:#}");
    assert_eq!(sum("used") as f64, number("/groups/used"), "{figures:#}");
    assert!((1..=2).contains(&sum("used")) && starts.len() > 1, "{figures:#}");
    assert!(starts.iter().all(|start| start["member"].as_str().unwrap().contains("data-")), "{figures:#}");
    // SSDs do not mind much.
    let said = run(words("audit --json --drive nvme").chain(members.clone())).ok();
    let reading = &said.json()["file_systems"][0]["reading"];
    assert_eq!((&reading["drive"], &reading["drive_assumed"]), (&"nvme".into(), &false.into()));
    assert!(reading["seconds"].as_f64().unwrap() < 0.1, "{reading:#}");
    let shown = run(words("audit -v --fail-on never").chain(members.clone())).ok();
    let text = shown.text();
    for words in ["files: 2, ", "fragmentation factor", "reading each file once", "slot 0, "] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let said = run(words("audit --json --inodes 0").chain(members.clone())).ok();
    assert_eq!(said.json()["file_systems"], Value::Array(Vec::new()));
    let said = run(words("audit --json --inodes 3 --fail-on never").chain(members)).ok().json();
    assert_eq!(said["file_systems"][0]["complete"], false);
    assert!(said["unchecked"].to_string().contains("--inodes looks at more"), "{said:#}");
    let wrong = run(words("audit --drive fast"));
    assert!(wrong.stderr.contains("--drive fast") && wrong.status == 2, "{}", wrong.stderr);
}

/// ext4 keeps room for what a file may have between two pieces: over such gaps a reader reads on,
/// and many pieces cost nothing.
#[test]
fn free_space_in_small_pieces() {
    if !tools() || !require("xfs_io") {
        return;
    }
    let room = Room::new();
    let members = raid5(&room, "data", 4, "256K", 160 * MIB);
    let line = "mke2fs -q -F -t ext4 -b 4096 -E stride=64,stripe_width=256";
    let image = file_system(&room, 600 * MIB, line);
    let worked = mounted(&room, &image, |at| {
        write_backwards(at);
        let mut punch = Command::new("xfs_io");
        punch.args(["-f", "-c", "falloc 0 480m"]);
        (0..1600).for_each(|ix| {
            punch.args(["-c", &format!("fpunch {}k 128k", ix * 256)]);
        });
        assert!(punch.arg(at.join("full of holes")).status().unwrap().success());
    });
    if !worked {
        return;
    }
    put(&room, &members, "data", &image);
    let report = audit(&members);
    only(&report, &[], "AUD-210", "data", &["in runs below 1 MiB"]);
    let figures = &report["file_systems"][0];
    assert!(figures["files"]["extents"].as_u64().unwrap() > 3000, "{figures:#}");
    assert!(figures["reading"]["longer_percent"].as_u64().unwrap() < 10, "{figures:#}");
}

#[test]
fn redundancy_that_is_not_what_it_says() {
    let room = Room::new();
    let clean = raid5(&room, "data", 3, "64K", 16 * MIB);
    only(&audit(&clean[1..]), &[], "AUD-301", "data", &["1 of 4"]);

    let bare = array(&room, "bare", 4, 16 * MIB, "--level 5 --chunk 64K --bitmap none --consistency resync");
    only(&audit(&bare), &["AUD-304"], "AUD-305", "bare", &["no bitmap"]);
    let hole = array(&room, "hole", 4, 16 * MIB, "--level 5 --chunk 64K --bitmap internal");
    only(&audit(&hole), &[], "AUD-304", "hole", &["no partial parity log"]);
    let lone = array(&room, "lone", 2, 16 * MIB, "--level 1 --bitmap internal --spares 0");
    only(&audit(&lone), &[], "AUD-306", "lone", &["none of them a spare"]);
    let old = array(&room, "old", 3, 16 * MIB, "--level 1 --bitmap internal --metadata 0.90");
    only(&audit(&old), &[], "AUD-311", "", &["0.90"]);

    let mut unequal = room.blank(2, 32 * MIB);
    unequal.push(room.device("large", 64 * MIB));
    create("unequal", &unequal, "--level 1 --bitmap internal --spares 0");
    only(&audit(&unequal), &["AUD-306"], "AUD-307", "unequal", &["32 MiB of", "large"]);

    let unsynced = array(&room, "unsynced", 3, 16 * MIB, "--level 1 --bitmap internal --spares 0");
    run(words("create unsynced --level 1 --bitmap internal --force=signature").chain(unsynced.clone())).ok();
    only(&audit(&unsynced), &["AUD-306"], "AUD-308", "unsynced", &["never synchronised"]);
}

#[test]
fn members_that_failed_or_were_away_while_writing() {
    if !require("qemu-io") {
        return;
    }
    let room = Room::new();
    let members = array(&room, "data", 4, 16 * MIB, "--level 5 --chunk 64K --bitmap internal --spares 0");
    let server = Serve::start(&room, &[], &members);
    server.command(&["fail", "data", &members[0]]).ok();
    server.stop();
    let report = audit(&members);
    assert_eq!(
        codes(&report, &["AUD-304", "AUD-306"]),
        BTreeSet::from(["AUD-301", "AUD-302"].map(str::to_owned))
    );
    let unused =
        report["findings"].as_array().unwrap().iter().find(|finding| finding["code"] == "AUD-302").unwrap();
    assert!(unused["subject"].as_str().unwrap().ends_with("data-0"), "{unused:#}");

    let mut server = Serve::start(&room, &[], &members[1..]);
    tool("qemu-io", ["-f", "raw", "-c", "write -P 9 0 64k", &server.uri]);
    server.signal("KILL");
    assert_eq!(server.wait(), -1);
    let report = audit(&members[1..]);
    let fine = ["AUD-301", "AUD-304", "AUD-306"];
    only(&report, &fine, "AUD-303", "data", &["dirty, with 1 of 4"]);
}

#[test]
fn members_on_one_drive_and_groups_that_are_not_whole() {
    if !tools() {
        return;
    }
    let room = Room::new();
    // The array is made on images, which then are partitions of disks: two of one.
    let members = array(&room, "data", 3, 16 * MIB, "--level 1 --bitmap internal --spares 0");
    let shared = disk(&room, "shared", 34 * MIB, "2048,32768,fd\n34816,32768,fd\n");
    let alone = disk(&room, "alone", 18 * MIB, "2048,32768,fd\n");
    for (member, disk, at) in [(0, &shared, 2048), (1, &shared, 34816), (2, &alone, 2048)] {
        let content = fs::read(&members[member]).unwrap();
        fs::OpenOptions::new().write(true).open(disk).unwrap().write_all_at(&content, at * 512).unwrap();
    }
    only(
        &audit(&[shared, alone]),
        &["AUD-306"],
        "AUD-310",
        "data",
        &["shared:p1 and", "shared:p2 are both on"],
    );

    let physical: Vec<_> = (0..2).map(|ix| room.device(&format!("pv-{ix}"), 16 * MIB)).collect();
    lvm(&room, "vg create tank", &physical).ok();
    only(&audit(&physical[..1]), &[], "AUD-316", "tank", &["1 of 2"]);
}

#[test]
fn an_array_that_cannot_be_used_is_found_with_the_code_of_that() {
    let room = Room::new();
    let members = raid5(&room, "data", 3, "64K", 16 * MIB);
    let report = audit(&members[2..]);
    only(&report, &["AUD-301"], "AUD-314", "data", &["WTL-0048"]);
}

#[test]
fn the_chunk_is_held_against_the_workload_that_was_named() {
    let room = Room::new();
    let members = raid5(&room, "data", 3, "64K", 16 * MIB);
    let audit = |workload: &str| {
        let args = ["audit", "--json", "--workload", workload].map(str::to_owned);
        run(args.into_iter().chain(members.clone())).ok().json()
    };
    assert_eq!(codes(&audit("rw=randwrite bs=4k"), &[]), BTreeSet::new());
    only(
        &audit("rw=randread bs=64k"),
        &[],
        "AUD-505",
        "data",
        &["random requests of 64 KiB", "chunk of 64 KiB"],
    );
    only(&audit("rw=write bs=16k"), &[], "AUD-505", "data", &["192 KiB"]);
    assert_eq!(codes(&audit("rw=read bs=16k"), &[]), BTreeSet::new());
    let wrong = ["audit", "--workload", "fast please"].map(str::to_owned);
    run(wrong.into_iter().chain(members.clone())).failed(2, "WTL-0001", &["fast", "--workload"]);
}

#[test]
fn statuses_and_baselines_are_for_scripts() {
    let room = Room::new();
    let members =
        array(&room, "bare", 4, 16 * MIB, "--level 5 --chunk 64K --bitmap none --consistency resync");
    let audit = |options: &str| run(words(&format!("audit {options}")).chain(members.clone()));
    let said = room.untouched(|| audit(""));
    assert_eq!(said.status, 1);
    for line in
        ["warning[AUD-305]: bare: an array has no write-intent bitmap", "note[AUD-304]: bare: nothing closes"]
    {
        assert!(said.text().contains(line), "{}", said.text());
    }
    assert!(said.text().contains("\n1 warning, 1 note; "), "{}", said.text());
    for (threshold, status) in [("error", 0), ("warning", 1), ("note", 1), ("never", 0)] {
        assert_eq!(audit(&format!("--fail-on {threshold}")).status, status, "{threshold}");
    }
    let known = room.name("known.json");
    audit(&format!("--write-baseline {known}")).ok();
    let said = audit(&format!("--baseline {known} --fail-on note")).ok();
    assert!(said.text().contains("nothing found; 2 known; "), "{}", said.text());
    // What is new is reported, and what was known stays known.
    let degraded =
        run(words(&format!("audit --json --baseline {known}")).chain(members[1..].iter().cloned()));
    assert_eq!(degraded.status, 1);
    assert_eq!(codes(&degraded.json(), &[]), BTreeSet::from(["AUD-301".to_owned()]));
    audit("--baseline /nonexistent").failed(2, "WTL-0001", &["--baseline", "--write-baseline"]);
    fs::write(&known, "{}").unwrap();
    audit(&format!("--baseline {known}")).failed(2, "WTL-0001", &["schema_version"]);
    assert_eq!(wattle().args(["audit", "--fail-on", "often"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn what_cannot_be_looked_at_is_said() {
    let room = Room::new();
    let members = array(&room, "data", 3, 16 * MIB, "--level 1 --bitmap internal");
    let (blank, gone) = (room.device("blank", 16 * MIB), room.name("gone"));
    let mut given = members.clone();
    given.extend([blank.clone(), gone.clone()]);
    // A file system that is recognised and not known, and one that is damaged.
    let odd = room.device("odd", 16 * MIB);
    fs::OpenOptions::new()
        .write(true)
        .open(&odd)
        .unwrap()
        .write_all_at(&[0x10, 0x20, 0xf5, 0xf2], 1024)
        .unwrap();
    let damaged = room.device("damaged", 16 * MIB);
    let file = fs::OpenOptions::new().write(true).open(&damaged).unwrap();
    file.write_all_at(b"XFSB", 0).unwrap();
    given.extend([odd, damaged]);
    let report = audit(&given);
    assert_eq!(codes(&report, &[]), BTreeSet::new());
    let unchecked = report["unchecked"].as_array().unwrap();
    for (what, why) in [
        ("blank", "nothing on it is recognised"),
        ("gone", "WTL-0020"),
        ("odd: the f2fs on it", "not known here"),
        ("damaged: the xfs on it", "XFS of a version"),
    ] {
        let said = |un: &&Value| {
            un["what"].as_str().unwrap().ends_with(what) && un["why"].as_str().unwrap().contains(why)
        };
        assert!(unchecked.iter().any(|un| said(&un)), "{what}: {unchecked:#?}");
    }
    run(["audit", &gone]).failed(1, "WTL-0020", &[&gone]);
}

/// Fixtures of lost sectors are made of values, beside the rule.
#[test]
fn every_code_has_a_stack_with_that_fault() {
    let planted = [include_str!("audit.rs"), include_str!("audit_system.rs")].concat();
    let explained = run(["explain", "--json"]).ok().json();
    for finding in explained["findings"].as_array().unwrap() {
        let code = finding["code"].as_str().unwrap();
        assert!(planted.contains(&format!("\"{code}\"")) || code == "AUD-313", "{code}");
    }
}
