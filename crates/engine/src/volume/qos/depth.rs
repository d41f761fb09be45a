//! How many requests of volumes without a goal may be under way while a volume with one is used:
//! fewer after requests that were answered too late, slowly more while they come in time.
//!
//! The depth is in thousandths of a request. Below one request it is a share of the time: a request
//! that took as long as this is followed by a pause, so that the drive is free in between.

use std::time::Duration;

/// Thousandths of a request.
pub(super) const ONE: u64 = 1000;
/// The least: one request in 64 times as long as it takes.
const LEAST: u64 = ONE / 64;

/// So many are looked at before more is tried.
const WINDOW: u32 = 200;
/// Of these so many may be late.
const LATE: u32 = 2;

/// What comes of a window of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Too many were late.
    Fewer,
    /// As good as none were late.
    More,
}

/// The requests of one volume with a goal on one core.
#[derive(Debug, Default)]
pub(super) struct Window {
    requests: u32,
    late: u32,
    /// What began before this says nothing of the present depth.
    since: u64,
}

impl Window {
    /// A request that began then took so long.
    pub fn answered(&mut self, began: u64, now: u64, goal: u64) -> Option<Verdict> {
        if began < self.since {
            return None;
        }
        self.requests += 1;
        self.late += u32::from(now - began.min(now) > goal);
        let verdict = match (self.late, self.requests) {
            (late, _) if late > LATE => Some(Verdict::Fewer),
            (late, WINDOW..) if late <= LATE / 2 => Some(Verdict::More),
            (_, WINDOW..) => None,
            _ => return None,
        };
        *self =
            Self { since: if verdict == Some(Verdict::Fewer) { now } else { self.since }, ..Self::default() };
        verdict
    }
}

/// The depth after a verdict; `most` is the depth without goals.
pub(super) fn after(depth: u64, verdict: Verdict, most: u64) -> u64 {
    match verdict {
        Verdict::Fewer => (depth / 2).max(LEAST),
        Verdict::More => (depth + (depth / 8).max(LEAST)).min(most),
    }
}

/// How long nothing follows a request that took so long.
pub(super) fn pause(depth: u64, took: Duration) -> Duration {
    if depth >= ONE {
        return Duration::ZERO;
    }
    let took = took.as_nanos();
    let pause = took * u128::from(ONE - depth) / u128::from(depth.max(1));
    Duration::from_nanos(u64::try_from(pause).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_late_ones_are_too_many_and_one_of_two_hundred_is_not() {
        let mut window = Window::default();
        let verdicts: Vec<_> = (0..3).map(|at| window.answered(at, at + 11, 10)).collect();
        assert_eq!(verdicts, [None, None, Some(Verdict::Fewer)]);
        assert_eq!(window.answered(5, 40, 10), None, "it began at the old depth");
        assert_eq!(window.requests, 0);
        for at in 0..199 {
            let took = if at == 7 { 11 } else { 10 };
            assert_eq!(window.answered(100 + at, 100 + at + took, 10), None);
        }
        assert_eq!(window.answered(400, 410, 10), Some(Verdict::More));
        for at in 0..200 {
            let took = if at < 2 { 11 } else { 10 };
            assert_eq!(window.answered(1000 + at, 1000 + at + took, 10), None, "as it should be");
        }
    }

    #[test]
    fn the_depth_halves_and_grows_by_an_eighth_within_its_bounds() {
        let most = 64 * ONE;
        assert_eq!(after(most, Verdict::More, most), most);
        assert_eq!(after(most, Verdict::Fewer, most), 32 * ONE);
        assert_eq!(after(32 * ONE, Verdict::More, most), 36 * ONE);
        assert_eq!(after(LEAST, Verdict::Fewer, most), LEAST);
        assert_eq!(after(LEAST, Verdict::More, most), 2 * LEAST);
    }

    #[test]
    fn below_one_a_request_is_followed_by_a_pause() {
        let took = Duration::from_millis(8);
        assert_eq!(pause(ONE, took), Duration::ZERO);
        assert_eq!(pause(ONE / 2, took), took);
        assert_eq!(pause(ONE / 4, took), 3 * took);
    }
}
