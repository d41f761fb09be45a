//! The texts that come back with an undo log: what volume groups are once its bytes are there
//! again.

use wattle_format::lvm::area::{self, Header};
use wattle_format::lvm::label::SCAN_BYTES;
use wattle_format::lvm::{Label, Vg};
use wattle_format::undo::{SECTOR_BYTES, UndoLog};
use wattle_rt::{Core, Device, IoError};

use crate::byte_range::read;

/// A target of a log, read as if it were brought back.
struct Restored<'a> {
    device: &'a Device,
    log: &'a UndoLog,
    target: usize,
}

impl Restored<'_> {
    async fn read(&self, core: &Core, offset_bytes: u64, len_bytes: usize) -> Result<Vec<u8>, IoError> {
        let mut bytes = read(core, self.device, offset_bytes, len_bytes).await?;
        let end = offset_bytes + len_bytes as u64;
        for range in self.log.ranges.iter().filter(|range| range.target as usize == self.target) {
            for at in 0..range.sectors {
                let start = (range.sector + u64::from(at)) * SECTOR_BYTES as u64;
                let (from, to) = (start.max(offset_bytes), (start + SECTOR_BYTES as u64).min(end));
                if from < to {
                    let before = &range.before(at as usize)[(from - start) as usize..(to - start) as usize];
                    bytes[(from - offset_bytes) as usize..(to - offset_bytes) as usize]
                        .copy_from_slice(before);
                }
            }
        }
        Ok(bytes)
    }
}

/// The groups' texts on a device, as they are once a log is brought back there: one for each area
/// that has a whole one then. `None` if it is no physical volume then.
///
/// # Errors
/// The device cannot be read.
pub async fn texts(
    core: &Core,
    device: &Device,
    log: &UndoLog,
    target: usize,
) -> Result<Option<Vec<Vg>>, IoError> {
    let restored = Restored { device, log, target };
    let mut texts = Vec::new();
    let size_bytes = device.size_bytes();
    let head_bytes = SCAN_BYTES.min(usize::try_from(size_bytes).unwrap_or(SCAN_BYTES));
    let head = restored.read(core, 0, head_bytes).await?;
    let Ok(Some(label)) = Label::find(&head) else { return Ok(None) };
    for place in label.metadata_areas {
        if place.offset_bytes.saturating_add(place.size_bytes) > size_bytes {
            continue;
        }
        let header = restored.read(core, place.offset_bytes, area::HEADER_BYTES).await?;
        let Ok(header) = Header::decode(&header, place) else { continue };
        let Some(location) = header.committed().filter(|_| !header.is_ignored()) else { continue };
        let Ok(ranges) = header.ranges(&location) else { continue };
        if location.size_bytes > wattle_format::lvm::text::MAX_BYTES as u64 + 1 {
            continue;
        }
        let mut pieces = Vec::new();
        for range in ranges {
            pieces.push(restored.read(core, range.offset_bytes, range.size_bytes as usize).await?);
        }
        let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
        let text = header.text(&location, &pieces).ok();
        texts.extend(text.and_then(|text| Vg::parse(&text).ok()));
    }
    Ok(Some(texts))
}
