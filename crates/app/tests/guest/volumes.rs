//! Volumes of every kind that LVM2 makes are read from the disks they are on: what the kernel
//! showed of each, whole and with any disk missing where there is redundancy; and what cannot be
//! known is refused.

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::judge::{Facts, Guest};
use crate::pattern::Pattern;

const DISKS: usize = 6;
const DISK_BYTES: u64 = 192 << 20;
/// Where the job puts the caches, and the first leg of the old mirror.
const CACHES_DISK: usize = 1;
const FIRST_LEG_DISK: usize = 0;
/// The disk that was away for a while.
const STALE_DISK: usize = 2;

pub fn read_all(guest: &Guest) {
    let scratch = tempfile::tempdir().expect("scratch space");
    let disks: Vec<PathBuf> = (0..DISKS).map(|disk| scratch.path().join(format!("pv{disk}"))).collect();
    for disk in &disks {
        std::fs::File::create(disk).and_then(|file| file.set_len(DISK_BYTES)).expect("scratch space");
    }
    let made = guest.run_with("make-volumes", &[], &disks, &[]);
    assert!(made.len() >= 34, "only {} volumes", made.len());
    for (name, facts) in &made {
        check(name, facts, &disks, None);
    }
    refused("overflown", &disks, None, 1, "overflowed");
    refused("pool", &disks, None, 1, "thin-pool");

    for missing in 0..DISKS {
        let redundant = |name: &str| name.starts_with("raid") && !name.starts_with("raid0");
        for (name, facts) in made.iter().filter(|(name, _)| redundant(name)) {
            check(name, facts, &disks, Some(missing));
        }
    }
    check("mirror", &made["mirror"], &disks, Some(FIRST_LEG_DISK));
    check("through", &made["through"], &disks, Some(CACHES_DISK));
    refused("back", &disks, Some(CACHES_DISK), 3, "cache");
    refused("back_pool", &disks, Some(CACHES_DISK), 3, "cache");
    for name in ["stale1", "stale5"] {
        check(name, &made[name], &disks, Some(STALE_DISK));
    }
    // (By itself the other half of `stale1` would not know that it is stale.)
    refused("stale5", &disks, Some(CACHES_DISK), 1, "failed");
}

fn check(name: &str, facts: &Facts, disks: &[PathBuf], missing: Option<usize>) {
    let output = cat(name, disks, missing);
    let what = format!("{name}, without {missing:?}");
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    let sectors: u64 = facts["sectors"].parse().expect("a number");
    let expected = Pattern::parse(&facts["pattern"]).bytes(sectors);
    assert_eq!(output.stdout.len(), expected.len(), "{what}: size");
    let wrong = output.stdout.chunks(512).zip(expected.chunks(512)).filter(|(found, wanted)| found != wanted);
    assert_eq!(wrong.count(), 0, "{what}: sectors that differ");
}

fn refused(name: &str, disks: &[PathBuf], missing: Option<usize>, code: i32, why: &str) {
    let output = cat(name, disks, missing);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{name}, without {missing:?}: {said}");
    assert!(said.contains(why) && output.stdout.is_empty(), "{name}, without {missing:?}: {said}");
}

fn cat(name: &str, disks: &[PathBuf], missing: Option<usize>) -> Output {
    let there = disks.iter().enumerate().filter(|(ix, _)| Some(*ix) != missing).map(|(_, disk)| disk);
    let mut command = Command::new(env!("CARGO_BIN_EXE_wattle"));
    command.args(["cat", "-V", &format!("every/{name}")]).args(there).output().expect("wattle runs")
}
