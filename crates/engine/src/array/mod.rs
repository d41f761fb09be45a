//! A running array: what it is started from, the handle others hold, and what it reports.
//!
//! `shard` is an array on one core, `home` decides its changes of state, `health` is that state, `gate` is what changes wait at.

mod deadline;
mod gate;
mod health;
mod home;
mod log;
mod members;
mod shard;
mod status;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wattle_rt::{Core, CoreIx, Device};

use crate::ahead::{AheadTuning, Changes};
use crate::bad::BadRanges;
use crate::cache::CacheTuning;
use crate::error::{FailError, JoinError, LeaveError, VolumeError};
use crate::geometry::{Geometry, Kind};
use crate::intent::IntentSpec;
use crate::loan::Loans;
use crate::log::{LogArea, LogSpec, PAGE_BYTES as LOG_PAGE_BYTES};
use crate::metadata::Metadata;
use crate::regions::Regions;
use crate::sync;
use crate::units::{MemberIx, SECTOR_BYTES, Sector};
use crate::volume::VolumeRef;
pub(crate) use deadline::in_time;
pub(crate) use gate::Pass;
pub(crate) use health::{Health, Seat, Trust};
pub use health::{MemberKey, MemberState};
pub(crate) use home::Home;
use home::home_key;
pub use members::Whom;
pub(crate) use shard::{Bufs, Shard, UnderWay, WriteLoss, answer};
pub use status::{ArrayStatus, CounterTotals, MemberStatus, RequestLatencies};

/// What an array is started from.
#[derive(Debug, Clone)]
pub struct ArraySpec {
    /// The name its volume is found by.
    pub name: String,
    /// Level, layout, sizes.
    pub geometry: Geometry,
    /// By slot; as many as the geometry has members.
    pub members: Vec<MemberSpec>,
    /// By slot, the members that are being made to replace those in the slots; empty if there are none.
    pub replacements: Vec<MemberSpec>,
    /// Parity and copies agree below this position: [`Sector::MAX`] everywhere, 0 nowhere for certain. In the unit of md's
    /// `resync_offset`: member data sectors, for RAID 10 array sectors.
    pub synced_below: Sector,
    /// Above `synced_below`, they agree outside these regions; `None` if nothing is known there.
    pub needs: Option<Regions>,
    /// It was not stopped in good order, whatever is trusted: a member that is away may hold, unflushed, what was acknowledged.
    pub unclean: bool,
    /// Nothing is ever written to a member, neither data nor metadata.
    pub read_only: bool,
    /// The write-intent bitmap to keep.
    pub intent: Option<IntentSpec>,
    /// The partial parity log to write (RAID 5).
    pub log: Option<LogSpec>,
    /// Bounds and times.
    pub tuning: Tuning,
}

impl ArraySpec {
    /// An array in sync, to be written, without bitmap or log.
    #[must_use]
    pub fn new(name: impl Into<String>, geometry: Geometry, members: Vec<MemberSpec>) -> Self {
        Self {
            name: name.into(),
            geometry,
            members,
            replacements: Vec::new(),
            synced_below: Sector::MAX,
            needs: None,
            unclean: false,
            read_only: false,
            intent: None,
            log: None,
            tuning: Tuning::default(),
        }
    }
}

/// Who is in a seat of an array.
#[derive(Debug, Clone)]
pub struct MemberSpec {
    /// What the keeper of the metadata knows it by; `None` if nobody is known.
    pub key: Option<MemberKey>,
    /// Where its data is; `None` for a seat that is missing or faulty.
    pub device: Option<Device>,
    /// Where its data area starts on the device.
    pub data_offset: Sector,
    /// Where its partial parity log is.
    pub log: Option<LogArea>,
    /// Its state at the start.
    pub state: MemberState,
    /// For a member that is being rebuilt and was away: the regions that it missed (the space of [`Geometry::sync_sectors`]).
    pub stale: Option<Regions>,
    /// Its sectors that cannot be read.
    pub bad: BadRanges,
    /// How many entries (of at most [`BAD_ENTRY_SECTORS`]) its bad-block log has room for; 0 if it has none.
    pub bad_entries_max: usize,
}

/// Most sectors that one entry of a bad-block log covers (docs/formats.md §3).
pub const BAD_ENTRY_SECTORS: u64 = 512;

impl MemberSpec {
    /// A member that is current everywhere.
    #[must_use]
    pub fn in_sync(device: Device, data_offset: Sector) -> Self {
        Self { device: Some(device), data_offset, state: MemberState::InSync, ..Self::missing() }
    }

    /// A member to be filled from the start.
    #[must_use]
    pub fn blank(device: Device, data_offset: Sector) -> Self {
        let state = MemberState::Rebuilding { valid_below: Sector(0) };
        Self { device: Some(device), data_offset, state, ..Self::missing() }
    }

    /// Nobody.
    #[must_use]
    pub fn missing() -> Self {
        Self {
            key: None,
            device: None,
            data_offset: Sector(0),
            log: None,
            state: MemberState::Missing,
            stale: None,
            bad: BadRanges::NONE,
            bad_entries_max: 512,
        }
    }

    fn seat(self) -> (MemberState, Seat) {
        assert!(self.device.is_some() || !self.state.writable(), "a working member has a device");
        let seat = Seat {
            key: self.key,
            device: self.device,
            data_offset: self.data_offset,
            log: self.log,
            stale: self.stale.map(Arc::new),
            bad: Arc::new(self.bad),
            bad_entries_max: self.bad_entries_max,
            since: 0,
        };
        (self.state, seat)
    }
}

/// Bounds and times of an array.
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// Most bytes of old blocks and new parity that writes and reconstructions hold at once on a core; more wait their turn. One
    /// that needs more than this by itself has the core to itself.
    pub stripe_buffer_bytes: usize,
    /// The clean cache.
    pub cache: CacheTuning,
    /// Reading ahead of clients that read in sequence.
    pub ahead: AheadTuning,
    /// How long an array is idle before it is recorded clean (md's `safe_mode_delay`).
    pub clean_delay: Duration,
    /// A member is failed after this many read errors, even if all were corrected (md's `max_read_errors`).
    pub read_errors_max: u32,
    /// A read that a member has not answered after this long is answered from redundancy instead, and the member counts as slow
    /// for a while: it is asked again now and then.
    pub read_deadline: Duration,
    /// Resync, recovery, check and repair.
    pub sync: sync::Tuning,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            stripe_buffer_bytes: 32 << 20,
            cache: CacheTuning::default(),
            ahead: AheadTuning::default(),
            clean_delay: Duration::from_millis(200),
            read_errors_max: 20,
            read_deadline: Duration::from_secs(2),
            sync: sync::Tuning::default(),
        }
    }
}

/// What never changes while an array runs; one copy for all cores.
#[derive(Debug)]
pub(crate) struct Fixed {
    /// Key of the shards in each core's registry.
    pub key: u64,
    pub home: CoreIx,
    pub name: String,
    pub geometry: Geometry,
    pub unclean: bool,
    pub read_only: bool,
    pub intent: Option<IntentSpec>,
    pub log: Option<LogSpec>,
    pub tuning: Tuning,
    /// Stripes, or ranges of copies, that cores lend each other.
    pub loans: Arc<Loans>,
    /// What clients change while somebody reads ahead.
    pub changes: Arc<Changes>,
    /// Requests aligned to this cost no read of their edges. The largest logical block of the members; with a partial parity
    /// log at least its page.
    pub block_bytes: u32,
    /// The largest logical block of the members: what can be read by itself.
    pub member_block_bytes: u32,
}

impl Fixed {
    /// The array in whole blocks: a last one that is cut off, where members have blocks of 4 KiB, can neither be read nor written.
    pub fn volume_bytes(&self) -> u64 {
        let bytes = self.geometry.array_sectors().0 * SECTOR_BYTES;
        bytes - bytes % u64::from(self.block_bytes)
    }
}

/// A running array. Cheap to clone; may go to other cores.
#[derive(Debug, Clone)]
pub struct ArrayHandle {
    fixed: Arc<Fixed>,
}

impl ArrayHandle {
    /// Starts an array on every core of the runtime; `core` becomes its home. Writes nothing: metadata changes come with
    /// the first write.
    ///
    /// # Panics
    /// If `spec` has another number of members than its geometry, or the members that are there do not suffice to read:
    /// assembly checks both.
    pub async fn start(core: &Core, spec: ArraySpec, metadata: Box<dyn Metadata>) -> Self {
        // Only tells arrays of one process apart; never shown, never ordered by.
        static NEXT_KEY: AtomicU64 = AtomicU64::new(1);
        let slots = spec.geometry.raid_disks();
        assert_eq!(spec.members.len(), slots, "one member spec per slot");
        let mut who = spec.members;
        who.extend(spec.replacements);
        who.resize_with(2 * slots, MemberSpec::missing);
        let (states, seats): (Vec<_>, Vec<_>) = who.into_iter().map(MemberSpec::seat).unzip();
        let blocks = seats.iter().filter_map(|seat| seat.device.as_ref()).map(Device::logical_block_bytes);
        let member_block_bytes = blocks.max().unwrap_or(512).max(512);
        let block_bytes = member_block_bytes.max(if spec.log.is_some() { LOG_PAGE_BYTES } else { 512 });
        let trust = Trust { below: spec.synced_below, needs: spec.needs.map(Arc::new) };
        let health = Arc::new(Health::new(states, seats, trust));
        assert!(spec.geometry.survives(&health.lost()), "assembly starts no array that cannot be read");
        // What is neither parity nor copies is nobody's.
        let lenders = if spec.geometry.kind() == Kind::Striped { 1 } else { core.cores() };
        let loans = Loans::new(lenders);
        let part_bytes = spec.tuning.ahead.part_bytes_of(&spec.geometry).max(u64::from(block_bytes));
        let fixed = Arc::new(Fixed {
            key: NEXT_KEY.fetch_add(1, Ordering::Relaxed),
            home: core.index(),
            name: spec.name,
            geometry: spec.geometry,
            unclean: spec.unclean,
            read_only: spec.read_only,
            intent: spec.intent,
            log: spec.log,
            tuning: spec.tuning,
            loans: Arc::new(loans),
            changes: Arc::new(Changes::new(part_bytes)),
            block_bytes,
            member_block_bytes,
        });
        for index in each_core(core) {
            let (fixed, health) = (fixed.clone(), health.clone());
            core.call(index, move |core| async move {
                core.put_local(fixed.key, Rc::new(Shard::new(&core, fixed.clone(), &health)));
            })
            .await;
        }
        let home = Home::new(core, &fixed, health, metadata);
        core.put_local(home_key(fixed.key), home.clone());
        if !fixed.read_only && fixed.geometry.redundancy() > 0 {
            home.sync.begins();
            core.spawn(sync::run(core.clone(), home, fixed.clone()));
        }
        Self { fixed }
    }

    /// The whole array as a volume.
    #[must_use]
    pub fn volume(&self) -> VolumeRef {
        VolumeRef::Array(self.clone())
    }

    /// Fails a member on the operator's word, as a failed write would, and says in which seat it was.
    ///
    /// # Errors
    /// See [`FailError`]; the array is then as it was.
    pub async fn fail(&self, core: &Core, whom: impl Into<Whom>) -> Result<MemberIx, FailError> {
        let whom = whom.into();
        self.at_home(core, move |home| async move { home.fail_by_operator(whom).await })
            .await
            .unwrap_or(Err(FailError::Stopped))
    }

    /// Puts a member into a slot that is empty or whose member failed. It is filled from there on, and counts as redundancy when
    /// it is whole.
    ///
    /// # Errors
    /// See [`JoinError`]; the array is then as it was.
    pub async fn add(&self, core: &Core, slot: MemberIx, who: MemberSpec) -> Result<(), JoinError> {
        if slot.index() >= self.fixed.geometry.raid_disks() {
            return Err(JoinError::NoSuchSeat(slot));
        }
        self.at_home(core, move |home| async move { home.join(slot, who).await })
            .await
            .unwrap_or(Err(JoinError::Stopped))
    }

    /// Starts to make a copy of the working member in `slot` on another device, which takes the slot when it is whole; what it
    /// replaces is failed then.
    ///
    /// # Errors
    /// See [`JoinError`]; the array is then as it was.
    pub async fn replace(&self, core: &Core, slot: MemberIx, with: MemberSpec) -> Result<(), JoinError> {
        let slots = self.fixed.geometry.raid_disks();
        if slot.index() >= slots {
            return Err(JoinError::NoSuchSeat(slot));
        }
        let seat = MemberIx(slot.0 + slots as u16);
        self.at_home(core, move |home| async move { home.join(seat, with).await })
            .await
            .unwrap_or(Err(JoinError::Stopped))
    }

    /// Lets go of a member that failed: its seat is empty then.
    ///
    /// # Errors
    /// See [`LeaveError`]; the array is then as it was.
    pub async fn remove(&self, core: &Core, whom: impl Into<Whom>) -> Result<(), LeaveError> {
        let whom = whom.into();
        self.at_home(core, move |home| async move { home.leave(whom).await })
            .await
            .unwrap_or(Err(LeaveError::Stopped))
    }

    /// Waits until anything about the members changed since `version` (0: since the start), and returns the present version;
    /// `None` once the array is stopped.
    pub async fn changed(&self, core: &Core, version: u64) -> Option<u64> {
        self.at_home(core, move |home| async move { home.changed_since(version).await }).await?
    }

    /// Takes no more requests, waits for those in flight, flushes the members, records the array clean and forgets it. Nothing writes
    /// to a member after that. A read that was given up goes on until its member answers, and keeps its buffer until then.
    ///
    /// # Errors
    /// [`VolumeError::Broken`] if it could not be recorded clean; it is stopped all the same.
    pub async fn stop(&self, core: &Core) -> Result<(), VolumeError> {
        self.at_home(core, |home| async move { home.stop().await }).await.unwrap_or(Ok(()))
    }

    /// Sets after how long a read is answered from redundancy ([`Tuning::read_deadline`]), from now on.
    pub async fn set_read_deadline(&self, core: &Core, after: Duration) {
        let set = move |home: Rc<Home>| async move {
            home.on_every_core(move |shard| async move { shard.deadlines.set(after) }).await;
        };
        // A stopped array has no reads.
        let _: Option<()> = self.at_home(core, set).await;
    }

    /// How far ahead of one that reads in sequence is read where nobody set it, in bytes.
    #[must_use]
    pub fn read_ahead_bytes(&self) -> u64 {
        self.fixed.tuning.ahead.window_bytes_of(&self.fixed.geometry)
    }

    /// Sets how far ahead of one that reads in sequence is read, in bytes, from now on; 0 for not at all. More than
    /// [`AheadTuning::bytes_max`] is as much as that.
    pub async fn set_read_ahead_bytes(&self, core: &Core, bytes: u64) {
        let set = move |home: Rc<Home>| async move {
            home.on_every_core(move |shard| async move { shard.ahead.set_window_bytes(bytes) }).await;
        };
        // A stopped array is not read.
        let _: Option<()> = self.at_home(core, set).await;
    }

    /// Sets how many bytes the clean cache holds at most, all cores together ([`CacheTuning::bytes_max`]), from now on. Levels without
    /// parity have none.
    pub async fn set_cache_bytes(&self, core: &Core, bytes_max: usize) {
        if self.fixed.geometry.kind() != Kind::Parity {
            return;
        }
        let set = move |home: Rc<Home>| async move {
            home.on_every_core(move |shard| async move { shard.cache.set_bytes_max(bytes_max) }).await;
        };
        // A stopped array keeps nothing.
        let _: Option<()> = self.at_home(core, set).await;
    }

    /// What the array and its members are doing.
    pub async fn status(&self, core: &Core) -> ArrayStatus {
        status::collect(core, &self.fixed).await
    }

    pub(crate) fn fixed(&self) -> &Arc<Fixed> {
        &self.fixed
    }

    /// Runs `f` at the array's home, to its end even if nobody waits for it; `None` once it is stopped.
    pub(crate) async fn at_home<T, F, Fut>(&self, core: &Core, f: F) -> Option<T>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Home>) -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
    {
        let key = self.fixed.key;
        let change = core.call(self.fixed.home, move |core| async move {
            Some(f(core.local::<Home>(home_key(key))?).await)
        });
        core.spawn(change).await
    }
}

/// Every core of the runtime.
fn each_core(core: &Core) -> impl Iterator<Item = CoreIx> + use<> {
    (0..core.cores()).map(CoreIx)
}
