//! Partition tables: MBR with logical partitions, GPT with either copy, on sectors of 512 and 4096
//! bytes.
//!
//! [`decode`] reads through a callback, a bounded number of times: the first sector, both copies of
//! a GPT, the boot records of logical partitions. What is wrong with a table is a [`TableProblem`];
//! what is wrong with a partition is its [`PartitionFault`], and such a partition is not used.
//! Places: docs/formats.md §21. [`NewTable`] is a GPT to be written.
//!
//! A table alone does not prove that its partitions are in use: a disk that became a member as a
//! whole may still carry one. A caller that asks for partitions also looks at what covers the whole
//! device.

mod gpt;
mod guid;
pub(crate) mod mbr;
mod new;
mod overlap;
mod problem;
mod types;

pub use gpt::ENTRIES_BYTES_MAX;
pub use guid::Guid;
pub use new::{NewPartition, NewTable, NewTableError, PlacedBytes};
pub use problem::{ChainError, GptHeaderError, PartitionFault, TableProblem};
pub use types::PartitionType;

use mbr::Mbr;
use overlap::Extent;

/// A table and its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTable {
    /// Which of the two.
    pub kind: TableKind,
    /// What the table counts in: what it was decoded with; of a GPT the other size where only that
    /// fits.
    pub sector_bytes: u32,
    /// The disk's id, in its own usual notation.
    pub uuid: Option<String>,
    /// By number. Numbers are Linux's: what is `sda5` there is 5 here.
    pub partitions: Vec<Partition>,
    /// What its owner should know.
    pub problems: Vec<TableProblem>,
}

impl PartitionTable {
    /// Whether it is not known what it counts in, and with that where its partitions are.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.problems.iter().any(|problem| matches!(problem, TableProblem::SectorSizeUnknown { .. }))
    }

    /// Whether a problem of this table leaves partitions unknown: behind the end of a chain there
    /// may be more, and in a GPT without a usable copy all of them are.
    #[must_use]
    pub fn hides_partitions(&self, problem: &TableProblem) -> bool {
        match problem {
            TableProblem::Chain { .. } => true,
            // Every usable copy has an id.
            TableProblem::Primary(_) | TableProblem::Backup(_) => self.uuid.is_none(),
            _ => false,
        }
    }
}

/// Kinds of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableKind {
    /// The old one, of four entries.
    Mbr,
    /// The one of UEFI.
    Gpt,
}

impl TableKind {
    /// Short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TableKind::Mbr => "MBR",
            TableKind::Gpt => "GPT",
        }
    }
}

/// One partition. Sectors are of 512 bytes, whatever the table counts in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// From 1; logical partitions from 5.
    pub number: u32,
    /// Where it starts.
    pub start_sectors: u64,
    /// How long it is; 0 if its entry makes no sense.
    pub len_sectors: u64,
    /// What it says it is for.
    pub kind: PartitionType,
    /// Its name, in a GPT; control characters are replaced.
    pub name: Option<String>,
    /// What Linux calls its PARTUUID.
    pub uuid: Option<String>,
    /// The attributes of a GPT entry; of an MBR entry its first byte (0x80: active).
    pub flags: u64,
    /// Why it must not be used.
    pub fault: Option<PartitionFault>,
}

impl Partition {
    /// Whether it holds something and may be used: extended partitions only hold other partitions.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.fault.is_none() && !self.kind.is_extended()
    }

    fn extent(&self) -> Extent {
        Extent { start: self.start_sectors, end: self.start_sectors.saturating_add(self.len_sectors) }
    }
}

/// The device a table is read from.
struct Disk<'a> {
    size_bytes: u64,
    sector_bytes: u32,
    read: &'a mut dyn FnMut(u64, usize) -> Option<Vec<u8>>,
}

impl Disk<'_> {
    fn read(&mut self, offset_bytes: u64, len_bytes: usize) -> Option<Vec<u8>> {
        let end_bytes = offset_bytes.checked_add(len_bytes as u64)?;
        if end_bytes > self.size_bytes {
            return None;
        }
        (self.read)(offset_bytes, len_bytes).filter(|bytes| bytes.len() == len_bytes)
    }
}

/// The partition table of a device with sectors of `sector_bytes` (512 or 4096; files have 512).
/// `read` gets so many bytes at an offset (bytes), or `None` if it cannot have all of them.
///
/// `None` if there is none, or none that any system would use: a GPT needs one intact copy, or the
/// entry in the MBR that announces it. Then it has no partitions, and its problems say why.
#[must_use]
pub fn decode(
    size_bytes: u64,
    sector_bytes: u32,
    mut read: impl FnMut(u64, usize) -> Option<Vec<u8>>,
) -> Option<PartitionTable> {
    let sector_bytes = if sector_bytes == 4096 { 4096 } else { 512 };
    let mut disk = Disk { size_bytes, sector_bytes, read: &mut read };
    let mbr = disk.read(0, 512).and_then(|sector| Mbr::parse(&sector));
    let gpt = gpt::find(&mut disk);
    match (mbr, gpt) {
        (Some(mbr), gpt) if !mbr.is_protective() => {
            Some(mbr_table(&mut disk, &mbr, gpt.is_some_and(|gpt| gpt.copy.is_some())))
        }
        (Some(mbr), gpt) => {
            let lost = || gpt::Found {
                sector_bytes,
                copy: None,
                problems: vec![
                    TableProblem::Primary(GptHeaderError::NoSignature),
                    TableProblem::Backup(GptHeaderError::NoSignature),
                ],
            };
            let mut table = gpt_table(size_bytes, gpt.unwrap_or_else(lost));
            let partitions = mbr.other_than_protective();
            if partitions > 0 {
                table.problems.push(TableProblem::Hybrid { partitions });
            }
            Some(table)
        }
        (None, Some(gpt)) if gpt.copy.is_some() => {
            let mut table = gpt_table(size_bytes, gpt);
            table.problems.push(TableProblem::NoProtectiveMbr);
            Some(table)
        }
        (None, _) => None,
    }
}

fn mbr_table(disk: &mut Disk<'_>, mbr: &Mbr, stale_gpt: bool) -> PartitionTable {
    let (mut partitions, mut problems) = mbr::partitions(disk, mbr);
    overlap::mark(&mut partitions);
    if stale_gpt {
        problems.push(TableProblem::StaleGpt);
    }
    let (kind, sector_bytes) = (TableKind::Mbr, disk.sector_bytes);
    PartitionTable { kind, sector_bytes, uuid: mbr.id(), partitions, problems }
}

fn gpt_table(size_bytes: u64, found: gpt::Found) -> PartitionTable {
    let gpt::Found { sector_bytes, copy, problems } = found;
    let mut partitions = copy.as_ref().map_or(Vec::new(), |copy| copy.partitions(size_bytes, sector_bytes));
    overlap::mark(&mut partitions);
    let uuid = copy.map(|copy| copy.guid().to_string());
    PartitionTable { kind: TableKind::Gpt, sector_bytes, uuid, partitions, problems }
}
