//! The data of a backing device as a device that is only read: what the cache has is read from
//! there.

use std::sync::Arc;

use wattle_engine::{VolumeError, VolumeRef};
use wattle_format::bcache::CachedRun;
use wattle_rt::{BufMut, Core, Device, IoError, Reply, Serve};

const SECTOR: u64 = 512;

/// Where the data of a backing device is.
#[derive(Debug, Clone)]
pub(crate) struct BackingPlace {
    /// The backing device.
    pub below: VolumeRef,
    /// Where its data begins, bytes.
    pub data_at_bytes: u64,
    /// The size of a block to users of the data.
    pub block_bytes: u32,
    /// The cache device with what it has of the backing device, in order.
    pub cache: Option<(VolumeRef, Arc<[CachedRun]>)>,
}

/// The data of a backing device that is open. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct BackingData {
    below: VolumeRef,
    data_at_bytes: u64,
    cache: Option<(VolumeRef, Arc<[CachedRun]>)>,
}

impl BackingData {
    /// What is on a backing device, as a device of this name that is only read; `None` if nothing
    /// of it is there.
    pub fn device(core: &Core, name: &str, place: BackingPlace) -> Result<Option<Device>, VolumeError> {
        let opened = place.below.open(core)?;
        let block = if opened.block_bytes().max(place.block_bytes) <= 512 { 512 } else { 4096 };
        let room = place.below.size_bytes().saturating_sub(place.data_at_bytes);
        let len = room / u64::from(block) * u64::from(block);
        if len == 0 {
            return Ok(None);
        }
        let BackingPlace { below, data_at_bytes, cache, .. } = place;
        let data = Arc::new(Self { below, data_at_bytes, cache });
        Ok(Some(Device::served(name, len, block, false, core, data)))
    }

    /// The runs that the cache has of a range of the backing device, bytes.
    fn cached(&self, offset: u64, len: u64) -> &[CachedRun] {
        let Some((_, runs)) = &self.cache else { return &[] };
        let from = runs.partition_point(|run| run.end_sector * SECTOR <= offset);
        let to = runs.partition_point(|run| run.start_sector * SECTOR < offset + len);
        &runs[from..to.max(from)]
    }

    /// Reads any sectors, from `offset` on the backing device: runs of the cache count from there.
    async fn read_any(&self, core: &Core, offset: u64, mut buf: BufMut) -> (Result<(), IoError>, BufMut) {
        let end = offset + buf.len() as u64;
        let runs = self.cached(offset, buf.len() as u64);
        if runs.is_empty() {
            return read(core, &self.below, offset, buf).await;
        }
        let mut at = offset;
        for run in runs {
            let cached = (run.start_sector * SECTOR).max(offset)..(run.end_sector * SECTOR).min(end);
            // What the cache has newer is not even read from the backing device, where it may be
            // bad.
            if at < cached.start {
                let part = &mut buf[(at - offset) as usize..(cached.start - offset) as usize];
                if let Err(error) = read_into(core, &self.below, at, part).await {
                    return (Err(error), buf);
                }
            }
            let Some((cache, _)) = &self.cache else { break };
            let from = run.cache_sector * SECTOR + (cached.start - run.start_sector * SECTOR);
            let part = &mut buf[(cached.start - offset) as usize..(cached.end - offset) as usize];
            let read = match read_into(core, cache, from, part).await {
                // The backing device has it too.
                Err(_) if !run.is_dirty => read_into(core, &self.below, cached.start, part).await,
                read => read,
            };
            if let Err(error) = read {
                return (Err(error), buf);
            }
            at = cached.end;
        }
        if at < end {
            let part = &mut buf[(at - offset) as usize..];
            if let Err(error) = read_into(core, &self.below, at, part).await {
                return (Err(error), buf);
            }
        }
        (Ok(()), buf)
    }
}

impl Serve for BackingData {
    fn read(&self, core: &Core, offset: u64, buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        let (this, core) = (self.clone(), core.clone());
        Box::pin(async move { this.read_any(&core, this.data_at_bytes + offset, buf).await })
    }

    fn flush(&self, _: &Core) -> Reply<Result<(), IoError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Reads any sectors, by whole blocks of the volume.
async fn read_into(core: &Core, volume: &VolumeRef, offset: u64, part: &mut [u8]) -> Result<(), IoError> {
    let align = u64::from(volume.open(core)?.block_bytes());
    let (start, end) = (offset / align * align, (offset + part.len() as u64).next_multiple_of(align));
    let (result, whole) = read(core, volume, start, BufMut::alloc((end - start) as usize)).await;
    result?;
    let from = (offset - start) as usize;
    part.copy_from_slice(&whole[from..from + part.len()]);
    Ok(())
}

async fn read(core: &Core, volume: &VolumeRef, offset: u64, buf: BufMut) -> (Result<(), IoError>, BufMut) {
    match volume.open(core) {
        Err(error) => (Err(error.into()), buf),
        Ok(volume) => {
            let (result, buf) = volume.read(offset, buf).await;
            (result.map_err(IoError::from), buf)
        }
    }
}
