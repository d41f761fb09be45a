//! Drives that come while a stack runs: members that were just not there come back, brought up to
//! date by the bitmap, and the spares that the file names are added.
//!
//! What failed, or was a member in this run and is none any more, stays out: that it is there again
//! says nothing of why it left. Which slots are empty the running array says, not the drives: until
//! something is written, one that was missing at the start has all events that the others have.
//! Orders go the way of `wattle add`, with all of its refusals.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use wattle_control::members::MemberAccess;
use wattle_control::{ArrayScan, Code, Scan, shell_word};
use wattle_engine::MemberState;
use wattle_operate::config::{Placed, StackConfig, pattern};
use wattle_rt::{Core, Instant};
use wattle_server::protocol::{Response, SavingOrder, ServerRequest};
use wattle_server::serving::Serving;

use super::wait::expanded;
use crate::cli::Force;
use crate::{members, output};

/// Between two looks at what is there.
const LOOK: Duration = Duration::from_secs(2);

/// A server across a network may take this long to show a drive that comes late: others wait.
const REMOTE_TIME: Duration = Duration::from_secs(10);

/// The longest pause between two attempts to take a drive that another process uses, or that may
/// only be read.
const RETRY_MAX: Duration = Duration::from_secs(120);

/// Where drives come from, and those that were there already.
pub struct LateMembers {
    members: Vec<Placed<String>>,
    spares: Vec<Placed<String>>,
    seen: BTreeSet<String>,
    /// Spares that were looked at.
    tried: BTreeSet<String>,
    /// The members that were there since the stack was started.
    known: BTreeSet<KnownMember>,
    /// Drives that were refused for a reason that may pass, by name.
    refused: BTreeMap<String, Refused>,
}

/// A drive that is tried again.
struct Refused {
    told: String,
    pause: Duration,
    due: Instant,
}

/// A member of an array, whatever its drive is called: the array's UUID and its number there.
pub type KnownMember = (String, u32);

/// Every member of every array among these.
pub fn known_members(scan: &Scan) -> BTreeSet<KnownMember> {
    let facts = scan.members.iter().filter_map(|member| member.facts.as_ref());
    facts.map(|facts| (facts.superblock.set_uuid.to_string(), facts.superblock.dev_number)).collect()
}

/// What is to be done with a drive that came.
#[derive(Debug, PartialEq, Eq)]
enum Arrival {
    /// It was away and comes back to this array.
    Returns { array: String, member: String },
    /// By what the drives say it is in this slot; it comes back if the array that runs lacks it.
    Fills { array: String, member: String, slot: usize },
    /// It was a member of this array, and failed or was removed.
    StaysOut { array: String, member: String },
    /// The file names it as a spare, and it is no member.
    Spare { member: String },
}

impl LateMembers {
    /// Of a stack of which these could be opened when it started, with these members on them.
    pub fn new(stack: &StackConfig, seen: BTreeSet<String>, known: BTreeSet<KnownMember>) -> Self {
        let (members, spares) = (stack.members.clone(), stack.spares.clone());
        Self { members, spares, seen, tried: BTreeSet::new(), known, refused: BTreeMap::new() }
    }

    /// Watches until the server ends.
    pub async fn watch(mut self, core: Core, access: MemberAccess, serving: Rc<Serving>) {
        while !serving.is_ending() {
            let (members, spares) = (self.members.clone(), self.spares.clone());
            let (mut seen, mut tried, access) = (self.seen.clone(), self.tried.clone(), access.clone());
            let now = core.now();
            let (mut due, waiting): (BTreeMap<_, _>, BTreeMap<_, _>) =
                std::mem::take(&mut self.refused).into_iter().partition(|(_, refused)| refused.due <= now);
            seen.extend(waiting.keys().cloned());
            tried.extend(waiting.keys().cloned());
            self.refused = waiting;
            let looked = core.offload(move || look(&access, (&members, &spares), &seen, &tried)).await;
            if let Ok(Some(looked)) = looked {
                (self.seen, self.tried) = (looked.seen, looked.tried);
                self.refused.retain(|name, _| self.seen.contains(name));
                for (arrival, of) in looked.arrivals {
                    self.take(&core, &serving, arrival, of, &mut due).await;
                }
                // Only what was taken, or refused for good, is not looked at again.
                self.seen.retain(|name| !self.refused.contains_key(name));
                self.tried.retain(|name| !self.refused.contains_key(name));
            } else {
                self.refused.extend(due);
            }
            core.sleep(LOOK).await;
        }
    }

    /// Takes what came, if it is wanted; `due` are the drives that were refused before.
    async fn take(
        &mut self,
        core: &Core,
        serving: &Serving,
        arrival: Arrival,
        of: Option<KnownMember>,
        due: &mut BTreeMap<String, Refused>,
    ) {
        let was_here = of.as_ref().is_some_and(|member| self.known.contains(member));
        let Some((array, member)) = wanted(core, serving, arrival.of_a_member_that(was_here)).await else {
            return;
        };
        let (undo, force) = (SavingOrder::default(), Vec::new());
        let order = ServerRequest::Add {
            array,
            member: member.clone(),
            force,
            write_mostly: false,
            undo,
            map: None,
            typed: None,
        };
        match serving.answer(order).await {
            Response::Done { message, .. } => {
                self.known.extend(of);
                output::note(&output::text::printable(&message));
            }
            Response::Error(error) => {
                let told = format!(
                    "{member} came and was not added: {}: {} ({})",
                    error.what, error.why, error.code
                );
                let before = due.remove(&member);
                if before.as_ref().is_none_or(|before| before.told != told) {
                    output::note(&output::text::printable(&told));
                }
                if may_pass(&error.code) {
                    let pause = before.map_or(LOOK, |before| (before.pause * 2).min(RETRY_MAX));
                    self.refused.insert(member, Refused { told, pause, due: core.now() + pause });
                }
            }
            _ => {}
        }
    }
}

/// Whether a refusal is for what another process does with the drive at the moment, or for how the
/// drive is set.
fn may_pass(code: &str) -> bool {
    matches!(Code::parse(code), Some(Code::Locked | Code::Changed | Code::ReadOnlyMember))
}

/// What a look found.
struct Looked {
    seen: BTreeSet<String>,
    tried: BTreeSet<String>,
    arrivals: Vec<(Arrival, Option<KnownMember>)>,
}

impl Arrival {
    fn of_a_member_that(self, was_here: bool) -> Self {
        match self {
            Self::Returns { array, member } if was_here => Self::StaysOut { array, member },
            Self::Fills { array, member, .. } if was_here => Self::StaysOut { array, member },
            other => other,
        }
    }
}

/// Looks what is new since the last look; `None` if nothing is. Blocks.
fn look(
    access: &MemberAccess,
    (members, spares): (&[Placed<String>], &[Placed<String>]),
    seen: &BTreeSet<String>,
    tried: &BTreeSet<String>,
) -> Option<Looked> {
    let names = expanded(members, spares);
    let there: BTreeSet<String> = names.iter().filter(|name| pattern::is_there(name)).cloned().collect();
    let spare_names: BTreeSet<String> =
        spares.iter().flat_map(|spare| pattern::expand(&spare.value)).collect();
    // What went and comes again is new.
    let before: BTreeSet<String> = seen.intersection(&there).cloned().collect();
    let fresh = |name: &String| !before.contains(name) || spare_names.contains(name) && !tried.contains(name);
    if !there.iter().any(fresh) && before.len() == seen.len() {
        return None;
    }
    let fresh: BTreeSet<String> = there.iter().filter(|name| fresh(name)).cloned().collect();
    let mut looked =
        Looked { seen: before, tried: tried.intersection(&there).cloned().collect(), arrivals: Vec::new() };
    // One that cannot be opened yet is new again at the next look, without the others being read.
    let fresh: Vec<String> = fresh.into_iter().collect();
    let access = &access.clone().with_remote_patience(REMOTE_TIME);
    let (opened, _) = members::look_each(access, &fresh, &Force { checks: Vec::new() }).ok()?;
    let opened: BTreeSet<String> = opened.members.iter().map(|scan| scan.member.name.clone()).collect();
    let fresh: BTreeSet<String> = fresh.into_iter().filter(|name| opened.contains(name)).collect();
    if !fresh.is_empty() {
        let (scan, _) = members::look_each(access, &names, &Force { checks: Vec::new() }).ok()?;
        looked.arrivals = arrivals(&scan, &fresh, &spare_names);
    }
    looked.tried.extend(fresh.intersection(&spare_names).cloned());
    looked.seen.extend(fresh);
    Some(looked)
}

/// What the new ones are to the arrays that they belong to.
fn arrivals(
    scan: &Scan,
    fresh: &BTreeSet<String>,
    spares: &BTreeSet<String>,
) -> Vec<(Arrival, Option<KnownMember>)> {
    let mut arrivals = Vec::new();
    let name = |array: &ArrayScan, ix: usize| scan.members[array.members[ix]].member.name.clone();
    for array in scan.arrays.iter() {
        let uuid = array.assembly.uuid().to_string();
        let known = |ix: usize| {
            let facts = scan.members[array.members[ix]].facts.as_ref();
            facts.map(|facts| (uuid.clone(), facts.superblock.dev_number))
        };
        for candidate in &array.assembly.re_addable {
            let (member, of) = (name(array, candidate.member), known(candidate.member));
            if fresh.contains(&member) {
                let returns = Arrival::Returns { array: uuid.clone(), member };
                arrivals.push((returns.of_a_member_that(candidate.failed), of));
            }
        }
        for (slot, filled) in array.assembly.slots.iter().enumerate() {
            let Some(ix) = filled.member() else { continue };
            let (member, of) = (name(array, ix), known(ix));
            if fresh.contains(&member) {
                arrivals.push((Arrival::Fills { array: uuid.clone(), member, slot }, of));
            }
        }
    }
    let strangers = scan.members.iter().filter(|member| member.superblock().is_none());
    let strangers = strangers.map(|member| member.member.name.clone());
    let spare = strangers.filter(|name| fresh.contains(name) && spares.contains(name));
    arrivals.extend(spare.map(|member| (Arrival::Spare { member }, None)));
    arrivals
}

/// What is to be added to which array, if anything is.
async fn wanted(core: &Core, serving: &Serving, arrival: Arrival) -> Option<(String, String)> {
    let arrays = serving.arrays();
    let served = |uuid: &str| arrays.iter().find(|served| served.facts.uuid.as_deref() == Some(uuid));
    match arrival {
        Arrival::StaysOut { array, member } => {
            served(&array)?;
            let member = output::text::printable(&member);
            output::note(&format!(
                "{member} is there again after it failed or was removed: it stays out; to take it back: wattle add {} {}",
                shell_word(&array),
                shell_word(&member)
            ));
            None
        }
        Arrival::Returns { array, member } => served(&array).is_some().then_some((array, member)),
        Arrival::Fills { array, member, slot } => {
            let status = served(&array)?.handle.status(core).await;
            let lacks = status.members.get(slot).is_some_and(|member| member.state == MemberState::Missing);
            lacks.then_some((array, member))
        }
        // There is one array: the file says so.
        Arrival::Spare { member } => Some((arrays.first()?.facts.uuid.clone()?, member)),
    }
}
