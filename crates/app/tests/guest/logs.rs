//! Arrays with partial parity logs and journals, cut off at any moment: what wattle reads of the
//! members without writing to them is, byte by byte, what Linux reads once it has recovered copies
//! of them, whole and with members missing.
#![allow(clippy::print_stderr, reason = "how much was judged is said")]

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::judge::{Guest, SLICE_SECTORS};

const SLICE_BYTES: u64 = SLICE_SECTORS * 512;
/// As many as the widest array has members, and a journal.
const DISKS: usize = 5;

/// An array: level, members, what logs it, chunk in KiB, milliseconds by which writes are late.
type Row = (&'static str, u32, usize, &'static str, u32, u32);

const ROWS: [Row; 7] = [
    ("ppl", 5, 4, "ppl", 16, 150),
    ("through5", 5, 3, "through", 16, 150),
    ("back5", 5, 4, "back", 64, 150),
    ("back6", 6, 4, "back", 16, 150),
    ("ppl-3", 5, 3, "ppl", 64, 400),
    ("through6", 6, 4, "through", 64, 400),
    ("back4", 4, 3, "back", 16, 0),
];

/// `cuts` of each of the first `rows`; `WATTLE_CUTS=N` takes N times as many.
pub fn judge(guest: &Guest, rows: usize, cuts: usize) {
    let times: usize = std::env::var("WATTLE_CUTS").map_or(1, |times| times.parse().expect("a number"));
    let (rows, cuts) = (&ROWS[..rows.min(ROWS.len())], cuts * times);
    let scratch = tempfile::tempdir().expect("scratch space");
    let disks: Vec<PathBuf> = (0..DISKS).map(|disk| scratch.path().join(format!("disk{disk}"))).collect();
    let size = rows.len() as u64 * (cuts as u64 + 2) * SLICE_BYTES;
    for disk in &disks {
        File::create(disk).and_then(|file| file.set_len(size)).expect("scratch space");
    }
    let lines = rows.iter().map(|(id, level, members, kind, chunk, delay)| {
        format!("{id} {level} {members} {kind} {chunk} {delay} {cuts}\n")
    });
    let asked = scratch.path().join("logs.txt");
    std::fs::write(&asked, lines.collect::<String>()).expect("scratch space");
    let shown = guest.run_with("cut-logs", &[asked], &disks, &[("GUEST_TIMEOUT", "3000")]);

    let (mut judged, mut refused, mut wrong) = (0, 0, Vec::new());
    let mut said: BTreeMap<&str, u32> = BTreeMap::new();
    for (k, (id, level, members, kind, ..)) in rows.iter().enumerate() {
        for cut in 1..=cuts {
            let slice = (k * (cuts + 2) + cut) as u64;
            let given = extract(&disks, slice, members + usize::from(*kind != "ppl"), scratch.path());
            let mut without = vec!["none".to_owned()];
            without.extend((0..*members).map(|member| member.to_string()));
            if *level == 6 {
                without.extend(["0,1".to_owned(), "1,3".to_owned()]);
            }
            for without in without {
                let name = format!("{id}-{cut}-{without}");
                let facts = &shown[&name];
                let left = given.iter().enumerate();
                let left = left.filter(|(ix, _)| !without.split(',').any(|skip| skip == ix.to_string()));
                let before: Vec<_> =
                    given.iter().map(|path| sum(&std::fs::read(path).expect("scratch space"))).collect();
                let output = Command::new(env!("CARGO_BIN_EXE_wattle"))
                    .arg("cat")
                    .args(left.map(|(_, path)| path))
                    .output()
                    .expect("wattle runs");
                let after: Vec<_> =
                    given.iter().map(|path| sum(&std::fs::read(path).expect("scratch space"))).collect();
                assert!(before == after, "{name}: a member was written");
                let errors = String::from_utf8_lossy(&output.stderr);
                for word in ["pages of 4 KiB that its journal has", "cut short", "partial parity logs"] {
                    *said.entry(word).or_default() += u32::from(errors.contains(word));
                }
                if !output.status.success() {
                    refused += 1;
                    eprintln!("{name}: Linux says {}: {errors}", facts["ok"]);
                    continue;
                }
                // mdadm wants more of superblocks that were being written than the kernel does.
                if facts["ok"] != "yes" {
                    eprintln!("{name}: Linux does not assemble it");
                    continue;
                }
                judged += 1;
                if facts["sha256"] != sum(&output.stdout) {
                    wrong.push(format!("{name}: {facts:?}: {errors}"));
                }
            }
        }
    }
    eprintln!("{judged} times the bytes are compared, {refused} times refused; {said:?}");
    assert!(wrong.is_empty(), "{} of {judged} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(judged >= 9 * (judged + refused) / 10, "{refused} refused");
    assert!(said.values().sum::<u32>() > cuts as u32, "nothing was in flight: {said:?}");
}

/// The members at a slice, as files.
fn extract(disks: &[PathBuf], slice: u64, count: usize, scratch: &Path) -> Vec<PathBuf> {
    let take = |member: usize| {
        let mut bytes = vec![0; SLICE_BYTES as usize];
        let disk = File::open(&disks[member]).expect("the disk is there");
        disk.read_exact_at(&mut bytes, slice * SLICE_BYTES).expect("the slice is there");
        let path = scratch.join(format!("member-{member}"));
        std::fs::write(&path, bytes).expect("scratch space");
        path
    };
    (0..count).map(take).collect()
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
