//! What an operator asks of jobs, and is told of them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use wattle_rt::{Instant, Latch};

use super::findings::Findings;
use super::pace::Throttle;
use super::report::{FinishedJob, JobEnd, JobKind, LimitedBy, SyncStatus};
use super::share::{DECISIONS_MAX, Goal, ShareDecision};
use super::sums::Recording;
use super::unit::Task;
use super::{Job, JobError, JobTuning, Pace, RecordJob, RepairSource};
use crate::model::geometry::{Geometry, Level, LevelKind};
use crate::model::health::{Health, MemberState};
use crate::model::units::{MemberIx, SECTOR_BYTES, Sector};
use crate::state::JobSignals;
use crate::state::metadata::LocalBoxFuture;

/// The jobs of an array, at its home.
pub(crate) struct Control {
    /// Something happened that the loop is to look at.
    pub(super) news: Latch,
    pub(super) paused: Cell<bool>,
    pub(super) frozen: Cell<bool>,
    pub(super) halted: Cell<bool>,
    pub(super) abort: Cell<bool>,
    pub(super) pace: Cell<Pace>,
    pub(super) goal: Cell<Goal>,
    /// What was decided about jobs that ended, the latest last.
    pub(super) decisions: RefCell<VecDeque<ShareDecision>>,
    pub(super) request: RefCell<Option<Request>>,
    pub(super) progress: RefCell<Option<Progress>>,
    pub(super) last: RefCell<Option<FinishedJob>>,
    /// The last of those that were asked for, the oldest first.
    asked_ends: RefCell<VecDeque<Arc<FinishedJob>>>,
    /// Numbers what is asked for.
    asked: Cell<u64>,
    /// Jobs that could not go on, and in which epoch: they are not tried again before something
    /// changes.
    pub(super) gave_up: RefCell<Vec<(JobKind, u64)>>,
    /// Numbers steps.
    pub(super) steps: Cell<u64>,
    /// The loop is not running, or not any more.
    pub(super) ended: Latch,
}

/// Ends of what was asked for that are remembered: they are looked for now and then, and meanwhile
/// something else may be asked for, and end.
const ASKED_ENDS_MAX: usize = 4;

/// A check or repair that was asked for.
pub(super) struct Request {
    pub number: u64,
    pub task: Task,
    /// What is left of it.
    pub range: Range<Sector>,
    /// Where one of its kind ends that goes over the whole array.
    pub whole: Sector,
    /// Whether its sums are to be taken.
    pub record: Recording,
    /// What was done of it and what it found, while something more urgent has its turn: the rest is
    /// the same run, so that a run that comes to its end has gone over everything it was asked for.
    pub set_aside: Option<Progress>,
}

/// What there is of sums of recorded scrubs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sums {
    /// No place to keep any.
    None,
    /// A place, and nothing in it that says anything.
    Empty,
    /// Those of a scrub.
    Taken,
}

/// The job under way, which may take several sweeps.
pub(super) struct Progress {
    /// Of what was asked for.
    pub number: Option<u64>,
    pub action: JobKind,
    pub started: Instant,
    /// Where it began.
    pub start: Sector,
    pub position: Sector,
    pub end: Sector,
    /// Where a job of this kind ends that goes over the whole array.
    pub whole: Sector,
    pub done: Sector,
    pub findings: Findings,
    pub throttle: Throttle,
    pub busy: BTreeMap<MemberIx, Duration>,
}

impl Request {
    fn action(&self) -> JobKind {
        match self.task {
            Task::Repair(_) => JobKind::Repair,
            _ => JobKind::Check,
        }
    }
}

impl Progress {
    /// Of a job that begins now.
    pub fn new(now: Instant, action: JobKind, range: &Range<Sector>, whole: Sector) -> Self {
        Self {
            number: None,
            action,
            started: now,
            start: range.start,
            position: range.start,
            end: range.end,
            whole,
            done: Sector(0),
            findings: Findings::default(),
            throttle: Throttle::new(now),
            busy: BTreeMap::new(),
        }
    }
}

impl Control {
    pub fn new(tuning: &JobTuning) -> Self {
        let ended = Latch::new();
        ended.set();
        Self {
            news: Latch::new(),
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
            asked_ends: RefCell::default(),
            asked: Cell::new(0),
            gave_up: RefCell::default(),
            steps: Cell::new(0),
            ended,
        }
    }

    /// The loop is about to run.
    pub fn begins(&self) {
        self.ended.reset();
    }

    /// Whether a check or repair was asked for and has not ended.
    pub fn is_asked(&self) -> bool {
        self.request.borrow().is_some()
    }

    /// Ends the check or repair that was asked for.
    pub fn abort(&self) {
        self.abort.set(true);
        self.news.set();
    }

    /// Lets jobs rest where they are, after recording how far they are; or go on.
    pub fn pause(&self, paused: bool) {
        self.paused.set(paused);
        self.news.set();
    }

    /// Ends checks and repairs, lets resync and recovery rest, and lets nothing start; or lets them
    /// start again.
    pub fn freeze(&self, frozen: bool) {
        self.frozen.set(frozen);
        self.abort.set(frozen || self.abort.get());
        self.news.set();
    }

    /// Sets how fast jobs go, from now on.
    pub fn set_pace(&self, pace: Pace) {
        self.pace.set(pace);
        self.news.set();
    }

    /// Sets what is steered towards while jobs run beside clients, from now on.
    pub fn set_goal(&self, goal: Goal) {
        self.goal.set(goal);
        self.news.set();
    }

    /// The job that ended last.
    pub fn last(&self) -> Option<FinishedJob> {
        self.last.borrow().clone()
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
            is_part: self.is_at_request() && (progress.start > Sector(0) || progress.end < progress.whole),
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

    /// What was asked for and ended lately, the oldest first.
    pub fn asked_ends(&self) -> Vec<Arc<FinishedJob>> {
        self.asked_ends.borrow().iter().cloned().collect()
    }

    /// What was decided about jobs, the latest last.
    pub fn decisions(&self) -> Vec<ShareDecision> {
        let progress = self.progress.borrow();
        let decisions = progress.iter().flat_map(|progress| progress.throttle.decisions());
        self.decided(decisions).into()
    }

    /// What is remembered when `more` was decided.
    fn decided(&self, more: impl Iterator<Item = ShareDecision>) -> VecDeque<ShareDecision> {
        let mut all: VecDeque<ShareDecision> = self.decisions.borrow().iter().copied().chain(more).collect();
        all.drain(..all.len().saturating_sub(DECISIONS_MAX));
        all
    }

    /// The job under way, and the last one that ended.
    pub fn report(&self, now: Instant) -> (Option<SyncStatus>, Option<FinishedJob>) {
        (self.status(now), self.last.borrow().clone())
    }

    /// The job under way ended.
    pub(super) fn finish(&self, now: Instant, end: JobEnd) {
        if let Some(progress) = self.progress.borrow_mut().take() {
            self.note_end(progress, now, end);
        }
    }

    /// The job under way makes way for another: what was asked for goes on after it.
    pub(super) fn make_way(&self, now: Instant) {
        match &mut *self.request.borrow_mut() {
            Some(request) if self.is_at_request() => {
                request.set_aside = self.progress.borrow_mut().take();
            }
            _ => self.finish(now, JobEnd::Aborted),
        }
    }

    /// What was asked for ends before it was done, if there is anything: whether there was. One
    /// that had not begun ends, too: its end is waited for.
    pub(super) fn drop_request(&self, now: Instant, end: JobEnd) -> bool {
        let Some(mut request) = self.request.borrow_mut().take() else { return false };
        match request.set_aside.take() {
            Some(progress) => self.note_end(progress, now, end),
            None if self.is_at_request() => self.finish(now, end),
            None => {
                let begun = Progress::new(now, request.action(), &request.range, request.whole);
                self.note_end(Progress { number: Some(request.number), ..begun }, now, end);
            }
        }
        true
    }

    /// The array breaks, or stops: nothing that goes on, or was asked for, can be done.
    pub(super) fn end_all(&self, now: Instant, end: JobEnd) {
        if !self.is_at_request() {
            self.finish(now, end);
        }
        self.drop_request(now, end);
    }

    /// Whether the job under way is one that was asked for.
    fn is_at_request(&self) -> bool {
        self.progress.borrow().as_ref().is_some_and(|progress| progress.number.is_some())
    }

    fn note_end(&self, progress: Progress, now: Instant, end: JobEnd) {
        self.decisions.replace(self.decided(progress.throttle.decisions()));
        let findings = progress.findings;
        let ended = FinishedJob {
            number: progress.number,
            action: progress.action,
            end,
            started: progress.started,
            ended: now,
            done: progress.done,
            covered: progress.start..progress.position,
            whole: progress.whole,
            mismatch_sectors: findings.mismatch_sectors,
            mismatches: findings.listed,
            mismatches_not_listed: findings.not_listed,
            agreed_sectors: findings.agreed_sectors,
            unreadable_sectors: findings.unreadable_sectors,
            late_sectors: findings.late_sectors,
            alone_sectors: findings.alone_sectors,
            bad_sectors_passed_on: findings.passed_on_sectors,
            repaired: findings.repaired,
            sums: findings.sums,
        };
        if ended.number.is_some() {
            let mut ends = self.asked_ends.borrow_mut();
            ends.push_back(Arc::new(ended.clone()));
            let surplus = ends.len().saturating_sub(ASKED_ENDS_MAX);
            ends.drain(..surplus);
        }
        *self.last.borrow_mut() = Some(ended);
    }

    /// Asks for a check or a repair, and returns the number that its end will have.
    ///
    /// # Errors
    /// See [`JobError`]; nothing was started then.
    pub fn start(
        &self,
        geometry: &Geometry,
        read_only: bool,
        health: &Health,
        sums: Sums,
        job: Job,
    ) -> Result<u64, JobError> {
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
        let (task, range, record) = match job {
            Job::Check { range } => (Task::Check, range, Recording::Off),
            Job::Repair { range, source } => {
                (Task::Repair(repair_source(geometry, source)?), range, Recording::Off)
            }
            Job::Record(RecordJob::Check) => (Task::Check, None, Recording::Keeps),
            Job::Record(RecordJob::Accept) => (Task::Check, None, Recording::Accepts),
            Job::Record(RecordJob::Repair) => (Task::Repair(RepairSource::Sums), None, Recording::Keeps),
        };
        let records = record != Recording::Off;
        let by_sums = task == Task::Repair(RepairSource::Sums);
        if (records || by_sums) && sums == Sums::None {
            return Err(JobError::NoSums);
        }
        if by_sums && sums != Sums::Taken {
            return Err(JobError::NothingRecorded);
        }
        // With sums there is something to compare also where redundancy is gone.
        if !can_compare(geometry, health) && !records {
            return Err(JobError::NothingToCheck);
        }
        let whole = geometry.sync_sectors();
        let range = range.unwrap_or(Sector(0)..whole);
        if range.is_empty() || range.end > whole {
            return Err(JobError::OutOfRange);
        }
        self.abort.set(false);
        let number = self.asked.get();
        self.asked.set(number + 1);
        *self.request.borrow_mut() = Some(Request { number, task, range, whole, record, set_aside: None });
        self.news.set();
        Ok(number)
    }
}

impl JobSignals for Control {
    fn wake(&self) {
        self.news.set();
    }

    fn halt(&self) -> LocalBoxFuture<'_, ()> {
        self.halted.set(true);
        self.news.set();
        Box::pin(self.ended.wait())
    }
}

/// Whether anything is there twice.
fn can_compare(geometry: &Geometry, health: &Health) -> bool {
    match geometry.kind() {
        LevelKind::Striped => false,
        LevelKind::Parity => health.lost().len() < geometry.redundancy(),
        LevelKind::Mirrored => geometry.has_copies_twice(&health.lost()),
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
        // Two copies that differ have no majority; but one makes up for the other where that cannot
        // be read.
        (Level::Raid1 | Level::Raid10, Some(RepairSource::Majority)) => Ok(RepairSource::Majority),
        (_, Some(RepairSource::Sums)) => Ok(RepairSource::Sums),
        (_, None) => Err(JobError::NeedsSource),
        _ => Err(JobError::WrongSource),
    }
}

/// Seats that are to be filled.
pub(super) fn targets(health: &Health) -> Vec<MemberIx> {
    let filling = |seat: &MemberIx| matches!(health.state(*seat), MemberState::Rebuilding { .. });
    (0..health.members.len() as u16).map(MemberIx).filter(filling).collect()
}
