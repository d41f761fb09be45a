//! The shape of the sums that scrubs take.

use crate::model::geometry::{Geometry, LevelKind};
use crate::model::regions::Regions;
use crate::model::units::Sector;

/// The least and the most sectors of a region of notes.
const REGION_SECTORS: [u64; 2] = [128, 32 << 10];

/// Regions that even a small array is divided into.
const REGIONS_MIN: u64 = 4096;

/// The shape of the sums of an array, and how a sum is made.
#[derive(Clone)]
pub struct SumSpec {
    /// Sectors that have one sum: 64 KiB, less only where copies are in smaller chunks.
    pub block: Sector,
    /// Sums of a block: one for each slot with parity, one for each copy elsewhere.
    pub lanes: usize,
    /// The regions of notes: none is in this set.
    pub regions: Regions,
    /// Makes the sum of a block's bytes. Never 0.
    pub sum: fn(&[u8]) -> u64,
}

impl SumSpec {
    /// The shape for an array; `None` where scrubs take no sums: without redundancy.
    #[must_use]
    pub fn of(geometry: &Geometry, sum: fn(&[u8]) -> u64) -> Option<Self> {
        let (block, lanes) = match geometry.kind() {
            LevelKind::Striped => return None,
            LevelKind::Parity => (128, geometry.raid_disks()),
            LevelKind::Mirrored => {
                let chunk = geometry.chunk().0;
                let block = if chunk == 0 { 128 } else { (1 << chunk.trailing_zeros()).min(128) };
                (block, geometry.copies(Sector(0)).iter().count())
            }
        };
        let total = geometry.sync_sectors();
        let [least, most] = REGION_SECTORS;
        let size = (total.0 / REGIONS_MIN).checked_next_power_of_two().unwrap_or(most).clamp(least, most);
        Some(Self { block: Sector(block), lanes, regions: Regions::new(Sector(size), total), sum })
    }

    /// How many blocks there are.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.regions.total().0.div_ceil(self.block.0)
    }

    /// The region of a block.
    #[must_use]
    pub fn region_of(&self, block: u64) -> u64 {
        block * self.block.0 / self.regions.size().0
    }
}

impl std::fmt::Debug for SumSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (regions, size) = (self.regions.count(), self.regions.size());
        write!(f, "SumSpec {{ block: {}, lanes: {}, regions: {regions} of {size} }}", self.block, self.lanes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::geometry::{Level, Params};

    fn spec(level: Level, raid_disks: u32, chunk: u64, component: u64) -> Option<SumSpec> {
        let layout = if level == Level::Raid10 { 0x102 } else { 0 };
        let (chunk, component_size) = (Sector(chunk), Sector(component));
        let sizes = if level == Level::Raid0 { raid_disks as usize } else { 0 };
        let member_sizes = vec![component_size; sizes];
        let params = Params { level, layout, chunk, raid_disks, component_size, member_sizes };
        SumSpec::of(&Geometry::new(&params).unwrap(), |_| 1)
    }

    #[test]
    fn a_terabyte_has_regions_of_sixteen_mebibytes_and_a_small_array_some_thousand() {
        let big = spec(Level::Raid5, 4, 1024, 2 << 30).unwrap();
        assert_eq!((big.regions.size(), big.regions.count(), big.lanes), (Sector(32 << 10), 1 << 16, 4));
        assert_eq!((big.blocks(), big.region_of(256), big.region_of(255)), (1 << 24, 1, 0));
        let small = spec(Level::Raid1, 2, 0, 128 << 10).unwrap();
        assert_eq!((small.regions.size(), small.regions.count(), small.lanes), (Sector(128), 1024, 2));
    }

    #[test]
    fn a_block_lies_in_one_chunk_of_a_copy() {
        assert_eq!(spec(Level::Raid10, 4, 16, 1 << 20).unwrap().block, Sector(16));
        let wide = spec(Level::Raid10, 4, 1024, 1 << 20).unwrap();
        assert_eq!((wide.block, wide.lanes), (Sector(128), 2));
        assert!(spec(Level::Raid0, 2, 128, 1 << 20).is_none(), "nothing tells who wrote to it");
    }
}
