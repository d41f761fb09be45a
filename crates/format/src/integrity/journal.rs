//! The journal of dm-integrity: a ring of sections, each with entries and the blocks that these
//! speak of.
//!
//! Every sector of a section ends with a number made of its place and of which of four rounds it
//! was written in. A section counts if all its sectors are of the round that is its turn. Data
//! whose place that number takes is in the entries.

use super::layout::IntegrityLayout;
use crate::bytes::{array, le64, put};

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
            let number = le64(sector, USABLE_BYTES) ^ commit_number(section, at);
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
    let at = entry_at(layout, entry);
    let sector = le64(bytes, at);
    (!matches!(sector >> 32, NONE | UNFINISHED)).then_some((sector, at))
}

/// Where an entry lies in its section, bytes.
fn entry_at(layout: &IntegrityLayout, entry: u32) -> usize {
    let sector = (entry % JOURNAL_BLOCK_SECTORS) as usize;
    sector * SECTOR + (entry / JOURNAL_BLOCK_SECTORS) as usize * layout.entry_bytes
}

/// What of a sector's number is of its place.
fn commit_number(section: u32, sector: u32) -> u64 {
    u64::from(section) << 32 ^ u64::from(sector)
}

/// Where a section is written to, and in which round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionPlace {
    /// Which section.
    pub section: u32,
    /// Which of the four rounds.
    pub round: u8,
}

impl SectionPlace {
    /// The place behind this one in a ring of so many sections.
    #[must_use]
    pub fn next(self, sections: u32) -> Self {
        match self.section + 1 {
            section if section < sections => Self { section, ..self },
            _ => Self { section: 0, round: (self.round + 1) % 4 },
        }
    }

    /// Makes the section that holds these blocks (the sector, the tag, the data of each) at this
    /// place. `bytes` is [`IntegrityLayout::section_bytes`] long, and `blocks` are no more than
    /// [`IntegrityLayout::section_entries`].
    pub fn fill(self, layout: &IntegrityLayout, blocks: &[(u64, &[u8], &[u8])], bytes: &mut [u8]) {
        bytes.fill(0);
        for entry in 0..layout.section_entries {
            let at = entry_at(layout, entry);
            let Some((sector, tag, data)) = blocks.get(entry as usize) else {
                put(bytes, at, &[0xff; 8]);
                continue;
            };
            put(bytes, at, &sector.to_le_bytes());
            for (nth, part) in data.chunks_exact(SECTOR).enumerate() {
                put(bytes, at + 8 + 8 * nth, &part[USABLE_BYTES..]);
            }
            put(bytes, at + 8 + 8 * (data.len() / SECTOR), tag);
            put(bytes, layout.entry_data_bytes(entry) as usize, data);
        }
        for (at, sector) in (0..).zip(bytes.chunks_exact_mut(SECTOR)) {
            let number = ROUNDS[usize::from(self.round)] ^ commit_number(self.section, at);
            put(sector, USABLE_BYTES, &number.to_le_bytes());
        }
    }
}

/// What is to be made of the sections of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalRing {
    /// Those that count, the oldest first.
    pub counted: Vec<u32>,
    /// Those that were being written, in their order, and where each belongs. Before the next one
    /// is written they have to be made empty, the first one last: else they would count behind it.
    pub unfinished: Vec<SectionPlace>,
    /// Where the next section is written; `None` where more do not count than a cut of power leaves
    /// behind: blocks that were acknowledged may be in them.
    pub next: Option<SectionPlace>,
}

impl JournalRing {
    /// The ring of a journal by the rounds of each of its sections.
    ///
    /// The section behind the last one of the newest round is the oldest. From there on sections
    /// count up to the first that is not wholly of its round: that one was being written.
    ///
    /// # Errors
    /// [`RingError`]
    pub fn of(rounds: &[u8]) -> Result<Self, RingError> {
        let used = rounds.iter().fold(0, |used, section| used | section);
        let follows = |round: u8| used & 1 << ((round + 1) % 4) != 0;
        let mut newest = (0..4).filter(|&round| used & 1 << round != 0 && !follows(round));
        let (Some(round), None) = (newest.next(), newest.next()) else { return Err(RingError) };
        let Some(last) = rounds.iter().rposition(|section| section & 1 << round != 0) else {
            return Err(RingError);
        };
        let count = rounds.len();
        let place = |at: usize| SectionPlace {
            section: u32::try_from(at).expect("sections are counted in 32 bits"),
            round: if at <= last { round } else { (round + 3) % 4 },
        };
        let mut order = (0..count).map(|nth| place((last + 1 + nth) % count)).peekable();
        let counts = |place: &SectionPlace| rounds[place.section as usize] == 1 << place.round;
        let counted = std::iter::from_fn(|| order.next_if(counts)).map(|place| place.section).collect();
        let unfinished: Vec<_> = order.collect();
        // What is written in one go may begin at the end of one round and end in the next one, and
        // a cut of power keeps any part of it. It is no more than half of the ring.
        let is_orderly = unfinished.iter().all(|place| place.round == round) || unfinished.len() * 2 <= count;
        let behind = place(last).next(u32::try_from(count).expect("as above"));
        Ok(Self { counted, unfinished, next: is_orderly.then_some(behind) })
    }

    /// The ring of a journal of so many sections of which nothing counts, whatever is in them.
    #[must_use]
    pub fn fresh(sections: u32) -> Self {
        let unfinished = (0..sections).map(|section| SectionPlace { section, round: 0 }).collect();
        Self { counted: Vec::new(), unfinished, next: Some(SectionPlace { section: 0, round: 1 }) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::layouts;
    use super::*;

    fn counted(rounds: &[u8]) -> Vec<u32> {
        JournalRing::of(rounds).unwrap().counted
    }

    fn at(section: u32, round: u8) -> SectionPlace {
        SectionPlace { section, round }
    }

    #[test]
    fn a_ring_is_followed_from_its_oldest_section() {
        // Three of the newer round, then two of the round before.
        assert_eq!(counted(&[2, 2, 2, 1, 1]), [3, 4, 0, 1, 2]);
        assert_eq!(counted(&[1, 1, 1]), [0, 1, 2]);
        // The third was being written, and so was the fourth.
        assert_eq!(counted(&[2, 2, 3, 1, 1]), [3, 4, 0, 1]);
        assert_eq!(counted(&[2, 2, 1, 3, 1]), [4, 0, 1]);
        // Round 0 comes after round 3.
        assert_eq!(counted(&[1, 8, 8]), [1, 2, 0]);
        assert_eq!(counted(&[9, 8, 8]), [1, 2]);
        assert_eq!(counted(&[1]), [0]);
        assert!(counted(&[3]).is_empty());
    }

    #[test]
    fn a_ring_goes_on_behind_what_was_being_written() {
        let ring = |rounds: &[u8]| {
            let ring = JournalRing::of(rounds).unwrap();
            (ring.unfinished, ring.next)
        };
        assert_eq!(ring(&[2, 2, 2, 1, 1]), (vec![], Some(at(3, 1))));
        assert_eq!(ring(&[1, 1, 1]), (vec![], Some(at(0, 1))));
        assert_eq!(ring(&[8, 8]), (vec![], Some(at(0, 0))));
        assert_eq!(ring(&[2, 2, 3, 1, 1]), (vec![at(2, 1)], Some(at(3, 1))));
        // The third is of the round before, and the fourth was being written.
        assert_eq!(ring(&[2, 2, 1, 3, 1]), (vec![at(2, 1), at(3, 1)], Some(at(4, 1))));
        assert_eq!(ring(&[9, 8, 8]), (vec![at(0, 0)], Some(at(1, 0))));
        // Two were written in one go, the last of a round and the first of the next one, and only
        // the second is whole.
        assert_eq!(ring(&[4, 2, 2, 1]), (vec![at(3, 1), at(0, 2)], Some(at(1, 2))));
        // The last one is of two rounds before the newest, of which half of the ring is.
        assert_eq!(ring(&[4, 4, 2, 1]).1, None);
        let fresh = JournalRing::fresh(2);
        assert_eq!((fresh.unfinished, fresh.next), (vec![at(0, 0), at(1, 0)], Some(at(0, 1))));
    }

    #[test]
    fn rounds_without_an_order_are_refused() {
        assert_eq!(JournalRing::of(&[1, 4]), Err(RingError));
        assert_eq!(JournalRing::of(&[1, 2, 4, 8]), Err(RingError));
        assert_eq!(JournalRing::of(&[]), Err(RingError));
    }

    #[test]
    fn what_is_filled_in_is_what_is_read() {
        for layout in layouts() {
            let block = 512 << layout.log2_sectors_per_block;
            let data: Vec<_> = (0..layout.section_entries).map(|nth| vec![nth as u8 ^ 0x5a; block]).collect();
            let tags: Vec<_> = data.iter().map(|data| vec![data[0]; layout.tag_bytes as usize]).collect();
            for count in [0, 1, data.len() - 1, data.len()] {
                let sector = |nth: usize| (nth as u64) << layout.log2_sectors_per_block;
                let blocks: Vec<_> =
                    (0..count).map(|nth| (sector(nth), &tags[nth][..], &data[nth][..])).collect();
                let mut bytes = vec![0x77; layout.section_bytes() as usize];
                at(3, 2).fill(&layout, &blocks, &mut bytes);
                let read = JournalSection::parse(&layout, 3, &bytes).unwrap();
                assert_eq!((read.rounds, read.blocks.len()), (1 << 2, count));
                assert_eq!(JournalSection::is_unused(&layout, &bytes), count == 0);
                for (nth, logged) in read.blocks.iter().enumerate() {
                    let from = layout.entry_data_bytes(logged.entry) as usize;
                    let mut found = bytes[from..from + block].to_vec();
                    logged.complete(&mut found);
                    assert_eq!((logged.sector, &logged.tag[..]), (sector(nth), &tags[nth][..]));
                    assert_eq!(found, data[nth]);
                }
                assert!(JournalSection::parse(&layout, 2, &bytes).is_err(), "of another section");
            }
        }
    }
}
