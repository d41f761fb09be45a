//! A member, and in memory what a recovery would have written to it, as one drive. The member is
//! only read, so that an array that is only read is what a start that repairs it would leave.
//!
//! Whole sectors are kept, in pages; what all overlays of one array keep is bounded by their
//! [`MemoryRoom`]. Nothing is durable, and nothing has to be: the next process recovers again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wattle_rt::{Buf, BufMut, Core, Device, Durability, IoError, Reply, Serve, Unmap};

const SECTOR_BYTES: u64 = 512;
const PAGE_SECTORS: u64 = 8;
const PAGE_BYTES: usize = (PAGE_SECTORS * SECTOR_BYTES) as usize;
/// What a page takes, with its place in the map.
const PAGE_COST_BYTES: u64 = PAGE_BYTES as u64 + 64;

/// What may still be kept, in bytes of memory.
#[derive(Debug)]
pub(crate) struct MemoryRoom {
    left_bytes: AtomicU64,
    was_short: AtomicBool,
}

impl MemoryRoom {
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { left_bytes: AtomicU64::new(bytes), was_short: AtomicBool::new(false) })
    }

    /// Whether a write was refused. An array above takes that for a member that failed, so that
    /// it has to be asked for.
    pub fn was_short(&self) -> bool {
        self.was_short.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> Result<(), IoError> {
        let less = |left: u64| left.checked_sub(bytes);
        let taken = self.left_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.map(|_| ()).map_err(|_| {
            self.was_short.store(true, Ordering::Relaxed);
            IoError::NO_SPACE
        })
    }
}

/// `below` with what is written kept in memory, as long as there is `room`; a write for which there
/// is none fails with [`IoError::NO_SPACE`] and changes nothing. Threads outside the executors ask
/// `core`.
pub(crate) fn in_memory(core: &Core, below: Device, room: &Arc<MemoryRoom>) -> Device {
    let (name, block_bytes) = (below.name().to_owned(), below.logical_block_bytes());
    let sectors = below.size_bytes() / SECTOR_BYTES;
    let kept = Kept { below, sectors, room: room.clone(), pages: Mutex::default() };
    Device::served(name, sectors * SECTOR_BYTES, block_bytes, true, core, Arc::new(Served(Arc::new(kept))))
}

/// The sectors of a page that were written.
struct Page {
    /// A bit for each.
    written: u8,
    bytes: Box<[u8; PAGE_BYTES]>,
}

struct Kept {
    below: Device,
    sectors: u64,
    room: Arc<MemoryRoom>,
    pages: Mutex<BTreeMap<u64, Page>>,
}

impl Kept {
    fn pages(&self) -> MutexGuard<'_, BTreeMap<u64, Page>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies what is kept of these sectors into `buf`, which begins with the first; returns the
    /// runs of sectors that are not.
    fn fill(&self, sectors: &Range<u64>, buf: &mut [u8]) -> Vec<Range<u64>> {
        let pages = self.pages();
        let of_page =
            |page: u64| sectors.start.max(page * PAGE_SECTORS)..sectors.end.min((page + 1) * PAGE_SECTORS);
        let mut missing: Vec<Range<u64>> = Vec::new();
        let mut lacks = |run: Range<u64>| match missing.last_mut() {
            _ if run.is_empty() => {}
            Some(last) if last.end == run.start => last.end = run.end,
            _ => missing.push(run),
        };
        let mut at = sectors.start;
        let touched = sectors.start / PAGE_SECTORS..sectors.end.div_ceil(PAGE_SECTORS);
        for (&number, page) in pages.range(touched) {
            for sector in of_page(number) {
                let inside = sector % PAGE_SECTORS;
                if page.written >> inside & 1 == 0 {
                    continue;
                }
                lacks(at..sector);
                at = sector + 1;
                let from = (inside * SECTOR_BYTES) as usize;
                let to = ((sector - sectors.start) * SECTOR_BYTES) as usize;
                let len = SECTOR_BYTES as usize;
                buf[to..to + len].copy_from_slice(&page.bytes[from..from + len]);
            }
        }
        lacks(at..sectors.end);
        missing
    }

    /// Reads whole blocks of the member.
    async fn read_blocks(&self, core: &Core, first: u64, mut buf: BufMut) -> (Result<(), IoError>, BufMut) {
        let sectors = first..first + buf.len() as u64 / SECTOR_BYTES;
        let missing = self.fill(&sectors, &mut buf);
        if missing.first() == Some(&sectors) {
            return core.read(&self.below, first * SECTOR_BYTES, buf).await;
        }
        let begin = |run: &Range<u64>| {
            let len = ((run.end - run.start) * SECTOR_BYTES) as usize;
            core.read(&self.below, run.start * SECTOR_BYTES, BufMut::alloc(len))
        };
        let reads: Vec<_> = missing.iter().map(begin).collect();
        let mut done = Ok(());
        for (run, read) in missing.iter().zip(reads) {
            let (result, part) = read.await;
            let at = ((run.start - first) * SECTOR_BYTES) as usize;
            buf[at..at + part.len()].copy_from_slice(&part);
            done = done.and(result);
        }
        (done, buf)
    }

    /// Reads any bytes, by whole blocks.
    async fn read(&self, core: &Core, offset: u64, mut buf: BufMut) -> (Result<(), IoError>, BufMut) {
        let block = u64::from(self.below.logical_block_bytes()).max(SECTOR_BYTES);
        let wanted = offset..offset + buf.len() as u64;
        let start = wanted.start / block * block;
        let end = wanted.end.next_multiple_of(block).min(self.sectors * SECTOR_BYTES);
        if start == wanted.start && end == wanted.end {
            return self.read_blocks(core, start / SECTOR_BYTES, buf).await;
        }
        let whole = BufMut::alloc((end - start) as usize);
        let (result, whole) = self.read_blocks(core, start / SECTOR_BYTES, whole).await;
        let from = (wanted.start - start) as usize;
        let len = buf.len();
        buf.copy_from_slice(&whole[from..from + len]);
        (result, buf)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), IoError> {
        if !offset.is_multiple_of(SECTOR_BYTES) || !(bytes.len() as u64).is_multiple_of(SECTOR_BYTES) {
            return Err(IoError::INVALID);
        }
        let first = offset / SECTOR_BYTES;
        let sectors = first..first + bytes.len() as u64 / SECTOR_BYTES;
        let mut pages = self.pages();
        let touched = sectors.start / PAGE_SECTORS..sectors.end.div_ceil(PAGE_SECTORS);
        let new = touched.clone().filter(|page| !pages.contains_key(page)).count() as u64;
        self.room.take(new.saturating_mul(PAGE_COST_BYTES))?;
        for (sector, bytes) in sectors.zip(bytes.chunks(SECTOR_BYTES as usize)) {
            let page = pages
                .entry(sector / PAGE_SECTORS)
                .or_insert_with(|| Page { written: 0, bytes: Box::new([0; PAGE_BYTES]) });
            let inside = sector % PAGE_SECTORS;
            let at = (inside * SECTOR_BYTES) as usize;
            page.bytes[at..at + bytes.len()].copy_from_slice(bytes);
            page.written |= 1 << inside;
        }
        Ok(())
    }
}

struct Served(Arc<Kept>);

impl Serve for Served {
    fn read(&self, core: &Core, offset: u64, buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        let (kept, core) = (self.0.clone(), core.clone());
        Box::pin(async move { kept.read(&core, offset, buf).await })
    }

    fn write(&self, _: &Core, offset: u64, buf: Buf, _: Durability) -> Reply<Result<(), IoError>> {
        let kept = self.0.clone();
        Box::pin(async move { kept.write(offset, &buf) })
    }

    fn flush(&self, _: &Core) -> Reply<Result<(), IoError>> {
        Box::pin(async { Ok(()) })
    }

    fn write_zeroes(&self, _: &Core, _: u64, _: u64, _: Unmap) -> Reply<Result<(), IoError>> {
        Box::pin(async { Err(IoError::UNSUPPORTED) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(room_bytes: u64) -> Kept {
        let below = Device::null(64 << 10);
        Kept { below, sectors: 128, room: MemoryRoom::new(room_bytes), pages: Mutex::default() }
    }

    /// Sectors of a byte each, against a table of every sector.
    #[test]
    fn what_was_written_is_there_and_the_rest_comes_from_below() {
        let kept = kept(1 << 20);
        let mut model = [None; 128];
        let writes = [(3, 2), (7, 3), (15, 1), (16, 17), (8, 1), (120, 8), (4, 1)];
        for (fill, (first, count)) in (1..).zip(writes) {
            kept.write(first * 512, &vec![fill; count * 512]).unwrap();
            model[first as usize..first as usize + count].fill(Some(fill));
        }
        for start in 0..128 {
            for end in start..=128 {
                let mut buf = vec![0; (end - start) * 512];
                let missing = kept.fill(&(start as u64..end as u64), &mut buf);
                let lacks = |sector: usize| missing.iter().any(|run| run.contains(&(sector as u64)));
                for sector in start..end {
                    let bytes = &buf[(sector - start) * 512..][..512];
                    match model[sector] {
                        Some(fill) => assert!(!lacks(sector) && bytes.iter().all(|&byte| byte == fill)),
                        None => assert!(lacks(sector)),
                    }
                }
                assert!(missing.windows(2).all(|pair| pair[0].end < pair[1].start), "runs are joined");
            }
        }
    }

    #[test]
    fn memory_is_bounded_and_a_write_that_does_not_fit_changes_nothing() {
        let kept = kept(2 * PAGE_COST_BYTES);
        kept.write(0, &[1; 8192]).unwrap();
        assert!(!kept.room.was_short());
        assert_eq!(kept.write(4096, &[2; 8192]), Err(IoError::NO_SPACE));
        assert!(kept.room.was_short());
        kept.write(4096, &[3; 4096]).unwrap();
        let mut buf = vec![0; 12288];
        assert_eq!(kept.fill(&(0..24), &mut buf), std::iter::once(16..24).collect::<Vec<_>>());
        assert!(buf[..4096].iter().all(|&byte| byte == 1) && buf[4096..8192].iter().all(|&byte| byte == 3));
        assert_eq!(kept.write(1, &[0; 512]), Err(IoError::INVALID));
        assert_eq!(kept.write(0, &[0; 511]), Err(IoError::INVALID));
    }
}
