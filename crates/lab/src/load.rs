//! Clients in a closed loop, described as fio describes them: so many jobs, each with so many requests in flight, each request
//! followed by the next as soon as it is answered.
//!
//! Written against a [`Target`] and the runtime alone, so that a load is the same on modelled drives in virtual time and on
//! real ones in real time. Each job lives on one core; what it counts is its own. The one who measures only reads along, and
//! tells all jobs from when to when they are to count.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wattle_engine::VolumeError;
use wattle_rt::{BufMut, Core, CoreIx, Instant};

use crate::histogram::Histogram;
use crate::job::{Ask, Job};
use crate::ramp::{Ramp, Ramped, Steady, one_window};
use crate::target::{Requests, Target};

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
    /// Random requests go wherever chance has it. Without it a job comes to each block once, then again from the start.
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
    const WINDOWS: u32 = 10;

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

    /// The same, counted as soon as it is steady; what that takes depends on the size of requests.
    #[must_use]
    pub fn until_steady(self) -> Load {
        /// Enough to see how large requests go, and not more than a machine moves in a moment.
        const WINDOW_BYTES: u64 = 64 << 20;
        let requests = (WINDOW_BYTES / self.bs_bytes).clamp(100, 2000);
        Load { ramp: Ramp::UntilSteady(Steady { requests, ..Steady::default() }), ..self }
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

    /// Runs it, and takes a look with `observe` when counting begins and when it ends.
    ///
    /// # Errors
    /// See [`LoadError`]; the load has ended then.
    pub async fn run<T>(
        &self,
        core: &Core,
        target: &impl Target,
        observe: impl AsyncFn() -> T,
    ) -> Result<Counted<T>, LoadError> {
        let board = Arc::new(Board::new(self.numjobs));
        let mut jobs = Vec::new();
        for number in 0..self.numjobs {
            let job = Job::new(self, number, self.reach(number, target.size_bytes())?);
            let (board, target) = (board.clone(), target.clone());
            let to = CoreIx(number % core.cores());
            jobs.push(core.spawn(core.call(to, move |core| run_job(core, job, target, board))));
        }
        let ramped = self.ramp.run(core, &board).await;
        let runtime = match (self.runtime, ramped.window) {
            (Some(runtime), _) => runtime,
            (None, Some(window)) => window * Self::WINDOWS,
            (None, None) => one_window(core, &board).await * Self::WINDOWS,
        };
        let from = core.now();
        board.count(from..from + runtime);
        let before = observe().await;
        core.sleep_until(from + runtime).await;
        let after = observe().await;
        let mut counts = Counts::default();
        for job in jobs {
            counts.add(&job.await?);
        }
        Ok(Counted { runtime, ramped, counts, before, after })
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
pub struct Counts {
    /// Reads.
    pub reads: Histogram,
    /// Writes.
    pub writes: Histogram,
    /// Flushes.
    pub flushes: Histogram,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
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
    pub counts: Counts,
    /// What was seen when counting began.
    pub before: T,
    /// What was seen when it ended.
    pub after: T,
}

/// Between the jobs and the one who measures: written on one side, read on the other, two cache lines for each writer, since
/// processors fetch them in pairs.
pub(crate) struct Board {
    /// Requests answered, by job.
    answered: Vec<Line>,
    /// When jobs begin to count, in nanoseconds.
    from: AtomicU64,
    /// When they end; 0 when one has failed.
    until: AtomicU64,
}

#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

impl Board {
    fn new(jobs: usize) -> Board {
        let never = || AtomicU64::new(u64::MAX);
        Board { answered: (0..jobs).map(|_| Line::default()).collect(), from: never(), until: never() }
    }

    /// Requests answered so far.
    pub fn answered(&self) -> u64 {
        self.answered.iter().map(|line| line.0.load(Ordering::Relaxed)).sum()
    }

    /// A job has failed, or all are to end.
    pub fn ended(&self) -> bool {
        self.until.load(Ordering::Relaxed) == 0
    }

    fn count(&self, window: Range<Instant>) {
        self.from.store(window.start.as_nanos(), Ordering::Relaxed);
        let until = window.end.as_nanos();
        // A failure in this very moment is not overwritten.
        let _ = self.until.compare_exchange(u64::MAX, until, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn is_over(&self, now: Instant) -> bool {
        now.as_nanos() >= self.until.load(Ordering::Relaxed)
    }

    fn counts(&self, now: Instant) -> bool {
        now.as_nanos() >= self.from.load(Ordering::Relaxed) && !self.is_over(now)
    }

    fn answer(&self, job: usize) {
        // One writer only, so no read-modify-write.
        let line = &self.answered[job].0;
        line.store(line.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.until.store(0, Ordering::Relaxed);
    }
}

/// A job on its core, with what its clients share.
struct Desk<R> {
    core: Core,
    target: R,
    board: Arc<Board>,
    job: RefCell<Job>,
    counts: RefCell<Counts>,
    bs_bytes: usize,
}

async fn run_job(core: Core, job: Job, target: impl Target, board: Arc<Board>) -> Result<Counts, LoadError> {
    let target = match target.open(&core).await {
        Ok(target) => target,
        Err(error) => {
            board.end();
            return Err(LoadError::Failed { at: 0, len: 0, error });
        }
    };
    let (bs_bytes, iodepth) = (job.bs_bytes, job.iodepth);
    let desk = Rc::new(Desk {
        core: core.clone(),
        target,
        board,
        job: RefCell::new(job),
        counts: RefCell::default(),
        bs_bytes: bs_bytes as usize,
    });
    let clients: Vec<_> = (0..iodepth).map(|_| core.spawn(desk.clone().client())).collect();
    let mut result = Ok(());
    for client in clients {
        result = client.await.and(result);
    }
    result?;
    Ok(desk.counts.take())
}

/// Writes of this size or more bring a buffer each, as those of clients over a socket do; drives in memory keep it.
const LARGE_BYTES: usize = 64 << 10;

impl<R: Requests> Desk<R> {
    /// One request after the other until time is up.
    async fn client(self: Rc<Self>) -> Result<(), LoadError> {
        let len = self.bs_bytes;
        // Of its own, as clients' data is: a buffer that all share would be counted by all cores in the same place.
        let (mut buf, data) = (BufMut::alloc(len), BufMut::zeroed(len).freeze());
        let mut began = self.core.now();
        loop {
            if self.board.is_over(began) {
                return Ok(());
            }
            let ask = self.job.borrow_mut().next();
            let (at, result) = match ask {
                Ask::Read(at) => {
                    let (result, back) = self.target.read(at, buf).await;
                    buf = back;
                    (at, result)
                }
                Ask::Write(at) => {
                    let data = if len < LARGE_BYTES { data.clone() } else { BufMut::alloc(len).freeze() };
                    (at, self.target.write(at, data).await)
                }
                Ask::Flush => (0, self.target.flush().await),
            };
            if let Err(error) = result {
                self.board.end();
                return Err(LoadError::Failed { at, len: len as u64, error });
            }
            let now = self.core.turn_time();
            if ask != Ask::Flush {
                self.board.answer(self.job.borrow().number);
            }
            if self.board.counts(now) {
                let mut counts = self.counts.borrow_mut();
                let histogram = match ask {
                    Ask::Read(_) => &mut counts.reads,
                    Ask::Write(_) => &mut counts.writes,
                    Ask::Flush => &mut counts.flushes,
                };
                histogram.record(now - began);
            }
            // Who gets an answer asks again in the same moment.
            began = now;
        }
    }
}
