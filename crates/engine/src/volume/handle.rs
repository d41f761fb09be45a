//! The handle of a running array.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wattle_rt::{Core, Device};

use super::VolumeRef;
use super::spec::{ArraySpec, ArrayTuning};
use super::status::{self, ArrayStatus};
use crate::cores::{self, on_every_core};
use crate::hints::HintShard;
use crate::hints::readahead::Changes;
use crate::job::{self, JobShard};
use crate::lease::words::LeaseWords;
use crate::level::ArrayShard;
use crate::model::error::{FailError, JoinError, LeaveError, VolumeError};
use crate::model::fixed::{Fixed, Limits};
use crate::model::geometry::LevelKind;
use crate::model::health::{Health, MemberKey, Trust};
use crate::model::intent::IntentSpec;
use crate::model::log::PAGE_BYTES as LOG_PAGE_BYTES;
use crate::model::units::MemberIx;
use crate::model::whom::Whom;
use crate::state::metadata::Metadata;
use crate::state::sums::NoteShard;
use crate::state::{Home, MemberSpec, StateShard};

/// A running array. Cheap to clone; may go to other cores.
#[derive(Debug, Clone)]
pub struct ArrayHandle {
    fixed: Arc<Fixed>,
    tuning: Arc<ArrayTuning>,
    /// What its members lie on and ends with it, the upper layers first.
    below: Arc<[VolumeRef]>,
}

impl ArrayHandle {
    /// Starts an array on every core of the runtime; `core` becomes its home. Writes nothing:
    /// metadata changes come with the first write.
    ///
    /// # Panics
    /// If `spec` has another number of members than its geometry, or the members that are there do
    /// not suffice to read: assembly checks both.
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
        // No block reaches past the end.
        let dividing = 1_u32 << spec.geometry.array_sectors().0.saturating_mul(512).trailing_zeros().min(31);
        let block_bytes = block_bytes.max(spec.block_bytes_min.min(dividing));
        let trust = Trust { below: spec.synced_below, needs: spec.needs.map(Arc::new) };
        let health = Arc::new(Health::new(states, seats, trust));
        assert!(spec.geometry.survives(&health.lost()), "assembly starts no array that cannot be read");
        // Stripes of neither parity nor copies have no owner.
        let owners = if spec.geometry.kind() == LevelKind::Striped { 1 } else { core.cores() };
        let words = Arc::new(LeaseWords::new(owners));
        let tuning = spec.tuning;
        let part_bytes = tuning.ahead.part_bytes_of(&spec.geometry).max(u64::from(block_bytes));
        let fixed = Arc::new(Fixed {
            key: NEXT_KEY.fetch_add(1, Ordering::Relaxed),
            home: core.index(),
            name: spec.name,
            geometry: spec.geometry,
            unclean: spec.unclean,
            read_only: spec.read_only,
            intent: spec.intent,
            log: spec.log,
            sums: spec.sums,
            limits: Limits {
                stripe_buffer_bytes: tuning.stripe_buffer_bytes,
                clean_delay: tuning.clean_delay,
                read_errors_max: tuning.read_errors_max,
                read_deadline: tuning.read_deadline,
                late_after: tuning.sync.goal.late_after(),
            },
            block_bytes,
            member_block_bytes,
        });
        // Before a core has a part, so that no write passes by.
        let has_sums = metadata.sum_store().is_some_and(|store| store.has_sums());
        let changes = Arc::new(Changes::new(part_bytes));
        let (of_all, first) = (fixed.clone(), health.clone());
        cores::each(core, move |core| {
            let state = StateShard::start(&core, &of_all, &first);
            state.notes.iter().filter(|_| has_sums).for_each(NoteShard::activate);
            let (words, changes) = (words.clone(), changes.clone());
            let hints = HintShard::start(&state, &tuning.cache, tuning.ahead, words.clone(), changes);
            ArrayShard::start(&state, hints, words);
            JobShard::start(&state, &tuning.sync);
            std::future::ready(())
        })
        .await;
        let jobs = core.local::<JobShard>(fixed.jobs_key()).expect("every core has one");
        let home = Home::start(core, &fixed, health, metadata, jobs.control.clone());
        if !fixed.read_only && fixed.geometry.redundancy() > 0 {
            jobs.control.begins();
            core.spawn(job::run(core.clone(), home, jobs.control.clone(), fixed.clone(), tuning.sync));
        }
        Self { fixed, tuning: Arc::new(tuning), below: Arc::new([]) }
    }

    /// The same array with volumes that its members lie on and that nothing else uses, the upper
    /// layers first: they are stopped when it is.
    #[must_use]
    pub fn over(self, below: Vec<VolumeRef>) -> Self {
        Self { below: below.into(), ..self }
    }

    /// The whole array as a volume.
    #[must_use]
    pub fn volume(&self) -> VolumeRef {
        VolumeRef::Array(self.clone())
    }

    /// Fails a member on the operator's word, as a failed write would, and says in which seat it
    /// was.
    ///
    /// # Errors
    /// See [`FailError`]; the array is then as it was.
    pub async fn fail(&self, core: &Core, whom: impl Into<Whom>) -> Result<MemberIx, FailError> {
        let whom = whom.into();
        self.at_home(core, move |home| async move { home.fail_by_operator(whom).await })
            .await
            .unwrap_or(Err(FailError::Stopped))
    }

    /// Gives a member up that is to be [failed](Self::fail), ahead of what may wait for it: that
    /// ends, and fails the member. There is no way back.
    ///
    /// # Errors
    /// As of the order itself; nothing was given up.
    pub async fn give_up(&self, core: &Core, whom: impl Into<Whom>) -> Result<MemberIx, FailError> {
        let whom = whom.into();
        self.at_home(core, move |home| async move { home.give_up(whom).await.map(|member| member.seat) })
            .await
            .unwrap_or(Err(FailError::Stopped))
    }

    /// The devices in its seats.
    pub async fn devices(&self, core: &Core) -> Vec<(MemberIx, Option<MemberKey>, Device)> {
        let devices = self.at_home(core, |home| async move {
            let seats = (0..).map(MemberIx).zip(home.health().seats.clone());
            seats.filter_map(|(seat, who)| Some((seat, who.key, who.device?))).collect()
        });
        devices.await.unwrap_or_default()
    }

    /// Whether the array could go on without these members, all of them, as it is now.
    pub async fn can_spare(&self, core: &Core, members: Vec<MemberKey>) -> bool {
        let spared = self.at_home(core, move |home| async move { home.can_spare(&members) });
        spared.await.unwrap_or(false)
    }

    /// Fails a member that does not answer and was given up, if it did not fail by itself. The
    /// caller has asked [`Self::can_spare`].
    pub async fn fail_silent(&self, core: &Core, member: MemberKey) {
        self.at_home(core, move |home| async move { home.fail_silent(member).await }).await;
    }

    /// Says whether copies on other members are to be read before those on this one, from now on.
    /// What keeps the metadata has to know already.
    ///
    /// # Errors
    /// It could not be recorded.
    pub async fn set_write_mostly(
        &self,
        core: &Core,
        member: MemberKey,
        on: bool,
    ) -> Result<(), VolumeError> {
        self.at_home(core, move |home| async move { home.set_write_mostly(member, on).await })
            .await
            .unwrap_or(Err(VolumeError::Stopped))
    }

    /// Puts a member into a slot that is empty or has a failed member. It is filled from there on,
    /// and counts as redundancy when it is whole.
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

    /// Starts to make a copy of the working member in `slot` on another device, which takes the
    /// slot when it is whole; what it replaces is failed then.
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

    /// Keeps a write-intent bitmap from now on, in which all bits are set and which the metadata
    /// has ready; or none any more. Nothing may lack only what the present bitmap has bits for.
    ///
    /// # Errors
    /// [`VolumeError::Broken`] if it could not be recorded; read-only or stopped.
    pub async fn set_intent(&self, core: &Core, spec: Option<IntentSpec>) -> Result<(), VolumeError> {
        if self.fixed.read_only {
            return Err(VolumeError::ReadOnly);
        }
        self.at_home(core, move |home| async move { home.change_intent(spec).await })
            .await
            .unwrap_or(Err(VolumeError::Stopped))
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

    /// Waits until anything about the members changed since `version` (0: since the start), and
    /// returns the present version; `None` once the array is stopped.
    pub async fn changed(&self, core: &Core, version: u64) -> Option<u64> {
        self.at_home(core, move |home| async move { home.changed_since(version).await }).await?
    }

    /// Takes no more requests, waits for those in flight, flushes the members, records the array
    /// clean and forgets it. Nothing writes to a member after that. A read that was given up goes
    /// on until its member answers, and keeps its buffer until then.
    ///
    /// # Errors
    /// [`VolumeError::Broken`] if it could not be recorded clean; it is stopped all the same.
    pub async fn stop(&self, core: &Core) -> Result<(), VolumeError> {
        let mut stopped = self.at_home(core, |home| async move { home.stop().await }).await.unwrap_or(Ok(()));
        for below in &*self.below {
            let of_below = Box::pin(below.stop(core)).await;
            stopped = stopped.and(of_below);
        }
        stopped
    }

    /// Sets after how long a read is answered from redundancy
    /// ([`super::spec::ArrayTuning::read_deadline`]), from now on.
    pub async fn set_read_deadline(&self, core: &Core, after: Duration) {
        let set = move |home: Rc<Home>| async move {
            home.on_every_core(move |shard| async move { shard.members.deadlines.set(after) }).await;
        };
        // A stopped array has no reads.
        let _: Option<()> = self.at_home(core, set).await;
    }

    /// How far ahead of one that reads in sequence is read where nothing else is set, in bytes.
    #[must_use]
    pub fn read_ahead_bytes(&self) -> u64 {
        self.tuning.ahead.window_bytes_of(&self.fixed.geometry)
    }

    /// Sets how far ahead of one that reads in sequence is read, in bytes, from now on; 0 for not
    /// at all. More than `ReadaheadTuning::bytes_max` is as much as that.
    pub async fn set_read_ahead_bytes(&self, core: &Core, bytes: u64) {
        // Once the array is stopped no core has such a part.
        on_every_core::<HintShard, _, _>(core, self.fixed.hints_key(), move |hints| async move {
            hints.ahead.set_window_bytes(bytes);
        })
        .await;
    }

    /// Sets how many bytes the clean cache holds at most, all cores together
    /// (`CacheTuning::bytes_max`), from now on. Levels without parity have none.
    pub async fn set_cache_bytes(&self, core: &Core, bytes_max: usize) {
        if self.fixed.geometry.kind() != LevelKind::Parity {
            return;
        }
        // Once the array is stopped no core has such a part.
        on_every_core::<HintShard, _, _>(core, self.fixed.hints_key(), move |hints| async move {
            hints.cache.set_bytes_max(bytes_max);
        })
        .await;
    }

    /// What the array and its members are doing.
    pub async fn status(&self, core: &Core) -> ArrayStatus {
        status::collect(core, &self.fixed).await
    }

    pub(crate) fn fixed(&self) -> &Arc<Fixed> {
        &self.fixed
    }

    /// Runs `f` at the array's home, to its end even if its caller has gone; `None` once it is
    /// stopped.
    pub(crate) async fn at_home<T, F, Fut>(&self, core: &Core, f: F) -> Option<T>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Home>) -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
    {
        let key = self.fixed.home_key();
        let change =
            core.call(self.fixed.home, move |core| async move { Some(f(core.local::<Home>(key)?).await) });
        core.spawn(change).await
    }
}
