//! Devices of the array on which something else was put while they were away, with their
//! superblocks intact; and devices that do not answer.

use std::os::unix::fs::FileExt;

use wattle_control::admit::WantedSeat;
use wattle_control::members::MemberAccess;
use wattle_control::running::Newcomer;
use wattle_rt::{DriveConfig, SimWorld, WorldConfig};

use super::crashes::{drives, found};
use super::*;

/// As `mkswap` leaves it: where no superblock keeps anything.
fn make_swap(name: &str) {
    let file = std::fs::File::options().write(true).open(name).unwrap();
    file.write_all_at(b"SWAPSPACE2", 4086).unwrap();
}

fn shows_swap(name: &str) -> bool {
    std::fs::read(name).unwrap()[4086..].starts_with(b"SWAPSPACE2")
}

fn forced() -> Forced {
    Forced::default().with(Check::Signature)
}

fn told(array: &RunningArray) -> String {
    let told: Vec<_> = array.events(0).into_iter().map(|recorded| recorded.event.to_string()).collect();
    told.join("\n")
}

/// It was taken, and written over from end to end.
#[test]
fn what_was_put_on_a_former_member_is_not_written_over() {
    for (level, count) in [(Level::Raid1, 2), (Level::Raid5, 3)] {
        for version in Version::ALL {
            let (_dir, names) = files(count, SIZE);
            create(level, version, Consistency::Resync, &names, &[]);
            let all = names.clone();
            on_a_core(async move |core| {
                let array = run(&core, &all).await;
                whole(&core, &array).await;
                write(&core, &array, &data(1)).await;
                array.fail(&all[1]).await.unwrap();
                array.remove(&all[1]).await.unwrap();
                make_swap(&all[1]);
                let before = std::fs::read(&all[1]).unwrap();
                let problem = array.add(&all[1], UUID, Forced::default()).await.unwrap_err();
                assert_eq!(problem.code, Code::SignatureFound, "{level} {version}: {problem}");
                assert!(problem.what.contains("swap") && problem.what.contains("at byte 4086"), "{problem}");
                assert_eq!(std::fs::read(&all[1]).unwrap(), before, "not a byte was written on it");
                assert_eq!(array.add(&all[1], UUID, forced()).await.unwrap().seat, Seat::Slot(1));
                whole(&core, &array).await;
                array.handle().stop(&core).await.unwrap();
            });
            assert!(read_without(&names, &[0]) == data(1), "{level} {version}: it was filled");
            assert!(
                !shows_swap(&names[1]),
                "{level} {version}: it would be refused when it comes back again"
            );
        }
    }
}

/// Where data starts with the device, every member may show the array's file system, or that of a
/// partition in it.
#[test]
fn the_arrays_own_file_systems_are_no_reason() {
    for (level, count) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid6, 4), (Level::Raid10, 3)] {
        for version in [Version::V090, Version::V10] {
            let (_dir, names) = files(count, SIZE);
            create(level, version, Consistency::Resync, &names, &[]);
            on_a_core(async move |core| {
                let array = run(&core, &names).await;
                whole(&core, &array).await;
                // In the first chunk and in the second, with nothing around: parity shows them too.
                let mut bytes = vec![0; 1 << 20];
                for at in [1024 + 56, 65536 + 1024 + 56, 3 * 65536 + 1024 + 56] {
                    bytes[at..at + 2].copy_from_slice(&[0x53, 0xef]);
                }
                write(&core, &array, &bytes).await;
                for name in &names {
                    array.fail(name).await.unwrap();
                    array.remove(name).await.unwrap();
                    let back = array.add(name, UUID, Forced::default()).await;
                    assert!(back.is_ok(), "{level} {version}: {name}: {back:?}");
                    whole(&core, &array).await;
                }
                assert!(read(&core, &array).await == bytes);
                array.handle().stop(&core).await.unwrap();
            });
        }
    }
}

/// An array that lies on the array: where data starts with the device, every member shows its
/// superblock.
#[test]
fn an_array_on_the_array_is_no_reason() {
    for version in [Version::V090, Version::V10] {
        let (_inner, inner) = files(2, SIZE);
        let other = request(Level::Raid1, looked(&inner));
        real::create(&CreateRequest { set_uuid: Uuid([9; 16]), ..other }).unwrap();
        let bytes = std::fs::read(&inner[0]).unwrap()[..1 << 20].to_vec();
        let (_dir, names) = files(2, SIZE);
        create(Level::Raid1, version, Consistency::Bitmap { chunk_bytes: None }, &names, &[]);
        on_a_core(async move |core| {
            let array = run(&core, &names).await;
            whole(&core, &array).await;
            write(&core, &array, &bytes).await;
            for name in &names {
                array.fail(name).await.unwrap();
                array.remove(name).await.unwrap();
                let back = array.add(name, UUID, Forced::default()).await;
                assert!(back.is_ok(), "{version}: {name}: {back:?}");
                whole(&core, &array).await;
            }
            // Numbers of 0.90 do not tell whether one that was let go of was with the others.
            let by_regions = if version == Version::V090 { 0 } else { 2 };
            assert_eq!(told(&array).matches("it gets what it missed").count(), by_regions, "{version}");
            assert!(read(&core, &array).await == bytes);

            // Of an array that is not on this one any more, or is somewhere else, it is one.
            array.fail(&names[1]).await.unwrap();
            array.remove(&names[1]).await.unwrap();
            write(&core, &array, &data(6)).await;
            let problem = array.add(&names[1], UUID, Forced::default()).await.unwrap_err();
            assert_eq!(problem.code, Code::SignatureFound, "{version}: {problem}");
            assert!(problem.what.contains("a member of array"), "{problem}");
            array.handle().stop(&core).await.unwrap();
        });
    }
}

/// By the bitmap next to nothing would be written, and the rest of what was put there would be
/// taken for the array's data.
#[test]
fn what_was_put_on_a_member_that_was_away_is_in_no_bitmap() {
    for version in [Version::V12, Version::V10] {
        let (_dir, names) = files(3, SIZE);
        create(Level::Raid5, version, Consistency::Bitmap { chunk_bytes: None }, &names, &[]);
        for (present, seed) in [(3, 3), (2, 4)] {
            let all = names.clone();
            on_a_core(async move |core| {
                let array = run(&core, &all[..present]).await;
                whole_but(&core, &array, 3 - present).await;
                write(&core, &array, &data(seed)).await;
                array.handle().stop(&core).await.unwrap();
            });
        }
        make_swap(&names[2]);
        // What else mkfs wrote, where the bitmap knows of no change.
        let file = std::fs::File::options().write(true).open(&names[2]).unwrap();
        file.write_all_at(&[0x77; 4096], 6 << 20).unwrap();
        let all = names.clone();
        on_a_core(async move |core| {
            let array = run(&core, &all).await;
            core.spawn(keep(array.clone()));
            core.sleep(Duration::from_millis(300)).await;
            assert_eq!(array.handle().status(&core).await.degraded, 1, "{}", told(&array));
            assert!(told(&array).contains("does not come back by itself"), "{}", told(&array));
            let problem = array.add(&all[2], UUID, Forced::default()).await.unwrap_err();
            assert_eq!(problem.code, Code::SignatureFound, "{problem}");
            array.add(&all[2], UUID, forced()).await.unwrap();
            assert!(told(&array).contains("is being filled"), "{}", told(&array));
            whole(&core, &array).await;
            array.handle().stop(&core).await.unwrap();
        });
        assert!(read_without(&names, &[0]) == data(4), "{version}");
        assert!(std::fs::read(&names[2]).unwrap()[6 << 20..][..4096] != [0x77; 4096], "{version}");
    }
}

async fn whole_but(core: &Core, array: &RunningArray, missing: usize) {
    if missing == 0 {
        whole(core, array).await;
    }
}

#[test]
fn a_spare_that_was_used_for_something_else_takes_no_slot() {
    for version in Version::ALL {
        let (_dir, names) = files(4, SIZE);
        create(Level::Raid5, version, Consistency::Resync, &names[..3], &names[3..]);
        make_swap(&names[3]);
        let all = names.clone();
        on_a_core(async move |core| {
            let array = run(&core, &all).await;
            whole(&core, &array).await;
            write(&core, &array, &data(6)).await;
            core.spawn(keep(array.clone()));
            if version.is_1x() {
                let problem = array.replace(&all[0], Some(&all[3]), UUID, Forced::default()).await;
                assert_eq!(problem.unwrap_err().code, Code::SignatureFound);
            }
            array.fail(&all[1]).await.unwrap();
            core.sleep(Duration::from_millis(300)).await;
            assert_eq!(array.handle().status(&core).await.degraded, 1, "{version}: {}", told(&array));
            assert!(told(&array).contains("swap at byte 4086"), "{version}: {}", told(&array));
            assert!(shows_swap(&all[3]), "{version}");
            array.remove(&all[3]).await.unwrap();
            assert_eq!(array.add(&all[3], UUID, forced()).await.unwrap().seat, Seat::Slot(1));
            whole(&core, &array).await;
            array.handle().stop(&core).await.unwrap();
        });
        assert!(read_without(&names, &[0, 1]) == data(6), "{version}");
    }
}

/// It was read while nothing else of the core's went on.
#[test]
fn a_device_that_does_not_answer_holds_up_nobody_and_is_given_up() {
    let mut world = SimWorld::new(WorldConfig { seed: 1, cores: 1, ..WorldConfig::default() });
    let drive = || DriveConfig { size_bytes: SIZE, ..DriveConfig::default() };
    let (hanging, other) = (world.add_drive(drive()), world.add_drive(drive()));
    world.drive(&hanging).stall(Duration::from_secs(3600));
    let outcome = world.run(async move |core: Core| {
        let begun = core.now();
        let looking = core.spawn({
            let (core, hanging) = (core.clone(), hanging.clone());
            async move { Newcomer::look(&core, "hanging", hanging, UUID).await.map(drop) }
        });
        let (read, _) = core.read(&other, 0, BufMut::zeroed(4096)).await;
        read.unwrap();
        assert!(core.now().saturating_since(begun) < Duration::from_secs(1));
        assert!(!looking.is_finished());
        let problem = looking.await.unwrap_err();
        assert_eq!(problem.code, Code::ReadFailed);
        assert!(problem.what.contains("hanging: it did not answer"), "{problem}");
        assert!(core.now().saturating_since(begun) < Duration::from_secs(60));
        Newcomer::look(&core, "other", other, UUID).await.map(drop).unwrap();
    });
    outcome.expect_done();
}

/// What a device might show of the array is read from the array, and that may be how it is found
/// broken. What was failed before may be all that is left then; it was written on all the same.
#[test]
fn a_member_that_comes_back_to_an_array_that_breaks_is_not_written_on() {
    let mut world = SimWorld::new(WorldConfig { seed: 1, cores: 1, ..WorldConfig::default() });
    let devices = drives(&mut world, Version::V10);
    let claimed = found(&world, &devices[..3], Version::V10).unwrap();
    let (back, gone) = (devices[0].clone(), world.drive(&devices[1]));
    let control = world.drive(&back);
    let outcome = world.run(async move |core: Core| {
        let array =
            RunningArray::new(&core, &MemberAccess::local(), "t", claimed.launch(&core).await.unwrap());
        // A file system, at the start of the first slot.
        let mut bytes = vec![0; 8192];
        bytes[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
        let volume = array.handle().volume().open(&core).unwrap();
        volume.write(0, Buf::copy_of(&bytes), Durability::Fua).await.unwrap();
        array.fail("0").await.unwrap();
        let name = array.names()[0].clone().unwrap();
        array.remove(&name).await.unwrap();
        let newcomer = Newcomer::look(&core, "back", back, UUID).await.unwrap();
        assert!(newcomer.offer.signatures.iter().any(|seen| seen.what.contains("ext")));
        control.record_writes();
        gone.gone_now();
        array.take(newcomer, WantedSeat::Any, forced()).await.unwrap_err();
        assert!(array.handle().status(&core).await.broken);
        control.take_write_log().len()
    });
    assert_eq!(outcome.expect_done(), 0, "writes on the device");
}
