//! What drives could do at best, if every one of them were busy all the time with nothing but what
//! the level asks for.

use wattle_engine::geometry::Level;

use super::site::FigureSetup;

/// Copies of a mirrored level in md's near, far and offset layouts.
fn copies(setup: &FigureSetup) -> f64 {
    match setup.level {
        Level::Raid10 => f64::from((setup.layout & 0xff) * (setup.layout >> 8 & 0xff)),
        _ => f64::from(setup.members),
    }
}

/// Random writes per second of `bytes` each, which are part of one chunk: whatever reads least,
/// parity included.
#[must_use]
pub fn random_writes_per_second(setup: &FigureSetup, bytes: u64) -> f64 {
    let n = f64::from(setup.members);
    let parity_writes = |parities: f64| {
        let (modify, reconstruct) = (1.0 + parities, n - parities - 1.0);
        modify.min(reconstruct) * setup.model.read_seconds(bytes)
            + (1.0 + parities) * setup.model.write_seconds(bytes)
    };
    let seconds = match setup.level {
        Level::Raid4 | Level::Raid5 => parity_writes(1.0),
        Level::Raid6 => parity_writes(2.0),
        Level::Raid1 | Level::Raid10 => copies(setup) * setup.model.write_seconds(bytes),
        Level::Linear | Level::Raid0 => setup.model.write_seconds(bytes),
    };
    n / seconds
}

/// Random reads per second of `bytes` each.
#[must_use]
pub fn random_reads_per_second(setup: &FigureSetup, bytes: u64) -> f64 {
    f64::from(setup.members) / setup.model.read_seconds(bytes)
}

/// A random write of a block alone, in seconds: with parity one turn of reads, then one of writes.
#[must_use]
pub fn write_alone_seconds(setup: &FigureSetup, bytes: u64) -> f64 {
    let write = setup.model.write_seconds(bytes) + setup.model.write_latency.as_secs_f64();
    match setup.level {
        Level::Raid4 | Level::Raid5 | Level::Raid6 => {
            setup.model.read_seconds(bytes) + setup.model.read_latency.as_secs_f64() + write
        }
        _ => write,
    }
}

/// A random read of a block alone, in seconds.
#[must_use]
pub fn read_alone_seconds(setup: &FigureSetup, bytes: u64) -> f64 {
    setup.model.read_seconds(bytes) + setup.model.read_latency.as_secs_f64()
}

/// Random reads per second of `bytes` each with members of a parity array missing: what was theirs
/// is made of as many other blocks as a stripe has data, whichever they are.
#[must_use]
pub fn degraded_reads_per_second(setup: &FigureSetup, missing: u32, bytes: u64) -> f64 {
    let (n, missing) = (f64::from(setup.members), f64::from(missing));
    let recovery = if setup.level == Level::Raid6 { n - 2.0 } else { n - 1.0 };
    let reads = (n - missing + missing * recovery) / n;
    (n - missing) / (reads * setup.model.read_seconds(bytes))
}

/// Bytes per second written one after the other: every drive writes, parity and copies included.
#[must_use]
pub fn sequential_write_bytes_per_second(setup: &FigureSetup) -> f64 {
    let n = f64::from(setup.members);
    let data = match setup.level {
        Level::Raid4 | Level::Raid5 => n - 1.0,
        Level::Raid6 => n - 2.0,
        Level::Raid1 | Level::Raid10 => n / copies(setup),
        Level::Linear | Level::Raid0 => n,
    };
    data * setup.model.write_bytes_per_second as f64
}

/// Bytes per second that requests in sequence which only together are whole stripes come to, if
/// nothing is read for them: of what is in flight, whole stripes can be written, and the rest waits
/// for what comes when these are answered.
#[must_use]
pub fn whole_stripes_bytes_per_second(setup: &FigureSetup, in_flight_bytes: u64) -> f64 {
    let stripe_bytes = sequential_write_bytes_per_second(setup) / setup.model.write_bytes_per_second as f64
        * setup.chunk_bytes as f64;
    let stripes = (in_flight_bytes as f64 / stripe_bytes).floor();
    let seconds = setup.model.write_seconds(setup.chunk_bytes) + setup.model.write_latency.as_secs_f64();
    stripes * stripe_bytes / seconds
}

/// Bytes per second read one after the other: every drive reads, and nothing twice.
#[must_use]
pub fn sequential_read_bytes_per_second(setup: &FigureSetup) -> f64 {
    f64::from(setup.members) * setup.model.read_bytes_per_second as f64
}
