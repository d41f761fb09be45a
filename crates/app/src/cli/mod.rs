//! What can be typed: the one definition that parsing, usage errors and `--help` come from.
//!
//! Nothing is decided here beyond "that is a number"; each command turns its arguments into what is
//! meant.

mod alerts;
mod audit;
mod bench;
mod compat;
mod console;
mod copy;
mod create;
mod detail;
mod exporter;
mod files;
mod generate;
mod json;
mod keys;
mod load;
mod lvm;
mod maps;
mod mount;
mod names;
mod operate;
mod partition;
mod plan;
mod rescue;
mod serve;
mod shared;
mod simulate;
mod top;
mod undo;
mod up;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use wattle_control::units::Units;

pub use alerts::{AckArgs, AlertFiles, AlertListArgs, AlertTestArgs, AlertsArgs, AlertsCommand, WatchArgs};
pub use audit::AuditArgs;
pub use bench::BenchArgs;
pub use compat::CompatArgs;
pub use console::ConsoleArgs;
pub use copy::CopyArgs;
pub use create::CreateArgs;
pub use detail::{DetailArgs, DetailFormat, ExamineFormat};
pub use exporter::{ExporterArgs, HttpArgs, SnmpArgs};
pub use files::{FilesOn, GetArgs, LsArgs, read_beside};
pub use generate::{GenerateArgs, Generated};
pub use json::{Json, may_want_json, wants_json, without_help_word};
pub use keys::KeyArgs;
pub use load::{LoadArgs, TimeArg};
pub use lvm::{
    ChangeArgs, CreateGroupArgs, CreateVolumeArgs, GroupArgs, ListArgs, LvArgs, LvCommand, MoveArgs, PvArgs,
    PvCommand, RestoreArgs, VgArgs, VgCommand,
};
pub use maps::{MapArgs, choice};
pub use mount::{MountArgs, UmountArgs, UmountForce};
pub use names::name_text;
pub use operate::{
    AddArgs, CheckArgs, CheckpointArgs, FailArgs, RemoveArgs, RepairArgs, ReplaceArgs, ReservationsArgs,
    Scrub, SetArgs, StopArgs,
};
pub use partition::{PartArg, PartitionArgs};
pub use plan::{FileSystemArg, PlanArgs};
pub use rescue::RescueArgs;
pub use serve::{DegradedArg, MadeUp, NbdArgs, ServeArgs};
pub use shared::{DriveSize, Engine, Force, OverlayArgs, Runtime, Size};
pub use simulate::{ConsistencyArg, PresetArg, SimulateArgs};
pub use top::{TopArgs, parse_seconds};
pub use undo::{EraseArgs, SavingArgs, UndoArgs};
pub use up::UpArgs;

/// Software RAID and volumes in user space: opens, serves and makes Linux md arrays, without root
/// and without kernel modules.
#[derive(Debug, Parser)]
#[command(name = "wattle", version, after_help = AFTER, max_term_width = 120)]
#[command(disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: CliCommand,
    /// How output looks.
    #[command(flatten)]
    pub look: OutputArgs,
}

const AFTER: &str = "\
A MEMBER is a file, a block device, or a made-up drive: mem:SIZE, null:SIZE, model:DRIVE.
Sizes: 64K, 4M and 1.5G are binary, as in mdadm and LVM; 4MB is decimal; s counts sectors of 512
bytes. Drives are as large as they are sold: of a drive, 20T is 20 TB.
Exit status: 0 done, 1 failed, 2 usage, 3 refused by a safety check.
Errors carry a code: `wattle explain WTL-0049`.

Examples:
  wattle scan *.img                                  what is on these drives, and how it is
  wattle cat *.img > array.raw                       the array's bytes
  wattle serve *.img --export nbd=unix:/tmp/a.sock   the array for NBD clients, until Ctrl-C
  wattle serve mem:1G mem:1G mem:1G --level 5 --run 'nbdinfo \"$uri\"'
  truncate -s 1G a b c d && wattle create data a b c d --level 5
  wattle status";

/// How output looks.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Units of sizes: b (bytes), iec (1024s), si (1000s), or one of LVM2's letters,
    /// hHrRBsSkKmMgGtTpPeE.
    #[arg(long, global = true, value_parser = |text: &str| text.parse::<Units>(), default_value = "iec")]
    pub units: Units,
    /// Colours: auto is on for terminals unless NO_COLOR is set.
    #[arg(long, global = true, value_enum, default_value_t = ColorArg::Auto)]
    pub color: ColorArg,
}

/// `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorArg {
    Auto,
    Always,
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    Scan(ScanArgs),
    Examine(ExamineArgs),
    Create(CreateArgs),
    Partition(PartitionArgs),
    Compat(CompatArgs),
    Erase(EraseArgs),
    Undo(UndoArgs),
    Cat(CatArgs),
    Copy(Box<CopyArgs>),
    Rescue(RescueArgs),
    Ls(LsArgs),
    Get(GetArgs),
    Serve(Box<ServeArgs>),
    Up(Box<UpArgs>),
    Mount(MountArgs),
    Umount(UmountArgs),
    Status(StatusArgs),
    Detail(DetailArgs),
    Top(TopArgs),
    Console(ConsoleArgs),
    Why(WhyArgs),
    Stop(StopArgs),
    Fail(FailArgs),
    Remove(RemoveArgs),
    Add(AddArgs),
    Replace(ReplaceArgs),
    Check(CheckArgs),
    Repair(RepairArgs),
    Set(SetArgs),
    Checkpoint(CheckpointArgs),
    Reservations(ReservationsArgs),
    Pv(PvArgs),
    Vg(VgArgs),
    Lv(LvArgs),
    Plan(Box<PlanArgs>),
    Simulate(Box<SimulateArgs>),
    Bench(Box<BenchArgs>),
    Audit(Box<AuditArgs>),
    Alerts(AlertsArgs),
    Exporter(ExporterArgs),
    Snmp(SnmpArgs),
    Explain(ExplainArgs),
    #[command(hide = true)]
    Generate(GenerateArgs),
}

impl CliCommand {
    /// Where what is written to members goes instead.
    pub fn overlay(&self) -> Option<&Path> {
        self.looking()?.dir.as_deref()
    }

    /// Backup files of reshapes.
    pub fn backup_files(&self) -> &[PathBuf] {
        self.looking().map_or(&[], |looking| &looking.backup_files)
    }

    fn looking(&self) -> Option<&OverlayArgs> {
        Some(match self {
            Self::Scan(args) => &args.overlay,
            Self::Examine(args) => &args.overlay,
            Self::Cat(args) => &args.overlay,
            Self::Copy(args) => &args.overlay,
            Self::Ls(args) => &args.on.overlay,
            Self::Get(args) => &args.on.overlay,
            Self::Serve(args) => &args.overlay,
            Self::Why(args) => &args.overlay,
            // `mount` leaves it to the server that it starts.
            _ => return None,
        })
    }
}

/// Shows what is on members: arrays and their health, and what else is there.
///
/// Writes nothing. Members are found by what is on them, so their order does not matter, and others
/// may be among them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle scan /dev/sd[b-f]
  wattle scan --json disk*.img | jq '.arrays[].health'
  wattle scan disk*.img --svg stack.svg         the same as a picture")]
pub struct ScanArgs {
    /// Files, block devices, made-up drives.
    #[arg(value_name = "MEMBER", required = true, value_parser = name_text())]
    pub members: Vec<String>,
    /// Draw what lies on what into this file as well.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    #[command(flatten)]
    pub maps: MapArgs,
    #[command(flatten)]
    pub overlay: OverlayArgs,
    #[command(flatten)]
    pub force: Force,
    #[command(flatten)]
    pub json: Json,
}

/// Shows every field of the metadata on members.
///
/// Superblocks, valid or not, bitmaps, bad-block logs, partial parity logs and journal headers.
/// Writes nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle examine disk0.img
  wattle examine --json /dev/sdb | jq '.members[].superblocks[].fields.events'
  wattle examine --format export disk0.img      as mdadm --examine --export prints it
  wattle examine --format scan disk*.img        lines for mdadm.conf")]
pub struct ExamineArgs {
    /// Files or block devices.
    #[arg(value_name = "MEMBER", required = true, value_parser = name_text())]
    pub members: Vec<String>,
    /// As mdadm 4.2 prints it, for scripts: mdadm (--examine), export (--examine --export), scan
    /// (--examine --scan), scan-verbose (the same with -v).
    #[arg(long, value_name = "FORMAT", value_enum, conflicts_with = "json")]
    pub format: Option<ExamineFormat>,
    #[command(flatten)]
    pub maps: MapArgs,
    #[command(flatten)]
    pub overlay: OverlayArgs,
    #[command(flatten)]
    pub json: Json,
}

/// Writes a volume's bytes to the standard output.
///
/// Writes nothing to members.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle cat disk*.img > array.raw
  wattle cat disk*.img --offset 1M --length 4K | hexdump -C
  wattle cat disk*.img --report cat.txt > array.raw     with what is missing, and why")]
pub struct CatArgs {
    /// Files or block devices, in any order, others among them.
    #[arg(value_name = "MEMBER", required = true, value_parser = name_text())]
    pub members: Vec<String>,
    /// The volume, by name or UUID; needed if there are several.
    #[arg(long, short = 'V', value_name = "VOLUME")]
    pub volume: Option<String>,
    /// Where to start.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub offset: Size,
    /// How much [default: to the end].
    #[arg(long, value_name = "SIZE")]
    pub length: Option<Size>,
    /// Write what came out, and what not and why, here. As JSON if FILE ends in .json. A file that
    /// is there is not replaced.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub maps: MapArgs,
    #[command(flatten)]
    pub overlay: OverlayArgs,
    #[command(flatten)]
    pub force: Force,
    #[command(flatten)]
    pub engine: Engine,
}

/// Shows the arrays being served: members, health, background work and what limits it, what checks
/// found.
///
/// With --check the exit status tells: 0 good, 1 degraded, not synced, or a member does not answer,
/// 2 unusable, 4 cannot tell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle status
  wattle status data --check || echo 'look at it'
  wattle status --mdstat                        as in /proc/mdstat
  wattle status --smart                         with what drives say of themselves
  wattle status --json | jq '.arrays[] | {name, health}'")]
pub struct StatusArgs {
    /// The array, volume group, volume or server, by name or UUID [default: all].
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Tell by the exit status: 0 good, 1 degraded or not synced, 2 unusable, 4 cannot tell.
    #[arg(long)]
    pub check: bool,
    /// In the format of /proc/mdstat.
    #[arg(long, conflicts_with = "json")]
    pub mdstat: bool,
    /// Asks the drives below members how they are, by smartctl; waits at most ten seconds.
    #[arg(long, conflicts_with_all = ["mdstat", "check"])]
    pub smart: bool,
    #[command(flatten)]
    pub json: Json,
    #[command(flatten)]
    pub runtime: Runtime,
}

/// Explains an array: what was decided about each member, from which event counts and times, and
/// what helps.
///
/// Of an array that is being served, by its name; or, without a server, of what is on members.
/// Writes nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle why data                               an array that is being served
  wattle why data --slow                        what holds it back just now
  wattle why /dev/sd[b-f]                       why these members would be used as they would")]
pub struct WhyArgs {
    /// The name or UUID of an array, volume group or volume that is served, or members.
    #[arg(value_name = "NAME|MEMBER", required = true, value_parser = name_text())]
    pub targets: Vec<String>,
    /// Watches an array that is being served for a while and names what holds it back: a member,
    /// the processor, the depth of the clients' queue, flushes, or requests that are not aligned.
    #[arg(long)]
    pub slow: bool,
    /// Shows what an array that is being served decided by itself about its speed, from which
    /// measurements, and which settings override that.
    #[arg(long, conflicts_with = "slow")]
    pub tuning: bool,
    /// For how many seconds to watch.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = parse_seconds, requires = "slow")]
    pub interval: Duration,
    #[command(flatten)]
    pub maps: MapArgs,
    #[command(flatten)]
    pub overlay: OverlayArgs,
    #[command(flatten)]
    pub force: Force,
    #[command(flatten)]
    pub json: Json,
    #[command(flatten)]
    pub runtime: Runtime,
}

/// Explains the code of an error or of a finding.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle explain WTL-0049
  wattle explain AUD-104                        what `wattle audit` found
  wattle explain                                every code")]
pub struct ExplainArgs {
    /// WTL-0049 or 49, AUD-104 [default: list all].
    #[arg(value_name = "CODE")]
    pub code: Option<String>,
    #[command(flatten)]
    pub json: Json,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        // clap finds clashing short options and impossible defaults only when asked.
        Cli::command().debug_assert();
    }

    /// The words of every command of ours in a line of the shell.
    fn typed(line: &str) -> Vec<Vec<String>> {
        let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
        let mut spaces = 0;
        for c in line.chars() {
            match (quote, c) {
                // What comes behind is a remark.
                (None, ' ') if spaces == 1 => break,
                (None, ' ') => {
                    words.push(std::mem::take(&mut word));
                    spaces = 1;
                    continue;
                }
                (None, '\'' | '"') => quote = Some(c),
                (Some(open), _) if open == c => quote = None,
                _ => word.push(c),
            }
            spaces = 0;
        }
        words.extend((!word.is_empty()).then_some(word));
        let commands = words.split(|word| matches!(word.as_str(), "|" | "||" | "&&" | ">" | "<" | ";"));
        commands
            .filter(|words| words.first().is_some_and(|word| word == "wattle"))
            .map(<[_]>::to_vec)
            .collect()
    }

    fn check_examples(command: &clap::Command, path: &str, seen: &mut usize) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines().filter_map(|line| line.strip_prefix("  ")) {
            for words in typed(line) {
                let parsed = Cli::try_parse_from(&words);
                assert!(parsed.is_ok(), "{path}: {line}: {}", parsed.unwrap_err());
                *seen += 1;
            }
        }
        for inner in command.get_subcommands() {
            check_examples(inner, &format!("{path} {}", inner.get_name()), seen);
        }
    }

    #[test]
    fn what_help_shows_can_be_typed() {
        let mut seen = 0;
        check_examples(&Cli::command(), "wattle", &mut seen);
        assert!(seen > 80, "{seen} examples");
    }

    /// Every command, and those in it.
    fn check_help(command: &mut clap::Command, path: &str) {
        for text in [command.render_help(), command.render_long_help()] {
            let text = text.to_string();
            let does = text.split_whitespace().next().unwrap_or_default().trim_end_matches(',');
            let says_what_it_does = does.starts_with(char::is_uppercase) && does.ends_with('s');
            assert!(says_what_it_does || path == "wattle", "{path} does not begin with what it does: {text}");
            let (before, examples) = text.rsplit_once("\n\nExamples:\n").unwrap_or((&text, ""));
            assert!(before.contains("Usage: "), "{path}: examples come last: {text}");
            let mut lines = examples.trim_end().lines().peekable();
            assert!(lines.peek().is_some(), "{path} has no examples");
            assert!(lines.all(|line| line.starts_with("  ")), "{path} does not end with examples: {text}");
            let typed = format!("{path} ");
            assert!(
                path == "wattle" || examples.contains(&typed) || examples.contains(&format!("{path}\n")),
                "{path}: no example of it"
            );
        }
        for inner in command.get_subcommands_mut() {
            let path = format!("{path} {}", inner.get_name());
            check_help(inner, &path);
        }
    }

    #[test]
    fn help_begins_with_what_a_command_does_and_ends_with_examples() {
        check_help(&mut Cli::command(), "wattle");
    }
}
