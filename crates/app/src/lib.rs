//! The `wattle` command: software RAID and volumes in user space.
//!
//! This crate is the only one that prints, ends the process, or reads arguments and the environment. Reading order: `cli` (what
//! can be typed), `commands` (one file per command: from what was typed to what is meant, then the work), `output` (how it is
//! shown), `control_socket` (how commands talk to a running `wattle serve`). It is a library so that `fuzz/` reaches what it reads.

mod cli;
mod commands;
mod control_socket;
pub mod fuzzing;
mod members;
mod output;
mod remotes;
mod saving;
mod serving;
mod volumes;

use std::process::ExitCode;

use clap::Parser;

/// Does what was typed and says how it ended.
pub fn run() -> ExitCode {
    wattle_control::members::open_remotes_with(remotes::open);
    match cli::Cli::try_parse() {
        Ok(cli) => commands::run(cli),
        Err(error) => output::usage(&error),
    }
}
