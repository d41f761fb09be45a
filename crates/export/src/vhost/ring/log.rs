//! The log of chains in flight: shared memory that the hypervisor keeps while this server is gone
//! (vhost-user, "Inflight I/O tracking", `QueueRegionSplit` and `QueueRegionPacked`).
//!
//! Fields are little-endian, as those of the processors this runs on. Stores of a process that is
//! killed are there up to some store, in the order in which they were made: fences keep the
//! compiler from another order.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use wattle_rt::SharedMemory;

/// Bytes of a log before its entries: what the longer of the two layouts needs.
const HEADER_SPLIT_BYTES: usize = 16;
const HEADER_PACKED_BYTES: usize = 32;
const ENTRY_SPLIT_BYTES: usize = 16;
const ENTRY_PACKED_BYTES: usize = 32;
/// The layout's version.
const VERSION: u16 = 1;

/// Fields of the header, by where they are. The packed layout has its own from 12 on.
mod field {
    pub const VERSION: usize = 8;
    pub const SIZE: usize = 10;
    pub const SPLIT_LAST_HEAD: usize = 12;
    pub const SPLIT_USED: usize = 14;
    /// The entry that is being completed.
    pub const PACKED_LAST_HEAD: usize = 12;
    pub const PACKED_USED: usize = 16;
    pub const PACKED_USED_BEFORE: usize = 18;
    pub const PACKED_WRAP: usize = 20;
    pub const PACKED_WRAP_BEFORE: usize = 21;
}

/// The bytes that the log of a ring takes, a multiple of 64.
pub fn log_bytes(size: u16, packed: bool) -> usize {
    let size = usize::from(size);
    let bytes = match packed {
        true => HEADER_PACKED_BYTES + size * ENTRY_PACKED_BYTES,
        false => HEADER_SPLIT_BYTES + size * ENTRY_SPLIT_BYTES,
    };
    bytes.next_multiple_of(64)
}

/// Where a ring's log is.
#[derive(Debug, Clone)]
pub struct LogPlace {
    /// The memory.
    pub memory: Arc<SharedMemory>,
    /// Where in it the log begins, in bytes, a multiple of 64.
    pub at: usize,
}

/// A log of either layout.
pub(super) struct Log {
    memory: Arc<SharedMemory>,
    at: usize,
    packed: bool,
    /// Of the ring: what the log says may change at any moment.
    size: u16,
    /// Of the next chain that is taken.
    counter: u64,
}

/// A descriptor of a packed ring, as the log keeps it: completed chains overwrite the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoggedDescriptor {
    pub id: u16,
    pub flags: u16,
    pub len: u32,
    pub at: u64,
}

impl Log {
    /// Opens the log of a ring of `size`; a log of zeros is begun. `None` if it is another ring's.
    pub fn open(place: &LogPlace, size: u16, packed: bool) -> Option<Self> {
        let end = place.at.checked_add(log_bytes(size, packed))?;
        if end > place.memory.len() || !place.at.is_multiple_of(64) {
            return None;
        }
        let log = Self { memory: place.memory.clone(), at: place.at, packed, size, counter: 0 };
        match log.get(field::SIZE) {
            0 => {
                if packed {
                    log.memory.write(log.at + field::PACKED_WRAP, &[1, 1]);
                }
                log.set(field::VERSION, VERSION);
                fence(Ordering::Release);
                log.set(field::SIZE, size);
            }
            logged if logged == size && log.get(field::VERSION) == VERSION => {}
            _ => return None,
        }
        Some(log)
    }

    fn get(&self, field: usize) -> u16 {
        self.memory.u16_at(self.at + field).load(Ordering::Acquire)
    }

    fn set(&self, field: usize, value: u16) {
        self.memory.u16_at(self.at + field).store(value, Ordering::Release);
    }

    fn entry(&self, ix: u16) -> usize {
        let (header, entry) = match self.packed {
            true => (HEADER_PACKED_BYTES, ENTRY_PACKED_BYTES),
            false => (HEADER_SPLIT_BYTES, ENTRY_SPLIT_BYTES),
        };
        self.at + header + usize::from(ix) * entry
    }

    fn counter_of(&self, ix: u16) -> u64 {
        self.memory.u64_at(self.entry(ix) + 8).load(Ordering::Relaxed)
    }

    pub fn is_in_flight(&self, ix: u16) -> bool {
        let mut byte = [0];
        self.memory.read(self.entry(ix), &mut byte);
        byte[0] != 0
    }

    /// Every store before this is made before it, and every store after it after.
    fn mark(&self, ix: u16, in_flight: bool) {
        fence(Ordering::SeqCst);
        self.memory.write(self.entry(ix), &[in_flight.into()]);
        fence(Ordering::SeqCst);
    }

    /// The entries that are in flight, in the order in which they were taken. Those that are taken
    /// from now on are counted as later ones.
    pub fn in_flight(&mut self) -> Vec<u16> {
        let found = (0..self.size).filter(|ix| self.is_in_flight(*ix));
        // Read once: what is sorted must not change meanwhile.
        let mut found: Vec<_> = found.map(|ix| (self.counter_of(ix), ix)).collect();
        found.sort_unstable();
        self.counter = found.last().map_or(0, |(last, _)| last.wrapping_add(1));
        found.into_iter().map(|(_, ix)| ix).collect()
    }

    /// The chain whose entry this is begins.
    pub fn begin(&mut self, ix: u16) {
        self.memory.u64_at(self.entry(ix) + 8).store(self.counter, Ordering::Relaxed);
        self.counter = self.counter.wrapping_add(1);
        self.mark(ix, true);
    }

    // Split: entries are those of the descriptors that begin chains.

    /// The used index, as the ring has it now, may be one ahead of the log: then the server ended
    /// between the two, and what it completed last is in flight no more.
    pub fn recover_split(&self, used: u16) {
        let ahead = used.wrapping_sub(self.get(field::SPLIT_USED)).min(self.size);
        let mut head = self.get(field::SPLIT_LAST_HEAD);
        for _ in 0..ahead {
            if head >= self.size {
                break;
            }
            self.mark(head, false);
            head = self.memory.u16_at(self.entry(head) + 6).load(Ordering::Relaxed);
        }
        self.set(field::SPLIT_USED, used);
    }

    /// Call before the used index says that a chain is complete.
    pub fn completing_split(&self, head: u16) {
        let before = self.get(field::SPLIT_LAST_HEAD);
        self.memory.u16_at(self.entry(head) + 6).store(before, Ordering::Relaxed);
        self.set(field::SPLIT_LAST_HEAD, head);
        fence(Ordering::SeqCst);
    }

    /// Call when the used index says so.
    pub fn completed_split(&self, head: u16, used: u16) {
        self.mark(head, false);
        self.set(field::SPLIT_USED, used);
    }

    // Packed: entries are allocated, as many for a chain as it has descriptors in the ring.

    /// Where the ring's used chains go on, and whether in an odd lap. What the server completed
    /// last is complete if it is in flight no more, or if the guest was told, which `is_used` looks
    /// up in the ring at the place before. That place and its lap are two stores: between them they
    /// name no place that is, and the chain is in flight no more.
    pub fn recover_packed(&self, is_used: impl FnOnce(u16, bool) -> bool) -> (u16, bool) {
        let (before, after) = (self.get(field::PACKED_USED_BEFORE), self.get(field::PACKED_USED));
        let mut wraps = [0; 2];
        self.memory.read(self.at + field::PACKED_WRAP, &mut wraps);
        let [wrap, wrap_before] = wraps.map(|wrap| wrap != 0);
        if (before, wrap_before) == (after, wrap) {
            return (after, wrap);
        }
        let head = self.get(field::PACKED_LAST_HEAD);
        let is_marked = head >= self.size || self.is_in_flight(head);
        if !is_marked || is_used(before, wrap_before) {
            self.completed_packed(head, after, wrap);
            (after, wrap)
        } else {
            self.set(field::PACKED_USED, before);
            self.memory.write(self.at + field::PACKED_WRAP, &[wrap_before.into()]);
            (before, wrap_before)
        }
    }

    /// Says which entry is a chain's next one.
    pub fn link(&self, ix: u16, next: u16) {
        self.memory.u16_at(self.entry(ix) + 2).store(next, Ordering::Relaxed);
    }

    /// Keeps a descriptor.
    pub fn keep(&self, ix: u16, descriptor: LoggedDescriptor) {
        let LoggedDescriptor { id, flags, len, at } = descriptor;
        let entry = self.entry(ix);
        self.memory.u16_at(entry + 16).store(id, Ordering::Relaxed);
        self.memory.u16_at(entry + 18).store(flags, Ordering::Relaxed);
        self.memory.u32_at(entry + 20).store(len, Ordering::Relaxed);
        self.memory.u64_at(entry + 24).store(at, Ordering::Relaxed);
    }

    /// Says of a chain's first entry how many there are.
    pub fn set_count(&self, ix: u16, count: u16) {
        self.memory.u16_at(self.entry(ix) + 6).store(count, Ordering::Relaxed);
    }

    /// How many entries a chain has.
    pub fn count(&self, ix: u16) -> u16 {
        self.memory.u16_at(self.entry(ix) + 6).load(Ordering::Relaxed)
    }

    /// An entry and the next one of its chain.
    pub fn kept(&self, ix: u16) -> (LoggedDescriptor, u16) {
        let entry = self.entry(ix);
        let word = |at: usize| self.memory.u16_at(entry + at).load(Ordering::Relaxed);
        let descriptor = LoggedDescriptor {
            id: word(16),
            flags: word(18),
            len: self.memory.u32_at(entry + 20).load(Ordering::Relaxed),
            at: self.memory.u64_at(entry + 24).load(Ordering::Relaxed),
        };
        (descriptor, word(2))
    }

    /// Call before the ring says that a chain is complete.
    pub fn completing_packed(&self, ix: u16, used: u16, wrap: bool) {
        self.set(field::PACKED_LAST_HEAD, ix);
        fence(Ordering::SeqCst);
        self.memory.write(self.at + field::PACKED_WRAP, &[wrap.into()]);
        self.set(field::PACKED_USED, used);
        fence(Ordering::SeqCst);
    }

    /// Call when the ring says so.
    pub fn completed_packed(&self, ix: u16, used: u16, wrap: bool) {
        if ix < self.size {
            self.mark(ix, false);
        }
        self.memory.write(self.at + field::PACKED_WRAP_BEFORE, &[wrap.into()]);
        self.set(field::PACKED_USED_BEFORE, used);
        fence(Ordering::SeqCst);
    }
}
