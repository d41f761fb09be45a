//! Which peers are believed and obeyed, what clients that take no answers can hold back, and what
//! has members by ways that locks on files do not show.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::fuse::Loop;
use crate::harness::{Room, Said, Serve, require, run, said, tool, wattle};

/// A user that is not root, nor this one.
const OTHER: u32 = 65534;

const MADE_UP: [&str; 5] = ["mem:8M", "mem:8M", "mem:8M", "--level", "5"];

/// Whether this process may give files away and become another user.
fn is_root(room: &Room) -> bool {
    let file = room.path("given");
    fs::write(&file, "").unwrap();
    let given = chown(&file, Some(OTHER), None).is_ok() && require("setpriv");
    fs::remove_file(file).unwrap();
    if !given {
        eprintln!("SKIPPED: only root can become another user");
    }
    given
}

fn with_xdg(xdg: &Path, args: &[&str]) -> Said {
    said(wattle().args(args).env("XDG_RUNTIME_DIR", xdg).output().unwrap())
}

/// A server of the other user, killed when dropped.
struct Others(Child);

impl Others {
    fn start(xdg: &Path) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_wattle")]);
        command.arg("serve").args(MADE_UP).args(["--name", "planted"]);
        command.env("XDG_RUNTIME_DIR", xdg).env_remove("WATTLE_RUNTIME_DIR").stderr(Stdio::null());
        let others = Self(command.spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(30);
        while UnixStream::connect(xdg.join("wattle/planted.sock")).is_err() {
            assert!(Instant::now() < deadline, "the other user's server does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        others
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn root_does_not_believe_what_lies_in_another_users_runtime_directory() {
    let room = Room::new();
    fs::set_permissions(room.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    if !is_root(&room) {
        return;
    }
    let xdg = room.path("xdg");
    fs::create_dir(&xdg).unwrap();
    fs::set_permissions(&xdg, fs::Permissions::from_mode(0o700)).unwrap();
    chown(&xdg, Some(OTHER), Some(OTHER)).unwrap();

    // Nothing is made there, and nothing served without it but to a command of its own, whose
    // sockets are in a directory of root's.
    let words = ["belongs to user 65534", "XDG_RUNTIME_DIR"];
    let serve = [&["serve"][..], &MADE_UP].concat();
    with_xdg(&xdg, &serve).failed(1, "WTL-0102", &words);
    let owner = "stat -c %u:%a \"$WATTLE_RUNTIME_DIR\"";
    let served = with_xdg(&xdg, &[&serve[..], &["--run", owner]].concat()).ok();
    assert_eq!(served.text(), "0:700\n");
    assert_eq!(fs::read_dir(&xdg).unwrap().count(), 0);

    // What the other user serves is not asked.
    let _others = Others::start(&xdg);
    for command in [&["status"][..], &["stop", "array"], &["why", "array"]] {
        with_xdg(&xdg, command).failed(1, "WTL-0021", &words);
    }

    // Nor where its socket came into a directory of root's.
    let own = room.path("own");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
    fs::rename(xdg.join("wattle/planted.sock"), own.join("planted.sock")).unwrap();
    let status = run(["status", "--runtime-dir", &room.name("own")]);
    status.failed(1, "WTL-0021", &["planted.sock runs as user 65534"]);
}

/// The socket is for its owner only; where that was undone, the server itself refuses.
#[test]
fn a_server_of_root_obeys_no_other_user() {
    let room = Room::new();
    if !is_root(&room) {
        return;
    }
    let serve = Serve::start(&room, &[], &room.array("1", 2));
    let socket = serve.runtime_dir.join("data.sock");
    for (path, mode) in [(room.dir.path(), 0o755), (&serve.runtime_dir, 0o755), (&socket, 0o666)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let as_other = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_wattle")]);
        said(command.args(args).arg("--runtime-dir").arg(&serve.runtime_dir).output().unwrap())
    };
    for args in [&["status"][..], &["stop", "data"], &["fail", "data", "0"]] {
        as_other(args).failed(1, "WTL-0021", &["user 65534 asks"]);
    }
    assert_eq!(serve.array()["health"], "good");
    serve.stop();
}

/// A client that sends `bytes` again and again until they are no longer taken, and reads nothing.
fn stalled(socket: &Path, bytes: &[u8]) -> UnixStream {
    let mut client = UnixStream::connect(socket).unwrap();
    client.set_nonblocking(true).unwrap();
    while !bytes.is_empty() && client.write(bytes).is_ok() {}
    client
}

#[test]
fn clients_that_take_no_answers_hold_back_neither_status_nor_stop() {
    let room = Room::new();
    let mut serve = Serve::start(&room, &[], &room.array("5", 3));
    let socket = serve.runtime_dir.join("data.sock");
    let mut clients = Vec::new();
    for request in ["", "{\"schema_version\":1,\"command\":\"status\"}\n", "{\"schema_ver"] {
        clients.extend((0..100).map(|_| stalled(&socket, request.repeat(100).as_bytes())));
    }
    let began = Instant::now();
    serve.command(&["status", "data"]).ok();
    serve.command(&["stop", "data"]).ok();
    assert_eq!(serve.wait(), 0, "{}", serve.rest());
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

/// An NBD client that asks for more than a socket holds and reads nothing.
fn stalled_nbd(socket: &Path) -> UnixStream {
    const REQUEST_MAGIC: u32 = 0x2560_9513;
    const READ_BYTES: u32 = 64 << 10;
    let mut client = UnixStream::connect(socket).unwrap();
    client.read_exact(&mut [0; 18]).unwrap();
    // Fixed newstyle without padding, and the default export (option 1).
    client.write_all(&[0, 0, 0, 3]).unwrap();
    client.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
    client.read_exact(&mut [0; 10]).unwrap();
    for cookie in 0..8_u64 {
        let mut read = REQUEST_MAGIC.to_be_bytes().to_vec();
        read.extend([0; 4]);
        read.extend(cookie.to_be_bytes());
        read.extend((cookie * u64::from(READ_BYTES)).to_be_bytes());
        read.extend(READ_BYTES.to_be_bytes());
        client.write_all(&read).unwrap();
    }
    client
}

#[test]
fn hundreds_of_nbd_clients_that_read_nothing_hold_back_neither_status_nor_stop() {
    let room = Room::new();
    let (first, second) = (room.name("first"), room.name("second"));
    let exports = [format!("nbd=unix:{first}"), format!("nbd=unix:{second}")];
    let args = ["--export", &exports[0], "--export", &exports[1], "--cores", "1"];
    let mut serve = Serve::start(&room, &args, &room.array("5", 3));
    let stalled: Vec<_> = [&first, &second]
        .into_iter()
        .flat_map(|socket| (0..200).map(|_| stalled_nbd(Path::new(socket))))
        .collect();
    let began = Instant::now();
    serve.command(&["status", "data"]).ok();
    serve.command(&["stop", "data"]).ok();
    assert_eq!(serve.wait(), 0, "{}", serve.rest());
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    drop(stalled);
}

#[test]
fn a_command_of_run_that_ignores_signals_does_not_keep_the_server_from_its_end() {
    let room = Room::new();
    let members = room.array("5", 3);
    let started = room.path("started");
    let command = format!("trap '' TERM; sleep 100 & touch '{}'; wait; wait", started.display());
    let wait_for_it = || {
        while !started.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        fs::remove_file(&started).unwrap();
    };
    // A second signal kills it.
    let mut serve = Serve::start(&room, &["--run", &command], &members);
    wait_for_it();
    serve.signal("TERM");
    std::thread::sleep(Duration::from_millis(1500));
    serve.signal("TERM");
    assert_eq!(serve.wait(), 128 + 9);
    assert!(serve.rest().contains("a second signal came"), "it is said");
    // The time limit does too, here after `wattle stop`. What the command has started goes with it:
    // the pipe that it has from the server ends.
    let mut serve = Serve::start(&room, &["--run", &command], &members);
    wait_for_it();
    let began = Instant::now();
    serve.command(&["stop", "data"]).ok();
    assert_eq!(serve.wait(), 128 + 9);
    assert!(serve.rest().contains("does not end"), "it is said");
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    // In order, both times.
    let scan = ["scan", "--json"].map(str::to_owned).into_iter().chain(members);
    assert_eq!(run(scan).ok().json()["arrays"][0]["state"], "clean");
}

/// `timeout` sends one signal to the process and another one to its group.
#[test]
fn signals_one_after_the_other_are_one_request_to_end() {
    let room = Room::new();
    let members = room.array("5", 3);
    let started = room.path("started");
    let command =
        format!("trap 'sleep 0.5; exit 7' TERM; touch '{}'; while :; do sleep 0.05; done", started.display());
    let mut serve = Serve::start(&room, &["--run", &command], &members);
    while !started.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    serve.signal("TERM");
    std::thread::sleep(Duration::from_millis(100));
    serve.signal("TERM");
    assert_eq!(serve.wait(), 7, "the command has the time that it needs");
    let scan = ["scan", "--json"].map(str::to_owned).into_iter().chain(members);
    assert_eq!(run(scan).ok().json()["arrays"][0]["state"], "clean");
}

#[test]
fn a_command_of_run_is_no_io_flusher() {
    /// `PF_MEMALLOC_NOIO`, which `PR_SET_IO_FLUSHER` sets.
    const NO_IO: u64 = 0x0008_0000;
    let room = Room::new();
    let dir = room.name("run");
    let args = [&["serve"][..], &MADE_UP, &["--runtime-dir", &dir]].concat();
    let tell = ["--run", "cat /proc/$PPID/stat /proc/$$/stat"];
    let told = run([&args[..], &tell].concat()).ok();
    let flags =
        |line: &str| -> u64 { line.rsplit_once(") ").unwrap().1.split(' ').nth(6).unwrap().parse().unwrap() };
    let flags: Vec<_> = told.text().lines().map(flags).collect();
    if flags[0] & NO_IO == 0 {
        eprintln!("SKIPPED: the server may not become an I/O flusher here");
    }
    assert_eq!(flags[1] & NO_IO, 0);
}

/// A mount, until it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(device: &str, dir: PathBuf) -> Self {
        fs::create_dir(&dir).unwrap();
        tool("mount", [device, dir.to_str().unwrap()]);
        Self(dir)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Whether this process may mount, and has what makes file systems.
fn is_mounting() -> bool {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let has_loops = is_root && Path::new("/dev/loop-control").exists();
    if !has_loops {
        eprintln!("SKIPPED: no loop devices, or not root");
    }
    has_loops && ["losetup", "mount", "mkfs.ext4"].into_iter().all(require)
}

#[test]
fn what_the_kernel_has_mounted_by_a_loop_device_is_not_written_by_its_file() {
    let room = Room::new();
    if !is_mounting() {
        return;
    }
    let members = room.array("1", 2);
    let linked = room.name("linked");
    fs::hard_link(&members[0], &linked).unwrap();
    // Where neither has its superblock.
    let Some(device) = Loop::over(Path::new(&members[0]), &["--offset", "8M"]) else { return };
    tool("mkfs.ext4", ["-q", &device.0]);
    let mounted = Mounted::new(&device.0, room.path("mnt"));
    let words = [device.0.as_str(), "is over it and mounted on", &room.name("mnt")];
    for name in [&members[0], &linked] {
        let create = ["create", "over", name, &members[1], "--level", "1", "--no-undo", "--force=signature"];
        run(create).failed(3, "WTL-0026", &words);
        let served = Serve::try_start(&room, &[], &[name, &members[1]]).err();
        served.expect("what is mounted is not served").failed(3, "WTL-0026", &words);
    }
    // Looking is always allowed.
    run(["scan", &members[0], &members[1]]).ok();
    drop(mounted);

    // An idle one is not to be had while its file is served.
    let serve = Serve::start(&room, &[], &members);
    let mount = Command::new("mount").arg(&device.0).arg(room.path("mnt")).output().unwrap();
    assert!(!mount.status.success(), "it is mounted beside the server");
    serve.stop();
    tool("mount", [device.0.as_str(), &room.name("mnt")]);
    tool("umount", [room.name("mnt")]);
}

#[test]
fn a_loop_device_and_its_file_have_one_server() {
    let room = Room::new();
    if !is_mounting() {
        return;
    }
    let members = room.array("1", 2);
    let over = |name: &String| Loop::over(Path::new(name), &[]);
    let serve = Serve::start(&room, &["--name", "first"], &members);
    let Some(loops) = members.iter().map(over).collect::<Option<Vec<_>>>() else { return };
    let devices: Vec<_> = loops.iter().map(|device| device.0.clone()).collect();
    let second = Serve::try_start(&room, &["--name", "second"], &devices).err();
    second.expect("a second server is refused").failed(3, "WTL-0026", &["member-0", "(wattle) has open"]);
    let blank = room.device("blank", 16 << 20);
    run(["create", "y", &blank, &devices[0], "--level", "linear", "--force=signature", "--no-undo"]).failed(
        3,
        "WTL-0026",
        &["member-0"],
    );
    serve.stop();

    let serve = Serve::start(&room, &["--name", "second"], &devices);
    let first = Serve::try_start(&room, &["--name", "first"], &members).err();
    first.expect("a second server is refused").failed(3, "WTL-0026", &["member-0"]);
    serve.stop();
    Serve::start(&room, &["--name", "first"], &members).stop();
}
