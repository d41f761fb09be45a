//! What a notification says, in the forms that channels need.

use serde_json::{Value, json};
use wattle_server::time::rfc3339;

use crate::alerts::kind::{AlertKind, AlertSeverity};
use crate::alerts::state::{AlertBrief, Notification};

/// Chat servers take some two thousand characters.
const TEXT_CHARS_MAX: usize = 1500;

/// Files that a message names.
const FILES_NAMED: usize = 20;

/// An Alertmanager takes an alert for over when it was not told again for so long after the time
/// when that was due.
const MARGIN_SECS: u64 = 3600;

/// What is said of something that happened is forgotten after this time.
const MOMENT_SECS: u64 = 300;

/// An alert that is never told again.
const FOREVER_SECS: u64 = 10 * 366 * 24 * 3600;

/// What every message says of where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageSender {
    /// This machine.
    pub host: String,
    /// Tells the numbers of notifications that are not kept from those of others.
    pub origin: String,
    /// An alert is told again after this time.
    pub repeat_secs: Option<u64>,
}

impl MessageSender {
    /// What tells this notification from all others.
    pub fn id_of(&self, notification: &Notification) -> String {
        let origin = match notification.origin.as_str() {
            "" => &self.origin,
            origin => origin,
        };
        format!("{origin}-{}", notification.id)
    }
}

fn time(secs: u64) -> String {
    rfc3339(secs).unwrap_or_default()
}

/// The array as mdadm's programs have it. There is no such file.
pub fn device(notification: &Notification) -> String {
    match &notification.array {
        Some(array) => format!("/dev/md/{}", array.name),
        None => notification.server.clone(),
    }
}

/// `Fail: data on nas`.
pub fn title(notification: &Notification, sender: &MessageSender) -> String {
    let place = notification.array.as_ref().map_or(&notification.server, |array| &array.name);
    let again = if notification.repeated { " (still)" } else { "" };
    format!("{}{again}: {place} on {}", notification.event, sender.host)
}

/// For people, some lines of it.
pub fn text(notification: &Notification, sender: &MessageSender) -> String {
    let mut text = format!("{}\n\n", notification.text.what);
    text.push_str(&format!("What it means: {}\n", notification.text.why));
    text.push_str(&format!("What to do:    {}\n\n", notification.text.next));
    let mut line = |name: &str, value: &str| text.push_str(&format!("{:<15}{value}\n", format!("{name}:")));
    if let Some(array) = &notification.array {
        let uuid = array.uuid.as_ref().map(|uuid| format!(" ({uuid})")).unwrap_or_default();
        line("Array", &format!("{}{uuid}", array.name));
    }
    if let Some(member) = &notification.member {
        let slot = notification.slot.map(|slot| format!(", slot {slot}")).unwrap_or_default();
        line("Member", &format!("{member}{slot}"));
    }
    line("Time", &time(notification.secs));
    for alert in &notification.alerts {
        let about = if notification.over { "was raised" } else { "raised" };
        line("Alert", &format!("{}, {about} {}", alert.id, time(alert.raised_secs)));
    }
    for file in notification.files.iter().take(FILES_NAMED) {
        line("File", file);
    }
    if let more @ 1.. = notification.files.len().saturating_sub(FILES_NAMED) {
        line("File", &format!("and {more} more"));
    }
    line("Machine", &format!("{} (server {})", sender.host, notification.server));
    if let (false, [alert, ..]) = (notification.over, &notification.alerts[..]) {
        let repeated = match sender.repeat_secs {
            Some(secs) => format!("It is told again after {}", wattle_server::time::duration(secs)),
            None => "It is not told again".to_owned(),
        };
        text.push_str(&format!(
            "\n{repeated}, until it is over or acknowledged:\nwattle alerts ack {}\n",
            alert.id
        ));
    }
    text
}

/// What a name of a template stands for.
pub fn value(name: &str, notification: &Notification, sender: &MessageSender) -> String {
    let array = notification.array.as_ref();
    match name {
        "event" => notification.event.clone(),
        "severity" => notification.severity.word().to_owned(),
        "title" => title(notification, sender),
        "text" => text(notification, sender).trim_end().chars().take(TEXT_CHARS_MAX).collect(),
        "what" => notification.text.what.clone(),
        "why" => notification.text.why.clone(),
        "next" => notification.text.next.clone(),
        "array" => array.map(|array| array.name.clone()).unwrap_or_default(),
        "array_uuid" => array.and_then(|array| array.uuid.clone()).unwrap_or_default(),
        "device" => device(notification),
        "member" => notification.member.clone().unwrap_or_default(),
        "slot" => notification.slot.map(|slot| slot.to_string()).unwrap_or_default(),
        "server" => notification.server.clone(),
        "host" => sender.host.clone(),
        "time" => time(notification.secs),
        "id" => sender.id_of(notification),
        "files" => notification.files.join("\n"),
        "over" => notification.over.to_string(),
        "priority" => match notification.severity {
            AlertSeverity::Critical => "5",
            AlertSeverity::Warning => "4",
            AlertSeverity::Info => "3",
        }
        .to_owned(),
        "alert_json" => json(notification, sender).to_string(),
        "alertmanager_json" => alertmanager(notification, sender).to_string(),
        _ => String::new(),
    }
}

/// As [`json`], in at most so many bytes: texts are cut, and of alerts and files the last ones are
/// left out.
pub fn json_within(notification: &Notification, sender: &MessageSender, bytes_max: usize) -> String {
    /// JSON takes at most six bytes for one.
    const TEXT_BYTES_MAX: usize = 2000;
    let whole = json(notification, sender).to_string();
    if whole.len() <= bytes_max {
        return whole;
    }
    let mut cut = notification.clone();
    let texts = [&mut cut.text.what, &mut cut.text.why, &mut cut.text.next];
    texts.into_iter().for_each(|text| *text = within(text, TEXT_BYTES_MAX));
    (cut.alerts, cut.files) = (Vec::new(), Vec::new());
    let alert = |alert: &AlertBrief| brief(alert).to_string().len();
    let file = |file: &String| Value::from(file.as_str()).to_string().len();
    let mut left = bytes_max.saturating_sub(json(&cut, sender).to_string().len() + 100);
    let mut fitting = |sizes: &mut dyn Iterator<Item = usize>| {
        sizes.take_while(|size| left.checked_sub(size + 1).map(|rest| left = rest).is_some()).count()
    };
    let alerts = fitting(&mut notification.alerts.iter().map(alert));
    let files = fitting(&mut notification.files.iter().map(file));
    cut.alerts = notification.alerts[..alerts].to_vec();
    cut.files = notification.files[..files].to_vec();
    let mut value = json(&cut, sender);
    value["alerts_left_out"] = Value::from(notification.alerts.len() - alerts);
    value["files_left_out"] = Value::from(notification.files.len() - files);
    value.to_string()
}

/// At most so many bytes of a text, and a mark if that is not all.
pub fn within(text: &str, bytes_max: usize) -> String {
    match text.len() <= bytes_max {
        true => text.to_owned(),
        false => format!("{}…", &text[..text.floor_char_boundary(bytes_max)]),
    }
}

/// Whole lines in at most so many bytes, and how many more there are.
pub fn lines_within(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let (mut kept, mut count) = (String::new(), 0);
    let all = text.lines().count();
    for line in text.lines() {
        if kept.len() + line.len() + 40 > bytes_max {
            break;
        }
        kept.push_str(line);
        kept.push('\n');
        count += 1;
    }
    format!("{kept}and {} more", all - count)
}

fn brief(alert: &AlertBrief) -> Value {
    json!({
        "id": alert.id, "kind": alert.kind, "severity": alert.severity, "member": alert.member,
        "raised": time(alert.raised_secs), "what": alert.what,
    })
}

/// All of it, for programs.
pub fn json(notification: &Notification, sender: &MessageSender) -> Value {
    json!({
        "schema_version": wattle_server::protocol::SCHEMA_VERSION,
        "id": sender.id_of(notification),
        "event": notification.event,
        "kind": notification.kind,
        "severity": notification.severity,
        "time": time(notification.secs),
        "host": sender.host,
        "server": notification.server,
        "array": notification.array.as_ref().map(|array| &array.name),
        "array_uuid": notification.array.as_ref().and_then(|array| array.uuid.as_ref()),
        "device": device(notification),
        "member": notification.member,
        "slot": notification.slot,
        "what": notification.text.what,
        "why": notification.text.why,
        "next": notification.text.next,
        "files": notification.files,
        "over": notification.over,
        "repeated": notification.repeated,
        "alerts": notification.alerts.iter().map(brief).collect::<Vec<_>>(),
    })
}

/// The alerts of it, as an Alertmanager takes them: what is over ends now, and what is not ends by
/// itself some time after it should have been told again.
fn alertmanager(notification: &Notification, sender: &MessageSender) -> Value {
    let entry = |kind: AlertKind, member: Option<&String>, what: &str, begun: u64, ends: u64| {
        let array = notification.array.as_ref().map(|array| array.name.as_str());
        let labels = [
            ("alertname", Some(format!("Wattle{}", kind.name()))),
            // That of the kind: labels have to be the same when it is over.
            ("severity", Some(kind.severity().word().to_owned())),
            ("instance", Some(sender.host.clone())),
            ("server", Some(notification.server.clone())),
            ("array", array.map(str::to_owned)),
            ("member", member.cloned()),
        ];
        let labels =
            labels.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Value::from(value?))));
        json!({
            "labels": labels.collect::<serde_json::Map<_, _>>(),
            "annotations": {
                "summary": what, "description": notification.text.why, "next": notification.text.next,
                "id": sender.id_of(notification),
            },
            "startsAt": time(begun),
            "endsAt": time(ends),
        })
    };
    if notification.alerts.is_empty() {
        let (member, what) = (notification.member.as_ref(), notification.text.what.as_str());
        let secs = notification.secs;
        return json!([entry(notification.kind, member, what, secs, secs + MOMENT_SECS)]);
    }
    let lasts = sender.repeat_secs.map_or(FOREVER_SECS, |repeat| repeat + MARGIN_SECS);
    let ends = if notification.over { notification.secs } else { notification.secs + lasts };
    let of =
        |alert: &AlertBrief| entry(alert.kind, alert.member.as_ref(), &alert.what, alert.raised_secs, ends);
    Value::from(notification.alerts.iter().map(of).collect::<Vec<_>>())
}
