//! GPT: a header and an array of entries at the start of the disk, and both once more at its end
//! (docs/formats.md §21.2).

use crate::bytes::{array, le32, le64};
use crate::crc32;
use crate::text::printable;

use super::overlap::Extent;
use super::{Disk, GptHeaderError, Guid, Partition, PartitionFault, PartitionType, TableProblem};

/// More than this no table needs: 32,768 entries of the usual size.
pub const ENTRIES_BYTES_MAX: u64 = 4 << 20;

/// Up to the last field.
const HEADER_BYTES: u32 = 92;
const SIGNATURE: &[u8] = b"EFI PART";

/// A GPT that was found, in whatever state.
#[derive(Debug)]
pub(super) struct Found {
    /// What the table counts in.
    pub(super) sector_bytes: u32,
    /// The copy that counts; `None` when neither is usable.
    pub(super) copy: Option<Copy>,
    pub(super) problems: Vec<TableProblem>,
}

/// Header and entries of one copy, all checksums right.
#[derive(Debug)]
pub(super) struct Copy {
    header: Header,
    entries: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Header {
    /// Where the other copy's header is.
    alternate: u64,
    last_usable: u64,
    guid: Guid,
    entries_at: u64,
    count: u32,
    entry_bytes: u32,
    entries_checksum: u32,
    /// Where this header is.
    at: u64,
}

/// Looks for a GPT in sectors of the device's size, then of the other usual one: a disk's image is
/// a file with sectors of 512 bytes whatever the disk had. `None` if there is no trace of one.
pub(super) fn find(disk: &mut Disk<'_>) -> Option<Found> {
    let device_bytes = disk.sector_bytes;
    let other_bytes = if device_bytes == 512 { 4096 } else { 512 };
    let mut traces: Vec<_> =
        [device_bytes, other_bytes].into_iter().filter_map(|bytes| look(disk, bytes)).collect();
    let best = traces.iter().position(|found| found.copy.is_some()).unwrap_or(0);
    if best == traces.len() {
        return None;
    }
    let mut found = traces.swap_remove(best);
    if found.sector_bytes != device_bytes && found.copy.is_some() {
        found.problems.insert(0, TableProblem::SectorSize { table_bytes: found.sector_bytes, device_bytes });
    }
    Some(found)
}

/// Looks in sectors of one size.
fn look(disk: &mut Disk<'_>, sector_bytes: u32) -> Option<Found> {
    let last = (disk.size_bytes / u64::from(sector_bytes)).checked_sub(1)?;
    let primary_header = header(disk, sector_bytes, 1);
    let primary = primary_header.clone().and_then(|header| with_entries(disk, sector_bytes, header));
    // The primary knows where the backup is; without it only the end of the disk is left to look
    // at.
    let alternate = primary_header.as_ref().map_or(last, |header| header.alternate);
    let shorter = alternate > last;
    let mut backup_at = alternate.min(last);
    let mut backup = copy(disk, sector_bytes, backup_at);
    if backup.is_err() && primary.is_err() && backup_at != last {
        backup_at = last;
        backup = copy(disk, sector_bytes, last);
    }
    let trace = |copy: &Result<Copy, GptHeaderError>| {
        !matches!(copy, Err(GptHeaderError::NoSignature | GptHeaderError::Unreadable))
    };
    if !trace(&primary) && !trace(&backup) {
        return None;
    }
    let mut problems = Vec::new();
    match (&primary, &backup) {
        (Ok(primary), Ok(backup)) if primary.says_other_than(backup) => {
            problems.push(TableProblem::CopiesDiffer);
        }
        (Ok(_), _) => (),
        (Err(error), _) => problems.push(TableProblem::Primary(error.clone())),
    }
    match &backup {
        // It was cut off with the end of the disk, which is told below.
        Err(_) if shorter && primary.is_ok() => (),
        Err(error) => problems.push(TableProblem::Backup(error.clone())),
        Ok(_) if backup_at < last => problems.push(TableProblem::BackupNotAtEnd {
            at_bytes: backup_at * u64::from(sector_bytes),
            size_bytes: disk.size_bytes,
        }),
        Ok(_) => (),
    }
    let copy = primary.or(backup).ok();
    if let Some(copy) = &copy {
        let needs = copy.header.last_usable.max(copy.header.alternate);
        if needs > last {
            problems.push(TableProblem::DeviceShorter {
                table_bytes: needs.saturating_add(1).saturating_mul(u64::from(sector_bytes)),
                size_bytes: disk.size_bytes,
            });
        }
    }
    Some(Found { sector_bytes, copy, problems })
}

fn copy(disk: &mut Disk<'_>, sector_bytes: u32, at: u64) -> Result<Copy, GptHeaderError> {
    let header = header(disk, sector_bytes, at)?;
    with_entries(disk, sector_bytes, header)
}

fn header(disk: &mut Disk<'_>, sector_bytes: u32, at: u64) -> Result<Header, GptHeaderError> {
    let sector = at.checked_mul(u64::from(sector_bytes)).and_then(|at| disk.read(at, sector_bytes as usize));
    let sector = sector.ok_or(GptHeaderError::Unreadable)?;
    if !sector.starts_with(SIGNATURE) {
        return Err(GptHeaderError::NoSignature);
    }
    let found = le32(&sector, 12);
    if !(HEADER_BYTES..=sector_bytes).contains(&found) {
        return Err(GptHeaderError::HeaderBytes { found });
    }
    let stored = le32(&sector, 16);
    let mut covered = sector[..found as usize].to_vec();
    covered[16..20].fill(0);
    let computed = crc32::checksum(&covered);
    if stored != computed {
        return Err(GptHeaderError::HeaderChecksum { stored, computed });
    }
    if le64(&sector, 24) != at {
        return Err(GptHeaderError::WrongPlace { stored: le64(&sector, 24), found_at: at });
    }
    Ok(Header {
        alternate: le64(&sector, 32),
        last_usable: le64(&sector, 48),
        guid: Guid::from_disk(&array(&sector, 56)),
        entries_at: le64(&sector, 72),
        count: le32(&sector, 80),
        entry_bytes: le32(&sector, 84),
        entries_checksum: le32(&sector, 88),
        at,
    })
}

fn with_entries(disk: &mut Disk<'_>, sector_bytes: u32, header: Header) -> Result<Copy, GptHeaderError> {
    let (count, bytes) = (header.count, header.entry_bytes);
    let len_bytes = u64::from(count) * u64::from(bytes);
    if bytes < 128 || bytes % 8 != 0 || count == 0 || len_bytes > ENTRIES_BYTES_MAX {
        return Err(GptHeaderError::Entries { count, bytes });
    }
    let sector = header.entries_at;
    let start_bytes = sector.checked_mul(u64::from(sector_bytes)).filter(|_| sector >= 2);
    let start_bytes = start_bytes.ok_or(GptHeaderError::EntriesPlace { sector })?;
    if start_bytes.checked_add(len_bytes).is_none_or(|end_bytes| end_bytes > disk.size_bytes) {
        return Err(GptHeaderError::EntriesPlace { sector });
    }
    let entries = disk.read(start_bytes, len_bytes as usize).ok_or(GptHeaderError::EntriesUnreadable)?;
    let (stored, computed) = (header.entries_checksum, crc32::checksum(&entries));
    if stored != computed {
        return Err(GptHeaderError::EntriesChecksum { stored, computed });
    }
    Ok(Copy { header, entries })
}

impl Copy {
    /// The disk's id.
    pub(super) fn guid(&self) -> Guid {
        self.header.guid
    }

    fn says_other_than(&self, other: &Copy) -> bool {
        self.header.guid != other.header.guid || self.entries != other.entries
    }

    /// The entries that are used, in order. Numbers count from 1 and skip none.
    pub(super) fn partitions(&self, size_bytes: u64, sector_bytes: u32) -> Vec<Partition> {
        let unit = u64::from(sector_bytes / 512);
        let table = self.extents(unit, sector_bytes);
        let entries = self.entries.chunks_exact(self.header.entry_bytes as usize).zip(1..);
        entries.filter_map(|(entry, number)| partition(entry, number, unit, size_bytes, &table)).collect()
    }

    /// The sectors of this copy itself, boot sector included.
    fn extents(&self, unit: u64, sector_bytes: u32) -> [Extent; 3] {
        let of = |at: u64, sectors: u64| Extent {
            start: at.saturating_mul(unit),
            end: at.saturating_add(sectors).saturating_mul(unit),
        };
        let entries = (self.entries.len() as u64).div_ceil(u64::from(sector_bytes));
        [of(0, 2), of(self.header.at, 1), of(self.header.entries_at, entries)]
    }
}

fn partition(entry: &[u8], number: u32, unit: u64, size_bytes: u64, table: &[Extent]) -> Option<Partition> {
    let kind = Guid::from_disk(&array(entry, 0));
    if kind.is_nil() {
        return None;
    }
    let (first, last) = (le64(entry, 32), le64(entry, 40));
    let start_sectors = first.saturating_mul(unit);
    let end_sectors = last.saturating_add(1).saturating_mul(unit);
    let mut partition = Partition {
        number,
        start_sectors,
        len_sectors: end_sectors.saturating_sub(start_sectors),
        kind: PartitionType::Gpt(kind),
        name: name(&entry[56..128]),
        uuid: Some(Guid::from_disk(&array(entry, 16)).to_string()),
        flags: le64(entry, 48),
        fault: None,
    };
    let extent = partition.extent();
    partition.fault = match () {
        () if last < first => Some(PartitionFault::Reversed),
        () if table.iter().any(|part| part.meets(&extent)) => Some(PartitionFault::OverTable),
        () => extent.beyond(size_bytes),
    };
    Some(partition)
}

/// UTF-16 up to its padding.
fn name(bytes: &[u8]) -> Option<String> {
    let units = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let text: String = char::decode_utf16(units.take_while(|&unit| unit != 0))
        .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect();
    printable(&text)
}
