//! Members that join, leave, are rebuilt or replaced while the array runs. All of it at the home,
//! one change at a time, and durable before anything relies on it.
//!
//! A member joins or leaves with nothing in flight, so that no write planned with other members
//! in mind is under way. Progress is only told to every core; it is recorded by the next record of
//! any kind, which is true of what was written before it because [`crate::Metadata::commit`]
//! flushes first.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use wattle_rt::{Device, Either, race};

use super::home::Home;
use super::{BAD_ENTRY_SECTORS, MemberSpec};
use crate::model::bad_ranges::BadRanges;
use crate::model::error::{FailError, JoinError, LeaveError, VolumeError};
use crate::model::geometry::LevelKind;
use crate::model::health::{Event, Health, Occupant, Seat, Trust};
use crate::model::health::{MemberKey, MemberState};
use crate::model::units::{MemberIx, MemberSet, Sector};
use crate::model::whom::Whom;
use crate::planted::{self, Bug};
use crate::state::metadata::{FailCause, RecordCause};

/// How long an order to fail a member waits for its turn before that member is given up.
const TURN_TIME: Duration = Duration::from_secs(1);

impl Home {
    /// The seat of a member, if it has one.
    fn seat_of(&self, whom: Whom) -> Option<MemberIx> {
        let health = self.health();
        match whom {
            Whom::Seat(seat) => Some(seat).filter(|seat| seat.index() < health.members.len()),
            Whom::Device(_) => (0..)
                .map(MemberIx)
                .zip(&health.seats)
                .find(|(_, who)| who.key.map(Whom::Device) == Some(whom))
                .map(|(seat, _)| seat),
        }
    }

    /// Fails a member on the operator's word, and says where it was. A drive that hangs does not
    /// hold that up, nor does what waits for it wait any longer.
    pub async fn fail_by_operator(self: &Rc<Self>, whom: Whom) -> Result<MemberIx, FailError> {
        let (_turn, given_up) = match race(self.transition.acquire(1), self.core.sleep(TURN_TIME)).await {
            Either::First(turn) => (turn, None),
            Either::Second(()) => {
                // What has the turn may wait for this very member. It ends with the member failed.
                let member = self.give_up(whom).await?;
                (self.transition.acquire(1).await, Some(member))
            }
        };
        let seat = match given_up {
            Some(member) if !self.is_used(member) => {
                // What had the turn failed it, and another member may have the seat by now.
                return if self.health().broken { Err(FailError::NotRecorded) } else { Ok(member.seat) };
            }
            Some(member) => self.can_fail(Whom::Seat(member.seat))?,
            None => self.can_fail(whom)?,
        };
        let failed = self.fail_in_turn([seat].into_iter().collect(), FailCause::Order).await;
        self.expect_nothing_of(seat).await;
        failed.map(|()| seat).map_err(|_| FailError::NotRecorded)
    }

    /// Gives a member up that is to be failed by order: what waits for it ends, and fails it. There
    /// is no way back, since what was answered meanwhile counts on it.
    pub async fn give_up(&self, whom: Whom) -> Result<Occupant, FailError> {
        let seat = self.can_fail(whom)?;
        let member = self.occupant(seat);
        if !self.is_awaited(seat) {
            let health = self.health();
            let mut ordered = self.ordered.borrow_mut();
            ordered.retain(|other| *other != member && health.holds(*other));
            ordered.push(member);
        }
        self.expect_nothing_of(seat).await;
        Ok(member)
    }

    /// The seat of a member that may be failed by order.
    fn can_fail(&self, whom: Whom) -> Result<MemberIx, FailError> {
        let health = self.health();
        if self.has_ended() {
            return Err(FailError::Stopped);
        }
        if self.fixed.read_only {
            return Err(FailError::ReadOnly);
        }
        let seat = self.seat_of(whom).filter(|seat| health.state(*seat).writable());
        let seat = seat.ok_or(FailError::NotPresent(whom))?;
        if self.is_ordered(seat) {
            return Ok(seat);
        }
        // Others that were given up fail, whatever has the turn.
        let ordered = self.ordered.borrow();
        let given_up = ordered.iter().filter(|other| self.is_used(**other)).map(|other| other.seat);
        let without = health.apply(&self.fixed.geometry, Event::Failed(given_up.chain([seat]).collect()));
        if self.fixed.geometry.redundancy() == 0 || without.broken || self.makes_up_for_bad_sectors(seat) {
            return Err(FailError::LastCopy(seat));
        }
        Ok(seat)
    }

    fn occupant(&self, seat: MemberIx) -> Occupant {
        Occupant { seat, since: self.health().seats[seat.index()].since }
    }

    /// Whether a member is in its seat and takes writes.
    fn is_used(&self, member: Occupant) -> bool {
        let health = self.health();
        health.holds(member) && health.state(member.seat).writable()
    }

    /// Whether the member in a seat was given up by an order to fail it.
    pub(super) fn is_ordered(&self, seat: MemberIx) -> bool {
        self.ordered.borrow().contains(&self.occupant(seat))
    }

    /// Whether what is under way on the member in a seat is waited for, whatever becomes of the
    /// member: something of ours carries it out, which has no lock of the member's own.
    fn is_awaited(&self, seat: MemberIx) -> bool {
        self.health().seats[seat.index()].device.as_ref().is_none_or(Device::is_served)
    }

    /// Nothing waits any more for the member in a seat, which is to fail or has failed.
    ///
    /// What is under way there may land at any time. Invariant: nothing else writes to the drive
    /// until it has, and no array takes it before: an operation keeps its drive open and so locked.
    async fn expect_nothing_of(&self, seat: MemberIx) {
        if self.is_awaited(seat) {
            return;
        }
        let member = self.occupant(seat);
        self.health().seats[seat.index()].key.into_iter().for_each(|key| self.metadata.give_up(key));
        self.on_every_core(move |shard| async move {
            // Another may have taken the seat.
            if shard.members.since(seat) == member.since {
                shard.members.give_up(seat);
            }
        })
        .await;
    }

    /// Whether the array could go on without these members, as it is now.
    pub fn can_spare(&self, members: &[MemberKey]) -> bool {
        let health = self.health();
        let seats = members.iter().filter_map(|key| self.seat_of(Whom::Device(*key)));
        let seats: MemberSet = seats.filter(|seat| health.state(*seat).writable()).collect();
        let without = health.apply(&self.fixed.geometry, Event::Failed(seats));
        let redundant = self.fixed.geometry.redundancy() > 0 && !self.fixed.read_only;
        redundant && !without.broken && !seats.iter().any(|seat| self.makes_up_for_bad_sectors(seat))
    }

    /// Fails a member that was given up, if it is still in use.
    pub async fn fail_silent(&self, member: MemberKey) {
        let _turn = self.transition.acquire(1).await;
        let in_use = |seat: &MemberIx| self.health().state(*seat).writable();
        if let Some(seat) = self.seat_of(Whom::Device(member)).filter(in_use)
            && !self.has_ended()
        {
            // An array that breaks shows it.
            let _ = self.fail_in_turn([seat].into_iter().collect(), FailCause::Silent).await;
        }
    }

    /// Says whether copies on other members are to be read before those on this one; recorded when
    /// this returns.
    pub async fn set_write_mostly(&self, member: MemberKey, on: bool) -> Result<(), VolumeError> {
        let _turn = self.transition.acquire(1).await;
        let Some(seat) = self.seat_of(Whom::Device(member)) else { return Ok(()) };
        self.record_in_turn(Some(Event::WriteMostly { seat, on }), RecordCause::Members).await
    }

    /// Whether bad sectors of other members could not be had any more without the member in `seat`.
    fn makes_up_for_bad_sectors(&self, seat: MemberIx) -> bool {
        let (health, geometry) = (self.health(), &self.fixed.geometry);
        if health.state(seat) != MemberState::InSync || seat.index() >= health.slots() {
            return false;
        }
        let lost: MemberSet = health.lost().iter().chain([seat]).collect();
        let others = || (0..health.slots() as u16).map(MemberIx).filter(|slot| !lost.contains(*slot));
        let bad = |slot: MemberIx| &*health.seats[slot.index()].bad;
        // On RAID 10, what one member has at a sector another may have elsewhere: any bad sector of
        // it counts, then.
        let aligned = geometry.kind() == LevelKind::Parity || geometry.chunk() == Sector(0);
        let bad_at = |slot: MemberIx, range: Range<Sector>| {
            if aligned { bad(slot).overlaps(range) } else { !bad(slot).is_empty() }
        };
        others().any(|slot| {
            let mut made_up_for = bad(slot).clone();
            bad(seat).iter().filter(|_| aligned).for_each(|range| made_up_for.remove(range));
            made_up_for.iter().any(|range| {
                let bad_there = others().filter(|other| bad_at(*other, range.clone()));
                !geometry.survives(&lost.iter().chain(bad_there).collect())
            })
        })
    }

    /// Puts a member into a seat that is empty or has a failed member; it is filled from there on.
    pub async fn join(self: &Rc<Self>, seat: MemberIx, who: MemberSpec) -> Result<(), JoinError> {
        self.may_join(seat, &who)?;
        let home = self.clone();
        let joined = self.exclusively(async move |_pass| {
            let _turn = home.transition.acquire(1).await;
            // Another order may have been quicker.
            home.may_join(seat, &who)?;
            let (state, mut who) = who.seat();
            home.add_missed_regions(&mut who);
            if !home.clear_log(&who).await {
                return Err(JoinError::NotRecorded);
            }
            let event = Event::Joined { seat, who, state };
            if home.enter(event).await.is_err()
                || home.commit(RecordCause::Members, home.is_dirty()).await.is_err()
            {
                return Err(JoinError::NotRecorded);
            }
            if home.health().state(seat).writable() { Ok(()) } else { Err(JoinError::NotRecorded) }
        });
        joined.await.unwrap_or_else(|error| Err(JoinError::from(error)))
    }

    fn may_join(&self, seat: MemberIx, who: &MemberSpec) -> Result<(), JoinError> {
        let health = self.health();
        let replaces = seat.index().checked_sub(health.slots()).map(|slot| MemberIx(slot as u16));
        if self.has_ended() {
            return Err(JoinError::Stopped);
        }
        if self.fixed.read_only {
            return Err(JoinError::ReadOnly);
        }
        if health.broken {
            return Err(JoinError::Broken);
        }
        if self.fixed.geometry.redundancy() == 0 {
            return Err(JoinError::NoRedundancy);
        }
        if seat.index() >= health.members.len()
            || replaces.is_some_and(|slot| health.state(slot) != MemberState::InSync)
        {
            return Err(JoinError::NoSuchSeat(seat));
        }
        if health.state(seat).writable() {
            return Err(JoinError::Taken(seat));
        }
        let device = who.device.as_ref();
        let same = |other: &Seat| other.device.as_ref().zip(device).is_some_and(|(a, b)| a.same(b));
        // A failed member may come back to its own seat, but no member has two.
        let mut others = (0..).map(MemberIx).zip(&health.seats).filter(|(other, _)| *other != seat);
        if others.any(|(other, who)| health.state(other).writable() && same(who)) {
            return Err(JoinError::Member);
        }
        if device.is_none_or(|device| device.logical_block_bytes() > self.fixed.member_block_bytes) {
            return Err(JoinError::BlockSize);
        }
        Ok(())
    }

    /// Lets go of a member that failed.
    pub async fn leave(self: &Rc<Self>, whom: Whom) -> Result<(), LeaveError> {
        self.may_leave(whom)?;
        let home = self.clone();
        let left = self.exclusively(async move |_pass| {
            let _turn = home.transition.acquire(1).await;
            // It may be elsewhere by now.
            let seat = home.may_leave(whom)?;
            let entered = home.enter(Event::Left(seat)).await;
            match entered {
                Ok(()) => home
                    .commit(RecordCause::Members, home.is_dirty())
                    .await
                    .map_err(|_| LeaveError::NotRecorded),
                Err(_) => Err(LeaveError::NotRecorded),
            }
        });
        left.await.unwrap_or(Err(LeaveError::NotRecorded))
    }

    /// The seat that is to be emptied.
    fn may_leave(&self, whom: Whom) -> Result<MemberIx, LeaveError> {
        let health = self.health();
        if self.has_ended() {
            return Err(LeaveError::Stopped);
        }
        let seat = self.seat_of(whom).ok_or(LeaveError::NotPresent(whom))?;
        match health.state(seat) {
            MemberState::Missing => Err(LeaveError::NotPresent(whom)),
            MemberState::InSync | MemberState::Rebuilding { .. } => Err(LeaveError::InUse(seat)),
            MemberState::Faulty if health.broken => Err(LeaveError::Broken),
            MemberState::Faulty => Ok(seat),
        }
    }

    /// Tells every core how far rebuilding and resync have come. Nothing is recorded.
    pub async fn advance(&self, valid_below: Vec<(MemberIx, Sector)>, trust: Option<Trust>) {
        // Progress breaks nothing.
        let _ = self.enter(Event::Progress { valid_below, trust }).await;
    }

    /// Records how far rebuilding and resync have come.
    pub async fn checkpoint(&self) -> Result<(), VolumeError> {
        let _turn = self.transition.acquire(1).await;
        self.record_in_turn(None, RecordCause::Checkpoint).await
    }

    /// A member is filled up to `end`: it counts as a whole one once that is recorded. Another one
    /// that took its seat meanwhile does not.
    pub async fn rebuilt(&self, member: Occupant, end: Sector) -> Result<(), VolumeError> {
        let _turn = self.transition.acquire(1).await;
        if !self.may_promote(member, end) {
            return Ok(());
        }
        self.record_in_turn(Some(Event::Rebuilt(member.seat)), RecordCause::Members).await
    }

    /// Asked in the turn in which the member is promoted.
    fn may_promote(&self, member: Occupant, end: Sector) -> bool {
        if planted::is(Bug::UncheckedPromotion) {
            return self.health().state(member.seat).writable();
        }
        self.health().is_filled(member, end)
    }

    /// The replacement of a slot's member is filled up to `end` and takes the slot; the member that
    /// it replaces is failed. Another replacement that took its seat meanwhile stays there.
    pub async fn replaced(
        self: &Rc<Self>,
        slot: MemberIx,
        replacement: Occupant,
        end: Sector,
    ) -> Result<(), VolumeError> {
        let home = self.clone();
        self.exclusively(async move |_pass| {
            let _turn = home.transition.acquire(1).await;
            if !home.may_promote(replacement, end) {
                return Ok(());
            }
            home.record_in_turn(Some(Event::Replaced(slot)), RecordCause::Members).await
        })
        .await?
    }

    /// What is known of a member's bad sectors changed; recorded when this returns. A member that
    /// has no room to record it is failed, if the array can do without.
    ///
    /// # Errors
    /// [`VolumeError::Unreadable`] if it cannot: then nothing has changed.
    pub async fn set_bad(
        &self,
        member: Occupant,
        change: impl FnOnce(&mut BadRanges),
    ) -> Result<(), VolumeError> {
        let _turn = self.transition.acquire(1).await;
        let (health, seat) = (self.health(), member.seat);
        if !health.holds(member) {
            return Ok(());
        }
        let Some(bad) = changed_bad(&health, seat, change) else { return Ok(()) };
        if !has_room(&health, seat, &bad) {
            let seats: MemberSet = [seat].into_iter().collect();
            let without = health.apply(&self.fixed.geometry, Event::Failed(seats));
            if without.broken || self.makes_up_for_bad_sectors(seat) {
                return Err(VolumeError::Unreadable);
            }
            return self.fail_in_turn(seats, FailCause::BadBlocks).await;
        }
        self.record_in_turn(Some(Event::BadSectors { seat, bad }), RecordCause::Members).await
    }

    /// A member did not take a client's write: it holds old content there. It is failed, unless bad
    /// sectors of others could not be had any more without it; what it missed counts as bad then.
    /// Recorded when this returns. Sectors of others that were bad and took the write are `mended`.
    ///
    /// # Errors
    /// Nothing else has what it missed either, or the array breaks.
    pub async fn missed_write(
        &self,
        member: Occupant,
        sectors: Range<Sector>,
        mended: &[(MemberIx, Range<Sector>)],
    ) -> Result<(), VolumeError> {
        let _turn = self.transition.acquire(1).await;
        let (health, seat) = (self.health(), member.seat);
        if !health.holds(member) {
            return Ok(());
        }
        let is_trusted = health.parity_trusted(&self.fixed.geometry);
        let is_needed =
            is_trusted && !health.broken && !self.has_ended() && self.makes_up_for_bad_sectors(seat);
        // All in one record: what others took now is what makes up for this member. Its own list
        // loses what it took as well, and has last what it did not.
        let change = |slot: MemberIx| {
            let bad = changed_bad(&health, slot, |bad| {
                let ranges = mended.iter().filter(|(on, _)| *on == slot).map(|(_, range)| range.clone());
                ranges.for_each(|range| bad.remove(range));
                if slot == seat {
                    bad.insert(sectors.clone());
                }
            });
            bad.map(|bad| (slot, bad))
        };
        let changes: Vec<_> = (0..health.slots() as u16).map(MemberIx).filter_map(change).collect();
        if !is_needed || !changes.iter().all(|(slot, bad)| has_room(&health, *slot, bad)) {
            return self.fail_in_turn([seat].into_iter().collect(), FailCause::Write).await;
        }
        for (seat, bad) in changes {
            self.enter(Event::BadSectors { seat, bad }).await?;
        }
        let is_elsewhere = self.is_elsewhere(seat, sectors);
        self.commit(RecordCause::Members, self.is_dirty()).await?;
        if is_elsewhere { Ok(()) } else { Err(VolumeError::WriteFailed) }
    }

    /// Whether what a member has in these sectors can be had without it.
    fn is_elsewhere(&self, seat: MemberIx, sectors: Range<Sector>) -> bool {
        let (health, geometry) = (self.health(), &self.fixed.geometry);
        let lost = health.lost();
        let lacks = |slot: MemberIx, range: Range<Sector>| {
            lost.contains(slot) || health.seats[slot.index()].bad.overlaps(range)
        };
        match geometry.kind() {
            LevelKind::Mirrored => (sectors.start.0..sectors.end.0).all(|sector| {
                let Some(lba) = geometry.array_sector_at(seat, Sector(sector)) else { return true };
                let copies = geometry.copies(lba);
                let mut others = copies.iter().filter(|copy| copy.member != seat);
                others.any(|copy| !lacks(copy.member, copy.sector..copy.sector + Sector(1)))
            }),
            LevelKind::Parity | LevelKind::Striped => {
                let slots = (0..health.slots() as u16).map(MemberIx);
                geometry
                    .survives(&slots.filter(|slot| *slot == seat || lacks(*slot, sectors.clone())).collect())
            }
        }
    }

    /// Sectors of a member that were bad hold something that others hold too. Recorded when this
    /// returns; but what is left of a range in whose middle they are takes an entry more, and where
    /// there is no room for it they stay bad, which costs nothing: as before, they are not read.
    pub async fn mend_if_room(&self, member: Occupant, sectors: Range<Sector>) -> Result<(), VolumeError> {
        let _turn = self.transition.acquire(1).await;
        let (health, seat) = (self.health(), member.seat);
        if !health.holds(member) {
            return Ok(());
        }
        match changed_bad(&health, seat, |bad| bad.remove(sectors)) {
            Some(bad) if has_room(&health, seat, &bad) => {
                self.record_in_turn(Some(Event::BadSectors { seat, bad }), RecordCause::Members).await
            }
            _ => Ok(()),
        }
    }

    async fn record_in_turn(&self, event: Option<Event>, change: RecordCause) -> Result<(), VolumeError> {
        if self.has_ended() {
            return Err(VolumeError::Stopped);
        }
        if self.health().broken {
            return Err(VolumeError::Broken);
        }
        if let Some(event) = event {
            self.enter(event).await?;
        }
        self.commit(change, self.is_dirty()).await
    }

    /// The version of the members' state, as it is reported, once it is newer than `version`.
    pub async fn changed_since(&self, version: u64) -> Option<u64> {
        loop {
            if self.has_ended() {
                return None;
            }
            let now = self.reported().version;
            if now > version {
                return Some(now);
            }
            self.changed.wait().await;
        }
    }
}

/// The bad sectors of a working member after a change; `None` if they are what they were.
fn changed_bad(
    health: &Health,
    seat: MemberIx,
    change: impl FnOnce(&mut BadRanges),
) -> Option<Arc<BadRanges>> {
    let before = health.state(seat).writable().then(|| &health.seats[seat.index()].bad)?;
    let mut bad = BadRanges::clone(before);
    change(&mut bad);
    (bad != **before).then(|| Arc::new(bad))
}

/// Whether a member's log has room for these.
fn has_room(health: &Health, seat: MemberIx, bad: &BadRanges) -> bool {
    bad.entries(BAD_ENTRY_SECTORS) <= health.seats[seat.index()].bad_entries_max
}
