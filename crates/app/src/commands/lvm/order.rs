//! Changes of logical volumes that are done by whoever has the group: this command on members that nobody uses, or the server of the
//! group, under its clients.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use wattle_control::lvm::plan::Before;
use wattle_control::{Code, Problem, Stack};
use wattle_rt::Core;

use super::work::{self, Change, Report};
use super::{backup, look, lv};
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
    /// The volume it is about.
    fn volume(&self) -> &str {
        match self {
            Self::Create { volume, .. } | Self::Extend { volume, .. } => volume,
        }
    }

    /// Decides what that comes to.
    ///
    /// # Errors
    /// It cannot be done.
    fn decide(&self, stack: &Stack, on: &[String], units: Units) -> Result<Change, Problem> {
        match self {
            Self::Create { volume, extents, stripes, stripe_bytes } => {
                lv::create(stack, volume, extents, (*stripes, *stripe_bytes), on, units)
            }
            Self::Extend { volume, extents } => lv::extend(stack, volume, extents, on, units),
        }
    }
}

/// Does it on the members given, or lets the server of the group do it.
///
/// # Errors
/// It cannot be done, the members are in use, or nobody serves the group.
pub fn run(what: What, args: &ChangeArgs, screen: Screen) -> Result<(), Problem> {
    if !args.members.is_empty() {
        return work::change(args, screen, async |_, stack| what.decide(stack, &args.on, screen.units));
    }
    let (group, _) = look::split(what.volume())?;
    let dir = RuntimeDir::find(args.runtime.runtime_dir.as_deref());
    let servers = Servers::ask(&dir);
    let socket = servers.of_group(group).ok_or_else(|| not_served(&servers, &dir, group))?;
    let backup_dir = args.backup_dir.as_ref().map(std::path::absolute).transpose();
    let backup_dir = backup_dir.map_err(|error| {
        let why = "it has to be told to the server as an absolute path";
        Problem::new(Code::Usage, format!("--backup-dir: {error}"), why, "name another")
    })?;
    let order = Order { what, on: args.on.clone(), dry_run: args.dry_run, backup_dir };
    let report = client::order(socket, &Request::Lvm { order })?;
    work::show(&report, &args.json, screen)
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
    let mut change = order.what.decide(stack, &order.on, Units::Iec)?;
    change.notes.push(
        match order.what {
            What::Create { .. } => "clients see it when the server is started anew",
            What::Extend { .. } => {
                "NBD clients see the new size when they connect again, a loop device once it is told (`stat` of its file, then \
                 `losetup -c`)"
            }
        }
        .to_owned(),
    );
    let text = change.text();
    let backup = change.plan.before.as_ref().map(|before| path(order, before)).transpose()?;
    let mut report = work::report(&change, text.as_deref(), order.dry_run, backup.as_deref())?;
    if let (false, Some(text)) = (order.dry_run, &text) {
        if let (Some(before), Some(path)) = (&change.plan.before, &backup) {
            backup::save(path, before, &change.action)?;
        }
        report.notes.extend(stack.change_group(core, &change.plan, text).await?);
    }
    Ok(report)
}

fn path(order: &Order, before: &Before) -> Result<PathBuf, Problem> {
    backup::path(order.backup_dir.as_deref(), before)
}
