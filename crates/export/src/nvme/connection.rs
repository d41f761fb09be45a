//! One connection, which is one queue, on one core.
//!
//! Two tasks and one for each command in flight, as for NBD: the reader takes the PDUs that one
//! receive brought and starts a task for each command; the writer sends all that is ready in one
//! call. Commands are done side by side and completed in the order in which they end.
//!
//! Invariants:
//! 1. A command is started only when all of it was received, its data included.
//! 2. What a command holds is taken from the connection's account before it is received, or, for
//!    data that is asked for, from the connection's own part ([`TRANSFER_BYTES_MAX`]): the reader
//!    waits for what other tasks give back, never for what it would have to receive itself.
//! 3. Every command that a volume was given runs to its end, whatever becomes of the connection,
//!    and is completed unless the connection broke, or the host has not taken its answers in time
//!    after it ended. What it was not given yet when the queue ended, it is not given any more.
//! 4. Every answer belongs to a hold that its data is counted in, until it was sent: a host that
//!    takes none makes the reader wait. What has none is bounded by the commands that have: events,
//!    and requests for data.
//! 5. No command of a queue begins in a namespace before those are answered of the same blocks that
//!    clients of its volume left behind, if they had gone before ([`Remains`] says why): also of
//!    the same host by another path; a controller that is disabled is ready until all commands of
//!    its queues are answered.
//!
//! [`TRANSFER_BYTES_MAX`]: super::limits::TRANSFER_BYTES_MAX

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wattle_engine::Volume;
use wattle_engine::volume::Remains;
use wattle_rt::sync::{Latch, Notify};
use wattle_rt::{Buf, BufMut, Core, Either, IoError, Receiver, Stream, race};

use super::admin::AdminState;
use super::auth::Exchange;
use super::command::{NvmeCommand, NvmeCompletion, NvmeStatus};
use super::limits::{DISCOVERY_IDLE_MAX, QUEUE_ENTRIES_MAX};
use super::pdu::{
    self, DIGEST_BYTES, Digests, FaultStatus, HostPdu, InitializeRequest, PduFault, PduFrame, PduLimits,
};
use super::reservation::{Lane, ReservationGate};
use super::subsystem::{Controller, Disconnect, NvmeSubsystem};
use super::transfer::Transfers;
use crate::clients::channel::Channel;
use crate::clients::connections::Stop;
use crate::clients::input::{Ended, Input};
use crate::clients::leaving::{Presence, UnderWay};
use crate::clients::limits::Limits;
use crate::clients::limits::SLICES_PER_SEND_MAX;
use crate::clients::memory::{Account, ClientWait, Hold, Memory};

/// What every connection of a server on one core needs.
pub(super) struct NvmeShard {
    pub(super) namespaces: RefCell<BTreeMap<u32, Rc<Namespace>>>,
    pub(super) subsystem: Arc<NvmeSubsystem>,
    /// Where the server listens.
    pub(super) address: SocketAddr,
    pub(super) limits: Limits,
    pub(super) memory: Rc<Memory>,
}

/// A namespace on one core.
pub(super) struct Namespace {
    pub(super) nsid: u32,
    pub(super) guid: [u8; 16],
    pub(super) volume: Volume,
    /// What commands pass, and where those of this core are counted.
    pub(super) gate: Arc<ReservationGate>,
    pub(super) lane: Arc<Lane>,
    /// What clients of the volume that have gone left behind.
    pub(super) remains: Arc<Remains>,
    /// It is about to go, unless a host has it.
    pub(super) hidden: Cell<bool>,
}

impl NvmeShard {
    /// The namespace of an NSID, if there is one.
    pub(super) fn namespace(&self, nsid: u32) -> Option<Rc<Namespace>> {
        self.namespaces.borrow().get(&nsid).filter(|found| !found.hidden.get()).cloned()
    }

    /// All namespaces.
    pub(super) fn namespaces(&self) -> Vec<Rc<Namespace>> {
        self.namespaces.borrow().values().filter(|found| !found.hidden.get()).cloned().collect()
    }
}

/// What a connection became with its first command.
pub(super) struct Queue {
    pub(super) number: u16,
    pub(super) entries: u16,
    /// The host wants to know how many commands were taken.
    pub(super) flow_control: bool,
    pub(super) controller: Arc<Controller>,
}

/// A connection after its first PDU.
pub(super) struct QueueConnection {
    pub(super) core: Core,
    stream: Stream,
    pub(super) shard: Rc<NvmeShard>,
    digests: Digests,
    data_align_bytes: usize,
    pub(super) account: Rc<Account>,
    pub(super) queue: OnceCell<Queue>,
    /// The namespaces that it has used.
    pub(super) opened: RefCell<BTreeMap<u32, Rc<Opened>>>,
    /// Ends with the queue, unless that is because the server stops.
    pub(super) presence: Presence,
    /// The host has to prove its name before anything else is done.
    pub(super) exchange: RefCell<Option<Exchange>>,
    /// The connection is a queue of a host that need not prove anything any more.
    pub(super) connected: Latch,
    pub(super) proved: Arc<AtomicBool>,
    /// The controller ends this queue, or it has ended.
    pub(super) stopping: Rc<Latch>,
    ids: RefCell<CommandIds>,
    head: Cell<u16>,
    pub(super) transfers: RefCell<Transfers>,
    pub(super) admin: AdminState,
    out: RefCell<Outgoing>,
    out_changed: Notify,
    reading_over: Cell<bool>,
    /// Nothing can be sent any more.
    broken: Latch,
}

/// A namespace as one queue uses it.
pub(super) struct Opened {
    pub(super) of: Weak<Namespace>,
    pub(super) remains: Arc<Remains>,
    /// The volume, as this host's client of it.
    pub(super) volume: Volume,
    pub(super) under_way: Rc<UnderWay>,
}

/// What is ready to be sent.
#[derive(Default)]
struct Outgoing {
    /// Headers, digests and responses, one behind the other.
    bytes: Vec<u8>,
    /// Data, and how many of these bytes come before it.
    data: Vec<(usize, Buf)>,
    /// Given back when all of it was sent, or can no longer be.
    holds: Vec<Hold>,
}

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What to send, in order: data is sent from where it is.
    fn slices(&mut self) -> Vec<Buf> {
        let bytes = Buf::copy_of(&self.bytes);
        let (mut from, mut slices) = (0, Vec::with_capacity(2 * self.data.len() + 1));
        for (to, data) in self.data.drain(..) {
            slices.extend([bytes.slice(from..to), data]);
            from = to;
        }
        if from < bytes.len() {
            slices.push(bytes.slice(from..));
        }
        slices
    }
}

/// The identifiers of commands under way.
struct CommandIds {
    used: Box<[u64; 1 << 10]>,
    count: u32,
}

impl CommandIds {
    fn new() -> Self {
        Self { used: Box::new([0; 1 << 10]), count: 0 }
    }

    /// `false` if it is under way.
    fn insert(&mut self, id: u16) -> bool {
        let (word, bit) = (&mut self.used[usize::from(id >> 6)], 1 << (id & 63));
        let is_new = *word & bit == 0;
        *word |= bit;
        self.count += u32::from(is_new);
        is_new
    }

    fn remove(&mut self, id: u16) {
        let (word, bit) = (&mut self.used[usize::from(id >> 6)], 1 << (id & 63));
        self.count -= u32::from(*word & bit != 0);
        *word &= !bit;
    }
}

/// Why nothing more is read.
pub(super) enum ReadEnd {
    /// The connection ended, or the host ended it.
    Ended,
    /// The host is told what was wrong, with the header at fault.
    Fault(PduFault, Vec<u8>),
}

impl From<Ended> for ReadEnd {
    fn from(_: Ended) -> Self {
        Self::Ended
    }
}

/// What the server knows of a connection that it admits.
pub(super) struct Admitted {
    pub(super) id: u64,
    pub(super) stop: Receiver<Stop>,
    /// Set once the host has proved its name, or need not, and does more than ask what there is.
    pub(super) proved: Arc<AtomicBool>,
}

/// Serves one queue of one host until the host leaves, breaks the protocol, or is told to go.
pub(super) async fn serve(core: Core, shard: Rc<NvmeShard>, stream: Stream, admitted: Admitted) {
    let Admitted { id, stop, proved } = admitted;
    let (told, stopping) = (Rc::new(Latch::new()), Rc::new(Latch::new()));
    when_sent(&core, stop, told.clone());
    let open = shard.memory.open(&core, &shard.limits, stream.clone(), id);
    let mut input = Input::of_client(core.clone(), Channel::Plain(stream.clone()), open.account.clone());
    let deadline = core.now() + shard.limits.handshake_time_max;
    let first = initialize(&core, &stream, &mut input);
    let asked = match race(first, race(core.sleep_until(deadline), told.wait())).await {
        Either::First(Some(asked)) => asked,
        Either::First(None) | Either::Second(_) => return stream.shutdown(),
    };
    let connection = Rc::new(QueueConnection {
        core: core.clone(),
        stream: stream.clone(),
        shard: shard.clone(),
        digests: asked.digests,
        data_align_bytes: asked.data_align_bytes,
        account: open.account.clone(),
        queue: OnceCell::new(),
        opened: RefCell::default(),
        presence: Presence::new(&core, stream.clone()),
        exchange: RefCell::default(),
        connected: Latch::new(),
        proved,
        stopping: stopping.clone(),
        ids: RefCell::new(CommandIds::new()),
        head: Cell::new(0),
        transfers: RefCell::default(),
        admin: AdminState::new(core.now()),
        out: RefCell::default(),
        out_changed: Notify::new(),
        reading_over: Cell::new(false),
        broken: Latch::new(),
    });
    let mut writer = core.spawn(write_out(connection.clone()));
    let late = async {
        if let Either::Second(()) = race(connection.connected.wait(), core.sleep_until(deadline)).await {
            return;
        }
        connection.silence().await;
    };
    let ends = race(connection.broken.wait(), race(race(told.wait(), stopping.wait()), late));
    if let Either::First(ReadEnd::Fault(fault, header)) = race(read_all(&connection, &mut input), ends).await
    {
        connection.queue_out(|out| out.bytes.extend(pdu::termination(fault, &header)));
    }

    connection.reading_over.set(true);
    connection.transfers.take();
    connection.out_changed.notify_all();
    stopping.set();
    if !told.is_set() {
        connection.presence.end();
    }
    let opened = connection.opened.take().into_values();
    let leave = |opened: Rc<Opened>| opened.under_way.leave(&core, &opened.remains);
    let under_way: Vec<_> = opened.filter_map(leave).collect();
    if let Some(queue) = connection.queue.get() {
        match queue.number {
            0 => shard.subsystem.end(&queue.controller),
            number => {
                let (controller, proved) = (queue.controller.clone(), connection.proved.clone());
                let leave = async move {
                    for ended in under_way {
                        ended.await;
                    }
                    controller.leave(number, &proved);
                };
                core.spawn(leave);
            }
        }
    }
    // Whatever ended the reading: answers that the host does not take keep memory, and the
    // connection its place, for so long and no longer.
    let makes_way = told.is_set() && !connection.proved.load(Ordering::Relaxed);
    let patience = if makes_way { Duration::ZERO } else { shard.limits.drain_time_max };
    race(&mut writer, core.sleep(patience)).await;
    connection.presence.end();
    stream.shutdown();
}

/// Sets `latch` when something is sent, or the sender is gone.
pub(super) fn when_sent<T: Send + 'static>(core: &Core, mut receiver: Receiver<T>, latch: Rc<Latch>) {
    core.spawn(async move {
        receiver.recv().await;
        latch.set();
    });
}

/// The first PDU and its answer; `None` if the host is to be hung up on.
async fn initialize(core: &Core, stream: &Stream, input: &mut Input) -> Option<InitializeRequest> {
    let limits = PduLimits::of_queue(true);
    let refuse = async |fault, header: &[u8]| {
        let _ = core.send(stream, vec![Buf::copy_of(&pdu::termination(fault, header))]).await;
        None
    };
    let frame = loop {
        match input.bytes().first_chunk() {
            None => input.fill().await.ok()?,
            Some(bytes) => match pdu::frame(bytes, Digests::default(), limits) {
                Ok(frame) if frame.kind == HostPdu::Initialize => break frame,
                Ok(_) => return refuse(PduFault::SEQUENCE, &bytes.clone()).await,
                Err(fault) => return refuse(fault, &bytes.clone()).await,
            },
        }
    };
    while input.bytes().len() < frame.header_bytes {
        input.fill().await.ok()?;
    }
    let header = input.bytes()[..frame.header_bytes].to_vec();
    input.consume(frame.header_bytes);
    let asked = match InitializeRequest::decode(&header) {
        Ok(asked) => asked,
        Err(fault) => return refuse(fault, &header).await,
    };
    let response = Buf::copy_of(&pdu::initialize_response(asked.digests));
    core.send(stream, vec![response]).await.ok()?;
    Some(asked)
}

async fn read_all(connection: &Rc<QueueConnection>, input: &mut Input) -> ReadEnd {
    loop {
        if let Err(end) = read_pdu(connection, input).await {
            return end;
        }
    }
}

/// Reads one PDU, and does or starts what it asks for.
async fn read_pdu(connection: &Rc<QueueConnection>, input: &mut Input) -> Result<(), ReadEnd> {
    let limits = PduLimits::of_queue(connection.queue.get().is_none_or(|queue| queue.number == 0));
    let frame = loop {
        match input.bytes().first_chunk() {
            Some(bytes) => {
                let framed = pdu::frame(bytes, connection.digests, limits);
                break framed.map_err(|fault| ReadEnd::Fault(fault, bytes.to_vec()))?;
            }
            None => input.fill().await?,
        }
    };
    while input.bytes().len() < frame.head_bytes() {
        input.fill().await?;
    }
    let mut header = [0; pdu::HEADER_BYTES_MAX];
    let header = &mut header[..frame.header_bytes];
    header.copy_from_slice(&input.bytes()[..frame.header_bytes]);
    let fault = |fault, header: &[u8]| ReadEnd::Fault(fault, header.to_vec());
    pdu::check_header(&frame, input.bytes()).map_err(|error| fault(error, header))?;
    input.consume(frame.head_bytes());
    let done = match frame.kind {
        HostPdu::Initialize => return Err(fault(PduFault::SEQUENCE, header)),
        HostPdu::Terminate => return Err(ReadEnd::Ended),
        HostPdu::Command => {
            let mut entry = [0; pdu::ENTRY_BYTES];
            entry.copy_from_slice(&header[8..72]);
            input.took_request();
            connection.take_command(NvmeCommand(entry), &frame, input).await
        }
        HostPdu::Data => connection.take_data(header, &frame, input).await,
    };
    match done {
        Err(ReadEnd::Fault(fault, at)) if at.is_empty() => Err(ReadEnd::Fault(fault, header.to_vec())),
        done => done,
    }
}

/// Sends until the connection breaks, or everything is answered and nothing more is read.
async fn write_out(connection: Rc<QueueConnection>) {
    loop {
        let mut batch = connection.out.take();
        if batch.is_empty() {
            if connection.reading_over.get() && connection.account.requests() == 0 {
                return;
            }
            connection.out_changed.wait().await;
            continue;
        }
        if connection.send(&mut batch).await.is_err() {
            // What still runs finds the connection broken and drops its answer.
            connection.broken.set();
            drop(connection.out.take());
            return;
        }
    }
}

impl QueueConnection {
    async fn send(&self, batch: &mut Outgoing) -> Result<(), IoError> {
        let slices = batch.slices();
        if slices.len() <= SLICES_PER_SEND_MAX {
            return self.send_slices(slices).await;
        }
        for part in slices.chunks(SLICES_PER_SEND_MAX) {
            self.send_slices(part.to_vec()).await?;
        }
        Ok(())
    }

    async fn send_slices(&self, slices: Vec<Buf>) -> Result<(), IoError> {
        self.account.wait_begins(ClientWait::Replies, self.core.now());
        let result = self.core.send(&self.stream, slices).await;
        self.account.wait_ends(ClientWait::Replies);
        result
    }

    /// Returns when the host has been silent for longer than it may be.
    async fn silence(&self) {
        let Some(queue) = self.queue.get().filter(|queue| queue.number == 0) else {
            return std::future::pending().await;
        };
        let unnamed = if queue.controller.is_discovery { Some(DISCOVERY_IDLE_MAX) } else { None };
        self.admin.silence(&self.core, unnamed).await;
    }

    /// Where the host reached this connection.
    pub(super) fn local_address(&self) -> SocketAddr {
        self.stream.local_addr().unwrap_or(self.shard.address)
    }

    /// Takes a command, and its data if that came with it.
    async fn take_command(
        self: &Rc<Self>,
        command: NvmeCommand,
        frame: &PduFrame,
        input: &mut Input,
    ) -> Result<(), ReadEnd> {
        let entries = self.queue.get().map_or(1, |queue| queue.entries);
        if self.ids.borrow().count >= u32::from(entries) {
            let fault = PduFault { status: FaultStatus::LimitExceeded, information: 0 };
            return Err(ReadEnd::Fault(fault, Vec::new()));
        }
        let is_new = self.ids.borrow_mut().insert(command.id());
        if !is_new {
            let hold = self.presence.take(&self.account, 0).await?;
            self.skip_data(frame, input).await?;
            self.respond(command.id(), NvmeStatus::ID_CONFLICT, 0, Some(hold));
            return Ok(());
        }
        self.head.set((self.head.get() + 1) % entries.max(1));
        match self.queue.get() {
            Some(_) if self.exchange.borrow().is_some() => self.take_proof(command, frame, input).await,
            Some(queue) if queue.number > 0 => self.take_io(command, frame, input).await,
            _ => self.take_admin(command, frame, input).await,
        }
    }

    /// Waits for data, and whether it is what was sent.
    pub(super) async fn receive_data(
        &self,
        frame: &PduFrame,
        input: &mut Input,
    ) -> Result<(BufMut, bool), Ended> {
        if input.bytes().len() < frame.data_bytes {
            self.account.wait_begins(ClientWait::Payload, self.core.now());
        }
        let received = input.payload(frame.data_bytes).await;
        self.account.wait_ends(ClientWait::Payload);
        let data = received?;
        if !frame.has_data_digest {
            return Ok((data, true));
        }
        let expected = crc32c::crc32c(&data).to_le_bytes();
        Ok((data, self.digest(input).await? == expected))
    }

    /// Drops data.
    pub(super) async fn skip_data(&self, frame: &PduFrame, input: &mut Input) -> Result<(), Ended> {
        input.skip(frame.data_bytes).await?;
        self.skip_digest(frame, input).await
    }

    async fn skip_digest(&self, frame: &PduFrame, input: &mut Input) -> Result<(), Ended> {
        if frame.has_data_digest {
            self.digest(input).await?;
        }
        Ok(())
    }

    async fn digest(&self, input: &mut Input) -> Result<[u8; DIGEST_BYTES], Ended> {
        loop {
            if let Some(digest) = input.bytes().first_chunk().copied() {
                input.consume(DIGEST_BYTES);
                return Ok(digest);
            }
            input.fill().await?;
        }
    }

    /// Ends a command.
    pub(super) fn complete(&self, id: u16, status: NvmeStatus, result: u64, hold: Option<Hold>) {
        self.ids.borrow_mut().remove(id);
        self.respond(id, status, result, hold);
    }

    fn respond(&self, id: u16, status: NvmeStatus, result: u64, hold: Option<Hold>) {
        let entry = self.completion(id, status, result).encode();
        self.queue_out(|out| {
            pdu::put_response(&mut out.bytes, self.digests, &entry);
            out.holds.extend(hold);
        });
    }

    /// Ends a command that gives data.
    pub(super) fn complete_with(&self, id: u16, data: Buf, hold: Option<Hold>) {
        self.ids.borrow_mut().remove(id);
        let (digests, length) = (self.digests, data.len() as u32);
        let success = self.queue.get().is_some_and(|queue| !queue.flow_control);
        let entry = self.completion(id, NvmeStatus::SUCCESS, 0).encode();
        self.queue_out(|out| {
            pdu::put_data_head(&mut out.bytes, digests, self.data_align_bytes, id, length, success);
            let digest = digests.data.then(|| crc32c::crc32c(&data).to_le_bytes());
            out.data.push((out.bytes.len(), data));
            out.bytes.extend(digest.iter().flatten());
            if !success {
                pdu::put_response(&mut out.bytes, digests, &entry);
            }
            out.holds.extend(hold);
        });
    }

    /// Asks for the data of a command.
    pub(super) fn ask_for(&self, id: u16, length_bytes: u32) {
        self.queue_out(|out| pdu::put_ready(&mut out.bytes, self.digests, id, id, length_bytes));
    }

    fn completion(&self, id: u16, status: NvmeStatus, result: u64) -> NvmeCompletion {
        let counts = self.queue.get().is_none_or(|queue| queue.flow_control);
        NvmeCompletion { result, queue_head: if counts { self.head.get() } else { 0 }, id, status }
    }

    fn queue_out(&self, put: impl FnOnce(&mut Outgoing)) {
        if self.broken.is_set() {
            return;
        }
        let mut out = self.out.borrow_mut();
        let was_empty = out.is_empty();
        put(&mut out);
        if was_empty {
            self.out_changed.notify_all();
        }
    }

    /// The connection becomes a queue, once the host has proved its name in `exchange`, if it has
    /// to.
    pub(super) fn connect(
        self: &Rc<Self>,
        queue: Queue,
        disconnect: Option<Receiver<Disconnect>>,
        exchange: Option<Exchange>,
    ) {
        debug_assert!(queue.entries <= QUEUE_ENTRIES_MAX);
        // The first command was one of this queue.
        self.head.set(1 % queue.entries);
        let is_new = self.queue.set(queue).is_ok();
        debug_assert!(is_new, "a connection is one queue");
        if let Some(disconnect) = disconnect {
            when_sent(&self.core, disconnect, self.stopping.clone());
        }
        match exchange {
            Some(exchange) => *self.exchange.borrow_mut() = Some(exchange),
            None => self.trust(),
        }
    }

    /// The host has proved its name, or need not.
    pub(super) fn trust(&self) {
        if let Some(queue) = self.queue.get() {
            if queue.number == 0 {
                queue.controller.trust();
            }
            self.proved.store(!queue.controller.is_discovery, Ordering::Relaxed);
        }
        *self.exchange.borrow_mut() = None;
        self.connected.set();
    }
}
