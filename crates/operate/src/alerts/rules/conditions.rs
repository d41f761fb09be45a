//! What holds of an array now.

use wattle_server::protocol::events::{FeedEvent, FeedKind};
use wattle_server::protocol::report::{
    ArrayReport, Health, MemberReport, RemoteState, ScrubReport, SeatState, ServerReport, SpareState,
};
use wattle_server::time::secs_since;

use super::merge::AlertCondition;
use super::{AlertRules, DriveFault, Fullness, Look, words};
use crate::alerts::kind::{AlertKind, AlertSeverity};
use crate::alerts::state::{Alert, AlertArray, AlertKey, AlertText, AlertsState, ArrayMemory};

/// So much worse is an array that cannot be used than one that lacks members.
const UNUSABLE: u64 = 1000;

/// An array as it was seen, and what is known of it.
pub struct Seen<'a> {
    /// The server's name.
    pub server: &'a str,
    /// Which array.
    pub id: &'a AlertArray,
    /// What its server reported.
    pub array: &'a ArrayReport,
    /// What was seen before.
    pub memory: &'a ArrayMemory,
    /// It was never seen before.
    pub is_new: bool,
    /// Its server started since it was seen last.
    pub has_started: bool,
    /// What happened to it since.
    pub events: &'a [&'a FeedEvent],
    /// All that was seen of the server.
    pub look: &'a Look<'a>,
    /// What an operator decides.
    pub rules: &'a AlertRules,
}

impl Seen<'_> {
    fn key(&self, kind: AlertKind, member: Option<&str>) -> AlertKey {
        AlertKey {
            kind,
            server: self.server.to_owned(),
            array: Some(self.id.clone()),
            member: member.map(str::to_owned),
        }
    }

    fn condition(
        &self,
        kind: AlertKind,
        member: Option<&str>,
        level: u64,
        text: AlertText,
    ) -> AlertCondition {
        let (key, severity) = (self.key(kind, member), kind.severity());
        AlertCondition { key, slot: None, severity, level, text, files: Vec::new() }
    }

    fn of_member(
        &self,
        kind: AlertKind,
        member: &MemberReport,
        level: u64,
        text: AlertText,
    ) -> AlertCondition {
        let name = name_of(member);
        AlertCondition { slot: Some(member.slot), ..self.condition(kind, Some(&name), level, text) }
    }

    /// Why the member failed, if it did since the last look.
    fn cause(&self, member: &str) -> Option<&str> {
        let failed = |event: &&&FeedEvent| {
            matches!(event.kind, FeedKind::Failed | FeedKind::RemoteAway)
                && event.member.as_deref() == Some(member)
        };
        self.events.iter().rev().find(failed).map(|event| event.text.as_str())
    }

    /// Whether a slot has a member that is in sync.
    pub fn is_in_sync(&self, slot: u16) -> bool {
        let seat = self.array.members.iter().find(|member| member.slot == slot);
        seat.is_some_and(|member| member.state == SeatState::InSync)
    }
}

/// What a member is called, also where its name is not known.
pub fn name_of(member: &MemberReport) -> String {
    member.member.clone().unwrap_or_else(|| format!("slot {}", member.slot))
}

fn is_away(member: &MemberReport) -> bool {
    member.remote.as_ref().is_some_and(|remote| remote.state == RemoteState::Away)
}

/// Everything that holds.
pub fn of_array(state: &AlertsState, seen: &Seen<'_>, secs: u64) -> Vec<AlertCondition> {
    let mut holds = failures(state, seen);
    holds.extend(degraded(state, seen, &holds));
    holds.extend(spares(seen));
    holds.extend(members(seen));
    holds.extend(write_hole(state, seen));
    holds.extend(mismatch(state, seen));
    holds.extend(overdue(seen, secs));
    holds
}

/// Members that failed, or are away. That lasts until something in their slot is in sync.
fn failures(state: &AlertsState, seen: &Seen<'_>) -> Vec<AlertCondition> {
    let mut holds: Vec<AlertCondition> = Vec::new();
    let of_array = |alert: &&Alert| alert.key.array.as_ref().is_some_and(|array| array.id() == seen.id.id());
    let failed = |alert: &&Alert| matches!(alert.key.kind, AlertKind::Fail | AlertKind::FailSpare);
    for member in seen.array.members.iter().filter(|member| member.state != SeatState::InSync) {
        let name = name_of(member);
        if is_away(member) {
            let text = words::away(seen.array, &name, seen.cause(&name));
            holds.push(seen.of_member(AlertKind::RemoteAway, member, 0, text));
            continue;
        }
        // Those that are known of this slot, also if the member is gone by now.
        let known = state.alerts.iter().filter(of_array).filter(failed);
        for alert in known.filter(|alert| alert.slot == Some(member.slot)) {
            let of = alert.key.member.as_deref().unwrap_or_default();
            let text =
                AlertText { what: alert.text.what.clone(), ..words::failed(seen.array, of, member, None) };
            holds.push(seen.slot_condition(alert.key.kind, of, member.slot, text));
        }
        if member.state == SeatState::Faulty {
            seen.push_failure(&mut holds, &name, member);
        }
        let events = seen.events.iter().filter(|event| event.kind == FeedKind::Failed && !event.replacement);
        for event in events.filter(|event| event.slot == Some(member.slot)) {
            seen.push_failure(&mut holds, event.member.as_deref().unwrap_or(&name), member);
        }
    }
    for spare in seen.array.spares.iter().filter(|spare| spare.state == SpareState::Faulty) {
        let text = words::failed_spare(seen.array, &spare.member);
        holds.push(seen.condition(AlertKind::FailSpare, Some(&spare.member), 0, text));
    }
    holds
}

impl Seen<'_> {
    fn slot_condition(&self, kind: AlertKind, member: &str, slot: u16, text: AlertText) -> AlertCondition {
        AlertCondition { slot: Some(slot), ..self.condition(kind, Some(member), 0, text) }
    }

    /// A member of a slot failed, if that is not among them.
    fn push_failure(&self, holds: &mut Vec<AlertCondition>, name: &str, member: &MemberReport) {
        let is_it = |known: &AlertCondition| {
            known.slot == Some(member.slot) && known.key.member.as_deref() == Some(name)
        };
        if holds.iter().any(is_it) {
            return;
        }
        let kind = match self.memory.filling.contains(&member.slot) {
            true => AlertKind::FailSpare,
            false => AlertKind::Fail,
        };
        let text = words::failed(self.array, name, member, self.cause(name));
        holds.push(self.slot_condition(kind, name, member.slot, text));
    }
}

/// Failures that were made good before anything looked.
pub fn flashes(seen: &Seen<'_>) -> Vec<AlertCondition> {
    if seen.look.is_first {
        return Vec::new();
    }
    let failed = |event: &&&FeedEvent| {
        let slot = event.slot.filter(|_| !event.replacement);
        event.kind == FeedKind::Failed && slot.is_some_and(|slot| seen.is_in_sync(slot))
    };
    let flash = |event: &&FeedEvent| {
        let member = event.member.as_deref()?;
        let text = words::failed_and_whole(seen.array, member, &event.text);
        Some(seen.slot_condition(AlertKind::Fail, member, event.slot?, text))
    };
    seen.events.iter().filter(failed).filter_map(flash).collect()
}

/// An array that lacks more than was told of its members, or was found like that.
fn degraded(state: &AlertsState, seen: &Seen<'_>, failures: &[AlertCondition]) -> Option<AlertCondition> {
    let lacking = seen.array.degraded;
    let broken = seen.array.health == Health::Unusable;
    if lacking == 0 && !broken {
        return None;
    }
    let mut slots: Vec<_> = failures.iter().filter_map(|condition| condition.slot).collect();
    slots.sort_unstable();
    slots.dedup();
    let known = state.find(&seen.key(AlertKind::DegradedArray, None)).is_some();
    let was_found = seen.has_started || seen.is_new || seen.look.is_first;
    let is_news = broken || known || was_found || lacking > slots.len();
    let level = lacking as u64 + if broken { UNUSABLE } else { 0 };
    is_news.then(|| {
        seen.condition(AlertKind::DegradedArray, None, level, words::degraded(seen.array, seen.has_started))
    })
}

fn spares(seen: &Seen<'_>) -> Option<AlertCondition> {
    let uuid = seen.id.uuid.as_ref()?;
    let wanted = *seen.rules.spares.get(&uuid.to_ascii_lowercase())?;
    let there = seen.array.spares.iter().filter(|spare| spare.state == SpareState::Spare).count() as u64;
    let missing = wanted.saturating_sub(there);
    (missing > 0).then(|| {
        let text = words::spares_missing(seen.array, wanted, there);
        seen.condition(AlertKind::SparesMissing, None, missing, text)
    })
}

/// Members that are slow or silent, or have bad blocks.
fn members(seen: &Seen<'_>) -> Vec<AlertCondition> {
    let mut holds = Vec::new();
    for member in &seen.array.members {
        let name = name_of(member);
        if member.silent_seconds > 0 {
            // Worse than slow: that is told again.
            let text = words::silent(seen.array, &name, member.silent_seconds);
            holds.push(seen.of_member(AlertKind::MemberSlow, member, 1, text));
        } else if member.slow {
            holds.push(seen.of_member(AlertKind::MemberSlow, member, 0, words::slow(seen.array, &name)));
        }
        if member.bad_bytes > 0 {
            let before = seen.memory.bad_bytes.get(&name).copied().unwrap_or(0);
            let text = words::bad_blocks(seen.array, &name, member.bad_bytes, before);
            // Twice as many are worth telling again.
            let level = u64::from(member.bad_bytes.ilog2()) + 1;
            holds.push(seen.of_member(AlertKind::BadBlocksGrew, member, level, text));
        }
    }
    holds
}

/// Raised once such an array was dirty; whether it is in this moment changes with every pause.
fn write_hole(state: &AlertsState, seen: &Seen<'_>) -> Option<AlertCondition> {
    let array = seen.array;
    let parity = matches!(array.level.as_str(), "raid4" | "raid5" | "raid6");
    let logged = matches!(array.consistency.as_deref(), Some("ppl" | "journal"));
    let risk =
        parity && !logged && array.degraded > 0 && array.health != Health::Unusable && !array.read_only;
    let dirty = array.state.starts_with("active") && array.counters.writes > 0;
    let known = state.find(&seen.key(AlertKind::WriteHoleRisk, None)).is_some();
    (risk && (dirty || known))
        .then(|| seen.condition(AlertKind::WriteHoleRisk, None, 0, words::write_hole(array)))
}

fn mismatch(state: &AlertsState, seen: &Seen<'_>) -> Option<AlertCondition> {
    let run = seen.array.last_done()?;
    let left = run.left().total();
    if left == 0 {
        return None;
    }
    if seen.look.naming.contains(seen.id.id()) {
        let known = state.find(&seen.key(AlertKind::MismatchFound, None))?;
        return Some(AlertCondition {
            files: known.files.clone(),
            ..seen.condition(AlertKind::MismatchFound, None, known.level, known.text.clone())
        });
    }
    let found = seen.look.files.get(seen.id.id()).cloned().unwrap_or_default();
    let text = words::mismatch(seen.array, run, &found);
    Some(AlertCondition {
        files: found.names(),
        ..seen.condition(AlertKind::MismatchFound, None, left, text)
    })
}

fn overdue(seen: &Seen<'_>, secs: u64) -> Option<AlertCondition> {
    let array = seen.array;
    let limit = seen.rules.scrub_overdue_secs?;
    if !array.is_redundant() || array.uuid.is_none() || array.read_only || array.health == Health::Unusable {
        return None;
    }
    let last = secs_since(array.last_done().and_then(ScrubReport::ended_secs), secs);
    let since = last.unwrap_or(secs.saturating_sub(seen.memory.first_seen_secs));
    (since >= limit).then(|| {
        let text = words::overdue(array, since, last.is_some());
        seen.condition(AlertKind::ScrubOverdue, None, 0, text)
    })
}

/// A file system that is nearly full.
pub fn volume_full(server: &str, rules: &AlertRules, full: &Fullness) -> Option<AlertCondition> {
    let limit = rules.volume_full_percent?;
    let key = AlertKey {
        kind: AlertKind::VolumeFull,
        server: server.to_owned(),
        array: None,
        member: Some(full.volume.clone()),
    };
    let severity =
        if full.percent >= 98 { AlertSeverity::Critical } else { AlertKind::VolumeFull.severity() };
    // From there on it is told again.
    let level = u64::from(full.percent >= 98);
    (full.percent >= limit).then(|| AlertCondition {
        key,
        slot: None,
        severity,
        level,
        text: words::full(full),
        files: Vec::new(),
    })
}

/// A drive that says that it fails.
pub fn smart_failing(server: &ServerReport, drive: &DriveFault) -> AlertCondition {
    let has = |array: &&ArrayReport| {
        let mut members = array.members.iter().chain(&array.replacements);
        members.any(|member| member.member.as_ref() == Some(&drive.member))
    };
    let array = server.arrays.iter().find(has);
    let key = AlertKey {
        kind: AlertKind::SmartFailing,
        server: server.server.clone(),
        array: None,
        member: Some(drive.member.clone()),
    };
    let (severity, text) = (AlertKind::SmartFailing.severity(), words::smart(drive, array));
    AlertCondition { key, slot: None, severity, level: 0, text, files: Vec::new() }
}
