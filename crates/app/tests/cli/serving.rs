//! Serving to real NBD clients, unmodified, and being commanded over the control socket.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::harness::{Room, Said, Serve, require, run, said, tool};

/// A file of bytes that differ everywhere.
fn noise(room: &Room, name: &str, len: usize) -> String {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    fs::write(room.path(name), (0..len).map(next).collect::<Vec<_>>()).unwrap();
    room.name(name)
}

fn cat(members: &[String]) -> Vec<u8> {
    run(["cat".to_owned()].into_iter().chain(members.iter().cloned())).ok().stdout
}

#[test]
fn nbdinfo_lists_every_array_by_its_name() {
    if !require("nbdinfo") {
        return;
    }
    let (first, second) = (Room::new(), Room::new());
    let mut members = first.array("5", 3);
    members.extend(run_named(&second, "other"));
    let serve = Serve::start(&first, &[], &members);
    let socket = serve.uri.split_once("socket=").unwrap().1.to_owned();
    let list = tool("nbdinfo", ["--list", "--json", &format!("nbd+unix:///?socket={socket}")]);
    assert!(list.contains("\"data\"") && list.contains("\"other\""), "{list}");
    let size = tool("nbdinfo", ["--size", &format!("nbd+unix:///data?socket={socket}")]);
    assert_eq!(size.trim(), (30 << 20).to_string());
    // Stopping one of them leaves the other one.
    serve.command(&["stop", "other"]).ok();
    let left = serve.command(&["status", "--json"]).ok().json()["arrays"].clone();
    assert_eq!((left.as_array().unwrap().len(), &left[0]["exports"]), (1, &serde_json::json!([serve.uri])));
    assert_eq!(serve.command(&["status", "data", "--check"]).status, 0);
    // Members that are files have no drive to ask.
    let smart = serve.command(&["status", "--smart"]).ok();
    assert!(smart.text().contains("  SMART: no member lies on a drive of this machine"), "{}", smart.text());
    let smart = serve.command(&["status", "--smart", "--json"]).ok().json();
    assert_eq!(smart["arrays"][0]["smart"][0]["drive"], serde_json::Value::Null);
    serve.stop();
}

fn run_named(room: &Room, name: &str) -> Vec<String> {
    let members = room.blank(2, 16 << 20);
    run(["create", name, "--level", "1"].map(str::to_owned).into_iter().chain(members.clone())).ok();
    members
}

#[test]
fn nbdcopy_there_and_back_and_a_member_lost_between() {
    if !require("nbdcopy") {
        return;
    }
    for (level, count) in [("0", 3), ("1", 2), ("4", 3), ("5", 4), ("6", 5), ("10", 4), ("linear", 2)] {
        let room = Room::new();
        let members = room.array(level, count);
        let serve = Serve::start(&room, &[], &members);
        let size: usize = tool("nbdinfo", ["--size", &serve.uri]).trim().parse().unwrap();
        let data = noise(&room, "data.raw", size);
        tool("nbdcopy", ["--flush", &data, &serve.uri]);
        let redundant = !matches!(level, "0" | "linear");
        if redundant {
            serve.command(&["fail", "data", "member-1"]).ok();
            assert_eq!(serve.command(&["status", "--check"]).status, 1);
        }
        tool("nbdcopy", [&serve.uri, &room.name("back.raw")]);
        let expected = fs::read(&data).unwrap();
        assert!(fs::read(room.path("back.raw")).unwrap() == expected, "level {level}: nbdcopy back");
        serve.stop();
        assert!(cat(&members) == expected, "level {level}: cat with all members");
        if redundant {
            let mut survivors = members.clone();
            survivors.remove(1);
            assert!(cat(&survivors) == expected, "level {level}: cat without the failed member");
        }
    }
}

#[test]
fn qemu_writes_and_verifies() {
    if !require("qemu-io") || !require("qemu-img") {
        return;
    }
    let room = Room::new();
    let members = room.array("5", 4);
    let serve = Serve::start(&room, &[], &members);
    let script =
        ["-c", "write -P 1 0 1M", "-c", "write -P 2 4097 70001", "-c", "flush", "-c", "write -z 128k 64k"];
    let checks = [
        "-c",
        "read -P 1 0 4097",
        "-c",
        "read -P 2 4097 70001",
        "-c",
        "read -P 0 128k 64k",
        "-c",
        "discard 2M 1M",
    ];
    tool("qemu-io", [&["-f", "raw", &serve.uri][..], &script, &checks].concat());
    tool("qemu-io", ["-f", "raw", "-t", "writethrough", &serve.uri, "-c", "write -f -P 3 3M 64k"]);
    assert!(tool("qemu-img", ["info", "-f", "raw", &serve.uri]).contains("45 MiB"));
    tool("qemu-img", ["convert", "-f", "raw", "-O", "raw", &serve.uri, &room.name("copy.raw")]);
    tool("qemu-img", ["compare", "-f", "raw", "-F", "raw", &serve.uri, &room.name("copy.raw")]);
    serve.stop();
    assert!(cat(&members) == fs::read(room.path("copy.raw")).unwrap());
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !require("fio") {
        return;
    }
    let room = Room::new();
    let members = room.array("6", 5);
    let serve = Serve::start(&room, &[], &members);
    let fio = [
        "--name=verify",
        "--ioengine=nbd",
        "--rw=randwrite",
        "--bsrange=512-128k",
        "--size=8M",
        "--iodepth=16",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--randseed=7",
        "--output",
    ];
    let uri = format!("--uri={}", serve.uri);
    let output = room.name("fio.txt");
    tool("fio", fio.iter().copied().chain([output.as_str(), uri.as_str()]));
    serve.stop();
}

#[test]
fn run_ends_with_the_status_of_its_command() {
    let args = ["serve", "mem:8M", "mem:8M", "mem:8M", "--level", "5", "--chunk", "64K"];
    let room = Room::new();
    let dir = room.name("run");
    let serve = |command: &str| run(args.iter().copied().chain(["--runtime-dir", &dir, "--run", command]));
    assert_eq!(serve("test -S \"$unixsocket\" && test \"$uri\" = \"$nbd\" && exit 7").status, 7);
    assert_eq!(serve("kill -9 $$").status, 128 + 9);
    let serve = serve("echo to stdout; case $uri in nbd+unix:///*) ;; *) exit 1;; esac").ok();
    assert_eq!(serve.text(), "to stdout\n");
    assert!(fs::read_dir(room.path("run")).unwrap().next().is_none(), "sockets stay behind");
}

#[test]
fn made_up_arrays_are_made_of_made_up_drives_only() {
    let room = Room::new();
    let members = room.blank(3, 1 << 20);
    let level = |level: &str, members: &[String]| {
        run(["serve", "--level", level].map(str::to_owned).into_iter().chain(members.iter().cloned()))
    };
    room.untouched(|| level("5", &members)).failed(2, "WTL-0008", &[&members[0], "mem:"]);
    level("7", &["mem:1M".to_owned()]).failed(2, "WTL-0008", &["--level 7"]);
    level("6", &["mem:1M".to_owned()]).failed(2, "WTL-0008", &[]);
    run(["serve", "mem:1M"]).failed(1, "WTL-0040", &["mem:1M"]);
    run(["serve", "mem:0", "--level", "0"]).failed(1, "WTL-0024", &["mem:0"]);
}

#[test]
fn modelled_drives_take_their_time() {
    let room = Room::new();
    let dir = room.name("run");
    let data = noise(&room, "data", 1 << 20);
    let serve = |drive: &str, command: &str| {
        let level = ["serve", "--level", "5", "--chunk", "64K", "--runtime-dir", &dir];
        run(level.into_iter().chain([drive; 3]).chain(["--run", command])).status
    };
    let copies = format!("nbdcopy {data} \"$uri\" && nbdcopy \"$uri\" {dir}.back && cmp {data} {dir}.back");
    let waits = "timeout 0.5 nbdcopy \"$uri\" null:";
    if require("nbdcopy") {
        assert_eq!(serve("model:x25m,size=1M", &copies.replace("cmp", "cmp -n 1048576")), 0);
        assert_eq!(serve("model:x25m,size=1M,read_lat=10s", waits), 124);
    }
    let refused = |drive: &str| run(["serve", "--level", "0", drive]);
    refused("model:floppy").failed(2, "WTL-0003", &["model:floppy", "x25m", "sata7200", "nvme"]);
    refused("model:x25m,rpm=7200").failed(2, "WTL-0003", &["rpm", "write_lat"]);
    refused("model:x25m,read_lat=5").failed(2, "WTL-0003", &["read_lat=5", "ms"]);
    run(["examine", "model:x25m"]).failed(2, "WTL-0003", &["model:x25m", "--level"]);
}

#[test]
fn a_member_has_one_owner() {
    let room = Room::new();
    let members = room.array("5", 3);
    let serve = Serve::start(&room, &["--name", "first"], &members);
    let second =
        Serve::try_start(&room, &["--name", "second"], &members).err().expect("a second owner is refused");
    second.failed(3, "WTL-0026", &["member-0"]);
    run(["cat".to_owned()].into_iter().chain(members.clone())).failed(3, "WTL-0026", &["member-0"]);
    // Looking is always allowed.
    run(["scan".to_owned()].into_iter().chain(members.clone())).ok();
    // Once `stop` returns, the members are free.
    serve.command(&["stop", "data"]).ok();
    Serve::start(&room, &["--name", "second"], &members).stop();
}

#[test]
fn reading_together_is_allowed() {
    let room = Room::new();
    let members = room.array("5", 3);
    room.untouched(|| {
        let first = Serve::start(&room, &["--read-only", "--name", "first"], &members);
        let second = Serve::start(&room, &["--read-only", "--name", "second"], &members);
        assert_eq!(cat(&members).len(), 30 << 20);
        let status = first.command(&["status", "--json"]).ok().json();
        assert_eq!(status["arrays"].as_array().unwrap().len(), 2);
        assert_eq!(status["arrays"][0]["read_only"], true);
        first.command(&["stop", "data"]).failed(2, "WTL-0007", &["UUID"]);
        first.command(&["fail", "data", "0"]).failed(2, "WTL-0007", &["UUID"]);
        second.stop();
        first.command(&["fail", "data", "0"]).failed(1, "WTL-0025", &["read-only"]);
        first.stop();
    });
}

#[test]
fn a_server_that_is_not_written_to_writes_nothing() {
    let room = Room::new();
    let members = room.array("5", 3);
    room.untouched(|| {
        let serve = Serve::start(&room, &[], &members);
        serve.command(&["status"]).ok();
        serve.stop();
    });
}

#[test]
fn killed_while_writing_it_comes_back_with_everything_flushed() {
    if !require("nbdcopy") {
        return;
    }
    let room = Room::new();
    let members = room.array("5", 4);
    let data = noise(&room, "data.raw", 45 << 20);
    let mut serve = Serve::start(&room, &[], &members);
    tool("nbdcopy", ["--flush", &data, &serve.uri]);
    tool("qemu-io", ["-f", "raw", "-c", "write -P 9 0 64k", &serve.uri]);
    serve.signal("KILL");
    assert_eq!(serve.wait(), -1);
    // Its sockets are still there, and no server listens.
    assert_eq!(serve.command(&["status", "--check"]).status, 4);
    let scan = run(["scan", "--json"].map(str::to_owned).into_iter().chain(members.clone())).ok().json();
    assert_eq!(scan["arrays"][0]["state"], "dirty");
    let mut expected = fs::read(&data).unwrap();
    expected[..65536].fill(9);
    assert!(cat(&members) == expected, "all members are there: parity is not needed");
    // Without one of them parity would be, and it cannot be trusted.
    let refused = run(["cat".to_owned()].into_iter().chain(members[1..].iter().cloned()));
    refused.failed(3, "WTL-0049", &["--force=dirty-degraded", "data"]);
    let serve = Serve::start(&room, &[], &members);
    tool("qemu-io", ["-f", "raw", "-c", "read -P 9 0 64k", &serve.uri]);
    serve.stop();
}

#[test]
fn the_last_copy_is_not_failed() {
    let room = Room::new();
    let members = room.array("1", 2);
    let serve = Serve::start(&room, &[], &members);
    serve.command(&["fail", "data", "7"]).failed(2, "WTL-0003", &["member-0", "member-1"]);
    serve.command(&["fail", "data", &members[0]]).ok();
    let again = serve.command(&["fail", "data", "0"]);
    again.failed(2, "WTL-0003", &["member-0", "failed already"]);
    serve.command(&["fail", "data", "member-1"]).failed(3, "WTL-0106", &["member-1"]);
    let status = serve.command(&["status"]).ok();
    assert!(status.text().contains("[_U] degraded"), "{}", status.text());
    serve.stop();
    let scan = run(["scan", "--json"].map(str::to_owned).into_iter().chain(members.clone())).ok().json();
    assert_eq!((&scan["arrays"][0]["slots"], &scan["arrays"][0]["state"]), (&"[_U]".into(), &"clean".into()));
}

#[test]
fn a_full_disk_under_a_sparse_member_is_an_error_to_the_client_and_not_a_lie() {
    // A member on a full file system once took the whole array down, or worse, acknowledged.
    if !require("qemu-io") || !require("mount") {
        return;
    }
    let room = Room::new();
    let small = room.path("small");
    fs::create_dir(&small).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=6m", "none", small.to_str().unwrap()])
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: mounting a small tmpfs needs privileges");
        return;
    }
    let mut members = room.blank(2, 16 << 20);
    let sparse = small.join("sparse").to_str().unwrap().to_owned();
    fs::File::create(&sparse).unwrap().set_len(16 << 20).unwrap();
    members.push(sparse.clone());
    run(["create", "data", "--level", "5", "--chunk", "64K"]
        .map(str::to_owned)
        .into_iter()
        .chain(members.clone()))
    .ok();
    let serve = Serve::start(&room, &[], &members);
    let output = std::process::Command::new("qemu-io")
        .args(["-f", "raw", "-c", "write -P 7 0 24M", "-c", "flush", "-c", "read -P 7 0 24M", &serve.uri])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let status = serve.command(&["status", "--json"]).ok().json();
    // Either the array went on without the member, and every byte is right, or the client was told.
    let told = said.contains("failed") || !output.status.success();
    let went_on = status["arrays"][0]["degraded"] == 1 && !said.contains("verification failed");
    assert!(told || went_on, "{said} {status}");
    assert!(!said.contains("Pattern verification failed"), "{said}");
    drop(serve);
    tool("umount", ["-l", small.to_str().unwrap()]);
}

/// As many as are served at a time connected and asked for nothing: `status` and `stop` waited for
/// 10 s until these had to go.
#[test]
fn clients_that_ask_for_nothing_delay_nobody() {
    let room = Room::new();
    let serve = Serve::start(&room, &[], &room.array("1", 2));
    let socket = room.path("run/data.sock");
    let mut idle: Vec<_> = (0..40).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    idle[39].write_all(b"{\"schema_ver").unwrap();
    let begun = Instant::now();
    assert_eq!(serve.command(&["status", "--check"]).status, 0);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // A client that waits for an answer is not the one that has to go, however long it takes.
    let mut asking: Vec<_> = (0..40).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    for client in &mut asking {
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        // Those that made way for the last ones are gone.
        let _ = client.write_all(b"{\"schema_version\":1,\"command\":\"status\"}\n");
    }
    let mut answer = [0; 12];
    asking[39].read_exact(&mut answer).unwrap();
    let begun = Instant::now();
    serve.stop();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop((idle, asking));
}

#[test]
fn garbage_and_slow_clients_on_the_control_socket_block_nobody() {
    let room = Room::new();
    let members = room.array("1", 2);
    let serve = Serve::start(&room, &[], &members);
    let socket = room.path("run/data.sock");
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(room.path("run")).unwrap().permissions().mode() & 0o777, 0o700);
    let mut idle: Vec<_> = (0..4).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    idle[0].write_all(b"{\"schema_ver").unwrap();
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\n", b"\xff\x00\n", b"{}\n", b"[[[[[[[[\n", &[b'x'; 20_000]]
    {
        let mut client = UnixStream::connect(&socket).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        // The server may hang up before it has read everything.
        let _ = client.write_all(garbage);
        let mut answer = String::new();
        let _ = client.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.contains("\"result\":\"error\""), "{answer}");
    }
    let mut client = UnixStream::connect(&socket).unwrap();
    client
        .write_all(
            b"{\"schema_version\":1,\"command\":\"status\"}\n{\"schema_version\":9,\"command\":\"stop\"}\n",
        )
        .unwrap();
    let mut answers = String::new();
    client.read_to_string(&mut answers).unwrap();
    let answers: Vec<_> = answers.lines().collect();
    assert_eq!(answers.len(), 2);
    assert!(
        answers[0].starts_with("{\"schema_version\":1,\"result\":\"status\"")
            && answers[1].contains("\"error\"")
    );
    assert_eq!(serve.command(&["status", "--check"]).status, 0);
    drop(idle);
    serve.stop();
}

#[test]
fn status_tells_the_numbers_that_scripts_use() {
    let room = Room::new();
    let members = room.array("6", 4);
    let pidfile = room.name("pid");
    // Of one that was killed.
    fs::write(&pidfile, "1\n").unwrap();
    let mut serve =
        Serve::start(&room, &["--pidfile", &pidfile, "--export", "nbd=tcp:127.0.0.1:0"], &members);
    assert!(Serve::try_start(&room, &["--pidfile", &pidfile, "--name", "other"], &members).is_err());
    let report = serve.command(&["status", "data", "--json"]).ok().json();
    let array = &report["arrays"][0];
    assert_eq!(
        (&report["schema_version"], &array["level"], &array["health"]),
        (&1.into(), &"raid6".into(), &"good".into())
    );
    assert_eq!((&array["slots"], &array["chunk_bytes"]), (&"[UUUU]".into(), &65536.into()));
    assert_eq!(array["members"][3]["member"], members[3]);
    assert_eq!(fs::read_to_string(&pidfile).unwrap().trim(), array["pid"].to_string());
    assert!(serve.uri.starts_with("nbd://127.0.0.1:") && array["exports"][0] == serve.uri);
    for (member, status) in [("0", 1), ("1", 1)] {
        serve.command(&["fail", "data", member]).ok();
        assert_eq!(serve.command(&["status", "--check"]).status, status);
    }
    serve.command(&["stop", "data"]).ok();
    assert_eq!(serve.wait(), 0);
    assert!(!room.path("pid").exists());
}

#[test]
fn a_socket_in_use_is_not_taken_and_a_file_is_not_replaced() {
    let room = Room::new();
    let members = room.array("1", 2);
    fs::write(room.path("precious"), "data").unwrap();
    let export = format!("nbd=unix:{}", room.name("precious"));
    let refused = room.untouched(|| run_serve(&room, &export, &members));
    refused.failed(1, "WTL-0102", &["precious", "not a socket"]);
    let _live = std::os::unix::net::UnixListener::bind(room.path("live")).unwrap();
    let refused = run_serve(&room, &format!("nbd=unix:{}", room.name("live")), &members);
    refused.failed(1, "WTL-0102", &["already listens"]);
}

fn run_serve(room: &Room, export: &str, members: &[String]) -> crate::harness::Said {
    Serve::try_start(room, &["--export", export], members).err().expect("it is refused")
}

/// An array on members that hold something, so that parity cannot be known to be right.
fn unsynced(room: &Room, level: &str, count: usize) -> Vec<String> {
    let members = room.blank(count, 16 << 20);
    for member in &members {
        fs::write(member, vec![0x5A; 16 << 20]).unwrap();
    }
    run(["create", "data", "--level", level].map(str::to_owned).into_iter().chain(members.clone())).ok();
    members
}

/// The same, large and all holes but for a byte: it is not resynced before the test can freeze it.
fn unsynced_large(room: &Room, level: &str, count: usize) -> Vec<String> {
    let members: Vec<_> = (0..count).map(|ix| room.device(&format!("member-{ix}"), 1 << 30)).collect();
    for member in &members {
        let file = fs::File::options().write(true).open(member).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[0x5A], 600 << 20).unwrap();
    }
    run(["create", "data", "--level", level].map(str::to_owned).into_iter().chain(members.clone())).ok();
    members
}

/// All members are there and none may be lost: a tester's array said `[UUU] good`, and the next
/// lost drive took data with it.
#[test]
fn whole_members_without_trusted_parity_are_not_good() {
    for (level, count, word) in
        [("5", 3, "parity"), ("6", 4, "parity"), ("4", 3, "parity"), ("1", 2, "copies")]
    {
        let room = Room::new();
        let members = unsynced(&room, level, count);
        let scan = |json: &[&str]| {
            run([&["scan"], json].concat().into_iter().map(str::to_owned).chain(members.clone())).ok()
        };
        assert_eq!(scan(&["--json"]).json()["arrays"][0]["synced"], false);
        let (text, note) = (scan(&[]).text().to_owned(), format!("{word} "));
        assert!(text.contains("] not synced\n") && text.contains(&note) && !text.contains("good"), "{text}");
        let cat = run(["cat".to_owned()].into_iter().chain(members.clone())).ok();
        assert!(cat.stderr.contains("resyncs"), "{}", cat.stderr);

        // Read-only it stays so, and that is said.
        let serve = Serve::start(&room, &["--read-only"], &members);
        assert!(serve.said.contains("] not synced, ") && serve.said.contains(&note), "{}", serve.said);
        let status = serve.array();
        assert_eq!((&status["synced"], &status["state"]), (&false.into(), &"clean, not synced".into()));
        let text = serve.command(&["status"]).ok().text().to_owned();
        assert!(text.contains("] not synced\n") && text.contains("resyncs"), "{text}");
        assert_eq!(serve.command(&["status", "--check"]).status, 1, "level {level}");
        serve.stop();
        // Served for writing it is made good by itself, and a member may go then.
        let serve = Serve::start(&room, &[], &members);
        serve.wait_until_good();
        assert_eq!(serve.command(&["status", "--check"]).status, 0, "level {level}");
        serve.command(&["fail", "data", "0"]).ok();
        serve.stop();
    }
    let room = Room::new();
    let serve = Serve::start(&room, &[], &room.array("5", 3));
    let status = serve.command(&["status", "--json", "--check"]).ok().json()["arrays"][0].clone();
    assert_eq!((&status["synced"], &status["state"]), (&true.into(), &"clean".into()));
    serve.stop();
}

/// After "recorded clean" an operator pulls the drives; the kernel then resyncs for hours, or
/// refuses a degraded array.
#[test]
fn a_stop_says_what_was_recorded() {
    let stopped = |room: &Room, args: &[&str], members: &[String]| {
        let mut serve = Serve::start(room, args, members);
        let said = serve.command(&["stop", "data"]).ok().stderr;
        assert_eq!(serve.wait(), 0);
        said
    };
    let (clean, dirty, mirror, striped) = (Room::new(), Room::new(), Room::new(), Room::new());
    let members = clean.array("5", 3);
    assert_eq!(stopped(&clean, &[], &members), "wattle: data is stopped and recorded clean\n");
    let said = stopped(&clean, &["--read-only"], &members);
    assert!(said.contains("read-only") && !said.contains("clean"), "{said}");
    let frozen = ["--set", "sync_action=frozen"];
    let said = stopped(&dirty, &frozen, &unsynced_large(&dirty, "5", 3));
    assert!(said.contains("parity is still not known to be right") && !said.contains("clean"), "{said}");
    let said = stopped(&mirror, &frozen, &unsynced_large(&mirror, "1", 2));
    assert!(said.contains("copies are still not known to agree") && !said.contains("clean"), "{said}");
    assert_eq!(stopped(&striped, &[], &striped.array("0", 2)), "wattle: data is stopped and flushed\n");
    let made_up = ["--level", "5", "--name", "data"];
    let said = stopped(&Room::new(), &made_up, &["mem:8M", "mem:8M", "mem:8M"].map(str::to_owned));
    assert!(said.contains("no metadata"), "{said}");
}

#[test]
fn a_member_that_untrusted_parity_cannot_replace_is_not_failed_and_that_is_said() {
    let room = Room::new();
    let serve = Serve::start(&room, &["--set", "sync_action=frozen"], &unsynced_large(&room, "5", 3));
    let said =
        serve.command(&["fail", "data", "1"]).failed(3, "WTL-0106", &["parity is not known to be right"]);
    assert!(!said.stderr.contains("missing"), "nothing is missing: {}", said.stderr);
    serve.stop();
}

/// Runs the command as a user other than root, which looks for servers in `XDG_RUNTIME_DIR`. `None`
/// if root cannot become one.
fn as_nobody(xdg: &std::path::Path, args: &[&str]) -> Option<Said> {
    as_nobody_until(xdg, args, "60")
}

/// The same, ended after so many seconds.
fn as_nobody_until(xdg: &std::path::Path, args: &[&str], seconds: &str) -> Option<Said> {
    let mut command = std::process::Command::new("timeout");
    command.args([
        seconds,
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        env!("CARGO_BIN_EXE_wattle"),
    ]);
    command.args(args).env_remove("WATTLE_RUNTIME_DIR").env("XDG_RUNTIME_DIR", xdg);
    let said = said(command.output().ok()?);
    (!said.stderr.contains("setpriv: ")).then_some(said)
}

#[test]
fn a_runtime_directory_of_another_user() {
    let room = Room::new();
    fs::set_permissions(room.dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let others = room.path("wattle");
    fs::create_dir(&others).unwrap();
    fs::set_permissions(&others, fs::Permissions::from_mode(0o755)).unwrap();
    let export = format!("nbd=unix:{}", room.name("export.sock"));
    let serve = ["serve", "mem:8M", "mem:8M", "mem:8M", "--level", "5", "--run", "true"];
    let Some(exported) = as_nobody(room.dir.path(), &[&serve[..], &["--export", &export]].concat()) else {
        eprintln!("SKIPPED: cannot become another user");
        return;
    };
    // A private directory serves as long as the command runs.
    assert!(!exported.ok().stderr.contains("will not find this server"));
    as_nobody(room.dir.path(), &serve).unwrap().ok();
    assert_eq!(fs::read_dir(&others).unwrap().count(), 0);
    // One that was asked for is refused.
    let asked = [&serve[..], &["--runtime-dir", others.to_str().unwrap()]].concat();
    as_nobody(room.dir.path(), &asked).unwrap().failed(1, "WTL-0102", &["--runtime-dir DIR"]);
    // Without a command that would end it, clients have their way in; commands do not, and that is
    // said.
    let alone = [&serve[..serve.len() - 2], &["--export", &export]].concat();
    let ended = as_nobody_until(room.dir.path(), &alone, "5").unwrap();
    assert!(ended.stderr.contains("status, fail and stop will not find this server"), "{}", ended.stderr);
    // What cannot be looked at may hold any number of servers.
    fs::set_permissions(&others, fs::Permissions::from_mode(0o700)).unwrap();
    let status = |args: &[&str]| as_nobody(room.dir.path(), &[&["status"], args].concat()).unwrap();
    let said = status(&[]).failed(1, "WTL-0021", &["wattle"]);
    assert!(!said.stderr.contains("nothing is being served"), "{}", said.stderr);
    assert_eq!(status(&["--check"]).status, 4);
    assert_eq!(status(&["data", "--check"]).status, 4);
}

/// What an operator asks while it is slow: what holds it back, and by how much.
#[test]
fn top_and_why_slow_tell_what_an_array_does_and_what_limits_it() {
    if !require("fio") {
        return;
    }
    let room = Room::new();
    let serve = Serve::start(&room, &[], &room.array("5", 3));
    let idle = serve.command(&["why", "data", "--slow", "--interval", "0.1", "--json"]).ok().json();
    assert_eq!(idle["arrays"][0]["limited_by"][0]["kind"], "idle");
    let (uri, output) = (format!("--uri={}", serve.uri), format!("--output={}", room.name("fio.txt")));
    let load =
        "--name=load --ioengine=nbd --rw=randwrite --bs=4k --iodepth=1 --size=8m --time_based --runtime=4";
    let mut fio = std::process::Command::new("fio")
        .args(load.split(' '))
        .args([&uri, &output])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    let top = serve.command(&["top", "data", "--interval", "1", "--count", "1", "--json"]).ok().json();
    let why = serve.command(&["why", "data", "--slow", "--interval", "0.5"]).ok();
    let text = serve.command(&["top", "--interval", "0.2", "--count", "1"]).ok();
    assert!(fio.wait().unwrap().success());
    let array = &top["arrays"][0];
    let writes = array["writes"]["per_second"].as_f64().unwrap();
    assert!(writes > 10.0, "{top}");
    // One at a time: what was under way is the part of the time in which one was.
    let under_way = array["writes"]["under_way"].as_f64().unwrap();
    assert!(under_way > 0.0 && under_way <= 1.1, "{top}");
    let plans = &array["plans"];
    assert!(plans["read_modify"].as_f64().unwrap() + plans["reconstruct"].as_f64().unwrap() > 10.0, "{top}");
    let members = array["members"].as_array().unwrap();
    assert!(
        members.len() == 3 && members.iter().all(|m| m["writes"]["per_second"].as_f64() > Some(1.0)),
        "{top}"
    );
    assert!(why.text().contains("limited by "), "{}", why.text());
    assert!(text.text().contains("writes/s") && text.text().contains("clients"), "{}", text.text());
    let status = serve.array();
    let latency = &status["requests"]["writes"];
    assert!(
        latency["count"].as_u64() > Some(10) && latency["p50_us"].as_u64() <= latency["p99_us"].as_u64(),
        "{status}"
    );
    assert_eq!(status["members"][0]["traffic"]["in_flight"], 0);
    // 8 MiB are written again and again: by now their blocks and parity are in memory.
    let cache = &status["cache"];
    assert!(cache["misses"].as_u64() > Some(0) && cache["ceiling_bytes"].as_u64() > Some(0), "{status}");
    let missing = serve.command(&["top", "nobody", "--count", "1"]);
    assert_eq!(missing.status, 1, "{}", missing.stderr);
    serve.stop();
}

/// One log becomes a ring of logs when the array is first served: it is still a log.
#[test]
fn what_a_crash_would_cost_is_told_as_it_is() {
    for (how, words) in
        [("ppl", "no write hole"), ("bitmap", "regions of"), ("resync", "everything would be resynced")]
    {
        let room = Room::new();
        let members = room.blank(3, 16 << 20);
        let create = ["create", "data", "--level", "5", "--consistency", how].map(str::to_owned);
        run(create.into_iter().chain(members.clone())).ok();
        for _time in 0..2 {
            let serve = Serve::start(&room, &[], &members);
            assert_eq!(serve.array()["consistency"], how);
            let status = serve.command(&["status"]).ok().text().to_owned();
            assert!(status.contains(words), "{how}: {status}");
            serve.stop();
        }
    }
}
