//! `wattle create …`.

use clap::Args;

use super::{Force, Json, MapArgs, SavingArgs, Size, name_text};

/// Makes a new array on members, with the defaults of mdadm.
///
/// Refuses to write over anything it recognises. Files must exist and have their size:
/// `truncate -s 1G a b c`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle create data a.img b.img c.img d.img --level 5
  wattle create data a.img missing c.img --level 5 --dry-run
  wattle create fast /dev/nvme[0-3]n1 --level 10 --layout f2 --chunk 256K")]
pub struct CreateArgs {
    /// Name of the array.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// By slot; `missing` stands for an absent member. Spares come last.
    #[arg(value_name = "MEMBER", required = true, value_parser = name_text())]
    pub members: Vec<String>,
    /// linear, 0, 1, 4, 5, 6 or 10.
    #[arg(long, short)]
    pub level: String,
    /// Bytes per member before the next member's turn [default: 512K for striped levels].
    #[arg(long, short, value_name = "SIZE")]
    pub chunk: Option<Size>,
    /// Where parity or copies go: left-symmetric, n2, f2, o2, … [default: as mdadm].
    #[arg(long, short = 'p')]
    pub layout: Option<String>,
    /// Version of the superblock: 0.90, 1.0, 1.1 or 1.2.
    #[arg(long, short = 'e', value_name = "VERSION", default_value = "1.2")]
    pub metadata: String,
    /// Write-intent bitmap: internal or none [default: internal].
    #[arg(long, value_name = "WHERE")]
    pub bitmap: Option<String>,
    /// What a bit of the bitmap stands for [default: as mdadm].
    #[arg(long, value_name = "SIZE")]
    pub bitmap_chunk: Option<Size>,
    /// Bits of the bitmap are cleared when nothing was written there for one to two times so many
    /// seconds (mdadm's --delay) [default: as mdadm, 5].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub bitmap_delay: Option<u32>,
    /// What covers a power cut: resync, bitmap, ppl or journal [default: as mdadm].
    #[arg(long, value_name = "POLICY")]
    pub consistency: Option<String>,
    /// How many of the members, the last ones, are spares.
    #[arg(long, short = 'x', value_name = "N", default_value_t = 0)]
    pub spares: u16,
    /// Where the data starts on each member [default: as mdadm].
    #[arg(long, value_name = "SIZE")]
    pub data_offset: Option<Size>,
    /// Bytes to use of each member [default: all of the smallest].
    #[arg(long, short = 'z', value_name = "SIZE")]
    pub size: Option<Size>,
    /// Of RAID 1 and 10: read the copies on this member only where no other one can be read. For
    /// several members, say it for each.
    #[arg(long, value_name = "MEMBER", value_parser = name_text())]
    pub write_mostly: Vec<String>,
    /// Take parity or copies as they are. Only right on members whose content already agrees, like
    /// zeros.
    #[arg(long)]
    pub assume_clean: bool,
    /// Show what would be written, byte range by byte range, and write nothing.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Answer prompts with yes.
    #[arg(long, short)]
    pub yes: bool,
    #[command(flatten)]
    pub maps: MapArgs,
    #[command(flatten)]
    pub saving: SavingArgs,
    #[command(flatten)]
    pub force: Force,
    #[command(flatten)]
    pub json: Json,
}
