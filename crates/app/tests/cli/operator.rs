//! What an operator types when something is wrong, and what is seen then.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::harness::{Room, Serve, run, wattle};
use crate::nbd::Client;
use crate::orders::corrupt;

const MIB: usize = 1 << 20;

/// Hazard: a drive that an operator gave up because it reads wrong comes back by itself at the next
/// start, and is the first copy that is read.
#[test]
fn a_member_that_was_failed_stays_out_after_a_restart() {
    let room = Room::new();
    let members = room.blank(2, 16 << 20);
    let create = ["create", "rot", "--level", "1", "--consistency", "bitmap"].map(str::to_owned);
    run(create.into_iter().chain(members.clone())).ok();
    let serve = Serve::start(&room, &[], &members);
    let size = serve.array()["size_bytes"].as_u64().unwrap() as usize;
    let mut client = Client::connect(&serve.uri).unwrap();
    for start in (0..size).step_by(MIB) {
        client.write(start as u64, &vec![0x55; MIB.min(size - start)]).unwrap();
    }
    client.flush().unwrap();
    drop(client);
    serve.stop();
    corrupt(&members[0], 8 << 20, &[0xaa; 65536]);

    let serve = Serve::start(&room, &[], &members);
    serve.command(&["fail", "rot", &members[0]]).ok();
    serve.stop();
    let serve = Serve::start(&room, &[], &members);
    assert!(serve.said.contains("; not used"), "{}", serve.said);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(serve.array()["slots"], "[_U]");
    let why = serve.command(&["why", "rot"]).ok();
    assert!(why.text().contains("the superblocks record that it failed"), "{}", why.text());
    assert!(why.text().contains(&format!("wattle add rot {}", members[0])), "{}", why.text());
    let mut client = Client::connect(&serve.uri).unwrap();
    for start in (0..size).step_by(MIB) {
        let bytes = client.read(start as u64, MIB.min(size - start)).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0x55), "other bytes in the MiB at {start}");
    }
    drop(client);
    serve.stop();
}

/// `wattle top | head -1` ends with the reader.
#[test]
fn top_ends_when_nothing_reads_it_any_more() {
    let room = Room::new();
    let serve = Serve::start(&room, &[], &room.array("1", 2));
    for json in [&[][..], &["--json"]] {
        let mut command = wattle();
        command.args(["top", "--interval", "0.1", "--runtime-dir"]).arg(&serve.runtime_dir).args(json);
        let mut top = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(top.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty());
        let deadline = Instant::now() + Duration::from_secs(20);
        let status = loop {
            match top.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > deadline => {
                    top.kill().unwrap();
                    panic!("it goes on");
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        assert!(status.success(), "{status}");
    }
    serve.stop();
}

/// A server that hangs is a line of its own; the others are shown.
#[test]
fn top_shows_the_others_beside_a_server_that_hangs() {
    let room = Room::new();
    let serve = Serve::start(&room, &[], &room.array("1", 2));
    let members = ["x", "y"].map(|name| room.device(name, 16 << 20));
    run(["create", "hangs", "--level", "1", &members[0], &members[1]]).ok();
    let hangs = Serve::start(&room, &[], &members);
    hangs.signal("STOP");
    let top = serve.command(&["top", "--count", "1", "--interval", "0.1"]).ok();
    let json = serve.command(&["top", "--count", "1", "--interval", "0.1", "--json"]).ok().json();
    hangs.signal("CONT");
    assert!(top.text().contains("data") && top.text().contains("hangs"), "{}", top.text());
    assert_eq!(
        (json["arrays"][0]["array"].as_str(), json["errors"].as_array().unwrap().len()),
        (Some("data"), 1)
    );
    hangs.stop();
    serve.stop();
}

/// What an operator failed was failed, and did not fail by itself: also where nothing records it.
#[test]
fn a_member_that_was_failed_by_order_is_told_so_without_metadata() {
    let room = Room::new();
    let serve = Serve::start(&room, &["--level", "5"], &["mem:64M", "mem:64M", "mem:64M"]);
    let name = serve.array()["name"].as_str().unwrap().to_owned();
    serve.command(&["fail", &name, "1"]).ok();
    let why = serve.command(&["why", &name]).ok();
    assert!(why.text().contains("in slot 1 was failed at "), "{}", why.text());
    assert!(!why.text().contains("wattle add"), "{}", why.text());
    serve.stop();
}

/// A directory that is not there is not one without alerts.
#[test]
fn alerts_of_a_directory_that_is_not_there_are_refused() {
    let room = Room::new();
    let nowhere = room.name("nowhere");
    run(["alerts", "list", "--state-dir", &nowhere]).failed(1, "WTL-0238", &[&nowhere]);
    run(["alerts", "list", "--state-dir", &room.name("")]).ok();
}
