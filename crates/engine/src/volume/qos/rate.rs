//! Limits of rates, kept exactly over all cores: the generic cell rate algorithm (GCRA). A limit is
//! one word, the time at which all that was let through is paid for at the rate. A request moves it
//! on by its own cost and may start when it lies no further ahead than the burst.
//!
//! Invariants:
//! 1. In any span of time `t` requests of at most `burst + rate * t` start, one request that is
//!    larger than the burst counting as much as the burst.
//! 2. A request that is larger than the burst starts as soon as all before it is paid for: it
//!    borrows, and what comes after it pays.
//! 3. The order of starts is that of reservations, over all cores.
//! 4. What was booked for a request that does not start is given back, as far as its time has not
//!    passed unused: limits owe nothing to a request that was never made. What was booked behind it
//!    keeps its start, which is later than it could be, once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::limits::{QOS_RATES, QosCost, QosRates, QosScope, RATES};

/// The rates that hold now. Every core reads them; a change makes a new version.
#[derive(Debug, Default)]
pub(super) struct Rates {
    /// A second, by place; 0 for no limit.
    per_second: [AtomicU64; QOS_RATES],
    burst_nanos: AtomicU64,
    /// Counts changes.
    version: AtomicU64,
    /// When the last change was made.
    changed_at: AtomicU64,
}

impl Rates {
    /// From now on these hold. Changes are made one at a time. Where nothing changes, what is owed
    /// stays owed.
    pub fn set(&self, rates: &QosRates, burst: Duration, now: u64) {
        let mut changed = false;
        for (word, rate) in self.per_second.iter().zip(rates.0) {
            let rate = rate.unwrap_or(0);
            changed |= word.swap(rate, Ordering::Relaxed) != rate;
        }
        let burst = u64::try_from(burst.as_nanos()).unwrap_or(u64::MAX);
        changed |= self.burst_nanos.swap(burst, Ordering::Relaxed) != burst;
        if changed {
            self.changed_at.store(now, Ordering::Relaxed);
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Whether nothing is limited.
    pub fn none(&self) -> bool {
        self.per_second.iter().all(|rate| rate.load(Ordering::Relaxed) == 0)
    }
}

/// How far each limit is used, of a volume or of one of its clients.
#[derive(Debug, Default)]
pub(super) struct Paid {
    /// When all is paid for, by place, in nanoseconds of the world.
    until: [AtomicU64; QOS_RATES],
    /// The version of the rates that these are of.
    version: AtomicU64,
}

/// Limits that are booked together. Those of reads or of writes come first: a request that they
/// hold back is not in line yet for those of all requests, where the other ones would wait behind
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RateGroup {
    /// Of reads, or of writes.
    Direction,
    /// Of all requests.
    All,
}

impl RateGroup {
    /// Both, in their order.
    pub const ORDER: [Self; 2] = [Self::Direction, Self::All];

    fn has(self, scope: QosScope) -> bool {
        (scope == QosScope::All) == (self == Self::All)
    }
}

/// What was booked for one request.
#[derive(Debug, Default)]
pub(super) struct Booking {
    /// By place: how far the request moved the limit on, and up to where.
    moves: [(u64, u64); QOS_RATES],
    /// The version of the rates that they are of.
    version: Option<u64>,
}

impl Booking {
    /// Whether these are still the rates that it was booked at.
    pub fn is_of(&self, rates: &Rates) -> bool {
        self.version == Some(rates.version.load(Ordering::Acquire))
    }
}

impl Paid {
    /// Books a request at the rates of a group and says when it may start: `now`, or later.
    pub fn reserve(
        &self,
        rates: &Rates,
        group: RateGroup,
        cost: QosCost,
        now: u64,
        booking: &mut Booking,
    ) -> u64 {
        let version = self.follow(rates);
        booking.version.get_or_insert(version);
        let burst = rates.burst_nanos.load(Ordering::Relaxed);
        let mut start = now;
        let mut takes = [0; QOS_RATES];
        for (at, kind) in RATES.into_iter().enumerate().filter(|(_, kind)| group.has(kind.scope)) {
            let rate = rates.per_second[at].load(Ordering::Relaxed);
            let units = cost.of(kind);
            if rate == 0 || units == 0 {
                continue;
            }
            takes[at] = nanos(units, rate);
            let end;
            (start, end) = book(&self.until[at], takes[at], burst, start);
            booking.moves[at] = (takes[at], end);
        }
        // A limit that would have let it start sooner is used when the request starts.
        for (at, takes) in takes.into_iter().enumerate().filter(|(_, takes)| *takes > 0) {
            let end = start.saturating_add(takes);
            let before = self.until[at].fetch_max(end, Ordering::Relaxed);
            if before < end {
                booking.moves[at] = (booking.moves[at].0.saturating_add(end - before), end);
            }
        }
        start
    }

    /// Gives back what was booked for a request that did not start. Time of it that has passed went
    /// by unused, for whatever reason, and counts as used.
    pub fn give_back(&self, booking: &Booking, now: u64) {
        // What was owed at other rates is no more than a burst by now.
        if booking.version != Some(self.version.load(Ordering::Acquire)) {
            return;
        }
        for (until, (moved, end)) in self.until.iter().zip(booking.moves) {
            let back = moved.min(end.saturating_sub(now));
            if back > 0 {
                let less = |until: u64| Some(until.saturating_sub(back));
                // The closure always gives a value.
                let _ = until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            }
        }
    }

    /// What was used at other rates counts as no more than a burst at the new ones: a limit that
    /// was raised is not waited for at the old rate.
    fn follow(&self, rates: &Rates) -> u64 {
        let version = rates.version.load(Ordering::Acquire);
        if self.version.load(Ordering::Acquire) == version {
            return version;
        }
        let most = rates
            .changed_at
            .load(Ordering::Relaxed)
            .saturating_add(rates.burst_nanos.load(Ordering::Relaxed));
        for until in &self.until {
            until.fetch_min(most, Ordering::Relaxed);
        }
        self.version.store(version, Ordering::Release);
        version
    }
}

/// Moves a limit on by what a request takes, and says when this one may start, and up to where the
/// limit is used by it.
fn book(until: &AtomicU64, takes: u64, burst: u64, now: u64) -> (u64, u64) {
    let mut before = until.load(Ordering::Relaxed);
    loop {
        let after = before.max(now).saturating_add(takes);
        match until.compare_exchange_weak(before, after, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return (after.saturating_sub(burst.max(takes)).max(now), after),
            Err(other) => before = other,
        }
    }
}

/// How long so many units take at a rate, rounded up: never more than the rate is let through.
fn nanos(units: u64, per_second: u64) -> u64 {
    let nanos = (u128::from(units) * 1_000_000_000).div_ceil(u128::from(per_second));
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::volume::qos::limits::{QosRate, QosScope, QosUnit};

    const SECOND: u64 = 1_000_000_000;

    impl Paid {
        /// When a request starts that comes now: as `Pace` waits for it.
        fn start(&self, rates: &Rates, cost: QosCost, now: u64) -> u64 {
            self.book(rates, cost, now).0
        }

        fn book(&self, rates: &Rates, cost: QosCost, now: u64) -> (u64, Booking) {
            let mut booking = Booking::default();
            let reserve = |now, group| self.reserve(rates, group, cost, now, &mut booking);
            (RateGroup::ORDER.into_iter().fold(now, reserve), booking)
        }
    }

    fn rates(limits: &[(QosUnit, QosScope, u64)], burst: Duration) -> Rates {
        let (rates, mut set) = (Rates::default(), QosRates::default());
        for (unit, scope, rate) in limits {
            set.0[QosRate { unit: *unit, scope: *scope }.index()] = Some(*rate);
        }
        rates.set(&set, burst, 0);
        rates
    }

    fn iops(rate: u64, burst: Duration) -> Rates {
        rates(&[(QosUnit::Requests, QosScope::All, rate)], burst)
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let (rates, paid) = (iops(1000, Duration::from_millis(10)), Paid::default());
        let starts: Vec<_> = (0..20).map(|_| paid.start(&rates, QosCost::read(512), SECOND)).collect();
        assert!(starts[..10].iter().all(|start| *start == SECOND), "{starts:?}");
        for (at, start) in starts[10..].iter().enumerate() {
            assert_eq!(*start, SECOND + (at as u64 + 1) * 1_000_000);
        }
    }

    #[test]
    fn a_request_that_is_larger_than_the_limit_borrows() {
        let limits = [(QosUnit::Bytes, QosScope::All, 1 << 20)];
        let (rates, paid) = (rates(&limits, Duration::from_millis(1)), Paid::default());
        assert_eq!(paid.start(&rates, QosCost::write(2 << 20), 0), 0, "it goes");
        assert_eq!(paid.start(&rates, QosCost::write(2 << 20), 0), 2 * SECOND, "and is paid for");
    }

    #[test]
    fn reads_do_not_use_what_writes_have() {
        let limits = [(QosUnit::Requests, QosScope::Writes, 1)];
        let (rates, paid) = (rates(&limits, Duration::from_millis(1)), Paid::default());
        assert_eq!(paid.start(&rates, QosCost::write(512), 0), 0);
        assert_eq!(paid.start(&rates, QosCost::read(512), 0), 0);
        assert_eq!(paid.start(&rates, QosCost::write(512), 0), SECOND);
    }

    #[test]
    fn of_several_limits_the_tightest_holds_and_the_others_are_used_when_it_lets_go() {
        let limits = [(QosUnit::Requests, QosScope::All, 100), (QosUnit::Bytes, QosScope::All, 100 << 10)];
        let (rates, paid) = (rates(&limits, Duration::from_millis(10)), Paid::default());
        let starts: Vec<_> = (0..4).map(|_| paid.start(&rates, QosCost::write(10 << 10), 0)).collect();
        assert_eq!(starts, [0, SECOND / 10, 2 * SECOND / 10, 3 * SECOND / 10]);
        // The limit of requests has room, but not from before these started.
        assert_eq!(paid.until[0].load(Ordering::Relaxed), 3 * SECOND / 10 + SECOND / 100);
    }

    #[test]
    fn what_a_limit_of_writes_holds_back_is_not_in_line_for_that_of_all() {
        let limits = [(QosUnit::Requests, QosScope::All, 1000), (QosUnit::Bytes, QosScope::Writes, 1 << 20)];
        let (rates, paid) = (rates(&limits, Duration::from_millis(1)), Paid::default());
        let (write, mut booking) = (QosCost::write(4 << 20), Booking::default());
        assert_eq!(paid.start(&rates, write, 0), 0);
        assert_eq!(paid.reserve(&rates, RateGroup::Direction, write, 0, &mut booking), 4 * SECOND);
        assert_eq!(paid.start(&rates, QosCost::read(512), 1_000_000), 1_000_000);
    }

    #[test]
    fn what_does_not_start_is_given_back() {
        let limits = [(QosUnit::Requests, QosScope::All, 1000), (QosUnit::Bytes, QosScope::All, 1 << 20)];
        let (rates, paid) = (rates(&limits, Duration::from_millis(1)), Paid::default());
        // After a second; what lies before it is owed no more.
        let owed = || paid.until.each_ref().map(|until| until.load(Ordering::Relaxed).max(SECOND));
        let large = QosCost::write(4 << 20);
        paid.start(&rates, large, 0);
        let before = owed();
        for _ in 0..10 {
            // Two at once, which move the limit of requests on to their starts.
            let (one, other) = (paid.book(&rates, large, 5), paid.book(&rates, large, 5));
            assert_eq!((one.0, other.0), (4 * SECOND, 8 * SECOND));
            paid.give_back(&one.1, SECOND);
            paid.give_back(&other.1, SECOND);
            assert_eq!(owed(), before);
        }
        // What began, and has used some of its time.
        let (start, booking) = paid.book(&rates, large, 5 * SECOND);
        assert_eq!(start, 5 * SECOND);
        paid.give_back(&booking, 8 * SECOND);
        assert_eq!(owed()[3], 8 * SECOND);
        paid.give_back(&booking, 9 * SECOND);
        assert_eq!(owed()[3], 8 * SECOND, "its time has passed");
    }

    #[test]
    fn a_change_that_is_none_forgives_nothing() {
        let burst = Duration::from_millis(100);
        let (rates, paid) = (iops(1, burst), Paid::default());
        paid.start(&rates, QosCost::read(512), 0);
        let mut set = QosRates::default();
        set.0[0] = Some(1);
        rates.set(&set, burst, 5);
        assert_eq!(paid.start(&rates, QosCost::read(512), 5), SECOND, "as if nothing was set");
        rates.set(&set, 2 * burst, 6);
        assert!(paid.start(&rates, QosCost::read(512), 6) < SECOND + SECOND / 2);
    }

    #[test]
    fn what_was_booked_at_an_old_rate_is_not_given_back() {
        let burst = Duration::from_millis(100);
        let (rates, paid) = (iops(1, burst), Paid::default());
        paid.start(&rates, QosCost::read(512), 0);
        let (_, booking) = paid.book(&rates, QosCost::read(512), 0);
        let mut set = QosRates::default();
        set.0[0] = Some(10);
        rates.set(&set, burst, 5);
        paid.start(&rates, QosCost::read(512), 5);
        let owed = paid.until[0].load(Ordering::Relaxed);
        paid.give_back(&booking, 5);
        assert_eq!(paid.until[0].load(Ordering::Relaxed), owed);
    }

    #[test]
    fn what_was_borrowed_at_an_old_rate_is_not_paid_at_it() {
        let burst = Duration::from_millis(100);
        let (rates, paid) = (iops(1, burst), Paid::default());
        for _ in 0..50 {
            paid.start(&rates, QosCost::read(512), 0);
        }
        let mut set = QosRates::default();
        set.0[0] = Some(1000);
        rates.set(&set, burst, 5);
        assert_eq!(paid.start(&rates, QosCost::read(512), 5), 5 + 1_000_000, "a burst is owed, no more");
        rates.set(&QosRates::default(), burst, 6);
        assert_eq!(paid.start(&rates, QosCost::read(512), 6), 6, "nothing is limited");
        assert!(rates.none());
    }

    #[test]
    fn the_rate_is_kept_over_threads() {
        let (rates, paid) = (Arc::new(iops(1_000_000, Duration::from_millis(1))), Arc::new(Paid::default()));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (rates, paid) = (rates.clone(), paid.clone());
                // A test of atomics needs threads that are no cores.
                #[allow(clippy::disallowed_methods)]
                std::thread::spawn(move || {
                    (0..10_000).map(|_| paid.start(&rates, QosCost::read(512), 0)).collect::<Vec<_>>()
                })
            })
            .collect();
        let mut starts: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        starts.sort_unstable();
        for (at, start) in starts.iter().enumerate() {
            assert_eq!(*start, (at as u64 + 1).saturating_sub(1000) * 1000, "the start of request {at}");
        }
    }

    proptest! {
        /// Invariant 1, by the slow way: every span between two starts.
        #[test]
        fn no_span_has_more_than_burst_and_rate_allow(
            rate in 1u64..5000,
            burst_ms in 1u64..2000,
            gaps in proptest::collection::vec(0u64..30_000_000, 1..120),
            sizes in proptest::collection::vec(1u64..5000, 120),
        ) {
            let limits = [(QosUnit::Bytes, QosScope::All, rate)];
            let (rates, paid) = (rates(&limits, Duration::from_millis(burst_ms)), Paid::default());
            let burst = rate as f64 * burst_ms as f64 / 1e3;
            let (mut now, mut started) = (0, Vec::new());
            for (gap, bytes) in gaps.iter().zip(&sizes) {
                now += gap;
                // A client with one request at a time.
                now = paid.start(&rates, QosCost::read(*bytes), now);
                started.push((now, *bytes as f64));
            }
            for from in 0..started.len() {
                let mut sum = 0.0;
                let mut largest: f64 = 0.0;
                for (at, bytes) in &started[from..] {
                    sum += bytes;
                    largest = largest.max(*bytes);
                    let span = (at - started[from].0) as f64 / 1e9;
                    prop_assert!(sum <= burst.max(largest) + rate as f64 * span + 1e-3);
                }
            }
        }

        /// No token is lost: with demand all the time, a limit is used up to a request.
        #[test]
        fn what_is_allowed_is_let_through(
            rate in 1u64..5000,
            burst_ms in 1u64..2000,
            sizes in proptest::collection::vec(1u64..5000, 2..120),
        ) {
            let limits = [(QosUnit::Bytes, QosScope::All, rate)];
            let (rates, paid) = (rates(&limits, Duration::from_millis(burst_ms)), Paid::default());
            let (mut now, mut before) = (0, 0.0);
            for bytes in &sizes {
                now = paid.start(&rates, QosCost::read(*bytes), now);
                // It starts no later than a bucket that fills at the rate has paid for it.
                let slack = (*bytes + 2) as f64 + rate as f64 * 1e-6;
                prop_assert!(now as f64 / 1e9 * rate as f64 <= before + slack, "{now} {before}");
                before += *bytes as f64;
            }
        }
    }
}
