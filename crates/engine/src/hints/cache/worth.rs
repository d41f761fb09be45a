//! Whether keeping is worth what it costs.
//!
//! A core that sleeps has time left: what it waits for are the members, and each read that is saved
//! is time saved. A core that never sleeps pays for every page that is put in, looked for and
//! copied, and members that answer from memory may be cheaper to ask. That depends on members,
//! processor, load and how much of it comes again, so it is not reckoned but tried: rows are timed
//! with the cache and without it, and the cheaper way is taken for a while.

use std::time::Duration;

use wattle_rt::{Core, Instant};

/// Rows between two looks at the clock.
pub(super) const PERIOD: u64 = 4096;
/// A core has time left if it slept for more than one part of so many.
const SLEEPS: u32 = 20;
/// The cheaper way is taken if it saves one part of so many.
const SAVES: u64 = 20;
/// Periods of which the median decides.
const TIMED: usize = 8;
/// Periods with the cache before the other way is tried, at first and at most.
const WITH: (usize, usize) = (16, 4096);
/// Periods without it before it is tried again, at first and at most.
const WITHOUT: (usize, usize) = (256, 4096);
/// So many periods one after the other in which the core had time left end the time without.
const IDLE: usize = 4;

/// The time, how much of it the core has slept, and how much it had the processor.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    pub now: Instant,
    pub asleep: Duration,
    pub worked: Duration,
}

impl Spent {
    pub fn of(core: &Core) -> Self {
        Self { now: core.now(), asleep: core.slept(), worked: core.worked() }
    }
}

/// Why nothing is kept at the moment: the processor time of 4096 rows that were written in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachePause {
    /// With the cache.
    pub with: Duration,
    /// Without it.
    pub without: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Pages are kept, until the other way is tried after so many periods.
    With { periods: usize },
    /// None are, to see what that takes; what it took with them.
    Trial { with: u64, periods: usize },
    /// None are, for so many periods; in how many of the last ones the core had time left.
    Without { pause: CachePause, left: usize, idle: usize },
}

/// Decides whether a core keeps pages.
#[derive(Debug)]
pub(super) struct Worth {
    phase: Phase,
    rows: u64,
    began: Option<Spent>,
    /// Nanoseconds of processor time of the periods that count.
    took: Vec<u64>,
    /// How long the next time without lasts.
    patience: usize,
}

impl Default for Worth {
    fn default() -> Self {
        Self {
            phase: Phase::With { periods: WITH.0 },
            rows: 0,
            began: None,
            took: Vec::new(),
            patience: WITHOUT.0,
        }
    }
}

impl Worth {
    pub fn keeps(&self) -> bool {
        matches!(self.phase, Phase::With { .. })
    }

    pub fn pause(&self) -> Option<CachePause> {
        match self.phase {
            Phase::Without { pause, .. } => Some(pause),
            _ => None,
        }
    }

    /// Counts a row; says whether a period has ended, which [`Self::period`] is to be told.
    pub fn row(&mut self) -> bool {
        self.rows += 1;
        self.rows >= PERIOD
    }

    /// A period has ended. `settled` says that the cache holds about what it is going to hold.
    pub fn period(&mut self, spent: Spent, settled: bool) {
        self.rows = 0;
        let Some(began) = self.began.replace(spent) else { return };
        let elapsed = spent.now.saturating_since(began.now);
        let idle = (spent.asleep - began.asleep) * SLEEPS > elapsed;
        // Not what passed: other processes may want the processor too.
        let worked = spent.worked.saturating_sub(began.worked);
        let nanos = u64::try_from(worked.as_nanos()).unwrap_or(u64::MAX);
        match &mut self.phase {
            Phase::With { periods } => {
                if idle {
                    // There is no other way to try, and the next one that is begins anew.
                    (*periods, self.patience) = (WITH.0, WITHOUT.0);
                    self.took.clear();
                } else if settled {
                    self.took.push(nanos);
                }
                if self.took.len() >= *periods {
                    let with = median(&self.took[self.took.len() - TIMED..]);
                    let periods = *periods;
                    self.go(Phase::Trial { with, periods });
                }
            }
            Phase::Trial { .. } if idle => self.go(Phase::With { periods: WITH.0 }),
            &mut Phase::Trial { with, periods } => {
                self.took.push(nanos);
                // The first one has the cache emptied.
                if self.took.len() > TIMED {
                    let without = median(&self.took[1..]);
                    if without + with / SAVES < with {
                        let pause = CachePause {
                            with: Duration::from_nanos(with),
                            without: Duration::from_nanos(without),
                        };
                        let left = self.patience;
                        self.patience = (2 * left).min(WITHOUT.1);
                        self.go(Phase::Without { pause, left, idle: 0 });
                    } else {
                        self.go(Phase::With { periods: (4 * periods).min(WITH.1) });
                    }
                }
            }
            Phase::Without { left, idle: times, .. } => {
                *times = if idle { *times + 1 } else { 0 };
                *left -= 1;
                if *left == 0 || *times == IDLE {
                    self.go(Phase::With { periods: WITH.0 });
                }
            }
        }
    }

    fn go(&mut self, phase: Phase) {
        self.took.clear();
        self.phase = phase;
    }
}

fn median(nanos: &[u64]) -> u64 {
    let mut sorted = nanos.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core whose periods take as long as said; it sleeps for so many parts of a hundred.
    struct Rig {
        worth: Worth,
        spent: Spent,
    }

    impl Rig {
        fn new() -> Self {
            Self { worth: Worth::default(), spent: Spent::default() }
        }

        /// How many of so many periods keep.
        fn periods(&mut self, periods: usize, with: u64, without: u64, asleep: u32) -> usize {
            let mut kept = 0;
            for _ in 0..periods {
                let keeps = self.worth.keeps();
                kept += usize::from(keeps);
                let took = Duration::from_micros(if keeps { with } else { without });
                self.spent.now += took;
                self.spent.worked += took;
                self.spent.asleep += took * asleep / 100;
                (0..PERIOD).for_each(|row| assert_eq!(self.worth.row(), row == PERIOD - 1));
                self.worth.period(self.spent, true);
            }
            kept
        }
    }

    #[test]
    fn a_core_that_has_time_left_keeps() {
        assert_eq!(Rig::new().periods(1000, 200, 100, 6), 1000);
    }

    #[test]
    fn what_costs_more_than_it_saves_is_left_but_for_a_few_periods() {
        let mut rig = Rig::new();
        rig.periods(100, 110, 100, 0);
        let pause = rig.worth.pause().expect("it has decided");
        assert_eq!(pause.with, Duration::from_micros(110));
        assert_eq!(pause.without, Duration::from_micros(100));
        let kept = rig.periods(40_000, 110, 100, 0);
        assert!(kept > 0 && kept < 400, "{kept}");
        // Members become what is waited for.
        rig.periods(IDLE + 1, 110, 100, 50);
        assert!(rig.worth.keeps());
    }

    #[test]
    fn what_saves_more_than_it_costs_is_rarely_left() {
        let mut rig = Rig::new();
        let kept = rig.periods(40_000, 97, 100, 0);
        assert!(kept > 39_800 && kept < 40_000, "{kept}");
    }
}
