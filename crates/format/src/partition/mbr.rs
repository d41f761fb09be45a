//! MBR: four entries in the first sector, and chains of extended boot records for the logical
//! partitions (docs/formats.md §21.1).

use std::collections::BTreeSet;

use crate::bytes::le32;

use super::overlap::Extent;
use super::{ChainError, Disk, Partition, PartitionFault, PartitionType, TableProblem};

/// Boot records of all chains together that are followed. Linux follows 100.
const RECORDS_MAX: usize = 256;

/// An entry of the first sector or of an extended boot record.
#[derive(Clone, Copy, Debug)]
struct Entry {
    boot: u8,
    kind: u8,
    /// In the table's sectors, from where the record that holds it counts.
    start: u32,
    len: u32,
}

impl Entry {
    fn all(sector: &[u8]) -> [Entry; 4] {
        std::array::from_fn(|ix| {
            let entry = &sector[446 + 16 * ix..][..16];
            Entry { boot: entry[0], kind: entry[4], start: le32(entry, 8), len: le32(entry, 12) }
        })
    }

    fn is_used(&self) -> bool {
        self.kind != 0 && self.len != 0
    }

    fn is_extended(&self) -> bool {
        PartitionType::Mbr(self.kind).is_extended()
    }
}

/// The first sector of a disk that has a partition table there.
#[derive(Debug)]
pub(crate) struct Mbr {
    id: u32,
    entries: [Entry; 4],
}

impl Mbr {
    /// `None` if this is not one: file systems begin with a boot sector of the same mark, and so
    /// does boot code without partitions.
    pub(crate) fn parse(sector: &[u8]) -> Option<Self> {
        let sector = sector.get(..512).filter(|sector| has_mark(sector))?;
        let fat = [54, 82].iter().any(|&at| sector[at..].starts_with(b"FAT"));
        if fat || matches!(&sector[3..11], b"NTFS    " | b"EXFAT   " | b"-FVE-FS-") {
            return None;
        }
        let entries = Entry::all(sector);
        let believable = entries.iter().filter(|entry| entry.kind != 0).all(|entry| entry.boot & 0x7f == 0);
        let used = entries.iter().any(Entry::is_used);
        (believable && used).then(|| Mbr { id: le32(sector, 440), entries })
    }

    /// Whether an entry says that the disk is one of GPT's.
    pub(crate) fn is_protective(&self) -> bool {
        self.used().any(|entry| entry.kind == 0xee)
    }

    /// The disk's id in the usual notation.
    pub(crate) fn id(&self) -> Option<String> {
        (self.id != 0).then(|| format!("{:08x}", self.id))
    }

    /// Entries for systems that know no GPT.
    pub(super) fn other_than_protective(&self) -> u32 {
        self.used().filter(|entry| entry.kind != 0xee).count() as u32
    }

    fn used(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.is_used())
    }
}

fn has_mark(sector: &[u8]) -> bool {
    sector[510..512] == [0x55, 0xaa]
}

/// Primary partitions by their place in the table, then the logical ones from 5 on.
pub(super) fn partitions(disk: &mut Disk<'_>, mbr: &Mbr) -> (Vec<Partition>, Vec<TableProblem>) {
    let mut found = Found { unit: u64::from(disk.sector_bytes / 512), disk, mbr, list: Vec::new(), next: 5 };
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for (entry, number) in mbr.entries.iter().zip(1..).filter(|(entry, _)| entry.is_used()) {
        found.add(number, entry, 0);
    }
    let containers: Vec<_> = found.list.iter().filter(|part| part.kind.is_extended()).cloned().collect();
    for container in &containers {
        if let Err(error) = found.follow(container, &mut seen) {
            problems.push(TableProblem::Chain { after: found.next - 1, error });
        }
    }
    (found.list, problems)
}

struct Found<'a, 'd> {
    disk: &'a mut Disk<'d>,
    mbr: &'a Mbr,
    /// Sectors of 512 bytes in one of the table's.
    unit: u64,
    list: Vec<Partition>,
    /// Number of the next logical partition.
    next: u32,
}

impl Found<'_, '_> {
    fn add(&mut self, number: u32, entry: &Entry, base_sectors: u64) {
        let start_sectors = base_sectors + u64::from(entry.start) * self.unit;
        let mut partition = Partition {
            number,
            start_sectors,
            len_sectors: u64::from(entry.len) * self.unit,
            kind: PartitionType::Mbr(entry.kind),
            name: None,
            uuid: self.mbr.id().map(|id| format!("{id}-{number:02x}")),
            flags: u64::from(entry.boot),
            fault: None,
        };
        partition.fault = match () {
            () if start_sectors == 0 => Some(PartitionFault::OverTable),
            () => partition.extent().beyond(self.disk.size_bytes),
        };
        self.list.push(partition);
    }

    /// Follows the chain of an extended partition: each record holds a logical partition, relative
    /// to the record, and the way to the next record, relative to the start of the extended
    /// partition.
    fn follow(&mut self, container: &Partition, seen: &mut BTreeSet<u64>) -> Result<(), ChainError> {
        let mut records = vec![];
        let inside = container.extent();
        let mut at_sectors = container.start_sectors;
        let mut len_sectors = container.len_sectors;
        loop {
            if seen.len() == RECORDS_MAX {
                return Err(ChainError::TooLong { max: RECORDS_MAX });
            }
            if !seen.insert(at_sectors) {
                return Err(ChainError::Circle { at_sectors });
            }
            let sector =
                self.disk.read(at_sectors * 512, 512).ok_or(ChainError::Unreadable { at_sectors })?;
            if !has_mark(&sector) {
                return Err(ChainError::NoMark { at_sectors });
            }
            records.push(at_sectors);
            let entries = Entry::all(&sector);
            for (ix, entry) in entries.iter().enumerate() {
                if !entry.is_used() || entry.is_extended() {
                    continue;
                }
                if ix >= 2 && !self.is_in_record(entry, at_sectors, len_sectors, inside) {
                    continue;
                }
                let number = self.next;
                self.next += 1;
                self.add(number, entry, at_sectors);
                let logical = self.list.last_mut().expect("it was just added");
                let extent = logical.extent();
                if logical.fault.is_none() && !inside.contains(&extent) {
                    logical.fault = Some(PartitionFault::OutsideExtended { number: container.number });
                }
                if logical.fault.is_none() && records.iter().any(|&record| extent.has(record)) {
                    logical.fault = Some(PartitionFault::OverTable);
                }
            }
            let Some(link) = entries.iter().find(|entry| entry.is_used() && entry.is_extended()) else {
                return Ok(());
            };
            at_sectors = container.start_sectors + u64::from(link.start) * self.unit;
            len_sectors = u64::from(link.len) * self.unit;
            if !inside.contains(&Extent { start: at_sectors, end: at_sectors + 1 }) {
                return Err(ChainError::Outside { at_sectors });
            }
        }
    }

    /// Whether what an entry names lies in what the link to its record covers, and in the extended
    /// partition. The third and the fourth entry of a record are not used: what is left there may
    /// be anything, and Linux gives it no number.
    fn is_in_record(&self, entry: &Entry, at_sectors: u64, len_sectors: u64, inside: Extent) -> bool {
        let start = u64::from(entry.start) * self.unit;
        let end = start + u64::from(entry.len) * self.unit;
        end <= len_sectors && inside.contains(&Extent { start: at_sectors + start, end: at_sectors + end })
    }
}
