//! Keeps md superblocks true while an array runs: which superblocks, which event count, in which
//! order.
//!
//! [`MdState::next`] is the decision, pure: the superblocks of the next generation. [`MdMetadata`]
//! writes them: flush and then write through, on all members at once. Where a flush fails nothing
//! is written. The rules (docs/formats.md §1.5, §1.7):
//!
//! - Every round has one event more than the last. A return to clean may take the event of the
//!   dirty round back, so that flipping does not burn numbers; but never while the array is
//!   degraded or has a bitmap, nor below 2, as md does it. A generation never means two things: N
//!   is clean and N+1 dirty, however often; a change of membership is always new.
//! - Members that are one event apart (after a crash, or when a return to clean did not reach all)
//!   are brought level before the next round, so that a crash in that leaves no member two events
//!   behind, which would make a stale member of a whole one.
//! - Members that failed are counted out in the superblocks of the others and never written again.
//!   Slots that were empty when the array was started are counted out by the first round: a member
//!   that reappears one event behind must not be taken for a current one.
//! - Spares are only written when membership changes or the array is degraded; their event count
//!   does not matter.
//! - A superblock that does not fit one logical block (0.90; 1.x with very many roles) can be torn
//!   by a power cut, and then it cannot be told what the member is. Turning clean or dirty only
//!   changes its first block; a round that changes more (membership) is written in waves, so that
//!   the members outside each wave are enough for the array, or one half at least is whole.
//!
//! **Members that come and go.** What a newcomer holds must not be taken for data, whenever the
//! power goes:
//!
//! 1. First it says that it is a spare of the present generation, rebuilt below sector 0: with that
//!    it is a spare to every member that does not know better.
//! 2. Then the others say that it is in its slot. It is one event behind them now, so what they say
//!    counts, and what it says of itself still counts too: rebuilt below sector 0.
//! 3. Then it says so itself. Not before: ahead of all others it would describe the array, and
//!    they, which call its slot empty, would look as if they had been run without it.
//!
//! A replacement that takes over says that it is whole before any superblock says that the member
//! it replaces has failed: one of the two holds the slot's data at every moment.
//!
//! **0.90** knows neither how far a member is rebuilt nor replacements: a member that is being
//! rebuilt is a spare on disk.
//!
//! **Sums of recorded scrubs** are told of each generation before the superblocks are written.
//!
//! **The bitmap** is brought up to each generation before the superblocks are ([`bitmap`]).
//!
//! **Bad blocks** are in the log of their member before its superblock says that the log is not
//! empty. What a log has no room for fails the member, as md does.

mod bad_blocks;
mod elsewhere;
mod place;
mod spare;
mod state;
mod waves;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use wattle_engine::geometry::Geometry;
use wattle_engine::metadata::{ArrayRecord, LocalBoxFuture, Metadata};
use wattle_engine::state::sums::SumStore;
use wattle_engine::units::{MemberIx, MemberSet, SECTOR_BYTES};
use wattle_engine::{BadRanges, FailCause, MemberKey};
use wattle_format::md::{DeviceFlags, Features, Superblock};
use wattle_format::scrub_sums::SumsSignature;
use wattle_rt::{Buf, Core, Device, Durability, Instant, IoError, OpFuture, Semaphore, race};

use crate::events::{ArrayEvent, EventLog, EventMember, EventPlace};
use crate::md::assemble::Assembly;
use crate::md::badblocks::BadLog;
use crate::md::bitmap::{self, BitmapUnusable};
use crate::md::ppl;
use crate::md::sums::ScrubSums;
use crate::md::waits::{Waits, Writing};
pub use place::SuperblockPlace;
pub(crate) use place::own_bytes;
pub use state::{MdState, Round, SuperblockWrite};
use waves::waves;

/// How long a round waits for spares.
const SPARE_TIME: Duration = Duration::from_secs(2);

/// The superblocks of a running md array.
pub struct MdMetadata {
    core: Core,
    geometry: Option<Geometry>,
    state: RefCell<MdState>,
    /// One change of the state at a time: a round is decided from one state, and takes a while to
    /// be written.
    changing: Semaphore,
    /// By key.
    places: RefCell<Vec<Option<SuperblockPlace>>>,
    /// Bad-block logs that have been looked at.
    bad_logs: RefCell<BTreeMap<MemberKey, BadLog>>,
    /// The write-intent bitmap, if there is one to keep.
    bitmap: RefCell<Option<Rc<bitmap::BitmapCopies>>>,
    /// One that is ready to be kept, and where superblocks say that it is.
    next_bitmap: RefCell<Option<(Rc<bitmap::BitmapCopies>, i32)>>,
    /// Partial parity logs of before are gone, or the engine keeps them.
    logs_settled: Cell<bool>,
    waits: Waits,
    /// What tells this server's superblocks from another's.
    stamps: elsewhere::OwnStamps,
    /// What recorded scrubs remember, if that is kept.
    sums: RefCell<Option<Rc<ScrubSums>>>,
    /// What happens to the array.
    events: EventLog,
}

impl MdMetadata {
    /// The superblocks of `assembly` as they are on disk, by seat (the slots, then perhaps a
    /// replacement for each), and of its spares; all are written on `core`. Seat `i` has key `i`,
    /// spare `i` has key `2 x slots + i`.
    #[must_use]
    pub fn new(
        core: &Core,
        assembly: &Assembly,
        seats: Vec<Option<(SuperblockPlace, Superblock)>>,
        spares: Vec<(SuperblockPlace, Superblock)>,
    ) -> Self {
        let (mut places, superblocks): (Vec<_>, Vec<_>) = seats.into_iter().map(Option::unzip).unzip();
        let (spare_places, spare_superblocks): (Vec<_>, Vec<_>) = spares.into_iter().unzip();
        places.resize_with(2 * assembly.slots.len(), || None);
        places.extend(spare_places.into_iter().map(Some));
        let seated = (0..).map(MemberKey).zip(&superblocks);
        let found = seated.filter_map(|(key, superblock)| Some((key, superblock.as_ref()?)));
        let stamps = elsewhere::OwnStamps::of(found);
        Self {
            core: core.clone(),
            geometry: assembly.geometry.clone(),
            state: RefCell::new(MdState::new(assembly, superblocks, spare_superblocks)),
            changing: Semaphore::new(1),
            places: RefCell::new(places),
            bad_logs: RefCell::default(),
            bitmap: RefCell::default(),
            next_bitmap: RefCell::default(),
            logs_settled: Cell::new(false),
            waits: Waits::default(),
            stamps,
            sums: RefCell::default(),
            events: EventLog::default(),
        }
    }

    /// What happens to the array, as it happens.
    #[must_use]
    pub fn events(&self) -> &EventLog {
        &self.events
    }

    /// The engine writes the partial parity logs: they are true, and not to be invalidated.
    pub fn keep_logs(&self) {
        self.logs_settled.set(true);
    }

    /// Takes note of the bad sectors that assembly found on the member in a seat.
    pub fn know_bad(&self, seat: MemberIx, bad: BadRanges) {
        self.state.borrow_mut().set_bad(seat, bad);
    }

    /// Keeps a write-intent bitmap along: its copies are brought up to each generation before the
    /// superblocks are. Without one, the bitmap of an array that has one is left behind for good,
    /// which is how readers see that it is stale. Spares that have no room for a copy cannot become
    /// members.
    pub fn keep_bitmap(&self, copies: impl Into<Rc<bitmap::BitmapCopies>>) {
        let copies = copies.into();
        let state = self.state.borrow();
        for (key, superblock) in state.devices() {
            if state.known(key).is_some_and(|known| known.holds != state::Holds::Spare) {
                continue;
            }
            let place = self.device(key).and_then(|device| bitmap::BitmapPlace::of(&device, superblock));
            // Without a place it does no harm until it is given a seat, and then it fails.
            let _ = place.map(|place| copies.add(key, place));
        }
        *self.bitmap.borrow_mut() = Some(copies);
    }

    /// Has a new bitmap ready, which superblocks are to name at this offset from themselves: it is
    /// kept from when the engine has nothing in flight ([`Metadata::turn_intent`]). `None`: it is
    /// not to be.
    pub fn ready_bitmap(&self, next: Option<(Rc<bitmap::BitmapCopies>, i32)>) {
        *self.next_bitmap.borrow_mut() = next;
    }

    /// The bitmap that is kept, and the one that is ready to be: what writes may wait in.
    fn bitmaps(&self) -> impl Iterator<Item = Rc<bitmap::BitmapCopies>> {
        let next = self.next_bitmap.borrow().as_ref().map(|(copies, _)| copies.clone());
        self.bitmap().into_iter().chain(next)
    }

    /// Keeps what recorded scrubs remember along: it is told of each generation before the
    /// superblocks say it.
    pub fn keep_sums(&self, sums: Rc<ScrubSums>) {
        *self.sums.borrow_mut() = Some(sums);
    }

    /// What recorded scrubs remember, if that is kept.
    #[must_use]
    pub fn sums(&self) -> Option<Rc<ScrubSums>> {
        self.sums.borrow().clone()
    }

    /// What the superblocks of the members in seats say of the array's state.
    #[must_use]
    pub fn signatures(&self) -> Vec<SumsSignature> {
        let state = self.state.borrow();
        state.in_use().map(|(_, _, known)| signature(&known.superblock)).collect()
    }

    /// The write-intent bitmap, if one is kept.
    #[must_use]
    pub fn bitmap(&self) -> Option<Rc<bitmap::BitmapCopies>> {
        self.bitmap.borrow().clone()
    }

    /// Takes in a device with the superblock it is to have: from now on a spare, or known so that
    /// it can be given a seat.
    ///
    /// # Errors
    /// It has no room for the array's bitmap.
    pub async fn admit(
        &self,
        place: SuperblockPlace,
        superblock: Superblock,
        spare: bool,
    ) -> Result<MemberKey, BitmapUnusable> {
        let _turn = self.changing.acquire(1).await;
        let copy = bitmap::BitmapPlace::of(&place.device, &superblock);
        self.places.borrow_mut().push(Some(place));
        let key = self.state.borrow_mut().admit(superblock, spare);
        let Some(bitmap) = self.bitmap() else { return Ok(key) };
        match copy.ok_or(BitmapUnusable::NoCopy).and_then(|copy| bitmap.add(key, copy)) {
            Ok(()) => Ok(key),
            Err(error) => {
                self.forget_in_turn(key);
                Err(error)
            }
        }
    }

    /// Gives a device that is in no seat another superblock to have, and makes a spare of it or
    /// none.
    pub async fn prepare(&self, key: MemberKey, superblock: Superblock, spare: bool) {
        let _turn = self.changing.acquire(1).await;
        // It may have been described in another way until now, and its copy of the bitmap be
        // elsewhere or nowhere.
        if let (Some(bitmap), Some(device)) = (self.bitmap(), self.device(key))
            && let Some(copy) = bitmap::BitmapPlace::of(&device, &superblock)
        {
            // Without room it does no harm until it is given a seat, and then it fails.
            let _ = bitmap.add(key, copy);
        }
        self.state.borrow_mut().prepare(key, superblock, spare);
    }

    /// Gives a device other flags; the next record of a change of members writes them.
    pub async fn set_flags(&self, key: MemberKey, flags: DeviceFlags) {
        let _turn = self.changing.acquire(1).await;
        self.state.borrow_mut().set_flags(key, flags);
    }

    /// Forgets a device that is in no seat, and lets go of it.
    pub async fn forget(&self, key: MemberKey) {
        let _turn = self.changing.acquire(1).await;
        self.forget_in_turn(key);
    }

    fn forget_in_turn(&self, key: MemberKey) {
        self.state.borrow_mut().forget(key);
        self.bad_logs.borrow_mut().remove(&key);
        self.waits.forget(key);
        self.stamps.forget(key);
        if let Some(bitmap) = self.bitmap() {
            bitmap.forget(key);
        }
        if let Some(place) = self.places.borrow_mut().get_mut(key.0 as usize) {
            *place = None;
        }
    }

    /// The state that was last written.
    #[must_use]
    pub fn state(&self) -> MdState {
        self.state.borrow().clone()
    }

    /// The array's map; `None` if it has none.
    #[must_use]
    pub fn geometry(&self) -> Option<&Geometry> {
        self.geometry.as_ref()
    }

    /// The device of a key.
    #[must_use]
    pub fn device(&self, key: MemberKey) -> Option<Device> {
        self.place(key).map(|place| place.device)
    }

    /// The members that take writes, as of the last record.
    pub(crate) fn seated(&self) -> Vec<(MemberIx, MemberKey)> {
        self.state.borrow().in_use().map(|(seat, key, _)| (seat, key)).collect()
    }

    fn place(&self, key: MemberKey) -> Option<SuperblockPlace> {
        self.places.borrow().get(key.0 as usize)?.clone()
    }

    /// Writes the superblock of a spare that was just admitted, at the present generation: others
    /// need not know it.
    ///
    /// # Errors
    /// The device does not take it.
    pub async fn write_spare(&self, key: MemberKey) -> Result<(), IoError> {
        let state = self.state();
        let (Some(place), Some(mut superblock)) = (self.place(key), state.superblock(key).cloned()) else {
            return Err(IoError::GONE);
        };
        superblock.set_events(state.events());
        self.core.flush(&place.device).await?;
        self.write_superblock(&place, &superblock).await
    }

    /// Writes a round.
    ///
    /// # Cancellation
    /// Not safe: some members may have the round and others not. The next round is a new generation
    /// and mends it.
    async fn write(&self, record: &ArrayRecord) -> Result<(), MemberSet> {
        let _turn = self.changing.acquire(1).await;
        let looks = self.look_elsewhere(record);
        self.flush(record).await?;
        if self.is_overtaken(looks).await {
            // Without a member to blame: the array is broken as it is.
            return Err(MemberSet::EMPTY);
        }
        let failed = (0..).map(MemberIx).zip(&record.seats);
        let failed = failed.filter(|(_, who)| !who.state.writable()).map(|(seat, _)| seat).collect();
        let before = self.state();
        if before.uneven {
            self.write_bitmap(&before.level(&failed), before.events()).await?;
            self.write_round(&before.level(&failed), &before).await?;
            self.state.borrow_mut().uneven = false;
        }
        self.write_bad_blocks(record).await?;
        let before = self.state();
        let (next, round) = before.next(record, self.core.wall_clock())?;
        self.write_bitmap(&round, next.events()).await?;
        // Nothing that the others rely on has changed yet: a member that cannot be seeded does not
        // join.
        self.write_all(&round.seeds).await?;
        if record.dirty && !self.logs_settled.get() {
            self.invalidate_logs(&round).await?;
            self.logs_settled.set(true);
        }
        if let (Some(sums), Some(first)) = (self.sums(), round.seated().next()) {
            sums.signs(signature(&first.superblock), !record.dirty).await;
        }
        let went_back = next.events() < before.events();
        *self.state.borrow_mut() = next;
        let written = self.write_round(&round, &before).await;
        if written.is_err() && went_back {
            // A member that did not take it still has the dirty generation, and the number of that
            // must not get a second meaning.
            *self.state.borrow_mut() = before.made_uneven();
        }
        written
    }

    /// Makes durable what a record speaks of, before anything of it is written. Where that fails
    /// nothing is reported: the others would say of this member what it may have lost.
    async fn flush(&self, record: &ArrayRecord) -> Result<(), MemberSet> {
        let members = (0..).map(MemberIx).zip(&record.seats).filter(|(_, who)| who.state.writable());
        // Operations start when they are called: all members flush at once.
        let flushes: Vec<_> = members
            .filter_map(|(seat, who)| Some((seat, self.flush_of(who.key?, &self.place(who.key?)?))))
            .collect();
        match failures(flushes).await {
            failed if failed.is_empty() => Ok(()),
            failed => Err(failed),
        }
    }

    fn flush_of(&self, key: MemberKey, place: &SuperblockPlace) -> Writing {
        self.waits.watch(key, self.core.flush(&place.device))
    }

    /// Brings the bitmaps of all members in a round up to its generation.
    async fn write_bitmap(&self, round: &Round, events: u64) -> Result<(), MemberSet> {
        let Some(bitmap) = self.bitmap() else { return Ok(()) };
        let seated: Vec<_> = round.seated().map(|write| (write.seat, write.key)).collect();
        bitmap.commit(&seated, events).await
    }

    /// Writes a round through on its members: at once, or in waves if it could tear what `before`
    /// says.
    async fn write_round(&self, round: &Round, before: &MdState) -> Result<(), MemberSet> {
        if let Err(promoted) = self.write_all(&round.promoted).await {
            return Err(self.stay_uneven(round, promoted));
        }
        let answers = |(key, _): &&(MemberKey, Superblock)| self.waits.since(&self.core, *key).is_none();
        let spares = round.spares.iter().filter(answers).filter_map(|(key, superblock)| {
            Some(self.waits.watch(*key, self.write_superblock(&self.place(*key)?, superblock)))
        });
        let spares: Vec<_> = spares.collect();
        let mut failed = MemberSet::EMPTY;
        for wave in self.waves(round, before) {
            let writes = wave.into_iter().filter(|write| !failed.contains(write.seat)).cloned();
            if let Err(more) = self.write_all(&writes.collect::<Vec<_>>()).await {
                failed = failed.union(&more);
            }
        }
        let newcomers = round.newcomers.iter().filter(|write| !failed.contains(write.seat)).cloned();
        if let Err(more) = self.write_all(&newcomers.collect::<Vec<_>>()).await {
            failed = failed.union(&more);
        }
        // A spare that cannot be written is found out when it is needed; its superblock counts for
        // nothing until then. Nor is one waited for that hangs.
        let until = self.core.now() + SPARE_TIME;
        for spare in spares {
            let left = until.saturating_since(self.core.now());
            let _ = race(spare, self.core.sleep(left)).await;
        }
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }

    /// A round ended before all had their turn: the next one finds members one event apart.
    fn stay_uneven(&self, round: &Round, failed: MemberSet) -> MemberSet {
        let mut state = self.state.borrow_mut();
        *state = state.clone().made_uneven();
        for write in &round.newcomers {
            if let Some(known) = state.known_mut(write.key) {
                known.holds = state::Holds::Nothing;
            }
        }
        failed
    }

    /// The members of a round in the order in which they are written. Members that are being
    /// filled, and replacements, are nothing that the array needs: they go first, alone.
    fn waves<'a>(&self, round: &'a Round, before: &MdState) -> Vec<Vec<&'a SuperblockWrite>> {
        let torn = |write: &SuperblockWrite| {
            self.place(write.key)
                .is_some_and(|place| place.may_tear(before.superblock(write.key), &write.superblock))
        };
        if !round.members.iter().any(torn) {
            return vec![round.members.iter().collect()];
        }
        let needed = |write: &&SuperblockWrite| {
            let features = write.superblock.features();
            !features.intersects(Features::RECOVERY_OFFSET | Features::REPLACEMENT)
        };
        let (whole, rest): (Vec<_>, Vec<_>) = round.members.iter().partition(needed);
        let promoted = round.promoted.iter().map(|write| write.seat);
        let holders: MemberSet = whole.iter().map(|write| write.seat).chain(promoted).collect();
        let cut = waves(self.geometry.as_ref(), &holders);
        let of = |wave: &MemberSet| whole.iter().filter(|w| wave.contains(w.seat)).copied().collect();
        std::iter::once(rest).chain(cut.iter().map(of)).collect()
    }

    /// Writes superblocks, all at once.
    async fn write_all(&self, writes: &[SuperblockWrite]) -> Result<(), MemberSet> {
        let written = writes.iter().filter_map(|write| {
            let written = self.write_superblock(&self.place(write.key)?, &write.superblock);
            Some((write.seat, self.waits.watch(write.key, written)))
        });
        let failed = failures(written.collect()).await;
        let whole = writes.iter().filter(|write| !failed.contains(write.seat));
        whole.for_each(|write| self.stamps.done(write.key));
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }

    fn write_superblock(
        &self,
        place: &SuperblockPlace,
        superblock: &Superblock,
    ) -> OpFuture<Result<(), IoError>> {
        let at = superblock.found_at_sectors() * SECTOR_BYTES;
        self.stamps.begin(superblock);
        self.core.write(&place.device, at, place.encode(superblock), Durability::Fua)
    }

    /// Zeroes the first header of every member's partial parity log, durably: logs from before
    /// describe writes that are long done; replayed after a crash of ours they would "repair"
    /// parity to old data. The scan of a log starts there and ends at the first header that is not
    /// valid, so one block is enough for single logs and rings alike; without a log, everything is
    /// resynced.
    async fn invalidate_logs(&self, round: &Round) -> Result<(), MemberSet> {
        /// The length of a log's header.
        const HEADER_BYTES: usize = 4096;
        let writes = round.seated().filter_map(|write| {
            let place = self.place(write.key)?;
            let log = ppl::area(&write.superblock, place.device.size_bytes())?;
            let zeros = Buf::zeros(HEADER_BYTES);
            let written = self.core.write(&place.device, log.offset_bytes, zeros, Durability::Fua);
            Some((write.seat, self.waits.watch(write.key, written)))
        });
        match failures(writes.collect()).await {
            failed if failed.is_empty() => Ok(()),
            failed => Err(failed),
        }
    }
}

impl Metadata for MdMetadata {
    fn failed(&self, members: &[(MemberIx, Option<MemberKey>)], cause: FailCause) {
        let at = self.core.wall_clock();
        let slots = self.state.borrow().seats().len() / 2;
        for &(seat, key) in members {
            let Some(key) = key else { continue };
            let name = self.device(key).map(|device| device.name().to_owned()).unwrap_or_default();
            let place = match seat.index().checked_sub(slots) {
                None => EventPlace::Slot(seat.0),
                Some(slot) => EventPlace::Replacement(slot as u16),
            };
            let member = EventMember { key: Some(key), name };
            self.events.add(at, ArrayEvent::Failed { member, place, cause: Some(cause) });
        }
    }

    fn commit<'a>(&'a self, record: &'a ArrayRecord) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(self.write(record))
    }

    fn turn_intent(&self, on: bool) {
        let next = self.next_bitmap.borrow_mut().take().filter(|_| on);
        self.state.borrow_mut().set_bitmap(next.as_ref().map(|(_, offset)| *offset));
        match next {
            Some((copies, _)) => self.keep_bitmap(copies),
            None => drop(self.bitmap.borrow_mut().take()),
        }
    }

    fn mark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(async move {
            let Some(bitmap) = self.bitmap() else { return Ok(()) };
            bitmap.mark(&self.seated(), regions).await
        })
    }

    fn unmark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(async move {
            let Some(bitmap) = self.bitmap() else { return Ok(()) };
            bitmap.unmark(&self.seated(), regions).await
        })
    }

    fn waits_since(&self, member: MemberKey) -> Option<Instant> {
        let bitmaps = self.bitmaps().filter_map(|bitmap| bitmap.waits_since(member));
        self.waits.since(&self.core, member).into_iter().chain(bitmaps).min()
    }

    fn give_up(&self, member: MemberKey) {
        self.waits.give_up(&self.core, member);
        self.bitmaps().for_each(|bitmap| bitmap.give_up(member));
    }

    fn sum_store(&self) -> Option<Rc<dyn SumStore>> {
        Some(self.sums()?)
    }
}

/// What a superblock says of its array's state.
fn signature(superblock: &Superblock) -> SumsSignature {
    let time = superblock.utime();
    SumsSignature { events: superblock.events(), secs: time.secs, micros: time.micros }
}

/// The one writer of an array's superblocks, for the engine; the owner of the devices holds
/// another.
#[derive(Clone)]
pub struct SharedSuperblocks(pub Rc<MdMetadata>);

impl Metadata for SharedSuperblocks {
    fn failed(&self, members: &[(MemberIx, Option<MemberKey>)], cause: FailCause) {
        self.0.failed(members, cause);
    }

    fn turn_intent(&self, on: bool) {
        self.0.turn_intent(on);
    }

    fn commit<'a>(&'a self, record: &'a ArrayRecord) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        self.0.commit(record)
    }

    fn mark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        self.0.mark(regions)
    }

    fn unmark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        self.0.unmark(regions)
    }

    fn waits_since(&self, member: MemberKey) -> Option<Instant> {
        self.0.waits_since(member)
    }

    fn give_up(&self, member: MemberKey) {
        self.0.give_up(member);
    }

    fn sum_store(&self) -> Option<Rc<dyn SumStore>> {
        self.0.sum_store()
    }
}

/// Waits for operations that are under way and returns the slots of those that failed.
async fn failures(operations: Vec<(MemberIx, impl Future<Output = Result<(), IoError>>)>) -> MemberSet {
    let mut failed = MemberSet::EMPTY;
    for (slot, operation) in operations {
        if operation.await.is_err() {
            failed.insert(slot);
        }
    }
    failed
}
