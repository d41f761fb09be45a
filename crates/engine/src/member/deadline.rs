//! Reads that a member does not answer in time: they are given up, so that redundancy can answer
//! instead.
//!
//! A timer for each read would cost more than the read: instead one task looks at all reads of a
//! core a few times per deadline, while there are any. A read that is given up goes on by itself
//! and keeps its buffer until the member answers.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use wattle_rt::{Core, Either, Notify, race};

use super::Members;

/// How often per deadline the task looks: a read is given up after one to one and a quarter
/// deadlines.
const LOOKS: u32 = 4;

/// The reads in flight on one core.
pub(crate) struct Deadlines {
    core: Core,
    /// How long a read may take.
    after: Cell<Duration>,
    changed: Notify,
    reads: RefCell<Vec<Entry>>,
    free: RefCell<Vec<usize>>,
    in_flight: Cell<usize>,
    looks: Cell<u64>,
    looking: Cell<bool>,
}

#[derive(Default)]
struct Entry {
    waker: Option<Waker>,
    started: u64,
    expired: bool,
}

/// A read's place in the list; leaving is its drop.
struct Place<'a> {
    deadlines: &'a Deadlines,
    at: usize,
}

impl Deadlines {
    pub fn new(core: &Core, after: Duration) -> Self {
        Self {
            core: core.clone(),
            after: Cell::new(after),
            changed: Notify::new(),
            reads: RefCell::default(),
            free: RefCell::default(),
            in_flight: Cell::new(0),
            looks: Cell::new(0),
            looking: Cell::new(false),
        }
    }

    pub fn set(&self, after: Duration) {
        self.after.set(after);
        self.changed.notify_all();
    }

    /// How long a read may take.
    pub fn after(&self) -> Duration {
        self.after.get()
    }

    fn enter(&self) -> Place<'_> {
        let entry = Entry { waker: None, started: self.looks.get(), expired: false };
        let mut reads = self.reads.borrow_mut();
        let at = match self.free.borrow_mut().pop() {
            Some(at) => {
                reads[at] = entry;
                at
            }
            None => {
                reads.push(entry);
                reads.len() - 1
            }
        };
        self.in_flight.update(|reads| reads + 1);
        Place { deadlines: self, at }
    }

    fn look(&self) {
        self.looks.update(|looks| looks + 1);
        let expired = |entry: &mut Entry| {
            let late = self.looks.get() - entry.started > u64::from(LOOKS);
            entry.expired |= late;
            late.then(|| entry.waker.take()).flatten()
        };
        let wakers: Vec<Waker> = self.reads.borrow_mut().iter_mut().filter_map(expired).collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // No task is woken for a place that is free.
        self.deadlines.reads.borrow_mut()[self.at].waker = None;
        self.deadlines.free.borrow_mut().push(self.at);
        self.deadlines.in_flight.update(|reads| reads - 1);
    }
}

/// What `read` gives; `None` if that takes longer than the array's deadline for reads. `read` goes
/// on in that case.
pub(crate) fn in_time<F: Future + Unpin>(members: &Members, read: F) -> InTime<'_, F> {
    InTime { deadlines: &members.deadlines, read, place: None }
}

/// See [`in_time`]. No `async fn`: that would keep its argument twice, in every read.
pub(crate) struct InTime<'a, F> {
    deadlines: &'a Rc<Deadlines>,
    read: F,
    place: Option<Place<'a>>,
}

impl<F: Future + Unpin> Future for InTime<'_, F> {
    type Output = Option<F::Output>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let InTime { deadlines, read, place } = self.get_mut();
        if let Poll::Ready(value) = Pin::new(read).poll(context) {
            return Poll::Ready(Some(value));
        }
        let place = place.get_or_insert_with(|| {
            if !deadlines.looking.replace(true) {
                deadlines.core.spawn(look_while_reading(Rc::clone(deadlines)));
            }
            deadlines.enter()
        });
        let mut reads = deadlines.reads.borrow_mut();
        let entry = &mut reads[place.at];
        if entry.expired {
            return Poll::Ready(None);
        }
        if !entry.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            entry.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

async fn look_while_reading(deadlines: Rc<Deadlines>) {
    while deadlines.in_flight.get() > 0 {
        let pause = deadlines.core.sleep(deadlines.after.get() / LOOKS);
        if let Either::First(()) = race(pause, deadlines.changed.wait()).await {
            deadlines.look();
        }
    }
    deadlines.looking.set(false);
}
