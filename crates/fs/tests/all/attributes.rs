//! Names and values of extended attributes are those that Linux shows, wherever a file system keeps
//! them.

use crate::common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::{image, mounted, open, program, run};
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};
use wattle_fs::{Error, FileSystem, ReadAt};

/// An ACL of more than what the permissions say: version 2, then tag, permissions and number of
/// each entry.
fn acl() -> Vec<u8> {
    let entries =
        [(0x01, 6, u32::MAX), (0x02, 4, 1000), (0x04, 4, u32::MAX), (0x10, 4, u32::MAX), (0x20, 4, u32::MAX)];
    let entry = |(tag, rights, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    2_u32.to_le_bytes().into_iter().chain(entries.into_iter().flat_map(entry)).collect()
}

fn set(path: &Path, name: &str, value: &[u8]) {
    lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

/// Files with attributes of every kind; and `many` of them on one, in every form that trees of them
/// have.
fn make(at: &Path, many: usize, large_bytes: usize) {
    let file = |name: &str| {
        let path = at.join(name);
        fs::write(&path, name).unwrap();
        path
    };
    file("plain");
    set(&file("commented"), "user.comment", b"of value");
    let shared = file("shared");
    set(&shared, "system.posix_acl_access", &acl());
    set(&shared, "trusted.of-root", b"1");
    set(&shared, "security.label", b"secret");
    set(&file("large"), "user.large", &vec![b'x'; large_bytes]);
    let directory = at.join("directory");
    fs::create_dir(&directory).unwrap();
    set(&directory, "system.posix_acl_default", &acl());
    fs::write(directory.join("inherits"), "").unwrap();
    symlink("nowhere", at.join("link")).unwrap();
    set(&at.join("link"), "trusted.of-a-link", b"1");
    for (name, many) in [("some", 10), ("many", many)] {
        let path = file(name);
        for number in 0..many {
            set(&path, &format!("user.number-{number}"), format!("{number}").as_bytes());
        }
    }
}

/// What Linux shows at each path: names, and values.
fn shown(at: &Path) -> BTreeMap<String, BTreeMap<String, Vec<u8>>> {
    let paths =
        ["plain", "commented", "shared", "large", "directory", "directory/inherits", "link", "some", "many"];
    let names = |path: &str| {
        let mut list = vec![0; 65_536];
        let len = llistxattr(at.join(path), &mut list[..]).unwrap();
        // To root XFS lists an ACL a second time, by the name that it has on the disk.
        let is_shown = |name: &&[u8]| !name.is_empty() && !name.starts_with(b"trusted.SGI_ACL_");
        let names = list[..len].split(|byte| *byte == 0).filter(is_shown);
        let value = |name: &[u8]| {
            let mut value = vec![0; 65_536];
            let len = lgetxattr(at.join(path), OsStr::from_bytes(name), &mut value[..]).unwrap();
            value.truncate(len);
            value
        };
        let all = names.map(|name| (String::from_utf8(name.to_vec()).unwrap(), value(name))).collect();
        (path.to_owned(), all)
    };
    paths.into_iter().map(names).collect()
}

#[test]
fn names_and_values_are_those_that_linux_shows() {
    let dir = tempfile::tempdir().unwrap();
    for (make_it, many) in [
        (&["mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096"][..], 60),
        (&["mke2fs", "-q", "-F", "-t", "ext4", "-b", "1024", "-O", "inline_data", "-I", "512"], 30),
        (&["mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-O", "ea_inode", "-I", "1024"], 60),
        (&["mkfs.xfs", "-q", "-f"], 1500),
        (&["mkfs.xfs", "-q", "-f", "-m", "crc=0", "-i", "size=256"], 1500),
        (&["mkfs.xfs", "-q", "-f", "-b", "size=1024", "-i", "size=512"], 600),
        (&["mkfs.btrfs", "-q", "-f"], 300),
    ] {
        let path = image(&dir, "image", 400 << 20);
        if run(program(make_it[0]).args(&make_it[1..]).arg(&path)).is_none() {
            return;
        }
        let mut there = BTreeMap::new();
        let written = mounted(&path, "loop", |at| {
            // Of ext a value has to fit into a block with the others.
            let small = make_it.contains(&"inline_data");
            make(at, many, if small { 500 } else { 3000 });
            there = shown(at);
        });
        if written.is_none() {
            return;
        }
        let fs = open(&path);
        for (path, there) in there {
            let node = wattle_fs::resolve(&*fs, path.as_bytes());
            // `resolve` follows links.
            let node = match path.as_str() {
                "link" => common::entries(&*fs, fs.root())[&b"link"[..]],
                _ => node.unwrap(),
            };
            let names = fs.attributes(node).unwrap().into_iter();
            let here: BTreeMap<_, _> = names
                .map(|name| (String::from_utf8(name.clone()).unwrap(), fs.attribute(node, &name).unwrap()))
                .collect();
            assert!(here == there, "{path}, {make_it:?}: {here:?} for {there:?}");
            assert!(fs.attribute(node, b"user.none").is_err());
            assert_eq!(here.is_empty(), path == "plain", "{path}, {make_it:?}: {here:?}");
        }
    }
}

/// An image with one file, and its attributes of these lengths: each has a byte of its own.
fn with_attributes(path: &Path, make: &[&str], lens: &[(&str, u8, usize)]) -> Option<Vec<u8>> {
    fs::File::create(path).unwrap().set_len(320 << 20).unwrap();
    run(program(make[0]).args(&make[1..]).arg(path))?;
    mounted(path, "loop", |at| {
        fs::write(at.join("file"), "").unwrap();
        for &(name, byte, len) in lens {
            set(&at.join("file"), &format!("user.{name}"), &vec![byte; len]);
        }
    })?;
    Some(fs::read(path).unwrap())
}

/// What an attribute of that file is.
fn value_in(fs: &dyn FileSystem, name: &str) -> Result<Vec<u8>, Error> {
    let node = wattle_fs::resolve(fs, b"/file").unwrap();
    fs.attribute(node, format!("user.{name}").as_bytes())
}

fn assert_damaged(bytes: Vec<u8>, name: &str, why: &str) {
    let fs = wattle_fs::open(Box::new(bytes), None).unwrap();
    match value_in(&*fs, name) {
        Err(Error::Damaged { what, .. }) => assert!(what.contains(why), "{name}: {what}"),
        other => panic!("{name}: {why}: {:?}", other.map(|value| value.len())),
    }
}

/// The first place of so many bytes of one kind.
fn find(bytes: &[u8], byte: u8, len: usize) -> usize {
    bytes.windows(len).position(|part| part.iter().all(|&other| other == byte)).unwrap()
}

/// Blocks of attributes have checksums, and so have inodes that hold one: a wrong byte is told.
#[test]
fn a_damaged_attribute_of_ext4_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let make = ["mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-O"];
    let lens = [("of-a-block", 0xb1, 3000), ("of-an-inode", 0xb2, 20_000)];
    let with = |features| with_attributes(&path, &[&make[..], &[features]].concat(), &lens);
    let Some(whole) = with("metadata_csum,ea_inode") else { return };
    let fs = open(&path);
    for (name, byte, len) in lens {
        assert!(value_in(&*fs, name).unwrap() == vec![byte; len], "{name}");
    }
    // The journal has the blocks, too, at other places: every copy gets the wrong byte.
    let mut bytes = whole.clone();
    for block in bytes.chunks_exact_mut(4096).filter(|block| block.starts_with(&[0, 0, 2, 0xea])) {
        let at = find(block, 0xb1, 3000);
        block[at + 100] ^= 1;
    }
    assert_damaged(bytes, "of-a-block", "the checksum of the block");
    let mut bytes = whole.clone();
    for block in bytes.chunks_exact_mut(4096).filter(|block| block.iter().all(|&byte| byte == 0xb2)) {
        block[100] ^= 1;
    }
    assert_damaged(bytes, "of-an-inode", "an inode of its own is wrong");

    // Without checksums of blocks: a size that is not that of the inode.
    let Some(mut bytes) = with("^metadata_csum,ea_inode") else { return };
    let fs = open(&path);
    assert!(value_in(&*fs, "of-an-inode").unwrap() == vec![0xb2; 20_000]);
    // In front of a name is its entry, of 16 bytes: the length of the name, and its kind.
    let is_name = |at: &usize| bytes[*at..].starts_with(b"of-an-inode") && bytes[at - 16..at - 14] == [11, 1];
    let names: Vec<usize> = (16..bytes.len()).filter(is_name).collect();
    assert!(!names.is_empty());
    for name in names {
        bytes[name - 8..name - 4].copy_from_slice(&19_999_u32.to_le_bytes());
    }
    assert_damaged(bytes, "of-an-inode", "differ in size");
}

/// Makes the checksum of a structure of XFS right.
fn seal(bytes: &mut [u8], at: usize) {
    bytes[at..at + 4].fill(0);
    let sum = crc32c::crc32c(bytes);
    bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Leaves of attributes and blocks of values have checksums: a wrong byte is told.
#[test]
fn a_damaged_attribute_of_xfs_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let lens = [("of-a-leaf", 0xb1, 1000), ("of-blocks", 0xb2, 20_000)];
    let Some(whole) = with_attributes(&path, &["mkfs.xfs", "-q", "-f"], &lens) else { return };
    let fs = open(&path);
    for (name, byte, len) in lens {
        assert!(value_in(&*fs, name).unwrap() == vec![byte; len], "{name}");
    }
    let leaves = |bytes: &[u8]| {
        let is_leaf = |at: &usize| bytes[at + 8..at + 10] == [0x3b, 0xee];
        (0..bytes.len()).step_by(4096).filter(is_leaf).collect::<Vec<_>>()
    };
    let leaf = leaves(&whole)[0];
    let mut bytes = whole.clone();
    let at = leaf + find(&whole[leaf..leaf + 4096], 0xb1, 1000);
    bytes[at + 100] ^= 1;
    assert_damaged(bytes, "of-a-leaf", "the checksum or owner");
    // The leaf of another inode is whole, and not this one's.
    let mut bytes = whole.clone();
    bytes[leaf + 55] ^= 1;
    seal(&mut bytes[leaf..leaf + 4096], 12);
    assert_damaged(bytes, "of-a-leaf", "the checksum or owner");
    let mut bytes = whole.clone();
    let at = find(&whole, 0xb2, 4000);
    bytes[at + 100] ^= 1;
    assert_damaged(bytes, "of-blocks", "the value of an attribute");
}

/// An image that says to be larger than it is.
struct Larger(Vec<u8>);

impl ReadAt for Larger {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, into)
    }

    fn size_bytes(&self) -> u64 {
        1 << 56
    }
}

/// A leaf that has nothing and leads to itself is damage at once, and not after as many rounds as
/// the file system has blocks.
#[test]
#[allow(clippy::disallowed_methods, reason = "what does not end would keep the test from failing")]
fn leaves_of_attributes_that_lead_in_a_circle_are_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let lens = [("one", 0xb1, 2500), ("two", 0xb2, 2500)];
    let Some(mut bytes) = with_attributes(&path, &["mkfs.xfs", "-q", "-f"], &lens) else { return };
    // A node leads to the first leaf, in block 1 of the fork, which leads to itself.
    let is_leaf = |at: &usize| bytes[at + 8..at + 10] == [0x3b, 0xee];
    let leaves: Vec<usize> = (0..bytes.len()).step_by(4096).filter(is_leaf).collect();
    assert!(leaves.len() > 1, "{leaves:?}");
    for at in leaves {
        bytes[at..at + 4].copy_from_slice(&1_u32.to_be_bytes());
        bytes[at + 56..at + 58].fill(0);
        seal(&mut bytes[at..at + 4096], 12);
    }
    // Blocks and groups, by the superblock.
    let group_blocks = u64::from(u32::from_be_bytes(bytes[84..88].try_into().unwrap()));
    bytes[8..16].copy_from_slice(&(group_blocks << 30).to_be_bytes());
    bytes[88..92].copy_from_slice(&(1_u32 << 30).to_be_bytes());
    seal(&mut bytes[..512], 224);
    let (to, answer) = mpsc::channel();
    thread::spawn(move || {
        let fs = wattle_fs::open(Box::new(Larger(bytes)), None).unwrap();
        let node = wattle_fs::resolve(&*fs, b"/file").unwrap();
        to.send(fs.attributes(node)).unwrap();
    });
    let names = answer.recv_timeout(Duration::from_mins(1)).expect("it ends");
    assert!(matches!(names, Err(Error::Damaged { .. })), "{names:?}");
}
