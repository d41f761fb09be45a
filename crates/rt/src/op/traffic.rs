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
        self.era.update(|era| era + 1);
    }
}

impl Traffic {
    pub(crate) fn give_up(&self) {
        self.given_up.set(true);
    }

    /// Something is expected again of a drive that was given up.
    pub fn expect_again(&self) {
        self.given_up.set(false);
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
