//! A running array: what it is started from, the handle others hold, and what it reports.
//!
//! `shard` is an array on one core, `home` decides its changes of state, `health` is that state, `gate` is what changes wait at.

mod gate;
mod health;
mod home;
mod shard;
mod status;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wattle_rt::{Core, CoreIx, Device};

use crate::error::{FailError, VolumeError};
use crate::geometry::{Geometry, Kind};
use crate::metadata::Metadata;
use crate::units::{MemberIx, SECTOR_BYTES, Sector};
use crate::volume::VolumeRef;
pub(crate) use gate::Pass;
pub(crate) use health::Health;
pub use health::MemberState;
use home::{Home, home_key};
pub(crate) use shard::{Shard, answer};
pub use status::{ArrayStatus, CounterTotals, MemberStatus};

/// What an array is started from.
#[derive(Debug, Clone)]
pub struct ArraySpec {
    /// The name its volume is found by.
    pub name: String,
    /// Level, layout, sizes.
    pub geometry: Geometry,
    /// By slot; as many as the geometry has members.
    pub members: Vec<MemberSpec>,
    /// Parity and copies agree below this position: [`Sector::MAX`] everywhere, 0 nowhere for certain. In the unit of md's
    /// `resync_offset`: member data sectors, for RAID 10 array sectors.
    pub synced_below: Sector,
    /// Nothing is ever written to a member, neither data nor metadata.
    pub read_only: bool,
    /// Bounds and times.
    pub tuning: Tuning,
}

/// One slot of an [`ArraySpec`].
#[derive(Debug, Clone)]
pub struct MemberSpec {
    /// Where the member's data is; `None` for a slot that is missing or faulty.
    pub device: Option<Device>,
    /// Where its data area starts on the device.
    pub data_offset: Sector,
    /// Its state at the start.
    pub state: MemberState,
}

/// Bounds and times of an array.
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// Most stripes that are worked on at once on a core; more wait their turn. At most
    /// `stripes_active_max x chunk x (members + 2)` bytes of buffers follow from it.
    pub stripes_active_max: usize,
    /// How long an array is idle before it is recorded clean (md's `safe_mode_delay`).
    pub clean_delay: Duration,
    /// A member is failed after this many read errors, even if all were corrected (md's `max_read_errors`).
    pub read_errors_max: u32,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { stripes_active_max: 256, clean_delay: Duration::from_millis(200), read_errors_max: 20 }
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
    pub members: Vec<FixedMember>,
    pub synced_below: Sector,
    pub read_only: bool,
    pub tuning: Tuning,
    /// Requests aligned to this cost no read of their edges. The largest logical block of the members.
    pub block_bytes: u32,
}

impl Fixed {
    /// The array in whole blocks: a last one that is cut off, where members have blocks of 4 KiB, can neither be read nor written.
    pub fn volume_bytes(&self) -> u64 {
        let bytes = self.geometry.array_sectors().0 * SECTOR_BYTES;
        bytes - bytes % u64::from(self.block_bytes)
    }

    /// Whether all parity is known to be right; what is not known to be right replaces no member. Copies always do.
    fn parity_trusted(&self) -> bool {
        let geometry = &self.geometry;
        geometry.kind() != Kind::Parity || {
            let stripes = geometry.array_sectors().0 / geometry.stripe_data_sectors().0;
            stripes * geometry.chunk().0 <= self.synced_below.0
        }
    }
}

#[derive(Debug)]
pub(crate) struct FixedMember {
    pub device: Option<Device>,
    pub data_offset: Sector,
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
        assert_eq!(spec.members.len(), spec.geometry.raid_disks(), "one member spec per slot");
        let health = Arc::new(Health::new(spec.members.iter().map(|member| member.state).collect()));
        assert!(spec.geometry.survives(&health.lost()), "assembly starts no array that cannot be read");
        let members: Vec<_> = spec
            .members
            .into_iter()
            .map(|member| {
                assert!(member.device.is_some() || !member.state.writable(), "a working member has a device");
                FixedMember { device: member.device, data_offset: member.data_offset }
            })
            .collect();
        let block_bytes =
            members.iter().filter_map(|member| member.device.as_ref()).map(Device::logical_block_bytes).max();
        let fixed = Arc::new(Fixed {
            key: NEXT_KEY.fetch_add(1, Ordering::Relaxed),
            home: core.index(),
            name: spec.name,
            geometry: spec.geometry,
            members,
            synced_below: spec.synced_below,
            read_only: spec.read_only,
            tuning: spec.tuning,
            block_bytes: block_bytes.unwrap_or(512).max(512),
        });
        for index in each_core(core) {
            let (fixed, health) = (fixed.clone(), health.clone());
            core.call(index, move |core| async move {
                core.put_local(fixed.key, Rc::new(Shard::new(&core, fixed.clone(), health)));
            })
            .await;
        }
        core.put_local(home_key(fixed.key), Home::new(core, &fixed, health, metadata));
        Self { fixed }
    }

    /// The whole array as a volume.
    #[must_use]
    pub fn volume(&self) -> VolumeRef {
        VolumeRef::new(self.clone())
    }

    /// Fails the member in `slot` on the operator's word, as a failed write would.
    ///
    /// # Errors
    /// See [`FailError`]; the array is then as it was.
    pub async fn fail(&self, core: &Core, slot: MemberIx) -> Result<(), FailError> {
        self.at_home(core, move |home| async move { home.fail_by_operator(slot).await })
            .await
            .unwrap_or(Err(FailError::Stopped))
    }

    /// Takes no more requests, waits for those in flight, flushes the members, records the array clean and forgets it.
    ///
    /// # Errors
    /// [`VolumeError::Broken`] if it could not be recorded clean; it is stopped all the same.
    pub async fn stop(&self, core: &Core) -> Result<(), VolumeError> {
        self.at_home(core, |home| async move { home.stop().await }).await.unwrap_or(Ok(()))
    }

    /// What the array and its members are doing.
    pub async fn status(&self, core: &Core) -> ArrayStatus {
        status::collect(core, &self.fixed).await
    }

    pub(crate) fn fixed(&self) -> &Arc<Fixed> {
        &self.fixed
    }

    /// Runs `f` at the array's home, to its end even if nobody waits for it; `None` once it is stopped.
    async fn at_home<T, F, Fut>(&self, core: &Core, f: F) -> Option<T>
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
