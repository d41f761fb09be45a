//! The table of operations: from the call that starts one to the outcome that its future takes.

use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Inner;
use super::reports::Reporting;
use super::wake::Wake;
use crate::backend::Wait;
use crate::base::error::IoError;
use crate::base::system;
use crate::base::time::Instant;
use crate::device::Device;
use crate::executor::core::Core;
use crate::executor::serve::{self, Serve, Served};
use crate::model::drive::ModelledDrive;
use crate::op::traffic::{Counted, Traffic, Unanswered};
use crate::op::{Completion, Op, OpKey, Progress};

pub(super) enum OpState {
    Free,
    Pending { wake: Option<Wake>, wanted: bool, kind: OpKind },
    Done(Result<usize, IoError>),
}

/// What becomes of an operation once its outcome is no longer wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OpKind {
    /// It waits on a peer, and is cancelled.
    Peer,
    /// It changes nothing: it need not begin, and is not waited for when the runtime ends.
    Read,
    /// It runs to its end.
    Change,
    /// A task carries it out, whose own operations run to their ends.
    Served,
}

impl OpKind {
    fn of(op: &Op) -> OpKind {
        match op {
            Op::Read(_) => OpKind::Read,
            op if op.waits_on_peer() => OpKind::Peer,
            op if op.device().and_then(Device::hosted::<Served>).is_some() => OpKind::Served,
            _ => OpKind::Change,
        }
    }
}

pub(super) struct OpSlot {
    pub state: OpState,
    /// The operation, when nothing is to be done for it any more.
    op: Option<Op>,
    counted: Option<Counted>,
    /// For flushes and forced writes.
    reporting: Option<Box<Reporting>>,
    started: &'static Location<'static>,
}

impl OpSlot {
    /// What is counted of an operation in `traffic` that is awaited still: it is under way, or is a
    /// flush that waits for what others report.
    fn awaited(&self, traffic: &Rc<Traffic>) -> Option<&Counted> {
        let counted = self.counted.as_ref().filter(|counted| counted.is_in(traffic))?;
        self.reporting.as_ref().is_none_or(|report| report.is_waiting()).then_some(counted)
    }
}

/// The operation is answered, or no answer is wanted.
fn complete(counted: &mut Option<Counted>, op: &Option<Op>, now: Instant) {
    if let (Some(counted), Some(op)) = (counted.take(), op) {
        counted.complete(op, now);
    }
}

/// The model behind a device that takes its time, on the machine's clock.
fn modelled(device: &Device) -> Option<&ModelledDrive> {
    device.hosted()
}

impl Inner {
    /// Queues an operation for the next batch, or has a task or a model do it.
    pub(crate) fn start(self: &Rc<Inner>, op: Op, started: &'static Location<'static>) -> OpKey {
        let key = self.new_op(OpKind::of(&op), started);
        if let Some(reporting) = Reporting::of(&op) {
            self.ops.borrow_mut()[key.0 as usize].reporting = Some(reporting);
        }
        let hosted = op.device().filter(|device| device.is_hosted());
        if let Some(served) = hosted.and_then(Device::hosted::<Served>) {
            let server = served.server.clone();
            self.start_served(server, key, op, started);
            return key;
        }
        self.in_flight.set(self.in_flight.get() + 1);
        match op.device() {
            Some(device) if device.is_hosted() && modelled(device).is_some() && !self.is_simulated() => {
                let device = device.clone();
                self.start_modelled(&device, key, op);
            }
            _ => self.batch.borrow_mut().push((key, op)),
        }
        key
    }

    /// A task does it. It is not among the operations that are waited for when the runtime ends:
    /// its own are.
    fn start_served(
        self: &Rc<Inner>,
        server: Arc<dyn Serve>,
        key: OpKey,
        mut op: Op,
        started: &'static Location<'static>,
    ) {
        let inner = self.clone();
        let task = async move {
            let result = serve::carry_out(&Core::of(inner.clone()), &*server, &mut op).await;
            inner.settle(key, result, Some(op));
        };
        self.spawn(Box::pin(task), started);
    }

    fn start_modelled(&self, device: &Device, key: OpKey, op: Op) {
        let mut watched = self.watched.borrow_mut();
        if !watched.iter().any(|watched| watched.same(device)) {
            if !self.sleeps_exactly.replace(true) {
                system::sleep_exactly();
            }
            watched.push(device.clone());
        }
        if let Some(drive) = modelled(device) {
            drive.submit(self.bell.clone(), key, op);
        }
    }

    /// Takes what completed on modelled drives; answers how long a reap may block before there is
    /// more.
    fn look_at_modelled(&self, done: &mut Vec<Completion>, wait: Wait) -> Wait {
        let mut watched = self.watched.borrow_mut();
        let mut again = None;
        watched.retain(|device| {
            let look = modelled(device).and_then(|drive| drive.look(&self.bell, done));
            again = [again, look].into_iter().flatten().min();
            look.is_some()
        });
        match (wait, again) {
            (Wait::Until(until), Some(again)) => {
                let again = self.now() + again;
                Wait::Until(Some(until.map_or(again, |until| until.min(again))))
            }
            (wait, _) => wait,
        }
    }

    /// An operation that needs no backend: its outcome is known.
    pub(crate) fn finished(
        &self,
        result: Result<usize, IoError>,
        op: Op,
        at: &'static Location<'static>,
    ) -> OpKey {
        let key = self.new_op(OpKind::of(&op), at);
        let slot = &mut self.ops.borrow_mut()[key.0 as usize];
        (slot.state, slot.op) = (OpState::Done(result), Some(op));
        key
    }

    /// An operation that is done, and ends with the next reap.
    pub(crate) fn finishing(&self, moved: usize, op: Op, at: &'static Location<'static>) -> OpKey {
        let key = self.new_op(OpKind::of(&op), at);
        self.ops.borrow_mut()[key.0 as usize].op = Some(op);
        self.in_flight.set(self.in_flight.get() + 1);
        self.finishing.borrow_mut().push((key, moved));
        key
    }

    /// A slot for a drive's operation that is pending. Its content is set in place: to move the
    /// slot costs more than to fill it.
    fn new_op(&self, kind: OpKind, started: &'static Location<'static>) -> OpKey {
        let mut ops = self.ops.borrow_mut();
        let pending = OpState::Pending { wake: None, wanted: true, kind };
        match self.free_ops.borrow_mut().pop() {
            Some(index) => {
                let slot = &mut ops[index as usize];
                (slot.state, slot.counted, slot.started) = (pending, None, started);
                OpKey(index)
            }
            None => {
                ops.push(OpSlot { state: pending, op: None, counted: None, reporting: None, started });
                OpKey(u32::try_from(ops.len() - 1).expect("fewer operations than memory"))
            }
        }
    }

    /// Counts an operation on so many bytes from now until it completes.
    pub(crate) fn count_op(&self, key: OpKey, traffic: &Rc<Traffic>, bytes: u64) {
        let slot = &mut self.ops.borrow_mut()[key.0 as usize];
        if matches!(slot.state, OpState::Pending { .. }) {
            slot.counted = Some(Counted::new(traffic, bytes, self.turn_time()));
        }
    }

    /// Since when the oldest operation waits that is counted in `traffic`.
    pub(crate) fn waits_since(&self, traffic: &Rc<Traffic>) -> Option<Instant> {
        let ops = self.ops.borrow();
        ops.iter().filter_map(|slot| slot.awaited(traffic)).map(Counted::began).min()
    }

    /// What waits of the operations counted in `traffic`, and when one was answered last.
    pub(crate) fn unanswered(&self, traffic: &Rc<Traffic>) -> Unanswered {
        let mut unanswered = traffic.answered();
        for slot in &*self.ops.borrow() {
            let Some(counted) = slot.awaited(traffic) else { continue };
            match slot.state {
                OpState::Pending { kind: OpKind::Read, .. } => unanswered.add_read(counted.began()),
                _ => unanswered.add_change(counted.began()),
            }
        }
        unanswered
    }

    /// Wakes what waits for operations counted in `traffic`, from now on given up.
    pub(crate) fn give_up(&self, traffic: &Rc<Traffic>) {
        let mut wakes = Vec::new();
        for OpSlot { state, counted, reporting, .. } in &mut *self.ops.borrow_mut() {
            if counted.as_ref().is_some_and(|counted| counted.is_in(traffic)) {
                match state {
                    OpState::Pending { wake, .. } => wakes.extend(wake.take()),
                    _ => wakes.extend(reporting.as_mut().and_then(|report| report.wake.take())),
                }
            }
        }
        traffic.give_up();
        wakes.into_iter().for_each(|wake| self.wake(wake));
    }

    /// Whether anything is under way that the runtime waits for at its end: no read, nothing that
    /// was given up, and nothing whose task is gone.
    pub(super) fn must_be_awaited(&self) -> bool {
        let given_up = |counted: &Option<Counted>| counted.as_ref().is_some_and(Counted::is_given_up);
        self.ops.borrow().iter().any(|OpSlot { state, counted, .. }| {
            let ends = |kind| matches!(kind, OpKind::Peer | OpKind::Change);
            matches!(state, OpState::Pending { kind, .. } if ends(*kind)) && !given_up(counted)
        })
    }

    /// Whether an operation is counted in what was given up: it is under way, or is a flush that
    /// waits for what others report.
    pub(crate) fn is_given_up(&self, key: OpKey) -> bool {
        self.ops.borrow()[key.0 as usize].counted.as_ref().is_some_and(Counted::is_given_up)
    }

    /// The operation is a flush for the user of `device`, if it was not done at once.
    pub(crate) fn flush_through(&self, key: OpKey, device: &Device) {
        if let Some(reporting) = &mut self.ops.borrow_mut()[key.0 as usize].reporting {
            reporting.asked_through(device);
        }
    }

    /// The runtime ends, and flushes and forced writes in flight are not waited for.
    pub(super) fn forget_reports(&self) {
        let reports: Vec<_> =
            self.ops.borrow_mut().iter_mut().filter_map(|slot| slot.reporting.take()).collect();
        drop(reports);
    }

    /// The outcome of an operation, if it has come; frees the slot.
    pub(crate) fn poll_op(&self, key: OpKey, context: &Context<'_>) -> Poll<(Result<usize, IoError>, Op)> {
        let mut ops = self.ops.borrow_mut();
        let OpSlot { state, op, counted, reporting, .. } = &mut ops[key.0 as usize];
        match (&mut *state, &mut *reporting) {
            (OpState::Pending { wake, .. }, _) => {
                *wake = Some(self.wake_of(context));
                return Poll::Pending;
            }
            (OpState::Done(result), Some(report)) => {
                if report.poll(result, context).is_pending() {
                    report.wake = Some(self.wake_of(context));
                    return Poll::Pending;
                }
                *reporting = None;
                complete(counted, op, self.turn_time());
            }
            _ => {}
        }
        let (OpState::Done(result), Some(op)) = (std::mem::replace(state, OpState::Free), op.take()) else {
            unreachable!("a future polls its own slot, which is pending or done")
        };
        self.free_ops.borrow_mut().push(key.0);
        Poll::Ready((result, op))
    }

    /// The outcome is no longer wanted. The slot stays until the operation is done, with its
    /// buffers.
    pub(crate) fn forget_op(&self, key: OpKey) {
        let mut ops = self.ops.borrow_mut();
        let OpSlot { state, op, counted, reporting, .. } = &mut ops[key.0 as usize];
        match state {
            // The runtime has ended, and nothing else had it.
            OpState::Free => return,
            OpState::Done(_) => {
                *state = OpState::Free;
                complete(counted, op, self.turn_time());
                let dropped = (op.take(), reporting.take());
                self.free_ops.borrow_mut().push(key.0);
                // Outside the borrow: a stream may close, a buffer may go.
                drop(ops);
                drop(dropped);
                return;
            }
            OpState::Pending { kind: OpKind::Change | OpKind::Served, wake, wanted } => {
                (*wake, *wanted) = (None, false);
                return;
            }
            OpState::Pending { wake, wanted, .. } => (*wake, *wanted) = (None, false),
        }
        let is_read = matches!(state, OpState::Pending { kind: OpKind::Read, .. });
        drop(ops);
        // Not submitted yet: it need not even begin.
        let mut batch = self.batch.borrow_mut();
        let queued = batch.iter().rposition(|(queued, _)| *queued == key);
        let unstarted = queued.map(|at| batch.remove(at));
        drop(batch);
        match unstarted {
            Some((key, op)) => {
                self.complete(Completion { key, result: Err(IoError::from_errno(libc::ECANCELED)), op });
            }
            None if is_read => self.backend.borrow_mut().withdraw(key),
            None => self.backend.borrow_mut().cancel(key),
        }
    }

    /// Gives everything queued to the backend, and to other cores what is for them.
    pub(crate) fn submit(&self) {
        self.send_mail();
        let mut batch = self.batch.borrow_mut();
        if !batch.is_empty() {
            self.backend.borrow_mut().submit(&mut batch);
            assert!(batch.is_empty(), "a backend takes the whole batch");
        }
    }

    /// Takes completions; blocks as told only if nothing is there.
    pub(crate) fn reap(&self, wait: Wait) -> bool {
        let mut finishing = std::mem::take(&mut *self.finishing.borrow_mut());
        let mut done = std::mem::take(&mut *self.done.borrow_mut());
        let wait =
            if self.watched.borrow().is_empty() { wait } else { self.look_at_modelled(&mut done, wait) };
        let wait = if finishing.is_empty() && done.is_empty() { wait } else { Wait::No };
        self.backend.borrow_mut().reap(&mut done, wait);
        let any = !finishing.is_empty() || !done.is_empty();
        if any {
            self.turn_time.set(self.now());
        }
        // A simulated world has one queue, from which it draws as chance has it.
        self.resuming.set(!self.is_simulated());
        for (key, moved) in finishing.drain(..) {
            self.in_flight.set(self.in_flight.get() - 1);
            self.settle(key, Ok(moved), None);
        }
        done.drain(..).for_each(|done| self.complete(done));
        self.resuming.set(false);
        finishing.append(&mut self.finishing.borrow_mut());
        *self.finishing.borrow_mut() = finishing;
        *self.done.borrow_mut() = done;
        self.send_mail();
        any
    }

    fn complete(&self, done: Completion) {
        let Completion { key, result, mut op } = done;
        // A peer's operation whose outcome is not wanted is not continued; a drive's write is, or
        // it would be torn.
        let abandoned = match &self.ops.borrow()[key.0 as usize].state {
            OpState::Pending { wanted, kind, .. } => !*wanted && *kind == OpKind::Peer,
            _ => unreachable!("a backend completes an operation once"),
        };
        let moved = result.is_ok();
        let result = match op.progress(result) {
            Progress::Continue if !abandoned => {
                if let (Op::Send { stream, .. }, true) = (&op, moved) {
                    stream.note_sent_a_part(self.turn_time());
                }
                self.batch.borrow_mut().push((key, op));
                return;
            }
            Progress::Continue => Err(IoError::from_errno(libc::ECANCELED)),
            Progress::Finished(result) => result,
        };
        self.in_flight.set(self.in_flight.get() - 1);
        self.settle(key, result, Some(op));
    }

    /// The end of an operation, which is in its slot or comes back now: its outcome goes to the
    /// task that wants it.
    fn settle(&self, key: OpKey, result: Result<usize, IoError>, back: Option<Op>) {
        let mut ops = self.ops.borrow_mut();
        let OpSlot { state, op, counted, reporting, .. } = &mut ops[key.0 as usize];
        let OpState::Pending { wake, wanted, .. } = state else { unreachable!("an operation ends once") };
        if back.is_some() {
            *op = back;
        }
        let report = reporting.take();
        if report.is_none() || !*wanted {
            complete(counted, op, self.turn_time());
        }
        let (wake, failure) = (wake.take(), result.err());
        let dropped = if *wanted {
            *state = OpState::Done(result);
            None
        } else {
            *state = OpState::Free;
            self.free_ops.borrow_mut().push(key.0);
            op.take()
        };
        drop(ops);
        drop(dropped);
        if let Some(mut report) = report {
            // Outside the borrow: flushes are woken, of other cores too.
            report.end(failure);
            let slot = &mut self.ops.borrow_mut()[key.0 as usize];
            if matches!(slot.state, OpState::Done(_)) {
                // A flush that waits for what others report counts until it is answered.
                if !report.is_waiting() {
                    complete(&mut slot.counted, &slot.op, self.turn_time());
                }
                slot.reporting = Some(report);
            }
        }
        if let Some(wake) = wake {
            self.wake(wake);
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    /// Where the caller started an operation.
    pub(crate) fn op_started(&self, key: OpKey) -> &'static Location<'static> {
        self.ops.borrow()[key.0 as usize].started
    }
}
