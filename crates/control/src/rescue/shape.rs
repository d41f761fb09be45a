//! What an array could be, all but the order of its members.

use wattle_engine::geometry::{Geometry, Kind, Level, Params};
use wattle_engine::units::{MemberIx, Sector, StripeNo};

/// Level, layout, chunk, where the data starts, how many slots.
#[derive(Debug, Clone)]
pub struct Shape {
    /// The level.
    pub level: Level,
    /// md's number.
    pub layout: u32,
    /// In sectors; 0 for RAID 1.
    pub chunk_sectors: u64,
    /// On every member.
    pub data_offset_sectors: u64,
    /// Slots.
    pub slots: usize,
    /// The map, over as much of the members as all have.
    pub geometry: Geometry,
}

impl Shape {
    /// `None` if members of this size cannot be that.
    pub(super) fn new(
        level: Level,
        layout: u32,
        chunk_sectors: u64,
        data_offset_sectors: u64,
        slots: usize,
        member_sectors: u64,
    ) -> Option<Self> {
        let data = member_sectors.checked_sub(data_offset_sectors)?;
        let component = data.checked_div(chunk_sectors).map_or(data, |chunks| chunks * chunk_sectors);
        // What does not rotate once is not told from anything else.
        if chunk_sectors > 0 && component / chunk_sectors < 2 * slots as u64 {
            return None;
        }
        let params = Params {
            level,
            layout,
            chunk: Sector(chunk_sectors),
            raid_disks: u32::try_from(slots).ok()?,
            component_size: Sector(component),
            member_sizes: vec![Sector(component); slots],
        };
        let geometry = Geometry::new(&params).ok()?;
        Some(Self { level, layout, chunk_sectors, data_offset_sectors, slots, geometry })
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        let key = |shape: &Self| {
            (shape.level, shape.layout, shape.chunk_sectors, shape.data_offset_sectors, shape.slots)
        };
        key(self) == key(other)
    }

    /// Where a byte of the array is: slots and the byte on their members; and how many bytes follow it there.
    pub(super) fn places(&self, byte: u64) -> Option<(Vec<(usize, u64)>, u64)> {
        let lba = Sector(byte / 512);
        if lba >= self.geometry.array_sectors() {
            return None;
        }
        let on = |sector: Sector| (sector.0 + self.data_offset_sectors) * 512 + byte % 512;
        let (places, run) = match self.geometry.kind() {
            Kind::Striped => {
                let run = self.geometry.map(lba);
                (vec![(run.member.index(), on(run.sector))], run.len)
            }
            Kind::Parity => {
                let run = self.geometry.data_place(lba);
                (vec![(run.member.index(), on(run.sector))], run.len)
            }
            Kind::Mirrored => {
                let copies = self.geometry.copies(lba);
                let places = copies.iter().map(|copy| (copy.member.index(), on(copy.sector)));
                (places.collect(), copies.run)
            }
        };
        Some((places, run.0 * 512 - byte % 512))
    }

    /// The slots of P and Q in the stripe that covers a byte of the members.
    pub(super) fn parity_slots(&self, member_byte: u64) -> Option<(usize, Option<usize>)> {
        if self.geometry.kind() != Kind::Parity {
            return None;
        }
        let stripe = (member_byte / 512).checked_sub(self.data_offset_sectors)? / self.chunk_sectors;
        if stripe >= self.geometry.stripes() {
            return None;
        }
        let map = self.geometry.stripe(StripeNo(stripe));
        Some((map.p().index(), map.q().map(MemberIx::index)))
    }
}
