//! A start that was forced writes over what the members said of the array. The command that starts
//! it saves that first, on drives and on other volumes, and every byte of it comes back.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use crate::harness::{Room, Said, Serve, require, run, tool, wattle};
use crate::lvm::lvm;
use crate::undo::{bytes, log_of, put, saving};
use crate::undo_orders::dirty_and_degraded;

const FORCE: &str = "--force=dirty-degraded";

/// The logs of starts that were forced, in their order.
fn start_logs(stderr: &str) -> Vec<String> {
    let log = |line: &str| {
        Some(
            line.strip_prefix("wattle: to take the forced start of ")?
                .split_once(": wattle undo ")?
                .1
                .to_owned(),
        )
    };
    stderr.lines().filter_map(log).collect()
}

/// The log of the only start that was forced.
#[track_caller]
pub fn start_log(stderr: &str) -> String {
    let mut logs = start_logs(stderr);
    assert_eq!(logs.len(), 1, "{stderr}");
    logs.remove(0)
}

/// Superblocks, bitmaps, logs: what is before the data.
fn heads(members: &[String]) -> Vec<Vec<u8>> {
    bytes(members).into_iter().map(|all| all[..1 << 20].to_vec()).collect()
}

fn undo(room: &Room, log: &str, words: &str) -> Said {
    saving(room, &format!("undo {log} {words}"), &[])
}

fn refused_as_before(members: &[String]) {
    let refused = run(["cat".to_owned()].into_iter().chain(members.to_vec()));
    refused.failed(3, "WTL-0049", &[FORCE]);
}

#[test]
fn changes_of_groups_save_what_a_forced_start_writes_over() {
    if !require("qemu-io") {
        return;
    }
    let room = Room::new();
    let (members, _) = dirty_and_degraded(&room);
    let before = bytes(&members);
    room.untouched(|| saving(&room, "vg create tank -s 1M", &members)).failed(3, "WTL-0049", &[FORCE]);
    let dry =
        room.untouched(|| saving(&room, &format!("vg create tank -s 1M {FORCE} --dry-run"), &members)).ok();
    assert!(start_logs(&dry.stderr).is_empty(), "{}", dry.stderr);
    // Without a place for the log it does not start.
    fs::write(room.path("file"), "no directory").unwrap();
    let dir = room.name("file/undo");
    let words = ["vg", "create", "tank", FORCE, "--undo", &dir].map(str::to_owned);
    room.untouched(|| run(words.into_iter().chain(members.clone()))).failed(
        3,
        "WTL-0180",
        &["nothing was changed"],
    );

    let made = saving(&room, &format!("vg create tank -s 1M {FORCE} --json"), &members).ok();
    let (own, start) = (log_of(&made), start_log(&made.stderr));
    assert!(
        made.json()["undo_log"] == own.as_str() && made.json()["start_undo_logs"][0] == start.as_str(),
        "{}",
        made.text()
    );
    assert!(
        made.stderr.find(&start) < made.stderr.find(&own),
        "it is saved before the array starts: {}",
        made.stderr
    );
    let listed = saving(&room, "undo --json", &[]).ok().json();
    let listed: Vec<_> =
        listed["logs"].as_array().unwrap().iter().map(|log| log["log"].as_str().unwrap()).collect();
    assert_eq!(listed, [own.as_str(), start.as_str()], "in the order in which they are taken back");
    assert!(bytes(&members) != before);
    // What the command wrote first, then the start.
    let undone = undo(&room, &own, "").ok();
    assert!(!undone.text().contains("it was"), "an array has its name: {}", undone.text());
    room.untouched(|| undo(&room, &start, "")).failed(
        3,
        "WTL-0183",
        &["member of data", "can be wrong", "--read-only"],
    );
    let undone = undo(&room, &start, "--force=written-since").ok();
    assert!(undone.text().contains("can give wrong data"), "{}", undone.text());
    assert!(bytes(&members) == before, "every byte is as it was");
    refused_as_before(&members);
}

#[test]
fn a_command_that_is_killed_after_it_forced_a_start_is_taken_back() {
    if !require("qemu-io") {
        return;
    }
    let room = Room::new();
    let (members, _) = dirty_and_degraded(&room);
    let (before, logs) = (bytes(&members), room.name("undo"));
    let (mut with, mut without) = (0, 0);
    for after in (0..=10).map(|step| Duration::from_millis(1 << step)) {
        let mut command = wattle();
        command.args(["vg", "create", "tank", FORCE, "--undo", &logs]).args(&members);
        let mut command = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(after);
        command.kill().unwrap();
        command.wait().unwrap();
        let listed = saving(&room, "undo --json", &[]).ok().json();
        let listed = listed["logs"].as_array().unwrap();
        if listed.is_empty() {
            assert!(bytes(&members) == before, "killed after {after:?}");
            without += 1;
            continue;
        }
        with += 1;
        // The array may still be dirty; what came of it is not to be taken back.
        for log in listed {
            let force = "--force=written-since --force=dirty-degraded --no-undo".split(' ');
            run(["undo", log["log"].as_str().unwrap()].into_iter().chain(force)).ok();
        }
        assert!(heads(&members) == before.iter().map(|all| all[..1 << 20].to_vec()).collect::<Vec<_>>());
        refused_as_before(&members);
        members.iter().zip(&before).for_each(|(name, before)| put(name, 0, before));
        fs::remove_dir_all(&logs).unwrap();
    }
    assert!(with > 0 && without > 0, "{with} with logs, {without} without");
}

#[test]
fn bringing_back_what_lies_on_an_array_saves_its_forced_start_too() {
    if !require("qemu-io") {
        return;
    }
    let room = Room::new();
    let (members, _) = dirty_and_degraded(&room);
    let before = bytes(&members);
    let made = saving(&room, &format!("vg create tank -s 1M {FORCE}"), &members).ok();
    let (own, start) = (log_of(&made), start_log(&made.stderr));
    // The start first, so that the array is refused again.
    undo(&room, &start, "--force=written-since").ok();
    assert!(heads(&members) == before.iter().map(|all| all[..1 << 20].to_vec()).collect::<Vec<_>>());
    let again = bytes(&members);
    room.untouched(|| undo(&room, &own, "")).failed(
        3,
        "WTL-0184",
        &["not everything can be looked into", FORCE],
    );
    let undone = undo(&room, &own, FORCE).ok();
    let second = start_log(&undone.stderr);
    assert!(second.contains("undo-vg-create-tank-start-data"), "{second}");
    assert!(bytes(&members) != again);
    undo(&room, &second, "--force=written-since").ok();
    assert!(bytes(&members) == before, "every byte is as it was");
    refused_as_before(&members);
}

#[test]
fn a_move_has_a_log_of_the_forced_start_alone() {
    if !require("qemu-io") {
        return;
    }
    let room = Room::new();
    let mut members = room.array("5", 3);
    let drive = room.device("drive", 16 << 20);
    lvm(&room, "vg create tank -s 1M", &members).ok();
    lvm(&room, "lv create tank/home -l 4", &members).ok();
    let serve = Serve::start(&room, &[], &members);
    tool("qemu-io", ["-f", "raw", "-c", "write -P 1 0 1M", &serve.uri]);
    serve.kill();
    members.remove(0);
    let all = [&members[..], std::slice::from_ref(&drive)].concat();
    let before = heads(&members);
    lvm(&room, &format!("vg extend tank {FORCE} --no-undo"), &all).ok();
    put_heads(&members, &before);
    refused_as_before(&members);
    let words = format!("lv move tank --from data --on {drive}");
    room.untouched(|| saving(&room, &words, &all)).failed(2, "WTL-0001", &["no undo log"]);
    let moved = saving(&room, &format!("{words} {FORCE} --json"), &all).ok();
    let start = start_log(&moved.stderr);
    assert!(
        start.contains("lv-move-tank-start-data") && !moved.stderr.contains("take this back"),
        "{}",
        moved.stderr
    );
    assert!(moved.json()["start_undo_logs"][0] == start.as_str(), "{}", moved.text());
    assert!(heads(&members) != before);
    lvm(&room, &format!("lv move tank --from {drive} --on data"), &all).ok();
    undo(&room, &start, "--force=written-since").ok();
    assert!(heads(&members) == before);
}

fn put_heads(members: &[String], heads: &[Vec<u8>]) {
    members.iter().zip(heads).for_each(|(name, head)| put(name, 0, head));
}

/// An array of three on what is served of these drives, which crashed while it was written, without
/// one that was made to fail before.
fn on_served(room: &Room, drives: &[String], failed: Option<&str>) {
    let serve = Serve::start(room, &[], drives);
    let ready = serve.said.lines().last().unwrap();
    let uris: Vec<_> = ready.split_whitespace().skip(2).map(str::to_owned).collect();
    assert_eq!(uris.len(), 3, "{ready}");
    let create = ["create", "top", "--level", "5", "--chunk", "64K"].map(str::to_owned);
    run(create.into_iter().chain(uris)).ok();
    serve.stop();
    let serve = Serve::start(room, &["-V", "top"], drives);
    serve.wait_until("good", |_| top_is_good(&serve));
    let write = || tool("qemu-io", ["-f", "raw", "-c", "write -P 1 0 1M", &serve.uri]);
    write();
    if let Some(failed) = failed {
        serve.command(&["fail", "top", failed]).ok();
        // It misses nothing that it does not have: what brings it back changes none of its data.
        write();
    }
    serve.kill();
}

fn top_is_good(serve: &Serve) -> bool {
    let status = serve.command(&["status", "--json"]).ok().json();
    let mut arrays = status["arrays"].as_array().unwrap().iter();
    arrays.any(|array| array["name"] == "top" && array["synced"] == true && array["sync"].is_null())
}

/// Forces the start of `top` on these drives, with something written to it and without, and takes
/// it back.
fn force_and_take_back(room: &Room, drives: &[String]) {
    let before = bytes(drives);
    for words in [None, Some("write -P 1 64k 128k"), Some("write -P 2 256k 64k")] {
        let serve = Serve::start(room, &["-V", "top", FORCE], drives);
        let log = start_log(&serve.said);
        if let Some(words) = words {
            tool("qemu-io", ["-f", "raw", "-c", words, &serve.uri]);
        }
        if words.is_some_and(|words| words.contains("-P 1")) {
            // What lies on members is whose they are.
            undo(room, &log, "").failed(3, "WTL-0026", &[&drives[0]]);
            undo(room, &log, "--force=written-since").failed(3, "WTL-0026", &[&drives[0]]);
        }
        serve.stop();
        match words {
            None => {
                assert!(bytes(drives) == before, "nothing was written");
                undo(room, &log, "").ok();
            }
            Some(_) => {
                room.untouched(|| undo(room, &log, "")).failed(3, "WTL-0183", &["member of top"]);
                undo(room, &log, "--force=written-since").ok();
            }
        }
        let refused = ["cat", "-V", "top"].map(str::to_owned);
        run(refused.into_iter().chain(drives.to_vec())).failed(3, "WTL-0049", &[FORCE]);
        if words.is_none_or(|words| words.contains("-P 1")) {
            assert!(bytes(drives) == before, "{words:?}: every byte is as it was");
        }
    }
    // Under other names, given by hand.
    let serve = Serve::start(room, &["-V", "top", FORCE], drives);
    let log = start_log(&serve.said);
    tool("qemu-io", ["-f", "raw", "-c", "write -P 1 0 1M", &serve.uri]);
    serve.stop();
    let moved: Vec<_> = (0..drives.len()).rev().map(|ix| room.name(&format!("moved-{ix}"))).collect();
    drives.iter().zip(&moved).for_each(|(old, new)| fs::rename(old, new).unwrap());
    undo(room, &log, "").failed(1, "WTL-0020", &[]);
    saving(room, &format!("undo {log} --force=written-since"), &moved).ok();
    let refused = ["cat", "-V", "top"].map(str::to_owned);
    run(refused.into_iter().chain(moved)).failed(3, "WTL-0049", &[FORCE]);
}

#[test]
fn the_forced_start_of_an_array_on_logical_volumes_is_taken_back() {
    if !require("qemu-io") {
        return;
    }
    let room = Room::new();
    let drives: Vec<_> = (0..3).map(|ix| room.device(&format!("drive-{ix}"), 24 << 20)).collect();
    for (ix, drive) in drives.iter().enumerate() {
        lvm(&room, &format!("vg create v{ix} -s 1M --no-undo"), std::slice::from_ref(drive)).ok();
        lvm(&room, &format!("lv create v{ix}/part -l 16 --no-undo"), std::slice::from_ref(drive)).ok();
    }
    on_served(&room, &drives, None);
    force_and_take_back(&room, &drives[1..]);
}

#[test]
fn the_forced_start_of_an_array_on_arrays_is_taken_back() {
    if !require("qemu-io") {
        return;
    }
    let room = Room::new();
    let drives: Vec<_> = (0..6).map(|ix| room.device(&format!("drive-{ix}"), 10 << 20)).collect();
    for (ix, pair) in drives.chunks(2).enumerate() {
        let create = ["create", &format!("half{ix}"), "--level", "0", "--chunk", "64K", "--no-undo"]
            .map(str::to_owned);
        run(create.into_iter().chain(pair.to_vec())).ok();
    }
    on_served(&room, &drives, None);
    force_and_take_back(&room, &drives[2..]);
}

#[test]
fn starts_that_were_forced_one_upon_the_other_are_taken_back_from_the_last_to_the_first() {
    if !require("qemu-io") {
        return;
    }
    let room = Room::new();
    let mut drives = room.array("5", 3);
    lvm(&room, "vg create tank -s 1M --no-undo", &drives).ok();
    for name in ["a", "b", "c"] {
        lvm(&room, &format!("lv create tank/{name} -l 9 --no-undo"), &drives).ok();
    }
    on_served(&room, &drives, Some("tank/b"));
    drives.remove(0);
    let before = bytes(&drives);
    let serve = Serve::start(&room, &["-V", "top", FORCE], &drives);
    let logs = start_logs(&serve.said);
    tool("qemu-io", ["-f", "raw", "-c", "write -P 1 64k 128k", &serve.uri]);
    serve.stop();
    let [below, above] = &logs[..] else { panic!("{logs:?}") };
    assert!(below.contains("serve-data") && above.contains("serve-top"), "{logs:?}");
    undo(&room, above, "--force=written-since").ok();
    undo(&room, below, "--force=written-since").ok();
    assert!(bytes(&drives) == before, "every byte is as it was");
    refused_as_before(&drives);
}
