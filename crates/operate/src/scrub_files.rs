//! Which files lie where a check or repair found something: as the page, alerts and commands tell
//! it.

use serde::Serialize;
use wattle_server::protocol::report::{ArrayReport, RangeReport, ScrubReport};

/// Files that are kept of a run.
pub const SCRUB_FILES_MAX: usize = 100;

/// The files on the places of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ScrubFiles {
    /// The run: [`ScrubReport::run`].
    pub run: u64,
    /// At most [`SCRUB_FILES_MAX`].
    pub files: Vec<ScrubFile>,
    /// So many more were found.
    pub more: usize,
    /// What cannot be told, and why: places of no file, file systems that cannot be read.
    pub notes: Vec<String>,
}

/// A file, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScrubFile {
    /// The volume that its file system is on; absent where that is the array's own.
    pub volume: Option<String>,
    /// From the root of the file system; a directory ends with `/`.
    pub path: String,
    /// Which bytes of it; absent where only reading it showed that it is touched.
    pub bytes: Option<RangeReport>,
}

impl ScrubFiles {
    /// Each file once, with its volume where it is not the array's own.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for file in &self.files {
            let name = match &file.volume {
                Some(volume) => format!("{volume}: {}", file.path),
                None => file.path.clone(),
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// The run whose files can be named: the last one that came to its end, if it found something. What
/// an earlier one found may be other files' by now.
#[must_use]
pub fn to_be_named(array: &ArrayReport) -> Option<&ScrubReport> {
    array.last_done().filter(|run| !run.mismatches.is_empty() || run.unreadable_sectors > 0)
}
