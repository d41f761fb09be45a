//! A volume to serve and a client that does exactly what a test says, down to the byte.

pub mod held;
pub mod tls;

use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use wattle_engine::geometry::{Geometry, Level, Params};
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::Sector;
use wattle_engine::{ArrayHandle, ArraySpec, MemberSpec, VolumeRef};
use wattle_export::nbd::protocol::{self as proto, NbdRequest, options};
use wattle_export::nbd::{Export, Limits, NbdServer, NbdServerHandle};
use wattle_rt::{Buf, BufMut, Core, Device, Listener, RuntimeConfig, Stream};
use wattle_tls::ServerTls;

pub const MIB: u64 = 1 << 20;

/// What a test gets.
pub struct Rig {
    pub core: Core,
    pub socket: PathBuf,
    pub server: NbdServerHandle,
    _directory: tempfile::TempDir,
}

/// Runs a test against a server with these volumes.
pub fn with_server(
    cores: usize,
    limits: Limits,
    volumes: &'static [(&'static str, u64, bool)],
    test: impl AsyncFnOnce(Rig),
) {
    with_secured_server(cores, limits, volumes, None, test);
}

/// The same with TLS, if there is `tls`.
pub fn with_secured_server(
    cores: usize,
    limits: Limits,
    volumes: &'static [(&'static str, u64, bool)],
    tls: Option<Arc<ServerTls>>,
    test: impl AsyncFnOnce(Rig),
) {
    let config = RuntimeConfig { cores, ..RuntimeConfig::default() };
    let run = async move |core: Core| {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd");
        let mut exports = Vec::new();
        for (name, size_bytes, read_only) in volumes {
            let volume = volume(&core, name, *size_bytes, *read_only).await;
            exports.push(Export { volume, description: format!("volume {name}") });
        }
        let listener = Listener::unix(&socket).unwrap();
        let server = NbdServer::start_secured(&core, listener, exports, limits, tls).await.unwrap();
        let rig = Rig { core: core.clone(), socket, server, _directory: directory };
        within(&core, Duration::from_secs(60), test(rig)).await.expect("the test hangs");
    };
    wattle_rt::run(config, run).unwrap();
}

/// A RAID 0 of four members in memory.
pub async fn volume(core: &Core, name: &str, size_bytes: u64, read_only: bool) -> VolumeRef {
    volume_on(core, name, size_bytes, read_only, Device::mem).await
}

/// A RAID 0 of four members.
pub async fn volume_on(
    core: &Core,
    name: &str,
    size_bytes: u64,
    read_only: bool,
    drive: impl Fn(u64) -> Device,
) -> VolumeRef {
    const MEMBERS: u32 = 4;
    let member_bytes = size_bytes / u64::from(MEMBERS);
    let geometry = Geometry::new(&Params {
        level: Level::Raid0,
        layout: 0,
        chunk: Sector(128),
        raid_disks: MEMBERS,
        component_size: Sector(0),
        member_sizes: vec![Sector(member_bytes / 512); MEMBERS as usize],
    });
    let member = |_| MemberSpec::in_sync(drive(member_bytes), Sector(0));
    let spec = ArraySpec::new(name, geometry.unwrap(), (0..MEMBERS).map(member).collect());
    let spec = ArraySpec { read_only, ..spec };
    ArrayHandle::start(core, spec, Box::new(NoMetadata)).await.volume()
}

/// `None` if `future` takes longer.
pub async fn within<T>(core: &Core, time: Duration, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut sleep) = (pin!(future), pin!(core.sleep(time)));
    poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        sleep.as_mut().poll(context).map(|()| None)
    })
    .await
}

/// Bytes that differ from place to place.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// A client with a mind of its own.
pub struct Client {
    pub core: Core,
    pub stream: Stream,
    received: Vec<u8>,
}

impl Client {
    /// Connects and stays silent.
    pub fn dial(core: &Core, socket: &Path) -> Self {
        let stream = Stream::connect_unix(socket).unwrap();
        Self { core: core.clone(), stream, received: Vec::new() }
    }

    /// Connects and goes to an export.
    pub async fn connect(core: &Core, socket: &Path, name: &str, structured: bool) -> Self {
        let mut client = Self::dial(core, socket);
        client.greet().await;
        if structured {
            client.option(options::STRUCTURED_REPLY, &[]).await;
            assert_eq!(client.option_reply().await.1, proto::replies::ACK);
        }
        client.option(options::GO, &info_query(name)).await;
        while client.option_reply().await.1 != proto::replies::ACK {}
        client
    }

    pub async fn greet(&mut self) {
        assert_eq!(self.exactly(proto::GREETING_BYTES).await.unwrap(), proto::greeting());
        self.send(&[0, 0, 0, 3]).await;
    }

    /// Sends bytes; errors are for the next receive to find.
    pub async fn send(&self, bytes: &[u8]) {
        let _ = self.core.send(&self.stream, vec![Buf::copy_of(bytes)]).await;
    }

    /// Sends bytes without waiting for the server to take them: a server that is right may not,
    /// before its replies are taken.
    pub fn send_meanwhile(&self, bytes: &[u8]) {
        let (core, stream, bytes) = (self.core.clone(), self.stream.clone(), Buf::copy_of(bytes));
        self.core.spawn(async move { core.send(&stream, vec![bytes]).await });
    }

    /// The next `count` bytes; `None` if the server closes before.
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

    pub async fn option(&mut self, option: u32, data: &[u8]) {
        let mut bytes = proto::OPTION_MAGIC.to_be_bytes().to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        self.send(&bytes).await;
    }

    /// Option, kind and data of the next reply.
    pub async fn option_reply(&mut self) -> (u32, u32, Vec<u8>) {
        let head = self.exactly(20).await.expect("the server answers options");
        let field = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        assert_eq!(head[..8], proto::OPTION_REPLY_MAGIC.to_be_bytes());
        let data = self.exactly(field(16) as usize).await.unwrap();
        (field(8), field(12), data)
    }

    pub async fn request(&self, kind: u16, flags: u16, cookie: u64, offset_bytes: u64, length_bytes: u32) {
        let length_bytes = length_bytes.into();
        self.send(&NbdRequest { flags, kind, cookie, offset_bytes, length_bytes }.encode()).await;
    }

    /// Cookie and error of the next simple reply.
    pub async fn simple(&mut self) -> Option<(u64, u32)> {
        let head = self.exactly(16).await?;
        assert_eq!(head[..4], proto::SIMPLE_REPLY_MAGIC.to_be_bytes());
        Some((
            u64::from_be_bytes(head[8..].try_into().unwrap()),
            u32::from_be_bytes(head[4..8].try_into().unwrap()),
        ))
    }

    /// Cookie, type and payload of the next chunk, which must be the last of its reply.
    pub async fn chunk(&mut self) -> Option<(u64, u16, Vec<u8>)> {
        let head = self.exactly(20).await?;
        assert_eq!(head[..6], [0x66, 0x8e, 0x33, 0xef, 0, 1], "a final chunk");
        let kind = u16::from_be_bytes(head[6..8].try_into().unwrap());
        let cookie = u64::from_be_bytes(head[8..16].try_into().unwrap());
        let length = u32::from_be_bytes(head[16..].try_into().unwrap());
        Some((cookie, kind, self.exactly(length as usize).await?))
    }

    /// Writes and waits for the answer.
    pub async fn write(&mut self, offset: u64, data: &[u8]) -> u32 {
        self.request(proto::commands::WRITE, 0, offset, offset, data.len() as u32).await;
        self.send(data).await;
        let (cookie, error) = self.simple().await.expect("the server answers");
        assert_eq!(cookie, offset);
        error
    }

    /// Reads, without structured replies.
    pub async fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, u32> {
        self.request(proto::commands::READ, 0, offset, offset, length as u32).await;
        let (cookie, error) = self.simple().await.expect("the server answers");
        assert_eq!(cookie, offset);
        if error == 0 { Ok(self.exactly(length).await.unwrap()) } else { Err(error) }
    }

    /// Any request without data either way.
    pub async fn command(&mut self, kind: u16, flags: u16, offset: u64, length: u32) -> u32 {
        self.request(kind, flags, 77, offset, length).await;
        let (cookie, error) = self.simple().await.expect("the server answers");
        assert_eq!(cookie, 77);
        error
    }

    /// The server closes within `time`, whatever it sends before.
    pub async fn is_closed_within(&mut self, time: Duration) -> bool {
        let core = self.core.clone();
        within(&core, time, async { while self.exactly(1).await.is_some() {} }).await.is_some()
    }
}

/// `count` reads of `length_bytes`, one behind the other, with cookies from 0.
pub fn reads(count: u64, length_bytes: u32, stride_bytes: u64) -> Vec<u8> {
    let read = |cookie| NbdRequest {
        flags: 0,
        kind: proto::commands::READ,
        cookie,
        offset_bytes: cookie * stride_bytes,
        length_bytes: length_bytes.into(),
    };
    (0..count).flat_map(|cookie| read(cookie).encode()).collect()
}

/// Data of `INFO` and `GO`.
pub fn info_query(name: &str) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend([0, 0]);
    data
}
