//! What one core knows to be noted.

use std::cell::Cell;
use std::ops::Range;

use super::SumSpec;
use crate::model::units::Sector;

/// One core's part: a bit for each region that is durably noted.
pub(crate) struct NoteShard {
    region_sectors: u64,
    regions: u64,
    noted: Vec<Cell<u64>>,
    /// How often regions were opened, as far as this core was told.
    epoch: Cell<u64>,
    /// There are sums to be noted in.
    active: Cell<bool>,
}

impl NoteShard {
    pub fn new(spec: &SumSpec) -> Self {
        let regions = spec.regions.count();
        Self {
            region_sectors: spec.regions.size().0,
            regions,
            noted: (0..regions.div_ceil(64)).map(|_| Cell::new(0)).collect(),
            epoch: Cell::new(0),
            active: Cell::new(false),
        }
    }

    pub fn active(&self) -> bool {
        self.active.get()
    }

    pub fn activate(&self) {
        self.active.set(true);
    }

    /// The regions that a range touches.
    pub fn regions_of(&self, range: Range<Sector>) -> Range<u64> {
        if range.is_empty() {
            return 0..0;
        }
        range.start.0 / self.region_sectors..range.end.0.div_ceil(self.region_sectors).min(self.regions)
    }

    fn is_noted(&self, region: u64) -> bool {
        self.noted[(region / 64) as usize].get() >> (region % 64) & 1 == 1
    }

    /// Whether all of them are noted. It is not async: nothing can happen between this and the
    /// write.
    pub fn has(&self, mut regions: Range<u64>) -> bool {
        regions.all(|region| self.is_noted(region))
    }

    /// Those that are not noted.
    pub fn missing(&self, regions: Range<u64>) -> Vec<u64> {
        regions.filter(|&region| !self.is_noted(region)).collect()
    }

    /// The home noted them, when regions had been opened `epoch` times. Since then some may have
    /// been opened again, and those are to be noted anew.
    pub fn grant(&self, regions: &[u64], epoch: u64) {
        if epoch != self.epoch.get() {
            return;
        }
        for region in regions {
            self.noted[(region / 64) as usize].update(|word| word | 1 << (region % 64));
        }
    }

    /// Sums are going to be taken of these regions: what is written there is to be noted again.
    pub fn open(&self, regions: Range<u64>, epoch: u64) {
        self.epoch.set(epoch);
        self.active.set(true);
        for region in regions {
            self.noted[(region / 64) as usize].update(|word| word & !(1 << (region % 64)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::regions::Regions;

    #[test]
    fn what_is_opened_is_noted_anew_and_an_old_answer_is_not_believed() {
        let regions = Regions::new(Sector(128), Sector(128 * 100));
        let notes = NoteShard::new(&SumSpec { block: Sector(128), lanes: 2, regions, sum: |_| 1 });
        assert_eq!(notes.regions_of(Sector(127)..Sector(129)), 0..2);
        assert_eq!((notes.missing(0..2), notes.active()), (vec![0, 1], false));
        notes.grant(&[0, 1, 70], 0);
        assert!(notes.has(0..2) && notes.has(70..71) && !notes.has(0..3));
        notes.open(1..3, 1);
        assert!(notes.has(0..1) && !notes.has(1..2) && notes.active());
        notes.grant(&[1], 0);
        assert!(!notes.has(1..2), "the question was asked before the region was opened");
        notes.grant(&[1], 1);
        assert!(notes.has(1..2));
    }
}
