//! Sets of regions: what a write-intent bitmap has a bit for.

use std::ops::Range;

use crate::model::units::Sector;

/// A set of regions of one size that together cover a space; the last one may be cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Regions {
    size: Sector,
    total: Sector,
    words: Vec<u64>,
}

impl Regions {
    /// No region of a space of `total` sectors in regions of `size`.
    ///
    /// # Panics
    /// If `size` is 0.
    #[must_use]
    pub fn new(size: Sector, total: Sector) -> Self {
        assert!(size > Sector(0), "a region has sectors");
        let count = total.0.div_ceil(size.0);
        Self { size, total, words: vec![0; count.div_ceil(64) as usize] }
    }

    /// Every region of a space.
    ///
    /// # Panics
    /// If `size` is 0.
    #[must_use]
    pub fn full(size: Sector, total: Sector) -> Self {
        let mut regions = Self::new(size, total);
        (0..regions.count()).for_each(|region| regions.insert(region));
        regions
    }

    /// Sectors of a region.
    #[must_use]
    pub fn size(&self) -> Sector {
        self.size
    }

    /// Sectors of the space.
    #[must_use]
    pub fn total(&self) -> Sector {
        self.total
    }

    /// How many regions the space has.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.total.0.div_ceil(self.size.0)
    }

    /// Adds a region; those behind the end are ignored.
    pub fn insert(&mut self, region: u64) {
        if region < self.count() {
            self.words[(region / 64) as usize] |= 1 << (region % 64);
        }
    }

    /// Removes a region.
    pub fn remove(&mut self, region: u64) {
        if let Some(word) = self.words.get_mut((region / 64) as usize) {
            *word &= !(1 << (region % 64));
        }
    }

    /// Whether the region is in the set.
    #[must_use]
    pub fn contains(&self, region: u64) -> bool {
        self.words.get((region / 64) as usize).is_some_and(|word| word >> (region % 64) & 1 == 1)
    }

    /// The regions that a range of sectors touches.
    #[must_use]
    pub fn indexes_of(&self, range: Range<Sector>) -> Range<u64> {
        if range.is_empty() {
            return 0..0;
        }
        range.start.0 / self.size.0..range.end.0.div_ceil(self.size.0).min(self.count())
    }

    /// The sectors of a region.
    #[must_use]
    pub fn range_of(&self, region: u64) -> Range<Sector> {
        Sector(region * self.size.0)..Sector(((region + 1) * self.size.0).min(self.total.0))
    }

    /// Whether a range touches a region of the set.
    #[must_use]
    pub fn any_in(&self, range: Range<Sector>) -> bool {
        self.indexes_of(range).any(|region| self.contains(region))
    }

    /// The regions of the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.words.iter().enumerate().flat_map(|(ix, &word)| {
            std::iter::successors((word != 0).then_some(word), |rest| {
                let rest = rest & (rest - 1);
                (rest != 0).then_some(rest)
            })
            .map(move |rest| ix as u64 * 64 + u64::from(rest.trailing_zeros()))
        })
    }

    /// The first region of the set that ends behind `sector`.
    #[must_use]
    pub fn next_from(&self, sector: Sector) -> Option<u64> {
        let mut region = sector.0 / self.size.0;
        while region < self.count() {
            let word = self.words[(region / 64) as usize] >> (region % 64);
            if word != 0 {
                return Some(region + u64::from(word.trailing_zeros()));
            }
            region = (region / 64 + 1) * 64;
        }
        None
    }

    /// How many regions are in the set.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Adds every region of `other`, which has the same shape.
    ///
    /// # Panics
    /// If the shapes differ.
    pub fn union_with(&mut self, other: &Self) {
        assert_eq!((self.size, self.total), (other.size, other.total), "regions of one space");
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_find_their_regions_and_regions_their_ranges() {
        let mut set = Regions::new(Sector(100), Sector(15_050));
        assert_eq!(set.count(), 151);
        set.insert(0);
        set.insert(70);
        set.insert(150);
        set.insert(151);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 70, 150]);
        assert_eq!((set.len(), set.is_empty()), (3, false));
        assert_eq!(set.range_of(150), Sector(15_000)..Sector(15_050));
        assert!(set.any_in(Sector(7_099)..Sector(7_100)) && !set.any_in(Sector(7_100)..Sector(15_000)));
        assert!(!set.any_in(Sector(7_050)..Sector(7_050)));
        assert_eq!(set.indexes_of(Sector(99)..Sector(201)), 0..3);
        assert_eq!(set.next_from(Sector(100)), Some(70));
        assert_eq!(set.next_from(Sector(7_099)), Some(70));
        assert_eq!(set.next_from(Sector(7_100)), Some(150));
        set.remove(150);
        assert_eq!(set.next_from(Sector(7_100)), None);
        assert_eq!(Regions::full(Sector(100), Sector(15_050)).len(), 151);
    }
}
