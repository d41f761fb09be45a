//! A server is killed while clients write, again and again: nothing acknowledged is lost, the array
//! comes back by itself, and a check finds that parity and copies agree. The long version with fio
//! is `scripts/torture`.

use std::time::Duration;

use crate::harness::{Room, Serve, run};
use crate::nbd::Versions;

const WRITERS: usize = 4;

/// Writes until the server is killed after `after`, and brings it back.
fn round(room: &Room, members: &[String], versions: &Versions, seed: u64, after: Duration) {
    let serve = Serve::start(room, &[], members);
    let uri = serve.uri.clone();
    std::thread::scope(|scope| {
        for ix in 0..WRITERS {
            let uri = &uri;
            scope.spawn(move || versions.write_until_gone(uri, seed, ix, WRITERS));
        }
        std::thread::sleep(after);
        serve.kill();
    });
    let serve = Serve::start(room, &[], members);
    // While what the crash left is still being put right.
    versions.verify(&serve.uri);
    serve.wait_until_good();
    versions.verify(&serve.uri);
    serve.command(&["check", "data", "--wait"]).ok();
    serve.stop();
}

fn torture(level: &str, count: usize, options: &[&str], rounds: u64) {
    let room = Room::new();
    let members = room.blank(count, 16 << 20);
    let create = ["create", "data", "--level", level].into_iter().chain(options.iter().copied());
    run(create.map(str::to_owned).chain(members.clone())).ok();
    let versions = Versions::new(2048);
    for seed in 1..=rounds {
        round(&room, &members, &versions, seed, Duration::from_millis(150 + seed * 170));
    }
    assert!(versions.acknowledged() > 0, "nothing was written");
}

#[test]
fn killed_three_times_under_load_with_a_bitmap() {
    torture("5", 4, &["--chunk", "64K"], 3);
}

#[test]
fn killed_under_load_on_mirrors_and_with_two_parities() {
    torture("10", 4, &["--chunk", "64K", "--layout", "f2"], 1);
    torture("6", 5, &["--chunk", "64K", "--bitmap", "none"], 1);
}

/// What died is told until it is served again or the operator has it forgotten, also where another
/// server is well.
#[test]
fn a_server_that_died_is_no_good_status() {
    let room = Room::new();
    let well = Serve::start(&room, &[], &room.array("5", 3));
    let made_up = ["mem:8M", "mem:8M", "mem:8M"].map(str::to_owned);
    let options = ["--level", "5", "--name", "second"];
    Serve::start(&room, &options, &made_up).kill();
    let check = |name: &[&str]| well.command(&[&["status", "--check"], name].concat());
    let told = check(&[]);
    assert!(
        told.status == 4 && told.stderr.contains("the server second ended without being stopped"),
        "{told:?}"
    );
    assert_eq!(check(&["data"]).status, 0, "the other one is not asked about");
    assert_eq!(check(&["second"]).status, 4);
    let json = well.command(&["status", "--json"]).ok().json();
    assert_eq!(json["died"], serde_json::json!([room.name("run/second.sock")]));
    // A third one changes nothing about it; one of its name takes its place.
    Serve::start(&room, &["--level", "1", "--name", "third"], &made_up[..2]).stop();
    assert_eq!(check(&[]).status, 4);
    Serve::start(&room, &options, &made_up).stop();
    assert_eq!(check(&[]).status, 0);
    Serve::start(&room, &options, &made_up).kill();
    well.command(&["stop", "second"]).failed(1, "WTL-0100", &["had ended before", "is forgotten now"]);
    assert_eq!(check(&[]).status, 0);
    well.stop();
}

/// A terminal that is closed asks a server to end as Ctrl-C does: killed by it, a degraded array
/// that is written to could not be served again without `--force`.
#[test]
fn a_hangup_stops_in_order() {
    let room = Room::new();
    let members = room.array("5", 3);
    let mut serve = Serve::start(&room, &[], &members[..2]);
    let versions = Versions::new(2048);
    std::thread::scope(|scope| {
        let uri = serve.uri.clone();
        scope.spawn(|| {
            let uri = uri;
            versions.write_until_gone(&uri, 1, 0, 1);
        });
        std::thread::sleep(Duration::from_millis(300));
        serve.signal("HUP");
        assert_eq!(serve.wait(), 0, "{}", serve.rest());
    });
    let serve = Serve::start(&room, &[], &members[..2]);
    versions.verify(&serve.uri);
    serve.stop();
}
