//! Whether the log is empty: whether the last thing that was written to it says that the file
//! system was unmounted, or whether what a mount would replay changes nothing that is shown.
//!
//! The log is a ring of sectors. Each starts with the number of the round in which it was written,
//! so the newest is where that number falls; a record starts with a header in a sector of its own,
//! which has a magic number in that place and the round behind it. The last record says where the
//! tail is: the first record that a mount would replay.
//!
//! A file system that is frozen, or that nothing was written to for a while, has everything in its
//! place and a log that holds the superblock alone. Such a log is as good as empty.

use crate::bytes::{be32, le16, le32, u8_at};
use crate::error::Note;
use crate::source::ByteSource;
use crate::xfs::superblock::Superblock;

const SECTOR_BYTES: u64 = 512;
const MAGIC: u32 = 0xfeed_babe;

/// A record has at most 256 KiB, and its headers.
const RECORD_SECTORS_MAX: u64 = 512 + 8;

/// Of a record's header: version, length, where the tail is, number of operations, the first words
/// of its sectors, which have the round in their place, and the size for which headers are made.
const LEN_AT: usize = 12;
const TAIL_AT: usize = 28;
const OPERATIONS_AT: usize = 40;
const WORDS_AT: usize = 44;
const SIZE_AT: usize = 320;

/// A header of version 2 has a sector for each of these.
const HEADER_COVERS_BYTES: u32 = 32 << 10;

/// Records from the tail to the head that are looked into: a frozen file system has two or three.
const RECORDS_MAX: usize = 16;

/// Sectors of a record that are looked into: those whose words the first header has.
const SECTORS_MAX: u64 = 64;

/// An operation in a record: whose it is and its length, then flags.
const OPERATION_BYTES: usize = 12;
const CLIENT_AT: usize = 8;
const FLAGS_AT: usize = 9;
const CLIENT_TRANSACTION: u8 = 0x69;
const CLIENT_LOG: u8 = 0xaa;
const START: u8 = 0x01;
const COMMIT: u8 = 0x02;
const UNMOUNT: u8 = 0x20;

/// The head of a transaction, of this length and with this magic number. It and what follows are in
/// the order of bytes of the machine that wrote them; where that is not this one, the log counts as
/// not empty.
const TRANSACTION_BYTES: usize = 16;
const TRANSACTION_MAGIC: u32 = 0x5452_414e;

/// The description of a changed buffer: type, number of parts, flags, length in sectors; which
/// sector; how many words its map has; the map, a bit for each 128 bytes that follow.
const BUFFER: u16 = 0x123c;
const BUFFER_MAP_AT: usize = 20;

/// The part of the superblock that says how the file system is laid out; counters follow.
const LAYOUT_BYTES: usize = 128;

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

/// A record's header, decoded.
struct Record {
    header_sectors: u64,
    data_sectors: u64,
    operations: u32,
    tail: u64,
    bytes: Vec<u8>,
}

impl Record {
    fn decode(bytes: Vec<u8>) -> Option<Self> {
        Some(Self {
            header_sectors: u64::from(be32(&bytes, SIZE_AT)?.div_ceil(HEADER_COVERS_BYTES).max(1)),
            data_sectors: u64::from(be32(&bytes, LEN_AT)?).div_ceil(SECTOR_BYTES),
            operations: be32(&bytes, OPERATIONS_AT)?,
            tail: u64::from(be32(&bytes, TAIL_AT)?),
            bytes,
        })
    }

    fn sectors(&self) -> u64 {
        self.header_sectors + self.data_sectors
    }
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
                let record = Record::decode(sector)?;
                // What follows the record's end was never finished.
                if record.sectors() != back {
                    return Some(false);
                }
                return Some(self.is_unmount(at, &record)? || self.changes_nothing(record.tail, head)?);
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

    /// Whether a record is all of one operation, which says that the file system was unmounted.
    fn is_unmount(&self, at: u64, record: &Record) -> Option<bool> {
        if record.operations != 1 {
            return Some(false);
        }
        let operation = self.sector((at + record.header_sectors) % self.sectors)?;
        Some(u8_at(&operation, FLAGS_AT)? & UNMOUNT != 0)
    }

    /// Whether all records from the tail to the head hold the superblock alone, laid out as it is
    /// in its place.
    fn changes_nothing(&self, tail: u64, head: u64) -> Option<bool> {
        let mut at = tail;
        for _ in 0..RECORDS_MAX {
            if at == head {
                return Some(true);
            }
            let sector = self.sector(at)?;
            if at >= self.sectors || be32(&sector, 0)? != MAGIC {
                return Some(false);
            }
            let record = Record::decode(sector)?;
            let left = (head + self.sectors - at) % self.sectors;
            if record.sectors() > left || !self.holds_the_superblock_alone(at, &record)? {
                return Some(false);
            }
            at = (at + record.sectors()) % self.sectors;
        }
        Some(false)
    }

    fn holds_the_superblock_alone(&self, at: u64, record: &Record) -> Option<bool> {
        let mut data = Vec::new();
        for ix in 0..record.data_sectors.min(SECTORS_MAX) {
            let sector = self.sector((at + record.header_sectors + ix) % self.sectors)?;
            let word = WORDS_AT + ix as usize * 4;
            data.extend_from_slice(record.bytes.get(word..word + 4)?);
            data.extend_from_slice(&sector[4..]);
        }
        let superblock = self.source.bytes(0, SECTOR_BYTES as usize).ok()?;
        let (mut rest, mut parts) = (&data[..], SuperblockParts { due: None, in_place: &superblock });
        for _ in 0..record.operations {
            let Some((header, behind)) = rest.split_at_checked(OPERATION_BYTES) else { return Some(false) };
            let Some((body, behind)) = behind.split_at_checked(be32(header, 4)? as usize) else {
                return Some(false);
            };
            if !parts.take(header[CLIENT_AT], header[FLAGS_AT], body) {
                return Some(false);
            }
            rest = behind;
        }
        Some(parts.due.is_none())
    }

    fn round(&self, sector: u64) -> Option<u32> {
        let sector = self.sector(sector)?;
        match be32(&sector, 0)? {
            MAGIC => be32(&sector, 4),
            round => Some(round),
        }
    }

    fn sector(&self, sector: u64) -> Option<Vec<u8>> {
        let offset = sector.checked_mul(SECTOR_BYTES)?.checked_add(self.start)?;
        self.source.bytes(offset, SECTOR_BYTES as usize).ok()
    }
}

/// Goes through operations that may be of nothing but the superblock.
struct SuperblockParts<'a> {
    /// Where in the superblock the next part belongs, and its length, if one must follow.
    due: Option<(usize, usize)>,
    in_place: &'a [u8],
}

impl SuperblockParts<'_> {
    /// Whether an operation may be among them.
    fn take(&mut self, client: u8, flags: u8, body: &[u8]) -> bool {
        if let Some((at, len)) = self.due.take() {
            // Counters are no matter; another layout is.
            let layout = at..LAYOUT_BYTES.min(at + len).max(at);
            return client == CLIENT_TRANSACTION
                && flags == 0
                && body.len() == len
                && self.in_place.get(layout.clone()) == body.get(..layout.len());
        }
        match (client, flags) {
            (CLIENT_TRANSACTION, START | COMMIT) | (CLIENT_LOG, UNMOUNT) => true,
            (CLIENT_TRANSACTION, 0) => {
                let head = body.len() == TRANSACTION_BYTES && le32(body, 0) == Some(TRANSACTION_MAGIC);
                head || self.buffer(body).is_some()
            }
            _ => false,
        }
    }

    /// The superblock in one part: a run of bits of its map. `None` if it is another buffer, or
    /// anything else.
    fn buffer(&mut self, body: &[u8]) -> Option<()> {
        let is_superblock = le16(body, 0)? == BUFFER
            && le16(body, 2)? == 2
            && le16(body, 6)? == 1
            && le32(body, 8)? == 0
            && le32(body, 12)? == 0
            && le32(body, 16)? == 1;
        let map = le32(body, BUFFER_MAP_AT)?;
        let (first, count) = (map.trailing_zeros(), map.count_ones());
        let is_run = map != 0 && map < 16 && map >> first == (1 << count) - 1;
        (is_superblock && is_run).then_some(())?;
        self.due = Some((first as usize * 128, count as usize * 128));
        Some(())
    }
}
