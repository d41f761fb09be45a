//! What servers overwrite on an order, or by a start that was forced, is saved first too; nothing
//! is brought back under a server.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::growing::{group, order};
use crate::harness::{Room, Serve, require, run, tool, wattle};
use crate::lvm::lvm;
use crate::undo::{bytes, log_of, put, saving};
use crate::undo_starts::start_log;

const END: usize = 1 << 20;

/// A server of an array of three without its second member, and a device with something on it.
fn degraded(room: &Room, args: &[&str]) -> (Serve, Vec<String>, String) {
    let mut members = room.array("5", 3);
    members.remove(1);
    let serve = Serve::start(room, args, &members);
    let new = room.device("new", 16 << 20);
    put(&new, 0, &(0..16 << 20).map(|at: usize| (at / 511) as u8).collect::<Vec<_>>());
    put(&new, 4086, b"SWAPSPACE2");
    put(&new, (16 << 20) - 4096, &[9].repeat(4096));
    (serve, members, new)
}

/// Both ends of a device, where what tells what it is can be.
fn ends(name: &str) -> (Vec<u8>, Vec<u8>) {
    let all = fs::read(name).unwrap();
    (all[..END].to_vec(), all[all.len() - END..].to_vec())
}

fn swap(name: &str) -> bool {
    run(["scan", name]).ok().text().contains("swap")
}

#[test]
fn what_told_what_an_added_member_was_comes_back_once_it_is_out_again() {
    let room = Room::new();
    let (serve, members, new) = degraded(&room, &[]);
    let before = ends(&new);
    let added = serve.command(&["add", "data", &new, "--force=signature", "--wait"]).ok();
    let log = log_of(&added);
    assert!(log.starts_with(&room.name("state/undo")), "the server's own directory: {log}");
    assert!(Path::new(&log).exists() && added.stderr.contains("first and last MiB"), "{}", added.stderr);
    serve.wait_until_good();
    let undo = |words: &str| saving(&room, &format!("undo {log} {words}"), &[]);
    // It is the server's.
    undo("").failed(3, "WTL-0026", &["new"]);
    undo("--force=written-since").failed(3, "WTL-0026", &["new"]);
    serve.command(&["fail", "data", "new"]).ok();
    serve.command(&["remove", "data", "new"]).ok();
    let as_member = ends(&new);
    undo("").failed(3, "WTL-0183", &["written since", "member of data", "written-since"]);
    assert!(ends(&new) == as_member);
    let undone = undo("--force=written-since").ok();
    assert!(ends(&new) == before && swap(&new), "what tells what it was is there again");
    assert!(undone.text().contains("stays as it is"), "{}", undone.text());
    let all = fs::read(&new).unwrap();
    assert!(
        all[END..all.len() - END].iter().zip(END..).any(|(&byte, at)| byte != (at / 511) as u8),
        "and what was filled is not"
    );
    saving(&room, &format!("undo {}", log_of(&undone)), &[]).ok();
    assert!(ends(&new) == as_member, "that is taken back as well");
    serve.stop();
    let scan = run(["scan".to_owned()].into_iter().chain(members)).ok();
    assert!(scan.text().contains("degraded"), "{}", scan.text());
}

#[test]
fn a_replacement_is_saved_and_a_server_saves_where_it_was_told() {
    let room = Room::new();
    let members = room.array("1", 2);
    let logs = room.name("logs");
    let serve = Serve::start(&room, &["--undo", &logs], &members);
    let new = room.device("new", 16 << 20);
    put(&new, 8192, b"something");
    let before = ends(&new);
    let replaced = serve.command(&["replace", "data", "member-0", &new, "--wait"]).ok();
    let log = log_of(&replaced);
    assert!(log.starts_with(&logs) && log.contains("-replace-data"), "{log}");
    let listed = run(["undo", "--json", "--undo", &logs]).ok().json();
    let command = listed["logs"][0]["command"].as_str().unwrap();
    assert!(
        command.contains("replace data member-0"),
        "what was typed, and not the server's words: {command}"
    );
    // The one that was replaced comes back instead, with a log somewhere else.
    serve.command(&["remove", "data", "member-0"]).ok();
    serve.command(&["fail", "data", "new"]).ok();
    serve.command(&["remove", "data", "new"]).ok();
    let elsewhere = room.name("elsewhere");
    let again = serve.command(&["add", "data", &members[0], "--undo", &elsewhere]).ok();
    assert!(log_of(&again).starts_with(&elsewhere));
    serve.wait_until_good();
    saving(&room, &format!("undo {log} --force=written-since"), &[]).ok();
    assert!(ends(&new) == before);
    serve.stop();
    // Told as a relative path, it is told to others as an absolute one.
    let other = room.name("here");
    let relative =
        format!("{}{other}", "../".repeat(std::env::current_dir().unwrap().components().count() - 1));
    let serve = Serve::start(&room, &["--undo", relative.trim_end_matches('/')], &members);
    let last = room.device("last", 16 << 20);
    let log = log_of(&serve.command(&["add", "data", &last]).ok());
    assert!(log.starts_with('/') && Path::new(&log).exists(), "{log}");
    serve.command(&["remove", "data", "last"]).ok();
    serve.stop();
    // A server that is to save nothing does not, unless the order says where.
    let serve = Serve::start(&room, &["--no-undo"], &members);
    let more = room.device("more", 16 << 20);
    let quiet = serve.command(&["add", "data", &more]).ok();
    assert!(!quiet.stderr.contains("take this back"), "{}", quiet.stderr);
    serve.command(&["remove", "data", "more"]).ok();
    log_of(&serve.command(&["add", "data", &more, "--undo", &elsewhere]).ok());
    serve.stop();
}

#[test]
fn a_member_is_not_added_without_the_log_that_was_asked_for() {
    let room = Room::new();
    let (serve, _, new) = degraded(&room, &[]);
    fs::write(room.path("file"), "no directory").unwrap();
    let before = fs::read(&new).unwrap();
    let dir = room.name("file/undo");
    let words = ["add", "data", new.as_str(), "--force=signature", "--undo", dir.as_str()];
    serve.command(&words).failed(3, "WTL-0180", &["--no-undo", "nothing was changed"]);
    // Nor where the server's own directory cannot be written.
    fs::create_dir_all(room.path("state")).unwrap();
    fs::write(room.path("state/undo"), "no directory").unwrap();
    serve.command(&words[..4]).failed(3, "WTL-0180", &["--no-undo", "nothing was changed"]);
    assert!(fs::read(&new).unwrap() == before);
    assert_eq!(serve.array()["health"], "degraded");
    let added = serve.command(&["add", "data", &new, "--force=signature", "--no-undo", "--wait"]).ok();
    assert!(!added.stderr.contains("take this back"), "{}", added.stderr);
    serve.wait_until_good();
    serve.stop();
}

/// The members of an array that crashed while it was written, without the first; and that one.
pub fn dirty_and_degraded(room: &Room) -> (Vec<String>, String) {
    let mut members = room.array("5", 3);
    let serve = Serve::start(room, &[], &members);
    serve.wait_until_good();
    tool("qemu-io", ["-f", "raw", "-c", "write -P 1 0 1M", &serve.uri]);
    serve.kill();
    let first = members.remove(0);
    (members, first)
}

#[test]
fn what_a_forced_start_writes_over_is_saved_first() {
    if !require("qemu-io") {
        return;
    }
    let room = Room::new();
    let (members, _) = dirty_and_degraded(&room);
    let before = bytes(&members);
    // Without a place for the log it does not start.
    fs::write(room.path("file"), "no directory").unwrap();
    let dir = room.name("file/undo");
    let args = ["--force=dirty-degraded", "--undo", &dir];
    let refused = Serve::try_start(&room, &args, &members).err().unwrap();
    refused.failed(3, "WTL-0180", &["nothing was changed"]);
    assert!(bytes(&members) == before);
    // A server that only reads overwrites nothing, nor one whose writes go to an overlay.
    let overlay = room.name("overlay");
    for args in
        [&["--force=dirty-degraded", "--read-only"][..], &["--force=dirty-degraded", "--overlay", &overlay]]
    {
        let serve = Serve::start(&room, args, &members);
        assert!(!serve.said.contains("take this back"), "{}", serve.said);
        serve.stop();
    }
    assert!(bytes(&members) == before);

    let serve = Serve::start(&room, &["--force=dirty-degraded"], &members);
    let log = start_log(&serve.said);
    assert!(
        log.starts_with(&room.name("state/undo")) && serve.said.contains("superblocks"),
        "{}",
        serve.said
    );
    tool("qemu-io", ["-f", "raw", "-c", "write -P 2 4M 64k", &serve.uri]);
    let undo = |words: &str| saving(&room, &format!("undo {log} {words}"), &[]);
    undo("--force=written-since").failed(3, "WTL-0026", &["member-1"]);
    serve.stop();
    room.untouched(|| undo("")).failed(3, "WTL-0183", &["member of data"]);
    undo("--force=written-since").ok();
    // Superblock, bitmap and bad-block log, as they were; the data is where it was written.
    assert!(bytes(&members).iter().zip(&before).all(|(now, before)| now[..1 << 20] == before[..1 << 20]));
    let refused = run(["cat".to_owned()].into_iter().chain(members.clone()));
    refused.failed(3, "WTL-0049", &["--force=dirty-degraded"]);
}

#[test]
fn orders_to_the_server_of_a_group_are_taken_back_when_it_has_stopped() {
    let room = Room::new();
    let members = group(&room);
    let pvs = [room.device("a", 32 << 20), room.device("b", 32 << 20)];
    lvm(&room, "vg create other -s 1M", &pvs[..1]).ok();
    lvm(&room, "lv create other/one -l 4", &pvs[..1]).ok();
    for words in [
        "lv create other/new -l 3",
        "lv extend other/one -l +2",
        "lv reduce other/one -l -1",
        "lv rename other/one uno",
        "lv remove other/one",
        "lv activate-flags other/one -p r",
        "vg rename other another",
        &format!("vg extend other --on {}", pvs[1]),
    ] {
        let before = bytes(&pvs);
        let serve = Serve::start(&room, &["--name", "s"], &pvs[..1]);
        let done = order(&room, &serve, words).ok();
        let log = log_of(&done);
        assert!(log.starts_with(&room.name("state/undo")), "{log}");
        let undo = format!("undo {log}");
        saving(&room, &undo, &[]).failed(3, "WTL-0026", &["a: "]);
        serve.stop();
        assert!(bytes(&pvs) != before, "{words}");
        saving(&room, &undo, &[]).ok();
        assert!(bytes(&pvs) == before, "`{words}` is taken back byte for byte");
    }
    // On an array, through the array.
    let cat = || run(["cat", "-V", "data"].map(str::to_owned).into_iter().chain(members.clone())).ok().stdout;
    let before = cat();
    let serve = Serve::start(&room, &[], &members);
    let json = order(&room, &serve, "lv extend tank/home -l +1 --json").ok();
    let log = json.json()["undo_log"].as_str().unwrap().to_owned();
    serve.stop();
    assert!(cat() != before);
    saving(&room, &format!("undo {log}"), &[]).ok();
    assert!(cat() == before);
}

#[test]
fn a_change_of_a_served_group_is_not_made_without_its_log() {
    let room = Room::new();
    let pv = [room.device("a", 32 << 20)];
    lvm(&room, "vg create other -s 1M", &pv).ok();
    lvm(&room, "lv create other/one -l 4", &pv).ok();
    let serve = Serve::start(&room, &[], &pv);
    let before = bytes(&pv);
    fs::write(room.path("file"), "no directory").unwrap();
    let words = format!("lv remove other/one --undo {}", room.name("file/undo"));
    order(&room, &serve, &words).failed(3, "WTL-0180", &["nothing was changed"]);
    assert!(bytes(&pv) == before);
    let status = serve.command(&["status"]).ok();
    assert!(status.text().contains("other/one"), "it is found as before: {}", status.text());
    let done = order(&room, &serve, "lv remove other/one --no-undo").ok();
    assert!(!done.stderr.contains("take this back"), "{}", done.stderr);
    serve.stop();
}

#[test]
fn a_move_has_no_undo_log_and_says_why() {
    let room = Room::new();
    let pvs = [room.device("a", 32 << 20), room.device("b", 32 << 20)];
    lvm(&room, "vg create other -s 1M", &pvs).ok();
    lvm(&room, &format!("lv create other/one -l 4 --on {}", pvs[0]), &pvs).ok();
    let words = format!("lv move other --from {}", pvs[0]);
    room.untouched(|| saving(&room, &words, &pvs)).failed(2, "WTL-0001", &["no undo log", "move it back"]);
    let moved = lvm(&room, &words, &pvs).ok();
    assert!(moved.text().contains("no undo log"), "{}", moved.text());
    assert!(!moved.stderr.contains("take this back"), "{}", moved.stderr);
    lvm(&room, &format!("lv move other --from {} --on {}", pvs[1], pvs[0]), &pvs).ok();
}

/// Kills a server at some moment of an order.
fn kill_during(room: &Room, serve: Serve, args: &[&str], after: Duration) {
    let mut order = wattle();
    order.args(args).arg("--runtime-dir").arg(room.path("run"));
    let mut order = order.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(after);
    serve.kill();
    order.wait().unwrap();
}

/// The only log that a server has saved.
fn only_log(room: &Room) -> Option<String> {
    let logs = fs::read_dir(room.path("state/undo")).ok()?;
    let mut logs = logs
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "undo"));
    let log = logs.next()?;
    assert!(logs.next().is_none());
    Some(log.to_str().unwrap().to_owned())
}

#[test]
fn an_order_that_its_server_does_not_survive_changed_nothing_or_is_taken_back() {
    let (mut with, mut without) = (0, 0);
    for step in 0..=10 {
        let after = Duration::from_millis(1 << step);
        let room = Room::new();
        let pv = [room.device("a", 32 << 20)];
        lvm(&room, "vg create other -s 1M --no-undo", &pv).ok();
        lvm(&room, "lv create other/one -l 4 --no-undo", &pv).ok();
        let before = bytes(&pv);
        let serve = Serve::start(&room, &["--name", "s"], &pv);
        kill_during(&room, serve, &["lv", "create", "other/new", "-l", "3"], after);
        match only_log(&room) {
            None => without += 1,
            Some(log) => {
                with += 1;
                saving(&room, &format!("undo {log}"), &[]).ok();
            }
        }
        assert!(bytes(&pv) == before, "killed after {after:?}");

        let room = Room::new();
        let (serve, _, new) = degraded(&room, &[]);
        let before = ends(&new);
        kill_during(&room, serve, &["add", "data", &new, "--force=signature"], after);
        match only_log(&room) {
            None => without += 1,
            Some(log) => {
                with += 1;
                saving(&room, &format!("undo {log} --force=written-since"), &[]).ok();
            }
        }
        assert!(ends(&new) == before, "killed after {after:?}");
    }
    assert!(with > 0 && without > 0, "{with} with a log, {without} without");
}
