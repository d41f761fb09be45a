//! Pages for drives in memory: carved from large pieces that the kernel backs with huge pages.
//!
//! What is written to such a drive for the first time has to be cleared by the kernel, which takes
//! longer than the engine does for a request. So pages are small and lie side by side in the order
//! in which they are first written; the memory below them asks for huge pages and is made present
//! 2 MiB at a time.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is made present at a time: a huge page of most machines.
const STEP_BYTES: usize = 2 << 20;
/// Address space that is mapped at a time; it takes no memory by itself.
const SLAB_BYTES: usize = 64 << 20;

/// Pages of one size.
#[derive(Clone)]
pub(crate) struct PagePool(Arc<Pool>);

struct Pool {
    page_bytes: usize,
    /// Bytes of a slab, a multiple of what is made present at a time.
    slab_bytes: usize,
    room: Mutex<Room>,
}

struct Room {
    slabs: Vec<Slab>,
    /// Of the last slab: what was handed out, and what is present.
    carved: usize,
    present: usize,
    /// Pages that came back, with what they held.
    back: Vec<NonNull<u8>>,
}

// SAFETY: the pointers are to memory of the slabs, which is accessed only through the pages that
// were handed out, each to one owner.
unsafe impl Send for Room {}

impl PagePool {
    /// For at most so many bytes of pages of this size, which divides 2 MiB.
    pub(crate) fn new(page_bytes: usize, bytes_max: u64) -> PagePool {
        assert!(page_bytes > 0 && STEP_BYTES.is_multiple_of(page_bytes), "pages fill huge pages");
        let most = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(SLAB_BYTES);
        let slab_bytes = most.max(1).next_multiple_of(STEP_BYTES);
        let room = Room { slabs: Vec::new(), carved: 0, present: 0, back: Vec::new() };
        PagePool(Arc::new(Pool { page_bytes, slab_bytes, room: Mutex::new(room) }))
    }

    /// A page of zeros.
    pub(crate) fn zeroed(&self) -> PoolPage {
        let (mut page, fresh) = self.take();
        if !fresh {
            page.fill(0);
        }
        page
    }

    /// A page that holds these bytes, as many as a page has.
    pub(crate) fn copy_of(&self, bytes: &[u8]) -> PoolPage {
        let (mut page, _) = self.take();
        page.copy_from_slice(bytes);
        page
    }

    /// A page, and whether it is known to be zeros.
    fn take(&self) -> (PoolPage, bool) {
        let pool = &self.0;
        let mut room = pool.room();
        if let Some(memory) = room.back.pop() {
            return (PoolPage { memory, pool: pool.clone() }, false);
        }
        if room.slabs.is_empty() || room.carved == pool.slab_bytes {
            room.slabs.push(Slab::map(pool.slab_bytes));
            (room.carved, room.present) = (0, 0);
        }
        let Room { slabs, carved, present, .. } = &mut *room;
        let slab = slabs.last().expect("there is one by now");
        if carved == present {
            slab.make_present(*present, STEP_BYTES);
            *present += STEP_BYTES;
        }
        // SAFETY: pages fill a slab exactly, and less than the slab was carved.
        let memory = unsafe { slab.first.add(*carved) };
        *carved += pool.page_bytes;
        (PoolPage { memory, pool: pool.clone() }, true)
    }
}

impl Pool {
    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A page with one owner. It goes back to its pool, not to the system.
pub(crate) struct PoolPage {
    memory: NonNull<u8>,
    pool: Arc<Pool>,
}

// SAFETY: it owns its memory, which is plain bytes.
unsafe impl Send for PoolPage {}
// SAFETY: as above; a shared page is only read.
unsafe impl Sync for PoolPage {}

impl Deref for PoolPage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the page was carved for this owner, lies within a slab that the pool keeps
        // mapped, and is initialised: by the kernel with zeros, or by an earlier owner.
        unsafe { slice::from_raw_parts(self.memory.as_ptr(), self.pool.page_bytes) }
    }
}

impl DerefMut for PoolPage {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the owner is borrowed for writing.
        unsafe { slice::from_raw_parts_mut(self.memory.as_ptr(), self.pool.page_bytes) }
    }
}

impl Drop for PoolPage {
    fn drop(&mut self) {
        self.pool.room().back.push(self.memory);
    }
}

/// A mapping of zeros that huge pages fit.
struct Slab {
    first: NonNull<u8>,
    len: usize,
    mapped: NonNull<u8>,
    mapped_len: usize,
}

impl Slab {
    /// # Panics
    /// The system has no more address space, as an allocation would.
    fn map(len: usize) -> Slab {
        let mapped_len = len + STEP_BYTES;
        #[cfg(not(miri))]
        // SAFETY: a new mapping at a place that the kernel chooses touches nothing that is there.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        #[cfg(not(miri))]
        let mapped = if mapped == libc::MAP_FAILED { None } else { NonNull::new(mapped.cast::<u8>()) };
        #[cfg(miri)]
        // SAFETY: the layout's size is not zero.
        let mapped = NonNull::new(unsafe { std::alloc::alloc_zeroed(Slab::layout(mapped_len)) });
        let Some(mapped) = mapped else { std::alloc::handle_alloc_error(Slab::layout(mapped_len)) };
        let skip = mapped.as_ptr().align_offset(STEP_BYTES);
        // SAFETY: what is skipped is less than a step, and the mapping is a step longer than that
        // needs.
        let first = unsafe { mapped.add(skip) };
        let slab = Slab { first, len, mapped, mapped_len };
        slab.advise(0, len, libc::MADV_HUGEPAGE);
        slab
    }

    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len, 4096).expect("a slab is far below isize::MAX")
    }

    /// All at once instead of page by page. A kernel that cannot does it page by page.
    fn make_present(&self, from: usize, len: usize) {
        self.advise(from, len, libc::MADV_POPULATE_WRITE);
    }

    /// What a kernel does not know changes nothing but the speed.
    fn advise(&self, from: usize, len: usize, advice: libc::c_int) {
        assert!(from + len <= self.len, "it is of this slab");
        #[cfg(not(miri))]
        // SAFETY: the range lies within the mapping, and neither advice changes what it holds.
        unsafe {
            libc::madvise(self.first.add(from).as_ptr().cast(), len, advice);
        }
        #[cfg(miri)]
        let _ = advice;
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        #[cfg(not(miri))]
        // SAFETY: this is the whole mapping, and no page is left: each holds the pool, and that the
        // slab.
        unsafe {
            libc::munmap(self.mapped.as_ptr().cast(), self.mapped_len);
        }
        #[cfg(miri)]
        // SAFETY: it came from the allocator with this very layout, and no page is left.
        unsafe {
            std::alloc::dealloc(self.mapped.as_ptr(), Slab::layout(self.mapped_len));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 64 << 10;

    #[test]
    fn pages_are_zeros_of_their_own_also_when_they_come_again() {
        let pool = PagePool::new(PAGE, 4 << 20);
        let mut pages: Vec<PoolPage> = (0..40).map(|_| pool.zeroed()).collect();
        for (number, page) in pages.iter_mut().enumerate() {
            assert!(page.len() == PAGE && page.iter().all(|byte| *byte == 0));
            page.fill(number as u8 + 1);
        }
        assert!(pages.iter().enumerate().all(|(number, page)| page.iter().all(|b| *b == number as u8 + 1)));
        let place = pages[7].as_ptr();
        drop(pages.remove(7));
        let again = pool.zeroed();
        assert!(again.as_ptr() == place && again.iter().all(|byte| *byte == 0));
        assert!(pool.copy_of(&vec![9; PAGE]).iter().all(|byte| *byte == 9));
    }

    #[test]
    fn a_pool_grows_beyond_a_slab_and_pages_outlive_it() {
        let pool = PagePool::new(PAGE, 1);
        let pages: Vec<_> = (0..3 * STEP_BYTES / PAGE).map(|_| pool.copy_of(&vec![5; PAGE])).collect();
        assert_eq!(pool.0.room().slabs.len(), 3);
        let mut places: Vec<_> = pages.iter().map(|page| page.as_ptr().addr()).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= PAGE));
        drop(pool);
        assert!(pages.iter().all(|page| page[PAGE - 1] == 5));
    }
}
