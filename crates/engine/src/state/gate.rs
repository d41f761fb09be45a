//! The gate every change passes on its core: counts what is in flight, holds changes back while the
//! array is recorded clean or something needs the array to itself.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use wattle_rt::{Instant, Notify};

/// One core's gate.
pub(crate) struct Gate {
    /// The dirty mark is durable on every member (invariant 1), so changes may go.
    recorded_dirty: Cell<bool>,
    /// A request has the array to itself.
    closed: Cell<bool>,
    in_flight: Cell<u32>,
    /// Steps of a resync or a rebuild: a request that wants the array to itself waits for them, but
    /// they keep no array dirty.
    background: Cell<u32>,
    last_use: Cell<Instant>,
    /// Signalled when the gate opens and when nothing is in flight any more.
    moved: Notify,
}

/// A change in flight; leaving is its drop.
pub(crate) struct GatePermit {
    gate: Rc<Gate>,
}

/// A step of a resync or a rebuild in flight; leaving is its drop.
pub(crate) struct BackgroundPermit {
    gate: Rc<Gate>,
}

impl Gate {
    pub fn new(now: Instant) -> Self {
        Self {
            recorded_dirty: Cell::new(false),
            closed: Cell::new(false),
            in_flight: Cell::new(0),
            background: Cell::new(0),
            last_use: Cell::new(now),
            moved: Notify::new(),
        }
    }

    /// Waits while the gate is closed.
    pub async fn opened(&self) {
        while self.closed.get() {
            self.moved.wait().await;
        }
    }

    /// Enters a change, if the dirty mark is recorded and the gate is open. It is not async:
    /// nothing can happen between the check and the count.
    pub fn enter_write(self: &Rc<Self>, now: Instant) -> Option<GatePermit> {
        (self.recorded_dirty.get() && !self.closed.get()).then(|| self.permit(now))
    }

    /// Enters something that needs stripes to itself but changes no data: a reconstruction.
    pub fn enter_read(self: &Rc<Self>, now: Instant) -> Option<GatePermit> {
        (!self.closed.get()).then(|| self.permit(now))
    }

    /// Enters a step of a resync or a rebuild.
    pub fn enter_background(self: &Rc<Self>) -> Option<BackgroundPermit> {
        (!self.closed.get()).then(|| {
            self.background.update(|steps| steps + 1);
            BackgroundPermit { gate: self.clone() }
        })
    }

    /// A permit regardless of the gate, for the task that closed it.
    pub fn permit(self: &Rc<Self>, now: Instant) -> GatePermit {
        self.in_flight.set(self.in_flight.get() + 1);
        self.last_use.set(now);
        GatePermit { gate: self.clone() }
    }

    /// The dirty mark is durable.
    pub fn set_dirty(&self, now: Instant) {
        self.recorded_dirty.set(true);
        self.last_use.set(now);
    }

    /// Whether no write can pass now.
    pub fn holds_writes_back(&self) -> bool {
        self.closed.get() || !self.recorded_dirty.get()
    }

    /// Holds back changes if none is in flight and none was for `idle`; says whether it does. A
    /// change that comes now waits for the dirty mark again.
    pub fn try_set_clean(&self, now: Instant, idle: Duration) -> bool {
        let quiet = self.in_flight.get() == 0 && now - self.last_use.get() >= idle;
        if quiet {
            self.recorded_dirty.set(false);
        }
        quiet
    }

    /// Closes the gate and waits until nothing is in flight.
    pub async fn close(&self) {
        self.closed.set(true);
        while self.in_flight.get() + self.background.get() > 0 {
            self.moved.wait().await;
        }
    }

    pub fn open(&self) {
        self.closed.set(false);
        self.moved.notify_all();
    }
}

impl Drop for GatePermit {
    fn drop(&mut self) {
        let left = self.gate.in_flight.get() - 1;
        self.gate.in_flight.set(left);
        if left == 0 {
            self.gate.moved.notify_all();
        }
    }
}

impl Drop for BackgroundPermit {
    fn drop(&mut self) {
        self.gate.background.update(|steps| steps - 1);
        if self.gate.background.get() == 0 {
            self.gate.moved.notify_all();
        }
    }
}
