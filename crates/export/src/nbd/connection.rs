//! One connection, on one core, from greeting to close.
//!
//! Two tasks and one per request in flight: the reader parses as many requests as one receive
//! brought and starts a task for each; the writer sends all replies that are ready in one call.
//! Requests of one connection are done side by side and answered in the order they finish, as the
//! protocol allows.
//!
//! Invariants:
//! 1. A request is started only when all of it was received, payload included.
//! 2. Everything a request holds is taken from the connection's [`Account`] before it is received,
//!    and given back when its reply was sent or can no longer be.
//! 3. Every request that the volume was given runs to its end, whatever happens to the connection,
//!    and is answered unless the connection broke. What it was not given yet when the client went
//!    without a farewell, it is not given any more.
//! 4. No request begins before those are answered of the same bytes that clients of the volume left
//!    behind, if they had gone before ([`Remains`] says why): a client that has several connections
//!    goes on over another one, at once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use wattle_engine::volume::qos::{QosClient, QosCost};
use wattle_engine::volume::{CHECKPOINTS_MAX, ChangeMap, Remains, RequestExtent};
use wattle_engine::{Volume, VolumeError};
use wattle_rt::mailbox::Receiver;
use wattle_rt::sync::{Latch, Notify, Semaphore};
use wattle_rt::{BUF_ALIGN_BYTES, Buf, BufMut, Core, Durability, IoError, Stream};

use super::handshake::{ChosenExport, ExportFacts, Handshake, HandshakeStep};
use super::limits::{Limits, SLICES_PER_SEND_MAX};
use super::protocol::{
    self as proto, EXTENDED_REQUEST_BYTES, NbdErrno, NbdHeaders, NbdRequest, REQUEST_BYTES, ReplyHeader,
    allocation, changes, commands,
};
use super::request::{NbdCommand, decide};
use crate::clients::channel::{Channel, TlsLine};
use crate::clients::connections::Stop;
use crate::clients::input::{Ended, Input};
use crate::clients::leaving::{Presence, UnderWay};
use crate::clients::memory::{Account, ClientWait, Hold, Memory};
use wattle_rt::{Either, race};
use wattle_tls::{ServerTls, TlsFault, TlsFileError};

/// What every connection of a server on one core needs.
pub(super) struct Shard {
    pub(super) exports: RefCell<Vec<Rc<OpenExport>>>,
    pub(super) limits: Limits,
    /// Clients have to speak TLS, and are shown this.
    pub(super) tls: Option<Arc<ServerTls>>,
    pub(super) memory: Rc<Memory>,
    /// Clients that ask what is allocated, at a time.
    pub(super) looking: Rc<Semaphore>,
}

/// An export on one core.
pub(super) struct OpenExport {
    pub(super) volume: Volume,
    pub(super) description: String,
    /// It answers to the empty name too.
    pub(super) is_default: bool,
    /// No client finds it: it is about to go, unless one has it.
    pub(super) hidden: Cell<bool>,
    /// Connections on this core that have it.
    pub(super) clients: Cell<usize>,
    /// What clients that have gone left behind.
    pub(super) remains: Arc<Remains>,
}

impl OpenExport {
    /// What a client that comes now is told: a volume may have grown since the last one came.
    fn facts(&self) -> ExportFacts {
        ExportFacts {
            name: self.volume.name().to_owned(),
            description: self.description.clone(),
            size_bytes: self.volume.size_bytes(),
            read_only: self.volume.read_only(),
            io_min_bytes: self.volume.io_min_bytes(),
            checkpoints: Vec::new(),
        }
    }
}

/// Extents that are told of one context at a time; a client asks for the rest.
const EXTENTS_MAX: usize = 2048;
/// The longest answer to what is known of a range, in bytes: as many of each context.
const STATUS_BYTES_MAX: u64 = (CHECKPOINTS_MAX as u64 + 1) * (EXTENTS_MAX as u64 * 16 + 40);

/// For a client to take the end of TLS, before the connection is closed all the same.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(1);

/// What the server is told of a connection that did not come to be.
#[derive(Default)]
pub(super) struct TlsFailure {
    /// Of the client, in its TLS handshake.
    pub(super) fault: Option<TlsFault>,
    /// Of new files that the server was to show.
    pub(super) files: Option<TlsFileError>,
}

/// Serves one client until it leaves, breaks the protocol, or is told to go.
pub(super) async fn serve(
    core: Core,
    shard: Rc<Shard>,
    stream: Stream,
    id: u64,
    stop: Receiver<Stop>,
) -> TlsFailure {
    let mut failure = TlsFailure::default();
    serve_noting(core, shard, stream, id, stop, &mut failure).await;
    failure
}

async fn serve_noting(
    core: Core,
    shard: Rc<Shard>,
    stream: Stream,
    id: u64,
    stop: Receiver<Stop>,
    failure: &mut TlsFailure,
) {
    let told = watch(&core, stop);
    let open = shard.memory.open(&core, &shard.limits, stream.clone(), id);
    let mut input = Input::of_client(core.clone(), Channel::Plain(stream.clone()), open.account.clone());
    let exports: Vec<_> =
        shard.exports.borrow().iter().filter(|export| !export.hidden.get()).cloned().collect();
    let mut checkpoints: Vec<_> = exports.iter().map(|export| export.volume.checkpoints()).collect();
    let facts = exports.iter().zip(&checkpoints).map(|(export, checkpoints)| ExportFacts {
        checkpoints: checkpoints.iter().map(|map| map.name().to_owned()).collect(),
        ..export.facts()
    });
    let mut facts: Vec<_> = facts.collect();
    let default = exports.iter().position(|export| export.is_default);
    let (chosen, channel) = {
        let deadline = core.sleep(shard.limits.handshake_time_max);
        let handshake = Handshake::new(&facts, default);
        let secured = shard.tls.as_ref().map(|tls| (tls, failure));
        let shaken = shake_hands(&core, &stream, &mut input, handshake, secured);
        match race(shaken, race(deadline, told.wait())).await {
            Either::First(Some(shaken)) => shaken,
            Either::First(None) | Either::Second(_) => return stream.shutdown(),
        }
    };
    let export = exports[chosen.export].clone();
    if export.hidden.get() {
        // It went while they shook hands.
        return stream.shutdown();
    }
    export.clients.set(export.clients.get() + 1);

    let connection = Rc::new(Connection {
        core: core.clone(),
        channel: channel.clone(),
        volume: export.volume.for_client(QosClient::new()),
        presence: Presence::new(&core, stream.clone()),
        under_way: Rc::default(),
        remains: export.remains.clone(),
        facts: facts.swap_remove(chosen.export),
        agreed: chosen,
        checkpoints: checkpoints.swap_remove(chosen.export),
        looking: shard.looking.clone(),
        account: open.account.clone(),
        replies: RefCell::default(),
        replies_changed: Notify::new(),
        reading_over: Cell::new(false),
        broken: Latch::new(),
    });
    let mut writer = core.spawn(write_replies(connection.clone()));
    let reading = read_requests(&connection, &mut input);
    let end = race(reading, race(connection.broken.wait(), told.wait())).await;

    export.clients.set(export.clients.get() - 1);
    // It ends by itself.
    drop(connection.under_way.leave(&core, &export.remains));
    if !told.is_set() && !matches!(end, Either::First(ReadEnd::Disconnect)) {
        connection.presence.end();
    }
    connection.reading_over.set(true);
    connection.replies_changed.notify_all();
    if let Either::Second(()) = race(&mut writer, told.wait()).await {
        race(&mut writer, core.sleep(shard.limits.drain_time_max)).await;
        connection.presence.end();
    }
    race(channel.say_end(), core.sleep(FAREWELL_TIME_MAX)).await;
    stream.shutdown();
}

/// Turns the mailbox into an event: polling a mailbox locks, and the connection polls this one with
/// every batch.
fn watch(core: &Core, mut stop: Receiver<Stop>) -> Rc<Latch> {
    let told = Rc::new(Latch::new());
    let event = told.clone();
    // Ends with the connection at the latest: then the server drops the sender.
    core.spawn(async move {
        stop.recv().await;
        event.set();
    });
    told
}

/// Greets the client and answers its options; `None` if it is to be hung up on.
async fn shake_hands(
    core: &Core,
    stream: &Stream,
    input: &mut Input,
    handshake: Handshake<'_>,
    mut secured: Option<(&Arc<ServerTls>, &mut TlsFailure)>,
) -> Option<(ChosenExport, Channel)> {
    /// Answers are collected up to this length while the client has sent more options already.
    const ANSWERS_BYTES: usize = 16 << 10;
    let mut handshake = if secured.is_some() { handshake.requiring_tls() } else { handshake };
    let mut channel = Channel::Plain(stream.clone());
    let mut out = proto::greeting().to_vec();
    loop {
        let (used, step) = handshake.advance(input.bytes(), &mut out);
        input.consume(used);
        if step != HandshakeStep::Reply || out.len() >= ANSWERS_BYTES {
            channel.send(core, vec![Buf::copy_of(&out)]).await.ok()?;
            out.clear();
        }
        match step {
            HandshakeStep::Reply => {}
            HandshakeStep::More => match (input.fill().await, &mut secured) {
                (Ok(()), _) => {}
                (Err(Ended::Tls(fault)), Some((_, failure))) => {
                    failure.fault = Some(fault);
                    return None;
                }
                (Err(_), _) => return None,
            },
            // A client waits for the answer: what came before it, in clear, is not of this client,
            // or was never meant to be secret. It is not looked at.
            HandshakeStep::StartTls if !input.bytes().is_empty() => return None,
            HandshakeStep::StartTls => {
                let (tls, failure) = secured.take()?;
                channel = Channel::Tls(start_tls(core, stream, tls, failure).await?);
                input.switch(channel.clone());
            }
            HandshakeStep::Transmit(chosen) => return Some((chosen, channel)),
            HandshakeStep::Close => return None,
        }
    }
}

/// The server's side of TLS; `None` if the client is to be hung up on.
async fn start_tls(
    core: &Core,
    stream: &Stream,
    tls: &Arc<ServerTls>,
    failure: &mut TlsFailure,
) -> Option<Rc<TlsLine>> {
    let tls = tls.clone();
    let (config, stale) = core.offload(move || tls.current()).await.ok()?;
    failure.files = stale;
    let session = rustls::ServerConnection::new(config).ok()?;
    match TlsLine::open(core, stream.clone(), session.into()).await {
        Ok(line) => Some(line),
        Err(Ended::Tls(fault)) => {
            failure.fault = Some(fault);
            None
        }
        Err(_) => None,
    }
}

/// A connection in its transmission phase.
struct Connection {
    core: Core,
    channel: Channel,
    volume: Volume,
    presence: Presence,
    under_way: Rc<UnderWay>,
    remains: Arc<Remains>,
    facts: ExportFacts,
    agreed: ChosenExport,
    /// Those of the export when the connection began.
    checkpoints: Vec<Arc<ChangeMap>>,
    looking: Rc<Semaphore>,
    account: Rc<Account>,
    /// Ready to be sent.
    replies: RefCell<Vec<Reply>>,
    replies_changed: Notify,
    reading_over: Cell<bool>,
    /// Nothing can be sent any more.
    broken: Latch,
}

/// A finished request.
struct Reply {
    header: ReplyHeader,
    data: Option<Buf>,
    /// Given back when this was sent, or can no longer be.
    _hold: Hold,
}

/// Why reading requests ended.
#[derive(Debug)]
enum ReadEnd {
    /// The client said goodbye.
    Disconnect,
    /// The client sent something that is no request.
    NotARequest,
    /// The connection ended.
    Ended(#[expect(dead_code, reason = "for debugging a connection")] Ended),
}

impl From<Ended> for ReadEnd {
    fn from(ended: Ended) -> Self {
        Self::Ended(ended)
    }
}

async fn read_requests(connection: &Rc<Connection>, input: &mut Input) -> ReadEnd {
    loop {
        match read_request(connection, input).await {
            Ok(()) => {}
            Err(end) => return end,
        }
    }
}

/// Reads one request with its payload and starts it.
async fn read_request(connection: &Rc<Connection>, input: &mut Input) -> Result<(), ReadEnd> {
    let request = next_request(connection.agreed.headers, input).await?;
    input.took_request();
    if request.kind == commands::DISC {
        return Err(ReadEnd::Disconnect);
    }

    let command = match decide(&request, &connection.facts, &connection.agreed) {
        Ok(command) => command,
        Err(errno) => {
            let hold = connection.presence.take(&connection.account, 0).await?;
            let payload = u32::try_from(request.payload_bytes(connection.agreed.headers));
            let payload = payload.map_err(|_| ReadEnd::NotARequest)? as usize;
            connection.take_from_client(payload, input, async |input| input.skip(payload).await).await?;
            connection.reply(&request, hold, Err(errno));
            return Ok(());
        }
    };
    let bytes = match command {
        NbdCommand::Read | NbdCommand::Write(_) => charged_bytes(request.length_bytes),
        NbdCommand::Status { .. } => STATUS_BYTES_MAX,
        _ => 0,
    };
    let hold = connection.presence.take(&connection.account, bytes).await?;
    let payload = match command {
        NbdCommand::Write(_) => Some(connection.payload(input, request.length_bytes as usize).await?),
        _ => None,
    };
    let extent = extent(&request, command);
    let before = connection.remains.before(&extent);
    let (connection, begun) = (connection.clone(), connection.under_way.begin(extent));
    connection.core.clone().spawn(async move {
        let outcome = match connection.presence.settled(before).await {
            Ok(()) => connection.execute(&request, command, payload).await,
            Err(error) => Err(errno(error)),
        };
        drop(begun);
        connection.reply(&request, hold, outcome);
    });
    Ok(())
}

/// What a request touches.
fn extent(request: &NbdRequest, command: NbdCommand) -> RequestExtent {
    let (offset, length) = (request.offset_bytes, request.length_bytes);
    match command {
        NbdCommand::Nothing | NbdCommand::Flush => RequestExtent::NONE,
        NbdCommand::Read | NbdCommand::Status { .. } => RequestExtent::read(offset, length),
        NbdCommand::Write(_) | NbdCommand::Trim(_) | NbdCommand::WriteZeroes(..) => {
            RequestExtent::change(offset, length)
        }
    }
}

/// The next request, without its payload.
async fn next_request(headers: NbdHeaders, input: &mut Input) -> Result<NbdRequest, ReadEnd> {
    loop {
        let decoded = match headers {
            NbdHeaders::Extended => {
                let bytes = input.bytes().first_chunk::<EXTENDED_REQUEST_BYTES>();
                bytes.map(|bytes| (NbdRequest::decode_extended(bytes), bytes.len()))
            }
            NbdHeaders::Simple | NbdHeaders::Structured => {
                let bytes = input.bytes().first_chunk::<REQUEST_BYTES>();
                bytes.map(|bytes| (NbdRequest::decode(bytes), bytes.len()))
            }
        };
        match decoded {
            Some((request, length)) => {
                input.consume(length);
                return request.ok_or(ReadEnd::NotARequest);
            }
            None => input.fill().await?,
        }
    }
}

/// Sends replies until the connection breaks, or everything is answered and nothing more is read.
async fn write_replies(connection: Rc<Connection>) {
    let mut batch = Vec::new();
    loop {
        std::mem::swap(&mut batch, &mut *connection.replies.borrow_mut());
        if batch.is_empty() {
            if connection.reading_over.get() && connection.account.requests() == 0 {
                return;
            }
            connection.replies_changed.wait().await;
            continue;
        }
        if connection.send(&mut batch).await.is_err() {
            // What still runs finds the connection broken and drops its answer.
            connection.broken.set();
            return connection.replies.borrow_mut().clear();
        }
    }
}

impl Connection {
    async fn payload(&self, input: &mut Input, length: usize) -> Result<Buf, Ended> {
        let payload = self.take_from_client(length, input, async |input| input.payload(length).await).await;
        payload.map(BufMut::freeze)
    }

    /// Takes what belongs to a request: a client that does not send it is waited for, and counts as
    /// idle after some time.
    async fn take_from_client<T>(
        &self,
        length: usize,
        input: &mut Input,
        take: impl AsyncFnOnce(&mut Input) -> Result<T, Ended>,
    ) -> Result<T, Ended> {
        if input.bytes().len() < length {
            self.account.wait_begins(ClientWait::Payload, self.core.now());
        }
        let taken = take(input).await;
        self.account.wait_ends(ClientWait::Payload);
        taken
    }

    /// Does what a request asks for. The data of a read comes back.
    async fn execute(
        &self,
        request: &NbdRequest,
        command: NbdCommand,
        payload: Option<Buf>,
    ) -> Result<Option<Buf>, NbdErrno> {
        let (volume, presence) = (&self.volume, &self.presence);
        let (offset, length) = (request.offset_bytes, request.length_bytes);
        let range = || offset..offset.saturating_add(length);
        let always = || Ok::<_, VolumeError>(());
        match command {
            NbdCommand::Nothing => Ok(()),
            NbdCommand::Read => {
                let turn = presence.turn(volume, QosCost::read(length)).await.map_err(errno)?;
                let (result, data) = turn.read(offset, BufMut::alloc(length as usize)).await;
                return result.map(|()| Some(data.freeze())).map_err(errno);
            }
            NbdCommand::Status { one } => return self.status(request, one).await.map(Some),
            NbdCommand::Write(durability) => {
                let payload = payload.expect("a write was read with its payload");
                let turn = presence.turn(volume, QosCost::write(length)).await.map_err(errno)?;
                turn.write(offset, payload, durability).await
            }
            NbdCommand::Flush => volume.flush().await,
            NbdCommand::Trim(durability) => match presence.discard(volume, range(), always).await {
                Ok(()) if durability == Durability::Fua => volume.flush().await,
                result => result,
            },
            NbdCommand::WriteZeroes(unmap, durability) => {
                presence.write_zeroes(volume, range(), (unmap, durability), always).await
            }
        }
        .map(|()| None)
        .map_err(errno)
    }

    /// What is known of a range, of each context that was agreed on: whole chunks of a reply.
    async fn status(&self, request: &NbdRequest, one: bool) -> Result<Buf, NbdErrno> {
        let (offset, length) = (request.offset_bytes, request.length_bytes);
        let headers = self.agreed.headers;
        let count_max = if one { 1 } else { EXTENTS_MAX };
        let mut chunks = Vec::new();
        if self.agreed.contexts.has_allocation() {
            // A thread looks; clients cannot have as many of them as they like.
            let _turn = self.looking.acquire(1).await;
            let extents = self.volume.extents(offset, length).await.map_err(errno)?;
            let state = |is_zero| if is_zero { allocation::HOLE | allocation::ZERO } else { 0 };
            let extents = extents.iter().map(|extent| (extent.len_bytes, state(extent.is_zero)));
            chunks.push(status_data(headers, allocation::ID, extents.take(count_max)));
        }
        for number in self.agreed.contexts.checkpoints() {
            let map = self.checkpoints.get(number).filter(|map| !map.has_ended());
            let runs = map.ok_or(NbdErrno::Invalid)?.runs(offset..offset + length, count_max);
            let runs = runs.into_iter().map(|(len, dirty)| (len, if dirty { changes::DIRTY } else { 0 }));
            chunks.push(status_data(headers, changes::FIRST_ID + number as u32, runs));
        }
        let last = chunks.len() - 1;
        let mut whole = Vec::new();
        for (ix, data) in chunks.into_iter().enumerate() {
            let header = ReplyHeader::block_status(headers, request, data.len() as u64, ix == last);
            whole.extend(header.as_bytes());
            whole.extend(data);
        }
        Ok(Buf::copy_of(&whole))
    }

    /// Queues the reply to a request.
    fn reply(&self, request: &NbdRequest, hold: Hold, outcome: Result<Option<Buf>, NbdErrno>) {
        if self.broken.is_set() {
            return;
        }
        let headers = self.agreed.headers;
        let with_data = matches!(request.kind, commands::READ | commands::BLOCK_STATUS);
        let structured = headers == NbdHeaders::Extended || headers == NbdHeaders::Structured && with_data;
        let header = match &outcome {
            // Its headers are with the data: there is one for each context.
            Ok(Some(_)) if request.kind == commands::BLOCK_STATUS => ReplyHeader::within_data(),
            Ok(Some(_)) if structured => ReplyHeader::data(headers, request),
            Ok(None) if structured => ReplyHeader::none(headers, request),
            Err(errno) if structured => ReplyHeader::error(headers, request, *errno),
            outcome => ReplyHeader::simple(request.cookie, outcome.as_ref().err().copied()),
        };
        let mut replies = self.replies.borrow_mut();
        replies.push(Reply { header, data: outcome.ok().flatten(), _hold: hold });
        if replies.len() == 1 {
            self.replies_changed.notify_all();
        }
    }

    /// Sends the replies of `batch` and leaves it empty.
    async fn send(&self, batch: &mut Vec<Reply>) -> Result<(), IoError> {
        let mut result = Ok(());
        for part in batch.chunks_mut(SLICES_PER_SEND_MAX / 2) {
            self.account.wait_begins(ClientWait::Replies, self.core.now());
            result = self.channel.send(&self.core, gather(part)).await;
            self.account.wait_ends(ClientWait::Replies);
            if result.is_err() {
                break;
            }
        }
        batch.clear();
        result
    }
}

/// The data of a chunk of block status: the context, then length and state of each extent.
fn status_data(headers: NbdHeaders, context: u32, extents: impl Iterator<Item = (u64, u32)>) -> Vec<u8> {
    let mut data = context.to_be_bytes().to_vec();
    if headers != NbdHeaders::Extended {
        for (len_bytes, state) in extents {
            // A request has a length of 32 bits, and so has what is known of it.
            data.extend((len_bytes as u32).to_be_bytes());
            data.extend(state.to_be_bytes());
        }
        return data;
    }
    data.extend([0; 4]);
    let mut count: u32 = 0;
    for (len_bytes, state) in extents {
        data.extend(len_bytes.to_be_bytes());
        data.extend(u64::from(state).to_be_bytes());
        count += 1;
    }
    data[4..8].copy_from_slice(&count.to_be_bytes());
    data
}

/// The slices to send for some replies: the headers share one buffer, and those without data
/// between them one slice; data is sent from where it is.
fn gather(replies: &mut [Reply]) -> Vec<Buf> {
    let mut headers = BufMut::alloc(replies.len() * ReplyHeader::BYTES_MAX);
    let mut length = 0;
    for reply in replies.iter() {
        let header = reply.header.as_bytes();
        headers[length..length + header.len()].copy_from_slice(header);
        length += header.len();
    }
    let headers = headers.freeze();
    let (mut from, mut to, mut slices) = (0, 0, Vec::with_capacity(2 * replies.len()));
    for reply in replies {
        to += reply.header.as_bytes().len();
        if let Some(data) = reply.data.take() {
            let header = (from < to).then(|| headers.slice(from..to));
            slices.extend(header.into_iter().chain([data]));
            from = to;
        }
    }
    if from < to {
        slices.push(headers.slice(from..to));
    }
    slices
}

/// What a buffer of `length` bytes costs: the pool deals in powers of two from a page on.
fn charged_bytes(length: u64) -> u64 {
    length.next_power_of_two().max(BUF_ALIGN_BYTES as u64)
}

/// What a client is told about a failure.
fn errno(error: VolumeError) -> NbdErrno {
    match error {
        VolumeError::OutOfRange => NbdErrno::Invalid,
        VolumeError::ReadOnly => NbdErrno::NotPermitted,
        VolumeError::NoSpace => NbdErrno::NoSpace,
        VolumeError::Stopped => NbdErrno::Shutdown,
        // Data that cannot be read, a write that failed, a broken array, and whatever else comes to
        // be.
        _ => NbdErrno::Io,
    }
}
