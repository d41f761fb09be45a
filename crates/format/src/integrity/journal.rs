//! The journal of dm-integrity: a ring of sections, each with entries and the blocks that these
//! speak of.
//!
//! Every sector of a section ends with a number made of its place and of which of four rounds it
//! was written in. A section counts if all its sectors are of the round that is its turn. Data
//! whose place that number takes is in the entries.

use super::layout::IntegrityLayout;
use crate::bytes::{array, le64};

const SECTOR: usize = 512;
/// Sectors of entries that a section begins with.
pub(super) const JOURNAL_BLOCK_SECTORS: u32 = 8;
/// What of a sector is not the number that commits it.
pub(super) const USABLE_BYTES: usize = SECTOR - 8;
/// What the size of entries is a multiple of.
pub(super) const ENTRY_ROUND_BYTES: usize = 8;
/// What a sector's number is made with, by rounds.
const ROUNDS: [u64; 4] =
    [0x1111_1111_1111_1111, 0x2222_2222_2222_2222, 0x3333_3333_3333_3333, 0x4444_4444_4444_4444];

/// A block in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedBlock {
    /// Which sector of the device it is.
    pub sector: u64,
    /// Which entry of its section it is.
    pub entry: u32,
    /// The last eight bytes of each of its sectors.
    pub ends: Vec<[u8; 8]>,
    /// Its tag.
    pub tag: Box<[u8]>,
}

impl LoggedBlock {
    /// Makes what lies in the journal the block that was written.
    pub fn complete(&self, block: &mut [u8]) {
        for (sector, end) in block.chunks_exact_mut(SECTOR).zip(&self.ends) {
            sector[USABLE_BYTES..].copy_from_slice(end);
        }
    }
}

/// Why a section cannot be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("sector {sector} of section {section} is of no round of this journal")]
pub struct SectionError {
    /// Which section.
    pub section: u32,
    /// Which of its sectors.
    pub sector: u32,
}

/// The rounds that are met in a journal follow no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its sections are of rounds that do not follow one another")]
pub struct RingError;

/// A section of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalSection {
    /// The rounds of its sectors, a bit for each.
    pub rounds: u8,
    /// Its blocks, in the order in which they were written.
    pub blocks: Vec<LoggedBlock>,
}

impl JournalSection {
    /// Whether the entries in the first sectors of a section speak of no block.
    #[must_use]
    pub fn is_unused(layout: &IntegrityLayout, head: &[u8]) -> bool {
        (0..layout.section_entries).all(|entry| place(layout, head, entry).is_none())
    }

    /// What is read of a section for [`Self::is_unused`], bytes.
    #[must_use]
    pub fn head_bytes() -> usize {
        JOURNAL_BLOCK_SECTORS as usize * SECTOR
    }

    /// Reads the section `section` from all its bytes.
    ///
    /// # Errors
    /// [`SectionError`]: it is damaged, or encrypted.
    pub fn parse(layout: &IntegrityLayout, section: u32, bytes: &[u8]) -> Result<Self, SectionError> {
        let mut rounds = 0;
        for (at, sector) in (0..).zip(bytes.chunks_exact(SECTOR)) {
            let number = le64(sector, USABLE_BYTES) ^ (u64::from(section) << 32 ^ u64::from(at));
            let round = ROUNDS.iter().position(|&round| round == number);
            rounds |= 1 << round.ok_or(SectionError { section, sector: at })?;
        }
        let block = |entry| {
            let (sector, at) = place(layout, bytes, entry)?;
            let sectors = 1_usize << layout.log2_sectors_per_block;
            let ends = (0..sectors).map(|nth| array(bytes, at + 8 + 8 * nth)).collect();
            let tag = at + 8 + 8 * sectors;
            let tag = bytes[tag..tag + layout.tag_bytes as usize].into();
            Some(LoggedBlock { sector, entry, ends, tag })
        };
        let blocks = (0..layout.section_entries).filter_map(block).collect();
        Ok(Self { rounds, blocks })
    }
}

/// The sector that an entry speaks of, and where it lies; `None` if it is not in use.
fn place(layout: &IntegrityLayout, bytes: &[u8], entry: u32) -> Option<(u64, usize)> {
    /// The upper half of the sector of an entry that is not in use, and of one in the making.
    const NONE: u64 = 0xffff_ffff;
    const UNFINISHED: u64 = 0xffff_fffe;
    let sector = (entry % JOURNAL_BLOCK_SECTORS) as usize;
    let at = sector * SECTOR + (entry / JOURNAL_BLOCK_SECTORS) as usize * layout.entry_bytes;
    let sector = le64(bytes, at);
    (!matches!(sector >> 32, NONE | UNFINISHED)).then_some((sector, at))
}

/// The sections that count, the oldest first, by the rounds of each.
///
/// The section behind the last one of the newest round is the oldest. From there on sections count
/// up to the first that is not wholly of its round: that one was being written.
///
/// # Errors
/// [`RingError`]
pub fn replay_order(rounds: &[u8]) -> Result<Vec<u32>, RingError> {
    let used = rounds.iter().fold(0, |used, section| used | section);
    let follows = |round: usize| used & 1 << ((round + 1) % 4) != 0;
    let mut newest = (0..4).filter(|&round| used & 1 << round != 0 && !follows(round));
    let (Some(round), None) = (newest.next(), newest.next()) else { return Err(RingError) };
    let Some(last) = rounds.iter().rposition(|section| section & 1 << round != 0) else {
        return Err(RingError);
    };
    let (count, before) = (rounds.len(), (round + 3) % 4);
    let turn = |at: usize| if at <= last { round } else { before };
    let order = (0..count).map(|nth| (last + 1 + nth) % count);
    let counted = order.take_while(|&at| rounds[at] == 1 << turn(at));
    Ok(counted.map(|at| u32::try_from(at).expect("sections are counted in 32 bits")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_followed_from_its_oldest_section() {
        // Three of the newer round, then two of the round before.
        assert_eq!(replay_order(&[2, 2, 2, 1, 1]), Ok(vec![3, 4, 0, 1, 2]));
        assert_eq!(replay_order(&[1, 1, 1]), Ok(vec![0, 1, 2]));
        // The third was being written, and so was the fourth.
        assert_eq!(replay_order(&[2, 2, 3, 1, 1]), Ok(vec![3, 4, 0, 1]));
        assert_eq!(replay_order(&[2, 2, 1, 3, 1]), Ok(vec![4, 0, 1]));
        // Round 0 comes after round 3.
        assert_eq!(replay_order(&[1, 8, 8]), Ok(vec![1, 2, 0]));
        assert_eq!(replay_order(&[9, 8, 8]), Ok(vec![1, 2]));
        assert_eq!(replay_order(&[1]), Ok(vec![0]));
        assert_eq!(replay_order(&[3]), Ok(vec![]));
    }

    #[test]
    fn rounds_without_an_order_are_refused() {
        assert_eq!(replay_order(&[1, 4]), Err(RingError));
        assert_eq!(replay_order(&[1, 2, 4, 8]), Err(RingError));
        assert_eq!(replay_order(&[]), Err(RingError));
    }
}
