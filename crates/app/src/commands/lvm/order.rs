//! Changes of volume groups that are done where the group is: by this command on members that are
//! not in use, or by the server of the group, under its clients.

use wattle_control::members::MemberAccess;
use wattle_control::units::Units;
use wattle_control::{Code, Problem};
use wattle_server::groups::ChangeOptions;
use wattle_server::protocol::change::What;
use wattle_server::protocol::{ChangeReport, Order, ServerRequest};
use wattle_server::socket::RuntimeDir;
use wattle_server::socket::client::{self, Servers};

use super::work;
use crate::cli::{ChangeArgs, CreateVolumeArgs};
use crate::commands::member;
use crate::environment::runtime_dir;
use crate::members;
use crate::output::Screen;
use crate::saving;

/// A new volume, as it was asked for.
pub fn create(args: &CreateVolumeArgs) -> What {
    What::Create {
        volume: args.volume.clone(),
        extents: args.extents.clone().into(),
        stripes: args.stripes,
        stripe_bytes: args.stripesize.0,
    }
}

/// Does it on the members given, or lets the server of the group do it.
///
/// # Errors
/// It cannot be done, the members are in use, or no server has the group.
pub fn run(access: &MemberAccess, what: What, args: &ChangeArgs, screen: Screen) -> Result<(), Problem> {
    work::show(&make(access, what, args, screen.units)?, &args.json, screen)
}

/// The same, not shown yet.
///
/// # Errors
/// As [`run`].
pub fn make(
    access: &MemberAccess,
    what: What,
    args: &ChangeArgs,
    units: Units,
) -> Result<ChangeReport, Problem> {
    if args.members.is_empty() {
        return give(what, args);
    }
    work::make(access, args, &async |core, stack, stamp| {
        let how = ChangeOptions { on: &args.on, forced: members::forced(&args.force), units, stamp };
        what.decide(core, stack, how).await
    })
}

/// What is named to become physical volumes: as a server can use it, if a server does it.
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
            "name a file or device: --on PATH; or, if no server has the group, give all of its members",
        ));
    }
    Ok(args.on.iter().map(|name| member::absolute(name)).collect())
}

/// Lets the server of the group do it.
///
/// # Errors
/// It cannot be done, or no server has the group.
pub fn give(what: What, args: &ChangeArgs) -> Result<ChangeReport, Problem> {
    let group = what.group()?;
    let dir = runtime_dir(args.runtime.runtime_dir.as_deref());
    let servers = Servers::ask(&dir);
    let socket = servers.of_group(group)?.ok_or_else(|| not_served(&servers, &dir, group))?;
    let backup_dir = args.backup_dir.as_ref().map(std::path::absolute).transpose();
    let backup_dir = backup_dir.map_err(|error| {
        let why = "it has to be told to the server as an absolute path";
        Problem::new(Code::Usage, format!("--backup-dir: {error}"), why, "name another")
    })?;
    let (dry_run, force) = (args.dry_run, member::forced(&args.force));
    let undo = saving::order(&args.saving)?;
    let order = Order { what, on: args.on.clone(), dry_run, backup_dir, force, undo };
    let report = client::order(socket, &ServerRequest::Lvm { order })?;
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
