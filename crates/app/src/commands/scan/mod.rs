//! `wattle scan`: what is on members, as a tree.

pub mod devices;
mod layers;
mod picture;

use std::ops::Range;

use serde::Serialize;
use wattle_control::MemberId;
use wattle_control::assemble::ReshapeAssembly;
use wattle_control::compat::Compatibility;
use wattle_control::crypt::{Encryption, LockState};
use wattle_control::facts::SuperblockFacts;
use wattle_control::lvm::GroupScan;
use wattle_control::members::{Member, MemberAccess};
use wattle_control::older_linux::compatibility_of;
use wattle_control::reason::ReshapeSummary;
use wattle_control::scan::MemberOrigin;
use wattle_control::stack::Purpose;
use wattle_control::vendor::{VendorLayout, vendor};
use wattle_control::{Access, ArrayScan, Assembly, Code, MemberScan, Problem, Scan, Slot, Stack, SyncState};
use wattle_engine::geometry::{Level, layout_name};
use wattle_engine::units::SECTOR_BYTES;
use wattle_format::md::DeviceFlags;
use wattle_rt::BackendChoice;
use wattle_server::protocol::ErrorReport;
use wattle_server::protocol::SCHEMA_VERSION;
use wattle_server::protocol::report::Health;
use wattle_server::time::rfc3339;

use crate::cli::{Engine, ScanArgs};
use crate::members;
use crate::output::text::{printable, table};
use crate::output::{self, Screen};
use crate::volumes;
use devices::ScannedFsReport;
use layers::{ScannedGroupReport, ScannedVolumeReport, encryption_words};

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    arrays: Vec<ArrayReport>,
    groups: Vec<ScannedGroupReport>,
    /// What can be named with `-V`.
    volumes: Vec<ScannedVolumeReport>,
    /// File systems that lie on several devices.
    file_systems: Vec<ScannedFsReport>,
    members: Vec<MemberReport>,
    /// Whose drives these look like.
    vendor: Option<VendorReport>,
}

#[derive(Serialize)]
struct VendorReport {
    name: &'static str,
    because: String,
    meaning: &'static str,
}

#[derive(Serialize)]
struct ArrayReport {
    name: String,
    /// With the host, as it is stored.
    full_name: String,
    uuid: String,
    metadata: String,
    level: String,
    layout: Option<String>,
    chunk_bytes: Option<u64>,
    /// Absent when the geometry is not known.
    size_bytes: Option<u64>,
    raid_disks: u32,
    health: Health,
    /// `[UU_U]`.
    slots: String,
    degraded: usize,
    /// `clean`, `dirty`, `resyncing`.
    state: &'static str,
    /// In the unit of md's `resync_offset`, while it is resyncing.
    synced_below_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reshape: Option<ReshapeReport>,
    /// Parity and copies are trusted everywhere.
    synced: bool,
    /// What it means that they are not.
    #[serde(skip)]
    unsynced_note: Option<&'static str>,
    events: u64,
    created: Option<String>,
    updated: Option<String>,
    features: Vec<&'static str>,
    /// `read_write`, `read_only`, `refused`.
    access: &'static str,
    problems: Vec<ErrorReport>,
    overridden: Vec<String>,
    opened_by: OpenedBy,
    members: Vec<ArrayMemberReport>,
    missing_slots: Vec<u16>,
}

#[derive(Serialize)]
struct ReshapeReport {
    from: String,
    to: String,
    percent: u64,
    /// Where the two geometries meet: the new one is below it, with `backwards` above.
    position_bytes: u64,
    backwards: bool,
    /// What is an error unless a backup file proves what it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    doubtful: Option<RangeReport>,
}

#[derive(Serialize)]
struct RangeReport {
    start_bytes: u64,
    end_bytes: u64,
}

#[derive(Serialize)]
struct OpenedBy {
    linux: String,
    mdadm: String,
    notes: Vec<&'static str>,
}

#[derive(Serialize)]
struct ArrayMemberReport {
    member: String,
    /// Where it is used, or would be.
    slot: Option<u16>,
    verdict: &'static str,
    explanation: String,
    /// The same without the verdict's word, which has a column of its own.
    #[serde(skip)]
    why: Option<String>,
    events: u64,
    updated: Option<String>,
    /// Its copies are read only where no other one can be.
    write_mostly: bool,
}

#[derive(Serialize)]
struct MemberReport {
    member: String,
    /// Absent when it cannot be opened.
    size_bytes: Option<u64>,
    /// The array it belongs to.
    array: Option<String>,
    /// What else is on it.
    signatures: Vec<String>,
    note: Option<String>,
    /// Partitions in its table that are not used, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unused_partitions: Vec<ErrorReport>,
    /// What else there is to know of its partition table.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    table_notes: Vec<String>,
    /// Of a copy of a drive, what is in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    copy: Option<CopyReport>,
    problem: Option<ErrorReport>,
    /// The tree shows what is on it.
    #[serde(skip)]
    in_tree: bool,
}

/// A copy of a drive, by its map.
#[derive(Serialize)]
struct CopyReport {
    map: String,
    /// Whether the copy was made to its end, whatever could not be read.
    finished: bool,
    /// The size of the drive; of a partition, its own.
    size_bytes: u64,
    /// What was not read from the drive.
    unread_bytes: u64,
    unread_places: usize,
}

/// # Errors
/// A member is given twice; or, after the report of the others, one that cannot be opened or read;
/// or the first problem of a member or an array.
pub fn run(access: &MemberAccess, args: &ScanArgs, screen: Screen) -> Result<(), Problem> {
    let (scan, unopened) = members::look_each(access, &args.members, &args.force)?;
    let engine = Engine::small(BackendChoice::Auto);
    members::run(&engine, 1, async |core| {
        let stack = volumes::open(&core, scan, access, &args.force, Purpose::Look).await?;
        let (shown, problem) = match devices::found(&core, &stack).await {
            Ok(several) => {
                let stop = several.iter().find_map(|found| found.stop.clone());
                (show(args, screen, &stack, several, &unopened), first_problem(&stack).or(stop))
            }
            Err(problem) => (Err(problem), None),
        };
        // Nothing was written.
        let _ = stack.close(&core).await;
        shown?;
        unopened.into_iter().next().or(problem).map_or(Ok(()), Err)
    })
}

fn show(
    args: &ScanArgs,
    screen: Screen,
    stack: &Stack,
    several: Vec<ScannedFsReport>,
    unopened: &[Problem],
) -> Result<(), Problem> {
    let mut report = report(stack);
    report.file_systems = several;
    report.members.extend(unopened.iter().map(unopened_report));
    if let Some(path) = &args.svg {
        picture::write(path, stack, screen)?;
    }
    if args.json.json {
        return output::print_json(&report);
    }
    for group in &stack.groups {
        group.notes.iter().for_each(|note| output::note(&printable(&format!("{}: {note}", group.vg.name))));
    }
    let tree = layers::tree(stack, screen).map(|tree| tree + "\n");
    let files = layers::way_to_files(stack, &report.file_systems, args).map(|way| format!("\n{way}"));
    let vendor = report.vendor.as_ref().map(|vendor| {
        let because = printable(&vendor.because);
        format!("\nThe layout is that of {} ({because}): {}\n", vendor.name, vendor.meaning)
    });
    output::print_fitted(
        &[tree, Some(render(&report, screen)), vendor, files].into_iter().flatten().collect::<String>(),
    )
}

/// What a script should stop at: a member that is damaged, an array that cannot be read, a volume
/// of which a part is missing. Degraded is not among it.
fn first_problem(stack: &Stack) -> Option<Problem> {
    let scan = &stack.scan;
    // Of a volume that is not all there it is no news that some of it cannot be read.
    let is_partial = |member: &&MemberScan| match member.origin {
        MemberOrigin::Logical { group, volume } => stack.groups[group].volumes[&volume].partial,
        MemberOrigin::Array(array) => {
            let reshape = scan.arrays[array].assembly.reshape.as_ref();
            reshape.is_some_and(|reshape| reshape.doubtful.is_some())
        }
        _ => false,
    };
    let of_members = scan.members.iter().filter(|member| !is_partial(member));
    let of_members = of_members.filter_map(|member| member.problem.clone());
    let not_opened = |member: &MemberScan| match &member.encryption {
        Some(Encryption { state: LockState::Refused(problem), .. }) => Some(problem.clone()),
        _ => member.layer_problem().cloned(),
    };
    // What is past the end of a drive, or in partitions that are not known, is missing; other
    // faults of a table lose nothing.
    let missing = scan.members.iter().flat_map(|member| &member.unused_partitions);
    let is_missing = |code| matches!(code, Code::PartitionCutOff | Code::PartitionsUnknown);
    let missing = missing.filter(|problem| is_missing(problem.code)).cloned();
    let of_members = of_members.chain(scan.members.iter().filter_map(not_opened)).chain(missing);
    let of_arrays = scan.arrays.iter().filter_map(|array| array.assembly.refusal());
    let of_groups = stack.groups.iter().filter_map(|group| group.problem.clone());
    let needs_older = |group: &GroupScan| {
        let mut problems = group.volumes.values().filter_map(|state| state.problem.clone());
        problems.find(|problem| problem.code == Code::OlderPhysical)
    };
    let of_groups = of_groups.chain(stack.groups.iter().filter_map(needs_older));
    of_members.chain(of_arrays).chain(of_groups).chain(stack.groups.iter().filter_map(partly_missing)).next()
}

/// A group of which a volume is not all there.
fn partly_missing(group: &GroupScan) -> Option<Problem> {
    let partial = group.vg.lvs.iter().find(|lv| group.volumes[&lv.id].partial)?;
    let (name, lacking) = (group.full_name(partial), group.lacking().join(", "));
    Some(Problem::new(
        Code::MissingPhysical,
        format!("{name} is partly on physical volumes that are missing: {lacking}"),
        "what lies there cannot be read, and the group cannot be changed",
        "give the missing ones too, and copy again what was cut short; `cat`, `copy`, `ls` and `get` read what is left",
    ))
}

fn report(stack: &Stack) -> Report {
    let scan = &stack.scan;
    // Layers are volumes.
    let members = scan.members.ids().filter(|&ix| {
        matches!(
            scan.members[ix].origin,
            MemberOrigin::Given | MemberOrigin::Partition { .. } | MemberOrigin::Container { .. }
        )
    });
    Report {
        schema_version: SCHEMA_VERSION,
        arrays: scan.arrays.iter().map(|array| array_report(scan, array)).collect(),
        groups: layers::groups(stack),
        volumes: layers::volumes(stack),
        file_systems: Vec::new(),
        members: members.map(|ix| member_report(stack, ix)).collect(),
        vendor: vendor(stack).map(|VendorLayout { vendor, because, meaning }| VendorReport {
            name: vendor,
            because,
            meaning,
        }),
    }
}

fn array_report(scan: &Scan, found: &ArrayScan) -> ArrayReport {
    let assembly = &found.assembly;
    let array = &assembly.array;
    let level = Level::from_md(array.level);
    let problems = assembly.problems();
    let (state, synced_below_bytes) = match assembly.state {
        SyncState::Clean => ("clean", None),
        SyncState::Dirty => ("dirty", None),
        SyncState::Resyncing { below_sectors } => ("resyncing", Some(bytes(below_sectors))),
    };
    let access = match assembly.access {
        Access::ReadWrite => "read_write",
        Access::ReadOnly(_) => "read_only",
        Access::Refused(_) => "refused",
    };
    let Compatibility { notes, .. } = compatibility_of(scan, found);
    ArrayReport {
        name: assembly.name().to_owned(),
        full_name: array.set_name.clone(),
        uuid: array.set_uuid.to_string(),
        metadata: array.metadata_name(),
        level: level.map_or_else(|| array.level.to_string(), |level| level.to_string()),
        layout: level.and_then(|level| layout_name(level, array.layout)),
        chunk_bytes: (array.chunk_sectors > 0).then(|| bytes(u64::from(array.chunk_sectors))),
        size_bytes: assembly.size_sectors().map(bytes),
        raid_disks: array.raid_disks,
        health: health(assembly),
        slots: slots_view(&assembly.slots),
        degraded: assembly.degraded(),
        state,
        synced_below_bytes,
        reshape: assembly.reshape.as_ref().map(reshape_report),
        synced: assembly.synced(),
        unsynced_note: assembly.unsynced_note(),
        events: array.events,
        created: rfc3339(array.ctime_secs),
        updated: written(array),
        features: array.features.names().collect(),
        access,
        problems: problems.iter().map(ErrorReport::from).collect(),
        overridden: assembly.overridden.iter().map(ToString::to_string).collect(),
        opened_by: OpenedBy {
            linux: compatibility_of(scan, found).kernels(),
            mdadm: compatibility_of(scan, found).mdadm(),
            notes,
        },
        members: (0..found.members.len()).map(|ix| array_member(scan, found, ix)).collect(),
        missing_slots: assembly.missing(),
    }
}

fn reshape_report(reshape: &ReshapeAssembly) -> ReshapeReport {
    let summary = ReshapeSummary::of(reshape);
    let range =
        |range: Range<u64>| RangeReport { start_bytes: bytes(range.start), end_bytes: bytes(range.end) };
    ReshapeReport {
        from: summary.from,
        to: summary.to,
        percent: summary.percent,
        position_bytes: bytes(summary.position_sectors),
        backwards: summary.backwards,
        doubtful: summary.doubtful.map(range),
    }
}

fn health(assembly: &Assembly) -> Health {
    match (&assembly.access, assembly.degraded()) {
        (Access::Refused(_), _) => Health::Unusable,
        (_, 0) => Health::Good,
        _ => Health::Degraded,
    }
}

/// When a superblock was last written; metadata of Intel RAID does not say it.
fn written(superblock: &SuperblockFacts) -> Option<String> {
    rfc3339(superblock.utime_secs).filter(|_| superblock.utime_secs > 0)
}

fn array_member(scan: &Scan, found: &ArrayScan, ix: usize) -> ArrayMemberReport {
    let member = &scan.members[found.members[ix]];
    let verdict = &found.assembly.verdicts[ix];
    let why = scan.explanation(found, ix);
    let superblock = member.facts.as_ref().map(|facts| &facts.superblock);
    ArrayMemberReport {
        member: member.member.name.clone(),
        slot: verdict.slot().or_else(|| superblock.and_then(|superblock| superblock.own_role().slot())),
        verdict: verdict.word(),
        explanation: match &why {
            Some(why) => format!("{}: {why}", verdict.word()),
            None => verdict.word().to_owned(),
        },
        why,
        events: superblock.map_or(0, |superblock| superblock.events),
        updated: superblock.and_then(written),
        write_mostly: member
            .superblock()
            .is_some_and(|superblock| superblock.device_flags().contains(DeviceFlags::WRITE_MOSTLY)),
    }
}

fn member_report(stack: &Stack, ix: MemberId) -> MemberReport {
    let member = &stack.scan.members[ix];
    MemberReport {
        member: member.member.name.clone(),
        size_bytes: Some(member.member.device.size_bytes()),
        array: member.facts.as_ref().map(|facts| facts.superblock.set_uuid.to_string()),
        signatures: member.signatures.iter().map(ToString::to_string).collect(),
        note: member.note.clone().or_else(|| {
            let layered = || member.layer_summary();
            member.encryption.as_ref().map(encryption_words).or_else(layered)
        }),
        unused_partitions: member.unused_partitions.iter().map(ErrorReport::from).collect(),
        table_notes: member.table_notes.clone(),
        copy: copy_report(&member.member),
        problem: member.problem.as_ref().map(ErrorReport::from),
        in_tree: member.table.is_some()
            || layers::is_in_group(stack, member)
            || matches!(member.origin, MemberOrigin::Partition { .. } | MemberOrigin::Container { .. }),
    }
}

fn copy_report(member: &Member) -> Option<CopyReport> {
    let (map, unread) = (member.copy_map()?, member.unread());
    Some(CopyReport {
        map: wattle_rt::text_of_path(map.path()),
        finished: map.is_finished(),
        size_bytes: member.device.size_bytes(),
        unread_bytes: unread.iter().map(|run| run.end - run.start).sum(),
        unread_places: unread.len(),
    })
}

/// A member of which nothing but its problem is known.
fn unopened_report(problem: &Problem) -> MemberReport {
    MemberReport {
        member: problem.member.clone().unwrap_or_default(),
        size_bytes: None,
        array: None,
        signatures: Vec::new(),
        note: None,
        unused_partitions: Vec::new(),
        table_notes: Vec::new(),
        copy: None,
        problem: Some(problem.into()),
        in_tree: false,
    }
}

/// As mdstat shows it: up, or not, by slot.
fn slots_view(slots: &[Slot]) -> String {
    let letter = |slot: &Slot| if matches!(slot, Slot::InSync { .. }) { 'U' } else { '_' };
    format!("[{}]", slots.iter().map(letter).collect::<String>())
}

/// Saturates: a damaged superblock may say anything.
fn bytes(sectors: u64) -> u64 {
    sectors.saturating_mul(SECTOR_BYTES)
}

fn render(report: &Report, screen: Screen) -> String {
    let mut parts: Vec<_> = report.arrays.iter().map(|array| render_array(array, screen)).collect();
    let strangers: Vec<_> = report
        .members
        .iter()
        .filter(|member| {
            let unknown = member.array.is_none() || !member.signatures.is_empty();
            let told = member.problem.is_some() || member.note.is_some() || !member.table_notes.is_empty();
            told || !member.unused_partitions.is_empty() || (unknown && !member.in_tree)
        })
        .map(|member| render_stranger(member, screen))
        .collect();
    if !strangers.is_empty() {
        parts.push(strangers.concat());
    }
    let copies = report.members.iter().filter_map(|member| render_copy(member, screen)).collect::<String>();
    parts.extend((!copies.is_empty()).then_some(copies));
    parts.extend(report.file_systems.iter().map(|found| found.render(screen)));
    parts.join("\n")
}

fn render_copy(member: &MemberReport, screen: Screen) -> Option<String> {
    let Screen { units, style, .. } = screen;
    let copy = member.copy.as_ref()?;
    let unread = match copy.unread_places {
        0 => "everything".to_owned(),
        places => {
            let (unread, size) = (units.show(copy.unread_bytes), units.show(copy.size_bytes));
            style.yellow(&format!("all but {unread} of {size} (places: {places})"))
        }
    };
    let state = if copy.finished { "" } else { "; the copy was not finished" };
    let (name, map) = (style.bold(&printable(&member.member)), printable(&copy.map));
    Some(format!("{name}  a copy: {unread} was read from the drive, by {map}{state}\n"))
}

fn render_array(array: &ArrayReport, screen: Screen) -> String {
    let Screen { units, style, .. } = screen;
    let mut what = vec![array.level.clone()];
    what.extend(array.layout.clone());
    what.extend(array.chunk_bytes.map(|bytes| format!("chunk {}", units.show(bytes))));
    what.extend(array.size_bytes.map(|bytes| units.show_capacity(bytes)));
    what.push(format!("metadata {}", array.metadata));
    let mut text = format!("{}  {}\n", style.bold(&printable(&array.name)), what.join(", "));

    let health = format!("{} {}", array.slots, array.health.word(array.synced));
    let health = match array.health {
        Health::Good if array.synced => style.green(&health),
        Health::Good | Health::Degraded => style.yellow(&health),
        Health::Unusable => style.red(&health),
    };
    let state = match array.synced_below_bytes {
        Some(below) => format!("{}, in sync below {}", array.state, units.show(below)),
        None => array.state.to_owned(),
    };
    let updated = array.updated.as_ref().map_or(String::new(), |time| format!(", updated {time}"));
    let mut facts = vec![("health", health), ("state", state)];
    facts.extend(array.unsynced_note.map(|note| ("", note.to_owned())));
    facts.push(("access", array.access.replace('_', "-")));
    facts.push(("uuid", array.uuid.clone()));
    facts.push(("events", format!("{}{updated}", array.events)));
    if !array.features.is_empty() {
        facts.push(("features", array.features.join(", ")));
    }
    facts.push(("opens in", format!("{}; {}", array.opened_by.linux, array.opened_by.mdadm)));
    facts.extend(array.opened_by.notes.iter().map(|note| ("", (*note).to_owned())));
    facts.extend(array.overridden.iter().map(|reason| ("override", printable(reason))));
    let facts: Vec<_> = facts.into_iter().map(|(label, value)| vec![label.to_owned(), value]).collect();
    text.push_str(&table("  ", &facts));

    let mut rows = vec![["slot", "verdict", "events", "member"].map(str::to_owned).to_vec()];
    let mut members: Vec<_> = array.members.iter().collect();
    members.sort_by_key(|member| member.slot.unwrap_or(u16::MAX));
    for member in members {
        let slot = member.slot.map_or("-".to_owned(), |slot| slot.to_string());
        let in_use = member.verdict == "fresh";
        let verdict = if in_use { member.verdict.to_owned() } else { style.yellow(member.verdict) };
        let mut name = printable(&member.member);
        if member.write_mostly {
            name.push_str("  (write-mostly)");
        }
        if !in_use {
            name.extend(member.why.iter().map(|why| format!("  ({})", printable(why))));
        }
        rows.push(vec![slot, verdict, member.events.to_string(), name]);
    }
    // A slot with an unusable claimant has its line already.
    let claimed = |slot: &&u16| array.members.iter().any(|member| member.slot == Some(**slot));
    let missing: Vec<_> = array.missing_slots.iter().copied().filter(|slot| !claimed(&slot)).collect();
    // Arrays of a NAS have slots for every bay there could be: those without a member are one line.
    rows.extend(missing.chunk_by(|slot, next| slot + 1 == *next).map(|run| {
        let slots = match run {
            [slot] => slot.to_string(),
            _ => format!("{}-{}", run[0], run[run.len() - 1]),
        };
        vec![slots, style.yellow("missing"), "-".to_owned(), "-".to_owned()]
    }));
    text.push_str(&table("  ", &rows));
    for problem in &array.problems {
        text.push_str(&render_problem(problem, screen));
    }
    text
}

fn render_problem(problem: &ErrorReport, screen: Screen) -> String {
    let head = screen.style.yellow(&problem.code);
    format!(
        "  {head}: {}\n    why: {}\n    next: {}\n",
        printable(&problem.what),
        printable(&problem.why),
        printable(&problem.next)
    )
}

fn render_stranger(member: &MemberReport, screen: Screen) -> String {
    let name = screen.style.bold(&printable(&member.member));
    let mut found = member.signatures.iter().map(|signature| printable(signature)).collect::<Vec<_>>();
    if member.array.is_none() && member.problem.is_none() {
        found.insert(0, "no md array".to_owned());
    }
    let size = member.size_bytes.map_or("size unknown".to_owned(), |bytes| screen.units.show(bytes));
    let mut text =
        format!("{name}  {size}{}{}\n", if found.is_empty() { "" } else { ", " }, found.join(", "));
    if let Some(note) = &member.note {
        text.push_str(&format!("  {}\n", printable(note)));
    }
    for note in &member.table_notes {
        text.push_str(&format!("  partition table: {}\n", printable(note)));
    }
    for problem in member.problem.iter().chain(&member.unused_partitions) {
        text.push_str(&render_problem(problem, screen));
    }
    text
}
