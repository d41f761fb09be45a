//! Notes of a server that nothing reads: a terminal that was stopped, a pipe whose reader hangs.

use std::io::{ErrorKind, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};

use crate::harness::{Room, Said, said, wattle};

#[test]
fn a_server_whose_notes_are_not_read_goes_on_and_ends_when_told() {
    let room = Room::new();
    let members = room.array("5", 3);
    let (_reader, mut writer) = std::io::pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while match writer.write(&[b' '; 512]) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            false
        }
    } {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    let mut command = wattle();
    command.arg("serve").args(&members).arg("--runtime-dir").arg(room.path("run"));
    command.env("WATTLE_STATE_DIR", room.path("state"));
    let mut server = command.stdout(Stdio::null()).stderr(writer).spawn().unwrap();
    // Its own copy of the pipe's end is with the command.
    drop(command);
    let ask = |args: &[&str]| -> Said {
        said(wattle().args(args).arg("--runtime-dir").arg(room.path("run")).output().unwrap())
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while ask(&["status", "data"]).status != 0 {
        assert!(Instant::now() < deadline, "it never served");
        std::thread::sleep(Duration::from_millis(50));
    }
    ask(&["fail", "data", "1"]).ok();
    assert!(ask(&["status", "data"]).ok().text().contains("[U_U]"));
    ask(&["stop", "data"]).ok();
    while server.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it never ended");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(server.wait().unwrap().success());
}
