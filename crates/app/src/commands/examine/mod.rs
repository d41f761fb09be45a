//! `wattle examine`: every field of the metadata on members, believed or not. Decides nothing.

mod areas;
mod fields;
mod scripts;

use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Map, Value};
use wattle_control::members::MemberAccess;
use wattle_control::scan::MemberScan;
use wattle_control::{Problem, Scan};
use wattle_format::md;
use wattle_server::protocol::ErrorReport;
use wattle_server::protocol::SCHEMA_VERSION;

use crate::cli::{ExamineArgs, Force};
use crate::members;
use crate::output::text::{printable, table};
use crate::output::{self, Screen};
use fields::Field;

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    members: Vec<MemberReport>,
}

#[derive(Serialize)]
struct MemberReport {
    member: String,
    /// Absent when it cannot be opened.
    size_bytes: Option<u64>,
    superblocks: Vec<SuperblockReport>,
    signatures: Vec<String>,
    /// Partitions in its table that are not used, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unused_partitions: Vec<ErrorReport>,
    /// What else there is to know of its partition table.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    table_notes: Vec<String>,
    problem: Option<ErrorReport>,
}

#[derive(Serialize)]
struct SuperblockReport {
    metadata: String,
    offset_bytes: u64,
    /// Passed every check of the kernel.
    valid: bool,
    /// The checks it failed.
    errors: Vec<String>,
    fields: Vec2Map,
    /// What it points to.
    areas: Vec<AreaReport>,
}

/// A structure that a superblock points to.
#[derive(Serialize)]
struct AreaReport {
    /// `bitmap`, `bad_block_log`, `ppl`, `journal`.
    kind: &'static str,
    offset_bytes: Option<u64>,
    /// Why it cannot be read.
    error: Option<String>,
    fields: Vec2Map,
}

/// Fields in the order of the format; an object in JSON.
struct Vec2Map(Vec<Field>);

impl Serialize for Vec2Map {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let map: Map<String, Value> = self.0.iter().map(|f| (f.name.to_owned(), f.value.clone())).collect();
        map.serialize(serializer)
    }
}

/// # Errors
/// A member cannot be opened or read; or, after the report, the first problem of a member.
pub fn run(access: &MemberAccess, args: &ExamineArgs, screen: Screen) -> Result<ExitCode, Problem> {
    let (scan, unopened) = members::look_each(access, &args.members, &Force { checks: Vec::new() })?;
    if let Some(format) = args.format {
        return scripts::run(&scan, &args.members, &unopened, format, screen);
    }
    let mut report = report(&scan);
    report.members.extend(unopened.iter().map(unopened_report));
    if args.json.json {
        output::print_json(&report)?;
    } else {
        output::print(&render(&report, screen))?;
    }
    let of_members = scan.members.into_iter().filter_map(|member| member.problem);
    unopened.into_iter().chain(of_members).next().map_or(Ok(ExitCode::SUCCESS), Err)
}

/// A member of which nothing but its problem is known.
fn unopened_report(problem: &Problem) -> MemberReport {
    MemberReport {
        member: problem.member.clone().unwrap_or_default(),
        size_bytes: None,
        superblocks: Vec::new(),
        signatures: Vec::new(),
        unused_partitions: Vec::new(),
        table_notes: Vec::new(),
        problem: Some(problem.into()),
    }
}

fn report(scan: &Scan) -> Report {
    let members = scan.members.iter().map(member_report).collect();
    Report { schema_version: SCHEMA_VERSION, members }
}

fn member_report(scan: &MemberScan) -> MemberReport {
    let valid = scan.superblocks.iter().map(|superblock| (&**superblock, Vec::new()));
    let damaged = scan
        .damaged
        .iter()
        .map(|raw| (raw.fields(), raw.problems().iter().map(ToString::to_string).collect()));
    let superblocks = valid.chain(damaged).map(|(fields, errors)| superblock_report(scan, fields, errors));
    MemberReport {
        member: scan.member.name.clone(),
        size_bytes: Some(scan.member.device.size_bytes()),
        superblocks: superblocks.collect(),
        signatures: scan.signatures.iter().map(ToString::to_string).collect(),
        unused_partitions: scan.unused_partitions.iter().map(ErrorReport::from).collect(),
        table_notes: scan.table_notes.clone(),
        problem: scan.problem.as_ref().map(ErrorReport::from),
    }
}

fn superblock_report(
    scan: &MemberScan,
    found: &md::SuperblockFields,
    errors: Vec<String>,
) -> SuperblockReport {
    SuperblockReport {
        metadata: found.version().to_string(),
        offset_bytes: fields::bytes(found.found_at_sectors()),
        valid: errors.is_empty(),
        // Where a damaged superblock points to is as doubtful as the rest of it, but reading there
        // does no harm.
        areas: areas::of(&scan.member, found),
        errors,
        fields: Vec2Map(fields::of_superblock(found)),
    }
}

fn render(report: &Report, screen: Screen) -> String {
    let parts: Vec<_> = report.members.iter().map(|member| render_member(member, screen)).collect();
    parts.join("\n")
}

fn render_member(member: &MemberReport, screen: Screen) -> String {
    let Screen { units, style, .. } = screen;
    let size = member.size_bytes.map_or("size unknown".to_owned(), |bytes| units.show(bytes));
    let mut text = format!("{}  {size}\n", style.bold(&printable(&member.member)));
    if member.superblocks.is_empty() && member.problem.is_some() {
        text.push_str("  not read: see the error\n");
    } else if member.superblocks.is_empty() {
        text.push_str("  no md superblock\n");
    }
    for superblock in &member.superblocks {
        let heading = format!("superblock {} at byte {}", superblock.metadata, superblock.offset_bytes);
        text.push_str(&format!("  {}\n", style.bold(&heading)));
        for error in &superblock.errors {
            text.push_str(&format!("    {}: {}\n", style.red("not valid"), printable(error)));
        }
        text.push_str(&render_fields(&superblock.fields));
        for area in &superblock.areas {
            let place = area.offset_bytes.map_or("before the start".to_owned(), |at| format!("at byte {at}"));
            text.push_str(&format!(
                "  {}\n",
                style.bold(&format!("{} {place}", area.kind.replace('_', " ")))
            ));
            if let Some(error) = &area.error {
                text.push_str(&format!("    {}: {}\n", style.yellow("not valid"), printable(error)));
            }
            text.push_str(&render_fields(&area.fields));
        }
    }
    for signature in &member.signatures {
        text.push_str(&format!("  {}\n", printable(signature)));
    }
    for note in &member.table_notes {
        text.push_str(&format!("  partition table: {}\n", printable(note)));
    }
    for unused in &member.unused_partitions {
        let (what, code, next) = (printable(&unused.what), &unused.code, printable(&unused.next));
        text.push_str(&format!("  {}: {what}; {next}\n", style.yellow(code)));
    }
    text
}

fn render_fields(fields: &Vec2Map) -> String {
    let rows: Vec<_> =
        fields.0.iter().map(|field| vec![field.name.to_owned(), printable(&field.shown)]).collect();
    table("    ", &rows)
}
