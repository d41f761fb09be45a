//! One core's part of an array's jobs.

use std::rc::Rc;

use wattle_rt::Core;

use super::{Control, Holds, JobReads, JobTuning};
use crate::model::fixed::Fixed;
use crate::state::{Follow, StateShard};

/// What jobs have on one core.
pub(crate) struct JobShard {
    /// What an operator asks, and is told. Used at the array's home.
    pub control: Rc<Control>,
    /// What steps of a resync, a rebuild or a check hold of stripes and ranges.
    pub holds: Holds,
    /// Reads of jobs.
    pub reads: Rc<JobReads>,
}

impl JobShard {
    /// The part of an array on a core, which it has from now on.
    pub fn start(state: &Rc<StateShard>, tuning: &JobTuning) {
        let control = Rc::new(Control::new(tuning));
        let shard = Rc::new(Self { control, holds: Holds::default(), reads: Rc::default() });
        let follower: Rc<dyn Follow> = shard.clone();
        state.add_follower(Rc::downgrade(&follower));
        state.core.put_local(state.fixed.jobs_key(), shard);
    }
}

impl Follow for JobShard {
    fn leave(&self, core: &Core, fixed: &Fixed) {
        drop(core.take_local::<Self>(fixed.jobs_key()));
    }
}
