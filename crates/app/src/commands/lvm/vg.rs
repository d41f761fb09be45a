//! `wattle vg create`, `extend`, `reduce`, `remove`, `rename`, `export`, `import`, `restore`.

use wattle_control::lvm::GroupScan;
use wattle_control::lvm::commit::Role;
use wattle_control::lvm::edit::{self, NewPv, State};
use wattle_control::lvm::plan::{self, Before, Place, Plan};
use wattle_control::{Code, Forced, Problem, Stack};
use wattle_rt::Core;

use super::work::{self, Change, Report};
use super::{backup, look, pv};
use crate::cli::{CreateGroupArgs, GroupArgs, RestoreArgs};
use crate::members;
use crate::output::{Screen, Units};

/// # Errors
/// The name does not do, something is on a member, or it cannot be written.
pub fn create(args: &CreateGroupArgs, screen: Screen) -> Result<(), Problem> {
    work::show(&make(args, screen.units)?, &args.change.json, screen)
}

/// The same, not shown yet.
///
/// # Errors
/// As [`create`].
pub fn make(args: &CreateGroupArgs, units: Units) -> Result<Report, Problem> {
    let name = &args.group;
    work::make(&args.change, async |core, stack| {
        check_name_free(stack, name)?;
        let extent_sectors = args.extent_size.0 / 512;
        let devices = look::devices(stack, &args.change.on)?;
        let joining =
            joining(core, stack, members::forced(&args.change.force), devices, extent_sectors).await?;
        let after = edit::create_group(name, work::random_id()?, extent_sectors, &joining.pvs)?;
        let extents: u64 = after.pvs.iter().map(|pv| pv.pe_count).sum();
        let size_bytes = extents.saturating_mul(extent_sectors).saturating_mul(512);
        let plan = Plan { before: None, after: None, places: joining.places }.to(after)?;
        Ok(Change {
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

fn check_name_free(stack: &Stack, name: &str) -> Result<(), Problem> {
    if stack.groups.iter().all(|group| group.vg.name != name) {
        return Ok(());
    }
    Err(Problem::new(
        Code::NameInUse,
        format!("a volume group is called {name} already"),
        "groups are found by their names",
        "choose another name",
    ))
}

/// What joins a group.
struct Joining {
    places: Vec<Place>,
    pvs: Vec<NewPv>,
    devices: Vec<String>,
    notes: Vec<String>,
}

/// These members, which are to be in no group.
async fn joining(
    core: &Core,
    stack: &mut Stack,
    forced: Forced,
    members: Vec<usize>,
    extent_sectors: u64,
) -> Result<Joining, Problem> {
    let mut joining = Joining { places: Vec::new(), pvs: Vec::new(), devices: Vec::new(), notes: Vec::new() };
    for member in members {
        look::check_in_no_group(stack, member)?;
        let place = match Place::of(&stack.scan, member, Role::Belongs) {
            Some(place) => place,
            None => {
                let (mut place, notes) = pv::new_physical(core, stack, member, forced).await?;
                plan::say_in_a_group(&mut place.label, true);
                joining.notes.extend(notes);
                place
            }
        };
        joining.pvs.push(pv::member_of_group(stack, &place, extent_sectors));
        joining.devices.push(look::linux_name(stack, member));
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

/// A group with more physical volumes: those named, or else everything on the members given that is in none.
///
/// # Errors
/// It must not be changed, something is on a member, or it cannot be written.
pub async fn extend(
    core: &Core,
    stack: &mut Stack,
    group: &str,
    devices: &[String],
    forced: Forced,
) -> Result<Change, Problem> {
    let group = look::group(stack, group, State::Here)?.clone();
    let devices = look::devices(stack, devices)?;
    let new = devices.into_iter().filter(|member| !group.devices.contains(&Some(*member))).collect();
    let joining = joining(core, stack, forced, new, group.vg.extent_sectors).await?;
    let after = edit::add_physical(&group.vg, &joining.pvs)?;
    let name = &group.vg.name;
    let extents: u64 = joining.pvs.iter().map(|pv| pv.pe_count).sum();
    let mut plan = Plan::change(&stack.scan, &group, after)?;
    plan.places.extend(joining.places);
    Ok(Change {
        action: format!("vg extend {name}"),
        result: format!("volume group {name}: {extents} extents more"),
        plan,
        commands: vec![format!("vgextend {name} {}", joining.devices.join(" "))],
        notes: joining.notes,
        step: None,
    })
}

/// A group with one physical volume less.
///
/// # Errors
/// Volumes are on it, or it must not be changed.
pub fn reduce(stack: &Stack, group: &str, on: &[String]) -> Result<Change, Problem> {
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
    let known = |problem: Problem| match member.map(|member| &stack.scan.members[member].member.name) {
        Some(name) => Problem { what: problem.what.replace(&id.to_string(), name), ..problem },
        None => problem,
    };
    let after = edit::remove_physical(&group.vg, &id).map_err(known)?;
    let device = member.map_or(id.to_string(), |member| look::linux_name(stack, member));
    Ok(Change {
        action: format!("vg reduce {name}"),
        result: format!("volume group {name}: without {device}"),
        plan: Plan::change(&stack.scan, group, after)?,
        commands: vec![format!("vgreduce {name} {device}")],
        notes: Vec::new(),
        step: None,
    })
}

/// # Errors
/// It has volumes, or must not be changed.
pub fn remove(args: &GroupArgs, screen: Screen) -> Result<(), Problem> {
    work::change(&args.change, screen, async |_, stack| {
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
        let places = places.filter_map(|&member| Place::of(&stack.scan, member, Role::Leaves)).collect();
        Ok(Change {
            action: format!("vg remove {name}"),
            result: format!("volume group {name}: gone; its physical volumes are in none"),
            plan: Plan { before: Some(Before::of(group)), after: None, places },
            commands: vec![format!("vgremove {name}")],
            notes: Vec::new(),
            step: None,
        })
    })
}

/// A group under another name.
///
/// # Errors
/// The name does not do or is in use, or the group must not be changed.
pub fn rename(stack: &Stack, group: &str, to: &str) -> Result<Change, Problem> {
    check_name_free(stack, to)?;
    let group = look::group(stack, group, State::Here)?;
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

/// # Errors
/// The group must not be changed, or is exported already, or is not.
pub fn export(args: &GroupArgs, screen: Screen, exported: bool) -> Result<(), Problem> {
    work::change(&args.change, screen, async |_, stack| {
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
            &format!("vg{word} {name}"),
        )
    })
}

fn simple(
    stack: &Stack,
    group: &GroupScan,
    after: wattle_format::lvm::Vg,
    action: &str,
    result: &str,
    command: &str,
) -> Result<Change, Problem> {
    Ok(Change {
        action: action.to_owned(),
        result: result.to_owned(),
        plan: Plan::change(&stack.scan, group, after)?,
        commands: vec![command.to_owned()],
        notes: Vec::new(),
        step: None,
    })
}

/// # Errors
/// The backup cannot be read, is another group's, or does not fit what is there.
pub fn restore(args: &RestoreArgs, screen: Screen) -> Result<(), Problem> {
    let text = backup::read(&args.file)?;
    let name = &args.group;
    work::change(&args.change, screen, async |_, stack| {
        let forced = members::forced(&args.change.force);
        let plan = plan::restore(&stack.scan, &stack.groups, (name, &text), forced)?;
        let file = args.file.display();
        Ok(Change {
            action: format!("vg restore {name}"),
            result: format!("volume group {name}: as in {file}"),
            notes: restored_notes(stack, &plan),
            plan,
            commands: vec![format!("vgcfgrestore --file {file} {name}")],
            step: None,
        })
    })
}

/// What a restore does not bring back, and whom it sends away.
fn restored_notes(stack: &Stack, plan: &Plan) -> Vec<String> {
    let mut notes = vec![
        "what volumes hold is not in a backup: extents that were used otherwise since hold that".to_owned(),
    ];
    let leaves = plan.places.iter().filter(|place| place.role == Role::Leaves);
    notes.extend(leaves.map(|place| {
        let device = look::linux_name(stack, place.member);
        format!("{device} joined the group since: it belongs to none then, and what lies on it is given up")
    }));
    notes
}
