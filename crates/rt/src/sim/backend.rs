//! The simulated backend: operations become events of the world.

use crate::backend::lanes::{Lanes, Room};
use crate::backend::{Backend, Wait};
use crate::base::error::IoError;
use crate::base::rng::{Rng, mix};
use crate::base::time::{Instant, WallTime};
use crate::op::{Completion, Op, OpKey};
use crate::sim::drive::{Accepted, Drive, DriveHandle};
use crate::sim::net::Network;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// When virtual worlds begin on the wall clock: 2026-01-01T00:00:00Z.
const WALL_CLOCK_START_SECS: u64 = 1_767_225_600;

/// What the cores of one run share with their world.
pub(crate) struct Shared {
    pub(crate) rng: Rng,
    pub(crate) clock: Arc<AtomicU64>,
    /// What is in flight, by time of completion; the second part of the key breaks ties by chance.
    pub(crate) events: BTreeMap<EventKey, Event>,
    /// When drives with a model have news next, with their ids.
    pub(crate) wakes: BTreeMap<(Instant, u64), DriveHandle>,
    /// What waits for the other end of a connection.
    pub(crate) network: Network,
    /// What has completed, by core, until the core takes it.
    pub(crate) done: Vec<Vec<Completion>>,
    pub(crate) ops_submitted: u64,
    /// The power goes when this many operations have been submitted.
    pub(crate) cut_after_ops: Option<u64>,
    /// The power is gone.
    pub(crate) cut: bool,
    pub(crate) trace: u64,
    /// Numbers events.
    pub(crate) serial: u64,
    /// Nothing is left to chance that a machine would do in order.
    pub(crate) orderly: bool,
}

/// Orders events: time, chance, and a serial number so that keys are unique.
pub(crate) type EventKey = (Instant, u64, u64);

/// An operation in flight.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) core: usize,
    pub(crate) key: OpKey,
    pub(crate) op: Op,
    pub(crate) accepted: Accepted,
}

impl Event {
    pub(crate) fn drive(&self) -> &DriveHandle {
        drive_of(&self.op).expect("only operations on simulated drives become events")
    }
}

impl Shared {
    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.clock.load(Ordering::Relaxed))
    }

    pub(crate) fn set_now(&mut self, now: Instant) {
        debug_assert!(now >= self.now(), "time does not run backwards");
        self.clock.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Folds something that happened into the trace.
    pub(crate) fn note(&mut self, what: u64, detail: u64) {
        self.trace = mix(self.trace ^ mix(what) ^ detail.rotate_left(17));
    }

    pub(crate) fn schedule(&mut self, at: Instant, event: Event) {
        let tie = if self.orderly { 0 } else { self.rng.next_u64() };
        self.serial += 1;
        self.events.insert((at, tie, self.serial), event);
    }

    /// Looks at a drive again when its model has news.
    pub(crate) fn arm(&mut self, handle: &DriveHandle, drive: &mut Drive) {
        let Some(next) = drive.service.next() else { return };
        let next = next.max(drive.faults.stalled_until);
        if drive.wake.is_none_or(|wake| next < wake) {
            drive.wake = Some(next);
            self.wakes.insert((next, drive.id), handle.clone());
        }
    }

    fn submit(&mut self, core: usize, key: OpKey, op: Op) {
        if self.cut {
            return;
        }
        let now = self.now();
        if Network::is_for(&op) {
            return self.network.submit(core, key, op);
        }
        let Some(drive) = drive_of(&op).cloned() else {
            // Files and sockets of the machine do not exist in here.
            self.done[core].push(Completion { key, result: Err(IoError::UNSUPPORTED), op });
            return;
        };
        let mut guard = drive.lock();
        let accepted = guard.accept(&op, now);
        self.note(guard.id, guard.ops);
        self.note(kind_of(&op), accepted.at.map_or(0, Instant::as_nanos));
        let event = Event { core, key, op, accepted };
        match accepted.at {
            Some(at) => self.schedule(at, event),
            None => {
                let slow = guard.faults.slow;
                guard.service.submit(event, slow, now);
                self.arm(&drive, &mut guard);
            }
        }
        drop(guard);
        self.ops_submitted += 1;
        if self.cut_after_ops.is_some_and(|at| self.ops_submitted >= at) {
            self.cut_after_ops = None;
            self.cut = true;
        }
    }
}

fn drive_of(op: &Op) -> Option<&DriveHandle> {
    op.device().and_then(DriveHandle::of)
}

/// Distinguishes operations in the trace.
fn kind_of(op: &Op) -> u64 {
    match op {
        Op::Read(transfer) => 1 ^ (transfer.offset << 8) ^ ((transfer.len() as u64) << 40),
        Op::Write(transfer, durability) => {
            2 ^ (*durability as u64) << 4 ^ (transfer.offset << 8) ^ ((transfer.len() as u64) << 40)
        }
        Op::Flush { .. } => 3,
        Op::WriteZeroes { offset, len, .. } => 4 ^ (offset << 8) ^ (len << 40),
        _ => 5,
    }
}

/// One core's view of the world.
pub(crate) struct SimBackend {
    pub(crate) shared: Rc<RefCell<Shared>>,
    pub(crate) core: usize,
    pub(crate) lanes: Lanes,
    /// Cancelled before there was room for it.
    pub(crate) withdrawn: Vec<Completion>,
}

impl Backend for SimBackend {
    fn submit(&mut self, batch: &mut Vec<(OpKey, Op)>) {
        let mut shared = self.shared.borrow_mut();
        for (key, op) in batch.drain(..) {
            if let Some((key, op)) = self.lanes.admit(key, op) {
                shared.submit(self.core, key, op);
            }
        }
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Wait) -> bool {
        assert_eq!(wait, Wait::No, "the world decides when time passes");
        let shared = &mut *self.shared.borrow_mut();
        let before = done.len();
        done.append(&mut self.withdrawn);
        // What leaves makes room for what waits, and that may be done at once.
        while !shared.done[self.core].is_empty() {
            for completed in shared.done[self.core].drain(..) {
                self.lanes.leave(Room::of(&completed.op));
                done.push(completed);
            }
            while let Some((key, op)) = self.lanes.next() {
                shared.submit(self.core, key, op);
            }
        }
        done.len() > before
    }

    fn cancel(&mut self, key: OpKey) {
        let cancelled = |op| Completion { key, result: Err(IoError::from_errno(libc::ECANCELED)), op };
        let shared = &mut *self.shared.borrow_mut();
        if let Some(op) = shared.network.cancel(self.core, key) {
            shared.done[self.core].push(cancelled(op));
        } else if let Some(op) = self.lanes.withdraw(key) {
            self.withdrawn.push(cancelled(op));
        }
    }

    fn withdraw(&mut self, key: OpKey) {
        if let Some(op) = self.lanes.withdraw(key) {
            let result = Err(IoError::from_errno(libc::ECANCELED));
            self.withdrawn.push(Completion { key, result, op });
        }
    }

    fn now(&self) -> Instant {
        self.shared.borrow().now()
    }

    fn wall_clock(&self) -> WallTime {
        let nanos = self.now().as_nanos();
        WallTime {
            secs: WALL_CLOCK_START_SECS + nanos / 1_000_000_000,
            micros: (nanos % 1_000_000_000 / 1000) as u32,
        }
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn pick(&mut self, ready: usize) -> usize {
        let mut shared = self.shared.borrow_mut();
        let by_chance = ready > 1 && !shared.orderly;
        let picked = if by_chance { shared.rng.below(ready as u64) as usize } else { 0 };
        shared.note(6, (picked as u64) << 32 | ready as u64);
        picked
    }
}
