//! The `wattle` command: software RAID and volumes in user space.
//!
//! This crate is the only one that prints, ends the process, or reads arguments and the
//! environment. Reading order: `cli` (what can be typed), `commands` (one file per command: from
//! what was typed to what is meant, then the work), `output` (how it is shown), `target` (the
//! array of a running server that a command is about). What a server is and does is the crate
//! `wattle-server`. It is a library so that `fuzz/` reaches what it reads.

mod cli;
mod commands;
mod environment;
pub mod fuzzing;
mod members;
mod output;
mod saving;
mod target;
mod volumes;

use std::process::ExitCode;

use clap::Parser;

/// Does what was typed and says how it ended.
pub fn run() -> ExitCode {
    wattle_control::members::open_remotes_with(wattle_server::remotes::open);
    match cli::Cli::try_parse() {
        Ok(cli) => commands::run(cli),
        Err(error) => output::usage(&error),
    }
}
