//! One queue of a device, for the thread that serves it.
//!
//! Each tag of the queue is a slot with a buffer. The kernel has a slot until there is a request
//! for its tag; the data of a write lies in the slot's buffer then. The answer hands the slot back
//! with a buffer, out of which the data of a read is copied before it waits for the next request.
//! So what a writer does to its memory later changes nothing here.
//!
//! Invariant, on which the `unsafe` here rests: the buffer of a slot stays where it is, and belongs
//! to the kernel, from the moment its command is pushed until its completion is taken. A queue that
//! is dropped with slots in the kernel's hands leaks them.

use super::{UblkDevice, driver_number};
use crate::base::error::IoError;
use crate::commands::{COMMAND_BYTES, CommandRing, DriverCommand};
use crate::memory::buf::BufMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// `UBLK_IO_FETCH_REQ` and `UBLK_IO_COMMIT_AND_FETCH_REQ`.
const FETCH: u8 = 0x20;
const COMMIT_AND_FETCH: u8 = 0x21;

/// `struct ublksrv_io_cmd`: queue, tag, result, address.
const IO_COMMAND_BYTES: u32 = 16;
/// `struct ublksrv_io_desc`: what and flags, sectors, first sector, address.
const DESCRIPTOR_BYTES: usize = 24;
/// `UBLK_MAX_QUEUE_DEPTH`: the descriptors of so many tags take a queue's place in the mapping.
const DEPTH_MAX: usize = 4096;

/// What a queue needs of this process, before it is a queue of a device: a ring, and a buffer for
/// each tag. It belongs to the thread that made it.
pub struct UblkSlots {
    ring: CommandRing,
    buffers: Vec<Option<BufMut>>,
    buffer_bytes: usize,
}

impl UblkSlots {
    /// For a queue of `depth` tags, and requests of up to `buffer_bytes`.
    ///
    /// # Errors
    /// The system has no descriptor or no memory for a ring.
    pub fn new(depth: u16, buffer_bytes: usize) -> Result<UblkSlots, IoError> {
        let ring = CommandRing::new(usize::from(depth))?;
        let buffers = (0..depth).map(|_| Some(BufMut::alloc(buffer_bytes))).collect();
        Ok(UblkSlots { ring, buffers, buffer_bytes })
    }
}

/// A queue of a device. It belongs to the thread that made it.
pub struct UblkQueue {
    ring: CommandRing,
    device: UblkDevice,
    descriptors: Descriptors,
    queue: u16,
    /// The buffers that the kernel has, or that came with requests.
    buffers: Vec<Option<BufMut>>,
    buffer_bytes: usize,
    /// Slots that hold no request and wait for none any more.
    ended: usize,
    last_word: Option<IoError>,
}

/// A request of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UblkRequest {
    /// What, and flags.
    pub what: u32,
    /// How many sectors of 512 bytes.
    pub sectors: u32,
    /// The first one.
    pub first_sector: u64,
}

impl UblkQueue {
    /// A queue of the device, with a tag for each of `slots`. Nothing comes before
    /// [`UblkQueue::fetch`].
    ///
    /// # Errors
    /// The driver does not let the queue be mapped.
    pub fn new(device: &UblkDevice, queue: u16, slots: UblkSlots) -> Result<UblkQueue, IoError> {
        let UblkSlots { ring, buffers, buffer_bytes } = slots;
        Ok(UblkQueue {
            descriptors: Descriptors::map(device, queue, buffers.len())?,
            ring,
            device: device.clone(),
            queue,
            buffers,
            buffer_bytes,
            ended: 0,
            last_word: None,
        })
    }

    /// Gives all slots to the kernel.
    ///
    /// # Errors
    /// The driver takes them not.
    pub fn fetch(&mut self) -> Result<(), IoError> {
        for tag in 0..self.buffers.len() {
            self.push(tag, FETCH, 0, None);
        }
        let mut came = Vec::new();
        self.turn(&mut came)?;
        debug_assert!(came.is_empty(), "the device has not started");
        self.last_word.map_or(Ok(()), Err)
    }

    /// Hands answers to the kernel, and appends the tags that hold requests now. The error is the
    /// kernel's last word: every request was answered, and none comes any more.
    pub fn turn(&mut self, came: &mut Vec<usize>) -> Result<(), IoError> {
        let (last_word, ended) = (&mut self.last_word, &mut self.ended);
        self.ring.turn(|tag, result| match result {
            0.. => came.push(tag),
            error => {
                *last_word = Some(IoError::from_errno(-error));
                *ended += 1;
            }
        })?;
        match self.last_word {
            Some(error) if self.ended == self.buffers.len() => Err(error),
            _ => Ok(()),
        }
    }

    /// The request of a tag that [`UblkQueue::turn`] has named.
    ///
    /// # Panics
    /// The kernel has the slot.
    #[must_use]
    pub fn request(&self, tag: usize) -> UblkRequest {
        assert!(!self.ring.is_lent(tag), "the slot is the kernel's");
        self.descriptors.read(tag)
    }

    /// Takes the buffer that came with a request: the data of a write is at its beginning.
    ///
    /// # Panics
    /// The kernel has it, or it was taken.
    #[must_use]
    pub fn take_buffer(&mut self, tag: usize) -> BufMut {
        assert!(!self.ring.is_lent(tag), "the slot is the kernel's");
        self.buffers[tag].take().expect("a buffer is taken once")
    }

    /// Answers a request with the bytes that were done or a negative errno. The data of a read is
    /// at the beginning of `buffer`; without one the slot gets another. It leaves with the next
    /// [`UblkQueue::turn`].
    ///
    /// # Panics
    /// The kernel has the slot.
    pub fn answer(&mut self, tag: usize, result: i32, buffer: Option<BufMut>) {
        self.push(tag, COMMIT_AND_FETCH, result, buffer);
    }

    fn push(&mut self, tag: usize, number: u8, result: i32, buffer: Option<BufMut>) {
        assert!(!self.ring.is_lent(tag), "the slot is the kernel's");
        let whole = |buffer: &BufMut| buffer.len() == self.buffer_bytes;
        let kept = buffer.or_else(|| self.buffers[tag].take());
        let mut buffer = kept.filter(whole).unwrap_or_else(|| BufMut::alloc(self.buffer_bytes));
        let mut bytes = [0; COMMAND_BYTES];
        bytes[0..2].copy_from_slice(&self.queue.to_ne_bytes());
        let short = u16::try_from(tag).expect("queues have at most 4096 tags");
        bytes[2..4].copy_from_slice(&short.to_ne_bytes());
        bytes[4..8].copy_from_slice(&result.to_ne_bytes());
        let address = buffer.as_mut_ptr().expose_provenance() as u64;
        bytes[8..16].copy_from_slice(&address.to_ne_bytes());
        self.buffers[tag] = Some(buffer);
        let number = driver_number(number, true, IO_COMMAND_BYTES);
        let device = self.device.as_fd().as_raw_fd();
        // SAFETY: the buffer is in the slot, out of which nothing takes it while the kernel has it,
        // and is leaked if the completion never comes.
        unsafe { self.ring.push(tag, &DriverCommand { device, number, bytes, memory: None }) };
    }
}

/// Readable when [`UblkQueue::turn`] would bring something.
impl AsFd for UblkQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

impl Drop for UblkQueue {
    fn drop(&mut self) {
        // Whether the kernel has let go of a buffer whose completion never came cannot be known:
        // leaking it is safe, freeing it is not.
        let ring = &self.ring;
        let lent = self.buffers.drain(..).enumerate().filter(|(tag, _)| ring.is_lent(*tag));
        lent.for_each(|(_, buffer)| std::mem::forget(buffer));
    }
}

/// What the kernel says of each tag's request, in memory that it shares.
struct Descriptors {
    start: NonNull<u8>,
    depth: usize,
}

impl Descriptors {
    fn map(device: &UblkDevice, queue: u16, depth: usize) -> Result<Descriptors, IoError> {
        let at = usize::from(queue) * DEPTH_MAX * DESCRIPTOR_BYTES;
        let at = libc::off_t::try_from(at).map_err(|_| IoError::INVALID)?;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let fd = device.as_fd().as_raw_fd();
        // SAFETY: the system chooses where; nothing of ours is replaced.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), depth * DESCRIPTOR_BYTES, libc::PROT_READ, flags, fd, at)
        };
        if start == libc::MAP_FAILED {
            return Err(IoError::last_os());
        }
        let start = NonNull::new(start.cast::<u8>()).expect("the system maps nothing at 0");
        Ok(Descriptors { start, depth })
    }

    fn read(&self, tag: usize) -> UblkRequest {
        assert!(tag < self.depth, "tag {tag} of {}", self.depth);
        // SAFETY: a descriptor lies there, mapped and aligned as long as `self` is. The kernel
        // changes it only while it has the slot; no reference to it is made.
        let [first, second] = unsafe {
            let at = self.start.add(tag * DESCRIPTOR_BYTES).cast::<u64>();
            [at.read_volatile(), at.add(1).read_volatile()]
        };
        let ([a, b, c, d, e, f, g, h], first_sector) = (first.to_ne_bytes(), second);
        UblkRequest {
            what: u32::from_ne_bytes([a, b, c, d]),
            sectors: u32::from_ne_bytes([e, f, g, h]),
            first_sector,
        }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: this very range was mapped, and is used by nothing any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.depth * DESCRIPTOR_BYTES) };
    }
}
