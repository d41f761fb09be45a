//! Operations as values: what a core asks of a backend. An op owns its buffers until it is done.

pub(crate) mod aim;
pub(crate) mod traffic;

use crate::base::error::IoError;
use crate::device::Device;
use crate::memory::buf::{Buf, BufMut};
use crate::stream::{Listener, Stream};
use std::fmt;
use std::os::fd::OwnedFd;

/// Names an operation in flight: the index of its slot in the core's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpKey(pub u32);

/// How durable a write is when it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durability {
    /// The device has it; a flush makes it durable.
    Cached,
    /// Durable at completion: forced unit access, `RWF_DSYNC`.
    Fua,
}

/// Whether zeroing may release the space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unmap {
    /// Punch a hole: the range reads as zeros and holds no space.
    Yes,
    /// Keep the space allocated.
    No,
}

/// One or several buffers; one is the common case and needs no list.
#[derive(Debug)]
pub enum Bufs<B> {
    /// A single buffer.
    One(B),
    /// Buffers that follow each other on the device.
    Many(Vec<B>),
}

impl<B> Bufs<B> {
    /// The buffers in order.
    pub fn as_slice(&self) -> &[B] {
        match self {
            Bufs::One(buf) => std::slice::from_ref(buf),
            Bufs::Many(bufs) => bufs,
        }
    }

    /// The buffers in order, writable.
    pub fn as_mut_slice(&mut self) -> &mut [B] {
        match self {
            Bufs::One(buf) => std::slice::from_mut(buf),
            Bufs::Many(bufs) => bufs,
        }
    }
}

impl<B: std::ops::Deref<Target = [u8]>> Bufs<B> {
    /// The whole length in bytes.
    pub fn len(&self) -> usize {
        self.as_slice().iter().map(|buf| buf.len()).sum()
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A transfer between a device and buffers.
#[derive(Debug)]
pub struct Transfer<B> {
    /// The device; `None` if nothing is left to do there.
    pub device: Option<Device>,
    /// Where on the device the first byte of the first buffer belongs, in bytes.
    pub offset: u64,
    /// The buffers.
    pub bufs: Bufs<B>,
    /// How many bytes earlier rounds have moved already: short transfers are continued here.
    pub moved: usize,
}

impl<B: std::ops::Deref<Target = [u8]>> Transfer<B> {
    /// The whole length in bytes.
    pub fn len(&self) -> usize {
        self.bufs.len()
    }

    /// True if there is nothing to move.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a core asks of a backend.
#[derive(Debug)]
pub enum Op {
    /// Fill the buffers from the device.
    Read(Transfer<BufMut>),
    /// Write the buffers to the device.
    Write(Transfer<Buf>, Durability),
    /// Make every completed write durable.
    Flush {
        /// As in a [`Transfer`].
        device: Option<Device>,
    },
    /// Make a range read as zeros without moving any.
    WriteZeroes {
        /// As in a [`Transfer`].
        device: Option<Device>,
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Whether the space may go.
        unmap: Unmap,
    },
    /// Wait for one connection.
    Accept {
        /// The listener.
        listener: Listener,
        /// The connection, once done.
        accepted: Option<Stream>,
    },
    /// Wait for some bytes.
    Recv {
        /// The stream.
        stream: Stream,
        /// Where they go.
        buf: BufMut,
    },
    /// Send all bytes of the buffers.
    Send {
        /// The stream.
        stream: Stream,
        /// What to send.
        bufs: Vec<Buf>,
        /// How many bytes earlier rounds have sent.
        moved: usize,
    },
    /// Wait until something happens at a descriptor.
    Poll {
        /// Our own duplicate, so that the number cannot be reused under us.
        fd: OwnedFd,
        /// What: bits of `poll`.
        events: libc::c_short,
    },
}

/// A finished operation on its way back to the core.
#[derive(Debug)]
pub struct Completion {
    /// Which operation.
    pub key: OpKey,
    /// How many bytes moved in this round (0 for operations that move none), or the failure.
    pub result: Result<usize, IoError>,
    /// The operation with its buffers.
    pub op: Op,
}

/// What to do with an operation that a backend handed back.
pub(crate) enum Progress {
    Finished(Result<usize, IoError>),
    Continue,
}

impl Op {
    /// Whether this waits on a peer instead of a drive, so may last for ever and is cancelled when
    /// its outcome is not wanted.
    pub fn waits_on_peer(&self) -> bool {
        matches!(self, Op::Accept { .. } | Op::Recv { .. } | Op::Send { .. } | Op::Poll { .. })
    }

    /// The device of a drive operation, as long as something is to be done there.
    pub fn device(&self) -> Option<&Device> {
        match self {
            Op::Read(transfer) => transfer.device.as_ref(),
            Op::Write(transfer, _) => transfer.device.as_ref(),
            Op::Flush { device } | Op::WriteZeroes { device, .. } => device.as_ref(),
            _ => None,
        }
    }

    /// Where on its drive it begins and how long it is, in bytes.
    pub(crate) fn extent(&self) -> (u64, u64) {
        match self {
            Op::Read(transfer) => (transfer.offset, transfer.len() as u64),
            Op::Write(transfer, _) => (transfer.offset, transfer.len() as u64),
            Op::WriteZeroes { offset, len, .. } => (*offset, *len),
            _ => (0, 0),
        }
    }

    /// Accounts for one round. Interrupted and short rounds are continued; a round that moved
    /// nothing met the end.
    pub(crate) fn progress(&mut self, result: Result<usize, IoError>) -> Progress {
        let count = match result {
            Ok(count) => count,
            Err(error) if matches!(error.errno(), libc::EINTR | libc::EAGAIN) => return Progress::Continue,
            Err(error) => return Progress::Finished(Err(error)),
        };
        let (moved, len) = match self {
            Op::Read(transfer) => {
                let len = transfer.len();
                (&mut transfer.moved, len)
            }
            Op::Write(transfer, _) => {
                let len = transfer.len();
                (&mut transfer.moved, len)
            }
            Op::Send { bufs, moved, .. } => {
                let len = bufs.iter().map(|buf| buf.len()).sum();
                (moved, len)
            }
            _ => return Progress::Finished(Ok(count)),
        };
        *moved += count;
        assert!(*moved <= len, "the kernel moved more bytes than were asked for");
        match (*moved == len, count) {
            (true, _) => Progress::Finished(Ok(len)),
            (false, 0) => Progress::Finished(Err(IoError::END_OF_DEVICE)),
            (false, _) => Progress::Continue,
        }
    }
}

impl fmt::Display for Op {
    /// One line for the report of what is still pending.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.device().map_or("a drive", Device::name);
        match self {
            Op::Read(transfer) => {
                write!(f, "read {name} at {} for {} bytes", transfer.offset, transfer.len())
            }
            Op::Write(transfer, durability) => {
                let fua = if *durability == Durability::Fua { " (FUA)" } else { "" };
                write!(f, "write{fua} {name} at {} for {} bytes", transfer.offset, transfer.len())
            }
            Op::Flush { .. } => write!(f, "flush {name}"),
            Op::WriteZeroes { offset, len, .. } => {
                write!(f, "write zeroes {name} at {offset} for {len} bytes")
            }
            Op::Accept { .. } => f.write_str("accept a connection"),
            Op::Recv { .. } => f.write_str("receive"),
            Op::Send { .. } => f.write_str("send"),
            Op::Poll { events, .. } if events & libc::POLLIN == 0 => f.write_str("wait for a hang-up"),
            Op::Poll { .. } => f.write_str("wait until readable"),
        }
    }
}
