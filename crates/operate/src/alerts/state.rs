//! What is kept from one run to the next: alerts, what was told of them, and what was seen.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::kind::{AlertKind, AlertSeverity};

/// Alerts that are over and still listed.
const OVER_MAX: usize = 200;

/// Alerts that are not over. Beyond it, those that came first make way: an array of many members
/// on a bus that is gone has some hundred.
const ALERTS_MAX: usize = 2000;

/// Notifications that a channel is owed. Beyond it, the oldest is given up.
const OWED_MAX: usize = 1000;

/// The version of what is kept. A file of a higher one is left alone.
pub const SCHEMA_VERSION: u32 = 1;

/// What an alert says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertText {
    /// What happened.
    pub what: String,
    /// What it means, and which redundancy is left.
    pub why: String,
    /// What to do: a command where there is one.
    pub next: String,
}

/// The array that an alert is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AlertArray {
    /// Its name.
    pub name: String,
    /// Its UUID; absent without metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
}

impl AlertArray {
    /// What tells it from others.
    #[must_use]
    pub fn id(&self) -> &str {
        self.uuid.as_deref().unwrap_or(&self.name)
    }
}

/// What tells an alert from others: there is never more than one of a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AlertKey {
    /// What it is about.
    pub kind: AlertKind,
    /// The server, by its name.
    pub server: String,
    /// The array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<AlertArray>,
    /// The member, or the volume or drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}

impl AlertKey {
    /// Whether both are the same alert. An array is known by its UUID, whichever server has it.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let same_place = match (&self.array, &other.array) {
            (Some(one), Some(other)) => one.id() == other.id(),
            (None, None) => self.server == other.server,
            _ => false,
        };
        self.kind == other.kind && self.member == other.member && same_place
    }
}

/// What became of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertState {
    /// It is told again and again.
    Raised,
    /// An operator has seen it: it is not told again, unless it gets worse.
    Acknowledged,
    /// It is over.
    Over,
}

impl AlertState {
    /// As JSON has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::Acknowledged => "acknowledged",
            Self::Over => "over",
        }
    }
}

/// An alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// Its number.
    pub id: u64,
    /// What tells it from others.
    #[serde(flatten)]
    pub key: AlertKey,
    /// How urgent it is.
    pub severity: AlertSeverity,
    /// What became of it.
    pub state: AlertState,
    /// The slot of the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u16>,
    /// How bad it is, in a unit of its kind: what gets worse is told again.
    #[serde(default)]
    pub level: u64,
    /// What it says.
    #[serde(flatten)]
    pub text: AlertText,
    /// Files that it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// When it was raised, in seconds since 1970.
    pub raised_secs: u64,
    /// When it was told last.
    pub told_secs: u64,
    /// How often it was told.
    pub told: u64,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_secs: Option<u64>,
    /// What a newer version keeps.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// An alert, in what is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertBrief {
    /// Its number.
    pub id: u64,
    /// What it is about.
    pub kind: AlertKind,
    /// How urgent it is.
    pub severity: AlertSeverity,
    /// The member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// When it was raised.
    pub raised_secs: u64,
    /// What it said.
    pub what: String,
}

/// What is sent through the channels: that an alert was raised, goes on or is over, or that
/// something happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notification {
    /// Its number, for receivers that want to see each once.
    pub id: u64,
    /// Tells that number from those of others; empty until it is kept.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
    /// What it is about.
    pub kind: AlertKind,
    /// mdadm's name of it: `Fail`, `Rebuild40`.
    pub event: String,
    /// How urgent it is.
    pub severity: AlertSeverity,
    /// When, in seconds since 1970.
    pub secs: u64,
    /// The server.
    pub server: String,
    /// The array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<AlertArray>,
    /// The member, volume or drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// The slot of the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u16>,
    /// What it says.
    #[serde(flatten)]
    pub text: AlertText,
    /// Files that it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The alerts that it is of.
    #[serde(default)]
    pub alerts: Vec<AlertBrief>,
    /// These are over.
    #[serde(default)]
    pub over: bool,
    /// It was told before.
    #[serde(default)]
    pub repeated: bool,
    /// What a newer version keeps.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Notification {
    /// What decides which channels get it: that an alert is over goes where the alert went.
    #[must_use]
    pub fn urgency(&self) -> AlertSeverity {
        let of_alerts = self.alerts.iter().map(|alert| alert.severity).max();
        if self.over { of_alerts.unwrap_or(self.severity) } else { self.severity }
    }

    /// The kinds that it is about: that of what is over too.
    pub fn kinds(&self) -> impl Iterator<Item = AlertKind> + '_ {
        let over = self.alerts.iter().filter(|_| self.over).map(|alert| alert.kind);
        std::iter::once(self.kind).chain(over)
    }
}

/// A notification that a channel has not taken yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owed {
    /// Which.
    pub notification: u64,
    /// How often it was tried.
    #[serde(default)]
    pub attempts: u64,
    /// How often it was refused.
    #[serde(default)]
    pub refused: u64,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A message that a channel is not sent any more, although it did not take it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppedMessage {
    /// The channel.
    pub channel: String,
    /// The notification's number.
    pub id: u64,
    /// mdadm's name of it.
    pub event: String,
    /// What happened.
    pub what: String,
    /// Why it is not sent.
    pub why: String,
}

/// What is known of a channel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelMemory {
    /// What it is owed, the oldest first.
    #[serde(default)]
    pub owed: Vec<Owed>,
    /// Notifications that it took.
    #[serde(default)]
    pub delivered: u64,
    /// Attempts that failed.
    #[serde(default)]
    pub failed: u64,
    /// Notifications that were given up.
    #[serde(default)]
    pub given_up: u64,
    /// When it took one last, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_delivered_secs: Option<u64>,
    /// Why the last attempt failed; absent once one succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// What a newer version keeps.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What was seen of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerMemory {
    /// Its name.
    pub name: String,
    /// The run.
    pub epoch: String,
    /// The last event.
    pub last: u64,
    /// Its arrays.
    #[serde(default)]
    pub arrays: Vec<AlertArray>,
    /// It ended without a good-bye, or hangs.
    #[serde(default)]
    pub died: bool,
    /// It ended as it was told to.
    #[serde(default)]
    pub stopped: bool,
    /// The start of the machine in which something was seen of it last; empty if that is not known.
    #[serde(default)]
    pub boot: String,
    /// What a newer version keeps.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What was seen of an array.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayMemory {
    /// When it was seen first, in seconds since 1970.
    pub first_seen_secs: u64,
    /// Slots whose member was being filled.
    #[serde(default)]
    pub filling: Vec<u16>,
    /// Its spares.
    #[serde(default)]
    pub spares: Vec<String>,
    /// Background work, and how many fifths of it were told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<(String, u64)>,
    /// What is bad of each member, in bytes.
    #[serde(default)]
    pub bad_bytes: BTreeMap<String, u64>,
    /// The start of the server that had it last; empty if that is not known.
    #[serde(default)]
    pub epoch: String,
    /// What a newer version keeps.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertsState {
    /// Of the document.
    pub schema_version: u32,
    /// Tells the numbers that are given from those of others: of another machine, or given by a
    /// process that could not keep them.
    #[serde(default)]
    pub origin: String,
    /// The next number of an alert or notification.
    pub next_id: u64,
    /// Alerts that are not over, in their order.
    #[serde(default)]
    pub alerts: Vec<Alert>,
    /// Alerts that are over, the last ones, in their order.
    #[serde(default)]
    pub over: Vec<Alert>,
    /// Notifications that some channel is owed.
    #[serde(default)]
    pub notifications: Vec<Notification>,
    /// By name.
    #[serde(default)]
    pub channels: BTreeMap<String, ChannelMemory>,
    /// By the name of their socket.
    #[serde(default)]
    pub servers: BTreeMap<String, ServerMemory>,
    /// By UUID, or name.
    #[serde(default)]
    pub arrays: BTreeMap<String, ArrayMemory>,
    /// Messages that changes dropped, until that is said.
    #[serde(skip)]
    pub dropped: Vec<DroppedMessage>,
    /// Alerts that were forgotten because there were too many, until that is said.
    #[serde(skip)]
    pub forgotten: Vec<Alert>,
    /// What a newer version keeps.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Default for AlertsState {
    fn default() -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            origin: String::new(),
            next_id: 1,
            alerts: Vec::new(),
            over: Vec::new(),
            notifications: Vec::new(),
            channels: BTreeMap::new(),
            servers: BTreeMap::new(),
            arrays: BTreeMap::new(),
            dropped: Vec::new(),
            forgotten: Vec::new(),
            extra: Map::new(),
        }
    }
}

impl AlertsState {
    /// A number that was not used.
    pub fn number(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// Notifications from number `first` on, and those of before origins were kept with them, are
    /// of this origin.
    pub fn stamp_origin(&mut self, first: u64) {
        let is_of_it = |known: &&mut Notification| known.id >= first || known.origin.is_empty();
        for notification in self.notifications.iter_mut().filter(is_of_it) {
            notification.origin.clone_from(&self.origin);
        }
    }

    /// The alert of this key that is not over.
    #[must_use]
    pub fn find(&self, key: &AlertKey) -> Option<&Alert> {
        self.alerts.iter().find(|alert| alert.key.is(key))
    }

    /// Adds an alert; if there are too many, the first one is forgotten.
    pub fn add(&mut self, alert: Alert) {
        self.alerts.push(alert);
        let too_many = self.alerts.len().saturating_sub(ALERTS_MAX);
        self.forgotten.extend(self.alerts.drain(..too_many));
    }

    /// Takes an alert out that is over.
    pub fn end(&mut self, id: u64, secs: u64) -> Option<Alert> {
        let at = self.alerts.iter().position(|alert| alert.id == id)?;
        let mut alert = self.alerts.remove(at);
        (alert.state, alert.over_secs) = (AlertState::Over, Some(secs));
        self.over.push(alert.clone());
        let too_many = self.over.len().saturating_sub(OVER_MAX);
        self.over.drain(..too_many);
        Some(alert)
    }

    /// An operator has seen these alerts. How many there are that were not acknowledged before.
    pub fn acknowledge(&mut self, which: impl Fn(&Alert) -> bool) -> usize {
        let mut count = 0;
        for alert in self.alerts.iter_mut().filter(|alert| alert.state == AlertState::Raised && which(alert))
        {
            alert.state = AlertState::Acknowledged;
            count += 1;
        }
        count
    }

    /// Takes over what others changed in the file, from what it was to what it is: which alerts an
    /// operator has seen, and the numbers that were used.
    pub fn take_over(&mut self, was: &Self, is: &Self) {
        self.next_id = self.next_id.max(is.next_id);
        let seen = |state: &Self, id: u64| {
            let alert = state.alerts.iter().find(|alert| alert.id == id);
            alert.is_some_and(|alert| alert.state == AlertState::Acknowledged)
        };
        self.acknowledge(|alert| seen(is, alert.id) && !seen(was, alert.id));
    }

    /// The notification is owed to these channels from now on; to none: it is forgotten.
    pub fn owe<'a>(&mut self, notification: Notification, channels: impl Iterator<Item = &'a str>) {
        let mut wanted = false;
        let mut too_many = Vec::new();
        for name in channels {
            wanted = true;
            let channel = self.channels.entry(name.to_owned()).or_default();
            channel.owed.push(Owed { notification: notification.id, attempts: 0, refused: 0, error: None });
            if channel.owed.len() > OWED_MAX {
                too_many.push((name.to_owned(), channel.owed.remove(0).notification));
            }
        }
        if wanted {
            self.notifications.push(notification);
        }
        if !too_many.is_empty() {
            self.drop_messages(too_many, &format!("more than {OWED_MAX} messages wait for this channel"));
        }
    }

    /// These are not owed any more.
    fn drop_messages(&mut self, messages: Vec<(String, u64)>, why: &str) {
        for (channel, id) in messages {
            let known = self.notifications.iter().find(|known| known.id == id);
            let (event, what) = known.map(|n| (n.event.clone(), n.text.what.clone())).unwrap_or_default();
            self.channels.entry(channel.clone()).or_default().given_up += 1;
            self.dropped.push(DroppedMessage { channel, id, event, what, why: why.to_owned() });
        }
        self.forget_delivered();
    }

    /// What a channel did with a notification.
    pub fn tried(&mut self, channel: &str, notification: u64, secs: u64, outcome: &Tried) {
        let Some(channel) = self.channels.get_mut(channel) else { return };
        let Some(at) = channel.owed.iter().position(|owed| owed.notification == notification) else { return };
        match outcome {
            Tried::Arrived => {
                channel.owed.remove(at);
                channel.delivered += 1;
                (channel.last_delivered_secs, channel.last_error) = (Some(secs), None);
            }
            Tried::Failed(error) | Tried::Refused(error) => {
                channel.failed += 1;
                channel.last_error = Some(error.clone());
                channel.owed[at].attempts += 1;
                channel.owed[at].refused += u64::from(matches!(outcome, Tried::Refused(_)));
                channel.owed[at].error = Some(error.clone());
            }
            Tried::GivenUp(error) => {
                channel.owed.remove(at);
                channel.failed += 1;
                channel.given_up += 1;
                channel.last_error = Some(error.clone());
            }
        }
        self.forget_delivered();
    }

    /// Channels that are not configured any more are owed nothing.
    pub fn keep_channels(&mut self, names: &[&str]) {
        let gone = self.channels.iter_mut().filter(|(name, _)| !names.contains(&name.as_str()));
        let dropped = gone
            .flat_map(|(name, channel)| channel.owed.drain(..).map(|owed| (name.clone(), owed.notification)))
            .collect();
        self.drop_messages(dropped, "the channel is not configured any more");
        for name in names {
            self.channels.entry((*name).to_owned()).or_default();
        }
        self.forget_delivered();
    }

    fn forget_delivered(&mut self) {
        let owed =
            |id: u64| self.channels.values().any(|channel| channel.owed.iter().any(|o| o.notification == id));
        let kept: Vec<bool> = self.notifications.iter().map(|notification| owed(notification.id)).collect();
        let mut kept = kept.into_iter();
        self.notifications.retain(|_| kept.next().unwrap_or(true));
    }
}

/// What became of an attempt to deliver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tried {
    /// The receiver has it.
    Arrived,
    /// It has to be tried again.
    Failed(String),
    /// It has to be tried again, and others need not wait for it.
    Refused(String),
    /// It is not tried again.
    GivenUp(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::rules::test_message;

    /// Nothing that was to be sent goes away without a word.
    #[test]
    fn what_is_dropped_is_named_with_its_reason() {
        let mut state = AlertsState::default();
        for _ in 0..=OWED_MAX {
            let message = test_message(&mut state, "data", 0);
            state.owe(message, ["mail", "hook"].into_iter());
            state.tried("hook", state.next_id - 1, 0, &Tried::Arrived);
        }
        let dropped = std::mem::take(&mut state.dropped);
        assert_eq!(dropped.len(), 1);
        assert_eq!((dropped[0].channel.as_str(), dropped[0].id), ("mail", 1));
        assert_eq!((dropped[0].event.as_str(), dropped[0].what.is_empty()), ("TestMessage", false));
        assert!(dropped[0].why.contains("more than 1000 messages"), "{}", dropped[0].why);
        assert_eq!((state.notifications.len(), state.channels["mail"].given_up), (OWED_MAX, 1));
        // A channel that is taken out of the settings.
        state.keep_channels(&["hook"]);
        assert_eq!((state.dropped.len(), state.notifications.len()), (OWED_MAX, 0));
        assert!(state.dropped[0].why.contains("not configured"), "{}", state.dropped[0].why);
        let alert = crate::alerts::rules::tests::alert(&mut state, "a");
        for _ in 0..=ALERTS_MAX {
            state.add(alert.clone());
        }
        assert_eq!((state.alerts.len(), state.forgotten.len()), (ALERTS_MAX, 1));
    }
}
