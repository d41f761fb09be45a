//! HFS+ as TN1150 describes it: volumes that are made here, since no tool on Linux makes wrappers,
//! links of folders, compressed files or a journal that is not empty. What Linux itself writes is
//! judged in the guest (crates/app/tests/guest/hfs.rs).

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::collections::BTreeMap;

use common::hfs::{ROOT, TIME, Volume};
use common::pattern;
use wattle_fs::{DeviceNumber, Error, FileKind, FileSystem, FsNode, Note};

const BLOCK: usize = 4096;

fn open(image: Vec<u8>) -> Box<dyn FileSystem> {
    wattle_fs::open(Box::new(image), None).unwrap()
}

fn listed(fs: &dyn FileSystem, directory: FsNode) -> BTreeMap<String, FsNode> {
    let mut found = BTreeMap::new();
    fs.list(directory, &mut |entry| {
        let twice = found.insert(String::from_utf8(entry.name).unwrap(), entry.node);
        assert_eq!(twice, None);
        Ok(())
    })
    .unwrap();
    found
}

fn names(fs: &dyn FileSystem, path: &str) -> Vec<String> {
    listed(fs, at(fs, path)).into_keys().collect()
}

fn at(fs: &dyn FileSystem, path: &str) -> FsNode {
    wattle_fs::resolve(fs, path.as_bytes()).unwrap()
}

fn try_read(fs: &dyn FileSystem, node: FsNode) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    fs.read(node, 0..u64::MAX, &mut |at, part| {
        assert_eq!(at, bytes.len() as u64, "HFS+ has no holes");
        bytes.extend_from_slice(part);
        Ok(())
    })?;
    Ok(bytes)
}

fn bytes_of(fs: &dyn FileSystem, path: &str) -> Vec<u8> {
    let node = at(fs, path);
    let bytes = try_read(fs, node).unwrap();
    assert_eq!(fs.metadata(node).unwrap().size_bytes, bytes.len() as u64, "{path}");
    // A part alone is the same.
    let (from, to) = (bytes.len() / 3, bytes.len() / 3 + bytes.len() / 2);
    let mut part = Vec::new();
    fs.read(node, from as u64..to as u64, &mut |_, bytes| {
        part.extend_from_slice(bytes);
        Ok(())
    })
    .unwrap();
    assert!(part == bytes[from..to], "{path}: a part");
    bytes
}

#[test]
fn files_and_folders_of_every_shape() {
    let mut volume = Volume::new(6000, BLOCK);
    let sizes = [0, 1, 4095, 4096, 4097, 300_000];
    for size in sizes {
        volume.file(ROOT, &format!("file {size}"), &pattern(size as u64, size));
    }
    // More pieces than fit into a record of the overflow file.
    volume.fragmented(ROOT, "in pieces", &pattern(7, 100 * BLOCK - 5), 100);
    let folder = volume.folder(ROOT, "folder/with a slash");
    volume.file(folder, "zero\0in it", b"zero");
    volume.file(folder, "größe 🦀", b"letters");
    let many = volume.folder(ROOT, "many");
    for number in 0..3000 {
        volume.file(many, &format!("number {number}"), b"");
    }
    let link = volume.file(ROOT, "link", "folder:with a slash/größe 🦀".as_bytes());
    volume.mode(link, 0o120_777);
    let device = volume.file(ROOT, "device", b"");
    volume.mode(device, 0o060_600);
    volume.set(device, 44, &(8_u32 << 20 | 17).to_be_bytes());
    let pipe = volume.file(ROOT, "pipe", b"");
    volume.mode(pipe, 0o010_644);
    let old = volume.file(ROOT, "of Mac OS 9", b"old");
    volume.mode(old, 0);
    volume.set(old, 16, &[0; 4]);
    let fs = open(volume.build());
    assert_eq!(fs.about().kind, "hfsplus");
    assert_eq!(fs.about().label, b"made");
    assert_eq!(fs.about().notes, []);
    assert_eq!(fs.about().size_bytes, 6000 * BLOCK as u64);
    for size in sizes {
        assert!(bytes_of(&*fs, &format!("file {size}")) == pattern(size as u64, size));
    }
    assert!(bytes_of(&*fs, "in pieces") == pattern(7, 100 * BLOCK - 5));
    assert_eq!(names(&*fs, "many").len(), 3000);
    assert_eq!(names(&*fs, "folder:with a slash"), ["größe 🦀", "zero\u{2400}in it"]);
    let target = fs.link(at(&*fs, "link")).unwrap();
    assert_eq!(bytes_of(&*fs, str::from_utf8(&target).unwrap()), b"letters");
    let metadata = |path: &str| fs.metadata(at(&*fs, path)).unwrap();
    assert_eq!(metadata("device").kind, FileKind::BlockDevice);
    assert_eq!(metadata("device").device, Some(DeviceNumber { major: 8, minor: 17 }));
    assert_eq!(metadata("pipe").kind, FileKind::Fifo);
    let found = metadata("file 1");
    assert_eq!((found.uid, found.gid, found.mode, found.links), (501, 20, 0o640, 1));
    assert_eq!(found.modified.seconds, i64::from(TIME) - 2_082_844_800);
    assert_eq!((metadata("of Mac OS 9").mode, metadata("of Mac OS 9").modified.seconds), (0o644, 0));
}
