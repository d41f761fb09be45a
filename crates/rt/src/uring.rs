//! The io_uring backend. One ring per core, made and used by that core's thread alone.
//!
//! Every operation lives in `flights` from the moment its entry is written until its completion is taken, and with it
//! everything the kernel may touch: buffers, segment lists, message headers. None of these move while in flight: the
//! table may grow, but they are behind pointers of their own.

use crate::arena::Arena;
use crate::backend::{Backend, BackendError, Wait};
use crate::buf::{draw_from, draw_no_more_from};
use crate::clock::Clock;
use crate::device::Device;
use crate::error::IoError;
use crate::iov;
use crate::op::{Done, Key, Op};
use crate::process;
use crate::shared::CoreShared;
use crate::stream::Stream;
use crate::time::{Instant, WallTime};
use io_uring::{IoUring, opcode, squeue, types};
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// Names the poll of the core's event among completions.
const EVENT: u64 = u64::MAX;
/// Names cancellations, whose own outcome nobody wants.
const CANCEL: u64 = u64::MAX - 1;
/// One entry never moves more than this: the kernel counts in 31 bits. The rest is continued.
const ROUND_MAX_BYTES: usize = 1 << 30;
/// "At the current position", for streams that are not sockets.
const NO_OFFSET: u64 = u64::MAX;
/// So much memory of a core its ring knows: what a thousand small operations move at a time.
const ARENA_BYTES: usize = 4 << 20;

pub(crate) struct UringBackend {
    ring: IoUring,
    clock: Clock,
    core: Arc<CoreShared>,
    flights: Vec<Option<Flight>>,
    flying: usize,
    flying_max: usize,
    /// Operations for which the ring had no room; they leave in order.
    backlog: VecDeque<(Key, Op)>,
    cancelled: Vec<Done>,
    event_armed: bool,
    /// Segment lists that can be used again.
    spare_iov: Vec<Vec<libc::iovec>>,
    /// What the kernel knows as buffer 0. Behind the ring, which goes first.
    arena: Option<Arc<Arena>>,
    /// No operation has asked for it yet.
    may_register: bool,
}

/// What the kernel works on.
struct Flight {
    op: Op,
    iov: Vec<libc::iovec>,
    message: Option<Box<libc::msghdr>>,
    /// Only waiting until the descriptor is ready: a stream was in non-blocking mode.
    polling: bool,
}

impl UringBackend {
    pub(crate) fn new(
        clock: Clock,
        core: Arc<CoreShared>,
        queue_depth: u32,
    ) -> Result<UringBackend, BackendError> {
        let forbidden = |error: std::io::Error| BackendError::UringForbidden {
            errno: error.raw_os_error().unwrap_or(libc::ENOSYS),
        };
        let entries = queue_depth.clamp(8, 16 << 10).next_power_of_two();
        let ring = build(entries).map_err(forbidden)?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            // Before Linux 5.11 a wait cannot have a timeout of its own.
            return Err(BackendError::UringForbidden { errno: libc::ENOSYS });
        }
        // Before Linux 5.13 to register waits for all that is in flight, which may be for ever.
        let may_register = ring.params().is_feature_resource_tagging();
        Ok(UringBackend {
            ring,
            clock,
            core,
            flights: Vec::new(),
            flying: 0,
            flying_max: entries as usize,
            backlog: VecDeque::new(),
            cancelled: Vec::new(),
            event_armed: false,
            spare_iov: Vec::new(),
            arena: None,
            may_register,
        })
    }

    /// Registers memory from which this thread's buffers come from now on. Without it operations are as on other memory.
    fn register(&mut self) {
        // The kernel charges a user whose locked memory is limited for rings and registered memory alike: nobody is to miss a ring for it.
        if !process::may_lock_memory() {
            return;
        }
        let Some(arena) = Arena::new(ARENA_BYTES) else { return };
        let arena = self.arena.insert(Arc::new(arena));
        // SAFETY: `self.arena` keeps the memory where it is until the ring is gone.
        if unsafe { self.ring.submitter().register_buffers(&[arena.as_iovec()]) }.is_ok() {
            draw_from(arena);
        } else {
            self.arena = None;
        }
    }

    /// Writes the entry of an operation.
    fn launch(&mut self, key: Key, op: Op) {
        let index = key.0 as usize;
        if index >= self.flights.len() {
            self.flights.resize_with(index + 1, || None);
        }
        if self.may_register && op.device().is_some_and(Device::direct) {
            self.may_register = false;
            self.register();
        }
        let iov = self.spare_iov.pop().unwrap_or_default();
        let flight = self.flights[index].insert(Flight { op, iov, message: None, polling: false });
        self.flying += 1;
        match flight.entry(self.arena.as_deref()) {
            Some(entry) => self.push(&entry.user_data(u64::from(key.0))),
            None => {
                // A drive of another world.
                let flight = self.land(key);
                self.cancelled.push(Done { key, result: Err(IoError::UNSUPPORTED), op: flight.op });
            }
        }
    }

    /// Takes an operation out of the table: the kernel is done with it.
    fn land(&mut self, key: Key) -> Flight {
        let mut flight =
            self.flights[key.0 as usize].take().expect("a completion belongs to an operation in flight");
        self.flying -= 1;
        let mut iov = std::mem::take(&mut flight.iov);
        iov.clear();
        if iov.capacity() > 0 && self.spare_iov.len() < 64 {
            self.spare_iov.push(iov);
        }
        flight
    }

    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: what the entry points to lives in `flights` until the completion comes.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            self.enter(0, None); // The queue is full: the kernel takes what is there.
        }
    }

    /// Hands the queue to the kernel and waits for `want` completions, at most until the deadline.
    fn enter(&mut self, want: usize, deadline: Option<Instant>) {
        let entered = match deadline {
            None => self.ring.submitter().submit_and_wait(want),
            Some(deadline) => {
                let until = self.clock.timespec_until(deadline);
                let until = types::Timespec::new().sec(until.tv_sec as u64).nsec(until.tv_nsec as u32);
                self.ring.submitter().submit_with_args(want, &types::SubmitArgs::new().timespec(&until))
            }
        };
        let Err(error) = entered else { return };
        match error.raw_os_error() {
            // Time is up; a signal; completions wait to be taken or memory is short: the executor comes again.
            Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN | libc::ENOMEM) => {}
            _ => panic!("io_uring_enter failed, the ring is unusable: {error}"),
        }
    }

    fn arm_event(&mut self) {
        if !self.event_armed {
            let event = self.core.event().expect("a real core has an event descriptor").as_raw_fd();
            let entry = opcode::PollAdd::new(types::Fd(event), libc::POLLIN as u32).build().user_data(EVENT);
            self.push(&entry);
            self.event_armed = true;
        }
    }

    fn take_completions(&mut self, done: &mut Vec<Done>) {
        loop {
            // One at a time: an operation may go back into the ring at once.
            let Some(completion) = self.ring.completion().next() else { return };
            match completion.user_data() {
                CANCEL => {}
                EVENT => {
                    self.event_armed = false;
                    self.core.take_ring();
                }
                key => self.take_completion(Key(key as u32), completion.result(), done),
            }
        }
    }

    fn take_completion(&mut self, key: Key, result: i32, done: &mut Vec<Done>) {
        let flight =
            self.flights[key.0 as usize].as_mut().expect("a completion belongs to an operation in flight");
        if let Some(entry) = flight.again(result, self.arena.as_deref()) {
            self.push(&entry.user_data(u64::from(key.0)));
            return;
        }
        let mut flight = self.land(key);
        let mut result = usize::try_from(result).map_err(|_| IoError::from_errno(-result));
        match (&mut flight.op, &mut result) {
            (Op::Accept { accepted, .. }, Ok(fd)) => {
                // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
                *accepted = Some(Stream::accepted(unsafe { OwnedFd::from_raw_fd(*fd as i32) }));
            }
            (Op::WriteZeroes { .. }, Err(error)) => *error = iov::zero_error(*error),
            _ => {}
        }
        done.push(Done { key, result, op: flight.op });
    }

    /// Launches what waits, as far as there is room.
    fn drain_backlog(&mut self) {
        while self.flying < self.flying_max
            && let Some((key, op)) = self.backlog.pop_front()
        {
            self.launch(key, op);
        }
    }
}

/// Makes a ring with the cheapest completion mode this kernel has.
fn build(entries: u32) -> std::io::Result<IoUring> {
    let base = || {
        let mut builder = IoUring::builder();
        // Room for every operation, for a cancellation of each, and for the event: completions never overflow.
        builder.setup_cqsize(entries * 4).setup_clamp();
        builder
    };
    // Since 6.1: one thread submits, completions are worked off only when it asks.
    let newest = base().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().build(entries);
    // Since 5.19: no interrupts to deliver completions.
    newest
        .or_else(|_| base().setup_coop_taskrun().setup_taskrun_flag().build(entries))
        .or_else(|_| base().build(entries))
}

impl Flight {
    /// The entry for what is left of the operation; `None` for a device that the kernel does not know.
    fn entry(&mut self, arena: Option<&Arena>) -> Option<squeue::Entry> {
        let Flight { op, iov, message, .. } = self;
        let device_fd = op.device().map(|device| device.raw_fd().map(types::Fd));
        let registered = |segment: &libc::iovec| {
            arena.is_some_and(|arena| arena.contains(segment.iov_base.cast(), segment.iov_len))
        };
        let fd = match device_fd {
            Some(fd) => fd?,
            None => types::Fd(stream_fd(op)),
        };
        Some(match op {
            Op::Read(transfer) => {
                let at = transfer.offset + transfer.moved as u64;
                iov::push_in(transfer.bufs.as_mut_slice(), transfer.moved, iov);
                match iov[..] {
                    [one] if registered(&one) => {
                        let read = opcode::ReadFixed::new(fd, one.iov_base.cast(), round(one.iov_len), 0);
                        read.offset(at).build()
                    }
                    [one] => {
                        opcode::Read::new(fd, one.iov_base.cast(), round(one.iov_len)).offset(at).build()
                    }
                    _ => opcode::Readv::new(fd, iov.as_ptr(), iov.len() as u32).offset(at).build(),
                }
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
                        // SAFETY: a msghdr is plain pointers and integers, for which zero is a value.
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
            Op::Poll { .. } => opcode::PollAdd::new(fd, libc::POLLIN as u32).build(),
        })
    }

    /// A stream that somebody put into non-blocking mode answers `EAGAIN` instead of waiting: then wait for it to
    /// become ready, and ask again. Returns the entry to push, if there is one.
    fn again(&mut self, result: i32, arena: Option<&Arena>) -> Option<squeue::Entry> {
        if self.polling && result >= 0 {
            self.polling = false;
            self.iov.clear();
            return self.entry(arena);
        }
        if result != -libc::EAGAIN || !self.op.waits_on_peer() {
            return None;
        }
        self.polling = true;
        let events = if matches!(self.op, Op::Send { .. }) { libc::POLLOUT } else { libc::POLLIN };
        Some(opcode::PollAdd::new(types::Fd(stream_fd(&self.op)), events as u32).build())
    }
}

fn stream_fd(op: &Op) -> i32 {
    match op {
        Op::Accept { listener, .. } => listener.as_fd().as_raw_fd(),
        Op::Recv { stream, .. } | Op::Send { stream, .. } => stream.as_fd().as_raw_fd(),
        Op::Poll { fd } => fd.as_raw_fd(),
        _ => unreachable!("drives are not streams"),
    }
}

fn round(len: usize) -> u32 {
    len.min(ROUND_MAX_BYTES) as u32
}

impl Backend for UringBackend {
    fn submit(&mut self, batch: &mut Vec<(Key, Op)>) {
        // Entries are only written here. They leave with the reap that follows: one system call submits and waits.
        for (key, op) in batch.drain(..) {
            if self.flying < self.flying_max && self.backlog.is_empty() {
                self.launch(key, op);
            } else {
                self.backlog.push_back((key, op));
            }
        }
    }

    fn reap(&mut self, done: &mut Vec<Done>, wait: Wait) -> bool {
        let before = done.len();
        done.append(&mut self.cancelled);
        self.take_completions(done);
        self.drain_backlog();
        match wait {
            Wait::Until(deadline) if done.len() == before => {
                self.arm_event();
                self.enter(1, deadline);
            }
            _ => {
                let queue = self.ring.submission();
                let (waits, work) = (!queue.is_empty(), queue.taskrun() || queue.cq_overflow());
                drop(queue);
                if work {
                    // A wait that is over at once: the kernel posts the completions it has put off.
                    self.enter(1, Some(Instant::START));
                } else if waits {
                    self.enter(0, None);
                }
            }
        }
        self.take_completions(done);
        self.drain_backlog();
        done.append(&mut self.cancelled);
        done.len() > before
    }

    fn cancel(&mut self, key: Key) {
        if let Some(index) = self.backlog.iter().position(|(queued, _)| *queued == key) {
            let (key, op) = self.backlog.remove(index).expect("the position is inside");
            self.cancelled.push(Done { key, result: Err(IoError::from_errno(libc::ECANCELED)), op });
        } else if self.flights.get(key.0 as usize).is_some_and(Option::is_some) {
            let entry = opcode::AsyncCancel::new(u64::from(key.0)).build().user_data(CANCEL);
            self.push(&entry);
        }
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn wall_clock(&self) -> WallTime {
        Clock::wall()
    }
}

impl Drop for UringBackend {
    fn drop(&mut self) {
        // The core waits for everything before it lets go. If it could not (a panic), the kernel may still hold
        // memory: leaking it is safe, freeing it is not.
        std::mem::take(&mut self.flights).into_iter().flatten().for_each(std::mem::forget);
        if let Some(arena) = &self.arena {
            draw_no_more_from(arena);
        }
    }
}
