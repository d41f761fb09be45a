//! What a command that gave an order reports: for people as it happens, as JSON at its end.

use std::path::PathBuf;

use serde::Serialize;
use wattle_control::Problem;
use wattle_server::protocol::SCHEMA_VERSION;
use wattle_server::protocol::report::ArrayReport;
use wattle_server::socket::client::ServerAnswer;

use crate::cli::Json;
use crate::output::text::printable;
use crate::{output, saving};

/// What a server did, and what was seen after it.
#[derive(Debug, Serialize)]
pub struct OrderReport {
    schema_version: u32,
    /// What the server said of each order.
    messages: Vec<String>,
    /// What saves what it overwrote.
    undo_log: Option<PathBuf>,
    /// The array at the end of what was waited for.
    array: Option<ArrayReport>,
}

impl OrderReport {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { schema_version: SCHEMA_VERSION, messages: Vec::new(), undo_log: None, array: None }
    }

    /// Reports what a server did.
    pub fn answer(&mut self, answer: ServerAnswer) {
        output::note(&printable(&answer.message));
        answer.undo_log.iter().for_each(|log| saving::tell_joined(log));
        self.messages.push(answer.message);
        self.undo_log = answer.undo_log.or(self.undo_log.take());
    }

    /// Notes the array as it was when the waiting ended.
    pub fn ended(&mut self, array: ArrayReport) {
        self.array = Some(array);
    }

    /// All of it, where JSON is wanted.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn finish(self, json: &Json) -> Result<(), Problem> {
        if json.json { output::print_json(&self) } else { Ok(()) }
    }
}
