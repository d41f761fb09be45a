//! What `get` says came out is on the disk, what it goes on with was, and what else is there, and
//! what it reads, stays.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::copied::{PHOTOS, image, judge, lose, lose_one, photo, place};
use crate::harness::{Room, require, run, said, tool, wattle};

/// A file system that is mounted, and unmounted in the end.
pub struct Mounted(pub PathBuf);

impl Mounted {
    /// `None`, said loudly, where nothing can be mounted.
    fn new(options: &str, what: &Path, at: PathBuf) -> Option<Self> {
        let kind = if what.as_os_str() == "tmpfs" { "tmpfs" } else { "auto" };
        Self::of_kind(kind, options, what, at)
    }

    pub fn of_kind(kind: &str, options: &str, what: &Path, at: PathBuf) -> Option<Self> {
        fs::create_dir_all(&at).unwrap();
        match Command::new("mount").args(["-t", kind, "-o", options]).arg(what).arg(&at).status() {
            Ok(status) if status.success() => Some(Self(at)),
            _ => {
                eprintln!("SKIPPED: this takes the right to mount");
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

pub fn made(room: &Room, name: &str, size_bytes: u64, make: &[&str]) -> Option<PathBuf> {
    let program = format!("/usr/sbin/{}", make[0]);
    if !Path::new(&program).exists() && !require(&program) {
        return None;
    }
    let image = room.device(name, size_bytes);
    tool(&program, make[1..].iter().copied().chain([image.as_str()]));
    Some(image.into())
}

pub fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The power goes the moment `get` says that all came out.
#[test]
fn what_came_out_is_there_after_a_power_cut() {
    let room = Room::new();
    let Some(image) = image(&room, "ext4") else { return };
    for make in [&["mke2fs", "-qFtext4"][..], &["mkfs.xfs", "-q"]] {
        let Some(disk) = made(&room, make[0], 320 << 20, make) else { return };
        let cut = room.path("cut");
        {
            let Some(at) = Mounted::new("loop", &disk, room.path("at")) else { return };
            run(["get", "--to", at.0.join("out").to_str().unwrap(), &image]).ok();
            fs::copy(&disk, &cut).unwrap();
        }
        let Some(at) = Mounted::new("loop", &cut, room.path("at-cut")) else { return };
        assert_eq!(judge(&at.0.join("out")), (0, 0), "{make:?}");
        assert!(!names(&at.0.join("out")).iter().any(|name| name.ends_with(".part")), "{make:?}");
    }
}

/// The disk below takes nothing more when data is written back, long after it was written.
#[test]
fn what_could_not_be_written_back_is_told() {
    let room = Room::new();
    let Some(image) = image(&room, "ext4") else { return };
    let Some(small) = Mounted::new("size=6M", Path::new("tmpfs"), room.path("small")) else { return };
    let disk = small.0.join("disk");
    fs::File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    // No journal, whose end would be told at once.
    tool("/usr/sbin/mke2fs", ["-qFtext4", "-O^has_journal", "-Enodiscard", disk.to_str().unwrap()]);
    let free = 6 * 256
        - fs::metadata(&disk).map(|found| std::os::unix::fs::MetadataExt::blocks(&found) / 8).unwrap();
    let Some(at) = Mounted::new("loop,noinit_itable", &disk, room.path("at")) else { return };
    // Room for half of the photos.
    let ballast = (free.saturating_sub(250) * 4096) as usize;
    fs::write(small.0.join("ballast"), vec![1; ballast]).unwrap();
    let out = at.0.join("out");
    let said = run(["get", "--to", out.to_str().unwrap(), "--json", &image]);
    assert_eq!(said.status, 1, "{}", said.stderr);
    let named: Vec<_> = said.json()["not_extracted"]
        .as_array()
        .unwrap()
        .iter()
        .map(|failure| failure["path"].as_str().unwrap().to_owned())
        .collect();
    assert!(!named.is_empty(), "{}", said.stderr);
    // What is not named is on the disk, as it was: nothing of it is in a cache any more.
    drop(at);
    let Some(_again) = Mounted::new("loop,noinit_itable", &disk, room.path("at")) else { return };
    for number in 1..=PHOTOS {
        let name = format!("photo{number}");
        let is_whole = fs::read(out.join(&name)).is_ok_and(|bytes| bytes == photo(number));
        // Names of a directory that could not be made durable are named by it.
        let is_named = named.contains(&name) || named.iter().any(|path| path == ".");
        assert!(is_whole || is_named, "{name} is not named: {}", said.stderr);
    }
}

/// The same of a volume: what the page cache took is not on the disk.
#[test]
fn a_volume_that_could_not_be_written_back_is_told() {
    let room = Room::new();
    let members = room.blank(1, 16 << 20);
    fs::write(&members[0], vec![7; 16 << 20]).unwrap();
    let Some(small) = Mounted::new("size=8M", Path::new("tmpfs"), room.path("small")) else { return };
    let disk = small.0.join("disk");
    fs::File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    tool("/usr/sbin/mke2fs", ["-qFtext4", "-O^has_journal", "-Enodiscard", disk.to_str().unwrap()]);
    let Some(at) = Mounted::new("loop,noinit_itable", &disk, room.path("at")) else { return };
    let out = fs::File::create(at.0.join("out")).unwrap();
    let cat = wattle().args(["cat", "-V", "member-0", &members[0]]).stdout(out).output().unwrap();
    said(cat).failed(1, "WTL-0105", &["standard output: "]);
}

/// A report or a list of sums does not take the place of what the command reads.
#[test]
fn the_map_of_a_member_is_not_replaced_by_a_list() {
    let room = Room::new();
    let Some(image) = image(&room, "ext4") else { return };
    lose_one(&image, 31 << 20..(31 << 20) + 512);
    let (to, map) = (room.name("out"), format!("{image}.map"));
    for option in ["--report", "--checksums"] {
        for mode in ["--resume", "--overwrite"] {
            let before = fs::read(&map).unwrap();
            let said = run(["get", &image, "--to", &to, option, &map, mode]);
            assert!(fs::read(&map).unwrap() == before, "{option} {mode}: {}", said.stderr);
            said.failed(3, "WTL-0161", &["copy.img.map is"]);
        }
    }
}

/// Neither the member nor what is written beside the files is replaced by a file of its name.
#[test]
fn what_is_read_and_what_is_written_beside_is_not_replaced() {
    let room = Room::new();
    let tree = room.path("files");
    fs::create_dir(&tree).unwrap();
    for name in ["disk.img", "SUMS", "REPORT", "other"] {
        fs::write(tree.join(name), name).unwrap();
    }
    let make = ["mke2fs", "-qFtext4", "-d", tree.to_str().unwrap()];
    let Some(disk) = made(&room, "disk.img", 8 << 20, &make) else { return };
    let (to, sums, report) = (room.name(""), room.name("SUMS"), room.name("REPORT"));
    let before = fs::read(&disk).unwrap();
    let args = ["get", "--to", &to, "--overwrite", "--checksums", &sums, "--report", &report];
    let said = run(args.into_iter().chain([disk.to_str().unwrap()]));
    said.failed(
        1,
        "WTL-0143",
        &["not extracted: disk.img: what has its name", "not extracted: SUMS", "not extracted: REPORT"],
    );
    assert!(fs::read(&disk).unwrap() == before, "the member was replaced");
    assert!(fs::read_to_string(&sums).unwrap().contains("  other\n"));
    assert!(fs::read_to_string(&report).unwrap().contains("disk.img"));
    assert_eq!(fs::read(room.path("other")).unwrap(), b"other");
}

/// What is left of a damaged file does not take the place of a whole one.
#[test]
fn a_file_in_part_takes_no_name_that_another_has() {
    let room = Room::new();
    let tree = room.path("files");
    fs::create_dir(&tree).unwrap();
    let (torn, whole) = (photo(9), photo(4));
    for (name, content) in [("f", &torn), ("f.partial", &whole)] {
        fs::write(tree.join(name), content).unwrap();
    }
    let make = ["mke2fs", "-qFtext4", "-d", tree.to_str().unwrap()];
    let Some(disk) = made(&room, "disk.img", 8 << 20, &make) else { return };
    let at = place(&fs::read(&disk).unwrap(), &torn[8192..]);
    let disk = disk.to_str().unwrap();
    lose(disk, std::slice::from_ref(&(at..at + 512)));
    let (to, out) = (room.name("out"), room.path("out"));
    for more in [&[][..], &["--resume"], &["--overwrite"]] {
        let said = run(["get", "--to", &to, "--partial"].iter().chain(more).copied().chain([disk]));
        said.failed(1, "WTL-0143", &["in part: f: 4096 of its 270000 bytes are zeros in f.partial.partial"]);
        assert!(fs::read(out.join("f.partial")).unwrap() == whole, "{more:?}");
        assert_eq!(names(&out), ["f.partial", "f.partial.partial", "lost+found"], "{more:?}");
    }
    // What else has that name is in the way, unless all is to be replaced.
    fs::write(out.join("f.partial.partial"), "another's").unwrap();
    let said = run(["get", "--to", &to, "--partial", "--resume", disk]);
    said.failed(1, "WTL-0143", &["f: something of that name is there already"]);
    assert_eq!(fs::read(out.join("f.partial.partial")).unwrap(), b"another's");
}

/// In a container every run has the number 1.
#[test]
fn what_another_run_left_is_not_in_the_way() {
    let room = Room::new();
    let Some(image) = image(&room, "ext4") else { return };
    let out = room.path("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join(".wattle-1-0.part"), "left").unwrap();
    let alone = |program: &std::ffi::OsStr| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork"]).arg(program);
        command
    };
    if !alone("true".as_ref()).status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: this takes the right to a namespace of processes");
        return;
    }
    let output = alone(wattle().get_program()).args(["get", "--to", out.to_str().unwrap(), &image]).output();
    said(output.unwrap()).ok();
    assert_eq!(judge(&out), (0, 0));
    assert_eq!(fs::read(out.join(".wattle-1-0.part")).unwrap(), b"left");
}

/// ext3 with small inodes keeps seconds.
#[test]
fn a_target_with_coarse_times_is_gone_on_with() {
    let room = Room::new();
    let tree = room.path("files");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), photo(2)).unwrap();
    let make = ["mke2fs", "-qFtext4", "-I256", "-d", tree.to_str().unwrap()];
    let Some(disk) = made(&room, "disk.img", 8 << 20, &make) else { return };
    let Some(coarse) = made(&room, "coarse", 32 << 20, &["mke2fs", "-qFtext3", "-I128"]) else { return };
    let Some(at) = Mounted::new("loop", &coarse, room.path("at")) else { return };
    let (to, disk) = (at.0.join("out"), disk.to_str().unwrap());
    run(["get", "--to", to.to_str().unwrap(), disk]).ok();
    let said = run(["get", "--to", to.to_str().unwrap(), "--resume", "--json", disk]).ok();
    assert_eq!((&said.json()["files"], &said.json()["kept"]), (&1.into(), &1.into()));
    // What is the same gets the permissions that it lost.
    fs::set_permissions(to.join("file"), fs::Permissions::from_mode(0o777)).unwrap();
    run(["get", "--to", to.to_str().unwrap(), "--resume", disk]).ok();
    let wanted = fs::metadata(tree.join("file")).unwrap().permissions().mode();
    assert_eq!(fs::metadata(to.join("file")).unwrap().permissions().mode(), wanted);
}

/// A sparse file whose map is damaged has an end that is reached.
#[test]
fn a_sparse_file_with_a_damaged_map_comes_out_in_part() {
    let room = Room::new();
    let Some(disk) = made(&room, "disk", 320 << 20, &["mkfs.xfs", "-q"]) else { return };
    {
        let Some(at) = Mounted::new("loop", &disk, room.path("at")) else { return };
        let file = fs::File::create(at.0.join("sparse")).unwrap();
        file.set_len(1 << 42).unwrap();
        for piece in 0..600 {
            file.write_all_at(&[b'a'; 4096], piece << 30).unwrap();
        }
        file.sync_all().unwrap();
    }
    let mut bytes = fs::read(&disk).unwrap();
    let leaves: Vec<_> = (0..bytes.len())
        .step_by(4096)
        .filter(|at| bytes[*at..].starts_with(b"BMA3") && bytes[at + 4..at + 6] == [0, 0])
        .collect();
    assert!(leaves.len() > 1);
    bytes[leaves[0] + 200] ^= 1;
    fs::write(&disk, bytes).unwrap();
    let started = Instant::now();
    let to = room.name("out");
    let said = run(["get", "--to", &to, "--partial", "--json", disk.to_str().unwrap()]);
    let unreadable = said.json()["not_extracted"][0]["partial"]["unreadable"].clone();
    said.failed(1, "WTL-0143", &["extracted in part: sparse"]);
    assert_eq!(unreadable.as_array().unwrap().len(), 1, "{unreadable}");
    assert!(started.elapsed() < Duration::from_mins(2), "{:?}", started.elapsed());
    let found = fs::File::open(room.path("out/sparse.partial")).unwrap();
    let pieces = (0..600).filter(|piece| {
        let mut bytes = [0; 4096];
        found.read_exact_at(&mut bytes, piece << 30).unwrap();
        bytes == [b'a'; 4096]
    });
    let pieces = pieces.count();
    assert!(pieces > 100 && pieces < 600, "{pieces}");
}

/// Directories that lock their owner out come out with what is in them, also the second time, and
/// a further name of a file in one.
#[test]
fn locked_directories_are_no_obstacle() {
    let room = Room::new();
    let tree = room.path("files");
    for name in ["a-none", "b-write", "c-plain"] {
        fs::create_dir_all(tree.join(name)).unwrap();
        fs::write(tree.join(name).join("file"), name).unwrap();
    }
    fs::hard_link(tree.join("a-none/file"), tree.join("c-plain/link")).unwrap();
    let locked = [("a-none", 0o000), ("b-write", 0o555)];
    for (name, mode) in locked {
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let make = ["mke2fs", "-qFtext4", "-d", tree.to_str().unwrap()];
    let Some(disk) = made(&room, "disk.img", 8 << 20, &make) else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let out = room.path("out");
    fs::create_dir(&out).unwrap();
    for path in [room.dir.path(), &out, &disk] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    for more in [&[][..], &["--resume"]] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(wattle().get_program());
        command.env("WATTLE_STATE_DIR", room.path("state")).args(["get", "--to", out.to_str().unwrap()]);
        let Ok(output) = command.args(more).arg(&disk).output() else { return };
        if output.stderr.starts_with(b"setpriv") {
            eprintln!("SKIPPED: {}", String::from_utf8_lossy(&output.stderr));
            return;
        }
        said(output).ok();
        for (name, mode) in locked {
            let found = fs::metadata(out.join(name)).unwrap().permissions().mode() & 0o777;
            assert_eq!(found, mode, "{name}, {more:?}");
        }
        assert_eq!(fs::read(out.join("c-plain/link")).unwrap(), b"a-none", "{more:?}");
        fs::remove_file(out.join("b-write/file")).unwrap();
    }
}
