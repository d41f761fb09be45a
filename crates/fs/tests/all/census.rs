//! How files and free space lie, against what the tools of the file systems say of the same images:
//! `xfs_db`, `e2freefrag`, `filefrag`, `e4defrag`.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use crate::common::{Image, image, mounted, pattern, program, run};
use tempfile::TempDir;
use wattle_fs::{CensusLimits, ExtentTally, FileSystemCensus};

const ALL: CensusLimits = CensusLimits { inodes: u64::MAX, records: u64::MAX };

fn census(path: &Path, limits: CensusLimits) -> FileSystemCensus {
    let census = wattle_fs::census(Box::new(Image::open(path)), limits).unwrap();
    assert_eq!((census.damaged, &census.damage), (0, &None));
    census
}

/// What a program of the administrator says. It is part of the packages that made the image.
fn said(name: &str, args: &[&str], path: &Path) -> String {
    let output = program(name).args(args).arg(path).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The number behind a word.
fn number(text: &str, word: &str) -> u64 {
    let rest = text.split_once(word).map(|(_, rest)| rest).unwrap_or_else(|| panic!("{word}: {text}"));
    let digits: String =
        rest.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

fn sync(at: &Path) {
    run(program("sync").arg("-f").arg(at)).unwrap();
}

/// Files in many pieces: by writing them by turns, by holes, by freeing what lies between others;
/// and free space in many pieces.
fn fragment(at: &Path, seed: u64) {
    let write = |name: &str, offset: u64, len: usize| {
        let file = File::options().create(true).truncate(false).write(true).open(at.join(name)).unwrap();
        file.write_all_at(&pattern(seed ^ offset, len), offset).unwrap();
        file.sync_data().unwrap();
    };
    for turn in 0..25 {
        for name in ["a", "b", "c"] {
            write(name, turn * 40_960, 40_960);
        }
    }
    (0..30).for_each(|ix| write("holes", ix * 24_576, 8192));
    (0..400).for_each(|ix| fs::write(at.join(format!("small-{ix}")), pattern(ix, 9000)).unwrap());
    sync(at);
    (0..400).step_by(3).for_each(|ix| fs::remove_file(at.join(format!("small-{ix}"))).unwrap());
    sync(at);
    let fallocate = |args: &[&str], name: &str| {
        run(program("fallocate").args(args).arg(at.join(name))).unwrap();
    };
    fallocate(&["-l", "3M"], "unwritten");
    fallocate(&["-l", "3M"], "partly-written");
    write("partly-written", 1 << 20, 200_000);
    write("beyond-its-end", 0, 5000);
    fallocate(&["-n", "-l", "1M"], "beyond-its-end");
    write("large", 0, 20 << 20);
    sync(at);
    fallocate(&["-p", "-o", "1M", "-l", "64K"], "large");
    fallocate(&["-p", "-o", "8M", "-l", "1M"], "large");
    fs::create_dir(at.join("directory")).unwrap();
    for ix in 0..2500 {
        File::create(at.join("directory").join(format!("{ix}-{}", "n".repeat(60)))).unwrap();
        if ix % 500 == 0 {
            write("directory-beside", ix * 4096, 4096);
        }
    }
    symlink("t".repeat(900), at.join("link")).unwrap();
    // ext4 has no space for as many as XFS.
    let attributes = "import os, sys\nfor ix in range(1, 8):\n try: os.setxattr(sys.argv[1], f'user.{ix}', b'v' * 300 * ix)\n except OSError: pass";
    run(program("python3").args(["-c", attributes]).arg(at.join("a")));
    sync(at);
}

fn xfs(dir: &TempDir, options: &[&str], size: u64) -> Option<PathBuf> {
    let path = image(dir, "image", size);
    run(program("mkfs.xfs").args(["-q", "-f"]).args(options).arg(&path))?;
    Some(path)
}

fn assert_as_xfs_db(path: &Path) -> FileSystemCensus {
    let census = census(path, ALL);
    assert!(census.complete && census.free.complete && census.inodes == census.inodes_seen, "{census:?}");
    let same = |tally: ExtentTally, command: &str| {
        let text = said("xfs_db", &["-r", "-c", command], path);
        let expected = (number(&text, "actual"), number(&text, "ideal"));
        assert_eq!((tally.extents, tally.ideal), expected, "{command}: {text}{census:#?}");
    };
    same(census.all(), "frag");
    same(census.files, "frag -f");
    same(census.directories, "frag -d");
    let text = said("xfs_db", &["-r", "-c", "freesp -s"], path);
    // Its free lists count there as runs of a block.
    let listed: u64 = (0..census.groups_used.len())
        .map(|ix| {
            number(&said("xfs_db", &["-r", "-c", &format!("agf {ix}"), "-c", "p flcount"], path), "flcount")
        })
        .sum();
    assert_eq!(census.free.extents + listed, number(&text, "total free extents"), "{text}");
    census
}

#[test]
fn xfs_is_as_fragmented_as_xfs_db_says() {
    let dir = tempfile::tempdir().unwrap();
    for (seed, options) in [
        &[][..],
        &["-m", "crc=0"],
        &["-b", "size=1024", "-m", "rmapbt=1", "-d", "agcount=7"],
        &["-m", "crc=0", "-b", "size=512", "-i", "size=256"],
        &["-i", "nrext64=1,size=2048", "-n", "size=8192"],
        &["-m", "finobt=0,rmapbt=0,reflink=0", "-i", "sparse=0", "-d", "su=64k,sw=3"],
    ]
    .into_iter()
    .enumerate()
    {
        let Some(path) = xfs(&dir, options, 320 << 20) else { return };
        assert_as_xfs_db(&path);
        if mounted(&path, "loop,allocsize=4k", |at| fragment(at, seed as u64)).is_none() {
            return;
        }
        let census = assert_as_xfs_db(&path);
        assert!(census.files.fragmented >= 4 && census.files.extents > 150, "{options:?}: {census:#?}");
        assert!(census.others.extents > 0 && census.directories.extents > 1, "{options:?}: {census:#?}");
        assert!(census.groups_used.iter().any(|used| *used), "{options:?}");
    }
}

/// One extent has less than 2^21 blocks, whatever lies beside it.
#[test]
fn what_is_longer_than_an_extent_needs_several() {
    let dir = tempfile::tempdir().unwrap();
    let options = ["-m", "crc=0", "-b", "size=512", "-i", "size=256", "-d", "agcount=2"];
    let Some(path) = xfs(&dir, &options, 5 << 30) else { return };
    let written = mounted(&path, "loop", |at| {
        run(program("fallocate").args(["-l", "2300M"]).arg(at.join("long"))).unwrap();
    });
    if written.is_some() {
        let census = assert_as_xfs_db(&path);
        assert_eq!((census.files.ideal, census.files.pieces), (3, 1), "{census:#?}");
    }
}

/// The pieces of every regular file, as `filefrag` counts them.
fn pieces(at: &Path) -> u64 {
    let files = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.is_file() && !path.is_symlink());
    let output = program("filefrag").args(files).output().unwrap();
    assert!(output.status.success(), "filefrag: {}", String::from_utf8_lossy(&output.stderr));
    // `PATH: 7 extents found`
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| number(line.rsplit(": ").next().unwrap(), "")).sum()
}

/// Whether free space is as `e2freefrag` says: numbers, and every line of its table.
fn assert_as_e2freefrag(path: &Path, census: &FileSystemCensus, clusters: bool) {
    let text = said("e2freefrag", &[], path);
    let free = &census.free;
    assert!(free.complete);
    let block = number(&text, "Blocksize:");
    assert_eq!(free.bytes, number(&text, "Free blocks:") * block, "{text}{free:#?}");
    // What it says of runs of clusters does not add up to that.
    if clusters {
        return;
    }
    assert_eq!(free.extents, number(&text, "Num. free extent:"), "{text}{free:#?}");
    assert_eq!(free.largest >> 10, number(&text, "Max. free extent:"), "{text}{free:#?}");
    assert_eq!(free.smallest >> 10, number(&text, "Min. free extent:"), "{text}{free:#?}");
    // In whole blocks.
    let average = free.bytes / block / free.extents.max(1) * block;
    assert_eq!(average >> 10, number(&text, "Avg. free extent:"), "{text}{free:#?}");
    let size = |text: &str| {
        let (digits, unit) =
            text.trim_end_matches(['.', '-']).split_at(text.trim_end_matches(['.', '-']).len() - 1);
        digits.parse::<u64>().unwrap()
            << match unit {
                "K" => 10,
                "M" => 20,
                "G" => 30,
                _ => panic!("{text}"),
            }
    };
    let mut classes = free.classes.clone();
    for line in text.lines().skip_while(|line| !line.starts_with("Extent Size Range")).skip(1) {
        let words: Vec<_> = line.split_whitespace().collect();
        let [from, _, ":", extents, blocks, _] = words[..] else { panic!("{line}") };
        let class = classes.remove(&(size(from).ilog2() as u8)).unwrap_or_else(|| panic!("{line} {free:#?}"));
        let expected = (extents.parse().unwrap(), blocks.parse::<u64>().unwrap() * block);
        assert_eq!((class.extents, class.bytes), expected, "{line}");
    }
    assert!(classes.is_empty(), "{classes:?} {text}");
}

fn ext(dir: &TempDir, options: &[&str], size: u64) -> Option<PathBuf> {
    let path = image(dir, "image", size);
    run(program("mke2fs").args(["-q", "-F"]).args(options).arg(&path))?;
    Some(path)
}

#[test]
fn ext4_is_as_fragmented_as_its_tools_say() {
    let dir = tempfile::tempdir().unwrap();
    for (seed, options) in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-b", "4096", "-O", "^flex_bg,^metadata_csum,^64bit"],
        &["-t", "ext4", "-b", "1024", "-O", "^flex_bg,uninit_bg,^metadata_csum"],
        &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"],
        &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode,^flex_bg"],
        &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "8192"],
        &["-t", "ext4", "-b", "1024", "-O", "sparse_super2", "-G", "4"],
        &["-t", "ext4", "-O", "inline_data,quota", "-I", "512"],
    ]
    .into_iter()
    .enumerate()
    {
        let Some(path) = ext(&dir, options, 300 << 20) else { return };
        let clusters = options.contains(&"bigalloc");
        assert_as_e2freefrag(&path, &census(&path, ALL), clusters);
        if mounted(&path, "loop", |at| fragment(at, seed as u64)).is_none() {
            return;
        }
        let census = census(&path, ALL);
        assert!(census.complete && census.inodes == census.inodes_seen, "{census:?}");
        assert!(census.files.fragmented >= 4 && census.groups_used.iter().any(|used| *used), "{census:#?}");
        assert_as_e2freefrag(&path, &census, clusters);
        let (mut expected, mut defrag) = (0, String::new());
        mounted(&path, "loop,ro", |at| expected = pieces(at)).unwrap();
        assert_eq!(census.files.pieces, expected, "{options:?}: {census:#?}");
        mounted(&path, "loop", |at| defrag = said("e4defrag", &["-c"], at)).unwrap();
        let totals = defrag.lines().find(|line| line.contains("Total/best extents")).unwrap();
        let (now, best) = totals.split_whitespace().last().unwrap().split_once('/').unwrap();
        let expected = (now.parse().unwrap(), best.parse().unwrap());
        assert_eq!((census.files.extents, census.files.ideal), expected, "{options:?}: {defrag}");
    }
}

/// ext3's files have no extents; free space is the same thing.
#[test]
fn free_space_of_ext2_and_ext3_is_as_e2freefrag_says() {
    let dir = tempfile::tempdir().unwrap();
    for options in [&["-t", "ext2"][..], &["-t", "ext3", "-b", "1024"], &["-t", "ext2", "-r", "0"]] {
        let Some(path) = ext(&dir, options, 100 << 20) else { return };
        assert_as_e2freefrag(&path, &census(&path, ALL), false);
    }
}

/// Each group gives its share, and the census says that it is not all.
#[test]
fn a_census_that_stops_early_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = xfs(&dir, &["-d", "agcount=4"], 320 << 20) else { return };
    let written = mounted(&path, "loop", |at| {
        for group in 0..8 {
            let dir = at.join(format!("dir-{group}"));
            fs::create_dir(&dir).unwrap();
            (0..100).for_each(|ix| fs::write(dir.join(ix.to_string()), pattern(ix, 5000)).unwrap());
        }
    });
    if written.is_none() {
        return;
    }
    let whole = census(&path, ALL);
    assert!(whole.complete && whole.files.forks == 800, "{whole:#?}");
    let part = census(&path, CensusLimits { inodes: 200, records: u64::MAX });
    assert!(!part.complete && (100..=200).contains(&part.inodes_seen), "{part:#?}");
    assert_eq!((part.inodes, &part.free), (whole.inodes, &whole.free));
    assert_eq!(part.groups_used, whole.groups_used, "each group was looked at");
    let short = census(&path, CensusLimits { inodes: u64::MAX, records: 100 });
    assert!(!short.complete && short.files.forks < 100, "{short:#?}");
    let none = census(&path, CensusLimits { inodes: u64::MAX, records: 2 });
    assert!(!none.complete && !none.free.complete, "{none:#?}");
}
