//! Clients that are killed, and servers that stop, while a range of zeroes is written that takes
//! drives long. The drives are made up, at the speed of real ones.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::fuse::can_mount;
use crate::harness::{Room, Serve, require, tool};

const DRIVES: [&str; 2] = ["model:sata7200,size=16G", "model:sata7200,size=16G"];
const MIRROR: [&str; 2] = ["--level", "1"];

fn begin(program: &str, args: &[&str]) -> Child {
    let child = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    std::thread::sleep(Duration::from_millis(500));
    child.unwrap()
}

/// It would go on behind what the next client writes, for seconds.
#[test]
fn zeroes_of_a_client_that_was_killed_end_before_the_next_one_writes() {
    if !require("qemu-io") {
        return;
    }
    let room = Room::new();
    let server = Serve::start(&room, &MIRROR, &DRIVES);
    let mut client = begin("qemu-io", &["-f", "raw", &server.uri, "-c", "write -z 0 1G"]);
    assert!(client.try_wait().unwrap().is_none(), "it takes longer");
    client.kill().unwrap();
    client.wait().unwrap();
    let begun = Instant::now();
    tool("qemu-io", ["-f", "raw", &server.uri, "-c", "write -P 66 768M 64k", "-c", "flush"]);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    std::thread::sleep(Duration::from_secs(8));
    tool("qemu-io", ["-r", "-f", "raw", &server.uri, "-c", "read -P 66 768M 64k"]);
    server.stop();
}

/// Otherwise a service manager would kill the server, and its arrays be dirty.
#[test]
fn a_server_stops_in_the_middle_of_zeroes() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let dir = room.path("files");
    fs::create_dir(&dir).unwrap();
    let export = format!("fuse={}", dir.display());
    let server = Serve::start(&room, &[&MIRROR[..], &["--export", &export]].concat(), &DRIVES);
    let file = fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
    let mut zeroes = begin("fallocate", &["-z", "-l", "12G", file.to_str().unwrap()]);
    assert!(zeroes.try_wait().unwrap().is_none(), "it takes longer");
    let begun = Instant::now();
    server.stop();
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert!(!zeroes.wait().unwrap().success(), "they are not all there");
}
