//! An export of another server as a drive: reconnecting, and without losing what was acknowledged.
//!
//! One connection, on the core that made it; the others ask there, those of other runtimes too. A
//! flush covers the writes of its own connection only, so there must not be several.
//!
//! A connection that breaks is made again. Requests in flight are sent again then: reads and writes
//! of the same bytes may be repeated. But the server may have started anew and lost what it had
//! acknowledged and not flushed. So:
//!
//! Invariant: what was acknowledged and is not durable is kept here ([`Log`]), and is written again
//! on every new connection before any client's request is sent there. A flush that succeeds then
//! covers it like everything else. Of each byte that is the latest content only, and nothing where
//! the latest was forced: no moment of it may show less than is durable ([`again`]).
//!
//! A server that closes or resets a connection may still carry out what came over it: a write that
//! was in flight then is in doubt. It is sent again, which does no harm by itself; but carried out
//! once more later it would undo a newer write of the same bytes. So:
//!
//! Invariant: no newer write that overlaps one in doubt is sent ([`Doubts`]) until the server is
//! known to be done with that one. It is known, of all that was sent over a connection,
//! - since the server has answered all of it;
//! - since the connection and then the process that answered over it have ended, if that process
//!   was seen to carry out itself what it is sent (Unix sockets, [`wattle_rt::PeerProcess`]);
//! - since nothing listened at the address where it answered while no connection was left, unless
//!   what listened there was seen to hand on what it is sent;
//! - since more time has passed than a request may take.
//!
//! That a connection is closed or reset says nothing, also over TCP: what the server's system had
//! acknowledged the server may have read, and what it had not acknowledged may have arrived. A
//! server that keeps a connection and is silent may take any time, so silence ends the drive.
//!
//! A drive may be reached by several paths, in order of preference, one at a time. A path that is
//! lost, or silent for longer than a path may be, is passed over for the next one ([`reach`]): what
//! was sent over it is in doubt as above, until the server behind it has answered all of it. One
//! that is preferred is gone back to, and reads may take turns over all of them ([`spread`]).
//!
//! A server that starts anew may have another drive behind the same name. A path, the only one
//! included, counts only while it shows what the drive shows ([`identity`]).
//!
//! A drive that has ended is not used again. What it was sent may still be carried out by a server
//! that stalled, long after. Invariant: the drive is opened anew ([`Link::reopen`]) only once no
//! request of the old connections can be carried out any more: since every request sent was
//! answered (the connection of a drive that ended stays until then), since nothing listened at the
//! address meanwhile, or since the server has answered a new connection for longer than a request
//! may take.
//!
//! What is kept is bounded: beyond half of the bound a flush is sent without being asked for, at
//! the bound writes wait for it. A flush or a repeated write that the server refuses, and a server
//! that does not come back in time or comes back as another drive, end the drive for good: every
//! request fails from then on, and the array above goes on without it.

mod again;
mod identity;
mod log;
mod path;
mod pending;
mod pieces;
mod reach;
mod requests;
mod spread;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wattle_rt::sync::Notify;
use wattle_rt::{
    Buf, BufMut, Core, CoreHandle, Device, Durability, Either, Instant, IoError, LinkPath, LinkState,
    PathState, ReopenError, Reply, Serve, Unmap, race,
};

use crate::nbd::client::{Blocks, Client, ClientError};
use crate::nbd::protocol::transmission_flags;
use crate::nbd::uri::Uri;
use identity::{Ends, Identity};
use log::{Connection, Doubts, Log};
use path::Path;
use pending::Pending;

/// Sectors a drive can have.
const SECTOR_BYTES: [u32; 2] = [512, 4096];

/// How often it is checked whether the drive is still in use, and what its server does.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long a server may be silent or away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For the answer to a request. A drive behind the server may need half a minute to give up on
    /// a sector.
    pub answer: Duration,
    /// From the loss of a connection to the end of the attempts to make it again.
    pub reconnect: Duration,
    /// For the answer to a request, before another path is tried, if there is one.
    pub path: Duration,
    /// For how long a path that is preferred has to answer before it is gone back to, for each of
    /// its failures.
    pub back: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(45),
            reconnect: Duration::from_secs(30),
            path: Duration::from_secs(1),
            back: Duration::from_secs(5),
        }
    }
}

/// Why an export cannot be a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// No connection, or the server refuses.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The server accepts the connection and does not go on.
    #[error("the server does not answer")]
    Silent,
    /// The smallest request is larger than a sector.
    #[error("the server takes no requests smaller than {found} bytes")]
    BlockSize {
        /// What it says.
        found: u32,
    },
    /// Nothing in it.
    #[error("it is empty ({size_bytes} bytes)")]
    Empty {
        /// What it says.
        size_bytes: u64,
    },
    /// A path leads to something else than the first one.
    #[error("{path} leads to another drive")]
    OtherDrive {
        /// Its place in the list of paths.
        path: usize,
    },
}

/// What an export is, as far as it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Facts {
    size_bytes: u64,
    /// Of [`USED_FLAGS`].
    flags: u16,
    sector_bytes: u32,
}

/// What of an export's flags is used here.
const USED_FLAGS: u16 = transmission_flags::READ_ONLY
    | transmission_flags::SEND_FLUSH
    | transmission_flags::SEND_FUA
    | transmission_flags::SEND_WRITE_ZEROES;

impl Facts {
    fn of(client: &Client) -> Result<Self, RemoteError> {
        let Blocks { min_bytes, .. } = client.blocks();
        let sector_bytes = SECTOR_BYTES.into_iter().find(|bytes| bytes.is_multiple_of(min_bytes.max(1)));
        let sector_bytes = sector_bytes.ok_or(RemoteError::BlockSize { found: min_bytes })?;
        let size_bytes = client.size_bytes() / u64::from(sector_bytes) * u64::from(sector_bytes);
        if size_bytes == 0 {
            return Err(RemoteError::Empty { size_bytes: client.size_bytes() });
        }
        Ok(Self { size_bytes, flags: client.flags() & USED_FLAGS, sector_bytes })
    }

    /// Why what a server offers now cannot take the drive's place. What it can do beyond what it
    /// could is not used, and a larger one is used as far as it went; but a server that asks for
    /// flushes now has something to lose that it had not.
    fn lacks(&self, now: &Facts) -> Option<&'static str> {
        let lost = |flag| self.can(flag) && !now.can(flag);
        if now.size_bytes < self.size_bytes {
            Some("it is smaller than it was")
        } else if !self.sector_bytes.is_multiple_of(now.sector_bytes) {
            Some("its sectors are larger than they were")
        } else if self.can(transmission_flags::READ_ONLY) {
            None
        } else if now.can(transmission_flags::READ_ONLY) {
            Some("it can only be read now")
        } else if lost(transmission_flags::SEND_FLUSH) {
            Some("it takes no flush any more")
        } else if now.can(transmission_flags::SEND_FLUSH) && !self.can(transmission_flags::SEND_FLUSH) {
            Some("it has to be flushed now, and had not to be")
        } else if lost(transmission_flags::SEND_FUA) {
            Some("it takes no forced writes any more")
        } else if lost(transmission_flags::SEND_WRITE_ZEROES) {
            Some("it takes no requests for zeros any more")
        } else {
            None
        }
    }

    fn can(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Connects to an export and returns it as a drive of this name. It is writable if the server says
/// so. `uris` are the paths to it, in order of preference; those that cannot be had now are tried
/// again later.
///
/// # Errors
/// There is no such server or export, or it cannot be a drive; of several paths the first error if
/// none can be had. Or two paths lead to different drives.
///
/// # Panics
/// Without a path.
pub async fn connect(
    core: &Core,
    uris: &[Uri],
    name: impl Into<String>,
    patience: Patience,
) -> Result<Device, RemoteError> {
    let paths: Vec<_> = uris.iter().cloned().map(Path::new).collect();
    let (path, client, facts, ends) = reach::first(core, &paths, patience).await?;
    Ok(start(core, paths, path, name.into(), patience, client, facts, ends))
}

#[expect(clippy::too_many_arguments, reason = "each is one field of the link")]
fn start(
    core: &Core,
    paths: Vec<Path>,
    path: usize,
    name: String,
    patience: Patience,
    client: Client,
    facts: Facts,
    ends: Ends,
) -> Device {
    static NEXT_KEY: AtomicU64 = AtomicU64::new(1 << 61);
    paths[path].state.set(PathState::InUse);
    paths[path].note_server(&client);
    let link = Rc::new(Link {
        core: core.clone(),
        name: name.clone(),
        paths,
        patience,
        facts,
        state: RefCell::new(State::Up(Rc::new(client))),
        connection: Cell::new(Connection { number: 0, path }),
        turns: Cell::new(false),
        turn: Cell::new(0),
        attempts: Cell::new(0),
        changed: Notify::new(),
        pending: RefCell::default(),
        log: RefCell::default(),
        writes: Cell::new(0),
        unanswered: Cell::new(0),
        doubts: RefCell::default(),
        draining: Cell::new(0),
        identity: RefCell::new(Identity::new(ends)),
        answered: Cell::new(None),
        next: RefCell::default(),
        changed_to: Cell::new(None),
        flushing: Cell::new(false),
        log_shrank: Notify::new(),
    });
    let key = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
    if link.paths.len() > 1 {
        core.spawn(reach::probe(Rc::downgrade(&link)));
    }
    core.put_local(key, link);
    let remote = Arc::new(Remote { home: core.handle(), key });
    let (owner, home) = (Arc::downgrade(&remote), core.clone());
    core.spawn(async move {
        while owner.strong_count() > 0 {
            home.sleep(LOOK_EVERY).await;
            let Some(link) = home.local::<Link>(key) else { return };
            let in_use = match &*link.state.borrow() {
                State::Up(client) => Some((client.clone(), link.connection.get().path)),
                _ => None,
            };
            if let Some((client, path)) = in_use {
                link.look_at_server(&client, path).await;
            }
        }
        if let Some(link) = home.take_local::<Link>(key) {
            link.end(IoError::GONE);
        }
    });
    let writable = !facts.can(transmission_flags::READ_ONLY);
    Device::served(name, facts.size_bytes, facts.sector_bytes, writable, core, remote)
}

/// The drive: asks at home.
struct Remote {
    home: CoreHandle,
    key: u64,
}

impl Remote {
    fn at_home<T: Send + 'static>(
        &self,
        core: &Core,
        work: impl AsyncFnOnce(Rc<Link>) -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + 'static {
        let key = self.key;
        self.home.call(core, async move |home| {
            let link = home.local::<Link>(key).expect("the link is there as long as its drive");
            work(link).await
        })
    }

    /// Of a core whose runtime has ended nothing comes back.
    fn done(
        &self,
        core: &Core,
        work: impl AsyncFnOnce(Rc<Link>) -> Result<(), IoError> + Send + 'static,
    ) -> Reply<Result<(), IoError>> {
        let done = self.at_home(core, work);
        Box::pin(async move { done.await.unwrap_or(Err(IoError::GONE)) })
    }
}

impl Serve for Remote {
    fn read(&self, core: &Core, offset: u64, mut buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        let len = buf.len();
        let read = self.at_home(core, async move |link| {
            let result = link.read(offset, &mut buf).await;
            (result, buf)
        });
        Box::pin(async move { read.await.unwrap_or_else(|| (Err(IoError::GONE), BufMut::alloc(len))) })
    }

    fn write(
        &self,
        core: &Core,
        offset: u64,
        buf: Buf,
        durability: Durability,
    ) -> Reply<Result<(), IoError>> {
        self.done(core, async move |link| link.write(offset, buf, durability).await)
    }

    fn flush(&self, core: &Core) -> Reply<Result<(), IoError>> {
        self.done(core, async |link| link.flush().await)
    }

    fn write_zeroes(&self, core: &Core, offset: u64, len: u64, unmap: Unmap) -> Reply<Result<(), IoError>> {
        self.done(core, async move |link| link.write_zeroes(offset, len, unmap).await)
    }

    fn link(&self) -> Option<&dyn wattle_rt::Link> {
        Some(self)
    }
}

impl wattle_rt::Link for Remote {
    fn look(&self, core: &Core) -> Reply<Option<LinkState>> {
        Box::pin(self.at_home(core, async |link| link.look()))
    }

    fn give_up(&self, core: &Core) -> Reply<()> {
        let given_up = self.at_home(core, async |link| link.end(IoError::GONE));
        Box::pin(async move {
            given_up.await;
        })
    }

    fn take_turns(&self, core: &Core, on: bool) -> Reply<()> {
        let set = self.at_home(core, async move |link| link.set_turns(on));
        Box::pin(async move {
            set.await;
        })
    }

    fn reopen(&self, core: &Core) -> Reply<Result<Device, ReopenError>> {
        let reopened = self.at_home(core, async |link| reach::reopen(&link).await);
        Box::pin(async move { reopened.await.unwrap_or(Err(ReopenError::Connection(IoError::GONE))) })
    }

    fn next(&self, core: &Core) -> Reply<Option<Device>> {
        let next = self.at_home(core, async |link| link.next.borrow().clone());
        Box::pin(async move { next.await.flatten() })
    }
}

/// The connection and what is known of it.
struct Link {
    core: Core,
    name: String,
    /// In order of preference.
    paths: Vec<Path>,
    patience: Patience,
    facts: Facts,
    state: RefCell<State>,
    /// The last one that was made.
    connection: Cell<Connection>,
    /// Reads go by all paths in turn, and which one had the last.
    turns: Cell<bool>,
    turn: Cell<usize>,
    /// Attempts to connect: each has a number of its own, also one that comes to nothing.
    attempts: Cell<u64>,
    /// The state is another one, or writes are no longer in doubt.
    changed: Notify,
    /// Requests that are not answered.
    pending: RefCell<Pending>,
    log: RefCell<Log>,
    /// Writes that were begun.
    writes: Cell<u64>,
    /// Those that were sent, by whichever connection, and are neither answered nor in doubt.
    unanswered: Cell<u64>,
    doubts: RefCell<Doubts>,
    /// Connections that are given up and have requests which the server may still carry out.
    draining: Cell<usize>,
    /// What tells the drive from others.
    identity: RefCell<Identity>,
    /// After the end: since when the server has answered new connections.
    answered: Cell<Option<Instant>>,
    /// What the server came back with instead, if that ended the drive.
    changed_to: Cell<Option<&'static str>>,
    /// The drive that took its place.
    next: RefCell<Option<Device>>,
    /// A flush is under way that no client asked for.
    flushing: Cell<bool>,
    log_shrank: Notify,
}

enum State {
    Up(Rc<Client>),
    /// Being made again, since then.
    Down(Instant),
    /// For good.
    Ended(IoError),
}

impl Link {
    fn look(self: &Rc<Self>) -> LinkState {
        let now = self.core.now();
        let over = match &*self.state.borrow() {
            State::Up(client) if client.has_ended() => Some(client.clone()),
            _ => None,
        };
        if let Some(client) = over {
            // No request was there to notice.
            self.lost(&client);
        }
        let (away, ended) = match &*self.state.borrow() {
            State::Up(_) => (Duration::ZERO, None),
            State::Down(since) => (now - *since, None),
            State::Ended(error) => (Duration::ZERO, Some(*error)),
        };
        let path = |path: &Path| LinkPath {
            name: path.uri.to_string(),
            state: if path.reader.borrow().is_some() { PathState::InUse } else { path.state.get() },
            failures: path.failures.get(),
        };
        LinkState {
            overdue: self.pending.borrow().overdue(now).max(away),
            ended,
            changed: self.changed_to.get(),
            settled: ended.is_some() && self.is_settled(),
            paths: self.paths.iter().map(path).collect(),
        }
    }
}

/// `None` if it takes longer.
async fn within<T>(core: &Core, time: Duration, future: impl Future<Output = T>) -> Option<T> {
    match race(future, core.sleep(time)).await {
        Either::First(value) => Some(value),
        Either::Second(()) => None,
    }
}
