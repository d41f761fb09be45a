//! Follows all servers of a runtime directory, and has told what has to be told.
//!
//! One thread follows each server ([`follow`]), one delivers for each channel ([`deliver`]), and
//! the thread of [`run`] decides: it alone changes which alerts there are. What it decides is
//! durable before a channel hears of it.

mod deliver;
mod follow;
mod hub;
mod others;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wattle_control::{Code, Problem};
use wattle_server::protocol::report::{ArrayReport, ScrubReport, ServerReport};
use wattle_server::socket::RuntimeDir;

use super::beside;
use super::channels::{self, Delivery, MessageSender};
use super::journal::{Journal, Updated};
use super::rules::{Asked, DriveFault, Fullness, test_message};
use super::settings::AlertSettings;
use super::state::{AlertsState, DroppedMessage};
use crate::scrub_files::ScrubFiles;
use hub::Hub;

/// Between two attempts to become the process that watches.
const STANDBY: Duration = Duration::from_millis(500);

/// What is asked of others than servers. Answers may take long: they are asked on threads of their
/// own.
pub trait AlertSources: Send + Sync {
    /// Files that lie where a check found what does not agree, or cannot be read.
    fn files_at(&self, server: &ServerReport, array: &ArrayReport, run: &ScrubReport) -> ScrubFiles {
        let _ = (server, array);
        ScrubFiles { run: run.run, ..ScrubFiles::default() }
    }

    /// How full the file systems on a server's volumes are, of those that could be read; `None` if
    /// that cannot be told.
    fn fullness(&self, server: &ServerReport) -> Option<Asked<Fullness>> {
        let _ = server;
        None
    }

    /// Whether the drives of a server's members say that they fail, of those that gave a verdict;
    /// `None` if they cannot be asked.
    fn drives(&self, server: &ServerReport) -> Option<Asked<DriveFault>> {
        let _ = server;
        None
    }
}

/// What a process that watches tells of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchNote {
    /// Another process watches; this one waits.
    Standby,
    /// It watches; these are its channels.
    Watching(Vec<String>),
    /// A server is followed.
    Following(String),
    /// A notification is decided: its number, event and text.
    Told {
        /// Its number.
        id: u64,
        /// mdadm's name of it.
        event: String,
        /// The alerts that it is of.
        alerts: Vec<u64>,
        /// What happened.
        what: String,
    },
    /// A channel took a notification.
    Arrived {
        /// The channel.
        channel: String,
        /// The notification's number.
        id: u64,
    },
    /// A channel did not take a notification; it is tried again.
    Failed {
        /// The channel.
        channel: String,
        /// The notification's number.
        id: u64,
        /// Why.
        why: String,
    },
    /// A notification is not sent to a channel any more, although it did not take it.
    Dropped(DroppedMessage),
    /// Something to know.
    Note(String),
}

/// What watches.
pub struct WatchOptions {
    /// Where servers are.
    pub runtime_dir: RuntimeDir,
    /// Where alerts are kept.
    pub state_dir: PathBuf,
    /// The settings; they are read again when the file changes.
    pub settings: PathBuf,
    /// What is asked of others.
    pub sources: Arc<dyn AlertSources>,
    /// Takes what the process tells of itself.
    pub note: Arc<dyn Fn(WatchNote) + Send + Sync>,
    /// Set to have it end.
    pub stop: Arc<AtomicBool>,
}

/// Watches until it is to end. While another process does, it waits for that one's end. Where
/// nothing can be written or read it watches all the same: an alert counts more than its record.
///
/// # Errors
/// The settings are not understood, or a later version keeps the alerts.
pub fn run(options: &WatchOptions) -> Result<(), Problem> {
    let settings = AlertSettings::read(&options.settings)?;
    let unkept = |problem: Problem, then: &str| {
        (options.note)(WatchNote::Note(format!("{}: {}; {then}", problem.what, problem.why)));
    };
    let journal = Journal::open(&options.state_dir).unwrap_or_else(|problem| {
        unkept(problem, "alerts are sent, and kept until this process ends");
        Journal::at(&options.state_dir)
    });
    let journal = Arc::new(journal);
    let mut told = false;
    let _lock = loop {
        match journal.lock_watch() {
            Ok(Some(lock)) => break Some(lock),
            Ok(None) => {}
            Err(problem) => {
                unkept(problem, "alerts are sent, by every process that watches");
                break None;
            }
        }
        if !told {
            (options.note)(WatchNote::Standby);
            told = true;
        }
        if options.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        beside::sleep(STANDBY);
    };
    Hub::new(options, settings, journal)?.run()
}

/// What a channel did with a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestOutcome {
    /// The channel.
    pub channel: String,
    /// Where it leads.
    pub place: String,
    /// Why it did not arrive.
    pub error: Option<String>,
}

/// Sends a test through every channel, and waits for what becomes of it: all at once, so that one
/// that hangs holds back no other.
///
/// # Errors
/// The settings are not understood, or there is no channel.
pub fn test(settings: &AlertSettings, journal: &Journal) -> Result<Vec<TestOutcome>, Problem> {
    if settings.channels.is_empty() {
        return Err(no_channel(settings));
    }
    let now = beside::wall_secs();
    let make = |state: &mut AlertsState| test_message(state, &settings.host, now);
    let Updated { value: message, origin, .. } = journal.update(make)?;
    let sender =
        MessageSender { host: settings.host.clone(), origin, repeat_secs: settings.rules.repeat_secs };
    let (results, received) = std::sync::mpsc::channel();
    for (ix, channel) in settings.channels.iter().cloned().enumerate() {
        let (message, sender, results) = (message.clone(), sender.clone(), results.clone());
        beside::start("alert-test", move || {
            let _ = results.send((ix, channels::deliver(&channel, &message, &sender)));
        });
    }
    drop(results);
    let ended: Vec<_> = received.iter().collect();
    let outcome = |(ix, channel): (usize, &super::settings::ChannelSettings)| {
        let delivery = ended.iter().find(|(of, _)| *of == ix).map(|(_, delivery)| delivery.clone());
        let error = match delivery {
            Some(Delivery::Arrived) => None,
            Some(Delivery::Down(why) | Delivery::Failed(why) | Delivery::Refused(why)) => Some(why),
            None => Some("the system gives no threads".to_owned()),
        };
        TestOutcome { channel: channel.name.clone(), place: channel.shown(), error }
    };
    Ok(settings.channels.iter().enumerate().map(outcome).collect())
}

/// Alerts would go nowhere.
#[must_use]
pub fn no_channel(settings: &AlertSettings) -> Problem {
    Problem::new(
        Code::NoAlertChannel,
        format!("no channel is configured in {}", settings.path.display()),
        "alerts would be kept and listed, and reach no one",
        "add one: `wattle alerts --help` shows the shortest, docs/alerts.md all",
    )
}
