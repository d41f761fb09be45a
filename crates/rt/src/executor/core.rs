//! The handle of one core's executor: the only way to do I/O, to wait, to know the time and to
//! start tasks.
//!
//! Operations are eager: they are queued when the method is called and leave in one batch at the
//! end of the turn (drives in memory do them at once), so starting many and awaiting them one after
//! the other runs them side by side. A dropped future abandons its operation, not its buffers: they
//! are released when the operation is done.

use crate::base::error::IoError;
use crate::base::system::SignalMask;
use crate::base::time::{Instant, WallTime};
use crate::device::Device;
use crate::executor::Inner;
use crate::executor::deliver::deliver;
use crate::executor::handle::CoreHandle;
use crate::executor::shared::{CoreShared, Message};
use crate::executor::sync::{OneshotReceiver, oneshot};
use crate::memory::buf::{Buf, BufMut};
use crate::op::aim::{Outcome, aim, known};
use crate::op::traffic::{Traffic, Unanswered};
use crate::op::{Bufs, Durability, Op, OpKey, Transfer, Unmap};
use crate::placement;
use crate::stream::{Listener, Stream};
use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::os::fd::AsFd;
use std::panic::Location;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Names a core of the runtime: 0 up to the number of cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CoreIx(pub usize);

/// The handle of one core's executor. Cheap to clone; belongs to its thread.
#[derive(Clone)]
pub struct Core {
    inner: Rc<Inner>,
}

impl Core {
    pub(crate) fn of(inner: Rc<Inner>) -> Core {
        Core { inner }
    }

    // Time.

    /// The time, real or virtual.
    pub fn now(&self) -> Instant {
        self.inner.now()
    }

    /// The time at which the core's present turn began, in which it runs what is ready: good enough
    /// for latencies, and it costs no reading of a clock.
    pub fn turn_time(&self) -> Instant {
        self.inner.turn_time()
    }

    /// How long the core has slept for want of work, of the time since it began.
    pub fn slept(&self) -> Duration {
        self.inner.slept()
    }

    /// Processor time that the core's thread has used; none in virtual time. Asks the system.
    pub fn worked(&self) -> Duration {
        self.inner.worked()
    }

    /// The wall clock, real or virtual: for what is recorded on drives and shown to people, never
    /// for durations.
    pub fn wall_clock(&self) -> WallTime {
        self.inner.with_backend(|backend| backend.wall_clock())
    }

    /// Waits for `duration`, counted from this call.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now() + duration)
    }

    /// Waits until `deadline`. Sleepers wake in the order of their deadlines.
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep { core: self.clone(), deadline, timer: None }
    }

    /// Lets every other ready task, and the operations queued so far, go first.
    pub fn yield_now(&self) -> impl Future<Output = ()> + use<> {
        let mut yielded = false;
        poll_fn(move |context| {
            if yielded {
                return Poll::Ready(());
            }
            yielded = true;
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }

    // Drives.

    /// Fills `buf` from `offset` (bytes). The buffer comes back either way; after an error its
    /// contents are unspecified.
    ///
    /// # Cancellation
    /// Dropping the future abandons the read; the buffer is released when the drive is done with
    /// it.
    #[track_caller]
    pub fn read(&self, device: &Device, offset: u64, buf: BufMut) -> OpFuture<(Result<(), IoError>, BufMut)> {
        self.start_read(device, offset, Bufs::One(buf), |result, op| match op {
            Op::Read(Transfer { bufs: Bufs::One(buf), .. }) => (result.map(drop), buf),
            _ => unreachable!("a read comes back as the read it was"),
        })
    }

    /// Fills `bufs` one after the other from `offset` (bytes), as one operation. Otherwise like
    /// [`Core::read`].
    #[track_caller]
    pub fn readv(
        &self,
        device: &Device,
        offset: u64,
        bufs: Vec<BufMut>,
    ) -> OpFuture<(Result<(), IoError>, Vec<BufMut>)> {
        self.start_read(device, offset, Bufs::Many(bufs), |result, op| match op {
            Op::Read(Transfer { bufs: Bufs::Many(bufs), .. }) => (result.map(drop), bufs),
            _ => unreachable!("a read comes back as the read it was"),
        })
    }

    /// Writes `buf` at `offset` (bytes). A write beyond the end is refused with `NoSpace` and
    /// writes nothing.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the write.
    #[track_caller]
    pub fn write(
        &self,
        device: &Device,
        offset: u64,
        buf: Buf,
        durability: Durability,
    ) -> OpFuture<Result<(), IoError>> {
        self.start_write(device, offset, Bufs::One(buf), durability)
    }

    /// Writes `bufs` one after the other at `offset` (bytes), as one operation. Otherwise like
    /// [`Core::write`].
    #[track_caller]
    pub fn writev(
        &self,
        device: &Device,
        offset: u64,
        bufs: Vec<Buf>,
        durability: Durability,
    ) -> OpFuture<Result<(), IoError>> {
        self.start_write(device, offset, Bufs::Many(bufs), durability)
    }

    /// Makes every write that completed before this call durable. Fails too if something that was
    /// written to the drive before was lost, whichever operation the drive reported it to.
    #[track_caller]
    pub fn flush(&self, device: &Device) -> OpFuture<Result<(), IoError>> {
        // There is nothing to make durable on a drive opened for reading.
        let known = if device.writable() { None } else { Some(Ok(0)) };
        let (drive, _, outcome) = aim(device, 0, 0, known, |_, _| {});
        let flush = self.start(Op::Flush { device: drive }, outcome, |result, _| result.map(drop));
        if let Some(key) = flush.key {
            self.inner.flush_through(key, device);
        }
        flush
    }

    /// Makes `len` bytes at `offset` read as zeros without moving any. A drive that cannot answers
    /// `Unsupported`: then the caller writes the zeros itself. Durable only after a flush.
    #[track_caller]
    pub fn write_zeroes(
        &self,
        device: &Device,
        offset: u64,
        len: u64,
        unmap: Unmap,
    ) -> OpFuture<Result<(), IoError>> {
        let known = known(device, offset, len, true);
        let (device, offset, outcome) =
            aim(device, offset, 0, known, |memory, at| memory.write_zeroes(at, len));
        self.start(Op::WriteZeroes { device, offset, len, unmap }, outcome, |result, _| result.map(drop))
    }

    #[track_caller]
    fn start_read<T>(
        &self,
        device: &Device,
        offset: u64,
        mut bufs: Bufs<BufMut>,
        finish: Finish<T>,
    ) -> OpFuture<T> {
        let len = bufs.len();
        let known = known(device, offset, len as u64, false);
        let (device, offset, outcome) =
            aim(device, offset, len, known, |memory, at| memory.read(at, bufs.as_mut_slice()));
        self.start(Op::Read(Transfer { device, offset, bufs, moved: 0 }), outcome, finish)
    }

    #[track_caller]
    fn start_write(
        &self,
        device: &Device,
        offset: u64,
        bufs: Bufs<Buf>,
        durability: Durability,
    ) -> OpFuture<Result<(), IoError>> {
        let len = bufs.len();
        let known = known(device, offset, len as u64, true);
        let (device, offset, outcome) =
            aim(device, offset, len, known, |memory, at| memory.write(at, bufs.as_slice()));
        // Buffers that will not be looked at again are released sooner, for other tasks to use.
        let bufs = if device.is_some() { bufs } else { Bufs::Many(Vec::new()) };
        self.start(
            Op::Write(Transfer { device, offset, bufs, moved: 0 }, durability),
            outcome,
            |result, _| result.map(drop),
        )
    }

    #[track_caller]
    fn start<T>(&self, op: Op, outcome: Outcome, finish: Finish<T>) -> OpFuture<T> {
        let key = match outcome {
            Outcome::Known(result) => self.inner.finished(result, op, Location::caller()),
            Outcome::Soon(moved) => self.inner.finishing(moved, op, Location::caller()),
            Outcome::Open => self.inner.start(op, Location::caller()),
        };
        OpFuture { core: self.clone(), key: Some(key), finish }
    }

    // Streams.

    /// Waits for one connection.
    ///
    /// # Cancellation
    /// Dropping the future stops the waiting; a connection that came in that moment is closed.
    #[track_caller]
    pub fn accept(&self, listener: &Listener) -> OpFuture<Result<Stream, IoError>> {
        let op = Op::Accept { listener: listener.clone(), accepted: None };
        self.start(op, Outcome::Open, |result, op| match (result, op) {
            (Err(error), _) => Err(error),
            (Ok(_), Op::Accept { accepted: Some(stream), .. }) => Ok(stream),
            _ => unreachable!("a finished accept has its connection"),
        })
    }

    /// Waits for some bytes and puts them at the front of `buf`. `Ok(0)` means the peer has closed.
    ///
    /// # Cancellation
    /// Dropping the future stops the waiting; bytes that came in that moment are lost.
    #[track_caller]
    pub fn recv(&self, stream: &Stream, buf: BufMut) -> OpFuture<(Result<usize, IoError>, BufMut)> {
        let outcome = if buf.is_empty() { Outcome::Known(Ok(0)) } else { Outcome::Open };
        self.start(Op::Recv { stream: stream.clone(), buf }, outcome, |result, op| match op {
            Op::Recv { buf, .. } => (result, buf),
            _ => unreachable!("a receive comes back as the receive it was"),
        })
    }

    /// Sends all bytes of `bufs`. Two sends on one stream must not overlap in time, as their bytes
    /// could mix; on a queue of messages each send is one message, and they may.
    ///
    /// # Cancellation
    /// Dropping the future leaves an unknown part unsent: the stream is then only good for closing.
    #[track_caller]
    pub fn send(&self, stream: &Stream, bufs: Vec<Buf>) -> OpFuture<Result<(), IoError>> {
        let outcome =
            if bufs.iter().all(|buf| buf.is_empty()) { Outcome::Known(Ok(0)) } else { Outcome::Open };
        self.start(Op::Send { stream: stream.clone(), bufs, moved: 0 }, outcome, |result, _| result.map(drop))
    }

    /// Waits until `fd` is readable. Works on a duplicate, so the caller may close its own.
    #[track_caller]
    pub fn readable(&self, fd: &impl AsFd) -> OpFuture<Result<(), IoError>> {
        self.start_poll(fd, libc::POLLIN)
    }

    /// Waits until the peer of a connection has closed it or will send no more, whatever of what it
    /// sent is still unread. Works on a duplicate.
    ///
    /// # Errors
    /// It cannot be seen: in a simulated world, and without descriptors.
    #[track_caller]
    pub fn hung_up(&self, stream: &Stream) -> OpFuture<Result<(), IoError>> {
        match stream.descriptor() {
            Some(fd) => self.start_poll(&fd, libc::POLLRDHUP),
            None => self.unpolled(IoError::from_errno(libc::ENOTSUP)),
        }
    }

    #[track_caller]
    fn start_poll(&self, fd: &impl AsFd, events: libc::c_short) -> OpFuture<Result<(), IoError>> {
        match fd.as_fd().try_clone_to_owned() {
            Ok(fd) => self.start(Op::Poll { fd, events }, Outcome::Open, |result, _| result.map(drop)),
            Err(error) => self.unpolled(IoError::from_std(&error)),
        }
    }

    #[track_caller]
    fn unpolled(&self, error: IoError) -> OpFuture<Result<(), IoError>> {
        let known = Outcome::Known(Err(error));
        self.start(Op::Flush { device: None }, known, |result, _| result.map(drop))
    }

    // Tasks and cores.

    /// Starts a task on this core. Dropping the handle lets the task run on.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
    {
        let (sender, receiver) = oneshot();
        let task = deliver(future, move |output| drop(sender.send(output)));
        self.inner.spawn(Box::pin(task), Location::caller());
        JoinHandle { receiver }
    }

    /// Runs `f`, which may block, on a thread of its own: looking at drives, opening them,
    /// libraries that know nothing of tasks. It must not be called for each request. A panic of `f`
    /// comes out of the await. A simulated world has no threads: there `f` runs at once.
    ///
    /// # Errors
    /// The system gives no thread.
    ///
    /// # Cancellation
    /// Dropping the future does not stop `f`.
    pub async fn offload<T, F>(&self, f: F) -> Result<T, IoError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        if self.is_simulated() {
            return Ok(f());
        }
        let answer = Arc::new(Answer::new());
        let reply = answer.clone();
        let work = move || {
            SignalMask::block_all();
            placement::leave();
            reply.put(catch_unwind(AssertUnwindSafe(f)));
        };
        let thread = std::thread::Builder::new().name("wattle-offload".to_owned());
        thread.spawn(work).map_err(|error| IoError::from_std(&error))?;
        let result = poll_fn(|context| answer.poll(context)).await;
        Ok(result.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// This core, for threads and cores of other runtimes.
    #[must_use]
    pub fn handle(&self) -> CoreHandle {
        CoreHandle::of(self.shared())
    }

    /// Whether that is a core of this one's runtime.
    pub(crate) fn is_of_runtime(&self, core: &Arc<CoreShared>) -> bool {
        self.inner.group.get(core.ix.0).is_some_and(|known| Arc::ptr_eq(known, core))
    }

    /// Starts a task in the name of another place in the source.
    pub(crate) fn spawn_at(
        &self,
        future: impl Future<Output = ()> + 'static,
        spawned: &'static Location<'static>,
    ) {
        self.inner.spawn(Box::pin(future), spawned);
    }

    /// What other threads may touch of this core.
    pub(crate) fn shared(&self) -> Arc<CoreShared> {
        self.inner.shared.clone()
    }

    /// Which core this is.
    pub fn index(&self) -> CoreIx {
        self.inner.shared.ix
    }

    /// How many cores the runtime has.
    pub fn cores(&self) -> usize {
        self.inner.group.len()
    }

    /// Runs `f` and its future on core `to` and brings the result back; on this very core without a
    /// hop, at once. Panics if there is no such core.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the work on the other core.
    #[track_caller]
    pub fn call<T, F, Fut>(&self, to: CoreIx, f: F) -> impl Future<Output = T> + use<T, F, Fut>
    where
        F: FnOnce(Core) -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        assert!(to.0 < self.cores(), "core {} of {}", to.0, self.cores());
        if to == self.index() {
            return Call::Here(Box::pin(f(self.clone())));
        }
        let answer = Arc::new(Answer::new());
        let reply = answer.clone();
        let spawned = Location::caller();
        let job = move |core: Core| {
            let future = f(core.clone());
            core.inner.spawn(Box::pin(deliver(future, move |output| reply.put(output))), spawned);
        };
        self.inner.post_job(to, Box::new(job));
        Call::There(answer)
    }

    /// Sends a message to core `to`, at the end of this turn at the latest, together with others
    /// for the same core. Panics if there is no such core.
    pub fn post(&self, to: CoreIx, message: impl Message) {
        self.inner.post(to, message);
    }

    /// Keeps a value for this core under `key`, for the tasks that come later; replaces an earlier
    /// one.
    pub fn put_local<T: 'static>(&self, key: u64, value: Rc<T>) {
        let earlier = self.inner.locals.borrow_mut().insert(key, value as Rc<dyn Any>);
        drop(earlier);
    }

    /// The value of this core under `key`, if it is there and a `T`.
    pub fn local<T: 'static>(&self, key: u64) -> Option<Rc<T>> {
        self.inner.locals.borrow().get(&key)?.clone().downcast().ok()
    }

    /// Takes the value of this core under `key` out, if it is there and a `T`.
    pub fn take_local<T: 'static>(&self, key: u64) -> Option<Rc<T>> {
        let value = self.local(key)?;
        let kept = self.inner.locals.borrow_mut().remove(&key);
        drop(kept);
        Some(value)
    }

    /// Whether this is a simulated world, in which time is virtual and no machine lies underneath.
    pub fn is_simulated(&self) -> bool {
        self.inner.with_backend(|backend| backend.is_simulated())
    }

    /// Since when the oldest operation waits that is counted in `traffic`; `None` if none does.
    /// Looks through all operations of this core.
    pub fn waits_since(&self, traffic: &Rc<Traffic>) -> Option<Instant> {
        self.inner.waits_since(traffic)
    }

    /// What waits of the operations counted in `traffic`, and when the drive answered last. Looks
    /// through all operations of this core.
    pub fn unanswered(&self, traffic: &Rc<Traffic>) -> Unanswered {
        self.inner.unanswered(traffic)
    }

    /// Nothing is expected any more of the drive whose operations are counted in `traffic`, until
    /// that is [reset](Traffic::reset): what waits for one is woken, and told by
    /// [`OpFuture::is_given_up`]. The operations themselves run to their end.
    pub fn give_up(&self, traffic: &Rc<Traffic>) {
        self.inner.give_up(traffic);
    }

    /// How many operations are queued or in flight on this core.
    pub fn ops_in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Core({} of {})", self.index().0, self.cores())
    }
}

/// Turns a finished operation into what its caller asked for.
type Finish<T> = fn(Result<usize, IoError>, Op) -> T;

/// An operation under way; see [`Core`]. It runs whether or not it is polled.
#[must_use = "the outcome of an operation may be an error"]
pub struct OpFuture<T> {
    core: Core,
    key: Option<OpKey>,
    finish: Finish<T>,
}

impl<T> OpFuture<T> {
    /// Counts the operation, which moves so many bytes, in `traffic` from now until it completes,
    /// whether or not a task still waits for it.
    pub fn count_in(&self, traffic: &Rc<Traffic>, bytes: usize) {
        if let Some(key) = self.key {
            self.core.inner.count_op(key, traffic, bytes as u64);
        }
    }

    /// Whether it is under way on a drive of which nothing is expected any more; see
    /// [`Core::give_up`].
    pub fn is_given_up(&self) -> bool {
        self.key.is_some_and(|key| self.core.inner.is_given_up(key))
    }
}

impl<T> Future for OpFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let key = self.key.expect("a future is not polled after it is done");
        let Poll::Ready((result, op)) = self.core.inner.poll_op(key, context) else { return Poll::Pending };
        self.key = None;
        Poll::Ready((self.finish)(result, op))
    }
}

impl<T> Drop for OpFuture<T> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.core.inner.forget_op(key);
        }
    }
}

/// Waits for a time; see [`Core::sleep`].
#[must_use = "a sleep does nothing unless awaited"]
pub struct Sleep {
    core: Core,
    deadline: Instant,
    timer: Option<(Instant, u64)>,
}

impl Sleep {
    /// When it ends.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let inner = &self.core.inner;
        let wake = inner.wake_of(context);
        let fired = match self.timer {
            Some(timer) => !inner.reset_timer(timer, wake),
            None => {
                let timer = inner.set_timer(self.deadline, wake);
                self.timer = Some(timer);
                false
            }
        };
        if fired { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.core.inner.clear_timer(timer);
        }
    }
}

/// Awaits a spawned task; see [`Core::spawn`].
pub struct JoinHandle<T> {
    receiver: OneshotReceiver<T>,
}

impl<T> JoinHandle<T> {
    /// Whether the task is done.
    pub fn is_finished(&self) -> bool {
        self.receiver.is_ready()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match Pin::new(&mut self.receiver).poll(context) {
            Poll::Ready(Some(value)) => Poll::Ready(value),
            // The task was dropped unfinished, which only the end of the runtime does: nothing is
            // polled then.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

/// The result of a call to another core on its way back. Locked by two threads at most, once each.
pub(crate) struct Answer<T> {
    slot: Mutex<(Option<T>, Option<Waker>)>,
}

impl<T> Answer<T> {
    pub(crate) fn new() -> Self {
        Self { slot: Mutex::new((None, None)) }
    }

    pub(crate) fn put(&self, value: T) {
        let waker = {
            let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
            slot.0 = Some(value);
            slot.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<T> {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = slot.0.take() {
            return Poll::Ready(value);
        }
        slot.1 = Some(context.waker().clone());
        Poll::Pending
    }
}

enum Call<T, Fut> {
    Here(Pin<Box<Fut>>),
    There(Arc<Answer<T>>),
}

impl<T, Fut: Future<Output = T>> Future for Call<T, Fut> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut *self {
            Call::Here(future) => future.as_mut().poll(context),
            Call::There(answer) => answer.poll(context),
        }
    }
}
