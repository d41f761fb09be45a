//! The backend of plain system calls, for where io_uring is forbidden: drives through a few threads
//! for each, streams without blocking and `poll(2)`.

use crate::backend::iov;
use crate::backend::{Backend, Wait};
use crate::base::clock::Clock;
use crate::base::error::IoError;
use crate::base::event::EventFd;
use crate::base::system::SignalMask;
use crate::base::time::{Instant, WallTime};
use crate::op::{Completion, Op, OpKey};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::JoinHandle;

/// So many bytes can always be written to a pipe that polls as writable (POSIX `PIPE_BUF`).
const PIPE_WRITE_BYTES: usize = 4096;

pub(crate) struct SyscallBackend {
    clock: Clock,
    event: Arc<EventFd>,
    pool: Pool,
    /// Operations on streams that would have blocked.
    waiting: Vec<(OpKey, Op)>,
    /// Completed, not reaped yet.
    finished: Vec<Completion>,
    #[cfg_attr(miri, expect(dead_code, reason = "nothing is polled there"))]
    pollfds: Vec<libc::pollfd>,
}

impl SyscallBackend {
    /// `core` wakes the core when a thread of its own has something for it.
    pub(crate) fn new(
        clock: Clock,
        event: Arc<EventFd>,
        core: Waker,
        drive_threads_max: usize,
    ) -> SyscallBackend {
        let pool = Pool::new(core, drive_threads_max.max(1));
        SyscallBackend { clock, event, pool, waiting: Vec::new(), finished: Vec::new(), pollfds: Vec::new() }
    }

    /// Waits for the core's event, or until time is up: Miri has no descriptors to poll.
    #[cfg(miri)]
    fn poll(&mut self, wait: Wait) {
        debug_assert!(self.waiting.is_empty(), "no streams of the system");
        match wait {
            Wait::No => drop(self.event.take()),
            Wait::Until(deadline) => {
                self.event.wait(|| deadline.is_some_and(|deadline| self.clock.now() >= deadline));
            }
        }
    }

    /// Polls the core's event and all waiting streams, then tries the streams that are ready.
    #[cfg(not(miri))]
    fn poll(&mut self, wait: Wait) {
        self.pollfds.clear();
        let event = self.event.raw_fd();
        self.pollfds.push(libc::pollfd { fd: event, events: libc::POLLIN, revents: 0 });
        self.pollfds.extend(self.waiting.iter().map(|(_, op)| wish(op)));
        let timeout = match wait {
            Wait::No => Some(libc::timespec { tv_sec: 0, tv_nsec: 0 }),
            Wait::Until(deadline) => deadline.map(|deadline| self.clock.timespec_until(deadline)),
        };
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the array is live and as long as stated; the timeout is null or live; no signal
        // mask is given.
        let ready = unsafe {
            libc::ppoll(
                self.pollfds.as_mut_ptr(),
                self.pollfds.len() as libc::nfds_t,
                timeout,
                std::ptr::null(),
            )
        };
        if ready <= 0 {
            return; // Time is up, or a signal came: the executor looks again either way.
        }
        if self.pollfds[0].revents != 0 {
            self.event.take();
        }
        // Backwards, so that removing one does not move those still to be looked at.
        for index in (0..self.waiting.len()).rev() {
            if self.pollfds[index + 1].revents == 0 {
                continue;
            }
            if let Some(result) = attempt(&mut self.waiting[index].1) {
                let (key, op) = self.waiting.swap_remove(index);
                self.finished.push(Completion { key, result, op });
            }
        }
    }
}

impl Backend for SyscallBackend {
    fn submit(&mut self, batch: &mut Vec<(OpKey, Op)>) {
        for (key, mut op) in batch.drain(..) {
            if !op.waits_on_peer() {
                self.pool.give(key, op);
                continue;
            }
            match attempt(&mut op) {
                Some(result) => self.finished.push(Completion { key, result, op }),
                None => self.waiting.push((key, op)),
            }
        }
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Wait) -> bool {
        let before = done.len();
        done.append(&mut self.finished);
        self.pool.take(done);
        let wait = if done.len() > before { Wait::No } else { wait };
        if wait != Wait::No || !self.waiting.is_empty() {
            self.poll(wait);
            done.append(&mut self.finished);
            self.pool.take(done);
        }
        done.len() > before
    }

    fn cancel(&mut self, key: OpKey) {
        if let Some(index) = self.waiting.iter().position(|(waiting, _)| *waiting == key) {
            let (key, op) = self.waiting.swap_remove(index);
            self.finished.push(Completion { key, result: Err(IoError::from_errno(libc::ECANCELED)), op });
        }
    }

    fn withdraw(&mut self, key: OpKey) {
        if let Some(op) = self.pool.withdraw(key) {
            self.finished.push(Completion { key, result: Err(IoError::from_errno(libc::ECANCELED)), op });
        }
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn wall_clock(&self) -> WallTime {
        Clock::wall()
    }
}

/// The descriptor of what a stream operation waits for. -1 for a stream of a simulated
/// world.
fn stream_fd(op: &Op) -> i32 {
    let fd = match op {
        Op::Accept { listener, .. } => listener.descriptor(),
        Op::Recv { stream, .. } | Op::Send { stream, .. } => stream.descriptor(),
        Op::Poll { fd, .. } => Some(fd.as_fd()),
        _ => unreachable!("drives do not wait here"),
    };
    fd.map_or(-1, |fd| fd.as_raw_fd())
}

/// What a stream operation waits for.
fn wish(op: &Op) -> libc::pollfd {
    let (fd, events) = match op {
        Op::Accept { .. } | Op::Recv { .. } => (stream_fd(op), libc::POLLIN),
        Op::Poll { events, .. } => (stream_fd(op), *events),
        Op::Send { .. } => (stream_fd(op), libc::POLLOUT),
        _ => unreachable!("drives do not wait here"),
    };
    libc::pollfd { fd, events, revents: 0 }
}

fn is_ready(op: &Op) -> bool {
    let mut pollfd = wish(op);
    // SAFETY: one live entry, no time to wait.
    unsafe { libc::poll(&raw mut pollfd, 1, 0) > 0 }
}

/// Tries a stream operation without blocking; `None` if it would block.
fn attempt(op: &mut Op) -> Option<Result<usize, IoError>> {
    let fd = stream_fd(op);
    if fd < 0 {
        return Some(Err(IoError::UNSUPPORTED));
    }
    let blocking_fd = match op {
        Op::Recv { stream, .. } | Op::Send { stream, .. } => !stream.is_socket() && !stream.keeps_messages(),
        _ => true,
    };
    if blocking_fd && !is_ready(op) {
        return None;
    }
    let count = match op {
        Op::Accept { listener, accepted } => {
            // A connection may vanish between poll and accept: the listener itself must not block.
            // SAFETY: these only take integers, and null for the address, which is not needed.
            let fd = unsafe {
                let flags = libc::fcntl(fd, libc::F_GETFL);
                libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
                libc::accept4(fd, std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC)
            };
            if fd >= 0 {
                // SAFETY: the kernel just returned this descriptor, and nothing else knows it.
                *accepted = Some(listener.take_in(unsafe { OwnedFd::from_raw_fd(fd) }));
            }
            fd as isize
        }
        Op::Recv { stream, buf } => {
            let (start, len) = (buf.as_mut_ptr().cast(), buf.len());
            // SAFETY: the pointer and length are those of a live, uniquely owned buffer.
            unsafe {
                if stream.is_socket() {
                    libc::recv(fd, start, len, libc::MSG_DONTWAIT)
                } else {
                    read_now(fd, libc::iovec { iov_base: start, iov_len: len })
                }
            }
        }
        Op::Send { stream, bufs, moved } => {
            let mut iov = Vec::new();
            iov::push_out(bufs, *moved, &mut iov);
            if stream.keeps_messages() {
                // SAFETY: the segments lie inside live buffers.
                unsafe { libc::writev(fd, iov.as_ptr(), iov.len() as i32) }
            } else if stream.is_socket() {
                // SAFETY: a msghdr is plain pointers and integers, for which zero is a value.
                let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
                (message.msg_iov, message.msg_iovlen) = (iov.as_mut_ptr(), iov.len() as _);
                // SAFETY: the message points to live segments of live buffers.
                unsafe { libc::sendmsg(fd, &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) }
            } else {
                let len = iov[0].iov_len.min(PIPE_WRITE_BYTES);
                // SAFETY: the segment lies inside a live buffer.
                unsafe { libc::write(fd, iov[0].iov_base, len) }
            }
        }
        Op::Poll { .. } => 0,
        _ => unreachable!("drives go through the pool"),
    };
    match outcome(count) {
        Err(error) if matches!(error.errno(), libc::EAGAIN | libc::EINTR | libc::ECONNABORTED) => None,
        result => Some(result),
    }
}

/// Reads what is there, as far as the kernel can tell: another process may have taken it since the
/// descriptor was readable.
///
/// # Safety
/// The part is one that the caller may have written to.
unsafe fn read_now(fd: i32, part: libc::iovec) -> isize {
    // SAFETY: as the caller promises; the place -1 is that of a plain read.
    unsafe {
        let count = libc::preadv2(fd, &raw const part, 1, -1, libc::RWF_NOWAIT);
        if count < 0 && matches!(IoError::last_os().errno(), libc::EOPNOTSUPP | libc::ENOSYS) {
            return libc::read(fd, part.iov_base, part.iov_len);
        }
        count
    }
}

/// A system call's return value as a result.
fn outcome(count: isize) -> Result<usize, IoError> {
    usize::try_from(count).map_err(|_| IoError::last_os())
}

/// Threads that block on drives so that the core need not. A thread starts when work waits and no
/// thread is free; a drive has so many at most, so that one that does not answer holds up no other.
struct Pool {
    shared: Arc<PoolShared>,
    threads: Vec<JoinHandle<()>>,
}

struct PoolShared {
    queue: Mutex<Queue>,
    work: Condvar,
    results: Mutex<Vec<Completion>>,
    core: Waker,
    drive_threads_max: usize,
}

#[derive(Default)]
struct Queue {
    /// What a thread may begin.
    jobs: VecDeque<(OpKey, Op)>,
    /// Drives that have something to do, by descriptor.
    drives: BTreeMap<i32, DriveQueue>,
    idle: usize,
    /// Threads that were started and have not looked for a job yet.
    starting: usize,
    stop: bool,
}

#[derive(Default)]
struct DriveQueue {
    /// Operations under way, or among the jobs.
    begun: usize,
    /// What is to come when one of these ends.
    waiting: VecDeque<(OpKey, Op)>,
}

impl Queue {
    /// Takes an operation, and says whether another thread is to be started for it.
    fn put(&mut self, drive: i32, key: OpKey, op: Op, drive_threads_max: usize) -> bool {
        let queue = self.drives.entry(drive).or_default();
        if queue.begun == drive_threads_max {
            queue.waiting.push_back((key, op));
            return false;
        }
        queue.begun += 1;
        self.jobs.push_back((key, op));
        self.jobs.len() > self.idle + self.starting
    }

    /// An operation of a drive ended.
    fn ended(&mut self, drive: i32) {
        let Some(queue) = self.drives.get_mut(&drive) else { return };
        match queue.waiting.pop_front() {
            Some(next) => self.jobs.push_back(next),
            None => queue.begun -= 1,
        }
        if queue.begun == 0 {
            self.drives.remove(&drive);
        }
    }
}

/// The drive that an operation is for.
fn drive_of(op: &Op) -> i32 {
    op.device().and_then(crate::device::Device::raw_fd).unwrap_or(-1)
}

impl PoolShared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn results(&self) -> MutexGuard<'_, Vec<Completion>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of a thread.
    fn work(&self) {
        SignalMask::block_all();
        let mut queue = self.queue();
        queue.starting -= 1;
        loop {
            if let Some((key, mut op)) = queue.jobs.pop_front() {
                drop(queue);
                let drive = drive_of(&op);
                let result = answer(|| execute(&mut op));
                self.results().push(Completion { key, result, op });
                self.core.wake_by_ref();
                queue = self.queue();
                queue.ended(drive);
            } else if queue.stop {
                return;
            } else {
                queue.idle += 1;
                queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
            }
        }
    }
}

impl Pool {
    fn new(core: Waker, drive_threads_max: usize) -> Pool {
        let shared = PoolShared {
            queue: Mutex::default(),
            work: Condvar::new(),
            results: Mutex::default(),
            core,
            drive_threads_max,
        };
        Pool { shared: Arc::new(shared), threads: Vec::new() }
    }

    fn give(&mut self, key: OpKey, op: Op) {
        let mut queue = self.shared.queue();
        let more = queue.put(drive_of(&op), key, op, self.shared.drive_threads_max);
        queue.starting += usize::from(more);
        drop(queue);
        self.shared.work.notify_one();
        if more {
            let shared = self.shared.clone();
            let thread =
                std::thread::Builder::new().name("wattle-io".to_owned()).spawn(move || shared.work());
            match thread {
                Ok(thread) => self.threads.push(thread),
                // One thread is enough, if slower; without any the work is done right here.
                Err(_) if !self.threads.is_empty() => self.shared.queue().starting -= 1,
                Err(_) => {
                    let mut queue = self.shared.queue();
                    queue.starting -= 1;
                    let job = queue.jobs.pop_back();
                    drop(queue);
                    if let Some((key, mut op)) = job {
                        let drive = drive_of(&op);
                        let result = answer(|| execute(&mut op));
                        self.shared.results().push(Completion { key, result, op });
                        self.shared.queue().ended(drive);
                    }
                }
            }
        }
    }

    /// Takes out an operation that waits for others of its drive.
    fn withdraw(&self, key: OpKey) -> Option<Op> {
        let mut queue = self.shared.queue();
        queue.drives.values_mut().find_map(|drive| {
            let index = drive.waiting.iter().position(|(waiting, _)| *waiting == key)?;
            drive.waiting.remove(index).map(|(_, op)| op)
        })
    }

    fn take(&self, done: &mut Vec<Completion>) {
        done.append(&mut self.shared.results());
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.stop = true;
        // A drive that hangs may never let its thread go: it keeps what it works on.
        let hangs = !queue.drives.is_empty();
        drop(queue);
        self.shared.work.notify_all();
        if hangs {
            return;
        }
        for thread in self.threads.drain(..) {
            // A thread only makes system calls: it has no way to panic.
            let _ = thread.join();
        }
    }
}

/// What `work` comes to. A panic, which has printed what it is, ends the operation with an error: a
/// core waits for it.
fn answer(work: impl FnOnce() -> Result<usize, IoError>) -> Result<usize, IoError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(IoError::from_errno(libc::ESHUTDOWN)))
}

/// One round of a drive operation, blocking.
fn execute(op: &mut Op) -> Result<usize, IoError> {
    let Some(fd) = op.device().and_then(crate::device::Device::raw_fd) else {
        return Err(IoError::UNSUPPORTED); // A drive of another world.
    };
    let mut iov = Vec::new();
    match op {
        Op::Read(transfer) => {
            iov::push_in(transfer.bufs.as_mut_slice(), transfer.moved, &mut iov);
            let at = (transfer.offset + transfer.moved as u64).cast_signed();
            // SAFETY: the segments are live, uniquely owned buffers of this operation.
            outcome(unsafe { libc::preadv(fd, iov.as_ptr(), iov.len() as i32, at) })
        }
        Op::Write(transfer, durability) => {
            iov::push_out(transfer.bufs.as_slice(), transfer.moved, &mut iov);
            let at = (transfer.offset + transfer.moved as u64).cast_signed();
            write(fd, &iov, at, iov::write_flags(*durability))
        }
        Op::Flush { .. } => sync(fd),
        Op::WriteZeroes { offset, len, unmap, .. } => {
            let (offset, len) = (offset.cast_signed(), len.cast_signed());
            // SAFETY: fallocate only takes integers.
            let rc = unsafe { libc::fallocate(fd, iov::zero_mode(*unmap), offset, len) };
            if rc == 0 { Ok(0) } else { Err(iov::zero_error(IoError::last_os())) }
        }
        _ => unreachable!("streams do not go through the pool"),
    }
}

fn write(fd: i32, iov: &[libc::iovec], at: i64, flags: i32) -> Result<usize, IoError> {
    if flags != 0 {
        // SAFETY: the segments are live buffers that nothing may change.
        let written = outcome(unsafe { libc::pwritev2(fd, iov.as_ptr(), iov.len() as i32, at, flags) });
        match written {
            Err(error) if matches!(error.errno(), libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => {}
            written => return written,
        }
    }
    // SAFETY: as above.
    let written = outcome(unsafe { libc::pwritev(fd, iov.as_ptr(), iov.len() as i32, at) })?;
    if flags != 0 {
        sync(fd)?; // This kernel cannot force a single write: the whole device then.
    }
    Ok(written)
}

fn sync(fd: i32) -> Result<usize, IoError> {
    // SAFETY: fdatasync only takes a descriptor, which the operation keeps open.
    let rc = unsafe { libc::fdatasync(fd) };
    if rc == 0 { Ok(0) } else { Err(IoError::last_os()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_that_does_not_answer_leaves_threads_to_the_others() {
        let mut queue = Queue::default();
        let op = || Op::Flush { device: None };
        let more: Vec<bool> = (0..10).map(|key| queue.put(1, OpKey(key), op(), 3)).collect();
        assert_eq!(more.iter().filter(|more| **more).count(), 3, "threads for what waits have no use");
        assert_eq!(queue.jobs.len(), 3);
        queue.put(2, OpKey(10), op(), 3);
        assert_eq!(queue.jobs.len(), 4);
        queue.jobs.clear();
        for left in (0..7).rev() {
            queue.ended(1);
            assert_eq!((queue.jobs.len(), queue.drives[&1].waiting.len()), (7 - left, left));
        }
        (0..3).for_each(|_| queue.ended(1));
        queue.ended(2);
        assert!(queue.drives.is_empty());
    }

    #[test]
    fn a_panic_on_a_helper_thread_is_an_error_of_its_operation() {
        assert_eq!(answer(|| Ok(5)), Ok(5));
        assert_eq!(answer(|| panic!("on purpose")), Err(IoError::from_errno(libc::ESHUTDOWN)));
    }
}
