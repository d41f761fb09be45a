//! Events that only show in the state of an array, found by comparing two looks at it.

use wattle_engine::MemberState;
use wattle_engine::job::JobKind;
use wattle_engine::units::{SECTOR_BYTES, Sector};
use wattle_engine::{ArrayStatus, MemberStatus};

use super::{ArrayEvent, EventHealth, EventMember, EventPlace, Filling, JobChange};

/// What is added to the log where it happens, so that a comparison must not find it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Covered {
    /// Nothing: the array has no metadata.
    Nothing,
    /// Operators' orders.
    Orders,
    /// Operators' orders and failures.
    OrdersAndFailures,
}

/// A member as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedMember {
    /// Its name; `None` if no member is there.
    pub name: Option<String>,
    /// Its state.
    pub state: MemberState,
    /// Its reads that failed so far.
    pub read_errors: u64,
    /// Its bytes that are bad.
    pub bad_bytes: u64,
    /// It is slow.
    pub slow: bool,
    /// It answers nothing.
    pub silent: bool,
}

/// An array as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// By slot.
    pub members: Vec<ObservedMember>,
    /// Replacements, by slot.
    pub replacements: Vec<ObservedMember>,
    /// Background work, and whether it is paused.
    pub job: Option<(JobKind, bool)>,
    /// Parity and copies are known to agree.
    pub synced: bool,
    /// More failed than redundancy covers.
    pub broken: bool,
}

impl From<&MemberStatus> for ObservedMember {
    fn from(status: &MemberStatus) -> Self {
        Self {
            name: status.device.clone(),
            state: status.state,
            read_errors: status.read_errors,
            bad_bytes: status.bad_sectors * SECTOR_BYTES,
            slow: status.slow,
            silent: status.silent_for().is_some(),
        }
    }
}

impl From<&ArrayStatus> for Observed {
    fn from(status: &ArrayStatus) -> Self {
        Self {
            members: status.members.iter().map(ObservedMember::from).collect(),
            replacements: status.replacements.iter().map(ObservedMember::from).collect(),
            // Bad blocks are repaired part by part, of which there may be hundreds.
            job: status.sync.as_ref().filter(|sync| !sync.is_part).map(|sync| (sync.action, sync.paused)),
            synced: status.synced_below == Sector::MAX,
            broken: status.broken,
        }
    }
}

impl Observed {
    /// With the bad blocks of an earlier look, so that a later one tells how they changed since:
    /// each sector that is written anew changes them.
    #[must_use]
    pub fn with_bad_of(mut self, before: &Self) -> Self {
        let seats = self.members.iter_mut().chain(&mut self.replacements);
        for (now, before) in seats.zip(before.members.iter().chain(&before.replacements)) {
            if now.name == before.name {
                now.bad_bytes = before.bad_bytes;
            }
        }
        self
    }

    fn health(&self) -> EventHealth {
        let whole = self.members.iter().all(|member| member.state == MemberState::InSync);
        match (self.broken, whole) {
            (true, _) => EventHealth::Unusable,
            (false, true) => EventHealth::Good { synced: self.synced },
            (false, false) => EventHealth::Degraded,
        }
    }
}

/// Whether two states of health differ in more than whether parity and copies agree, which is an
/// event of its own.
fn differ(before: EventHealth, after: EventHealth) -> bool {
    std::mem::discriminant(&before) != std::mem::discriminant(&after)
}

/// What happened between two looks at an array: members first, then background work, then what the
/// array is fit for.
#[must_use]
pub fn between(array: &str, before: &Observed, after: &Observed, covered: Covered) -> Vec<ArrayEvent> {
    let mut events = Vec::new();
    for (slot, (before, after)) in (0..).zip(before.members.iter().zip(&after.members)) {
        events.extend(of_seat(before, after, EventPlace::Slot(slot), covered));
    }
    for (slot, (before, after)) in (0..).zip(before.replacements.iter().zip(&after.replacements)) {
        events.extend(of_seat(before, after, EventPlace::Replacement(slot), covered));
    }
    events.extend(of_job(before.job, after.job));
    if !before.synced && after.synced {
        events.push(ArrayEvent::Synced);
    }
    if differ(before.health(), after.health()) {
        let slots = after.members.iter().map(|member| member.state).collect();
        events.push(ArrayEvent::Health { array: array.to_owned(), health: after.health(), slots });
    }
    events
}

fn of_job(before: Option<(JobKind, bool)>, after: Option<(JobKind, bool)>) -> Option<ArrayEvent> {
    let (action, change) = match (before, after) {
        (None, Some((action, _))) => (action, JobChange::Started),
        (Some((then, _)), Some((now, _))) if then != now => (then, JobChange::EndedFor(now)),
        // What it found tells that it ended.
        (Some((JobKind::Check | JobKind::Repair, _)), None) => return None,
        (Some((action, _)), None) => (action, JobChange::Ended),
        (Some((_, false)), Some((action, true))) => (action, JobChange::Paused),
        (Some((_, true)), Some((action, false))) => (action, JobChange::Resumed),
        _ => return None,
    };
    Some(ArrayEvent::Job { action, change })
}

fn of_seat(
    before: &ObservedMember,
    after: &ObservedMember,
    place: EventPlace,
    covered: Covered,
) -> Vec<ArrayEvent> {
    use MemberState::{Faulty, InSync, Missing, Rebuilding};
    let Some(name) = after.name.as_ref().or(before.name.as_ref()) else { return Vec::new() };
    let member = || EventMember { key: None, name: name.clone() };
    let joined = before.name != after.name && after.name.is_some();
    let mut events = Vec::new();
    match (before.state, after.state) {
        (then, Rebuilding { .. })
            if covered == Covered::Nothing && (joined || !matches!(then, Rebuilding { .. })) =>
        {
            events.push(ArrayEvent::Joined { member: member(), place, filling: Filling::Full });
        }
        (Rebuilding { .. }, InSync) => events.push(ArrayEvent::InSync { member: member(), place }),
        (then, InSync) if joined || then != InSync => {
            events.push(ArrayEvent::Took { member: member(), place });
        }
        // What a replacement took the slot of counts as failed, in the replacement's place.
        (_, Faulty) if joined && let EventPlace::Replacement(slot) = place => {
            events.push(ArrayEvent::Replaced { member: member(), slot });
        }
        (then, Faulty) if then != Faulty && covered != Covered::OrdersAndFailures => {
            events.push(ArrayEvent::Failed { member: member(), place, cause: None });
        }
        (then, Missing) if then != Missing && covered == Covered::Nothing => {
            events.push(ArrayEvent::Left { member: member(), place });
        }
        _ => {}
    }
    // What ends must be what began: another has come, or the member failed, which is no answer.
    let is_same = after.name == before.name && after.state.writable();
    if after.slow != before.slow && (after.slow || is_same) {
        events.push(ArrayEvent::Slow { member: member(), place, slow: after.slow });
    }
    if after.silent != before.silent && (after.silent || is_same) {
        events.push(ArrayEvent::Silent { member: member(), place, silent: after.silent });
    }
    if after.read_errors > before.read_errors && !joined {
        let count = after.read_errors - before.read_errors;
        events.push(ArrayEvent::ReadErrors { member: member(), place, count });
    }
    if after.bad_bytes != before.bad_bytes && !joined && after.name.is_some() {
        let (bytes, before_bytes) = (after.bad_bytes, before.bad_bytes);
        events.push(ArrayEvent::BadBlocks { member: member(), place, bytes, before_bytes });
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: Option<&str>, state: MemberState) -> ObservedMember {
        ObservedMember {
            name: name.map(str::to_owned),
            state,
            read_errors: 0,
            bad_bytes: 0,
            slow: false,
            silent: false,
        }
    }

    fn whole() -> Observed {
        let seat = |name| member(Some(name), MemberState::InSync);
        Observed {
            members: ["a", "b", "c"].map(seat).into(),
            replacements: vec![member(None, MemberState::Missing); 3],
            job: None,
            synced: true,
            broken: false,
        }
    }

    fn texts(before: &Observed, after: &Observed, covered: Covered) -> Vec<String> {
        between("data", before, after, covered).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_happens_to_a_member_is_told() {
        let whole = whole();
        assert!(between("data", &whole, &whole, Covered::Nothing).is_empty());
        let with = |name: Option<&str>, state: MemberState| {
            let mut array = whole.clone();
            array.members[1] = member(name, state);
            array
        };
        let failed = with(Some("b"), MemberState::Faulty);
        let empty = with(None, MemberState::Missing);
        let filling = with(Some("d"), MemberState::Rebuilding { valid_below: Sector(8) });
        let filled = with(Some("d"), MemberState::InSync);
        let slow = {
            let mut array = whole.clone();
            array.members[1].slow = true;
            array
        };
        let silent = {
            let mut array = whole.clone();
            array.members[1].silent = true;
            array
        };
        let errors = {
            let mut array = whole.clone();
            (array.members[1].read_errors, array.members[1].bad_bytes) = (2, 4096);
            array
        };
        for (before, after, expected) in [
            (&whole, &failed, &["b (slot 1) failed", "[U_U] degraded"][..]),
            (&failed, &empty, &["b left slot 1"]),
            (&empty, &filling, &["d joined in slot 1 and is being filled"]),
            (&failed, &filling, &["d joined in slot 1 and is being filled"]),
            (&filling, &filled, &["d (slot 1) is in sync", "[UUU] good"]),
            (&whole, &slow, &["b (slot 1) is slow: reads go around it where they can"]),
            (&slow, &whole, &["b (slot 1) is not slow any more"]),
            (&whole, &silent, &["b (slot 1) answers nothing: what needs it waits"]),
            (&silent, &whole, &["b (slot 1) answers again"]),
            (&silent, &failed, &["b (slot 1) failed", "[U_U] degraded"]),
            (&slow, &failed, &["b (slot 1) failed", "[U_U] degraded"]),
            // Another has come.
            (&silent, &filled, &["d is in slot 1, in sync"]),
            (&slow, &filled, &["d is in slot 1, in sync"]),
            (
                &whole,
                &errors,
                &["b (slot 1): 2 reads failed", "b (slot 1): 4096 bytes of bad blocks, 0 before"],
            ),
            (&whole, &filled, &["d is in slot 1, in sync"]),
        ] {
            assert_eq!(texts(before, after, Covered::Nothing), expected);
        }
    }

    #[test]
    fn bad_blocks_can_be_told_later_in_one() {
        let bad = |bytes: u64| {
            let mut array = whole();
            array.members[1].bad_bytes = bytes;
            array
        };
        let (first, last) = (bad(4096), bad(512));
        let between_them = bad(2048).with_bad_of(&first);
        assert_eq!(texts(&first, &between_them, Covered::Orders), [""; 0]);
        let told = ["b (slot 1): 512 bytes of bad blocks, 4096 before"];
        assert_eq!(texts(&between_them, &last, Covered::Orders), told);
        // Of another member nothing was told yet.
        let mut other = bad(512);
        other.members[1].name = Some("d".to_owned());
        assert_eq!(other.clone().with_bad_of(&first), other);
    }

    #[test]
    fn background_work_and_health_are_told() {
        let idle = whole();
        let busy = Observed { job: Some((JobKind::Resync, false)), synced: false, ..whole() };
        assert_eq!(texts(&idle, &busy, Covered::Nothing), ["resync started"]);
        let ended = ["resync ended", "parity and copies agree everywhere"];
        assert_eq!(texts(&busy, &idle, Covered::Nothing), ended);
        let paused = Observed { job: Some((JobKind::Resync, true)), ..busy.clone() };
        assert_eq!(texts(&busy, &paused, Covered::Nothing), ["resync paused"]);
        let checking = Observed { job: Some((JobKind::Check, false)), ..whole() };
        assert_eq!(texts(&idle, &checking, Covered::Nothing), ["check started"]);
        // That it ended is told with what it found.
        assert_eq!(texts(&checking, &idle, Covered::Nothing), [""; 0]);
        let broken = Observed { broken: true, ..whole() };
        let unusable = "[UUU] unusable: nothing is written any more; `wattle why data` says what now";
        assert_eq!(texts(&idle, &broken, Covered::Nothing), [unusable]);
    }

    /// What is added to the log where it happens is not found a second time.
    #[test]
    fn what_is_recorded_is_told_once() {
        let (whole, mut failed, mut filling) = (whole(), whole(), whole());
        failed.members[1].state = MemberState::Faulty;
        filling.members[1] = member(Some("d"), MemberState::Rebuilding { valid_below: Sector(8) });
        let recorded = Covered::OrdersAndFailures;
        assert_eq!(texts(&whole, &failed, recorded), ["[U_U] degraded"]);
        assert_eq!(texts(&whole, &failed, Covered::Orders), ["b (slot 1) failed", "[U_U] degraded"]);
        assert_eq!(texts(&failed, &filling, recorded), [""; 0]);
        assert_eq!(texts(&filling, &failed, recorded), [""; 0]);
    }

    #[test]
    fn a_member_whose_replacement_took_its_slot_was_replaced() {
        let (mut before, mut after) = (whole(), whole());
        before.replacements[1] = member(Some("d"), MemberState::Rebuilding { valid_below: Sector(8) });
        after.members[1] = member(Some("d"), MemberState::InSync);
        after.replacements[1] = member(Some("b"), MemberState::Faulty);
        let expected = ["d is in slot 1, in sync", "b (slot 1) was replaced"];
        assert_eq!(texts(&before, &after, Covered::OrdersAndFailures), expected);
    }
}
