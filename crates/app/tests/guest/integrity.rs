//! dm-integrity: devices in every mode, in order and cut off, are read as Linux reads them, and
//! what is written to them Linux reads, in every mode and after every end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sha2::{Digest, Sha256};
use wattle_format::integrity::{IntegrityLayout, IntegritySuperblock};

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
    judge_writes(guest, scratch.path(), &key, &disks);
    let (mirror, parity) = disks[DEVICES.len() * 2..].split_at(2);
    check("a mirror", &found["mirror"], &key, mirror);
    check("a RAID 5", &found["parity"], &key, parity);
    check("a RAID 5 without a member", &found["parity"], &key, &parity[1..]);
}

/// Devices that are written to: those of above, and what Linux opens them with, but for its mode.
const WRITTEN: [(&str, &str); 8] = [
    ("journal", "--integrity crc32c"),
    ("sha256", "--integrity sha256"),
    ("hmac", KEYED),
    ("old-hmac", KEYED),
    ("cut4k", "--integrity sha1"),
    ("bitmap", "--integrity crc32c"),
    ("direct", "--integrity crc32c"),
    ("ring", "--integrity crc32c"),
];
/// What Linux opens a device with, one after the other, begun with another one for each copy.
const MODES: [&str; 3] = ["--journal-watermark 50", "--integrity-bitmap-mode", "--integrity-no-journal"];
/// Sectors that are written, and what with. The last ones are one batch in any journal.
const WRITES: [(u64, u64, u8); 3] = [(64, 24, 0x11), (80, 40, 0x22), (2048, 16, 0x33)];

/// Serves a device while a script runs.
fn serve(device: &Path, key: &Path, script: &str) -> Output {
    let runtime = device.with_extension("run");
    Command::new(env!("CARGO_BIN_EXE_wattle"))
        .args(["serve", "--key-file", text(key), "--runtime-dir", text(&runtime), "--run", script])
        .arg(device)
        .output()
        .expect("wattle runs")
}

/// Writes to a device, whose server is killed then.
fn write(device: &Path, key: &Path, writes: &[(u64, u64, u8)]) {
    let command =
        |(at, count, byte): &(u64, u64, u8)| format!(" -c 'write -q -P {byte} {} {}'", at * 512, count * 512);
    let commands: String = writes.iter().map(command).collect();
    let said = serve(device, key, &format!("qemu-io -f raw{commands} \"$uri\"; kill -9 $PPID"));
    assert_eq!(said.status.code(), None, "killed: {}", String::from_utf8_lossy(&said.stderr));
}

/// Two ends of a device that was written: as its killed server left it, and as a cut of power does
/// of which only the journal has what was written last.
fn written(device: &Path, dir: &Path, key: &Path) -> [PathBuf; 2] {
    let [before, killed, cut] = ["before", "killed", "cut"].map(|name| dir.join(name));
    fs::copy(device, &before).expect("scratch space");
    let (last, earlier) = WRITES.split_last().expect("there are some");
    write(&before, key, earlier);
    let said = serve(&before, key, "true");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    fs::copy(&before, &killed).expect("scratch space");
    write(&killed, key, &[*last]);
    let mut bytes = fs::read(&before).expect("a device");
    let after = fs::read(&killed).expect("a device");
    let superblock = IntegritySuperblock::parse(&after).expect("a superblock");
    let layout = IntegrityLayout::of(&superblock).expect("a layout");
    let areas = layout.section_at_bytes(layout.sections) as usize;
    bytes[..areas].copy_from_slice(&after[..areas]);
    assert!(bytes != after, "what was written is in its places too");
    fs::write(&cut, bytes).expect("scratch space");
    [killed, cut]
}

fn text(path: &Path) -> &str {
    path.to_str().expect("utf-8")
}

/// Linux opens what was written, in every mode, reads what it should, writes, and is read again.
fn judge_writes(guest: &Guest, scratch: &Path, key: &Path, disks: &[PathBuf]) {
    let (mut lines, mut copies, mut expected) = (String::new(), Vec::new(), Vec::new());
    for (name, open) in WRITTEN {
        let nth = DEVICES.iter().position(|(device, ..)| *device == name).expect("a device of above");
        let dir = scratch.join(name);
        fs::create_dir(&dir).expect("scratch space");
        let mut content = crate::wattle(&["cat", "--key-file", text(key)], &disks[2 * nth..=2 * nth]);
        for (at, count, byte) in WRITES {
            content[at as usize * 512..][..count as usize * 512].fill(byte);
        }
        let ends = written(&disks[2 * nth], &dir, key);
        let sum: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        for (end, device) in ["killed", "cut"].into_iter().zip(ends) {
            let read = crate::wattle(&["cat", "--key-file", text(key)], std::slice::from_ref(&device));
            assert!(read == content, "{name}, {end}");
            // Each end is opened in each mode first, of one device or another.
            let mode = |nth: usize| MODES[(copies.len() / 2 + nth) % 3].replace(' ', ",");
            let modes = [0, 1, 2].map(mode).join(" ");
            let what = format!("{name}-{end}");
            lines += &format!("{what} {modes} {open}\n");
            copies.push(device);
            expected.push((what, sum.clone()));
        }
    }
    let asked = scratch.join("reopened.txt");
    fs::write(&asked, lines).expect("scratch space");
    let found = guest.run_with("integrity-reopen", &[asked, key.to_owned()], &copies, &[]);
    for ((what, sum), copy) in expected.iter().zip(&copies) {
        let facts = &found[what];
        assert_eq!(facts.get("first"), Some(sum), "{what}: Linux reads what was written");
        for mode in ["second", "third"] {
            assert!(facts.contains_key(mode), "{what}: Linux reads it in another mode: {facts:?}");
        }
        check(what, facts, key, std::slice::from_ref(copy));
    }
}
