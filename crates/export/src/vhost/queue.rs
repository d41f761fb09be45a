//! One queue of a guest, on one core: requests out of its ring, each a task, each completed there.
//!
//! While requests come or complete the ring is looked at once a turn of the executor, and all that
//! completed in a turn is one call to the guest. When nothing happens the core goes on looking for
//! a short while, as long as that pays ([`Patience`]), and then asks for a kick and waits.
//!
//! Invariants:
//! 1. Data is copied once, out of the guest's memory before a write begins and into it after a read
//!    has ended: a guest that changes a buffer in flight changes what it asked for, never what
//!    copies and parity are made from.
//! 2. A request is completed only when the volume has answered it, and at most once.
//! 3. Once a queue is severed, nothing of the guest's memory is touched any more: the hypervisor
//!    may have given it to something else. Requests that were begun go on until the volume answers.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use wattle_engine::volume::qos::QosCost;
use wattle_engine::{Volume, VolumeError, VolumeTurn};
use wattle_rt::sync::{Latch, Notify};
use wattle_rt::{
    BUF_ALIGN_BYTES, BufMut, Core, Doorbell, Durability, Either, Instant, OpFuture, Stream, race,
};

use super::device::{DiskFacts, SERIAL_BYTES};
use super::memory::GuestMemory;
use super::request::{BlockCommand, BlockRequest, BlockStatus, NotARequest, copy_in, copy_out, part_of};
use super::ring::{Chain, ChainToken, GuestRing, RingFault, Segment};

/// Memory of the requests that a queue has begun; further requests wait in the ring. With one more
/// piece on top, a guest that uses all of its 64 queues holds 64 x (8 + 4) MiB at most.
const QUEUE_BYTES_MAX: u64 = 8 << 20;
/// Chains that are taken in a row, before other tasks have their turn.
const CHAINS_AT_ONCE_MAX: usize = 64;
/// Longer requests are carried out piece by piece.
const PIECE_BYTES_MAX: u64 = 4 << 20;

/// Why a queue stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueueFault {
    /// Its ring broke the rules.
    #[error(transparent)]
    Ring(#[from] RingFault),
    /// What was in it is no request.
    #[error(transparent)]
    Request(#[from] NotARequest),
}

/// What a queue is made of.
pub(super) struct QueueParts {
    pub(super) volume: Volume,
    pub(super) ring: GuestRing,
    pub(super) memory: Arc<GuestMemory>,
    pub(super) kick: Option<Stream>,
    pub(super) call: Option<Arc<Doorbell>>,
    pub(super) enabled: bool,
    /// The guest flushes: writes need not be durable when they complete.
    pub(super) flushes: bool,
    pub(super) serial: [u8; SERIAL_BYTES],
}

/// A queue that is served.
pub(super) struct Queue {
    core: Core,
    volume: Volume,
    ring: RefCell<GuestRing>,
    memory: RefCell<Arc<GuestMemory>>,
    kick: Option<Stream>,
    call: RefCell<Option<Arc<Doorbell>>>,
    enabled: Cell<bool>,
    durability: Durability,
    serial: [u8; SERIAL_BYTES],
    /// Requests whose volume is at work, and the memory that they hold.
    requests: Cell<usize>,
    held_bytes: Cell<u64>,
    /// Something completed, and the guest was not told yet.
    completed: Cell<bool>,
    /// Something completed, or the queue is to be something else.
    changed: Notify,
    stopping: Cell<bool>,
    severed: Latch,
    ended: Latch,
}

impl Queue {
    pub(super) fn new(core: &Core, parts: QueueParts) -> Rc<Self> {
        Rc::new(Self {
            core: core.clone(),
            volume: parts.volume,
            ring: RefCell::new(parts.ring),
            memory: RefCell::new(parts.memory),
            kick: parts.kick,
            call: RefCell::new(parts.call),
            enabled: Cell::new(parts.enabled),
            durability: if parts.flushes { Durability::Cached } else { Durability::Fua },
            serial: parts.serial,
            requests: Cell::new(0),
            held_bytes: Cell::new(0),
            completed: Cell::new(false),
            changed: Notify::new(),
            stopping: Cell::new(false),
            severed: Latch::new(),
            ended: Latch::new(),
        })
    }

    /// Serves until it is stopped or the guest breaks the rules, and then until the volume has
    /// answered everything.
    pub(super) async fn serve(self: Rc<Self>) -> Result<(), QueueFault> {
        let served = self.clone().turn().await;
        if served.is_err() {
            self.severed.set();
        }
        while self.requests.get() > 0 {
            self.tell();
            self.changed.wait().await;
        }
        self.tell();
        self.ended.set();
        served
    }

    /// Takes nothing more from now on. A severed queue completes nothing more either.
    pub(super) fn end(&self, sever: bool) {
        if sever {
            self.severed.set();
        }
        self.stopping.set(true);
        self.changed.notify_all();
    }

    /// Takes nothing more and returns where the ring goes on, once everything is complete.
    pub(super) async fn stop(&self) -> u32 {
        self.end(false);
        self.ended.wait().await;
        self.ring.borrow().base()
    }

    /// The guest's memory is another from now on.
    pub(super) fn set_memory(&self, memory: Arc<GuestMemory>) {
        *self.memory.borrow_mut() = memory;
    }

    /// Takes requests from now on, or none.
    pub(super) fn enable(&self, enabled: bool) {
        self.enabled.set(enabled);
        self.changed.notify_all();
    }

    /// Calls go here from now on; one goes there at once, as one may have been lost.
    pub(super) fn set_call(&self, call: Option<Arc<Doorbell>>) {
        *self.call.borrow_mut() = call;
        self.call();
    }

    fn call(&self) {
        if let Some(call) = &*self.call.borrow() {
            call.ring();
        }
    }

    async fn turn(self: Rc<Self>) -> Result<(), QueueFault> {
        let mut chain = Chain::default();
        let mut patience = Patience::default();
        let mut kicked = self.kick.as_ref().map(|kick| Kick::new(&self.core, kick));
        self.want_no_kick();
        // A server that was killed may have completed chains without a call.
        self.call();
        while !self.stopping.get() {
            let began = if self.enabled.get() { self.take(&mut chain)? } else { 0 };
            let completed = self.tell();
            if began > 0 || completed {
                patience.worked(self.core.turn_time());
                self.core.yield_now().await;
                continue;
            }
            if patience.goes_on(self.core.now()) && self.enabled.get() {
                self.core.yield_now().await;
                continue;
            }
            let listens = self.enabled.get() && self.held_bytes.get() <= QUEUE_BYTES_MAX;
            if listens && self.ring.borrow_mut().ask_for_kick() {
                self.want_no_kick();
                continue;
            }
            match &mut kicked {
                Some(kick) if listens => {
                    race(kick.wait(), self.changed.wait()).await;
                }
                None if listens => {
                    race(self.core.sleep(LOOK_PERIOD), self.changed.wait()).await;
                }
                _ => self.changed.wait().await,
            }
            self.want_no_kick();
        }
        Ok(())
    }

    /// The ring is looked at anyway; a queue that ends leaves it alone.
    fn want_no_kick(&self) {
        if !self.stopping.get() {
            self.ring.borrow_mut().want_no_kick();
        }
    }

    /// Begins what is available, up to a bound; how many requests that were.
    fn take(self: &Rc<Self>, chain: &mut Chain) -> Result<usize, QueueFault> {
        let memory = self.memory.borrow().clone();
        let mut facts = None;
        let mut began = 0;
        while began < CHAINS_AT_ONCE_MAX && self.held_bytes.get() <= QUEUE_BYTES_MAX {
            if !self.ring.borrow_mut().next(&memory, chain)? {
                break;
            }
            let facts = facts.get_or_insert_with(|| disk_facts(&self.volume));
            let request = BlockRequest::decode(chain, &memory, facts)?;
            began += 1;
            self.requests.set(self.requests.get() + 1);
            self.held_bytes.set(self.held_bytes.get() + charged_bytes(&request));
            let (queue, memory, token) = (self.clone(), memory.clone(), chain.token);
            self.core.spawn(async move { queue.carry_out(&memory, request, token).await });
        }
        Ok(began)
    }

    /// Has the guest called if something completed that it wants to be told of; whether something
    /// completed.
    fn tell(&self) -> bool {
        let completed = self.completed.replace(false);
        if completed && !self.severed.is_set() && self.ring.borrow_mut().wants_call() {
            self.call();
        }
        completed
    }

    async fn carry_out(&self, memory: &GuestMemory, request: BlockRequest, token: ChainToken) {
        let (status, filled) = self.execute(memory, &request).await;
        self.requests.set(self.requests.get() - 1);
        self.held_bytes.set(self.held_bytes.get() - charged_bytes(&request));
        if !self.severed.is_set() && memory.write(request.status_at, &[status as u8]).is_ok() {
            let written = u32::try_from(filled).unwrap_or(u32::MAX).saturating_add(1);
            self.ring.borrow_mut().complete(token, written);
        }
        self.completed.set(true);
        self.changed.notify_all();
    }

    /// What becomes of a request, and how many bytes of its data were filled.
    async fn execute(&self, memory: &GuestMemory, request: &BlockRequest) -> (BlockStatus, u64) {
        let done = match &request.command {
            BlockCommand::Nothing(status) => return (*status, 0),
            BlockCommand::Serial => {
                let filled = !self.severed.is_set() && copy_in(memory, &request.data, &self.serial).is_ok();
                return if filled {
                    (BlockStatus::Ok, SERIAL_BYTES as u64)
                } else {
                    (BlockStatus::IoError, 0)
                };
            }
            BlockCommand::Read(offset) => {
                let read =
                    self.in_pieces(request, async |from, data| self.read(memory, offset + from, data).await);
                let read = read.await;
                return (status_of(&read), if read.is_ok() { request.data_bytes } else { 0 });
            }
            BlockCommand::Write(offset) => {
                let write = async |from, data: &[Segment]| self.write(memory, offset + from, data).await;
                self.in_pieces(request, write).await
            }
            BlockCommand::Flush => self.volume.flush().await,
            BlockCommand::Ranges(ranges) => self.change(ranges).await,
        };
        (status_of(&done), 0)
    }

    /// Does something with one piece of a request's data after the other. One piece is the rule.
    async fn in_pieces(
        &self,
        request: &BlockRequest,
        each: impl AsyncFn(u64, &[Segment]) -> Result<(), VolumeError>,
    ) -> Result<(), VolumeError> {
        if request.data_bytes <= PIECE_BYTES_MAX {
            return each(0, &request.data).await;
        }
        let mut from = 0;
        while from < request.data_bytes {
            each(from, &part_of(&request.data, from, PIECE_BYTES_MAX)).await?;
            from += PIECE_BYTES_MAX;
        }
        Ok(())
    }

    async fn read(&self, memory: &GuestMemory, offset: u64, data: &[Segment]) -> Result<(), VolumeError> {
        let len = bytes_of(data);
        let turn = self.volume_turn(QosCost::read(len as u64)).await?;
        let (result, buf) = turn.read(offset, BufMut::alloc(len)).await;
        result?;
        if !self.severed.is_set() {
            copy_in(memory, data, &buf).map_err(|_| VolumeError::OutOfRange)?;
        }
        Ok(())
    }

    async fn write(&self, memory: &GuestMemory, offset: u64, data: &[Segment]) -> Result<(), VolumeError> {
        if self.severed.is_set() {
            return Err(VolumeError::Stopped);
        }
        let mut buf = BufMut::alloc(bytes_of(data));
        copy_out(memory, data, &mut buf).map_err(|_| VolumeError::OutOfRange)?;
        let turn = self.volume_turn(QosCost::write(buf.len() as u64)).await?;
        turn.write(offset, buf.freeze(), self.durability).await
    }

    /// Waits until a request may go; an error if the queue is severed before: what a hypervisor
    /// that has gone asked for is not begun any more.
    async fn volume_turn(&self, cost: QosCost) -> Result<VolumeTurn<'_>, VolumeError> {
        match race(self.volume.turn(cost), self.severed.wait()).await {
            Either::First(turn) => Ok(turn),
            Either::Second(()) => Err(VolumeError::Stopped),
        }
    }

    async fn change(&self, ranges: &[(u64, u64, Option<wattle_rt::Unmap>)]) -> Result<(), VolumeError> {
        for &(offset, len, zeroes) in ranges {
            let range = offset..offset + len;
            // The next hypervisor does not wait for hours.
            let may = async |cost| {
                let turn = self.volume_turn(cost).await?;
                if self.severed.is_set() { Err(VolumeError::Stopped) } else { Ok((turn, ())) }
            };
            match zeroes {
                Some(unmap) => {
                    let zero = async |turn: &VolumeTurn<'_>, at, len| {
                        turn.write_zeroes(at, len, unmap, self.durability).await
                    };
                    self.volume.in_pieces(&self.core, range, QosCost::zeroes(len), may, zero).await?;
                }
                None => {
                    let discard = async |turn: &VolumeTurn<'_>, at, len| turn.discard(at, len).await;
                    self.volume.in_pieces(&self.core, range, QosCost::discard(), may, discard).await?;
                }
            }
        }
        Ok(())
    }
}

/// A queue without an event to kick by is looked at so often.
const LOOK_PERIOD: Duration = Duration::from_micros(50);

/// What a request holds: a buffer for one piece of its data, as the pool deals in them, and the
/// list of its segments, which is larger than the data where each of them is a byte.
fn charged_bytes(request: &BlockRequest) -> u64 {
    let piece = request.data_bytes.min(PIECE_BYTES_MAX).next_power_of_two().max(BUF_ALIGN_BYTES as u64);
    piece + (request.data.capacity() * size_of::<Segment>()) as u64
}

fn bytes_of(data: &[Segment]) -> usize {
    data.iter().map(|segment| segment.len as usize).sum()
}

fn status_of(done: &Result<(), VolumeError>) -> BlockStatus {
    if done.is_ok() { BlockStatus::Ok } else { BlockStatus::IoError }
}

/// A volume as a guest sees it now: it may have grown.
pub(super) fn disk_facts(volume: &Volume) -> DiskFacts {
    DiskFacts {
        size_bytes: volume.size_bytes(),
        read_only: volume.read_only(),
        block_bytes: volume.block_bytes(),
        io_min_bytes: volume.io_min_bytes(),
        io_opt_bytes: volume.io_opt_bytes(),
    }
}

/// The event by which a guest kicks.
struct Kick<'a> {
    core: &'a Core,
    event: &'a Stream,
    /// A receive under way; it outlives waits that end otherwise.
    receiving: Option<OpFuture<(Result<usize, wattle_rt::IoError>, BufMut)>>,
    broken: bool,
}

impl<'a> Kick<'a> {
    fn new(core: &'a Core, event: &'a Stream) -> Self {
        Self { core, event, receiving: None, broken: false }
    }

    /// Waits for the next kick; for ever if there can be none any more.
    async fn wait(&mut self) {
        if self.broken {
            return std::future::pending().await;
        }
        let receiving =
            self.receiving.get_or_insert_with(|| self.core.recv(self.event, BufMut::alloc(size_of::<u64>())));
        let (result, _) = receiving.await;
        self.receiving = None;
        // An event is read whole or not at all.
        self.broken = !result.is_ok_and(|count| count == size_of::<u64>());
    }
}

/// How long a queue in which nothing happens is looked at before its core sleeps. The time grows
/// while requests come soon after a sleep has begun, since a sleep costs more than such a wait, and
/// goes where they do not. Looking for the longest time in vain means that requests come just too
/// late: then it is not tried for a while.
#[derive(Default)]
struct Patience {
    window: Duration,
    idle_since: Option<Instant>,
    /// So many idle times are slept through without a look.
    pause: u32,
}

impl Patience {
    const MIN: Duration = Duration::from_micros(6);
    const MAX: Duration = Duration::from_micros(48);
    /// A wait up to this is worth a look: to sleep and to be woken is most of it.
    const WORTH: Duration = Duration::from_micros(150);
    const PAUSE: u32 = 32;

    /// Something happened: what was the wait for it?
    fn worked(&mut self, now: Instant) {
        let Some(since) = self.idle_since.take() else { return };
        let waited = now.saturating_since(since);
        if waited <= self.window {
            return;
        }
        if self.pause > 0 {
            self.pause -= 1;
        } else if waited > Self::WORTH {
            self.window = if self.window > Self::MIN { self.window / 2 } else { Duration::ZERO };
        } else if self.window == Self::MAX {
            (self.window, self.pause) = (Duration::ZERO, Self::PAUSE);
        } else {
            self.window = (self.window * 2).clamp(Self::MIN, Self::MAX);
        }
    }

    /// Nothing happened: whether to look again at once.
    fn goes_on(&mut self, now: Instant) -> bool {
        let since = *self.idle_since.get_or_insert(now);
        now.saturating_since(since) < self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_charged_too() {
        let data = vec![Segment { at: 0, len: 1 }; 32768];
        let command = BlockCommand::Read(0);
        let request = BlockRequest { command, data_bytes: data.len() as u64, data, status_at: 0 };
        assert_eq!(charged_bytes(&request), (32 << 10) + (512 << 10));
    }

    #[test]
    fn patience_grows_where_it_pays_and_goes_where_it_does_not() {
        let mut patience = Patience::default();
        let mut now = Instant::START;
        let mut wait = |patience: &mut Patience, micros| {
            assert_eq!(patience.goes_on(now), patience.window > Duration::ZERO);
            now += Duration::from_micros(micros);
            patience.worked(now);
            patience.window.as_micros()
        };
        // A wake takes longer than the longest look; what comes sooner is found without one.
        for (micros, window) in [(60, 6), (60, 12), (10, 12), (60, 24), (60, 48), (40, 48), (5, 48)] {
            assert_eq!(wait(&mut patience, micros), window);
        }
        // Requests are rare.
        for window in [24, 12, 6, 0, 0] {
            assert_eq!(wait(&mut patience, 1000), window);
        }
        // They come just too late, again and again.
        for window in [6, 12, 24, 48, 0] {
            assert_eq!(wait(&mut patience, 60), window);
        }
        for _ in 0..Patience::PAUSE {
            assert_eq!(wait(&mut patience, 60), 0);
        }
        assert_eq!(wait(&mut patience, 60), 6);
    }
}
