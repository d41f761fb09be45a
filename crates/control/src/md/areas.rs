//! The areas beside a superblock, as far as decisions need them: bitmap, bad-block log, partial
//! parity log, journal tail.

use std::ops::Range;

use wattle_format::md::badblocks::BadBlocks;
use wattle_format::md::{self, ByteOrder, DeviceRole, Features, Superblock, SuperblockFields, bitmap};

use crate::md::facts::{
    BadBlockEntry, BitmapFacts, JournalFacts, MemberFacts, PplFacts, PplNewest, SuperblockFacts,
};
use crate::members::{Member, MemberError};

/// The longest bitmap that is read: mdadm makes none of more than 128 KiB unless it is told to.
const BITMAP_MAX_BYTES: u64 = 16 << 20;

/// How much of its place a superblock keeps for itself.
const SUPERBLOCK_SECTORS: u64 = md::SUPERBLOCK_BYTES as u64 / 512;

/// The sectors of an area beside a superblock; nothing is written to one that has none here.
/// `None` if it begins in front of the device, or meets the superblock or the data, the data also
/// where a reshape moves it to: what is written to such an area destroys what the array holds.
pub(crate) fn beside_data(
    superblock: &SuperblockFields,
    offset_sectors: i32,
    len_sectors: u64,
) -> Option<Range<u64>> {
    let start = superblock.sector_from_superblock(offset_sectors)?;
    let area = start..start.checked_add(len_sectors)?;
    let own = superblock.found_at_sectors();
    let data = superblock.data_offset_sectors();
    let moves = superblock.reshape().and_then(|reshape| reshape.new_offset_sectors).unwrap_or(0);
    let first = data.min(data.saturating_add_signed(i64::from(moves)));
    let end = data.saturating_add(superblock.data_size_sectors());
    let meets = |other: Range<u64>| area.start < other.end && other.start < area.end;
    (!meets(own..own.saturating_add(SUPERBLOCK_SECTORS)) && !meets(first..end)).then_some(area)
}

/// What assembly needs of a member with this superblock. An area that lies outside the member
/// counts as damaged, and one that the drive does not give as unknown: neither hides the rest of
/// the member.
pub(crate) fn member_facts(member: &Member, superblock: &Superblock) -> MemberFacts {
    let mut facts = shortened_facts(member, superblock);
    read_bitmap(member, superblock, &mut facts);
    read_ppl(member, superblock, &mut facts);
    facts.bad_blocks = bad_blocks(member, superblock);
    facts.journal = journal_facts(superblock);
    facts
}

/// The same of a member that is shorter than its superblock says: its areas may be gone.
pub(crate) fn shortened_facts(member: &Member, fields: &SuperblockFields) -> MemberFacts {
    MemberFacts::new(member.name.clone(), member.size_sectors(), SuperblockFacts::of(fields))
}

fn read_bitmap(member: &Member, superblock: &Superblock, facts: &mut MemberFacts) {
    let Some(offset) = superblock.bitmap_offset_sectors() else { return };
    let uuid = superblock.stored_uuid();
    let header = match read_area(member, superblock, offset, bitmap::HEADER_BYTES) {
        Ok(Some(header)) => header,
        Ok(None) => return facts.bitmap = BitmapFacts::Invalid,
        Err(_) => return facts.bitmap = BitmapFacts::Unreadable,
    };
    let len = bitmap::Header::decode(&header).ok();
    let len = len.and_then(|header| header.image_bytes().or_else(|| header.lockless_bytes()));
    let image = len
        .filter(|len| *len <= BITMAP_MAX_BYTES)
        .and_then(|len| read_area(member, superblock, offset, len as usize).ok().flatten());
    // Without its bits the header still says what kind of bitmap a writer would have to keep.
    facts.set_bitmap(&image.unwrap_or(header), &uuid);
    // Bits of version 3 are in the order of the machine that wrote them, and are read as those of a
    // little-endian one.
    if facts.bitmap == BitmapFacts::Version(3) && superblock.byte_order() == ByteOrder::Big {
        facts.bitmap_content = None;
    }
}

fn read_ppl(member: &Member, superblock: &Superblock, facts: &mut MemberFacts) {
    let Some(area) = superblock.ppl() else { return };
    let len_sectors = u64::from(area.size_sectors);
    let Some(Range { start: start_sector, .. }) =
        beside_data(superblock, i32::from(area.offset_sectors), len_sectors)
    else {
        let newest = PplNewest::Missing;
        return facts.ppl = Some(PplFacts { start_sector: 0, len_sectors, newest });
    };
    match read_sectors(member, start_sector, usize::from(area.size_sectors) * 512) {
        Ok(bytes) => {
            facts.set_ppl(&bytes.unwrap_or_default(), start_sector, &superblock.stored_uuid());
        }
        Err(_) => {
            facts.ppl = Some(PplFacts { start_sector, len_sectors, newest: PplNewest::Unreadable });
        }
    }
}

/// The recorded bad ranges; `None` if there are some and they cannot be read.
fn bad_blocks(member: &Member, superblock: &Superblock) -> Option<Vec<BadBlockEntry>> {
    if !superblock.features().contains(Features::BAD_BLOCKS) {
        return Some(Vec::new());
    }
    let area = superblock.bad_block_log()?;
    let len_bytes = usize::from(area.size_sectors) * 512;
    let bytes = read_area(member, superblock, area.offset_sectors, len_bytes).ok()??;
    let range = |range: &md::badblocks::BadRange| BadBlockEntry {
        start_sector: range.sector,
        len_sectors: range.sectors,
    };
    Some(BadBlocks::decode(&bytes, area.shift).ok()?.ranges().iter().map(range).collect())
}

/// What is known of a journal by itself: whether its log is empty, or goes on behind damage, is
/// known once it was walked.
fn journal_facts(superblock: &Superblock) -> Option<JournalFacts> {
    let has_log = superblock.role() == DeviceRole::Journal && superblock.journal_tail().is_some();
    has_log.then_some(JournalFacts::NotEmpty)
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
