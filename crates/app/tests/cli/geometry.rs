//! File systems that are told of the stripes they lie on.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::fuse::{Loop, can_mount};
use crate::harness::{Room, Serve, require, run, tool};

/// Three data blocks of 64 KiB.
const STRIPE_BYTES: u64 = 192 << 10;

fn grew(before: &Value, after: &Value, counter: &str) -> u64 {
    let of = |array: &Value| array["counters"][counter].as_u64().unwrap();
    of(after) - of(before)
}

/// What `lv create`, `serve` and `status` say is what makes an XFS whose large writes are whole
/// stripes, with nothing read before.
#[test]
fn an_xfs_made_as_told_writes_whole_stripes() {
    if !can_mount() || !["losetup", "mkfs.xfs", "xfs_io", "qemu-io"].into_iter().all(require) {
        return;
    }
    let room = Room::new();
    let members = room.blank(4, 256 << 20);
    let on = |words: &str| {
        let words = words.split(' ').map(str::to_owned);
        run(words.chain(["--backup-dir".to_owned(), room.name("backups")]).chain(members.clone())).ok()
    };
    let create = ["create", "data", "--level", "5", "--chunk", "64K", "--assume-clean"].map(str::to_owned);
    run(create.into_iter().chain(members.clone())).ok();
    on("vg create tank -s 1M");
    let told = "mkfs.xfs -d su=64k,sw=3";
    // (At the first stripe of the data; one behind it that begins within a stripe has nothing to
    // tell.)
    assert!(on("lv create tank/fs -l 700").text().contains(told));
    assert!(!on("lv create tank/aside -l 1").text().contains("mkfs"));

    let dir = room.path("files");
    fs::create_dir(&dir).unwrap();
    let export = format!("fuse={}", dir.display());
    let options = ["-V", "tank/fs", "--export", &export];
    let serve = Serve::start(&room, &options, &members);
    assert!(serve.said.contains(told), "{}", serve.said);
    let status = serve.command(&["status"]).ok();
    assert!(status.text().contains("mkfs.ext4 -E stride=16,stripe_width=48"), "{}", status.text());
    let volumes = serve.command(&["status", "--json"]).ok().json()["volumes"].clone();
    assert_eq!((&volumes[0]["io_min_bytes"], &volumes[0]["io_opt_bytes"]), (&65536.into(), &196_608.into()));

    let file = dir.join("tank/fs");
    let mut words = told.split(' ');
    let mkfs = words.next().unwrap();
    tool(mkfs, words.chain(["-q", file.to_str().unwrap()]));
    let Some(device) = Loop::over(&file, &["--direct-io=on"]) else { return };
    let mounted = Mounted::new(&device.0, &room.path("fs"));
    let data = mounted.0.join("data");
    let data = data.to_str().unwrap();
    tool("xfs_io", ["-f", "-c", "pwrite -q 0 80m", "-c", "fsync", data]);
    let extents = tool("xfs_io", ["-r", "-c", "bmap", data]);
    drop(mounted);
    drop(device);
    serve.kill();
    tool("umount", ["--lazy", dir.to_str().unwrap()]);

    // A large file begins at a stripe, so that what is written to it in whole stripes is whole
    // stripes of the array.
    let first = extents.lines().find(|line| line.trim_start().starts_with("0: [0..")).unwrap();
    let sectors: Vec<u64> =
        first.rsplit(' ').next().unwrap().split("..").map(|at| at.parse().unwrap()).collect();
    assert!((sectors[0] * 512).is_multiple_of(STRIPE_BYTES), "{extents}");
    let stripes = ((sectors[1] - sectors[0]) * 512 / STRIPE_BYTES).min(256) / 4 * 4;
    assert!(stripes >= 64, "{extents}");
    let serve = Serve::start(&room, &["-V", "tank/fs"], &members);
    let before = serve.array();
    let mut qemu = vec!["-f".to_owned(), "raw".to_owned(), "-t".to_owned(), "none".to_owned()];
    for stripe in (0..stripes).step_by(4) {
        let at = sectors[0] * 512 + stripe * STRIPE_BYTES;
        qemu.extend(["-c".to_owned(), format!("write -q -P 7 {at} {}", 4 * STRIPE_BYTES)]);
    }
    tool("qemu-io", qemu.into_iter().chain([serve.uri.clone()]));
    let after = serve.array();
    assert_eq!(grew(&before, &after, "rows_full"), stripes);
    for none in ["rows_reconstruct", "rows_read_modify", "pre_reads"] {
        assert_eq!(grew(&before, &after, none), 0, "{none}");
    }
    serve.stop();
}

/// The command that makes a file system is there for scripts too.
#[test]
fn scripts_are_told_of_the_stripes() {
    let room = Room::new();
    let dir = room.name("run");
    let said = |members: &[&str], level: &str| {
        let args = ["serve", "--level", level, "--chunk", "64K", "--runtime-dir", &dir];
        let script = ["--run", "echo \"$mkfs_xfs; $mkfs_ext4\""];
        run(args.iter().chain(&script).chain(members)).ok().text().to_owned()
    };
    let four = ["mem:8M"; 4];
    assert_eq!(said(&four, "5"), "mkfs.xfs -d su=64k,sw=3; mkfs.ext4 -E stride=16,stripe_width=48\n");
    assert_eq!(said(&four, "linear"), "mkfs.xfs; mkfs.ext4\n");
}

/// A file system that is unmounted when the test is done with it.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn new(device: &str, dir: &Path) -> Self {
        fs::create_dir_all(dir).unwrap();
        tool("mount", [device, dir.to_str().unwrap()]);
        Self(dir.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}
