//! Options of `copy`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::{Engine, Force, Json, KeyArgs, OverlayArgs, name_text};

/// Copies a volume, or a drive as it is, to a file, and leaves out what cannot be read.
///
/// Writes nothing to members. Zeros become holes. A map beside the file, in the format of GNU
/// ddrescue, says what was copied: run again, the copy goes on where it was stopped or killed. What
/// fails is read again in smaller pieces, down to sectors; the exit status is 1 if something is
/// missing in the end.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle copy disk*.img --to array.raw
  wattle copy --raw /dev/sdc --to sdc.img              the drive itself, whatever is on it
  wattle copy --raw /dev/sdc --to sdc.img --retries 3  bad sectors three more times")]
pub struct CopyArgs {
    /// Files or block devices, in any order, others among them; with --raw the one to copy.
    #[arg(value_name = "MEMBER", required = true, value_parser = name_text())]
    pub members: Vec<String>,
    /// The volume: an array by name or UUID, or GROUP/VOLUME; needed if there are several.
    #[arg(long, short = 'V', value_name = "VOLUME")]
    pub volume: Option<String>,
    /// Where to: a new file, or one to go on with.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// FILE: where the map of the copy is [default: FILE.map]. MEMBER=FILE: the map of a member
    /// that is a copy itself [default: FILE.map beside a member FILE], MEMBER=none: it has none.
    /// May be given several times.
    #[arg(long = "map", value_name = "FILE|MEMBER=FILE")]
    pub maps: Vec<OsString>,
    /// Write what was copied, and what not and why, here. As JSON if FILE ends in .json. A file
    /// that is there is replaced only where an earlier copy goes on.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Copy the drive byte by byte, and do not look at what is on it.
    #[arg(long, conflicts_with = "volume")]
    pub raw: bool,
    /// Start again, whatever is there: replaces the file and its map.
    #[arg(long)]
    pub overwrite: bool,
    /// Leave out the longest part: reading every sector between two bad ones.
    #[arg(long)]
    pub no_scrape: bool,
    /// How often bad sectors are tried again.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub retries: u16,
    #[command(flatten)]
    pub keys: KeyArgs,
    #[command(flatten)]
    pub overlay: OverlayArgs,
    #[command(flatten)]
    pub force: Force,
    #[command(flatten)]
    pub json: Json,
    #[command(flatten)]
    pub engine: Engine,
}
