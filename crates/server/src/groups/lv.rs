//! Changes of logical volumes: create, extend, reduce, remove, rename, flags.

use wattle_control::lvm::GroupScan;
use wattle_control::lvm::allocate::{free_extents, free_extents_each};
use wattle_control::lvm::edit::{self, NewLv, State};
use wattle_control::lvm::file_system;
use wattle_control::lvm::flags::{VolumeFlagChanges, set_flags};
use wattle_control::lvm::plan::GroupPlan;
use wattle_control::units::Units;
use wattle_control::{Check, Code, Forced, Problem, Stack};
use wattle_format::lvm::{Lv, Pv, Stamp, Vg};
use wattle_rt::{BufMut, Core};

use super::amount::{self, Sign};
use super::change::GroupChange;
use super::look;
use crate::ids::random_id;
use crate::mkfs::mkfs;
use crate::protocol::change::{Extents, Permission, VolumeFlags};

/// A new volume, over so many physical volumes with so many bytes for each before the next one's
/// turn.
///
/// # Errors
/// The group must not be changed, the name does not do, or there is no room.
pub async fn create(
    core: &Core,
    stack: &mut Stack,
    volume: &str,
    (extents, stripes, stripe_bytes): (&Extents, u16, u64),
    on: &[String],
    (units, stamp): (Units, &Stamp),
) -> Result<GroupChange, Problem> {
    let (group, name) = look::split(volume)?;
    let group = look::group(stack, group, State::Here)?;
    let on = look::physical(stack, group, on)?;
    let (sign, asked) = amount(extents, &group.vg, &on, (None, stripes.into()))?;
    if sign != Sign::To {
        return Err(signed("a new volume has a size"));
    }
    let extents = whole_stripes(asked, stripes.into());
    let stripe_sectors = stripe_bytes / 512;
    let id = random_id()?;
    let new = NewLv { name, id, extents, stripes: stripes.into(), stripe_sectors, on: &on };
    let after = edit::create_volume(&group.vg, &new, stamp)?;
    let mut plan = GroupPlan::change(&stack.scan, group, after)?;
    plan.zero_starts(name);
    let (vg_name, after) = (group.vg.name.clone(), plan.after.clone());
    let striped = match stripes {
        1 => String::new(),
        _ => format!(" -i {stripes} -I {}k", stripe_bytes >> 10),
    };
    let result = format!("volume {volume}: {}", size(&group.vg, extents, units));
    let mut notes: Vec<_> = rounded(asked, extents, "stripes").into_iter().collect();
    if let Some(after) = after {
        let (io_min, io_opt) = stack.topology(core, &after, name).await?;
        let mkfs = mkfs(io_min.into(), io_opt.into()).into_iter().next();
        notes.extend(mkfs.map(|mkfs| format!("a file system is told of the stripes by `{mkfs} ...`")));
    }
    Ok(GroupChange {
        action: format!("lv create {volume}"),
        result,
        plan,
        commands: vec![format!("lvcreate -n {name} -l {extents}{striped} {vg_name}")],
        notes,
        step: None,
    })
}

/// What is asked for, of a volume with so many stripes.
fn amount(
    asked: &Extents,
    vg: &Vg,
    on: &[String],
    (lv, stripes): (Option<&Lv>, usize),
) -> Result<(Sign, u64), Problem> {
    let free = match stripes {
        0 | 1 => free_extents(vg, on),
        _ => free_extents_each(vg, on, stripes).saturating_mul(stripes as u64),
    };
    let extents = |pvs: &mut dyn Iterator<Item = &Pv>| pvs.map(|pv| pv.pe_count).fold(0, u64::saturating_add);
    let physical = vg.pvs.iter().filter(|pv| on.is_empty() || on.contains(&pv.name));
    let (all, physical) = (extents(&mut vg.pvs.iter()), extents(&mut { physical }));
    let (extent_sectors, volume) = (vg.extent_sectors, lv.map(Lv::extents));
    let found = amount::parse(asked, amount::GroupExtents { extent_sectors, all, free, physical, volume })?;
    let of_free = asked.extents.as_ref().is_some_and(|asked| asked.to_ascii_uppercase().ends_with("%FREE"));
    if of_free && free == 0 {
        return Err(Problem::new(
            Code::NoExtents,
            format!("no extent of {} is free for this", vg.name),
            "any part of nothing is nothing; stripes lie on physical volumes of their own",
            "add a physical volume (`wattle vg extend`), or make a volume smaller",
        ));
    }
    Ok(found)
}

/// Up to whole stripes. A number past all numbers is past all room too.
fn whole_stripes(extents: u64, stripes: u64) -> u64 {
    extents.checked_next_multiple_of(stripes.max(1)).unwrap_or(u64::MAX)
}

fn signed(why: &str) -> Problem {
    Problem::new(Code::Usage, "the size has a sign that does not fit", why, "see `--help`")
}

fn size(vg: &Vg, extents: u64, units: Units) -> String {
    let bytes = extents.saturating_mul(vg.extent_sectors).saturating_mul(512);
    format!("{}, {extents} extents", units.show_capacity(bytes))
}

fn rounded(asked: u64, extents: u64, to: &str) -> Option<String> {
    (asked != extents).then(|| format!("{asked} extents are no whole number of {to}: {extents} it is"))
}

/// A larger volume.
///
/// # Errors
/// The group or volume must not be changed, or there is no room.
pub fn extend(
    stack: &Stack,
    volume: &str,
    extents: &Extents,
    on: &[String],
    units: Units,
) -> Result<GroupChange, Problem> {
    let (group, name) = look::split(volume)?;
    let group = look::group(stack, group, State::Here)?;
    let on = look::physical(stack, group, on)?;
    let lv = edit::plain_volume(&group.vg, name)?;
    let (had, stripes) = (lv.extents(), edit::stripes_of(lv));
    let asked = match amount(extents, &group.vg, &on, (Some(lv), stripes as usize))? {
        (Sign::To, extents) => extents,
        (Sign::More, more) => had.saturating_add(more),
        (Sign::Less, _) => return Err(signed("`lv extend` makes volumes larger")),
    };
    let more = asked.saturating_sub(had);
    let extents = had.saturating_add(whole_stripes(more, stripes));
    let after = edit::extend_volume(&group.vg, name, extents, &on)?;
    Ok(GroupChange {
        action: format!("lv extend {volume}"),
        result: format!("volume {volume}: {}", size(&group.vg, extents, units)),
        plan: GroupPlan::change(&stack.scan, group, after)?,
        commands: vec![format!("lvextend -l {extents} {volume}")],
        notes: rounded(more, extents - had, "stripes").into_iter().collect(),
        step: None,
    })
}

/// A smaller volume.
///
/// # Errors
/// The group or volume must not be changed, or what the volume holds would be cut off.
pub async fn reduce(
    core: &Core,
    stack: &mut Stack,
    volume: &str,
    extents: &Extents,
    (forced, units): (Forced, Units),
) -> Result<GroupChange, Problem> {
    let (group, name) = look::split(volume)?;
    let group = look::group(stack, group, State::Here)?.clone();
    let lv = edit::plain_volume(&group.vg, name)?;
    let asked = match amount(extents, &group.vg, &[], (Some(lv), 1))? {
        (Sign::To, extents) => extents,
        (Sign::Less, less) => lv.extents().saturating_sub(less),
        (Sign::More, _) => return Err(signed("`lv reduce` makes volumes smaller")),
    };
    let after = edit::reduce_volume(&group.vg, name, asked)?;
    let extents = after.lv(name).map_or(0, Lv::extents);
    let left_bytes = extents.saturating_mul(group.vg.extent_sectors).saturating_mul(512);
    let mut notes: Vec<_> = rounded(asked, extents, "stripes").into_iter().collect();
    if let Some((holds, needed_bytes)) = contents(core, stack, &group, name).await? {
        match edit::check_below(volume, &holds, needed_bytes, left_bytes) {
            Err(problem) if !forced.has(Check::FileSystem) => return Err(problem),
            Err(problem) => notes.push(format!("{}; overridden", problem.what)),
            Ok(()) => {}
        }
    }
    Ok(GroupChange {
        action: format!("lv reduce {volume}"),
        result: format!("volume {volume}: {}", size(&group.vg, extents, units)),
        plan: GroupPlan::change(&stack.scan, &group, after)?,
        commands: vec![format!("lvreduce -l {extents} {volume}")],
        notes,
        step: None,
    })
}

/// What a volume holds, and how many bytes that needs if it says; `None` if nothing is recognised.
async fn contents(
    core: &Core,
    stack: &mut Stack,
    group: &GroupScan,
    name: &str,
) -> Result<Option<(String, Option<u64>)>, Problem> {
    let member = look::device(stack, &format!("{}/{name}", group.vg.id))?;
    // A program that used it meanwhile may have made something else of it.
    stack.look_again(core, member).await?;
    let seen = &stack.scan.members[member];
    let superblocks =
        seen.superblocks.iter().map(|superblock| format!("md {} superblock", superblock.version()));
    let found: Vec<_> = superblocks.chain(seen.signatures.iter().map(ToString::to_string)).collect();
    if let Some(error) = seen.unreadable.first() {
        return Err(error.clone().into());
    }
    if found.is_empty() {
        return Ok(None);
    }
    let is_one =
        matches!(&seen.signatures[..], [only] if only.is_file_system()) && seen.superblocks.is_empty();
    let volume = stack.volume(core, member).await?;
    let opened = volume.open(core).map_err(|error| unreadable(name, &error))?;
    let len = volume.size_bytes().min(file_system::HEAD_BYTES as u64) as usize;
    let (result, buf) = opened.read(0, BufMut::alloc(len)).await;
    result.map_err(|error| unreadable(name, &error))?;
    let needed_bytes = if is_one { file_system::size_bytes(&buf) } else { None };
    Ok(Some((found.join(", "), needed_bytes)))
}

fn unreadable(name: &str, error: &wattle_engine::VolumeError) -> Problem {
    Problem::new(
        Code::VolumeFailed,
        format!("{name}: {error}"),
        "what it holds has to be known before it is made smaller",
        "see what is wrong with its members (`wattle scan`)",
    )
}

/// One volume less.
///
/// # Errors
/// The group or volume must not be changed, or it holds something.
pub async fn remove(
    core: &Core,
    stack: &mut Stack,
    volume: &str,
    forced: Forced,
) -> Result<GroupChange, Problem> {
    let (group, name) = look::split(volume)?;
    let group = look::group(stack, group, State::Here)?.clone();
    let after = edit::remove_volume(&group.vg, name)?;
    let mut notes = Vec::new();
    if let Some((holds, _)) = contents(core, stack, &group, name).await? {
        let what = format!("{volume}: it holds data: {holds}");
        if !forced.has(Check::Signature) {
            return Err(Problem::new(
                Code::SignatureFound,
                what,
                "removing the volume gives its extents away",
                "check that this is the right one; --force=signature goes on all the same",
            )
            .forced_by(Check::Signature));
        }
        notes.push(format!("{what}; overridden"));
    }
    Ok(GroupChange {
        action: format!("lv remove {volume}"),
        result: format!("volume {volume}: gone"),
        plan: GroupPlan::change(&stack.scan, &group, after)?,
        commands: vec![format!("lvremove {volume}")],
        notes,
        step: None,
    })
}

/// The volume under another name.
///
/// # Errors
/// The group or volume must not be changed, or the name does not do.
pub fn rename(stack: &Stack, volume: &str, to: &str) -> Result<GroupChange, Problem> {
    let (group, name) = look::split(volume)?;
    // The new name may be given with the group too, as LVM2 has it.
    let to = to.strip_prefix(&format!("{group}/")).unwrap_or(to);
    let group = look::group(stack, group, State::Here)?;
    let after = edit::rename_volume(&group.vg, name, to)?;
    Ok(GroupChange {
        action: format!("lv rename {volume}"),
        result: format!("volume {}/{to}, which was {volume}", group.vg.name),
        plan: GroupPlan::change(&stack.scan, group, after)?,
        commands: vec![format!("lvrename {} {name} {to}", group.vg.name)],
        notes: Vec::new(),
        step: None,
    })
}

/// What is said of a volume's use.
///
/// # Errors
/// The group or volume must not be changed, or all of it is said already.
pub fn flags(stack: &Stack, volume: &str, flags: VolumeFlags) -> Result<GroupChange, Problem> {
    let (group, name) = look::split(volume)?;
    let group = look::group(stack, group, State::Here)?;
    let after = set_flags(
        &group.vg,
        name,
        VolumeFlagChanges {
            read_only: flags.permission.map(|permission| permission == Permission::R),
            skipped: flags.setactivationskip,
            by_itself: flags.setautoactivation,
        },
    )?;
    let mut said = Vec::new();
    let mut options = String::new();
    let yes_or_no = |yes: bool| if yes { "y" } else { "n" };
    if let Some(permission) = flags.permission {
        let (word, letters) = match permission {
            Permission::R => ("read-only", "r"),
            Permission::Rw => ("read and written", "rw"),
        };
        said.push(word);
        options.push_str(&format!(" -p {letters}"));
    }
    if let Some(skipped) = flags.setactivationskip {
        said.push(if skipped { "left out unless it is named" } else { "not left out" });
        options.push_str(&format!(" -k {}", yes_or_no(skipped)));
    }
    if let Some(by_itself) = flags.setautoactivation {
        said.push(if by_itself { "started with the system" } else { "not started with the system" });
        options.push_str(&format!(" --setautoactivation {}", yes_or_no(by_itself)));
    }
    Ok(GroupChange {
        action: format!("lv activate-flags {volume}"),
        result: format!("volume {volume}: {}", said.join(", ")),
        plan: GroupPlan::change(&stack.scan, group, after)?,
        commands: vec![format!("lvchange{options} {volume}")],
        notes: Vec::new(),
        step: None,
    })
}
