//! A member's bad-block log as it is kept on its device (docs/formats.md §3), and how it is
//! changed.
//!
//! The log counts sectors from the start of the device, the engine from the start of the data.
//! Entries outside of the data are not this array's and are kept.
//!
//! **A power cut must not lose an entry**: what a bad sector holds would be taken for data. The log
//! has no checksum and may span several blocks of the drive, of which any may arrive. So a log that
//! fits one block is written sorted, as the kernel does; a longer one is changed in two steps of
//! which each changes only slots that nothing depends on: first new entries are appended, then old
//! ones shrink where they are. Readers sort and merge whatever they find.

use std::ops::Range;

use wattle_engine::BadRanges;
use wattle_engine::units::{SECTOR_BYTES, Sector};
use wattle_format::md::badblocks::{BadBlockError, BadBlocks, BadRange};
use wattle_format::md::{BadBlockArea, Superblock};
use wattle_rt::Device;

use crate::md::areas::beside_data;

const SLOT_BYTES: usize = 8;

/// How many entries the log of a member has room for; 0 if it has none.
pub(crate) fn entries_max(superblock: &Superblock, device: &Device) -> usize {
    let log = BadLog::empty(superblock, device.logical_block_bytes() as usize);
    log.map_or(0, |log| log.len_bytes / SLOT_BYTES)
}

/// A log as it is on a device.
#[derive(Debug, Clone)]
pub(crate) struct BadLog {
    /// First byte of the area on the device.
    pub at_bytes: u64,
    /// Its length.
    pub len_bytes: usize,
    shift: u8,
    /// What arrives whole or not at all.
    block_bytes: usize,
    /// Entries as stored, up to the end mark.
    slots: Vec<u64>,
    /// Data sectors of the device.
    data: Range<u64>,
}

impl BadLog {
    /// The empty log of a member; `None` if its superblock gives it no room, or none beside the
    /// data.
    pub(crate) fn empty(superblock: &Superblock, block_bytes: usize) -> Option<Self> {
        let BadBlockArea { offset_sectors, size_sectors, shift } = superblock.bad_block_log()?;
        let place = beside_data(superblock, offset_sectors, u64::from(size_sectors))?;
        let at_bytes = place.start.checked_mul(SECTOR_BYTES)?;
        let len_bytes = usize::from(size_sectors) * SECTOR_BYTES as usize;
        let aligned = at_bytes.is_multiple_of(block_bytes as u64) && len_bytes.is_multiple_of(block_bytes);
        let start = superblock.data_offset_sectors();
        let data = start..start.saturating_add(superblock.data_size_sectors());
        let log = Self { at_bytes, len_bytes, shift, block_bytes, slots: Vec::new(), data };
        (aligned && shift < 64 && len_bytes > 0).then_some(log)
    }

    /// Takes in what is on the device.
    ///
    /// # Errors
    /// Which sectors it means cannot be told.
    pub(crate) fn load(&mut self, area: &[u8]) -> Result<(), BadBlockError> {
        BadBlocks::decode(area, self.shift)?;
        let words = area
            .chunks_exact(SLOT_BYTES)
            .map(|slot| slot.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)));
        self.slots = words.take_while(|&word| word != u64::MAX).collect();
        Ok(())
    }

    /// The device sectors that it lists.
    fn listed(&self) -> BadBlocks {
        let mut listed = BadBlocks::default();
        self.slots.iter().for_each(|&slot| listed.insert(self.range(slot)));
        listed
    }

    /// Whether it lists sectors outside of the data.
    pub(crate) fn has_outside(&self) -> bool {
        !self.outside().is_empty()
    }

    fn outside(&self) -> BadBlocks {
        let mut outside = self.listed();
        outside.remove(BadRange { sector: self.data.start, sectors: self.data.end - self.data.start });
        outside
    }

    /// The images of the area to write one after the other, each durably, until it lists `bad`
    /// (data sectors); none if it does already.
    ///
    /// # Errors
    /// They do not fit.
    pub(crate) fn plan(&mut self, bad: &BadRanges) -> Result<Vec<Vec<u8>>, BadBlockError> {
        let mut wanted = self.outside();
        for range in bad.iter() {
            let sectors = (range.end - range.start).0;
            wanted.insert(BadRange { sector: self.data.start.saturating_add(range.start.0), sectors });
        }
        // With a shift the log knows whole units only.
        let sorted = wanted.encode(self.len_bytes, self.shift);
        if let Ok(area) = &sorted {
            wanted = BadBlocks::decode(area, self.shift)?;
        }
        if wanted == self.listed() {
            return Ok(Vec::new());
        }
        let in_one_block = |slots: &[u64]| slots.len() * SLOT_BYTES <= self.block_bytes;
        let mut next = self.clone();
        let area = sorted?;
        next.load(&area)?;
        if in_one_block(&self.slots) && in_one_block(&next.slots) {
            *self = next;
            return Ok(vec![area]);
        }
        let appended = self.append(&wanted)?;
        let shrunk = self.shrink(&appended, &wanted);
        let mut images = Vec::new();
        for slots in [appended, shrunk] {
            if slots != self.slots {
                images.push(self.image(&slots));
                self.slots = slots;
            }
        }
        Ok(images)
    }

    /// The present slots, none changed but those that say what others say too; and more, until all
    /// of `wanted` is listed even when every slot has only its first piece of it.
    fn append(&self, wanted: &BadBlocks) -> Result<Vec<u64>, BadBlockError> {
        let mut missing = wanted.clone();
        for &slot in &self.slots {
            if let Some(first) = self.pieces(slot, wanted).first() {
                missing.remove(*first);
            }
        }
        let mut new: Vec<u64> = missing.ranges().iter().flat_map(|range| self.entries(range)).collect();
        let mut slots = self.slots.clone();
        for ix in 0..slots.len() {
            if slots[..ix].contains(&slots[ix])
                && let Some(entry) = new.pop()
            {
                slots[ix] = entry;
            }
        }
        slots.extend(new);
        let capacity = self.len_bytes / SLOT_BYTES;
        if slots.len() > capacity {
            return Err(BadBlockError::Full { needed: slots.len(), slots: capacity });
        }
        Ok(slots)
    }

    /// The slots without what is not wanted, each in its place: those that are left with nothing
    /// repeat another.
    fn shrink(&self, slots: &[u64], wanted: &BadBlocks) -> Vec<u64> {
        let kept: Vec<Option<u64>> = slots
            .iter()
            .map(|&slot| Some(self.entries(self.pieces(slot, wanted).first()?).next().unwrap_or(slot)))
            .collect();
        let Some(end) = kept.iter().rposition(Option::is_some) else { return Vec::new() };
        let filler = kept.iter().flatten().next().copied().unwrap_or_default();
        kept[..=end].iter().map(|slot| slot.unwrap_or(filler)).collect()
    }

    /// The parts of an entry that are wanted.
    fn pieces(&self, slot: u64, wanted: &BadBlocks) -> Vec<BadRange> {
        let of = self.range(slot);
        let part = |range: BadRange| {
            let sector = range.sector.max(of.sector);
            BadRange { sector, sectors: range.end().min(of.end()) - sector }
        };
        wanted.overlapping(of.sector, of.sectors).map(part).collect()
    }

    fn range(&self, slot: u64) -> BadRange {
        BadRange { sector: slot >> 10 << self.shift, sectors: (slot & 0x3ff) << self.shift }
    }

    /// The entries that list a range of whole units.
    fn entries(&self, range: &BadRange) -> impl Iterator<Item = u64> + use<> {
        let (start, end) = (range.sector >> self.shift, range.end() >> self.shift);
        (start..end).step_by(512).map(move |unit| unit << 10 | (end - unit).min(512))
    }

    fn image(&self, slots: &[u64]) -> Vec<u8> {
        let mut area = vec![0xff; self.len_bytes];
        for (bytes, slot) in area.chunks_exact_mut(SLOT_BYTES).zip(slots) {
            bytes.copy_from_slice(&slot.to_le_bytes());
        }
        area
    }
}

/// The bad ranges of a device as ranges of its data.
#[must_use]
pub fn in_data(device_ranges: &BadBlocks, data: &Range<u64>) -> BadRanges {
    let inside = device_ranges.overlapping(data.start, data.end.saturating_sub(data.start));
    inside
        .map(|range| {
            let (start, end) = (range.sector.max(data.start), range.end().min(data.end));
            Sector(start - data.start)..Sector(end - data.start)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DATA: Range<u64> = 2048..100_000;

    fn log(shift: u8) -> BadLog {
        BadLog { at_bytes: 0, len_bytes: 4096, shift, block_bytes: 512, slots: Vec::new(), data: DATA }
    }

    fn sectors(bad: &BadBlocks) -> std::collections::BTreeSet<u64> {
        bad.ranges().iter().flat_map(|range| range.sector..range.end()).collect()
    }

    /// docs/formats.md §3: the entry is absolute on the device.
    #[test]
    fn entries_count_from_the_start_of_the_device() {
        let mut log = log(0);
        let bad: BadRanges = [Sector(952)..Sector(953)].into_iter().collect();
        let images = log.plan(&bad).unwrap();
        assert_eq!(images.len(), 1);
        assert_eq!(images[0][..16], [&(3000u64 << 10 | 1).to_le_bytes()[..], &[0xff; 8]].concat());
        assert!(log.plan(&bad).unwrap().is_empty(), "nothing changed, nothing is written");
        assert_eq!(log.plan(&BadRanges::NONE).unwrap(), [vec![0xff; 4096]]);
    }

    #[test]
    fn what_lies_outside_of_the_data_is_kept() {
        let mut log = log(0);
        log.slots = vec![100 << 10 | 8, 3000 << 10 | 1];
        assert!(log.has_outside());
        let images = log.plan(&BadRanges::NONE).unwrap();
        assert_eq!(
            BadBlocks::decode(&images[0], 0).unwrap().ranges(),
            [BadRange { sector: 100, sectors: 8 }]
        );
    }

    #[test]
    fn a_log_that_is_full_says_so_and_stays_as_it_is() {
        let mut log = log(0);
        let bad = |count: u64| (0..count).map(|i| Sector(4 * i)..Sector(4 * i + 1)).collect::<BadRanges>();
        assert!(log.plan(&bad(512)).is_ok());
        let before = log.slots.clone();
        assert!(matches!(log.plan(&bad(513)), Err(BadBlockError::Full { needed: 513, slots: 512 })));
        assert_eq!(log.slots, before);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
        /// Whatever blocks of each image arrive, what was bad before and is after is never
        /// forgotten.
        #[test]
        fn no_torn_log_forgets_an_entry(
            shift in 0u8..3,
            steps in prop::collection::vec(
                prop::collection::vec((any::<bool>(), 0u64..3000, 1u64..40), 1..60), 1..8),
            arrived in any::<[u8; 8]>(),
        ) {
            let mut log = log(shift);
            let mut area = vec![0xff; 4096];
            let mut bad: BadRanges = (0..70u64).map(|i| Sector(16 * i)..Sector(16 * i + 4)).collect();
            for (step, arrived) in steps.iter().zip(arrived.iter().cycle()) {
                let before = sectors(&BadBlocks::decode(&area, shift).unwrap());
                let Ok(images) = log.plan(&bad) else { return Ok(()) };
                let wanted: std::collections::BTreeSet<u64> =
                    bad.iter().flat_map(|range| range.start.0 + DATA.start..range.end.0 + DATA.start).collect();
                for image in images {
                    let mut torn = area.clone();
                    for block in 0..8 {
                        if arrived >> block & 1 == 1 {
                            torn[512 * block..512 * (block + 1)].copy_from_slice(&image[512 * block..512 * (block + 1)]);
                        }
                    }
                    let torn = sectors(&BadBlocks::decode(&torn, shift).unwrap());
                    prop_assert!(before.intersection(&wanted).all(|sector| torn.contains(sector)));
                    area = image;
                }
                let after = sectors(&BadBlocks::decode(&area, shift).unwrap());
                prop_assert!(wanted.is_subset(&after));
                let units: std::collections::BTreeSet<u64> = wanted.iter().map(|sector| sector >> shift).collect();
                prop_assert_eq!(units, after.iter().map(|sector| sector >> shift).collect());
                for &(add, start, len) in step {
                    let range = Sector(start)..Sector(start + len);
                    if add { bad.insert(range) } else { bad.remove(range) }
                }
            }
        }
    }
}
