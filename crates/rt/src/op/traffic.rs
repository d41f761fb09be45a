//! What one core sends to one drive, and how long the drive takes for it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::base::latency::Latencies;
use crate::base::time::Instant;
use crate::op::Op;

/// Counts operations from when they are queued to when they complete, also those that no task waits
/// for any more; see [`crate::OpFuture::count_in`].
#[derive(Debug, Default)]
pub struct Traffic {
    done: RefCell<TrafficTotals>,
    in_flight: Cell<u64>,
    bytes_in_flight: Cell<u64>,
    /// How often it was started anew.
    era: Cell<u64>,
    given_up: Cell<bool>,
    /// When the last operation completed, and the last that was no read.
    answered: Cell<Option<Instant>>,
    changed: Cell<Option<Instant>>,
}

/// What waits for a drive, and when that answered last.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unanswered {
    read: Option<Instant>,
    change: Option<Instant>,
    answered: Option<Instant>,
    changed: Option<Instant>,
}

impl Unanswered {
    /// A read waits since then.
    pub(crate) fn add_read(&mut self, began: Instant) {
        self.read = earlier(self.read, Some(began));
    }

    /// A write or flush waits since then.
    pub fn add_change(&mut self, began: Instant) {
        self.change = earlier(self.change, Some(began));
    }

    /// Adds what another core knows of the drive.
    pub fn add(&mut self, other: &Self) {
        self.read = earlier(self.read, other.read);
        self.change = earlier(self.change, other.change);
        self.answered = self.answered.max(other.answered);
        self.changed = self.changed.max(other.changed);
    }

    /// Since when the drive has answered nothing, although something waits for it. For what changes
    /// it, reads are no answer: they may come from the system's cache.
    #[must_use]
    pub fn since(&self) -> Option<Instant> {
        let read = self.read.map(|began| Some(began).max(self.answered));
        let change = self.change.map(|began| Some(began).max(self.changed));
        earlier(read.flatten(), change.flatten())
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    [one, other].into_iter().flatten().min()
}

/// What was counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrafficTotals {
    /// Reads that completed, and how long they took.
    pub reads: Latencies,
    /// Bytes of these.
    pub read_bytes: u64,
    /// Writes and zeroings that completed, and how long they took.
    pub writes: Latencies,
    /// Bytes of these.
    pub written_bytes: u64,
    /// Flushes that completed, and how long they took.
    pub flushes: Latencies,
    /// Operations under way.
    pub in_flight: u64,
}

impl TrafficTotals {
    /// Adds what another core counted.
    pub fn add(&mut self, other: &Self) {
        self.reads.add(&other.reads);
        self.read_bytes += other.read_bytes;
        self.writes.add(&other.writes);
        self.written_bytes += other.written_bytes;
        self.flushes.add(&other.flushes);
        self.in_flight += other.in_flight;
    }
}

impl Traffic {
    /// What was counted so far.
    #[must_use]
    pub fn totals(&self) -> TrafficTotals {
        TrafficTotals { in_flight: self.in_flight.get(), ..self.done.borrow().clone() }
    }

    /// Bytes of the operations under way.
    #[must_use]
    pub fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight.get()
    }

    /// Starts anew: what is under way is not counted any more. A drive that hangs may never
    /// complete it, and what is counted next may be another drive's.
    pub fn reset(&self) {
        self.done.take();
        self.in_flight.set(0);
        self.bytes_in_flight.set(0);
        self.given_up.set(false);
        self.answered.set(None);
        self.changed.set(None);
        self.era.update(|era| era + 1);
    }

    pub(crate) fn give_up(&self) {
        self.given_up.set(true);
    }

    /// When it was answered last; what waits is to be added.
    pub(crate) fn answered(&self) -> Unanswered {
        let (answered, changed) = (self.answered.get(), self.changed.get());
        Unanswered { answered, changed, ..Unanswered::default() }
    }
}

/// An operation that is counted.
pub(crate) struct Counted {
    traffic: Rc<Traffic>,
    bytes: u64,
    began: Instant,
    era: u64,
}

impl Counted {
    pub(crate) fn new(traffic: &Rc<Traffic>, bytes: u64, began: Instant) -> Counted {
        traffic.in_flight.update(|count| count + 1);
        traffic.bytes_in_flight.update(|all| all + bytes);
        Counted { traffic: traffic.clone(), bytes, began, era: traffic.era.get() }
    }

    /// Whether it still counts in this one.
    pub(crate) fn is_in(&self, traffic: &Rc<Traffic>) -> bool {
        Rc::ptr_eq(&self.traffic, traffic) && self.era == traffic.era.get()
    }

    /// Nothing is expected of its drive any more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.traffic.given_up.get() || self.era != self.traffic.era.get()
    }

    /// When it was queued.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    pub(crate) fn complete(self, op: &Op, now: Instant) {
        if self.era != self.traffic.era.get() {
            return;
        }
        self.traffic.in_flight.update(|count| count - 1);
        self.traffic.bytes_in_flight.update(|all| all - self.bytes);
        self.traffic.answered.set(Some(now));
        if !matches!(op, Op::Read(_)) {
            self.traffic.changed.set(Some(now));
        }
        let mut done = self.traffic.done.borrow_mut();
        let took = now - self.began;
        match op {
            Op::Read(_) => {
                done.reads.record(took);
                done.read_bytes += self.bytes;
            }
            Op::Write(..) => {
                done.writes.record(took);
                done.written_bytes += self.bytes;
            }
            Op::WriteZeroes { .. } => done.writes.record(took),
            Op::Flush { .. } => done.flushes.record(took),
            _ => {}
        }
    }
}
