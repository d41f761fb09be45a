//! Changes of logical volumes: create, extend, reduce, remove, rename, flags.

use wattle_control::lvm::GroupScan;
use wattle_control::lvm::allocate::free_extents;
use wattle_control::lvm::edit::{self, NewLv, State};
use wattle_control::lvm::file_system;
use wattle_control::lvm::flags::{VolumeFlagChanges, set_flags};
use wattle_control::lvm::plan::GroupPlan;
use wattle_control::units::Units;
use wattle_control::{Check, Code, Forced, Problem, Stack, shell_word};
use wattle_format::lvm::{Lv, Stamp, Vg};
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
    group.check_room()?;
    let asked = amount(extents, &group.vg, &on, None)?;
    if asked.sign != Sign::To {
        return Err(signed("a new volume has a size"));
    }
    let wanted = asked.whole_stripes(asked.extents, stripes.into());
    let (stripe_sectors, at_most) = (stripe_bytes / 512, asked.at_most);
    let id = random_id()?;
    let new = NewLv { name, id, extents: wanted, at_most, stripes: stripes.into(), stripe_sectors, on: &on };
    let after = edit::create_volume(&group.vg, &new, stamp)?;
    let got = after.lv(name).map_or(0, Lv::extents);
    let mut plan = GroupPlan::change(&stack.scan, group, after)?;
    let (vg_name, after) = (group.vg.name.clone(), plan.after.clone());
    let striped = match stripes {
        1 => String::new(),
        _ => format!(" -i {stripes} -I {}k", stripe_bytes >> 10),
    };
    let result = format!("volume {volume}: {}", size(&group.vg, got, units));
    let mut notes = asked.notes(asked.extents, wanted, got);
    let how_many = asked.as_asked(extents, got);
    let on = look::linux_names(stack, group, &on);
    stack.zero_what_was_left(core, &mut plan, name, 0).await?;
    if let Some(after) = after {
        let (io_min, io_opt) = stack.topology(core, &after, name).await?;
        let mkfs = mkfs(io_min.into(), io_opt.into()).into_iter().next();
        notes.extend(mkfs.map(|mkfs| format!("a file system is told of the stripes by `{mkfs} ...`")));
    }
    Ok(GroupChange {
        action: format!("lv create {volume}"),
        result,
        plan,
        commands: vec![format!("lvcreate -n {name} -l {how_many}{striped} {}{on}", shell_word(&vg_name))],
        notes,
        step: None,
    })
}

/// How much is asked for.
struct Amount {
    sign: Sign,
    extents: u64,
    /// Less will do where there is not so much.
    at_most: bool,
    /// What is free in the group.
    free: u64,
}

/// What is asked for, of a new volume or one that is there.
fn amount(asked: &Extents, vg: &Vg, on: &[String], lv: Option<&Lv>) -> Result<Amount, Problem> {
    let free = free_extents(vg, &[]);
    let all = vg.pvs.iter().map(|pv| pv.pe_count).fold(0, u64::saturating_add);
    let physical = if on.is_empty() { all } else { free_extents(vg, on) };
    let (extent_sectors, volume) = (vg.extent_sectors, lv.map(Lv::extents));
    let group = amount::GroupExtents { extent_sectors, all, free, physical, volume };
    let (sign, extents) = amount::parse(asked, group)?;
    let of_free = asked.extents.as_ref().is_some_and(|asked| asked.to_ascii_uppercase().ends_with("%FREE"));
    if of_free && free == 0 {
        return Err(Problem::new(
            Code::NoExtents,
            format!("no extent of {} is free for this", vg.name),
            "any part of nothing is nothing",
            "add a physical volume (`wattle vg extend`), or make a volume smaller",
        ));
    }
    Ok(Amount { sign, extents, at_most: amount::is_at_most(asked, sign), free })
}

impl Amount {
    /// Up to whole stripes; down where less will do and there are not so many. A number past all
    /// numbers is past all room too.
    fn whole_stripes(&self, extents: u64, stripes: u64) -> u64 {
        let stripes = stripes.max(1);
        let most = if self.at_most { self.free / stripes * stripes } else { u64::MAX };
        extents.checked_next_multiple_of(stripes).unwrap_or(u64::MAX).min(most.max(stripes))
    }

    /// What became of what was asked for.
    fn notes(&self, asked: u64, wanted: u64, got: u64) -> Vec<String> {
        let fewer =
            (got < wanted).then(|| format!("{wanted} extents are not free where they may be: {got} it is"));
        rounded(asked.min(self.free.max(wanted)), wanted, "stripes").into_iter().chain(fewer).collect()
    }

    /// For a command of LVM2's: in the words in which it was asked for where these say how to
    /// count.
    fn as_asked(&self, asked: &Extents, extents: u64) -> String {
        match &asked.extents {
            Some(words) if self.at_most => words.clone(),
            _ => extents.to_string(),
        }
    }
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
pub async fn extend(
    core: &Core,
    stack: &mut Stack,
    volume: &str,
    extents: &Extents,
    (on, units): (&[String], Units),
) -> Result<GroupChange, Problem> {
    let (group, name) = look::split(volume)?;
    let group = look::group(stack, group, State::Here)?;
    let on = look::physical(stack, group, on)?;
    group.check_room()?;
    let lv = edit::plain_volume(&group.vg, name)?;
    let (had, stripes) = (lv.extents(), edit::stripes_of(lv));
    let asked = amount(extents, &group.vg, &on, Some(lv))?;
    let more = match asked.sign {
        Sign::To => asked.extents.saturating_sub(had),
        Sign::More => asked.extents,
        Sign::Less => return Err(signed("`lv extend` makes volumes larger")),
    };
    let more_wanted = if more == 0 { 0 } else { asked.whole_stripes(more, stripes) };
    let wanted = had.saturating_add(more_wanted);
    let after = edit::extend_volume(&group.vg, name, (wanted, asked.at_most), &on)?;
    let got = after.lv(name).map_or(0, Lv::extents);
    let how_many = asked.as_asked(extents, got);
    let mut plan = GroupPlan::change(&stack.scan, group, after)?;
    let mut notes = asked.notes(more, more_wanted, got - had);
    let commands = vec![format!(
        "lvextend -l {how_many} {}{}",
        shell_word(volume),
        look::linux_names(stack, group, &on)
    )];
    let result = format!("volume {volume}: {}", size(&group.vg, got, units));
    let had_bytes = had.saturating_mul(group.vg.extent_sectors).saturating_mul(512);
    let left = stack.zero_what_was_left(core, &mut plan, name, had_bytes).await?;
    if !left.is_empty() {
        notes.push(format!("the new end gets zeros over what was left there: {}", left.join(", ")));
    }
    Ok(GroupChange { action: format!("lv extend {volume}"), result, plan, commands, notes, step: None })
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
    let asked = amount(extents, &group.vg, &[], Some(lv))?;
    let asked = match asked.sign {
        Sign::To => asked.extents,
        Sign::Less => lv.extents().saturating_sub(asked.extents),
        Sign::More => return Err(signed("`lv reduce` makes volumes smaller")),
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
        commands: vec![format!("lvreduce -l {extents} {}", shell_word(volume))],
        notes,
        step: None,
    })
}

/// What a volume holds, and how many bytes that needs if it says; `None` if nothing is recognised.
pub(super) async fn contents(
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
        commands: vec![format!("lvremove {}", shell_word(volume))],
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
        commands: vec![format!("lvrename {} {} {to}", shell_word(&group.vg.name), shell_word(name))],
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
        commands: vec![format!("lvchange{options} {}", shell_word(volume))],
        notes: Vec::new(),
        step: None,
    })
}
