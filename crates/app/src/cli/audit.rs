//! `wattle audit`.

use std::path::PathBuf;

use clap::{Args, Parser, ValueEnum};
use wattle_advise::audit::Severity;
use wattle_control::{Code, Problem};

use super::{Force, Json, MapArgs, name_text};

/// Finds what is wrong with a stack: misaligned, slow, unprotected or unwatched, with the numbers,
/// what it costs and what to do.
///
/// Without members: of this machine, from its drives, /sys, /proc and /etc. With members: of what
/// is on them. Writes nothing to members. What could not be checked is listed, with the reason.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0 nothing as bad as --fail-on, 1 something is or it failed, 2 usage, 3 refused by a safety check.

Examples:
  wattle audit                                  this machine, as root
  wattle audit disk*.img                        what is on images
  wattle audit -v disk*.img                     and how fragmented its file systems are
  wattle audit --json --fail-on error | jq '.findings[].code'
  wattle audit --write-baseline known.json      from now on …
  wattle audit --baseline known.json            … only what is new
  wattle explain AUD-104")]
pub struct AuditArgs {
    /// Files, block devices [default: the drives of this machine].
    #[arg(value_name = "MEMBER", value_parser = name_text())]
    pub members: Vec<String>,
    /// The root of the system to look at, or of what was collected of one: DIR/sys, DIR/proc,
    /// DIR/etc, DIR/dev [default: / without members, no system with members].
    #[arg(long, value_name = "DIR")]
    pub sysroot: Option<PathBuf>,
    /// What the arrays are used for, in fio's terms: `rw=randwrite bs=4k`.
    #[arg(long, value_name = "LINE")]
    pub workload: Option<String>,
    /// The drives that reading is reckoned with, as `simulate` has them: `sata7200`,
    /// `nvme,read=5G` [default: by what the kernel says of them, or else sata7200].
    #[arg(long, value_name = "DRIVE")]
    pub drive: Option<String>,
    /// How many inodes of each file system are looked at; 0: none.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub inodes: u64,
    /// Show how files and free space of each file system lie, also where nothing is wrong with it.
    #[arg(short, long)]
    pub verbose: bool,
    /// How bad a finding has to be for exit status 1.
    #[arg(long, value_name = "SEVERITY", value_enum, default_value_t = FailOn::Warning)]
    pub fail_on: FailOn,
    /// Do not report findings that are in this file.
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Write what is found to this file, to be a baseline; the exit status is 0.
    #[arg(long, value_name = "FILE")]
    pub write_baseline: Option<PathBuf>,
    #[command(flatten)]
    pub maps: MapArgs,
    #[command(flatten)]
    pub force: Force,
    #[command(flatten)]
    pub json: Json,
}

impl AuditArgs {
    /// The arguments of these words, as if they had been typed.
    ///
    /// # Errors
    /// They are no arguments of it.
    pub fn of_words(words: impl IntoIterator<Item = String>) -> Result<Self, Problem> {
        #[derive(Parser)]
        struct Typed {
            #[command(flatten)]
            args: AuditArgs,
        }
        let typed = Typed::try_parse_from(words).map(|typed| typed.args);
        typed.map_err(|error| {
            Problem::new(
                Code::Usage,
                error.to_string(),
                "a member has a name that no argument can have",
                "rename it",
            )
        })
    }
}

/// `--fail-on`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    Note,
    Warning,
    Error,
    Never,
}

impl FailOn {
    /// Whether a finding is that bad.
    pub fn is_met_by(self, severity: Severity) -> bool {
        match self {
            Self::Never => false,
            Self::Note => true,
            Self::Warning => severity >= Severity::Warning,
            Self::Error => severity >= Severity::Error,
        }
    }
}
