//! What comes before anything is counted: a load runs until it is steady.
//!
//! Time is cut into windows. A load is steady when the rates of some windows in a row hardly
//! differ; if they go on differing, windows get longer, because what comes and goes evens out over
//! a longer time. A load that does not get there is counted all the same, and its report says so.

use std::collections::VecDeque;
use std::time::Duration;

use wattle_rt::{Core, Instant};

use crate::board::Board;
use crate::settle::{Ramped, Settled};

/// What comes before anything is counted.
#[derive(Clone, Copy, Debug)]
pub enum Ramp {
    /// So long, whatever happens.
    For(Duration),
    /// Until it is steady.
    UntilSteady(Steady),
    /// Until it has settled, and what is counted is what showed that, if no time is given.
    UntilSettled(Settled),
}

impl Default for Ramp {
    fn default() -> Ramp {
        Ramp::UntilSteady(Steady::default())
    }
}

/// When a load counts as steady.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// Shortest window; every window is a multiple of it.
    pub window: Duration,
    /// Fewest requests of a window.
    pub requests: u64,
    /// So many windows in a row are compared.
    pub windows: usize,
    /// The fastest may be so much faster than the slowest: 0.01 is 1 %.
    pub within: f64,
    /// Then counting begins, steady or not.
    pub at_most: Duration,
    /// The same, in requests.
    pub requests_at_most: u64,
}

impl Default for Steady {
    /// In virtual time: three windows of 10 ms and 2000 requests or more, within 1.5 %; at most an
    /// hour or a million requests.
    fn default() -> Steady {
        Steady {
            window: Duration::from_millis(10),
            requests: 2000,
            windows: 3,
            within: 0.015,
            at_most: Duration::from_secs(3600),
            requests_at_most: 1_000_000,
        }
    }
}

/// Windows of one length; if none are steady among these, they get twice as long.
const TRIES: usize = 8;

impl Steady {
    pub(crate) async fn run(&self, core: &Core, board: &Board) -> Ramped {
        let (began, steady) = (core.now(), self);
        let deadline = began + steady.at_most;
        let mut shortest = Shortest { time: steady.window, requests: steady.requests };
        let (mut rates, mut tried) = (VecDeque::new(), 0);
        loop {
            let Window { length, rate } = window(core, board, shortest, deadline).await;
            rates.push_back(rate);
            if rates.len() > steady.windows {
                rates.pop_front();
            }
            let agreed = rates.len() == steady.windows && agree(&rates, steady.within);
            let late = core.now() >= deadline || board.answered() >= steady.requests_at_most;
            if agreed || late || board.ended() {
                let took = core.now() - began;
                return Ramped { took, window: Some(length), steady: Some(agreed) };
            }
            tried += 1;
            if tried == TRIES {
                shortest = Shortest { time: shortest.time * 2, requests: shortest.requests * 2 };
                tried = 0;
                rates.clear();
            }
        }
    }
}

/// How long it takes until there is something to tell, without any ramp.
pub(crate) async fn one_window(core: &Core, board: &Board) -> Duration {
    let steady = Steady::default();
    let shortest = Shortest { time: steady.window, requests: steady.requests };
    window(core, board, shortest, core.now() + steady.at_most).await.length
}

/// Where a window may end.
#[derive(Clone, Copy)]
struct Shortest {
    time: Duration,
    requests: u64,
}

struct Window {
    length: Duration,
    /// Requests per second.
    rate: f64,
}

async fn window(core: &Core, board: &Board, shortest: Shortest, deadline: Instant) -> Window {
    let (began, before) = (core.now(), board.answered());
    loop {
        core.sleep(shortest.time).await;
        let (length, answered) = (core.now() - began, board.answered() - before);
        if answered >= shortest.requests || core.now() >= deadline || board.ended() {
            return Window { length, rate: answered as f64 / length.as_secs_f64() };
        }
    }
}

fn agree(rates: &VecDeque<f64>, within: f64) -> bool {
    let fastest = rates.iter().copied().fold(0.0, f64::max);
    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    fastest <= slowest * (1.0 + within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_agree_within_the_bound_only() {
        assert!(agree(&VecDeque::from([100.0, 101.0, 100.5]), 0.015));
        assert!(!agree(&VecDeque::from([100.0, 102.0, 100.5]), 0.015));
        assert!(!agree(&VecDeque::from([0.0, 1.0]), 0.015));
    }
}
