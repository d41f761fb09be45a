//! One file per command.

pub mod audit;
mod bench;
mod cat;
mod copy;
mod create;
mod erase;
mod examine;
pub mod explain;
mod files;
pub mod interval;
pub mod lvm;
mod member;
mod mount;
mod partition;
pub mod plan;
mod plans;
mod rescue;
mod scan;
mod scrub;
mod serve;
mod set;
pub mod simulate;
mod status;
mod stop;
pub mod top;
mod undo;
mod why;

use std::path::Path;
use std::process::ExitCode;

use wattle_control::{Problem, overlay};

use crate::cli::{Cli, Command};
use crate::output::text::printable;
use crate::output::{self, Screen};

/// Does what was asked and says how it ended.
pub fn run(cli: Cli) -> ExitCode {
    let screen = Screen::new(&cli.look);
    if let Some(Err(problem)) = cli.command.overlay().map(|dir| keep_writes_in(dir, screen)) {
        return output::report(&problem, screen.style_err);
    }
    let done = |result: Result<(), Problem>| result.map(|()| ExitCode::SUCCESS);
    let result = match cli.command {
        Command::Scan(args) => done(scan::run(&args, screen)),
        Command::Examine(args) => done(examine::run(&args, screen)),
        Command::Create(args) => done(create::run(&args, screen)),
        Command::Partition(args) => done(partition::run(&args, screen)),
        Command::Erase(args) => done(erase::run(&args, screen)),
        Command::Undo(args) => done(undo::run(&args, screen)),
        Command::Cat(args) => done(cat::run(&args)),
        Command::Copy(args) => done(copy::run(&args, screen)),
        Command::Rescue(args) => done(rescue::run(&args, screen)),
        Command::Ls(args) => done(files::ls::run(&args)),
        Command::Get(args) => done(files::get::run(&args)),
        Command::Serve(args) => serve::run(&args, screen),
        Command::Mount(args) => mount::mount(&args),
        Command::Umount(args) => done(mount::umount(&args)),
        Command::Status(args) => status::run(&args, screen),
        Command::Stop(args) => done(stop::run(&args)),
        Command::Top(args) => done(top::run(&args, screen)),
        Command::Why(args) => done(why::run(&args, screen)),
        Command::Fail(args) => done(member::fail(&args)),
        Command::Remove(args) => done(member::remove(&args)),
        Command::Add(args) => done(member::add(&args)),
        Command::Replace(args) => done(member::replace(&args)),
        Command::Check(args) => scrub::check(&args),
        Command::Repair(args) => scrub::repair(&args),
        Command::Set(args) => done(set::run(&args)),
        Command::Pv(args) => done(lvm::pv(&args, screen)),
        Command::Vg(args) => done(lvm::vg(&args, screen)),
        Command::Lv(args) => done(lvm::lv(&args, screen)),
        Command::Audit(args) => audit::run(&args, screen),
        Command::Bench(args) => done(bench::run(&args, screen)),
        Command::Plan(args) => done(plan::run(&args, screen)),
        Command::Simulate(args) => done(simulate::run(&args, screen)),
        Command::Explain(args) => done(explain::run(&args)),
    };
    result.unwrap_or_else(|problem| output::report(&problem, screen.style_err))
}

/// Has what is written to members kept in a directory, and says what is there already.
fn keep_writes_in(dir: &Path, screen: Screen) -> Result<(), Problem> {
    let kept = overlay::keep_writes_in(dir)?;
    let there = match kept.files {
        0 => "nothing was before".to_owned(),
        files => format!("from before there are {files} files, {}", screen.units.show(kept.bytes)),
    };
    let dir = printable(&dir.to_string_lossy());
    output::note(&format!("members are only read: what is written to them goes to {dir}; {there}"));
    Ok(())
}
