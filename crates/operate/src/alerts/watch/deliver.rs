//! Delivers what one channel is owed, in its order, one at a time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::super::beside;
use super::super::channels::{self, Delivery, MessageSender};
use super::super::journal::Journal;
use super::super::settings::ChannelSettings;
use super::super::state::{AlertsState, Notification, Owed, Tried};
use super::WatchNote;

/// After the first failure, and twice as long after each further one.
const AGAIN: Duration = Duration::from_secs(1);

/// No longer than that.
const AGAIN_MAX: Duration = Duration::from_secs(300);

/// A receiver that is down is tried so often: for about a week.
const ATTEMPTS_DOWN_MAX: u64 = 2000;

/// A receiver that refuses a message mostly refuses it again.
const ATTEMPTS_REFUSED_MAX: u64 = 5;

/// Without a call, so often is looked whether there is something to do.
const IDLE: Duration = Duration::from_secs(5);

/// Wakes threads that deliver.
#[derive(Default)]
pub struct Bell {
    rung: Mutex<u64>,
    changed: Condvar,
}

impl Bell {
    /// There is something to deliver.
    pub fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Waits for more than `seen`, or for so long; gives what was rung by then.
    fn wait(&self, seen: u64, time: Duration) -> u64 {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(rung, time, |rung| *rung == seen);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// What delivers through one channel.
pub struct Courier {
    /// The channel.
    pub channel: ChannelSettings,
    /// What messages say of where they come from.
    pub sender: MessageSender,
    /// What is owed.
    pub journal: Arc<Journal>,
    /// Wakes it.
    pub bell: Arc<Bell>,
    /// Takes what it tells of itself.
    pub note: Arc<dyn Fn(WatchNote) + Send + Sync>,
    /// Set to have it end.
    pub stop: Arc<AtomicBool>,
    /// Held while it sends: one that is to end may still be sending when the next one starts.
    pub turn: Arc<Mutex<()>>,
}

impl Courier {
    /// Delivers until it is to end.
    pub fn run(self) {
        let mut pace = Pace::default();
        let mut seen = 0;
        while !self.stop.load(Ordering::Relaxed) {
            if !self.has_sent(&mut pace) {
                seen = self.bell.wait(seen, pace.idle());
            }
        }
    }

    /// Chooses, sends and records one notification; `false` if there is none now, or it is to end.
    fn has_sent(&self, pace: &mut Pace) -> bool {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stop.load(Ordering::Relaxed) {
            return false;
        }
        let next = self.journal.read().ok().and_then(|state| self.next(&state, pace));
        let Some((owed, notification)) = next else { return false };
        self.attempt(&owed, &notification, pace);
        true
    }

    /// What is to be delivered now.
    fn next(&self, state: &AlertsState, pace: &Pace) -> Option<(Owed, Notification)> {
        let now = beside::now();
        if pace.channel.is_some_and(|until| now < until) {
            return None;
        }
        let channel = state.channels.get(&self.channel.name)?;
        let due = |owed: &&Owed| pace.refused.get(&owed.notification).is_none_or(|until| now >= *until);
        let owed = channel.owed.iter().find(due)?;
        let notification = state.notifications.iter().find(|known| known.id == owed.notification)?;
        Some((owed.clone(), notification.clone()))
    }

    fn attempt(&self, owed: &Owed, notification: &Notification, pace: &mut Pace) {
        let (id, attempts) = (owed.notification, owed.attempts + 1);
        let tried = match channels::deliver(&self.channel, notification, &self.sender) {
            Delivery::Arrived => {
                *pace = Pace { refused: std::mem::take(&mut pace.refused), ..Pace::default() };
                pace.refused.remove(&id);
                Tried::Arrived
            }
            Delivery::Down(why) => {
                pace.channel = Some(beside::now() + pace.step());
                if attempts >= ATTEMPTS_DOWN_MAX { Tried::GivenUp(why) } else { Tried::Failed(why) }
            }
            Delivery::Refused(why) => {
                pace.refused.insert(id, beside::now() + step(attempts));
                if attempts >= ATTEMPTS_REFUSED_MAX { Tried::GivenUp(why) } else { Tried::Failed(why) }
            }
        };
        let secs = beside::wall_secs();
        let name = &self.channel.name;
        let kept = self.journal.update(|state| state.tried(name, id, secs, &tried));
        if let Some(problem) = kept.map_or_else(Some, |updated| updated.unsaved) {
            (self.note)(WatchNote::Note(format!("{}: {}", problem.what, problem.why)));
        }
        let channel = self.channel.name.clone();
        (self.note)(match tried {
            Tried::Arrived => WatchNote::Arrived { channel, id },
            Tried::Failed(why) => WatchNote::Failed { channel, id, why, given_up: false },
            Tried::GivenUp(why) => WatchNote::Failed { channel, id, why, given_up: true },
        });
    }
}

/// When what is tried again.
#[derive(Default)]
struct Pace {
    /// Nothing before that.
    channel: Option<Instant>,
    failures: u64,
    /// Not these before that.
    refused: BTreeMap<u64, Instant>,
}

impl Pace {
    fn step(&mut self) -> Duration {
        self.failures += 1;
        step(self.failures)
    }

    /// How long nothing has to be done unless the bell is rung.
    fn idle(&self) -> Duration {
        let now = beside::now();
        let next = self.channel.iter().chain(self.refused.values()).filter(|until| **until > now).min();
        next.map_or(IDLE, |until| (*until - now).min(IDLE))
    }
}

/// How long after so many failures.
fn step(failures: u64) -> Duration {
    let doubled = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    (AGAIN * 2_u32.pow(doubled)).min(AGAIN_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_that_is_down_is_tried_less_and_less() {
        let steps: Vec<u64> = [1, 2, 3, 9, 10, 1000].map(|failures| step(failures).as_secs()).into();
        assert_eq!(steps, [1, 2, 4, 256, 300, 300]);
    }
}
