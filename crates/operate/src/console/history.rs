//! An hour of what arrays did, and the last two minutes of it in detail: bounded rings.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::rates::ArrayRates;

/// Points of the last minutes: one each poll while the page is open.
const RECENT_MAX: usize = 240;

/// Points of an hour.
const HOUR_MAX: usize = 720;

/// Between two points of the hour.
const HOUR_STEP_MS: u64 = 5_000;

/// Arrays whose history is kept.
const ARRAYS_MAX: usize = 64;

/// What an array did until a moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HistoryPoint {
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// Until then, since the point before.
    #[serde(flatten)]
    pub rates: ArrayRates,
}

/// One array's.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ArrayHistory {
    /// Each poll of the last minutes.
    pub recent: VecDeque<HistoryPoint>,
    /// Every five seconds of an hour.
    pub hour: VecDeque<HistoryPoint>,
    #[serde(skip)]
    unfinished: Option<Unfinished>,
}

#[derive(Debug, Clone, Copy)]
struct Unfinished {
    since_ms: u64,
    count: u32,
    sum: ArrayRates,
}

/// All arrays', by their key.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub struct RateHistory(BTreeMap<String, ArrayHistory>);

impl RateHistory {
    /// Adds a point. Of more arrays than are kept, the later ones have no history.
    pub fn add(&mut self, array: &str, point: HistoryPoint) {
        if !self.0.contains_key(array) && self.0.len() >= ARRAYS_MAX {
            return;
        }
        self.0.entry(array.to_owned()).or_default().add(point);
    }

    /// Forgets arrays that are not served any more.
    pub fn keep(&mut self, is_served: impl Fn(&str) -> bool) {
        self.0.retain(|array, _| is_served(array));
    }

    #[cfg(test)]
    fn of(&self, array: &str) -> Option<&ArrayHistory> {
        self.0.get(array)
    }
}

impl ArrayHistory {
    fn add(&mut self, point: HistoryPoint) {
        push(&mut self.recent, point, RECENT_MAX);
        let unfinished = self.unfinished.get_or_insert(Unfinished {
            since_ms: point.at_ms,
            count: 0,
            sum: ArrayRates::default(),
        });
        unfinished.count += 1;
        unfinished.sum = unfinished.sum.with(point.rates);
        if point.at_ms.saturating_sub(unfinished.since_ms) >= HOUR_STEP_MS {
            let rates = unfinished.sum.mean_of(unfinished.count);
            push(&mut self.hour, HistoryPoint { at_ms: point.at_ms, rates }, HOUR_MAX);
            self.unfinished = None;
        }
    }
}

fn push(points: &mut VecDeque<HistoryPoint>, point: HistoryPoint, max: usize) {
    if points.len() == max {
        points.pop_front();
    }
    points.push_back(point);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at_ms: u64, read: u64, p99_us: u64) -> HistoryPoint {
        let rates = ArrayRates { read_bytes: read, read_p99_us: p99_us, ..ArrayRates::default() };
        HistoryPoint { at_ms, rates }
    }

    #[test]
    fn an_hour_and_two_minutes_are_kept_and_no_more() {
        let mut history = RateHistory::default();
        (0..20_000).for_each(|n| history.add("a", point(n * 500, n, 1)));
        let kept = history.of("a").unwrap();
        assert_eq!((kept.recent.len(), kept.hour.len()), (RECENT_MAX, HOUR_MAX));
        let hour = &kept.hour;
        assert!(hour[HOUR_MAX - 1].at_ms - hour[0].at_ms >= 3_500_000, "an hour");
    }

    #[test]
    fn a_point_of_the_hour_is_the_mean_and_the_worst_latency_of_its_time() {
        let mut history = RateHistory::default();
        for (n, read) in [10, 20, 30].into_iter().enumerate() {
            history.add("a", point(n as u64 * 2_500, read, read));
        }
        let hour = &history.of("a").unwrap().hour;
        assert_eq!((hour.len(), hour[0].rates.read_bytes, hour[0].rates.read_p99_us), (1, 20, 30));
    }

    #[test]
    fn arrays_are_bounded_and_forgotten() {
        let mut history = RateHistory::default();
        (0..ARRAYS_MAX + 9).for_each(|n| history.add(&n.to_string(), point(0, 1, 1)));
        assert_eq!(history.0.len(), ARRAYS_MAX);
        history.keep(|array| array == "3");
        assert!(history.of("3").is_some() && history.of("4").is_none());
    }
}
