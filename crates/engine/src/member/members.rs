//! One core's operations on the members, and what it has seen of them.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use wattle_rt::{
    Buf, BufMut, Core, Device, Durability, Instant, IoError, IoErrorKind, OpFuture, Traffic, TrafficTotals,
    Unanswered, Unmap, UntilGivenUp,
};

use super::deadline::Deadlines;
use super::released::released;
use crate::model::fixed::Fixed;
use crate::model::geometry::LevelKind;
use crate::model::health::{Health, MemberState};
use crate::model::units::{MemberIx, MemberSet, SECTOR_BYTES, Sector};
use crate::planted::{self, Bug};

/// How long a member counts as slow the first time, and at most.
const SLOW_MIN: Duration = Duration::from_secs(5);
const SLOW_MAX: Duration = Duration::from_secs(60);

/// What one operation writes: most write a single buffer.
pub(crate) type Bufs = SmallVec<[Buf; 1]>;

/// A write or flush of a member.
pub(crate) type Writing = UntilGivenUp<Result<(), IoError>, fn() -> Result<(), IoError>>;

/// The members of an array as one core sees them.
pub(crate) struct Members {
    pub(super) core: Core,
    pub(super) fixed: Arc<Fixed>,
    /// This core's own copy: no other core counts its references.
    health: RefCell<Rc<Health>>,
    loads: Vec<MemberLoad>,
    pub deadlines: Rc<Deadlines>,
    /// Some member may be slow.
    any_slow: Cell<bool>,
}

/// What this core has going with one member.
#[derive(Debug, Default)]
pub(crate) struct MemberLoad {
    pub read_errors: Cell<u32>,
    /// Where the last read of a copy ended: where the head is, if it has one.
    pub last_read_end: Cell<Sector>,
    /// Sectors of the request that is being dealt out that fell to it.
    pub dealt: Cell<Sector>,
    /// Reads that were given up.
    pub late_reads: Cell<u64>,
    /// What goes to it.
    pub traffic: Rc<Traffic>,
    /// It counts as slow until then.
    slow_until: Cell<Option<Instant>>,
    /// For how long it counted as slow the last time.
    slow_for: Cell<Duration>,
    /// While it is being filled: no step of that has begun with a range of this core's that lies at
    /// or above this data sector.
    pub fill_reached: Cell<Sector>,
}

/// What a core saw of a member's troubles.
#[derive(Debug, Clone, Default)]
pub(crate) struct Troubles {
    pub read_errors: u64,
    pub late_reads: u64,
    pub slow: bool,
    pub unanswered: Unanswered,
    pub traffic: TrafficTotals,
}

impl Troubles {
    pub fn add(&mut self, other: &Self) {
        self.read_errors += other.read_errors;
        self.late_reads += other.late_reads;
        self.slow |= other.slow;
        self.unanswered.add(&other.unanswered);
        self.traffic.add(&other.traffic);
    }
}

impl Members {
    pub fn new(core: &Core, fixed: Arc<Fixed>, health: &Health) -> Self {
        Self {
            core: core.clone(),
            health: RefCell::new(own(health)),
            loads: health.members.iter().map(|_| MemberLoad::default()).collect(),
            deadlines: Rc::new(Deadlines::new(core, fixed.limits.read_deadline)),
            any_slow: Cell::new(false),
            fixed,
        }
    }

    /// What members read and write by, and what goes bad together.
    pub fn member_block(&self) -> Sector {
        Sector(u64::from(self.fixed.member_block_bytes) / SECTOR_BYTES)
    }

    /// The array is stopped: lets go of the members. Whatever keeps a part of the array, as a
    /// client that is still connected does, must not keep their drives open and locked with it. A
    /// read that a core begins all the same is answered that the member is gone.
    pub fn release(&self) {
        let mut health = Health::clone(&self.health.borrow());
        for seat in &mut health.seats {
            seat.device = seat.device.take().map(|device| released(&self.core, &device));
        }
        *self.health.borrow_mut() = Rc::new(health);
    }

    /// The members' states as of now.
    pub fn health(&self) -> Rc<Health> {
        self.health.borrow().clone()
    }

    /// Which states these are; see [`Health::epoch`].
    pub fn epoch(&self) -> u64 {
        self.health.borrow().epoch
    }

    /// Whether more failed than redundancy covers.
    pub fn is_broken(&self) -> bool {
        self.health.borrow().broken
    }

    /// Takes over a newer state of the members; says whether its epoch is another one. Two changes
    /// may be on their way to this core at once: the older one is not taken over.
    pub fn set_health(&self, health: &Health) -> bool {
        let before = self.health();
        if health.version <= before.version {
            return false;
        }
        let seats = (0..).map(MemberIx).zip(before.seats.iter().zip(&health.seats));
        seats.filter(|(_, (then, now))| then.since != now.since).for_each(|(seat, _)| self.forget(seat));
        *self.health.borrow_mut() = own(health);
        health.epoch != before.epoch
    }

    /// Whether every member is in sync, and none is slow: reads need not ask.
    pub fn optimal(&self) -> bool {
        self.health.borrow().optimal && !self.any_slow.get()
    }

    /// A read was given up: the member counts as slow for a while, twice as long as the last time
    /// if that was not long ago.
    pub fn note_late(&self, member: MemberIx) {
        let (load, now) = (self.load(member), self.core.now());
        load.late_reads.update(|reads| reads + 1);
        self.any_slow.set(true);
        let (until, last) = (load.slow_until.get(), load.slow_for.get());
        if until.is_some_and(|until| now < until) {
            return;
        }
        let again = until.is_some_and(|until| now - until < last);
        let period = if again { (2 * last).min(SLOW_MAX) } else { SLOW_MIN };
        load.slow_for.set(period);
        load.slow_until.set(Some(now + period));
    }

    /// Whether a member counts as slow: also for as long as it has not answered what it was asked
    /// before, since it would not answer more.
    pub fn is_slow(&self, member: MemberIx) -> bool {
        let load = self.load(member);
        let Some(until) = load.slow_until.get().filter(|_| self.any_slow.get()) else { return false };
        let now = self.core.now();
        let hangs = || {
            let since = self.core.waits_since(&load.traffic);
            since.is_some_and(|since| now - since > self.deadlines.after())
        };
        if now >= until && hangs() && !planted::is(Bug::OneDriveTakesAll) {
            load.slow_until.set(Some(now + load.slow_for.get()));
            return true;
        }
        now < until
    }

    /// The members that count as slow.
    pub fn slow(&self) -> MemberSet {
        if !self.any_slow.get() {
            return MemberSet::EMPTY;
        }
        let slow: MemberSet =
            (0..self.loads.len() as u16).map(MemberIx).filter(|member| self.is_slow(*member)).collect();
        self.any_slow.set(!slow.is_empty());
        slow
    }

    /// Whether data sectors of a member are current and can be read, as far as is known.
    pub fn readable(&self, member: MemberIx, range: Range<Sector>) -> bool {
        self.health.borrow().readable(member, range)
    }

    /// Whether array sectors read the same again and again as long as no client writes to them. If
    /// copies may differ, another one is read if the first cannot be, and after the write that
    /// broke the array nothing is certain.
    pub fn reads_the_same(&self, range: Range<Sector>) -> bool {
        let health = self.health.borrow();
        !health.broken && (self.fixed.geometry.kind() != LevelKind::Mirrored || health.trust.covers(range))
    }

    /// Whether a copy from `sector` on may be left out on a member: it is being filled and no step
    /// has begun there, so that one will yet come and copy what others hold then. Asked by a write
    /// that has the range to itself: a step takes it later, or took it before and is noted. A
    /// member that only gets what it missed is to be current everywhere else, and gets every write.
    pub fn filled_later(&self, health: &Health, member: MemberIx, sector: Sector) -> bool {
        match health.state(member) {
            MemberState::Rebuilding { valid_below } => {
                sector >= valid_below.max(self.load(member).fill_reached.get())
                    && health.seats[member.index()].stale.is_none()
            }
            _ => false,
        }
    }

    /// Another member has a seat: what was counted is not its own.
    fn forget(&self, seat: MemberIx) {
        let load = self.load(seat);
        load.read_errors.set(0);
        load.late_reads.set(0);
        load.slow_until.set(None);
        load.last_read_end.set(Sector(0));
        load.traffic.reset();
        load.fill_reached.set(Sector(0));
    }

    /// What this core saw of the members' troubles, by seat.
    pub fn troubles(&self) -> Vec<Troubles> {
        let of = |(seat, load): (u16, &MemberLoad)| Troubles {
            read_errors: u64::from(load.read_errors.get()),
            late_reads: load.late_reads.get(),
            slow: self.is_slow(MemberIx(seat)),
            unanswered: self.core.unanswered(&load.traffic),
            traffic: load.traffic.totals(),
        };
        (0..).zip(&self.loads).map(of).collect()
    }

    /// Bytes that this core waits for from a member, or that are on their way to it.
    pub fn queued_bytes(&self, member: MemberIx) -> u64 {
        self.load(member).traffic.bytes_in_flight()
    }

    pub fn load(&self, member: MemberIx) -> &MemberLoad {
        &self.loads[usize::from(member.0)]
    }

    /// Flushes every member that takes writes; returns those that failed. Only at home, in its
    /// turn: a system reports that it lost data once, to one of those that flush.
    pub async fn flush_members(&self) -> MemberSet {
        let slots = self.health.borrow().writable();
        let flushes: Vec<_> = slots.iter().map(|slot| (slot, self.flush_member(slot))).collect();
        let mut failed = MemberSet::default();
        for (slot, flush) in flushes {
            if flush.await.is_err() {
                failed.insert(slot);
            }
        }
        failed
    }

    fn flush_member(&self, member: MemberIx) -> Writing {
        self.writing(member, self.core.flush(&self.device(member)), 0)
    }

    /// Counts what is written to a member. Nothing waits for it once the member is given up.
    fn writing(&self, member: MemberIx, write: OpFuture<Result<(), IoError>>, bytes: usize) -> Writing {
        write.count_in(&self.load(member).traffic, bytes);
        write.until_given_up(|| Err(IoError::GONE))
    }

    /// Nothing is expected any more of the member in a seat, which is to fail: what waits for it is
    /// answered that it is gone, until another takes the seat.
    pub fn give_up(&self, seat: MemberIx) {
        self.core.give_up(&self.load(seat).traffic);
    }

    /// Reads data sectors of a member. The operation is queued at once. A member that is given up
    /// keeps the buffers: there are none in the answer then.
    pub fn read(
        &self,
        member: MemberIx,
        sector: Sector,
        bufs: Vec<BufMut>,
    ) -> impl Future<Output = (Result<(), IoError>, Vec<BufMut>)> + Unpin + use<> {
        let (device, offset) = self.place(member, sector);
        let bytes = bufs.iter().map(|buf| buf.len()).sum();
        let read = self.core.readv(&device, offset, bufs);
        read.count_in(&self.load(member).traffic, bytes);
        read.until_given_up(|| (Err(IoError::GONE), Vec::new()))
    }

    /// Like [`Self::read`], into a single buffer.
    pub fn read_one(
        &self,
        member: MemberIx,
        sector: Sector,
        buf: BufMut,
    ) -> impl Future<Output = (Result<(), IoError>, BufMut)> + Unpin + use<> {
        let health = self.health.borrow();
        let (device, offset) = health.place(member, sector);
        let bytes = buf.len();
        let read = self.core.read(device, offset, buf);
        read.count_in(&self.load(member).traffic, bytes);
        read.until_given_up(move || (Err(IoError::GONE), BufMut::alloc(bytes)))
    }

    /// Writes data sectors of a member. The operation is queued at once.
    pub fn write(
        &self,
        member: MemberIx,
        sector: Sector,
        bufs: impl Into<Bufs>,
        durability: Durability,
    ) -> Writing {
        let health = self.health.borrow();
        let (device, offset) = health.place(member, sector);
        let mut bufs = bufs.into();
        let bytes = bufs.iter().map(|buf| buf.len()).sum();
        let write = match bufs.pop() {
            Some(buf) if bufs.is_empty() => self.core.write(device, offset, buf, durability),
            last => {
                bufs.extend(last);
                self.core.writev(device, offset, bufs.into_vec(), durability)
            }
        };
        self.writing(member, write, bytes)
    }

    /// Zeroes data sectors of a member, without moving any. The operation is queued at once.
    pub fn write_zeroes(&self, member: MemberIx, sector: Sector, len: Sector, unmap: Unmap) -> Writing {
        let (device, offset) = self.place(member, sector);
        let zeroes = self.core.write_zeroes(&device, offset, len.0 * SECTOR_BYTES, unmap);
        self.writing(member, zeroes, 0)
    }

    /// Writes what a member keeps beside its data, durably, at `offset` bytes of its device. The
    /// operation is queued at once.
    pub fn write_beside(&self, member: MemberIx, device: &Device, offset: u64, bufs: Vec<Buf>) -> Writing {
        let bytes = bufs.iter().map(|buf| buf.len()).sum();
        self.writing(member, self.core.writev(device, offset, bufs, Durability::Fua), bytes)
    }

    /// Decides what a read error means: the member is gone (`true`), or only these sectors could
    /// not be read. Bad sectors alone never cost a member that the others cannot replace: those
    /// that have bad sectors too are not counted on, whether they were met now or are listed, nor
    /// is parity before a resync. What is not in a copy was known before, and says nothing of the
    /// drive that the copy is on.
    pub fn judge_read_error(&self, member: MemberIx, error: IoError) -> bool {
        if error == IoError::NOT_COPIED {
            return false;
        }
        let load = self.load(member);
        load.read_errors.update(|errors| errors + 1);
        if error.kind() != IoErrorKind::Medium {
            return true;
        }
        let (health, geometry) = (self.health.borrow(), &self.fixed.geometry);
        if load.read_errors.get() <= self.fixed.limits.read_errors_max || !health.parity_trusted(geometry) {
            return false;
        }
        let has_bad = |seat: &MemberIx| {
            self.load(*seat).read_errors.get() > 0 || !health.seats[seat.index()].bad.is_empty()
        };
        let with_bad = (0..health.slots() as u16).map(MemberIx).filter(has_bad);
        geometry.survives(&health.lost().iter().chain(with_bad).collect())
    }

    /// The version of the health in which the member took its seat.
    pub fn since(&self, member: MemberIx) -> u64 {
        self.health.borrow().seats[member.index()].since
    }

    /// The device in a seat.
    ///
    /// # Panics
    /// If the seat is empty: states say which are.
    pub fn device(&self, member: MemberIx) -> Device {
        self.health.borrow().seats[member.index()].device.clone().expect("a member in use has a device")
    }

    /// The device in a seat, and where on it a data sector is, in bytes.
    pub fn place(&self, member: MemberIx, sector: Sector) -> (Device, u64) {
        let health = self.health.borrow();
        let (device, offset) = health.place(member, sector);
        (device.clone(), offset)
    }
}

/// A copy for one core: whatever it counts per operation, of the state itself and of devices, no
/// other core counts in the same place.
fn own(health: &Health) -> Rc<Health> {
    let mut own = health.clone();
    for seat in &mut own.seats {
        seat.device = seat.device.as_ref().map(Device::for_core);
    }
    Rc::new(own)
}
