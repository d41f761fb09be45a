//! Drives that come while a stack runs: members that were just not there come back, brought up to
//! date by the bitmap, and the spares that the file names are added.
//!
//! What failed, or was a member in this run and is none any more, stays out: that it is there again
//! says nothing of why it left.
//! Orders go the way of `wattle add`, with all of its refusals.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use wattle_control::members::MemberAccess;
use wattle_control::{ArrayScan, Scan};
use wattle_operate::config::{Placed, StackConfig, pattern};
use wattle_rt::Core;
use wattle_server::protocol::{Response, SavingOrder, ServerRequest};
use wattle_server::serving::Serving;

use super::wait::expanded;
use crate::cli::Force;
use crate::{members, output};

/// Between two looks at what is there.
const LOOK: Duration = Duration::from_secs(2);

/// Where drives come from, and those that were there already.
pub struct LateMembers {
    members: Vec<Placed<String>>,
    spares: Vec<Placed<String>>,
    seen: BTreeSet<String>,
    /// Spares that were looked at.
    tried: BTreeSet<String>,
    /// The members that were there since the stack was started.
    known: BTreeSet<KnownMember>,
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
    /// It was a member of this array, and failed or was removed.
    StaysOut { array: String, member: String },
    /// The file names it as a spare, and it is no member.
    Spare { member: String },
}

impl LateMembers {
    /// Of a stack of which these could be opened when it started, with these members on them.
    pub fn new(stack: &StackConfig, seen: BTreeSet<String>, known: BTreeSet<KnownMember>) -> Self {
        let (members, spares) = (stack.members.clone(), stack.spares.clone());
        Self { members, spares, seen, tried: BTreeSet::new(), known }
    }

    /// Watches until the server ends.
    pub async fn watch(mut self, core: Core, access: MemberAccess, serving: Rc<Serving>) {
        while !serving.is_ending() {
            let (members, spares) = (self.members.clone(), self.spares.clone());
            let (seen, tried, access) = (self.seen.clone(), self.tried.clone(), access.clone());
            let looked = core.offload(move || look(&access, (&members, &spares), &seen, &tried)).await;
            if let Ok(Some(looked)) = looked {
                (self.seen, self.tried) = (looked.seen, looked.tried);
                for (arrival, of) in looked.arrivals {
                    let was_here = of.is_some_and(|member| !self.known.insert(member));
                    take(&serving, arrival.of_a_member_that(was_here)).await;
                }
            }
            core.sleep(LOOK).await;
        }
    }
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
        for candidate in &array.assembly.re_addable {
            let facts = scan.members[array.members[candidate.member]].facts.as_ref();
            let of = facts.map(|facts| (uuid.clone(), facts.superblock.dev_number));
            let (member, array) = (name(array, candidate.member), uuid.clone());
            if fresh.contains(&member) {
                let returns = Arrival::Returns { array, member };
                arrivals.push((returns.of_a_member_that(candidate.failed), of));
            }
        }
    }
    let strangers = scan.members.iter().filter(|member| member.superblock().is_none());
    let strangers = strangers.map(|member| member.member.name.clone());
    let spare = strangers.filter(|name| fresh.contains(name) && spares.contains(name));
    arrivals.extend(spare.map(|member| (Arrival::Spare { member }, None)));
    arrivals
}

async fn take(serving: &Serving, arrival: Arrival) {
    let arrays = serving.arrays();
    let served = |uuid: &str| arrays.iter().any(|served| served.facts.uuid.as_deref() == Some(uuid));
    let (array, member) = match arrival {
        Arrival::StaysOut { array, member } if served(&array) => {
            let member = output::text::printable(&member);
            output::note(&format!(
                "{member} is there again after it failed or was removed: it stays out; to take it back: wattle add {array} {member}"
            ));
            return;
        }
        Arrival::Returns { array, member } if served(&array) => (array, member),
        // There is one array: the file says so.
        Arrival::Spare { member } => match arrays.first().and_then(|served| served.facts.uuid.clone()) {
            Some(array) => (array, member),
            None => return,
        },
        _ => return,
    };
    let (undo, force) = (SavingOrder::default(), Vec::new());
    let order =
        ServerRequest::Add { array, member: member.clone(), force, write_mostly: false, undo, map: None };
    match serving.answer(order).await {
        Response::Done { message, .. } => output::note(&output::text::printable(&message)),
        Response::Error(error) => {
            let line =
                format!("{member} came and was not added: {}: {} ({})", error.what, error.why, error.code);
            output::note(&output::text::printable(&line));
        }
        _ => {}
    }
}
