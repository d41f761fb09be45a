//! One core's executor: tasks, wakers, timers and the table of operations. Single-threaded; other threads reach it
//! only through [`CoreShared`].
//!
//! A turn takes what other cores sent, fires timers, polls every task that was ready when the turn began, gives the
//! operations those started to the backend as one batch, and takes the completions. Nothing is allocated per poll or
//! per operation in the steady state.

use crate::backend::{Backend, Wait};
use crate::core::{Core, CoreIx};
use crate::device::Device;
use crate::error::IoError;
use crate::op::{Done, Key, Op, Progress};
use crate::process;
use crate::serve::{self, Serve};
use crate::time::Instant;
use crate::traffic::{Counted, Traffic};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll, Waker};

/// Work sent to another core.
pub(crate) type Job = Box<dyn FnOnce(Core) + Send>;
/// A task's future.
type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// The slot of the main future, which the caller of the turn holds.
const MAIN: u32 = 0;

/// What other threads may touch of a core.
pub(crate) struct CoreShared {
    pub(crate) ix: CoreIx,
    inbox: mpsc::Sender<Job>,
    /// Tasks woken from elsewhere.
    woken: Mutex<Vec<u32>>,
    has_woken: AtomicBool,
    /// The core is about to block, or blocks, and must be told of news.
    asleep: AtomicBool,
    /// Ends a blocking reap; simulated cores have none, they never block.
    event: Option<OwnedFd>,
    /// The runtime ends.
    pub(crate) stop: AtomicBool,
}

impl CoreShared {
    pub(crate) fn new(ix: CoreIx, event: Option<OwnedFd>) -> (Arc<CoreShared>, mpsc::Receiver<Job>) {
        let (inbox, receiver) = mpsc::channel();
        let shared = CoreShared {
            ix,
            inbox,
            woken: Mutex::default(),
            has_woken: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            event,
            stop: AtomicBool::new(false),
        };
        (Arc::new(shared), receiver)
    }

    pub(crate) fn send(&self, job: Job) {
        // A core that is gone takes no work: the runtime is ending and so is the caller.
        let _ = self.inbox.send(job);
        self.notify();
    }

    fn wake_task(&self, slot: u32) {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
        self.has_woken.store(true, Ordering::Release);
        self.notify();
    }

    /// Ends the sleep of the core, if it sleeps. Call after the news is in place.
    pub(crate) fn notify(&self) {
        // Either this sees `asleep`, or the core, which stores it before it looks for news, sees the news.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            self.ring();
        }
    }

    fn ring(&self) {
        let Some(event) = &self.event else { return };
        let one: u64 = 1;
        // SAFETY: an eventfd takes 8 bytes, which `one` has. It cannot be full: a reader empties it.
        unsafe { libc::write(event.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Takes the ring of the bell, so that the next one is heard.
    pub(crate) fn take_ring(&self) {
        let Some(event) = &self.event else { return };
        let mut count: u64 = 0;
        // SAFETY: an eventfd gives 8 bytes, which `count` has; it never blocks (EFD_NONBLOCK).
        unsafe { libc::read(event.as_raw_fd(), (&raw mut count).cast(), 8) };
    }

    pub(crate) fn event(&self) -> Option<&OwnedFd> {
        self.event.as_ref()
    }
}

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
        let local = CURRENT.try_with(|current| match &*current.borrow() {
            Some(inner) if Arc::ptr_eq(&inner.shared, &self.core) => {
                inner.make_ready(self.slot);
                true
            }
            _ => false,
        });
        if local != Ok(true) {
            self.core.wake_task(self.slot);
        }
    }
}

thread_local! {
    /// The core whose turn this thread runs.
    static CURRENT: RefCell<Option<Rc<Inner>>> = const { RefCell::new(None) };
}

/// Whether this thread runs a core's turn, and must not block.
pub(crate) fn is_core_thread() -> bool {
    CURRENT.with_borrow(Option::is_some)
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
    inbox: mpsc::Receiver<Job>,
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
    /// What this core executed itself, for drives in memory; completes at the next reap.
    inline_done: RefCell<Vec<Done>>,
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
        inbox: mpsc::Receiver<Job>,
        backend: Box<dyn Backend>,
    ) -> Rc<Inner> {
        let backend_now = backend.now();
        let inner = Inner {
            shared,
            group,
            inbox,
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
            inline_done: RefCell::default(),
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
        !self.ready.borrow().is_empty() || !self.inline_done.borrow().is_empty()
    }

    /// Takes what other cores sent; true if there was anything.
    pub(crate) fn take_news(self: &Rc<Inner>) -> bool {
        let mut any = false;
        if self.shared.has_woken.load(Ordering::Relaxed)
            && self.shared.has_woken.swap(false, Ordering::Acquire)
        {
            let woken =
                std::mem::take(&mut *self.shared.woken.lock().unwrap_or_else(PoisonError::into_inner));
            woken.into_iter().for_each(|slot| self.make_ready(slot));
            any = true;
        }
        while let Ok(job) = self.inbox.try_recv() {
            job(Core::of(self.clone()));
            any = true;
        }
        any
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

    /// Queues an operation for the next batch. Drives in memory are served right here, under every backend alike;
    /// their operations too complete with the next reap, so that they give way to others.
    pub(crate) fn start(self: &Rc<Inner>, mut op: Op, started: &'static Location<'static>) -> Key {
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
                let moved = crate::device::run_inline(&mut op);
                self.inline_done.borrow_mut().push(Done { key, result: Ok(moved), op });
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

    /// Gives everything queued to the backend.
    pub(crate) fn submit(&self) {
        let mut batch = self.batch.borrow_mut();
        if !batch.is_empty() {
            self.backend.borrow_mut().submit(&mut batch);
            assert!(batch.is_empty(), "a backend takes the whole batch");
        }
    }

    /// Takes completions; blocks as told only if nothing is there.
    pub(crate) fn reap(&self, wait: Wait) -> bool {
        let mut done = std::mem::take(&mut *self.done.borrow_mut());
        std::mem::swap(&mut done, &mut *self.inline_done.borrow_mut());
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
        self.shared.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let wait = if self.take_news() || self.has_work() || self.shared.stop.load(Ordering::Acquire) {
            Wait::No
        } else {
            Wait::Until(self.next_timer())
        };
        self.reap(wait);
        self.shared.asleep.store(false, Ordering::Relaxed);
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
        if !wait_for_ops {
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
            self.shared.asleep.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
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
