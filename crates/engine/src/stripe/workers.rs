//! The tasks that work on stripes.
//!
//! To make a task for each stripe would cost more than most stripes' work. So a task that is done with a stripe waits for a while
//! to be given another.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::serve;
use crate::array::Shard;
use crate::units::StripeNo;

/// Tasks that wait at most; more end.
const IDLE_MAX: usize = 256;

/// The tasks of one core that have nothing to do.
#[derive(Default)]
pub(super) struct Workers {
    idle: RefCell<Vec<Idle>>,
    ended: Cell<bool>,
}

/// A task that waits, and where it finds what it is given.
struct Idle {
    given: Rc<Cell<Option<StripeNo>>>,
    waker: Waker,
}

impl Workers {
    /// Has a task work on a stripe.
    pub fn start(&self, shard: &Rc<Shard>, stripe: StripeNo) {
        let idle = self.idle.borrow_mut().pop();
        match idle {
            Some(Idle { given, waker }) => {
                given.set(Some(stripe));
                waker.wake();
            }
            None => drop(shard.core.spawn(work(shard.clone(), stripe))),
        }
    }

    /// The array is stopped: nothing is to come.
    pub fn end(&self) {
        self.ended.set(true);
        let idle = self.idle.take();
        idle.into_iter().for_each(|idle| idle.waker.wake());
    }

    /// Waits to be given something; `false` if the task is not needed any more.
    async fn wait(&self, given: &Rc<Cell<Option<StripeNo>>>) -> bool {
        let mut waits = false;
        poll_fn(|context| {
            if given.get().is_some() {
                return Poll::Ready(true);
            }
            let mut idle = self.idle.borrow_mut();
            if self.ended.get() || (!waits && idle.len() >= IDLE_MAX) {
                return Poll::Ready(false);
            }
            if !waits {
                idle.push(Idle { given: given.clone(), waker: context.waker().clone() });
                waits = true;
            }
            Poll::Pending
        })
        .await
    }
}

async fn work(shard: Rc<Shard>, first: StripeNo) {
    let given = Rc::new(Cell::new(Some(first)));
    loop {
        if let Some(stripe) = given.take() {
            serve(&shard, stripe).await;
        }
        if !shard.stripes.workers.wait(&given).await {
            return;
        }
    }
}
