//! Zeroing and discarding ranges of an array.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use wattle_rt::{Buf, Durability, Unmap};

use super::ArrayVolume;
use crate::level::ArrayShard;
use crate::level::zero;
use crate::model::error::VolumeError;
use crate::model::geometry::LevelKind;
use crate::model::units::{SECTOR_BYTES, Sector};
use crate::state::Home;
use crate::state::ppl;

/// The first step. Members that zero by themselves take any length in the same time, others write
/// it: steps grow and shrink with the time they take.
const STEP_BYTES_FIRST: u64 = 8 << 20;

/// A step has the array to itself for about so long.
const HOLD: Duration = Duration::from_millis(50);

/// Between two steps: requests that came meanwhile begin.
const PAUSE: Duration = Duration::from_millis(1);

impl ArrayVolume {
    /// Tells the members that a range holds nothing of value. It may read as zeros afterwards, or
    /// as before; redundancy stays right. Parts that do not cover whole stripes, and members that
    /// cannot discard, are left alone.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), VolumeError> {
        self.check(offset_bytes, len_bytes)?;
        if self.read_only() {
            return Err(VolumeError::ReadOnly);
        }
        let inner = self.whole(offset_bytes, len_bytes);
        if inner.is_empty() {
            return Ok(());
        }
        self.zero_in_steps(inner, Unmap::Yes, zero::Unsupported::Skip).await
    }

    /// Writes zeros; with [`Unmap::Yes`] members may free the space.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn write_zeroes(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        unmap: Unmap,
        durability: Durability,
    ) -> Result<(), VolumeError> {
        self.check(offset_bytes, len_bytes)?;
        if self.read_only() {
            return Err(VolumeError::ReadOnly);
        }
        let inner = self.whole(offset_bytes, len_bytes);
        if inner.is_empty() {
            return self.write_zero_bytes(offset_bytes, offset_bytes + len_bytes, durability).await;
        }
        let (inner_start, inner_end) = (inner.start.0 * SECTOR_BYTES, inner.end.0 * SECTOR_BYTES);
        self.write_zero_bytes(offset_bytes, inner_start, durability).await?;
        self.write_zero_bytes(inner_end, offset_bytes + len_bytes, durability).await?;
        self.zero_in_steps(inner, unmap, zero::Unsupported::Write).await?;
        if durability == Durability::Fua { self.shard.state.flush().await } else { Ok(()) }
    }

    /// Zeroes whole stripes, or blocks where there is no parity, step by step at the home. Each
    /// step has the array to itself; requests that came meanwhile go before the next one.
    async fn zero_in_steps(
        &self,
        range: Range<Sector>,
        unmap: Unmap,
        unsupported: zero::Unsupported,
    ) -> Result<(), VolumeError> {
        let unit = self.zero_unit();
        let units = move |bytes: u64| Sector((bytes / SECTOR_BYTES / unit.0).max(1) * unit.0);
        let key = self.shard.fixed.key;
        let zeroing = async move |home: Rc<Home>| {
            let Some(shard) = home.shard().core.local::<ArrayShard>(key) else {
                return Err(VolumeError::Stopped);
            };
            let core = shard.core.clone();
            drop(shard);
            let (mut at, mut bytes) = (range.start, STEP_BYTES_FIRST);
            loop {
                let end = range.end.min(at + units(bytes));
                let held = home.exclusively(async |permit| {
                    let shard = core.local::<ArrayShard>(key).ok_or(VolumeError::Stopped)?;
                    let volume = Self { shard, exclusive: true };
                    let began = volume.shard.core.now();
                    volume.zero_whole(at..end, unmap, unsupported).await?;
                    // Until here, so that the array is not taken for idle and recorded clean
                    // meanwhile.
                    drop(permit);
                    Ok(volume.shard.core.now() - began)
                });
                let held = held.await??;
                at = end;
                if at >= range.end {
                    return Ok(());
                }
                bytes = match held {
                    held if held < HOLD / 2 => bytes.saturating_mul(2).min(1 << 60),
                    held if held > HOLD => (bytes / 2).max(zero::PIECE_BYTES),
                    _ => bytes,
                };
                core.sleep(PAUSE).await;
            }
        };
        self.shard.state.home(zeroing).await
    }

    /// Zeroes whole stripes, or blocks where there is no parity; with a partial parity log as many
    /// at once as it has entries for. The volume has the array to itself.
    async fn zero_whole(
        &self,
        range: Range<Sector>,
        unmap: Unmap,
        unsupported: zero::Unsupported,
    ) -> Result<(), VolumeError> {
        let Some(stripes_max) = ppl::stripes_max(&self.shard.state) else {
            return zero::whole(&self.shard, range, unmap, unsupported).await;
        };
        let width = self.geometry().stripe_data_sectors().0;
        let (mut stripe, end) = (range.start.0 / width, range.end.0 / width);
        while stripe < end {
            let stop = end.min(stripe + stripes_max);
            let part = Sector(stripe * width)..Sector(stop * width);
            if let Some(tickets) = ppl::announce(&self.shard.state, stripe..stop).await? {
                let result = zero::whole(&self.shard, part, unmap, unsupported).await;
                tickets.into_iter().for_each(|ticket| ticket.release(&self.shard.state, result.is_ok()));
                result?;
            } else if unsupported == zero::Unsupported::Write {
                // With a member missing, parity holds what that lacks: only ordinary writes can be
                // made up for.
                let (mut at, end) = (part.start.0 * SECTOR_BYTES, part.end.0 * SECTOR_BYTES);
                while at < end {
                    let len = zero::PIECE_BYTES.min(end - at);
                    self.write_aligned(at, Buf::zeros(len as usize), Durability::Cached).await?;
                    at += len;
                }
            }
            stripe = stop;
        }
        Ok(())
    }

    async fn write_zero_bytes(
        &self,
        mut at: u64,
        end: u64,
        durability: Durability,
    ) -> Result<(), VolumeError> {
        while at < end {
            // Pieces end on the same boundaries as the volume's blocks, so only the very edges are
            // unaligned.
            let stop = ((at / zero::PIECE_BYTES + 1) * zero::PIECE_BYTES).min(end);
            self.write(at, Buf::zeros((stop - at) as usize), durability).await?;
            at = stop;
        }
        Ok(())
    }

    /// The largest range of whole stripes (or blocks, where there is no parity) inside a range.
    fn whole(&self, offset: u64, len: u64) -> Range<Sector> {
        let unit = self.zero_unit().0 * SECTOR_BYTES;
        let (start, end) = (offset.div_ceil(unit) * unit, (offset + len) / unit * unit);
        Sector(start / SECTOR_BYTES)..Sector(end.max(start) / SECTOR_BYTES)
    }

    fn zero_unit(&self) -> Sector {
        match self.geometry().kind() {
            LevelKind::Parity => self.geometry().stripe_data_sectors(),
            LevelKind::Striped | LevelKind::Mirrored => Sector(u64::from(self.block_bytes()) / SECTOR_BYTES),
        }
    }
}
