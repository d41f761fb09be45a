//! What a volume reports of its quality of service.

use std::cell::Cell;
use std::time::Duration;

use super::limits::{QosCost, QosLimits};

/// A volume's quality of service as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QosStatus {
    /// What is set.
    pub limits: QosLimits,
    /// Counts of all cores.
    pub totals: QosTotals,
    /// What volumes without a goal may have under way on a core, in thousandths of a request, while
    /// one with a goal is used.
    pub depth_thousandths: Option<u64>,
}

/// What was held back since the volume was offered, and what is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QosTotals {
    /// Requests that limits or shares looked at.
    pub requests: u64,
    /// Of these, bytes.
    pub bytes: u64,
    /// Requests that the volume's own limits held back.
    pub limited: u64,
    /// How long, all together.
    pub limited_time: Duration,
    /// Requests that waited for other volumes.
    pub shared: u64,
    /// How long, all together.
    pub shared_time: Duration,
    /// Held back by limits now.
    pub waiting_limited: u64,
    /// Waiting for other volumes now.
    pub waiting_shared: u64,
}

impl QosTotals {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            bytes: self.bytes + other.bytes,
            limited: self.limited + other.limited,
            limited_time: self.limited_time + other.limited_time,
            shared: self.shared + other.shared,
            shared_time: self.shared_time + other.shared_time,
            waiting_limited: self.waiting_limited + other.waiting_limited,
            waiting_shared: self.waiting_shared + other.waiting_shared,
        }
    }
}

/// One core's counts of a volume.
#[derive(Debug, Default)]
pub(super) struct FlowCounts(Cell<QosTotals>);

impl FlowCounts {
    pub fn totals(&self) -> QosTotals {
        self.0.get()
    }

    fn change(&self, change: impl FnOnce(&mut QosTotals)) {
        let mut totals = self.0.get();
        change(&mut totals);
        self.0.set(totals);
    }

    pub fn came(&self, cost: QosCost) {
        self.change(|totals| {
            totals.requests += cost.requests;
            totals.bytes += cost.bytes;
        });
    }

    pub fn shared(&self, time: Duration) {
        self.change(|totals| {
            totals.shared += 1;
            totals.shared_time += time;
        });
    }

    /// A request is held back until what is returned is dropped.
    pub fn held(&self) -> Held<'_> {
        self.change(|totals| totals.waiting_limited += 1);
        Held(self)
    }

    pub fn limited(&self, time: Duration) {
        self.change(|totals| {
            totals.limited += 1;
            totals.limited_time += time;
        });
    }
}

/// A request that is held back by a limit.
pub(super) struct Held<'a>(&'a FlowCounts);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.change(|totals| totals.waiting_limited -= 1);
    }
}
