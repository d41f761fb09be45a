//! `get` of names that a damaged directory has twice, and of names that are one where they go: the
//! second does not take the place of the first.

use std::fs;
use std::path::Path;

use crate::get_durable::{Mounted, made, names};
use crate::harness::{Room, Said, run};

/// An image in whose root two names of a tree are made one: entries of its directory are patched.
fn image(room: &Room, make: impl FnOnce(&Path)) -> Option<String> {
    let tree = room.path("files");
    fs::create_dir(&tree).unwrap();
    make(&tree);
    let make = ["mke2fs", "-qFtext4", "-O^metadata_csum,^dir_index", "-d", tree.to_str().unwrap()];
    let disk = made(room, "disk.img", 8 << 20, &make)?;
    let mut bytes = fs::read(&disk).unwrap();
    // In an entry the length of the name is in front of it, and the type.
    let is_entry = |at: &usize| &bytes[*at..at + 5] == b"twin2" && bytes[at - 2] == 5;
    let entries: Vec<_> = (2..bytes.len() - 5).filter(is_entry).collect();
    assert_eq!(entries.len(), 1);
    bytes[entries[0] + 4] = b'1';
    fs::write(&disk, bytes).unwrap();
    Some(disk.to_str().unwrap().to_owned())
}

fn assert_one_is_named(said: &Said, path: &str) {
    assert_eq!(said.status, 1, "{}", said.stderr);
    let report = said.json();
    let failures = report["not_extracted"].as_array().unwrap();
    assert_eq!(failures.len(), 1, "{report:#}");
    assert_eq!(failures[0]["path"], path);
    let reason = failures[0]["reason"].as_str().unwrap();
    assert_eq!(reason, "something of that name came out already");
}

/// Two files of one name: the first comes out, and stays.
#[test]
fn of_two_files_of_one_name_the_second_is_named() {
    let room = Room::new();
    let Some(disk) = image(&room, |tree| {
        fs::write(tree.join("twin1"), "the first of them").unwrap();
        fs::write(tree.join("twin2"), "the other").unwrap();
        fs::write(tree.join("alone"), "alone").unwrap();
    }) else {
        return;
    };
    let (to, out) = (room.name("out"), room.path("out"));
    fs::create_dir(&out).unwrap();
    fs::write(out.join("twin1"), "from before").unwrap();
    let said = run(["get", "--overwrite", "--json", "--to", &to, &disk]);
    assert_one_is_named(&said, "twin1");
    said.failed(1, "WTL-0143", &["not extracted: twin1: something of that name came out already"]);
    let first = fs::read_to_string(out.join("twin1")).unwrap();
    assert!(["the first of them", "the other"].contains(&&*first), "{first}");
    assert_eq!(names(&out), ["alone", "lost+found", "twin1"]);
    // The one that came out is kept, and the other one is still named.
    let said = run(["get", "--overwrite", "--resume", "--json", "--to", &to, &disk]);
    assert_one_is_named(&said, "twin1");
    assert_eq!(fs::read_to_string(out.join("twin1")).unwrap(), first);
    // What unpacks an archive would replace it.
    let said = run(["get", "--to", "-", &disk]);
    assert_eq!(String::from_utf8_lossy(&said.stdout).matches("twin1\0").count(), 1);
    said.failed(1, "WTL-0143", &["twin1: something of that name came out already"]);
}

/// Two directories of one name are not put together.
#[test]
fn of_two_directories_of_one_name_the_second_is_named() {
    let room = Room::new();
    let Some(disk) = image(&room, |tree| {
        for name in ["twin1", "twin2"] {
            fs::create_dir(tree.join(name)).unwrap();
            fs::write(tree.join(name).join(format!("in-{name}")), name).unwrap();
        }
    }) else {
        return;
    };
    let (to, out) = (room.name("out"), room.path("out/twin1"));
    for more in [&[][..], &["--overwrite"], &["--resume"]] {
        let said = run(["get", "--json", "--to", &to].iter().chain(more).copied().chain([&*disk]));
        assert_one_is_named(&said, "twin1");
        assert_eq!(names(&out).len(), 1, "{more:?}");
    }
}

/// Names that differ in capitals only, onto a file system that does not tell them apart.
#[test]
fn what_is_one_name_where_it_goes_is_not_replaced() {
    let room = Room::new();
    let tree = room.path("files");
    for name in ["Docs", "docs"] {
        fs::create_dir_all(tree.join(name)).unwrap();
        fs::write(tree.join(name).join(format!("in-{name}")), name).unwrap();
    }
    for name in ["Makefile", "makefile", "other"] {
        fs::write(tree.join(name), name).unwrap();
    }
    let make = ["mke2fs", "-qFtext4", "-d", tree.to_str().unwrap()];
    let Some(disk) = made(&room, "disk.img", 8 << 20, &make) else { return };
    let disk = disk.to_str().unwrap();
    let Some(exfat) = made(&room, "exfat", 64 << 20, &["mkfs.exfat"]) else { return };
    let Some(at) = Mounted::of_kind("exfat-fuse", "loop", &exfat, room.path("at")) else { return };
    let out = at.0.join("out");
    for more in [&["--overwrite"][..], &["--resume", "--overwrite"], &["--overwrite", "--xattrs"]] {
        let args = ["get", "--json", "--to", out.to_str().unwrap()];
        let said = run(args.iter().chain(more).copied().chain([disk]));
        assert_eq!(said.status, 1, "{}", said.stderr);
        let report = said.json();
        let failures = report["not_extracted"].as_array().unwrap();
        let mut paths: Vec<_> =
            failures.iter().map(|failure| failure["path"].as_str().unwrap().to_lowercase()).collect();
        paths.sort();
        assert_eq!(paths, ["docs", "makefile"], "{report:#}");
        // Each name has what it had there.
        for name in names(&out).iter().filter(|name| name.eq_ignore_ascii_case("makefile")) {
            assert_eq!(fs::read_to_string(out.join(name)).unwrap(), *name);
        }
        assert_eq!(names(&out.join("docs")).len(), 1);
        assert_eq!(names(&out).len(), 4, "{:?}", names(&out));
    }
    // Where they are two names, both come out, again and again.
    let to = room.name("two");
    run(["get", "--to", &to, disk]).ok();
    run(["get", "--overwrite", "--to", &to, disk]).ok();
    run(["get", "--overwrite", "--resume", "--to", &to, disk]).ok();
    for name in ["Makefile", "makefile", "Docs/in-Docs", "docs/in-docs"] {
        assert_eq!(
            fs::read_to_string(room.path("two").join(name)).unwrap(),
            name.rsplit("in-").next().unwrap()
        );
    }
}
