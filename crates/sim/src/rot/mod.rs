//! Members that rot silently between recorded scrubs, with writes, crashes and other systems in
//! between.
//!
//! An array with md's metadata keeps the sums of recorded scrubs on a drive of its own. Clients
//! write before, beside and after scrubs; in quiet moments some sectors of members turn into
//! something else without a word; lifetimes end by a stop, a kill or a power cut, and another
//! system may run the array. What holds ([`oracle`]):
//!
//! - No member is accused that did not rot, nor a place of it that did not.
//! - A repair from sums changes nothing but what rotted, and that into what it was.
//! - What rotted in a region that was not written since a recorded scrub, alone in its block, is
//!   found and repaired: always.

mod oracle;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use wattle_engine::geometry::{Geometry, Level, Params};
use wattle_engine::job::{Job, JobError, RecordJob, RepairSource};
use wattle_engine::units::{MemberIx, MemberSet, Sector};
use wattle_engine::{ArrayHandle, BadRanges, Regions, Volume};
use wattle_format::md::Version;
use wattle_rt::{BufMut, Core, Device, DriveConfig, Durability, Rng, RunOutcome, SimWorld, WorldConfig};

use crate::client::Stats;
use crate::lock::lock;
use crate::metadata::{AssemblyFound, Lenient, MetadataModel};
use crate::run::{RunOptions, ScenarioReport};
use crate::scrub;
use crate::site::{Hardware, SitePlan};
use oracle::RotOracle;

/// How a lifetime ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotEnd {
    /// In good order.
    Stop,
    /// In good order; then another system writes to the array.
    Elsewhere,
    /// By a kill, after this time.
    Kill(Duration),
    /// By a power cut, after so many operations.
    PowerCut(u64),
}

/// Everything that a seed decides.
#[derive(Clone, Debug)]
pub struct RotScenario {
    /// The seed.
    pub seed: u64,
    /// What the array is made of.
    pub params: Params,
    /// Cores.
    pub cores: usize,
    /// The drives' atomic unit.
    pub sector_bytes: u32,
    /// It has a write-intent bitmap.
    pub bitmap: bool,
    /// The lifetimes: rounds of scrubs and rot, and the end.
    pub lives: Vec<(u64, RotEnd)>,
    /// Most writes of a client between two scrubs.
    pub writes: u64,
    /// A member that fails in the last lifetime.
    pub fails: Option<MemberIx>,
}

fn one_of<T: Copy>(rng: &mut Rng, options: &[T]) -> T {
    options[rng.below(options.len() as u64) as usize]
}

const METADATA: MetadataModel = MetadataModel::Md(Version::V12);

impl RotScenario {
    /// The world of a seed.
    #[must_use]
    pub fn new(seed: u64) -> RotScenario {
        use Level::{Raid1, Raid5, Raid6, Raid10};
        let rng = &mut Rng::new(seed ^ 0x0205_eed5);
        let level = one_of(rng, &[Raid1, Raid1, Raid1, Raid5, Raid5, Raid6, Raid6, Raid10]);
        let raid_disks = match level {
            Raid1 => 2 + rng.below(2) * rng.below(2),
            Raid6 => 4 + rng.below(2),
            _ => 3 + rng.below(2),
        };
        let chunk = one_of(rng, &[8, 32, 128, 256]);
        let params = Params {
            level,
            layout: match level {
                Raid5 | Raid6 => 2,
                Raid10 => one_of(rng, &[0x102, 0x201]),
                _ => 0,
            },
            chunk: Sector(if level == Raid1 { 0 } else { chunk }),
            raid_disks: raid_disks as u32,
            component_size: Sector(
                256 * (2 + rng.below(4)) + if level == Raid1 { 8 * rng.below(8) } else { 0 },
            ),
            member_sizes: Vec::new(),
        };
        let end = |rng: &mut Rng| match rng.below(8) {
            0..=2 => RotEnd::Stop,
            3 => RotEnd::Elsewhere,
            4..=5 => RotEnd::Kill(Duration::from_millis(20 + rng.below(600))),
            _ => RotEnd::PowerCut(200 + rng.below(3000)),
        };
        let mut lives: Vec<_> = (0..1 + rng.below(3)).map(|_| (1 + rng.below(2), end(rng))).collect();
        lives.push((2, RotEnd::Stop));
        RotScenario {
            seed,
            params,
            cores: 1 + rng.below(3) as usize,
            sector_bytes: one_of(rng, &[512, 512, 4096]),
            bitmap: rng.coin(),
            lives,
            writes: 1 + rng.below(12),
            fails: (rng.below(4) == 0).then(|| MemberIx(rng.below(raid_disks) as u16)),
        }
    }

    fn geometry(&self) -> Geometry {
        Geometry::new(&self.params).expect("these are arrays")
    }
}

/// Plays the world of a seed.
#[must_use]
pub fn run(rot: &RotScenario, options: RunOptions) -> ScenarioReport {
    let _planted = options.plant();
    let mut world = SimWorld::new(WorldConfig {
        seed: rot.seed,
        cores: rot.cores,
        time_limit: Duration::from_secs(600),
        poll_limit: 6_000_000,
        ..WorldConfig::default()
    });
    let unit = u64::from(rot.sector_bytes) / 512;
    let size = METADATA.drive_sectors(rot.params.component_size.0).next_multiple_of(unit.max(8));
    let config = |name: String, sectors: u64, sector_bytes: u32| DriveConfig {
        size_bytes: sectors * 512,
        sector_bytes,
        name,
        ..DriveConfig::default()
    };
    let drives: Vec<_> = (0..rot.params.raid_disks)
        .map(|slot| world.add_drive(config(format!("drive{slot}"), size, rot.sector_bytes)))
        .collect();
    let sums = world.add_drive(config("sums".to_owned(), 2048, 512));
    let controls: Vec<_> = drives.iter().map(|drive| world.drive(drive)).collect();
    let geometry = rot.geometry();
    let region = Sector(128);
    let plan = SitePlan {
        controls,
        drive_sectors: vec![size; drives.len()],
        params: rot.params.clone(),
        data_offset: METADATA.data_offset(),
        sector_bytes: rot.sector_bytes,
        regions: rot.bitmap.then(|| Regions::new(region, geometry.sync_sectors())),
        log: false,
        bad_entries_max: 0,
        bad: Arc::new(Mutex::new(vec![BadRanges::NONE; drives.len()])),
        seating: Arc::new(Mutex::new((0..drives.len()).collect())),
        geometry,
    };
    METADATA.create(&plan, &vec![rot.params.component_size.0; drives.len()]);
    let oracle = Arc::new(Mutex::new(RotOracle::new(plan.clone(), options.verbose)));
    let hardware = Hardware { drives, sector_bytes: rot.sector_bytes };
    let mut rng = Rng::new(rot.seed ^ 0x5c2b_0b57);
    for (number, &(rounds, end)) in rot.lives.iter().enumerate() {
        let player = Player {
            plan: plan.clone(),
            oracle: oracle.clone(),
            rounds,
            writes: rot.writes,
            fails: rot.fails.filter(|_| number + 1 == rot.lives.len()),
            rng: rng.fork(),
        };
        if let RotEnd::PowerCut(operations) = end {
            world.power_cut_after_ops(operations);
        }
        let (hardware, sums) = (hardware.clone(), sums.clone());
        let outcome = world.run(async move |core: Core| player.live(&core, &hardware, sums, end).await);
        world.cancel_power_cut();
        let oracle = &mut *lock(&oracle);
        match (outcome, end) {
            (RunOutcome::Done(true), RotEnd::Stop) => {}
            (RunOutcome::Done(true), RotEnd::Elsewhere) => elsewhere(&plan, oracle, &mut rng),
            (RunOutcome::Done(_) | RunOutcome::PowerCut, _) => oracle.crashed(),
            (outcome, _) => oracle.accuse(format!("it does not end: {outcome:?}")),
        }
        if oracle.wrong.is_some() {
            break;
        }
    }
    let oracle = &mut *lock(&oracle);
    let (operations, trace) = (world.ops_submitted(), world.trace_hash());
    let stats = Stats { requests: oracle.writes, seen: oracle.proved, operations, ..Stats::default() };
    ScenarioReport { wrong: oracle.wrong.take(), stats, trace, log: oracle.log.take().unwrap_or_default() }
}

/// Another system assembles the array, writes and stops it.
fn elsewhere(plan: &SitePlan, oracle: &mut RotOracle, rng: &mut Rng) {
    let sectors = plan.geometry.member_sectors(MemberIx(0)).0 / 8;
    for _ in 0..4 {
        let slot = MemberIx(rng.below(plan.geometry.raid_disks() as u64) as u16);
        let mut bytes = vec![0; 4096];
        rng.fill(&mut bytes);
        plan.control_in(slot).poke((plan.data_offset + rng.below(sectors) * 8) * 512, &bytes);
    }
    scrub::resync(plan);
    METADATA.set_clean(plan, plan.slots().collect::<MemberSet>());
    oracle.tell(|| "another system wrote to the array".to_owned());
    oracle.forget();
}

struct Player {
    plan: SitePlan,
    oracle: Arc<Mutex<RotOracle>>,
    rounds: u64,
    writes: u64,
    fails: Option<MemberIx>,
    rng: Rng,
}

impl Player {
    /// Whether it was stopped in good order.
    async fn live(self, core: &Core, hardware: &Hardware, sums: Device, end: RotEnd) -> bool {
        let found = METADATA.assemble(&self.plan, self.plan.slots().collect(), Lenient::default());
        let mut start = match found {
            AssemblyFound::Usable(start) => start,
            AssemblyFound::Refused(why) => {
                lock(&self.oracle).tell(|| format!("refused: {why:?}"));
                return false;
            }
        };
        start.keep_sums(sums);
        let running = start.launch(core, hardware, &self.plan, |spec, metadata, _| (spec, metadata)).await;
        let Some(md) = running.ok().and_then(|running| running.md) else { return false };
        let array = md.handle().clone();
        if let RotEnd::Kill(after) = end {
            core.spawn({
                let (core, array) = (core.clone(), array.clone());
                async move { self.play(&core, &array).await }
            });
            core.sleep(after).await;
            return false;
        }
        self.play(core, &array).await;
        md.stop().await.is_ok()
    }

    async fn play(mut self, core: &Core, array: &ArrayHandle) {
        let Ok(volume) = array.volume().open(core) else { return };
        loop {
            let status = array.status(core).await;
            if status.synced_below == Sector::MAX && status.sync.is_none() {
                break;
            }
            core.sleep(Duration::from_millis(5)).await;
        }
        for round in 0..self.rounds {
            self.write_some(core, &volume, Duration::ZERO).await;
            self.record(core, array, &volume).await;
            if self.rng.coin() {
                self.write_some(core, &volume, Duration::ZERO).await;
            }
            if round > 0
                && let Some(member) = self.fails.take()
                && array.fail(core, member).await.is_ok()
            {
                lock(&self.oracle).fail(member);
            }
            // Nothing is in flight from here on.
            self.rot();
            if self.rng.coin() {
                let job =
                    if self.rng.coin() { Job::Check { range: None } } else { Job::Record(RecordJob::Check) };
                self.scrub(core, array, &job).await;
            }
            let job = match self.rng.coin() {
                true => Job::Repair { range: None, source: Some(RepairSource::Sums) },
                false => Job::Record(RecordJob::Repair),
            };
            self.scrub(core, array, &job).await;
            lock(&self.oracle).heal();
            if lock(&self.oracle).wrong.is_some() {
                return;
            }
        }
    }

    /// A recorded scrub beside writes.
    async fn record(&mut self, core: &Core, array: &ArrayHandle, volume: &Volume) {
        lock(&self.oracle).scrub_begins();
        let job = Job::Record(if self.rng.coin() { RecordJob::Repair } else { RecordJob::Check });
        let mut started = array.start_job(core, job).await;
        if started == Err(JobError::NothingRecorded) {
            started = array.start_job(core, Job::Record(RecordJob::Check)).await;
        }
        if self.rng.below(3) > 0 {
            let pause = Duration::from_micros(self.rng.below(3000));
            self.write_some(core, volume, pause).await;
        }
        self.wait(core, array).await;
        let report = array.report(core).await;
        let recorded = report.as_ref().is_some_and(|report| report.sums.recorded) && started.is_ok();
        let oracle = &mut *lock(&self.oracle);
        oracle.tell(|| format!("recorded: {recorded}, {started:?}"));
        oracle.scrub_ends(recorded);
        if let Some(report) = report.filter(|_| started.is_ok()) {
            oracle.found(&report);
        }
    }

    async fn wait(&self, core: &Core, array: &ArrayHandle) {
        while array.job_is_asked_for(core).await {
            core.sleep(Duration::from_millis(1)).await;
        }
        // Its end is told a moment later.
        while array.status(core).await.sync.is_some() {
            core.sleep(Duration::from_millis(1)).await;
        }
    }

    /// A scrub in a quiet moment.
    async fn scrub(&self, core: &Core, array: &ArrayHandle, job: &Job) {
        lock(&self.oracle).look();
        lock(&self.oracle).scrub_begins();
        let repairs = matches!(job, Job::Repair { .. } | Job::Record(RecordJob::Repair));
        let records = matches!(job, Job::Record(_));
        let started = array.start_job(core, job.clone()).await;
        if started.is_err() {
            let oracle = &mut *lock(&self.oracle);
            oracle.tell(|| format!("{job:?}: {started:?}"));
            oracle.not_started(repairs);
            return;
        }
        self.wait(core, array).await;
        let Some(report) = array.report(core).await else { return };
        let oracle = &mut *lock(&self.oracle);
        oracle.tell(|| format!("{job:?}: {:?}, {:?}", report.sums, report.mismatches));
        oracle.found(&report);
        oracle.complete(&report, repairs);
        if records {
            oracle.scrub_ends(report.sums.recorded);
        } else {
            oracle.scrub_ends(false);
        }
    }

    async fn write_some(&mut self, core: &Core, volume: &Volume, pause: Duration) {
        let size = self.plan.geometry.array_sectors().0 / 8 * 8;
        for _ in 0..self.rng.below(self.writes + 1) {
            let len = 8 * (1 + self.rng.below(12));
            let first = self.rng.below(size / 8) * 8;
            let len = len.min(size - first);
            let mut bytes = BufMut::alloc((len * 512) as usize);
            self.rng.fill(&mut bytes);
            lock(&self.oracle).write(first, len);
            let zeroes = self.rng.below(8) == 0;
            let result = match zeroes {
                true => {
                    volume
                        .write_zeroes(first * 512, len * 512, wattle_rt::Unmap::No, Durability::Cached)
                        .await
                }
                false => volume.write(first * 512, bytes.freeze(), Durability::Cached).await,
            };
            lock(&self.oracle).tell(|| format!("write of {first}+{len}: {result:?}"));
            core.sleep(pause).await;
        }
    }

    /// Some sectors hold something else.
    fn rot(&mut self) {
        let unit = u64::from(self.plan.sector_bytes) / 512;
        let sectors = self.plan.geometry.member_sectors(MemberIx(0)).0 / unit;
        let oracle = &mut *lock(&self.oracle);
        oracle.look();
        for _ in 0..1 + self.rng.below(4) {
            let slot = MemberIx(self.rng.below(self.plan.geometry.raid_disks() as u64) as u16);
            let at = self.rng.below(sectors) * unit;
            let mut bytes = vec![0; (unit * 512) as usize];
            self.rng.fill(&mut bytes);
            if self.rng.coin() {
                // One bit.
                bytes = self.plan.data(slot, at, unit, false);
                let bit = self.rng.below(unit * 512 * 8);
                bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            }
            oracle.rot(slot, at, &bytes);
        }
    }
}
