//! Where commands save what they overwrite, and servers what they are ordered to.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use wattle_control::create::shell_word;
use wattle_control::stack::Starter;
use wattle_control::start::{Claimed, ClaimedMember};
use wattle_control::undo::{Recorder, Site};
use wattle_control::{Code, Forced, Problem, Stack};
use wattle_engine::ArrayHandle;
use wattle_rt::Core;

use crate::cli::{Saving, ServeArgs};
use crate::commands::now;
use crate::members;
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
    if saving.no_undo { Ok(None) } else { Ok(Some(recorder_in(dir(saving.dir.as_deref())?, what, given))) }
}

fn recorder_in(dir: PathBuf, what: &str, given: &[String]) -> Recorder {
    let now = now();
    let time = rfc3339(now.secs).unwrap_or_default().replace(['-', ':'], "");
    Recorder {
        dir,
        command: typed(),
        title: format!("{time}-{}", what.replace(' ', "-")),
        now,
        given: given.to_vec(),
        saved: RefCell::default(),
    }
}

/// The command as it was typed.
fn typed() -> String {
    let words: Vec<_> = std::env::args().map(|word| shell_word(&word)).collect();
    words.join(" ")
}

/// What an order to a server says of saving what it overwrites.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavingOrder {
    /// What was typed.
    #[serde(default)]
    pub command: String,
    /// Another directory than the server's own, absolute: the server has another working directory.
    #[serde(default)]
    pub dir: Option<PathBuf>,
    /// Save nothing.
    #[serde(default)]
    pub no_undo: bool,
}

impl SavingOrder {
    /// What of a command is told: one of a thousand members is not worth a request that is too long.
    const COMMAND_BYTES_MAX: usize = 4096;

    /// As it was asked for.
    ///
    /// # Errors
    /// There is no working directory that a path could be relative to.
    pub fn new(saving: &Saving) -> Result<Self, Problem> {
        let dir = saving.dir.as_ref().map(std::path::absolute).transpose();
        let dir = dir.map_err(|error| {
            let why = "it has to be told to the server as an absolute path";
            Problem::new(Code::Usage, format!("--undo: {error}"), why, "name another")
        })?;
        let mut command = typed();
        command.truncate(command.floor_char_boundary(Self::COMMAND_BYTES_MAX));
        Ok(Self { command, dir, no_undo: saving.no_undo })
    }
}

/// Where a server saves what it overwrites.
#[derive(Debug, Clone)]
pub struct ServerSaving {
    /// As the server was started.
    saving: Saving,
    /// Where its state is.
    state: Option<PathBuf>,
    /// What is written goes to an overlay, and members stay as they are.
    overlaid: bool,
    /// What the operator insists on.
    forced: Forced,
    /// The members that were given.
    given: Vec<String>,
}

impl ServerSaving {
    /// As it was asked for.
    pub fn new(args: &ServeArgs) -> Self {
        // Whoever gives an order is somewhere else.
        let absolute = |dir: &Path| std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let dir = args.saving.dir.as_deref().map(absolute);
        Self {
            saving: Saving { dir, ..args.saving },
            state: StateDir::find(args.state_dir.as_deref()).dir().map(absolute),
            overlaid: args.overlay.dir.is_some(),
            forced: members::forced(&args.force),
            given: args.members.clone(),
        }
    }

    /// Who saves what an order overwrites, or what the start does; nobody if that is not wanted.
    ///
    /// # Errors
    /// There is no place for it.
    pub fn recorder(
        &self,
        order: Option<&SavingOrder>,
        what: &str,
        given: &[String],
    ) -> Result<Option<Recorder>, Problem> {
        let asked = order.and_then(|order| order.dir.as_ref());
        let unwanted = order.is_some_and(|order| order.no_undo) || self.saving.no_undo && asked.is_none();
        if unwanted || self.overlaid {
            return Ok(None);
        }
        let own = self.saving.dir.clone().or_else(|| Some(self.state.as_ref()?.join("undo")));
        let recorder = recorder_in(dir(asked.or(own.as_ref()).map(PathBuf::as_path))?, what, given);
        let command = order.map(|order| order.command.clone()).filter(|command| !command.is_empty());
        Ok(Some(Recorder { command: command.unwrap_or(recorder.command), ..recorder }))
    }
}

impl ServerSaving {
    /// Saves what an array that only starts because the operator insists is going to write over. `site` says what its members are.
    ///
    /// # Errors
    /// It cannot be saved: the array must not start.
    pub async fn save_start(
        &self,
        core: &Core,
        claimed: &Claimed,
        site: impl Fn(usize, &ClaimedMember) -> Site,
    ) -> Result<(), Problem> {
        let recorder = |name: &str| self.recorder(None, &format!("serve {name}"), &self.given);
        save_start(core, claimed, self.forced, site, recorder).await.map(|_| ())
    }
}

/// Starts arrays for a command that writes to what lies on them, and saves first what a start that was forced writes over.
pub struct Starts<'a> {
    saving: &'a Saving,
    /// What names the command and its object.
    what: &'a str,
    given: &'a [String],
    forced: Forced,
    /// What was saved, in the order of the starts.
    pub logs: Vec<String>,
}

impl<'a> Starts<'a> {
    /// For a command on these members.
    pub fn new(saving: &'a Saving, what: &'a str, given: &'a [String], forced: Forced) -> Self {
        Self { saving, what, given, forced, logs: Vec::new() }
    }
}

impl Starter for Starts<'_> {
    async fn start(
        &mut self,
        core: &Core,
        stack: &Stack,
        array: usize,
        claimed: Claimed,
    ) -> Result<ArrayHandle, Problem> {
        let members = &stack.scan.arrays[array].members;
        let site = |ix, member: &ClaimedMember| Site::of(stack, members[ix], member.device.clone());
        let recorder = |name: &str| recorder(self.saving, &format!("{} start {name}", self.what), self.given);
        let log = save_start(core, &claimed, self.forced, site, recorder).await?;
        self.logs.extend(log.map(|log| log.display().to_string()));
        Ok(claimed.launch(core).await?.handle)
    }
}

/// Saves what an array that only starts because the operator insists is going to write over: the log, if there is one.
async fn save_start(
    core: &Core,
    claimed: &Claimed,
    forced: Forced,
    site: impl Fn(usize, &ClaimedMember) -> Site,
    recorder: impl FnOnce(&str) -> Result<Option<Recorder>, Problem>,
) -> Result<Option<PathBuf>, Problem> {
    if !claimed.is_forced(forced) {
        return Ok(None);
    }
    let name = claimed.assembly().name();
    let Some(recorder) = recorder(name)? else { return Ok(None) };
    let (sites, kept) = claimed.bookkeeping(site);
    let log = recorder.record(core, &sites, &[], &kept).await?;
    tell_forced(name, &log);
    Ok(Some(log))
}

/// Says how to take back what is about to be done.
pub fn tell(log: &Path) {
    let log = printable(&shell_word(&log.to_string_lossy()));
    output::note(&format!("to take this back: wattle undo {log}"));
}

/// The same of a member that an array took, or is filling.
pub fn tell_joined(log: &Path) {
    tell(log);
    output::note(
        "once the member is out of the array (`wattle fail`, `wattle remove`) and with --force=written-since; that brings back what tells \
         what it was, its first and last MiB, and not what the array has written between them",
    );
}

/// The same of an array whose start is forced.
fn tell_forced(name: &str, log: &Path) {
    let log = printable(&shell_word(&log.to_string_lossy()));
    output::note(&format!(
        "to take the forced start of {} back, after whatever is done since: wattle undo {log}",
        printable(name)
    ));
    output::note(
        "once nobody uses its members and, if it has written by then, with --force=written-since; that brings back its superblocks and logs, \
         and not what was written as data or parity: what is put together by them can give wrong data wherever it was written since, and \
         nothing tells where. Look with it, and do not go on writing",
    );
}
