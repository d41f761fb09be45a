//! Arrays as block devices of the guest's kernel, with a server that runs there.

#![allow(clippy::print_stderr, reason = "a figure that is not asserted is shown")]

use std::fs::File;
use std::path::PathBuf;

use crate::judge::Guest;
use crate::programs::programs;
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
    let mut files = programs(scratch.path(), &["/usr/bin/fio"]);
    files.push(cases);
    let results = guest.run_with("ublk-devices", &files, &disks, &[("GUEST_MEM", "2048")]);
    assert_eq!(results.values().filter(|facts| facts["ok"] == "yes").count(), 19, "{results:?}");
    // Not asserted: it is a matter of moments, and md's to mend.
    eprintln!(
        "a mirror of md's written to by the same program: {} sectors differ",
        results["md-mirror"]["differ"]
    );
    wattle(&["scan"], &disks[..3]);
}
