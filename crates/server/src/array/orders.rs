//! What operators ask of an array that runs.

use std::rc::Rc;
use std::time::Duration;

use wattle_control::admit::Seat;
use wattle_control::events::action_word;
use wattle_control::running::{MemberTaken, RunningArray, Terms};
use wattle_control::{Code, Problem};
use wattle_engine::ArrayStatus;
use wattle_engine::geometry::LevelKind;
use wattle_engine::job::{JobKind, Pace};
use wattle_engine::{Job, JobError, RecordJob};
use wattle_rt::{Either, race};

use super::job;
use super::members::{Seats, fail_problem, is_untrusted, leave_problem, untrusted_problem};
use super::{LOOK_AT_SCRUB, Running, Served, watch_scrub};
use crate::events::ServerEvent;
use crate::ids::random_uuid;
use crate::protocol::RepairChoice;
use crate::settings::{self, CacheCeiling, SettingChange};

/// For what may be refused to be begun.
const BEGIN_TIME_MAX: Duration = Duration::from_millis(300);

/// For a job to end that was told to.
const ABORT_TIME_MAX: Duration = Duration::from_secs(3);

/// What came of an order.
#[derive(Debug)]
pub struct Obeyed {
    /// For people.
    pub message: String,
    /// The member that came in, as reports call it.
    pub member: Option<String>,
}

impl From<String> for Obeyed {
    fn from(message: String) -> Self {
        Self { message, member: None }
    }
}

impl Served {
    /// Fails a member.
    pub async fn fail(&self, member: &str) -> Result<String, Problem> {
        let name = &self.facts.name;
        let status = self.handle.status(&self.core).await;
        let seats = Seats::of(name, &status);
        let failed = match &self.kept {
            Some(kept) => {
                let seat = kept.running.fail(&seats.full_name(member)).await;
                seat.map_err(|problem| untrusted(problem, name, member, &status))?
            }
            None => {
                let seat = seats.find(member)?;
                self.ordered_out.set(Some(seat));
                let failed = self.handle.fail(&self.core, seat).await;
                if let Err(error) = failed {
                    self.ordered_out.set(None);
                    return Err(fail_problem(name, seats.name(seat), error, &status));
                }
                seat
            }
        };
        self.look_after_order().await;
        self.ordered_out.set(None);
        let slot = failed.index() % self.facts.slots();
        let status = self.handle.status(&self.core).await;
        let member = status.members.iter().chain(&status.replacements).nth(failed.index());
        let then = match member {
            Some(member) if member.awaited && member.traffic.in_flight > 0 => {
                " when what is under way there has ended"
            }
            _ => "",
        };
        Ok(format!(
            "{} (slot {slot}) of {name} is failed; the array goes on without it{then}",
            seats.name(failed)
        ))
    }

    /// Lets go of a member.
    pub async fn remove(&self, member: &str) -> Result<String, Problem> {
        let name = &self.facts.name;
        let status = self.handle.status(&self.core).await;
        let seats = Seats::of(name, &status);
        let shown = seats.full_name(member);
        match &self.kept {
            Some(kept) => kept.running.remove(&shown).await?,
            None => {
                let seat = seats.find(member)?;
                let left = self.handle.remove(&self.core, seat).await;
                left.map_err(|error| leave_problem(name, seats.name(seat), error))?;
            }
        }
        self.look_after_order().await;
        Ok(format!("{shown} is no member of {name} any more"))
    }

    /// Takes a member.
    pub async fn add(&self, member: &str, terms: Terms<'_>) -> Result<Obeyed, Problem> {
        let running = self.running(&format!("{member} was not added"))?;
        let MemberTaken { name: member, seat } = running.add(member, random_uuid()?, terms).await?;
        self.look_after_order().await;
        let (name, word) = (&self.facts.name, self.facts.word());
        let message = match seat {
            Seat::Slot(slot) => format!(
                "{member} is in slot {slot} of {name} and being brought up to date; `wattle status {word}` shows how far it is"
            ),
            Seat::Replacement(slot) => {
                format!("{member} is being made to replace the member of slot {slot} of {name}")
            }
            Seat::Spare => format!("{member} is a spare of {name}: no slot is empty"),
        };
        Ok(Obeyed { message, member: Some(member) })
    }

    /// Replaces a member that works.
    pub async fn replace(
        &self,
        member: &str,
        with: Option<&str>,
        terms: Terms<'_>,
    ) -> Result<Obeyed, Problem> {
        let running = self.running(&format!("{member} was not replaced"))?;
        let status = self.handle.status(&self.core).await;
        let member = &Seats::of(&self.facts.name, &status).full_name(member);
        let MemberTaken { name: new, seat } = running.replace(member, with, random_uuid()?, terms).await?;
        self.look_after_order().await;
        let (name, word) = (&self.facts.name, self.facts.word());
        let slot = match seat {
            Seat::Slot(slot) | Seat::Replacement(slot) => format!(" (slot {slot})"),
            Seat::Spare => String::new(),
        };
        let message = format!(
            "{member}{slot} of {name} is being replaced; it stays a member until that is done: `wattle status {word}`"
        );
        Ok(Obeyed { message, member: Some(new) })
    }

    /// Reads and writes anew what the bad-block log of a member lists. Told in the events when it
    /// is done.
    pub async fn clear_bad_blocks(self: &Rc<Self>, member: &str) -> Result<String, Problem> {
        let running = self.running("bad blocks")?.clone();
        let (asked, served, told) = (member.to_owned(), Rc::downgrade(self), self.clearing_ended.get());
        self.clearing.update(|count| count + 1);
        let work = self.core.spawn(async move {
            let goes_on = || served.upgrade().is_some_and(|served| served.clearing_ended.get() == told);
            let repaired = || served.upgrade().iter().for_each(|served| served.tell_repaired());
            let cleared = running.clear_bad_blocks(&asked, goes_on, repaired).await;
            if let Some(served) = served.upgrade() {
                served.clearing.update(|count| count - 1);
                if let Err(problem) = &cleared {
                    served.tell(ServerEvent::OrderFailed(Box::new(problem.clone())));
                }
            }
            cleared
        });
        // An error at the beginning is reported at once; the rest takes as long as a check.
        match race(work, self.core.sleep(BEGIN_TIME_MAX)).await {
            Either::First(cleared) => {
                let left = cleared?;
                Ok(format!("{member} of {}: {left} sectors of bad blocks are left", self.facts.name))
            }
            Either::Second(()) => {
                let (name, word) = (&self.facts.name, self.facts.word());
                Ok(format!(
                    "bad blocks of {member} of {name} are being read and written anew; `wattle status {word}` tells the end"
                ))
            }
        }
    }

    fn running(&self, what: &str) -> Result<&Rc<RunningArray>, Problem> {
        self.kept.as_ref().map(|kept| &kept.running).ok_or_else(|| {
            Problem::new(
                Code::BadRequest,
                format!("{}: {what}: it has no metadata", self.facts.name),
                "nothing could tell next time which devices are its members",
                "make an array with `wattle create`, and serve that",
            )
        })
    }

    /// Starts a check; one that records, if that is the policy.
    pub async fn check(self: &Rc<Self>) -> Result<String, Problem> {
        if self.records.get() {
            return self.record_scrub(RecordJob::Check).await;
        }
        self.scrub(JobKind::Check, None, Job::Check { range: None }).await
    }

    /// Starts a scrub that records what every member holds.
    pub async fn record_scrub(self: &Rc<Self>, record: RecordJob) -> Result<String, Problem> {
        let (action, source) = match record {
            RecordJob::Repair => (JobKind::Repair, Some(job::source_name(&RepairChoice::Record))),
            RecordJob::Check | RecordJob::Accept => (JobKind::Check, None),
        };
        self.scrub(action, source, Job::Record(record)).await
    }

    /// Starts a repair.
    pub async fn repair(self: &Rc<Self>, source: &RepairChoice) -> Result<String, Problem> {
        if *source == RepairChoice::Majority && self.facts.geometry.redundancy() < 2 {
            // Two copies have no majority.
            return Err(job::job_problem(
                &self.facts.name,
                self.facts.geometry.redundancy(),
                "repair",
                JobError::NeedsSource,
            ));
        }
        if *source == RepairChoice::Record && self.records.get() {
            return self.record_scrub(RecordJob::Repair).await;
        }
        let status = self.handle.status(&self.core).await;
        let taken = job::engine_source(source, &Seats::of(&self.facts.name, &status))?;
        let job = Job::Repair { range: None, source: Some(taken) };
        self.scrub(JobKind::Repair, Some(job::source_name(source)), job).await
    }

    async fn scrub(
        self: &Rc<Self>,
        action: JobKind,
        source: Option<String>,
        job: Job,
    ) -> Result<String, Problem> {
        let (name, word) = (&self.facts.name, self.facts.word());
        let started = self.time();
        let number = self.handle.start_job(&self.core, job).await.map_err(|error| {
            job::job_problem(name, self.facts.geometry.redundancy(), action_word(action), error)
        })?;
        // It may have ended by now: its end is told apart by its number.
        let report = job::begun(self.history.next_run(), action, source, started);
        self.record(&report);
        self.scrubs.borrow_mut().push(Running { report, number });
        self.core.spawn(watch_scrub(self.core.clone(), Rc::downgrade(self)));
        race(self.write_history(), self.core.sleep(BEGIN_TIME_MAX)).await;
        let action = action_word(action);
        Ok(match self.paused.get() {
            true => format!(
                "{name}: {action} is asked for, and waits: background work is paused; `wattle check {word} --resume` lets it begin"
            ),
            false => {
                format!(
                    "{name}: {action} started; `wattle status {word}` shows how far it is and what it finds"
                )
            }
        })
    }

    /// Ends a check or repair, also one of bad blocks.
    pub async fn abort(&self) -> Result<String, Problem> {
        let (name, word) = (&self.facts.name, self.facts.word());
        if !self.is_asked_for_anything().await {
            return Err(Problem::new(
                Code::BadRequest,
                format!("{name}: no check or repair is under way"),
                "there is nothing to end; a resync or recovery is needed, and can be paused",
                format!("`wattle status {word}` shows what runs"),
            ));
        }
        self.end_what_is_asked_for().await;
        Ok(match self.wait_for_scrub_end().await {
            true => format!("{name}: ended; what was found until then is in `wattle status {word}`"),
            false => self.still_ends(),
        })
    }

    /// Whether a check or repair was asked for and has not ended, of bad blocks too.
    async fn is_asked_for_anything(&self) -> bool {
        self.clearing.get() > 0 || self.handle.job_is_asked_for(&self.core).await
    }

    pub(super) async fn end_what_is_asked_for(&self) {
        self.clearing_ended.update(|count| count + 1);
        self.handle.abort_job(&self.core).await;
    }

    /// Until what was told to end has ended and the history has it; false if it takes longer.
    pub(super) async fn wait_for_scrub_end(&self) -> bool {
        let deadline = self.core.now() + ABORT_TIME_MAX;
        loop {
            let goes_on = self.is_asked_for_anything().await;
            self.note_scrub(&self.handle.status(&self.core).await);
            if !goes_on || self.core.now() >= deadline {
                return !goes_on;
            }
            self.core.sleep(LOOK_AT_SCRUB).await;
        }
    }

    fn still_ends(&self) -> String {
        let (name, word) = (&self.facts.name, self.facts.word());
        format!(
            "{name}: the check or repair ends once its members have answered what is under way; `wattle status {word}` shows when it has, and what it found"
        )
    }

    /// Holds background work, or lets it go on.
    pub async fn pause(&self, paused: bool) -> Result<String, Problem> {
        self.handle.pause(&self.core, paused).await;
        self.paused.set(paused);
        let (name, word) = (&self.facts.name, self.facts.word());
        Ok(match paused {
            true => format!("{name}: background work rests; `wattle check {word} --resume` lets it go on"),
            false if self.frozen.get() => format!(
                "{name}: background work is not paused, but sync_action is frozen; `wattle set {word} sync_action=idle` lets it go on"
            ),
            false => format!("{name}: background work goes on"),
        })
    }

    /// Changes a setting.
    pub async fn set(self: &Rc<Self>, key: &str, value: &str) -> Result<String, Problem> {
        let pace = self.pace.get();
        match settings::parse(key, value)? {
            SettingChange::SpeedMin(speed) => {
                self.set_pace(Pace { min_bytes_per_second: speed, ..pace }).await?;
            }
            SettingChange::SpeedMax(speed) => {
                self.set_pace(Pace { max_bytes_per_second: speed.unwrap_or(u64::MAX), ..pace }).await?;
            }
            SettingChange::Action(action) => return self.set_action(action).await,
            SettingChange::ReadDeadline(deadline) => {
                self.handle.set_read_deadline(&self.core, deadline).await;
                self.read_deadline.set(deadline);
            }
            SettingChange::Goal(goal) => {
                self.handle.set_goal(&self.core, goal).await;
                self.goal.set(goal);
            }
            SettingChange::Cache(ceiling) => self.set_cache(ceiling).await?,
            SettingChange::ReadAhead(bytes) => {
                self.handle.set_read_ahead_bytes(&self.core, bytes).await;
                self.read_ahead_bytes.set(bytes);
            }
            SettingChange::RemoteTimeout(timeout) => {
                self.running("remote_timeout was not set")?.set_remote_timeout(timeout);
            }
            SettingChange::Paths(in_turn) => {
                self.running("paths was not set")?.set_paths_in_turn(in_turn).await;
            }
            SettingChange::Record(on) => {
                if on && self.books().is_none_or(|books| books.sums().is_none()) {
                    return Err(job::job_problem(
                        &self.facts.name,
                        self.facts.geometry.redundancy(),
                        "recording",
                        JobError::NoSums,
                    ));
                }
                self.records.set(on);
            }
            SettingChange::WriteMostly(members) => {
                let status = self.handle.status(&self.core).await;
                let seats = Seats::of(&self.facts.name, &status);
                let members: Vec<_> = members.iter().map(|member| seats.full_name(member)).collect();
                self.running("write_mostly was not set")?.set_write_mostly(&members).await?;
                self.look_after_order().await;
            }
            SettingChange::Bitmap(choice) => {
                if self.facts.geometry.redundancy() == 0 {
                    return Err(Problem::new(
                        Code::BitmapNotChanged,
                        format!("{}: {} has no bitmap", self.facts.name, self.facts.geometry.level()),
                        "there are neither copies nor parity that a crash could leave different",
                        format!("`wattle set {}` shows what can be set", self.facts.word()),
                    ));
                }
                self.running("the bitmap was not changed")?.set_bitmap(choice).await?;
            }
            // Of its volume: what serves it sees to that.
            SettingChange::Qos(..) => {}
        }
        Ok(format!("{}: {key} is {value}", self.facts.name))
    }

    async fn set_pace(&self, pace: Pace) -> Result<(), Problem> {
        if pace.min_bytes_per_second > pace.max_bytes_per_second {
            return Err(Problem::new(
                Code::Usage,
                format!("{}: sync_speed_min would be above sync_speed_max", self.facts.name),
                "it cannot be held and exceeded at once",
                format!("`wattle set {}` shows both; change the other one first", self.facts.word()),
            ));
        }
        self.handle.set_pace(&self.core, pace).await;
        self.pace.set(pace);
        Ok(())
    }

    async fn set_cache(&self, ceiling: CacheCeiling) -> Result<(), Problem> {
        if self.facts.geometry.kind() != LevelKind::Parity {
            return Err(Problem::new(
                Code::BadRequest,
                format!("{}: {} has no stripe cache", self.facts.name, self.facts.geometry.level()),
                "only writes to levels with parity read before they write",
                format!("`wattle set {}` shows what can be set", self.facts.word()),
            ));
        }
        let bytes = usize::try_from(ceiling.bytes(self.facts.slots())).unwrap_or(usize::MAX);
        self.handle.set_cache_bytes(&self.core, bytes).await;
        Ok(())
    }

    /// Does what writing to md's `sync_action` does.
    async fn set_action(self: &Rc<Self>, action: settings::SyncAction) -> Result<String, Problem> {
        let name = &self.facts.name;
        match action {
            settings::SyncAction::Check => return self.check().await,
            settings::SyncAction::Repair => {
                let source = job::source_as_md(self.facts.geometry.level());
                let source = source.ok_or_else(|| {
                    job::job_problem(name, self.facts.geometry.redundancy(), "repair", JobError::NeedsSource)
                })?;
                return self.repair(&source).await;
            }
            settings::SyncAction::Frozen => {
                self.handle.freeze(&self.core, true).await;
                self.frozen.set(true);
            }
            settings::SyncAction::Idle => {
                self.end_what_is_asked_for().await;
                self.handle.freeze(&self.core, false).await;
                self.frozen.set(false);
                self.pause(false).await?;
            }
        }
        let ended = self.wait_for_scrub_end().await;
        Ok(match action {
            _ if !ended => self.still_ends(),
            settings::SyncAction::Frozen => {
                format!("{name}: nothing runs in the background until sync_action is idle")
            }
            _ => format!("{name}: no check or repair runs; what is needed may"),
        })
    }
}

/// A refusal that names no missing member is about parity.
fn untrusted(problem: Problem, array: &str, member: &str, status: &ArrayStatus) -> Problem {
    let untrusted = problem.code == Code::LastCopy && is_untrusted(status);
    if untrusted { untrusted_problem(array, member) } else { problem }
}
