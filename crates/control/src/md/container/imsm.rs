//! Volumes of IMSM containers in md's words.
//!
//! What was found by experiment (docs/formats.md §10.4): drives of one container have the same
//! original family; the one with the highest generation describes it. A drive that failed keeps
//! the generation that it was last written with. While a drive is being filled, the second map
//! marks its slot.

use std::ops::Range;

use wattle_format::imsm::{Imsm, ImsmDisk, ImsmLevel, ImsmMapState, ImsmMigration, ImsmSlot, ImsmVolume};

use super::identity::identify;
use super::{
    ContainerDrive, ContainerFormat, ContainerMetadata, ContainerRefusal, ContainerVolume, Extent, Placed,
    bad_feature, bad_in, volume_name, volume_uuid,
};
use crate::md::facts::{BadBlockEntry, CLEAN, DeviceRole, SuperblockFacts, Uuid, Version};
use crate::problem::{Code, Problem, shell_word};

/// md's name for near copies of two.
const NEAR_2: u32 = 0x102;

/// A drive with what is known of it.
struct Known<'a> {
    drive: &'a ContainerDrive<'a>,
    imsm: &'a Imsm,
    /// Its number in facts: its place in the freshest table, or behind it.
    number: Option<u32>,
}

/// Finds the volumes of all IMSM containers on `drives`.
pub(super) fn place(drives: &[ContainerDrive<'_>], placed: &mut Placed) {
    let mut containers: Vec<(u32, Vec<(&ContainerDrive<'_>, &Imsm)>)> = Vec::new();
    for drive in drives {
        let ContainerMetadata::Imsm(imsm) = drive.metadata else { continue };
        if imsm.volumes.is_empty() {
            let what = if imsm.is_spare() { "a spare drive" } else { "a drive without volumes" };
            placed.notes.push((drive.id, format!("it is {what} of Intel RAID; it belongs to no volume yet")));
            continue;
        }
        match containers.iter_mut().find(|(family, _)| *family == imsm.container()) {
            Some((_, members)) => members.push((drive, imsm)),
            None => containers.push((imsm.container(), vec![(drive, imsm)])),
        }
    }
    for (family, members) in containers {
        place_container(family, &members, placed);
    }
}

fn place_container(family: u32, members: &[(&ContainerDrive<'_>, &Imsm)], placed: &mut Placed) {
    let rank = |imsm: &Imsm| (imsm.generation, imsm.disks.iter().filter(|disk| disk.has_failed()).count());
    let Some((_, fresh)) = members.iter().max_by_key(|(_, imsm)| rank(imsm)) else { return };
    let serials = identify(members);
    let mut known = Vec::new();
    let mut others = fresh.disks.len() as u32;
    for ((drive, imsm), serial) in members.iter().zip(&serials) {
        let number = serial.as_ref().map(|serial| {
            let place = fresh.disks.iter().position(|disk| disk.own_serial() == serial);
            place.map_or_else(
                || {
                    others += 1;
                    others - 1
                },
                |place| place as u32,
            )
        });
        known.push(Known { drive, imsm, number });
    }
    let serials: Vec<_> = serials.into_iter().map(Option::unwrap_or_default).collect();
    take_any(&mut known, fresh);
    let container = format!("Intel RAID container {family:08x}");
    for (at, known) in known.iter().enumerate() {
        let Some(number) = known.number else {
            placed.problems.push((known.drive.id, unknown(known.drive, &container, known.imsm)));
            continue;
        };
        say(known, fresh, number, &container, placed);
        for volume in 0..known.imsm.volumes.len() {
            let serial = &serials[at];
            place_volume(known, number, serial, (fresh, family), volume, placed);
        }
    }
    let is_here = |number: usize| known.iter().any(|known| known.number == Some(number as u32));
    let missing = fresh.disks.iter().enumerate().filter(|(number, _)| !is_here(*number));
    placed
        .missing
        .extend(missing.map(|(_, disk)| disk.total_sectors).min().map(|sectors| (sectors, container)));
}

/// Drives that are not told apart need not be where all volumes are mirrors that are whole: each
/// drive has all of it.
fn take_any(known: &mut [Known<'_>], fresh: &Imsm) {
    let is_whole = |volume: &ImsmVolume| {
        volume.map.level() == Some(ImsmLevel::Raid1)
            && volume.map.state == ImsmMapState::Normal
            && matches!(volume.migration, None | Some(ImsmMigration::Verify))
            && volume.map.slots.iter().all(|slot| !slot.is_stale)
    };
    if !fresh.volumes.iter().all(is_whole) || !fresh.bad_blocks.is_empty() {
        return;
    }
    for ix in 0..known.len() {
        let known_number = known[ix].number.is_some() || known[ix].drive.serial.is_some();
        if known_number || known[ix].imsm != fresh {
            continue;
        }
        let is_free = |number: &u32| !known.iter().any(|known| known.number == Some(*number));
        let works = |number: &u32| !fresh.disks[*number as usize].has_failed();
        known[ix].number = (0..fresh.disks.len() as u32).filter(works).find(is_free);
    }
}

/// What there is to know of a drive as such.
fn say(known: &Known<'_>, fresh: &Imsm, number: u32, container: &str, placed: &mut Placed) {
    let drive = known.drive;
    let mut notes = vec![format!("a drive of {container}")];
    match fresh.disks.get(number as usize) {
        None => notes.push("its newest metadata does not have this drive any more".to_owned()),
        Some(disk) => {
            if disk.has_failed() {
                notes.push("which says that this drive failed".to_owned());
            }
            if disk.total_sectors != drive.size_sectors {
                notes.push(format!(
                    "which says that it has {} sectors, and it has {}",
                    disk.total_sectors, drive.size_sectors
                ));
            }
        }
    }
    placed.notes.push((drive.id, notes.join("; ")));
}

fn place_volume(
    known: &Known<'_>,
    number: u32,
    serial: &str,
    (fresh, family): (&Imsm, u32),
    at: usize,
    placed: &mut Placed,
) {
    let imsm = known.imsm;
    let volume = &imsm.volumes[at];
    let index = |disk: u32| imsm.disks.get(disk as usize);
    let numbers = |disk: u32| {
        let serial = index(disk)?.own_serial();
        fresh.disks.iter().position(|other| other.own_serial() == serial).map(|place| place as u32)
    };
    let is_own = |disk: u32| match numbers(disk) {
        Some(place) => place == number,
        None => !serial.is_empty() && index(disk).is_some_and(|disk| disk.own_serial() == serial),
    };
    let Some(own_slot) = volume.map.slots.iter().position(|slot| is_own(slot.disk)) else { return };
    let slots = volume.map.slots.len();
    let mut roles = vec![DeviceRole::Spare; fresh.disks.len().max(slots).max(number as usize + 1)];
    let mut filled = None;
    // mdadm marks the slot that failed as well. Metadata that only names it contradicts itself, and
    // what is in the slot is not read.
    let is_marked = |slot: &ImsmSlot| slot.is_stale || index(slot.disk).is_none_or(ImsmDisk::has_failed);
    let is_degraded = matches!(volume.map.state, ImsmMapState::Degraded | ImsmMapState::Failed);
    let unmarked = usize::from(volume.map.failed_slot);
    let unmarked = Some(unmarked).filter(|_| is_degraded && !volume.map.slots.iter().any(is_marked));
    for (slot, place) in volume.map.slots.iter().enumerate() {
        let has_failed = is_marked(place) || unmarked == Some(slot);
        let being_filled = volume.migration == Some(ImsmMigration::Rebuild)
            && volume.old_map.as_ref().and_then(|map| map.slots.get(slot)).is_some_and(|old| old.is_stale);
        let role = if has_failed { DeviceRole::Faulty } else { DeviceRole::Active(slot as u16) };
        let whose = if is_own(place.disk) { Some(number) } else { numbers(place.disk) };
        if let Some(role_of) = whose.and_then(|whose| roles.get_mut(whose as usize)) {
            *role_of = role;
        }
        if slot == own_slot && being_filled {
            filled = Some(volume.rebuilt_sectors().unwrap_or(0));
        }
    }
    let component = volume.component_sectors();
    let refused = refusal(volume, component, known.drive.size_sectors);
    // A window that the drive does not have is cut: what is refused is not read.
    let start = volume.map.start_sector.min(known.drive.size_sectors);
    let len = component.unwrap_or(0).min(known.drive.size_sectors - start);
    let (level, layout) = match volume.map.level() {
        Some(ImsmLevel::Raid0) => (0, 0),
        Some(ImsmLevel::Raid1) => (1, 0),
        Some(ImsmLevel::Raid10) => (10, NEAR_2),
        Some(ImsmLevel::Raid5) => (5, 0),
        None => (0, 0),
    };
    let uuid = volume_uuid(&[b"imsm", &family.to_be_bytes(), volume.name.as_bytes()]);
    let bad = Some(bad_blocks((fresh, number), (imsm, serial), start..start + len));
    placed.extents.push(Extent {
        of: known.drive.id,
        start_sector: start,
        len_sectors: len,
        facts: SuperblockFacts {
            version: Version::V12,
            set_uuid: Uuid(uuid),
            set_name: volume_name(&volume.name, at),
            level,
            layout,
            chunk_sectors: if level == 1 { 0 } else { volume.map.strip_sectors },
            size_sectors: if level == 0 { 0 } else { len },
            raid_disks: slots as u32,
            dev_number: number,
            device_uuid: None,
            roles,
            events: u64::from(imsm.generation),
            ctime_secs: imsm.created_secs,
            utime_secs: 0,
            resync_offset: if is_synced(volume) { CLEAN } else { 0 },
            recovery_offset: filled,
            data_offset_sectors: 0,
            data_size_sectors: len,
            features: bad_feature(bad.as_deref()),
            reshape: None,
            container: Some(ContainerVolume {
                format: ContainerFormat::Imsm,
                size_sectors: Some(volume.size_sectors),
                refused,
            }),
        },
        bad,
    });
}

/// What of a drive is recorded as lost in a range of it, sectors from the range's start: by the
/// newest metadata if that has the drive, otherwise by its own.
fn bad_blocks(
    (fresh, number): (&Imsm, u32),
    (own, serial): (&Imsm, &str),
    range: Range<u64>,
) -> Vec<BadBlockEntry> {
    let is_listed = (number as usize) < fresh.disks.len();
    let imsm = if is_listed { fresh } else { own };
    let is_own = |disk: u8| match is_listed {
        true => u32::from(disk) == number,
        false => own.disks.get(usize::from(disk)).is_some_and(|disk| disk.own_serial() == serial),
    };
    let entries = imsm.bad_blocks.iter().filter(|entry| is_own(entry.disk));
    bad_in(&range, entries.map(|entry| (entry.start_sector, entry.len_sectors)))
}

/// Whether parity and copies agree. How far an initialization came is not relied on: firmware and
/// Linux need not count in the same way.
fn is_synced(volume: &ImsmVolume) -> bool {
    let was_made = |state| !matches!(state, ImsmMapState::Uninitialized | ImsmMapState::Unknown(_));
    let maps = [Some(&volume.map), volume.old_map.as_ref()];
    !volume.dirty
        && maps.into_iter().flatten().all(|map| was_made(map.state))
        && matches!(volume.migration, None | Some(ImsmMigration::Rebuild | ImsmMigration::Verify))
}

/// Why a volume is not read, if it is not.
fn refusal(volume: &ImsmVolume, component: Option<u64>, drive_sectors: u64) -> Option<ContainerRefusal> {
    let map = &volume.map;
    match volume.migration {
        Some(ImsmMigration::General) => {
            return Some(ContainerRefusal::Migrating { what: "a migration to another layout" });
        }
        Some(ImsmMigration::StateChange | ImsmMigration::Unknown(_)) => {
            return Some(ContainerRefusal::Migrating { what: "a change of a kind that is not known" });
        }
        None
        | Some(
            ImsmMigration::Initialize
            | ImsmMigration::Rebuild
            | ImsmMigration::Verify
            | ImsmMigration::Repair,
        ) => {}
    }
    let Some(members) = map.data_members() else {
        return Some(ContainerRefusal::Level {
            level: map.raw_level,
            kind: map.domains,
            members: map.slots.len(),
        });
    };
    let number = |field, found| Some(ContainerRefusal::Number { field, found });
    let strip = map.strip_sectors;
    if !strip.is_power_of_two() || strip < 8 {
        return number("blocks_per_strip", u64::from(strip));
    }
    let Some(component) = component.filter(|sectors| *sectors > 0) else {
        return number("num_data_stripes", map.data_stripes);
    };
    if map.start_sector.checked_add(component).is_none_or(|end| end > drive_sectors) {
        return number("num_data_stripes", map.data_stripes);
    }
    if volume.size_sectors == 0
        || component.checked_mul(members).is_none_or(|held| volume.size_sectors > held)
    {
        return number("size", volume.size_sectors);
    }
    None
}

fn unknown(drive: &ContainerDrive<'_>, container: &str, imsm: &Imsm) -> Problem {
    let name = drive.name;
    let own = drive.serial.as_ref().map(|serial| format!("; it says {serial}, as a USB bridge may"));
    let serials: Vec<_> = imsm.disks.iter().map(|disk| disk.own_serial().to_owned()).collect();
    Problem::new(
        Code::ContainerDriveUnknown,
        format!("{name}: which drive of {container} it is, is not known"),
        format!(
            "all drives of a container have the same metadata, which tells them apart by serial numbers: {}{}",
            serials.join(", "),
            own.unwrap_or_default()
        ),
        format!(
            "give the drive itself, or a name with its serial number in it: `ln -s {} SERIAL.img`; the number is on the \
             drive's label",
            shell_word(name)
        ),
    )
    .of_member(name)
}
