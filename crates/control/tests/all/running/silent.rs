//! Drives that hang on what an array's metadata write.

use wattle_rt::{DriveControl, SimWorld, WorldConfig};

use std::rc::Rc;

use super::crashes::{drives_of, found};
use super::*;

/// A RAID 5 that was started a while ago with so many of its drives, the fourth a spare, and the
/// one that is to hang.
fn with_an_idle_array(
    there: usize,
    hangs: usize,
    test: impl AsyncFnOnce(&Core, &Rc<RunningArray>, DriveControl) + 'static,
) {
    with_array(5, there, [hangs], async |core, array, [control]| test(core, array, control).await);
}

fn with_array<const HANG: usize>(
    level: i32,
    there: usize,
    hang: [usize; HANG],
    test: impl AsyncFnOnce(&Core, &Rc<RunningArray>, [DriveControl; HANG]) + 'static,
) {
    let mut world = SimWorld::new(WorldConfig { seed: 1, cores: 2, ..WorldConfig::default() });
    let devices = drives_of(&mut world, Version::V12, level);
    let claimed = found(&world, &devices[..there], Version::V12).unwrap();
    let control = hang.map(|hangs| world.drive(&devices[hangs]));
    let outcome = world.run(async move |core: Core| {
        let array =
            RunningArray::new(&core, &MemberAccess::local(), "t", claimed.launch(&core).await.unwrap());
        core.sleep(Duration::from_secs(30)).await;
        test(&core, &array, control).await;
        array.handle().stop(&core).await.unwrap();
    });
    outcome.expect_done();
}

/// Of an idle array the first write is one of the superblocks: no data is under way yet.
#[test]
fn a_member_that_hangs_on_its_superblock_is_said_to_be_silent() {
    with_an_idle_array(3, 1, async |core, array, control| {
        control.stall(Duration::from_secs(40));
        let writing = core.spawn({
            let volume = array.handle().volume().open(core).unwrap();
            async move { volume.write(0, Buf::zeros(4096), Durability::Cached).await }
        });
        let silent = async || {
            let members = array.handle().status(core).await.members;
            members.iter().map(|member| member.silent_for().map(|time| time.as_secs())).collect::<Vec<_>>()
        };
        core.sleep(Duration::from_secs(20)).await;
        assert_eq!(silent().await, [None, Some(20), None]);
        core.sleep(Duration::from_secs(30)).await;
        writing.await.unwrap();
        assert_eq!(silent().await, [None; 3]);
    });
}

/// And is failed by order while it does, with the write that waits for it going on.
#[test]
fn a_member_that_hangs_on_its_superblock_is_failed_by_order() {
    with_an_idle_array(3, 1, async |core, array, control| {
        control.stall(Duration::from_secs(3600));
        let begun = core.now();
        let writing = core.spawn({
            let volume = array.handle().volume().open(core).unwrap();
            async move { volume.write(0, Buf::zeros(4096), Durability::Fua).await }
        });
        core.sleep(Duration::from_secs(20)).await;
        array.fail("1").await.unwrap();
        writing.await.unwrap();
        assert!(core.now() - begun < Duration::from_secs(22));
        assert_eq!(array.handle().status(core).await.members[1].state, MemberState::Faulty);
        let causes = array.events(0).into_iter().filter_map(|told| match told.event {
            ArrayEvent::Failed { cause, .. } => Some(cause),
            _ => None,
        });
        assert_eq!(causes.collect::<Vec<_>>(), [Some(FailCause::Order)]);
    });
}

/// Nothing counts on what a spare says: it is waited for once and for little, and named by nothing
/// else.
#[test]
fn a_spare_that_hangs_holds_nothing_up_for_long() {
    with_an_idle_array(4, 3, async |core, array, control| {
        control.stall(Duration::from_secs(3600));
        let begun = core.now();
        array.fail("1").await.unwrap();
        assert!(core.now() - begun < Duration::from_secs(3), "{:?}", core.now() - begun);
        let volume = array.handle().volume().open(core).unwrap();
        let begun = core.now();
        volume.write(0, Buf::zeros(4096), Durability::Fua).await.unwrap();
        volume.flush().await.unwrap();
        assert!(core.now() - begun < Duration::from_secs(1), "{:?}", core.now() - begun);
    });
}

/// The order that has the turn waits for the drive too, and ends with it failed.
#[test]
fn an_order_to_fail_does_not_wait_for_one_that_waits_for_the_drive() {
    with_an_idle_array(4, 1, async |core, array, control| {
        let volume = array.handle().volume().open(core).unwrap();
        volume.write(0, Buf::zeros(4096), Durability::Cached).await.unwrap();
        control.stall(Duration::from_secs(3600));
        let writing = core.spawn(async move { volume.write(0, Buf::zeros(8192), Durability::Fua).await });
        core.sleep(Duration::from_secs(20)).await;
        let replacing = core.spawn({
            let array = array.clone();
            async move { array.replace("1", None, UUID, Forced::default()).await }
        });
        core.sleep(Duration::from_secs(2)).await;
        assert!(!writing.is_finished() && !replacing.is_finished());
        let begun = core.now();
        array.fail("1").await.unwrap();
        assert!(core.now() - begun < Duration::from_secs(5), "{:?}", core.now() - begun);
        writing.await.unwrap();
        assert!(replacing.await.is_err(), "nothing is left to replace");
        assert_eq!(array.handle().status(core).await.members[1].state, MemberState::Faulty);
        assert_eq!(array.fail("1").await.unwrap_err().code, Code::BadMember);
    });
}

/// The record that one has failed waits for the other.
#[test]
fn two_members_that_hang_are_failed_one_after_the_other() {
    with_array(6, 4, [0, 1], async |core, array, controls| {
        let volume = array.handle().volume().open(core).unwrap();
        volume.write(0, Buf::zeros(4096), Durability::Cached).await.unwrap();
        controls.iter().for_each(|control| control.stall(Duration::from_secs(3600)));
        let writing = core.spawn(async move { volume.write(0, Buf::zeros(32768), Durability::Fua).await });
        core.sleep(Duration::from_secs(20)).await;
        let begun = core.now();
        let first = core.spawn({
            let array = array.clone();
            async move { array.fail("0").await }
        });
        core.sleep(Duration::from_secs(3)).await;
        array.fail("1").await.unwrap();
        first.await.unwrap();
        writing.await.unwrap();
        assert!(core.now() - begun < Duration::from_secs(10), "{:?}", core.now() - begun);
        let members = array.handle().status(core).await.members;
        let states: Vec<_> = members.iter().map(|member| member.state).collect();
        let (faulty, in_sync) = (MemberState::Faulty, MemberState::InSync);
        assert_eq!(states, [faulty, faulty, in_sync, in_sync]);
        let causes = array.events(0).into_iter().filter_map(|told| match told.event {
            ArrayEvent::Failed { cause, .. } => Some(cause),
            _ => None,
        });
        assert_eq!(causes.collect::<Vec<_>>(), [Some(FailCause::Order); 2]);
    });
}

/// One that was given up counts as lost before it has failed: of two orders, the array can follow
/// one.
#[test]
fn of_two_members_that_hang_the_last_copies_are_kept() {
    with_array(5, 3, [1, 2], async |core, array, controls| {
        controls.iter().for_each(|control| control.stall(Duration::from_secs(120)));
        let volume = array.handle().volume().open(core).unwrap();
        let writing = core.spawn(async move { volume.write(0, Buf::zeros(4096), Durability::Fua).await });
        core.sleep(Duration::from_secs(20)).await;
        let orders = ["1", "2"].map(|member| {
            let array = array.clone();
            core.spawn(async move { array.fail(member).await.is_ok() })
        });
        let mut done = Vec::new();
        for order in orders {
            done.push(order.await);
        }
        done.sort_unstable();
        assert_eq!(done, [false, true]);
        writing.await.unwrap();
        let status = array.handle().status(core).await;
        assert_eq!((status.broken, status.degraded), (false, 1));
    });
}
