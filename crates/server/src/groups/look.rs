//! What an operator means by the name of a group, a volume, or what a physical volume is on.

use std::path::Path;

use wattle_control::MemberId;
use wattle_control::lvm::edit::{State, check_changeable};
use wattle_control::lvm::{GroupScan, PhysicalVolume};
use wattle_control::scan::MemberOrigin;
use wattle_control::{Code, MemberScan, Problem, Stack, shell_word};
use wattle_format::lvm::Id;

/// The group called `name` or with this UUID, if it may be changed.
///
/// # Errors
/// There is none, there are several, or it must not be changed.
pub fn group<'a>(stack: &'a Stack, name: &str, state: State) -> Result<&'a GroupScan, Problem> {
    let called = |group: &&GroupScan| group.vg.name == name || group.vg.id.to_string() == name;
    let found: Vec<_> = stack.groups.iter().filter(called).collect();
    match found[..] {
        [group] => {
            check_changeable(group, state)?;
            Ok(group)
        }
        [] => Err(no_group(stack, name)),
        _ => {
            let ids: Vec<_> = found.iter().map(|group| group.vg.id.to_string()).collect();
            Err(Problem::new(
                Code::SeveralVolumes,
                format!("{} groups are called {name}", found.len()),
                format!("their UUIDs are {}", ids.join(", ")),
                "name one by its UUID, or give only its members; then give it another name (`wattle vg rename`)",
            ))
        }
    }
}

fn no_group(stack: &Stack, name: &str) -> Problem {
    if let Err(problem) = usable(stack) {
        return problem;
    }
    let names: Vec<_> = stack.groups.iter().map(|group| group.vg.name.as_str()).collect();
    Problem::new(
        Code::NoSuchVolume,
        format!("no volume group is called {name}"),
        match names[..] {
            [] => "there is none on these members".to_owned(),
            _ => format!("these members hold {}", names.join(", ")),
        },
        "name one of them, or give the members of the one you mean",
    )
}

/// `group/volume`, in two.
///
/// # Errors
/// It is something else.
pub fn split(full_name: &str) -> Result<(&str, &str), Problem> {
    let parts =
        full_name.split_once('/').filter(|(group, volume)| !group.is_empty() && !volume.contains('/'));
    parts.filter(|(_, volume)| !volume.is_empty()).ok_or_else(|| {
        Problem::new(
            Code::Usage,
            format!("`{full_name}` is no name of a volume"),
            "a volume is named with its group",
            "write it like data/home",
        )
    })
}

/// Which members physical volumes are on, or are to be: those named, or else everything given, as a
/// whole, that nothing else lies on; of an array's members the array.
///
/// # Errors
/// One cannot be used, or there is none.
pub fn devices(stack: &Stack, on: &[String]) -> Result<Vec<MemberId>, Problem> {
    if !on.is_empty() {
        return on.iter().map(|name| device(stack, name)).collect();
    }
    usable(stack)?;
    let members = stack.scan.members.entries();
    let free = members.filter(|(_, seen)| {
        matches!(seen.origin, MemberOrigin::Given | MemberOrigin::Array(_) | MemberOrigin::Decrypted { .. })
            && seen.facts.is_none()
            && seen.container.is_none()
            && seen.table.is_none()
            && seen.encryption.is_none()
            && seen.integrity.is_none()
            && seen.bcache.is_none()
    });
    let found: Vec<_> = free.map(|(ix, _)| ix).collect();
    for &ix in &found {
        if let Some(problem) = &stack.scan.members[ix].problem {
            return Err(problem.clone());
        }
    }
    if found.is_empty() {
        let mut given = stack.scan.members.iter().filter(|seen| seen.origin == MemberOrigin::Given);
        return Err(given.find_map(MemberScan::not_opened).unwrap_or_else(|| {
            Problem::new(
                Code::NoSuchVolume,
                "none of the members can be a physical volume as a whole",
                "they have partition tables, or something else lies on them",
                "name what lies there with --on (`wattle scan` lists it)",
            )
        }));
    }
    Ok(found)
}

/// An array that was given has to run: what lies on it would be overlooked.
fn usable(stack: &Stack) -> Result<(), Problem> {
    let is_array = |seen: MemberId| stack.scan.arrays.iter().any(|array| array.members.contains(&seen));
    for volume in stack.volumes() {
        if let Err(problem) = volume.member
            && stack.scan.arrays.iter().any(|array| array.assembly.name() == volume.name)
        {
            return Err(problem);
        }
    }
    let stray = stack.scan.members.entries().find(|(ix, seen)| seen.facts.is_some() && !is_array(*ix));
    stray.and_then(|(_, seen)| seen.problem.clone()).map_or(Ok(()), Err)
}

/// What is called `name`: an array, a member, a partition, a volume.
///
/// # Errors
/// Nothing is, or it cannot be used.
pub fn device(stack: &Stack, name: &str) -> Result<MemberId, Problem> {
    stack.find(Some(name))?.member
}

/// Names in the group's text of the physical volumes that an operator names: by what they are on,
/// their UUIDs, or, where nothing else is called so, these names.
///
/// # Errors
/// One is none of the group's.
pub fn physical(stack: &Stack, group: &GroupScan, names: &[String]) -> Result<Vec<String>, Problem> {
    names.iter().map(|name| one_physical(stack, group, name)).collect()
}

fn one_physical(stack: &Stack, group: &GroupScan, name: &str) -> Result<String, Problem> {
    let pvs = || group.vg.pvs.iter().zip(&group.devices);
    if let Some((pv, _)) = pvs().find(|(pv, _)| pv.id.to_string() == name) {
        return Ok(pv.name.clone());
    }
    // LVM2's own names look like those of files: a drive that is called so is what is meant.
    let called = pvs().find(|(pv, _)| pv.name == name && !stack.has_name(name));
    if let Some((pv, _)) = called {
        return Ok(pv.name.clone());
    }
    let member = device(stack, name)?;
    let found = pvs().find(|(_, device)| **device == Some(member));
    found.map(|(pv, _)| pv.name.clone()).ok_or_else(|| {
        let all: Vec<_> =
            pvs().filter_map(|(_, ix)| Some(stack.scan.members[(*ix)?].member.name.clone())).collect();
        Problem::new(
            Code::NoSuchVolume,
            format!("{name} is no physical volume of {}", group.vg.name),
            format!("those are {}", all.join(", ")),
            "name one of them (`wattle pv list` lists them)",
        )
    })
}

/// The group that a member belongs to, or else one that names it.
pub fn group_of(stack: &Stack, member: MemberId) -> Option<&GroupScan> {
    let id = stack.scan.members[member].physical.as_ref()?.label.id;
    let has_it = |group: &&GroupScan| group.devices.contains(&Some(member));
    let names_it = |group: &&GroupScan| group.vg.pv_of(id).is_some();
    stack.groups.iter().find(has_it).or_else(|| stack.groups.iter().find(names_it))
}

/// Whether what a physical volume has of a group is from before it left.
pub fn has_left(stack: &Stack, physical: &PhysicalVolume) -> bool {
    stack.groups.iter().any(|group| group.has_left(physical))
}

/// Refuses a physical volume that is in a group, or says that it is.
///
/// # Errors
/// It is.
pub fn check_in_no_group(stack: &Stack, member: MemberId) -> Result<(), Problem> {
    let seen = &stack.scan.members[member];
    let name = &seen.member.name;
    let refuse = |why: String, next: &str| {
        Err(Problem::new(Code::VolumeInUse, format!("{name} is a physical volume of a group"), why, next)
            .of_member(name))
    };
    if let Some(group) = group_of(stack, member) {
        let why = format!("it belongs to {}, and what that holds would be gone", group.vg.name);
        return refuse(why, "take it out first (`wattle vg reduce`), or end the group (`wattle vg remove`)");
    }
    let in_vg =
        |id: &Id| format!("the label of {id} says so, and no text of that group is among the members");
    let physical = seen.physical.as_ref().filter(|found| !has_left(stack, found));
    if let Some((own, physical)) = physical.and_then(|found| Some((found.own_group()?, found))) {
        let volumes = physical.volumes_of(own);
        let holds =
            if volumes.is_empty() { String::new() } else { format!(" and holds {}", volumes.join(", ")) };
        let why = format!(
            "by its own text, sequence number {}, it belongs to {}{holds}: that would be gone",
            own.seqno, own.name
        );
        return refuse(
            why,
            "give it alone, or with the group's other physical volumes, to see what it holds; take it out there first (`wattle vg \
             reduce`), or end that group (`wattle vg remove`)",
        );
    }
    match physical.map(|physical| &physical.label) {
        Some(label) if label.extension.as_ref().is_some_and(wattle_format::lvm::label::Extension::in_vg) => {
            refuse(in_vg(&label.id), "give the group's other physical volumes too")
        }
        _ => Ok(()),
    }
}

/// Where Linux sees these physical volumes of a group, as words of a command of LVM2's: a space
/// before each.
pub fn linux_names(stack: &Stack, group: &GroupScan, pvs: &[String]) -> String {
    let device = |name: &String| {
        let at = group.vg.pvs.iter().position(|pv| pv.name == *name)?;
        Some(format!(" {}", linux_word(stack, group.devices[at]?)))
    };
    pvs.iter().filter_map(device).collect()
}

/// The same of one of a scan's members, for a shell.
pub fn linux_word(stack: &Stack, member: MemberId) -> String {
    shell_word(&linux_name(stack, member))
}

/// What a physical volume is called where Linux sees it: a hint for its tools.
pub fn linux_name(stack: &Stack, member: MemberId) -> String {
    let seen = &stack.scan.members[member];
    match seen.origin {
        MemberOrigin::Array(_) => format!("/dev/md/{}", seen.member.name),
        MemberOrigin::Logical { .. } => format!("/dev/{}", seen.member.name),
        MemberOrigin::Decrypted { of } => match &stack.scan.members[of].encryption {
            Some(encryption) => format!("/dev/mapper/luks-{}", encryption.header.uuid),
            None => seen.member.name.clone(),
        },
        MemberOrigin::Given
        | MemberOrigin::Partition { .. }
        | MemberOrigin::Container { .. }
        | MemberOrigin::Layered { .. } => {
            let path = seen.member.linux_path().and_then(Path::to_str);
            path.unwrap_or(&seen.member.name).to_owned()
        }
    }
}
