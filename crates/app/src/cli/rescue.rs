//! `wattle rescue`.

use std::path::PathBuf;

use clap::Args;

use super::{Json, MapArgs, name_text};

/// Finds out what an array was whose superblocks are gone, or were overwritten by a wrong
/// `mdadm --create`.
///
/// Searches level, layout, chunk, where the data starts and the order of the members, also with one
/// of them missing (RAID 6: two), by parity, by structures of file systems, volume groups and
/// partition tables, and by what superblocks still say. Writes nothing to members. What cannot be
/// told apart is said to be so, and the exit status is 1 then.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle rescue /dev/sd[b-f]                    what it was, and why
  wattle rescue disk*.img --to-overlay /tmp/try && wattle scan disk*.img --overlay /tmp/try
  wattle rescue disk*.img --to-overlay /tmp/try --pick 2")]
pub struct RescueArgs {
    /// Files or block devices, in any order: those of one array, without spares.
    #[arg(value_name = "MEMBER", required = true, value_parser = name_text())]
    pub members: Vec<String>,
    /// Write superblocks that say what was found to an overlay in DIR, where every command with
    /// --overlay DIR finds them.
    #[arg(long, value_name = "DIR")]
    pub to_overlay: Option<PathBuf>,
    /// Which of the findings to write; needed where the first is not told from the others.
    #[arg(long, value_name = "N", requires = "to_overlay", value_parser = clap::value_parser!(u16).range(1..))]
    pub pick: Option<u16>,
    /// Write what is not known of the array, and what of its members is missing, here. As JSON if
    /// FILE ends in .json. A file that is there is not replaced.
    #[arg(long, value_name = "FILE", requires = "to_overlay")]
    pub report: Option<PathBuf>,
    /// What to call the array.
    #[arg(long, value_name = "NAME", default_value = "rescued")]
    pub name: String,
    #[command(flatten)]
    pub maps: MapArgs,
    #[command(flatten)]
    pub json: Json,
}
