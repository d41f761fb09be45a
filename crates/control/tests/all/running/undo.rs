//! A device that joins an array while the power is cut at every operation: either nothing of it
//! changed, or its undo log is whole and brings back what it held.

use std::cell::RefCell;
use std::path::Path;

use wattle_control::admit::WantedSeat;
use wattle_control::members::MemberAccess;
use wattle_control::restore::compare;
use wattle_control::running::{Newcomer, Terms};
use wattle_control::undo::{Recorder, UndoSite, carry_out, list};
use wattle_rt::{Device, RunOutcome, SimWorld, WorldConfig};

use super::crashes::{drives, found};
use super::*;

const SIZE_BYTES: usize = 512 << 10;

fn recorder(dir: &Path) -> Recorder {
    Recorder {
        dir: dir.join("undo"),
        command: "wattle add t new".to_owned(),
        title: "add-t".to_owned(),
        now: WallTime { secs: 1_700_000_000, micros: 0 },
        given: Vec::new(),
        saved: RefCell::default(),
    }
}

/// Fails a member and takes another drive, on which something is, in its place or beside it.
async fn join(core: Core, array: start::Claimed, new: Device, place: WantedSeat, recorder: Recorder) {
    let array = RunningArray::new(&core, &MemberAccess::local(), "t", array.launch(&core).await.unwrap());
    write(&core, &array, &[7; 64 << 10]).await;
    if place == WantedSeat::Any {
        array.fail("1").await.unwrap();
    }
    let newcomer = Newcomer::look(&core, "new", new, UUID).await.unwrap();
    let refused = array.take(newcomer.clone(), place, Forced::default()).await.unwrap_err();
    assert_eq!(refused.code, Code::SignatureFound);
    assert!(recorder.saved.borrow().is_empty());
    let terms =
        Terms { forced: Forced::default().with(Check::Signature), undo: Some(&recorder), ..Terms::default() };
    array.take(newcomer, place, terms).await.unwrap();
    assert_eq!(recorder.saved.borrow().len(), 1);
    whole(&core, &array).await;
    array.stop().await.unwrap();
}

#[test]
fn what_a_device_held_that_joins_is_saved_before_it_is_written_over() {
    for place in [WantedSeat::Any, WantedSeat::Replace(0)] {
        let (mut logs, mut cuts) = (0, 0);
        for cut in 1.. {
            let mut world = SimWorld::new(WorldConfig { seed: cut, cores: 1, ..WorldConfig::default() });
            let devices = drives(&mut world, Version::V12);
            let new = devices[4].clone();
            world.drive(&new).poke(0, &(0..SIZE_BYTES).map(|at| (at / 411) as u8).collect::<Vec<_>>());
            world.drive(&new).poke(4086, b"SWAPSPACE2");
            let before = world.drive(&new).peek(0, SIZE_BYTES);
            let claimed = found(&world, &devices[..3], Version::V12).unwrap();
            let dir = tempfile::tempdir().unwrap();
            let (recorder, drive) = (recorder(dir.path()), new.clone());
            world.power_cut_after_ops(cut);
            let outcome = world.run(async move |core| join(core, claimed, drive, place, recorder).await);
            world.cancel_power_cut();
            let left = world.drive(&new).peek(0, SIZE_BYTES);
            let saved = list(&dir.path().join("undo")).unwrap();
            match saved.first().map(|listed| listed.log.clone().unwrap()) {
                None => assert!(left == before, "cut at {cut}: it was written on without a log"),
                Some(log) => {
                    logs += 1;
                    world
                        .run(async move |core| {
                            let (_, writes) = compare(&core, &new, &log, 0, true).await.unwrap();
                            carry_out(&core, &[UndoSite::named("new", &new)], &writes).await.unwrap();
                        })
                        .expect_done();
                    // It is so small that all of it is near an end.
                    let restored = world.drive(&devices[4]).peek(0, SIZE_BYTES);
                    assert!(restored == before, "cut at {cut}: every byte is what it was");
                }
            }
            if outcome != RunOutcome::PowerCut {
                outcome.expect_done();
                assert!(left != before);
                break;
            }
            cuts += 1;
        }
        assert!(logs > 20 && cuts > logs, "{place:?}: {cuts} cuts, {logs} with a log");
    }
}

/// Where the log cannot be saved nothing is written, and the array is as it was.
#[test]
fn a_device_does_not_join_without_the_log_that_was_asked_for() {
    let mut world = SimWorld::new(WorldConfig { seed: 1, cores: 1, ..WorldConfig::default() });
    let devices = drives(&mut world, Version::V12);
    let (claimed, new) = (found(&world, &devices[..3], Version::V12).unwrap(), devices[4].clone());
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("undo"), "no directory").unwrap();
    let (recorder, control) = (recorder(dir.path()), world.drive(&new));
    let outcome = world.run(async move |core: Core| {
        let array =
            RunningArray::new(&core, &MemberAccess::local(), "t", claimed.launch(&core).await.unwrap());
        array.fail("1").await.unwrap();
        let newcomer = Newcomer::look(&core, "new", new, UUID).await.unwrap();
        control.record_writes();
        let terms = Terms { undo: Some(&recorder), ..Terms::default() };
        let problem = array.take(newcomer.clone(), WantedSeat::Any, terms).await.unwrap_err();
        assert_eq!(problem.code, Code::UndoNotWritten);
        assert_eq!(control.take_write_log().len(), 0);
        assert_eq!(array.handle().status(&core).await.degraded, 1);
        array.take(newcomer, WantedSeat::Any, Terms::default()).await.unwrap();
        whole(&core, &array).await;
    });
    outcome.expect_done();
}
