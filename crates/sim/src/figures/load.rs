//! Clients in a closed loop for a fixed time.

use std::ops::Range;
use std::time::Duration;

use wattle_engine::ArrayHandle;
use wattle_modelled::{Measured, Ramp, Rw, look};
use wattle_rt::{Core, DriveControl};

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessPattern {
    /// Anywhere, at multiples of the request's size.
    Random,
    /// One after the other, all clients of a core together, and from the start again at the end.
    Sequential,
}

/// What clients ask for, and how long.
#[derive(Clone, Debug)]
pub struct FigureLoad {
    /// Requests in flight; they are dealt out to the cores.
    pub depth: usize,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Of a hundred requests, so many are reads.
    pub reads_percent: u32,
    /// Where they go.
    pub access: AccessPattern,
    /// Part of the volume they go to, in bytes; what is beyond the volume's end does not count.
    pub reach: Range<u64>,
    /// Time before the window in which nothing is counted.
    pub warm_up: Duration,
    /// Time in which requests are counted.
    pub window: Duration,
}

impl FigureLoad {
    /// Random writes of 4 KiB anywhere: 20 ms of warm-up, 200 ms measured.
    #[must_use]
    pub fn random_writes(depth: usize) -> FigureLoad {
        FigureLoad {
            depth,
            request_bytes: 4096,
            reads_percent: 0,
            access: AccessPattern::Random,
            reach: 0..u64::MAX,
            warm_up: Duration::from_millis(20),
            window: Duration::from_millis(200),
        }
    }

    /// The same in the laboratory's terms, a job for each core.
    ///
    /// # Panics
    /// If the requests cannot be dealt out evenly.
    #[must_use]
    pub fn over(&self, cores: usize) -> wattle_modelled::Load {
        let numjobs = cores.min(self.depth);
        assert!(self.depth.is_multiple_of(numjobs), "{} requests over {cores} cores", self.depth);
        wattle_modelled::Load {
            rw: match self.access {
                AccessPattern::Random => Rw::RandRw,
                AccessPattern::Sequential => Rw::ReadWrite,
            },
            bs_bytes: self.request_bytes,
            iodepth: self.depth / numjobs,
            numjobs,
            rwmixread: self.reads_percent,
            offset_bytes: self.reach.start,
            size_bytes: Some(self.reach.end - self.reach.start),
            norandommap: true,
            ramp: Ramp::For(self.warm_up),
            runtime: Some(self.window),
            ..wattle_modelled::Load::new()
        }
    }

    /// Runs it on `array`, whose members are `drives`.
    ///
    /// # Panics
    /// If a request fails.
    pub async fn run(&self, core: &Core, array: &ArrayHandle, drives: &[DriveControl]) -> Measured {
        let load = self.over(core.cores());
        let counted = load.run(core, &array.volume(), look(core, array, drives)).await;
        Measured::new(&load, counted.unwrap_or_else(|error| panic!("{error}")))
    }
}
