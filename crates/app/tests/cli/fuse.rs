//! Arrays as files: what loop devices and file systems make of them, what a kill leaves, and what
//! is refused. Where FUSE or loop devices cannot be had every test says so and is skipped.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{Room, Serve, require, said, tool, wattle};

/// Whether this machine lets us mount.
pub fn can_mount() -> bool {
    let root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    let there = Path::new("/dev/fuse").exists() && root;
    if !there {
        eprintln!("SKIPPED: no /dev/fuse, or not root");
    }
    there
}

/// An empty directory to mount on, and the option that does.
fn mount_point(room: &Room) -> (PathBuf, String) {
    let dir = room.path("files");
    fs::create_dir(&dir).unwrap();
    let export = format!("fuse={}", dir.display());
    (dir, export)
}

fn is_mounted(dir: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&format!(" {} ", dir.display()))
}

/// A loop device over a file, gone when the test is done with it.
pub struct Loop(pub String);

impl Loop {
    /// `None`, loudly, where there are no loop devices.
    pub fn over(file: &Path, options: &[&str]) -> Option<Self> {
        let output =
            Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output().unwrap();
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(why.contains("cannot find an unused loop device"), "{why}");
            eprintln!("SKIPPED: {why}");
            return None;
        }
        Some(Self(String::from_utf8(output.stdout).unwrap().trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// A file system that is unmounted when the test is done with it.
struct Mounted(PathBuf);

impl Mounted {
    fn new(device: &str, dir: PathBuf, options: &str) -> Self {
        fs::create_dir_all(&dir).unwrap();
        tool("mount", ["-o", options, device, dir.to_str().unwrap()]);
        Self(dir)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Clients were let in by then, so that what fails ends the server in order.
#[test]
fn a_server_that_cannot_say_that_it_is_ready_leaves_nothing_behind() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let members = room.array("5", 3);
    let (dir, export) = mount_point(&room);
    let start = |args: &[&str]| {
        let mut command = wattle();
        command.arg("serve").args(&members).args(["--json", "--export", &export]).args(args);
        command.arg("--runtime-dir").arg(room.path("run")).env("WATTLE_STATE_DIR", room.path("state"));
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        said(command.stdout(full).output().unwrap())
    };
    let ended = start(&[]);
    assert!(ended.status == 1 && ended.stderr.contains("ready: "), "{ended:?}");
    assert!(!is_mounted(&dir), "{ended:?}");
    // A pidfile that cannot be written is found out before clients are let in.
    let ended = start(&["--pidfile", &room.name("not/there")]);
    assert!(ended.status == 1 && !ended.stderr.contains("ready: "), "{ended:?}");
    assert!(ended.stderr.contains("--pidfile"), "{ended:?}");
}

fn content(ix: usize) -> Vec<u8> {
    (0..70_000 + ix * 1117).map(|at| ((at * (ix + 3)) >> 3) as u8).collect()
}

#[test]
fn file_systems_on_a_loop_device_hold_what_they_were_given() {
    if !can_mount() || !["losetup", "mkfs.ext4", "mkfs.xfs", "xfs_repair", "e2fsck"].into_iter().all(require)
    {
        return;
    }
    for (kind, mkfs, check, direct) in [
        ("ext4", &["mkfs.ext4", "-q"][..], &["e2fsck", "-fn"][..], "--direct-io=off"),
        ("xfs", &["mkfs.xfs", "-q"], &["xfs_repair", "-n"], "--direct-io=on"),
    ] {
        let room = Room::new();
        let members = room.blank(4, 160 << 20);
        let create = ["create", "data", "--level", "5", "--chunk", "64K"].map(str::to_owned);
        crate::harness::run(create.into_iter().chain(members.clone())).ok();
        let (dir, export) = mount_point(&room);
        let options = ["--export", &export, "--cores", "2"];
        let serve = Serve::start(&room, &options, &members);
        assert_eq!(Path::new(&serve.uri), dir.join("data"));
        let Some(device) = Loop::over(&dir.join("data"), &[direct]) else { return };
        tool(mkfs[0], mkfs[1..].iter().copied().chain([device.0.as_str()]));
        let mounted = Mounted::new(&device.0, room.path("fs"), "discard");
        for ix in 0..40 {
            fs::write(mounted.0.join(format!("file-{ix}")), content(ix)).unwrap();
        }
        // Freed space is given back, which must not reach what is in use.
        (0..40).step_by(3).for_each(|ix| fs::remove_file(mounted.0.join(format!("file-{ix}"))).unwrap());
        tool("fstrim", [mounted.0.to_str().unwrap()]);
        drop(mounted);
        tool(check[0], check[1..].iter().copied().chain([device.0.as_str()]));
        // A stop now would take the device away from a program that may still write.
        serve.command(&["stop", "data"]).failed(3, "WTL-0116", &["data", "losetup -j"]);
        drop(device);
        wait_until_closed(&serve);
        serve.stop();
        assert!(!is_mounted(&dir), "{kind}: still mounted");

        // Read-only, with a member missing, and nothing is written.
        let serve = Serve::start(&room, &[&options[..], &["--read-only"]].concat(), &members[1..]);
        assert!(OpenOptions::new().write(true).open(dir.join("data")).is_err());
        let device = Loop::over(&dir.join("data"), &["--read-only"]).unwrap();
        let mounted = Mounted::new(&device.0, room.path("fs"), "ro");
        for ix in (0..40).filter(|ix| ix % 3 != 0) {
            assert!(fs::read(mounted.0.join(format!("file-{ix}"))).unwrap() == content(ix), "{kind} {ix}");
        }
        drop(mounted);
        drop(device);
        wait_until_closed(&serve);
        serve.command(&["stop", "data"]).ok();
        assert!(!is_mounted(&dir));
    }
}

/// The last close of a loop device comes a moment after its detachment.
fn wait_until_closed(serve: &Serve) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let file = serve.uri.clone();
    let used = || {
        let output = Command::new("losetup").args(["-j", &file]).output().unwrap();
        !output.stdout.is_empty()
    };
    while used() {
        assert!(Instant::now() < deadline, "the loop device stays");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A server that is killed answers with errors, at once, and the next one with the same directory
/// clears up after it.
#[test]
fn a_kill_under_load_gives_errors_and_the_next_start_clears_up() {
    if !can_mount() || !require("fio") {
        return;
    }
    let room = Room::new();
    let members = room.array("5", 4);
    let (dir, export) = mount_point(&room);
    let options = ["--export", &export, "--cores", "2"];
    for round in 0..2 {
        let serve = Serve::start(&room, &options, &members);
        if round > 0 {
            assert!(
                serve.said.contains("a server that was killed had left its mount there"),
                "{}",
                serve.said
            );
        }
        let file = File::open(dir.join("data")).unwrap();
        let fio = Command::new("fio")
            .args([
                "--name=load",
                "--ioengine=libaio",
                "--direct=1",
                "--rw=randrw",
                "--bs=4k",
                "--iodepth=32",
            ])
            .args(["--size=16M", "--time_based", "--runtime=600", "--output=fio.log"])
            .arg(format!("--filename={}", dir.join("data").display()))
            .current_dir(room.dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut fio = fio.unwrap();
        std::thread::sleep(Duration::from_millis(1500));
        let killed = Instant::now();
        serve.kill();
        // ENOTCONN, or ECONNABORTED for a request that came in the moment of the kill.
        assert!(matches!(file.read_at(&mut [0; 512], 0).unwrap_err().raw_os_error(), Some(107 | 103)));
        assert!(!fio.wait().unwrap().success());
        assert!(killed.elapsed() < Duration::from_secs(60), "clients hang");
        // The kernel may still be taking down the queues of the second core.
        while fs::metadata(&dir).unwrap_err().raw_os_error() == Some(103) {
            assert!(killed.elapsed() < Duration::from_secs(60), "the mount does not end");
        }
        assert_eq!(fs::metadata(&dir).unwrap_err().raw_os_error(), Some(107));
    }
    let serve = Serve::start(&room, &options, &members);
    serve.wait_until_good();
    serve.command(&["check", "data", "--wait"]).ok();
    serve.stop();
    assert!(!is_mounted(&dir));
}

#[test]
fn files_and_nbd_are_the_same_bytes_and_a_signal_ends_it_while_a_file_is_open() {
    if !can_mount() || !require("nbdcopy") {
        return;
    }
    let room = Room::new();
    let members = room.array("1", 2);
    let (dir, export) = mount_point(&room);
    let nbd = format!("nbd=unix:{}", room.name("nbd.sock"));
    let mut serve = Serve::start(&room, &["--export", &nbd, "--export", &export], &members);
    let array = serve.array();
    assert_eq!(array["exports"], serde_json::json!([serve.uri, dir.join("data").to_str().unwrap()]));
    let bytes = content(1);
    let file = OpenOptions::new().read(true).write(true).open(dir.join("data")).unwrap();
    file.write_all_at(&bytes, 4096).unwrap();
    let copy = room.name("copy");
    tool("nbdcopy", [&serve.uri, &copy]);
    let mut start = vec![0; 4096 + bytes.len()];
    File::open(&copy).unwrap().read_exact(&mut start).unwrap();
    assert!(start[4096..] == bytes);
    serve.command(&["stop", "data"]).failed(3, "WTL-0116", &["its file or device is in use, once"]);
    serve.signal("TERM");
    assert_eq!(serve.wait(), 0);
    let rest = serve.rest();
    assert!(rest.contains("files there are in use"), "{rest}");
    assert!(file.read_at(&mut [0; 1], 0).is_err() && !is_mounted(&dir));
}

/// By `umount`, or by an abort while a program has a file open, whose close the kernel does not
/// tell any more.
#[test]
fn a_mount_that_another_program_takes_away_is_said_to_be_gone_and_keeps_nothing_from_stopping() {
    if !can_mount() {
        return;
    }
    for is_open in [false, true] {
        let room = Room::new();
        let members = room.array("1", 2);
        let (dir, export) = mount_point(&room);
        let nbd = format!("nbd=unix:{}", room.name("nbd.sock"));
        let mut serve = Serve::start(&room, &["--export", &nbd, "--export", &export], &members);
        assert_eq!(serve.array()["exports"].as_array().unwrap().len(), 2);
        let file = is_open.then(|| File::open(dir.join("data")).unwrap());
        // It aborts with `--force`, and is refused where a file is open.
        let umount = Command::new("umount").arg("--force").arg(&dir).output().unwrap();
        assert_eq!(umount.status.success(), !is_open);
        serve.wait_until("the mount's end", |array| array["exports"] == serde_json::json!([serve.uri]));
        drop(file);
        serve.command(&["stop", "data"]).ok();
        assert_eq!(serve.wait(), 0);
        let rest = serve.rest();
        assert!(rest.contains(&format!("{}: another program has unmounted it", dir.display())), "{rest}");
        assert!(!is_mounted(&dir));
    }
}

#[test]
fn a_command_is_told_where_the_file_is() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let (dir, export) = mount_point(&room);
    let size = room.name("size");
    let mut command = wattle();
    command.args(["serve", "mem:8M", "mem:8M", "--level", "0", "--name", "quick", "--export", &export]);
    command.arg("--runtime-dir").arg(room.path("run"));
    command.args(["--run", &format!("stat -c %s \"$file\" > {size}")]);
    said(command.output().unwrap()).ok();
    assert_eq!(fs::read_to_string(size).unwrap(), format!("{}\n", 16 << 20));
    assert!(!is_mounted(&dir));
}

/// Without root `fusermount3` mounts, and takes away what a server that was killed had left.
#[test]
fn an_ordinary_user_mounts_through_the_helper_of_fuse() {
    const NOBODY: u32 = 65534;
    if !can_mount() || !["setpriv", "fusermount3"].into_iter().all(require) {
        return;
    }
    let room = Room::new();
    let members = room.array("5", 3);
    let (dir, export) = mount_point(&room);
    // Where the program was built may be root's alone.
    let program = room.path("wattle");
    fs::copy(env!("CARGO_BIN_EXE_wattle"), &program).unwrap();
    let own = |path: &Path| std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    own(room.dir.path());
    own(&dir);
    members.iter().for_each(|member| own(Path::new(member)));
    let as_nobody = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        command.arg("serve").args(&members).args(["--export", &export, "--runtime-dir"]);
        command.arg(room.path("run"));
        command
    };
    let mut killed = as_nobody().stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_mounted(&dir) {
        assert!(killed.try_wait().unwrap().is_none() && Instant::now() < deadline, "it does not mount");
        std::thread::sleep(Duration::from_millis(20));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(is_mounted(&dir), "a kill leaves the mount");
    let write = "printf hello | dd of=\"$file\" bs=512 seek=3 conv=notrunc,fsync status=none";
    let read = "dd if=\"$file\" bs=512 skip=3 count=1 status=none | head -c 5";
    let said = said(as_nobody().args(["--run", &format!("{write}; {read}; id -u")]).output().unwrap());
    let said = said.ok();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "hello65534\n");
    assert!(said.stderr.contains("a server that was killed had left its mount there"), "{}", said.stderr);
    assert!(!is_mounted(&dir));
}

/// The kernel still knows of the directory what the killed server said a moment before.
#[test]
fn a_server_starts_at_once_where_one_was_killed() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let members = room.array("1", 2);
    let (dir, export) = mount_point(&room);
    let first = Serve::start(&room, &["--export", &export], &members);
    fs::metadata(&dir).unwrap();
    first.kill();
    let second = Serve::start(&room, &["--export", &export], &members);
    assert!(second.said.contains("a server that was killed had left its mount there"), "{}", second.said);
    second.stop();
    assert!(!is_mounted(&dir));
}

#[test]
fn directories_that_cannot_be_mounted_on() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let members = room.array("1", 2);
    fs::write(room.path("file"), "").unwrap();
    let refused = |dir: &str, words: &[&str]| {
        let export = format!("fuse={}", room.name(dir));
        let said = Serve::try_start(&room, &["--export", &export], &members).err().expect("it is refused");
        said.failed(1, "WTL-0115", words);
    };
    refused("missing", &["there is no such directory", "mkdir"]);
    refused("file", &["not a directory"]);
    refused("", &["not empty", "would be hidden"]);
    let (dir, export) = mount_point(&room);
    let serve = Serve::start(&room, &["--export", &export], &members);
    let other = Room::new();
    let others = other.array("1", 2);
    let said = Serve::try_start(&other, &["--export", &export], &others).err().expect("it is refused");
    said.failed(1, "WTL-0115", &["another server serves there"]);
    serve.stop();
    assert!(!is_mounted(&dir));
}
