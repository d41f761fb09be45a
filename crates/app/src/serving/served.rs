//! One array that runs: what it tells, and (`orders`) what operators ask of it.

mod orders;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use wattle_control::commit::MdMetadata;
use wattle_control::keeper::keep;
use wattle_control::running::RunningArray;
use wattle_control::start::Started;
use wattle_engine::array::{ArrayStatus, Tuning as ArrayTuning};
use wattle_engine::geometry::Kind;
use wattle_engine::sync::{Action, Goal, Pace, Tuning};
use wattle_engine::{ArrayHandle, VolumeError};
use wattle_rt::{Core, Instant};

use super::events::{self, Events};
use super::history::History;
use super::members::Seats;
use super::report::{array_report, bad_blocks, bitmap_report, stripe_cache_size};
use super::settings::cache_entry_bytes;
use super::tuning;
use super::{Facts, why, work};
use crate::commands::scrub_end;
use crate::control_socket::report::{ArrayReport, ScrubReport, SpareReport};
use crate::control_socket::why::WhyReport;
use crate::output;
use crate::output::text::printable;
use crate::output::time::rfc3339;

/// Between two looks for what no change of members announces: a member that became slow, reads that failed.
const LOOK: Duration = Duration::from_secs(5);

/// The same while a check or repair runs, whose end is to be seen before the next job ends.
const LOOK_AT_SCRUB: Duration = Duration::from_millis(100);

/// Between a change of members and its reason.
const TELL_TIME: Duration = Duration::from_millis(50);

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
    read_ahead_bytes: Cell<u64>,
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
            read_ahead_bytes: Cell::new(handle.read_ahead_bytes()),
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
            tuning::tuned(&status, &report.settings, &self.own_settings(&status), |at| self.time_of(at));
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
            ("read_ahead_kb", kib(self.read_ahead_bytes.get())),
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

    /// What depends on the array where nobody set it: the stripe cache's ceiling, as md counts, and how far is read ahead.
    fn own_settings(&self, status: &ArrayStatus) -> BTreeMap<&'static str, String> {
        let cores = self.core.cores();
        let ceiling = ArrayTuning::default().cache.bytes_max / cores * cores;
        let entries = (ceiling as u64).div_ceil(cache_entry_bytes(status.members.len()));
        let ahead_kib = self.handle.read_ahead_bytes() >> 10;
        [("stripe_cache_size", entries.to_string()), ("read_ahead_kb", ahead_kib.to_string())].into()
    }

    /// Why it is as it is: what was decided when it was started, and what happened since.
    pub async fn why(&self) -> WhyReport {
        why::running(&self.report().await, &self.facts.decisions)
    }
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
