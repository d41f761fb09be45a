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
