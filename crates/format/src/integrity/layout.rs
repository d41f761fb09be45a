//! Where things lie on a device of dm-integrity.

use super::journal::{ENTRY_ROUND_BYTES, JOURNAL_BLOCK_SECTORS, USABLE_BYTES};
use super::{FIXED_PADDING, IntegrityError, IntegritySuperblock, JOURNAL_MAC};

const SECTOR: u64 = 512;
/// Sectors of the superblock.
const SUPERBLOCK_SECTORS: u64 = 8;
/// What areas of tags are padded to, bytes.
const PADDING_BYTES: u64 = 4 << 10;
/// The same on devices of Linux before 5.5.
const OLD_PADDING_BYTES: u64 = 128 << 10;

/// Where things lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntegrityLayout {
    /// The size of a tag.
    pub tag_bytes: u64,
    /// Base-2 logarithm of the sectors of a block.
    pub log2_sectors_per_block: u8,
    log2_interleave_sectors: u8,
    log2_blocks_per_bit: u8,
    /// The size of an entry of the journal.
    pub entry_bytes: usize,
    /// Blocks that a section of the journal has room for.
    pub section_entries: u32,
    /// Sections of the journal.
    pub sections: u32,
    section_sectors: u64,
    /// Where the first area of tags begins.
    areas_sector: u64,
    /// Sectors of an area of tags.
    tags_sectors: u64,
    provided_sectors: u64,
}

impl IntegrityLayout {
    /// The layout that a superblock speaks of.
    ///
    /// # Errors
    /// [`IntegrityError::Field`]: it cannot be.
    pub fn of(superblock: &IntegritySuperblock) -> Result<Self, IntegrityError> {
        let block = superblock.log2_sectors_per_block;
        let tag_bytes = u64::from(superblock.tag_bytes);
        let sectors = 1_usize << block;
        let entry = 8 + 8 * sectors + usize::from(superblock.tag_bytes);
        let entry_bytes = entry.next_multiple_of(ENTRY_ROUND_BYTES);
        let room = USABLE_BYTES - if superblock.has(JOURNAL_MAC) { 8 } else { 0 };
        let in_sector = u32::try_from(room / entry_bytes).expect("a sector's entries");
        let cannot = |field, value| IntegrityError::Field { field, value };
        if in_sector == 0 {
            return Err(cannot("integrity_tag_size", tag_bytes));
        }
        let section_entries = in_sector * JOURNAL_BLOCK_SECTORS;
        let section_sectors = (u64::from(section_entries) << block) + u64::from(JOURNAL_BLOCK_SECTORS);
        let areas_sector = SUPERBLOCK_SECTORS + section_sectors * u64::from(superblock.journal_sections);
        let interleave = superblock.log2_interleave_sectors;
        let padding = if superblock.has(FIXED_PADDING) { PADDING_BYTES } else { OLD_PADDING_BYTES };
        let in_area = if superblock.is_apart() { 0 } else { tag_bytes << (interleave - block) };
        let layout = Self {
            tag_bytes,
            log2_sectors_per_block: block,
            log2_interleave_sectors: interleave,
            log2_blocks_per_bit: superblock.log2_blocks_per_bit,
            entry_bytes,
            section_entries,
            sections: superblock.journal_sections,
            section_sectors,
            areas_sector,
            tags_sectors: in_area.next_multiple_of(padding) / SECTOR,
            provided_sectors: superblock.provided_sectors,
        };
        // All sums below stay within 64 bits.
        if superblock.provided_sectors >= 1 << 48 {
            return Err(cannot("provided_data_sectors", superblock.provided_sectors));
        }
        Ok(layout)
    }

    /// How much of a device it takes, bytes; of tags apart from their data not known.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        let last = self.provided_sectors - 1;
        (self.data_sector(last) + 1) * SECTOR
    }

    /// Sectors from `sector` on that lie behind one another, as do their tags.
    #[must_use]
    pub fn run_sectors(&self, sector: u64) -> u64 {
        let area = 1 << self.log2_interleave_sectors;
        area - sector % area
    }

    /// Where a sector of data lies.
    #[must_use]
    pub fn data_sector(&self, sector: u64) -> u64 {
        let area = sector >> self.log2_interleave_sectors;
        self.areas_sector + (area + 1) * self.tags_sectors + sector
    }

    /// Where the tag of the block at `sector` lies, bytes.
    #[must_use]
    pub fn tag_at_bytes(&self, sector: u64) -> u64 {
        let (area, interleave) = (sector >> self.log2_interleave_sectors, 1 << self.log2_interleave_sectors);
        let in_area = (sector % interleave) >> self.log2_sectors_per_block;
        (self.areas_sector + area * (self.tags_sectors + interleave)) * SECTOR + in_area * self.tag_bytes
    }

    /// Where a section of the journal begins, bytes.
    #[must_use]
    pub fn section_at_bytes(&self, section: u32) -> u64 {
        (SUPERBLOCK_SECTORS + u64::from(section) * self.section_sectors) * SECTOR
    }

    /// The size of a section of the journal.
    #[must_use]
    pub fn section_bytes(&self) -> u64 {
        self.section_sectors * SECTOR
    }

    /// Where the block of an entry of a section lies within the section, bytes.
    #[must_use]
    pub fn entry_data_bytes(&self, entry: u32) -> u64 {
        (u64::from(JOURNAL_BLOCK_SECTORS) + (u64::from(entry) << self.log2_sectors_per_block)) * SECTOR
    }

    /// Where the bitmap begins, bytes, and how long it is; `None` if the journal's place is too
    /// small for it.
    #[must_use]
    pub fn bitmap(&self) -> Option<(u64, u64)> {
        let bits = self.bit(self.provided_sectors - 1) + 1;
        let len = bits.div_ceil(8);
        let room = u64::from(self.sections) * self.section_bytes();
        (len <= room).then_some((SUPERBLOCK_SECTORS * SECTOR, len))
    }

    /// The bit of the bitmap that a sector is under.
    #[must_use]
    pub fn bit(&self, sector: u64) -> u64 {
        sector >> (self.log2_sectors_per_block + self.log2_blocks_per_bit)
    }
}
