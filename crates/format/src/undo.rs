//! What a command overwrote, as it was before (`wattle undo`).
//!
//! A header of 64 bytes, then entries, each with a checksum of its own. A log is written whole and
//! made durable before the first byte of a member changes, so that one that ends early or fails a
//! checksum is never needed. Numbers are little-endian.
//!
//! | offset | bytes | header |
//! |---|---|---|
//! | 0 | 16 | magic: `wattle undo log` and a zero byte |
//! | 16 | 4 | version, 1 |
//! | 20 | 4 | CRC-32C of these 64 bytes with zeros here |
//! | 24 | 8 | length of the file |
//! | 32 | 8 | when: seconds since 1970 |
//! | 40 | 4 | and microseconds |
//! | 44 | 4 | number of entries |
//!
//! An entry: kind (4), length of what follows (4), CRC-32C of these eight bytes and what follows
//! (4), and that. docs/formats.md §23 has the kinds: the command, the members it was given, what
//! was written to ([`UndoTarget`]), and ranges of that ([`Range`]).
//!
//! The unit is the sector of 512 bytes. Of each that was written there is what it held before, and
//! a checksum of everything that the command wrote there, one after the other: so whatever a crash
//! of the command left is told from what was written later by other means.

use thiserror::Error;

use crate::bytes::{array, le16, le32, le64, put, put_le16, put_le32, put_le64};
use crate::lvm::Id;

/// The unit of what is kept.
pub const SECTOR_BYTES: usize = 512;
/// Places by which a member is known again besides what was written to it.
pub const SAMPLES: usize = 16;
/// More is no log of ours: a partial parity log of 1 MiB on each of a thousand members.
pub const FILE_BYTES_MAX: u64 = 1 << 30;
/// Sectors of a range; more are several ranges.
pub const RANGE_SECTORS_MAX: usize = 2048;
/// Times that a command writes one sector.
pub const VERSIONS_MAX: usize = 16;

const MAGIC: &[u8; 16] = b"wattle undo log\0";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 12;
const TEXT_BYTES_MAX: usize = 1 << 16;
const NAME_BYTES_MAX: usize = 1 << 14;
const TARGET_BYTES: usize = 208;
const RANGE_BYTES: usize = 20;

/// A log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UndoLog {
    /// What was typed, for people.
    pub command: String,
    /// When: seconds since 1970 and microseconds.
    pub time: (u64, u32),
    /// The members that the command was given, by absolute paths.
    pub given: Vec<String>,
    /// What was written to.
    pub targets: Vec<UndoTarget>,
    /// Where, in the order in which it was.
    pub ranges: Vec<Range>,
}

/// Something that was written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoTarget {
    /// As it was called.
    pub name: String,
    /// What it is.
    pub place: UndoTargetKind,
    /// Its size.
    pub sectors: u64,
    /// What the drive says it is, if it says anything: its world wide name, or its serial number.
    pub drive: String,
    /// What is at [`crate::overlay::sample_places`], by [`crate::overlay::sample`]; `None` where it
    /// could not be read, or was written.
    pub samples: [Option<u32>; SAMPLES],
}

/// What a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoTargetKind {
    /// A member that was given, or a partition of one.
    Member,
    /// The array with this UUID.
    Array([u8; 16]),
    /// A logical volume: its group's id and its own.
    Volume(Id, Id),
}

/// Sectors that follow one another, and were written equally often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Which of [`UndoLog::targets`].
    pub target: u32,
    /// The first sector.
    pub sector: u64,
    /// How many.
    pub sectors: u32,
    /// The last step of the command that wrote them. What a step wrote is brought back before
    /// anything that earlier ones wrote, because it may lead there.
    pub step: u16,
    /// What they held; `None` for zeros.
    pub before: Option<Vec<u8>>,
    /// CRC-32C of each sector after each write to it.
    pub written: Vec<Vec<u32>>,
}

impl Range {
    /// What a sector held, counted from the range's first.
    #[must_use]
    pub fn before(&self, sector: usize) -> &[u8] {
        match &self.before {
            Some(bytes) => &bytes[sector * SECTOR_BYTES..][..SECTOR_BYTES],
            None => &[0; SECTOR_BYTES],
        }
    }

    /// Whether the command left these bytes in a sector, counted from the range's first, at any
    /// moment.
    #[must_use]
    pub fn is_written(&self, sector: usize, bytes: &[u8]) -> bool {
        let sum = crc32c::crc32c(bytes);
        self.written.iter().any(|version| version[sector] == sum)
    }
}

/// Why bytes are no log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UndoLogError {
    /// Another file.
    #[error("it is no undo log")]
    Magic,
    /// A newer one.
    #[error("it is an undo log of version {0}, which is not known here")]
    Version(u32),
    /// Its writing or copying did not get to its end.
    #[error("it is cut off: {found} of {expected} bytes are there")]
    Short {
        /// What the header says.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// Some byte changed.
    #[error("it is damaged at byte {0}")]
    Damaged(u64),
}

impl UndoLog {
    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        let mut entries = 1;
        entry(&mut bytes, 1, clip(&self.command).as_bytes());
        for name in &self.given {
            entry(&mut bytes, 2, clip(name).as_bytes());
            entries += 1;
        }
        for target in &self.targets {
            entry(&mut bytes, 3, &target.encode());
            entries += 1;
        }
        for range in &self.ranges {
            entry(&mut bytes, 4, &range.encode());
            entries += 1;
        }
        put(&mut bytes, 0, MAGIC);
        put_le32(&mut bytes, 16, VERSION);
        let len = bytes.len() as u64;
        put_le64(&mut bytes, 24, len);
        put_le64(&mut bytes, 32, self.time.0);
        put_le32(&mut bytes, 40, self.time.1);
        put_le32(&mut bytes, 44, entries);
        let sum = crc32c::crc32c(&bytes[..HEADER_BYTES]);
        put_le32(&mut bytes, 20, sum);
        bytes
    }

    /// What the bytes of a file say.
    ///
    /// # Errors
    /// [`UndoLogError`]: nothing of a log is used unless all of it is there and whole.
    pub fn decode(bytes: &[u8]) -> Result<Self, UndoLogError> {
        let header = bytes.get(..HEADER_BYTES).filter(|header| header[..16] == MAGIC[..]);
        let header = header.ok_or(UndoLogError::Magic)?;
        if le32(header, 16) != VERSION {
            return Err(UndoLogError::Version(le32(header, 16)));
        }
        let mut zeroed: [u8; HEADER_BYTES] = array(header, 0);
        put_le32(&mut zeroed, 20, 0);
        if crc32c::crc32c(&zeroed) != le32(header, 20) {
            return Err(UndoLogError::Damaged(0));
        }
        let (expected, found) = (le64(header, 24), bytes.len() as u64);
        if found < expected {
            return Err(UndoLogError::Short { expected, found });
        }
        let mut log = Self { time: (le64(header, 32), le32(header, 40)), ..Self::default() };
        let (mut at, mut entries) = (HEADER_BYTES, 0);
        while at < bytes.len() {
            let damaged = UndoLogError::Damaged(at as u64);
            let (kind, payload) = read_entry(&bytes[at..]).ok_or(damaged)?;
            log.take(kind, payload).ok_or(damaged)?;
            at += ENTRY_BYTES + payload.len();
            entries += 1;
        }
        if found != expected || entries != le32(header, 44) {
            return Err(UndoLogError::Damaged(found));
        }
        Ok(log)
    }

    /// Takes an entry in; `None` if it cannot be.
    fn take(&mut self, kind: u32, payload: &[u8]) -> Option<()> {
        let text = || {
            let text = std::str::from_utf8(payload).ok()?;
            (text.len() <= TEXT_BYTES_MAX).then(|| text.to_owned())
        };
        match kind {
            1 => self.command = text()?,
            2 => self.given.push(text()?),
            3 => self.targets.push(UndoTarget::decode(payload)?),
            4 => {
                let range = Range::decode(payload)?;
                let target = self.targets.get(range.target as usize)?;
                let end = range.sector.checked_add(range.sectors.into())?;
                if end > target.sectors {
                    return None;
                }
                self.ranges.push(range);
            }
            _ => return None,
        }
        Some(())
    }
}

fn clip(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

fn entry(bytes: &mut Vec<u8>, kind: u32, payload: &[u8]) {
    let len = u32::try_from(payload.len()).expect("an entry is bounded by what makes it");
    let head = [kind.to_le_bytes(), len.to_le_bytes()].concat();
    let sum = crc32c::crc32c_append(crc32c::crc32c(&head), payload);
    bytes.extend(head);
    bytes.extend(sum.to_le_bytes());
    bytes.extend(payload);
}

fn read_entry(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let head = bytes.get(..ENTRY_BYTES)?;
    let payload = bytes[ENTRY_BYTES..].get(..usize::try_from(le32(head, 4)).ok()?)?;
    let sum = crc32c::crc32c_append(crc32c::crc32c(&head[..8]), payload);
    (sum == le32(head, 8)).then(|| (le32(head, 0), payload))
}

impl UndoTarget {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; TARGET_BYTES];
        put_le64(&mut bytes, 0, self.sectors);
        match &self.place {
            UndoTargetKind::Member => {}
            UndoTargetKind::Array(uuid) => {
                bytes[8] = 1;
                put(&mut bytes, 12, uuid);
            }
            UndoTargetKind::Volume(group, volume) => {
                bytes[8] = 2;
                put(&mut bytes, 12, group.bytes());
                put(&mut bytes, 44, volume.bytes());
            }
        }
        for (ix, sample) in self.samples.iter().enumerate() {
            put_le32(&mut bytes, 76 + 8 * ix, sample.unwrap_or(0));
            put_le32(&mut bytes, 80 + 8 * ix, u32::from(sample.is_some()));
        }
        let clip = |text: &str| text[..text.floor_char_boundary(NAME_BYTES_MAX)].to_owned();
        let (name, drive) = (clip(&self.name), clip(&self.drive));
        put_le16(&mut bytes, 204, name.len() as u16);
        put_le16(&mut bytes, 206, drive.len() as u16);
        bytes.extend(name.as_bytes());
        bytes.extend(drive.as_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, text) = bytes.split_at_checked(TARGET_BYTES)?;
        let (name, drive) = text.split_at_checked(le16(head, 204).into())?;
        if drive.len() != usize::from(le16(head, 206)) || name.len().max(drive.len()) > NAME_BYTES_MAX {
            return None;
        }
        let place = match head[8] {
            0 => UndoTargetKind::Member,
            1 => UndoTargetKind::Array(array(head, 12)),
            2 => UndoTargetKind::Volume(Id::from_bytes(array(head, 12))?, Id::from_bytes(array(head, 44))?),
            _ => return None,
        };
        let text = |bytes| std::str::from_utf8(bytes).ok().map(str::to_owned);
        Some(Self {
            name: text(name)?,
            place,
            // So that no place in it is beyond what a number holds.
            sectors: Some(le64(head, 0)).filter(|&sectors| sectors <= i64::MAX as u64 / 512)?,
            drive: text(drive)?,
            samples: std::array::from_fn(|ix| {
                (le32(head, 80 + 8 * ix) == 1).then(|| le32(head, 76 + 8 * ix))
            }),
        })
    }
}

impl Range {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; RANGE_BYTES];
        put_le32(&mut bytes, 0, self.target);
        put_le32(&mut bytes, 4, self.sectors);
        put_le64(&mut bytes, 8, self.sector);
        bytes[16] = u8::from(self.before.is_some());
        bytes[17] = u8::try_from(self.written.len()).expect("no sector is written so often");
        put_le16(&mut bytes, 18, self.step);
        self.written.iter().flatten().for_each(|sum| bytes.extend(sum.to_le_bytes()));
        bytes.extend(self.before.iter().flatten());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(RANGE_BYTES)?;
        let (sectors, versions) = (le32(head, 4) as usize, usize::from(head[17]));
        if !(1..=RANGE_SECTORS_MAX).contains(&sectors) || !(1..=VERSIONS_MAX).contains(&versions) {
            return None;
        }
        let (sums, before) = rest.split_at_checked(4 * sectors * versions)?;
        let written = sums.chunks_exact(4 * sectors);
        let before = match (head[16], before.len()) {
            (0, 0) => None,
            (1, len) if len == sectors * SECTOR_BYTES => Some(before.to_vec()),
            _ => return None,
        };
        Some(Self {
            target: le32(head, 0),
            sector: le64(head, 8),
            sectors: le32(head, 4),
            step: le16(head, 18),
            before,
            written: written
                .map(|version| version.chunks_exact(4).map(|sum| le32(sum, 0)).collect())
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> UndoLog {
        let target = |name: &str, place| UndoTarget {
            name: name.to_owned(),
            place,
            sectors: 4096,
            drive: "naa.5000".to_owned(),
            samples: std::array::from_fn(|ix| (ix != 3).then_some(ix as u32 * 7)),
        };
        let id = Id::from_random([7; 32]);
        UndoLog {
            command: "wattle erase ü".to_owned(),
            time: (1_800_000_000, 999_999),
            given: vec!["/dev/sdb".to_owned(), "/tmp/a".to_owned()],
            targets: vec![
                target("/dev/sdb", UndoTargetKind::Member),
                target("data", UndoTargetKind::Array([9; 16])),
                target("vg/lv", UndoTargetKind::Volume(id, id)),
            ],
            ranges: vec![
                Range {
                    target: 0,
                    sector: 8,
                    sectors: 2,
                    step: 3,
                    before: Some((0..=255).cycle().take(1024).collect()),
                    written: vec![vec![1, 2], vec![3, 4]],
                },
                Range { target: 2, sector: 4095, sectors: 1, step: 0, before: None, written: vec![vec![0]] },
            ],
        }
    }

    #[test]
    fn a_log_reads_back_and_every_changed_or_missing_byte_is_seen() {
        let bytes = log().encode();
        assert_eq!(UndoLog::decode(&bytes), Ok(log()));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(UndoLog::decode(&damaged).is_err(), "byte {at}");
            assert!(UndoLog::decode(&bytes[..at]).is_err(), "{at} bytes");
        }
        let mut longer = bytes.clone();
        longer.extend([0; 12]);
        assert!(UndoLog::decode(&longer).is_err());
        let (expected, found) = (bytes.len() as u64, bytes.len() as u64 - 1);
        assert_eq!(UndoLog::decode(&bytes[..bytes.len() - 1]), Err(UndoLogError::Short { expected, found }));
    }

    #[test]
    fn what_cannot_be_is_refused_whatever_its_checksums_say() {
        let mut beyond = log();
        beyond.ranges[1].sector += 1;
        assert!(matches!(UndoLog::decode(&beyond.encode()), Err(UndoLogError::Damaged(_))));
        let mut nobody = log();
        nobody.ranges[0].target = 3;
        assert!(matches!(UndoLog::decode(&nobody.encode()), Err(UndoLogError::Damaged(_))));
        let mut huge = log();
        huge.targets[0].sectors = u64::MAX;
        assert!(matches!(UndoLog::decode(&huge.encode()), Err(UndoLogError::Damaged(_))));
        let mut never = log();
        never.ranges[1].written.clear();
        assert!(matches!(UndoLog::decode(&never.encode()), Err(UndoLogError::Damaged(_))));
    }

    #[test]
    fn a_sector_is_as_before_or_as_written() {
        let (log, zeros) = (log(), [0; SECTOR_BYTES]);
        assert_eq!(log.ranges[0].before(1)[..2], [0, 1]);
        assert_eq!(log.ranges[1].before(0), zeros);
        let of_zeros = Range { written: vec![vec![crc32c::crc32c(&zeros)]], ..log.ranges[1].clone() };
        assert!(of_zeros.is_written(0, &zeros) && !of_zeros.is_written(0, &[1; SECTOR_BYTES]));
    }
}
