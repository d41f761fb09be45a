//! Images made by mke2fs and by the kernel.

use crate::common;

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Except, Size, assert_paths, assert_same, image, make_tree, mounted, open, program, run};
use tempfile::TempDir;
use wattle_fs::Note;

const TREE: Size = Size { entries: 1500, pieces: 500 };

fn tree() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    make_tree(dir.path(), TREE);
    dir
}

/// An image with a tree in it.
fn made(dir: &TempDir, tree: &Path, options: &[&str]) -> Option<PathBuf> {
    let path = image(dir, "image", 256 << 20);
    run(program("mke2fs")
        .args(["-q", "-F", "-L", "some label", "-N", "6000"])
        .args(options)
        .arg("-d")
        .arg(tree)
        .arg(&path))?;
    Some(path)
}

#[test]
fn what_mke2fs_made_comes_out() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tree());
    let except = Except { short_times: true, ..Except::default() };
    for (kind, options) in [
        ("ext2", &["-t", "ext2"][..]),
        ("ext2", &["-t", "ext2", "-b", "1024", "-O", "^filetype,^resize_inode,^sparse_super", "-I", "128"]),
        ("ext3", &["-t", "ext3", "-b", "1024"]),
        ("ext4", &["-t", "ext4"]),
        ("ext4", &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode,64bit"]),
        ("ext4", &["-t", "ext4", "-b", "2048", "-g", "2048", "-O", "meta_bg,^resize_inode,^64bit,^flex_bg"]),
        ("ext4", &["-t", "ext4", "-O", "^metadata_csum,uninit_bg,sparse_super2,mmp,ea_inode,large_dir"]),
        ("ext4", &["-t", "ext4", "-O", "bigalloc", "-C", "16384"]),
        ("ext4", &["-t", "ext4", "-O", "casefold,metadata_csum_seed,fast_commit", "-b", "4096"]),
    ] {
        let Some(image) = made(&dir, tree.path(), options) else { return };
        let fs = open(&image);
        assert_eq!(fs.about().kind, kind, "{options:?}");
        assert_eq!(fs.about().label, b"some label", "{options:?}");
        assert_eq!(fs.about().notes, [], "{options:?}");
        assert_same(&*fs, tree.path(), except);
        assert_paths(&*fs);
    }
}

/// The kernel's own writes: hash trees of directories, delayed allocation, unwritten extents,
/// nanoseconds.
#[test]
fn what_the_kernel_wrote_comes_out() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tree());
    for options in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-b", "1024", "-O", "inline_data", "-I", "512"],
        &["-t", "ext3"],
    ] {
        let path = image(&dir, "image", 256 << 20);
        if run(program("mke2fs").args(["-q", "-F", "-N", "6000"]).args(options).arg(&path)).is_none() {
            return;
        }
        let copied = mounted(&path, "loop", |at| {
            run(program("cp").arg("-a").arg(tree.path().join(".")).arg(at)).unwrap();
            let one = at.join("one");
            if options.contains(&"ext4") {
                run(program("fallocate").args(["-n", "-o", "1M", "-l", "8M"]).arg(&one)).unwrap();
                run(program("touch").arg("-r").arg(tree.path().join("one")).arg(&one)).unwrap();
            }
        });
        if copied.is_none() {
            return;
        }
        let fs = open(&path);
        assert_eq!(fs.about().notes, []);
        assert_same(&*fs, tree.path(), Except::default());
        assert_paths(&*fs);
    }
}

/// A copy of the image while it is mounted is what a crash leaves: the journal has what the file
/// system has not yet.
#[test]
fn a_journal_is_applied_in_memory() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tree());
    for (options, mount) in [
        (&["-t", "ext4"][..], "loop"),
        (&["-t", "ext4", "-J", "size=4"], "loop,data=journal"),
        (&["-t", "ext3", "-b", "1024"], "loop"),
        (&["-t", "ext3", "-O", "^64bit", "-J", "size=8"], "loop,data=journal"),
    ] {
        let path = image(&dir, "image", 256 << 20);
        if run(program("mke2fs").args(["-q", "-F", "-N", "6000"]).args(options).arg(&path)).is_none() {
            return;
        }
        let crashed = dir.path().join("crashed");
        let copied = mounted(&path, mount, |at| {
            // Blocks that were directories and are something else now are revoked in the log.
            for round in 0..3 {
                let name = at.join(format!("round-{round}"));
                run(program("cp").arg("-a").arg(tree.path().join("large")).arg(&name)).unwrap();
                run(program("sync").arg("-f").arg(at)).unwrap();
                fs::remove_dir_all(&name).unwrap();
            }
            run(program("cp").arg("-a").arg(tree.path().join(".")).arg(at)).unwrap();
            run(program("sync").arg("-f").arg(at)).unwrap();
            fs::copy(&path, &crashed).unwrap();
        });
        if copied.is_none() {
            return;
        }
        let before = fs::read(&crashed).unwrap();
        let fs = open(&crashed);
        assert!(matches!(fs.about().notes[..], [Note::JournalApplied { .. }]), "{:?}", fs.about().notes);
        assert_same(&*fs, tree.path(), Except::default());
        assert!(fs::read(&crashed).unwrap() == before, "nothing is written");
    }
}

/// Linux keeps the flag of `chattr +c`, gives it to what is made below, and compresses nothing.
#[test]
fn files_that_are_marked_to_be_compressed_are_not() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(tree.path().join("photos")).unwrap();
    fs::write(tree.path().join("photos/a.txt"), common::pattern(1, 100_000)).unwrap();
    for kind in ["ext2", "ext3", "ext4"] {
        let Some(image) = made(&dir, tree.path(), &["-t", kind]) else { return };
        for path in ["/photos", "/photos/a.txt"] {
            let flags = if kind == "ext4" { "0x80004" } else { "0x4" };
            let request = format!("set_inode_field {path} flags {flags}");
            run(program("debugfs").args(["-w", "-R", &request]).arg(&image)).unwrap();
        }
        let fs = open(&image);
        let node = wattle_fs::resolve(&*fs, b"/photos/a.txt").unwrap();
        assert!(common::read(&*fs, node, 0..u64::MAX, 100_000).0 == common::pattern(1, 100_000), "{kind}");
    }
}

/// What `mke2fs` was told of an array below, and what it made of it.
#[test]
fn what_it_was_told_of_stripes_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir, "image", 256 << 20);
    let options = ["-q", "-F", "-t", "ext4", "-b", "4096", "-E", "stride=16,stripe_width=48"];
    if run(program("mke2fs").args(options).arg(&path)).is_none() {
        return;
    }
    let layout = wattle_fs::layout(Box::new(common::Image::open(&path))).unwrap();
    assert_eq!((layout.kind, layout.size_bytes, layout.groups), ("ext4", 256 << 20, 2));
    assert_eq!(layout.stripe_unit_bytes, Some(64 << 10));
    assert_eq!(layout.stripe_width_bytes, Some(192 << 10));
    assert_eq!(layout.group_bytes, 128 << 20);
}

/// A file system of groups with few inodes each, so that the files are in several.
fn of_small_groups(dir: &TempDir, features: &str, size_bytes: u64) -> Option<Vec<u8>> {
    let tree = tempfile::tempdir().unwrap();
    for number in 0..200 {
        fs::write(tree.path().join(format!("file {number}")), format!("content {number}")).unwrap();
    }
    let path = image(dir, "groups", size_bytes);
    let options = ["-q", "-F", "-t", "ext4", "-b", "1024", "-N", "512", "-O", features, "-d"];
    run(program("mke2fs").args(options).arg(tree.path()).arg(&path))?;
    Some(fs::read(path).unwrap())
}

/// How many of its files come out right; none comes out as another one.
fn right_files(bytes: Vec<u8>) -> Result<(usize, Vec<Note>), wattle_fs::Error> {
    let fs = wattle_fs::open(Box::new(bytes), None)?;
    let mut files = Vec::new();
    let listed = fs.list(fs.root(), &mut |entry| {
        files.push(entry);
        Ok(())
    });
    listed?;
    let mut right = 0;
    for entry in files.iter().filter(|entry| entry.name.starts_with(b"file ")) {
        let Ok(metadata) = fs.metadata(entry.node) else { continue };
        let content = [b"content ", &entry.name[5..]].concat();
        assert_eq!(metadata.size_bytes, content.len() as u64);
        let (read, _) = common::read(&*fs, entry.node, 0..u64::MAX, content.len());
        assert!(read == content, "{:?}", String::from_utf8_lossy(&entry.name));
        right += 1;
    }
    Ok((right, fs.not_as_mounted()))
}

/// Of a descriptor of a group that is not right a copy is used: what a wrong one leads to passes
/// for other files, where inodes have no checksums.
#[test]
fn a_descriptor_that_is_not_right_is_taken_from_a_copy() {
    let dir = tempfile::tempdir().unwrap();
    for features in [
        "^metadata_csum,^64bit,uninit_bg,^flex_bg",
        "^metadata_csum,64bit,uninit_bg,flex_bg",
        "^metadata_csum,^64bit,uninit_bg,^flex_bg,sparse_super2",
        "^metadata_csum,^64bit,uninit_bg,^flex_bg,meta_bg,^resize_inode",
        "metadata_csum,64bit,flex_bg",
        "metadata_csum,64bit,^flex_bg,meta_bg,^resize_inode",
        "^metadata_csum,^64bit,^uninit_bg,^flex_bg",
    ] {
        let Some(image) = of_small_groups(&dir, features, 64 << 20) else { return };
        assert_eq!(right_files(image.clone()).unwrap(), (200, vec![]), "{features}");
        let wide = image[1024 + 0x60] & 0x80 != 0;
        let descriptor = |group: usize| 2048 + group * if wide { 64 } else { 32 };
        let has_checksum = !features.contains("^uninit_bg");
        for group in 0..3 {
            // To a neighbour of the table, where a checksum tells; and to another group's.
            let table = descriptor(group) + 8;
            let next = u32::from_le_bytes(image[descriptor(group + 1) + 8..][..4].try_into().unwrap());
            let old = u32::from_le_bytes(image[table..][..4].try_into().unwrap());
            let wrong = [(old + 1, has_checksum), (next, true)];
            for (number, _) in wrong.into_iter().filter(|(_, is_told)| *is_told) {
                let mut image = image.clone();
                image[table..table + 4].copy_from_slice(&number.to_le_bytes());
                let (right, notes) = right_files(image).unwrap();
                assert_eq!(right, 200, "{features}, group {group}");
                assert!(matches!(notes[..], [Note::DescriptorCopy { .. }]), "{features}: {notes:?}");
            }
        }
        let mut image = image;
        image[2048..3072].fill(0);
        let (right, notes) = right_files(image).unwrap();
        assert_eq!((right, notes.len()), (200, 1), "{features}");
    }
    // Of one group there is no copy: with checksums of inodes it needs none.
    for (features, is_used) in [("metadata_csum", true), ("^metadata_csum,uninit_bg", false)] {
        let Some(mut image) = of_small_groups(&dir, features, 4 << 20) else { return };
        image[2048 + 0xc] ^= 1;
        let found = right_files(image);
        match is_used {
            true => assert!(matches!(&found, Ok((200, notes)) if notes.len() == 1), "{found:?}"),
            false => assert!(found.is_err(), "{found:?}"),
        }
    }
}

/// The blocks of block numbers of a file.
fn tables_of(image: &Path, path: &str) -> Vec<usize> {
    let told = program("debugfs").args(["-R", &format!("stat {path}")]).arg(image).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    let tables = told.split(", ").filter_map(|part| part.split_once("IND):"));
    tables.map(|(_, number)| number.trim().parse().unwrap()).collect()
}

/// A block of block numbers that was lost, and is zeros in a copy, makes no hole in silence.
#[test]
fn block_numbers_that_are_gone_are_no_holes() {
    use std::os::unix::fs::FileExt;
    const PIECE: usize = 50_000;
    let (dir, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Places of one, two and three levels, and holes between them.
    let pieces = [0, 200 << 10, 1 << 20, 30 << 20, 100 << 20, 101 << 20];
    let file = fs::File::create(tree.path().join("file")).unwrap();
    for (seed, at) in pieces.into_iter().enumerate() {
        file.write_all_at(&common::pattern(seed as u64, PIECE), at).unwrap();
    }
    drop(file);
    let folder = tree.path().join("folder");
    fs::create_dir(&folder).unwrap();
    for number in 0..600 {
        fs::write(folder.join(format!("{number:03} {}", "n".repeat(90))), "").unwrap();
    }
    for kind in ["ext2", "ext3"] {
        let Some(path) = made(&dir, tree.path(), &["-t", kind, "-b", "1024", "-O", "^dir_index"]) else {
            return;
        };
        let whole = fs::read(&path).unwrap();
        let zeroed = |block: usize| {
            let mut bytes = whole.clone();
            bytes[block * 1024..(block + 1) * 1024].fill(0);
            wattle_fs::open(Box::new(bytes), None).unwrap()
        };
        let tables = tables_of(&path, "/file");
        assert!(tables.len() >= 8, "{tables:?}");
        for table in tables {
            let fs = zeroed(table);
            let node = wattle_fs::resolve(&*fs, b"/file").unwrap();
            assert!(fs.read(node, 0..u64::MAX, &mut |_, _| Ok(())).is_err(), "{kind}, {table}");
            let mut wrong = 0;
            for (seed, at) in pieces.into_iter().enumerate() {
                let mut read = vec![0; PIECE];
                let range = at..at + PIECE as u64;
                let found = fs.read(node, range, &mut |offset, bytes| {
                    read[(offset - at) as usize..][..bytes.len()].copy_from_slice(bytes);
                    Ok(())
                });
                match found {
                    Ok(()) => assert!(read == common::pattern(seed as u64, PIECE), "{kind}, {table}, {at}"),
                    Err(_) => wrong += 1,
                }
            }
            assert!((1..pieces.len()).contains(&wrong), "{kind}, {table}: {wrong}");
        }
        let [table] = tables_of(&path, "/folder")[..] else { panic!("one table") };
        let fs = zeroed(table);
        let (folder, mut names) = (wattle_fs::resolve(&*fs, b"/folder").unwrap(), 0);
        let listed = fs.list(folder, &mut |_| {
            names += 1;
            Ok(())
        });
        assert!(listed.is_err() && names > 50, "{names}: {listed:?}");
    }
}
