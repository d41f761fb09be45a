//! A new GPT: a protective MBR and both copies, as UEFI has them (docs/formats.md §21.2).

use crate::crc32;

use super::Guid;

/// Entries of a table, and bytes of one: what every tool makes.
const ENTRIES: usize = 128;
const ENTRY_BYTES: usize = 128;
const HEADER_BYTES: usize = 92;
/// Units of UTF-16 in an entry's name.
const NAME_UNITS: usize = 36;
/// `Linux RAID`.
const LINUX_RAID: Guid = Guid::of("a19d880f-05fc-4d3b-a006-743f0f84911e");

/// A table to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTable {
    /// Bytes of the device.
    pub size_bytes: u64,
    /// What the table counts in: the device's 512 or 4096.
    pub sector_bytes: u32,
    /// The disk's id.
    pub id: Guid,
    /// In any order.
    pub partitions: Vec<NewPartition>,
}

/// A partition to be written, of the type `Linux RAID`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPartition {
    /// From 1 to 128.
    pub number: u32,
    /// Where it starts.
    pub start_bytes: u64,
    /// How long it is.
    pub len_bytes: u64,
    /// Its id.
    pub id: Guid,
    /// Its name; what has no room in an entry is cut off.
    pub name: String,
}

/// Why there is no such table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NewTableError {
    /// Sectors that GPT is not read in.
    #[error("sectors of {0} bytes: expected 512 or 4096")]
    Sector(u32),
    /// Not even the table fits.
    #[error("a device of {size_bytes} bytes has no room for a partition table")]
    NoRoom {
        /// Bytes of the device.
        size_bytes: u64,
    },
    /// There is none.
    #[error("a table without partitions")]
    Empty,
    /// A table has no such number, or it is given twice.
    #[error("partition {0}: expected each number once, from 1 to {ENTRIES}")]
    Number(u32),
    /// It does not start or end on a sector, or is empty.
    #[error("partition {number}: {len_bytes} bytes from byte {start_bytes} on are no whole sectors")]
    Sectors {
        /// Its number.
        number: u32,
        /// Where it was to start.
        start_bytes: u64,
        /// How long it was to be.
        len_bytes: u64,
    },
    /// It would lie on the table, or reach beyond the device.
    #[error(
        "partition {number} from byte {start_bytes} to {end_bytes}: partitions have room from byte {from_bytes} to {to_bytes}"
    )]
    Place {
        /// Its number.
        number: u32,
        /// Where it was to start.
        start_bytes: u64,
        /// Where it was to end.
        end_bytes: u64,
        /// Where the first may start.
        from_bytes: u64,
        /// Where the last must have ended.
        to_bytes: u64,
    },
    /// Two share sectors.
    #[error("partitions {0} and {1} overlap")]
    Overlap(u32, u32),
}

/// Bytes and their place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedBytes {
    /// What it is.
    pub what: &'static str,
    /// Where.
    pub offset_bytes: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Where the parts of a table are, in its sectors.
struct Places {
    sector_bytes: u64,
    entry_sectors: u64,
    last: u64,
}

impl Places {
    fn first_usable(&self) -> u64 {
        2 + self.entry_sectors
    }

    /// Behind the last sector for partitions: the entries of the second copy.
    fn end(&self) -> u64 {
        self.last - self.entry_sectors
    }
}

impl NewTable {
    /// What is written, in steps: each must be durable before the next begins. The second copy
    /// comes first, then the first, and the MBR that announces them last, so that whatever a power
    /// cut leaves is no table or this one.
    ///
    /// # Errors
    /// [`NewTableError`] says what cannot be.
    pub fn steps(&self) -> Result<[Vec<PlacedBytes>; 3], NewTableError> {
        let places = self.places()?;
        self.check(&places)?;
        let entries = self.entries(places.sector_bytes);
        let backup = self.copy(&places, (places.last, places.end(), 1), &entries);
        let primary = self.copy(&places, (1, 2, places.last), &entries);
        let mbr = PlacedBytes { what: "protective MBR", offset_bytes: 0, bytes: protective_mbr(&places) };
        let named = |what: [&'static str; 2], [entries, header]: [(u64, Vec<u8>); 2]| {
            let piece = |what, (offset_bytes, bytes)| PlacedBytes { what, offset_bytes, bytes };
            vec![piece(what[0], entries), piece(what[1], header)]
        };
        Ok([
            named(["entries of the backup GPT", "header of the backup GPT"], backup),
            named(["entries of the GPT", "header of the GPT"], primary),
            vec![mbr],
        ])
    }

    fn places(&self) -> Result<Places, NewTableError> {
        if !matches!(self.sector_bytes, 512 | 4096) {
            return Err(NewTableError::Sector(self.sector_bytes));
        }
        let sector_bytes = u64::from(self.sector_bytes);
        let entry_sectors = (ENTRIES * ENTRY_BYTES) as u64 / sector_bytes;
        let sectors = self.size_bytes / sector_bytes;
        // Boot sector, both headers and their entries, and at least one sector to use.
        if sectors < 3 + 2 * entry_sectors + 1 {
            return Err(NewTableError::NoRoom { size_bytes: self.size_bytes });
        }
        Ok(Places { sector_bytes, entry_sectors, last: sectors - 1 })
    }

    fn check(&self, places: &Places) -> Result<(), NewTableError> {
        if self.partitions.is_empty() {
            return Err(NewTableError::Empty);
        }
        let (from_bytes, to_bytes) =
            (places.first_usable() * places.sector_bytes, places.end() * places.sector_bytes);
        for (ix, &NewPartition { number, start_bytes, len_bytes, .. }) in self.partitions.iter().enumerate() {
            let before = &self.partitions[..ix];
            let is_known = before.iter().any(|other| other.number == number);
            if is_known || !(1..=ENTRIES as u32).contains(&number) {
                return Err(NewTableError::Number(number));
            }
            let whole = |bytes: u64| bytes.is_multiple_of(places.sector_bytes);
            if len_bytes == 0 || !whole(start_bytes) || !whole(len_bytes) {
                return Err(NewTableError::Sectors { number, start_bytes, len_bytes });
            }
            let end_bytes = start_bytes.saturating_add(len_bytes);
            if start_bytes < from_bytes || end_bytes > to_bytes {
                return Err(NewTableError::Place { number, start_bytes, end_bytes, from_bytes, to_bytes });
            }
            let meets = |other: &&NewPartition| {
                start_bytes < other.start_bytes + other.len_bytes && other.start_bytes < end_bytes
            };
            if let Some(other) = before.iter().find(meets) {
                return Err(NewTableError::Overlap(other.number, number));
            }
        }
        Ok(())
    }

    fn entries(&self, sector_bytes: u64) -> Vec<u8> {
        let mut bytes = vec![0; ENTRIES * ENTRY_BYTES];
        for partition in &self.partitions {
            let entry = &mut bytes[(partition.number as usize - 1) * ENTRY_BYTES..][..ENTRY_BYTES];
            let first = partition.start_bytes / sector_bytes;
            let last = first + partition.len_bytes / sector_bytes - 1;
            entry[..16].copy_from_slice(&LINUX_RAID.to_disk());
            entry[16..32].copy_from_slice(&partition.id.to_disk());
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
            let name = partition.name.encode_utf16().take(NAME_UNITS);
            for (place, unit) in entry[56..].chunks_exact_mut(2).zip(name) {
                place.copy_from_slice(&unit.to_le_bytes());
            }
        }
        bytes
    }

    /// Entries and header of one copy, each with its place in bytes; `at`: the sectors of its
    /// header, its entries, and the other header.
    fn copy(&self, places: &Places, at: (u64, u64, u64), entries: &[u8]) -> [(u64, Vec<u8>); 2] {
        let (header_at, entries_at, other_at) = at;
        let mut header = vec![0; places.sector_bytes as usize];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"EFI PART");
        put(8, &0x0001_0000_u32.to_le_bytes());
        put(12, &(HEADER_BYTES as u32).to_le_bytes());
        let sectors = [(24, header_at), (32, other_at), (40, places.first_usable()), (48, places.end() - 1)];
        for (field, sector) in sectors.into_iter().chain([(72, entries_at)]) {
            put(field, &sector.to_le_bytes());
        }
        put(56, &self.id.to_disk());
        put(80, &(ENTRIES as u32).to_le_bytes());
        put(84, &(ENTRY_BYTES as u32).to_le_bytes());
        put(88, &crc32::checksum(entries).to_le_bytes());
        let sum = crc32::checksum(&header[..HEADER_BYTES]);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        [(entries_at * places.sector_bytes, entries.to_vec()), (header_at * places.sector_bytes, header)]
    }
}

/// One entry over the whole disk, which keeps systems away that know no GPT.
fn protective_mbr(places: &Places) -> Vec<u8> {
    let mut sector = vec![0; places.sector_bytes as usize];
    let entry = &mut sector[446..462];
    // In the days of heads and cylinders: from the second sector to as far as these can say.
    entry[1..4].copy_from_slice(&[0x00, 0x02, 0x00]);
    entry[4] = 0xee;
    entry[5..8].copy_from_slice(&[0xff, 0xff, 0xff]);
    entry[8..12].copy_from_slice(&1_u32.to_le_bytes());
    entry[12..16].copy_from_slice(&u32::try_from(places.last).unwrap_or(u32::MAX).to_le_bytes());
    sector[510..512].copy_from_slice(&[0x55, 0xaa]);
    sector
}
