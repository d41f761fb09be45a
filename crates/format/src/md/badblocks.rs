//! The bad block log: docs/formats.md §3.
//!
//! Sectors are absolute on the device: they include data_offset and do not move when data_offset
//! does (hazard 10 in docs/formats.md §19). All counts here are in sectors; the log's unit of
//! 2^shift sectors stays inside this module.

use crate::bytes::{le64, put_le64};

/// Longest range one slot holds, in units: what the kernel writes, though the field has room
/// for 1023.
const MAX_COUNT: u64 = 512;
const COUNT_BITS: u32 = 10;
const END: u64 = u64::MAX;

/// A range of device sectors whose data is lost on this device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BadRange {
    /// First sector, from the start of the device.
    pub sector: u64,
    /// Length in sectors, at least 1.
    pub sectors: u64,
}

impl BadRange {
    /// First sector after the range. Saturates, like everything read from a log.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.sector.saturating_add(self.sectors)
    }
}

/// Why a log cannot be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBlockError {
    /// An entry of no length, or one past any device.
    #[error("bad block log entry {slot} is {raw:#018x}, which is no range of sectors")]
    Entry {
        /// Which slot.
        slot: usize,
        /// Its bytes as a number.
        raw: u64,
    },
    /// The unit is 2^shift sectors, shift below 64.
    #[error("bad block unit of 2^{0} sectors")]
    Shift(u8),
    /// More ranges than slots. The device has to be failed instead.
    #[error("{needed} bad block log entries do not fit into {slots} slots")]
    Full {
        /// Entries needed.
        needed: usize,
        /// Slots of the area.
        slots: usize,
    },
    /// The ranges lie outside what an entry can express.
    #[error("sector {0} does not fit into a bad block log entry")]
    TooFar(u64),
}

/// A set of bad sectors: sorted, disjoint, no two ranges touching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadBlocks {
    ranges: Vec<BadRange>,
}

impl BadBlocks {
    /// Reads the log area. Allocates at most as much as the area is long.
    ///
    /// # Errors
    /// A slot before the end mark that is no range, or an impossible shift: the log cannot be
    /// trusted.
    pub fn decode(area: &[u8], shift: u8) -> Result<Self, BadBlockError> {
        if shift >= 64 {
            return Err(BadBlockError::Shift(shift));
        }
        let mut ranges = Vec::new();
        for slot in 0..area.len() / 8 {
            let raw = le64(area, 8 * slot);
            if raw == END {
                break;
            }
            let (unit, count) = (raw >> COUNT_BITS, raw & ((1 << COUNT_BITS) - 1));
            let entry = BadBlockError::Entry { slot, raw };
            let scale = |units: u64| units.checked_mul(1 << shift).ok_or(entry);
            let range = BadRange { sector: scale(unit)?, sectors: scale(count)? };
            if count == 0 || range.sector.checked_add(range.sectors).is_none() {
                return Err(entry);
            }
            ranges.push(range);
        }
        Ok(BadBlocks { ranges: merge(ranges) })
    }

    /// The log area of `area_bytes` as the kernel writes it: sorted, split into at most 512 units,
    /// the rest all ones. With a shift, ranges grow to whole units.
    ///
    /// # Errors
    /// They do not fit: the device has to be failed instead.
    pub fn encode(&self, area_bytes: usize, shift: u8) -> Result<Vec<u8>, BadBlockError> {
        if shift >= 64 {
            return Err(BadBlockError::Shift(shift));
        }
        let slots = area_bytes / 8;
        let mut area = vec![0xff; area_bytes];
        let mut needed = 0;
        for range in merge(self.ranges.iter().map(|range| whole_units(range, shift)).collect()) {
            let (mut unit, end) = (range.sector >> shift, range.end().div_ceil(1 << shift));
            if end >= 1 << (64 - COUNT_BITS) {
                return Err(BadBlockError::TooFar(range.end()));
            }
            let entries = usize::try_from((end - unit).div_ceil(MAX_COUNT)).unwrap_or(usize::MAX);
            if entries > slots - needed {
                return Err(BadBlockError::Full { needed: needed.saturating_add(entries), slots });
            }
            while unit < end {
                let count = (end - unit).min(MAX_COUNT);
                put_le64(&mut area, 8 * needed, unit << COUNT_BITS | count);
                (unit, needed) = (unit + count, needed + 1);
            }
        }
        Ok(area)
    }

    /// The ranges, sorted, disjoint and merged.
    #[must_use]
    pub fn ranges(&self) -> &[BadRange] {
        &self.ranges
    }

    /// Whether nothing is bad; [`super::Features::BAD_BLOCKS`] is set exactly when this is false.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The parts of the log that touch `sectors` sectors from `sector`.
    pub fn overlapping(&self, sector: u64, sectors: u64) -> impl Iterator<Item = BadRange> + '_ {
        let wanted_end = sector.saturating_add(sectors);
        let first = self.ranges.partition_point(|range| range.end() <= sector);
        self.ranges[first..].iter().copied().take_while(move |range| range.sector < wanted_end)
    }

    /// Adds a range; a range of no length changes nothing.
    pub fn insert(&mut self, range: BadRange) {
        if range.sectors > 0 {
            self.ranges.push(range);
            self.ranges = merge(std::mem::take(&mut self.ranges));
        }
    }

    /// Takes a range out, after it was rewritten successfully.
    pub fn remove(&mut self, gone: BadRange) {
        let outside = |range: &BadRange| {
            let left = (range.sector, range.end().min(gone.sector));
            let right = (range.sector.max(gone.end()), range.end());
            [left, right].map(|(start, end)| BadRange { sector: start, sectors: end.saturating_sub(start) })
        };
        if gone.sectors > 0 {
            self.ranges =
                merge(self.ranges.iter().flat_map(outside).filter(|part| part.sectors > 0).collect());
        }
    }
}

/// An empty log area of `area_bytes`.
#[must_use]
pub fn empty_area(area_bytes: usize) -> Vec<u8> {
    vec![0xff; area_bytes]
}

fn whole_units(range: &BadRange, shift: u8) -> BadRange {
    let unit_mask = (1_u64 << shift) - 1;
    let sector = range.sector & !unit_mask;
    let end = range.end().checked_add(unit_mask).map_or(!unit_mask, |end| end & !unit_mask);
    BadRange { sector, sectors: end - sector }
}

/// Sorts and joins ranges that overlap or touch.
fn merge(mut ranges: Vec<BadRange>) -> Vec<BadRange> {
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let touches = next.sector <= last.end();
        if touches {
            last.sectors = last.end().max(next.end()) - last.sector;
        }
        touches
    });
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn bad(sector: u64, sectors: u64) -> BadRange {
        BadRange { sector, sectors }
    }

    #[test]
    fn literal_count() {
        // Not count − 1: an entry of device sector 3000, one sector.
        let mut area = empty_area(4096);
        put_le64(&mut area, 0, 3000 << 10 | 1);
        assert_eq!(BadBlocks::decode(&area, 0).unwrap().ranges(), [bad(3000, 1)]);
        assert_eq!(BadBlocks::decode(&area, 3).unwrap().ranges(), [bad(24000, 8)]);
        assert!(BadBlocks::decode(&empty_area(4096), 0).unwrap().is_empty());
    }

    #[test]
    fn long_ranges_are_split() {
        let mut blocks = BadBlocks::default();
        blocks.insert(bad(100, 1500));
        let area = blocks.encode(4096, 0).unwrap();
        let slots: Vec<u64> = (0..4).map(|slot| le64(&area, 8 * slot)).collect();
        assert_eq!(slots, [100 << 10 | 512, 612 << 10 | 512, 1124 << 10 | 476, u64::MAX]);
        assert_eq!(BadBlocks::decode(&area, 0).unwrap(), blocks);
    }

    #[test]
    fn impossible_entries_are_named() {
        let mut area = empty_area(4096);
        put_le64(&mut area, 0, 7 << 10);
        assert_eq!(BadBlocks::decode(&area, 0), Err(BadBlockError::Entry { slot: 0, raw: 7 << 10 }));
        put_le64(&mut area, 0, u64::MAX - 1);
        assert!(BadBlocks::decode(&area, 40).is_err(), "scaled past 2^64");
        assert_eq!(BadBlocks::decode(&area, 64), Err(BadBlockError::Shift(64)));
    }

    #[test]
    fn a_full_log_says_so() {
        let mut blocks = BadBlocks::default();
        (0..513).for_each(|i| blocks.insert(bad(10 * i, 1)));
        assert_eq!(blocks.encode(4096, 0), Err(BadBlockError::Full { needed: 513, slots: 512 }));
        blocks.remove(bad(0, 10));
        assert!(blocks.encode(4096, 0).is_ok());
        blocks.insert(bad(0, 1 << 60));
        assert!(matches!(blocks.encode(4096, 0), Err(BadBlockError::TooFar(_))));
    }

    proptest! {
        /// The oracle is a set of sectors.
        #[test]
        fn behaves_like_a_set(steps in prop::collection::vec((any::<bool>(), 0_u64..60, 0_u64..12), 0..40)) {
            let (mut blocks, mut set) = (BadBlocks::default(), BTreeSet::new());
            for (add, sector, sectors) in steps {
                if add {
                    blocks.insert(bad(sector, sectors));
                    set.extend(sector..sector + sectors);
                } else {
                    blocks.remove(bad(sector, sectors));
                    set.retain(|s| !(sector..sector + sectors).contains(s));
                }
            }
            let listed: Vec<u64> = blocks.ranges().iter().flat_map(|r| r.sector..r.end()).collect();
            prop_assert_eq!(&listed, &set.iter().copied().collect::<Vec<_>>());
            prop_assert!(blocks.ranges().windows(2).all(|w| w[0].end() < w[1].sector), "merged");
            let area = blocks.encode(4096, 0).unwrap();
            prop_assert_eq!(&BadBlocks::decode(&area, 0).unwrap(), &blocks);
            for sector in 0..72 {
                let hit = blocks.overlapping(sector, 2).next().is_some();
                prop_assert_eq!(hit, set.contains(&sector) || set.contains(&(sector + 1)));
            }
        }
    }
}
