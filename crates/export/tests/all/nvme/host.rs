//! A host that does exactly what a test says, down to the byte, and the target that it connects to.

use std::sync::Arc;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use wattle_engine::VolumeRef;
use wattle_engine::volume::qos::QosSite;
use wattle_export::nbd::Limits;
use wattle_export::nvme::{NvmeSecrets, NvmeServer, NvmeServerHandle, NvmeSubsystem, NvmeVolume};
use wattle_rt::{Buf, BufMut, Core, Listener, RuntimeConfig, Stream};

use crate::support::{MIB, volume, within};

pub const MOMENT: Duration = Duration::from_secs(5);
pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
pub const LOCAL: &str = "127.0.0.1";

/// What a test gets: a volume of 64 MiB at two addresses.
pub struct Rig {
    pub core: Core,
    pub subsystem: Arc<NvmeSubsystem>,
    pub ports: [u16; 2],
    pub servers: Vec<NvmeServerHandle>,
    pub volume: VolumeRef,
}

pub fn with_target(cores: usize, limits: Limits, test: impl AsyncFnOnce(Rig)) {
    with_guarded_target(cores, limits, None, test);
}

pub fn with_guarded_target(
    cores: usize,
    limits: Limits,
    secrets: Option<NvmeSecrets>,
    test: impl AsyncFnOnce(Rig),
) {
    let in_memory =
        async |core: &Core| QosSite::new(cores).govern(volume(core, "data", 64 * MIB, false).await);
    with_target_of(cores, limits, secrets, in_memory, test);
}

pub fn with_target_of(
    cores: usize,
    limits: Limits,
    secrets: Option<NvmeSecrets>,
    volume: impl AsyncFnOnce(&Core) -> VolumeRef,
    test: impl AsyncFnOnce(Rig),
) {
    let config = RuntimeConfig { cores, ..RuntimeConfig::default() };
    let run = async move |core: Core| {
        let volume = volume(&core).await;
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
    pub async fn admin(&self, port: usize, digests: u8) -> Host {
        let mut host = Host::dial(&self.core, self.ports[port], digests).await;
        host.connect(0, u16::MAX, self.subsystem.nqn(), 31, 0).await.unwrap();
        host.enable().await;
        host
    }

    pub async fn queue(&self, port: usize, controller: u16, number: u16, digests: u8, flags: u8) -> Host {
        let mut host = Host::dial(&self.core, self.ports[port], digests).await;
        host.flow_control = flags == 0;
        host.connect(number, controller, self.subsystem.nqn(), 63, flags).await.unwrap();
        host.nsid = self.nsid(port, digests).await;
        host
    }

    /// The admin queue and a queue of another host.
    pub async fn other_host(&self, port: usize, id: u8) -> (Host, Host) {
        let mut admin = Host::dial(&self.core, self.ports[port], 0).await;
        admin.id = id;
        admin.connect(0, u16::MAX, self.subsystem.nqn(), 31, 0).await.unwrap();
        admin.enable().await;
        let mut queue = Host::dial(&self.core, self.ports[port], 0).await;
        queue.id = id;
        queue.connect(1, admin.controller, self.subsystem.nqn(), 63, 0).await.unwrap();
        queue.nsid = self.nsid(port, 0).await;
        admin.nsid = queue.nsid;
        (admin, queue)
    }

    /// The NSID, asked for over a controller of its own.
    pub async fn nsid(&self, port: usize, digests: u8) -> u32 {
        let list = self.admin(port, digests).await.identify(2, 0).await.unwrap();
        u32::from_le_bytes(list[..4].try_into().unwrap())
    }
}

/// One queue of a host.
pub struct Host {
    pub core: Core,
    pub stream: Stream,
    pub received: Vec<u8>,
    pub header_digest: bool,
    pub data_digest: bool,
    pub flow_control: bool,
    pub controller: u16,
    pub must_prove: bool,
    pub nsid: u32,
    pub next_id: u16,
    /// Every byte of its identifier.
    pub id: u8,
}

/// A PDU of the controller: its kind, flags, header and data.
pub struct Pdu {
    pub kind: u8,
    pub flags: u8,
    pub header: Vec<u8>,
    pub data: Vec<u8>,
}

impl Host {
    /// Connects, and begins with digests: bit 0 of headers, bit 1 of data.
    pub async fn dial(core: &Core, port: u16, digests: u8) -> Self {
        Self::over(core, Stream::connect_tcp(LOCAL, port).unwrap(), digests).await
    }

    /// The same over a connection that there is.
    pub async fn over(core: &Core, stream: Stream, digests: u8) -> Self {
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
            id: 7,
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

    pub async fn send(&self, bytes: &[u8]) {
        let _ = self.core.send(&self.stream, vec![Buf::copy_of(bytes)]).await;
    }

    pub async fn exactly(&mut self, count: usize) -> Option<Vec<u8>> {
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
    pub fn pdu(&self, kind: u8, flags: u8, header: &[u8], data: &[u8]) -> Vec<u8> {
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

    pub async fn receive(&mut self) -> Option<Pdu> {
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

    pub fn command(&mut self, opcode: u8) -> [u8; 64] {
        let mut entry = [0; 64];
        entry[0] = opcode;
        entry[2..4].copy_from_slice(&self.next_id.to_le_bytes());
        entry[4..8].copy_from_slice(&self.nsid.to_le_bytes());
        self.next_id = self.next_id.wrapping_add(1);
        entry
    }

    pub async fn submit(&self, entry: &[u8; 64], data: &[u8]) {
        self.send(&self.pdu(4, 0, entry, data)).await;
    }

    /// The data and result of a command, or its status.
    pub async fn answer(&mut self) -> Result<(Vec<u8>, u64), u16> {
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

    pub async fn connect(
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
        data[..16].fill(self.id);
        data[16..18].copy_from_slice(&controller.to_le_bytes());
        data[256..256 + nqn.len()].copy_from_slice(nqn.as_bytes());
        data[512..512 + HOST.len()].copy_from_slice(HOST.as_bytes());
        self.submit(&entry, &data).await;
        let (_, result) = self.answer().await?;
        self.controller = result as u16;
        self.must_prove = result & 1 << 17 != 0;
        Ok(self.controller)
    }

    pub async fn set_property(&mut self, offset: u32, value: u32) -> Result<u64, u16> {
        let mut entry = self.command(0x7f);
        entry[4..8].fill(0);
        entry[44..48].copy_from_slice(&offset.to_le_bytes());
        entry[48..52].copy_from_slice(&value.to_le_bytes());
        self.submit(&entry, &[]).await;
        self.answer().await.map(|(_, result)| result)
    }

    pub async fn property(&mut self, offset: u32) -> Result<u64, u16> {
        let mut entry = self.command(0x7f);
        entry[4..8].copy_from_slice(&[4, 0, 0, 0]);
        entry[44..48].copy_from_slice(&offset.to_le_bytes());
        self.submit(&entry, &[]).await;
        self.answer().await.map(|(_, result)| result)
    }

    pub async fn enable(&mut self) {
        self.set_property(0x14, 0x0046_0001).await.unwrap();
    }

    pub async fn identify(&mut self, cns: u8, nsid: u32) -> Result<Vec<u8>, u16> {
        let mut entry = self.command(6);
        entry[4..8].copy_from_slice(&nsid.to_le_bytes());
        entry[32..36].copy_from_slice(&4096_u32.to_le_bytes());
        entry[39] = 0x5a;
        entry[40] = cns;
        self.submit(&entry, &[]).await;
        self.answer().await.map(|(data, _)| data)
    }

    /// A command for so many bytes of a log page.
    pub fn get_log(&mut self, page: u8, length: u32) -> [u8; 64] {
        let mut entry = self.command(2);
        entry[32..36].copy_from_slice(&length.to_le_bytes());
        entry[39] = 0x5a;
        entry[40] = page;
        let words = (length / 4 - 1).to_le_bytes();
        entry[42..44].copy_from_slice(&words[..2]);
        entry[44..46].copy_from_slice(&words[2..]);
        entry
    }

    pub async fn log(&mut self, page: u8, length: u32) -> Result<Vec<u8>, u16> {
        let entry = self.get_log(page, length);
        self.submit(&entry, &[]).await;
        self.answer().await.map(|(data, _)| data)
    }

    /// The same whose data is asked for.
    pub async fn reserve_when_asked(&mut self, opcode: u8, word: u32, keys: &[u64]) -> Result<(), u16> {
        let data: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
        let mut entry = self.command(opcode);
        entry[32..36].copy_from_slice(&(data.len() as u32).to_le_bytes());
        entry[39] = 0x5a;
        entry[40..44].copy_from_slice(&word.to_le_bytes());
        self.submit_when_asked(&entry, &data).await
    }

    /// A command whose data is sent once it is asked for.
    pub async fn submit_when_asked(&mut self, entry: &[u8; 64], data: &[u8]) -> Result<(), u16> {
        self.submit(entry, &[]).await;
        let ready = self.receive().await.unwrap();
        assert_eq!(ready.kind, 9);
        assert_eq!(ready.header[16..20], (data.len() as u32).to_le_bytes());
        self.send_part(&ready, 0, data, true).await;
        self.answer().await.map(drop)
    }

    /// An order about reservations: the word that says what, and its keys.
    pub async fn reserve(&mut self, opcode: u8, word: u32, keys: &[u64]) -> Result<(), u16> {
        let data: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
        let mut entry = self.command(opcode);
        entry[32..36].copy_from_slice(&(data.len() as u32).to_le_bytes());
        entry[39] = 1;
        entry[40..44].copy_from_slice(&word.to_le_bytes());
        self.submit(&entry, &data).await;
        self.answer().await.map(drop)
    }

    /// The report on them.
    pub async fn reservations(&mut self, length: u32, extended: u8) -> Result<Vec<u8>, u16> {
        let mut entry = self.command(0x0e);
        entry[32..36].copy_from_slice(&length.to_le_bytes());
        entry[39] = 0x5a;
        entry[40..44].copy_from_slice(&(length / 4 - 1).to_le_bytes());
        entry[44] = extended;
        self.submit(&entry, &[]).await;
        self.answer().await.map(|(data, _)| data)
    }

    pub async fn set_feature(&mut self, feature: u8, value: u32) -> Result<u64, u16> {
        self.feature(9, feature, value).await
    }

    /// Set Features or Get Features.
    pub async fn feature(&mut self, opcode: u8, feature: u8, value: u32) -> Result<u64, u16> {
        let mut entry = self.command(opcode);
        entry[40] = feature;
        entry[44..48].copy_from_slice(&value.to_le_bytes());
        self.submit(&entry, &[]).await;
        self.answer().await.map(|(_, result)| result)
    }

    /// A command on blocks; `kind` says where its data is.
    pub fn io(&mut self, opcode: u8, block: u64, length: usize, kind: u8) -> [u8; 64] {
        let mut entry = self.command(opcode);
        entry[32..36].copy_from_slice(&(length as u32).to_le_bytes());
        entry[39] = kind;
        entry[40..48].copy_from_slice(&block.to_le_bytes());
        entry[48..50].copy_from_slice(&((length / 512).max(1) as u16 - 1).to_le_bytes());
        entry
    }

    pub async fn write(&mut self, block: u64, data: &[u8]) -> Result<(), u16> {
        let entry = self.io(1, block, data.len(), 1);
        self.submit(&entry, data).await;
        self.answer().await.map(drop)
    }

    /// Writes what is asked for, in so many parts.
    pub async fn write_when_asked(&mut self, block: u64, data: &[u8], parts: usize) -> Result<(), u16> {
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

    pub async fn send_part(&self, ready: &Pdu, offset: usize, bytes: &[u8], is_last: bool) {
        let mut header = ready.header[8..12].to_vec();
        header.extend((offset as u32).to_le_bytes());
        header.extend((bytes.len() as u32).to_le_bytes());
        header.extend([0; 4]);
        self.send(&self.pdu(6, if is_last { 4 } else { 0 }, &header, bytes)).await;
    }

    pub async fn read(&mut self, block: u64, length: usize) -> Result<Vec<u8>, u16> {
        let entry = self.io(2, block, length, 0x5a);
        self.submit(&entry, &[]).await;
        self.answer().await.map(|(data, _)| data)
    }

    /// The target says why and closes.
    pub async fn is_ended(&mut self, status: u16) {
        let core = self.core.clone();
        let ended = async {
            let pdu = self.receive().await.expect("the target says why");
            assert_eq!((pdu.kind, pdu.header[8], pdu.header[9]), (3, status as u8, 0));
            assert!(self.receive().await.is_none());
        };
        within(&core, MOMENT, ended).await.expect("the target closes");
    }
}

impl Host {
    pub fn pdu_flush(&self) -> [u8; 64] {
        let mut entry = [0; 64];
        entry[2..4].copy_from_slice(&60_000_u16.to_le_bytes());
        entry[4..8].copy_from_slice(&self.nsid.to_le_bytes());
        entry
    }
}

impl Host {
    pub async fn send_proof(&mut self, message: &[u8]) -> Result<(), u16> {
        let mut entry = self.command(0x7f);
        entry[4..8].copy_from_slice(&[5, 0, 0, 0]);
        entry[32..36].copy_from_slice(&(message.len() as u32).to_le_bytes());
        (entry[39], entry[41], entry[42], entry[43]) = (1, 1, 1, 0xe9);
        self.submit(&entry, message).await;
        self.answer().await.map(drop)
    }

    pub async fn fetch_proof(&mut self) -> Result<Vec<u8>, u16> {
        let mut entry = self.command(0x7f);
        entry[4..8].copy_from_slice(&[6, 0, 0, 0]);
        entry[33] = 16;
        (entry[39], entry[41], entry[42], entry[43], entry[45]) = (0x5a, 1, 1, 0xe9, 16);
        self.submit(&entry, &[]).await;
        self.answer().await.map(|(data, _)| data)
    }

    /// The identifier of the last message: 3 for success.
    pub async fn prove(&mut self, subsystem: &str, key: &[u8]) -> u8 {
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

impl Rig {
    /// A controller whose admin queue stays connected until the test ends.
    pub async fn admin_kept(&self, port: usize) -> u16 {
        let admin = self.admin(port, 0).await;
        let controller = admin.controller;
        std::mem::forget(admin);
        controller
    }
}

/// The secret of [`HOST`] in the test: 32 times 7, with its checksum.
pub const SECRET: &str = "DHHC-1:00:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwfLJNij:";
