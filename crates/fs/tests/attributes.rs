//! Names and values of extended attributes are those that Linux shows, wherever a file system keeps
//! them.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a panic is how a test fails, and a skipped one says so"
)]

mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use common::{image, mounted, open, program, run};
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};

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
