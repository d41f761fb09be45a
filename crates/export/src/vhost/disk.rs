//! What the connections to one volume share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use wattle_engine::VolumeRef;
use wattle_engine::volume::Remains;
use wattle_rt::sync::{Latch, Notify};
use wattle_rt::{Instant, MappingShare};

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
    /// What ends, a queue or all of a connection's, as long as requests of it are under way, and
    /// what clients of other fronts left behind.
    pub(super) remains: Arc<Remains>,
    /// A connection has ended.
    pub(super) one_ended: Notify,
    /// For the core of the next connection's first queue.
    pub(super) first_core: Cell<usize>,
    pub(super) report: FaultReport,
    /// Of memory of its guests, and logs.
    pub(super) mappings: MappingShare,
}

/// What a connection is told by the server.
#[derive(Default)]
pub(super) struct Told {
    /// To finish what was begun and end.
    pub(super) stop: Latch,
    /// The volume has another size.
    pub(super) resized: Latch,
}
