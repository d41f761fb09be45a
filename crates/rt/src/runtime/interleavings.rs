//! Every interleaving of a core that falls asleep and what wakes it: `scripts/checkers loom`.
//!
//! The invariant is that of [`crate::executor::shared`]: a core that sleeps is woken by everything
//! that comes for it. Here it waits as it does over plain system calls: for its event alone, which
//! orders nothing. A core that is not woken waits for ever, which fails a model. All fail if a
//! notification that finds `asleep` does not ring. The order of the exchange of `asleep` cannot be
//! missed: the fences are enough.

use std::future::{pending, poll_fn};
use std::sync::PoisonError;
use std::task::Poll;

use loom::sync::Mutex;
use loom::sync::atomic::AtomicU32;
use loom::thread;

use super::*;
use crate::base::time::{Instant, WallTime};
use crate::executor::shared::Outbox;
use crate::op::{Completion, Op, OpKey};

/// The slot of the main future.
const MAIN: u32 = 0;

/// What a thread of the backend has done, as operations that ended on a drive are.
#[derive(Default)]
struct Done(Mutex<u32>);

impl Done {
    /// A thread of the backend ends an operation.
    fn put(&self, core: &Arc<CoreShared>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Waker::from(core.clone()).wake_by_ref();
    }

    fn get(&self) -> u32 {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits as the backend of plain system calls does: it looks for what its threads have done, waits
/// for the event, and looks again.
struct Sleeper {
    event: Arc<EventFd>,
    done: Arc<Done>,
    core: Arc<CoreShared>,
}

impl Sleeper {
    /// The end of an operation makes the task ready that waits for it.
    fn look(&self) -> bool {
        let any = self.done.get() > 0;
        if any {
            self.core.stop.store(true, Ordering::Relaxed);
        }
        any
    }
}

impl Backend for Sleeper {
    fn submit(&mut self, _: &mut Vec<(OpKey, Op)>) {}

    fn reap(&mut self, _: &mut Vec<Completion>, wait: Wait) -> bool {
        if !self.look() && wait != Wait::No {
            self.event.wait(|| false);
            self.look();
        }
        false
    }

    fn cancel(&mut self, _: OpKey) {}

    fn now(&self) -> Instant {
        Instant::START
    }

    fn wall_clock(&self) -> WallTime {
        WallTime { secs: 0, micros: 0 }
    }
}

/// A core, what its backend's threads tell it, and what others know of it.
fn core() -> (Rc<Inner>, Arc<Done>, Arc<CoreShared>) {
    let event = Arc::new(EventFd::new().expect("it is no system's"));
    let (shared, inbox) = CoreShared::new(CoreIx(0), Some(event.clone()));
    let done = Arc::new(Done::default());
    let sleeper = Sleeper { event, done: done.clone(), core: shared.clone() };
    let inner = Inner::new(shared.clone(), Arc::new([shared.clone()]), inbox, Box::new(sleeper));
    (inner, done, shared)
}

/// Work that ends the core which does it.
fn last(count: &Arc<AtomicU32>, expected: u32) -> crate::executor::shared::Job {
    let count = count.clone();
    Box::new(move |core| {
        assert_eq!(count.load(Ordering::Relaxed), expected, "work comes with what was before it");
        core.shared().stop.store(true, Ordering::Relaxed);
    })
}

/// Fails without either fence or with one that is weaker than `SeqCst`, without the store of
/// `asleep` or with it after the second look, without that look, and if a send does not notify, or
/// does before the work is in place.
#[test]
fn work_wakes_a_core_that_sleeps() {
    loom::model(|| {
        let (inner, _, shared) = core();
        let count = Arc::new(AtomicU32::new(0));
        let sends = thread::spawn(move || {
            count.store(1, Ordering::Relaxed);
            shared.send(last(&count, 1));
        });
        run_core(&inner, pin!(pending()));
        sends.join().expect("it ends well");
    });
}

/// Fails for the same reasons. Without `wake_up` it would pass: that saves rings.
#[test]
fn a_core_that_was_woken_is_woken_again() {
    loom::model(|| {
        let (inner, _, shared) = core();
        let count = Arc::new(AtomicU32::new(0));
        let sends = thread::spawn(move || {
            shared.send(Box::new(drop));
            count.store(1, Ordering::Relaxed);
            shared.send(last(&count, 1));
        });
        run_core(&inner, pin!(pending()));
        sends.join().expect("it ends well");
    });
}

fn bounded(preemptions: usize) -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model
}

/// Wakes the main task twice: only the second time there is what it waits for. Fails if
/// `has_woken` is not stored or is before the task is in the list, if it is cleared after the list
/// is taken, if the look before the sleep does not take the list, and without the notification. The
/// orders of `has_woken` cannot be missed: the list's lock brings them along.
fn a_task_is_woken_twice(wake: fn(&CoreShared)) {
    bounded(3).check(move || {
        let (inner, _, shared) = core();
        let count = Arc::new(AtomicU32::new(0));
        let wakes = thread::spawn({
            let count = count.clone();
            move || {
                for number in 1..=2 {
                    count.store(number, Ordering::Relaxed);
                    wake(&shared);
                }
            }
        });
        let is_there = || count.load(Ordering::Relaxed) == 2;
        run_core(&inner, pin!(poll_fn(|_| if is_there() { Poll::Ready(()) } else { Poll::Pending })));
        wakes.join().expect("it ends well");
    });
}

#[test]
fn a_task_that_a_thread_wakes_sees_what_it_was_woken_for() {
    a_task_is_woken_twice(|core| core.wake_task(MAIN));
}

#[test]
fn a_task_that_another_core_wakes_sees_what_it_was_woken_for() {
    a_task_is_woken_twice(|core| {
        let mut outbox = Outbox::default();
        outbox.put_woken(MAIN);
        core.deliver(&mut outbox);
    });
}

/// Fails with `Relaxed` in the store of `stop` or in the load of [`run_core`], if `stop` is not
/// looked at before the sleep, and if the notification is missing or comes before the store. The
/// order of the look before the sleep cannot be missed: [`run_core`] looks again.
#[test]
fn the_end_of_the_runtime_wakes() {
    loom::model(|| {
        let (inner, _, shared) = core();
        let count = Arc::new(AtomicU32::new(0));
        let ends = thread::spawn({
            let count = count.clone();
            move || {
                count.store(1, Ordering::Relaxed);
                // The first core of a team is not stopped by it.
                drop(Team { group: Arc::new([shared.clone(), shared]), threads: Vec::new() });
            }
        });
        run_core(&inner, pin!(pending()));
        assert_eq!(count.load(Ordering::Relaxed), 1, "it ends with what was before the end");
        ends.join().expect("it ends well");
    });
}

/// Fails if the waker of a core rings no bell, and without the store of `asleep`. Here the lock of
/// what is done would do instead of the fences.
#[test]
fn what_a_thread_of_the_backend_has_done_wakes() {
    loom::model(|| {
        let (inner, done, shared) = core();
        let works = thread::spawn(move || done.put(&shared));
        run_core(&inner, pin!(pending()));
        works.join().expect("it ends well");
    });
}

/// The wait for operations that are in flight when the runtime ends, after which nothing is looked
/// for but what the backend has.
#[test]
fn what_a_thread_of_the_backend_has_done_ends_the_last_wait() {
    loom::model(|| {
        let (inner, done, shared) = core();
        let works = thread::spawn({
            let done = done.clone();
            move || done.put(&shared)
        });
        while done.get() == 0 {
            inner.shared.fall_asleep();
            inner.reap(Wait::Until(None));
        }
        works.join().expect("it ends well");
    });
}

/// One finds the core awake, or takes the word that says that it sleeps, while the other leaves its
/// news: at most three switches that no thread asked for. Fails for the reasons of the first model.
#[test]
fn of_two_that_leave_news_each_is_heard() {
    bounded(3).check(|| {
        let (inner, _, shared) = core();
        let count = Arc::new(AtomicU32::new(0));
        let sends = [0, 1].map(|number| {
            let (shared, count) = (shared.clone(), count.clone());
            thread::spawn(move || {
                let mut outbox = Outbox::default();
                let counted = count.clone();
                outbox.put_job(Box::new(move |core| {
                    if counted.fetch_add(1, Ordering::Relaxed) == 1 {
                        core.shared().stop.store(true, Ordering::Relaxed);
                    }
                }));
                if number == 0 {
                    outbox.put_woken(MAIN);
                }
                shared.deliver(&mut outbox);
            })
        });
        run_core(&inner, pin!(pending()));
        assert_eq!(count.load(Ordering::Relaxed), 2);
        sends.into_iter().for_each(|sends| sends.join().expect("it ends well"));
    });
}
