//! The time a simulated drive takes: what its model says, or one server that works off what arrives
//! and a latency on top.

use crate::base::rng::Rng;
use crate::base::time::{Instant, nanos};
use crate::model::{Request, Server};
use crate::op::Op;
use crate::sim::backend::Event;
use crate::sim::drive::DriveConfig;
use std::time::Duration;

/// What a drive has done since it was made; subtract two to measure what lies between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveTotals {
    /// Reads submitted.
    pub reads: u64,
    /// Bytes of these.
    pub read_bytes: u64,
    /// Writes submitted.
    pub writes: u64,
    /// Bytes of these.
    pub written_bytes: u64,
    /// Of these, bytes that are not, or no longer, in a disk's volatile cache alone.
    pub landed_bytes: u64,
    /// Zeroings submitted.
    pub zeroings: u64,
    /// Flushes submitted.
    pub flushes: u64,
    /// How long it has been at work: that part of its operations' service times that has passed.
    pub busy: Duration,
    /// How long operations have been in flight, added up over operations: divided by a time it is
    /// the mean queue depth.
    pub in_flight: Duration,
}

impl std::ops::Sub for DriveTotals {
    type Output = DriveTotals;

    fn sub(self, earlier: DriveTotals) -> DriveTotals {
        DriveTotals {
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes - earlier.read_bytes,
            writes: self.writes - earlier.writes,
            written_bytes: self.written_bytes - earlier.written_bytes,
            landed_bytes: self.landed_bytes.saturating_sub(earlier.landed_bytes),
            zeroings: self.zeroings - earlier.zeroings,
            flushes: self.flushes - earlier.flushes,
            busy: self.busy.saturating_sub(earlier.busy),
            in_flight: self.in_flight.saturating_sub(earlier.in_flight),
        }
    }
}

/// The schedule of one drive.
#[derive(Debug, Default)]
pub(crate) struct Service {
    /// When the part of the drive that all operations share is free again.
    busy_until: Instant,
    totals: DriveTotals,
    in_flight: u32,
    /// Operations that change what is on the drive.
    writes_in_flight: u32,
    /// When `in_flight` last changed.
    changed: Instant,
    /// Its model, at work on what is in flight.
    model: Option<Box<Server<Event>>>,
}

impl Service {
    pub(crate) fn new(config: &DriveConfig, rng: &mut Rng) -> Service {
        let server = |model| Box::new(Server::new(model, config.size_bytes, rng));
        Service { model: config.model.as_ref().map(server), ..Service::default() }
    }

    /// Takes an operation in, `slow` times as slow as `config` says; answers when it completes. If
    /// a model decides that, the operation is to follow by [`Service::submit`].
    pub(crate) fn accept(
        &mut self,
        config: &DriveConfig,
        op: &Op,
        slow: u32,
        rng: &mut Rng,
        now: Instant,
    ) -> Option<Instant> {
        let len = op.extent().1;
        self.count(op, len);
        self.change_in_flight(now, op, 1);
        if self.model.is_some() {
            return None;
        }
        let (latency, bytes_per_second, per_second) = match op {
            Op::Read(_) => (&config.read_latency, config.read_bytes_per_second, config.reads_per_second),
            Op::Write(..) => (&config.write_latency, config.write_bytes_per_second, config.writes_per_second),
            Op::WriteZeroes { .. } => (&config.write_latency, 0, config.writes_per_second),
            _ => (&config.flush_latency, 0, 0),
        };
        let (from, to) = (nanos(latency.start), nanos(latency.end));
        let latency = from + if to > from { rng.below(to - from) } else { 0 };
        let slow = u64::from(slow.max(1));
        let latency = Duration::from_nanos(latency.saturating_mul(slow));
        if matches!(op, Op::Flush { .. }) && !config.volatile_cache {
            // There is nothing to write out, so nothing to wait for.
            return Some(now + latency);
        }
        let share = |amount: u64, per_second: u64| match per_second {
            0 => 0,
            _ => (u128::from(amount) * 1_000_000_000 / u128::from(per_second)) as u64,
        };
        let busy =
            share(len, bytes_per_second).max(share(1, config.ops_per_second)).max(share(1, per_second));
        let busy = Duration::from_nanos(busy.saturating_mul(slow));
        self.totals.busy += busy;
        self.busy_until = self.busy_until.max(now) + busy;
        Some(self.busy_until + latency)
    }

    /// Gives the model an operation that was taken in.
    pub(crate) fn submit(&mut self, event: Event, slow: u32, now: Instant) {
        let model = self.model.as_mut().expect("only a model leaves the time of completion open");
        model.submit(Request::of(&event.op, slow), event, now);
    }

    /// When the model has news next.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.model.as_ref()?.next()
    }

    /// Lets the model's time pass; appends what completed.
    pub(crate) fn advance(&mut self, now: Instant, done: &mut Vec<Event>) {
        if let Some(model) = &mut self.model {
            model.advance(now, done);
        }
    }

    /// What the model has in flight.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.model.iter().flat_map(|model| model.owners())
    }

    /// Takes what the model has in flight, in the order of arrival.
    pub(crate) fn drain(&mut self) -> Vec<Event> {
        self.model.as_mut().map(|model| model.drain()).unwrap_or_default()
    }

    /// An operation that was taken in has completed.
    pub(crate) fn complete(&mut self, op: &Op, now: Instant) {
        self.change_in_flight(now, op, -1);
    }

    /// Writes and zeroings that are in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(crate) fn writes_in_flight(&self) -> u32 {
        self.writes_in_flight
    }

    /// The power is gone, and with it the queue.
    pub(crate) fn reset(&mut self) {
        self.busy_until = Instant::START;
        self.in_flight = 0;
        self.writes_in_flight = 0;
        if let Some(model) = &mut self.model {
            model.lose_cache();
        }
    }

    pub(crate) fn totals(&self, now: Instant) -> DriveTotals {
        let busy = match &self.model {
            Some(model) => model.busy(now),
            None => self.totals.busy.saturating_sub(self.busy_until - now),
        };
        let in_flight = self.totals.in_flight + (now - self.changed) * self.in_flight;
        let cached_bytes = self.model.as_ref().map_or(0, |model| model.cached_bytes());
        let landed_bytes = self.totals.written_bytes.saturating_sub(cached_bytes);
        DriveTotals { landed_bytes, busy, in_flight, ..self.totals }
    }

    fn count(&mut self, op: &Op, len: u64) {
        let totals = &mut self.totals;
        match op {
            Op::Read(_) => {
                totals.reads += 1;
                totals.read_bytes += len;
            }
            Op::Write(..) => {
                totals.writes += 1;
                totals.written_bytes += len;
            }
            Op::WriteZeroes { .. } => totals.zeroings += 1,
            _ => totals.flushes += 1,
        }
    }

    fn change_in_flight(&mut self, now: Instant, op: &Op, by: i32) {
        self.totals.in_flight += (now - self.changed) * self.in_flight;
        self.changed = now;
        self.in_flight = self.in_flight.saturating_add_signed(by);
        if matches!(op, Op::Write(..) | Op::WriteZeroes { .. }) {
            self.writes_in_flight = self.writes_in_flight.saturating_add_signed(by);
        }
    }
}
