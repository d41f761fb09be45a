//! Random writes to stripes with parity, of any size.

use super::formula::{number, reckoned};
use super::{DriveRates, Limit, UniformArray, degraded};

/// Whether every aligned request of this size is whole stripes.
pub(super) fn is_whole(array: &UniformArray, bytes: u64) -> bool {
    bytes.is_multiple_of(array.stripe_bytes())
}

/// What a request makes a stripe's members do.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    reads: f64,
    read_bytes: f64,
    writes: f64,
    write_bytes: f64,
}

impl Work {
    /// Seconds of drive time.
    fn seconds(&self, drive: &DriveRates) -> f64 {
        let part = |count: f64, bytes: f64, rate: &dyn Fn(f64) -> f64| match count {
            0.0 => 0.0,
            count => count / rate(bytes / count),
        };
        part(self.reads, self.read_bytes, &|bytes| drive.reads_of(bytes))
            + part(self.writes, self.write_bytes, &|bytes| drive.writes_of(bytes))
    }

    fn add(&mut self, other: &Work) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.write_bytes += other.write_bytes;
    }
}

/// The limit, the cheapest way for each stripe that a request touches.
pub(super) fn random_writes(array: &UniformArray, drive: &DriveRates, bytes: u64) -> Limit {
    let one_chunk = array.chunk_bytes.is_multiple_of(bytes);
    let (work, name) = match array.missing {
        0 if one_chunk => within_a_chunk(array, drive, bytes as f64),
        0 => (across_chunks(array, drive, bytes), "N / drive time of one"),
        missing => {
            let (reads, writes) = degraded::cost_of_a_write(array.members, array.parities(), missing);
            (same_size(reads, writes, bytes as f64), "(N-m)/(reads/R + writes/W)")
        }
    };
    let present = array.present();
    let per_second = present / work.seconds(drive);
    let formula = if one_chunk {
        let (r, w) = (drive.reads_of(bytes as f64), drive.writes_of(bytes as f64));
        format!(
            "{name} = {}/({}/{} + {}/{})",
            number(present),
            number(work.reads),
            number(r),
            number(work.writes),
            number(w)
        )
    } else {
        format!(
            "{name} = {} / {} us ({} reads of {} KiB, {} writes of {} KiB)",
            number(present),
            number(work.seconds(drive) * 1e6),
            number(work.reads),
            number(work.read_bytes / work.reads.max(1e-9) / 1024.0),
            number(work.writes),
            number(work.write_bytes / work.writes.max(1e-9) / 1024.0)
        )
    };
    Limit::drives(per_second, reckoned(formula, per_second))
}

fn same_size(reads: f64, writes: f64, bytes: f64) -> Work {
    Work { reads, read_bytes: reads * bytes, writes, write_bytes: writes * bytes }
}

fn within_a_chunk(array: &UniformArray, drive: &DriveRates, bytes: f64) -> (Work, &'static str) {
    let (n, p) = (array.n(), f64::from(array.parities()));
    let modify = same_size(1.0 + p, 1.0 + p, bytes);
    let reconstruct = same_size(n - p - 1.0, 1.0 + p, bytes);
    let modify_name = match array.parities() {
        1 => "N/(2/R + 2/W)",
        _ => "N/(3/R + 3/W)",
    };
    let reconstruct_name = match array.parities() {
        1 => "N/((N-2)/R + 2/W)",
        _ => "N/((N-3)/R + 3/W)",
    };
    if reconstruct.seconds(drive) < modify.seconds(drive) {
        (reconstruct, reconstruct_name)
    } else {
        (modify, modify_name)
    }
}

/// The average over every place that an aligned request can have.
fn across_chunks(array: &UniformArray, drive: &DriveRates, bytes: u64) -> Work {
    let stripe = array.stripe_bytes();
    let places = stripe / gcd(stripe, bytes);
    let mut all = Work::default();
    for place in 0..places {
        let (mut at, end) = (place * bytes, (place + 1) * bytes);
        while at < end {
            let stop = ((at / stripe + 1) * stripe).min(end);
            all.add(&part_of_a_stripe(array, drive, at % stripe, stop - at));
            at = stop;
        }
    }
    let places = places as f64;
    Work {
        reads: all.reads / places,
        read_bytes: all.read_bytes / places,
        writes: all.writes / places,
        write_bytes: all.write_bytes / places,
    }
}

fn part_of_a_stripe(array: &UniformArray, drive: &DriveRates, at: u64, len: u64) -> Work {
    let (chunk, p) = (array.chunk_bytes, f64::from(array.parities()));
    let touched = ((at + len).div_ceil(chunk) - at / chunk) as f64;
    let (bytes, span) = (len as f64, len.min(chunk) as f64);
    let data = f64::from(array.data());
    let writes = Work { writes: touched + p, write_bytes: bytes + p * span, ..Work::default() };
    if len == array.stripe_bytes() {
        return writes;
    }
    let modify = Work { reads: touched + p, read_bytes: bytes + p * span, ..writes };
    let rest = data * span - bytes;
    let reconstruct = Work { reads: (data - touched).max(1.0), read_bytes: rest, ..writes };
    if reconstruct.seconds(drive) < modify.seconds(drive) { reconstruct } else { modify }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
