//! Images made by mkfs.xfs and the kernel.

use crate::common;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use crate::common::{
    Except, Size, assert_paths, assert_same, entries, image, make_tree, mounted, open, program, run,
};
use tempfile::TempDir;
use wattle_fs::{FileSystemLayout, Note};

const TREE: Size = Size { entries: 2000, pieces: 700 };

fn tree() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    make_tree(dir.path(), TREE);
    dir
}

fn empty(dir: &TempDir, name: &str, options: &[&str]) -> Option<PathBuf> {
    let path = image(dir, name, 320 << 20);
    run(program("mkfs.xfs").args(["-q", "-f", "-L", "some label"]).args(options).arg(&path))?;
    Some(path)
}

fn copy(tree: &Path, at: &Path) {
    run(program("cp").arg("-a").arg(tree.join(".")).arg(at)).unwrap();
}

/// Directories in every form: in the inode, one block, several with leaves and nodes, blocks of
/// directories larger than blocks; files with extents in the inode and in trees; links in the inode
/// and in blocks; times of both widths; versions 4 and 5.
#[test]
fn what_the_kernel_wrote_comes_out() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tree());
    for options in [
        &[][..],
        &["-m", "crc=0", "-n", "ftype=0"],
        &["-m", "crc=0", "-n", "ftype=1", "-b", "size=1024"],
        &["-b", "size=1024", "-n", "size=8192", "-i", "size=512"],
        &["-m", "bigtime=0,reflink=0,rmapbt=0,inobtcount=0", "-i", "sparse=0,size=2048", "-n", "size=16384"],
        &["-i", "nrext64=1", "-m", "rmapbt=1", "-d", "agcount=3"],
    ] {
        let Some(path) = empty(&dir, "image", options) else { return };
        let written = mounted(&path, "loop", |at| {
            copy(tree.path(), at);
            let one = at.join("one");
            run(program("fallocate").args(["-n", "-o", "1M", "-l", "8M"]).arg(&one)).unwrap();
            run(program("touch").arg("-r").arg(tree.path().join("one")).arg(&one)).unwrap();
        });
        let fs = open(&path);
        assert_eq!((fs.about().kind, &fs.about().label[..]), ("xfs", &b"some label"[..]), "{options:?}");
        assert_eq!(fs.about().notes, [], "{options:?}");
        if written.is_none() {
            continue;
        }
        let small_times =
            options.iter().any(|option| option.contains("bigtime=0") || option.contains("crc=0"));
        assert_same(&*fs, tree.path(), Except { beyond_2038: small_times, ..Except::default() });
        assert_paths(&*fs);
    }
}

/// Clones share blocks, and a clone that was changed has extents of both.
#[test]
fn clones_come_out() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tree());
    let Some(path) = empty(&dir, "image", &["-m", "reflink=1"]) else { return };
    let written = mounted(&path, "loop", |at| {
        copy(tree.path(), at);
        let clone = at.join("file-50000");
        fs::remove_file(&clone).unwrap();
        run(program("cp").arg("--reflink=always").arg(at.join("file-3145728")).arg(&clone)).unwrap();
        let change = ["conv=notrunc", "bs=4096", "seek=3", "count=1", "if=/dev/zero", "status=none"];
        run(program("dd").args(change).arg(format!("of={}", clone.display()))).unwrap();
        fs::remove_file(tree.path().join("file-50000")).unwrap();
        run(program("cp").arg("-a").arg(&clone).arg(tree.path())).unwrap();
    });
    if written.is_some() {
        assert_same(&*open(&path), tree.path(), Except::default());
    }
}

/// A copy of the image while it is mounted has a log that is not empty, which is applied, and one
/// after that has an empty one again.
#[test]
fn a_log_that_is_not_empty_is_applied() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    make_tree(tree.path(), Size { entries: 60, pieces: 40 });
    for options in [&[][..], &["-m", "crc=0"], &["-l", "su=64k"]] {
        let Some(path) = empty(&dir, "image", options) else { return };
        assert_eq!(open(&path).about().notes, [], "fresh, {options:?}");
        let crashed = dir.path().join("crashed");
        let frozen = dir.path().join("frozen");
        // Round the log more than once.
        for round in 0..3 {
            let copied = mounted(&path, "loop", |at| {
                let to = at.join(format!("round-{round}"));
                fs::create_dir(&to).unwrap();
                copy(tree.path(), &to);
                run(program("sync").arg("-f").arg(at)).unwrap();
                fs::copy(&path, &crashed).unwrap();
                run(program("fsfreeze").arg("-f").arg(at)).unwrap();
                let copied = fs::copy(&path, &frozen);
                run(program("fsfreeze").arg("-u").arg(at)).unwrap();
                copied.unwrap();
            });
            if copied.is_none() {
                return;
            }
            let notes = open(&crashed).about().notes.clone();
            assert!(matches!(notes[..], [Note::LogApplied { transactions: 1.. }]), "{notes:?}, {options:?}");
            assert_eq!(open(&crashed).not_as_mounted(), [], "round {round}, {options:?}");
            let applied = entries(&*open(&crashed), open(&crashed).root());
            assert_eq!(applied.len(), round + 1, "round {round}, {options:?}");
            assert_eq!(open(&frozen).about().notes, [], "frozen, round {round}, {options:?}");
            let at_rest = entries(&*open(&frozen), open(&frozen).root());
            assert_eq!(at_rest.len(), round + 1, "frozen, round {round}, {options:?}");
            assert_eq!(open(&path).about().notes, [], "round {round}, {options:?}");
        }
    }
}

/// A file system that grew, and went down before its superblock reached its place: new groups, and
/// a last one that is longer, are in the log alone, and so is what was made there.
#[test]
fn what_was_made_after_a_growth_that_is_in_the_log_comes_out() {
    for (size, options) in [(400 << 20, "size=320m"), (330 << 20, "size=320m,agcount=2")] {
        let dir = tempfile::tempdir().unwrap();
        let path = image(&dir, "image", size);
        if run(program("mkfs.xfs").args(["-q", "-d", options]).arg(&path)).is_none() {
            return;
        }
        let name = |ix: u32| format!("made-{ix}");
        let grown = mounted(&path, "loop", |at| {
            fs::write(at.join("old"), "old").unwrap();
            run(program("sync").arg("-f").arg(at)).unwrap();
            run(program("xfs_growfs").arg(at)).unwrap();
            for ix in 0..200 {
                fs::create_dir(at.join(name(ix))).unwrap();
                fs::write(at.join(name(ix)).join("file"), name(ix)).unwrap();
            }
            run(program("xfs_io").args(["-x", "-c", "shutdown -f"]).arg(at)).unwrap();
        });
        if grown.is_none() {
            return;
        }
        let fs = open(&path);
        assert!(matches!(fs.about().notes[..], [Note::LogApplied { transactions: 1.. }]), "{:?}", fs.about());
        assert_eq!(fs.about().size_bytes, size);
        assert_eq!(entries(&*fs, fs.root()).len(), 201, "{options}");
        // What data a file has that was not flushed is not sure, but it is there.
        mounted(&path, "loop", |at| {
            for ix in 0..200 {
                let node = wattle_fs::resolve(&*fs, format!("{}/file", name(ix)).as_bytes()).unwrap();
                let there = fs::metadata(at.join(name(ix)).join("file")).unwrap();
                assert_eq!((node.inode, fs.metadata(node).unwrap().size_bytes), (there.ino(), there.len()));
            }
        })
        .unwrap();
    }
}

/// Leaves a file system no free space but single blocks that lie apart.
fn leave_single_blocks(at: &Path) {
    let take_all_but = |name: &str, bytes: u64| {
        let free = rustix::fs::statvfs(at).unwrap();
        let len = (free.f_bavail * free.f_frsize - bytes).to_string();
        run(program("fallocate").args(["-l", &len]).arg(at.join(name))).unwrap();
    };
    let sync = || run(program("sync").arg("-f").arg(at)).unwrap();
    take_all_but("ballast", 50 << 20);
    let name = |ix: usize| at.join(format!("fill-{}", ix / 2000)).join(ix.to_string());
    let is_written = |ix: &usize| {
        let made = if ix.is_multiple_of(2000) { fs::create_dir(name(*ix).parent().unwrap()) } else { Ok(()) };
        made.and_then(|()| fs::write(name(*ix), [b'x'; 1000])).is_ok()
    };
    let count = (0..).take_while(is_written).count();
    sync();
    (0..count).step_by(2).for_each(|ix| fs::remove_file(name(ix)).unwrap());
    sync();
    take_all_but("more-ballast", 6 << 20);
    sync();
}

/// A block of a directory that is eight blocks of the file system which lie apart is eight buffers
/// in the log, none of which has a checksum of its own. Linux does not mount that.
#[test]
fn a_directory_whose_blocks_lie_in_pieces_is_changed_by_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let options = ["-b", "size=1k", "-n", "size=8k", "-m", "reflink=0,rmapbt=0,finobt=0"];
    let Some(path) = empty(&dir, "image", &options) else { return };
    let names = |prefix: &str, count: u32| -> BTreeSet<Vec<u8>> {
        (0..count).map(|ix| format!("{prefix}-name-{ix:06}").into_bytes()).collect()
    };
    let make = |at: &Path, names: &BTreeSet<Vec<u8>>| {
        fs::create_dir(at).unwrap();
        names.iter().for_each(|name| drop(File::create(at.join(OsStr::from_bytes(name))).unwrap()));
    };
    let (mut old, new) = (names("old", 1000), names("new", 400));
    let made = mounted(&path, "loop", |at| {
        leave_single_blocks(at);
        make(&at.join("old"), &old);
    });
    if made.is_none() {
        return;
    }
    let shown = |name: &str| -> BTreeSet<Vec<u8>> {
        let fs = open(&path);
        let node = wattle_fs::resolve(&*fs, name.as_bytes()).unwrap();
        entries(&*fs, node).into_keys().collect()
    };
    assert_eq!(open(&path).about().notes, []);
    assert_eq!(shown("old"), old);
    mounted(&path, "loop", |at| {
        fs::rename(at.join("old/old-name-000000"), at.join("old/OLD-name-000000")).unwrap();
        make(&at.join("new"), &new);
        run(program("xfs_io").args(["-x", "-c", "shutdown -f"]).arg(at)).unwrap();
    })
    .unwrap();
    old.remove(&b"old-name-000000"[..]);
    old.insert(b"OLD-name-000000".to_vec());
    let notes = open(&path).not_as_mounted();
    assert!(matches!(notes[..], [Note::LogInParts { transactions: 1.. }]), "{notes:?}");
    assert_eq!(shown("old"), old);
    assert_eq!(shown("new"), new);
    assert!(
        mounted(&path, "loop", |_| ()).is_none(),
        "a kernel that mounts it shows what the note is to say"
    );
}

/// A log on another device is not there to be read.
#[test]
fn a_log_elsewhere_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let log = image(&dir, "log", 64 << 20);
    let Some(path) = empty(&dir, "image", &["-l", &format!("logdev={},size=64m", log.display())]) else {
        return;
    };
    assert_eq!(open(&path).not_as_mounted(), [Note::LogElsewhere]);
}

/// Links longer than a block: in one extent of two blocks, and, where no two free blocks lie side
/// by side, in two extents.
#[test]
fn links_longer_than_a_block_come_out() {
    let dir = tempfile::tempdir().unwrap();
    let lens = [400, 511, 512, 513, 967, 968, 969, 1000, 1023];
    for options in [&["-b", "size=1024"][..], &["-m", "crc=0", "-b", "size=512", "-i", "size=256"]] {
        let small = ["-d", "agcount=1,size=16m", "--unsupported"];
        let Some(path) = empty(&dir, "image", &[&small, options].concat()) else { return };
        let mut pieces = 0;
        let written = mounted(&path, "loop", |at| {
            for len in lens {
                symlink("w".repeat(len), at.join(format!("whole-{len}"))).unwrap();
            }
            // Inodes that are free again, so that links need no new ones.
            (0..40).for_each(|ix| drop(File::create(at.join(format!("free-{ix}"))).unwrap()));
            (0..30).for_each(|ix| fs::remove_file(at.join(format!("free-{ix}"))).unwrap());
            // All space, and then holes of a block.
            let full = at.join("full");
            let zeros = ["if=/dev/zero", "bs=64k", "status=none"];
            program("dd").args(zeros).arg(format!("of={}", full.display())).output().unwrap();
            let block = if options.contains(&"crc=0") { 512 } else { 1024 };
            let mut punch = program("xfs_io");
            (2000..2100_u32).for_each(|ix| {
                punch.args(["-c", &format!("fpunch {} {block}", ix * 2 * block)]);
            });
            run(punch.arg(&full)).unwrap();
            for len in lens {
                symlink("p".repeat(len), at.join(format!("parts-{len}"))).unwrap();
            }
            let map = program("xfs_io").args(["-r", "-c", "fiemap -v"]).arg(&full).output().unwrap();
            pieces = map.stdout.split(|byte| *byte == b'\n').count();
        });
        if written.is_none() {
            return;
        }
        assert!(pieces > 150, "{pieces} pieces");
        let fs = open(&path);
        let links = entries(&*fs, fs.root());
        for (what, byte) in [("whole", b'w'), ("parts", b'p')] {
            for len in lens {
                let link = fs.link(links[format!("{what}-{len}").as_bytes()]);
                assert_eq!(link.unwrap(), vec![byte; len], "{what}, {len}, {options:?}");
            }
        }
    }
}

/// What mkfs puts in by a list, without a mount: the same in a place where nothing can be mounted.
#[test]
fn what_mkfs_made_comes_out() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(tree.path().join("proof.txt"), "kept by linux\n").unwrap();
    let list = format!(
        "/dummy 0 0\nd--755 0 0\n proof.txt ---644 3 4 {}\n link l--777 0 0 proof.txt\n dir d--750 0 0\n $\n$\n",
        tree.path().join("proof.txt").display()
    );
    fs::write(dir.path().join("list"), list).unwrap();
    let list = dir.path().join("list").to_str().unwrap().to_owned();
    let Some(path) = empty(&dir, "image", &["-p", &list]) else { return };
    let fs = open(&path);
    let entries = entries(&*fs, fs.root());
    assert_eq!(entries.keys().map(Vec::as_slice).collect::<Vec<_>>(), [&b"dir"[..], b"link", b"proof.txt"]);
    let proof = entries[&b"proof.txt"[..]];
    let metadata = fs.metadata(proof).unwrap();
    assert_eq!((metadata.mode, metadata.uid, metadata.gid, metadata.size_bytes), (0o644, 3, 4, 14));
    assert_eq!(common::read(&*fs, proof, 0..u64::MAX, 14).0, b"kept by linux\n");
    assert_eq!(fs.link(entries[&b"link"[..]]).unwrap(), b"proof.txt");
}

/// What `mkfs.xfs` was told of an array below, and what it made of it.
#[test]
fn what_it_was_told_of_stripes_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let options = ["-b", "size=4096", "-d", "su=256k,sw=4,agcount=4", "-l", "su=128k", "-m", "crc=0"];
    let Some(path) = empty(&dir, "image", &options) else { return };
    let layout = wattle_fs::layout(Box::new(common::Image::open(&path))).unwrap();
    let expected = FileSystemLayout {
        kind: "xfs",
        version: 4,
        size_bytes: 320 << 20,
        block_bytes: 4096,
        stripe_unit_bytes: Some(256 << 10),
        stripe_width_bytes: Some(1 << 20),
        groups: 4,
        group_bytes: layout.group_bytes,
        log_unit_bytes: Some(128 << 10),
    };
    assert_eq!(layout, expected);
    assert!(layout.group_bytes.is_multiple_of(256 << 10) && layout.group_bytes * 3 < 320 << 20);
    let Some(plain) = empty(&dir, "plain", &["-d", "agcount=4"]) else { return };
    let layout = wattle_fs::layout(Box::new(common::Image::open(&plain))).unwrap();
    assert_eq!((layout.version, layout.stripe_unit_bytes, layout.stripe_width_bytes), (5, None, None));
}
