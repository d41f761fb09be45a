//! Drives that take no writes, as some do at their end: they count as missing, since redundancy
//! makes up for them.
//!
//! Such a drive can still be read, and what it says of its arrays and groups counts. Invariant: one
//! is left out only where the members that remain are those that the array would have in use with
//! it, and where the physical volumes that remain have the newest text of their group: an older
//! member that does not know what happened since would be served, and written, as if it were
//! current. A drive that cannot be left out stays among the members, and `serve` refuses to write
//! without it where it is needed.

use std::collections::BTreeSet;

use wattle_control::lvm::{GroupScan, group};
use wattle_control::members::MemberAccess;
use wattle_control::scan::MemberOrigin;
use wattle_control::{ArrayScan, MemberId, Problem, Scan, Verdict};
use wattle_format::lvm::SegmentKind;
use wattle_operate::config::StackConfig;

use super::wait::is_encrypted;
use crate::cli::Force;
use crate::members;

/// What a look at the drives found.
pub struct LookedDrives {
    /// What is on those that are taken.
    pub scan: Scan,
    /// Why others cannot be opened, or are left out.
    pub unopened: Vec<Problem>,
    /// What to tell of drives that are read-only.
    pub notes: Vec<String>,
}

/// What is on these drives, without those that are read-only and can be left out, unless the stack
/// is only read.
///
/// # Errors
/// One is given twice.
pub fn look(access: &MemberAccess, stack: &StackConfig, names: &[String]) -> Result<LookedDrives, Problem> {
    let force = Force { checks: Vec::new() };
    let (all, unopened) = members::look_each(access, names, &force)?;
    let mut notes = Vec::new();
    let mut read_only: Vec<Problem> = match stack.read_only {
        true => Vec::new(),
        false => candidates(stack, &all, names),
    };
    while !read_only.is_empty() {
        let left_out: BTreeSet<&str> = read_only.iter().filter_map(|of| of.member.as_deref()).collect();
        let others: Vec<_> = names.iter().filter(|name| !left_out.contains(name.as_str())).cloned().collect();
        let (scan, unopened) = members::look_each(access, &others, &force)?;
        let (needed, told) = needed(stack, &all, &scan, &left_out);
        notes.extend(told);
        if needed.is_empty() {
            notes.extend(left_out.iter().map(|name| format!("{name} is read-only: it counts as missing")));
            return Ok(LookedDrives { scan, unopened: [unopened, read_only].concat(), notes });
        }
        read_only.retain(|of| of.member.as_ref().is_none_or(|name| !needed.contains(name)));
    }
    Ok(LookedDrives { scan: all, unopened, notes })
}

/// The drives that are read-only and part of the stack, each with the problem that it is. What lies
/// on one that is encrypted is not known yet, nor whether others can do without it.
fn candidates(stack: &StackConfig, scan: &Scan, names: &[String]) -> Vec<Problem> {
    let mut parts: BTreeSet<&str> = arrays(stack, scan)
        .into_iter()
        .flat_map(|array| array.members.iter().chain(&array.unused))
        .map(|&id| drive(scan, id))
        .collect();
    if stack.arrays.is_empty() {
        let physical = scan.members.entries().filter(|(_, seen)| seen.physical.is_some());
        parts.extend(physical.map(|(id, _)| drive(scan, id)));
    }
    parts.extend(stack.members.iter().chain(&stack.spares).map(|named| named.value.as_str()));
    let hidden = scan.members.entries().filter(|(_, seen)| is_encrypted(seen));
    let hidden: BTreeSet<&str> = hidden.map(|(id, _)| drive(scan, id)).collect();
    let given = scan.members.iter().filter(|seen| names.contains(&seen.member.name));
    let of_stack = given.filter(|seen| {
        let name = seen.member.name.as_str();
        parts.contains(name) && !hidden.contains(name)
    });
    of_stack.filter_map(|seen| Some(seen.member.check_writable().err()?.into())).collect()
}

/// Which of the drives `left_out` cannot be: what is on `all` would be another thing without them
/// than what is on `rest`; and what to tell of them.
fn needed(
    stack: &StackConfig,
    all: &Scan,
    rest: &Scan,
    left_out: &BTreeSet<&str>,
) -> (BTreeSet<String>, Vec<String>) {
    let (mut needed, mut notes) = (BTreeSet::new(), Vec::new());
    let of = |ids: &mut dyn Iterator<Item = MemberId>| -> BTreeSet<&str> {
        ids.map(|id| drive(all, id)).filter(|name| left_out.contains(name)).collect()
    };
    for array in arrays(stack, all) {
        let drives = of(&mut array.members.iter().chain(&array.unused).copied());
        let (name, now) = (array.assembly.name(), rest.array(array.assembly.uuid()));
        let can_do_without = match (array.assembly.refusal(), now.map(|now| (now, now.assembly.refusal()))) {
            _ if drives.is_empty() => true,
            (_, None) => false,
            (before, Some((_, Some(_)))) => before.is_some(),
            (Some(_), Some((_, None))) => false,
            (None, Some((now, None))) => {
                let is_current = is_current_in(all, array, rest, now);
                if !is_current {
                    notes.extend(drives.iter().map(|drive| {
                        format!(
                            "{drive} is read-only, and is not left out: other members of {name} are older"
                        )
                    }));
                }
                is_current
            }
        };
        if !can_do_without {
            needed.extend(drives.into_iter().map(str::to_owned));
        }
    }
    let after = group::on(rest);
    for before in group::on(all).iter().filter(|_| stack.arrays.is_empty()) {
        let drives = of(&mut before.devices.iter().flatten().copied());
        let name = &before.vg.name;
        let why = match after.iter().find(|after| after.vg.id == before.vg.id) {
            _ if drives.is_empty() => continue,
            Some(after) if after.vg.seqno < before.vg.seqno => {
                format!("others of {name} have an older text")
            }
            Some(_) if has_copies(all, before, &drives) => {
                format!("volumes of {name} with redundancy lie on it, and what others have may be older")
            }
            Some(after) if after.problem.is_none() || before.problem.is_some() => continue,
            _ => format!("{name} cannot do without it"),
        };
        notes.extend(drives.iter().map(|drive| format!("{drive} is read-only, and is not left out: {why}")));
        needed.extend(drives.into_iter().map(str::to_owned));
    }
    (needed, notes)
}

/// Whether what an array has in use among the members that remain, it has with all of them.
fn is_current_in(all: &Scan, array: &ArrayScan, rest: &Scan, now: &ArrayScan) -> bool {
    let slots = now.assembly.slots.iter().filter_map(|slot| slot.member());
    let replacements = now.assembly.replacements.iter().flatten().map(|replacement| replacement.member);
    let is_current = |at: usize| {
        let name = &rest.members[now.members[at]].member.name;
        let before = array.members.iter().position(|&id| all.members[id].member.name == *name);
        before.is_some_and(|at| {
            use Verdict::{Fresh, Rebuilding, Replacement};
            matches!(array.assembly.verdicts[at], Fresh { .. } | Rebuilding { .. } | Replacement { .. })
        })
    };
    slots.chain(replacements).all(is_current)
}

/// Whether a copy of something that a volume of the group has more than one of lies on these
/// drives: which of them is current is known only once they are read.
fn has_copies(scan: &Scan, group: &GroupScan, drives: &BTreeSet<&str>) -> bool {
    let segments = group.vg.lvs.iter().flat_map(|lv| &lv.segments).map(|segment| &segment.kind);
    let copied = segments.filter(|kind| matches!(kind, SegmentKind::Raid(_) | SegmentKind::Mirror { .. }));
    let copied: BTreeSet<&str> = copied.flat_map(SegmentKind::references).collect();
    group.vg.pvs.iter().zip(&group.devices).any(|(pv, device)| {
        let Some(id) = device.filter(|&id| drives.contains(drive(scan, id))) else { return false };
        let physical = scan.members[id].physical.as_ref();
        let volumes = physical.map_or(Vec::new(), |physical| physical.volumes_of(&group.vg));
        copied.contains(pv.name.as_str()) || volumes.iter().any(|volume| copied.contains(volume))
    })
}

/// The arrays of a stack that are there.
fn arrays<'s>(stack: &StackConfig, scan: &'s Scan) -> Vec<&'s ArrayScan> {
    match stack.arrays.as_slice() {
        [] => scan.arrays.iter().collect(),
        named => named.iter().filter_map(|name| scan.find(Some(&name.value)).ok()).collect(),
    }
}

/// The drive that a member is, or is a part of.
fn drive(scan: &Scan, mut id: MemberId) -> &str {
    while let MemberOrigin::Partition { of, .. } | MemberOrigin::Container { of, .. } =
        scan.members[id].origin
    {
        id = of;
    }
    &scan.members[id].member.name
}
