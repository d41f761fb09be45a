//! One core's executor: tasks, wakers, timers and the table of operations. Single-threaded; other threads reach it
//! only through [`CoreShared`].
//!
//! A turn takes what other cores sent, fires timers, polls every task that was ready when the turn began, gives the
//! operations those started to the backend as one batch, sends other cores what is for them, and takes the completions. Nothing
//! is allocated per poll or per operation in the steady state.

use crate::backend::{Backend, Wait};
use crate::core::{Core, CoreIx};
use crate::device::{Device, run_inline};
use crate::error::IoError;
use crate::op::{Done, Key, Op, Progress};
use crate::process;
use crate::serve::{self, Serve};
use crate::shared::{CoreShared, Job, Mail, Message, Outbox};
use crate::time::Instant;
use crate::traffic::{Counted, Traffic};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};

/// A task's future.
type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// The slot of the main future, which the caller of the turn holds.
const MAIN: u32 = 0;

/// The waker of one task slot. Lives as long as the slot, so tasks that reuse the slot reuse it too; a wake that
/// comes late then polls a stranger once, which is harmless.
struct SlotWaker {
    core: Arc<CoreShared>,
    slot: u32,
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
    static CURRENT: RefCell<Option<Rc<Inner>>> = const { RefCell::new(None) };
}

/// Whether this thread runs a core of the same runtime, which must not wait for that one.
pub(crate) fn is_core_of_runtime(core: &Arc<CoreShared>) -> bool {
    CURRENT.with_borrow(|current| {
        let known = current.as_ref().and_then(|inner| inner.group.get(core.ix.0));
        known.is_some_and(|known| Arc::ptr_eq(known, core))
    })
}

/// Makes a core the current one of this thread until dropped.
pub(crate) struct Entered(Option<Rc<Inner>>);

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Whom to wake: a task of this core by its slot, which costs nothing to remember, or any other waker.
#[derive(Clone, Debug)]
pub(crate) enum Wake {
    Task(u32),
    Other(Waker),
}

impl Wake {
    /// Whoever is being polled, for what never leaves this core.
    pub(crate) fn of(context: &Context<'_>) -> Wake {
        CURRENT.with_borrow(|current| match current {
            Some(inner) => inner.wake_of(context),
            None => Wake::Other(context.waker().clone()),
        })
    }

    /// Wakes, on the core on which this was made.
    pub(crate) fn wake(self) {
        match self {
            // Between turns no core is current: then the runtime ends, and nobody polls any more.
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

struct Task {
    future: Option<TaskFuture>,
    waker: Waker,
    queued: bool,
    live: bool,
    spawned: &'static Location<'static>,
}

enum OpState {
    Free,
    /// `peer`: it waits on a peer, so it is cancelled once nobody wants it. Anything else runs to its end.
    Pending {
        wake: Option<Wake>,
        wanted: bool,
        peer: bool,
    },
    Done(Result<usize, IoError>, Op),
}

struct OpSlot {
    state: OpState,
    counted: Option<Counted>,
    started: &'static Location<'static>,
}

/// The state of one core.
pub(crate) struct Inner {
    pub(crate) shared: Arc<CoreShared>,
    pub(crate) group: Arc<[Arc<CoreShared>]>,
    inbox: mpsc::Receiver<Vec<Mail>>,
    /// By core.
    outboxes: RefCell<Vec<Outbox>>,
    /// Something is in an outbox.
    has_mail: Cell<bool>,
    backend: RefCell<Box<dyn Backend>>,
    tasks: RefCell<Vec<Task>>,
    free_tasks: RefCell<Vec<u32>>,
    ready: RefCell<VecDeque<u32>>,
    /// Identity of the waker of the task being polled, and its slot.
    polling: Cell<(*const (), u32)>,
    timers: RefCell<BTreeMap<(Instant, u64), Wake>>,
    timer_seq: Cell<u64>,
    turn_time: Cell<Instant>,
    ops: RefCell<Vec<OpSlot>>,
    free_ops: RefCell<Vec<u32>>,
    in_flight: Cell<usize>,
    batch: RefCell<Vec<(Key, Op)>>,
    /// For drives in memory: the next reap carries them out, all at once, and they are done.
    inline: RefCell<Vec<Done>>,
    done: RefCell<Vec<Done>>,
    /// Modelled drives on which something of this core may be in flight.
    watched: RefCell<Vec<Device>>,
    sleeps_exactly: Cell<bool>,
    pub(crate) locals: RefCell<BTreeMap<u64, Rc<dyn Any>>>,
}

impl Inner {
    pub(crate) fn new(
        shared: Arc<CoreShared>,
        group: Arc<[Arc<CoreShared>]>,
        inbox: mpsc::Receiver<Vec<Mail>>,
        backend: Box<dyn Backend>,
    ) -> Rc<Inner> {
        let backend_now = backend.now();
        let outboxes = group.iter().map(|_| Outbox::default()).collect();
        let inner = Inner {
            shared,
            group,
            inbox,
            outboxes: RefCell::new(outboxes),
            has_mail: Cell::new(false),
            backend: RefCell::new(backend),
            tasks: RefCell::default(),
            free_tasks: RefCell::default(),
            ready: RefCell::default(),
            polling: Cell::new((std::ptr::null(), u32::MAX)),
            timers: RefCell::default(),
            timer_seq: Cell::new(0),
            turn_time: Cell::new(backend_now),
            ops: RefCell::default(),
            free_ops: RefCell::default(),
            in_flight: Cell::new(0),
            batch: RefCell::default(),
            inline: RefCell::default(),
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
        Entered(CURRENT.replace(Some(self.clone())))
    }

    // Tasks.

    fn new_task(&self, spawned: &'static Location<'static>) -> u32 {
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

    fn make_ready(&self, slot: u32) {
        let mut tasks = self.tasks.borrow_mut();
        let task = &mut tasks[slot as usize];
        if task.live && !task.queued {
            task.queued = true;
            self.ready.borrow_mut().push_back(slot);
        }
    }

    /// Remembers whom to wake, without touching a reference count if it is the task being polled.
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

    /// True if a task could run, or something from elsewhere waits to be looked at.
    pub(crate) fn has_work(&self) -> bool {
        !self.ready.borrow().is_empty() || !self.inline.borrow().is_empty()
    }

    /// Takes what other cores sent; true if there was anything.
    pub(crate) fn take_news(self: &Rc<Inner>) -> bool {
        let woken = self.shared.take_woken();
        let mut any = !woken.is_empty();
        woken.into_iter().for_each(|slot| self.make_ready(slot));
        while let Ok(mail) = self.inbox.try_recv() {
            let core = Core::of(self.clone());
            mail.into_iter().for_each(|mail| mail.open(&core));
            any = true;
        }
        any
    }

    /// Sends work to another core, at the end of this turn.
    pub(crate) fn post_job(&self, to: CoreIx, job: Job) {
        self.put_in_outbox(to, |outbox| outbox.put_job(job));
    }

    /// Sends a message to another core, at the end of this turn.
    pub(crate) fn post(&self, to: CoreIx, message: impl Message) {
        self.put_in_outbox(to, |outbox| outbox.put_message(message));
    }

    /// Wakes a task of another core, at the end of this turn; `false` if that is none of this runtime.
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
            // Nothing is borrowed while it is sent: work for a core that is gone is dropped here, and may wake others.
            let outbox = std::mem::take(&mut self.outboxes.borrow_mut()[to]);
            if !outbox.is_empty() {
                core.deliver(outbox);
            }
        }
    }

    /// Polls the tasks that are ready now; those they wake wait for the next turn, so that operations leave. True if
    /// the main future is done.
    pub(crate) fn run_ready(&self, main: Pin<&mut dyn Future<Output = ()>>, limit: usize) -> bool {
        let mut main = main;
        let count = self.ready.borrow().len().min(limit);
        for _ in 0..count {
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
        // The future's own drop may spawn, wake or start operations: no table is borrowed here. Only then may the
        // slot be used again.
        drop(future);
        self.free_tasks.borrow_mut().push(slot);
        false
    }

    // Timers.

    pub(crate) fn now(&self) -> Instant {
        self.backend.borrow().now()
    }

    fn is_simulated(&self) -> bool {
        self.backend.borrow().is_simulated()
    }

    pub(crate) fn with_backend<T>(&self, f: impl FnOnce(&mut dyn Backend) -> T) -> T {
        f(&mut **self.backend.borrow_mut())
    }

    /// Sets a timer, in order of deadlines and, among equals, of this call.
    pub(crate) fn set_timer(&self, deadline: Instant, wake: Wake) -> (Instant, u64) {
        let seq = self.timer_seq.get();
        self.timer_seq.set(seq + 1);
        self.timers.borrow_mut().insert((deadline, seq), wake);
        (deadline, seq)
    }

    /// Changes whom a timer wakes; false if it has fired.
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

    // Operations.

    /// Queues an operation for the next batch. Drives in memory are served by this core itself, under every backend alike.
    pub(crate) fn start(self: &Rc<Inner>, op: Op, started: &'static Location<'static>) -> Key {
        let key = self.new_op(started);
        if let Some(served) = op.device().and_then(Device::as_served) {
            let server = served.server.clone();
            self.start_served(server, key, op, started);
            return key;
        }
        if op.waits_on_peer() {
            self.ops.borrow_mut()[key.0 as usize].state =
                OpState::Pending { wake: None, wanted: true, peer: true };
        }
        self.in_flight.set(self.in_flight.get() + 1);
        match op.device() {
            Some(device) if device.is_inline() => {
                self.inline.borrow_mut().push(Done { key, result: Ok(0), op });
            }
            Some(device) if device.as_modelled().is_some() && !self.is_simulated() => {
                let device = device.clone();
                self.start_modelled(&device, key, op);
            }
            _ => self.batch.borrow_mut().push((key, op)),
        }
        key
    }

    /// A task does it. It is not among the operations that are waited for when the runtime ends: its own are.
    fn start_served(
        self: &Rc<Inner>,
        server: Arc<dyn Serve>,
        key: Key,
        mut op: Op,
        started: &'static Location<'static>,
    ) {
        let inner = self.clone();
        let task = async move {
            let result = serve::carry_out(&Core::of(inner.clone()), &*server, &mut op).await;
            inner.settle(key, result, op);
        };
        self.spawn(Box::pin(task), started);
    }

    fn start_modelled(&self, device: &Device, key: Key, op: Op) {
        let mut watched = self.watched.borrow_mut();
        if !watched.iter().any(|watched| watched.same(device)) {
            if !self.sleeps_exactly.replace(true) {
                process::sleep_exactly();
            }
            watched.push(device.clone());
        }
        if let Some(drive) = device.as_modelled() {
            drive.submit(self.shared.clone(), key, op);
        }
    }

    /// Takes what completed on modelled drives; answers how long a reap may block before there is more.
    fn look_at_modelled(&self, done: &mut Vec<Done>, wait: Wait) -> Wait {
        let mut watched = self.watched.borrow_mut();
        let mut again = None;
        watched.retain(|device| {
            let look = device.as_modelled().and_then(|drive| drive.look(&self.shared, done));
            again = [again, look].into_iter().flatten().min();
            look.is_some()
        });
        match (wait, again) {
            (Wait::Until(until), Some(again)) => {
                let again = self.now() + again;
                Wait::Until(Some(until.map_or(again, |until| until.min(again))))
            }
            (wait, _) => wait,
        }
    }

    /// An operation that needs no backend: its outcome is known.
    pub(crate) fn finished(
        &self,
        result: Result<usize, IoError>,
        op: Op,
        at: &'static Location<'static>,
    ) -> Key {
        let key = self.new_op(at);
        self.ops.borrow_mut()[key.0 as usize].state = OpState::Done(result, op);
        key
    }

    /// A slot for a drive's operation that is pending. What is in it is set in place: to move the slot costs more than to fill it.
    fn new_op(&self, started: &'static Location<'static>) -> Key {
        let mut ops = self.ops.borrow_mut();
        let pending = OpState::Pending { wake: None, wanted: true, peer: false };
        match self.free_ops.borrow_mut().pop() {
            Some(index) => {
                let slot = &mut ops[index as usize];
                (slot.state, slot.counted, slot.started) = (pending, None, started);
                Key(index)
            }
            None => {
                ops.push(OpSlot { state: pending, counted: None, started });
                Key(u32::try_from(ops.len() - 1).expect("fewer operations than memory"))
            }
        }
    }

    /// Counts an operation on so many bytes from now until it completes.
    pub(crate) fn count_op(&self, key: Key, traffic: &Rc<Traffic>, bytes: u64) {
        let slot = &mut self.ops.borrow_mut()[key.0 as usize];
        if matches!(slot.state, OpState::Pending { .. }) {
            slot.counted = Some(Counted::new(traffic, bytes, self.turn_time()));
        }
    }

    /// The outcome of an operation, if it has come; frees the slot.
    pub(crate) fn poll_op(&self, key: Key, context: &Context<'_>) -> Poll<(Result<usize, IoError>, Op)> {
        let mut ops = self.ops.borrow_mut();
        let state = &mut ops[key.0 as usize].state;
        if let OpState::Pending { wake, .. } = state {
            *wake = Some(self.wake_of(context));
            return Poll::Pending;
        }
        let OpState::Done(result, op) = std::mem::replace(state, OpState::Free) else {
            unreachable!("a future polls its own slot, which is pending or done")
        };
        self.free_ops.borrow_mut().push(key.0);
        Poll::Ready((result, op))
    }

    /// Nobody wants the outcome any more. The slot stays until the operation is done, with its buffers.
    pub(crate) fn forget_op(&self, key: Key) {
        let dropped = {
            let mut ops = self.ops.borrow_mut();
            let state = &mut ops[key.0 as usize].state;
            match state {
                OpState::Pending { wake, wanted, peer } => {
                    (*wake, *wanted) = (None, false);
                    if !*peer {
                        return;
                    }
                    None
                }
                _ => Some(std::mem::replace(state, OpState::Free)),
            }
        };
        if dropped.is_some() {
            // The outcome is dropped outside the borrow: a stream may close, a buffer may go.
            self.free_ops.borrow_mut().push(key.0);
            return;
        }
        // Not submitted yet: waiting on a peer need not even begin.
        let mut batch = self.batch.borrow_mut();
        let queued = batch.iter().rposition(|(queued, _)| *queued == key);
        let unstarted = queued.map(|at| batch.remove(at));
        drop(batch);
        match unstarted {
            Some((key, op)) => {
                self.complete(Done { key, result: Err(IoError::from_errno(libc::ECANCELED)), op });
            }
            None => self.backend.borrow_mut().cancel(key),
        }
    }

    /// Gives everything queued to the backend, and to other cores what is for them.
    pub(crate) fn submit(&self) {
        self.send_mail();
        let mut batch = self.batch.borrow_mut();
        if !batch.is_empty() {
            self.backend.borrow_mut().submit(&mut batch);
            assert!(batch.is_empty(), "a backend takes the whole batch");
        }
    }

    /// Takes completions; blocks as told only if nothing is there.
    pub(crate) fn reap(&self, wait: Wait) -> bool {
        let mut done = std::mem::take(&mut *self.done.borrow_mut());
        std::mem::swap(&mut done, &mut *self.inline.borrow_mut());
        done.iter_mut().for_each(run_inline);
        let wait =
            if self.watched.borrow().is_empty() { wait } else { self.look_at_modelled(&mut done, wait) };
        let wait = if done.is_empty() { wait } else { Wait::No };
        self.backend.borrow_mut().reap(&mut done, wait);
        let any = !done.is_empty();
        if any {
            self.turn_time.set(self.now());
        }
        done.drain(..).for_each(|done| self.complete(done));
        *self.done.borrow_mut() = done;
        self.send_mail();
        any
    }

    fn complete(&self, done: Done) {
        let Done { key, result, mut op } = done;
        // A peer's operation that nobody wants is not continued; a drive's write is, or it would be torn.
        let abandoned = match &self.ops.borrow()[key.0 as usize].state {
            OpState::Pending { wanted, peer, .. } => !*wanted && *peer,
            _ => unreachable!("a backend completes an operation once"),
        };
        let result = match op.progress(result) {
            Progress::Continue if !abandoned => {
                self.batch.borrow_mut().push((key, op));
                return;
            }
            Progress::Continue => Err(IoError::from_errno(libc::ECANCELED)),
            Progress::Finished(result) => result,
        };
        self.in_flight.set(self.in_flight.get() - 1);
        self.settle(key, result, op);
    }

    /// The end of an operation: its outcome goes to whoever wants it.
    fn settle(&self, key: Key, result: Result<usize, IoError>, op: Op) {
        let mut ops = self.ops.borrow_mut();
        let OpSlot { state, counted, .. } = &mut ops[key.0 as usize];
        let OpState::Pending { wake, wanted, .. } = state else { unreachable!("an operation ends once") };
        if let Some(counted) = counted.take() {
            counted.complete(&op, self.turn_time());
        }
        let wake = wake.take();
        let dropped = if *wanted {
            *state = OpState::Done(result, op);
            None
        } else {
            *state = OpState::Free;
            self.free_ops.borrow_mut().push(key.0);
            Some(op)
        };
        drop(ops);
        drop(dropped);
        if let Some(wake) = wake {
            self.wake(wake);
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    // The core's life.

    /// Blocks until there is news, unless there is some already.
    pub(crate) fn sleep(self: &Rc<Inner>) {
        self.shared.fall_asleep();
        let wait = if self.take_news() || self.has_work() || self.shared.stop.load(Ordering::Acquire) {
            Wait::No
        } else {
            Wait::Until(self.next_timer())
        };
        self.reap(wait);
        self.shared.wake_up();
    }

    /// Drops every task, timer and local value, then waits for the operations the kernel still holds. After this
    /// nothing refers to the core from inside itself.
    pub(crate) fn shut_down(self: &Rc<Inner>, wait_for_ops: bool) {
        let _entered = self.enter();
        // Dropping may spawn, put or send again; a bound ends a destructor that never stops.
        for _ in 0..64 {
            while self.inbox.try_recv().is_ok() {}
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
            // What was begun on drives in memory ends there, as on others.
            self.inline.take().iter_mut().for_each(run_inline);
            self.batch.borrow_mut().clear();
            return;
        }
        // Futures held elsewhere may still want an outcome; but nobody will poll them any more.
        let waiting: Vec<Key> = (0..self.ops.borrow().len()).map(|index| Key(index as u32)).collect();
        for key in waiting {
            let pending = matches!(self.ops.borrow()[key.0 as usize].state, OpState::Pending { .. });
            if pending {
                self.forget_op(key);
            }
        }
        while self.in_flight() > 0 {
            self.submit();
            // The reap looks for results once more after this and only then blocks.
            self.shared.fall_asleep();
            self.reap(Wait::Until(None));
        }
    }

    /// Where each live task was spawned, for the report of a world that is stuck.
    pub(crate) fn live_tasks(&self) -> Vec<&'static Location<'static>> {
        self.tasks.borrow().iter().skip(1).filter(|task| task.live).map(|task| task.spawned).collect()
    }

    /// Where the caller started an operation.
    pub(crate) fn op_started(&self, key: Key) -> &'static Location<'static> {
        self.ops.borrow()[key.0 as usize].started
    }
}
