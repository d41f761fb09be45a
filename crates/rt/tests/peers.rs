//! Clients that do not read or send hold up neither drives nor the operator.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use std::time::Duration;
use wattle_rt::planted::{self, Bug};
use wattle_rt::{
    BackendChoice, BackendError, Buf, BufMut, Core, Device, Durability, Either, Listener, OpenOptions,
    RingMode, RuntimeConfig, Stream, race, run,
};

const BACKENDS: [(BackendChoice, RingMode); 4] = [
    (BackendChoice::Uring, RingMode::Deferred),
    (BackendChoice::Uring, RingMode::Cooperative),
    (BackendChoice::Uring, RingMode::Plain),
    (BackendChoice::Syscall, RingMode::Best),
];

/// Runs `test` on every real backend, at the depth of a server.
fn on_real_backends(test: impl AsyncFn(Core)) {
    for (backend, ring) in BACKENDS {
        let config = RuntimeConfig { backend, ring, ..RuntimeConfig::default() };
        match run(config, async |core| test(core).await) {
            Ok(()) => {}
            Err(BackendError::UringForbidden { errno }) => println!("no {ring:?} here: errno {errno}"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Far longer than what it bounds takes, however busy the machine.
async fn soon<T>(core: &Core, what: &str, work: impl Future<Output = T>) -> T {
    match race(work, core.sleep(Duration::from_secs(10))).await {
        Either::First(value) => value,
        Either::Second(()) => panic!("{what} does not end"),
    }
}

/// A client connects, and what it does not send is waited for `times` times.
async fn stalled(core: &Core, listener: &Listener, path: &std::path::Path, times: usize) -> (Stream, Stream) {
    let client = Stream::connect_unix(path).unwrap();
    let server = soon(core, "an accept", core.accept(listener)).await.unwrap();
    for _ in 0..times {
        let (waiter, stream) = (core.clone(), server.clone());
        drop(core.spawn(async move { drop(waiter.recv(&stream, BufMut::alloc(4096)).await) }));
    }
    (client, server)
}

/// A drive writes, flushes and reads.
async fn drive_answers(core: &Core) {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let drive = Device::open(file.path(), OpenOptions { write: true, ..OpenOptions::default() }).unwrap();
    for round in 0..20 {
        let data = Buf::copy_of(&[round; 4096]);
        soon(core, "a write", core.write(&drive, 4096, data, Durability::Cached)).await.unwrap();
        soon(core, "a flush", core.flush(&drive)).await.unwrap();
        let (result, buf) = soon(core, "a read", core.read(&drive, 4096, BufMut::alloc(4096))).await;
        assert_eq!((result, buf[0]), (Ok(()), round));
    }
}

#[test]
fn drives_answer_while_hundreds_of_clients_neither_send_nor_read() {
    on_real_backends(async |core| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = Listener::unix(&path).unwrap();
        let mut clients = Vec::new();
        for _ in 0..300 {
            let (client, server) = stalled(&core, &listener, &path, 2).await;
            // What does not fit into the socket's buffer waits for the client to read.
            for _ in 0..2 {
                let (sender, stream) = (core.clone(), server.clone());
                let data = vec![Buf::zeros(1 << 20)];
                drop(core.spawn(async move { sender.send(&stream, data).await }));
            }
            clients.push((client, server));
        }
        core.sleep(Duration::from_millis(20)).await;
        assert!(core.ops_in_flight() >= 1200, "all of them wait");
        drive_answers(&core).await;
    });
}

#[test]
fn the_operator_is_served_when_more_clients_wait_than_a_ring_has_room_for() {
    on_real_backends(async |core| {
        let dir = tempfile::tempdir().unwrap();
        let (path, operator) = (dir.path().join("socket"), dir.path().join("operator"));
        let listener = Listener::unix(&path).unwrap();
        let _clients = stalled(&core, &listener, &path, 10_000).await;
        core.sleep(Duration::from_millis(20)).await;
        assert!(core.ops_in_flight() >= 10_000);

        let listener = Listener::unix(&operator).unwrap().reserved();
        let asking = Stream::connect_unix(&operator).unwrap();
        let answering = soon(&core, "an accept", core.accept(&listener)).await.unwrap();
        for (from, to) in [(&asking, &answering), (&answering, &asking)] {
            let received = core.recv(to, BufMut::alloc(100));
            soon(&core, "a send", core.send(from, vec![Buf::copy_of(b"status")])).await.unwrap();
            let (result, buf) = soon(&core, "a receive", received).await;
            assert_eq!((result, &buf[..6]), (Ok(6), &b"status"[..]));
        }
        drive_answers(&core).await;
    });
}

#[test]
fn what_waits_for_room_goes_on_when_there_is_some() {
    on_real_backends(async |core| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = Listener::unix(&path).unwrap();
        let (client, server) = stalled(&core, &listener, &path, 0).await;
        let waiting: Vec<_> = (0..10_000).map(|_| core.recv(&server, BufMut::alloc(1))).collect();
        core.sleep(Duration::from_millis(20)).await;
        // Every second one is given up, in the ring and out of it.
        let kept: Vec<_> = waiting.into_iter().enumerate().filter(|(at, _)| at % 2 == 0).collect();
        soon(&core, "a send", core.send(&client, vec![Buf::zeros(5_000)])).await.unwrap();
        for (_, waiting) in kept {
            assert_eq!(soon(&core, "a receive", waiting).await.0, Ok(1));
        }
        assert_eq!(core.ops_in_flight(), 0);
    });
}

/// The mend is in the ring's backend: plain system calls have threads for drives.
#[test]
fn drives_wait_where_clients_take_their_room() {
    let _planted = planted::plant(&[Bug::PeersInDrivesRoom]);
    let config = RuntimeConfig { backend: BackendChoice::Uring, ..RuntimeConfig::default() };
    let ended = run(config, async |core| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = Listener::unix(&path).unwrap();
        let _clients = stalled(&core, &listener, &path, 1024).await;
        core.sleep(Duration::from_millis(20)).await;
        let answered = race(drive_answers(&core), core.sleep(Duration::from_millis(500))).await;
        assert!(matches!(answered, Either::Second(())), "the bug is not found");
    });
    match ended {
        Ok(()) => {}
        Err(BackendError::UringForbidden { errno }) => println!("no ring here: errno {errno}"),
        Err(error) => panic!("{error}"),
    }
}
