//! Images made by mkfs.btrfs and the kernel.

use crate::common;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::common::{
    Except, Image, Size, assert_paths, assert_same, entries, image, make_tree, mounted, open, pattern,
    program, run,
};
use tempfile::TempDir;
use wattle_fs::{Error, FileKind, FileSystem, Note};

const TREE: Size = Size { entries: 1200, pieces: 400 };

fn tree() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    make_tree(dir.path(), TREE);
    // A file that compresses well, in pieces that end within a sector, and one that is stored in
    // its inode's item.
    let text: Vec<u8> =
        (0..700_001_u32).flat_map(|ix| (ix / 7).to_string().into_bytes()).take(1_000_001).collect();
    fs::write(dir.path().join("text"), &text).unwrap();
    fs::write(dir.path().join("short-text"), &text[..1500]).unwrap();
    dir
}

fn empty(dir: &TempDir, name: &str, options: &[&str]) -> Option<PathBuf> {
    let path = image(dir, name, 400 << 20);
    run(program("mkfs.btrfs").args(["-q", "-f", "-L", "some label"]).args(options).arg(&path))?;
    Some(path)
}

fn copy(tree: &Path, at: &Path) {
    run(program("cp").arg("-a").arg(tree.join(".")).arg(at)).unwrap();
}

fn btrfs(args: &[&str], path: &Path) {
    run(program("btrfs").args(args).arg(path)).unwrap();
}

#[test]
fn what_mkfs_made_comes_out() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tree());
    // mkfs.btrfs takes no sockets, and writes every device with the number 0.
    for name in ["socket", "null", "disk", "wide", "most"] {
        let _ = fs::remove_file(tree.path().join(name));
    }
    let from = tree.path().to_str().unwrap();
    for options in [
        &["--csum", "crc32c"][..],
        &["--csum", "xxhash", "--nodesize", "4096"],
        &["--csum", "sha256", "-O", "^no-holes,^skinny-metadata"],
        &["--csum", "blake2", "--nodesize", "65536"],
        &["-M", "-m", "dup", "-d", "dup"],
    ] {
        let with_tree = [options, &["--rootdir", from]].concat();
        let Some(path) = empty(&dir, "image", &with_tree) else { return };
        let fs = open(&path);
        assert_eq!((fs.about().kind, &fs.about().label[..]), ("btrfs", &b"some label"[..]), "{options:?}");
        assert_eq!(fs.about().notes, [], "{options:?}");
        assert_same(&*fs, tree.path(), Except { times: true, holes: true, ..Except::default() });
        assert_paths(&*fs);
    }
}

/// Compression of every kind, extents that are shared or allocated in advance, nanoseconds, deep
/// trees.
#[test]
fn what_the_kernel_wrote_comes_out() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tree());
    for (options, mount) in [
        (&[][..], "loop"),
        (&["--nodesize", "4096"], "loop,compress-force=zlib"),
        (&["--csum", "xxhash"], "loop,compress-force=lzo"),
        (&["-O", "^no-holes", "-d", "dup"], "loop,compress-force=zstd:9"),
        (&[], "loop,nodatacow"),
    ] {
        let Some(path) = empty(&dir, "image", options) else { return };
        let written = mounted(&path, mount, |at| {
            copy(tree.path(), at);
            let one = at.join("one");
            run(program("fallocate").args(["-n", "-o", "1M", "-l", "8M"]).arg(&one)).unwrap();
            run(program("touch").arg("-r").arg(tree.path().join("one")).arg(&one)).unwrap();
            // A part of a compressed extent becomes another one.
            File::options()
                .write(true)
                .open(at.join("text"))
                .unwrap()
                .write_all_at(b"changed", 200_000)
                .unwrap();
        });
        if written.is_none() {
            return;
        }
        let text = tree.path().join("text");
        let before = fs::read(&text).unwrap();
        File::options().write(true).open(&text).unwrap().write_all_at(b"changed", 200_000).unwrap();
        let fs = open(&path);
        assert_eq!(fs.about().notes, [], "{mount}");
        assert_same(&*fs, tree.path(), Except { times_of: Some("text"), ..Except::default() });
        assert_paths(&*fs);
        fs::write(&text, before).unwrap();
    }
}

/// What lies on a place of a compressed extent is needed for all of the file that is made of the
/// extent, and for no more: as reading shows once the place is damaged.
#[test]
fn files_on_places_that_are_compressed() {
    let (dir, text) = (tempfile::tempdir().unwrap(), fs::read(tree().path().join("text")).unwrap());
    for compress in ["zstd", "lzo", "zlib"] {
        let Some(path) = empty(&dir, "image", &["-d", "single"]) else { return };
        let written = mounted(&path, &format!("loop,compress-force={compress}"), |at| {
            fs::write(at.join("text"), &text).unwrap();
        });
        if written.is_none() {
            return;
        }
        let (mut runs, fs) = (Vec::new(), open(&path));
        let file = wattle_fs::resolve(&*fs, b"/text").unwrap();
        fs.runs(file, &mut |run| {
            runs.push(run);
            Ok(())
        })
        .unwrap();
        assert!(runs.len() > 3 && runs.iter().all(|run| run.unpacked_len > Some(run.len)), "{runs:?}");
        let told = |place: std::ops::Range<u64>| {
            let found = wattle_fs::files_at(&*fs, &[place], 1000);
            assert!(found.complete);
            found.files.into_iter().map(|file| (file.path, file.bytes)).collect::<Vec<_>>()
        };
        let (end, name) = (text.len() as u64, b"/text".to_vec());
        assert_eq!(told(0..400 << 20), [(name.clone(), 0..end)], "{compress}");
        let image = File::options().read(true).write(true).open(&path).unwrap();
        for run in [runs[0], runs[2], runs[runs.len() - 1]] {
            let place = run.disk_offset + run.len - 4096;
            let made = run.file_offset..run.file_offset + run.unpacked_len.unwrap();
            assert_eq!(told(place + 7..place + 8), [(name.clone(), made.clone())], "{compress}: {run:?}");
            let mut kept = [0; 4096];
            image.read_exact_at(&mut kept, place).unwrap();
            image.write_all_at(&[0xa5; 4096], place).unwrap();
            let damaged = open(&path);
            let reads = |at: u64| damaged.read(file, at..at + 1, &mut |_, _| Ok(())).is_ok();
            assert!(!reads(made.start) && !reads(made.end - 1), "{compress}: {run:?}");
            assert!(made.start == 0 || reads(made.start - 1), "{compress}: {run:?}");
            assert!(made.end == end || reads(made.end), "{compress}: {run:?}");
            image.write_all_at(&kept, place).unwrap();
        }
    }
}

/// Subvolumes are directories; a snapshot has an empty one where another subvolume was; the default
/// one is what is shown.
#[test]
fn subvolumes_are_directories() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = empty(&dir, "image", &[]) else { return };
    let written = mounted(&path, "loop", |at| {
        btrfs(&["subvolume", "create"], &at.join("home"));
        btrfs(&["subvolume", "create"], &at.join("home/inner"));
        fs::write(at.join("home/file"), "in home").unwrap();
        fs::write(at.join("home/inner/file"), "in inner").unwrap();
        let snapshot = at.join("snapshot");
        run(program("btrfs").args(["subvolume", "snapshot", "-r"]).arg(at.join("home")).arg(&snapshot))
            .unwrap();
        fs::write(at.join("home/later"), "").unwrap();
    });
    if written.is_none() {
        return;
    }
    let fs = open(&path);
    let text = |fs: &dyn FileSystem, path: &str| {
        let node = wattle_fs::resolve(fs, path.as_bytes())?;
        let len = fs.metadata(node)?.size_bytes as usize;
        Ok::<_, Error>(String::from_utf8(common::read(fs, node, 0..u64::MAX, len).0).unwrap())
    };
    assert_eq!(text(&*fs, "/home/file").unwrap(), "in home");
    assert_eq!(text(&*fs, "/home/inner/file").unwrap(), "in inner");
    assert_eq!(text(&*fs, "/snapshot/file").unwrap(), "in home");
    assert!(matches!(text(&*fs, "/snapshot/later"), Err(Error::NoSuchEntry)));
    let inner = wattle_fs::resolve(&*fs, b"/snapshot/inner").unwrap();
    assert_eq!(fs.metadata(inner).unwrap().kind, FileKind::Directory);
    assert!(entries(&*fs, inner).is_empty());
    drop(fs);

    mounted(&path, "loop", |at| btrfs(&["subvolume", "set-default"], &at.join("home"))).unwrap();
    let fs = open(&path);
    assert!(matches!(fs.about().notes[..], [Note::DefaultSubvolume { top_level: 5, .. }]));
    assert_eq!(text(&*fs, "/file").unwrap(), "in home");
    assert!(matches!(text(&*fs, "/snapshot/file"), Err(Error::NoSuchEntry)));
    let image = || Box::new(Image::open(&path));
    let top = wattle_fs::open(image(), Some(5)).unwrap();
    assert_eq!(text(&*top, "/snapshot/file").unwrap(), "in home");
    let missing = wattle_fs::open(image(), Some(999)).err().unwrap();
    assert_eq!(missing.to_string(), "btrfs subvolume 999 is damaged: there is no tree of it");
}

/// What Linux shows of snapshots whose subvolume had subvolumes, in every place: those that are
/// there with all that is in them, and empty directories where they are not, also if a subvolume
/// lies elsewhere in the snapshot by now.
#[test]
fn subvolumes_in_snapshots_are_what_linux_shows() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = empty(&dir, "image", &[]) else { return };
    let snapshot = |from: &Path, to: &Path| {
        run(program("btrfs").args(["subvolume", "snapshot"]).arg(from).arg(to)).unwrap();
    };
    let written = mounted(&path, "loop", |at| {
        for name in ["a", "a/b", "a/b/c", "a/d"] {
            btrfs(&["subvolume", "create"], &at.join(name));
            fs::write(at.join(name).join("file"), name).unwrap();
        }
        for name in ["one", "two", "a/of-b", "a/b/c/of-a"] {
            snapshot(&at.join(if name == "a/of-b" { "a/b" } else { "a" }), &at.join(name));
        }
        // The subvolume moves into a snapshot that has its place already, elsewhere.
        fs::rename(at.join("a/d"), at.join("one/moved")).unwrap();
        fs::create_dir(at.join("two/sub")).unwrap();
        fs::rename(at.join("a/b"), at.join("two/sub/b")).unwrap();
    });
    if written.is_none() {
        return;
    }
    let fs = open(&path);
    mounted(&path, "loop,ro", |at| {
        let mut waiting = vec![(at.to_owned(), fs.root())];
        let (mut files, mut stubs) = (0, 0);
        while let Some((path, node)) = waiting.pop() {
            let here = entries(&*fs, node);
            let mut names: Vec<_> =
                fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name().into_vec()).collect();
            names.sort();
            assert_eq!(here.keys().collect::<Vec<_>>(), names.iter().collect::<Vec<_>>(), "{path:?}");
            for (name, node) in here {
                let path = path.join(OsStr::from_bytes(&name));
                let (there, here) = (fs::symlink_metadata(&path).unwrap(), fs.metadata(node).unwrap());
                assert_eq!((node.inode, here.mode), (there.ino(), there.mode() & 0o7777), "{path:?}");
                stubs += u32::from(fs.is_stub(node));
                match there.is_dir() {
                    true => waiting.push((path, node)),
                    false => {
                        let content = fs::read(&path).unwrap();
                        assert_eq!(common::read(&*fs, node, 0..u64::MAX, content.len()).0, content);
                        files += 1;
                    }
                }
            }
        }
        assert!(files >= 8 && stubs >= 6, "{files} files, {stubs} empty places");
    })
    .unwrap();
}

/// Bytes that the drive changed are found; with two copies the other one is taken.
#[test]
fn checksums_are_verified_and_the_other_copy_is_taken() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let pattern = common::pattern(5, 100_000);
    fs::write(tree.path().join("file"), &pattern).unwrap();
    for copies in ["single", "dup"] {
        let from = tree.path().to_str().unwrap();
        let Some(path) = empty(&dir, "image", &["-d", copies, "-m", "dup", "--rootdir", from]) else {
            return;
        };
        let mut bytes = fs::read(&path).unwrap();
        // The first superblock, a copy of the data, and of every block of the tree of files.
        bytes[(64 << 10) + 100] ^= 1;
        let place = bytes.windows(16).position(|window| window == &pattern[50_000..50_016]).unwrap();
        bytes[place] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let fs = open(&path);
        let node = wattle_fs::resolve(&*fs, b"/file").unwrap();
        let mut found = vec![0; pattern.len()];
        let read = fs.read(node, 0..u64::MAX, &mut |offset, bytes| {
            found[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
            Ok(())
        });
        match copies {
            "dup" => assert!(read.is_ok() && found == pattern),
            _ => {
                let error = read.unwrap_err().to_string();
                assert!(error.starts_with("btrfs extent "), "{error}");
                assert!(error.ends_with("is damaged: the checksum of the data there is wrong"), "{error}");
            }
        }
    }
}

/// What was flushed file by file since the last transaction is in a log, which is applied.
#[test]
fn a_log_that_is_not_empty_is_applied() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = empty(&dir, "image", &[]) else { return };
    let crashed = dir.path().join("crashed");
    let copied = mounted(&path, "loop,commit=300", |at| {
        fs::write(at.join("file"), "before").unwrap();
        run(program("sync").arg("-f").arg(at)).unwrap();
        let file = File::create(at.join("file")).unwrap();
        file.write_all_at(b"later", 0).unwrap();
        file.sync_all().unwrap();
        fs::copy(&path, &crashed).unwrap();
    });
    if copied.is_some() {
        let fs = open(&crashed);
        assert!(matches!(fs.about().notes[..], [Note::LogTreesApplied { items: 1.. }]), "{:?}", fs.about());
        let file = wattle_fs::resolve(&*fs, b"/file").unwrap();
        let mut data = Vec::new();
        fs.read(file, 0..u64::MAX, &mut |_, bytes| {
            data.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
        assert_eq!(data, b"later");
        assert_eq!(open(&path).about().notes, []);
    }
}

/// Directories that are flushed have entries in the log, and what they have no more: names of files
/// that were there before, whose inodes are not in the log as a whole.
#[test]
fn directories_in_a_log_are_what_linux_shows() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = empty(&dir, "image", &[]) else { return };
    let (crashed, replayed) = (dir.path().join("crashed"), dir.path().join("replayed"));
    let worked = mounted(&path, "loop,commit=300", |at| {
        let names = ["stays", "goes", "moves", "is-linked", "is-replaced"];
        for name in ["old", "other"] {
            fs::create_dir(at.join(name)).unwrap();
        }
        for name in names {
            fs::write(at.join("old").join(name), name).unwrap();
        }
        run(program("sync").arg("-f").arg(at)).unwrap();
        let old = at.join("old");
        fs::hard_link(old.join("is-linked"), old.join("again")).unwrap();
        fs::hard_link(old.join("stays"), at.join("other/linked")).unwrap();
        fs::remove_file(old.join("goes")).unwrap();
        fs::rename(old.join("moves"), at.join("other/moved")).unwrap();
        fs::write(old.join("new"), "new").unwrap();
        fs::rename(old.join("new"), old.join("is-replaced")).unwrap();
        fs::create_dir(old.join("made")).unwrap();
        fs::write(old.join("made/within"), "within").unwrap();
        File::open(&old).unwrap().sync_all().unwrap();
        fs::copy(&path, &crashed).unwrap();
    });
    if worked.is_none() {
        return;
    }
    assert_names_are_what_linux_shows(&crashed, &replayed, &["old", "other", "old/made"]);
}

/// A file with more names than one item holds: only those of its items that lie in leaves which
/// changed are in the log, and all other names stay.
#[test]
fn names_of_a_file_that_are_not_in_a_log_stay() {
    const MANY: usize = 1500;
    for (node, names, len) in [("4096", 60, 200), ("16384", 151, 200), ("16384", MANY, 20)] {
        let dir = tempfile::tempdir().unwrap();
        let Some(path) = empty(&dir, "image", &["-n", node, "-m", "single"]) else { return };
        let (crashed, replayed) = (dir.path().join("crashed"), dir.path().join("replayed"));
        let link = |ix: usize| format!("crowded/link-{ix:04}-{}", "n".repeat(len));
        let made = mounted(&path, "loop", |at| {
            fs::create_dir(at.join("crowded")).unwrap();
            fs::write(at.join("crowded/file"), pattern(1, 4000)).unwrap();
            (0..names).for_each(|ix| fs::hard_link(at.join("crowded/file"), at.join(link(ix))).unwrap());
        });
        if made.is_none() {
            return;
        }
        let mut applied = 0;
        for change in 0..5 {
            mounted(&path, "loop,commit=300", |at| {
                let (file, new) = (at.join("crowded/file"), at.join(link(names + change)));
                let (first, last) = (at.join(link(change)), at.join(link(names - 1 - change)));
                if change != 1 {
                    let file = File::options().write(true).open(&file).unwrap();
                    file.write_all_at(b"new", 0).unwrap();
                    file.sync_all().unwrap();
                }
                match change {
                    0 => {}
                    1 => fs::hard_link(&file, new).unwrap(),
                    // One in the item that is for the directory, and one in an item of its own.
                    2 => [&first, &last].into_iter().for_each(|name| fs::remove_file(name).unwrap()),
                    3 => {
                        fs::remove_file(&first).unwrap();
                        fs::hard_link(&file, first).unwrap();
                        fs::hard_link(&file, new).unwrap();
                    }
                    _ => {
                        fs::write(at.join("other"), "other").unwrap();
                        fs::rename(at.join("other"), last).unwrap();
                    }
                }
                if change > 0 {
                    File::open(at.join("crowded")).unwrap().sync_all().unwrap();
                }
                fs::copy(&path, &crashed).unwrap();
            })
            .unwrap();
            let notes = open(&crashed).about().notes.clone();
            applied += usize::from(matches!(notes[..], [Note::LogTreesApplied { items: 1.. }]));
            assert_names_are_what_linux_shows(&crashed, &replayed, &["", "crowded"]);
        }
        // After some changes Linux ends the transaction instead.
        assert!(applied >= 3, "{applied}: {node} {names}");
    }
}

/// Compares the names in these directories, and how many links each leads to, with what Linux shows
/// of a copy that is mounted.
fn assert_names_are_what_linux_shows(crashed: &Path, replayed: &Path, directories: &[&str]) {
    fs::copy(crashed, replayed).unwrap();
    let fs = open(crashed);
    assert_eq!(fs.not_as_mounted(), []);
    mounted(replayed, "loop", |at| {
        for path in directories {
            let node = wattle_fs::resolve(&*fs, path.as_bytes()).unwrap();
            let mut here: Vec<_> = Vec::new();
            fs.list(node, &mut |entry| {
                let links = fs.metadata(entry.node)?.links;
                here.push((String::from_utf8_lossy(&entry.name).into_owned(), u64::from(links)));
                Ok(())
            })
            .unwrap();
            here.sort();
            let entries = fs::read_dir(at.join(path)).unwrap().map(Result::unwrap);
            let mut there: Vec<_> = entries
                .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().nlink()))
                .collect();
            there.sort();
            assert_eq!(here, there, "{path}");
        }
    })
    .unwrap();
}

#[test]
fn several_devices_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (image(&dir, "first", 200 << 20), image(&dir, "second", 200 << 20));
    if run(program("mkfs.btrfs").args(["-q", "-f"]).arg(&first).arg(&second)).is_none() {
        return;
    }
    let error = wattle_fs::open(Box::new(Image::open(&first)), None).err().unwrap();
    assert_eq!(error.to_string(), "btrfs on several devices, of which one is given: not supported");
}
