//! Files out of file systems on arrays: `ls` and `get`. What the file systems themselves may look
//! like is tested in `crates/fs`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Room, Said, run, wattle};

/// A mirror whose members hold the file system from their first byte on: its superblocks are at
/// their ends.
fn mirror(room: &Room, tree: &Path) -> Option<Vec<String>> {
    mirror_changed(room, tree, |_| {})
}

/// As [`mirror`], with a change made to the file system.
fn mirror_changed(room: &Room, tree: &Path, change: impl FnOnce(&str)) -> Option<Vec<String>> {
    let members = room.blank(2, 64 << 20);
    let args = ["create", "data", "--level", "1", "--metadata", "1.0", "--assume-clean"].map(str::to_owned);
    run(args.into_iter().chain(members.clone())).ok();
    let made = Command::new("/usr/sbin/mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-O", "^metadata_csum", "-L", "music", "-d"])
        .arg(tree)
        .args([&members[0], "32M"])
        .status();
    if !made.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("CI").is_none(), "mke2fs is not installed: run scripts/deps");
        eprintln!("SKIPPED: mke2fs is not installed; scripts/deps installs it");
        return None;
    }
    change(&members[0]);
    let image = fs::read(&members[0]).unwrap();
    let mut other = fs::read(&members[1]).unwrap();
    other[..32 << 20].copy_from_slice(&image[..32 << 20]);
    fs::write(&members[1], other).unwrap();
    Some(members)
}

fn tree(room: &Room) -> PathBuf {
    let tree = room.path("tree");
    fs::create_dir_all(tree.join("songs/old")).unwrap();
    fs::write(tree.join("proof.txt"), "kept by linux\n").unwrap();
    fs::write(tree.join("songs/one"), vec![7; 300_000]).unwrap();
    fs::write(tree.join("songs/back\\slash"), "x").unwrap();
    fs::hard_link(tree.join("songs/one"), tree.join("songs/old/same")).unwrap();
    symlink("../proof.txt", tree.join("songs/link")).unwrap();
    symlink("/", tree.join("songs/root")).unwrap();
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(8 << 20).unwrap();
    fs::set_permissions(tree.join("songs/old"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(tree.join("proof.txt"), fs::Permissions::from_mode(0o4640)).unwrap();
    tree
}

/// Runs a command with options and the members.
fn files(command: &[&str], members: &[String]) -> Said {
    run(command.iter().copied().chain(members.iter().map(String::as_str)))
}

/// Everything below, with kind, permissions, size, time and content or target.
fn contents(root: &Path) -> BTreeMap<PathBuf, (u32, u64, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            let metadata = fs::symlink_metadata(&entry).unwrap();
            let content = match metadata.file_type() {
                kind if kind.is_dir() => Vec::new(),
                kind if kind.is_symlink() => fs::read_link(&entry).unwrap().as_os_str().as_bytes().to_vec(),
                _ => fs::read(&entry).unwrap(),
            };
            let size = if metadata.is_dir() { 0 } else { metadata.size() };
            let path = entry.strip_prefix(root).unwrap().to_owned();
            if path.as_os_str() == "lost+found" {
                continue;
            }
            if metadata.is_dir() {
                waiting.push(entry);
            }
            found.insert(path, (metadata.mode(), size, metadata.mtime(), content));
        }
    }
    found
}

#[test]
fn a_tree_comes_out_as_it_was() {
    let room = Room::new();
    let tree = tree(&room);
    let Some(members) = mirror(&room, &tree) else { return };
    let before = room.contents();
    let (to, sums) = (room.name("out"), room.name("sums"));
    let said = files(&["get", "--to", &to, "--checksums", &sums], &members[1..]).ok();
    assert!(said.stderr.contains("4 files (8688"), "{}", said.stderr);
    let (mut expected, got) = (contents(&tree), contents(Path::new(&to)));
    if !is_root() {
        // The right to act as the owner is not given without the owner.
        expected.get_mut(Path::new("proof.txt")).unwrap().0 &= !0o6000;
    }
    assert_eq!(got.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (path, expected) in &expected {
        let got = &got[path];
        assert_eq!((got.0, got.1, got.2), (expected.0, expected.1, expected.2), "{}", path.display());
        assert!(got.3 == expected.3, "{}", path.display());
    }
    let inode = |name: &str| fs::metadata(Path::new(&to).join(name)).unwrap().ino();
    assert_eq!(inode("songs/one"), inode("songs/old/same"), "hard links stay one file");
    assert!(fs::metadata(Path::new(&to).join("sparse")).unwrap().blocks() < 64, "holes stay holes");
    for (path, bytes) in before {
        assert!(fs::read(&path).unwrap() == bytes, "{} was changed", path.display());
    }
    let check = Command::new("sha256sum").args(["-c", "--quiet", &sums]).current_dir(&to).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
    assert_eq!(fs::read_to_string(&sums).unwrap().lines().count(), 5);
    assert!(fs::read_to_string(&sums).unwrap().contains("songs/back\\\\slash"));
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn one_file_comes_out_by_name_or_to_stdout() {
    let room = Room::new();
    let Some(members) = mirror(&room, &tree(&room)) else { return };
    let to = room.name("out");
    files(&["get", "-V", "data", "--path", "/proof.txt", "--to", &to], &members).ok();
    assert_eq!(fs::read_to_string(room.path("out/proof.txt")).unwrap(), "kept by linux\n");
    let said = files(&["get", "--path", "songs/root/songs/link/../../proof.txt", "--to", "-"], &members);
    said.failed(1, "WTL-0141", &["not a directory"]);
    let said = files(&["get", "--path", "/songs/root/proof.txt", "--to", "-"], &members).ok();
    assert_eq!(said.stdout, b"kept by linux\n");
    assert_eq!(files(&["get", "--path", "/sparse", "--to", "-"], &members).ok().stdout, vec![0; 8 << 20]);
    // A directory is an archive, of which the first header says what it is.
    let archive = files(&["get", "--path", "/songs", "--to", "-"], &members).ok().stdout;
    assert_eq!(archive[257..262], *b"ustar");
    files(&["get", "--path", "/nothing", "--to", &to], &members).failed(
        1,
        "WTL-0141",
        &["/nothing", "wattle ls"],
    );
    assert_eq!(files(&["get", "--to", "-", "--json"], &members).status, 2);
}

/// What is there stays, and what lies in the way and leads elsewhere is not followed.
#[test]
fn nothing_is_overwritten_and_nothing_leads_out_of_the_directory() {
    let room = Room::new();
    let Some(members) = mirror(&room, &tree(&room)) else { return };
    let (to, outside) = (room.name("out"), room.name("outside"));
    fs::create_dir(&to).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(room.path("out/proof.txt"), "mine").unwrap();
    symlink(&outside, room.path("out/songs")).unwrap();
    let said = files(&["get", "--to", &to, "--json"], &members);
    let report = said.json();
    let said =
        said.failed(1, "WTL-0143", &["not extracted: proof.txt: something of that name is there already"]);
    assert!(said.stderr.contains("not extracted: songs: "), "{}", said.stderr);
    assert_eq!(report["not_extracted"].as_array().unwrap().len(), 2);
    assert_eq!((&report["files"], &report["bytes"]), (&1.into(), &(8u64 << 20).into()));
    assert_eq!(fs::read_to_string(room.path("out/proof.txt")).unwrap(), "mine");
    assert!(fs::read_dir(&outside).unwrap().next().is_none());
    files(&["get", "--to", &to, "--overwrite"], &members).ok();
    assert_eq!(fs::read_to_string(room.path("out/proof.txt")).unwrap(), "kept by linux\n");
    assert!(fs::symlink_metadata(room.path("out/songs")).unwrap().is_dir());
    assert!(fs::read_dir(&outside).unwrap().next().is_none());
    let sums = room.name("sums");
    fs::write(&sums, "mine").unwrap();
    files(&["get", "--to", &to, "--checksums", &sums], &members).failed(3, "WTL-0161", &["sums"]);
    // What is in the way is told, not that room is to be made.
    for (to, words) in [(&sums, "name another place"), (&room.name("no/where"), "make that directory")] {
        files(&["get", "--to", to], &members).failed(1, "WTL-0105", &[words]);
    }
    assert_eq!(fs::read_to_string(&sums).unwrap(), "mine");
}

/// A name that leads out of the directory, a directory within itself, and one that is gone: each is
/// named, and the rest comes out.
#[test]
fn a_hostile_file_system_is_no_danger() {
    let room = Room::new();
    let tree = tree(&room);
    fs::write(tree.join("up_up_evil"), "evil").unwrap();
    fs::write(tree.join("lost"), "").unwrap();
    let hostile = |member: &str| {
        for request in ["ln songs songs/loop", "clri lost"] {
            let debugfs = Command::new("/usr/sbin/debugfs").args(["-w", "-R", request, member]).output();
            assert!(debugfs.unwrap().status.success());
        }
        let mut bytes = fs::read(member).unwrap();
        let at = bytes.windows(10).position(|window| window == b"up_up_evil").unwrap();
        bytes[at..at + 10].copy_from_slice(b"../../evil");
        fs::write(member, bytes).unwrap();
    };
    let Some(members) = mirror_changed(&room, &tree, hostile) else { return };
    fs::create_dir(room.path("a")).unwrap();
    let said = files(&["get", "--to", &room.name("a/out"), "--json"], &members);
    let report = said.json();
    said.failed(
        1,
        "WTL-0143",
        &[
            "not extracted: ../../evil: its name is not one that a file can have",
            "not extracted: songs/loop: the directory came out already, elsewhere",
            "not extracted: lost: ext inode ",
            "3 did not come out",
        ],
    );
    assert_eq!(report["not_extracted"].as_array().unwrap().len(), 3);
    assert!(!room.path("evil").exists() && !room.path("a/evil").exists());
    assert_eq!(fs::read_to_string(room.path("a/out/proof.txt")).unwrap(), "kept by linux\n");
    let said = files(&["ls", "-R"], &members);
    assert!(said.text().contains("songs/old/same\n"), "{}", said.text());
    said.failed(1, "WTL-0142", &["songs/loop: the directory is there twice", "lost: ext inode "]);
}

#[test]
fn what_is_there_is_listed() {
    let room = Room::new();
    let Some(members) = mirror(&room, &tree(&room)) else { return };
    let said = room.untouched(|| files(&["ls"], &members)).ok();
    assert_eq!(said.text(), "lost+found\nproof.txt\nsongs\nsparse\n");
    let said = files(&["ls", "--path", "/songs", "-R"], &members).ok();
    assert_eq!(said.text(), "back\\slash\nlink\nold\none\nroot\nold/same\n");
    let said = files(&["ls", "-l", "--path", "/proof.txt"], &members).ok();
    assert!(said.text().starts_with("-rwSr-----  1  "), "{}", said.text());
    assert!(said.text().ends_with("Z  proof.txt\n"), "{}", said.text());
    let said = files(&["ls", "-l", "--path", "/songs"], &members).ok();
    assert!(said.text().contains("  link -> ../proof.txt\n"), "{}", said.text());
    let report = files(&["ls", "--json", "-R"], &members).ok().json();
    assert_eq!(report["file_system"]["not_as_mounted"], serde_json::json!([]));
    assert_eq!(report["schema_version"], 1);
    assert_eq!(
        (&report["file_system"]["kind"], &report["file_system"]["label"]),
        (&"ext4".into(), &"music".into())
    );
    let entries = report["entries"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["path"] == "songs/old/same").unwrap();
    assert_eq!((&entry["kind"], &entry["links"]), (&"file".into(), &2.into()));
    assert_eq!((&entry["size_bytes"], &entry["mode"]), (&300_000.into(), &"0644".into()));
    assert!(entry["modified"].as_str().unwrap().ends_with('Z'));
    files(&["ls", "--path", "/proof.txt/x"], &members).failed(1, "WTL-0141", &["not a directory"]);
}

/// The journal says that it follows, and its superblock is none: what is there comes out, and it is
/// said that it may be old, in the summary, in JSON and by the exit status.
#[test]
fn a_log_that_is_not_applied_is_in_the_exit_status() {
    let room = Room::new();
    let not_applied = |member: &str| {
        for request in ["feature needs_recovery", "clri <8>"] {
            let debugfs = Command::new("/usr/sbin/debugfs").args(["-w", "-R", request, member]).output();
            assert!(debugfs.unwrap().status.success());
        }
    };
    let Some(members) = mirror_changed(&room, &tree(&room), not_applied) else { return };
    let differs = "is not what a mount would show, or may not be";
    let said = files(&["ls"], &members);
    assert_eq!(said.text(), "lost+found\nproof.txt\nsongs\nsparse\n");
    said.failed(1, "WTL-0144", &[differs, "its journal is not applied"]);
    let said = files(&["ls", "--json"], &members);
    let notes = said.json()["file_system"]["not_as_mounted"].as_array().unwrap().clone();
    assert!(notes.len() == 1 && notes[0].as_str().unwrap().contains("not applied"), "{notes:?}");
    let said = files(&["get", "--to", &room.name("out")], &members);
    said.failed(
        1,
        "WTL-0144",
        &["links and pipes came out into", "but not as a mount would show it", differs],
    );
    assert_eq!(fs::read_to_string(room.path("out/proof.txt")).unwrap(), "kept by linux\n");
    let said = files(&["get", "--to", &room.name("again"), "--json"], &members);
    assert_eq!(said.json()["file_system"]["not_as_mounted"].as_array().unwrap().len(), 1);
    assert_eq!(said.status, 1);
    let said = files(&["get", "--path", "/proof.txt", "--to", "-"], &members);
    assert_eq!(said.stdout, b"kept by linux\n");
    said.failed(1, "WTL-0144", &[differs]);
}

#[test]
fn an_array_without_a_file_system_says_so() {
    let room = Room::new();
    let members = room.array("5", 3);
    let said = room.untouched(|| files(&["ls"], &members));
    said.failed(1, "WTL-0140", &["no ext2, ext3, ext4, XFS, btrfs, FAT, exFAT, NTFS or HFS+"]);
    // What a file system points to and the array does not have is an error of that file, not of the
    // command.
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let Some(members) = mirror(&room, &tree(&room)) else { return };
    let output =
        wattle().args(["get", "--path", "/proof.txt", "--to", "-"]).args(&members).stdout(full).output();
    assert_eq!(output.unwrap().status.code(), Some(1));
}
