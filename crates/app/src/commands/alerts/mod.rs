//! `wattle alerts`: what has to be told, and what was.

mod list;
mod sources;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use wattle_control::members::MemberAccess;
use wattle_control::{Code, Problem};
use wattle_operate::alerts::journal::Journal;
use wattle_operate::alerts::settings::AlertSettings;
use wattle_operate::alerts::state::{Alert, AlertState, DroppedMessage};
use wattle_operate::alerts::watch::{self, WatchNote, WatchOptions};
use wattle_server::protocol::SCHEMA_VERSION;

use crate::cli::{AckArgs, AlertFiles, AlertTestArgs, AlertsArgs, AlertsCommand, WatchArgs};
use crate::environment::{alerts_file, runtime_dir, state_dir};
use crate::output;
use crate::output::text::printable;
use sources::Sources;

/// # Errors
/// The settings are not understood, something did not arrive, or there is no such alert.
pub fn run(access: &MemberAccess, args: &AlertsArgs) -> Result<(), Problem> {
    match &args.command {
        AlertsCommand::Watch(args) => watch(access, args),
        AlertsCommand::List(args) => list::run(args),
        AlertsCommand::Ack(args) => acknowledge(args),
        AlertsCommand::Test(args) => test(args),
    }
}

/// Where alerts are kept.
fn kept_in(files: &AlertFiles) -> Result<PathBuf, Problem> {
    let dir = state_dir(files.state_dir.as_deref()).dir().map(PathBuf::from);
    dir.ok_or_else(|| {
        Problem::new(
            Code::AlertJournal,
            "there is no directory to keep alerts in",
            "this user has no home",
            "name one: --state-dir DIR, or WATTLE_STATE_DIR",
        )
    })
}

/// The same, to look at what is there. One that was named and is not there is a slip of the pen,
/// after which all would look well.
fn looked_at_in(files: &AlertFiles) -> Result<PathBuf, Problem> {
    let dir = kept_in(files)?;
    if files.state_dir.is_some() && matches!(dir.try_exists(), Ok(false)) {
        return Err(Problem::new(
            Code::AlertJournal,
            printable(&format!("{}: what alerts keep cannot be read", dir.display())),
            "no such directory",
            "name the directory of `wattle alerts watch`: --state-dir DIR",
        ));
    }
    Ok(dir)
}

/// The file of settings. The usual one need not be there; one that was named and is not is a slip
/// of the pen, after which no alert would be delivered.
fn settings_file(files: &AlertFiles) -> Result<PathBuf, Problem> {
    let file = alerts_file(files.config.as_deref());
    if files.config.is_some() && matches!(file.try_exists(), Ok(false)) {
        return Err(Problem::new(
            Code::AlertSettings,
            printable(&format!("{}: the settings of alerts cannot be read", file.display())),
            "no such file or directory",
            "make the file, or name another one: --config FILE",
        ));
    }
    Ok(file)
}

fn watch(access: &MemberAccess, args: &WatchArgs) -> Result<(), Problem> {
    let json = args.json.json;
    wattle_rt::stand_back();
    let options = WatchOptions {
        runtime_dir: runtime_dir(args.runtime.runtime_dir.as_deref()),
        state_dir: kept_in(&args.files)?,
        settings: settings_file(&args.files)?,
        sources: Arc::new(Sources::new(access)),
        note: Arc::new(move |note| say(&note, json)),
        stop: Arc::new(AtomicBool::new(false)),
    };
    watch::run(&options)
}

/// What a process that watches tells of itself, one line each.
#[derive(Serialize)]
struct NoteReport<'a> {
    schema_version: u32,
    what: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<&'a str>,
    text: String,
}

fn say(note: &WatchNote, json: bool) {
    let (what, id, event, channel) = match note {
        WatchNote::Standby => ("standby", None, None, None),
        WatchNote::Watching(_) => ("watching", None, None, None),
        WatchNote::Following(_) => ("following", None, None, None),
        WatchNote::Told { id, event, .. } => ("told", Some(*id), Some(event.as_str()), None),
        WatchNote::Arrived { channel, id } => ("arrived", Some(*id), None, Some(channel.as_str())),
        WatchNote::Failed { channel, id, .. } => ("failed", Some(*id), None, Some(channel.as_str())),
        WatchNote::Dropped(dropped) => {
            ("dropped", Some(dropped.id), Some(dropped.event.as_str()), Some(dropped.channel.as_str()))
        }
        WatchNote::Note(_) => ("note", None, None, None),
    };
    let text = match note {
        WatchNote::Standby => "another process watches; this one waits for its end".to_owned(),
        WatchNote::Watching(channels) if channels.is_empty() => {
            "watching; no channel is configured, so that alerts are only kept and listed".to_owned()
        }
        WatchNote::Watching(channels) => format!("watching; channels: {}", channels.join("; ")),
        WatchNote::Following(server) => format!("following {server}"),
        WatchNote::Told { id, event, alerts, what } => match &alerts[..] {
            [] => format!("message {id}: {event}: {what}"),
            [alert] => format!("message {id}: {event}, alert {alert}: {what}"),
            alerts => {
                let ids: Vec<_> = alerts.iter().map(ToString::to_string).collect();
                format!("message {id}: {event}, alerts {}: {what}", ids.join(", "))
            }
        },
        WatchNote::Arrived { channel, id } => format!("message {id}: {channel} took it"),
        WatchNote::Failed { channel, id, why } => {
            format!("message {id}: {channel} did not take it, and is tried again: {why}")
        }
        WatchNote::Dropped(DroppedMessage { channel, id, event, what, why }) => {
            format!("message {id} is not sent to {channel} any more ({event}: {what}): {why}")
        }
        WatchNote::Note(text) => text.clone(),
    };
    match json {
        // It watches on, whether or not anything reads what it says.
        true => drop(output::print_json_line(&NoteReport {
            schema_version: SCHEMA_VERSION,
            what,
            id,
            event,
            channel,
            text,
        })),
        false => output::note(&printable(&format!("alerts: {text}"))),
    }
}

#[derive(Serialize)]
struct AckReport {
    schema_version: u32,
    acknowledged: usize,
}

fn acknowledge(args: &AckArgs) -> Result<(), Problem> {
    let journal = Journal::open(&kept_in(&args.files)?)?;
    let all = args.ids.iter().any(|id| id.eq_ignore_ascii_case("all"));
    let state = journal.read()?;
    let mut ids = Vec::new();
    for id in args.ids.iter().filter(|_| !all) {
        let known = id.parse().ok().filter(|id| state.alerts.iter().any(|alert| alert.id == *id));
        ids.push(known.ok_or_else(|| no_such_alert(id, &state.alerts))?);
    }
    let updated = journal.update(|state| state.acknowledge(|alert| all || ids.contains(&alert.id)))?;
    if let Some(problem) = updated.unsaved {
        return Err(problem);
    }
    let acknowledged = updated.value;
    if args.json.json {
        return output::print_json(&AckReport { schema_version: SCHEMA_VERSION, acknowledged });
    }
    let text = match acknowledged {
        0 => "nothing is raised that was not acknowledged before".to_owned(),
        1 => "one alert is acknowledged; it is told when it gets worse, and when it is over".to_owned(),
        n => format!("{n} alerts are acknowledged; each is told when it gets worse, and when it is over"),
    };
    output::note(&text);
    Ok(())
}

fn no_such_alert(id: &str, alerts: &[Alert]) -> Problem {
    let raised = alerts.iter().filter(|alert| alert.state == AlertState::Raised);
    let ids: Vec<_> = raised.map(|alert| alert.id.to_string()).collect();
    let next = match &ids[..] {
        [] => "none is raised; `wattle alerts list` shows all".to_owned(),
        ids => format!("raised are {}; ALL means all of them", ids.join(", ")),
    };
    Problem::new(
        Code::NoSuchAlert,
        format!("there is no alert {}", printable(id)),
        "it is over, or never was",
        next,
    )
}

#[derive(Serialize)]
struct TestReport {
    schema_version: u32,
    channels: Vec<TestedChannel>,
}

#[derive(Serialize)]
struct TestedChannel {
    channel: String,
    place: String,
    arrived: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

fn test(args: &AlertTestArgs) -> Result<(), Problem> {
    let settings = AlertSettings::read(&settings_file(&args.files)?)?;
    let journal = Journal::open(&kept_in(&args.files)?)?;
    let usable = journal.update(|_| ())?;
    usable
        .problems()
        .for_each(|problem| output::note(&printable(&format!("{}: {}", problem.what, problem.why))));
    let outcomes = watch::test(&settings, &journal)?;
    let failed: Vec<_> = outcomes.iter().filter(|outcome| outcome.error.is_some()).collect();
    let result = match &failed[..] {
        [] => Ok(()),
        failed => Err(Problem::new(
            Code::AlertNotDelivered,
            printable(&format!("{} of {} channels did not take the test", failed.len(), outcomes.len())),
            printable(
                &failed
                    .iter()
                    .map(|outcome| {
                        format!("{}: {}", outcome.channel, outcome.error.as_deref().unwrap_or_default())
                    })
                    .collect::<Vec<_>>()
                    .join("; "),
            ),
            "mend what the message names, and test again",
        )),
    };
    if args.json.json {
        let channels = outcomes.iter().map(|outcome| TestedChannel {
            channel: outcome.channel.clone(),
            place: outcome.place.clone(),
            arrived: outcome.error.is_none(),
            error: outcome.error.clone(),
        });
        output::print_json(&TestReport { schema_version: SCHEMA_VERSION, channels: channels.collect() })?;
    } else {
        let line = |outcome: &watch::TestOutcome| {
            let end = match &outcome.error {
                None => "took it".to_owned(),
                Some(error) => format!("did not take it: {error}"),
            };
            printable(&format!("{}  {}: {end}", outcome.channel, outcome.place)) + "\n"
        };
        output::print_fitted(&outcomes.iter().map(line).collect::<String>())?;
        settings.notes.iter().for_each(|note| output::note(&printable(note)));
    }
    result
}
