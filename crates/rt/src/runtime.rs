//! Starts the cores of a real runtime, runs the main future on the first, and ends them all.

use crate::backend::{Backend, BackendChoice, BackendError, Wait};
use crate::clock::Clock;
use crate::core::{Core, CoreIx};
use crate::error::IoError;
use crate::executor::{Inner, OTHERS_MIN};
use crate::process::SignalMask;
use crate::shared::{CoreShared, Mail};
use crate::syscall::SyscallBackend;
use crate::uring::UringBackend;
use std::os::fd::{FromRawFd, OwnedFd};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// How a runtime should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// How many executors, each on its own thread; the first on the caller's. At least 1.
    pub cores: usize,
    /// Which backend.
    pub backend: BackendChoice,
    /// Operations in flight per core; further ones queue in user space. Rounded up to a power of two from 8 to 16384.
    pub queue_depth: u32,
    /// Threads per core that the backend of plain system calls may use for drives. At least 1.
    pub io_threads: usize,
}

impl Default for RuntimeConfig {
    /// One core, the best backend there is, 1024 operations in flight, 16 threads where threads are needed.
    fn default() -> RuntimeConfig {
        RuntimeConfig { cores: 1, backend: BackendChoice::Auto, queue_depth: 1024, io_threads: 16 }
    }
}

/// Runs `main` on core 0, which is this thread, and returns its result. The other cores run on threads of their own;
/// when `main` ends they stop: every task is dropped, and operations on drives that are in flight are waited for.
///
/// A panic of any core ends the others and comes out of this call.
pub fn run<T, F>(config: RuntimeConfig, main: F) -> Result<T, BackendError>
where
    F: AsyncFnOnce(Core) -> T,
{
    let clock = Clock::start();
    let cores = config.cores.max(1);
    let (group, mut inboxes) = make_group(cores)?;
    let _mask = SignalMask::keep();
    let own = inboxes.remove(0);
    let backend = make_backend(config, clock, group[0].clone())?;
    let inner = Inner::new(group[0].clone(), group.clone(), own, backend);
    let team = Team::start(config, clock, &group, inboxes)?;

    let mut value = None;
    {
        let core = Core::of(inner.clone());
        let main = pin!(async { value = Some(main(core).await) });
        run_core(&inner, main);
    }
    team.finish();
    inner.shut_down(true);
    Ok(value.expect("a core stops early only if another panicked, and that panic has come out"))
}

/// The shared halves of all cores, and the inbox of each.
type Group = (Arc<[Arc<CoreShared>]>, Vec<mpsc::Receiver<Mail>>);

fn make_group(cores: usize) -> Result<Group, BackendError> {
    let mut shared = Vec::with_capacity(cores);
    let mut inboxes = Vec::with_capacity(cores);
    for ix in 0..cores {
        let (core, inbox) = CoreShared::new(CoreIx(ix), Some(event_fd()?));
        shared.push(core);
        inboxes.push(inbox);
    }
    Ok((shared.into(), inboxes))
}

fn event_fd() -> Result<OwnedFd, BackendError> {
    // SAFETY: eventfd only takes integers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(BackendError::Resources { errno: IoError::last_os().errno() });
    }
    // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A ring belongs to the thread that makes it, so each core calls this on its own.
fn make_backend(
    config: RuntimeConfig,
    clock: Clock,
    core: Arc<CoreShared>,
) -> Result<Box<dyn Backend>, BackendError> {
    let syscall = |core| Box::new(SyscallBackend::new(clock, core, config.io_threads)) as Box<dyn Backend>;
    if config.backend == BackendChoice::Syscall {
        return Ok(syscall(core));
    }
    match UringBackend::new(clock, core.clone(), config.queue_depth) {
        Ok(backend) => Ok(Box::new(backend)),
        Err(_) if config.backend == BackendChoice::Auto => Ok(syscall(core)),
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

/// The threads of the other cores. Dropping stops and joins them, so none outlives a panic of the first.
struct Team {
    group: Arc<[Arc<CoreShared>]>,
    threads: Vec<JoinHandle<()>>,
}

impl Team {
    fn start(
        config: RuntimeConfig,
        clock: Clock,
        group: &Arc<[Arc<CoreShared>]>,
        inboxes: Vec<mpsc::Receiver<Mail>>,
    ) -> Result<Team, BackendError> {
        let mut team = Team { group: group.clone(), threads: Vec::new() };
        let (report, reports) = mpsc::channel();
        for (ix, inbox) in (1..).zip(inboxes) {
            let (group, report) = (group.clone(), report.clone());
            let thread = std::thread::Builder::new().name(format!("wattle-core-{ix}")).spawn(move || {
                SignalMask::block_all();
                let _alarm = Alarm(group[0].clone());
                match make_backend(config, clock, group[ix].clone()) {
                    Err(error) => drop(report.send(Err(error))),
                    Ok(backend) => {
                        let _ = report.send(Ok(()));
                        drop(report); // Whoever waits for all reports waits for the last sender to go.
                        let inner = Inner::new(group[ix].clone(), group, inbox, backend);
                        run_core(&inner, pin!(std::future::pending()));
                        inner.shut_down(true);
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

    /// Stops and joins all, and lets a panic of one come out.
    fn finish(mut self) {
        self.stop();
        for thread in std::mem::take(&mut self.threads) {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
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
            // A panic is on its way out already; this one would be the second.
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
