//! `wattle undo`: brings back what a command overwrote, or lists what could be brought back.

use std::path::{Path, PathBuf};

use serde::Serialize;
use wattle_control::MemberId;
use wattle_control::members::{Claim, MemberAccess};
use wattle_control::restore::{self, FoundTarget};
use wattle_control::scan::scan_each;
use wattle_control::stack::{Purpose, StackOptions};
use wattle_control::undo::{self, CoveredWrite, Listed, Recorder, UndoSite};
use wattle_control::{Check, Code, Forced, MemberError, Policy, Problem, Stack};
use wattle_format::undo::{SECTOR_BYTES, UndoLog};
use wattle_rt::{Core, Device};
use wattle_server::groups::taken_back;
use wattle_server::protocol::ErrorReport;
use wattle_server::protocol::SCHEMA_VERSION;
use wattle_server::time::rfc3339;

use crate::cli::UndoArgs;
use crate::output::text::{printable, table};
use crate::output::{self, Screen};
use crate::saving::{self, Starts};
use crate::volumes::Sites;
use crate::{members, volumes};

/// Cores for a handful of writes.
const CORES_MAX: usize = 2;

/// What is to be known of everything that was brought back.
const NOTE: &str = "what was written elsewhere since, by a resync, a rebuild or clients, stays as it is";

/// What is to be known of what was brought back over what was written since.
const NOTE_WRITTEN_SINCE: &str = "what was written elsewhere since, by a resync, a rebuild or clients, stays as it is, and what came back knows \
                                  nothing of it: an array or a group that is put together by it can give wrong data, and nothing tells where. \
                                  Read it only (`wattle serve --read-only`, or --overlay), and do not go on writing";

#[derive(Serialize)]
struct ListReport {
    schema_version: u32,
    /// The newest first.
    logs: Vec<LogReport>,
}

#[derive(Serialize)]
struct LogReport {
    log: String,
    time: Option<String>,
    command: Option<String>,
    members: Vec<String>,
    /// Why it cannot be used.
    problem: Option<ErrorReport>,
}

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    /// Nothing was written.
    dry_run: bool,
    log: String,
    command: String,
    time: Option<String>,
    members: Vec<MemberReport>,
    /// What the log is of and was not there.
    missing: Vec<String>,
    /// By which this is taken back.
    undo_log: Option<String>,
    /// By which starts of arrays that were forced are taken back after that, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    start_undo_logs: Vec<String>,
    note: &'static str,
}

#[derive(Serialize)]
struct MemberReport {
    /// As it is called now.
    member: String,
    /// As it was called when the command wrote to it.
    was: String,
    /// What was brought back.
    restored_bytes: u64,
    /// What was there already.
    unchanged_bytes: u64,
    /// What had been written since by other programs, of what was brought back.
    overridden_bytes: u64,
}

/// # Errors
/// The log cannot be used, a member is missing or in use, was written since, or cannot be written.
pub fn run(access: &MemberAccess, args: &UndoArgs, screen: Screen) -> Result<(), Problem> {
    let Some(path) = &args.log else { return list(args, screen) };
    let path = find_log(path, args)?;
    let log = undo::load(&path)?;
    let given = if args.members.is_empty() { &log.given } else { &args.members };
    let (mut members, errors) = access.look_each(given)?;
    members.retain(|member| !member.is_made_up());
    let unopened: Vec<_> = errors.into_iter().map(Problem::from).collect();
    if members.is_empty()
        && let Some(problem) = unopened.first()
    {
        return Err(problem.clone());
    }
    let forced = members::forced(&args.force);
    let scan = scan_each(members, forced);
    let all = forced.has(Check::WrittenSince);
    let restored = |found: &FoundTarget| {
        found.fit.written + found.fit.other.filter(|_| all).map_or(0, |(_, others)| others)
    };
    let (sites, names, found) = members::run(&args.engine, CORES_MAX, async |core| {
        let mut stack = volumes::open(&core, scan, access, &args.force, Purpose::Look).await?;
        let found = match restore::find(&core, &stack, &log, forced).await {
            Ok(found) => {
                let notes = taken_back::check(&core, &mut stack, &log, &found, forced).await;
                notes.map(|notes| (found, notes))
            }
            Err(problem) => Err(problem),
        };
        let found = found.and_then(|(found, notes)| {
            notes.iter().for_each(|note| output::note(&printable(note)));
            let written: Vec<_> =
                found.iter().filter(|found| restored(found) > 0).map(|found| found.member).collect();
            stack.check_left_behind(&written, forced)?;
            let members: Vec<_> = found.iter().map(|found| found.member).collect();
            let name = |&member: &MemberId| stack.scan.members[member].member.name.clone();
            Ok((Sites::of(&stack, &members), members.iter().map(name).collect::<Vec<_>>(), found))
        });
        // Nothing was written, so there is nothing to record and nothing that could fail.
        let _ = stack.close(&core).await;
        found
    })
    .map_err(|problem| of_its_owner(access, of_unopened(problem, &unopened), given))?;
    let mut written = Written::default();
    if !args.dry_run && found.iter().any(|found| restored(found) > 0) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let what = format!("undo {}", name.split_once('-').map_or(&*name, |(_, what)| what));
        written = write(access, args, &log, (&found, &sites), given, &what)?;
    }
    let bytes = |sectors: u64| sectors.saturating_mul(SECTOR_BYTES as u64);
    let members = found.iter().zip(&names).map(|(found, name)| MemberReport {
        member: name.clone(),
        was: log.targets[found.target].name.clone(),
        restored_bytes: bytes(restored(found)),
        unchanged_bytes: bytes(found.fit.before),
        overridden_bytes: bytes(found.fit.other.map_or(0, |(_, others)| others)),
    });
    let missing = (0..log.targets.len()).filter(|target| found.iter().all(|found| found.target != *target));
    let report = Report {
        schema_version: SCHEMA_VERSION,
        dry_run: args.dry_run,
        log: path.display().to_string(),
        command: log.command.clone(),
        time: rfc3339(log.time.0),
        members: members.collect(),
        missing: missing.map(|target| log.targets[target].name.clone()).collect(),
        undo_log: written.undo_log,
        start_undo_logs: written.start_undo_logs,
        note: if all && found.iter().any(|found| found.fit.other.is_some()) {
            NOTE_WRITTEN_SINCE
        } else {
            NOTE
        },
    };
    if args.json.json { output::print_json(&report) } else { output::print_fitted(&render(&report, screen)) }
}

/// What is missing may be what could not be opened: why not comes first then.
fn of_unopened(problem: Problem, unopened: &[Problem]) -> Problem {
    match unopened {
        [first, ..] if problem.code == Code::MissingLogged => Problem {
            why: format!("{}: {} ({}); {}", first.what, first.why, first.code, problem.why),
            next: format!("{}; {}", first.next, problem.next),
            ..problem
        },
        _ => problem,
    }
}

/// What is on a member in use is for its user to change, whatever else speaks against it;
/// what lies on members is on all of them.
fn of_its_owner(access: &MemberAccess, problem: Problem, given: &[String]) -> Problem {
    let alone = problem.member.as_ref().filter(|name| access.look(name).is_ok());
    let members = alone.map_or(given, std::slice::from_ref);
    let refused = |name: &String| access.look(name).ok()?.claim(Claim::Write).err().map(Problem::from);
    let locked = |refused: &Problem| refused.code == Code::Locked;
    members.iter().find_map(|name| refused(name).filter(locked)).unwrap_or(problem)
}

/// A log by its path, or by its name among those that are listed.
fn find_log(path: &Path, args: &UndoArgs) -> Result<PathBuf, Problem> {
    if path.exists() || path.components().count() != 1 {
        return Ok(path.to_owned());
    }
    let dir = saving::dir(args.saving.dir.as_deref())?;
    let named = [dir.join(path), dir.join(format!("{}.undo", path.display()))];
    Ok(named.into_iter().find(|path| path.exists()).unwrap_or_else(|| path.to_owned()))
}

/// What saving left.
#[derive(Default)]
struct Written {
    undo_log: Option<String>,
    start_undo_logs: Vec<String>,
}

/// Claims what was found and writes. Whatever is not as it was a moment ago is refused.
fn write(
    access: &MemberAccess,
    args: &UndoArgs,
    log: &UndoLog,
    (found, sites): (&[FoundTarget], &Sites),
    given: &[String],
    what: &str,
) -> Result<Written, Problem> {
    let forced = members::forced(&args.force);
    let scan = scan_each(access.look_each(given)?.0, forced);
    members::run(&args.engine, CORES_MAX, async |core| {
        let options = StackOptions {
            policy: Policy::from(forced),
            purpose: Purpose::Write,
            wanted: Some(sites.wanted.clone()),
            keys: access.keys(),
        };
        let mut starts = Starts::new(&args.saving, what, given, forced);
        let mut stack = Stack::open(&core, scan, options, &mut starts).await?;
        let recorder = || saving::recorder(&args.saving, what, given);
        let done = write_on(&core, &mut stack, log, (found, sites), forced, recorder).await;
        let closed = stack.close(&core).await;
        let undo_log = done?;
        closed?;
        Ok(Written { undo_log, start_undo_logs: starts.logs })
    })
}

async fn write_on(
    core: &Core,
    stack: &mut Stack,
    log: &UndoLog,
    (found, keys): (&[FoundTarget], &Sites),
    forced: Forced,
    recorder: impl FnOnce() -> Result<Option<Recorder>, Problem>,
) -> Result<Option<String>, Problem> {
    let mut targets = Vec::new();
    for (found, member) in found.iter().zip(keys.find(stack)) {
        let name = &log.targets[found.target].name;
        // It was there a moment ago: what it lies on is in use by now, or does not start.
        let member = member.ok_or_else(|| stack.blocked_by().cloned().unwrap_or_else(|| changed(name)))?;
        let volume = stack.volume(core, member).await?;
        let device = volume.device(core, name).map_err(|_| changed(name))?;
        targets.push((found.target, member, device));
    }
    let _lock = taken_back::lock(core, stack, log, &targets).await?;
    let writes = restoring(core, stack, log, (found, &targets), forced).await?;
    let site = |(_, member, device): &(usize, MemberId, Device)| UndoSite::of(stack, *member, device.clone());
    let sites: Vec<_> = targets.iter().map(site).collect();
    let saved = saving::record(core, recorder()?.as_ref(), &sites, &writes).await?;
    // Not every writer keeps locks, and the disk that logs go to may have been busy for long.
    if restoring(core, stack, log, (found, &targets), forced).await? != writes {
        return Err(changed(&log.targets[targets[0].0].name));
    }
    undo::carry_out(core, &sites, &writes).await?;
    Ok(saved)
}

/// What is to be written, by the place among the targets, if these still are what was found.
async fn restoring(
    core: &Core,
    stack: &Stack,
    log: &UndoLog,
    (found, targets): (&[FoundTarget], &[(usize, MemberId, Device)]),
    forced: Forced,
) -> Result<Vec<CoveredWrite>, Problem> {
    let mut writes = Vec::new();
    for (site, (found, (target, member, device))) in found.iter().zip(targets).enumerate() {
        let (target, member, name) = (*target, *member, &log.targets[*target].name);
        let compared = restore::compare(core, device, log, target, forced.has(Check::WrittenSince)).await;
        let (fit, restoring) = compared.map_err(|error| {
            let why = "what is there has to be known before it is written over; nothing was written";
            Problem::new(
                Code::ReadFailed,
                format!("{name}: {error}"),
                why,
                "see what is wrong with the drive",
            )
        })?;
        if !fit.same_sectors(&found.fit) {
            return Err(changed(name));
        }
        restore::check_written_since(stack, log, &FoundTarget { target, member, fit }, forced)?;
        writes.extend(restoring.into_iter().map(|write| CoveredWrite { site, ..write }));
    }
    Ok(writes)
}

fn changed(name: &str) -> Problem {
    MemberError::Changed { name: name.to_owned() }.into()
}

fn render(report: &Report, screen: Screen) -> String {
    let when = report.time.as_deref().unwrap_or("some day");
    let mut text = format!("{} of {when}\n", screen.style.bold(&printable(&report.command)));
    let restored: u64 = report.members.iter().map(|member| member.restored_bytes).sum();
    let rows = report.members.iter().map(|member| {
        let mut what = match (member.restored_bytes, report.dry_run) {
            (0, _) => "is as it was before".to_owned(),
            (bytes, true) => format!("{} would be brought back", screen.units.show(bytes)),
            (bytes, false) => format!("{} brought back", screen.units.show(bytes)),
        };
        if member.overridden_bytes > 0 {
            what.push_str(&format!(", over {} written since", screen.units.show(member.overridden_bytes)));
        }
        if ![&member.member, &undo::absolute(&member.member)].contains(&&member.was) {
            what.push_str(&format!(" (it was {})", printable(&member.was)));
        }
        vec![printable(&member.member), what]
    });
    let missing = report.missing.iter().map(|name| vec![printable(name), "is missing".to_owned()]);
    text.push_str(&table("  ", &rows.chain(missing).collect::<Vec<_>>()));
    if restored > 0 {
        text.push_str(&format!("  {}\n", report.note));
    }
    text
}

fn list(args: &UndoArgs, screen: Screen) -> Result<(), Problem> {
    let dir = saving::dir(args.saving.dir.as_deref())?;
    let logs = undo::list(&dir)?.into_iter().map(|Listed { path, log }| {
        let (log, problem) = match log {
            Ok(log) => (Some(log), None),
            Err(problem) => (None, Some(ErrorReport::from(&problem))),
        };
        LogReport {
            log: path.display().to_string(),
            time: log.as_ref().and_then(|log| rfc3339(log.time.0)),
            members: log.iter().flat_map(|log| &log.targets).map(|target| target.name.clone()).collect(),
            command: log.map(|log| log.command),
            problem,
        }
    });
    let report = ListReport { schema_version: SCHEMA_VERSION, logs: logs.collect() };
    if args.json.json {
        return output::print_json(&report);
    }
    if report.logs.is_empty() {
        output::note(&format!("no undo logs in {}", printable(&dir.to_string_lossy())));
    }
    let mut text = String::new();
    for log in &report.logs {
        let what = log.command.as_deref().or(log.problem.as_ref().map(|problem| problem.what.as_str()));
        let head = screen.style.bold(&printable(&log.log));
        text.push_str(&format!("{head}\n  {}\n", printable(what.unwrap_or_default())));
        if let Some(time) = &log.time {
            text.push_str(&format!("  {time}, {}\n", printable(&log.members.join(", "))));
        }
    }
    output::print_fitted(&text)
}
