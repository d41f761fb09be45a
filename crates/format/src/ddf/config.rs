//! How a volume lies on drives, and which drives are spares: records of the configuration.

use crate::bytes::{array, be32, be64};

use super::{Ddf, DdfGuid, NOTHING, is_whole, seconds};

const CONFIG_MAGIC: u32 = 0xeeee_eeee;
const SPARE_MAGIC: u32 = 0x5555_5555;
/// Where the tables of a record begin.
const TABLES_AT: usize = 512;
/// More members than any volume has; the specification's largest is 4096.
pub const MEMBERS_MAX: usize = 4096;

/// How a volume, or one of the parts that it is striped over, lies on drives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DdfConfig {
    /// The volume.
    pub guid: DdfGuid,
    /// Grows with each change of the configuration.
    pub sequence: u32,
    /// When it was last changed, seconds since 1970; 0 if it does not say.
    pub written_secs: u64,
    /// The level's number.
    pub level: u8,
    /// What kind of that level.
    pub qualifier: u8,
    /// The chunk is 512 bytes times 2 to this.
    pub chunk_shift: u8,
    /// Parts that the volume is made of; 1 for most.
    pub parts: u8,
    /// Which of them this is.
    pub part: u8,
    /// How it is made of them: 0 striped, 3 spanned, which is striped too.
    pub part_level: u8,
    /// What of each drive is used; `None` if it does not say.
    pub component_sectors: Option<u64>,
    /// What the volume holds; `None` if it does not say.
    pub size_sectors: Option<u64>,
    /// By slot, the drive and where the volume begins on it.
    pub members: Vec<DdfMember>,
}

/// A slot of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DdfMember {
    /// What the drive is called; `None` for a slot without one.
    pub reference: Option<u32>,
    /// Where the volume begins on it.
    pub start_sector: u64,
}

/// Takes in a record of the configuration. What is empty or of another kind is passed over.
pub(super) fn read(record: &[u8], members_max: usize, ddf: &mut Ddf) {
    let magic = be32(record, 0);
    if magic != CONFIG_MAGIC && magic != SPARE_MAGIC {
        return;
    }
    if !is_whole(record) {
        ddf.damaged_configs += 1;
        return;
    }
    if magic == SPARE_MAGIC {
        ddf.is_assigned_spare = true;
        return;
    }
    match config(record, members_max) {
        Some(config) => ddf.configs.push(config),
        None => ddf.damaged_configs += 1,
    }
}

/// `None` if its tables do not fit.
fn config(record: &[u8], members_max: usize) -> Option<DdfConfig> {
    let count = usize::from(u16::from_be_bytes(array(record, 0x40)));
    if count == 0 || count > members_max.min(MEMBERS_MAX) {
        return None;
    }
    let references = record.get(TABLES_AT..TABLES_AT + 4 * count)?;
    let starts_at = TABLES_AT + 4 * members_max;
    let starts = record.get(starts_at..starts_at + 8 * count)?;
    let member = |(reference, start): (&[u8], &[u8])| {
        let reference = be32(reference, 0);
        let is_named = reference != NOTHING && reference != 0;
        DdfMember { reference: is_named.then_some(reference), start_sector: be64(start, 0) }
    };
    let stated = |sectors: u64| (sectors != u64::MAX).then_some(sectors);
    Some(DdfConfig {
        guid: array(record, 8),
        sequence: be32(record, 0x24),
        written_secs: seconds(be32(record, 0x20)),
        chunk_shift: record[0x42],
        level: record[0x43],
        qualifier: record[0x44],
        parts: record[0x45].max(1),
        part: record[0x46],
        part_level: record[0x47],
        component_sectors: stated(be64(record, 0x48)),
        size_sectors: stated(be64(record, 0x50)),
        members: references.chunks_exact(4).zip(starts.chunks_exact(8)).map(member).collect(),
    })
}
