//! Which levels could be, by what the sample says of all members together.

use std::collections::BTreeSet;

use wattle_engine::geometry::Level;
use wattle_format::md::Version;
use wattle_format::md::defaults::data_offset_sectors;

use super::candidate::Hint;
use super::sample::{Sample, Sum};
use super::shape::RescueShape;

/// Chunks of 4 KiB to 4 MiB.
const CHUNKS: std::ops::RangeInclusive<u32> = 3..=13;
/// To which linear arrays round their members: mdadm does not, and did to 64 KiB.
const LINEAR_CHUNKS_SECTORS: [u64; 2] = [0, 128];
/// Where data starts beside what mdadm would choose: with superblocks at the end, and what former
/// versions of mdadm left.
const DATA_OFFSETS_SECTORS: [u64; 8] = [0, 16, 24, 272, 2048, 4096, 8192, 262_144];
/// Volumes that are looked for at most.
const STARTS_MAX: usize = 24;
/// Of a hundred rows that tell anything.
const MOST: usize = 90;
/// And where it may be that one member is older than the others.
const SOME: usize = 30;
/// Orders of members of different sizes that are gone through.
const SIZE_ORDERS_MAX: usize = 720;

/// A level with its number of slots and the layouts that it may have.
#[derive(Debug)]
pub(super) struct Frame {
    pub level: Level,
    pub slots: usize,
    pub layouts: Vec<u32>,
}

/// What could be, and what that rests on.
#[derive(Debug)]
pub(super) struct Frames {
    pub all: Vec<Frame>,
    pub note: String,
    /// All members have something in common, so that there is no need to look further.
    pub is_certain: bool,
}

fn frame(level: Level, slots: usize) -> Frame {
    let layouts = match level {
        Level::Raid5 | Level::Raid6 => vec![2, 0, 3, 1],
        Level::Raid10 => raid10_layouts(slots),
        _ => vec![0],
    };
    Frame { level, slots, layouts }
}

/// Two and three copies: near, far, offset.
fn raid10_layouts(slots: usize) -> Vec<u32> {
    let copies = (2..=3).filter(|&copies| copies as usize <= slots);
    let layouts = copies.flat_map(|copies| {
        let near = (slots > copies as usize).then_some(1 << 8 | copies);
        near.into_iter().chain([copies << 8 | 1, 1 << 16 | copies << 8 | 1])
    });
    layouts.collect()
}

impl Frames {
    /// What the rows tell.
    pub fn of(sample: &Sample) -> Self {
        let members = sample.members();
        let certain = |levels: &[Level], note: String| Self {
            all: levels.iter().map(|&level| frame(level, members)).collect(),
            note,
            is_certain: true,
        };
        let said = |(of, count): (usize, usize), what: &str| {
            format!("in {count} of {of} places that tell anything {what}")
        };
        let alike = sample.alike();
        let (zero, one) = (zeros(sample), sums(sample));
        if is_share(alike, MOST) {
            return certain(&[Level::Raid1], said(alike, "all members hold the same"));
        }
        if members > 2 && sample.is_mirrored() {
            let note = "each member holds the same as another one, as in a RAID 10";
            return certain(&[Level::Raid10], note.to_owned());
        }
        if is_share(zero, MOST) {
            let note = said(zero, "the XOR of all members is zero: they are all members of a RAID 5 or 4");
            return certain(&[Level::Raid5, Level::Raid4], note);
        }
        if is_share(one, MOST) {
            let note = said(one, "one member is the XOR of all others, as in a RAID 6");
            // Of an odd number of members in pairs one is left over in each row.
            return certain(&[Level::Raid6, Level::Raid10], note);
        }
        let mut all = vec![
            frame(Level::Raid0, members),
            frame(Level::Linear, members),
            frame(Level::Raid10, members),
            frame(Level::Raid10, members + 1),
            frame(Level::Raid5, members + 1),
            frame(Level::Raid4, members + 1),
            frame(Level::Raid6, members + 2),
        ];
        if members >= 3 {
            all.push(frame(Level::Raid6, members + 1));
        }
        // One of them may be older than the others.
        if is_share(alike, SOME) {
            all.push(frame(Level::Raid1, members));
        }
        if is_share(zero, SOME) {
            all.extend([frame(Level::Raid5, members), frame(Level::Raid4, members)]);
        }
        if is_share(one, SOME) {
            all.push(frame(Level::Raid6, members));
        }
        let note = "the members have no common parity: one is missing, or the array had none".to_owned();
        Self { all, note, is_certain: false }
    }
}

/// What makes a finding doubtful, if anything does: members that are all there should agree
/// everywhere.
pub(super) fn disagree(sample: &Sample, shape: &RescueShape) -> Option<(usize, usize)> {
    let agree = match shape.level {
        _ if shape.slots != sample.members() => return None,
        Level::Raid1 => sample.alike(),
        Level::Raid4 | Level::Raid5 => zeros(sample),
        Level::Raid6 => sums(sample),
        _ => return None,
    };
    (!is_share(agree, MOST)).then_some(agree)
}

fn is_share((of, count): (usize, usize), percent: usize) -> bool {
    of > 0 && count * 100 >= of * percent
}

fn zeros(sample: &Sample) -> (usize, usize) {
    sample.share(|sum| sum == Sum::Zero)
}

/// Q is no part of P's sum. It goes round: what is always on the same member is no Q, and that no
/// member of it.
fn sums(sample: &Sample) -> (usize, usize) {
    let sums = sample.share(|sum| matches!(sum, Sum::Zero | Sum::One(_)));
    let always = |who| sample.share(|sum| sum == Sum::One(Some(who))).1 * 2 > sums.0;
    if sample.members() < 4 || (0..sample.members()).any(always) { (sums.0, 0) } else { sums }
}

/// Where the first page is that members with a common parity have, if they have one.
pub(super) fn first_content(sample: &Sample) -> Option<u64> {
    let common = |sum| matches!(sum, Sum::Zero | Sum::One(_));
    let (compared, common_rows) = sample.share(common);
    let first = sample.rows.iter().find(|row| common(row.sum));
    first.filter(|_| common_rows * 100 >= compared * MOST).map(|row| row.offset)
}

/// All that is to be looked at, and what is not, in words.
pub(super) fn shapes(
    frames: &Frames,
    sample: &Sample,
    hints: &[Hint],
    first_content: Option<u64>,
    sizes: &[u64],
) -> (Vec<RescueShape>, Option<String>) {
    let size = sizes.iter().copied().min().unwrap_or(0);
    let default = |chunk| data_offset_sectors(Version::V12, size, chunk, false);
    let starts = sample.starts.iter().take(STARTS_MAX).chain(&first_content).map(|byte| byte / 512);
    let starts: BTreeSet<u64> = starts.filter(|offset| offset.is_multiple_of(8)).collect();
    let offsets: BTreeSet<u64> = DATA_OFFSETS_SECTORS
        .into_iter()
        .chain([128, 1024, 8192].map(default))
        .chain(starts.iter().copied())
        .chain(hints.iter().map(|hint| hint.shape.data_offset_sectors))
        .filter(|offset| offset.is_multiple_of(8))
        .collect();
    let chunks: BTreeSet<u64> =
        CHUNKS.map(|power| 1 << power).chain(hints.iter().map(|hint| hint.shape.chunk_sectors)).collect();
    let (mut shapes, mut note) = (Vec::new(), None);
    for frame in &frames.all {
        if frame.level == Level::Linear {
            note = linear(&starts, sizes, &mut shapes);
            continue;
        }
        let chunks = if frame.level == Level::Raid1 { BTreeSet::from([0]) } else { chunks.clone() };
        for (&chunk, &offset) in
            chunks.iter().flat_map(|chunk| offsets.iter().map(move |offset| (chunk, offset)))
        {
            for &layout in &frame.layouts {
                let is_far = frame.level == Level::Raid10 && layout >> 8 & 0xFF > 1 && layout >> 16 == 0;
                let of = |&version| {
                    RescueShape::new(frame.level, layout, chunk, offset, frame.slots, version, size)
                };
                shapes.extend(versions(is_far, offset).iter().filter_map(of));
            }
        }
    }
    (shapes, note)
}

/// Where the data starts with the member, its superblock is behind it. How much room it takes there
/// matters where something comes after the end of the data.
fn versions(end_matters: bool, offset: u64) -> &'static [Version] {
    match (offset, end_matters) {
        (0, true) => &[Version::V10, Version::V090],
        (0, false) => &[Version::V10],
        _ => &[Version::V12],
    }
}

/// Linear arrays start where something starts; in which order the sizes come makes them different.
fn linear(starts: &BTreeSet<u64>, sizes: &[u64], shapes: &mut Vec<RescueShape>) -> Option<String> {
    let mut orders = Vec::new();
    let mut left = sizes.to_vec();
    left.sort_unstable();
    let all = size_orders(&mut Vec::new(), &mut left, &mut orders);
    for sizes in &orders {
        for (&offset, chunk) in
            starts.iter().flat_map(|offset| LINEAR_CHUNKS_SECTORS.map(|chunk| (offset, chunk)))
        {
            for &version in versions(true, offset) {
                let shape = RescueShape::of_sizes(Level::Linear, 0, chunk, offset, version, sizes);
                // The same without rounding is enough.
                let is_new = |shape: &RescueShape| {
                    chunk == 0
                        || shapes.last().is_none_or(|last| {
                            last.geometry.array_sectors() != shape.geometry.array_sectors()
                        })
                };
                shapes.extend(shape.filter(is_new));
            }
        }
    }
    (!all).then(|| {
        format!("these members have many sizes: of the orders of a linear array only {SIZE_ORDERS_MAX} were looked at")
    })
}

/// All different orders of these sizes, which are sorted; `false` if there are too many.
fn size_orders(order: &mut Vec<u64>, left: &mut Vec<u64>, orders: &mut Vec<Vec<u64>>) -> bool {
    if left.is_empty() {
        orders.push(order.clone());
        return true;
    }
    for ix in 0..left.len() {
        if ix > 0 && left[ix] == left[ix - 1] {
            continue;
        }
        if orders.len() >= SIZE_ORDERS_MAX {
            return false;
        }
        let size = left.remove(ix);
        order.push(size);
        let all = size_orders(order, left, orders);
        order.pop();
        left.insert(ix, size);
        if !all {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_of_sizes_comes_once_and_not_too_many() {
        let orders = |sizes: &[u64]| {
            let mut orders = Vec::new();
            let all = size_orders(&mut Vec::new(), &mut sizes.to_vec(), &mut orders);
            (all, orders)
        };
        assert_eq!(orders(&[5, 5, 5, 5]), (true, vec![vec![5, 5, 5, 5]]));
        assert_eq!(orders(&[4, 5, 5]), (true, vec![vec![4, 5, 5], vec![5, 4, 5], vec![5, 5, 4]]));
        let (all, some) = orders(&[1, 2, 3, 4, 5, 6, 7]);
        assert_eq!((all, some.len()), (false, SIZE_ORDERS_MAX));
    }

    #[test]
    fn mirrors_are_near_far_and_offset_but_not_all_members_one_copy() {
        assert_eq!(raid10_layouts(2), [0x201, 0x10201]);
        assert_eq!(raid10_layouts(3), [0x102, 0x201, 0x10201, 0x301, 0x10301]);
        assert_eq!(raid10_layouts(4), [0x102, 0x201, 0x10201, 0x103, 0x301, 0x10301]);
    }
}
