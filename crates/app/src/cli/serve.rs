//! `wattle serve …`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use wattle_export::Address;
use wattle_operate::http::HttpAddress;
use wattle_server::array::MadeUpShape;

use super::{Engine, Force, HttpArgs, MapArgs, OverlayArgs, Runtime, SavingArgs, Size, exporter, name_text};

/// Serves arrays to clients, as files or as block devices, in the foreground, until a signal or
/// `wattle stop`.
///
/// Writes to members when a client writes, and then keeps their superblocks as the kernel would.
/// Members are locked against a second owner; one across a network cannot be, and a second server
/// is noticed when it writes.
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
    /// Lines of a host's NQN and its secret, as `nvme gen-dhchap-key` makes them, and the secret
    /// that the controller proves itself to this host with, if it is to.
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
