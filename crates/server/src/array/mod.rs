//! One array that runs: what it tells, and (`orders`) what operators ask of it.

mod facts;
pub mod job;
mod made_up;
mod members;
mod orders;
mod report;
#[cfg(test)]
mod tests;
mod tuning;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use wattle_control::Problem;
use wattle_control::commit::MdMetadata;
use wattle_control::events::{self as array, Covered, EventPlace, Observed, action_word};
use wattle_control::members::MemberAccess;
use wattle_control::running::{RunningArray, remote};
use wattle_control::spares::keep;
use wattle_control::start::Started;
use wattle_engine::geometry::LevelKind;
use wattle_engine::job::{Goal, JobTuning, Pace};
use wattle_engine::units::MemberIx;
use wattle_engine::{ArrayHandle, VolumeError};
use wattle_engine::{ArrayStatus, ArrayTuning, FailCause};
use wattle_rt::{Core, Instant, JoinHandle, Semaphore, race};

use crate::events::{EventFeed, Events, FeedArray, ServerEvent};
use crate::history::History;
use crate::log::ServerLog;
use crate::protocol::report::{ArrayReport, ScrubReport, SpareReport, SpareState};
use crate::protocol::why::WhyReport;
use crate::settings::cache_entry_bytes;
use crate::time::rfc3339;
use crate::why;
pub use facts::ServedFacts;
pub use made_up::{MadeUpArray, MadeUpShape};
use members::Seats;
pub use orders::Obeyed;
use report::{array_report, bad_blocks, bitmap_report, recorded, stripe_cache_size};

/// Between two looks for what no change of members announces: a member that became slow, reads that
/// failed.
const LOOK: Duration = Duration::from_secs(5);

/// The same while a check or repair runs, whose end is waited for.
const LOOK_AT_SCRUB: Duration = Duration::from_millis(100);

/// Between two events of bad blocks: a repair of them changes them with each sector, and events of
/// other things are not to be pushed out by that.
const BAD_BLOCKS_EVERY: Duration = Duration::from_secs(5);

/// For the history of an array that stops: its directory may lie on what ends with it.
const HISTORY_TIME_MAX: Duration = Duration::from_secs(3);

/// A check or repair that was asked for and did not end yet.
struct Running {
    report: ScrubReport,
    /// The engine's: its end has it too.
    number: u64,
}

/// What keeps an array's superblocks, and which members belong to it.
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
    pub facts: ServedFacts,
    /// Itself.
    pub handle: ArrayHandle,
    /// `None` for an array without metadata.
    kept: Option<Kept>,
    /// Where clients connect.
    pub exports: Vec<String>,
    /// What happened.
    events: Events,
    history: Rc<History>,
    log: ServerLog,
    /// How it was at the last look for events.
    last: RefCell<Option<Observed>>,
    /// Bad blocks are not told again before.
    bad_due: Cell<Instant>,
    /// More than one only until the end of the first was seen.
    scrubs: RefCell<Vec<Running>>,
    /// Repairs of bad blocks under way, which are made up of many.
    clearing: Cell<usize>,
    /// How often these were told to end.
    clearing_ended: Cell<u64>,
    /// Is called when a repair ended that made what clients read another.
    when_repaired: RefCell<Option<Box<dyn Fn()>>>,
    pace: Cell<Pace>,
    goal: Cell<Goal>,
    read_deadline: Cell<Duration>,
    read_ahead_bytes: Cell<u64>,
    /// Checks record what they find.
    records: Cell<bool>,
    paused: Cell<bool>,
    frozen: Cell<bool>,
    /// The seat that an order fails now, where nothing records why a member failed.
    ordered_out: Cell<Option<MemberIx>>,
    /// A command asked to stop it.
    pub stopping: Cell<bool>,
    /// What came of it.
    stopped: Cell<Option<Result<(), VolumeError>>>,
    /// Held while it is being stopped.
    one_stops: Semaphore,
}

impl Served {
    /// What tells it from the others of its server: its UUID, or its name if it has none.
    pub fn id(&self) -> &str {
        self.facts.uuid.as_deref().unwrap_or(&self.facts.name)
    }

    /// An array with metadata that was just started. Its events go to the log from now on, and what
    /// it needs is done by itself.
    pub async fn of_started(
        core: &Core,
        access: &MemberAccess,
        facts: ServedFacts,
        started: Started,
        exports: Vec<String>,
        history: History,
        log: &ServerLog,
    ) -> Rc<Self> {
        let (handle, books) = (started.handle.clone(), started.books.clone());
        let replayed = started.replayed;
        let running = RunningArray::new(core, access, &facts.name, started);
        let kept = Kept { running: running.clone(), books, told: Cell::new(0) };
        let served = Self::start(core, facts, handle, Some(kept), exports, history, log).await;
        if let Some(pieces) = replayed {
            served.tell(ServerEvent::Array(array::ArrayEvent::LogsReplayed { pieces }));
        }
        core.spawn(remote::watch(running.clone()));
        core.spawn(keep(running));
        served
    }

    /// An array without metadata that was just started.
    pub async fn of_made_up(
        core: &Core,
        facts: ServedFacts,
        handle: ArrayHandle,
        exports: Vec<String>,
        log: &ServerLog,
    ) -> Rc<Self> {
        Self::start(core, facts, handle, None, exports, History::default(), log).await
    }

    async fn start(
        core: &Core,
        facts: ServedFacts,
        handle: ArrayHandle,
        kept: Option<Kept>,
        exports: Vec<String>,
        history: History,
        log: &ServerLog,
    ) -> Rc<Self> {
        let served = Rc::new(Self {
            core: core.clone(),
            facts,
            read_ahead_bytes: Cell::new(handle.read_ahead_bytes()),
            handle,
            kept,
            exports,
            events: Events::default(),
            history: Rc::new(history),
            log: log.clone(),
            last: RefCell::default(),
            bad_due: Cell::new(core.now()),
            scrubs: RefCell::default(),
            clearing: Cell::new(0),
            clearing_ended: Cell::new(0),
            when_repaired: RefCell::default(),
            pace: Cell::new(JobTuning::default().pace),
            goal: Cell::new(Goal::default()),
            read_deadline: Cell::new(ArrayTuning::default().read_deadline),
            records: Cell::new(false),
            paused: Cell::new(false),
            frozen: Cell::new(false),
            ordered_out: Cell::new(None),
            stopping: Cell::new(false),
            stopped: Cell::new(None),
            one_stops: Semaphore::new(1),
        });
        served.look().await;
        core.spawn(watch_failures(core.clone(), served.handle.clone(), Rc::downgrade(&served)));
        core.spawn(watch_changes(core.clone(), served.handle.clone(), Rc::downgrade(&served)));
        core.spawn(watch_all(core.clone(), Rc::downgrade(&served)));
        served
    }

    /// Its events go to the server's feed from now on, and those that were.
    pub fn feed_into(&self, feed: &Rc<EventFeed>) {
        self.events.feed_into(feed, self.feed_array());
    }

    /// From now on this is called when a repair ended that may have changed what clients read:
    /// copies that differed agree now, as does data with parity.
    pub fn when_repaired(&self, call: impl Fn() + 'static) {
        self.when_repaired.replace(Some(Box::new(call)));
    }

    /// What events are told to be of.
    pub fn feed_array(&self) -> FeedArray {
        FeedArray { name: self.facts.name.clone(), uuid: self.facts.uuid.clone() }
    }

    /// Stops it, once no member is on its way in or out. What came of that is told to all that stop
    /// it: the engine has nothing to say of an array that is stopped.
    ///
    /// # Errors
    /// It could not be recorded clean.
    pub async fn stop(&self) -> Result<(), VolumeError> {
        let _turn = self.one_stops.acquire(1).await;
        if let Some(stopped) = self.stopped.get() {
            return stopped;
        }
        // What a check or repair found until now is not lost with it.
        if !self.scrubs.borrow().is_empty() {
            race(self.end_what_is_asked_for(), self.core.sleep(HISTORY_TIME_MAX)).await;
            self.wait_for_scrub_end().await;
        }
        let stopped = match &self.kept {
            Some(kept) => kept.running.stop().await,
            None => self.handle.stop(&self.core).await,
        };
        // What lies on the array cannot be written any more.
        race(self.write_history(), self.core.sleep(HISTORY_TIME_MAX)).await;
        self.stopped.set(Some(stopped));
        stopped
    }

    /// What it is and does.
    pub async fn report(&self) -> ArrayReport {
        let status = self.look_now().await;
        let mut report = array_report(&self.facts, &status);
        report.exports.clone_from(&self.exports);
        report.events = self.events.last_first();
        report.scrubs = self.history.last();
        if let Some(books) = self.books() {
            report.bitmap = books.bitmap().map(|bitmap| bitmap_report(&bitmap.bits().regions));
            report.consistency = Some(self.consistency().to_owned());
            bad_blocks(&mut report, books.state().seats());
            report.record = books.sums().and_then(|sums| report::record_state(&sums));
        }
        if let Some(kept) = &self.kept {
            let superblocks = kept.running.superblocks();
            let now = recorded(superblocks.iter().map(|(name, superblock)| (name.as_str(), superblock)));
            report.recorded = now.or(report.recorded);
        }
        if let Some(kept) = &self.kept {
            let told = |problem: Problem| format!("{}: {}", problem.what, problem.why);
            let spare = |(member, refused): (String, Option<Problem>)| SpareReport {
                member,
                state: if refused.is_some() { SpareState::Refused } else { SpareState::Spare },
                why: refused.map(told),
            };
            let running = &kept.running;
            report.spares = running.spares().into_iter().map(spare).collect();
            report.spares.extend(running.stays_away().into_iter().map(|(member, who, problem)| {
                SpareReport {
                    member,
                    state: SpareState::Returning,
                    why: Some(problem.map_or_else(|| report::why_it_waits(&who).to_owned(), told)),
                }
            }));
        }
        if let Some(kept) = &self.kept {
            report::remotes(&mut report, kept.running.remotes().await);
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
            .map(|sync| job::sync_report(sync, &seats, &job::filling(&status), speed_max));
        report
    }

    /// Notes in the history what ended. Only what was asked for through [`Self::scrub`] is in it:
    /// repairs of bad blocks go over a part of the array.
    fn note_scrub(&self, status: &ArrayStatus) {
        let seats = Seats::of(&self.facts.name, status);
        for end in &status.asked_ends {
            let mut scrubs = self.scrubs.borrow_mut();
            let Some(at) = scrubs.iter().position(|run| end.number == Some(run.number)) else { continue };
            let run = scrubs.remove(at);
            drop(scrubs);
            let end = job::ended(&run.report, end, &seats);
            if end.repaired_sectors > 0 {
                self.tell_repaired();
            }
            self.record(&end);
            self.tell(ServerEvent::Scrub(Box::new(end)));
        }
    }

    /// What clients read may be another from now on.
    fn tell_repaired(&self) {
        self.when_repaired.borrow().iter().for_each(|call| call());
    }

    /// A run that cannot be kept in the file is shown all the same.
    fn record(&self, run: &ScrubReport) {
        self.history.record(run);
        self.write_history();
    }

    /// Writes what was recorded until now, whether that is waited for or not: the file may lie on
    /// what this server serves, so nothing waits for it without a limit.
    fn write_history(&self) -> JoinHandle<()> {
        let (core, history) = (self.core.clone(), self.history.clone());
        let (log, name) = (self.log.clone(), self.facts.name.clone());
        self.core.spawn(async move {
            if let Err(problem) = history.write(&core).await {
                log.note(&format!("{name}: {} ({})", problem.what, problem.why));
            }
        })
    }

    fn settings(&self, status: &ArrayStatus) -> BTreeMap<String, String> {
        let kib = |bytes: u64| if bytes == u64::MAX { "none".to_owned() } else { (bytes >> 10).to_string() };
        let pace = self.pace.get();
        let action = match &status.sync {
            _ if self.frozen.get() => "frozen",
            Some(sync) if !sync.paused => action_word(sync.action),
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
        let cache = (self.facts.geometry.kind() == LevelKind::Parity)
            .then(|| ("stripe_cache_size", stripe_cache_size(status).to_string()));
        let timeout = self.kept.iter().map(|kept| {
            ("remote_timeout", humantime::format_duration(kept.running.remote_timeout()).to_string())
        });
        let mut members = status.members.iter().chain(&status.replacements);
        let has_paths = members.any(|member| member.device.as_ref().is_some_and(|name| name.contains('|')));
        let paths = self.kept.iter().filter(|_| has_paths).map(|kept| {
            ("paths", if kept.running.paths_in_turn() { "round-robin" } else { "order" }.to_owned())
        });
        let write_mostly = (self.facts.geometry.kind() == LevelKind::Mirrored && self.books().is_some())
            .then(|| ("write_mostly", report::write_mostly(status)));
        let bitmap = self.books().map(|books| ("bitmap", report::bitmap_setting(books.bitmap().as_deref())));
        let record = self.books().and_then(|books| books.sums());
        let record = record.map(|_| ("record", if self.records.get() { "on" } else { "off" }.to_owned()));
        settings
            .into_iter()
            .chain(cache)
            .chain(record)
            .chain(timeout)
            .chain(paths)
            .chain(write_mostly)
            .chain(bitmap)
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    }

    /// What makes parity and copies agree after a crash, as it is now; a bitmap may come and go.
    fn consistency(&self) -> &'static str {
        match (self.facts.consistency, self.books().map(|books| books.bitmap().is_some())) {
            ("bitmap" | "resync", Some(true)) => "bitmap",
            ("bitmap" | "resync", Some(false)) => "resync",
            (consistency, _) => consistency,
        }
    }

    fn books(&self) -> Option<&Rc<MdMetadata>> {
        self.kept.as_ref()?.books.as_ref()
    }

    /// Finds out what happened since the last look, and tells it. Causes come first: what the array
    /// recorded by then is told before what its state shows.
    async fn look(&self) {
        self.tell_recorded();
        // An order that is under way has not told yet what it brought about.
        let between_orders = match &self.kept {
            Some(kept) => Some(kept.running.between_orders().await),
            None => None,
        };
        let status = self.handle.status(&self.core).await;
        self.observe(&status);
        drop(between_orders);
    }

    /// As [`Self::look`], without waiting: while an order is under way, it tells what was recorded
    /// and which checks and repairs ended. Otherwise the events are as new as the state.
    async fn look_now(&self) -> ArrayStatus {
        let order = self.kept.as_ref().map(|kept| kept.running.try_between_orders());
        let status = self.handle.status(&self.core).await;
        match &order {
            Some(None) => self.tell_recorded(),
            Some(Some(_)) | None => self.observe(&status),
        }
        drop(order);
        self.note_scrub(&status);
        status
    }

    /// Tells what was recorded until now, and then what the state shows since the last look.
    /// Between orders only.
    fn observe(&self, status: &ArrayStatus) {
        self.tell_recorded();
        if self.kept.as_ref().is_some_and(|kept| kept.running.is_stopping()) {
            return;
        }
        let covered = self.kept.as_ref().map_or(Covered::Nothing, |kept| kept.running.covered());
        let (mut now, before, time) = (Observed::from(status), self.last.take(), self.core.now());
        if let Some(before) = before.as_ref().filter(|_| time < self.bad_due.get()) {
            now = now.with_bad_of(before);
        }
        self.last.replace(Some(now.clone()));
        self.note_scrub(status);
        let name = &self.facts.name;
        for event in before.iter().flat_map(|before| array::between(name, before, &now, covered)) {
            if matches!(event, array::ArrayEvent::BadBlocks { .. }) {
                self.bad_due.set(time + BAD_BLOCKS_EVERY);
            }
            self.tell(ServerEvent::Array(self.with_cause(event)));
        }
    }

    /// An event that the state shows; of a failure that an order is bringing about, with its cause.
    fn with_cause(&self, event: array::ArrayEvent) -> array::ArrayEvent {
        let ordered = self.ordered_out.get().map(|seat| match seat.index().checked_sub(self.facts.slots()) {
            None => EventPlace::Slot(seat.0),
            Some(slot) => EventPlace::Replacement(slot as u16),
        });
        match event {
            array::ArrayEvent::Failed { member, place, cause: None } if ordered == Some(place) => {
                array::ArrayEvent::Failed { member, place, cause: Some(FailCause::Order) }
            }
            event => event,
        }
    }

    /// Tells what an order brought about, before the order is answered. What follows from it is
    /// found by the next look: that one waits for orders, of which another may be under way.
    async fn look_after_order(&self) {
        match &self.kept {
            Some(_) => self.tell_recorded(),
            None => self.look().await,
        }
    }

    /// Tells what the array recorded: failures, and what was done on an order or without being
    /// asked.
    fn tell_recorded(&self) {
        let Some(kept) = &self.kept else { return };
        let new = kept.running.events(kept.told.get());
        kept.told.set(kept.running.events_count());
        for recorded in new {
            let time = rfc3339(recorded.at.secs).unwrap_or_default();
            self.tell_at(time, ServerEvent::Array(recorded.event));
        }
    }

    fn tell(&self, event: ServerEvent) {
        self.tell_at(self.time(), event);
    }

    fn tell_at(&self, time: String, event: ServerEvent) {
        self.log.note(&format!("{}: {event}", self.facts.name));
        self.events.add(time, event);
    }

    fn time(&self) -> String {
        rfc3339(self.core.wall_clock().secs).unwrap_or_default()
    }

    /// When that was, by the clock of the day.
    fn time_of(&self, at: Instant) -> String {
        let ago = self.core.now() - at;
        rfc3339(self.core.wall_clock().secs.saturating_sub(ago.as_secs())).unwrap_or_default()
    }

    /// Settings whose default depends on the array, as long as they were not set: the stripe
    /// cache's ceiling, as md counts, and how far is read ahead.
    fn own_settings(&self, status: &ArrayStatus) -> BTreeMap<&'static str, String> {
        let cores = self.core.cores();
        let ceiling = ArrayTuning::default().cache.bytes_max / cores * cores;
        let entries = (ceiling as u64).div_ceil(cache_entry_bytes(status.members.len()));
        let ahead_kib = self.handle.read_ahead_bytes() >> 10;
        [("stripe_cache_size", entries.to_string()), ("read_ahead_kb", ahead_kib.to_string())].into()
    }

    /// Why it is as it is: what was decided when it was started, and what happened since.
    pub async fn why(&self) -> WhyReport {
        why::running(&self.report().await, &self.events, &self.facts.decisions)
    }
}

/// Tells failures when they happen: a look waits for the order that is under way.
async fn watch_failures(core: Core, handle: ArrayHandle, served: Weak<Served>) {
    let mut version = 0;
    while let Some(now) = handle.changed(&core, version).await {
        version = now;
        let Some(served) = served.upgrade() else { return };
        served.tell_recorded();
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
        served.look_now().await;
        if served.scrubs.borrow().is_empty() {
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
