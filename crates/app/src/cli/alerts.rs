//! `wattle alerts`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Json, Runtime};

/// Has failures told: by mail, a program or a web server, again and again until they are handled.
///
/// Channels stand in alerts.toml, and MAILADDR and PROGRAM of mdadm.conf count as well. The
/// shortest: [[mail]] and to = ["admin@example.org"]; or [[webhook]], preset = "ntfy" and url =
/// "https://ntfy.sh/TOPIC". docs/alerts.md has all.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle alerts test                            through every channel: what arrives
  wattle alerts watch                           what the service wattle-alerts runs
  wattle alerts list
  wattle alerts ack 3                           it is not told again, unless it gets worse")]
pub struct AlertsArgs {
    #[command(subcommand)]
    pub command: AlertsCommand,
}

/// `wattle alerts …`.
#[derive(Debug, Subcommand)]
pub enum AlertsCommand {
    /// Follows every server of the runtime directory and has told what has to be, until it is
    /// ended. While another process does, it waits.
    #[command(after_help = "\
Examples:
  wattle alerts watch --config /etc/wattle/alerts.toml")]
    Watch(WatchArgs),
    /// Lists alerts that are not over, and what channels are owed.
    #[command(after_help = "\
Examples:
  wattle alerts list --all                      those that are over, too
  wattle alerts list --json | jq '.alerts[].next'")]
    List(AlertListArgs),
    /// Acknowledges alerts: they are not told again, unless they get worse or a server starts with
    /// them.
    #[command(after_help = "\
Examples:
  wattle alerts ack ALL")]
    Ack(AckArgs),
    /// Sends a test through every channel, and says what arrived.
    #[command(after_help = "\
Examples:
  wattle alerts test --json")]
    Test(AlertTestArgs),
}

/// Where the settings and what is kept of alerts are.
#[derive(Debug, Clone, Args)]
pub struct AlertFiles {
    /// The settings [default: /etc/wattle/alerts.toml as root, else
    /// $XDG_CONFIG_HOME/wattle/alerts.toml or ~/.config/wattle/alerts.toml].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where alerts are kept [default: $WATTLE_STATE_DIR, $XDG_STATE_HOME/wattle,
    /// ~/.local/state/wattle, or as root /var/lib/wattle].
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

/// `wattle alerts watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    #[command(flatten)]
    pub files: AlertFiles,
    #[command(flatten)]
    pub runtime: Runtime,
    #[command(flatten)]
    pub json: Json,
}

/// `wattle alerts list`.
#[derive(Debug, Args)]
pub struct AlertListArgs {
    /// Alerts that are over as well: the last 200.
    #[arg(long, short)]
    pub all: bool,
    #[command(flatten)]
    pub files: AlertFiles,
    #[command(flatten)]
    pub json: Json,
}

/// `wattle alerts ack`.
#[derive(Debug, Args)]
pub struct AckArgs {
    /// Numbers of alerts, or ALL.
    #[arg(value_name = "ID", required = true)]
    pub ids: Vec<String>,
    #[command(flatten)]
    pub files: AlertFiles,
    #[command(flatten)]
    pub json: Json,
}

/// `wattle alerts test`.
#[derive(Debug, Args)]
pub struct AlertTestArgs {
    #[command(flatten)]
    pub files: AlertFiles,
    #[command(flatten)]
    pub json: Json,
}
