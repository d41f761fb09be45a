//! Every stack that keeps what was asked for.

use super::bands::{Band, bands};
use super::stack::{ArrayPlan, LOG_MEMBERS_MAX, PlannedStack, consistency};
use super::{PlaceOf, PlanLevel, PlanShape, PowerCutCover, Wish, WishError};

/// Smallest and largest chunk that is tried.
const CHUNK_MIN: u64 = 64 << 10;
const CHUNK_MAX: u64 = 1 << 20;
/// Stripes of a volume may be larger.
const LV_STRIPE_MAX: u64 = 4 << 20;
/// A volume has no more stripes.
const LV_STRIPES_MAX: u32 = 128;
/// More arrays side by side are too many to look after.
const GROUPS_MAX: u32 = 8;
/// Members of an array with parity: md's Q has no more coefficients that differ.
const PARITY_MEMBERS_MAX: u32 = 255;
/// A smaller drive has no room for a table of partitions at both ends and for anything between.
const DRIVE_BYTES_MIN: u64 = 3 << 20;
/// Drives from which on several arrays are tried.
const GROUPED_FROM: u32 = 8;

/// A way to build it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Level and layout of the array that most drives have a part in.
    pub shape: PlanShape,
    /// The chunk; 0 for copies without one.
    pub chunk_bytes: u64,
    /// Arrays that the volume is striped over.
    pub groups: u32,
    /// Everything else.
    pub stack: PlannedStack,
}

/// All of them.
///
/// # Errors
/// There is none, and why.
pub fn candidates(wish: &Wish, place_of: PlaceOf) -> Result<Vec<Candidate>, WishError> {
    check(wish)?;
    let drives = wish.sizes_bytes.len() as u32 - wish.spares;
    let (bands, spares) = cut(wish)?;
    let shapes = shapes(wish, drives)?;
    let (mut found, mut too_many) = (Vec::new(), None);
    for shape in shapes {
        let banded = bands.len() > 1;
        if banded && shape == PlanShape::Plain {
            continue;
        }
        let groups = if banded || wish.spares > 0 { vec![1] } else { groups(shape, drives) };
        for groups in groups {
            for chunk_bytes in chunks(wish, shape, drives) {
                for cover in covers(wish, shape, drives / groups) {
                    if let Some((what, most)) =
                        members_max(shape, cover).filter(|(_, most)| drives / groups > *most)
                    {
                        too_many = Some(WishError::TooManyDrives { what, most, drives });
                        continue;
                    }
                    let kind = (shape, chunk_bytes, groups, cover);
                    found.extend(build(wish, place_of, kind, &bands, &spares));
                }
            }
        }
    }
    let smallest = wish.sizes_bytes.iter().copied().min().unwrap_or(0);
    let most = found.iter().max_by_key(|candidate| candidate.stack.volume_bytes);
    let most = most.ok_or(too_many.unwrap_or(WishError::TooSmall { smallest }))?.clone();
    let least = wish.file_system.bytes_min();
    found.retain(|candidate| candidate.stack.volume_bytes >= least);
    if found.is_empty() {
        return Err(WishError::FileSystem { least, most: most.stack.volume_bytes });
    }
    if let Some(wanted) = wish.capacity_bytes {
        found.retain(|candidate| candidate.stack.volume_bytes >= wanted);
        if found.is_empty() {
            return Err(WishError::Capacity {
                wanted,
                most: most.stack.volume_bytes,
                survive: wish.survive,
                what: most.shape.to_string(),
            });
        }
    }
    Ok(found)
}

/// What is wrong with the wish by itself.
fn check(wish: &Wish) -> Result<(), WishError> {
    let (drives, survive, spares) = (wish.sizes_bytes.len() as u32, wish.survive, wish.spares);
    if survive.saturating_add(spares) >= drives {
        return Err(WishError::TooFewDrives { drives, survive, spares });
    }
    if let Some(&smallest) = wish.sizes_bytes.iter().min().filter(|bytes| **bytes < DRIVE_BYTES_MIN) {
        return Err(WishError::TooSmall { smallest });
    }
    if let Some(chunk) =
        wish.chunk_bytes.filter(|chunk| !chunk.is_power_of_two() || !(4096..=64 << 20).contains(chunk))
    {
        return Err(WishError::Chunk(chunk));
    }
    if let (Some(layout), Some(level)) = (wish.layout, wish.level)
        && level != PlanLevel::Raid10
    {
        return Err(WishError::Layout { layout: layout.layout().unwrap_or_default(), level });
    }
    if let Some(layout) = wish.layout
        && layout.copies(0) <= survive
    {
        let layout_name = layout.layout().unwrap_or_default();
        return Err(WishError::Copies { layout: layout_name, copies: layout.copies(0), survive });
    }
    match wish.level {
        Some(level) if wish.consistency == Some(PowerCutCover::Ppl) && level != PlanLevel::Raid5 => {
            Err(WishError::Log(level))
        }
        _ => Ok(()),
    }
}

/// The bands of what is not spare, and the spares: the largest, which can stand in for any.
fn cut(wish: &Wish) -> Result<(Vec<Band>, Vec<usize>), WishError> {
    let mut order: Vec<usize> = (0..wish.sizes_bytes.len()).collect();
    order.sort_by_key(|ix| wish.sizes_bytes[*ix]);
    let spares = order.split_off(order.len() - wish.spares as usize);
    // In the order they were given.
    order.sort_unstable();
    let sizes: Vec<u64> = order.iter().map(|ix| wish.sizes_bytes[*ix]).collect();
    let mut bands = bands(&sizes);
    if bands.len() > 1 && !spares.is_empty() {
        return Err(WishError::SparesOfBands);
    }
    for band in &mut bands {
        band.drives.iter_mut().for_each(|ix| *ix = order[*ix]);
    }
    Ok((bands, spares))
}

/// Levels and layouts that survive enough failures of so many drives.
fn shapes(wish: &Wish, drives: u32) -> Result<Vec<PlanShape>, WishError> {
    let survive = wish.survive;
    let mut all = vec![];
    if survive == 0 {
        all.extend([PlanShape::Plain, PlanShape::Raid0]);
    }
    let copies = wish.layout.map_or(survive + 1, |layout| layout.copies(0)).max(2);
    let near = [PlanShape::Near(copies), PlanShape::Far(copies), PlanShape::Offset(copies)];
    // Without a word about redundancy only what was named has any.
    if survive > 0 || wish.level.is_some() || wish.layout.is_some() {
        all.extend([PlanShape::Raid1, PlanShape::Raid5, PlanShape::Raid6]);
        all.extend(near);
    }
    let named = |shape: &PlanShape| {
        wish.level.is_none_or(|level| shape.level() == level)
            && wish.layout.is_none_or(|layout| *shape == layout)
            && (wish.consistency != Some(PowerCutCover::Ppl) || *shape == PlanShape::Raid5)
    };
    all.retain(named);
    let least = |shape: &PlanShape| match shape {
        PlanShape::Plain => 1,
        PlanShape::Raid0 => 2,
        PlanShape::Raid1 => survive.max(1) + 1,
        PlanShape::Raid5 => 3,
        PlanShape::Raid6 => 4,
        PlanShape::Near(copies) => copies + 1,
        PlanShape::Far(copies) | PlanShape::Offset(copies) => *copies,
    };
    let enough = |shape: &PlanShape| match shape {
        // More copies than are needed only if that level was named.
        PlanShape::Raid1 => drives == survive + 1 || (wish.level.is_some() && drives > survive),
        shape => shape.survives(drives) >= survive && drives >= least(shape),
    };
    let fit: Vec<PlanShape> = all.iter().copied().filter(enough).collect();
    match (fit.is_empty(), wish.level, all.first()) {
        (false, ..) => Ok(fit),
        (true, Some(level), Some(shape)) if shape.survives(drives.max(1)) < survive => {
            Err(WishError::Level { level, most: shape.survives(drives), survive })
        }
        (true, Some(level), None) => {
            let most = match level {
                PlanLevel::None | PlanLevel::Raid0 => 0,
                _ => survive,
            };
            Err(WishError::Level { level, most, survive })
        }
        (true, level, shape) => Err(WishError::Members {
            level: level.unwrap_or(PlanLevel::Raid5),
            survive,
            least: shape.map_or(3, least),
            drives,
        }),
    }
}

/// Into how many equal arrays: those that leave whole powers of two of data in a stripe, so that
/// stripes of a volume can be stripes of the arrays.
fn groups(shape: PlanShape, drives: u32) -> Vec<u32> {
    let parities = shape.parities();
    let splits = (2..=GROUPS_MAX).filter(|groups| {
        let data = (drives / groups).saturating_sub(parities);
        parities > 0
            && drives >= GROUPED_FROM
            && drives.is_multiple_of(*groups)
            && data >= 2
            && data.is_power_of_two()
    });
    std::iter::once(1).chain(splits).collect()
}

fn chunks(wish: &Wish, shape: PlanShape, drives: u32) -> Vec<u64> {
    if shape == PlanShape::Raid1 || drives == 1 {
        return vec![0];
    }
    if let Some(chunk) = wish.chunk_bytes {
        return vec![chunk];
    }
    let most = if shape == PlanShape::Plain { LV_STRIPE_MAX } else { CHUNK_MAX };
    std::iter::successors(Some(CHUNK_MIN), |chunk| Some(chunk * 2))
        .take_while(|chunk| *chunk <= most)
        .collect()
}

/// What covers a power cut, and what else might: where RAID 5 gets a log unasked, the bitmap that
/// levels beside it have.
fn covers(wish: &Wish, shape: PlanShape, members: u32) -> Vec<PowerCutCover> {
    let cover = consistency(shape, members, wish);
    match wish.consistency {
        None if cover == PowerCutCover::Ppl => vec![cover, PowerCutCover::Bitmap],
        _ => vec![cover],
    }
}

/// The most members of an array like that, if there is a limit, and what has it.
fn members_max(shape: PlanShape, cover: PowerCutCover) -> Option<(String, u32)> {
    match (shape, cover) {
        (PlanShape::Raid5, PowerCutCover::Ppl) => {
            Some((format!("{} with a partial parity log", shape.level()), LOG_MEMBERS_MAX))
        }
        (PlanShape::Raid5 | PlanShape::Raid6, _) => Some((shape.level().to_string(), PARITY_MEMBERS_MAX)),
        (PlanShape::Plain, _) => Some(("a striped volume".to_owned(), LV_STRIPES_MAX)),
        _ => None,
    }
}

/// What a band with so few drives becomes, if most drives become `shape`.
fn of_band(shape: PlanShape, drives: u32, survive: u32) -> Option<PlanShape> {
    let copies = shape.copies(drives);
    match shape {
        PlanShape::Plain => Some(PlanShape::Plain),
        PlanShape::Raid0 => Some(if drives > 1 { PlanShape::Raid0 } else { PlanShape::Plain }),
        PlanShape::Raid1 => (drives > survive).then_some(PlanShape::Raid1),
        PlanShape::Raid6 if drives >= 4 => Some(PlanShape::Raid6),
        PlanShape::Raid6 if drives == 3 && survive < 2 => Some(PlanShape::Raid5),
        PlanShape::Raid5 if drives >= 3 => Some(PlanShape::Raid5),
        PlanShape::Raid5 | PlanShape::Raid6 => (drives == survive + 1).then_some(PlanShape::Raid1),
        _ if drives > copies => Some(shape),
        // The far layout over two drives reads both in turn; nothing else is gained by chunks.
        PlanShape::Far(_) | PlanShape::Offset(_) if drives == copies => Some(shape),
        _ => (drives == copies).then_some(PlanShape::Raid1),
    }
}

fn build(
    wish: &Wish,
    place_of: PlaceOf,
    (shape, chunk_bytes, groups, cover): (PlanShape, u64, u32, PowerCutCover),
    bands: &[Band],
    spares: &[usize],
) -> Option<Candidate> {
    let mut arrays = Vec::new();
    let mut unused_bytes = 0;
    for (number, band) in bands.iter().enumerate() {
        let each = band.drives.len() / groups as usize;
        let most = shape;
        let built = of_band(shape, each as u32, wish.survive).and_then(|shape| {
            let chunk_bytes = if shape == PlanShape::Raid1 { 0 } else { chunk_bytes };
            let cover = if shape == most { cover } else { consistency(shape, each as u32, wish) };
            let ppl = cover == PowerCutCover::Ppl;
            let place = place_of(shape.level(), band.len_bytes, chunk_bytes, ppl);
            let array_bytes = shape.array_bytes(each as u32, place.data_bytes, chunk_bytes.max(1));
            (array_bytes > 0).then(|| ArrayPlan {
                drives: Vec::new(),
                spares: Vec::new(),
                part: band.start_bytes.map(|start| (number + 1, start..start + band.len_bytes)),
                shape,
                chunk_bytes,
                cover,
                member_bytes: band.len_bytes,
                place,
                array_bytes,
            })
        });
        match built {
            None => unused_bytes += band.len_bytes * band.drives.len() as u64,
            Some(array) => arrays.extend(band.drives.chunks(each).map(|drives| ArrayPlan {
                drives: drives.to_vec(),
                spares: spares.to_vec(),
                ..array.clone()
            })),
        }
    }
    // What does not fit the band of all drives fits none.
    if arrays.is_empty() {
        return None;
    }
    // A band without room for an extent would be no physical volume. Extents depend on the bands
    // that are left.
    let mut stack = loop {
        let mut stack = PlannedStack::of(wish, arrays, (chunk_bytes, groups));
        match stack.without_extent() {
            None => break stack,
            Some(0) => return None,
            Some(ix) => {
                let band = stack.arrays.remove(ix);
                unused_bytes += band.member_bytes * band.drives.len() as u64;
                arrays = stack.arrays;
            }
        }
    };
    stack.unused_bytes = unused_bytes;
    (stack.volume_extents > 0).then_some(Candidate { shape, chunk_bytes, groups, stack })
}

impl Candidate {
    /// It keeps less than what is wanted: it is there to be compared with, and wins nothing.
    #[must_use]
    pub fn keeps_less(&self, wish: &Wish) -> bool {
        let array = self.measured();
        array.cover != consistency(array.shape, array.drives.len() as u32, wish)
    }

    /// Between those that are equally fast: less is nearer to what operators came to prefer.
    #[must_use]
    pub fn taste(&self, wish: &Wish) -> u32 {
        let preferred = self.preferred_chunk(wish);
        let off =
            if self.chunk_bytes == 0 { 0 } else { self.chunk_bytes.ilog2().abs_diff(preferred.ilog2()) };
        let unusual = match self.shape {
            PlanShape::Near(_)
            | PlanShape::Raid1
            | PlanShape::Raid5
            | PlanShape::Raid6
            | PlanShape::Plain => 0,
            PlanShape::Raid0 | PlanShape::Far(_) => 1,
            PlanShape::Offset(_) => 2,
        };
        // Every further array is one more to look after.
        off + 8 * unusual + 32 * (self.groups - 1)
    }

    /// The chunk that experience has for this use, where measuring sees no difference.
    #[must_use]
    pub fn preferred_chunk(&self, wish: &Wish) -> u64 {
        let parity = self.shape.parities() > 0;
        match () {
            // A small request or file should need one drive, whatever it is aligned to.
            () if self.shape == PlanShape::Plain => LV_STRIPE_MAX,
            () if !parity && wish.workload.random => 512 << 10,
            // Larger writes become whole stripes sooner, and flash has no seeks to save.
            () if !wish.rotational && wish.workload.is_small() => 64 << 10,
            // The largest unit that the log of XFS can be written in too.
            () => 256 << 10,
        }
    }

    /// How few of the drives would do for the capacity wanted, in arrays of this kind and with
    /// these spares.
    #[must_use]
    pub fn drives_needed(&self, wish: &Wish) -> Option<u32> {
        let wanted = wish.capacity_bytes?;
        if self.stack.arrays.len() > 1 {
            return None;
        }
        let array = &self.stack.arrays[0];
        let least = match self.shape {
            PlanShape::Plain => 1,
            PlanShape::Raid0 => 2,
            PlanShape::Raid1 => array.drives.len() as u32,
            PlanShape::Raid5 => 3,
            PlanShape::Raid6 => 4,
            PlanShape::Near(copies) => copies + 1,
            PlanShape::Far(copies) | PlanShape::Offset(copies) => copies,
        };
        let room = |members: u32| {
            let bytes = self.shape.array_bytes(members, array.place.data_bytes, array.chunk_bytes.max(1));
            bytes.saturating_sub(array.pe_start_bytes() * u64::from(members)) / self.stack.extent_bytes
                * self.stack.extent_bytes
        };
        (least..=array.drives.len() as u32)
            .find(|members| room(*members) >= wanted)
            .map(|members| members + wish.spares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{DataPlacement, FileSystemKind, Workload};

    const GIB: u64 = 1 << 30;

    fn wish(sizes_bytes: Vec<u64>, level: PlanLevel) -> Wish {
        Wish {
            sizes_bytes,
            rotational: true,
            capacity_bytes: None,
            survive: 1,
            spares: 0,
            workload: Workload {
                name: Some("database"),
                random: true,
                read_part: 0.7,
                bytes: 8192,
                depth: 32,
            },
            level: Some(level),
            layout: None,
            chunk_bytes: Some(64 << 10),
            consistency: None,
            file_system: FileSystemKind::Ext4,
            cores: 4,
        }
    }

    fn all(wish: &Wish) -> Result<Vec<Candidate>, WishError> {
        candidates(wish, |_, len_bytes, _, _| DataPlacement {
            data_offset_bytes: 1 << 20,
            data_bytes: len_bytes.saturating_sub(1 << 20),
        })
    }

    /// What `create` and mdadm would refuse is not offered.
    #[test]
    fn no_array_has_more_members_than_its_level_and_its_log_take() {
        let covers = |drives: usize| {
            let wish = wish(vec![GIB; drives], PlanLevel::Raid5);
            assert!(wish.workload.in_place());
            let all = all(&wish).unwrap();
            let whole = all.iter().filter(|candidate| candidate.groups == 1);
            whole.map(|one| (one.measured().cover, one.keeps_less(&wish))).collect::<Vec<_>>()
        };
        assert_eq!(covers(64), [(PowerCutCover::Ppl, false), (PowerCutCover::Bitmap, true)]);
        assert_eq!(covers(65), [(PowerCutCover::Bitmap, false)]);
        // 65 make no arrays with a power of two of data, 68 make four.
        let asked = |drives: usize| {
            let wish =
                Wish { consistency: Some(PowerCutCover::Ppl), ..wish(vec![GIB; drives], PlanLevel::Raid5) };
            all(&wish).map(|all| all.iter().map(|candidate| candidate.groups).collect::<Vec<_>>())
        };
        assert!(matches!(asked(65), Err(WishError::TooManyDrives { most: 64, drives: 65, .. })));
        assert_eq!(asked(68), Ok(vec![4]));
        for level in [PlanLevel::Raid5, PlanLevel::Raid6] {
            let refused = all(&wish(vec![GIB; 301], level)).unwrap_err();
            assert!(matches!(refused, WishError::TooManyDrives { most: 255, drives: 301, .. }), "{refused}");
        }
    }

    /// The group takes each array that is made.
    #[test]
    fn a_band_without_room_for_an_extent_is_unused() {
        const MIB: u64 = 1 << 20;
        let sizes = [600, 600, 600, 620, 620].map(|size| size * MIB);
        let all = all(&wish(sizes.to_vec(), PlanLevel::Raid5)).unwrap();
        assert!(!all.is_empty());
        for stack in all.iter().map(|candidate| &candidate.stack) {
            assert_eq!((stack.arrays.len(), stack.unused_bytes), (1, 2 * 20 * MIB));
            assert!(stack.volume_bytes > 2000 * MIB);
        }
        // The smallest drive alone is too small: no drive is cut for what cannot be used.
        let refused = self::all(&wish(vec![4 * MIB, GIB, GIB, GIB, GIB], PlanLevel::Raid5)).unwrap_err();
        assert_eq!(refused, WishError::TooSmall { smallest: 4 * MIB });
    }

    /// The least common multiple of what thirteen bands have in a stripe is 352 GiB.
    #[test]
    fn many_sizes_do_not_make_extents_that_nothing_has_room_for() {
        for (sizes, wanted) in [(2..=14, 1_000_000_000), (110..=510, 10_000_000_000)] {
            let step = if wanted == 1_000_000_000 { 1 } else { 10 };
            let sizes: Vec<u64> = sizes.step_by(step).map(|size| size * 1_000_000_000).collect();
            let wish = Wish { chunk_bytes: Some(1 << 20), ..wish(sizes.clone(), PlanLevel::Raid5) };
            let all = all(&wish).unwrap();
            for Candidate { stack, .. } in &all {
                assert!(stack.extent_bytes <= 256 << 20, "{}", stack.extent_bytes);
                assert!(stack.extent_bytes.is_multiple_of(stack.arrays[0].stripe_bytes()));
                assert!(stack.arrays.len() > sizes.len() / 2 && stack.unused_bytes < 2 * wanted);
                // What extents are no whole stripes of is named.
                for (ix, array) in stack.arrays.iter().enumerate() {
                    let is_even = stack.extent_bytes.is_multiple_of(array.stripe_bytes().max(1));
                    assert!(is_even || stack.uneven().contains(&ix));
                }
            }
        }
    }

    /// A few sizes still have extents that are whole stripes of every array.
    #[test]
    fn extents_are_whole_stripes_of_every_array_of_large_drives() {
        let sizes = [4, 4, 8, 8, 12, 12, 16, 16].map(|size| size * 1_000_000_000_000);
        let wish = Wish { chunk_bytes: Some(1 << 20), ..wish(sizes.to_vec(), PlanLevel::Raid5) };
        for Candidate { stack, .. } in all(&wish).unwrap() {
            let whole = |array: &ArrayPlan| stack.extent_bytes.is_multiple_of(array.stripe_bytes().max(1));
            assert!(stack.arrays.len() > 3 && stack.arrays.iter().all(whole));
        }
    }

    #[test]
    fn a_volume_is_striped_over_no_more_drives_than_it_can_be() {
        let plain = |drives: usize| {
            let wish = Wish { survive: 0, ..wish(vec![GIB; drives], PlanLevel::None) };
            all(&wish)
        };
        assert!(plain(128).is_ok());
        let refused = plain(129).unwrap_err();
        assert!(matches!(refused, WishError::TooManyDrives { most: 128, drives: 129, .. }), "{refused}");
    }

    /// Memory is for all of md's caches of stripes, not for each.
    #[test]
    fn the_caches_of_all_bands_are_within_the_memory_given() {
        let sizes: Vec<u64> = (1..=6).flat_map(|size| [size * 1_000_000_000_000; 2]).collect();
        let all = all(&wish(sizes, PlanLevel::Raid5)).unwrap();
        for Candidate { stack, .. } in &all {
            let caches = stack.caches(250_000_000, 512 << 20);
            let with: Vec<_> = caches.iter().flatten().collect();
            assert!(with.len() >= 4, "{caches:?}");
            assert!(with.iter().map(|cache| cache.memory_bytes).sum::<u64>() <= 512 << 20, "{caches:?}");
        }
    }

    #[test]
    fn a_drive_without_room_for_anything_is_named() {
        for small in [0, 512 << 10, 3 << 19, (3 << 20) - 1] {
            let refused = all(&wish(vec![small, GIB, GIB, GIB], PlanLevel::Raid5)).unwrap_err();
            assert_eq!(refused, WishError::TooSmall { smallest: small });
        }
    }
}
