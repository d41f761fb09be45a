//! The file that keeps what is written over a member that must not change (`--overlay`).
//!
//! A header of 4 KiB; a map with one bit for each sector of 512 bytes of the member, lowest bit
//! first, rounded up to 4 KiB; then the member's sectors, each in its place. A sector is in this
//! file if its bit is set, and on the member otherwise. What was never written is a hole. Numbers
//! are little-endian.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 16 | magic: `wattle overlay` and two zero bytes |
//! | 16 | 4 | version, 1 |
//! | 20 | 4 | CRC-32C of these 4096 bytes with zeros here |
//! | 24 | 8 | the member's size in sectors |
//! | 32 | 1 | 1 if the time follows |
//! | 36 | 4 | when the member was last written: nanoseconds |
//! | 40 | 8 | and seconds since 1970 |
//! | 48 | 128 | of 16 places of the member: CRC-32C of 4 KiB, 1 if readable (4 bytes each) |
//! | 176 | 2 | length of the name |
//! | 178 | … | the member's name when the overlay was made |
//! | 2232 | 2 | how many of the following there are, 116 at most |
//! | 2240 | 16 each | in partitions: byte (8), CRC-32C of 4 KiB there (4), 1 if readable (4) |
//!
//! Invariant: a bit is written only when its sector is durable here, and never goes back. So
//! whatever part of a change of the map a crash leaves, every bit that is set is right.

use thiserror::Error;

use crate::bytes::{array, le16, le32, le64, put, put_le16, put_le32, put_le64};
use crate::partition::Partition;

/// The header's length, and the map's unit.
pub const PAGE_BYTES: u64 = 4096;
/// Sectors that a page of the map stands for.
pub const PAGE_SECTORS: u64 = PAGE_BYTES * 8;

const SECTOR_BYTES: u64 = 512;
const MAGIC: &[u8; 16] = b"wattle overlay\0\0";
const VERSION: u32 = 1;
const SAMPLES: usize = 16;
const NAME_BYTES_MAX: usize = 2048;
const INSIDE: usize = 2240;
const INSIDE_BYTES: usize = 16;
/// So many places in partitions have room.
pub const PLACES_INSIDE_MAX: usize = (PAGE_BYTES as usize - INSIDE) / INSIDE_BYTES;

/// Where things are, which follows from the member's size alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlayLayout {
    /// The member's size.
    pub sectors: u64,
}

impl OverlayLayout {
    /// Where a page of the map is.
    #[must_use]
    pub fn page_offset(self, page: u64) -> u64 {
        PAGE_BYTES * (1 + page)
    }

    /// Where the member's first sector is.
    #[must_use]
    pub fn data_offset(self) -> u64 {
        self.page_offset(self.sectors.div_ceil(PAGE_SECTORS))
    }

    /// The file's length.
    #[must_use]
    pub fn file_bytes(self) -> u64 {
        self.data_offset() + self.sectors * SECTOR_BYTES
    }
}

/// Which member an overlay is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// As it was called when the overlay was made.
    pub name: String,
    /// Its size in sectors.
    pub sectors: u64,
    /// When it was last written, as far as its file says: seconds since 1970 and nanoseconds.
    pub modified: Option<(i64, u32)>,
    /// What is at [`sample_places`], by [`sample`]; `None` where it could not be read.
    pub samples: [Option<u32>; SAMPLES],
    /// The same of places in partitions, of a drive, whose file does not say when it was written.
    /// More than there is room for are left out.
    pub inside: Vec<(u64, Option<u32>)>,
}

/// Why bytes are no header of an overlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OverlayHeaderError {
    /// Another file, or one whose making was interrupted.
    #[error("it is no overlay")]
    Magic,
    /// A newer one.
    #[error("it is an overlay of version {0}, which is not known here")]
    Version(u32),
    /// Some byte changed.
    #[error("its header is damaged")]
    Damaged,
}

/// Why a member is not the one that an overlay is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Difference {
    /// Another size.
    #[error("it was made over {then} sectors, and this member has {now}")]
    Size {
        /// When the overlay was made.
        then: u64,
        /// Now.
        now: u64,
    },
    /// Other bytes.
    #[error("the member has other bytes at byte {offset} than when it was made")]
    Content {
        /// Where.
        offset: u64,
    },
    /// Same bytes where it was looked, but written since.
    #[error("the member was written since")]
    Modified,
}

/// Where a member of so many sectors is looked at to know it again: where superblocks, labels and
/// partition tables are, and evenly in between.
#[must_use]
pub fn sample_places(sectors: u64) -> [u64; SAMPLES] {
    let (size, page) = (sectors * SECTOR_BYTES, PAGE_BYTES);
    let last = size.saturating_sub(page) / page * page;
    let old_superblock = (size / 0x1_0000 * 0x1_0000).saturating_sub(0x1_0000);
    std::array::from_fn(|ix| match ix {
        0 => 0,
        1 => page.min(last),
        13 => old_superblock,
        14 => last.saturating_sub(page),
        15 => last,
        ix => (last / page / 12 * (ix as u64 - 1)) * page,
    })
}

/// Where a partition is looked at, on the drive: the superblocks of arrays and file systems are at
/// its start and its end, which change with every use.
pub fn places_in_partition(partition: &Partition) -> impl Iterator<Item = u64> + use<> {
    let (start, size) = (partition.start_sectors * SECTOR_BYTES, partition.len_sectors * SECTOR_BYTES);
    let end = size / PAGE_BYTES * PAGE_BYTES;
    let old_superblock = (size / 0x1_0000 * 0x1_0000).saturating_sub(0x1_0000);
    let before_end = (1..=4).map(move |pages| end.saturating_sub(pages * PAGE_BYTES));
    let mut places: Vec<u64> = [0, PAGE_BYTES, old_superblock].into_iter().chain(before_end).collect();
    places.sort_unstable();
    places.dedup();
    places.into_iter().filter(move |place| place + PAGE_BYTES <= end).map(move |place| start + place)
}

/// How many bytes are looked at there.
#[must_use]
pub fn sample_bytes(sectors: u64) -> usize {
    PAGE_BYTES.min(sectors * SECTOR_BYTES) as usize
}

/// What [`Header::samples`] keeps of the bytes at a place.
#[must_use]
pub fn sample(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Magic, version and checksum of a header that has everything else.
pub(crate) fn reseal(bytes: &mut [u8; PAGE_BYTES as usize]) {
    put(bytes, 0, MAGIC);
    put_le32(bytes, 16, VERSION);
    put_le32(bytes, 20, 0);
    let checksum = crc32c::crc32c(bytes);
    put_le32(bytes, 20, checksum);
}

impl Header {
    /// The bytes on disk.
    #[must_use]
    pub fn encode(&self) -> [u8; PAGE_BYTES as usize] {
        let mut bytes = [0; PAGE_BYTES as usize];
        put_le64(&mut bytes, 24, self.sectors);
        if let Some((secs, nanos)) = self.modified {
            bytes[32] = 1;
            put_le32(&mut bytes, 36, nanos);
            put(&mut bytes, 40, &secs.to_le_bytes());
        }
        for (ix, sample) in self.samples.iter().enumerate() {
            put_le32(&mut bytes, 48 + 8 * ix, sample.unwrap_or(0));
            put_le32(&mut bytes, 52 + 8 * ix, u32::from(sample.is_some()));
        }
        let name = &self.name[..self.name.floor_char_boundary(NAME_BYTES_MAX)];
        put_le16(&mut bytes, 176, name.len() as u16);
        put(&mut bytes, 178, name.as_bytes());
        let inside = &self.inside[..self.inside.len().min(PLACES_INSIDE_MAX)];
        put_le16(&mut bytes, INSIDE - 8, inside.len() as u16);
        for (ix, (offset, sample)) in inside.iter().enumerate() {
            let at = INSIDE + INSIDE_BYTES * ix;
            put_le64(&mut bytes, at, *offset);
            put_le32(&mut bytes, at + 8, sample.unwrap_or(0));
            put_le32(&mut bytes, at + 12, u32::from(sample.is_some()));
        }
        reseal(&mut bytes);
        bytes
    }

    /// What the bytes say, which are at least [`PAGE_BYTES`].
    ///
    /// # Errors
    /// They are no header that is known here.
    pub fn decode(bytes: &[u8]) -> Result<Self, OverlayHeaderError> {
        let bytes = bytes.get(..PAGE_BYTES as usize).ok_or(OverlayHeaderError::Magic)?;
        if bytes[..16] != MAGIC[..] {
            return Err(OverlayHeaderError::Magic);
        }
        if le32(bytes, 16) != VERSION {
            return Err(OverlayHeaderError::Version(le32(bytes, 16)));
        }
        let mut zeroed = bytes.to_vec();
        put_le32(&mut zeroed, 20, 0);
        let name = bytes.get(178..178 + usize::from(le16(bytes, 176)));
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        let (sectors, name) = match name {
            Some(name) if crc32c::crc32c(&zeroed) == le32(bytes, 20) => (le64(bytes, 24), name),
            _ => return Err(OverlayHeaderError::Damaged),
        };
        // So that no place in the file is beyond what a number holds.
        if sectors == 0 || sectors > i64::MAX as u64 / SECTOR_BYTES / 2 || name.len() > NAME_BYTES_MAX {
            return Err(OverlayHeaderError::Damaged);
        }
        let inside = usize::from(le16(bytes, INSIDE - 8));
        if inside > PLACES_INSIDE_MAX {
            return Err(OverlayHeaderError::Damaged);
        }
        let time = (i64::from_le_bytes(array(bytes, 40)), le32(bytes, 36));
        let inside = (0..inside).map(|ix| INSIDE + INSIDE_BYTES * ix);
        Ok(Self {
            name: name.to_owned(),
            sectors,
            modified: (bytes[32] == 1).then_some(time),
            samples: std::array::from_fn(|ix| {
                (le32(bytes, 52 + 8 * ix) == 1).then(|| le32(bytes, 48 + 8 * ix))
            }),
            inside: inside
                .map(|at| (le64(bytes, at), (le32(bytes, at + 12) == 1).then(|| le32(bytes, at + 8))))
                .collect(),
        })
    }

    /// Whether this overlay may be used over the member that `now` describes: the same as when it
    /// was made, as far as both could be read.
    ///
    /// # Errors
    /// What is different.
    pub fn check(&self, now: &Self) -> Result<(), Difference> {
        if self.sectors != now.sectors {
            return Err(Difference::Size { then: self.sectors, now: now.sectors });
        }
        let places = sample_places(self.sectors);
        let samples = self.samples.iter().zip(&now.samples).zip(places);
        let inside = self.inside.iter().filter_map(|(offset, then)| {
            let (_, now) = now.inside.iter().find(|(place, _)| place == offset)?;
            Some(((then, now), *offset))
        });
        for ((then, now), offset) in samples.chain(inside) {
            if then.is_some() && now.is_some() && then != now {
                return Err(Difference::Content { offset });
            }
        }
        match (self.modified, now.modified) {
            (Some(then), Some(now)) if then != now => Err(Difference::Modified),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let samples = std::array::from_fn(|ix| (ix != 3).then_some(ix as u32 * 7));
        Header {
            name: "/dev/sdü".to_owned(),
            sectors: 1 << 20,
            modified: Some((-5, 999_999_999)),
            samples,
            inside: vec![(1 << 20, Some(77)), ((1 << 20) + 4096, None)],
        }
    }

    #[test]
    fn a_header_reads_back_and_every_changed_byte_is_seen() {
        let bytes = header().encode();
        assert_eq!(Header::decode(&bytes), Ok(header()));
        let long = Header { name: "ü".repeat(3000), modified: None, ..header() };
        let back = Header::decode(&long.encode()).unwrap();
        assert_eq!((back.name.len(), back.modified), (NAME_BYTES_MAX, None));
        for at in 0..bytes.len() {
            let mut damaged = bytes;
            damaged[at] ^= 0x10;
            assert!(Header::decode(&damaged).is_err(), "byte {at}");
        }
        assert_eq!(Header::decode(&bytes[..4000]), Err(OverlayHeaderError::Magic));
    }

    #[test]
    fn another_member_is_told_by_size_content_and_time() {
        let (then, mut now) = (header(), header());
        now.name = "elsewhere".to_owned();
        assert_eq!(then.check(&now), Ok(()), "a drive may have another name after the next start");
        now.samples[3] = Some(1);
        now.samples[4] = None;
        assert_eq!(then.check(&now), Ok(()), "what could not be read tells nothing");
        now.modified = Some((-5, 0));
        assert_eq!(then.check(&now), Err(Difference::Modified));
        now.samples[15] = Some(0);
        let offset = (1 << 29) - 4096;
        assert_eq!(then.check(&now), Err(Difference::Content { offset }));
        now.sectors -= 1;
        assert_eq!(then.check(&now), Err(Difference::Size { then: 1 << 20, now: (1 << 20) - 1 }));
    }

    #[test]
    fn places_lie_inside_and_cover_where_superblocks_are() {
        for sectors in [1, 7, 8, 9, 100, 127, 128, 129, 2048, 163_840, 1 << 34] {
            let places = sample_places(sectors);
            let len = sample_bytes(sectors) as u64;
            assert!(places.iter().all(|place| place + len <= sectors * 512), "{sectors}: {places:?}");
            let layout = OverlayLayout { sectors };
            assert!(layout.data_offset().is_multiple_of(4096));
            assert!(layout.page_offset((sectors - 1) / PAGE_SECTORS) < layout.data_offset());
        }
        let places = sample_places(163_840);
        assert_eq!(places[..2], [0, 4096]);
        assert_eq!(places[13..], [(80 << 20) - 65536, (80 << 20) - 8192, (80 << 20) - 4096]);
        assert!(places[1..13].windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
    }
}
