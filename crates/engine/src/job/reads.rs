//! Reads of jobs. A read that a member does not answer in time is given up, as clients' reads are,
//! and not relied on.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use wattle_rt::{BufMut, IoError, Notify};

use super::unit::{Step, Trouble, timed};
use crate::level::ArrayShard;
use crate::member::{Members, in_time};
use crate::model::health::Health;
use crate::model::units::{MemberIx, MemberSet, Sector};

/// One core's reads of jobs.
#[derive(Default)]
pub(crate) struct JobReads {
    /// The job under way is to end: its steps wait for no member that does not answer.
    resting: Cell<bool>,
    /// How many were given up and are not answered yet, by seat and by when its member took it:
    /// they have their buffers still.
    given_up: RefCell<BTreeMap<(MemberIx, u64), usize>>,
    news: Notify,
}

impl JobReads {
    pub fn rest(&self, resting: bool) {
        self.resting.set(resting);
        self.news.notify_all();
    }

    /// Waits until what was given up is answered, or no member's any more: so no more of it gathers
    /// than a window. Says whether the job goes on.
    pub async fn answered(&self, members: &Members) -> bool {
        while self.awaits(&members.health()) && !self.resting.get() {
            self.news.wait().await;
        }
        !self.resting.get()
    }

    fn awaits(&self, health: &Health) -> bool {
        let sits = |&(seat, since): &(MemberIx, u64)| {
            health.seats[seat.index()].since == since && health.state(seat).writable()
        };
        self.given_up.borrow().keys().any(sits)
    }

    fn give_up(&self, who: (MemberIx, u64)) {
        *self.given_up.borrow_mut().entry(who).or_default() += 1;
    }

    fn came(&self, who: (MemberIx, u64)) {
        let mut given_up = self.given_up.borrow_mut();
        let left = given_up.remove(&who).map_or(0, |all| all - 1);
        if left > 0 {
            given_up.insert(who, left);
        }
        drop(given_up);
        self.news.notify_all();
    }
}

/// Why a member did not deliver.
#[derive(Debug, Clone, Copy)]
pub(super) enum Missed {
    Failed(IoError),
    /// It did not answer in time.
    Late,
}

/// What became of the read of several buffers that follow one another on a member. One that is late
/// has kept them.
pub(super) type Answer = (MemberIx, Result<Vec<BufMut>, Missed>);

impl Step<'_> {
    /// Reads. Members in `patient` are waited for however long they take; if the job is to end
    /// meanwhile, the step does.
    pub(super) async fn read(
        &mut self,
        runs: Vec<(MemberIx, Sector, Vec<BufMut>)>,
        patient: &MemberSet,
    ) -> Result<Vec<Answer>, Trouble> {
        let seats: Vec<MemberIx> = runs.iter().map(|(seat, ..)| *seat).collect();
        let shard = self.shard;
        let ops = runs.into_iter().map(|(seat, at, bufs)| {
            let read = shard.members.read(seat, at, bufs);
            (seat, answer(shard, self.reads.clone(), seat, read, patient.contains(seat)))
        });
        let answers = timed(&shard.core, ops.collect(), &mut self.busy).await;
        let answers = seats.into_iter().zip(answers).map(|(seat, answer)| match answer {
            Some((Ok(()), bufs)) => Ok((seat, Ok(bufs))),
            Some((Err(error), _)) => Ok((seat, Err(Missed::Failed(error)))),
            None if patient.contains(seat) || self.reads.resting.get() => Err(Trouble::Changed),
            None => Ok((seat, Err(Missed::Late))),
        });
        answers.collect()
    }
}

/// What a member answers; `None` if that took too long. Of a patient read only if the job is to
/// end.
async fn answer<T: 'static>(
    shard: &Rc<ArrayShard>,
    reads: Rc<JobReads>,
    seat: MemberIx,
    mut read: impl Future<Output = T> + Unpin + 'static,
    patient: bool,
) -> Option<T> {
    let who = (seat, shard.members.since(seat));
    loop {
        if let Some(answer) = in_time(&shard.members, &mut read).await {
            return Some(answer);
        }
        shard.members.note_late(seat);
        if !patient || reads.resting.get() {
            break;
        }
    }
    reads.give_up(who);
    shard.core.spawn(async move {
        read.await;
        reads.came(who);
    });
    None
}
