//! Writes of one stream that arrive close together leave together, as one full-stripe write that
//! reads nothing.
//!
//! Requests of a sequential stream that is several requests deep arrive as earlier ones are
//! answered. A stripe whose waiting writes continue one another, and which is not full yet,
//! therefore waits for as long as other writes of the same clients are under way: their answers
//! bring the next requests. It goes at once when it is full, when a reader, a job or a forced write
//! queues on it, and when no client is left that could bring more. So a write alone never waits,
//! and no stripe waits for more than twice as long as such writes take.
//!
//! Random writes are told apart by what they look like: only writes that continue writes which are
//! still in the stripe's queue or under way, or that begin a stripe behind one that was gathered,
//! are taken for a stream.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use wattle_rt::{Durability, Notify, race};

use super::{Active, BATCH_MAX, Request, StripeTable, WritePiece};
use crate::hints::StreamHint;
use crate::lease::LeaseShard;
use crate::model::units::{SECTOR_BYTES, StripeNo};

/// How long a stripe waits at most before it is known how long its write takes, and ever.
const PATIENCE_FIRST: Duration = Duration::from_millis(1);
const PATIENCE_MAX: Duration = Duration::from_millis(10);
/// How long it waits at most for clients that were answered just now.
const GRACE_MAX: Duration = Duration::from_micros(100);
/// How many streams are followed from stripe to stripe.
const STREAMS: usize = 8;

/// What has arrived in a stripe since its task began.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// Where it begins and ends.
    start: u64,
    end: u64,
    /// Bytes and number of the writes.
    bytes: u64,
    writes: usize,
    /// It goes on where a stream left the stripe before.
    follows: bool,
    /// Of the last one.
    hint: StreamHint,
}

impl Run {
    pub fn add(&mut self, piece: &WritePiece, follows: bool) {
        let range = piece.range();
        if self.writes == 0 {
            (self.start, self.end) = (range.start, range.start);
            self.follows = follows && range.start == 0;
        }
        self.start = self.start.min(range.start);
        self.end = self.end.max(range.end);
        self.bytes += range.end - range.start;
        self.writes += 1;
        self.hint = piece.hint;
    }

    /// Whether it looks like a stream: hardly a gap, and nothing twice.
    pub fn is_stream(&self) -> bool {
        let span = self.end - self.start;
        (self.writes > 1 || self.follows) && self.bytes <= span && 4 * self.bytes >= 3 * span
    }

    /// Whether the stream has gone through the stripe to its end.
    fn is_complete(&self, width: u64) -> bool {
        self.end == width && self.bytes >= self.end - self.start
    }
}

/// The streams of one core, and the stripes that wait for more of them.
#[derive(Default)]
pub(super) struct Gather {
    /// Stripes that streams are expected to begin next, the oldest first.
    expected: RefCell<Vec<StripeNo>>,
    /// Writes in stripes that wait.
    held: Cell<usize>,
    /// How long writes of streams take lately.
    time: Cell<Option<Duration>>,
    /// Signalled when one that waits may have to go.
    news: Notify,
}

/// Whether a stripe is to wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Go,
    /// No client is left that could bring more, except those answered just now.
    Alone,
    Wait,
}

impl Gather {
    /// Whether a stream is expected to begin `stripe` now.
    pub fn follows(&self, stripe: StripeNo) -> bool {
        let mut expected = self.expected.borrow_mut();
        let at = expected.iter().position(|other| *other == stripe);
        at.map(|at| expected.remove(at)).is_some()
    }

    /// A request was queued on a stripe.
    pub fn arrived(&self, leases: &LeaseShard, stripe: StripeNo, active: &Active) {
        let run = active.run.borrow();
        if run.is_stream() && run.is_complete(width(leases)) {
            let next = StripeNo(stripe.0 + leases.core.cores() as u64);
            let mut expected = self.expected.borrow_mut();
            if !expected.contains(&next) {
                if expected.len() == STREAMS {
                    expected.remove(0);
                }
                expected.push(next);
            }
        }
        drop(run);
        if active.held.get() {
            self.held.update(|held| held + 1);
            if self.judge(leases, active) != Verdict::Wait {
                self.news.notify_all();
            }
        }
    }

    /// Whether a stripe is to wait. A write that waits counts as held.
    fn judge(&self, leases: &LeaseShard, active: &Active) -> Verdict {
        let waits = |request: &Request| matches!(request, Request::Write(piece, _) if piece.durability != Durability::Fua);
        let (run, waiting) = (active.run.borrow(), active.waiting.borrow());
        if !run.is_stream()
            || run.is_complete(width(leases))
            || waiting.is_empty()
            || waiting.len() >= BATCH_MAX
            || !waiting.iter().all(waits)
        {
            return Verdict::Go;
        }
        let alone = match run.hint.under_way {
            0 => leases.hints.writes.get() <= self.held.get().max(waiting.len()),
            there => there <= waiting.len(),
        };
        if alone { Verdict::Alone } else { Verdict::Wait }
    }

    fn hold(&self, active: &Active, held: bool) {
        active.held.set(held);
        let writes = active.waiting.borrow().len();
        self.held.update(|all| if held { all + writes } else { all - writes });
    }

    fn patience(&self) -> Duration {
        self.time.get().map_or(PATIENCE_FIRST, |time| 2 * time).min(PATIENCE_MAX)
    }

    /// Writes of a stream took so long.
    pub fn took(&self, time: Duration) {
        let before = self.time.get().unwrap_or(time);
        self.time.set(Some((before * 3 + time) / 4));
    }
}

impl StripeTable {
    /// A client's write that came in on this core was answered; so many are still under way.
    pub fn answered(&self, writes: usize) {
        if writes <= self.gather.held.get() && self.gather.held.get() > 0 {
            self.gather.news.notify_all();
        }
    }
}

/// Waits until what is queued on a stripe should go. This is its task; `answered` if it has
/// answered writes just now.
pub(super) async fn wait(leases: &LeaseShard, active: &Active, answered: bool) {
    let gather = &leases.stripes.gather;
    match gather.judge(leases, active) {
        Verdict::Wait => {}
        Verdict::Alone if answered => {}
        Verdict::Go | Verdict::Alone => return,
    }
    gather.hold(active, true);
    let mut until = leases.core.now() + gather.patience();
    let mut alone_with = None;
    loop {
        let news = gather.news.wait();
        match (gather.judge(leases, active), alone_with) {
            (Verdict::Go, _) => break,
            (Verdict::Wait, _) => {}
            (Verdict::Alone, None) => {
                alone_with = Some(active.waiting.borrow().len());
                until = until.min(leases.core.now() + GRACE_MAX.min(gather.patience() / 8));
            }
            // The clients that were answered have asked again: nothing is missing.
            (Verdict::Alone, Some(before)) if active.waiting.borrow().len() > before => break,
            (Verdict::Alone, Some(_)) => {}
        }
        if leases.core.now() >= until {
            break;
        }
        race(news, leases.core.sleep_until(until)).await;
    }
    gather.hold(active, false);
}

fn width(leases: &LeaseShard) -> u64 {
    leases.fixed.geometry.stripe_data_sectors().0 * SECTOR_BYTES
}
