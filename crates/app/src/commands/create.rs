//! `wattle create`: a new array on members. The plan is made first and can be shown; writing it
//! adds no decision.

use std::io::{self, BufRead, IsTerminal};

use serde::Serialize;
use wattle_control::create::{self, Consistency, CreatePlan, CreateRequest};
use wattle_control::facts::SuperblockFacts;
use wattle_control::members::{Member, MemberAccess};
use wattle_control::undo::UndoSite;
use wattle_control::units::Units;
use wattle_control::{Code, Problem};
use wattle_engine::geometry::{Level, LevelKind, layout_name};
use wattle_engine::units::SECTOR_BYTES;
use wattle_format::md::Version;
use wattle_server::ids::random_uuid;
use wattle_server::protocol::ErrorReport;
use wattle_server::protocol::SCHEMA_VERSION;

use crate::cli::CreateArgs;
use wattle_server::ids::host_name;

use crate::environment::now;
use crate::members;
use crate::output::text::{printable, table};
use crate::output::{self, Screen};
use crate::saving;

/// What stands for an absent member.
const MISSING: &str = "missing";

/// Bytes of the name in a superblock.
const NAME_BYTES_MAX: usize = 32;

/// What was made, or would be.
#[derive(Serialize)]
pub struct CreateReport {
    schema_version: u32,
    /// Nothing was written.
    dry_run: bool,
    name: String,
    uuid: String,
    metadata: String,
    level: String,
    layout: Option<String>,
    chunk_bytes: Option<u64>,
    size_bytes: u64,
    clean: bool,
    clean_reason: &'static str,
    members: Vec<MemberReport>,
    mdadm_command: String,
    linux: String,
    mdadm: String,
    notes: Vec<&'static str>,
    overridden: Vec<ErrorReport>,
}

#[derive(Serialize)]
struct MemberReport {
    member: String,
    /// Absent for a spare.
    slot: Option<u16>,
    writes: Vec<WriteReport>,
}

#[derive(Serialize)]
struct WriteReport {
    what: String,
    offset_bytes: u64,
    len_bytes: u64,
}

/// # Errors
/// The array cannot be made as asked, something is on a member, or a write failed.
pub fn run(access: &MemberAccess, args: &CreateArgs, screen: Screen) -> Result<(), Problem> {
    let report = make(access, args)?;
    if args.json.json { output::print_json(&report) } else { output::print(&render(&report, screen)) }
}

/// # Errors
/// As [`run`].
pub fn make(access: &MemberAccess, args: &CreateArgs) -> Result<CreateReport, Problem> {
    let request = request(access, args)?;
    let all = request.members.iter().flatten().chain(&request.spares);
    let states = all.map(create::inspect).collect::<Result<Vec<_>, _>>()?;
    let plan = create::plan(&request, &states)?;
    if !args.dry_run {
        confirm(args, &plan)?;
        let members = plan.claim(&states)?;
        let given: Vec<_> = args.members.iter().filter(|name| *name != MISSING).cloned().collect();
        if let Some(recorder) = saving::recorder(&args.saving, &format!("create {}", args.name), &given)? {
            let sites: Vec<_> = members.iter().map(UndoSite::of_member).collect();
            saving::tell(&recorder.record_blocking(&sites, &plan.writes())?);
        }
        plan.execute(&members)?;
    }
    Ok(report(args, &request, &plan))
}

fn request(access: &MemberAccess, args: &CreateArgs) -> Result<CreateRequest, Problem> {
    let level: Level =
        args.level.parse().map_err(|error| usage(format!("--level {}: {error}", args.level)))?;
    let version: Version =
        args.metadata.parse().map_err(|error| usage(format!("--metadata {}: {error}", args.metadata)))?;
    let spares = usize::from(args.spares);
    let Some(slots) = args.members.len().checked_sub(spares).filter(|slots| *slots > 0) else {
        return Err(usage(format!("--spares {spares}: {} members are given in all", args.members.len())));
    };
    if let Some(other) = args.write_mostly.iter().find(|name| !args.members.contains(name)) {
        return Err(usage(format!("--write-mostly {other}: it is none of the members")));
    }
    if !args.write_mostly.is_empty() && level.kind() != LevelKind::Mirrored {
        return Err(usage(format!("--write-mostly: {level} keeps no copies")));
    }
    let mut members = open(access, &args.members)?;
    let spares = members.split_off(slots).into_iter().collect::<Option<Vec<_>>>();
    let spares = spares.ok_or_else(|| usage(format!("a spare cannot be `{MISSING}`")))?;
    Ok(CreateRequest {
        write_mostly: args.write_mostly.clone(),
        name: stored_name(&args.name),
        level,
        members,
        spares,
        version,
        chunk_bytes: args.chunk.map(|size| size.0),
        layout: args.layout.clone(),
        data_offset_bytes: args.data_offset.map(|size| size.0),
        size_bytes: args.size.map(|size| size.0),
        assume_clean: args.assume_clean,
        consistency: consistency(args, level)?,
        bitmap_sweep_secs: args.bitmap_delay,
        forced: members::forced(&args.force),
        set_uuid: random_uuid()?,
        now: now(),
    })
}

fn usage(what: String) -> Problem {
    Problem::new(Code::Usage, what, "the options have to fit together", "see `wattle create --help`")
}

/// `None` for members that are missing.
fn open(access: &MemberAccess, names: &[String]) -> Result<Vec<Option<Member>>, Problem> {
    let present: Vec<_> = names.iter().filter(|name| *name != MISSING).collect();
    let mut opened = access.look_all(&present)?.into_iter();
    if let Some(made_up) = opened.as_slice().iter().find(|member| member.is_made_up()) {
        return Err(Problem::new(
            Code::BadMember,
            format!("{}: a made-up drive is gone when this command ends", made_up.name),
            "an array on it would be gone too",
            "use `wattle serve` with --level for an array over made-up drives, or name files or devices",
        )
        .of_member(&made_up.name));
    }
    Ok(names.iter().map(|name| if name == MISSING { None } else { opened.next() }).collect())
}

/// A bitmap unless something else is asked for: a crash then costs a resync of a few regions
/// instead of everything, for next to nothing.
fn consistency(args: &CreateArgs, level: Level) -> Result<Consistency, Problem> {
    let bitmap = Consistency::Bitmap { chunk_bytes: args.bitmap_chunk.map(|size| size.0) };
    let from_bitmap = match args.bitmap.as_deref() {
        None => (args.bitmap_chunk.is_some() || args.bitmap_delay.is_some()).then_some(bitmap),
        Some("none") => Some(Consistency::Resync),
        Some("internal") => Some(bitmap),
        Some(other) => return Err(usage(format!("--bitmap {other}: expected internal or none"))),
    };
    let from_policy = match args.consistency.as_deref() {
        None => None,
        Some("resync") => Some(Consistency::Resync),
        Some("bitmap") => Some(bitmap),
        Some("ppl") => Some(Consistency::Ppl),
        Some("journal") => Some(Consistency::Journal),
        Some(other) => {
            return Err(usage(format!("--consistency {other}: expected resync, bitmap, ppl or journal")));
        }
    };
    let by_level = if level.kind() == LevelKind::Striped { Consistency::Resync } else { bitmap };
    match (from_bitmap, from_policy) {
        (Some(one), Some(other)) if one != other => Err(usage(
            "--bitmap, --bitmap-chunk, --bitmap-delay and --consistency contradict one another".to_owned(),
        )),
        (Some(Consistency::Resync), None) if args.bitmap_chunk.is_some() || args.bitmap_delay.is_some() => {
            Err(usage("--bitmap none has no --bitmap-chunk and no --bitmap-delay".to_owned()))
        }
        (one, other) => Ok(one.or(other).unwrap_or(by_level)),
    }
}

/// As mdadm stores it: behind the host's name where both fit, so that the array belongs to this
/// machine.
fn stored_name(name: &str) -> String {
    if name.is_empty() {
        return String::new();
    }
    let host = host_name();
    let fits = host.len() + 1 + name.len() < NAME_BYTES_MAX;
    if host.is_empty() || name.contains(':') || !fits { name.to_owned() } else { format!("{host}:{name}") }
}

/// Asks a person before something on the members is destroyed. Elsewhere `--force=signature` is the
/// whole answer.
fn confirm(args: &CreateArgs, plan: &CreatePlan) -> Result<(), Problem> {
    let on_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    if plan.overridden.is_empty() || args.yes || !on_terminal {
        return Ok(());
    }
    for problem in &plan.overridden {
        output::note(&printable(&problem.what));
    }
    output::note(&format!("to destroy this, type the name of the new array ({}):", args.name));
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    if read.is_ok() && answer.trim() == args.name {
        return Ok(());
    }
    let first = plan.overridden.first().expect("it was checked that there is one");
    Err(Problem::new(
        first.code,
        &first.what,
        "the name was not typed, so nothing was written",
        "--yes does not ask",
    ))
}

fn report(args: &CreateArgs, request: &CreateRequest, plan: &CreatePlan) -> CreateReport {
    let geometry = &plan.geometry;
    let chunk_bytes = geometry.chunk().0 * SECTOR_BYTES;
    let members = plan.devices.iter().map(|device| MemberReport {
        member: device.member.name.clone(),
        slot: device.slot,
        writes: device
            .writes
            .iter()
            .map(|write| WriteReport {
                what: write.what.clone(),
                offset_bytes: write.offset_bytes,
                len_bytes: write.bytes.len() as u64,
            })
            .collect(),
    });
    CreateReport {
        schema_version: SCHEMA_VERSION,
        dry_run: args.dry_run,
        name: SuperblockFacts::of(&plan.superblock).set_name,
        uuid: plan.superblock.set_uuid().to_string(),
        metadata: request.version.to_string(),
        level: geometry.level().to_string(),
        layout: layout_name(geometry.level(), geometry.layout()),
        chunk_bytes: (chunk_bytes > 0).then_some(chunk_bytes),
        size_bytes: geometry.array_sectors().0 * SECTOR_BYTES,
        clean: plan.clean,
        clean_reason: plan.clean_reason,
        members: members.collect(),
        mdadm_command: plan.mdadm_command.clone(),
        linux: plan.compatibility.kernels(),
        mdadm: plan.compatibility.mdadm(),
        notes: plan.compatibility.notes.iter().copied().chain(no_name(request)).collect(),
        overridden: plan.overridden.iter().map(ErrorReport::from).collect(),
    }
}

/// That the name that was asked for is not kept.
fn no_name(request: &CreateRequest) -> Option<&'static str> {
    let lost = request.version == Version::V090 && create::minor(&request.name).is_none();
    lost.then_some(
        "metadata 0.90 keeps a number and no name: this array is md0 (`wattle create 1` makes md1)",
    )
}

impl CreateReport {
    /// What the array is.
    pub fn kind(&self, units: Units) -> String {
        let mut what = vec![self.level.clone()];
        what.extend(self.layout.clone());
        what.extend(self.chunk_bytes.map(|bytes| format!("chunk {}", units.show(bytes))));
        what.push(units.show_capacity(self.size_bytes));
        what.push(format!("metadata {}", self.metadata));
        what.join(", ")
    }

    /// Whether parity and copies agree, and how that is known.
    pub fn state(&self) -> String {
        format!("{}: {}", if self.clean { "clean" } else { "not in sync" }, self.clean_reason)
    }
}

fn render(report: &CreateReport, screen: Screen) -> String {
    let Screen { units, style, .. } = screen;
    let verb = if report.dry_run { "would create" } else { "created" };
    let mut text = format!("{verb} {}  {}\n", style.bold(&printable(&report.name)), report.kind(units));
    let mut facts = vec![("uuid", report.uuid.clone()), ("state", report.state())];
    facts.push(("opens in", format!("{}; {}", report.linux, report.mdadm)));
    facts.extend(report.notes.iter().map(|note| ("", (*note).to_owned())));
    facts.push(("mdadm", report.mdadm_command.clone()));
    facts.extend(report.overridden.iter().map(|problem| ("overrides", printable(&problem.what))));
    let facts: Vec<_> = facts.into_iter().map(|(label, value)| vec![label.to_owned(), value]).collect();
    text.push_str(&table("  ", &facts));
    let mut rows = vec![["slot", "bytes", "", "member"].map(str::to_owned).to_vec()];
    for member in &report.members {
        let slot = member.slot.map_or("spare".to_owned(), |slot| slot.to_string());
        for write in &member.writes {
            let range = format!("{}..{}", write.offset_bytes, write.offset_bytes + write.len_bytes);
            rows.push(vec![slot.clone(), range, write.what.clone(), printable(&member.member)]);
        }
    }
    text.push_str(&format!("  {}:\n", if report.dry_run { "would write" } else { "wrote" }));
    text.push_str(&table("    ", &rows));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_stored_with_its_host_only_where_it_fits() {
        assert_eq!(stored_name("other:data"), "other:data");
        let long = "x".repeat(NAME_BYTES_MAX);
        assert_eq!(stored_name(&long), long);
        assert!(stored_name("data").ends_with("data"));
    }
}
