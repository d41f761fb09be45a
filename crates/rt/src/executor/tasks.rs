//! The table of tasks, and what polls them.

use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::Inner;
use super::wake::SlotWaker;

/// A task's future.
pub(super) type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// The slot of the main future, which the caller of the turn holds.
pub(super) const MAIN: u32 = 0;

pub(super) struct Task {
    pub future: Option<TaskFuture>,
    waker: Waker,
    queued: bool,
    live: bool,
    spawned: &'static Location<'static>,
}

impl Inner {
    pub(super) fn new_task(&self, spawned: &'static Location<'static>) -> u32 {
        let mut tasks = self.tasks.borrow_mut();
        let slot = match self.free_tasks.borrow_mut().pop() {
            Some(slot) => {
                let task = &mut tasks[slot as usize];
                (task.live, task.spawned) = (true, spawned);
                slot
            }
            None => {
                let slot = u32::try_from(tasks.len()).expect("fewer tasks than memory");
                let waker = Waker::from(Arc::new(SlotWaker { core: self.shared.clone(), slot }));
                tasks.push(Task { future: None, waker, queued: false, live: true, spawned });
                slot
            }
        };
        drop(tasks);
        self.make_ready(slot);
        slot
    }

    pub(crate) fn spawn(&self, future: TaskFuture, spawned: &'static Location<'static>) {
        let slot = self.new_task(spawned);
        self.tasks.borrow_mut()[slot as usize].future = Some(future);
    }

    pub(super) fn make_ready(&self, slot: u32) {
        let mut tasks = self.tasks.borrow_mut();
        let task = &mut tasks[slot as usize];
        if task.live && !task.queued {
            task.queued = true;
            let queue = if self.resuming.get() { &self.resumed } else { &self.ready };
            queue.borrow_mut().push_back(slot);
        }
    }

    /// Polls the tasks that an operation made ready, and of the others that are ready now half as
    /// many, or up to `limit`; those they wake wait for a later turn, so that operations leave.
    /// True if the main future is done.
    pub(crate) fn run_ready(&self, mut main: Pin<&mut dyn Future<Output = ()>>, limit: usize) -> bool {
        let others = self.ready.borrow().len().min((self.resumed.borrow().len() / 2).max(limit));
        loop {
            let resumed = self.resumed.borrow_mut().pop_front();
            let Some(slot) = resumed else { break };
            if self.poll_task(slot, main.as_mut()) {
                return true;
            }
        }
        for _ in 0..others {
            let ready = self.ready.borrow().len();
            let chosen = self.backend.borrow_mut().pick(ready);
            let Some(slot) = self.ready.borrow_mut().remove(chosen) else { break };
            if self.poll_task(slot, main.as_mut()) {
                return true;
            }
        }
        false
    }

    /// Polls one task; true if it was the main future and is done.
    fn poll_task(&self, slot: u32, main: Pin<&mut dyn Future<Output = ()>>) -> bool {
        let (future, waker) = {
            let mut tasks = self.tasks.borrow_mut();
            let task = &mut tasks[slot as usize];
            task.queued = false;
            // The waker is lent out, not cloned: a poll touches no reference count.
            (task.future.take(), std::mem::replace(&mut task.waker, Waker::noop().clone()))
        };
        let mut context = Context::from_waker(&waker);
        let outer = self.polling.replace((waker.data(), slot));
        let (poll, future) = match future {
            Some(mut future) => (future.as_mut().poll(&mut context), Some(future)),
            None if slot == MAIN => (main.poll(&mut context), None),
            None => (Poll::Pending, None),
        };
        self.polling.set(outer);

        let finished = poll.is_ready();
        {
            let mut tasks = self.tasks.borrow_mut();
            let task = &mut tasks[slot as usize];
            task.waker = waker;
            if !finished {
                task.future = future;
                return false;
            }
            task.live = false;
        }
        if slot == MAIN {
            return true;
        }
        // The future's own drop may spawn, wake or start operations: no table is borrowed here.
        // Only then may the slot be used again.
        drop(future);
        self.free_tasks.borrow_mut().push(slot);
        false
    }

    /// Where each live task was spawned, for the report of a world that is stuck.
    pub(crate) fn live_tasks(&self) -> Vec<&'static Location<'static>> {
        self.tasks.borrow().iter().skip(1).filter(|task| task.live).map(|task| task.spawned).collect()
    }
}
