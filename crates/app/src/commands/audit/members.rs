//! Facts of what is on members: the stack as it was found, and the superblocks of file systems.

use wattle_advise::audit::facts::{
    ArrayFacts, ArrayMember, DeviceFacts, DeviceOrigin, FileSystemFacts, GroupFacts, LogicalFacts,
    MemberRole, PhysicalFacts, SegmentFacts, Sync,
};
use wattle_advise::audit::fragments::FragmentFacts;
use wattle_advise::audit::{AuditFacts, Unchecked};
use wattle_advise::limits::Scheme;
use wattle_control::MemberId;
use wattle_control::facts::{BitmapFacts, Features};
use wattle_control::lvm::GroupScan;
use wattle_control::scan::MemberOrigin as Found;
use wattle_control::{Access, ArrayScan, Code, Member, MemberScan, Problem, Stack, SyncState, Verdict};
use wattle_engine::geometry::{Geometry, Level, LevelKind, layout_name};
use wattle_engine::units::{SECTOR_BYTES, Sector};
use wattle_format::lvm;
use wattle_fs::{CensusLimits, FileSystemLayout};
use wattle_rt::Core;
use wattle_server::history::{self, StateDir};

use super::fragments;
use crate::commands::files::reader::MemberReader;

/// Groups of a file system whose places are looked up.
const GROUPS_MAX: u64 = 4096;

/// Extents, free runs and blocks of trees that are looked at in one file system.
const RECORDS_MAX: u64 = 50_000_000;

/// # Errors
/// The system gives no thread to read with.
pub async fn facts(core: &Core, stack: &Stack, state: &StateDir, inodes: u64) -> Result<AuditFacts, Problem> {
    let members = &stack.scan.members;
    let with_files: Vec<_> = members.entries().filter(|(_, seen)| seen.has_file_system()).collect();
    let readers: Vec<_> = with_files.iter().map(|(_, seen)| seen.member.clone()).collect();
    // What serves them must be able to answer.
    let read =
        core.offload(move || readers.into_iter().map(|member| look(member, inodes)).collect::<Vec<_>>());
    let layouts = read.await.map_err(Problem::no_thread)?;
    let mut facts = AuditFacts {
        devices: members.iter().map(|seen| device(stack, seen)).collect(),
        arrays: stack.scan.arrays.iter().map(|found| array(stack, found, state)).collect(),
        groups: stack.groups.iter().map(|found| group(stack, found)).collect(),
        ..AuditFacts::default()
    };
    for (&(ix, seen), layout) in with_files.iter().zip(layouts) {
        match layout {
            Ok((layout, fragments)) => {
                let file_system = FileSystemFacts { fragments, ..file_system(stack, ix, &layout) };
                facts.devices[place(stack, ix)].file_system = Some(file_system);
            }
            Err(error) => facts.unread.push(unread_files(seen, &error)),
        }
    }
    facts.unread.extend(unread(stack));
    Ok(facts)
}

/// Where a member is among the devices of the facts.
fn place(stack: &Stack, member: MemberId) -> usize {
    nth(stack.scan.members.ids(), member)
}

/// How many ids come before one: facts are lists.
fn nth<I: PartialEq + Copy>(ids: impl Iterator<Item = I>, id: I) -> usize {
    ids.take_while(|other| *other != id).count()
}

/// A file system's layout, and how what is in it lies, if that is wanted.
type Looked = Result<(FileSystemLayout, Option<FragmentFacts>), wattle_fs::Error>;

fn look(member: Member, inodes: u64) -> Looked {
    let layout = wattle_fs::layout(Box::new(MemberReader(member.clone())))?;
    let fragments = match inodes {
        0 => None,
        inodes => {
            let limits = CensusLimits { inodes, records: RECORDS_MAX };
            Some(fragments::facts(&wattle_fs::census(Box::new(MemberReader(member)), limits)?))
        }
    };
    Ok((layout, fragments))
}

fn bytes(sectors: u64) -> u64 {
    sectors.saturating_mul(SECTOR_BYTES)
}

fn device(stack: &Stack, seen: &MemberScan) -> DeviceFacts {
    let origin = match seen.origin {
        Found::Given => DeviceOrigin::Drive,
        Found::Partition { of, number } => {
            let table = stack.scan.members[of].table.as_ref();
            let partition =
                table.and_then(|table| table.partitions.iter().find(|part| part.number == number));
            let start = bytes(partition.map_or(0, |partition| partition.start_sectors));
            DeviceOrigin::Partition { of: place(stack, of), start }
        }
        // What a container gives a volume of a drive is a window like a partition.
        Found::Container { of, start_sector } => {
            DeviceOrigin::Partition { of: place(stack, of), start: bytes(start_sector) }
        }
        // Bytes lie as they do on what is encrypted, from some place on.
        Found::Decrypted { of } => {
            DeviceOrigin::Partition { of: place(stack, of), start: encrypted_from(stack, of) }
        }
        Found::Layered { of } => {
            DeviceOrigin::Partition { of: place(stack, of), start: layered_from(stack, of) }
        }
        Found::Array(array) => DeviceOrigin::Array(nth(stack.scan.arrays.ids(), array)),
        Found::Logical { group, volume } => DeviceOrigin::Logical {
            group: nth(stack.groups.ids(), group),
            volume: nth(stack.groups[group].vg.lvs.iter().map(|lv| lv.id), volume),
        },
    };
    DeviceFacts {
        name: seen.member.name.clone(),
        size: seen.member.device.size_bytes(),
        origin,
        file_system: None,
        queue: None,
        drive: None,
    }
}

fn scheme(level: Option<Level>, geometry: Option<&Geometry>, layout: u32) -> Scheme {
    let redundancy = geometry.map_or(0, Geometry::redundancy) as u32;
    match level {
        Some(Level::Raid4 | Level::Raid5) => Scheme::Parity { parities: 1 },
        Some(Level::Raid6) => Scheme::Parity { parities: 2 },
        Some(Level::Raid1) => Scheme::Mirrored { copies: redundancy + 1, far: false },
        Some(level @ Level::Raid10) => Scheme::Mirrored {
            copies: redundancy + 1,
            far: layout_name(level, layout).is_some_and(|name| name.starts_with('f')),
        },
        Some(Level::Linear | Level::Raid0) | None => Scheme::Striped,
    }
}

fn array(stack: &Stack, found: &ArrayScan, state: &StateDir) -> ArrayFacts {
    let assembly = &found.assembly;
    let facts = &assembly.array;
    let level = Level::from_md(facts.level);
    let geometry = assembly.geometry.as_ref();
    let freshest = stack.scan.members[found.members[assembly.freshest]].facts.as_ref();
    let logs = Features(Features::PPL.0 | Features::MULTIPLE_PPLS.0 | Features::JOURNAL.0);
    let refusal = assembly.refusal().filter(|problem| problem.code != Code::DirtyDegraded);
    let read_only = match &assembly.access {
        Access::ReadOnly(reasons) => reasons.first().map(|reason| reason.problem(assembly.name())),
        Access::ReadWrite | Access::Refused(_) => None,
    };
    ArrayFacts {
        name: assembly.name().to_owned(),
        level: level.map_or_else(|| facts.level.to_string(), |level| level.to_string()),
        scheme: scheme(level, geometry, facts.layout),
        chunk: if level == Some(Level::Linear) { 0 } else { bytes(facts.chunk_sectors.into()) },
        data_drives: geometry.map_or(0, |geometry| geometry.data_disks() as u32),
        slots: facts.raid_disks,
        missing: assembly.degraded() as u32,
        members: array_members(stack, found),
        metadata: facts.metadata_name(),
        bitmap: freshest.map(|facts| facts.bitmap != BitmapFacts::None),
        log: Some(facts.features.0 & logs.0 != 0),
        sync: Some(match assembly.state {
            SyncState::Clean => Sync::Clean,
            SyncState::Dirty => Sync::Dirty,
            SyncState::Resyncing { .. } => Sync::Unsynced,
        }),
        refused: refusal.or(read_only).map(|problem| format!("{} ({})", problem.what, problem.code)),
        // That wattle has no history of it says nothing of what the kernel did.
        scrubbed: history::was_checked(state, &assembly.uuid().to_string()).then_some(true),
        running: None,
        served: false,
    }
}

fn array_members(stack: &Stack, found: &ArrayScan) -> Vec<ArrayMember> {
    let assembly = &found.assembly;
    let member = |(at, &device): (usize, &MemberId)| {
        let superblock = &stack.scan.members[device].facts.as_ref()?.superblock;
        let role = match &assembly.verdicts[at] {
            Verdict::Fresh { .. } | Verdict::Rebuilding { .. } | Verdict::Replacement { .. } => {
                MemberRole::Active
            }
            Verdict::Spare => MemberRole::Spare,
            Verdict::Journal => MemberRole::Journal,
            failed @ Verdict::Faulty { .. } => MemberRole::Failed(failed.to_string()),
            behind @ Verdict::Stale { .. } => MemberRole::Behind(behind.to_string()),
            unused => MemberRole::Unused(unused.to_string()),
        };
        Some(ArrayMember {
            device: place(stack, device),
            role,
            start: Some(bytes(superblock.data_offset_sectors)),
            used: Some(bytes(superblock.size_sectors)).filter(|used| *used > 0),
            bad_sectors: assembly.bad[at].sectors(),
        })
    };
    let mut members: Vec<_> = found.members.iter().enumerate().filter_map(member).collect();
    members.extend(found.unused.iter().map(|&device| {
        let problem = stack.scan.members[device].problem.as_ref();
        let why = problem.map_or(String::new(), |problem| format!("{} ({})", problem.what, problem.code));
        let device = place(stack, device);
        ArrayMember { device, role: MemberRole::Unused(why), start: None, used: None, bad_sectors: 0 }
    }));
    members
}

fn group(stack: &Stack, found: &GroupScan) -> GroupFacts {
    let vg = &found.vg;
    let extent = bytes(vg.extent_sectors);
    let physical = vg.pvs.iter().zip(&found.devices);
    GroupFacts {
        name: vg.name.clone(),
        extent,
        physical: physical
            .map(|(pv, device)| PhysicalFacts {
                device: device.map(|device| place(stack, device)),
                start: bytes(pv.pe_start),
            })
            .collect(),
        volumes: vg.lvs.iter().map(|lv| volume(vg, lv, extent)).collect(),
    }
}

/// Volumes that are made of others have no runs of their own.
fn volume(vg: &lvm::Vg, lv: &lvm::Lv, extent: u64) -> LogicalFacts {
    let area = |name: &str, first_extent: u64| {
        let physical = vg.pvs.iter().position(|pv| pv.name == name)?;
        let start = bytes(vg.pvs[physical].pe_start);
        Some((physical, start.saturating_add(first_extent.saturating_mul(extent))))
    };
    let segment = |segment: &lvm::LvSegment| match &segment.kind {
        lvm::SegmentKind::Striped { stripe_sectors, stripes } => Some(SegmentFacts {
            start: segment.start_extent.saturating_mul(extent),
            stripe: bytes(*stripe_sectors),
            areas: stripes.iter().map(|stripe| area(&stripe.name, stripe.extent)).collect::<Option<_>>()?,
        }),
        _ => None,
    };
    LogicalFacts { name: lv.name.clone(), segments: lv.segments.iter().filter_map(segment).collect() }
}

fn file_system(stack: &Stack, ix: MemberId, layout: &FileSystemLayout) -> FileSystemFacts {
    let groups = layout.groups.min(GROUPS_MAX);
    let slots = (0..groups).map(|group| slot(stack, ix, group.saturating_mul(layout.group_bytes)));
    FileSystemFacts {
        kind: layout.kind.to_owned(),
        version: layout.version,
        block: layout.block_bytes,
        unit: layout.stripe_unit_bytes,
        width: layout.stripe_width_bytes,
        groups: layout.groups,
        group_size: layout.group_bytes,
        group_slots: slots.collect::<Option<_>>().unwrap_or_default(),
        slot_members: array_below(stack, ix).map(|array| slot_members(stack, array)).unwrap_or_default(),
        fragments: None,
    }
}

/// The array below that a volume starts on.
fn array_below(stack: &Stack, ix: MemberId) -> Option<&ArrayScan> {
    match stack.scan.members[ix].origin {
        Found::Given => None,
        Found::Partition { of, .. }
        | Found::Container { of, .. }
        | Found::Decrypted { of }
        | Found::Layered { of } => array_below(stack, of),
        Found::Array(array) => Some(&stack.scan.arrays[array]),
        Found::Logical { group, volume: number } => {
            let group = &stack.groups[group];
            let volume = volume(&group.vg, group.lv(number), bytes(group.vg.extent_sectors));
            let (physical, _) = *volume.segments.first()?.areas.first()?;
            array_below(stack, group.devices[physical]?)
        }
    }
}

/// Where what is encrypted begins on a member, bytes.
fn encrypted_from(stack: &Stack, of: MemberId) -> u64 {
    let encryption = stack.scan.members[of].encryption.as_ref();
    encryption.and_then(|found| found.header.segments.first()).map_or(0, |segment| segment.offset_bytes)
}

/// Where what lies on a member beside what that keeps about it begins, bytes.
fn layered_from(stack: &Stack, of: MemberId) -> u64 {
    let seen = &stack.scan.members[of];
    let checked = seen.integrity.as_ref().map(|device| bytes(device.layout.data_sector(0)));
    checked.or_else(|| seen.bcache.as_ref()?.data_at_bytes()).unwrap_or(0)
}

/// The names of an array's members by their slots.
fn slot_members(stack: &Stack, found: &ArrayScan) -> Vec<(u16, String)> {
    let verdicts = found.members.iter().zip(&found.assembly.verdicts);
    let slots = verdicts.filter_map(|(&device, verdict)| match verdict {
        Verdict::Fresh { slot, .. } | Verdict::Rebuilding { slot, .. } => {
            Some((*slot, stack.scan.members[device].member.name.clone()))
        }
        _ => None,
    });
    slots.collect()
}

/// The slot of the array below that holds the data of a place; `None` without an array, or without
/// chunks.
fn slot(stack: &Stack, ix: MemberId, at: u64) -> Option<u16> {
    match stack.scan.members[ix].origin {
        Found::Given => None,
        Found::Partition { of, number } => {
            let table = stack.scan.members[of].table.as_ref()?;
            let partition = table.partitions.iter().find(|partition| partition.number == number)?;
            slot(stack, of, bytes(partition.start_sectors).checked_add(at)?)
        }
        Found::Container { of, start_sector } => slot(stack, of, bytes(start_sector).checked_add(at)?),
        Found::Decrypted { of } => slot(stack, of, encrypted_from(stack, of).checked_add(at)?),
        // Tags lie between the data: only its start is where it is said to be.
        Found::Layered { of } if stack.scan.members[of].integrity.is_some() => None,
        Found::Layered { of } => slot(stack, of, layered_from(stack, of).checked_add(at)?),
        Found::Array(array) => {
            let geometry = stack.scan.arrays[array].assembly.geometry.as_ref()?;
            let sector = Sector(at / SECTOR_BYTES);
            let striped = !matches!(geometry.level(), Level::Linear | Level::Raid1);
            (striped && sector < geometry.array_sectors()).then(|| match geometry.kind() {
                LevelKind::Mirrored => geometry.copies(sector).as_slice()[0].member.0,
                LevelKind::Striped => geometry.map(sector).member.0,
                LevelKind::Parity => geometry.data_place(sector).member.0,
            })
        }
        Found::Logical { group, volume: number } => {
            let group = &stack.groups[group];
            let volume = volume(&group.vg, group.lv(number), bytes(group.vg.extent_sectors));
            let segment = volume.segments.iter().rev().find(|segment| segment.start <= at)?;
            let [(physical, start)] = segment.areas[..] else { return None };
            slot(stack, group.devices[physical]?, start.checked_add(at - segment.start)?)
        }
    }
}

fn unread_files(seen: &MemberScan, error: &wattle_fs::Error) -> Unchecked {
    let kinds: Vec<_> = seen.signatures.iter().filter(|signature| signature.is_file_system()).collect();
    let kind = kinds.first().map_or("file system", |signature| signature.what.as_str());
    let why = match error {
        wattle_fs::Error::Unrecognised => "its layout is not known here".to_owned(),
        error => error.to_string(),
    };
    Unchecked { what: format!("{}: the {kind} on it", seen.member.name), why }
}

/// What the scan could not look at.
fn unread(stack: &Stack) -> Vec<Unchecked> {
    let mut unread = Vec::new();
    for seen in &stack.scan.members {
        let name = &seen.member.name;
        let in_array = stack.scan.arrays.iter().flat_map(|array| &array.unused);
        let mut told = in_array.map(|&ix| &stack.scan.members[ix].member.name);
        if let Some(problem) = seen.problem.as_ref().filter(|_| !told.any(|other| other == name)) {
            unread
                .push(Unchecked { what: name.clone(), why: format!("{} ({})", problem.what, problem.code) });
        }
        let empty = seen.facts.is_none()
            && seen.table.is_none()
            && seen.physical.is_none()
            && seen.signatures.is_empty();
        if empty && seen.problem.is_none() && seen.origin == Found::Given {
            let why = "nothing on it is recognised: no array, no partitions, no volume group, no file system"
                .to_owned();
            unread.push(Unchecked { what: name.clone(), why });
        }
    }
    for array in &stack.scan.arrays {
        if let Some(problem) = array.assembly.refusal() {
            let what = format!("what lies on {}", array.assembly.name());
            unread.push(Unchecked { what, why: format!("{} ({})", problem.what, problem.code) });
        }
    }
    for group in &stack.groups {
        if let Some(problem) = &group.problem {
            let why = format!("{} ({})", problem.what, problem.code);
            unread.push(Unchecked { what: format!("volume group {}", group.vg.name), why });
        }
        for lv in group.vg.lvs.iter().filter(|lv| group.vg.is_visible(lv)) {
            let made_of_others =
                lv.segments.iter().find(|segment| !matches!(segment.kind, lvm::SegmentKind::Striped { .. }));
            if let Some(segment) = made_of_others {
                let what = format!("{}: its alignment", group.full_name(lv));
                let why = format!("it is {}: made of other volumes", segment.kind.name());
                unread.push(Unchecked { what, why });
            }
        }
    }
    unread
}
