//! Volumes that lie on drives as they are, without an array, and physical volumes without a group.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::harness::{Room, Serve, run};
use crate::lvm::lvm;

const MIB: u64 = 1 << 20;

/// A served group `tank` with the volume `home`, on one drive.
fn served(room: &Room) -> Serve {
    let drive = [room.device("drive", 64 * MIB)];
    lvm(room, "vg create tank -s 1M", &drive).ok();
    lvm(room, "lv create tank/home -l 8", &drive).ok();
    Serve::start(room, &[], &drive)
}

#[test]
fn what_shows_arrays_says_what_a_volume_without_one_is() {
    let room = Room::new();
    let serve = served(&room);
    for words in ["top", "top tank", "top tank/home"] {
        let words: Vec<_> = words.split(' ').chain(["--count", "1", "--interval", "0.2"]).collect();
        let top = serve.command(&words).ok();
        assert!(top.text().contains("tank/home  on no array"), "{}", top.text());
    }
    serve.command(&["set", "tank/home", "iops=1000"]).ok();
    let top = serve.command(&["top", "--count", "1", "--interval", "0.2"]).ok();
    assert!(top.text().contains("tank/home  0 requests/s"), "{}", top.text());
    for words in [&["why", "tank"][..], &["why", "tank/home"], &["why", "tank", "--slow"]] {
        serve.command(words).failed(1, "WTL-0100", &["lies on no array"]);
    }
    serve.stop();
    let nothing = run(["top", "--count", "1", "--runtime-dir", &room.name("run")]);
    nothing.failed(1, "WTL-0100", &["nothing is being served"]);
}

/// Stopping the only array of a machine does not make an alarm of its other volumes.
#[test]
fn a_volume_without_an_array_lacks_no_redundancy() {
    let room = Room::new();
    let serve = served(&room);
    for words in
        [&["status", "--check"][..], &["status", "tank", "--check"], &["status", "--check", "--json"]]
    {
        assert_eq!(serve.command(words).status, 0, "{words:?}");
    }
    serve.stop();
    assert_eq!(run(["status", "--check", "--runtime-dir", &room.name("run")]).status, 4);
}

#[test]
fn scan_shows_a_physical_volume_that_is_in_no_group() {
    let room = Room::new();
    let (drive, other) = (room.device("drive", 64 * MIB), room.device("other", 64 * MIB));
    lvm(&room, "pv create", std::slice::from_ref(&drive)).ok();
    let alone = run(["scan", &drive]).ok();
    assert!(alone.text().contains("drive  64 MiB, no md array, LVM2 physical volume"), "{}", alone.text());
    // In a partition, where the tree shows it.
    run(["partition", &other, "--part", "1:1M+32M"]).ok();
    lvm(&room, "pv create", &[format!("{other}:p1")]).ok();
    let both = run(["scan", &drive, &other]).ok();
    let found = both.text().matches("LVM2 physical volume in no group").count();
    assert_eq!(found, 2, "{}", both.text());
    // One of a group is not said to be in none.
    lvm(&room, "vg create tank -s 1M", std::slice::from_ref(&drive)).ok();
    let grouped = run(["scan", &drive]).ok();
    assert!(
        grouped.text().contains("volume group") && !grouped.text().contains("no group"),
        "{}",
        grouped.text()
    );
    assert!(!grouped.text().contains("no md array"), "{}", grouped.text());
}

/// What keeps a drive from being a physical volume is told, and not another reason.
#[test]
fn a_locked_drive_is_no_drive_with_a_partition_table() {
    let room = Room::new();
    let drive = room.device("drive", 64 * MIB);
    let file = File::options().write(true).open(&drive).unwrap();
    file.write_all_at(b"LUKS\xba\xbe\x00\x02", 0).unwrap();
    let said = room.untouched(|| lvm(&room, "pv create", &[drive]));
    assert!(said.status != 0 && said.stderr.contains("LUKS"), "{}", said.stderr);
    assert!(!said.stderr.contains("partition table"), "{}", said.stderr);
}
