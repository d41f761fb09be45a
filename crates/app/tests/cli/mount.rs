//! `wattle mount` and `wattle umount`: file systems on arrays, read-only with nothing written,
//! written and kept, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::fuse::{Loop, can_mount};
use crate::harness::{Room, Said, Serve, require, run, said, tool, wattle};
use crate::undo::bytes;
use crate::undo_starts::start_log;

/// Whether everything is there: root, FUSE, loop devices, and the tools.
fn ready() -> bool {
    let tools = ["losetup", "mount", "umount", "mkfs.ext4", "mkfs.xfs", "e2fsck", "xfs_repair"];
    can_mount() && tools.into_iter().all(require)
}

/// An array with a file system on it; `None` where there are no loop devices.
fn array_with(room: &Room, kind: &str) -> Option<Vec<String>> {
    let members = room.blank(3, 160 << 20);
    run(["create", "data", "--level", "5", "--chunk", "64K"]
        .map(str::to_owned)
        .into_iter()
        .chain(members.clone()))
    .ok();
    fs::create_dir(room.path("files")).unwrap();
    let export = format!("fuse={}", room.name("files"));
    let serve = Serve::start(room, &["--export", &export], &members);
    let device = Loop::over(Path::new(&serve.uri), &[])?;
    tool(&format!("mkfs.{kind}"), ["-q", &device.0]);
    drop(device);
    serve.stop();
    Some(members)
}

/// A place to mount on, unmounted when the test is done with it.
struct Place(PathBuf);

impl Place {
    fn new(room: &Room) -> Self {
        let dir = room.path("mnt");
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn is_mounted(&self) -> bool {
        fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&format!(" {} ", self.0.display()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_mounted() {
            let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
        }
    }
}

fn mount(room: &Room, options: &[&str], members: &[String], place: &Place) -> Said {
    let mut command = wattle();
    command.arg("mount").args(members).arg(&place.0).args(options);
    command.arg("--runtime-dir").arg(room.path("run")).env("WATTLE_STATE_DIR", room.path("state"));
    said(command.output().unwrap())
}

fn umount(place: &Place) -> Said {
    run([Path::new("umount"), &place.0])
}

/// The one server of a room, held still until this is dropped.
struct Stopped(String);

impl Stopped {
    fn server_of(room: &Room) -> Self {
        let status = run(["status", "--json", "--runtime-dir", &room.name("run")]).ok();
        let pid = status.json()["arrays"][0]["pid"].to_string();
        tool("kill", ["-STOP", &pid]);
        let state = format!("/proc/{pid}/stat");
        while !fs::read_to_string(&state).unwrap().contains(") T ") {
            thread::sleep(Duration::from_millis(1));
        }
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        tool("kill", ["-CONT", &self.0]);
    }
}

fn nothing_is_served(room: &Room) -> bool {
    let status = run(["status", "--json", "--runtime-dir", &room.name("run")]).ok();
    status.json()["arrays"].as_array().unwrap().is_empty()
}

#[test]
fn what_was_written_is_read_and_reading_writes_nothing() {
    if !ready() {
        return;
    }
    for kind in ["ext4", "xfs"] {
        let room = Room::new();
        let Some(members) = array_with(&room, kind) else { return };
        let place = Place::new(&room);
        mount(&room, &["--write"], &members, &place).ok();
        fs::write(place.0.join("proof.txt"), "it holds").unwrap();
        umount(&place).ok();
        assert!(!place.is_mounted() && nothing_is_served(&room), "{kind}");
        // Recorded clean, and free: nothing stands in the way of another owner.
        assert_eq!(
            run(["scan", "--json"].map(str::to_owned).into_iter().chain(members.clone())).ok().json()["arrays"]
                [0]["health"],
            "good"
        );

        let before = room.contents();
        // One member short, which a read-only mount does not record either. Options may stand
        // before the directory, as in the help.
        let mut command = wattle();
        command.arg("mount").args(&members[1..]).args(["-V", "data"]).arg(&place.0);
        command.arg("--runtime-dir").arg(room.path("run")).env("WATTLE_STATE_DIR", room.path("state"));
        said(command.output().unwrap()).ok();
        assert_eq!(fs::read_to_string(place.0.join("proof.txt")).unwrap(), "it holds");
        assert!(fs::write(place.0.join("more"), "").is_err());
        let busy = fs::File::open(place.0.join("proof.txt")).unwrap();
        umount(&place).failed(1, "WTL-0115", &["busy", "fuser"]);
        drop(busy);
        // A program that another test starts has the file, too, until it is one.
        let unmounted = || umount(&place).status == 0;
        let is_free = (0..50).any(|_| {
            unmounted() || {
                std::thread::sleep(Duration::from_millis(100));
                false
            }
        });
        assert!(is_free, "{kind}");
        assert!(room.contents() == before, "{kind}: a read-only mount wrote");
        assert!(
            fs::read_dir(room.path("run")).unwrap().count() == 0,
            "something is left in the runtime directory"
        );
    }
}

#[test]
fn programs_and_device_files_of_a_mounted_file_system_have_no_power_unless_allowed() {
    if !ready() {
        return;
    }
    let room = Room::new();
    let Some(members) = array_with(&room, "ext4") else { return };
    let place = Place::new(&room);
    let options = || {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let here = format!(" {} ", place.0.display());
        let line = table.lines().find(|line| line.contains(&here)).unwrap();
        line.split(' ').nth(5).unwrap().split(',').map(str::to_owned).collect::<Vec<_>>()
    };
    for (args, safe) in [(&[][..], true), (&["--write"], true), (&["--suid-dev"], false)] {
        mount(&room, args, &members, &place).ok();
        for option in ["nosuid", "nodev"] {
            assert_eq!(options().iter().any(|there| there == option), safe, "{args:?}: {option}");
        }
        umount(&place).ok();
    }
}

/// On devices that are only read, a file system is written all the same, and what was written is
/// there the next time.
#[test]
fn what_is_written_to_an_overlay_stays_there() {
    if !ready() {
        return;
    }
    let room = Room::new();
    let Some(files) = array_with(&room, "ext4") else { return };
    let before = room.contents();
    let loops: Option<Vec<_>> =
        files.iter().map(|file| Loop::over(Path::new(file), &["--read-only"])).collect();
    let Some(loops) = loops else { return };
    let members: Vec<_> = loops.iter().map(|device| device.0.clone()).collect();
    let place = Place::new(&room);
    let dir = room.name("try");
    mount(&room, &["--write", "--overlay", &dir], &members, &place).ok();
    fs::write(place.0.join("proof.txt"), "it holds").unwrap();
    umount(&place).ok();
    mount(&room, &["--overlay", &dir], &members, &place).ok();
    assert_eq!(fs::read_to_string(place.0.join("proof.txt")).unwrap(), "it holds");
    assert!(fs::write(place.0.join("more"), "").is_err());
    umount(&place).ok();
    mount(&room, &[], &members, &place).ok();
    assert!(!place.0.join("proof.txt").exists());
    umount(&place).ok();
    assert!(room.contents() == before, "a member changed");
}

/// A machine that lost power leaves a file system whose log waits to be replayed, which a read-only
/// mount cannot do.
#[test]
fn a_log_that_was_not_replayed_is_left_out_and_that_is_said() {
    if !ready() {
        return;
    }
    for (kind, option) in [("ext4", "noload"), ("xfs", "norecovery")] {
        let room = Room::new();
        let Some(members) = array_with(&room, kind) else { return };
        let place = Place::new(&room);
        mount(&room, &["--write"], &members, &place).ok();
        fs::write(place.0.join("proof.txt"), "it holds").unwrap();
        tool("sync", ["--file-system", place.0.to_str().unwrap()]);
        // With something in the log that is nowhere else.
        fs::write(place.0.join("late"), "late").unwrap();
        tool("sync", [place.0.join("late").to_str().unwrap()]);
        let crashed = Room::new();
        let copies: Vec<_> = (0..members.len()).map(|ix| crashed.name(&format!("copy-{ix}"))).collect();
        {
            // Of one moment, as a power cut leaves them: a server that goes on meanwhile may record
            // twice between two of these copies, and the first of them is then a stale member.
            let _stopped = Stopped::server_of(&room);
            for (member, copy) in members.iter().zip(&copies) {
                fs::copy(member, copy).unwrap();
            }
        }
        umount(&place).ok();

        let before = crashed.contents();
        let told = mount(&crashed, &[], &copies, &place).ok();
        assert!(told.stderr.contains("NOT ALL THAT WAS WRITTEN IS SEEN"), "{kind}: {}", told.stderr);
        assert!(told.stderr.contains(option), "{}", told.stderr);
        assert!(place.0.read_dir().is_ok());
        umount(&place).ok();
        assert!(crashed.contents() == before, "{kind}: a read-only mount wrote");
        // With leave to write it is replayed.
        mount(&crashed, &["--write"], &copies, &place).ok();
        assert_eq!(fs::read_to_string(place.0.join("late")).unwrap(), "late");
        umount(&place).ok();
    }
}

#[test]
fn what_a_forced_start_writes_over_is_saved_where_it_is_said() {
    if !ready() || !require("qemu-io") {
        return;
    }
    let room = Room::new();
    let Some(mut members) = array_with(&room, "ext4") else { return };
    let serve = Serve::start(&room, &[], &members);
    tool("qemu-io", ["-f", "raw", "-c", "write -P 0 300M 64k", &serve.uri]);
    serve.kill();
    members.remove(0);
    let before = bytes(&members);
    let place = Place::new(&room);
    let logs = room.name("logs");
    mount(&room, &["--force=dirty-degraded"], &members, &place).ok();
    umount(&place).ok();
    assert!(bytes(&members) == before, "a read-only mount wrote");
    let forced = mount(&room, &["--write", "--force=dirty-degraded", "--undo", &logs], &members, &place).ok();
    let log = start_log(&forced.stderr);
    assert!(log.starts_with(&logs), "{log}");
    umount(&place).ok();
    let refused = || run(["cat".to_owned()].into_iter().chain(members.clone()));
    assert_eq!(refused().status, 0);
    run(["undo", &log, "--force=written-since", "--undo", &logs]).ok();
    assert!(bytes(&members).iter().zip(&before).all(|(now, before)| now[..1 << 20] == before[..1 << 20]));
    refused().failed(3, "WTL-0049", &["--force=dirty-degraded"]);
}

#[test]
fn whoever_unmounts_it_the_server_ends() {
    if !ready() {
        return;
    }
    let room = Room::new();
    let Some(members) = array_with(&room, "ext4") else { return };
    let place = Place::new(&room);
    mount(&room, &["--write"], &members, &place).ok();
    assert!(!nothing_is_served(&room));
    tool("umount", [&place.0]);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !nothing_is_served(&room) {
        assert!(Instant::now() < deadline, "the server stays");
        std::thread::sleep(Duration::from_millis(50));
    }
    umount(&place).failed(1, "WTL-0115", &["nothing is mounted there"]);
}

#[test]
fn an_array_that_is_served_is_mounted_by_its_name() {
    if !ready() {
        return;
    }
    let room = Room::new();
    let Some(members) = array_with(&room, "ext4") else { return };
    let place = Place::new(&room);
    let export = format!("fuse={}", room.name("files"));
    let name = ["data".to_owned()];
    {
        let serve = Serve::start(&room, &[], &members);
        mount(&room, &[], &name, &place).failed(1, "WTL-0115", &["--export fuse=DIR"]);
        serve.stop();
    }
    let serve = Serve::start(&room, &["--export", &export, "--read-only"], &members);
    mount(&room, &["--write"], &name, &place).failed(1, "WTL-0115", &["read-only"]);
    mount(&room, &[], &name, &place).ok();
    assert!(place.0.join("lost+found").is_dir());
    serve.command(&["stop", "data"]).failed(3, "WTL-0116", &["data"]);
    umount(&place).ok();
    // The server was there before, and goes on.
    assert!(!nothing_is_served(&room));
    serve.stop();
}

#[test]
fn without_a_directory_or_anything_to_mount_there_is_an_error_that_says_so() {
    run(["mount", "/mnt"]).failed(2, "WTL-0001", &["the directory", "wattle mount"]);
    assert_eq!(run(["mount"]).status, 2);
}

#[test]
fn what_cannot_be_mounted_leaves_nothing_behind() {
    if !ready() {
        return;
    }
    let room = Room::new();
    let members = room.array("1", 2);
    let place = Place::new(&room);
    let before = room.contents();
    mount(&room, &[], &members, &place).failed(1, "WTL-0115", &["no file system is found"]);
    mount(&room, &[], &members, &Place(room.path("nowhere"))).failed(1, "WTL-0115", &["mkdir"]);
    mount(&room, &["-V", "other"], &members, &place).failed(2, "WTL-0006", &["other"]);
    let others: Vec<_> = (0..2).map(|ix| room.device(&format!("other-{ix}"), 16 << 20)).collect();
    run(["create", "more", "--level", "1"].map(str::to_owned).into_iter().chain(others.clone())).ok();
    let all = [members.clone(), others.clone()].concat();
    mount(&room, &[], &all, &place).failed(2, "WTL-0007", &["data", "more", "-V"]);
    others.iter().for_each(|other| fs::remove_file(other).unwrap());
    assert!(room.contents() == before && nothing_is_served(&room) && !place.is_mounted());
    assert_eq!(fs::read_dir(room.path("run")).unwrap().count(), 0);
}

#[test]
fn without_root_it_says_what_needs_it_and_what_does_not() {
    if !require("setpriv") {
        return;
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_wattle")]);
    let output = command.args(["mount", "a.img", "/mnt"]).output().unwrap();
    if String::from_utf8_lossy(&output.stderr).contains("setpriv: ") {
        eprintln!("SKIPPED: cannot become another user");
        return;
    }
    said(output).failed(1, "WTL-0021", &["sudo", "wattle ls", "wattle get"]);
}

/// A logical volume on a RAID 5 without one of its members: from the members, and by name from a
/// server.
#[test]
fn a_logical_volume_is_mounted_and_given_back() {
    if !ready() || !require("zstd") {
        return;
    }
    let room = Room::new();
    let unpack = |ix| {
        let image = room.name(&format!("member-{ix}.img"));
        let packed = crate::harness::fixtures().join(format!("lvm-linear-on-raid5/member-{ix}.img.zst"));
        tool("zstd", ["-dq", packed.to_str().unwrap(), "-o", &image]);
        image
    };
    let members: Vec<String> = [0, 1, 3, 4].map(unpack).to_vec();
    let Some(device) = Loop::over(Path::new(&members[0]), &[]) else { return };
    drop(device);
    let place = Place::new(&room);
    let proof = || fs::read_to_string(place.0.join("proof.txt")).unwrap();
    room.untouched(|| {
        mount(&room, &["-V", "foxtrot/home"], &members, &place).ok();
        assert_eq!(proof().trim(), "kept by linux");
        umount(&place).ok();
        // When it says so, the server has ended and let go of the members.
        let left = fs::read_dir(room.path("run")).unwrap().count();
        assert_eq!(left, 0, "something is left in the runtime directory");
    });
    fs::create_dir(room.path("files")).unwrap();
    let export = format!("fuse={}", room.name("files"));
    let serve = Serve::start(&room, &["-V", "foxtrot/home", "--read-only", "--export", &export], &members);
    let served = ["foxtrot/home".to_owned()];
    mount(&room, &["--write"], &served, &place).failed(1, "WTL-0115", &["foxtrot/home is served read-only"]);
    mount(&room, &[], &served, &place).ok();
    assert_eq!(proof().trim(), "kept by linux");
    serve.command(&["stop", "foxtrot/home"]).failed(3, "WTL-0116", &["foxtrot/home"]);
    umount(&place).ok();
    serve.command(&["stop", "foxtrot/home"]).ok();
}
