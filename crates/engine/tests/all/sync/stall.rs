//! Drives that do not answer: jobs go round them where they can, and end when they are told to.

use std::time::Duration;

use wattle_engine::geometry::{Level, LevelKind};
use wattle_engine::job::{JobEnd, JobKind};
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::{MemberIx, SECTOR_BYTES, Sector};
use wattle_engine::{ArrayHandle, ArraySpec, Job, RepairSource};
use wattle_rt::{Core, DriveConfig, SimWorld, WorldConfig};

use crate::support::case::Case;
use crate::support::drives::drives;
use crate::support::members::in_sync;

use super::world::{CASES, Fixture, settled};

const STALL: Duration = Duration::from_secs(60);
const DEADLINE: Duration = Duration::from_millis(20);

fn quickly(mut spec: ArraySpec) -> ArraySpec {
    spec.tuning.read_deadline = DEADLINE;
    // Records flush every member, and wait for each of them.
    spec.tuning.sync.checkpoint_every = Duration::from_secs(600);
    spec
}

async fn until(core: &Core, mut done: impl AsyncFnMut() -> bool, within: Duration) {
    let end = core.now() + within;
    while !done().await {
        assert!(core.now() < end, "not within {within:?}");
        core.sleep(Duration::from_millis(1)).await;
    }
}

/// Cases that can lose a member while another is filled.
fn with_two_to_spare() -> impl Iterator<Item = Case> {
    CASES.iter().copied().filter(|case| Fixture::new(*case, 0, 1).geometry.redundancy() > 1)
}

#[test]
fn a_recovery_reads_from_others_than_who_does_not_answer() {
    for (number, case) in with_two_to_spare().enumerate() {
        let mut fixture = Fixture::new(case, number as u64, 1 + number % 2);
        let model = fixture.populate(41);
        fixture.scribble(1, 88);
        let mut spec = quickly(fixture.spec());
        spec.members[1] = fixture.blank(1);
        let (stalled, end) = (fixture.drive(0), fixture.geometry.member_sectors(MemberIx(1)));
        let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
        fixture
            .world
            .run(async move |core: Core| {
                stalled.stall(STALL);
                let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
                let filled = async || array.status(&core).await.sync.is_some_and(|sync| sync.position == end);
                until(&core, filled, 20 * DEADLINE).await;
                // What is filled is recorded once all members are flushed.
                let status = settled(&core, &array).await;
                assert_eq!(status.last.map(|last| last.end), Some(JobEnd::Finished));
                assert!(status.members[0].late_reads > 0);
                array.stop(&core).await.expect("it stops");
            })
            .expect_done();
        fixture.verify(&fixture.slots(), &model, "filled beside a stall");
    }
}

#[test]
fn a_recovery_waits_for_who_cannot_be_done_without() {
    for (number, &case) in CASES.iter().enumerate() {
        let mut fixture = Fixture::new(case, number as u64, 1 + number % 2);
        let model = fixture.populate(44);
        fixture.scribble(1, 89);
        let mut spec = quickly(fixture.spec());
        spec.members[1] = fixture.blank(1);
        let others: Vec<_> =
            (0..case.members).filter(|slot| *slot != 1).map(|slot| fixture.drive(slot)).collect();
        let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
        fixture
            .world
            .run(async move |core: Core| {
                others.iter().for_each(|drive| drive.stall(10 * DEADLINE));
                let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
                let status = settled(&core, &array).await;
                assert_eq!(status.last.map(|last| last.end), Some(JobEnd::Finished), "{case:?}");
                array.stop(&core).await.expect("it stops");
            })
            .expect_done();
        fixture.verify(&fixture.slots(), &model, "filled after a stall");
    }
}

#[test]
fn a_check_leaves_out_what_is_not_read_in_time_and_says_so() {
    for (number, &case) in CASES.iter().enumerate() {
        let mut fixture = Fixture::new(case, number as u64, 2);
        let model = fixture.populate(42);
        let spec = quickly(fixture.spec());
        let window_bytes = spec.tuning.sync.window_bytes;
        let stalled = fixture.drive(0);
        let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
        let report = fixture
            .world
            .run(async move |core: Core| {
                let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
                stalled.stall(50 * DEADLINE);
                array.start_job(&core, Job::Check { range: None }).await.expect("it starts");
                until(&core, async || array.report(&core).await.is_some(), 60 * DEADLINE).await;
                let report = array.report(&core).await.expect("it ended");
                array.stop(&core).await.expect("it stops");
                report
            })
            .expect_done();
        assert_eq!((report.end, report.mismatch_sectors), (JobEnd::Finished, 0), "{case:?}");
        assert!(report.late_sectors > 0, "{case:?}: {report:?}");
        // It waits before it asks for more: a member that does not answer keeps the buffers.
        assert!(report.late_sectors * SECTOR_BYTES <= 2 * window_bytes, "{case:?}: {report:?}");
        fixture.verify(&fixture.slots(), &model, "nothing was written");
    }
}

#[test]
fn a_repair_leaves_alone_what_is_not_read_in_time() {
    for (number, &case) in CASES.iter().enumerate() {
        let mut fixture = Fixture::new(case, number as u64, 1);
        let _ = fixture.populate(45);
        fixture.scribble(1, 90);
        let spec = quickly(fixture.spec());
        let stalled = fixture.drive(0);
        let source = match case.level.kind() {
            LevelKind::Parity => RepairSource::ParityFromData,
            _ => RepairSource::CopyFrom(MemberIx(0)),
        };
        let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
        let report = fixture
            .world
            .run(async move |core: Core| {
                let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
                stalled.stall(STALL);
                array
                    .start_job(&core, Job::Repair { range: None, source: Some(source) })
                    .await
                    .expect("it starts");
                core.sleep(10 * DEADLINE).await;
                // One that waits for late reads ends when told to.
                array.abort_job(&core).await;
                until(&core, async || array.report(&core).await.is_some(), 2 * DEADLINE).await;
                let report = array.report(&core).await.expect("it ended");
                array.stop(&core).await.expect("it stops");
                report
            })
            .expect_done();
        assert_eq!(report.end, JobEnd::Aborted, "{case:?}");
        assert!(report.late_sectors > 0, "{case:?}: {report:?}");
        // Of RAID 10 not every member has everything.
        assert!(report.mismatch_sectors == 0 || case.level == Level::Raid10, "{case:?}: {report:?}");
    }
}

#[test]
fn a_slow_member_is_not_late_for_what_waits_in_front_of_a_read() {
    let case = CASES[0];
    let member_sectors = 48 << 11;
    let mut world = SimWorld::new(WorldConfig { seed: 1, cores: 2, ..WorldConfig::default() });
    let config = DriveConfig {
        size_bytes: member_sectors * SECTOR_BYTES,
        read_bytes_per_second: 5_000_000,
        kept_bytes: 0..0,
        ..DriveConfig::default()
    };
    let drives = drives(&mut world, case.members, &config);
    let spec = ArraySpec::new("a", case.geometry(member_sectors), in_sync(&drives, Sector(0), &[]));
    let report = world
        .run(async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, Box::new(NoMetadata)).await;
            array.start_job(&core, Job::Check { range: None }).await.expect("it starts");
            until(&core, async || array.report(&core).await.is_some(), Duration::from_secs(30)).await;
            let report = array.report(&core).await.expect("it ended");
            array.stop(&core).await.expect("it stops");
            report
        })
        .expect_done();
    assert_eq!((report.end, report.late_sectors), (JobEnd::Finished, 0), "{report:?}");
}

/// A resync needs all members, so it waits; but not when the array is to stop.
#[test]
fn a_resync_that_waits_for_a_stalled_member_ends_when_told_to() {
    for (number, &case) in CASES.iter().enumerate() {
        let mut fixture = Fixture::new(case, number as u64, 2);
        let model = fixture.populate(43);
        let spec = ArraySpec { synced_below: Sector(0), ..quickly(fixture.spec()) };
        let stalled = fixture.drive(0);
        let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
        fixture
            .world
            .run(async move |core: Core| {
                stalled.stall(STALL);
                let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
                core.sleep(5 * DEADLINE).await;
                let sync = array.status(&core).await.sync.expect("it waits");
                assert_eq!((sync.action, sync.position), (JobKind::Resync, Sector(0)), "{case:?}");
                let stop = core.spawn({
                    let (core, array) = (core.clone(), array.clone());
                    async move { array.stop(&core).await }
                });
                let aborted =
                    async || array.report(&core).await.is_some_and(|report| report.end == JobEnd::Aborted);
                until(&core, aborted, 2 * DEADLINE).await;
                // The last flush takes as long as the member does.
                assert_eq!(stop.await, Ok(()));
            })
            .expect_done();
        fixture.verify(&fixture.slots(), &model, "it was right all the time");
    }
}
