//! The hardware of a scenario: a world, its drives, and where data and metadata are on them.

use wattle_engine::geometry::{Geometry, Params};
use wattle_engine::units::MemberIx;
use wattle_rt::{Device, DriveControl, World};

/// Drives, one for each slot and in that order.
pub struct Site {
    /// Their world.
    pub world: World,
    /// As the engine sees them.
    pub drives: Vec<Device>,
    /// As a test sees them.
    pub plan: Plan,
}

/// What is where, and the controls of the drives.
#[derive(Clone)]
pub struct Plan {
    /// By slot.
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
}

impl Plan {
    /// Every slot.
    pub fn slots(&self) -> impl Iterator<Item = MemberIx> + use<> {
        (0..self.controls.len() as u16).map(MemberIx)
    }

    /// Data sectors of a member, as a reader sees them or as they would survive a power cut.
    #[must_use]
    pub fn data(&self, member: MemberIx, sector: u64, sectors: u64, durable: bool) -> Vec<u8> {
        let control = &self.controls[member.index()];
        let (at, len) = ((self.data_offset + sector) * 512, (sectors * 512) as usize);
        if durable { control.peek_durable(at, len) } else { control.peek(at, len) }
    }

    /// Whether any of a member's data sectors cannot be read.
    #[must_use]
    pub fn unreadable(&self, member: MemberIx, sector: u64, sectors: u64) -> bool {
        let unit = u64::from(self.sector_bytes) / 512;
        let (first, end) = (self.data_offset + sector, self.data_offset + sector + sectors);
        (first / unit..end.div_ceil(unit)).any(|at| self.controls[member.index()].is_unreadable(at))
    }
}
