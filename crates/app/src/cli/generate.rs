//! `wattle generate`: what packages are made of.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Writes man pages or completions of shells, for packages.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wattle generate man /tmp/man                  a page for each command
  wattle generate completions /tmp/completions  for bash, zsh and fish")]
pub struct GenerateArgs {
    /// What to write.
    #[arg(value_name = "WHAT", value_enum)]
    pub what: Generated,
    /// Where; it is made if it is not there.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// What can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Generated {
    /// A man page for each command.
    Man,
    /// Completions for bash, zsh and fish.
    Completions,
}
