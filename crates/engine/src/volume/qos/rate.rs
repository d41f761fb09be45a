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

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::limits::{QOS_RATES, QosCost, QosRates, RATES};

/// The rates that hold now. Every core reads them; a change makes a new version.
#[derive(Debug, Default)]
pub(super) struct Rates {
    /// A second, by place; 0 for no limit.
    per_second: [AtomicU64; QOS_RATES],
    burst_nanos: AtomicU64,
    /// Counts changes; odd while one is being made, so that none reads half of it as the whole.
    version: AtomicU64,
    /// When the last change was made.
    changed_at: AtomicU64,
}

impl Rates {
    /// From now on these hold. Changes are made one at a time.
    pub fn set(&self, rates: &QosRates, burst: Duration, now: u64) {
        for (word, rate) in self.per_second.iter().zip(rates.0) {
            word.store(rate.unwrap_or(0), Ordering::Relaxed);
        }
        let burst = u64::try_from(burst.as_nanos()).unwrap_or(u64::MAX);
        self.burst_nanos.store(burst, Ordering::Relaxed);
        self.changed_at.store(now, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
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

impl Paid {
    /// Books a request at the rates and says when it may start: `now`, or later.
    pub fn reserve(&self, rates: &Rates, cost: QosCost, now: u64) -> u64 {
        self.follow(rates);
        let burst = rates.burst_nanos.load(Ordering::Relaxed);
        let mut start = now;
        let mut booked = [0; QOS_RATES];
        for (at, kind) in RATES.into_iter().enumerate() {
            let rate = rates.per_second[at].load(Ordering::Relaxed);
            let units = cost.of(kind);
            if rate == 0 || units == 0 {
                continue;
            }
            booked[at] = nanos(units, rate);
            start = book(&self.until[at], booked[at], burst, start);
        }
        // A limit that would have let it start sooner is used when the request starts.
        for (until, takes) in self.until.iter().zip(booked).filter(|(_, takes)| *takes > 0) {
            until.fetch_max(start.saturating_add(takes), Ordering::Relaxed);
        }
        start
    }

    /// What was used at other rates counts as no more than a burst at the new ones: a limit that
    /// was raised is not waited for at the old rate.
    fn follow(&self, rates: &Rates) {
        let version = rates.version.load(Ordering::Acquire);
        if self.version.load(Ordering::Acquire) == version {
            return;
        }
        let most = rates
            .changed_at
            .load(Ordering::Relaxed)
            .saturating_add(rates.burst_nanos.load(Ordering::Relaxed));
        for until in &self.until {
            until.fetch_min(most, Ordering::Relaxed);
        }
        self.version.store(version, Ordering::Release);
    }
}

/// Moves a limit on by what a request takes, and says when this one may start.
fn book(until: &AtomicU64, takes: u64, burst: u64, now: u64) -> u64 {
    let mut before = until.load(Ordering::Relaxed);
    loop {
        let after = before.max(now).saturating_add(takes);
        match until.compare_exchange_weak(before, after, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return after.saturating_sub(burst.max(takes)).max(now),
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
        let starts: Vec<_> = (0..20).map(|_| paid.reserve(&rates, QosCost::read(512), SECOND)).collect();
        assert!(starts[..10].iter().all(|start| *start == SECOND), "{starts:?}");
        for (at, start) in starts[10..].iter().enumerate() {
            assert_eq!(*start, SECOND + (at as u64 + 1) * 1_000_000);
        }
    }

    #[test]
    fn a_request_that_is_larger_than_the_limit_borrows() {
        let limits = [(QosUnit::Bytes, QosScope::All, 1 << 20)];
        let (rates, paid) = (rates(&limits, Duration::from_millis(1)), Paid::default());
        assert_eq!(paid.reserve(&rates, QosCost::write(2 << 20), 0), 0, "it goes");
        assert_eq!(paid.reserve(&rates, QosCost::write(2 << 20), 0), 2 * SECOND, "and is paid for");
    }

    #[test]
    fn reads_do_not_use_what_writes_have() {
        let limits = [(QosUnit::Requests, QosScope::Writes, 1)];
        let (rates, paid) = (rates(&limits, Duration::from_millis(1)), Paid::default());
        assert_eq!(paid.reserve(&rates, QosCost::write(512), 0), 0);
        assert_eq!(paid.reserve(&rates, QosCost::read(512), 0), 0);
        assert_eq!(paid.reserve(&rates, QosCost::write(512), 0), SECOND);
    }

    #[test]
    fn of_several_limits_the_tightest_holds_and_the_others_are_used_when_it_lets_go() {
        let limits = [(QosUnit::Requests, QosScope::All, 100), (QosUnit::Bytes, QosScope::All, 100 << 10)];
        let (rates, paid) = (rates(&limits, Duration::from_millis(10)), Paid::default());
        let starts: Vec<_> = (0..4).map(|_| paid.reserve(&rates, QosCost::write(10 << 10), 0)).collect();
        assert_eq!(starts, [0, SECOND / 10, 2 * SECOND / 10, 3 * SECOND / 10]);
        // The limit of requests has room, but not from before these started.
        assert_eq!(paid.until[0].load(Ordering::Relaxed), 3 * SECOND / 10 + SECOND / 100);
    }

    #[test]
    fn what_was_borrowed_at_an_old_rate_is_not_paid_at_it() {
        let burst = Duration::from_millis(100);
        let (rates, paid) = (iops(1, burst), Paid::default());
        for _ in 0..50 {
            paid.reserve(&rates, QosCost::read(512), 0);
        }
        let mut set = QosRates::default();
        set.0[0] = Some(1000);
        rates.set(&set, burst, 5);
        assert_eq!(paid.reserve(&rates, QosCost::read(512), 5), 5 + 1_000_000, "a burst is owed, no more");
        rates.set(&QosRates::default(), burst, 6);
        assert_eq!(paid.reserve(&rates, QosCost::read(512), 6), 6, "nothing is limited");
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
                    (0..10_000).map(|_| paid.reserve(&rates, QosCost::read(512), 0)).collect::<Vec<_>>()
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
                now = paid.reserve(&rates, QosCost::read(*bytes), now);
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
                now = paid.reserve(&rates, QosCost::read(*bytes), now);
                // It starts no later than a bucket that fills at the rate has paid for it.
                let slack = (*bytes + 2) as f64 + rate as f64 * 1e-6;
                prop_assert!(now as f64 / 1e9 * rate as f64 <= before + slack, "{now} {before}");
                before += *bytes as f64;
            }
        }
    }
}
