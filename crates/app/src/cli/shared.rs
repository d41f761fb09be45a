//! Options that several commands have, and values of options.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use wattle_control::Check;
use wattle_control::size::parse_size;
use wattle_rt::{BackendChoice, Processors};

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
