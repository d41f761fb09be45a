//! Orders to an array on simulated drives, in virtual time.

use std::rc::Rc;
use std::time::Duration;

use wattle_control::{Code, Problem};
use wattle_engine::geometry::{Geometry, Level, Params};
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::Sector;
use wattle_engine::{ArrayHandle, ArraySpec, MemberSpec, VolumeError};
use wattle_rt::{BufMut, Core, DriveConfig, DriveControl, SimWorld, WorldConfig};

use super::{Served, ServedFacts};
use crate::log::ServerLog;

const MEMBER_BYTES: u64 = 4 << 20;

/// A RAID 5 of three members whose parity is wrong in one place.
fn with_array(body: impl AsyncFnOnce(Core, Rc<Served>, Vec<DriveControl>) + 'static) {
    let mut world = SimWorld::new(WorldConfig { cores: 2, ..WorldConfig::default() });
    let config = DriveConfig { size_bytes: MEMBER_BYTES, ..DriveConfig::default() };
    let drives: Vec<_> = (0..3).map(|_| world.add_drive(config.clone())).collect();
    let controls: Vec<_> = drives.iter().map(|drive| world.drive(drive)).collect();
    controls[0].poke(0, &[1; 512]);
    let sectors = Sector(MEMBER_BYTES / 512);
    let params = Params {
        level: Level::Raid5,
        layout: 2,
        chunk: Sector(128),
        raid_disks: 3,
        component_size: sectors,
        member_sizes: vec![sectors; 3],
    };
    let geometry = Geometry::new(&params).unwrap();
    let facts = ServedFacts::without_metadata("data", geometry.clone());
    let members = drives.into_iter().map(|drive| MemberSpec::in_sync(drive, Sector::ZERO)).collect();
    let spec = ArraySpec::new("data", geometry, members);
    world
        .run(async move |core: Core| {
            let handle = ArrayHandle::start(&core, spec, Box::new(NoMetadata)).await;
            let served = Served::of_made_up(&core, facts, handle, Vec::new(), &ServerLog::new(|_| ())).await;
            body(core.clone(), served.clone(), controls).await;
            let _ = served.stop().await;
        })
        .expect_done();
}

async fn outcomes(served: &Served) -> Vec<(String, u64)> {
    let runs = served.report().await.scrubs;
    runs.into_iter().map(|run| (run.outcome, run.mismatch_sectors)).collect()
}

async fn two_checks(core: &Core, served: &Rc<Served>) -> [Result<String, Problem>; 2] {
    let check = || {
        let served = served.clone();
        core.spawn(async move { served.check().await })
    };
    let (one, other) = (check(), check());
    [one.await, other.await]
}

/// Both are refused while a check runs, whose end and what it found are kept.
#[test]
fn two_checks_at_once_beside_one_that_runs_lose_nothing_of_it() {
    with_array(async |core, served, _| {
        served.set("sync_speed_max", "4M").await.unwrap();
        served.check().await.unwrap();
        core.sleep(Duration::from_millis(100)).await;
        for refused in two_checks(&core, &served).await {
            assert_eq!(refused.unwrap_err().code, Code::JobRunning);
        }
        assert_eq!(outcomes(&served).await, [("running".to_owned(), 0)]);
        core.sleep(Duration::from_secs(5)).await;
        assert_eq!(outcomes(&served).await, [("done".to_owned(), 1)]);
        let [one, other] = two_checks(&core, &served).await;
        assert!(one.is_ok() != other.is_ok());
        core.sleep(Duration::from_secs(5)).await;
        assert_eq!(outcomes(&served).await, vec![("done".to_owned(), 1); 2]);
    });
}

/// It is told to end, and ends when the drive answers: with what it found, and what the order said
/// until then is so.
#[test]
fn a_check_that_waits_for_a_drive_keeps_what_it_found_when_it_is_ended() {
    with_array(async |core, served, drives| {
        served.set("sync_speed_max", "1M").await.unwrap();
        served.set("read_deadline", "20s").await.unwrap();
        served.check().await.unwrap();
        core.sleep(Duration::from_millis(500)).await;
        drives[1].stall(Duration::from_secs(6));
        core.sleep(Duration::from_secs(1)).await;
        let said = served.abort().await.unwrap();
        assert!(said.contains("ends once its members have answered"), "{said}");
        assert_eq!(outcomes(&served).await, [("running".to_owned(), 0)]);
        core.sleep(Duration::from_secs(3)).await;
        assert_eq!(outcomes(&served).await, [("aborted".to_owned(), 1)]);
        assert_eq!(served.abort().await.unwrap_err().code, Code::BadRequest);
    });
}

#[test]
fn orders_while_background_work_is_held_say_so() {
    with_array(async |_, served, _| {
        served.set("sync_action", "frozen").await.unwrap();
        let said = served.pause(false).await.unwrap();
        assert!(said.contains("frozen"), "{said}");
        served.set("sync_action", "idle").await.unwrap();
        served.pause(true).await.unwrap();
        let said = served.check().await.unwrap();
        assert!(said.contains("waits") && said.contains("`wattle check data --resume`"), "{said}");
        let said = served.abort().await.unwrap();
        assert!(said.contains("ended"), "{said}");
        assert_eq!(outcomes(&served).await, [("aborted".to_owned(), 0)]);
    });
}

/// Both commands say that it is not recorded clean.
#[test]
fn two_stops_of_a_broken_array_say_the_same() {
    with_array(async |core, served, drives| {
        drives[..2].iter().for_each(DriveControl::gone_now);
        let volume = served.handle.volume().open(&core).unwrap();
        let (read, _) = volume.read(0, BufMut::alloc(1 << 20)).await;
        assert!(read.is_err() && served.handle.status(&core).await.broken);
        let stop = || {
            let served = served.clone();
            core.spawn(async move { served.stop().await })
        };
        let (one, other) = (stop(), stop());
        assert_eq!((one.await, other.await), (Err(VolumeError::Broken), Err(VolumeError::Broken)));
    });
}

/// Machines that go down each night never see the end of a long check.
#[test]
fn a_stop_keeps_what_a_check_found_until_then() {
    with_array(async |core, served, _| {
        served.set("sync_speed_max", "1M").await.unwrap();
        served.check().await.unwrap();
        core.sleep(Duration::from_millis(500)).await;
        served.stop().await.unwrap();
        let runs: Vec<_> =
            served.history.last().into_iter().map(|run| (run.outcome, run.mismatch_sectors)).collect();
        assert_eq!(runs, [("aborted".to_owned(), 1)]);
    });
}
