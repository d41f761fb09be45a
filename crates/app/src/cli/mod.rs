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
mod simulate;
mod top;
mod undo;
mod up;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use wattle_control::Check;
use wattle_control::size::parse_size;
use wattle_control::units::Units;
use wattle_export::Address;
use wattle_operate::http::HttpAddress;
use wattle_rt::{BackendChoice, Processors};
use wattle_server::array::MadeUpShape;

pub use alerts::{AckArgs, AlertFiles, AlertListArgs, AlertTestArgs, AlertsArgs, AlertsCommand, WatchArgs};
pub use audit::AuditArgs;
pub use bench::BenchArgs;
pub use compat::CompatArgs;
pub use console::ConsoleArgs;
pub use copy::CopyArgs;
pub use detail::{DetailArgs, DetailFormat, ExamineFormat};
pub use exporter::{ExporterArgs, HttpArgs, SnmpArgs};
pub use files::{FilesOn, GetArgs, LsArgs};
pub use generate::{GenerateArgs, Generated};
pub use json::{Json, may_want_json, wants_json};
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
    /// Write what came out, and what not and why, here. As JSON if FILE ends in .json.
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

/// Serves arrays to clients, as files or as block devices, in the foreground, until a signal or
/// `wattle stop`.
///
/// Writes to members when a client writes, and then keeps their superblocks as the kernel would.
/// Members are locked against a second owner.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle serve disk*.img --export nbd=unix:/run/user/1000/array.sock
  wattle serve /dev/sd[b-f] --read-only --export nbd=tcp:127.0.0.1:10809
  wattle serve /dev/sd[b-f] --export nbd=tcp:192.0.2.1:10809 --tls-certificates /etc/wattle/tls
  wattle serve disk*.img --export nvme-tcp=127.0.0.1:4420   each array a namespace, for nvme connect
  wattle serve disk*.img --export fuse=/mnt/arrays       each array a file there, for loop devices and QEMU
  wattle serve /dev/sd[b-f] --export ublk               each volume a block device: /dev/ublkbN, by ublk
  wattle serve disk*.img --run 'nbdcopy \"$uri\" copy.raw'
  wattle serve disk*.img --overlay /tmp/try             try anything: members stay as they are
  wattle serve disk*.img --metrics 127.0.0.1:9935       and tell Prometheus how they are
  wattle serve mem:64M mem:64M mem:64M --level 5        an array without metadata, gone at the end")]
pub struct ServeArgs {
    /// Files, block devices, made-up drives, in any order, others among them. Made up are mem:SIZE,
    /// null:SIZE and model:PRESET; PRESET is x25m, sata7200, sata7200-small, sata-ssd, nvme, qlc or
    /// nvme-ref.
    #[arg(value_name = "MEMBER", required = true, value_parser = name_text())]
    pub members: Vec<String>,
    /// Serve only this volume, by name or UUID; may be given several times [default: all].
    #[arg(long = "volume", short = 'V', value_name = "VOLUME")]
    pub volumes: Vec<String>,
    /// nbd=unix:PATH, nbd=tcp:HOST:PORT, nvme-tcp=HOST:PORT, fuse=DIR, vhost-user=DIR (a socket of
    /// each volume for virtual machines) or ublk[=N][,md] (block devices, from number N on; with md
    /// in /dev/md too); may be given several times [default: nbd=unix: in the runtime directory]. A
    /// port that other machines reach takes --tls-certificates, or
    /// --insecure; one of NVMe --nvme-secrets, or --insecure.
    #[arg(long = "export", value_name = "TYPE=ADDRESS")]
    pub exports: Vec<Address>,
    #[command(flatten)]
    pub nbd: NbdArgs,
    /// With nvme-tcp: only hosts that have a secret there connect, and prove it (DH-HMAC-CHAP).
    /// Lines of a host's NQN and its secret, as `nvme gen-dhchap-key` makes them.
    #[arg(long, value_name = "FILE", requires = "exports")]
    pub nvme_secrets: Option<PathBuf>,
    /// Refuse writes, and write nothing to members, not even an event count.
    #[arg(long, short)]
    pub read_only: bool,
    /// Whether an array may start with members missing: auto starts it wherever all data is there.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = DegradedArg::Auto)]
    pub degraded: DegradedArg,
    /// A setting to start with, as `wattle set --help` lists them; may be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
    /// What the server steers itself towards while background work runs beside clients: throughput,
    /// latency, or a time within which 99 of 100 requests are to be answered, such as 20ms; as
    /// --set goal=GOAL.
    #[arg(long, value_name = "GOAL")]
    pub goal: Option<String>,
    /// Directory of scrub histories [default: $WATTLE_STATE_DIR, $XDG_STATE_HOME/wattle,
    /// ~/.local/state/wattle, or as root /var/lib/wattle].
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Run CMD in a shell once ready, with $uri, $unixsocket, $nbd, $file, $mkfs_xfs and $mkfs_ext4
    /// set, and with nvme-tcp $nvme_host, $nvme_port and $nvme_nqn, and end when it ends, with its
    /// status. A server that is to end before asks it to (SIGTERM), and kills it after 10 seconds
    /// or at a second signal.
    #[arg(long, value_name = "CMD")]
    pub run: Option<String>,
    /// End when the file of an array was opened and is closed again.
    #[arg(long, hide = true)]
    pub until_closed: bool,
    /// Serve metrics to Prometheus as well, at IP:PORT or unix:PATH: see `wattle exporter`.
    #[arg(long, value_name = "ADDRESS", value_parser = exporter::parse_address)]
    pub metrics: Option<HttpAddress>,
    #[command(flatten)]
    pub http: HttpArgs,
    /// Name of this server, for its socket in the runtime directory [default: the first array's].
    #[arg(long)]
    pub name: Option<String>,
    /// Write the process id here once ready.
    #[arg(long, value_name = "FILE")]
    pub pidfile: Option<PathBuf>,
    /// Once ready, write a line of JSON with the volumes and the ways to them.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub saving: SavingArgs,
    #[command(flatten)]
    pub maps: MapArgs,
    #[command(flatten)]
    pub overlay: OverlayArgs,
    #[command(flatten)]
    pub made_up: MadeUp,
    #[command(flatten)]
    pub force: Force,
    #[command(flatten)]
    pub engine: Engine,
    #[command(flatten)]
    pub runtime: Runtime,
}

/// How NBD over TCP is protected.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "NBD over TCP")]
pub struct NbdArgs {
    /// Speak TLS with server-cert.pem and server-key.pem of this directory, with clients that have
    /// a certificate of ca-cert.pem there; ca-crl.pem revokes some. Files that are renewed are read
    /// again.
    #[arg(long, value_name = "DIR", requires = "exports")]
    pub tls_certificates: Option<PathBuf>,
    /// Hear clients without a certificate too: what they send is encrypted, and every
    /// machine can be one.
    #[arg(long, requires = "tls_certificates")]
    pub tls_any_client: bool,
}

impl ServeArgs {
    /// All that is to be set at the start.
    pub fn settings(&self) -> Vec<String> {
        let goal = self.goal.iter().map(|goal| format!("goal={goal}"));
        self.settings.iter().cloned().chain(goal).collect()
    }
}

/// `--degraded`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DegradedArg {
    /// Start it, and say what is missing.
    Auto,
    /// Refuse it.
    Never,
}

/// An array without metadata over made-up drives.
#[derive(Debug, Clone, Args)]
#[command(
    next_help_heading = "Array without metadata (only mem:, null: and model: members, in the order given)"
)]
pub struct MadeUp {
    /// linear, 0, 1, 4, 5, 6 or 10.
    #[arg(long)]
    pub level: Option<String>,
    /// Bytes per member before the next member's turn [default: 512K].
    #[arg(long, value_name = "SIZE", requires = "level")]
    pub chunk: Option<Size>,
    /// Where parity or copies go [default: as mdadm].
    #[arg(long, requires = "level")]
    pub layout: Option<String>,
}

impl MadeUp {
    /// What such an array of this level is to be.
    pub fn shape<'a>(&'a self, level: &'a str) -> MadeUpShape<'a> {
        MadeUpShape { level, chunk_bytes: self.chunk.map(|size| size.0), layout: self.layout.as_deref() }
    }
}

/// Shows the arrays being served: members, health, background work and what limits it, what checks
/// found.
///
/// With --check the exit status tells: 0 good, 1 degraded or not synced, 2 unusable, 4 cannot tell.
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

/// `--force`.
#[derive(Debug, Clone, Args)]
pub struct Force {
    /// Override one safety check, the one that a refusal named; may be given several times.
    #[arg(long = "force", value_name = "CHECK", value_parser = check_parser())]
    pub checks: Vec<Check>,
}

/// `--overlay` and `--backup-file`.
#[derive(Debug, Clone, Args)]
pub struct OverlayArgs {
    /// Only read members: what is written to them goes to files in DIR, which is made if it is not
    /// there, and is found there the next time.
    #[arg(long = "overlay", value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// A backup file of `mdadm --grow`, of an array that died in the middle of it; may be given
    /// several times. It is only read.
    #[arg(long = "backup-file", value_name = "FILE")]
    pub backup_files: Vec<PathBuf>,
}

/// How the work is done.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Engine")]
pub struct Engine {
    /// Threads, each with its own ring [default: by the number of processors].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub cores: Option<u16>,
    /// Processors for the threads, one for each, like 2-5,8 [default: where the machine has several
    /// memory nodes, those of one, the members' if it is known].
    #[arg(long, value_name = "LIST")]
    pub processors: Option<Processors>,
    /// auto, uring or syscall: auto falls back to system calls where io_uring is forbidden.
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = backend_parser())]
    pub backend: BackendChoice,
}

impl Engine {
    /// One thread, for what is soon done.
    pub fn small(backend: BackendChoice) -> Self {
        Self { cores: Some(1), processors: None, backend }
    }
}

/// Where servers are found.
#[derive(Debug, Clone, Args)]
pub struct Runtime {
    /// Directory of control sockets [default: $WATTLE_RUNTIME_DIR, $XDG_RUNTIME_DIR/wattle, or
    /// /run/wattle].
    #[arg(long, value_name = "DIR")]
    pub runtime_dir: Option<PathBuf>,
}

/// A number of bytes, with or without a suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = wattle_control::size::SizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_size(text).map(Self)
    }
}

/// What a drive is sold as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriveSize(pub u64);

impl FromStr for DriveSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let size = wattle_drives::drive_bytes(text).map(Self);
        size.ok_or_else(|| format!("`{text}` is not a size of a drive, such as 20T, 3.84TB or 1TiB"))
    }
}

fn check_parser() -> impl clap::builder::TypedValueParser<Value = Check> {
    use clap::builder::TypedValueParser;
    let names = Check::ALL.iter().map(|check| check.name());
    clap::builder::PossibleValuesParser::new(names)
        .map(|name| name.parse::<Check>().expect("only names of checks pass the parser"))
}

fn backend_parser() -> impl clap::builder::TypedValueParser<Value = BackendChoice> {
    use clap::builder::TypedValueParser;
    clap::builder::PossibleValuesParser::new(["auto", "uring", "syscall"]).map(|name| match name.as_str() {
        "uring" => BackendChoice::Uring,
        "syscall" => BackendChoice::Syscall,
        _ => BackendChoice::Auto,
    })
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
