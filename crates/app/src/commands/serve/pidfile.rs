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

/// Takes away what an earlier server left that was killed: this one is not ready. Once what it
/// serves, and its name, are ours: until then it may be that of a server that runs.
pub fn forget(path: Option<&Path>) {
    let Some(path) = path.filter(|path| fs::metadata(path).is_ok_and(|there| there.is_file())) else {
        return;
    };
    // In a directory where it may not be taken away, it says nothing.
    if fs::remove_file(path).is_err() {
        let _ = File::options().write(true).truncate(true).open(path);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_server_left_says_nothing_of_this_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        forget(Some(&path));
        fs::write(&path, "4711\n").unwrap();
        forget(Some(&path));
        assert!(!path.exists());
        // A pipe or device is not ours to take away.
        forget(Some(Path::new("/dev/null")));
        assert!(Path::new("/dev/null").exists());
    }
}
