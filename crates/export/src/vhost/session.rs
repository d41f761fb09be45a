//! One hypervisor's connection: what it says of its guest's memory and rings, and the queues that
//! are served because of it.
//!
//! The conversation is a task on the core that accepted it; queues are spread over the cores. A
//! message is carried out before the next one is read, so a reply says that it is done.
//!
//! Invariants:
//! 1. A queue runs from the message that brings its kick event until the one that asks for its
//!    base, or the end of the connection.
//! 2. When a connection ends, whatever is being carried out for it, all its queues are severed at
//!    once. No queue of the volume begins before the volume has answered what was begun in a queue
//!    that ends: a hypervisor that comes back repeats those requests, and none of them may be
//!    carried out behind a later one.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use wattle_engine::VolumeError;
use wattle_engine::volume::qos::QosClient;
use wattle_rt::mailbox::mailbox;
use wattle_rt::sync::Latch;
use wattle_rt::{
    Core, CoreIx, Doorbell, Either, IoError, KeptOpen, MappingRoom, MappingShare, SharedMemory, Stream, race,
};

use super::device::{CONFIG_BYTES_MAX, DiskFacts, QUEUES_MAX, feature, serial};
use super::disk::{Disk, Told};
use super::memory::{GuestMemory, GuestRegion};
use super::message::{
    FrontHeader, FrontMessage, HEADER_BYTES, LogFacts, MessageFault, REGIONS_AT_ONCE_MAX, RegionFacts,
    config_changed, protocol, reply,
};
use super::queue::{Queue, QueueFault, QueueParts, disk_facts};
use super::ring::{GuestRing, LogPlace, RING_SIZE_MAX, RingAddresses, RingFeatures, RingSetup, log_bytes};

/// Regions of memory that a guest may have: what QEMU has at most.
const REGIONS_MAX: usize = 509;
/// Mappings of memory that the guests of a volume may have: those of four such guests.
const MAPPINGS_MAX: usize = 4 * (REGIONS_MAX + 1);
/// Extensions of the protocol that are offered.
const PROTOCOL: u64 = protocol::MQ
    | protocol::REPLY_ACK
    | protocol::BACKEND_REQ
    | protocol::CONFIG
    | protocol::INFLIGHT
    | protocol::RESET_DEVICE
    | protocol::MEMORY_SLOTS;

/// A server that stops completes what guests asked for this long.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);

/// The mappings that the guests of a volume may have: neither so many nor of so many bytes that one
/// volume could have all that there may be.
pub(super) fn mapping_share() -> MappingShare {
    /// 8 TiB where a process has addresses of 47 bits.
    const SHARE_OF_ALL: usize = 8;
    MappingShare::of(MAPPINGS_MAX, SharedMemory::bytes_max() / SHARE_OF_ALL)
}

/// Why a connection ended that the hypervisor did not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SessionFault {
    /// It said something that cannot be taken.
    #[error(transparent)]
    Message(#[from] MessageFault),
    /// A queue beyond those there are.
    #[error("queue {0}: there are 64")]
    Queue(u32),
    /// Features that were not offered.
    #[error("features that were not offered: {0:#x}")]
    Features(u64),
    /// Memory that cannot be mapped.
    #[error("memory of {0} bytes cannot be mapped: {1}")]
    Memory(u64, IoError),
    /// A descriptor that came along is nothing that a server can touch without waiting for another
    /// process.
    #[error("a descriptor that is no memory (memfd, tmpfs, hugetlbfs), no event and no Unix socket")]
    Descriptor,
    /// More memory than there is room for.
    #[error("more than 509 regions of memory")]
    Regions,
    /// More memory than all guests of a volume have room for.
    #[error(
        "the guests of this volume may share 2040 regions of memory and {1} bytes at a time: no room for {0} bytes more"
    )]
    Mappings(u64, usize),
    /// Memory is removed that is not there.
    #[error("memory at {0:#x} is removed that was not there")]
    NoRegion(u64),
    /// A queue that runs is told to be another.
    #[error("queue {0} is changed while it runs")]
    Running(u32),
    /// The guest broke the rules of a ring.
    #[error("queue {0}: {1}")]
    Ring(u32, QueueFault),
    /// The volume ended.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The connection broke.
    #[error(transparent)]
    Connection(#[from] IoError),
}

/// A queue as the hypervisor describes it.
#[derive(Default)]
struct QueueFacts {
    size: u32,
    addresses: Option<RingAddresses>,
    base: u32,
    call: Option<Arc<Doorbell>>,
    error: Option<Doorbell>,
    enabled: bool,
    running: Option<RunningQueue>,
}

/// A queue on its core.
struct RunningQueue {
    core: CoreIx,
    /// The name of the [`Queue`] among the core's values: its own address.
    name: Arc<()>,
}

impl RunningQueue {
    fn key(&self) -> u64 {
        Arc::as_ptr(&self.name).addr() as u64
    }
}

/// The log of what is in flight, and where in the mapping it begins.
struct InflightLog {
    memory: Arc<SharedMemory>,
    at: usize,
    facts: LogFacts,
}

struct Session {
    core: Core,
    disk: Rc<Disk>,
    stream: Stream,
    told: Rc<Told>,
    features: u64,
    extensions: u64,
    memory: Arc<GuestMemory>,
    log: Option<InflightLog>,
    /// For messages the other way.
    upcalls: Option<Stream>,
    queues: Vec<QueueFacts>,
    first_core: usize,
    /// All its queues are one client of the volume.
    client: QosClient,
    /// Queues that stopped by themselves, and why.
    faults: Rc<RefCell<Vec<(u32, QueueFault)>>>,
    faulted: Rc<Latch>,
    /// Behind all that it is a duplicate of, which is dropped before it.
    kept: KeptOpen,
}

/// Talks with a hypervisor until it goes, breaks the rules, or the server stops. `told` is among
/// the disk's sessions, and is no more then.
pub(super) async fn converse(
    core: Core,
    disk: Rc<Disk>,
    stream: Stream,
    told: Rc<Told>,
) -> Result<(), SessionFault> {
    let first_core = disk.first_core.replace(disk.first_core.get() + 1);
    let mut session = Session {
        core: core.clone(),
        disk: disk.clone(),
        stream: stream.clone(),
        told: told.clone(),
        features: 0,
        extensions: 0,
        memory: Arc::default(),
        log: None,
        upcalls: None,
        queues: (0..QUEUES_MAX).map(|_| QueueFacts::default()).collect(),
        first_core,
        client: QosClient::new(),
        faults: Rc::default(),
        faulted: Rc::default(),
        kept: KeptOpen::of(&stream),
    };
    let ended = session.listen().await;
    let remain = disk.remains.hold();
    if told.stop.is_set() {
        // What was begun is completed, as long as there is a hypervisor to complete it for, and for
        // so long: what is not, it asks the next server for.
        let over = race(gone(&core, &stream), core.sleep(DRAIN_TIME_MAX));
        race(over, session.stop_all(false)).await;
    }
    session.stop_all(true).await;
    stream.shutdown();
    disk.sessions.borrow_mut().retain(|other| !Rc::ptr_eq(other, &told));
    disk.one_ended.notify_all();
    drop(remain);
    ended
}

/// Waits until the hypervisor has gone; for ever where that cannot be seen.
async fn gone(core: &Core, stream: &Stream) {
    if core.hung_up(stream).await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl Session {
    async fn listen(&mut self) -> Result<(), SessionFault> {
        while let Some((header, message)) = self.receive().await? {
            let request = header.request;
            let (core, stream) = (self.core.clone(), self.stream.clone());
            // Some messages wait for the volume, and the hypervisor may go meanwhile.
            let answer = match race(self.carry_out(message), gone(&core, &stream)).await {
                Either::First(answer) => answer?,
                Either::Second(()) => return Ok(()),
            };
            match answer {
                Answer::Reply(payload) => self.stream.try_send_along(&reply(request, &payload), None)?,
                Answer::WithFile(payload, file) => {
                    self.stream.try_send_along(&reply(request, &payload), Some(file.as_fd()))?;
                }
                Answer::Done(ok) if header.needs_reply && self.extensions & protocol::REPLY_ACK != 0 => {
                    let payload = u64::from(!ok).to_le_bytes();
                    self.stream.try_send_along(&reply(request, &payload), None)?;
                }
                Answer::Done(_) => {}
            }
        }
        Ok(())
    }

    /// The next message; `None` at the end, in whatever way that comes.
    async fn receive(&mut self) -> Result<Option<(FrontHeader, FrontMessage)>, SessionFault> {
        let mut descriptors = Vec::new();
        let mut header = [0; HEADER_BYTES];
        if !self.fill(&mut header, &mut descriptors).await? {
            return Ok(None);
        }
        let header = FrontHeader::decode(&header)?;
        let mut payload = vec![0; header.payload_bytes];
        if !self.fill(&mut payload, &mut descriptors).await? {
            return Ok(None);
        }
        let message = FrontMessage::decode(header.request, &payload, descriptors)?;
        Ok(Some((header, message)))
    }

    /// Receives so many bytes; false at the end.
    async fn fill(&mut self, mut bytes: &mut [u8], along: &mut Vec<OwnedFd>) -> Result<bool, SessionFault> {
        while !bytes.is_empty() {
            match self.stream.try_receive_harmless(bytes, &mut self.kept) {
                Ok((0, _)) => return Ok(false),
                Ok((count, descriptors)) => {
                    along.extend(descriptors);
                    if along.len() > REGIONS_AT_ONCE_MAX {
                        return Err(IoError::from_errno(libc::EMSGSIZE).into());
                    }
                    bytes = &mut bytes[count..];
                }
                Err(error) if error.errno() == libc::EAGAIN => {
                    let told = self.told.clone();
                    let told = race(told.stop.wait(), race(self.faulted.wait(), told.resized.wait()));
                    match race(self.core.readable(&self.stream), told).await {
                        Either::First(ready) => ready?,
                        Either::Second(Either::First(())) => return Ok(false),
                        Either::Second(Either::Second(Either::First(()))) => self.tell_faults(),
                        Either::Second(Either::Second(Either::Second(()))) => self.tell_size(),
                    }
                }
                Err(error) if matches!(error.errno(), libc::ECONNRESET | libc::EPIPE) => return Ok(false),
                Err(error) if error.errno() == libc::EINTR => {}
                Err(error) if error == IoError::INVALID => return Err(SessionFault::Descriptor),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Tells of queues that stopped by themselves; the others go on. The hypervisor may show its
    /// guest that the device needs a reset, with which a queue begins anew.
    fn tell_faults(&self) {
        self.faulted.reset();
        for (ix, why) in self.faults.take() {
            self.disk.report.tell(self.core.now(), &SessionFault::Ring(ix, why));
            if let Some(QueueFacts { error: Some(event), .. }) = self.queues.get(ix as usize) {
                event.ring();
            }
        }
    }

    fn tell_size(&self) {
        self.told.resized.reset();
        if let Some(upcalls) = &self.upcalls
            && self.extensions & protocol::CONFIG != 0
        {
            // A hypervisor that takes no such messages learns of it when the guest starts anew.
            let _ = upcalls.try_send_along(&config_changed(), None);
        }
    }

    fn facts(&self) -> Result<DiskFacts, SessionFault> {
        Ok(disk_facts(&self.disk.volume.open(&self.core)?))
    }

    fn queue(&mut self, ix: u32) -> Result<&mut QueueFacts, SessionFault> {
        self.queues.get_mut(ix as usize).ok_or(SessionFault::Queue(ix))
    }

    /// A queue that does not run.
    fn idle_queue(&mut self, ix: u32) -> Result<&mut QueueFacts, SessionFault> {
        let queue = self.queue(ix)?;
        if queue.running.is_some() { Err(SessionFault::Running(ix)) } else { Ok(queue) }
    }

    /// Does what a message says.
    ///
    /// # Cancellation
    /// Dropping the future leaves every queue that was begun among those that [`Self::stop_all`]
    /// ends.
    async fn carry_out(&mut self, message: FrontMessage) -> Result<Answer, SessionFault> {
        let number = |value: u64| Ok(Answer::Reply(value.to_le_bytes().to_vec()));
        match message {
            FrontMessage::GetFeatures => return number(self.facts()?.features()),
            FrontMessage::SetFeatures(features) => {
                let unknown = features & !self.facts()?.features();
                if unknown != 0 {
                    return Err(SessionFault::Features(unknown));
                }
                self.features = features;
            }
            FrontMessage::SetOwner => {}
            FrontMessage::ResetOwner => {
                self.stop_all(false).await;
                self.queues.iter_mut().for_each(|queue| queue.enabled = false);
            }
            FrontMessage::ResetDevice => {
                self.stop_all(false).await;
                // The guest begins anew: its rings are others, of which the log knows nothing.
                self.log = None;
                self.queues.iter_mut().for_each(|queue| (queue.enabled, queue.base) = (false, 0));
            }
            FrontMessage::GetProtocolFeatures => return number(PROTOCOL),
            FrontMessage::SetProtocolFeatures(extensions) => match extensions & !PROTOCOL {
                0 => self.extensions = extensions,
                unknown => return Err(SessionFault::Features(unknown)),
            },
            FrontMessage::GetQueueNum => return number(QUEUES_MAX.into()),
            FrontMessage::GetMaxMemSlots => return number(REGIONS_MAX as u64),
            FrontMessage::SetBackendReqFd(socket) => self.upcalls = Some(Stream::from_fd(socket)),
            FrontMessage::GetConfig { offset, len, flags } => {
                // No room for a configuration in the reply says that this one cannot be had.
                let (offset, len) = (offset as usize, len as usize);
                if offset + len > CONFIG_BYTES_MAX {
                    return Ok(Answer::Reply(Vec::new()));
                }
                let head = [offset as u32, len as u32, flags].map(u32::to_le_bytes).concat();
                return Ok(Answer::Reply([head, self.facts()?.config(offset, len)].concat()));
            }
            // Nothing in it is the guest's to choose.
            FrontMessage::SetConfig => return Ok(Answer::Done(false)),
            message => return self.carry_out_for_guest(message).await,
        }
        Ok(Answer::Done(true))
    }

    /// What concerns the guest's memory and rings.
    async fn carry_out_for_guest(&mut self, message: FrontMessage) -> Result<Answer, SessionFault> {
        match message {
            FrontMessage::SetMemTable(table) => {
                let mut memory = GuestMemory::default();
                for (facts, file) in table {
                    memory.add(map_region(facts, file.as_fd(), self.room(facts.len)?)?);
                }
                self.set_memory(memory).await;
            }
            FrontMessage::AddMemReg(facts, file) => {
                let mut memory = GuestMemory::clone(&self.memory);
                if memory.regions() == REGIONS_MAX {
                    return Err(SessionFault::Regions);
                }
                memory.add(map_region(facts, file.as_fd(), self.room(facts.len)?)?);
                self.set_memory(memory).await;
            }
            FrontMessage::RemMemReg(facts) => {
                let mut memory = GuestMemory::clone(&self.memory);
                if !memory.remove(facts.guest, facts.user, facts.len) {
                    return Err(SessionFault::NoRegion(facts.guest));
                }
                self.set_memory(memory).await;
            }
            FrontMessage::GetInflightFd(asked) => return self.make_log(asked),
            FrontMessage::SetInflightFd(facts, file) => {
                let (memory, at) = map_part(&file, facts.offset, facts.len, self.room(facts.len)?)?;
                self.log = Some(InflightLog { memory, at, facts });
            }
            FrontMessage::SetVringNum { queue, num } => self.idle_queue(queue)?.size = num,
            FrontMessage::SetVringBase { queue, base } => self.idle_queue(queue)?.base = base,
            FrontMessage::SetVringAddr { queue, addresses } => {
                let queue = self.queue(queue)?;
                // A ring that runs is told again where it is after changes of the memory.
                if queue.running.is_none() {
                    queue.addresses = Some(addresses);
                }
            }
            FrontMessage::SetVringKick { queue, event } => self.start(queue, event).await?,
            FrontMessage::SetVringCall { queue, event } => self.set_call(queue, event).await?,
            FrontMessage::SetVringErr { queue, event } => {
                self.queue(queue)?.error = event.map(Doorbell::new).transpose()?;
            }
            FrontMessage::SetVringEnable { queue, enable } => {
                self.queue(queue)?.enabled = enable;
                self.on_queue(queue, move |queue| queue.enable(enable)).await;
            }
            FrontMessage::GetVringBase { queue } => {
                let base = self.stop(queue).await?;
                let payload = [queue.to_le_bytes(), base.to_le_bytes()].concat();
                return Ok(Answer::Reply(payload));
            }
            _ => unreachable!("messages about the device are carried out before"),
        }
        Ok(Answer::Done(true))
    }

    /// Room for one mapping of so many bytes more. What is replaced keeps its own as long as a
    /// request under way uses it.
    fn room(&self, len: u64) -> Result<MappingRoom, SessionFault> {
        let mappings = &self.disk.mappings;
        let room = usize::try_from(len).ok().and_then(|len| mappings.take(len));
        room.ok_or(SessionFault::Mappings(len, mappings.bytes_max()))
    }

    async fn set_memory(&mut self, memory: GuestMemory) {
        self.memory = Arc::new(memory);
        for ix in 0..self.queues.len() as u32 {
            let memory = self.memory.clone();
            self.on_queue(ix, move |queue| queue.set_memory(memory)).await;
        }
    }

    /// Memory for the log of what is in flight.
    fn make_log(&mut self, asked: LogFacts) -> Result<Answer, SessionFault> {
        let packed = self.features & feature::PACKED != 0;
        let (queues, size) = (asked.queues.min(QUEUES_MAX), asked.size.min(RING_SIZE_MAX as u16));
        let len = usize::from(queues) * log_bytes(size, packed);
        let fault = |error| SessionFault::Memory(len as u64, error);
        let room = self.room(len as u64)?;
        let (memory, file) = SharedMemory::create(len).map_err(fault)?;
        let facts = LogFacts { len: len as u64, offset: 0, queues, size };
        self.log = Some(InflightLog { memory: Arc::new(memory.in_room(room)), at: 0, facts });
        Ok(Answer::WithFile(facts.encode().to_vec(), file))
    }

    /// Does something with a queue, if it runs. A queue of another core is told of it even before
    /// the future is awaited.
    fn on_queue<F>(&self, ix: u32, change: F) -> impl Future<Output = ()> + use<F>
    where
        F: FnOnce(&Queue) + Send + 'static,
    {
        let running = self.queues.get(ix as usize).and_then(|queue| queue.running.as_ref());
        let call = running.map(|running| {
            let key = running.key();
            self.core.call(running.core, move |core| async move {
                if let Some(queue) = core.local::<Queue>(key) {
                    change(&queue);
                }
            })
        });
        async move {
            if let Some(call) = call {
                call.await;
            }
        }
    }

    async fn set_call(&mut self, ix: u32, event: Option<OwnedFd>) -> Result<(), SessionFault> {
        let call = event.map(Doorbell::new).transpose()?.map(Arc::new);
        self.queue(ix)?.call.clone_from(&call);
        self.on_queue(ix, move |queue| queue.set_call(call)).await;
        Ok(())
    }

    /// Begins to serve a queue.
    async fn start(&mut self, ix: u32, kick: Option<OwnedFd>) -> Result<(), SessionFault> {
        if self.queue(ix)?.running.is_some() {
            // Another event: the queue is taken up anew where it is.
            self.stop(ix).await?;
        }
        self.disk.remains.none(&self.core).await;
        let parts = self.parts_of(ix, kick)?;
        let core = CoreIx((self.first_core + ix as usize) % self.core.cores());
        let running = RunningQueue { core, name: Arc::new(()) };
        let (key, volume, client) = (running.key(), self.disk.volume.clone(), self.client);
        self.queue(ix)?.running = Some(running);
        let (tell, mut told) = mailbox();
        let begun = self.core.call(core, move |core| async move {
            let queue = Queue::new(&core, parts(volume.open(&core)?.for_client(client)));
            core.put_local(key, queue.clone());
            // It is served even if it is stopped before its first turn: that waits for its end.
            core.spawn(async move {
                let _ = tell.send(queue.serve().await);
            });
            Ok::<_, VolumeError>(())
        });
        begun.await?;
        let (faults, faulted) = (self.faults.clone(), self.faulted.clone());
        self.core.spawn(async move {
            if let Some(Err(why)) = told.recv().await {
                faults.borrow_mut().push((ix, why));
                faulted.set();
            }
        });
        Ok(())
    }

    /// What a queue is made of, but for the volume on its core.
    fn parts_of(
        &mut self,
        ix: u32,
        kick: Option<OwnedFd>,
    ) -> Result<impl FnOnce(wattle_engine::Volume) -> QueueParts + Send + use<>, SessionFault> {
        let features = RingFeatures {
            packed: self.features & feature::PACKED != 0,
            event_index: self.features & feature::EVENT_INDEX != 0,
        };
        let memory = self.memory.clone();
        let log = self.log.as_ref().filter(|log| u32::from(log.facts.queues) > ix);
        let log = log.map(|log| LogPlace {
            memory: log.memory.clone(),
            at: log.at + ix as usize * log_bytes(log.facts.size, features.packed),
        });
        let (flushes, serial) = (self.features & feature::FLUSH != 0, serial(self.disk.volume.name()));
        // Without extensions there is no message that enables a queue.
        let negotiated = self.features & feature::PROTOCOL != 0;
        let kick = kick.map(Stream::from_event).transpose()?;
        let queue = self.queue(ix)?;
        let ring = GuestRing::new(&RingSetup {
            size: queue.size,
            addresses: queue.addresses.unwrap_or_default(),
            features,
            base: queue.base,
            memory: &memory,
            log,
        });
        let ring = ring.map_err(|fault| SessionFault::Ring(ix, fault.into()))?;
        let (call, enabled) = (queue.call.clone(), queue.enabled || !negotiated);
        Ok(move |volume| QueueParts { volume, ring, memory, kick, call, enabled, flushes, serial })
    }

    /// Ends a queue once the volume has answered what was begun there, and returns where its ring
    /// goes on.
    ///
    /// # Cancellation
    /// Dropping the future leaves the queue ending, and among those that run.
    async fn stop(&mut self, ix: u32) -> Result<u32, SessionFault> {
        let queue = self.queue(ix)?;
        let Some(running) = &queue.running else { return Ok(queue.base) };
        let (core, key) = (running.core, running.key());
        let _remain = self.disk.remains.hold();
        let stop = self.core.call(core, move |core| async move {
            let base = core.local::<Queue>(key)?.stop().await;
            core.take_local::<Queue>(key);
            Some(base)
        });
        let base = stop.await.unwrap_or_default();
        let queue = self.queue(ix)?;
        (queue.running, queue.base) = (None, base);
        Ok(base)
    }

    /// Ends all queues. Each takes nothing more, and if they are severed touches nothing of the
    /// guest's memory any more, before the first one is waited for.
    async fn stop_all(&mut self, sever: bool) {
        let queues = 0..self.queues.len() as u32;
        let told: Vec<_> =
            queues.clone().map(|ix| self.on_queue(ix, move |queue| queue.end(sever))).collect();
        for told in told {
            told.await;
        }
        for ix in queues {
            // Every queue here exists.
            let _ = self.stop(ix).await;
        }
    }
}

/// What a message is answered by.
enum Answer {
    /// Nothing, or whether it was done where that is asked for.
    Done(bool),
    Reply(Vec<u8>),
    WithFile(Vec<u8>, OwnedFd),
}

fn map_region(
    facts: RegionFacts,
    file: BorrowedFd<'_>,
    room: MappingRoom,
) -> Result<GuestRegion, SessionFault> {
    let RegionFacts { guest, len, user, offset } = facts;
    if guest.checked_add(len).and(user.checked_add(len)).is_none() {
        return Err(SessionFault::Memory(len, IoError::INVALID));
    }
    let (memory, at) = map_part(&file, offset, len, room)?;
    Ok(GuestRegion { guest, user, len, memory, at })
}

/// Maps a part of a file, and where it begins in the mapping.
fn map_part(
    file: &impl AsFd,
    offset: u64,
    len: u64,
    room: MappingRoom,
) -> Result<(Arc<SharedMemory>, usize), SessionFault> {
    let bytes = usize::try_from(len).map_err(|_| IoError::INVALID);
    let mapped = bytes.and_then(|bytes| SharedMemory::map_part(file, offset, bytes));
    let (memory, at) = mapped.map_err(|error| SessionFault::Memory(len, error))?;
    Ok((Arc::new(memory.in_room(room)), at))
}
