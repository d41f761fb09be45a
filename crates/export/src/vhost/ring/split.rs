//! A ring whose parts lie apart: descriptors, available chains, used chains (virtio 1.2, 2.7).

use std::sync::atomic::{Ordering, fence};

use super::log::Log;
use super::{
    Chain, ChainToken, RawDescriptor, RingFault, RingSetup, check_table, descriptor, part, passed,
    table_entry,
};
use crate::vhost::memory::{GuestMemory, RingPart};

/// Flags of the available and of the used part: the other side need not tell.
const TELL_NOT: u16 = 1;
/// Where the index and the entries of these parts are.
const INDEX_AT: usize = 2;
const ENTRIES_AT: usize = 4;

/// A split ring.
pub struct SplitRing {
    size: u16,
    descriptors: RingPart,
    available: RingPart,
    used: RingPart,
    event_index: bool,
    /// The available index up to which chains were taken.
    taken: u16,
    /// The used index, as the ring has it.
    done: u16,
    /// What it was when the driver was last asked whether it wants to be told.
    told: u16,
    log: Option<Log>,
    /// Chains that an earlier server took, the oldest last.
    again: Vec<u16>,
}

impl SplitRing {
    pub(super) fn new(setup: &RingSetup<'_>) -> Result<Self, RingFault> {
        let size = setup.size as u16;
        let count = usize::from(size);
        let of = |address, len, align| part(setup.memory, address, len, align);
        let mut ring = Self {
            size,
            descriptors: of(setup.addresses.descriptors, descriptor::BYTES * count, 16)?,
            available: of(setup.addresses.driver, ENTRIES_AT + 2 * count + 2, 2)?,
            used: of(setup.addresses.device, ENTRIES_AT + 8 * count + 2, 4)?,
            event_index: setup.features.event_index,
            taken: setup.base as u16,
            done: 0,
            told: 0,
            log: None,
            again: Vec::new(),
        };
        ring.done = ring.used.memory.u16_at(ring.used.at + INDEX_AT).load(Ordering::Acquire);
        ring.told = ring.done;
        if let Some(place) = &setup.log {
            let mut log = Log::open(place, size, false).ok_or(RingFault::Log)?;
            log.recover_split(ring.done);
            ring.again = log.in_flight();
            // Every chain that was taken is in flight or complete.
            ring.taken = ring.done.wrapping_add(ring.again.len() as u16);
            ring.again.reverse();
            ring.log = Some(log);
        }
        Ok(ring)
    }

    pub(super) fn next(&mut self, memory: &GuestMemory, chain: &mut Chain) -> Result<bool, RingFault> {
        if let Some(head) = self.again.pop() {
            self.walk(memory, head, chain)?;
            return Ok(true);
        }
        let available = self.available_index();
        let waiting = available.wrapping_sub(self.taken);
        if waiting == 0 {
            return Ok(false);
        }
        if waiting > self.size {
            return Err(if self.available.memory.is_broken() {
                RingFault::Gone
            } else {
                RingFault::Available(waiting)
            });
        }
        let slot = usize::from(self.taken % self.size);
        let at = self.available.at + ENTRIES_AT + 2 * slot;
        let head = self.available.memory.u16_at(at).load(Ordering::Relaxed);
        self.walk(memory, head, chain)?;
        self.taken = self.taken.wrapping_add(1);
        if let Some(log) = &mut self.log {
            if log.is_in_flight(head) {
                return Err(RingFault::Index(head));
            }
            log.begin(head);
        }
        Ok(true)
    }

    fn available_index(&self) -> u16 {
        self.available.memory.u16_at(self.available.at + INDEX_AT).load(Ordering::Acquire)
    }

    fn descriptor(&self, ix: u16) -> Result<RawDescriptor, RingFault> {
        if ix >= self.size {
            return Err(RingFault::Index(ix));
        }
        let mut bytes = [0; descriptor::BYTES];
        self.descriptors.memory.read(self.descriptors.at + descriptor::BYTES * usize::from(ix), &mut bytes);
        Ok(RawDescriptor::decode(bytes))
    }

    /// Collects the segments of the chain that begins at `head`.
    fn walk(&self, memory: &GuestMemory, head: u16, chain: &mut Chain) -> Result<(), RingFault> {
        chain.token = ChainToken { id: head, ..ChainToken::default() };
        let mut ix = head;
        loop {
            let RawDescriptor { segment, third: flags, fourth: next } = self.descriptor(ix)?;
            if flags & descriptor::INDIRECT != 0 {
                if flags & descriptor::NEXT != 0 {
                    return Err(RingFault::Indirect(segment.len));
                }
                return walk_table(memory, segment, self.size, chain);
            }
            chain.push(segment, flags, self.size)?;
            if flags & descriptor::NEXT == 0 {
                return Ok(());
            }
            ix = next;
        }
    }

    pub(super) fn complete(&mut self, token: ChainToken, written: u32) {
        let head = token.id;
        if let Some(log) = &self.log {
            log.completing_split(head);
        }
        let (memory, at) = (&self.used.memory, self.used.at);
        let entry = at + ENTRIES_AT + 8 * usize::from(self.done % self.size);
        memory.u32_at(entry).store(head.into(), Ordering::Relaxed);
        memory.u32_at(entry + 4).store(written, Ordering::Relaxed);
        self.done = self.done.wrapping_add(1);
        memory.u16_at(at + INDEX_AT).store(self.done, Ordering::Release);
        if let Some(log) = &self.log {
            log.completed_split(head, self.done);
        }
    }

    pub(super) fn wants_call(&mut self) -> bool {
        let old = std::mem::replace(&mut self.told, self.done);
        if old == self.done {
            return false;
        }
        let (memory, at) = (&self.available.memory, self.available.at);
        if self.event_index {
            let event = memory.u16_at(at + ENTRIES_AT + 2 * usize::from(self.size)).load(Ordering::Relaxed);
            return passed(event, self.done, old);
        }
        memory.u16_at(at).load(Ordering::Relaxed) & TELL_NOT == 0
    }

    pub(super) fn ask_for_kick(&mut self) -> bool {
        let (memory, at) = (&self.used.memory, self.used.at);
        match self.event_index {
            true => {
                let event = at + ENTRIES_AT + 8 * usize::from(self.size);
                memory.u16_at(event).store(self.taken, Ordering::Relaxed);
            }
            false => memory.u16_at(at).store(0, Ordering::Relaxed),
        }
        // The driver adds a chain, then looks whether to kick; this side the other way round.
        fence(Ordering::SeqCst);
        self.available_index() != self.taken || !self.again.is_empty()
    }

    pub(super) fn want_no_kick(&mut self) {
        // With event indices the driver kicks once for the index that was asked for, and it has
        // passed by now.
        if !self.event_index {
            self.used.memory.u16_at(self.used.at).store(TELL_NOT, Ordering::Relaxed);
        }
    }

    pub(super) fn base(&self) -> u32 {
        self.taken.into()
    }
}

/// Collects the segments of a chain that is a table of its own.
fn walk_table(
    memory: &GuestMemory,
    table: super::Segment,
    size: u16,
    chain: &mut Chain,
) -> Result<(), RingFault> {
    let count = check_table(table)?;
    let mut ix = 0;
    loop {
        let RawDescriptor { segment, third: flags, fourth: next } = table_entry(memory, table, ix)?;
        if flags & descriptor::INDIRECT != 0 {
            return Err(RingFault::Indirect(segment.len));
        }
        chain.push(segment, flags, size)?;
        if flags & descriptor::NEXT == 0 {
            return Ok(());
        }
        ix = usize::from(next);
        if ix >= count {
            return Err(RingFault::Index(next));
        }
    }
}
