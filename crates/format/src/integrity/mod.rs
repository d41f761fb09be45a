//! dm-integrity: data with a tag (a checksum) of every block.
//!
//! Layout: docs/formats.md §28. A superblock at the start, a journal (or, in the bitmap mode, a
//! bitmap in its place), then areas of tags and of data in turn. What the checksum is, and which of
//! its modes the device runs in, the superblock does not say: Linux is told at every start.
//!
//! Reading order: here the superblock, `layout.rs` where things lie, `journal.rs` what the journal
//! holds.

mod journal;
mod layout;

pub use journal::{JournalRing, JournalSection, LoggedBlock, RingError, SectionError, SectionPlace};
pub use layout::IntegrityLayout;

use crate::bytes::{array, le16, le32, le64};

/// What a superblock starts with.
pub const MAGIC: [u8; 8] = *b"integrt\0";
/// What is read of a superblock, bytes.
pub const SUPERBLOCK_BYTES: usize = 512;
/// The version of superblocks that put tags into the drive's own metadata of sectors.
const VERSION_INLINE: u8 = 6;
/// What a discarded block's tag is filled with.
pub const DISCARDED: u8 = 0xf6;

/// The journal has a code of its own for authentication.
pub const JOURNAL_MAC: u32 = 1;
/// Tags are being made; from [`IntegritySuperblock::recalc_sector`] on they do not count.
pub const RECALCULATING: u32 = 2;
/// The bitmap is in use: blocks that it names may have old tags.
pub const DIRTY_BITMAP: u32 = 4;
/// Areas of tags are padded to 4 KiB, not to 128 KiB.
pub const FIXED_PADDING: u32 = 8;
/// The salt goes into codes with a key.
pub const FIXED_HMAC: u32 = 0x10;
/// Tags are in the drive's own metadata of sectors.
pub const INLINE: u32 = 0x20;
const KNOWN: u32 = 0x3f;

/// Why a superblock is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IntegrityError {
    /// There is none.
    #[error("there is no superblock of dm-integrity")]
    NotFound,
    /// A version that is not known.
    #[error("version {0} of the superblock is not known")]
    Version(u8),
    /// Flags that are not known.
    #[error("flags {0:#x} of the superblock are not known")]
    Flags(u32),
    /// Tags are in the drive's own metadata of sectors.
    #[error("tags are in the drive's own metadata of sectors, which is not read")]
    Inline,
    /// A field that cannot be so.
    #[error("the field {field} is {value}, which cannot be")]
    Field {
        /// Its name.
        field: &'static str,
        /// What it says.
        value: u64,
    },
}

/// A superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntegritySuperblock {
    /// Its version, 1 to 5.
    pub version: u8,
    /// Base-2 logarithm of the sectors between areas of tags; 0 where tags are on another device.
    pub log2_interleave_sectors: u8,
    /// The size of a tag.
    pub tag_bytes: u16,
    /// Sections of the journal.
    pub journal_sections: u32,
    /// What it is to its users, sectors.
    pub provided_sectors: u64,
    /// [`JOURNAL_MAC`] and others.
    pub flags: u32,
    /// Base-2 logarithm of the sectors of a block, which a tag is of.
    pub log2_sectors_per_block: u8,
    /// Base-2 logarithm of the blocks that a bit of the bitmap is for.
    pub log2_blocks_per_bit: u8,
    /// Up to where tags were made, with [`RECALCULATING`].
    pub recalc_sector: u64,
    /// Goes into codes with a key, with [`FIXED_HMAC`].
    pub salt: [u8; 16],
}

impl IntegritySuperblock {
    /// Reads a superblock from the first [`SUPERBLOCK_BYTES`] of a device.
    ///
    /// # Errors
    /// [`IntegrityError`]
    pub fn parse(bytes: &[u8]) -> Result<Self, IntegrityError> {
        if bytes.len() < 64 || !bytes.starts_with(&MAGIC) {
            return Err(IntegrityError::NotFound);
        }
        let found = Self {
            version: bytes[8],
            log2_interleave_sectors: bytes[9],
            tag_bytes: le16(bytes, 10),
            journal_sections: le32(bytes, 12),
            provided_sectors: le64(bytes, 16),
            flags: le32(bytes, 24),
            log2_sectors_per_block: bytes[28],
            log2_blocks_per_bit: bytes[29],
            recalc_sector: le64(bytes, 32),
            salt: array(bytes, 48),
        };
        found.check()?;
        Ok(found)
    }

    fn check(&self) -> Result<(), IntegrityError> {
        if self.has(INLINE) || self.version == VERSION_INLINE {
            return Err(IntegrityError::Inline);
        }
        if !(1..VERSION_INLINE).contains(&self.version) {
            return Err(IntegrityError::Version(self.version));
        }
        if self.flags & !KNOWN != 0 {
            return Err(IntegrityError::Flags(self.flags & !KNOWN));
        }
        let field = |field, value: u64, is_good| match is_good {
            true => Ok(()),
            false => Err(IntegrityError::Field { field, value }),
        };
        let (interleave, block) = (self.log2_interleave_sectors, self.log2_sectors_per_block);
        field("log2_sectors_per_block", block.into(), block <= 3)?;
        // A block lies in one area.
        field(
            "log2_interleave_sectors",
            interleave.into(),
            interleave == 0 || (3..=31).contains(&interleave),
        )?;
        field("integrity_tag_size", self.tag_bytes.into(), (1..=256).contains(&self.tag_bytes))?;
        field("journal_sections", self.journal_sections.into(), self.journal_sections > 0)?;
        field("provided_data_sectors", self.provided_sectors, self.provided_sectors >> block > 0)?;
        field("log2_blocks_per_bitmap_bit", self.log2_blocks_per_bit.into(), self.log2_blocks_per_bit < 32)
    }

    /// Whether a flag is set.
    #[must_use]
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether data is on another device than this superblock and the tags.
    #[must_use]
    pub fn is_apart(&self) -> bool {
        self.log2_interleave_sectors == 0
    }

    /// The size of a block.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        512 << self.log2_sectors_per_block
    }

    /// From which sector on tags do not count yet; the end where all do.
    #[must_use]
    pub fn tags_end_sector(&self) -> u64 {
        match self.has(RECALCULATING) {
            true => self.recalc_sector.min(self.provided_sectors),
            false => self.provided_sectors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Layouts of blocks and tags of several sizes.
    pub(super) fn layouts() -> Vec<IntegrityLayout> {
        let of = |(log2_sectors_per_block, tag_bytes)| {
            let superblock = IntegritySuperblock {
                version: 5,
                log2_interleave_sectors: 15,
                tag_bytes,
                journal_sections: 5,
                provided_sectors: 4096,
                flags: FIXED_PADDING | FIXED_HMAC,
                log2_sectors_per_block,
                log2_blocks_per_bit: 0,
                recalc_sector: 0,
                salt: [7; 16],
            };
            IntegrityLayout::of(&superblock).unwrap()
        };
        [(0, 4), (3, 4), (1, 32), (3, 20), (0, 64)].map(of).to_vec()
    }
}
