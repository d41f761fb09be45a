//! md superblocks on simulated drives: made by `wattle_format`, judged by `wattle_control`'s
//! assembly, kept by its commits.
//!
//! The scanner reads drives at once, which drives in virtual time cannot do; so the superblocks are
//! taken off the drives from outside and handed to the same pure functions.

use std::rc::Rc;

use wattle_control::admit::OfferedDevice;
use wattle_control::assemble::{Access, Assembly, Needs, Slot, SyncState, assemble as decide};
use wattle_control::facts::{BadBlockEntry, CLEAN, MemberFacts, SuperblockFacts};
use wattle_control::members::MemberAccess;
use wattle_control::problem::{Check, Forced};
use wattle_control::reason::Reason;
use wattle_control::running::{Newcomer, RunningArray};
use wattle_control::start::{Claimed, ClaimedMember};
use wattle_engine::geometry::Level;
use wattle_engine::metadata::Metadata;
use wattle_engine::units::{MemberIx, MemberSet, Sector};
use wattle_engine::{ArraySpec, MemberState};
use wattle_format::md::bitmap::{NewBitmap, new_image};
use wattle_format::md::create::{NewArray, superblock};
use wattle_format::md::{
    BadBlockArea, DeviceFields, DeviceFlags, DeviceRole, Features, PplArea, SUPERBLOCK_BYTES, Superblock,
    Timestamp, Uuid, Version, badblocks, identify, ppl, super_offset_sectors,
};
use wattle_rt::{Core, Device};

use super::{ArrayStart, AssemblyFound, DriveRecord, Keep, Keys, Lenient, Seating, StartRefusal};
use crate::site::SitePlan;

/// Sectors from the superblock to its areas, and the areas' lengths, where there is room for them
/// (versions 1.1 and 1.2).
const BITMAP_AT: i32 = 8;
const BITMAP_LEN: u64 = 8;
const BAD_AT: i32 = 16;
const PPL_AT: i16 = 24;
/// Room for one log, or for a ring of a few.
const PPL_LEN: u16 = 280;

/// Whether superblocks of this version are followed by room for a bitmap, a log and a list of bad
/// sectors.
#[must_use]
pub fn has_areas(version: Version) -> bool {
    matches!(version, Version::V11 | Version::V12)
}

pub(super) fn data_offset(version: Version) -> u64 {
    match version {
        Version::V090 | Version::V10 => 0,
        Version::V11 => 304,
        Version::V12 => 312,
    }
}

pub(super) fn drive_sectors(version: Version, data_sectors: u64) -> u64 {
    match version {
        Version::V090 => data_sectors.next_multiple_of(128) + 128,
        Version::V10 => data_sectors.next_multiple_of(8) + 24,
        Version::V11 | Version::V12 => data_offset(version) + data_sectors.max(16),
    }
}

const SET: Uuid = Uuid(*b"wattle simulator");

/// Clean superblocks on every drive that has a slot.
pub(super) fn create(plan: &SitePlan, version: Version, member_sectors: &[u64]) {
    let params = &plan.params;
    let striped = matches!(params.level, Level::Linear | Level::Raid0);
    let array = NewArray {
        version,
        set_uuid: SET,
        name: b"sim:sim".to_vec(),
        ctime: Timestamp { secs: 1_767_225_600, micros: 0 },
        level: params.level.to_md(),
        layout: params.layout,
        chunk_sectors: params.chunk.0 as u32,
        raid_disks: params.raid_disks,
        size_sectors: if striped { 0 } else { params.component_size.0 },
        resync_offset: CLEAN,
        roles: (0..params.raid_disks as u16).map(DeviceRole::Active).collect(),
        bitmap_offset_sectors: plan.regions.as_ref().map(|_| BITMAP_AT),
        ppl: plan.log.then_some(PplArea { offset_sectors: PPL_AT, size_sectors: PPL_LEN }),
        features: if params.level == Level::Raid0 { Features::RAID0_LAYOUT } else { Features::default() },
        md_minor: 0,
        nodes: Vec::new(),
    };
    let bad_block_log = (plan.bad_entries_max > 0).then_some(BadBlockArea {
        offset_sectors: BAD_AT,
        size_sectors: 8,
        shift: 0,
    });
    for slot in plan.slots() {
        let size_sectors = plan.drive_sectors[slot.index()];
        let at = super_offset_sectors(version, size_sectors).expect("drives have room for a superblock");
        let device = DeviceFields {
            dev_number: u32::from(slot.0),
            device_uuid: device_uuid(slot.index()),
            super_offset_sectors: at,
            data_offset_sectors: plan.data_offset,
            data_size_sectors: member_sectors[slot.index()],
            recovery_offset: None,
            replacement: false,
            bad_block_log,
            flags: DeviceFlags::default(),
        };
        let superblock =
            superblock(&array, &device, size_sectors).unwrap_or_else(|error| panic!("{params:?}: {error}"));
        let control = &plan.controls[slot.index()];
        control.poke(at * 512, superblock.bytes());
        if let Some(regions) = &plan.regions {
            let new = NewBitmap {
                uuid: superblock.stored_uuid(),
                sync_size_sectors: regions.total().0,
                chunk_bytes: (regions.size().0 * 512) as u32,
                daemon_sleep_secs: 1,
                write_behind: 0,
            };
            let image = new_image(&new, BITMAP_LEN * 512).expect("there is room for a bitmap");
            control.poke(at.strict_add_signed(BITMAP_AT.into()) * 512, &image);
        }
        if plan.log {
            let area = ppl::empty_area(&superblock.stored_uuid(), usize::from(PPL_LEN) * 512);
            control.poke(at.strict_add_signed(PPL_AT.into()) * 512, &area);
        }
        if bad_block_log.is_some() {
            control.poke(at.strict_add_signed(BAD_AT.into()) * 512, &badblocks::empty_area(4096));
        }
    }
}

/// The id of a drive.
#[must_use]
pub fn device_uuid(drive: usize) -> Uuid {
    Uuid([drive as u8 + 1; 16])
}

/// Makes the superblocks of `drives` clean, a generation later.
pub(super) fn set_clean(plan: &SitePlan, version: Version, drives: MemberSet) {
    let drives = drives.iter().map(MemberIx::index);
    let superblocks: Vec<_> =
        drives.filter_map(|drive| Some((drive, read(plan, version, drive, false)?))).collect();
    let events = superblocks.iter().map(|(_, superblock)| superblock.events()).max().unwrap_or(0) + 2;
    for (drive, mut superblock) in superblocks {
        superblock.set_events(events);
        superblock.set_resync_offset(CLEAN);
        plan.controls[drive].poke(superblock.found_at_sectors() * 512, superblock.bytes());
    }
}

fn read(plan: &SitePlan, version: Version, drive: usize, durable: bool) -> Option<Superblock> {
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
pub fn entry(plan: &SitePlan, version: Version, drive: usize) -> Option<DriveRecord> {
    let superblock = read(plan, version, drive, true)?;
    let roles: Vec<_> = superblock.roles().collect();
    let out = plan.slots().filter(|slot| !roles.contains(&DeviceRole::Active(slot.0))).collect();
    Some(DriveRecord { events: superblock.events(), clean: superblock.resync_offset() == CLEAN, out })
}

fn facts(plan: &SitePlan, drive: usize, superblock: &Superblock) -> MemberFacts {
    let size_sectors = plan.drive_sectors[drive];
    let mut facts = MemberFacts::new(format!("drive{drive}"), size_sectors, SuperblockFacts::of(superblock));
    let control = &plan.controls[drive];
    let at = superblock.found_at_sectors();
    let unit = u64::from(plan.sector_bytes) / 512;
    let area = |from: u64, sectors: u64| {
        let readable = |sector| !control.is_unreadable(sector);
        let whole = (from / unit..(from + sectors).div_ceil(unit)).all(readable);
        whole.then(|| control.peek(from * 512, (sectors * 512) as usize))
    };
    let features = superblock.features();
    if features.contains(Features::BITMAP) {
        let bytes = area(at.strict_add_signed(BITMAP_AT.into()), BITMAP_LEN).unwrap_or_default();
        facts.set_bitmap(&bytes, &superblock.stored_uuid());
    }
    if let Some(ppl) = superblock.ppl() {
        let start = at.strict_add_signed(ppl.offset_sectors.into());
        if let Some(bytes) = area(start, ppl.size_sectors.into()) {
            facts.set_ppl(&bytes, start, &superblock.stored_uuid());
        }
    }
    if features.contains(Features::BAD_BLOCKS) {
        let log = area(at.strict_add_signed(BAD_AT.into()), 8)
            .and_then(|bytes| badblocks::BadBlocks::decode(&bytes, 0).ok());
        facts.bad_blocks = log.map(|log| {
            let range = |range: &badblocks::BadRange| BadBlockEntry {
                start_sector: range.sector,
                len_sectors: range.sectors,
            };
            log.ranges().iter().map(range).collect()
        });
    }
    facts
}

/// An assembled array, until it is started.
pub struct AssembledArray {
    assembly: Assembly,
    /// Drives with their superblocks, as they were given to assembly.
    found: Vec<(usize, Superblock)>,
    /// Where the sums of recorded scrubs are.
    pub(super) sums: Option<Device>,
}

impl AssembledArray {
    /// Starts the array as control starts one whose members are claimed.
    pub(super) async fn launch(
        self,
        core: &Core,
        drives: &[Device],
        adapt: impl FnOnce(ArraySpec, Box<dyn Metadata>, Keys) -> (ArraySpec, Box<dyn Metadata>),
    ) -> Result<Rc<RunningArray>, String> {
        let claimed = |ix: usize| {
            let (drive, superblock) = &self.found[ix];
            ClaimedMember {
                name: format!("drive{drive}"),
                device: drives[*drive].clone(),
                superblock: Some(superblock.clone()),
                bad: self.assembly.bad[ix].clone(),
            }
        };
        let slots = self.assembly.slots.iter().map(|slot| slot.member());
        let replacements = self.assembly.replacements.iter().map(|who| who.map(|who| who.member));
        let mut seats: Vec<_> = slots.chain(replacements).map(|who| who.map(claimed)).collect();
        seats.resize_with(2 * self.assembly.slots.len(), || None);
        let spares = self.assembly.spares.iter().map(|ix| claimed(*ix)).collect();
        let returning = self.assembly.re_addable.iter().map(|who| (*who, claimed(who.member))).collect();
        let claimed = Claimed::of(self.assembly, seats, spares, returning, false);
        let claimed = match self.sums {
            Some(sums) => claimed.with_sums(sums),
            None => claimed,
        };
        let started = claimed
            .launch_as(core, |spec, metadata, superblocks| {
                let drive = move |key| number(superblocks.as_ref()?.device(key)?.name());
                adapt(spec, metadata, Box::new(drive))
            })
            .await
            .map_err(|problem| problem.to_string())?;
        Ok(RunningArray::new(core, &MemberAccess::local(), "sim", started))
    }
}

/// The number of a drive, by its name.
fn number(name: &str) -> Option<usize> {
    name.strip_prefix("drive")?.parse().ok()
}

/// A drive as control is offered one.
#[must_use]
pub fn newcomer(plan: &SitePlan, version: Version, drives: &[Device], drive: usize) -> Newcomer {
    let offer = OfferedDevice {
        name: format!("drive{drive}"),
        size_sectors: plan.drive_sectors[drive],
        logical_block_bytes: plan.sector_bytes,
        superblocks: read(plan, version, drive, false).into_iter().collect(),
        damaged: Vec::new(),
        signatures: Vec::new(),
        bitmap: None,
    };
    Newcomer { offer, device: drives[drive].clone(), device_uuid: device_uuid(drive) }
}

/// Decides what the array is.
#[must_use]
pub fn assemble(plan: &SitePlan, version: Version, present: MemberSet, lenient: Lenient) -> AssemblyFound {
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
    let Some(assembly) = decide(&members, forced) else {
        return AssemblyFound::Refused(StartRefusal::NotEnough);
    };
    if let Access::Refused(reasons) | Access::ReadOnly(reasons) = &assembly.access {
        return AssemblyFound::Refused(match reasons.as_slice() {
            [Reason::NotEnoughMembers { .. }, ..] => StartRefusal::NotEnough,
            [Reason::DirtyDegraded { .. }] => StartRefusal::DirtyDegraded,
            reasons => StartRefusal::Other(format!("{reasons:?}")),
        });
    }
    let slots = plan.geometry.raid_disks();
    let stale = assembly.stale_regions().cloned();
    let drive = |member: usize| Some(superblocks[member].0);
    let bad = |member: usize| assembly.bad[member].clone();
    let mut seats = vec![Seating::empty(); 2 * slots];
    for (slot, state) in assembly.slots.iter().enumerate() {
        seats[slot] = match *state {
            Slot::Missing => continue,
            Slot::InSync { member } => {
                let state = MemberState::InSync;
                Seating { drive: drive(member), state, bad: bad(member), ..Seating::empty() }
            }
            Slot::Rebuilding { member, valid_below_sectors, by_bitmap } => Seating {
                drive: drive(member),
                state: MemberState::Rebuilding { valid_below: Sector(valid_below_sectors) },
                stale: stale.clone().filter(|_| by_bitmap),
                bad: bad(member),
            },
        };
    }
    for (slot, who) in assembly.replacements.iter().enumerate() {
        let Some(who) = who else { continue };
        let state = MemberState::Rebuilding { valid_below: Sector(who.valid_below_sectors) };
        seats[slots + slot] = Seating { drive: drive(who.member), state, ..Seating::empty() };
    }
    // Parity is as good as it was before the crash once the logs were followed.
    let synced = assembly.needs == Needs::Nothing || assembly.replay_log;
    let synced_below = if synced { CLEAN } else { assembly.synced_below_sectors };
    let needs = match &assembly.needs {
        Needs::Regions(regions) if !synced => Some(regions.clone()),
        _ => None,
    };
    let replays = assembly.replay_log;
    let unclean = assembly.state != SyncState::Clean;
    let refills = !assembly.re_addable.is_empty() || !assembly.spares.is_empty();
    let keep = match plan.geometry.redundancy() {
        0 => Keep::Nothing,
        _ => Keep::Md(Box::new(AssembledArray { assembly, found: superblocks, sums: None })),
    };
    AssemblyFound::Usable(Box::new(ArrayStart {
        seats,
        synced_below,
        needs,
        marked: None,
        replays,
        refills,
        unclean,
        keep,
    }))
}

/// Makes stale members look current, for the mutant.
fn forget_events(members: &mut [MemberFacts]) {
    let events = members.iter().map(|member| member.superblock.events).max().unwrap_or(0);
    for member in members {
        member.superblock.events = events;
        for (role, slot) in member.superblock.roles.iter_mut().zip(0..member.superblock.raid_disks as u16) {
            *role = DeviceRole::Active(slot);
        }
    }
}
