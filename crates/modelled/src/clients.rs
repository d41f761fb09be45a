//! Runs a load: its jobs on the cores, and the clients of each job.
//!
//! A job lives on one core and counts on its own. The measurement reads along on the [`Board`],
//! where it tells all jobs from when to when they are to count.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use wattle_rt::{BufMut, Core, CoreIx};

use crate::board::Board;
use crate::job::{Ask, Job};
use crate::load::{Counted, Load, LoadError, RequestCounts};
use crate::ramp::{Ramp, one_window};
use crate::settle::{Ramped, Sight};
use crate::target::{LoadTarget, Requests, RunningJob};

impl Load {
    /// Runs it, and takes a look with `observe` when counting begins and when it ends.
    ///
    /// # Errors
    /// See [`LoadError`]; the load has ended then.
    pub async fn run<T: Sight>(
        &self,
        core: &Core,
        target: &impl LoadTarget,
        observe: impl AsyncFn() -> T,
    ) -> Result<Counted<T>, LoadError> {
        let board = Arc::new(Board::new(self.numjobs));
        let jobs = target.start(self, core, &board)?;
        let (ramped, runtime) = match &self.ramp {
            Ramp::UntilSettled(settled) => {
                let began = core.now();
                let believed = settled.run(core, &board, self.depth(), &observe).await;
                if self.runtime.is_none() {
                    board.close(core.now());
                    return Ok(Counted {
                        runtime: believed.runtime,
                        ramped: believed.ramped,
                        counts: counted(jobs).await?,
                        before: believed.before,
                        after: believed.after,
                    });
                }
                (Ramped { took: core.now() - began, ..believed.ramped }, self.runtime)
            }
            Ramp::UntilSteady(steady) => (steady.run(core, &board).await, self.runtime),
            Ramp::For(took) => {
                core.sleep(*took).await;
                (Ramped { took: *took, window: None, steady: None }, self.runtime)
            }
        };
        let runtime = match (runtime, ramped.window) {
            (Some(runtime), _) => runtime,
            (None, Some(window)) => window * Self::WINDOWS,
            (None, None) => one_window(core, &board).await * Self::WINDOWS,
        };
        let from = core.now();
        board.count(from..from + runtime);
        let before = observe().await;
        core.sleep_until(from + runtime).await;
        let after = observe().await;
        Ok(Counted { runtime, ramped, counts: counted(jobs).await?, before, after })
    }
}

/// What jobs counted, when they have ended.
async fn counted(jobs: Vec<RunningJob>) -> Result<RequestCounts, LoadError> {
    let mut counts = RequestCounts::default();
    for job in jobs {
        counts.add(&job.await?);
    }
    Ok(counts)
}

/// Starts the jobs of a load. See [`LoadTarget::start`].
///
/// # Errors
/// The target is too small for it.
pub fn start_jobs(
    load: &Load,
    core: &Core,
    target: &impl LoadTarget,
    board: &Arc<Board>,
) -> Result<Vec<RunningJob>, LoadError> {
    let start = |number: usize| {
        let job = Job::new(load, number, load.reach(number, target.size_bytes())?);
        let (board, target) = (board.clone(), target.clone());
        let to = CoreIx(number % core.cores());
        Ok(core.spawn(core.call(to, move |core| run_job(core, job, target, board))))
    };
    (0..load.numjobs).map(start).collect()
}

/// A job on its core, with what its clients share.
struct Desk<R> {
    core: Core,
    target: R,
    board: Arc<Board>,
    job: RefCell<Job>,
    counts: RefCell<RequestCounts>,
    /// Since when, as [`Board::begun`] has it.
    begun: Cell<u64>,
    bs_bytes: usize,
}

async fn run_job(
    core: Core,
    job: Job,
    target: impl LoadTarget,
    board: Arc<Board>,
) -> Result<RequestCounts, LoadError> {
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
        begun: Cell::new(0),
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

/// Writes of this size or more bring a buffer each, as those of clients over a socket do; drives in
/// memory keep it.
const LARGE_BYTES: usize = 64 << 10;

impl<R: Requests> Desk<R> {
    /// One request after the other until time is up.
    async fn client(self: Rc<Self>) -> Result<(), LoadError> {
        let len = self.bs_bytes;
        // Of its own, as clients' data is: a buffer that all share would be counted by all cores in
        // the same place.
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
            self.board.answer(self.job.borrow().number, u64::from(ask != Ask::Flush), now - began);
            if self.board.counts(now) {
                let mut counts = self.counts.borrow_mut();
                if self.begun.replace(self.board.begun()) != self.begun.get() {
                    *counts = RequestCounts::default();
                }
                let histogram = match ask {
                    Ask::Read(_) => &mut counts.reads,
                    Ask::Write(_) => &mut counts.writes,
                    Ask::Flush => &mut counts.flushes,
                };
                histogram.record(now - began);
            }
            // The next request follows in the moment of the answer.
            began = now;
        }
    }
}
