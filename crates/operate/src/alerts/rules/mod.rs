//! From what a server tells to what has to be told: pure functions of the state that is kept, what
//! a server reported, and the time.
//!
//! A state that lasts is found in the report, whatever events were missed; events say why, and tell
//! what was over before anything looked. An alert is raised when its condition holds for the first
//! time, told again when it gets worse, and over when the condition does not hold any more.

mod conditions;
mod happened;
mod merge;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use wattle_server::protocol::events::FeedEvent;
use wattle_server::protocol::report::{ArrayReport, ServerReport};

use super::kind::{AlertKind, AlertSeverity};
use super::state::{AlertArray, AlertKey, AlertsState, ArrayMemory, Notification, ServerMemory};
use crate::scrub_files::ScrubFiles;
use merge::{AlertCondition, Scope, merge, once};
pub use merge::{repeat, test_message};

/// What an operator decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlertRules {
    /// An alert is told again after this time; never, if there is none.
    pub repeat_secs: Option<u64>,
    /// A check is overdue after this time.
    pub scrub_overdue_secs: Option<u64>,
    /// A file system is nearly full from here on.
    pub volume_full_percent: Option<u8>,
    /// Spares that arrays are to have, by UUID.
    pub spares: BTreeMap<String, u64>,
}

/// What those that were asked say, by what they are: the member of a drive, the volume of a file
/// system; `None` where nothing is wrong with it, or there is none. Of what is not in it, because
/// it did not answer, nothing is known.
pub type Asked<T> = BTreeMap<String, Option<T>>;

/// How full a file system on a volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fullness {
    /// The volume.
    pub volume: String,
    /// Used, of a hundred.
    pub percent: u8,
    /// What is free.
    pub free_bytes: u64,
}

/// What a drive says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveFault {
    /// The member, as its server names it.
    pub member: String,
    /// What it says.
    pub what: String,
}

/// What was seen of a server.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// What it is and does.
    pub report: &'a ServerReport,
    /// What happened since the last look.
    pub events: &'a [FeedEvent],
    /// The server was not seen before: what happened before is no news.
    pub is_first: bool,
    /// The server started since the last look.
    pub has_started: bool,
    /// Events came since that the server does not keep any more.
    pub lost: bool,
    /// What tells this start of the server from others, where that was asked.
    pub epoch: Option<&'a str>,
    /// Files that lie where something does not agree, by array; of the last check.
    pub files: &'a BTreeMap<String, ScrubFiles>,
    /// Arrays of which files are still being named: what was found is told with them.
    pub naming: &'a BTreeSet<String>,
    /// How full file systems are, if that was looked at.
    pub fullness: Option<&'a Asked<Fullness>>,
    /// What drives say, if they were asked.
    pub drives: Option<&'a Asked<DriveFault>>,
}

/// What has to be told after a look at a server.
pub fn look(state: &mut AlertsState, rules: &AlertRules, look: &Look<'_>, secs: u64) -> Vec<Notification> {
    let mut told = moved_spares(state, look, secs);
    for array in &look.report.arrays {
        told.extend(of_array(state, rules, look, array, secs));
    }
    let server = &look.report.server;
    if let Some(fullness) = look.fullness {
        let full = fullness.values().flatten();
        let conditions = full.filter_map(|full| conditions::volume_full(server, rules, full));
        let is_known = |volume: &str| fullness.contains_key(volume) || !has_volume(look.report, volume);
        let scope = Scope::Server { server, kind: AlertKind::VolumeFull, is_known: &is_known };
        told.extend(merge(state, &scope, conditions.collect(), false, secs));
    }
    if let Some(drives) = look.drives {
        let conditions = drives.values().flatten().map(|drive| conditions::smart_failing(look.report, drive));
        let is_known = |member: &str| drives.contains_key(member) || !has_member(look.report, member);
        let scope = Scope::Server { server, kind: AlertKind::SmartFailing, is_known: &is_known };
        told.extend(merge(state, &scope, conditions.collect(), false, secs));
    }
    told
}

/// Whether a server offers a volume of that name.
fn has_volume(report: &ServerReport, name: &str) -> bool {
    report.arrays.iter().any(|array| array.name == name)
        || report.volumes.iter().any(|volume| volume.name == name)
}

/// Whether an array of a server has a member of that name.
fn has_member(report: &ServerReport, name: &str) -> bool {
    let members = report.arrays.iter().flat_map(|array| array.members.iter().chain(&array.replacements));
    members.filter_map(|member| member.member.as_deref()).any(|member| member == name)
}

fn of_array(
    state: &mut AlertsState,
    rules: &AlertRules,
    look: &Look<'_>,
    array: &ArrayReport,
    secs: u64,
) -> Vec<Notification> {
    let id = AlertArray { name: array.name.clone(), uuid: array.uuid.clone() };
    let server = look.report.server.clone();
    let known = state.arrays.get(id.id()).cloned();
    let mut memory =
        known.clone().unwrap_or_else(|| ArrayMemory { first_seen_secs: secs, ..ArrayMemory::default() });
    memory.first_seen_secs = happened::first_seen(memory.first_seen_secs, array, secs);
    let is_of_it = |event: &&FeedEvent| match (&event.array_uuid, &array.uuid) {
        (Some(one), Some(other)) => one == other,
        _ => event.array == array.name,
    };
    let events: Vec<_> = look.events.iter().filter(is_of_it).collect();
    let mut told = Vec::new();
    if known.is_none() {
        let text = words::new_array(array);
        told.push(once(state, AlertKind::NewArray, &server, Some(&id), None, text, secs));
    }
    // A server answers before its arrays run: the first look after a start may not have shown it.
    let is_other_start = look.epoch.is_some_and(|epoch| !memory.epoch.is_empty() && memory.epoch != epoch);
    let seen = conditions::Seen {
        server: &server,
        id: &id,
        array,
        memory: &memory,
        is_new: known.is_none(),
        has_started: look.has_started || is_other_start,
        events: &events,
        look,
        rules,
    };
    let conditions = conditions::of_array(state, &seen, secs);
    let flashes = conditions::flashes(&seen);
    let scope = Scope::Array { id: id.id() };
    told.extend(merge(state, &scope, conditions.clone(), seen.has_started, secs));
    if !flashes.is_empty() {
        // What failed and was made good before anything looked: both are told.
        told.extend(merge(state, &scope, [conditions.clone(), flashes].concat(), false, secs));
        told.extend(merge(state, &scope, conditions, false, secs));
    }
    told.extend(happened::of_array(state, &seen, secs));
    let files = &mut state.arrays;
    files.insert(id.id().to_owned(), happened::remember(&memory, &seen));
    told
}

/// Spares that were one array's and are another's.
fn moved_spares(state: &mut AlertsState, look: &Look<'_>, secs: u64) -> Vec<Notification> {
    let mut told = Vec::new();
    let members = |array: &ArrayReport| -> Vec<String> {
        let spares = array.spares.iter().map(|spare| spare.member.clone());
        spares.chain(array.members.iter().filter_map(|member| member.member.clone())).collect()
    };
    for to in &look.report.arrays {
        for from in look.report.arrays.iter().filter(|from| from.name != to.name) {
            let (from_id, to_id) = (array_id(from), array_id(to));
            let Some(memory) = state.arrays.get(from_id.id()) else { continue };
            let Some(before) = state.arrays.get(to_id.id()) else { continue };
            let (here, there) = (members(to), members(from));
            let moved = |spare: &&String| {
                here.contains(spare) && !there.contains(spare) && !before.spares.contains(spare)
            };
            let moved: Vec<_> = memory.spares.iter().filter(moved).cloned().collect();
            for spare in moved {
                let text = words::moved(from, to, &spare);
                let (server, kind) = (&look.report.server, AlertKind::MoveSpare);
                told.push(once(state, kind, server, Some(&to_id), Some(&spare), text, secs));
            }
        }
    }
    told
}

fn array_id(array: &ArrayReport) -> AlertArray {
    AlertArray { name: array.name.clone(), uuid: array.uuid.clone() }
}

/// A server is gone: why it is not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// It ended as it was told to.
    GoodBye,
    /// It ended without being stopped.
    Died,
    /// It listens and does not answer.
    Silent,
    /// It was told to end, and does not.
    Stopping,
    /// It had died, and an operator had it forgotten.
    Forgotten,
    /// The machine was started since it was seen last, and it was not.
    NotBack,
}

impl Gone {
    /// Its process is there: it may answer again, or end.
    #[must_use]
    pub fn is_there(self) -> bool {
        matches!(self, Self::Silent | Self::Stopping)
    }
}

/// What has to be told when a server is gone.
pub fn gone(state: &mut AlertsState, socket: &str, how: Gone, secs: u64) -> Vec<Notification> {
    let Some(memory) = state.servers.get(socket).cloned() else { return Vec::new() };
    match how {
        // Its run is remembered: the next one is a start. That it hung before is over.
        Gone::GoodBye => {
            if let Some(memory) = state.servers.get_mut(socket) {
                memory.arrays.clear();
                (memory.died, memory.stopped) = (false, true);
            }
            disappeared(state, &memory, Vec::new(), secs)
        }
        Gone::Forgotten => {
            state.servers.remove(socket);
            disappeared(state, &memory, Vec::new(), secs)
        }
        Gone::Died | Gone::Silent | Gone::Stopping | Gone::NotBack => {
            if let Some(memory) = state.servers.get_mut(socket) {
                memory.died = true;
            }
            let condition = |array: Option<&AlertArray>| {
                let key = AlertKey {
                    kind: AlertKind::DeviceDisappeared,
                    server: memory.name.clone(),
                    array: array.cloned(),
                    member: None,
                };
                let text = words::disappeared(&memory.name, array, how);
                AlertCondition {
                    key,
                    slot: None,
                    severity: AlertSeverity::Critical,
                    level: 0,
                    text,
                    files: Vec::new(),
                }
            };
            let is_elsewhere = |array: &AlertArray| how == Gone::NotBack && is_served(state, socket, array);
            let conditions = match &memory.arrays[..] {
                [] => vec![condition(None)],
                arrays => arrays
                    .iter()
                    .filter(|array| !is_elsewhere(array))
                    .map(|array| condition(Some(array)))
                    .collect(),
            };
            disappeared(state, &memory, conditions, secs)
        }
    }
}

/// Whether another server than that of this socket has an array.
fn is_served(state: &AlertsState, socket: &str, array: &AlertArray) -> bool {
    let others = state.servers.iter().filter(|(name, other)| *name != socket && !other.died);
    others.flat_map(|(_, other)| &other.arrays).any(|other| other.id() == array.id())
}

/// What has to be told when a server that was gone is there.
pub fn is_back(state: &mut AlertsState, memory: &ServerMemory, secs: u64) -> Vec<Notification> {
    disappeared(state, memory, Vec::new(), secs)
}

fn disappeared(
    state: &mut AlertsState,
    memory: &ServerMemory,
    conditions: Vec<AlertCondition>,
    secs: u64,
) -> Vec<Notification> {
    let ids: Vec<_> = memory.arrays.iter().map(|array| array.id().to_owned()).collect();
    merge(state, &Scope::Disappeared { server: &memory.name, arrays: &ids }, conditions, false, secs)
}

#[cfg(test)]
pub(super) mod tests;
