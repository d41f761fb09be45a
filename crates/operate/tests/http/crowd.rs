//! Very many peers at once.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use wattle_operate::http::{HttpLimits, HttpSettings};

use crate::harness::{assert_answers, connect, get, rest, settings, start, status};

/// Resident memory of this process.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn ten_thousand_slow_peers_cost_no_memory_and_others_are_answered() {
    const PEERS: usize = 10_000;
    const AT_ONCE: usize = 100;
    const ALONE: &str = "WATTLE_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        // In a process of its own: other tests take memory too.
        let name = "crowd::ten_thousand_slow_peers_cost_no_memory_and_others_are_answered";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let status = alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1").status().unwrap();
        assert!(status.success());
        return;
    }
    let server = start(HttpSettings { limits: HttpLimits::default(), ..settings() });
    assert_answers(&server);
    let before = resident_kib();
    let mut peers: Vec<TcpStream> = Vec::new();
    let mut slowest = Duration::ZERO;
    for round in 0..PEERS / AT_ONCE {
        // Those of the round before stay while the next ones come.
        let stay = peers.len().saturating_sub(3 * AT_ONCE);
        peers.drain(..stay);
        for _ in 0..AT_ONCE {
            let mut peer = connect(&server);
            // Some begin a request and do not end it.
            let _ = peer.write_all(&get("/", "")[..30]);
            peers.push(peer);
        }
        if round % 10 == 0 {
            let began = Instant::now();
            assert_answers(&server);
            slowest = slowest.max(began.elapsed());
        }
    }
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 32 << 10, "{grown} KiB");
    drop(peers);
    assert_answers(&server);
}

#[test]
fn connections_that_are_kept_make_way_and_answers_do_not() {
    let server = start(settings());
    let mut kept: Vec<TcpStream> = (0..16).map(|_| connect(&server)).collect();
    for stream in &mut kept {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    }
    std::thread::sleep(Duration::from_millis(150));
    let mut asks = connect(&server);
    asks.write_all(&get("/never", "")).unwrap();
    for _ in 0..20 {
        assert_answers(&server);
    }
    assert_eq!(status(&rest(&mut asks)), 504, "it was waited for all the time");
    let ended = kept.iter_mut().map(rest).filter(|said| status(said) == 200).count();
    assert_eq!(ended, 16, "each was answered before it made way");
}
