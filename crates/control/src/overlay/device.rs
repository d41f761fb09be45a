//! A member and the file over it as one drive: what was written comes from the file, the rest from
//! the member.
//!
//! The map has a bit for each sector, so that nothing has to be read to write: a drive that is
//! dying is not asked for what a write leaves as it is. A write goes to its place in the file, and
//! its bits are set in memory when it is there. They are written by a flush, which is: what is
//! written, durable; then the bits of what that covered; then these, durable.
//!
//! Invariants:
//! - A bit is written only when its sector is durable in the file, and no bit is ever taken back.
//!   So a crash leaves what the last flush covered, and of later writes any part, as a drive may.
//! - One flush at a time: pages of the map are written in the order they were changed in.
//! - After a flush that failed nothing is said to be durable any more.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use wattle_format::overlay::{OverlayLayout, PAGE_BYTES, PAGE_SECTORS};
use wattle_rt::{Buf, BufMut, Core, Device, Durability, IoError, Reply, Serve, Unmap};

const SECTOR_BYTES: u64 = 512;

/// A page of the map.
type Bits = [u8; PAGE_BYTES as usize];

/// `below` with what is written kept in `file`, which has the header of an overlay of it. Threads
/// outside the executors ask `core`. It can be written if the file can.
#[must_use]
pub fn device(core: &Core, name: &str, below: Device, file: Device) -> Device {
    let (sectors, block_bytes) = (below.size_bytes() / SECTOR_BYTES, below.logical_block_bytes());
    let writable = file.writable();
    let overlay = Overlay { below, file, layout: OverlayLayout { sectors }, state: Mutex::default() };
    Device::served(
        name,
        sectors * SECTOR_BYTES,
        block_bytes,
        writable,
        core,
        Arc::new(Served(Arc::new(overlay))),
    )
}

struct Overlay {
    below: Device,
    file: Device,
    layout: OverlayLayout,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Pages of the map that were read.
    pages: BTreeMap<u64, Page>,
    /// A flush is under way, and the requests that wait for its end.
    flushing: bool,
    waiting: Vec<Waker>,
    failed: Option<IoError>,
}

#[derive(Default)]
struct Page {
    /// `None` while no bit is set.
    bits: Option<Box<Bits>>,
    /// There are bits that are not written.
    changed: bool,
}

impl Page {
    fn has(&self, sector: u64) -> bool {
        let bit = sector % PAGE_SECTORS;
        self.bits.as_ref().is_some_and(|bits| bits[(bit / 8) as usize] & 1 << (bit % 8) != 0)
    }

    fn set(&mut self, sector: u64) {
        if !self.has(sector) {
            let bit = sector % PAGE_SECTORS;
            let bits = self.bits.get_or_insert_with(|| Box::new([0; PAGE_BYTES as usize]));
            bits[(bit / 8) as usize] |= 1 << (bit % 8);
            self.changed = true;
        }
    }
}

/// Sectors that are all in the file, or all not.
struct Run {
    sectors: Range<u64>,
    written: bool,
}

impl Overlay {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, sector: u64) -> u64 {
        self.layout.data_offset() + sector * SECTOR_BYTES
    }

    /// Reads the pages of the map that tell of these sectors and were not read before.
    async fn load(&self, core: &Core, sectors: &Range<u64>) -> Result<(), IoError> {
        for page in sectors.start / PAGE_SECTORS..sectors.end.div_ceil(PAGE_SECTORS) {
            if self.state().pages.contains_key(&page) {
                continue;
            }
            let buf = BufMut::alloc(PAGE_BYTES as usize);
            let (result, buf) = core.read(&self.file, self.layout.page_offset(page), buf).await;
            result?;
            let bits: Bits = buf[..].try_into().expect("a page was read");
            let bits = bits.iter().any(|&byte| byte != 0).then(|| Box::new(bits));
            // Another task may have read it meanwhile, and set bits.
            self.state().pages.entry(page).or_insert(Page { bits, changed: false });
        }
        Ok(())
    }

    /// Which of these sectors, of pages that were read, come from where.
    fn runs(&self, sectors: Range<u64>) -> Vec<Run> {
        let state = self.state();
        let mut runs: Vec<Run> = Vec::new();
        let mut at = sectors.start;
        while at < sectors.end {
            let page = &state.pages[&(at / PAGE_SECTORS)];
            let page_end = sectors.end.min((at / PAGE_SECTORS + 1) * PAGE_SECTORS);
            let end = if page.bits.is_none() { page_end } else { at + 1 };
            let written = page.has(at);
            match runs.last_mut() {
                Some(run) if run.written == written => run.sectors.end = end,
                _ => runs.push(Run { sectors: at..end, written }),
            }
            at = end;
        }
        runs
    }

    /// Reads whole sectors.
    async fn read_sectors(&self, core: &Core, first: u64, mut buf: BufMut) -> (Result<(), IoError>, BufMut) {
        let sectors = first..first + buf.len() as u64 / SECTOR_BYTES;
        if let Err(error) = self.load(core, &sectors).await {
            return (Err(error), buf);
        }
        let runs = self.runs(sectors);
        let begin = |run: &Run, buf| match run.written {
            true => core.read(&self.file, self.place(run.sectors.start), buf),
            false => core.read(&self.below, run.sectors.start * SECTOR_BYTES, buf),
        };
        if let [run] = &runs[..] {
            return begin(run, buf).await;
        }
        let len = |run: &Run| ((run.sectors.end - run.sectors.start) * SECTOR_BYTES) as usize;
        let reads: Vec<_> = runs.iter().map(|run| begin(run, BufMut::alloc(len(run)))).collect();
        let (mut at, mut failed) = (0, Ok(()));
        for read in reads {
            let (result, part) = read.await;
            buf[at..at + part.len()].copy_from_slice(&part);
            at += part.len();
            failed = failed.and(result);
        }
        (failed, buf)
    }

    /// Reads any bytes, by whole blocks of the member.
    async fn read(&self, core: &Core, offset: u64, mut buf: BufMut) -> (Result<(), IoError>, BufMut) {
        let block = u64::from(self.below.logical_block_bytes());
        let wanted = offset..offset + buf.len() as u64;
        let start = wanted.start / block * block;
        let end = wanted.end.next_multiple_of(block).min(self.layout.sectors * SECTOR_BYTES);
        if start == wanted.start && end == wanted.end {
            return self.read_sectors(core, start / SECTOR_BYTES, buf).await;
        }
        let whole = BufMut::alloc((end - start) as usize);
        let (result, whole) = self.read_sectors(core, start / SECTOR_BYTES, whole).await;
        let from = (wanted.start - start) as usize;
        buf.copy_from_slice(&whole[from..from + (wanted.end - wanted.start) as usize]);
        (result, buf)
    }

    /// Writes whole sectors, by `write` to a place in the file.
    async fn change(
        &self,
        core: &Core,
        offset: u64,
        len: u64,
        write: impl AsyncFnOnce(u64) -> Result<(), IoError>,
    ) -> Result<(), IoError> {
        if !offset.is_multiple_of(SECTOR_BYTES) || !len.is_multiple_of(SECTOR_BYTES) {
            return Err(IoError::INVALID);
        }
        if let Some(error) = self.state().failed {
            return Err(error);
        }
        let sectors = offset / SECTOR_BYTES..(offset + len) / SECTOR_BYTES;
        self.load(core, &sectors).await?;
        write(self.place(sectors.start)).await?;
        let mut state = self.state();
        for sector in sectors {
            state.pages.entry(sector / PAGE_SECTORS).or_default().set(sector);
        }
        Ok(())
    }

    async fn flush(&self, core: &Core) -> Result<(), IoError> {
        let mut guard = self.flush_guard().await;
        let failed = self.state().failed;
        guard.outcome = match failed {
            Some(error) => Err(error),
            None => self.flush_alone(core).await,
        };
        guard.outcome
    }

    /// Waits until no other flush is under way.
    async fn flush_guard(&self) -> FlushGuard<'_> {
        poll_fn(|context| {
            let mut state = self.state();
            if state.flushing {
                state.waiting.push(context.waker().clone());
                return Poll::Pending;
            }
            state.flushing = true;
            Poll::Ready(())
        })
        .await;
        FlushGuard { overlay: self, outcome: Err(IoError::GONE) }
    }

    async fn flush_alone(&self, core: &Core) -> Result<(), IoError> {
        let mut changed = Vec::new();
        // Every bit that is set now is of a write that is done, which the flush below covers.
        for (&page, bits) in &mut self.state().pages {
            if let (true, Some(bits)) = (std::mem::take(&mut bits.changed), &bits.bits) {
                changed.push((page, Buf::copy_of(&bits[..])));
            }
        }
        core.flush(&self.file).await?;
        if changed.is_empty() {
            return Ok(());
        }
        let write = |(page, bits): (u64, Buf)| {
            core.write(&self.file, self.layout.page_offset(page), bits, Durability::Cached)
        };
        let writes: Vec<_> = changed.into_iter().map(write).collect();
        for write in writes {
            write.await?;
        }
        core.flush(&self.file).await
    }
}

/// The right to flush. One that is given up half-way has failed.
struct FlushGuard<'a> {
    overlay: &'a Overlay,
    outcome: Result<(), IoError>,
}

impl Drop for FlushGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.overlay.state();
        state.flushing = false;
        state.failed = self.outcome.err();
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

struct Served(Arc<Overlay>);

impl Serve for Served {
    fn read(&self, core: &Core, offset: u64, buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        let (overlay, core) = (self.0.clone(), core.clone());
        Box::pin(async move { overlay.read(&core, offset, buf).await })
    }

    fn write(
        &self,
        core: &Core,
        offset: u64,
        buf: Buf,
        durability: Durability,
    ) -> Reply<Result<(), IoError>> {
        let (overlay, core) = (self.0.clone(), core.clone());
        Box::pin(async move {
            let len = buf.len() as u64;
            let write = async |place| core.write(&overlay.file, place, buf, Durability::Cached).await;
            overlay.change(&core, offset, len, write).await?;
            if durability == Durability::Fua { overlay.flush(&core).await } else { Ok(()) }
        })
    }

    fn flush(&self, core: &Core) -> Reply<Result<(), IoError>> {
        let (overlay, core) = (self.0.clone(), core.clone());
        Box::pin(async move { overlay.flush(&core).await })
    }

    fn write_zeroes(&self, core: &Core, offset: u64, len: u64, unmap: Unmap) -> Reply<Result<(), IoError>> {
        let (overlay, core) = (self.0.clone(), core.clone());
        Box::pin(async move {
            let write = async |place| core.write_zeroes(&overlay.file, place, len, unmap).await;
            overlay.change(&core, offset, len, write).await
        })
    }
}
