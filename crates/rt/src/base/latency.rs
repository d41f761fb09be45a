//! How long things took, in little memory: a histogram of four steps to a doubling, from a
//! microsecond to a minute.

use std::fmt;
use std::time::Duration;

/// Steps to a doubling.
const STEPS: u64 = 4;
/// What is faster counts as this: 2^10 ns, about a microsecond.
const FIRST_BITS: u32 = 10;
/// Doublings: the last step begins above a minute.
const DOUBLINGS: u32 = 27;
const BUCKETS: usize = (DOUBLINGS as u64 * STEPS) as usize;

/// How many took how long.
#[derive(Clone, PartialEq, Eq)]
pub struct Latencies {
    buckets: Box<[u64; BUCKETS]>,
    count: u64,
    sum: Duration,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { buckets: Box::new([0; BUCKETS]), count: 0, sum: Duration::ZERO }
    }
}

impl Latencies {
    /// Adds one.
    pub fn record(&mut self, took: Duration) {
        self.buckets[bucket(took)] += 1;
        self.count += 1;
        self.sum += took;
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets[..]).for_each(|(sum, more)| *sum += more);
        self.count += other.count;
        self.sum += other.sum;
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All of them together: divided by the time they were counted in, the mean number under way
    /// (Little's law).
    #[must_use]
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// How many took less than a time. Exact for 2 to the power of 11 and more nanoseconds (and for
    /// the steps between these); for other times, up to the last such time before it.
    #[must_use]
    pub fn count_below(&self, time: Duration) -> u64 {
        let whole = (0..BUCKETS - 1).take_while(|bucket| end_of(*bucket) <= time).count();
        self.buckets[..whole].iter().sum()
    }

    /// The least time that at least so many of a million took at most, up to a fifth too long; zero
    /// if there were none.
    #[must_use]
    pub fn percentile_ppm(&self, ppm: u64) -> Duration {
        let rank = (u128::from(self.count) * u128::from(ppm)).div_ceil(1_000_000).max(1) as u64;
        let mut seen = 0;
        let reached = |count: &u64| {
            seen += count;
            seen >= rank
        };
        self.buckets.iter().position(reached).map_or(Duration::ZERO, end_of)
    }
}

impl fmt::Debug for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Latencies({} in {:?})", self.count, self.sum)
    }
}

fn bucket(took: Duration) -> usize {
    let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1 << FIRST_BITS);
    let doublings = nanos.ilog2();
    let step = nanos >> (doublings - STEPS.ilog2()) & (STEPS - 1);
    let index = u64::from(doublings - FIRST_BITS) * STEPS + step;
    (index as usize).min(BUCKETS - 1)
}

/// Where a bucket ends.
fn end_of(bucket: usize) -> Duration {
    let (doublings, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    Duration::from_nanos((STEPS + step + 1) << (u64::from(FIRST_BITS) + doublings) >> STEPS.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every time falls into a bucket whose end is at most a quarter beyond it.
        #[test]
        fn a_bucket_is_narrow(nanos in 0u64..1 << 35) {
            let end = end_of(bucket(Duration::from_nanos(nanos))).as_nanos() as u64;
            prop_assert!(end > nanos, "{end}");
            prop_assert!(end <= (nanos + nanos / 4).max(1280), "{end}");
        }

        #[test]
        fn percentiles_are_those_of_a_sorted_list(
            mut nanos in prop::collection::vec(1024u64..1 << 33, 1..200), ppm in 1u64..=1_000_000
        ) {
            let mut latencies = Latencies::default();
            nanos.iter().for_each(|nanos| latencies.record(Duration::from_nanos(*nanos)));
            nanos.sort_unstable();
            let rank = (nanos.len() as u64 * ppm).div_ceil(1_000_000).max(1) as usize;
            let right = nanos[rank - 1];
            let found = latencies.percentile_ppm(ppm).as_nanos() as u64;
            prop_assert!(found >= right && found <= right + right / 4 + 1, "{found} for {right}");
        }
    }

    #[test]
    fn those_below_a_power_of_two_are_counted_exactly() {
        let mut latencies = Latencies::default();
        let edge = Duration::from_nanos(1 << 16);
        for nanos in [(1u64 << 16) - 1, 1 << 16, (1 << 16) + 1, 5, 1 << 40] {
            latencies.record(Duration::from_nanos(nanos));
        }
        assert_eq!(latencies.count_below(edge), 2);
        assert_eq!(latencies.count_below(edge * 2), 4);
        assert_eq!(latencies.count_below(Duration::MAX), 4, "what took ages is below no bound");
        assert_eq!(latencies.count_below(Duration::ZERO), 0);
    }

    #[test]
    fn nothing_took_no_time_and_ages_fit() {
        assert_eq!(Latencies::default().percentile_ppm(990_000), Duration::ZERO);
        let mut latencies = Latencies::default();
        latencies.record(Duration::MAX / 2);
        assert!(latencies.percentile_ppm(1) > Duration::from_secs(60));
    }
}
