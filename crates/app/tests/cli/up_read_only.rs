//! `wattle up` and drives that take no writes: they count as missing where the others are current.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::fuse::Loop;
use crate::harness::{Room, Serve, require, run, tool};
use crate::lvm::lvm;
use crate::nbd::Client;
use crate::up::{Up, config};

/// Loop devices over files; `None`, loudly, where there are none.
fn loops(files: &[String]) -> Option<Vec<Loop>> {
    if !require("losetup") || !require("blockdev") {
        return None;
    }
    files.iter().map(|file| Loop::over(Path::new(file), &[])).collect()
}

fn names(loops: &[Loop]) -> Vec<String> {
    loops.iter().map(|device| device.0.clone()).collect()
}

/// The line that names the members of a stack.
fn members(names: &[String]) -> String {
    let members = names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    format!("members = [{members}]\n[wait]\ntimeout = '1s'\n")
}

fn write(uri: &str, byte: u8) {
    let mut client = Client::connect(uri).unwrap();
    client.write(0, &[byte; 4096]).unwrap();
    client.flush().unwrap();
}

/// A block device that takes no writes: it would stay so for what is attached to it next.
struct SetReadOnly<'a>(&'a str);

impl<'a> SetReadOnly<'a> {
    fn new(device: &'a Loop) -> Self {
        tool("blockdev", ["--setro", &device.0]);
        Self(&device.0)
    }
}

impl Drop for SetReadOnly<'_> {
    fn drop(&mut self) {
        let _ = Command::new("blockdev").args(["--setrw", self.0]).status();
    }
}

/// Drives go read-only by themselves at their end, and no operator is there at a boot to leave one
/// out.
#[test]
fn a_drive_that_is_read_only_is_as_one_that_is_missing() {
    let room = Room::new();
    let files = room.blank(3, 16 << 20);
    let args = ["create", "data", "--level", "1", "--spares", "1"].map(str::to_owned);
    run(args.into_iter().chain(files.clone())).ok();
    let Some(loops) = loops(&files) else { return };
    let names = names(&loops);
    config(&room, "data.toml", &format!("arrays = ['data']\n{}", members(&names)));
    // A spare: nothing is missing.
    let _spare = SetReadOnly::new(&loops[2]);
    let mut up = Up::start(&room, &["data"], &[]);
    up.until("is read-only: it counts as missing");
    up.until("ready: ");
    assert!(!up.said.contains("waiting"), "{}", up.said);
    assert_eq!(up.array("data")["slots"], "[UU]");
    up.stop();
    // By hand, too.
    let serve = Serve::start(&room, &[], &names);
    assert_eq!(serve.array()["slots"], "[UU]");
    serve.stop();
    // A member: the stack starts without it, and takes it once it can be written.
    let member = SetReadOnly::new(&loops[1]);
    let mut up = Up::start(&room, &["data"], &[]);
    up.until(&format!("{} is read-only: it counts as missing", loops[1].0));
    up.until("starting without");
    up.until("ready: ");
    up.until("came and was not added");
    assert_eq!(up.array("data")["slots"], "[U_]");
    drop(member);
    up.wait_until_good("data");
    up.stop();
    // Named by hand it is not passed over.
    let _member = SetReadOnly::new(&loops[1]);
    run(["serve".to_owned()].into_iter().chain(names)).failed(1, "WTL-0025", &[&loops[1].0]);
}

/// Hazard: the drive that is read-only has what was written last, and the other one left the array
/// before and does not know it. Without the first it would be served as the array.
#[test]
fn a_read_only_drive_is_not_left_out_where_the_others_are_older() {
    let room = Room::new();
    let files = room.blank(2, 16 << 20);
    let Some(loops) = loops(&files) else { return };
    let names = names(&loops);
    run(["create", "data", "--level", "1"].map(str::to_owned).into_iter().chain(names.clone())).ok();
    let serve = Serve::start(&room, &[], &names);
    serve.wait_until_good();
    write(&serve.uri, 1);
    serve.command(&["fail", "data", &names[0]]).ok();
    write(&serve.uri, 2);
    serve.stop();
    config(&room, "data.toml", &format!("arrays = ['data']\n{}", members(&names)));
    let read_only = SetReadOnly::new(&loops[1]);
    let before = fs::read(&files[0]).unwrap();
    let mut up = Up::start(&room, &["data"], &[]);
    up.until(&format!("{} is read-only, and is not left out: other members of data are older", names[1]));
    up.until("WTL-0025");
    assert_eq!(up.end(), 1);
    assert!(fs::read(&files[0]).unwrap() == before, "the older member was written");
    drop(read_only);
    let mut up = Up::start(&room, &["data"], &[]);
    let ready = up.until("ready: ");
    let uri = ready.trim().split("ready: ").nth(1).unwrap().to_owned();
    assert_eq!(Client::connect(&uri).unwrap().read(0, 4096).unwrap(), [2; 4096]);
    assert_eq!(up.array("data")["slots"], "[_U]");
    up.stop();
}

/// Hazard: the same of a group, whose older text has a volume where it was before it was moved.
#[test]
fn a_read_only_physical_volume_with_the_newest_text_is_not_left_out() {
    let room = Room::new();
    let files = ["a", "b"].map(|name| room.device(name, 32 << 20));
    let Some(loops) = loops(&files) else { return };
    let names = names(&loops);
    lvm(&room, "vg create vg -s 1M", &names).ok();
    lvm(&room, &format!("lv create vg/a -l 4 --on {}", names[0]), &names).ok();
    let older = fs::read(&files[0]).unwrap();
    lvm(&room, &format!("lv move vg/a --from {} --on {}", names[0], names[1]), &names).ok();
    config(&room, "data.toml", &format!("volumes = ['vg/a']\n{}", members(&names)));
    fs::write(&names[0], &older).unwrap();
    let _read_only = SetReadOnly::new(&loops[1]);
    let mut up = Up::start(&room, &["data"], &[]);
    up.until(&format!("{} is read-only, and is not left out: others of vg have an older text", names[1]));
    up.until("WTL-");
    assert_ne!(up.end(), 0);
    assert!(!up.said.contains("ready: ") && fs::read(&files[0]).unwrap() == older, "{}", up.said);
}

/// Machines have dozens of block devices that are read-only, as every snap is one.
#[test]
fn read_only_drives_of_others_are_not_told_of() {
    let room = Room::new();
    let mut files = room.array("1", 2);
    files.push(room.device("other", 16 << 20));
    let Some(loops) = loops(&files) else { return };
    for (ix, device) in loops.iter().enumerate() {
        symlink(&device.0, room.path(&format!("link-{ix}"))).unwrap();
    }
    let all = [room.name("link-*")];
    config(&room, "data.toml", &format!("arrays = ['data']\n{}", members(&all)));
    let _read_only = SetReadOnly::new(&loops[2]);
    let mut up = Up::start(&room, &["data"], &[]);
    up.until("ready: ");
    assert!(!up.said.contains("read-only:"), "{}", up.said);
    up.stop();
}
