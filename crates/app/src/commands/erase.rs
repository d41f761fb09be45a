//! `wattle erase`: what tells of anything on members is shown, saved, and written over with zeros.

use serde::Serialize;
use wattle_control::erase::{self, Trace};
use wattle_control::members::{Member, MemberAccess};
use wattle_control::scan::MemberOrigin;
use wattle_control::stack::Purpose;
use wattle_control::undo::{CoveredWrite, Recorder, UndoSite};
use wattle_control::{Check, Code, MemberId, Problem, Stack};
use wattle_rt::Core;
use wattle_server::protocol::SCHEMA_VERSION;

use crate::cli::EraseArgs;
use crate::members;
use crate::output::text::{printable, table};
use crate::output::{self, Screen};
use crate::{saving, volumes};

/// Cores for a handful of writes.
const CORES_MAX: usize = 2;

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    /// Nothing was written.
    dry_run: bool,
    members: Vec<MemberReport>,
    /// By which it is taken back.
    undo_log: Option<String>,
}

#[derive(Serialize)]
struct MemberReport {
    member: String,
    erased: Vec<TraceReport>,
}

#[derive(Serialize)]
struct TraceReport {
    what: String,
    offset_bytes: u64,
    len_bytes: u64,
}

/// # Errors
/// A member is in use, or cannot be read, saved or written.
pub fn run(access: &MemberAccess, args: &EraseArgs, screen: Screen) -> Result<(), Problem> {
    let looked = access.look_all(&args.members)?;
    if let Some(made_up) = looked.iter().find(|member| member.is_made_up()) {
        return Err(Problem::new(
            Code::BadMember,
            format!("{}: a made-up drive is gone when this command ends", made_up.name),
            "there is nothing on it to erase",
            "name files or devices",
        )
        .of_member(&made_up.name));
    }
    // Before anything is decided: what another process writes until the lock counts.
    let claimed = members::claim_unless(args.dry_run, &looked)?;
    let scan = members::look_at(looked.clone(), &args.force)?;
    let traces = looked.iter().map(erase::traces).collect::<Result<Vec<_>, _>>()?;
    members::run(&args.engine, CORES_MAX, async |core| {
        let stack = volumes::open(&core, scan, access, &args.force, Purpose::Look).await?;
        let checked = check(&stack, args);
        // Nothing was written, so there is nothing to record and nothing that could fail.
        let _ = stack.close(&core).await;
        checked
    })?;
    let mut log = None;
    if !args.dry_run && traces.iter().any(|traces| !traces.is_empty()) {
        let name = looked.first().map_or("", |member| member.name.rsplit('/').next().unwrap_or_default());
        let recorder = saving::recorder(&args.saving, &format!("erase {name}"), &args.members)?;
        log = members::run(&args.engine, CORES_MAX, async |core| {
            erase(&core, &claimed, &traces, recorder.as_ref()).await
        })?;
    }
    let members = looked.iter().zip(traces).map(|(member, traces)| MemberReport {
        member: member.name.clone(),
        erased: traces
            .into_iter()
            .map(|Trace { what, offset_bytes, len_bytes }| TraceReport { what, offset_bytes, len_bytes })
            .collect(),
    });
    let report = Report {
        schema_version: SCHEMA_VERSION,
        dry_run: args.dry_run,
        members: members.collect(),
        undo_log: log,
    };
    if args.json.json { output::print_json(&report) } else { output::print(&render(&report, screen)) }
}

/// Refuses members that something is made of, or of what lies on them, unless the operator insists.
fn check(stack: &Stack, args: &EraseArgs) -> Result<(), Problem> {
    let used = stack.scan.members.ids().filter(|&ix| lies_on_given(stack, ix));
    match used.filter_map(|ix| erase::refusal(stack, ix)).next() {
        Some(problem) if members::forced(&args.force).has(Check::InUse) => {
            output::note(&printable(&format!("{}; overridden", problem.what)));
            Ok(())
        }
        Some(problem) => Err(problem),
        None => Ok(()),
    }
}

/// Whether a member is one that was given, or a part of one, or what is encrypted, checked or
/// cached on one: without what is erased it is gone.
fn lies_on_given(stack: &Stack, member: MemberId) -> bool {
    match stack.scan.members[member].origin {
        MemberOrigin::Given => true,
        MemberOrigin::Partition { of, .. }
        | MemberOrigin::Container { of, .. }
        | MemberOrigin::Decrypted { of }
        | MemberOrigin::Layered { of } => lies_on_given(stack, of),
        MemberOrigin::Array(_) | MemberOrigin::Logical { .. } => false,
    }
}

async fn erase(
    core: &Core,
    members: &[Member],
    traces: &[Vec<Trace>],
    recorder: Option<&Recorder>,
) -> Result<Option<String>, Problem> {
    let sites: Vec<_> = members.iter().map(UndoSite::of_member).collect();
    let writes: Vec<CoveredWrite> =
        traces.iter().enumerate().flat_map(|(site, traces)| erase::writes(site, traces)).collect();
    saving::carry_out(core, recorder, &sites, &writes).await
}

fn render(report: &Report, screen: Screen) -> String {
    let mut text = String::new();
    for member in &report.members {
        let verb = match (member.erased.is_empty(), report.dry_run) {
            (true, _) => "nothing is recognised on it",
            (false, true) => "would be erased:",
            (false, false) => "erased:",
        };
        text.push_str(&format!("{}  {verb}\n", screen.style.bold(&printable(&member.member))));
        let rows = member.erased.iter().map(|trace| {
            let range = format!("{}..{}", trace.offset_bytes, trace.offset_bytes + trace.len_bytes);
            vec![range, printable(&trace.what)]
        });
        text.push_str(&table("  ", &rows.collect::<Vec<_>>()));
    }
    text
}
