//! What drives could do at best, if every one of them were busy all the time with nothing but what the level asks for.

use wattle_engine::geometry::Level;

use super::site::{
    READ_BYTES_PER_SECOND, READ_LATENCY, READS_PER_SECOND, Setup, WRITE_BYTES_PER_SECOND, WRITE_LATENCY,
    WRITES_PER_SECOND,
};

/// Copies of a mirrored level in md's near, far and offset layouts.
fn copies(setup: &Setup) -> f64 {
    match setup.level {
        Level::Raid10 => f64::from((setup.layout & 0xff) * (setup.layout >> 8 & 0xff)),
        _ => f64::from(setup.members),
    }
}

/// Seconds of drive time that a random read of a block costs.
fn read_seconds(bytes: f64) -> f64 {
    (1.0 / READS_PER_SECOND as f64).max(bytes / READ_BYTES_PER_SECOND as f64)
}

/// Seconds of drive time that a random write of a block costs.
fn write_seconds(bytes: f64) -> f64 {
    (1.0 / WRITES_PER_SECOND as f64).max(bytes / WRITE_BYTES_PER_SECOND as f64)
}

/// Random writes per second of `bytes` each, which are part of one chunk: whatever reads least, parity included.
#[must_use]
pub fn random_writes_per_second(setup: &Setup, bytes: u64) -> f64 {
    let (n, bytes) = (f64::from(setup.members), bytes as f64);
    let parity_writes = |parities: f64| {
        let (modify, reconstruct) = (1.0 + parities, n - parities - 1.0);
        modify.min(reconstruct) * read_seconds(bytes) + (1.0 + parities) * write_seconds(bytes)
    };
    let seconds = match setup.level {
        Level::Raid4 | Level::Raid5 => parity_writes(1.0),
        Level::Raid6 => parity_writes(2.0),
        Level::Raid1 | Level::Raid10 => copies(setup) * write_seconds(bytes),
        Level::Linear | Level::Raid0 => write_seconds(bytes),
    };
    n / seconds
}

/// Random reads per second of `bytes` each.
#[must_use]
pub fn random_reads_per_second(setup: &Setup, bytes: u64) -> f64 {
    f64::from(setup.members) / read_seconds(bytes as f64)
}

/// A random write of a block alone, in seconds: with parity one turn of reads, then one of writes.
#[must_use]
pub fn write_alone_seconds(setup: &Setup, bytes: u64) -> f64 {
    let write = write_seconds(bytes as f64) + WRITE_LATENCY.as_secs_f64();
    match setup.level {
        Level::Raid4 | Level::Raid5 | Level::Raid6 => {
            read_seconds(bytes as f64) + READ_LATENCY.as_secs_f64() + write
        }
        _ => write,
    }
}

/// A random read of a block alone, in seconds.
#[must_use]
pub fn read_alone_seconds(bytes: u64) -> f64 {
    read_seconds(bytes as f64) + READ_LATENCY.as_secs_f64()
}
