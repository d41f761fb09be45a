//! What is counted of a load, and when: from where it has settled until chance has evened out.
//!
//! A load has phases. While disks' caches fill, writes go as fast as the cable; a job that runs
//! beside it takes a while to find its share; caches of the engine grow. So time is cut into
//! batches, and what some batches in a row come to is only believed if
//!
//! 1. drives put on their media what they were given meanwhile: no cache filled or emptied; and the
//!    clean cache did not grow although it had the time to decide that,
//! 2. both halves came to the same rate, and the job beside them moved as far in each,
//! 3. requests in flight are what rate and latency come to (Little's law): no request has been
//!    stuck since before,
//! 4. the rates of the batches leave little to chance: the error of their mean is small.
//!
//! Where a phase shows (the halves differ by more than chance, or a cache is filling) everything so
//! far is thrown away; where it is chance, batches get twice as long. What is counted is what was
//! believed. A load that does not settle is counted all the same, and its report says so.

use std::time::Duration;

use wattle_rt::{Core, Instant};

use crate::board::{Board, Tally};

/// When a load counts as settled. Parts are of 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settled {
    /// Shortest batch; every batch is a multiple of it.
    pub batch: Duration,
    /// Fewest requests of a batch.
    pub requests: u64,
    /// Least time counted.
    pub at_least: Duration,
    /// Fewest requests counted.
    pub requests_at_least: u64,
    /// The error of the mean rate may be so large a part of it.
    pub error: f64,
    /// The halves may differ by so much, and caches may have filled or emptied by so much of what
    /// was written.
    pub within: f64,
    /// It is counted for so many times as long as it took to be believed, and believed still. For
    /// loads without a steady state, of which only a mean over a long time means something.
    pub times: u32,
    /// Then what there is has to do.
    pub at_most: Duration,
    /// The same, in requests.
    pub requests_at_most: u64,
}

impl Default for Settled {
    /// In virtual time: 16 batches or more of 1 ms and 250 requests, known to 0.4 %, halves and
    /// caches within 1.5 %; at most an hour or a million requests.
    fn default() -> Settled {
        Settled {
            batch: Duration::from_millis(1),
            requests: 250,
            at_least: Duration::ZERO,
            requests_at_least: 0,
            error: 0.004,
            within: 0.015,
            times: 1,
            at_most: Duration::from_secs(3600),
            requests_at_most: 1_000_000,
        }
    }
}

/// How what comes before went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ramped {
    /// How long it took.
    pub took: Duration,
    /// The length of the last window; `None` if there were none.
    pub window: Option<Duration>,
    /// Whether the load became steady; `None` if that was not asked for.
    pub steady: Option<bool>,
}

/// What is looked at besides requests.
pub trait Sight {
    /// Bytes that drives were given to write so far, and how many of them are on the media.
    fn written(&self) -> (u64, u64) {
        (0, 0)
    }

    /// Bytes that the clean cache has room for.
    fn cache_bytes(&self) -> u64 {
        0
    }

    /// Requests after which the clean cache has decided whether it grows; 0 if it does not any
    /// more.
    fn decided_after(&self) -> u64 {
        0
    }

    /// How far a job beside the load is, as a part of it; `None` if there is none, or none any
    /// more.
    fn job(&self) -> Option<f64> {
        None
    }
}

/// In real time only the processor's time is looked at.
impl Sight for Duration {}

/// Batches that are judged at first, and those that there are at most.
const FEWEST: usize = 16;
const MOST: usize = 32;
/// Times a deviation that chance does not explain.
const BEYOND_CHANCE: f64 = 3.0;
/// What a job does comes in steps: its halves may differ by so much.
const JOB_WITHIN: f64 = 0.1;

/// A moment between two batches.
struct Mark<T> {
    at: Instant,
    tally: Tally,
    seen: T,
}

/// What was believed, or had to do.
pub(crate) struct Believed<T> {
    pub ramped: Ramped,
    pub before: T,
    pub after: T,
    pub runtime: Duration,
}

/// What some batches in a row come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Settled,
    /// More of the same would do.
    Chance,
    /// It is not what it was.
    Phase,
}

impl Settled {
    /// Runs until it is settled. On return what was counted since counting began for the last time
    /// is what is to be believed.
    pub(crate) async fn run<T: Sight>(
        &self,
        core: &Core,
        board: &Board,
        depth: usize,
        observe: &impl AsyncFn() -> T,
    ) -> Believed<T> {
        let began = core.now();
        let deadline = began + self.at_most;
        let (mut batch, mut requests) = (self.batch, self.requests.max(depth as u64 / 4));
        board.count_anew(core.now());
        let mut marks = vec![self.mark(core, board, observe).await];
        // How long was counted when it was believed first.
        let mut believed_after: Option<Duration> = None;
        loop {
            let before = board.answered();
            loop {
                core.sleep(batch).await;
                if board.answered() - before >= requests || core.now() >= deadline || board.ended() {
                    break;
                }
            }
            marks.push(self.mark(core, board, observe).await);
            let late = core.now() >= deadline || board.answered() >= self.requests_at_most || board.ended();
            // What has taken as long as it may is known well enough at twice the error.
            let slack = if late { 2.0 } else { 1.0 };
            let verdict = match marks.len() > FEWEST {
                true => self.judge(&marks, depth, slack),
                false => Verdict::Chance,
            };
            let counted = marks[marks.len() - 1].at - marks[0].at;
            let is_believed =
                verdict == Verdict::Settled && counted >= *believed_after.get_or_insert(counted) * self.times;
            if is_believed || late {
                let last = marks.pop().expect("a batch has an end");
                let first = marks.swap_remove(0);
                let (took, runtime) = (first.at - began, last.at - first.at);
                let settled = Some(is_believed);
                let ramped = Ramped { took, window: Some(batch), steady: settled };
                return Believed { ramped, before: first.seen, after: last.seen, runtime };
            }
            if marks.len() - 1 < MOST {
                continue;
            }
            if verdict == Verdict::Phase {
                believed_after = None;
                board.count_anew(core.now());
                let last = marks.pop();
                marks.clear();
                marks.extend(last);
            } else {
                let mut number = 0;
                marks.retain(|_| {
                    number += 1;
                    number % 2 == 1
                });
            }
            (batch, requests) = (batch * 2, requests * 2);
        }
    }

    async fn mark<T>(&self, core: &Core, board: &Board, observe: &impl AsyncFn() -> T) -> Mark<T> {
        let seen = observe().await;
        Mark { at: core.now(), tally: board.tally(), seen }
    }

    fn judge<T: Sight>(&self, marks: &[Mark<T>], depth: usize, slack: f64) -> Verdict {
        let batches = marks.len() - 1;
        let (first, middle, last) = (&marks[0], &marks[batches / 2], &marks[batches]);
        let rate = |from: &Mark<T>, to: &Mark<T>| {
            (to.tally.answered - from.tally.answered) as f64 / (to.at - from.at).as_secs_f64()
        };
        let mean = rate(first, last);
        if mean <= 0.0 {
            return Verdict::Chance;
        }
        let rates: Vec<f64> = marks.windows(2).map(|pair| rate(&pair[0], &pair[1])).collect();
        let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (batches - 1) as f64;
        let error = (variance / batches as f64).sqrt() / mean;
        let apart = (rate(first, middle) - rate(middle, last)).abs() / mean;
        let filled = |from: &Mark<T>, to: &Mark<T>| {
            let ((written, landed), (written_before, landed_before)) =
                (to.seen.written(), from.seen.written());
            let written = written - written_before;
            let landed = landed.saturating_sub(landed_before);
            written.abs_diff(landed) as f64 / written.max(1) as f64
        };
        // What differs by chance differs by twice the error.
        let differs = apart > self.within.max(2.0 * BEYOND_CHANCE * error);
        let fills = filled(first, last) > self.within;
        let job = job(first.seen.job(), middle.seen.job(), last.seen.job());
        let time = (last.at - first.at).as_secs_f64();
        let in_flight = (last.tally.took - first.tally.took).as_secs_f64() / time;
        let little = (in_flight / depth as f64 - 1.0).abs();
        let even = apart <= self.within && error <= slack * self.error && little <= self.within;
        let grew = first.seen.cache_bytes() != last.seen.cache_bytes();
        if differs || fills || grew || job == Verdict::Phase {
            return Verdict::Phase;
        }
        let is_long = last.at - first.at >= self.at_least
            && last.tally.answered - first.tally.answered
                >= self.requests_at_least.max(last.seen.decided_after());
        match even && job == Verdict::Settled && is_long {
            true => Verdict::Settled,
            false => Verdict::Chance,
        }
    }
}

/// Whether a job moved as far in one half as in the other.
fn job(first: Option<f64>, middle: Option<f64>, last: Option<f64>) -> Verdict {
    let (first, middle, last) = match (first, middle, last) {
        (Some(first), Some(middle), Some(last)) => (first, middle, last),
        // It began in between.
        (_, _, Some(_)) => return Verdict::Phase,
        _ => return Verdict::Settled,
    };
    let (one, other) = (middle - first, last - middle);
    if one <= 0.0 || other <= 0.0 {
        return Verdict::Chance;
    }
    match (one / other - 1.0).abs() <= JOB_WITHIN {
        true => Verdict::Settled,
        false => Verdict::Chance,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Seen(u64, u64, Option<f64>);

    impl Sight for Seen {
        fn written(&self) -> (u64, u64) {
            (self.0, self.1)
        }

        fn job(&self) -> Option<f64> {
            self.2
        }
    }

    /// Batches of 100 ms with eight requests in flight: how many were answered in each, and what
    /// was seen at the end of it.
    fn judged(answered: impl Fn(u64) -> u64, seen: impl Fn(u64) -> Seen, in_flight: u64) -> Verdict {
        let (mut sum, mut marks) = (0, Vec::new());
        for number in 0..=20 {
            let tally = Tally { answered: sum, took: Duration::from_millis(100 * number * in_flight) };
            let at = Instant::from_nanos(1 + 100_000_000 * number);
            marks.push(Mark { at, tally, seen: seen(number) });
            sum += answered(number);
        }
        Settled::default().judge(&marks, 8, 1.0)
    }

    fn none(_: u64) -> Seen {
        Seen(0, 0, None)
    }

    #[test]
    fn an_even_rate_is_believed_and_one_that_falls_is_not() {
        assert_eq!(judged(|_| 1000, none, 8), Verdict::Settled);
        assert_eq!(judged(|number| if number < 10 { 1000 } else { 700 }, none, 8), Verdict::Phase);
        let uneven = |number| if number % 2 == 0 { 900 } else { 1100 };
        assert_eq!(judged(uneven, none, 8), Verdict::Chance);
    }

    #[test]
    fn what_a_cache_takes_in_is_not_believed() {
        let fills = |number| Seen(number * 1000, number * 900, None);
        let even = |number| Seen(number * 1000, number * 999, None);
        assert_eq!(judged(|_| 1000, fills, 8), Verdict::Phase);
        assert_eq!(judged(|_| 1000, even, 8), Verdict::Settled);
    }

    #[test]
    fn requests_that_are_stuck_are_waited_for() {
        assert_eq!(judged(|_| 1000, none, 4), Verdict::Chance);
    }

    #[test]
    fn a_job_has_to_move() {
        assert_eq!(judged(|_| 1000, |_| Seen(0, 0, Some(0.25)), 8), Verdict::Chance);
        assert_eq!(judged(|_| 1000, |number| Seen(0, 0, Some(number as f64)), 8), Verdict::Settled);
    }
}
