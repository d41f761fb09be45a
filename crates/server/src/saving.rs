//! Where servers save what orders, and starts that are forced, overwrite.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use wattle_control::start::{Claimed, ClaimedMember};
use wattle_control::undo::{Recorder, UndoSite};
use wattle_control::{Code, Forced, Problem, shell_word};
use wattle_rt::{Core, WallTime};

use crate::log::ServerLog;
use crate::protocol::SavingOrder;
use crate::time::rfc3339;

/// Where what is overwritten is saved, as it was asked for.
#[derive(Debug, Clone, Default)]
pub struct Saving {
    /// The directory that was named.
    pub dir: Option<PathBuf>,
    /// Nothing is saved.
    pub no_undo: bool,
}

/// The directory of undo logs: the one asked for, or `undo` in the state directory.
///
/// # Errors
/// There is no place for one.
pub fn undo_dir(asked: Option<&Path>, state: Option<&Path>) -> Result<PathBuf, Problem> {
    let of_state = || state.map(|dir| dir.join("undo"));
    asked.map(Path::to_owned).or_else(of_state).ok_or_else(|| {
        Problem::new(
            Code::UndoNotWritten,
            "there is no place for an undo log",
            "this user has no home, and no state directory is set; nothing was changed",
            "name one with --undo DIR",
        )
    })
}

/// What saves to `dir` what a command overwrites: `what` names the command and its object,
/// `command` is the command as it was typed, `given` are its members.
pub fn recorder(dir: PathBuf, now: WallTime, what: &str, command: String, given: &[String]) -> Recorder {
    let time = rfc3339(now.secs).unwrap_or_default().replace(['-', ':'], "");
    Recorder {
        dir,
        command,
        title: format!("{time}-{}", what.replace(' ', "-")),
        now,
        given: given.to_vec(),
        saved: RefCell::default(),
    }
}

/// Where a server saves what it overwrites.
#[derive(Debug, Clone)]
pub struct ServerSaving {
    start: ServerStart,
    log: ServerLog,
}

/// What a server was started with, as far as saving goes.
#[derive(Debug, Clone)]
pub struct ServerStart {
    /// Where what is overwritten is saved.
    pub saving: Saving,
    /// The state directory.
    pub state: Option<PathBuf>,
    /// What is written goes to an overlay, and members stay as they are.
    pub overlaid: bool,
    /// What the operator insists on.
    pub forced: Forced,
    /// The members that were given.
    pub given: Vec<String>,
    /// The command as it was typed.
    pub command: String,
}

impl ServerSaving {
    /// As the server was started.
    pub fn new(start: ServerStart, log: ServerLog) -> Self {
        // Orders come from processes with other working directories.
        let absolute = |dir: PathBuf| std::path::absolute(&dir).unwrap_or(dir);
        let saving = Saving { dir: start.saving.dir.map(absolute), ..start.saving };
        Self { start: ServerStart { saving, state: start.state.map(absolute), ..start }, log }
    }

    /// What saves what an order overwrites, or what the start does; `None` if that is not wanted.
    ///
    /// # Errors
    /// There is no place for it.
    pub fn recorder(
        &self,
        order: Option<&SavingOrder>,
        now: WallTime,
        what: &str,
        given: &[String],
    ) -> Result<Option<Recorder>, Problem> {
        let start = &self.start;
        let asked = order.and_then(|order| order.dir.as_deref());
        let unwanted = order.is_some_and(|order| order.no_undo) || start.saving.no_undo && asked.is_none();
        if unwanted || start.overlaid {
            return Ok(None);
        }
        let dir = undo_dir(asked.or(start.saving.dir.as_deref()), start.state.as_deref())?;
        let command = order.map(|order| order.command.clone()).filter(|command| !command.is_empty());
        let command = command.unwrap_or_else(|| start.command.clone());
        Ok(Some(recorder(dir, now, what, command, given)))
    }

    /// Whether what is written goes to an overlay.
    pub fn is_overlaid(&self) -> bool {
        self.start.overlaid
    }

    /// Where backups of groups' texts go unless an order names another directory.
    pub fn backups(&self) -> Option<PathBuf> {
        self.start.state.as_ref().map(|dir| dir.join("lvm"))
    }
}

impl ServerSaving {
    /// Saves what an array that only starts because the operator insists is going to write over.
    /// `site` says what its members are.
    ///
    /// # Errors
    /// It cannot be saved: the array must not start.
    pub async fn save_start(
        &self,
        core: &Core,
        claimed: &Claimed,
        site: impl Fn(usize, &ClaimedMember) -> UndoSite,
    ) -> Result<(), Problem> {
        let now = core.wall_clock();
        let given = &self.start.given;
        let recorder = |name: &str| self.recorder(None, now, &format!("serve {name}"), given);
        save_start(core, claimed, self.start.forced, site, recorder, &self.log).await.map(|_| ())
    }
}

/// Saves what an array that only starts because the operator insists is going to write over: the
/// log, if there is one.
///
/// # Errors
/// It cannot be saved: the array must not start.
pub async fn save_start(
    core: &Core,
    claimed: &Claimed,
    forced: Forced,
    site: impl Fn(usize, &ClaimedMember) -> UndoSite,
    recorder: impl FnOnce(&str) -> Result<Option<Recorder>, Problem>,
    log: &ServerLog,
) -> Result<Option<PathBuf>, Problem> {
    if !claimed.is_forced(forced) {
        return Ok(None);
    }
    let name = claimed.assembly().name();
    let Some(recorder) = recorder(name)? else { return Ok(None) };
    let (sites, kept) = claimed.bookkeeping(site);
    let saved = recorder.record(core, &sites, &[], &kept).await?;
    note_forced(log, name, &saved);
    Ok(Some(saved))
}

/// Says how to take back what is about to be done.
pub fn note(log: &ServerLog, saved: &Path) {
    log.note(&format!("to take this back: wattle undo {}", shell_word(&saved.to_string_lossy())));
}

/// The same of a member that an array took, or is filling.
pub fn note_joined(log: &ServerLog, saved: &Path) {
    note(log, saved);
    log.note(
        "once the member is out of the array (`wattle fail`, `wattle remove`) and with --force=written-since; that brings back what tells \
         what it was, its first and last MiB, and not what the array has written between them",
    );
}

/// The same of an array whose start is forced.
fn note_forced(log: &ServerLog, name: &str, saved: &Path) {
    log.note(&format!(
        "to take the forced start of {name} back, after whatever is done since: wattle undo {}",
        shell_word(&saved.to_string_lossy())
    ));
    log.note(
        "once its members are not in use and, if it has written by then, with --force=written-since; that brings back its superblocks and logs, \
         and not what was written as data or parity: what is put together by them can give wrong data wherever it was written since, and \
         nothing tells where. Look with it, and do not go on writing",
    );
}
