//! The NVMe/TCP target against a host that does exactly what a test says, down to the byte.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use support::{MIB, pattern, volume, within};
use wattle_engine::VolumeRef;
use wattle_export::nbd::Limits;
use wattle_export::nvme::{
    DISCOVERY_NQN, NvmeNamespaces, NvmeSecrets, NvmeServer, NvmeServerHandle, NvmeSubsystem, NvmeVolume,
};
use wattle_rt::{Buf, BufMut, Core, Listener, RuntimeConfig, Stream};

const MOMENT: Duration = Duration::from_secs(5);
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
const LOCAL: &str = "127.0.0.1";

/// What a test gets: a volume of 64 MiB at two addresses.
struct Rig {
    core: Core,
    subsystem: Arc<NvmeSubsystem>,
    ports: [u16; 2],
    servers: Vec<NvmeServerHandle>,
    volume: VolumeRef,
}

fn with_target(cores: usize, limits: Limits, test: impl AsyncFnOnce(Rig)) {
    with_guarded_target(cores, limits, None, test);
}

fn with_guarded_target(
    cores: usize,
    limits: Limits,
    secrets: Option<NvmeSecrets>,
    test: impl AsyncFnOnce(Rig),
) {
    let config = RuntimeConfig { cores, ..RuntimeConfig::default() };
    let run = async move |core: Core| {
        let volume = volume(&core, "data", 64 * MIB, false).await;
        let subsystem = NvmeSubsystem::guarded("a test", secrets);
        let mut servers = Vec::new();
        let mut ports = [0; 2];
        for port in &mut ports {
            let listener = Listener::tcp(LOCAL, 0).unwrap();
            *port = listener.local_addr().unwrap().port();
            let volumes = vec![NvmeVolume { volume: volume.clone(), identity: "data's uuid".to_owned() }];
            let started = NvmeServer::start(&core, listener, subsystem.clone(), volumes, limits.clone());
            servers.push(started.await.unwrap());
        }
        let rig = Rig { core: core.clone(), subsystem, ports, servers, volume };
        within(&core, Duration::from_secs(60), test(rig)).await.expect("the test hangs");
    };
    wattle_rt::run(config, run).unwrap();
}

impl Rig {
    async fn admin(&self, port: usize, digests: u8) -> Host {
        let mut host = Host::dial(&self.core, self.ports[port], digests).await;
        host.connect(0, u16::MAX, self.subsystem.nqn(), 31, 0).await.unwrap();
        host.enable().await;
        host
    }

    async fn queue(&self, port: usize, controller: u16, number: u16, digests: u8, flags: u8) -> Host {
        let mut host = Host::dial(&self.core, self.ports[port], digests).await;
        host.flow_control = flags == 0;
        host.connect(number, controller, self.subsystem.nqn(), 63, flags).await.unwrap();
        host.nsid = self.nsid(port, digests).await;
        host
    }

    /// The NSID, asked for over a controller of its own.
    async fn nsid(&self, port: usize, digests: u8) -> u32 {
        let list = self.admin(port, digests).await.identify(2, 0).await.unwrap();
        u32::from_le_bytes(list[..4].try_into().unwrap())
    }
}

/// One queue of a host.
struct Host {
    core: Core,
    stream: Stream,
    received: Vec<u8>,
    header_digest: bool,
    data_digest: bool,
    flow_control: bool,
    controller: u16,
    must_prove: bool,
    nsid: u32,
    next_id: u16,
}

/// A PDU of the controller: its kind, flags, header and data.
struct Pdu {
    kind: u8,
    flags: u8,
    header: Vec<u8>,
    data: Vec<u8>,
}

impl Host {
    /// Connects, and begins with digests: bit 0 of headers, bit 1 of data.
    async fn dial(core: &Core, port: u16, digests: u8) -> Self {
        let stream = Stream::connect_tcp(LOCAL, port).unwrap();
        let mut host = Self {
            core: core.clone(),
            stream,
            received: Vec::new(),
            header_digest: false,
            data_digest: false,
            flow_control: true,
            controller: 0,
            must_prove: false,
            nsid: 0,
            next_id: 1,
        };
        let mut request = vec![0; 128];
        request[2] = 128;
        request[4] = 128;
        request[11] = digests;
        host.send(&request).await;
        let response = host.exactly(128).await.unwrap();
        assert_eq!((response[0], response[11]), (1, digests));
        host.header_digest = digests & 1 != 0;
        host.data_digest = digests & 2 != 0;
        host
    }

    async fn send(&self, bytes: &[u8]) {
        let _ = self.core.send(&self.stream, vec![Buf::copy_of(bytes)]).await;
    }

    async fn exactly(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.received.len() < count {
            let (got, buf) = self.core.recv(&self.stream, BufMut::alloc(1 << 20)).await;
            match got {
                Ok(0) | Err(_) => return None,
                Ok(got) => self.received.extend_from_slice(&buf[..got]),
            }
        }
        let rest = self.received.split_off(count);
        Some(std::mem::replace(&mut self.received, rest))
    }

    /// A PDU as a host sends it.
    fn pdu(&self, kind: u8, flags: u8, header: &[u8], data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind, flags, header.len() as u8 + 8, 0, 0, 0, 0, 0];
        bytes.extend(header);
        let start = bytes.len() + if self.header_digest { 4 } else { 0 };
        let has_data_digest = self.data_digest && !data.is_empty();
        let total = start + data.len() + if has_data_digest { 4 } else { 0 };
        bytes[1] |= u8::from(self.header_digest) | u8::from(has_data_digest) << 1;
        bytes[3] = if data.is_empty() { 0 } else { start as u8 };
        bytes[4..8].copy_from_slice(&(total as u32).to_le_bytes());
        if self.header_digest {
            bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        }
        bytes.extend(data);
        if has_data_digest {
            bytes.extend(crc32c::crc32c(data).to_le_bytes());
        }
        bytes
    }

    async fn receive(&mut self) -> Option<Pdu> {
        let common = self.exactly(8).await?;
        let (kind, flags, length) = (common[0], common[1], usize::from(common[2]));
        let total = u32::from_le_bytes(common[4..8].try_into().unwrap()) as usize;
        let mut header = common.clone();
        header.extend(self.exactly(length - 8).await?);
        let mut at = length;
        if kind != 3 && self.header_digest {
            assert_eq!(flags & 1, 1);
            assert_eq!(self.exactly(4).await?, crc32c::crc32c(&header).to_le_bytes());
            at += 4;
        }
        let has_data_digest = flags & 2 != 0;
        let data = self.exactly(total - at - if has_data_digest { 4 } else { 0 }).await?;
        if has_data_digest {
            assert_eq!(self.exactly(4).await?, crc32c::crc32c(&data).to_le_bytes());
        }
        Some(Pdu { kind, flags, header, data })
    }

    fn command(&mut self, opcode: u8) -> [u8; 64] {
        let mut entry = [0; 64];
        entry[0] = opcode;
        entry[2..4].copy_from_slice(&self.next_id.to_le_bytes());
        entry[4..8].copy_from_slice(&self.nsid.to_le_bytes());
        self.next_id = self.next_id.wrapping_add(1);
        entry
    }

    async fn submit(&self, entry: &[u8; 64], data: &[u8]) {
        self.send(&self.pdu(4, 0, entry, data)).await;
    }

    /// The data and result of a command, or its status.
    async fn answer(&mut self) -> Result<(Vec<u8>, u64), u16> {
        let mut data = Vec::new();
        loop {
            let pdu = self.receive().await.expect("the target answers");
            match pdu.kind {
                7 => {
                    assert_eq!(pdu.flags & 8 != 0, !self.flow_control, "whether a response follows");
                    data = pdu.data;
                    if !self.flow_control {
                        return Ok((data, 0));
                    }
                }
                5 => {
                    let status = u16::from_le_bytes(pdu.header[22..24].try_into().unwrap()) >> 1;
                    let result = u64::from_le_bytes(pdu.header[8..16].try_into().unwrap());
                    return if status == 0 { Ok((data, result)) } else { Err(status & 0x3fff) };
                }
                kind => panic!("PDU {kind}"),
            }
        }
    }

    async fn connect(
        &mut self,
        queue: u16,
        controller: u16,
        nqn: &str,
        last_entry: u16,
        flags: u8,
    ) -> Result<u16, u16> {
        let mut entry = self.command(0x7f);
        entry[4..8].copy_from_slice(&[1, 0, 0, 0]);
        entry[32..36].copy_from_slice(&1024_u32.to_le_bytes());
        entry[39] = 1;
        entry[42..44].copy_from_slice(&queue.to_le_bytes());
        entry[44..46].copy_from_slice(&last_entry.to_le_bytes());
        entry[46] = flags;
        let mut data = vec![0; 1024];
        data[..16].fill(7);
        data[16..18].copy_from_slice(&controller.to_le_bytes());
        data[256..256 + nqn.len()].copy_from_slice(nqn.as_bytes());
        data[512..512 + HOST.len()].copy_from_slice(HOST.as_bytes());
        self.submit(&entry, &data).await;
        let (_, result) = self.answer().await?;
        self.controller = result as u16;
        self.must_prove = result & 1 << 17 != 0;
        Ok(self.controller)
    }

    async fn set_property(&mut self, offset: u32, value: u32) -> Result<u64, u16> {
        let mut entry = self.command(0x7f);
        entry[4..8].fill(0);
        entry[44..48].copy_from_slice(&offset.to_le_bytes());
        entry[48..52].copy_from_slice(&value.to_le_bytes());
        self.submit(&entry, &[]).await;
        self.answer().await.map(|(_, result)| result)
    }

    async fn enable(&mut self) {
        self.set_property(0x14, 0x0046_0001).await.unwrap();
    }

    async fn identify(&mut self, cns: u8, nsid: u32) -> Result<Vec<u8>, u16> {
        let mut entry = self.command(6);
        entry[4..8].copy_from_slice(&nsid.to_le_bytes());
        entry[32..36].copy_from_slice(&4096_u32.to_le_bytes());
        entry[39] = 0x5a;
        entry[40] = cns;
        self.submit(&entry, &[]).await;
        self.answer().await.map(|(data, _)| data)
    }

    async fn log(&mut self, page: u8, length: u32) -> Result<Vec<u8>, u16> {
        let mut entry = self.command(2);
        entry[32..36].copy_from_slice(&length.to_le_bytes());
        entry[39] = 0x5a;
        entry[40] = page;
        entry[42..44].copy_from_slice(&((length / 4 - 1) as u16).to_le_bytes());
        self.submit(&entry, &[]).await;
        self.answer().await.map(|(data, _)| data)
    }

    async fn set_feature(&mut self, feature: u8, value: u32) -> Result<u64, u16> {
        let mut entry = self.command(9);
        entry[40] = feature;
        entry[44..48].copy_from_slice(&value.to_le_bytes());
        self.submit(&entry, &[]).await;
        self.answer().await.map(|(_, result)| result)
    }

    /// A command on blocks; `kind` says where its data is.
    fn io(&mut self, opcode: u8, block: u64, length: usize, kind: u8) -> [u8; 64] {
        let mut entry = self.command(opcode);
        entry[32..36].copy_from_slice(&(length as u32).to_le_bytes());
        entry[39] = kind;
        entry[40..48].copy_from_slice(&block.to_le_bytes());
        entry[48..50].copy_from_slice(&((length / 512).max(1) as u16 - 1).to_le_bytes());
        entry
    }

    async fn write(&mut self, block: u64, data: &[u8]) -> Result<(), u16> {
        let entry = self.io(1, block, data.len(), 1);
        self.submit(&entry, data).await;
        self.answer().await.map(drop)
    }

    /// Writes what is asked for, in so many parts.
    async fn write_when_asked(&mut self, block: u64, data: &[u8], parts: usize) -> Result<(), u16> {
        let entry = self.io(1, block, data.len(), 0x5a);
        self.submit(&entry, &[]).await;
        let ready = self.receive().await.unwrap();
        assert_eq!(ready.kind, 9);
        assert_eq!(ready.header[16..20], (data.len() as u32).to_le_bytes());
        let part = data.len() / parts;
        for (ix, bytes) in data.chunks(part).enumerate() {
            self.send_part(&ready, ix * part, bytes, (ix + 1) * part >= data.len()).await;
        }
        self.answer().await.map(drop)
    }

    async fn send_part(&self, ready: &Pdu, offset: usize, bytes: &[u8], is_last: bool) {
        let mut header = ready.header[8..12].to_vec();
        header.extend((offset as u32).to_le_bytes());
        header.extend((bytes.len() as u32).to_le_bytes());
        header.extend([0; 4]);
        self.send(&self.pdu(6, if is_last { 4 } else { 0 }, &header, bytes)).await;
    }

    async fn read(&mut self, block: u64, length: usize) -> Result<Vec<u8>, u16> {
        let entry = self.io(2, block, length, 0x5a);
        self.submit(&entry, &[]).await;
        self.answer().await.map(|(data, _)| data)
    }

    /// The target says why and closes.
    async fn is_ended(&mut self, status: u16) {
        let core = self.core.clone();
        let ended = async {
            let pdu = self.receive().await.expect("the target says why");
            assert_eq!((pdu.kind, pdu.header[8], pdu.header[9]), (3, status as u8, 0));
            assert!(self.receive().await.is_none());
        };
        within(&core, MOMENT, ended).await.expect("the target closes");
    }
}

#[test]
fn data_survives_with_and_without_digests_in_the_capsule_and_when_asked_for() {
    with_target(2, Limits::default(), async |rig| {
        for digests in 0..4 {
            let admin = rig.admin(0, digests).await;
            for flags in [0, 4] {
                let mut queue = rig.queue(0, admin.controller, 1 + u16::from(flags), digests, flags).await;
                for (seed, length) in [(1, 512), (2, 4096), (3, 100 << 10), (4, 256 << 10)] {
                    let data = pattern(seed + u64::from(digests) * 8, length);
                    queue.write(seed * 4096, &data).await.unwrap();
                    assert!(queue.read(seed * 4096, length).await.unwrap() == data, "{length}");
                }
                for (seed, length, parts) in
                    [(5, 4096, 1), (6, 1 << 20, 1), (7, 1 << 20, 4), (8, 1 << 20, 16)]
                {
                    let data = pattern(seed, length);
                    queue.write_when_asked(seed * 4096, &data, parts).await.unwrap();
                    assert!(queue.read(seed * 4096, length).await.unwrap() == data, "{length}");
                }
                queue.submit(&queue.pdu_flush(), &[]).await;
                queue.answer().await.unwrap();
            }
        }
    });
}

impl Host {
    fn pdu_flush(&self) -> [u8; 64] {
        let mut entry = [0; 64];
        entry[2..4].copy_from_slice(&60_000_u16.to_le_bytes());
        entry[4..8].copy_from_slice(&self.nsid.to_le_bytes());
        entry
    }
}

#[test]
fn zeroes_are_written_and_ranges_discarded() {
    with_target(1, Limits::default(), async |rig| {
        let admin = rig.admin(0, 0).await;
        let mut queue = rig.queue(0, admin.controller, 1, 0, 0).await;
        queue.write(0, &pattern(1, 8192)).await.unwrap();
        let mut zeroes = queue.io(8, 8, 4096, 0);
        zeroes[32..40].fill(0);
        queue.submit(&zeroes, &[]).await;
        queue.answer().await.unwrap();
        assert!(queue.read(0, 4096).await.unwrap() == pattern(1, 8192)[..4096]);
        assert!(queue.read(8, 4096).await.unwrap() == vec![0; 4096]);
        let mut discard = queue.command(9);
        discard[32..36].copy_from_slice(&4096_u32.to_le_bytes());
        discard[39] = 1;
        discard[40] = 1;
        discard[44] = 4;
        let mut ranges = vec![0; 4096];
        ranges[4..8].copy_from_slice(&2048_u32.to_le_bytes());
        ranges[24..32].copy_from_slice(&(64 * MIB / 512).to_le_bytes());
        queue.submit(&discard, &ranges).await;
        assert_eq!(queue.answer().await.err(), None, "a range without blocks ends at the end");
        ranges[20] = 1;
        discard[2] = 200;
        queue.submit(&discard, &ranges).await;
        assert_eq!(queue.answer().await.unwrap_err() & 0xfff, 0x80);
    });
}

#[test]
fn two_addresses_are_two_paths_to_one_namespace() {
    with_target(2, Limits::default(), async |rig| {
        let (mut one, mut other) = (rig.admin(0, 0).await, rig.admin(1, 0).await);
        assert_ne!(one.controller, other.controller);
        let nsid = rig.nsid(0, 0).await;
        assert_eq!(rig.nsid(1, 0).await, nsid);
        let described = one.identify(3, nsid).await.unwrap();
        assert_eq!(other.identify(3, nsid).await.unwrap(), described);
        assert_eq!(one.identify(0, nsid).await.unwrap()[..4], (64 * MIB as u32 / 512).to_le_bytes());
        let ana = one.log(0x0c, 52).await.unwrap();
        assert_eq!((ana[8], ana[32]), (1, 1));
        assert_eq!(ana[48..52], nsid.to_le_bytes());
        // What is written by one path is read by the other.
        let mut queue = rig.queue(0, one.controller, 1, 0, 0).await;
        queue.write(0, &pattern(3, 4096)).await.unwrap();
        let mut queue = rig.queue(1, other.controller, 1, 0, 0).await;
        assert!(queue.read(0, 4096).await.unwrap() == pattern(3, 4096));
        // Both are found at each.
        let mut discovery = Host::dial(&rig.core, rig.ports[1], 0).await;
        discovery.connect(0, u16::MAX, DISCOVERY_NQN, 31, 0).await.unwrap();
        discovery.enable().await;
        let log = discovery.log(0x70, 4096).await.unwrap();
        assert_eq!(log[8], 3);
        for (entry, port) in [(2, rig.ports[0]), (3, rig.ports[1])] {
            let text = format!("{port:<32}");
            assert_eq!(&log[entry * 1024 + 32..entry * 1024 + 64], text.as_bytes());
        }
    });
}

#[test]
fn a_host_hears_of_namespaces_that_come_and_go() {
    with_target(2, Limits::default(), async |rig| {
        let mut admin = rig.admin(0, 0).await;
        admin.set_feature(0x0b, 1 << 8).await.unwrap();
        let request = admin.command(0x0c);
        admin.submit(&request, &[]).await;
        let namespaces: NvmeNamespaces = rig.servers[0].namespaces();
        let more = volume(&rig.core, "more", 16 * MIB, true).await;
        namespaces.add(&rig.core, NvmeVolume { volume: more, identity: "more's".to_owned() }).await.unwrap();
        let (_, result) = admin.answer().await.unwrap();
        assert_eq!(result, 0x04_0002);
        let changed = admin.log(4, 4096).await.unwrap();
        let list = admin.identify(2, 0).await.unwrap();
        let nsids: Vec<u32> =
            list.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).take(3).collect();
        let new = u32::from_le_bytes(changed[..4].try_into().unwrap());
        assert!(nsids.contains(&new) && nsids[1] > 0 && nsids[2] == 0, "{nsids:?} {new}");
        // It is only read.
        let mut queue = rig.queue(0, admin.controller, 1, 0, 0).await;
        queue.nsid = new;
        assert_eq!(queue.write(0, &[1; 512]).await.unwrap_err() & 0xfff, 0x20);
        let request = admin.command(0x0c);
        admin.submit(&request, &[]).await;
        assert_eq!(namespaces.hide(&rig.core, "more").await, 1, "one host has it");
        queue.read(0, 512).await.expect("it goes on using it");
        namespaces.remove(&rig.core, "more").await;
        admin.answer().await.unwrap();
        assert_eq!(queue.read(0, 512).await.unwrap_err() & 0xfff, 0x0b);
        assert!(rig.volume.open(&rig.core).is_ok());
    });
}

#[test]
fn what_is_no_protocol_ends_the_connection_and_no_other() {
    with_target(2, Limits::default(), async |rig| {
        let admin = rig.admin(0, 0).await;
        let mut good = rig.queue(0, admin.controller, 1, 0, 0).await;
        let dial = async || Host::dial(&rig.core, rig.ports[0], 0).await;
        // Another kind, a wrong length of the header, data beyond all bounds, a second beginning.
        for (bytes, status) in [
            ([9, 0, 24, 0, 24, 0, 0, 0], 1),
            ([4, 0, 71, 0, 72, 0, 0, 0], 1),
            ([4, 0, 72, 72, 0xff, 0xff, 0xff, 0x7f], 5),
            ([4, 0, 72, 0, 8, 0, 0, 0], 1),
        ] {
            let mut host = dial().await;
            host.send(&bytes).await;
            host.is_ended(status).await;
        }
        let mut host = dial().await;
        let mut again = vec![0; 128];
        again[2] = 128;
        again[4] = 128;
        host.send(&again).await;
        host.is_ended(2).await;
        // Data that none asked for; data beyond what was asked for; out of its order.
        let mut queue = rig.queue(0, admin.controller, 2, 0, 0).await;
        queue.send(&queue.pdu(6, 4, &[1, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0], &[0; 512])).await;
        queue.is_ended(1).await;
        for (offset, length, last) in [(0, 8192, true), (512, 512, false), (0, 4096, false), (0, 512, true)] {
            let mut queue = rig.queue(0, admin.controller, 3, 0, 0).await;
            let entry = queue.io(1, 0, 4096, 0x5a);
            queue.submit(&entry, &[]).await;
            let ready = queue.receive().await.unwrap();
            queue.send_part(&ready, offset, &vec![0; length], last).await;
            queue.is_ended(4).await;
            drop(queue);
            rig.core.sleep(Duration::from_millis(20)).await;
        }
        good.write(0, &[1; 4096]).await.unwrap();
        // A queue of a controller that there is not; a second one of the same number.
        assert_eq!(dial().await.connect(1, 7, rig.subsystem.nqn(), 63, 0).await.unwrap_err() & 0xfff, 0x182);
        let taken = dial().await.connect(1, admin.controller, rig.subsystem.nqn(), 63, 0).await;
        assert_eq!(taken.unwrap_err(), 0x181);
        assert_eq!(dial().await.connect(0, u16::MAX, "nqn.other", 31, 0).await.unwrap_err() & 0xfff, 0x182);
        // More commands than the queue has entries.
        let mut host = dial().await;
        host.connect(0, u16::MAX, rig.subsystem.nqn(), 1, 0).await.unwrap();
        host.enable().await;
        for _ in 0..3 {
            let request = host.command(0x0c);
            host.submit(&request, &[]).await;
        }
        host.is_ended(5).await;
        good.read(0, 4096).await.unwrap();
    });
}

#[test]
fn damaged_data_is_not_written_and_a_damaged_header_ends_the_connection() {
    with_target(1, Limits::default(), async |rig| {
        let admin = rig.admin(0, 3).await;
        let mut queue = rig.queue(0, admin.controller, 1, 3, 0).await;
        queue.write(0, &[1; 4096]).await.unwrap();
        let entry = queue.io(1, 0, 4096, 1);
        let mut bytes = queue.pdu(4, 0, &entry, &[2; 4096]);
        bytes[1000] ^= 1;
        queue.send(&bytes).await;
        assert_eq!(queue.answer().await.unwrap_err(), 0x22);
        assert!(queue.read(0, 4096).await.unwrap() == [1; 4096]);
        let entry = queue.io(2, 0, 4096, 0x5a);
        let mut bytes = queue.pdu(4, 0, &entry, &[]);
        bytes[50] ^= 1;
        queue.send(&bytes).await;
        queue.is_ended(3).await;
    });
}

#[test]
fn a_controller_ends_with_its_admin_queue_and_when_its_host_is_silent() {
    with_target(2, Limits::default(), async |rig| {
        let admin = rig.admin(0, 0).await;
        let mut queue = rig.queue(0, admin.controller, 1, 0, 0).await;
        queue.write(0, &[1; 512]).await.unwrap();
        admin.stream.shutdown();
        drop(admin);
        assert!(within(&rig.core, MOMENT, queue.receive()).await.expect("it is closed").is_none());
        // One second, rounded up by one.
        let mut admin = rig.admin(0, 0).await;
        admin.set_feature(0x0f, 1).await.unwrap();
        let mut queue = rig.queue(0, admin.controller, 1, 0, 0).await;
        rig.core.sleep(Duration::from_millis(1200)).await;
        let alive = admin.command(0x18);
        admin.submit(&alive, &[]).await;
        admin.answer().await.unwrap();
        rig.core.sleep(Duration::from_millis(1200)).await;
        queue.read(0, 512).await.unwrap();
        assert!(within(&rig.core, MOMENT, queue.receive()).await.expect("it is closed").is_none());
        assert!(within(&rig.core, MOMENT, admin.receive()).await.expect("it is closed").is_none());
    });
}

#[test]
fn hosts_that_go_in_the_middle_and_ones_that_take_nothing_hold_up_no_other() {
    let limits = Limits { drain_time_max: Duration::from_millis(200), ..Limits::default() };
    with_target(2, limits, async |rig| {
        let admin = rig.admin(0, 0).await;
        // In the middle of data; with a write that was asked for; with reads that are not taken.
        let mut cut = rig.queue(0, admin.controller, 1, 0, 0).await;
        let entry = cut.io(1, 0, 65536, 1);
        let bytes = cut.pdu(4, 0, &entry, &[9; 65536]);
        cut.send(&bytes[..30_000]).await;
        drop(cut);
        let mut asked = rig.queue(0, admin.controller, 2, 0, 0).await;
        for block in 0..16 {
            let entry = asked.io(1, block * 2048, 1 << 20, 0x5a);
            asked.submit(&entry, &[]).await;
        }
        let mut greedy = rig.queue(0, admin.controller, 3, 0, 0).await;
        for block in 0..60 {
            let entry = greedy.io(2, block * 2048, 1 << 20, 0x5a);
            greedy.submit(&entry, &[]).await;
        }
        let mut good = rig.queue(1, rig.admin_kept(1).await, 1, 0, 0).await;
        for block in 0..32 {
            good.write(block * 8, &pattern(block, 4096)).await.unwrap();
        }
        // Only as much is asked for as there is room for.
        let mut ready = 0;
        while let Some(Some(pdu)) = within(&rig.core, Duration::from_millis(100), asked.receive()).await {
            assert_eq!(pdu.kind, 9);
            ready += 1;
        }
        assert_eq!(ready, 4);
        drop(asked);
        for server in rig.servers {
            within(&rig.core, MOMENT, server.stop(&rig.core)).await.expect("it stops");
        }
        assert!(good.receive().await.is_none());
    });
}

impl Rig {
    /// A controller whose admin queue stays connected until the test ends.
    async fn admin_kept(&self, port: usize) -> u16 {
        let admin = self.admin(port, 0).await;
        let controller = admin.controller;
        std::mem::forget(admin);
        controller
    }
}

#[test]
fn addresses_are_those_where_it_listens() {
    with_target(1, Limits::default(), async |rig| {
        let address: SocketAddr = format!("{LOCAL}:{}", rig.ports[0]).parse().unwrap();
        assert!(address.ip().is_loopback());
        assert_eq!(rig.servers[0].connections(), 0);
        let _admin = rig.admin(0, 0).await;
        assert_eq!(rig.servers[0].connections(), 1);
    });
}

/// The secret of [`HOST`] in the test: 32 times 7, with its checksum.
const SECRET: &str = "DHHC-1:00:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwfLJNij:";

impl Host {
    async fn send_proof(&mut self, message: &[u8]) -> Result<(), u16> {
        let mut entry = self.command(0x7f);
        entry[4..8].copy_from_slice(&[5, 0, 0, 0]);
        entry[32..36].copy_from_slice(&(message.len() as u32).to_le_bytes());
        (entry[39], entry[41], entry[42], entry[43]) = (1, 1, 1, 0xe9);
        self.submit(&entry, message).await;
        self.answer().await.map(drop)
    }

    async fn fetch_proof(&mut self) -> Result<Vec<u8>, u16> {
        let mut entry = self.command(0x7f);
        entry[4..8].copy_from_slice(&[6, 0, 0, 0]);
        entry[33] = 16;
        (entry[39], entry[41], entry[42], entry[43], entry[45]) = (0x5a, 1, 1, 0xe9, 16);
        self.submit(&entry, &[]).await;
        self.answer().await.map(|(data, _)| data)
    }

    /// The identifier of the last message: 3 for success.
    async fn prove(&mut self, subsystem: &str, key: &[u8]) -> u8 {
        let mut offer = vec![0; 72];
        (offer[4], offer[7], offer[8], offer[10], offer[11], offer[12]) = (3, 1, 1, 1, 1, 1);
        self.send_proof(&offer).await.unwrap();
        let challenge = self.fetch_proof().await.unwrap();
        assert_eq!((challenge[1], challenge[6], challenge[8]), (1, 32, 1));
        let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        let parts = [&challenge[16..48], &challenge[12..16], &challenge[4..6], &[0], b"HostHost"];
        parts
            .into_iter()
            .chain([HOST.as_bytes(), &[0], subsystem.as_bytes()])
            .for_each(|part| mac.update(part));
        let mut reply = vec![1, 2, 0, 0, 3, 0, 32, 0, 0, 0, 0, 0];
        reply.extend(&challenge[12..16]);
        reply.extend(mac.finalize().into_bytes());
        self.send_proof(&reply).await.unwrap();
        self.fetch_proof().await.unwrap()[1]
    }
}

#[test]
fn a_host_gets_nowhere_before_it_has_proved_who_it_is() {
    let secrets = NvmeSecrets::parse(&format!("{HOST} {SECRET}")).unwrap();
    let limits = Limits { handshake_time_max: Duration::from_secs(2), ..Limits::default() };
    with_guarded_target(2, limits, Some(secrets), async |rig| {
        let nqn = rig.subsystem.nqn();
        let dial = async || {
            let mut host = Host::dial(&rig.core, rig.ports[0], 0).await;
            host.connect(0, u16::MAX, nqn, 31, 0).await.unwrap();
            assert!(host.must_prove);
            host
        };
        let mut stranger = dial().await;
        assert_eq!(stranger.set_property(0x14, 0x0046_0001).await.unwrap_err() & 0xfff, 0x191);
        assert_eq!(stranger.identify(1, 0).await.unwrap_err() & 0xfff, 0x191);
        assert_eq!(stranger.prove(nqn, &[8; 32]).await, 0xf0);
        assert_eq!(stranger.identify(1, 0).await.unwrap_err() & 0xfff, 0x191);
        assert!(within(&rig.core, MOMENT, stranger.receive()).await.expect("it is closed").is_none());
        let mut admin = dial().await;
        assert_eq!(admin.prove(nqn, &[7; 32]).await, 3);
        admin.enable().await;
        let list = admin.identify(2, 0).await.unwrap();
        // Each queue for itself.
        let mut queue = Host::dial(&rig.core, rig.ports[0], 0).await;
        queue.connect(1, admin.controller, nqn, 63, 0).await.unwrap();
        queue.nsid = u32::from_le_bytes(list[..4].try_into().unwrap());
        assert_eq!(queue.read(0, 512).await.unwrap_err() & 0xfff, 0x191);
        assert_eq!(queue.prove(nqn, &[7; 32]).await, 3);
        queue.write(0, &[5; 512]).await.unwrap();
        assert!(queue.read(0, 512).await.unwrap() == [5; 512]);
        // Where the subsystem is, everybody may know.
        let mut discovery = Host::dial(&rig.core, rig.ports[1], 0).await;
        discovery.connect(0, u16::MAX, DISCOVERY_NQN, 31, 0).await.unwrap();
        assert!(!discovery.must_prove);
    });
}
