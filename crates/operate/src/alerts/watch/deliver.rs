//! Delivers what one channel is owed, in its order, one at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use wattle_control::Problem;

use super::super::beside;
use super::super::channels::{self, Delivery, MessageSender};
use super::super::journal::Journal;
use super::super::settings::ChannelSettings;
use super::super::state::{AlertsState, DroppedMessage, Notification, Owed, Tried};
use super::WatchNote;

/// After the first failure, and twice as long after each further one.
const AGAIN: Duration = Duration::from_secs(1);

/// No longer than that.
const AGAIN_MAX: Duration = Duration::from_secs(300);

/// A receiver that is down is tried so often: for about a week.
const ATTEMPTS_DOWN_MAX: u64 = 2000;

/// What is refused is tried again after so long, and twice as long after each further refusal: what
/// is wrong at the receiver, a token or a disk that is full, takes an operator to mend.
const REFUSED_AGAIN: Duration = Duration::from_secs(30);

/// No longer than that.
const REFUSED_AGAIN_MAX: Duration = Duration::from_secs(3600);

/// A message that is refused is tried so often: for about a week.
const ATTEMPTS_REFUSED_MAX: u64 = 175;

/// A receiver that fails for so long is not taken for one that is down any more: what it fails with
/// may be one message, and the others go on.
const FAILS_AS_DOWN: Duration = Duration::from_secs(3600);

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
        let due = |owed: &&Owed| {
            let id = &owed.notification;
            !pace.done.contains(id) && pace.refused.get(id).is_none_or(|until| now >= *until)
        };
        let owed = channel.owed.iter().find(due)?;
        let notification = state.notifications.iter().find(|known| known.id == owed.notification)?;
        Some((owed.clone(), notification.clone()))
    }

    fn attempt(&self, owed: &Owed, notification: &Notification, pace: &mut Pace) {
        let id = owed.notification;
        let tried =
            pace.after(owed, channels::deliver(&self.channel, notification, &self.sender), beside::now());
        let secs = beside::wall_secs();
        let name = &self.channel.name;
        let kept = self.journal.update(|state| state.tried(name, id, secs, &tried));
        if kept.is_err() && matches!(tried, Tried::Arrived | Tried::GivenUp(_)) {
            pace.done.insert(id);
        }
        let problems: Vec<Problem> =
            kept.map_or_else(|problem| vec![problem], |updated| updated.problems().cloned().collect());
        for problem in problems {
            (self.note)(WatchNote::Note(format!("{}: {}", problem.what, problem.why)));
        }
        let channel = self.channel.name.clone();
        (self.note)(match tried {
            Tried::Arrived => WatchNote::Arrived { channel, id },
            Tried::Failed(why) | Tried::Refused(why) => WatchNote::Failed { channel, id, why },
            Tried::GivenUp(why) => WatchNote::Dropped(DroppedMessage {
                channel,
                id,
                event: notification.event.clone(),
                what: notification.text.what.clone(),
                why,
            }),
        });
    }
}

/// When what is tried again.
#[derive(Default)]
struct Pace {
    /// Nothing before that.
    channel: Option<Instant>,
    failures: u64,
    /// Since when it fails without having taken anything.
    failing: Option<Instant>,
    /// Not these before that.
    refused: BTreeMap<u64, Instant>,
    /// Never these: that nothing more is to be done about them could not be recorded, not even in
    /// memory.
    done: BTreeSet<u64>,
}

impl Pace {
    /// What an attempt at `now` makes of this message, and when what is tried next.
    fn after(&mut self, owed: &Owed, delivery: Delivery, now: Instant) -> Tried {
        let failing = *self.failing.get_or_insert(now);
        let (why, is_down) = match delivery {
            Delivery::Arrived => {
                (self.channel, self.failures, self.failing) = (None, 0, None);
                self.refused.remove(&owed.notification);
                return Tried::Arrived;
            }
            Delivery::Down(why) => (why, true),
            Delivery::Failed(why) => (why, owed.refused == 0 && now - failing < FAILS_AS_DOWN),
            Delivery::Refused(why) => (why, false),
        };
        if is_down {
            self.failures += 1;
            self.channel = Some(now + step(AGAIN, self.failures).min(AGAIN_MAX));
            return match owed.attempts + 1 >= ATTEMPTS_DOWN_MAX {
                true => Tried::GivenUp(why),
                false => Tried::Failed(why),
            };
        }
        let refused = owed.refused + 1;
        self.refused.insert(owed.notification, now + step(REFUSED_AGAIN, refused).min(REFUSED_AGAIN_MAX));
        if refused >= ATTEMPTS_REFUSED_MAX { Tried::GivenUp(why) } else { Tried::Refused(why) }
    }

    /// How long nothing has to be done unless the bell is rung.
    fn idle(&self) -> Duration {
        let now = beside::now();
        let next = self.channel.iter().chain(self.refused.values()).filter(|until| **until > now).min();
        next.map_or(IDLE, |until| (*until - now).min(IDLE))
    }
}

/// How long after so many failures: twice as long after each.
fn step(first: Duration, failures: u64) -> Duration {
    let doubled = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    first * 2_u32.pow(doubled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::kind::AlertSeverity;
    use crate::alerts::settings::ChannelWay;

    fn owed(notification: u64) -> Owed {
        Owed { notification, attempts: 0, refused: 0, error: None }
    }

    /// How long after each of so many attempts the next one comes, and what becomes of the message.
    fn attempts(
        pace: &mut Pace,
        owed: &mut Owed,
        count: usize,
        delivery: fn(String) -> Delivery,
    ) -> (Vec<u64>, Tried) {
        let (mut now, mut waits, mut last) = (beside::now(), Vec::new(), Tried::Arrived);
        for _ in 0..count {
            last = pace.after(owed, delivery("why".to_owned()), now);
            owed.attempts += 1;
            owed.refused += u64::from(matches!(last, Tried::Refused(_)));
            let next = pace.refused.get(&owed.notification).copied().or(pace.channel).unwrap();
            waits.push((next - now).as_secs());
            now = next;
        }
        (waits, last)
    }

    #[test]
    fn a_receiver_that_is_down_is_tried_less_and_less() {
        let (waits, last) = attempts(&mut Pace::default(), &mut owed(1), 1999, Delivery::Down);
        assert_eq!((&waits[..3], &waits[7..10]), (&[1, 2, 4][..], &[128, 256, 300][..]));
        assert_eq!(last, Tried::Failed("why".to_owned()));
        assert!(waits.iter().sum::<u64>() > 6 * 24 * 3600, "it is tried for about a week");
    }

    /// A token that has expired, or a hook that was moved, takes an operator to mend.
    #[test]
    fn a_message_that_is_refused_is_tried_for_a_week_and_holds_back_no_other() {
        let (mut pace, mut message) = (Pace::default(), owed(1));
        let (waits, last) = attempts(&mut pace, &mut message, 174, Delivery::Refused);
        assert_eq!(waits[..8], [30, 60, 120, 240, 480, 960, 1920, 3600]);
        assert_eq!(last, Tried::Refused("why".to_owned()));
        assert!(waits.iter().sum::<u64>() > 6 * 24 * 3600, "it is tried for about a week");
        assert_eq!(pace.channel, None, "others go on");
        let given_up = pace.after(&message, Delivery::Refused("why".to_owned()), beside::now());
        assert_eq!(given_up, Tried::GivenUp("why".to_owned()));
    }

    #[test]
    fn a_program_that_fails_is_taken_for_down_for_an_hour() {
        let (mut pace, mut first) = (Pace::default(), owed(1));
        let (waits, _) = attempts(&mut pace, &mut first, 19, Delivery::Failed);
        assert_eq!((&waits[..3], waits[18]), (&[1, 2, 4][..], 300));
        assert_eq!((first.refused, pace.refused.len()), (0, 0), "messages keep their order");
        let past_the_hour = pace.channel.unwrap() + Duration::from_secs(300);
        let failed = || Delivery::Failed("why".to_owned());
        assert_eq!(pace.after(&first, failed(), past_the_hour), Tried::Refused("why".to_owned()));
        // The others are tried; one that arrives makes the first a message that is refused.
        first.refused = 1;
        assert_eq!(pace.after(&owed(2), Delivery::Arrived, past_the_hour), Tried::Arrived);
        let later = past_the_hour + Duration::from_secs(30);
        assert_eq!(pace.after(&first, failed(), later), Tried::Refused("why".to_owned()));
        assert_eq!(pace.channel, None, "it holds back no other");
        // The next one that fails may be the program's fault.
        assert_eq!(pace.after(&owed(3), failed(), later), Tried::Failed("why".to_owned()));
    }

    /// What took a message is not given it again and again because that cannot be recorded.
    #[test]
    fn a_delivery_that_cannot_be_recorded_is_made_once() {
        let temp = tempfile::tempdir().unwrap();
        let journal = Arc::new(Journal::open(temp.path()).unwrap());
        // Nothing can be written; then a later version does.
        std::fs::create_dir(temp.path().join("alerts.json.new")).unwrap();
        let send = |state: &mut AlertsState| {
            let message = crate::alerts::rules::test_message(state, "data", 0);
            state.owe(message, ["program"].into_iter());
        };
        journal.update(send).unwrap();
        std::fs::write(journal.path(), r#"{"schema_version":99}"#).unwrap();
        let notes: Arc<Mutex<Vec<WatchNote>>> = Arc::default();
        let keep = notes.clone();
        let courier = Courier {
            channel: ChannelSettings {
                name: "program".to_owned(),
                at_least: AlertSeverity::Info,
                only: Vec::new(),
                time_max: Duration::from_secs(90),
                way: ChannelWay::Program("/bin/true".into()),
            },
            sender: MessageSender { host: String::new(), origin: String::new(), repeat_secs: None },
            journal,
            bell: Arc::default(),
            note: Arc::new(move |note| keep.lock().unwrap().push(note)),
            stop: Arc::default(),
            turn: Arc::default(),
        };
        let mut pace = Pace::default();
        assert!(courier.has_sent(&mut pace));
        assert!(!courier.has_sent(&mut pace), "it arrived");
        let notes = notes.lock().unwrap();
        let arrived = notes.iter().filter(|note| matches!(note, WatchNote::Arrived { id: 1, .. }));
        assert_eq!(arrived.count(), 1, "{notes:?}");
    }
}
