//! dm-integrity: devices in every mode, in order and cut off, are read as Linux reads them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::judge::{Facts, Guest};

const DISK_BYTES: u64 = 8 << 20;
const KEYED: &str = "--integrity hmac-sha256 --integrity-key-file /data/key --integrity-key-size 32";
const MAC: &str =
    "--journal-integrity hmac-sha256 --journal-integrity-key-file /data/key --journal-integrity-key-size 32";

/// What each is called, its state, what it is formatted with beyond what it is opened with, and
/// that.
const DEVICES: [(&str, &str, &str, &str); 18] = [
    ("journal", "clean", "", "--integrity crc32c"),
    ("crc32", "clean", "--sector-size 4096", "--integrity crc32"),
    ("xxhash", "clean", "--tag-size 8 --interleave-sectors 1024", "--integrity xxhash64"),
    ("sha256", "clean", "--tag-size 32 --sector-size 1024", "--integrity sha256"),
    ("hmac", "cut", "--tag-size 32", KEYED),
    ("old-hmac", "clean", "--tag-size 20 --integrity-legacy-hmac --integrity-legacy-padding", KEYED),
    ("cut", "cut", "", "--integrity crc32c"),
    ("cut4k", "cut", "--tag-size 20 --sector-size 4096", "--integrity sha1"),
    ("torn", "torn", "", "--integrity crc32c"),
    ("bitmap", "clean", "", "--integrity crc32c --integrity-bitmap-mode"),
    ("bitmap-cut", "cut", "", "--integrity crc32c --integrity-bitmap-mode"),
    ("bitmap-torn", "torn", "", "--integrity crc32c --integrity-bitmap-mode --bitmap-sectors-per-bit 256"),
    ("direct", "clean", "", "--integrity crc32c --integrity-no-journal"),
    ("padding", "clean", "--integrity-legacy-padding --interleave-sectors 4096", "--integrity crc32c"),
    ("ring", "cut", "--journal-size 1048576", "--integrity crc32c --journal-watermark 90"),
    ("ring-torn", "torn", "--journal-size 1048576", "--integrity crc32c"),
    (
        "ring-4k",
        "torn",
        "--tag-size 8 --sector-size 4096 --journal-size 1048576",
        "--integrity xxhash64 --journal-watermark 90",
    ),
    ("mac", "torn", "--journal-size 524288", "--integrity crc32c"),
];

/// Reads everything; the sum of it, or `None` if that is an error.
fn sum(key: &Path, members: &[PathBuf]) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wattle"));
    let said = command.args(["cat", "--key-file"]).arg(key).args(members).output().expect("wattle runs");
    let sum = || Sha256::digest(&said.stdout).iter().map(|byte| format!("{byte:02x}")).collect();
    said.status.success().then(sum)
}

fn check(what: &str, facts: &Facts, key: &Path, members: &[PathBuf]) {
    // A copy that was taken while Linux wrote may be one that Linux cannot read either.
    let linux = facts.get("sha256").filter(|sum| !sum.is_empty());
    assert_eq!(sum(key, members), linux.cloned(), "{what}");
}

pub fn judge(guest: &Guest) {
    let scratch = tempfile::tempdir().expect("scratch space");
    let path = |name: &str| scratch.path().join(name);
    let key = path("key");
    fs::write(&key, [0x5c; 32]).expect("scratch space");
    let line = |(name, state, format, open): &(&str, &str, &str, &str)| {
        let open = if *name == "mac" { format!("{open} {MAC}") } else { (*open).to_owned() };
        // A device has no mode before it is opened.
        let modes = [
            "--integrity-bitmap-mode",
            "--bitmap-sectors-per-bit",
            "256",
            "--integrity-no-journal",
            "--journal-watermark",
            "90",
        ];
        let kept: Vec<_> = open.split(' ').filter(|word| !modes.contains(word)).collect();
        format!("{name} {state} {} {format} -- {open}\n", kept.join(" "))
    };
    let asked = path("integrity.txt");
    let lines: String = DEVICES.iter().map(line).collect();
    fs::write(&asked, lines).expect("scratch space");
    let disks: Vec<PathBuf> = (0..DEVICES.len() * 2 + 5).map(|nth| path(&format!("disk{nth:02}"))).collect();
    for disk in &disks {
        File::create(disk).and_then(|file| file.set_len(DISK_BYTES)).expect("scratch space");
    }
    let found = guest.run_with("integrity", &[asked, key.clone()], &disks, &[]);
    for (nth, (name, ..)) in DEVICES.iter().enumerate() {
        check(name, &found[*name], &key, std::slice::from_ref(&disks[2 * nth]));
    }
    let (mirror, parity) = disks[DEVICES.len() * 2..].split_at(2);
    check("a mirror", &found["mirror"], &key, mirror);
    check("a RAID 5", &found["parity"], &key, parity);
    check("a RAID 5 without a member", &found["parity"], &key, &parity[1..]);
}
