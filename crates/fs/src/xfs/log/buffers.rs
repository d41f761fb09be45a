//! Changed buffers: parts of blocks of metadata, in multiples of 128 bytes.
//!
//! A buffer of version 5 says of which transaction it is, in a field whose place its magic number
//! tells. A buffer that was freed by a later transaction may hold anything by now, a file's data
//! even: such a change is passed over.
//!
//! A block of a directory may be several blocks of the file system that lie apart. Each of these is
//! a buffer of its own in the log, and none of them is a whole structure: what the first one says
//! of a checksum is of all of them, and the others say nothing.

use std::collections::BTreeMap;

use crate::bytes::{be16, be64, uuid_at};
use crate::source::ByteSource;
use crate::xfs::checksum_is_right;
use crate::xfs::log::ring::SECTOR_BYTES;
use crate::xfs::log::transactions::LogItem;
use crate::xfs::log::words::LogWords;
use crate::xfs::log::{LogDamage, Lsn};
use crate::xfs::superblock::Superblock;

/// A bit of the map is for so many bytes.
const PART_BYTES: usize = 128;
const MAP_AT: usize = 20;

/// What a buffer of version 5 is, in the upper bits of the flags: a block of a directory, with
/// entries, free space or an index; or a node of an index, which extended attributes have too.
const TYPE_SHIFT: u32 = 11;
const OF_DIRECTORIES: std::ops::RangeInclusive<u16> = 10..=14;
const NODE: u16 = 15;

/// Flags: inodes, of which only the lists of unlinked ones are taken; freed; quotas of three kinds.
const INODES: u16 = 0x1;
const FREED: u16 = 0x2;
const QUOTAS: u16 = 0x1c;

/// Buffers that are freed within one log at most: some 300 MiB of memory.
const FREED_MAX: usize = 4 << 20;

/// Sectors of a buffer at most.
const SECTORS_MAX: u16 = 512;

/// Where buffers of version 5 say of which transaction and which file system they are, and where
/// their checksum is.
struct Fields {
    lsn: usize,
    uuid: usize,
    checksum: usize,
}

/// What a changed buffer was, or is by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferState {
    /// Nothing is to be said of it.
    Fine,
    /// It was torn or damaged before: with the log it is whole if it was torn, and nothing tells
    /// the two apart.
    Torn,
    /// It is a part of a block of a directory whose parts lie apart, and starts at that byte.
    Part(u64),
}

/// A changed buffer.
pub struct LoggedBuffer<'a> {
    /// Its first sector, and how many it has.
    sector: u64,
    sectors: u16,
    flags: u16,
    map: &'a [u8],
    words: LogWords,
    item: &'a LogItem,
}

/// Buffers that are freed in what is still to be applied, and how often.
#[derive(Debug, Default)]
pub struct Cancelled(BTreeMap<(u64, u64), u64>);

impl Cancelled {
    /// Notes that a buffer is freed, if it is.
    ///
    /// # Errors
    /// More are freed than are held.
    pub fn note(&mut self, buffer: &LoggedBuffer<'_>) -> Result<(), LogDamage> {
        if buffer.is_freed() {
            *self.0.entry(buffer.key()).or_default() += 1;
        }
        match self.0.len() <= FREED_MAX {
            true => Ok(()),
            false => Err("more buffers are freed in it than are held in memory"),
        }
    }

    /// Notes that what was applied has come to where it is freed.
    pub fn forget(&mut self, buffer: &LoggedBuffer<'_>) {
        let left = self.0.get(&buffer.key()).map_or(0, |times| times.saturating_sub(1));
        match left {
            0 => drop(self.0.remove(&buffer.key())),
            left => drop(self.0.insert(buffer.key(), left)),
        }
    }

    /// Whether a buffer, by its first sector and its sectors, is freed later.
    pub fn has(&self, sector: u64, sectors: u64) -> bool {
        self.0.contains_key(&(sector, sectors))
    }
}

impl<'a> LoggedBuffer<'a> {
    /// # Errors
    /// The item says what no buffer can be.
    pub fn of_item(item: &'a LogItem, words: LogWords) -> Result<Self, LogDamage> {
        let decode = || {
            let format = item.region(0)?;
            let map_len = words.u32(format, 16)? as usize;
            Some(Self {
                sector: words.u64(format, 8)?,
                sectors: words.u16(format, 6)?,
                flags: words.u16(format, 4)?,
                map: format.get(MAP_AT..MAP_AT.checked_add(map_len.checked_mul(4)?)?)?,
                words,
                item,
            })
        };
        decode().ok_or("the description of a changed buffer in it is none")
    }

    pub fn is_freed(&self) -> bool {
        self.flags & FREED != 0
    }

    pub fn is_superblock(&self) -> bool {
        self.sector == 0
    }

    fn key(&self) -> (u64, u64) {
        (self.sector, self.sectors.into())
    }

    /// Applies it. A whole structure has a right checksum then.
    ///
    /// # Errors
    /// Its place cannot be read, or what changes lies beyond it.
    pub fn apply(
        &self,
        source: &mut ByteSource,
        superblock: &Superblock,
        cancelled: &Cancelled,
        lsn: Lsn,
    ) -> Result<BufferState, LogDamage> {
        let (sector, sectors) = self.key();
        if self.flags & (INODES | QUOTAS) != 0 || cancelled.has(sector, sectors) {
            return Ok(BufferState::Fine);
        }
        if self.sectors == 0 || self.sectors > SECTORS_MAX {
            return Err("a changed buffer in it has an impossible size");
        }
        let offset = sector.checked_mul(SECTOR_BYTES).ok_or("a changed buffer in it lies nowhere")?;
        let bytes = source.bytes(offset, usize::from(self.sectors) * SECTOR_BYTES as usize);
        let mut bytes = bytes.map_err(|_| "the place of a changed buffer cannot be read")?;
        if superblock.version5 && is_newer(&bytes, &superblock.own_uuid(), lsn) {
            return Ok(BufferState::Fine);
        }
        let own = superblock.own_uuid();
        let was_wrong = superblock.version5 && is_wrong(&bytes, &own);
        self.change(&mut bytes).ok_or("a changed buffer in it is not whole")?;
        let is_part = superblock.version5
            && bytes.len() < superblock.directory_block_bytes
            && self.is_of_directory(was_wrong || is_none(&bytes, &own));
        if superblock.version5 && !is_part {
            seal(&mut bytes, &own);
        }
        source.overlay(offset, &bytes)?;
        Ok(match (is_part, was_wrong) {
            (true, _) => BufferState::Part(offset),
            (false, true) => BufferState::Torn,
            (false, false) => BufferState::Fine,
        })
    }

    /// Whether it is of a directory, and not of a file's extended attributes: nodes of an index may
    /// be of either. Those of attributes are whole in their buffers, and have a header.
    fn is_of_directory(&self, is_no_whole_node: bool) -> bool {
        match self.flags >> TYPE_SHIFT {
            NODE => is_no_whole_node,
            kind => OF_DIRECTORIES.contains(&kind),
        }
    }

    /// Puts each run of parts, which is a region, to its place.
    fn change(&self, bytes: &mut [u8]) -> Option<()> {
        let bits = self.map.len() * 8;
        let (mut bit, mut region) = (0, 1);
        while bit < bits {
            if !self.bit(bit)? {
                bit += 1;
                continue;
            }
            let mut run = 1;
            while bit + run < bits && self.bit(bit + run)? {
                run += 1;
            }
            let new = self.item.region(region)?;
            // A region may end before the run, which then goes on with the next.
            let run = run.min(new.len() / PART_BYTES);
            if run == 0 {
                return None;
            }
            let place = bytes.get_mut(bit * PART_BYTES..(bit + run) * PART_BYTES)?;
            place.copy_from_slice(&new[..run * PART_BYTES]);
            (bit, region) = (bit + run, region + 1);
        }
        Some(())
    }

    fn bit(&self, bit: usize) -> Option<bool> {
        Some(self.words.u32(self.map, bit / 32 * 4)? >> (bit % 32) & 1 != 0)
    }
}

/// Where a buffer says what, by its magic number; `None` for what says nothing.
fn fields(bytes: &[u8]) -> Option<Fields> {
    let magic: [u8; 4] = *bytes.first_chunk()?;
    Some(match &magic {
        b"AB3B" | b"AB3C" | b"IAB3" | b"FIB3" | b"RMB3" | b"R3FC" => {
            Fields { lsn: 24, uuid: 32, checksum: 52 }
        }
        b"BMA3" => Fields { lsn: 32, uuid: 40, checksum: 64 },
        b"XAGF" => Fields { lsn: 208, uuid: 64, checksum: 216 },
        b"XAFL" => Fields { lsn: 24, uuid: 8, checksum: 32 },
        b"XAGI" => Fields { lsn: 320, uuid: 296, checksum: 312 },
        b"XSLM" => Fields { lsn: 48, uuid: 16, checksum: 12 },
        b"XDB3" | b"XDD3" | b"XDF3" => Fields { lsn: 16, uuid: 24, checksum: 4 },
        b"XFSB" => Fields { lsn: 240, uuid: 32, checksum: 224 },
        _ => match be16(bytes, 8)? {
            0x3df1 | 0x3dff | 0x3ebe | 0x3bee => Fields { lsn: 24, uuid: 32, checksum: 12 },
            _ => return None,
        },
    })
}

/// Whether a buffer is of this file system, and of that transaction or a later one.
fn is_newer(bytes: &[u8], uuid: &[u8; 16], lsn: Lsn) -> bool {
    let Some(fields) = fields(bytes) else { return false };
    // The superblock has the UUID that users may change, and the other one where that was done.
    let is_ours = bytes.starts_with(b"XFSB") || uuid_at(bytes, fields.uuid) == Some(*uuid);
    let own = be64(bytes, fields.lsn).filter(|own| *own != u64::MAX);
    is_ours && own.is_some_and(|own| Lsn(own) >= lsn)
}

/// Where a buffer says what, if it is one of this file system.
fn own_fields(bytes: &[u8], uuid: &[u8; 16]) -> Option<Fields> {
    fields(bytes).filter(|fields| uuid_at(bytes, fields.uuid) == Some(*uuid))
}

/// Whether a buffer of this file system has a wrong checksum.
fn is_wrong(bytes: &[u8], uuid: &[u8; 16]) -> bool {
    own_fields(bytes, uuid).is_some_and(|fields| !checksum_is_right(bytes, fields.checksum))
}

/// Whether a buffer says nothing of itself.
fn is_none(bytes: &[u8], uuid: &[u8; 16]) -> bool {
    own_fields(bytes, uuid).is_none()
}

/// Makes the checksum of a changed buffer right. The superblock may have another UUID than what is
/// of the file system.
fn seal(bytes: &mut [u8], uuid: &[u8; 16]) {
    let fields = if bytes.starts_with(b"XFSB") { fields(bytes) } else { own_fields(bytes, uuid) };
    if let Some(Fields { checksum, .. }) = fields {
        seal_at(bytes, checksum);
    }
}

/// The same, for a place of the checksum.
pub fn seal_at(bytes: &mut [u8], at: usize) {
    let sum = bytes.split_at_checked(at).filter(|(_, after)| after.len() >= 4).map(|(before, after)| {
        let sum = crc32c::crc32c_append(crc32c::crc32c(before), &[0; 4]);
        crc32c::crc32c_append(sum, &after[4..])
    });
    if let Some(sum) = sum {
        bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    }
}
