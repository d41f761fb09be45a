//! `detail`, and what mdadm's formats are called.

use clap::{Args, ValueEnum};

use super::Runtime;

/// Shows arrays being served as mdadm shows running ones, for scripts that parse it.
///
/// Byte by byte as mdadm 4.2 prints it of the same array under Linux; docs/scripts.md says what
/// differs. `wattle status` shows more.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle detail data                            as mdadm --detail /dev/md/data
  wattle detail data --format export            as with --export
  wattle detail --format scan                   lines for mdadm.conf, of all arrays")]
pub struct DetailArgs {
    /// The array, volume group, volume or server, by name or UUID [default: all].
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// As mdadm 4.2 prints it: mdadm (--detail), export (--detail --export), scan (--detail
    /// --scan), scan-verbose (the same with -v).
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = DetailFormat::Mdadm)]
    pub format: DetailFormat,
    #[command(flatten)]
    pub runtime: Runtime,
}

/// `detail --format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DetailFormat {
    /// `--detail`.
    Mdadm,
    /// `--detail --export`.
    Export,
    /// `--detail --scan`.
    Scan,
    /// `--detail --scan -v`.
    ScanVerbose,
}

/// `examine --format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExamineFormat {
    /// `--examine`.
    Mdadm,
    /// `--examine --export`.
    Export,
    /// `--examine --scan`.
    Scan,
    /// `--examine --scan -v`.
    ScanVerbose,
}
