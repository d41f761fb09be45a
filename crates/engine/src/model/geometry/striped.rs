//! RAID 0 and linear: zones (docs/formats.md §8.1, §8.2).
//!
//! A zone is a range of the array that is striped over some members, between the same two data
//! sectors of each. RAID 0 over members of one size has one zone; over several sizes one per size,
//! each over fewer members than the one before. Linear is a row of zones of one member each.

use std::sync::Arc;

use super::MemberRun;
use super::chunk::Chunk;
use crate::model::units::{MemberIx, Sector};

/// Which member of a later RAID 0 zone gets its first chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Raid0Layout {
    /// Counted from the start of the array (Linux before 3.14).
    Original,
    /// Counted from the start of the zone (Linux 3.14 to 5.3).
    Alternate,
}

#[derive(Debug, PartialEq, Eq)]
struct Zone {
    /// First array sector.
    start: u64,
    /// Array sector after the last.
    end: u64,
    /// First data sector on each member.
    member_start: u64,
    /// Data sector after the last on each member.
    member_end: u64,
    /// By slot, ascending.
    members: Vec<MemberIx>,
    /// Index in `members` of the one with the zone's first chunk.
    rotation: u64,
}

/// The mapping of an array without redundancy.
#[derive(Debug, Clone)]
pub(super) struct Striped {
    chunk: Chunk,
    zones: Arc<[Zone]>,
}

impl Striped {
    /// RAID 0 over members of these sizes, which are multiples of the chunk, not 0, and small
    /// enough to be added up. `layout` matters with several zones only.
    pub fn raid0(chunk: Chunk, sizes: &[u64], layout: Raid0Layout) -> Self {
        let mut limits: Vec<u64> = sizes.to_vec();
        limits.sort_unstable();
        limits.dedup();
        let mut zones: Vec<Zone> = Vec::with_capacity(limits.len());
        for member_end in limits {
            let (start, member_start) = zones.last().map_or((0, 0), |zone| (zone.end, zone.member_end));
            let members: Vec<_> = (0..)
                .zip(sizes)
                .filter(|&(_, &size)| size > member_start)
                .map(|(slot, _)| MemberIx(slot))
                .collect();
            let width = members.len() as u64;
            let rotation = match layout {
                Raid0Layout::Original => start / chunk.sectors() % width,
                Raid0Layout::Alternate => 0,
            };
            let end = start + (member_end - member_start) * width;
            zones.push(Zone { start, end, member_start, member_end, members, rotation });
        }
        Self { chunk, zones: zones.into() }
    }

    /// Members of these sizes, which are not 0 and small enough to be added up, one after the
    /// other.
    pub fn linear(sizes: &[u64]) -> Self {
        let mut end = 0;
        let zones = (0..).zip(sizes).map(|(slot, &size)| {
            let start = end;
            end += size;
            Zone { start, end, member_start: 0, member_end: size, members: vec![MemberIx(slot)], rotation: 0 }
        });
        // Within a zone of one member everything is contiguous, whatever the chunk.
        Self { chunk: Chunk::new(Sector(1)), zones: zones.collect() }
    }

    /// Whether a zone begins at another member than its first: the alternate layout of the same
    /// members, in which none does, is another map then. With one zone, or a second one of a single
    /// member, the two layouts are one.
    pub fn rotates(&self) -> bool {
        self.zones.iter().any(|zone| zone.rotation != 0)
    }

    /// End of the last zone.
    pub fn end(&self) -> Sector {
        Sector(self.zones.last().map_or(0, |zone| zone.end))
    }

    /// Sectors used of a member.
    pub fn member_sectors(&self, member: MemberIx) -> Sector {
        let last = self.zones.iter().rfind(|zone| zone.members.binary_search(&member).is_ok());
        Sector(last.map_or(0, |zone| zone.member_end))
    }

    /// `lba` is below the end of the last zone. The run ends with its chunk, or its zone where that
    /// has one member.
    #[inline]
    pub fn map(&self, lba: Sector) -> MemberRun {
        let lba = lba.0;
        let zone = match &*self.zones {
            [zone] => zone,
            zones => &zones[zones.partition_point(|zone| zone.end <= lba)],
        };
        let inside = lba - zone.start;
        if let &[member] = zone.members.as_slice() {
            return MemberRun {
                member,
                sector: Sector(zone.member_start + inside),
                len: Sector(zone.end - lba),
            };
        }
        let (chunk, offset) = self.chunk.split(inside);
        let width = zone.members.len() as u64;
        let (row, column) = (chunk / width, (chunk + zone.rotation) % width);
        MemberRun {
            member: zone.members[column as usize],
            sector: Sector(zone.member_start + row * self.chunk.sectors() + offset),
            len: Sector(self.chunk.sectors() - offset),
        }
    }

    /// The array sector at a data sector of a member; `None` where none is.
    pub fn array_sector_at(&self, member: MemberIx, sector: Sector) -> Option<Sector> {
        let (zone, column) = self.zones.iter().find_map(|zone| {
            let column = zone.members.binary_search(&member).ok()?;
            (zone.member_start..zone.member_end).contains(&sector.0).then_some((zone, column as u64))
        })?;
        let width = zone.members.len() as u64;
        let (row, offset) = self.chunk.split(sector.0 - zone.member_start);
        let chunk = row * width + (column + width - zone.rotation) % width;
        Some(Sector(zone.start + chunk * self.chunk.sectors() + offset))
    }
}
