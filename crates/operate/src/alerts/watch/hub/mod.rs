//! Decides: what servers tell becomes alerts, and what channels are owed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use wattle_control::Problem;
use wattle_server::events::FeedPosition;
use wattle_server::protocol::events::EventsReport;
use wattle_server::protocol::report::ServerReport;

use super::super::beside;
use super::super::channels;
use super::super::journal::{Journal, Updated};
use super::super::rules::{self, Asked, DriveFault, Fullness, Gone, Look};
use super::super::settings::AlertSettings;
use super::super::state::{AlertArray, AlertsState, Notification, ServerMemory};
use super::deliver::{Bell, Courier};
use super::follow::{FollowNews, Followed, STOPPING_MAX, ServerFound, listens};
use super::{WatchNote, WatchOptions, others};
use crate::scrub_files::ScrubFiles;

/// Between two looks for new servers, settings that changed, and alerts that are due.
const TICK: Duration = Duration::from_millis(500);

/// Between two questions to others than servers.
const ASK_OTHERS: Duration = Duration::from_secs(600);

/// A clock of the day that moves by so much more or less than time passes was set.
const JUMP_SECS: u64 = 30;

/// So long an alert waits for the names of files.
const NAMING_MAX: Duration = Duration::from_secs(90);

/// So long after this process began a server of before the machine was started may take to be
/// there again: its drives may come late.
const BACK_MAX: Duration = Duration::from_secs(600);

/// What others than servers say.
enum Others {
    Files {
        array: String,
        run: u64,
        files: ScrubFiles,
    },
    Machine {
        socket: PathBuf,
        fullness: Option<Asked<Fullness>>,
        drives: Option<Asked<DriveFault>>,
    },
    /// The question was answered, or what was asked panicked.
    Asked(Asking),
}

/// What others are asked about a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    Drives,
    Fullness,
}

/// The socket of a server, and what others are being asked about it.
type Asking = (PathBuf, Question);

/// What is known of a server that is followed.
struct Known {
    status: ServerReport,
    /// When others were asked about it last.
    asked: Option<Instant>,
}

/// What decides.
pub struct Hub<'a> {
    options: &'a WatchOptions,
    settings: AlertSettings,
    /// The settings' file as it was read.
    stamp: Option<Stamp>,
    /// How it was at the last look, if that is something else.
    next_stamp: Option<Option<Stamp>>,
    journal: Arc<Journal>,
    bell: Arc<Bell>,
    /// Ends the threads that deliver.
    couriers: Arc<AtomicBool>,
    /// By channel: held by the thread that delivers while it sends.
    turns: BTreeMap<String, Arc<Mutex<()>>>,
    found: (Sender<FollowNews>, Receiver<FollowNews>),
    others: (Sender<Others>, Receiver<Others>),
    /// Sockets that are followed.
    followed: BTreeSet<PathBuf>,
    known: BTreeMap<PathBuf, Known>,
    /// Questions under way: an answer may take longer than the time to the next question.
    asking: BTreeSet<Asking>,
    /// Files where the last check found something, by array: the run, and what is known.
    files: BTreeMap<String, (u64, Option<ScrubFiles>)>,
    /// This start of the machine.
    boot: String,
    /// From here on what was served before it and is not now is told.
    back_until: Instant,
    /// The clock of the day, and another one, at the last look.
    clocks: (u64, Instant),
    /// It was told that the runtime directory cannot be trusted.
    told_unsafe: bool,
}

impl<'a> Hub<'a> {
    /// Holds the lock of the process that watches.
    ///
    /// # Errors
    /// What is kept cannot be used.
    pub fn new(
        options: &'a WatchOptions,
        settings: AlertSettings,
        journal: Arc<Journal>,
    ) -> Result<Self, Problem> {
        let hub = Self {
            stamp: stamp(&options.settings),
            next_stamp: None,
            options,
            settings,
            journal,
            bell: Arc::default(),
            couriers: Arc::default(),
            turns: BTreeMap::new(),
            found: mpsc::channel(),
            others: mpsc::channel(),
            followed: BTreeSet::new(),
            known: BTreeMap::new(),
            asking: BTreeSet::new(),
            files: BTreeMap::new(),
            boot: beside::boot(),
            back_until: beside::now() + BACK_MAX,
            clocks: (beside::wall_secs(), beside::now()),
            told_unsafe: false,
        };
        Ok(hub)
    }

    fn note(&self, note: WatchNote) {
        (self.options.note)(note);
    }

    /// Says what was wrong with a change, and gives what came of it.
    fn noted<T>(&self, updated: Updated<T>) -> T {
        for problem in updated.problems() {
            self.note(WatchNote::Note(format!("{}: {}", problem.what, problem.why)));
        }
        updated.value
    }

    /// What is kept. What is damaged is put aside first.
    fn state(&self) -> Result<AlertsState, Problem> {
        self.journal.read().or_else(|_| Ok(self.noted(self.journal.update(|state| state.clone())?)))
    }

    /// Watches until it is to end.
    ///
    /// # Errors
    /// What is kept cannot be used.
    pub fn run(mut self) -> Result<(), Problem> {
        self.start_couriers()?;
        let mut next = beside::now();
        while !self.options.stop.load(Ordering::Relaxed) {
            let now = beside::now();
            if now >= next {
                self.tick()?;
                next = now + TICK;
            }
            let wait = next.saturating_duration_since(beside::now());
            match self.found.1.recv_timeout(wait) {
                Ok((socket, found)) => self.take(&socket, found)?,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            while let Ok(others) = self.others.1.try_recv() {
                self.take_others(others)?;
            }
        }
        self.couriers.store(true, Ordering::Relaxed);
        self.bell.ring();
        Ok(())
    }

    fn start_couriers(&mut self) -> Result<(), Problem> {
        self.settings.notes.iter().for_each(|note| self.note(WatchNote::Note(note.clone())));
        // They are tried all the same: the file may be mended meanwhile.
        for fault in self.settings.faults() {
            self.note(WatchNote::Note(format!("{}: {}; {}", fault.what, fault.why, fault.next)));
        }
        let names: Vec<_> = self.settings.channels.iter().map(|channel| channel.name.as_str()).collect();
        let updated = self.journal.update(|state| {
            state.keep_channels(&names);
            std::mem::take(&mut state.dropped)
        })?;
        let origin = updated.origin.clone();
        let dropped = self.noted(updated);
        dropped.into_iter().for_each(|dropped| self.note(WatchNote::Dropped(dropped)));
        self.couriers = Arc::default();
        let sender = channels::MessageSender {
            host: self.settings.host.clone(),
            origin,
            repeat_secs: self.settings.rules.repeat_secs,
        };
        for channel in &self.settings.channels {
            let courier = Courier {
                channel: channel.clone(),
                sender: sender.clone(),
                journal: self.journal.clone(),
                bell: self.bell.clone(),
                note: self.options.note.clone(),
                stop: self.couriers.clone(),
                turn: self.turns.entry(channel.name.clone()).or_default().clone(),
            };
            if !beside::start(&format!("alert-{}", channel.name), move || courier.run()) {
                self.note(WatchNote::Note(format!("{}: the system gives no threads", channel.name)));
            }
        }
        self.note(WatchNote::Watching(
            self.settings.channels.iter().map(|c| format!("{}: {}", c.name, c.shown())).collect(),
        ));
        Ok(())
    }

    /// What is done now and then.
    fn tick(&mut self) -> Result<(), Problem> {
        self.read_settings_again()?;
        self.look_at_clocks();
        self.find_servers()?;
        self.ask_others();
        let state = self.state()?;
        let now = beside::wall_secs();
        // Only if something is due is anything written.
        if !rules::repeat(&mut state.clone(), &self.settings.rules, now).is_empty() || ahead(&state, now) {
            let rules = self.settings.rules.clone();
            self.decide(|state| rules::repeat(state, &rules, now))?;
        }
        Ok(())
    }

    fn read_settings_again(&mut self) -> Result<(), Problem> {
        let stamp = stamp(&self.options.settings);
        if stamp == self.stamp {
            self.next_stamp = None;
            return Ok(());
        }
        // It may be half written: only what stays for a tick counts.
        if self.next_stamp.replace(stamp) != Some(stamp) {
            return Ok(());
        }
        (self.stamp, self.next_stamp) = (stamp, None);
        // Fewer channels would be owed less: a file that is away is no order for that.
        if stamp.is_none_or(|stamp| stamp.len_bytes == 0) {
            let path = self.options.settings.display();
            self.note(WatchNote::Note(format!("{path} is gone or empty; the settings before hold")));
            return Ok(());
        }
        let read = AlertSettings::read(&self.options.settings).and_then(|new| match &new.unread {
            // The channels of that file would be gone.
            Some(problem) if self.settings.unread.is_none() => Err(problem.clone()),
            _ => Ok(new),
        });
        match read {
            Ok(settings) => {
                self.couriers.store(true, Ordering::Relaxed);
                self.bell.ring();
                self.settings = settings;
                self.start_couriers()
            }
            Err(problem) => {
                let text = format!("{}: {}; the settings before hold", problem.what, problem.why);
                self.note(WatchNote::Note(text));
                Ok(())
            }
        }
    }

    /// Nothing here waits by the clock of the day; what is due by it is made right by the rules.
    fn look_at_clocks(&mut self) {
        let (wall, now) = (beside::wall_secs(), beside::now());
        let expected = self.clocks.0 + (now - self.clocks.1).as_secs();
        if wall.abs_diff(expected) > JUMP_SECS {
            let by = wattle_server::time::duration(wall.abs_diff(expected));
            // The clock that it is compared with stands still while the machine sleeps.
            let what = match wall > expected {
                true => format!("the clock jumped forward by {by}, or the machine slept for so long"),
                false => format!("the clock jumped back by {by}"),
            };
            let text = format!("{what}: times in messages follow it, and nothing is told twice or left out");
            self.note(WatchNote::Note(text));
        }
        self.clocks = (wall, now);
    }

    /// Follows what is new, and sees what is gone.
    fn find_servers(&mut self) -> Result<(), Problem> {
        let options = self.options;
        let dir = &options.runtime_dir;
        let unsafe_dir = dir.check().err();
        if let Some(problem) = &unsafe_dir
            && !self.told_unsafe
        {
            self.note(WatchNote::Note(format!("{}: {}", problem.what, problem.why)));
        }
        self.told_unsafe = unsafe_dir.is_some();
        if self.told_unsafe {
            return Ok(());
        }
        let sockets = dir.sockets();
        let new: Vec<_> = sockets.iter().filter(|socket| !self.followed.contains(*socket)).cloned().collect();
        let state = self.state()?;
        for socket in new {
            let memory = state.servers.get(&key(&socket));
            // That it died is known; a new one that listens there is not dead.
            if memory.is_some_and(|memory| memory.died) && !listens(&socket) {
                continue;
            }
            self.follow(&socket, memory);
        }
        // Those that are remembered and have no socket any more.
        let there: BTreeSet<_> = sockets.iter().map(|socket| key(socket)).collect();
        for (name, memory) in state.servers.iter().filter(|(name, _)| !there.contains(*name)) {
            let is_known = memory.arrays.is_empty() && !memory.died;
            if is_known || self.followed.iter().any(|socket| key(socket) == *name.as_str()) {
                continue;
            }
            // The directory of sockets does not outlast the machine: that one is not there says
            // nothing.
            let is_of_before = !memory.boot.is_empty() && memory.boot != self.boot;
            let how = match (is_of_before, memory.died) {
                (true, false) if beside::now() >= self.back_until => Gone::NotBack,
                (true, _) => continue,
                (false, true) => Gone::Forgotten,
                (false, false) => Gone::GoodBye,
            };
            let (name, now) = (name.clone(), beside::wall_secs());
            self.decide(|state| rules::gone(state, &name, how, now))?;
        }
        Ok(())
    }

    fn follow(&mut self, socket: &Path, memory: Option<&ServerMemory>) {
        let position = memory.map_or_else(FeedPosition::default, |memory| FeedPosition {
            epoch: Some(memory.epoch.clone()),
            after: memory.last,
        });
        let followed = Followed {
            socket: socket.to_owned(),
            position,
            look: self.settings.look,
            stopping_max: STOPPING_MAX,
            found: self.found.0.clone(),
        };
        if beside::start("alert-follow", move || followed.run()) {
            self.followed.insert(socket.to_owned());
            self.note(WatchNote::Following(key(socket)));
        }
    }

    fn take(&mut self, socket: &Path, found: ServerFound) -> Result<(), Problem> {
        match found {
            ServerFound::Seen { events, status } => self.seen(socket, &events, *status),
            ServerFound::Gone(how) => {
                let (name, now) = (key(socket), beside::wall_secs());
                if !how.is_there() {
                    self.followed.remove(socket);
                }
                // What it said last is no look at it: others that answer later must not use it.
                self.known.remove(socket);
                self.decide(|state| {
                    // One that died before it was ever seen.
                    if matches!(how, Gone::Died) {
                        let unknown = || ServerMemory { name: name.clone(), ..ServerMemory::default() };
                        state.servers.entry(name.clone()).or_insert_with(unknown);
                    }
                    if let Some(memory) = state.servers.get_mut(&name) {
                        memory.boot.clone_from(&self.boot);
                    }
                    rules::gone(state, &name, how, now)
                })
            }
        }
    }

    fn seen(&mut self, socket: &Path, events: &EventsReport, status: ServerReport) -> Result<(), Problem> {
        self.name_files(&status);
        let asked = self.known.get(socket).and_then(|known| known.asked);
        let name = key(socket);
        if events.lost {
            let text = format!(
                "{name}: more happened than its server keeps: what is over by now may not be told; how it is was looked at"
            );
            self.note(WatchNote::Note(text));
        }
        self.look(&name, Some(events), &status, None, None)?;
        self.known.insert(socket.to_owned(), Known { status, asked });
        Ok(())
    }

    /// Decides what is to be told after a look.
    fn look(
        &mut self,
        name: &str,
        events: Option<&EventsReport>,
        status: &ServerReport,
        fullness: Option<&Asked<Fullness>>,
        drives: Option<&Asked<DriveFault>>,
    ) -> Result<(), Problem> {
        let (rules, now) = (self.settings.rules.clone(), beside::wall_secs());
        let files: BTreeMap<String, ScrubFiles> =
            self.files.iter().filter_map(|(id, (_, files))| Some((id.clone(), files.clone()?))).collect();
        let naming: BTreeSet<String> =
            self.files.iter().filter(|(_, (_, files))| files.is_none()).map(|(id, _)| id.clone()).collect();
        self.decide(|state| {
            let before = state.servers.get(name).cloned();
            let has_started =
                events.is_some_and(|events| before.as_ref().is_some_and(|b| b.epoch != events.epoch));
            let look = Look {
                report: status,
                events: events.map_or(&[], |events| &events.events),
                is_first: before.is_none(),
                has_started,
                lost: events.is_some_and(|events| events.lost),
                epoch: events.map(|events| events.epoch.as_str()),
                files: &files,
                naming: &naming,
                fullness,
                drives,
            };
            let id = |array: &wattle_server::protocol::report::ArrayReport| AlertArray {
                name: array.name.clone(),
                uuid: array.uuid.clone(),
            };
            let mut memory = before.unwrap_or_default();
            memory.name.clone_from(&status.server);
            memory.arrays = status.arrays.iter().map(id).collect();
            (memory.died, memory.stopped) = (false, false);
            memory.boot.clone_from(&self.boot);
            if let Some(events) = events {
                (memory.epoch, memory.last) = (events.epoch.clone(), events.last);
            }
            let mut told = rules::is_back(state, &memory, now);
            told.extend(rules::look(state, &rules, &look, now));
            state.servers.insert(name.to_owned(), memory);
            told
        })
    }

    /// Has files named where a check that was not seen before found something.
    fn name_files(&mut self, status: &ServerReport) {
        for array in &status.arrays {
            let Some(run) = array.last_done().filter(|run| run.left().total() > 0) else {
                continue;
            };
            let id = array.uuid.clone().unwrap_or_else(|| array.name.clone());
            if self.files.get(&id).is_some_and(|(known, _)| *known == run.run) {
                continue;
            }
            let (sources, sender) = (self.options.sources.clone(), self.others.0.clone());
            let (status, array, run, of) = (status.clone(), array.clone(), run.clone(), id.clone());
            let number = run.run;
            let started = beside::start("alert-files", move || {
                let name = move || sources.files_at(&status, &array, &run);
                // Told without files rather than not at all.
                let files = others::within("alert-named", NAMING_MAX, name).unwrap_or_default();
                let _ = sender.send(Others::Files { array: of, run: number, files });
            });
            self.files.insert(id, (number, if started { None } else { Some(ScrubFiles::default()) }));
        }
    }

    /// Asks others about servers that were not asked about for a while, each question on a thread
    /// of its own: a file system that hangs holds back no drive.
    fn ask_others(&mut self) {
        let now = beside::now();
        for (socket, known) in &mut self.known {
            if known.asked.is_some_and(|asked| now - asked < ASK_OTHERS) {
                continue;
            }
            known.asked = Some(now);
            for question in [Question::Drives, Question::Fullness] {
                let asking = (socket.clone(), question);
                if !self.asking.insert(asking.clone()) {
                    continue;
                }
                let (sources, sender) = (self.options.sources.clone(), self.others.0.clone());
                let (status, of) = (known.status.clone(), asking.clone());
                let started = beside::start("alert-others", move || {
                    let answer = others::unless_it_panics(|| match question {
                        Question::Drives => (None, sources.drives(&status)),
                        Question::Fullness => (sources.fullness(&status), None),
                    });
                    if let Some((fullness, drives)) = answer {
                        let _ = sender.send(Others::Machine { socket: of.0.clone(), fullness, drives });
                    }
                    let _ = sender.send(Others::Asked(of));
                });
                if !started {
                    self.asking.remove(&asking);
                }
            }
        }
    }

    fn take_others(&mut self, others: Others) -> Result<(), Problem> {
        match others {
            Others::Files { array, run, files } => {
                self.files.insert(array.clone(), (run, Some(files)));
                let has = |known: &Known| {
                    known.status.arrays.iter().any(|a| a.uuid.as_ref().unwrap_or(&a.name) == &array)
                };
                let of = self.known.iter().find(|(_, known)| has(known));
                let Some((socket, status)) = of.map(|(socket, known)| (key(socket), known.status.clone()))
                else {
                    return Ok(());
                };
                self.look(&socket, None, &status, None, None)
            }
            Others::Asked(asking) => {
                self.asking.remove(&asking);
                Ok(())
            }
            Others::Machine { fullness: None, drives: None, .. } => Ok(()),
            Others::Machine { socket, fullness, drives } => {
                let Some(status) = self.known.get(&socket).map(|known| known.status.clone()) else {
                    return Ok(());
                };
                self.look(&key(&socket), None, &status, fullness.as_ref(), drives.as_ref())
            }
        }
    }

    /// Changes what is kept, records what channels are owed, and has it delivered.
    fn decide(&self, change: impl FnOnce(&mut AlertsState) -> Vec<Notification>) -> Result<(), Problem> {
        let updated = self.journal.update(|state| {
            let told = change(state);
            for notification in &told {
                let wanting = self.settings.channels.iter().filter(|channel| channel.wants(notification));
                let names: Vec<_> = wanting.map(|channel| channel.name.as_str()).collect();
                state.owe(notification.clone(), names.into_iter());
            }
            (told, std::mem::take(&mut state.dropped), std::mem::take(&mut state.forgotten))
        })?;
        let (told, dropped, forgotten) = self.noted(updated);
        dropped.into_iter().for_each(|dropped| self.note(WatchNote::Dropped(dropped)));
        for alert in forgotten {
            let text = format!(
                "alert {} is forgotten, because there are too many: {}: {}",
                alert.id, alert.key.kind, alert.text.what
            );
            self.note(WatchNote::Note(text));
        }
        if told.is_empty() {
            return Ok(());
        }
        self.bell.ring();
        for told in told {
            let alerts = told.alerts.iter().map(|alert| alert.id).collect();
            self.note(WatchNote::Told { id: told.id, event: told.event, alerts, what: told.text.what });
        }
        Ok(())
    }
}

/// Whether something was told in the future: the clock was set back.
fn ahead(state: &AlertsState, now: u64) -> bool {
    state.alerts.iter().any(|alert| alert.told_secs > now.saturating_add(2 * JUMP_SECS))
}

/// What a server is remembered by.
fn key(socket: &Path) -> String {
    socket.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// What tells one content of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    changed: SystemTime,
    len_bytes: u64,
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(Stamp { changed: metadata.modified().ok()?, len_bytes: metadata.len() })
}

#[cfg(test)]
mod tests;
