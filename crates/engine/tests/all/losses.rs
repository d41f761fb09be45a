//! Acknowledged writes that a page cache loses. The system reports that once for each open file
//! description, to the flush or the forced write that comes first; several arrays may share one.

use wattle_engine::geometry::Level;
use wattle_engine::metadata::NoMetadata;
use wattle_engine::planted::{self, Bug};
use wattle_engine::units::Sector;
use wattle_engine::volume::MapSegment;
use wattle_engine::{ArrayHandle, ArraySpec, MapSpec, MappedHandle, MemberState, Volume, VolumeError};
use wattle_rt::{
    Buf, BufMut, Core, CoreIx, Device, DriveConfig, DriveControl, Durability, SimWorld, WorldConfig,
};

use crate::support::drives::drives;
use crate::support::members::in_sync;
use crate::support::plain::plain;

const PART: u64 = 256 << 10;

async fn start(core: &Core, name: &str, level: Level, members: &[Device]) -> ArrayHandle {
    let geometry = plain(level, members.len(), 8, members[0].size_bytes() / 512);
    let spec = ArraySpec::new(name, geometry, in_sync(members, Sector(0), &[]));
    ArrayHandle::start(core, spec, Box::new(NoMetadata)).await
}

async fn write(volume: &Volume, at: u64, byte: u8, durability: Durability) -> Result<(), VolumeError> {
    volume.write(at, Buf::copy_of(&[byte; 4096]), durability).await
}

async fn first_byte(volume: &Volume) -> u8 {
    let (result, bytes) = volume.read(0, BufMut::alloc(4096)).await;
    result.unwrap();
    bytes[0]
}

fn controlled(world: &mut SimWorld, count: usize) -> (Vec<Device>, Vec<DriveControl>) {
    let drives = drives(world, count, &DriveConfig::default());
    let controls = drives.iter().map(|drive| world.drive(drive)).collect();
    (drives, controls)
}

/// Two RAID 1 on the partitions of two images. The first image loses what the first array wrote;
/// the second array flushes first. Whether the first array then still reads its first member, and
/// what it reads.
fn flushed_by_a_neighbour() -> (Result<(), VolumeError>, MemberState, u8) {
    let mut world = SimWorld::new(WorldConfig { seed: 1, cores: 2, ..WorldConfig::default() });
    let (drives, controls) = controlled(&mut world, 2);
    let part = |drive: &Device, start| drive.part("part", start, PART).unwrap();
    let outcome = world.run(async move |core: Core| {
        let (a, b) = (part(&drives[0], 0), part(&drives[1], 0));
        let (c, d) = (part(&drives[0], PART), part(&drives[1], PART));
        let one = start(&core, "one", Level::Raid1, &[a, b]).await;
        let other = start(&core, "other", Level::Raid1, &[c, d]).await;
        let (first, second) = (one.volume().open(&core).unwrap(), other.volume().open(&core).unwrap());
        write(&first, 0, b'A', Durability::Fua).await.unwrap();
        write(&first, 0, b'B', Durability::Cached).await.unwrap();
        controls[0].lose_write_back(0, PART);
        second.flush().await.unwrap();
        let flushed = first.flush().await;
        let state = one.status(&core).await.members[0].state;
        (flushed, state, first_byte(&first).await)
    });
    outcome.expect_done()
}

#[test]
fn an_array_learns_what_was_lost_although_another_one_flushed_the_image_before() {
    assert_eq!(flushed_by_a_neighbour(), (Ok(()), MemberState::Faulty, b'B'));
}

#[test]
fn a_loss_that_is_told_once_would_be_noticed() {
    let _planted = planted::plant(&[Bug::LossReportedOnce]);
    assert_eq!(flushed_by_a_neighbour(), (Ok(()), MemberState::InSync, b'A'));
}

/// An array without redundancy with two clients, on two cores. What one wrote is lost, and a forced
/// write of the other one takes the report of it. What the forced write, the flush of the first,
/// one more flush, and a write after these come to.
fn taken_by_a_forced_write(level: Level, members: usize) -> [Result<(), VolumeError>; 4] {
    let mut world = SimWorld::new(WorldConfig { seed: 1, cores: 2, ..WorldConfig::default() });
    let (drives, controls) = controlled(&mut world, members);
    let outcome = world.run(async move |core: Core| {
        let array = start(&core, "array", level, &drives).await;
        let volume = array.volume().open(&core).unwrap();
        write(&volume, 0, 1, Durability::Cached).await.unwrap();
        controls[0].lose_write_back(0, 4096);
        let other = array.volume();
        let forced = core.call(CoreIx(1), move |core| async move {
            write(&other.open(&core)?, 64 << 10, 2, Durability::Fua).await
        });
        let forced = forced.await;
        let (flushed, again) = (volume.flush().await, volume.flush().await);
        [forced, flushed, again, write(&volume, 0, 3, Durability::Cached).await]
    });
    outcome.expect_done()
}

#[test]
fn without_redundancy_a_failed_forced_write_counts_as_a_failed_flush() {
    use VolumeError::{Broken, WriteFailed};
    for (level, members) in [(Level::Linear, 1), (Level::Linear, 2), (Level::Raid0, 2)] {
        let came_to = taken_by_a_forced_write(level, members);
        assert_eq!(came_to, [Err(WriteFailed), Err(Broken), Err(Broken), Err(Broken)], "{level:?}");
    }
}

#[test]
fn a_forced_write_that_takes_the_report_alone_would_be_noticed() {
    for bug in [Bug::ForcedLossUncounted, Bug::LossReportedOnce] {
        let _planted = planted::plant(&[bug]);
        let came_to = taken_by_a_forced_write(Level::Linear, 1);
        assert_eq!(came_to, [Err(VolumeError::WriteFailed), Ok(()), Ok(()), Ok(())], "{bug:?}");
    }
}

/// Two logical volumes on partitions of one drive: one's forced write takes the report of what the
/// other one lost. And a flush of the drive by what writes its metadata takes one.
#[test]
fn volumes_on_one_drive_each_learn_what_was_lost() {
    let mut world = SimWorld::new(WorldConfig { seed: 1, cores: 2, ..WorldConfig::default() });
    let (drives, controls) = controlled(&mut world, 1);
    let outcome = world.run(async move |core: Core| {
        for of_metadata in [false, true] {
            let mut volumes = Vec::new();
            for number in 0..2 {
                let part = drives[0].part("part", number * PART, PART).unwrap();
                let below = start(&core, "pv", Level::Linear, std::slice::from_ref(&part)).await;
                let segments = vec![MapSegment::linear(PART, 0, 0)];
                let map = MapSpec { below: vec![below.volume()], segments, read_only: false };
                let lv = MappedHandle::start(&core, "lv", map).await.unwrap();
                volumes.push((part, lv.volume().open(&core).unwrap()));
            }
            let [(part, one), (_, other)] = &volumes[..] else { panic!("two volumes") };
            write(one, 0, 1, Durability::Cached).await.unwrap();
            controls[0].lose_write_back(0, PART);
            if of_metadata {
                core.flush(part).await.unwrap_err();
            } else {
                write(other, 0, 1, Durability::Fua).await.unwrap_err();
            }
            for _ in 0..2 {
                assert_eq!(one.flush().await, Err(VolumeError::Broken), "of metadata: {of_metadata}");
            }
        }
    });
    outcome.expect_done();
}
