//! What the page is given by the program that it is part of.

use std::collections::BTreeMap;

use serde_json::Value;
use wattle_control::Problem;
use wattle_server::protocol::report::{ArrayReport, ScrubReport, ServerReport};

use super::view::{AlertsView, DriveView};
use crate::scrub_files::ScrubFiles;

/// The documents of the command line, and what is known beside servers. All of it may wait.
pub trait ConsoleDocuments: Send + Sync + 'static {
    /// As `wattle status --json`.
    fn status(&self) -> Value;

    /// As `wattle why NAME --json`, or of all arrays.
    ///
    /// # Errors
    /// There is no such array.
    fn why(&self, array: Option<&str>) -> Result<Value, Problem>;

    /// As `wattle audit --json`.
    ///
    /// # Errors
    /// It cannot look.
    fn audit(&self) -> Result<Value, Problem>;

    /// The files that lie where a check or repair found something. May take minutes.
    fn files(&self, _server: &ServerReport, _array: &ArrayReport, run: &ScrubReport) -> ScrubFiles {
        ScrubFiles { run: run.run, ..ScrubFiles::default() }
    }

    /// What the drives of these members say of themselves, as far as they can be asked.
    fn drives(&self, _members: &[String]) -> BTreeMap<String, DriveView> {
        BTreeMap::new()
    }

    /// How alerts are.
    fn alerts(&self) -> AlertsView {
        AlertsView::default()
    }
}
