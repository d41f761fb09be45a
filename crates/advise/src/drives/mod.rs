//! What drives are like: figures of drives that people have, by name, and
//! `model:PRESET,KEY=VALUE,...` to change them.
//!
//! Facts only: what a drive makes of them when it is at work is `rt`'s.

mod parse;
mod presets;

use std::time::Duration;

pub use parse::{DriveError, ModelDrive, keys};
pub use presets::{PRESETS, Preset};

/// The figures of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drive {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The unit it is addressed in: 512 or 4096.
    pub sector_bytes: u32,
    /// Operations it takes at a time; more wait in the host.
    pub queue_depth: u32,
    /// Reads, or writes, that the host sends in a row before it turns to the others; 0: in the
    /// order of arrival.
    pub group: u32,
    /// Its volatile cache for writes, 0 for none.
    pub cache_bytes: u64,
    /// What a flush costs.
    pub flush: Duration,
    /// What holds the data.
    pub media: MediaFigures,
}

/// What holds a drive's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediaFigures {
    /// Flash.
    Flash(FlashFigures),
    /// A platter.
    Disk(DiskFigures),
}

/// The figures of a solid-state drive, in its steady state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlashFigures {
    /// Random reads of 4 KiB per second.
    pub reads_per_second: u64,
    /// Random writes of 4 KiB per second.
    pub writes_per_second: u64,
    /// Bytes per second of large reads.
    pub read_bytes_per_second: u64,
    /// Bytes per second of large writes.
    pub write_bytes_per_second: u64,
    /// A read of 4 KiB alone.
    pub read_latency: Duration,
    /// A write of 4 KiB alone.
    pub write_latency: Duration,
    /// Channels that work side by side, 0 for as many as there are operations.
    pub channels: u32,
    /// What turning from reading to writing or back costs.
    pub turnaround: Duration,
    /// Fast space for writes, 0 for none.
    pub burst_bytes: u64,
    /// Random writes of 4 KiB per second into the fast space.
    pub burst_writes_per_second: u64,
    /// Bytes per second of large writes into the fast space.
    pub burst_bytes_per_second: u64,
    /// Bytes per second by which the fast space grows again while the drive is idle.
    pub refill_bytes_per_second: u64,
    /// How long garbage collection stops everything at a time.
    pub collection_pause: Duration,
    /// The part of the time of writes that it takes, in a million. The steady rates include it.
    pub collection_share_ppm: u32,
}

/// The figures of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFigures {
    /// Turns of the platter per minute.
    pub turns_per_minute: u32,
    /// A seek to the next track.
    pub seek_track: Duration,
    /// A seek between two places drawn by chance, on average.
    pub seek_average: Duration,
    /// A seek from end to end.
    pub seek_full: Duration,
    /// Bytes per second at the beginning.
    pub outer_bytes_per_second: u64,
    /// Bytes per second at the end.
    pub inner_bytes_per_second: u64,
    /// Bytes per second between the drive's buffer and the host.
    pub link_bytes_per_second: u64,
    /// What a command costs besides.
    pub command: Duration,
    /// How far it reads on after a read.
    pub read_ahead_bytes: u64,
}
