//! From a decision to what is written: shown, or carried out on the members, which are claimed for
//! it.

use std::path::PathBuf;
use wattle_control::members::MemberAccess;

use wattle_control::lvm::lock::LockedGroups;
use wattle_control::lvm::plan::{Before, From, GroupPlan};
use wattle_control::stack::{Purpose, Stack, StackOptions};
use wattle_control::undo::{Recorder, UndoSite};
use wattle_control::{Code, Policy, Problem};
use wattle_format::lvm::Stamp;
use wattle_rt::Core;
use wattle_server::groups::change::{check_same, report, stopped, writes};
use wattle_server::groups::{self, GroupChange, backup};
use wattle_server::protocol::ChangeReport;
use wattle_server::socket::client::Servers;

use crate::cli::{ChangeArgs, Json};
use crate::environment::{now, runtime_dir, state_dir};
use crate::members;
use crate::output::text::{printable, table};
use crate::output::{self, Screen};
use crate::saving::{self, Starts};
use crate::volumes::{self, Sites};

/// Cores for a handful of writes.
pub const CORES_MAX: usize = 2;

/// So often another process may change what was decided on.
const ATTEMPTS: usize = 100;

/// Decides on what is there, and does it.
///
/// # Errors
/// A member cannot be opened or used, what `decide` says, or a write failed.
pub fn change(
    access: &MemberAccess,
    args: &ChangeArgs,
    screen: Screen,
    decide: &impl AsyncFn(&Core, &mut Stack, &Stamp) -> Result<GroupChange, Problem>,
) -> Result<(), Problem> {
    show(&make(access, args, decide)?, &args.json, screen)
}

/// Where and when a group is changed.
fn stamp() -> Stamp {
    groups::stamp(now())
}

/// The directory of backups unless another is named.
pub fn backups() -> Option<PathBuf> {
    state_dir(None).dir().map(|dir| dir.join("lvm"))
}

/// The same, not shown yet.
///
/// # Errors
/// As [`change`].
pub fn make(
    access: &MemberAccess,
    args: &ChangeArgs,
    decide: &impl AsyncFn(&Core, &mut Stack, &Stamp) -> Result<GroupChange, Problem>,
) -> Result<ChangeReport, Problem> {
    if args.members.is_empty() {
        return Err(no_members());
    }
    // Each time another command changed the group first, which so many can.
    for _ in 1..ATTEMPTS {
        match attempt(access, args, decide) {
            Err(problem) if problem.code == Code::Changed => {}
            done => return done,
        }
    }
    attempt(access, args, decide)
}

/// Decides on what is there now, and does that. Nothing was written if it was changed in between.
fn attempt(
    access: &MemberAccess,
    args: &ChangeArgs,
    decide: &impl AsyncFn(&Core, &mut Stack, &Stamp) -> Result<GroupChange, Problem>,
) -> Result<ChangeReport, Problem> {
    let scan = members::look(access, &args.members, &args.force)?;
    if let Some(made_up) = scan.members.iter().find(|seen| seen.member.is_made_up()) {
        return Err(gone_afterwards(&made_up.member.name));
    }
    let stamp = stamp();
    let (change, sites) = members::run(&args.engine, CORES_MAX, async |core| {
        let mut stack = volumes::open(&core, scan, access, &args.force, Purpose::Look).await?;
        let decided = decide(&core, &mut stack, &stamp).await;
        let decided = decided.and_then(|change| {
            let members: Vec<_> = change.plan.places.iter().map(|place| place.member).collect();
            stack.check_left_behind(&members, members::forced(&args.force))?;
            Ok((Sites::of(&stack, &members), change))
        });
        // Nothing was written, so there is nothing to record and nothing that could fail.
        let _ = stack.close(&core).await;
        decided.map(|(sites, change)| (change, sites))
    })?;
    let text = change.text(&stamp);
    let before = change.plan.before.as_ref();
    let backup = before
        .map(|before| backup::path(args.backup_dir.as_deref(), backups().as_deref(), before))
        .transpose()?;
    let mut report = report(&change, text.as_deref(), args.dry_run, backup.as_deref())?;
    if !args.dry_run && !change.plan.places.is_empty() {
        if let (Some(before), Some(path)) = (before, &backup) {
            backup::save(path, before, &change.action)?;
        }
        let done = carry_out(access, args, &change, &sites, text.as_deref());
        let done = done.map_err(|problem| of_a_server(args, before, problem))?;
        report.notes.extend(done.failures);
        (report.undo_log, report.start_undo_logs) = (done.undo_log, done.start_undo_logs);
    }
    Ok(report)
}

/// Shows what was done.
///
/// # Errors
/// The output cannot be written.
pub fn show(report: &ChangeReport, json: &Json, screen: Screen) -> Result<(), Problem> {
    if json.json { output::print_json(report) } else { output::print(&render(report, screen)) }
}

fn no_members() -> Problem {
    Problem::new(
        Code::Usage,
        "no members are given",
        "only `lv create`, `extend`, `reduce`, `remove`, `rename`, `move`, `activate-flags` and `vg extend`, `reduce`, `rename` are \
         also orders to the server of a group",
        "give the files or devices that the volumes lie on, every member of their arrays",
    )
}

/// Members that a server of the group has locked are its own to change.
pub fn of_a_server(args: &ChangeArgs, before: Option<&Before>, problem: Problem) -> Problem {
    let Some(before) = before.filter(|_| problem.code == Code::Locked) else { return problem };
    let servers = Servers::ask(&runtime_dir(args.runtime.runtime_dir.as_deref()));
    if let Ok(None) = servers.of_group(&before.id.to_string()) {
        return problem;
    }
    Problem {
        why: format!("the volume group {} is being served", before.name),
        next: "leave out the members, and its server does it; for `pv`, and for `vg export`, `remove` and `restore`, stop it first \
               (`wattle status`, `wattle stop`)"
            .to_owned(),
        ..problem
    }
}

fn gone_afterwards(name: &str) -> Problem {
    Problem::new(
        Code::BadMember,
        format!("{name}: a made-up drive is gone when this command ends"),
        "a physical volume on it would be gone too",
        "name files or devices",
    )
    .of_member(name)
}

/// What came of carrying out a change.
#[derive(Default)]
struct Done {
    /// What could not be written.
    failures: Vec<String>,
    undo_log: Option<String>,
    start_undo_logs: Vec<String>,
}

/// Opens the same members for writing and writes. What changed since the decision is refused.
fn carry_out(
    access: &MemberAccess,
    args: &ChangeArgs,
    change: &GroupChange,
    sites: &Sites,
    text: Option<&[u8]>,
) -> Result<Done, Problem> {
    let scan = members::look(access, &args.members, &args.force)?;
    members::run(&args.engine, CORES_MAX, async |core| {
        let forced = members::forced(&args.force);
        let (policy, wanted) = (Policy::from(forced), Some(sites.wanted.clone()));
        let options = StackOptions { policy, purpose: Purpose::Write, wanted, keys: access.keys() };
        let mut starts = Starts::new(&args.saving, &change.action, &args.members, forced);
        let mut stack = Stack::open(&core, scan, options, &mut starts).await?;
        let done = write(&core, &mut stack, &change.plan, sites, text, || {
            saving::recorder(&args.saving, &change.action, &args.members)
        });
        let done = done.await;
        let closed = stack.close(&core).await;
        let done = done?;
        closed?;
        Ok(Done { start_undo_logs: starts.logs, ..done })
    })
}

async fn write(
    core: &Core,
    stack: &mut Stack,
    plan: &GroupPlan,
    sites: &Sites,
    text: Option<&[u8]>,
    recorder: impl FnOnce() -> Result<Option<Recorder>, Problem>,
) -> Result<Done, Problem> {
    let (mut devices, mut saved, mut members) = (Vec::new(), Vec::new(), Vec::new());
    for (place, member) in plan.places.iter().zip(sites.find(stack)) {
        let Some(member) = member else { return Err(not_startable(stack, &place.name)) };
        if let From::New(_) = place.from {
            check_same(stack, member, place)?;
        }
        let volume = stack.volume(core, member).await?;
        let device = volume.device(core, &place.name).map_err(|error| stopped(&place.name, &error))?;
        saved.push(UndoSite::of(stack, member, device.clone()));
        devices.push(device);
        members.push(member);
    }
    let lock = stack.lock_group(core, &LockedGroups::of(plan), members).await?;
    let mut undo_log = None;
    // Of a later time than those of the starts: it is taken back before them.
    if let Some(recorder) = recorder()? {
        let log = recorder.record(core, &saved, &writes(plan, text)?, &[]).await?;
        saving::tell(&log);
        undo_log = Some(log.display().to_string());
    }
    let failures = plan.execute(core, &lock, &devices, text).await?;
    Ok(Done { failures, undo_log, ..Done::default() })
}

fn not_startable(stack: &Stack, name: &str) -> Problem {
    let why = stack.find(Some(name)).and_then(|volume| volume.member).err();
    why.unwrap_or_else(|| {
        Problem::new(
            Code::Changed,
            format!("{name} is not there any more"),
            "it was a moment ago; nothing was written",
            "find the process that changes the members, and try again",
        )
    })
}

fn render(report: &ChangeReport, screen: Screen) -> String {
    let verb = if report.dry_run { "would be: " } else { "" };
    let mut text = format!("{verb}{}\n", screen.style.bold(&printable(&report.result)));
    let mut facts = Vec::new();
    facts.extend(report.notes.iter().map(|note| ["note", note.as_str()]));
    facts.extend(report.backup.iter().map(|backup| ["backup", backup.as_str()]));
    facts.extend(report.lvm_commands.iter().map(|command| ["lvm", command.as_str()]));
    let facts: Vec<_> = facts.iter().map(|row| row.map(printable).to_vec()).collect();
    text.push_str(&table("  ", &facts));
    if report.dry_run {
        let mut rows = vec![["bytes", "", "on"].map(str::to_owned).to_vec()];
        for write in &report.writes {
            let range = format!("{}..{}", write.offset_bytes, write.offset_bytes + write.len_bytes);
            rows.push(vec![range, write.what.clone(), printable(&write.physical_volume)]);
        }
        text.push_str("  would write:\n");
        text.push_str(&table("    ", &rows));
        for line in report.text.iter().flat_map(|text| text.lines()) {
            text.push_str(&format!("    | {}\n", printable(line)));
        }
    }
    text
}
