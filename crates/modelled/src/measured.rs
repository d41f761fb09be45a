//! What a load on an array came to.

use std::time::Duration;

use wattle_engine::{CacheStatus, CounterTotals};
use wattle_rt::sim::DriveTotals;

use crate::histogram::Histogram;
use crate::load::{Counted, Load};
use crate::settle::Ramped;
use crate::settle::Sight;

/// What is looked at when counting begins and when it ends.
pub type Probe = (Vec<DriveTotals>, CounterTotals, CacheStatus);

/// Decisions of the clean cache that a window has to see.
const DECISIONS: u64 = 2;

impl Sight for Probe {
    fn written(&self) -> (u64, u64) {
        let sum = |of: fn(&DriveTotals) -> u64| self.0.iter().map(of).sum();
        (sum(|drive| drive.written_bytes), sum(|drive| drive.landed_bytes))
    }

    fn cache_bytes(&self) -> u64 {
        self.2.size_bytes
    }

    fn decided_after(&self) -> u64 {
        let CacheStatus { ceiling_bytes, size_bytes, hits, misses, .. } = self.2;
        let is_used = hits + misses > 0 && size_bytes < ceiling_bytes;
        if is_used { DECISIONS * CacheStatus::decided_after_rows(size_bytes) } else { 0 }
    }
}

/// What a load came to.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The time measured.
    pub window: Duration,
    /// How it went before that.
    pub ramped: Ramped,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Reads answered in it.
    pub reads: Histogram,
    /// Writes answered in it.
    pub writes: Histogram,
    /// Flushes answered in it.
    pub flushes: Histogram,
    /// What each drive did in it.
    pub members: Vec<DriveTotals>,
    /// What the array had counted when it began and when it ended.
    pub counters: [CounterTotals; 2],
}

impl Measured {
    /// What `load` came to.
    #[must_use]
    pub fn new(load: &Load, counted: Counted<Probe>) -> Measured {
        let (before, after) = (counted.before, counted.after);
        Measured {
            window: counted.runtime,
            ramped: counted.ramped,
            request_bytes: load.bs_bytes,
            reads: counted.counts.reads,
            writes: counted.counts.writes,
            flushes: counted.counts.flushes,
            members: before.0.iter().zip(&after.0).map(|(before, after)| *after - *before).collect(),
            counters: [before.1, after.1],
        }
    }

    /// Requests per second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        (self.reads.count() + self.writes.count()) as f64 / self.window.as_secs_f64()
    }

    /// Bytes per second.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.per_second() * self.request_bytes as f64
    }

    /// Latencies of reads and writes together.
    #[must_use]
    pub fn all(&self) -> Histogram {
        let mut all = self.reads.clone();
        all.add(&self.writes);
        all
    }

    /// How much one of the array's counters grew.
    #[must_use]
    pub fn grew(&self, counter: impl Fn(&CounterTotals) -> u64) -> u64 {
        counter(&self.counters[1]) - counter(&self.counters[0])
    }

    /// How the drives were used, by slot.
    #[must_use]
    pub fn uses(&self) -> Vec<MemberUse> {
        self.members.iter().map(|totals| MemberUse::new(totals, self.window)).collect()
    }
}

/// How a drive was used over some time.
#[derive(Clone, Copy, Debug)]
pub struct MemberUse {
    /// Part of the time it was at work.
    pub busy: f64,
    /// Operations in flight, on average.
    pub depth: f64,
    /// Reads per second.
    pub reads_per_second: f64,
    /// Bytes read per second.
    pub read_bytes_per_second: f64,
    /// Writes per second.
    pub writes_per_second: f64,
    /// Bytes written per second.
    pub written_bytes_per_second: f64,
}

impl MemberUse {
    /// What `totals` come to over `time`.
    #[must_use]
    pub fn new(totals: &DriveTotals, time: Duration) -> MemberUse {
        let seconds = time.as_secs_f64();
        let rate = |count: u64| count as f64 / seconds;
        MemberUse {
            busy: totals.busy.as_secs_f64() / seconds,
            depth: totals.in_flight.as_secs_f64() / seconds,
            reads_per_second: rate(totals.reads),
            read_bytes_per_second: rate(totals.read_bytes),
            writes_per_second: rate(totals.writes),
            written_bytes_per_second: rate(totals.written_bytes),
        }
    }
}
