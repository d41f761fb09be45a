//! What arrays and members did between two looks at them.

use serde::Serialize;
use wattle_server::protocol::report::{ArrayReport, LATENCY_BOUNDS, LatencyReport, MemberReport};

/// An array's, each second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ArrayRates {
    /// Bytes that clients read.
    pub read_bytes: u64,
    /// Bytes that clients wrote.
    pub write_bytes: u64,
    /// Requests of clients.
    pub requests: u64,
    /// How long a read took, on average.
    pub read_mean_us: u64,
    /// How long a write took, on average.
    pub write_mean_us: u64,
    /// 99 of a hundred reads took at most this long.
    pub read_p99_us: u64,
    /// 99 of a hundred writes took at most this long.
    pub write_p99_us: u64,
}

/// A member's, each second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct MemberRates {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// How long one read or write took, on average; 0 where there was none.
    pub mean_us: u64,
}

impl ArrayRates {
    /// Between two looks.
    #[must_use]
    pub fn between(before: &ArrayReport, now: &ArrayReport, millis: u64) -> Self {
        let (was, is) = (&before.counters, &now.counters);
        let each = |before: u64, now: u64| per_second(now.saturating_sub(before), millis);
        Self {
            read_bytes: each(was.read_bytes, is.read_bytes),
            write_bytes: each(was.write_bytes, is.write_bytes),
            requests: each(was.reads + was.writes + was.flushes, is.reads + is.writes + is.flushes),
            read_mean_us: mean(&[(before.requests.reads, now.requests.reads)]),
            write_mean_us: mean(&[(before.requests.writes, now.requests.writes)]),
            read_p99_us: p99(&before.requests.reads, &now.requests.reads),
            write_p99_us: p99(&before.requests.writes, &now.requests.writes),
        }
    }

    /// The sum of rates, and the worse of latencies.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            read_bytes: self.read_bytes + other.read_bytes,
            write_bytes: self.write_bytes + other.write_bytes,
            requests: self.requests + other.requests,
            read_mean_us: self.read_mean_us.max(other.read_mean_us),
            write_mean_us: self.write_mean_us.max(other.write_mean_us),
            read_p99_us: self.read_p99_us.max(other.read_p99_us),
            write_p99_us: self.write_p99_us.max(other.write_p99_us),
        }
    }

    /// The mean of a sum of `count`.
    #[must_use]
    pub fn mean_of(self, count: u32) -> Self {
        let count = u64::from(count.max(1));
        Self {
            read_bytes: self.read_bytes / count,
            write_bytes: self.write_bytes / count,
            requests: self.requests / count,
            ..self
        }
    }
}

impl MemberRates {
    /// Between two looks.
    #[must_use]
    pub fn between(before: &MemberReport, now: &MemberReport, millis: u64) -> Self {
        let (was, is) = (&before.traffic, &now.traffic);
        Self {
            read_bytes: per_second(is.read_bytes.saturating_sub(was.read_bytes), millis),
            write_bytes: per_second(is.written_bytes.saturating_sub(was.written_bytes), millis),
            mean_us: mean(&[(was.reads, is.reads), (was.writes, is.writes)]),
        }
    }
}

fn per_second(count: u64, millis: u64) -> u64 {
    (u128::from(count) * 1000 / u128::from(millis.max(1))) as u64
}

fn mean(kinds: &[(LatencyReport, LatencyReport)]) -> u64 {
    let sum = |of: fn(&LatencyReport) -> u64| -> u64 {
        kinds.iter().map(|(was, is)| of(is).saturating_sub(of(was))).sum()
    };
    sum(|latency| latency.sum_us).checked_div(sum(|latency| latency.count)).unwrap_or(0)
}

/// How long 99 of a hundred took at most, of those between two looks; 0 where there were none.
/// Times are counted in steps of four: within one, they are taken to lie evenly.
fn p99(before: &LatencyReport, now: &LatencyReport) -> u64 {
    let all = now.count.saturating_sub(before.count);
    // A server that was started again, or an older one that does not count by times.
    if all == 0 || now.below.iter().all(|below| *below == 0) {
        return 0;
    }
    let wanted = (all * 99).div_ceil(100);
    let (mut below_us, mut counted) = (0, 0);
    for (bound, (was, is)) in LATENCY_BOUNDS.iter().zip(before.below.iter().zip(&now.below)) {
        let (bound_us, count) = (bound.as_micros() as u64, is.saturating_sub(*was));
        if count >= wanted {
            return below_us + (bound_us - below_us) * (wanted - counted) / (count - counted).max(1);
        }
        (below_us, counted) = (bound_us, count.max(counted));
    }
    below_us
}

#[cfg(test)]
mod tests {
    use wattle_server::fixtures::array;

    use super::*;

    #[test]
    fn rates_are_what_grew_in_the_time() {
        let before = array("data", "raid5", &["a", "b", "c"]);
        let mut now = before.clone();
        now.counters.read_bytes = 1 << 20;
        now.counters.writes = 10;
        now.requests.writes = LatencyReport { count: 10, sum_us: 5000, ..LatencyReport::default() };
        let rates = ArrayRates::between(&before, &now, 500);
        assert_eq!((rates.read_bytes, rates.requests, rates.write_mean_us), (2 << 20, 20, 500));
        assert_eq!(
            (rates.read_mean_us, rates.write_p99_us),
            (0, 0),
            "an older server does not count by times"
        );
        now.members[0].traffic.written_bytes = 100;
        now.members[0].traffic.writes = LatencyReport { count: 2, sum_us: 8, ..LatencyReport::default() };
        let member = MemberRates::between(&before.members[0], &now.members[0], 1000);
        assert_eq!((member.write_bytes, member.mean_us), (100, 4));
        // A server that was started again counts from the start.
        assert_eq!(ArrayRates::between(&now, &before, 500).read_bytes, 0);
    }

    /// What was slow before the interval is not in it.
    #[test]
    fn the_p99_is_that_of_the_interval() {
        // 16 us, 65 us, 262 us, 1 ms, 4 ms, ...
        let of = |count: u64, below: [u64; LATENCY_BOUNDS.len()]| LatencyReport {
            count,
            below,
            ..LatencyReport::default()
        };
        let slow = of(100, [0, 0, 0, 0, 0, 0, 0, 100, 100, 100, 100]);
        let now = of(300, [0, 200, 200, 200, 200, 200, 200, 300, 300, 300, 300]);
        let fast = p99(&slow, &now);
        assert!((60..=66).contains(&fast), "{fast}");
        let tail = of(300, [0, 190, 190, 200, 200, 200, 200, 300, 300, 300, 300]);
        let with_tail = p99(&slow, &tail);
        assert!((262..=1049).contains(&with_tail), "{with_tail}");
        assert_eq!(p99(&now, &now), 0);
    }
}
