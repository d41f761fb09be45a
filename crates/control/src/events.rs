//! What happened to a running array, for whoever tells people.

use std::collections::VecDeque;

use wattle_rt::WallTime;

/// Events that are kept: the last ones.
const KEPT: usize = 1000;

/// Something that happened to an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: WallTime,
    /// What, for people.
    pub what: String,
}

/// The last events, the oldest first, and how many came before them.
#[derive(Debug, Default)]
pub(crate) struct Events {
    kept: VecDeque<Event>,
    forgotten: usize,
}

impl Events {
    pub fn add(&mut self, event: Event) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
            self.forgotten += 1;
        }
        self.kept.push_back(event);
    }

    /// Those after the first `seen` of all, as far as they are kept.
    pub fn since(&self, seen: usize) -> Vec<Event> {
        self.kept.iter().skip(seen.saturating_sub(self.forgotten)).cloned().collect()
    }

    /// How many there were.
    pub fn count(&self) -> usize {
        self.forgotten + self.kept.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_much_happens_the_last_is_known() {
        let mut events = Events::default();
        let mut seen = 0;
        for n in 0..3 * KEPT {
            events.add(Event { at: WallTime { secs: n as u64, micros: 0 }, what: n.to_string() });
            let new = events.since(seen);
            assert_eq!(new.iter().map(|event| event.what.as_str()).collect::<Vec<_>>(), [n.to_string()]);
            seen = events.count();
        }
        assert_eq!((events.since(0).len(), events.since(0)[0].what.as_str()), (KEPT, "2000"));
        assert!(events.since(seen).is_empty());
    }
}
