//! The tasks that work on stripes.
//!
//! To make a task for each stripe would cost more than most stripes' work. So a task that is done
//! with a stripe waits for a while to be given another.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::{Active, StripeLevel, serve};
use crate::model::units::StripeNo;

/// Tasks that wait at most; more end.
const IDLE_MAX: usize = 256;

/// The tasks of one core that have nothing to do.
#[derive(Default)]
pub(super) struct Workers {
    idle: RefCell<Vec<Rc<Active>>>,
    ended: Cell<bool>,
}

/// How a task is given something to do.
#[derive(Default)]
pub(super) struct Worker {
    given: Cell<Option<StripeNo>>,
    /// Once it has waited for the first time.
    waker: RefCell<Option<Waker>>,
}

impl Workers {
    /// The place of a task that has nothing to do, or of one that is to be made.
    pub fn take(&self) -> Rc<Active> {
        self.idle.borrow_mut().pop().unwrap_or_default()
    }

    /// The array is stopped: nothing is to come.
    pub fn end(&self) {
        self.ended.set(true);
        for active in self.idle.take() {
            active.worker.wake();
        }
    }

    /// Waits to be given something; `false` if the task is not needed any more.
    async fn wait(&self, active: &Rc<Active>) -> bool {
        let mut waits = false;
        poll_fn(|context| {
            let worker = &active.worker;
            if worker.given.get().is_some() {
                return Poll::Ready(true);
            }
            let mut idle = self.idle.borrow_mut();
            if self.ended.get() || (!waits && idle.len() >= IDLE_MAX) {
                return Poll::Ready(false);
            }
            let mut waker = worker.waker.borrow_mut();
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                *waker = Some(context.waker().clone());
            }
            if !waits {
                idle.push(active.clone());
                waits = true;
            }
            Poll::Pending
        })
        .await
    }
}

impl Worker {
    /// Wakes the task; `false` if there is none yet.
    fn wake(&self) -> bool {
        self.waker.borrow().as_ref().inspect(|waker| waker.wake_by_ref()).is_some()
    }
}

/// Has the task of a place work on a stripe.
pub(super) fn start<L: StripeLevel>(level: &Rc<L>, stripe: StripeNo, active: Rc<Active>) {
    active.worker.given.set(Some(stripe));
    if !active.worker.wake() {
        drop(level.leases().core.spawn(work(level.clone(), active)));
    }
}

async fn work<L: StripeLevel>(level: Rc<L>, active: Rc<Active>) {
    loop {
        if let Some(stripe) = active.worker.given.take() {
            serve(&level, stripe, &active).await;
        }
        if !level.leases().stripes.workers.wait(&active).await {
            return;
        }
    }
}
