//! What an operator asks of an array's jobs.

use std::rc::Rc;

use wattle_rt::Core;

use super::ArrayHandle;
use crate::job::{Control, FinishedJob, Goal, Job, JobError, JobShard, Pace, Sums};
use crate::state::Home;

/// Checks, repairs, and the pace of everything that goes over the whole array.
impl ArrayHandle {
    /// Starts a check or a repair; it begins when what is out of sync is in sync. However it ends,
    /// also if it never begins, its end has the number that this returns: see
    /// [`ArrayStatus::asked_ends`](super::ArrayStatus::asked_ends).
    ///
    /// # Errors
    /// See [`JobError`]; nothing was started then.
    pub async fn start_job(&self, core: &Core, job: Job) -> Result<u64, JobError> {
        let fixed = self.fixed().clone();
        self.control(core, move |control, home| {
            let sums = match home.has_sums() {
                None => Sums::None,
                Some(false) => Sums::Empty,
                Some(true) => Sums::Taken,
            };
            control.start(&fixed.geometry, fixed.read_only, &home.health(), sums, job)
        })
        .await
        .unwrap_or(Err(JobError::Stopped))
    }

    /// Whether a check or repair was asked for and has not ended.
    pub async fn job_is_asked_for(&self, core: &Core) -> bool {
        self.control(core, |control, _| control.is_asked()).await.unwrap_or(false)
    }

    /// Ends the check or repair that was asked for. What is found until then is in
    /// [`Self::report`].
    pub async fn abort_job(&self, core: &Core) {
        // A stopped array has no jobs: here and below.
        let _: Option<()> = self.control(core, |control, _| control.abort()).await;
    }

    /// Lets jobs rest where they are, after recording how far they are; or go on.
    pub async fn pause(&self, core: &Core, paused: bool) {
        let _: Option<()> = self.control(core, move |control, _| control.pause(paused)).await;
    }

    /// Ends checks and repairs, lets resync and recovery rest, and lets nothing start; or lets them
    /// start again (md's `frozen`).
    pub async fn freeze(&self, core: &Core, frozen: bool) {
        let _: Option<()> = self.control(core, move |control, _| control.freeze(frozen)).await;
    }

    /// Sets how fast jobs go, from now on.
    pub async fn set_pace(&self, core: &Core, pace: Pace) {
        let _: Option<()> = self.control(core, move |control, _| control.set_pace(pace)).await;
    }

    /// Sets what is steered towards while jobs run beside clients, from now on.
    pub async fn set_goal(&self, core: &Core, goal: Goal) {
        let late_after = goal.late_after();
        let set = move |home: Rc<Home>| async move {
            home.on_every_core(move |shard| async move { shard.requests.late_after(late_after) }).await;
        };
        let _: Option<()> = self.at_home(core, set).await;
        let _: Option<()> = self.control(core, move |control, _| control.set_goal(goal)).await;
    }

    /// The job that ended last.
    pub async fn report(&self, core: &Core) -> Option<FinishedJob> {
        self.control(core, |control, _| control.last()).await?
    }

    /// Runs `f` with the array's jobs at its home; `None` once it is stopped.
    async fn control<T: Send + 'static>(
        &self,
        core: &Core,
        f: impl FnOnce(&Control, &Home) -> T + Send + 'static,
    ) -> Option<T> {
        let jobs_key = self.fixed().jobs_key();
        self.at_home(core, move |home| async move {
            let jobs = home.shard().core.local::<JobShard>(jobs_key)?;
            Some(f(&jobs.control, &home))
        })
        .await?
    }
}
