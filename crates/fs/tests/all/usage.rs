//! How full file systems are, beside what Linux says of them while they are mounted.

use std::fs;
use std::path::Path;

use crate::common::{Image, image, mounted, pattern, program, run};
use wattle_fs::FileSystemUsage;

const MIB: u64 = 1 << 20;

fn usage(path: &Path) -> FileSystemUsage {
    wattle_fs::usage(Box::new(Image::open(path))).unwrap()
}

/// Makes one, fills it, and compares what df(1) says: `while_mounted` where Linux writes the
/// counts with a sync; it writes XFS's heads later. What it holds back for structures of its own is
/// `slack` bytes at most.
fn compare(make: &str, options: &[&str], kind: &str, while_mounted: bool, slack: u64) {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir, "image", 512 * MIB);
    if run(program(make).args(options).arg(&path)).is_none() {
        return;
    }
    let empty = usage(&path);
    assert!(empty.kind == kind && empty.percent() < 12, "{empty:?}");
    let mut df = None;
    let ran = mounted(&path, "loop", |at| {
        for ix in 0..70_u64 {
            fs::write(at.join(format!("file-{ix}")), pattern(ix, 5 * MIB as usize)).unwrap();
        }
        run(program("sync").arg("-f").arg(at)).unwrap();
        let said = program("df").args(["--output=used,avail", "-B1"]).arg(at).output().unwrap();
        let text = String::from_utf8(said.stdout).unwrap();
        let figures: Vec<u64> =
            text.lines().last().unwrap().split_whitespace().map(|figure| figure.parse().unwrap()).collect();
        let [used_bytes, free_bytes] = figures[..] else { panic!("{text}") };
        df = Some(FileSystemUsage { kind: empty.kind, used_bytes, free_bytes });
        if while_mounted {
            near(usage(&path), df.unwrap(), slack);
        }
    });
    if ran.is_some() {
        near(usage(&path), df.unwrap(), slack);
    }
}

#[track_caller]
fn near(found: FileSystemUsage, df: FileSystemUsage, slack: u64) {
    assert!(found.percent() > 60, "{found:?}");
    assert!(found.used_bytes.abs_diff(df.used_bytes) <= slack, "{found:?}, df: {df:?}");
    assert!(found.free_bytes.abs_diff(df.free_bytes) <= slack, "{found:?}, df: {df:?}");
}

#[test]
fn ext4_is_as_full_as_df_says_while_it_is_mounted() {
    compare("mke2fs", &["-q", "-t", "ext4"], "ext4", true, 12 * MIB);
}

#[test]
fn ext2_is_as_full_as_df_says_while_it_is_mounted() {
    compare("mke2fs", &["-q", "-t", "ext2", "-b", "1024"], "ext2", true, 2 * MIB);
}

#[test]
fn clusters_and_reserved_blocks_are_counted() {
    compare(
        "mke2fs",
        &["-q", "-t", "ext4", "-O", "bigalloc", "-C", "65536", "-m", "10"],
        "ext4",
        true,
        12 * MIB,
    );
}

#[test]
fn xfs_is_as_full_as_df_says() {
    compare("mkfs.xfs", &["-q"], "xfs", false, 32 * MIB);
    compare("mkfs.xfs", &["-q", "-m", "crc=0"], "xfs", false, 16 * MIB);
}

#[test]
fn btrfs_is_as_full_as_df_says_while_it_is_mounted() {
    compare("mkfs.btrfs", &["-q", "-m", "single"], "btrfs", true, 16 * MIB);
}

#[test]
fn what_is_no_file_system_is_not_recognised() {
    let empty = wattle_fs::usage(Box::new(vec![0; 1 << 20]));
    assert!(matches!(empty, Err(wattle_fs::Error::Unrecognised)), "{empty:?}");
}
