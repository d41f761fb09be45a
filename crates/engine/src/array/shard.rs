//! An array on one core: the members as this core sees them, and the requests it works on.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use wattle_rt::sync::OneshotSender;
use wattle_rt::{
    Buf, BufMut, Core, Device, Durability, Instant, IoError, IoErrorKind, Notify, OpFuture, Semaphore,
    Traffic,
};

use super::Fixed;
use super::deadline::Deadlines;
use super::gate::{Gate, Pass};
use super::health::{Health, MemberState};
use super::home::{Home, home_key};
use super::status::{Counters, Requests, Troubles};
use crate::ahead::{self, ReadAhead};
use crate::bad::BadRanges;
use crate::cache::{CacheTuning, CleanCache};
use crate::error::VolumeError;
use crate::geometry::Kind;
use crate::intent::IntentShard;
use crate::loan::Lender;
use crate::log::LogShard;
use crate::range_lock::RangeLocks;
use crate::streams::Streams;
use crate::stripe::{Away, StripeTable};
use crate::sync::{Clients, Holds, JobReads};
use crate::units::{MemberIx, MemberSet, SECTOR_BYTES, Sector};

/// How long a member counts as slow the first time, and at most.
const SLOW_MIN: Duration = Duration::from_secs(5);
const SLOW_MAX: Duration = Duration::from_secs(60);

/// What one operation writes: most write a single buffer.
pub(crate) type Bufs = SmallVec<[Buf; 1]>;

/// One core's part of an array.
pub(crate) struct Shard {
    pub core: Core,
    pub fixed: Arc<Fixed>,
    pub gate: Rc<Gate>,
    pub stopped: Cell<bool>,
    /// Stripes with work on this core.
    pub stripes: StripeTable,
    /// Writes of clients that came in on this core and are under way.
    pub writes: Cell<usize>,
    /// Parts of these that other cores carry out.
    pub away: Away,
    /// What this core lends to others.
    pub lender: Rc<Lender>,
    /// Where streams of small writes stand that come in on this core.
    pub streams: Streams,
    /// Mirrored ranges being written on this core.
    pub ranges: RangeLocks,
    /// What steps of a resync, a rebuild or a check hold of stripes and ranges.
    pub holds: Holds,
    /// Bytes that stripes may still take for old blocks and new parity.
    pub stripe_buffers: Semaphore,
    /// Reads of jobs.
    pub job_reads: Rc<JobReads>,
    /// What the members hold of the stripes that this core owns.
    pub cache: CleanCache,
    /// What is read ahead of clients whose reads come in on this core.
    pub ahead: ReadAhead,
    pub counters: Counters,
    /// Clients' requests that were answered.
    pub requests: Requests,
    pub deadlines: Deadlines,
    /// Some member may be slow.
    any_slow: Cell<bool>,
    /// The write-intent bitmap, if there is one to keep.
    pub intent: Option<IntentShard>,
    members: Vec<MemberLoad>,
    /// The partial parity log.
    pub log: Option<LogShard>,
    /// This core's own copy, whose references no other core counts.
    health: RefCell<Rc<Health>>,
    /// The newest epoch of health that is durable in the superblocks.
    recorded_epoch: Cell<u64>,
    recorded: Notify,
}

/// A write that failed.
#[derive(Debug)]
pub(crate) struct WriteLoss {
    pub seat: MemberIx,
    pub sectors: Range<Sector>,
    pub error: IoError,
}

/// A client's write that came in on this core; being answered is its drop.
pub(crate) struct UnderWay {
    /// Writes wait in the shard: they must not keep it.
    shard: Weak<Shard>,
    _pass: Pass,
    change: Option<Box<ahead::Change>>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Some(shard) = self.shard.upgrade() else { return };
        shard.writes.update(|writes| writes - 1);
        shard.stripes.answered(shard.writes.get());
        shard.ahead.notes.ended(self.change.is_some());
    }
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
    /// While it is being filled: no step of that has begun with a range of this core's that lies at or above this data sector.
    pub fill_reached: Cell<Sector>,
}

impl Shard {
    pub fn new(core: &Core, fixed: Arc<Fixed>, health: &Health) -> Self {
        let lender = Rc::new(Lender::new(fixed.loans.clone(), core.index()));
        Self {
            core: core.clone(),
            gate: Rc::new(Gate::new(core.now())),
            stopped: Cell::new(false),
            stripes: StripeTable::default(),
            writes: Cell::new(0),
            away: Away::default(),
            ranges: RangeLocks::new(lender.clone()),
            lender,
            streams: Streams::default(),
            holds: Holds::default(),
            stripe_buffers: Semaphore::new(fixed.tuning.stripe_buffer_bytes),
            job_reads: Rc::default(),
            cache: clean_cache(core, &fixed),
            ahead: ReadAhead::new(fixed.tuning.ahead, &fixed.geometry),
            counters: Counters::default(),
            requests: Requests::new(fixed.tuning.sync.goal.late_after()),
            deadlines: Deadlines::new(fixed.tuning.read_deadline),
            any_slow: Cell::new(false),
            intent: fixed.intent.as_ref().filter(|_| !fixed.read_only).map(IntentShard::new),
            members: health.members.iter().map(|_| MemberLoad::default()).collect(),
            log: fixed.log.as_ref().map(|spec| LogShard::new(spec, &fixed.geometry)),
            health: RefCell::new(own(health)),
            recorded_epoch: Cell::new(0),
            recorded: Notify::new(),
            fixed,
        }
    }

    /// What this core has seen of clients.
    pub fn clients(&self) -> Clients {
        let (answered, late) = self.requests.answered();
        Clients { requests: self.counters.reads.get() + self.counters.writes.get(), answered, late }
    }

    /// The members' states as of now.
    pub fn health(&self) -> Rc<Health> {
        self.health.borrow().clone()
    }

    /// Which states these are; see [`Health::epoch`].
    pub fn epoch(&self) -> u64 {
        self.health.borrow().epoch
    }

    /// Whether every member is in sync, and none is slow: reads need not ask.
    pub fn optimal(&self) -> bool {
        self.health.borrow().optimal && !self.any_slow.get()
    }

    /// A read was given up: the member counts as slow for a while, twice as long as the last time if that was not long ago.
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

    /// Whether a member counts as slow.
    pub fn is_slow(&self, member: MemberIx) -> bool {
        self.any_slow.get() && self.load(member).slow_until.get().is_some_and(|until| self.core.now() < until)
    }

    /// The members that count as slow.
    pub fn slow(&self) -> MemberSet {
        if !self.any_slow.get() {
            return MemberSet::EMPTY;
        }
        let slow: MemberSet =
            (0..self.members.len() as u16).map(MemberIx).filter(|member| self.is_slow(*member)).collect();
        self.any_slow.set(!slow.is_empty());
        slow
    }

    pub fn set_health(&self, health: &Health) {
        // Two changes may be on their way to this core at once.
        if health.version > self.health.borrow().version {
            if health.epoch != self.health.borrow().epoch {
                self.cache.clear();
                self.ahead.forget();
            }
            *self.health.borrow_mut() = own(health);
        }
        // Whoever waits for a record that a broken array will never write must hear of it.
        self.recorded.notify_all();
    }

    pub fn set_recorded(&self, epoch: u64) {
        self.recorded_epoch.set(epoch.max(self.recorded_epoch.get()));
        self.recorded.notify_all();
    }

    /// Whether data sectors of a member are current and can be read, as far as is known.
    pub fn readable(&self, member: MemberIx, range: Range<Sector>) -> bool {
        self.health.borrow().readable(member, range)
    }

    /// Whether array sectors read the same again and again as long as nobody writes to them. Of copies that may differ another one is
    /// read if the first cannot be, and after the write that broke the array nothing is certain.
    pub fn reads_the_same(&self, range: Range<Sector>) -> bool {
        let health = self.health.borrow();
        !health.broken && (self.fixed.geometry.kind() != Kind::Mirrored || health.trust.covers(range))
    }

    /// Whether a copy from `sector` on may be left out on a member: it is being filled and no step has begun there, so that one will
    /// yet come and copy what others hold then. Asked by who has the range to himself: a step takes it after him, or took it before and
    /// is noted. A member that only gets what it missed is to be current everywhere else, and gets every write.
    pub fn filled_later(&self, health: &Health, member: MemberIx, sector: Sector) -> bool {
        match health.state(member) {
            MemberState::Rebuilding { valid_below } => {
                sector >= valid_below.max(self.load(member).fill_reached.get())
                    && health.seats[member.index()].stale.is_none()
            }
            _ => false,
        }
    }

    /// Somebody else takes a seat.
    pub fn forget(&self, seat: MemberIx) {
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
            traffic: load.traffic.totals(),
        };
        (0..).zip(&self.members).map(of).collect()
    }

    /// Bytes that this core waits for from a member, or that are on their way to it.
    pub fn queued_bytes(&self, member: MemberIx) -> u64 {
        self.load(member).traffic.bytes_in_flight()
    }

    pub fn load(&self, member: MemberIx) -> &MemberLoad {
        &self.members[usize::from(member.0)]
    }

    /// Lets a change in, once the array is recorded dirty.
    pub async fn enter_write(&self) -> Result<Pass, VolumeError> {
        if self.fixed.read_only {
            return Err(VolumeError::ReadOnly);
        }
        loop {
            self.gate.opened().await;
            self.check_running()?;
            if self.health.borrow().broken {
                return Err(VolumeError::Broken);
            }
            if let Some(pass) = self.gate.enter_write(self.core.turn_time()) {
                return Ok(pass);
            }
            self.home(|home| async move { home.activate().await }).await?;
        }
    }

    /// Lets a reconstruction in.
    pub async fn enter_read(&self) -> Result<Pass, VolumeError> {
        loop {
            self.gate.opened().await;
            self.check_running()?;
            if let Some(pass) = self.gate.enter_read(self.core.turn_time()) {
                return Ok(pass);
            }
        }
    }

    pub fn check_running(&self) -> Result<(), VolumeError> {
        if self.stopped.get() { Err(VolumeError::Stopped) } else { Ok(()) }
    }

    /// Fails members at the array's home; returns when what skipped them may be acknowledged.
    pub async fn fail(&self, slots: MemberSet) -> Result<(), VolumeError> {
        self.home(move |home| async move { home.fail(slots).await }).await
    }

    /// Sectors that did not take what was written to them are recorded as bad. A member that cannot record that, or failed in
    /// another way, is failed.
    ///
    /// # Errors
    /// The first, after all were tried. [`VolumeError::Unreadable`]: nobody can record it, and nobody may rely on these sectors. A reader
    /// that had its data from redundancy need not care; whoever completes a member must.
    pub async fn bury(&self, losses: Vec<WriteLoss>) -> Result<(), VolumeError> {
        let mut result = Ok(());
        for WriteLoss { seat, sectors, error } in losses {
            let buried = match error.kind() {
                IoErrorKind::Medium => {
                    let bad = move |bad: &mut BadRanges| bad.insert(sectors);
                    self.home(move |home| async move { home.set_bad(seat, bad).await }).await
                }
                _ => self.fail([seat].into_iter().collect()).await,
            };
            result = result.and(buried);
        }
        result
    }

    /// Sectors that were bad hold something now. Returns when that is recorded: a bad sector is not read, and one that holds
    /// the only copy of something must not count as bad after a restart.
    pub async fn mend(&self, mended: Vec<(MemberIx, Range<Sector>)>) -> Result<(), VolumeError> {
        for (seat, sectors) in mended {
            let good = move |bad: &mut BadRanges| bad.remove(sectors);
            self.home(move |home| async move { home.set_bad(seat, good).await }).await?;
        }
        Ok(())
    }

    /// Lets a client's write of a range of bytes in.
    pub async fn begin_write(self: &Rc<Self>, bytes: Range<u64>) -> Result<UnderWay, VolumeError> {
        let pass = self.enter_write().await?;
        Ok(self.under_way(pass, bytes))
    }

    /// As [`Self::begin_write`], if nothing has to be waited for. Not async: nothing can happen meanwhile.
    pub fn try_begin_write(self: &Rc<Self>, bytes: Range<u64>) -> Option<UnderWay> {
        if self.fixed.read_only || self.stopped.get() || self.health.borrow().broken {
            return None;
        }
        self.gate.enter_write(self.core.turn_time()).map(|pass| self.under_way(pass, bytes))
    }

    fn under_way(self: &Rc<Self>, pass: Pass, bytes: Range<u64>) -> UnderWay {
        self.writes.update(|writes| writes + 1);
        let change = self.ahead.notes.note(&self.fixed.changes, bytes);
        UnderWay { shard: Rc::downgrade(self), _pass: pass, change }
    }

    /// Waits until the superblocks say what a plan made in `epoch` took for granted (invariant 2).
    pub async fn recorded(&self, epoch: u64) -> Result<(), VolumeError> {
        while self.recorded_epoch.get() < epoch {
            if self.health.borrow().broken {
                return Err(VolumeError::Broken);
            }
            self.recorded.wait().await;
        }
        Ok(())
    }

    /// Makes every acknowledged write of any core durable on every member in use.
    pub async fn flush(&self) -> Result<(), VolumeError> {
        self.check_running()?;
        if self.fixed.read_only {
            return Ok(());
        }
        let began = self.core.turn_time();
        let result = self.home(|home| async move { home.flush().await }).await;
        self.requests.flushed(self.core.turn_time() - began);
        result
    }

    /// Flushes every member that takes writes; returns those that failed. Only at home, in its turn: a system reports that
    /// it lost data once, to one of those who flush.
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

    fn flush_member(&self, member: MemberIx) -> impl Future<Output = Result<(), IoError>> + use<> {
        let flush = self.core.flush(&self.device(member));
        flush.count_in(&self.load(member).traffic, 0);
        flush
    }

    /// Reads data sectors of a member. The operation is queued at once.
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
        read
    }

    /// As [`Self::read`], into a single buffer.
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
        read
    }

    /// Writes data sectors of a member. The operation is queued at once.
    pub fn write(
        &self,
        member: MemberIx,
        sector: Sector,
        bufs: impl Into<Bufs>,
        durability: Durability,
    ) -> OpFuture<Result<(), IoError>> {
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
        write.count_in(&self.load(member).traffic, bytes);
        write
    }

    /// Decides what a read error means: the member is gone (`true`), or only these sectors could not be read. Bad sectors
    /// alone never cost a member that nothing can replace.
    pub fn judge_read_error(&self, member: MemberIx, error: IoError) -> bool {
        let load = self.load(member);
        load.read_errors.update(|errors| errors + 1);
        if error.kind() != IoErrorKind::Medium {
            return true;
        }
        let without = self.health.borrow().lost().union(&[member].into_iter().collect());
        load.read_errors.get() > self.fixed.tuning.read_errors_max && self.fixed.geometry.survives(&without)
    }

    /// Since which version of the health whoever is in a seat is there.
    pub fn since(&self, member: MemberIx) -> u64 {
        self.health.borrow().seats[member.index()].since
    }

    /// The device in a seat.
    ///
    /// # Panics
    /// If nobody is there: states say who is.
    pub fn device(&self, member: MemberIx) -> Device {
        self.health.borrow().seats[member.index()].device.clone().expect("a member in use has a device")
    }

    /// The device in a seat, and where on it a data sector is, in bytes.
    pub fn place(&self, member: MemberIx, sector: Sector) -> (Device, u64) {
        let health = self.health.borrow();
        let (device, offset) = health.place(member, sector);
        (device.clone(), offset)
    }

    /// Runs `f` at the array's home. A change of state that was begun is finished, whatever becomes of the client.
    pub async fn home<F, Fut>(&self, f: F) -> Result<(), VolumeError>
    where
        F: FnOnce(Rc<Home>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), VolumeError>> + 'static,
    {
        let key = self.fixed.key;
        let change = self.core.call(self.fixed.home, move |core| async move {
            match core.local::<Home>(home_key(key)) {
                Some(home) => f(home).await,
                None => Err(VolumeError::Stopped),
            }
        });
        self.core.spawn(change).await
    }
}

/// A copy for one core: whatever it counts per operation, of the state itself and of devices, no other core counts in the same place.
fn own(health: &Health) -> Rc<Health> {
    let mut own = health.clone();
    for seat in &mut own.seats {
        seat.device = seat.device.as_ref().map(Device::for_core);
    }
    Rc::new(own)
}

/// Only levels with parity read before they write.
fn clean_cache(core: &Core, fixed: &Fixed) -> CleanCache {
    let geometry = &fixed.geometry;
    let bytes_max = if geometry.kind() == Kind::Parity { fixed.tuning.cache.bytes_max } else { 0 };
    let tuning = CacheTuning { bytes_max, ..fixed.tuning.cache };
    let chunk_bytes = geometry.chunk().0 * SECTOR_BYTES;
    CleanCache::new(tuning, fixed.loans.clone(), core.index(), geometry.raid_disks(), chunk_bytes)
}

/// Answers a request. Whoever asked may have gone; the work is done all the same.
pub(crate) fn answer<T>(sender: OneshotSender<T>, value: T) {
    let _ = sender.send(value);
}
