//! The io_uring backend. One ring per core, made and used by that core's thread alone.
//!
//! Every operation lives in `flights` from the moment its entry is written until its completion is
//! taken, and with it everything the kernel may touch: buffers, segment lists, message headers.
//! None of these move while in flight: the table may grow, but they are behind pointers of their
//! own.

mod flight;
mod ring;

use crate::backend::iov;
use crate::backend::lanes::{Lanes, Room};
use crate::backend::{Backend, BackendError, RingMode, Wait};
use crate::base::clock::Clock;
use crate::base::error::IoError;
use crate::base::event::EventFd;
use crate::base::system;
use crate::base::time::{Instant, WallTime};
use crate::device::Device;
use crate::memory::arena::Arena;
use crate::memory::buf::{draw_from, draw_no_more_from};
use crate::op::{Completion, Op, OpKey};
use crate::planted::{self, Bug};
use io_uring::{IoUring, opcode, squeue, types};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

use flight::{Flight, Landed};
use ring::build;

/// Names the poll of the core's event among completions.
const EVENT: u64 = u64::MAX;
/// Names cancellations, whose own outcome is not needed.
const CANCEL: u64 = u64::MAX - 1;
/// The ring of a core knows so much of its memory: what a thousand small operations move at a time.
const ARENA_BYTES: usize = 4 << 20;

pub(crate) struct UringBackend {
    ring: IoUring,
    clock: Clock,
    event: Arc<EventFd>,
    flights: Vec<Option<Flight>>,
    lanes: Lanes,
    cancelled: Vec<Completion>,
    event_armed: bool,
    /// Segment lists that can be used again.
    spare_iov: Vec<Vec<libc::iovec>>,
    /// What the kernel knows as buffer 0. Behind the ring, which goes first.
    arena: Option<Arc<Arena>>,
    /// No operation has asked for it yet.
    may_register: bool,
}

impl UringBackend {
    pub(crate) fn new(
        clock: Clock,
        event: Arc<EventFd>,
        queue_depth: u32,
        mode: RingMode,
    ) -> Result<UringBackend, BackendError> {
        let forbidden = |error: std::io::Error| BackendError::UringForbidden {
            errno: error.raw_os_error().unwrap_or(libc::ENOSYS),
        };
        let entries = queue_depth.clamp(8, 16 << 10).next_power_of_two();
        let ring = build(entries, mode).map_err(forbidden)?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            // Before Linux 5.11 a wait cannot have a timeout of its own.
            return Err(BackendError::UringForbidden { errno: libc::ENOSYS });
        }
        // What cannot be begun at once waits in a worker of the kernel, of which there are few for
        // all drives together: each operation may have one, also those that go beyond the bound, or
        // a drive that hangs would keep all of them. Before Linux 5.15 that cannot be said.
        if !planted::is(Bug::OneDriveTakesAll) {
            let _ = ring.submitter().register_iowq_max_workers(&mut [2 * entries, 0]);
        }
        // Before Linux 5.13 to register waits for all that is in flight, which may be for ever.
        let may_register = ring.params().is_feature_resource_tagging() && mode != RingMode::Plain;
        Ok(UringBackend {
            ring,
            clock,
            event,
            flights: Vec::new(),
            lanes: Lanes::new(entries as usize),
            cancelled: Vec::new(),
            event_armed: false,
            spare_iov: Vec::new(),
            arena: None,
            may_register,
        })
    }

    /// Registers memory from which this thread's buffers come from now on. Without it operations
    /// are as on other memory.
    fn register(&mut self) {
        // The kernel charges a user whose locked memory is limited for rings and registered memory
        // alike: registered memory must never cost a process its ring.
        if !system::may_lock_memory() {
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
    fn launch(&mut self, key: OpKey, op: Op) {
        let index = key.0 as usize;
        if index >= self.flights.len() {
            self.flights.resize_with(index + 1, || None);
        }
        if self.may_register && op.device().is_some_and(Device::direct) {
            self.may_register = false;
            self.register();
        }
        let iov = self.spare_iov.pop().unwrap_or_default();
        let room = Room::of(&op);
        let flight = self.flights[index].insert(Flight::new(op, room, iov));
        match flight.entry(self.arena.as_deref()) {
            Some(entry) => self.push(&entry.user_data(u64::from(key.0))),
            None => {
                // A drive of another world.
                let flight = self.land(key);
                self.cancelled.push(Completion { key, result: Err(IoError::UNSUPPORTED), op: flight.op });
            }
        }
    }

    /// Takes an operation out of the table: the kernel is done with it.
    fn land(&mut self, key: OpKey) -> Flight {
        let mut flight =
            self.flights[key.0 as usize].take().expect("a completion belongs to an operation in flight");
        self.lanes.leave(flight.room);
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
            // Time is up; a signal; completions wait to be taken or memory is short: the executor
            // comes again.
            Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN | libc::ENOMEM) => {}
            _ => panic!("io_uring_enter failed, the ring is unusable: {error}"),
        }
    }

    fn arm_event(&mut self) {
        if !self.event_armed {
            let event = self.event.raw_fd();
            let entry = opcode::PollAdd::new(types::Fd(event), libc::POLLIN as u32).build().user_data(EVENT);
            self.push(&entry);
            self.event_armed = true;
        }
    }

    /// Takes what is there; true if the core's event was among it.
    fn take_completions(&mut self, done: &mut Vec<Completion>) -> bool {
        let mut rang = false;
        loop {
            // One at a time: an operation may go back into the ring at once.
            let Some(completion) = self.ring.completion().next() else { return rang };
            match completion.user_data() {
                CANCEL => {}
                EVENT => {
                    rang = true;
                    self.event_armed = false;
                    self.event.take();
                }
                key => self.take_completion(OpKey(key as u32), completion.result(), done),
            }
        }
    }

    fn take_completion(&mut self, key: OpKey, result: i32, done: &mut Vec<Completion>) {
        let flight =
            self.flights[key.0 as usize].as_mut().expect("a completion belongs to an operation in flight");
        let mut result = match flight.land(result, self.arena.as_deref()) {
            Landed::Again(entry) => return self.push(&entry.user_data(u64::from(key.0))),
            Landed::Done(result) => result,
        };
        let mut flight = self.land(key);
        match (&mut flight.op, &mut result) {
            (Op::Accept { listener, accepted }, Ok(fd)) => {
                // SAFETY: the kernel just returned this descriptor, and nothing else knows it.
                *accepted = Some(listener.take_in(unsafe { OwnedFd::from_raw_fd(*fd as i32) }));
            }
            (Op::WriteZeroes { .. }, Err(error)) => *error = iov::zero_error(*error),
            _ => {}
        }
        done.push(Completion { key, result, op: flight.op });
    }

    /// Launches what waits, as far as there is room.
    fn drain_backlog(&mut self) {
        while let Some((key, op)) = self.lanes.next() {
            self.launch(key, op);
        }
    }
}

impl Backend for UringBackend {
    fn submit(&mut self, batch: &mut Vec<(OpKey, Op)>) {
        // Entries are only written here. They leave with the reap that follows: one system call
        // submits and waits.
        for (key, op) in batch.drain(..) {
            if let Some((key, op)) = self.lanes.admit(key, op) {
                self.launch(key, op);
            }
        }
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Wait) -> bool {
        let before = done.len();
        done.append(&mut self.cancelled);
        // The core has looked for news before this. An event that is taken here came after that
        // look: it was the only one for its news, so the core must look again instead of blocking.
        let rang = self.take_completions(done);
        self.drain_backlog();
        done.append(&mut self.cancelled);
        match wait {
            Wait::Until(deadline) if done.len() == before && (!rang || planted::is(Bug::EventSwallowed)) => {
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

    fn cancel(&mut self, key: OpKey) {
        if let Some(op) = self.lanes.withdraw(key) {
            self.cancelled.push(Completion { key, result: Err(IoError::from_errno(libc::ECANCELED)), op });
        } else if let Some(Some(flight)) = self.flights.get_mut(key.0 as usize) {
            flight.cancelled = true;
            let entry = opcode::AsyncCancel::new(u64::from(key.0)).build().user_data(CANCEL);
            self.push(&entry);
        }
    }

    fn withdraw(&mut self, key: OpKey) {
        if let Some(op) = self.lanes.withdraw(key) {
            self.cancelled.push(Completion { key, result: Err(IoError::from_errno(libc::ECANCELED)), op });
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
        // The core waits before it lets go, but not for ever for drives that hang. The kernel may
        // still hold memory then, as after a panic: leaking it is safe, freeing it is not.
        std::mem::take(&mut self.flights).into_iter().flatten().for_each(std::mem::forget);
        if let Some(arena) = &self.arena {
            draw_no_more_from(arena);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Whether each mode of the ring ends a sleep of `long` for news that came between the look for
    /// them and the sleep; a mode that this kernel lacks is left out, loudly.
    fn sleeps_end(long: Duration) -> Vec<(RingMode, bool)> {
        let mut ended = Vec::new();
        for mode in [RingMode::Deferred, RingMode::Cooperative, RingMode::Plain] {
            let event = Arc::new(EventFd::new().unwrap());
            let mut backend = match UringBackend::new(Clock::start(), event.clone(), 8, mode) {
                Ok(backend) => backend,
                Err(error) => {
                    println!("no {mode:?} here: {error}");
                    continue;
                }
            };
            // A first sleep, which arms the poll of the event and ends by its deadline.
            let mut done = Vec::new();
            backend.reap(&mut done, Wait::Until(Some(backend.now() + Duration::from_millis(1))));
            // The core finds no news; then they come.
            event.ring();
            let before = backend.now();
            backend.reap(&mut done, Wait::Until(Some(before + long)));
            ended.push((mode, backend.now() - before < long));
        }
        ended
    }

    /// A drive that hangs keeps the workers that wait for it.
    #[test]
    #[cfg_attr(miri, ignore = "io_uring")]
    fn each_operation_on_a_drive_may_have_a_worker_of_the_kernel() {
        let event = Arc::new(EventFd::new().unwrap());
        let backend = match UringBackend::new(Clock::start(), event, 1024, RingMode::Best) {
            Ok(backend) => backend,
            Err(error) => return println!("no io_uring here: {error}"),
        };
        let mut workers = [0, 0];
        match backend.ring.submitter().register_iowq_max_workers(&mut workers) {
            Ok(()) => assert_eq!(workers[0], 2048),
            Err(error) => println!("before Linux 5.15: {error}"),
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "io_uring")]
    fn news_that_come_between_the_look_for_them_and_the_sleep_end_the_sleep() {
        for (mode, ended) in sleeps_end(Duration::from_secs(5)) {
            assert!(ended, "{mode:?}: the core sleeps with its mail undelivered");
        }
        let _planted = planted::plant(&[Bug::EventSwallowed]);
        // A deferred ring posts the event only in the sleep itself, and so ends it.
        let ended = sleeps_end(Duration::from_millis(200));
        let found = |(mode, ended): &(RingMode, bool)| *mode != RingMode::Deferred && !ended;
        assert!(ended.is_empty() || ended.iter().any(found), "the bug is not found: {ended:?}");
    }
}
