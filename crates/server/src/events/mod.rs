//! What happened to an array since the server started: the events of [`wattle_control::events`],
//! and what checks and repairs found. Log, `status` and `why` render them.

mod feed;
mod text;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use wattle_control::{Problem, events as array};

use crate::protocol::report::{EventReport, ScrubReport};
pub use feed::{EventFeed, FeedArray, FeedPosition};
pub use text::{scrub_end, sectors};

/// Events that are kept.
const KEPT: usize = 100;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerEvent {
    /// To the array or a member.
    Array(array::ArrayEvent),
    /// A check or repair ended.
    Scrub(Box<ScrubReport>),
    /// An order that took long was not carried out to its end.
    OrderFailed(Box<Problem>),
}

impl fmt::Display for ServerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array(event) => event.fmt(f),
            Self::OrderFailed(problem) => write!(f, "{}: {}", problem.what, problem.why),
            Self::Scrub(run) => f.write_str(&scrub_end(run)),
        }
    }
}

/// An event and its time, RFC 3339.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timed {
    /// When.
    pub time: String,
    /// What.
    pub event: ServerEvent,
}

/// The last events, the oldest first.
#[derive(Debug, Default)]
pub struct Events {
    kept: RefCell<VecDeque<Timed>>,
    feed: RefCell<Option<(Rc<EventFeed>, FeedArray)>>,
}

impl Events {
    /// Adds one.
    pub fn add(&self, time: String, event: ServerEvent) {
        if let Some((feed, array)) = &*self.feed.borrow() {
            feed.add(array, &time, &event);
        }
        let mut events = self.kept.borrow_mut();
        if events.len() == KEPT {
            events.pop_front();
        }
        events.push_back(Timed { time, event });
    }

    /// What happened until now, and what happens from now on, goes to the server's feed too.
    pub fn feed_into(&self, feed: &Rc<EventFeed>, array: FeedArray) {
        self.kept.borrow().iter().for_each(|timed| feed.add(&array, &timed.time, &timed.event));
        self.feed.replace(Some((feed.clone(), array)));
    }

    /// All that are kept, the last first, as `status` shows them.
    pub fn last_first(&self) -> Vec<EventReport> {
        let report = |timed: &Timed| EventReport { time: timed.time.clone(), what: timed.event.to_string() };
        self.kept.borrow().iter().rev().map(report).collect()
    }

    /// That another server has the array, if it was seen.
    pub fn overtaken(&self) -> Option<Problem> {
        self.kept.borrow().iter().find_map(|timed| match &timed.event {
            ServerEvent::Array(array::ArrayEvent::Overtaken { problem, .. }) => Some((**problem).clone()),
            _ => None,
        })
    }

    /// The last failure of the member of this name.
    pub fn last_failure(&self, name: &str) -> Option<Timed> {
        let of_it = |timed: &&Timed| matches!(&timed.event, ServerEvent::Array(array::ArrayEvent::Failed { member, .. }) if member.name == name);
        self.kept.borrow().iter().rev().find(of_it).cloned()
    }
}

#[cfg(test)]
mod tests {
    use wattle_control::events::{EventMember, EventPlace};

    use super::*;

    fn failed(name: &str) -> ServerEvent {
        let member = EventMember { key: None, name: name.to_owned() };
        ServerEvent::Array(array::ArrayEvent::Failed { member, place: EventPlace::Slot(1), cause: None })
    }

    #[test]
    fn only_the_last_ones_are_kept() {
        let events = Events::default();
        (0..KEPT + 3).for_each(|n| events.add(String::new(), failed(&n.to_string())));
        let kept = events.last_first();
        assert_eq!((kept.len(), kept[0].what.as_str()), (KEPT, "102 (slot 1) failed"));
    }

    /// By the member, not by what its name begins with.
    #[test]
    fn a_failure_is_found_by_its_member() {
        let events = Events::default();
        events.add("1".to_owned(), failed("disk1"));
        events.add("2".to_owned(), failed("disk10"));
        events.add("3".to_owned(), failed("disk1"));
        events.add("4".to_owned(), ServerEvent::Array(array::ArrayEvent::Synced));
        assert_eq!(events.last_failure("disk1").map(|timed| timed.time).as_deref(), Some("3"));
        assert_eq!(events.last_failure("disk10").map(|timed| timed.time).as_deref(), Some("2"));
        assert_eq!(events.last_failure("disk"), None);
    }
}
