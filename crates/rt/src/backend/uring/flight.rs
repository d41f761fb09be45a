//! An operation while the kernel has it: what its entry points to, and the entry itself.

use crate::backend::iov;
use crate::backend::lanes::Room;
use crate::base::error::IoError;
use crate::device::Device;
use crate::memory::arena::Arena;
use crate::op::Op;
use io_uring::{opcode, squeue, types};
use std::os::fd::AsRawFd;

/// One entry never moves more than this: the kernel counts in 31 bits. The rest is continued.
const ROUND_MAX_BYTES: usize = 1 << 30;
/// "At the current position", for streams that are not sockets.
const NO_OFFSET: u64 = u64::MAX;

/// What the kernel works on.
pub(super) struct Flight {
    pub op: Op,
    pub iov: Vec<libc::iovec>,
    pub room: Room,
    message: Option<Box<libc::msghdr>>,
    /// It only waits until the descriptor is ready: a stream was in non-blocking mode.
    polling: bool,
    /// The outcome is not wanted any more: nothing of the operation is entered again.
    pub cancelled: bool,
}

/// What became of a completion.
pub(super) enum Landed {
    /// The operation goes on with this entry.
    Again(squeue::Entry),
    /// The kernel is done with it.
    Done(Result<usize, IoError>),
}

impl Flight {
    pub fn new(op: Op, room: Room, iov: Vec<libc::iovec>) -> Flight {
        Flight { op, iov, room, message: None, polling: false, cancelled: false }
    }

    /// The entry for what is left of the operation; `None` for a device that the kernel does not
    /// know.
    pub fn entry(&mut self, arena: Option<&Arena>) -> Option<squeue::Entry> {
        let Flight { op, iov, message, .. } = self;
        let device_fd = op.device().map(|device| device.raw_fd().map(types::Fd));
        let registered = |segment: &libc::iovec| {
            arena.is_some_and(|arena| arena.contains(segment.iov_base.cast(), segment.iov_len))
        };
        let fd = match device_fd {
            Some(fd) => fd?,
            None => types::Fd(stream_fd(op)?),
        };
        let waits_to_begin = op.device().is_some_and(Device::waits_to_begin);
        Some(match op {
            Op::Read(transfer) => {
                // Begun by a worker of the kernel then: this thread has others to serve.
                let flags = if waits_to_begin { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
                let at = transfer.offset + transfer.moved as u64;
                iov::push_in(transfer.bufs.as_mut_slice(), transfer.moved, iov);
                let read = match iov[..] {
                    [one] if registered(&one) => {
                        let read = opcode::ReadFixed::new(fd, one.iov_base.cast(), round(one.iov_len), 0);
                        read.offset(at).build()
                    }
                    [one] => {
                        opcode::Read::new(fd, one.iov_base.cast(), round(one.iov_len)).offset(at).build()
                    }
                    _ => opcode::Readv::new(fd, iov.as_ptr(), iov.len() as u32).offset(at).build(),
                };
                read.flags(flags)
            }
            Op::Write(transfer, durability) => {
                let at = transfer.offset + transfer.moved as u64;
                let flags = iov::write_flags(*durability);
                iov::push_out(transfer.bufs.as_slice(), transfer.moved, iov);
                match iov[..] {
                    [one] if registered(&one) => {
                        let write = opcode::WriteFixed::new(fd, one.iov_base.cast(), round(one.iov_len), 0);
                        write.offset(at).rw_flags(flags).build()
                    }
                    [one] => {
                        let write = opcode::Write::new(fd, one.iov_base.cast(), round(one.iov_len));
                        write.offset(at).rw_flags(flags).build()
                    }
                    _ => opcode::Writev::new(fd, iov.as_ptr(), iov.len() as u32)
                        .offset(at)
                        .rw_flags(flags)
                        .build(),
                }
            }
            Op::Flush { .. } => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            Op::WriteZeroes { offset, len, unmap, .. } => {
                opcode::Fallocate::new(fd, *len).offset(*offset).mode(iov::zero_mode(*unmap)).build()
            }
            Op::Accept { .. } => {
                let accept = opcode::Accept::new(fd, std::ptr::null_mut(), std::ptr::null_mut());
                accept.flags(libc::SOCK_CLOEXEC).build()
            }
            Op::Recv { stream, buf } => {
                let (start, len) = (buf.as_mut_ptr(), round(buf.len()));
                match stream.is_socket() {
                    true => opcode::Recv::new(fd, start, len).build(),
                    false => opcode::Read::new(fd, start, len).offset(NO_OFFSET).build(),
                }
            }
            Op::Send { stream, bufs, moved } => {
                iov::push_out(bufs, *moved, iov);
                match (stream.is_socket(), &iov[..]) {
                    (true, [one]) => {
                        let send = opcode::Send::new(fd, one.iov_base.cast(), round(one.iov_len));
                        send.flags(libc::MSG_NOSIGNAL).build()
                    }
                    (true, _) => {
                        // SAFETY: a msghdr is plain pointers and integers, for which zero is a
                        // value.
                        let message = message.insert(Box::new(unsafe { std::mem::zeroed() }));
                        (message.msg_iov, message.msg_iovlen) = (iov.as_mut_ptr(), iov.len() as _);
                        opcode::SendMsg::new(fd, &raw const **message)
                            .flags(libc::MSG_NOSIGNAL as u32)
                            .build()
                    }
                    (false, _) => {
                        opcode::Writev::new(fd, iov.as_ptr(), iov.len() as u32).offset(NO_OFFSET).build()
                    }
                }
            }
            Op::Poll { events, .. } => opcode::PollAdd::new(fd, u32::from(events.cast_unsigned())).build(),
        })
    }

    /// Takes what the kernel answered. A stream in non-blocking mode answers `EAGAIN` instead of
    /// waiting: then the operation waits until the stream is ready, and is entered once more,
    /// unless it was cancelled meanwhile: a receive that is not wanted any more would take the
    /// bytes of the next one.
    pub fn land(&mut self, result: i32, arena: Option<&Arena>) -> Landed {
        let was_polling = std::mem::take(&mut self.polling);
        let blocked = result == -libc::EAGAIN && self.op.waits_on_peer();
        if self.cancelled && (blocked || was_polling) {
            return Landed::Done(Err(IoError::from_errno(libc::ECANCELED)));
        }
        if was_polling && result >= 0 {
            self.iov.clear();
            if let Some(entry) = self.entry(arena) {
                return Landed::Again(entry);
            }
        }
        if blocked && let Some(fd) = stream_fd(&self.op) {
            self.polling = true;
            let events = if matches!(self.op, Op::Send { .. }) { libc::POLLOUT } else { libc::POLLIN };
            let poll = opcode::PollAdd::new(types::Fd(fd), events as u32);
            return Landed::Again(poll.build());
        }
        Landed::Done(usize::try_from(result).map_err(|_| IoError::from_errno(-result)))
    }
}

/// The descriptor of what an operation waits for; `None` for a stream of a simulated world.
fn stream_fd(op: &Op) -> Option<i32> {
    Some(match op {
        Op::Accept { listener, .. } => listener.descriptor()?.as_raw_fd(),
        Op::Recv { stream, .. } | Op::Send { stream, .. } => stream.descriptor()?.as_raw_fd(),
        Op::Poll { fd, .. } => fd.as_raw_fd(),
        _ => unreachable!("drives are not streams"),
    })
}

fn round(len: usize) -> u32 {
    len.min(ROUND_MAX_BYTES) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::buf::BufMut;
    use crate::stream::Stream;

    fn receive() -> Flight {
        let (ours, _theirs) = Stream::pair().unwrap();
        Flight::new(Op::Recv { stream: ours, buf: BufMut::alloc(100) }, Room::Reserved, Vec::new())
    }

    /// The answer of kernels that do not wait by themselves on a stream in non-blocking mode.
    fn waiting_for_readiness() -> Flight {
        let mut flight = receive();
        assert!(matches!(flight.land(-libc::EAGAIN, None), Landed::Again(_)));
        flight
    }

    const READY: i32 = libc::POLLIN as i32;

    #[test]
    fn a_receive_that_waited_for_readiness_is_entered_again() {
        let mut flight = waiting_for_readiness();
        assert!(matches!(flight.land(READY, None), Landed::Again(_)));
        assert!(matches!(flight.land(5, None), Landed::Done(Ok(5))));
    }

    #[test]
    fn a_cancelled_receive_is_never_entered_again() {
        // The stream became ready before the cancellation came to the kernel: entered again, the
        // receive would take the bytes of the next one.
        let ended = |flight: &mut Flight, result| match flight.land(result, None) {
            Landed::Done(result) => result,
            Landed::Again(_) => panic!("it goes on"),
        };
        let mut flight = waiting_for_readiness();
        flight.cancelled = true;
        assert_eq!(ended(&mut flight, READY), Err(IoError::from_errno(libc::ECANCELED)));
        let mut flight = receive();
        flight.cancelled = true;
        assert_eq!(ended(&mut flight, -libc::EAGAIN), Err(IoError::from_errno(libc::ECANCELED)));
        // A receive that has its bytes says so, cancelled or not.
        let mut flight = receive();
        flight.cancelled = true;
        assert_eq!(ended(&mut flight, 5), Ok(5));
    }
}
