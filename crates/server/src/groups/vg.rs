//! Changes of volume groups that their server can carry out too: extend, reduce, rename.

use std::path::Path;

use wattle_control::MemberId;
use wattle_control::lvm::GroupScan;
use wattle_control::lvm::commit::CommitRole;
use wattle_control::lvm::edit::{self, NewPv, State};
use wattle_control::lvm::physical::AreaScan;
use wattle_control::lvm::plan::{self, ChangeTarget, GroupPlan};
use wattle_control::{Code, Forced, Problem, Stack, shell_word};
use wattle_format::lvm::Vg;
use wattle_format::lvm::label::Extension;
use wattle_rt::Core;

use super::change::GroupChange;
use super::{look, pv};

/// Refuses a name that a group has already.
///
/// # Errors
/// One has.
pub fn check_name_free(stack: &Stack, name: &str) -> Result<(), Problem> {
    if stack.groups.iter().any(|group| group.vg.name == name) {
        return Err(Problem::new(
            Code::NameInUse,
            format!("a volume group is called {name} already"),
            "groups are found by their names",
            "choose another name",
        ));
    }
    let device = Path::new("/dev").join(name);
    if device.exists() {
        return Err(Problem::new(
            Code::NameInUse,
            format!("{} is there already", device.display()),
            "LVM2 puts the volumes of a group in a directory of that name there, and refuses such names",
            "choose another name",
        ));
    }
    Ok(())
}

/// What joins a group.
#[derive(Debug)]
pub struct Joining {
    /// As what members become part of it.
    pub places: Vec<ChangeTarget>,
    /// The same, as its text names them.
    pub pvs: Vec<NewPv>,
    /// Their names where Linux sees them, as words of a command.
    pub devices: Vec<String>,
    /// What to know.
    pub notes: Vec<String>,
}

/// These members, which are to be in no group.
///
/// # Errors
/// One is in a group, something is on it, or there is none.
pub async fn joining(
    core: &Core,
    stack: &mut Stack,
    forced: Forced,
    members: Vec<MemberId>,
    extent_sectors: u64,
) -> Result<Joining, Problem> {
    let mut joining = Joining { places: Vec::new(), pvs: Vec::new(), devices: Vec::new(), notes: Vec::new() };
    for member in members {
        look::check_in_no_group(stack, member)?;
        let as_it_is = ChangeTarget::of(&stack.scan, member, CommitRole::Belongs);
        // A label stays when a table or a file system is made beside it.
        let place = match as_it_is.filter(|_| pv::can_join(stack, &stack.scan.members[member])) {
            Some(place) => place,
            None => {
                let (mut place, notes) = pv::new_physical(core, stack, member, forced).await?;
                plan::say_in_a_group(&mut place.label, true);
                joining.notes.extend(notes);
                place
            }
        };
        joining.pvs.push(pv::member_of_group(stack, &place, extent_sectors));
        joining.devices.push(look::linux_word(stack, member));
        joining.places.push(place);
    }
    if joining.places.is_empty() {
        return Err(Problem::new(
            Code::NoSuchVolume,
            "nothing is given that could join the group",
            "every device among the members is in it already",
            "give another file, device or array",
        ));
    }
    Ok(joining)
}

/// A group with more physical volumes: those named, or else everything on the members given that is
/// in none.
///
/// # Errors
/// It must not be changed, something is on a member, or it cannot be written.
pub async fn extend(
    core: &Core,
    stack: &mut Stack,
    group: &str,
    devices: &[String],
    forced: Forced,
) -> Result<GroupChange, Problem> {
    let group = look::group(stack, group, State::Here)?.clone();
    let devices = look::devices(stack, devices)?;
    let new: Vec<_> = devices.into_iter().filter(|member| !group.devices.contains(&Some(*member))).collect();
    if new.is_empty() && is_unfinished(stack, &group) {
        return complete(stack, &group);
    }
    let joining = joining(core, stack, forced, new, group.vg.extent_sectors).await?;
    let after = edit::add_physical(&group.vg, &joining.pvs)?;
    let name = &group.vg.name;
    let extents: u64 = joining.pvs.iter().map(|pv| pv.pe_count).sum();
    let mut plan = GroupPlan::change(&stack.scan, &group, after)?;
    plan.places.extend(joining.places);
    Ok(GroupChange {
        action: format!("vg extend {name}"),
        result: format!("volume group {name}: {extents} extents more"),
        plan,
        commands: vec![format!("vgextend {} {}", shell_word(name), joining.devices.join(" "))],
        notes: joining.notes,
        step: None,
    })
}

/// Whether some physical volume does not say what the group's text says: the command that added it
/// ended half-way.
fn is_unfinished(stack: &Stack, group: &GroupScan) -> bool {
    group.devices.iter().flatten().any(|&member| {
        let Some(physical) = &stack.scan.members[member].physical else { return false };
        let behind = |area: &AreaScan| {
            let is_used = area.header.as_ref().is_some_and(|header| !header.is_ignored());
            is_used && area.text.as_ref().is_none_or(|(text, _)| *text != group.text)
        };
        let says_so = physical.label.extension.as_ref().is_none_or(Extension::in_vg);
        !says_so || physical.areas.iter().any(behind)
    })
}

/// The text once more, to every physical volume.
fn complete(stack: &Stack, group: &GroupScan) -> Result<GroupChange, Problem> {
    let name = &group.vg.name;
    let after = edit::written_again(&group.vg)?;
    simple(
        stack,
        group,
        after,
        &format!("vg extend {name}"),
        &format!("volume group {name}: nothing joins it; what a command left unfinished is complete now"),
        &format!("vgck --updatemetadata {}", shell_word(name)),
    )
}

/// A group with one physical volume less.
///
/// # Errors
/// Volumes are on it, or it must not be changed.
pub fn reduce(stack: &Stack, group: &str, on: &[String]) -> Result<GroupChange, Problem> {
    let group = look::group(stack, group, State::Here)?;
    let name = &group.vg.name;
    let [pv] = &look::physical(stack, group, on)?[..] else {
        return Err(Problem::new(
            Code::Usage,
            format!("which physical volume is to leave {name}?"),
            "one is taken out at a time",
            "name it: --on NAME (`wattle pv list` lists them)",
        ));
    };
    let at = group.vg.pvs.iter().position(|known| known.name == *pv);
    let member = at.and_then(|at| group.devices[at]);
    let id = at.map(|at| group.vg.pvs[at].id).expect("it was found among them");
    let shown = member.map_or(id.to_string(), |member| stack.scan.members[member].member.name.clone());
    let after = edit::remove_physical(&group.vg, &id, &shown)?;
    let device = member.map_or(id.to_string(), |member| look::linux_name(stack, member));
    Ok(GroupChange {
        action: format!("vg reduce {name}"),
        result: format!("volume group {name}: without {device}"),
        plan: GroupPlan::change(&stack.scan, group, after)?,
        commands: vec![format!("vgreduce {} {}", shell_word(name), shell_word(&device))],
        notes: Vec::new(),
        step: None,
    })
}

/// A group under another name.
///
/// # Errors
/// The name does not do or is in use, or the group must not be changed.
pub fn rename(stack: &Stack, group: &str, to: &str) -> Result<GroupChange, Problem> {
    check_name_free(stack, to)?;
    let group = look::group(stack, group, State::HereOrExported)?;
    let after = edit::rename_group(&group.vg, to)?;
    let name = &group.vg.name;
    simple(
        stack,
        group,
        after,
        &format!("vg rename {name}"),
        &format!("volume group {to}, which was {name}"),
        &format!("vgrename {} {to}", group.vg.id),
    )
}

/// A change of the group's text alone.
///
/// # Errors
/// A physical volume is missing.
pub fn simple(
    stack: &Stack,
    group: &GroupScan,
    after: Vg,
    action: &str,
    result: &str,
    command: &str,
) -> Result<GroupChange, Problem> {
    Ok(GroupChange {
        action: action.to_owned(),
        result: result.to_owned(),
        plan: GroupPlan::change(&stack.scan, group, after)?,
        commands: vec![command.to_owned()],
        notes: Vec::new(),
        step: None,
    })
}
