//! A member whose drive hangs: a file on a FUSE mount whose server is stopped. What the kernel has
//! no answer to waits, in the page cache too.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::fuse::can_mount;
use crate::group_changes::Client;
use crate::growing::order;
use crate::harness::{Room, Serve, require, run, tool};

/// Ends its process, also when the test fails: what is stopped would keep the mount.
struct Goes<'a>(&'a Serve);

impl Drop for Goes<'_> {
    fn drop(&mut self) {
        self.0.signal("CONT");
    }
}

/// A client that only reads flushes nothing when it ends.
fn qemu_io(uri: &str, mode: &[&str], commands: &[&str]) -> Child {
    let commands = commands.iter().flat_map(|command| ["-c", command]);
    let mut client = Command::new("qemu-io");
    client.args(["-f", "raw"]).args(mode).arg(uri).args(commands).stdout(Stdio::null());
    client.spawn().unwrap()
}

fn ends_within(child: &mut Child, time: Duration) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// A mirror of a file on the mount of a server that can be stopped, and of a plain one.
struct Mirror {
    below: Room,
    lower: Serve,
    room: Room,
    members: [String; 2],
}

impl Mirror {
    fn new() -> Self {
        let below = Room::new();
        let mount = below.path("files");
        fs::create_dir(&mount).unwrap();
        let drives = below.array("1", 2);
        let lower = Serve::start(&below, &["--export", &format!("fuse={}", mount.display())], &drives);
        lower.wait_until_good();
        let room = Room::new();
        let members = [mount.join("data").display().to_string(), room.device("plain", 16 << 20)];
        let args = ["create", "mirror", "--level", "1", "--assume-clean", "--consistency", "resync"];
        run(args.into_iter().map(str::to_owned).chain(members.clone())).ok();
        Self { below, lower, room, members }
    }
}

#[test]
fn a_drive_that_hangs_is_told_of_and_failed_by_order_and_what_waits_for_it_goes_on() {
    if !can_mount() || !require("qemu-io") || !require("nbdinfo") {
        return;
    }
    let Mirror { below: _below, lower, room, members } = Mirror::new();
    for backend in ["uring", "syscall"] {
        let upper = Serve::start(&room, &["--backend", backend], &members);
        upper.wait_until_good();
        tool("qemu-io", ["-f", "raw", &upper.uri, "-c", "write -P 7 0 1M", "-c", "flush"]);
        lower.signal("STOP");
        let goes = Goes(&lower);

        // Reads are answered from the other copy, however many wait, and the core has time for all.
        let reads: Vec<String> = (0..8).map(|at| format!("read -P 7 {}k 64k", at * 64)).collect();
        let reads: Vec<&str> = reads.iter().map(String::as_str).collect();
        let mut readers: Vec<_> = (0..8).map(|_| qemu_io(&upper.uri, &["-r"], &reads)).collect();
        // So are questions for what is zero: more than there are threads that look for it.
        let map = ["--map", &upper.uri];
        let maps = (0..12).map(|_| Command::new("nbdinfo").args(map).stdout(Stdio::null()).spawn().unwrap());
        let mut maps: Vec<_> = maps.collect();
        for map in &mut maps {
            assert!(ends_within(map, Duration::from_secs(30)), "{backend}: a map waits for the drive");
        }
        let mut writer = qemu_io(&upper.uri, &[], &["write -P 9 2M 64k", "flush"]);
        for reader in &mut readers {
            assert!(ends_within(reader, Duration::from_secs(30)), "{backend}: a read waits for the drive");
        }
        assert!(!ends_within(&mut writer, Duration::from_secs(1)), "{backend}: it does not hang");
        upper.wait_until("silent", |array| array["members"][0]["silent_seconds"].as_u64() >= Some(15));
        let shown = upper.command(&["status"]);
        assert!(shown.text().contains("no answer for"), "{}", shown.text());

        let begun = Instant::now();
        upper.command(&["fail", "mirror", &members[0]]).ok();
        assert!(begun.elapsed() < Duration::from_secs(10), "{backend}: {:?}", begun.elapsed());
        assert!(ends_within(&mut writer, Duration::from_secs(10)), "{backend}: a write waits for the drive");
        assert_eq!(upper.array()["members"][0]["state"], "faulty");
        tool("qemu-io", ["-f", "raw", &upper.uri, "-c", "read -P 9 2M 64k", "-c", "write -P 8 3M 64k"]);

        // It stays locked until it has answered, and can be taken again then.
        upper.command(&["remove", "mirror", &members[0]]).ok();
        drop(goes);
        let until = Instant::now() + Duration::from_secs(30);
        while upper.command(&["add", "mirror", &members[0]]).status != 0 {
            assert!(Instant::now() < until, "{backend}: it is not taken back");
            std::thread::sleep(Duration::from_millis(100));
        }
        upper.wait_until_good();
        upper.stop();
        let checked = Serve::start(&room, &[], &members);
        checked.command(&["check", "mirror", "--wait"]).ok();
        checked.stop();
    }
    lower.stop();
}

/// With nothing under way there, what is closed and what is looked for would wait for it.
#[test]
fn a_drive_that_hangs_and_was_idle_is_removed_and_nothing_else_waits() {
    if !can_mount() || !require("qemu-io") {
        return;
    }
    let Mirror { below: _below, lower, room, members } = Mirror::new();
    let newcomer = room.device("new", 16 << 20);
    let upper = Serve::start(&room, &[], &members);
    upper.wait_until_good();
    lower.signal("STOP");
    let goes = Goes(&lower);
    upper.command(&["fail", "mirror", &members[0]]).ok();
    upper.command(&["add", "mirror", &newcomer]).ok();
    upper.wait_until_good();
    let mut writer = qemu_io(&upper.uri, &[], &["write -P 9 2M 64k", "flush"]);
    assert!(ends_within(&mut writer, Duration::from_secs(10)), "a write waits for what is closed");
    drop(goes);
    upper.stop();
    lower.stop();
}

/// A server of the group `tank` on one drive, on one core.
fn group(room: &Room) -> Serve {
    let drive = room.device("drive", 64 << 20);
    let backups = room.name("backups");
    for words in ["vg create tank -s 1M", "lv create tank/home -l 4"] {
        let words = words.split(' ').chain(["--no-undo", "--backup-dir", &backups, &drive]);
        run(words).ok();
    }
    let export = format!("nbd=unix:{}", room.path("nbd").display());
    Serve::start(room, &["--cores", "1", "--export", &export], &[drive])
}

/// It answers, and clients come and go.
fn goes_on(room: &Room, serve: &Serve) {
    let begun = Instant::now();
    serve.command(&["status"]).ok();
    Client::connect(&room.path("nbd"), "tank/home").unwrap().leave();
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[test]
fn a_group_is_served_while_a_drive_across_a_network_that_is_to_join_it_is_silent() {
    let room = Room::new();
    let mut serve = group(&room);
    let far = TcpListener::bind("127.0.0.1:0").unwrap();
    let extend = format!("vg extend tank --on nbd://{}/silent", far.local_addr().unwrap());
    std::thread::scope(|scope| {
        let ordered = scope.spawn(|| order(&room, &serve, &extend));
        let _held = far.accept().unwrap();
        goes_on(&room, &serve);
        assert_ne!(ordered.join().unwrap().status, 0);
    });
    goes_on(&room, &serve);
    // Asked to end meanwhile, the server ends when the order does.
    let mut ordered = Command::new(env!("CARGO_BIN_EXE_wattle"));
    ordered.args(extend.split(' ')).args(["--backup-dir", &room.name("backups"), "--runtime-dir"]);
    let mut ordered = ordered.arg(&serve.runtime_dir).stderr(Stdio::null()).spawn().unwrap();
    let _held = far.accept().unwrap();
    serve.signal("TERM");
    assert_eq!(serve.wait(), 0);
    assert!(!ends_within(&mut ordered, Duration::from_secs(10)));
}

/// What waits in the system cannot be called off: it is left to itself.
#[test]
fn a_group_is_served_while_a_drive_that_is_to_join_it_hangs() {
    if !can_mount() {
        return;
    }
    let below = Room::new();
    let mount = below.path("files");
    fs::create_dir(&mount).unwrap();
    let lower =
        Serve::start(&below, &["--export", &format!("fuse={}", mount.display())], &below.array("1", 2));
    let room = Room::new();
    let serve = group(&room);
    lower.signal("STOP");
    let goes = Goes(&lower);
    let extend = format!("vg extend tank --on {}", mount.join("data").display());
    std::thread::scope(|scope| {
        let ordered = scope.spawn(|| order(&room, &serve, &extend));
        std::thread::sleep(Duration::from_secs(1));
        goes_on(&room, &serve);
        ordered.join().unwrap().failed(1, "WTL-0028", &["did not answer within 20 s"]);
    });
    goes_on(&room, &serve);
    drop(goes);
    serve.stop();
    lower.stop();
}
