//! What a `wattle serve` process holds while it runs: the arrays, and its answers to other commands.

mod exports;
mod made_up;
mod report;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use wattle_control::start::Claimed;
use wattle_control::{Code, Problem};
use wattle_engine::array::ArrayStatus;
use wattle_engine::geometry::{Geometry, Kind, layout_name};
use wattle_engine::units::{MemberIx, SECTOR_BYTES, Sector};
use wattle_engine::{ArrayHandle, FailError, VolumeError};
use wattle_rt::sync::{OneshotSender, oneshot};
use wattle_rt::{Core, Event};

use crate::control_socket::protocol::{Request, Response, ServerReport};
use crate::control_socket::server::error_response;
pub use exports::{Endpoint, listen};
pub use made_up::MadeUpArray;
pub use report::array_report;

/// What a served array is, as far as it never changes.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// Absent without metadata.
    pub uuid: Option<String>,
    /// Absent where the level has no choice.
    pub layout: Option<String>,
    /// Absent where the level has none.
    pub chunk_bytes: Option<u64>,
    /// By slot, as the operator named them.
    pub members: Vec<Option<String>>,
    /// Why it is read-only or not redundant, which checks were overridden.
    pub notes: Vec<String>,
}

impl Facts {
    /// Of an array with metadata.
    pub fn of_claimed(claimed: &Claimed) -> Self {
        let assembly = claimed.assembly();
        let geometry = assembly.geometry.as_ref().expect("an array that is not refused has a geometry");
        let overridden = assembly.overridden.iter().map(|reason| format!("overridden: {reason}"));
        let unsynced = assembly.unsynced_note().map(str::to_owned);
        let notes =
            assembly.problems().into_iter().map(|problem| format!("{} ({})", problem.what, problem.code));
        Self {
            name: assembly.name().to_owned(),
            uuid: Some(assembly.uuid().to_string()),
            members: Vec::new(),
            notes: overridden.chain(unsynced).chain(notes).collect(),
            ..Self::of_geometry(geometry)
        }
    }

    fn of_geometry(geometry: &Geometry) -> Self {
        let chunk_bytes = geometry.chunk().0 * SECTOR_BYTES;
        Self {
            name: String::new(),
            uuid: None,
            layout: layout_name(geometry.level(), geometry.layout()),
            chunk_bytes: (chunk_bytes > 0).then_some(chunk_bytes),
            members: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// An array that is running.
#[derive(Debug, Clone)]
pub struct Served {
    /// What it is.
    pub facts: Facts,
    /// Itself.
    pub handle: ArrayHandle,
    /// Where clients connect.
    pub exports: Vec<String>,
}

/// Everything that the process serves.
pub struct Serving {
    core: Core,
    server: String,
    arrays: RefCell<Vec<Rc<Served>>>,
    /// Commands that wait for the process to have given everything back.
    waiting_for_end: RefCell<Vec<OneshotSender<Result<(), Problem>>>>,
    ending: Cell<bool>,
    /// The last array is to be stopped.
    pub last_stop: Event,
}

impl Serving {
    /// Of arrays that run already, at least one.
    pub fn new(core: &Core, server: String, arrays: Vec<Served>) -> Self {
        Self {
            core: core.clone(),
            server,
            arrays: RefCell::new(arrays.into_iter().map(Rc::new).collect()),
            waiting_for_end: RefCell::default(),
            ending: Cell::new(false),
            last_stop: Event::new(),
        }
    }

    /// The arrays that run now.
    pub fn arrays(&self) -> Vec<Rc<Served>> {
        self.arrays.borrow().clone()
    }

    /// Answers a command.
    pub async fn answer(&self, request: Request) -> Response {
        let done = match request {
            Request::Status => return Response::Status(self.status().await),
            Request::Stop { array } => self.stop(&array).await,
            Request::Fail { array, member } => self.fail(&array, &member).await,
        };
        match done {
            Ok(message) => Response::Done { message },
            Err(problem) => error_response(&problem),
        }
    }

    async fn status(&self) -> ServerReport {
        let mut arrays = Vec::new();
        for served in self.arrays() {
            arrays.push(array_report(&served, &served.handle.status(&self.core).await));
        }
        ServerReport { server: self.server.clone(), pid: std::process::id(), arrays }
    }

    /// Stops one array. The last one ends the process, and the answer waits until it has let go of the members: whoever stops
    /// an array wants to do something with them.
    async fn stop(&self, name: &str) -> Result<String, Problem> {
        let served = self.find(name)?;
        let message = stopped_message(&served.facts, &served.handle.status(&self.core).await);
        if self.arrays.borrow().len() > 1 {
            let stopped = served.handle.stop(&self.core).await;
            self.arrays.borrow_mut().retain(|other| !Rc::ptr_eq(other, &served));
            stopped.map_err(|error| stop_problem(&served.facts.name, error))?;
        } else {
            let (sender, ended) = oneshot();
            self.waiting_for_end.borrow_mut().push(sender);
            self.last_stop.set();
            let name = served.facts.name.clone();
            drop(served);
            ended.await.unwrap_or_else(|| Err(stop_problem(&name, VolumeError::Stopped)))?;
        }
        Ok(message)
    }

    /// Stops every array and lets go of it; nothing is served afterwards. The first problem, if there are any.
    ///
    /// # Errors
    /// An array could not be recorded clean.
    pub async fn end(&self) -> Result<(), Problem> {
        self.ending.set(true);
        let arrays = std::mem::take(&mut *self.arrays.borrow_mut());
        let mut result = Ok(());
        for served in arrays {
            if let Err(error) = served.handle.stop(&self.core).await {
                result = result.and(Err(stop_problem(&served.facts.name, error)));
            }
        }
        result
    }

    /// Tells the commands that wait for the end how it went.
    pub fn tell_end(&self, result: &Result<(), Problem>) {
        for waiting in self.waiting_for_end.take() {
            // A command that was interrupted does not wait any more.
            let _ = waiting.send(result.clone());
        }
    }

    async fn fail(&self, name: &str, member: &str) -> Result<String, Problem> {
        let served = self.find(name)?;
        let slot = find_member(&served.facts, member)?;
        let shown = served.facts.members[slot.index()].as_deref().unwrap_or("-").to_owned();
        let status = served.handle.status(&self.core).await;
        match served.handle.fail(&self.core, slot).await {
            Ok(()) => Ok(format!(
                "{shown} (slot {slot}) of {} is failed; the array goes on without it",
                served.facts.name
            )),
            Err(FailError::LastCopy(_)) if is_untrusted(&status) => {
                Err(untrusted_problem(&served.facts.name, &shown))
            }
            Err(error) => Err(fail_problem(&served.facts.name, &shown, error)),
        }
    }

    fn find(&self, name: &str) -> Result<Rc<Served>, Problem> {
        let arrays = self.arrays.borrow();
        let found =
            arrays.iter().find(|s| s.facts.name == name || s.facts.uuid.as_deref() == Some(name)).cloned();
        found.filter(|_| !self.ending.get()).ok_or_else(|| {
            Problem::new(
                Code::ServerNotFound,
                format!("{name} is not being served any more"),
                "it is being stopped",
                "`wattle status` shows what is",
            )
        })
    }
}

/// The slot of a member: by its name as given, by its file name if no other has the same, by number.
fn find_member(facts: &Facts, asked: &str) -> Result<MemberIx, Problem> {
    let slots_where = |matches: &dyn Fn(&str) -> bool| -> Vec<u16> {
        let slots = (0..).zip(&facts.members);
        slots.filter(|(_, name)| name.as_deref().is_some_and(matches)).map(|(slot, _)| slot).collect()
    };
    let file_name = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
    let by_path = slots_where(&|name| name == asked);
    let by_file_name = slots_where(&|name| file_name(name) == asked);
    let by_slot: Vec<u16> =
        asked.parse().ok().filter(|slot| usize::from(*slot) < facts.members.len()).into_iter().collect();
    for found in [by_path, by_file_name, by_slot] {
        match found[..] {
            [slot] => return Ok(MemberIx(slot)),
            [] => {}
            [..] => {
                return Err(Problem::new(
                    Code::Usage,
                    format!("{asked} means {} members of {}", found.len(), facts.name),
                    "several members have this name",
                    "name the member by its path or its slot: `wattle status` shows them",
                ));
            }
        }
    }
    let names: Vec<_> = facts.members.iter().flatten().map(String::as_str).collect();
    Err(Problem::new(
        Code::BadMember,
        format!("{asked} is not a member of {}", facts.name),
        format!("its members are {}", names.join(", ")),
        "name one of them by its path, its file name or its slot",
    ))
}

/// No member is spared, whole as they all are, because what would replace it is not known to be right.
fn is_untrusted(status: &ArrayStatus) -> bool {
    status.level.kind() == Kind::Parity && status.synced_below != Sector::MAX
}

fn untrusted_problem(array: &str, member: &str) -> Problem {
    Problem::new(
        Code::LastCopy,
        format!("{array}: {member} was not failed: parity is not known to be right, so it cannot stand in for it"),
        "its data would be gone: the array was not stopped cleanly, or was never synchronised",
        "`wattle stop` it and let the kernel resync it (`mdadm --assemble`), or copy the data off first: `wattle cat`",
    )
    .of_member(member)
}

fn fail_problem(array: &str, member: &str, error: FailError) -> Problem {
    let (code, why, next) = match error {
        FailError::LastCopy(_) => (
            Code::LastCopy,
            "its data would be gone: nothing else holds a copy of it",
            "replace the members that are missing first; to end the array use `wattle stop`",
        ),
        FailError::NotPresent(_) => (
            Code::BadMember,
            "it is missing or has failed already",
            "`wattle status` shows the members' states",
        ),
        FailError::ReadOnly => (
            Code::ReadOnlyMember,
            "the failure could not be recorded in the other members' superblocks",
            "serve the array without --read-only",
        ),
        FailError::NotRecorded => (
            Code::MetadataNotWritten,
            "a failure counts only once the survivors' superblocks say so",
            "look at the other members: `wattle status`",
        ),
        _ => (Code::ServerFailed, "the array is being stopped", "`wattle status` shows what is served"),
    };
    Problem::new(code, format!("{array}: {member} was not failed: {error}"), why, next).of_member(member)
}

/// What a stop leaves behind. Only what was recorded is said to be: an array whose parity was not trusted stays dirty.
fn stopped_message(facts: &Facts, status: &ArrayStatus) -> String {
    let left = match (status.read_only, status.level.kind(), status.synced_below == Sector::MAX) {
        _ if facts.uuid.is_none() => " and gone: it had no metadata",
        (true, _, _) => "; it was served read-only, and its members are as they were",
        (false, Kind::Striped, _) => " and flushed",
        (false, _, true) => " and recorded clean",
        (false, Kind::Parity, false) => {
            " and flushed; parity is still not known to be right: the kernel resyncs it when it assembles the array"
        }
        (false, Kind::Mirrored, false) => {
            " and flushed; copies are still not known to agree: the kernel resyncs them when it assembles the array"
        }
    };
    format!("{} is stopped{left}", facts.name)
}

fn stop_problem(array: &str, error: VolumeError) -> Problem {
    Problem::new(
        Code::MetadataNotWritten,
        format!("{array} is stopped and could not be recorded clean: {error}"),
        "a member failed, or more than redundancy covers; parity may not fit what was written last",
        "`wattle scan` shows the members; the next start takes the array as not cleanly stopped",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(members: &[Option<&str>]) -> Facts {
        Facts {
            name: "data".to_owned(),
            uuid: None,
            layout: None,
            chunk_bytes: None,
            members: members.iter().map(|name| name.map(str::to_owned)).collect(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_member_is_named_by_path_then_file_then_slot() {
        let facts = facts(&[Some("/a/x.img"), None, Some("/b/y.img"), Some("0")]);
        let slot =
            |asked: &str| find_member(&facts, asked).map(|slot| slot.0).map_err(|problem| problem.code);
        assert_eq!(slot("/a/x.img"), Ok(0));
        assert_eq!(slot("y.img"), Ok(2));
        assert_eq!(slot("2"), Ok(2));
        assert_eq!(slot("1"), Ok(1));
        // Failing the wrong drive is the worst that could happen here: a name comes before a number.
        assert_eq!(slot("0"), Ok(3));
        assert_eq!(slot("4"), Err(Code::BadMember));
        assert_eq!(slot("img"), Err(Code::BadMember));
    }

    #[test]
    fn a_name_of_two_members_names_neither() {
        let facts = facts(&[Some("/a/x.img"), Some("/b/x.img")]);
        assert_eq!(find_member(&facts, "x.img").unwrap_err().code, Code::Usage);
        assert_eq!(find_member(&facts, "/b/x.img").unwrap(), MemberIx(1));
    }
}
