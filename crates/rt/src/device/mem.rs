//! A drive in memory: sparse pages behind reader-writer locks, safe to share between cores.
//!
//! Small writes take blocks of 4 KiB, which lie side by side in memory in the order in which they
//! were first written ([`crate::memory::slab`]): what a client writes anywhere costs what it wrote,
//! and the kernel clears no more than that.
//!
//! Large writes are kept instead of copied: a buffer that is written cannot change any more, so the
//! drive holds on to it. All of what one buffer brought is kept, or none: a write over a part of it
//! has the rest copied first. So a small part of a buffer never keeps all of it in memory.

use std::ops::Range;
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

use crate::memory::buf::{Buf, BufMut};
use crate::memory::slab::{PagePool, PoolPage};

/// Page size. Small enough that a sparse array stays sparse, large enough that the table stays
/// small.
const PAGE_BYTES: u64 = 64 << 10;
/// What a page consists of.
const BLOCK_BYTES: usize = 4 << 10;
const BLOCKS: usize = PAGE_BYTES as usize / BLOCK_BYTES;

/// The memory behind what is kept is at most so many times as large.
const KEPT_OF_MAX: usize = 8;

enum Page {
    /// Reads as zeros.
    Zeros,
    /// Blocks of its own; those that are absent read as zeros.
    Own(Box<[Option<PoolPage>; BLOCKS]>),
    /// A part of what a write brought, which covers these pages.
    Kept(Buf, Range<usize>),
}

impl Page {
    fn read(&self, within: Range<usize>, into: &mut [u8]) {
        match self {
            Page::Zeros => into.fill(0),
            Page::Kept(buf, _) => into.copy_from_slice(&buf[within]),
            Page::Own(blocks) => for_blocks(within, |block, within, part| match &blocks[block] {
                Some(block) => into[part].copy_from_slice(&block[within]),
                None => into[part].fill(0),
            }),
        }
    }

    /// The blocks as its own, to be changed.
    fn own(&mut self, pool: &PagePool) -> &mut [Option<PoolPage>; BLOCKS] {
        let blocks = match self {
            Page::Zeros => Some([const { None }; BLOCKS]),
            Page::Own(_) => None,
            Page::Kept(buf, _) => {
                let block = |block: usize| &buf[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES];
                Some(std::array::from_fn(|ix| Some(pool.copy_of(block(ix)))))
            }
        };
        if let Some(blocks) = blocks {
            *self = Page::Own(Box::new(blocks));
        }
        let Page::Own(blocks) = self else { unreachable!("it was just made so") };
        blocks
    }

    fn write(&mut self, pool: &PagePool, within: Range<usize>, bytes: &[u8]) {
        let blocks = self.own(pool);
        for_blocks(within, |block, within, part| match &mut blocks[block] {
            absent @ None if within.len() == BLOCK_BYTES => *absent = Some(pool.copy_of(&bytes[part])),
            block => block.get_or_insert_with(|| pool.zeroed())[within].copy_from_slice(&bytes[part]),
        });
    }

    fn write_zeroes(&mut self, pool: &PagePool, within: Range<usize>) {
        if within.len() as u64 == PAGE_BYTES {
            *self = Page::Zeros;
        }
        if matches!(self, Page::Zeros) {
            return;
        }
        let blocks = self.own(pool);
        for_blocks(within, |block, within, _| match &mut blocks[block] {
            whole if within.len() == BLOCK_BYTES => *whole = None,
            Some(block) => block[within].fill(0),
            None => {}
        });
    }
}

pub(crate) struct MemDrive {
    pages: Vec<RwLock<Page>>,
    pool: PagePool,
}

/// A drive without a machine behind it: the thread that asks for an operation carries it out
/// itself, at once.
pub(crate) enum Memory<'a> {
    Pages(&'a MemDrive),
    /// Reads as zeros, and forgets what is written.
    Nothing,
}

impl Memory<'_> {
    pub(crate) fn read(&self, mut offset: u64, bufs: &mut [BufMut]) {
        for buf in bufs {
            match self {
                Memory::Pages(drive) => drive.read(offset, buf),
                Memory::Nothing => buf.fill(0),
            }
            offset += buf.len() as u64;
        }
    }

    pub(crate) fn write(&self, mut offset: u64, bufs: &[Buf]) {
        let Memory::Pages(drive) = self else { return };
        for buf in bufs {
            drive.write(offset, buf);
            offset += buf.len() as u64;
        }
    }

    pub(crate) fn write_zeroes(&self, offset: u64, len: u64) {
        if let Memory::Pages(drive) = self {
            drive.write_zeroes(offset, len);
        }
    }
}

impl MemDrive {
    pub(crate) fn new(size_bytes: u64) -> MemDrive {
        let count = size_bytes.div_ceil(PAGE_BYTES);
        let pages = (0..count).map(|_| RwLock::new(Page::Zeros)).collect();
        MemDrive { pages, pool: PagePool::new(BLOCK_BYTES, size_bytes) }
    }

    /// Fills `bytes` from `offset`; the range must lie inside.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) {
        for_pages(offset, bytes.len() as u64, |page, within, part| {
            let page = self.pages[page].read().unwrap_or_else(PoisonError::into_inner);
            page.read(within, &mut bytes[part]);
        });
    }

    /// Writes `buf` at `offset`; the range must lie inside.
    pub(crate) fn write(&self, offset: u64, buf: &Buf) {
        let len = buf.len() as u64;
        let whole = offset.div_ceil(PAGE_BYTES) as usize..((offset + len) / PAGE_BYTES) as usize;
        let kept_bytes = whole.len() * PAGE_BYTES as usize;
        let keeps = kept_bytes > 0 && kept_bytes * KEPT_OF_MAX >= buf.capacity_bytes();
        self.release(offset, len);
        for_pages(offset, len, |page, within, part| {
            let mut entry = self.page(page);
            if keeps && whole.contains(&page) {
                *entry = Page::Kept(buf.slice(part), whole.clone());
            } else {
                entry.write(&self.pool, within, &buf[part]);
            }
        });
    }

    /// Makes a range read as zeros; whole blocks are released.
    pub(crate) fn write_zeroes(&self, offset: u64, len: u64) {
        self.release(offset, len);
        for_pages(offset, len, |page, within, _| {
            self.page(page).write_zeroes(&self.pool, within);
        });
    }

    /// Runs of pages within a range that were never written, or made zeros.
    pub(crate) fn holes(&self, range: Range<u64>, count_max: usize) -> Vec<Range<u64>> {
        let mut holes: Vec<Range<u64>> = Vec::new();
        for_pages(range.start, range.end.saturating_sub(range.start), |page, _, part| {
            let (start, end) = (range.start + part.start as u64, range.start + part.end as u64);
            let is_hole =
                matches!(&*self.pages[page].read().unwrap_or_else(PoisonError::into_inner), Page::Zeros);
            let count = holes.len();
            match holes.last_mut() {
                Some(last) if is_hole && last.end == start => last.end = end,
                _ if is_hole && count < count_max => holes.push(start..end),
                _ => {}
            }
        });
        holes
    }

    fn page(&self, page: usize) -> RwLockWriteGuard<'_, Page> {
        self.pages[page].write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies what is kept of a write of which a part is about to be written over. That can only be
    /// at either end of the range.
    fn release(&self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let (first, last) = ((offset / PAGE_BYTES) as usize, ((offset + len - 1) / PAGE_BYTES) as usize);
        let covered = offset.div_ceil(PAGE_BYTES) as usize..((offset + len) / PAGE_BYTES) as usize;
        for page in [Some(first), Some(last).filter(|last| *last != first)].into_iter().flatten() {
            let run = match &*self.page(page) {
                Page::Kept(_, run) if run.start < covered.start || covered.end < run.end => run.clone(),
                _ => continue,
            };
            for page in run.filter(|page| !covered.contains(page)) {
                self.page(page).own(&self.pool);
            }
        }
    }
}

/// Cuts a range of a page at block boundaries: block, range within the block, range within the
/// caller's bytes.
fn for_blocks(range: Range<usize>, mut each: impl FnMut(usize, Range<usize>, Range<usize>)) {
    let Range { start, end } = range;
    let mut at = start;
    while at < end {
        let within = at % BLOCK_BYTES;
        let step = (BLOCK_BYTES - within).min(end - at);
        each(at / BLOCK_BYTES, within..within + step, at - start..at - start + step);
        at += step;
    }
}

/// Cuts a byte range at page boundaries: page index, range within the page, range within the
/// caller's bytes.
fn for_pages(offset: u64, len: u64, mut each: impl FnMut(usize, Range<usize>, Range<usize>)) {
    let mut at = 0;
    while at < len {
        let within = (offset + at) % PAGE_BYTES;
        let step = (PAGE_BYTES - within).min(len - at);
        let page = ((offset + at) / PAGE_BYTES) as usize;
        each(page, within as usize..(within + step) as usize, at as usize..(at + step) as usize);
        at += step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl MemDrive {
        /// How many of its pages are kept buffers.
        fn kept(&self) -> usize {
            self.pages.iter().filter(|page| matches!(*page.read().unwrap(), Page::Kept(..))).count()
        }
    }

    proptest! {
        /// Against the naive oracle: one flat vector.
        #[test]
        fn a_sparse_drive_is_a_flat_vector(
            writes in prop::collection::vec((0u64..300_000, 0u64..150_000, any::<u8>(), any::<bool>()), 1..24),
        ) {
            const SIZE: u64 = 450_000;
            let drive = MemDrive::new(SIZE);
            let mut flat = vec![0u8; SIZE as usize];
            for (mut offset, mut len, byte, whole) in writes {
                if whole {
                    (offset, len) = (offset / PAGE_BYTES * PAGE_BYTES, len / PAGE_BYTES * PAGE_BYTES);
                }
                let range = offset as usize..(offset + len) as usize;
                if byte % 3 == 0 {
                    drive.write_zeroes(offset, len);
                    flat[range].fill(0);
                } else {
                    drive.write(offset, &Buf::copy_of(&vec![byte; len as usize]));
                    flat[range].fill(byte);
                }
            }
            let mut seen = vec![1u8; SIZE as usize];
            drive.read(0, &mut seen);
            prop_assert!(seen == flat);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "half a million bytes, one by one")]
    fn a_large_write_is_kept_until_a_part_of_it_is_written_over() {
        const PAGE: usize = PAGE_BYTES as usize;
        let drive = MemDrive::new(16 * PAGE_BYTES);
        let (four, two) = (Buf::copy_of(&[1; 4 * PAGE]), Buf::copy_of(&[2; 2 * PAGE]));
        drive.write(PAGE_BYTES, &four);
        assert_eq!(drive.kept(), 4);
        drive.write(PAGE_BYTES, &four);
        assert_eq!(drive.kept(), 4, "as a whole");
        drive.write(0, &Buf::copy_of(&[3; 6 * PAGE]));
        assert_eq!(drive.kept(), 6, "as a whole, and more");
        drive.write(PAGE_BYTES, &two);
        assert_eq!(drive.kept(), 2, "the six are copied, but for what was written over");
        drive.write_zeroes(2 * PAGE_BYTES + 1, 1);
        assert_eq!(drive.kept(), 0);
        let mut seen = vec![9; 7 * PAGE];
        drive.read(0, &mut seen);
        let mut expected: Vec<u8> = [3, 2, 2, 3, 3, 3, 0].iter().flat_map(|&byte| [byte; PAGE]).collect();
        expected[2 * PAGE + 1] = 0;
        assert!(seen == expected);
    }

    /// A page of which a block is written takes a block.
    #[test]
    fn what_is_written_takes_what_was_written() {
        let drive = MemDrive::new(64 * PAGE_BYTES);
        for page in 0..64 {
            drive.write(page * PAGE_BYTES + 8192, &Buf::copy_of(&[7; 4096]));
        }
        let blocks = |drive: &MemDrive| {
            let own = |page: &RwLock<Page>| match &*page.read().unwrap() {
                Page::Own(blocks) => blocks.iter().flatten().count(),
                _ => 0,
            };
            drive.pages.iter().map(own).sum::<usize>()
        };
        assert_eq!(blocks(&drive), 64);
        drive.write_zeroes(0, 32 * PAGE_BYTES + 8192 + 4096);
        assert_eq!(blocks(&drive), 31);
    }

    #[test]
    fn little_of_a_buffer_is_copied() {
        let drive = MemDrive::new(2 * PAGE_BYTES);
        let large = Buf::copy_of(&vec![1; (KEPT_OF_MAX + 1) * PAGE_BYTES as usize]);
        drive.write(0, &large.slice(..PAGE_BYTES as usize));
        assert_eq!(drive.kept(), 0);
    }
}
