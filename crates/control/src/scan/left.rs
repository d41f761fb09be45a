//! What is left on a device of earlier times, for what must not show it.

use wattle_format::lvm::label::Area;
use wattle_format::md::Version;

use crate::lvm::physical;
use crate::md::superblocks::{Superblocks, superblocks_of};
use crate::members::Member;
use crate::signature::{readable_parts, recognise};

const SECTOR_BYTES: u64 = 512;
/// A superblock's, of any version.
const SUPERBLOCK_BYTES: u64 = 4096;

/// Where a scan recognises something on a member from this byte on, and what; also what it finds
/// only once the first is gone: with zeros in all of these places it finds nothing. What cannot be
/// read is passed by.
pub(crate) fn left_on(member: &Member, from_bytes: u64) -> Vec<(Area, String)> {
    let size_bytes = member.device.size_bytes();
    let range = |offset_bytes: u64, len_bytes: u64| {
        let end = offset_bytes.saturating_add(len_bytes).min(size_bytes);
        let is_left = offset_bytes >= from_bytes && offset_bytes < end;
        is_left.then_some(Area { offset_bytes, size_bytes: end.saturating_sub(offset_bytes) })
    };
    let Superblocks { valid, damaged, .. } = superblocks_of(member);
    let valid = valid.iter().map(|of| (of.version(), of.found_at_sectors()));
    let damaged = damaged.iter().map(|raw| (raw.fields().version(), raw.fields().found_at_sectors()));
    let superblock = |(version, sector): (Version, u64)| {
        let at = range(sector.saturating_mul(SECTOR_BYTES), SUPERBLOCK_BYTES)?;
        Some((at, format!("md {version} superblock")))
    };
    let mut left: Vec<_> = valid.chain(damaged).filter_map(superblock).collect();
    let physical = physical::read(member).and_then(Result::ok);
    let areas = physical.iter().flat_map(|physical| &physical.areas);
    let areas = areas.filter_map(|area| range(area.place.offset_bytes, SECTOR_BYTES));
    left.extend(areas.map(|area| (area, "LVM2 metadata area".to_owned())));
    let read = |offset_bytes, len_bytes| member.read(offset_bytes, len_bytes);
    let (mut parts, _) = readable_parts(size_bytes, &read);
    loop {
        let seen = recognise(size_bytes, &parts).into_iter().filter_map(|seen| {
            Some((range(seen.offset_bytes / SECTOR_BYTES * SECTOR_BYTES, SECTOR_BYTES)?, seen.what))
        });
        let new: Vec<_> = seen.filter(|seen| !left.contains(seen)).collect();
        if new.is_empty() {
            return left;
        }
        new.iter().for_each(|(place, _)| zero_in(&mut parts, place));
        left.extend(new);
    }
}

fn zero_in(parts: &mut [(u64, Vec<u8>)], place: &Area) {
    for (start, bytes) in parts {
        let at = |offset_bytes: u64| (offset_bytes.saturating_sub(*start) as usize).min(bytes.len());
        let range = at(place.offset_bytes)..at(place.offset_bytes + place.size_bytes);
        bytes[range].fill(0);
    }
}
