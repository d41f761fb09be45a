//! Volumes: what clients read and write. An array as a whole, or a map of volumes below it (a
//! logical volume, a partition).
//!
//! A map is resolved where a request enters, on the core it entered: the array below sees an
//! ordinary request of its own.

mod array;
mod changes;
mod device;
mod extents;
mod handle;
mod jobs;
mod map;
mod mapped;
mod pieces;
pub mod qos;
mod remains;
mod spec;
mod status;
mod zeroes;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use wattle_rt::{Buf, BufMut, Core, Durability, JoinHandle, Unmap};

use crate::level::ArrayShard;
use crate::model::error::VolumeError;
pub(crate) use array::ArrayVolume;
use changes::Change;
pub use changes::{CHECKPOINTS_MAX, ChangeMap, CheckpointError};
pub use extents::VolumeExtent;
pub use handle::ArrayHandle;
pub use map::{Leg, MapSegment, MapSpec, SegmentTarget, VolumeMapError};
use mapped::MappedVolume;
pub use mapped::{MappedHandle, StartMappedError};
use qos::{GovernedHandle, Pace, QosClient, QosCost, Turn};
pub use remains::{LeftBefore, Remain, RemainingRequest, Remains, RequestExtent};
pub use spec::{ArraySpec, ArrayTuning};
pub use status::{ArrayStatus, MemberStatus};

/// A volume that can be opened on any core.
#[derive(Debug, Clone)]
pub enum VolumeRef {
    /// A whole array.
    Array(ArrayHandle),
    /// A map of other volumes.
    Mapped(MappedHandle),
    /// One of these, as clients are given it: with limits and a share.
    Governed(GovernedHandle),
}

impl VolumeRef {
    /// The volume's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Array(array) => &array.fixed().name,
            Self::Mapped(mapped) => &mapped.fixed().name,
            Self::Governed(governed) => governed.below().name(),
        }
    }

    /// Whether the two are one volume, with limits or without.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Governed(one), other) => one.below().is(other),
            (one, Self::Governed(other)) => one.is(other.below()),
            (Self::Array(one), Self::Array(other)) => one.fixed().key == other.fixed().key,
            (Self::Mapped(one), Self::Mapped(other)) => one.fixed().key == other.fixed().key,
            _ => false,
        }
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match self {
            Self::Array(array) => array.fixed().volume_bytes(),
            Self::Mapped(mapped) => mapped.fixed().size_bytes.load(Ordering::Relaxed),
            Self::Governed(governed) => governed.below().size_bytes(),
        }
    }

    /// Stops it, with what ends with it; what a map lies on goes on.
    ///
    /// # Errors
    /// As [`ArrayHandle::stop`].
    pub async fn stop(&self, core: &Core) -> Result<(), VolumeError> {
        match self {
            Self::Array(array) => array.stop(core).await,
            Self::Mapped(mapped) => {
                mapped.stop(core).await;
                Ok(())
            }
            Self::Governed(governed) => {
                governed.end(core).await;
                Box::pin(governed.below().stop(core)).await
            }
        }
    }

    /// Its limits and its share, if it has any.
    #[must_use]
    pub fn governed(&self) -> Option<&GovernedHandle> {
        match self {
            Self::Governed(governed) => Some(governed),
            Self::Array(_) | Self::Mapped(_) => None,
        }
    }

    /// What clients that have gone left behind, through whichever front they came. Of a volume
    /// without limits each call is for one front.
    #[must_use]
    pub fn remains(&self) -> Arc<Remains> {
        self.governed().map_or_else(Arc::default, GovernedHandle::remains)
    }

    /// Opens it on the core it is called on.
    ///
    /// # Errors
    /// [`VolumeError::Stopped`] once it is stopped.
    pub fn open(&self, core: &Core) -> Result<Volume, VolumeError> {
        match self {
            Self::Array(array) => {
                let shard = core.local::<ArrayShard>(array.fixed().key).ok_or(VolumeError::Stopped)?;
                Ok(Volume { place: Place::Array(ArrayVolume::new(shard)), pace: None })
            }
            Self::Mapped(mapped) => Ok(Volume { place: Place::Mapped(mapped.open(core)?), pace: None }),
            Self::Governed(governed) => {
                let below = governed.below().open(core)?;
                Ok(Volume { pace: Some(governed.pace(core)), ..below })
            }
        }
    }
}

/// A volume on one core.
#[derive(Clone)]
pub struct Volume {
    place: Place,
    /// What holds its requests back, if anything may.
    pace: Option<Rc<Pace>>,
}

/// Where requests to a volume go.
#[derive(Clone)]
enum Place {
    /// To a whole array.
    Array(ArrayVolume),
    /// To what a map says.
    Mapped(MappedVolume),
}

impl Volume {
    /// The same volume for one client: limits of clients hold for each of them by itself. What was
    /// opened without a client counts as one.
    #[must_use]
    pub fn for_client(&self, client: QosClient) -> Self {
        let pace = self.pace.as_ref().map(|pace| pace.for_client(client));
        Self { place: self.place.clone(), pace }
    }

    /// Waits until a request of this cost may go, and for nothing else. The requests of a volume
    /// wait so by themselves; a caller that has to know when the wait is over asks for the turn,
    /// and makes the request through it. The usual case, nothing to wait for, costs no memory.
    #[inline]
    pub async fn turn(&self, cost: QosCost) -> VolumeTurn<'_> {
        let held = match self.pace.as_deref().filter(|pace| pace.is_on()) {
            None => None,
            Some(pace) => match pace.try_enter(cost) {
                Some(turn) => Some(turn),
                None => Some(Box::pin(pace.enter(cost)).await),
            },
        };
        VolumeTurn { volume: self, _held: held }
    }

    /// Notes a change for checkpoints; what is returned is held until it is answered.
    #[inline]
    fn change(&self, offset_bytes: u64, len_bytes: u64) -> Option<Change<'_>> {
        let pace = self.pace.as_deref()?;
        Some(pace.changes().change(offset_bytes, len_bytes))
    }

    /// What has changed since each of its checkpoints.
    #[must_use]
    pub fn checkpoints(&self) -> Vec<Arc<ChangeMap>> {
        self.pace.as_ref().map_or_else(Vec::new, |pace| pace.changes().maps())
    }

    /// The volume's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.place {
            Place::Array(array) => array.name(),
            Place::Mapped(mapped) => mapped.name(),
        }
    }

    /// Its size in bytes, a multiple of [`Self::block_bytes`].
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match &self.place {
            Place::Array(array) => array.size_bytes(),
            Place::Mapped(mapped) => mapped.size_bytes(),
        }
    }

    /// Whether every write is refused.
    #[must_use]
    pub fn read_only(&self) -> bool {
        match &self.place {
            Place::Array(array) => array.read_only(),
            Place::Mapped(mapped) => mapped.read_only(),
        }
    }

    /// The granularity of requests that cost nothing extra, in bytes. Any range works: unaligned
    /// reads read their edges too, unaligned writes stop everything else for a moment.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        match &self.place {
            Place::Array(array) => array.block_bytes(),
            Place::Mapped(mapped) => mapped.block_bytes(),
        }
    }

    /// The smallest request that is efficient, in bytes: the chunk (md's `minimum_io_size`).
    #[must_use]
    pub fn io_min_bytes(&self) -> u32 {
        match &self.place {
            Place::Array(array) => array.io_min_bytes(),
            Place::Mapped(mapped) => mapped.io_min_bytes(),
        }
    }

    /// The request size that keeps every data member busy, in bytes (md's `optimal_io_size`); 0 if
    /// there is none.
    #[must_use]
    pub fn io_opt_bytes(&self) -> u32 {
        match &self.place {
            Place::Array(array) => array.io_opt_bytes(),
            Place::Mapped(mapped) => mapped.io_opt_bytes(),
        }
    }

    /// Fills `buf` from `offset_bytes` on. The buffer comes back whatever happens; after an error
    /// its contents mean nothing.
    pub async fn read(&self, offset_bytes: u64, buf: BufMut) -> (Result<(), VolumeError>, BufMut) {
        self.turn(QosCost::read(buf.len() as u64)).await.read(offset_bytes, buf).await
    }

    /// Writes `buf` at `offset_bytes`. With [`Durability::Fua`] it is durable when this returns.
    ///
    /// # Cancellation
    /// Dropping the future does not take the write back: it runs to its end, so that the array
    /// never looks idle while members are being written.
    ///
    /// # Errors
    /// After [`VolumeError::WriteFailed`] the range holds an unknown mix of old and new sectors.
    pub async fn write(
        &self,
        offset_bytes: u64,
        buf: Buf,
        durability: Durability,
    ) -> Result<(), VolumeError> {
        self.turn(QosCost::write(buf.len() as u64)).await.write(offset_bytes, buf, durability).await
    }

    /// Makes every write that was acknowledged before, on any core, durable.
    ///
    /// # Errors
    /// [`VolumeError::Broken`], now and from then on, if that failed and redundancy could not
    /// absorb it.
    pub async fn flush(&self) -> Result<(), VolumeError> {
        match &self.place {
            Place::Array(array) => array.flush().await,
            Place::Mapped(mapped) => Box::pin(mapped.flush()).await,
        }
    }

    /// Tells the members that a range holds nothing of value. It may read as zeros afterwards, or
    /// as before; redundancy stays right. Parts that do not cover whole stripes, and members that
    /// cannot discard, are left alone.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), VolumeError> {
        let cost = QosCost::discard();
        let Some(pace) = self.pace.as_deref().filter(|pace| pace.is_on()) else {
            return self.turn(cost).await.discard(offset_bytes, len_bytes).await;
        };
        let discard = async |turn: &VolumeTurn<'_>, at, len| turn.discard(at, len).await;
        Box::pin(self.at_its_pace(pace, offset_bytes, len_bytes, cost, discard)).await
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
        let cost = QosCost::zeroes(len_bytes);
        let Some(pace) = self.pace.as_deref().filter(|pace| pace.is_on()) else {
            return self.turn(cost).await.write_zeroes(offset_bytes, len_bytes, unmap, durability).await;
        };
        let zero = async |turn: &VolumeTurn<'_>, at, len| turn.write_zeroes(at, len, unmap, durability).await;
        Box::pin(self.at_its_pace(pace, offset_bytes, len_bytes, cost, zero)).await
    }

    /// A long range in pieces, each with a turn of its own.
    async fn at_its_pace<'v>(
        &'v self,
        pace: &Pace,
        offset_bytes: u64,
        len_bytes: u64,
        cost: QosCost,
        work: impl AsyncFn(&VolumeTurn<'v>, u64, u64) -> Result<(), VolumeError>,
    ) -> Result<(), VolumeError> {
        let end = offset_bytes.checked_add(len_bytes).ok_or(VolumeError::OutOfRange)?;
        let admit = async |cost| Ok::<_, VolumeError>((self.turn(cost).await, ()));
        self.in_pieces(pace.core(), offset_bytes..end, cost, admit, work).await
    }
}

/// A request that may go ([`Volume::turn`]): it is made by one of these, and waits for no turn.
#[must_use]
pub struct VolumeTurn<'a> {
    volume: &'a Volume,
    /// Until it is answered it counts as under way.
    _held: Option<Turn<'a>>,
}

impl VolumeTurn<'_> {
    /// See [`Volume::read`].
    pub async fn read(self, offset_bytes: u64, buf: BufMut) -> (Result<(), VolumeError>, BufMut) {
        match &self.volume.place {
            Place::Array(array) => array.read(offset_bytes, buf).await,
            // Maps may lie on maps.
            Place::Mapped(mapped) => Box::pin(mapped.read(offset_bytes, buf)).await,
        }
    }

    /// See [`Volume::write`].
    ///
    /// # Errors
    /// As there.
    pub async fn write(self, offset_bytes: u64, buf: Buf, durability: Durability) -> Result<(), VolumeError> {
        let _change = self.volume.change(offset_bytes, buf.len() as u64);
        match &self.volume.place {
            Place::Array(array) => array.write(offset_bytes, buf, durability).await,
            Place::Mapped(mapped) => Box::pin(mapped.write(offset_bytes, buf, durability)).await,
        }
    }

    /// See [`Volume::discard`]. May be done in parts.
    ///
    /// # Errors
    /// As there.
    pub async fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), VolumeError> {
        let _change = self.volume.change(offset_bytes, len_bytes);
        match &self.volume.place {
            Place::Array(array) => array.discard(offset_bytes, len_bytes).await,
            Place::Mapped(mapped) => Box::pin(mapped.discard(offset_bytes, len_bytes)).await,
        }
    }

    /// See [`Volume::write_zeroes`]. May be done in parts.
    ///
    /// # Errors
    /// As there.
    pub async fn write_zeroes(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        unmap: Unmap,
        durability: Durability,
    ) -> Result<(), VolumeError> {
        let _change = self.volume.change(offset_bytes, len_bytes);
        match &self.volume.place {
            Place::Array(array) => array.write_zeroes(offset_bytes, len_bytes, unmap, durability).await,
            Place::Mapped(mapped) => {
                Box::pin(mapped.write_zeroes(offset_bytes, len_bytes, unmap, durability)).await
            }
        }
    }
}

/// Puts a buffer together again whose parts, split off from its front in order, are being read;
/// what is left of it is empty. The first error wins, but every read ends first.
async fn gather(
    mut buf: BufMut,
    parts: Vec<JoinHandle<(Result<(), VolumeError>, BufMut)>>,
) -> (Result<(), VolumeError>, BufMut) {
    let mut result = Ok(());
    for part in parts {
        let (part_result, part) = part.await;
        result = result.and(part_result);
        // A part that was answered late is not where it was.
        if buf.is_empty() { buf = part } else { buf.append(part) }
    }
    (result, buf)
}
