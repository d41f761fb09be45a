//! Members that a server was told by names relative to its directory, seen from other directories.

use serde_json::Value;

use crate::console::Console;
use crate::harness::{Room, Serve, require, run, said, wattle};

/// A server that runs in the directory of its members.
fn served(room: &Room, args: &[&str], members: &[&str]) -> Serve {
    Serve::try_start_in(room.dir.path(), room, args, members).unwrap_or_else(|said| panic!("{said:?}"))
}

fn codes(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings.map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
}

/// The page of a machine says of an array that is whole that it can be read, however it was named.
#[test]
fn the_audit_of_the_page_finds_the_members_where_the_server_has_them() {
    let room = Room::new();
    let members: Vec<_> = ["a", "b", "c", "d"].iter().map(|name| room.device(name, 16 << 20)).collect();
    run(["create", "data", "--level", "5", &members[0], &members[1], &members[2]]).ok();
    let serve = served(&room, &[], &["a", "b", "c"]);
    // An absolute name beside relative ones.
    serve.command(&["fail", "data", "c"]).ok();
    serve.command(&["add", "data", &members[3], "--wait"]).ok();
    let console = Console::start(&serve.runtime_dir, &[]);
    let report = console.audit();
    let found = codes(&report);
    assert!(!found.iter().any(|code| code == "AUD-301" || code == "AUD-314"), "{report:#}");
    let unchecked = report["unchecked"].as_array().unwrap();
    assert!(!unchecked.iter().any(|one| one["what"] == "data"), "{report:#}");
    assert!(found.iter().any(|code| code.starts_with("AUD-")), "{report:#}");
    serve.stop();
}

/// An array that nothing else than its server can look at is named, and not judged by a part of it.
#[test]
fn an_array_of_which_a_member_cannot_be_looked_at_is_not_checked() {
    let room = Room::new();
    let serve = served(&room, &["--level", "1"], &["mem:64M", "mem:64M"]);
    let name = serve.array()["name"].clone();
    let console = Console::start(&serve.runtime_dir, &[]);
    let report = console.audit();
    let unchecked = report["unchecked"].as_array().unwrap();
    let of_it: Vec<_> = unchecked.iter().filter(|one| one["what"] == name).collect();
    assert!(of_it.len() == 1 && of_it[0]["why"].as_str().unwrap().contains("is made up"), "{report:#}");
    serve.stop();
}

/// Files where a check found something are looked for on the server's members, not on what is
/// called the same where the command runs.
#[test]
fn files_are_named_from_another_directory_too() {
    if !require("mkfs.ext4") {
        return;
    }
    let room = Room::new();
    let members = crate::alerts::struck(&room);
    let names: Vec<_> = members.iter().map(|member| member.rsplit('/').next().unwrap()).collect();
    // Nothing is offered by which files could be looked for through the server.
    let serve = served(&room, &["--export", "nvme-tcp=127.0.0.1:0"], &names);
    let elsewhere = room.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    names.iter().for_each(|name| std::fs::write(elsewhere.join(name), vec![0; 1 << 20]).unwrap());
    let check = wattle()
        .current_dir(&elsewhere)
        .args(["check", "data", "--wait", "--runtime-dir"])
        .arg(&serve.runtime_dir)
        .output();
    let check = said(check.unwrap());
    assert_eq!(check.status, 1, "{}", check.stderr);
    assert!(check.stderr.contains("data: /home/struck, bytes "), "{}", check.stderr);
    serve.stop();
}

/// Two mirrored members in the directory of their server.
fn mirror(room: &Room, spares: &[&str]) -> Serve {
    for name in ["a", "c"].iter().chain(spares) {
        room.device(name, 32 << 20);
    }
    let (a, c) = (room.name("a"), room.name("c"));
    run(["create", "data", "--level", "1", "--bitmap", "none", "--assume-clean", &a, &c]).ok();
    served(room, &[], &["a", "c"])
}

/// What is waited for is the member that came in, not another one whose name the path ends with.
#[test]
fn a_new_member_is_waited_for_though_another_one_is_called_like_it() {
    let room = Room::new();
    let serve = mirror(&room, &[]);
    std::fs::create_dir(room.path("n")).unwrap();
    let new = room.device("n/a", 32 << 20);
    serve.command(&["set", "data", "sync_speed_max=16000"]).ok();
    let replaced = serve.command(&["replace", "data", "a", &new, "--wait"]).ok();
    assert!(replaced.stderr.contains(&format!("{new} is in sync in data")), "{}", replaced.stderr);
    let array = serve.array();
    assert_eq!(array["members"][0]["member"], new, "{array:#}");
    assert_eq!(array["members"][0]["state"], "in_sync", "{array:#}");
    serve.stop();
}

/// A spare that fails while it is filled replaces nothing, and the command that waits says so.
#[test]
fn a_replacement_that_fails_is_told_to_what_waits_for_it() {
    let room = Room::new();
    let serve = mirror(&room, &["s"]);
    serve.command(&["add", "data", &room.name("s")]).ok();
    serve.command(&["set", "data", "sync_speed_max=1000"]).ok();
    let mut replace = wattle();
    replace.args(["replace", "data", "a", "--wait", "--runtime-dir"]).arg(&serve.runtime_dir);
    let replace =
        replace.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    serve.wait_until("it is being replaced", |array| array["sync"]["action"] == "recovery");
    serve.command(&["fail", "data", &room.name("s")]).ok();
    let replaced = said(replace.wait_with_output().unwrap());
    replaced.failed(1, "WTL-0029", &["is not in sync in data and will not be"]);
    serve.stop();
}

/// A member that failed is taken back by its name or its path, not by a path at which nothing is.
#[test]
fn what_is_not_there_takes_no_member_that_failed() {
    let room = Room::new();
    let serve = mirror(&room, &[]);
    serve.command(&["fail", "data", "c"]).ok();
    serve.stop();
    let serve = served(&room, &[], &["a", "c"]);
    let nothing = "/nowhere/to/be/found/c";
    for order in [&["add", "data", nothing][..], &["replace", "data", "a", nothing]] {
        let refused = serve.command(order);
        assert!(
            refused.status != 0 && refused.stderr.contains("that exists"),
            "{order:?}: {}",
            refused.stderr
        );
    }
    let array = serve.array();
    assert_eq!(array["degraded"], 1, "{array:#}");
    serve.command(&["add", "data", &room.name("c"), "--wait"]).ok();
    serve.stop();
}
