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
use crate::memory::buf::BufMut;
use crate::stream::Stream;
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue, types};
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

/// Where `struct io_uring_sqe` has `len`, which the bindings do not set for commands.
const SQE_LEN: usize = 24;

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
    ring: IoUring<squeue::Entry128>,
    queue: Stream,
    slots: Vec<Slot>,
    /// Slots whose entry the kernel has.
    lent: usize,
    /// Why it gave one back without a request.
    last_word: Option<IoError>,
}

/// Room for one request and its answer.
struct Slot {
    headers: BufMut,
    payload: BufMut,
    kernel_queue: u16,
    lent: bool,
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
        let count = kernel_queues.len() * depth;
        let entries = u32::try_from(count.next_power_of_two()).map_err(|_| IoError::INVALID)?;
        let mut builder = IoUring::<squeue::Entry128, cqueue::Entry>::builder();
        // Not deferred: the core sleeps in its own ring, and this one has to become readable then.
        builder.setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag();
        let ring = builder.build(entries).map_err(|error| IoError::from_std(&error))?;
        let slot = |kernel_queue| {
            let (mut headers, mut payload) = (BufMut::zeroed(HEADERS_BYTES), BufMut::zeroed(payload_bytes));
            let segment =
                |buf: &mut BufMut| libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
            let segments = Box::new([segment(&mut headers), segment(&mut payload)]);
            Slot { headers, payload, kernel_queue, lent: false, segments }
        };
        let each = kernel_queues.iter().flat_map(|ix| std::iter::repeat_n(*ix, depth));
        Ok(Ring { ring, queue: queue.clone(), slots: each.map(slot).collect(), lent: 0, last_word: None })
    }

    /// Gives all slots to the kernel, which hands out requests when all cores have done so. A
    /// refusal comes at once, and so may requests.
    pub fn register(&mut self, came: &mut Vec<usize>) -> Result<(), IoError> {
        for ix in 0..self.slots.len() {
            let segments = self.slots[ix].segments.as_ptr();
            let mut entry = self.command(ix, REGISTER, 0, Some(segments.addr() as u64));
            // SAFETY: an entry is plain integers in the layout of the kernel's `io_uring_sqe`,
            // longer than the offset.
            unsafe { (&raw mut entry).cast::<u8>().add(SQE_LEN).cast::<u32>().write_unaligned(2) };
            self.push(ix, &entry);
        }
        self.turn(came)?;
        self.last_word.map_or(Ok(()), Err)
    }

    /// Hands the answers to the kernel and appends the slots that hold requests now. The error is
    /// the kernel's last word: the mount is gone.
    pub fn turn(&mut self, came: &mut Vec<usize>) -> Result<(), IoError> {
        self.enter()?;
        for completion in self.ring.completion() {
            let ix = completion.user_data() as usize;
            self.slots[ix].lent = false;
            self.lent -= 1;
            match completion.result() {
                0.. => came.push(ix),
                error => self.last_word = Some(IoError::from_errno(-error)),
            }
        }
        match self.last_word {
            Some(error) if self.lent == 0 && came.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// The request in a slot: what [`Ring::turn`] has named and [`Ring::answer`] has not.
    pub fn request(&self, ix: usize) -> RingRequest<'_> {
        let Slot { headers, payload, lent, .. } = &self.slots[ix];
        assert!(!lent, "the slot is the kernel's");
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
        let Slot { headers, payload, lent, .. } = &mut self.slots[ix];
        assert!(!*lent, "the slot is the kernel's");
        let commit_id = u64::from_ne_bytes(field(headers, COMMIT_ID));
        headers[IN_OUT..][..header.len()].copy_from_slice(header);
        let length = u32::try_from(data.len()).expect("answers are far below 4 GiB");
        headers[PAYLOAD_BYTES..][..4].copy_from_slice(&length.to_ne_bytes());
        payload[..data.len()].copy_from_slice(data);
        let entry = self.command(ix, COMMIT_AND_FETCH, commit_id, None);
        self.push(ix, &entry);
    }

    fn command(&self, ix: usize, command: u32, commit_id: u64, address: Option<u64>) -> squeue::Entry128 {
        // `fuse_uring_cmd_req`: flags, commit id, queue.
        let mut bytes = [0; 80];
        bytes[8..16].copy_from_slice(&commit_id.to_ne_bytes());
        bytes[16..18].copy_from_slice(&self.slots[ix].kernel_queue.to_ne_bytes());
        let fd = types::Fd(self.queue.as_fd().as_raw_fd());
        opcode::UringCmd80::new(fd, command).cmd(bytes).addr(address).build().user_data(ix as u64)
    }

    fn push(&mut self, ix: usize, entry: &squeue::Entry128) {
        self.slots[ix].lent = true;
        self.lent += 1;
        // SAFETY: what the entry points to is in the slot, which stays until the completion is
        // taken. There is room for an entry of every slot, and each has one at most.
        unsafe { self.ring.submission().push(entry) }.expect("the ring has room for all slots");
    }

    /// Submits, and lets the kernel bring what it has, without waiting; nothing if there is
    /// neither.
    fn enter(&mut self) -> Result<(), IoError> {
        let queue = self.ring.submission();
        let (waiting, work) = (queue.len() as u32, queue.taskrun());
        drop(queue);
        if waiting == 0 && !work {
            return Ok(());
        }
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: no argument is given.
        let entered = unsafe { self.ring.submitter().enter::<libc::sigset_t>(waiting, 0, flags, None) };
        match entered {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {
                Err(IoError::from_std(&error))
            }
            _ => Ok(()),
        }
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
        // SAFETY: the ring keeps its descriptor open for as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Whether the kernel has let go of a slot whose completion never came cannot be known:
        // leaking it is safe, freeing it is not.
        self.slots.drain(..).filter(|slot| slot.lent).for_each(std::mem::forget);
    }
}
