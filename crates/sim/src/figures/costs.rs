//! What a write-intent bitmap and a partial parity log cost: the same load with and without.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use wattle_engine::ArraySpec;
use wattle_modelled::{Measured, MetadataCost, MetadataWrites, REGION};

use super::load::FigureLoad;
use super::site::FigureSetup;

/// A load with something and without it.
#[derive(Clone, Debug)]
pub struct Cost {
    /// Without.
    pub without: Measured,
    /// With.
    pub with: Measured,
    /// How often metadata was written with it.
    pub counts: MetadataWrites,
}

impl Cost {
    /// The part of the requests per second that it costs.
    #[must_use]
    pub fn part(&self) -> f64 {
        1.0 - self.with.per_second() / self.without.per_second()
    }
}

/// What `change` costs.
#[must_use]
pub fn cost(setup: &FigureSetup, load: &FigureLoad, change: impl FnOnce(ArraySpec) -> ArraySpec) -> Cost {
    let counts = Rc::new(MetadataWrites::default());
    let with = setup
        .measure_with(load, change, |core, drives| Box::new(MetadataCost::new(core, drives, counts.clone())));
    Cost { without: setup.measure(load), with, counts: counts.as_ref().clone() }
}

/// Random writes of 4 KiB to regions that are dirty from the start of the window on: the first
/// writes, in the warm-up, found none so.
#[must_use]
pub fn dirty(depth: usize, regions: Range<u64>, setup: &FigureSetup) -> FigureLoad {
    // Sixteen writes to a region before the window leave hardly one that was not written.
    let per_second = if depth == 1 { 7_000 } else { 80_000 };
    let warm_up = Duration::from_millis(16 * (regions.end - regions.start) * 1000 / per_second);
    let geometry = setup.build(0).geometry;
    // A bit stands for sectors of a member, in RAID 10 of the array.
    let width = geometry.array_sectors().0 / geometry.sync_sectors().0;
    let bytes = |region: u64| region * REGION.0 * 512 * width;
    FigureLoad {
        warm_up,
        reach: bytes(regions.start)..bytes(regions.end),
        ..FigureLoad::random_writes(depth)
    }
}
