//! What was formatted over something else, and what has lost its head.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::common::{Image, image, open, program, read, run};
use tempfile::TempDir;
use wattle_fs::{Error, Note, ReadAt};

/// The first superblock of a btrfs.
const BTRFS_AT: usize = 64 << 10;

/// An image of a btrfs with a file, or a device of several.
fn btrfs(dir: &TempDir, name: &str, with: &[&Path]) -> Option<PathBuf> {
    let path = image(dir, name, 200 << 20);
    let files = tempfile::tempdir().unwrap();
    fs::write(files.path().join("old"), b"of btrfs").unwrap();
    let mut make = program("mkfs.btrfs");
    make.args(["-q", "-f"]);
    match with {
        [] => make.arg("--rootdir").arg(files.path()),
        _ => make.args(["-m", "raid1", "-d", "raid1"]).args(with),
    };
    run(make.arg(&path))?;
    Some(path)
}

fn part_of(path: &Path, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fs::File::open(path).unwrap().read_exact_at(&mut bytes, at as u64).unwrap();
    bytes
}

fn write_at(path: &Path, at: usize, bytes: &[u8]) {
    fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, at as u64).unwrap();
}

/// A format leaves superblocks of a btrfs that was there before, and a btrfs nothing of what was
/// there before it.
#[test]
fn what_is_formatted_over_a_btrfs_is_what_is_there() {
    let formats: [(&str, &str, &[&str]); 5] = [
        ("mkntfs", "ntfs", &["-q", "-F", "-Q", "-c", "262144"]),
        ("mkfs.exfat", "exfat", &[]),
        ("mkfs.vfat", "vfat", &["-F", "32"]),
        ("mkfs.vfat", "vfat", &["-F", "16"]),
        ("mkfs.vfat", "vfat", &["-F", "12", "-s", "128"]),
    ];
    for (program_of, kind, args) in formats {
        let dir = tempfile::tempdir().unwrap();
        let Some(path) = btrfs(&dir, "over", &[]) else { return };
        let superblock = part_of(&path, BTRFS_AT, 4096);
        assert_eq!(open(&path).about().kind, "btrfs");
        if run(program(program_of).args(args).arg(&path)).is_none() {
            return;
        }
        for restored in [false, true] {
            if restored {
                // A slack that nothing was written to.
                write_at(&path, BTRFS_AT, &superblock);
            }
            assert_eq!(open(&path).about().kind, kind, "{args:?}, {restored}");
            let usage = wattle_fs::usage(Box::new(Image::open(&path)));
            assert!(matches!(usage, Err(Error::Unrecognised)), "{usage:?}");
            let meant = wattle_fs::open(Box::new(Image::open(&path)), Some(5)).map(|fs| fs.about().kind);
            assert!(matches!(meant, Ok("btrfs") | Err(Error::Damaged { .. })), "{args:?}: {meant:?}");
        }
    }
}

/// Of a btrfs on several devices one has become something else: it is that, and the others lack it.
#[test]
fn a_device_that_was_formatted_anew_is_not_of_its_btrfs_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let other = image(&dir, "other", 200 << 20);
    let Some(path) = btrfs(&dir, "anew", &[&other]) else { return };
    if run(program("mkfs.exfat").arg(&path)).is_none() {
        return;
    }
    let readers = |paths: [&Path; 2]| {
        paths.into_iter().map(|path| Box::new(Image::open(path)) as Box<dyn ReadAt>).collect::<Vec<_>>()
    };
    let found = wattle_fs::open_devices(readers([&path, &other]), None).unwrap();
    assert_eq!(found.about().kind, "exfat");
    let found = wattle_fs::open_devices(readers([&other, &path]), None).unwrap();
    let here: Vec<_> = found.devices().iter().filter_map(|device| device.given).collect();
    assert_eq!((found.about().kind, found.devices().len(), &here[..]), ("btrfs", 2, &[0][..]));
    let found = &wattle_fs::on_several_devices(readers([&path, &other]))[0];
    let here: Vec<_> = found.devices.iter().filter_map(|device| device.given).collect();
    assert_eq!(here, [1]);
}

/// Boot code in front of a btrfs may have the fields of FAT.
#[test]
fn a_btrfs_with_boot_code_is_a_btrfs() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = btrfs(&dir, "boot", &[]) else { return };
    let fat = image(&dir, "fat", 200 << 20);
    if run(program("mkfs.vfat").args(["-F", "32"]).arg(&fat)).is_none() {
        return;
    }
    write_at(&path, 0, &part_of(&fat, 0, 512));
    assert_eq!(open(&path).about().kind, "btrfs");
}

/// A device whose first bytes cannot be read.
struct BadHead(Image, u64);

impl ReadAt for BadHead {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        match offset < self.1 {
            true => Err(std::io::Error::other("a bad spot")),
            false => self.0.read_at(offset, into),
        }
    }

    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
}

/// A boot sector that is gone, or cannot be read, has a copy; btrfs needs none.
#[test]
fn a_head_that_is_gone_hides_no_file_system() {
    let formats: [(&str, &str, &[&str]); 3] = [
        ("mkntfs", "ntfs", &["-q", "-F", "-Q"]),
        ("mkfs.exfat", "exfat", &[]),
        ("mkfs.vfat", "vfat", &["-F", "32"]),
    ];
    for (program_of, kind, args) in formats {
        let dir = tempfile::tempdir().unwrap();
        let path = image(&dir, "head", 200 << 20);
        if run(program(program_of).args(args).arg(&path)).is_none() {
            return;
        }
        let whole = open(&path);
        assert_eq!(whole.about().notes, []);
        write_at(&path, 0, &[0; 512]);
        for unreadable in [0, 512] {
            let image = Box::new(BadHead(Image::open(&path), unreadable));
            let fs = wattle_fs::open(image, None).unwrap();
            assert_eq!((fs.about().kind, &fs.about().uuid), (kind, &whole.about().uuid));
            assert!(matches!(fs.about().notes[..], [Note::BootCopy { .. }]), "{:?}", fs.about().notes);
            assert!(!fs.not_as_mounted().is_empty());
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = btrfs(&dir, "head", &[]) else { return };
    let fs = wattle_fs::open(Box::new(BadHead(Image::open(&path), BTRFS_AT as u64)), None).unwrap();
    assert_eq!((fs.about().kind, &fs.about().notes[..]), ("btrfs", &[][..]));
    assert_eq!(read(&*fs, wattle_fs::resolve(&*fs, b"/old").unwrap(), 0..u64::MAX, 8).0, b"of btrfs");
    // Nothing that is known is behind it.
    let path = image(&dir, "nothing", 1 << 20);
    let nothing = wattle_fs::open(Box::new(BadHead(Image::open(&path), BTRFS_AT as u64)), None);
    assert!(matches!(nothing.map(|_| ()), Err(Error::Read { offset: 1024, .. })));
}
