//! Arrays as block devices of the guest's kernel, with a server that runs there.

#![allow(clippy::print_stderr, reason = "a figure that is not asserted is shown")]

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::judge::Guest;
use crate::wattle;

/// So often the server is killed under the load.
const KILLS: u32 = 4;

pub fn devices(guest: &Guest) {
    let scratch = tempfile::tempdir().expect("scratch space");
    let disks: Vec<PathBuf> = (0..5).map(|nth| scratch.path().join(format!("disk{nth}"))).collect();
    for disk in &disks {
        File::create(disk).and_then(|file| file.set_len(200 << 20)).expect("scratch space");
    }
    let cases = scratch.path().join("ublk.txt");
    std::fs::write(&cases, format!("{KILLS}\n")).expect("scratch space");
    let mut files = programs(scratch.path());
    files.push(cases);
    let results = guest.run_with("ublk-devices", &files, &disks, &[("GUEST_MEM", "2048")]);
    assert_eq!(results.values().filter(|facts| facts["ok"] == "yes").count(), 14, "{results:?}");
    // Not asserted: it is a matter of moments, and md's to mend.
    eprintln!(
        "a mirror of md's written to by the same program: {} sectors differ",
        results["md-mirror"]["differ"]
    );
    wattle(&["scan"], &disks[..3]);
}

/// The server and fio, with what they are linked to.
fn programs(scratch: &Path) -> Vec<PathBuf> {
    let ours = scratch.join("wattle");
    // Symbols are most of it, and all of it goes through an emulated machine's memory.
    let stripped = Command::new("strip").arg("-o").arg(&ours).arg(env!("CARGO_BIN_EXE_wattle")).status();
    assert!(stripped.expect("strip runs").success());
    let fio = PathBuf::from("/usr/bin/fio");
    let libraries: BTreeSet<PathBuf> =
        [&ours, &fio].into_iter().flat_map(|program| libraries(program)).collect();
    [ours, fio].into_iter().chain(libraries).collect()
}

/// The libraries that a program is linked to, but for the loader, which the guest has.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let said = Command::new("ldd").arg(program).output().expect("ldd runs").stdout;
    let said = String::from_utf8(said).expect("paths are text");
    let paths = said.split_whitespace().filter(|word| word.starts_with('/') && !word.contains("ld-linux"));
    paths.map(PathBuf::from).collect()
}
