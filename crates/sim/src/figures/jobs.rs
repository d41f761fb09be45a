//! How fast an array is rebuilt and scrubbed, alone and beside clients.

use std::rc::Rc;
use std::time::Duration;

use wattle_engine::job::{Job, JobEnd};
use wattle_engine::metadata::Metadata;
use wattle_engine::units::{MemberIx, Sector};
use wattle_engine::{ArrayHandle, ArraySpec, MemberSpec};
use wattle_modelled::{DATA_OFFSET, Measured, MemberUse, MetadataCost, MetadataWrites, ModelledSite};
use wattle_rt::sim::DriveTotals;
use wattle_rt::{Core, Device, DriveControl};

use super::load::FigureLoad;
use super::site::{FigureSetup, LimitedDrive};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredWork {
    /// The last slot's member is filled from the others.
    Rebuild,
    /// A copy of the last slot's member is made on a spare.
    Replace,
    /// Everything is read and compared.
    Check,
    /// Nothing is known to agree; everything is read and compared.
    Resync,
}

impl MeasuredWork {
    /// All of them.
    pub const ALL: [MeasuredWork; 4] =
        [MeasuredWork::Rebuild, MeasuredWork::Replace, MeasuredWork::Check, MeasuredWork::Resync];

    /// What bounds it: bytes per second that the member which is filled takes, or that each member
    /// delivers.
    #[must_use]
    pub fn limit_bytes_per_second(self) -> f64 {
        match self {
            MeasuredWork::Rebuild | MeasuredWork::Replace => LimitedDrive::FAST.write_bytes_per_second as f64,
            MeasuredWork::Check | MeasuredWork::Resync => LimitedDrive::FAST.read_bytes_per_second as f64,
        }
    }

    fn spec(self, site: &ModelledSite) -> ArraySpec {
        let mut spec = site.spec();
        match self {
            MeasuredWork::Rebuild => {
                let last = spec.members.last_mut().expect("there are members");
                let drive = &site.drives[site.setup.members as usize - 1];
                *last = MemberSpec::blank(drive.clone(), DATA_OFFSET);
            }
            MeasuredWork::Resync => spec.synced_below = Sector(0),
            MeasuredWork::Replace | MeasuredWork::Check => {}
        }
        spec
    }

    /// `spec` is [`Self::spec`]'s; the drive behind the members is the spare.
    async fn start(
        self,
        setup: &FigureSetup,
        spec: ArraySpec,
        core: &Core,
        drives: &[Device],
    ) -> ArrayHandle {
        let members = &drives[..setup.members as usize];
        let metadata = MetadataCost::new(core, members, Rc::new(MetadataWrites::default()));
        let array = ArrayHandle::start(core, spec, Box::new(metadata)).await;
        match self {
            MeasuredWork::Rebuild | MeasuredWork::Resync => {}
            MeasuredWork::Check => {
                array.start_job(core, Job::Check { range: None }).await.expect("nothing else is done");
            }
            MeasuredWork::Replace => {
                let spare = MemberSpec::blank(drives[setup.members as usize].clone(), DATA_OFFSET);
                let last = MemberIx(setup.members as u16 - 1);
                array.replace(core, last, spare).await.expect("the last slot has no replacement yet");
            }
        }
        array
    }
}

/// How it went beside nothing else.
#[derive(Clone, Debug)]
pub struct Alone {
    /// Bytes of each member that were gone over (filled, or read).
    pub bytes: u64,
    /// How long it took, from the start of the array to the last record.
    pub took: Duration,
    /// What the drives did meanwhile.
    pub drives: Vec<DriveTotals>,
}

impl Alone {
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

/// Measures it from start to end with no client in sight.
///
/// # Panics
/// If it does not come to a good end.
#[must_use]
pub fn alone(setup: &FigureSetup, work: MeasuredWork) -> Alone {
    let mut site = setup.build(1);
    let (drives, controls, spec, setup) =
        (site.drives.clone(), site.controls.clone(), work.spec(&site), *setup);
    let run = async move |core: Core| {
        let began = core.now();
        let array = work.start(&setup, spec, &core, &drives).await;
        let report = loop {
            if let Some(report) = array.report(&core).await {
                break report;
            }
            core.sleep(Duration::from_micros(200)).await;
        };
        assert_eq!(report.end, JobEnd::Finished, "{report:?}");
        let took = core.now() - began;
        let drives = controls.iter().map(DriveControl::totals).collect();
        array.stop(&core).await.expect("nothing is wrong with the drives");
        Alone { bytes: setup.member_bytes, took, drives }
    };
    site.world.run(run).expect_done()
}

/// How clients fared with and without.
#[derive(Clone, Debug)]
pub struct ClientsBesideJob {
    /// Clients of an array that is whole and has nothing to do.
    pub whole: Measured,
    /// Clients of an array in the same state, in which nothing is done about it.
    pub without: Measured,
    /// Clients while it is done.
    pub with: Measured,
    /// Bytes per second and member that were gone over meanwhile.
    pub bytes_per_second: f64,
}

/// Measures it while `load` runs.
///
/// # Panics
/// If it comes to its end before the load does.
#[must_use]
pub fn beside(setup: &FigureSetup, work: MeasuredWork, load: &FigureLoad) -> ClientsBesideJob {
    let mut site = setup.build(1);
    let (drives, controls, spec, setup) =
        (site.drives.clone(), site.controls.clone(), work.spec(&site), *setup);
    let clients = load.clone();
    let run = async move |core: Core| {
        let array = work.start(&setup, spec, &core, &drives).await;
        let watch = core.spawn({
            let (core, array, load) = (core.clone(), array.clone(), clients.clone());
            async move {
                core.sleep(load.warm_up).await;
                let before = part_done(&core, &array).await;
                core.sleep(load.window).await;
                part_done(&core, &array).await - before
            }
        });
        let with = clients.run(&core, &array, &controls).await;
        (with, watch.await)
    };
    let (with, part) = site.world.run(run).expect_done();
    let absent = move |mut spec: ArraySpec| {
        if work == MeasuredWork::Rebuild {
            *spec.members.last_mut().expect("there are members") = MemberSpec::missing();
        }
        spec
    };
    let metadata = |core: &Core, drives: &[Device]| -> Box<dyn Metadata> {
        Box::new(MetadataCost::new(core, drives, Rc::new(MetadataWrites::default())))
    };
    ClientsBesideJob {
        whole: setup.measure(load),
        without: setup.measure_with(load, absent, metadata),
        with,
        bytes_per_second: part * setup.member_bytes as f64 / load.window.as_secs_f64(),
    }
}

/// What part of the job is done: its positions are in different units.
async fn part_done(core: &Core, array: &ArrayHandle) -> f64 {
    let status = array.status(core).await;
    let job = status.sync.expect("it lasts longer than the load");
    job.position.0 as f64 / job.end.0 as f64
}

/// Random requests of 4 KiB for [`beside`]: counted after a job has had time to notice them.
#[must_use]
pub fn clients(depth: usize, reads_percent: u32) -> FigureLoad {
    let (warm_up, window) = (Duration::from_millis(200), Duration::from_millis(200));
    FigureLoad { reads_percent, warm_up, window, ..FigureLoad::random_writes(depth) }
}
