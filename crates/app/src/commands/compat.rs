//! `wattle compat`: which Linux opens an array, why another does not, and what of that can be taken
//! back.

use std::process::ExitCode;

use serde::Serialize;
use wattle_control::compat::{Obstacle, Release};
use wattle_control::members::MemberAccess;
use wattle_control::older_linux::{
    BlockStatement, block_statements, check_block_statements, compatibility_of, obstacles,
};
use wattle_control::scan::{ArrayScan, scan_each};
use wattle_control::stack::{Purpose, StackOptions};
use wattle_control::undo::UndoSite;
use wattle_control::{Code, MemberError, MemberId, Policy, Problem, Stack};
use wattle_rt::Core;
use wattle_server::protocol::{ErrorReport, SCHEMA_VERSION};

use crate::cli::CompatArgs;
use crate::output::text::{printable, table};
use crate::output::{self, Screen};
use crate::saving::{self, Starts};
use crate::volumes::Sites;
use crate::{members, volumes};

/// Cores for a handful of writes.
const CORES_MAX: usize = 2;

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    /// Nothing was written.
    dry_run: bool,
    /// The release asked about.
    linux: Option<String>,
    arrays: Vec<ArrayReport>,
    /// By which it is taken back.
    undo_log: Option<String>,
    /// By which what was changed before is taken back after that, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    earlier_undo_logs: Vec<String>,
    /// What keeps that release from opening an array; absent if nothing does.
    problem: Option<ErrorReport>,
}

#[derive(Serialize)]
struct ArrayReport {
    name: String,
    uuid: String,
    /// `Linux 5.4 and later`.
    linux: String,
    mdadm: String,
    notes: Vec<&'static str>,
    /// Whether the release asked about opens it, now or once it was written.
    opens: Option<bool>,
    /// What keeps that release from opening it.
    obstacles: Vec<ObstacleReport>,
    /// Members whose superblock states the logical block size.
    stated: Vec<StatedReport>,
    /// Slots whose members were not given: their superblocks stay as they are.
    missing_slots: Vec<u16>,
}

#[derive(Serialize)]
struct ObstacleReport {
    what: &'static str,
    next: &'static str,
}

#[derive(Serialize)]
struct StatedReport {
    member: String,
    block_bytes: u32,
    member_block_bytes: u32,
    /// It is taken back.
    taken_back: bool,
}

/// What is found out before anything is written.
struct Looked {
    report: Report,
    /// What keeps the release asked about from opening an array.
    problem: Option<Problem>,
    /// What is to be taken back first, and where it is found again: of arrays that no other one
    /// of them lies on.
    changes: Vec<BlockStatement>,
    sites: Sites,
    /// Those others are to be changed after that.
    has_more: bool,
}

/// # Errors
/// A member is in use, or cannot be read, saved or written.
pub fn run(access: &MemberAccess, args: &CompatArgs, screen: Screen) -> Result<ExitCode, Problem> {
    let Looked { mut report, problem, mut changes, mut sites, mut has_more } = look_once(access, args)?;
    if problem.is_none() && !args.dry_run {
        let mut logs = Vec::new();
        // A member of an upper array is written where the lower ones run, and they write their
        // superblocks then: they come after it.
        for _ in 0..report.arrays.len() {
            if changes.is_empty() {
                break;
            }
            logs.extend(write(access, args, &changes, &sites)?);
            if !has_more {
                break;
            }
            let again = look_once(access, args)?;
            if let Some(problem) = again.problem {
                return Err(problem);
            }
            (changes, sites, has_more) = (again.changes, again.sites, again.has_more);
        }
        if logs.len() > 1 {
            output::note("the last of these logs is taken back first");
        }
        report.undo_log = logs.pop();
        report.earlier_undo_logs = logs.into_iter().rev().collect();
    }
    report.problem = problem.as_ref().map(ErrorReport::from);
    if args.json.json {
        output::print_json(&report)?;
    } else {
        output::print(&render(&report, screen))?;
    }
    Ok(match problem {
        None => ExitCode::SUCCESS,
        Some(problem) if args.json.json => ExitCode::from(problem.exit_code()),
        Some(problem) => output::report(&problem, screen.style_err),
    })
}

fn look_once(access: &MemberAccess, args: &CompatArgs) -> Result<Looked, Problem> {
    let scan = members::look(access, &args.members, &args.force)?;
    members::run(&args.engine, CORES_MAX, async |core| {
        let stack = volumes::open(&core, scan, access, &args.force, Purpose::Look).await?;
        let looked = look(&stack, args);
        // Nothing was written, so there is nothing to record and nothing that could fail.
        let _ = stack.close(&core).await;
        looked
    })
}

fn look(stack: &Stack, args: &CompatArgs) -> Result<Looked, Problem> {
    let scan = &stack.scan;
    // Says why where there is none.
    if scan.arrays.is_empty() {
        scan.find(None)?;
    }
    let (mut arrays, mut changes, mut problem) = (Vec::new(), Vec::new(), None);
    let mut highest = 0;
    for array in scan.arrays.iter() {
        let statements = block_statements(scan, array);
        // Of firmware RAID it is not told what a release opens.
        let linux = args.linux.filter(|_| array.assembly.array.container.is_none());
        let obstacles = linux.map_or(Vec::new(), |linux| obstacles(scan, array, linux));
        let stays = obstacles.iter().find(|obstacle| !obstacle.is_block_statement);
        let refused = match (stays, linux) {
            (Some(obstacle), Some(linux)) => Err(refusal(array, linux, obstacle)),
            _ if obstacles.is_empty() => Ok(()),
            _ => check_block_statements(scan, array, &statements, members::forced(&args.force)),
        };
        let taken_back = refused.is_ok() && !obstacles.is_empty();
        arrays.push(array_report(stack, array, &statements, &obstacles, linux.map(|_| refused.is_ok())));
        problem = problem.or(refused.err());
        if taken_back {
            // One that lies on another has more below it.
            let height = stack.below(&array.members).arrays.len();
            highest = highest.max(height);
            changes.extend(statements.into_iter().map(|statement| (height, statement)));
        }
    }
    let members: Vec<MemberId> = changes.iter().map(|(_, statement)| statement.member).collect();
    let problem = problem.or(stack.check_left_behind(&members, members::forced(&args.force)).err());
    let (first, later): (Vec<_>, Vec<_>) = changes.into_iter().partition(|(height, _)| *height == highest);
    let changes: Vec<_> = first.into_iter().map(|(_, statement)| statement).collect();
    let members: Vec<MemberId> = changes.iter().map(|statement| statement.member).collect();
    let report = Report {
        schema_version: SCHEMA_VERSION,
        dry_run: args.dry_run || problem.is_some(),
        linux: args.linux.map(show),
        arrays,
        undo_log: None,
        earlier_undo_logs: Vec::new(),
        problem: None,
    };
    let sites = Sites::of(stack, &members);
    Ok(Looked { report, problem, changes, sites, has_more: !later.is_empty() })
}

fn refusal(array: &ArrayScan, linux: Release, obstacle: &Obstacle) -> Problem {
    Problem::new(
        Code::LinuxTooOld,
        format!("Linux {} does not open {}", show(linux), array.assembly.name()),
        format!("{}; nothing was written", obstacle.what),
        obstacle.next,
    )
}

fn show((major, minor): Release) -> String {
    format!("{major}.{minor}")
}

fn array_report(
    stack: &Stack,
    array: &ArrayScan,
    statements: &[BlockStatement],
    obstacles: &[Obstacle],
    opens: Option<bool>,
) -> ArrayReport {
    let compatibility = compatibility_of(&stack.scan, array);
    let in_the_way = obstacles.iter().any(|obstacle| obstacle.is_block_statement);
    let stated = statements.iter().map(|statement| StatedReport {
        member: stack.scan.members[statement.member].member.name.clone(),
        block_bytes: statement.block_bytes,
        member_block_bytes: statement.member_block_bytes,
        taken_back: in_the_way && opens == Some(true),
    });
    ArrayReport {
        name: array.assembly.name().to_string(),
        uuid: array.assembly.uuid().to_string(),
        linux: compatibility.kernels(),
        mdadm: compatibility.mdadm(),
        notes: compatibility.notes,
        opens,
        obstacles: obstacles
            .iter()
            .map(|obstacle| ObstacleReport { what: obstacle.what, next: obstacle.next })
            .collect(),
        stated: stated.collect(),
        missing_slots: array.assembly.missing(),
    }
}

/// Claims the members and writes. Whatever is not as it was a moment ago is refused.
fn write(
    access: &MemberAccess,
    args: &CompatArgs,
    changes: &[BlockStatement],
    sites: &Sites,
) -> Result<Option<String>, Problem> {
    let forced = members::forced(&args.force);
    let scan = scan_each(access.look_each(&args.members)?.0, forced);
    let what = format!("compat {}", args.linux.map_or(String::new(), show));
    members::run(&args.engine, CORES_MAX, async |core| {
        let options = StackOptions {
            policy: Policy::from(forced),
            purpose: Purpose::Write,
            wanted: Some(sites.wanted.clone()),
            keys: access.keys(),
        };
        let mut starts = Starts::new(&args.saving, &what, &args.members, forced);
        let mut stack = Stack::open(&core, scan, options, &mut starts).await?;
        let done = write_on(&core, &mut stack, args, &what, (changes, sites)).await;
        let closed = stack.close(&core).await;
        let log = done?;
        closed?;
        Ok(log)
    })
}

async fn write_on(
    core: &Core,
    stack: &mut Stack,
    args: &CompatArgs,
    what: &str,
    (changes, found): (&[BlockStatement], &Sites),
) -> Result<Option<String>, Problem> {
    let (mut sites, mut writes) = (Vec::new(), Vec::new());
    for (change, member) in changes.iter().zip(found.find(stack)) {
        let changed = |name: &str| Problem::from(MemberError::Changed { name: name.to_owned() });
        // It was there a moment ago: what it lies on is in use by now, or does not start.
        let member =
            member.ok_or_else(|| stack.blocked_by().cloned().unwrap_or_else(|| changed("a member")))?;
        let name = stack.scan.members[member].member.name.clone();
        let device = stack.volume(core, member).await?.device(core, &name).map_err(|_| changed(&name))?;
        writes.push(change.take_back(core, (&name, &device), sites.len()).await?);
        sites.push(UndoSite::of(stack, member, device));
    }
    let recorder = saving::recorder(&args.saving, what, &args.members)?;
    saving::carry_out(core, recorder.as_ref(), &sites, &writes).await
}

fn render(report: &Report, screen: Screen) -> String {
    let mut text = String::new();
    for array in &report.arrays {
        text.push_str(&format!("{}\n", screen.style.bold(&printable(&array.name))));
        let mut facts = vec![("opens in", format!("{}; {}", array.linux, array.mdadm))];
        facts.extend(array.notes.iter().map(|note| ("", (*note).to_owned())));
        if let (Some(linux), Some(opens)) = (&report.linux, array.opens) {
            let verdict = match (opens, array.obstacles.is_empty(), report.dry_run) {
                (true, true, _) => format!("opens in Linux {linux} as it is"),
                (true, false, true) => format!("would open in Linux {linux}, with this taken back:"),
                (true, false, false) => format!("opens in Linux {linux}, with this taken back:"),
                (false, ..) => format!("does not open in Linux {linux}"),
            };
            facts.push(("for it", verdict));
        }
        let rows = facts.into_iter().map(|(name, value)| vec![name.to_owned(), value]);
        text.push_str(&table("  ", &rows.collect::<Vec<_>>()));
        let rows = array.stated.iter().map(|stated| {
            let what = format!("states a logical block size of {} bytes", stated.block_bytes);
            let own = format!("its own is {}", stated.member_block_bytes);
            vec![printable(&stated.member), format!("{what}; {own}")]
        });
        text.push_str(&table("  ", &rows.collect::<Vec<_>>()));
        if array.stated.iter().any(|stated| stated.taken_back) && !array.missing_slots.is_empty() {
            let slots: Vec<_> = array.missing_slots.iter().map(ToString::to_string).collect();
            text.push_str(&format!(
                "  missing: slot {}; a member that comes back is made ready by the same command\n",
                slots.join(", ")
            ));
        }
    }
    text
}
