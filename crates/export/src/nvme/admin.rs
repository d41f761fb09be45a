//! Commands of the fabric and of the admin queue. None of them waits for a drive: they are done
//! where they are read.
//!
//! Source: NVM Express Base Specification 2.0 (section 5), NVM Express over Fabrics 1.1 (section
//! 3).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use wattle_rt::{Buf, Core, Either, Instant, Notify, mailbox, race};

use super::auth::{AUTH_MESSAGE_BYTES_MAX, AuthProgress, Exchange};
use super::command::{DataSite, FABRICS, NSID_ALL, NvmeCommand, NvmeStatus, io_opcodes};
use super::connect::ConnectRequest;
use super::connection::{Namespace, Queue, QueueConnection, ReadEnd};
use super::identify::{self, ControllerFacts, EVENT_NAMESPACES, NamespaceFacts};
use super::limits::{
    CHANGED_NAMESPACES_MAX, DATA_BYTES_MAX, EVENT_REQUESTS_MAX, IO_QUEUES_MAX, QUEUE_ENTRIES_MAX,
};
use super::pdu::PduFrame;
use super::reservation::{ReservationLog, opcodes as reserve};
use super::subsystem::{DISCOVERY_NQN, Host, JoinedQueue, NamespaceNews, registers};
use super::transfer::charged_bytes;
use crate::clients::input::Input;
use crate::clients::memory::Hold;

mod opcodes {
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0a;
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    pub const KEEP_ALIVE: u8 = 0x18;
}

mod fabrics {
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
}

mod features {
    pub const POWER: u8 = 0x02;
    pub const TEMPERATURE: u8 = 0x04;
    pub const ERROR_RECOVERY: u8 = 0x05;
    pub const WRITE_CACHE: u8 = 0x06;
    pub const QUEUES: u8 = 0x07;
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    pub const EVENTS: u8 = 0x0b;
    pub const KEEP_ALIVE: u8 = 0x0f;
    pub const HOST_ID: u8 = 0x81;
    pub const RESERVATION_EVENTS: u8 = 0x82;
    pub const RESERVATIONS_PERSIST: u8 = 0x83;
}

mod logs {
    pub const ERRORS: u8 = 0x01;
    pub const HEALTH: u8 = 0x02;
    pub const FIRMWARE: u8 = 0x03;
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    pub const COMMANDS: u8 = 0x05;
    pub const ANA: u8 = 0x0c;
    pub const DISCOVERY: u8 = 0x70;
    pub const RESERVATIONS: u8 = crate::nvme::reservation::LOG_PAGE;
}

/// What a controller has beside its registers, on the core of its admin queue.
pub(super) struct AdminState {
    /// The host has to be heard of this often.
    keep_alive: Cell<Option<Duration>>,
    keep_alive_changed: Notify,
    heard: Cell<Instant>,
    events_wanted: Cell<u32>,
    /// Requests for events that were not answered yet.
    pub(super) event_requests: RefCell<VecDeque<u16>>,
    /// Namespaces that changed since the list was read; at most one more than it takes.
    changed: RefCell<BTreeSet<u32>>,
    /// The host was told that there are some, and has not read which.
    told: Cell<bool>,
    pub(super) reservations: RefCell<ReservationLog>,
}

impl AdminState {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            keep_alive: Cell::new(None),
            keep_alive_changed: Notify::new(),
            heard: Cell::new(now),
            events_wanted: Cell::new(0),
            event_requests: RefCell::default(),
            changed: RefCell::default(),
            told: Cell::new(false),
            reservations: RefCell::default(),
        }
    }

    /// Returns when the host has been silent for longer than it said, or than `unnamed` if it said
    /// nothing.
    pub(super) async fn silence(&self, core: &Core, unnamed: Option<Duration>) {
        loop {
            let Some(time) = self.keep_alive.get().or(unnamed) else {
                self.keep_alive_changed.wait().await;
                continue;
            };
            let due = self.heard.get() + time;
            if core.now() >= due {
                return;
            }
            race(core.sleep_until(due), self.keep_alive_changed.wait()).await;
        }
    }

    /// The host names its time in milliseconds; 0 for none. It is rounded up, and has a second
    /// beyond that to arrive.
    fn set_keep_alive(&self, milliseconds: u32) {
        let seconds = u64::from(milliseconds.div_ceil(1000)) + 1;
        self.keep_alive.set((milliseconds > 0).then(|| Duration::from_secs(seconds)));
        self.keep_alive_changed.notify_all();
    }
}

impl QueueConnection {
    /// Takes a command of the admin queue, or the first one of any queue.
    pub(super) async fn take_admin(
        self: &Rc<Self>,
        command: NvmeCommand,
        frame: &PduFrame,
        input: &mut Input,
    ) -> Result<(), ReadEnd> {
        self.admin.heard.set(self.core.turn_time());
        let (id, opcode) = (command.id(), command.opcode());
        let room = room_bytes(&command);
        let hold = self.presence.take(&self.account, charged_bytes(room as u64)).await?;
        let is_connect = opcode == FABRICS && command.fabrics_type() == fabrics::CONNECT;
        if is_connect && frame.data_bytes > 0 {
            let (data, intact) = self.receive_data(frame, input).await?;
            let done =
                if intact { self.connect_as(&command, &data) } else { Err((NvmeStatus::TRANSPORT, 0)) };
            let (status, result) = match done {
                Ok(controller) => (NvmeStatus::SUCCESS, u64::from(controller) | self.asks_for_proof()),
                Err((status, result)) => (status, result),
            };
            self.complete(id, status, result, Some(hold));
            return Ok(());
        }
        self.skip_data(frame, input).await?;
        if opcode == opcodes::ASYNC_EVENT_REQUEST && self.is_ready() {
            self.keep_event_request(id, hold);
            return Ok(());
        }
        if opcode == opcodes::SET_FEATURES
            && command.word(10) as u8 == features::RESERVATIONS_PERSIST
            && self.is_ready()
            && self.has_feature(&command)
        {
            self.persist_reservations(&command, hold);
            return Ok(());
        }
        let done = match opcode {
            FABRICS => self.property(&command).map(Answer::Result),
            _ if !self.is_ready() => Err(NvmeStatus::SEQUENCE),
            opcodes::SET_FEATURES | opcodes::GET_FEATURES if !self.has_feature(&command) => {
                Err(NvmeStatus::INVALID_FIELD)
            }
            opcodes::IDENTIFY => self.identify(&command).map(Answer::Data),
            opcodes::GET_LOG_PAGE => self.log_page(&command).map(Answer::Data),
            opcodes::SET_FEATURES => self.set_feature(&command).map(Answer::Result),
            opcodes::GET_FEATURES => self.feature(&command),
            // What is under way is never taken back.
            opcodes::ABORT => Ok(Answer::Result(1)),
            opcodes::KEEP_ALIVE => Ok(Answer::Result(0)),
            _ => Err(NvmeStatus::INVALID_OPCODE),
        };
        match done {
            Ok(Answer::Data(data)) if data.len() > room => {
                self.complete(id, NvmeStatus::INVALID_LENGTH, 0, Some(hold));
            }
            Ok(Answer::Data(data)) => self.complete_with(id, Buf::copy_of(&data), Some(hold)),
            Ok(Answer::Result(result)) => self.complete(id, NvmeStatus::SUCCESS, result, Some(hold)),
            Err(status) => self.complete(id, status, 0, Some(hold)),
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.queue.get().is_some_and(|queue| queue.controller.is_ready())
    }

    /// Connect: the controller's number, or the status and which field is wrong.
    fn connect_as(self: &Rc<Self>, command: &NvmeCommand, data: &[u8]) -> Result<u16, (NvmeStatus, u64)> {
        if self.queue.get().is_some() {
            return Err((NvmeStatus::SEQUENCE, 0));
        }
        let asked = ConnectRequest::decode(command, data)?;
        let host = Host { nqn: asked.host_nqn, id: asked.host_id };
        let subsystem = &self.shard.subsystem;
        let is_discovery = asked.subsystem_nqn == DISCOVERY_NQN;
        if !is_discovery && asked.subsystem_nqn != subsystem.nqn() {
            return Err(ConnectRequest::wrong_data(256));
        }
        let secrets = subsystem.secrets().filter(|_| !is_discovery);
        let exchange = secrets.map(|_| Exchange::new(&host.nqn, subsystem.nqn()));
        let entries = asked.entries;
        let flow_control = asked.flow_control;
        if asked.queue > 0 {
            let controller = subsystem.controller(asked.controller);
            let controller = controller.filter(|found| found.host == host && !is_discovery);
            let controller = controller.ok_or_else(|| ConnectRequest::wrong_data(16))?;
            if asked.queue > self.queues_max() {
                return Err(ConnectRequest::wrong_command(42));
            }
            let (disconnect, asked_to) = mailbox();
            let joined = JoinedQueue { disconnect, proved: self.proved.clone() };
            controller.join(asked.queue, joined).map_err(|status| (status, 0))?;
            let id = controller.id;
            self.connect(
                Queue { number: asked.queue, entries, flow_control, controller },
                Some(asked_to),
                exchange,
            );
            return Ok(id);
        }
        let (changed, mut changes) = mailbox();
        let controller = subsystem.admit(host, is_discovery, changed).map_err(|status| (status, 0))?;
        let id = controller.id;
        self.admin.set_keep_alive(asked.keep_alive_milliseconds);
        self.connect(Queue { number: 0, entries, flow_control, controller }, None, exchange);
        let connection = self.clone();
        self.core.spawn(async move {
            // Nothing more is told of a connection that ends.
            while let Either::First(Some(news)) = race(changes.recv(), connection.stopping.wait()).await {
                match news {
                    NamespaceNews::Changed(nsid) => connection.namespace_changed(nsid),
                    NamespaceNews::Reservation(nsid, notice) => connection.reservation_changed(nsid, notice),
                }
            }
        });
        Ok(id)
    }

    /// What the answer to Connect says of authentication.
    fn asks_for_proof(&self) -> u64 {
        const REQUIRED: u64 = 1 << 17;
        if self.exchange.borrow().is_some() { REQUIRED } else { 0 }
    }

    /// Takes a command of a queue whose host has not proved its name yet.
    pub(super) async fn take_proof(
        self: &Rc<Self>,
        command: NvmeCommand,
        frame: &PduFrame,
        input: &mut Input,
    ) -> Result<(), ReadEnd> {
        let id = command.id();
        let room = room_bytes(&command).min(AUTH_MESSAGE_BYTES_MAX);
        let hold = self.presence.take(&self.account, charged_bytes(room as u64)).await?;
        let kind = (command.opcode() == FABRICS).then(|| command.fabrics_type());
        let sends = kind == Some(fabrics::AUTHENTICATION_SEND) && frame.data_bytes > 0;
        if sends && frame.data_bytes <= AUTH_MESSAGE_BYTES_MAX {
            let (message, intact) = self.receive_data(frame, input).await?;
            if !intact {
                self.complete(id, NvmeStatus::TRANSPORT, 0, Some(hold));
                return Ok(());
            }
            let progress = self.carry_on(&message).await;
            self.complete(id, NvmeStatus::SUCCESS, 0, Some(hold));
            match progress {
                AuthProgress::Over => return Err(ReadEnd::Ended),
                AuthProgress::Proved => self.trust(),
                AuthProgress::GoesOn | AuthProgress::Computes(_) => {}
            }
            return Ok(());
        }
        self.skip_data(frame, input).await?;
        if kind != Some(fabrics::AUTHENTICATION_RECEIVE) {
            self.complete(id, NvmeStatus::AUTHENTICATION_REQUIRED, 0, Some(hold));
            return Ok(());
        }
        let given = self.exchange.borrow_mut().as_mut().and_then(Exchange::give);
        match given {
            Some((message, _)) if message.len() > room => {
                self.complete(id, NvmeStatus::INVALID_LENGTH, 0, Some(hold));
            }
            Some((mut message, proved)) => {
                // A host's own length is what it takes.
                message.resize(room, 0);
                self.complete_with(id, Buf::copy_of(&message), Some(hold));
                if proved {
                    self.trust();
                }
            }
            None => self.complete(id, NvmeStatus::SEQUENCE, 0, Some(hold)),
        }
        Ok(())
    }

    /// Takes a message of the exchange, and computes what that asks for.
    async fn carry_on(&self, message: &[u8]) -> AuthProgress {
        let subsystem = &self.shard.subsystem;
        let Some(secrets) = subsystem.secrets() else { return AuthProgress::Over };
        let random = rustls::crypto::ring::default_provider().secure_random;
        let progress = match self.exchange.borrow_mut().as_mut() {
            Some(exchange) => exchange.take(message, secrets, |bytes| random.fill(bytes).is_ok()),
            None => return AuthProgress::Over,
        };
        let AuthProgress::Computes(power) = progress else { return progress };
        let value = subsystem.exponentiations().compute(&self.core, power).await;
        if let Some(exchange) = self.exchange.borrow_mut().as_mut() {
            exchange.computed(value, secrets);
        }
        AuthProgress::GoesOn
    }

    /// Queues of one controller beside its admin queue: more connections than tasks that carry
    /// them out bring nothing.
    fn queues_max(&self) -> u16 {
        const PER_CORE: usize = 4;
        const QUEUES_MIN: u16 = 8;
        u16::try_from(self.core.cores() * PER_CORE).unwrap_or(u16::MAX).clamp(QUEUES_MIN, IO_QUEUES_MAX)
    }

    /// Property Get and Property Set.
    fn property(&self, command: &NvmeCommand) -> Result<u64, NvmeStatus> {
        const TIMEOUT: u64 = 60; // In units of 500 ms: what a drive is slow with is waited for.
        const NVM_COMMANDS: u64 = 1 << 37;
        const CONTIGUOUS: u64 = 1 << 16;
        let queue = self.queue.get().ok_or(NvmeStatus::SEQUENCE)?;
        let (controller, offset) = (&queue.controller, command.u32(44));
        let is_long = command.0[40] & 0b111 == 1;
        match command.fabrics_type() {
            fabrics::PROPERTY_GET => match (offset, is_long) {
                (registers::CAP, true) => {
                    Ok(u64::from(QUEUE_ENTRIES_MAX - 1) | CONTIGUOUS | TIMEOUT << 24 | NVM_COMMANDS)
                }
                (registers::VS, false) => Ok(identify::VERSION.into()),
                (registers::CC, false) => Ok(controller.configuration().into()),
                (registers::CSTS, false) => Ok(controller.status().into()),
                _ => Err(NvmeStatus::INVALID_FIELD),
            },
            fabrics::PROPERTY_SET if offset == registers::CC && !is_long => {
                controller.configure(command.u32(48)).map(|()| 0)
            }
            fabrics::PROPERTY_SET => Err(NvmeStatus::INVALID_FIELD),
            _ => Err(NvmeStatus::INVALID_OPCODE),
        }
    }

    fn identify(&self, command: &NvmeCommand) -> Result<Vec<u8>, NvmeStatus> {
        let queue = self.queue.get().ok_or(NvmeStatus::SEQUENCE)?;
        let (controller, subsystem) = (&queue.controller, &self.shard.subsystem);
        let (cns, command_set) = (command.word(10) & 0xff, command.word(11) >> 24);
        let nsid = command.nsid();
        let found = || self.shard.namespace(nsid).map(|found| facts(&found));
        let all = || self.shard.namespaces().into_iter().map(|found| found.nsid);
        if cns != 0x01 && controller.is_discovery {
            return Err(NvmeStatus::INVALID_FIELD);
        }
        match cns {
            0x00 if nsid == 0 || nsid == NSID_ALL => Err(NvmeStatus::INVALID_NAMESPACE),
            0x00 => Ok(identify::namespace(found().as_ref())),
            0x01 => {
                let is_discovery = controller.is_discovery;
                let nqn = if is_discovery { DISCOVERY_NQN } else { subsystem.nqn() };
                let (serial, id) = (subsystem.serial(), controller.id);
                Ok(identify::controller(&ControllerFacts { nqn, serial, id, is_discovery }))
            }
            0x02 if nsid < NSID_ALL - 1 => Ok(identify::namespace_list(all(), nsid)),
            0x02 => Err(NvmeStatus::INVALID_NAMESPACE),
            0x03 => found().map(|facts| identify::descriptors(&facts)).ok_or(NvmeStatus::INVALID_NAMESPACE),
            0x05 if command_set == 0 => match found() {
                Some(_) => Ok(vec![0; identify::IDENTIFY_BYTES]),
                None => Err(NvmeStatus::INVALID_NAMESPACE),
            },
            0x06 if command_set == 0 => Ok(vec![0; identify::IDENTIFY_BYTES]),
            0x07 if command_set == 0 => Ok(identify::namespace_list(all(), nsid)),
            0x1c => Ok(identify::command_sets()),
            _ => Err(NvmeStatus::INVALID_FIELD),
        }
    }

    fn log_page(&self, command: &NvmeCommand) -> Result<Vec<u8>, NvmeStatus> {
        const RETAIN_EVENT: u32 = 1 << 15;
        const GROUPS_ONLY: u32 = 1 << 8;
        let queue = self.queue.get().ok_or(NvmeStatus::SEQUENCE)?;
        let word = command.word(10);
        let words = u64::from(word >> 16) | u64::from(command.word(11) & 0xffff) << 16;
        let length = usize::try_from((words + 1) * 4).unwrap_or(usize::MAX);
        let offset = usize::try_from(u64::from(command.word(12)) | u64::from(command.word(13)) << 32);
        if length > DATA_BYTES_MAX {
            return Err(NvmeStatus::INVALID_FIELD);
        }
        let subsystem = &self.shard.subsystem;
        let log = match (word as u8, queue.controller.is_discovery) {
            (logs::DISCOVERY, true) => {
                let (generation, ports) = subsystem.ports(self.local_address());
                identify::discovery_log(generation, subsystem.nqn(), self.local_address(), &ports)
            }
            (logs::ERRORS, _) => identify::error_log(),
            (logs::HEALTH, false) => identify::health_log(),
            (logs::FIRMWARE, false) => identify::firmware_log(),
            (logs::COMMANDS, false) => commands_log(),
            (logs::ANA, false) => {
                let nsids: Vec<u32> = self.shard.namespaces().iter().map(|found| found.nsid).collect();
                identify::ana_log(&nsids, subsystem.changes(), word & GROUPS_ONLY != 0)
            }
            (logs::CHANGED_NAMESPACES, false) => {
                let changed: Vec<u32> = self.admin.changed.borrow().iter().copied().collect();
                if word & RETAIN_EVENT == 0 {
                    self.admin.changed.borrow_mut().clear();
                    self.admin.told.set(false);
                }
                identify::changed_log(&changed)
            }
            (logs::RESERVATIONS, false) => self.reservation_page(word & RETAIN_EVENT != 0),
            _ => return Err(NvmeStatus::INVALID_LOG_PAGE),
        };
        let from = offset.ok().filter(|from| *from <= log.len()).ok_or(NvmeStatus::INVALID_FIELD)?;
        let mut part = log[from..log.len().min(from.saturating_add(length))].to_vec();
        part.resize(length, 0);
        Ok(part)
    }

    /// Whether the controller has the feature that a command names. One that hosts only discover
    /// with asks for no proof, and has neither queues nor namespaces.
    fn has_feature(&self, command: &NvmeCommand) -> bool {
        let is_discovery = self.queue.get().is_some_and(|queue| queue.controller.is_discovery);
        !is_discovery || matches!(command.word(10) as u8, features::EVENTS | features::KEEP_ALIVE)
    }

    fn set_feature(&self, command: &NvmeCommand) -> Result<u64, NvmeStatus> {
        let value = command.word(11);
        match command.word(10) as u8 {
            features::QUEUES if value & 0xffff == 0xffff || value >> 16 == 0xffff => {
                Err(NvmeStatus::INVALID_FIELD)
            }
            features::QUEUES => {
                let granted = |asked: u32| asked.min(u32::from(self.queues_max()) - 1);
                Ok(u64::from(granted(value & 0xffff) | granted(value >> 16) << 16))
            }
            features::EVENTS => {
                self.admin.events_wanted.set(value);
                self.tell();
                Ok(0)
            }
            features::KEEP_ALIVE => {
                self.admin.set_keep_alive(value);
                Ok(0)
            }
            features::RESERVATION_EVENTS => self.mask_reservation_events(command.nsid(), value).map(|()| 0),
            // It is there whatever a host wants: only flushes make durable.
            features::WRITE_CACHE if value & 1 == 1 => Ok(0),
            features::POWER if value & 0x1f == 0 => Ok(0),
            features::WRITE_CACHE | features::POWER | features::HOST_ID => Err(NvmeStatus::NOT_CHANGEABLE),
            features::TEMPERATURE | features::ERROR_RECOVERY | features::WRITE_ATOMICITY => Ok(0),
            _ => Err(NvmeStatus::INVALID_FIELD),
        }
    }

    fn feature(&self, command: &NvmeCommand) -> Result<Answer, NvmeStatus> {
        let queue = self.queue.get().ok_or(NvmeStatus::SEQUENCE)?;
        Ok(Answer::Result(match command.word(10) as u8 {
            features::QUEUES => u64::from(self.queues_max() - 1) * 0x1_0001,
            features::EVENTS => self.admin.events_wanted.get().into(),
            features::KEEP_ALIVE => {
                let time = self.admin.keep_alive.get().unwrap_or_default();
                time.as_millis().saturating_sub(1000) as u64
            }
            features::WRITE_CACHE => 1,
            features::POWER
            | features::TEMPERATURE
            | features::ERROR_RECOVERY
            | features::WRITE_ATOMICITY => 0,
            features::RESERVATION_EVENTS => self.reservation_mask(command.nsid())?.into(),
            features::RESERVATIONS_PERSIST => {
                let found = self.shard.namespace(command.nsid()).ok_or(NvmeStatus::INVALID_NAMESPACE)?;
                found.gate.table().persists.into()
            }
            features::HOST_ID => return Ok(Answer::Data(queue.controller.host.id.to_vec())),
            _ => return Err(NvmeStatus::INVALID_FIELD),
        }))
    }

    fn keep_event_request(&self, id: u16, hold: Hold) {
        if self.admin.event_requests.borrow().len() >= EVENT_REQUESTS_MAX {
            return self.complete(id, NvmeStatus::EVENT_LIMIT, 0, Some(hold));
        }
        // A request that is kept holds nothing: it may never be answered.
        drop(hold);
        self.admin.event_requests.borrow_mut().push_back(id);
        self.tell();
    }

    /// A namespace came, went, or has another size.
    fn namespace_changed(&self, nsid: u32) {
        let mut changed = self.admin.changed.borrow_mut();
        if changed.len() <= CHANGED_NAMESPACES_MAX {
            changed.insert(nsid);
        }
        drop(changed);
        self.tell();
    }

    /// Tells the host that namespaces changed, if it wants to know, asked, and was not told yet.
    pub(super) fn tell(&self) {
        const NOTICE: u64 = 0x02;
        const NAMESPACE_ATTRIBUTES: u64 = 0x00 << 8;
        const LOG: u64 = (logs::CHANGED_NAMESPACES as u64) << 16;
        self.tell_reservations();
        let admin = &self.admin;
        if admin.changed.borrow().is_empty()
            || admin.told.get()
            || admin.events_wanted.get() & EVENT_NAMESPACES == 0
        {
            return;
        }
        let request = admin.event_requests.borrow_mut().pop_front();
        if let Some(id) = request {
            admin.told.set(true);
            self.complete(id, NvmeStatus::SUCCESS, NOTICE | NAMESPACE_ATTRIBUTES | LOG, None);
        }
    }
}

/// What there is room for in the answer of a command, up to the longest one.
pub(super) fn room_bytes(command: &NvmeCommand) -> usize {
    match command.data() {
        Ok(DataSite::Transport(length)) => (length as usize).min(DATA_BYTES_MAX),
        _ => 0,
    }
}

/// What a command gives back.
enum Answer {
    Result(u64),
    Data(Vec<u8>),
}

fn facts(namespace: &Namespace) -> NamespaceFacts {
    let volume = &namespace.volume;
    NamespaceFacts {
        guid: namespace.guid,
        size_bytes: volume.size_bytes(),
        block_bytes: volume.block_bytes(),
        optimal_bytes: volume.io_opt_bytes(),
        read_only: volume.read_only(),
        keeps_reservations: namespace.gate.can_persist(),
    }
}

fn commands_log() -> Vec<u8> {
    let admin = [
        opcodes::GET_LOG_PAGE,
        opcodes::IDENTIFY,
        opcodes::ABORT,
        opcodes::SET_FEATURES,
        opcodes::GET_FEATURES,
        opcodes::ASYNC_EVENT_REQUEST,
        opcodes::KEEP_ALIVE,
    ];
    let io = [
        (io_opcodes::FLUSH, false),
        (io_opcodes::WRITE, true),
        (io_opcodes::READ, false),
        (io_opcodes::WRITE_ZEROES, true),
        (io_opcodes::DATASET_MANAGEMENT, true),
        (reserve::REGISTER, false),
        (reserve::REPORT, false),
        (reserve::ACQUIRE, false),
        (reserve::RELEASE, false),
    ];
    identify::commands_log(&admin, &io)
}
