//! Power cuts at any operation; what the last durable record says must be true, and no client is
//! told more than it says.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use wattle_engine::metadata::ArrayRecord;
use wattle_engine::units::Sector;
use wattle_engine::{ArrayHandle, ArraySpec, MemberKey, MemberSpec, MemberState};
use wattle_rt::{Core, RunOutcome};

use crate::support::commits::OnCommit;

use super::world::{CASES, Fixture, client, reassembled, settled};

/// Runs, cut off after `ops` operations, then again and again from what was recorded, until it
/// comes to an end.
fn run_with_cuts(fixture: &mut Fixture, spec: &ArraySpec, mut ops: u64, writes: usize) -> usize {
    for cuts in 0.. {
        let now = reassembled(fixture, spec, fixture.records.last().as_ref());
        let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
        if cuts < 6 {
            fixture.world.power_cut_after_ops(ops);
            ops = ops * 2 + 3;
        } else {
            fixture.world.cancel_power_cut();
        }
        let outcome = fixture.world.run(async move |core: Core| {
            let array = ArrayHandle::start(&core, now, records.metadata(&core, &drives)).await;
            if writes > 0 {
                let volume = array.volume().open(&core).expect("it runs");
                let model = Rc::new(RefCell::new(vec![0; volume.size_bytes() as usize]));
                let writer = core.spawn({
                    let core = core.clone();
                    async move { writes_only(core, volume, model, writes).await }
                });
                writer.await;
            }
            settled(&core, &array).await;
            array.stop(&core).await.expect("it stops");
        });
        match outcome {
            RunOutcome::Done(()) => {
                fixture.world.cancel_power_cut();
                return cuts;
            }
            RunOutcome::PowerCut => {}
            other => panic!("{:?}: {other:?}", fixture.case),
        }
    }
    unreachable!("cuts end after a few")
}

async fn writes_only(_core: Core, volume: wattle_engine::Volume, model: Rc<RefCell<Vec<u8>>>, writes: usize) {
    let mut rng = wattle_rt::Rng::new(writes as u64);
    let size = model.borrow().len() as u64;
    for _ in 0..writes {
        let start = rng.below(size / 512) * 512;
        let len = (512 * (1 + rng.below(30))).min(size - start);
        let mut buf = wattle_rt::BufMut::alloc(len as usize);
        rng.fill(&mut buf);
        assert_eq!(volume.write(start, buf.freeze(), wattle_rt::Durability::Cached).await, Ok(()));
    }
}

#[test]
fn a_recovery_goes_on_from_where_it_was_recorded() {
    let mut cut = 0;
    for &case in CASES {
        for seed in 0..6 {
            let mut fixture = Fixture::new(case, seed, 1 + seed as usize % 2);
            let model = fixture.populate(21);
            let slot = seed as usize % case.members;
            fixture.scribble(slot, 93);
            let mut spec = fixture.spec();
            spec.members[slot] = fixture.blank(slot);
            cut += run_with_cuts(&mut fixture, &spec, 5 + 17 * seed, 0);
            fixture.verify(&fixture.slots(), &model, "recovered over crashes");
            // Some record in between had a position that was not where it began.
            let records = fixture.records.0.borrow();
            assert_eq!(records.last().map(|record| record.seats[slot].state), Some(MemberState::InSync));
        }
    }
    assert!(cut > 50, "only {cut} cuts");
}

#[test]
fn a_replacement_goes_on_from_where_it_was_recorded() {
    for &case in CASES {
        for seed in 0..4 {
            let mut fixture = Fixture::new(case, seed, 2);
            let model = fixture.populate(22);
            let (slot, spare) = (seed as usize % case.members, case.members);
            fixture.scribble(spare, 92);
            let mut spec = fixture.spec();
            spec.replacements = vec![MemberSpec::missing(); case.members];
            spec.replacements[slot] = fixture.blank(spare);
            // Which member has which seat is recorded, not on which device it is: a swap ends the
            // test's idea of it.
            let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
            let before = spec.clone();
            let mut swapped = false;
            for ops in [7 + 13 * seed, 40 + 20 * seed, 100_000] {
                let mut now = reassembled(&fixture, &before, None);
                if let Some(record) = records.last() {
                    now.replacements[slot].state = record.seats[case.members + slot].state;
                    swapped = now.replacements[slot].state == MemberState::Faulty;
                }
                if swapped {
                    break;
                }
                fixture.world.power_cut_after_ops(ops);
                let (drives, records) = (drives.clone(), records.clone());
                let _ = fixture.world.run(async move |core: Core| {
                    let array = ArrayHandle::start(&core, now, records.metadata(&core, &drives)).await;
                    settled(&core, &array).await;
                    array.stop(&core).await.expect("it stops");
                });
            }
            fixture.world.cancel_power_cut();
            let last = records.last().expect("something was recorded");
            assert_eq!(
                last.seats[case.members + slot].state,
                MemberState::Faulty,
                "{case:?}: it was swapped in"
            );
            let mut drives = fixture.slots();
            drives[slot] = spare;
            fixture.verify(&drives, &model, "replaced over crashes");
        }
    }
}

#[test]
fn a_resync_goes_on_from_where_it_was_recorded() {
    for &case in CASES {
        for (seed, writes) in [(0, 0), (1, 0), (2, 25), (3, 40)] {
            let mut fixture = Fixture::new(case, seed, 1 + seed as usize % 2);
            (0..case.members).for_each(|slot| fixture.scribble(slot, 91 + slot as u64));
            let spec = ArraySpec { synced_below: Sector(0), ..fixture.spec() };
            run_with_cuts(&mut fixture, &spec, 9 + 21 * seed, writes);
            fixture.agrees("resynced over crashes");
        }
    }
}

/// Clients write while a copy is filled and the power goes: with copies there is no write hole, so
/// what was flushed stays.
#[test]
fn copies_are_filled_beside_writes_and_crashes() {
    for &case in CASES.iter().filter(|case| matches!(case.chunk, 0) || case.level.name() == "raid10") {
        for seed in 0..8 {
            let mut fixture = Fixture::new(case, seed, 2);
            fixture.populate(23);
            let mut spec = fixture.spec();
            spec.members[0] = fixture.blank(0);
            if seed >= 4 {
                // So slow that most of it has not been filled when it is written.
                spec.tuning.sync.pace.max_bytes_per_second = 4 << 20;
            }
            run_with_cuts(&mut fixture, &spec, 30 + 40 * seed, 20);
            fixture.agrees("filled over crashes");
        }
    }
}

#[test]
fn a_client_sees_its_writes_before_and_after() {
    // The oracle of the other tests of this file, once with the contents checked by a client that
    // reads.
    let case = CASES[5];
    let mut fixture = Fixture::new(case, 3, 2);
    let model = fixture.populate(24);
    let spec = ArraySpec { synced_below: Sector(0), ..fixture.spec() };
    let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
    let model = Rc::new(RefCell::new(model));
    let shared = model.clone();
    fixture
        .world
        .run(async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
            let volume = array.volume().open(&core).expect("it runs");
            client(core.clone(), volume, shared, 3, 80).await;
            settled(&core, &array).await;
            array.stop(&core).await.expect("it stops");
        })
        .expect_done();
    fixture.verify(&fixture.slots(), &model.borrow(), "in the end");
}

/// An operator that sees that a member was replaced may unplug it at once. A crash before that was
/// recorded brought back an array without it, and with a replacement that was not whole.
#[test]
fn nobody_is_told_that_a_member_is_whole_before_that_is_recorded() {
    for (case, replaces) in [(CASES[0], true), (CASES[4], true), (CASES[9], true), (CASES[4], false)] {
        let mut fixture = Fixture::new(case, 4, 2);
        fixture.populate(15);
        let spare = case.members;
        let mut spec = fixture.spec();
        spec.replacements = vec![MemberSpec::missing(); case.members];
        let seat = if replaces { &mut spec.replacements[0] } else { &mut spec.members[0] };
        *seat = fixture.blank(spare);
        let (name, records) = (fixture.drives[spare].name().to_owned(), fixture.records.clone());
        let outcome = fixture.world.run(async move |core: Core| {
            // Takes its time to record anything.
            let late = OnCommit({
                let (core, records) = (core.clone(), records.clone());
                async move |record: &ArrayRecord| {
                    core.sleep(Duration::from_millis(5)).await;
                    records.0.borrow_mut().push(record.clone());
                }
            });
            let array = ArrayHandle::start(&core, spec, Box::new(late)).await;
            let watcher = core.spawn({
                let (core, array, name) = (core.clone(), array.clone(), name.clone());
                async move {
                    let mut version = 0;
                    while !is_whole(&core, &array, &name).await {
                        version = array.changed(&core, version).await.expect("it runs");
                    }
                }
            });
            while !is_whole(&core, &array, &name).await {
                core.sleep(Duration::from_micros(100)).await;
            }
            let seat = records.last().expect("something was recorded").seats.swap_remove(0);
            assert_eq!(
                (seat.key, seat.state),
                (Some(MemberKey(spare as u32)), MemberState::InSync),
                "{case:?}"
            );
            // Tasks that wait for changes are woken too.
            watcher.await;
        });
        outcome.expect_done();
    }
}

/// Whether the device of this name is whole, in the first slot.
async fn is_whole(core: &Core, array: &ArrayHandle, name: &str) -> bool {
    let slot = array.status(core).await.members.swap_remove(0);
    slot.state == MemberState::InSync && slot.device.as_deref() == Some(name)
}
