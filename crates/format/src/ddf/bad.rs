//! Blocks of the drive that its controller found defective: the bad block management log.

use crate::bytes::{array, be32, be64};

use super::is_whole;

const MAGIC: u32 = 0xabad_b10c;
const ENTRIES_AT: usize = 32;
const ENTRY_BYTES: usize = 16;

/// What a drive says of its defective blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DdfBadBlockLog {
    /// There is no log, or its place was never written.
    Absent,
    /// Something else is in its place.
    Foreign,
    /// It is there, and damaged or not to be read: any block may be in it.
    Damaged,
    /// It is there.
    Listed(Vec<DdfBadBlocks>),
}

/// Blocks of the drive whose content is not where it was: lost, or in spare blocks that volumes do
/// not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DdfBadBlocks {
    /// Where they are on the drive, sectors.
    pub start_sector: u64,
    /// How many.
    pub len_sectors: u64,
}

/// The log from its section.
pub(super) fn read(section: &[u8]) -> DdfBadBlockLog {
    if is_blank(section) {
        return DdfBadBlockLog::Absent;
    }
    if be32(section, 0) != MAGIC {
        return DdfBadBlockLog::Foreign;
    }
    let entries = Some(section).filter(|section| is_whole(section)).and_then(entries);
    entries.map_or(DdfBadBlockLog::Damaged, DdfBadBlockLog::Listed)
}

/// `None` if they do not fit.
fn entries(section: &[u8]) -> Option<Vec<DdfBadBlocks>> {
    // Published definitions differ on the count: a u16, or a u32 whose high half is 0 in any log
    // that fits here.
    let [first, second] = [8, 10].map(|at| usize::from(u16::from_be_bytes(array(section, at))));
    let count = if first == 0 { second } else { first };
    let entries = section.get(ENTRIES_AT..ENTRIES_AT + ENTRY_BYTES * count)?;
    let entry = |entry: &[u8]| DdfBadBlocks {
        start_sector: be64(entry, 0),
        len_sectors: u64::from(u16::from_be_bytes(array(entry, 12))).max(1),
    };
    Some(entries.chunks_exact(ENTRY_BYTES).filter(|entry| !is_blank(entry)).map(entry).collect())
}

fn is_blank(bytes: &[u8]) -> bool {
    [0, 0xff].iter().any(|blank| bytes.iter().all(|byte| byte == blank))
}
