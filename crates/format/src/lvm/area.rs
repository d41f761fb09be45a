//! Metadata areas: where a VG's text is and how the next one is committed.
//! docs/formats.md §11.2.
//!
//! An area is one sector of header and a ring. A text is written to free space of the ring; the
//! header then names it as *precommitted* beside the committed one, and then as committed. So a
//! crash leaves the old text or the new one, and what each area says is decided by a single sector.

use super::checksum::{crc, crc_of_parts};
use super::label::Area;
use super::text::MAX_BYTES;
use crate::bytes::{le32, le64, put, put_le32, put_le64};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 512;

const SECTOR_BYTES: u64 = 512;
const MAGIC: &[u8; 16] = b" LVM2 x[5A%r0N*>";
const VERSION: u32 = 1;
/// The ring follows the header.
const RING_START: u64 = HEADER_BYTES as u64;
const SLOTS: usize = 40;
const SLOT_BYTES: usize = 24;
/// Flags of the committed slot: the area's, even when it holds no text.
const FLAGS: usize = SLOTS + 20;
const COMMITTED: usize = 0;
const PRECOMMITTED: usize = 1;
const IGNORED: u32 = 1;

/// Where a text is in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// From the start of the area.
    pub offset_bytes: u64,
    /// Length with the NUL that ends it.
    pub size_bytes: u64,
    /// Checksum of these bytes.
    pub crc: u32,
    /// Bit 0: the area is not in use.
    pub flags: u32,
}

/// The header of an area. Every byte that is not understood survives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    bytes: [u8; HEADER_BYTES],
}

/// What is wrong with an area or with the text in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AreaError {
    /// The header could not be read in full.
    #[error("only {got} of the metadata area header's {HEADER_BYTES} bytes could be read")]
    Truncated {
        /// Bytes given.
        got: usize,
    },
    /// Not a header.
    #[error("metadata area does not start with its magic")]
    Magic,
    /// Damaged or torn.
    #[error("metadata area header checksum is {stored:08x}, the bytes add up to {computed:08x}")]
    HeaderChecksum {
        /// The stored value.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// A format to come.
    #[error("metadata area version {found}, known is {VERSION}")]
    Version {
        /// The stored value.
        found: u32,
    },
    /// Written for another place, or not the area the label promises.
    #[error(
        "metadata area header describes {stored_size} bytes at byte {stored_start}, the label {size} bytes at byte {start}"
    )]
    Misplaced {
        /// Start according to the header.
        stored_start: u64,
        /// Size according to the header.
        stored_size: u64,
        /// Start according to the label.
        start: u64,
        /// Size according to the label.
        size: u64,
    },
    /// No room for two texts, not whole sectors, or past any device.
    #[error("a metadata area of {size} bytes at byte {start} cannot be used")]
    Shape {
        /// Its start.
        start: u64,
        /// Its size.
        size: u64,
    },
    /// A text outside the ring, or longer than it.
    #[error("metadata of {size_bytes} bytes at byte {offset_bytes} of its area is not inside the ring")]
    OutsideRing {
        /// Its offset in the area.
        offset_bytes: u64,
        /// Its length.
        size_bytes: u64,
    },
    /// Not all of the text could be read.
    #[error("{got} bytes of metadata were read where the header says {want}")]
    TextLength {
        /// Bytes the header promises.
        want: u64,
        /// Bytes given.
        got: u64,
    },
    /// The text is not what the header names: damaged, or overwritten.
    #[error("metadata checksum is {stored:08x}, the bytes add up to {computed:08x}")]
    TextChecksum {
        /// The stored value.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// The new text does not fit beside the old one.
    #[error("metadata of {size_bytes} bytes does not fit into this area, at most {max_bytes} do")]
    Full {
        /// Its length with its NUL.
        size_bytes: u64,
        /// What always fits.
        max_bytes: u64,
    },
    /// A NUL inside the text would end it early.
    #[error("metadata with a NUL at byte {at}")]
    Nul {
        /// Its place.
        at: usize,
    },
}

impl Header {
    /// The header of an empty area, as `pvcreate` writes it.
    pub fn new(area: Area) -> Result<Header, AreaError> {
        let mut header = Header { bytes: [0; HEADER_BYTES] };
        put(&mut header.bytes, 4, MAGIC);
        put_le32(&mut header.bytes, 20, VERSION);
        put_le64(&mut header.bytes, 24, area.offset_bytes);
        put_le64(&mut header.bytes, 32, area.size_bytes);
        header.seal();
        header.check(area)?;
        Ok(header)
    }

    /// The header of the area that a label names, from the area's first bytes.
    pub fn decode(bytes: &[u8], area: Area) -> Result<Header, AreaError> {
        let bytes = *bytes.first_chunk().ok_or(AreaError::Truncated { got: bytes.len() })?;
        let header = Header { bytes };
        header.check(area)?;
        Ok(header)
    }

    fn check(&self, area: Area) -> Result<(), AreaError> {
        if self.bytes[4..20] != MAGIC[..] {
            return Err(AreaError::Magic);
        }
        let (stored, computed) = (le32(&self.bytes, 0), crc(&self.bytes[4..]));
        if stored != computed {
            return Err(AreaError::HeaderChecksum { stored, computed });
        }
        let found = le32(&self.bytes, 20);
        if found != VERSION {
            return Err(AreaError::Version { found });
        }
        let (start, size) = (area.offset_bytes, area.size_bytes);
        if (self.start(), self.size()) != (start, size) {
            let (stored_start, stored_size) = (self.start(), self.size());
            return Err(AreaError::Misplaced { stored_start, stored_size, start, size });
        }
        let whole = start.is_multiple_of(SECTOR_BYTES) && size.is_multiple_of(SECTOR_BYTES);
        if !whole || start.checked_add(size).is_none() || size < RING_START + 4 * SECTOR_BYTES {
            return Err(AreaError::Shape { start, size });
        }
        Ok(())
    }

    /// The sector to write.
    #[must_use]
    pub fn bytes(&self) -> &[u8; HEADER_BYTES] {
        &self.bytes
    }

    /// First byte of the area on the device.
    #[must_use]
    pub fn start(&self) -> u64 {
        le64(&self.bytes, 24)
    }

    /// Bytes of the area, this header included.
    #[must_use]
    pub fn size(&self) -> u64 {
        le64(&self.bytes, 32)
    }

    /// The text that counts. `None` in the area of a new PV.
    #[must_use]
    pub fn committed(&self) -> Option<Location> {
        self.slot(COMMITTED)
    }

    /// A text that was about to be committed when its writer stopped. It never counts.
    #[must_use]
    pub fn precommitted(&self) -> Option<Location> {
        self.slot(PRECOMMITTED)
    }

    /// Whether the area is kept but not used (`--metadataignore`).
    #[must_use]
    pub fn is_ignored(&self) -> bool {
        le32(&self.bytes, FLAGS) & IGNORED != 0
    }

    fn slot(&self, slot: usize) -> Option<Location> {
        let at = SLOTS + slot * SLOT_BYTES;
        let location = Location {
            offset_bytes: le64(&self.bytes, at),
            size_bytes: le64(&self.bytes, at + 8),
            crc: le32(&self.bytes, at + 16),
            flags: le32(&self.bytes, at + 20),
        };
        (location.offset_bytes != 0).then_some(location)
    }

    fn with_slot(&self, slot: usize, location: Option<Location>) -> Header {
        let mut header = self.clone();
        let at = SLOTS + slot * SLOT_BYTES;
        header.bytes[at..at + SLOT_BYTES].fill(0);
        if let Some(location) = location {
            put_le64(&mut header.bytes, at, location.offset_bytes);
            put_le64(&mut header.bytes, at + 8, location.size_bytes);
            put_le32(&mut header.bytes, at + 16, location.crc);
            put_le32(&mut header.bytes, at + 20, location.flags);
        }
        header.seal();
        header
    }

    fn seal(&mut self) {
        let sum = crc(&self.bytes[4..]);
        put_le32(&mut self.bytes, 0, sum);
    }

    /// Where a text is on the device: one range, or two when it wraps around the ring's end.
    pub fn ranges(&self, location: &Location) -> Result<Vec<Area>, AreaError> {
        let Location { offset_bytes, size_bytes, .. } = *location;
        let (start, size) = (self.start(), self.size());
        if !(RING_START..size).contains(&offset_bytes) || size_bytes == 0 || size_bytes > size - RING_START {
            return Err(AreaError::OutsideRing { offset_bytes, size_bytes });
        }
        let first = size_bytes.min(size - offset_bytes);
        let mut ranges = vec![Area { offset_bytes: start + offset_bytes, size_bytes: first }];
        if first < size_bytes {
            ranges.push(Area { offset_bytes: start + RING_START, size_bytes: size_bytes - first });
        }
        Ok(ranges)
    }

    /// Puts the pieces read from [`Header::ranges`] together. The text comes without the NUL.
    pub fn text(&self, location: &Location, pieces: &[&[u8]]) -> Result<Vec<u8>, AreaError> {
        let got = pieces.iter().map(|piece| piece.len() as u64).sum();
        if got != location.size_bytes {
            return Err(AreaError::TextLength { want: location.size_bytes, got });
        }
        let (stored, computed) = (location.crc, crc_of_parts(pieces.iter().copied()));
        if stored != computed {
            return Err(AreaError::TextChecksum { stored, computed });
        }
        let mut text = pieces.concat();
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        text.truncate(end);
        Ok(text)
    }

    /// The longest text that fits beside any other of that length and can be read again, without
    /// its NUL.
    #[must_use]
    pub fn max_text_bytes(&self) -> u64 {
        // LVM2 keeps a sector more than needed.
        let room = ((self.size() - RING_START) / 2).saturating_sub(SECTOR_BYTES + 1);
        room.min(MAX_BYTES as u64)
    }

    /// The header that ends a commit which was cut short before it, where the text that was about
    /// to be committed is the one that counts by now, since other areas have it: its checksum is
    /// `current_crc`. `None` where there is nothing to end. The next commit has to begin from it:
    /// beside the committed text that this area still names, it would write over the one that
    /// counts.
    #[must_use]
    pub fn ended(&self, current_crc: u32) -> Option<Header> {
        let text = self.precommitted().filter(|text| text.crc == current_crc)?;
        let is_behind = self.committed().is_none_or(|old| old.crc != current_crc);
        is_behind.then(|| self.with_slot(COMMITTED, Some(text)).with_slot(PRECOMMITTED, None))
    }

    /// What to write to this area so that `text` becomes its committed text.
    pub fn commit(&self, text: &[u8]) -> Result<Commit, AreaError> {
        if let Some(at) = text.iter().position(|&byte| byte == 0) {
            return Err(AreaError::Nul { at });
        }
        let size_bytes = text.len() as u64 + 1;
        let max_bytes = self.max_text_bytes();
        if size_bytes > max_bytes + 1 {
            return Err(AreaError::Full { size_bytes, max_bytes });
        }
        // Whole sectors: what is left of the last one is free as well, since texts start at
        // sectors.
        let mut padded = text.to_vec();
        padded.resize(size_bytes.next_multiple_of(SECTOR_BYTES) as usize, 0);
        let offset_bytes = self.next_offset()?;
        let padded_bytes = padded.len() as u64;
        if self.committed().is_some_and(|old| self.overlap(&old, offset_bytes, padded_bytes)) {
            return Err(AreaError::Full { size_bytes, max_bytes });
        }
        let flags = le32(&self.bytes, FLAGS);
        let text_crc = crc_of_parts([text, &[0]]);
        let location = Location { offset_bytes, size_bytes, crc: text_crc, flags };
        let mut texts = Vec::new();
        for range in self.ranges(&Location { size_bytes: padded_bytes, ..location })? {
            let rest = padded.split_off(range.size_bytes as usize);
            texts.push((range.offset_bytes, std::mem::replace(&mut padded, rest)));
        }
        let precommit = self.with_slot(PRECOMMITTED, Some(location));
        let commit = self.with_slot(COMMITTED, Some(location)).with_slot(PRECOMMITTED, None);
        Ok(Commit { texts, precommit, commit })
    }

    /// Behind the committed text, at the next sector, around the ring's end.
    fn next_offset(&self) -> Result<u64, AreaError> {
        let Some(old) = self.committed() else { return Ok(RING_START) };
        self.ranges(&old)?;
        let end = (old.offset_bytes + old.size_bytes).next_multiple_of(SECTOR_BYTES);
        Ok(if end < self.size() { end } else { RING_START + (end - self.size()) })
    }

    /// Whether `bytes` of the ring from `offset` on touch a text.
    fn overlap(&self, text: &Location, offset: u64, bytes: u64) -> bool {
        let ring = self.size() - RING_START;
        let distance = |from: u64, to: u64| (to + ring - from) % ring;
        distance(text.offset_bytes, offset) < text.size_bytes || distance(offset, text.offset_bytes) < bytes
    }
}

/// The commit of one text to one area, in its order: `texts` on every area, flush; `precommit` on
/// every area, flush; `commit` on every area, flush. Each header is written to the start of its
/// area and is one sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Whole sectors and where they go on the device: one run, or two around the ring's end.
    pub texts: Vec<(u64, Vec<u8>)>,
    /// Names the new text beside the old one.
    pub precommit: Header,
    /// Names the new text alone.
    pub commit: Header,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AREA: Area = Area { offset_bytes: 4096, size_bytes: 20 * 512 };

    /// The device's bytes, so that commits can be carried out and cut short.
    struct Device(Vec<u8>);

    impl Device {
        fn new() -> Device {
            let mut bytes = vec![0; 4096 + 20 * 512];
            put(&mut bytes, 4096, Header::new(AREA).unwrap().bytes());
            Device(bytes)
        }

        fn header(&self) -> Header {
            Header::decode(&self.0[4096..], AREA).unwrap()
        }

        fn write(&mut self, at: u64, bytes: &[u8]) {
            put(&mut self.0, at as usize, bytes);
        }

        fn read(&self, location: &Location) -> Result<Vec<u8>, AreaError> {
            let header = self.header();
            let ranges = header.ranges(location)?;
            let pieces: Vec<&[u8]> = ranges
                .iter()
                .map(|range| &self.0[range.offset_bytes as usize..][..range.size_bytes as usize])
                .collect();
            header.text(location, &pieces)
        }

        fn committed(&self) -> Option<Vec<u8>> {
            self.header().committed().map(|location| self.read(&location).unwrap())
        }
    }

    #[test]
    fn a_new_area_holds_nothing() {
        let header = Header::new(AREA).unwrap();
        assert_eq!((header.committed(), header.precommitted(), header.is_ignored()), (None, None, false));
        assert_eq!(Header::decode(header.bytes(), AREA), Ok(header));
        for (offset_bytes, size_bytes) in
            [(4096, 2048), (4096, 20 * 512 + 1), (1, 20 * 512), (!511, 20 * 512)]
        {
            let shape = Err(AreaError::Shape { start: offset_bytes, size: size_bytes });
            assert_eq!(Header::new(Area { offset_bytes, size_bytes }), shape);
        }
    }

    #[test]
    fn what_is_wrong_with_a_header() {
        let good = *Header::new(AREA).unwrap().bytes();
        assert_eq!(Header::decode(&good[..511], AREA), Err(AreaError::Truncated { got: 511 }));
        assert_eq!(Header::decode(&[0; 512], AREA), Err(AreaError::Magic));
        let mut torn = good;
        torn[511] = 1;
        assert!(matches!(Header::decode(&torn, AREA), Err(AreaError::HeaderChecksum { .. })));
        let mut newer = Header { bytes: good };
        newer.bytes[20] = 2;
        newer.seal();
        assert_eq!(Header::decode(newer.bytes(), AREA), Err(AreaError::Version { found: 2 }));
        let other = Area { offset_bytes: 8192, ..AREA };
        assert!(matches!(Header::decode(&good, other), Err(AreaError::Misplaced { .. })));
    }

    /// Sizes chosen so that texts wrap: what is committed always reads back, around the ring's end
    /// too.
    #[test]
    fn texts_go_around_the_ring() {
        let mut device = Device::new();
        let mut wrapped = 0;
        for turn in 0..200_usize {
            let text = vec![b'a' + (turn % 26) as u8; 1 + turn * 997 % 4200];
            let commit = device.header().commit(&text).unwrap();
            wrapped += usize::from(commit.texts.len() == 2);
            let before = device.committed();
            for (at, bytes) in &commit.texts {
                device.write(*at, bytes);
                assert_eq!(device.committed(), before, "the old text is not touched");
            }
            device.write(4096, commit.precommit.bytes());
            assert_eq!(device.committed(), before, "a precommitted text does not count");
            assert_eq!(device.read(&device.header().precommitted().unwrap()).as_ref(), Ok(&text));
            device.write(4096, commit.commit.bytes());
            assert_eq!(device.committed(), Some(text));
            assert_eq!(device.header().precommitted(), None);
        }
        assert!(wrapped > 10, "{wrapped}");
    }

    #[test]
    fn what_does_not_fit() {
        let mut device = Device::new();
        let max_bytes = device.header().max_text_bytes();
        assert_eq!(max_bytes, 19 * 256 - 512 - 1);
        for _ in 0..20 {
            let commit = device.header().commit(&vec![b'x'; max_bytes as usize]).unwrap();
            commit.texts.iter().for_each(|(at, bytes)| device.write(*at, bytes));
            device.write(4096, commit.commit.bytes());
        }
        let error = device.header().commit(&vec![b'x'; max_bytes as usize + 1]);
        assert_eq!(error, Err(AreaError::Full { size_bytes: max_bytes + 2, max_bytes }));
        assert_eq!(device.header().commit(b"a\0b"), Err(AreaError::Nul { at: 1 }));
    }

    #[test]
    fn hostile_locations() {
        let header = Header::new(AREA).unwrap();
        for (offset_bytes, size_bytes) in
            [(511, 1), (20 * 512, 1), (u64::MAX, 1), (512, 0), (512, u64::MAX), (512, 19 * 512 + 1)]
        {
            let location = Location { offset_bytes, size_bytes, crc: 0, flags: 0 };
            assert_eq!(header.ranges(&location), Err(AreaError::OutsideRing { offset_bytes, size_bytes }));
            let bad = header.with_slot(COMMITTED, Some(location));
            assert_eq!(bad.commit(b"x"), Err(AreaError::OutsideRing { offset_bytes, size_bytes }));
        }
        let location = Location { offset_bytes: 512, size_bytes: 4, crc: crc(b"abc\0"), flags: 0 };
        assert_eq!(header.text(&location, &[b"ab", b"c\0"]), Ok(b"abc".to_vec()));
        assert_eq!(header.text(&location, &[b"abc"]), Err(AreaError::TextLength { want: 4, got: 3 }));
        assert!(matches!(header.text(&location, &[b"abd\0"]), Err(AreaError::TextChecksum { .. })));
    }

    /// In an area of any size: what was committed could never be read again.
    #[test]
    fn a_text_that_no_reader_takes_does_not_fit() {
        let header = Header::new(Area { offset_bytes: 4096, size_bytes: 64 << 20 }).unwrap();
        let max_bytes = MAX_BYTES as u64;
        assert_eq!(header.max_text_bytes(), max_bytes);
        let mut text = vec![b'x'; MAX_BYTES];
        assert!(header.commit(&text).is_ok());
        text.push(b'x');
        assert_eq!(header.commit(&text), Err(AreaError::Full { size_bytes: max_bytes + 2, max_bytes }));
    }

    /// An old text that a newer LVM2, or damage, left where the next one would go is never
    /// overwritten.
    #[test]
    fn the_old_text_is_never_overwritten() {
        let header = Header::new(AREA).unwrap();
        let old = Location { offset_bytes: 512, size_bytes: 17 * 512, crc: 0, flags: IGNORED };
        let header = header.with_slot(COMMITTED, Some(old));
        assert!(header.is_ignored());
        assert!(header.commit(&[b'x'; 1000]).is_ok(), "two sectors are free");
        assert!(matches!(header.commit(&[b'x'; 1024]), Err(AreaError::Full { .. })));
        assert_eq!(header.commit(b"x").unwrap().commit.committed().unwrap().flags, IGNORED, "flags stay");
    }

    proptest! {
        #[test]
        fn any_slot_is_safe(offset_bytes in 0..25_000_u64, size_bytes in 0..25_000_u64, len in 0..6000_usize) {
            let old = Location { offset_bytes, size_bytes, crc: 0, flags: 0 };
            let header = Header::new(AREA).unwrap().with_slot(COMMITTED, Some(old));
            if let Ok(commit) = header.commit(&vec![b'x'; len]) {
                let touched = |at: u64| commit.texts.iter().any(|(start, bytes)| {
                    (*start..*start + bytes.len() as u64).contains(&at)
                });
                let old = if offset_bytes == 0 { Vec::new() } else { header.ranges(&old).unwrap() };
                let bytes = |range: Area| range.offset_bytes..range.offset_bytes + range.size_bytes;
                prop_assert!(!old.into_iter().flat_map(bytes).any(touched), "the old text would be lost");
                prop_assert!(!touched(4096 + 511) && !touched(4096 + 20 * 512), "outside the ring");
            }
        }
    }
}
