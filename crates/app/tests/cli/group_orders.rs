//! Orders to servers of volume groups that must not do what they would: with another program at the
//! same group, with what was left on the drives, and where it is not clear what is meant.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;

use crate::group_changes::Client;
use crate::growing::order;
use crate::harness::{Room, Said, Serve, require, run, tool};
use crate::remote::Server;

const MIB: u64 = 1 << 20;

/// A command on members, with backups in the room.
fn on(room: &Room, words: &str, members: &[&str]) -> Said {
    let backups = room.name("backups");
    run(words.split_whitespace().chain(["--backup-dir", &backups, "--no-undo"]).chain(members.to_vec()))
}

/// A group with extents of 1 MiB.
fn group(room: &Room, name: &str, members: &[&str]) {
    on(room, &format!("vg create {name} -s 1M"), members).ok();
}

fn put(name: &str, bytes: &[u8], offset_bytes: u64) {
    File::options().write(true).open(name).unwrap().write_all_at(bytes, offset_bytes).unwrap();
}

/// Across a network there are no locks: two programs have the group at once.
#[test]
fn a_group_that_another_program_changed_is_changed_again_only_after_a_restart() {
    if !require("nbdkit") {
        return;
    }
    let room = Room::new();
    let a = room.device("a", 64 * MIB);
    group(&room, "tank", &[&a]);
    on(&room, "lv create tank/keep -l 4", &[&a]).ok();
    let nbd = Server::start(&room, "nbd", &["nbdkit", "--foreground", "--unix", "SOCKET", "file", &a]);
    let serve = Serve::start(&room, &[], &[nbd.uri()]);
    on(&room, "lv create tank/theirs -l 4", &[&a]).ok();
    put(&a, &[0xAB; 4 << 20], 5 * MIB);
    let before = fs::read(&a).unwrap();
    for words in ["lv create tank/ours -l 4", "lv create tank/ours -l 4", "lv remove tank/keep"] {
        order(&room, &serve, words).failed(3, "WTL-0031", &["start it again"]);
        assert!(fs::read(&a).unwrap() == before, "{words}");
    }
    assert_eq!(serve.command(&["status"]).ok().status, 0);
    serve.stop();
    let serve = Serve::start(&room, &[], &[nbd.uri()]);
    order(&room, &serve, "lv create tank/ours -l 4").ok();
    serve.stop();
    let listed = run(["lv", "list", &a]).ok();
    assert!(["keep", "ours", "theirs"].iter().all(|name| listed.text().contains(name)), "{}", listed.text());
}

/// Superblocks of metadata 1.0 are at the end of what they are on.
#[test]
fn nothing_of_earlier_times_turns_up_in_a_new_volume_or_the_new_end_of_one() {
    let room = Room::new();
    let a = room.device("a", 64 * MIB);
    group(&room, "tank", &[&a]);
    let [first, second] = ["first", "second"].map(|name| room.device(name, 8 * MIB));
    run(["create", "old", "--level", "1", "--metadata", "1.0", &first, &second]).ok();
    put(&a, &fs::read(&first).unwrap(), MIB);
    put(&a, &fs::read(&second).unwrap(), 9 * MIB);
    let [third, fourth] = ["third", "fourth"].map(|name| room.device(name, 12 * MIB));
    run(["create", "older", "--level", "1", "--metadata", "1.0", &third, &fourth]).ok();
    put(&a, &fs::read(&third).unwrap()[8 << 20..], 25 * MIB);
    for name in ["x", "y", "z"] {
        on(&room, &format!("lv create tank/{name} -l 8"), &[&a]).ok();
    }
    let extended = on(&room, "lv extend tank/z -l +4", &[&a]).ok();
    assert!(extended.text().contains("zeros over what was left"), "{}", extended.text());
    let scanned = run(["scan", "--json", &a]).ok().json();
    assert_eq!(scanned["arrays"].as_array().map(Vec::len), Some(0), "{scanned:#}");
}

/// A client's own data at the old end of a volume is not what was left.
#[test]
fn what_a_volume_holds_stays_when_it_grows() {
    let room = Room::new();
    let a = room.device("a", 64 * MIB);
    group(&room, "tank", &[&a]);
    on(&room, "lv create tank/x -l 8", &[&a]).ok();
    let before: Vec<u8> = (0..16 << 20).map(|at: u32| (at / 511) as u8).collect();
    put(&a, &before, MIB);
    on(&room, "lv extend tank/x -l +8", &[&a]).ok();
    assert!(fs::read(&a).unwrap()[1 << 20..17 << 20] == before);
}

/// The group `tank` with a volume, and beside it the array `mirror`.
fn group_and_mirror(room: &Room) -> Vec<String> {
    let drive = room.device("drive", 64 * MIB);
    group(room, "tank", &[&drive]);
    on(room, "lv create tank/data -l 4", &[&drive]).ok();
    let [first, second] = ["first", "second"].map(|name| room.device(name, 8 * MIB));
    run(["create", "mirror", "--level", "1", &first, &second]).ok();
    vec![drive, first, second]
}

/// With a volume group a server stops as a whole: an order that names an array beside it means
/// that array, and one that names the group not the array. So it is where the server has the name
/// of one of them, as it has if it is given none.
#[test]
fn what_lies_beside_what_is_stopped_is_not_stopped_with_it_unasked() {
    let room = Room::new();
    let members = group_and_mirror(&room);
    for (name, server) in [(None, "mirror"), (Some("lab"), "lab"), (Some("tank"), "tank")] {
        let args: Vec<&str> = name.into_iter().flat_map(|name| ["--name", name]).collect();
        let mut serve = Serve::start(&room, &args, &members);
        let whole = format!("stop --server {server}");
        for (stopped, beside) in [("mirror", "tank"), ("tank", "mirror"), ("tank/data", "mirror")] {
            let refusal = format!("{stopped} was not stopped: {beside} would be stopped with it");
            let words = [&refusal[..], &whole];
            serve.command(&["stop", stopped]).failed(3, "WTL-0116", &words);
        }
        let status = serve.command(&["status", "--json"]).ok().json();
        assert_eq!(status["arrays"][0]["name"], "mirror");
        // The array is not all that the server has, whatever that is called.
        let no_array = if server == "tank" { "lies on no array" } else { "no array is called lab" };
        if server != "mirror" {
            serve.command(&["fail", server, "0"]).failed(1, "WTL-0100", &[no_array]);
        }
        let stop = if server == "lab" { &["stop", "lab"][..] } else { &["stop", "--server", server] };
        serve.command(stop).ok();
        assert_eq!(serve.wait(), 0);
    }
}

/// Drives are served as they are, or in partitions, without a group.
#[test]
fn partitions_and_bare_drives_beside_an_array_are_not_stopped_with_it_unasked() {
    if !require("mkfs.ext4") {
        return;
    }
    let room = Room::new();
    let [part, plain] = ["part", "plain"].map(|name| room.device(name, 32 * MIB));
    run(["partition", &part, "--part", "1:1M+16M", "--no-undo"]).ok();
    tool("mkfs.ext4", ["-q", "-E", "offset=1048576", &part, "16m"]);
    tool("mkfs.ext4", ["-q", &plain]);
    let pair = ["first", "second"].map(|name| room.device(name, 8 * MIB));
    run(["create", "mirror", "--level", "1", &pair[0], &pair[1]]).ok();
    let mut serve = Serve::start(&room, &["--name", "lab"], &[&part, &plain, &pair[0], &pair[1]]);
    let partition = format!("{part}:p1");
    for (stopped, others) in [
        ("mirror", [&partition[..], &plain]),
        (&partition, ["mirror", &plain]),
        (&plain, ["mirror", &partition]),
    ] {
        let refused = serve.command(&["stop", stopped]).failed(3, "WTL-0116", &others);
        assert!(refused.stderr.contains("would be stopped with it"), "{}", refused.stderr);
    }
    serve.command(&["stop", "lab"]).ok();
    assert_eq!(serve.wait(), 0);
}

/// While an order changes the group, what lies on what is not known: a stop waits until it is.
#[test]
fn a_stop_while_a_group_is_being_changed_stops_no_more_than_is_meant() {
    let room = Room::new();
    let members = group_and_mirror(&room);
    let serve = Serve::start(&room, &["--name", "lab"], &members);
    let far = TcpListener::bind("127.0.0.1:0").unwrap();
    let extend = format!("vg extend tank --on nbd://{}/silent --dry-run", far.local_addr().unwrap());
    std::thread::scope(|scope| {
        let ordered = scope.spawn(|| order(&room, &serve, &extend));
        // It has connected: the order is being carried out.
        let _held = far.accept().unwrap();
        serve.command(&["stop", "mirror"]).failed(3, "WTL-0116", &["tank would be stopped with it"]);
        assert_ne!(ordered.join().unwrap().status, 0);
    });
    serve.stop();
}

#[test]
fn a_group_of_which_there_are_several_is_named_by_its_uuid() {
    let room = Room::new();
    let drives = ["a", "b"].map(|name| room.device(name, 64 * MIB));
    for drive in &drives {
        group(&room, "tank", &[drive]);
        on(&room, "lv create tank/data -l 4", &[drive]).ok();
    }
    let [first, second] = [("vm1", &drives[0]), ("vm2", &drives[1])]
        .map(|(name, drive)| Serve::start(&room, &["--name", name], &[drive]));
    let refused = order(&room, &first, "lv remove tank/data").failed(2, "WTL-0007", &["vm1", "vm2"]);
    first.command(&["stop", "tank/data"]).failed(2, "WTL-0007", &["vm1", "vm2"]);
    let mut words = refused.stderr.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let uuid = words.find(|word| word.len() == 38).unwrap();
    order(&room, &first, &format!("lv remove {uuid}/data")).ok();
    first.stop();
    second.stop();
    let left = drives.iter().filter(|drive| run(["lv", "list", drive]).ok().text().contains("data")).count();
    assert_eq!(left, 1);
}

#[test]
fn a_drive_that_clients_have_open_does_not_become_a_physical_volume() {
    let room = Room::new();
    let [a, b] = ["a", "b"].map(|name| room.device(name, 64 * MIB));
    group(&room, "tank", &[&a]);
    on(&room, "lv create tank/home -l 4", &[&a]).ok();
    let socket = room.path("nbd");
    let export = format!("nbd=unix:{}", socket.display());
    let serve = Serve::start(&room, &["--export", &export, "-V", "tank/home", "-V", &b], &[&a, &b]);
    let extend = format!("vg extend tank --on {b}");
    let client = Client::connect(&socket, &b).unwrap();
    order(&room, &serve, &extend).failed(3, "WTL-0116", &["in use: 1 NBD client"]);
    assert!(fs::read(&b).unwrap().iter().all(|&byte| byte == 0));
    client.leave();
    let extended = order(&room, &serve, &extend).ok();
    assert!(extended.text().contains("not offered any more"), "{}", extended.text());
    assert!(Client::connect(&socket, &b).is_none());
    Client::connect(&socket, "tank/home").unwrap().leave();
    serve.stop();
}

#[test]
fn what_could_not_be_written_is_not_called_gone() {
    if !require("nbdkit") {
        return;
    }
    let room = Room::new();
    let a = room.device("a", 64 * MIB);
    let fails = room.name("fails");
    let error = format!("error-file={fails}");
    let line = ["nbdkit", "--foreground", "--unix", "SOCKET", "--filter=error", "file", &a];
    let rate = ["error-pwrite-rate=100%", "error-zero-rate=100%", error.as_str()];
    let nbd = Server::start(&room, "nbd", &[&line[..], &rate[..]].concat());
    group(&room, "tank", &[&a]);
    fs::write(&fails, "").unwrap();
    on(&room, "vg remove tank", &[&nbd.uri()]).failed(1, "WTL-0029", &[&nbd.uri()]);
    fs::remove_file(&fails).unwrap();
    on(&room, "vg remove tank", &[&nbd.uri()]).ok();
    fs::write(&fails, "").unwrap();
    on(&room, "pv remove", &[&nbd.uri()]).failed(1, "WTL-0029", &[&nbd.uri()]);
    fs::remove_file(&fails).unwrap();
    on(&room, "pv remove", &[&nbd.uri()]).ok();
}

/// As a cut leaves it between the commit and the labels of `vg reduce`.
#[test]
fn a_physical_volume_that_left_its_group_half_way_can_be_used_again() {
    let room = Room::new();
    let [a, b, old] = ["a", "b", "old"].map(|name| room.device(name, 64 * MIB));
    group(&room, "tank", &[&a, &b]);
    fs::copy(&b, &old).unwrap();
    on(&room, &format!("vg reduce tank --on {b}"), &[&a, &b]).ok();
    let again = || {
        fs::copy(&old, &b).unwrap();
        let listed = run(["vg", "list", "--noheadings", "-o", "vg_name,pv_count", &a, &b]).ok();
        assert_eq!(listed.text().split_whitespace().collect::<Vec<_>>(), ["tank", "1"]);
    };
    again();
    on(&room, &format!("pv remove --on {b}"), &[&a, &b]).ok();
    again();
    on(&room, &format!("pv create --force=signature --on {b}"), &[&a, &b]).ok();
    again();
    on(&room, &format!("vg extend tank --on {b}"), &[&a, &b]).ok();
    let listed = run(["vg", "list", "--noheadings", "-o", "vg_name,pv_count", &a, &b]).ok();
    assert_eq!(listed.text().split_whitespace().collect::<Vec<_>>(), ["tank", "2"]);
}
