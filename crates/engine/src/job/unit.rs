//! One step of a job: a range, held, read, compared or completed, written.
//!
//! A range is tried as a whole; where something in it cannot be read it is halved until what is
//! wrong is a single block, which then is made up from redundancy, or recorded as lost. So one bad
//! sector costs no neighbour its place.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use wattle_rt::{Buf, Core, Durability, IoErrorKind};

use super::findings::Found;
use super::share::Clients;
use super::sums::{StepSums, SumUse, TakenSums};
use super::{JobReads, JobShard, RepairSource, copies, hold};
use crate::level::ArrayShard;
use crate::member::{NoRoom, Outcome as Written, WriteCost};
use crate::model::bad_ranges::BadRanges;
use crate::model::error::VolumeError;
use crate::model::fixed::Fixed;
use crate::model::geometry::LevelKind;
use crate::model::health::{Health, MemberState};
use crate::model::units::{MemberIx, MemberSet, SECTOR_BYTES, Sector};
use crate::state::metadata::FailCause;
use crate::state::{intent, sums};

/// Most buffers in one vectored operation.
const VECTOR_MAX: usize = 256;

/// What a job does to a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Task {
    Resync,
    /// Fills the members in these seats; a range of member sectors.
    Recover(Vec<MemberIx>),
    Check,
    Repair(RepairSource),
}

/// Why a step did not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The members are not what they were: the loop decides anew.
    Changed,
    /// Missing data could be had only from parity that may be wrong.
    Untrusted,
    /// A member has no room to record that sectors of it are bad.
    NoRoom,
}

/// What came of trying a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    Done,
    /// Something in it cannot be read: smaller, please.
    Split,
}

/// What a step reports.
#[derive(Debug)]
pub(super) struct Outcome {
    pub end: Result<(), Trouble>,
    pub found: Found,
    /// What the step's core has seen of clients so far, and which core that is.
    pub clients: (usize, Clients),
    /// How long each member's operations took, added up.
    pub busy: BTreeMap<MemberIx, Duration>,
    /// The sums of its blocks.
    pub taken: Option<TakenSums>,
}

/// A step at work.
pub(super) struct Step<'a> {
    pub shard: &'a Rc<ArrayShard>,
    pub reads: &'a Rc<JobReads>,
    pub task: &'a Task,
    pub found: Found,
    /// Of what was found, what is known to agree now.
    pub agreed_sectors: u64,
    pub busy: BTreeMap<MemberIx, Duration>,
    /// What is known of sums, and taken, if anything is.
    pub sums: Option<StepSums>,
    /// What is tried at present.
    pub at: Range<Sector>,
}

/// Takes one step, on the core it is called on.
pub(super) async fn run(
    core: Core,
    fixed: Arc<Fixed>,
    number: u64,
    task: Arc<Task>,
    range: Range<Sector>,
    sums: SumUse,
) -> Outcome {
    let clients = |shard: Option<&Rc<ArrayShard>>| {
        (core.index().0, shard.map_or(Clients::default(), |shard| Clients::of(&shard.state)))
    };
    let nothing = |shard: Option<&Rc<ArrayShard>>| Outcome {
        end: Err(Trouble::Changed),
        found: Found::default(),
        clients: clients(shard),
        busy: BTreeMap::new(),
        taken: None,
    };
    let (Some(shard), Some(jobs)) =
        (core.local::<ArrayShard>(fixed.key), core.local::<JobShard>(fixed.jobs_key()))
    else {
        return nothing(None);
    };
    if matches!(*task, Task::Check | Task::Repair(_)) && !jobs.reads.answered(&shard.members).await {
        return nothing(Some(&shard));
    }
    let _permit = loop {
        shard.state.gate.opened().await;
        if shard.state.stopped.get() {
            return nothing(Some(&shard));
        }
        if let Some(permit) = shard.state.gate.enter_background() {
            break permit;
        }
    };
    let parts = match shard.fixed.geometry.kind() {
        LevelKind::Parity => hold::stripes(&shard, range.start, range.end),
        LevelKind::Mirrored | LevelKind::Striped => hold::ranges(&shard, copies::held(&shard, &task, &range)),
    };
    let fill = match &*task {
        Task::Recover(targets) => Some(hold::Fill { seats: targets.clone(), end: range.end }),
        _ => None,
    };
    let mut step = Step {
        shard: &shard,
        reads: &jobs.reads,
        task: &task,
        found: Found::default(),
        agreed_sectors: 0,
        busy: BTreeMap::new(),
        sums: None,
        at: range.clone(),
    };
    let end = match hold::take(&core, &fixed, number, &parts, fill).await {
        true => {
            // Not before: what is written until now is noted.
            step.sums = StepSums::fetch(&shard, &task, &range, sums).await;
            step.go(range).await
        }
        false => Err(Trouble::Changed),
    };
    let Step { found, busy, sums, .. } = step;
    hold::release(&core, &fixed, number, &parts).await;
    let taken = sums.map(StepSums::taken);
    Outcome { end, found, clients: clients(Some(&shard)), busy, taken }
}

impl Step<'_> {
    async fn go(&mut self, range: Range<Sector>) -> Result<(), Trouble> {
        let block = self.block();
        let mut rest = vec![range];
        while let Some(range) = rest.pop() {
            let len = range.end - range.start;
            let last = len <= block;
            self.at = range.clone();
            let attempt = match self.shard.fixed.geometry.kind() {
                LevelKind::Parity => self.stripes(&range, last).await?,
                LevelKind::Mirrored | LevelKind::Striped => self.copies(&range, last).await?,
            };
            if attempt == Attempt::Split {
                assert!(!last, "a single block is not halved");
                let middle = range.start + Sector((len.0 / 2).next_multiple_of(block.0));
                rest.push(middle..range.end);
                rest.push(range.start..middle);
            }
        }
        Ok(())
    }

    /// What goes bad together: a block of the members.
    pub fn block(&self) -> Sector {
        Sector(u64::from(self.shard.fixed.member_block_bytes) / SECTOR_BYTES)
    }

    pub fn slots(&self) -> usize {
        self.shard.fixed.geometry.raid_disks()
    }

    /// The slot that a seat belongs to.
    pub fn slot_of(&self, seat: MemberIx) -> MemberIx {
        MemberIx(seat.0 % self.slots() as u16)
    }

    /// The members as they are now.
    pub fn health(&self) -> Result<Rc<Health>, Trouble> {
        let health = self.shard.members.health();
        if health.broken || self.shard.state.stopped.get() { Err(Trouble::Changed) } else { Ok(health) }
    }

    /// Takes note of reads that failed. Members that are gone are failed, which ends the step.
    pub async fn judge(
        &mut self,
        errors: Vec<(MemberIx, wattle_rt::IoError)>,
        last: bool,
    ) -> Result<(), Trouble> {
        // Halving reads a bad sector several times: it counts once.
        let gone = |(seat, error): &(MemberIx, wattle_rt::IoError)| match error.kind() {
            IoErrorKind::Medium if !last => false,
            _ => self.shard.members.judge_read_error(*seat, *error),
        };
        let gone: MemberSet = errors.iter().filter(|error| gone(error)).map(|(seat, _)| *seat).collect();
        if gone.is_empty() {
            return Ok(());
        }
        let _ = self.shard.state.fail(gone, FailCause::Read).await;
        Err(Trouble::Changed)
    }

    /// Writes. A write that a member does not take is recorded as bad on it, or the member is
    /// failed.
    pub async fn store(&mut self, writes: Writes) -> Result<(), Trouble> {
        let stored = self.note_and_put(writes).await;
        // What was planned to agree does once every member has taken it.
        match stored {
            Ok(true) => self.agreed_sectors = self.found.agreed_sectors,
            _ => self.found.agreed_sectors = self.agreed_sectors,
        }
        stored.map(drop)
    }

    async fn note_and_put(&mut self, writes: Writes) -> Result<bool, Trouble> {
        match self.task {
            _ if writes.runs.is_empty() => Ok(true),
            // What a recovery gives to the members that it fills has no sums.
            Task::Recover(_) => self.put(writes).await,
            Task::Resync | Task::Check => {
                self.note(self.at.clone()).await?;
                self.put(writes).await
            }
            Task::Repair(_) => {
                self.note(self.at.clone()).await?;
                self.put_change(writes).await
            }
        }
    }

    /// Sums of a range of the space of `Geometry::sync_sectors` say nothing any more.
    pub async fn note(&self, range: Range<Sector>) -> Result<(), Trouble> {
        sums::enter(&self.shard.state, range).await.map_err(trouble)
    }

    /// As [`Self::store`], of what a sum has proved.
    pub async fn store_proven(&mut self, writes: Writes) -> Result<(), Trouble> {
        if writes.runs.is_empty() {
            return Ok(());
        }
        self.put_change(writes).await.map(drop)
    }

    /// Puts what a repair chose. Members that are away are counted out before, and there are bits
    /// for it: they come back with it, and so does a member that loses it before it is flushed.
    async fn put_change(&mut self, writes: Writes) -> Result<bool, Trouble> {
        let (state, range) = (self.shard.state.clone(), self.at.clone());
        state.home(|home| async move { home.record_repair().await }).await.map_err(trouble)?;
        let _entered = intent::enter_regions(&state, range).await.map_err(trouble)?;
        self.put(writes).await
    }

    /// Whether every member has taken the writes.
    async fn put(&mut self, writes: Writes) -> Result<bool, Trouble> {
        if writes.runs.is_empty() {
            return Ok(true);
        }
        let health = self.shard.members.health();
        // Before anything is queued: what is given back with a write under way is overtaken by
        // clients' writes.
        if writes.runs.iter().any(|run| !health.state(run.seat).writable()) {
            return Err(Trouble::Changed);
        }
        let mut ops = Vec::with_capacity(writes.runs.len());
        let mut ranges = Vec::with_capacity(writes.runs.len());
        for Run { seat, start, end, bufs } in writes.runs {
            ops.push((seat, self.shard.members.write(seat, start, bufs, Durability::Cached)));
            ranges.push((seat, start..end));
        }
        let results = timed(&self.shard.core, ops, &mut self.busy).await;
        let mut outcome = Written::default();
        for ((seat, sectors), result) in ranges.into_iter().zip(results) {
            outcome.note(&health, seat, sectors, result);
        }
        // A member that is being filled is to have what it lists as good when others leave for it.
        // Where redundancy is only brought in line, sectors that cannot be recorded for want of
        // room stay bad and are in the way of nothing.
        let no_room = if let Task::Recover(_) = self.task { NoRoom::Fails } else { NoRoom::KeepsBad };
        let lost = outcome.failed();
        self.shard.state.settle(outcome, WriteCost::Sectors, no_room).await.map_err(trouble)?;
        let health = self.health()?;
        match lost.iter().all(|seat| health.state(seat).writable()) {
            true => Ok(lost.is_empty()),
            false => Err(Trouble::Changed),
        }
    }

    /// Records that sectors of a member hold nothing: before anything relies on the member there.
    pub async fn mark_bad(&self, seat: MemberIx, sectors: Range<Sector>) -> Result<(), Trouble> {
        let bad = move |bad: &mut BadRanges| bad.insert(sectors);
        let member = self.shard.state.occupant(seat);
        let marked = self.shard.state.home(move |home| async move { home.set_bad(member, bad).await }).await;
        marked.map_err(trouble)?;
        if self.health()?.state(seat).writable() { Ok(()) } else { Err(Trouble::Changed) }
    }

    /// No member has what one that is being filled was to get.
    pub async fn pass_on(&mut self, seat: MemberIx, sectors: Range<Sector>) -> Result<(), Trouble> {
        self.found.passed_on_sectors += (sectors.end - sectors.start).0;
        self.mark_bad(seat, sectors).await
    }
}

/// Why a change of a member's bad sectors was not recorded.
fn trouble(error: VolumeError) -> Trouble {
    match error {
        VolumeError::Unreadable => Trouble::NoRoom,
        _ => Trouble::Changed,
    }
}

/// Whether a member counts as whole, so that what it cannot read is a defect and not just not there
/// yet.
pub(super) fn in_sync(health: &Health, seat: MemberIx) -> bool {
    health.state(seat) == MemberState::InSync
}

/// Bytes of a length.
pub(super) fn bytes(len: Sector) -> usize {
    (len.0 * SECTOR_BYTES) as usize
}

/// The parts of two equally long buffers that differ, in whole blocks, joined where they follow one
/// another.
pub(super) fn differences(a: &[u8], b: &[u8], block: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    if a == b {
        return runs;
    }
    for at in (0..a.len()).step_by(block) {
        let end = (at + block).min(a.len());
        if a[at..end] != b[at..end] {
            match runs.last_mut() {
                Some(last) if last.end == at => last.end = end,
                _ => runs.push(at..end),
            }
        }
    }
    runs
}

/// Writes of one step, joined where they follow one another on a member.
#[derive(Default)]
pub(super) struct Writes {
    runs: Vec<Run>,
}

struct Run {
    seat: MemberIx,
    start: Sector,
    end: Sector,
    bufs: Vec<Buf>,
}

impl Writes {
    pub fn add(&mut self, seat: MemberIx, start: Sector, buf: Buf) {
        let end = start + Sector(buf.len() as u64 / SECTOR_BYTES);
        let last = self.runs.iter_mut().rev().find(|run| run.seat == seat);
        match last.filter(|run| run.end == start && run.bufs.len() < VECTOR_MAX) {
            Some(run) => {
                run.end = end;
                run.bufs.push(buf);
            }
            None => self.runs.push(Run { seat, start, end, bufs: vec![buf] }),
        }
    }
}

/// Awaits operations that were queued just now, and notes how long each took.
pub(super) async fn timed<F: Future>(
    core: &Core,
    ops: Vec<(MemberIx, F)>,
    busy: &mut BTreeMap<MemberIx, Duration>,
) -> Vec<F::Output> {
    let started = core.now();
    let (seats, mut ops): (Vec<_>, Vec<_>) =
        ops.into_iter().map(|(seat, op)| (seat, Some(Box::pin(op)))).unzip();
    let mut results: Vec<Option<F::Output>> = ops.iter().map(|_| None).collect();
    // Several operations of a member are in flight together.
    let mut last: BTreeMap<MemberIx, Duration> = BTreeMap::new();
    poll_fn(|context| {
        for (at, cell) in ops.iter_mut().enumerate() {
            if let Some(op) = cell
                && let Poll::Ready(result) = op.as_mut().poll(context)
            {
                results[at] = Some(result);
                *cell = None;
                last.insert(seats[at], core.now() - started);
            }
        }
        if ops.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    last.into_iter().for_each(|(seat, time)| *busy.entry(seat).or_default() += time);
    results.into_iter().map(|result| result.expect("every operation is done")).collect()
}
