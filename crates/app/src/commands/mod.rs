//! One file per command.

mod alerts;
pub mod audit;
mod bench;
mod cat;
mod checkpoint;
mod compat;
mod console;
mod copy;
mod create;
mod detail;
mod erase;
mod examine;
pub mod explain;
mod exporter;
mod files;
mod generate;
pub mod interval;
mod loss;
pub mod lvm;
mod member;
mod mount;
mod order_report;
mod partition;
pub mod plan;
mod plans;
mod rescue;
mod reservations;
mod scan;
mod scrub;
mod serve;
mod set;
pub mod simulate;
mod snmp;
mod status;
mod stop;
pub mod top;
mod undo;
mod up;
mod why;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use wattle_control::Problem;
use wattle_control::members::MemberAccess;

use crate::cli::{Cli, CliCommand};
use crate::keys;
use crate::output::text::printable;
use crate::output::{self, Screen};

/// Does what was asked and says how it ended; where JSON is wanted, also of a failure.
pub fn run(cli: Cli, json: bool, access: MemberAccess) -> ExitCode {
    let screen = Screen::new(&cli.look);
    let access = match prepare(access, &cli, screen) {
        Ok(access) => access,
        Err(problem) => return output::report_failure(&problem, screen.style_err, json),
    };
    let done = |result: Result<(), Problem>| result.map(|()| ExitCode::SUCCESS);
    let keyring = access.keys();
    let result = match cli.command {
        CliCommand::Scan(args) => done(scan::run(&access, &args, screen)),
        CliCommand::Examine(args) => examine::run(&access, &args, screen),
        CliCommand::Detail(args) => detail::run(&args, screen),
        CliCommand::Create(args) => done(create::run(&access, &args, screen)),
        CliCommand::Partition(args) => done(partition::run(&access, &args, screen)),
        CliCommand::Compat(args) => compat::run(&access, &args, screen),
        CliCommand::Erase(args) => done(erase::run(&access, &args, screen)),
        CliCommand::Undo(args) => done(undo::run(&access, &args, screen)),
        CliCommand::Cat(args) => done(cat::run(&access, &args, screen)),
        CliCommand::Copy(args) => done(copy::run(&access, &args, screen)),
        CliCommand::Rescue(args) => done(rescue::run(&access, &args, screen)),
        CliCommand::Ls(args) => done(files::ls::run(&access, &args)),
        CliCommand::Get(args) => done(files::get::run(&access, &args, screen)),
        CliCommand::Serve(args) => serve::run(&access, &args, screen),
        CliCommand::Up(args) => up::run(&access, &args, screen),
        CliCommand::Mount(args) => mount::mount(&args),
        CliCommand::Umount(args) => done(mount::umount(&args)),
        CliCommand::Status(args) => status::run(&args, screen),
        CliCommand::Console(args) => done(console::run(&access, &args)),
        CliCommand::Stop(args) => done(stop::run(&args)),
        CliCommand::Top(args) => done(top::run(&args, screen)),
        CliCommand::Why(args) => done(why::run(&access, &args, screen)),
        CliCommand::Fail(args) => done(member::fail(&args)),
        CliCommand::Remove(args) => done(member::remove(&args)),
        CliCommand::Add(args) => done(member::add(&args)),
        CliCommand::Replace(args) => done(member::replace(&args)),
        CliCommand::Check(args) => scrub::check(&access, &args),
        CliCommand::Repair(args) => scrub::repair(&access, &args),
        CliCommand::Set(args) => done(set::run(&args)),
        CliCommand::Checkpoint(args) => done(checkpoint::run(&args, screen)),
        CliCommand::Reservations(args) => done(reservations::run(&args)),
        CliCommand::Pv(args) => done(lvm::pv(&access, &args, screen)),
        CliCommand::Vg(args) => done(lvm::vg(&access, &args, screen)),
        CliCommand::Lv(args) => done(lvm::lv(&access, &args, screen)),
        CliCommand::Alerts(args) => done(alerts::run(&access, &args)),
        CliCommand::Audit(args) => audit::run(&access, &args, screen),
        CliCommand::Bench(args) => done(bench::run(&access, &args, screen)),
        CliCommand::Plan(args) => done(plan::run(&access, &args, screen)),
        CliCommand::Simulate(args) => done(simulate::run(&args, screen)),
        CliCommand::Exporter(args) => exporter::run(&args),
        CliCommand::Snmp(args) => done(snmp::run(&args)),
        CliCommand::Explain(args) => done(explain::run(&args)),
        CliCommand::Generate(args) => done(generate::run(&args)),
    };
    for member in keyring.unused_headers() {
        output::note(&printable(&format!(
            "--header {member}=…: no member of that name was met, and the header was not used; write it as \
             `wattle scan` does"
        )));
    }
    result.unwrap_or_else(|problem| output::report_failure(&problem, screen.style_err, json))
}

/// The access with what the command line says of members: their maps, and where writes go.
fn prepare(access: MemberAccess, cli: &Cli, screen: Screen) -> Result<MemberAccess, Problem> {
    let backups = cli.command.backup_files().iter().map(|file| file.to_string_lossy().into_owned());
    let access = access
        .with_backups(backups.collect())
        .with_maps(cli.maps()?)
        .with_notes(Arc::new(|line| output::note(&printable(line))));
    let access = match cli.keys() {
        // `mount` leaves it to the server that it starts.
        Some((keys, asks)) if !matches!(cli.command, CliCommand::Mount(_)) => {
            let keyring = keys::keyring(keys, asks, &access)?;
            access.with_keys(keyring)
        }
        _ => access,
    };
    match cli.command.overlay() {
        None => Ok(access),
        Some(dir) => keep_writes_in(access, dir, screen),
    }
}

/// The same access, but what is written to members is kept in a directory; says what is there
/// already.
fn keep_writes_in(access: MemberAccess, dir: &Path, screen: Screen) -> Result<MemberAccess, Problem> {
    let (access, kept) = access.keep_writes_in(dir)?;
    let there = match kept.files {
        0 => "nothing was before".to_owned(),
        files => format!("from before there are {files} files, {}", screen.units.show(kept.bytes)),
    };
    let dir = printable(&dir.to_string_lossy());
    output::note(&format!("members are only read: what is written to them goes to {dir}; {there}"));
    Ok(access)
}
