//! What others show of alerts: whether they would reach an operator.

use std::path::Path;

use super::journal::Journal;
use super::settings::AlertSettings;
use super::state::AlertState;

/// Whether alerts would reach an operator, and whether they did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlertsSummary {
    /// There is a channel, and the settings are understood.
    pub configured: bool,
    /// A process watches.
    pub watched: bool,
    /// Alerts that are raised.
    pub raised: usize,
    /// Alerts that are acknowledged.
    pub acknowledged: usize,
    /// When a channel took something last, in seconds since 1970.
    pub last_delivered_secs: Option<u64>,
    /// Attempts to deliver that failed.
    pub failed: u64,
    /// Notifications that channels are owed.
    pub owed: usize,
}

/// What is known by now. It reads two files, and asks no server.
#[must_use]
pub fn summary(settings: &Path, state_dir: &Path) -> AlertsSummary {
    let journal = Journal::at(state_dir);
    let state = journal.read().unwrap_or_default();
    let of = |wanted: AlertState| state.alerts.iter().filter(|alert| alert.state == wanted).count();
    AlertsSummary {
        configured: AlertSettings::read(settings).is_ok_and(|settings| !settings.channels.is_empty()),
        watched: journal.is_watched(),
        raised: of(AlertState::Raised),
        acknowledged: of(AlertState::Acknowledged),
        last_delivered_secs: state.channels.values().filter_map(|channel| channel.last_delivered_secs).max(),
        failed: state.channels.values().map(|channel| channel.failed).sum(),
        owed: state.channels.values().map(|channel| channel.owed.len()).sum(),
    }
}
