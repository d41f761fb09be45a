//! Buffers that operations own: 4096-aligned, always initialised, taken from a thread-local pool,
//! whose memory a ring may have registered ([`Arena`]).
//!
//! A [`BufMut`] is one thread's to write; [`BufMut::freeze`] turns it into a [`Buf`], which many
//! may read at once. Both are ranges of one reference-counted block, and know their first byte:
//! reading a buffer does not touch the count, which may be in another processor's cache.
//! Invariants, on which all `unsafe` here rests:
//! 1. a block's memory is initialised from its first allocation (zeroed) to its end;
//! 2. the ranges of all live `BufMut`s of a block are disjoint from each other and from all `Buf`s
//!    of that block.

use crate::memory::arena::Arena;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Bound, Deref, DerefMut, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Alignment of every buffer's first byte; enough for `O_DIRECT` on every device Linux has.
pub const BUF_ALIGN_BYTES: usize = 4096;
/// The largest class the pool keeps; larger buffers go back to the allocator.
const CLASS_MAX_BYTES: usize = 8 << 20;
/// Classes are powers of two from 4 KiB to 8 MiB.
pub(crate) const CLASSES: usize = (CLASS_MAX_BYTES / BUF_ALIGN_BYTES).ilog2() as usize + 1;
/// A thread keeps at most this much unused memory.
const POOL_MAX_BYTES: usize = 64 << 20;
/// Zeros up to this length are slices of one block per thread.
const ZEROS_SHARED_BYTES: usize = 1 << 20;

/// Memory with a count of handles. Freed when the last one goes and the pool does not take it.
enum Block {
    /// One allocation, or a part of an arena.
    Own { memory: NonNull<u8>, capacity_bytes: usize, arena: Option<Arc<Arena>> },
    /// Another block's, of which this keeps a handle: see [`Buf::adopt`].
    Adopted(Buf),
}

// SAFETY: a block is plain memory; access to its bytes is governed by the handles (invariant 2).
unsafe impl Send for Block {}
// SAFETY: as above; a shared block by itself gives access to no byte.
unsafe impl Sync for Block {}

impl Block {
    /// Fresh memory and its first byte.
    fn new(capacity_bytes: usize) -> Block {
        let layout = Block::layout(capacity_bytes);
        // SAFETY: the layout's size is not zero: capacities are at least one alignment unit.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        Block::Own { memory, capacity_bytes, arena: None }
    }

    fn layout(capacity_bytes: usize) -> Layout {
        Layout::from_size_align(capacity_bytes, BUF_ALIGN_BYTES).expect("a buffer is far below isize::MAX")
    }

    /// Its first byte.
    fn start(&self) -> NonNull<u8> {
        match self {
            Block::Own { memory, .. } => *memory,
            Block::Adopted(buf) => buf.block.start(),
        }
    }

    fn capacity_bytes(&self) -> usize {
        match self {
            Block::Own { capacity_bytes, .. } => *capacity_bytes,
            Block::Adopted(buf) => buf.capacity_bytes(),
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match self {
            Block::Own { memory, capacity_bytes, arena: Some(arena) } => {
                arena.release(*memory, *capacity_bytes);
            }
            Block::Own { memory, capacity_bytes, arena: None } => {
                // SAFETY: `memory` came from `alloc_zeroed` with this very layout, and no handle is
                // left.
                unsafe { dealloc(memory.as_ptr(), Block::layout(*capacity_bytes)) }
            }
            Block::Adopted(_) => {}
        }
    }
}

/// Unused blocks of this thread, by class.
struct Pool {
    /// Blocks of the arena.
    known: [Vec<Arc<Block>>; CLASSES],
    /// Blocks of the allocator.
    others: [Vec<Arc<Block>>; CLASSES],
    /// Bytes of those.
    others_bytes: usize,
    /// The source of blocks as long as it has some.
    arena: Option<Arc<Arena>>,
}

impl Pool {
    const fn new() -> Pool {
        Pool {
            known: [const { Vec::new() }; CLASSES],
            others: [const { Vec::new() }; CLASSES],
            others_bytes: 0,
            arena: None,
        }
    }

    /// A block, and whether it is fresh, so still zero.
    fn take(&mut self, class: usize, capacity_bytes: usize) -> Option<(Arc<Block>, bool)> {
        if let Some(arena) = &self.arena {
            if let Some(block) = self.known[class].pop() {
                return Some((block, false));
            }
            if let Some((memory, fresh)) = arena.take(capacity_bytes) {
                return Some((
                    Arc::new(Block::Own { memory, capacity_bytes, arena: Some(arena.clone()) }),
                    fresh,
                ));
            }
        }
        Some((self.take_other(class, capacity_bytes)?, false))
    }

    fn take_other(&mut self, class: usize, capacity_bytes: usize) -> Option<Arc<Block>> {
        let block = self.others[class].pop()?;
        self.others_bytes -= capacity_bytes;
        Some(block)
    }

    /// Keeps a block that nothing else refers to, if it belongs here.
    fn put(&mut self, class: usize, block: Arc<Block>) {
        let Block::Own { capacity_bytes, arena, .. } = &*block else { return };
        match (arena, &self.arena) {
            (Some(of), Some(own)) if Arc::ptr_eq(of, own) => self.known[class].push(block),
            // Another's: it goes back there.
            (Some(_), _) => {}
            (None, _) if self.others_bytes + capacity_bytes <= POOL_MAX_BYTES => {
                self.others_bytes += capacity_bytes;
                self.others[class].push(block);
            }
            (None, _) => {}
        }
    }
}

/// This thread's blocks come from `arena` from now on, as long as it has some.
pub(crate) fn draw_from(arena: &Arc<Arena>) {
    let unused = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        (pool.arena.replace(arena.clone()), pool.known.each_mut().map(std::mem::take))
    });
    drop(unused);
}

/// If this thread's blocks come from `arena`, they do not any more.
pub(crate) fn draw_no_more_from(arena: &Arc<Arena>) {
    let unused = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        let drawn = pool.arena.take_if(|own| Arc::ptr_eq(own, arena));
        drawn.map(|arena| (arena, pool.known.each_mut().map(std::mem::take)))
    });
    drop(unused);
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool::new()) };
    // It has memory of its own: it lasts as long as the thread, as no arena should for its sake.
    static ZEROS: Buf = BufMut::of(Arc::new(Block::new(ZEROS_SHARED_BYTES)), ZEROS_SHARED_BYTES).freeze();
}

/// Counts memory of buffers that are in use, for the simulator; the product does not count.
#[cfg(feature = "planted")]
fn count_live(bytes: isize) {
    let _ = LIVE_BYTES.try_with(|live| live.set(live.get() + bytes));
}

#[cfg(not(feature = "planted"))]
#[inline(always)]
fn count_live(_bytes: isize) {}

#[cfg(feature = "planted")]
thread_local! {
    static LIVE_BYTES: std::cell::Cell<isize> = const { std::cell::Cell::new(0) };
}

/// Bytes of memory of the buffers that this thread took and that are in use, less those that it
/// released for other threads. In a simulated world, which is one thread, only differences over
/// time mean something: buffers of earlier worlds may be alive.
#[cfg(feature = "planted")]
#[must_use]
pub fn buffer_bytes_live() -> isize {
    LIVE_BYTES.get()
}

/// The class of a pooled capacity, `None` for those the pool does not keep.
pub(crate) fn class_of(capacity_bytes: usize) -> Option<usize> {
    (capacity_bytes <= CLASS_MAX_BYTES).then(|| (capacity_bytes / BUF_ALIGN_BYTES).ilog2() as usize)
}

/// The capacity that serves `len`: a power of two while pooled, whole alignment units above.
fn capacity_for(len: usize) -> usize {
    let rounded = len.max(1).next_multiple_of(BUF_ALIGN_BYTES);
    if rounded <= CLASS_MAX_BYTES { rounded.next_power_of_two() } else { rounded }
}

/// A block of at least `len` bytes, and whether it is fresh from the allocator, so still zero.
fn take_block(len: usize) -> (Arc<Block>, bool) {
    let capacity_bytes = capacity_for(len);
    count_live(capacity_bytes.cast_signed());
    let pooled = class_of(capacity_bytes).and_then(|class| {
        // At the end of a thread the pool may be gone already: then the allocator serves.
        POOL.try_with(|pool| pool.borrow_mut().take(class, capacity_bytes)).ok().flatten()
    });
    pooled.unwrap_or_else(|| (Arc::new(Block::new(capacity_bytes)), true))
}

/// A block of at least `len` bytes that is of no arena.
fn take_other_block(len: usize) -> Arc<Block> {
    let capacity_bytes = capacity_for(len);
    count_live(capacity_bytes.cast_signed());
    let pooled = class_of(capacity_bytes).and_then(|class| {
        POOL.try_with(|pool| pool.borrow_mut().take_other(class, capacity_bytes)).ok().flatten()
    });
    pooled.unwrap_or_else(|| Arc::new(Block::new(capacity_bytes)))
}

/// Gives up one handle's reference; the last one returns the block to this thread's pool, if that
/// keeps it.
fn release(block: Arc<Block>) {
    // Two threads that release the last two references at once may both see the other's: then the
    // block is freed instead of pooled, which is correct and rare. Weak references do not exist, so
    // a thread that sees a count of one sees its own.
    if Arc::strong_count(&block) != 1 {
        return;
    }
    // What other handles did with it happened before they released it.
    fence(Ordering::Acquire);
    let Block::Own { capacity_bytes, .. } = *block else { return };
    count_live(-capacity_bytes.cast_signed());
    let Some(class) = class_of(capacity_bytes) else { return };
    let _ = POOL.try_with(|pool| pool.borrow_mut().put(class, block));
}

/// The place `bytes` behind the first byte of a range of `len`.
fn behind(first: NonNull<u8>, bytes: usize, len: usize) -> NonNull<u8> {
    assert!(bytes <= len, "byte {bytes} of a buffer of {len}");
    // SAFETY: it lies in the range or at its end, so in one block.
    unsafe { first.add(bytes) }
}

/// A unique, writable, aligned buffer. Fresh ones hold old but initialised bytes; see
/// [`BufMut::zeroed`].
pub struct BufMut {
    block: ManuallyDrop<Arc<Block>>,
    first: NonNull<u8>,
    len: usize,
}

// SAFETY: the bytes are this handle's alone (invariant 2), wherever it goes; the block may be
// shared between threads.
unsafe impl Send for BufMut {}
// SAFETY: through a shared reference they can only be read.
unsafe impl Sync for BufMut {}

impl BufMut {
    /// The first `len` bytes of a block that nothing else refers to.
    fn of(block: Arc<Block>, len: usize) -> BufMut {
        BufMut { first: block.start(), block: ManuallyDrop::new(block), len }
    }

    /// A buffer of `len` bytes, its first byte aligned to [`BUF_ALIGN_BYTES`]. The contents are
    /// unspecified but initialised: what an earlier buffer of this thread left, or zeros.
    pub fn alloc(len: usize) -> BufMut {
        BufMut::of(take_block(len).0, len)
    }

    /// A buffer of `len` zeros.
    pub fn zeroed(len: usize) -> BufMut {
        let (block, fresh) = take_block(len);
        let mut buf = BufMut::of(block, len);
        if !fresh {
            buf.fill(0);
        }
        buf
    }

    /// A buffer that holds a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> BufMut {
        let mut buf = BufMut::alloc(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Splits off the first `n` bytes and returns them; `self` keeps the rest. Panics if `n > len`.
    pub fn split_to(&mut self, n: usize) -> BufMut {
        let rest = behind(self.first, n, self.len);
        let front = BufMut { block: self.block.clone(), first: self.first, len: n };
        self.first = rest;
        self.len -= n;
        front
    }

    /// Splits off the bytes from `at` on and returns them; `self` keeps the first `at`. Panics if
    /// `at > len`.
    pub fn split_off(&mut self, at: usize) -> BufMut {
        let first = behind(self.first, at, self.len);
        let back = BufMut { block: self.block.clone(), first, len: self.len - at };
        self.len = at;
        back
    }

    /// Joins `other`, which must follow `self` directly in the same allocation. Panics otherwise.
    #[expect(clippy::needless_pass_by_value, reason = "the other half must not be used again")]
    pub fn unsplit(&mut self, other: BufMut) {
        assert!(self.goes_on_in(&other), "unsplit needs two adjacent halves of one allocation");
        self.len += other.len;
    }

    /// Appends `other`: joined where the two are adjacent halves of one allocation, copied together
    /// where they are not.
    pub fn append(&mut self, other: BufMut) {
        if self.goes_on_in(&other) {
            return self.unsplit(other);
        }
        let mut whole = BufMut::alloc(self.len + other.len);
        whole[..self.len].copy_from_slice(self);
        whole[self.len..].copy_from_slice(&other);
        *self = whole;
    }

    fn goes_on_in(&self, other: &BufMut) -> bool {
        Arc::ptr_eq(&self.block, &other.block) && behind(self.first, self.len, self.len) == other.first
    }

    /// Shortens the buffer to `len` bytes; nothing happens if it is shorter already.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Gives up the right to write, so that the bytes can be shared.
    pub fn freeze(self) -> Buf {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped nor used again, so the block is taken exactly once.
        let block = unsafe { ManuallyDrop::take(&mut this.block) };
        Buf { block: ManuallyDrop::new(block), first: this.first, len: this.len }
    }
}

impl Deref for BufMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies inside the block, is initialised (1), and only this handle writes
        // it (2).
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl DerefMut for BufMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` excludes every other access to this range.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

impl Drop for BufMut {
    fn drop(&mut self) {
        // SAFETY: the value is going away; its block is taken exactly once.
        release(unsafe { ManuallyDrop::take(&mut self.block) });
    }
}

impl fmt::Debug for BufMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufMut({} bytes)", self.len)
    }
}

/// A shared, immutable range of bytes. Cloning and slicing copy no bytes.
pub struct Buf {
    block: ManuallyDrop<Arc<Block>>,
    first: NonNull<u8>,
    len: usize,
}

// SAFETY: nothing writes the bytes (invariant 2), so any thread may read them; the block may be
// shared between threads.
unsafe impl Send for Buf {}
// SAFETY: as above.
unsafe impl Sync for Buf {}

impl Buf {
    /// `len` zeros: up to 1 MiB without any allocation.
    pub fn zeros(len: usize) -> Buf {
        if len > ZEROS_SHARED_BYTES {
            return BufMut::zeroed(len).freeze();
        }
        ZEROS.try_with(|zeros| zeros.slice(..len)).unwrap_or_else(|_| BufMut::zeroed(len).freeze())
    }

    /// A buffer that holds a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Buf {
        BufMut::copy_of(bytes).freeze()
    }

    /// The bytes of `range`, shared. Panics if the range does not lie inside.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Buf {
        let from = match range.start_bound() {
            Bound::Included(&at) => at,
            Bound::Excluded(&at) => at + 1,
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(&at) => at + 1,
            Bound::Excluded(&at) => at,
            Bound::Unbounded => self.len,
        };
        assert!(from <= to && to <= self.len, "slice {from}..{to} of a buffer of {} bytes", self.len);
        Buf { block: self.block.clone(), first: behind(self.first, from, self.len), len: to - from }
    }

    /// How much memory this keeps: that of the buffer it was cut from.
    pub fn capacity_bytes(&self) -> usize {
        self.block.capacity_bytes()
    }

    /// The same bytes in memory that may be kept for long: a copy if they lie in something larger,
    /// or in memory that operations in flight need.
    pub fn to_keep(&self) -> Buf {
        match **self.block {
            Block::Own { capacity_bytes, arena: None, .. } if capacity_bytes == capacity_for(self.len) => {
                self.clone()
            }
            _ => {
                let mut kept = BufMut::of(take_other_block(self.len), self.len);
                kept.copy_from_slice(self);
                kept.freeze()
            }
        }
    }

    /// The same bytes with a count of handles of this thread's own, for a buffer that comes from
    /// another one: each handle that is made or dropped here would otherwise fetch the count from
    /// that one's processor, and send it back.
    pub fn adopt(self) -> Buf {
        let (first, len) = (self.first, self.len);
        Buf { block: ManuallyDrop::new(Arc::new(Block::Adopted(self))), first, len }
    }

    /// The buffer that was [adopted](Buf::adopt), if this is the last handle of it here: to be
    /// dropped where it came from.
    pub fn into_adopted(self) -> Option<Buf> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped nor used again, so the block is taken exactly once.
        let mut block = Arc::into_inner(unsafe { ManuallyDrop::take(&mut this.block) })?;
        let Block::Adopted(buf) = &mut block else { return None };
        // SAFETY: the block is forgotten, so the buffer in it is taken exactly once.
        let buf = unsafe { std::ptr::read(buf) };
        std::mem::forget(block);
        Some(buf)
    }

    /// Makes the bytes writable again if no other handle shares their allocation; else gives the
    /// buffer back.
    pub fn try_into_mut(self) -> Result<BufMut, Buf> {
        let mut this = ManuallyDrop::new(self);
        let unique = Arc::get_mut(&mut this.block).is_some_and(|block| matches!(block, Block::Own { .. }));
        // SAFETY: `this` is never dropped nor used again, so the block is taken exactly once.
        let block = ManuallyDrop::new(unsafe { ManuallyDrop::take(&mut this.block) });
        let (first, len) = (this.first, this.len);
        if unique { Ok(BufMut { block, first, len }) } else { Err(Buf { block, first, len }) }
    }
}

impl Clone for Buf {
    fn clone(&self) -> Buf {
        Buf { block: self.block.clone(), first: self.first, len: self.len }
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies inside the block, is initialised (1), and no `BufMut` overlaps it
        // (2).
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        // SAFETY: the value is going away; its block is taken exactly once.
        release(unsafe { ManuallyDrop::take(&mut self.block) });
    }
}

impl From<BufMut> for Buf {
    fn from(buf: BufMut) -> Buf {
        buf.freeze()
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_buffer_is_aligned_and_as_long_as_asked() {
        for len in [0, 1, 511, 4096, 4097, 1 << 20, CLASS_MAX_BYTES, CLASS_MAX_BYTES + 1] {
            let buf = BufMut::alloc(len);
            assert_eq!(buf.len(), len);
            assert_eq!(buf.as_ptr().addr() % BUF_ALIGN_BYTES, 0);
        }
    }

    #[test]
    fn the_pool_gives_the_same_memory_again_and_zeroed_means_zero() {
        let mut first = BufMut::alloc(5000);
        first.fill(7);
        let at = first.as_ptr().addr();
        drop(first);
        let second = BufMut::zeroed(6000);
        assert_eq!(second.as_ptr().addr(), at);
        assert!(second.iter().all(|&byte| byte == 0));
    }

    /// The shared zeros were once made of recycled memory: `write_zeroes` wrote what an earlier
    /// client had left.
    #[test]
    #[cfg_attr(miri, ignore = "megabytes, byte by byte")]
    #[allow(clippy::disallowed_methods, reason = "a thread of its own has a pool of its own")]
    fn zeros_are_zeros_even_from_recycled_memory() {
        let check = || {
            let mut dirty = BufMut::alloc(ZEROS_SHARED_BYTES);
            dirty.fill(0xee);
            drop(dirty);
            for len in [512, ZEROS_SHARED_BYTES, ZEROS_SHARED_BYTES + 1] {
                assert!(Buf::zeros(len).iter().all(|&byte| byte == 0), "{len}");
            }
        };
        std::thread::spawn(check).join().expect("the thread ends well");
    }

    #[test]
    fn a_half_keeps_the_whole_alive() {
        let mut back = BufMut::copy_of(b"abcdef");
        let front = back.split_to(2);
        let kept = back.split_off(2);
        drop(back);
        let kept = kept.freeze();
        let tail = kept.slice(1..);
        drop((front, kept));
        assert_eq!(&tail[..], b"f");
    }

    #[test]
    fn only_a_lone_buffer_becomes_writable_again() {
        let buf = Buf::copy_of(b"xyz");
        let other = buf.clone();
        let buf = buf.try_into_mut().expect_err("two handles");
        drop(other);
        let mut buf = buf.try_into_mut().expect("one handle");
        buf[0] = b'X';
        assert_eq!(&buf[..], b"Xyz");
        assert!(Buf::zeros(100).try_into_mut().is_err());
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "buffers go to another thread and come back")]
    fn an_adopted_buffer_goes_back_once_nobody_else_has_it() {
        let own = Buf::copy_of(b"abcdef");
        let other = own.slice(2..5);
        let back = std::thread::spawn(move || {
            let adopted = other.adopt();
            assert_eq!((&adopted[..], adopted.capacity_bytes()), (&b"cde"[..], BUF_ALIGN_BYTES));
            let part = adopted.slice(1..);
            let adopted = adopted.try_into_mut().expect_err("the bytes are the lender's");
            assert!(adopted.into_adopted().is_none(), "a part of it is still here");
            assert_eq!(&part[..], b"de");
            let adopted = own.clone().adopt();
            drop(part);
            (adopted.into_adopted().expect("the last handle"), own)
        });
        let (back, own) = back.join().expect("the thread ends well");
        assert_eq!(&back[..], b"abcdef");
        let own = own.try_into_mut().expect_err("what came back is a handle like others");
        drop(back);
        assert!(own.try_into_mut().is_ok());
        assert!(Buf::copy_of(b"x").into_adopted().is_none(), "no pool lent it");
    }

    /// Copies that came from the allocator each time, and went to the pool, once filled it with
    /// blocks that were never asked for.
    #[test]
    fn what_is_kept_comes_from_the_pool_and_goes_back() {
        let whole = BufMut::zeroed(4 * BUF_ALIGN_BYTES).freeze();
        let part = || whole.slice(BUF_ALIGN_BYTES..2 * BUF_ALIGN_BYTES);
        let kept = part().to_keep();
        let at = kept.as_ptr();
        assert_ne!(at, part().as_ptr(), "a part of something larger is copied");
        assert_eq!(kept.to_keep().as_ptr(), at, "what is alone is not");
        drop(kept);
        for _ in 0..100 {
            assert_eq!(part().to_keep().as_ptr(), at);
        }
    }

    #[test]
    fn only_the_lender_makes_a_buffer_writable_again() {
        let adopted = Buf::copy_of(b"x").adopt();
        assert!(adopted.try_into_mut().is_err());
    }

    #[test]
    #[should_panic(expected = "adjacent halves")]
    fn strangers_do_not_join() {
        BufMut::alloc(8).unsplit(BufMut::alloc(8));
    }

    proptest! {
        #[test]
        fn splitting_and_joining_is_the_identity(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..300) {
            let mut front = BufMut::copy_of(&bytes);
            let back = front.split_off(cut.min(bytes.len()));
            prop_assert_eq!([&front[..], &back[..]].concat(), bytes.clone());
            front.unsplit(back);
            prop_assert_eq!(&front[..], &bytes[..]);
        }
    }
}
