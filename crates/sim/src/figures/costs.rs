//! What a write-intent bitmap and a partial parity log cost: the same load with and without.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use wattle_engine::ArraySpec;
use wattle_engine::intent::IntentSpec;
use wattle_engine::log::{LogArea, LogSpec};
use wattle_engine::regions::Regions;
use wattle_engine::units::Sector;

use super::keeper::{Counts, Keeper, LOG_AT, LOG_BYTES, Ppl};
use super::load::{Load, Measured};
use super::site::Setup;

/// Sectors that a bit stands for: mdadm's default of 64 MiB.
const REGION: Sector = Sector(64 << 11);
/// md's `daemon_sleep`.
const SWEEP: Duration = Duration::from_secs(5);

/// A load with something and without it.
#[derive(Clone, Debug)]
pub struct Cost {
    /// Without.
    pub without: Measured,
    /// With.
    pub with: Measured,
    /// How often metadata was written with it.
    pub counts: Counts,
}

impl Cost {
    /// The part of the requests per second that it costs.
    #[must_use]
    pub fn part(&self) -> f64 {
        1.0 - self.with.per_second() / self.without.per_second()
    }
}

/// Keeps a bitmap of which no bit is set.
#[must_use]
pub fn with_intent(spec: ArraySpec) -> ArraySpec {
    with_swept_intent(spec, SWEEP)
}

/// Keeps a bitmap of which no bit is set, and looks for bits to clear so often.
#[must_use]
pub fn with_swept_intent(spec: ArraySpec, sweep: Duration) -> ArraySpec {
    let marked = Regions::new(REGION, spec.geometry.sync_sectors());
    ArraySpec { intent: Some(IntentSpec { marked, sweep }), ..spec }
}

/// Writes a partial parity log.
#[must_use]
pub fn with_log(mut spec: ArraySpec) -> ArraySpec {
    for member in &mut spec.members {
        member.log = Some(LogArea { offset_bytes: LOG_AT, size_bytes: LOG_BYTES });
    }
    ArraySpec { log: Some(LogSpec { ring: true, format: Arc::new(Ppl) }), ..spec }
}

/// What `change` costs.
#[must_use]
pub fn cost(setup: &Setup, load: &Load, change: impl FnOnce(ArraySpec) -> ArraySpec) -> Cost {
    let counts = Rc::new(Counts::default());
    let with =
        setup.measure_with(load, change, |core, drives| Box::new(Keeper::new(core, drives, counts.clone())));
    Cost { without: setup.measure(load), with, counts: counts.as_ref().clone() }
}

/// Random writes of 4 KiB to regions that are dirty from the start of the window on: the first writes, in the warm-up, found none
/// so.
#[must_use]
pub fn dirty(depth: usize, regions: Range<u64>, setup: &Setup) -> Load {
    // Sixteen writes to a region before the window leave hardly one that was not written.
    let per_second = if depth == 1 { 7_000 } else { 80_000 };
    let warm_up = Duration::from_millis(16 * (regions.end - regions.start) * 1000 / per_second);
    let geometry = setup.geometry();
    // A bit stands for sectors of a member, in RAID 10 of the array.
    let width = geometry.array_sectors().0 / geometry.sync_sectors().0;
    let bytes = |region: u64| region * REGION.0 * 512 * width;
    Load { warm_up, reach: bytes(regions.start)..bytes(regions.end), ..Load::random_writes(depth) }
}
