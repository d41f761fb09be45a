//! Ways that were found to make the engine lose data, lie, hang or crash, each as the shortest
//! story that shows it.

mod bad_sectors;
mod flushes;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use wattle_engine::geometry::Level;
use wattle_engine::job::JobKind;
use wattle_engine::metadata::{ArrayRecord, Metadata, NoMetadata};
use wattle_engine::units::{MemberIx, Sector};
use wattle_engine::{ArrayHandle, ArraySpec, FailError, Job, MemberState, Volume, VolumeError};
use wattle_rt::{
    Buf, BufMut, Core, CoreIx, Device, DriveConfig, DriveControl, Durability, SimWorld, WorldConfig,
};

use crate::support::commits::OnCommit;
use crate::support::drives::drives;
use crate::support::members::in_sync;
use crate::support::plain::plain;
use crate::support::run::run;

const MEMBER_SECTORS: u64 = 256;
const CHUNK: u64 = 32;

struct Fixture {
    world: SimWorld,
    drives: Vec<Device>,
    level: Level,
    synced_below: Sector,
}

impl Fixture {
    fn new(level: Level, members: usize, cores: usize) -> Self {
        Self::seeded(level, members, cores, 1)
    }

    fn seeded(level: Level, members: usize, cores: usize, seed: u64) -> Self {
        let mut world = SimWorld::new(WorldConfig { seed, cores, ..WorldConfig::default() });
        let config = DriveConfig { size_bytes: MEMBER_SECTORS * 512, ..DriveConfig::default() };
        let drives = drives(&mut world, members, &config);
        Self { world, drives, level, synced_below: Sector::MAX }
    }

    fn drive(&self, slot: usize) -> DriveControl {
        self.world.drive(&self.drives[slot])
    }

    fn spec(&self, missing: &[usize]) -> ArraySpec {
        let geometry = plain(self.level, self.drives.len(), CHUNK, MEMBER_SECTORS);
        let spec = ArraySpec::new("a", geometry, in_sync(&self.drives, Sector(0), missing));
        ArraySpec { synced_below: self.synced_below, ..spec }
    }

    /// Fills the whole array with a pattern and stops it; returns the pattern.
    fn fill(&mut self) -> Vec<u8> {
        let spec = self.spec(&[]);
        run(&mut self.world, spec, async move |core, array, volume| {
            let pattern: Vec<u8> = (0..volume.size_bytes()).map(|i| (i / 512 * 7 + i % 251) as u8).collect();
            assert_eq!(write(&volume, 0, &pattern).await, Ok(()));
            array.stop(&core).await.expect("nothing fails");
            pattern
        })
    }

    /// The slot and the member's sector of an array sector, by the pattern `fill` wrote.
    fn place(&self, lba: u64) -> (usize, u64) {
        let geometry = self.spec(&[]).geometry;
        let run = geometry.data_place(Sector(lba));
        (run.member.index(), run.sector.0)
    }
}

async fn write(volume: &Volume, at: u64, bytes: &[u8]) -> Result<(), VolumeError> {
    volume.write(at, BufMut::copy_of(bytes).freeze(), Durability::Cached).await
}

async fn read(volume: &Volume, at: u64, len: usize) -> Result<Vec<u8>, VolumeError> {
    let (result, buf) = volume.read(at, BufMut::alloc(len)).await;
    result.map(|()| buf.to_vec())
}

/// Takes its time, and remembers what was durable when.
fn slow(core: &Core, records: &Rc<RefCell<Vec<ArrayRecord>>>) -> Box<dyn Metadata> {
    let (core, records) = (core.clone(), records.clone());
    Box::new(OnCommit(async move |record: &ArrayRecord| {
        core.sleep(Duration::from_millis(5)).await;
        records.borrow_mut().push(record.clone());
    }))
}

/// Polls a future for `time`, then drops it, as a connection that dies does.
async fn drop_after<T: 'static>(core: &Core, time: Duration, future: impl Future<Output = T>) {
    let mut future = std::pin::pin!(future);
    let mut sleep = std::pin::pin!(core.sleep(time));
    std::future::poll_fn(|cx| {
        if future.as_mut().poll(cx).is_ready() {
            return std::task::Poll::Ready(());
        }
        sleep.as_mut().poll(cx)
    })
    .await;
}

#[test]
fn a_client_that_dies_while_it_has_the_array_to_itself_does_not_keep_it() {
    for micros in [1, 50, 120, 200, 400, 1000] {
        let mut fixture = Fixture::new(Level::Raid5, 4, 2);
        let spec = fixture.spec(&[]);
        run(&mut fixture.world, spec, async move |core, array, volume| {
            drop_after(&core, Duration::from_micros(micros), volume.discard(0, volume.size_bytes())).await;
            assert_eq!(write(&volume, 0, &[1; 512]).await, Ok(()));
            array.stop(&core).await.unwrap();
        });
    }
}

#[test]
fn a_client_that_dies_while_its_read_fails_a_member_leaves_that_failure_recorded() {
    let mut fixture = Fixture::new(Level::Raid5, 4, 2);
    fixture.fill();
    let spec = fixture.spec(&[]);
    let (slot, _) = fixture.place(0);
    let control = fixture.drive(slot);
    fixture
        .world
        .run(async move |core: Core| {
            let records = Rc::default();
            let array = ArrayHandle::start(&core, spec, slow(&core, &records)).await;
            let volume = array.volume().open(&core).unwrap();
            // The array is dirty already: the next write brings no record with it.
            assert_eq!(write(&volume, CHUNK * 512, &[1; 512]).await, Ok(()));
            control.gone_now();
            drop_after(&core, Duration::from_millis(2), volume.read(0, BufMut::alloc(4096))).await;
            assert_eq!(write(&volume, 0, &[1; 4096]).await, Ok(()));
            let recorded =
                records.borrow().iter().any(|record| record.failed.contains(MemberIx(slot as u16)));
            assert!(recorded, "a write that skipped slot {slot} was acknowledged: {:?}", records.borrow());
            array.stop(&core).await.unwrap();
        })
        .expect_done();
}

#[test]
fn requests_for_the_whole_array_during_its_stop_find_it_stopped() {
    for seed in 0..40 {
        let mut fixture = Fixture::seeded(Level::Raid5, 4, 3, seed);
        let spec = fixture.spec(&[]);
        fixture
            .world
            .run(async move |core: Core| {
                let array = ArrayHandle::start(&core, spec, Box::new(NoMetadata)).await;
                let volume = array.volume();
                // As soon as one core finds the array stopped, another asks for all of it.
                let late = core.call(CoreIx(1), move |core| async move {
                    let here = volume.open(&core).unwrap();
                    while write(&here, 0, &[1; 512]).await.is_ok() {}
                    core.call(CoreIx(2), move |core| async move {
                        match volume.open(&core) {
                            Ok(volume) => volume.discard(0, volume.size_bytes()).await,
                            Err(error) => Err(error),
                        }
                    })
                    .await
                });
                core.sleep(Duration::from_millis(1)).await;
                array.stop(&core).await.unwrap();
                assert_eq!(late.await, Err(VolumeError::Stopped));
            })
            .expect_done();
    }
}

#[test]
fn nothing_is_recorded_after_the_stop() {
    let mut fixture = Fixture::new(Level::Raid1, 2, 1);
    let spec = fixture.spec(&[]);
    fixture
        .world
        .run(async move |core: Core| {
            let records = Rc::default();
            let array = ArrayHandle::start(&core, spec, slow(&core, &records)).await;
            let volume = array.volume().open(&core).unwrap();
            assert_eq!(write(&volume, 0, &[1; 512]).await, Ok(()));
            let (stopping, failing) = (array.clone(), array.clone());
            let stop = core.spawn({
                let core = core.clone();
                async move { stopping.stop(&core).await }
            });
            core.sleep(Duration::from_millis(1)).await;
            let fail = core.spawn({
                let core = core.clone();
                async move { failing.fail(&core, MemberIx(0)).await }
            });
            assert_eq!(stop.await, Ok(()));
            let at_stop = records.borrow().len();
            assert_eq!(fail.await, Err(FailError::Stopped));
            assert_eq!(records.borrow().len(), at_stop, "{:?}", records.borrow());
        })
        .expect_done();
}

/// The write that broke the array left its stripe's parity behind its data.
#[test]
fn a_broken_array_does_not_guess_what_its_lost_member_held() {
    let mut fixture = Fixture::new(Level::Raid5, 4, 1);
    let pattern = fixture.fill();
    let (lost, _) = fixture.place(0);
    // The parity of stripe 0 takes no more writes, but can be read.
    let data: Vec<usize> = (0..3).map(|k| fixture.place(k * CHUNK).0).collect();
    let parity = (0..4).find(|slot| !data.contains(slot)).unwrap();
    let spec = fixture.spec(&[lost]);
    let control = fixture.drive(parity);
    run(&mut fixture.world, spec, async move |core, array, volume| {
        control.fail_next_writes(1);
        assert_eq!(write(&volume, CHUNK * 512, &[0xaa; 4096]).await, Err(VolumeError::WriteFailed));
        assert!(array.status(&core).await.broken);
        match read(&volume, 0, 4096).await {
            Ok(bytes) => assert!(bytes == pattern[..4096], "a guess was served as data"),
            Err(error) => assert_eq!(error, VolumeError::Unreadable),
        }
        let _ = array.stop(&core).await;
    });
}

/// Before a resync the data on a member has no second place: parity is not known to be right.
#[test]
fn the_operator_cannot_fail_a_member_that_only_untrusted_parity_covers() {
    let mut fixture = Fixture::new(Level::Raid5, 4, 1);
    let pattern = fixture.fill();
    fixture.synced_below = Sector(0);
    let spec = fixture.spec(&[]);
    run(&mut fixture.world, spec, async move |core, array, volume| {
        assert_eq!(array.fail(&core, MemberIx(0)).await, Err(FailError::LastCopy(MemberIx(0))));
        assert!(read(&volume, 0, pattern.len()).await == Ok(pattern));
        array.stop(&core).await.unwrap();
    });
}

/// A write that failed on both copies may have changed one of them: readers must not see it come
/// and go.
#[test]
fn copies_of_a_broken_mirror_do_not_take_turns() {
    let mut fixture = Fixture::new(Level::Raid1, 2, 1);
    fixture.fill();
    let spec = fixture.spec(&[]);
    let controls = [fixture.drive(0), fixture.drive(1)];
    run(&mut fixture.world, spec, async move |core, array, volume| {
        controls.iter().for_each(|control| control.fail_next_writes(1));
        assert_eq!(write(&volume, 0, &[0xaa; 8192]).await, Err(VolumeError::WriteFailed));
        let first = read(&volume, 0, 8192).await.unwrap();
        for at in [4096, 0, 8192, 0, 4096, 12288] {
            // Another reader moves the heads.
            let (_, again) = (read(&volume, at, 4096).await.unwrap(), read(&volume, 0, 8192).await.unwrap());
            assert!(first == again, "the same sectors show two contents in turn");
        }
        let all: Vec<_> = (0..6)
            .map(|_| {
                let volume = volume.clone();
                core.spawn(async move { read(&volume, 0, 8192).await.unwrap() })
            })
            .collect();
        for one in all {
            assert!(first == one.await, "the same sectors show two contents in turn");
        }
        let _ = array.stop(&core).await;
    });
}

#[test]
fn zeros_over_a_member_that_cannot_zero_are_written() {
    let mut fixture = Fixture::new(Level::Raid5, 4, 1);
    fixture.fill();
    fixture.drive(1).no_write_zeroes(true);
    let spec = fixture.spec(&[]);
    let size = run(&mut fixture.world, spec, async move |core, array, volume| {
        volume.discard(0, volume.size_bytes()).await.unwrap();
        array.stop(&core).await.unwrap();
        volume.size_bytes() as usize
    });
    for missing in 0..4 {
        let spec = fixture.spec(&[missing]);
        run(&mut fixture.world, spec, async move |core, array, volume| {
            assert!(read(&volume, 0, size).await == Ok(vec![0; size]));
            let _ = volume.write(0, Buf::zeros(0), Durability::Cached).await;
            array.stop(&core).await.unwrap();
        });
    }
}

/// Drives and file systems refuse discards with all kinds of errors.
#[test]
fn a_member_that_refuses_to_zero_but_takes_writes_stays() {
    for level in [Level::Raid1, Level::Raid5] {
        let mut fixture = Fixture::new(level, 3, 1);
        fixture.fill();
        let spec = fixture.spec(&[]);
        let controls = [fixture.drive(0), fixture.drive(1)];
        run(&mut fixture.world, spec, async move |core, array, volume| {
            controls.iter().for_each(|control| control.fail_next_writes(1));
            assert_eq!(volume.discard(0, volume.size_bytes()).await, Ok(()));
            let size = volume.size_bytes() as usize;
            assert!(read(&volume, 0, size).await == Ok(vec![0; size]));
            let status = array.status(&core).await;
            assert!(status.members.iter().all(|m| m.state == MemberState::InSync), "{status:?}");
            array.stop(&core).await.unwrap();
        });
    }
}

/// Parity that is not known to be right covers nothing, so what only it could hold is not
/// acknowledged.
#[test]
fn what_is_acknowledged_before_a_resync_can_be_read() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 5)] {
        let mut fixture = Fixture::new(level, members, 1);
        fixture.fill();
        fixture.synced_below = Sector(0);
        let mut spec = fixture.spec(&[]);
        spec.tuning.sync.frozen = true;
        let control = fixture.drive(fixture.place(0).0);
        run(&mut fixture.world, spec, async move |core, array, volume| {
            assert_eq!(write(&volume, 0, &[1; 4096]).await, Ok(()));
            control.gone_now();
            for value in 2..5 {
                let written = write(&volume, 0, &[value; 4096]).await;
                let seen = read(&volume, 0, 4096).await;
                assert!(written.is_err() || seen == Ok(vec![value; 4096]), "{level:?}: {:?}", seen.err());
            }
            // Nor is the member given up: what it holds is all there is.
            let status = array.status(&core).await;
            assert!(
                status.broken && status.members.iter().all(|m| m.state == MemberState::InSync),
                "{status:?}"
            );
            assert_eq!(array.stop(&core).await, Err(VolumeError::Broken));
        });
    }
}

/// A size that is no multiple of the members' blocks leaves sectors that no operation reaches.
#[test]
fn the_cut_off_end_of_a_mirror_on_large_blocks_costs_no_member() {
    let mut world = SimWorld::new(WorldConfig::default());
    let config = DriveConfig { sector_bytes: 4096, ..DriveConfig::default() };
    let drives = drives(&mut world, 2, &config);
    let spec = ArraySpec::new("a", plain(Level::Raid1, 2, 0, 252), in_sync(&drives, Sector(0), &[]));
    run(&mut world, spec, async move |core, array, volume| {
        let size = volume.size_bytes();
        assert_eq!(write(&volume, size - 512, &[7; 512]).await, Ok(()));
        assert!(read(&volume, size - 512, 512).await == Ok(vec![7; 512]));
        assert_eq!(read(&volume, size, 512).await, Err(VolumeError::OutOfRange));
        assert_eq!(size, 248 * 512);
        let status = array.status(&core).await;
        assert!(status.members.iter().all(|m| m.state == MemberState::InSync), "{status:?}");
        array.stop(&core).await.unwrap();
    });
}
