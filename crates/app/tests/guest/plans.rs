//! The Linux commands of plans, carried out by Linux: they succeed, warn of nothing, and what is on
//! the members afterwards is what was planned.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::judge::Guest;
use crate::wattle;

const GIB: u64 = 1 << 30;

/// Plans by name: the options, and the disks in GiB.
const PLANS: [(&str, &str, &[u64]); 7] = [
    ("five", "--level 5 --chunk 256K --survive 1 --workload media", &[1, 1, 1, 1]),
    ("log", "--level 5 --chunk 64K --workload vm", &[1, 1, 1]),
    ("six", "--level 6 --survive 2 --spares 1 --workload backup", &[1, 1, 1, 1, 1]),
    ("far", "--level 10 --layout f2 --chunk 128K --fs ext4 --workload mail", &[1, 1, 1]),
    ("pair", "--survive 1", &[1, 1]),
    ("plain", "--level none --survive 0 --workload mail", &[1, 1]),
    ("bands", "--level 5 --survive 1 --chunk 64K", &[1, 1, 2, 2, 2]),
];

struct Planned {
    name: &'static str,
    report: Value,
    disks: Vec<PathBuf>,
}

impl Planned {
    fn new(dir: &Path, (name, options, sizes): (&'static str, &str, &[u64])) -> Self {
        let disk = |(ix, size): (usize, &u64)| {
            // Partitions are numbered right behind a name that ends in no digit.
            let disk = dir.join(format!("{name}{ix}."));
            File::create(&disk).and_then(|file| file.set_len(size * GIB)).expect("scratch space");
            disk
        };
        let disks: Vec<_> = sizes.iter().enumerate().map(disk).collect();
        let words = ["plan", "--json", "--drive", "sata7200", "--name", name];
        let words: Vec<&str> = words.into_iter().chain(options.split(' ')).collect();
        let report = serde_json::from_slice(&wattle(&words, &disks)).expect("JSON");
        Self { name, report, disks }
    }

    fn list(&self, whose: &str) -> impl Iterator<Item = &str> {
        let lines = self.report["plan"]["commands"][whose].as_array().expect("a list");
        lines.iter().map(|line| line.as_str().expect("a line"))
    }

    /// What the guest is to run. What cuts disks is run here, by wattle: the kernel finds the
    /// partitions.
    fn lines(&self, first_disk: usize) -> Vec<String> {
        let mut lines = vec![format!("plan {}", self.name)];
        for line in self.list("wattle") {
            if let Some(words) = line.strip_prefix("wattle partition ") {
                let words: Vec<_> = ["partition", "--no-undo"].into_iter().chain(words.split(' ')).collect();
                wattle(&words, &[]);
            }
        }
        for line in self.list("linux").filter(|line| !line.starts_with("sgdisk ")) {
            let mut line = line.replace(&format!("/dev/md/{}1", self.name), "/dev/md1");
            line = line.replace(&format!("/dev/md/{}", self.name), "/dev/md0");
            for (ix, disk) in self.disks.iter().enumerate() {
                line = line.replace(disk.to_str().expect("utf-8"), &device(first_disk + ix));
            }
            lines.push(line);
        }
        lines
    }

    /// What mdadm made is what was planned.
    fn check(&self, dir: &Path) {
        for array in self.report["plan"]["arrays"].as_array().expect("a list") {
            if array["level"] == "none" {
                continue;
            }
            for drive in array["drives"].as_array().expect("a list") {
                let disk = &self.disks[drive.as_u64().expect("a number") as usize];
                let member = part(dir, disk, &array["partition"]);
                let found: Value =
                    serde_json::from_slice(&wattle(&["examine", "--json"], &[member])).expect("JSON");
                check_member(self.name, array, &found["members"][0]["superblocks"][0]["fields"]);
            }
        }
    }
}

/// A member that is a partition in a file of its own.
fn part(dir: &Path, disk: &Path, partition: &Value) -> PathBuf {
    let Some(start) = partition["start_bytes"].as_u64() else { return disk.to_owned() };
    let member = dir.join("part");
    let size = partition["size_bytes"].as_u64().expect("a number");
    let words = [
        format!("if={}", disk.display()),
        format!("of={}", member.display()),
        "bs=1M".to_owned(),
        format!("skip={}", start >> 20),
        format!("count={}", size >> 20),
        "conv=sparse".to_owned(),
        "status=none".to_owned(),
    ];
    let _ = fs::remove_file(&member);
    assert!(Command::new("dd").args(words).status().expect("dd runs").success());
    File::options().write(true).open(&member).and_then(|file| file.set_len(size)).expect("scratch space");
    member
}

fn check_member(name: &str, array: &Value, fields: &Value) {
    let wanted_level: u64 = array["level"].as_str().and_then(|level| level.parse().ok()).expect("a number");
    assert_eq!(fields["level"], wanted_level, "{name}: {fields:#}");
    assert_eq!(fields["data_offset"], array["data_offset_bytes"], "{name}: {fields:#}");
    assert_eq!(fields["chunksize"], array["chunk_bytes"].as_u64().unwrap_or(0), "{name}");
    let layout = match array["layout"].as_str() {
        None => 0,
        Some("left-symmetric") => 2,
        Some("f2") => 0x201,
        Some(other) => panic!("{name}: {other} is not among the plans"),
    };
    assert_eq!(fields["layout"], layout, "{name}");
    let features = fields["feature_map"]["names"].as_array().expect("a list");
    for (feature, policy) in [("bitmap", "bitmap"), ("ppl", "ppl")] {
        let has = features.iter().any(|known| known.as_str().is_some_and(|known| known.contains(feature)));
        assert_eq!(has, array["consistency"] == policy, "{name}: {feature}, {fields:#}");
    }
}

/// What the guest calls a disk: behind `vdz` comes `vdaa`.
fn device(disk: usize) -> String {
    let letter = |ix: usize| char::from(b'a' + u8::try_from(ix).expect("few disks"));
    match disk {
        0..26 => format!("/dev/vd{}", letter(disk)),
        _ => format!("/dev/vd{}{}", letter(disk / 26 - 1), letter(disk % 26)),
    }
}

/// A stack that `plan --apply` made of drives of two sizes: partitions, two arrays, a group over
/// both. The kernel finds and uses it.
fn applied(dir: &Path, first_disk: usize) -> (Vec<String>, Vec<PathBuf>) {
    let disk = |(ix, gib): (usize, u64)| {
        let disk = dir.join(format!("made{ix}"));
        File::create(&disk).and_then(|file| file.set_len(gib * GIB)).expect("scratch space");
        disk
    };
    let disks: Vec<_> = [1, 1, 2, 2, 2].into_iter().enumerate().map(disk).collect();
    let undo = dir.join("state");
    let line = "plan --json --drive sata7200 --name made --level 5 --chunk 64K --fs ext4 --apply";
    let mut command = Command::new(env!("CARGO_BIN_EXE_wattle"));
    command.args(line.split(' ')).args(&disks).env("WATTLE_STATE_DIR", undo);
    let output = command.output().expect("wattle runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let part = |disk: usize, number: u32| format!("{}{number}", device(first_disk + disk));
    let parts = |disks: std::ops::Range<usize>, number| {
        disks.map(|disk| part(disk, number)).collect::<Vec<_>>().join(" ")
    };
    let lines = vec![
        "plan made".to_owned(),
        format!("mdadm --assemble /dev/md0 {}", parts(0..5, 1)),
        format!("mdadm --assemble /dev/md1 {}", parts(2..5, 2)),
        "[[ $(< /sys/block/md0/md/raid_disks) == 5 && $(< /sys/block/md0/md/degraded) == 0 ]]".to_owned(),
        "[[ $(< /sys/block/md1/md/raid_disks) == 3 && $(< /sys/block/md1/md/degraded) == 0 ]]".to_owned(),
        "vgchange -ay vg_made".to_owned(),
        "mkfs.ext4 /dev/vg_made/made".to_owned(),
        "mkdir -p /srv/made".to_owned(),
        "mount /dev/vg_made/made /srv/made".to_owned(),
    ];
    (lines, disks)
}

pub fn judge(guest: &Guest) {
    let dir = tempfile::tempdir().expect("scratch space");
    let planned: Vec<_> = PLANS.into_iter().map(|plan| Planned::new(dir.path(), plan)).collect();
    let mut lines = Vec::new();
    let mut disks: Vec<PathBuf> = Vec::new();
    for plan in &planned {
        lines.extend(plan.lines(disks.len()));
        disks.extend(plan.disks.iter().cloned());
    }
    let (more, made) = applied(dir.path(), disks.len());
    lines.extend(more);
    disks.extend(made);
    let file = dir.path().join("plans.txt");
    fs::write(&file, lines.join("\n") + "\n").expect("scratch space");
    let verdicts = guest.run_with("run-plans", &[file], &disks, &[]);
    assert_eq!(verdicts["made"]["ok"], "yes", "what --apply made");
    for plan in &planned {
        assert_eq!(verdicts[plan.name]["ok"], "yes", "{}", plan.name);
        plan.check(dir.path());
    }
}
