//! From a decision to what is written: shown, or carried out on the members, which are claimed for it.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use wattle_control::lvm::plan::{Before, From, Plan, PlannedWrite};
use wattle_control::lvm::relocate::Step;
use wattle_control::members::Member;
use wattle_control::stack::{Options, Purpose, Stack};
use wattle_control::undo::{Recorder, Site, Write};
use wattle_control::{Code, Policy, Problem};
use wattle_format::lvm::{Id, Stamp};
use wattle_rt::Core;

use super::backup;
use crate::cli::{ChangeArgs, Json};
use crate::control_socket::RuntimeDir;
use crate::control_socket::client::Servers;
use crate::members;
use crate::output::text::{printable, table};
use crate::output::{self, SCHEMA_VERSION, Screen};
use crate::saving::{self, Starts};
use crate::volumes::{self, Sites};

/// Cores for a handful of writes.
pub const CORES_MAX: usize = 2;

/// What was decided.
#[derive(Debug)]
pub struct Change {
    /// `lv create data/home`: for the text and the backup.
    pub action: String,
    /// What comes of it, for people.
    pub result: String,
    /// What is written.
    pub plan: Plan,
    /// The commands of LVM2's that do the same.
    pub commands: Vec<String>,
    /// What to know.
    pub notes: Vec<String>,
    /// What is copied first.
    pub step: Option<Step>,
}

impl Change {
    /// The group's text afterwards.
    pub fn text(&self) -> Option<Vec<u8>> {
        let stamp = Stamp { description: format!("wattle {}", self.action), ..stamp() };
        self.plan.after.as_ref().map(|vg| vg.to_text(&stamp))
    }
}

/// What was done, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    schema_version: u32,
    /// Nothing was written.
    pub dry_run: bool,
    action: String,
    pub result: String,
    /// What moved, of a move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    moved_bytes: Option<u64>,
    /// What is left to move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_bytes: Option<u64>,
    group: Option<String>,
    group_uuid: Option<String>,
    /// The group's sequence number afterwards.
    seqno: Option<u64>,
    /// The group's text afterwards.
    text: Option<String>,
    /// Where the text before is saved.
    backup: Option<String>,
    /// By which it is taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo_log: Option<String>,
    /// By which starts of arrays that were forced are taken back after that, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub start_undo_logs: Vec<String>,
    writes: Vec<WriteReport>,
    lvm_commands: Vec<String>,
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct WriteReport {
    physical_volume: String,
    what: String,
    offset_bytes: u64,
    len_bytes: u64,
}

/// Decides on what is there, and does it.
///
/// # Errors
/// A member cannot be opened or used, what `decide` says, or a write failed.
pub fn change(
    args: &ChangeArgs,
    screen: Screen,
    decide: impl AsyncFnOnce(&Core, &mut Stack) -> Result<Change, Problem>,
) -> Result<(), Problem> {
    show(&make(args, decide)?, &args.json, screen)
}

/// The same, not shown yet.
///
/// # Errors
/// As [`change`].
pub fn make(
    args: &ChangeArgs,
    decide: impl AsyncFnOnce(&Core, &mut Stack) -> Result<Change, Problem>,
) -> Result<Report, Problem> {
    if args.members.is_empty() {
        return Err(no_members());
    }
    let scan = members::look(&args.members, &args.force)?;
    if let Some(made_up) = scan.members.iter().find(|seen| seen.member.is_made_up()) {
        return Err(gone_afterwards(&made_up.member.name));
    }
    let (change, sites) = members::run(&args.engine, CORES_MAX, async |core| {
        let mut stack = volumes::open(&core, scan, &args.force, Purpose::Look).await?;
        let decided = decide(&core, &mut stack).await;
        let decided = decided.map(|change| {
            let members: Vec<_> = change.plan.places.iter().map(|place| place.member).collect();
            (Sites::of(&stack, &members), change)
        });
        // Nothing was written, so there is nothing to record and nothing that could fail.
        let _ = stack.close(&core).await;
        decided.map(|(sites, change)| (change, sites))
    })?;
    let text = change.text();
    let before = change.plan.before.as_ref();
    let backup = before.map(|before| backup::path(args.backup_dir.as_deref(), before)).transpose()?;
    let mut report = report(&change, text.as_deref(), args.dry_run, backup.as_deref())?;
    if !args.dry_run {
        if let (Some(before), Some(path)) = (before, &backup) {
            backup::save(path, before, &change.action)?;
        }
        let done = carry_out(args, &change, &sites, text.as_deref());
        let done = done.map_err(|problem| of_a_server(args, before, problem))?;
        report.notes.extend(done.failures);
        (report.undo_log, report.start_undo_logs) = (done.undo_log, done.start_undo_logs);
    }
    Ok(report)
}

impl Report {
    /// This and the step after it as one; `moved` says how much that is.
    pub fn and(self, step: Self, moved: impl FnOnce(u64) -> String) -> Self {
        let bytes = self.moved_bytes.unwrap_or(0).saturating_add(step.moved_bytes.unwrap_or(0));
        let what = step.result.rsplit_once(": ").map_or("", |(what, _)| what);
        Self {
            result: format!("{what}: {}", moved(bytes)),
            moved_bytes: Some(bytes),
            // The text before the first step is the one to go back to.
            backup: self.backup,
            notes: [self.notes, step.notes].concat(),
            ..step
        }
    }
}

/// Shows what was done.
///
/// # Errors
/// The output cannot be written.
pub fn show(report: &Report, json: &Json, screen: Screen) -> Result<(), Problem> {
    if json.json { output::print_json(report) } else { output::print(&render(report, screen)) }
}

fn no_members() -> Problem {
    Problem::new(
        Code::Usage,
        "no members are given",
        "only `lv create`, `extend`, `reduce`, `remove`, `rename`, `move` and `vg extend`, `reduce`, `rename` are also orders to the \
         server of a group",
        "give the files or devices that the volumes lie on, every member of their arrays",
    )
}

/// Members that a server of the group has locked are its own to change.
pub fn of_a_server(args: &ChangeArgs, before: Option<&Before>, problem: Problem) -> Problem {
    let Some(before) = before.filter(|_| problem.code == Code::Locked) else { return problem };
    let servers = Servers::ask(&RuntimeDir::find(args.runtime.runtime_dir.as_deref()));
    let Some(_) = servers.of_group(&before.name) else { return problem };
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
    args: &ChangeArgs,
    change: &Change,
    sites: &Sites,
    text: Option<&[u8]>,
) -> Result<Done, Problem> {
    let scan = members::look(&args.members, &args.force)?;
    members::run(&args.engine, CORES_MAX, async |core| {
        let forced = members::forced(&args.force);
        let (policy, wanted) = (Policy::from(forced), Some(sites.wanted.clone()));
        let options = Options { policy, purpose: Purpose::Write, wanted };
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
    plan: &Plan,
    sites: &Sites,
    text: Option<&[u8]>,
    recorder: impl FnOnce() -> Result<Option<Recorder>, Problem>,
) -> Result<Done, Problem> {
    let (mut devices, mut saved) = (Vec::new(), Vec::new());
    for (place, member) in plan.places.iter().zip(sites.find(stack)) {
        let Some(member) = member else { return Err(not_startable(stack, &place.name)) };
        if let From::New(_) = place.from {
            check_same(stack, member, place)?;
        }
        let volume = stack.volume(core, member).await?;
        let device = volume.device(core, &place.name).map_err(|error| stopped(&place.name, &error))?;
        saved.push(Site::of(stack, member, device.clone()));
        devices.push(device);
    }
    let mut undo_log = None;
    // Of a later time than those of the starts: it is taken back before them.
    if let Some(recorder) = recorder()? {
        let log = recorder.record(core, &saved, &writes(plan, text)?, &[]).await?;
        saving::tell(&log);
        undo_log = Some(log.display().to_string());
    }
    let failures = plan.execute(core, devices, text).await?;
    Ok(Done { failures, undo_log, ..Done::default() })
}

/// What carrying a plan out writes, for an undo log.
///
/// # Errors
/// A metadata area cannot take the text.
pub fn writes(plan: &Plan, text: Option<&[u8]>) -> Result<Vec<Write>, Problem> {
    let write = |PlannedWrite { place: site, offset_bytes, bytes, .. }| Write { site, offset_bytes, bytes };
    Ok(plan.writes(text)?.into_iter().map(write).collect())
}

/// What a physical volume is on does not run.
pub fn stopped(name: &str, error: &dyn std::error::Error) -> Problem {
    Problem::new(
        Code::VolumeFailed,
        format!("{name}: {error}"),
        "it does not run",
        "see what is wrong with its members (`wattle scan`)",
    )
}

/// What is made a physical volume still holds what the operator was told of.
///
/// # Errors
/// It does not.
pub fn check_same(
    stack: &Stack,
    member: usize,
    place: &wattle_control::lvm::plan::Place,
) -> Result<(), Problem> {
    let seen = &stack.scan.members[member];
    let now = super::pv::wiped(seen);
    match &place.from {
        From::New(wiped) if *wiped != now || seen.facts.is_some() => Err(changed(&seen.member)),
        _ => Ok(()),
    }
}

fn changed(member: &Member) -> Problem {
    wattle_control::MemberError::Changed { name: member.name.clone() }.into()
}

fn not_startable(stack: &Stack, name: &str) -> Problem {
    let why = stack.find(Some(name)).and_then(|volume| volume.member).err();
    why.unwrap_or_else(|| {
        Problem::new(
            Code::Changed,
            format!("{name} is not there any more"),
            "it was a moment ago; nothing was written",
            "find out who changes the members, and try again",
        )
    })
}

/// What a change comes to, with this text.
///
/// # Errors
/// A metadata area cannot take the text.
pub fn report(
    change: &Change,
    text: Option<&[u8]>,
    dry_run: bool,
    backup: Option<&Path>,
) -> Result<Report, Problem> {
    let plan = &change.plan;
    let bytes = |extents: u64| {
        let sectors = plan.after.as_ref().map_or(0, |vg| vg.extent_sectors);
        extents.saturating_mul(sectors).saturating_mul(512)
    };
    let writes = plan.writes(text)?.into_iter().map(|write| WriteReport {
        physical_volume: plan.places[write.place].name.clone(),
        what: write.what.to_owned(),
        offset_bytes: write.offset_bytes,
        len_bytes: write.bytes.len() as u64,
    });
    Ok(Report {
        schema_version: SCHEMA_VERSION,
        dry_run,
        action: change.action.clone(),
        result: change.result.clone(),
        moved_bytes: change.step.as_ref().map(|step| bytes(step.extents)),
        left_bytes: change.step.as_ref().map(|step| bytes(step.left)),
        group: plan.after.as_ref().map(|vg| vg.name.clone()),
        group_uuid: plan.after.as_ref().map(|vg| vg.id.to_string()),
        seqno: plan.after.as_ref().map(|vg| vg.seqno),
        text: text.map(|text| String::from_utf8_lossy(text).into_owned()),
        backup: backup.map(|path| path.display().to_string()),
        undo_log: None,
        start_undo_logs: Vec::new(),
        writes: writes.collect(),
        lvm_commands: change.commands.clone(),
        notes: change.notes.clone(),
    })
}

fn render(report: &Report, screen: Screen) -> String {
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

/// Who changes a group, and when.
#[allow(clippy::disallowed_methods, reason = "the time enters here; below, it is a value")]
pub fn stamp() -> Stamp {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Stamp { description: String::new(), host: host.trim().to_owned(), time: since_epoch.as_secs() }
}

/// A new id.
///
/// # Errors
/// The system gives no random numbers.
pub fn random_id() -> Result<Id, Problem> {
    let (one, other) = (members::random_uuid()?, members::random_uuid()?);
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&one.0);
    bytes[16..].copy_from_slice(&other.0);
    Ok(Id::from_random(bytes))
}
