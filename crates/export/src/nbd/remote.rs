//! An export of another server as a drive: reconnecting, and without losing what was acknowledged.
//!
//! One connection, on the core that made it; the others ask there, those of other runtimes too. A flush covers the writes of its own connection only, so there
//! must not be several.
//!
//! A connection that breaks is made again. Requests in flight are sent again then: reads and writes of the same bytes may be
//! repeated. But the server may have started anew and lost what it had acknowledged and not flushed. So:
//!
//! Invariant: what was acknowledged and not covered by a flush since is kept here ([`Log`]), and is written again on every new
//! connection before anything else is asked of it. A flush that succeeds then covers it like everything else.
//!
//! A server that closes a connection, or dies, is taken to be done with what came over it. One that keeps it and is silent is not:
//! a write that was sent again could be carried out once more later, over a newer one. So silence ends the drive.
//!
//! What is kept is bounded: beyond half of the bound a flush is sent without being asked for, at the bound writes wait for it. A
//! flush or a repeated write that the server refuses, and a server that does not come back in time or comes back as another
//! drive, end the drive for good: every request fails from then on, and the array above goes on without it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wattle_rt::sync::Notify;
use wattle_rt::{
    Buf, BufMut, Core, CoreHandle, Device, Durability, Either, IoError, Reply, Serve, Unmap, race,
};

use super::client::{Blocks, Client, ClientError};
use super::limits::REQUEST_BYTES_MAX;
use super::protocol::{command_flags, transmission_flags};
use super::uri::Uri;

/// What is kept of unflushed writes at most. A server's own cache that is larger brings nothing to a drive that is flushed.
const LOG_BYTES_MAX: usize = 32 << 20;

/// What an entry of the log costs beside its data.
const LOG_ENTRY_BYTES: usize = 64;

/// The longest range that one request makes zeros.
const ZEROES_BYTES_MAX: u64 = 1 << 30;

/// Sectors a drive can have.
const SECTOR_BYTES: [u32; 2] = [512, 4096];

/// Between attempts to connect: twice as long each time.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// For a server to accept a connection and to go to the export.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// How often it is looked after whether anybody still has the drive.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long a server may be silent or away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For the answer to a request. A drive behind the server may need half a minute to give up on a sector.
    pub answer: Duration,
    /// From the loss of a connection to the end of the attempts to make it again.
    pub reconnect: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { answer: Duration::from_secs(45), reconnect: Duration::from_secs(30) }
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
}

/// What an export is; another answer after a reconnection is another drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Facts {
    size_bytes: u64,
    flags: u16,
    sector_bytes: u32,
    request_bytes_max: u32,
}

impl Facts {
    fn of(client: &Client) -> Result<Self, RemoteError> {
        let Blocks { min_bytes, max_bytes } = client.blocks();
        let sector_bytes = SECTOR_BYTES.into_iter().find(|bytes| bytes.is_multiple_of(min_bytes.max(1)));
        let sector_bytes = sector_bytes.ok_or(RemoteError::BlockSize { found: min_bytes })?;
        let size_bytes = client.size_bytes() / u64::from(sector_bytes) * u64::from(sector_bytes);
        if size_bytes == 0 {
            return Err(RemoteError::Empty { size_bytes: client.size_bytes() });
        }
        let request_bytes_max = max_bytes.min(REQUEST_BYTES_MAX) / sector_bytes * sector_bytes;
        Ok(Self {
            size_bytes,
            flags: client.flags(),
            sector_bytes,
            request_bytes_max: request_bytes_max.max(sector_bytes),
        })
    }

    fn can(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Connects to an export and returns it as a drive of this name. It is writable if the server says so.
///
/// # Errors
/// There is no such server or export, or it cannot be a drive.
pub async fn connect(
    core: &Core,
    uri: &Uri,
    name: impl Into<String>,
    patience: Patience,
) -> Result<Device, RemoteError> {
    static NEXT_KEY: AtomicU64 = AtomicU64::new(1 << 61);
    let client = Client::connect(core, &uri.address, &uri.export);
    let client =
        within(core, patience.answer.min(CONNECT_MAX), client).await.ok_or(RemoteError::Silent)??;
    let facts = Facts::of(&client)?;
    let link = Rc::new(Link {
        core: core.clone(),
        uri: uri.clone(),
        patience,
        facts,
        state: RefCell::new(State::Up(Rc::new(client))),
        changed: Notify::new(),
        log: RefCell::default(),
        flushing: Cell::new(false),
        log_shrank: Notify::new(),
    });
    let key = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
    core.put_local(key, link);
    let remote = Arc::new(Remote { home: core.handle(), key });
    let (owner, home) = (Arc::downgrade(&remote), core.clone());
    core.spawn(async move {
        while owner.strong_count() > 0 {
            home.sleep(LOOK_EVERY).await;
        }
        if let Some(link) = home.take_local::<Link>(key) {
            link.end(IoError::GONE);
        }
    });
    let writable = !facts.can(transmission_flags::READ_ONLY);
    Ok(Device::served(name, facts.size_bytes, facts.sector_bytes, writable, core, remote))
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
}

/// The connection and what is known of it.
struct Link {
    core: Core,
    uri: Uri,
    patience: Patience,
    facts: Facts,
    state: RefCell<State>,
    /// The state is another one.
    changed: Notify,
    log: RefCell<Log>,
    /// A flush that nobody asked for is under way.
    flushing: Cell<bool>,
    log_shrank: Notify,
}

enum State {
    Up(Rc<Client>),
    /// Being made again.
    Down,
    /// For good.
    Ended(IoError),
}

impl Link {
    /// The connection, as soon as there is one.
    async fn up(&self) -> Result<Rc<Client>, IoError> {
        loop {
            match &*self.state.borrow() {
                State::Up(client) => return Ok(client.clone()),
                State::Ended(error) => return Err(*error),
                State::Down => {}
            }
            self.changed.wait().await;
        }
    }

    /// Asks until there is an answer: a request whose answer was lost with the connection is sent again.
    async fn ask<T>(
        self: &Rc<Self>,
        request: impl AsyncFn(&Client) -> Result<T, ClientError>,
    ) -> Result<T, IoError> {
        let mut give_up = None;
        loop {
            let client = self.up().await?;
            match within(&self.core, self.patience.answer, request(&client)).await {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(ClientError::Failed(errno))) if errno != errnos::ESHUTDOWN => {
                    return Err(io_error(errno));
                }
                Some(Err(_)) => self.lost(&client),
                None => self.end(IoError::GONE),
            }
            // A request that ends every connection would be sent for ever.
            let now = self.core.now();
            if now >= *give_up.get_or_insert(now + self.patience.reconnect) {
                self.end(IoError::GONE);
            }
        }
    }

    /// This connection is no good. Whoever notices first has it made again.
    fn lost(self: &Rc<Self>, client: &Rc<Client>) {
        client.close();
        let mut state = self.state.borrow_mut();
        if matches!(&*state, State::Up(current) if Rc::ptr_eq(current, client)) {
            *state = State::Down;
            self.core.spawn(reconnect(self.clone()));
        }
    }

    /// Ends the drive. The first reason counts.
    fn end(&self, error: IoError) {
        let mut state = self.state.borrow_mut();
        if !matches!(&*state, State::Ended(_)) {
            if let State::Up(client) = &*state {
                client.close();
            }
            *state = State::Ended(error);
            *self.log.borrow_mut() = Log::default();
        }
        drop(state);
        self.changed.notify_all();
        self.log_shrank.notify_all();
    }

    /// Whole sectors are asked for, whatever part of them is wanted.
    async fn read(self: &Rc<Self>, offset: u64, buf: &mut BufMut) -> Result<(), IoError> {
        let sector = u64::from(self.facts.sector_bytes);
        let wanted = offset..offset + buf.len() as u64;
        let mut at = wanted.start / sector * sector;
        while at < wanted.end {
            let left = wanted.end.next_multiple_of(sector) - at;
            let len = left.min(u64::from(self.facts.request_bytes_max)) as u32;
            let bytes = self.ask(async |client| client.read(at, len).await).await?;
            let (from, to) = (at.max(wanted.start), wanted.end.min(at + u64::from(len)));
            let target = (from - wanted.start) as usize..(to - wanted.start) as usize;
            buf[target].copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
            at += u64::from(len);
        }
        Ok(())
    }

    async fn write(self: &Rc<Self>, offset: u64, buf: Buf, durability: Durability) -> Result<(), IoError> {
        let fua = durability == Durability::Fua && self.facts.can(transmission_flags::SEND_FUA);
        let flags = if fua { command_flags::FUA } else { 0 };
        let mut done = 0;
        while done < buf.len() {
            let piece = buf.slice(done..buf.len().min(done + self.facts.request_bytes_max as usize));
            let at = offset + done as u64;
            done += piece.len();
            self.room(piece.len()).await?;
            self.ask(async |client| client.write(at, piece.clone(), flags).await).await?;
            // A copy: the buffer goes back to whoever waits for it.
            self.keep(Kept::Data { offset: at, data: Buf::copy_of(&piece) });
        }
        // Flushing makes durable what could not be written so.
        if durability == Durability::Fua && !fua { self.flush().await } else { Ok(()) }
    }

    async fn write_zeroes(self: &Rc<Self>, offset: u64, len: u64, unmap: Unmap) -> Result<(), IoError> {
        if !self.facts.can(transmission_flags::SEND_WRITE_ZEROES) {
            return Err(IoError::UNSUPPORTED);
        }
        let mut at = offset;
        while at < offset + len {
            let piece = (offset + len - at).min(ZEROES_BYTES_MAX) as u32;
            let kept = Kept::Zeroes { offset: at, len: piece, unmap };
            self.room(0).await?;
            self.ask(async |client| kept.write(client).await).await?;
            self.keep(kept);
            at += u64::from(piece);
        }
        Ok(())
    }

    /// Makes durable what was acknowledged before. A flush that fails may have lost any of it, and the server would not say so
    /// a second time.
    async fn flush(self: &Rc<Self>) -> Result<(), IoError> {
        if !self.facts.can(transmission_flags::SEND_FLUSH) {
            return Ok(());
        }
        let covered = self.log.borrow().appended;
        let flushed = self.ask(async |client| client.flush().await).await;
        match flushed {
            Ok(()) => self.log.borrow_mut().drop_up_to(covered),
            Err(error) => self.end(error),
        }
        self.log_shrank.notify_all();
        flushed
    }

    /// Waits until a write may be kept.
    async fn room(self: &Rc<Self>, len: usize) -> Result<(), IoError> {
        while self.log.borrow().is_full_for(len) {
            self.flush_unasked();
            self.log_shrank.wait().await;
            self.up().await?;
        }
        Ok(())
    }

    /// Keeps what was acknowledged until a flush covers it. A server that knows no flush has nothing to lose.
    fn keep(self: &Rc<Self>, kept: Kept) {
        if !self.facts.can(transmission_flags::SEND_FLUSH) {
            return;
        }
        self.log.borrow_mut().append(kept);
        if self.log.borrow().bytes > LOG_BYTES_MAX / 2 {
            self.flush_unasked();
        }
    }

    fn flush_unasked(self: &Rc<Self>) {
        if !self.flushing.replace(true) {
            let link = self.clone();
            self.core.spawn(async move {
                // A failure has ended the drive, which everybody hears of.
                let _ = link.flush().await;
                link.flushing.set(false);
                link.log_shrank.notify_all();
            });
        }
    }

    /// Writes again, in order and one after the other, what a server that started anew may have lost.
    async fn write_again(&self, client: &Client) -> Result<(), ClientError> {
        let kept: Vec<Kept> = self.log.borrow().entries.iter().cloned().collect();
        for kept in kept {
            kept.write(client).await?;
        }
        Ok(())
    }
}

/// Makes the connection again, or ends the drive.
async fn reconnect(link: Rc<Link>) {
    let deadline = link.core.now() + link.patience.reconnect;
    let mut pause = PAUSE_MIN;
    loop {
        link.core.sleep(pause).await;
        pause = (2 * pause).min(PAUSE_MAX);
        let left = deadline.saturating_since(link.core.now());
        let attempt = within(&link.core, left, connect_again(&link)).await;
        if matches!(&*link.state.borrow(), State::Ended(_)) {
            return;
        }
        match attempt {
            Some(Ok(client)) => {
                *link.state.borrow_mut() = State::Up(Rc::new(client));
                return link.changed.notify_all();
            }
            Some(Err(Again::Never(error))) => return link.end(error),
            None => return link.end(IoError::GONE),
            Some(Err(Again::Later)) if link.core.now() >= deadline => return link.end(IoError::GONE),
            Some(Err(Again::Later)) => {}
        }
    }
}

/// What to do after an attempt that failed.
enum Again {
    Later,
    Never(IoError),
}

async fn connect_again(link: &Link) -> Result<Client, Again> {
    let client = Client::connect(&link.core, &link.uri.address, &link.uri.export);
    let client = client.await.map_err(|_| Again::Later)?;
    if Facts::of(&client) != Ok(link.facts) {
        return Err(Again::Never(IoError::GONE));
    }
    match link.write_again(&client).await {
        Ok(()) => Ok(client),
        Err(ClientError::Failed(errno)) => Err(Again::Never(io_error(errno))),
        Err(_) => Err(Again::Later),
    }
}

/// What was acknowledged and is not known to be durable, in the order of the acknowledgements.
#[derive(Default)]
struct Log {
    entries: VecDeque<Kept>,
    bytes: usize,
    /// Entries ever appended.
    appended: u64,
}

/// An acknowledged request.
#[derive(Clone)]
enum Kept {
    Data { offset: u64, data: Buf },
    Zeroes { offset: u64, len: u32, unmap: Unmap },
}

impl Kept {
    fn bytes(&self) -> usize {
        match self {
            Kept::Data { data, .. } => LOG_ENTRY_BYTES + data.len(),
            Kept::Zeroes { .. } => LOG_ENTRY_BYTES,
        }
    }

    async fn write(&self, client: &Client) -> Result<(), ClientError> {
        match self {
            Kept::Data { offset, data } => client.write(*offset, data.clone(), 0).await,
            Kept::Zeroes { offset, len, unmap } => {
                let flags = if *unmap == Unmap::Yes { 0 } else { command_flags::NO_HOLE };
                client.write_zeroes(*offset, *len, flags).await
            }
        }
    }
}

impl Log {
    fn append(&mut self, kept: Kept) {
        self.bytes += kept.bytes();
        self.appended += 1;
        self.entries.push_back(kept);
    }

    /// Forgets the first `appended` entries ever appended.
    fn drop_up_to(&mut self, appended: u64) {
        let first = self.appended - self.entries.len() as u64;
        for _ in first..appended {
            let Some(kept) = self.entries.pop_front() else { return };
            self.bytes -= kept.bytes();
        }
    }

    /// One of any length fits into an empty log.
    fn is_full_for(&self, len: usize) -> bool {
        !self.entries.is_empty() && self.bytes + len + LOG_ENTRY_BYTES > LOG_BYTES_MAX
    }
}

/// Error numbers of the protocol, which are Linux's.
mod errnos {
    pub(super) const EPERM: u32 = 1;
    pub(super) const EINVAL: u32 = 22;
    pub(super) const ENOSPC: u32 = 28;
    pub(super) const ENOTSUP: u32 = 95;
    pub(super) const ESHUTDOWN: u32 = 108;
}

/// What a drive would say.
fn io_error(errno: u32) -> IoError {
    match errno {
        errnos::EPERM => IoError::READ_ONLY,
        errnos::EINVAL => IoError::INVALID,
        errnos::ENOSPC => IoError::NO_SPACE,
        errnos::ENOTSUP => IoError::UNSUPPORTED,
        errnos::ESHUTDOWN => IoError::GONE,
        // EIO, and whatever else a server makes up.
        _ => IoError::MEDIUM,
    }
}

/// `None` if it takes longer.
async fn within<T>(core: &Core, time: Duration, future: impl Future<Output = T>) -> Option<T> {
    match race(future, core.sleep(time)).await {
        Either::First(value) => Some(value),
        Either::Second(()) => None,
    }
}
