//! What drives are like: figures of drives that people have, by name, and
//! `model:PRESET,KEY=VALUE,...` to change them.
//!
//! Figures only: how long a drive of that kind takes over a request is computed where drives are
//! simulated (`rt`).

mod parse;
mod presets;

use std::time::Duration;

pub use parse::{DriveError, ModelDrive, drive_bytes, keys};
pub use presets::{PRESETS, Preset};

/// A drive: how large it is, and its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drive {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The unit it is addressed in: 512 or 4096.
    pub sector_bytes: u32,
    /// What decides how long it takes over a request.
    pub model: DriveModel,
}

/// The figures of a drive, whatever its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveModel {
    /// Operations it takes at a time, at least 1; more wait in the host.
    pub queue_depth: u32,
    /// Reads, or writes, that the host sends in a row, as long as there are any, before it turns to
    /// the others; 0: in the order of arrival.
    pub group: u32,
    /// Bytes of its volatile cache for writes, 0 for none (or one that outlives a power cut).
    pub cache_bytes: u64,
    /// What a flush costs. Without a volatile cache the drive goes on working meanwhile.
    pub flush: Duration,
    /// What holds the data.
    pub media: Media,
}

impl DriveModel {
    /// Whether it has a head that moves.
    #[must_use]
    pub fn rotational(&self) -> bool {
        matches!(self.media, Media::Disk(_))
    }
}

/// What holds a drive's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Media {
    /// Flash.
    Flash(Flash),
    /// A platter.
    Disk(Disk),
}

/// The figures of a solid-state drive, in its steady state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flash {
    /// Random reads of 4 KiB per second.
    pub reads_per_second: u64,
    /// Random writes of 4 KiB per second.
    pub writes_per_second: u64,
    /// Bytes per second of large reads.
    pub read_bytes_per_second: u64,
    /// Bytes per second of large writes.
    pub write_bytes_per_second: u64,
    /// A read of 4 KiB, from start to end, if there is nothing else to do.
    pub read_latency: Duration,
    /// A write of 4 KiB, likewise. Neither takes less than its share of a second.
    pub write_latency: Duration,
    /// Channels that work side by side, 0 for as many as there are operations.
    pub channels: u32,
    /// What turning from reading to writing or back costs.
    pub turnaround: Duration,
    /// Space that takes writes faster than the drive can go on (SLC, or blocks that are erased
    /// already), 0 for none.
    pub burst_bytes: u64,
    /// Random writes of 4 KiB per second into the fast space.
    pub burst_writes_per_second: u64,
    /// Bytes per second of large writes into the fast space.
    pub burst_bytes_per_second: u64,
    /// Bytes per second by which the fast space grows again while the drive is idle.
    pub refill_bytes_per_second: u64,
    /// How long garbage collection stops everything at a time, on average: between half and one and
    /// a half times this.
    pub collection_pause: Duration,
    /// The part of the time of writes that it takes, in a million. The steady rates include it.
    pub collection_share_ppm: u32,
}

/// The figures of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Turns of the platter per minute.
    pub turns_per_minute: u32,
    /// A seek to the next track.
    pub seek_track: Duration,
    /// A seek between two places drawn by chance, on average. The curve through the three is a + b
    /// sqrt(d) + c d.
    pub seek_average: Duration,
    /// A seek from end to end.
    pub seek_full: Duration,
    /// Bytes per second in the first zone.
    pub outer_bytes_per_second: u64,
    /// Bytes per second in the last zone; those between lie on a line.
    pub inner_bytes_per_second: u64,
    /// Bytes per second between the drive's buffer and the host.
    pub link_bytes_per_second: u64,
    /// What a command costs besides.
    pub command: Duration,
    /// How far it reads on after a read, while nothing else is asked of it, and how much of that it
    /// keeps.
    pub read_ahead_bytes: u64,
}

/// How long seeks of a disk take: a + b sqrt(d) + c d nanoseconds over the part d of it.
#[derive(Clone, Copy, Debug)]
pub struct SeekCurve {
    a: f64,
    b: f64,
    c: f64,
}

impl SeekCurve {
    /// The curve whose mean over two places drawn by chance is the average: there sqrt(d) is 8/15
    /// and d is 1/3 on average.
    #[must_use]
    pub fn new(disk: &Disk) -> SeekCurve {
        let nanos = |time: Duration| time.as_nanos() as f64;
        let a = nanos(disk.seek_track);
        let average = nanos(disk.seek_average) - a;
        let full = nanos(disk.seek_full) - a;
        let b = 5.0 * average - full * 5.0 / 3.0;
        SeekCurve { a, b, c: full - b }
    }

    /// Nanoseconds of a seek over so many bytes of a disk of that size.
    #[must_use]
    pub fn nanos(&self, distance: u64, size: u64) -> u64 {
        let d = distance as f64 / size as f64;
        (self.a + self.b * d.sqrt() + self.c * d).max(0.0) as u64
    }
}
