//! Volumes of DDF containers in md's words.
//!
//! Each drive has a record of how the volume lies on drives, or, of a volume that is striped over
//! mirrors, of the mirror that it is in. What was found by experiment (docs/formats.md §10.4): a
//! record's sequence number grows when a drive of it fails or is replaced; the list of drives says
//! which failed; how far a rebuild came is not recorded.

use std::collections::BTreeMap;
use std::ops::Range;

use wattle_format::ddf::{Ddf, DdfBadBlockLog, DdfConfig, DdfDisk, DdfGuid, DdfVolume};

use super::{
    ContainerDrive, ContainerFormat, ContainerMetadata, ContainerRefusal, ContainerVolume, Extent, Placed,
    bad_feature, bad_in, volume_name, volume_uuid,
};
use crate::md::facts::{BadBlockEntry, CLEAN, DeviceRole, SuperblockFacts, Uuid, Version};

/// md's name for near copies of two.
const NEAR: u32 = 0x100;
/// More parts than a volume of this many is not put together.
const PARTS_MAX: usize = 64;
/// More drives than any volume here has.
const SLOTS_MAX: usize = 1024;
/// What Linux begins its ids with.
const LINUX: &[u8] = b"Linux-MD";
/// The largest chunk: 512 bytes times 2 to this.
const SHIFT_MAX: u8 = 20;

type Member<'a> = (&'a ContainerDrive<'a>, &'a Ddf);

/// Finds the volumes of all DDF containers on `drives`.
pub(super) fn place(drives: &[ContainerDrive<'_>], placed: &mut Placed) {
    let mut volumes: BTreeMap<DdfGuid, Vec<Member<'_>>> = BTreeMap::new();
    let mut containers: BTreeMap<DdfGuid, Vec<Member<'_>>> = BTreeMap::new();
    for drive in drives {
        let ContainerMetadata::Ddf(ddf) = drive.metadata else { continue };
        placed.notes.push((drive.id, note(ddf)));
        containers.entry(ddf.guid).or_default().push((drive, ddf));
        for config in &ddf.configs {
            let members = volumes.entry(config.guid).or_default();
            if !members.iter().any(|(other, _)| other.id == drive.id) {
                members.push((drive, ddf));
            }
        }
    }
    for (guid, members) in &volumes {
        place_volume(guid, members, placed);
    }
    for members in containers.values() {
        let Some((_, fresh)) = members.iter().max_by_key(|(_, ddf)| ddf.sequence) else { continue };
        let is_here = |disk: &&DdfDisk| members.iter().any(|(_, ddf)| ddf.own == disk.reference);
        let missing = fresh.disks.iter().filter(|disk| !is_here(disk));
        let smallest = missing.map(|disk| disk.usable_sectors).filter(|sectors| *sectors != u64::MAX).min();
        placed.missing.extend(smallest.map(|sectors| (sectors, "the DDF container".to_owned())));
    }
}

/// What there is to know of a drive as such.
fn note(ddf: &Ddf) -> String {
    let mut notes = vec!["a drive of a DDF container".to_owned()];
    let own = ddf.disks.iter().find(|disk| disk.reference == ddf.own);
    if let Some(own) =
        own.filter(|own| (ddf.is_assigned_spare || own.kind & DdfDisk::SPARE != 0) && ddf.configs.is_empty())
    {
        notes.push(if own.has_failed() { "it failed" } else { "it is a spare" }.to_owned());
    } else if own.is_some_and(DdfDisk::has_failed) {
        notes.push("its own metadata says that it failed".to_owned());
    }
    if ddf.secondary {
        notes.push("its primary header is not whole, the secondary one is used".to_owned());
    }
    if ddf.damaged_configs > 0 {
        notes.push(format!("{} records of its configuration are damaged", ddf.damaged_configs));
    }
    match &ddf.bad_blocks {
        DdfBadBlockLog::Absent => {}
        DdfBadBlockLog::Foreign => {
            notes.push(
                "the place of its bad-block log holds something else, which is not followed".to_owned(),
            );
        }
        DdfBadBlockLog::Damaged => notes.push("its bad-block log is damaged".to_owned()),
        DdfBadBlockLog::Listed(entries) if entries.is_empty() => {}
        DdfBadBlockLog::Listed(entries) => notes.push(format!(
            "its controller found blocks defective, which are taken from the other members: {} entries",
            entries.len()
        )),
    }
    notes.join("; ")
}

/// The record of a volume on a drive, and the volume itself.
fn of<'a>(ddf: &'a Ddf, guid: &DdfGuid) -> Option<(&'a DdfConfig, Option<&'a DdfVolume>)> {
    // Of several records the one that names the drive counts, then the newest.
    let named = |config: &&DdfConfig| {
        (config.members.iter().any(|member| member.reference == Some(ddf.own)), config.sequence)
    };
    let config = ddf.configs.iter().filter(|config| config.guid == *guid).max_by_key(named)?;
    Some((config, ddf.volumes.iter().find(|volume| volume.guid == *guid)))
}

fn place_volume(guid: &DdfGuid, members: &[Member<'_>], placed: &mut Placed) {
    let records = || members.iter().filter_map(|(_, ddf)| of(ddf, guid));
    let Some(newest) = records().map(|(config, _)| config).max_by_key(|config| config.sequence) else {
        return;
    };
    // The newest record of each part. Parts change one by one, each with a number of its own.
    let mut parts: BTreeMap<u8, &DdfConfig> = BTreeMap::new();
    for (config, _) in records() {
        let part = parts.entry(config.part).or_insert(config);
        if config.sequence > part.sequence {
            *part = config;
        }
    }
    let per_part = newest.members.len();
    let count = usize::from(newest.parts);
    // By number: what the drives are called, those of the newest records first.
    let mut numbers: Vec<u32> = Vec::new();
    for config in parts.values() {
        numbers.extend(config.members.iter().filter_map(|member| member.reference));
    }
    for (_, ddf) in members {
        if !numbers.contains(&ddf.own) {
            numbers.push(ddf.own);
        }
    }
    let slot_of = |reference: u32| {
        parts.iter().find_map(|(part, config)| {
            let at = config.members.iter().position(|member| member.reference == Some(reference))?;
            Some(usize::from(*part) * per_part + at)
        })
    };
    let name = records().find_map(|(_, volume)| volume).map_or(String::new(), |volume| volume.name.clone());
    for (drive, ddf) in members {
        let Some((config, volume)) = of(ddf, guid) else { continue };
        let Some(number) = numbers.iter().position(|other| *other == ddf.own) else { continue };
        let part = parts.get(&config.part).copied().unwrap_or(config);
        // Where this drive's record was not kept up, it may still name the drive.
        let own = config.members.iter().position(|member| member.reference == Some(ddf.own));
        let Some(at) = own else {
            placed.notes.push((drive.id, format!("no part of volume `{name}` any more")));
            continue;
        };
        let slots = (count * per_part).min(SLOTS_MAX);
        let mut roles = vec![DeviceRole::Spare; numbers.len().max(slots)];
        for (role, reference) in roles.iter_mut().zip(&numbers) {
            let known = ddf.disks.iter().find(|disk| disk.reference == *reference);
            let slot = match *reference == ddf.own {
                true => Some(usize::from(config.part) * per_part + at),
                false => slot_of(*reference),
            };
            *role = match (slot, known) {
                (None, _) => DeviceRole::Spare,
                (Some(_), None) => DeviceRole::Faulty,
                (Some(_), Some(disk)) if disk.has_failed() => DeviceRole::Faulty,
                (Some(slot), Some(_)) => DeviceRole::Active(slot as u16),
            };
        }
        let is_filled = ddf.disks.iter().any(|disk| {
            disk.reference == ddf.own && disk.state & DdfDisk::REBUILDING != 0 && !disk.has_failed()
        });
        let refused = refusal(config, newest, &parts, volume, drive.size_sectors, at);
        let start = config.members[at].start_sector.min(drive.size_sectors);
        let len = config.component_sectors.unwrap_or(0).min(drive.size_sectors - start);
        let (level, layout) = level(config).unwrap_or((0, 0));
        let bad = bad_blocks(&ddf.bad_blocks, &(start..start + len));
        placed.extents.push(Extent {
            of: drive.id,
            start_sector: start,
            len_sectors: len,
            facts: SuperblockFacts {
                version: Version::V12,
                set_uuid: Uuid(volume_uuid(&[b"ddf", guid])),
                set_name: volume_name(&name, 0),
                level,
                layout,
                chunk_sectors: if level == 1 { 0 } else { chunk(config).unwrap_or(0) },
                size_sectors: if level == 0 { 0 } else { len },
                raid_disks: slots as u32,
                dev_number: number as u32,
                device_uuid: None,
                roles,
                events: u64::from(newest.sequence)
                    - u64::from(part.sequence.saturating_sub(config.sequence).min(newest.sequence)),
                ctime_secs: 0,
                utime_secs: ddf.written_secs,
                resync_offset: if volume.is_some_and(DdfVolume::is_consistent) { CLEAN } else { 0 },
                recovery_offset: is_filled.then_some(0),
                data_offset_sectors: 0,
                data_size_sectors: len,
                features: bad_feature(bad.as_deref()),
                reshape: None,
                container: Some(ContainerVolume {
                    format: ContainerFormat::Ddf,
                    size_sectors: config.size_sectors,
                    refused,
                }),
            },
            bad,
        });
    }
}

/// What of a range of a drive is recorded as defective, sectors from the range's start; `None` if
/// that cannot be told. What was moved to spare blocks counts as lost: the other members have it.
fn bad_blocks(log: &DdfBadBlockLog, range: &Range<u64>) -> Option<Vec<BadBlockEntry>> {
    match log {
        DdfBadBlockLog::Absent | DdfBadBlockLog::Foreign => Some(Vec::new()),
        DdfBadBlockLog::Damaged => None,
        DdfBadBlockLog::Listed(entries) => {
            Some(bad_in(range, entries.iter().map(|entry| (entry.start_sector, entry.len_sectors))))
        }
    }
}

/// md's level and layout; `None` where that is not known.
fn level(config: &DdfConfig) -> Option<(i32, u32)> {
    let members = config.members.len();
    if config.parts > 1 {
        // Striped over mirrors: neighbours are copies.
        let is_striped = matches!(config.part_level, 0 | 3);
        let copies = u32::try_from(members).ok()?;
        return (config.level == 1 && config.qualifier == 0 && is_striped && (2..=16).contains(&copies))
            .then_some((10, NEAR | copies));
    }
    Some(match (config.level, config.qualifier) {
        (0, 0) => (0, 0),
        (1, 0 | 1) if members >= 2 => (1, 0),
        (4, 1) if members >= 3 => (4, 0),
        (5, 0) if members >= 3 => (5, 1),
        (5, 2) if members >= 3 => (5, 0),
        (5, 3) if members >= 3 => (5, 2),
        (6, 1) if members >= 4 => (6, 8),
        (6, 2) if members >= 4 => (6, 9),
        (6, 3) if members >= 4 => (6, 10),
        (0x11, 0) if members >= 3 => (10, NEAR | 2),
        // The specification's copies at an offset are not those that Linux writes by this number.
        (0x11, 1) if members >= 3 && config.guid.starts_with(LINUX) => (10, 0x201),
        _ => return None,
    })
}

fn chunk(config: &DdfConfig) -> Option<u32> {
    (config.chunk_shift <= SHIFT_MAX).then(|| 1 << config.chunk_shift)
}

/// Why a volume is not read, if it is not.
fn refusal(
    config: &DdfConfig,
    newest: &DdfConfig,
    parts: &BTreeMap<u8, &DdfConfig>,
    volume: Option<&DdfVolume>,
    drive_sectors: u64,
    at: usize,
) -> Option<ContainerRefusal> {
    if volume.is_some_and(DdfVolume::is_morphing) {
        return Some(ContainerRefusal::Migrating { what: "a change of its layout" });
    }
    let number = |field, found| Some(ContainerRefusal::Number { field, found });
    let Some((level, _)) = level(config) else {
        return Some(match config.parts {
            1 => ContainerRefusal::Level {
                level: config.level,
                kind: config.qualifier,
                members: config.members.len(),
            },
            parts => ContainerRefusal::Nested { parts, level: config.level, part_level: config.part_level },
        });
    };
    let same = |other: &&&DdfConfig| {
        (other.parts, other.members.len(), other.component_sectors, other.chunk_shift)
            == (newest.parts, newest.members.len(), newest.component_sectors, newest.chunk_shift)
    };
    if usize::from(config.parts) > PARTS_MAX
        || usize::from(config.parts) * config.members.len() > SLOTS_MAX
        || config.part >= config.parts
        || !parts.values().all(|part| same(&part))
    {
        return number("Secondary_Element_Count", u64::from(config.parts));
    }
    if level != 1 && chunk(config).is_none_or(|chunk| chunk < 8) {
        return number("Stripe_Size", u64::from(config.chunk_shift));
    }
    let Some(component) = config.component_sectors.filter(|sectors| *sectors > 0) else {
        return number("Block_Count", config.component_sectors.unwrap_or(u64::MAX));
    };
    let start = config.members.get(at).map_or(u64::MAX, |member| member.start_sector);
    if start.checked_add(component).is_none_or(|end| end > drive_sectors) {
        return number("Starting_Block", start);
    }
    let members = config.members.len() as u64 * u64::from(config.parts);
    if config
        .size_sectors
        .is_some_and(|held| held == 0 || component.checked_mul(members).is_none_or(|all| held > all))
    {
        return number("VD_Size", config.size_sectors.unwrap_or(0));
    }
    None
}
