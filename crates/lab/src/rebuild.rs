//! How fast a member is filled, with nothing beside.

use std::rc::Rc;
use std::time::Duration;

use wattle_engine::sync::JobEnd;
use wattle_engine::{ArrayHandle, MemberSpec};
use wattle_rt::sim::DriveTotals;
use wattle_rt::{Core, DriveConfig, DriveControl};

use crate::keeper::{Keeper, Kept};
use crate::measured::MemberUse;
use crate::setup::{Setup, SetupError};

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

/// How often somebody looks whether it is done.
const LOOK: Duration = Duration::from_millis(1);

/// Fills the member in the last slot from the others.
///
/// # Errors
/// There is no such array.
///
/// # Panics
/// If it does not come to a good end: nothing is wrong with these drives.
pub fn rebuild(setup: &Setup, drives: Vec<DriveConfig>) -> Result<Rebuilt, SetupError> {
    let mut site = setup.build(drives)?;
    let (mut spec, members, controls) = (site.spec(), site.members(), site.controls.clone());
    let (last, drive) = (spec.members.last_mut(), site.drives.get(setup.members as usize - 1));
    if let (Some(last), Some(drive)) = (last, drive) {
        *last = MemberSpec::blank(drive.clone(), setup.data_offset);
    }
    let bytes = setup.member_bytes;
    let work = async move |core: Core| {
        let keeper = Keeper::new(&core, &members, Rc::new(Kept::default()));
        let began = core.now();
        let array = ArrayHandle::start(&core, spec, Box::new(keeper)).await;
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
