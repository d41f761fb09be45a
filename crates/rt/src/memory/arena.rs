//! Memory that a ring has registered with the kernel. For an operation on it that bypasses the page
//! cache the kernel need not look up and hold each page.
//!
//! An arena stays mapped, at the same place, for as long as anything refers to it: the ring that
//! has registered it, and every block that was carved from it. The kernel knows its pages, not its
//! addresses: memory that came to the same place later would not be what an operation moves.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::memory::buf::{BUF_ALIGN_BYTES, CLASSES, class_of};

/// Huge pages fit.
const ALIGN_BYTES: usize = 2 << 20;
/// One block takes at most such a part of it.
const PARTS_MIN: usize = 8;

/// Blocks are carved from it front to back; those that come back serve again as what they are.
pub(crate) struct Arena {
    memory: NonNull<u8>,
    len: usize,
    room: Mutex<Room>,
}

struct Room {
    carved: usize,
    back: [Vec<NonNull<u8>>; CLASSES],
}

// SAFETY: an arena is plain memory; access to its bytes is governed by the blocks, each of which is
// handed out once. The pointers in `room` are only numbers until then.
unsafe impl Send for Arena {}
// SAFETY: as above; what changes is behind a lock.
unsafe impl Sync for Arena {}

impl Arena {
    /// Zeros; `None` if there is not so much memory.
    pub(crate) fn new(len: usize) -> Option<Arena> {
        // SAFETY: the layout's size is not zero.
        let memory = NonNull::new(unsafe { alloc_zeroed(Arena::layout(len)) })?;
        let room = Room { carved: 0, back: [const { Vec::new() }; CLASSES] };
        Some(Arena { memory, len, room: Mutex::new(room) })
    }

    fn layout(len: usize) -> Layout {
        assert!(len > 0, "an arena holds something");
        Layout::from_size_align(len, ALIGN_BYTES).expect("an arena is far below isize::MAX")
    }

    pub(crate) fn as_iovec(&self) -> libc::iovec {
        libc::iovec { iov_base: self.memory.as_ptr().cast(), iov_len: self.len }
    }

    /// Whether all of a range of memory lies in it.
    pub(crate) fn contains(&self, first: *const u8, len: usize) -> bool {
        let from = first.addr().wrapping_sub(self.memory.as_ptr().addr());
        from <= self.len && len <= self.len - from
    }

    /// Memory for a block, and whether it is still zero. The caller releases it, once.
    pub(crate) fn take(&self, capacity_bytes: usize) -> Option<(NonNull<u8>, bool)> {
        let class = self.class_of(capacity_bytes)?;
        let mut room = self.room();
        if let Some(memory) = room.back[class].pop() {
            return Some((memory, false));
        }
        if self.len - room.carved < capacity_bytes {
            return None;
        }
        // SAFETY: the block ends at or before the arena's end.
        let memory = unsafe { self.memory.add(room.carved) };
        room.carved += capacity_bytes;
        Some((memory, true))
    }

    /// Takes back what [`Arena::take`] gave.
    pub(crate) fn release(&self, memory: NonNull<u8>, capacity_bytes: usize) {
        let class = class_of(capacity_bytes).expect("only blocks of a class are carved");
        self.room().back[class].push(memory);
    }

    fn class_of(&self, capacity_bytes: usize) -> Option<usize> {
        class_of(capacity_bytes).filter(|_| capacity_bytes <= self.len / PARTS_MIN)
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: `memory` came from `alloc_zeroed` with this very layout, and no block and no ring
        // is left.
        unsafe { dealloc(self.memory.as_ptr(), Arena::layout(self.len)) }
    }
}

const _: () = assert!(ALIGN_BYTES.is_multiple_of(BUF_ALIGN_BYTES));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_overlap_and_serve_again() {
        let arena = Arena::new(64 << 10).unwrap();
        let mut taken: Vec<usize> = Vec::new();
        let (first, fresh) = arena.take(8192).unwrap();
        assert!(fresh && arena.contains(first.as_ptr(), 8192));
        for _ in 0..14 {
            let (memory, fresh) = arena.take(4096).unwrap();
            assert!(fresh && memory.as_ptr().addr() % BUF_ALIGN_BYTES == 0);
            taken.push(memory.as_ptr().addr());
        }
        taken.push(first.as_ptr().addr());
        taken.push(first.as_ptr().addr() + 4096);
        taken.sort_unstable();
        assert!(taken.windows(2).all(|pair| pair[1] - pair[0] == 4096));
        assert!(arena.take(4096).is_none(), "all of it is carved");
        arena.release(first, 8192);
        assert!(arena.take(4096).is_none(), "blocks stay what they are");
        assert_eq!(arena.take(8192), Some((first, false)));
    }

    #[test]
    fn large_blocks_and_odd_ones_do_not_come_from_it() {
        let arena = Arena::new(64 << 10).unwrap();
        assert!(arena.take(16 << 10).is_none());
        assert!(arena.take(9 << 20).is_none());
    }

    #[test]
    fn a_range_lies_in_it_from_end_to_end_or_not() {
        let arena = Arena::new(64 << 10).unwrap();
        let at = |offset: usize| arena.as_iovec().iov_base.cast::<u8>().cast_const().wrapping_add(offset);
        assert!(arena.contains(at(0), 64 << 10) && arena.contains(at(65_535), 1) && arena.contains(at(5), 7));
        assert!(!arena.contains(at(0), (64 << 10) + 1) && !arena.contains(at(65_535), 2));
        assert!(!arena.contains(at(0).wrapping_sub(1), 1) && !arena.contains(at(64 << 10), 1));
        assert!(!arena.contains(at(8), usize::MAX));
    }
}
