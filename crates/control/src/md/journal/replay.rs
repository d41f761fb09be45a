//! What a start would have made of the members by replaying the log: written to devices that keep
//! it in memory.
//!
//! A settled row is written page by page as it was logged. Data whose parity was never logged was
//! acknowledged all the same where the journal writes back: it is written to the array as a client
//! would, which makes its parity, computing what is missing from what was there before. The kernel
//! does the same in the same order (docs/formats.md §5).

use wattle_engine::geometry::Geometry;
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::{MemberIx, SECTOR_BYTES, Sector};
use wattle_engine::{ArrayHandle, ArraySpec, MemberSpec, Volume, VolumeError};
use wattle_format::md::Superblock;
use wattle_format::md::journal::BLOCK_BYTES;
use wattle_rt::{Buf, BufMut, Core, Device, Durability, IoError};

use super::DataArea;
use super::log::{PlaceOfPage, Ring, array_sector, read_block};

/// Pages that are under way at once.
const BATCH: usize = 64;

/// Why a log was not replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JournalReplayError {
    /// It is not what it was when the array was looked at.
    #[error("its log cannot be read or understood any more")]
    Log,
    /// A page of it could be read before.
    #[error("a page of its log cannot be read: {0}")]
    Page(IoError),
    /// A member does not take a page.
    #[error("slot {slot} does not take a page of it: {error}")]
    Member {
        /// The slot.
        slot: MemberIx,
        /// Why.
        error: IoError,
    },
    /// Data without parity cannot be made part of the array.
    #[error("data of it cannot be written: {0}")]
    Data(VolumeError),
    /// There is no thread to read on.
    #[error("no thread to read it on: {0}")]
    Thread(IoError),
}

/// What is logged, and not on the members.
struct Missing {
    /// Places and positions in the ring.
    settled: Vec<(PlaceOfPage, u64)>,
    /// Sectors of the array and positions in the ring.
    newer: Vec<(Sector, u64)>,
}

/// Replays the log of a journal over the members in `slots`, whose devices keep what is written to
/// them in memory. `members` are the same for an array that is started from them for a moment.
/// Returns how many pages that took.
///
/// # Errors
/// [`JournalReplayError`]; the members' devices hold a part of it then.
pub(crate) async fn replay(
    core: &Core,
    (journal, superblock): (&Device, &Superblock),
    geometry: &Geometry,
    slots: &[Option<DataArea>],
    members: Vec<MemberSpec>,
) -> Result<usize, JournalReplayError> {
    let missing = {
        let (journal, superblock) = (journal.clone(), superblock.clone());
        let (geometry, slots) = (geometry.clone(), slots.to_vec());
        let look = move || look(&journal, &superblock, &geometry, &slots);
        core.offload(look).await.map_err(JournalReplayError::Thread)?.ok_or(JournalReplayError::Log)?
    };
    let offset = |position: u64| (superblock.data_offset_sectors() + position) * SECTOR_BYTES;
    for batch in missing.settled.chunks(BATCH) {
        let pages = read(core, journal, batch.iter().map(|&(_, position)| offset(position))).await?;
        for (&(place, _), page) in batch.iter().zip(pages) {
            let Some(Some(area)) = slots.get(place.member.index()) else { continue };
            let at = (area.data_offset_sectors + place.sector) * SECTOR_BYTES;
            let written = core.write(&area.device, at, page, Durability::Cached).await;
            written.map_err(|error| JournalReplayError::Member { slot: place.member, error })?;
        }
    }
    if !missing.newer.is_empty() {
        let spec = ArraySpec::new("journal", geometry.clone(), members);
        let array = ArrayHandle::start(core, spec, Box::new(NoMetadata)).await;
        let written = write(core, &array, journal, &missing.newer, offset).await;
        let stopped = array.stop(core).await;
        written.and(stopped.map_err(JournalReplayError::Data))?;
    }
    Ok(missing.settled.len() + missing.newer.len())
}

/// Writes data as a client does.
async fn write(
    core: &Core,
    array: &ArrayHandle,
    journal: &Device,
    data: &[(Sector, u64)],
    offset: impl Fn(u64) -> u64,
) -> Result<(), JournalReplayError> {
    let volume: Volume = array.volume().open(core).map_err(JournalReplayError::Data)?;
    for batch in data.chunks(BATCH) {
        let pages = read(core, journal, batch.iter().map(|&(_, position)| offset(position))).await?;
        let write = |(&(sector, _), page): (&(Sector, u64), Buf)| {
            let volume = volume.clone();
            core.spawn(async move { volume.write(sector.0 * SECTOR_BYTES, page, Durability::Cached).await })
        };
        let writes: Vec<_> = batch.iter().zip(pages).map(write).collect();
        for write in writes {
            write.await.map_err(JournalReplayError::Data)?;
        }
    }
    Ok(())
}

async fn read(
    core: &Core,
    journal: &Device,
    offsets: impl Iterator<Item = u64>,
) -> Result<Vec<Buf>, JournalReplayError> {
    let reads: Vec<_> =
        offsets.map(|offset| core.read(journal, offset, BufMut::alloc(BLOCK_BYTES))).collect();
    let mut pages = Vec::with_capacity(reads.len());
    let mut failed = None;
    for read in reads {
        let (result, page) = read.await;
        failed = failed.or(result.err());
        pages.push(page.freeze());
    }
    failed.map_or(Ok(pages), |error| Err(JournalReplayError::Page(error)))
}

/// Reads the log and what it is about, beside the cores.
fn look(
    journal: &Device,
    superblock: &Superblock,
    geometry: &Geometry,
    slots: &[Option<DataArea>],
) -> Option<Missing> {
    let ring = Ring::new(journal, superblock)?;
    let log = ring.walk(geometry)?;
    let mut settled = Vec::new();
    for (place, position) in log.settled {
        let Some(Some(area)) = slots.get(place.member.index()) else { continue };
        let logged = ring.block(position)?;
        if read_block(&area.device, area.data_offset_sectors, place.sector) != Some(logged) {
            settled.push((place, position));
        }
    }
    let newer = log.newer.into_iter().map(|(place, at)| Some((array_sector(place, geometry)?, at)));
    Some(Missing { settled, newer: newer.collect::<Option<_>>()? })
}
