//! `wattle up`: what a configuration says is served.

use std::path::PathBuf;

use clap::Args;

use super::{Engine, Json, Runtime};

/// Serves stacks as files in /etc/wattle say, in the foreground, until a signal or `wattle stop`.
///
/// A stack is a file NAME.toml: its arrays, where their members are, exports, settings, and how
/// long drives that come late are waited for. One name is served by this process, as `wattle serve`
/// does it; several, or all without a name, by one process each.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle up --scan /dev/sd[b-f] --to /etc/wattle    writes what is there as a configuration
  wattle up --check                                 tells file and line of every fault
  wattle up data                                    serves what data.toml says
  wattle up --scrub data                            checks what has not been checked for too long")]
pub struct UpArgs {
    /// Stacks, by the names of their files; with --scan, members to look at [default: all].
    #[arg(value_name = "NAME|MEMBER")]
    pub names: Vec<String>,
    /// A directory of configurations, or one file.
    #[arg(long, value_name = "DIR|FILE", default_value = wattle_operate::config::CONFIG_DIR)]
    pub config: PathBuf,
    /// Start nothing: tell what is wrong in the files, by file and line.
    #[arg(long, conflicts_with_all = ["scan", "scrub", "scrub_overdue"])]
    pub check: bool,
    /// Start nothing: write a configuration of the arrays that are there, to the standard output.
    #[arg(long, conflicts_with_all = ["scrub", "scrub_overdue"])]
    pub scan: bool,
    /// Where --scan puts a file for each array; never over one that is there.
    #[arg(long, value_name = "DIR", requires = "scan")]
    pub to: Option<PathBuf>,
    /// Start a check of the arrays of stacks that run, where it is due, and wait for it.
    #[arg(long, conflicts_with = "scrub_overdue")]
    pub scrub: bool,
    /// Tell by the exit status whether a check is overdue: 0 no, 1 yes, or a stack does not run.
    #[arg(long)]
    pub scrub_overdue: bool,
    #[command(flatten)]
    pub json: Json,
    #[command(flatten)]
    pub runtime: Runtime,
    #[command(flatten)]
    pub engine: Engine,
}
