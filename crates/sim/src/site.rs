//! The hardware of a scenario: a world, its drives, and where data and metadata are on them.

use std::sync::{Arc, Mutex};

use wattle_engine::geometry::{BlockRole, Geometry, Params};
use wattle_engine::units::{MemberIx, Sector, StripeNo};
use wattle_engine::{BadRanges, MemberKey, MemberSpec, Regions};
use wattle_rt::{Device, DriveControl, SimWorld};

use crate::lock::lock;

/// Drives: one for each slot and in that order, then those that may join later.
pub struct SimSite {
    /// Their world.
    pub world: SimWorld,
    /// As the engine sees them.
    pub hardware: Hardware,
    /// As a test sees them.
    pub plan: SitePlan,
}

/// The drives, for the writers of metadata on them.
#[derive(Clone)]
pub struct Hardware {
    /// By number.
    pub drives: Vec<Device>,
    /// Their atomic unit.
    pub sector_bytes: u32,
}

/// A drive as a member that is filled from the start.
#[must_use]
pub fn member(drives: &[Device], plan: &SitePlan, drive: usize) -> MemberSpec {
    let blank = MemberSpec::blank(drives[drive].clone(), Sector(plan.data_offset));
    MemberSpec { key: Some(MemberKey(drive as u32)), bad_entries_max: plan.bad_entries_max, ..blank }
}

/// What is where, and the controls of the drives.
#[derive(Clone)]
pub struct SitePlan {
    /// By drive.
    pub controls: Vec<DriveControl>,
    /// Sizes of the drives in sectors of 512 bytes.
    pub drive_sectors: Vec<u64>,
    /// What the array is made of.
    pub params: Params,
    /// Its map.
    pub geometry: Geometry,
    /// First data sector of each drive.
    pub data_offset: u64,
    /// The drives' atomic unit in bytes.
    pub sector_bytes: u32,
    /// The shape of its write-intent bitmap: no region.
    pub regions: Option<Regions>,
    /// It has partial parity logs.
    pub log: bool,
    /// How many entries the members' bad-block logs have room for.
    pub bad_entries_max: usize,
    /// Sectors known to be bad, by slot, as the array was assembled or by the last record.
    pub bad: Arc<Mutex<Vec<BadRanges>>>,
    /// Which drive is in which slot, by the last record.
    pub seating: Arc<Mutex<Vec<usize>>>,
}

impl SitePlan {
    /// Every slot.
    pub fn slots(&self) -> impl Iterator<Item = MemberIx> + use<> {
        (0..self.geometry.raid_disks() as u16).map(MemberIx)
    }

    /// The drive in a slot, by number.
    #[must_use]
    pub fn drive_in(&self, slot: MemberIx) -> usize {
        lock(&self.seating)[slot.index()]
    }

    /// The drive in a slot.
    #[must_use]
    pub fn control_in(&self, slot: MemberIx) -> &DriveControl {
        &self.controls[self.drive_in(slot)]
    }

    /// Whether a slot of an array with parity holds data, in some stripe.
    #[must_use]
    pub fn holds_data(&self, slot: MemberIx) -> bool {
        let role = |stripe| self.geometry.role_in_stripe(StripeNo(stripe), slot);
        (0..self.geometry.stripes()).any(|stripe| matches!(role(stripe), BlockRole::Data { .. }))
    }

    /// Puts a drive into a slot.
    pub fn seat(&self, slot: MemberIx, drive: usize) {
        lock(&self.seating)[slot.index()] = drive;
    }

    /// Data sectors of a member, as a reader sees them or as they would survive a power cut.
    #[must_use]
    pub fn data(&self, member: MemberIx, sector: u64, sectors: u64, durable: bool) -> Vec<u8> {
        let control = self.control_in(member);
        let (at, len) = ((self.data_offset + sector) * 512, (sectors * 512) as usize);
        if durable { control.peek_durable(at, len) } else { control.peek(at, len) }
    }

    /// Whether any of a member's data sectors cannot be read.
    #[must_use]
    pub fn unreadable(&self, member: MemberIx, sector: u64, sectors: u64) -> bool {
        if lock(&self.bad)[member.index()].overlaps(Sector(sector)..Sector(sector + sectors)) {
            return true;
        }
        let unit = u64::from(self.sector_bytes) / 512;
        let (first, end) = (self.data_offset + sector, self.data_offset + sector + sectors);
        (first / unit..end.div_ceil(unit)).any(|at| self.control_in(member).is_unreadable(at))
    }
}
