//! Wakers: of tasks, by their slot, from this core or any other thread.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use super::Inner;
use crate::executor::shared::CoreShared;

/// The waker of one task slot. Lives as long as the slot, so tasks that reuse the slot reuse it
/// too; a wake that comes late then polls a stranger once, which is harmless.
pub(super) struct SlotWaker {
    pub core: Arc<CoreShared>,
    pub slot: u32,
}

impl std::task::Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let told = CURRENT.try_with(|current| match &*current.borrow() {
            Some(inner) if Arc::ptr_eq(&inner.shared, &self.core) => {
                inner.make_ready(self.slot);
                true
            }
            Some(inner) => inner.post_wake(&self.core, self.slot),
            None => false,
        });
        if told != Ok(true) {
            self.core.wake_task(self.slot);
        }
    }
}

thread_local! {
    /// The core whose turn this thread runs.
    pub(super) static CURRENT: RefCell<Option<Rc<Inner>>> = const { RefCell::new(None) };
}

/// Whether this thread runs a core of the same runtime, which must not wait for that one.
pub(crate) fn is_core_of_runtime(core: &Arc<CoreShared>) -> bool {
    CURRENT.with_borrow(|current| {
        let known = current.as_ref().and_then(|inner| inner.group.get(core.ix.0));
        known.is_some_and(|known| Arc::ptr_eq(known, core))
    })
}

/// What to wake: a task of this core by its slot, which costs nothing to remember, or any other
/// waker.
#[derive(Clone, Debug)]
pub(crate) enum Wake {
    Task(u32),
    Other(Waker),
}

impl Wake {
    /// The task that is being polled, for what never leaves this core.
    pub(crate) fn of(context: &Context<'_>) -> Wake {
        CURRENT.with_borrow(|current| match current {
            Some(inner) => inner.wake_of(context),
            None => Wake::Other(context.waker().clone()),
        })
    }

    /// Wakes, on the core on which this was made.
    pub(crate) fn wake(self) {
        match self {
            // Between turns no core is current: then the runtime ends, and nothing is polled any
            // more.
            Wake::Task(slot) => CURRENT.with_borrow(|current| {
                current.iter().for_each(|inner| inner.make_ready(slot));
            }),
            Wake::Other(waker) => waker.wake(),
        }
    }

    /// Whether both wake the same task.
    pub(crate) fn same(&self, other: &Wake) -> bool {
        match (self, other) {
            (Wake::Task(one), Wake::Task(other)) => one == other,
            (Wake::Other(one), Wake::Other(other)) => one.will_wake(other),
            _ => false,
        }
    }
}

impl Inner {
    /// Remembers what to wake, without touching a reference count if it is the task being polled.
    pub(crate) fn wake_of(&self, context: &Context<'_>) -> Wake {
        let (waker, slot) = self.polling.get();
        if std::ptr::eq(context.waker().data(), waker) {
            Wake::Task(slot)
        } else {
            Wake::Other(context.waker().clone())
        }
    }

    pub(crate) fn wake(&self, wake: Wake) {
        match wake {
            Wake::Task(slot) => self.make_ready(slot),
            Wake::Other(waker) => waker.wake(),
        }
    }
}
