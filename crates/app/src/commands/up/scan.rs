//! `wattle up --scan`: a configuration of what is there.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;
use wattle_control::members::MemberAccess;
use wattle_control::{ArrayScan, Code, Problem, Scan};
use wattle_engine::geometry::Level;
use wattle_operate::config::pattern;
use wattle_operate::config::text::FoundArray;
use wattle_server::protocol::SCHEMA_VERSION;

use crate::cli::{Force, UpArgs};
use crate::members;
use crate::output::{self, Screen};

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    stacks: Vec<FoundStack>,
}

/// A file that would be, or was, written.
#[derive(Serialize)]
struct FoundStack {
    name: String,
    file: PathBuf,
    text: String,
}

/// # Errors
/// Nothing is there, or a file is there already: then none is written.
pub fn run(access: &MemberAccess, args: &UpArgs, screen: Screen) -> Result<ExitCode, Problem> {
    let names = if args.names.is_empty() { pattern::drives() } else { args.names.clone() };
    let (scan, unopened) = members::look_each(access, &names, &Force { checks: Vec::new() })?;
    // Of all drives of a machine some belong to others.
    if !args.names.is_empty() {
        for problem in &unopened {
            output::report(problem, screen.style_err);
        }
    }
    let mut stacks: Vec<FoundStack> = Vec::new();
    for array in scan.arrays.iter() {
        let found = found(&scan, array, !args.names.is_empty(), screen);
        let mut name = found.stack_name();
        for number in 2.. {
            if stacks.iter().all(|other| other.name != name) {
                break;
            }
            name = format!("{}-{number}", found.stack_name());
        }
        let file = args.to.as_deref().unwrap_or(Path::new("")).join(format!("{name}.toml"));
        stacks.push(FoundStack { name, file, text: found.config() });
    }
    if stacks.is_empty() {
        return Err(scan_problem(&names, &unopened));
    }
    if let Some(dir) = &args.to {
        write(dir, &stacks)?;
    }
    if args.json.json {
        output::print_json(&Report { schema_version: SCHEMA_VERSION, stacks })?;
    } else if args.to.is_none() {
        let text = stacks.iter().map(|stack| format!("# File {}\n{}", stack.file.display(), stack.text));
        output::print(&text.collect::<Vec<_>>().join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn found(scan: &Scan, array: &ArrayScan, name_members: bool, screen: Screen) -> FoundArray {
    let assembly = &array.assembly;
    let level = Level::from_md(assembly.array.level).map_or("an array".to_owned(), |level| level.to_string());
    let size = assembly.size_sectors().map(|sectors| sectors.saturating_mul(512));
    let size = size.map_or(String::new(), |bytes| format!(", {}", screen.units.show_capacity(bytes)));
    let whole = |name: &str| {
        std::path::absolute(name).map_or(name.to_owned(), |path| path.to_string_lossy().into_owned())
    };
    let given = |id| {
        let name = &scan.members[id].member.name;
        if pattern::is_there(name) && Path::new(name).exists() { whole(name) } else { name.clone() }
    };
    let members = array.members.iter().chain(&array.unused).map(|id| given(*id));
    FoundArray {
        name: assembly.name().to_owned(),
        uuid: assembly.uuid().to_string(),
        what: format!("{level} of {} members{size}", assembly.slots.len()),
        members: if name_members { members.collect() } else { Vec::new() },
    }
}

/// All or none: what is there is found before anything is written.
fn write(dir: &Path, stacks: &[FoundStack]) -> Result<(), Problem> {
    fs::create_dir_all(dir).map_err(|error| not_written(dir, &error))?;
    if let Some(there) = stacks.iter().find(|stack| stack.file.symlink_metadata().is_ok()) {
        return Err(Problem::new(
            Code::OutputExists,
            format!("{} is there already", there.file.display()),
            "a configuration is never written over; nothing was written",
            "compare: `wattle up --scan` without --to shows what would be in it; or name another directory",
        ));
    }
    for FoundStack { file, text, .. } in stacks {
        let written = File::create_new(file).and_then(|mut out| out.write_all(text.as_bytes()));
        written.map_err(|error| not_written(file, &error))?;
        output::note(&format!("wrote {}", file.display()));
    }
    Ok(())
}

fn not_written(path: &Path, error: &io::Error) -> Problem {
    Problem::new(
        Code::OutputFailed,
        format!("{}: {error}", path.display()),
        "the configuration is not there, or not all of it",
        "name a directory that this user can write: --to DIR",
    )
}

fn scan_problem(names: &[String], unopened: &[Problem]) -> Problem {
    let why = match unopened {
        [] => "a configuration names arrays, and none was found".to_owned(),
        [first, ..] => format!("{} of them could not be opened, the first: {}", unopened.len(), first.what),
    };
    Problem::new(
        Code::NoArray,
        format!("no array on {} drives", names.len()),
        why,
        "name the members; as root all drives can be looked at; `wattle scan` shows what is on them",
    )
}
