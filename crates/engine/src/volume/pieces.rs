//! Long ranges that are zeroed or discarded piece by piece, as long as it is wanted: members that
//! do not do it by themselves write a range for hours.

use std::ops::Range;
use std::time::Duration;

use wattle_rt::Core;

use super::qos::QosCost;
use super::{Place, Volume, VolumeTurn};
use crate::model::error::VolumeError;

/// The first piece; the next ones are longer or shorter.
const PIECE_BYTES: u64 = 64 << 20;

/// The first piece where others may have to wait for it, and on other volumes below than the pieces
/// before it: until it is known how long it takes.
const CAREFUL_PIECE_BYTES: u64 = 4 << 20;

/// Pieces are no longer than this at first, however fast those before them were: what comes next
/// may be a disk that writes its zeroes, for which it is two seconds.
const PIECE_BYTES_MAX: u64 = 256 << 20;

/// Where much was fast, a piece may be such a part of that, up to a length: TiBs that are holes are
/// not done in tens of thousands of pieces.
const PART_OF_DONE: u64 = 16;
const LONG_PIECE_BYTES_MAX: u64 = 4 << 30;

/// A piece takes about so long: so much later a range ends than it is wanted.
const PIECE_TIME: Duration = Duration::from_millis(200);

impl Volume {
    /// Does something with a range, which costs as much as `cost` says, paid with the first piece.
    /// Each piece of it waits for a turn of its own: a range that takes hours is not one request
    /// that is under way for hours. `admit` waits for that, and what it says besides is kept until
    /// the piece is done. Pieces end where stripes do: parts of stripes cost more, and are not
    /// discarded.
    ///
    /// # Errors
    /// [`VolumeError::OutOfRange`], with nothing done, or what `admit` or `work` say.
    pub async fn in_pieces<'v, T, E: From<VolumeError>>(
        &'v self,
        core: &Core,
        range: Range<u64>,
        mut cost: QosCost,
        admit: impl AsyncFn(QosCost) -> Result<(VolumeTurn<'v>, T), E>,
        work: impl AsyncFn(&VolumeTurn<'v>, u64, u64) -> Result<(), VolumeError>,
    ) -> Result<(), E> {
        if range.end > self.size_bytes() {
            return Err(VolumeError::OutOfRange.into());
        }
        let unit = u64::from(self.io_opt_bytes().max(self.block_bytes()));
        let is_shared = self.pace.as_ref().is_some_and(|pace| pace.shares());
        let (mut at, mut bytes) = (range.start, if is_shared { CAREFUL_PIECE_BYTES } else { PIECE_BYTES });
        let mut alike_until = self.alike_until(at);
        loop {
            if at >= alike_until {
                (alike_until, bytes) = (self.alike_until(at).max(at + 1), CAREFUL_PIECE_BYTES);
            }
            let end = at.saturating_add(bytes).min(alike_until);
            let stop = (end / unit).max(at / unit + 1).saturating_mul(unit).min(range.end);
            let admission = admit(cost).await?;
            let began = core.now();
            work(&admission.0, at, stop - at).await?;
            drop(admission);
            if stop == range.end {
                return Ok(());
            }
            bytes = match core.now() - began {
                took if took < PIECE_TIME / 2 => bytes.saturating_mul(2).min(longest(stop - range.start)),
                took if took > PIECE_TIME * 2 => as_long_as(stop - at, took).max(unit),
                _ => bytes,
            };
            (at, cost) = (stop, cost.next_piece());
        }
    }
}

impl Volume {
    /// Up to where what lies behind a byte may take as long as that byte: a fast disk says nothing
    /// of the slow one behind it.
    fn alike_until(&self, offset_bytes: u64) -> u64 {
        match &self.place {
            Place::Array(_) => u64::MAX,
            Place::Mapped(mapped) => mapped.alike_until(offset_bytes),
        }
    }
}

/// The longest piece behind so many bytes.
fn longest(done: u64) -> u64 {
    PIECE_BYTES_MAX.max((done / PART_OF_DONE).min(LONG_PIECE_BYTES_MAX))
}

/// How much of what took so long is done in the time of a piece.
fn as_long_as(bytes: u64, took: Duration) -> u64 {
    let part = u128::from(bytes) * PIECE_TIME.as_nanos() / took.as_nanos().max(1);
    u64::try_from(part).unwrap_or(bytes)
}
