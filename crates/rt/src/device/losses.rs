//! Counts what a drive lost after it had acknowledged it, where every user of the drive looks.
//!
//! A system reports a failed write-back once for each open file description, to the flush or forced
//! write that comes first; a drive that could not empty its cache reports that once. Partitions of
//! one image, and the arrays and volumes on them, share one description. The error that one of them
//! takes may be about what another one wrote.
//!
//! So each drive counts its losses: every flush that fails and every forced write that fails. Each
//! user of a drive has a cursor into that count ([`crate::Device::for_consumer`]), and a flush
//! fails if the count has passed the cursor. Forced writes move no cursor.
//!
//! Several flushes and forced writes may be in flight on a drive. One of them may have taken the
//! error, with the answer still on its way to another core, while a later one already ended well.
//! So a flush that ended well is answered only after the flushes that were in flight then. On a
//! page cache, whose report a forced write may take too, it also waits for the forced writes.

use crate::planted::{self, Bug};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The losses of one drive.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    count: AtomicU64,
    /// Losses before the machine started anew: no flush since then reports them.
    forgotten: AtomicU64,
    in_flight: Mutex<InFlight>,
}

/// How far one user of a drive has been told of its losses.
#[derive(Debug, Default)]
pub(crate) struct Cursor(AtomicU64);

/// Flushes and forced writes in flight, by the numbers in which they began.
#[derive(Debug, Default)]
struct InFlight {
    next: u64,
    /// Each, and whether it is a flush.
    open: BTreeMap<u64, bool>,
    /// Flushes that wait for those that began before a number: all of them, or flushes alone.
    waiting: Vec<(u64, bool, Waker)>,
}

impl InFlight {
    fn ended_before(&self, number: u64, all: bool) -> bool {
        !self.open.range(..number).any(|(_, is_flush)| all || *is_flush)
    }
}

impl Losses {
    fn lock(&self) -> MutexGuard<'_, InFlight> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A flush or forced write begins.
    pub(crate) fn begin(&self, is_flush: bool) -> u64 {
        let mut in_flight = self.lock();
        let number = in_flight.next;
        in_flight.next += 1;
        in_flight.open.insert(number, is_flush);
        number
    }

    /// It ended.
    pub(crate) fn end(&self, number: u64, lost: bool) {
        let mut in_flight = self.lock();
        // Before it is out of the set: those that wait for it read the count next.
        self.count.fetch_add(u64::from(lost), Ordering::Relaxed);
        in_flight.open.remove(&number);
        let waiting = std::mem::take(&mut in_flight.waiting);
        let ended = |(before, all, _): &(u64, bool, Waker)| in_flight.ended_before(*before, *all);
        let (woken, waiting): (Vec<_>, Vec<_>) = waiting.into_iter().partition(ended);
        in_flight.waiting = waiting;
        drop(in_flight);
        woken.into_iter().for_each(|(_, _, waker)| waker.wake());
    }

    /// The number that the next operation gets: all that are in flight now have smaller ones.
    pub(crate) fn next(&self) -> u64 {
        self.lock().next
    }

    /// Whether those that began before `number` have ended: forced writes too if `all`.
    pub(crate) fn have_ended(&self, number: u64, all: bool) -> bool {
        planted::is(Bug::LossReportedOnce) || self.lock().ended_before(number, all)
    }

    /// Waits until those that began before `number` have ended: forced writes too if `all`.
    pub(crate) fn poll_ended(&self, number: u64, all: bool, context: &Context<'_>) -> Poll<()> {
        if planted::is(Bug::LossReportedOnce) {
            return Poll::Ready(());
        }
        let mut in_flight = self.lock();
        if in_flight.ended_before(number, all) {
            return Poll::Ready(());
        }
        in_flight.waiting.push((number, all, context.waker().clone()));
        Poll::Pending
    }

    /// A cursor that has passed everything.
    pub(crate) fn cursor(&self) -> Cursor {
        Cursor(AtomicU64::new(self.count.load(Ordering::Relaxed)))
    }

    /// Where a cursor stands.
    pub(crate) fn position(&self, cursor: &Cursor) -> u64 {
        cursor.0.load(Ordering::Relaxed).max(self.forgotten.load(Ordering::Relaxed))
    }

    /// Whether something was lost since the cursor stood at `position`; moves it.
    pub(crate) fn since(&self, cursor: &Cursor, position: u64) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        cursor.0.fetch_max(count, Ordering::Relaxed);
        count > position && !planted::is(Bug::LossReportedOnce)
    }

    /// The machine starts anew: what was lost before is nothing to those that run then.
    pub(crate) fn forget(&self) {
        self.forgotten.store(self.count.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_waits_for_all_that_were_in_flight_but_for_none_that_came_later() {
        let (losses, context) = (Losses::default(), Context::from_waker(Waker::noop()));
        let first = losses.begin(true);
        let ended = losses.next();
        let later = losses.begin(true);
        assert!(losses.poll_ended(ended, true, &context).is_pending());
        losses.end(later, false);
        assert!(losses.poll_ended(ended, true, &context).is_pending());
        losses.end(first, false);
        assert!(losses.poll_ended(ended, true, &context).is_ready());
        assert!(losses.lock().waiting.is_empty());
    }

    #[test]
    fn each_cursor_passes_a_loss_once() {
        let losses = Losses::default();
        let (one, other) = (losses.cursor(), losses.cursor());
        let (before_one, before_other) = (losses.position(&one), losses.position(&other));
        losses.end(losses.begin(true), true);
        assert!(losses.since(&one, before_one), "the one that took the error");
        assert!(!losses.since(&one, losses.position(&one)));
        assert!(losses.since(&other, before_other), "and the other, although its flush ended well");
        assert!(!losses.since(&other, losses.position(&other)));
        let late = losses.cursor();
        assert!(!losses.since(&late, losses.position(&late)), "a user that came later lost nothing");
    }
}
