//! btrfs, and XFS of version 4, that are cut off at any moment while Linux writes to them: what
//! `get` takes out, with status 0, is what Linux shows after its own replay.
#![allow(clippy::print_stderr, reason = "how much was judged is said")]

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::judge::{Facts, Guest};

const DISK_BYTES: u64 = 128 << 20;
/// Of each file system; the last one after it was unmounted.
const CUTS: usize = 4;
const OPTIONS: [&str; 4] = ["noatime", "compress-force=zstd,commit=1", "compress=lzo,commit=2", "nodatacow"];

/// File systems that are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Btrfs,
    /// Which kernels of today's distributions still mount, and later ones do not.
    XfsOfVersion4,
}

/// `WATTLE_CUTS=N` takes N times as many file systems.
pub fn judge(guest: &Guest, kind: Kind) {
    let times: u64 = std::env::var("WATTLE_CUTS").map_or(1, |times| times.parse().expect("a number"));
    let (mut images, mut silent, mut refused, mut compared, mut wrong) = (0, 0, 0, 0, Vec::new());
    for seed in 0..times {
        let scratch = tempfile::tempdir().expect("scratch space");
        let disks: Vec<PathBuf> = (0..=CUTS).map(|disk| scratch.path().join(format!("disk{disk}"))).collect();
        for disk in &disks {
            std::fs::File::create(disk).and_then(|file| file.set_len(DISK_BYTES)).expect("scratch space");
        }
        let asked = scratch.path().join("cuts.txt");
        let (options, name) = match kind {
            Kind::Btrfs => (OPTIONS[seed as usize % OPTIONS.len()], "btrfs"),
            Kind::XfsOfVersion4 => ("noatime", "xfs"),
        };
        if kind == Kind::XfsOfVersion4 && !made_as_xfs_of_version_4(&disks[0]) {
            return;
        }
        std::fs::write(&asked, format!("{} {CUTS} {options} {name}\n", seed + 1)).expect("scratch space");
        let shown = guest.run_with("cut-files", &[asked], &disks, &[]);
        assert_eq!(shown.len(), CUTS, "{shown:?}");
        for (name, facts) in &shown {
            let number: usize = name.trim_start_matches("cut-").parse().expect("a number");
            let what = format!("seed {seed}, {options}, {name}");
            images += 1;
            refused += u32::from(facts["mounts"] == "no");
            let Taken { here, report } = taken_out(&disks[number], scratch.path());
            let differs = difference(&here, facts);
            compared += here.len();
            if report["exit"]["status"] == 0 {
                silent += 1;
                wrong.extend(differs.map(|differs| format!("{what}: {differs}")));
                continue;
            }
            // A log is applied.
            wrong.push(format!("{what}: {report:#}"));
        }
    }
    eprintln!(
        "{images} images, {compared} lines compared: {silent} with status 0; {refused} that Linux refuses"
    );
    assert!(wrong.is_empty(), "of {images} images, {silent} with status 0:\n{}", wrong.join("\n"));
    assert!(silent >= times as u32 && compared > 20 * times as usize && refused == 0, "{compared} lines");
}

/// Whether this machine can make one.
fn made_as_xfs_of_version_4(disk: &Path) -> bool {
    let small = ["-q", "-f", "-m", "crc=0", "-d", "agcount=2", "-l", "size=8m", "--unsupported"];
    match Command::new("/usr/sbin/mkfs.xfs").args(small).arg(disk).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            true
        }
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "mkfs.xfs: {error}");
            eprintln!("SKIPPED: mkfs.xfs: {error}");
            false
        }
    }
}

/// Where the guest shows something else.
fn difference(here: &BTreeSet<String>, facts: &Facts) -> Option<String> {
    let Some(hex) = facts.get("manifest") else { return Some("Linux does not mount it".to_owned()) };
    let bytes: Vec<u8> = (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal"))
        .collect();
    let there: BTreeSet<String> =
        String::from_utf8(bytes).expect("plain names").lines().map(Into::into).collect();
    let differs: Vec<_> = here.symmetric_difference(&there).take(6).cloned().collect();
    (!differs.is_empty()).then(|| differs.join("; "))
}

/// What came out: lines as the guest's; and the report.
pub struct Taken {
    pub here: BTreeSet<String>,
    pub report: serde_json::Value,
}

pub fn taken_out(image: &Path, scratch: &Path) -> Taken {
    let (to, report) = (scratch.join("out"), scratch.join("report.json"));
    let _ = std::fs::remove_dir_all(&to);
    let _ = std::fs::remove_file(&report);
    let mut get = Command::new(env!("CARGO_BIN_EXE_wattle"));
    get.arg("get").arg(image).arg("--to").arg(&to).arg("--report").arg(&report);
    let output = get.output().expect("wattle runs");
    let said = String::from_utf8_lossy(&output.stderr);
    let report = std::fs::read(&report).unwrap_or_else(|error| panic!("no report: {error}: {said}"));
    let report: serde_json::Value = serde_json::from_slice(&report).expect("the report is JSON");
    assert_eq!(report["exit"]["status"], output.status.code().expect("it ended by itself"), "{said}");
    let mut lines = BTreeSet::new();
    let mut open = vec![to.clone()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).expect("it came out") {
            let path = entry.expect("it came out").path();
            let found = std::fs::symlink_metadata(&path).expect("it came out");
            let name = format!("./{}", path.strip_prefix(&to).expect("it is below").display());
            let rights = format!("{:o} {}:{}", found.mode() & 0o7777, found.uid(), found.gid());
            let all = format!("{rights} {} {} {}", found.nlink(), found.len(), found.mtime());
            if found.is_dir() {
                lines.insert(format!("d {name} {rights}"));
                open.push(path);
            } else if found.is_symlink() {
                let target = std::fs::read_link(&path).expect("it came out");
                lines.insert(format!("l '{name}' -> '{}' {all}", target.display()));
            } else if found.is_file() {
                let sum = Sha256::digest(std::fs::read(&path).expect("it came out"));
                let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
                lines.extend([format!("f {name} {all}"), format!("{sum}  {name}")]);
            }
        }
    }
    Taken { here: lines, report }
}
