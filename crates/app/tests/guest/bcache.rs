//! Backing devices of bcache in every state that Linux leaves them in.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use crate::judge::Guest;
use crate::pattern::Pattern;
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
