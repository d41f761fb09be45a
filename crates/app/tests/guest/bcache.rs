//! Backing devices of bcache in every state that Linux leaves them in, alone and with their caches.

#![allow(clippy::print_stderr, reason = "what is not judged is said")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::judge::Guest;
use crate::pattern::{Pattern, seed_of};
use crate::wattle;

const DEVICES: [&str; 6] = ["detached", "through", "clean", "dirty", "stale", "offset"];

pub fn judge(guest: &Guest) {
    let scratch = tempfile::tempdir().expect("scratch space");
    // Linux takes no cache of fewer than 1024 buckets.
    let disks: Vec<PathBuf> =
        (0..=DEVICES.len()).map(|nth| scratch.path().join(format!("disk{nth}"))).collect();
    for (nth, disk) in disks.iter().enumerate() {
        let bytes = if nth == 0 { 64 << 20 } else { 8 << 20 };
        File::create(disk).and_then(|file| file.set_len(bytes)).expect("scratch space");
    }
    let found = guest.run_with("bcache", &[], &disks, &[]);
    for (nth, name) in (1..).zip(DEVICES) {
        let sectors: u64 = found[name]["sectors"].parse().expect("a number");
        let seed = 100 + nth as u64;
        let pattern = match name {
            "stale" => Pattern::parse(&format!("{seed},77:64:100")),
            _ => Pattern::whole(seed),
        };
        let expected = pattern.bytes(sectors);
        let members = &disks[nth..=nth];
        // With its cache, which was used by others since, every one of them is whole.
        let both = [disks[0].clone(), disks[nth].clone()];
        assert!(wattle(&["cat"], &both) == expected, "{name} with the cache");
        if name == "dirty" {
            let said = Command::new(env!("CARGO_BIN_EXE_wattle")).arg("cat").args(members).output();
            let said = said.expect("wattle runs");
            assert_eq!(said.status.code(), Some(3), "{name}");
            assert!(String::from_utf8_lossy(&said.stderr).contains("WTL-0347"), "{name}");
            let bytes = wattle(&["cat", "--force=cache"], members);
            assert_eq!(bytes.len(), expected.len());
            assert!(bytes != expected, "what is only in the cache is missed");
            continue;
        }
        assert!(wattle(&["cat"], members) == expected, "{name}");
    }
}

/// Cases of guest/jobs/bcache-load, and MiB of the cache and of each backing device.
const LOADS: [(&str, u64, u64); 3] =
    [("4k 12000 2 12", 64, 32), ("32k 4000 16 12", 64, 48), ("512k 4000 64 12", 1024, 64)];
const STOPPED: [(&str, u64, u64); 2] = [("8k 3000 4 0", 64, 48), ("64k 1000 40 0", 128, 48)];

/// Where make-bcache lets the data of a backing device begin, sectors.
const DATA_AT: usize = 16;
/// The seeds of what writes when Linux is stopped, as guest/jobs/bcache-load has them.
const LAST_WRITERS: [u64; 2] = [900_000_000, 800_000_000];

/// Linux is stopped hard while it writes to caches. What wattle reads of the disks is what Linux
/// reads of them when it is started again, every byte, but for what [`is_let_go`] says.
pub fn judge_loads(guest: &Guest) {
    let scratch = tempfile::tempdir().expect("scratch space");
    let disks = loaded(guest, scratch.path(), &LOADS, Some(99));
    let ours = read_all(&disks);
    compare(guest, scratch.path(), &disks, &ours);
}

/// The same after caches were stopped in order, with a group and a file system on what they have.
pub fn judge_stopped(guest: &Guest) {
    let scratch = tempfile::tempdir().expect("scratch space");
    let disks = loaded(guest, scratch.path(), &STOPPED, Some(0));
    let ours = read_all(&disks);
    let numbers: String = (1..=20_000).map(|number| format!("{number}\n")).collect();
    for (k, disks) in disks.chunks(3).enumerate() {
        let on_group = [disks[1].clone(), disks[0].clone()];
        let volume = wattle(&["cat", "-V", &format!("v{k}/data")], &on_group);
        assert!(volume == Pattern::whole(4000 + k as u64).bytes(volume.len() as u64 / 512), "volume {k}");
        let got = scratch.path().join(format!("files{k}"));
        wattle(&["get", "--to", got.to_str().expect("utf-8")], &[disks[0].clone(), disks[2].clone()]);
        assert_eq!(fs::read_to_string(got.join("numbers")).expect("it came out"), numbers, "file system {k}");
    }
    compare(guest, scratch.path(), &disks, &ours);
}

/// Disks of these cases, as the guest leaves them.
fn loaded(guest: &Guest, dir: &Path, cases: &[(&str, u64, u64)], ends: Option<i32>) -> Vec<PathBuf> {
    let asked = dir.join("bcache.txt");
    let lines: String = cases.iter().map(|(line, _, _)| format!("{line}\n")).collect();
    fs::write(&asked, lines).expect("scratch space");
    let mut disks = Vec::new();
    for &(_, cache, backing) in cases {
        disks.extend([cache, backing, backing].map(|mib| blank(dir, "disk", mib << 20)));
    }
    let job = crate::judge::root().join("guest/jobs/bcache-load");
    let mut command = guest.command();
    let said = command.env("GUEST_TIMEOUT", "1800").arg("-f").arg(asked).arg(job).args(&disks).output();
    let said = said.expect("guest/run runs");
    let text = String::from_utf8_lossy(&said.stdout);
    assert_eq!(said.status.code(), ends, "{text}\n{}", String::from_utf8_lossy(&said.stderr));
    assert!(ends == Some(0) || text.contains("STOP"), "{text}");
    disks
}

fn blank(dir: &Path, name: &str, bytes: u64) -> PathBuf {
    let path = (0..).map(|nth| dir.join(format!("{name}{nth:02}"))).find(|path| !path.exists());
    let path = path.expect("a name is free");
    File::create(&path).and_then(|file| file.set_len(bytes)).expect("scratch space");
    path
}

/// What wattle reads of every backing device with its cache, in any order. Alone they are refused,
/// and nothing is written.
fn read_all(disks: &[PathBuf]) -> Vec<Vec<u8>> {
    let before: Vec<_> = disks.iter().map(|disk| fs::read(disk).expect("a disk")).collect();
    let mut found = Vec::new();
    for case in disks.chunks(3) {
        for members in [[&case[0], &case[1]], [&case[2], &case[0]]] {
            let backing = members.into_iter().find(|disk| **disk != case[0]).expect("there is one");
            let inside = format!("{}:bcache", backing.display());
            found.push(wattle(&["cat", "-V", &inside], &members.map(Clone::clone)));
        }
        let alone = Command::new(env!("CARGO_BIN_EXE_wattle")).arg("cat").arg(&case[1]).output();
        let alone = alone.expect("wattle runs");
        assert_eq!(alone.status.code(), Some(3), "{}", String::from_utf8_lossy(&alone.stderr));
    }
    for (disk, before) in disks.iter().zip(before) {
        assert!(fs::read(disk).expect("a disk") == before, "{}: written to", disk.display());
    }
    found
}

/// Has Linux read the same disks.
fn compare(guest: &Guest, dir: &Path, disks: &[PathBuf], ours: &[Vec<u8>]) {
    let cases = dir.join("cases");
    fs::write(&cases, (disks.len() / 3).to_string()).expect("scratch space");
    let backing: Vec<_> = disks.chunks(3).flat_map(|case| &case[1..]).collect();
    let before: Vec<_> = backing.iter().map(|disk| fs::read(disk).expect("a disk")).collect();
    let dumps: Vec<_> = before.iter().map(|disk| blank(dir, "dump", disk.len() as u64)).collect();
    let all: Vec<_> = disks.iter().chain(&dumps).cloned().collect();
    let found = guest.run_with("bcache-read", &[cases], &all, &[]);
    let refused = |nth: usize| found[&format!("case{}-{}", nth / 2, nth % 2)].contains_key("refused");
    assert!((0..dumps.len()).filter(|nth| refused(*nth)).count() <= 2, "Linux starts most caches");
    for (nth, ((dump, ours), before)) in dumps.iter().zip(ours).zip(&before).enumerate() {
        if refused(nth) {
            eprintln!("backing device {nth}: not judged, Linux cannot start its cache");
            continue;
        }
        let theirs = fs::read(dump).expect("a disk");
        let behind = &before[DATA_AT * 512..];
        let newest = LAST_WRITERS.map(|first| newest_write([ours, &theirs, behind], first));
        for (number, (ours, theirs)) in ours.chunks(512).zip(theirs.chunks(512)).enumerate() {
            let behind = &behind[number * 512..][..512];
            if ours != theirs {
                let is_let_go = is_let_go(number as u64, [ours, theirs, behind], newest);
                assert!(is_let_go, "sector {number} of backing device {nth}");
                eprintln!("backing device {nth}: sector {number} was being written");
            }
        }
    }
}

/// Whether a sector that Linux reads otherwise is one that was being written when Linux was
/// stopped: the cache and the backing device then have it from before and after that write, and
/// Linux reads one or the other, since it lets go of what its cache has clean whenever it needs
/// the room. That a write was acknowledged is in the journal a tenth of a second later, unless its
/// client asks for more.
fn is_let_go(number: u64, [ours, theirs, behind]: [&[u8]; 3], newest: [u64; 2]) -> bool {
    // By the last second of the twelve.
    let is_late = |seed: u64| {
        let ways = LAST_WRITERS.iter().zip(newest);
        ways.into_iter()
            .any(|(first, newest)| (newest - newest / 12..=newest).contains(&seed.wrapping_sub(*first)))
    };
    theirs == behind && [ours, theirs].iter().any(|bytes| seed_of(bytes, number).is_some_and(is_late))
}

/// The number of the newest write of one of the last writers that anything tells of.
fn newest_write(images: [&[u8]; 3], first: u64) -> u64 {
    let seeds = images.into_iter().flat_map(|image| image.chunks(512).enumerate());
    let seeds = seeds.filter_map(|(number, sector)| seed_of(sector, number as u64));
    seeds.filter_map(|seed| seed.checked_sub(first)).filter(|nth| *nth < 100_000_000).max().unwrap_or(0)
}
