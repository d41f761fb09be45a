//! RAID volumes of LVM2 whose images are gone, or have checksums, and writecaches: what is read is
//! what the kernel showed, with every disk missing that redundancy covers.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sha2::{Digest, Sha256};

use crate::judge::{Facts, Guest};
use crate::pattern::Pattern;

const DISKS: usize = 5;
const DISK_BYTES: u64 = 128 << 20;
/// The disk that the group was reduced by, in the last five.
const REDUCED_BY: usize = 1;

pub fn read_all(guest: &Guest) {
    let scratch = tempfile::tempdir().expect("scratch space");
    let disks: Vec<PathBuf> =
        (0..3 * DISKS).map(|disk| scratch.path().join(format!("pv{disk:02}"))).collect();
    for disk in &disks {
        File::create(disk).and_then(|file| file.set_len(DISK_BYTES)).expect("scratch space");
    }
    let made = guest.run_with("make-images", &[], &disks, &[]);
    let redundancy = |name: &str| match name {
        "raid6" | "sums6" => 2,
        name if name.starts_with("written") => 0,
        _ => 1,
    };
    let mut failed = Vec::new();
    for (name, facts) in made.iter().filter(|(_, facts)| facts.contains_key("pattern")) {
        let sets = sets(redundancy(name));
        for missing in &sets {
            let force = if name.starts_with("journaled") { &["--force=journal"][..] } else { &[] };
            let output = cat(name, &left(&disks[..DISKS], missing), force);
            failed.extend(difference(facts, &output).map(|why| format!("{name} without {missing:?}: {why}")));
        }
    }
    // The default of LVM2: a journal may hold what was written last.
    let refused = cat("journaled1", &left(&disks[..DISKS], &[]), &[]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("WTL-0343") && said.contains("--force=journal"), "{said}");
    for cached in ["written4k", "written512"] {
        let refused = cat(cached, &left(&disks[..DISKS], &[4]), &[]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(3) && said.contains("cache"), "{cached}: {said}");
    }

    // Without parity: what Linux makes of the images that are there, if that is asked for.
    for (name, facts) in
        made.iter().filter(|(name, facts)| name.contains("-without-") && facts["ok"] == "yes")
    {
        let (volume, missing) = name.split_once("-without-").expect("it was looked for");
        let missing: Vec<usize> = missing.parse().into_iter().collect();
        let given = left(&disks[..DISKS], &missing);
        // Of copies that were never made alike Linux reads either where nothing was written.
        let is_mirrored = volume.ends_with('1') || volume.ends_with('0');
        let output = cat(volume, &given, &["--force=dirty-degraded"]);
        let found: String = Sha256::digest(&output.stdout).iter().map(|byte| format!("{byte:02x}")).collect();
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() || !is_mirrored && found != facts["sha256"] {
            failed.push(format!("{name}, forced: {:?}, {said}", output.status.code()));
        }
        let needs_parity =
            !missing.is_empty() && (volume.ends_with('4') && missing[0] > 0 || volume.ends_with('5'));
        let output = cat(volume, &given, &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() == needs_parity || needs_parity && !said.contains("--force=dirty-degraded")
        {
            failed.push(format!("{name}: {:?}, {said}", output.status.code()));
        }
    }

    // What `vgreduce --removemissing --force` leaves.
    let reduced = left(&disks[2 * DISKS..], &[REDUCED_BY]);
    for (name, facts) in &made {
        if name.starts_with("raid") || name.starts_with("sums") {
            let output = cat(name, &reduced, &[]);
            failed.extend(difference(facts, &output).map(|why| format!("{name}, reduced: {why}")));
        }
    }
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
    assert!(made.len() >= 12 + 12, "only {} results", made.len());
}

/// Every set of disks, of at most so many.
fn sets(most: usize) -> Vec<Vec<usize>> {
    let mut sets = vec![vec![]];
    if most > 0 {
        sets.extend((0..DISKS).map(|disk| vec![disk]));
    }
    if most > 1 {
        sets.extend((0..DISKS).flat_map(|one| (one + 1..DISKS).map(move |other| vec![one, other])));
    }
    sets
}

fn left<'a>(disks: &'a [PathBuf], missing: &[usize]) -> Vec<&'a Path> {
    let left = disks.iter().enumerate().filter(|(ix, _)| !missing.contains(ix));
    left.map(|(_, disk)| disk.as_path()).collect()
}

fn difference(facts: &Facts, output: &Output) -> Option<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Some(format!("{:?}, {said}", output.status.code()));
    }
    let sectors: u64 = facts["sectors"].parse().expect("a number");
    let expected = Pattern::parse(&facts["pattern"]).bytes(sectors);
    if expected.len() != output.stdout.len() {
        return Some(format!("{} bytes instead of {}", output.stdout.len(), expected.len()));
    }
    let wrong = output.stdout.chunks(512).zip(expected.chunks(512)).filter(|(found, wanted)| found != wanted);
    let wrong = wrong.count();
    (wrong > 0).then(|| format!("{wrong} sectors of {sectors} differ: {said}"))
}

fn cat(name: &str, disks: &[&Path], force: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wattle"));
    command
        .args(["cat", "-V", &format!("images/{name}")])
        .args(force)
        .args(disks)
        .output()
        .expect("wattle runs")
}
