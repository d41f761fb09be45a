//! `wattle compat`.

use clap::Args;
use wattle_control::compat::{Release, parse_release};

use super::{Engine, Force, Json, MapArgs, SavingArgs, name_text};

/// Says which Linux opens the arrays on members, and lets an older one open them.
///
/// With --for it says what that Linux refuses, and takes back what can go without loss: the logical
/// block size that Linux 6.19 and later write into superblocks, which older kernels take for no
/// superblock. What is overwritten is saved first, and `wattle undo` brings it back. Everything
/// else that speaks against that Linux is named. Without --for nothing is written.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0 if that Linux opens every array now, 3 if not.

Examples:
  wattle compat /dev/sd[b-e]                    which Linux and mdadm open it, and why not others
  wattle compat /dev/sd[b-e] --for 6.12 --dry-run
  wattle compat disk*.img --for 6.12")]
pub struct CompatArgs {
    /// Files or block devices.
    #[arg(value_name = "MEMBER", required = true, value_parser = name_text())]
    pub members: Vec<String>,
    /// The release of Linux that is to open them, as `uname -r` says it: 6.12, 5.10.0-33-amd64.
    #[arg(long = "for", value_name = "LINUX", value_parser = parse_release)]
    pub linux: Option<Release>,
    /// Show what would be taken back, and write nothing.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    #[command(flatten)]
    pub maps: MapArgs,
    #[command(flatten)]
    pub saving: SavingArgs,
    #[command(flatten)]
    pub force: Force,
    #[command(flatten)]
    pub json: Json,
    #[command(flatten)]
    pub engine: Engine,
}
