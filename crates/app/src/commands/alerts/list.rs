//! `wattle alerts list`.

use serde::Serialize;
use wattle_control::Problem;
use wattle_operate::alerts::journal::Journal;
use wattle_operate::alerts::state::{Alert, AlertState, AlertsState, ChannelMemory};
use wattle_server::protocol::SCHEMA_VERSION;
use wattle_server::time::rfc3339;

use crate::cli::AlertListArgs;
use crate::output;
use crate::output::text::printable;

#[derive(Serialize)]
struct ListReport {
    schema_version: u32,
    /// A process watches.
    watched: bool,
    alerts: Vec<AlertReport>,
    channels: Vec<ChannelReport>,
}

#[derive(Serialize)]
struct AlertReport {
    id: u64,
    kind: &'static str,
    severity: &'static str,
    state: &'static str,
    server: String,
    array: Option<String>,
    array_uuid: Option<String>,
    member: Option<String>,
    slot: Option<u16>,
    raised: Option<String>,
    told: u64,
    last_told: Option<String>,
    over: Option<String>,
    what: String,
    why: String,
    next: String,
    files: Vec<String>,
}

#[derive(Serialize)]
struct ChannelReport {
    name: String,
    owed: usize,
    delivered: u64,
    failed: u64,
    given_up: u64,
    last_delivered: Option<String>,
    last_error: Option<String>,
}

/// # Errors
/// What is kept cannot be read.
pub fn run(args: &AlertListArgs) -> Result<(), Problem> {
    let journal = Journal::at(&super::looked_at_in(&args.files)?);
    let (state, watched) = (journal.read()?, journal.is_watched());
    if args.json.json {
        return output::print_json(&report(&state, watched, args.all));
    }
    output::print_fitted(&text(&state, watched, args.all))
}

fn shown(state: &AlertsState, all: bool) -> impl Iterator<Item = &Alert> {
    state.over.iter().filter(move |_| all).chain(&state.alerts)
}

fn report(state: &AlertsState, watched: bool, all: bool) -> ListReport {
    let alert = |alert: &Alert| AlertReport {
        id: alert.id,
        kind: alert.key.kind.name(),
        severity: alert.severity.word(),
        state: alert.state.word(),
        server: alert.key.server.clone(),
        array: alert.key.array.as_ref().map(|array| array.name.clone()),
        array_uuid: alert.key.array.as_ref().and_then(|array| array.uuid.clone()),
        member: alert.key.member.clone(),
        slot: alert.slot,
        raised: rfc3339(alert.raised_secs),
        told: alert.told,
        last_told: rfc3339(alert.told_secs),
        over: alert.over_secs.and_then(rfc3339),
        what: alert.text.what.clone(),
        why: alert.text.why.clone(),
        next: alert.text.next.clone(),
        files: alert.files.clone(),
    };
    let channel = |(name, channel): (&String, &ChannelMemory)| ChannelReport {
        name: name.clone(),
        owed: channel.owed.len(),
        delivered: channel.delivered,
        failed: channel.failed,
        given_up: channel.given_up,
        last_delivered: channel.last_delivered_secs.and_then(rfc3339),
        last_error: channel.last_error.clone(),
    };
    ListReport {
        schema_version: SCHEMA_VERSION,
        watched,
        alerts: shown(state, all).map(alert).collect(),
        channels: state.channels.iter().map(channel).collect(),
    }
}

fn text(state: &AlertsState, watched: bool, all: bool) -> String {
    let mut text = String::new();
    let mut line = |line: String| {
        text.push_str(&printable(&line));
        text.push('\n');
    };
    let time = |secs: u64| rfc3339(secs).unwrap_or_default();
    for alert in shown(state, all) {
        let since = match (alert.state, alert.over_secs) {
            (AlertState::Over, Some(secs)) => format!("over since {}", time(secs)),
            (state, _) => format!("{}, {}", state.word(), time(alert.raised_secs)),
        };
        line(format!("{} {} {}: {since}", alert.id, alert.severity, alert.key.kind));
        line(format!("  {}", alert.text.what));
        line(format!("  why: {}", alert.text.why));
        if alert.state != AlertState::Over {
            line(format!("  next: {}", alert.text.next));
        }
        for file in &alert.files {
            line(format!("  file: {file}"));
        }
    }
    if shown(state, all).next().is_none() {
        line("no alert is raised".to_owned());
    }
    if !watched {
        line("nothing watches: `wattle alerts watch`".to_owned());
    }
    for (name, channel) in &state.channels {
        let last = channel
            .last_delivered_secs
            .map_or("nothing yet".to_owned(), |secs| format!("last {}", time(secs)));
        let given_up = match channel.given_up {
            0 => String::new(),
            given_up => format!(", given up {given_up}"),
        };
        line(format!(
            "channel {name}: took {}, {last}; owed {}{given_up}",
            channel.delivered,
            channel.owed.len()
        ));
        if let Some(error) = &channel.last_error {
            line(format!("  {} attempts failed: {error}", channel.failed));
        }
    }
    text
}
