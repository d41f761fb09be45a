//! Checks and repairs: what they have to find, and what they may change.
//!
//! md has no checksums, so what a drive silently got wrong shows only where parity or copies do not
//! fit (docs/media.md). Where nothing was got wrong they always fit, whatever clients do beside;
//! where blocks of one member were, a check has to see it, and which member where there is
//! redundancy enough to tell; a repair has to bring back what can be told.

use std::time::Duration;

use wattle_engine::geometry::{Geometry, Level, LevelKind};
use wattle_engine::job::{FinishedJob, JobEnd, JobKind};
use wattle_engine::units::{MemberIx, MemberSet, Sector};
use wattle_engine::{ArrayHandle, Job, MemberState, RepairSource, Volume};
use wattle_rt::{Core, Rng};

use crate::client::{self, SharedHistory};
use crate::desk::Desk;
use crate::lock::lock;
use crate::scrub;

/// How long a check of a simulated array may take, even beside resyncs and slow drives.
const ENDS_WITHIN: Duration = Duration::from_secs(120);

/// Carries out what an operator asks for, and judges what comes of it: drives are honest.
pub async fn ask(core: &Core, array: &ArrayHandle, truth: &SharedHistory, job: Job) {
    let synced = array.status(core).await.synced_below == Sector::MAX;
    let Some(report) = run(core, array, truth, job).await else { return };
    let truth = &mut *lock(truth);
    if !synced {
        return;
    }
    if report.mismatch_sectors > 0 {
        truth
            .accuse(format!("something does not fit, though no drive is silent about a failure: {report:?}"));
    }
    if (report.unreadable_sectors > 0 || matches!(report.end, JobEnd::Failed(_))) && !truth.excused() {
        truth.accuse(format!("faults do not explain what a job says: {report:?}"));
    }
}

/// Runs a job to its end; `None` if it was refused, or the array stopped.
async fn run(core: &Core, array: &ArrayHandle, truth: &SharedHistory, job: Job) -> Option<FinishedJob> {
    let asked = core.now();
    let action = if matches!(job, Job::Check { .. }) { JobKind::Check } else { JobKind::Repair };
    if let Err(error) = array.start_job(core, job.clone()).await {
        lock(truth).tell(|| format!("{job:?}: {error}"));
        return None;
    }
    while core.now() < asked + ENDS_WITHIN {
        let report = array.report(core).await;
        if let Some(report) = report.filter(|report| report.action == action && report.ended >= asked) {
            let truth = &mut *lock(truth);
            truth.tell(|| format!("{job:?}: {report:?}"));
            truth.stats.audits += 1;
            return Some(report);
        }
        core.sleep(Duration::from_millis(1)).await;
    }
    lock(truth).accuse(format!("{job:?} does not end"));
    None
}

/// Lets a drive get some blocks wrong, on an array that is whole and idle, and looks at
/// what comes of it.
pub async fn silent(core: &Core, array: &ArrayHandle, desk: &Desk, rng: &mut Rng, blocks: usize) {
    let (plan, truth, geometry) = (&desk.plan, &desk.truth, &desk.plan.geometry);
    let all: MemberSet = plan.slots().collect();
    let fits = || scrub::check(plan, all, false);
    let whole = |slot| !plan.unreadable(slot, 0, geometry.member_sectors(slot).0);
    if !is_whole(core, array).await || !plan.slots().all(whole) || lock(truth).wrong.is_some() {
        return;
    }
    if let Err(what) = fits() {
        lock(truth).accuse(format!("the array is whole, but {what}"));
        return;
    }
    let Ok(volume) = array.volume().open(core) else { return };
    // What these writes leave in the clean cache is not what drives hold once they are spoilt.
    write_chunks(&volume, desk, 0).await;
    // What is not read in time is not compared, and this is about what is.
    array.set_read_deadline(core, ENDS_WITHIN).await;
    let victim = MemberIx(rng.below(geometry.raid_disks() as u64) as u16);
    let wrong = spoil(desk, victim, rng, blocks);
    let seen = fits().is_err();
    let Some(report) = run(core, array, truth, Job::Check { range: None }).await else { return };
    if (report.mismatch_sectors > 0) != seen || report.late_sectors > 0 {
        lock(truth).accuse(format!("member {victim} is wrong at {wrong:?}, and a check says {report:?}"));
    }
    lock(truth).stats.seen += u64::from(seen);
    let tells = geometry.redundancy() > 1;
    if tells && report.mismatches.iter().any(|mismatch| mismatch.culprit != Some(victim)) {
        lock(truth).accuse(format!("member {victim} alone is wrong, and a check says {report:?}"));
    }
    if matches!(geometry.level(), Level::Raid4 | Level::Raid5) {
        // Nothing tells data from parity: the data is what it is now.
        let sectors = wrong.iter().flat_map(|(at, len)| *at..at + len);
        let lost = sectors.filter_map(|sector| geometry.array_sector_at(victim, Sector(sector)));
        lost.for_each(|lba| lock(truth).model.lose(lba.0));
    }
    for source in sources(geometry, victim) {
        let job = Job::Repair { range: None, source: Some(source) };
        if run(core, array, truth, job).await.is_none() {
            lock(truth).accuse(format!("a repair from {source:?} was refused"));
        }
    }
    if let Err(what) = fits() {
        lock(truth).accuse(format!("member {victim} was wrong at {wrong:?}, and after a repair {what}"));
    }
    write_chunks(&volume, desk, 1).await;
    if let Err(what) = fits() {
        lock(truth).accuse(format!("after a repair and writes beside what it wrote {what}"));
    }
    client::verify(&volume, truth).await;
    ask(core, array, truth, Job::Check { range: None }).await;
}

/// Zeroes everything while the clean cache holds what writes needed, on an array that is whole and
/// idle, and writes beside that.
pub async fn zeroed(core: &Core, array: &ArrayHandle, desk: &Desk) {
    let (plan, truth) = (&desk.plan, &desk.truth);
    if plan.geometry.kind() != LevelKind::Parity
        || !is_whole(core, array).await
        || lock(truth).wrong.is_some()
    {
        return;
    }
    let Ok(volume) = array.volume().open(core) else { return };
    write_chunks(&volume, desk, 0).await;
    client::zero(&volume, truth, 0, plan.geometry.array_sectors().0).await;
    write_chunks(&volume, desk, 1).await;
    if !is_whole(core, array).await {
        return;
    }
    if let Err(what) = scrub::check(plan, plan.slots().collect(), false) {
        lock(truth).accuse(format!("after zeros and writes beside them {what}"));
    }
}

/// Writes one chunk of each stripe, counted around: of levels with parity, of which such writes
/// need and keep more than they write.
async fn write_chunks(volume: &Volume, desk: &Desk, number: u64) {
    let geometry = &desk.plan.geometry;
    if geometry.kind() != LevelKind::Parity {
        return;
    }
    let (chunk, chunks) = (geometry.chunk().0, geometry.data_disks() as u64);
    for stripe in 0..geometry.stripes() {
        let first = (stripe * chunks + number % chunks) * chunk;
        client::write(volume, &desk.truth, first, chunk).await;
    }
}

async fn is_whole(core: &Core, array: &ArrayHandle) -> bool {
    let status = array.status(core).await;
    let mut all = status.members.iter().chain(&status.replacements);
    let sound =
        all.all(|member| member.bad_sectors == 0 && !matches!(member.state, MemberState::Rebuilding { .. }));
    sound && status.degraded == 0 && !status.broken && status.synced_below == Sector::MAX
}

/// Gives blocks of a member other contents, as a write does that is lost or that lands elsewhere.
/// Says where: sector and length.
fn spoil(desk: &Desk, victim: MemberIx, rng: &mut Rng, blocks: usize) -> Vec<(u64, u64)> {
    let (plan, unit) = (&desk.plan, u64::from(desk.plan.sector_bytes) / 512);
    let units = plan.geometry.member_sectors(victim).0 / unit;
    let mut spoilt = Vec::new();
    for _ in 0..blocks {
        let (at, other) = (rng.below(units) * unit, rng.below(units) * unit);
        let mut bytes = plan.data(victim, other, unit, false);
        match rng.below(3) {
            0 => bytes.fill(0),
            1 => rng.fill(&mut bytes),
            _ => {}
        }
        plan.control_in(victim).poke((plan.data_offset + at) * 512, &bytes);
        spoilt.push((at, unit));
    }
    spoilt
}

/// What makes up for one member that is wrong; on RAID 4 and 5 only parity can be made to fit.
fn sources(geometry: &Geometry, victim: MemberIx) -> Vec<RepairSource> {
    let others = (0..geometry.raid_disks() as u16).map(MemberIx).filter(|slot| *slot != victim);
    match geometry.level() {
        Level::Raid6 => vec![RepairSource::Raid6Culprit],
        Level::Raid1 | Level::Raid10 if geometry.redundancy() > 1 => vec![RepairSource::Majority],
        Level::Raid1 | Level::Raid10 => others.map(RepairSource::CopyFrom).collect(),
        _ => vec![RepairSource::ParityFromData],
    }
}
