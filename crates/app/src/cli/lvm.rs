//! `wattle pv`, `wattle vg` and `wattle lv`.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args, Subcommand, ValueEnum};
use wattle_server::protocol::change;

use super::{Engine, Force, Json, MapArgs, Runtime, SavingArgs, Size, name_text};

/// Makes, resizes, removes and lists physical volumes of LVM2.
///
/// A file, a drive, a partition, or an array made of the members given.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle pv create a.img b.img c.img            the array on these members becomes a physical volume
  wattle pv create /dev/sdb --dry-run
  wattle pv list *.img -o +pe_start")]
pub struct PvArgs {
    #[command(subcommand)]
    pub command: PvCommand,
}

/// `wattle pv …`.
#[derive(Debug, Subcommand)]
pub enum PvCommand {
    /// Makes physical volumes, with their data aligned to the stripes of what is below. Refuses to
    /// write over anything it recognises.
    #[command(after_help = "\
Examples:
  wattle pv create a.img b.img c.img            the array on these members becomes a physical volume
  wattle pv create /dev/sdb --dry-run")]
    Create(ChangeArgs),
    /// Ends physical volumes that no group uses.
    #[command(after_help = "\
Examples:
  wattle pv remove /dev/sdb")]
    Remove(ChangeArgs),
    /// Tells a physical volume, and its group, the size that its device has now.
    #[command(after_help = "\
Examples:
  wattle pv resize a.img b.img c.img            after the array on them has grown")]
    Resize(ChangeArgs),
    /// Lists physical volumes.
    #[command(after_help = "\
Examples:
  wattle pv list *.img -o +pe_start
  wattle pv list /dev/sd[b-f] --json")]
    List(ListArgs),
}

/// Makes, changes and lists volume groups of LVM2.
///
/// All physical volumes of a group have to be given; of a group that is being served none, and its
/// server does it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle vg create data a.img b.img c.img       a group on the array on these members
  wattle vg extend data a.img b.img c.img /dev/sdx
  wattle vg extend data --on /dev/sdx           a group that is being served
  wattle vg list *.img --json")]
pub struct VgArgs {
    #[command(subcommand)]
    pub command: VgCommand,
}

/// `wattle vg …`.
#[derive(Debug, Subcommand)]
pub enum VgCommand {
    /// Makes a group on what is given; what is no physical volume yet becomes one.
    #[command(after_help = "\
Examples:
  wattle vg create data a.img b.img c.img       a group on the array on these members")]
    Create(CreateGroupArgs),
    /// Adds to a group what is given and in none; to one that is being served, what --on names.
    #[command(after_help = "\
Examples:
  wattle vg extend data --on /dev/sdx           a group that is being served
  wattle vg extend data a.img b.img c.img /dev/sdx")]
    Extend(GroupArgs),
    /// Takes a physical volume that holds no extents of volumes out of a group (--on).
    #[command(after_help = "\
Examples:
  wattle vg reduce data --on /dev/sdx           a group that is being served
  wattle vg reduce data --on /dev/sdx /dev/sdb /dev/sdx")]
    Reduce(GroupArgs),
    /// Ends a group that has no volumes. Its physical volumes stay.
    #[command(after_help = "\
Examples:
  wattle vg remove data a.img b.img c.img")]
    Remove(GroupArgs),
    /// Gives a group another name.
    #[command(after_help = "\
Examples:
  wattle vg rename data archive                 a group that is being served
  wattle vg rename data archive /dev/sdb /dev/sdc")]
    Rename(RenameArgs),
    /// Marks a group as on its way to another system.
    #[command(after_help = "\
Examples:
  wattle vg export data /dev/sdb /dev/sdc")]
    Export(GroupArgs),
    /// Takes a group that was exported.
    #[command(after_help = "\
Examples:
  wattle vg import data /dev/sdb /dev/sdc")]
    Import(GroupArgs),
    /// Gives a group an earlier text back, from a backup.
    #[command(after_help = "\
Examples:
  wattle vg restore data -f /etc/lvm/archive/data_00012-1804289383.vg /dev/sdb /dev/sdc --dry-run")]
    Restore(RestoreArgs),
    /// Lists groups.
    #[command(after_help = "\
Examples:
  wattle vg list *.img --json")]
    List(ListArgs),
}

/// Makes, changes and lists logical volumes of LVM2.
///
/// All physical volumes of the group have to be given; of a group that is being served none, and
/// its server does it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle lv create data/home -L 10G a.img b.img c.img
  wattle lv extend data/home -L +5G             of a group that is being served, under its clients
  wattle lv create data/fast -l 100%FREE --stripes 2 /dev/sdb /dev/sdc
  wattle lv extend data/home -L +5G a.img b.img c.img
  wattle lv move data --from /dev/sdb /dev/sdb /dev/sdc
  wattle lv list *.img -o +segtype --noheadings")]
pub struct LvArgs {
    #[command(subcommand)]
    pub command: LvCommand,
}

/// `wattle lv …`.
#[derive(Debug, Subcommand)]
pub enum LvCommand {
    /// Makes a linear or striped volume.
    #[command(after_help = "\
Examples:
  wattle lv create data/home -L 10G a.img b.img c.img
  wattle lv create data/fast -l 100%FREE --stripes 2 /dev/sdb /dev/sdc")]
    Create(CreateVolumeArgs),
    /// Makes a volume larger.
    #[command(after_help = "\
Examples:
  wattle lv extend data/home -L +5G             of a group that is being served, under its clients
  wattle lv extend data/home -L +5G a.img b.img c.img")]
    Extend(SizeArgs),
    /// Makes a volume smaller; not below the file system on it.
    #[command(after_help = "\
Examples:
  wattle lv reduce data/home -L 5G a.img b.img c.img")]
    Reduce(SizeArgs),
    /// Ends a volume.
    #[command(after_help = "\
Examples:
  wattle lv remove data/old a.img b.img c.img --dry-run")]
    Remove(VolumeArgs),
    /// Gives a volume another name.
    #[command(after_help = "\
Examples:
  wattle lv rename data/home data/users         of a group that is being served")]
    Rename(RenameArgs),
    /// Says of a volume whether it is written, left out, started by itself: LVM2's permission and
    /// activation flags.
    #[command(visible_alias = "change")]
    #[command(after_help = "\
Examples:
  wattle lv activate-flags data/home --permission r /dev/sdb /dev/sdc
  wattle lv activate-flags data/scratch --setactivationskip y /dev/sdb /dev/sdc")]
    ActivateFlags(FlagsArgs),
    /// Moves what lies on a physical volume to others. Whatever ends it, the same command goes on.
    #[command(after_help = "\
Examples:
  wattle lv move data --from /dev/sdb           of a group that is being served
  wattle lv move data --from /dev/sdb /dev/sdb /dev/sdc")]
    Move(MoveArgs),
    /// Lists volumes.
    #[command(after_help = "\
Examples:
  wattle lv list *.img -o +segtype --noheadings")]
    List(VolumeListArgs),
}

/// What every change has in common.
#[derive(Debug, Clone, Args)]
pub struct ChangeArgs {
    /// Files or block devices, in any order: what the volumes lie on, every member of their arrays.
    /// Without any, changes of volumes, and `vg extend`, `reduce` and `rename`, are orders to the
    /// server of the group.
    #[arg(value_name = "MEMBER", value_parser = name_text())]
    pub members: Vec<String>,
    /// An array, member, partition or volume by name, where not all that is given is meant; may be
    /// given several times.
    #[arg(long, value_name = "NAME", value_parser = name_text())]
    pub on: Vec<String>,
    /// Show what would be written, byte range by byte range, and write nothing.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Directory of backups of texts that are replaced [default: lvm in $WATTLE_STATE_DIR,
    /// $XDG_STATE_HOME/wattle, ~/.local/state/wattle, or as root /var/lib/wattle].
    #[arg(long, value_name = "DIR")]
    pub backup_dir: Option<PathBuf>,
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
    #[command(flatten)]
    pub runtime: Runtime,
}

/// A change of a group.
#[derive(Debug, Clone, Args)]
pub struct GroupArgs {
    /// The group, by name or UUID.
    #[arg(value_name = "GROUP")]
    pub group: String,
    #[command(flatten)]
    pub change: ChangeArgs,
}

/// `vg create`.
#[derive(Debug, Clone, Args)]
pub struct CreateGroupArgs {
    /// Name of the group.
    #[arg(value_name = "GROUP")]
    pub group: String,
    /// Unit of allocation.
    #[arg(long, short = 's', value_name = "SIZE", default_value = "4M")]
    pub extent_size: Size,
    #[command(flatten)]
    pub change: ChangeArgs,
}

/// `vg restore`.
#[derive(Debug, Clone, Args)]
pub struct RestoreArgs {
    /// The group, as the backup names it.
    #[arg(value_name = "GROUP")]
    pub group: String,
    /// The backup: of wattle's, or of LVM2's (/etc/lvm/backup, /etc/lvm/archive).
    #[arg(long, short, value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub change: ChangeArgs,
}

/// `vg rename`, `lv rename`.
#[derive(Debug, Clone, Args)]
pub struct RenameArgs {
    /// What it is called: GROUP, or GROUP/VOLUME.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// What it is to be called.
    #[arg(value_name = "NEW")]
    pub to: String,
    #[command(flatten)]
    pub change: ChangeArgs,
}

/// `lv remove`.
#[derive(Debug, Clone, Args)]
pub struct VolumeArgs {
    /// The volume.
    #[arg(value_name = "GROUP/VOLUME")]
    pub volume: String,
    #[command(flatten)]
    pub change: ChangeArgs,
}

/// What is said of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
#[group(required = true, multiple = true)]
pub struct VolumeFlagsArgs {
    /// Whether it is written: r or rw.
    #[arg(long, short, value_name = "r|rw")]
    pub permission: Option<PermissionArg>,
    /// Whether it is left out unless it is named: `serve` offers it only with -V then.
    #[arg(long, short = 'k', value_name = "y|n", action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub setactivationskip: Option<bool>,
    /// Whether systems activate it when they start.
    #[arg(long, value_name = "y|n", action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub setautoactivation: Option<bool>,
}

/// As LVM2 has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PermissionArg {
    /// It is only read.
    R,
    /// It is read and written.
    Rw,
}

/// `lv activate-flags`.
#[derive(Debug, Clone, Args)]
pub struct FlagsArgs {
    /// The volume.
    #[arg(value_name = "GROUP/VOLUME")]
    pub volume: String,
    #[command(flatten)]
    pub flags: VolumeFlagsArgs,
    #[command(flatten)]
    pub change: ChangeArgs,
}

/// `lv move`.
#[derive(Debug, Clone, Args)]
pub struct MoveArgs {
    /// The group, or one volume of it.
    #[arg(value_name = "GROUP[/VOLUME]")]
    pub name: String,
    /// The physical volume that is to be free afterwards; --on says where to.
    #[arg(long, value_name = "NAME", value_parser = name_text())]
    pub from: String,
    #[command(flatten)]
    pub change: ChangeArgs,
}

/// How large a volume is to be.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[group(required = true, multiple = false)]
pub struct ExtentsArg {
    /// Its size, rounded up to extents; with + or - how much more or less.
    #[arg(long, short = 'L', value_name = "[+|-]SIZE", allow_hyphen_values = true)]
    pub size: Option<String>,
    /// The same in extents, or as a part of the group (50%VG), of what is free in it (100%FREE), of
    /// the physical volumes of --on (PVS), or of the volume (+20%LV).
    #[arg(long, short = 'l', value_name = "[+|-]EXTENTS", allow_hyphen_values = true)]
    pub extents: Option<String>,
}

/// `lv create`.
#[derive(Debug, Clone, Args)]
pub struct CreateVolumeArgs {
    /// The group and the name of the volume.
    #[arg(value_name = "GROUP/VOLUME")]
    pub volume: String,
    #[command(flatten)]
    pub extents: ExtentsArg,
    /// Over how many physical volumes.
    #[arg(long, short = 'i', value_name = "N", default_value_t = 1)]
    pub stripes: u16,
    /// Bytes per physical volume before the next one's turn.
    #[arg(long, short = 'I', value_name = "SIZE", default_value = "64K")]
    pub stripesize: Size,
    #[command(flatten)]
    pub change: ChangeArgs,
}

/// `lv extend`, `lv reduce`.
#[derive(Debug, Clone, Args)]
pub struct SizeArgs {
    /// The volume.
    #[arg(value_name = "GROUP/VOLUME")]
    pub volume: String,
    #[command(flatten)]
    pub extents: ExtentsArg,
    #[command(flatten)]
    pub change: ChangeArgs,
}

/// `lv list`.
#[derive(Debug, Clone, Args)]
pub struct VolumeListArgs {
    /// Those too that are only parts of others, in brackets.
    #[arg(long, short)]
    pub all: bool,
    #[command(flatten)]
    pub list: ListArgs,
}

/// `pv list`, `vg list`, `lv list`.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    /// Files or block devices, in any order, others among them.
    #[arg(value_name = "MEMBER", required = true, value_parser = name_text())]
    pub members: Vec<String>,
    /// The columns, by their names with commas between; with + in addition to the usual ones.
    #[arg(long, short = 'o', value_name = "[+]FIELD,…")]
    pub options: Vec<String>,
    /// What rows are sorted by: + or nothing upwards, - downwards.
    #[arg(long, short = 'O', value_name = "[+|-]FIELD,…", allow_hyphen_values = true)]
    pub sort: Option<String>,
    /// Only these rows: FIELD=VALUE, or !=, <, >, <=, >=, =~, !~, with &&, ||, ! and parentheses,
    /// as lvmreport(7) has them.
    #[arg(long, short = 'S', value_name = "SELECTION")]
    pub select: Option<String>,
    /// Sizes without their units, where --units names one for all.
    #[arg(long)]
    pub nosuffix: bool,
    /// Without the line of headings.
    #[arg(long)]
    pub noheadings: bool,
    #[command(flatten)]
    pub maps: MapArgs,
    #[command(flatten)]
    pub force: Force,
    #[command(flatten)]
    pub json: Json,
    #[command(flatten)]
    pub engine: Engine,
}

impl From<ExtentsArg> for change::Extents {
    fn from(typed: ExtentsArg) -> Self {
        Self { size: typed.size, extents: typed.extents }
    }
}

impl From<VolumeFlagsArgs> for change::VolumeFlags {
    fn from(typed: VolumeFlagsArgs) -> Self {
        let permission = typed.permission.map(|permission| match permission {
            PermissionArg::R => change::Permission::R,
            PermissionArg::Rw => change::Permission::Rw,
        });
        Self {
            permission,
            setactivationskip: typed.setactivationskip,
            setautoactivation: typed.setautoactivation,
        }
    }
}
