//! The sectors of a member that are known to hold nothing that can be read: its bad-block log in
//! memory.

use std::ops::Range;

use crate::model::units::Sector;

/// Ranges of a member's data sectors: sorted, apart from one another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BadRanges(Vec<Range<Sector>>);

impl BadRanges {
    /// No bad sector.
    pub const NONE: Self = Self(Vec::new());

    /// Whether no sector is bad.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a range, joined with those it touches.
    pub fn insert(&mut self, range: Range<Sector>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|old| old.end < range.start);
        let end = self.0.partition_point(|old| old.start <= range.end);
        let joined =
            self.0[first..end].iter().fold(range, |sum, old| sum.start.min(old.start)..sum.end.max(old.end));
        self.0.splice(first..end, [joined]);
    }

    /// Takes a range out.
    pub fn remove(&mut self, range: Range<Sector>) {
        if range.is_empty() {
            return;
        }
        let keep = |old: &Range<Sector>| {
            [old.start..old.end.min(range.start), old.start.max(range.end)..old.end]
                .into_iter()
                .filter(|rest| !rest.is_empty())
        };
        self.0 = self.0.iter().flat_map(keep).collect();
    }

    /// Whether a range has a bad sector.
    #[must_use]
    pub fn overlaps(&self, range: Range<Sector>) -> bool {
        self.first_in(&range).is_some()
    }

    /// The first bad range that overlaps a range.
    #[must_use]
    pub fn first_in(&self, range: &Range<Sector>) -> Option<Range<Sector>> {
        let first = self.0.partition_point(|old| old.end <= range.start);
        self.0.get(first).filter(|old| old.start < range.end && !range.is_empty()).cloned()
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Range<Sector>> + '_ {
        self.0.iter().cloned()
    }

    /// How many entries of at most `sectors_max` sectors say it.
    #[must_use]
    pub fn entries(&self, sectors_max: u64) -> usize {
        self.0.iter().map(|range| (range.end - range.start).0.div_ceil(sectors_max) as usize).sum()
    }

    /// How many sectors are bad.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.0.iter().map(|range| (range.end - range.start).0).sum()
    }
}

impl FromIterator<Range<Sector>> for BadRanges {
    fn from_iter<I: IntoIterator<Item = Range<Sector>>>(ranges: I) -> Self {
        let mut bad = Self::NONE;
        ranges.into_iter().for_each(|range| bad.insert(range));
        bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_agree_with_a_set_of_sectors(
            changes in proptest::collection::vec((any::<bool>(), 0u64..60, 0u64..12), 0..40)
        ) {
            let mut bad = BadRanges::NONE;
            let mut naive = std::collections::BTreeSet::new();
            for (insert, start, len) in changes {
                let range = Sector(start)..Sector(start + len);
                if insert {
                    bad.insert(range);
                    naive.extend(start..start + len);
                } else {
                    bad.remove(range);
                    naive.retain(|sector| !(start..start + len).contains(sector));
                }
                let sectors: Vec<u64> = bad.iter().flat_map(|range| range.start.0..range.end.0).collect();
                prop_assert_eq!(&sectors, &naive.iter().copied().collect::<Vec<_>>());
                prop_assert!(bad.iter().zip(bad.iter().skip(1)).all(|(a, b)| a.end < b.start));
                for at in 0..60 {
                    let overlaps = naive.range(at..at + 5).next().is_some();
                    prop_assert_eq!(bad.overlaps(Sector(at)..Sector(at + 5)), overlaps);
                    let first = bad.first_in(&(Sector(at)..Sector(at + 5))).map(|range| range.start.0.max(at));
                    prop_assert_eq!(first, naive.range(at..at + 5).next().copied());
                }
            }
        }
    }
}
