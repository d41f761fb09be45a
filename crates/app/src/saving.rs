//! Where commands save what they overwrite.

use std::path::{Path, PathBuf};

use wattle_control::create::shell_word;
use wattle_control::undo::Recorder;
use wattle_control::{Code, Problem};

use crate::cli::Saving;
use crate::commands::now;
use crate::output;
use crate::output::text::printable;
use crate::output::time::rfc3339;
use crate::serving::history::StateDir;

/// The directory of undo logs.
///
/// # Errors
/// There is no place for one.
pub fn dir(asked: Option<&Path>) -> Result<PathBuf, Problem> {
    let of_state = || StateDir::find(None).dir().map(|dir| dir.join("undo"));
    asked.map(Path::to_owned).or_else(of_state).ok_or_else(|| {
        Problem::new(
            Code::UndoNotWritten,
            "there is no place for an undo log",
            "this user has no home, and no state directory is set; nothing was changed",
            "name one with --undo DIR",
        )
    })
}

/// Who saves what the command is about to overwrite on these members; nobody if that is not wanted. `what` names the command and its object.
///
/// # Errors
/// There is no place for it.
pub fn recorder(saving: &Saving, what: &str, given: &[String]) -> Result<Option<Recorder>, Problem> {
    if saving.no_undo {
        return Ok(None);
    }
    let now = now();
    let time = rfc3339(now.secs).unwrap_or_default().replace(['-', ':'], "");
    let words: Vec<_> = std::env::args().map(|word| shell_word(&word)).collect();
    Ok(Some(Recorder {
        dir: dir(saving.dir.as_deref())?,
        command: words.join(" "),
        title: format!("{time}-{}", what.replace(' ', "-")),
        now,
        given: given.to_vec(),
    }))
}

/// Says how to take back what is about to be done.
pub fn tell(log: &Path) {
    let log = printable(&shell_word(&log.to_string_lossy()));
    output::note(&format!("to take this back: wattle undo {log}"));
}
