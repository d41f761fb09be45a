//! An array that runs, as its operator has it: members named by people come, go and are replaced.
//!
//! Every operation is all or nothing: whatever an error says, the array is as it was before. One
//! operation at a time; the next one waits, but not for a device that is opened and looked at. It
//! all happens on the array's home core, beside the task that keeps its superblocks.
//!
//! Devices are given open ([`Newcomer`]), so that a simulation can give its own; [`Newcomer::open`]
//! opens what an operator names, under an exclusive lock and before anything else. A device that
//! leaves is let go of, lock and all.

mod bitmap;
mod join;
mod look;
mod names;
mod newcomer;
mod problems;
pub mod remote;
mod spares;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use wattle_engine::error::FailError;
use wattle_engine::geometry::LevelKind;
use wattle_engine::job::{FinishedJob, Job, JobEnd, JobError, RepairSource};
use wattle_engine::units::MemberIx;
use wattle_engine::{ArrayHandle, BadRanges, MemberKey};
use wattle_format::md::{Superblock, Uuid};
use wattle_rt::sync::Notify;
use wattle_rt::{Core, Either, Instant, Latch as Flag, Permit, Semaphore, race};

use crate::events::{ArrayEvent, Covered, EventLog, EventMember, Recorded};
use crate::md::admit::{Seat, WantedSeat};
use crate::md::assemble::{MemberRecovery, ReAddCandidate};
use crate::md::commit::MdMetadata;
use crate::md::start::{ClaimedMember, Started};
use crate::members::MemberAccess;
use crate::problem::{Code, Problem, shell_word};
pub use bitmap::BitmapChoice;
pub(crate) use look::{ANSWER_TIME_MAX, silent};
pub use newcomer::{MemberTaken, Newcomer, Terms};
use problems::not_a_member;
use remote::{Away, REMOTE_TIMEOUT};
use spares::{Refused, Returning};

/// How long an order to fail a member waits for its turn before that member is given up.
const TURN_TIME: Duration = Duration::from_secs(1);

/// Between two looks at a job that is waited for.
const LOOK: Duration = Duration::from_millis(50);

/// A device of the array.
#[derive(Debug, Clone)]
struct Known {
    name: String,
    spare: bool,
    /// It did not take a slot when it should have.
    refused: Option<Refused>,
}

/// An array that runs, with everything that belongs to it.
pub struct RunningArray {
    core: Core,
    /// How devices that are named are opened.
    access: MemberAccess,
    name: String,
    handle: ArrayHandle,
    books: Option<Rc<MdMetadata>>,
    devices: RefCell<BTreeMap<MemberKey, Known>>,
    /// Members that may come back.
    returning: RefCell<Vec<Returning>>,
    /// The smallest write that clients may send to members.
    block_bytes: u32,
    /// One device is opened and looked at at a time: one that is named twice is found out. Orders
    /// of other kinds do not wait for that.
    incoming: Semaphore,
    turn: Semaphore,
    /// It is to be stopped, and no member comes in any more.
    stopping: Flag,
    /// How long a request may wait for a member across a network.
    remote_timeout: Cell<Duration>,
    /// Reads of members that several paths lead to go by all of them in turn.
    paths_in_turn: Cell<bool>,
    /// Members across a network that were given up and may come back.
    away: RefCell<BTreeMap<MemberKey, Away>>,
    /// Members that an operator failed: they do not come back by themselves.
    ordered_out: RefCell<BTreeSet<MemberKey>>,
    /// Spares across a network whose connection ended.
    spares_away: RefCell<BTreeSet<MemberKey>>,
    /// How often one of them came back; and that one did, or a device came in.
    spares_back: (Cell<u64>, Notify),
    /// By name, when members came back last, and how long they were left alone before.
    came_back: RefCell<BTreeMap<String, (Instant, Duration)>>,
    events: EventLog,
}

impl RunningArray {
    /// An array that was just started, on its home core. `name` is what people call it; devices
    /// that an operator names are opened through `access`.
    #[must_use]
    pub fn new(core: &Core, access: &MemberAccess, name: &str, started: Started) -> Rc<Self> {
        let Started { handle, books, spares, returning, names, .. } = started;
        let known = |name: String, spare| Known { name, spare, refused: None };
        let seated = names.into_iter().map(|(key, name)| (key, known(name, false)));
        let spares = spares.into_iter().map(|(key, spare)| (key, known(spare.name, true)));
        let devices: BTreeMap<_, _> = seated.chain(spares).collect();
        let used = books.iter().flat_map(|books| {
            let seats = books.state().seats().to_vec();
            seats.into_iter().filter_map(|seat| books.device(seat.key?)).collect::<Vec<_>>()
        });
        let block_bytes = used.map(|device| device.logical_block_bytes()).max().unwrap_or(512);
        let events = books.as_ref().map(|books| books.events().clone()).unwrap_or_default();
        Rc::new(Self {
            access: access.clone(),
            core: core.clone(),
            name: name.to_owned(),
            handle,
            books,
            devices: RefCell::new(devices),
            returning: RefCell::new(returning.into_iter().map(Returning::from).collect()),
            block_bytes,
            incoming: Semaphore::new(1),
            turn: Semaphore::new(1),
            stopping: Flag::new(),
            remote_timeout: Cell::new(REMOTE_TIMEOUT),
            paths_in_turn: Cell::new(false),
            away: RefCell::default(),
            ordered_out: RefCell::default(),
            spares_away: RefCell::default(),
            spares_back: (Cell::new(0), Notify::new()),
            came_back: RefCell::default(),
            events,
        })
    }

    /// The array itself.
    #[must_use]
    pub fn handle(&self) -> &ArrayHandle {
        &self.handle
    }

    /// Stops the array, once no member is on its way in or out. Those that wait for their turn, or
    /// for a device that another holds, do not come in any more.
    ///
    /// # Errors
    /// As [`ArrayHandle::stop`].
    pub async fn stop(&self) -> Result<(), wattle_engine::VolumeError> {
        self.stopping.set();
        let _turn = self.turn.acquire(1).await;
        self.handle.stop(&self.core).await
    }

    /// Its home.
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// What happened since the first `seen` events, as far as it is kept.
    #[must_use]
    pub fn events(&self, seen: usize) -> Vec<Recorded> {
        self.events.since(seen)
    }

    /// How many events there were.
    #[must_use]
    pub fn events_count(&self) -> usize {
        self.events.count()
    }

    /// What is added to the events where it happens.
    #[must_use]
    pub fn covered(&self) -> Covered {
        if self.books.is_some() { Covered::OrdersAndFailures } else { Covered::Orders }
    }

    pub(crate) fn tell(&self, event: ArrayEvent) {
        self.events.add(self.core.wall_clock(), event);
    }

    /// A device of the array, as events name it.
    pub(crate) fn event_member(&self, key: Option<MemberKey>, name: &str) -> EventMember {
        EventMember { key, name: name.to_owned() }
    }

    /// The devices that are in a seat or are spares, or that failed and were not removed: their
    /// names, with their superblocks as of the last record.
    #[must_use]
    pub fn superblocks(&self) -> Vec<(String, Superblock)> {
        let Some(books) = &self.books else { return Vec::new() };
        let (state, devices) = (books.state(), self.devices.borrow());
        let named =
            |(key, known): (&MemberKey, &Known)| Some((known.name.clone(), state.superblock(*key)?.clone()));
        devices.iter().filter_map(named).collect()
    }

    /// By seat, the names of the devices.
    #[must_use]
    pub fn names(&self) -> Vec<Option<String>> {
        let devices = self.devices.borrow();
        let name = |key: Option<MemberKey>| Some(devices.get(&key?)?.name.clone());
        self.books
            .iter()
            .flat_map(|books| books.state().seats().iter().map(|seat| name(seat.key)).collect::<Vec<_>>())
            .collect()
    }

    /// Fails a member: the array goes on without it. One that is away already does not come back by
    /// itself.
    ///
    /// # Errors
    /// A [`Problem`]; the array is as it was.
    pub async fn fail(&self, member: &str) -> Result<MemberIx, Problem> {
        let (_turn, given_up) = match race(self.turn.acquire(1), self.core.sleep(TURN_TIME)).await {
            Either::First(turn) => (turn, None),
            Either::Second(()) => {
                let given_up = self.give_up(member).await?;
                (self.turn.acquire(1).await, given_up)
            }
        };
        let key = given_up.map_or_else(|| self.find(member), |(key, _)| Ok(key))?;
        let Some(seat) = self.seat_of(key)?.or(given_up.map(|(_, seat)| seat)) else {
            return Err(self.problem(
                Code::BadMember,
                format!("{member} was not failed: it is a spare"),
                "nothing depends on a spare",
                format!("let go of it: `wattle remove {} {}`", shell_word(&self.name), shell_word(member)),
            ));
        };
        let is_new = self.ordered_out.borrow_mut().insert(key);
        let failed = match self.handle.fail(&self.core, key).await {
            // It was given up before: the order is that it does not come back.
            Err(FailError::NotPresent(_)) if is_new && self.away.borrow().contains_key(&key) => Ok(seat),
            // What had the turn failed it.
            Err(FailError::NotPresent(_)) if given_up.is_some() => Ok(seat),
            failed => failed,
        };
        match &failed {
            Ok(_) => drop(self.away.borrow_mut().remove(&key)),
            Err(_) if is_new => drop(self.ordered_out.borrow_mut().remove(&key)),
            Err(_) => {}
        }
        failed.map_err(|error| self.fail_problem(member, error))
    }

    /// Gives up a member that is to be failed, if it is used: the order that has the turn may wait
    /// for this very member, and ends then.
    async fn give_up(&self, member: &str) -> Result<Option<(MemberKey, MemberIx)>, Problem> {
        let Ok(key) = self.find(member) else { return Ok(None) };
        match self.handle.give_up(&self.core, key).await {
            Ok(seat) => Ok(Some((key, seat))),
            Err(FailError::NotPresent(_)) => Ok(None),
            Err(error) => Err(self.fail_problem(member, error)),
        }
    }

    /// Lets go of a spare, of a member that failed, or of one that may come back.
    ///
    /// # Errors
    /// A [`Problem`]; the array is as it was.
    pub async fn remove(&self, member: &str) -> Result<(), Problem> {
        let _turn = self.turn.acquire(1).await;
        let key = match self.find(member) {
            Ok(found) => found,
            Err(problem) if problem.code == Code::Usage => return Err(problem),
            Err(problem) if !self.forget_returning(member).await? => return Err(problem),
            Err(_) => {
                self.tell(ArrayEvent::Removed { member: self.event_member(None, member) });
                return Ok(());
            }
        };
        if self.seat_of(key)?.is_some() {
            let left = self.handle.remove(&self.core, key).await;
            left.map_err(|error| self.leave_problem(member, error))?;
        }
        if let Some(books) = &self.books {
            books.forget(key).await;
        }
        self.devices.borrow_mut().remove(&key);
        self.ordered_out.borrow_mut().remove(&key);
        self.tell(ArrayEvent::Removed { member: self.event_member(Some(key), member) });
        Ok(())
    }

    /// Takes in what an operator names: back into its slot, into an empty one, or as a spare.
    ///
    /// # Errors
    /// A [`Problem`]; the array is as it was.
    pub async fn add(
        &self,
        name: &str,
        device_uuid: Uuid,
        terms: impl Into<Terms<'_>>,
    ) -> Result<MemberTaken, Problem> {
        let terms = terms.into();
        let _incoming = self.incoming.acquire(1).await;
        let newcomer = self.open(name, terms.typed, device_uuid).await?;
        let _turn = self.turn.acquire(1).await;
        self.join_opened(newcomer, WantedSeat::Any, terms).await
    }

    /// Says of which members copies are read only where no other one can be; of all others they are
    /// read like any. Recorded in the superblocks.
    ///
    /// # Errors
    /// A [`Problem`]: no such member, or metadata 0.90; or it could not be recorded, and those
    /// before it are.
    pub async fn set_write_mostly(&self, members: &[String]) -> Result<(), Problem> {
        let _turn = self.turn.acquire(1).await;
        let named = members.iter().map(|member| self.find(member)).collect::<Result<Vec<_>, _>>()?;
        let books = self.books()?;
        let state = books.state();
        for who in state.seats() {
            let Some(superblock) = who.key.and_then(|key| state.superblock(key)) else { continue };
            let Some(key) = who.key.filter(|_| who.state.writable()) else { continue };
            let on = named.contains(&key);
            let flags = join::write_mostly_set(superblock, on);
            if superblock.device_flags() == flags {
                continue;
            }
            if !superblock.version().is_1x() {
                return Err(self.problem(
                    Code::NotSupportedYet,
                    "write-mostly is not set in metadata 0.90",
                    "its flags are in the table that every member has a copy of",
                    "let mdadm set it, or use metadata 1.2",
                ));
            }
            books.set_flags(key, flags).await;
            let recorded = self.handle.set_write_mostly(&self.core, key, on).await;
            recorded.map_err(|error| {
                self.problem(
                    Code::MetadataNotWritten,
                    format!("write_mostly was not set: {error}"),
                    "it counts only once the superblocks say so",
                    "look at the members: `wattle status`",
                )
            })?;
            let name = self.devices.borrow().get(&key).map(|known| known.name.clone()).unwrap_or_default();
            self.tell(ArrayEvent::WriteMostly { member: self.event_member(Some(key), &name), on });
        }
        Ok(())
    }

    /// Takes in a device that is open already.
    ///
    /// # Errors
    /// A [`Problem`]; the array is as it was.
    pub async fn take(
        &self,
        newcomer: Newcomer,
        place: WantedSeat,
        terms: impl Into<Terms<'_>>,
    ) -> Result<Seat, Problem> {
        let _turn = self.turn.acquire(1).await;
        self.join(newcomer, None, place, terms.into()).await
    }

    /// Starts to replace a member that works, with the device called `with` (a spare of the array,
    /// or one that is opened), or with any spare that fits. The member keeps its slot until the
    /// replacement is whole.
    ///
    /// # Errors
    /// A [`Problem`]; the array is as it was.
    pub async fn replace(
        &self,
        member: &str,
        with: Option<&str>,
        device_uuid: Uuid,
        terms: impl Into<Terms<'_>>,
    ) -> Result<MemberTaken, Problem> {
        let terms = terms.into();
        let (key, _) = self.replaced(member)?;
        let Some(with) = with else {
            let _turn = self.turn.acquire(1).await;
            let (_, place) = self.replaced(member)?;
            return self.replace_with_spare(member, place, terms).await;
        };
        if let Ok(spare) = self.find(with) {
            if spare == key {
                return Err(self.problem(
                    Code::GivenTwice,
                    format!("{member} cannot replace itself"),
                    "a replacement is a second device",
                    "name another device, or none to take a spare",
                ));
            }
            if self.devices.borrow().get(&spare).is_some_and(|known| known.spare) {
                let _turn = self.turn.acquire(1).await;
                let (_, place) = self.replaced(member)?;
                return self.use_spare(spare, place, terms).await;
            }
        }
        let _incoming = self.incoming.acquire(1).await;
        let newcomer = self.open(with, terms.typed, device_uuid).await?;
        let _turn = self.turn.acquire(1).await;
        let (_, place) = self.replaced(member)?;
        self.join_opened(newcomer, place, terms).await
    }

    /// A member that an operator wants to be replaced, and where its replacement goes.
    fn replaced(&self, member: &str) -> Result<(MemberKey, WantedSeat), Problem> {
        let key = self.find(member)?;
        let slots = self.books()?.state().seats().len() / 2;
        match self.seat_of(key)?.filter(|seat| seat.index() < slots) {
            Some(seat) => Ok((key, WantedSeat::Replace(seat.0))),
            None => Err(self.problem(
                Code::NoPlace,
                format!("{member} is not replaced: it has no slot of its own"),
                "only a member in a slot can be replaced",
                "`wattle status` shows the slots",
            )),
        }
    }

    async fn replace_with_spare(
        &self,
        member: &str,
        place: WantedSeat,
        terms: Terms<'_>,
    ) -> Result<MemberTaken, Problem> {
        let mut refused = None;
        for spare in self.spares_by_size(|_| true) {
            match self.use_spare(spare, place, terms).await {
                Ok(taken) => return Ok(taken),
                Err(problem) => refused = refused.or(Some(problem)),
            }
        }
        Err(refused.unwrap_or_else(|| {
            self.problem(
                Code::NoPlace,
                format!("{member} is not replaced: the array has no spare"),
                "a replacement needs a device",
                format!(
                    "name one: `wattle replace {} {} DEVICE`",
                    shell_word(&self.name),
                    shell_word(member)
                ),
            )
        }))
    }

    /// Reads or writes anew every bad sector of a member from redundancy, and takes off its log
    /// those that hold their content again. How many sectors are left. Takes as long as a repair
    /// may, so members may come and go meanwhile, and the array may be stopped. It is gone through
    /// range by range, as long as `goes_on`. `when_repaired` is called where something did not
    /// agree and was made to: clients may read other data then.
    ///
    /// # Errors
    /// A [`Problem`]: no member of that name, or the array has no redundancy left to do it from.
    pub async fn clear_bad_blocks(
        &self,
        member: &str,
        goes_on: impl Fn() -> bool,
        when_repaired: impl Fn(),
    ) -> Result<u64, Problem> {
        let key = self.find(member)?;
        let bad = self.bad_of(key)?;
        if bad.is_empty() {
            return Ok(0);
        }
        let level = self.handle.status(&self.core).await.level;
        // What disagrees for other reasons is changed as little as can be.
        let source = match (level.kind(), level.to_md()) {
            (LevelKind::Parity, 6) => RepairSource::Raid6Culprit,
            (LevelKind::Parity, _) => RepairSource::ParityFromData,
            _ => RepairSource::Majority,
        };
        // A repair of RAID 10 counts in sectors of the array: all of it, then.
        let whole = level.kind() == LevelKind::Mirrored && level.to_md() != 1;
        let ranges: Vec<_> = if whole { vec![None] } else { bad.iter().map(Some).collect() };
        for range in ranges {
            if !goes_on() {
                break;
            }
            let ended = self.repair(member, Job::Repair { range, source: Some(source) }).await?;
            // One whose end was not seen may have found anything.
            if ended.as_ref().is_none_or(|ended| ended.mismatch_sectors > 0) {
                when_repaired();
            }
            if ended.is_none_or(|ended| ended.end != JobEnd::Finished) {
                break;
            }
        }
        let left = self.bad_of(key)?.sectors();
        let member = self.event_member(Some(key), member);
        self.tell(ArrayEvent::BadBlocksRepaired { member, left_sectors: left });
        Ok(left)
    }

    /// What is known to be bad of a member; nothing of a spare.
    fn bad_of(&self, key: MemberKey) -> Result<BadRanges, Problem> {
        let state = self.books()?.state();
        let seat = state.seats().iter().find(|seat| seat.key == Some(key));
        Ok(seat.map(|seat| BadRanges::clone(&seat.bad)).unwrap_or_default())
    }

    /// Runs a repair until it ends, and says how; `None` if its end was not seen.
    async fn repair(&self, member: &str, job: Job) -> Result<Option<Arc<FinishedJob>>, Problem> {
        let number = self.handle.start_job(&self.core, job).await.map_err(|error| {
            let busy = error == JobError::AlreadyRunning;
            self.problem(
                if busy { Code::JobRunning } else { Code::ServerFailed },
                format!("the bad blocks of {member} were not repaired: {error}"),
                "they are written anew by a repair of that part of the array",
                "`wattle status` shows what is under way",
            )
        })?;
        while self.handle.job_is_asked_for(&self.core).await && !self.handle.status(&self.core).await.broken {
            self.core.sleep(LOOK).await;
        }
        let ends = self.handle.status(&self.core).await.asked_ends;
        Ok(ends.into_iter().find(|end| end.number == Some(number)))
    }

    /// Puts a spare into a slot that is empty, or beside its member.
    pub(crate) async fn use_spare(
        &self,
        key: MemberKey,
        place: WantedSeat,
        terms: Terms<'_>,
    ) -> Result<MemberTaken, Problem> {
        let books = self.books()?;
        let state = books.state();
        let name = self.devices.borrow().get(&key).map(|known| known.name.clone()).unwrap_or_default();
        let (Some(device), Some(superblock)) = (books.device(key), state.superblock(key)) else {
            return Err(not_a_member(&name, &self.name, &[]));
        };
        let newcomer = Newcomer::known(&self.core, &name, &device, superblock).await.map_err(|problem| {
            self.problem(
                problem.code,
                format!("spare {name} cannot be used: {}", problem.what),
                "a spare that cannot be read holds no data",
                format!("remove it: `wattle remove {} {}`", shell_word(&self.name), shell_word(&name)),
            )
        })?;
        let seat = self.join(newcomer, Some(key), place, terms).await?;
        Ok(MemberTaken { name, seat })
    }

    /// Takes back a member that was away.
    pub(crate) async fn re_add(&self, who: ReAddCandidate, member: ClaimedMember) -> Result<Seat, Problem> {
        let newcomer =
            Newcomer::known(&self.core, &member.name, &member.device, member.written_superblock()?).await?;
        // The bitmap may be gone meanwhile: then only an operator has all of it written over.
        let only_missed = who.recovery == MemberRecovery::Regions;
        let terms = Terms { only_missed, ..Terms::default() };
        self.join(newcomer, None, WantedSeat::Slot(who.slot), terms).await
    }

    /// Waits until no order is under way, and lets none begin until what it returns is dropped.
    /// What the array shows meanwhile is behind the events of the orders that brought it about.
    pub async fn between_orders(&self) -> Permit<'_> {
        self.turn.acquire(1).await
    }

    /// As [`Self::between_orders`], if no order is under way now.
    pub fn try_between_orders(&self) -> Option<Permit<'_>> {
        self.turn.try_acquire(1)
    }

    /// Whether it was told to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_set()
    }

    /// One order at a time.
    pub(crate) fn turn(&self) -> &Semaphore {
        &self.turn
    }

    /// Slots without a working member, if the array can be given members.
    pub(crate) async fn empty_slots(&self) -> Vec<u16> {
        let status = self.handle.status(&self.core).await;
        if status.broken || status.read_only || self.books.is_none() {
            return Vec::new();
        }
        let slots = (0..).zip(&status.members);
        slots.filter(|(_, member)| !member.state.writable()).map(|(slot, _)| slot).collect()
    }

    fn books(&self) -> Result<&Rc<MdMetadata>, Problem> {
        self.books.as_ref().ok_or_else(|| {
            self.problem(
                Code::ReadOnlyMember,
                "its members cannot be changed",
                "it is served read-only, or its level has no redundancy",
                "serve an array with redundancy without --read-only",
            )
        })
    }

    /// The seat of a device; `None` for a spare.
    fn seat_of(&self, key: MemberKey) -> Result<Option<MemberIx>, Problem> {
        let state = self.books()?.state();
        let seat = (0..).zip(state.seats()).find(|(_, who)| who.key == Some(key));
        Ok(seat.map(|(seat, _)| MemberIx(seat)))
    }
}
