//! Damaged and hostile images: no panic, no endless loop, no memory without a bound. The same entry
//! points as `fuzz/`, with images that real tools made and random damage in their metadata.

use crate::common;

use std::fs;
use std::path::Path;

use crate::common::{Size, image, make_tree, pattern, program, run};
use wattle_fs::fuzzing::{ALL, FuzzTarget, pack, unpack, xfs_log_example};

#[test]
fn any_bytes_are_no_panic() {
    for (_, target) in ALL {
        target(&[]);
        target(&[0xff; 70_000]);
        target(&pattern(1, 70_000));
    }
}

/// Where the fuzzer's first inputs go, if that is what the tests run for.
fn keep_for_the_fuzzer(name: &str, options: &[&str], image: &[u8]) {
    let Some(corpus) = std::env::var_os("WATTLE_FUZZ_CORPUS") else { return };
    let dir = Path::new(&corpus).join(name);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(format!("made{}", options.concat().replace('/', ""))), pack(image)).unwrap();
}

#[test]
fn what_is_packed_is_unpacked() {
    let mut image = vec![0; 5 * 4096];
    image[4096..4099].fill(7);
    image[19_000] = 1;
    let packed = pack(&image);
    assert_eq!(packed.len(), 4 + 2 * 4100);
    assert_eq!(unpack(&packed), image);
    assert_eq!(unpack(&[]), []);
    assert_eq!(unpack(&[0xFF; 100]).len(), 32 << 20);
}

fn target(name: &str) -> FuzzTarget {
    ALL.into_iter().find(|(target, _)| *target == name).unwrap().1
}

/// Changes a few bytes at a time of the blocks that are not zero, half of the time to values that
/// are extreme.
fn damage(bytes: &[u8], (name, options): (&str, &[&str]), rounds: u64) {
    keep_for_the_fuzzer(name, options, bytes);
    damage_of(name, bytes, rounds);
}

fn damage_of(name: &str, bytes: &[u8], rounds: u64) {
    let target = target(name);
    const BLOCK: usize = 1024;
    let used: Vec<usize> = (0..bytes.len() / BLOCK)
        .filter(|block| bytes[block * BLOCK..][..BLOCK].iter().any(|byte| *byte != 0))
        .collect();
    target(bytes);
    for round in 0..rounds {
        let random: Vec<u64> = pattern(round + 1, 256)
            .chunks_exact(8)
            .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
            .collect();
        let mut damaged = bytes.to_vec();
        let changes = 1 + random[31] as usize % 8;
        for change in random.chunks_exact(3).take(changes) {
            let at = used[change[0] as usize % used.len()] * BLOCK + change[1] as usize % BLOCK;
            damaged[at] = match change[2] % 8 {
                0 => 0,
                1 => 0xff,
                2 => 0x80,
                3 => damaged[at].wrapping_add(1),
                _ => change[2] as u8,
            };
        }
        target(&damaged);
    }
}

#[test]
fn damaged_ext_images_are_no_panic() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    make_tree(tree.path(), Size { entries: 60, pieces: 40 });
    // What is large is not what this is about.
    for large in ["file-3145728", "file-300000", "medium"] {
        let _ =
            fs::remove_file(tree.path().join(large)).or_else(|_| fs::remove_dir_all(tree.path().join(large)));
    }
    for options in [
        &["-t", "ext2", "-b", "1024"][..],
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"],
        &["-t", "ext4"],
    ] {
        let path = image(&dir, "image", 2 << 20);
        if made(tree.path(), &path, options).is_none() {
            return;
        }
        damage(&fs::read(&path).unwrap(), ("ext", options), 400);
    }
}

fn made(tree: &Path, path: &Path, options: &[&str]) -> Option<()> {
    run(program("mke2fs")
        .args(["-q", "-F", "-N", "400", "-O", "^has_journal"])
        .args(options)
        .arg("-d")
        .arg(tree)
        .arg(path))
}

/// All that volumes of Macs have, with a journal that is not empty.
#[test]
fn damaged_hfs_images_are_no_panic() {
    for image in [common::hfs_parts::example(4096), common::hfs_parts::example(512)] {
        keep_for_the_fuzzer("hfs", &["made"], &image);
        damage_of("hfs", &image, 1500);
    }
}

/// Fast commits of names, inodes and ranges, with and without checksums of what they change.
#[test]
fn damaged_fast_commits_are_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    for options in [&["-O", "fast_commit,^metadata_csum"][..], &["-O", "fast_commit"]] {
        let path = image(&dir, "image", 8 << 20);
        let small = ["-q", "-F", "-t", "ext4", "-b", "1024", "-N", "64", "-J", "size=2,fast_commit_size=64"];
        if run(program("mke2fs").args(small).args(options).arg(&path)).is_none() {
            return;
        }
        let crashed = dir.path().join("crashed");
        let worked = common::mounted(&path, "loop,commit=300", |at| {
            fs::create_dir(at.join("kept")).unwrap();
            run(program("sync").arg("-f").arg(at)).unwrap();
            for ix in 0..30 {
                let name = at.join(if ix % 3 == 0 { "kept" } else { "." }).join(format!("file-{ix}"));
                fs::write(&name, pattern(ix, 3000)).unwrap();
                fs::hard_link(&name, at.join(format!("again-{ix}"))).unwrap();
                if ix % 4 == 0 {
                    fs::remove_file(&name).unwrap();
                }
                fs::File::open(at.join(format!("again-{ix}"))).unwrap().sync_all().unwrap();
            }
            fs::copy(&path, &crashed).unwrap();
        });
        if worked.is_none() {
            return;
        }
        let notes = common::open(&crashed).about().notes.clone();
        let is_fast = |note: &wattle_fs::Note| matches!(note, wattle_fs::Note::FastCommitsApplied { .. });
        assert!(notes.iter().any(is_fast), "{notes:?}");
        damage(&fs::read(&crashed).unwrap(), ("ext", options), 400);
    }
}

/// Version 4 has no checksums in the way.
#[test]
fn damaged_xfs_images_are_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tempfile::tempdir().unwrap();
    make_tree(tree.path(), Size { entries: 200, pieces: 40 });
    for large in ["file-3145728", "file-300000"] {
        fs::remove_file(tree.path().join(large)).unwrap();
    }
    for options in [&["-m", "crc=0"][..], &[]] {
        let path = image(&dir, "image", 20 << 20);
        let small = ["-q", "-f", "-d", "agcount=1,size=16m", "--unsupported"];
        if run(program("mkfs.xfs").args(small).args(options).arg(&path)).is_none() {
            return;
        }
        let (frozen, crashed) = (dir.path().join("frozen"), dir.path().join("crashed"));
        common::mounted(&path, "loop", |at| {
            run(program("cp").arg("-a").arg(tree.path().join(".")).arg(at)).unwrap();
            run(program("sync").arg("-f").arg(at)).unwrap();
            fs::copy(&path, &crashed).unwrap();
            run(program("fsfreeze").arg("-f").arg(at)).unwrap();
            let copied = fs::copy(&path, &frozen);
            run(program("fsfreeze").arg("-u").arg(at)).unwrap();
            copied.unwrap();
        });
        damage(&fs::read(&path).unwrap(), ("xfs", options), 100);
        // Their logs have records to look into, and to apply.
        for copy in [frozen, crashed].iter().filter(|copy| copy.exists()) {
            damage(&fs::read(copy).unwrap(), ("xfs", options), 100);
        }
    }
}

/// Images of a few files, of every kind that Windows makes.
#[test]
fn damaged_images_of_windows_are_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("at");
    fs::create_dir(&at).unwrap();
    for (name, size, make) in [
        ("fat", 1 << 20, &["mkfs.vfat", "-F", "12"][..]),
        ("fat", 9 << 20, &["mkfs.vfat", "-F", "16", "-s", "1"]),
        ("fat", 34 << 20, &["mkfs.vfat", "-F", "32", "-s", "1"]),
        ("fat", 4 << 20, &["mkfs.exfat", "-c", "512"]),
        ("ntfs", 4 << 20, &["mkntfs", "-q", "-F", "-Q", "-s", "512", "-c", "512"]),
        ("ntfs", 6 << 20, &["mkntfs", "-q", "-F", "-Q", "-s", "512"]),
    ] {
        let path = image(&dir, "image", size);
        if run(program(make[0]).args(&make[1..]).arg(&path)).is_none() {
            return;
        }
        if name == "ntfs" {
            let mount = ["-o", "compression"];
            if run(program("ntfs-3g").args(mount).arg(&path).arg(&at)).is_none() {
                return;
            }
            for ix in 0..80 {
                fs::write(at.join(format!("file {ix}")), pattern(ix, ix as usize * 100)).unwrap();
            }
            let packed = at.join("packed");
            fs::create_dir(&packed).unwrap();
            let compress = ["-h", "-n", "system.ntfs_attrib_be", "-v", "0x00000810"];
            run(program("setfattr").args(compress).arg(&packed)).unwrap();
            fs::write(packed.join("text"), b"again and ".repeat(9000)).unwrap();
            std::os::unix::fs::symlink("file 1", at.join("link")).unwrap();
            assert!(common::unmount(&at));
        } else if make[0] == "mkfs.vfat" {
            let file = dir.path().join("file");
            fs::write(&file, pattern(3, 20_000)).unwrap();
            for ix in 0..20 {
                let to = format!("::/a long name of {ix}");
                run(program("mcopy").arg("-i").arg(&path).arg(&file).arg(to)).unwrap();
            }
        }
        let options: Vec<&str> = make.to_vec();
        // Small images are read sooner.
        let rounds = (600 << 20) / size;
        damage(&fs::read(&path).unwrap(), (name, &options), rounds);
    }
}

#[test]
fn damaged_logs_of_xfs_are_no_panic() {
    let mut example = xfs_log_example();
    if let Some(corpus) = std::env::var_os("WATTLE_FUZZ_CORPUS") {
        let dir = Path::new(&corpus).join("xfs_log");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("made"), &example).unwrap();
    }
    // `damage` looks for blocks that are not empty, in whole ones.
    example.resize(example.len().next_multiple_of(1024), 0);
    damage_of("xfs_log", &example, 3000);
}

#[test]
fn damaged_btrfs_images_are_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tempfile::tempdir().unwrap();
    make_tree(tree.path(), Size { entries: 100, pieces: 40 });
    for large in ["file-3145728", "file-300000", "socket", "sparse", "only-a-hole"] {
        fs::remove_file(tree.path().join(large)).unwrap();
    }
    for options in [&["-M", "--nodesize", "4096"][..], &["-M"]] {
        let path = image(&dir, "image", 18 << 20);
        let mut mkfs = program("mkfs.btrfs");
        if run(mkfs.args(["-q", "-f", "--rootdir"]).arg(tree.path()).args(options).arg(&path)).is_none() {
            return;
        }
        damage(&fs::read(&path).unwrap(), ("btrfs", options), 100);
        let crashed = dir.path().join("crashed");
        let worked = common::mounted(&path, "loop,commit=300", |at| {
            fs::write(at.join("small/new"), pattern(3, 9000)).unwrap();
            fs::remove_file(at.join("one")).unwrap();
            fs::rename(at.join("file-100"), at.join("small/moved")).unwrap();
            fs::File::open(at.join("small/new")).unwrap().sync_all().unwrap();
            fs::File::open(at.join("small")).unwrap().sync_all().unwrap();
            fs::copy(&path, &crashed).unwrap();
        });
        // It has a log to apply.
        if worked.is_some() {
            assert_ne!(common::open(&crashed).about().notes, []);
            damage(&fs::read(&crashed).unwrap(), ("btrfs", options), 100);
        }
    }
}

/// Copies and parity that do not fit, missing devices, and damaged maps.
#[test]
fn damaged_devices_of_btrfs_are_no_panic() {
    /// Of each device: the rest is empty, and reads of it are errors.
    const KEPT_BYTES: usize = 40 << 20;
    let profiles = ["single", "raid1", "raid0", "raid10", "raid5", "raid6"];
    for (profile, count) in profiles.into_iter().zip([2, 3, 2, 4, 3, 4]) {
        let options = ["--mixed", "-d", profile, "-m", profile];
        let Some(pool) = common::pool::Pool::make(&options, &vec![100; count]) else { return };
        let filled = pool.filled("", |at| {
            fs::write(at.join("file"), pattern(1, 200_000)).unwrap();
            for ix in 0..60 {
                fs::write(at.join(format!("file-{ix}")), pattern(ix, 3000)).unwrap();
            }
        });
        if filled.is_none() {
            return;
        }
        for missing in [0, 1] {
            let mut all = vec![count as u8 - 1, missing, count as u8 - 1];
            pool.devices.iter().for_each(|device| all.extend(&fs::read(device).unwrap()[..KEPT_BYTES]));
            damage_of("btrfs_devices", &all, 6);
        }
    }
}
