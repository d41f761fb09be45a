//! Volume groups that are changed while clients use their volumes: by orders to the server that has
//! them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use crate::fuse::{Loop, can_mount};
use crate::harness::{Room, Said, Serve, require, run, tool};

/// Runs a command on members, with backups in the room.
fn lvm(room: &Room, words: &str, members: &[String]) -> Said {
    let words =
        words.split_whitespace().map(str::to_owned).chain(["--backup-dir".to_owned(), room.name("backups")]);
    run(words.chain(members.iter().cloned()))
}

/// An array with the group `tank`, with the volumes `home` of 8 MiB and `rest` of 4 MiB behind it.
pub fn group(room: &Room) -> Vec<String> {
    let members = room.array("5", 4);
    lvm(room, "vg create tank -s 1M", &members).ok();
    lvm(room, "lv create tank/home -l 8", &members).ok();
    lvm(room, "lv create tank/rest -l 4", &members).ok();
    members
}

/// Gives a server an order.
pub fn order(room: &Room, serve: &Serve, words: &str) -> Said {
    let backups = room.name("backups");
    let words: Vec<_> = words.split_whitespace().chain(["--backup-dir", &backups]).collect();
    serve.command(&words)
}

/// Kills a server, and waits until the system has given back what it held: the next server has
/// the patience.
pub fn kill(room: &Room, serve: Serve, members: &[String]) {
    serve.kill();
    Serve::start(room, &["--read-only"], members).stop();
}

pub fn content(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 512 * 7 + at) as u8 ^ seed).collect()
}

pub fn cat(volume: &str, members: &[String]) -> Vec<u8> {
    run(["cat", "-V", volume].map(str::to_owned).into_iter().chain(members.to_vec())).ok().stdout
}

#[test]
fn a_volume_grows_under_a_client_that_verifies_what_it_writes() {
    if !["fio", "nbdinfo", "nbdcopy"].into_iter().all(require) {
        return;
    }
    let room = Room::new();
    let members = group(&room);
    let serve = Serve::start(&room, &["-V", "tank/home", "--cores", "2"], &members);
    let fio = Command::new("fio")
        .args(["--name=v", "--ioengine=nbd", &format!("--uri={}", serve.uri), "--rw=randwrite", "--bs=8k"])
        .args(["--size=8M", "--io_size=48M", "--verify=crc32c", "--verify_backlog=64", "--iodepth=8"])
        .args(["--serialize_overlap=1", "--rate_iops=2500", "--output-format=json"])
        .current_dir(room.dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let size = || tool("nbdinfo", ["--size", &serve.uri]).trim().parse::<u64>().unwrap();
    assert_eq!(size(), 8 << 20);
    for extents in 9..=20_u64 {
        let said = order(&room, &serve, "lv extend tank/home -l +1").ok();
        assert!(said.text().contains("when they connect again"), "{}", said.text());
        assert_eq!(size(), extents << 20);
    }
    let output = fio.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !said.contains("verify:"), "{said}");
    // All of it, the new end included, through a client that came afterwards.
    let whole = content(20 << 20, 0);
    fs::write(room.path("whole"), &whole).unwrap();
    tool("nbdcopy", ["--flush", &room.name("whole"), &serve.uri]);
    // What was committed holds whatever becomes of the server.
    kill(&room, serve, &members);
    assert!(cat("tank/home", &members) == whole);
    assert!(cat("tank/rest", &members).iter().all(|&byte| byte == 0), "the one in between is as it was");
}

#[test]
fn members_of_a_group_that_is_served_are_its_servers_to_change() {
    let room = Room::new();
    let members = group(&room);
    let serve = Serve::start(&room, &["-V", "tank/home"], &members);
    let with_runtime = |words: &str| {
        let runtime = serve.runtime_dir.to_str().unwrap();
        lvm(&room, &format!("{words} --runtime-dir {runtime}"), &members)
    };
    for words in ["lv extend tank/home -l +1", "lv remove tank/rest", "vg rename tank pool"] {
        with_runtime(words).failed(3, "WTL-0026", &["tank is being served", "leave out the members"]);
    }
    // What the group refuses is refused here as there, and what only members can be told of.
    order(&room, &serve, "lv extend tank/home -l +1000").failed(1, "WTL-0131", &["are free"]);
    order(&room, &serve, "lv extend tank/nobody -l +1").failed(2, "WTL-0006", &["tank/nobody"]);
    order(&room, &serve, "lv extend pool/home -l +1").failed(1, "WTL-0100", &["pool"]);
    order(&room, &serve, "vg export tank").failed(2, "WTL-0001", &["members"]);
    let dry = order(&room, &serve, "lv extend tank/home -l +1 --dry-run --json").ok().json();
    assert_eq!((&dry["dry_run"], &dry["seqno"]), (&true.into(), &4.into()));
    order(&room, &serve, "lv create tank/new -l 2").ok();
    order(&room, &serve, "lv extend tank/new -l +1").ok();
    order(&room, &serve, "lv extend tank/home -l +1").ok();
    serve.stop();
    assert_eq!((cat("tank/new", &members).len(), cat("tank/home", &members).len()), (3 << 20, 9 << 20));

    let serve = Serve::start(&room, &["-V", "tank/home", "--read-only"], &members);
    order(&room, &serve, "lv extend tank/home -l +1").failed(1, "WTL-0025", &["read-only"]);
    serve.stop();
}

#[test]
fn a_file_grows_with_its_volume_and_so_does_a_loop_device() {
    if !can_mount() || !require("losetup") || !require("blockdev") {
        return;
    }
    let room = Room::new();
    let members = group(&room);
    let dir = room.path("files");
    fs::create_dir(&dir).unwrap();
    let serve = Serve::start(&room, &["--export", &format!("fuse={}", dir.display())], &members);
    let path = dir.join("tank/home");
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let Some(device) = Loop::over(&path, &[]) else { return };
    let sectors = || tool("blockdev", ["--getsz", &device.0]).trim().parse::<u64>().unwrap();
    assert_eq!((file.metadata().unwrap().len(), sectors()), (8 << 20, 16 << 10));
    order(&room, &serve, "lv extend tank/home -L 12M").ok();
    assert_eq!(fs::metadata(&path).unwrap().len(), 12 << 20);
    tool("losetup", ["-c", &device.0]);
    assert_eq!(sectors(), 24 << 10);
    let bytes = content(4 << 20, 3);
    file.write_all_at(&bytes, 8 << 20).unwrap();
    assert_eq!(file.write_at(&bytes, 12 << 20).unwrap_err().raw_os_error(), Some(28));
    file.sync_all().unwrap();
    drop((device, file));
    kill(&room, serve, &members);
    tool("umount", ["--lazy", dir.to_str().unwrap()]);
    assert!(cat("tank/home", &members)[8 << 20..] == bytes[..]);
}

/// Three devices with the group `vg`: `home` of 100 MiB on the first, `both` striped over the first
/// two. What they hold.
fn on_devices(room: &Room) -> ([String; 3], [Vec<u8>; 2]) {
    let devices = ["a", "b", "c"].map(|name| room.device(name, 160 << 20));
    lvm(room, "vg create vg -s 1M", &devices).ok();
    lvm(room, &format!("lv create vg/home -l 100 --on {}", devices[0]), &devices).ok();
    let on = format!("--on {} --on {}", devices[0], devices[1]);
    lvm(room, &format!("lv create vg/both -i 2 -l 8 {on}"), &devices).ok();
    let contents = [content(100 << 20, 1), content(8 << 20, 2)];
    for (volume, bytes) in ["vg/home", "vg/both"].into_iter().zip(&contents) {
        fs::write(room.path("fill"), bytes).unwrap();
        let serve = Serve::start(room, &["-V", volume], &devices);
        tool("nbdcopy", ["--flush", &room.name("fill"), &serve.uri]);
        serve.stop();
    }
    (devices, contents)
}

fn check(devices: &[String], contents: &[Vec<u8>; 2]) {
    assert!(cat("vg/home", devices) == contents[0], "home");
    assert!(cat("vg/both", devices) == contents[1], "both");
}

fn used(device: &str, devices: &[String]) -> u64 {
    let words = ["pv", "list", "--json", "-S"].map(str::to_owned).into_iter();
    let report = run(words.chain([format!("pv_name={device}")]).chain(devices.to_vec())).ok().json();
    let row = &report["physical_volumes"][0];
    row["pv_size"].as_u64().unwrap() - row["pv_free"].as_u64().unwrap()
}

#[test]
fn a_physical_volume_is_emptied_under_a_client_and_goes() {
    if !["fio", "nbdcopy"].into_iter().all(require) {
        return;
    }
    let room = Room::new();
    let (devices, contents) = on_devices(&room);
    let [a, _, c] = &devices;
    let serve = Serve::start(&room, &["-V", "vg/home", "--cores", "2"], &devices);
    // The first half is written and verified while it moves, the second half has to stay as it was.
    let fio = Command::new("fio")
        .args(["--name=v", "--ioengine=nbd", &format!("--uri={}", serve.uri), "--rw=randwrite", "--bs=16k"])
        .args(["--size=50M", "--io_size=100M", "--verify=crc32c", "--verify_backlog=32", "--iodepth=8"])
        .args(["--serialize_overlap=1", "--rate_iops=1500", "--output-format=json"])
        .current_dir(room.dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    for round in 0..3 {
        let (from, to) = if round % 2 == 0 { (a, c) } else { (c, a) };
        let said = order(&room, &serve, &format!("lv move vg --from {from} --on {to} --json")).ok().json();
        assert_eq!((&said["moved_bytes"], &said["left_bytes"]), (&(104_u64 << 20).into(), &0.into()));
        let names = ["--from", from.as_str()];
        order(&room, &serve, &format!("lv move vg {}", names.join(" "))).failed(2, "WTL-0133", &["nothing"]);
    }
    let output = fio.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !said.contains("verify:"), "{said}");
    kill(&room, serve, &devices);
    assert!(cat("vg/home", &devices)[50 << 20..] == contents[0][50 << 20..]);
    assert!(cat("vg/both", &devices) == contents[1]);
    assert_eq!(used(a, &devices), 0);
    lvm(&room, &format!("vg reduce vg --on {a}"), &devices).ok();
    assert!(cat("vg/both", &devices[1..]) == contents[1]);
}

#[test]
fn a_move_that_was_killed_goes_on_where_it_was() {
    if !require("nbdcopy") {
        return;
    }
    let room = Room::new();
    let (devices, contents) = on_devices(&room);
    let [a, b, _] = &devices;
    let refused = lvm(&room, &format!("lv move vg/both --from {a} --on {b}"), &devices);
    refused.failed(1, "WTL-0131", &["vg/both"]);
    let dry = room.untouched(|| lvm(&room, &format!("lv move vg --from {a} --dry-run --json"), &devices));
    assert_eq!(dry.ok().json()["left_bytes"], 72 << 20);
    for millis in [1, 30, 60, 120] {
        let serve = Serve::start(&room, &["-V", "vg/home"], &devices);
        let mut command = crate::harness::wattle();
        command.args(["lv", "move", "vg", "--from", a, "--backup-dir", &room.name("backups")]);
        command.arg("--runtime-dir").arg(&serve.runtime_dir).stdout(Stdio::null()).stderr(Stdio::null());
        let mut moving = command.spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(millis));
        kill(&room, serve, &devices);
        moving.wait().unwrap();
        check(&devices, &contents);
    }
    if used(a, &devices) > 0 {
        lvm(&room, &format!("lv move vg --from {a}"), &devices).ok();
    }
    assert_eq!(used(a, &devices), 0);
    check(&devices, &contents);
    lvm(&room, &format!("lv move vg/home --from {} --on {a}", home(&devices)), &devices).ok();
    check(&devices, &contents);
}

/// Where the volume is.
fn home(devices: &[String]) -> String {
    devices[1..].iter().find(|device| used(device, devices) >= 100 << 20).unwrap().clone()
}
