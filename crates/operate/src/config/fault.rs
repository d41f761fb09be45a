//! What is wrong in a file, and where.

use std::path::PathBuf;

use wattle_control::{Code, Problem};

/// What is wrong in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// Its code.
    pub code: Code,
    /// What is wrong.
    pub what: String,
    /// Why that is wrong.
    pub why: String,
    /// What to do.
    pub next: String,
}

impl ConfigFault {
    /// `FILE:LINE`.
    pub fn place(&self) -> String {
        format!("{}:{}", self.file.display(), self.line)
    }

    /// The same as a problem, with its place.
    pub fn problem(&self) -> Problem {
        Problem::new(
            self.code,
            format!("{}: {}", self.place(), self.what),
            self.why.clone(),
            self.next.clone(),
        )
    }
}
