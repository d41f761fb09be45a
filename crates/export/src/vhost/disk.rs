//! What the connections to one volume share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use wattle_engine::VolumeRef;
use wattle_rt::Instant;
use wattle_rt::sync::{Latch, Notify};

use super::session::SessionFault;

/// Tells an operator of hypervisors that break the rules, no more often than every ten seconds: one
/// that connects again at once would fill the log.
pub(super) struct FaultReport {
    pub(super) tell: Box<dyn Fn(&SessionFault)>,
    pub(super) told_at: Cell<Option<Instant>>,
}

impl FaultReport {
    const TOLD_TIME_MIN: Duration = Duration::from_secs(10);

    pub(super) fn tell(&self, now: Instant, fault: &SessionFault) {
        if self.told_at.get().is_none_or(|told| told + Self::TOLD_TIME_MIN <= now) {
            self.told_at.set(Some(now));
            (self.tell)(fault);
        }
    }
}

/// What all connections to one volume share, on the core that accepts them.
pub(super) struct Disk {
    pub(super) volume: VolumeRef,
    /// Connections now.
    pub(super) sessions: RefCell<Vec<Rc<Told>>>,
    /// How often [`Draining`] is held.
    pub(super) draining: Cell<usize>,
    pub(super) drained: Notify,
    /// For the core of the next connection's first queue.
    pub(super) first_core: Cell<usize>,
    pub(super) report: FaultReport,
}

/// What a connection is told by the server.
#[derive(Default)]
pub(super) struct Told {
    /// To finish what was begun and end.
    pub(super) stop: Latch,
    /// The volume has another size.
    pub(super) resized: Latch,
}

impl Disk {
    /// Waits until nothing is under way in queues that end.
    pub(super) async fn wait_until_drained(&self) {
        while self.draining.get() > 0 {
            self.drained.wait().await;
        }
    }
}

/// A queue ends, or all of a connection's: no other begins as long as this is held.
pub(super) struct Draining(Rc<Disk>);

impl Draining {
    pub(super) fn of(disk: &Rc<Disk>) -> Self {
        disk.draining.set(disk.draining.get() + 1);
        Self(disk.clone())
    }
}

impl Drop for Draining {
    fn drop(&mut self) {
        self.0.draining.set(self.0.draining.get() - 1);
        self.0.drained.notify_all();
    }
}
