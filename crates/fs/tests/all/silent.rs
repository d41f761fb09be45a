//! Damage that ended a log, or hid what was newer, without a word: each is told now.

use crate::common;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::common::{entries, image, mounted, open, pattern, program, run};
use tempfile::TempDir;
use wattle_fs::{Error, FileSystem, Note, resolve};

const BLOCK_BYTES: usize = 4096;
const SECTOR: usize = 512;
const RECORD_MAGIC: [u8; 4] = [0xfe, 0xed, 0xba, 0xbe];

fn made(dir: &TempDir, make: &[&str], size_bytes: u64) -> Option<PathBuf> {
    let path = image(dir, "image", size_bytes);
    run(program(make[0]).args(&make[1..]).arg(&path))?;
    Some(path)
}

/// Files that are made durable one by one, and then the power goes.
fn cut_off(path: &Path, options: &str, files: u32, crashed: &Path) -> Option<()> {
    mounted(path, options, |at| {
        for number in 0..files {
            durable(&at.join(format!("file-{number:03}")), format!("{number}").as_bytes());
        }
        fs::copy(path, crashed).unwrap();
    })
}

fn durable(path: &Path, content: &[u8]) {
    let file = File::create(path).unwrap();
    file.write_all_at(content, 0).unwrap();
    file.sync_all().unwrap();
}

fn count(fs: &dyn FileSystem) -> usize {
    entries(fs, fs.root()).keys().filter(|name| name.starts_with(b"file-")).count()
}

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Where the log of an XFS is in its image.
fn xfs_log(bytes: &[u8]) -> std::ops::Range<usize> {
    let (start, group_log) = (number(bytes, 48, 8), bytes[124]);
    let block = (start >> group_log) * number(bytes, 84, 4) + (start & ((1 << group_log) - 1));
    let start = (block * number(bytes, 4, 4)) as usize;
    start..start + (number(bytes, 96, 4) * number(bytes, 4, 4)) as usize
}

/// A sector of the log that is lost does not end it in silence: where it is the first, where more
/// lies behind than can have been under way, and where what is in place is newer.
#[test]
fn an_xfs_log_that_ends_early_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = made(&dir, &["mkfs.xfs", "-q"], 320 << 20) else { return };
    let crashed = dir.path().join("crashed");
    if cut_off(&path, "loop", 60, &crashed).is_none() {
        return;
    }
    let whole = fs::read(&crashed).unwrap();
    let log = xfs_log(&whole);
    let records: Vec<usize> =
        log.clone().step_by(SECTOR).filter(|at| whole[*at..].starts_with(&RECORD_MAGIC)).collect();
    assert!(records.len() > 50, "{} records", records.len());
    let all = open(&crashed);
    assert_eq!((count(&*all), all.not_as_mounted()), (60, vec![]));
    let mut silent = Vec::new();
    for (what, at) in [
        ("the first sector", log.start),
        ("the first record since", records[2]),
        ("a record", records[20]),
        ("data of a record", records[25] + SECTOR),
        ("the ninth from the end", records[records.len() - 10]),
    ] {
        let mut bytes = whole.clone();
        bytes[at..at + SECTOR].fill(0);
        fs::write(&crashed, &bytes).unwrap();
        let fs = open(&crashed);
        eprintln!("{what}: {} files, {:?}", count(&*fs), fs.not_as_mounted());
        if count(&*fs) < 60 && fs.not_as_mounted().is_empty() {
            silent.push(what);
        }
    }
    assert!(silent.is_empty(), "{silent:?}");
}

/// A change of its permissions in the log does not make right a checksum that told of damage.
#[test]
fn a_damaged_inode_of_xfs_is_not_sealed_by_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = made(&dir, &["mkfs.xfs", "-q"], 320 << 20) else { return };
    let crashed = dir.path().join("crashed");
    let victim = pattern(1, 5000);
    let made = mounted(&path, "loop", |at| {
        durable(&at.join("victim"), &victim);
        durable(&at.join("other"), &pattern(2, 5000));
    });
    let changed = made.and_then(|()| {
        mounted(&path, "loop", |at| {
            let file = File::open(at.join("victim")).unwrap();
            file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
            file.sync_all().unwrap();
            fs::copy(&path, &crashed).unwrap();
        })
    });
    if changed.is_none() {
        return;
    }
    let content = |crashed: &Path| {
        let fs = open(crashed);
        let node = entries(&*fs, fs.root())[&b"victim"[..]];
        assert_eq!(fs.about().notes.len(), 1, "{:?}", fs.about().notes);
        fs.metadata(node).map(|metadata| (metadata.mode, common::read(&*fs, node, 0..u64::MAX, 5000).0))
    };
    assert_eq!(content(&crashed).unwrap(), (0o600, victim.clone()));
    let mut bytes = fs::read(&crashed).unwrap();
    let node = resolve(&*open(&crashed), b"/victim").unwrap();
    // The inode in its place has its number, and one extent: the low bits of its start.
    let is_inode = |at: &usize| bytes[*at..].starts_with(b"IN") && number(&bytes, at + 152, 8) == node.inode;
    let at = (0..bytes.len()).step_by(SECTOR).find(is_inode).unwrap();
    bytes[at + 176 + 12] ^= 1;
    fs::write(&crashed, &bytes).unwrap();
    let found = content(&crashed);
    assert!(matches!(found, Err(Error::Damaged { .. })), "{:?}", found.map(|(mode, _)| mode));
    // The other file is what it was.
    let fs = open(&crashed);
    let other = resolve(&*fs, b"/other").unwrap();
    assert_eq!(common::read(&*fs, other, 0..u64::MAX, 5000).0, pattern(2, 5000));
}

/// A block of the journal that is lost is not its end if later transactions are there.
#[test]
fn a_journal_of_ext4_that_ends_early_is_told() {
    let dir = tempfile::tempdir().unwrap();
    for (options, mount) in [
        ("metadata_csum", "loop,commit=300"),
        ("^metadata_csum", "loop,commit=300"),
        ("metadata_csum", "loop,commit=300,data=writeback,journal_async_commit"),
    ] {
        let make = ["mke2fs", "-qF", "-text4", "-b4096", "-Jsize=8", "-O", options];
        let Some(path) = made(&dir, &make, 64 << 20) else { return };
        let crashed = dir.path().join("crashed");
        if cut_off(&path, mount, 12, &crashed).is_none() {
            return;
        }
        let whole = fs::read(&crashed).unwrap();
        let blocks = |kind: u8| {
            let magic = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, kind];
            let is_it = |at: &usize| whole[*at..].starts_with(&magic);
            (0..whole.len()).step_by(BLOCK_BYTES).filter(is_it).collect::<Vec<_>>()
        };
        let (descriptors, commits) = (blocks(1), blocks(2));
        assert!(commits.len() >= 12, "{} commits", commits.len());
        let all = open(&crashed);
        assert_eq!((count(&*all), all.not_as_mounted()), (12, vec![]), "{mount}");
        let last = commits.len() - 1;
        for (what, at, is_told) in [
            ("the first descriptor", descriptors[0], true),
            ("a descriptor", descriptors[5], true),
            ("a commit", commits[5], true),
            // Nothing says that the last transaction was ever whole.
            ("the last commit", commits[last], false),
        ] {
            let mut bytes = whole.clone();
            bytes[at..at + BLOCK_BYTES].fill(0);
            fs::write(&crashed, &bytes).unwrap();
            let fs = open(&crashed);
            let notes = fs.not_as_mounted();
            eprintln!("{what}, {options}, {mount}: {} files, {notes:?}", count(&*fs));
            assert!(count(&*fs) < 12, "{what}");
            assert_eq!(!notes.is_empty(), is_told, "{what}, {options}, {mount}: {notes:?}");
        }
    }
}

/// Only the first superblock of btrfs names the log: where a copy is used, that is told.
#[test]
fn a_copy_of_the_superblock_of_btrfs_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = made(&dir, &["mkfs.btrfs", "-q"], 256 << 20) else { return };
    let crashed = dir.path().join("crashed");
    if cut_off(&path, "loop,commit=300", 5, &crashed).is_none() {
        return;
    }
    let all = open(&crashed);
    assert_eq!((count(&*all), all.not_as_mounted()), (5, vec![]));
    let file = File::options().write(true).open(&crashed).unwrap();
    file.write_all_at(b"damage", 65536 + 300).unwrap();
    let fs = open(&crashed);
    assert!(count(&*fs) < 5);
    assert!(matches!(fs.not_as_mounted()[..], [Note::SuperblockCopy { .. }]), "{:?}", fs.not_as_mounted());
}

/// Data of a file with checksums that has none is not handed on: Linux does not read it either.
#[test]
fn data_of_btrfs_whose_checksum_is_missing_is_damage() {
    const CSUM_TREE: u64 = 7;
    let (dir, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let data = pattern(3, 50_000);
    fs::write(tree.path().join("file"), &data).unwrap();
    let from = tree.path().to_str().unwrap();
    let Some(path) = made(&dir, &["mkfs.btrfs", "-q", "--rootdir", from], 128 << 20) else { return };
    let content = |path: &Path| {
        let fs = open(path);
        let node = resolve(&*fs, b"/file").unwrap();
        let mut found = vec![0; data.len()];
        let read = fs.read(node, 0..u64::MAX, &mut |offset, bytes| {
            found[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
            Ok(())
        });
        read.map(|()| found)
    };
    assert!(content(&path).unwrap() == data);
    let mut bytes = fs::read(&path).unwrap();
    let uuid = bytes[65536 + 32..65536 + 48].to_vec();
    let little = |bytes: &[u8], at: usize, len: usize| {
        bytes[at..at + len].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let node_bytes = little(&bytes, 65536 + 148, 4) as usize;
    for at in (0..bytes.len() - node_bytes).step_by(BLOCK_BYTES).filter(|at| *at != 65536) {
        if bytes[at + 32..at + 48] == uuid && little(&bytes, at + 88, 8) == CSUM_TREE {
            bytes[at + 96..at + 100].fill(0);
            let sum = crc32c::crc32c(&bytes[at + 32..at + node_bytes]);
            bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        }
    }
    fs::write(&path, &bytes).unwrap();
    let found = content(&path);
    assert!(
        matches!(&found, Err(Error::Damaged { what, .. }) if what.contains("missing")),
        "{:?}",
        found.err()
    );
}

/// Of a damaged part of a map it is told how far it reaches, and what follows can be read.
#[test]
fn a_damaged_part_of_a_map_has_an_end() {
    const SIZE: u64 = 1 << 40;
    let dir = tempfile::tempdir().unwrap();
    for make in [&["mke2fs", "-qF", "-text4", "-b4096"][..], &["mkfs.xfs", "-q"]] {
        let Some(path) = made(&dir, make, 320 << 20) else { return };
        let written = mounted(&path, "loop", |at| {
            let file = File::create(at.join("sparse")).unwrap();
            file.set_len(SIZE).unwrap();
            // More extents than one node has.
            for piece in 0..600 {
                file.write_all_at(&[b'a'; BLOCK_BYTES], piece << 30).unwrap();
            }
            file.sync_all().unwrap();
        });
        if written.is_none() {
            return;
        }
        let mut bytes = fs::read(&path).unwrap();
        // A leaf starts with its magic number, its entries and its level; the first one is spoilt.
        let is_leaf = |at: &usize| match make[0] {
            "mkfs.xfs" => bytes[*at..].starts_with(b"BMA3") && bytes[at + 4..at + 6] == [0, 0],
            _ => {
                bytes[*at..].starts_with(&[0x0a, 0xf3])
                    && bytes[at + 6..at + 8] == [0, 0]
                    && bytes[at + 12..at + 16] == [0; 4]
            }
        };
        // The journal of ext4 has it, too.
        let is_first = |at: &usize| make[0] != "mkfs.xfs" || number(&bytes, at + 72, 8) >> 9 == 0;
        let leaves = (0..bytes.len()).step_by(BLOCK_BYTES).filter(is_leaf).filter(is_first);
        for leaf in leaves.collect::<Vec<_>>() {
            bytes[leaf + 200] ^= 1;
        }
        fs::write(&path, &bytes).unwrap();
        let fs = open(&path);
        let node = resolve(&*fs, b"/sparse").unwrap();
        let damage = fs.read(node, 0..4096, &mut |_, _| Ok(())).unwrap_err();
        let Error::MapPart { to, .. } = damage else { panic!("{make:?}: {damage}") };
        assert!(to > 1 << 30 && to < 600 << 30, "{make:?}: {to}");
        assert!(fs.read(node, to - 4096..to, &mut |_, _| Ok(())).is_err(), "{make:?}");
        let mut seen = 0;
        fs.read(node, to..u64::MAX, &mut |_, bytes| {
            seen += bytes.len();
            Ok(())
        })
        .unwrap();
        assert!(seen > 0 && seen < 600 * BLOCK_BYTES, "{make:?}: {seen}");
    }
}
