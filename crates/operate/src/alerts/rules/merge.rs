//! What holds now against what is known: alerts are raised, told again, and over.

use serde_json::Map;

use super::{AlertRules, words};
use crate::alerts::kind::{AlertKind, AlertSeverity};
use crate::alerts::state::{
    Alert, AlertArray, AlertBrief, AlertKey, AlertState, AlertText, AlertsState, Notification,
};

/// A clock that was set back by more than this is noticed.
const BACK_SECS: u64 = 60;

/// Something that holds now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertCondition {
    /// What tells it from others.
    pub key: AlertKey,
    /// The slot of the member.
    pub slot: Option<u16>,
    /// How urgent it is.
    pub severity: AlertSeverity,
    /// What gets worse is told again.
    pub level: u64,
    /// In words.
    pub text: AlertText,
    /// Files that it is about.
    pub files: Vec<String>,
}

/// The alerts that a look could have found: those of them that it did not find are over.
pub enum Scope<'a> {
    /// Of an array, all but that its server is gone.
    Array {
        /// Its id.
        id: &'a str,
    },
    /// Of a kind, of a server.
    Server {
        /// Its name.
        server: &'a str,
        /// The kind.
        kind: AlertKind,
        /// Whether it is known how the member, drive or volume of an alert is now.
        is_known: &'a dyn Fn(&str) -> bool,
    },
    /// That a server is gone.
    Disappeared {
        /// Its name.
        server: &'a str,
        /// Its arrays.
        arrays: &'a [String],
    },
}

impl Scope<'_> {
    fn has(&self, alert: &Alert) -> bool {
        let key = &alert.key;
        let gone = key.kind == AlertKind::DeviceDisappeared;
        match (self, &key.array) {
            (Self::Array { id }, Some(array)) => !gone && array.id() == *id,
            (Self::Server { server, kind, is_known }, None) => {
                key.kind == *kind && key.server == *server && key.member.as_deref().is_none_or(is_known)
            }
            (Self::Disappeared { server, .. }, None) => gone && key.server == *server,
            (Self::Disappeared { arrays, .. }, Some(array)) => {
                gone && arrays.iter().any(|id| id == array.id())
            }
            _ => false,
        }
    }
}

/// Raises, tells again and ends alerts. `has_started`: what was found at the start of a server is
/// told whether or not it was before.
pub fn merge(
    state: &mut AlertsState,
    scope: &Scope<'_>,
    conditions: Vec<AlertCondition>,
    has_started: bool,
    secs: u64,
) -> Vec<Notification> {
    let mut told = Vec::new();
    let held: Vec<_> = conditions.iter().map(|condition| condition.key.clone()).collect();
    for condition in conditions {
        told.extend(hold(state, condition, has_started, secs));
    }
    let ended: Vec<u64> = state
        .alerts
        .iter()
        .filter(|alert| scope.has(alert) && !held.iter().any(|key| key.is(&alert.key)))
        .map(|alert| alert.id)
        .collect();
    let ended: Vec<_> = ended.into_iter().filter_map(|id| state.end(id, secs)).collect();
    let (back, over): (Vec<_>, Vec<_>) =
        ended.into_iter().partition(|alert| alert.key.kind == AlertKind::RemoteAway);
    for alert in back {
        let text = words::remote_back(&alert);
        told.push(over_notification(state, AlertKind::RemoteBack, &[alert], text, secs));
    }
    if !over.is_empty() {
        let text = words::recovered(&over);
        told.push(over_notification(state, AlertKind::Recovered, &over, text, secs));
    }
    told
}

fn hold(
    state: &mut AlertsState,
    condition: AlertCondition,
    has_started: bool,
    secs: u64,
) -> Option<Notification> {
    let AlertCondition { key, slot, severity, level, text, files } = condition;
    let at = state.alerts.iter().position(|alert| alert.key.is(&key));
    let Some(at) = at else {
        let alert = Alert {
            id: state.number(),
            key,
            severity,
            state: AlertState::Raised,
            slot,
            level,
            text,
            files,
            raised_secs: secs,
            told_secs: secs,
            told: 1,
            over_secs: None,
            extra: Map::new(),
        };
        state.add(alert.clone());
        return Some(of_alert(state, &alert, false, secs));
    };
    let alert = &mut state.alerts[at];
    let again = level > alert.level || has_started && key.kind == AlertKind::DegradedArray;
    (alert.level, alert.text, alert.key, alert.severity) = (level, text, key, severity);
    alert.slot = slot.or(alert.slot);
    alert.files = files;
    if !again {
        return None;
    }
    alert.state = AlertState::Raised;
    (alert.told_secs, alert.told) = (secs, alert.told + 1);
    let alert = alert.clone();
    Some(of_alert(state, &alert, true, secs))
}

fn of_alert(state: &mut AlertsState, alert: &Alert, repeated: bool, secs: u64) -> Notification {
    let id = state.number();
    of_alert_numbered(alert, id, repeated, secs)
}

fn brief(alert: &Alert) -> AlertBrief {
    AlertBrief {
        id: alert.id,
        kind: alert.key.kind,
        severity: alert.severity,
        member: alert.key.member.clone(),
        raised_secs: alert.raised_secs,
        what: alert.text.what.clone(),
    }
}

fn of_alert_numbered(alert: &Alert, id: u64, repeated: bool, secs: u64) -> Notification {
    Notification {
        id,
        origin: String::new(),
        kind: alert.key.kind,
        event: alert.key.kind.name().to_owned(),
        severity: alert.severity,
        secs,
        server: alert.key.server.clone(),
        array: alert.key.array.clone(),
        member: alert.key.member.clone(),
        slot: alert.slot,
        text: alert.text.clone(),
        files: alert.files.clone(),
        alerts: vec![brief(alert)],
        over: false,
        repeated,
        extra: Map::new(),
    }
}

fn over_notification(
    state: &mut AlertsState,
    kind: AlertKind,
    ended: &[Alert],
    text: AlertText,
    secs: u64,
) -> Notification {
    let first = &ended[0].key;
    let one = ended.len() == 1;
    Notification {
        id: state.number(),
        origin: String::new(),
        kind,
        event: kind.name().to_owned(),
        severity: kind.severity(),
        secs,
        server: first.server.clone(),
        array: first.array.clone(),
        member: first.member.clone().filter(|_| one),
        slot: ended[0].slot.filter(|_| one),
        text,
        files: Vec::new(),
        alerts: ended.iter().map(brief).collect(),
        over: true,
        repeated: false,
        extra: Map::new(),
    }
}

/// Something that happened, and does not last.
pub fn once(
    state: &mut AlertsState,
    kind: AlertKind,
    server: &str,
    array: Option<&AlertArray>,
    member: Option<&str>,
    text: AlertText,
    secs: u64,
) -> Notification {
    Notification {
        id: state.number(),
        origin: String::new(),
        kind,
        event: kind.name().to_owned(),
        severity: kind.severity(),
        secs,
        server: server.to_owned(),
        array: array.cloned(),
        member: member.map(str::to_owned),
        slot: None,
        text,
        files: Vec::new(),
        alerts: Vec::new(),
        over: false,
        repeated: false,
        extra: Map::new(),
    }
}

/// A test of the channels.
pub fn test_message(state: &mut AlertsState, server: &str, secs: u64) -> Notification {
    let array = AlertArray { name: server.to_owned(), uuid: None };
    once(state, AlertKind::TestMessage, server, Some(&array), None, words::test(), secs)
}

/// What has to be told again: alerts that were raised, are neither over nor acknowledged, and were
/// told too long ago. Those of arrays that were stopped wait until these are served again.
pub fn repeat(state: &mut AlertsState, rules: &AlertRules, secs: u64) -> Vec<Notification> {
    let served: Vec<String> = state
        .servers
        .values()
        .filter(|server| !server.died)
        .flat_map(|server| server.arrays.iter().map(|array| array.id().to_owned()))
        .collect();
    let there = state.servers.values().filter(|server| !server.died && !server.stopped);
    let servers: Vec<String> = there.map(|server| server.name.clone()).collect();
    let mut due = Vec::new();
    for alert in state.alerts.iter_mut().filter(|alert| alert.state == AlertState::Raised) {
        // The clock was set back: what was told in its future was told just now.
        if alert.told_secs > secs.saturating_add(BACK_SECS) {
            alert.told_secs = secs;
        }
        let is_there = match &alert.key.array {
            _ if alert.key.kind == AlertKind::DeviceDisappeared => true,
            Some(array) => served.iter().any(|id| id == array.id()),
            // Of drives and file systems, which only a server knows.
            None => servers.contains(&alert.key.server),
        };
        let again = rules.repeat_secs.is_some_and(|repeat| secs.saturating_sub(alert.told_secs) >= repeat);
        if again && is_there {
            (alert.told_secs, alert.told) = (secs, alert.told + 1);
            due.push(alert.clone());
        }
    }
    due.iter().map(|alert| of_alert(state, alert, true, secs)).collect()
}
