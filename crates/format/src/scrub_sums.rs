//! What a recorded scrub remembers of an array: a checksum of every block of every member, in a
//! file beside the array (docs/formats.md §24). Not a format of md: nothing of it is on a member.
//!
//! A file has two *halves*, each of which can hold one set of sums; the header with the higher
//! generation is that of the set that counts. Bytes, little-endian, from the start of the file:
//!
//! | what | where | bytes |
//! |---|---|---|
//! | header of each half | 4096 × half | 512, of 4096 |
//! | notes of each half | 8192 + half × notes | 4096 for each 32,704 regions |
//! | leaves of each half | behind the notes | 512 + lanes × 8 × blocks of a leaf, each |
//!
//! Every header, page of notes and leaf has a checksum, and the last two the generation of their
//! set: what is torn or left over from another set is not taken for anything. A page of notes that
//! is not right says that everything was written.

use crate::bytes::{array, le32, le64, put, put_le32, put_le64};

/// Bytes of a page of notes, and of the place of a header.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of a header: what drives write whole.
pub const HEADER_BYTES: usize = 512;
/// Regions in a page of notes.
pub const PAGE_REGIONS: u64 = (PAGE_BYTES - 8) * 8;
/// Slots that a header has a bit for.
pub const SLOTS_MAX: usize = 384;

const MAGIC: &[u8; 8] = b"WTLSUMS\0";
const VERSION: u32 = 1;
const LEAF_HEADER_BYTES: usize = 512;
const LEAF_MAGIC: u32 = 0x4641_454c;
/// Blocks of a leaf: 128 MiB of each member, less of a small array.
const LEAF_BLOCKS: [u64; 2] = [64, 2048];

/// The shape of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumsShape {
    /// Sectors of 512 bytes of the space that blocks and regions divide.
    pub total_sectors: u64,
    /// Sectors of a block.
    pub block_sectors: u32,
    /// Sums of a block.
    pub lanes: u32,
    /// Sectors of a region of notes.
    pub region_sectors: u64,
}

impl SumsShape {
    /// How many blocks there are.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.total_sectors.div_ceil(u64::from(self.block_sectors.max(1)))
    }

    /// How many regions there are.
    #[must_use]
    pub fn regions(&self) -> u64 {
        self.total_sectors.div_ceil(self.region_sectors.max(1))
    }

    /// How many pages of notes a half has.
    #[must_use]
    pub fn note_pages(&self) -> u64 {
        self.regions().div_ceil(PAGE_REGIONS)
    }

    /// Where a half's page of notes is.
    #[must_use]
    pub fn note_page_at(&self, half: u8, page: u64) -> u64 {
        2 * PAGE_BYTES + (u64::from(half) * self.note_pages() + page) * PAGE_BYTES
    }

    /// Blocks of a leaf.
    #[must_use]
    pub fn leaf_blocks(&self) -> u64 {
        let [least, most] = LEAF_BLOCKS;
        self.blocks().checked_next_power_of_two().unwrap_or(most).clamp(least, most)
    }

    /// How many leaves a half has.
    #[must_use]
    pub fn leaves(&self) -> u64 {
        self.blocks().div_ceil(self.leaf_blocks())
    }

    /// Bytes of a leaf.
    #[must_use]
    pub fn leaf_bytes(&self) -> usize {
        LEAF_HEADER_BYTES + self.lanes as usize * self.leaf_blocks() as usize * 8
    }

    /// Where a leaf is.
    #[must_use]
    pub fn leaf_at(&self, half: u8, leaf: u64) -> u64 {
        let leaves = 2 * PAGE_BYTES * (1 + self.note_pages());
        leaves + (u64::from(half) * self.leaves() + leaf) * self.leaf_bytes() as u64
    }

    /// Where a half's leaves are.
    #[must_use]
    pub fn leaves_range(&self, half: u8) -> std::ops::Range<u64> {
        self.leaf_at(half, 0)..self.leaf_at(half, self.leaves())
    }

    /// Bytes of the file.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.leaf_at(1, self.leaves())
    }
}

/// Which state of an array a set of sums belongs to: md's event count and the time of the last
/// update, as they are in the members' superblocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SumsSignature {
    /// The event count.
    pub events: u64,
    /// Seconds of the time of the update.
    pub secs: u64,
    /// And microseconds.
    pub micros: u32,
}

/// The header of a half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SumsHeader {
    /// The array's UUID, as its superblocks have it.
    pub array: [u8; 16],
    /// The higher one counts.
    pub generation: u64,
    /// The shape of the file.
    pub shape: SumsShape,
    /// When the scrub ended: seconds since 1970.
    pub taken_secs: u64,
    /// The states of the array that wattle last wrote, or was about to write.
    pub signatures: [SumsSignature; 2],
    /// Slots whose members were filled since.
    pub void: Vec<u16>,
}

impl SumsHeader {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        put(&mut bytes, 0, MAGIC);
        put_le32(&mut bytes, 8, VERSION);
        put(&mut bytes, 16, &self.array);
        put_le64(&mut bytes, 32, self.generation);
        put_le64(&mut bytes, 40, self.shape.total_sectors);
        put_le32(&mut bytes, 48, self.shape.block_sectors);
        put_le32(&mut bytes, 52, self.shape.lanes);
        put_le64(&mut bytes, 56, self.shape.region_sectors);
        put_le64(&mut bytes, 64, self.taken_secs);
        for (at, signature) in [72, 96].into_iter().zip(&self.signatures) {
            put_le64(&mut bytes, at, signature.events);
            put_le64(&mut bytes, at + 8, signature.secs);
            put_le32(&mut bytes, at + 16, signature.micros);
        }
        for &slot in self.void.iter().filter(|slot| usize::from(**slot) < SLOTS_MAX) {
            bytes[128 + usize::from(slot) / 8] |= 1 << (slot % 8);
        }
        let sum = crc32c::crc32c(&bytes);
        put_le32(&mut bytes, 12, sum);
        bytes
    }

    /// The header in these bytes; `None` if it is none, or of another version, or damaged.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_BYTES] = bytes.get(..HEADER_BYTES)?.try_into().ok()?;
        let mut zeroed = *bytes;
        put_le32(&mut zeroed, 12, 0);
        if !bytes.starts_with(MAGIC)
            || le32(bytes, 8) != VERSION
            || crc32c::crc32c(&zeroed) != le32(bytes, 12)
        {
            return None;
        }
        let signature = |at: usize| SumsSignature {
            events: le64(bytes, at),
            secs: le64(bytes, at + 8),
            micros: le32(bytes, at + 16),
        };
        let is_void = |slot: &u16| bytes[128 + usize::from(*slot) / 8] >> (slot % 8) & 1 == 1;
        Some(Self {
            array: array(bytes, 16),
            generation: le64(bytes, 32),
            shape: SumsShape {
                total_sectors: le64(bytes, 40),
                block_sectors: le32(bytes, 48),
                lanes: le32(bytes, 52),
                region_sectors: le64(bytes, 56),
            },
            taken_secs: le64(bytes, 64),
            signatures: [signature(72), signature(96)],
            void: (0..SLOTS_MAX as u16).filter(is_void).collect(),
        })
    }
}

/// A page of notes: a bit for each region that was written. `is_noted` is asked for the regions of
/// the page, from 0.
#[must_use]
pub fn encode_notes(generation: u64, is_noted: impl Fn(u64) -> bool) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_BYTES as usize];
    put_le32(&mut bytes, 4, generation as u32);
    for region in (0..PAGE_REGIONS).filter(|region| is_noted(*region)) {
        bytes[8 + region as usize / 8] |= 1 << (region % 8);
    }
    let sum = crc32c::crc32c(&bytes);
    put_le32(&mut bytes, 0, sum);
    bytes
}

/// The regions that a page of notes says were written; `None` if it says nothing that can be
/// believed.
#[must_use]
pub fn decode_notes(bytes: &[u8], generation: u64) -> Option<Vec<u64>> {
    let mut page = bytes.get(..PAGE_BYTES as usize)?.to_vec();
    let sum = le32(&page, 0);
    put_le32(&mut page, 0, 0);
    if crc32c::crc32c(&page) != sum || le32(&page, 4) != generation as u32 {
        return None;
    }
    let is_noted = |region: &u64| page[8 + *region as usize / 8] >> (region % 8) & 1 == 1;
    Some((0..PAGE_REGIONS).filter(is_noted).collect())
}

/// A leaf: the sums of its blocks, block by block, 0 where there is none.
#[must_use]
pub fn encode_leaf(shape: &SumsShape, generation: u64, leaf: u64, sums: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0; shape.leaf_bytes()];
    put_le32(&mut bytes, 0, LEAF_MAGIC);
    put_le64(&mut bytes, 8, generation);
    put_le64(&mut bytes, 16, leaf);
    for (place, sum) in bytes[LEAF_HEADER_BYTES..].chunks_exact_mut(8).zip(sums) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
    let sum = crc32c::crc32c(&bytes);
    put_le32(&mut bytes, 4, sum);
    bytes
}

/// The sums of a leaf; `None` if it is not that leaf of that set, or damaged.
#[must_use]
pub fn decode_leaf(shape: &SumsShape, generation: u64, leaf: u64, bytes: &[u8]) -> Option<Vec<u64>> {
    let mut bytes = bytes.get(..shape.leaf_bytes())?.to_vec();
    let sum = le32(&bytes, 4);
    put_le32(&mut bytes, 4, 0);
    let named = (le32(&bytes, 0), le64(&bytes, 8), le64(&bytes, 16)) == (LEAF_MAGIC, generation, leaf);
    if !named || crc32c::crc32c(&bytes) != sum {
        return None;
    }
    Some(bytes[LEAF_HEADER_BYTES..].chunks_exact(8).map(|sum| le64(sum, 0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: SumsShape =
        SumsShape { total_sectors: 1 << 31, block_sectors: 128, lanes: 3, region_sectors: 32 << 10 };

    fn header() -> SumsHeader {
        let signature = |events| SumsSignature { events, secs: 1_700_000_000, micros: 123_456 };
        SumsHeader {
            array: *b"0123456789abcdef",
            generation: 7,
            shape: SHAPE,
            taken_secs: 1_700_000_100,
            signatures: [signature(41), signature(42)],
            void: vec![0, 9, 383],
        }
    }

    #[test]
    fn headers_come_back_and_no_bit_may_change() {
        let bytes = header().encode();
        assert_eq!(SumsHeader::decode(&bytes), Some(header()));
        for byte in 0..HEADER_BYTES {
            let mut damaged = bytes;
            damaged[byte] ^= 4;
            assert_eq!(SumsHeader::decode(&damaged), None, "byte {byte}");
        }
        assert_eq!(SumsHeader::decode(&bytes[..511]), None);
        assert_eq!(SumsHeader::decode(&[0; 512]), None);
    }

    #[test]
    fn notes_and_leaves_are_of_one_set_and_no_other() {
        let noted = [0, 5, PAGE_REGIONS - 1];
        let page = encode_notes(7, |region| noted.contains(&region));
        assert_eq!(decode_notes(&page, 7), Some(noted.to_vec()));
        assert_eq!(decode_notes(&page, 8), None, "left over from another set");
        assert_eq!(decode_notes(&vec![0; 4096], 0), None, "never written");
        let sums: Vec<u64> = (1..=SHAPE.leaf_blocks() * 3).collect();
        let leaf = encode_leaf(&SHAPE, 7, 2, &sums);
        assert_eq!(decode_leaf(&SHAPE, 7, 2, &leaf), Some(sums));
        assert_eq!(decode_leaf(&SHAPE, 6, 2, &leaf), None);
        assert_eq!(decode_leaf(&SHAPE, 7, 3, &leaf), None, "in the wrong place");
        for damaged in [&leaf[..leaf.len() - 1], &[&leaf[..600], &[!leaf[600]], &leaf[601..]].concat()] {
            assert_eq!(decode_leaf(&SHAPE, 7, 2, damaged), None);
        }
    }

    /// What docs/scrubs.md says of the size: 128 MiB for each TiB of a member and half of one in a
    /// hundred more, in each half.
    #[test]
    fn a_terabyte_takes_so_much() {
        let half = SHAPE.leaves_range(0);
        assert_eq!(half.end - half.start, 8192 * (512 + 3 * (16 << 10)));
        assert!((half.end - half.start) < 3 * (128 << 20) + (5 << 20));
        assert_eq!(SHAPE.leaf_at(1, 0), half.end);
        assert_eq!(SHAPE.file_bytes(), SHAPE.leaves_range(1).end);
        assert_eq!((SHAPE.note_pages(), SHAPE.note_page_at(1, 0)), (3, 8192 + 3 * 4096));
        let small = SumsShape { total_sectors: 100, ..SHAPE };
        assert_eq!((small.blocks(), small.leaf_blocks(), small.leaves()), (1, 64, 1));
    }
}
