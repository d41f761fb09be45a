//! The log of one slot, on the core that owns it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use wattle_rt::sync::OneshotSender;
use wattle_rt::{Buf, Device, IoError, Notify, oneshot};

use super::{LogArea, LogEntry, LogError, LogShard, LogSpec, PAGE_BYTES};
use crate::member::Members;
use crate::model::error::VolumeError;
use crate::model::invariant::invariant;
use crate::model::units::{MemberIx, MemberSet};
use crate::state::metadata::FailCause;
use crate::state::{StateShard, answer};

/// The log of a slot's member, whichever that is.
#[derive(Default)]
pub(crate) struct SlotLog {
    state: RefCell<State>,
    /// Signalled when the last ticket of a log write is back.
    idle: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// A task writes what waits.
    writing: bool,
    /// Tickets of the last log write that are not back.
    out: usize,
    /// Writes of the last log write may still be in volatile caches.
    unflushed: bool,
    /// A write ended badly: what the log says of it is needed until it is followed.
    lost: bool,
    generation: u64,
    /// The members the log is on, and where in their areas the next log goes.
    next: Vec<(Device, u64)>,
}

struct Waiting {
    entries: Vec<LogEntry>,
    sender: OneshotSender<Result<(), LogError>>,
}

impl Waiting {
    fn payload_bytes(&self) -> u64 {
        self.entries.iter().map(LogEntry::partial_bytes).sum()
    }
}

impl SlotLog {
    pub fn release(&self, well: bool) {
        let mut state = self.state.borrow_mut();
        state.out -= 1;
        state.lost |= !well;
        if state.out == 0 {
            self.idle.notify_all();
        }
    }

    /// The next log is the first of its area, on every member.
    pub fn begin_anew(&self) {
        self.state.borrow_mut().next.clear();
    }

    pub fn forget(&self, device: &Device) {
        self.state.borrow_mut().next.retain(|(on, _)| !on.same(device));
    }

    /// Whether what the last log says is not needed any more: all of its writes have ended, and are
    /// flushed.
    fn is_replaceable(&self) -> bool {
        let state = self.state.borrow();
        state.out == 0 && !state.unflushed && !state.lost
    }

    /// Whether a log may be written: `Ok(true)`, or `Ok(false)` after a flush. Waits for the
    /// tickets that are out.
    async fn free(&self) -> Result<bool, VolumeError> {
        loop {
            let back = {
                let state = self.state.borrow();
                if state.out == 0 {
                    return if state.lost { Err(VolumeError::Broken) } else { Ok(!state.unflushed) };
                }
                self.idle.wait()
            };
            back.await;
        }
    }

    /// The waiting writes, as many as fit into one log write, in the order they came.
    fn take(&self, log: &LogShard) -> Vec<Waiting> {
        let limits = log.limits();
        let (mut entries, mut payload_bytes) = (0, 0);
        let mut taken = Vec::new();
        let mut state = self.state.borrow_mut();
        while let Some(next) = state.waiting.pop_front_if(|next| {
            entries += next.entries.len();
            payload_bytes += next.payload_bytes();
            entries <= limits.entries && payload_bytes <= limits.payload_bytes
        }) {
            taken.push(next);
        }
        assert!(!taken.is_empty() || state.waiting.is_empty(), "rounds fit into one log write");
        taken
    }

    /// The number of the next log. A ring that starts over uses the one before it, too.
    fn generation(&self, ring: bool) -> u64 {
        let mut state = self.state.borrow_mut();
        state.generation += 1 + u64::from(ring);
        state.generation
    }

    /// The next log of a member.
    ///
    /// A ring is walked from its start along the logs to the newest. While its first log is
    /// overwritten, old ones could be found that no newer one follows any more, and taken for the
    /// newest: so then an empty one takes its place first, by itself.
    fn next(
        &self,
        spec: &LogSpec,
        (device, area): (Device, LogArea),
        generation: u64,
        entries: &[LogEntry],
    ) -> Next {
        let mut state = self.state.borrow_mut();
        let partial_bytes = entries.iter().map(LogEntry::partial_bytes).sum::<u64>();
        let len_bytes = u64::from(PAGE_BYTES) + partial_bytes;
        assert!(len_bytes <= area.size_bytes, "the format knows how much fits into an area");
        let behind = state.next.extract_if(.., |(on, _)| on.same(&device)).next().map(|(_, at)| at);
        let behind = behind.filter(|_| spec.ring);
        let at = behind.filter(|at| at + len_bytes <= area.size_bytes);
        let header = |generation, entries: &[LogEntry]| {
            let header = spec.format.header(generation, entries);
            assert_eq!(header.len(), PAGE_BYTES as usize, "a header is a page");
            header
        };
        let restart = (behind.is_some() && at.is_none()).then(|| header(generation - 1, &[]));
        let mut log = vec![header(generation, entries)];
        log.extend(entries.iter().flat_map(|entry| &entry.partial).cloned());
        let at = at.unwrap_or(0);
        state.next.push((device.clone(), at + len_bytes));
        Next { device, at_bytes: area.offset_bytes + at, restart, log }
    }
}

/// A log to write.
struct Next {
    device: Device,
    /// Where on it.
    at_bytes: u64,
    /// What has to be there before.
    restart: Option<Buf>,
    log: Vec<Buf>,
}

impl Next {
    async fn write(self, members: &Members, seat: MemberIx) -> Result<(), IoError> {
        if let Some(restart) = self.restart {
            members.write_beside(seat, &self.device, self.at_bytes, vec![restart]).await?;
        }
        members.write_beside(seat, &self.device, self.at_bytes, self.log).await
    }
}

/// Queues entries and waits until they are durable; this core owns the slot's log.
pub(super) async fn append(
    shard: &Rc<StateShard>,
    slot: MemberIx,
    entries: Vec<LogEntry>,
) -> Result<(), LogError> {
    let Some(log) = &shard.log else { return Err(LogError::Ended(VolumeError::Stopped)) };
    let (sender, receiver) = oneshot();
    let idle = {
        let mut state = log.slots[slot.index()].state.borrow_mut();
        state.waiting.push_back(Waiting { entries, sender });
        !std::mem::replace(&mut state.writing, true)
    };
    if idle {
        shard.core.spawn(run(shard.clone(), slot));
    }
    receiver.await.unwrap_or(Err(LogError::Ended(VolumeError::Stopped)))
}

/// Writes what waits until nothing does.
async fn run(shard: Rc<StateShard>, slot: MemberIx) {
    let log = shard.log.as_ref().expect("a member that is appended to has a log");
    let own = &log.slots[slot.index()];
    loop {
        let ready = match own.free().await {
            Ok(true) => Ok(()),
            Ok(false) => shard.flush().await,
            Err(error) => Err(error),
        };
        if let Err(error) = ready {
            let waiting = std::mem::take(&mut own.state.borrow_mut().waiting);
            own.state.borrow_mut().writing = false;
            waiting.into_iter().for_each(|next| answer(next.sender, Err(LogError::Ended(error))));
            return;
        }
        own.state.borrow_mut().unflushed = false;
        let taken = own.take(log);
        if taken.is_empty() {
            own.state.borrow_mut().writing = false;
            return;
        }
        let parts = taken.into_iter().map(|next| (next.entries, next.sender));
        let (entries, senders): (Vec<_>, Vec<_>) = parts.unzip();
        invariant!(8, own.is_replaceable());
        let result = write(&shard, log, slot, &entries.concat()).await;
        if result.is_ok() {
            let mut state = own.state.borrow_mut();
            state.out = senders.len();
            state.unflushed = true;
        }
        senders.into_iter().for_each(|sender| answer(sender, result));
        if own.state.borrow().waiting.is_empty() {
            // The next write waits for the tickets, and flushes: no flush is made for a write that
            // never comes.
            own.state.borrow_mut().writing = false;
            return;
        }
    }
}

/// Writes one log, to each seat that takes the slot's parity: its member and the replacement,
/// either of which may be all that a crash leaves of the two.
async fn write(
    shard: &Rc<StateShard>,
    log: &LogShard,
    slot: MemberIx,
    entries: &[LogEntry],
) -> Result<(), LogError> {
    let health = shard.members.health();
    if health.broken {
        return Err(LogError::Ended(VolumeError::Broken));
    }
    // A crash before that would bring back a member that the log is no longer written to. And if no
    // seat takes it any more, every core has been told by then: the write that asked plans without
    // parity next.
    shard.recorded(health.epoch).await.map_err(LogError::Ended)?;
    let own = &log.slots[slot.index()];
    let generation = own.generation(log.spec.ring);
    let write = |seat: MemberIx| {
        let who = &health.seats[seat.index()];
        let place = who.device.clone().zip(who.log)?;
        let next = own.next(&log.spec, place, generation, entries);
        let members = shard.members.clone();
        Some(shard.core.spawn(async move { next.write(&members, seat).await }))
    };
    let writes: Vec<_> = health.writable_for(slot).map(|seat| (seat, write(seat))).collect();
    let (mut failed, mut written) = (MemberSet::EMPTY, false);
    for (seat, write) in writes {
        let whole = match write {
            Some(write) => write.await.is_ok(),
            None => false,
        };
        written |= whole;
        if !whole {
            failed.insert(seat);
        }
    }
    if !failed.is_empty() {
        // A member that takes no log goes like one that takes no write.
        shard.fail(failed, FailCause::Log).await.map_err(LogError::Ended)?;
    }
    if written { Ok(()) } else { Err(LogError::NoParity) }
}
