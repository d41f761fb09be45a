//! Clients that go while requests of theirs are under way, or held back by limits, and those that
//! come after them or go on beside them.

use std::time::Duration;

use wattle_engine::VolumeRef;
use wattle_engine::volume::qos::{QosLimits, QosRate, QosRates, QosScope, QosSite, QosUnit};
use wattle_export::nbd::protocol::{NbdRequest, command_flags, commands};
use wattle_export::nbd::{Export, Limits, NbdServer, NbdServerHandle};
use wattle_rt::{Core, Listener, RuntimeConfig};

use crate::support::held::holding_volume;
use crate::support::{Client, MIB, volume, within};

/// Two cores, so that the next client is on another one.
const CORES: usize = 2;
const MOMENT: Duration = Duration::from_millis(300);

/// Each client has a MiB a second.
pub fn limited() -> QosLimits {
    let mut client = QosRates::default();
    client.0[QosRate { unit: QosUnit::Bytes, scope: QosScope::All }.index()] = Some(MIB);
    QosLimits { client, ..QosLimits::default() }
}

struct Rig {
    core: Core,
    sockets: [std::path::PathBuf; 2],
    servers: Vec<NbdServerHandle>,
    volume: VolumeRef,
}

/// A volume with limits for each client, at two addresses.
fn with_a_limited_volume(test: impl AsyncFnOnce(Rig)) {
    let config = RuntimeConfig { cores: CORES, ..RuntimeConfig::default() };
    let run = async move |core: Core| {
        let volume = QosSite::new(CORES).govern(volume(&core, "data", 64 * MIB, false).await);
        volume.governed().unwrap().set(&core, limited()).await;
        let directory = tempfile::tempdir().unwrap();
        let sockets = ["one", "other"].map(|name| directory.path().join(name));
        let mut servers = Vec::new();
        for socket in &sockets {
            let export = Export { volume: volume.clone(), description: String::new() };
            let listener = Listener::unix(socket).unwrap();
            let limits = Limits { drain_time_max: MOMENT, ..Limits::default() };
            servers.push(NbdServer::start(&core, listener, vec![export], limits).await.unwrap());
        }
        let rig = Rig { core: core.clone(), sockets, servers, volume };
        within(&core, Duration::from_secs(60), test(rig)).await.expect("the test hangs");
    };
    wattle_rt::run(config, run).unwrap();
}

impl Rig {
    async fn client(&self, address: usize) -> Client {
        Client::connect(&self.core, &self.sockets[address], "data", false).await
    }

    /// Nothing is held back any more.
    async fn lift_limits(&self) {
        self.volume.governed().unwrap().set(&self.core, QosLimits::default()).await;
        self.core.sleep(MOMENT).await;
    }

    /// A client that asks for seven seconds of writes elsewhere, and for one at byte 0 behind them.
    async fn client_that_is_held_back(&self, byte: u8) -> Client {
        let client = self.client(0).await;
        for number in 0..7 {
            client.request(commands::WRITE, 0, number, (8 + number) * MIB, MIB as u32).await;
            client.send(&vec![byte; MIB as usize]).await;
        }
        client.request(commands::WRITE, 0, 99, 0, 4096).await;
        client.send(&[byte; 4096]).await;
        self.core.sleep(MOMENT).await;
        client
    }
}

#[test]
fn what_limits_hold_back_is_dropped_with_its_client() {
    with_a_limited_volume(async |rig: Rig| {
        for address in [0, 1] {
            let gone = rig.client_that_is_held_back(b'A').await;
            gone.stream.shutdown();
            drop(gone);
            let mut next = rig.client(address).await;
            assert_eq!(next.write(0, &[b'B'; 4096]).await, 0);
            assert_eq!(next.command(commands::FLUSH, 0, 0, 0).await, 0);
            rig.lift_limits().await;
            assert_eq!(next.read(0, 4096).await.unwrap(), [b'B'; 4096], "address {address}");
            rig.volume.governed().unwrap().set(&rig.core, limited()).await;
        }
    });
}

/// What came before a farewell is done, and others wait for it, whichever address they come to.
#[test]
fn what_came_before_a_farewell_is_done_before_the_next_client_begins() {
    with_a_limited_volume(async |rig: Rig| {
        let leaves = rig.client_that_is_held_back(b'A').await;
        leaves.request(commands::DISC, 0, 0, 0, 0).await;
        rig.core.sleep(MOMENT).await;
        let mut next = rig.client(1).await;
        let read = next.read(0, 4096);
        let core = rig.core.clone();
        let begins = async {
            core.sleep(MOMENT).await;
            rig.lift_limits().await;
        };
        let (data, ()) = both(read, begins).await;
        assert_eq!(data.unwrap(), [b'A'; 4096]);
        drop(leaves);
    });
}

/// A connection breaks with a write under way; its client repeats that over another one, as Linux
/// does at once, and goes on. The first write may be carried out long after.
#[test]
fn what_a_connection_left_behind_is_not_carried_out_over_what_its_siblings_write() {
    let config = RuntimeConfig { cores: CORES, ..RuntimeConfig::default() };
    let run = async move |core: Core| {
        let (volume, held) = holding_volume(&core, "data").await;
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd");
        let export = Export { volume, description: String::new() };
        let listener = Listener::unix(&socket).unwrap();
        let server = NbdServer::start(&core, listener, vec![export], Limits::default()).await.unwrap();
        let connect = async || Client::connect(&core, &socket, "data", false).await;
        let (first, mut sibling, mut reader) = (connect().await, connect().await, connect().await);
        first.request(commands::WRITE, 0, 0, 4096, 4096).await;
        first.send(&[b'A'; 4096]).await;
        while !held.has_come() {
            core.sleep(Duration::from_millis(1)).await;
        }
        first.stream.shutdown();
        core.sleep(MOMENT).await;
        assert_eq!(sibling.write(0, &[1; 4096]).await, 0, "beside it");
        assert_eq!(sibling.command(commands::FLUSH, 0, 0, 0).await, 0);
        let reads = within(&core, MOMENT, reader.read(0, 8192)).await;
        assert!(reads.is_none(), "what it reads may change without a write");
        let writes = within(&core, MOMENT, sibling.write(4096, &[b'B'; 4096])).await;
        assert!(writes.is_none(), "the old one may come over it");
        held.release();
        assert_eq!(sibling.simple().await, Some((4096, 0)));
        assert_eq!(sibling.read(4096, 4096).await.unwrap(), [b'B'; 4096]);
        drop((first, sibling, reader));
        within(&core, Duration::from_secs(5), server.stop(&core)).await.expect("it stops");
    };
    wattle_rt::run(config, run).unwrap();
}

/// A client sends a farewell behind writes that are not answered yet: they wait for none of
/// themselves.
#[test]
fn what_came_with_a_farewell_waits_only_for_what_was_there_before() {
    let config = RuntimeConfig { cores: CORES, ..RuntimeConfig::default() };
    let run = async move |core: Core| {
        let (volume, held) = holding_volume(&core, "data").await;
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd");
        let export = Export { volume: volume.clone(), description: String::new() };
        let listener = Listener::unix(&socket).unwrap();
        let _server = NbdServer::start(&core, listener, vec![export], Limits::default()).await.unwrap();
        let connect = async || Client::connect(&core, &socket, "data", false).await;
        let (first, mut leaves) = (connect().await, connect().await);
        first.request(commands::WRITE, 0, 0, 0, 4096).await;
        first.send(&[b'A'; 4096]).await;
        while !held.has_come() {
            core.sleep(Duration::from_millis(1)).await;
        }
        first.stream.shutdown();
        core.sleep(MOMENT).await;
        let request = |kind, length_bytes| {
            NbdRequest { flags: 0, kind, cookie: 5, offset_bytes: 0, length_bytes }.encode()
        };
        let write = [&request(commands::WRITE, 4096)[..], &[b'B'; 4096], &request(commands::DISC, 0)];
        leaves.send(&write.concat()).await;
        core.sleep(MOMENT).await;
        assert_eq!(volume.remains().count(), 2);
        held.release();
        let answer = within(&core, Duration::from_secs(5), leaves.simple()).await;
        assert_eq!(answer.expect("it is carried out"), Some((5, 0)));
        let mut next = connect().await;
        assert_eq!(next.read(0, 4096).await.unwrap(), [b'B'; 4096]);
    };
    wattle_rt::run(config, run).unwrap();
}

async fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other) = (Box::pin(one), Box::pin(other));
    match wattle_rt::race(&mut one, &mut other).await {
        wattle_rt::Either::First(first) => (first, other.await),
        wattle_rt::Either::Second(second) => (one.await, second),
    }
}

/// A volume that is to become something else is in use as long as a write to it may come.
#[test]
fn a_client_that_left_requests_under_way_counts() {
    with_a_limited_volume(async |rig: Rig| {
        let leaves = rig.client_that_is_held_back(b'A').await;
        let exports = rig.servers[0].exports();
        assert_eq!(exports.hide(&rig.core, "data").await, 1);
        leaves.request(commands::DISC, 0, 0, 0, 0).await;
        rig.core.sleep(MOMENT).await;
        for server in &rig.servers {
            assert_eq!(server.exports().hide(&rig.core, "data").await, 1, "at either address");
        }
        rig.lift_limits().await;
        assert_eq!(exports.hide(&rig.core, "data").await, 0);
        drop(leaves);
    });
}

/// Memory is shared by the volumes of a server.
#[test]
fn clients_that_are_held_back_leave_memory_to_others() {
    let config = RuntimeConfig::default();
    let run = async move |core: Core| {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd");
        let site = QosSite::new(1);
        let held = site.govern(volume(&core, "held", 64 * MIB, false).await);
        held.governed().unwrap().set(&core, limited()).await;
        let free = site.govern(volume(&core, "free", 64 * MIB, false).await);
        let exports = [&held, &free].map(|volume| Export { volume: volume.clone(), description: "".into() });
        let limits = Limits { shared_bytes_max: 64 * MIB, reserve_bytes: MIB, ..Limits::default() };
        let server = NbdServer::start(&core, Listener::unix(&socket).unwrap(), exports.into(), limits);
        let server = server.await.unwrap();
        let mut clients = Vec::new();
        for _ in 0..4 {
            let client = Client::connect(&core, &socket, "held", false).await;
            for number in 0..30 {
                client.request(commands::READ, 0, number, 0, 2 << 20).await;
            }
            clients.push(client);
        }
        core.sleep(MOMENT).await;
        let mut free = Client::connect(&core, &socket, "free", false).await;
        let read = within(&core, Duration::from_secs(1), free.read(0, 2 << 20));
        assert!(read.await.expect("there is memory for it").is_ok());
        drop((clients, free));
        within(&core, Duration::from_secs(5), server.stop(&core)).await.expect("it stops");
    };
    wattle_rt::run(config, run).unwrap();
}

/// A range of any length is zeroed and discarded to its last byte.
#[test]
fn long_ranges_are_done_whole() {
    const BYTES: u64 = 300 * MIB;
    let config = RuntimeConfig::default();
    let run = async move |core: Core| {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd");
        let export = Export { volume: volume(&core, "data", BYTES, false).await, description: "".into() };
        let listener = Listener::unix(&socket).unwrap();
        let _server = NbdServer::start(&core, listener, vec![export], Limits::default()).await.unwrap();
        let mut client = Client::connect(&core, &socket, "data", false).await;
        let (from, len) = (5 * MIB + 777, 280 * MIB + 12_345);
        let marks = [from - 1, from, from + 64 * MIB, from + 200 * MIB + 1, from + len - 1, from + len];
        for flags in [command_flags::NO_HOLE, command_flags::FUA] {
            for mark in marks {
                assert_eq!(client.write(mark, &[7]).await, 0);
            }
            assert_eq!(client.command(commands::WRITE_ZEROES, flags, from, len as u32).await, 0);
            for mark in marks {
                let kept = mark < from || mark >= from + len;
                assert_eq!(client.read(mark, 1).await.unwrap(), [if kept { 7 } else { 0 }], "{mark}");
            }
        }
        assert_eq!(client.command(commands::TRIM, 0, from, len as u32).await, 0);
    };
    wattle_rt::run(config, run).unwrap();
}
