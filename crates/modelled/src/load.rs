//! Clients in a closed loop, described as fio describes them: so many jobs, each with so many
//! requests in flight, each request followed by the next as soon as it is answered.
//!
//! A load runs against a [`LoadTarget`](crate::LoadTarget), so that it is the same on modelled
//! drives in virtual time and on real ones in real time.

use std::ops::Range;
use std::time::Duration;

use wattle_engine::VolumeError;

use crate::histogram::Histogram;
use crate::ramp::Ramp;
use crate::settle::{Ramped, Settled};

/// What jobs do: fio's `rw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rw {
    /// Reads, one after the other.
    Read,
    /// Writes, one after the other.
    Write,
    /// Both, each kind one after the other.
    ReadWrite,
    /// Reads anywhere.
    RandRead,
    /// Writes anywhere.
    RandWrite,
    /// Both anywhere.
    RandRw,
}

/// Each with fio's names for it.
const NAMES: [(Rw, &str); 8] = [
    (Rw::Read, "read"),
    (Rw::Write, "write"),
    (Rw::ReadWrite, "readwrite"),
    (Rw::ReadWrite, "rw"),
    (Rw::RandRead, "randread"),
    (Rw::RandWrite, "randwrite"),
    (Rw::RandRw, "randrw"),
    (Rw::RandRw, "randreadwrite"),
];

/// A text that is no value of `rw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected read, write, rw, randread, randwrite or randrw")]
pub struct ParseRwError;

impl std::str::FromStr for Rw {
    type Err = ParseRwError;

    fn from_str(text: &str) -> Result<Rw, ParseRwError> {
        NAMES.iter().find(|(_, name)| *name == text).map(|(rw, _)| *rw).ok_or(ParseRwError)
    }
}

impl Rw {
    /// fio's name for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(rw, _)| *rw == self).map_or("", |(_, name)| name)
    }

    /// Whether requests go anywhere.
    #[must_use]
    pub fn random(self) -> bool {
        matches!(self, Rw::RandRead | Rw::RandWrite | Rw::RandRw)
    }
}

/// What clients ask for, and for how long.
#[derive(Clone, Debug)]
pub struct Load {
    /// What they do.
    pub rw: Rw,
    /// Bytes of a request (`bs`).
    pub bs_bytes: u64,
    /// Requests that each job has in flight.
    pub iodepth: usize,
    /// Jobs; they are dealt out to the cores.
    pub numjobs: usize,
    /// Of a hundred requests that are mixed, so many are reads.
    pub rwmixread: u32,
    /// Where the first job's part of the volume starts.
    pub offset_bytes: u64,
    /// How much further on each next job's starts.
    pub offset_increment_bytes: u64,
    /// Bytes of a job's part [default: to the end of the volume].
    pub size_bytes: Option<u64>,
    /// Random requests go wherever chance has it. Without it a job comes to each block once, then
    /// again from the start.
    pub norandommap: bool,
    /// A flush after so many writes of a job; 0 for none.
    pub fsync: u64,
    /// Where chance comes from (`randseed`).
    pub seed: u64,
    /// What comes before anything is counted.
    pub ramp: Ramp,
    /// How long requests are counted [default: ten of the windows of the ramp].
    pub runtime: Option<Duration>,
}

impl Load {
    /// Windows of the ramp that are counted if no time is given.
    pub(crate) const WINDOWS: u32 = 10;

    /// Random writes of 4 KiB, one at a time.
    #[must_use]
    pub fn new() -> Load {
        Load {
            rw: Rw::RandWrite,
            bs_bytes: 4096,
            iodepth: 1,
            numjobs: 1,
            rwmixread: 50,
            offset_bytes: 0,
            offset_increment_bytes: 0,
            size_bytes: None,
            norandommap: false,
            fsync: 0,
            seed: 1,
            ramp: Ramp::default(),
            runtime: None,
        }
    }

    /// The same, counted as soon as it has settled; how many requests that takes depends on their
    /// size, and how long on the drives.
    #[must_use]
    pub fn until_steady(self) -> Load {
        /// Enough to see how large requests go, and not more than a machine moves in a moment.
        const BATCH_BYTES: u64 = 16 << 20;
        /// As in fio, reads and writes each go through the volume from its start. How far they are
        /// apart is a random walk, and so is what they find of each other in caches: so many times
        /// what shows a mean shows its drift as well.
        const WALKS: u32 = 8;
        /// More is moved for hours.
        const BYTES_MAX: u64 = 16 << 30;
        let most = Settled::default().requests_at_most;
        let settled = Settled {
            requests: (BATCH_BYTES / self.bs_bytes).clamp(25, 250),
            requests_at_most: (BYTES_MAX / self.bs_bytes).clamp(1000, most),
            times: if self.rw == Rw::ReadWrite { WALKS } else { 1 },
            ..Settled::default()
        };
        Load { ramp: Ramp::UntilSettled(settled), ..self }
    }

    /// Of all requests, the part that is reads.
    #[must_use]
    pub fn read_part(&self) -> f64 {
        match self.rw {
            Rw::Read | Rw::RandRead => 1.0,
            Rw::Write | Rw::RandWrite => 0.0,
            Rw::ReadWrite | Rw::RandRw => f64::from(self.rwmixread) / 100.0,
        }
    }

    /// Requests in flight, all jobs together.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.iodepth * self.numjobs
    }

    /// The part of a volume that a job goes to.
    ///
    /// # Errors
    /// There is no room for a request.
    pub fn reach(&self, job: usize, volume_bytes: u64) -> Result<Range<u64>, LoadError> {
        let start = self.offset_increment_bytes.saturating_mul(job as u64).saturating_add(self.offset_bytes);
        let end = start.saturating_add(self.size_bytes.unwrap_or(u64::MAX)).min(volume_bytes);
        match end.saturating_sub(start) {
            room if room < self.bs_bytes => Err(LoadError::NoRoom { job, start, volume_bytes }),
            _ => Ok(start..end),
        }
    }
}

impl Default for Load {
    fn default() -> Load {
        Load::new()
    }
}

/// Why a load ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A job's part of the volume holds no request.
    #[error(
        "job {job} starts at {start} bytes of a volume of {volume_bytes}: there is no room for a request"
    )]
    NoRoom {
        /// The job, counted from 0.
        job: usize,
        /// Where its part starts.
        start: u64,
        /// Bytes of the volume.
        volume_bytes: u64,
    },
    /// A request failed.
    #[error("a request of {len} bytes at {at}: {error}")]
    Failed {
        /// Where.
        at: u64,
        /// How long.
        len: u64,
        /// What the volume said.
        error: VolumeError,
    },
}

/// What requests were counted, and how long they took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Reads.
    pub reads: Histogram,
    /// Writes.
    pub writes: Histogram,
    /// Flushes.
    pub flushes: Histogram,
}

impl RequestCounts {
    pub(crate) fn add(&mut self, other: &RequestCounts) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.flushes.add(&other.flushes);
    }
}

/// What a load came to.
#[derive(Clone, Debug)]
pub struct Counted<T> {
    /// How long requests were counted.
    pub runtime: Duration,
    /// How it went before that.
    pub ramped: Ramped,
    /// What was answered in that time.
    pub counts: RequestCounts,
    /// What was seen when counting began.
    pub before: T,
    /// What was seen when it ended.
    pub after: T,
}
