//! Blocks and their tags in their places: what is read there is compared, and what is written there
//! goes with its tag.

use std::collections::BTreeMap;
use std::sync::Arc;

use wattle_engine::VolumeRef;
use wattle_rt::{Buf, BufMut, Core, Durability, IoError, JoinHandle};

use super::open::OpenedTags;

const SECTOR: u64 = 512;
/// What is compared with its tags in one go, bytes, and all else on the core waits for.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// A block as it is to be, and its tag.
#[derive(Debug, Clone)]
pub(super) struct SealedBlock {
    pub data: Vec<u8>,
    pub tag: Box<[u8]>,
}

/// The places of a device's blocks. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct CheckedBlocks {
    pub below: VolumeRef,
    pub tags: Arc<OpenedTags>,
}

impl CheckedBlocks {
    /// Reads any sectors, by whole blocks.
    pub async fn read_any(&self, core: &Core, offset: u64, mut buf: BufMut) -> (Result<(), IoError>, BufMut) {
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

    /// Reads whole blocks that lie behind one another. What the journal holds is not read at its
    /// place if that, or its tag, cannot be read: a cut of power may have left it so.
    async fn read_run(&self, core: &Core, offset: u64, buf: BufMut) -> (Result<(), IoError>, BufMut) {
        let (result, mut buf) = self.read_places(core, offset, buf).await;
        if result.is_ok() {
            return (result, buf);
        }
        let unit = self.tags.block_bytes as usize;
        let sector = |nth: usize| (offset + (nth * unit) as u64) / SECTOR;
        let blocks = buf.len() / unit;
        if !(0..blocks).any(|nth| self.tags.logged(sector(nth)).is_some()) {
            return (result, buf);
        }
        for nth in 0..blocks {
            let block = BufMut::alloc(unit);
            let (result, block) = match self.tags.logged(sector(nth)) {
                Some(_) => self.read_logged(core, sector(nth), block).await,
                None => self.read_places(core, sector(nth) * SECTOR, block).await,
            };
            if result.is_err() {
                buf.fill(0);
                return (result, buf);
            }
            buf[nth * unit..][..unit].copy_from_slice(&block);
        }
        (Ok(()), buf)
    }

    /// Reads a block that the journal holds.
    async fn read_logged(&self, core: &Core, sector: u64, buf: BufMut) -> (Result<(), IoError>, BufMut) {
        let Some((at, logged)) = self.tags.logged(sector) else { return (Err(IoError::MEDIUM), buf) };
        let below = match self.below.open(core) {
            Ok(below) => below,
            Err(error) => return (Err(error.into()), buf),
        };
        let (result, mut buf) = below.read(*at, buf).await;
        if let Err(error) = result {
            return (Err(error.into()), buf);
        }
        logged.complete(&mut buf);
        if self.tags.is_good_logged(logged, &buf) {
            return (Ok(()), buf);
        }
        buf.fill(0);
        (Err(IoError::MEDIUM), buf)
    }

    /// Reads whole blocks at their places, with those of the journal in their stead where it has
    /// newer ones.
    async fn read_places(&self, core: &Core, offset: u64, buf: BufMut) -> (Result<(), IoError>, BufMut) {
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
                Some(_) => {
                    let (result, newer) = self.read_logged(core, sector, BufMut::alloc(unit as usize)).await;
                    if result.is_ok() {
                        block.copy_from_slice(&newer);
                    }
                    result.is_ok()
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

    /// Writes blocks, by their first sectors, and their tags to their places. No other write may be
    /// under way: tags of several blocks lie in one sector.
    ///
    /// # Errors
    /// Any of the volume below: some of them are written then.
    pub async fn put(&self, core: &Core, blocks: &BTreeMap<u64, SealedBlock>) -> Result<(), IoError> {
        let align = u64::from(self.below.open(core)?.block_bytes());
        let data = self.runs(blocks).into_iter();
        let data = data.map(|(at, data)| self.write_below(core, at, Buf::copy_of(&data)));
        let tags = self.windows(blocks, align).into_iter().map(|window| {
            let (below, on) = (self.below.clone(), core.clone());
            core.spawn(async move { window.write(&on, &below).await })
        });
        all(data.chain(tags).collect()).await
    }

    /// Begins to write to the volume below.
    pub fn write_below(&self, core: &Core, at: u64, buf: Buf) -> JoinHandle<Result<(), IoError>> {
        let (below, on) = (self.below.clone(), core.clone());
        core.spawn(async move { Ok(below.open(&on)?.write(at, buf, Durability::Cached).await?) })
    }

    /// Makes durable what was written to the volume below.
    ///
    /// # Errors
    /// Any of the volume below.
    pub async fn flush(&self, core: &Core) -> Result<(), IoError> {
        Ok(self.below.open(core)?.flush().await?)
    }

    /// Blocks that lie behind one another, as one: where on the volume below, and their bytes.
    fn runs(&self, blocks: &BTreeMap<u64, SealedBlock>) -> Vec<(u64, Vec<u8>)> {
        let layout = &self.tags.layout;
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        for (&sector, block) in blocks {
            let at = layout.data_sector(sector) * SECTOR;
            match runs.last_mut() {
                Some((start, data)) if *start + data.len() as u64 == at => {
                    data.extend_from_slice(&block.data);
                }
                _ => runs.push((at, block.data.clone())),
            }
        }
        runs
    }

    /// What is read and written back of the tags.
    fn windows(&self, blocks: &BTreeMap<u64, SealedBlock>, align: u64) -> Vec<TagWindow> {
        let layout = &self.tags.layout;
        let mut windows: Vec<TagWindow> = Vec::new();
        for (&sector, block) in blocks {
            let at = layout.tag_at_bytes(sector);
            let (start, end) = (at / align * align, (at + layout.tag_bytes).next_multiple_of(align));
            match windows.last_mut() {
                Some(last) if start <= last.end => last.end = last.end.max(end),
                _ => windows.push(TagWindow { start, end, tags: Vec::new() }),
            }
            let last = windows.last_mut().expect("one was just pushed, or was there");
            last.tags.push(((at - last.start) as usize, block.tag.clone()));
        }
        windows
    }
}

/// A part of the tags that is read, changed and written back, in bytes of the volume below.
struct TagWindow {
    start: u64,
    end: u64,
    /// Tags, by where they are from its start on.
    tags: Vec<(usize, Box<[u8]>)>,
}

impl TagWindow {
    async fn write(self, core: &Core, below: &VolumeRef) -> Result<(), IoError> {
        let below = below.open(core)?;
        let buf = BufMut::alloc((self.end - self.start) as usize);
        let (result, mut buf) = below.read(self.start, buf).await;
        result?;
        for (at, tag) in &self.tags {
            buf[*at..*at + tag.len()].copy_from_slice(tag);
        }
        Ok(below.write(self.start, buf.freeze(), Durability::Cached).await?)
    }
}

/// Waits for all of them, whatever becomes of one.
pub(super) async fn all(under_way: Vec<JoinHandle<Result<(), IoError>>>) -> Result<(), IoError> {
    let mut result = Ok(());
    for each in under_way {
        result = result.and(each.await);
    }
    result
}
