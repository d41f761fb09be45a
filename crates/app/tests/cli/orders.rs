//! Orders to a running array that make no sense or would lose something: each gives one clear error
//! with its exit status, and the array is as it was.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use serde_json::Value;

use crate::fuse::can_mount;
use crate::group_changes::Client;
use crate::harness::{Room, Said, Serve, require, run, tool, wattle};

/// What must not change: the members, and what is said of the whole.
fn essence(array: &Value) -> [Value; 5] {
    let members = array["members"].as_array().unwrap().iter();
    let members = members.map(|member| serde_json::json!([member["member"], member["state"]])).collect();
    [
        array["slots"].clone(),
        members,
        array["spares"].clone(),
        array["replacements"].clone(),
        array["sync"].clone(),
    ]
}

/// Says no, and leaves the array and the newcomer as they were.
#[track_caller]
fn refused(serve: &Serve, args: &[&str], newcomer: Option<&str>) -> Said {
    let content = |file: Option<&str>| file.map(|file| fs::read(file).unwrap());
    let (before, bytes) = (essence(&serve.array()), content(newcomer));
    let said = serve.command(args);
    assert_eq!(essence(&serve.array()), before, "{args:?} changed the array: {}", said.stderr);
    assert!(content(newcomer) == bytes, "{args:?} changed the device: {}", said.stderr);
    assert!((1..=3).contains(&said.status), "{args:?}: {said:?}");
    said
}

#[test]
fn members_that_cannot_be_added() {
    let room = Room::new();
    let members = room.array("5", 3);
    let serve = Serve::start(&room, &[], &members);
    serve.command(&["fail", "data", "1"]).ok();
    serve.command(&["remove", "data", &members[1]]).ok();
    let add = |device: &str, options: &[&str]| {
        refused(
            &serve,
            &[&["add", "data", device], options].concat(),
            std::path::Path::new(device).is_file().then_some(device),
        )
    };

    let small = room.device("small", 12 << 20);
    add(&small, &[]).failed(1, "WTL-0081", &["small", "MiB"]);
    let nowhere = room.name("nowhere");
    add(&nowhere, &[]).failed(1, "WTL-0020", &["nowhere"]);
    add(room.dir.path().to_str().unwrap(), &[]).failed(1, "WTL-0022", &[]);
    // An array that runs on a device writes how it is, its superblock from 192 bytes on; what
    // device it is and its data stay.
    let add_running = |device: &str, options: &[&str]| {
        let stays = || {
            let bytes = fs::read(device).unwrap();
            (bytes[4096..4096 + 192].to_vec(), bytes[1 << 20..].to_vec())
        };
        let before = stays();
        let said = refused(&serve, &[&["add", "data", device], options].concat(), None);
        assert!(stays() == before, "{device} was changed: {}", said.stderr);
        said
    };
    add_running(&members[0], &[]).failed(2, "WTL-0004", &["member-0", "already"]);

    // Not this array's: another array's member, in use or not.
    let other = Room::new();
    let others = other.blank(2, 16 << 20);
    run(["create", "other", "--level", "1"].map(str::to_owned).into_iter().chain(others.clone())).ok();
    add(&others[0], &[]).failed(3, "WTL-0080", &["other", "--force=signature"]);
    let serving_it = Serve::start(&other, &[], &others);
    add_running(&others[0], &[]).failed(3, "WTL-0026", &["member-0"]);
    add_running(&others[0], &["--force=signature"]).failed(3, "WTL-0026", &["member-0"]);
    serving_it.stop();

    if require("mkfs.ext4") {
        let with_fs = room.device("with-fs", 16 << 20);
        tool("mkfs.ext4", ["-q", &with_fs]);
        add(&with_fs, &[]).failed(3, "WTL-0080", &["ext4", "--force=signature"]);
        // A check that has nothing to do with it overrides nothing, and there is no bare force.
        add(&with_fs, &["--force=dirty-degraded"]).failed(3, "WTL-0080", &["ext4"]);
        assert_eq!(serve.command(&["add", "data", &with_fs, "--force"]).status, 2);
        serve.command(&["add", "data", &with_fs, "--force=signature", "--wait"]).ok();
        serve.wait_until_good();
    }
    serve.stop();
}

#[test]
fn members_that_cannot_go() {
    for (level, count, enough) in [("5", 3, 1), ("6", 4, 2), ("1", 2, 1), ("10", 4, 1)] {
        let room = Room::new();
        let members = room.array(level, count);
        let serve = Serve::start(&room, &[], &members);
        let working = refused(&serve, &["remove", "data", &members[0]], None);
        working.failed(1, "WTL-0108", &["works", "fail it first"]);
        for member in &members[..enough] {
            serve.command(&["fail", "data", member]).ok();
        }
        // The last copy: for RAID 10 of near copies that is the neighbour.
        refused(&serve, &["fail", "data", &members[enough]], None).failed(
            3,
            "WTL-0106",
            &["data would be gone"],
        );
        refused(&serve, &["fail", "data", "7"], None).failed(2, "WTL-0003", &["7"]);
        refused(&serve, &["remove", "data", "nobody"], None).failed(2, "WTL-0003", &["nobody"]);
        serve.command(&["remove", "data", &members[0]]).ok();
        refused(&serve, &["remove", "data", &members[0]], None).failed(2, "WTL-0003", &[&members[0]]);
        serve.stop();
    }
}

#[test]
fn replacements_that_make_no_sense() {
    let room = Room::new();
    let members = room.array("5", 3);
    let serve = Serve::start(&room, &[], &members);
    refused(&serve, &["replace", "data", "member-1", &members[1]], None).failed(2, "WTL-0004", &["itself"]);
    refused(&serve, &["replace", "data", "1", "--with", &members[1]], None).failed(
        2,
        "WTL-0004",
        &["itself"],
    );
    refused(&serve, &["replace", "data", "1", &members[2]], None).failed(2, "WTL-0004", &["member-2"]);
    let no_spare = refused(&serve, &["replace", "data", "1"], None);
    assert!(no_spare.stderr.contains("spare"), "{}", no_spare.stderr);
    let nobody = refused(&serve, &["replace", "data", "9", &room.device("new", 16 << 20)], None);
    nobody.failed(2, "WTL-0003", &["9"]);
    serve.stop();
}

#[test]
fn a_repair_says_what_is_right_or_does_not_start() {
    for (level, count, words, bad) in [
        ("5", 3, "--source data", "proof"),
        ("6", 4, "--source proof", "majority"),
        ("1", 2, "--source MEMBER", "data"),
        ("10", 4, "--source MEMBER", "proof"),
    ] {
        let room = Room::new();
        let serve = Serve::start(&room, &[], &room.array(level, count));
        refused(&serve, &["repair", "data"], None).failed(2, "WTL-0001", &["source", words]);
        refused(&serve, &["repair", "data", "--source", bad], None).failed(2, "WTL-0001", &[bad, words]);
        serve.stop();
    }
    let room = Room::new();
    let serve = Serve::start(&room, &[], &room.array("1", 2));
    refused(&serve, &["repair", "data", "--source", "nobody"], None).failed(2, "WTL-0003", &["nobody"]);
    refused(&serve, &["repair", "data", "--source", "majority"], None).failed(2, "WTL-0001", &["source"]);
    refused(&serve, &["check", "data", "--abort"], None).failed(2, "WTL-0008", &["no check or repair"]);
    refused(&serve, &["set", "data", "sync_action=repair"], None).failed(2, "WTL-0001", &["source"]);
    serve.stop();
}

#[test]
fn levels_and_modes_that_have_nothing_to_do_it_with() {
    let room = Room::new();
    let serve = Serve::start(&room, &[], &room.array("0", 2));
    let new = room.device("new", 16 << 20);
    refused(&serve, &["check", "data"], None).failed(2, "WTL-0008", &["no redundancy"]);
    refused(&serve, &["fail", "data", "0"], None);
    refused(&serve, &["add", "data", &new], None);
    serve.stop();

    let room = Room::new();
    let members = room.array("5", 3);
    let new = room.device("new", 16 << 20);
    room.untouched(|| {
        let serve = Serve::start(&room, &["--read-only"], &members);
        for order in [
            &["check", "data"][..],
            &["repair", "data", "--source", "data"],
            &["fail", "data", "0"],
            &["remove", "data", "0"],
            &["replace", "data", "0", &new],
            &["add", "data", &new],
        ] {
            refused(&serve, order, None).failed(1, "WTL-0025", &["read-only"]);
        }
        serve.stop();
    });
}

#[test]
fn one_job_at_a_time_and_members_change_one_by_one() {
    let room = Room::new();
    let members = room.array("6", 5);
    let serve = Serve::start(&room, &[], &members);
    serve.command(&["set", "data", "sync_speed_max=1M", "sync_speed_min=0"]).ok();
    serve.command(&["check", "data"]).ok();
    for order in [
        &["check", "data"][..],
        &["repair", "data", "--source", "data"],
        &["set", "data", "sync_action=check"],
    ] {
        serve.command(order).failed(1, "WTL-0107", &["under way"]);
    }
    // Several at once: one member fails, and each client learns what became of its order.
    let orders = std::thread::scope(|scope| {
        let fail = |_| scope.spawn(|| serve.command(&["fail", "data", "0"]).status);
        (0..4)
            .map(fail)
            .collect::<Vec<_>>()
            .into_iter()
            .map(|order| order.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert_eq!(orders.iter().filter(|status| **status == 0).count(), 1, "{orders:?}");
    assert!(orders.iter().all(|status| matches!(status, 0 | 2)), "{orders:?}");
    assert_eq!(serve.array()["slots"], "[_UUUU]");
    // An order does not wait for the job, nor the job for it.
    serve.command(&["check", "data", "--abort"]).ok();
    serve.stop();
}

#[test]
fn settings_that_make_no_sense() {
    let room = Room::new();
    let serve = Serve::start(&room, &[], &room.array("5", 3));
    let settings = serve.array()["settings"].clone();
    for (setting, words) in [
        ("stripe_cache=1", &["sync_speed_min", "sync_speed_max", "sync_action", "read_deadline"][..]),
        ("read_deadline=1ms", &["from 10ms to 10m"]),
        ("stripe_cache_size=32769", &["up to 32768"]),
        ("read_ahead_kb=16385", &["up to 16M"]),
        ("sync_speed_max=fast", &["KiB/s"]),
        ("sync_speed_max", &["KEY=VALUE"]),
        ("sync_action=reshape", &["idle, check, repair or frozen"]),
    ] {
        refused(&serve, &["set", "data", setting], None).failed(2, "WTL-0001", words);
    }
    // The first of two is not set if the second makes no sense.
    refused(&serve, &["set", "data", "sync_speed_max=5000", "sync_speed_min=x"], None).failed(
        2,
        "WTL-0001",
        &["KiB/s"],
    );
    assert_eq!(serve.array()["settings"], settings);
    assert_eq!(settings["read_deadline"], "2s");
    serve.command(&["set", "data", "read_deadline=500ms"]).ok();
    assert_eq!(serve.array()["settings"]["read_deadline"], "500ms");
    assert_eq!(settings["read_ahead_kb"], "1024");
    serve.command(&["set", "data", "read_ahead_kb=2M"]).ok();
    assert_eq!(serve.array()["settings"]["read_ahead_kb"], "2048");
    let why = serve.command(&["why", "--tuning", "data"]).ok();
    assert!(
        why.text().contains("read_ahead_kb is 2048, as an operator set it (by itself 1024)"),
        "{}",
        why.text()
    );
    serve.command(&["set", "data", "sync_speed_max=5000"]).ok();
    refused(&serve, &["set", "data", "sync_speed_min=50M"], None).failed(2, "WTL-0001", &["sync_speed_max"]);
    serve.stop();
}

#[test]
fn the_ceiling_of_the_cache_is_set_as_in_md() {
    let room = Room::new();
    let serve = Serve::start(&room, &["--set", "stripe_cache_size=100", "--cores", "2"], &room.array("6", 5));
    let is = |entries: u64| {
        let array = serve.array();
        assert_eq!(array["settings"]["stripe_cache_size"], entries.to_string(), "{array}");
        let cache = &array["cache"];
        assert_eq!(cache["stripe_cache_size"], entries, "{array}");
        assert_eq!(cache["ceiling_bytes"], entries * 4096 * 5, "{array}");
        assert_eq!((&cache["stripe_cache_active"], &cache["hits"]), (&0.into(), &0.into()), "{array}");
    };
    is(100);
    serve.command(&["set", "data", "stripe_cache_size=3000"]).ok();
    is(3000);
    serve.command(&["set", "data", "stripe_cache_size=80M"]).ok();
    is(4096);
    serve.command(&["set", "data", "stripe_cache_size=0"]).ok();
    assert!(serve.array()["cache"].is_null() && serve.array()["settings"]["stripe_cache_size"] == "0");
    serve.stop();
    let room = Room::new();
    let mirror = Serve::start(&room, &[], &room.array("1", 2));
    assert!(mirror.array()["settings"]["stripe_cache_size"].is_null());
    let refused = mirror.command(&["set", "data", "stripe_cache_size=100"]);
    refused.failed(2, "WTL-0008", &["raid1 has no stripe cache"]);
    mirror.stop();
}

#[test]
fn an_array_that_is_not_whole_is_not_started_where_that_was_said() {
    let room = Room::new();
    let members = room.array("5", 3);
    room.untouched(|| {
        let refused =
            Serve::try_start(&room, &["--degraded=never"], &members[..2]).err().expect("it is refused");
        refused.failed(3, "WTL-0061", &["slot 2", "--degraded=auto"]);
        Serve::start(&room, &["--degraded=never"], &members).stop();
    });
    Serve::start(&room, &["--degraded=auto"], &members[..2]).stop();
}

#[test]
fn a_history_that_cannot_be_kept_is_a_warning_and_the_check_counts() {
    let room = Room::new();
    let members = room.array("5", 3);
    let file = room.name("a-file");
    fs::write(&file, "x").unwrap();
    let state_dir = format!("{file}/state");
    let mut serve = Serve::start(&room, &["--state-dir", &state_dir], &members);
    serve.command(&["check", "data", "--wait"]).ok();
    assert_eq!(serve.array()["scrubs"][0]["outcome"], "done");
    serve.signal("TERM");
    assert_eq!(serve.wait(), 0);
    let log = serve.said.clone() + &serve.rest();
    assert!(log.contains("the history of checks") && log.contains("cannot be kept"), "{log}");
}

/// A member whose superblock's data area is patched under the array, as a drive that lies would
/// have it.
pub fn corrupt(member: &str, at: u64, bytes: &[u8]) {
    let examined = run(["examine", "--json", member]).ok().json();
    let fields = &examined["members"][0]["superblocks"][0]["fields"];
    let offset = fields["data_offset"].as_u64().unwrap_or_else(|| panic!("{fields:#}"));
    fs::File::options().write(true).open(member).unwrap().write_all_at(bytes, offset + at).unwrap();
}

/// Mirrors of these names, and the members of each.
fn mirrors<const N: usize>(room: &Room, names: [&str; N]) -> [Vec<String>; N] {
    names.map(|name| {
        let pair = ["0", "1"].map(|ix| room.device(&format!("{name}{ix}"), 16 << 20));
        run(["create", name, "--level", "1", &pair[0], &pair[1]]).ok();
        pair.to_vec()
    })
}

/// Neither is the last one when it is told, and the server ends all the same.
#[test]
fn two_arrays_stopped_at_once_end_their_server() {
    let room = Room::new();
    let members = mirrors(&room, ["a", "b"]).concat();
    let mut serve = Serve::start(&room, &[], &members);
    let stop = |name: &str| {
        let mut stop = wattle();
        stop.args(["stop", name, "--runtime-dir"]).arg(&serve.runtime_dir).spawn().unwrap()
    };
    for mut stop in ["a", "b"].map(stop) {
        assert!(stop.wait().unwrap().success());
    }
    assert_eq!(serve.wait(), 0);
}

/// A server is called like its first array unless it is told otherwise, and its name is no other
/// array's when that one is stopped.
#[test]
fn an_order_to_an_array_that_was_stopped_reaches_no_other() {
    let room = Room::new();
    let members = mirrors(&room, ["m0", "m1"]).concat();
    let new = room.device("new", 16 << 20);
    for args in [&[][..], &["--name", "lab"]] {
        let mut serve = Serve::start(&room, args, &members);
        let server = args.last().copied().unwrap_or("m0");
        if server == "lab" {
            serve.command(&["fail", "lab", "0"]).failed(2, "WTL-0007", &["m0, m1"]);
        }
        serve.command(&["stop", "m0"]).ok();
        let orders: [&[&str]; 15] = [
            &["fail", "0"],
            &["remove", "0"],
            &["add", &new],
            &["replace", "0", "--with", &new],
            &["check"],
            &["check", "--record"],
            &["check", "--abort"],
            &["repair", "--source", "majority"],
            &["set", "sync_action=frozen"],
            &["set", "bandwidth=1M"],
            &["set"],
            &["checkpoint", "now"],
            &["why"],
            &["status"],
            &["stop"],
        ];
        let names: &[&str] = if server == "lab" { &["m0", "lab"] } else { &["m0"] };
        for (name, order) in names.iter().flat_map(|name| orders.map(|order| (*name, order))) {
            // What it says of a server as a whole says it of what there is.
            if name == "lab" && matches!(order, ["why" | "status" | "stop" | "set"]) {
                continue;
            }
            let words = [&order[..1], &[name], &order[1..]].concat();
            let said = refused(&serve, &words, Some(&new));
            assert!(
                said.status == 1 && said.stderr.contains("error[WTL-0100]"),
                "{words:?}: {}",
                said.stderr
            );
        }
        // A client that does not ask which array has the name, as older ones do not.
        for name in names {
            let mut client = UnixStream::connect(serve.runtime_dir.join(format!("{server}.sock"))).unwrap();
            let request = format!(
                "{{\"schema_version\":1,\"command\":\"fail\",\"array\":\"{name}\",\"member\":\"0\"}}\n"
            );
            client.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            BufReader::new(client).read_line(&mut answer).unwrap();
            assert!(answer.contains("WTL-0100"), "{answer}");
        }
        let array = serve.array();
        assert_eq!((&array["name"], &array["slots"]), (&"m1".into(), &"[UU]".into()), "{array:#}");
        assert!(fs::read(&new).unwrap().iter().all(|&byte| byte == 0));
        serve.command(&["stop", "--server", "m1"]).failed(1, "WTL-0100", &[server]);
        let stop: &[&str] = if server == "lab" { &["stop", "lab"] } else { &["stop", "--server", "m0"] };
        let stopped = serve.command(stop).ok();
        assert!(stopped.stderr.contains("m1 is stopped and recorded clean"), "{}", stopped.stderr);
        assert_eq!(serve.wait(), 0);
    }
}

/// Where clients find the other one goes on.
#[test]
fn an_array_that_is_stopped_lets_go_of_its_members_wherever_it_is_exported() {
    let room = Room::new();
    let [first, second] = mirrors(&room, ["m0", "m1"]);
    let socket = room.path("nbd");
    let [files, guests] = ["files", "guests"].map(|name| room.path(name));
    for dir in [&files, &guests] {
        fs::create_dir(dir).unwrap();
    }
    let mut exports =
        vec![format!("nbd=unix:{}", socket.display()), format!("vhost-user={}", guests.display())];
    if can_mount() {
        exports.push(format!("fuse={}", files.display()));
    }
    for export in exports {
        let serve = Serve::start(&room, &["--export", &export], &[&first[..], &second].concat());
        let is_nbd = export.starts_with("nbd");
        // One that stays, and one that has not said what it wants.
        let clients = is_nbd.then(|| (Client::connect(&socket, "m0"), Client::connect(&socket, "m1")));
        let asking = is_nbd.then(|| UnixStream::connect(&socket).unwrap());
        serve.command(&["stop", "m0"]).ok();
        let beside = Room::new();
        let other = Serve::start(&beside, &["--name", "other"], &first);
        assert_eq!(serve.array()["name"], "m1", "{export}");
        if is_nbd {
            assert!(Client::connect(&socket, "m0").is_none(), "it is offered still");
            Client::connect(&socket, "m1").unwrap().leave();
        }
        if export.starts_with("fuse") {
            assert!(!files.join("m0").exists() && files.join("m1").exists());
        }
        drop((clients, asking));
        other.stop();
        serve.stop();
    }
}
