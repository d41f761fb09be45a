//! An array on modelled drives.

use std::rc::Rc;
use std::time::Duration;

use wattle_drives::Media;
use wattle_engine::geometry::{Geometry, GeometryError, Hazard, Level, LevelKind, Params};
use wattle_engine::metadata::{Metadata, NoMetadata};
use wattle_engine::units::{MemberIx, MemberSet, SECTOR_BYTES, Sector};
use wattle_engine::{ArrayHandle, ArraySpec, MemberSpec, VolumeRef};
use wattle_rt::sim::DriveTotals;
use wattle_rt::{Core, Device, DriveConfig, DriveControl, SimWorld, WorldConfig};

use crate::guard::{with_log, with_used_intent};
use crate::load::{Load, LoadError};
use crate::measured::{Measured, Probe};
use crate::metadata_cost::{MetadataCost, MetadataWrites};
use crate::ramp::Ramp;

/// Where the members' data starts, if nothing else is said: before it is room for every kind of
/// metadata, and only there contents are kept.
pub const DATA_OFFSET: Sector = Sector(4096);

/// Nothing that is measured lasts a year: what does is stuck.
const TIME_MAX: Duration = Duration::from_secs(365 * 86_400);

/// What covers a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteHoleGuard {
    /// Nothing, and superblocks cost nothing either.
    None,
    /// Superblocks alone: a resync of everything.
    Resync,
    /// A write-intent bitmap.
    Bitmap,
    /// A partial parity log (RAID 5).
    Ppl,
}

impl WriteHoleGuard {
    /// Has the array keep it, as it is after a long time of writes everywhere.
    pub(crate) fn kept(self, spec: ArraySpec) -> ArraySpec {
        match self {
            WriteHoleGuard::None | WriteHoleGuard::Resync => spec,
            WriteHoleGuard::Bitmap => with_used_intent(spec),
            WriteHoleGuard::Ppl => with_log(spec),
        }
    }

    /// What it costs to record.
    pub(crate) fn metadata(self, core: &Core, members: &[Device]) -> Box<dyn Metadata> {
        match self {
            WriteHoleGuard::None => Box::new(NoMetadata),
            _ => Box::new(MetadataCost::new(core, members, Rc::new(MetadataWrites::default()))),
        }
    }
}

/// Which array is measured.
#[derive(Clone, Copy, Debug)]
pub struct ModelledSetup {
    /// Its level.
    pub level: Level,
    /// Its layout, as md numbers them.
    pub layout: u32,
    /// Its members.
    pub members: u32,
    /// Its chunk in bytes.
    pub chunk_bytes: u64,
    /// Bytes of data on each member.
    pub member_bytes: u64,
    /// Where it starts on each member: [`DATA_OFFSET`] or further on.
    pub data_offset: Sector,
    /// So many members are missing.
    pub missing: u32,
    /// What covers a power cut.
    pub guard: WriteHoleGuard,
    /// Most bytes of the clean cache [default: the engine's].
    pub cache_bytes: Option<usize>,
    /// Cores.
    pub cores: usize,
    /// Where chance comes from.
    pub seed: u64,
}

/// There is no such array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// Level, layout, members, chunk and size do not fit together.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The layout cannot keep what it promises.
    #[error("{level} with this layout and {members} members: {hazard}")]
    Hazard {
        /// The level.
        level: Level,
        /// How many members.
        members: u32,
        /// What is wrong.
        hazard: Hazard,
    },
    /// Too many members are missing.
    #[error("{level} over {members} members cannot be read with {missing} missing")]
    Missing {
        /// The level.
        level: Level,
        /// How many members.
        members: u32,
        /// How many are missing.
        missing: u32,
    },
    /// Only RAID 5 has a partial parity log.
    #[error("{0} has no partial parity log: RAID 5 does")]
    NoLog(Level),
}

impl ModelledSetup {
    /// The array's map.
    ///
    /// # Errors
    /// [`SetupError`] says what does not fit.
    pub fn geometry(&self) -> Result<Geometry, SetupError> {
        let chunk = match self.level {
            Level::Raid1 | Level::Linear => 0,
            _ => self.chunk_bytes / SECTOR_BYTES,
        };
        let member_sectors = self.member_bytes / SECTOR_BYTES;
        let params = Params {
            level: self.level,
            layout: self.layout,
            chunk: Sector(chunk),
            raid_disks: self.members,
            component_size: Sector(match self.level.kind() {
                LevelKind::Striped => 0,
                LevelKind::Mirrored | LevelKind::Parity => member_sectors - member_sectors % chunk.max(1),
            }),
            member_sizes: match self.level.kind() {
                LevelKind::Striped => vec![Sector(member_sectors); self.members as usize],
                LevelKind::Mirrored | LevelKind::Parity => Vec::new(),
            },
        };
        let geometry = Geometry::new(&params)?;
        match geometry.hazard() {
            None => Ok(geometry),
            Some(hazard) => Err(SetupError::Hazard { level: self.level, members: self.members, hazard }),
        }
    }

    /// The slots of those that are missing: the last ones, as far as the others still hold
    /// everything.
    ///
    /// # Errors
    /// There is no array of this kind, or it cannot lack so many.
    pub fn lost(&self) -> Result<MemberSet, SetupError> {
        let geometry = self.geometry()?;
        let mut lost = MemberSet::EMPTY;
        let mut left = self.missing;
        for slot in (0..self.members as u16).rev().map(MemberIx) {
            if left == 0 {
                break;
            }
            lost.insert(slot);
            if geometry.survives(&lost) {
                left -= 1;
            } else {
                lost.remove(slot);
            }
        }
        match left {
            0 => Ok(lost),
            _ => Err(SetupError::Missing { level: self.level, members: self.members, missing: self.missing }),
        }
    }

    /// Whether there is such an array.
    ///
    /// # Errors
    /// [`SetupError`] says what does not fit.
    pub fn check(&self) -> Result<(), SetupError> {
        if self.guard == WriteHoleGuard::Ppl && self.level != Level::Raid5 {
            return Err(SetupError::NoLog(self.level));
        }
        self.lost().map(drop)
    }

    /// Puts the drives into a world of their own: one by slot, then spares.
    ///
    /// # Errors
    /// The set-up cannot exist.
    pub fn build(&self, drives: Vec<DriveConfig>) -> Result<ModelledSite, SetupError> {
        self.check()?;
        let (geometry, lost) = (self.geometry()?, self.lost()?);
        let mut world = SimWorld::new(WorldConfig {
            seed: self.seed,
            cores: self.cores,
            time_limit: TIME_MAX,
            poll_limit: u64::MAX,
            ..WorldConfig::default()
        });
        world.keep_order();
        let kept_bytes = 0..DATA_OFFSET.0 * SECTOR_BYTES;
        let add = |config| world.add_drive(DriveConfig { kept_bytes: kept_bytes.clone(), ..config });
        let pause = drives.iter().map(pause).max().unwrap_or_default();
        let drives: Vec<_> = drives.into_iter().map(add).collect();
        let controls = drives.iter().map(|drive| world.drive(drive)).collect();
        Ok(ModelledSite { setup: *self, geometry, lost, world, drives, controls, pause })
    }

    /// Measures a load on the array.
    ///
    /// # Errors
    /// The load does not fit the array.
    pub fn measure(&self, drives: Vec<DriveConfig>, load: &Load) -> Result<Measured, MeasureError> {
        let mut site = self.build(drives)?;
        let (spec, guard) = (self.guard.kept(site.spec()), self.guard);
        let metadata = move |core: &Core, members: &[Device]| guard.metadata(core, members);
        Ok(site.measure(load, spec, metadata)?)
    }
}

/// Nothing could be measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeasureError {
    /// There is no such array.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The load ended early.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// There was nothing left to fill when the load was counted.
    #[error("the member was filled before the load had been counted: it has too little data")]
    Filled,
}

/// Drives in a world of their own.
pub struct ModelledSite {
    /// What for.
    pub setup: ModelledSetup,
    /// The array's map.
    pub geometry: Geometry,
    /// Slots that are empty.
    pub lost: MemberSet,
    /// Their world.
    pub world: SimWorld,
    /// One by slot, then the spares.
    pub drives: Vec<Device>,
    /// Their controls.
    pub controls: Vec<DriveControl>,
    /// How long garbage collection stops one of them at a time.
    pause: Duration,
}

/// Pauses of garbage collection that a time counted is as long as: one more or less, and those of
/// one drive more or less, then hardly matter.
const PAUSES: u32 = 200;

/// Turns of the layout that requests in sequence are counted for at least while a member is
/// missing: what that member has of a stripe decides what the stripe costs, and returns once a
/// turn.
const TURNS: u64 = 24;

fn pause(drive: &DriveConfig) -> Duration {
    match drive.model.as_ref().map(|model| &model.media) {
        Some(Media::Flash(flash)) if flash.collection_share_ppm > 0 => flash.collection_pause,
        _ => Duration::ZERO,
    }
}

impl ModelledSite {
    /// The array in sync on the drives, as far as these are not missing, without bitmap or log.
    #[must_use]
    pub fn spec(&self) -> ArraySpec {
        let slots = (0..self.setup.members as u16).map(MemberIx);
        let members = slots.zip(&self.drives).map(|(slot, drive)| match self.lost.contains(slot) {
            true => MemberSpec::missing(),
            false => MemberSpec::in_sync(drive.clone(), self.setup.data_offset),
        });
        let mut spec = ArraySpec::new("measured", self.geometry.clone(), members.collect());
        if let Some(bytes) = self.setup.cache_bytes {
            spec.tuning.cache.bytes_max = bytes;
        }
        spec
    }

    /// The devices whose metadata is kept.
    #[must_use]
    pub fn members(&self) -> Vec<Device> {
        let slots = (0..self.setup.members as u16).map(MemberIx);
        let there = slots.zip(&self.drives).filter(|(slot, _)| !self.lost.contains(*slot));
        there.map(|(_, drive)| drive.clone()).collect()
    }

    /// The load, counted for so long that pauses of these drives even out, and stripes that cost
    /// more because of what they have on a missing member.
    pub(crate) fn settling(&self, load: &Load) -> Load {
        let (mut load, writes) = (load.clone(), load.read_part() < 1.0);
        if let Ramp::UntilSettled(settled) = &mut load.ramp {
            if writes {
                settled.at_least = settled.at_least.max(self.pause * PAUSES);
            }
            if !load.rw.random() && !self.lost.is_empty() && self.geometry.kind() == LevelKind::Parity {
                let stripe_bytes = self.geometry.stripe_data_sectors().0 * SECTOR_BYTES;
                let turn_bytes = stripe_bytes * u64::from(self.setup.members);
                let turns = (TURNS * turn_bytes).div_ceil(load.bs_bytes);
                settled.requests_at_least = turns.min(settled.requests_at_most / 2);
            }
        }
        load
    }

    /// Measures a load on the array that is started from `spec`.
    ///
    /// # Errors
    /// The load does not fit the array.
    pub fn measure(
        &mut self,
        load: &Load,
        spec: ArraySpec,
        metadata: impl FnOnce(&Core, &[Device]) -> Box<dyn Metadata>,
    ) -> Result<Measured, LoadError> {
        self.measure_on(load, spec, metadata, async |_, array| array)
    }

    /// Measures a load on the volume that `lay` puts on the array.
    ///
    /// # Errors
    /// The load does not fit the volume.
    pub fn measure_on(
        &mut self,
        load: &Load,
        spec: ArraySpec,
        metadata: impl FnOnce(&Core, &[Device]) -> Box<dyn Metadata>,
        lay: impl AsyncFnOnce(&Core, VolumeRef) -> VolumeRef,
    ) -> Result<Measured, LoadError> {
        let (members, controls, load) = (self.members(), self.controls.clone(), &self.settling(load));
        let work = async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, metadata(&core, &members)).await;
            let volume = lay(&core, array.volume()).await;
            let result = load.run(&core, &volume, look(&core, &array, &controls)).await;
            array.stop(&core).await.expect("nothing is wrong with the drives");
            result.map(|counted| Measured::new(load, counted))
        };
        self.world.run(work).expect_done()
    }
}

/// Looks at what drives and array have done so far.
pub fn look(core: &Core, array: &ArrayHandle, controls: &[DriveControl]) -> impl AsyncFn() -> Probe {
    async move || {
        let drives: Vec<DriveTotals> = controls.iter().map(DriveControl::totals).collect();
        let status = array.status(core).await;
        (drives, status.counters, status.cache)
    }
}
