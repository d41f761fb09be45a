//! Lost write-backs: a drive reports each of them once, to one operation, and every user of the
//! drive learns of it all the same.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wattle_rt::planted::{self, Bug};
use wattle_rt::{
    BackendChoice, Buf, BufMut, Core, CoreIx, Device, DriveConfig, Durability, IoError, IoErrorKind, Reply,
    RuntimeConfig, Serve, SimWorld, Traffic, Unmap, WorldConfig, run,
};

const PART: u64 = 64 << 10;

fn world() -> (SimWorld, Device) {
    let mut world = SimWorld::new(WorldConfig { seed: 1, cores: 2, ..WorldConfig::default() });
    let drive = world.add_drive(DriveConfig::default());
    (world, drive)
}

async fn write(core: &Core, device: &Device, durability: Durability) -> Result<(), IoErrorKind> {
    core.write(device, 0, Buf::copy_of(&[7; 512]), durability).await.map_err(IoError::kind)
}

async fn flush(core: &Core, device: &Device) -> Result<(), IoErrorKind> {
    core.flush(device).await.map_err(IoError::kind)
}

const LOST: Result<(), IoErrorKind> = Err(IoErrorKind::Medium);

#[test]
fn parts_of_a_drive_each_learn_that_something_was_lost() {
    let (mut world, drive) = world();
    let control = world.drive(&drive);
    let a = drive.part("a", 0, PART).unwrap();
    let b = drive.part("b", PART, PART).unwrap();
    let inner = a.part("inner", 4096, 4096).unwrap();
    world
        .run(async |core: Core| {
            write(&core, &a, Durability::Cached).await.unwrap();
            control.lose_write_back(0, PART);
            assert_eq!(flush(&core, &b).await, LOST, "the drive tells the one that asks first");
            // On another core, with a handle of that core.
            let there = a.for_core();
            let of_a = core.call(CoreIx(1), move |core| async move { flush(&core, &there).await }).await;
            assert_eq!(of_a, LOST, "and its data it was");
            assert_eq!(flush(&core, &inner).await, LOST);
            assert_eq!(flush(&core, &drive).await, LOST);
            for device in [&a, &b, &inner, &drive] {
                assert_eq!(flush(&core, device).await, Ok(()), "each is told once");
            }
        })
        .expect_done();
}

#[test]
fn a_forced_write_that_takes_the_report_hides_it_from_no_flush() {
    let (mut world, drive) = world();
    let control = world.drive(&drive);
    let (one, other) = (drive.part("part", 0, PART).unwrap(), drive.for_consumer());
    let same = one.for_consumer();
    world
        .run(async |core: Core| {
            write(&core, &one, Durability::Cached).await.unwrap();
            control.lose_write_back(0, PART);
            assert_eq!(write(&core, &other, Durability::Fua).await, LOST);
            for device in [&one, &same, &other] {
                assert_eq!(flush(&core, device).await, LOST);
                assert_eq!(flush(&core, device).await, Ok(()));
            }
            // A write that is not forced says nothing of others.
            control.fail_next_writes(1);
            assert_eq!(write(&core, &one, Durability::Cached).await, LOST);
            assert_eq!(flush(&core, &one).await, Ok(()));
        })
        .expect_done();
}

#[test]
fn losses_of_an_earlier_life_are_forgotten() {
    let (mut world, drive) = world();
    let control = world.drive(&drive);
    world
        .run(async |core: Core| {
            control.fail_next_writes(1);
            assert_eq!(write(&core, &drive, Durability::Fua).await, LOST);
        })
        .expect_done();
    world.run(async |core: Core| assert_eq!(flush(&core, &drive).await, Ok(()))).expect_done();
    // An operation that the end of a run dropped keeps no flush of the next one waiting.
    world.run(async |core: Core| drop(core.flush(&drive))).expect_done();
    world.run(async |core: Core| assert_eq!(flush(&core, &drive).await, Ok(()))).expect_done();
}

/// The tests above see what they are for.
#[test]
fn without_the_shared_count_one_user_learns_of_a_loss() {
    for (bug, forced, of_a) in [
        (Bug::LossReportedOnce, false, Ok(())),
        (Bug::LossReportedOnce, true, Ok(())),
        (Bug::ForcedLossUncounted, false, LOST),
        (Bug::ForcedLossUncounted, true, Ok(())),
    ] {
        let _planted = planted::plant(&[bug]);
        let (mut world, drive) = world();
        let control = world.drive(&drive);
        let (a, b) = (drive.part("a", 0, PART).unwrap(), drive.part("b", PART, PART).unwrap());
        world
            .run(async |core: Core| {
                write(&core, &a, Durability::Cached).await.unwrap();
                control.lose_write_back(0, PART);
                let of_b =
                    if forced { write(&core, &b, Durability::Fua).await } else { flush(&core, &b).await };
                assert_eq!(of_b, LOST);
                assert_eq!(flush(&core, &a).await, of_a, "{bug:?}, forced: {forced}");
            })
            .expect_done();
    }
}

/// Its first flush after a loss takes the report and is long in answering.
struct Slow {
    lost: AtomicBool,
}

impl Serve for Slow {
    fn read(&self, _: &Core, _: u64, buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        Box::pin(std::future::ready((Ok(()), buf)))
    }

    fn write(&self, core: &Core, _: u64, _: Buf, durability: Durability) -> Reply<Result<(), IoError>> {
        if durability == Durability::Fua { self.flush(core) } else { Box::pin(std::future::ready(Ok(()))) }
    }

    fn flush(&self, core: &Core) -> Reply<Result<(), IoError>> {
        let (core, lost) = (core.clone(), self.lost.swap(false, Ordering::Relaxed));
        Box::pin(async move {
            core.sleep(Duration::from_millis(if lost { 50 } else { 1 })).await;
            if lost { Err(IoError::MEDIUM) } else { Ok(()) }
        })
    }

    fn write_zeroes(&self, _: &Core, _: u64, _: u64, _: Unmap) -> Reply<Result<(), IoError>> {
        Box::pin(std::future::ready(Err(IoError::UNSUPPORTED)))
    }
}

/// A loss taken by an operation whose answer is still under way: no flush that ended well since
/// then is answered before.
async fn overtaken(core: Core) {
    let server = Arc::new(Slow { lost: AtomicBool::new(false) });
    let drive = Device::served("slow", 1 << 20, 512, true, &core, server.clone());
    let (a, b) = (drive.part("a", 0, PART).unwrap(), drive.part("b", PART, PART).unwrap());
    for forced in [false, true] {
        server.lost.store(true, Ordering::Relaxed);
        let (other, taker) = (core.clone(), b.clone());
        let taken = core.call(CoreIx(1), move |core| async move {
            match forced {
                true => write(&core, &taker, Durability::Fua).await,
                false => flush(&core, &taker).await,
            }
        });
        let taken = core.spawn(taken);
        while server.lost.load(Ordering::Relaxed) {
            other.sleep(Duration::from_micros(10)).await;
        }
        assert_eq!(flush(&core, &a).await, LOST, "forced: {forced}");
        assert_eq!(taken.await, LOST);
        assert_eq!(flush(&core, &a).await, Ok(()));
    }
    // A flush that no task waits for counts all the same.
    server.lost.store(true, Ordering::Relaxed);
    drop(core.flush(&b));
    while server.lost.load(Ordering::Relaxed) {
        core.sleep(Duration::from_micros(10)).await;
    }
    assert_eq!(flush(&core, &a).await, LOST);
}

#[test]
fn a_flush_is_not_answered_before_one_that_may_have_taken_its_report() {
    let (mut world, _) = world();
    world.run(overtaken).expect_done();
    for backend in [BackendChoice::Auto, BackendChoice::Syscall] {
        let config = RuntimeConfig { cores: 2, backend, ..RuntimeConfig::default() };
        run(config, overtaken).unwrap();
    }
}

/// It would wait for as long as the drive hangs: what waits for the flush is to go on.
#[test]
fn a_flush_that_waits_for_the_report_of_a_write_that_hangs_is_given_up_with_it() {
    let mut world = SimWorld::new(WorldConfig { seed: 1, ..WorldConfig::default() });
    let hour = Duration::from_secs(3600);
    let drive = world.add_drive(DriveConfig { write_latency: hour..hour, ..DriveConfig::default() });
    let control = world.drive(&drive);
    world
        .run(async |core: Core| {
            write(&core, &drive, Durability::Cached).await.unwrap();
            control.lose_write_back(0, PART);
            assert_eq!(flush(&core, &drive).await, LOST, "it is behind a page cache");
            let traffic = Rc::new(Traffic::default());
            let forced = core.write(&drive, 0, Buf::zeros(512), Durability::Fua);
            forced.count_in(&traffic, 512);
            let flush = core.flush(&drive);
            flush.count_in(&traffic, 0);
            let flush = core.spawn(flush.until_given_up(|| Err(IoError::GONE)));
            core.sleep(Duration::from_secs(60)).await;
            assert_eq!(traffic.totals().in_flight, 2, "the flush is not answered");
            assert!(!flush.is_finished());
            core.give_up(&traffic);
            core.yield_now().await;
            core.yield_now().await;
            assert!(flush.is_finished());
            assert_eq!(flush.await, Err(IoError::GONE));
            assert_eq!(traffic.totals().in_flight, 1);
            // What is given up lands all the same.
            forced.await.unwrap();
            assert_eq!(traffic.totals().in_flight, 0);
        })
        .expect_done();
}
