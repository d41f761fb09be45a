//! Logs as files: saved so that a crash leaves a whole one or none, read back, listed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use wattle_format::undo::{FILE_BYTES_MAX, UndoLog, UndoLogError};

use crate::problem::{Code, Problem};

/// What the file of a log ends with.
const SUFFIX: &str = "undo";
/// What of a title a file's name takes.
const TITLE_BYTES_MAX: usize = 80;

/// Saves a log under a new name, durably.
pub(super) fn save(dir: &Path, title: &str, log: &UndoLog) -> Result<PathBuf, Problem> {
    let bytes = log.encode();
    let written = if bytes.len() as u64 > FILE_BYTES_MAX {
        Err(io::Error::from(ErrorKind::FileTooLarge))
    } else {
        write(dir, &name(title), &bytes)
    };
    written.map_err(|error| not_written(dir, &error))
}

/// A log could not be saved.
pub(super) fn not_written(dir: &Path, error: &dyn std::error::Error) -> Problem {
    Problem::new(
        Code::UndoNotWritten,
        format!("{}: {error}", dir.display()),
        "what is about to be overwritten is saved first, so that `wattle undo` can bring it back; nothing was changed",
        "make room or permissions there, or name another directory with --undo DIR; --no-undo goes on without saving anything",
    )
}

/// What a file is called: nothing that a shell or a directory could take for something else.
fn name(title: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    title[..title.floor_char_boundary(TITLE_BYTES_MAX)].chars().map(plain).collect()
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let dir = std::path::absolute(dir)?;
    let made = missing_part(&dir);
    DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    for number in 1.. {
        let number = if number == 1 { String::new() } else { format!("-{number}") };
        let path = dir.join(format!("{name}{number}.{SUFFIX}"));
        let new = path.with_extension("new");
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
        // Another command of this moment has it.
        let taken =
            path.exists() || file.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists);
        if taken {
            if file.is_ok() {
                fs::remove_file(&new)?;
            }
            continue;
        }
        let saved = file.and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&new, &path)
        });
        if let Err(error) = saved {
            // What is left of it takes room where there may be none.
            let _ = fs::remove_file(&new);
            return Err(error);
        }
        File::open(&dir)?.sync_all()?;
        // Directories that were made for it have to be there after a crash too.
        for parent in made.iter().filter_map(|dir| dir.parent()) {
            File::open(parent)?.sync_all()?;
        }
        return Ok(path);
    }
    unreachable!("some number is free")
}

/// The directories of a path that are not there, the deepest first.
fn missing_part(dir: &Path) -> Vec<PathBuf> {
    dir.ancestors().take_while(|dir| !dir.exists()).map(Path::to_owned).collect()
}

/// Reads a log.
///
/// # Errors
/// There is none, or it is not whole.
pub fn load(path: &Path) -> Result<UndoLog, Problem> {
    let name = path.display();
    let bytes = fs::metadata(path).and_then(|metadata| match metadata.len() {
        // A drive, which may be named by mistake, has no length here and no end that memory could
        // hold.
        _ if !metadata.is_file() => Err(io::Error::new(ErrorKind::InvalidInput, "it is no file")),
        0..=FILE_BYTES_MAX => fs::read(path),
        _ => Err(io::Error::from(ErrorKind::FileTooLarge)),
    });
    let bytes = bytes.map_err(|error| {
        let next = "`wattle undo` lists the logs that there are, `wattle undo --undo DIR` those of another directory";
        Problem::new(Code::NotFound, format!("{name}: {error}"), "the undo log cannot be read", next)
    })?;
    UndoLog::decode(&bytes).map_err(|error: UndoLogError| {
        Problem::new(
            Code::BadUndoLog,
            format!("{name}: {error}"),
            "only a log that is whole brings back exactly what was there; nothing was changed",
            "look for another copy of it; `wattle rescue` and `wattle vg restore` go without one",
        )
    })
}

/// A file in a directory of logs.
#[derive(Debug)]
pub struct Listed {
    /// Where it is.
    pub path: PathBuf,
    /// What it says, or why it cannot be used.
    pub log: Result<UndoLog, Problem>,
}

/// The logs in a directory, the newest first; none if it is not there.
///
/// # Errors
/// It cannot be read.
pub fn list(dir: &Path) -> Result<Vec<Listed>, Problem> {
    let failed = |error: io::Error| {
        let why = "it has to be a directory of undo logs that this user may read";
        Problem::new(
            Code::NotFound,
            format!("{}: {error}", dir.display()),
            why,
            "name another with --undo DIR",
        )
    };
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut listed = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == SUFFIX) {
            listed.push(Listed { log: load(&path), path });
        }
    }
    listed.sort_by_key(|listed| {
        let time = listed.log.as_ref().map_or((0, 0), |log| log.time);
        std::cmp::Reverse((time, listed.path.clone()))
    });
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_where_a_draft_goes_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "kept").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join("create.new")).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("create-2.new")).unwrap();
        let saved = write(dir.path(), "create", b"log").unwrap();
        assert_eq!(saved, dir.path().join("create-3.undo"));
        assert_eq!(fs::read(saved).unwrap(), b"log");
        assert_eq!(fs::read(&victim).unwrap(), b"kept");
        assert!(!dir.path().join("nowhere").exists());
    }
}
