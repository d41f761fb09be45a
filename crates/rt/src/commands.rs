//! A ring of commands to a driver of the kernel (`IORING_OP_URING_CMD`), each with a slot: the
//! driver keeps a command until it has something for the slot, and completes it then.
//!
//! It is a ring of its own beside the core's, for its entries are twice as long. It is readable
//! when [`CommandRing::turn`] would bring something.

use crate::base::error::IoError;
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue, types};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Where `struct io_uring_sqe` has `len`, which the bindings do not set for commands.
const SQE_LEN: usize = 24;

/// What a command carries beside its number, at most.
pub(crate) const COMMAND_BYTES: usize = 80;

/// One thread's ring, with room for a command of every slot.
pub(crate) struct CommandRing {
    ring: IoUring<squeue::Entry128>,
    /// Whether the driver has the slot's command.
    lent: Box<[bool]>,
    lent_count: usize,
}

/// One command.
pub(crate) struct DriverCommand {
    pub device: RawFd,
    pub number: u32,
    pub bytes: [u8; COMMAND_BYTES],
    /// What `addr` and `len` of the entry are: memory, in whatever unit the driver takes.
    pub memory: Option<(u64, u32)>,
}

impl CommandRing {
    pub(crate) fn new(slots: usize) -> Result<CommandRing, IoError> {
        let entries = u32::try_from(slots.next_power_of_two()).map_err(|_| IoError::INVALID)?;
        let mut builder = IoUring::<squeue::Entry128, cqueue::Entry>::builder();
        // Not deferred: the core sleeps in its own ring, and this one has to become readable then.
        builder.setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag();
        let ring = builder.build(entries).map_err(|error| IoError::from_std(&error))?;
        Ok(CommandRing { ring, lent: vec![false; slots].into(), lent_count: 0 })
    }

    /// Whether the driver has a slot's command.
    pub(crate) fn is_lent(&self, slot: usize) -> bool {
        self.lent[slot]
    }

    /// How many commands the driver has.
    pub(crate) fn lent_count(&self) -> usize {
        self.lent_count
    }

    /// Puts a command into the ring; it leaves with the next [`CommandRing::turn`]. Panics if the
    /// driver has one of this slot already.
    ///
    /// # Safety
    /// What the command points to stays where it is, and is used by nothing else, until `turn` has
    /// named the slot; where that never happens, for ever.
    pub(crate) unsafe fn push(&mut self, slot: usize, command: &DriverCommand) {
        assert!(!std::mem::replace(&mut self.lent[slot], true), "the slot is the driver's");
        self.lent_count += 1;
        let (address, len) = command.memory.unzip();
        let entry = opcode::UringCmd80::new(types::Fd(command.device), command.number)
            .cmd(command.bytes)
            .addr(address);
        let mut entry = entry.build().user_data(slot as u64);
        if let Some(len) = len {
            // SAFETY: an entry is plain integers in the layout of the kernel's `io_uring_sqe`,
            // longer than the offset.
            unsafe { (&raw mut entry).cast::<u8>().add(SQE_LEN).cast::<u32>().write_unaligned(len) };
        }
        // SAFETY: the caller keeps the memory. There is room for an entry of every slot, and each
        // has one at most.
        unsafe { self.ring.submission().push(&entry) }.expect("the ring has room for all slots");
    }

    /// Hands the commands to the driver, without waiting, and names the slots whose commands are
    /// completed, with what the driver answered.
    pub(crate) fn turn(&mut self, mut completed: impl FnMut(usize, i32)) -> Result<(), IoError> {
        self.enter()?;
        for completion in self.ring.completion() {
            let slot = completion.user_data() as usize;
            self.lent[slot] = false;
            self.lent_count -= 1;
            completed(slot, completion.result());
        }
        Ok(())
    }

    /// Submits, and lets the kernel bring what it has; nothing if there is neither.
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

    /// To wait for it.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open for as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}
