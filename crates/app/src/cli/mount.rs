//! `wattle mount` and `wattle umount`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{DegradedArg, Engine, Force, MapArgs, OverlayArgs, Runtime, SavingArgs, name_text};

/// Mounts the file system on a volume, read-only unless told otherwise. Needs root.
///
/// Of members, a server is started in the background; it ends by itself when the file system is
/// unmounted, by `wattle umount` or any other way, and gives the members back. Of an array that is
/// being served with --export fuse=DIR or ublk, its file or device is used. Read-only, nothing is
/// written to any member: what a file system has only in its log, because it was not unmounted, is
/// left out and that is said. Programs on it gain no rights (nosuid), and its device files lead
/// nowhere (nodev), unless --suid-dev says otherwise.
#[derive(Debug, Args)]
#[command(
    after_help = "\
Examples:
  wattle mount disk*.img /mnt
  wattle mount /dev/sd[b-f] -V data /mnt --write
  wattle mount /dev/sd[b-f] /mnt --write --overlay /tmp/try    written there, and not to the drives
  wattle mount data /mnt                        an array that is being served (--export fuse=DIR or ublk)",
    override_usage = "wattle mount [OPTIONS] <NAME|MEMBER>... <DIR>"
)]
pub struct MountArgs {
    /// Members, or the name of an array that is being served; and last the directory.
    #[arg(value_name = "NAME|MEMBER", required = true, value_parser = name_text())]
    pub targets: Vec<String>,
    /// The volume on the members, by name or UUID; needed if there are several.
    #[arg(long, short = 'V', value_name = "VOLUME")]
    pub volume: Option<String>,
    /// Let the file system be written. Logs are replayed then, and superblocks kept as the kernel
    /// would.
    #[arg(long, short)]
    pub write: bool,
    /// The file system [default: what is found].
    #[arg(long = "type", short = 't', value_name = "TYPE")]
    pub kind: Option<String>,
    /// Honour set-user-ID programs and device files of the file system: its maker is trusted
    /// as root is.
    #[arg(long)]
    pub suid_dev: bool,
    /// More options for mount(8), as there.
    #[arg(long, short, value_name = "OPTIONS")]
    pub options: Option<String>,
    /// Whether an array may start with members missing: auto starts it wherever all data is there.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = DegradedArg::Auto)]
    pub degraded: DegradedArg,
    #[command(flatten)]
    pub maps: MapArgs,
    #[command(flatten)]
    pub overlay: OverlayArgs,
    #[command(flatten)]
    pub saving: SavingArgs,
    #[command(flatten)]
    pub force: Force,
    #[command(flatten)]
    pub runtime: Runtime,
}

/// Unmounts what `wattle mount` mounted, and waits until its members are given back; or removes a
/// block device that a server has left.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle umount /mnt
  wattle umount /dev/ublkb0")]
pub struct UmountArgs {
    /// The directory; or the block device, of `serve --export ublk`, that no server has any more.
    #[arg(value_name = "DIR|DEVICE")]
    pub dir: PathBuf,
    /// Remove the device though it is in use: what waits for it, and whatever is asked of it later,
    /// fails.
    #[arg(long, value_enum, value_name = "WHAT", require_equals = true)]
    pub force: Option<UmountForce>,
    #[command(flatten)]
    pub engine: Engine,
}

/// What is overruled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UmountForce {
    /// The device is mounted, or otherwise in use.
    InUse,
}
