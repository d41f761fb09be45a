//! One array that runs: what operators ask of it, and what it tells.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::Duration;

use wattle_control::{Code, Problem};
use wattle_engine::ArrayHandle;
use wattle_rt::Core;

use super::events::{self, Events};
use super::history::History;
use super::members::{Seats, fail_problem, leave_problem};
use super::report::array_report;
use super::{Facts, settings};
use crate::control_socket::protocol::RepairSource;
use crate::control_socket::report::ArrayReport;
use crate::control_socket::why::WhyReport;
use crate::output;
use crate::output::text::printable;
use crate::output::time::rfc3339;

/// Between two looks for what no change of members announces: a member that became slow, reads that failed.
const LOOK: Duration = Duration::from_secs(5);

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
        });
        served.look().await;
        core.spawn(watch_changes(core.clone(), served.handle.clone(), Rc::downgrade(&served)));
        core.spawn(watch_all(core.clone(), Rc::downgrade(&served)));
        served
    }

    /// What it is and does.
    pub async fn report(&self) -> ArrayReport {
        let status = self.handle.status(&self.core).await;
        let mut report = array_report(&self.facts, &status);
        report.exports.clone_from(&self.exports);
        report.events = self.events.last_first();
        report.scrubs = self.history.last();
        report
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
    pub async fn check(&self) -> Result<String, Problem> {
        Err(self.not_yet("a check"))
    }

    /// Starts a repair.
    pub async fn repair(&self, _source: &RepairSource) -> Result<String, Problem> {
        Err(self.not_yet("a repair"))
    }

    /// Ends a check or repair.
    pub async fn abort(&self) -> Result<String, Problem> {
        Err(self.not_yet("a check"))
    }

    /// Holds background work, or lets it go on.
    pub async fn pause(&self, _paused: bool) -> Result<String, Problem> {
        Err(self.not_yet("background work"))
    }

    /// Changes a setting.
    pub async fn set(&self, key: &str, value: &str) -> Result<String, Problem> {
        settings::parse(key, value)?;
        Err(self.not_yet(key))
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

/// Looks now and then.
async fn watch_all(core: Core, served: Weak<Served>) {
    loop {
        core.sleep(LOOK).await;
        let Some(served) = served.upgrade() else { return };
        served.look().await;
    }
}
