//! `wattle plan`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{ConsistencyArg, DriveSize, Json, MapArgs, Size, name_text};

/// Tells what to build of drives: level, layout, chunk, LVM2 and file system, every layer aligned
/// to the one below.
///
/// Every array that survives the failures and has the room is run on modelled drives under the load
/// given; the fastest comes first. What the answer depends on and was not given is listed as
/// assumed. Nothing is written without --apply.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  wattle plan --drives 5 --drive sata7200 --survive 1 --capacity 10T --workload general
  wattle plan --drive 4xsata7200,size=4TB --drive 2xsata7200,size=8TB --survive 1
  wattle plan --drives 6 --drive nvme --survive 2 --workload rw=randrw,bs=8k,iodepth=32,rwmixread=70 --fs ext4
  wattle plan /dev/sd[b-g] --drive sata7200 --workload backup --json | jq -r '.plan.commands.linux[]'
  wattle plan /dev/sd[b-g] --drive sata7200 --workload backup --apply --mkfs")]
pub struct PlanArgs {
    /// Drives there are, files or block devices: their sizes are measured. What they are like,
    /// --drive says. Those that hold anything are refused.
    #[arg(value_name = "MEMBER", conflicts_with_all = ["drives", "drive_size"], value_parser = name_text())]
    pub members: Vec<String>,
    /// How many drives, if --drive is given once.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=384))]
    pub drives: Option<u32>,
    /// A modelled drive, PRESET or PRESET,KEY=VALUE,..., with Nx in front for so many of them; may
    /// be given several times. PRESET is x25m, sata7200, sata7200-small, sata-ssd, nvme, qlc or
    /// nvme-ref.
    #[arg(long = "drive", value_name = "[Nx]DRIVE")]
    pub models: Vec<String>,
    /// Bytes of each drive as it is sold: 20T is 20 TB, 20TiB is more [default: the model's].
    #[arg(long, value_name = "SIZE")]
    pub drive_size: Option<DriveSize>,
    /// Room for a file system, at least [default: whatever comes of it].
    #[arg(long, value_name = "SIZE")]
    pub capacity: Option<Size>,
    /// So many drives may fail, whichever they are [default: 1, of a single drive 0].
    #[arg(long, value_name = "N")]
    pub survive: Option<u32>,
    /// So many drives wait for others to fail [default: 0].
    #[arg(long, short = 'x', value_name = "N")]
    pub spares: Option<u32>,
    /// mail, database, vm, media, backup or general, or fio's options: rw=randrw,bs=8k,iodepth=32
    /// [default: general].
    #[arg(long, value_name = "NAME|LINE")]
    pub workload: Option<String>,
    /// Only this level: none (drives as physical volumes), 0, 1, 5, 6 or 10.
    #[arg(long, short, value_name = "LEVEL")]
    pub level: Option<String>,
    /// Only this layout of RAID 10: n2, f2, o2, …
    #[arg(long, short = 'p')]
    pub layout: Option<String>,
    /// Only this chunk.
    #[arg(long, short, value_name = "SIZE")]
    pub chunk: Option<Size>,
    /// What covers a power cut [default: a bitmap; for RAID 5 under mail, database or vm a partial
    /// parity log].
    #[arg(long, value_name = "POLICY", value_enum)]
    pub consistency: Option<ConsistencyArg>,
    /// File system [default: xfs].
    #[arg(long, value_name = "FS", value_enum)]
    pub fs: Option<FileSystemArg>,
    /// Cores of the machine [default: 4].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cores: Option<u32>,
    /// Most memory for md's caches of stripes, of all arrays together [default: 512M].
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Drives of a hundred that fail in a year [default: 1.5, flash 0.9].
    #[arg(long, value_name = "PERCENT")]
    pub afr: Option<f64>,
    /// Unreadable bits for each bit read [default: 1e-14, flash 1e-17].
    #[arg(long, value_name = "RATE")]
    pub ure: Option<f64>,
    /// Hours until a failed drive is replaced, if no spare does that [default: 24].
    #[arg(long, value_name = "HOURS")]
    pub replace_hours: Option<f64>,
    /// What a rebuild gets of the drives' bandwidth, in percent [default: 50].
    #[arg(long, value_name = "PERCENT")]
    pub rebuild_share: Option<f64>,
    /// Name of the array, the group (vg_NAME) and the volume.
    #[arg(long, value_name = "NAME", default_value = "data")]
    pub name: String,
    /// Build it on the members given: partitions, arrays, group and volume.
    #[arg(long)]
    pub apply: bool,
    /// Make the file system as well.
    #[arg(long, requires = "apply")]
    pub mkfs: bool,
    /// Draw the stack with its offsets to scale, as SVG.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    #[command(flatten)]
    pub maps: MapArgs,
    #[command(flatten)]
    pub json: Json,
}

/// `--fs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileSystemArg {
    /// XFS.
    Xfs,
    /// ext4.
    Ext4,
}
