//! `wattle partition`.

use std::ops::Range;
use std::str::FromStr;

use clap::Args;
use wattle_control::size::parse_size;

use super::{Engine, Json, MapArgs, SavingArgs, name_text};

/// Writes a partition table (GPT) with partitions for arrays on drives that hold nothing.
///
/// The same table on each drive, and its copy at the drive's end. Partitions are named DRIVE:pN
/// then, wherever a member may stand. What is overwritten is saved first, and `wattle undo` brings
/// it back.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  wattle partition /dev/sd[b-e] --part 1:1M+4095M --part 2:4G+2G
  wattle partition a.img b.img --part 1:1M+1G --dry-run
  wattle create data a.img:p1 b.img:p1 --level 1")]
pub struct PartitionArgs {
    /// Files or block devices.
    #[arg(value_name = "MEMBER", required = true, value_parser = name_text())]
    pub members: Vec<String>,
    /// A partition: its number, where it starts and how long it is; may be given several times.
    #[arg(long = "part", value_name = "N:START+SIZE", required = true)]
    pub parts: Vec<PartArg>,
    /// What the partitions are called in the table.
    #[arg(long, default_value = "")]
    pub name: String,
    /// Show what would be written, and write nothing.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    #[command(flatten)]
    pub maps: MapArgs,
    #[command(flatten)]
    pub saving: SavingArgs,
    #[command(flatten)]
    pub json: Json,
    #[command(flatten)]
    pub engine: Engine,
}

/// `--part`.
#[derive(Debug, Clone)]
pub struct PartArg {
    pub number: u32,
    pub range: Range<u64>,
}

/// A text that is no value of `--part`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a number, where it starts and how long it is, like 1:1M+4G")]
pub struct ParsePartError;

impl FromStr for PartArg {
    type Err = ParsePartError;

    fn from_str(text: &str) -> Result<Self, ParsePartError> {
        let (number, range) = text.split_once(':').ok_or(ParsePartError)?;
        let (start, len) = range.split_once('+').ok_or(ParsePartError)?;
        let size = |text: &str| parse_size(text).map_err(|_| ParsePartError);
        let (start, len) = (size(start)?, size(len)?);
        let end = start.checked_add(len).ok_or(ParsePartError)?;
        Ok(Self { number: number.parse().map_err(|_| ParsePartError)?, range: start..end })
    }
}
