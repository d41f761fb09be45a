//! The world: it owns time, steps the cores one poll at a time in an order drawn from the seed, and
//! cuts the power.

use crate::backend::Wait;
use crate::backend::lanes::Lanes;
use crate::base::rng::Rng;
use crate::base::time::Instant;
use crate::device::{BlockGeometry, Device, Kind, Losses};
use crate::executor::Inner;
use crate::executor::core::{Core, CoreIx};
use crate::executor::shared::CoreShared;
use crate::model::DriveModel;
use crate::sim::backend::{Event, Shared, SimBackend};
use crate::sim::control::DriveControl;
use crate::sim::drive::{Chooser, Drive, DriveConfig, DriveHandle};
use crate::sim::net::SimEndpoint;
use crate::stream::Listener;
use std::cell::RefCell;
use std::collections::btree_map::OccupiedEntry;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// How a world is made.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// Everything that is left to chance comes from here: equal seeds, equal worlds.
    pub seed: u64,
    /// How many cores; all are stepped on the calling thread.
    pub cores: usize,
    /// A run ends with [`RunOutcome::TimeLimit`] when this much virtual time has passed since it
    /// began.
    pub time_limit: Duration,
    /// A run ends with [`RunOutcome::TimeLimit`] after this many polls of tasks: catches tasks that
    /// spin.
    pub poll_limit: u64,
    /// Chance, in a million, that a sector of a write in flight at a power cut becomes unreadable.
    pub torn_unreadable_ppm: u32,
    /// Operations on drives in flight per core; further ones queue in user space.
    pub queue_depth: usize,
}

impl Default for WorldConfig {
    /// Seed 0, one core, a day of virtual time, a hundred million polls, no unreadable sectors, and
    /// as many operations in flight as a real runtime has.
    fn default() -> WorldConfig {
        WorldConfig {
            seed: 0,
            cores: 1,
            time_limit: Duration::from_secs(24 * 3600),
            poll_limit: 100_000_000,
            torn_unreadable_ppm: 0,
            queue_depth: 1024,
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunOutcome<T> {
    /// The main future returned.
    Done(T),
    /// The power went.
    PowerCut,
    /// Nothing can make progress any more; what is pending, one line each.
    Stuck(Vec<String>),
    /// The limit of virtual time or of polls was reached.
    TimeLimit,
}

impl<T> RunOutcome<T> {
    /// The result of a run that ended by itself; panics with what happened otherwise.
    #[track_caller]
    pub fn expect_done(self) -> T {
        match self {
            RunOutcome::Done(value) => value,
            RunOutcome::PowerCut => panic!("the power was cut"),
            RunOutcome::Stuck(report) => panic!("nothing can make progress:\n{}", report.join("\n")),
            RunOutcome::TimeLimit => panic!("the limit of time or polls was reached"),
        }
    }
}

/// How late a core may see a completion.
const SKIP: Duration = Duration::from_micros(20);

/// Decides, at a power cut, which of `n` outcomes a sector has: versions of an unflushed sector
/// from the durable one (0) to the newest, or for a write in flight not landed (0) or landed (1).
type CutChooser = Box<dyn FnMut(usize) -> usize>;

/// Drives, time and chance. Drives keep their contents from run to run: running again is a restart.
pub struct SimWorld {
    config: WorldConfig,
    shared: Rc<RefCell<Shared>>,
    drives: Vec<DriveHandle>,
    /// The losses of these drives.
    losses: Vec<Arc<Losses>>,
    cut_at: Option<Instant>,
    choose: Option<CutChooser>,
}

impl SimWorld {
    /// A world without drives. Panics without cores.
    pub fn new(config: WorldConfig) -> SimWorld {
        assert!(config.cores > 0, "a world needs a core");
        let shared = Shared {
            rng: Rng::new(config.seed),
            clock: Arc::new(AtomicU64::new(0)),
            events: Default::default(),
            wakes: Default::default(),
            network: Default::default(),
            done: (0..config.cores).map(|_| Vec::new()).collect(),
            ops_submitted: 0,
            cut_after_ops: None,
            cut: false,
            trace: 0,
            serial: 0,
            orderly: false,
        };
        SimWorld {
            config,
            shared: Rc::new(RefCell::new(shared)),
            drives: Vec::new(),
            losses: Vec::new(),
            cut_at: None,
            choose: None,
        }
    }

    /// Adds a drive of zeros. Panics if its size is not whole sectors.
    pub fn add_drive(&mut self, config: DriveConfig) -> Device {
        let rng = self.shared.borrow_mut().rng.fork();
        let rotational = config.model.as_ref().is_some_and(DriveModel::rotational);
        let geometry = BlockGeometry { rotational, ..BlockGeometry::of_sectors(config.sector_bytes) };
        let (name, size_bytes) = (config.name.clone(), config.size_bytes);
        let drive = DriveHandle::new(Drive::new(self.drives.len() as u64 + 100, config, rng));
        self.drives.push(drive.clone());
        let device = Device::with_kind(name, size_bytes, geometry, Kind::Hosted(Box::new(drive)));
        self.losses.push(device.0.losses.clone());
        device
    }

    /// The controls of a simulated drive. Panics for any other device.
    pub fn drive(&self, device: &Device) -> DriveControl {
        let Some(drive) = DriveHandle::of(device) else { panic!("{device:?} is not a simulated drive") };
        DriveControl { drive: drive.clone(), clock: self.shared.borrow().clock.clone() }
    }

    /// A listener, and where tasks connect to it. A connection holds at most `buffer_bytes` in each
    /// direction that were sent and not received.
    pub fn endpoint(&self, buffer_bytes: usize) -> (SimEndpoint, Listener) {
        SimEndpoint::new(buffer_bytes, &self.shared.borrow().network.news)
    }

    /// The power goes when the `n`-th drive operation from now on is submitted (1: the next); it is
    /// then in flight.
    pub fn power_cut_after_ops(&mut self, n: u64) {
        assert!(n > 0, "operations are counted from 1");
        let mut shared = self.shared.borrow_mut();
        shared.cut_after_ops = Some(shared.ops_submitted + n);
    }

    /// The power goes at a virtual time.
    pub fn power_cut_at(&mut self, at: Instant) {
        self.cut_at = Some(at);
    }

    /// Takes a planned power cut back.
    pub fn cancel_power_cut(&mut self) {
        self.shared.borrow_mut().cut_after_ops = None;
        self.cut_at = None;
    }

    /// Decides power cuts by hand instead of by the seed, so that a test can enumerate every
    /// outcome. `choose(n)` answers a number below `n`, once per sector: for unflushed sectors 0 is
    /// the durable version and `n - 1` the newest, for sectors in flight 1 means that it landed.
    pub fn choose_power_cuts(&mut self, choose: impl FnMut(usize) -> usize + 'static) {
        self.choose = Some(Box::new(choose));
    }

    /// From now on cores see every completion on time and run their tasks in the order in which
    /// these became ready, instead of as chance has it: for measurements, where what is late is to
    /// be late for a reason.
    pub fn keep_order(&mut self) {
        self.shared.borrow_mut().orderly = true;
    }

    /// The virtual time. It runs on from run to run.
    pub fn now(&self) -> Instant {
        self.shared.borrow().now()
    }

    /// Drive operations submitted so far, over all runs.
    pub fn ops_submitted(&self) -> u64 {
        self.shared.borrow().ops_submitted
    }

    /// A hash over everything that happened, in order: equal seeds and programs give equal hashes.
    pub fn trace_hash(&self) -> u64 {
        self.shared.borrow().trace
    }

    /// Runs until `main` (on core 0) returns, the power goes, or nothing moves any more. Every task
    /// and value of the run is dropped at the end. Operations then in flight still reach the
    /// drives, unless the power went.
    pub fn run<T, F>(&mut self, main: F) -> RunOutcome<T>
    where
        F: AsyncFnOnce(Core) -> T,
    {
        self.losses.iter().for_each(|losses| losses.forget());
        let cores = self.start_cores();
        let mut value = None;
        let (ended, report) = {
            let core = Core::of(cores[0].clone());
            let main = pin!(async { value = Some(main(core).await) });
            let ended = self.step_until_end(&cores, main);
            // Before the main future goes, and with it what it waits for.
            (ended, if ended == End::Stuck { self.report(&cores) } else { Vec::new() })
        };
        let outcome = match ended {
            End::Main => RunOutcome::Done(value.expect("the main future returned")),
            End::Cut => RunOutcome::PowerCut,
            End::Stuck => RunOutcome::Stuck(report),
            End::Limit => RunOutcome::TimeLimit,
        };
        cores.iter().for_each(|core| core.shut_down(false));
        if ended == End::Cut {
            self.power_cut_now();
        } else {
            self.settle();
        }
        let mut shared = self.shared.borrow_mut();
        shared.network.clear();
        shared.done.iter_mut().for_each(Vec::clear);
        outcome
    }

    fn start_cores(&self) -> Vec<Rc<Inner>> {
        let (shared, inboxes): (Vec<_>, Vec<_>) =
            (0..self.config.cores).map(|ix| CoreShared::new(CoreIx(ix), None)).unzip();
        let group: Arc<[Arc<CoreShared>]> = shared.into();
        let start = |(core, inbox)| {
            let lanes = Lanes::new(self.config.queue_depth);
            let backend = SimBackend { shared: self.shared.clone(), core, lanes, withdrawn: Vec::new() };
            Inner::new(group[core].clone(), group.clone(), inbox, Box::new(backend))
        };
        inboxes.into_iter().enumerate().map(start).collect()
    }

    /// One poll at a time, by a core drawn from those with work; when none has work, time moves to
    /// the next event.
    fn step_until_end(&mut self, cores: &[Rc<Inner>], mut main: Pin<&mut dyn Future<Output = ()>>) -> End {
        let deadline = self.now() + self.config.time_limit;
        let mut idle = pin!(std::future::pending::<()>());
        let mut with_work = Vec::with_capacity(cores.len());
        for _ in 0..self.config.poll_limit {
            loop {
                with_work.clear();
                for (index, core) in cores.iter().enumerate() {
                    let _entered = core.enter();
                    core.take_news();
                    core.fire_timers();
                    core.reap(Wait::No);
                    if core.has_work() {
                        with_work.push(index);
                    }
                }
                if !with_work.is_empty() {
                    break;
                }
                // Sends that moved a part only go on before time does.
                let goes_on = cores.iter().filter(|core| core.has_queued()).map(|core| core.submit()).count();
                if self.shared.borrow().cut {
                    return End::Cut;
                }
                if goes_on == 0
                    && let Err(end) = self.advance(cores, deadline)
                {
                    return end;
                }
            }
            let chosen = match with_work.len() {
                1 => with_work[0],
                n => with_work[self.shared.borrow_mut().rng.below(n as u64) as usize],
            };
            let core = &cores[chosen];
            let _entered = core.enter();
            let future =
                if chosen == 0 { main.as_mut() } else { idle.as_mut() as Pin<&mut dyn Future<Output = ()>> };
            let finished = core.run_ready(future, 1);
            core.submit();
            if self.shared.borrow().cut {
                return End::Cut;
            }
            if finished {
                return End::Main;
            }
        }
        End::Limit
    }

    /// Moves time to the next event or timer and completes what is due then.
    fn advance(&mut self, cores: &[Rc<Inner>], deadline: Instant) -> Result<(), End> {
        let timer = cores.iter().filter_map(|core| core.next_timer()).min();
        self.shared.borrow_mut().plan_network();
        let event = self.shared.borrow().next_event();
        let never = Instant::from_nanos(u64::MAX);
        let next = [timer, event].into_iter().flatten().min().filter(|at| *at < never);
        if let Some(cut_at) = self.cut_at
            && next.is_none_or(|next| next >= cut_at)
        {
            self.cut_at = None;
            let mut shared = self.shared.borrow_mut();
            let now = shared.now();
            shared.set_now(cut_at.max(now));
            return Err(End::Cut);
        }
        let Some(next) = next else { return Err(End::Stuck) };
        if next > deadline {
            return Err(End::Limit);
        }
        let mut shared = self.shared.borrow_mut();
        let now = shared.now();
        shared.set_now(next.max(now));
        // A busy core sees completions late and then several at once: now and then time skips ahead
        // a little, though never past a timer.
        let ahead = next + SKIP;
        if !shared.orderly
            && shared.rng.below(8) == 0
            && timer.is_none_or(|timer| timer > ahead)
            && ahead <= deadline
        {
            let last = shared.events.range(..(ahead, 0, 0)).next_back().map(|((at, _, _), _)| *at);
            shared.set_now(last.unwrap_or(now).max(next).max(now));
        }
        shared.complete_due();
        Ok(())
    }

    /// Lets what is in flight reach the drives: the program ended, the machine did not.
    fn settle(&mut self) {
        let mut shared = self.shared.borrow_mut();
        while let Some((_, mut event)) = shared.events.pop_first() {
            let now = shared.now();
            // No task is left to get the answer.
            let _ = event.drive().clone().lock().complete(&mut event.op, event.accepted, now);
        }
        let now = shared.now();
        shared.wakes.clear();
        for drive in &self.drives {
            let mut drive = drive.lock();
            drive.wake = None;
            for mut event in drive.service.drain() {
                let _ = drive.complete(&mut event.op, event.accepted, now);
            }
        }
    }

    /// Cuts the power: every unflushed sector, and every sector in flight, survives or not.
    pub fn power_cut_now(&mut self) {
        let mut shared = self.shared.borrow_mut();
        shared.cut = false;
        shared.cut_after_ops = None;
        shared.note(7, 0);
        let custom = &mut self.choose;
        let mut choose = |rng: &mut Rng, n: usize| match custom {
            Some(custom) => custom(n).min(n - 1),
            None => rng.below(n as u64) as usize,
        };
        let choose: &mut Chooser<'_> = &mut choose;
        for drive in &self.drives {
            drive.lock().lose_cache(choose);
        }
        while let Some((_, event)) = shared.events.pop_first() {
            let drive = event.drive().clone();
            drive.lock().tear(&event.op, event.accepted, self.config.torn_unreadable_ppm, choose);
        }
        shared.wakes.clear();
        for drive in &self.drives {
            let mut drive = drive.lock();
            drive.wake = None;
            for event in drive.service.drain() {
                drive.tear(&event.op, event.accepted, self.config.torn_unreadable_ppm, choose);
            }
        }
        // A version that landed stays: there is no cache any more that could lose it.
        for drive in &self.drives {
            drive.lock().settle_cache();
        }
    }

    /// What is pending, for a run that is stuck.
    fn report(&self, cores: &[Rc<Inner>]) -> Vec<String> {
        let shared = self.shared.borrow();
        let describe = |event: &Event| {
            let started = cores[event.core].op_started(event.key);
            format!("core {}: {}, started at {started}", event.core, event.op)
        };
        let mut ops: Vec<_> = shared.events.values().map(describe).collect();
        for drive in &self.drives {
            ops.extend(drive.lock().service.events().map(describe));
        }
        ops.extend(
            shared.network.waiting().map(|(core, key, op)| {
                format!("core {core}: {op}, started at {}", cores[core].op_started(key))
            }),
        );
        let tasks = cores.iter().enumerate().flat_map(|(index, core)| {
            core.live_tasks().into_iter().map(move |at| format!("core {index}: task waits, spawned at {at}"))
        });
        ops.into_iter().chain(tasks).collect()
    }
}

impl Shared {
    /// Operations that the other end of a connection has made possible end in a while.
    fn plan_network(&mut self) {
        let now = self.now();
        self.network.plan(now, &mut self.serial, &mut self.rng);
    }

    /// When something happens next at a drive or on a connection.
    fn next_event(&self) -> Option<Instant> {
        let event = self.events.first_key_value().map(|((at, _, _), _)| *at);
        let wake = self.wakes.first_key_value().map(|((at, _), _)| *at);
        [event, wake, self.network.next()].into_iter().flatten().min()
    }

    /// Completes everything whose time has come; what a stalled drive has to do moves behind the
    /// stall.
    fn complete_due(&mut self) {
        let now = self.now();
        while let Some(next) = self.next_event().filter(|next| *next <= now) {
            let woken = self.wakes.first_entry().filter(|wake| wake.key().0 == next);
            match woken.map(OccupiedEntry::remove) {
                Some(drive) => self.look_at(&drive, now),
                None if self.network.next() == Some(next) => self.end_next_on_network(),
                None => self.complete_next(now),
            }
        }
    }

    fn end_next_on_network(&mut self) {
        if let Some((core, done)) = self.network.end_next() {
            self.note(8, done.result.map_or(u64::MAX, |count| count as u64) ^ u64::from(done.key.0) << 40);
            self.done[core].push(done);
        }
    }

    fn complete_next(&mut self, now: Instant) {
        let Some((_, event)) = self.events.pop_first() else { return };
        let drive = event.drive().clone();
        let mut drive = drive.lock();
        if drive.faults.stalled_until > now {
            let until = drive.faults.stalled_until;
            self.schedule(until, event);
        } else {
            self.complete(&mut drive, event, now);
        }
    }

    /// Completes what a drive's model says is complete.
    fn look_at(&mut self, handle: &DriveHandle, now: Instant) {
        let mut drive = handle.lock();
        drive.wake = None;
        if drive.faults.stalled_until <= now {
            let mut done = Vec::new();
            drive.service.advance(now, &mut done);
            done.into_iter().for_each(|event| self.complete(&mut drive, event, now));
        }
        self.arm(handle, &mut drive);
    }

    fn complete(&mut self, drive: &mut Drive, mut event: Event, now: Instant) {
        let result = drive.complete(&mut event.op, event.accepted, now);
        self.note(drive.id, u64::from(result.is_ok()) << 32 | u64::from(event.key.0));
        self.done[event.core].push(crate::op::Completion { key: event.key, result, op: event.op });
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Main,
    Cut,
    Stuck,
    Limit,
}
