//! Ranges of sectors, and which partitions share some.

use super::{Partition, PartitionFault};

/// Sectors of 512 bytes, from `start` up to but not including `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Extent {
    pub(super) fn contains(&self, other: &Extent) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    pub(super) fn has(&self, sector: u64) -> bool {
        (self.start..self.end).contains(&sector)
    }

    pub(super) fn meets(&self, other: &Extent) -> bool {
        self.start.max(other.start) < self.end.min(other.end)
    }

    /// What is wrong if it does not lie on a device of that size.
    pub(super) fn beyond(&self, size_bytes: u64) -> Option<PartitionFault> {
        let device_sectors = size_bytes / 512;
        let end_sectors = self.end;
        (end_sectors > device_sectors).then_some(PartitionFault::BeyondDevice { end_sectors, device_sectors })
    }
}

/// Finds every partition that shares sectors with another: which of them is right cannot be known.
/// An extended partition shares its sectors with its logical ones and may share them with no other.
pub(super) fn mark(partitions: &mut [Partition]) {
    let is_extended = |partition: &Partition| partition.kind.is_extended();
    mark_among(partitions, |partition| !is_extended(partition));
    if partitions.iter().any(is_extended) {
        mark_among(partitions, |partition| partition.number <= 4);
    }
}

/// By ascending start, each is compared with whichever of those before reaches furthest. That finds
/// all: two that overlap an earlier third at its end overlap each other, so the earlier of them was
/// found then.
fn mark_among(partitions: &mut [Partition], which: impl Fn(&Partition) -> bool) {
    let mut order: Vec<usize> = (0..partitions.len())
        .filter(|&ix| which(&partitions[ix]) && partitions[ix].len_sectors > 0)
        .collect();
    order.sort_by_key(|&ix| partitions[ix].start_sectors);
    let mut furthest: Option<usize> = None;
    for ix in order {
        let extent = partitions[ix].extent();
        if let Some(before) = furthest {
            let reaches = partitions[before].extent();
            if reaches.meets(&extent) {
                let (number, other) = (partitions[before].number, partitions[ix].number);
                partitions[ix].fault.get_or_insert(PartitionFault::Overlaps { number });
                partitions[before].fault.get_or_insert(PartitionFault::Overlaps { number: other });
            }
            if reaches.end >= extent.end {
                continue;
            }
        }
        furthest = Some(ix);
    }
}
