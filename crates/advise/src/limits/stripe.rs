//! What requests that go anywhere make the members of an array with parity do: averages over every
//! place that a request and the missing members can have in a stripe.

use super::formula::{number, reckoned};
use super::{DriveRates, Limit, UniformArray};

/// Whether every aligned request of this size is whole stripes.
pub(super) fn is_whole(array: &UniformArray, bytes: u64) -> bool {
    bytes.is_multiple_of(array.stripe_bytes())
}

/// What a request makes the members do, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemberWork {
    /// Reads.
    pub reads: f64,
    /// Bytes of them.
    pub read_bytes: f64,
    /// Writes.
    pub writes: f64,
    /// Bytes of them.
    pub write_bytes: f64,
}

impl MemberWork {
    /// Seconds of drive time.
    #[must_use]
    pub fn seconds(&self, drive: &DriveRates) -> f64 {
        let part = |count: f64, bytes: f64, rate: &dyn Fn(f64) -> f64| match count {
            0.0 => 0.0,
            count => count / rate(bytes / count),
        };
        part(self.reads, self.read_bytes, &|bytes| drive.reads_of(bytes))
            + part(self.writes, self.write_bytes, &|bytes| drive.writes_of(bytes))
    }

    /// This, and so many times that.
    pub(super) fn plus(self, times: f64, other: MemberWork) -> MemberWork {
        MemberWork {
            reads: self.reads + times * other.reads,
            read_bytes: self.read_bytes + times * other.read_bytes,
            writes: self.writes + times * other.writes,
            write_bytes: self.write_bytes + times * other.write_bytes,
        }
    }

    /// What is next to each other on a member is one operation: at most one of a kind for each.
    fn joined(self, members: f64) -> MemberWork {
        MemberWork { reads: self.reads.min(members), writes: self.writes.min(members), ..self }
    }
}

/// Ways to choose `k` of `n`.
fn choose(n: u32, k: u32) -> f64 {
    if k > n {
        return 0.0;
    }
    (0..k).map(|i| f64::from(n - i) / f64::from(i + 1)).product()
}

/// The part of all places of parity at which none that is left is there.
pub(super) fn without_parity(array: &UniformArray) -> f64 {
    let parities = array.parities();
    match array.missing.checked_sub(parities) {
        Some(more) => choose(array.members - parities, more) / choose(array.members, array.missing),
        None => 0.0,
    }
}

/// Reads that a read of one block takes on average: one, or as many as a stripe has data blocks if
/// the block is missing.
pub(super) fn reads_of_a_read(array: &UniformArray) -> f64 {
    let lost = f64::from(array.missing) / f64::from(array.members);
    (1.0 - lost) + lost * f64::from(array.data())
}

/// Rows of a stripe that a request treats alike: it has the same number of blocks in each.
#[derive(Clone, Copy, Debug)]
struct Rows {
    /// Blocks of a row that the request has.
    touched: u32,
    /// Bytes of a block, all rows together.
    bytes: f64,
}

/// The rows of what lies from `at`, counted from the start of a stripe, to `at + len`.
fn rows(array: &UniformArray, at: u64, len: u64) -> [Rows; 3] {
    let chunk = array.chunk_bytes;
    let (first, last) = (at / chunk, (at + len - 1) / chunk);
    let (from, to) = (at % chunk, (at + len - 1) % chunk + 1);
    let bytes = |bytes: u64, touched: u64| Rows { touched: touched as u32, bytes: bytes as f64 };
    if first == last {
        return [bytes(to - from, 1), bytes(0, 0), bytes(0, 0)];
    }
    // Chunks between the first and the last are whole; rows before `to` have the last as well, rows
    // from `from` on the first.
    let whole = last - first - 1;
    match from <= to {
        true => [bytes(from, whole + 1), bytes(to - from, whole + 2), bytes(chunk - to, whole + 1)],
        false => [bytes(to, whole + 1), bytes(from - to, whole), bytes(chunk - from, whole + 1)],
    }
}

/// What a request costs for the blocks of one row, by how many of its blocks are missing among
/// those it has, the parities and the others: reads and writes.
fn row_cost(array: &UniformArray, touched: u32, lost: [u32; 3]) -> (u32, u32) {
    let (data, [mine, parity, others]) = (array.data(), lost);
    let left = array.parities() - parity;
    let writes = touched - mine + left;
    let reads = match (left, mine, others) {
        // There is no parity to keep, or it is made of what is written.
        (0, ..) => 0,
        _ if touched == data => 0,
        // What was there before is known, or everything else is.
        (_, 0, 0) => (touched + left).min(data - touched),
        (_, 0, _) => touched + left,
        (_, _, 0) => data - touched,
        // The others have to be recovered first, which takes as many blocks as there is data.
        _ => data,
    };
    (reads, writes)
}

/// The average over every place of the missing members.
fn with_missing(array: &UniformArray, touched: u32, cost: impl Fn([u32; 3]) -> (u32, u32)) -> (f64, f64) {
    let (missing, parities, others) = (array.missing, array.parities(), array.data() - touched);
    let ways = choose(array.members, missing);
    let (mut reads, mut writes) = (0.0, 0.0);
    for mine in 0..=touched.min(missing) {
        for parity in 0..=parities.min(missing - mine) {
            let rest = missing - mine - parity;
            let part = choose(touched, mine) * choose(parities, parity) * choose(others, rest) / ways;
            if part > 0.0 {
                let (r, w) = cost([mine, parity, rest]);
                (reads, writes) = (reads + part * f64::from(r), writes + part * f64::from(w));
            }
        }
    }
    (reads, writes)
}

/// What a request does on average over every place that an aligned one can have.
pub(super) fn work(array: &UniformArray, bytes: u64, is_read: bool) -> MemberWork {
    let stripe = array.stripe_bytes();
    let places = stripe / gcd(stripe, bytes);
    let mut all = MemberWork::default();
    for place in 0..places {
        let (mut at, end) = (place * bytes, (place + 1) * bytes);
        let mut of_one = MemberWork::default();
        while at < end {
            let stop = ((at / stripe + 1) * stripe).min(end);
            of_one = of_one.plus(1.0, part_of_a_stripe(array, at % stripe, stop - at, is_read));
            at = stop;
        }
        all = all.plus(1.0, of_one.joined(array.present()));
    }
    let places = places as f64;
    MemberWork {
        reads: all.reads / places,
        read_bytes: all.read_bytes / places,
        writes: all.writes / places,
        write_bytes: all.write_bytes / places,
    }
}

fn part_of_a_stripe(array: &UniformArray, at: u64, len: u64, is_read: bool) -> MemberWork {
    let mut all = MemberWork::default();
    for Rows { touched, bytes } in rows(array, at, len) {
        if touched == 0 || bytes == 0.0 {
            continue;
        }
        let (reads, writes) = with_missing(array, touched, |lost| match (is_read, lost[0]) {
            (true, 0) => (touched, 0),
            // What is missing is made of as many blocks as there is data; those it has are among
            // them.
            (true, _) => (array.data(), 0),
            (false, _) => row_cost(array, touched, lost),
        });
        // Rows next to each other are one operation for each member.
        all.reads = all.reads.max(reads);
        all.writes = all.writes.max(writes);
        all.read_bytes += reads * bytes;
        all.write_bytes += writes * bytes;
    }
    all
}

/// The limit of writes: each row in the way that reads least.
pub(super) fn random_writes(array: &UniformArray, drive: &DriveRates, bytes: u64) -> Limit {
    let work = work(array, bytes, false);
    let present = array.present();
    let per_second = present / work.seconds(drive);
    let formula = if array.chunk_bytes.is_multiple_of(bytes) {
        let (r, w) = (drive.reads_of(bytes as f64), drive.writes_of(bytes as f64));
        format!(
            "{} = {}/({}/{} + {}/{})",
            name(array, &work),
            number(present),
            number(work.reads),
            number(r),
            number(work.writes),
            number(w)
        )
    } else {
        format!(
            "{} / drive time of one = {} / {} us ({} reads of {} KiB, {} writes of {} KiB)",
            if array.missing > 0 { "(N-m)" } else { "N" },
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

/// The formula of writes that are at most a chunk.
fn name(array: &UniformArray, work: &MemberWork) -> &'static str {
    let p = array.parities();
    match (array.missing, p) {
        (0, 1) if work.reads < f64::from(1 + p) => "N/((N-2)/R + 2/W)",
        (0, _) if work.reads < f64::from(1 + p) => "N/((N-3)/R + 3/W)",
        (0, 1) => "N/(2/R + 2/W)",
        (0, _) => "N/(3/R + 3/W)",
        _ => "(N-m)/(reads/R + writes/W)",
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::super::Scheme;
    use super::*;

    fn array(members: u32, parities: u32, missing: u32) -> UniformArray {
        UniformArray { members, scheme: Scheme::Parity { parities }, chunk_bytes: 64 << 10, missing }
    }

    fn counts(array: &UniformArray, bytes: u64) -> (f64, f64) {
        let work = work(array, bytes, false);
        (work.reads, work.writes)
    }

    #[test]
    fn with_nobody_missing_it_is_the_cheaper_of_both_ways() {
        assert_eq!(counts(&array(6, 1, 0), 4096), (2.0, 2.0));
        assert_eq!(counts(&array(3, 1, 0), 4096), (1.0, 2.0));
        assert_eq!(counts(&array(8, 2, 0), 4096), (3.0, 3.0));
        assert_eq!(counts(&array(4, 2, 0), 4096), (1.0, 3.0));
    }

    #[test]
    fn with_one_of_raid_5_missing_it_depends_on_which() {
        // Parity missing: a write. The block itself: the other data is read, parity written.
        // Another: read-modify-write.
        let n = 6.0;
        let (reads, writes) = counts(&array(6, 1, 1), 4096);
        assert!((reads - (n - 2.0) / n * 3.0).abs() < 1e-9, "{reads}");
        assert!((writes - 2.0 * (n - 1.0) / n).abs() < 1e-9, "{writes}");
        assert!((reads_of_a_read(&array(6, 1, 1)) - 2.0 * (n - 1.0) / n).abs() < 1e-9);
        assert!((work(&array(6, 1, 1), 4096, true).reads - 2.0 * (n - 1.0) / n).abs() < 1e-9);
    }

    #[test]
    fn each_row_is_written_in_the_way_that_reads_least() {
        // Four and a half chunks of five: half of the rows are whole, half lack one block.
        let wide = array(6, 1, 0);
        let part = part_of_a_stripe(&wide, 0, 288 << 10, false);
        assert_eq!((part.reads, part.read_bytes), (1.0, f64::from(32 << 10)));
        // A whole stripe reads nothing, with a member missing neither.
        assert_eq!(counts(&wide, 320 << 10).0, 0.0);
        assert_eq!(counts(&array(6, 1, 1), 320 << 10).0, 0.0);
        // What is read as a whole stripe has what is missing in it.
        let read = work(&array(6, 1, 1), 320 << 10, true);
        assert!((read.read_bytes - f64::from(320 << 10)).abs() < 1.0, "{read:?}");
    }

    #[test]
    fn what_lies_side_by_side_on_a_member_is_one_operation() {
        let work = work(&array(4, 1, 0), 3 << 20, false);
        assert_eq!((work.reads, work.writes), (0.0, 4.0));
        assert_eq!(work.write_bytes, f64::from(4 << 20));
    }

    #[test]
    fn every_place_is_counted_once() {
        for members in 4..10 {
            for missing in 0..=2 {
                let (one, _) = with_missing(&array(members, 2, missing), 1, |_| (1, 0));
                assert!((one - 1.0).abs() < 1e-9);
            }
        }
        assert!((without_parity(&array(6, 1, 1)) - 1.0 / 6.0).abs() < 1e-9);
        assert!((without_parity(&array(6, 2, 2)) - 1.0 / 15.0).abs() < 1e-9);
        assert_eq!(without_parity(&array(6, 2, 1)), 0.0);
    }
}
