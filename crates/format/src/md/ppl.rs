//! The partial parity log of RAID 5: docs/formats.md §4.
//!
//! [`Header::decode`] checks what the kernel checks (signature, checksum, count).
//! [`PplEntry::work`] checks what it does not: a checksummed entry with impossible numbers crashes
//! the kernel (hazard 13 in docs/formats.md §19).

use super::checksum::{crc, ppl_signature};
use crate::bytes::{le32, le64, put_le32, put_le64};

/// Bytes of a header; partial parity follows.
pub const HEADER_BYTES: usize = 4096;
/// Most entries of one header.
pub const MAX_ENTRIES: usize = 148;
/// Most partial parity that follows one header in an area with several logs.
pub const MAX_LOG_BYTES: u32 = 128 << 10;
/// Areas from this size hold a ring of logs ([`super::Features::MULTIPLE_PPLS`]).
pub const MULTIPLE_MIN_BYTES: u64 = 2 * (MAX_LOG_BYTES as u64 + HEADER_BYTES as u64);

const SIGNATURE: usize = 512;
const GENERATION: usize = 520;
const COUNT: usize = 528;
const CHECKSUM: usize = 532;
const ENTRIES: usize = 536;
const ENTRY_BYTES: usize = 24;

/// Why a header is not one. While scanning an area this is the normal end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PplError {
    /// The header is not all there.
    #[error("only {got} of the PPL header's {HEADER_BYTES} bytes could be read")]
    Truncated {
        /// Bytes given.
        got: usize,
    },
    /// Damaged, torn, or never written.
    #[error("PPL header checksum is {stored:08x}, the bytes add up to {computed:08x}")]
    BadChecksum {
        /// The stored value.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// Another array's.
    #[error("PPL signature is {found:08x}, this array's is {expected:08x}")]
    Signature {
        /// The stored value.
        found: u32,
        /// CRC-32C of the array's uuid.
        expected: u32,
    },
    /// More than fit into a header.
    #[error("PPL header lists {found} entries, at most {MAX_ENTRIES} fit")]
    Count {
        /// The stored value.
        found: u32,
    },
}

/// A header: what was being written when, and the partial parity for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Larger is newer, within one activation of the array.
    pub generation: u64,
    /// At most [`MAX_ENTRIES`].
    pub entries: Vec<PplEntry>,
}

/// One range of stripes whose parity may be out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PplEntry {
    /// Array sector of the first modified data.
    pub data_sector: u64,
    /// Bytes of partial parity; 0 for full stripes.
    pub pp_bytes: u32,
    /// Bytes of modified data.
    pub data_bytes: u32,
    /// Slot of the parity.
    pub parity_disk: u32,
    /// CRC-32C of the partial parity.
    pub checksum: u32,
}

impl Header {
    /// Reads one header and checks signature, checksum and count.
    ///
    /// # Errors
    /// There is no header of this array here.
    pub fn decode(bytes: &[u8], set_uuid: &[u8; 16]) -> Result<Header, PplError> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(PplError::Truncated { got: bytes.len() });
        };
        let (stored, computed) = (le32(bytes, CHECKSUM), checksum_of(bytes));
        if stored != computed {
            return Err(PplError::BadChecksum { stored, computed });
        }
        let (found, expected) = (le32(bytes, SIGNATURE), ppl_signature(set_uuid));
        if found != expected {
            return Err(PplError::Signature { found, expected });
        }
        let found = le32(bytes, COUNT);
        let count = usize::try_from(found).ok().filter(|&count| count <= MAX_ENTRIES);
        let Some(count) = count else { return Err(PplError::Count { found }) };
        let entries = bytes[ENTRIES..].chunks_exact(ENTRY_BYTES).take(count).map(PplEntry::decode).collect();
        Ok(Header { generation: le64(bytes, GENERATION), entries })
    }

    /// The header's bytes. Headers are always written whole, so there is nothing to preserve.
    ///
    /// # Panics
    /// With more than [`MAX_ENTRIES`] entries.
    #[must_use]
    pub fn encode(&self, set_uuid: &[u8; 16]) -> Box<[u8; HEADER_BYTES]> {
        assert!(self.entries.len() <= MAX_ENTRIES, "a PPL header has room for {MAX_ENTRIES} entries");
        let mut bytes = Box::new([0; HEADER_BYTES]);
        bytes[..SIGNATURE].fill(0xff);
        put_le32(&mut bytes[..], SIGNATURE, ppl_signature(set_uuid));
        put_le64(&mut bytes[..], GENERATION, self.generation);
        put_le32(&mut bytes[..], COUNT, self.entries.len() as u32);
        for (entry, target) in self.entries.iter().zip(bytes[ENTRIES..].chunks_exact_mut(ENTRY_BYTES)) {
            entry.encode(target);
        }
        let checksum = checksum_of(&bytes);
        put_le32(&mut bytes[..], CHECKSUM, checksum);
        bytes
    }

    /// Bytes of partial parity after the header.
    #[must_use]
    pub fn pp_bytes(&self) -> u64 {
        self.entries.iter().map(|entry| u64::from(entry.pp_bytes)).sum()
    }
}

fn checksum_of(bytes: &[u8; HEADER_BYTES]) -> u32 {
    let mut zeroed = *bytes;
    put_le32(&mut zeroed, CHECKSUM, 0);
    crc(&zeroed)
}

/// Whether a header further on is newer than the newest that the walk finds. Then the walk was cut
/// off: a ring that starts over overwrites its first logs, and if the power goes meanwhile what is
/// left of them may lead nowhere.
#[must_use]
pub fn has_newer(area: &[u8], set_uuid: &[u8; 16], newest: &Newest) -> bool {
    let pages = area.get(newest.offset_bytes..).unwrap_or_default().chunks_exact(HEADER_BYTES).skip(1);
    let mut headers = pages.filter_map(|page| Header::decode(page, set_uuid).ok());
    headers.any(|header| header.generation > newest.header.generation)
}

/// Whether an area starts with what was, or was becoming, a header of this array, and is none now:
/// a write that the power cut short. What precedes the generation is the same in every header.
#[must_use]
pub fn is_torn(area: &[u8], set_uuid: &[u8; 16]) -> bool {
    let known = area.get(..GENERATION).is_some_and(|start| {
        start[..SIGNATURE].iter().all(|&byte| byte == 0xff)
            && le32(start, SIGNATURE) == ppl_signature(set_uuid)
    });
    known && matches!(Header::decode(area, set_uuid), Err(PplError::BadChecksum { .. }))
}

/// The checksum of an entry's partial parity, given in parts: CRC-32C of all of it.
#[must_use]
pub fn partial_checksum<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    parts.into_iter().fold(0, crc32c::crc32c_append)
}

/// Shape of the array, to check entries against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PplShape {
    /// Slots, at least 3.
    pub raid_disks: u32,
    /// Chunk in sectors, at least 8.
    pub chunk_sectors: u32,
    /// Array size in sectors.
    pub array_sectors: u64,
}

/// What an entry asks recovery to do: for row `i` of `rows`, parity = XOR over the modified disks
/// `d` of the blocks at array sector data_sector + i·row_sectors + d·chunk that lie before
/// `end_sector`, XOR row `i` of the partial parity (if any). All rows lie in one chunk row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParityWork {
    /// Rows to recompute.
    pub rows: u64,
    /// Sectors of one row: 8, or 1 for entries that are not aligned to 4 KiB.
    pub row_sectors: u64,
    /// Data disks modified in each row.
    pub data_disks: u64,
    /// First array sector past the modified data.
    pub end_sector: u64,
    /// Whether partial parity follows the header, rather than every data disk being modified.
    pub has_partial_parity: bool,
}

/// Why an entry cannot be followed; the array then needs a full resync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Sizes that are no whole sectors, or nothing at all.
    #[error("PPL entry covers {data_bytes} data bytes with {pp_bytes} of partial parity")]
    Sizes {
        /// Modified data.
        data_bytes: u32,
        /// Partial parity.
        pp_bytes: u32,
    },
    /// Data past the end of the array.
    #[error("PPL entry covers data past the end of the array")]
    PastEnd,
    /// No such slot.
    #[error("PPL entry names parity slot {0}")]
    ParityDisk(u32),
    /// The shape is no RAID 5.
    #[error("the array has no chunk or too few devices for PPL")]
    Shape,
}

impl PplEntry {
    fn decode(bytes: &[u8]) -> PplEntry {
        PplEntry {
            data_sector: le64(bytes, 0),
            pp_bytes: le32(bytes, 8),
            data_bytes: le32(bytes, 12),
            parity_disk: le32(bytes, 16),
            checksum: le32(bytes, 20),
        }
    }

    fn encode(&self, bytes: &mut [u8]) {
        put_le64(bytes, 0, self.data_sector);
        put_le32(bytes, 8, self.pp_bytes);
        put_le32(bytes, 12, self.data_bytes);
        put_le32(bytes, 16, self.parity_disk);
        put_le32(bytes, 20, self.checksum);
    }

    /// Checks the numbers against the array and says what recovery has to do. That `parity_disk` is
    /// the parity slot of the stripe at `data_sector` is left to the layout's owner to compare.
    ///
    /// # Errors
    /// Numbers that no writer produces.
    pub fn work(&self, shape: &PplShape) -> Result<ParityWork, EntryError> {
        if shape.raid_disks < 3 || shape.chunk_sectors == 0 {
            return Err(EntryError::Shape);
        }
        if self.parity_disk >= shape.raid_disks {
            return Err(EntryError::ParityDisk(self.parity_disk));
        }
        let (data_bytes, pp_bytes) = (self.data_bytes, self.pp_bytes);
        let sizes = EntryError::Sizes { data_bytes, pp_bytes };
        if data_bytes == 0 || data_bytes % 512 != 0 || pp_bytes % 512 != 0 {
            return Err(sizes);
        }
        let all_disks = u64::from(shape.raid_disks) - 1;
        let (data_sectors, pp_sectors) = (u64::from(data_bytes / 512), u64::from(pp_bytes / 512));
        let chunk = u64::from(shape.chunk_sectors);
        let (data_disks, sectors_per_disk) = match pp_sectors {
            0 if data_sectors % all_disks != 0 => return Err(sizes),
            0 => (all_disks, data_sectors / all_disks),
            _ if pp_sectors > chunk => return Err(sizes),
            // A whole chunk of partial parity: the data need not start or end on a row of it.
            _ if pp_sectors == chunk => (data_sectors.div_ceil(chunk), chunk),
            _ if data_sectors % pp_sectors != 0 => return Err(sizes),
            _ => (data_sectors / pp_sectors, pp_sectors),
        };
        // Everything stays in one chunk row; a writer has no reason to leave it, and recovery would
        // follow it anywhere.
        if data_disks > all_disks || self.data_sector % chunk + sectors_per_disk > chunk {
            return Err(sizes);
        }
        let span = match pp_sectors == chunk {
            true => data_sectors,
            false => (data_disks - 1) * chunk + sectors_per_disk,
        };
        let end_sector = self.data_sector.checked_add(span).filter(|&end| end <= shape.array_sectors);
        let Some(end_sector) = end_sector else { return Err(EntryError::PastEnd) };
        let aligned = self.data_sector.is_multiple_of(8) && sectors_per_disk.is_multiple_of(8);
        let row_sectors = if aligned { 8 } else { 1 };
        let rows = sectors_per_disk / row_sectors;
        Ok(ParityWork { rows, row_sectors, data_disks, end_sector, has_partial_parity: pp_bytes > 0 })
    }
}

/// Where the newest log of an area is, and its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newest {
    /// Start of its header in the area, in bytes; its partial parity follows the header.
    pub offset_bytes: usize,
    /// The header.
    pub header: Header,
}

/// Walks the logs of an area from its start to the newest: up to the first that is no header of
/// this array, or is older than the one before. `None`: no valid log at all.
#[must_use]
pub fn newest(area: &[u8], set_uuid: &[u8; 16]) -> Option<Newest> {
    let mut newest: Option<Newest> = None;
    let mut offset_bytes = 0;
    // Each turn moves on by at least a header, so an area is walked at most len / 4096 times.
    while let Some(Ok(header)) = area.get(offset_bytes..).map(|rest| Header::decode(rest, set_uuid)) {
        if newest.as_ref().is_some_and(|last| header.generation < last.header.generation) {
            break;
        }
        let step = usize::try_from(HEADER_BYTES as u64 + header.pp_bytes()).unwrap_or(usize::MAX);
        newest = Some(Newest { offset_bytes, header });
        offset_bytes = offset_bytes.saturating_add(step);
    }
    newest
}

/// A fresh area: an empty header of generation 0, then zeros.
#[must_use]
pub fn empty_area(set_uuid: &[u8; 16], area_bytes: usize) -> Vec<u8> {
    let header = Header { generation: 0, entries: Vec::new() }.encode(set_uuid);
    let mut area = header.to_vec();
    area.resize(area_bytes.max(HEADER_BYTES), 0);
    area
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUID: [u8; 16] = [7; 16];
    const SHAPE: PplShape = PplShape { raid_disks: 4, chunk_sectors: 128, array_sectors: 43008 };

    fn entry(data_sector: u64, data_bytes: u32, pp_bytes: u32) -> PplEntry {
        PplEntry { data_sector, pp_bytes, data_bytes, parity_disk: 1, checksum: 0 }
    }

    #[test]
    fn damage_is_told_apart() {
        let good = Header { generation: 5, entries: vec![entry(0, 4096, 4096)] }.encode(&UUID);
        assert_eq!(Header::decode(&good[..], &UUID).unwrap().generation, 5);
        assert!(matches!(Header::decode(&good[..], &[8; 16]), Err(PplError::Signature { .. })));
        let mut bad = good.clone();
        bad[4095] ^= 1;
        assert!(matches!(Header::decode(&bad[..], &UUID), Err(PplError::BadChecksum { .. })));
        let mut many = good.clone();
        put_le32(&mut many[..], COUNT, 149);
        let sum = checksum_of(&many);
        put_le32(&mut many[..], CHECKSUM, sum);
        assert_eq!(Header::decode(&many[..], &UUID), Err(PplError::Count { found: 149 }));
        assert_eq!(Header::decode(&good[..4095], &UUID), Err(PplError::Truncated { got: 4095 }));
    }

    #[test]
    fn a_torn_header_is_told_from_none() {
        let old = Header { generation: 0, entries: Vec::new() }.encode(&UUID);
        let new = Header { generation: 9, entries: vec![entry(0, 4096, 4096); 100] }.encode(&UUID);
        assert!(!is_torn(&old[..], &UUID) && !is_torn(&new[..], &UUID));
        for landed in 1..7u32 {
            let mut torn = old.clone();
            for sector in (0..8).filter(|sector| landed >> sector & 1 == 1) {
                torn[sector * 512..(sector + 1) * 512]
                    .copy_from_slice(&new[sector * 512..(sector + 1) * 512]);
            }
            // Sector 0 is the same in both.
            assert_eq!(is_torn(&torn[..], &UUID), landed > 1, "{landed:b}");
            assert!(!is_torn(&torn[..], &[8; 16]));
        }
        assert!(!is_torn(&[0; 4096], &UUID) && !is_torn(&[0xff; 4096], &UUID) && !is_torn(&[], &UUID));
    }

    #[test]
    fn a_checksum_in_parts_is_that_of_the_whole() {
        assert_eq!(partial_checksum([&b"123"[..], b"", b"456789"]), 0xe306_9283);
        assert_eq!(partial_checksum([]), 0, "full stripes");
        assert_eq!(ppl_signature(&std::array::from_fn(|i| i as u8)), 0xd9c9_08eb);
    }

    #[test]
    fn the_walk_ends_at_the_newest() {
        let log = |generation, pp: u32| {
            let mut bytes = Header { generation, entries: vec![entry(0, 4096, pp)] }.encode(&UUID).to_vec();
            bytes.resize(HEADER_BYTES + pp as usize, 0xaa);
            bytes
        };
        let ring: Vec<u8> = [log(11, 4096), log(12, 0), log(13, 8192), log(4, 4096)].concat();
        let newest = newest(&ring, &UUID).unwrap();
        assert_eq!(
            (newest.offset_bytes, newest.header.generation),
            (3 * 4096, 13),
            "log 4 is from the last lap"
        );
        assert_eq!(super::newest(&ring[1..], &UUID), None);
        assert!(!has_newer(&ring, &UUID, &newest));
        let mut cut = ring.clone();
        cut[8192] ^= 1;
        let found = super::newest(&cut, &UUID).unwrap();
        assert!(found.header.generation == 11 && has_newer(&cut, &UUID, &found), "13 is still there");
        let empty = super::newest(&empty_area(&UUID, 1 << 20), &UUID).unwrap();
        assert_eq!((empty.header.generation, empty.header.entries.len()), (0, 0));
    }

    #[test]
    fn work_of_entries() {
        let work = |data_sector, data, pp| entry(data_sector, data, pp).work(&SHAPE).unwrap();
        let rows = |rows, row_sectors, data_disks, end_sector, has_partial_parity| ParityWork {
            rows,
            row_sectors,
            data_disks,
            end_sector,
            has_partial_parity,
        };
        assert_eq!(work(0, 4096, 4096), rows(1, 8, 1, 8, true));
        assert_eq!(work(8, 16384, 8192), rows(2, 8, 2, 8 + 128 + 16, true));
        assert_eq!(work(0, 3 * 4096, 0), rows(1, 8, 3, 256 + 8, false));
        assert_eq!(work(3, 1024, 1024), rows(2, 1, 1, 5, true));
        assert_eq!(work(128, 65536 + 4096, 65536), rows(16, 8, 2, 128 + 136, true), "a chunk and a bit");
    }

    /// Hazard 13 of docs/formats.md §19: a corrupt entry under a good checksum crashes the kernel.
    /// Every number is compared with the array before anything is computed from it.
    #[test]
    fn impossible_entries_are_refused() {
        let wrong_parity = PplEntry { parity_disk: 4, ..entry(0, 4096, 4096) };
        assert_eq!(wrong_parity.work(&SHAPE), Err(EntryError::ParityDisk(4)));
        for (data, pp) in
            [(0, 0), (0, 4096), (100, 0), (4096, 0), (4096, 100), (5 * 4096, 4096), (u32::MAX, 512)]
        {
            assert!(matches!(entry(0, data, pp).work(&SHAPE), Err(EntryError::Sizes { .. })), "{data} {pp}");
        }
        assert!(
            matches!(entry(124, 4096, 4096).work(&SHAPE), Err(EntryError::Sizes { .. })),
            "leaves its chunk"
        );
        assert_eq!(entry(43008, 4096, 4096).work(&SHAPE), Err(EntryError::PastEnd));
        assert_eq!(entry(u64::MAX - 127, 4096, 4096).work(&SHAPE), Err(EntryError::PastEnd));
        assert_eq!(entry(0, 512, 0).work(&PplShape { chunk_sectors: 0, ..SHAPE }), Err(EntryError::Shape));
    }

    proptest! {
        #[test]
        fn round_trip(generation: u64, raw in prop::collection::vec(any::<(u64, u32, u32, u32, u32)>(), 0..=148)) {
            let entries = raw.into_iter().map(|(data_sector, pp_bytes, data_bytes, parity_disk, checksum)| {
                PplEntry { data_sector, pp_bytes, data_bytes, parity_disk, checksum }
            });
            let header = Header { generation, entries: entries.collect() };
            let bytes = header.encode(&UUID);
            prop_assert_eq!(Header::decode(&bytes[..], &UUID).unwrap(), header);
        }

        #[test]
        fn work_is_bounded(data_sector: u64, data: u32, pp in prop_oneof![any::<u32>(), (0_u32..200).prop_map(|s| s * 512)], near: bool) {
            let data_sector = if near { data_sector % SHAPE.array_sectors } else { data_sector };
            let data = if near { data % 2000 * 512 } else { data };
            if let Ok(work) = entry(data_sector, data, pp).work(&SHAPE) {
                prop_assert!(work.data_disks < 4 && work.rows * work.row_sectors <= 128 && work.rows > 0);
            }
        }
    }
}
