//! One array that runs: what operators ask of it, and what it tells.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use wattle_control::{Code, Problem};
use wattle_engine::array::ArrayStatus;
use wattle_engine::sync::{Action, Pace, Tuning};
use wattle_engine::{ArrayHandle, Job};
use wattle_rt::{Core, Instant};

use super::events::{self, Events};
use super::history::History;
use super::members::{Seats, fail_problem, leave_problem};
use super::report::array_report;
use super::settings::{self, Change};
use super::{Facts, work};
use crate::control_socket::protocol::RepairSource;
use crate::control_socket::report::{ArrayReport, ScrubReport};
use crate::control_socket::why::WhyReport;
use crate::output;
use crate::output::text::printable;
use crate::output::time::rfc3339;

/// Between two looks for what no change of members announces: a member that became slow, reads that failed.
const LOOK: Duration = Duration::from_secs(5);

/// The same while a check or repair runs, whose end is to be seen before the next job ends.
const LOOK_AT_SCRUB: Duration = Duration::from_millis(100);

/// For a job to end that was told to.
const ABORT_TIME_MAX: Duration = Duration::from_secs(3);

/// A check or repair that was asked for and did not end yet.
struct Running {
    report: ScrubReport,
    since: Instant,
}

/// An array that is running.
pub struct Served {
    core: Core,
    /// What it is.
    pub facts: Facts,
    /// Itself.
    pub handle: ArrayHandle,
    /// Where clients connect.
    pub exports: Vec<String>,
    /// What happened.
    events: Events,
    history: History,
    /// How it was when somebody last looked for events.
    last: RefCell<Option<ArrayReport>>,
    scrub: RefCell<Option<Running>>,
    pace: Cell<Pace>,
    paused: Cell<bool>,
    frozen: Cell<bool>,
}

impl Served {
    /// An array that was just started. Its events go to the log from now on.
    pub async fn start(
        core: &Core,
        facts: Facts,
        handle: ArrayHandle,
        exports: Vec<String>,
        history: History,
    ) -> Rc<Self> {
        let served = Rc::new(Self {
            core: core.clone(),
            facts,
            handle,
            exports,
            events: Events::default(),
            history,
            last: RefCell::default(),
            scrub: RefCell::default(),
            pace: Cell::new(Tuning::default().pace),
            paused: Cell::new(false),
            frozen: Cell::new(false),
        });
        served.look().await;
        core.spawn(watch_changes(core.clone(), served.handle.clone(), Rc::downgrade(&served)));
        core.spawn(watch_all(core.clone(), Rc::downgrade(&served)));
        served
    }

    /// What it is and does.
    pub async fn report(&self) -> ArrayReport {
        let status = self.handle.status(&self.core).await;
        self.note_scrub(&status);
        let mut report = array_report(&self.facts, &status);
        report.exports.clone_from(&self.exports);
        report.events = self.events.last_first();
        report.scrubs = self.history.last();
        report.paused = self.paused.get() || self.frozen.get();
        report.settings = self.settings(&status);
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
        ];
        settings.map(|(key, value)| (key.to_owned(), value)).into()
    }

    /// Finds out what happened since the last look, and tells it.
    async fn look(&self) {
        let now = self.report().await;
        let before = self.last.replace(Some(now.clone()));
        for event in before.iter().flat_map(|before| events::between(before, &now)) {
            self.tell(event);
        }
    }

    fn tell(&self, event: String) {
        output::note(&printable(&format!("{}: {event}", self.facts.name)));
        self.events.add(self.time(), event);
    }

    fn time(&self) -> String {
        rfc3339(self.core.wall_clock().secs).unwrap_or_default()
    }

    /// Why it is as it is.
    pub async fn why(&self) -> WhyReport {
        WhyReport { array: self.facts.name.clone(), uuid: self.facts.uuid.clone(), decisions: Vec::new() }
    }

    /// Fails a member.
    pub async fn fail(&self, member: &str) -> Result<String, Problem> {
        let status = self.handle.status(&self.core).await;
        let seats = Seats::of(&self.facts.name, &status);
        let seat = seats.find(member)?;
        let shown = seats.name(seat);
        match self.handle.fail(&self.core, seat).await {
            Ok(()) => Ok(format!(
                "{shown} (slot {seat}) of {} is failed; the array goes on without it",
                self.facts.name
            )),
            Err(error) => Err(fail_problem(&self.facts.name, shown, error, &status)),
        }
    }

    /// Lets go of a member.
    pub async fn remove(&self, member: &str) -> Result<String, Problem> {
        let status = self.handle.status(&self.core).await;
        let seats = Seats::of(&self.facts.name, &status);
        let seat = seats.find(member)?;
        let shown = seats.name(seat);
        match self.handle.remove(&self.core, seat).await {
            Ok(()) => Ok(format!("{shown} is no member of {} any more", self.facts.name)),
            Err(error) => Err(leave_problem(&self.facts.name, shown, error)),
        }
    }

    /// Takes a member.
    pub async fn add(&self, member: &str, _force: &[String]) -> Result<String, Problem> {
        Err(self.not_yet(&format!("adding {member}")))
    }

    /// Replaces a member that works.
    pub async fn replace(
        &self,
        member: &str,
        _with: Option<&str>,
        _force: &[String],
    ) -> Result<String, Problem> {
        Err(self.not_yet(&format!("replacing {member}")))
    }

    /// Starts a check.
    pub async fn check(self: &Rc<Self>) -> Result<String, Problem> {
        self.scrub(Action::Check, None, Job::Check { range: None }).await
    }

    /// Starts a repair.
    pub async fn repair(self: &Rc<Self>, source: &RepairSource) -> Result<String, Problem> {
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
        let started = self.handle.start_job(&self.core, job).await;
        started.map_err(|error| work::job_problem(name, work::word(action), error))?;
        // Between the start and here the job may have been seen already.
        let seen = self.scrub.borrow().is_some();
        if !seen {
            let begun = self.begin(action, source);
            *self.scrub.borrow_mut() = Some(begun);
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
            Change::SyncSpeedMin(speed) => {
                self.set_pace(Pace { min_bytes_per_second: speed, ..pace }).await?
            }
            Change::SyncSpeedMax(speed) => {
                self.set_pace(Pace { max_bytes_per_second: speed.unwrap_or(u64::MAX), ..pace }).await?;
            }
            Change::SyncAction(action) => return self.set_action(action).await,
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

    /// As writing to md's `sync_action` does.
    async fn set_action(self: &Rc<Self>, action: settings::Action) -> Result<String, Problem> {
        let name = &self.facts.name;
        match action {
            settings::Action::Check => return self.check().await,
            settings::Action::Repair => {
                let source = work::source_as_md(self.facts.geometry.level());
                let source = source
                    .ok_or_else(|| work::job_problem(name, "repair", wattle_engine::JobError::NeedsSource))?;
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

    fn not_yet(&self, what: &str) -> Problem {
        let what = format!("{}: {what}", self.facts.name);
        Problem::new(
            Code::NotSupportedYet,
            what,
            "this version of wattle does not do it",
            "let the kernel do it",
        )
    }
}

/// Looks whenever members change, until the array is stopped.
async fn watch_changes(core: Core, handle: ArrayHandle, served: Weak<Served>) {
    let mut version = 0;
    while let Some(now) = handle.changed(&core, version).await {
        version = now;
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
