//! A copy as the drive it was: reads of what is not in it fail as a bad sector does.

use std::sync::Arc;

use wattle_rt::{Buf, BufMut, Core, CoreHandle, Device, Durability, IoError, Reply, Serve, Unmap};

use super::{CopyMap, CopyMapError};

/// `below`, as large as the drive that it is a copy of, without what the map says was not read.
/// Threads outside the executors ask `core`.
pub(crate) fn guard(core: &CoreHandle, below: &Device, map: &Arc<CopyMap>) -> Result<Device, CopyMapError> {
    let (below, map) = (below.clone(), map.clone());
    let (name, block_bytes, writable) =
        (below.name().to_owned(), below.logical_block_bytes(), below.writable());
    let served = core.call_blocking(async move |core: Core| {
        let size_bytes = map.size_bytes();
        let guarded = Guarded(Arc::new(Copied { below, map }));
        Device::served(name, size_bytes, block_bytes, writable, &core, Arc::new(guarded))
    });
    served.map_err(|source| CopyMapError::Core { source })
}

struct Copied {
    below: Device,
    map: Arc<CopyMap>,
}

impl Copied {
    /// Reads any bytes, by whole blocks of what the copy is on.
    async fn read(&self, core: &Core, offset: u64, mut buf: BufMut) -> (Result<(), IoError>, BufMut) {
        let wanted = offset..offset + buf.len() as u64;
        if !self.map.is_read(wanted.clone()) {
            return (Err(IoError::NOT_COPIED), buf);
        }
        let block = u64::from(self.below.logical_block_bytes());
        let start = wanted.start / block * block;
        let end = wanted.end.next_multiple_of(block).min(self.below.size_bytes());
        if start == wanted.start && end == wanted.end {
            return core.read(&self.below, start, buf).await;
        }
        let (result, whole) = core.read(&self.below, start, BufMut::alloc((end - start) as usize)).await;
        let from = (wanted.start - start) as usize;
        let len = buf.len();
        buf.copy_from_slice(&whole[from..from + len]);
        (result, buf)
    }

    /// Writes, and then what was unread there can be read.
    async fn change(
        &self,
        core: &Core,
        offset: u64,
        len: u64,
        durability: Durability,
        write: impl AsyncFnOnce() -> Result<(), IoError>,
    ) -> Result<(), IoError> {
        let range = offset..offset + len;
        let over_unread = !self.map.is_read(range.clone());
        write().await?;
        if over_unread {
            self.map.wrote(range);
        }
        // Not only of what this one covers for the first time: an earlier write that was not made
        // durable has made it readable, and the map on disk still calls it unread.
        if durability == Durability::Fua && !self.map.written().is_empty() {
            return self.flush(core).await;
        }
        Ok(())
    }

    async fn flush(&self, core: &Core) -> Result<(), IoError> {
        let written = self.map.written();
        core.flush(&self.below).await?;
        if written.is_empty() {
            return Ok(());
        }
        let map = self.map.clone();
        // Without it in the map, what is durable would be called unread the next time.
        core.offload(move || map.record(&written)).await?.map_err(|_| IoError::MEDIUM)
    }
}

struct Guarded(Arc<Copied>);

impl Serve for Guarded {
    fn read(&self, core: &Core, offset: u64, buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        let (copied, core) = (self.0.clone(), core.clone());
        Box::pin(async move { copied.read(&core, offset, buf).await })
    }

    fn write(
        &self,
        core: &Core,
        offset: u64,
        buf: Buf,
        durability: Durability,
    ) -> Reply<Result<(), IoError>> {
        let (copied, core) = (self.0.clone(), core.clone());
        Box::pin(async move {
            let len = buf.len() as u64;
            let write = async || core.write(&copied.below, offset, buf, durability).await;
            copied.change(&core, offset, len, durability, write).await
        })
    }

    fn flush(&self, core: &Core) -> Reply<Result<(), IoError>> {
        let (copied, core) = (self.0.clone(), core.clone());
        Box::pin(async move { copied.flush(&core).await })
    }

    fn write_zeroes(&self, core: &Core, offset: u64, len: u64, unmap: Unmap) -> Reply<Result<(), IoError>> {
        let (copied, core) = (self.0.clone(), core.clone());
        Box::pin(async move {
            let write = async || core.write_zeroes(&copied.below, offset, len, unmap).await;
            copied.change(&core, offset, len, Durability::Cached, write).await
        })
    }
}
