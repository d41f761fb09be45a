//! How long requests took, in bounded memory: buckets that grow with what they count.
//!
//! A power of two is cut into [`STEPS`] equal buckets, so that a bucket is never wider than 1/128
//! of what it stands for; below [`STEPS`] nanoseconds each has its own. All of 64 bits fit into 58
//! KiB, whatever was counted. Integers only: the same requests give the same digits on every
//! machine.

use std::time::Duration;

/// Buckets of a power of two.
const STEPS: u64 = 128;
const STEP_BITS: u32 = STEPS.ilog2();
const BUCKETS: usize = ((64 - STEP_BITS as usize) + 1) * STEPS as usize;

/// How many requests took how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    total: Duration,
    max: Duration,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; BUCKETS], count: 0, total: Duration::ZERO, max: Duration::ZERO }
    }
}

impl Histogram {
    /// Counts a request.
    pub fn record(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket_of(nanos)] += 1;
        self.count += 1;
        self.total = self.total.saturating_add(took);
        self.max = self.max.max(took);
    }

    /// Adds what another one counted.
    pub fn add(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, more)| *sum += more);
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
        self.max = self.max.max(other.max);
    }

    /// How many requests.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How long they took on average; zero if there were none.
    #[must_use]
    pub fn mean(&self) -> Duration {
        let nanos = self.total.as_nanos() / u128::from(self.count.max(1));
        Duration::from_nanos(nanos as u64)
    }

    /// How long the longest took.
    #[must_use]
    pub fn max(&self) -> Duration {
        self.max
    }

    /// So many of a hundred took at most this long, at most 1/128 too much; zero if there were
    /// none.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Duration {
        let rank = ((percent / 100.0 * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(last_of(bucket)).min(self.max);
            }
        }
        Duration::ZERO
    }
}

fn bucket_of(nanos: u64) -> usize {
    if nanos < STEPS {
        return nanos as usize;
    }
    // The leading bit chooses the power of two, the bits behind it the bucket within.
    let power = nanos.ilog2() - STEP_BITS;
    (u64::from(power + 1) * STEPS + ((nanos >> power) - STEPS)) as usize
}

/// The longest time of a bucket.
fn last_of(bucket: usize) -> u64 {
    let (power, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    match power {
        0 => step,
        _ => ((STEPS + step) << (power - 1)) + ((1 << (power - 1)) - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_a_bucket_that_is_hardly_wider_than_itself() {
        let mut around: Vec<u64> =
            (0..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]).collect();
        around.extend([u64::MAX - 1, u64::MAX, 300, 12_345_678]);
        for nanos in around {
            let bucket = bucket_of(nanos);
            assert!(bucket < BUCKETS, "{nanos} is in bucket {bucket} of {BUCKETS}");
            let last = last_of(bucket);
            assert!(nanos <= last && last - nanos <= nanos / STEPS, "{nanos} counts as {last}");
            assert!(bucket == 0 || last_of(bucket - 1) < nanos, "{nanos} belongs below");
        }
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_list() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(99.0), Duration::ZERO);
        (1..=1000).for_each(|micros| histogram.record(Duration::from_micros(micros)));
        for (percent, micros) in [(0.0, 1.0), (50.0, 500.0), (99.0, 990.0), (99.9, 999.0), (100.0, 1000.0)] {
            let found = histogram.percentile(percent).as_nanos() as f64 / 1000.0;
            assert!((micros..=micros * 1.008).contains(&found), "{percent} %: {found} for {micros}");
        }
        assert_eq!(histogram.mean(), Duration::from_nanos(500_500));
        assert_eq!(histogram.max(), Duration::from_millis(1));
    }

    #[test]
    fn two_together_count_what_each_counted() {
        let (mut one, mut other) = (Histogram::default(), Histogram::default());
        one.record(Duration::from_micros(10));
        other.record(Duration::from_micros(30));
        one.add(&other);
        assert_eq!(
            (one.count(), one.mean(), one.max()),
            (2, Duration::from_micros(20), Duration::from_micros(30))
        );
    }
}
