//! `wattle partition`: a partition table on drives that hold nothing. The plan is made first and
//! can be shown.

use serde::Serialize;
use wattle_control::members::{Member, MemberAccess};
use wattle_control::partition::{self, Part, PartitionPlan};
use wattle_control::undo::{Recorder, UndoSite};
use wattle_control::{Code, MemberScan, Problem};
use wattle_rt::Core;
use wattle_server::groups::pv;
use wattle_server::ids::random_uuid;
use wattle_server::protocol::SCHEMA_VERSION;

use crate::cli::{Force, PartitionArgs};
use crate::members;
use crate::output::text::{printable, table};
use crate::output::{self, Screen};
use crate::saving;

/// Cores for a handful of writes.
const CORES_MAX: usize = 2;

#[derive(Serialize)]
pub struct PartitionReport {
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
    uuid: String,
    sector_bytes: u32,
    partitions: Vec<PartReport>,
}

#[derive(Serialize)]
struct PartReport {
    name: String,
    number: u32,
    start_bytes: u64,
    size_bytes: u64,
    uuid: String,
}

/// # Errors
/// Something is on a member, it is in use, a partition does not fit, or a write failed.
pub fn run(access: &MemberAccess, args: &PartitionArgs, screen: Screen) -> Result<(), Problem> {
    let report = make(access, args)?;
    if args.json.json { output::print_json(&report) } else { output::print(&render(&report, screen)) }
}

/// # Errors
/// As [`run`].
pub fn make(access: &MemberAccess, args: &PartitionArgs) -> Result<PartitionReport, Problem> {
    let members = access.look_all(&args.members)?;
    // Before anything is decided: what another process writes until the lock counts.
    let claimed = members::claim_unless(args.dry_run, &members)?;
    check_all_empty(&members)?;
    let parts: Vec<_> =
        args.parts.iter().map(|part| Part { number: part.number, range: part.range.clone() }).collect();
    let random = || random_uuid().map(|uuid| uuid.0);
    let plan = partition::plan(&members, &parts, &args.name, random)?;
    let mut undo_log = None;
    if !args.dry_run {
        let first = args.members.first().map_or("", |name| name.rsplit('/').next().unwrap_or_default());
        let recorder = saving::recorder(&args.saving, &format!("partition {first}"), &args.members)?;
        undo_log = members::run(&args.engine, CORES_MAX, async |core| {
            write(&core, &claimed, &plan, recorder.as_ref()).await
        })?;
    }
    let names = members.iter().map(|member| &member.name);
    let members = names.zip(&plan.tables).map(|(name, table)| MemberReport {
        member: name.clone(),
        uuid: table.id.to_string(),
        sector_bytes: table.sector_bytes,
        partitions: table
            .partitions
            .iter()
            .map(|part| PartReport {
                name: format!("{name}:p{}", part.number),
                number: part.number,
                start_bytes: part.start_bytes,
                size_bytes: part.len_bytes,
                uuid: part.id.to_string(),
            })
            .collect(),
    });
    Ok(PartitionReport {
        schema_version: SCHEMA_VERSION,
        dry_run: args.dry_run,
        members: members.collect(),
        undo_log,
    })
}

/// Refuses members that hold anything, and those that end with the command.
fn check_all_empty(members: &[Member]) -> Result<(), Problem> {
    if let Some(made_up) = members.iter().find(|member| member.is_made_up()) {
        return Err(Problem::new(
            Code::BadMember,
            format!("{}: a made-up drive is gone when this command ends", made_up.name),
            "partitions on it would be gone too",
            "name files or devices",
        )
        .of_member(&made_up.name));
    }
    let scan = members::look_at(members.to_vec(), &Force { checks: Vec::new() })?;
    scan.members.iter().try_for_each(check_empty)
}

/// Refuses a member that holds anything, whatever the operator says.
///
/// # Errors
/// It does, or cannot be read.
pub fn check_empty(seen: &MemberScan) -> Result<(), Problem> {
    let nothing_forced = members::forced(&Force { checks: Vec::new() });
    pv::check_empty(seen, nothing_forced).map(drop).map_err(|problem| match problem.code {
        Code::SignatureFound => Problem {
            why: "what is made here would be made over it".to_owned(),
            next: "check that this is the right one; `wattle erase` empties it if it is".to_owned(),
            force: None,
            ..problem
        },
        _ => problem,
    })
}

async fn write(
    core: &Core,
    members: &[Member],
    plan: &PartitionPlan,
    recorder: Option<&Recorder>,
) -> Result<Option<String>, Problem> {
    let sites: Vec<_> = members.iter().map(UndoSite::of_member).collect();
    let log = match recorder {
        Some(recorder) => Some(recorder.record(core, &sites, plan.writes(), &[]).await?),
        None => None,
    };
    log.iter().for_each(|log| saving::tell(log));
    plan.execute(core, &sites).await?;
    Ok(log.map(|log| log.display().to_string()))
}

impl PartitionReport {
    /// What was made, in a line.
    pub fn result(&self) -> String {
        let parts = self.members.first().map_or(0, |member| member.partitions.len());
        let names: Vec<_> = self.members.iter().map(|member| member.member.as_str()).collect();
        format!("GPT with {parts} partition{} on {}", if parts == 1 { "" } else { "s" }, names.join(", "))
    }
}

fn render(report: &PartitionReport, screen: Screen) -> String {
    let verb = if report.dry_run { "would get" } else { "has" };
    let mut text = String::new();
    for member in &report.members {
        text.push_str(&format!("{}  {verb} a GPT:\n", screen.style.bold(&printable(&member.member))));
        let rows = member.partitions.iter().map(|part| {
            let range = format!("{}..{}", part.start_bytes, part.start_bytes + part.size_bytes);
            vec![range, screen.units.show(part.size_bytes), printable(&part.name)]
        });
        text.push_str(&table("  ", &rows.collect::<Vec<_>>()));
    }
    text
}
