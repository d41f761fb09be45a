//! Members across a network: one that does not answer in time is given up, and comes back by
//! itself.
//!
//! - A member is given up once a request has waited for longer than the array's time-out, or its
//!   connection has been away for so long, and only if the array can do without it. The last copy
//!   is waited for, for as long as its connection has patience. Members that were given up and are
//!   not failed yet count as lost: one decision at a time, on one task.
//! - A member that is given up fails every request from then on; the engine fails it then, which is
//!   durable before anything that it missed is acknowledged (invariant 2 of the engine). One that
//!   has nothing in flight is failed from here. From then on no bit of the bitmap is cleared
//!   (invariant 7), so that every region with a write in flight at that moment, or written since,
//!   has its bit.
//! - It comes back as a new device, once no request of the old connection can be carried out any
//!   more ([`wattle_rt::Link::reopen`]): what the recovery writes is not undone later.
//! - It comes back only as the same member, by its device number and id, if its event count says
//!   that it did not go on alone, and only if the bitmap says all that it missed, or it was being
//!   filled when it went away. Otherwise it stays away, and the reason is told.
//! - A spare whose connection ended is connected to again, and shows that it is the same spare,
//!   before it is used.
//! - A member that an operator failed, before it was given up or since, or that failed for another
//!   reason than silence, is left alone until it is added.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use wattle_engine::MemberKey;
use wattle_engine::units::{MemberIx, SECTOR_BYTES};
use wattle_format::md::{SUPERBLOCK_BYTES, Uuid};
use wattle_rt::{
    BufMut, Device, Durability, Either, IoError, IoErrorKind, LinkState, ReopenError, WallTime, race,
};

use super::{Newcomer, RunningArray, Terms};
use crate::events::{ArrayEvent, EventPlace};
use crate::md::admit::WantedSeat;
use crate::problem::{Code, Problem, shell_word};

/// How long a request may wait for a member across a network, where nothing else is set.
pub const REMOTE_TIMEOUT: Duration = Duration::from_secs(2);

/// So many looks are taken in the time that a member has.
const LOOKS: u32 = 8;
const LOOK_MAX: Duration = Duration::from_millis(250);

/// Between two attempts to have a member back: twice as long each time.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A member that goes away so soon after it came back is left alone for longer each time.
const SOON: Duration = Duration::from_secs(5);
const LEFT_ALONE_MAX: Duration = Duration::from_secs(30);

/// A member across a network, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteMember {
    /// Its name.
    pub name: String,
    /// Where it is, or was.
    pub seat: MemberIx,
    /// Its connection.
    pub link: LinkState,
    /// Since when it is away, if it is, and what was done about it.
    pub away: Option<Away>,
}

/// A member that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away {
    /// Since when.
    pub since: WallTime,
    /// How often it was tried to have it back.
    pub attempts: u64,
    /// Why the last attempt failed.
    pub reason: Option<Box<Problem>>,
}

/// A member with a connection behind it.
struct Linked {
    key: MemberKey,
    seat: MemberIx,
    name: String,
    device: Device,
    /// The array uses it, as of the last record.
    in_use: bool,
}

impl Linked {
    fn place(&self, slots: usize) -> EventPlace {
        match self.seat.index().checked_sub(slots) {
            None => EventPlace::Slot(self.seat.0),
            Some(slot) => EventPlace::Replacement(slot as u16),
        }
    }
}

/// Watches the members across a network as long as the array runs.
///
/// # Cancellation
/// Safe: what was begun is finished by the engine, or undone.
pub async fn watch(array: Rc<RunningArray>) {
    let (mut version, mut told) = (0, BTreeSet::new());
    loop {
        let mut changed = Box::pin(array.handle.changed(&array.core, version));
        version = loop {
            let change = match array.has_links().await {
                false => match race(array.spares_back.1.wait(), &mut changed).await {
                    Either::First(()) => continue,
                    Either::Second(change) => change,
                },
                true => match race(array.core.sleep(array.look_every()), &mut changed).await {
                    Either::First(()) => {
                        array.tell_changed(&mut told).await;
                        array.look_at(array.linked()).await;
                        array.look_at_spares().await;
                        continue;
                    }
                    Either::Second(change) => change,
                },
            };
            match change {
                Some(now) => break now,
                None => return,
            }
        };
    }
}

impl RunningArray {
    /// How long a request may wait for a member across a network.
    #[must_use]
    pub fn remote_timeout(&self) -> Duration {
        self.remote_timeout.get()
    }

    /// Sets it, from now on.
    pub fn set_remote_timeout(&self, timeout: Duration) {
        self.remote_timeout.set(timeout);
    }

    /// Whether reads of members that several paths lead to go by all of them in turn.
    #[must_use]
    pub fn paths_in_turn(&self) -> bool {
        self.paths_in_turn.get()
    }

    /// Sets it, from now on, also for members that come later.
    pub async fn set_paths_in_turn(&self, on: bool) {
        self.paths_in_turn.set(on);
        for (_, _, device) in self.handle.devices(&self.core).await {
            self.set_paths_of(&device).await;
        }
    }

    /// Has the paths of a member used as the array says.
    pub(super) async fn set_paths_of(&self, device: &Device) {
        if let Some(link) = device.link() {
            link.take_turns(&self.core, self.paths_in_turn.get()).await;
        }
    }

    /// The members across a network, as they are now.
    pub async fn remotes(&self) -> Vec<RemoteMember> {
        let mut remotes = Vec::new();
        for (seat, key, device) in self.handle.devices(&self.core).await {
            let Some(link) = device.link() else { continue };
            if let Some(link) = link.look(&self.core).await {
                let away = key.and_then(|key| self.away.borrow().get(&key).cloned());
                remotes.push(RemoteMember { name: device.name().to_owned(), seat, link, away });
            }
        }
        remotes
    }

    fn look_every(&self) -> Duration {
        (self.remote_timeout.get() / LOOKS).min(LOOK_MAX)
    }

    async fn has_links(&self) -> bool {
        let seated = self.handle.devices(&self.core).await;
        seated.iter().any(|(_, _, device)| device.link().is_some()) || !self.linked_spares().is_empty()
    }

    /// Whether a device lies across a network and its connection was given up.
    pub(super) async fn has_ended(&self, device: &Device) -> bool {
        let Some(link) = device.link() else { return false };
        link.look(&self.core).await.is_some_and(|state| state.ended.is_some())
    }

    /// Tells of members whose servers came back with something that cannot take their place, the
    /// last copy of what they hold included.
    async fn tell_changed(&self, told: &mut BTreeSet<(MemberIx, &'static str)>) {
        for (seat, key, device) in self.handle.devices(&self.core).await {
            let Some(link) = device.link() else { continue };
            let changed = link.look(&self.core).await.and_then(|state| state.changed);
            let Some(why) = changed.filter(|why| told.insert((seat, why))) else { continue };
            let name = device.name();
            let problem = self
                .problem(
                    Code::RemoteChanged,
                    format!("the server of {name} came back with something else"),
                    why,
                    "have the server offer what it offered",
                )
                .of_member(name);
            let member = self.event_member(key, name);
            self.tell(ArrayEvent::StaysAway { member, problem: Box::new(problem) });
        }
    }

    fn linked(&self) -> Vec<Linked> {
        let Some(books) = &self.books else { return Vec::new() };
        let (state, devices) = (books.state(), self.devices.borrow());
        let seats = (0..).map(MemberIx).zip(state.seats());
        let linked = seats.filter_map(|(seat, who)| {
            let key = who.key?;
            let device = books.device(key).filter(|device| device.link().is_some())?;
            Some(Linked {
                key,
                seat,
                name: devices.get(&key)?.name.clone(),
                device,
                in_use: who.state.writable(),
            })
        });
        linked.collect()
    }

    /// Gives up members that do not answer, as far as the array can do without them.
    async fn look_at(self: &Rc<Self>, linked: Vec<Linked>) {
        for member in linked {
            let is_left_alone = self.ordered_out.borrow().contains(&member.key);
            if is_left_alone || self.away.borrow().contains_key(&member.key) {
                continue;
            }
            let Some(link) = member.device.link() else { continue };
            let Some(state) = link.look(&self.core).await else { continue };
            let gone = state.ended.is_some_and(|error| error.kind() == IoErrorKind::Gone);
            let late = state.ended.is_none() && state.overdue > self.remote_timeout.get();
            // One that is not in use any more and was not given up failed for another reason,
            // unless its connection ended.
            let is_due = if member.in_use { gone || late } else { gone };
            if !is_due || member.in_use && !self.is_spared(&member).await {
                continue;
            }
            let device = member.device.clone();
            // The cause is told before what follows from it.
            self.is_away(member, state.overdue);
            if let Some(link) = device.link().filter(|_| late) {
                link.give_up(&self.core).await;
            }
        }
    }

    /// Whether the array can do without a member, and without those that were given up before.
    async fn is_spared(&self, member: &Linked) -> bool {
        let mut without: Vec<_> = self.away.borrow().keys().copied().collect();
        without.push(member.key);
        self.handle.can_spare(&self.core, without).await
    }

    fn is_away(self: &Rc<Self>, member: Linked, waited: Duration) {
        let away = Away { since: self.core.wall_clock(), attempts: 0, reason: None };
        self.away.borrow_mut().insert(member.key, away);
        let place = member.place(self.slots());
        self.tell(ArrayEvent::RemoteAway {
            member: self.event_member(Some(member.key), &member.name),
            place,
            waited,
        });
        self.core.spawn(bring_back(self.clone(), member));
    }

    /// How long a member is left alone that went away now.
    fn first_pause(&self, member: &Linked) -> Duration {
        match self.came_back.borrow().get(&member.name) {
            Some((at, pause)) if self.core.now() - *at < SOON => (4 * *pause).min(LEFT_ALONE_MAX),
            _ => PAUSE_MIN,
        }
    }

    fn slots(&self) -> usize {
        self.books.as_ref().map_or(0, |books| books.state().seats().len() / 2)
    }

    /// Whether a member that is away may still come back into its slot.
    async fn is_awaited(&self, member: &Linked) -> bool {
        let is_known = self.devices.borrow().contains_key(&member.key);
        let is_ordered_out = self.ordered_out.borrow().contains(&member.key);
        is_known
            && !is_ordered_out
            && !self.is_stopping()
            && member.seat.index() < self.slots()
            && self.empty_slots().await.contains(&member.seat.0)
    }

    fn note_attempt(&self, member: &Linked, problem: Problem) {
        let mut away = self.away.borrow_mut();
        let Some(away) = away.get_mut(&member.key) else { return };
        let refused = problem.code != Code::RemoteAway;
        let is_new = away.reason.as_ref().is_none_or(|before| **before != problem);
        away.reason = Some(Box::new(problem.clone()));
        if refused && is_new {
            let member = self.event_member(Some(member.key), &member.name);
            self.tell(ArrayEvent::StaysAway { member, problem: Box::new(problem) });
        }
    }

    /// Takes a member that was away back, if it is the same and the bitmap says what it missed.
    async fn come_back(&self, member: &Linked, device: &Device) -> Result<(), Problem> {
        let name = &member.name;
        let newcomer = Newcomer::look(&self.core, name, device.clone(), Uuid([0; 16])).await?;
        let _turn = self.turn.acquire(1).await;
        if !self.is_awaited(member).await {
            return Ok(());
        }
        let state = self.books()?.state();
        let was = state.superblock(member.key);
        let is_same = was.is_some_and(|was| {
            newcomer.offer.own(was).is_some_and(|own| {
                own.device_uuid() == was.device_uuid() && own.dev_number() == was.dev_number()
            })
        });
        if !is_same {
            let word = shell_word(name);
            return Err(self
                .problem(
                    Code::RemoteChanged,
                    format!("{name} is not taken back: what answers there is not the member that was away"),
                    "its superblock is gone, or that of another device",
                    format!(
                        "see what is there (`wattle examine {word}`); to use it all the same: \
                         `wattle add {} {word}`",
                        shell_word(&self.name)
                    ),
                )
                .of_member(name));
        }
        self.try_write(device, &newcomer).await.map_err(|error| self.not_taken(name, &error.to_string()))?;
        // One that was being filled holds nothing that the others do not.
        let only_missed = was.is_none_or(|was| was.recovery_offset().is_none());
        let terms = Terms { comes_back: true, only_missed, ..Terms::default() };
        self.join(newcomer, None, WantedSeat::Slot(member.seat.0), terms).await.map(drop)
    }

    /// Writes a block of a device as it is, and flushes: while a member joins, clients wait for it.
    async fn try_write(&self, device: &Device, newcomer: &Newcomer) -> Result<(), IoError> {
        for own in &newcomer.offer.superblocks {
            let at = own.found_at_sectors() * SECTOR_BYTES;
            let (read, block) = self.core.read(device, at, BufMut::alloc(SUPERBLOCK_BYTES)).await;
            read?;
            self.core.write(device, at, block.freeze(), Durability::Cached).await?;
        }
        self.core.flush(device).await
    }

    /// Runs what depends on a device that nothing else depends on yet: silence ends that.
    pub(super) async fn in_time<T>(&self, device: &Device, work: impl Future<Output = T>) -> T {
        let Some(link) = device.link() else { return work.await };
        let watch = async {
            loop {
                self.core.sleep(self.look_every()).await;
                let late = |state: LinkState| state.overdue > self.remote_timeout.get();
                if link.look(&self.core).await.is_some_and(late) {
                    link.give_up(&self.core).await;
                }
            }
        };
        match race(work, watch).await {
            Either::First(done) => done,
            Either::Second(never) => never,
        }
    }
}

impl RunningArray {
    fn linked_spares(&self) -> Vec<(MemberKey, Device)> {
        let Some(books) = &self.books else { return Vec::new() };
        let devices = self.devices.borrow();
        let spares = devices.iter().filter(|(_, known)| known.spare);
        let linked = spares.filter_map(|(key, _)| Some((*key, books.device(*key)?)));
        linked.filter(|(_, device)| device.link().is_some()).collect()
    }

    /// Has spares back whose connection ended.
    async fn look_at_spares(self: &Rc<Self>) {
        for (key, device) in self.linked_spares() {
            if self.has_ended(&device).await && self.spares_away.borrow_mut().insert(key) {
                self.core.spawn(bring_spare_back(self.clone(), key, device));
            }
        }
    }

    fn is_spare_on(&self, key: MemberKey, device: &Device) -> bool {
        let is_spare = self.devices.borrow().get(&key).is_some_and(|known| known.spare);
        let on = self.books.as_ref().and_then(|books| books.device(key));
        is_spare && on.is_some_and(|on| on.same(device))
    }

    /// One attempt to have a spare back; the last connection that there was of it is `device`.
    async fn reopen_spare(&self, key: MemberKey, device: &Device) -> Result<(), Problem> {
        let name = self.spare_member(key).name;
        let Some(link) = device.link() else { return Ok(()) };
        let again = link.reopen(&self.core).await.map_err(|error| self.not_there(&name, error))?;
        let looked = Newcomer::look(&self.core, &name, again.clone(), Uuid([0; 16]));
        let newcomer = self.in_time(&again, looked).await?;
        let _turn = self.turn.acquire(1).await;
        if !self.is_spare_on(key, device) {
            return Ok(());
        }
        let books = self.books()?;
        let state = books.state();
        let is_same = state.superblock(key).is_some_and(|was| {
            newcomer.offer.own(was).is_some_and(|own| own.device_uuid() == was.device_uuid())
        });
        if !is_same {
            return Err(self
                .problem(
                    Code::RemoteChanged,
                    format!("spare {name} is not used: what answers there is not the spare that was away"),
                    "its superblock is gone, or that of another device",
                    format!(
                        "`wattle remove {} {}`, and add what is to be a spare",
                        shell_word(&self.name),
                        shell_word(&name)
                    ),
                )
                .of_member(&name));
        }
        books.replace_device(key, again).await;
        Ok(())
    }
}

/// Has a spare back that is away, as soon as it can be had. Why it is not there is told once.
async fn bring_spare_back(array: Rc<RunningArray>, key: MemberKey, device: Device) {
    let mut pause = PAUSE_MAX;
    while array.is_spare_on(key, &device) {
        match race(array.reopen_spare(key, &device), array.stopping.wait()).await {
            Either::First(Ok(())) => {
                array.take_back(key);
                break;
            }
            Either::First(Err(problem)) => {
                if array.set_refused(key, &problem) {
                    let member = array.spare_member(key);
                    array.tell(ArrayEvent::SpareRefused { member, problem: Box::new(problem) });
                }
            }
            Either::Second(()) => break,
        }
        if let Either::Second(()) = race(array.core.sleep(pause), array.stopping.wait()).await {
            break;
        }
        pause = (2 * pause).min(LEFT_ALONE_MAX);
    }
    array.spares_away.borrow_mut().remove(&key);
}

/// Has a member back that is away, as soon as it can be had.
async fn bring_back(array: Rc<RunningArray>, member: Linked) {
    if member.in_use {
        // What waits for the member fails it, or this does. Another member may hold that up, and
        // must not hold up this task.
        let (array, key) = (array.clone(), member.key);
        let core = array.core.clone();
        core.spawn(async move { array.handle.fail_silent(&array.core, key).await });
    }
    let mut device = member.device.clone();
    let first_pause = array.first_pause(&member);
    let mut pause = first_pause;
    let mut failed = !member.in_use;
    loop {
        if let Either::Second(()) = race(array.core.sleep(pause), array.stopping.wait()).await {
            break;
        }
        // It is in its slot until that it failed is recorded.
        failed |= array.empty_slots().await.contains(&member.seat.0);
        if !failed {
            continue;
        }
        if !array.is_awaited(&member).await {
            break;
        }
        pause = (2 * pause).min(PAUSE_MAX).max(first_pause);
        if let Some(away) = array.away.borrow_mut().get_mut(&member.key) {
            away.attempts += 1;
        }
        let Some(link) = device.link() else { break };
        let reopened = match race(link.reopen(&array.core), array.stopping.wait()).await {
            Either::First(reopened) => reopened,
            Either::Second(()) => break,
        };
        match reopened {
            Err(error) => array.note_attempt(&member, array.not_there(&member.name, error)),
            Ok(again) => {
                let back = array.in_time(&again, array.come_back(&member, &again)).await;
                let Err(problem) = back else {
                    let now = array.core.now();
                    array.came_back.borrow_mut().insert(member.name.clone(), (now, first_pause));
                    break;
                };
                let link = again.link();
                let ended = match link {
                    Some(link) => link.look(&array.core).await.is_none_or(|state| state.ended.is_some()),
                    None => true,
                };
                if ended {
                    device = again;
                }
                array.note_attempt(&member, problem);
            }
        }
    }
    array.away.borrow_mut().remove(&member.key);
}

impl RunningArray {
    fn not_there(&self, name: &str, error: ReopenError) -> Problem {
        let (code, why) = match error {
            ReopenError::Unsettled => (
                Code::RemoteAway,
                "what it was sent before the time-out is not answered yet, and must not be written over what it gets now",
            ),
            _ => (Code::RemoteAway, "it is tried again every few seconds"),
        };
        self.problem(
            code,
            format!("{name} is away: {error}"),
            why,
            "see that its server runs and can be reached; it comes back by itself",
        )
        .of_member(name)
    }
}
