//! How fast a member is filled, with nothing beside, and beside a load.

use std::rc::Rc;
use std::time::Duration;

use wattle_engine::job::{JobEnd, JobTuning};
use wattle_engine::{ArrayHandle, MemberSpec};
use wattle_rt::sim::DriveTotals;
use wattle_rt::{Core, DriveConfig, DriveControl};

use crate::load::{Counted, Load};
use crate::measured::{Measured, MemberUse, Probe};
use crate::metadata_cost::{MetadataCost, MetadataWrites};
use crate::settle::Sight;
use crate::setup::{MeasureError, ModelledSetup, SetupError, look};

/// A rebuild from its start to its end.
#[derive(Clone, Debug)]
pub struct Rebuilt {
    /// Bytes of the member that was filled.
    pub bytes: u64,
    /// How long it took, the last record included.
    pub took: Duration,
    /// What the drives did meanwhile.
    pub drives: Vec<DriveTotals>,
}

impl Rebuilt {
    /// Bytes per second and member.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.took.as_secs_f64()
    }

    /// How the drives were used.
    #[must_use]
    pub fn uses(&self) -> Vec<MemberUse> {
        self.drives.iter().map(|totals| MemberUse::new(totals, self.took)).collect()
    }
}

/// How often it is looked whether it is done.
const LOOK: Duration = Duration::from_millis(1);

/// Fills the member in the last slot from the others.
///
/// # Errors
/// There is no such array.
///
/// # Panics
/// If it does not come to a good end: nothing is wrong with these drives.
pub fn rebuild(setup: &ModelledSetup, drives: Vec<DriveConfig>) -> Result<Rebuilt, SetupError> {
    rebuild_tuned(setup, drives, |_| {})
}

/// The same with other bounds and times of jobs than the engine's own.
///
/// # Errors
/// There is no such array.
///
/// # Panics
/// As [`rebuild`].
pub fn rebuild_tuned(
    setup: &ModelledSetup,
    drives: Vec<DriveConfig>,
    tune: impl FnOnce(&mut JobTuning),
) -> Result<Rebuilt, SetupError> {
    let mut site = setup.build(drives)?;
    let (mut spec, members, controls) = (site.spec(), site.members(), site.controls.clone());
    let (last, drive) = (spec.members.last_mut(), site.drives.get(setup.members as usize - 1));
    if let (Some(last), Some(drive)) = (last, drive) {
        *last = MemberSpec::blank(drive.clone(), setup.data_offset);
    }
    tune(&mut spec.tuning.sync);
    let bytes = setup.member_bytes;
    let work = async move |core: Core| {
        let metadata = MetadataCost::new(&core, &members, Rc::new(MetadataWrites::default()));
        let began = core.now();
        let array = ArrayHandle::start(&core, spec, Box::new(metadata)).await;
        let report = loop {
            if let Some(report) = array.report(&core).await {
                break report;
            }
            core.sleep(LOOK).await;
        };
        assert_eq!(report.end, JobEnd::Finished, "{report:?}");
        let took = core.now() - began;
        let drives = controls.iter().map(DriveControl::totals).collect();
        array.stop(&core).await.expect("nothing is wrong with the drives");
        Rebuilt { bytes, took, drives }
    };
    Ok(site.world.run(work).expect_done())
}

/// A load while a member was filled.
#[derive(Clone, Debug)]
pub struct LoadBesideRebuild {
    /// The load.
    pub measured: Measured,
    /// Bytes per second of the member that was filled meanwhile.
    pub bytes_per_second: f64,
}

/// Measures a load while the first of the members that are missing is filled on a drive of its
/// slot.
///
/// # Errors
/// There is no such array, the load does not fit it, or the member was filled too soon.
///
/// # Panics
/// If no member is missing.
pub fn rebuild_beside(
    setup: &ModelledSetup,
    drives: Vec<DriveConfig>,
    load: &Load,
) -> Result<LoadBesideRebuild, MeasureError> {
    rebuild_beside_tuned(setup, drives, load, |_| {})
}

/// The same with other bounds and times of jobs than the engine's own.
///
/// # Errors
/// As [`rebuild_beside`].
///
/// # Panics
/// As [`rebuild_beside`].
pub fn rebuild_beside_tuned(
    setup: &ModelledSetup,
    drives: Vec<DriveConfig>,
    load: &Load,
    tune: impl FnOnce(&mut JobTuning),
) -> Result<LoadBesideRebuild, MeasureError> {
    let mut site = setup.build(drives)?;
    let load = &site.settling(load);
    let slot = site.lost.iter().next().expect("a member is missing");
    site.lost.remove(slot);
    let (mut spec, members, controls) = (site.spec(), site.members(), site.controls.clone());
    spec.members[slot.index()] = MemberSpec::blank(site.drives[slot.index()].clone(), setup.data_offset);
    tune(&mut spec.tuning.sync);
    let (spec, guard) = (setup.guard.kept(spec), setup.guard);
    let work = async move |core: Core| {
        let array = ArrayHandle::start(&core, spec, guard.metadata(&core, &members)).await;
        let look = look(&core, &array, &controls);
        let observe = async || (look().await, part_done(&core, &array).await);
        let counted = load.run(&core, &array.volume(), observe).await;
        array.stop(&core).await.expect("nothing is wrong with the drives");
        counted
    };
    let Counted { runtime, ramped, counts, before, after } = site.world.run(work).expect_done()?;
    // It may not have begun when counting did.
    let part = after.1.ok_or(MeasureError::Filled)? - before.1.unwrap_or(0.0);
    let counted = Counted { runtime, ramped, counts, before: before.0, after: after.0 };
    Ok(LoadBesideRebuild {
        measured: Measured::new(load, counted),
        bytes_per_second: part * setup.member_bytes as f64 / runtime.as_secs_f64(),
    })
}

/// What is seen, and what part of the member is filled.
impl Sight for (Probe, Option<f64>) {
    fn written(&self) -> (u64, u64) {
        self.0.written()
    }

    fn cache_bytes(&self) -> u64 {
        self.0.cache_bytes()
    }

    fn decided_after(&self) -> u64 {
        self.0.decided_after()
    }

    fn job(&self) -> Option<f64> {
        self.1
    }
}

/// What part of the member is filled; `None` once all of it is.
async fn part_done(core: &Core, array: &ArrayHandle) -> Option<f64> {
    let job = array.status(core).await.sync?;
    Some(job.position.0 as f64 / job.end.0 as f64)
}
