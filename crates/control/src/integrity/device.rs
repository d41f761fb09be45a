//! Data with tags, as a device: what fails its checksum is a sector that cannot be read.

use std::sync::Arc;

use wattle_engine::{VolumeError, VolumeRef};
use wattle_rt::{BufMut, Core, Device, IoError, Reply, Serve};

use super::open::OpenedTags;

const SECTOR: u64 = 512;
/// What is compared with its tags in one go, bytes, and all else on the core waits for.
const PIECE_BYTES: usize = 64 << 10;

/// A device of dm-integrity that is open. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct CheckedDevice {
    below: VolumeRef,
    tags: Arc<OpenedTags>,
}

impl CheckedDevice {
    /// What is on it, as a device of this name that is only read.
    pub fn device(
        core: &Core,
        name: &str,
        below: VolumeRef,
        tags: OpenedTags,
    ) -> Result<Device, VolumeError> {
        let opened = below.open(core)?;
        let len = tags.sectors * SECTOR;
        // Sizes that Linux has and a device here has not are read by their sectors.
        let is_small = opened.block_bytes().max(tags.block_bytes) <= 512 || !len.is_multiple_of(4096);
        let block = if is_small { 512 } else { 4096 };
        let checked = Self { below, tags: Arc::new(tags) };
        Ok(Device::served(name, len, block, false, core, Arc::new(checked)))
    }

    /// Reads any sectors, by whole blocks.
    async fn read_any(&self, core: &Core, offset: u64, mut buf: BufMut) -> (Result<(), IoError>, BufMut) {
        let unit = u64::from(self.tags.block_bytes);
        let (start, end) = (offset / unit * unit, (offset + buf.len() as u64).next_multiple_of(unit));
        if start == offset && end == offset + buf.len() as u64 {
            return self.read_whole(core, offset, buf).await;
        }
        let (result, whole) = self.read_whole(core, start, BufMut::alloc((end - start) as usize)).await;
        let (from, len) = ((offset - start) as usize, buf.len());
        if result.is_ok() {
            buf.copy_from_slice(&whole[from..from + len]);
        }
        (result, buf)
    }

    /// Reads whole blocks, run by run.
    async fn read_whole(&self, core: &Core, offset: u64, mut buf: BufMut) -> (Result<(), IoError>, BufMut) {
        let run = self.tags.layout.run_sectors(offset / SECTOR) * SECTOR;
        if buf.len() as u64 <= run {
            return self.read_run(core, offset, buf).await;
        }
        let mut at = 0;
        while at < buf.len() {
            let run = self.tags.layout.run_sectors((offset + at as u64) / SECTOR) * SECTOR;
            let len = (run.min((buf.len() - at) as u64)) as usize;
            let (result, part) = self.read_run(core, offset + at as u64, BufMut::alloc(len)).await;
            if result.is_err() {
                return (result, buf);
            }
            buf[at..at + len].copy_from_slice(&part);
            at += len;
        }
        (Ok(()), buf)
    }

    /// Reads whole blocks that lie behind one another.
    async fn read_run(&self, core: &Core, offset: u64, buf: BufMut) -> (Result<(), IoError>, BufMut) {
        let below = match self.below.open(core) {
            Ok(below) => below,
            Err(error) => return (Err(error.into()), buf),
        };
        let layout = &self.tags.layout;
        let (first, unit) = (offset / SECTOR, u64::from(self.tags.block_bytes));
        let align = u64::from(below.block_bytes());
        let tags_at = layout.tag_at_bytes(first);
        let tags_end = tags_at + buf.len() as u64 / unit * layout.tag_bytes;
        let (start, end) = (tags_at / align * align, tags_end.next_multiple_of(align));
        let (result, tags) = below.read(start, BufMut::alloc((end - start) as usize)).await;
        if let Err(error) = result {
            return (Err(error.into()), buf);
        }
        let (result, mut buf) = below.read(layout.data_sector(first) * SECTOR, buf).await;
        if let Err(error) = result {
            return (Err(error.into()), buf);
        }
        let tags = &tags[(tags_at - start) as usize..(tags_end - start) as usize];
        let tags = tags.chunks_exact(layout.tag_bytes as usize);
        let (mut sector, mut compared) = (first, 0);
        for (block, tag) in buf.chunks_exact_mut(unit as usize).zip(tags) {
            if compared >= PIECE_BYTES {
                core.yield_now().await;
                compared = 0;
            }
            let is_good = match self.tags.logged(sector) {
                None => self.tags.is_good(sector, tag, block),
                Some((at, logged)) => {
                    let (result, mut newer) = below.read(*at, BufMut::alloc(unit as usize)).await;
                    if let Err(error) = result {
                        return (Err(error.into()), buf);
                    }
                    logged.complete(&mut newer);
                    block.copy_from_slice(&newer);
                    self.tags.is_good_logged(logged, block)
                }
            };
            if !is_good {
                // Nothing of it leaves here, not even what is good: the request is tried again in
                // smaller ones by what knows how.
                buf.fill(0);
                return (Err(IoError::MEDIUM), buf);
            }
            sector += unit / SECTOR;
            compared += unit as usize;
        }
        (Ok(()), buf)
    }
}

impl Serve for CheckedDevice {
    fn read(&self, core: &Core, offset: u64, buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        let (this, core) = (self.clone(), core.clone());
        Box::pin(async move { this.read_any(&core, offset, buf).await })
    }

    fn flush(&self, _: &Core) -> Reply<Result<(), IoError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
