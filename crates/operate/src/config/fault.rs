//! What is wrong in a file, and where.

use std::path::{Path, PathBuf};

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
    /// A file of a directory cannot be read.
    pub fn of_file(file: &Path, error: &std::io::Error) -> Self {
        Self {
            file: file.to_owned(),
            line: 1,
            code: Code::ConfigUnreadable,
            what: error.to_string(),
            why: "what this stack is to serve is said there".to_owned(),
            next: "make it readable for this user, or take it away".to_owned(),
        }
    }

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
