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
