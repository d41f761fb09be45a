//! The guest's own NBD client on arrays that wattle serves over TCP.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::judge::Guest;
use crate::wattle;

/// One RAID 5 for each file system, served on two ports; one of them degraded.
pub fn mount(guest: &Guest) {
    let scratch = tempfile::tempdir().expect("scratch space");
    let mut servers = Vec::new();
    let mut lines = String::new();
    for (fs, missing) in [("xfs", false), ("ext4", true)] {
        let mut members: Vec<_> =
            (0..4).map(|member| scratch.path().join(format!("{fs}{member}.img"))).collect();
        for member in &members {
            std::fs::File::create(member).and_then(|file| file.set_len(160 << 20)).expect("scratch space");
        }
        if missing {
            members[2] = "missing".into();
        }
        wattle(&["create", "--level", "5", "--chunk", "64K", fs], &members);
        members.retain(|member| !member.ends_with("missing"));
        let port = free_port();
        let mut server = Command::new(env!("CARGO_BIN_EXE_wattle"))
            .args(["serve", "--export", &format!("nbd=tcp:127.0.0.1:{port}"), "--runtime-dir"])
            .arg(scratch.path().join(format!("run-{fs}")))
            .args(&members)
            .stdin(Stdio::null())
            .spawn()
            .expect("wattle runs");
        await_port(port, &mut server);
        lines += &format!("{fs} {port} {fs} {fs}\n");
        servers.push((server, members));
    }
    let cases = scratch.path().join("nbd.txt");
    std::fs::write(&cases, lines).expect("scratch space");
    let results = guest.run_with("nbd-client", &[cases], &[], &[("GUEST_NET", "1")]);
    assert_eq!(results.values().filter(|facts| facts["ok"] == "yes").count(), 2, "{results:?}");
    for (mut server, members) in servers {
        let stopped =
            Command::new("kill").arg("-TERM").arg(server.id().to_string()).status().expect("kill runs");
        assert!(stopped.success());
        assert!(server.wait().expect("it ends").success(), "a server that is asked to end ends well");
        wattle(&["scan"], &members);
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("bound").port()
}

#[allow(clippy::disallowed_methods, reason = "a test waits for a process in real time")]
fn await_port(port: u16, server: &mut std::process::Child) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(server.try_wait().expect("a child").is_none(), "the server ended early");
        assert!(Instant::now() < deadline, "the server does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
}
