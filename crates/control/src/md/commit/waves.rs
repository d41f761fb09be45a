//! Superblocks that a power cut could tear are written in waves.

use wattle_engine::geometry::Geometry;
use wattle_engine::units::{MemberIx, MemberSet};

/// Cuts `members`, slots that are all that is left of an array, into sets that the array can do
/// without one at a time. If it can do without none, two halves: then one tells at least what the
/// array was.
pub(super) fn waves(geometry: Option<&Geometry>, members: &MemberSet) -> Vec<MemberSet> {
    let spared = |wave: &MemberSet| {
        geometry.is_some_and(|geometry| {
            let slots = (0..geometry.raid_disks() as u16).map(MemberIx);
            geometry
                .survives(&slots.filter(|slot| !members.contains(*slot) || wave.contains(*slot)).collect())
        })
    };
    if !members.iter().all(|slot| spared(&std::iter::once(slot).collect())) {
        let half = |odd: usize| {
            let every_other = members.iter().enumerate().filter(|(ix, _)| ix % 2 == odd);
            every_other.map(|(_, slot)| slot).collect()
        };
        return [half(0), half(1)].into_iter().filter(|wave: &MemberSet| !wave.is_empty()).collect();
    }
    let mut waves: Vec<MemberSet> = Vec::new();
    for slot in members.iter() {
        let only: MemberSet = std::iter::once(slot).collect();
        match waves.iter_mut().find(|wave| spared(&wave.union(&only))) {
            Some(wave) => wave.insert(slot),
            None => waves.push(only),
        }
    }
    waves
}

#[cfg(test)]
mod tests {
    use super::*;
    use wattle_engine::geometry::{Level, Params};
    use wattle_engine::units::Sector;

    fn geometry(level: Level, layout: u32, raid_disks: u32) -> Geometry {
        let chunk = Sector(if level == Level::Raid1 { 0 } else { 8 });
        let component_size = Sector(64);
        Geometry::new(&Params { level, layout, chunk, raid_disks, component_size, member_sizes: Vec::new() })
            .unwrap()
    }

    fn set(slots: &[u16]) -> MemberSet {
        slots.iter().map(|&slot| MemberIx(slot)).collect()
    }

    /// A power cut tears every superblock that is being written, at worst. All at once, and the
    /// array is gone.
    #[test]
    fn no_wave_takes_what_the_array_needs() {
        let rows = [
            (geometry(Level::Raid1, 0, 3), set(&[0, 2]), vec![set(&[0]), set(&[2])]),
            (geometry(Level::Raid1, 0, 3), set(&[0, 1, 2]), vec![set(&[0, 1]), set(&[2])]),
            (
                geometry(Level::Raid6, 2, 5),
                set(&[0, 1, 2, 4]),
                vec![set(&[0]), set(&[1]), set(&[2]), set(&[4])],
            ),
            (geometry(Level::Raid6, 2, 4), set(&[0, 1, 2, 3]), vec![set(&[0, 1]), set(&[2, 3])]),
            (geometry(Level::Raid10, 0x102, 4), set(&[0, 1, 2, 3]), vec![set(&[0, 2]), set(&[1, 3])]),
            // No member can be spared: halves.
            (geometry(Level::Raid5, 2, 4), set(&[0, 1, 3]), vec![set(&[0, 3]), set(&[1])]),
            (geometry(Level::Raid1, 0, 2), set(&[1]), vec![set(&[1])]),
        ];
        for (geometry, members, expected) in rows {
            assert_eq!(waves(Some(&geometry), &members), expected, "{} of {members:?}", geometry.level());
        }
    }
}
