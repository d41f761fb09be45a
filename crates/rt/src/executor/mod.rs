//! One core's executor: tasks, wakers, timers and the table of operations. Single-threaded; other
//! threads reach it only through [`CoreShared`].
//!
//! A turn takes what other cores sent, fires timers, polls tasks that were ready when the turn
//! began, gives the operations those started to the backend as one batch, sends other cores what is
//! for them, and takes the completions. Nothing is allocated per poll, per operation or per message
//! in the steady state.
//!
//! A turn polls all tasks that the end of an operation made ready, and half as many others, or
//! [`OTHERS_MIN`], those first that wait longest. So what was begun goes on while its buffers are
//! still in the processor's caches: a hundred requests at a time do not all begin before the first
//! goes on. Nor do tasks that are ready all the time keep others from beginning.

pub(crate) mod core;
mod deliver;
pub(crate) mod handle;
mod ops;
pub(crate) mod process;
mod reports;
pub(crate) mod serve;
pub(crate) mod shared;
pub mod sync;
mod tasks;
mod timers;
pub(crate) mod until_given_up;
mod wake;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::backend::{Backend, Wait};
use crate::base::atomics::{Ordering, mpsc};
use crate::base::on_core;
use crate::base::time::Instant;
use crate::device::Device;
use crate::executor::core::{Core, CoreIx};
use crate::executor::shared::{CoreShared, Job, Mail, Message, Outbox, Spare};
use crate::op::{Completion, Op, OpKey};
use ops::{OpSlot, OpState};
use tasks::{MAIN, Task, TaskFuture};
use wake::CURRENT;
pub(crate) use wake::{Wake, is_core_of_runtime};

/// So many tasks that no operation made ready are polled in a turn, if there are. Fewer would
/// change from one piece of the program to the next more often than its cache likes.
pub(crate) const OTHERS_MIN: usize = 32;

/// Makes a core the current one of this thread until dropped.
pub(crate) struct Entered(Option<Rc<Inner>>);

impl Drop for Entered {
    fn drop(&mut self) {
        let before = self.0.take();
        on_core::set(before.is_some());
        CURRENT.set(before);
    }
}

/// How long a core that ends waits for reads of drives.
const LINGER: Duration = Duration::from_secs(1);

/// The state of one core.
pub(crate) struct Inner {
    pub(crate) shared: Arc<CoreShared>,
    /// Wakes this core.
    bell: Waker,
    pub(crate) group: Arc<[Arc<CoreShared>]>,
    /// `None` once the core has ended.
    inbox: RefCell<Option<mpsc::Receiver<Mail>>>,
    /// By core.
    outboxes: RefCell<Vec<Outbox>>,
    /// Something is in an outbox.
    has_mail: Cell<bool>,
    spare: RefCell<Spare>,
    backend: RefCell<Box<dyn Backend>>,
    tasks: RefCell<Vec<Task>>,
    free_tasks: RefCell<Vec<u32>>,
    ready: RefCell<VecDeque<u32>>,
    /// The ready tasks that an operation's end made ready: they go first.
    resumed: RefCell<VecDeque<u32>>,
    /// Operations are ending: a task that becomes ready now was waiting for one.
    resuming: Cell<bool>,
    /// Identity of the waker of the task being polled, and its slot.
    polling: Cell<(*const (), u32)>,
    timers: RefCell<BTreeMap<(Instant, u64), Wake>>,
    timer_seq: Cell<u64>,
    turn_time: Cell<Instant>,
    /// How long it blocked for want of work.
    slept: Cell<Duration>,
    ops: RefCell<Vec<OpSlot>>,
    free_ops: RefCell<Vec<u32>>,
    in_flight: Cell<usize>,
    batch: RefCell<Vec<(OpKey, Op)>>,
    /// Done already, with how much they moved: they end with the next reap.
    finishing: RefCell<Vec<(OpKey, usize)>>,
    done: RefCell<Vec<Completion>>,
    /// Modelled drives on which something of this core may be in flight.
    watched: RefCell<Vec<Device>>,
    sleeps_exactly: Cell<bool>,
    pub(crate) locals: RefCell<BTreeMap<u64, Rc<dyn Any>>>,
}

impl Inner {
    pub(crate) fn new(
        shared: Arc<CoreShared>,
        group: Arc<[Arc<CoreShared>]>,
        inbox: mpsc::Receiver<Mail>,
        backend: Box<dyn Backend>,
    ) -> Rc<Inner> {
        let backend_now = backend.now();
        let outboxes = group.iter().map(|_| Outbox::default()).collect();
        let inner = Inner {
            bell: Waker::from(shared.clone()),
            shared,
            group,
            inbox: RefCell::new(Some(inbox)),
            outboxes: RefCell::new(outboxes),
            has_mail: Cell::new(false),
            spare: RefCell::default(),
            backend: RefCell::new(backend),
            tasks: RefCell::default(),
            free_tasks: RefCell::default(),
            ready: RefCell::default(),
            resumed: RefCell::default(),
            resuming: Cell::new(false),
            polling: Cell::new((std::ptr::null(), u32::MAX)),
            timers: RefCell::default(),
            timer_seq: Cell::new(0),
            turn_time: Cell::new(backend_now),
            slept: Cell::default(),
            ops: RefCell::default(),
            free_ops: RefCell::default(),
            in_flight: Cell::new(0),
            batch: RefCell::default(),
            finishing: RefCell::default(),
            done: RefCell::default(),
            watched: RefCell::default(),
            sleeps_exactly: Cell::new(false),
            locals: RefCell::default(),
        };
        let main = inner.new_task(Location::caller());
        debug_assert_eq!(main, MAIN);
        Rc::new(inner)
    }

    /// Makes this core the current one of the thread.
    pub(crate) fn enter(self: &Rc<Inner>) -> Entered {
        on_core::set(true);
        Entered(CURRENT.replace(Some(self.clone())))
    }

    pub(crate) fn now(&self) -> Instant {
        self.backend.borrow().now()
    }

    /// How long the core has slept for want of work. Virtual time passes in sleep alone.
    pub(crate) fn slept(&self) -> Duration {
        match self.is_simulated() {
            true => self.now().saturating_since(Instant::START),
            false => self.slept.get(),
        }
    }

    /// Processor time that this thread has used.
    pub(crate) fn worked(&self) -> Duration {
        if self.is_simulated() { Duration::ZERO } else { process::thread_time() }
    }

    fn is_simulated(&self) -> bool {
        self.backend.borrow().is_simulated()
    }

    pub(crate) fn with_backend<T>(&self, f: impl FnOnce(&mut dyn Backend) -> T) -> T {
        f(&mut **self.backend.borrow_mut())
    }

    /// True if a task could run, or something from elsewhere waits to be looked at.
    pub(crate) fn has_work(&self) -> bool {
        !self.ready.borrow().is_empty()
            || !self.resumed.borrow().is_empty()
            || !self.finishing.borrow().is_empty()
    }

    /// True if operations wait for the next batch.
    pub(crate) fn has_queued(&self) -> bool {
        !self.batch.borrow().is_empty()
    }

    /// Takes what other cores sent; true if there was anything.
    pub(crate) fn take_news(self: &Rc<Inner>) -> bool {
        let woken = self.shared.take_woken();
        let mut any = !woken.is_empty();
        woken.into_iter().for_each(|slot| self.make_ready(slot));
        while let Some(mail) = self.next_mail() {
            let core = Core::of(self.clone());
            match mail {
                Mail::Job(job) => job(core),
                Mail::Messages(mut messages) => {
                    messages.deliver(&core);
                    self.spare.borrow_mut().keep(messages);
                }
            }
            any = true;
        }
        any
    }

    fn next_mail(&self) -> Option<Mail> {
        // Nothing stays borrowed: mail that is dropped or delivered may do anything.
        self.inbox.borrow().as_ref()?.try_recv().ok()
    }

    /// Drops what other threads have sent since, and refuses what they will send. The inbox goes
    /// even if something keeps the rest of the core alive for ever.
    pub(crate) fn close(&self) {
        drop(self.inbox.take());
    }

    /// Sends work to another core, at the end of this turn.
    pub(crate) fn post_job(&self, to: CoreIx, job: Job) {
        self.put_in_outbox(to, |outbox| outbox.put_job(job));
    }

    /// Sends a message to another core, at the end of this turn.
    pub(crate) fn post(&self, to: CoreIx, message: impl Message) {
        self.put_in_outbox(to, |outbox| outbox.put_message(message, &mut self.spare.borrow_mut()));
    }

    /// Wakes a task of another core, at the end of this turn; `false` if that is none of this
    /// runtime.
    fn post_wake(&self, to: &Arc<CoreShared>, slot: u32) -> bool {
        let known = self.group.get(to.ix.0).is_some_and(|core| Arc::ptr_eq(core, to));
        if known {
            self.put_in_outbox(to.ix, |outbox| outbox.put_woken(slot));
        }
        known
    }

    fn put_in_outbox(&self, to: CoreIx, put: impl FnOnce(&mut Outbox)) {
        let full = {
            let outbox = &mut self.outboxes.borrow_mut()[to.0];
            put(outbox);
            outbox.is_full()
        };
        self.has_mail.set(true);
        if full {
            self.send_mail();
        }
    }

    /// Sends other cores what is for them.
    fn send_mail(&self) {
        if !self.has_mail.replace(false) {
            return;
        }
        for (to, core) in self.group.iter().enumerate() {
            // Nothing is borrowed while it is sent: work for a core that is gone is dropped here,
            // and may wake others.
            let mut outbox = std::mem::take(&mut self.outboxes.borrow_mut()[to]);
            if !outbox.is_empty() {
                core.deliver(&mut outbox);
            }
            let next = &mut self.outboxes.borrow_mut()[to];
            if next.is_empty() {
                *next = outbox;
            }
        }
    }

    /// Blocks until there is news, unless there is some already.
    pub(crate) fn sleep(self: &Rc<Inner>) {
        self.shared.fall_asleep();
        let wait = if self.take_news() || self.has_work() || self.shared.stop.load(Ordering::Acquire) {
            Wait::No
        } else {
            Wait::Until(self.next_timer())
        };
        if matches!(wait, Wait::No) {
            self.reap(wait);
        } else {
            let began = self.now();
            self.reap(wait);
            self.slept.update(|slept| slept + self.now().saturating_since(began));
        }
        self.shared.wake_up();
    }

    /// Drops every task, timer and local value, then waits for the operations the kernel still
    /// holds, but not for long for those that change nothing: a drive that hangs would keep the
    /// process. After this nothing refers to the core from inside itself.
    pub(crate) fn shut_down(self: &Rc<Inner>, wait_for_ops: bool) {
        let _entered = self.enter();
        // Dropping may spawn, put or send again; a bound ends a destructor that never stops.
        for _ in 0..64 {
            while self.next_mail().is_some() {}
            let futures: Vec<TaskFuture> =
                self.tasks.borrow_mut().iter_mut().filter_map(|task| task.future.take()).collect();
            let timers = std::mem::take(&mut *self.timers.borrow_mut());
            let locals = std::mem::take(&mut *self.locals.borrow_mut());
            if futures.is_empty() && timers.is_empty() && locals.is_empty() {
                break;
            }
            drop((futures, timers, locals));
        }
        self.send_mail();
        if !wait_for_ops {
            self.batch.borrow_mut().clear();
            self.forget_reports();
            return;
        }
        // Futures held elsewhere may still want an outcome; but nothing will poll them any more.
        let waiting: Vec<OpKey> = (0..self.ops.borrow().len()).map(|index| OpKey(index as u32)).collect();
        for key in waiting {
            let pending = matches!(self.ops.borrow()[key.0 as usize].state, OpState::Pending { .. });
            if pending {
                self.forget_op(key);
            }
        }
        let until = self.now() + LINGER;
        while self.in_flight() > 0 {
            let awaited = self.must_be_awaited();
            if !awaited && self.now() >= until {
                break;
            }
            self.submit();
            // The reap looks for results once more after this and only then blocks.
            self.shared.fall_asleep();
            self.reap(Wait::Until((!awaited).then_some(until)));
        }
    }
}
