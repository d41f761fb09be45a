//! Changes of volume groups: decided here, and carried out by the server of the group, under its
//! clients. A command that has the members itself decides here too.

pub mod amount;
pub mod backup;
pub mod change;
pub mod look;
pub mod lv;
pub mod pv;
pub mod relocate;
pub mod taken_back;
pub mod vg;

use std::path::{Path, PathBuf};

use wattle_control::MemberId;
use wattle_control::lvm::plan::From;
use wattle_control::members::MemberAccess;
use wattle_control::scan::MemberOrigin;
use wattle_control::stack::LogicalId;
use wattle_control::undo::{Recorder, UndoSite};
use wattle_control::units::Units;
use wattle_control::{Code, Forced, Problem, Stack};
use wattle_engine::VolumeRef;
use wattle_format::lvm::{Lv, Stamp};
use wattle_rt::{Core, WallTime};

use crate::protocol::change::What;
use crate::protocol::{self, ChangeReport, Order};
pub use change::GroupChange;

/// How it is decided.
#[derive(Debug, Clone, Copy)]
pub struct ChangeOptions<'a> {
    /// Only on these physical volumes.
    pub on: &'a [String],
    /// Checks that are overridden.
    pub forced: Forced,
    /// How sizes are shown.
    pub units: Units,
    /// When it is decided, and where.
    pub stamp: &'a Stamp,
}

/// Where and when a group is changed.
pub fn stamp(now: WallTime) -> Stamp {
    Stamp { description: String::new(), host: crate::ids::host_name(), time: now.secs }
}

impl What {
    /// The group it is about.
    ///
    /// # Errors
    /// The name is no name of a volume.
    pub fn group(&self) -> Result<&str, Problem> {
        match self {
            Self::Create { volume, .. }
            | Self::Extend { volume, .. }
            | Self::Reduce { volume, .. }
            | Self::Remove { volume }
            | Self::Rename { volume, .. }
            | Self::Flags { volume, .. } => look::split(volume).map(|(group, _)| group),
            Self::GroupRename { group, .. }
            | Self::GroupExtend { group, .. }
            | Self::GroupReduce { group } => Ok(group),
            Self::Move { name, .. } => Ok(name.split_once('/').map_or(name.as_str(), |(group, _)| group)),
        }
    }

    /// Decides what that comes to.
    ///
    /// # Errors
    /// It cannot be done.
    pub async fn decide(
        &self,
        core: &Core,
        stack: &mut Stack,
        how: ChangeOptions<'_>,
    ) -> Result<GroupChange, Problem> {
        let ChangeOptions { on, forced, units, stamp } = how;
        match self {
            Self::Create { volume, extents, stripes, stripe_bytes } => {
                lv::create(core, stack, volume, (extents, *stripes, *stripe_bytes), on, (units, stamp)).await
            }
            Self::Extend { volume, extents } => lv::extend(core, stack, volume, extents, (on, units)).await,
            Self::Reduce { volume, extents } => {
                lv::reduce(core, stack, volume, extents, (forced, units)).await
            }
            Self::Remove { volume } => lv::remove(core, stack, volume, forced).await,
            Self::Rename { volume, to } => lv::rename(stack, volume, to),
            Self::Flags { volume, flags } => lv::flags(stack, volume, *flags),
            Self::GroupRename { group, to } => vg::rename(stack, group, to),
            Self::GroupExtend { group, devices } => vg::extend(core, stack, group, devices, forced).await,
            Self::GroupReduce { group } => vg::reduce(stack, group, on),
            Self::Move { name, from, begun } => relocate::decide(stack, name, (from, *begun), on, units),
        }
    }
}

/// What a change takes that a client may have open.
#[derive(Debug, Default)]
pub struct Taken {
    /// Volumes that go, get shorter, or are called or used otherwise.
    pub volumes: Vec<LogicalId>,
    /// What becomes a physical volume of the group.
    pub joining: Vec<MemberId>,
    /// What runs of these, of what they lie on and of what lies on them: from the change on the
    /// group writes there.
    pub drives: Vec<VolumeRef>,
}

/// Carries out an order on what is being served. `free` is asked, before anything is written, for
/// what the change takes: no client may have it open from then on. `undo` gives what saves what
/// this action overwrites, with these members. `backups` is the directory of backups unless the
/// order names one.
///
/// # Errors
/// It cannot be done; the group is as it was, but for what the problem says.
pub async fn obey(
    core: &Core,
    stack: &mut Stack,
    access: &MemberAccess,
    (order, backups): (&Order, Option<&Path>),
    undo: impl FnOnce(&str, &[String]) -> Result<Option<Recorder>, Problem>,
    free: impl AsyncFnOnce(&Taken) -> Result<(), Problem>,
) -> Result<ChangeReport, Problem> {
    stack.look_at_group(core, order.what.group()?).await?;
    let added = add_drives(core, stack, access, &order.what).await?;
    let done = carry_out(core, stack, (order, backups), undo, free).await;
    // Drives that did not become physical volumes are released.
    for drive in added.into_iter().rev() {
        stack.release_drive(core, drive).await?;
    }
    done
}

/// Opens what is to become a physical volume and is not there yet.
async fn add_drives(
    core: &Core,
    stack: &mut Stack,
    access: &MemberAccess,
    what: &What,
) -> Result<Vec<MemberId>, Problem> {
    let What::GroupExtend { devices, .. } = what else { return Ok(Vec::new()) };
    let known: Vec<_> = stack.volumes().into_iter().map(|volume| volume.name).collect();
    let new: Vec<_> = devices.iter().filter(|name| !known.contains(name)).cloned().collect();
    stack.add_drives(core, access, new).await
}

async fn carry_out(
    core: &Core,
    stack: &mut Stack,
    (order, backups): (&Order, Option<&Path>),
    undo: impl FnOnce(&str, &[String]) -> Result<Option<Recorder>, Problem>,
    free: impl AsyncFnOnce(&Taken) -> Result<(), Problem>,
) -> Result<ChangeReport, Problem> {
    let stamp = stamp(core.wall_clock());
    let forced = protocol::forced(&order.force)?;
    let how = ChangeOptions { on: &order.on, forced, units: Units::Iec, stamp: &stamp };
    let mut change = order.what.decide(core, stack, how).await?;
    if let What::Extend { volume, .. } = &order.what {
        let known = stack.find(Some(volume)).ok().and_then(|volume| volume.member.ok());
        change.notes.push(match known.and_then(|member| stack.opened_on(member)) {
            Some(inside) => {
                format!("{inside}, which lies on it, is as long as before until the server is started anew")
            }
            None => "NBD clients see the new size when they connect again, a loop device once it is told (`stat` of its file, \
                     then `losetup -c`)"
                .to_owned(),
        });
    }
    // One backup is enough of a thousand steps.
    let known = matches!(order.what, What::Move { begun: true, .. });
    let text = change.text(&stamp);
    let before = change.plan.before.as_ref().filter(|_| !known);
    let backup =
        before.map(|before| backup::path(order.backup_dir.as_deref(), backups, before)).transpose()?;
    let mut report = change::report(&change, text.as_deref(), order.dry_run, backup.as_deref())?;
    if let (false, Some(text)) = (order.dry_run, &text) {
        check_new(core, stack, &change).await?;
        let taken = taken(stack, &change);
        check_not_relied_on(stack, &taken.volumes)?;
        free(&taken).await?;
        if let (Some(before), Some(path)) = (before, &backup) {
            backup::save_beside(core, path, before, &change.action).await?;
        }
        if change.step.is_none()
            && let Some(recorder) = undo(&change.action, &given(stack))?
        {
            let log = save(core, stack, &change, text, &recorder).await?;
            report.undo_log = Some(log.display().to_string());
        }
        let done = match &change.step {
            Some(step) => stack.move_extents(core, &change.plan, text, step).await,
            None => stack.change_group(core, &change.plan, text).await,
        };
        report.notes.extend(done?);
    }
    Ok(report)
}

/// The files and devices that a server has.
fn given(stack: &Stack) -> Vec<String> {
    let given = stack.scan.members.iter().filter(|seen| seen.origin == MemberOrigin::Given);
    given.map(|seen| seen.member.name.clone()).collect()
}

/// Saves what a change overwrites, before it does.
async fn save(
    core: &Core,
    stack: &mut Stack,
    change: &GroupChange,
    text: &[u8],
    recorder: &Recorder,
) -> Result<PathBuf, Problem> {
    let mut sites = Vec::new();
    for place in &change.plan.places {
        let device = stack.volume(core, place.member).await?.device(core, &place.name);
        let device = device.map_err(|error| change::stopped(&place.name, &error))?;
        sites.push(UndoSite::of(stack, place.member, device));
    }
    recorder.record(core, &sites, &change::writes(&change.plan, Some(text))?, &[]).await
}

/// The device that becomes a physical volume is ours, and still holds what the operator was told
/// of.
async fn check_new(core: &Core, stack: &mut Stack, change: &GroupChange) -> Result<(), Problem> {
    for place in change.plan.places.iter().filter(|place| matches!(place.from, From::New(_))) {
        // The claim makes sure that it is still as it was seen.
        stack.look_again(core, place.member).await?;
        stack.volume(core, place.member).await?;
        change::check_same(stack, place.member, place)?;
    }
    Ok(())
}

fn taken(stack: &Stack, change: &GroupChange) -> Taken {
    let (before, after) = (change.plan.before.as_ref(), change.plan.after.as_ref());
    let group = before.and_then(|before| stack.groups.iter().find(|group| group.vg.id == before.id));
    let (Some(group), Some(after)) = (group, after) else { return Taken::default() };
    let keeps = |lv: &&Lv| {
        let same = after.lvs.iter().find(|new| new.id == lv.id);
        same.is_some_and(|new| {
            new.name == lv.name
                && after.name == group.vg.name
                && new.extents() >= lv.extents()
                && new.is_writable() == lv.is_writable()
        })
    };
    let volumes = group.vg.lvs.iter().filter(|lv| !keeps(lv));
    let volumes = volumes.map(|lv| LogicalId { group: group.vg.id, volume: lv.id }).collect();
    let members = change.plan.places.iter().map(|place| place.member);
    let joining: Vec<_> = members.filter(|member| !group.devices.contains(&Some(*member))).collect();
    let drives = joining.iter().flat_map(|&member| stack.running_at(member)).collect();
    Taken { volumes, joining, drives }
}

fn check_not_relied_on(stack: &Stack, taken: &[LogicalId]) -> Result<(), Problem> {
    let volumes = stack.logical_volumes();
    let relied_on = volumes.iter().find(|volume| volume.is_relied_on && taken.contains(&volume.id));
    relied_on.map_or(Ok(()), |volume| {
        Err(Problem::new(
            Code::VolumeInUse,
            format!("{}: an array, a group or a partition that is being served lies on it", volume.name),
            "it would lose what it lies on; nothing was changed",
            "stop the server first (`wattle stop`), and give the members",
        ))
    })
}
