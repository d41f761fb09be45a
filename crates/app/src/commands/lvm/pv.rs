//! `wattle pv create`, `remove`, `resize`.

use wattle_control::MemberId;
use wattle_control::lvm::commit::CommitRole;
use wattle_control::lvm::edit::{State, check_changeable, resize_physical};
use wattle_control::lvm::plan::{ChangeTarget, GroupPlan};
use wattle_control::members::MemberAccess;
use wattle_control::{Check, Code, Problem, Stack};
use wattle_format::lvm::Label;
use wattle_server::groups::pv::{is_unused_physical, new_physical, size_bytes};
use wattle_server::groups::{GroupChange, look};

use super::work;
use crate::cli::ChangeArgs;
use crate::members;
use crate::output::Screen;

/// # Errors
/// Something is on a member, or it cannot be written.
pub fn create(access: &MemberAccess, args: &ChangeArgs, screen: Screen) -> Result<(), Problem> {
    work::change(access, args, screen, &async |core, stack, _| {
        let (mut places, mut notes, mut commands) = (Vec::new(), Vec::new(), Vec::new());
        let mut there = Vec::new();
        for member in look::devices(stack, &args.on)? {
            look::check_in_no_group(stack, member)?;
            let seen = &stack.scan.members[member];
            if is_unused_physical(seen) && !members::forced(&args.force).has(Check::Signature) {
                // As a command left it that was to make several.
                notes.push(format!("{}: it is an unused physical volume already", seen.member.name));
                there.push(seen.member.name.clone());
                continue;
            }
            let (place, told) = new_physical(core, stack, member, members::forced(&args.force)).await?;
            commands.push(command(stack, &place));
            notes.extend(told);
            places.push(place);
        }
        there.extend(places.iter().map(|place: &ChangeTarget| place.name.clone()));
        let action = format!("pv create {}", there.join(", "));
        let result = format!("{}: physical volume", there.join(", "));
        Ok(GroupChange {
            action,
            result,
            plan: GroupPlan { before: None, after: None, places },
            commands,
            notes,
            step: None,
        })
    })
}

fn names(places: &[ChangeTarget]) -> String {
    places.iter().map(|place| place.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn command(stack: &Stack, place: &ChangeTarget) -> String {
    let start = place.label.data_areas.first().map_or(0, |area| area.offset_bytes);
    format!("pvcreate --dataalignment {}k {}", start >> 10, look::linux_word(stack, place.member))
}

/// # Errors
/// It is in use, or is no physical volume.
pub fn remove(access: &MemberAccess, args: &ChangeArgs, screen: Screen) -> Result<(), Problem> {
    work::change(access, args, screen, &async |_, stack, _| {
        let (mut places, mut commands) = (Vec::new(), Vec::new());
        for member in look::devices(stack, &args.on)? {
            look::check_in_no_group(stack, member)?;
            places.push(physical(stack, member, CommitRole::Goes)?);
            commands.push(format!("pvremove {}", look::linux_word(stack, member)));
        }
        let action = format!("pv remove {}", names(&places));
        let result = format!("{}: no physical volume any more", names(&places));
        let plan = GroupPlan { before: None, after: None, places };
        Ok(GroupChange { action, result, plan, commands, notes: Vec::new(), step: None })
    })
}

/// # Errors
/// Volumes are on what would go, or it is no physical volume.
pub fn resize(access: &MemberAccess, args: &ChangeArgs, screen: Screen) -> Result<(), Problem> {
    work::change(access, args, screen, &async |core, stack, _| {
        let member = match &look::devices(stack, &args.on)?[..] {
            [member] => *member,
            several => {
                return Err(Problem::new(
                    Code::SeveralVolumes,
                    format!("{} physical volumes to choose from", several.len()),
                    "one is resized at a time",
                    "name it with --on",
                ));
            }
        };
        let mut place = physical(stack, member, CommitRole::Belongs)?;
        let size_bytes = size_bytes(core, stack, member).await? / 512 * 512;
        let data_at = place.label.data_areas.first().map_or(0, |area| area.offset_bytes);
        let behind = place.label.metadata_areas.iter().any(|area| area.offset_bytes >= data_at);
        if behind && size_bytes != place.label.device_bytes {
            return Err(Problem::new(
                Code::NotSupportedYet,
                format!("{} has a metadata area behind its data", place.name),
                "it would have to move; nothing was changed",
                "use pvresize",
            )
            .of_member(&place.name));
        }
        place.label.device_bytes = size_bytes;
        let action = format!("pv resize {}", place.name);
        let result = format!("{}: physical volume of {}", place.name, screen.units.show(size_bytes));
        let commands = vec![format!("pvresize {}", look::linux_word(stack, member))];
        let plan = match look::group_of(stack, member) {
            None => {
                look::check_in_no_group(stack, member)?;
                place.label.extension.iter_mut().for_each(|extension| extension.flags &= !1);
                GroupPlan { before: None, after: None, places: vec![place] }
            }
            Some(group) => {
                check_changeable(group, State::Here)?;
                let pe_count = match group.vg.pvs.iter().find(|pv| pv.id == place.label.id) {
                    Some(pv) => extents(&place.label, pv.pe_start, group.vg.extent_sectors),
                    None => 0,
                };
                let after = resize_physical(&group.vg, &place.label.id, size_bytes / 512, pe_count)?;
                let mut plan = GroupPlan::change(&stack.scan, group, after)?;
                for known in plan.places.iter_mut().filter(|known| known.member == member) {
                    known.label.device_bytes = size_bytes;
                }
                plan
            }
        };
        Ok(GroupChange { action, result, plan, commands, notes: Vec::new(), step: None })
    })
}

/// How many extents there is room for: up to the end, or a metadata area before it.
fn extents(label: &Label, pe_start: u64, extent_sectors: u64) -> u64 {
    let areas = label.metadata_areas.iter().map(|area| area.offset_bytes / 512);
    let end = areas.filter(|at| *at >= pe_start).fold(label.device_bytes / 512, u64::min);
    end.saturating_sub(pe_start).checked_div(extent_sectors).unwrap_or(0)
}

/// A member that is a physical volume.
fn physical(stack: &Stack, member: MemberId, role: CommitRole) -> Result<ChangeTarget, Problem> {
    ChangeTarget::of(&stack.scan, member, role).ok_or_else(|| {
        let name = &stack.scan.members[member].member.name;
        Problem::new(
            Code::NoSuchVolume,
            format!("{name} is no physical volume"),
            "it has no label of LVM2",
            "see `wattle pv list`; --on says which is meant where others are given too",
        )
        .of_member(name)
    })
}
