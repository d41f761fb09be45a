//! Findings that are known and accepted, in a file: a code and what it is about. Numbers may change
//! without making it a new one.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::{fs, io};

use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use wattle_advise::audit::{AuditReport, Finding};
use wattle_control::{Code, Problem};
use wattle_server::protocol::SCHEMA_VERSION;

use crate::output;

/// What is known.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Known(BTreeSet<Entry>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Entry {
    code: String,
    subject: String,
}

#[derive(Serialize, Deserialize)]
struct File {
    schema_version: u32,
    findings: Vec<Entry>,
}

impl Known {
    /// # Errors
    /// The text is no baseline.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let file: File = serde_json::from_str(text)?;
        if file.schema_version != SCHEMA_VERSION {
            let what = format!("its schema_version is {}, not {SCHEMA_VERSION}", file.schema_version);
            return Err(serde_json::Error::custom(what));
        }
        Ok(Self(file.findings.into_iter().collect()))
    }

    /// Whether a finding is among it.
    pub fn has(&self, finding: &Finding) -> bool {
        self.0.contains(&entry(finding))
    }
}

fn entry(finding: &Finding) -> Entry {
    Entry { code: finding.code.id(), subject: finding.subject.clone() }
}

/// # Errors
/// The file cannot be read, or is no baseline.
pub fn read(path: &Path) -> Result<Known, Problem> {
    let text = std::fs::read_to_string(path).map_err(|error| wrong(path, &error))?;
    Known::parse(&text).map_err(|error| wrong(path, &error))
}

/// Writes what was found, and what was known before, as a baseline.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, report: &AuditReport, known: Known) -> Result<(), Problem> {
    let mut entries = known.0;
    entries.extend(report.findings.iter().map(entry));
    let count = entries.len();
    let file = File { schema_version: SCHEMA_VERSION, findings: entries.into_iter().collect() };
    let mut text = serde_json::to_string_pretty(&file).expect("a baseline has string keys only");
    text.push('\n');
    replace(path, text.as_bytes()).map_err(|error| {
        Problem::new(
            Code::OutputFailed,
            format!("{}: {error}", path.display()),
            "the baseline could not be written",
            "name a file in a directory that can be written",
        )
    })?;
    output::note(&format!("{count} findings are in {}", path.display()));
    Ok(())
}

/// Puts this in the place of what the file holds: whatever comes between, it holds the one or the
/// other, for what is known is nowhere else.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    // A link stays one.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(&path).ok();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        // A pipe or a terminal.
        return fs::write(&path, text);
    }
    let mut new = path.clone().into_os_string();
    new.push(format!(".{}.new", std::process::id()));
    let write = || {
        let mut file = fs::File::create_new(&new)?;
        if let Some(old) = &old {
            file.set_permissions(old.permissions())?;
        }
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&new, &path)
    };
    if let Err(error) = write() {
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    fs::File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
}

fn wrong(path: &Path, error: &dyn std::fmt::Display) -> Problem {
    Problem::new(
        Code::Usage,
        format!("--baseline {}: {error}", path.display()),
        "what is known cannot be told from what is new without it",
        "make one: wattle audit --write-baseline FILE",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_baseline_that_cannot_be_written_stays_what_it_was() {
        let temp = tempfile::tempdir().unwrap();
        let (path, link) = (temp.path().join("known"), temp.path().join("link"));
        replace(&path, b"one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("known", &link).unwrap();
        replace(&link, b"two").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 2, "nothing is left beside it");
        // Something is in the way of the new file.
        fs::create_dir(temp.path().join(format!("known.{}.new", std::process::id()))).unwrap();
        assert!(replace(&path, b"three").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"two");
    }
}
