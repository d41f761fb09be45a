//! A ring of one table, in which used chains take the places of available ones (virtio 1.2, 2.8).
//!
//! Each side counts its laps: in an odd lap (the first) an available descriptor has the flag
//! *available* and lacks *used*, in an even one the other way round; a used one has both or none.

use std::sync::atomic::{Ordering, fence};

use super::log::{Log, LoggedDescriptor};
use super::{
    Chain, ChainToken, RawDescriptor, RingFault, RingSetup, Segment, descriptor, each_of_table, part,
};
use crate::vhost::memory::{GuestMemory, RingPart};

const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;
/// The top bit of an event's place: the lap is odd.
const ODD: u16 = 1 << 15;
/// What a side wants: to be told of everything, of nothing, or at a place.
const TELL: u16 = 0;
const TELL_NOT: u16 = 1;
const TELL_AT: u16 = 2;

/// A place in the ring, with the lap it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cursor {
    at: u16,
    odd: bool,
}

impl Cursor {
    /// From vhost-user's encoding of a place.
    fn decode(word: u16) -> Self {
        Self { at: word & !ODD, odd: word & ODD != 0 }
    }

    fn encode(self) -> u16 {
        self.at | if self.odd { ODD } else { 0 }
    }

    fn advanced(self, slots: u16, size: u16) -> Self {
        let at = u32::from(self.at) + u32::from(slots);
        match at.checked_sub(size.into()) {
            Some(at) => Self { at: at as u16, odd: !self.odd },
            None => Self { at: at as u16, odd: self.odd },
        }
    }
}

/// A packed ring.
pub struct PackedRing {
    size: u16,
    descriptors: RingPart,
    driver: RingPart,
    device: RingPart,
    event_index: bool,
    taken: Cursor,
    done: Cursor,
    /// Descriptors that were used since the driver was last asked whether it wants to be told.
    untold: u16,
    log: Option<Log>,
    /// Entries of the log that no chain has.
    free: Vec<u16>,
    /// By entry, the next one of its chain. The log has these too, but others can write there.
    links: Vec<u16>,
    /// Chains that an earlier server took, by their first entries and how many these are, the
    /// oldest last.
    again: Vec<(u16, u16)>,
}

impl PackedRing {
    pub(super) fn new(setup: &RingSetup<'_>) -> Result<Self, RingFault> {
        let size = setup.size as u16;
        let of = |address, len, align| part(setup.memory, address, len, align);
        let [taken, done] = [setup.base as u16, (setup.base >> 16) as u16].map(Cursor::decode);
        let mut ring = Self {
            size,
            descriptors: of(setup.addresses.descriptors, descriptor::BYTES * usize::from(size), 16)?,
            driver: of(setup.addresses.driver, 4, 4)?,
            device: of(setup.addresses.device, 4, 4)?,
            event_index: setup.features.event_index,
            taken,
            done,
            untold: 0,
            log: None,
            free: Vec::new(),
            links: Vec::new(),
            again: Vec::new(),
        };
        if taken.at >= size || done.at >= size {
            return Err(RingFault::Index(taken.at.max(done.at)));
        }
        // Some drivers begin with 0, which is the first place in an even lap, and not in the first
        // one. Where no descriptor was ever used, that is what they mean.
        let was_used = |ix| ring.flags_at(ix).load(Ordering::Acquire) & USED != 0;
        if setup.base == 0 && !(0..size).any(was_used) {
            (ring.taken.odd, ring.done.odd) = (true, true);
        }
        if let Some(place) = &setup.log {
            ring.recover(place)?;
        }
        Ok(ring)
    }

    /// Goes on where the log says: everything that was taken and not used is in flight.
    fn recover(&mut self, place: &super::LogPlace) -> Result<(), RingFault> {
        let mut log = Log::open(place, self.size, true).ok_or(RingFault::Log)?;
        let (at, odd) = log.recover_packed(|at, odd| {
            at < self.size && (self.flags_at(at).load(Ordering::Acquire) & USED != 0) == odd
        });
        if at >= self.size {
            return Err(RingFault::Log);
        }
        self.done = Cursor { at, odd };
        self.taken = self.done;
        let mut free = vec![true; self.size.into()];
        self.links = vec![0; self.size.into()];
        let mut slots = 0;
        for head in log.in_flight() {
            let (mut entry, count) = (head, log.count(head));
            for _ in 0..count {
                let taken = free.get_mut(usize::from(entry)).ok_or(RingFault::Log)?;
                if !std::mem::replace(taken, false) {
                    return Err(RingFault::Log);
                }
                let next = log.kept(entry).1;
                self.links[usize::from(entry)] = next;
                entry = next;
            }
            slots += usize::from(count);
            self.again.push((head, count));
        }
        if slots > self.size.into() {
            return Err(RingFault::Log);
        }
        self.taken = self.done.advanced(slots as u16, self.size);
        self.again.reverse();
        self.free = (0..self.size).filter(|ix| free[usize::from(*ix)]).collect();
        self.log = Some(log);
        Ok(())
    }

    fn flags_at(&self, ix: u16) -> &std::sync::atomic::AtomicU16 {
        self.descriptors.memory.u16_at(self.descriptors.at + descriptor::BYTES * usize::from(ix) + 14)
    }

    fn is_available(&self, cursor: Cursor) -> bool {
        let flags = self.flags_at(cursor.at).load(Ordering::Acquire);
        (flags & AVAILABLE != 0) == cursor.odd && (flags & USED != 0) != cursor.odd
    }

    fn descriptor(&self, ix: u16) -> RawDescriptor {
        let mut bytes = [0; descriptor::BYTES];
        self.descriptors.memory.read(self.descriptors.at + descriptor::BYTES * usize::from(ix), &mut bytes);
        RawDescriptor::decode(bytes)
    }

    pub(super) fn next(&mut self, memory: &GuestMemory, chain: &mut Chain) -> Result<bool, RingFault> {
        if let Some((head, count)) = self.again.pop() {
            self.take_again(memory, head, count, chain)?;
            return Ok(true);
        }
        if self.descriptors.memory.is_broken() {
            return Err(RingFault::Gone);
        }
        if !self.is_available(self.taken) {
            return Ok(false);
        }
        let (mut cursor, mut slots) = (self.taken, 0);
        let mut kept: Option<(u16, u16)> = None;
        let id = loop {
            if slots == self.size {
                return Err(RingFault::Endless(slots.into()));
            }
            let RawDescriptor { segment, third: id, fourth: flags } = self.descriptor(cursor.at);
            collect(memory, segment, flags, self.size, chain)?;
            if let Some(log) = &self.log {
                let entry = self.free.pop().ok_or(RingFault::Log)?;
                let Segment { at, len } = segment;
                log.keep(entry, LoggedDescriptor { id, flags, len, at });
                kept = Some(match kept {
                    None => (entry, entry),
                    Some((first, before)) => {
                        log.link(before, entry);
                        self.links[usize::from(before)] = entry;
                        (first, entry)
                    }
                });
            }
            (cursor, slots) = (cursor.advanced(1, self.size), slots + 1);
            if flags & descriptor::NEXT == 0 {
                break id;
            }
        };
        let entry = kept.map_or(0, |(first, _)| first);
        if let Some(log) = &mut self.log {
            log.set_count(entry, slots);
            log.begin(entry);
        }
        self.taken = cursor;
        chain.token = ChainToken { id, slots, entry };
        Ok(true)
    }

    /// A chain out of the log.
    fn take_again(
        &self,
        memory: &GuestMemory,
        head: u16,
        count: u16,
        chain: &mut Chain,
    ) -> Result<(), RingFault> {
        let log = self.log.as_ref().ok_or(RingFault::Log)?;
        let (mut entry, mut id) = (head, 0);
        for _ in 0..count {
            let (LoggedDescriptor { id: found, flags, len, at }, _) = log.kept(entry);
            collect(memory, Segment { at, len }, flags, self.size, chain)?;
            (entry, id) = (self.links[usize::from(entry)], found);
        }
        chain.token = ChainToken { id, slots: count, entry: head };
        Ok(())
    }

    pub(super) fn complete(&mut self, token: ChainToken, written: u32) {
        let ChainToken { id, slots, entry } = token;
        let (at, next) = (self.done, self.done.advanced(slots, self.size));
        if let Some(log) = &self.log {
            log.completing_packed(entry, next.at, next.odd);
        }
        let place = self.descriptors.at + descriptor::BYTES * usize::from(at.at);
        let memory = &self.descriptors.memory;
        memory.u32_at(place + 8).store(written, Ordering::Relaxed);
        memory.u16_at(place + 12).store(id, Ordering::Relaxed);
        let lap = if at.odd { AVAILABLE | USED } else { 0 };
        let wrote = if written > 0 { descriptor::WRITE } else { 0 };
        self.flags_at(at.at).store(lap | wrote, Ordering::Release);
        self.done = next;
        self.untold = self.untold.saturating_add(slots);
        if let Some(log) = &self.log {
            log.completed_packed(entry, next.at, next.odd);
            let mut freed = entry;
            for _ in 0..slots {
                self.free.push(freed);
                freed = self.links[usize::from(freed)];
            }
        }
    }

    pub(super) fn wants_call(&mut self) -> bool {
        let untold = std::mem::take(&mut self.untold);
        if untold == 0 {
            return false;
        }
        let (memory, at) = (&self.driver.memory, self.driver.at);
        let wish = memory.u32_at(at).load(Ordering::Relaxed);
        let (place, flags) = (wish as u16, (wish >> 16) as u16 & 3);
        match flags {
            TELL_NOT => false,
            TELL_AT if self.event_index => {
                let event = Cursor::decode(place);
                // Both as places in an endless ring, in which this side is in an even lap.
                let size = i32::from(self.size);
                let new = i32::from(self.done.at) + size;
                let event = i32::from(event.at) + if event.odd == self.done.odd { size } else { 0 };
                (new - i32::from(untold)..new).contains(&event)
            }
            _ => true,
        }
    }

    pub(super) fn ask_for_kick(&mut self) -> bool {
        let wish = match self.event_index {
            true => u32::from(self.taken.encode()) | u32::from(TELL_AT) << 16,
            false => u32::from(TELL) << 16,
        };
        self.device.memory.u32_at(self.device.at).store(wish, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.is_available(self.taken) || !self.again.is_empty()
    }

    pub(super) fn want_no_kick(&mut self) {
        let wish = u32::from(TELL_NOT) << 16;
        self.device.memory.u32_at(self.device.at).store(wish, Ordering::Relaxed);
    }

    pub(super) fn base(&self) -> u32 {
        u32::from(self.taken.encode()) | u32::from(self.done.encode()) << 16
    }
}

/// Adds what a descriptor names to a chain.
fn collect(
    memory: &GuestMemory,
    segment: Segment,
    flags: u16,
    size: u16,
    chain: &mut Chain,
) -> Result<(), RingFault> {
    if flags & descriptor::INDIRECT == 0 {
        return chain.push(segment, flags, size);
    }
    if flags & descriptor::NEXT != 0 {
        return Err(RingFault::Indirect(segment.len));
    }
    each_of_table(memory, segment, |_, RawDescriptor { segment, fourth: flags, .. }| {
        if flags & descriptor::INDIRECT != 0 {
            return Err(RingFault::Indirect(segment.len));
        }
        chain.push(segment, flags, size)
    })
}
