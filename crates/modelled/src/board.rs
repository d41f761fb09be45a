//! What the jobs of a load and its measurement tell each other.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wattle_rt::Instant;

/// Written by the jobs, read by the measurement. Each writer has two cache lines, since processors
/// fetch them in pairs.
pub struct Board {
    /// Requests answered, by job.
    answered: Vec<Line>,
    /// How often counting began anew: what was counted before is forgotten.
    begun: AtomicU64,
    /// When jobs begin to count, in nanoseconds.
    from: AtomicU64,
    /// When they end; 0 when one has failed.
    until: AtomicU64,
}

/// Requests answered, and how long they and flushes took together, in nanoseconds.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64, AtomicU64);

/// What was answered so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Reads and writes.
    pub answered: u64,
    /// How long they and flushes took, added up.
    pub took: Duration,
}

impl Board {
    pub(crate) fn new(jobs: usize) -> Board {
        let never = || AtomicU64::new(u64::MAX);
        Board {
            answered: (0..jobs).map(|_| Line::default()).collect(),
            begun: AtomicU64::new(0),
            from: never(),
            until: never(),
        }
    }

    /// Requests answered so far.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.iter().map(|line| line.0.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn tally(&self) -> Tally {
        let took = self.answered.iter().map(|line| line.1.load(Ordering::Relaxed)).sum();
        Tally { answered: self.answered(), took: Duration::from_nanos(took) }
    }

    /// A job has failed, or all are to end.
    pub(crate) fn ended(&self) -> bool {
        self.until.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn count(&self, window: Range<Instant>) {
        self.from.store(window.start.as_nanos(), Ordering::Relaxed);
        let until = window.end.as_nanos();
        // A failure in this very moment is not overwritten.
        let _ = self.until.compare_exchange(u64::MAX, until, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Jobs are to forget what they counted and to count from now on.
    pub(crate) fn count_anew(&self, now: Instant) {
        self.begun.store(self.begun.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.from.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Nothing is counted any more from now on, and jobs end.
    pub(crate) fn close(&self, now: Instant) {
        self.until.fetch_min(now.as_nanos(), Ordering::Relaxed);
    }

    /// How often that was said.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now.as_nanos() >= self.until.load(Ordering::Relaxed)
    }

    pub(crate) fn counts(&self, now: Instant) -> bool {
        now.as_nanos() >= self.from.load(Ordering::Relaxed) && !self.is_over(now)
    }

    /// A request of a job was answered, or a flush, which does not count as one.
    pub(crate) fn answer(&self, job: usize, requests: u64, took: Duration) {
        let Line(answered, nanos) = &self.answered[job];
        // One writer only, so no read-modify-write.
        let add =
            |sum: &AtomicU64, more: u64| sum.store(sum.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        add(answered, requests);
        add(nanos, took.as_nanos() as u64);
    }

    pub(crate) fn end(&self) {
        self.until.store(0, Ordering::Relaxed);
    }
}
