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
mod keys;
mod located;
mod members;
mod notify;
mod output;
mod saving;
mod target;
mod volumes;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, FromArgMatches};
use wattle_control::members::MemberAccess;
use wattle_server::remotes::Remotes;

/// Does what was typed and says how it ended.
pub fn run() -> ExitCode {
    let remotes = Remotes::new(environment::certificate_dirs());
    let access = MemberAccess::local()
        .with_remotes(Arc::new(move |names: &[&str], within| remotes.open_each(names, within)));
    let matches = cli::Cli::command().try_get_matches_from(cli::without_help_word(std::env::args_os()));
    let typed =
        matches.and_then(|matches| Ok((cli::Cli::from_arg_matches(&matches)?, cli::wants_json(&matches))));
    match typed {
        Ok((cli, json)) => commands::run(cli, json, access),
        Err(error) => output::usage(&error, cli::may_want_json(std::env::args_os())),
    }
}
