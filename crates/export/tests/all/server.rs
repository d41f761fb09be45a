//! The server against a client that speaks the protocol byte by byte, well and badly.

use std::rc::Rc;
use std::time::Duration;

use crate::support::{Client, MIB, Rig, info_query, pattern, reads, volume, with_server, within};
use wattle_export::NbdAddress;
use wattle_export::nbd::limits::{REQUEST_BYTES_MAX, STREAM_BUFFER_BYTES};
use wattle_export::nbd::protocol::{NbdRequest, command_flags, commands, options, replies};
use wattle_export::nbd::{self, ClientError, Export, Limits, NbdServer, TurnedAway};
use wattle_rt::{Buf, Core, Listener};

const ONE: &[(&str, u64, bool)] = &[("disk", 64 * MIB, false)];
const SOON: Duration = Duration::from_secs(5);

#[test]
fn what_is_written_is_read_at_every_size_and_alignment() {
    with_server(1, Limits::default(), ONE, async |rig: Rig| {
        let mut client = Client::connect(&rig.core, &rig.socket, "disk", false).await;
        let lengths = [
            1,
            511,
            4096,
            65_535,
            65_536,
            65_537,
            STREAM_BUFFER_BYTES,
            3_000_001,
            REQUEST_BYTES_MAX as usize,
        ];
        for (seed, length) in lengths.into_iter().enumerate() {
            let (offset, data) = (8 * MIB + seed as u64 * 4097, pattern(seed as u64, length));
            assert_eq!(client.write(offset, &data).await, 0);
            assert!(client.read(offset, length).await.unwrap() == data, "{length} bytes at {offset}");
        }
        assert_eq!(client.command(commands::FLUSH, 0, 0, 0).await, 0);
    });
}

#[test]
fn structured_reads_carry_their_offset() {
    with_server(1, Limits::default(), ONE, async |rig: Rig| {
        let mut client = Client::connect(&rig.core, &rig.socket, "", true).await;
        let data = pattern(1, 5000);
        assert_eq!(client.write(100, &data).await, 0);
        client.request(commands::READ, command_flags::DF, 5, 100, 5000).await;
        let (cookie, kind, payload) = client.chunk().await.unwrap();
        assert_eq!((cookie, kind, &payload[..8]), (5, 1, &100_u64.to_be_bytes()[..]));
        assert!(payload[8..] == data);
        // An error, and no bytes at all.
        client.request(commands::READ, 0, 6, 64 * MIB, 1).await;
        assert_eq!(client.chunk().await.unwrap(), (6, 0x8001, vec![0, 0, 0, 22, 0, 0]));
        client.request(commands::READ, 0, 7, 0, 0).await;
        assert_eq!(client.chunk().await.unwrap(), (7, 0, vec![]));
    });
}

#[test]
fn zeroes_and_trims_are_done() {
    with_server(1, Limits::default(), ONE, async |rig: Rig| {
        let mut client = Client::connect(&rig.core, &rig.socket, "", false).await;
        assert_eq!(client.write(0, &pattern(1, 1 << 20)).await, 0);
        assert_eq!(client.command(commands::WRITE_ZEROES, command_flags::FUA, 1000, 500_000).await, 0);
        assert_eq!(client.command(commands::WRITE_ZEROES, command_flags::NO_HOLE, 600_000, 1).await, 0);
        let mut expected = pattern(1, 1 << 20);
        expected[1000..501_000].fill(0);
        expected[600_000] = 0;
        assert!(client.read(0, 1 << 20).await.unwrap() == expected);
        assert_eq!(client.command(commands::TRIM, command_flags::FUA, 0, 64 << 20).await, 0);
    });
}

#[test]
fn refused_requests_leave_the_connection_in_step() {
    with_server(1, Limits::default(), ONE, async |rig: Rig| {
        let mut client = Client::connect(&rig.core, &rig.socket, "", false).await;
        // The payload of a refused write is on the wire all the same.
        assert_eq!(client.write(64 * MIB - 10, &pattern(1, 11)).await, 28);
        assert_eq!(client.write(0, &vec![7; REQUEST_BYTES_MAX as usize + 1]).await, 22);
        assert_eq!(client.read(64 * MIB, 1).await, Err(22));
        assert_eq!(client.read(0, REQUEST_BYTES_MAX as usize + 1).await, Err(22));
        assert_eq!(client.command(99, 0, 0, 0).await, 22);
        assert_eq!(client.command(commands::READ, command_flags::DF, 0, 1).await, 22);
        assert_eq!(client.command(commands::WRITE_ZEROES, 0, 64 * MIB, 1).await, 28);
        assert_eq!(client.read(0, 3).await.unwrap(), [0, 0, 0]);
    });
}

#[test]
fn a_read_only_export_refuses_changes() {
    with_server(1, Limits::default(), &[("disk", MIB, true)], async |rig: Rig| {
        let mut client = Client::connect(&rig.core, &rig.socket, "", false).await;
        assert_eq!(client.write(0, &[1; 4096]).await, 1);
        assert_eq!(client.command(commands::TRIM, 0, 0, 4096).await, 1);
        assert_eq!(client.command(commands::WRITE_ZEROES, 0, 0, 4096).await, 1);
        assert_eq!(client.command(commands::FLUSH, 0, 0, 0).await, 0);
        assert_eq!(client.read(0, 4096).await.unwrap(), [0; 4096]);
    });
}

#[test]
fn requests_in_flight_are_told_apart() {
    with_server(1, Limits::default(), ONE, async |rig: Rig| {
        let mut client = Client::connect(&rig.core, &rig.socket, "", false).await;
        // More than one receive, and more than the requests a connection may have in flight.
        let count = 3000_u64;
        let block = |ix: u64| pattern(ix, 700);
        let mut writes = Vec::new();
        for ix in 0..count {
            let request = NbdRequest {
                flags: 0,
                kind: commands::WRITE,
                cookie: ix,
                offset_bytes: ix * 700,
                length_bytes: 700,
            };
            writes.extend(request.encode());
            writes.extend(block(ix));
        }
        client.send_meanwhile(&writes);
        let mut answered = vec![false; count as usize];
        for _ in 0..count {
            let (cookie, error) = client.simple().await.unwrap();
            assert!(error == 0 && !std::mem::replace(&mut answered[cookie as usize], true));
        }
        client.send_meanwhile(&reads(count, 700, 700));
        for _ in 0..count {
            let (cookie, error) = client.simple().await.unwrap();
            assert_eq!(error, 0);
            assert!(client.exactly(700).await.unwrap() == block(cookie));
        }
    });
}

#[test]
fn exports_are_found_by_name() {
    with_server(1, Limits::default(), &[("a", MIB, false), ("vg/b", 2 * MIB, true)], async |rig: Rig| {
        let mut client = Client::dial(&rig.core, &rig.socket);
        client.greet().await;
        client.option(options::LIST, &[]).await;
        assert_eq!(client.option_reply().await.2, b"\0\0\0\x01a");
        assert_eq!(client.option_reply().await.2, b"\0\0\0\x04vg/b");
        assert_eq!(client.option_reply().await.1, replies::ACK);
        for unknown in ["", "c"] {
            client.option(options::GO, &info_query(unknown)).await;
            assert_eq!(client.option_reply().await.1, replies::ERR_UNKNOWN);
        }
        client.option(options::INFO, &info_query("vg/b")).await;
        let (_, kind, data) = client.option_reply().await;
        assert_eq!((kind, &data[..10]), (replies::INFO, &b"\0\0\0\0\0\0\0\x20\0\0"[..]));
        assert_eq!(client.option_reply().await.1, replies::ACK);

        let mut first = Client::connect(&rig.core, &rig.socket, "a", false).await;
        let mut second = Client::connect(&rig.core, &rig.socket, "vg/b", false).await;
        assert_eq!(first.write(0, b"for a").await, 0);
        assert_eq!(second.read(0, 5).await.unwrap(), [0; 5]);
    });
}

#[test]
fn exports_come_and_go_and_who_has_one_keeps_it() {
    with_server(2, Limits::default(), ONE, async |rig: Rig| {
        let (core, exports) = (&rig.core, rig.server.exports());
        let unknown = async |name: &str| {
            let mut client = Client::dial(core, &rig.socket);
            client.greet().await;
            client.option(options::GO, &info_query(name)).await;
            client.option_reply().await.1 == replies::ERR_UNKNOWN
        };
        let new = |name| volume(core, name, MIB, false);
        let export = |volume| Export { volume, description: String::new() };
        exports.add(core, export(new("vg/new").await), false).await.unwrap();
        let mut first = Client::connect(core, &rig.socket, "vg/new", false).await;
        let mut second = Client::connect(core, &rig.socket, "vg/new", false).await;
        let mut default = Client::connect(core, &rig.socket, "", false).await;
        assert_eq!(default.write(0, b"the first").await, 0);
        assert_eq!(first.write(0, b"the new").await, 0);
        // No other client finds it; the two, on different cores, have it.
        assert_eq!(exports.hide(core, "vg/new").await, 2);
        assert!(unknown("vg/new").await);
        assert_eq!(second.read(0, 7).await.unwrap(), b"the new");
        exports.show(core, "vg/new").await;
        Client::connect(core, &rig.socket, "vg/new", false).await;
        exports.remove(core, "vg/new").await;
        assert!(unknown("vg/new").await && unknown("none").await);
        assert_eq!((exports.hide(core, "vg/new").await, exports.hide(core, "disk").await), (0, 1));
        assert!(unknown("").await && unknown("disk").await, "the default is hidden too");
    });
}

#[test]
fn a_goodbye_is_heard_after_the_answers() {
    with_server(1, Limits::default(), ONE, async |rig: Rig| {
        let mut client = Client::connect(&rig.core, &rig.socket, "", false).await;
        client.request(commands::WRITE, 0, 1, 0, 4096).await;
        client.send(&[9; 4096]).await;
        client.request(commands::DISC, 0, 2, 0, 0).await;
        assert_eq!(client.simple().await, Some((1, 0)));
        assert!(client.is_closed_within(SOON).await);
    });
}

/// A client that was killed in the middle of a write must not have written half of it.
#[test]
fn a_write_cut_short_changes_nothing() {
    with_server(1, Limits::default(), ONE, async |rig: Rig| {
        for length in [4096, 1 << 20] {
            let client = Client::connect(&rig.core, &rig.socket, "", false).await;
            client.request(commands::WRITE, 0, 1, 0, length).await;
            client.send(&vec![9; length as usize - 1]).await;
            client.stream.shutdown();
        }
        while rig.server.connections() > 0 {
            rig.core.sleep(Duration::from_millis(1)).await;
        }
        let mut client = Client::connect(&rig.core, &rig.socket, "", false).await;
        assert!(client.read(0, 1 << 20).await.unwrap().iter().all(|byte| *byte == 0));
    });
}

#[test]
fn garbage_ends_its_own_connection_only() {
    with_server(1, Limits::default(), ONE, async |rig: Rig| {
        let mut good = Client::connect(&rig.core, &rig.socket, "", false).await;
        for seed in 0..50 {
            let mut client = Client::dial(&rig.core, &rig.socket);
            client.send(&pattern(seed, 10_000)).await;
            assert!(client.is_closed_within(SOON).await, "seed {seed} in the handshake");
            let mut client = Client::connect(&rig.core, &rig.socket, "", false).await;
            client.send(&pattern(seed, 10_000)).await;
            assert!(client.is_closed_within(SOON).await, "seed {seed} in transmission");
            assert_eq!(good.write(seed * 4096, &pattern(seed, 4096)).await, 0);
        }
    });
}

#[test]
fn the_handshake_has_a_time_limit() {
    let limits = Limits { handshake_time_max: Duration::from_millis(200), ..Limits::default() };
    with_server(1, limits, ONE, async |rig: Rig| {
        let mut silent = Client::dial(&rig.core, &rig.socket);
        let mut slow = Client::dial(&rig.core, &rig.socket);
        let mut good = Client::connect(&rig.core, &rig.socket, "", false).await;
        slow.greet().await;
        let trickle = async {
            loop {
                slow.option(options::LIST, &[]).await;
                rig.core.sleep(Duration::from_millis(20)).await;
                let (got, _) = rig.core.recv(&slow.stream, wattle_rt::BufMut::alloc(4096)).await;
                if !matches!(got, Ok(1..)) {
                    return;
                }
            }
        };
        assert!(within(&rig.core, SOON, trickle).await.is_some(), "options do not buy time");
        assert!(silent.is_closed_within(SOON).await);
        assert_eq!(good.write(0, &[1; 512]).await, 0, "transmission has no time limit");
    });
}

#[test]
fn a_client_that_takes_no_replies_waits_alone() {
    with_server(1, Limits::default(), ONE, async |rig: Rig| {
        let mut lazy = Client::connect(&rig.core, &rig.socket, "", false).await;
        let count = 500;
        lazy.send_meanwhile(&reads(count, MIB as u32, 0));
        let mut good = Client::connect(&rig.core, &rig.socket, "", false).await;
        for ix in 0..100 {
            assert_eq!(good.write(ix * MIB / 4, &pattern(ix, 1 << 18)).await, 0);
        }
        // When it changes its mind, everything is there.
        for _ in 0..count {
            assert_eq!(lazy.simple().await.unwrap().1, 0);
            assert_eq!(lazy.exactly(1 << 20).await.unwrap().len(), 1 << 20);
        }
    });
}

/// Shared memory that lies in a client's socket is taken back when another client needs it, and not
/// before.
#[test]
fn a_client_that_hoards_memory_is_closed_when_another_needs_it() {
    let limits =
        Limits { shared_bytes_max: 0, stall_time_max: Duration::from_millis(200), ..Limits::default() };
    with_server(1, limits, ONE, async |rig: Rig| {
        for half_a_write in [false, true] {
            let mut hoarder = Client::connect(&rig.core, &rig.socket, "", false).await;
            if half_a_write {
                hoarder.request(commands::WRITE, 0, 1, 0, REQUEST_BYTES_MAX).await;
                hoarder.send(&[1; 4096]).await;
            } else {
                hoarder.request(commands::READ, 0, 1, 0, REQUEST_BYTES_MAX).await;
            }
            rig.core.sleep(Duration::from_millis(500)).await;
            assert_eq!(rig.server.connections(), 1 + usize::from(half_a_write));

            let mut good = Client::connect(&rig.core, &rig.socket, "", false).await;
            // The reserve needs no permission.
            let small = within(&rig.core, Duration::from_millis(150), good.read(0, 1 << 20)).await;
            assert_eq!(small.unwrap().unwrap().len(), 1 << 20);
            assert_eq!(
                good.read(0, REQUEST_BYTES_MAX as usize).await.unwrap().len(),
                REQUEST_BYTES_MAX as usize
            );
            assert!(hoarder.is_closed_within(SOON).await);
            if !half_a_write {
                // Stays connected, idle, through the second round: it holds nothing.
                std::mem::forget(good);
            }
        }
    });
}

#[test]
fn connections_beyond_the_limit_are_closed() {
    let limits = Limits { connections_max: 2, idle_time_min: Duration::from_secs(3600), ..Limits::default() };
    with_server(1, limits, ONE, async |rig: Rig| {
        let first = Client::connect(&rig.core, &rig.socket, "", false).await;
        let mut second = Client::connect(&rig.core, &rig.socket, "", false).await;
        assert!(Client::dial(&rig.core, &rig.socket).is_closed_within(SOON).await);
        drop(first);
        while rig.server.connections() > 1 {
            rig.core.sleep(Duration::from_millis(1)).await;
        }
        let mut third = Client::connect(&rig.core, &rig.socket, "", false).await;
        assert_eq!(third.write(0, &[3; 512]).await, 0);
        assert_eq!(second.read(0, 512).await.unwrap(), [3; 512]);
    });
}

#[test]
fn when_all_connections_are_taken_the_one_idle_longest_makes_way() {
    let idle_time_min = Duration::from_millis(50);
    let limits = Limits { connections_max: 4, idle_time_min, ..Limits::default() };
    with_server(2, limits, ONE, async |rig: Rig| {
        let told = Rc::new(std::cell::RefCell::new(Vec::new()));
        let tell = told.clone();
        rig.server.on_crowd(move |crowd| tell.borrow_mut().push(crowd.clone()));
        let connect = async || Client::connect(&rig.core, &rig.socket, "", false).await;
        // In their order: longest idle, but it asked before; in its handshake; never asked; busy.
        let mut asked = connect().await;
        assert_eq!(asked.write(0, &[1; 512]).await, 0);
        let mut shaking = Client::dial(&rig.core, &rig.socket);
        rig.core.sleep(Duration::from_millis(20)).await;
        let mut silent = connect().await;
        let mut busy = connect().await;
        busy.request(commands::WRITE, 0, 9, 0, 512).await;
        rig.core.sleep(idle_time_min).await;
        let mut newest = Vec::new();
        for goes in [&mut shaking, &mut silent] {
            newest.push(connect().await);
            assert!(goes.is_closed_within(SOON).await);
            // So that these are not idle for longer than the others.
            assert_eq!(newest.last_mut().unwrap().read(0, 512).await.unwrap(), [1; 512]);
        }
        newest.push(connect().await);
        assert!(asked.is_closed_within(SOON).await);
        busy.send(&[2; 512]).await;
        assert_eq!(busy.simple().await, Some((9, 0)));
        assert_eq!(newest[2].read(0, 512).await.unwrap(), [2; 512]);
        assert_eq!(*told.borrow(), [TurnedAway { closed: 1, refused: 0 }], "told once in a while");
    });
}

#[test]
fn clients_that_never_take_their_replies_do_not_keep_new_ones_away() {
    let stall_time_max = Duration::from_millis(100);
    let limits = Limits { connections_max: 4, stall_time_max, ..Limits::default() };
    with_server(2, limits, ONE, async |rig: Rig| {
        let mut clients = Vec::new();
        for _ in 0..4 {
            let client = Client::connect(&rig.core, &rig.socket, "", false).await;
            client.send_meanwhile(&reads(64, MIB as u32, 0));
            clients.push(client);
        }
        rig.core.sleep(stall_time_max * 2).await;
        let mut newest = Client::connect(&rig.core, &rig.socket, "", false).await;
        assert_eq!(newest.write(0, &[3; 512]).await, 0);
    });
}

/// A write is refused, and what comes with it is still to be taken.
#[test]
fn clients_that_send_half_of_a_refused_request_do_not_keep_new_ones_away() {
    let stall_time_max = Duration::from_millis(100);
    let limits = Limits { connections_max: 4, stall_time_max, ..Limits::default() };
    with_server(2, limits, ONE, async |rig: Rig| {
        let mut clients = Vec::new();
        for _ in 0..4 {
            let client = Client::connect(&rig.core, &rig.socket, "", false).await;
            client.request(commands::WRITE, 0, 9, 1 << 50, 4096).await;
            clients.push(client);
        }
        rig.core.sleep(stall_time_max * 2).await;
        let mut newest = Client::connect(&rig.core, &rig.socket, "", false).await;
        assert_eq!(newest.write(0, &[3; 512]).await, 0);
    });
}

#[test]
fn many_connections_share_two_cores() {
    with_server(2, Limits::default(), ONE, async |rig: Rig| {
        let mut clients = Vec::new();
        for _ in 0..64 {
            clients.push(Client::connect(&rig.core, &rig.socket, "disk", false).await);
        }
        assert_eq!(rig.server.connections(), 64);
        let tasks = clients.into_iter().enumerate().map(|(ix, mut client)| {
            rig.core.spawn(async move {
                let base = ix as u64 * MIB;
                for round in 0..20 {
                    let data = pattern(round + base, 8192);
                    assert_eq!(client.write(base + round * 8192, &data).await, 0);
                    assert!(client.read(base + round * 8192, 8192).await.unwrap() == data);
                }
            })
        });
        let tasks: Vec<_> = tasks.collect();
        for task in tasks {
            task.await;
        }
    });
}

#[test]
fn stopping_answers_what_was_asked_and_closes() {
    with_server(2, Limits::default(), ONE, async |rig: Rig| {
        let mut clients = Vec::new();
        for ix in 0..4_u64 {
            let client = Client::connect(&rig.core, &rig.socket, "", false).await;
            client.request(commands::WRITE, 0, ix, ix * MIB, MIB as u32).await;
            client.send(&pattern(ix, 1 << 20)).await;
            clients.push(client);
        }
        let mut in_handshake = Client::dial(&rig.core, &rig.socket);
        rig.core.sleep(Duration::from_millis(100)).await;
        rig.server.stop(&rig.core).await;
        for (ix, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.simple().await, Some((ix as u64, 0)));
            assert!(client.is_closed_within(SOON).await);
        }
        assert!(in_handshake.is_closed_within(SOON).await);
        assert!(wattle_rt::Stream::connect_unix(&rig.socket).is_err(), "nobody listens any more");
    });
}

#[test]
fn stopping_does_not_wait_for_ever_for_a_client() {
    let limits = Limits { drain_time_max: Duration::from_millis(300), ..Limits::default() };
    with_server(1, limits, ONE, async |rig: Rig| {
        let lazy = Client::connect(&rig.core, &rig.socket, "", false).await;
        for cookie in 0..20 {
            lazy.request(commands::READ, 0, cookie, 0, MIB as u32).await;
        }
        rig.core.sleep(Duration::from_millis(50)).await;
        let core = rig.core.clone();
        assert!(within(&core, SOON, rig.server.stop(&rig.core)).await.is_some());
    });
}

/// Our own client: many in flight are answered to the task that asked, errors are of one request,
/// and an end is of all.
#[test]
fn a_client_has_many_requests_in_flight() {
    const VOLUMES: &[(&str, u64, bool)] = &[("disk", 64 * MIB, false), ("fixed", MIB, true)];
    with_server(2, Limits::default(), VOLUMES, async |rig: Rig| {
        let core = &rig.core;
        let address = NbdAddress::Unix(rig.socket.clone());
        let connect = |name| nbd::Client::connect(core, &address, name);
        assert_eq!(connect("nobody").await.err(), Some(ClientError::UnknownExport));
        let fixed = connect("fixed").await.unwrap();
        assert!(fixed.read_only() && fixed.size_bytes() == MIB);
        assert_eq!(fixed.write(0, Buf::copy_of(&[1; 512]), 0).await, Err(ClientError::Failed(1)));
        let client = Rc::new(connect("disk").await.unwrap());
        assert!(!client.read_only() && client.size_bytes() == 64 * MIB);
        let place = |number: u64| (number * 300_007, 1 + number as usize * 5003 % 200_000);
        let tasks = (0..200).map(|number| {
            let client = client.clone();
            core.spawn(async move {
                let (offset, length) = place(number);
                let data = pattern(number, length.min(300_007));
                assert_eq!(client.write(offset, Buf::copy_of(&data), 0).await, Ok(()));
                assert!(client.read(offset, data.len() as u32).await.unwrap()[..] == data, "{number}");
                assert_eq!(client.read(64 * MIB, 512).await.err(), Some(ClientError::Failed(22)));
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await;
        }
        assert_eq!(client.flush().await, Ok(()));
        rig.server.stop(core).await;
        let ended = client.read(0, 512).await.err().unwrap();
        assert!(
            matches!(ended, ClientError::Closed | ClientError::Connection(_) | ClientError::Failed(108)),
            "{ended}"
        );
        assert!(client.flush().await.is_err());
    });
}

/// Clients that ask and never take an answer, more than a core may have operations with the system,
/// on two endpoints: those of a third one are answered, and new ones come in.
#[test]
fn clients_that_never_read_hold_back_no_others() {
    const QUEUE_DEPTH: u32 = 64;
    const EACH: usize = 50;
    let config = wattle_rt::RuntimeConfig { cores: 1, queue_depth: QUEUE_DEPTH, ..Default::default() };
    let test = async |core: Core| {
        let directory = tempfile::tempdir().unwrap();
        let volume = volume(&core, "disk", 64 * MIB, false).await;
        let mut servers = Vec::new();
        for name in ["first", "second", "third"] {
            let listener = Listener::unix(&directory.path().join(name)).unwrap();
            let export = Export { volume: volume.clone(), description: String::new() };
            servers.push(NbdServer::start(&core, listener, vec![export], Limits::default()).await.unwrap());
        }
        let third = directory.path().join("third");
        let mut early = Client::connect(&core, &third, "", false).await;
        let mut stalled = Vec::new();
        for name in ["first", "second"] {
            for _ in 0..EACH {
                let client = Client::connect(&core, &directory.path().join(name), "", false).await;
                client.send(&reads(16, MIB as u32, MIB)).await;
                stalled.push(client);
            }
        }
        for _ in 0..20 {
            assert_eq!(early.read(0, 4096).await.unwrap(), [0; 4096]);
        }
        let mut late = Client::connect(&core, &third, "", false).await;
        assert_eq!(late.write(0, &[1; 4096]).await, 0);
        assert_eq!(early.read(0, 4096).await.unwrap(), [1; 4096]);
        drop(stalled);
        for server in servers {
            server.stop(&core).await;
        }
    };
    let all = async |core: Core| within(&core, Duration::from_secs(20), test(core.clone())).await;
    assert!(wattle_rt::run(config, all).unwrap().is_some(), "they are held back");
}
