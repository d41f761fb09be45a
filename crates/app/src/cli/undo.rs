//! `wattle erase`, `wattle undo`, and where what a command overwrites is saved.

use std::path::PathBuf;

use clap::Args;
use wattle_server::saving;

use super::{Engine, Force, Json, MapArgs, name_text};

/// Where what is overwritten is saved.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Undo")]
pub struct SavingArgs {
    /// Directory of undo logs [default: that of the server for an order to one, else undo in
    /// $WATTLE_STATE_DIR, $XDG_STATE_HOME/wattle, ~/.local/state/wattle, or as root
    /// /var/lib/wattle].
    #[arg(id = "undo_dir", long = "undo", value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Save nothing of what is overwritten: it cannot be brought back.
    #[arg(long, conflicts_with = "undo_dir")]
    pub no_undo: bool,
}

impl From<SavingArgs> for saving::Saving {
    fn from(typed: SavingArgs) -> Self {
        Self { dir: typed.dir, no_undo: typed.no_undo }
    }
}

/// Erases what tells of anything on members: superblocks, labels, partition tables, signatures of
/// file systems.
///
/// The rest of what they held stays. What is overwritten is saved first, and `wattle undo` brings
/// it back.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle erase /dev/sdx --dry-run               what would go
  wattle erase a.img b.img")]
pub struct EraseArgs {
    /// Files or block devices.
    #[arg(value_name = "MEMBER", required = true, value_parser = name_text())]
    pub members: Vec<String>,
    /// Show what would be erased, and write nothing.
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

/// Brings back what a command overwrote, from the log that it saved; without a log, lists those
/// that there are.
///
/// Writes only where the command wrote, and only if nothing else was written there since. Can be
/// killed and run again, and undone. What a resync, a rebuild or clients have written since stays.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle undo                                   which logs there are
  wattle undo 20261122T121503Z-create-data --dry-run
  wattle undo /mnt/usb/20261122T121503Z-create-data.undo /dev/sd[c-f]    members that have other names now")]
pub struct UndoArgs {
    /// The file of a log, or its name in the directory of logs [default: list them].
    #[arg(value_name = "LOG")]
    pub log: Option<PathBuf>,
    /// The members, in any order [default: as the command was given them].
    #[arg(value_name = "MEMBER", value_parser = name_text())]
    pub members: Vec<String>,
    /// Show what would be brought back, and write nothing.
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
