//! Disks for virtual machines, to a driver that knows nothing of wattle (the crate virtio-driver,
//! in `crates/rt/examples/vhost_client.rs`).

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::{Room, Said, Serve, run, said};

/// The client, which `cargo test --workspace` builds.
fn client() -> PathBuf {
    let bin = Path::new(env!("CARGO_BIN_EXE_wattle")).with_file_name("examples").join("vhost_client");
    assert!(bin.exists(), "build it: cargo build -p wattle-rt --example vhost_client");
    bin
}

fn ask(socket: &Path, args: &[&str]) -> Said {
    said(Command::new(client()).arg(socket).args(args).output().unwrap())
}

/// A directory for sockets, and the option that exports there. Paths of sockets are short.
fn sockets(room: &Room) -> (PathBuf, String) {
    let dir = room.path("vm");
    fs::create_dir_all(&dir).unwrap();
    let export = format!("vhost-user={}", dir.display());
    (dir, export)
}

/// What every array of the tests has.
const SPAN: &str = "8388608";

#[test]
fn a_driver_reads_what_it_wrote_on_every_level() {
    for (level, count) in [("0", 3), ("1", 2), ("5", 4), ("6", 5), ("10", 4), ("linear", 2)] {
        let room = Room::new();
        let members = room.array(level, count);
        let (dir, export) = sockets(&room);
        let serve = Serve::start(&room, &["--export", &export, "--cores", "2"], &members);
        let socket = dir.join("data.sock");
        assert_eq!(serve.uri, socket.to_string_lossy());
        for layout in [&[][..], &["--packed"]] {
            let go = |words: &[&str]| ask(&socket, &[words, layout].concat()).ok();
            go(&["fill", "--span", SPAN]);
            go(&["verify", "--span", SPAN]);
            // Long requests, more queues than cores, and one request at a time.
            go(&["fill", "--span", SPAN, "--block", "1048576", "--depth", "4"]);
            go(&["verify", "--span", SPAN, "--block", "1048576", "--depth", "1"]);
            go(&["randread", "--span", SPAN, "--queues", "3", "--seconds", "1", "--count", "3000"]);
            go(&["fill", "--span", SPAN]);
            go(&["flush"]);
            go(&["zero", "--span", "65536"]);
            let zeros = ask(&socket, &["verify", "--span", "4096"]);
            assert!(zeros.status == 1 && zeros.stderr.contains("byte 0: not what was written"), "{zeros:?}");
            go(&["discard", "--span", "65536"]);
            go(&["fill", "--span", "65536"]);
        }
        if matches!(level, "1" | "5" | "6" | "10") {
            serve.command(&["fail", "data", "member-1"]).ok();
            ask(&socket, &["verify", "--span", SPAN]).ok();
        }
        serve.stop();
        assert!(!socket.exists(), "the socket goes with its server");
        if !matches!(level, "1" | "5" | "6" | "10") {
            let serve = Serve::start(&room, &["--export", &export], &members);
            ask(&socket, &["verify", "--span", SPAN]).ok();
            serve.stop();
        }
    }
}

/// Kernel md computes parity from a guest's memory and writes copies of it one after the other: a
/// guest that changes its buffers meanwhile leaves copies and parity that differ.
#[test]
fn a_guest_that_scribbles_over_its_buffers_leaves_no_mismatch() {
    for (level, count) in [("1", 2), ("5", 4), ("6", 5), ("10", 4)] {
        let room = Room::new();
        let members = room.array(level, count);
        let (dir, export) = sockets(&room);
        let serve = Serve::start(&room, &["--export", &export], &members);
        let write = ["randwrite", "--scribble", "--span", SPAN, "--count", "30000", "--seconds", "20"];
        ask(&dir.join("data.sock"), &write).ok();
        serve.wait_until_good();
        serve.command(&["check", "data", "--wait"]).ok();
        let array = serve.array();
        assert_eq!(array["scrubs"][0]["mismatch_sectors"], 0, "level {level}: {array}");
        serve.stop();
    }
}

#[test]
fn drivers_that_go_in_the_middle_disturb_no_other() {
    let room = Room::new();
    let members = room.array("5", 3);
    let (dir, export) = sockets(&room);
    let mut serve = Serve::start(&room, &["--export", &export], &members);
    let socket = dir.join("data.sock");
    ask(&socket, &["fill", "--span", SPAN]).ok();
    let mut other = Command::new(client());
    other.arg(&socket).args(["randread", "--span", SPAN, "--seconds", "4"]);
    let other = std::thread::spawn(move || said(other.output().unwrap()));
    for _ in 0..5 {
        ask(&socket, &["vanish"]).ok();
        ask(&socket, &["truncate", "--packed"]).ok();
    }
    // What is no message at all.
    for bytes in [&[0u8; 12][..], &[0xff; 300], &[1, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0, 0], b"GET /"] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(bytes).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // What was not read when it is closed makes it a reset.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{answer:?}");
    }
    other.join().unwrap().ok();
    ask(&socket, &["fill", "--span", SPAN]).ok();
    ask(&socket, &["verify", "--span", SPAN]).ok();
    serve.wait_until_good();
    serve.signal("TERM");
    let rest = serve.rest();
    assert!(rest.contains("data.sock: a hypervisor was cut off: a message with the flags 0x0"), "{rest}");
    assert_eq!(serve.wait(), 0);
}

#[test]
fn a_directory_that_is_none_is_refused() {
    let room = Room::new();
    let members = room.array("1", 2);
    let refused = |export: &str, words: &[&str]| {
        let said = Serve::try_start(&room, &["--export", export], &members).err().expect("it is refused");
        said.failed(1, "WTL-0102", words);
    };
    refused(&format!("vhost-user={}", room.name("nowhere")), &["no sockets can be made in", "mkdir DIR"]);
    refused(&format!("vhost-user={}", members[0]), &["it is not a directory"]);
    let (dir, export) = sockets(&room);
    fs::write(dir.join("data.sock"), "something else").unwrap();
    refused(&export, &["data.sock", "not a socket"]);
    assert_eq!(fs::read(dir.join("data.sock")).unwrap(), b"something else");
    let usage = run(["serve", &members[0], "--export", "vhost-user="]);
    assert!(usage.status == 2 && usage.stderr.contains("use vhost-user=DIR"), "{usage:?}");
}
