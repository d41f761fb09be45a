//! One array that runs: what operators ask of it, and what it tells.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use wattle_control::admit::Seat;
use wattle_control::commit::MdMetadata;
use wattle_control::keeper::keep;
use wattle_control::running::{RunningArray, Terms};
use wattle_control::start::Started;
use wattle_control::undo::Recorder;
use wattle_control::{Code, Problem};
use wattle_engine::array::{ArrayStatus, Tuning as ArrayTuning};
use wattle_engine::geometry::Kind;
use wattle_engine::sync::{Action, Goal, Pace, Tuning};
use wattle_engine::{ArrayHandle, Job, JobError, VolumeError};
use wattle_rt::{Core, Either, Instant, race};

use super::events::{self, Events};
use super::history::History;
use super::members::{Seats, fail_problem, is_untrusted, leave_problem, untrusted_problem};
use super::report::{array_report, bad_blocks, bitmap_report, stripe_cache_size};
use super::settings::{self, CacheCeiling, Change, cache_entry_bytes};
use super::tuning;
use super::{Facts, why, work};
use crate::commands::scrub_end;
use crate::control_socket::protocol::RepairSource;
use crate::control_socket::report::{ArrayReport, ScrubReport, SpareReport};
use crate::control_socket::why::WhyReport;
use crate::members::{forced_by_name, random_uuid};
use crate::output;
use crate::output::text::printable;
use crate::output::time::rfc3339;

/// Between two looks for what no change of members announces: a member that became slow, reads that failed.
const LOOK: Duration = Duration::from_secs(5);

/// The same while a check or repair runs, whose end is to be seen before the next job ends.
const LOOK_AT_SCRUB: Duration = Duration::from_millis(100);

/// Between a change of members and its reason.
const TELL_TIME: Duration = Duration::from_millis(50);

/// For what may be refused to be begun.
const BEGIN_TIME_MAX: Duration = Duration::from_millis(300);

/// For a job to end that was told to.
const ABORT_TIME_MAX: Duration = Duration::from_secs(3);

/// A check or repair that was asked for and did not end yet.
struct Running {
    report: ScrubReport,
    since: Instant,
}

/// What keeps an array's superblocks, and who belongs to it.
struct Kept {
    running: Rc<RunningArray>,
    /// `None` where nothing is recorded.
    books: Option<Rc<MdMetadata>>,
    /// How many of its events were told.
    told: Cell<usize>,
}

/// An array that is running.
pub struct Served {
    core: Core,
    /// What it is.
    pub facts: Facts,
    /// Itself.
    pub handle: ArrayHandle,
    /// `None` for an array without metadata.
    kept: Option<Kept>,
    /// Where clients connect.
    pub exports: Vec<String>,
    /// What happened.
    events: Events,
    history: History,
    /// How it was when somebody last looked for events.
    last: RefCell<Option<ArrayReport>>,
    scrub: RefCell<Option<Running>>,
    pace: Cell<Pace>,
    goal: Cell<Goal>,
    read_deadline: Cell<Duration>,
    paused: Cell<bool>,
    frozen: Cell<bool>,
    /// Somebody said stop.
    pub stopping: Cell<bool>,
}

impl Served {
    /// An array with metadata that was just started. Its events go to the log from now on, and what it needs is done by itself.
    pub async fn of_started(
        core: &Core,
        facts: Facts,
        started: Started,
        exports: Vec<String>,
        history: History,
    ) -> Rc<Self> {
        let (handle, books) = (started.handle.clone(), started.books.clone());
        let replayed = started.replayed;
        let running = RunningArray::new(core, &facts.name, started);
        let kept = Kept { running: running.clone(), books, told: Cell::new(0) };
        let served = Self::start(core, facts, handle, Some(kept), exports, history).await;
        if let Some(pieces) = replayed {
            served
                .tell(format!("the partial parity logs were followed: {pieces} pieces of parity made right"));
        }
        core.spawn(keep(running));
        served
    }

    /// An array without metadata that was just started.
    pub async fn of_made_up(
        core: &Core,
        facts: Facts,
        handle: ArrayHandle,
        exports: Vec<String>,
    ) -> Rc<Self> {
        Self::start(core, facts, handle, None, exports, History::default()).await
    }

    async fn start(
        core: &Core,
        facts: Facts,
        handle: ArrayHandle,
        kept: Option<Kept>,
        exports: Vec<String>,
        history: History,
    ) -> Rc<Self> {
        let served = Rc::new(Self {
            core: core.clone(),
            facts,
            handle,
            kept,
            exports,
            events: Events::default(),
            history,
            last: RefCell::default(),
            scrub: RefCell::default(),
            pace: Cell::new(Tuning::default().pace),
            goal: Cell::new(Goal::default()),
            read_deadline: Cell::new(ArrayTuning::default().read_deadline),
            paused: Cell::new(false),
            frozen: Cell::new(false),
            stopping: Cell::new(false),
        });
        served.look().await;
        core.spawn(watch_changes(core.clone(), served.handle.clone(), Rc::downgrade(&served)));
        core.spawn(watch_all(core.clone(), Rc::downgrade(&served)));
        served
    }

    /// Stops it, once no member is on its way in or out.
    ///
    /// # Errors
    /// It could not be recorded clean.
    pub async fn stop(&self) -> Result<(), VolumeError> {
        match &self.kept {
            Some(kept) => kept.running.stop().await,
            None => self.handle.stop(&self.core).await,
        }
    }

    /// What it is and does.
    pub async fn report(&self) -> ArrayReport {
        let status = self.handle.status(&self.core).await;
        self.note_scrub(&status);
        let mut report = array_report(&self.facts, &status);
        report.exports.clone_from(&self.exports);
        report.events = self.events.last_first();
        report.scrubs = self.history.last();
        if let Some(books) = self.books() {
            report.bitmap = books.bitmap().map(|bitmap| bitmap_report(&bitmap.bits().regions));
            bad_blocks(&mut report, books.state().seats());
        }
        if let Some(kept) = &self.kept {
            let spare = |member: String| SpareReport { member, state: "spare".to_owned() };
            report.spares = kept.running.spares().into_iter().map(spare).collect();
            let returning = kept.running.returning().into_iter();
            report
                .spares
                .extend(returning.map(|(member, _)| SpareReport { member, state: "returning".to_owned() }));
        }
        report.paused = self.paused.get() || self.frozen.get();
        report.settings = self.settings(&status);
        report.tuning =
            tuning::tuned(&status, &report.settings, self.cache_default(&status), |at| self.time_of(at));
        let seats = Seats::of(&self.facts.name, &status);
        let speed_max = Some(self.pace.get().max_bytes_per_second).filter(|speed| *speed != u64::MAX);
        report.sync = status
            .sync
            .as_ref()
            .map(|sync| work::sync_report(sync, &seats, &work::filling(&status), speed_max));
        report
    }

    /// Notes in the history what began and what ended.
    fn note_scrub(&self, status: &ArrayStatus) {
        let mut running = self.scrub.borrow_mut();
        let seats = Seats::of(&self.facts.name, status);
        if let (Some(run), Some(last)) = (running.as_ref(), &status.last)
            && work::is_scrub(last.action)
            && last.ended >= run.since
        {
            let end = work::ended(&run.report, last, &seats);
            *running = None;
            self.record(&end);
            self.tell(scrub_end(&end));
        }
        // The rest of one that something more urgent interrupted is a run of its own.
        if let (None, Some(sync)) = (running.as_ref(), &status.sync)
            && work::is_scrub(sync.action)
        {
            let source = self.history.last().first().and_then(|run| run.source.clone());
            *running = Some(self.begin(sync.action, source));
        }
    }

    fn begin(&self, action: Action, source: Option<String>) -> Running {
        let report = work::begun(self.history.next_run(), action, source, self.time());
        self.record(&report);
        Running { report, since: self.core.now() }
    }

    /// What cannot be kept in the file is shown all the same.
    fn record(&self, run: &ScrubReport) {
        if let Err(problem) = self.history.record(run) {
            output::note(&printable(&format!("{}: {} ({})", self.facts.name, problem.what, problem.why)));
        }
    }

    fn settings(&self, status: &ArrayStatus) -> BTreeMap<String, String> {
        let kib = |bytes: u64| if bytes == u64::MAX { "none".to_owned() } else { (bytes >> 10).to_string() };
        let pace = self.pace.get();
        let action = match &status.sync {
            _ if self.frozen.get() => "frozen",
            Some(sync) if !sync.paused => work::word(sync.action),
            _ => "idle",
        };
        let settings = [
            ("sync_speed_min", kib(pace.min_bytes_per_second)),
            ("sync_speed_max", kib(pace.max_bytes_per_second)),
            ("sync_action", action.to_owned()),
            ("goal", tuning::goal(self.goal.get())),
            ("read_deadline", humantime::format_duration(self.read_deadline.get()).to_string()),
        ];
        let cache = (self.facts.geometry.kind() == Kind::Parity)
            .then(|| ("stripe_cache_size", stripe_cache_size(status).to_string()));
        settings.into_iter().chain(cache).map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn books(&self) -> Option<&Rc<MdMetadata>> {
        self.kept.as_ref()?.books.as_ref()
    }

    /// Finds out what happened since the last look, and tells it.
    async fn look(&self) {
        let now = self.report().await;
        let before = self.last.replace(Some(now.clone()));
        let told = self.told_by_others();
        told.iter().for_each(|event| self.tell(event.clone()));
        for event in before.iter().flat_map(|before| events::between(before, &now)) {
            if self.kept.is_none() || !events::is_told(&event, &told) {
                self.tell(event);
            }
        }
    }

    /// What was done for the array or on an operator's order.
    fn told_by_others(&self) -> Vec<String> {
        let Some(kept) = &self.kept else { return Vec::new() };
        let new = kept.running.events(kept.told.get());
        kept.told.set(kept.running.events_count());
        new.into_iter().map(|event| event.what).collect()
    }

    fn tell(&self, event: String) {
        output::note(&printable(&format!("{}: {event}", self.facts.name)));
        self.events.add(self.time(), event);
    }

    fn time(&self) -> String {
        rfc3339(self.core.wall_clock().secs).unwrap_or_default()
    }

    /// When that was, by the clock of the day.
    fn time_of(&self, at: Instant) -> String {
        let ago = self.core.now() - at;
        rfc3339(self.core.wall_clock().secs.saturating_sub(ago.as_secs())).unwrap_or_default()
    }

    /// The stripe cache's ceiling where nobody set it, as md counts.
    fn cache_default(&self, status: &ArrayStatus) -> u64 {
        let cores = self.core.cores();
        let ceiling = ArrayTuning::default().cache.bytes_max / cores * cores;
        (ceiling as u64).div_ceil(cache_entry_bytes(status.members.len()))
    }

    /// Why it is as it is: what was decided when it was started, and what happened since.
    pub async fn why(&self) -> WhyReport {
        why::running(&self.report().await, &self.facts.decisions)
    }

    /// Fails a member.
    pub async fn fail(&self, member: &str) -> Result<String, Problem> {
        let name = &self.facts.name;
        let status = self.handle.status(&self.core).await;
        let seats = Seats::of(name, &status);
        let failed = match &self.kept {
            Some(kept) => {
                let seat = kept.running.fail(&seats.full_name(member)).await;
                seat.map_err(|problem| untrusted(problem, name, member, &status))?
            }
            None => {
                let seat = seats.find(member)?;
                let failed = self.handle.fail(&self.core, seat).await;
                failed.map_err(|error| fail_problem(name, seats.name(seat), error, &status))?;
                seat
            }
        };
        self.look().await;
        let slot = failed.index() % self.facts.slots();
        Ok(format!("{} (slot {slot}) of {name} is failed; the array goes on without it", seats.name(failed)))
    }

    /// Lets go of a member.
    pub async fn remove(&self, member: &str) -> Result<String, Problem> {
        let name = &self.facts.name;
        let status = self.handle.status(&self.core).await;
        let seats = Seats::of(name, &status);
        let shown = seats.full_name(member);
        match &self.kept {
            Some(kept) => kept.running.remove(&shown).await?,
            None => {
                let seat = seats.find(member)?;
                let left = self.handle.remove(&self.core, seat).await;
                left.map_err(|error| leave_problem(name, seats.name(seat), error))?;
            }
        }
        self.look().await;
        Ok(format!("{shown} is no member of {name} any more"))
    }

    /// Takes a member.
    pub async fn add(
        &self,
        member: &str,
        force: &[String],
        undo: Option<&Recorder>,
    ) -> Result<String, Problem> {
        let running = self.running(&format!("{member} was not added"))?;
        let terms = Terms { forced: forced_by_name(force)?, undo };
        let seat = running.add(member, random_uuid()?, terms).await?;
        self.look().await;
        let name = &self.facts.name;
        Ok(match seat {
            Seat::Slot(slot) => format!(
                "{member} is in slot {slot} of {name} and being brought up to date; `wattle status {name}` shows how far it is"
            ),
            Seat::Replacement(slot) => {
                format!("{member} is being made to replace the member of slot {slot} of {name}")
            }
            Seat::Spare => format!("{member} is a spare of {name}: no slot is empty"),
        })
    }

    /// Replaces a member that works.
    pub async fn replace(
        &self,
        member: &str,
        with: Option<&str>,
        force: &[String],
        undo: Option<&Recorder>,
    ) -> Result<String, Problem> {
        let running = self.running(&format!("{member} was not replaced"))?;
        let status = self.handle.status(&self.core).await;
        let member = &Seats::of(&self.facts.name, &status).full_name(member);
        let terms = Terms { forced: forced_by_name(force)?, undo };
        let seat = running.replace(member, with, random_uuid()?, terms).await?;
        self.look().await;
        let name = &self.facts.name;
        let slot = match seat {
            Seat::Slot(slot) | Seat::Replacement(slot) => format!(" (slot {slot})"),
            Seat::Spare => String::new(),
        };
        Ok(format!(
            "{member}{slot} of {name} is being replaced; it stays a member until that is done: `wattle status {name}`"
        ))
    }

    /// Reads and writes anew what the bad-block log of a member lists. Told in the events when it is done.
    pub async fn clear_bad_blocks(self: &Rc<Self>, member: &str) -> Result<String, Problem> {
        let running = self.running("bad blocks")?.clone();
        let (asked, served) = (member.to_owned(), Rc::downgrade(self));
        let work = self.core.spawn(async move {
            let cleared = running.clear_bad_blocks(&asked).await;
            if let (Err(problem), Some(served)) = (&cleared, served.upgrade()) {
                served.tell(format!("{}: {}", problem.what, problem.why));
            }
            cleared
        });
        // What cannot be begun is said at once; the rest takes as long as a check.
        match race(work, self.core.sleep(BEGIN_TIME_MAX)).await {
            Either::First(cleared) => {
                let left = cleared?;
                Ok(format!("{member} of {}: {left} sectors of bad blocks are left", self.facts.name))
            }
            Either::Second(()) => {
                let name = &self.facts.name;
                Ok(format!(
                    "bad blocks of {member} of {name} are being read and written anew; `wattle status {name}` tells the end"
                ))
            }
        }
    }

    fn running(&self, what: &str) -> Result<&Rc<RunningArray>, Problem> {
        self.kept.as_ref().map(|kept| &kept.running).ok_or_else(|| {
            Problem::new(
                Code::BadRequest,
                format!("{}: {what}: it has no metadata", self.facts.name),
                "nothing could tell next time who its members are",
                "make an array with `wattle create`, and serve that",
            )
        })
    }

    /// Starts a check.
    pub async fn check(self: &Rc<Self>) -> Result<String, Problem> {
        self.scrub(Action::Check, None, Job::Check { range: None }).await
    }

    /// Starts a repair.
    pub async fn repair(self: &Rc<Self>, source: &RepairSource) -> Result<String, Problem> {
        if *source == RepairSource::Majority && self.facts.geometry.redundancy() < 2 {
            // Of two copies none has one.
            return Err(work::job_problem(&self.facts.name, "repair", JobError::NeedsSource));
        }
        let status = self.handle.status(&self.core).await;
        let taken = work::engine_source(source, &Seats::of(&self.facts.name, &status))?;
        let job = Job::Repair { range: None, source: Some(taken) };
        self.scrub(Action::Repair, Some(work::source_name(source)), job).await
    }

    async fn scrub(
        self: &Rc<Self>,
        action: Action,
        source: Option<String>,
        job: Job,
    ) -> Result<String, Problem> {
        let name = &self.facts.name;
        // Known before it starts: a small array is compared before anybody is told that it began.
        let begun = work::begun(self.history.next_run(), action, source, self.time());
        let running = Running { report: begun.clone(), since: self.core.now() };
        let before = self.scrub.replace(Some(running));
        if let Err(error) = self.handle.start_job(&self.core, job).await {
            *self.scrub.borrow_mut() = before;
            return Err(work::job_problem(name, work::word(action), error));
        }
        let still_runs = self.scrub.borrow().as_ref().is_some_and(|running| running.report.run == begun.run);
        if still_runs {
            self.record(&begun);
        }
        self.core.spawn(watch_scrub(self.core.clone(), Rc::downgrade(self)));
        Ok(format!(
            "{name}: {} started; `wattle status {name}` shows how far it is and what it finds",
            work::word(action)
        ))
    }

    /// Ends a check or repair.
    pub async fn abort(&self) -> Result<String, Problem> {
        let name = &self.facts.name;
        if self.scrub.borrow().is_none() {
            return Err(Problem::new(
                Code::BadRequest,
                format!("{name}: no check or repair is under way"),
                "there is nothing to end; a resync or recovery is needed, and can be paused",
                format!("`wattle status {name}` shows what runs"),
            ));
        }
        self.handle.abort_job(&self.core).await;
        self.wait_for_scrub_end().await;
        Ok(format!("{name}: ended; what was found until then is in `wattle status {name}`"))
    }

    /// Until the history has the end of a job that was told to end.
    async fn wait_for_scrub_end(&self) {
        let deadline = self.core.now() + ABORT_TIME_MAX;
        while self.core.now() < deadline {
            self.note_scrub(&self.handle.status(&self.core).await);
            if self.scrub.borrow().is_none() {
                return;
            }
            self.core.sleep(LOOK_AT_SCRUB).await;
        }
        // It had not begun: it waited for something more urgent.
        let waiting = self.scrub.borrow_mut().take();
        if let Some(run) = waiting {
            self.record(&ScrubReport { outcome: "aborted".to_owned(), ..run.report });
        }
    }

    /// Holds background work, or lets it go on.
    pub async fn pause(&self, paused: bool) -> Result<String, Problem> {
        self.handle.pause(&self.core, paused).await;
        self.paused.set(paused);
        let name = &self.facts.name;
        Ok(match paused {
            true => format!("{name}: background work rests; `wattle check {name} --resume` lets it go on"),
            false => format!("{name}: background work goes on"),
        })
    }

    /// Changes a setting.
    pub async fn set(self: &Rc<Self>, key: &str, value: &str) -> Result<String, Problem> {
        let pace = self.pace.get();
        match settings::parse(key, value)? {
            Change::SpeedMin(speed) => {
                self.set_pace(Pace { min_bytes_per_second: speed, ..pace }).await?;
            }
            Change::SpeedMax(speed) => {
                self.set_pace(Pace { max_bytes_per_second: speed.unwrap_or(u64::MAX), ..pace }).await?;
            }
            Change::Action(action) => return self.set_action(action).await,
            Change::ReadDeadline(deadline) => {
                self.handle.set_read_deadline(&self.core, deadline).await;
                self.read_deadline.set(deadline);
            }
            Change::Goal(goal) => {
                self.handle.set_goal(&self.core, goal).await;
                self.goal.set(goal);
            }
            Change::Cache(ceiling) => self.set_cache(ceiling).await?,
        }
        Ok(format!("{}: {key} is {value}", self.facts.name))
    }

    async fn set_pace(&self, pace: Pace) -> Result<(), Problem> {
        if pace.min_bytes_per_second > pace.max_bytes_per_second {
            return Err(Problem::new(
                Code::Usage,
                format!("{}: sync_speed_min would be above sync_speed_max", self.facts.name),
                "it cannot be held and exceeded at once",
                format!("`wattle set {}` shows both; change the other one first", self.facts.name),
            ));
        }
        self.handle.set_pace(&self.core, pace).await;
        self.pace.set(pace);
        Ok(())
    }

    async fn set_cache(&self, ceiling: CacheCeiling) -> Result<(), Problem> {
        if self.facts.geometry.kind() != Kind::Parity {
            return Err(Problem::new(
                Code::BadRequest,
                format!("{}: {} has no stripe cache", self.facts.name, self.facts.geometry.level()),
                "only writes to levels with parity read before they write",
                format!("`wattle set {}` shows what can be set", self.facts.name),
            ));
        }
        let bytes = usize::try_from(ceiling.bytes(self.facts.slots())).unwrap_or(usize::MAX);
        self.handle.set_cache_bytes(&self.core, bytes).await;
        Ok(())
    }

    /// As writing to md's `sync_action` does.
    async fn set_action(self: &Rc<Self>, action: settings::Action) -> Result<String, Problem> {
        let name = &self.facts.name;
        match action {
            settings::Action::Check => return self.check().await,
            settings::Action::Repair => {
                let source = work::source_as_md(self.facts.geometry.level());
                let source =
                    source.ok_or_else(|| work::job_problem(name, "repair", JobError::NeedsSource))?;
                return self.repair(&source).await;
            }
            settings::Action::Frozen => {
                self.handle.freeze(&self.core, true).await;
                self.frozen.set(true);
            }
            settings::Action::Idle => {
                if self.scrub.borrow().is_some() {
                    self.handle.abort_job(&self.core).await;
                }
                self.handle.freeze(&self.core, false).await;
                self.frozen.set(false);
                self.pause(false).await?;
            }
        }
        if self.scrub.borrow().is_some() {
            self.wait_for_scrub_end().await;
        }
        Ok(match action {
            settings::Action::Frozen => {
                format!("{name}: nothing runs in the background until sync_action is idle")
            }
            _ => format!("{name}: no check or repair runs; what is needed may"),
        })
    }
}

/// A refusal that names no missing member is about parity.
fn untrusted(problem: Problem, array: &str, member: &str, status: &ArrayStatus) -> Problem {
    let untrusted = problem.code == Code::LastCopy && is_untrusted(status);
    if untrusted { untrusted_problem(array, member) } else { problem }
}

/// Looks whenever members change, until the array is stopped.
async fn watch_changes(core: Core, handle: ArrayHandle, served: Weak<Served>) {
    let mut version = 0;
    while let Some(now) = handle.changed(&core, version).await {
        version = now;
        // Whoever changed it tells why as soon as it is done.
        core.sleep(TELL_TIME).await;
        let Some(served) = served.upgrade() else { return };
        served.look().await;
    }
}

/// Looks often while a check or repair runs.
async fn watch_scrub(core: Core, served: Weak<Served>) {
    loop {
        core.sleep(LOOK_AT_SCRUB).await;
        let Some(served) = served.upgrade() else { return };
        served.look().await;
        if served.scrub.borrow().is_none() {
            return;
        }
    }
}

/// Looks now and then.
async fn watch_all(core: Core, served: Weak<Served>) {
    loop {
        core.sleep(LOOK).await;
        let Some(served) = served.upgrade() else { return };
        served.look().await;
    }
}
