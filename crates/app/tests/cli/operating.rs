//! An array's life with its operator: members fail, go, come and are replaced, checks find what is
//! wrong and repairs put it right, and a killed server goes on where it was.

use std::fs::{self, File};
use std::io::{Read, Write};

use serde_json::{Value, json};

use crate::harness::{Room, Serve, run, tool};
use crate::nbd::Client;
use crate::orders::corrupt;

const MIB: u64 = 1 << 20;

fn create(room: &Room, level: &str, count: usize, options: &[&str]) -> Vec<String> {
    let members = room.blank(count, 16 << 20);
    let create = ["create", "data", "--level", level].into_iter().chain(options.iter().copied());
    run(create.map(str::to_owned).chain(members.clone())).ok();
    members
}

fn cat(members: &[String]) -> Vec<u8> {
    run(["cat".to_owned()].into_iter().chain(members.iter().cloned())).ok().stdout
}

/// Bytes that differ everywhere.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(len).collect()
}

/// Fills the whole array, and what it then holds.
fn fill(serve: &Serve, seed: u64) -> Vec<u8> {
    let mut client = Client::connect(&serve.uri).unwrap();
    let data = noise(usize::try_from(client.size_bytes).unwrap(), seed);
    for (ix, part) in data.chunks(1 << 20).enumerate() {
        client.write(ix as u64 * MIB, part).unwrap();
    }
    client.flush().unwrap();
    data
}

fn names(array: &Value, key: &str) -> Vec<String> {
    let list = array[key].as_array().unwrap().iter();
    list.filter_map(|member| member["member"].as_str()).map(str::to_owned).collect()
}

fn has_event(array: &Value, text: &str) -> bool {
    array["events"].as_array().unwrap().iter().any(|event| event["what"].as_str().unwrap().contains(text))
}

#[test]
fn a_member_fails_goes_and_a_new_one_takes_its_place() {
    for (level, count) in [("5", 4), ("6", 5), ("1", 2), ("10", 4), ("4", 3)] {
        let room = Room::new();
        let members = room.array(level, count);
        let serve = Serve::start(&room, &[], &members);
        let data = fill(&serve, 1);
        serve.command(&["fail", "data", "1"]).ok();
        let failed = serve.array();
        assert_eq!(
            (&failed["health"], &failed["members"][1]["state"]),
            (&json!("degraded"), &json!("faulty"))
        );
        serve.command(&["remove", "data", "member-1"]).ok();
        assert_eq!(serve.array()["members"][1]["member"], Value::Null);
        let new = room.device("new", 20 << 20);
        let added = serve.command(&["add", "data", &new, "--wait"]).ok();
        assert!(added.stderr.contains("is in sync in data"), "{}", added.stderr);
        let whole = serve.wait_until_good();
        assert_eq!((&whole["members"][1]["member"], &whole["degraded"]), (&json!(new), &json!(0)));
        serve.wait_until("told", |array| has_event(array, "(slot 1) is in sync"));
        serve.command(&["check", "data", "--wait"]).ok();
        serve.stop();
        // The new one is as good as the others: without another one every byte is there.
        let mut survivors = members.clone();
        survivors[1] = new.clone();
        survivors.remove(0);
        assert!(cat(&survivors) == data, "level {level}");
        // And the old one is no member any more, whichever command names it.
        let mut with_old = members.clone();
        with_old.push(new);
        assert!(cat(&with_old) == data, "level {level}: the old one is believed");
    }
}

#[test]
fn a_spare_takes_the_place_by_itself() {
    let room = Room::new();
    let members = create(&room, "5", 4, &["--spares", "1", "--chunk", "64K"]);
    let serve = Serve::start(&room, &[], &members);
    let data = fill(&serve, 2);
    assert_eq!(names(&serve.array(), "spares"), members[3..]);
    serve.command(&["fail", "data", "0"]).ok();
    let whole = serve.wait_until_good();
    assert_eq!(whole["members"][0]["member"], json!(members[3]));
    assert!(names(&whole, "spares").is_empty(), "{whole:#}");
    serve.stop();
    assert!(cat(&[members[2].clone(), members[3].clone()]) == data);
}

#[test]
fn a_member_that_was_away_gets_only_what_it_missed() {
    let room = Room::new();
    let members = create(&room, "5", 3, &["--chunk", "64K", "--bitmap", "internal", "--bitmap-chunk", "64K"]);
    let serve = Serve::start(&room, &[], &members);
    let mut data = fill(&serve, 3);
    // From here on the bits say what it misses.
    serve.wait_until("swept", |array| array["bitmap"]["bits_set"] == 0);
    serve.command(&["fail", "data", "2"]).ok();
    serve.command(&["remove", "data", "2"]).ok();
    Client::connect(&serve.uri).unwrap().write(4 * MIB, &noise(1 << 20, 4)).unwrap();
    data[4 << 20..5 << 20].copy_from_slice(&noise(1 << 20, 4));
    // Where nothing was written meanwhile it is believed: what is wrong there stays wrong, and a
    // check finds it.
    corrupt(&members[2], 12 << 20, &[0xEE; 512]);
    serve.command(&["add", "data", &members[2], "--wait"]).ok();
    serve.wait_until_good();
    serve.wait_until("told", |array| has_event(array, "gets what it missed"));
    assert_eq!(serve.command(&["check", "data", "--wait"]).status, 1);
    let scrub = serve.array()["scrubs"][0].clone();
    assert_eq!(scrub["mismatches"].as_array().unwrap().len(), 1, "{scrub:#}");
    assert_eq!(scrub["mismatches"][0]["member_start_byte"], json!(12 << 20));
    serve.stop();
    let back = cat(&members);
    assert!(back[..8 << 20] == data[..8 << 20], "what was written meanwhile is there");
}

#[test]
fn a_check_finds_where_and_a_repair_puts_it_right() {
    for (level, count, source, located) in [
        ("5", 4, "data", false),
        ("6", 5, "proof", true),
        ("6", 5, "data", true),
        ("1", 3, "majority", true),
        ("1", 2, "0", false),
    ] {
        let room = Room::new();
        let members = room.array(level, count);
        let serve = Serve::start(&room, &[], &members);
        let data = fill(&serve, 5);
        let clean = serve.command(&["check", "data", "--wait"]).ok();
        assert!(clean.stderr.contains("no mismatch"), "{}", clean.stderr);
        // In the data area, 4 MiB and a sector in: whatever block that is.
        let at = 4 * MIB + 512;
        corrupt(&members[1], at, &[0xC3; 512]);
        let found = serve.command(&["check", "data", "--wait"]);
        assert!(found.status == 1 && found.stderr.contains("not agree"), "{level}: {}", found.stderr);
        let array = serve.array();
        let scrub = &array["scrubs"][0];
        let place = &scrub["mismatches"][0];
        let (start, len) =
            (place["member_start_byte"].as_u64().unwrap(), place["member_len_bytes"].as_u64().unwrap());
        assert!(start <= at && start + len >= at + 512 && len <= 8192, "{level}: {scrub:#}");
        assert_eq!(place["slot"], if located { json!(1) } else { Value::Null }, "{level}: {scrub:#}");
        let text = serve.command(&["status", "data"]).ok();
        assert!(text.text().contains("means: "), "{}", text.text());
        // It survives the server.
        serve.stop();
        let serve = Serve::start(&room, &[], &members);
        assert_eq!(serve.array()["scrubs"][0], *scrub, "{level}: the history changed in a restart");
        let repaired = serve.command(&["repair", "data", "--source", source, "--wait"]).ok();
        assert!(repaired.stderr.contains("repaired"), "{}", repaired.stderr);
        serve.command(&["check", "data", "--wait"]).ok();
        serve.stop();
        // What is right is there again where something proves it; from data, parity fits what is.
        if source != "data" || level == "5" && data == cat(&members) {
            assert!(cat(&members) == data, "level {level} from {source}");
            assert!(
                cat(&members[1..]) == data || level != "1",
                "level {level} from {source}, the other copies"
            );
        }
    }
}

#[test]
fn a_member_is_replaced_while_it_works() {
    for (level, count) in [("5", 3), ("1", 2), ("10", 4), ("6", 4)] {
        let room = Room::new();
        let members = room.array(level, count);
        let serve = Serve::start(&room, &[], &members);
        let data = fill(&serve, 6);
        let new = room.device("new", 16 << 20);
        serve.command(&["set", "data", "sync_speed_max=2M", "sync_speed_min=0"]).ok();
        serve.command(&["replace", "data", "member-1", &new]).ok();
        let busy = serve.array();
        assert_eq!(
            (&busy["health"], &busy["members"][1]["state"]),
            (&json!("good"), &json!("in_sync")),
            "{busy:#}"
        );
        assert_eq!(names(&busy, "replacements"), std::slice::from_ref(&new));
        let again = serve.command(&["replace", "data", "member-1", "nowhere"]);
        assert!((1..=3).contains(&again.status), "{again:?}");
        // Killed in the middle, it goes on.
        serve.kill();
        let serve = Serve::start(&room, &[], &[members.clone(), vec![new.clone()]].concat());
        serve.wait_until("replaced", |array| array["members"][1]["member"] == json!(new));
        serve.wait_until_good();
        serve.command(&["check", "data", "--wait"]).ok();
        serve.stop();
        let mut now = members.clone();
        now[1] = new;
        now.remove(0);
        assert!(cat(&now) == data, "level {level}");
    }
}

#[test]
fn the_bitmap_records_the_delay_that_create_was_given() {
    let room = Room::new();
    for (options, seconds) in [(&["--bitmap-delay", "2"][..], 2), (&[][..], 5)] {
        let members = create(&room, "1", 2, &[&["--assume-clean", "--no-undo"][..], options].concat());
        for member in &members {
            let examined = run(["examine", "--json", member]).ok().json();
            let areas = examined["members"][0]["superblocks"][0]["areas"].as_array().unwrap().clone();
            let bitmap = areas.iter().find(|area| area["kind"] == "bitmap").expect("a bitmap");
            assert_eq!(bitmap["fields"]["daemon_sleep_seconds"], seconds);
        }
        run([&["erase".to_owned()][..], &members[..]].concat()).ok();
    }
    let members = room.blank(2, 16 << 20);
    for wrong in [&["--bitmap", "none", "--bitmap-delay", "2"][..], &["--bitmap-delay", "0"][..]] {
        let refused =
            run([&["create", "data", "--level", "1", &members[0], &members[1]][..], wrong].concat());
        assert_eq!(refused.status, 2, "{wrong:?}: {}", refused.stderr);
    }
}

#[test]
fn a_rebuild_that_was_killed_goes_on_and_an_array_that_was_resyncs_only_what_was_written() {
    let room = Room::new();
    let members = create(&room, "5", 3, &["--chunk", "64K", "--bitmap-chunk", "64K"]);
    let serve = Serve::start(&room, &[], &members);
    let data = fill(&serve, 7);
    serve.command(&["fail", "data", "0"]).ok();
    serve.command(&["remove", "data", "0"]).ok();
    let new = room.device("new", 16 << 20);
    serve.command(&["set", "data", "sync_speed_max=2M", "sync_speed_min=0"]).ok();
    serve.command(&["add", "data", &new]).ok();
    // Degraded, it may only be killed while nothing is in flight: that is what a partial parity log
    // is for.
    serve.wait_until("rebuilding and idle", |array| {
        array["sync"]["done_bytes"].as_u64().unwrap_or(0) > 0 && array["state"] == "clean"
    });
    serve.kill();
    let now = [members[1].clone(), members[2].clone(), new];
    let serve = Serve::start(&room, &[], &now);
    serve.wait_until_good();
    serve.command(&["check", "data", "--wait"]).ok();

    // Parity that no write went beside is not looked at after a crash: what is wrong there stays so
    // until a check.
    serve.wait_until("swept", |array| array["bitmap"]["bits_set"] == 0);
    Client::connect(&serve.uri).unwrap().write(MIB, &data[1 << 20..2 << 20]).unwrap();
    serve.kill();
    corrupt(&now[1], 12 << 20, &[0xEE; 512]);
    let serve = Serve::start(&room, &[], &now);
    serve.wait_until_good();
    assert_eq!(
        serve.command(&["check", "data", "--wait"]).status,
        1,
        "the resync went beyond what the bitmap says"
    );
    let scrub = serve.array()["scrubs"][0].clone();
    assert_eq!(scrub["mismatches"].as_array().unwrap().len(), 1, "{scrub:#}");
    serve.command(&["repair", "data", "--source", "data", "--wait"]).ok();
    serve.stop();
}

/// A goal is set while a check runs beside a client; what was decided is told with what it was
/// decided from.
#[test]
fn what_was_tuned_is_told_with_its_reasons() {
    let room = Room::new();
    let members = room.array("5", 4);
    let serve = Serve::start(&room, &["--goal", "latency"], &members);
    assert_eq!(serve.array()["settings"]["goal"], "latency");
    let why = serve.command(&["why", "--tuning", "data"]).ok();
    let told = "goal is latency, as an operator set it (by itself throughput)";
    assert!(why.text().contains(told), "{}", why.text());
    serve.command(&["set", "data", "goal=throughput"]).ok();
    let why = serve.command(&["why", "--tuning", "data"]).ok();
    assert!(why.text().contains("nothing was decided yet"), "{}", why.text());

    fill(&serve, 8);
    serve.command(&["set", "data", "sync_speed_max=2000", "sync_speed_min=0", "goal=20ms"]).ok();
    serve.command(&["check", "data"]).ok();
    serve.wait_until("decided", |array| {
        let decided = array["tuning"].as_array().unwrap();
        let with = |word: &str, why: &str| {
            decided.iter().any(|tuned| {
                let says = |key: &str, part: &str| tuned[key].as_str().unwrap().contains(part);
                tuned["time"].is_string() && says("what", word) && says("why", why)
            })
        };
        with("beside clients takes 10.0 % of that, not 33.0 %", "the goal was set")
            && with("background work reckons with ", "its first steps")
    });
    let why = serve.command(&["why", "--tuning", "--json", "data"]).ok().json();
    let decisions = why["arrays"][0]["decisions"].as_array().unwrap();
    let overrides =
        |word: &str| decisions.iter().any(|said| said["what"].as_str().unwrap().starts_with(word));
    assert!(
        overrides("goal is 20ms") && overrides("sync_speed_max is 2000") && overrides("sync_speed_min is 0")
    );
    serve.command(&["check", "data", "--abort"]).ok();
    serve.stop();
    run(["why", "--tuning", "data", "--runtime-dir", &room.name("run")]).failed(1, "WTL-0100", &["data"]);
}

#[test]
fn background_work_is_shown_limited_paused_and_ended() {
    let room = Room::new();
    let members = room.array("5", 4);
    let serve = Serve::start(&room, &[], &members);
    fill(&serve, 8);
    serve.command(&["set", "data", "sync_speed_max=1000", "sync_speed_min=0"]).ok();
    serve.command(&["check", "data"]).ok();
    let busy = serve.wait_until("under way", |array| array["sync"]["done_bytes"].as_u64().unwrap_or(0) > 0);
    assert_eq!((&busy["sync"]["action"], &busy["sync"]["paused"]), (&json!("check"), &json!(false)));
    serve.wait_until("limited", |array| array["sync"]["limited_by"]["kind"] == "sync_speed_max");
    let text = serve.command(&["status", "data"]).ok();
    let shown = text.text();
    assert!(shown.contains(">.") && shown.contains("  check =") && shown.contains("K/sec"), "{shown}");
    assert!(shown.contains("limited by sync_speed_max (1000 KiB/s)"), "{shown}");
    let mdstat = serve.command(&["status", "--mdstat"]).ok();
    let mdstat = mdstat.text();
    assert!(mdstat.starts_with("Personalities : ") && mdstat.contains("md_data : active raid5 "), "{mdstat}");
    assert!(mdstat.contains("[4/4] [UUUU]\n      [") && mdstat.contains("check = "), "{mdstat}");
    assert!(mdstat.ends_with("unused devices: <none>\n"), "{mdstat}");

    serve.command(&["check", "data", "--pause"]).ok();
    serve.wait_until("paused", |array| array["paused"] == true && array["sync"]["paused"] == true);
    let before = serve.array()["sync"]["done_bytes"].clone();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(serve.array()["sync"]["done_bytes"], before);
    serve.command(&["check", "data", "--resume"]).ok();
    serve.wait_until("going on", |array| array["sync"]["done_bytes"] != before);
    serve.command(&["check", "data", "--abort"]).ok();
    let ended = serve.wait_until("ended", |array| array["sync"].is_null());
    assert_eq!(ended["scrubs"][0]["outcome"], "aborted", "{ended:#}");
    serve.command(&["set", "data", "sync_speed_max=none", "sync_action=check"]).ok();
    serve.wait_until("done", |array| array["scrubs"][0]["outcome"] == "done");
    serve.command(&["set", "data", "sync_action=frozen"]).ok();
    let frozen = serve.array();
    assert_eq!((&frozen["paused"], &frozen["settings"]["sync_action"]), (&json!(true), &json!("frozen")));
    serve.command(&["set", "data", "sync_action=idle"]).ok();
    let shown = serve.command(&["set", "data"]).ok();
    assert!(shown.text().contains("sync_action=idle"), "{}", shown.text());
    serve.stop();
}

/// A pipe that is full takes a line as a file system does whose server is busy: not now.
#[test]
fn a_history_that_cannot_be_written_now_holds_up_nothing() {
    let room = Room::new();
    let members = room.array("5", 3);
    let serve = Serve::start(&room, &["--cores", "1"], &members);
    let file = room
        .path("state")
        .join(format!("scrub-{}.jsonl", serve.array()["uuid"].as_str().unwrap().replace(':', "-")));
    fs::create_dir_all(room.path("state")).unwrap();
    tool("mkfifo", [&file]);
    let mut pipe = File::options().read(true).write(true).open(&file).unwrap();
    let mut full = vec![0; 65536];
    pipe.write_all(&full).unwrap();
    let checked = serve.command(&["check", "data", "--wait"]).ok();
    assert!(checked.stderr.contains("no mismatch"), "{}", checked.stderr);
    assert_eq!(serve.array()["scrubs"][0]["outcome"], "done");
    pipe.read_exact(&mut full).unwrap();
    serve.stop();
    // In their order.
    let mut lines = vec![0; 65536];
    let read = pipe.read(&mut lines).unwrap();
    let lines = String::from_utf8_lossy(&lines[..read]).into_owned();
    assert!(lines.find("\"running\"") < lines.find("\"done\""), "{lines}");
    assert!(lines.contains("\"running\""), "{lines}");
}

/// The recovery of a member that comes back has its turn first; what the check found before is not
/// lost, and what it says at the end is of the whole array.
#[test]
fn a_check_that_a_recovery_interrupts_tells_all_that_it_found() {
    let room = Room::new();
    let members = create(&room, "1", 3, &["--bitmap", "internal"]);
    let serve = Serve::start(&room, &[], &members);
    let _ = fill(&serve, 5);
    serve.command(&["fail", "data", "2"]).ok();
    corrupt(&members[1], 8 << 20, &[0xEE; 512]);
    serve.command(&["set", "data", "sync_speed_min=0", "sync_speed_max=8000"]).ok();
    serve.command(&["check", "data"]).ok();
    serve.wait_until("found", |array| array["sync"]["mismatch_sectors"].as_u64().unwrap_or(0) > 0);
    serve.command(&["remove", "data", "2"]).ok();
    serve.command(&["add", "data", &members[2]]).ok();
    let recovering = serve.wait_until("interrupted", |array| array["sync"]["action"] == "recovery");
    assert_eq!(recovering["scrubs"][0]["outcome"], "running");
    serve.command(&["set", "data", "sync_speed_max=none"]).ok();
    let done = serve
        .wait_until("done", |array| array["sync"].is_null() && array["scrubs"][0]["outcome"] != "running");
    let (run, whole) = (&done["scrubs"][0], &done["scrubs"][0]["covered"]["whole_bytes"]);
    assert_eq!(
        (&run["outcome"], run["mismatch_sectors"].as_u64() > Some(0)),
        (&json!("done"), true),
        "{run:#}"
    );
    assert_eq!(run["covered"], json!({ "from_byte": 0, "to_byte": whole, "whole_bytes": whole }));
    assert_eq!(done["scrubs"].as_array().unwrap().len(), 1);
    serve.stop();
}

#[test]
fn a_check_that_the_server_did_not_survive_was_interrupted() {
    let room = Room::new();
    let members = room.array("5", 3);
    let serve = Serve::start(&room, &[], &members);
    serve.command(&["set", "data", "sync_speed_min=0", "sync_speed_max=500"]).ok();
    serve.command(&["check", "data"]).ok();
    serve.kill();
    let serve = Serve::start(&room, &[], &members);
    let array = serve.array();
    assert_eq!(
        (&array["scrubs"][0]["outcome"], &array["scrubs"][0]["run"]),
        (&json!("interrupted"), &json!(1))
    );
    serve.command(&["check", "data", "--wait"]).ok();
    assert_eq!(serve.array()["scrubs"][0]["run"], 2);
    serve.stop();
}

#[test]
fn why_explains_an_array_that_runs_and_one_that_does_not() {
    let room = Room::new();
    let members = room.array("5", 3);
    let serve = Serve::start(&room, &[], &members);
    fill(&serve, 9);
    let whole = serve.command(&["why", "data"]).ok();
    assert!(whole.text().starts_with("data  ") && whole.text().contains("[UUU] good"), "{}", whole.text());
    serve.command(&["fail", "data", "1"]).ok();
    let failed = serve.command(&["why", "data"]).ok();
    for words in ["[U_U] degraded", "member-1: it failed and is not used", "next: wattle remove data "] {
        assert!(failed.text().contains(words), "expected `{words}`: {}", failed.text());
    }
    let report = serve.command(&["why", "data", "--json"]).ok().json();
    assert_eq!((&report["schema_version"], &report["arrays"][0]["array"]), (&json!(1), &json!("data")));
    serve.stop();
    room.untouched(|| {
        let offline = run(["why".to_owned()].into_iter().chain(members.clone())).ok();
        let text = offline.text();
        assert!(text.contains("member-1") && text.contains("events"), "{text}");
        assert!(text.contains("next: serve it, then wattle add data "), "{text}");
    });
}
