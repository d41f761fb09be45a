//! What happened to an array, told from how it was and how it is: for the server's log and for `wattle status`.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::control_socket::report::{ArrayReport, EventReport, Health, MemberReport};

/// Events that are kept.
const KEPT: usize = 100;

/// The last events, the oldest first.
#[derive(Debug, Default)]
pub struct Events(RefCell<VecDeque<EventReport>>);

impl Events {
    /// Adds one.
    pub fn add(&self, time: String, what: String) {
        let mut events = self.0.borrow_mut();
        if events.len() == KEPT {
            events.pop_front();
        }
        events.push_back(EventReport { time, what });
    }

    /// All that are kept, the last first.
    pub fn last_first(&self) -> Vec<EventReport> {
        self.0.borrow().iter().rev().cloned().collect()
    }
}

/// What happened between two looks, in an operator's words.
pub fn between(before: &ArrayReport, after: &ArrayReport) -> Vec<String> {
    let mut events = Vec::new();
    for (before, after) in before.members.iter().zip(&after.members) {
        events.extend(of_seat(before, after, false));
    }
    for (before, after) in before.replacements.iter().zip(&after.replacements) {
        events.extend(of_seat(before, after, true));
    }
    for spare in after.spares.iter().filter(|spare| !before.spares.contains(spare)) {
        events.push(format!(
            "{} is a {} now",
            spare.member,
            if spare.state == "faulty" { "failed member" } else { "spare" }
        ));
    }
    match (&before.sync, &after.sync) {
        (None, Some(now)) => events.push(format!("{} started", now.action)),
        (Some(then), Some(now)) if then.action != now.action => {
            events.push(format!("{} ended, {} started", then.action, now.action));
        }
        (Some(then), None) => events.push(format!("{} ended", then.action)),
        (Some(then), Some(now)) if then.paused != now.paused => {
            events.push(format!("{} {}", now.action, if now.paused { "paused" } else { "resumed" }));
        }
        _ => {}
    }
    if !before.synced && after.synced {
        events.push("parity and copies agree everywhere".to_owned());
    }
    if before.health != after.health {
        let now = format!("{} {}", after.slots, after.health.word(after.synced));
        events.push(match after.health {
            Health::Unusable => {
                format!("{now}: nothing is written any more; `wattle why {}` says what now", after.name)
            }
            _ => now,
        });
    }
    events
}

/// Whether whoever brought this about tells it too, with the reason, which the states do not show: members join and leave on somebody's
/// order only, and fail by themselves or on an order that was just told.
pub fn is_told(event: &str, told: &[String]) -> bool {
    let who = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
    let by_order = [" joined (", " left slot", " left replacement"].iter().any(|what| event.contains(what));
    by_order || event.ends_with(") failed") && told.iter().any(|other| who(other) == who(event))
}

fn of_seat(before: &MemberReport, after: &MemberReport, replacement: bool) -> Vec<String> {
    let seat = match replacement {
        false => format!("slot {}", after.slot),
        true => format!("replacement for slot {}", after.slot),
    };
    let name = after.member.as_deref().or(before.member.as_deref()).unwrap_or("the member");
    let mut events = Vec::new();
    let joined = before.member != after.member && after.member.is_some();
    match (before.state.as_str(), after.state.as_str()) {
        (_, "rebuilding") if joined || before.state != "rebuilding" => {
            events.push(format!("{name} joined ({seat}) and is being filled"));
        }
        ("rebuilding", "in_sync") => events.push(format!("{name} ({seat}) is in sync")),
        (then, "in_sync") if joined || then != "in_sync" => {
            events.push(format!("{name} is in {seat}, in sync"));
        }
        (then, "faulty") if then != "faulty" => events.push(format!("{name} ({seat}) failed")),
        (then, "missing") if then != "missing" => events.push(format!("{name} left {seat}")),
        _ => {}
    }
    if after.slow != before.slow {
        let what =
            if after.slow { "is slow: reads go around it where they can" } else { "is not slow any more" };
        events.push(format!("{name} ({seat}) {what}"));
    }
    if after.read_errors > before.read_errors && !joined {
        events.push(format!("{name} ({seat}): {} reads failed", after.read_errors - before.read_errors));
    }
    if after.bad_bytes != before.bad_bytes && !joined && after.member.is_some() {
        events.push(format!(
            "{name} ({seat}): {} bytes of bad blocks, {} before",
            after.bad_bytes, before.bad_bytes
        ));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::tests::array;
    use crate::control_socket::report::Health;
    use crate::output::progress::tests::sync;

    #[test]
    fn what_happens_to_a_member_is_told() {
        let whole = array("data", "raid5", &["a", "b", "c"]);
        assert!(between(&whole, &whole).is_empty());
        let with = |state: &str, change: &dyn Fn(&mut MemberReport)| {
            let mut array = whole.clone();
            state.clone_into(&mut array.members[1].state);
            change(&mut array.members[1]);
            array
        };
        let failed = with("faulty", &|_| ());
        let empty = with("missing", &|member| member.member = None);
        let filling = with("rebuilding", &|member| member.member = Some("d".to_owned()));
        let filled = with("in_sync", &|member| member.member = Some("d".to_owned()));
        let slow = with("in_sync", &|member| member.slow = true);
        let errors = with("in_sync", &|member| (member.read_errors, member.bad_bytes) = (2, 4096));
        for (before, after, expected) in [
            (&whole, &failed, &["b (slot 1) failed"][..]),
            (&failed, &empty, &["b left slot 1"]),
            (&empty, &filling, &["d joined (slot 1) and is being filled"]),
            (&failed, &filling, &["d joined (slot 1) and is being filled"]),
            (&filling, &filled, &["d (slot 1) is in sync"]),
            (&whole, &slow, &["b (slot 1) is slow: reads go around it where they can"]),
            (&slow, &whole, &["b (slot 1) is not slow any more"]),
            (
                &whole,
                &errors,
                &["b (slot 1): 2 reads failed", "b (slot 1): 4096 bytes of bad blocks, 0 before"],
            ),
            (&whole, &filled, &["d is in slot 1, in sync"]),
        ] {
            assert_eq!(between(before, after), expected);
        }
    }

    #[test]
    fn background_work_and_health_are_told() {
        let idle = array("data", "raid5", &["a", "b", "c"]);
        let mut busy = idle.clone();
        busy.sync = Some(sync("resync", 1, 2));
        busy.synced = false;
        assert_eq!(between(&idle, &busy), ["resync started"]);
        assert_eq!(between(&busy, &idle), ["resync ended", "parity and copies agree everywhere"]);
        let mut degraded = idle.clone();
        degraded.health = Health::Degraded;
        "[U_U]".clone_into(&mut degraded.slots);
        assert_eq!(between(&idle, &degraded), ["[U_U] degraded"]);
    }

    #[test]
    fn what_was_ordered_is_told_once() {
        let told = ["b in slot 1 was failed".to_owned()];
        assert!(is_told("b (slot 1) failed", &told));
        assert!(!is_told("c (slot 2) failed", &told));
        assert!(is_told("d joined (slot 1) and is being filled", &told));
        assert!(!is_told("d (slot 1) is in sync", &told));
        assert!(!is_told("b (slot 1) is slow: reads go around it where they can", &told));
    }

    #[test]
    fn only_the_last_ones_are_kept() {
        let events = Events::default();
        (0..KEPT + 3).for_each(|n| events.add(String::new(), n.to_string()));
        let kept = events.last_first();
        assert_eq!((kept.len(), kept[0].what.as_str()), (KEPT, "102"));
    }
}
