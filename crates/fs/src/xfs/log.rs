//! Whether the log is empty: whether the last thing that was written to it says that the file
//! system was unmounted.
//!
//! The log is a ring of sectors. Each starts with the number of the round in which it was written,
//! so the newest is where that number falls; a record starts with a header in a sector of its own,
//! which has a magic number in that place and the round behind it.

use crate::bytes::{be32, u8_at};
use crate::error::Note;
use crate::source::ByteSource;
use crate::xfs::superblock::Superblock;

const SECTOR_BYTES: u64 = 512;
const MAGIC: u32 = 0xfeed_babe;

/// A record has at most 256 KiB, and its headers.
const RECORD_SECTORS_MAX: u64 = 512 + 8;

/// Of an operation in a record.
const FLAGS_AT: usize = 9;
const UNMOUNT: u8 = 0x20;

/// Of a record's header: version, length, number of operations, and the size for which headers are
/// made.
const LEN_AT: usize = 12;
const OPERATIONS_AT: usize = 40;
const SIZE_AT: usize = 320;

/// A header of version 2 has a sector for each of these.
const HEADER_COVERS_BYTES: u32 = 32 << 10;

/// What to say about the log; nothing if it is empty.
pub fn note(source: &ByteSource, superblock: &Superblock) -> Option<Note> {
    let Some((start, len)) = superblock.log else {
        return Some(Note::LogNotApplied { certain: false });
    };
    let log = Log { source, start, sectors: len / SECTOR_BYTES };
    match log.is_empty() {
        Some(true) => None,
        Some(false) => Some(Note::LogNotApplied { certain: true }),
        None => Some(Note::LogNotApplied { certain: false }),
    }
}

struct Log<'a> {
    source: &'a ByteSource,
    start: u64,
    sectors: u64,
}

impl Log<'_> {
    /// `None` if that cannot be told.
    fn is_empty(&self) -> Option<bool> {
        let head = self.head()?;
        // The last record ends at the head, so it starts not far before it, perhaps behind the end
        // of the ring.
        for back in 1..=RECORD_SECTORS_MAX.min(self.sectors) {
            let at = (head + self.sectors - back) % self.sectors;
            let sector = self.sector(at)?;
            if be32(&sector, 0) == Some(MAGIC) {
                return self.is_unmount(at, back, &sector);
            }
        }
        None
    }

    /// The sector behind the newest: the first that is of an older round than the first one.
    fn head(&self) -> Option<u64> {
        let first = self.round(0)?;
        let (mut newest, mut older) = (0, self.sectors);
        if self.round(self.sectors.checked_sub(1)?)? == first {
            return Some(0);
        }
        while newest + 1 < older {
            let middle = newest + (older - newest) / 2;
            match self.round(middle)? == first {
                true => newest = middle,
                false => older = middle,
            }
        }
        Some(older)
    }

    /// Whether a record, `back` sectors before the head, is all of one operation which says that
    /// the file system was unmounted.
    fn is_unmount(&self, at: u64, back: u64, header: &[u8]) -> Option<bool> {
        let header_sectors = u64::from(be32(header, SIZE_AT)?.div_ceil(HEADER_COVERS_BYTES).max(1));
        let data_sectors = u64::from(be32(header, LEN_AT)?).div_ceil(SECTOR_BYTES);
        if be32(header, OPERATIONS_AT)? != 1 || header_sectors + data_sectors != back {
            return Some(false);
        }
        let operation = self.sector((at + header_sectors) % self.sectors)?;
        Some(u8_at(&operation, FLAGS_AT)? & UNMOUNT != 0)
    }

    fn round(&self, sector: u64) -> Option<u32> {
        let sector = self.sector(sector)?;
        match be32(&sector, 0)? {
            MAGIC => be32(&sector, 4),
            round => Some(round),
        }
    }

    fn sector(&self, sector: u64) -> Option<Vec<u8>> {
        self.source.bytes(self.start.checked_add(sector * SECTOR_BYTES)?, SECTOR_BYTES as usize).ok()
    }
}
