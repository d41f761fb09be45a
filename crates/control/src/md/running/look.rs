//! What is on a device that comes into an array that runs, and what of it is the array's own. Read
//! beside everything else that the core does, and given up when the device hangs: a device that
//! nothing depends on must not hold up the array.

use std::ops::Range;
use std::time::Duration;

use wattle_engine::geometry::Geometry;
use wattle_engine::units::{MemberIx, SECTOR_BYTES, Sector};
use wattle_engine::{Volume, VolumeRef};
use wattle_format::md::{self, Superblock};
use wattle_format::probe;
use wattle_rt::{BufMut, Core, Device, Either, IoError, race};

use crate::md::admit::{OfferedDevice, damaged_signature, lies_in_data, superblock_signature};
use crate::md::superblocks::{Superblocks, read_superblocks};
use crate::members::MemberError;
use crate::problem::{Code, Problem};
use crate::signature::{FoundSignature, readable_signatures, recognise};

/// For a device to give everything that is looked at, 170 KiB: a drive that spins up is there by
/// then.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);

/// A device as it is offered: everything that is recognised on it.
///
/// # Errors
/// A [`Problem`]: it cannot be read where something may be, or does not answer.
pub(super) async fn look(core: &Core, name: &str, device: &Device) -> Result<OfferedDevice, Problem> {
    let seen = Seen::read(core, name, device).await?;
    let Superblocks { valid, damaged, unreadable } = seen.superblocks();
    let (signatures, unread) = seen.signatures();
    if let Some(error) = unreadable.into_iter().chain(unread).next() {
        return Err(error.into());
    }
    Ok(OfferedDevice::new(name, device, valid, &damaged, signatures))
}

/// A device that the array knows, by its superblock, as it is offered. Bad sectors do not matter:
/// it is about to be written there.
///
/// # Errors
/// A [`Problem`]: its superblock cannot be read any more, or it does not answer.
pub(super) async fn look_again(
    core: &Core,
    name: &str,
    device: &Device,
    superblock: &Superblock,
) -> Result<OfferedDevice, Problem> {
    let seen = Seen::read(core, name, device).await?;
    seen.at(superblock.found_at_sectors() * SECTOR_BYTES, md::SUPERBLOCK_BYTES)?;
    Ok(OfferedDevice::new(name, device, vec![superblock.clone()], &[], seen.signatures().0))
}

/// The parts of a device where something may be recognised.
struct Seen<'a> {
    name: &'a str,
    /// Whole blocks.
    size_bytes: u64,
    parts: Vec<(u64, Result<BufMut, IoError>)>,
}

impl<'a> Seen<'a> {
    async fn read(core: &Core, name: &'a str, device: &Device) -> Result<Self, Problem> {
        let block = u64::from(device.logical_block_bytes());
        let size_bytes = device.size_bytes() / block * block;
        let superblocks = md::scan_component(size_bytes / SECTOR_BYTES).into_iter();
        let superblocks = superblocks.map(|at| at.offset_bytes..at.offset_bytes + at.len_bytes as u64);
        let reads: Vec<_> = superblocks
            .chain(probe::ranges(size_bytes))
            .map(|range| {
                let (from, to) = (range.start / block * block, range.end.next_multiple_of(block));
                (from, core.read(device, from, BufMut::zeroed((to - from) as usize)))
            })
            .collect();
        let all = async {
            let mut parts = Vec::with_capacity(reads.len());
            for (from, read) in reads {
                let (result, buf) = read.await;
                parts.push((from, result.map(|()| buf)));
            }
            parts
        };
        match race(all, core.sleep(ANSWER_TIME_MAX)).await {
            Either::First(parts) => Ok(Self { name, size_bytes, parts }),
            Either::Second(()) => Err(silent(name)),
        }
    }

    fn at(&self, offset_bytes: u64, len_bytes: usize) -> Result<Vec<u8>, MemberError> {
        let end = offset_bytes + len_bytes as u64;
        let mut source = IoError::END_OF_DEVICE;
        for (from, read) in &self.parts {
            match read {
                Ok(bytes) if *from <= offset_bytes && end <= from + bytes.len() as u64 => {
                    let at = (offset_bytes - from) as usize;
                    return Ok(bytes[at..at + len_bytes].to_vec());
                }
                Err(error) if *from <= offset_bytes => source = *error,
                _ => {}
            }
        }
        Err(MemberError::Read {
            name: self.name.to_owned(),
            offset_bytes,
            len_bytes: len_bytes as u64,
            source,
        })
    }

    fn superblocks(&self) -> Superblocks {
        read_superblocks(self.size_bytes / SECTOR_BYTES, &|offset, len| self.at(offset, len))
    }

    fn signatures(&self) -> (Vec<FoundSignature>, Vec<MemberError>) {
        readable_signatures(self.size_bytes, &|offset, len| self.at(offset, len))
    }
}

/// What a device that is offered might show of the array's content as it is now: everything that is
/// recognised on any slot's data when that is taken for a whole device. Parity shows what the only
/// block of its stripe with something in it shows. What cannot be read is not shown.
pub(super) async fn shown(
    core: &Core,
    volume: &VolumeRef,
    geometry: &Geometry,
    offer: &OfferedDevice,
    own: &Superblock,
) -> Vec<FoundSignature> {
    // The array is read only for those few devices that show something where the array's content
    // may be.
    let others = offer.superblocks.iter().filter(|other| other.set_uuid() != own.set_uuid());
    let others = others.map(superblock_signature).chain(offer.damaged.iter().cloned());
    let has_superblocks = others.into_iter().any(|seen| lies_in_data(own, &seen));
    if !has_superblocks && !offer.signatures.iter().any(|seen| lies_in_data(own, seen)) {
        return Vec::new();
    }
    let Ok(volume) = volume.open(core) else { return Vec::new() };
    let start = own.data_offset_sectors() * SECTOR_BYTES;
    let size_bytes = offer.size_sectors * SECTOR_BYTES;
    let mut found = Vec::new();
    for slot in (0..geometry.raid_disks() as u16).map(MemberIx) {
        let mut parts = Vec::new();
        for range in probe::ranges(size_bytes) {
            parts.extend(content(&volume, geometry, slot, start, range).await);
        }
        found.extend(recognise(size_bytes, &parts));
        if has_superblocks {
            let mut parts = Vec::new();
            for place in md::scan_component(offer.size_sectors) {
                let range = place.offset_bytes..place.offset_bytes + place.len_bytes as u64;
                parts.extend(content(&volume, geometry, slot, start, range).await);
            }
            found.extend(recognise_superblocks(offer.size_sectors, &parts));
        }
    }
    found
}

/// What the member in a slot has in a range of its bytes, as far as that is the array's content and
/// can be read: offset and bytes. Its data begins at the byte `start`.
async fn content(
    volume: &Volume,
    geometry: &Geometry,
    slot: MemberIx,
    start: u64,
    range: Range<u64>,
) -> Vec<(u64, Vec<u8>)> {
    let end = start.saturating_add(geometry.member_sectors(slot).0 * SECTOR_BYTES);
    let (mut at, end) = (range.start.max(start), range.end.min(end));
    let mut parts = Vec::new();
    let mut part: (u64, Vec<u8>) = (at, Vec::new());
    while at < end {
        let (sector, chunk) = (Sector((at - start) / SECTOR_BYTES), geometry.chunk().0);
        let left = if chunk == 0 { u64::MAX } else { (chunk - sector.0 % chunk) * SECTOR_BYTES };
        let len = left.min(end - at) / SECTOR_BYTES * SECTOR_BYTES;
        let bytes = match geometry.array_sector_at(slot, sector) {
            Some(from) if len > 0 => {
                let buf = BufMut::zeroed(len as usize);
                let (read, buf) = volume.read(from.0 * SECTOR_BYTES, buf).await;
                read.ok().map(|()| buf)
            }
            _ => None,
        };
        match bytes {
            Some(bytes) => part.1.extend_from_slice(&bytes),
            None => parts.push(std::mem::replace(&mut part, (at + len, Vec::new()))),
        }
        at += len.max(SECTOR_BYTES);
    }
    parts.push(part);
    parts
}

/// The superblocks that a device of so many sectors shows in these parts of it.
fn recognise_superblocks(size_sectors: u64, parts: &[(u64, Vec<u8>)]) -> Vec<FoundSignature> {
    let mut found = Vec::new();
    for place in md::scan_component(size_sectors) {
        let within = |(from, bytes): &(u64, Vec<u8>)| {
            let at = usize::try_from(place.offset_bytes.checked_sub(*from)?).ok()?;
            bytes.get(at..at.checked_add(place.len_bytes)?).map(<[u8]>::to_vec)
        };
        let Some(bytes) = parts.iter().find_map(within) else { continue };
        match md::identify(place.version, &bytes, size_sectors) {
            Ok(None) => {}
            Ok(Some(superblock)) => found.push(superblock_signature(&superblock)),
            Err(raw) => found.push(damaged_signature(&raw)),
        }
    }
    found
}

pub(crate) fn silent(name: &str) -> Problem {
    Problem::new(
        Code::ReadFailed,
        format!("{name}: it did not answer within {} s", ANSWER_TIME_MAX.as_secs()),
        "what is on it cannot be told",
        "see what the system says of that device (`dmesg`), or use another",
    )
    .of_member(name)
}
