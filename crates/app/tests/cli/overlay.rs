//! Members that are only read: what is written over them is there again, and they stay as they are.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{Room, Said, Serve, require, run, said, wattle};
use crate::lvm::Loop;
use crate::nbd::Client;

const BLOCK: usize = 64 << 10;

fn with(command: &str, members: &[String], more: &[&str]) -> Said {
    run([command].into_iter().chain(members.iter().map(String::as_str)).chain(more.iter().copied()))
}

/// Makes members such that only root could write to them.
fn protect(members: &[String]) {
    for member in members {
        fs::set_permissions(member, fs::Permissions::from_mode(0o444)).unwrap();
    }
}

/// No descriptor of a process that leads to one of these files is good for writing.
fn reads_only(process: u32, members: &[String]) {
    let mut seen = 0;
    for entry in fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten() {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        if !members.iter().any(|member| Path::new(member) == target) {
            continue;
        }
        let info = format!("/proc/{process}/fdinfo/{}", entry.file_name().display());
        let info = fs::read_to_string(info).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        assert_eq!(u32::from_str_radix(flags, 8).unwrap() & 0o3, 0, "{}", target.display());
        seen += 1;
    }
    assert!(seen >= members.len(), "{seen} of {}", members.len());
}

#[test]
fn what_is_written_over_members_is_there_again_and_they_stay_as_they_are() {
    let room = Room::new();
    let members = room.array("5", 4);
    let before = room.contents();
    protect(&members);
    let dir = room.name("try");
    let overlay = ["--overlay", dir.as_str()];
    let block = vec![0x5A; BLOCK];

    let serve = Serve::start(&room, &overlay, &members);
    assert!(
        serve.said.contains("members are only read") && serve.said.contains("nothing was before"),
        "{}",
        serve.said
    );
    reads_only(serve.pid(), &members);
    let mut client = Client::connect(&serve.uri).unwrap();
    client.write(1 << 20, &block).unwrap();
    // A member fails, and the others' superblocks say so.
    serve.command(&["fail", "data", "member-3"]).ok();
    client.write(3 << 20, &block).unwrap();
    client.flush().unwrap();
    drop(client);
    serve.stop();

    let cat = with("cat", &members, &overlay).ok();
    assert!(cat.stderr.contains("from before there are 4 files"), "{}", cat.stderr);
    let mut expected = vec![0; cat.stdout.len()];
    expected[1 << 20..][..BLOCK].copy_from_slice(&block);
    expected[3 << 20..][..BLOCK].copy_from_slice(&block);
    assert!(cat.stdout == expected);
    let scan = |more: &[&str]| {
        with("scan", &members, &[more, &["--json"]].concat()).ok().json()["arrays"][0].clone()
    };
    assert_eq!((&scan(&overlay)["slots"], &scan(&[])["slots"]), (&"[UUU_]".into(), &"[UUUU]".into()));
    assert!(
        with("cat", &members, &[]).ok().stdout.iter().all(|&byte| byte == 0),
        "the members are as they were"
    );

    // Killed, what was flushed is there; and what is made of it goes on.
    let serve = Serve::start(&room, &overlay, &members);
    let mut client = Client::connect(&serve.uri).unwrap();
    client.write(0, &block).unwrap();
    client.flush().unwrap();
    serve.kill();
    // Dirty and degraded, as it would be without an overlay.
    let serve = Serve::start(&room, &["--overlay", &dir, "--force=dirty-degraded"], &members[..3]);
    assert_eq!(Client::connect(&serve.uri).unwrap().read(0, BLOCK).unwrap(), block);
    serve.stop();
    assert!(room.contents() == before, "no byte of a member changed");
}

/// Root may write to read-only files; an ordinary user shows that nothing tries.
#[test]
fn an_ordinary_user_tries_what_only_others_may_write() {
    if !require("setpriv") {
        return;
    }
    let room = Room::new();
    let members = room.array("5", 3);
    protect(&members);
    fs::set_permissions(room.dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let as_nobody = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            env!("CARGO_BIN_EXE_wattle"),
            "serve",
        ]);
        command.args(&members).args(args).arg("--runtime-dir").arg(room.path("run"));
        command.args(["--export", &format!("nbd=unix:{}", room.name("a.sock")), "--run", "true"]);
        said(command.env("WATTLE_STATE_DIR", room.path("state")).output().unwrap())
    };
    let plain = as_nobody(&[]);
    if plain.stderr.contains("setpriv: ") || plain.stderr.contains("Permission denied") {
        return; // This user may not become another one, or that one may not run the command.
    }
    plain.failed(1, "WTL-0025", &["it is read-only"]);
    let dir = room.name("try");
    room.untouched(|| as_nobody(&["--overlay", &dir])).ok();
}

#[test]
fn an_overlay_is_of_one_member_as_it_was() {
    let room = Room::new();
    let members = room.array("1", 2);
    let dir = room.name("try");
    let overlay = ["--overlay", dir.as_str()];
    Serve::start(&room, &overlay, &members).stop();
    with("scan", &members, &overlay).ok();
    let first = room.path("try/member-0.overlay");
    let refused = |what: &[&str]| {
        for command in ["scan", "cat", "serve"] {
            room.untouched(|| with(command, &members, &overlay)).failed(3, "WTL-0164", what);
        }
    };

    // Written in the middle, where nothing is looked at: the time tells.
    let member = fs::File::options().write(true).open(&members[0]).unwrap();
    let modified = member.metadata().unwrap().modified().unwrap();
    member.write_all_at(&[1; 512], 3_000_000).unwrap();
    refused(&["member-0.overlay is the overlay of another member", "the member was written since"]);
    // Written at the start, and the time set back.
    member.write_all_at(&[1; 512], 4096 + 2048).unwrap();
    member.set_modified(modified).unwrap();
    refused(&["the member has other bytes at byte 4096 than when it was made"]);
    member.set_len(17 << 20).unwrap();
    refused(&["it was made over 32768 sectors, and this member has 34816"]);
    drop(member);
    // Without it the member is what it is.
    let kept = fs::read(&first).unwrap();
    fs::write(&first, &kept[..100]).unwrap();
    refused(&["it is no overlay", "remove the file"]);
    fs::remove_file(&first).unwrap();
    assert_ne!(with("scan", &members, &overlay).status, 3);

    let mut damaged = fs::read(room.path("try/member-1.overlay")).unwrap();
    damaged[200] ^= 1;
    fs::write(room.path("try/member-1.overlay"), &damaged).unwrap();
    refused(&["member-1.overlay: its header is damaged"]);
    fs::write(room.path("file"), "").unwrap();
    let nowhere = room.name("file");
    with("scan", &members, &["--overlay", &nowhere]).failed(1, "WTL-0163", &["--overlay", "file"]);
}

/// A drive does not say when it was written, and its own ends stay as they are while what is in a
/// partition is used.
#[test]
fn a_drive_that_was_written_in_a_partition_is_refused() {
    let room = Room::new();
    let members = room.array("1", 2);
    let mut disk = vec![0; 1 << 20];
    disk[446 + 4] = 0xfd;
    disk[446 + 8..446 + 12].copy_from_slice(&2048_u32.to_le_bytes());
    disk[446 + 12..446 + 16].copy_from_slice(&(16_u32 << 11).to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk.extend(fs::read(&members[0]).unwrap());
    fs::write(room.path("disk"), disk).unwrap();
    let Some(drive) = Loop::new(&room.name("disk")) else { return };
    let members = [drive.0.clone(), members[1].clone()];
    for (ix, place) in [4096 + 512 + 300, (16 << 20) - 5000].into_iter().enumerate() {
        let dir = room.name(&format!("try-{ix}"));
        let overlay = ["--overlay", dir.as_str()];
        Serve::start(&room, &overlay, &members).stop();
        with("scan", &members, &overlay).ok();
        let written = fs::File::options().write(true).open(&drive.0).unwrap();
        written.write_all_at(&[9], (1 << 20) + place).unwrap();
        written.sync_all().unwrap();
        with("scan", &members, &overlay).failed(3, "WTL-0164", &["the member has other bytes at byte"]);
    }
}

#[test]
fn one_overlay_has_one_owner_and_reading_makes_no_files() {
    let room = Room::new();
    let members = room.array("5", 3);
    let dir = room.name("try");
    let overlay = ["--overlay", dir.as_str()];
    with("cat", &members, &overlay).ok();
    let serve = Serve::start(&room, &["--overlay", &dir, "--read-only"], &members);
    assert_eq!(fs::read_dir(room.path("try")).unwrap().count(), 0, "nothing was written");
    serve.stop();
    let serve = Serve::start(&room, &overlay, &members);
    // The members themselves are free for other readers, their overlays are not.
    with("cat", &members, &[]).ok();
    with("serve", &members, &overlay).failed(3, "WTL-0026", &["member-0.overlay", "in use"]);
    let other = room.name("other");
    let second = Room::new();
    Serve::start(&second, &["--overlay", &other], &members).stop();
    serve.stop();
}

/// The second process finds whole files, and waits for the first or is refused; nothing
/// tells it to remove one that is in use.
#[test]
fn two_that_begin_at_once_do_not_meet_half_an_overlay() {
    let room = Room::new();
    let members = room.array("5", 4);
    for round in 0..5 {
        let dir = room.name(&format!("try-{round}"));
        let start = |number: u32| {
            let mut serve = wattle();
            serve.args(["serve", "--overlay", &dir, "--run", "sleep 0.2"]).args(&members);
            serve.args(["--runtime-dir", &room.name(&format!("run-{round}-{number}"))]);
            serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let both = [start(1), start(2)].map(|serve| serve.wait_with_output().unwrap());
        let ends =
            both.map(|ended| (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned()));
        assert!(ends.iter().any(|(status, _)| *status == Some(0)), "{ends:?}");
        for (status, stderr) in ends {
            assert!(status == Some(0) || stderr.contains("WTL-0026"), "{status:?}: {stderr}");
        }
        let left = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert!(left.into_iter().all(|name| !name.ends_with(".new")));
    }
}

/// Copies of two drives often lie in two directories under one name.
#[test]
fn members_of_one_file_name_need_two() {
    let room = Room::new();
    let members = room.array("1", 2);
    let copies = ["a", "b"].map(|dir| {
        fs::create_dir(room.path(dir)).unwrap();
        room.name(&format!("{dir}/disk.img"))
    });
    members.iter().zip(&copies).for_each(|(member, copy)| fs::rename(member, copy).unwrap());
    let said = with("serve", &copies, &["--overlay", &room.name("try"), "--run", "true"]);
    said.failed(3, "WTL-0164", &["the overlay of another member", "need two names"]);
}
