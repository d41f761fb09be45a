//! Where a member has what an array keeps beside data. For undo logs.

use wattle_format::md::{SUPERBLOCK_BYTES, Superblock, bitmap};
use wattle_rt::Device;

use crate::md::bitmap::BitmapPlace;
use crate::md::ppl;
use crate::undo::UndoDirectory;

const SECTOR_BYTES: u64 = 512;

/// A member's superblock and what belongs to it: bitmap, of so many regions, bad-block log, partial
/// parity log.
pub fn metadata(
    site: usize,
    device: &Device,
    superblock: &Superblock,
    regions: Option<u64>,
) -> impl Iterator<Item = UndoDirectory> {
    let own = (superblock.found_at_sectors().saturating_mul(SECTOR_BYTES), SUPERBLOCK_BYTES as u64);
    let bitmap = BitmapPlace::of(device, superblock).zip(regions).map(|(place, regions)| {
        let image = bitmap::HEADER_BYTES as u64 + regions.div_ceil(8);
        // It is written in whole blocks.
        (place.offset_bytes, image.next_multiple_of(4096).min(place.room_bytes))
    });
    let bad_blocks = superblock.bad_block_log().and_then(|area| {
        let at = superblock.sector_from_superblock(area.offset_sectors)?;
        Some((at.checked_mul(SECTOR_BYTES)?, u64::from(area.size_sectors) * SECTOR_BYTES))
    });
    let log = ppl::area(superblock, device.size_bytes()).map(|area| (area.offset_bytes, area.size_bytes));
    let places: Vec<_> = [Some(own), bitmap, bad_blocks, log]
        .into_iter()
        .flatten()
        .map(|(offset_bytes, len_bytes)| UndoDirectory { site, offset_bytes, len_bytes }.on(device))
        .collect();
    places.into_iter()
}
