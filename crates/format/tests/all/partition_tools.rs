//! Tables that sfdisk, sgdisk, fdisk and parted wrote, against what sfdisk reads in them. A tool
//! that is missing fails in CI and is skipped elsewhere.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use wattle_format::partition::{PartitionTable, PartitionType, TableProblem, decode};

const SIZE_BYTES: u64 = 256 << 20;

struct Image {
    _dir: tempfile::TempDir,
    path: PathBuf,
    /// What the drive is to have had.
    sector_bytes: u32,
}

impl Image {
    fn new(sector_bytes: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.img");
        File::create(&path).unwrap().set_len(SIZE_BYTES).unwrap();
        Self { _dir: dir, path, sector_bytes }
    }

    fn table(&self, sector_bytes: u32) -> PartitionTable {
        let file = File::open(&self.path).unwrap();
        let size_bytes = file.metadata().unwrap().len();
        let table = decode(size_bytes, sector_bytes, |at, len| {
            let mut bytes = vec![0; len];
            file.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
        });
        table.unwrap()
    }
}

/// Runs a tool, with what it reads from stdin; `IMAGE` among the arguments is the image. `None` if
/// it is not installed.
fn run(image: &Image, line: &str, stdin: &str) -> Option<Vec<u8>> {
    let mut words = line.split(' ');
    let tool = words.next().unwrap();
    let args = words.map(|word| if word == "IMAGE" { image.path.as_os_str() } else { OsStr::new(word) });
    let command = Command::new(tool)
        .args(args)
        .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))
        .env("PARTED_SECTOR_SIZE", image.sector_bytes.to_string())
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = command else {
        assert!(std::env::var_os("CI").is_none(), "{tool} is not installed, and this is CI");
        eprintln!("{tool} is not installed: skipped");
        return None;
    };
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    Some(output.stdout)
}

/// Everything sfdisk says of the table is what was decoded.
fn compare(image: &Image, table: &PartitionTable) {
    let Some(json) = run(image, "sfdisk --json IMAGE", "") else { return };
    let theirs: Value = serde_json::from_slice(&json).unwrap();
    let theirs = &theirs["partitiontable"];
    let text = |value: &Value| value.as_str().map(|text| text.trim_start_matches("0x").to_lowercase());
    assert_eq!(table.uuid, text(&theirs["id"]));
    let partitions = theirs["partitions"].as_array().cloned().unwrap_or_default();
    assert_eq!(table.partitions.len(), partitions.len());
    for (ours, theirs) in table.partitions.iter().zip(&partitions) {
        let node = theirs["node"].as_str().unwrap();
        assert!(node.ends_with(&format!("img{}", ours.number)), "{node}");
        assert_eq!(ours.start_sectors, theirs["start"].as_u64().unwrap(), "{node}");
        assert_eq!(ours.len_sectors, theirs["size"].as_u64().unwrap(), "{node}");
        assert_eq!(ours.name.as_deref(), theirs["name"].as_str(), "{node}");
        match ours.kind {
            PartitionType::Mbr(byte) => {
                assert_eq!(Some(format!("{byte:x}")), text(&theirs["type"]), "{node}");
            }
            PartitionType::Gpt(guid) => {
                assert_eq!(Some(guid.to_string()), text(&theirs["type"]), "{node}");
                assert_eq!(ours.uuid, text(&theirs["uuid"]), "{node}");
            }
        }
        assert_eq!(ours.fault, None, "{node}");
    }
}

fn names(table: &PartitionTable) -> Vec<&'static str> {
    table.partitions.iter().filter_map(|partition| partition.kind.name()).collect()
}

#[test]
fn sfdisk_mbr_with_logical_partitions() {
    let image = Image::new(512);
    let script = "label: dos\nlabel-id: 0x1234abcd\nstart=2048,size=2048,type=fd\nstart=4096,size=204800,type=5\n\
        start=300000,size=2000,type=82\nstart=6144,size=2048,type=8e\nstart=10240,size=2048,type=83,bootable\n\
        start=20480,size=4096,type=fd\n";
    if run(&image, "sfdisk --quiet IMAGE", script).is_none() {
        return;
    }
    let table = image.table(512);
    compare(&image, &table);
    assert_eq!((table.partitions.len(), table.problems.len()), (6, 0));
    assert_eq!(table.partitions.iter().filter(|partition| partition.flags == 0x80).count(), 1);
    // When the first logical partition goes, the others move up by one number, as in Linux.
    run(&image, "sfdisk --quiet --delete IMAGE 5", "");
    let after = image.table(512);
    compare(&image, &after);
    let starts = |table: &PartitionTable| -> Vec<_> {
        table
            .partitions
            .iter()
            .filter(|part| part.number > 4)
            .map(|part| (part.number, part.start_sectors))
            .collect()
    };
    assert_eq!(starts(&table), [(5, 6144), (6, 10240), (7, 20480)]);
    assert_eq!(starts(&after), [(5, 10240), (6, 20480)]);
}

#[test]
fn parted_mbr() {
    let image = Image::new(512);
    let line = "parted --script IMAGE mklabel msdos mkpart primary 1MiB 10MiB mkpart extended 10MiB 200MiB \
        mkpart logical 11MiB 50MiB mkpart logical 60MiB 90MiB set 5 raid on set 6 lvm on";
    if run(&image, line, "").is_none() {
        return;
    }
    let table = image.table(512);
    compare(&image, &table);
    assert_eq!(names(&table), ["Linux", "extended", "Linux RAID", "Linux LVM"]);
}

#[test]
fn sgdisk_gpt() {
    let image = Image::new(512);
    let line = "sgdisk -n1:2048:+1M -t1:fd00 -c1:räid -n2:0:+10M -t2:8e00 -A2:set:2 -n7:0:+4M -t7:8200 -n9:0:0 \
        -t9:ef00 IMAGE";
    if run(&image, line, "").is_none() {
        return;
    }
    let table = image.table(512);
    compare(&image, &table);
    assert_eq!(names(&table), ["Linux RAID", "Linux LVM", "Linux swap", "EFI system"]);
    assert_eq!((table.problems, table.partitions[1].flags), (vec![], 4));

    // Entries beyond the usual 128 need room before the first partition and after the last.
    run(&image, "sgdisk -d9 -n9:0:-4M --resize-table=256 IMAGE", "");
    let table = image.table(512);
    compare(&image, &table);
    assert_eq!((table.partitions.len(), table.problems), (4, vec![]));

    run(&image, "sgdisk --hybrid=1:2 IMAGE", "");
    let table = image.table(512);
    assert_eq!(table.partitions.len(), 4);
    assert_eq!(table.problems, [TableProblem::Hybrid { partitions: 2 }]);

    File::options().write(true).open(&image.path).unwrap().set_len(2 * SIZE_BYTES).unwrap();
    let (at_bytes, size_bytes) = (SIZE_BYTES - 512, 2 * SIZE_BYTES);
    assert_eq!(image.table(512).problems[0], TableProblem::BackupNotAtEnd { at_bytes, size_bytes });
    run(&image, "sgdisk --move-second-header IMAGE", "");
    assert_eq!(image.table(512).problems, [TableProblem::Hybrid { partitions: 2 }]);
}

#[test]
fn large_sectors() {
    for line in
        ["parted --script IMAGE mklabel gpt mkpart one 1MiB 9MiB set 1 raid on", "fdisk -b 4096 IMAGE"]
    {
        let image = Image::new(4096);
        if run(&image, line, "g\nn\n\n\n+8M\nt\nraid\nw\n").is_none() {
            continue;
        }
        for device_bytes in [512, 4096] {
            let table = image.table(device_bytes);
            let part = &table.partitions[0];
            let place = (table.sector_bytes, part.start_sectors, part.len_sectors, part.is_usable());
            assert_eq!(place, (4096, 2048, 16384, true), "{line}");
            assert_eq!(names(&table), ["Linux RAID"], "{line}");
        }
    }
}
