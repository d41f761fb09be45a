//! Changes of logical volumes that are done by whoever has the group: this command on members that nobody uses, or the server of the
//! group, under its clients.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use wattle_control::lvm::plan::Before;
use wattle_control::{Code, Problem, Stack};
use wattle_rt::Core;

use super::work::{self, Change, Report};
use super::{backup, look, lv, relocate};
use crate::cli::{ChangeArgs, Extents};
use crate::control_socket::RuntimeDir;
use crate::control_socket::client::{self, Servers};
use crate::control_socket::protocol::Request;
use crate::output::{Screen, Units};

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
}

impl What {
    /// The group it is about.
    fn group(&self) -> Result<&str, Problem> {
        match self {
            Self::Create { volume, .. } | Self::Extend { volume, .. } => {
                look::split(volume).map(|(group, _)| group)
            }
            Self::Move { name, .. } => Ok(name.split_once('/').map_or(name.as_str(), |(group, _)| group)),
        }
    }

    /// Decides what that comes to.
    ///
    /// # Errors
    /// It cannot be done.
    async fn decide(
        &self,
        core: &Core,
        stack: &mut Stack,
        on: &[String],
        units: Units,
    ) -> Result<Change, Problem> {
        match self {
            Self::Create { volume, extents, stripes, stripe_bytes } => {
                lv::create(core, stack, volume, (extents, *stripes, *stripe_bytes), on, units).await
            }
            Self::Extend { volume, extents } => lv::extend(stack, volume, extents, on, units),
            Self::Move { name, from, begun } => relocate::decide(stack, name, (from, *begun), on, units),
        }
    }
}

/// Does it on the members given, or lets the server of the group do it.
///
/// # Errors
/// It cannot be done, the members are in use, or nobody serves the group.
pub fn run(what: What, args: &ChangeArgs, screen: Screen) -> Result<(), Problem> {
    if !args.members.is_empty() {
        return work::change(args, screen, async |core, stack| {
            what.decide(core, stack, &args.on, screen.units).await
        });
    }
    let report = give(what, args)?;
    work::show(&report, &args.json, screen)
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
    let order = Order { what, on: args.on.clone(), dry_run: args.dry_run, backup_dir };
    client::order(socket, &Request::Lvm { order })
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

/// Carries out an order on what is being served.
///
/// # Errors
/// It cannot be done; the group is as it was, but for what the problem says.
pub async fn obey(core: &Core, stack: &mut Stack, order: &Order) -> Result<Report, Problem> {
    let mut change = order.what.decide(core, stack, &order.on, Units::Iec).await?;
    let (known, note) = match order.what {
        What::Create { .. } => (false, Some("clients see it when the server is started anew")),
        What::Extend { .. } => (
            false,
            Some(
                "NBD clients see the new size when they connect again, a loop device once it is told (`stat` of its file, then \
                 `losetup -c`)",
            ),
        ),
        // One backup is enough of a thousand steps.
        What::Move { begun, .. } => (begun, None),
    };
    change.notes.extend(note.map(str::to_owned));
    let text = change.text();
    let before = change.plan.before.as_ref().filter(|_| !known);
    let backup = before.map(|before| path(order, before)).transpose()?;
    let mut report = work::report(&change, text.as_deref(), order.dry_run, backup.as_deref())?;
    if let (false, Some(text)) = (order.dry_run, &text) {
        if let (Some(before), Some(path)) = (before, &backup) {
            backup::save(path, before, &change.action)?;
        }
        let done = match &change.step {
            Some(step) => stack.move_extents(core, &change.plan, text, step).await,
            None => stack.change_group(core, &change.plan, text).await,
        };
        report.notes.extend(done?);
    }
    Ok(report)
}

fn path(order: &Order, before: &Before) -> Result<PathBuf, Problem> {
    backup::path(order.backup_dir.as_deref(), before)
}
