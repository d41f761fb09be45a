//! `wattle simulate`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::load::LoadArgs;
use super::{Json, Size};

/// Tells what an array of drives one does not own would do: the production engine on modelled
/// drives in virtual time.
///
/// Tells requests per second, bandwidth, latencies, how busy each member is, what the drives would
/// allow at best, and what lies between. Nothing is read or written, and the same arguments give
/// the same digits on every machine.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  wattle simulate --level 5 --members 6 --drive x25m --rw randwrite --bs 4k --iodepth 248
  wattle simulate --level 10 --layout f2 --members 4 --drive sata7200 --rw read --bs 1m --iodepth 8
  wattle simulate --level 5 --drive nvme --rw randwrite --iodepth 256 --sweep members=3..24 --svg members.svg
  wattle simulate --level 5 --members 8 --drive nvme,read_iops=500k --rw randrw --sweep chunk=16k,64k,256k --sweep iodepth=1,32
  wattle simulate --level 6 --members 8 --drive sata-ssd --rw randrw --iodepth 16 --rebuild
  wattle simulate --preset field-notes-a                 a published study, beside what was measured then")]
pub struct SimulateArgs {
    /// linear, 0, 1, 4, 5, 6 or 10.
    #[arg(long, short, value_name = "LEVEL", required_unless_present_any = ["preset", "sweep"])]
    pub level: Option<String>,
    /// How many members [default: as many as drives are given].
    #[arg(long, short = 'n', value_name = "N")]
    pub members: Option<u32>,
    /// A modelled drive, PRESET or PRESET,KEY=VALUE,...: one for all members, or one for each.
    /// PRESET is x25m, sata7200, sata7200-small, sata-ssd, nvme, qlc or nvme-ref.
    #[arg(long = "drive", value_name = "DRIVE", required_unless_present_any = ["preset", "sweep"])]
    pub drives: Vec<String>,
    /// Bytes per member before the next member's turn [default: 512K].
    #[arg(long, short, value_name = "SIZE")]
    pub chunk: Option<Size>,
    /// Where parity or copies go: left-symmetric, n2, f2, o2, … [default: as mdadm].
    #[arg(long, short = 'p')]
    pub layout: Option<String>,
    /// Bytes to use of each member [default: all of the smallest].
    #[arg(long, value_name = "SIZE")]
    pub member_size: Option<Size>,
    /// What covers a power cut [default: a bitmap where the level has redundancy].
    #[arg(long, value_name = "POLICY", value_enum)]
    pub consistency: Option<ConsistencyArg>,
    /// How many members are missing.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub degraded: u32,
    /// Also tells how it is while one of the members that are missing is rebuilt; one is, if
    /// --degraded says nothing else.
    #[arg(long, conflicts_with = "preset")]
    pub rebuild: bool,
    /// Most bytes of clean blocks and parity that are kept for writes to come [default: 64M].
    #[arg(long, value_name = "SIZE", conflicts_with = "preset")]
    pub cache: Option<Size>,
    /// Drives that have rested: their fast space for writes is empty. Without it, it is used up, as
    /// after hours of writing.
    #[arg(long)]
    pub fresh: bool,
    /// Cores that the engine runs on; they cost no time here.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub cores: u16,
    #[command(flatten)]
    pub load: LoadArgs,
    /// Requests that each job has in flight for each member, instead of --iodepth: the same load
    /// whatever their number.
    #[arg(long, value_name = "N", conflicts_with_all = ["iodepth", "preset"])]
    pub iodepth_per_member: Option<u32>,
    /// Run once for each value: 3..6 or 4k,64k,1m, of members, level, layout, chunk, drive,
    /// degraded, cache, rw, bs, iodepth, numjobs or rwmixread. Several of them multiply.
    #[arg(long, value_name = "KEY=VALUES")]
    pub sweep: Vec<String>,
    /// A published study, as it was set up, beside its figures.
    #[arg(long, value_name = "STUDY", value_enum,
          conflicts_with_all = ["level", "members", "drives", "sweep", "chunk", "layout", "member_size", "degraded", "fresh",
                                "consistency", "cores", "rw", "bs", "iodepth", "numjobs", "rwmixread", "size", "offset",
                                "offset_increment", "norandommap", "fsync"])]
    pub preset: Option<PresetArg>,
    /// Draw what was swept, or the study, as SVG.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// The same as PNG.
    #[arg(long, value_name = "FILE")]
    pub png: Option<PathBuf>,
    /// Draw latencies as well.
    #[arg(long)]
    pub latency: bool,
    #[command(flatten)]
    pub json: Json,
}

/// `--consistency`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ConsistencyArg {
    /// Superblocks only.
    Resync,
    /// A write-intent bitmap.
    Bitmap,
    /// A partial parity log (RAID 5).
    Ppl,
}

/// `--preset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PresetArg {
    /// Random writes to RAID 5 over 3 to 6 SSDs.
    FieldNotesA,
    /// Rebuilding seven large disks.
    FieldNotesC,
    /// Levels and layouts on three and four small disks.
    FieldNotesE,
}
