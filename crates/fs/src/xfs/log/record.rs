//! Records: a header in a sector of its own, more headers if the record is long, and the data.
//!
//! The first word of every sector of the data has the cycle in its place; what it was is in the
//! headers. Header, headers and data have one checksum, of what lies in the log.

use crate::bytes::{be32, be64, le32, uuid_at};
use crate::xfs::log::ring::{LogRing, SECTOR_BYTES};
use crate::xfs::log::words::LogWords;
use crate::xfs::log::{LogDamage, Lsn};

pub const MAGIC: u32 = 0xfeed_babe;

/// Data of a record at most.
const DATA_BYTES_MAX: u32 = 256 << 10;

const LEN_AT: usize = 12;
const LSN_AT: usize = 16;
const TAIL_AT: usize = 24;
const CHECKSUM_AT: usize = 32;
const OPERATIONS_AT: usize = 40;
const WORDS_AT: usize = 44;
const FORMAT_AT: usize = 300;
const UUID_AT: usize = 304;
const SIZE_AT: usize = 320;

/// How much of a header its checksum covers: the structure, which ends in padding where integers of
/// 64 bits are aligned to their size.
const CHECKED_BYTES: [usize; 2] = [328, 324];

/// The same of the headers that follow: the cycle, and words.
const CHECKED_MORE_BYTES: usize = 260;

/// Words in a header, and so the sectors that it covers.
const WORDS: usize = 64;
const COVERED_BYTES: u32 = WORDS as u32 * SECTOR_BYTES as u32;

/// A record's header, decoded.
#[derive(Debug)]
pub struct LogRecord {
    /// The sector that it starts in.
    pub at: u64,
    pub header_sectors: u64,
    pub data_sectors: u64,
    pub data_bytes: usize,
    pub lsn: Lsn,
    /// The sector of the first record that a mount replays.
    pub tail: u64,
    pub operations: u32,
    pub words: LogWords,
    /// For what size of records its headers are made, in bytes.
    pub size_bytes: u32,
    checksum: u32,
}

impl LogRecord {
    /// Reads the header in a sector.
    ///
    /// # Errors
    /// There is none, it says what none can say, or it is of another file system.
    pub fn read(ring: &LogRing<'_>, at: u64) -> Result<Self, LogDamage> {
        let sector = ring.read(at, 1)?;
        Self::decode(&sector, at, ring).ok_or("the header of a record in it is damaged")?
    }

    fn decode(b: &[u8], at: u64, ring: &LogRing<'_>) -> Option<Result<Self, LogDamage>> {
        let (version, data_bytes) = (be32(b, 8)?, be32(b, LEN_AT)?);
        let is_header = be32(b, 0)? == MAGIC && matches!(version, 1 | 2);
        if !is_header || data_bytes == 0 || data_bytes > DATA_BYTES_MAX {
            return None;
        }
        if uuid_at(b, UUID_AT)? != ring.uuid {
            return Some(Err("a record in it is of another file system"));
        }
        let Some(words) = LogWords::of_format(be32(b, FORMAT_AT)?) else {
            return Some(Err("it was written by another system than Linux"));
        };
        let size_bytes = be32(b, SIZE_AT)?;
        let header_sectors = match version {
            2 => u64::from(size_bytes.min(DATA_BYTES_MAX).div_ceil(COVERED_BYTES).max(1)),
            _ => 1,
        };
        let record = Self {
            at,
            header_sectors,
            data_sectors: u64::from(data_bytes).div_ceil(SECTOR_BYTES),
            data_bytes: data_bytes as usize,
            lsn: Lsn(be64(b, LSN_AT)?),
            tail: u64::from(be32(b, TAIL_AT + 4)?),
            operations: be32(b, OPERATIONS_AT)?,
            words,
            size_bytes,
            checksum: le32(b, CHECKSUM_AT)?,
        };
        // More data than its headers have words for.
        (u64::from(data_bytes) <= header_sectors * u64::from(COVERED_BYTES)).then_some(Ok(record))
    }

    pub fn sectors(&self) -> u64 {
        self.header_sectors + self.data_sectors
    }

    /// Whether it has no checksum, as what mkfs.xfs writes.
    pub fn is_unchecked(&self) -> bool {
        self.checksum == 0
    }

    /// The data as it was before the cycle took the place of words, and whether its checksum is
    /// right.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn data(&self, ring: &LogRing<'_>) -> Result<(Vec<u8>, bool), LogDamage> {
        let headers = ring.read(self.at, self.header_sectors)?;
        let mut data = ring.read(self.at + self.header_sectors, self.data_sectors)?;
        let (first, more) = headers.split_at(SECTOR_BYTES as usize);
        let stored = data.get(..self.data_bytes).unwrap_or_default();
        let is_right = CHECKED_BYTES.iter().any(|&len| sum(first, len, more, stored) == self.checksum);
        for (ix, sector) in data.chunks_exact_mut(SECTOR_BYTES as usize).enumerate() {
            let at = match ix / WORDS {
                0 => WORDS_AT + ix * 4,
                header => header * SECTOR_BYTES as usize + 4 + ix % WORDS * 4,
            };
            let word = headers.get(at..at + 4).ok_or("a record in it is longer than its headers")?;
            sector[..4].copy_from_slice(word);
        }
        data.truncate(self.data_bytes);
        Ok((data, is_right))
    }
}

/// The checksum of a record: its first header as far as that is one, the others that have words of
/// its data, and the data as it lies in the log.
fn sum(first: &[u8], checked: usize, more: &[u8], data: &[u8]) -> u32 {
    let sum = crc32c::crc32c_append(crc32c::crc32c(&first[..CHECKSUM_AT]), &[0; 4]);
    let mut sum = crc32c::crc32c_append(sum, &first[CHECKSUM_AT + 4..checked]);
    // Headers that no data needs are there and are not checked.
    let used = data.len().div_ceil(COVERED_BYTES as usize).saturating_sub(1);
    for header in more.chunks_exact(SECTOR_BYTES as usize).take(used) {
        sum = crc32c::crc32c_append(sum, &header[..CHECKED_MORE_BYTES]);
    }
    crc32c::crc32c_append(sum, data)
}

/// Makes the checksums of records right in the bytes of a log; of those that go round its end not.
pub fn seal_records(log: &mut [u8]) {
    const SECTOR: usize = SECTOR_BYTES as usize;
    for at in (0..log.len().saturating_sub(SECTOR)).step_by(SECTOR) {
        let (header, behind) = log[at..].split_at_mut(SECTOR);
        if be32(header, 0) != Some(MAGIC) {
            continue;
        }
        let sectors = be32(header, SIZE_AT).unwrap_or(0).min(DATA_BYTES_MAX).div_ceil(COVERED_BYTES).max(1);
        let more = (sectors as usize - 1) * SECTOR;
        let len = be32(header, LEN_AT).unwrap_or(0) as usize;
        let Some((more, data)) = behind.split_at_checked(more) else { continue };
        if let Some(data) = data.get(..len) {
            let sum = sum(header, CHECKED_BYTES[0], more, data);
            header[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        }
    }
}
