//! The loop, and one sweep over the array.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use wattle_rt::{Core, CoreIx, Instant, race};

use super::control::{Control, Progress};
use super::next::next;
use super::report::{JobEnd, JobFailure, JobKind};
use super::share::Clients;
use super::sums::{Recording, SumUse, TakenSums};
use super::unit::{self, Outcome, Task, Trouble};
use super::{JobShard, JobTuning, RepairSource};
use crate::cores::on_every_core;
use crate::hints::HintShard;
use crate::model::fixed::Fixed;
use crate::model::geometry::LevelKind;
use crate::model::health::{Health, MemberState, Occupant, Trust};
use crate::model::invariant::invariant;
use crate::model::units::{MemberIx, SECTOR_BYTES, Sector};
use crate::state::Home;

/// How often every core is told how far a job is.
const REPORT_EVERY: Duration = Duration::from_millis(50);

/// Runs an array's jobs until it is stopped. At home, once.
pub(crate) async fn run(
    core: Core,
    home: Rc<Home>,
    control: Rc<Control>,
    fixed: Arc<Fixed>,
    tuning: JobTuning,
) {
    loop {
        control.news.reset();
        if control.halted.get() {
            break;
        }
        drop_aborted(&core, &home, &control).await;
        match next(&control, &home.health(), &fixed) {
            Some((task, range, record)) => {
                let mut sweep = Sweep::new(&core, (&home, &control), &fixed, &tuning, task, range);
                sweep.record = record;
                sweep.run().await;
            }
            None => {
                if home.health().broken {
                    control.end_all(core.now(), JobEnd::Failed(JobFailure::Broken));
                } else if !control.paused.get() && !control.frozen.get() {
                    control.finish(core.now(), JobEnd::Aborted);
                }
                control.news.wait().await;
            }
        }
    }
    home.abandon_sums().await;
    control.end_all(core.now(), JobEnd::Aborted);
    control.ended.set();
}

/// Takes back what was asked for, if that was said.
async fn drop_aborted(core: &Core, home: &Home, control: &Control) {
    if control.abort.replace(false) && control.drop_request(core.now(), JobEnd::Aborted) {
        home.abandon_sums().await;
    }
}

/// A step under way.
struct InFlight {
    range: Range<Sector>,
    outcome: Rc<RefCell<Option<Outcome>>>,
}

/// Once over the array.
struct Sweep<'a> {
    core: &'a Core,
    home: &'a Rc<Home>,
    control: &'a Rc<Control>,
    fixed: &'a Arc<Fixed>,
    tuning: &'a JobTuning,
    task: Arc<Task>,
    range: Range<Sector>,
    /// The last whole block of the array ends here.
    whole: Sector,
    /// Its sums are taken.
    record: Recording,
    /// Sums of steps that ended, in their order, that the store does not have yet.
    taken: Vec<TakenSums>,
    /// Where the next step is looked for.
    cursor: Sector,
    /// In the order of their places.
    steps: VecDeque<InFlight>,
    /// Bytes and stripes in flight.
    bytes: Rc<Cell<u64>>,
    stripes: Rc<Cell<usize>>,
    /// The members by seat at the start.
    seats: Vec<(u64, std::mem::Discriminant<MemberState>)>,
    health: Arc<Health>,
    trouble: Option<Trouble>,
    reported: (Instant, Sector),
    recorded: (Instant, Sector),
}

impl<'a> Sweep<'a> {
    fn new(
        core: &'a Core,
        (home, control): (&'a Rc<Home>, &'a Rc<Control>),
        fixed: &'a Arc<Fixed>,
        tuning: &'a JobTuning,
        task: Task,
        range: Range<Sector>,
    ) -> Self {
        let health = home.health();
        let block = u64::from(fixed.member_block_bytes) / SECTOR_BYTES;
        let now = core.now();
        let whole = match task {
            Task::Recover(_) => fixed.geometry.member_sectors(MemberIx(0)),
            _ => fixed.geometry.sync_sectors(),
        };
        // Whole blocks; a last one that is cut off can neither be read nor written.
        let start = Sector(range.start.0 / block * block);
        let whole = Sector(whole.0 / block * block);
        let end = Sector(range.end.0.next_multiple_of(block)).min(whole);
        let range = start..end.max(start);
        Self {
            core,
            home,
            control,
            fixed,
            tuning,
            task: Arc::new(task),
            cursor: range.start,
            record: Recording::Off,
            taken: Vec::new(),
            steps: VecDeque::new(),
            bytes: Rc::default(),
            stripes: Rc::default(),
            seats: signature(&health),
            health,
            trouble: None,
            reported: (now, range.start),
            recorded: (now, range.start),
            range,
            whole,
        }
    }

    fn action(&self) -> JobKind {
        match *self.task {
            Task::Resync => JobKind::Resync,
            Task::Recover(_) => JobKind::Recover,
            Task::Check => JobKind::Check,
            Task::Repair(_) => JobKind::Repair,
        }
    }

    /// Everything below is done.
    fn position(&self) -> Sector {
        self.steps.front().map_or(self.cursor, |step| step.range.start)
    }

    async fn run(mut self) {
        self.begin();
        // A repair chooses what the array holds where it disagrees with itself.
        let chooses = matches!(*self.task, Task::Repair(_));
        self.rest(false).await;
        self.prepare_sums().await;
        if chooses {
            self.on_hints(|hints| hints.ahead.suspend()).await;
        }
        let complete = loop {
            self.control.news.reset();
            if !self.is_asked() {
                // Of a check that waits for this job to end.
                drop_aborted(self.core, self.home, self.control).await;
            }
            self.collect();
            self.keep_sums().await;
            if self.must_end() {
                self.rest(true).await;
                self.drain().await;
                self.keep_sums().await;
                break false;
            }
            self.report(false).await;
            let now = self.core.now();
            let due = self.recorded.0 + self.tuning.checkpoint_every;
            if now >= due {
                self.record().await;
                continue;
            }
            let wait = self.launch(now);
            if self.cursor >= self.range.end && self.steps.is_empty() {
                break true;
            }
            let until = wait.map_or(due, |until| until.min(due));
            race(self.control.news.wait(), self.core.sleep_until(until)).await;
        };
        self.report(true).await;
        if chooses {
            self.on_hints(|hints| hints.ahead.resume()).await;
        }
        self.end(complete).await;
    }

    /// Whether steps on any core are to end instead of waiting for members.
    async fn rest(&self, resting: bool) {
        on_every_core::<JobShard, _, _>(self.core, self.fixed.jobs_key(), move |jobs| async move {
            jobs.reads.rest(resting);
        })
        .await;
    }

    async fn on_hints(&self, f: fn(&HintShard)) {
        on_every_core::<HintShard, _, _>(self.core, self.fixed.hints_key(), move |hints| async move {
            f(&hints);
        })
        .await;
    }

    /// Whether steps look at sums.
    fn compares_sums(&self) -> bool {
        matches!(*self.task, Task::Check | Task::Repair(RepairSource::Sums))
    }

    /// Before the first step: sums of members that are going to be filled say nothing any more,
    /// and those that are taken begin at the beginning, or go on where they were interrupted.
    async fn prepare_sums(&mut self) {
        if let Task::Recover(targets) = &*self.task {
            let slots = self.fixed.geometry.raid_disks() as u16;
            self.home.void_sums(targets.iter().map(|seat| MemberIx(seat.0 % slots)).collect()).await;
        }
        if self.records() && self.range.start == Sector(0) {
            self.home.begin_sums().await;
        }
        if !self.home.takes_sums_at(self.range.start) {
            self.record = Recording::Off;
        }
    }

    /// Hands on the sums of steps that ended.
    async fn keep_sums(&mut self) {
        for TakenSums { first, sums } in std::mem::take(&mut self.taken) {
            if self.records() {
                self.home.take_sums(first, sums).await;
            }
        }
    }

    fn is_asked(&self) -> bool {
        matches!(*self.task, Task::Check | Task::Repair(_))
    }

    /// Goes on with the job under way if it is of this kind, or with what of it was set aside; else
    /// begins a new one.
    fn begin(&self) {
        let (now, action) = (self.core.now(), self.action());
        let control = self.control;
        let goes_on = control.progress.borrow().as_ref().is_some_and(|progress| progress.action == action);
        if !goes_on {
            control.make_way(now);
        }
        let mut progress = control.progress.borrow_mut();
        let mut request = control.request.borrow_mut();
        let mut request = request.as_mut().filter(|_| self.is_asked());
        if let Some(set_aside) = request.as_mut().and_then(|request| request.set_aside.take()) {
            *progress = Some(set_aside);
        }
        let progress = progress.get_or_insert_with(|| Progress {
            number: request.map(|request| request.number),
            ..Progress::new(now, action, &self.range, self.whole)
        });
        progress.position = self.range.start;
        progress.end = self.range.end;
    }

    fn with_progress<T>(&self, f: impl FnOnce(&mut Progress) -> T) -> Option<T> {
        self.control.progress.borrow_mut().as_mut().map(f)
    }

    /// Takes what is done off the front.
    fn collect(&mut self) {
        while self.trouble.is_none() {
            let Some(step) = self.steps.front() else { break };
            let Some(outcome) = step.outcome.borrow_mut().take() else { break };
            let (now, sectors) = (self.core.now(), step.range.end - step.range.start);
            let done = outcome.end.is_ok();
            self.with_progress(|progress| {
                let (core, clients) = outcome.clients;
                progress.throttle.saw_clients(now, core, clients);
                progress.findings.has_written |= outcome.found.has_written();
                // A step that did not end is repeated, and finds it again.
                progress.findings.take(if done { outcome.found } else { outcome.found.of_repeated() });
                for (seat, time) in outcome.busy {
                    *progress.busy.entry(seat).or_default() += time;
                }
                if done {
                    progress.done += sectors;
                }
            });
            match outcome.end {
                Ok(()) => {
                    self.steps.pop_front();
                    self.taken.extend(outcome.taken);
                }
                Err(trouble) => self.trouble = Some(trouble),
            }
        }
        let position = self.position();
        self.with_progress(|progress| progress.position = position);
    }

    fn must_end(&self) -> bool {
        let control = self.control;
        self.trouble.is_some()
            || control.halted.get()
            || control.paused.get()
            || control.frozen.get()
            || (self.is_asked() && control.abort.get())
            || self.home.health().broken
            || signature(&self.home.health()) != self.seats
    }

    /// Waits until nothing is in flight.
    async fn drain(&mut self) {
        while self.bytes.get() > 0 {
            self.control.news.reset();
            if self.bytes.get() > 0 {
                self.control.news.wait().await;
            }
        }
        self.collect();
    }

    /// Tells every core how far the job is; now and then, or now.
    async fn report(&mut self, now: bool) {
        let (time, position) = (self.core.now(), self.position());
        if position <= self.reported.1 || !(now || time - self.reported.0 >= REPORT_EVERY) {
            return;
        }
        self.reported = (time, position);
        invariant!(9, self.steps.iter().all(|step| position <= step.range.start));
        let health = self.home.health();
        match &*self.task {
            Task::Resync => {
                let trust =
                    Trust { below: position.max(health.trust.below), needs: health.trust.needs.clone() };
                self.home.advance(Vec::new(), Some(trust)).await;
            }
            Task::Recover(targets) => {
                // A member that took a seat meanwhile starts from its own position.
                let same = |seat: &&MemberIx| health.holds(self.occupant(**seat));
                let valid_below = targets.iter().filter(same).map(|seat| (*seat, position)).collect();
                self.home.advance(valid_below, None).await;
            }
            Task::Check | Task::Repair(_) => {
                if let Some(request) = &mut *self.control.request.borrow_mut() {
                    request.range.start = position.min(request.range.end);
                }
            }
        }
    }

    /// Records how far the job is.
    fn records(&self) -> bool {
        self.record != Recording::Off
    }

    async fn record(&mut self) {
        self.report(true).await;
        let position = self.position();
        self.recorded.0 = self.core.now();
        if position > self.recorded.1 && matches!(*self.task, Task::Resync | Task::Recover(_)) {
            self.recorded.1 = position;
            if self.home.checkpoint().await.is_err() {
                // Broken or stopped: the loop finds out.
                self.trouble.get_or_insert(Trouble::Changed);
            }
        }
    }

    /// Starts steps as far as they may; says when to look again.
    fn launch(&mut self, now: Instant) -> Option<Instant> {
        let (tuning, pace) = (*self.tuning, self.control.pace.get());
        let shard = self.home.shard();
        let (clients, goal) = (Clients::of(&shard), self.control.goal.get());
        let stripes_max = tuning.stripes_max.max(1);
        loop {
            let (step, window, wait) = self.with_progress(|progress| {
                let throttle = &mut progress.throttle;
                throttle.set_goal(now, goal);
                throttle.saw_clients(now, self.core.index().0, clients);
                let window = throttle.window_bytes(now, &tuning, pace);
                (throttle.step_bytes(now, &tuning), window, throttle.next_launch(now))
            })?;
            if wait.is_some() {
                return wait;
            }
            // Bounds what waits behind a step that is late.
            let many = self.steps.len() as u64 * step > 4 * window && self.steps.len() > 64;
            if self.bytes.get() > 0 && (self.bytes.get() + step > window || many) {
                return None;
            }
            let range = self.find(step, stripes_max)?;
            let stripes = self.stripes_of(&range);
            if self.stripes.get() > 0 && self.stripes.get() + stripes > stripes_max {
                return None;
            }
            self.cursor = range.end;
            let bytes = (range.end - range.start).0 * SECTOR_BYTES;
            self.with_progress(|progress| progress.throttle.launched(now, bytes, pace));
            self.start(range, bytes, stripes);
        }
    }

    fn stripes_of(&self, range: &Range<Sector>) -> usize {
        let geometry = &self.fixed.geometry;
        match geometry.kind() {
            LevelKind::Parity => {
                let chunk = geometry.chunk().0;
                (range.end.0.div_ceil(chunk) - range.start.0 / chunk) as usize
            }
            LevelKind::Mirrored | LevelKind::Striped => 0,
        }
    }

    fn start(&mut self, range: Range<Sector>, bytes: u64, stripes: usize) {
        let outcome = Rc::new(RefCell::new(None));
        let number = self.control.steps.get();
        self.control.steps.set(number + 1);
        let owner = CoreIx((number % self.core.cores() as u64) as usize);
        self.bytes.update(|all| all + bytes);
        self.stripes.update(|all| all + stripes);
        let (task, fixed, at) = (self.task.clone(), self.fixed.clone(), range.clone());
        let (home, record, end) = (self.home.clone(), self.record, self.range.end);
        let (core, control, result) = (self.core.clone(), self.control.clone(), outcome.clone());
        let (all_bytes, all_stripes) = (self.bytes.clone(), self.stripes.clone());
        self.core.spawn(async move {
            if record != Recording::Off {
                home.open_sums(&at).await;
            }
            let sums = SumUse { record, end };
            let step = core.call(owner, move |core| unit::run(core, fixed, number, task, at, sums)).await;
            if step.end.is_ok()
                && let Some(progress) = &mut *control.progress.borrow_mut()
            {
                progress.throttle.completed(core.now(), bytes, &step.busy);
            }
            *result.borrow_mut() = Some(step);
            all_bytes.update(|all| all - bytes);
            all_stripes.update(|all| all - stripes);
            control.news.set();
        });
        self.steps.push_back(InFlight { range, outcome });
    }

    /// The next range with something to do. Ranges without are passed over.
    fn find(&mut self, step_bytes: u64, stripes_max: usize) -> Option<Range<Sector>> {
        let block = u64::from(self.fixed.member_block_bytes) / SECTOR_BYTES;
        let mut step = (step_bytes / SECTOR_BYTES).max(block);
        if let Some(spec) = self.fixed.sums.as_ref().filter(|_| self.compares_sums()) {
            // A sum is of a whole block.
            step = step.max(spec.block.0);
        }
        let chunk = self.fixed.geometry.chunk().0;
        if self.fixed.geometry.kind() == LevelKind::Parity {
            // A step is never more than what may be in flight as a whole.
            let most = (stripes_max / 2).max(1) as u64;
            step = step.min((1 << most.ilog2()) * chunk);
        }
        let end = self.range.end;
        while self.cursor < end {
            let aligned = |at: Sector| Sector((at.0 / step + 1) * step).min(end);
            let (from, to) = match &*self.task {
                Task::Check | Task::Repair(_) => (self.cursor, end),
                Task::Resync => match &self.health.trust.needs {
                    None => (self.cursor, end),
                    Some(needs) => {
                        let Some(region) = needs.next_from(self.cursor) else {
                            self.cursor = end;
                            return None;
                        };
                        let mut region_end = needs.range_of(region).end;
                        while region_end < aligned(self.cursor)
                            && needs.any_in(region_end..region_end + Sector(1))
                        {
                            region_end = needs.range_of(region_end.0 / needs.size().0).end;
                        }
                        // Whole blocks, also where regions are smaller.
                        let from = Sector(needs.range_of(region).start.0 / block * block);
                        let to = Sector(region_end.0.next_multiple_of(block));
                        (from.max(self.cursor), to.min(end))
                    }
                },
                Task::Recover(targets) => {
                    let to = aligned(self.cursor);
                    let range = self.cursor..to;
                    if !targets.iter().any(|seat| self.needs(*seat, &range)) {
                        self.cursor = to;
                        continue;
                    }
                    (self.cursor, to)
                }
            };
            if from >= end {
                self.cursor = end;
                return None;
            }
            return Some(from..aligned(from).min(to.max(from + Sector(block))).min(end));
        }
        None
    }

    /// Whether a member that is being filled needs any of a range of its sectors.
    fn needs(&self, seat: MemberIx, range: &Range<Sector>) -> bool {
        let MemberState::Rebuilding { valid_below } = self.health.state(seat) else { return false };
        if range.end <= valid_below {
            return false;
        }
        let Some(stale) = &self.health.seats[seat.index()].stale else { return true };
        let geometry = &self.fixed.geometry;
        if geometry.kind() == LevelKind::Parity || geometry.chunk() == Sector(0) {
            return stale.any_in(range.start.max(valid_below)..range.end);
        }
        // RAID 10: regions are of array sectors, chunk by chunk.
        let slot = MemberIx(seat.0 % geometry.raid_disks() as u16);
        let chunk = geometry.chunk().0;
        let mut at = range.start;
        while at < range.end {
            let next = Sector((at.0 / chunk + 1) * chunk).min(range.end);
            if let Some(lba) = geometry.array_sector_at(slot, at)
                && stale.any_in(lba..lba + (next - at))
            {
                return true;
            }
            at = next;
        }
        false
    }

    /// What comes of the sweep.
    async fn end(mut self, complete: bool) {
        let control = self.control;
        let now = self.core.now();
        // What was repaired until then is durable, too. An array that stops, or has stopped
        // working, does without.
        let goes_on = !control.halted.get() && !self.home.health().broken;
        if !complete && goes_on && self.has_repaired() {
            let _ = self.home.settle_repair().await;
        }
        if complete {
            if self.finished().await {
                control.finish(self.core.now(), JobEnd::Finished);
            }
            return;
        }
        match self.trouble {
            Some(trouble @ (Trouble::Untrusted | Trouble::NoRoom)) => {
                let action = self.action();
                let epoch = self.home.health().epoch;
                let mut gave_up = control.gave_up.borrow_mut();
                gave_up.retain(|(other, _)| *other != action);
                gave_up.push((action, epoch));
                drop(gave_up);
                if matches!(action, JobKind::Check | JobKind::Repair) {
                    control.request.borrow_mut().take();
                }
                let why = match trouble {
                    Trouble::NoRoom => JobFailure::NoRoom,
                    _ => JobFailure::Untrusted,
                };
                control.finish(now, JobEnd::Failed(why));
            }
            _ if self.home.health().broken => {
                control.end_all(now, JobEnd::Failed(JobFailure::Broken));
                return;
            }
            _ => {}
        }
        if control.halted.get() || control.paused.get() || control.frozen.get() {
            self.recorded.0 = now;
            self.record().await;
        }
    }

    /// The member that was in a seat when the sweep began.
    fn occupant(&self, seat: MemberIx) -> Occupant {
        Occupant { seat, since: self.seats[seat.index()].0 }
    }

    /// Whether it is a repair, and wrote something.
    fn has_repaired(&self) -> bool {
        let wrote = self.with_progress(|progress| progress.findings.has_written);
        matches!(*self.task, Task::Repair(_)) && wrote.unwrap_or_default()
    }

    /// Everything was gone over: records what that means.
    async fn finished(&mut self) -> bool {
        match &*self.task {
            Task::Resync => {
                let trust = Trust { below: Sector::MAX, needs: None };
                self.home.advance(Vec::new(), Some(trust)).await;
                self.home.checkpoint().await.is_ok()
            }
            Task::Recover(targets) => {
                for &seat in targets {
                    let health = self.home.health();
                    let slots = health.slots();
                    // The member that was filled: another one may take the seat before the
                    // promotion has its turn.
                    let (filled, end) = (self.occupant(seat), self.range.end);
                    if !health.holds(filled) {
                        return false;
                    }
                    let done = match seat.index().checked_sub(slots) {
                        None => self.home.rebuilt(filled, end).await,
                        Some(slot) => self.home.replaced(MemberIx(slot as u16), filled, end).await,
                    };
                    if done.is_err() {
                        return false;
                    }
                }
                true
            }
            Task::Check | Task::Repair(_) => {
                if self.has_repaired() && self.home.settle_repair().await.is_err() {
                    return false;
                }
                if self.records() {
                    let recorded = self.home.finish_sums().await;
                    self.with_progress(|progress| progress.findings.sums.recorded = recorded);
                }
                // What was asked for has not ended before its end is told.
                self.control.request.borrow_mut().take();
                true
            }
        }
    }
}

/// The members by seat, and whether they work.
fn signature(health: &Health) -> Vec<(u64, std::mem::Discriminant<MemberState>)> {
    health
        .seats
        .iter()
        .zip(&health.members)
        .map(|(seat, state)| (seat.since, std::mem::discriminant(state)))
        .collect()
}
