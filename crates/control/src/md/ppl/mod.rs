//! The partial parity log of RAID 5 in md's format (docs/formats.md §4): how the engine's log is
//! written, and what a dirty array's logs say when it is assembled.
//!
//! **At assembly**, of an array that is dirty (`resync_offset` 0) and has this feature:
//! [`mod@replay`] reads the logs and what they are about, and writes nothing. [`apply`] writes the
//! parity that came out and flushes every member. Where [`ParityKnowledge::trusts_parity`] says so,
//! parity is right everywhere then: **record the array clean before anything else is written**, as
//! the engine empties the logs before it records the array dirty. Until then a crash at any point
//! is followed by the same replay. An array that is only read is
//! given members whose writes stay in memory, and then the same.
//!
//! **While it runs**, give the engine a [`log_spec`], and each member its [`area`]. Whatever else
//! writes to logs has no business there.
//!
//! Logs are validated, not trusted: an entry that no writer produces is followed nowhere. Two
//! things a crash leaves behind are told from damage, because they prove that nothing of what they
//! announce had been written: a header, or partial parity, that the power cut short while it was
//! being written. The kernel takes either for a reason to resync.
//!
//! A log that says nothing proves nothing: the kernel's logs are empty from its start on, whatever
//! parity is. wattle's are empty at generation 0 while parity is not known to be right, and begin
//! at 1 when it is (see `wattle_engine::state::ppl`); so one log of a higher generation is enough
//! to know that every write since was logged.

mod plan;
mod replay;

use std::sync::Arc;

use wattle_engine::geometry::{Geometry, Level};
use wattle_engine::state::ppl::{LogArea, LogEntry, LogFormat, LogSpec, PAGE_BYTES};
use wattle_engine::units::SECTOR_BYTES;
use wattle_format::md::ppl::{self, HEADER_BYTES, MAX_ENTRIES, MAX_LOG_BYTES};
use wattle_format::md::{Features, Superblock};
use wattle_rt::{Buf, BufMut};

use crate::md::areas::beside_data;

pub(crate) use plan::PARITY_BYTES_MAX;
pub use plan::{LogDistrust, ParityKnowledge};
pub use replay::{LogMember, Patch, Replay, apply, replay};

/// Where a member's log is on its device; `None` if its superblock names none, or one that is out
/// of place, in the data or too short.
#[must_use]
pub fn area(superblock: &Superblock, device_bytes: u64) -> Option<LogArea> {
    let area = superblock.ppl()?;
    let place = beside_data(superblock, i32::from(area.offset_sectors), u64::from(area.size_sectors))?;
    let offset_bytes = place.start.checked_mul(SECTOR_BYTES)?;
    let page = u64::from(PAGE_BYTES);
    let size_bytes = u64::from(area.size_sectors) * SECTOR_BYTES / page * page;
    let end = offset_bytes.checked_add(size_bytes)?;
    (size_bytes >= HEADER_BYTES as u64 + page && end <= device_bytes)
        .then_some(LogArea { offset_bytes, size_bytes })
}

/// The log of an array with these features and areas; `None` if it has none, or one that cannot be
/// written: then the array can only be written without.
#[must_use]
pub fn log_spec(
    features: Features,
    stored_uuid: [u8; 16],
    geometry: &Geometry,
    areas: impl IntoIterator<Item = LogArea>,
) -> Option<LogSpec> {
    let ring = features.contains(Features::MULTIPLE_PPLS);
    let chunk_bytes = geometry.chunk().0 * SECTOR_BYTES;
    let fits = features.intersects(Features::PPL | Features::MULTIPLE_PPLS)
        && geometry.level() == Level::Raid5
        && geometry.raid_disks() >= 3
        && chunk_bytes.is_multiple_of(u64::from(PAGE_BYTES))
        && u32::try_from(geometry.stripe_data_sectors().0 * SECTOR_BYTES).is_ok();
    let smallest_bytes = areas.into_iter().map(|area| area.size_bytes).min().filter(|_| fits)?;
    let room_bytes =
        smallest_bytes.checked_sub(HEADER_BYTES as u64).filter(|&room| room >= u64::from(PAGE_BYTES))?;
    let most_bytes = if ring { u64::from(MAX_LOG_BYTES) } else { u64::MAX };
    let payload_max_bytes = usize::try_from(room_bytes.min(most_bytes)).ok()?;
    Some(LogSpec { ring, format: Arc::new(MdLog { set_uuid: stored_uuid, payload_max_bytes }) })
}

/// md's encoding.
#[derive(Debug, Clone, Copy)]
struct MdLog {
    set_uuid: [u8; 16],
    payload_max_bytes: usize,
}

impl LogFormat for MdLog {
    fn header(&self, generation: u64, entries: &[LogEntry]) -> Buf {
        let entries = entries.iter().map(|entry| ppl::PplEntry {
            data_sector: entry.first.0,
            pp_bytes: entry.partial_bytes() as u32,
            data_bytes: entry.data_bytes,
            parity_disk: u32::from(entry.parity_slot.0),
            checksum: ppl::partial_checksum(entry.partial.iter().map(|part| &**part)),
        });
        let header = ppl::Header { generation, entries: entries.collect() };
        BufMut::copy_of(&header.encode(&self.set_uuid)[..]).freeze()
    }

    fn entries_max(&self) -> usize {
        MAX_ENTRIES
    }

    fn payload_max_bytes(&self) -> usize {
        self.payload_max_bytes
    }
}
