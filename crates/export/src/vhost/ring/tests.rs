//! Rings against a driver of the tests' own, and against servers that end at any moment.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use wattle_rt::SharedMemory;

use super::log::{LogPlace, log_bytes};
use super::*;
use crate::vhost::memory::GuestRegion;

const MEMORY: usize = 1 << 20;
const DESCRIPTORS: u64 = 0x1000;
const DRIVER: u64 = 0x3000;
const DEVICE: u64 = 0x4000;
const TABLES: u64 = 0x10000;

/// A guest's driver: it makes chains available and takes used ones.
struct Driver {
    shared: Arc<SharedMemory>,
    memory: GuestMemory,
    size: u16,
    packed: bool,
    event_index: bool,
    /// Split: free descriptors. Packed: free identifiers.
    free: VecDeque<u16>,
    /// Descriptors of the chain that begins with one, or has an identifier.
    slots: Vec<u16>,
    made: u16,
    made_odd: bool,
    seen: u16,
    seen_odd: bool,
    /// Packed: descriptors that are free.
    room: u16,
    log: Option<LogPlace>,
}

impl Driver {
    fn new(size: u16, packed: bool, event_index: bool, logged: bool) -> Self {
        let (shared, _) = SharedMemory::create(MEMORY).unwrap();
        let shared = Arc::new(shared);
        let mut memory = GuestMemory::default();
        let region = GuestRegion { guest: 0, user: 0, len: MEMORY as u64, memory: shared.clone(), at: 0 };
        memory.add(region);
        let log = logged.then(|| {
            let (memory, _) = SharedMemory::create(log_bytes(size, packed) + 64).unwrap();
            LogPlace { memory: Arc::new(memory), at: 64 }
        });
        Self {
            shared,
            memory,
            size,
            packed,
            event_index,
            free: (0..size).collect(),
            slots: vec![0; size.into()],
            made: 0,
            made_odd: true,
            seen: 0,
            seen_odd: true,
            room: size,
            log,
        }
    }

    fn ring(&self, base: u32) -> Result<GuestRing, RingFault> {
        GuestRing::new(&RingSetup {
            size: self.size.into(),
            addresses: RingAddresses { descriptors: DESCRIPTORS, driver: DRIVER, device: DEVICE },
            features: RingFeatures { packed: self.packed, event_index: self.event_index },
            base,
            memory: &self.memory,
            log: self.log.clone(),
        })
    }

    fn word(&self, at: u64) -> u16 {
        self.shared.u16_at(at as usize).load(Ordering::Acquire)
    }

    fn set_word(&self, at: u64, value: u16) {
        self.shared.u16_at(at as usize).store(value, Ordering::Release);
    }

    fn put(&self, at: u64, address: u64, len: u32, third: u16, fourth: u16) {
        self.memory.write(at, &address.to_le_bytes()).unwrap();
        self.memory.write(at + 8, &len.to_le_bytes()).unwrap();
        self.set_word(at + 12, third);
        self.set_word(at + 14, fourth);
    }

    /// Makes a chain of so many descriptors available, the last one writable; false without room.
    /// `tag` is what its first segment names.
    fn add(&mut self, count: u16, tag: u64, indirect: bool) -> bool {
        let slots = if indirect { 1 } else { count };
        let flags = |ix: u16| {
            let write = if ix + 1 == count { descriptor::WRITE } else { 0 };
            write | if ix + 1 < count { descriptor::NEXT } else { 0 }
        };
        let place = |ix: u16| tag + u64::from(ix);
        if self.room < slots || self.free.is_empty() || (!self.packed && self.free.len() < slots.into()) {
            return false;
        }
        self.room -= slots;
        let id = self.free[0];
        let table = TABLES + u64::from(id) * 256;
        if indirect {
            for ix in 0..count {
                let at = table + 16 * u64::from(ix);
                match self.packed {
                    true => self.put(at, place(ix), 1, 0, flags(ix) & descriptor::WRITE),
                    false => self.put(at, place(ix), 1, flags(ix), ix + 1),
                }
            }
        }
        self.slots[usize::from(id)] = slots;
        let of_table = (table, 16 * u32::from(count), descriptor::INDIRECT);
        if self.packed {
            self.free.pop_front();
            let first = (self.made, self.made_odd);
            let mut first_flags = 0;
            for ix in 0..slots {
                let (address, len, bits) = if indirect { of_table } else { (place(ix), 1, flags(ix)) };
                let lap = if self.made_odd { 1 << 7 } else { 1 << 15 };
                let at = DESCRIPTORS + 16 * u64::from(self.made);
                if ix == 0 {
                    // The first one makes the chain available, once the others are there.
                    first_flags = bits | lap;
                    self.put(at, address, len, id, self.word(at + 14));
                } else {
                    self.put(at, address, len, id, bits | lap);
                }
                self.made += 1;
                if self.made == self.size {
                    (self.made, self.made_odd) = (0, !self.made_odd);
                }
            }
            self.set_word(DESCRIPTORS + 16 * u64::from(first.0) + 14, first_flags);
            return true;
        }
        let chain: Vec<u16> = self.free.drain(..usize::from(slots)).collect();
        for (ix, &own) in chain.iter().enumerate() {
            let (address, len, bits) =
                if indirect { of_table } else { (place(ix as u16), 1, flags(ix as u16)) };
            let next = chain.get(ix + 1).copied().unwrap_or(0);
            self.put(DESCRIPTORS + 16 * u64::from(own), address, len, bits, next);
        }
        self.set_word(DRIVER + 4 + 2 * u64::from(self.made % self.size), id);
        self.made = self.made.wrapping_add(1);
        self.set_word(DRIVER + 2, self.made);
        true
    }

    /// Takes the next used chain, by what its first segment named.
    fn used(&mut self) -> Option<u64> {
        if self.packed {
            let at = DESCRIPTORS + 16 * u64::from(self.seen);
            let flags = self.word(at + 14);
            if (flags & 1 << 7 != 0) != self.seen_odd || (flags & 1 << 15 != 0) != self.seen_odd {
                return None;
            }
            let id = self.word(at + 12);
            let slots = self.slots[usize::from(id)];
            self.seen += slots;
            if self.seen >= self.size {
                (self.seen, self.seen_odd) = (self.seen - self.size, !self.seen_odd);
            }
            self.room += slots;
            self.free.push_back(id);
            return Some(id.into());
        }
        if self.seen == self.word(DEVICE + 2) {
            return None;
        }
        let entry = DEVICE + 4 + 8 * u64::from(self.seen % self.size);
        let id = self.word(entry);
        self.seen = self.seen.wrapping_add(1);
        let mut own = id;
        self.room += self.slots[usize::from(id)];
        for _ in 0..self.slots[usize::from(id)] {
            self.free.push_back(own);
            own = self.word(DESCRIPTORS + 16 * u64::from(own) + 14);
        }
        Some(id.into())
    }
}

/// What a chain's first segment names.
fn tag(chain: &Chain) -> u64 {
    chain.segments[0].at
}

const KINDS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

#[test]
fn chains_come_and_go_for_many_laps() {
    for (packed, event_index) in KINDS {
        let mut driver = Driver::new(8, packed, event_index, false);
        let mut ring = driver.ring(0).unwrap();
        let (mut chain, mut held, mut sent, mut back) = (Chain::default(), VecDeque::new(), 0, 0);
        for round in 0..500u64 {
            while driver.add(1 + (round % 3) as u16, 0x8000 + sent * 16, round % 5 == 0) {
                sent += 1;
            }
            while ring.next(&driver.memory, &mut chain).unwrap() {
                let expected = 1 + (round % 3) as usize;
                assert_eq!(
                    (tag(&chain), chain.segments.len()),
                    (0x8000 + (back + held.len() as u64) * 16, expected)
                );
                assert_eq!(chain.readable, expected - 1);
                held.push_back(chain.token);
            }
            // The last comes back first.
            while let Some(token) = held.pop_back() {
                ring.complete(token, 1);
                back += 1;
            }
            assert!(ring.wants_call() || event_index);
            while driver.used().is_some() {}
            assert_eq!(driver.free.len(), 8, "packed {packed}, round {round}");
        }
        assert!(sent > 1000 && sent == back);
    }
}

/// Without anything new a server is kicked for nothing, and misses nothing.
#[test]
fn a_kick_is_asked_for_only_where_nothing_waits() {
    for (packed, event_index) in KINDS {
        let mut driver = Driver::new(4, packed, event_index, false);
        let mut ring = driver.ring(0).unwrap();
        assert!(!ring.ask_for_kick());
        assert!(driver.add(1, 0x8000, false));
        assert!(ring.ask_for_kick(), "something came before the wish was there");
        let mut chain = Chain::default();
        assert!(ring.next(&driver.memory, &mut chain).unwrap());
        assert!(!ring.ask_for_kick());
    }
}

#[test]
fn a_stopped_ring_goes_on_where_it_was() {
    for (packed, event_index) in KINDS {
        let mut driver = Driver::new(8, packed, event_index, false);
        let (mut base, mut chain) = (0, Chain::default());
        for round in 0..50 {
            let mut ring = driver.ring(base).unwrap();
            for ix in 0..3 {
                assert!(driver.add(2, 0x8000 + round * 64 + ix * 16, false));
            }
            for ix in 0..3 {
                assert!(ring.next(&driver.memory, &mut chain).unwrap());
                assert_eq!(tag(&chain), 0x8000 + round * 64 + ix * 16);
                ring.complete(chain.token, 0);
                assert!(driver.used().is_some());
            }
            base = ring.base();
        }
    }
}

proptest! {
    /// A server that is killed anywhere between requests leaves exactly what it had taken and not
    /// completed, in that order.
    #[test]
    fn a_killed_server_leaves_what_was_in_flight(
        packed: bool,
        indirect: bool,
        steps in prop::collection::vec((0..4u8, any::<prop::sample::Index>()), 1..200),
    ) {
        let mut driver = Driver::new(8, packed, true, true);
        let mut ring = driver.ring(0).unwrap();
        let (mut chain, mut sent) = (Chain::default(), 0);
        let mut held: Vec<(u64, ChainToken)> = Vec::new();
        let mut waiting = VecDeque::new();
        for (step, which) in steps {
            match step {
                0 => {
                    let tag = 0x8000 + (sent % 1000) * 16;
                    if driver.add(1 + (sent % 3) as u16, tag, indirect) {
                        waiting.push_back(tag);
                        sent += 1;
                    }
                }
                1 => {
                    let came = ring.next(&driver.memory, &mut chain).unwrap();
                    prop_assert_eq!(came.then(|| tag(&chain)), waiting.pop_front());
                    if came {
                        held.push((tag(&chain), chain.token));
                    }
                }
                2 if !held.is_empty() => {
                    let (_, token) = held.remove(which.index(held.len()));
                    ring.complete(token, 1);
                    prop_assert!(driver.used().is_some());
                    prop_assert!(driver.used().is_none());
                }
                3 => {
                    ring = driver.ring(0).unwrap();
                    for (expected, token) in &mut held {
                        prop_assert!(ring.next(&driver.memory, &mut chain).unwrap());
                        prop_assert_eq!(tag(&chain), *expected);
                        *token = chain.token;
                    }
                }
                _ => {}
            }
        }
    }
}

/// The server ends between the store that completes a chain for the guest and the one that says so
/// in the log.
#[test]
fn a_completion_that_the_log_missed_is_one() {
    let mut driver = Driver::new(8, false, true, true);
    let mut ring = driver.ring(0).unwrap();
    let mut chain = Chain::default();
    for ix in 0..2 {
        driver.add(1, 0x8000 + ix * 16, false);
    }
    assert!(ring.next(&driver.memory, &mut chain).unwrap());
    let first = chain.token;
    assert!(ring.next(&driver.memory, &mut chain).unwrap());
    ring.complete(first, 1);
    let log = driver.log.clone().unwrap();
    // As if the last two stores had not been made.
    log.memory.write(log.at + 16 + 16 * usize::from(first.id), &[1]);
    log.memory.u16_at(log.at + 14).store(0, Ordering::Relaxed);
    let mut ring = driver.ring(0).unwrap();
    assert!(ring.next(&driver.memory, &mut chain).unwrap());
    assert_eq!(tag(&chain), 0x8010);
    assert!(!ring.next(&driver.memory, &mut chain).unwrap());

    let mut driver = Driver::new(8, true, true, true);
    let mut ring = driver.ring(0).unwrap();
    driver.add(1, 0x8000, false);
    driver.add(1, 0x8010, false);
    assert!(ring.next(&driver.memory, &mut chain).unwrap());
    let first = chain.token;
    assert!(ring.next(&driver.memory, &mut chain).unwrap());
    ring.complete(first, 1);
    let log = driver.log.clone().unwrap();
    // The mark of the chain, and where used ones were before.
    log.memory.write(log.at + 32 + 32 * usize::from(first.entry), &[1]);
    log.memory.u16_at(log.at + 18).store(0, Ordering::Relaxed);
    let mut ring = driver.ring(0).unwrap();
    assert!(ring.next(&driver.memory, &mut chain).unwrap());
    assert_eq!(tag(&chain), 0x8010);
    assert!(!ring.next(&driver.memory, &mut chain).unwrap());
    // And the other way round: the log was ahead, and the guest was told nothing.
    driver.shared.u16_at(DESCRIPTORS as usize + 14).store(1 << 7, Ordering::Relaxed);
    log.memory.write(log.at + 32 + 32 * usize::from(first.entry), &[1]);
    log.memory.u16_at(log.at + 18).store(0, Ordering::Relaxed);
    let mut ring = driver.ring(0).unwrap();
    assert!(ring.next(&driver.memory, &mut chain).unwrap());
    assert_eq!(tag(&chain), 0x8000, "it is carried out again");
}

/// The server ends between the two stores that say in the log where the next used chain goes, of
/// which one is the lap.
#[test]
fn a_lap_that_the_log_noted_by_half_is_over() {
    let mut driver = Driver::new(8, true, true, true);
    let mut ring = driver.ring(0).unwrap();
    let mut chain = Chain::default();
    for ix in 0..8 {
        driver.add(1, 0x8000 + ix * 16, false);
        assert!(ring.next(&driver.memory, &mut chain).unwrap());
        ring.complete(chain.token, 1);
        driver.used().unwrap();
    }
    let log = driver.log.clone().unwrap();
    log.memory.u16_at(log.at + 18).store(7, Ordering::Relaxed);
    let mut ring = driver.ring(0).unwrap();
    driver.add(1, 0x9000, false);
    assert!(ring.next(&driver.memory, &mut chain).unwrap(), "it looks at place 0 of the next lap");
    assert_eq!(tag(&chain), 0x9000);
    ring.complete(chain.token, 1);
    assert!(driver.used().is_some(), "the driver sees it");
}

#[test]
fn a_driver_that_breaks_the_rules_gets_a_fault() {
    let fault = |prepare: &dyn Fn(&mut Driver), packed: bool| {
        let mut driver = Driver::new(8, packed, false, false);
        driver.add(2, 0x8000, false);
        prepare(&mut driver);
        let mut ring = driver.ring(0).unwrap();
        let mut chain = Chain::default();
        ring.next(&driver.memory, &mut chain).unwrap_err()
    };
    // Split: a loop, descriptors that are not there, a table in a table, too much at once.
    let looped = fault(&|driver| driver.put(DESCRIPTORS + 16, 0, 1, descriptor::NEXT, 0), false);
    assert_eq!(looped, RingFault::Endless(1024));
    let next = fault(&|driver| driver.set_word(DESCRIPTORS + 14, 8), false);
    assert_eq!(next, RingFault::Index(8));
    let head = fault(&|driver| driver.set_word(DRIVER + 4, 9), false);
    assert_eq!(head, RingFault::Index(9));
    assert_eq!(fault(&|driver| driver.set_word(DRIVER + 2, 9), false), RingFault::Available(9));
    let table =
        |len: u32| move |driver: &mut Driver| driver.put(DESCRIPTORS, TABLES, len, descriptor::INDIRECT, 0);
    for len in [0, 15, 17, 16 * 32769] {
        assert_eq!(fault(&table(len), false), RingFault::Indirect(len));
    }
    let nested = fault(
        &|driver| {
            table(16)(driver);
            driver.put(TABLES, 0x8000, 77, descriptor::INDIRECT, 0);
        },
        false,
    );
    assert_eq!(nested, RingFault::Indirect(77));
    let outside = fault(&|driver| driver.put(DESCRIPTORS, u64::MAX - 3, 16, descriptor::INDIRECT, 0), false);
    assert!(matches!(outside, RingFault::Outside(_)), "{outside}");
    let order = fault(
        &|driver| {
            driver.put(DESCRIPTORS, 0, 1, descriptor::WRITE | descriptor::NEXT, 1);
            driver.put(DESCRIPTORS + 16, 0, 1, 0, 0);
        },
        false,
    );
    assert_eq!(order, RingFault::Order);
    // Packed: a chain without an end.
    let endless = fault(
        &|driver| {
            for ix in 0..8 {
                driver.put(DESCRIPTORS + 16 * ix, 0, 1, 0, descriptor::NEXT | 1 << 7);
            }
        },
        true,
    );
    assert_eq!(endless, RingFault::Endless(8));
    // Rings that cannot be there.
    let driver = Driver::new(8, false, false, false);
    let setup = |size, descriptors, packed| {
        let addresses = RingAddresses { descriptors, driver: DRIVER, device: DEVICE };
        let features = RingFeatures { packed, event_index: false };
        let memory = &driver.memory;
        GuestRing::new(&RingSetup { size, addresses, features, base: 0, memory, log: None }).err()
    };
    assert_eq!(setup(0, DESCRIPTORS, false), Some(RingFault::Size(0)));
    assert_eq!(setup(12, DESCRIPTORS, false), Some(RingFault::Size(12)));
    assert_eq!(setup(12, DESCRIPTORS, true), None);
    assert_eq!(setup(65536, DESCRIPTORS, false), Some(RingFault::Size(65536)));
    assert_eq!(setup(8, DESCRIPTORS + 8, false), Some(RingFault::Alignment(DESCRIPTORS + 8)));
    assert!(matches!(setup(8, MEMORY as u64 - 16, false), Some(RingFault::Outside(_))));
    // Logs of other rings.
    let mut driver = Driver::new(8, false, false, true);
    driver.ring(0).unwrap();
    driver.size = 4;
    assert_eq!(driver.ring(0).err(), Some(RingFault::Log));
}

proptest! {
    /// Whatever lies in a guest's memory and in the log: an answer or a fault, and an end.
    #[test]
    fn garbage_is_survived(packed: bool, event_index: bool, logged: bool, bytes: Vec<u8>, words in prop::collection::vec((0..0x5000usize, any::<u16>()), 0..60)) {
        let driver = Driver::new(8, packed, event_index, logged);
        driver.memory.write(DESCRIPTORS, &bytes).unwrap();
        for (at, word) in words {
            driver.set_word((at / 2 * 2) as u64, word);
            if let Some(log) = &driver.log {
                log.memory.u16_at(at / 2 * 2 % (log.memory.len() - 2)).store(word, Ordering::Relaxed);
            }
        }
        let base = u32::from_le_bytes(bytes.first_chunk().copied().unwrap_or_default());
        let Ok(mut ring) = driver.ring(base) else { return Ok(()) };
        let mut chain = Chain::default();
        for _ in 0..100 {
            if !ring.next(&driver.memory, &mut chain).unwrap_or(false) {
                break;
            }
            ring.complete(chain.token, 1);
            ring.wants_call();
            ring.ask_for_kick();
        }
    }
}

/// The log is another process's too, which may write there at any moment: a ring is refused, or
/// goes on with what it read, and nothing else happens.
#[test]
#[allow(clippy::disallowed_methods, reason = "the other process is a thread here")]
fn a_log_that_changes_while_it_is_read_ends_nothing() {
    const SIZE: u16 = 256;
    const ROUNDS: usize = 300;
    for packed in [false, true] {
        let driver = Driver::new(SIZE, packed, false, true);
        let LogPlace { memory, at } = driver.log.clone().unwrap();
        let entry = move |ix: usize| at + if packed { 32 + 32 * ix } else { 16 + 16 * ix };
        let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let ended = over.clone();
        let shared = memory.clone();
        let other = std::thread::spawn(move || {
            let mut counter = 1_u64;
            while !ended.load(Ordering::Relaxed) {
                for size in [SIZE, u16::MAX] {
                    shared.u16_at(at + 10).store(size, Ordering::Relaxed);
                    // The chain completed last is beyond the ring, and may be in flight.
                    shared.u16_at(at + 12).store(60_000, Ordering::Relaxed);
                    shared.u16_at(at + 16).store(1, Ordering::Relaxed);
                    for ix in 0..SIZE.into() {
                        counter = counter.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        shared.write(entry(ix), &[1]);
                        shared.u64_at(entry(ix) + 8).store(counter, Ordering::Relaxed);
                    }
                }
            }
        });
        for _ in 0..ROUNDS {
            // So that some are not refused at once.
            memory.u16_at(at + 10).store(SIZE, Ordering::Relaxed);
            let _ = driver.ring(0);
        }
        over.store(true, Ordering::Relaxed);
        other.join().unwrap();
    }
}
