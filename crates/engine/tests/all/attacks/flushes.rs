//! What is durable when it is recorded or acknowledged as such.

use std::cell::Cell;

use super::*;

/// Watches invariants 1 and 3 from the members' side: what reached them, and what was unflushed, at
/// each record.
fn watch(core: Core, drives: Vec<DriveControl>) -> Box<dyn Metadata> {
    let dirty = Cell::new(false);
    Box::new(OnCommit(async move |record: &ArrayRecord| {
        if !dirty.get() {
            let written: usize = drives.iter().map(|drive| drive.take_write_log().len()).sum();
            assert_eq!(written, 0, "members were written while the array was recorded clean");
        }
        if !record.dirty {
            for (slot, drive) in (0..).map(MemberIx).zip(&drives) {
                let out = record.failed.contains(slot);
                assert!(out || drive.unflushed_sectors() == 0, "slot {slot} is recorded clean unflushed");
            }
        }
        core.sleep(Duration::from_micros(300)).await;
        if !record.dirty {
            drives.iter().for_each(|drive| drop(drive.take_write_log()));
        }
        dirty.set(record.dirty);
    }))
}

/// Bursts of requests of every kind on three cores, with pauses in which the array is recorded
/// clean.
#[test]
fn nothing_is_written_while_recorded_clean_and_nothing_is_unflushed_then() {
    for seed in 0..30 {
        let level = if seed % 2 == 0 { Level::Raid5 } else { Level::Raid1 };
        let mut fixture = Fixture::seeded(level, 4, 3, seed);
        let mut spec = fixture.spec(&[]);
        // Shorter than any request: only what is in flight tells that it is not idle.
        spec.tuning.clean_delay = Duration::from_micros(20);
        let drives: Vec<_> = (0..4).map(|slot| fixture.drive(slot)).collect();
        drives.iter().for_each(DriveControl::record_writes);
        drives[seed as usize % 4].gone_after_ops(200);
        fixture
            .world
            .run(async move |core: Core| {
                let array = ArrayHandle::start(&core, spec, watch(core.clone(), drives)).await;
                let clients = (0..3usize).map(|ix| {
                    let volume = array.volume();
                    core.call(CoreIx(ix), move |core| async move {
                        let volume = volume.open(&core).unwrap();
                        let mut rng = wattle_rt::Rng::new(seed * 3 + ix as u64);
                        for _ in 0..120 {
                            let at = rng.below(volume.size_bytes() / 512 - 8) * 512;
                            match rng.below(10) {
                                0 => volume.discard(0, volume.size_bytes() / 2).await.unwrap(),
                                1 => write(&volume, at + 3, &[1; 600]).await.unwrap(),
                                2..=6 => write(&volume, at, &[2; 4096]).await.unwrap(),
                                7 => drop(read(&volume, at, 4096).await.unwrap()),
                                8 => volume.flush().await.unwrap(),
                                _ => core.sleep(Duration::from_micros(500 + rng.below(1500))).await,
                            }
                        }
                    })
                });
                for client in clients.collect::<Vec<_>>() {
                    client.await;
                }
                core.sleep(Duration::from_millis(20)).await;
                assert!(!array.status(&core).await.dirty);
                array.stop(&core).await.unwrap();
            })
            .expect_done();
    }
}

/// A system tells that it lost data once, to one flush. Cores that flushed on their
/// own could be told that all is well while another still knew better.
#[test]
fn a_flush_that_went_well_says_so_after_a_failed_one_is_dealt_with() {
    for seed in 0..20 {
        let mut fixture = Fixture::seeded(Level::Raid1, 2, 2, seed);
        fixture.fill();
        let spec = fixture.spec(&[]);
        let control = fixture.drive(1);
        run(&mut fixture.world, spec, async move |core, array, volume| {
            assert_eq!(write(&volume, 0, &[9; 4096]).await, Ok(()));
            control.fail_next_flushes(1);
            let flushes: Vec<_> = (0..2)
                .map(|at| {
                    let (volume, array) = (array.volume(), array.clone());
                    core.call(wattle_rt::CoreIx(at), move |core| async move {
                        let flushed = volume.open(&core).unwrap().flush().await;
                        // A client that gets a success finds the member that lost writes out
                        // of the array.
                        (flushed, array.status(&core).await.members[1].state)
                    })
                })
                .collect();
            for flush in flushes {
                assert_eq!(flush.await, (Ok(()), MemberState::Faulty));
            }
            array.stop(&core).await.unwrap();
        });
    }
}

/// A member that is away may hold, unflushed, what was acknowledged before a crash. A flush that
/// only the others heard must not be undone by its return: it is counted out first. Nothing of the
/// kind is written for an array that was stopped in good order.
#[test]
fn a_flush_without_a_member_after_a_crash_counts_it_out() {
    for (synced_below, records_wanted) in [(Sector(0), 1), (Sector::MAX, 0)] {
        let mut fixture = Fixture::new(Level::Raid1, 2, 2);
        fixture.fill();
        fixture.synced_below = synced_below;
        let mut spec = fixture.spec(&[1]);
        // A resync records what it did, too.
        spec.tuning.sync.frozen = true;
        fixture
            .world
            .run(async move |core: Core| {
                let records = Rc::default();
                let array = ArrayHandle::start(&core, spec, slow(&core, &records)).await;
                let volume = array.volume().open(&core).unwrap();
                assert_eq!(volume.flush().await, Ok(()));
                assert_eq!(records.borrow().len(), records_wanted);
                assert_eq!(volume.flush().await, Ok(()));
                assert_eq!(records.borrow().len(), records_wanted, "once is enough");
                array.stop(&core).await.unwrap();
            })
            .expect_done();
    }
}
