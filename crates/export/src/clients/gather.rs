//! Whether a connection waits a moment before it receives.
//!
//! A client with many requests under way sends them one by one. Each of them would wake this core,
//! and its answer the client; and to wake another processor costs both of them several times what
//! the request does. So a connection may sleep for a moment before it receives: what came meanwhile
//! is taken at once, and its answers leave together.
//!
//! Whether that is good for a client shows only by trying, since nothing else tells how many
//! requests it has under way: its requests are counted over some time without pauses, and then with
//! them. Pauses go on if it gets as much done with them. They end with the first that brings next
//! to nothing; the next try then comes after twice as many requests, so that a client that waits
//! for each answer waits for a pause in one of 65536 requests or so.

use std::time::Duration;

use wattle_rt::Instant;

/// So long that a client that sends as fast as it can sends some twenty requests.
const PAUSE: Duration = Duration::from_micros(100);
/// A pause that brings fewer requests costs more than it saves.
const FEW: u64 = 4;
/// Requests over which their rate is taken.
const WINDOW: u64 = 1024;
/// Requests before the first try, and the most between two.
const TRY_AFTER: (u64, u64) = (1024, 65536);
/// Requests with pauses before the rate without them is taken anew.
const HOLDS_FOR: u64 = 1 << 20;

/// What a connection finds out about its client.
#[derive(Debug)]
pub(crate) struct Gathering {
    /// Requests since the last receive.
    taken: u64,
    phase: Phase,
    /// Requests of the present window, and when it began.
    counted: u64,
    since: Instant,
    /// How long requests of a window took without pauses.
    plain: Duration,
    /// Requests until the next change.
    left: u64,
    /// How many there are before the next try.
    try_after: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Plain,
    Trial,
    Pauses,
}

impl Gathering {
    pub(crate) fn new(now: Instant) -> Self {
        let (left, try_after) = (TRY_AFTER.0, TRY_AFTER.0);
        Self { taken: 0, phase: Phase::Plain, counted: 0, since: now, plain: Duration::ZERO, left, try_after }
    }

    /// So many requests more were taken from what was received.
    pub(crate) fn took(&mut self, count: usize) {
        self.taken += count as u64;
    }

    /// All that was received is taken: how long to wait before more is received.
    pub(crate) fn pause(&mut self, now: Instant) -> Option<Duration> {
        let taken = std::mem::take(&mut self.taken);
        self.counted += taken;
        self.left = self.left.saturating_sub(taken);
        if self.phase != Phase::Plain && taken < FEW {
            self.try_later(now);
        } else if self.counted >= WINDOW {
            let took = (now - self.since).mul_f64(WINDOW as f64 / self.counted as f64);
            match self.phase {
                Phase::Plain => {
                    self.plain = took;
                    if self.left == 0 {
                        self.phase = Phase::Trial;
                    }
                }
                // A fifth is what windows differ by on a machine with other work.
                Phase::Trial if took > self.plain + self.plain / 5 => self.try_later(now),
                Phase::Trial => {
                    (self.phase, self.left, self.try_after) = (Phase::Pauses, HOLDS_FOR, TRY_AFTER.0);
                }
                Phase::Pauses if self.left == 0 => (self.phase, self.left) = (Phase::Plain, self.try_after),
                Phase::Pauses => {}
            }
            (self.counted, self.since) = (0, now);
        }
        (self.phase != Phase::Plain).then_some(PAUSE)
    }

    fn try_later(&mut self, now: Instant) {
        self.try_after = (self.try_after * 2).min(TRY_AFTER.1);
        (self.phase, self.left) = (Phase::Plain, self.try_after);
        (self.counted, self.since) = (0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client with so many requests under way, which takes `each` to send one.
    struct Client {
        under_way: u64,
        each: Duration,
    }

    impl Client {
        /// How many of so many requests came without a pause before them.
        fn without_pause(&self, gathering: &mut Gathering, now: &mut Instant, requests: u64) -> u64 {
            /// To be woken, and to wake.
            const WAKE: Duration = Duration::from_micros(8);
            let (mut count, mut without) = (0, 0);
            let mut pause: Option<Duration> = None;
            while count < requests {
                let sent = match pause {
                    None => {
                        *now += self.each.max(WAKE / self.under_way.min(4) as u32);
                        without += 1;
                        1
                    }
                    Some(pause) => {
                        let in_time = (pause.as_nanos() / self.each.as_nanos()) as u64;
                        *now += pause;
                        in_time.clamp(1, self.under_way)
                    }
                };
                gathering.took(sent as usize);
                count += sent;
                pause = gathering.pause(*now);
            }
            without
        }
    }

    #[test]
    fn it_pauses_for_clients_that_get_as_much_done() {
        let mut now = Instant::START;
        let mut gathering = Gathering::new(now);
        let each = Duration::from_micros(5);
        const MANY: u64 = 1 << 20;
        let alone = Client { under_way: 1, each };
        assert!(MANY - alone.without_pause(&mut gathering, &mut now, MANY) < 40);
        // They are done in less than a pause.
        let few = Client { under_way: 8, each };
        assert!(MANY - few.without_pause(&mut gathering, &mut now, MANY) < MANY / 20);
        let many = Client { under_way: 64, each };
        assert!(many.without_pause(&mut gathering, &mut now, MANY) < MANY / 10);
        assert!(many.without_pause(&mut gathering, &mut now, MANY) < MANY / 100);
        // One pause is enough to notice that it is another load.
        assert!(alone.without_pause(&mut gathering, &mut now, 1000) > 900);
    }
}
