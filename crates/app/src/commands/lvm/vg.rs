//! `wattle vg create`, `remove`, `export`, `import`, `restore`.

use wattle_control::lvm::commit::CommitRole;
use wattle_control::lvm::edit::{self, State};
use wattle_control::lvm::plan::{self, Before, ChangeTarget, GroupPlan};
use wattle_control::members::MemberAccess;
use wattle_control::units::Units;
use wattle_control::{Code, Problem, Stack, shell_word};
use wattle_server::groups::vg::{check_name_free, joining, simple};
use wattle_server::groups::{GroupChange, backup, look};
use wattle_server::ids::random_id;
use wattle_server::protocol::ChangeReport;

use super::work;
use crate::cli::{CreateGroupArgs, GroupArgs, RestoreArgs};
use crate::members;
use crate::output::Screen;

/// # Errors
/// The name does not do, something is on a member, or it cannot be written.
pub fn create(access: &MemberAccess, args: &CreateGroupArgs, screen: Screen) -> Result<(), Problem> {
    work::show(&make(access, args, screen.units)?, &args.change.json, screen)
}

/// The same, not shown yet.
///
/// # Errors
/// As [`create`].
pub fn make(access: &MemberAccess, args: &CreateGroupArgs, units: Units) -> Result<ChangeReport, Problem> {
    let name = &args.group;
    work::make(access, &args.change, &async |core, stack, _| {
        check_name_free(stack, name)?;
        let extent_sectors = args.extent_size.0 / 512;
        let devices = look::devices(stack, &args.change.on)?;
        let joining =
            joining(core, stack, members::forced(&args.change.force), devices, extent_sectors).await?;
        let after = edit::create_group(name, random_id()?, extent_sectors, &joining.pvs)?;
        let extents: u64 = after.pvs.iter().map(|pv| pv.pe_count).sum();
        let size_bytes = extents.saturating_mul(extent_sectors).saturating_mul(512);
        let plan = GroupPlan { before: None, after: None, places: joining.places }.to(after)?;
        Ok(GroupChange {
            action: format!("vg create {name}"),
            result: format!("volume group {name} of {}, {extents} extents", units.show_capacity(size_bytes)),
            plan,
            commands: vec![format!(
                "vgcreate -s {}k {name} {}",
                args.extent_size.0 >> 10,
                joining.devices.join(" ")
            )],
            notes: joining.notes,
            step: None,
        })
    })
}

/// # Errors
/// It has volumes, or must not be changed.
pub fn remove(access: &MemberAccess, args: &GroupArgs, screen: Screen) -> Result<(), Problem> {
    work::change(access, &args.change, screen, &async |_, stack, _| {
        let group = look::group(stack, &args.group, State::Here)?;
        let name = &group.vg.name;
        let volumes: Vec<_> = group.vg.lvs.iter().map(|lv| lv.name.as_str()).collect();
        if !volumes.is_empty() {
            return Err(Problem::new(
                Code::VolumeInUse,
                format!("{name} holds {}", volumes.join(", ")),
                "what they hold would be gone",
                "remove them first (`wattle lv remove`)",
            ));
        }
        let places = group.devices.iter().flatten();
        let places =
            places.filter_map(|&member| ChangeTarget::of(&stack.scan, member, CommitRole::Leaves)).collect();
        Ok(GroupChange {
            action: format!("vg remove {name}"),
            result: format!("volume group {name}: gone; its physical volumes are in none"),
            plan: GroupPlan { before: Some(Before::of(group)), after: None, places },
            commands: vec![format!("vgremove {}", shell_word(name))],
            notes: Vec::new(),
            step: None,
        })
    })
}

/// # Errors
/// The group must not be changed, or is exported already, or is not.
pub fn export(
    access: &MemberAccess,
    args: &GroupArgs,
    screen: Screen,
    exported: bool,
) -> Result<(), Problem> {
    work::change(access, &args.change, screen, &async |_, stack, _| {
        let state = if exported { State::Here } else { State::Exported };
        let group = look::group(stack, &args.group, state)?;
        let after = edit::export_group(&group.vg, exported)?;
        let word = if exported { "export" } else { "import" };
        let name = &group.vg.name;
        simple(
            stack,
            group,
            after,
            &format!("vg {word} {name}"),
            &format!("volume group {name}: {word}ed"),
            &format!("vg{word} {}", shell_word(name)),
        )
    })
}

/// # Errors
/// The backup cannot be read, is another group's, or does not fit what is there.
pub fn restore(access: &MemberAccess, args: &RestoreArgs, screen: Screen) -> Result<(), Problem> {
    let text = backup::read(&args.file)?;
    let name = &args.group;
    work::change(access, &args.change, screen, &async |_, stack, _| {
        let forced = members::forced(&args.change.force);
        let plan = plan::restore(&stack.scan, &stack.groups, (name, &text), forced)?;
        let (file, word) = (args.file.display(), shell_word(&wattle_rt::text_of_path(&args.file)));
        Ok(GroupChange {
            action: format!("vg restore {name}"),
            result: format!("volume group {name}: as in {file}"),
            notes: restored_notes(stack, &plan),
            plan,
            commands: vec![format!("vgcfgrestore --file {word} {}", shell_word(name))],
            step: None,
        })
    })
}

/// What a restore does not bring back, and which PVs it drops.
fn restored_notes(stack: &Stack, plan: &GroupPlan) -> Vec<String> {
    let mut notes = vec![
        "what volumes hold is not in a backup: extents that were used otherwise since hold that".to_owned(),
    ];
    let leaves = plan.places.iter().filter(|place| place.role == CommitRole::Leaves);
    notes.extend(leaves.map(|place| {
        let device = look::linux_name(stack, place.member);
        format!("{device} joined the group since: it belongs to none then, and what lies on it is given up")
    }));
    notes
}
