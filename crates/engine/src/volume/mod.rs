//! Volumes: what clients read and write. An array as a whole, or a map of volumes below it (a
//! logical volume, a partition).
//!
//! A map is resolved where a request enters, on the core it entered: the array below sees an
//! ordinary request of its own.

mod array;
mod device;
mod extents;
mod handle;
mod jobs;
mod map;
mod mapped;
mod spec;
mod status;
mod zeroes;

use std::sync::atomic::Ordering;

use wattle_rt::{Buf, BufMut, Core, Durability, JoinHandle, Unmap};

use crate::level::ArrayShard;
use crate::model::error::VolumeError;
pub(crate) use array::ArrayVolume;
pub use extents::Extent;
pub use handle::ArrayHandle;
pub use map::{Leg, MapSegment, MapSpec, SegmentTarget, VolumeMapError};
use mapped::MappedVolume;
pub use mapped::{MappedHandle, StartMappedError};
pub use spec::{ArraySpec, ArrayTuning};
pub use status::{ArrayStatus, MemberStatus};

/// A volume that can be opened on any core.
#[derive(Debug, Clone)]
pub enum VolumeRef {
    /// A whole array.
    Array(ArrayHandle),
    /// A map of other volumes.
    Mapped(MappedHandle),
}

impl VolumeRef {
    /// The volume's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Array(array) => &array.fixed().name,
            Self::Mapped(mapped) => &mapped.fixed().name,
        }
    }

    /// Whether the two are one volume.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
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
        }
    }

    /// Opens it on the core it is called on.
    ///
    /// # Errors
    /// [`VolumeError::Stopped`] once it is stopped.
    pub fn open(&self, core: &Core) -> Result<Volume, VolumeError> {
        match self {
            Self::Array(array) => {
                let shard = core.local::<ArrayShard>(array.fixed().key).ok_or(VolumeError::Stopped)?;
                Ok(Volume::Array(ArrayVolume::new(shard)))
            }
            Self::Mapped(mapped) => Ok(Volume::Mapped(mapped.open(core)?)),
        }
    }
}

/// A volume on one core.
#[derive(Clone)]
pub enum Volume {
    /// A whole array.
    Array(ArrayVolume),
    /// A map of other volumes.
    Mapped(MappedVolume),
}

impl Volume {
    /// The volume's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Array(array) => array.name(),
            Self::Mapped(mapped) => mapped.name(),
        }
    }

    /// Its size in bytes, a multiple of [`Self::block_bytes`].
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match self {
            Self::Array(array) => array.size_bytes(),
            Self::Mapped(mapped) => mapped.size_bytes(),
        }
    }

    /// Whether every write is refused.
    #[must_use]
    pub fn read_only(&self) -> bool {
        match self {
            Self::Array(array) => array.read_only(),
            Self::Mapped(mapped) => mapped.read_only(),
        }
    }

    /// The granularity of requests that cost nothing extra, in bytes. Any range works: unaligned
    /// reads read their edges too, unaligned writes stop everything else for a moment.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        match self {
            Self::Array(array) => array.block_bytes(),
            Self::Mapped(mapped) => mapped.block_bytes(),
        }
    }

    /// The smallest request that is efficient, in bytes: the chunk (md's `minimum_io_size`).
    #[must_use]
    pub fn io_min_bytes(&self) -> u32 {
        match self {
            Self::Array(array) => array.io_min_bytes(),
            Self::Mapped(mapped) => mapped.io_min_bytes(),
        }
    }

    /// The request size that keeps every data member busy, in bytes (md's `optimal_io_size`); 0 if
    /// there is none.
    #[must_use]
    pub fn io_opt_bytes(&self) -> u32 {
        match self {
            Self::Array(array) => array.io_opt_bytes(),
            Self::Mapped(mapped) => mapped.io_opt_bytes(),
        }
    }

    /// Fills `buf` from `offset_bytes` on. The buffer comes back whatever happens; after an error
    /// its contents mean nothing.
    pub async fn read(&self, offset_bytes: u64, buf: BufMut) -> (Result<(), VolumeError>, BufMut) {
        match self {
            Self::Array(array) => array.read(offset_bytes, buf).await,
            // Maps may lie on maps.
            Self::Mapped(mapped) => Box::pin(mapped.read(offset_bytes, buf)).await,
        }
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
        match self {
            Self::Array(array) => array.write(offset_bytes, buf, durability).await,
            Self::Mapped(mapped) => Box::pin(mapped.write(offset_bytes, buf, durability)).await,
        }
    }

    /// Makes every write that was acknowledged before, on any core, durable.
    ///
    /// # Errors
    /// [`VolumeError::Broken`], now and from then on, if that failed and redundancy could not
    /// absorb it.
    pub async fn flush(&self) -> Result<(), VolumeError> {
        match self {
            Self::Array(array) => array.flush().await,
            Self::Mapped(mapped) => Box::pin(mapped.flush()).await,
        }
    }

    /// Tells the members that a range holds nothing of value. It may read as zeros afterwards, or
    /// as before; redundancy stays right. Parts that do not cover whole stripes, and members that
    /// cannot discard, are left alone.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), VolumeError> {
        match self {
            Self::Array(array) => array.discard(offset_bytes, len_bytes).await,
            Self::Mapped(mapped) => Box::pin(mapped.discard(offset_bytes, len_bytes)).await,
        }
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
        match self {
            Self::Array(array) => array.write_zeroes(offset_bytes, len_bytes, unmap, durability).await,
            Self::Mapped(mapped) => {
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
