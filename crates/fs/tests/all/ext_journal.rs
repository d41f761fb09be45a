//! Journals that the kernel left when it was cut off: fast commits, and damage in the middle.

use crate::common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::common::work::{Work, copy};
use crate::common::{Except, assert_same_at_least, entries, image, mounted, open, program, run};
use tempfile::TempDir;
use wattle_fs::Note;

const BLOCK_BYTES: usize = 4096;

fn made(dir: &TempDir, options: &[&str]) -> Option<PathBuf> {
    let path = image(dir, "image", 64 << 20);
    run(program("mke2fs").args(["-q", "-F", "-t", "ext4", "-b", "4096"]).args(options).arg(&path))?;
    Some(path)
}

/// What comes out of images that were cut off is what Linux shows of them: names, links, sizes,
/// contents.
#[test]
fn fast_commits_are_applied_as_a_mount_would() {
    let dir = tempfile::tempdir().unwrap();
    let (mut cuts, mut fast, mut refused) = (0, 0, 0);
    for seed in 1..=12 {
        let (checksums, journal) = match seed % 3 {
            0 => ("fast_commit,^metadata_csum", "size=8"),
            1 => ("fast_commit", "size=16"),
            _ => ("fast_commit,64bit", "size=16,fast_commit_size=512"),
        };
        let Some(path) = made(&dir, &["-I", "256", "-O", checksums, "-J", journal]) else { return };
        let crashed: Vec<_> = (0..3).map(|cut| dir.path().join(format!("crashed-{cut}"))).collect();
        let worked = mounted(&path, "loop,commit=300", |at| {
            let mut work = Work::new(at, seed);
            (0..20).for_each(|_| work.step());
            run(program("sync").arg("-f").arg(at)).unwrap();
            for crashed in &crashed {
                let steps = 1 + work.dice.below(12);
                for _ in 0..steps {
                    work.step();
                    work.sync();
                }
                copy(&path, crashed);
            }
        });
        if worked.is_none() {
            return;
        }
        for (cut, crashed) in crashed.iter().enumerate() {
            let replayed = dir.path().join("replayed");
            copy(crashed, &replayed);
            let fs = open(crashed);
            assert_eq!(fs.not_as_mounted(), [], "seed {seed}, cut {cut}");
            let is_fast = |note: &Note| matches!(note, Note::FastCommitsApplied { .. });
            fast += u32::from(fs.about().notes.iter().any(is_fast));
            cuts += 1;
            eprintln!("seed {seed}, cut {cut}: {:?}", fs.about().notes);
            let compared = mounted(&replayed, "loop", |at| {
                let except = Except { times_of_directories: true, ..Except::default() };
                assert_same_at_least(&*fs, at, except, 5);
            });
            refused += u32::from(compared.is_none());
        }
    }
    // Linux 6.18 refuses some of what it wrote itself.
    assert!(refused * 10 < cuts, "Linux refused {refused} of {cuts} images");
    assert!(fast * 2 > cuts, "only {fast} of {cuts} images had fast commits");
}

/// Where a block of the log that `is_wanted` says so of is, in the image.
fn log_blocks(image: &[u8], is_wanted: impl Fn(&[u8]) -> bool) -> Vec<usize> {
    (0..image.len()).step_by(BLOCK_BYTES).filter(|at| is_wanted(&image[*at..at + BLOCK_BYTES])).collect()
}

/// A block of the log of a type: 1 a descriptor, 2 a commit.
fn is_of_type(block: &[u8], kind: u8) -> bool {
    block.starts_with(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, kind])
}

/// A fast commit whose checksum is wrong is said to be missing, if it is the first: Linux does not
/// mount that. What follows one that is right ends there.
#[test]
fn a_damaged_fast_commit_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = made(&dir, &["-O", "fast_commit", "-J", "size=16"]) else { return };
    let crashed = dir.path().join("crashed");
    let worked = mounted(&path, "loop,commit=300", |at| {
        fs::write(at.join("before"), "before").unwrap();
        run(program("sync").arg("-f").arg(at)).unwrap();
        for name in ["first", "second", "third"] {
            let file = File::create(at.join(name)).unwrap();
            file.write_all_at(name.as_bytes(), 0).unwrap();
            file.sync_all().unwrap();
        }
        copy(&path, &crashed);
    });
    if worked.is_none() {
        return;
    }
    let names = |path: &Path| {
        let fs = open(path);
        let names = entries(&*fs, fs.root()).into_keys().map(|name| String::from_utf8(name).unwrap());
        (names.filter(|name| name != "lost+found").collect::<Vec<_>>(), fs.not_as_mounted())
    };
    assert_eq!(names(&crashed), (["before", "first", "second", "third"].map(String::from).to_vec(), vec![]));
    let whole = fs::read(&crashed).unwrap();
    // A tag of the type of a name and what it names, within the area.
    let area = log_blocks(&whole, |block| block.starts_with(&[9, 0, 8, 0, 0, 0, 0, 0]))[0];
    for (name, expected, says) in [("first", &["before"][..], true), ("second", &["before", "first"], false)]
    {
        let mut bytes = whole.clone();
        let at = bytes[area..].windows(name.len()).position(|found| found == name.as_bytes()).unwrap();
        bytes[area + at] ^= 1;
        fs::write(&crashed, &bytes).unwrap();
        let (found, differs) = names(&crashed);
        assert_eq!(found, expected);
        assert_eq!(!differs.is_empty(), says, "{differs:?}");
        assert_eq!(mounts(&crashed), !says, "{name}");
    }
}

/// Whether Linux mounts it.
fn mounts(path: &Path) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let status = program("mount").args(["-o", "loop"]).arg(path).arg(dir.path()).output().unwrap().status;
    status.success() && common::unmount(dir.path())
}

/// Twelve directories in a transaction each; what of the journal is changed; how many come out,
/// and whether it is said that some do not. Linux mounts what is no damage, and nothing else.
#[test]
fn damage_in_the_middle_of_the_log_is_not_its_end() {
    let dir = tempfile::tempdir().unwrap();
    for (options, mount) in [
        (&["-O", "metadata_csum"][..], "loop,commit=300"),
        (&["-O", "metadata_csum,64bit"], "loop,commit=300,data=writeback,journal_async_commit"),
        (&["-O", "^metadata_csum"], "loop,commit=300,journal_checksum"),
        (
            &["-O", "^metadata_csum,^64bit"],
            "loop,commit=300,data=writeback,journal_checksum,journal_async_commit",
        ),
    ] {
        let Some(path) = made(&dir, &[options, &["-J", "size=8"]].concat()) else { return };
        let crashed = dir.path().join("crashed");
        let worked = mounted(&path, mount, |at| {
            for name in 0..12 {
                fs::create_dir(at.join(format!("{name:02}"))).unwrap();
                run(program("sync").arg("-f").arg(at)).unwrap();
            }
            copy(&path, &crashed);
        });
        if worked.is_none() {
            return;
        }
        let whole = fs::read(&crashed).unwrap();
        let commits = log_blocks(&whole, |block| is_of_type(block, 2));
        let descriptors = log_blocks(&whole, |block| is_of_type(block, 1));
        assert!(commits.len() >= 12, "{} commits, {mount}", commits.len());
        let (middle, last) = (commits.len() / 2, commits.len() - 1);
        let asynchronous = mount.contains("async");
        for (what, at, damaged) in [
            ("a commit", commits[middle] + 0x11, true),
            ("a block", descriptors[middle] + BLOCK_BYTES + 100, true),
            ("a descriptor", descriptors[middle] + 100, true),
            (
                "the last block",
                descriptors[last] + BLOCK_BYTES + 100,
                !asynchronous || !mount.contains("checksum"),
            ),
            ("the last commit", commits[last] + 0x11, !asynchronous),
            ("the end", commits[last], false),
        ] {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            fs::write(&crashed, &bytes).unwrap();
            let fs = open(&crashed);
            let differs = fs.not_as_mounted();
            eprintln!("{what}, {mount}: {differs:?}, {} entries", entries(&*fs, fs.root()).len());
            assert_eq!(!differs.is_empty(), damaged, "{what}, {mount}: {differs:?}");
            // Where a commit may come before its transaction, Linux takes more for the end, and
            // shows less in silence.
            let mounts = mounts(&crashed);
            eprintln!("Linux mounts it: {mounts}");
            assert!(asynchronous || mounts != damaged, "{what}, {mount}");
        }
    }
}

/// Checksums of version 2, as Linux 3.5 to 3.17 wrote them and debugfs still does: blocks of a file
/// come out of the journal, and one that is wrong is told.
#[test]
fn journals_with_checksums_of_version_2_are_read() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(tree.path().join("file"), vec![b'o'; 3 * BLOCK_BYTES]).unwrap();
    fs::write(dir.path().join("new"), vec![b'n'; BLOCK_BYTES]).unwrap();
    for features in ["metadata_csum,64bit", "metadata_csum,^64bit"] {
        let from = tree.path().to_str().unwrap();
        let Some(path) = made(&dir, &["-O", features, "-d", from]) else { return };
        let blocks = program("debugfs").args(["-R", "blocks /file"]).arg(&path).output().unwrap();
        let blocks = String::from_utf8(blocks.stdout).unwrap();
        let blocks: Vec<_> = blocks.split_whitespace().collect();
        assert_eq!(blocks.len(), 3, "{blocks:?}");
        let new = dir.path().join("new");
        let write = |block: &str| format!("jw -b {block} {}\n", new.display());
        let requests = format!("jo -c -v 2\n{}{}jc\n", write(blocks[0]), write(blocks[2]));
        fs::write(dir.path().join("requests"), requests).unwrap();
        run(program("debugfs").args(["-w", "-f"]).arg(dir.path().join("requests")).arg(&path)).unwrap();

        let content = |path: &Path| {
            let fs = open(path);
            let node = wattle_fs::resolve(&*fs, b"/file").unwrap();
            let data = common::read(&*fs, node, 0..u64::MAX, 3 * BLOCK_BYTES).0;
            (data.iter().step_by(BLOCK_BYTES).map(|byte| char::from(*byte)).collect(), fs.not_as_mounted())
        };
        assert_eq!(content(&path), (String::from("non"), vec![]), "{features}");
        let mut bytes = fs::read(&path).unwrap();
        let descriptors = log_blocks(&bytes, |block| is_of_type(block, 1));
        bytes[descriptors[1] + BLOCK_BYTES + 5] ^= 1;
        let damaged = dir.path().join("damaged");
        fs::write(&damaged, bytes).unwrap();
        let why = "the checksum of a block in it is wrong";
        assert_eq!(content(&damaged), ("noo".into(), vec![Note::JournalCutShort { why }]), "{features}");
        if mounted(&path, "loop", |at| {
            let data = fs::read(at.join("file")).unwrap();
            assert_eq!((data[0], data[BLOCK_BYTES], data[2 * BLOCK_BYTES]), (b'n', b'o', b'n'));
        })
        .is_some()
        {
            assert!(!mounts(&damaged), "{features}");
        }
    }
}

/// A power cut soon after a file system grew while it was mounted: the superblock in its place is
/// of the old size, and the journal has the new one.
#[test]
fn a_file_system_that_grew_is_of_the_size_that_its_journal_says() {
    const FILES: usize = 40;
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir, "image", 16 << 20);
    let options = ["-q", "-F", "-t", "ext4", "-b", "4096", "-g", "2048", "-N", "256", "-J", "size=4"];
    let features = ["-O", "^metadata_csum,^64bit", "-E", "resize=100000"];
    if run(program("mke2fs").args(options).args(features).arg(&path)).is_none() {
        return;
    }
    let before = fs::read(&path).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(64 << 20).unwrap();
    run(program("resize2fs").arg(&path)).unwrap();
    let content = |number: usize| common::pattern(number as u64, 700_000);
    let filled = mounted(&path, "loop", |at| {
        for number in 0..FILES {
            let folder = at.join(format!("folder {number}"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("file"), content(number)).unwrap();
        }
    });
    if filled.is_none() {
        return;
    }
    // Superblock and descriptors go into the journal, and in their place are the old ones.
    let after = fs::read(&path).unwrap();
    let mut requests = String::from("jo\n");
    for block in 0..2 {
        let new = dir.path().join(format!("new-{block}"));
        fs::write(&new, &after[block * BLOCK_BYTES..][..BLOCK_BYTES]).unwrap();
        requests += &format!("jw -b {block} {}\n", new.display());
    }
    fs::write(dir.path().join("requests"), requests + "jc\n").unwrap();
    run(program("debugfs").args(["-w", "-f"]).arg(dir.path().join("requests")).arg(&path)).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[1024..2 * BLOCK_BYTES].copy_from_slice(&before[1024..2 * BLOCK_BYTES]);
    bytes[1024 + 0x60] |= 4;
    let fs = wattle_fs::open(Box::new(bytes), None).unwrap();
    assert_eq!(fs.about().size_bytes, 64 << 20);
    assert_eq!(fs.not_as_mounted(), []);
    assert!(matches!(fs.about().notes[..], [Note::JournalApplied { .. }]), "{:?}", fs.about().notes);
    for number in 0..FILES {
        let node = wattle_fs::resolve(&*fs, format!("/folder {number}/file").as_bytes()).unwrap();
        assert!(common::read(&*fs, node, 0..u64::MAX, 700_000).0 == content(number), "{number}");
    }
}
