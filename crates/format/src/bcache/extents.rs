//! Which sectors have their newest data on the cache device: a map that keys are written over, in
//! the order in which they were made.

use std::collections::BTreeMap;

use super::key::{BcacheKey, BcachePointer};

/// A run of sectors that the cache has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedRun {
    /// The number of its backing device.
    pub inode: u32,
    /// Where it begins on that device, sectors: from its start, not from that of its data.
    pub start_sector: u64,
    /// Where it ends.
    pub end_sector: u64,
    /// Where it begins on the cache device, sectors.
    pub cache_sector: u64,
    /// The generation of its bucket.
    pub generation: u8,
    /// Whether the backing device lacks it.
    pub is_dirty: bool,
}

#[derive(Debug, Clone, Copy)]
struct CachedPiece {
    end_sector: u64,
    cache_sector: u64,
    generation: u8,
    is_dirty: bool,
}

/// Runs that do not overlap, by backing device and first sector. About 60 bytes each.
#[derive(Debug, Clone, Default)]
pub struct BcacheExtents {
    pieces: BTreeMap<(u32, u64), CachedPiece>,
}

impl BcacheExtents {
    /// Lays a key over what is there. `at` is where its data is; without it, what was there before
    /// is forgotten.
    pub fn overwrite(&mut self, key: &BcacheKey, at: Option<BcachePointer>) {
        let Some((start, end)) = key.range().filter(|(start, end)| start < end) else { return };
        self.cut(key.inode, start, end);
        if let Some(pointer) = at {
            let piece = CachedPiece {
                end_sector: end,
                cache_sector: pointer.sector,
                generation: pointer.generation,
                is_dirty: key.is_dirty,
            };
            self.pieces.insert((key.inode, start), piece);
        }
    }

    fn cut(&mut self, inode: u32, start: u64, end: u64) {
        while let Some((&(_, at), &piece)) = self.pieces.range((inode, 0)..(inode, end)).next_back() {
            if piece.end_sector <= start {
                break;
            }
            self.pieces.remove(&(inode, at));
            if piece.end_sector > end {
                let cache_sector = piece.cache_sector + (end - at);
                self.pieces.insert((inode, end), CachedPiece { cache_sector, ..piece });
            }
            if at < start {
                self.pieces.insert((inode, at), CachedPiece { end_sector: start, ..piece });
            }
        }
    }

    /// Takes in the runs of another, which has other sectors.
    pub fn extend(&mut self, other: &Self) {
        self.pieces.extend(&other.pieces);
    }

    /// Forgets what the backing devices have too.
    pub fn keep_dirty(&mut self) {
        self.pieces.retain(|_, piece| piece.is_dirty);
    }

    /// How many runs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// All runs, in order.
    pub fn runs(&self) -> impl Iterator<Item = CachedRun> + '_ {
        self.pieces.iter().map(|(&(inode, start_sector), piece)| CachedRun {
            inode,
            start_sector,
            end_sector: piece.end_sector,
            cache_sector: piece.cache_sector,
            generation: piece.generation,
            is_dirty: piece.is_dirty,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random keys over a model of single sectors.
    #[test]
    fn the_newest_key_of_each_sector_wins() {
        let mut dice = 7_u64;
        let mut roll = |below: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % below
        };
        for _ in 0..50 {
            let mut extents = BcacheExtents::default();
            let mut model = [[None; 64]; 2];
            for nth in 0..200 {
                let (inode, start, sectors) = (roll(2) as u32, roll(50), 1 + roll(14));
                let (sector, generation) = (nth * 1000, roll(256) as u8);
                let is_dirty = roll(2) == 1;
                let key = BcacheKey {
                    inode,
                    end_sector: start + sectors,
                    sectors: sectors as u16,
                    is_dirty,
                    pointer: None,
                };
                let at = (roll(3) > 0).then_some(BcachePointer { device: 0, sector, generation, word: 0 });
                extents.overwrite(&key, at);
                for nth in 0..sectors {
                    model[inode as usize][(start + nth) as usize] =
                        at.map(|at| (at.sector + nth, generation, is_dirty));
                }
                let mut found = [[None; 64]; 2];
                for run in extents.runs() {
                    assert!(run.start_sector < run.end_sector);
                    for sector in run.start_sector..run.end_sector {
                        let place = &mut found[run.inode as usize][sector as usize];
                        let at = run.cache_sector + sector - run.start_sector;
                        assert!(place.replace((at, run.generation, run.is_dirty)).is_none());
                    }
                }
                assert_eq!(found, model);
            }
        }
    }
}
