//! What `wattle undo` asks before it brings back the earlier text of a group: volumes that would be
//! shorter by it, or gone, may hold by now what `lv reduce` and `lv remove` would refuse to cut
//! off. And what keeps LVM2 away meanwhile.

use wattle_control::lvm::lock::{GroupLock, LockedGroups};
use wattle_control::lvm::physical::PhysicalVolume;
use wattle_control::lvm::{edit, then};
use wattle_control::restore::FoundTarget;
use wattle_control::{Check, Code, Forced, GroupId, MemberId, Problem, Stack};
use wattle_format::lvm::{Lv, Vg};
use wattle_format::undo::UndoLog;
use wattle_rt::{Core, Device};

use super::lv;

/// Refuses to bring back texts by which volumes that hold something are shorter or gone, unless the
/// operator insists; what of that is overridden.
///
/// # Errors
/// A volume holds something, or that cannot be told.
pub async fn check(
    core: &Core,
    stack: &mut Stack,
    log: &UndoLog,
    found: &[FoundTarget],
    forced: Forced,
) -> Result<Vec<String>, Problem> {
    let mut texts = Vec::new();
    for found in found {
        let member = &stack.scan.members[found.member].member;
        let read = then::texts(core, &member.device, log, found.target).await;
        texts.extend(read.map_err(|error| unreadable(&member.name, &error))?.unwrap_or_default());
    }
    let is_of = |group: &wattle_control::lvm::GroupScan| {
        found.iter().any(|found| group.devices.contains(&Some(found.member)))
    };
    let groups: Vec<GroupId> =
        stack.groups.entries().filter(|(_, group)| is_of(group)).map(|(id, _)| id).collect();
    let mut notes = Vec::new();
    for group in groups {
        let now = stack.groups[group].clone();
        let of_group = texts.iter().filter(|vg| vg.id == now.vg.id);
        let then = of_group.max_by_key(|vg| vg.seqno);
        if then.is_some_and(|then| then.seqno == now.vg.seqno) {
            continue;
        }
        // Where some area has the earlier text by now, this began before, and was asked then.
        let begun = then.is_some_and(|then| {
            let devices = now.devices.iter().flatten();
            let physical = devices.filter_map(|&member| stack.scan.members[member].physical.as_ref());
            let mut here =
                physical.flat_map(|physical| &physical.areas).filter_map(|area| area.text.as_ref());
            here.any(|(_, vg)| vg.id == then.id && vg.seqno == then.seqno)
        });
        for volume in now.vg.lvs.iter().filter(|lv| now.vg.is_visible(lv)) {
            let left = then.and_then(|then| then.lvs.iter().find(|lv| lv.id == volume.id)).map(Lv::extents);
            if left.is_some_and(|left| left >= volume.extents()) {
                continue;
            }
            let full_name = now.full_name(volume);
            let force = if left.is_some() { Check::FileSystem } else { Check::Signature };
            let refused = match lv::contents(core, stack, &now, &volume.name).await {
                Ok(None) => None,
                Ok(Some((holds, needed_bytes))) => refusal(&now.vg, &full_name, (&holds, needed_bytes), left),
                Err(_) if begun => None,
                Err(problem) => Some(not_told(problem, &full_name).forced_by(force)),
            };
            match refused {
                Some(problem) if !forced.has(force) => return Err(problem),
                Some(problem) => notes.push(format!("{}; overridden", problem.what)),
                None => {}
            }
        }
    }
    Ok(notes)
}

/// LVM2's lock of all that targets of a log are of as physical volumes, now or once it is brought
/// back: from before they are compared until what comes back is written.
///
/// # Errors
/// A command of LVM2's has it, or a target cannot be read.
pub async fn lock(
    core: &Core,
    stack: &Stack,
    log: &UndoLog,
    targets: &[(usize, MemberId, Device)],
) -> Result<GroupLock, Problem> {
    let mut locked = LockedGroups::default();
    for (target, member, device) in targets {
        let seen = &stack.scan.members[*member];
        let then = then::texts(core, device, log, *target).await;
        let then = then.map_err(|error| unreadable(&seen.member.name, &error))?;
        // Physical volumes may come and go with what is brought back.
        locked.global |= then.is_some() || seen.physical.is_some();
        let of_group = |group: &&wattle_control::lvm::GroupScan| {
            group.devices.contains(&Some(*member)) || group.copies.contains(member)
        };
        let now = seen.physical.iter().flat_map(PhysicalVolume::texts);
        let now = now.chain(stack.groups.iter().filter(of_group).map(|group| &group.vg));
        locked.groups.extend(now.chain(then.iter().flatten()).map(|vg| vg.name.clone()));
    }
    stack.lock_group(core, &locked, targets.iter().map(|(_, member, _)| *member)).await
}

/// Why a volume that holds this is not cut off, or taken away; `left` are its extents then.
fn refusal(
    vg: &Vg,
    full_name: &str,
    (holds, needed_bytes): (&str, Option<u64>),
    left: Option<u64>,
) -> Option<Problem> {
    match left {
        Some(left) => {
            let left_bytes = left.saturating_mul(vg.extent_sectors).saturating_mul(512);
            edit::check_below(full_name, holds, needed_bytes, left_bytes).err()
        }
        None => Some(
            Problem::new(
                Code::SignatureFound,
                format!("{full_name}: it holds data: {holds}"),
                "by the text that comes back there is no such volume: its extents would be free",
                "check that what it holds is not needed; --force=signature goes on all the same",
            )
            .forced_by(Check::Signature),
        ),
    }
}

/// What a volume holds that would be cut off, or taken away, is not known.
fn not_told(problem: Problem, full_name: &str) -> Problem {
    Problem {
        what: format!(
            "{full_name} would be shorter, or gone, and what it holds is not known: {}",
            problem.what
        ),
        ..problem
    }
}

fn unreadable(name: &str, error: &wattle_rt::IoError) -> Problem {
    Problem::new(
        Code::ReadFailed,
        format!("{name}: {error}"),
        "what its volume group is to be has to be known before; nothing was written",
        "see what is wrong with the drive",
    )
    .of_member(name)
}
