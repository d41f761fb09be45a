//! What the jobs of a load and its measurement tell each other.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use wattle_rt::Instant;

/// Written by the jobs, read by the measurement. Each writer has two cache lines, since processors
/// fetch them in pairs.
pub struct Board {
    /// Requests answered, by job.
    answered: Vec<Line>,
    /// When jobs begin to count, in nanoseconds.
    from: AtomicU64,
    /// When they end; 0 when one has failed.
    until: AtomicU64,
}

#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

impl Board {
    pub(crate) fn new(jobs: usize) -> Board {
        let never = || AtomicU64::new(u64::MAX);
        Board { answered: (0..jobs).map(|_| Line::default()).collect(), from: never(), until: never() }
    }

    /// Requests answered so far.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.iter().map(|line| line.0.load(Ordering::Relaxed)).sum()
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

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now.as_nanos() >= self.until.load(Ordering::Relaxed)
    }

    pub(crate) fn counts(&self, now: Instant) -> bool {
        now.as_nanos() >= self.from.load(Ordering::Relaxed) && !self.is_over(now)
    }

    pub(crate) fn answer(&self, job: usize) {
        // One writer only, so no read-modify-write.
        let line = &self.answered[job].0;
        line.store(line.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.until.store(0, Ordering::Relaxed);
    }
}
