//! `wattle lv create`, `extend`, `reduce`, `remove`, `rename`.

use wattle_control::lvm::GroupScan;
use wattle_control::lvm::allocate::{free_extents, free_extents_each};
use wattle_control::lvm::edit::{self, NewLv, State};
use wattle_control::lvm::file_system;
use wattle_control::lvm::plan::Plan;
use wattle_control::{Check, Code, Problem, Stack};
use wattle_format::lvm::Vg;
use wattle_rt::{BufMut, Core};

use super::amount::{self, Sign};
use super::look;
use super::work::{self, Change};
use crate::cli::{Extents, RenameArgs, SizeArgs, VolumeArgs};
use crate::members;
use crate::output::geometry::mkfs;
use crate::output::{Screen, Units};

/// A new volume, over so many physical volumes with so many bytes for each before the next one's turn.
///
/// # Errors
/// The group must not be changed, the name does not do, or there is no room.
pub async fn create(
    core: &Core,
    stack: &mut Stack,
    volume: &str,
    (extents, stripes, stripe_bytes): (&Extents, u16, u64),
    on: &[String],
    units: Units,
) -> Result<Change, Problem> {
    let (group, name) = look::split(volume)?;
    let group = look::group(stack, group, State::Here)?;
    let on = look::physical(stack, group, on)?;
    let (sign, asked) = amount(extents, &group.vg, &on, stripes.into())?;
    if sign != Sign::To {
        return Err(signed("a new volume has a size"));
    }
    let extents = asked.next_multiple_of(u64::from(stripes).max(1));
    let stripe_sectors = stripe_bytes / 512;
    let id = work::random_id()?;
    let new = NewLv { name, id, extents, stripes: stripes.into(), stripe_sectors, on: &on };
    let after = edit::create_volume(&group.vg, &new, &work::stamp())?;
    let mut plan = Plan::change(&stack.scan, group, after)?;
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
    Ok(Change {
        action: format!("lv create {volume}"),
        result,
        plan,
        commands: vec![format!("lvcreate -n {name} -l {extents}{striped} {vg_name}")],
        notes,
        step: None,
    })
}

fn amount(asked: &Extents, vg: &Vg, on: &[String], stripes: usize) -> Result<(Sign, u64), Problem> {
    let free = match stripes {
        0 | 1 => free_extents(vg, on),
        _ => free_extents_each(vg, on, stripes).saturating_mul(stripes as u64),
    };
    let all = vg.pvs.iter().map(|pv| pv.pe_count).sum();
    amount::parse(asked, amount::Group { extent_sectors: vg.extent_sectors, all, free })
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
) -> Result<Change, Problem> {
    let (group, name) = look::split(volume)?;
    let group = look::group(stack, group, State::Here)?;
    let on = look::physical(stack, group, on)?;
    let lv = edit::plain_volume(&group.vg, name)?;
    let (had, stripes) = (lv.extents(), edit::stripes_of(lv));
    let asked = match amount(extents, &group.vg, &on, stripes as usize)? {
        (Sign::To, extents) => extents,
        (Sign::More, more) => had.saturating_add(more),
        (Sign::Less, _) => return Err(signed("`lv extend` makes volumes larger")),
    };
    let more = asked.saturating_sub(had);
    let extents = had + more.next_multiple_of(stripes);
    let after = edit::extend_volume(&group.vg, name, extents, &on)?;
    Ok(Change {
        action: format!("lv extend {volume}"),
        result: format!("volume {volume}: {}", size(&group.vg, extents, units)),
        plan: Plan::change(&stack.scan, group, after)?,
        commands: vec![format!("lvextend -l {extents} {volume}")],
        notes: rounded(more, extents - had, "stripes").into_iter().collect(),
        step: None,
    })
}

/// # Errors
/// The group or volume must not be changed, or what the volume holds would be cut off.
pub fn reduce(args: &SizeArgs, screen: Screen) -> Result<(), Problem> {
    let (group, name) = look::split(&args.volume)?;
    work::change(&args.change, screen, async |core, stack| {
        let group = look::group(stack, group, State::Here)?.clone();
        let lv = edit::plain_volume(&group.vg, name)?;
        let asked = match amount(&args.extents, &group.vg, &[], 1)? {
            (Sign::To, extents) => extents,
            (Sign::Less, less) => lv.extents().saturating_sub(less),
            (Sign::More, _) => return Err(signed("`lv reduce` makes volumes smaller")),
        };
        let after = edit::reduce_volume(&group.vg, name, asked)?;
        let extents = after.lv(name).map_or(0, wattle_format::lvm::Lv::extents);
        let left_bytes = extents.saturating_mul(group.vg.extent_sectors).saturating_mul(512);
        let mut notes: Vec<_> = rounded(asked, extents, "stripes").into_iter().collect();
        if let Some((holds, needed_bytes)) = contents(core, stack, &group, name).await? {
            match edit::check_below(&args.volume, &holds, needed_bytes, left_bytes) {
                Err(problem) if !members::forced(&args.change.force).has(Check::FileSystem) => {
                    return Err(problem);
                }
                Err(problem) => notes.push(format!("{}; overridden", problem.what)),
                Ok(()) => {}
            }
        }
        Ok(Change {
            action: format!("lv reduce {}", args.volume),
            result: format!("volume {}: {}", args.volume, size(&group.vg, extents, screen.units)),
            plan: Plan::change(&stack.scan, &group, after)?,
            commands: vec![format!("lvreduce -l {extents} {}", args.volume)],
            notes,
            step: None,
        })
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
    let is_one = matches!(&seen.signatures[..], [only] if only.is_file_system) && seen.superblocks.is_empty();
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

/// # Errors
/// The group or volume must not be changed, or it holds something.
pub fn remove(args: &VolumeArgs, screen: Screen) -> Result<(), Problem> {
    let (group, name) = look::split(&args.volume)?;
    work::change(&args.change, screen, async |core, stack| {
        let group = look::group(stack, group, State::Here)?.clone();
        let after = edit::remove_volume(&group.vg, name)?;
        let mut notes = Vec::new();
        if let Some((holds, _)) = contents(core, stack, &group, name).await? {
            let what = format!("{}: it holds data: {holds}", args.volume);
            if !members::forced(&args.change.force).has(Check::Signature) {
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
        Ok(Change {
            action: format!("lv remove {}", args.volume),
            result: format!("volume {}: gone", args.volume),
            plan: Plan::change(&stack.scan, &group, after)?,
            commands: vec![format!("lvremove {}", args.volume)],
            notes,
            step: None,
        })
    })
}

/// # Errors
/// The group or volume must not be changed, or the name does not do.
pub fn rename(args: &RenameArgs, screen: Screen) -> Result<(), Problem> {
    let (group, name) = look::split(&args.name)?;
    // The new name may be given with the group too, as LVM2 has it.
    let to = args.to.strip_prefix(&format!("{group}/")).unwrap_or(&args.to);
    work::change(&args.change, screen, async |_, stack| {
        let group = look::group(stack, group, State::Here)?;
        let after = edit::rename_volume(&group.vg, name, to)?;
        Ok(Change {
            action: format!("lv rename {}", args.name),
            result: format!("volume {}/{to}, which was {}", group.vg.name, args.name),
            plan: Plan::change(&stack.scan, group, after)?,
            commands: vec![format!("lvrename {} {name} {to}", group.vg.name)],
            notes: Vec::new(),
            step: None,
        })
    })
}
