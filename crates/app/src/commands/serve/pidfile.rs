//! The file that says that a server is ready, and which process it is.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use wattle_control::{Code, Problem};

/// Tells processes that wait for it that the server is ready.
pub fn write(path: Option<&Path>) -> Result<(), Problem> {
    let Some(path) = path else { return Ok(()) };
    fs::write(path, format!("{}\n", std::process::id())).map_err(|error| problem(path, &error))
}

/// Whether it will be possible to write it, while no client is let in yet. The file appears only
/// when the server is ready, since processes wait for it.
pub fn check(path: Option<&Path>) -> Result<(), Problem> {
    let Some(path) = path else { return Ok(()) };
    let dir = path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."));
    let checked = match fs::metadata(path) {
        Ok(there) if there.is_file() => File::options().append(true).open(path).map(drop),
        // A pipe's reader would take this for the end.
        Ok(_) => Ok(()),
        Err(_) => tempfile::tempfile_in(dir).map(drop),
    };
    checked.map_err(|error| problem(path, &error))
}

fn problem(path: &Path, error: &io::Error) -> Problem {
    Problem::new(
        Code::OutputFailed,
        format!("--pidfile {}: {error}", path.display()),
        "a process that waits for the file would wait for ever",
        "name a path that this user can write",
    )
}
