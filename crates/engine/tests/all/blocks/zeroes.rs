//! Zeros and discards over sectors that are listed as bad: what is acknowledged can be read.

use std::time::Duration;

use wattle_engine::geometry::Level;
use wattle_engine::units::MemberIx;
use wattle_engine::{ArrayHandle, MemberState};
use wattle_rt::{Buf, Core, Durability, Unmap};

use super::*;

/// How a range comes to hold zeros.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    WriteZeroes,
    Discard,
    /// By members that cannot zero.
    Written,
}

const WAYS: [Way; 3] = [Way::WriteZeroes, Way::Discard, Way::Written];

async fn zero(volume: &Volume, way: Way) -> Result<(), VolumeError> {
    let len = volume.size_bytes();
    match way {
        Way::Discard => volume.discard(0, len).await,
        _ => volume.write_zeroes(0, len, Unmap::No, Durability::Cached).await,
    }
}

/// Sectors that no member can deliver hold zeros on all of them.
#[test]
fn zeros_over_sectors_that_nothing_can_deliver_can_be_read() {
    for level in [Level::Raid1, Level::Raid10, Level::Raid5, Level::Raid6] {
        for way in WAYS {
            let mut fixture = Fixture::new(level);
            let first = fixture.first();
            let mut spec = fixture.spec();
            let lost: Vec<usize> = first.data[..1].iter().chain(&first.redundant).copied().collect();
            lost.iter().for_each(|slot| list(&mut spec.members[*slot], 0..8));
            let drives: Vec<_> = (0..fixture.slots()).map(|slot| fixture.drive(slot)).collect();
            drives.iter().for_each(|drive| drive.no_write_zeroes(way == Way::Written));
            let run = fixture.world.run(async move |core: Core| {
                let records = Records::default();
                let array = ArrayHandle::start(&core, spec, records.metadata()).await;
                let volume = array.volume().open(&core).unwrap();
                assert_eq!(read(&volume, 0, 8).await, Err(VolumeError::Unreadable));
                assert_eq!(zero(&volume, way).await, Ok(()), "{level} {way:?}");
                // Before it is acknowledged: otherwise a restart would lose the zeros.
                lost.iter().for_each(|slot| assert_eq!(records.bad(*slot), [], "{level} {way:?}"));
                assert!(read(&volume, 0, 8).await == Ok(vec![0; 8 * SECTOR]), "{level} {way:?}");
                array.stop(&core).await.unwrap();
            });
            run.expect_done();
        }
    }
}

#[test]
fn zeros_over_a_listed_sector_outlive_the_other_copy() {
    for level in [Level::Raid1, Level::Raid5] {
        for way in WAYS {
            let mut fixture = Fixture::new(level);
            let first = fixture.first();
            let slot = first.data[0];
            let mut spec = fixture.spec();
            list(&mut spec.members[slot], 0..8);
            let other = first.redundant[0];
            let drives: Vec<_> = (0..fixture.slots()).map(|slot| fixture.drive(slot)).collect();
            drives.iter().for_each(|drive| drive.no_write_zeroes(way == Way::Written));
            let run = fixture.world.run(async move |core: Core| {
                let array = ArrayHandle::start(&core, spec, Records::default().metadata()).await;
                let volume = array.volume().open(&core).unwrap();
                assert_eq!(zero(&volume, way).await, Ok(()));
                array.fail(&core, MemberIx(other as u16)).await.unwrap();
                assert!(read(&volume, 0, 8).await == Ok(vec![0; 8 * SECTOR]), "{level} {way:?}");
                assert_eq!(array.status(&core).await.members[slot].bad_sectors, 0);
                array.stop(&core).await.unwrap();
            });
            run.expect_done();
        }
    }
}

/// One entry, and room for one: zeros in its middle would need two. As in a write, the member goes
/// if the array can do without it.
#[test]
fn a_member_whose_list_has_no_room_for_what_is_left_is_failed_as_in_a_write() {
    let mut fixture = Fixture::new(Level::Raid1);
    let mut spec = fixture.spec();
    list(&mut spec.members[0], 0..24);
    spec.members[0].bad_entries_max = 1;
    let run = fixture.world.run(async move |core: Core| {
        let array = ArrayHandle::start(&core, spec, Records::default().metadata()).await;
        let volume = array.volume().open(&core).unwrap();
        assert_eq!(volume.write_zeroes(4096, 4096, Unmap::No, Durability::Cached).await, Ok(()));
        assert_eq!(array.status(&core).await.members[0].state, MemberState::Faulty);
        assert!(read(&volume, 4096, 8).await == Ok(vec![0; 8 * SECTOR]));
        array.stop(&core).await.unwrap();
    });
    run.expect_done();
}

/// A discard that no member carries out changes nothing, and what is listed stays listed.
#[test]
fn a_discard_that_nothing_carries_out_clears_no_list() {
    let mut fixture = Fixture::new(Level::Raid1);
    let mut spec = fixture.spec();
    list(&mut spec.members[0], 0..8);
    (0..2).for_each(|slot| fixture.drive(slot).no_write_zeroes(true));
    let run = fixture.world.run(async move |core: Core| {
        let array = ArrayHandle::start(&core, spec, Records::default().metadata()).await;
        let volume = array.volume().open(&core).unwrap();
        assert_eq!(zero(&volume, Way::Discard).await, Ok(()));
        assert_eq!(array.status(&core).await.members[0].bad_sectors, 8);
        array.stop(&core).await.unwrap();
    });
    run.expect_done();
}

/// Zeros over a large range, on members that cannot zero: they take seconds to be written. Other
/// requests get their turn in between.
#[test]
fn a_long_write_of_zeros_lets_other_requests_in() {
    const LEN: u64 = 256 << 20;
    for level in [Level::Raid1, Level::Raid5] {
        let mut fixture = Fixture::on(
            level,
            &DriveConfig {
                size_bytes: LEN,
                write_bytes_per_second: 200 << 20,
                kept_bytes: 0..0,
                ..DriveConfig::default()
            },
        );
        let drives: Vec<_> = (0..fixture.slots()).map(|slot| fixture.drive(slot)).collect();
        drives.iter().for_each(|drive| drive.no_write_zeroes(true));
        let spec = fixture.spec();
        run(&mut fixture.world, spec, async move |core, array, volume| {
            let zeroing = core.spawn({
                let (core, volume) = (core.clone(), volume.clone());
                async move {
                    let began = core.now();
                    let zeroed = volume.write_zeroes(0, LEN, Unmap::No, Durability::Cached).await;
                    (zeroed, core.now() - began)
                }
            });
            let (mut longest, mut requests) = (Duration::ZERO, 0);
            while !zeroing.is_finished() {
                core.sleep(Duration::from_millis(20)).await;
                let began = core.now();
                volume.write(LEN - 4096, Buf::zeros(4096), Durability::Cached).await.unwrap();
                longest = longest.max(core.now() - began);
                requests += 1;
            }
            let (zeroed, took) = zeroing.await;
            assert_eq!(zeroed, Ok(()));
            assert!(longest < Duration::from_millis(250), "{level}: {longest:?} of {took:?}");
            assert!(requests > 5, "{level}: {requests} in {took:?}");
            array.stop(&core).await.unwrap();
        });
    }
}
