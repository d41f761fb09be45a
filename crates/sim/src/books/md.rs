//! md superblocks on simulated drives: made by `wattle_format`, judged by `wattle_control`'s assembly, kept by its commits.
//!
//! The scanner reads drives at once, which drives in virtual time cannot do; so the superblocks are taken off the drives from
//! outside and handed to the same pure functions.

use wattle_control::assemble::{Access, Assembly, Slot, assemble as decide};
use wattle_control::commit::{MdMetadata, Place};
use wattle_control::facts::{BitmapFacts, CLEAN, MemberFacts, SuperblockFacts};
use wattle_control::problem::{Check, Forced};
use wattle_control::reason::Reason;
use wattle_engine::MemberState;
use wattle_engine::geometry::Level;
use wattle_engine::units::{MemberIx, MemberSet, Sector};
use wattle_format::md::create::{NewArray, superblock};
use wattle_format::md::{
    DeviceFields, DeviceFlags, Features, Role, SUPERBLOCK_BYTES, Superblock, Timestamp, Uuid, Version,
    identify, super_offset_sectors,
};
use wattle_rt::{Core, Device};

use super::{Entry, Found, Keep, Lenient, Refusal, Seating, Start};
use crate::site::Plan;

pub(super) fn data_offset(version: Version) -> u64 {
    match version {
        Version::V090 | Version::V10 => 0,
        Version::V11 => 8,
        Version::V12 => 16,
    }
}

pub(super) fn drive_sectors(version: Version, data_sectors: u64) -> u64 {
    match version {
        Version::V090 => data_sectors.next_multiple_of(128) + 128,
        Version::V10 => data_sectors.next_multiple_of(8) + 24,
        Version::V11 | Version::V12 => data_offset(version) + data_sectors.max(16),
    }
}

/// Clean superblocks on every drive.
pub(super) fn create(plan: &Plan, version: Version, member_sectors: &[u64]) {
    let params = &plan.params;
    let striped = matches!(params.level, Level::Linear | Level::Raid0);
    let array = NewArray {
        version,
        set_uuid: Uuid(*b"wattle simulator"),
        name: b"sim:sim".to_vec(),
        ctime: Timestamp { secs: 1_767_225_600, micros: 0 },
        level: params.level.to_md(),
        layout: params.layout,
        chunk_sectors: params.chunk.0 as u32,
        raid_disks: params.raid_disks,
        size_sectors: if striped { 0 } else { params.component_size.0 },
        resync_offset: CLEAN,
        roles: (0..params.raid_disks as u16).map(Role::Active).collect(),
        bitmap_offset_sectors: None,
        ppl: None,
        features: if params.level == Level::Raid0 { Features::RAID0_LAYOUT } else { Features::default() },
        md_minor: 0,
        nodes: Vec::new(),
    };
    for slot in plan.slots() {
        let size_sectors = plan.drive_sectors[slot.index()];
        let at = super_offset_sectors(version, size_sectors).expect("drives have room for a superblock");
        let device = DeviceFields {
            dev_number: u32::from(slot.0),
            device_uuid: Uuid([slot.0 as u8 + 1; 16]),
            super_offset_sectors: at,
            data_offset_sectors: plan.data_offset,
            data_size_sectors: member_sectors[slot.index()],
            recovery_offset: None,
            replacement: false,
            bad_block_log: None,
            flags: DeviceFlags::default(),
        };
        let superblock =
            superblock(&array, &device, size_sectors).unwrap_or_else(|error| panic!("{params:?}: {error}"));
        plan.controls[slot.index()].poke(at * 512, superblock.bytes());
    }
}

/// Makes every superblock clean, a generation later.
pub(super) fn set_clean(plan: &Plan, version: Version) {
    let drives = 0..plan.controls.len();
    let superblocks: Vec<_> =
        drives.filter_map(|drive| Some((drive, read(plan, version, drive, false)?))).collect();
    let events = superblocks.iter().map(|(_, superblock)| superblock.events()).max().unwrap_or(0) + 2;
    for (drive, mut superblock) in superblocks {
        superblock.set_events(events);
        superblock.set_resync_offset(CLEAN);
        plan.controls[drive].poke(superblock.found_at_sectors() * 512, superblock.bytes());
    }
}

fn read(plan: &Plan, version: Version, drive: usize, durable: bool) -> Option<Superblock> {
    let (control, size_sectors) = (&plan.controls[drive], plan.drive_sectors[drive]);
    let at = super_offset_sectors(version, size_sectors)?;
    let unit = u64::from(plan.sector_bytes) / 512;
    let readable = (at / unit..(at + 8).div_ceil(unit)).all(|sector| !control.is_unreadable(sector));
    let bytes = match durable {
        true => control.peek_durable(at * 512, SUPERBLOCK_BYTES),
        false => control.peek(at * 512, SUPERBLOCK_BYTES),
    };
    identify(version, &bytes, size_sectors).ok().flatten().filter(|_| readable)
}

/// What would survive on a drive.
#[must_use]
pub fn entry(plan: &Plan, version: Version, drive: usize) -> Option<Entry> {
    let superblock = read(plan, version, drive, true)?;
    let roles: Vec<_> = superblock.roles().collect();
    let out = plan.slots().filter(|slot| !roles.contains(&Role::Active(slot.0))).collect();
    Some(Entry { events: superblock.events(), clean: superblock.resync_offset() == CLEAN, out })
}

fn facts(plan: &Plan, drive: usize, superblock: &Superblock) -> MemberFacts {
    MemberFacts {
        name: format!("drive{drive}"),
        size_sectors: plan.drive_sectors[drive],
        superblock: SuperblockFacts {
            version: superblock.version(),
            set_uuid: superblock.set_uuid(),
            set_name: superblock.name(),
            level: superblock.level(),
            layout: superblock.layout(),
            chunk_sectors: superblock.chunk_sectors(),
            size_sectors: superblock.size_sectors(),
            raid_disks: superblock.raid_disks(),
            dev_number: superblock.dev_number(),
            roles: superblock.roles().collect(),
            events: superblock.events(),
            ctime_secs: superblock.ctime().secs,
            utime_secs: superblock.utime().secs,
            resync_offset: superblock.resync_offset(),
            recovery_offset: superblock.recovery_offset(),
            data_offset_sectors: superblock.data_offset_sectors(),
            data_size_sectors: superblock.data_size_sectors(),
            features: superblock.features(),
        },
        bitmap: BitmapFacts::None,
        bad_blocks: None,
        journal: None,
        bitmap_content: None,
        ppl: None,
    }
}

/// An assembled array, until it is started.
pub struct Kept {
    assembly: Assembly,
    superblocks: Vec<Option<Superblock>>,
}

impl Kept {
    pub(super) fn metadata(self, core: &Core, devices: &[Device]) -> MdMetadata {
        let slots = self.superblocks.into_iter().zip(devices);
        let slots = slots.map(|(superblock, device)| Some((Place { device: device.clone() }, superblock?)));
        MdMetadata::new(core, &self.assembly, slots.collect(), Vec::new())
    }
}

/// Decides what the array is.
#[must_use]
pub fn assemble(plan: &Plan, version: Version, present: MemberSet, lenient: Lenient) -> Found {
    let here = present.iter().map(MemberIx::index);
    let superblocks: Vec<(usize, Superblock)> =
        here.filter_map(|drive| Some((drive, read(plan, version, drive, false)?))).collect();
    let mut members: Vec<MemberFacts> =
        superblocks.iter().map(|(drive, superblock)| facts(plan, *drive, superblock)).collect();
    if lenient.stale {
        forget_events(&mut members);
    }
    let forced =
        if lenient.dirty_degraded { Forced::default().with(Check::DirtyDegraded) } else { Forced::default() };
    let Some(assembly) = decide(&members, forced) else { return Found::Refused(Refusal::NotEnough) };
    if let Access::Refused(reasons) | Access::ReadOnly(reasons) = &assembly.access {
        return Found::Refused(match reasons.as_slice() {
            [Reason::NotEnoughMembers { .. }, ..] => Refusal::NotEnough,
            [Reason::DirtyDegraded { .. }] => Refusal::DirtyDegraded,
            reasons => Refusal::Other(format!("{reasons:?}")),
        });
    }
    let slots = plan.geometry.raid_disks();
    let mut kept: Vec<Option<Superblock>> = vec![None; slots];
    let mut seats = vec![Seating::empty(); 2 * slots];
    for (slot, state) in assembly.slots.iter().enumerate() {
        let (member, state) = match *state {
            Slot::Missing => continue,
            Slot::InSync { member } => (member, MemberState::InSync),
            Slot::Rebuilding { member, valid_below_sectors, .. } => {
                (member, MemberState::Rebuilding { valid_below: Sector(valid_below_sectors) })
            }
        };
        let (drive, superblock) = &superblocks[member];
        seats[slot] = Seating { drive: Some(*drive), state, ..Seating::empty() };
        kept[slot] = Some(superblock.clone());
    }
    let synced_below = assembly.synced_below_sectors;
    let keep = match plan.geometry.redundancy() {
        0 => Keep::Nothing,
        _ => Keep::Md(Box::new(Kept { assembly, superblocks: kept })),
    };
    Found::Usable(Box::new(Start { seats, synced_below, needs: None, marked: None, keep }))
}

/// Makes stale members look current, for the mutant.
fn forget_events(members: &mut [MemberFacts]) {
    let events = members.iter().map(|member| member.superblock.events).max().unwrap_or(0);
    for member in members {
        member.superblock.events = events;
        for (role, slot) in member.superblock.roles.iter_mut().zip(0..member.superblock.raid_disks as u16) {
            *role = Role::Active(slot);
        }
    }
}
