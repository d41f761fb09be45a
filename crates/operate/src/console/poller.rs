//! One look after the other at all servers, for all viewers together.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyper::body::Bytes;
use serde::Serialize;
use serde_json::Value;
use wattle_server::events::FeedPosition;
use wattle_server::protocol::events::FeedKind;
use wattle_server::protocol::report::{ArrayReport, MemberReport};
use wattle_server::socket::RuntimeDir;
use wattle_server::socket::client::{self, Servers};
use wattle_server::time::rfc3339;

use super::diff;
use super::documents::ConsoleDocuments;
use super::files::FileNaming;
use super::history::{HistoryPoint, RateHistory};
use super::rates::ArrayRates;
use super::verdict::MachineStanding;
use super::view::{self, KnownBeside, MachineView, SinceView};
use crate::http::{Feed, FeedSender, feed};
use crate::scrub_files::ScrubFiles;

/// Between two looks while the page is open somewhere.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// Between two looks while it is not: for the hour of history.
const IDLE_PAUSE: Duration = Duration::from_secs(5);

/// Why an array is as it is, is asked again after so long, also if nothing seems to have changed.
const WHY_PAUSE: Duration = Duration::from_secs(30);

/// Drives are asked about themselves, and alerts how they are, after so long.
const BESIDE_PAUSE: Duration = Duration::from_secs(60);

/// A viewer is told at least this often that the connection lives.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Pieces that a viewer may leave; then it is dropped, and comes back by itself.
const PIECES_MAX: usize = 32;

/// What is known, for the page and for those that ask.
pub struct Looker {
    pub(super) dir: RuntimeDir,
    pub(super) documents: Arc<dyn ConsoleDocuments>,
    takes_orders: bool,
    state: Mutex<State>,
    /// What was found for a request that the last look was too old for. One asks at a time.
    asked: Mutex<Option<(Arc<Servers>, Instant)>>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    view: Option<MachineView>,
    value: Value,
    /// The value as a viewer that comes is told it.
    snapshot: Option<Bytes>,
    looked: Option<(Arc<Servers>, Instant)>,
    history: RateHistory,
    beside: KnownBeside,
    viewers: Vec<FeedSender>,
    told: Option<Instant>,
    hurry: bool,
    /// Files where checks found something are asked for.
    wants_files: bool,
    ends: bool,
}

/// What the poller alone remembers.
#[derive(Default)]
pub struct Memory {
    servers: BTreeMap<PathBuf, Followed>,
    why: BTreeMap<String, (String, Instant)>,
    beside: Option<Instant>,
    naming: FileNaming,
}

/// What was heard from one server.
#[derive(Default)]
struct Followed {
    position: FeedPosition,
    /// By array: when what it is fit for last changed.
    changed: BTreeMap<String, String>,
}

#[allow(clippy::disallowed_methods, reason = "the page looks at clocks here, and nowhere else")]
fn now() -> (Instant, u64) {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (Instant::now(), since_epoch.as_millis() as u64)
}

impl std::fmt::Debug for Looker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Looker").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Looker {
    /// Nothing yet.
    pub fn new(dir: RuntimeDir, documents: Arc<dyn ConsoleDocuments>, takes_orders: bool) -> Self {
        let (state, asked) = (Mutex::default(), Mutex::default());
        Self { dir, documents, takes_orders, state, asked, wake: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What a panic left is replaced by the next look.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first look, which [`Self::poll`] goes on from.
    pub fn first(&self) -> Memory {
        let mut memory = Memory::default();
        self.look(&mut memory);
        memory
    }

    /// Looks until [`Self::end`].
    pub fn poll(&self, mut memory: Memory) {
        loop {
            let state = self.state();
            let pause = if state.viewers.is_empty() { IDLE_PAUSE } else { LOOK_PAUSE };
            let waited = self.wake.wait_timeout_while(state, pause, |state| !state.hurry && !state.ends);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.hurry = false;
            if state.ends {
                // Dropping their senders ends the viewers' replies.
                state.viewers.clear();
                return;
            }
            drop(state);
            self.look(&mut memory);
        }
    }

    /// The next look is now.
    pub fn hurry(&self) {
        self.state().hurry = true;
        self.wake.notify_all();
    }

    /// No more looks.
    pub fn end(&self) {
        self.state().ends = true;
        self.wake.notify_all();
    }

    /// What a viewer takes the page's value and its changes from.
    pub fn view(&self) -> Feed {
        let (sender, feed) = feed(PIECES_MAX);
        let mut state = self.state();
        let snapshot = state.snapshot();
        if sender.send(snapshot) {
            state.viewers.push(sender);
        }
        state.hurry = true;
        self.wake.notify_all();
        feed
    }

    /// The headline and what follows from it.
    pub fn headline(&self) -> (String, String) {
        let state = self.state();
        let verdict =
            state.view.as_ref().map(|view| (view.verdict.headline.clone(), view.verdict.detail.clone()));
        verdict.unwrap_or_default()
    }

    /// An hour, as it is kept.
    pub fn history(&self) -> RateHistory {
        self.state().history.clone()
    }

    /// The files where the last checks found something are looked for, if they are not known.
    pub fn want_files(&self) {
        let mut state = self.state();
        if state.view.as_ref().is_some_and(|view| view.arrays.iter().any(|array| array.naming)) {
            (state.wants_files, state.hurry) = (true, true);
            self.wake.notify_all();
        }
    }

    /// The files where the last check of an array found something, if they are known.
    pub fn scrub_files(&self, key: &str, array: &ArrayReport) -> Option<ScrubFiles> {
        self.state().beside.scrub_files(key, array).cloned()
    }

    /// The last look, if it is not older than that.
    pub fn looked(&self, age_max: Duration) -> Option<Arc<Servers>> {
        let looked = self.state().looked.clone();
        looked.filter(|(_, at)| at.elapsed() <= age_max).map(|(servers, _)| servers)
    }

    /// The servers now. Requests that come while servers are being asked take the answer of that.
    pub fn ask(&self) -> Arc<Servers> {
        if let Some(servers) = self.looked(LOOK_PAUSE) {
            return servers;
        }
        let came = now().0;
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        match &*asked {
            Some((servers, at)) if *at >= came => servers.clone(),
            _ => {
                let servers = Arc::new(Servers::ask(&self.dir));
                *asked = Some((servers.clone(), now().0));
                servers
            }
        }
    }

    /// One look.
    fn look(&self, memory: &mut Memory) {
        let servers = Arc::new(Servers::ask(&self.dir));
        let (at, at_ms) = now();
        let changed = memory.follow(&servers);
        let decisions = memory.explain(&servers, at);
        let beside = memory.beside(&servers, at, self.documents.as_ref());
        let mut state = self.state();
        let before = state.looked.replace((servers.clone(), at));
        let before =
            before.as_ref().map(|(before, then)| (&**before, at.duration_since(*then).as_millis() as u64));
        if let Some((drives, alerts)) = beside {
            (state.beside.drives, state.beside.alerts) = (drives, alerts);
        }
        state.beside.decisions.extend(decisions);
        let wants_files = std::mem::take(&mut state.wants_files) || !state.viewers.is_empty();
        state.beside.files.extend(memory.naming.found());
        if wants_files {
            memory.naming.ask(&servers, &self.documents);
        }
        let mut view = view::machine(&servers, before, &state.beside, self.takes_orders);
        state.remember(&view, &changed, at_ms);
        for array in &mut view.arrays {
            array.since = state.beside.since.get(&array.key).map(|(_, since)| since.clone());
        }
        let points = state.points(&servers, before, at_ms);
        state.publish(view, &points, at);
    }
}

impl State {
    fn snapshot(&mut self) -> Bytes {
        let Self { snapshot, value, .. } = self;
        snapshot.get_or_insert_with(|| piece("snapshot", value)).clone()
    }

    /// Since when each array stands as it does: as its server says, or since this was first seen.
    fn remember(&mut self, view: &MachineView, changed: &BTreeMap<String, String>, at_ms: u64) {
        let since = &mut self.beside.since;
        since.retain(|key, _| view.arrays.iter().any(|array| array.key == *key));
        for array in &view.arrays {
            let standing = array.verdict.standing;
            let is_first = !since.contains_key(&array.key);
            let seen = since.entry(array.key.clone()).or_insert_with(|| {
                (standing, SinceView { time: rfc3339(at_ms / 1000).unwrap_or_default(), or_earlier: true })
            });
            if seen.0 != standing && !is_first {
                let time = rfc3339(at_ms / 1000).unwrap_or_default();
                *seen = (standing, SinceView { time, or_earlier: false });
            }
            let told = changed.get(&array.key).filter(|_| standing != MachineStanding::Attention);
            if let Some(time) = told {
                seen.1 = SinceView { time: time.clone(), or_earlier: false };
            }
        }
        self.beside.decisions.retain(|key, _| view.arrays.iter().any(|array| array.key == *key));
        self.beside.files.retain(|key, _| view.arrays.iter().any(|array| array.key == *key));
    }

    /// Adds to the history, and tells what was added.
    fn points(&mut self, servers: &Servers, before: Option<(&Servers, u64)>, at_ms: u64) -> Points {
        let mut points = Points { at_ms, arrays: BTreeMap::new() };
        for (socket, server) in &servers.answered {
            let earlier = before
                .and_then(|(before, millis)| Some((view::earlier(before, socket, server.pid)?, millis)));
            for array in &server.arrays {
                let was = earlier.and_then(|(arrays, millis)| {
                    Some((arrays.iter().find(|was| was.name == array.name)?, millis))
                });
                let Some((was, millis)) = was else { continue };
                let rates = ArrayRates::between(was, array, millis);
                let key = view::key(&server.server, array);
                self.history.add(&key, HistoryPoint { at_ms, rates });
                points.arrays.insert(key, rates);
            }
        }
        let served = |key: &str| {
            servers
                .answered
                .iter()
                .any(|(_, server)| server.arrays.iter().any(|array| view::key(&server.server, array) == key))
        };
        self.history.keep(served);
        points
    }

    fn publish(&mut self, view: MachineView, points: &Points, at: Instant) {
        let value = serde_json::to_value(&view).unwrap_or_default();
        let mut pieces = Vec::new();
        if !self.viewers.is_empty() {
            pieces.extend(diff::change(&self.value, &value).map(|change| piece("change", &change)));
            if !points.arrays.is_empty() {
                pieces.push(piece("points", points));
            }
            let is_quiet = self.told.is_none_or(|told| at.duration_since(told) >= HEARTBEAT);
            if pieces.is_empty() && is_quiet {
                pieces.push(Bytes::from_static(b":\n\n"));
            }
            if !pieces.is_empty() {
                self.told = Some(at);
            }
        }
        // A viewer that left more than it may is dropped, which ends its reply.
        self.viewers
            .retain(|viewer| !viewer.is_closed() && pieces.iter().all(|piece| viewer.send(piece.clone())));
        if value != self.value {
            self.snapshot = None;
        }
        (self.view, self.value) = (Some(view), value);
    }
}

/// What every array did since the look before.
#[derive(Serialize)]
struct Points {
    at_ms: u64,
    arrays: BTreeMap<String, ArrayRates>,
}

impl Memory {
    /// When what each array is fit for last changed, as the servers tell.
    fn follow(&mut self, servers: &Servers) -> BTreeMap<String, String> {
        self.servers.retain(|socket, _| servers.answered.iter().any(|(other, _)| other == socket));
        let mut changed = BTreeMap::new();
        for (socket, server) in &servers.answered {
            let followed = self.servers.entry(socket.clone()).or_default();
            // An older server does not know of events: then it is not told.
            let Ok(Some(told)) = client::events(socket, &followed.position, Duration::ZERO) else { continue };
            if followed.position.epoch.as_ref().is_some_and(|epoch| *epoch != told.epoch) {
                followed.changed.clear();
            }
            followed.position = FeedPosition { epoch: Some(told.epoch), after: told.last };
            for event in told.events.into_iter().filter(|event| event.kind == FeedKind::Health) {
                let key = event.array_uuid.unwrap_or_else(|| format!("{}/{}", server.server, event.array));
                followed.changed.insert(key, event.time);
            }
            changed.extend(followed.changed.clone());
        }
        changed
    }

    /// Why arrays are as they are: of those that changed, and of all from time to time.
    fn explain(
        &mut self,
        servers: &Servers,
        at: Instant,
    ) -> BTreeMap<String, Vec<wattle_server::protocol::why::DecisionReport>> {
        let mut decisions = BTreeMap::new();
        for (socket, server) in &servers.answered {
            for array in &server.arrays {
                let (key, shape) = (view::key(&server.server, array), shape(array));
                let known = self.why.get(&key);
                if known.is_some_and(|(known, then)| *known == shape && at.duration_since(*then) < WHY_PAUSE)
                {
                    continue;
                }
                let id = array.uuid.as_deref().unwrap_or(&array.name);
                if let Ok(why) = client::why(socket, id) {
                    decisions.insert(key.clone(), why.decisions);
                    self.why.insert(key, (shape, at));
                }
            }
        }
        self.why.retain(|_, (_, then)| at.duration_since(*then) < 2 * WHY_PAUSE);
        decisions
    }

    /// What drives say of themselves, and how alerts are, if it is time to ask.
    fn beside(
        &mut self,
        servers: &Servers,
        at: Instant,
        documents: &dyn ConsoleDocuments,
    ) -> Option<(BTreeMap<String, view::DriveView>, view::AlertsView)> {
        if self.beside.is_some_and(|then| at.duration_since(then) < BESIDE_PAUSE) {
            return None;
        }
        self.beside = Some(at);
        let members = servers.arrays().flat_map(|(_, array)| array.members.iter().chain(&array.replacements));
        let names: Vec<String> = members.filter_map(|member| member.member.clone()).collect();
        Some((documents.drives(&names), documents.alerts()))
    }
}

/// What the reasons of an array depend on.
fn shape(array: &ArrayReport) -> String {
    let member = |member: &MemberReport| {
        let silent = member.silent_seconds > 0;
        let remote = member.remote.as_ref().map(|remote| (remote.state, &remote.reason_code));
        format!("{}{}{}{silent}{remote:?}", member.state.word(), member.slow, member.bad_bytes)
    };
    let members: String = array.members.iter().map(member).collect();
    let spares: String = array.spares.iter().map(|spare| spare.state.word()).collect();
    let job = array.sync.as_ref().map(|job| format!("{}{}", job.action, job.paused)).unwrap_or_default();
    let scrub =
        array.scrubs.first().map(|scrub| format!("{}{}", scrub.run, scrub.outcome)).unwrap_or_default();
    format!(
        "{} {} {:?} {members} {spares} {job} {scrub} {} {}",
        array.slots, array.synced, array.health, array.paused, array.read_only
    )
}

/// A server-sent event.
fn piece(name: &str, value: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(value).unwrap_or_default();
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

#[cfg(test)]
mod tests {
    use wattle_server::fixtures::array;
    use wattle_server::protocol::report::{SpareReport, SpareState};

    use super::*;

    /// What the page says of a member is asked for again as soon as that may be another thing.
    #[test]
    fn reasons_are_asked_for_again_when_they_may_be_others() {
        let mut data = array("data", "raid5", &["a", "b", "c"]);
        data.spares = vec![SpareReport { member: "s".to_owned(), state: SpareState::Spare, why: None }];
        data.members[1].slow = true;
        let slow = shape(&data);
        data.members[1].silent_seconds = 20;
        let silent = shape(&data);
        assert_ne!(slow, silent);
        data.members[1].silent_seconds = 21;
        assert_eq!(shape(&data), silent, "not each second");
        data.spares[0].state = SpareState::Refused;
        assert_ne!(shape(&data), silent);
    }
}
