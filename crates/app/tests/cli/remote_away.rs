//! Members across a network that are killed, stalled and slowed, and come back by themselves.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Room, Serve, require, run, tool};
use crate::nbd::Client;
use crate::remote::Server;

const MIB: u64 = 1 << 20;

/// Before there was a time-out for members, clients stood for 30 s. Far more than the time-out, for
/// machines that are busy.
const STANDS: Duration = Duration::from_secs(15);

/// A server of a file that takes so long for each write.
fn far(room: &Room, name: &str, file: &str, delay: &str) -> Server {
    let delay = format!("delay-write={delay}");
    let line = ["nbdkit", "--foreground", "--unix", "SOCKET", "--filter=delay", "file", file, &delay];
    Server::start(room, name, &line)
}

fn signal(server: &Server, name: &str) {
    tool("kill", [format!("-{name}"), server.pid().to_string()]);
}

/// Runs `faults` while a client writes and reads back what it wrote. How long a request took at
/// most.
fn under_load(serve: &Serve, faults: impl FnOnce()) -> Duration {
    let (stop, longest) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Client::connect(&serve.uri).unwrap();
            for n in 1u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let begun = Instant::now();
                let (at, data) = (n * 37 % 2000 * 4096, n.to_le_bytes().repeat(512));
                client.write(at, &data).unwrap();
                assert!(client.read(at, 4096).unwrap() == data);
                if n % 16 == 0 {
                    client.flush().unwrap();
                }
                longest.fetch_max(begun.elapsed().as_millis() as u64, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        faults();
        stop.store(true, Ordering::Relaxed);
    });
    Duration::from_millis(longest.into_inner())
}

/// The data of both copies.
fn copies(members: &[String]) -> Vec<Vec<u8>> {
    let examined = run(["examine", &members[0], "--json"]).ok().json();
    let start = find(&examined, "data_offset").expect("where the data starts");
    let data = |member: &String| fs::read(member).unwrap()[start as usize..].to_vec();
    members.iter().map(data).collect()
}

fn find(value: &Value, key: &str) -> Option<u64> {
    match value {
        Value::Object(map) => {
            map.get(key).and_then(Value::as_u64).or_else(|| map.values().find_map(|value| find(value, key)))
        }
        Value::Array(values) => values.iter().find_map(|value| find(value, key)),
        _ => None,
    }
}

fn is_away(array: &Value) -> bool {
    array["members"][1]["remote"]["state"] == "away" && array["members"][1]["state"] == "faulty"
}

fn is_whole_and_quiet(array: &Value) -> bool {
    array["health"] == "good" && array["sync"].is_null() && array["state"] == "clean"
}

#[test]
fn a_member_that_dies_or_stalls_comes_back_by_itself() {
    if !require("nbdkit") {
        return;
    }
    let room = Room::new();
    let files = room.array("1", 2);
    let mut server = far(&room, "nbd", &files[1], "0");
    let members = [files[0].clone(), server.uri()];
    let serve = Serve::start(&room, &[], &members);
    serve.wait_until_good();
    serve.command(&["set", "data", "remote_timeout=1s"]).ok();
    assert_eq!(serve.array()["settings"]["remote_timeout"], "1s");
    assert_eq!(serve.array()["members"][1]["remote"]["state"], "connected");
    for round in 0..3 {
        let longest = under_load(&serve, || {
            std::thread::sleep(Duration::from_millis(200));
            match round {
                0 => server.kill(),
                1 => signal(&server, "STOP"),
                _ => {
                    server.kill();
                    server = far(&room, "nbd", &files[1], "20");
                }
            }
            serve.wait_until("away", is_away);
            match round {
                0 => server.start_again(),
                1 => signal(&server, "CONT"),
                _ => {
                    server.kill();
                    server = far(&room, "nbd", &files[1], "0");
                }
            }
            serve.wait_until("good again", |array| array["health"] == "good");
        });
        assert!(longest < STANDS, "round {round}: a request took {longest:?}");
        serve.wait_until("clean", is_whole_and_quiet);
        let copies = copies(&files);
        assert!(copies[0] == copies[1], "round {round}: the copies differ");
    }
    let events = serve.array()["events"].to_string();
    for told in ["is away: ", "answers again, and is taken back", "is back in slot 1", "is in sync"] {
        assert!(events.contains(told), "{told}: {events}");
    }
    serve.stop();
    drop(server);
    assert_eq!(
        run(["scan", "--json"].into_iter().chain(files.iter().map(String::as_str))).ok().json()["arrays"][0]
            ["health"],
        "good"
    );
}

/// Something else at the address is not taken for the member, and nothing is written to it; neither
/// is it filled without a bitmap.
#[test]
fn what_is_not_the_member_stays_away() {
    if !require("nbdkit") {
        return;
    }
    let room = Room::new();
    let files = room.array("1", 2);
    let mut server = far(&room, "nbd", &files[1], "0");
    let serve = Serve::start(&room, &[], &[files[0].clone(), server.uri()]);
    serve.wait_until_good();
    // It is there while the connection is made again, long before the member is given up.
    serve.command(&["set", "data", "remote_timeout=30s"]).ok();
    let mut client = Client::connect(&serve.uri).unwrap();
    client.write(MIB, &[1; 4096]).unwrap();
    let other = room.device("other", 16 << 20);
    server.kill();
    let stranger = far(&room, "nbd", &other, "0");
    client.write(MIB, &[2; 4096]).unwrap();
    client.flush().unwrap();
    serve.wait_until("away", is_away);
    let reason = |array: &Value| array["members"][1]["remote"]["reason_code"] == "WTL-0191";
    let array = serve.wait_until("refused", reason);
    assert_eq!(array["health"], "degraded");
    let why = serve.command(&["why", "data"]).ok();
    assert!(why.text().contains("not the member that was away"), "{}", why.text());
    drop(stranger);
    fs::remove_file(room.path("nbd")).unwrap();
    assert!(fs::read(&other).unwrap().iter().all(|byte| *byte == 0), "it was written");
    server.start_again();
    serve.wait_until_good();

    // An operator may take it back, too, and one that was failed by an order stays failed.
    serve.command(&["fail", "data", "1"]).ok();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(serve.array()["members"][1]["state"], "faulty");
    serve.command(&["remove", "data", "1"]).ok();
    serve.command(&["add", "data", &server.uri()]).ok();
    serve.wait_until_good();
}

/// The last copy is waited for: there is nothing to go on with.
#[test]
fn the_last_copy_is_not_given_up() {
    if !require("nbdkit") {
        return;
    }
    let room = Room::new();
    let files = room.array("1", 2);
    let mut servers = [far(&room, "a", &files[0], "0"), far(&room, "b", &files[1], "0")];
    let serve = Serve::start(&room, &[], &[servers[0].uri(), servers[1].uri()]);
    serve.wait_until_good();
    serve.command(&["set", "data", "remote_timeout=500ms"]).ok();
    under_load(&serve, || {
        servers.iter().for_each(|server| signal(server, "STOP"));
        std::thread::sleep(Duration::from_secs(3));
        servers.iter().for_each(|server| signal(server, "CONT"));
    });
    serve.wait_until_good();
    servers[0].kill();
    servers[1].kill();
    std::thread::sleep(Duration::from_secs(2));
    servers[0].start_again();
    servers[1].start_again();
    serve.wait_until("good again", is_whole_and_quiet);
    let copies = copies(&files);
    assert!(copies[0] == copies[1], "the copies differ");
}

#[test]
fn reads_stay_away_from_a_write_mostly_member() {
    let room = Room::new();
    let files = room.blank(2, 16 << 20);
    run(["create", "data", "--level", "1", "--write-mostly", &files[0], &files[0], &files[1]]).ok();
    let serve = Serve::start(&room, &[], &files);
    serve.wait_until_good();
    let read = |array: &Value, slot: usize| array["members"][slot]["traffic"]["read_bytes"].as_u64().unwrap();
    let reads = || {
        let before = serve.array();
        let mut client = Client::connect(&serve.uri).unwrap();
        for at in 0..64 {
            client.read(at * 5 % 13 * MIB, 65536).unwrap();
        }
        let after = serve.array();
        [0, 1].map(|slot| read(&after, slot) - read(&before, slot) > 0)
    };
    assert_eq!(serve.array()["members"][0]["write_mostly"], true);
    assert_eq!(reads(), [false, true]);
    serve.command(&["set", "data", "write_mostly=1"]).ok();
    assert_eq!(reads(), [true, false]);
    serve.command(&["fail", "data", "0"]).ok();
    assert_eq!(reads(), [false, true], "there is no other one");
    serve.command(&["remove", "data", "0"]).ok();
    serve.command(&["add", "data", &files[0], "--write-mostly"]).ok();
    serve.wait_until_good();
    serve.command(&["set", "data", "write_mostly=0"]).ok();
    assert_eq!(reads(), [false, true]);
    serve.command(&["set", "data", "write_mostly=3"]).failed(2, "WTL-0003", &["is not a member"]);
    serve.stop();
    assert!(run(["examine", &files[0]]).ok().text().contains("write-mostly"));
    assert!(!run(["examine", &files[1]]).ok().text().contains("write-mostly"));
    let serve = Serve::start(&room, &[], &files);
    assert_eq!(serve.array()["settings"]["write_mostly"], files[0].as_str());
    serve.command(&["set", "data", "write_mostly=none"]).ok();
    assert_eq!(serve.array()["settings"]["write_mostly"], "none");
}

/// One drive by two paths, of which one dies, stalls and comes back: clients see nothing of it.
#[test]
fn a_path_that_fails_is_passed_over() {
    if !require("nbdkit") {
        return;
    }
    let room = Room::new();
    let files = room.array("linear", 1);
    let mut a = far(&room, "a", &files[0], "0");
    let b = far(&room, "b", &files[0], "0");
    let member = format!("{}|{}", a.uri(), b.uri());
    let serve = Serve::start(&room, &[], &[member]);
    for stalls in [false, true] {
        let longest = under_load(&serve, || {
            std::thread::sleep(Duration::from_millis(200));
            if stalls {
                signal(&a, "STOP");
            } else {
                a.kill();
            }
            std::thread::sleep(Duration::from_secs(3));
            if stalls { signal(&a, "CONT") } else { a.start_again() }
        });
        assert!(longest < STANDS, "a request took {longest:?}");
        // It is the first one, and is gone back to.
        let path = |array: &Value, ix: usize| {
            array["members"][0]["remote"]["paths"][ix]["state"].as_str().unwrap().to_owned()
        };
        serve.wait_until("by the first path", |array| path(array, 0) == "in_use");
        assert_eq!(path(&serve.array(), 1), "ready");
        if stalls {
            assert_eq!(serve.array()["settings"]["paths"], "order");
            serve.command(&["set", "data", "paths=round-robin"]).ok();
            serve.wait_until("by both", |array| [0, 1].iter().all(|ix| path(array, *ix) == "in_use"));
            let longest = under_load(&serve, || {
                std::thread::sleep(Duration::from_millis(200));
                signal(&b, "STOP");
                std::thread::sleep(Duration::from_secs(3));
                signal(&b, "CONT");
            });
            assert!(longest < STANDS, "a request took {longest:?}");
        }
    }
    serve.stop();

    // Files tell no number of a drive.
    let two = format!("{}|{}", files[0], files[0]);
    run(["scan", &two]).failed(3, "WTL-0202", &["is no block device"]);

    // A path to another drive is none.
    let other = room.array("1", 2);
    let stranger = far(&room, "c", &other[1], "0");
    let both = format!("{}|{}", b.uri(), stranger.uri());
    run(["scan", &both]).failed(3, "WTL-0193", &["leads to another drive"]);
}

/// Failed while it is there, and while it is away; its server starts anew after that. It comes back
/// once it is added, and by itself again from then on.
#[test]
fn a_member_that_an_operator_failed_stays_out() {
    if !require("nbdkit") {
        return;
    }
    let room = Room::new();
    let files = room.array("1", 2);
    let mut server = far(&room, "nbd", &files[1], "0");
    let serve = Serve::start(&room, &[], &[files[0].clone(), server.uri()]);
    serve.wait_until_good();
    serve.command(&["set", "data", "remote_timeout=500ms"]).ok();
    for away_before in [false, true] {
        if away_before {
            server.kill();
            serve.wait_until("away", is_away);
        }
        serve.command(&["fail", "data", &server.uri()]).ok();
        serve.command(&["fail", "data", &server.uri()]).failed(2, "WTL-0003", &["has failed already"]);
        let member = serve.array()["members"][1].clone();
        assert_eq!(member["state"], "faulty", "{member}");
        assert!(member["remote"]["away_since"].is_null(), "it is not waited for: {member}");
        if !away_before {
            server.kill();
            std::thread::sleep(Duration::from_secs(1));
        }
        server.start_again();
        // It is tried every 2 s at most while it is waited for.
        std::thread::sleep(Duration::from_secs(4));
        let array = serve.array();
        assert_eq!(array["health"], "degraded", "failed while away: {away_before}: {array}");
        serve.command(&["remove", "data", "1"]).ok();
        serve.command(&["add", "data", &server.uri()]).ok();
        serve.wait_until_good();
        server.kill();
        serve.wait_until("away again", is_away);
        server.start_again();
        serve.wait_until("back by itself", |array| array["health"] == "good");
    }
    serve.wait_until("clean", is_whole_and_quiet);
    serve.stop();
    let copies = copies(&files);
    assert!(copies[0] == copies[1], "the copies differ");
}

/// A server that stalls has writes of before. By another name, with a second server of the same
/// file, the member is not taken back as long as they may come.
#[test]
fn another_name_of_a_member_does_not_get_around_what_it_was_sent() {
    if !require("nbdkit") {
        return;
    }
    let room = Room::new();
    let files = room.array("1", 2);
    let (first, second) = (far(&room, "a", &files[1], "0"), far(&room, "b", &files[1], "0"));
    let serve = Serve::start(&room, &[], &[files[0].clone(), first.uri()]);
    serve.wait_until_good();
    serve.command(&["set", "data", "remote_timeout=500ms"]).ok();
    signal(&first, "STOP");
    under_load(&serve, || drop(serve.wait_until("away", is_away)));
    serve.command(&["fail", "data", "1"]).ok();
    serve.command(&["remove", "data", "1"]).ok();
    let both = format!("{}|{}", first.uri(), second.uri());
    serve.command(&["add", "data", &both]).failed(1, "WTL-0190", &["given up before"]);
    signal(&first, "CONT");
    let begun = Instant::now();
    while serve.command(&["add", "data", &both]).status != 0 {
        assert!(begun.elapsed() < Duration::from_secs(90), "it is not taken back");
        std::thread::sleep(Duration::from_secs(1));
    }
    serve.wait_until_good();
    serve.wait_until("clean", is_whole_and_quiet);
    serve.stop();
    let copies = copies(&files);
    assert!(copies[0] == copies[1], "the copies differ");
}

/// A server that takes one client at a time has room for another one once the member is removed,
/// and whatever it offers then is taken by an order.
#[test]
fn what_is_removed_is_let_go_of_and_may_be_another_drive() {
    if !require("nbdkit") {
        return;
    }
    let room = Room::new();
    let files = room.array("1", 2);
    let one = |name: &str, file: &str| {
        let line = ["nbdkit", "--foreground", "--unix", "SOCKET", "--filter=limit", "file", file, "limit=1"];
        Server::start(&room, name, &line)
    };
    let mut server = one("nbd", &files[1]);
    let serve = Serve::start(&room, &[], &[files[0].clone(), server.uri()]);
    serve.wait_until_good();
    serve.command(&["fail", "data", "1"]).ok();
    serve.command(&["remove", "data", "1"]).ok();
    let begun = Instant::now();
    while Client::connect(&server.uri()).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the connection is still there");
        std::thread::sleep(Duration::from_millis(200));
    }
    std::thread::sleep(Duration::from_secs(1));
    serve.command(&["add", "data", &server.uri()]).ok();
    serve.wait_until_good();

    // It dies, and the machine gets another drive.
    serve.command(&["set", "data", "remote_timeout=500ms"]).ok();
    server.kill();
    serve.wait_until("away", is_away);
    serve.command(&["remove", "data", "1"]).ok();
    let other = room.device("other", 24 << 20);
    let _server = one("nbd", &other);
    serve.command(&["add", "data", &server.uri()]).ok();
    serve.wait_until_good();
    serve.stop();
}

/// The server of a spare is away before the spare is wanted, and back when it is.
#[test]
fn a_spare_whose_server_was_away_is_used() {
    if !require("nbdkit") {
        return;
    }
    let room = Room::new();
    let files = room.blank(3, 16 << 20);
    run(["create", "data", "--level", "1", "--spares", "1", &files[0], &files[1], &files[2]]).ok();
    let mut server = far(&room, "nbd", &files[2], "0");
    let serve = Serve::start(&room, &[], &[files[0].clone(), files[1].clone(), server.uri()]);
    serve.wait_until_good();
    server.kill();
    let spare = |array: &Value| array["spares"][0]["state"].clone();
    serve.wait_until("refused", |array| spare(array) == "refused");
    server.start_again();
    serve.command(&["fail", "data", "1"]).ok();
    serve.wait_until_good();
    serve.stop();
}

/// A member that is being filled holds nothing that the others do not.
#[test]
fn a_member_that_is_filled_comes_back_after_a_blip() {
    if !require("nbdkit") {
        return;
    }
    let room = Room::new();
    let files = room.array("1", 2);
    let blank = room.device("blank", 16 << 20);
    let serve = Serve::start(&room, &[], &files);
    serve.wait_until_good();
    serve.command(&["set", "data", "remote_timeout=500ms"]).ok();
    serve.command(&["fail", "data", "1"]).ok();
    serve.command(&["remove", "data", "1"]).ok();
    let mut server = far(&room, "nbd", &blank, "300ms");
    serve.command(&["add", "data", &server.uri()]).ok();
    serve.wait_until("being filled", |array| array["members"][1]["state"] == "rebuilding");
    server.kill();
    serve.wait_until("away", is_away);
    let _server = far(&room, "nbd", &blank, "0");
    serve.wait_until_good();
    serve.wait_until("clean", is_whole_and_quiet);
    serve.stop();
    let copies = copies(&[files[0].clone(), blank]);
    assert!(copies[0] == copies[1], "the copies differ");
}
