//! `audit` on a running system: stacks of the kernel, LVM2 and XFS, one as it should be and one
//! with what operators get wrong.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::judge::Guest;

const DISKS: u64 = 6;
const DISK_BYTES: u64 = 768 << 20;

/// The binary under test, without what only debuggers read, and what it loads: the guest has a C
/// library of its own, maybe another.
fn program(dir: &Path) -> Vec<PathBuf> {
    let program = dir.join("wattle");
    let strip = Command::new("strip").arg("-o").arg(&program).arg(env!("CARGO_BIN_EXE_wattle")).status();
    assert!(strip.expect("strip runs").success());
    let output = Command::new("ldd").arg(&program).output().expect("ldd runs");
    let loaded = String::from_utf8(output.stdout).expect("utf-8");
    let path = |word: &str| word.starts_with('/').then(|| PathBuf::from(word));
    let libraries = loaded.lines().filter_map(|line| line.split_whitespace().find_map(path));
    [program].into_iter().chain(libraries).collect()
}

pub fn judge(guest: &Guest) {
    let dir = tempfile::tempdir().expect("scratch space");
    let disk = |number: u64| {
        let disk = dir.path().join(format!("disk{number}"));
        File::create(&disk).and_then(|file| file.set_len(DISK_BYTES)).expect("scratch space");
        disk
    };
    let disks: Vec<PathBuf> = (0..DISKS).map(disk).collect();
    let found = guest.run_with("audit-stacks", &program(dir.path()), &disks, &[]);
    assert_eq!(found["good"]["codes"], "", "nothing is wrong with it");
    let bad: Vec<&str> = found["bad"]["codes"].split(',').collect();
    assert_eq!(found["busy"]["codes"], found["bad"]["codes"], "whether it is written or not");
    for code in [
        "AUD-104", "AUD-202", "AUD-203", "AUD-301", "AUD-305", "AUD-306", "AUD-501", "AUD-502", "AUD-503",
        "AUD-701", "AUD-703",
    ] {
        assert!(bad.contains(&code), "{code} is not among {bad:?}");
    }
}
