//! Timers, in order of their deadlines.

use super::Inner;
use super::wake::Wake;
use crate::base::time::Instant;

impl Inner {
    /// Sets a timer, in order of deadlines and, among equals, of this call.
    pub(crate) fn set_timer(&self, deadline: Instant, wake: Wake) -> (Instant, u64) {
        let seq = self.timer_seq.get();
        self.timer_seq.set(seq + 1);
        self.timers.borrow_mut().insert((deadline, seq), wake);
        (deadline, seq)
    }

    /// Changes what a timer wakes; false if it has fired.
    pub(crate) fn reset_timer(&self, timer: (Instant, u64), wake: Wake) -> bool {
        self.timers.borrow_mut().get_mut(&timer).map(|slot| *slot = wake).is_some()
    }

    pub(crate) fn clear_timer(&self, timer: (Instant, u64)) {
        self.timers.borrow_mut().remove(&timer);
    }

    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.borrow().first_key_value().map(|(&(deadline, _), _)| deadline)
    }

    /// The time at which this turn began.
    pub(crate) fn turn_time(&self) -> Instant {
        self.turn_time.get()
    }

    /// A turn begins: wakes everything whose time has come.
    pub(crate) fn fire_timers(&self) {
        let now = self.now();
        self.turn_time.set(now);
        loop {
            let due = {
                let mut timers = self.timers.borrow_mut();
                match timers.first_entry() {
                    Some(first) if first.key().0 <= now => first.remove(),
                    _ => return,
                }
            };
            self.wake(due);
        }
    }
}
