//! A member whose drive hangs: a file on a FUSE mount whose server is stopped. What the kernel has
//! no answer to waits, in the page cache too.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::fuse::can_mount;
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
