//! `get --to -` of a directory: what GNU tar takes out of the archive is what `get` puts into a
//! directory, and the archive is whole whatever cannot be read.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Stdio;

use rustix::fs::makedev;

use crate::copied::{image as photos, lose, photo, place};
use crate::harness::{Room, require, run, tool};

/// An ext4 image of everything that an archive can have.
fn image(room: &Room) -> Option<String> {
    if !require("mke2fs") || !require("tar") {
        return None;
    }
    let (tree, image) = (room.path("tree"), room.name("image"));
    let deep = tree.join("a directory/".to_owned() + &"deep/".repeat(30));
    fs::create_dir_all(&deep).unwrap();
    let long = "a name that is longer than what the header of a member has room for, which is a hundred bytes, and more";
    fs::write(deep.join(long), long).unwrap();
    symlink(long.repeat(2), deep.join("far")).unwrap();
    symlink("a directory", tree.join("near")).unwrap();
    fs::write(tree.join("empty"), "").unwrap();
    fs::write(tree.join("größe"), "not ASCII").unwrap();
    let large: Vec<u8> =
        (0..9_000_001_u32).flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fs::write(tree.join("large"), large).unwrap();
    // Holes at its start, in its middle and at its end.
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", 5 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"more", 30 << 20).unwrap();
    sparse.set_len(40 << 20).unwrap();
    for size in [511, 512, 513] {
        fs::write(tree.join(format!("of {size}")), vec![b'x'; size]).unwrap();
    }
    fs::hard_link(tree.join("of 513"), tree.join("a directory/another name")).unwrap();
    tool("mkfifo", [tree.join("pipe")]);
    fs::hard_link(tree.join("pipe"), tree.join("pipe again")).unwrap();
    if rustix::process::geteuid().is_root() {
        for (name, number) in [("null", ["c", "1", "3"]), ("wide", ["b", "259", "300"])] {
            tool("mknod", [&[tree.join(name).to_str().unwrap()][..], &number].concat());
        }
    }
    tool("chmod", ["6751", tree.join("of 511").to_str().unwrap()]);
    tool("chmod", ["1700", tree.join("a directory").to_str().unwrap()]);
    for (name, time) in [("of 512", "@1234567890.123456789"), ("empty", "@-5.25"), ("near", "@77")] {
        tool("touch", ["-h", "-d", time, tree.join(name).to_str().unwrap()]);
    }
    tool("mke2fs", ["-q", "-t", "ext4", "-I", "256", "-d", tree.to_str().unwrap(), &image, "128M"]);
    // mke2fs leaves nanoseconds out, which ext4 keeps above two more bits of the seconds.
    let nanoseconds = format!("set_inode_field \"of 512\" mtime_extra {}", 123_456_789 << 2);
    // A further name of a link, which mke2fs makes a link of its own.
    for order in [&nanoseconds, "ln near \"near again\"", "set_inode_field near links_count 2"] {
        tool("debugfs", ["-w", "-R", order, &image]);
    }
    Some(image)
}

/// Everything that is known of a tree but times of links.
fn listed(dir: &Path) -> Vec<String> {
    let format = "%P|%y|%m|%U|%G|%n|%T@|%l|%s\\n";
    let text = tool("find", [dir.to_str().unwrap(), "-mindepth", "1", "-printf", format]);
    // The size of a directory is the file system's own.
    let line = |line: &str| match line.contains("|d|") {
        true => line.rsplit_once('|').unwrap().0.to_owned(),
        false => line.to_owned(),
    };
    let mut lines: Vec<_> = text.lines().map(line).collect();
    lines.sort();
    lines
}

fn unpack(room: &Room, archive: &[u8], name: &str) -> std::path::PathBuf {
    let (to, from) = (room.path(name), room.path(&format!("{name}.tar")));
    fs::create_dir(&to).unwrap();
    fs::write(&from, archive).unwrap();
    let said = tool("tar", ["-xpf", from.to_str().unwrap(), "-C", to.to_str().unwrap()]);
    assert_eq!(said, "");
    to
}

#[test]
fn an_archive_holds_what_comes_out_into_a_directory() {
    let room = Room::new();
    let Some(image) = image(&room) else { return };
    run(["get", &image, "--to", &room.name("out")]).ok();
    let said = run(["get", &image, "--to", "-"]).ok();
    assert!(said.stdout.len().is_multiple_of(10240), "whole records");
    let unpacked = unpack(&room, &said.stdout, "unpacked");
    tool(
        "diff",
        [
            "-r",
            "--no-dereference",
            "--exclude=pipe*",
            "--exclude=null",
            "--exclude=wide",
            room.path("out").to_str().unwrap(),
            unpacked.to_str().unwrap(),
        ],
    );
    let found = listed(&unpacked);
    assert_eq!(found, listed(&room.path("out")));
    assert!(found.iter().any(|line| line.contains("|1234567890.1234567890|")), "{found:?}");
    for place in [&room.path("out"), &unpacked] {
        let inode = |name: &str| fs::symlink_metadata(place.join(name)).unwrap().ino();
        for name in ["pipe", "near"] {
            assert_eq!(inode(name), inode(&format!("{name} again")), "{name} in {}", place.display());
        }
    }
    if rustix::process::geteuid().is_root() {
        for (name, number) in [("null", makedev(1, 3)), ("wide", makedev(259, 300))] {
            for place in [&room.path("out"), &unpacked] {
                assert_eq!(fs::symlink_metadata(place.join(name)).unwrap().rdev(), number, "{name}");
            }
        }
        let again = run(["get", &image, "--to", &room.name("out"), "--resume"]).ok();
        assert!(again.stderr.contains(", 2 device files ("), "{}", again.stderr);
        let listed = run(["ls", "-l", &image, "--path", "/wide"]).ok();
        assert!(listed.text().starts_with('b') && listed.text().contains(" 259,300 "), "{}", listed.text());
    }
    // A part of it, and a file alone.
    let said = run(["get", &image, "--path", "/a directory", "--to", "-"]).ok();
    let part = unpack(&room, &said.stdout, "part");
    assert!(part.join("a directory/another name").is_file() && !part.join("empty").exists());
    let said = run(["get", &image, "--path", "/of 513", "--to", "-.tar"]).ok();
    assert_eq!(fs::read(unpack(&room, &said.stdout, "alone").join("of 513")).unwrap(), [b'x'; 513]);
    assert_eq!(run(["get", &image, "--path", "/of 513", "--to", "-"]).ok().stdout, [b'x'; 513]);
}

#[test]
fn extended_attributes_are_records_of_their_own() {
    let room = Room::new();
    if !require("mke2fs") || !require("tar") || !require("debugfs") {
        return;
    }
    let (tree, image) = (room.path("tree"), room.name("image"));
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("file"), "content").unwrap();
    tool("mke2fs", ["-q", "-t", "ext4", "-d", tree.to_str().unwrap(), &image, "8M"]);
    for set in ["user.colour blue", "user.a%3Db one", "user.50%25 two", "user.eq=x three"] {
        tool("debugfs", ["-w", "-R", &format!("ea_set /file {set}"), &image]);
    }
    let said = run(["get", &image, "--to", "-", "--xattrs"]).ok();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(text.contains("33 SCHILY.xattr.user.colour=blue\n"), "{}", said.stderr);
    let to = unpack(&room, &said.stdout, "unpacked");
    if require("getfattr") {
        let archive = room.path("unpacked.tar");
        let (archive, to) = (archive.to_str().unwrap(), to.to_str().unwrap());
        tool("tar", ["--xattrs", "--xattrs-include=*", "-xf", archive, "-C", to]);
        // An equals sign in a name is shown as \075.
        let found = tool("getfattr", ["-d", "--absolute-names", &format!("{to}/file")]);
        for line in
            ["user.colour=\"blue\"", "user.a%3Db=\"one\"", "user.50%25=\"two\"", "user.eq\\075x=\"three\""]
        {
            assert!(found.lines().any(|found| found == line), "{line}: {found}");
        }
    }
    let said = run(["get", &image, "--to", "-"]).ok();
    assert!(!String::from_utf8_lossy(&said.stdout).contains("SCHILY"));
    assert!(said.stderr.contains("without the extended attributes"), "{}", said.stderr);
}

#[test]
fn what_is_damaged_is_left_out_or_named_partial() {
    let room = Room::new();
    let Some(image) = photos(&room, "ext4") else { return };
    let whole = fs::read(&image).unwrap();
    let at = place(&whole, &photo(9)[8192..]);
    lose(&image, std::slice::from_ref(&(at..at + 512)));
    let report = room.name("report.json");
    let said = run(["get", &image, "--to", "-", "--report", &report]);
    let without = unpack(&room, &said.stdout, "without");
    said.failed(1, "WTL-0143", &["not extracted: photo9: bytes 8192 to 12287 of it"]);
    assert!(!without.join("photo9").exists());
    assert_eq!(fs::read(without.join("photo8")).unwrap(), photo(8));
    let listed: serde_json::Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    assert_eq!((&listed["exit"]["status"], &listed["totals"]["missing"]), (&1.into(), &1.into()));
    let said = run(["get", &image, "--to", "-", "--partial"]);
    let with = unpack(&room, &said.stdout, "with");
    said.failed(1, "WTL-0143", &["photo9: 4096 of its 270000 bytes are zeros in photo9.partial"]);
    let mut expected = photo(9);
    expected[8192..12288].fill(0);
    assert!(fs::read(with.join("photo9.partial")).unwrap() == expected && !with.join("photo9").exists());
}

#[test]
fn a_large_file_that_fails_on_its_way_is_followed_by_a_link_that_says_so() {
    let room = Room::new();
    let Some(image) = image(&room) else { return };
    let whole = fs::read(&image).unwrap();
    let large = fs::read(room.path("tree/large")).unwrap();
    let at = place(&whole, &large[30 << 20..]);
    lose(&image, std::slice::from_ref(&(at..at + 512)));
    let said = run(["get", &image, "--to", "-"]);
    let unpacked = unpack(&room, &said.stdout, "unpacked");
    said.failed(
        1,
        "WTL-0143",
        &["large: 4096 of its 36000004 bytes are zeros in large.partial (places: 1), which is a link"],
    );
    let mut expected = large;
    expected[30 << 20..(30 << 20) + 4096].fill(0);
    assert!(fs::read(unpacked.join("large.partial")).unwrap() == expected);
    assert!(fs::read(unpacked.join("large")).unwrap() == expected);
    assert_eq!(fs::read(unpacked.join("of 513")).unwrap(), [b'x'; 513], "what comes behind it is whole");
}

#[test]
fn a_reader_that_goes_away_is_an_error() {
    let room = Room::new();
    let Some(image) = image(&room) else { return };
    let mut child = crate::harness::wattle();
    let mut child = child
        .args(["get", &image, "--to", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let said = crate::harness::said(child.wait_with_output().unwrap());
    said.failed(1, "WTL-0105", &["ends in the middle", "not extracted: ", "1 missing"]);
    for more in ["--json", "--resume", "--overwrite"] {
        run(["get", &image, "--to", "-", more]).failed(2, "WTL-0001", &["--report FILE"]);
    }
}
