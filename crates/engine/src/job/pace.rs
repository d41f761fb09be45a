//! How fast a job goes.
//!
//! Alone it keeps a full window in flight. Beside clients its steps are small, and just as many of
//! them are in flight as bring it to its share of what it reached alone: so a request of a client
//! waits for little, and the job still ends.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use wattle_rt::Instant;

use super::share::{Clients, Decided, Goal, Share, ShareDecision};
use super::{JobTuning, LimitedBy, Pace};
use crate::model::units::MemberIx;

/// Clients count as active for this long after a request.
const ACTIVE: Duration = Duration::from_millis(100);
/// A job begins with so many steps one by one, small and large in turn: what the large ones take
/// longer tells how fast the members are, whatever latency and clients add to both. By the time
/// they are done it is known whether there are clients.
const PROBES: usize = 6;
const PROBE_SMALL_BYTES: u64 = 64 << 10;
const PROBE_LARGE_BYTES: u64 = 1 << 20;
/// What the rate beside clients is steered by.
const SHORT: Duration = Duration::from_millis(60);
/// What is shown.
const LONG: Duration = Duration::from_secs(3);
/// How often the number of steps in flight is adjusted.
const ADJUST: Duration = Duration::from_millis(20);

pub(super) struct Throttle {
    started: Instant,
    probes: Probes,
    share: Share,
    active_until: Instant,
    /// Bytes done and when, the last [`LONG`].
    done: VecDeque<(Instant, u64)>,
    /// The best rate that was reached alone.
    best: u64,
    /// Steps in flight beside clients.
    steps: u64,
    adjusted: Instant,
    next_launch: Instant,
    pub limited_by: LimitedBy,
}

impl Throttle {
    pub fn new(now: Instant) -> Self {
        Self {
            started: now,
            probes: Probes::default(),
            share: Share::new(now),
            active_until: now,
            done: VecDeque::new(),
            best: 0,
            // They start one by one as the share has it, so this is only how many may be late
            // together.
            steps: 12,
            adjusted: now,
            next_launch: now,
            limited_by: LimitedBy::Nothing,
        }
    }

    /// Takes note of what a core has seen of clients.
    pub fn saw_clients(&mut self, now: Instant, core: usize, clients: Clients) {
        if self.share.saw(now, core, clients) {
            self.active_until = now + ACTIVE;
        }
    }

    /// What is steered towards.
    pub fn set_goal(&mut self, now: Instant, goal: Goal) {
        self.share.set_goal(now, goal);
    }

    /// What was decided, the latest last.
    pub fn decisions(&self) -> impl Iterator<Item = ShareDecision> {
        self.share.decisions()
    }

    /// A step is done; `busy` is how long each member's operations took.
    pub fn completed(&mut self, now: Instant, bytes: u64, busy: &BTreeMap<MemberIx, Duration>) {
        if self.probes.done < PROBES {
            self.probes.add(bytes, busy);
            if self.probes.done == PROBES {
                self.best = self.best.max(self.probes.bytes_per_second());
                self.share.decide(now, Decided::Speed { bytes_per_second: self.best });
            }
        }
        self.done.push_back((now, bytes));
        while self.done.front().is_some_and(|(at, _)| now - *at > LONG) {
            self.done.pop_front();
        }
    }

    /// Bytes per second over the last `over`.
    fn rate(&self, now: Instant, over: Duration) -> u64 {
        let over = over.min(now - self.started);
        if over.is_zero() {
            return 0;
        }
        let since = |(at, _): &&(Instant, u64)| now - *at <= over;
        let bytes: u64 = self.done.iter().rev().take_while(since).map(|(_, bytes)| bytes).sum();
        (u128::from(bytes) * 1_000_000_000 / over.as_nanos()) as u64
    }

    /// What is shown as the speed.
    pub fn speed(&self, now: Instant) -> u64 {
        self.rate(now, LONG)
    }

    fn beside_clients(&self, now: Instant) -> bool {
        now < self.active_until
    }

    /// Most bytes of a member in one step.
    pub fn step_bytes(&self, now: Instant, tuning: &JobTuning) -> u64 {
        if self.probes.done < PROBES {
            return tuning.step_bytes.min(if self.probes.done.is_multiple_of(2) {
                PROBE_SMALL_BYTES
            } else {
                PROBE_LARGE_BYTES
            });
        }
        match self.beside_clients(now) {
            true => tuning.step_beside_clients_bytes.min(tuning.step_bytes),
            false => tuning.step_bytes,
        }
    }

    /// Most bytes of a member in flight; at least one step always may be.
    pub fn window_bytes(&mut self, now: Instant, tuning: &JobTuning, pace: Pace) -> u64 {
        let step = self.step_bytes(now, tuning);
        if self.probes.done < PROBES {
            return step;
        }
        if !self.beside_clients(now) {
            if now - self.started >= SHORT && now - self.active_until >= SHORT {
                self.best = self.best.max(self.rate(now, SHORT));
            }
            // No more than takes members part of a second: what waits in the window itself is not
            // late.
            return tuning.window_bytes.min((self.best / 4).max(step));
        }
        if now - self.adjusted >= ADJUST {
            self.adjusted = now;
            self.share.judge(now);
            let rate = self.rate(now, SHORT);
            let (least, most) = self.share(pace);
            if rate < least {
                // Far from it, by more at once.
                let more = if rate < least / 4 * 3 { self.steps / 2 } else { 0 };
                self.steps = (self.steps + more + 1).min((tuning.window_bytes / step).max(1));
            } else if rate > most {
                self.steps = (self.steps - 1).max(1);
            }
        }
        self.steps * step
    }

    /// The rate that is aimed at beside clients.
    fn share(&self, pace: Pace) -> (u64, u64) {
        let (least, most) = self.share.of(self.best);
        let least = least.max(pace.min_bytes_per_second);
        (least, most.max(least))
    }

    /// When the next step may start.
    pub fn next_launch(&mut self, now: Instant) -> Option<Instant> {
        if self.limited_by == LimitedBy::Foreground && !self.beside_clients(now) {
            // The clients that it made way for are gone.
            self.next_launch = now;
        }
        (self.next_launch > now).then_some(self.next_launch)
    }

    /// A step starts.
    pub fn launched(&mut self, now: Instant, bytes: u64, pace: Pace) {
        // Steps that asked no member for anything tell no speed to have a share of, and are in
        // no client's way.
        let shares = self.best > 0 && self.beside_clients(now) && self.probes.done == PROBES;
        let (limit, why) = match shares {
            true if self.share(pace).1 < pace.max_bytes_per_second => {
                (self.share(pace).1, LimitedBy::Foreground)
            }
            _ => (pace.max_bytes_per_second, LimitedBy::SpeedMax),
        };
        if limit == u64::MAX {
            self.next_launch = now;
            self.limited_by = LimitedBy::Nothing;
            return;
        }
        let time = u128::from(bytes) * 1_000_000_000 / u128::from(limit.max(1));
        let time = Duration::from_nanos(u64::try_from(time).unwrap_or(u64::MAX));
        // Time that was not used a while ago is not made up for; beside clients none is: steps that
        // come together are waited for.
        let slack = if why == LimitedBy::Foreground { 0 } else { 20_000_000 };
        let from = self.next_launch.max(Instant::from_nanos(now.as_nanos().saturating_sub(slack)));
        self.next_launch = from + time;
        self.limited_by = if self.next_launch > now { why } else { LimitedBy::Nothing };
    }
}

/// What the first steps, which were alone in flight, took.
#[derive(Debug, Default)]
struct Probes {
    done: usize,
    /// Bytes of the small and of the large ones.
    bytes: [u64; 2],
    busy: BTreeMap<MemberIx, [Duration; 2]>,
}

impl Probes {
    fn add(&mut self, bytes: u64, busy: &BTreeMap<MemberIx, Duration>) {
        let kind = self.done % 2;
        self.done += 1;
        self.bytes[kind] += bytes;
        for (member, time) in busy {
            self.busy.entry(*member).or_default()[kind] += *time;
        }
    }

    /// The rate of the slowest member; 0 if nothing can be told.
    fn bytes_per_second(&self) -> u64 {
        let rate = |bytes: u64, times: &dyn Fn(&[Duration; 2]) -> Duration| {
            let longest = self.busy.values().map(times).max().unwrap_or_default();
            let bytes = u128::from(bytes) * 1_000_000_000;
            if longest.is_zero() { 0 } else { (bytes / longest.as_nanos()) as u64 }
        };
        let [small, large] = self.bytes;
        // Without what is taken off, at least this. Clients may have come or gone in between, so it
        // is not believed to be much more.
        let least = rate(large, &|[_, large]| *large);
        rate(large.saturating_sub(small), &|[small, large]| large.saturating_sub(*small))
            .clamp(least, least / 4 * 5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNLIMITED: Pace = Pace { min_bytes_per_second: 0, max_bytes_per_second: u64::MAX };

    /// A job after its first steps, in which the members took `busy` each, with a client that was
    /// just seen.
    fn beside_a_client(busy: Duration) -> (Throttle, Instant) {
        let now = Instant::from_nanos(1_000_000);
        let mut throttle = Throttle::new(now);
        let clients = |requests| Clients { requests, ..Clients::default() };
        (0..2).for_each(|requests| throttle.saw_clients(now, 0, clients(requests)));
        let busy: BTreeMap<MemberIx, Duration> =
            Some((MemberIx(0), busy)).into_iter().filter(|(_, busy)| !busy.is_zero()).collect();
        (0..PROBES).for_each(|_| throttle.completed(now, PROBE_LARGE_BYTES, &busy));
        (throttle, now)
    }

    #[test]
    fn steps_that_asked_no_member_wait_for_nobody() {
        let (mut throttle, now) = beside_a_client(Duration::ZERO);
        throttle.launched(now, PROBE_SMALL_BYTES, UNLIMITED);
        assert_eq!(throttle.next_launch(now), None);
    }

    #[test]
    fn who_made_way_for_clients_goes_on_when_they_are_gone() {
        let (mut throttle, now) = beside_a_client(Duration::from_secs(1));
        throttle.launched(now, PROBE_LARGE_BYTES, UNLIMITED);
        assert!(throttle.next_launch(now + ACTIVE / 2).is_some_and(|at| at > now + ACTIVE));
        assert_eq!(throttle.next_launch(now + ACTIVE), None);
    }
}
