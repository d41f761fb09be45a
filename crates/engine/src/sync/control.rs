//! What an operator asks of jobs, and is told of them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use wattle_rt::{Core, Event, Instant};

use super::findings::Findings;
use super::pace::Throttle;
use super::report::{Action, JobEnd, LimitedBy, SyncReport, SyncStatus};
use super::share::{DECISIONS_MAX, Decision, Goal};
use super::unit::Task;
use super::{Job, JobError, Pace, RepairSource, Tuning};
use crate::array::{ArrayHandle, Health, Home, MemberState};
use crate::geometry::{Geometry, Kind, Level};
use crate::units::{MemberIx, SECTOR_BYTES, Sector};

/// The jobs of an array, at its home.
pub(crate) struct Control {
    /// Something happened that the loop is to look at.
    pub(super) news: Event,
    pub(super) paused: Cell<bool>,
    pub(super) frozen: Cell<bool>,
    pub(super) halted: Cell<bool>,
    pub(super) abort: Cell<bool>,
    pub(super) pace: Cell<Pace>,
    pub(super) goal: Cell<Goal>,
    /// What was decided about jobs that ended, the latest last.
    pub(super) decisions: RefCell<VecDeque<Decision>>,
    pub(super) request: RefCell<Option<Request>>,
    pub(super) progress: RefCell<Option<Progress>>,
    pub(super) last: RefCell<Option<SyncReport>>,
    /// Jobs that could not go on, and in which epoch: they are not tried again before something changes.
    pub(super) gave_up: RefCell<Vec<(Action, u64)>>,
    /// Numbers steps.
    pub(super) steps: Cell<u64>,
    /// The loop is not running, or not any more.
    pub(super) ended: Event,
}

/// A check or repair that was asked for.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub task: Task,
    /// What is left of it.
    pub range: Range<Sector>,
}

/// The job under way, which may take several passes.
pub(super) struct Progress {
    pub action: Action,
    pub started: Instant,
    pub position: Sector,
    pub end: Sector,
    pub done: Sector,
    pub findings: Findings,
    pub throttle: Throttle,
    pub busy: BTreeMap<MemberIx, Duration>,
}

impl Control {
    pub fn new(tuning: &Tuning) -> Self {
        let ended = Event::new();
        ended.set();
        Self {
            news: Event::new(),
            paused: Cell::new(false),
            frozen: Cell::new(tuning.frozen),
            halted: Cell::new(false),
            abort: Cell::new(false),
            pace: Cell::new(tuning.pace),
            goal: Cell::new(tuning.goal),
            decisions: RefCell::default(),
            request: RefCell::default(),
            progress: RefCell::default(),
            last: RefCell::default(),
            gave_up: RefCell::default(),
            steps: Cell::new(0),
            ended,
        }
    }

    /// The loop is about to run.
    pub fn begins(&self) {
        self.ended.reset();
    }

    /// The members changed.
    pub fn wake(&self) {
        self.news.set();
    }

    /// Ends whatever runs, what is done is recorded, and lets nothing begin any more.
    pub async fn halt(&self) {
        self.halted.set(true);
        self.news.set();
        self.ended.wait().await;
    }

    fn status(&self, now: Instant) -> Option<SyncStatus> {
        let progress = self.progress.borrow();
        let progress = progress.as_ref()?;
        let paused = self.paused.get() || self.frozen.get();
        let speed = if paused { 0 } else { progress.throttle.speed(now) };
        let left = (progress.end.0.saturating_sub(progress.position.0)) * SECTOR_BYTES;
        let slowest = progress.busy.iter().max_by_key(|(_, busy)| **busy);
        Some(SyncStatus {
            action: progress.action,
            position: progress.position,
            end: progress.end,
            speed_bytes_per_second: speed,
            time_left: (speed > 0).then(|| Duration::from_secs(left / speed)),
            paused,
            limited_by: match progress.throttle.limited_by {
                _ if paused => LimitedBy::Paused,
                LimitedBy::Nothing => {
                    slowest.map_or(LimitedBy::Nothing, |(seat, _)| LimitedBy::Member(*seat))
                }
                limit => limit,
            },
            mismatch_sectors: progress.findings.mismatch_sectors,
            unreadable_sectors: progress.findings.unreadable_sectors,
            late_sectors: progress.findings.late_sectors,
        })
    }

    /// What was decided about jobs, the latest last.
    pub fn decisions(&self) -> Vec<Decision> {
        let progress = self.progress.borrow();
        let decisions = progress.iter().flat_map(|progress| progress.throttle.decisions());
        self.decided(decisions).into()
    }

    /// What is remembered when `more` was decided.
    fn decided(&self, more: impl Iterator<Item = Decision>) -> VecDeque<Decision> {
        let mut all: VecDeque<Decision> = self.decisions.borrow().iter().copied().chain(more).collect();
        all.drain(..all.len().saturating_sub(DECISIONS_MAX));
        all
    }

    /// The job under way, and the last one that ended.
    pub fn report(&self, now: Instant) -> (Option<SyncStatus>, Option<SyncReport>) {
        (self.status(now), self.last.borrow().clone())
    }

    /// The job under way ended.
    pub(super) fn finish(&self, now: Instant, end: JobEnd) {
        let Some(progress) = self.progress.borrow_mut().take() else { return };
        self.decisions.replace(self.decided(progress.throttle.decisions()));
        let findings = progress.findings;
        *self.last.borrow_mut() = Some(SyncReport {
            action: progress.action,
            end,
            started: progress.started,
            ended: now,
            done: progress.done,
            mismatch_sectors: findings.mismatch_sectors,
            mismatches: findings.listed,
            mismatches_not_listed: findings.not_listed,
            unreadable_sectors: findings.unreadable_sectors,
            late_sectors: findings.late_sectors,
            bad_sectors_passed_on: findings.passed_on_sectors,
            repaired: findings.repaired,
        });
    }

    fn start(&self, geometry: &Geometry, read_only: bool, health: &Health, job: Job) -> Result<(), JobError> {
        if read_only {
            return Err(JobError::ReadOnly);
        }
        if health.broken {
            return Err(JobError::Broken);
        }
        if self.halted.get() {
            return Err(JobError::Stopped);
        }
        if self.frozen.get() {
            return Err(JobError::Frozen);
        }
        if self.request.borrow().is_some() {
            return Err(JobError::AlreadyRunning);
        }
        if !can_compare(geometry, health) {
            return Err(JobError::NothingToCheck);
        }
        let (task, range) = match job {
            Job::Check { range } => (Task::Check, range),
            Job::Repair { range, source } => (Task::Repair(repair_source(geometry, source)?), range),
        };
        let end = geometry.sync_sectors();
        let range = range.unwrap_or(Sector(0)..end);
        if range.is_empty() || range.end > end {
            return Err(JobError::OutOfRange);
        }
        self.abort.set(false);
        *self.request.borrow_mut() = Some(Request { task, range });
        self.news.set();
        Ok(())
    }
}

/// Whether anything is there twice.
fn can_compare(geometry: &Geometry, health: &Health) -> bool {
    let lost = health.lost().len();
    match geometry.kind() {
        Kind::Striped => false,
        Kind::Parity => lost < geometry.redundancy(),
        Kind::Mirrored => geometry.redundancy() > 0 && geometry.raid_disks() - lost > 1,
    }
}

fn repair_source(geometry: &Geometry, source: Option<RepairSource>) -> Result<RepairSource, JobError> {
    let copies = geometry.redundancy() + 1;
    let slot_exists = |slot: MemberIx| slot.index() < geometry.raid_disks();
    match (geometry.level(), source) {
        (Level::Raid4 | Level::Raid5, None | Some(RepairSource::ParityFromData))
        | (Level::Raid6, Some(RepairSource::ParityFromData)) => Ok(RepairSource::ParityFromData),
        (Level::Raid6, Some(RepairSource::Raid6Culprit)) => Ok(RepairSource::Raid6Culprit),
        (Level::Raid1 | Level::Raid10, Some(RepairSource::CopyFrom(slot))) if slot_exists(slot) => {
            Ok(RepairSource::CopyFrom(slot))
        }
        (Level::Raid1 | Level::Raid10, None) if copies >= 3 => Ok(RepairSource::Majority),
        // Of two copies that differ none has it; but one makes up for the other where that cannot be read.
        (Level::Raid1 | Level::Raid10, Some(RepairSource::Majority)) => Ok(RepairSource::Majority),
        (_, None) => Err(JobError::NeedsSource),
        _ => Err(JobError::WrongSource),
    }
}

/// Checks, repairs, and the pace of everything that goes over the whole array.
impl ArrayHandle {
    /// Starts a check or a repair; it begins when what is out of sync is in sync.
    ///
    /// # Errors
    /// See [`JobError`]; nothing was started then.
    pub async fn start_job(&self, core: &Core, job: Job) -> Result<(), JobError> {
        let fixed = self.fixed().clone();
        self.at_home(core, move |home| async move {
            home.sync.start(&fixed.geometry, fixed.read_only, &home.health(), job)
        })
        .await
        .unwrap_or(Err(JobError::Stopped))
    }

    /// Whether a check or repair was asked for and has not ended.
    pub async fn job_is_asked_for(&self, core: &Core) -> bool {
        let asked = self.at_home(core, |home| async move { home.sync.request.borrow().is_some() }).await;
        asked.unwrap_or(false)
    }

    /// Ends the check or repair that was asked for. What is found until then is in [`Self::report`].
    pub async fn abort_job(&self, core: &Core) {
        self.control(core, |control| {
            control.abort.set(true);
        })
        .await;
    }

    /// Lets jobs rest where they are, after recording how far they are; or go on.
    pub async fn pause(&self, core: &Core, paused: bool) {
        self.control(core, move |control| control.paused.set(paused)).await;
    }

    /// Ends checks and repairs, lets resync and recovery rest, and lets nothing start; or lets them start again (md's `frozen`).
    pub async fn freeze(&self, core: &Core, frozen: bool) {
        self.control(core, move |control| {
            control.frozen.set(frozen);
            control.abort.set(frozen || control.abort.get());
        })
        .await;
    }

    /// Sets how fast jobs go, from now on.
    pub async fn set_pace(&self, core: &Core, pace: Pace) {
        self.control(core, move |control| control.pace.set(pace)).await;
    }

    /// Sets what is steered towards while jobs run beside clients, from now on.
    pub async fn set_goal(&self, core: &Core, goal: Goal) {
        let _: Option<()> = self
            .at_home(core, move |home: Rc<Home>| async move {
                home.on_every_core(move |shard| async move { shard.requests.late_after(goal.late_after()) })
                    .await;
                home.sync.goal.set(goal);
                home.sync.news.set();
            })
            .await;
    }

    /// The job that ended last.
    pub async fn report(&self, core: &Core) -> Option<SyncReport> {
        self.at_home(core, |home| async move { home.sync.last.borrow().clone() }).await?
    }

    async fn control(&self, core: &Core, f: impl FnOnce(&Control) + Send + 'static) {
        let _: Option<()> = self
            .at_home(core, move |home: Rc<Home>| async move {
                f(&home.sync);
                home.sync.news.set();
            })
            .await;
    }
}

/// Seats that are to be filled.
pub(super) fn targets(health: &Health) -> Vec<MemberIx> {
    let filling = |seat: &MemberIx| matches!(health.state(*seat), MemberState::Rebuilding { .. });
    (0..health.members.len() as u16).map(MemberIx).filter(filling).collect()
}
