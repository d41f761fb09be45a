//! `--json`, and whether it was typed.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};

/// `--json`.
#[derive(Debug, Clone, Args)]
pub struct Json {
    /// JSON with a schema_version: sizes in bytes, times as RFC 3339.
    #[arg(long)]
    pub json: bool,
}

/// Whether the command that was typed is to answer in JSON.
pub fn wants_json(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some((_, command)) => wants_json(command),
        None => {
            matches.try_contains_id("json").is_ok()
                && matches.value_source("json") == Some(ValueSource::CommandLine)
        }
    }
}

/// The same of a command line that is not understood: as far as its words tell.
pub fn may_want_json(words: impl Iterator<Item = OsString>) -> bool {
    words.take_while(|word| word != "--").any(|word| word == "--json")
}

/// `wattle help COMMAND` is `wattle COMMAND --help`.
pub fn without_help_word(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<_> = words.collect();
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.push("--help".into());
    }
    words
}
