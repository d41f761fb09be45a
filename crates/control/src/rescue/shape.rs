//! What an array could be, all but the order of its members.

use wattle_engine::geometry::{Geometry, Level, LevelKind, Params, StripeMap};
use wattle_engine::units::{MemberIx, Sector, StripeNo};
use wattle_format::md::Version;
use wattle_format::md::defaults::usable_sectors;

/// Level, layout, chunk, where the data starts, how many slots.
#[derive(Debug, Clone)]
pub struct RescueShape {
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
    /// Which superblocks go with it: they take room where the data starts with the member.
    pub version: Version,
    /// Where members of other sizes make another array: how large the member in each slot is, in
    /// sectors.
    pub(super) sizes: Option<Vec<u64>>,
    /// The map, over as much of the members as all have, or as the sizes say.
    pub geometry: Geometry,
}

impl RescueShape {
    /// `None` if members of this size cannot be that.
    pub(super) fn new(
        level: Level,
        layout: u32,
        chunk_sectors: u64,
        data_offset_sectors: u64,
        slots: usize,
        version: Version,
        member_sectors: u64,
    ) -> Option<Self> {
        let data = match level {
            // Where far copies lie depends on how long the members are taken for.
            Level::Raid10 => usable_sectors(version, member_sectors, data_offset_sectors, false),
            _ => member_sectors.checked_sub(data_offset_sectors)?,
        };
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
        Self::of(&params, data_offset_sectors, version, None)
    }

    /// A linear array or a RAID 0 over all there is of members of these sizes.
    pub(super) fn of_sizes(
        level: Level,
        layout: u32,
        chunk_sectors: u64,
        data_offset_sectors: u64,
        version: Version,
        sizes: &[u64],
    ) -> Option<Self> {
        let usable = |&size: &u64| Sector(usable_sectors(version, size, data_offset_sectors, false));
        let params = Params {
            level,
            layout,
            chunk: Sector(chunk_sectors),
            raid_disks: u32::try_from(sizes.len()).ok()?,
            component_size: Sector::ZERO,
            member_sizes: sizes.iter().map(usable).collect(),
        };
        Self::of(&params, data_offset_sectors, version, Some(sizes.to_vec()))
    }

    fn of(
        params: &Params,
        data_offset_sectors: u64,
        version: Version,
        sizes: Option<Vec<u64>>,
    ) -> Option<Self> {
        let geometry = Geometry::new(params).ok().filter(|geometry| geometry.hazard().is_none())?;
        Some(Self {
            level: params.level,
            layout: params.layout,
            chunk_sectors: params.chunk.0,
            data_offset_sectors,
            slots: geometry.raid_disks(),
            version,
            sizes,
            geometry,
        })
    }

    /// Whether two slots hold the same in any such array, so that their members can be exchanged.
    pub(super) fn are_twins(&self, one: usize, other: usize) -> bool {
        let (near, far) = (self.layout as usize & 0xFF, self.layout >> 8 & 0xFF);
        match self.level {
            Level::Raid1 => true,
            Level::Raid10 => far == 1 && self.slots.is_multiple_of(near) && one / near == other / near,
            _ => false,
        }
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        let key = |shape: &Self| {
            (shape.level, shape.layout, shape.chunk_sectors, shape.data_offset_sectors, shape.slots)
        };
        key(self) == key(other)
    }

    /// Whether all of an array as long lies at the same places, as far as a thousand of them tell.
    pub(super) fn maps_like(&self, other: &Self) -> bool {
        let bytes = self.geometry.array_sectors().0 * 512;
        (1..=1000).all(|part| {
            let at = bytes / 1000 * part - 1;
            self.places(at).map(|(places, _)| places) == other.places(at).map(|(places, _)| places)
        })
    }

    /// Where a byte of the array is: slots and the byte on their members; and how many bytes follow
    /// it there.
    pub(super) fn places(&self, byte: u64) -> Option<(Vec<(usize, u64)>, u64)> {
        let lba = Sector(byte / 512);
        if lba >= self.geometry.array_sectors() {
            return None;
        }
        let on = |sector: Sector| (sector.0 + self.data_offset_sectors) * 512 + byte % 512;
        let (places, run) = match self.geometry.kind() {
            LevelKind::Striped => {
                let run = self.geometry.map(lba);
                (vec![(run.member.index(), on(run.sector))], run.len)
            }
            LevelKind::Parity => {
                let run = self.geometry.data_place(lba);
                (vec![(run.member.index(), on(run.sector))], run.len)
            }
            LevelKind::Mirrored => {
                let copies = self.geometry.copies(lba);
                let places = copies.iter().map(|copy| (copy.member.index(), on(copy.sector)));
                (places.collect(), copies.run)
            }
        };
        Some((places, run.0 * 512 - byte % 512))
    }

    /// The slots of P and Q in the stripe that covers a byte of the members.
    pub(super) fn parity_slots(&self, member_byte: u64) -> Option<(usize, Option<usize>)> {
        let map = self.stripe(member_byte)?;
        Some((map.p().index(), map.q().map(MemberIx::index)))
    }

    /// The stripe that covers a byte of the members, where there is parity.
    pub(super) fn stripe(&self, member_byte: u64) -> Option<StripeMap> {
        if self.geometry.kind() != LevelKind::Parity {
            return None;
        }
        let stripe = (member_byte / 512).checked_sub(self.data_offset_sectors)? / self.chunk_sectors;
        (stripe < self.geometry.stripes()).then(|| self.geometry.stripe(StripeNo(stripe)))
    }
}
