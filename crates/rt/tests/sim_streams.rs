//! Streams of a simulated world: bounded buffers, ends, waits that are given up, and what an end
//! that does not receive costs the other operations of the core that serves it.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::time::Duration;

use wattle_rt::planted::{self, Bug};
use wattle_rt::{
    Buf, BufMut, Core, CoreIx, DriveConfig, IoErrorKind, Listener, RunOutcome, SimEndpoint, SimWorld, Stream,
    WorldConfig, race,
};

const BUFFER: usize = 4096;

fn world(cores: usize, queue_depth: usize) -> SimWorld {
    SimWorld::new(WorldConfig { seed: 9, cores, queue_depth, ..WorldConfig::default() })
}

/// The client's end and the server's.
async fn connect(core: &Core, endpoint: &SimEndpoint, listener: &Listener) -> (Stream, Stream) {
    let client = endpoint.connect().unwrap();
    (client, core.accept(listener).await.unwrap())
}

async fn receive(core: &Core, stream: &Stream, len: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < len {
        let (result, buf) = core.recv(stream, BufMut::alloc(len - all.len())).await;
        let count = result.unwrap();
        if count == 0 {
            break;
        }
        all.extend_from_slice(&buf[..count]);
    }
    all
}

#[test]
fn bytes_arrive_in_order_however_small_the_buffer_is() {
    const LEN: usize = if cfg!(miri) { 300 } else { 10_000 };
    let mut world = world(2, 8);
    let (endpoint, listener) = world.endpoint(100);
    let data: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    let sent = data.clone();
    let received = world
        .run(async move |core: Core| {
            let (client, server) = connect(&core, &endpoint, &listener).await;
            let receiving = core.call(CoreIx(1), |core| async move { receive(&core, &server, LEN).await });
            let (head, tail) = (Buf::copy_of(&sent[..77]), Buf::copy_of(&sent[77..]));
            core.send(&client, vec![head, Buf::copy_of(&[]), tail]).await.unwrap();
            receiving.await
        })
        .expect_done();
    assert!(received == data);
}

#[test]
fn an_end_that_does_not_receive_makes_the_other_wait_and_a_shutdown_ends_that() {
    let mut world = world(1, 8);
    let (endpoint, listener) = world.endpoint(BUFFER);
    world
        .run(async move |core: Core| {
            let (client, server) = connect(&core, &endpoint, &listener).await;
            core.send(&server, vec![Buf::zeros(BUFFER)]).await.unwrap();
            let mut sending = core.send(&server, vec![Buf::zeros(1)]);
            let waited = race(&mut sending, core.sleep(Duration::from_secs(60))).await;
            assert!(matches!(waited, wattle_rt::Either::Second(())), "there is no room");
            server.shutdown();
            assert!(sending.await.is_err(), "nothing is sent after the end");
            assert_eq!(receive(&core, &client, 2 * BUFFER).await.len(), BUFFER, "what was sent, and the end");
            assert!(core.send(&client, vec![Buf::zeros(1)]).await.is_err());
            assert_eq!(core.recv(&server, BufMut::alloc(1)).await.0, Ok(0));

            // Closing an end is a shutdown too.
            let (client, server) = connect(&core, &endpoint, &listener).await;
            drop(client);
            assert_eq!(core.recv(&server, BufMut::alloc(1)).await.0, Ok(0));
            drop(listener);
            assert!(endpoint.connect().is_err());
            assert_eq!(core.ops_in_flight(), 0);
        })
        .expect_done();
}

#[test]
fn what_is_not_waited_for_any_more_takes_no_bytes() {
    let mut world = world(1, 8);
    let (endpoint, listener) = world.endpoint(BUFFER);
    world
        .run(async move |core: Core| {
            let (client, server) = connect(&core, &endpoint, &listener).await;
            drop(core.accept(&listener));
            let waiting = core.recv(&server, BufMut::alloc(10));
            core.sleep(Duration::from_millis(1)).await;
            drop(waiting);
            core.send(&client, vec![Buf::copy_of(b"hello")]).await.unwrap();
            assert_eq!(receive(&core, &server, 5).await, b"hello");
            assert_eq!(core.ops_in_flight(), 0);
        })
        .expect_done();
}

#[test]
fn a_wait_for_ever_is_reported() {
    let mut world = world(1, 8);
    let (endpoint, listener) = world.endpoint(BUFFER);
    let outcome = world.run(async move |core: Core| {
        let (_client, server) = connect(&core, &endpoint, &listener).await;
        core.recv(&server, BufMut::alloc(10)).await.0
    });
    let RunOutcome::Stuck(report) = outcome else { panic!("{outcome:?}") };
    assert!(report.iter().any(|line| line.contains("receive")), "{report:?}");
}

/// Whether a drive answers within a second while as many clients neither send nor read.
fn drive_answers_beside(clients: usize, queue_depth: usize) -> bool {
    let mut world = world(1, queue_depth);
    let drive = world.add_drive(DriveConfig::default());
    let (endpoint, listener) = world.endpoint(BUFFER);
    world
        .run(async move |core: Core| {
            let mut streams = Vec::new();
            for _ in 0..clients {
                let (client, server) = connect(&core, &endpoint, &listener).await;
                for data in [None, Some(Buf::zeros(2 * BUFFER))] {
                    let (core_too, stream) = (core.clone(), server.clone());
                    drop(core.spawn(async move {
                        match data {
                            Some(data) => drop(core_too.send(&stream, vec![data]).await),
                            None => drop(core_too.recv(&stream, BufMut::alloc(100)).await),
                        }
                    }));
                }
                streams.push((client, server));
            }
            core.sleep(Duration::from_millis(10)).await;
            assert_eq!(core.ops_in_flight(), 2 * clients);
            let reading = core.read(&drive, 0, BufMut::alloc(512));
            let answered = race(reading, core.sleep(Duration::from_secs(1))).await;
            matches!(answered, wattle_rt::Either::First((Ok(()), _)))
        })
        .expect_done()
}

#[test]
#[cfg_attr(miri, ignore = "hundreds of clients")]
fn drives_answer_while_more_clients_stall_than_drives_have_room_for() {
    assert!(drive_answers_beside(510, 1024) && drive_answers_beside(512, 1024));
    let _planted = planted::plant(&[Bug::PeersInDrivesRoom]);
    assert!(drive_answers_beside(510, 1024), "as long as there is room");
    assert!(!drive_answers_beside(512, 1024), "the bug is not found");
}

#[test]
fn more_operations_on_a_drive_than_are_in_flight_wait_in_order() {
    let mut world = world(1, 8);
    let drive = world.add_drive(DriveConfig::default());
    let control = world.drive(&drive);
    world
        .run(async move |core: Core| {
            let reads: Vec<_> = (0..100).map(|at| core.read(&drive, at * 512, BufMut::alloc(512))).collect();
            core.yield_now().await;
            assert_eq!(control.ops(), 8);
            for read in reads {
                read.await.0.unwrap();
            }
            assert_eq!((control.ops(), core.ops_in_flight()), (100, 0));
        })
        .expect_done();
}

/// A stream of a world is none of a machine.
#[test]
fn a_machine_refuses_streams_of_a_world() {
    let world = world(1, 8);
    let (endpoint, listener) = world.endpoint(BUFFER);
    let stream = endpoint.connect().unwrap();
    for backend in [wattle_rt::BackendChoice::Auto, wattle_rt::BackendChoice::Syscall] {
        let config = wattle_rt::RuntimeConfig { backend, ..wattle_rt::RuntimeConfig::default() };
        wattle_rt::run(config, async |core| {
            let refused = core.accept(&listener).await.map(drop).unwrap_err();
            assert_eq!(refused.kind(), IoErrorKind::Unsupported);
            let (received, _) = core.recv(&stream, BufMut::alloc(1)).await;
            assert_eq!(received.unwrap_err().kind(), IoErrorKind::Unsupported);
        })
        .unwrap();
    }
}
