//! Devices that are no drives: tasks carry out their operations. So a volume can be a member, and a
//! server across a network a drive, and no layer above sees a difference.

use crate::base::error::IoError;
use crate::device::{BlockGeometry, Device, DeviceInner, Hosted, Kind};
use crate::executor::core::{Core, JoinHandle};
use crate::executor::handle::CoreHandle;
use crate::memory::buf::{Buf, BufMut};
use crate::op::{Bufs, Durability, Op, Transfer, Unmap};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A task that carries out an operation, and what it comes to.
pub type Reply<T> = Pin<Box<dyn Future<Output = T>>>;

/// Carries out the operations of a device ([`crate::Device::served`]), on whichever core asks. The
/// range was checked against the device's size and whether it may be written.
///
/// An answer that is dropped, because the runtime ends, may leave a write half done, like a drive
/// that loses power.
pub trait Serve: Send + Sync + 'static {
    /// Fills `buf` from `offset` (bytes). The buffer comes back either way.
    fn read(&self, core: &Core, offset: u64, buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)>;

    /// Writes `buf` at `offset` (bytes). What is only read leaves it out.
    fn write(
        &self,
        core: &Core,
        offset: u64,
        buf: Buf,
        durability: Durability,
    ) -> Reply<Result<(), IoError>> {
        let _ = (core, offset, buf, durability);
        Box::pin(std::future::ready(Err(IoError::READ_ONLY)))
    }

    /// Makes durable what was written before.
    fn flush(&self, core: &Core) -> Reply<Result<(), IoError>>;

    /// Makes a range read as zeros, or answers [`IoError::UNSUPPORTED`]. What is only read leaves
    /// it out.
    fn write_zeroes(&self, core: &Core, offset: u64, len: u64, unmap: Unmap) -> Reply<Result<(), IoError>> {
        let _ = (core, offset, len, unmap);
        Box::pin(std::future::ready(Err(IoError::READ_ONLY)))
    }

    /// The connection behind the device, if it lies across a network.
    fn link(&self) -> Option<&dyn Link> {
        None
    }
}

/// The connection behind a device across a network, for the layer that can do without the device
/// for a while.
pub trait Link: Send + Sync {
    /// How it is now; `None` once the runtime of its core has ended.
    fn look(&self, core: &Core) -> Reply<Option<LinkState>>;

    /// Ends the device: every request fails with [`IoError::GONE`] from now on. The connection
    /// itself stays until the server has answered what was sent over it.
    fn give_up(&self, core: &Core) -> Reply<()>;

    /// Whether reads go by all paths in turn, or by one only.
    fn take_turns(&self, core: &Core, on: bool) -> Reply<()>;

    /// One attempt to connect again, after the device has ended: what is there now as a new device,
    /// which knows nothing of what the old one was sent. Whether it is the same drive, the caller
    /// has to tell.
    fn reopen(&self, core: &Core) -> Reply<Result<Device, ReopenError>>;

    /// The device that took its place, if it was connected to again.
    fn next(&self, core: &Core) -> Reply<Option<Device>> {
        let _ = core;
        Box::pin(std::future::ready(None))
    }
}

/// How a [`Link`] is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkState {
    /// How long the request that waits longest has waited beyond what the amount of data under way
    /// accounts for, or how long there has been no connection.
    pub overdue: Duration,
    /// Why every request fails; `None` while the device is in use.
    pub ended: Option<IoError>,
    /// How what the server offers now differs from the device, if that ended it.
    pub changed: Option<&'static str>,
    /// No server can carry out any request of it any more.
    pub settled: bool,
    /// The ways to the drive, in order.
    pub paths: Vec<LinkPath>,
}

/// One way to a drive across a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkPath {
    /// Its address.
    pub name: String,
    /// How it is.
    pub state: PathState,
    /// How often it was lost, or was too slow to answer.
    pub failures: u64,
}

/// How a way to a drive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathState {
    /// Requests go this way.
    InUse,
    /// It answered the last time, and is not needed.
    Ready,
    /// It did not answer the last time.
    Failed,
}

/// Why a drive across a network cannot be had again, for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReopenError {
    /// No connection.
    #[error("no connection: {0}")]
    Connection(IoError),
    /// The server accepts the connection and does not go on.
    #[error("the server does not answer")]
    Silent,
    /// The server does not offer the drive any more.
    #[error("the server does not offer it")]
    Refused,
    /// The server is not trusted, or does not trust this side.
    #[error("TLS: {0}")]
    Tls(&'static str),
    /// The server answers, but may still carry out requests of an older connection.
    #[error("the server may still carry out what it was sent before")]
    Unsettled,
}

/// What serves a device, and the core that threads outside the executors ask.
pub(crate) struct Served {
    pub(crate) server: Arc<dyn Serve>,
    pub(crate) home: CoreHandle,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Served")
    }
}

/// Asks the home core and waits.
impl Hosted for Served {
    fn read_blocking(&self, offset: u64, bytes: &mut [u8]) -> Result<(), IoError> {
        let server = self.server.clone();
        let buf = BufMut::alloc(bytes.len());
        let (result, buf) = self.home.call_blocking(move |core| server.read(&core, offset, buf))?;
        bytes.copy_from_slice(&buf);
        result
    }

    fn write_blocking(&self, offset: u64, bytes: &[u8]) -> Result<(), IoError> {
        let server = self.server.clone();
        let buf = BufMut::copy_of(bytes).freeze();
        self.home.call_blocking(move |core| server.write(&core, offset, buf, Durability::Cached))?
    }

    fn sync_blocking(&self) -> Result<(), IoError> {
        let server = self.server.clone();
        self.home.call_blocking(move |core| server.flush(&core))?
    }

    fn loses_write_backs(&self) -> bool {
        true
    }
}

impl Device {
    /// Whether a [server](Serve) above the devices carries out its operations.
    pub fn is_served(&self) -> bool {
        self.place(0).0.hosted::<Served>().is_some()
    }

    /// The connection behind it, if the whole of it lies across a network.
    pub fn link(&self) -> Option<&dyn Link> {
        self.hosted::<Served>()?.server.link()
    }

    /// A device whose operations `server` carries out, on the core that asks. `block_bytes` is the
    /// unit offsets and lengths must be multiples of. Threads outside the executors ask `core`, and
    /// can only while it runs.
    pub fn served(
        name: impl Into<String>,
        size_bytes: u64,
        block_bytes: u32,
        writable: bool,
        core: &Core,
        server: Arc<dyn Serve>,
    ) -> Device {
        let geometry = BlockGeometry::of_sectors(block_bytes);
        let kind = Kind::Hosted(Box::new(Served { server, home: core.handle() }));
        let (name, losses, held) = (name.into(), Arc::default(), OnceLock::new());
        Device::of_inner(DeviceInner { name, size_bytes, geometry, writable, kind, losses, held })
    }
}

/// Carries out an operation. Answers what a backend would: the bytes moved, all of them.
pub(crate) async fn carry_out(core: &Core, server: &dyn Serve, op: &mut Op) -> Result<usize, IoError> {
    match op {
        Op::Read(Transfer { offset, bufs, .. }) => read(core, server, *offset, bufs).await,
        Op::Write(Transfer { offset, bufs, .. }, durability) => {
            write(core, server, *offset, bufs, *durability).await
        }
        Op::Flush { .. } => server.flush(core).await.map(|()| 0),
        Op::WriteZeroes { offset, len, unmap, .. } => {
            server.write_zeroes(core, *offset, *len, *unmap).await.map(|()| 0)
        }
        _ => unreachable!("only operations on drives have a device"),
    }
}

async fn read(
    core: &Core,
    server: &dyn Serve,
    mut at: u64,
    bufs: &mut Bufs<BufMut>,
) -> Result<usize, IoError> {
    let mut reads = Vec::new();
    for buf in bufs.as_mut_slice() {
        let (offset, buf) = (at, std::mem::replace(buf, BufMut::alloc(0)));
        at += buf.len() as u64;
        reads.push(core.spawn(server.read(core, offset, buf)));
    }
    let (mut moved, mut failed) = (0, Ok(()));
    for (read, buf) in reads.into_iter().zip(bufs.as_mut_slice()) {
        let (result, filled) = read.await;
        moved += filled.len();
        failed = failed.and(result);
        *buf = filled;
    }
    failed.map(|()| moved)
}

async fn write(
    core: &Core,
    server: &dyn Serve,
    mut at: u64,
    bufs: &Bufs<Buf>,
    durability: Durability,
) -> Result<usize, IoError> {
    let begun = |buf: &Buf| {
        let offset = at;
        at += buf.len() as u64;
        core.spawn(server.write(core, offset, buf.clone(), durability))
    };
    let writes: Vec<JoinHandle<_>> = bufs.as_slice().iter().map(begun).collect();
    let mut failed = Ok(());
    for write in writes {
        failed = failed.and(write.await);
    }
    failed.map(|()| bufs.as_slice().iter().map(|buf| buf.len()).sum())
}
