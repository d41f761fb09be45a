//! A client: one connection to an export, many requests in flight, each answered to the task that
//! asked.
//!
//! For loads, tools of our own, and drives behind other servers ([`super::remote`]). Simple
//! replies, no options beyond the choice of the export, no reconnection: what breaks the connection
//! ends it, and every waiting task gets the error.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thiserror::Error;
use wattle_rt::sync::{OneshotSender, oneshot};
use wattle_rt::{Buf, BufMut, Core, IoError, PeerProcess, PeerRole, Stream};
use wattle_tls::{ClientTls, TlsFault};

use super::handshake::OPTION_BYTES_MAX;
use super::limits::REQUEST_BYTES_MAX;
use super::protocol::{
    self as proto, Fields, NbdRequest, commands, handshake_flags, infos, options, replies, transmission_flags,
};
use super::uri::{Uri, UriTls};
use crate::NbdAddress;
use crate::clients::channel::{Channel, TlsLine};
use crate::clients::input::{Ended, Input};

/// Why a client cannot go on, or a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The connection could not be made, or broke.
    #[error("the connection: {0}")]
    Connection(IoError),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// What came is not what the protocol says.
    #[error("the server does not speak fixed newstyle NBD")]
    Protocol,
    /// The server does not go on without TLS.
    #[error("the server requires TLS: write nbds:// instead of nbd://")]
    TlsRequired,
    /// The server does not speak TLS, and was told nothing in clear.
    #[error("the server speaks no TLS")]
    NoTls,
    /// The server is not trusted, or does not trust this side.
    #[error("TLS: {0}")]
    Tls(TlsFault),
    /// The server closed the connection when TLS had begun, and no certificate was shown.
    #[error("the server closed the connection after the TLS handshake: it may want a client certificate")]
    TlsClosed,
    /// The certificates or the key of this side cannot be used any more.
    #[error("this side's files for TLS cannot be used")]
    TlsFiles,
    /// There is no such export.
    #[error("the server has no export of that name")]
    UnknownExport,
    /// The server refused the export, with this reply.
    #[error("the server refused the export (reply {0:#x})")]
    Refused(u32),
    /// The request failed with this error number of the protocol; the connection goes on.
    #[error("the server answered with error {0}")]
    Failed(u32),
}

impl From<Ended> for ClientError {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Closed => Self::Closed,
            Ended::Broken(error) => Self::Connection(error),
            Ended::Tls(fault) => Self::Tls(fault),
        }
    }
}

/// What a request is answered with: the data of a read, nothing else.
type Answer = Result<BufMut, ClientError>;

/// A request that was sent.
struct Waiting {
    /// Data that comes with a success.
    data_bytes: usize,
    answer: OneshotSender<Answer>,
}

/// A connection to an export, on one core. Dropping it closes the connection.
pub struct Client {
    line: Rc<Line>,
    chosen: Chosen,
    /// The process that answers, and what it does with what it is sent as of the last look, where
    /// that can be told.
    peer: Option<(Arc<PeerProcess>, Cell<PeerRole>)>,
}

/// How long the first bytes of a server may take, for it to be known which process sent them.
const FIRST_BYTES_MAX: Duration = Duration::from_millis(200);

/// For a connection over TCP, where nothing else is said.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// A thread that connects: one at a time to what they share this of.
pub(super) struct Dialling(Arc<AtomicBool>);

impl Dialling {
    /// Begins, unless another one has and is not over.
    pub(super) fn begin(shared: &Arc<AtomicBool>) -> Option<Self> {
        (!shared.swap(true, Ordering::AcqRel)).then(|| Self(shared.clone()))
    }
}

impl Drop for Dialling {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// What the server says of the export.
#[derive(Debug, Clone, Copy)]
struct Chosen {
    size_bytes: u64,
    flags: u16,
    blocks: Blocks,
}

/// Sizes of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// Offsets and lengths are multiples of it.
    pub min_bytes: u32,
    /// No request is longer.
    pub max_bytes: u32,
}

impl Blocks {
    /// What the protocol lets a client assume that was told nothing.
    const DEFAULT: Blocks = Blocks { min_bytes: 512, max_bytes: REQUEST_BYTES_MAX };
}

/// What the client shares with the tasks that send and receive for it.
struct Line {
    core: Core,
    stream: Stream,
    channel: Channel,
    /// Requests that are to be sent: those of one turn of the executor leave together.
    outbox: RefCell<Vec<Buf>>,
    sending: Cell<bool>,
    /// By cookie.
    waiting: RefCell<Vec<Option<Waiting>>>,
    free: RefCell<Vec<usize>>,
    ended: Cell<Option<ClientError>>,
}

impl Client {
    /// Connects and goes to an export; the empty name is the default one.
    ///
    /// # Errors
    /// No server listens there, or it refuses the export.
    pub async fn connect(core: &Core, address: &NbdAddress, export: &str) -> Result<Self, ClientError> {
        let address = address.clone();
        let stream = core.offload(move || match &address {
            NbdAddress::Unix(path) => Stream::connect_unix(path),
            NbdAddress::Tcp { host, port } => Stream::connect_tcp_within(host, *port, CONNECT_MAX),
        });
        let stream = stream.await.flatten().map_err(ClientError::Connection)?;
        Self::over(core, stream, export).await
    }

    /// The same for what a URI names, with TLS if it says so. Finds out which process answers,
    /// where that can be told: on a Unix socket.
    ///
    /// # Errors
    /// As [`Self::connect`]; or the server is not trusted, or does not trust this side.
    pub async fn connect_to_peer(core: &Core, uri: &Uri) -> Result<Self, ClientError> {
        Self::dial(core, uri, CONNECT_MAX, None).await
    }

    /// The same. The thread that connects keeps `dialling`, for about as long as that may take,
    /// also when the future is dropped.
    pub(super) async fn dial(
        core: &Core,
        uri: &Uri,
        may_take: Duration,
        dialling: Option<Dialling>,
    ) -> Result<Self, ClientError> {
        let (address, tls) = (uri.address.clone(), uri.tls.clone());
        let connected = core.offload(move || {
            let _dialling = dialling;
            // Certificates may have been renewed since the last connection.
            let tls = tls.map(|tls| tls.open().map(|opened| (opened, tls)));
            let tls = tls.transpose().map_err(|_| ClientError::TlsFiles)?;
            let (stream, peer) = match &address {
                NbdAddress::Unix(path) => Stream::connect_unix_to_peer(path, FIRST_BYTES_MAX),
                NbdAddress::Tcp { host, port } => {
                    Stream::connect_tcp_within(host, *port, may_take).map(|stream| (stream, None))
                }
            }
            .map_err(ClientError::Connection)?;
            Ok::<_, ClientError>((stream, peer, tls))
        });
        let (stream, peer, tls) = connected.await.map_err(ClientError::Connection)??;
        let mut client = Self::go(core, stream, &uri.export, tls).await?;
        if let Some(peer) = peer {
            // Now that it has what it needs to serve the export.
            let looked = core.offload(move || {
                let role = peer.role();
                (Arc::new(peer), Cell::new(role))
            });
            client.peer = looked.await.ok();
        }
        Ok(client)
    }

    /// Looks again at what the process that answers does with what it is sent: it may have got
    /// connections to others since, or children. It never counts for more than it did.
    pub async fn look_at_peer(&self) {
        let Some((process, role)) = &self.peer else { return };
        let looked_at = process.clone();
        let seen = self.line.core.offload(move || looked_at.role_seen()).await.ok().flatten();
        match (role.get(), seen) {
            (_, Some(PeerRole::HandsOn)) => role.set(PeerRole::HandsOn),
            (PeerRole::Keeps, Some(seen)) => role.set(seen),
            _ => {}
        }
    }

    /// Where the server is, if it is reached over TCP.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.line.stream.peer_address()
    }

    /// The process that answers, where that can be told.
    #[must_use]
    pub fn peer(&self) -> Option<&Arc<PeerProcess>> {
        self.peer.as_ref().map(|(process, _)| process)
    }

    /// Whether the server is known to be done with everything that came over this connection, since
    /// its process has ended; `None` if that would not tell.
    #[must_use]
    pub fn peer_is_over(&self) -> Option<bool> {
        let (peer, _) = self.peer.as_ref().filter(|(_, role)| role.get() == PeerRole::Keeps)?;
        Some(peer.is_over())
    }

    /// Whether the server may hand on to others what it is sent, so that its own end tells nothing.
    #[must_use]
    pub fn peer_hands_on(&self) -> bool {
        self.peer.as_ref().is_some_and(|(_, role)| role.get() == PeerRole::HandsOn)
    }

    /// Goes to an export over a connection that was just made.
    ///
    /// # Errors
    /// What answers is no NBD server, or it refuses the export.
    pub async fn over(core: &Core, stream: Stream, export: &str) -> Result<Self, ClientError> {
        Self::go(core, stream, export, None).await
    }

    async fn go(
        core: &Core,
        stream: Stream,
        export: &str,
        tls: Option<(ClientTls, UriTls)>,
    ) -> Result<Self, ClientError> {
        let mut channel = Channel::Plain(stream.clone());
        let mut input = Input::new(core.clone(), channel.clone());
        let greeting = input.payload(proto::GREETING_BYTES).await?;
        let mut fields = Fields(&greeting);
        let magic = (fields.u64(), fields.u64());
        let fixed = fields.u16().is_some_and(|flags| flags & handshake_flags::FIXED_NEWSTYLE != 0);
        if magic != (Some(proto::NBD_MAGIC), Some(proto::OPTION_MAGIC)) || !fixed {
            return Err(ClientError::Protocol);
        }
        let mut hello = proto::client_flags().to_vec();
        let mut shows_nothing = false;
        if let Some((config, tls)) = tls {
            hello.extend(proto::start_tls());
            channel.send(core, vec![Buf::copy_of(&hello)]).await.map_err(ClientError::Connection)?;
            hello.clear();
            shows_nothing = !config.shows_certificate;
            channel = Channel::Tls(start_tls(core, stream.clone(), &mut input, config, tls).await?);
            input.switch(channel.clone());
        }
        hello.extend(proto::go(export));
        let sent = channel.send(core, vec![Buf::copy_of(&hello)]).await;
        let chosen = match (sent, chosen(&mut input).await) {
            // A server that refuses the certificate says so only now, or goes without a word.
            (_, Err(ClientError::Closed | ClientError::Connection(_))) if shows_nothing => {
                return Err(ClientError::TlsClosed);
            }
            (Err(error), Err(ClientError::Closed)) => return Err(ClientError::Connection(error)),
            (_, chosen) => chosen?,
        };
        let line = Rc::new(Line {
            core: core.clone(),
            stream,
            channel,
            outbox: RefCell::default(),
            sending: Cell::new(false),
            waiting: RefCell::default(),
            free: RefCell::default(),
            ended: Cell::new(None),
        });
        core.spawn(receive(line.clone(), input));
        Ok(Self { line, chosen, peer: None })
    }

    /// Size of the export.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.chosen.size_bytes
    }

    /// What it can do: [`transmission_flags`].
    #[must_use]
    pub fn flags(&self) -> u16 {
        self.chosen.flags
    }

    /// Sizes of requests that it takes.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        self.chosen.blocks
    }

    /// Ends the connection: every waiting task gets the error.
    pub fn close(&self) {
        self.line.end(ClientError::Closed);
    }

    /// Whether every request that was sent is answered.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.line.waiting.borrow().iter().all(Option::is_none)
    }

    /// Whether the connection has ended: from this side, or from the other.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.line.ended.get().is_some()
    }

    /// Whether writes are refused.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.flags() & transmission_flags::READ_ONLY != 0
    }

    /// Reads a range.
    ///
    /// # Errors
    /// The server says so, or the connection has ended.
    pub async fn read(&self, offset_bytes: u64, length_bytes: u32) -> Result<BufMut, ClientError> {
        self.ask(commands::READ, 0, offset_bytes, length_bytes, None).await
    }

    /// Writes a range, with [`command_flags`](proto::command_flags).
    ///
    /// # Errors
    /// As [`Self::read`].
    ///
    /// # Panics
    /// If it is longer than the protocol can say.
    pub async fn write(&self, offset_bytes: u64, data: Buf, flags: u16) -> Result<(), ClientError> {
        let length_bytes = u32::try_from(data.len()).expect("writes are shorter than 4 GiB");
        self.ask(commands::WRITE, flags, offset_bytes, length_bytes, Some(data)).await.map(drop)
    }

    /// Makes everything that was answered durable.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub async fn flush(&self) -> Result<(), ClientError> {
        self.ask(commands::FLUSH, 0, 0, 0, None).await.map(drop)
    }

    /// Makes a range read as zeros, with [`command_flags`](proto::command_flags).
    ///
    /// # Errors
    /// As [`Self::read`].
    pub async fn write_zeroes(
        &self,
        offset_bytes: u64,
        length_bytes: u32,
        flags: u16,
    ) -> Result<(), ClientError> {
        self.ask(commands::WRITE_ZEROES, flags, offset_bytes, length_bytes, None).await.map(drop)
    }

    async fn ask(
        &self,
        kind: u16,
        flags: u16,
        offset_bytes: u64,
        length_bytes: u32,
        data: Option<Buf>,
    ) -> Answer {
        let line = &self.line;
        if let Some(error) = line.ended.get() {
            return Err(error);
        }
        let (answer, answered) = oneshot();
        let data_bytes = if kind == commands::READ { length_bytes as usize } else { 0 };
        let cookie = line.wait(Waiting { data_bytes, answer });
        let request = NbdRequest {
            flags,
            kind,
            cookie: cookie as u64,
            offset_bytes,
            length_bytes: length_bytes.into(),
        };
        line.send(Buf::copy_of(&request.encode()), data);
        // The reason is set before the waiting tasks are released.
        answered.await.unwrap_or_else(|| Err(line.ended.get().unwrap_or(ClientError::Closed)))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.line.end(ClientError::Closed);
    }
}

impl Line {
    /// A cookie for a request.
    fn wait(&self, waiting: Waiting) -> usize {
        let mut all = self.waiting.borrow_mut();
        match self.free.borrow_mut().pop() {
            Some(cookie) => {
                all[cookie] = Some(waiting);
                cookie
            }
            None => {
                all.push(Some(waiting));
                all.len() - 1
            }
        }
    }

    fn send(self: &Rc<Self>, request: Buf, data: Option<Buf>) {
        self.outbox.borrow_mut().extend([request].into_iter().chain(data));
        if !self.sending.replace(true) {
            self.core.spawn(send_all(self.clone()));
        }
    }

    /// Every waiting task, and every later caller, gets `why`; the first reason counts.
    fn end(&self, why: ClientError) {
        self.ended.set(self.ended.get().or(Some(why)));
        self.stream.shutdown();
        self.waiting.borrow_mut().clear();
    }
}

/// The client's side of TLS, once the server agrees to it.
async fn start_tls(
    core: &Core,
    stream: Stream,
    input: &mut Input,
    config: ClientTls,
    tls: UriTls,
) -> Result<Rc<TlsLine>, ClientError> {
    let (reply, data) = option_reply(input, options::STARTTLS).await?;
    match reply {
        replies::ACK if data.is_empty() => {}
        replies::ACK => return Err(ClientError::Protocol),
        _ => return Err(ClientError::NoTls),
    }
    // What came behind the answer came in clear, from whatever lies between.
    if !input.bytes().is_empty() {
        return Err(ClientError::Protocol);
    }
    let session = rustls::ClientConnection::new(config.config, tls.server_name());
    let session = session.map_err(|error| ClientError::Tls(TlsFault::of(&error)))?;
    Ok(TlsLine::open(core, stream, session.into()).await?)
}

/// The next answer to an option: its kind and its data.
async fn option_reply(input: &mut Input, asked: u32) -> Result<(u32, BufMut), ClientError> {
    let header = input.payload(proto::OPTION_REPLY_BYTES).await?;
    let mut fields = Fields(&header);
    let (magic, option) = (fields.u64(), fields.u32());
    let (Some(reply), Some(length)) = (fields.u32(), fields.u32()) else {
        return Err(ClientError::Protocol);
    };
    let ours = magic == Some(proto::OPTION_REPLY_MAGIC) && option == Some(asked);
    if !ours || length as usize > OPTION_BYTES_MAX {
        return Err(ClientError::Protocol);
    }
    Ok((reply, input.payload(length as usize).await?))
}

/// Sends until there is nothing to send: one send at a time, of all that came meanwhile.
async fn send_all(line: Rc<Line>) {
    loop {
        let bufs = line.outbox.take();
        if bufs.is_empty() {
            line.sending.set(false);
            return;
        }
        if let Err(error) = line.channel.send(&line.core, bufs).await {
            return line.end(ClientError::Connection(error));
        }
    }
}

/// Hands out replies until the connection ends.
async fn receive(line: Rc<Line>, mut input: Input) {
    loop {
        if let Err(error) = receive_one(&line, &mut input).await {
            return line.end(error);
        }
    }
}

async fn receive_one(line: &Line, input: &mut Input) -> Result<(), ClientError> {
    let (cookie, error) = loop {
        if let Some(header) = input.bytes().first_chunk() {
            break proto::decode_simple_reply(header).ok_or(ClientError::Protocol)?;
        }
        input.fill().await?;
    };
    input.consume(proto::SIMPLE_REPLY_BYTES);
    let known = usize::try_from(cookie).ok();
    let waiting = known.and_then(|cookie| line.waiting.borrow_mut().get_mut(cookie)?.take());
    let Waiting { data_bytes, answer } = waiting.ok_or(ClientError::Protocol)?;
    line.free.borrow_mut().extend(known);
    let result = match error {
        0 => Ok(input.payload(data_bytes).await?),
        error => Err(ClientError::Failed(error)),
    };
    // The caller may have gone.
    let _ = answer.send(result);
    Ok(())
}

/// What the server says of the export that was asked for.
async fn chosen(input: &mut Input) -> Result<Chosen, ClientError> {
    let (mut export, mut blocks) = (None, Blocks::DEFAULT);
    loop {
        let (reply, data) = option_reply(input, options::GO).await?;
        match reply {
            replies::INFO => {
                let mut fields = Fields(&data);
                match fields.u16() {
                    Some(infos::EXPORT) => export = fields.u64().zip(fields.u16()),
                    Some(infos::BLOCK_SIZE) => {
                        let sizes = (fields.u32(), fields.u32(), fields.u32());
                        let (Some(min_bytes), _, Some(max_bytes)) = sizes else {
                            return Err(ClientError::Protocol);
                        };
                        blocks = Blocks { min_bytes, max_bytes };
                    }
                    _ => {}
                }
            }
            replies::ACK => {
                let (size_bytes, flags) = export.ok_or(ClientError::Protocol)?;
                return Ok(Chosen { size_bytes, flags, blocks });
            }
            replies::ERR_TLS_REQD => return Err(ClientError::TlsRequired),
            replies::ERR_UNKNOWN => return Err(ClientError::UnknownExport),
            reply => return Err(ClientError::Refused(reply)),
        }
    }
}
