//! How much of the members' speed a job takes beside clients, and how that is steered to a goal.
//!
//! Towards a time for clients' requests the part grows slowly while enough of them are answered
//! within it, and is cut at once when they are not. Where it was cut is remembered, and approached
//! again in small steps only: a load whose answers become late all at once would otherwise be
//! pushed over that edge every other moment. What is late comes in bursts, so it is judged by its
//! mean over a second.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use wattle_rt::Instant;

use crate::state::StateShard;

/// What is steered towards while a job runs beside clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Goal {
    /// The job and the clients get on: it takes a third of what it reaches alone.
    #[default]
    Throughput,
    /// Clients come first: it takes a tenth.
    Latency,
    /// It takes as much as lets 99 of 100 reads and writes be answered within this time.
    Within(Duration),
}

impl Goal {
    /// Requests that take longer are late.
    pub(crate) fn late_after(self) -> Duration {
        match self {
            Self::Within(time) => time,
            Self::Throughput | Self::Latency => Duration::MAX,
        }
    }
}

/// Something that was decided about the speed of a job, and what it was decided from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareDecision {
    /// When.
    pub at: Instant,
    /// What.
    pub what: Decided,
}

/// See [`ShareDecision`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decided {
    /// The first steps told what the members can do, in bytes per second of each.
    Speed {
        /// That is it.
        bytes_per_second: u64,
    },
    /// Beside clients another part of that is aimed at, in thousandths.
    Share {
        /// The part before.
        from: u64,
        /// The part from then on.
        to: u64,
        /// Of so many requests ...
        requests: u64,
        /// ... so many were late.
        late: u64,
    },
}

/// How many decisions are remembered.
pub(super) const DECISIONS_MAX: usize = 64;

/// Requests of clients that one core has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Clients {
    /// Requests that came in.
    pub requests: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Requests that were answered late.
    pub late: u64,
}

impl Clients {
    /// What a core has seen so far.
    pub fn of(state: &StateShard) -> Self {
        let (answered, late) = state.requests.answered();
        Self { requests: state.counters.reads.get() + state.counters.writes.get(), answered, late }
    }
}

impl Clients {
    /// A core that lets go of the array has seen nothing any more.
    fn since(&self, before: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            answered: self.answered.saturating_sub(before.answered),
            late: self.late.saturating_sub(before.late),
        }
    }
}

/// The parts that are aimed at where nothing is measured, in thousandths; what is aimed at ends by
/// so much higher.
const THROUGHPUT: u64 = 330;
const LATENCY: u64 = 100;
const SPREAD: u64 = 20;
/// A steered part stays within these.
const LEAST: u64 = 5;
const MOST: u64 = 980;
/// It is judged after so many answers, or so long with fewer.
const ANSWERS: u64 = 1000;
const ANSWERS_MIN: u64 = 20;
const JUDGE_AFTER: Duration = Duration::from_millis(50);
const JUDGE_AT_LAST: Duration = Duration::from_secs(1);
/// So many of a million answers may be late: a little less than is allowed, as what is tried goes
/// wrong now and then.
const LATE_PPM: u64 = 8_500;
/// Answers that were late before that do not count any more.
const MEMORY_MILLIS: u64 = 1000;
const CUT_EVERY: Duration = Duration::from_millis(250);
/// A change by less than a tenth is not reported.
const REPORTED_MIN_PERCENT: u64 = 10;

/// The part, and what it is steered by.
pub(super) struct Share {
    goal: Goal,
    /// In thousandths.
    part: u64,
    /// What the part was when answers became late.
    edge: u64,
    /// They were late all at once there.
    steep: bool,
    /// By core.
    seen: BTreeMap<usize, Clients>,
    judged: (Instant, Clients),
    /// So many of a million answers were late, of late.
    late_ppm: u64,
    /// When the part was cut.
    cut: Instant,
    /// Counted since the last decision was reported.
    reported: (u64, Clients),
    decisions: VecDeque<ShareDecision>,
}

impl Share {
    pub fn new(now: Instant) -> Self {
        Self {
            goal: Goal::Throughput,
            part: THROUGHPUT,
            edge: MOST,
            steep: false,
            seen: BTreeMap::new(),
            judged: (now, Clients::default()),
            late_ppm: 0,
            cut: now,
            reported: (THROUGHPUT, Clients::default()),
            decisions: VecDeque::new(),
        }
    }

    /// What is aimed at from now on.
    pub fn set_goal(&mut self, now: Instant, goal: Goal) {
        if goal == self.goal {
            return;
        }
        self.goal = goal;
        (self.edge, self.steep, self.late_ppm) = (MOST, false, 0);
        let part = match goal {
            Goal::Throughput => THROUGHPUT,
            // It begins low: a goal for the time of requests holds while the part is found out,
            // too.
            Goal::Latency | Goal::Within(_) => LATENCY,
        };
        let all = self.all();
        self.judged = (now, all);
        self.reported.1 = all;
        self.set(now, part);
    }

    /// Takes note of what a core has seen; whether clients came since it was asked before.
    pub fn saw(&mut self, now: Instant, core: usize, clients: Clients) -> bool {
        let before = self.seen.insert(core, clients);
        match before {
            None => {
                // What was answered before the job began says nothing of it.
                let all = self.all();
                self.judged = (now, all);
                self.reported.1 = all;
                false
            }
            Some(before) => before.requests < clients.requests,
        }
    }

    /// At least and at most so much of `best` is aimed at.
    pub fn of(&self, best: u64) -> (u64, u64) {
        let part = |thousandths: u64| (u128::from(best) * u128::from(thousandths) / 1000) as u64;
        (part(self.part), part(self.part + SPREAD.min(self.part / 10)))
    }

    /// Steers by what was answered since it was judged before.
    pub fn judge(&mut self, now: Instant) {
        let Goal::Within(_) = self.goal else { return };
        let (all, (at, before)) = (self.all(), self.judged);
        let Clients { answered, late, .. } = all.since(&before);
        let enough = (answered >= ANSWERS && now - at >= JUDGE_AFTER)
            || (answered >= ANSWERS_MIN && now - at >= JUDGE_AT_LAST);
        if !enough {
            return;
        }
        self.judged = (now, all);
        let late_ppm = late * 1_000_000 / answered;
        let weight = u64::try_from((now - at).as_millis()).unwrap_or(u64::MAX).min(MEMORY_MILLIS);
        self.late_ppm = (self.late_ppm * (MEMORY_MILLIS - weight) + late_ppm * weight) / MEMORY_MILLIS;
        // A burst is borne if it was quiet before, and what was cut has a while to show: unless far
        // too many are late.
        let due = late_ppm > 3 * LATE_PPM || (late_ppm > LATE_PPM && now - self.cut >= CUT_EVERY);
        let part = if self.late_ppm > LATE_PPM && due {
            // By a hundredth where it is just over, by a tenth where twice as many are late as may
            // be.
            let over = ((self.late_ppm - LATE_PPM) * 1000 / LATE_PPM).clamp(100, 1000);
            (self.edge, self.steep, self.cut) = (self.part, late_ppm > 10 * LATE_PPM, now);
            // Answers that were late before a cut are no reason for another one.
            self.late_ppm = LATE_PPM;
            self.part * 10_000 / (10_000 + over)
        } else if self.late_ppm > LATE_PPM {
            self.part
        } else if self.part < self.edge * 9 / 10 {
            self.part + (self.part / 12).max(2)
        } else {
            self.edge = self.edge.max(self.part + 1);
            let slowly = if self.steep { 400 } else { 20 };
            self.part + (self.part * (LATE_PPM - self.late_ppm) / LATE_PPM / slowly).max(1)
        };
        self.set(now, part.clamp(LEAST, MOST));
    }

    fn set(&mut self, now: Instant, part: u64) {
        self.part = part;
        let ((from, before), all) = (self.reported, self.all());
        if from.abs_diff(part) * 100 < from * REPORTED_MIN_PERCENT {
            return;
        }
        self.reported = (part, all);
        let Clients { answered: requests, late, .. } = all.since(&before);
        self.decide(now, Decided::Share { from, to: part, requests, late });
    }

    pub fn decide(&mut self, at: Instant, what: Decided) {
        if self.decisions.len() == DECISIONS_MAX {
            self.decisions.pop_front();
        }
        self.decisions.push_back(ShareDecision { at, what });
    }

    /// What was decided, the latest last.
    pub fn decisions(&self) -> impl Iterator<Item = ShareDecision> {
        self.decisions.iter().copied()
    }

    fn all(&self) -> Clients {
        self.seen.values().fold(Clients::default(), |sum, core| Clients {
            requests: sum.requests + core.requests,
            answered: sum.answered + core.answered,
            late: sum.late + core.late,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A job beside clients of whose requests `late` of 10,000 are late at a part, every tenth of a
    /// second for `seconds`. Returns the mean part of the second half, too.
    fn steered(late: impl Fn(u64) -> u64, seconds: u64) -> (Share, u64, u64, u64) {
        let mut now = Instant::from_nanos(SECOND);
        let mut share = Share::new(now);
        let mut clients = Clients { requests: 1, answered: 5_000, late: 5_000 };
        assert!(!share.saw(now, 0, clients));
        share.set_goal(now, Goal::Within(Duration::from_millis(1)));
        let (mut answered, mut lates, mut parts) = (0, 0, 0);
        for tick in 0..seconds * 10 {
            now += Duration::from_millis(100);
            let more = late(share.part);
            clients.requests += 10_000;
            clients.answered += 10_000;
            clients.late += more;
            (answered, lates) = (answered + 10_000, lates + more);
            assert!(share.saw(now, 0, clients));
            share.judge(now);
            parts += if tick >= seconds * 5 { share.part } else { 0 };
        }
        (share, answered, lates, parts / (seconds * 5))
    }

    #[test]
    fn it_takes_what_clients_do_not_notice() {
        let (share, ..) = steered(|_| 0, 20);
        assert_eq!(share.part, MOST);
        let (share, ..) = steered(|_| 5_000, 20);
        assert_eq!(share.part, LEAST);
    }

    /// Answers are late a little more often with every part, or all at once.
    #[test]
    fn it_comes_close_to_what_clients_bear_and_few_are_late() {
        let gently = |part: u64| part / 4;
        let at_once = |part: u64| if part > 400 { 3_000 } else { 0 };
        for late in [&gently as &dyn Fn(u64) -> u64, &at_once] {
            let (_, answered, lates, part) = steered(late, 120);
            assert!((330..=400).contains(&part), "{part}");
            assert!(lates * 100 <= answered, "{lates} of {answered}");
        }
    }

    #[test]
    fn few_answers_are_waited_for() {
        let mut now = Instant::from_nanos(SECOND);
        let mut share = Share::new(now);
        share.saw(now, 0, Clients::default());
        share.set_goal(now, Goal::Within(Duration::from_millis(1)));
        let before = share.part;
        for tick in 1..=30 {
            now += Duration::from_millis(50);
            share.saw(now, 0, Clients { requests: tick, answered: tick, late: tick });
            share.judge(now);
            assert_eq!(share.part < before, tick >= 20, "{tick}");
        }
    }

    #[test]
    fn decisions_say_what_they_were_made_from() {
        let (share, ..) = steered(|part| if part > 400 { 3_000 } else { 0 }, 10);
        let decided: Vec<Decided> = share.decisions().map(|decision| decision.what).collect();
        assert!(decided.len() <= DECISIONS_MAX);
        let cut = decided.iter().find_map(|what| match what {
            Decided::Share { from, to, requests, late } if to < from => Some((*requests, *late)),
            _ => None,
        });
        // The first is the change of the goal; what was late before the job does not count.
        assert_eq!(decided[0], Decided::Share { from: THROUGHPUT, to: LATENCY, requests: 0, late: 0 });
        assert!(decided.len() > 2 && cut.is_some());
        let later = decided
            .iter()
            .skip(1)
            .any(|what| matches!(what, Decided::Share { to, from, late, .. } if to < from && *late >= 3_000));
        assert!(later, "{decided:?}");
    }
}
