//! Clients in a closed loop: so many requests in flight, each followed by the next as soon as it is answered.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wattle_engine::{ArrayHandle, VolumeRef};
use wattle_rt::sim::DriveTotals;
use wattle_rt::{Buf, BufMut, Core, CoreIx, DriveControl, Durability, Instant, Rng};

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anywhere, at multiples of the request's size.
    Random,
    /// One after the other, all clients together, and from the start again at the end.
    Sequential,
}

/// What clients ask for, and how long.
#[derive(Clone, Debug)]
pub struct Load {
    /// Requests in flight; they are dealt out to the cores.
    pub depth: usize,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Of a hundred requests, so many are reads.
    pub reads_percent: u64,
    /// Where they go.
    pub access: Access,
    /// Part of the volume they go to, in bytes; what is beyond the volume's end does not count.
    pub reach: Range<u64>,
    /// Time before the window in which nothing is counted.
    pub warm_up: Duration,
    /// Time in which requests are counted.
    pub window: Duration,
}

impl Load {
    /// Random writes of 4 KiB anywhere: 20 ms of warm-up, 200 ms measured.
    #[must_use]
    pub fn random_writes(depth: usize) -> Load {
        Load {
            depth,
            request_bytes: 4096,
            reads_percent: 0,
            access: Access::Random,
            reach: 0..u64::MAX,
            warm_up: Duration::from_millis(20),
            window: Duration::from_millis(200),
        }
    }

    /// Runs it on `array`, whose members are `drives`.
    ///
    /// # Panics
    /// If a request fails.
    pub async fn run(&self, core: &Core, array: &ArrayHandle, drives: &[DriveControl]) -> Measured {
        let (started, cursor) = (core.now(), Arc::new(AtomicU64::new(0)));
        let window = started + self.warm_up..started + self.warm_up + self.window;
        let clients: Vec<_> = (0..self.depth)
            .map(|number| {
                let client = Client {
                    load: self.clone(),
                    window: window.clone(),
                    cursor: cursor.clone(),
                    rng: Rng::new(0x10ad ^ number as u64),
                };
                let volume = array.volume();
                let to = CoreIx(number % core.cores());
                core.spawn(core.call(to, move |core| async move { client.run(&core, &volume).await }))
            })
            .collect();
        core.sleep_until(window.start).await;
        let before: Vec<DriveTotals> = drives.iter().map(DriveControl::totals).collect();
        core.sleep_until(window.end).await;
        let after: Vec<DriveTotals> = drives.iter().map(DriveControl::totals).collect();
        let mut measured = Measured {
            window: self.window,
            request_bytes: self.request_bytes,
            reads: Latencies::default(),
            writes: Latencies::default(),
            members: before.iter().zip(&after).map(|(before, after)| *after - *before).collect(),
        };
        for client in clients {
            let (reads, writes) = client.await;
            measured.reads.nanos.extend(reads);
            measured.writes.nanos.extend(writes);
        }
        measured.reads.nanos.sort_unstable();
        measured.writes.nanos.sort_unstable();
        measured
    }
}

struct Client {
    load: Load,
    window: Range<Instant>,
    cursor: Arc<AtomicU64>,
    rng: Rng,
}

impl Client {
    /// Latencies of reads and writes that were answered in the window, in nanoseconds.
    async fn run(mut self, core: &Core, volume: &VolumeRef) -> (Vec<u64>, Vec<u64>) {
        let volume = volume.open(core).expect("a running array has a volume");
        let len = self.load.request_bytes;
        let reach = self.load.reach.start..self.load.reach.end.min(volume.size_bytes());
        let places = (reach.end - reach.start) / len;
        let data = Buf::zeros(len as usize);
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        loop {
            let began = core.now();
            if began >= self.window.end {
                return (reads, writes);
            }
            let place = match self.load.access {
                Access::Random => self.rng.below(places),
                Access::Sequential => self.cursor.fetch_add(1, Ordering::Relaxed) % places,
            };
            let at = reach.start + place * len;
            let read = self.rng.below(100) < self.load.reads_percent;
            let result = match read {
                true => volume.read(at, BufMut::alloc(len as usize)).await.0,
                false => volume.write(at, data.clone(), Durability::Cached).await,
            };
            result.unwrap_or_else(|error| panic!("a request of {len} bytes at {at}: {error}"));
            let now = core.now();
            if self.window.contains(&now) {
                let latency = (now - began).as_nanos() as u64;
                if read { reads.push(latency) } else { writes.push(latency) }
            }
        }
    }
}

/// How long requests took.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// In nanoseconds, sorted.
    nanos: Vec<u64>,
}

impl Latencies {
    /// How many requests.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nanos.len()
    }

    /// So many of a hundred took at most this long; zero if there were none.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Duration {
        let rank = (percent / 100.0 * self.nanos.len() as f64).ceil() as usize;
        Duration::from_nanos(self.nanos.get(rank.max(1) - 1).copied().unwrap_or(0))
    }
}

/// What a load came to.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The time measured.
    pub window: Duration,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Reads answered in it.
    pub reads: Latencies,
    /// Writes answered in it.
    pub writes: Latencies,
    /// What each drive did in it.
    pub members: Vec<DriveTotals>,
}

impl Measured {
    /// Requests per second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        (self.reads.count() + self.writes.count()) as f64 / self.window.as_secs_f64()
    }

    /// Bytes per second.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.per_second() * self.request_bytes as f64
    }

    /// Latencies of reads and writes together.
    #[must_use]
    pub fn all(&self) -> Latencies {
        let mut nanos = [&self.reads.nanos[..], &self.writes.nanos[..]].concat();
        nanos.sort_unstable();
        Latencies { nanos }
    }

    /// How the drives were used, by slot.
    #[must_use]
    pub fn uses(&self) -> Vec<MemberUse> {
        self.members.iter().map(|totals| MemberUse::new(totals, self.window)).collect()
    }
}

/// How a drive was used over some time.
#[derive(Clone, Copy, Debug)]
pub struct MemberUse {
    /// Part of the time it was at work.
    pub busy: f64,
    /// Operations in flight, on average.
    pub depth: f64,
    /// Reads per second.
    pub reads_per_second: f64,
    /// Bytes read per second.
    pub read_bytes_per_second: f64,
    /// Writes per second.
    pub writes_per_second: f64,
    /// Bytes written per second.
    pub written_bytes_per_second: f64,
}

impl MemberUse {
    /// What `totals` come to over `time`.
    #[must_use]
    pub fn new(totals: &DriveTotals, time: Duration) -> MemberUse {
        let seconds = time.as_secs_f64();
        let rate = |count: u64| count as f64 / seconds;
        MemberUse {
            busy: totals.busy.as_secs_f64() / seconds,
            depth: totals.in_flight.as_secs_f64() / seconds,
            reads_per_second: rate(totals.reads),
            read_bytes_per_second: rate(totals.read_bytes),
            writes_per_second: rate(totals.writes),
            written_bytes_per_second: rate(totals.written_bytes),
        }
    }
}
