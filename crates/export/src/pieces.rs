//! Long ranges that are zeroed or discarded piece by piece, as long as it is wanted: members that
//! do not do it by themselves write a range for hours.

use std::ops::Range;
use std::time::Duration;

use wattle_engine::{Volume, VolumeError};
use wattle_rt::Core;

/// The first piece; the next ones are longer or shorter.
const PIECE_BYTES: u64 = 64 << 20;

/// A piece takes about so long: so much later a range ends than it is wanted.
const PIECE_TIME: Duration = Duration::from_millis(200);

/// Does something with a range of a volume. `may` is asked before each piece, and its answer kept
/// until that is done. Pieces end where stripes do: parts of stripes cost more, and are not
/// discarded.
///
/// # Errors
/// [`VolumeError::OutOfRange`], with nothing done, or what `may` or `work` say.
pub(crate) async fn in_pieces<T, E: From<VolumeError>>(
    core: &Core,
    volume: &Volume,
    range: Range<u64>,
    may: impl Fn() -> Result<T, E>,
    work: impl AsyncFn(u64, u64) -> Result<(), VolumeError>,
) -> Result<(), E> {
    if range.end > volume.size_bytes() {
        return Err(VolumeError::OutOfRange.into());
    }
    let unit = u64::from(volume.io_opt_bytes().max(volume.block_bytes()));
    let (mut at, mut bytes) = (range.start, PIECE_BYTES);
    loop {
        let whole_units = (at.saturating_add(bytes) / unit).max(at / unit + 1);
        let stop = whole_units.saturating_mul(unit).min(range.end);
        let began = core.now();
        let admission = may()?;
        work(at, stop - at).await?;
        drop(admission);
        if stop == range.end {
            return Ok(());
        }
        bytes = match core.now() - began {
            took if took < PIECE_TIME / 2 => bytes.saturating_mul(2),
            took if took > PIECE_TIME * 2 => (bytes / 2).max(unit),
            _ => bytes,
        };
        at = stop;
    }
}
