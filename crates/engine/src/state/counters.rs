//! What a core counts of an array's requests.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use wattle_rt::Latencies;

/// A counter of one core: no atomics, added up on request.
#[derive(Debug, Default)]
pub(crate) struct Count(Cell<u64>);

impl Count {
    pub fn add(&self, n: u64) {
        self.0.set(self.0.get() + n);
    }

    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// One core's counters of one array.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub $name: Count,)* }

        /// Counts of what an array has done since it was started, all cores together.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub struct CounterTotals { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            pub fn totals(&self) -> CounterTotals {
                CounterTotals { $($name: self.$name.0.get(),)* }
            }
        }

        impl CounterTotals {
            pub(crate) fn plus(self, other: Self) -> Self {
                Self { $($name: self.$name + other.$name,)* }
            }
        }
    };
}

counters! {
    /// Read requests.
    reads,
    /// Bytes read by clients.
    read_bytes,
    /// Write requests.
    writes,
    /// Bytes written by clients.
    write_bytes,
    /// Flushes of all members; requests that came together share one.
    flushes,
    /// Rows written without reading anything: full stripes.
    rows_full,
    /// Rows written by reconstruct-write.
    rows_reconstruct,
    /// Rows written by read-modify-write.
    rows_read_modify,
    /// Rows written with lost data recovered first, or with no parity left.
    rows_degraded,
    /// Rows read by recovering lost blocks.
    rows_recovered,
    /// Blocks read from members before a write.
    pre_reads,
    /// Write requests that left in a batch with another of the same stripe.
    merged,
    /// Blocks that could not be read and were rewritten from redundancy.
    repaired,
    /// Bytes read ahead of clients that read in sequence.
    ahead_bytes,
    /// Read requests that were answered with what had been read ahead.
    ahead_reads,
    /// Requests whose edges are not on blocks: reads that read more, writes that stop everything
    /// else.
    unaligned,
}

/// Clients' requests that one core has answered.
#[derive(Debug)]
pub(crate) struct Requests {
    latencies: RefCell<RequestLatencies>,
    /// Reads and writes that took longer are late.
    late_after: Cell<Duration>,
    late: Count,
}

/// How long clients' requests took since the array was started, all cores together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestLatencies {
    /// Reads.
    pub reads: Latencies,
    /// Writes.
    pub writes: Latencies,
    /// Flushes.
    pub flushes: Latencies,
}

impl Requests {
    pub fn new(late_after: Duration) -> Self {
        Self { latencies: RefCell::default(), late_after: Cell::new(late_after), late: Count::default() }
    }

    pub fn read(&self, took: Duration) {
        self.latencies.borrow_mut().reads.record(took);
        self.late.add(u64::from(took > self.late_after.get()));
    }

    pub fn written(&self, took: Duration) {
        self.latencies.borrow_mut().writes.record(took);
        self.late.add(u64::from(took > self.late_after.get()));
    }

    pub fn flushed(&self, took: Duration) {
        self.latencies.borrow_mut().flushes.record(took);
    }

    /// From now on reads and writes that take longer are late.
    pub fn late_after(&self, time: Duration) {
        self.late_after.set(time);
    }

    /// Reads and writes that were answered, and how many of them were late.
    pub fn answered(&self) -> (u64, u64) {
        let latencies = self.latencies.borrow();
        (latencies.reads.count() + latencies.writes.count(), self.late.get())
    }

    pub fn totals(&self) -> RequestLatencies {
        self.latencies.borrow().clone()
    }
}

impl RequestLatencies {
    pub(crate) fn add(&mut self, other: &Self) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.flushes.add(&other.flushes);
    }
}
