//! The areas beside a superblock, as far as decisions need them: bitmap header, bad-block log, journal tail, other signatures.

use wattle_format::md::badblocks::BadBlocks;
use wattle_format::md::journal::{self, MetaBlock};
use wattle_format::md::{self, Features, Fields, JournalChecksum, Role, Superblock, bitmap};

use crate::facts::{BadRange, BitmapFacts, JournalFacts, MemberFacts, SuperblockFacts};
use crate::members::{Member, MemberError};

/// What assembly needs of a member with this superblock. An area that lies outside the member counts as damaged.
pub(crate) fn member_facts(member: &Member, superblock: &Superblock) -> Result<MemberFacts, MemberError> {
    Ok(MemberFacts {
        bitmap: bitmap_facts(member, superblock)?,
        bad_blocks: bad_blocks(member, superblock)?,
        journal: journal_facts(member, superblock)?,
        ..shortened_facts(member, superblock)
    })
}

/// The same of a member that is shorter than its superblock says: its areas may be gone.
pub(crate) fn shortened_facts(member: &Member, fields: &Fields) -> MemberFacts {
    MemberFacts {
        name: member.name.clone(),
        size_sectors: member.size_sectors(),
        superblock: superblock_facts(fields),
        bitmap: BitmapFacts::None,
        bad_blocks: Some(Vec::new()),
        journal: None,
    }
}

/// The fields that decide.
#[must_use]
pub(crate) fn superblock_facts(fields: &Fields) -> SuperblockFacts {
    SuperblockFacts {
        version: fields.version(),
        set_uuid: fields.set_uuid(),
        set_name: fields.md_minor().map_or_else(|| fields.name(), |minor| format!("md{minor}")),
        level: fields.level(),
        layout: fields.layout(),
        chunk_sectors: fields.chunk_sectors(),
        size_sectors: fields.size_sectors(),
        raid_disks: fields.raid_disks(),
        dev_number: fields.dev_number(),
        roles: fields.roles().collect(),
        events: fields.events(),
        ctime_secs: fields.ctime().secs,
        utime_secs: fields.utime().secs,
        resync_offset: fields.resync_offset(),
        recovery_offset: fields.recovery_offset(),
        data_offset_sectors: fields.data_offset_sectors(),
        data_size_sectors: fields.data_size_sectors(),
        features: fields.features(),
    }
}

fn bitmap_facts(member: &Member, superblock: &Superblock) -> Result<BitmapFacts, MemberError> {
    let Some(offset) = superblock.bitmap_offset_sectors() else { return Ok(BitmapFacts::None) };
    let Some(bytes) = read_area(member, superblock, offset, bitmap::HEADER_BYTES)? else {
        return Ok(BitmapFacts::Invalid);
    };
    let header = bitmap::Header::decode(&bytes).ok();
    Ok(match header.filter(|header| header.uuid() == superblock.stored_uuid()).map(|header| header.kind()) {
        None => BitmapFacts::Invalid,
        Some(bitmap::Kind::HostEndian) => BitmapFacts::Version(3),
        Some(bitmap::Kind::Normal) => BitmapFacts::Version(4),
        Some(bitmap::Kind::Clustered) => BitmapFacts::Version(5),
        Some(bitmap::Kind::Lockless) => BitmapFacts::Version(6),
    })
}

/// The recorded bad ranges; `None` if there are some and they cannot be read.
fn bad_blocks(member: &Member, superblock: &Superblock) -> Result<Option<Vec<BadRange>>, MemberError> {
    if !superblock.features().contains(Features::BAD_BLOCKS) {
        return Ok(Some(Vec::new()));
    }
    let Some(area) = superblock.bad_block_log() else { return Ok(None) };
    let len_bytes = usize::from(area.size_sectors) * 512;
    let Some(bytes) = read_area(member, superblock, area.offset_sectors, len_bytes)? else { return Ok(None) };
    let range =
        |range: &md::badblocks::BadRange| BadRange { start_sector: range.sector, len_sectors: range.sectors };
    Ok(BadBlocks::decode(&bytes, area.shift).ok().map(|log| log.ranges().iter().map(range).collect()))
}

/// Whether a journal's log is empty: a valid block at the tail that logs nothing, and none that follows it.
fn journal_facts(member: &Member, superblock: &Superblock) -> Result<Option<JournalFacts>, MemberError> {
    let (Role::Journal, Some(tail)) = (superblock.role(), superblock.journal_tail()) else { return Ok(None) };
    let ring_sectors = superblock.data_size_sectors() / journal::BLOCK_SECTORS * journal::BLOCK_SECTORS;
    let checksum = JournalChecksum::new(&superblock.stored_uuid());
    let block_at = |position: u64, seq| -> Result<Option<MetaBlock>, MemberError> {
        let sector =
            superblock.data_offset_sectors().checked_add(position).filter(|_| position < ring_sectors);
        let Some(bytes) =
            sector.map(|sector| read_sectors(member, sector, journal::BLOCK_BYTES)).transpose()?.flatten()
        else {
            return Ok(None);
        };
        Ok(MetaBlock::decode(&bytes, checksum, position, seq).ok())
    };
    // A tail that cannot be read is not known to be empty.
    let Some(first) = block_at(tail, None)?.filter(|block| block.payloads.is_empty()) else {
        return Ok(Some(JournalFacts::NotEmpty));
    };
    let Some(next) = first.next_position_sectors(ring_sectors) else {
        return Ok(Some(JournalFacts::NotEmpty));
    };
    let follows = block_at(next, Some(first.seq.wrapping_add(1)))?.is_some();
    Ok(Some(if follows { JournalFacts::NotEmpty } else { JournalFacts::Empty }))
}

fn read_area(
    member: &Member,
    superblock: &Superblock,
    offset_sectors: i32,
    len_bytes: usize,
) -> Result<Option<Vec<u8>>, MemberError> {
    match superblock.sector_from_superblock(offset_sectors) {
        Some(sector) => read_sectors(member, sector, len_bytes),
        None => Ok(None),
    }
}

/// `None` if the range is not on the member.
fn read_sectors(member: &Member, sector: u64, len_bytes: usize) -> Result<Option<Vec<u8>>, MemberError> {
    let Some(offset_bytes) = sector.checked_mul(512) else { return Ok(None) };
    match offset_bytes.checked_add(len_bytes as u64) {
        Some(end) if end <= member.device.size_bytes() => member.read(offset_bytes, len_bytes).map(Some),
        _ => Ok(None),
    }
}
