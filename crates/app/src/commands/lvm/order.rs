//! Changes of volume groups that are done by whoever has the group: this command on members that nobody uses, or the server of the
//! group, under its clients.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use wattle_control::lvm::plan::{Before, From};
use wattle_control::members::look_all;
use wattle_control::scan::Origin;
use wattle_control::undo::{Recorder, Site};
use wattle_control::{Code, Forced, Problem, Stack};
use wattle_format::lvm::{Id, Lv};
use wattle_rt::Core;

use super::work::{self, Change, Report};
use super::{backup, look, lv, relocate, vg};
use crate::cli::{ChangeArgs, CreateVolumeArgs, Extents, VolumeFlags};
use crate::commands::member;
use crate::control_socket::RuntimeDir;
use crate::control_socket::client::{self, Servers};
use crate::control_socket::protocol::Request;
use crate::members;
use crate::output::{Screen, Units};
use crate::saving::{self, SavingOrder};

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A new volume.
    Create {
        /// Its group and name.
        volume: String,
        /// Its size.
        extents: Extents,
        /// Over how many physical volumes.
        stripes: u16,
        /// How much of each before the next one's turn.
        stripe_bytes: u64,
    },
    /// A larger one.
    Extend {
        /// Its group and name.
        volume: String,
        /// Its size, or how much more.
        extents: Extents,
    },
    /// A smaller one.
    Reduce {
        /// Its group and name.
        volume: String,
        /// Its size, or how much less.
        extents: Extents,
    },
    /// One less.
    Remove {
        /// Its group and name.
        volume: String,
    },
    /// A volume under another name.
    Rename {
        /// Its group and name.
        volume: String,
        /// The new name.
        to: String,
    },
    /// What is said of a volume's use.
    Flags {
        /// Its group and name.
        volume: String,
        /// What is said from now on.
        flags: VolumeFlags,
    },
    /// A group under another name.
    GroupRename {
        /// Its name.
        group: String,
        /// The new name.
        to: String,
    },
    /// A group with more physical volumes.
    GroupExtend {
        /// Its name.
        group: String,
        /// What becomes physical volumes of it; a server opens what it does not have. None of them: everything that is given.
        devices: Vec<String>,
    },
    /// A group without one of its physical volumes, which [`Order::on`] names.
    GroupReduce {
        /// Its name.
        group: String,
    },
    /// One step of moving extents to other physical volumes; whoever wants all of them to move asks again.
    Move {
        /// A group, or its only volume that is meant.
        name: String,
        /// Off this physical volume.
        from: String,
        /// It is not the first step.
        begun: bool,
    },
}

/// That, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub what: What,
    /// Only on these physical volumes.
    #[serde(default)]
    pub on: Vec<String>,
    /// To show and not to do.
    #[serde(default)]
    pub dry_run: bool,
    /// Where the text that is replaced goes, absolute: the server has another working directory.
    #[serde(default)]
    pub backup_dir: Option<PathBuf>,
    /// Checks to override.
    #[serde(default)]
    pub force: Vec<String>,
    /// Where what is overwritten is saved.
    #[serde(default)]
    pub undo: SavingOrder,
}

/// How it is decided.
#[derive(Debug, Clone, Copy)]
struct How<'a> {
    on: &'a [String],
    forced: Forced,
    units: Units,
}

impl What {
    /// A new volume, as it was asked for.
    pub fn create(args: &CreateVolumeArgs) -> Self {
        Self::Create {
            volume: args.volume.clone(),
            extents: args.extents.clone(),
            stripes: args.stripes,
            stripe_bytes: args.stripesize.0,
        }
    }

    /// The group it is about.
    fn group(&self) -> Result<&str, Problem> {
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
    async fn decide(&self, core: &Core, stack: &mut Stack, how: How<'_>) -> Result<Change, Problem> {
        let How { on, forced, units } = how;
        match self {
            Self::Create { volume, extents, stripes, stripe_bytes } => {
                lv::create(core, stack, volume, (extents, *stripes, *stripe_bytes), on, units).await
            }
            Self::Extend { volume, extents } => lv::extend(stack, volume, extents, on, units),
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

/// Does it on the members given, or lets the server of the group do it.
///
/// # Errors
/// It cannot be done, the members are in use, or nobody serves the group.
pub fn run(what: What, args: &ChangeArgs, screen: Screen) -> Result<(), Problem> {
    work::show(&make(what, args, screen.units)?, &args.json, screen)
}

/// The same, not shown yet.
///
/// # Errors
/// As [`run`].
pub fn make(what: What, args: &ChangeArgs, units: Units) -> Result<Report, Problem> {
    if args.members.is_empty() {
        return give(what, args);
    }
    let how = How { on: &args.on, forced: members::forced(&args.force), units };
    work::make(args, async |core, stack| what.decide(core, stack, how).await)
}

/// What is named to become physical volumes: as a server can use it, if it is one who does it.
///
/// # Errors
/// Nothing is, and no members are given either.
pub fn devices(args: &ChangeArgs) -> Result<Vec<String>, Problem> {
    if !args.members.is_empty() {
        return Ok(args.on.clone());
    }
    if args.on.is_empty() {
        return Err(Problem::new(
            Code::Usage,
            "nothing is named that could join the group",
            "of a group that is being served, --on names what becomes a physical volume of it",
            "name a file or device: --on PATH; or, if nobody serves the group, give all of its members",
        ));
    }
    Ok(args.on.iter().map(|name| member::absolute(name)).collect())
}

/// Lets the server of the group do it.
///
/// # Errors
/// It cannot be done, or nobody serves the group.
pub fn give(what: What, args: &ChangeArgs) -> Result<Report, Problem> {
    let group = what.group()?;
    let dir = RuntimeDir::find(args.runtime.runtime_dir.as_deref());
    let servers = Servers::ask(&dir);
    let socket = servers.of_group(group).ok_or_else(|| not_served(&servers, &dir, group))?;
    let backup_dir = args.backup_dir.as_ref().map(std::path::absolute).transpose();
    let backup_dir = backup_dir.map_err(|error| {
        let why = "it has to be told to the server as an absolute path";
        Problem::new(Code::Usage, format!("--backup-dir: {error}"), why, "name another")
    })?;
    let (dry_run, force) = (args.dry_run, member::forced(&args.force));
    let undo = SavingOrder::new(&args.saving)?;
    let order = Order { what, on: args.on.clone(), dry_run, backup_dir, force, undo };
    let report = client::order(socket, &Request::Lvm { order })?;
    report.undo_log.iter().for_each(|log| saving::tell(log.as_ref()));
    Ok(report)
}

fn not_served(servers: &Servers, dir: &RuntimeDir, group: &str) -> Problem {
    servers.silent.first().cloned().unwrap_or_else(|| {
        Problem::new(
            Code::ServerNotFound,
            format!("no server has the volume group {group} (looked in {})", dir.path().display()),
            "without members, this is an order to the server of the group",
            "give the members it lies on; a server started with another --runtime-dir is found with the same one",
        )
    })
}

/// Carries out an order on what is being served. `free` is asked, before anything is written, for the volumes that go, get shorter or are
/// called otherwise: nobody may have them open from then on. `undo` says who saves what this action overwrites, with these members.
///
/// # Errors
/// It cannot be done; the group is as it was, but for what the problem says.
pub async fn obey(
    core: &Core,
    stack: &mut Stack,
    order: &Order,
    undo: impl FnOnce(&str, &[String]) -> Result<Option<Recorder>, Problem>,
    free: impl AsyncFnOnce(&[Id]) -> Result<(), Problem>,
) -> Result<Report, Problem> {
    let added = add_drives(core, stack, &order.what).await?;
    let done = change(core, stack, order, undo, free).await;
    // Those that did not become physical volumes are given back.
    for drive in added.into_iter().rev() {
        stack.release_drive(core, drive).await?;
    }
    done
}

/// Opens what is to become a physical volume and is not there yet.
async fn add_drives(core: &Core, stack: &mut Stack, what: &What) -> Result<Vec<usize>, Problem> {
    let What::GroupExtend { devices, .. } = what else { return Ok(Vec::new()) };
    let known: Vec<_> = stack.volumes().into_iter().map(|volume| volume.name).collect();
    let new: Vec<_> = devices.iter().filter(|name| !known.contains(name)).cloned().collect();
    stack.add_drives(core, look_all(&new)?).await
}

async fn change(
    core: &Core,
    stack: &mut Stack,
    order: &Order,
    undo: impl FnOnce(&str, &[String]) -> Result<Option<Recorder>, Problem>,
    free: impl AsyncFnOnce(&[Id]) -> Result<(), Problem>,
) -> Result<Report, Problem> {
    let how = How { on: &order.on, forced: members::forced_by_name(&order.force)?, units: Units::Iec };
    let mut change = order.what.decide(core, stack, how).await?;
    if let What::Extend { .. } = order.what {
        let note = "NBD clients see the new size when they connect again, a loop device once it is told (`stat` of its file, then \
                    `losetup -c`)";
        change.notes.push(note.to_owned());
    }
    // One backup is enough of a thousand steps.
    let known = matches!(order.what, What::Move { begun: true, .. });
    let text = change.text();
    let before = change.plan.before.as_ref().filter(|_| !known);
    let backup = before.map(|before| path(order, before)).transpose()?;
    let mut report = work::report(&change, text.as_deref(), order.dry_run, backup.as_deref())?;
    if let (false, Some(text)) = (order.dry_run, &text) {
        check_new(core, stack, &change).await?;
        let taken = taken(stack, &change);
        check_not_relied_on(stack, &taken)?;
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
    let given = stack.scan.members.iter().filter(|seen| seen.origin == Origin::Given);
    given.map(|seen| seen.member.name.clone()).collect()
}

/// Saves what a change overwrites, before it does.
async fn save(
    core: &Core,
    stack: &mut Stack,
    change: &Change,
    text: &[u8],
    recorder: &Recorder,
) -> Result<PathBuf, Problem> {
    let mut sites = Vec::new();
    for place in &change.plan.places {
        let device = stack.volume(core, place.member).await?.device(core, &place.name);
        let device = device.map_err(|error| work::stopped(&place.name, &error))?;
        sites.push(Site::of(stack, place.member, device));
    }
    recorder.record(core, &sites, &work::writes(&change.plan, Some(text))?, &[]).await
}

/// What becomes a physical volume is ours, and still holds what the operator was told of.
async fn check_new(core: &Core, stack: &mut Stack, change: &Change) -> Result<(), Problem> {
    for place in change.plan.places.iter().filter(|place| matches!(place.from, From::New(_))) {
        // Whoever claims it makes sure that it is still as it was seen.
        stack.look_again(core, place.member).await?;
        stack.volume(core, place.member).await?;
        work::check_same(stack, place.member, place)?;
    }
    Ok(())
}

/// The volumes of which a change takes something that a client may have.
fn taken(stack: &Stack, change: &Change) -> Vec<Id> {
    let (before, after) = (change.plan.before.as_ref(), change.plan.after.as_ref());
    let group = before.and_then(|before| stack.groups.iter().find(|group| group.vg.id == before.id));
    let (Some(group), Some(after)) = (group, after) else { return Vec::new() };
    let keeps = |lv: &&Lv| {
        let same = after.lvs.iter().find(|new| new.id == lv.id);
        same.is_some_and(|new| {
            new.name == lv.name
                && after.name == group.vg.name
                && new.extents() >= lv.extents()
                && new.is_writable() == lv.is_writable()
        })
    };
    group.vg.lvs.iter().filter(|lv| !keeps(lv)).map(|lv| lv.id).collect()
}

fn check_not_relied_on(stack: &Stack, taken: &[Id]) -> Result<(), Problem> {
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

fn path(order: &Order, before: &Before) -> Result<PathBuf, Problem> {
    backup::path(order.backup_dir.as_deref(), before)
}
