//! `wattle plan --apply`, and what other programs make of the plans: sgdisk of the bands, mkfs of
//! small volumes.

use std::process::Command;

use serde_json::Value;

use crate::fuse::{Loop, can_mount};
use crate::harness::{Room, Said, require, run, said, wattle};

const MIB: u64 = 1 << 20;

fn words(line: &str) -> impl Iterator<Item = String> {
    line.split_whitespace().map(str::to_owned)
}

/// Plans for these members, and builds it if the line says so.
fn plan(room: &Room, line: &str, members: &[String]) -> Said {
    let mut command = wattle();
    command.arg("plan").args(words(line)).args(members);
    command.env("WATTLE_RUNTIME_DIR", room.path("run")).env("WATTLE_STATE_DIR", room.path("state"));
    said(command.output().unwrap())
}

/// Of a directory for temporary files that all may write to, other users know nothing beforehand.
#[test]
fn the_directory_for_mkfs_has_a_name_that_is_not_known_beforehand() {
    if !require("mkfs.xfs") || !can_mount() {
        return;
    }
    let room = Room::new();
    let members = room.blank(3, 1 << 30);
    let temporary = room.path("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let line = "plan --drive sata7200 --level 5 --workload vm --name depot --apply --mkfs";
    let mut command = Command::new("sh");
    // The shell becomes the command, with the number that the name was once made of.
    command.args([
        "-c",
        "mkdir \"$TMPDIR/wattle-mkfs-$$\" && exec \"$0\" \"$@\"",
        env!("CARGO_BIN_EXE_wattle"),
    ]);
    command.args(words(line)).args(&members).env("TMPDIR", &temporary);
    command.env("WATTLE_RUNTIME_DIR", room.path("run")).env("WATTLE_STATE_DIR", room.path("state"));
    said(command.output().unwrap()).ok();
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 1, "its own directory is gone");
}

fn on(line: &str, members: &[String]) -> Said {
    run(words(line).chain(members.iter().cloned())).ok()
}

#[test]
fn five_files_become_the_stack_that_was_planned() {
    if !require("mkfs.xfs") || !require("xfs_repair") || !can_mount() {
        return;
    }
    let room = Room::new();
    let members = room.blank(5, 1 << 30);
    let line = "--drive sata7200 --level 5 --spares 1 --workload vm --name depot --apply --mkfs --json";
    let report = plan(&room, line, &members).ok().json();
    let done = report["applied"]["done"].as_array().unwrap();
    let commands: Vec<_> = done.iter().map(|done| done["command"].as_str().unwrap()).collect();
    let printed = &report["plan"]["commands"]["wattle"];
    for (ix, command) in commands[..3].iter().enumerate() {
        assert_eq!(printed[ix], *command);
    }
    assert!(commands[3].contains("mkfs.xfs -d su="), "{commands:?}");
    assert_eq!(report["applied"]["left"], serde_json::json!([]));

    let tree = on("scan", &members);
    for word in ["depot", "raid5", "vg_depot/depot", "xfs"] {
        assert!(tree.text().contains(word), "{word}: {}", tree.text());
    }
    // Clean, with its log and its spare, every layer aligned, and the file system told of the
    // stripes.
    let audit = on("audit --json --fail-on never", &members).json();
    assert_eq!(audit["findings"], serde_json::json!([]), "{audit:#}");
    let lvm = &report["plan"]["lvm"];
    let pv = on("pv list --json -o +pe_start", &members).json()["physical_volumes"][0].clone();
    assert_eq!(pv["pe_start"], lvm["pe_start_bytes"][0], "{pv:#}");
    let lv = on("lv list --json", &members).json()["logical_volumes"][0].clone();
    assert_eq!(lv["lv_size"], lvm["size_bytes"]);
    // xfs_repair agrees that there is one.
    let mount = room.path("mount");
    std::fs::create_dir(&mount).unwrap();
    let mut serve = wattle();
    serve.arg("serve").args(&members).arg("--runtime-dir").arg(room.path("run"));
    serve.arg(format!("--export=fuse={}", mount.display())).args(["--run", "xfs_repair -n -f \"$file\" >&2"]);
    said(serve.env("WATTLE_STATE_DIR", room.path("state")).output().unwrap()).ok();
}

#[test]
fn drives_become_physical_volumes_and_the_file_system_is_left_to_who_wants_it() {
    let room = Room::new();
    let members = room.blank(4, 1 << 30);
    let said =
        plan(&room, "--drive sata7200 --level none --survive 0 --workload mail --apply", &members).ok();
    let (_, done) = said.text().split_once("\ndone:\n").unwrap();
    assert!(done.contains("volume group vg_data") && done.contains("\nleft to do:\n"), "{done}");
    assert!(done.contains("mkfs.xfs -d su=4m,sw=4,"), "{done}");
    let lv = on("lv list --json", &members).json()["logical_volumes"][0].clone();
    assert_eq!(lv["stripes"], 4);
}

/// Drives of two sizes: a table on each, an array by band, one group over both.
#[test]
fn bands_become_partitions_arrays_and_one_group() {
    let room = Room::new();
    let disk = |(ix, mib): (usize, u64)| room.device(&format!("disk{ix}"), mib * MIB);
    let members: Vec<_> = [128, 128, 256, 256, 256].into_iter().enumerate().map(disk).collect();
    let line = "--drive sata7200 --level 5 --workload backup --fs ext4 --name depot --apply --json";
    let report = plan(&room, line, &members).ok().json();
    let done = report["applied"]["done"].as_array().unwrap();
    let printed = &report["plan"]["commands"]["wattle"];
    for (ix, done) in done.iter().enumerate() {
        assert_eq!(printed[ix], done["command"]);
    }
    assert_eq!(done.len(), 6, "{done:#?}");
    for (ix, member) in members.iter().enumerate() {
        assert_partitions(&report, ix as u64, member, &members);
        if require("sgdisk") {
            let verified = Command::new("sgdisk").arg("--verify").arg(member).output().unwrap();
            let said = String::from_utf8_lossy(&verified.stdout);
            assert!(said.contains("No problems found"), "{said}");
        }
    }
    // Aligned and whole; that is what a bitmap leaves open, and that there is no spare.
    let audit = on("audit --json --fail-on never", &members).json();
    let findings = audit["findings"].as_array().unwrap();
    let open = |finding: &&Value| !matches!(finding["code"].as_str().unwrap(), "AUD-304" | "AUD-306");
    assert_eq!(findings.iter().find(open), None, "{audit:#}");
    let pvs = on("pv list --json -o +pe_start", &members).json();
    assert_eq!(pvs["physical_volumes"].as_array().unwrap().len(), 2, "{pvs:#}");
    let lv = on("lv list --json", &members).json()["logical_volumes"][0].clone();
    assert_eq!(lv["lv_size"], report["plan"]["lvm"]["size_bytes"]);
    // It holds something now.
    let again = room.untouched(|| plan(&room, line, &members));
    again.failed(3, "WTL-0080", &["holds data", "wattle erase"]);
    // Taken back from the last to the first, all of it is as it was. Those of one second are in no
    // order. The arrays ran since they were created, which their superblocks say.
    let mut logs: Vec<_> =
        std::fs::read_dir(room.path("state/undo")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(logs.len(), 6);
    let when = |what: &str| ["lv", "vg", "create", "partition"].iter().position(|known| what == *known);
    logs.sort_by_key(|log| {
        let name = log.file_stem().unwrap().to_string_lossy().into_owned();
        when(name.split('-').nth(1).unwrap())
    });
    for log in &logs {
        let mut undo = wattle();
        undo.arg("undo").arg(log).arg("--force=written-since").env("WATTLE_STATE_DIR", room.path("state"));
        said(undo.output().unwrap()).ok();
    }
    for member in &members {
        assert!(std::fs::read(member).unwrap().iter().all(|&byte| byte == 0), "{member} is as it was");
    }
}

/// One drive reaches further than the others: its partition becomes a physical volume itself.
#[test]
fn what_one_drive_has_alone_joins_the_group() {
    let room = Room::new();
    let members = [room.device("small", 512 * MIB), room.device("large", 1024 * MIB)];
    plan(&room, "--drive sata7200 --level 0 --survive 0 --fs ext4 --apply", &members).ok();
    let pvs = on("pv list --json", &members).json();
    assert_eq!(pvs["physical_volumes"].as_array().unwrap().len(), 2, "{pvs:#}");
}

#[test]
fn what_cannot_be_built_is_refused_before_anything_is_written() {
    let room = Room::new();
    let members = room.blank(4, 64 * MIB);
    let fails = |line: &str, members: &[String], status, code, words: &[&str]| {
        let line = format!("{line} --fs ext4");
        room.untouched(|| plan(&room, &line, members).failed(status, code, words));
    };
    fails("--drives 4 --drive sata7200 --apply", &[], 2, "WTL-0001", &["models"]);
    // What one of them holds is kept, whether it is on the member or on an array that it belongs
    // to.
    for make in ["pv create", "create old --level 1 missing"] {
        let members = [&members[..3], &[room.device("used", 64 * MIB)]].concat();
        run(words(make).chain([members[3].clone()])).ok();
        for level in ["--level 5", "--level none --survive 0"] {
            // The commands of a plan are pasted: what they write over is refused as well.
            for apply in ["--apply", ""] {
                let line = format!("--drive sata7200 {level} {apply}");
                fails(&line, &members, 3, "WTL-0080", &["used", "holds data"]);
            }
        }
    }
    // Of bands nothing is there before their partitions are.
    let larger =
        [&members[..2], &[room.device("full", 128 * MIB), room.device("larger", 128 * MIB)]].concat();
    run(words("pv create").chain([larger[2].clone()])).ok();
    fails("--drive sata7200 --survive 1 --apply", &larger, 3, "WTL-0080", &["full", "holds data"]);
    fails("--drive sata7200 --survive 1", &larger, 3, "WTL-0080", &["full", "holds data"]);
    let said = plan(&room, "--drive sata7200 --mkfs", &members);
    assert_eq!(said.status, 2, "{}", said.stderr);
}

#[test]
fn a_step_that_fails_says_what_is_done_and_how_to_go_on() {
    let room = Room::new();
    let members = room.blank(3, 1 << 30);
    let mut command = wattle();
    command.args(words("plan --drive sata7200 --level 5 --apply --mkfs")).args(&members);
    // There is no place for the volume's file.
    command.env("TMPDIR", room.path("nowhere")).env("WATTLE_STATE_DIR", room.path("state"));
    let said = said(command.output().unwrap());
    let words = ["stays: wattle create data", "wattle lv create", "go on with: wattle serve", "mkfs.xfs"];
    said.failed(1, "WTL-0101", &words);
    assert!(on("scan", &members).text().contains("vg_data/data"));
}

#[test]
fn a_volume_that_xfs_is_not_made_on_is_refused_and_the_smallest_is_not() {
    let small = |size, more: &str| {
        let room = Room::new();
        let line = format!("--drive sata7200 --level 5 --chunk 64K --cores 16 --json {more}");
        plan(&room, &line, &room.blank(4, size * MIB))
    };
    small(100, "").failed(2, "WTL-0008", &["300 MiB", "--fs ext4"]);
    small(100, "--fs ext4").ok();
    if !require("mkfs.xfs") {
        return;
    }
    // From the smallest on, the log has room in every allocation group.
    for size in [130, 200, 230, 330] {
        let report = small(size, "").ok().json();
        let room = Room::new();
        let volume = room.device("volume", report["plan"]["lvm"]["size_bytes"].as_u64().unwrap());
        let linux = report["plan"]["commands"]["linux"].as_array().unwrap();
        let mkfs = linux.iter().find_map(|line| line.as_str()?.strip_prefix("mkfs.xfs ")).unwrap();
        let line = mkfs.replace("/dev/vg_data/data", &volume);
        let output = Command::new("mkfs.xfs").arg("-N").args(words(&line)).output().unwrap();
        assert!(output.status.success(), "{size}: {line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Runs the plan's own lines for sgdisk.
fn partition(report: &Value, names: impl Fn(&str) -> String) {
    let linux = report["plan"]["commands"]["linux"].as_array().unwrap();
    let lines: Vec<_> = linux.iter().filter_map(|line| line.as_str()?.strip_prefix("sgdisk ")).collect();
    assert!(!lines.is_empty());
    for line in lines {
        let output = Command::new("sgdisk").args(words(&names(line))).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// What wattle finds of partitions is what was planned for this drive: how long each is.
#[track_caller]
fn assert_partitions(report: &Value, drive: u64, member: &str, all: &[String]) {
    let arrays = report["plan"]["arrays"].as_array().unwrap().iter();
    let planned = arrays.filter(|array| array["drives"].as_array().unwrap().contains(&drive.into()));
    let planned: Vec<_> = planned.map(|array| array["partition"]["size_bytes"].clone()).collect();
    let scan = on("scan --json", all).json();
    let mut found: Vec<_> = scan["members"].as_array().unwrap().iter().collect();
    found.retain(|part| part["member"].as_str().unwrap().starts_with(&format!("{member}:p")));
    let found: Vec<_> = found.iter().map(|part| part["size_bytes"].clone()).collect();
    assert_eq!(found, planned, "{member}");
}

/// Every layer is aligned, and nothing else is wrong.
#[track_caller]
fn assert_clean(members: &[String]) {
    let audit = on("audit --json --fail-on never", members).json();
    assert_eq!(audit["findings"], serde_json::json!([]), "{audit:#}");
}

#[test]
fn sgdisk_cuts_drives_into_the_bands_that_were_planned() {
    if !require("sgdisk") {
        return;
    }
    let room = Room::new();
    let sizes =
        [4_000_787_030_016, 4_000_787_030_016, 4_000_787_030_016, 8_001_563_222_016, 8_001_563_222_016];
    let members: Vec<_> =
        sizes.iter().enumerate().map(|(ix, size)| room.device(&format!("disk{ix}."), *size)).collect();
    let report = plan(&room, "--drive sata7200 --survive 1 --workload media --json", &members).ok().json();
    partition(&report, str::to_owned);
    for (ix, member) in members.iter().enumerate() {
        assert_partitions(&report, ix as u64, member, &members);
        assert_clean(std::slice::from_ref(member));
    }
    // Blocks of 4 KiB: the same places, in other units.
    let images = [4096, 8192].map(|mib| room.device(&format!("image{mib}"), mib * MIB));
    let devices = images.iter().map(|image| Loop::over(image.as_ref(), &["--sector-size", "4096"]));
    let Some(devices) = devices.collect::<Option<Vec<_>>>() else { return };
    let names: Vec<_> = devices.iter().map(|device| device.0.clone()).collect();
    let report = plan(&room, "--drive sata7200 --survive 0 --level 0 --json", &names).ok().json();
    partition(&report, str::to_owned);
    for (ix, name) in names.iter().enumerate() {
        assert_partitions(&report, ix as u64, name, &names);
        assert_clean(std::slice::from_ref(name));
    }
}
