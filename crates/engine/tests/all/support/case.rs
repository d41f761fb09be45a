//! Geometries that tests build arrays of.

use wattle_engine::geometry::{Geometry, Level, Params};
use wattle_engine::units::Sector;

#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub level: Level,
    pub layout: u32,
    pub members: usize,
    /// In sectors.
    pub chunk: u64,
}

pub const fn case(level: Level, layout: u32, members: usize, chunk: u64) -> Case {
    Case { level, layout, members, chunk }
}

impl Case {
    /// Of members that all have as many data sectors.
    pub fn geometry(self, member_sectors: u64) -> Geometry {
        Geometry::new(&Params {
            level: self.level,
            layout: self.layout,
            chunk: Sector(self.chunk),
            raid_disks: self.members as u32,
            component_size: Sector(member_sectors),
            member_sizes: vec![Sector(member_sectors); self.members],
        })
        .unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }
}
