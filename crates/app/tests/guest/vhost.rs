//! A machine whose only disk is a wattle volume, over vhost-user: its firmware boots from there,
//! and it works on while the server is killed and comes back.

#![allow(clippy::disallowed_methods, reason = "a test waits for processes in real time")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::judge::{Guest, root};
use crate::server::Server;
use crate::wattle;

/// The server is killed so many times while the guest is at work.
const KILLS: u32 = 20;
/// For so long the guest writes and reads, in its own seconds.
const LOAD_SECONDS: u64 = 150;
/// From one kill to the next.
const BETWEEN_KILLS: Duration = Duration::from_secs(3);

/// Boots from a volume of this level, by firmware and kernel with split rings, and has a mirror
/// with packed ones beside it.
pub fn boots_and_survives(guest: &Guest, level: &str, layout: &[&str]) {
    let scratch = tempfile::tempdir().expect("scratch space");
    let dir = scratch.path();
    let blank = |name: &str, count, size_bytes| -> Vec<PathBuf> {
        let members: Vec<_> = (0..count).map(|member| dir.join(format!("{name}{member}.img"))).collect();
        for member in &members {
            std::fs::File::create(member).and_then(|file| file.set_len(size_bytes)).expect("scratch space");
        }
        members
    };
    let (mut members, packed) = (blank("guest", 4, 180 << 20), blank("packed", 2, 100 << 20));
    let create: Vec<&str> = ["create", "--level", level, "guest"].iter().chain(layout).copied().collect();
    wattle(&create, &members);
    wattle(&["create", "--level", "1", "packed"], &packed);
    members.extend(packed);
    let sockets = dir.join("vm");
    std::fs::create_dir(&sockets).expect("scratch space");
    let nbd = format!("nbd=unix:{}", dir.join("nbd").display());
    let export = format!("vhost-user={}", sockets.display());
    let start = || {
        Server::start(&members, dir, &["-V", "guest", "-V", "packed", "--export", &nbd, "--export", &export])
    };
    let mut server = start();
    install(guest, dir, &server);

    let ended = AtomicBool::new(false);
    let (kills, mut server) = std::thread::scope(|scope| {
        let disk = |kind: &str, name: &str| {
            PathBuf::from(format!("{kind}:{}", sockets.join(name).with_extension("sock").display()))
        };
        let disks = [disk("vhost", "guest"), disk("vhost-packed", "packed")];
        let ended = &ended;
        let running = scope.spawn(move || {
            let firmware = [("GUEST_FIRMWARE", "1")];
            let results = std::panic::catch_unwind(|| guest.run_with("vhost-disk", &[], &disks, &firmware));
            ended.store(true, Ordering::Release);
            results.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        // The kernel and its memory disk are read from the volume first, by firmware that gives up
        // when its disk goes.
        let installed = writes(&server);
        while writes(&server) == installed {
            assert!(!ended.load(Ordering::Acquire), "the machine ended before it wrote anything");
            std::thread::sleep(Duration::from_millis(100));
        }
        let mut kills = 0;
        while !ended.load(Ordering::Acquire) {
            std::thread::sleep(BETWEEN_KILLS);
            if kills < KILLS {
                server.killer()();
                server.gone();
                server = start();
                kills += 1;
            }
        }
        let results = running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        for (name, packed) in [("vda2", "0"), ("vdb", "1")] {
            let facts = &results[name];
            assert_eq!((&facts["ok"][..], &facts["packed"][..]), ("yes", packed), "{results:?}");
        }
        (kills, server)
    });
    assert_eq!(kills, KILLS, "the load ended too soon");
    server.settle(0);
    server.ask(&["check", "--wait"]);
    assert_eq!(server.status()["scrubs"][0]["mismatch_sectors"], 0, "{}", server.status());
    server.stop();
}

/// Writes of clients since the server started.
fn writes(server: &Server) -> u64 {
    server.status()["counters"]["writes"].as_u64().expect("a count")
}

/// Puts a disk that boots into the volume.
fn install(guest: &Guest, dir: &Path, server: &Server) {
    let (image, facts) = (dir.join("boot.img"), dir.join("vhost.txt"));
    std::fs::write(&facts, format!("{LOAD_SECONDS} /dev/vda2 /dev/vdb\n")).expect("scratch space");
    let guest_dir = root().join("guest");
    let made = guest
        .command()
        .current_dir(&guest_dir)
        .arg("-f")
        .arg(&facts)
        .arg("-b")
        .arg(&image)
        .arg(guest_dir.join("jobs/vhost-disk"))
        .status();
    assert!(made.expect("guest/run runs").success(), "no disk that boots");
    let copied = Command::new("nbdcopy").arg(&image).arg(server.uri()).status();
    assert!(copied.expect("nbdcopy runs").success(), "the disk is not in the volume");
}
