//! `wattle plan --apply`: the plan's own commands, one after the other, as if they had been typed.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;
use wattle_advise::plan::{FileSystemOptions, PlannedStack};
use wattle_control::members::MemberAccess;
use wattle_control::{Code, Problem};

use super::linux::words;
use super::ours;
use super::report::Names;
use crate::cli::{Cli, CliCommand, Force, LvCommand, PlanArgs, ServeArgs, VgCommand};
use crate::commands::lvm::order;
use crate::commands::lvm::vg;
use crate::commands::{create, partition, serve};
use crate::members;
use crate::output::Screen;

/// A command that was carried out, and what came of it.
#[derive(Debug, Clone, Serialize)]
pub struct RunCommand {
    pub command: String,
    pub result: String,
}

/// What was done, and what was not asked for yet.
#[derive(Debug, Clone, Serialize)]
pub struct Applied {
    pub done: Vec<RunCommand>,
    /// Commands.
    pub left: Vec<String>,
}

/// What is to be built.
pub struct Blueprint<'a> {
    pub stack: &'a PlannedStack,
    pub file_system: &'a FileSystemOptions,
    pub names: &'a Names,
}

/// Refuses, before anything is simulated, what could not be done in the end. What a plan prints is
/// pasted, and `sgdisk` asks nothing: members have to be empty for that as well.
///
/// # Errors
/// There is nothing to do it on, or something is there already.
pub fn check(access: &MemberAccess, args: &PlanArgs) -> Result<(), Problem> {
    if args.members.is_empty() {
        let what = "--apply: drives are given as models, and there is nothing to write to";
        return if args.apply { Err(super::usage(what.to_owned())) } else { Ok(()) };
    }
    let nothing_forced = Force { checks: Vec::new() };
    for seen in &members::look(access, &args.members, &nothing_forced)?.members {
        partition::check_empty(seen).map_err(|problem| Problem {
            next: format!("{}; for a plan alone, --drives N in place of members", problem.next),
            ..problem
        })?;
    }
    Ok(())
}

/// Does it. What can be checked is checked before anything is written.
///
/// # Errors
/// A member is in use or holds something, or a step failed: what was done until then stays, and the
/// problem says how to go on.
pub fn run(
    access: &MemberAccess,
    blueprint: &Blueprint<'_>,
    mkfs: bool,
    screen: Screen,
) -> Result<Applied, Problem> {
    let Blueprint { stack, file_system, names } = blueprint;
    let mut steps = ours::steps(stack, names);
    // What comes first has nothing below it but members: it can be checked, and so can whatever
    // else is made of members alone. With bands that is the partitions.
    let is_banded = stack.arrays.iter().any(|array| array.part.is_some());
    for (ix, step) in steps.iter().enumerate() {
        let is_checked = match parse(step)? {
            CliCommand::Partition(_) => true,
            CliCommand::Create(_) => !is_banded,
            _ => ix == 0,
        };
        if is_checked {
            let dry: Vec<String> = step.iter().cloned().chain(["--dry-run".to_owned()]).collect();
            carry_out(access, &parse(&dry)?, screen)?;
        }
    }
    let directory = std::env::temp_dir().join(format!("wattle-mkfs-{:016x}", unpredictable()));
    let mut left = ours::file_system(stack, file_system, names);
    if mkfs {
        left.clear();
        steps.push(ours::serve(stack, file_system, names, &directory.to_string_lossy()));
    }
    let mut done: Vec<RunCommand> = Vec::new();
    for (ix, step) in steps.iter().enumerate() {
        let result = match parse(step)? {
            CliCommand::Serve(args) => make_file_system(access, *args, &directory, screen),
            step => carry_out(access, &step, screen),
        };
        let result = result.map_err(|problem| went_so_far(problem, &done, &steps[ix..]))?;
        done.push(RunCommand { command: words(step), result });
    }
    Ok(Applied { done, left })
}

fn parse(step: &[String]) -> Result<CliCommand, Problem> {
    let parsed = Cli::try_parse_from(step);
    parsed.map(|cli| cli.command).map_err(|error| super::usage(format!("{}: {error}", words(step))))
}

fn carry_out(access: &MemberAccess, step: &CliCommand, screen: Screen) -> Result<String, Problem> {
    let Screen { units, .. } = screen;
    match step {
        CliCommand::Partition(args) => partition::make(access, args).map(|made| made.result()),
        CliCommand::Create(args) => {
            let made = create::make(access, args)?;
            Ok(format!("array {}: {}, {}", args.name, made.kind(units), made.state()))
        }
        CliCommand::Vg(args) => match &args.command {
            VgCommand::Create(args) => vg::make(access, args, units).map(|made| made.result),
            _ => unreachable!("a plan has no other step for groups"),
        },
        CliCommand::Lv(args) => match &args.command {
            LvCommand::Create(args) => {
                order::make(access, order::create(args), &args.change, units).map(|made| made.result)
            }
            _ => unreachable!("a plan has no other step for volumes"),
        },
        _ => unreachable!("a plan has no other steps"),
    }
}

/// A number that other users cannot know: with the name of the directory they could make it first,
/// and keep this command from its work.
fn unpredictable() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// On the volume as a file, which a server offers in a directory of its own until mkfs is done.
fn make_file_system(
    access: &MemberAccess,
    args: ServeArgs,
    directory: &Path,
    screen: Screen,
) -> Result<String, Problem> {
    let failed = |what: String, why: &str| {
        Problem::new(Code::ServerFailed, what, why, "the volume is there: make the file system by hand")
    };
    std::fs::DirBuilder::new().mode(0o700).create(directory).map_err(|error| {
        failed(format!("{}: {error}", directory.display()), "the volume's file needs a place")
    })?;
    // What mkfs tells is not this command's output.
    let run = args.run.as_deref().unwrap_or_default();
    let (told, run) = (format!("file system: {run}"), format!("{run} >&2"));
    let served = serve::run(access, &ServeArgs { run: Some(run.clone()), ..args }, screen);
    // Best effort: an empty directory is in no one's way.
    let _ = std::fs::remove_dir(directory);
    match served? == ExitCode::SUCCESS {
        true => Ok(told),
        false => Err(failed(format!("`{run}` failed"), "its own words are above")),
    }
}

/// The problem of a step with others behind and before it.
fn went_so_far(problem: Problem, done: &[RunCommand], left: &[Vec<String>]) -> Problem {
    if done.is_empty() {
        return problem;
    }
    let made: Vec<&str> = done.iter().map(|done| done.command.as_str()).collect();
    let left: Vec<String> = left.iter().map(|step| words(step)).collect();
    Problem {
        why: format!("{}; what was done before stays: {}", problem.why, made.join("; ")),
        next: format!("{}; then go on with: {}", problem.next, left.join("; ")),
        ..problem
    }
}
