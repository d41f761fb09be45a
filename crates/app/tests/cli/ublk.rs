//! Block devices where the kernel has no driver for them; the guest's tests have the others.

#![allow(clippy::print_stderr, reason = "what is skipped is said loudly")]

use std::path::Path;

use crate::harness::{Room, run};

fn has_driver() -> bool {
    let has = Path::new("/dev/ublk-control").exists();
    if has {
        eprintln!("SKIPPED, NOT TESTED: this kernel has ublk, and the test is about one that has not");
    }
    has
}

#[test]
fn a_kernel_without_the_driver_is_told_with_what_to_do() {
    if has_driver() {
        return;
    }
    let room = Room::new();
    let members = room.array("1", 2);
    room.untouched(|| {
        let args = ["serve", "--export", "ublk", "--runtime-dir", &room.name("run")].map(str::to_owned);
        run(args.into_iter().chain(members.clone())).failed(
            1,
            "WTL-0102",
            &["there is no /dev/ublk-control", "modprobe ublk_drv"],
        );
    });
}

#[test]
fn a_device_that_is_not_there_is_not_removed() {
    run(["umount", "/dev/ublkb1000000"]).failed(1, "WTL-0115", &["name the directory that was mounted on"]);
}
