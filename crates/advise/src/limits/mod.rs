//! What an array could do at best: if every drive were busy all the time with nothing but what the
//! level asks for.
//!
//! A limit is a number and the formula it comes from, with the numbers put in, so that it need not
//! be believed. In formulas N is the number of members, R and W are the reads and writes of one
//! request's size that a drive alone does in a second, r and w its bandwidths, k the copies, p the
//! parities, D the requests in flight.
//!
//! [`of`] is the limit of a load; the functions behind it are those of its parts.

mod formula;
mod stripe;

use formula::{harmonic, number, reckoned};
pub use stripe::MemberWork;

/// What a drive does by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriveRates {
    /// Random reads of 4 KiB per second, with as many in flight as it likes best.
    pub reads_per_second: f64,
    /// Random writes of 4 KiB per second, the same.
    pub writes_per_second: f64,
    /// Bytes per second read one after the other.
    pub read_bytes_per_second: f64,
    /// Bytes per second written one after the other.
    pub write_bytes_per_second: f64,
    /// Seconds of a read of 4 KiB with nothing else to do.
    pub read_seconds: f64,
    /// Seconds of a write of 4 KiB with nothing else to do; of a disk, of any write that it is
    /// asked for.
    pub write_seconds: f64,
    /// The part of a write's time that the drive takes for it later, in pauses.
    pub deferred_part: f64,
    /// It has a head that moves: what is skipped takes as long as what is read, and large requests
    /// take longer than small ones.
    pub rotational: bool,
    /// Of such a one, how it skips more than a track: `None` if that is not to be looked at.
    pub turn: Option<PlatterTurn>,
}

/// What a head needs to skip more than a track.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlatterTurn {
    /// Seconds of a turn of the platter.
    pub seconds: f64,
    /// Seconds of a seek to the next track.
    pub seek_seconds: f64,
}

impl PlatterTurn {
    /// Seconds until a place passes under the head that would get there in `pass` seconds if it
    /// read on: whole turns of the way may be left out, as long as there is time for a seek.
    fn skip_seconds(self, pass: f64) -> f64 {
        let turns = ((pass - self.seek_seconds) / self.seconds).floor().max(0.0);
        if pass < self.seconds { pass } else { pass - turns * self.seconds }
    }
}

/// Copies share a read in parts of this size.
const SHARED_BYTES: u64 = 256 << 10;

/// The size that rates of random requests are stated for.
const SMALL_BYTES: f64 = 4096.0;

impl DriveRates {
    /// Random reads of `bytes` per second.
    #[must_use]
    pub fn reads_of(&self, bytes: f64) -> f64 {
        self.rate(self.reads_per_second, self.read_bytes_per_second, bytes)
    }

    /// Random writes of `bytes` per second.
    #[must_use]
    pub fn writes_of(&self, bytes: f64) -> f64 {
        self.rate(self.writes_per_second, self.write_bytes_per_second, bytes)
    }

    /// As slow as the slower of both in everything: an array runs at the pace of its slowest
    /// member.
    #[must_use]
    pub fn slower(self, other: DriveRates) -> DriveRates {
        DriveRates {
            reads_per_second: self.reads_per_second.min(other.reads_per_second),
            writes_per_second: self.writes_per_second.min(other.writes_per_second),
            read_bytes_per_second: self.read_bytes_per_second.min(other.read_bytes_per_second),
            write_bytes_per_second: self.write_bytes_per_second.min(other.write_bytes_per_second),
            read_seconds: self.read_seconds.max(other.read_seconds),
            write_seconds: self.write_seconds.max(other.write_seconds),
            deferred_part: self.deferred_part.min(other.deferred_part),
            rotational: self.rotational || other.rotational,
            turn: self.turn.or(other.turn),
        }
    }

    fn rate(&self, per_second: f64, bytes_per_second: f64, bytes: f64) -> f64 {
        match self.rotational {
            // The head has to get there, and then the data has to pass.
            true => 1.0 / (1.0 / per_second + (bytes - SMALL_BYTES).max(0.0) / bytes_per_second),
            // What is stated for small requests holds for them, whatever bandwidth says.
            false if bytes <= SMALL_BYTES => per_second,
            false => per_second.min(bytes_per_second / bytes),
        }
    }

    /// A read of `bytes` with nothing else to do.
    fn read_seconds_of(&self, bytes: f64) -> f64 {
        let (rate, bandwidth) = (self.reads_per_second, self.read_bytes_per_second);
        self.seconds_of(self.read_seconds, rate, bandwidth, bytes)
    }

    /// A write, likewise; a disk's is into its cache, whatever its size.
    fn write_seconds_of(&self, bytes: f64) -> f64 {
        if self.rotational {
            return self.write_seconds;
        }
        let (rate, bandwidth) = (self.writes_per_second, self.write_bytes_per_second);
        let seconds = self.seconds_of(self.write_seconds, rate, bandwidth, bytes);
        // What it does later is done while others are asked, or nothing is.
        let at_work = if bytes > SMALL_BYTES { (bytes / bandwidth).max(1.0 / rate) } else { 1.0 / rate };
        if self.deferred_part > 0.0 { seconds - self.deferred_part * at_work } else { seconds }
    }

    fn seconds_of(&self, seconds: f64, per_second: f64, bytes_per_second: f64, bytes: f64) -> f64 {
        let more = bytes - SMALL_BYTES;
        match self.rotational {
            _ if more <= 0.0 => seconds,
            true => seconds + more / bytes_per_second,
            // What a small one takes of the drive's time is in its latency already.
            false => seconds + (bytes / bytes_per_second - 1.0 / per_second).max(0.0),
        }
    }
}

/// How data and redundancy lie on the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Everything once: linear, RAID 0.
    Striped,
    /// Everything several times: RAID 1, RAID 10.
    Mirrored {
        /// How many times.
        copies: u32,
        /// What a member holds has its copies on several others: RAID 10's far and offset layouts.
        far: bool,
    },
    /// Stripes with parity: RAID 4, 5, 6.
    Parity {
        /// How many blocks of a stripe are parity.
        parities: u32,
    },
}

/// An array of drives that are all alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UniformArray {
    /// How many members it has, those that are missing too.
    pub members: u32,
    /// How data and redundancy lie on them.
    pub scheme: Scheme,
    /// The chunk.
    pub chunk_bytes: u64,
    /// How many members are missing.
    pub missing: u32,
}

impl UniformArray {
    fn n(&self) -> f64 {
        f64::from(self.members)
    }

    fn present(&self) -> f64 {
        f64::from(self.members - self.missing.min(self.members))
    }

    /// Blocks of a stripe that are parity.
    fn parities(&self) -> u32 {
        match self.scheme {
            Scheme::Parity { parities } => parities,
            _ => 0,
        }
    }

    /// Data blocks of a stripe; members for arrays without parity.
    fn data(&self) -> u32 {
        self.members.saturating_sub(self.parities()).max(1)
    }

    /// Members that a request of so many bytes lies on, at least, if nothing is missing.
    fn pieces(&self, bytes: u64) -> f64 {
        let whole = match self.scheme {
            Scheme::Mirrored { copies, .. } => copies == self.members,
            _ => false,
        };
        match self.chunk_bytes {
            0 => 1.0,
            _ if whole => 1.0,
            chunk => (bytes / chunk).clamp(1, u64::from(self.members)) as f64,
        }
    }

    /// Writes that all copies of a request take, at least: copies that lie side by side are so for
    /// several chunks, and what a member has of them is one write.
    fn copied_pieces(&self, bytes: u64, copies: u32) -> f64 {
        let all = f64::from(copies) * self.pieces(bytes);
        match self.scheme {
            Scheme::Mirrored { far: false, .. } => all.min(self.n()),
            _ => all,
        }
    }

    fn stripe_bytes(&self) -> u64 {
        self.chunk_bytes.max(1) * u64::from(self.data())
    }
}

/// What is asked of an array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Requests go anywhere, not one after the other.
    pub random: bool,
    /// The part of requests that is reads, 0 to 1.
    pub read_part: f64,
    /// Bytes of a request.
    pub bytes: u64,
    /// Requests in flight.
    pub depth: u64,
}

/// What cannot be exceeded, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Requests per second, or bytes where a function says so.
    pub per_second: f64,
    /// Where that comes from, numbers put in.
    pub formula: String,
    /// What it is a limit of.
    pub by: By,
}

/// What sets a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The drives cannot do more.
    Drives,
    /// So few requests in flight cannot keep the drives busy.
    Depth,
}

impl Limit {
    fn drives(per_second: f64, formula: String) -> Limit {
        Limit { per_second, formula, by: By::Drives }
    }
}

/// The limit of a load in requests per second: what the drives can do, or what so many requests in
/// flight can ask for if each took no longer than it must.
#[must_use]
pub fn of(array: &UniformArray, drive: &DriveRates, asked: &Demand) -> Limit {
    let reads = if asked.random {
        random_reads(array, drive, asked.bytes)
    } else {
        reads_in_sequence(array, drive, asked.bytes)
    };
    let writes = match asked.random {
        true => random_writes(array, drive, asked.bytes),
        false => writes_in_sequence(array, drive, asked.bytes, asked.depth),
    };
    let drives = match !asked.random && drive.rotational && asked.read_part > 0.0 && asked.read_part < 1.0 {
        true => reads_follow_writes(&writes, asked.read_part),
        false => mixed(&reads, &writes, asked.read_part),
    };
    let depth = at_depth(array, drive, asked);
    // Reading ahead hides how long a read in sequence takes, and so does a disk that reads on by
    // itself.
    let hidden = !asked.random && (asked.read_part > 0.0 || drive.rotational);
    if depth.per_second < drives.per_second && !hidden { depth } else { drives }
}

/// What a request that goes anywhere makes the members do, reads and writes in their parts.
#[must_use]
pub fn random_work(array: &UniformArray, asked: &Demand) -> MemberWork {
    let bytes = asked.bytes as f64;
    let (read, write) = match array.scheme {
        Scheme::Parity { .. } => {
            (stripe::work(array, asked.bytes, true), stripe::work(array, asked.bytes, false))
        }
        scheme => {
            let copies = if let Scheme::Mirrored { copies, .. } = scheme { copies } else { 1 };
            let pieces = array.pieces(asked.bytes);
            let read = MemberWork { reads: pieces, read_bytes: bytes, ..MemberWork::default() };
            let writes = array.copied_pieces(asked.bytes, copies);
            let write =
                MemberWork { writes, write_bytes: f64::from(copies) * bytes, ..MemberWork::default() };
            (read, write)
        }
    };
    MemberWork::default().plus(asked.read_part, read).plus(1.0 - asked.read_part, write)
}

/// Reads anywhere: N x R. With members missing each read of what they held takes several.
#[must_use]
pub fn random_reads(array: &UniformArray, drive: &DriveRates, bytes: u64) -> Limit {
    let pieces = array.pieces(bytes);
    let rate = drive.reads_of(bytes as f64 / pieces) / pieces;
    let (n, present) = (array.n(), array.present());
    match array.scheme {
        Scheme::Parity { .. } if !array.chunk_bytes.is_multiple_of(bytes) => {
            let work = stripe::work(array, bytes, true);
            let seconds = work.seconds(drive);
            let formula = format!(
                "{} / drive time of one = {} / {} us ({} reads of {} KiB)",
                if array.missing > 0 { "(N-m)" } else { "N" },
                number(present),
                number(seconds * 1e6),
                number(work.reads),
                number(work.read_bytes / work.reads / 1024.0)
            );
            Limit::drives(present / seconds, reckoned(formula, present / seconds))
        }
        Scheme::Parity { .. } if array.missing > 0 => {
            let reads = stripe::reads_of_a_read(array);
            let formula = format!(
                "(N-m) x R / {} = {} x {} / {}",
                number(reads),
                number(present),
                number(rate),
                number(reads)
            );
            Limit::drives(present * rate / reads, reckoned(formula, present * rate / reads))
        }
        Scheme::Mirrored { copies, far: false }
            if array.missing > 0 && array.members.is_multiple_of(copies) =>
        {
            // What a group holds only it can give.
            let left = f64::from(copies.saturating_sub(array.missing.div_ceil(array.members / copies)));
            let groups = f64::from(array.members / copies);
            let formula = format!(
                "N/k x {} x R = {} x {} x {}",
                number(left),
                number(groups),
                number(left),
                number(rate)
            );
            Limit::drives(groups * left * rate, reckoned(formula, groups * left * rate))
        }
        _ if array.missing > 0 => {
            let formula = format!("(N-m) x R = {} x {}", number(present), number(rate));
            Limit::drives(present * rate, reckoned(formula, present * rate))
        }
        _ => {
            let formula = format!("N x R = {} x {}", number(n), number(rate));
            Limit::drives(n * rate, reckoned(formula, n * rate))
        }
    }
}

/// Writes anywhere. With parity the cheaper of read-modify-write, N/((1+p)/R + (1+p)/W), and
/// reconstruct-write, N/((N-p-1)/R + (1+p)/W); copies N x W/k.
#[must_use]
pub fn random_writes(array: &UniformArray, drive: &DriveRates, bytes: u64) -> Limit {
    let n = array.n();
    let rate = |copies: u32| {
        let writes = array.copied_pieces(bytes, copies);
        drive.writes_of(f64::from(copies) * bytes as f64 / writes) * f64::from(copies) / writes
    };
    match array.scheme {
        Scheme::Parity { .. } => stripe::random_writes(array, drive, bytes),
        Scheme::Mirrored { copies, .. } => {
            let rate = rate(copies);
            let per_second = n * rate / f64::from(copies);
            let formula = format!("N x W / k = {} x {} / {copies}", number(n), number(rate));
            Limit::drives(per_second, reckoned(formula, per_second))
        }
        Scheme::Striped => {
            let rate = rate(1);
            let formula = format!("N x W = {} x {}", number(n), number(rate));
            Limit::drives(n * rate, reckoned(formula, n * rate))
        }
    }
}

/// Reads one after the other: the drives' bandwidth. A head has to pass over parity, which takes as
/// long as reading it, unless it is more than a track.
#[must_use]
pub fn reads_in_sequence(array: &UniformArray, drive: &DriveRates, bytes: u64) -> Limit {
    if let Some(limit) = reads_that_skip(array, drive, bytes) {
        return limit;
    }
    let (name, members) = match array.scheme {
        Scheme::Parity { parities } if drive.rotational => {
            ("(N-p)", (array.n() - f64::from(parities)).min(array.present()))
        }
        _ if array.missing > 0 => ("(N-m)", array.present()),
        _ => ("N", array.n()),
    };
    in_sequence(name, members, "r", drive.read_bytes_per_second, bytes)
}

/// Where parity is more than a track, a head comes to what is behind it sooner than by reading on:
/// of N-m members each reads N-p chunks and skips the p-m that are left of N-m, in the time of s.
fn reads_that_skip(array: &UniformArray, drive: &DriveRates, bytes: u64) -> Option<Limit> {
    let (turn, Scheme::Parity { parities }) = (drive.turn?, array.scheme) else { return None };
    let skipped = parities.checked_sub(array.missing).filter(|chunks| *chunks > 0)?;
    let chunk_seconds = array.chunk_bytes as f64 / drive.read_bytes_per_second;
    // Side by side or each by itself, whichever is sooner.
    let ways = (1..=skipped).map(|together| {
        f64::from(skipped.div_ceil(together)) * turn.skip_seconds(f64::from(together) * chunk_seconds)
    });
    let chunks = ways.fold(f64::INFINITY, f64::min) / chunk_seconds;
    if chunks >= f64::from(skipped) {
        return None;
    }
    let (read, present) = (array.n() - f64::from(parities), array.present());
    let members = present * read / (read + chunks);
    let name = format!("(N-m) x (N-p)/(N-p+{})", number(chunks));
    Some(in_sequence(&name, members, "r", drive.read_bytes_per_second, bytes))
}

/// Writes one after the other: whole stripes that need no reads, (N-p)/N of the drives' bandwidth.
/// If all that is in flight is less than a stripe, parity is written more than once for each.
#[must_use]
pub fn writes_in_sequence(array: &UniformArray, drive: &DriveRates, bytes: u64, depth: u64) -> Limit {
    let (n, w) = (array.n(), drive.write_bytes_per_second);
    // What is stated for small requests holds for them, whatever bandwidth says.
    let small = if drive.rotational { 0.0 } else { drive.writes_per_second * bytes as f64 };
    let (each_name, each) =
        if bytes as f64 <= SMALL_BYTES && small > w { ("W x bs", small) } else { ("w", w) };
    match array.scheme {
        Scheme::Striped => in_sequence("N", n, each_name, each, bytes),
        Scheme::Mirrored { copies, .. } => in_sequence("N/k", n / f64::from(copies), each_name, each, bytes),
        Scheme::Parity { parities } => {
            let in_flight = bytes.saturating_mul(depth.max(1)) as f64;
            if in_flight >= array.stripe_bytes() as f64 {
                return in_sequence("(N-p)", n - f64::from(parities), "w", w, bytes);
            }
            // Of each parity block, what covers the data in flight is written every time.
            let more = f64::from(parities) * (array.chunk_bytes as f64 / in_flight).min(1.0);
            in_sequence(&format!("N/{}", number(1.0 + more)), n / (1.0 + more), each_name, each, bytes)
        }
    }
}

fn in_sequence(name: &str, members: f64, rate_name: &str, rate: f64, bytes: u64) -> Limit {
    let per_second = members * rate / bytes as f64;
    let formula =
        format!("{name} x {rate_name} / bs = {} x {} MB/s / {bytes}", number(members), number(rate / 1e6));
    Limit::drives(per_second, reckoned(formula, per_second))
}

/// Reads and writes on the same drives: each takes its part of their time.
#[must_use]
pub fn mixed(reads: &Limit, writes: &Limit, read_part: f64) -> Limit {
    if read_part >= 1.0 {
        return reads.clone();
    }
    if read_part <= 0.0 {
        return writes.clone();
    }
    let per_second = harmonic(&[(read_part, reads.per_second), (1.0 - read_part, writes.per_second)]);
    let formula = format!(
        "1/({}/reads + {}/writes) = 1/({}/{} + {}/{})",
        number(read_part),
        number(1.0 - read_part),
        number(read_part),
        number(reads.per_second),
        number(1.0 - read_part),
        number(writes.per_second)
    );
    let with =
        format!("{}; reads {}; writes {}", reckoned(formula, per_second), reads.formula, writes.formula);
    Limit::drives(per_second, with)
}

/// Reads and writes in sequence on disks, each from the start: reads that come by just after writes
/// find what they want in the disks' caches, and only writes pass under the heads.
fn reads_follow_writes(writes: &Limit, read_part: f64) -> Limit {
    let (written, per_second) = (1.0 - read_part, writes.per_second / (1.0 - read_part));
    let formula =
        format!("writes / {} = {} / {}", number(written), number(writes.per_second), number(written));
    let with = format!(
        "{}: reads may find what was just written in the disks' caches; writes {}",
        reckoned(formula, per_second),
        writes.formula
    );
    Limit::drives(per_second, with)
}

/// What so many requests in flight come to, if none of them ever waits for another: a read takes
/// one read, a write with parity one turn of reads and one of writes. Writes in sequence that only
/// together are whole stripes read nothing, and leave as such.
#[must_use]
pub fn at_depth(array: &UniformArray, drive: &DriveRates, asked: &Demand) -> Limit {
    let stripe_bytes = array.stripe_bytes();
    let stripes = asked.bytes.saturating_mul(asked.depth) / stripe_bytes;
    let in_parts = asked.read_part == 0.0 && !asked.random && asked.bytes < stripe_bytes;
    if matches!(array.scheme, Scheme::Parity { .. }) && in_parts && stripes > 0 {
        let requests = (stripes * stripe_bytes) as f64 / asked.bytes as f64;
        let seconds = drive.write_seconds_of(array.chunk_bytes as f64);
        let whole = "requests of whole stripes / time of one";
        let formula = format!("{whole} = {} / {} us", number(requests), number(seconds * 1e6));
        let per_second = requests / seconds;
        return Limit { per_second, formula: reckoned(formula, per_second), by: By::Depth };
    }
    let seconds = asked.read_part * alone(array, drive, asked.bytes, true, asked.random)
        + (1.0 - asked.read_part) * alone(array, drive, asked.bytes, false, asked.random);
    let per_second = asked.depth as f64 / seconds;
    let formula = format!("D / time of one = {} / {} us", asked.depth, number(seconds * 1e6));
    Limit { per_second, formula: reckoned(formula, per_second), by: By::Depth }
}

/// Seconds of a request that is alone, at least. A write with parity that is no whole stripe reads
/// first, unless no parity is left to keep, or what it needs was written just before.
#[must_use]
pub fn alone(array: &UniformArray, drive: &DriveRates, bytes: u64, read: bool, random: bool) -> f64 {
    let chunk = if array.chunk_bytes == 0 { u64::MAX } else { array.chunk_bytes };
    let chunks = bytes.div_ceil(chunk);
    let spread = match array.scheme {
        // A head has too long a way for that.
        Scheme::Mirrored { copies, .. } if read && !drive.rotational => {
            bytes.div_ceil(SHARED_BYTES).clamp(chunks, chunks * u64::from(copies))
        }
        _ => chunks,
    };
    let most = if read { array.members } else { array.data() };
    let piece = bytes as f64 / spread.clamp(1, u64::from(most)) as f64;
    if read {
        return drive.read_seconds_of(piece);
    }
    let written = drive.write_seconds_of(piece);
    let reads_first = match array.scheme {
        Scheme::Parity { .. } if random && !stripe::is_whole(array, bytes) => {
            1.0 - stripe::without_parity(array)
        }
        _ => return written,
    };
    if bytes <= array.stripe_bytes() {
        // Of a larger one the rows of the last chunk may be all that has to be read.
        let read = if bytes <= chunk { piece } else { SMALL_BYTES };
        return reads_first * drive.read_seconds_of(read) + written;
    }
    let part = reads_first * drive.read_seconds_of(SMALL_BYTES) + drive.write_seconds_of(SMALL_BYTES);
    written.max(part)
}

/// A rebuild, in bytes per second of the member that is filled: the slower of what it takes and
/// what the others deliver.
#[must_use]
pub fn rebuild(drive: &DriveRates) -> Limit {
    let per_second = drive.write_bytes_per_second.min(drive.read_bytes_per_second);
    let formula = format!(
        "min(w, r) = min({}, {}) MB/s",
        number(drive.write_bytes_per_second / 1e6),
        number(drive.read_bytes_per_second / 1e6)
    );
    Limit::drives(per_second, reckoned(formula, per_second))
}
