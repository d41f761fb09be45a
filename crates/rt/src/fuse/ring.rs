//! FUSE over io_uring (Linux 6.14): the kernel puts each request into memory that we gave it once,
//! and one system call takes the answers of a turn and brings the next requests. It has a queue for
//! every processor, and hands a request to the queue of the processor that its caller runs on.
//!
//! Forgotten nodes and interrupts still come over the device (see [`super::FuseMount::queue`]).
//!
//! Invariant, on which the `unsafe` here rests: the memory of a slot stays where it is, and belongs
//! to the kernel from the moment its entry is pushed until its completion is taken. A ring that is
//! dropped with slots in the kernel's hands leaks them.

use crate::base::error::IoError;
use crate::commands::{COMMAND_BYTES, CommandRing, DriverCommand};
use crate::memory::buf::BufMut;
use crate::stream::Stream;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Offsets in `fuse_uring_req_header`: the request's header, or that of the answer.
const IN_OUT: usize = 0;
/// The structure that belongs to the opcode.
const ARGS: usize = 128;
/// `fuse_uring_ent_in_out`.
const COMMIT_ID: usize = 256 + 8;
const PAYLOAD_BYTES: usize = 256 + 16;
const HEADERS_BYTES: usize = 256 + 32;

/// `FUSE_IO_URING_CMD_REGISTER` and `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// The queues the kernel has, and wants all of: one for every processor there may be.
pub fn kernel_queues() -> Option<u16> {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    let count = text.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some(last - first + 1)
    });
    count.sum()
}

/// One core's share of the queues. It belongs to the thread that made it.
pub struct Ring {
    ring: CommandRing,
    queue: Stream,
    slots: Vec<Slot>,
    /// Why it gave one back without a request.
    last_word: Option<IoError>,
}

/// Room for one request and its answer.
struct Slot {
    headers: BufMut,
    payload: BufMut,
    kernel_queue: u16,
    /// What the kernel reads when the slot is registered.
    segments: Box<[libc::iovec; 2]>,
}

impl Ring {
    /// A ring with `depth` slots for each of `kernel_queues`, each with room for `payload_bytes`.
    /// The kernel knows nothing of it before [`Ring::register`].
    pub fn new(
        queue: &Stream,
        kernel_queues: &[u16],
        depth: usize,
        payload_bytes: usize,
    ) -> Result<Ring, IoError> {
        let ring = CommandRing::new(kernel_queues.len() * depth)?;
        let slot = |kernel_queue| {
            let (mut headers, mut payload) = (BufMut::zeroed(HEADERS_BYTES), BufMut::zeroed(payload_bytes));
            let segment =
                |buf: &mut BufMut| libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
            let segments = Box::new([segment(&mut headers), segment(&mut payload)]);
            Slot { headers, payload, kernel_queue, segments }
        };
        let each = kernel_queues.iter().flat_map(|ix| std::iter::repeat_n(*ix, depth));
        Ok(Ring { ring, queue: queue.clone(), slots: each.map(slot).collect(), last_word: None })
    }

    /// Gives all slots to the kernel, which hands out requests when all cores have done so. A
    /// refusal comes at once, and so may requests.
    pub fn register(&mut self, came: &mut Vec<usize>) -> Result<(), IoError> {
        for ix in 0..self.slots.len() {
            let segments = self.slots[ix].segments.as_ptr();
            self.push(ix, REGISTER, 0, Some((segments.addr() as u64, 2)));
        }
        self.turn(came)?;
        self.last_word.map_or(Ok(()), Err)
    }

    /// Hands the answers to the kernel and appends the slots that hold requests now. The error is
    /// the kernel's last word: the mount is gone.
    pub fn turn(&mut self, came: &mut Vec<usize>) -> Result<(), IoError> {
        let last_word = &mut self.last_word;
        self.ring.turn(|ix, result| match result {
            0.. => came.push(ix),
            error => *last_word = Some(IoError::from_errno(-error)),
        })?;
        match self.last_word {
            Some(error) if self.ring.lent_count() == 0 && came.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// The request in a slot: what [`Ring::turn`] has named and [`Ring::answer`] has not.
    pub fn request(&self, ix: usize) -> RingRequest<'_> {
        assert!(!self.ring.is_lent(ix), "the slot is the kernel's");
        let Slot { headers, payload, .. } = &self.slots[ix];
        let length = u32::from_ne_bytes(field(headers, PAYLOAD_BYTES)) as usize;
        RingRequest {
            header: &headers[IN_OUT..ARGS],
            args: &headers[ARGS..COMMIT_ID - 8],
            payload: &payload[..length.min(payload.len())],
        }
    }

    /// Puts the answer into a slot. It leaves with the next [`Ring::turn`]. Panics if the data does
    /// not fit.
    pub fn answer(&mut self, ix: usize, header: &[u8], data: &[u8]) {
        assert!(!self.ring.is_lent(ix), "the slot is the kernel's");
        let Slot { headers, payload, .. } = &mut self.slots[ix];
        let commit_id = u64::from_ne_bytes(field(headers, COMMIT_ID));
        headers[IN_OUT..][..header.len()].copy_from_slice(header);
        let length = u32::try_from(data.len()).expect("answers are far below 4 GiB");
        headers[PAYLOAD_BYTES..][..4].copy_from_slice(&length.to_ne_bytes());
        payload[..data.len()].copy_from_slice(data);
        self.push(ix, COMMIT_AND_FETCH, commit_id, None);
    }

    fn push(&mut self, ix: usize, number: u32, commit_id: u64, memory: Option<(u64, u32)>) {
        // `fuse_uring_cmd_req`: flags, commit id, queue.
        let mut bytes = [0; COMMAND_BYTES];
        bytes[8..16].copy_from_slice(&commit_id.to_ne_bytes());
        bytes[16..18].copy_from_slice(&self.slots[ix].kernel_queue.to_ne_bytes());
        let device = self.queue.as_fd().as_raw_fd();
        // SAFETY: what the command points to is in the slot, which stays until its completion is
        // taken, and is leaked where that never happens.
        unsafe { self.ring.push(ix, &DriverCommand { device, number, bytes, memory }) };
    }
}

/// A request as it lies in its slot.
#[derive(Clone, Copy, Debug)]
pub struct RingRequest<'a> {
    /// Begins with the request's header.
    pub header: &'a [u8],
    /// Begins with the structure of the opcode.
    pub args: &'a [u8],
    /// What follows: names, or the data of a write.
    pub payload: &'a [u8],
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("headers are longer")
}

/// Readable when [`Ring::turn`] would bring something.
impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Whether the kernel has let go of a slot whose completion never came cannot be known:
        // leaking it is safe, freeing it is not.
        let ring = &self.ring;
        let lent = self.slots.drain(..).enumerate().filter(|(ix, _)| ring.is_lent(*ix));
        lent.for_each(|(_, slot)| std::mem::forget(slot));
    }
}
