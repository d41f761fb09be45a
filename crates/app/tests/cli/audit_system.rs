//! `wattle audit` on a system: a tree of what a kernel says, with drives in it, and each fault
//! planted there.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::audit::{file_system, put};
use crate::harness::{Room, Said, require, run};

const MIB: u64 = 1 << 20;
const DRIVES: [&str; 5] = ["sda", "sdb", "sdc", "sdd", "sde"];

/// A system with a RAID 5 of four SSDs and a spare, a volume group on it, and nothing wrong.
pub struct Tree {
    room: Room,
}

impl Tree {
    pub fn new() -> Self {
        Self::sized(64 * MIB, "48M")
    }

    fn sized(drive: u64, volume: &str) -> Self {
        let tree = Self { room: Room::new() };
        fs::create_dir_all(tree.room.path("dev")).unwrap();
        let members = DRIVES.map(|name| tree.room.device(&format!("dev/{name}"), drive));
        let create = "create data --level 5 --chunk 64K --consistency ppl --assume-clean --spares 1";
        run(create.split_whitespace().map(str::to_owned).chain(members.clone())).ok();
        for line in ["vg create tank -s 12M", &format!("lv create tank/my-home -L {volume}")] {
            let backups = ["--backup-dir".to_owned(), tree.room.name("backups")];
            run(line.split_whitespace().map(str::to_owned).chain(backups).chain(members.clone())).ok();
        }
        for name in DRIVES {
            tree.drive(name);
        }
        for (file, value) in [
            ("md/level", "raid5"),
            ("md/raid_disks", "4"),
            ("md/chunk_size", "65536"),
            ("md/layout", "2"),
            ("md/metadata_version", "1.2"),
            ("md/component_size", "60416"),
            ("md/degraded", "0"),
            ("md/sync_action", "idle"),
            ("md/last_sync_action", "check"),
            ("md/mismatch_cnt", "0"),
            ("md/resync_start", "none"),
            ("md/consistency_policy", "ppl"),
            ("md/bitmap/location", "none"),
            ("md/stripe_cache_size", "4096"),
            ("md/stripe_cache_active", "0"),
            ("md/group_thread_cnt", "2"),
            ("queue/read_ahead_kb", "512"),
            ("size", "362496"),
        ] {
            tree.set(&format!("sys/block/md0/{file}"), value);
        }
        tree.set("sys/block/dm-0/dm/name", "tank-my--home");
        tree.set("sys/block/dm-0/dm/uuid", "LVM-of-the-group-and-the-volume");
        tree.set("sys/block/dm-0/queue/read_ahead_kb", "512");
        tree.set("proc/meminfo", "MemTotal:       16316412 kB\nMemFree:         1 kB");
        tree.set("proc/cpuinfo", &"processor\t: 0\nmodel name\t: a\n\n".repeat(4));
        tree.set(
            "proc/mounts",
            "/dev/mapper/tank-my--home /home xfs rw,noatime,attr2,logbufs=8,logbsize=32k 0 0",
        );
        tree.set(
            "etc/fstab",
            "# options\n/dev/tank/my-home /home xfs noatime 0 0\nproc /proc proc barrier=0 0 0",
        );
        tree.set("etc/mdadm/mdadm.conf", "# MAILADDR nobody\nMAILADDR root");
        tree.set("sys/module/raid456/parameters/devices_handle_discard_safely", "Y");
        tree
    }

    fn drive(&self, name: &str) {
        for (file, value) in [
            ("size", "131072"),
            ("queue/physical_block_size", "4096"),
            ("queue/rotational", "0"),
            ("queue/read_ahead_kb", "128"),
            ("queue/discard_max_bytes", "2147450880"),
            ("queue/zoned", "none"),
            ("device/model", "INTEL SSDSA2M080"),
            ("device/timeout", "30"),
            ("stat", "  2000 0 64000 400 2000 0 64000 440 0 900 840"),
        ] {
            self.set(&format!("sys/block/{name}/{file}"), value);
        }
        let state = if name == "sde" { "spare" } else { "in_sync" };
        self.set(&format!("sys/block/md0/md/dev-{name}/state"), state);
        self.set(&format!("sys/block/md0/md/dev-{name}/offset"), "2048");
    }

    pub fn set(&self, path: &str, value: &str) {
        let path = self.room.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{value}\n")).unwrap();
    }

    /// The same of every drive.
    pub fn set_all(&self, file: &str, value: &str) {
        DRIVES.iter().for_each(|name| self.set(&format!("sys/block/{name}/{file}"), value));
    }

    fn remove(&self, path: &str) {
        let path = self.room.path(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }

    fn members(&self) -> Vec<String> {
        DRIVES.map(|name| self.room.name(&format!("dev/{name}"))).to_vec()
    }

    fn run(&self, options: &[&str]) -> Said {
        let root = self.room.name("");
        let args = ["audit", "--json", "--fail-on", "never", "--sysroot", &root];
        run(args.iter().chain(options).copied())
    }

    pub fn audit(&self) -> Value {
        self.run(&["--workload", "rw=randwrite bs=4k"]).ok().json()
    }

    /// Exactly one finding, of that code, about that.
    #[track_caller]
    fn only(&self, code: &str, subject: &str, evidence: &[&str]) {
        let report = self.audit();
        assert_eq!(codes(&report), BTreeSet::from([code.to_owned()]), "{report:#}");
        let finding = &report["findings"][0];
        assert_eq!(finding["subject"], subject, "{finding:#}");
        for word in evidence {
            assert!(finding["evidence"].as_str().unwrap().contains(word), "{word}: {finding:#}");
        }
    }
}

pub fn codes(report: &Value) -> BTreeSet<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings.map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
}

fn unchecked(report: &Value) -> Vec<String> {
    let unchecked = report["unchecked"].as_array().unwrap().iter();
    unchecked.map(|un| format!("{}: {}", un["what"].as_str().unwrap(), un["why"].as_str().unwrap())).collect()
}

#[test]
fn a_clean_system_yields_nothing_and_leaves_nothing_unchecked() {
    let tree = Tree::new();
    let contents = || tree.members().iter().map(|name| fs::read(name).unwrap()).collect::<Vec<_>>();
    let before = contents();
    let report = tree.audit();
    assert!(contents() == before, "an audit never writes");
    assert_eq!(codes(&report), BTreeSet::new(), "{report:#}");
    assert_eq!(unchecked(&report), Vec::<String>::new());
}

#[test]
fn many_groups_for_few_processors_are_found() {
    if !require("mkfs.xfs") || !require("nbdcopy") {
        return;
    }
    let tree = Tree::sized(2048 * MIB, "5400M");
    let image = file_system(&tree.room, 5400 * MIB, "mkfs.xfs -q -f -d su=64k,sw=3,agsize=73792k");
    put(&tree.room, &tree.members(), "tank/my-home", &image);
    assert_eq!(codes(&tree.audit()), BTreeSet::new());
    tree.set("proc/cpuinfo", "processor\t: 0");
    tree.only("AUD-207", "tank/my-home", &["75 groups of", "1 processors"]);
}

/// Each is put back by the next tree; what costs time is making one.
#[test]
fn each_setting_that_is_wrong_is_found() {
    let tree = Tree::new();
    for (path, wrong, code, subject, evidence) in [
        (
            "sys/block/md0/queue/read_ahead_kb",
            "128",
            "AUD-501",
            "data",
            &["128 KiB", "3 x 64 KiB = 192 KiB"][..],
        ),
        ("sys/block/dm-0/queue/read_ahead_kb", "128", "AUD-502", "tank/my-home", &["128 KiB", "512 KiB"]),
        (
            "sys/block/md0/md/stripe_cache_size",
            "256",
            "AUD-503",
            "data",
            &["256 x 4 KiB x 4 members = 4 MiB"],
        ),
        ("sys/block/md0/md/stripe_cache_size", "524288", "AUD-504", "data", &["8 GiB"]),
        ("sys/block/md0/md/group_thread_cnt", "0", "AUD-506", "data", &["4 processors"]),
        ("sys/block/md0/md/mismatch_cnt", "128", "AUD-702", "data", &["mismatch_cnt is 128"]),
        ("sys/block/md0/md/last_sync_action", "none", "AUD-701", "data", &["none since"]),
        ("sys/block/sdb/stat", "2000 0 0 9000 2000 0 0 9000 0 0 0", "AUD-405", "sdb", &["4500 us", "210 us"]),
        ("sys/block/sdb/queue/discard_max_bytes", "0", "AUD-403", "data", &["sda takes", "sdb does not"]),
        ("sys/block/sdc/queue/rotational", "1", "AUD-404", "data", &["3 of its drives are SSDs, sdc"]),
        ("sys/block/sdc/queue/zoned", "host-managed", "AUD-402", "sdc", &["host-managed"]),
        ("sys/block/sdc/device/model", "WDC WD40EFAX-68J", "AUD-402", "sdc", &["WD40EFAX"]),
        ("sys/module/raid456/parameters/devices_handle_discard_safely", "N", "AUD-408", "data", &["is N"]),
        ("etc/mdadm/mdadm.conf", "ARRAY /dev/md0", "AUD-703", "mdadm.conf", &["MAILADDR"]),
        ("proc/mounts", "/dev/md0 /srv ext4 rw,nobarrier 0 0", "AUD-601", "/srv", &["nobarrier"]),
        ("proc/mounts", "/dev/md0 /srv ext4 rw,barrier=0 0 0", "AUD-601", "/srv", &["barrier=0"]),
        (
            "proc/mounts",
            "/dev/md0 /a\\040b ext4 rw,data=writeback 0 0",
            "AUD-602",
            "/a b",
            &["data=writeback"],
        ),
        ("etc/fstab", "/dev/md0 /srv xfs noatime,osyncisdsync 0 0", "AUD-603", "/srv", &["osyncisdsync"]),
        ("etc/fstab", "/dev/md0 /srv xfs ihashsize=8192 0 0", "AUD-603", "/srv", &["ihashsize"]),
        ("etc/fstab", "/dev/md0 /srv xfs logbufs=8 0 0", "AUD-604", "/srv", &["logbufs=8"]),
        ("etc/fstab", "/dev/md0 /srv ext4 noatime,nodiratime 0 0", "AUD-604", "/srv", &["nodiratime"]),
    ] {
        let before = fs::read_to_string(tree.room.path(path)).unwrap();
        tree.set(path, wrong);
        // A drive with a head among SSDs may try for minutes: that is said to be unknown.
        tree.only(code, subject, evidence);
        fs::write(tree.room.path(path), before).unwrap();
    }
}

/// The kernel counts in all three, and only a check leaves what it counted.
#[test]
fn what_a_repair_or_a_resync_wrote_is_no_mismatch_that_is_left() {
    let tree = Tree::new();
    tree.set("sys/block/md0/md/mismatch_cnt", "20480");
    for (last, left) in [("check", true), ("repair", false), ("resync", false)] {
        tree.set("sys/block/md0/md/last_sync_action", last);
        assert_eq!(codes(&tree.audit()).contains("AUD-702"), left, "{last}");
    }
}

/// What wattle does not serve its commands do not change.
#[test]
fn an_array_of_the_kernel_is_changed_with_its_tools() {
    let tree = Tree::new();
    tree.set("sys/block/sdb/stat", "2000 0 0 9000 2000 0 0 9000 0 0 0");
    let report = tree.audit();
    let fix = report["findings"][0]["fix"].as_str().unwrap();
    assert!(fix.contains("mdadm /dev/md0 --add NEW; mdadm /dev/md0 --replace /dev/sdb --with NEW"), "{fix}");
    tree.remove("dev");
    tree.set("sys/block/md0/md/degraded", "1");
    let report = tree.audit();
    let degraded = report["findings"].as_array().unwrap().iter().find(|finding| finding["code"] == "AUD-301");
    assert_eq!(degraded.unwrap()["fix"], "mdadm /dev/md0 --add DEVICE");
}

#[test]
fn what_a_rebuild_waits_for_is_found() {
    let tree = Tree::new();
    tree.set("sys/block/md0/md/sync_action", "check");
    tree.set("sys/block/md0/md/stripe_cache_active", "4096");
    tree.only("AUD-507", "data", &["check is under way with 4096 of 4096"]);
}

#[test]
fn a_drive_that_tries_longer_than_the_kernel_waits_is_found() {
    let tree = Tree::new();
    tree.set_all("queue/rotational", "1");
    let report = tree.audit();
    assert_eq!(codes(&report), BTreeSet::new(), "{report:#}");
    assert!(unchecked(&report)[0].contains("sda, sdb, sdc, sdd: only the drives say"), "{report:#}");
    let erc = |tenths: u64| {
        format!(
            "{{\"ata_sct_erc\": {{\"read\": {{\"enabled\": {}, \"deciseconds\": {tenths}}}}}}}",
            tenths > 0
        )
    };
    DRIVES.iter().for_each(|name| tree.set(&format!("smart/{name}.json"), &erc(70)));
    assert_eq!(codes(&tree.audit()), BTreeSet::new());
    assert_eq!(unchecked(&tree.audit()), Vec::<String>::new());
    tree.set("smart/sdb.json", &erc(0));
    tree.only("AUD-401", "sdb", &["off", "30 s"]);
    tree.set("smart/sdb.json", "{\"ata_sct_capabilities\": {\"error_recovery_control_supported\": false}}");
    tree.only("AUD-401", "sdb", &["no time limit", "30 s"]);
    tree.set("sys/block/sdb/device/timeout", "180");
    assert_eq!(codes(&tree.audit()), BTreeSet::new());
    tree.set("smart/sdc.json", &erc(1200));
    tree.only("AUD-401", "sdc", &["120.0 s", "30 s"]);
}

/// Without root, and in what was collected of a system: /sys says what the arrays are.
#[test]
fn arrays_are_known_by_the_kernel_where_drives_cannot_be_read() {
    let tree = Tree::new();
    tree.remove("dev");
    let report = tree.audit();
    assert_eq!(codes(&report), BTreeSet::new(), "{report:#}");
    let missed = unchecked(&report);
    for name in DRIVES {
        let what = |line: &String| line.contains(&format!("dev/{name}")) && line.contains("WTL-0020");
        assert!(missed.iter().any(what), "{missed:?}");
    }
    assert!(missed.iter().any(|line| line.starts_with("logical volumes: tank-my--home: ")), "{missed:?}");
    tree.set("sys/block/md0/md/degraded", "1");
    tree.only("AUD-301", "md0", &["1 of 4"]);
    tree.set("sys/block/md0/md/degraded", "0");
    tree.set("sys/block/md0/md/resync_start", "1024");
    tree.only("AUD-308", "md0", &["not finished"]);
    tree.set("sys/block/md0/md/resync_start", "none");
    tree.set("sys/block/md0/md/consistency_policy", "resync");
    let report = tree.audit();
    assert_eq!(codes(&report), BTreeSet::from(["AUD-304", "AUD-305"].map(str::to_owned)), "{report:#}");
    tree.set("sys/block/md0/md/consistency_policy", "ppl");

    // Members that are partitions, one of an old table.
    tree.set("sys/block/md0/md/dev-sdf1/state", "in_sync");
    tree.set("sys/block/md0/md/dev-sdf1/offset", "2048");
    tree.drive("sdf");
    tree.remove("sys/block/md0/md/dev-sdf");
    tree.set("sys/block/sdf/sdf1/start", "63");
    tree.set("sys/block/sdf/sdf1/size", "131009");
    tree.only("AUD-101", "sdf1", &["sector 63"]);
    // One that belongs to nothing is looked at as well.
    tree.set("sys/block/sdf/sdf1/start", "2048");
    tree.drive("sdg");
    tree.remove("sys/block/md0/md/dev-sdg");
    tree.set("sys/block/sdg/sdg2/start", "2049");
    tree.set("sys/block/sdg/sdg2/size", "8192");
    tree.only("AUD-102", "sdg2", &["sector 2049", "sdg writes blocks of 4 KiB"]);
}

/// Files of a dump from elsewhere may say anything.
#[test]
fn impossible_numbers_are_no_reason_to_panic() {
    let tree = Tree::new();
    tree.remove("dev");
    for number in ["18446744073709551615", "0", "-1", "many"] {
        for file in
            ["chunk_size", "component_size", "stripe_cache_size", "stripe_cache_active", "group_thread_cnt"]
        {
            tree.set(&format!("sys/block/md0/md/{file}"), number);
        }
        for file in ["degraded", "mismatch_cnt", "layout", "dev-sda/offset"] {
            tree.set(&format!("sys/block/md0/md/{file}"), number);
        }
        tree.set("sys/block/md0/md/sync_action", "recover");
        for file in ["size", "queue/physical_block_size", "queue/read_ahead_kb", "device/timeout"] {
            tree.set_all(file, number);
        }
        tree.set_all("queue/rotational", "1");
        tree.set_all("stat", &format!("{number} 0 0 {number} {number} 0 0 {number}"));
        tree.set("sys/block/md0/queue/read_ahead_kb", number);
        tree.set(
            "smart/sda.json",
            &format!("{{\"ata_sct_erc\": {{\"read\": {{\"enabled\": true, \"deciseconds\": {number}}}}}}}"),
        );
        tree.set("proc/meminfo", &format!("MemTotal: {number} kB"));
        for level in ["raid0", "raid1", "raid5", "raid6", "raid10", "linear", "faulty"] {
            tree.set("sys/block/md0/md/level", level);
            for slots in ["0", "1", "4", number] {
                tree.set("sys/block/md0/md/raid_disks", slots);
                assert_eq!(tree.audit()["schema_version"], 1);
            }
        }
    }
}

#[test]
fn a_system_that_says_nothing_is_an_error_or_is_said_to_be_unknown() {
    let room = Room::new();
    let root = room.name("");
    run(["audit", "--sysroot", &root]).failed(1, "WTL-0020", &["sys/block", "--sysroot DIR"]);
    let tree = Tree::new();
    for path in [
        "sys/block/md0/queue",
        "sys/block/md0/md/stripe_cache_size",
        "sys/block/sda/queue",
        "sys/block/sdb/stat",
        "proc",
        "etc",
    ] {
        tree.remove(path);
    }
    let report = tree.run(&[]).ok().json();
    assert_eq!(codes(&report), BTreeSet::new(), "{report:#}");
    let missed = unchecked(&report);
    for word in [
        "data: read-ahead",
        "data: its stripe cache",
        "data: whether a member is slower",
        "data: whether its chunk of 64 KiB fits",
        "alerts",
        "mount options",
    ] {
        assert!(missed.iter().any(|line| line.starts_with(word)), "{word}: {missed:#?}");
    }
    // An array that does not run has no settings.
    tree.remove("sys/block/md0");
    assert!(unchecked(&tree.audit()).iter().any(|line| line.contains("the kernel does not run it")));
}
