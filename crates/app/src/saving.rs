//! Where commands save what they overwrite.

use std::path::{Path, PathBuf};

use wattle_control::stack::Starter;
use wattle_control::start::{Claimed, ClaimedMember};
use wattle_control::undo::{self, CoveredWrite, Recorder, UndoSite};
use wattle_control::{ArrayId, Code, Forced, Problem, Stack};
use wattle_engine::ArrayHandle;
use wattle_rt::Core;
use wattle_server::protocol::SavingOrder;
use wattle_server::saving::{self, save_start, undo_dir};

use crate::cli::SavingArgs;
use crate::environment::{now, state_dir, typed, typed_keys};
use crate::output::text::printable;
use crate::{members, output};

/// What of a command is told to a server: one of a thousand members is not worth a request that is
/// too long.
const COMMAND_BYTES_MAX: usize = 4096;

/// The directory of undo logs.
///
/// # Errors
/// There is no place for one.
pub fn dir(asked: Option<&Path>) -> Result<PathBuf, Problem> {
    undo_dir(asked, state_dir(None).dir())
}

/// What saves what the command is about to overwrite on these members; `None` if that is not
/// wanted. `what` names the command and its object.
///
/// # Errors
/// There is no place for it.
pub fn recorder(saving: &SavingArgs, what: &str, given: &[String]) -> Result<Option<Recorder>, Problem> {
    if saving.no_undo {
        return Ok(None);
    }
    Ok(Some(saving::recorder(dir(saving.dir.as_deref())?, now(), what, typed(), given)))
}

/// What an order tells a server of saving what it overwrites, as it was asked for.
///
/// # Errors
/// There is no working directory that a path could be relative to.
pub fn order(saving: &SavingArgs) -> Result<SavingOrder, Problem> {
    let dir = saving.dir.as_ref().map(std::path::absolute).transpose();
    let dir = dir.map_err(|error| {
        let why = "it has to be told to the server as an absolute path";
        Problem::new(Code::Usage, format!("--undo: {error}"), why, "name another")
    })?;
    let mut command = typed();
    command.truncate(command.floor_char_boundary(COMMAND_BYTES_MAX));
    Ok(SavingOrder { command, dir, no_undo: saving.no_undo })
}

/// Starts arrays for a command that writes to what lies on them, and saves first what a start that
/// was forced writes over. One that would leave members behind is refused, and of one that lacks
/// some anyway it is told.
pub struct Starts<'a> {
    saving: &'a SavingArgs,
    /// What names the command and its object.
    what: &'a str,
    given: &'a [String],
    forced: Forced,
    /// What was saved, in the order of the starts.
    pub logs: Vec<String>,
}

impl<'a> Starts<'a> {
    /// For a command on these members.
    pub fn new(saving: &'a SavingArgs, what: &'a str, given: &'a [String], forced: Forced) -> Self {
        Self { saving, what, given, forced, logs: Vec::new() }
    }
}

impl Starter for Starts<'_> {
    async fn start(
        &mut self,
        core: &Core,
        stack: &Stack,
        array: ArrayId,
        claimed: Claimed,
    ) -> Result<ArrayHandle, Problem> {
        let (members, assembly) = (&stack.scan.arrays[array].members, claimed.assembly());
        // It may have lost one since the command decided.
        assembly.check_left_behind(self.forced)?;
        members::note_unused(&stack.scan, &stack.scan.arrays[array]);
        if assembly.degraded() > 0 {
            let whole = assembly.slots.len() - assembly.degraded();
            let (name, of) = (assembly.name(), assembly.slots.len());
            output::note(&printable(&format!("{name} is degraded: {whole} of its {of} members are in sync")));
        }
        let site = |ix, member: &ClaimedMember| UndoSite::of(stack, members[ix], member.device.clone());
        let recorder = |name: &str| recorder(self.saving, &format!("{} start {name}", self.what), self.given);
        let log = save_start(core, &claimed, self.forced, site, recorder, &output::log()).await?;
        self.logs.extend(log.map(|log| log.display().to_string()));
        Ok(claimed.launch(core).await?.handle)
    }
}

/// Saves what writes are about to go over, and says how it comes back; the log.
///
/// # Errors
/// It cannot be saved.
pub async fn record(
    core: &Core,
    recorder: Option<&Recorder>,
    sites: &[UndoSite],
    writes: &[CoveredWrite],
) -> Result<Option<String>, Problem> {
    let Some(recorder) = recorder else { return Ok(None) };
    let log = recorder.record(core, sites, writes, &[]).await?;
    tell(&log);
    Ok(Some(log.display().to_string()))
}

/// Records writes, and carries them out; the log.
///
/// # Errors
/// It cannot be saved, and nothing was written; or the first write that failed.
pub async fn carry_out(
    core: &Core,
    recorder: Option<&Recorder>,
    sites: &[UndoSite],
    writes: &[CoveredWrite],
) -> Result<Option<String>, Problem> {
    let log = record(core, recorder, sites, writes).await?;
    undo::carry_out(core, sites, writes).await?;
    Ok(log)
}

/// Says how to take back what is about to be done.
pub fn tell(log: &Path) {
    saving::note(&output::log(), log);
    // What is in an encrypted device is found again only where that is opened.
    if typed_keys() {
        output::note("with the same options that name keys or ask for them");
    }
}

/// The same of a member that an array took, or is filling.
pub fn tell_joined(log: &Path) {
    saving::note_joined(&output::log(), log);
}
