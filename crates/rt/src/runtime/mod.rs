//! Starts the cores of a real runtime, runs the main future on the first, and ends them all.

pub(crate) mod beside;
#[cfg(all(test, loom))]
mod interleavings;

use crate::backend::syscall::SyscallBackend;
use crate::backend::uring::UringBackend;
use crate::backend::{Backend, BackendChoice, BackendError, RingMode, Wait};
use crate::base::atomics::{self, Ordering};
use crate::base::clock::Clock;
use crate::base::event::EventFd;
use crate::base::system::{SignalMask, end_at_file_limit};
use crate::executor::core::{Core, CoreIx};
use crate::executor::shared::{CoreShared, Mail};
use crate::executor::{Inner, OTHERS_MIN};
use crate::placement::{LeaveAtEnd, Placement};
use crate::planted::{self, Bug};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::task::Waker;
use std::thread::JoinHandle;

/// How a runtime should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// How many executors, each on its own thread; the first on the caller's. At least 1.
    pub cores: usize,
    /// Which backend.
    pub backend: BackendChoice,
    /// How rings deliver completions: for tests of what older kernels do.
    pub ring: RingMode,
    /// Operations on drives in flight per core; further ones queue in user space. Rounded up to a
    /// power of two from 8 to 16384.
    pub queue_depth: u32,
    /// Threads of a core that the backend of plain system calls may use for one drive. At least 1.
    pub drive_threads: usize,
}

impl Default for RuntimeConfig {
    /// One core, the best backend there is, 1024 operations in flight, 8 threads for each drive
    /// where threads are needed.
    fn default() -> RuntimeConfig {
        RuntimeConfig {
            cores: 1,
            backend: BackendChoice::Auto,
            ring: RingMode::Best,
            queue_depth: 1024,
            drive_threads: 8,
        }
    }
}

/// Runs `main` on core 0, which is this thread, and returns its result. The other cores run on
/// threads of their own; when `main` ends they stop: every task is dropped, and operations on
/// drives that are in flight are waited for.
///
/// A panic of any core ends the others and comes out of this call. Requests of other threads and
/// other runtimes to these cores end with an error.
pub fn run<T, F>(config: RuntimeConfig, main: F) -> Result<T, BackendError>
where
    F: AsyncFnOnce(Core) -> T,
{
    run_at(config, &Placement::default(), main)
}

/// As [`run`], each core at its place, if that says one.
///
/// # Errors
/// As [`run`], and if a core may use none of the processors it is given.
pub fn run_at<T, F>(config: RuntimeConfig, placement: &Placement, main: F) -> Result<T, BackendError>
where
    F: AsyncFnOnce(Core) -> T,
{
    let _leave = LeaveAtEnd;
    take_place(placement, 0)?;
    let clock = Clock::start();
    let cores = config.cores.max(1);
    let (group, mut inboxes) = make_group(cores)?;
    let _mask = SignalMask::keep();
    if !cfg!(miri) {
        end_at_file_limit(false);
    }
    let (own, event) = inboxes.remove(0);
    let backend = make_backend(config, clock, &group[0], event)?;
    let inner = Inner::new(group[0].clone(), group.clone(), own, backend);
    let team = Team::start(config, placement, clock, &group, inboxes)?;

    let mut value = None;
    let lived = catch_unwind(AssertUnwindSafe(|| {
        let core = Core::of(inner.clone());
        let main = pin!(async { value = Some(main(core).await) });
        run_core(&inner, main);
    }));
    let others = team.finish();
    let ended = end_core(&inner, lived.is_err());
    if let Err(panic) = lived.and(others).and(ended) {
        resume_unwind(panic);
    }
    Ok(value.expect("a core stops early only if another panicked, and that panic has come out"))
}

/// How a core ended: as it should, or with what it panicked with.
type Ended = Result<(), Box<dyn Any + Send>>;

/// Ends a core, so that nothing waits for it any more: its tasks are dropped, and so is what other
/// threads have sent and will send, which answers them that there is no answer.
///
/// After a panic, operations are not waited for: the count of them may be wrong. The backend leaks
/// what the kernel still works on.
fn end_core(inner: &Rc<Inner>, panicked: bool) -> Ended {
    if panicked && planted::is(Bug::PanickedCoreKeepsMail) {
        return Ok(());
    }
    let ended = catch_unwind(AssertUnwindSafe(|| inner.shut_down(!panicked)));
    let closed = catch_unwind(AssertUnwindSafe(|| inner.close()));
    ended.and(closed)
}

/// The shared halves of all cores, and the inbox of each.
type Group = (Arc<[Arc<CoreShared>]>, Vec<Inbox>);

/// What only the core itself has: its mail, and the event that ends its sleep.
type Inbox = (atomics::mpsc::Receiver<Mail>, Arc<EventFd>);

fn make_group(cores: usize) -> Result<Group, BackendError> {
    let mut shared = Vec::with_capacity(cores);
    let mut inboxes = Vec::with_capacity(cores);
    for ix in 0..cores {
        let event = EventFd::new().map_err(|error| BackendError::Resources { errno: error.errno() })?;
        let event = Arc::new(event);
        let (core, inbox) = CoreShared::new(CoreIx(ix), Some(event.clone()));
        shared.push(core);
        inboxes.push((inbox, event));
    }
    Ok((shared.into(), inboxes))
}

/// Takes this thread, that of a core, to its place.
fn take_place(placement: &Placement, core: usize) -> Result<(), BackendError> {
    placement.take(core).map_err(|error| BackendError::Place { errno: error.raw_os_error().unwrap_or(0) })
}

/// A ring belongs to the thread that makes it, so each core calls this on its own.
fn make_backend(
    config: RuntimeConfig,
    clock: Clock,
    core: &Arc<CoreShared>,
    event: Arc<EventFd>,
) -> Result<Box<dyn Backend>, BackendError> {
    let syscall = |event| {
        let core = Waker::from(core.clone());
        Box::new(SyscallBackend::new(clock, event, core, config.drive_threads)) as Box<dyn Backend>
    };
    // Miri has no io_uring, and ends at the attempt.
    if config.backend == BackendChoice::Syscall || cfg!(miri) {
        return Ok(syscall(event));
    }
    match UringBackend::new(clock, event.clone(), config.queue_depth, config.ring) {
        Ok(backend) => Ok(Box::new(backend)),
        Err(_) if config.backend == BackendChoice::Auto => Ok(syscall(event)),
        Err(error) => Err(error),
    }
}

/// The life of a core: until its main future is done or it is told to stop.
fn run_core(inner: &Rc<Inner>, mut main: Pin<&mut dyn Future<Output = ()>>) {
    let _entered = inner.enter();
    loop {
        inner.take_news();
        inner.fire_timers();
        let finished = inner.run_ready(main.as_mut(), OTHERS_MIN);
        inner.submit();
        if finished || inner.shared.stop.load(Ordering::Acquire) {
            return;
        }
        if inner.has_work() {
            inner.reap(Wait::No);
        } else {
            inner.sleep();
        }
    }
}

/// The threads of the other cores. Dropping stops and joins them, so none outlives a start that
/// failed half-way.
struct Team {
    group: Arc<[Arc<CoreShared>]>,
    threads: Vec<JoinHandle<()>>,
}

impl Team {
    fn start(
        config: RuntimeConfig,
        placement: &Placement,
        clock: Clock,
        group: &Arc<[Arc<CoreShared>]>,
        inboxes: Vec<Inbox>,
    ) -> Result<Team, BackendError> {
        let mut team = Team { group: group.clone(), threads: Vec::new() };
        let (report, reports) = mpsc::channel();
        for (ix, (inbox, event)) in (1..).zip(inboxes) {
            let (group, report, placement) = (group.clone(), report.clone(), placement.clone());
            let thread = std::thread::Builder::new().name(format!("wattle-core-{ix}")).spawn(move || {
                SignalMask::block_all();
                let _alarm = Alarm(group[0].clone());
                // First, so that what the core makes is where it works.
                let placed = take_place(&placement, ix);
                match placed.and_then(|()| make_backend(config, clock, &group[ix], event)) {
                    Err(error) => drop(report.send(Err(error))),
                    Ok(backend) => {
                        let _ = report.send(Ok(()));
                        // The receiver of all reports waits for the last sender to go.
                        drop(report);
                        let inner = Inner::new(group[ix].clone(), group, inbox, backend);
                        let idle = || run_core(&inner, pin!(std::future::pending()));
                        let lived = catch_unwind(AssertUnwindSafe(idle));
                        let ended = end_core(&inner, lived.is_err());
                        if let Err(panic) = lived.and(ended) {
                            resume_unwind(panic);
                        }
                    }
                }
            });
            let failed =
                |error: std::io::Error| BackendError::Resources { errno: error.raw_os_error().unwrap_or(0) };
            team.threads.push(thread.map_err(failed)?);
        }
        drop(report);
        reports.iter().collect::<Result<(), BackendError>>()?;
        Ok(team)
    }

    /// Stops and joins all; the first panic among theirs, if any.
    fn finish(mut self) -> Ended {
        self.stop();
        let ends = std::mem::take(&mut self.threads).into_iter().map(JoinHandle::join);
        // Every thread is joined, also behind one that panicked.
        ends.fold(Ok(()), Ended::and)
    }

    fn stop(&self) {
        for core in &self.group[1..] {
            core.stop.store(true, Ordering::Release);
            core.notify();
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.stop();
        for thread in self.threads.drain(..) {
            // An error is on its way out already.
            let _ = thread.join();
        }
    }
}

/// Stops the first core if this thread panics: it may wait for an answer that will never come.
struct Alarm(Arc<CoreShared>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop.store(true, Ordering::Release);
            self.0.notify();
        }
    }
}
