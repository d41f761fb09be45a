//! Memory that another process shares with this one: a guest's, the rings in it, and logs that
//! outlive a server.
//!
//! The other process may change every byte at any moment, and may take the memory away: truncate
//! the file that it is of. So bytes are only copied in and out and words are atomic, and a page
//! that is gone does not end this process: the first access that finds it gone replaces the whole
//! mapping by private zeros, and the mapping is *broken* from then on
//! ([`SharedMemory::is_broken`]).
//!
//! Invariants, on which all `unsafe` here rests:
//! 1. from its making to its drop, `start..start + len` of a [`SharedMemory`] is mapped readable
//!    and writable, and nothing else of this process lies there;
//! 2. no reference to its bytes is ever made, only to atomics.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Once};

use crate::base::error::IoError;
use crate::base::on_core::is_on_core;
use crate::helper::helper_thread;

/// Mappings of shared memory that a process may have at a time: a quarter of what the system lets
/// it have of all kinds.
const MAPPINGS_MAX: usize = 16 << 10;
/// Bytes of address space that they take.
static MAPPED_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Places that are made at a time.
const PLACES: usize = 1024;

/// A mapping, for the handler of faults. A place is free while its end is 0.
struct Guarded {
    taken: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    broken: AtomicBool,
}

impl Guarded {
    const fn free() -> Guarded {
        Guarded {
            taken: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
        }
    }
}

/// Places, and more of them where these were not enough. They stay: the handler may be among them
/// at any moment.
struct Guards {
    places: [Guarded; PLACES],
    next: AtomicPtr<Guards>,
}

impl Guards {
    const fn new() -> Guards {
        Guards { places: [const { Guarded::free() }; PLACES], next: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Those that were made when these were not enough.
    fn next(&self) -> Option<&'static Guards> {
        // SAFETY: it is null, or was leaked before it was stored.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }
}

static GUARDS: Guards = Guards::new();

fn all_guards() -> impl Iterator<Item = &'static Guards> {
    std::iter::successors(Some(&GUARDS), |guards| guards.next())
}

/// The mappings that one owner may have at a time, and their bytes. A sparse file costs its owner
/// nothing however long it is, and a mapping of it takes as much address space here. Clones are one
/// share.
#[derive(Clone, Debug)]
pub struct MappingShare {
    taken: Arc<Taken>,
    mappings_max: usize,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Taken {
    mappings: AtomicUsize,
    bytes: AtomicUsize,
}

impl MappingShare {
    /// A share of so many mappings, which have so many bytes together.
    #[must_use]
    pub fn of(mappings_max: usize, bytes_max: usize) -> MappingShare {
        MappingShare { taken: Arc::default(), mappings_max, bytes_max }
    }

    /// What the mappings of the share may have together.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Room for one mapping of so many bytes: see [`SharedMemory::in_room`]. `None` if the share
    /// has not as much left.
    #[must_use]
    pub fn take(&self, bytes: usize) -> Option<MappingRoom> {
        take(&self.taken.bytes, bytes, self.bytes_max).then_some(())?;
        if !take(&self.taken.mappings, 1, self.mappings_max) {
            self.taken.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return None;
        }
        Some(MappingRoom { taken: self.taken.clone(), bytes })
    }
}

/// Counts so many more, unless they are more than `max` then.
fn take(taken: &AtomicUsize, count: usize, max: usize) -> bool {
    let more = |taken: usize| taken.checked_add(count).filter(|taken| *taken <= max);
    taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

/// Room for one mapping, given back when it is dropped.
#[derive(Debug)]
pub struct MappingRoom {
    taken: Arc<Taken>,
    bytes: usize,
}

impl Drop for MappingRoom {
    fn drop(&mut self) {
        self.taken.mappings.fetch_sub(1, Ordering::Relaxed);
        self.taken.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Memory of a file that other processes have mapped too.
pub struct SharedMemory {
    start: NonNull<u8>,
    len: usize,
    mapping: Option<Mapping>,
}

/// What is mapped for it: whole pages, as large as those of its file.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
    guarded: &'static Guarded,
    room: Option<MappingRoom>,
}

// SAFETY: it gives access to no byte; it is only unmapped, which any thread may do.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is our mapping, and nothing refers to it any more.
        let unmapped = unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert_eq!(unmapped, 0, "whole pages are unmapped");
        MAPPED_BYTES.fetch_sub(self.len, Ordering::Relaxed);
        self.guarded.taken.store(false, Ordering::Release);
        drop(self.room.take());
    }
}

// SAFETY: its bytes are only reached by copies and atomics, from any thread (invariant 2).
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Address space that all shared memory of this process may take: half of what there is. The
    /// rest is left to its own buffers and threads, for which there is always room then.
    pub fn bytes_max() -> usize {
        // A stack lies in the upper half of the addresses that a process has; where it does not,
        // this is less.
        let here = 0u8;
        (&raw const here).addr().checked_next_power_of_two().map_or(usize::MAX / 2, |all| all / 2)
    }

    /// Maps the first `len` bytes of a file: see [`Self::map_part`].
    ///
    /// # Errors
    /// As there.
    pub fn map(file: &impl AsFd, len: usize) -> Result<SharedMemory, IoError> {
        SharedMemory::map_part(file, 0, len).map(|(memory, _)| memory)
    }

    /// Maps `len` bytes of a file from `offset` on, readable and writable. What is mapped begins
    /// with a page of the file; also returns where in it those bytes begin. An access waits for the
    /// file's pages, so those have to be memory: see [`Stream::try_receive_harmless`].
    ///
    /// [`Stream::try_receive_harmless`]: crate::Stream::try_receive_harmless
    ///
    /// # Errors
    /// `EINVAL` if the file ends before them or `len` is 0; what the system says otherwise;
    /// `ENOMEM` if this process has 16384 mappings already, or they would take more than
    /// [`Self::bytes_max`].
    pub fn map_part(file: &impl AsFd, offset: u64, len: usize) -> Result<(SharedMemory, usize), IoError> {
        let fd = file.as_fd();
        // SAFETY: a stat is plain integers, for which zero is a value; the kernel fills it in.
        let size = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstat(fd.as_raw_fd(), &raw mut stat) != 0 {
                return Err(IoError::last_os());
            }
            stat.st_size.cast_unsigned()
        };
        if len == 0 || offset.checked_add(len as u64).is_none_or(|end| size < end) {
            return Err(IoError::INVALID);
        }
        // Of huge pages only whole ones can be mapped, unmapped or replaced; such files are made
        // of them.
        let page = page_bytes(fd);
        let at = (offset % page as u64) as usize;
        let first = libc::off_t::try_from(offset - at as u64).map_err(|_| IoError::INVALID)?;
        let len = at.checked_add(len).ok_or(IoError::INVALID)?;
        let mapped_len = len.checked_next_multiple_of(page).ok_or(IoError::INVALID)?;
        guard_faults();
        let no_room = IoError::from_errno(libc::ENOMEM);
        if !take(&MAPPED_BYTES, mapped_len, SharedMemory::bytes_max()) {
            return Err(no_room);
        }
        let give_back = |error| {
            MAPPED_BYTES.fetch_sub(mapped_len, Ordering::Relaxed);
            error
        };
        let guarded = take_place().ok_or_else(|| give_back(no_room))?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the system chooses where; nothing of ours is replaced.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), mapped_len, access, libc::MAP_SHARED, fd.as_raw_fd(), first)
        };
        if start == libc::MAP_FAILED {
            let error = IoError::last_os();
            guarded.taken.store(false, Ordering::Release);
            return Err(give_back(error));
        }
        // SAFETY: the range was just mapped. A guest's memory is not for this process's core dumps;
        // a kernel that cannot leave it out changes nothing.
        unsafe { libc::madvise(start, mapped_len, libc::MADV_DONTDUMP) };
        let start = NonNull::new(start.cast::<u8>()).expect("the system maps nothing at 0");
        guarded.broken.store(false, Ordering::Relaxed);
        guarded.start.store(start.as_ptr().expose_provenance(), Ordering::Release);
        guarded.end.store(start.as_ptr().addr() + mapped_len, Ordering::Release);
        let mapping = Mapping { start, len: mapped_len, guarded, room: None };
        Ok((SharedMemory { start, len, mapping: Some(mapping) }, at))
    }

    /// Makes memory of `len` zeros that other processes may map by its descriptor, and cannot
    /// truncate.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(len: usize) -> Result<(SharedMemory, OwnedFd), IoError> {
        // SAFETY: the name is a C string; the descriptor is new and ours.
        let file = unsafe {
            let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
            let fd = libc::memfd_create(c"wattle-shared".as_ptr(), flags);
            if fd < 0 {
                return Err(IoError::last_os());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let size = libc::off_t::try_from(len).map_err(|_| IoError::INVALID)?;
        // SAFETY: the calls take only integers.
        unsafe {
            if libc::ftruncate(file.as_raw_fd(), size) != 0
                || libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) != 0
            {
                return Err(IoError::last_os());
            }
        }
        Ok((SharedMemory::map(&file, len)?, file))
    }

    /// It keeps this room as long as it is mapped, by whatever may use it still.
    #[must_use]
    pub fn in_room(mut self, room: MappingRoom) -> SharedMemory {
        if let Some(mapping) = &mut self.mapping {
            mapping.room = Some(room);
        }
        self
    }

    /// Its length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "there is no empty one")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the other process has taken the memory away: what is read here means nothing, and
    /// what is written reaches no other process.
    pub fn is_broken(&self) -> bool {
        self.mapping.as_ref().is_none_or(|mapping| mapping.guarded.broken.load(Ordering::Relaxed))
    }

    /// The place of `len` bytes from `at` on.
    ///
    /// # Panics
    /// They do not lie in the memory: what another process says is checked before.
    fn place(&self, at: usize, len: usize) -> NonNull<u8> {
        assert!(
            at.checked_add(len).is_some_and(|end| end <= self.len),
            "{len} bytes at {at} of {}",
            self.len
        );
        // SAFETY: it lies in the mapping (invariant 1) or at its end.
        unsafe { self.start.add(at) }
    }

    /// Copies bytes out of it, beginning at `at`.
    ///
    /// # Panics
    /// They do not lie in the memory.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        let from = self.place(at, into.len());
        // SAFETY: both ranges are valid for so many bytes, and ours is no part of the mapping. The
        // other process may write meanwhile: then these are whatever bytes, and bytes have no
        // invalid values.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
    }

    /// Copies bytes into it, beginning at `at`.
    ///
    /// # Panics
    /// They do not lie in the memory.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.place(at, bytes.len());
        // SAFETY: both ranges are valid for so many bytes, and no reference to the mapping's
        // exists.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }

    /// The little-endian word of 16 bits at `at`, for both processes.
    ///
    /// # Panics
    /// It does not lie in the memory, or is not aligned.
    pub fn u16_at(&self, at: usize) -> &AtomicU16 {
        let place = self.place(at, 2).cast::<u16>();
        assert!(place.is_aligned(), "a word at {at}");
        // SAFETY: it is aligned and mapped as long as `self` is (invariant 1); here it is only
        // reached as an atomic or by copies of bytes.
        unsafe { AtomicU16::from_ptr(place.as_ptr()) }
    }

    /// The little-endian word of 32 bits at `at`.
    ///
    /// # Panics
    /// As [`Self::u16_at`].
    pub fn u32_at(&self, at: usize) -> &AtomicU32 {
        let place = self.place(at, 4).cast::<u32>();
        assert!(place.is_aligned(), "a word at {at}");
        // SAFETY: as in `u16_at`.
        unsafe { AtomicU32::from_ptr(place.as_ptr()) }
    }

    /// The little-endian word of 64 bits at `at`.
    ///
    /// # Panics
    /// As [`Self::u16_at`].
    pub fn u64_at(&self, at: usize) -> &AtomicU64 {
        let place = self.place(at, 8).cast::<u64>();
        assert!(place.is_aligned(), "a word at {at}");
        // SAFETY: as in `u16_at`.
        unsafe { AtomicU64::from_ptr(place.as_ptr()) }
    }
}

/// The kernel frees so much in some milliseconds, if this was its last user.
const FREED_AT_ONCE_BYTES: usize = 16 << 20;

impl Drop for SharedMemory {
    /// A core would keep all that it serves waiting while the memory of a guest that ended is
    /// freed.
    fn drop(&mut self) {
        let Some(mapping) = self.mapping.take() else { return };
        mapping.guarded.end.store(0, Ordering::Release);
        if is_on_core() && mapping.len > FREED_AT_ONCE_BYTES {
            // Where the system gives no thread, it is unmapped here.
            let _ = helper_thread("wattle-unmap", move || drop(mapping));
        }
    }
}

/// Bytes of the pages of a file's memory.
fn page_bytes(fd: BorrowedFd<'_>) -> usize {
    const HUGETLBFS: u32 = 0x9584_58f6;
    // SAFETY: a statfs is plain integers, for which zero is a value; the kernel fills it in.
    let (rc, found) = unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        (libc::fstatfs(fd.as_raw_fd(), &raw mut found), found)
    };
    // The widths and signs of the fields differ between architectures; the numbers have 32 bits.
    match rc == 0 && found.f_type as u32 == HUGETLBFS {
        true => found.f_bsize as usize,
        false => 4096,
    }
}

impl std::fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedMemory({} bytes)", self.len)
    }
}

fn take_place() -> Option<&'static Guarded> {
    let (mut guards, mut count) = (&GUARDS, PLACES);
    loop {
        let found = guards.places.iter().find(|place| !place.taken.swap(true, Ordering::Acquire));
        if found.is_some() || count >= MAPPINGS_MAX {
            return found;
        }
        if guards.next().is_none() {
            let more = Box::into_raw(Box::new(Guards::new()));
            let (none, order) = (std::ptr::null_mut(), Ordering::AcqRel);
            if guards.next.compare_exchange(none, more, order, Ordering::Acquire).is_err() {
                // SAFETY: it came from a box, and another thread's was stored instead.
                drop(unsafe { Box::from_raw(more) });
            }
        }
        guards = guards.next()?;
        count += PLACES;
    }
}

/// What was done about faults before this process shared memory, for all others.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());

/// From now on a fault in shared memory replaces it; other faults end as they did before.
fn guard_faults() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: an action is plain integers; zeros are a valid one, with an empty mask. The
        // handler calls only what a handler may.
        unsafe {
            let before = Box::leak(Box::new(std::mem::zeroed::<libc::sigaction>()));
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_fault as extern "C" fn(_, _, _) as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut *before);
            BEFORE.store(&raw mut *before, Ordering::Release);
            libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
        }
    });
}

extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a siginfo, and for this signal it has an address.
    let at = unsafe { (*info).si_addr() }.addr();
    for place in all_guards().flat_map(|guards| &guards.places) {
        let end = place.end.load(Ordering::Acquire);
        let start = place.start.load(Ordering::Acquire);
        // The place of a mapping that is made or dropped meanwhile has another end by now.
        if !(start..end).contains(&at) || place.end.load(Ordering::Acquire) != end {
            continue;
        }
        place.broken.store(true, Ordering::Relaxed);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: the range is a mapping of ours whose bytes nothing refers to (invariants 1 and
        // 2); it stays mapped, with other bytes. The call is one of the system's own.
        let replaced = unsafe {
            let (start, len) = (std::ptr::with_exposed_provenance_mut(start), end - start);
            libc::mmap(start, len, access, flags, -1, 0)
        };
        if replaced != libc::MAP_FAILED {
            return;
        }
    }
    // Not ours: what was in force before decides, as the access is repeated.
    // SAFETY: it points to an action that is never freed.
    unsafe { libc::sigaction(signal, BEFORE.load(Ordering::Acquire), std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn both_sides_see_the_same_bytes_and_words() {
        let (ours, file) = SharedMemory::create(8192).unwrap();
        let theirs = SharedMemory::map(&file, 4096).unwrap();
        ours.write(10, b"abc");
        let mut read = [0; 3];
        theirs.read(10, &mut read);
        assert_eq!(&read, b"abc");
        theirs.u16_at(2).store(0x1234, Ordering::Release);
        assert_eq!(ours.u16_at(2).load(Ordering::Acquire), 0x1234);
        assert_eq!(ours.len(), 8192);
        assert!(SharedMemory::map(&file, 8193).is_err(), "the file is not so long");
        assert!(SharedMemory::map(&file, 0).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn more_mappings_than_places_are_guarded_too() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let many: Vec<_> = (0..PLACES + 10).map(|_| SharedMemory::map(&file, 4096).unwrap()).collect();
        file.set_len(0).unwrap();
        for memory in [&many[0], &many[PLACES + 9]] {
            let mut read = [1; 3];
            memory.read(0, &mut read);
            assert_eq!(read, [0; 3]);
            assert!(memory.is_broken());
        }
        assert!(!many[1].is_broken(), "nothing was there to see it");
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn a_share_of_mappings_is_in_use_as_long_as_anything_uses_them() {
        let share = MappingShare::of(1, 4096);
        let (memory, _) = SharedMemory::create(4096).unwrap();
        let memory = Arc::new(memory.in_room(share.take(1).unwrap()));
        let used_still = memory.clone();
        drop(memory);
        assert!(share.take(1).is_none());
        drop(used_still);
        drop(share.take(1).unwrap());
        assert!(share.clone().take(1).is_some(), "what found no room took none");
    }

    #[test]
    fn a_share_of_mappings_is_one_of_bytes_too() {
        let share = MappingShare::of(10, 8192);
        let room = share.take(8192).unwrap();
        assert!(share.take(1).is_none());
        drop(room);
        assert!(share.take(8193).is_none() && share.take(usize::MAX).is_none());
        let all = [share.take(4096).unwrap(), share.take(4096).unwrap()];
        assert!(share.take(1).is_none());
        drop(all);
        assert!(share.take(8192).is_some(), "what found no room took none");
    }

    /// Of a sparse file as long as anyone likes. What this process needs itself finds room.
    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn shared_memory_never_takes_all_address_space() {
        let most = SharedMemory::bytes_max() / 4 * 3;
        // SAFETY: the name is a C string; the descriptor is new and ours.
        let file = unsafe {
            let fd = libc::memfd_create(c"sparse".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            OwnedFd::from_raw_fd(fd)
        };
        // SAFETY: the call takes only integers.
        assert_eq!(unsafe { libc::ftruncate(file.as_raw_fd(), 2 * most as libc::off_t) }, 0);
        let no_room = Some(IoError::from_errno(libc::ENOMEM));
        assert_eq!(SharedMemory::map(&file, 2 * most).err(), no_room);
        let memory = SharedMemory::map(&file, most).unwrap();
        assert_eq!(SharedMemory::map(&file, most).err(), no_room);
        drop(memory);
        assert!(SharedMemory::map(&file, most).is_ok(), "what found no room took none");
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn only_the_pages_of_a_part_are_mapped() {
        let (whole, file) = SharedMemory::create(4 * 4096).unwrap();
        whole.write(2 * 4096 + 10, b"abc");
        let (part, at) = SharedMemory::map_part(&file, 2 * 4096 + 10, 4096).unwrap();
        let mut read = [0; 3];
        part.read(at, &mut read);
        assert_eq!((&read, at, part.len()), (b"abc", 10, 4096 + 10));
        assert_eq!(part.mapping.as_ref().unwrap().len, 2 * 4096);
        for (offset, len) in [(2 * 4096, 2 * 4096 + 1), (u64::MAX, 2), (4 * 4096, 1), (0, 0)] {
            let refused = SharedMemory::map_part(&file, offset, len).err();
            assert_eq!(refused, Some(IoError::INVALID), "{len} at {offset}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn memory_that_is_taken_away_is_broken_and_nothing_else() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(65536).unwrap();
        let memory = SharedMemory::map(&file, 65536).unwrap();
        memory.write(40_000, b"abc");
        file.set_len(0).unwrap();
        assert!(!memory.is_broken(), "nothing was there to see it");
        let mut read = [1; 3];
        memory.read(40_000, &mut read);
        assert_eq!(read, [0; 3]);
        assert!(memory.is_broken());
        memory.write(0, b"abc");
        let (other, _) = SharedMemory::create(4096).unwrap();
        assert!(!other.is_broken());
    }

    /// Of a huge page a part is mapped: all of it can be replaced, and is unmapped.
    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn a_part_of_a_huge_page_is_guarded_too() {
        const HUGE: libc::off_t = 2 << 20;
        // SAFETY: the name is a C string; the descriptor is new and ours.
        let file = unsafe {
            let fd = libc::memfd_create(c"huge".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_HUGETLB);
            if fd < 0 {
                return;
            }
            OwnedFd::from_raw_fd(fd)
        };
        // SAFETY: the call takes only integers.
        assert_eq!(unsafe { libc::ftruncate(file.as_raw_fd(), HUGE) }, 0);
        // Where the system has no huge page to spare there is nothing to test.
        let Ok(memory) = SharedMemory::map(&file, 1 << 20) else { return };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::ftruncate(file.as_raw_fd(), 0) }, 0);
        let mut read = [1; 3];
        memory.read(5, &mut read);
        assert_eq!(read, [0; 3]);
        assert!(memory.is_broken());
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    #[should_panic(expected = "bytes at 4090")]
    fn what_lies_outside_is_not_reached() {
        let (memory, _) = SharedMemory::create(4096).unwrap();
        memory.read(4090, &mut [0; 7]);
    }
}
