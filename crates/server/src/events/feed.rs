//! The events of all arrays of a server in one order, for clients that follow them.
//!
//! A client that waits costs a timer and a place in a list: nothing is looked at for it until an
//! event is added.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use wattle_control::events::{ArrayEvent, EventPlace, JobChange, action_word};
use wattle_control::{Code, Problem};
use wattle_engine::FailCause;
use wattle_rt::{Core, Notify, race};

use super::ServerEvent;
use crate::protocol::events::{EVENTS_WAIT_SECS_MAX, EventsReport, FeedEvent, FeedKind};

/// Events that are kept.
const KEPT: usize = 1000;

/// Clients that wait for events at a time.
const FOLLOWERS_MAX: usize = 32;

/// The array that events are of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedArray {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: Option<String>,
}

/// What a client that follows has already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeedPosition {
    /// In which run of the server; `None` for a client that begins.
    pub epoch: Option<String>,
    /// The last event that it has.
    pub after: u64,
}

/// The last events of a server.
pub struct EventFeed {
    server: String,
    epoch: String,
    events: RefCell<VecDeque<FeedEvent>>,
    last: Cell<u64>,
    ending: Cell<bool>,
    changed: Notify,
    followers: Cell<usize>,
}

/// A client that waits, until dropped.
struct Follower<'a>(&'a Cell<usize>);

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl fmt::Debug for EventFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventFeed({} {}, last {})", self.server, self.epoch, self.last.get())
    }
}

impl EventFeed {
    /// An empty one; `epoch` is no other run's of this server.
    #[must_use]
    pub fn new(server: &str, epoch: String) -> Self {
        Self {
            server: server.to_owned(),
            epoch,
            events: RefCell::default(),
            last: Cell::new(0),
            ending: Cell::new(false),
            changed: Notify::new(),
            followers: Cell::new(0),
        }
    }

    /// Adds an event.
    pub fn add(&self, array: &FeedArray, time: &str, event: &ServerEvent) {
        self.push(feed_event(array, time, event));
    }

    /// Adds that an array was stopped by order.
    pub fn stopped(&self, array: &FeedArray, time: &str) {
        self.push(blank(array, time, FeedKind::Stopped, format!("{} was stopped", array.name)));
    }

    /// The server ends as it was told to. Every client that waits is answered.
    pub fn end(&self) {
        self.ending.set(true);
        self.changed.notify_all();
    }

    fn push(&self, mut event: FeedEvent) {
        self.last.set(self.last.get() + 1);
        event.sequence = self.last.get();
        let mut events = self.events.borrow_mut();
        if events.len() == KEPT {
            events.pop_front();
        }
        events.push_back(event);
        self.changed.notify_all();
    }

    /// What is newer than `position`, as soon as there is something, or when the time is over.
    ///
    /// # Errors
    /// As many clients wait as may.
    pub async fn follow(
        &self,
        core: &Core,
        position: &FeedPosition,
        wait_secs: u64,
    ) -> Result<EventsReport, Problem> {
        if self.followers.get() >= FOLLOWERS_MAX {
            return Err(Problem::new(
                Code::ServerFailed,
                format!("{FOLLOWERS_MAX} clients wait for events of {}", self.server),
                "the server lets no more wait at a time",
                "end some of them, or try again in a minute",
            )
            .transient(true));
        }
        self.followers.set(self.followers.get() + 1);
        let _follower = Follower(&self.followers);
        let known = position.epoch.as_ref().is_none_or(|epoch| *epoch == self.epoch);
        let after = if known { position.after } else { 0 };
        let until = core.now() + Duration::from_secs(wait_secs.min(EVENTS_WAIT_SECS_MAX));
        while known && self.last.get() <= after && !self.ending.get() && core.now() < until {
            race(self.changed.wait(), core.sleep_until(until)).await;
        }
        Ok(self.after(after))
    }

    fn after(&self, after: u64) -> EventsReport {
        let events = self.events.borrow();
        let first = events.front().map_or(self.last.get() + 1, |event| event.sequence);
        EventsReport {
            server: self.server.clone(),
            pid: std::process::id(),
            epoch: self.epoch.clone(),
            last: self.last.get(),
            lost: after + 1 < first,
            ending: self.ending.get(),
            events: events.iter().filter(|event| event.sequence > after).cloned().collect(),
        }
    }
}

fn blank(array: &FeedArray, time: &str, kind: FeedKind, text: String) -> FeedEvent {
    FeedEvent {
        sequence: 0,
        time: time.to_owned(),
        array: array.name.clone(),
        array_uuid: array.uuid.clone(),
        kind,
        member: None,
        slot: None,
        replacement: false,
        cause: None,
        action: None,
        bytes: None,
        before_bytes: None,
        text,
    }
}

/// The same event, as it goes to clients.
fn feed_event(array: &FeedArray, time: &str, event: &ServerEvent) -> FeedEvent {
    let mut told = blank(array, time, FeedKind::Scrubbed, event.to_string());
    match event {
        ServerEvent::Array(event) => describe(&mut told, event),
        ServerEvent::Scrub(run) => told.action = Some(run.action.clone()),
        ServerEvent::OrderFailed(problem) => {
            told.kind = FeedKind::OrderFailed;
            told.cause = Some(problem.code.id());
        }
    }
    told
}

fn describe(told: &mut FeedEvent, event: &ArrayEvent) {
    told.kind = kind(event);
    told.member = event.member().map(|member| member.name.clone());
    match event {
        ArrayEvent::Failed { place, cause, .. } => {
            locate(told, *place);
            told.cause = cause.map(|cause| cause_word(cause).to_owned());
        }
        ArrayEvent::Left { place, .. }
        | ArrayEvent::Joined { place, .. }
        | ArrayEvent::InSync { place, .. }
        | ArrayEvent::Took { place, .. }
        | ArrayEvent::Slow { place, .. }
        | ArrayEvent::Silent { place, .. }
        | ArrayEvent::ReadErrors { place, .. }
        | ArrayEvent::RemoteAway { place, .. } => locate(told, *place),
        ArrayEvent::BadBlocks { place, bytes, before_bytes, .. } => {
            locate(told, *place);
            (told.bytes, told.before_bytes) = (Some(*bytes), Some(*before_bytes));
        }
        ArrayEvent::Replaced { slot, .. } => told.slot = Some(*slot),
        ArrayEvent::StaysAway { problem, .. }
        | ArrayEvent::Overtaken { problem, .. }
        | ArrayEvent::SpareRefused { problem, .. } => {
            told.cause = Some(problem.code.id());
        }
        ArrayEvent::Job { change: JobChange::EndedFor(next), .. } => {
            told.action = Some(action_word(*next).to_owned());
        }
        ArrayEvent::Job { action, .. } => told.action = Some(action_word(*action).to_owned()),
        ArrayEvent::Removed { .. }
        | ArrayEvent::Spare { .. }
        | ArrayEvent::BadBlocksRepaired { .. }
        | ArrayEvent::RemoteBack { .. }
        | ArrayEvent::WriteMostly { .. }
        | ArrayEvent::LogsReplayed { .. }
        | ArrayEvent::Synced
        | ArrayEvent::Health { .. } => {}
    }
}

fn locate(told: &mut FeedEvent, place: EventPlace) {
    let (EventPlace::Slot(slot) | EventPlace::Replacement(slot)) = place;
    told.slot = Some(slot);
    told.replacement = matches!(place, EventPlace::Replacement(_));
}

fn kind(event: &ArrayEvent) -> FeedKind {
    match event {
        ArrayEvent::Failed { .. } => FeedKind::Failed,
        ArrayEvent::Left { .. } => FeedKind::Left,
        ArrayEvent::Removed { .. } => FeedKind::Removed,
        ArrayEvent::Joined { .. } => FeedKind::Joined,
        ArrayEvent::Spare { .. } => FeedKind::Spare,
        ArrayEvent::InSync { .. } => FeedKind::InSync,
        ArrayEvent::Took { .. } => FeedKind::Took,
        ArrayEvent::Replaced { .. } => FeedKind::Replaced,
        ArrayEvent::Slow { slow: true, .. } => FeedKind::Slow,
        ArrayEvent::Slow { slow: false, .. } => FeedKind::NotSlow,
        ArrayEvent::Silent { silent: true, .. } => FeedKind::Silent,
        ArrayEvent::Silent { silent: false, .. } => FeedKind::NotSilent,
        ArrayEvent::ReadErrors { .. } => FeedKind::ReadErrors,
        ArrayEvent::BadBlocks { .. } => FeedKind::BadBlocks,
        ArrayEvent::BadBlocksRepaired { .. } => FeedKind::BadBlocksRepaired,
        ArrayEvent::RemoteAway { .. } => FeedKind::RemoteAway,
        ArrayEvent::RemoteBack { .. } => FeedKind::RemoteBack,
        ArrayEvent::WriteMostly { .. } => FeedKind::WriteMostly,
        ArrayEvent::StaysAway { .. } => FeedKind::StaysAway,
        ArrayEvent::Overtaken { .. } => FeedKind::Overtaken,
        ArrayEvent::SpareRefused { .. } => FeedKind::SpareRefused,
        ArrayEvent::LogsReplayed { .. } => FeedKind::LogsReplayed,
        ArrayEvent::Job { change, .. } => match change {
            JobChange::Started | JobChange::EndedFor(_) => FeedKind::JobStarted,
            JobChange::Ended => FeedKind::JobEnded,
            JobChange::Paused => FeedKind::JobPaused,
            JobChange::Resumed => FeedKind::JobResumed,
        },
        ArrayEvent::Synced => FeedKind::Synced,
        ArrayEvent::Health { .. } => FeedKind::Health,
    }
}

/// For programs.
fn cause_word(cause: FailCause) -> &'static str {
    match cause {
        FailCause::Order => "order",
        FailCause::Write => "write",
        FailCause::Read => "read",
        FailCause::Flush => "flush",
        FailCause::Log => "log",
        FailCause::Bitmap => "bitmap",
        FailCause::Superblock => "superblock",
        FailCause::BadBlocks => "bad_blocks",
        FailCause::Silent => "silent",
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use wattle_control::events::EventMember;
    use wattle_engine::job::JobKind;
    use wattle_rt::{SimWorld, WorldConfig};

    use super::*;

    fn array() -> FeedArray {
        FeedArray { name: "data".to_owned(), uuid: Some("a:b:c:d".to_owned()) }
    }

    fn failed(name: &str) -> ServerEvent {
        let member = EventMember { key: None, name: name.to_owned() };
        let (place, cause) = (EventPlace::Slot(1), Some(FailCause::Write));
        ServerEvent::Array(ArrayEvent::Failed { member, place, cause })
    }

    fn in_a_world(test: impl AsyncFnOnce(Core)) {
        let mut world = SimWorld::new(WorldConfig { seed: 7, cores: 1, ..WorldConfig::default() });
        world.run(async move |core| test(core).await).expect_done();
    }

    fn at(after: u64) -> FeedPosition {
        FeedPosition { epoch: Some("e".to_owned()), after }
    }

    #[test]
    fn an_event_is_told_as_values() {
        let told = feed_event(&array(), "t", &failed("b"));
        assert_eq!((told.kind, told.slot, told.replacement), (FeedKind::Failed, Some(1), false));
        assert_eq!((told.member.as_deref(), told.cause.as_deref()), (Some("b"), Some("write")));
        assert_eq!(told.array_uuid.as_deref(), Some("a:b:c:d"));
        let change = JobChange::EndedFor(JobKind::Recover);
        let job = ServerEvent::Array(ArrayEvent::Job { action: JobKind::Resync, change });
        let told = feed_event(&array(), "t", &job);
        assert_eq!((told.kind, told.action.as_deref()), (FeedKind::JobStarted, Some("recovery")));
    }

    #[test]
    fn a_client_is_answered_when_something_happens_and_not_before() {
        in_a_world(async |core| {
            let feed = Rc::new(EventFeed::new("data", "e".to_owned()));
            let begun = core.now();
            let empty = feed.follow(&core, &at(0), 5).await.unwrap();
            assert!(empty.events.is_empty() && core.now() - begun >= Duration::from_secs(5));
            let (adding, adds) = (feed.clone(), core.clone());
            core.spawn(async move {
                adds.sleep(Duration::from_secs(2)).await;
                adding.add(&array(), "t", &failed("b"));
            });
            let begun = core.now();
            let told = feed.follow(&core, &at(0), 30).await.unwrap();
            assert_eq!((told.last, told.events.len(), told.lost), (1, 1, false));
            assert!(core.now() - begun < Duration::from_secs(3));
            assert!(feed.follow(&core, &at(1), 0).await.unwrap().events.is_empty());
        });
    }

    #[test]
    fn what_another_run_counted_means_nothing_and_what_is_not_kept_is_said() {
        in_a_world(async |core| {
            let feed = EventFeed::new("data", "e".to_owned());
            (0..KEPT + 5).for_each(|_| feed.add(&array(), "t", &failed("b")));
            let other = FeedPosition { epoch: Some("before".to_owned()), after: 3000 };
            let told = feed.follow(&core, &other, 30).await.unwrap();
            assert_eq!((told.events.len(), told.lost, told.last), (KEPT, true, KEPT as u64 + 5));
            assert!(!feed.follow(&core, &at(5), 0).await.unwrap().lost);
            assert!(feed.follow(&core, &at(4), 0).await.unwrap().lost);
        });
    }

    #[test]
    fn clients_that_wait_are_answered_at_the_end_and_bounded() {
        in_a_world(async |core| {
            let feed = Rc::new(EventFeed::new("data", "e".to_owned()));
            let answered = Rc::new(Cell::new(0));
            for _ in 0..FOLLOWERS_MAX {
                let (feed, core, answered) = (feed.clone(), core.clone(), answered.clone());
                core.clone().spawn(async move {
                    assert!(feed.follow(&core, &at(0), 60).await.unwrap().ending);
                    answered.set(answered.get() + 1);
                });
            }
            core.sleep(Duration::from_millis(10)).await;
            assert!(feed.follow(&core, &at(0), 60).await.unwrap_err().is_transient);
            feed.end();
            core.sleep(Duration::from_millis(10)).await;
            assert_eq!(answered.get(), FOLLOWERS_MAX);
            assert!(feed.follow(&core, &at(0), 60).await.unwrap().ending);
        });
    }
}
