//! A world in virtual time: simulated drives, cores stepped on one thread, power cuts and faults, all from one seed.

use crate::core::Core;
use crate::device::Device;
use crate::error::IoError;
use crate::time::Instant;
use std::ops::Range;
use std::time::Duration;

/// How a world is made.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// Everything that is left to chance comes from here.
    pub seed: u64,
    /// How many cores; all are stepped on the calling thread.
    pub cores: usize,
    /// A run ends when this much virtual time has passed since it began.
    pub time_limit: Duration,
    /// A run ends after this many polls of tasks: catches tasks that spin without waiting.
    pub poll_limit: u64,
    /// Chance, in a million, that a sector of a write in flight at a power cut becomes unreadable.
    pub torn_unreadable_ppm: u32,
}

impl Default for WorldConfig {
    fn default() -> WorldConfig {
        WorldConfig {
            seed: 0,
            cores: 1,
            time_limit: Duration::from_secs(24 * 3600),
            poll_limit: 100_000_000,
            torn_unreadable_ppm: 0,
        }
    }
}

/// How a simulated drive is made.
#[derive(Clone, Debug)]
pub struct DriveConfig {
    /// Size in bytes, a multiple of the sector.
    pub size_bytes: u64,
    /// The atomic unit: 512 or 4096.
    pub sector_bytes: u32,
    /// How long reads take.
    pub read_latency: Range<Duration>,
    /// How long writes take.
    pub write_latency: Range<Duration>,
    /// How long flushes take.
    pub flush_latency: Range<Duration>,
    /// Whether completed writes stay volatile until a flush.
    pub volatile_cache: bool,
    /// Its name in reports.
    pub name: String,
}

impl Default for DriveConfig {
    fn default() -> DriveConfig {
        let latency = Duration::from_micros(50)..Duration::from_micros(150);
        DriveConfig {
            size_bytes: 1 << 20,
            sector_bytes: 512,
            read_latency: latency.clone(),
            write_latency: latency.clone(),
            flush_latency: latency,
            volatile_cache: true,
            name: "sim".to_owned(),
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The main future returned.
    Done(T),
    /// The power went.
    PowerCut,
    /// Nothing can make progress any more: what is pending, one line each.
    Stuck(Vec<String>),
    /// The limit of virtual time or of polls was reached.
    TimeLimit,
}

impl<T> Outcome<T> {
    /// The result of a run that ended by itself; panics with the report otherwise.
    #[track_caller]
    pub fn expect_done(self) -> T {
        match self {
            Outcome::Done(value) => value,
            Outcome::PowerCut => panic!("the power was cut"),
            Outcome::Stuck(report) => panic!("stuck:\n{}", report.join("\n")),
            Outcome::TimeLimit => panic!("the time limit was reached"),
        }
    }
}

/// Drives, time and chance.
pub struct World {
    config: WorldConfig,
}

impl World {
    /// An empty world.
    pub fn new(config: WorldConfig) -> World {
        World { config }
    }

    /// Adds a drive. It lives as long as its handles, across runs and power cuts.
    pub fn add_drive(&mut self, config: DriveConfig) -> Device {
        Device::null(config.size_bytes)
    }

    /// The controls of a simulated drive.
    pub fn drive(&self, device: &Device) -> DriveControl {
        DriveControl { device: device.clone() }
    }

    /// Runs until `main` returns, the power goes, or nothing moves. Everything else is dropped at the end.
    pub fn run<T, F>(&mut self, main: F) -> Outcome<T>
    where
        F: AsyncFnOnce(Core) -> T,
    {
        let _ = (main, &self.config);
        Outcome::TimeLimit
    }

    /// Cuts the power when the `n`-th member operation from now on is submitted (1: the next).
    pub fn power_cut_after_ops(&mut self, n: u64) {
        let _ = n;
    }

    /// Cuts the power at a virtual time.
    pub fn power_cut_at(&mut self, at: Instant) {
        let _ = at;
    }

    /// Cuts the power between two runs.
    pub fn power_cut_now(&mut self) {}

    /// Takes back a planned power cut.
    pub fn cancel_power_cut(&mut self) {}

    /// The virtual time.
    pub fn now(&self) -> Instant {
        Instant::START
    }

    /// Member operations submitted so far.
    pub fn ops_submitted(&self) -> u64 {
        0
    }

    /// A hash over everything that happened: equal seeds give equal hashes.
    pub fn trace_hash(&self) -> u64 {
        0
    }
}

/// The faults and contents of one simulated drive.
#[derive(Clone, Debug)]
pub struct DriveControl {
    device: Device,
}

/// A drive's contents at one moment.
#[derive(Clone)]
pub struct DriveSnapshot {
    _private: (),
}

#[allow(missing_docs)]
impl DriveControl {
    pub fn gone_after_ops(&self, n: u64) {
        let _ = n;
    }
    pub fn gone_now(&self) {}
    pub fn come_back(&self) {}
    pub fn latent(&self, sector: u64) {
        let _ = sector;
    }
    pub fn fail_next_write(&self, n: u64) {
        let _ = n;
    }
    pub fn fail_next_flush(&self, n: u64) {
        let _ = n;
    }
    pub fn lying_flush(&self, lying: bool) {
        let _ = lying;
    }
    pub fn stall(&self, duration: Duration) {
        let _ = duration;
    }
    pub fn slow(&self, factor: u32) {
        let _ = factor;
    }
    pub fn lose_next_write(&self, n: u64) {
        let _ = n;
    }
    pub fn misdirect_next_write(&self, offset_bytes: i64) {
        let _ = offset_bytes;
    }
    pub fn peek(&self, offset: u64, len: usize) -> Vec<u8> {
        let _ = (offset, &self.device);
        vec![0; len]
    }
    pub fn peek_durable(&self, offset: u64, len: usize) -> Vec<u8> {
        let _ = offset;
        vec![0; len]
    }
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        let _ = (offset, bytes);
    }
    pub fn ops(&self) -> u64 {
        0
    }
    pub fn snapshot(&self) -> DriveSnapshot {
        DriveSnapshot { _private: () }
    }
    pub fn restore(&self, snapshot: &DriveSnapshot) {
        let _ = snapshot;
    }
}

/// A simulated drive, shared between its handles.
#[derive(Clone)]
pub(crate) struct DriveHandle;

#[allow(dead_code)]
fn _e(_: IoError) {}
