//! Members that are filled, while clients write.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use wattle_engine::job::{JobEnd, JobFailure, JobKind};
use wattle_engine::metadata::{ArrayRecord, LocalBoxFuture, Metadata};
use wattle_engine::units::{MemberIx, MemberSet, Sector, StripeNo};
use wattle_engine::{
    ArrayHandle, ArraySpec, FailError, LeaveError, MemberKey, MemberSpec, MemberState, Regions, VolumeError,
};
use wattle_rt::{BufMut, Core, DriveControl};

use super::world::{CASES, Fixture, MEMBER_SECTORS, OFFSET, client, settled};

/// Runs an array until all is in sync, beside `clients` that write; what they wrote goes into the
/// model.
fn settle(fixture: &mut Fixture, spec: ArraySpec, model: Vec<u8>, clients: usize) -> Vec<u8> {
    let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
    let model = Rc::new(RefCell::new(model));
    let shared = model.clone();
    let outcome = fixture.world.run(async move |core: Core| {
        let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
        let volume = array.volume().open(&core).expect("it runs");
        if clients > 0 {
            client(core.clone(), volume, shared, 7, clients).await;
        }
        let status = settled(&core, &array).await;
        assert!(status.members.iter().all(|member| member.state == MemberState::InSync), "{status:?}");
        assert_eq!(status.last.map(|last| last.end), Some(JobEnd::Finished));
        array.stop(&core).await.expect("it stops");
    });
    match outcome {
        wattle_rt::RunOutcome::Done(()) => {}
        other => panic!("{:?}: {other:?}", fixture.case),
    }
    Rc::try_unwrap(model).expect("the clients are gone").into_inner()
}

#[test]
fn a_blank_member_is_filled_beside_clients() {
    for (number, &case) in CASES.iter().enumerate() {
        for cores in [1, 3] {
            for (slot, clients) in [(0, 60), (case.members - 1, 0), (case.members / 2, 60)] {
                let mut fixture = Fixture::new(case, number as u64, cores);
                let model = fixture.populate(11);
                fixture.scribble(slot, 99);
                let mut spec = fixture.spec();
                spec.members[slot] = fixture.blank(slot);
                let model = settle(&mut fixture, spec, model, clients);
                fixture.verify(&fixture.slots(), &model, "filled");
                let record = fixture.records.last().expect("that was recorded");
                assert_eq!(record.seats[slot].state, MemberState::InSync);
            }
        }
    }
}

#[test]
fn two_members_are_filled_at_once() {
    for &case in CASES.iter().filter(|case| case.members > 2) {
        let mut fixture = Fixture::new(case, 5, 2);
        let lost: Vec<usize> = vec![0, case.members / 2];
        if !fixture.geometry.survives(&lost.iter().map(|slot| MemberIx(*slot as u16)).collect()) {
            continue;
        }
        let model = fixture.populate(3);
        let mut spec = fixture.spec();
        for &slot in &lost {
            fixture.scribble(slot, 98);
            spec.members[slot] = fixture.blank(slot);
        }
        let model = settle(&mut fixture, spec, model, 40);
        fixture.verify(&fixture.slots(), &model, "two");
    }
}

#[test]
fn what_may_disagree_is_made_to_agree() {
    for (number, &case) in CASES.iter().enumerate() {
        for (cores, clients) in [(1, 0), (2, 50)] {
            let mut fixture = Fixture::new(case, number as u64, cores);
            let mut model = fixture.populate(12);
            // Parity and later copies are stale; what a client reads is not.
            for slot in 0..case.members {
                for sector in (slot as u64..256).step_by(5) {
                    let place = fixture.geometry.array_sector_at(MemberIx(slot as u16), Sector(sector));
                    let first = place.is_some_and(|lba| {
                        fixture.geometry.kind() == wattle_engine::geometry::LevelKind::Parity || {
                            let copies = fixture.geometry.copies(lba);
                            let first = copies.as_slice()[0];
                            (first.member.index(), first.sector.0) == (slot, sector)
                        }
                    });
                    if !first {
                        fixture.drive(slot).poke((OFFSET.0 + sector) * 512, &[0x77; 512]);
                    }
                }
            }
            let spec = ArraySpec { synced_below: Sector(0), ..fixture.spec() };
            model = settle(&mut fixture, spec, model, clients);
            fixture.verify(&fixture.slots(), &model, "resync");
            assert_eq!(fixture.records.last().expect("it was recorded").synced_below, Sector::MAX);
        }
    }
}

#[test]
fn only_regions_that_need_it_are_resynced() {
    for &case in CASES {
        let mut fixture = Fixture::new(case, 1, 2);
        let model = fixture.populate(13);
        let total = fixture.geometry.sync_sectors();
        let mut needs = Regions::new(Sector(24), total);
        [1, 2, 5, needs.count() - 1].into_iter().for_each(|region| needs.insert(region));
        let controls: Vec<_> = fixture.slots().into_iter().map(|slot| fixture.drive(slot)).collect();
        let before: u64 = controls.iter().map(|drive| drive.totals().read_bytes).sum();
        let spec = ArraySpec { synced_below: Sector(0), needs: Some(needs), ..fixture.spec() };
        let model = settle(&mut fixture, spec, model, 0);
        let read = controls.iter().map(|drive| drive.totals().read_bytes).sum::<u64>() - before;
        let all = 512 * 256 * case.members as u64;
        assert!(read > 0 && read < all * 7 / 10, "{case:?}: {read} of {all} bytes read");
        fixture.verify(&fixture.slots(), &model, "regions");
    }
}

#[test]
fn a_replacement_takes_the_slot_of_whom_it_replaces() {
    for (number, &case) in CASES.iter().enumerate() {
        for clients in [0, 50] {
            let mut fixture = Fixture::new(case, number as u64, 2);
            let model = fixture.populate(14);
            let slot = 1;
            let spare = case.members;
            fixture.scribble(spare, 97);
            let mut spec = fixture.spec();
            spec.replacements = vec![MemberSpec::missing(); case.members];
            spec.replacements[slot] = fixture.blank(spare);
            let model = settle(&mut fixture, spec, model, clients);
            let mut drives = fixture.slots();
            drives[slot] = spare;
            fixture.verify(&drives, &model, "replaced");
            let record = fixture.records.last().expect("that was recorded");
            assert_eq!(record.seats[slot].state, MemberState::InSync);
            assert_eq!(record.seats[case.members + slot].state, MemberState::Faulty);
        }
    }
}

/// After a crash, what a replacement has may be older or newer than what its member has: a resync
/// makes it agree up to the very block where the copying goes on, wherever the steps of either
/// begin.
#[test]
fn a_resync_reaches_all_that_is_current_of_a_replacement() {
    for (number, &case) in CASES.iter().enumerate() {
        for valid_below in [8, 72, 200] {
            let mut fixture = Fixture::new(case, number as u64, 2);
            let model = fixture.populate(15);
            let (slot, spare) = (1, case.members);
            fixture.scribble(spare, 96);
            let mut spec = ArraySpec { synced_below: Sector(0), ..fixture.spec() };
            spec.replacements = vec![MemberSpec::missing(); case.members];
            let state = MemberState::Rebuilding { valid_below: Sector(valid_below) };
            spec.replacements[slot] = MemberSpec { state, ..fixture.blank(spare) };
            let model = settle(&mut fixture, spec, model, 0);
            let mut drives = fixture.slots();
            drives[slot] = spare;
            fixture.verify(&drives, &model, "replaced after a resync");
        }
    }
}

/// There is no member left to call failed.
#[test]
fn a_replacement_takes_the_slot_of_one_who_was_taken_out() {
    let case = CASES[4];
    let mut fixture = Fixture::new(case, 12, 2);
    let model = fixture.populate(20);
    let spare = case.members;
    fixture.scribble(spare, 93);
    let mut spec = fixture.spec();
    spec.members[1] = MemberSpec::missing();
    spec.replacements = vec![MemberSpec::missing(); case.members];
    spec.replacements[1] = fixture.blank(spare);
    let model = settle(&mut fixture, spec, model, 0);
    let mut drives = fixture.slots();
    drives[1] = spare;
    fixture.verify(&drives, &model, "replaced");
    let record = fixture.records.last().expect("that was recorded");
    assert_eq!(record.seats[1].state, MemberState::InSync);
    assert_eq!(record.seats[case.members + 1].state, MemberState::Missing);
    assert!(record.failed.is_empty());
}

/// A replacement changes seats with the member it replaces while an operator acts on either: a
/// device is meant, not its seat.
#[test]
fn a_device_that_is_named_is_found_wherever_it_sits() {
    for &case in CASES {
        let mut fixture = Fixture::new(case, 6, 2);
        fixture.populate(16);
        let (slot, spare) = (MemberIx(1), case.members);
        let (old, new) = (MemberKey(1), MemberKey(spare as u32));
        let mut spec = fixture.spec();
        spec.replacements = vec![MemberSpec::missing(); case.members];
        spec.replacements[slot.index()] = fixture.blank(spare);
        let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
        let outcome = fixture.world.run(async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
            let (watching, watched) = (array.clone(), core.clone());
            let settling = core.spawn(async move { settled(&watched, &watching).await });
            // It works all the time: as a replacement, and in its slot.
            let mut seats = Vec::new();
            while !settling.is_finished() {
                match array.remove(&core, new).await {
                    Err(LeaveError::InUse(seat)) => seats.push(seat),
                    other => panic!("{case:?}: {other:?}"),
                }
                core.sleep(Duration::from_micros(10)).await;
            }
            let replacement = MemberIx(slot.0 + case.members as u16);
            assert_eq!((seats.first(), seats.last()), (Some(&replacement), Some(&slot)), "{case:?}");
            assert_eq!(array.fail(&core, old).await, Err(FailError::NotPresent(old.into())));
            assert_eq!(array.remove(&core, old).await, Ok(()));
            assert_eq!(array.remove(&core, old).await, Err(LeaveError::NotPresent(old.into())));
            assert_eq!(array.fail(&core, new).await, Ok(slot));
            array.stop(&core).await.expect("it stops");
        });
        assert!(matches!(outcome, wattle_rt::RunOutcome::Done(())), "{case:?}: {outcome:?}");
    }
}

/// Unplugs the drive that a replacement takes the slot of, the moment that is recorded.
struct Unplug {
    records: Box<dyn Metadata>,
    taken_by: MemberKey,
    slot: MemberIx,
    drive: DriveControl,
}

impl Metadata for Unplug {
    fn commit<'a>(&'a self, record: &'a ArrayRecord) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        Box::pin(async move {
            let result = self.records.commit(record).await;
            if record.seats[self.slot.index()].key == Some(self.taken_by) {
                self.drive.gone_now();
            }
            result
        })
    }

    fn mark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        self.records.mark(regions)
    }

    fn unmark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        self.records.unmark(regions)
    }
}

/// Reads wait for no member that takes a seat: what fails on a drive that was replaced meanwhile
/// says nothing of its replacement.
#[test]
fn a_late_error_of_a_replaced_member_costs_nobody_else() {
    for &case in CASES {
        let mut fixture = Fixture::new(case, 13, 2);
        let model = Rc::new(fixture.populate(21));
        let (slot, spare) = (MemberIx(0), case.members);
        let mut spec = fixture.spec();
        spec.replacements = vec![MemberSpec::missing(); case.members];
        spec.replacements[slot.index()] = fixture.blank(spare);
        let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
        let (drive, taken_by) = (fixture.drive(slot.index()), MemberKey(spare as u32));
        let outcome = fixture.world.run(async move |core: Core| {
            let records = Unplug { records: records.metadata(&core, &drives), taken_by, slot, drive };
            let array = ArrayHandle::start(&core, spec, Box::new(records)).await;
            let volume = array.volume().open(&core).expect("it runs");
            let size = volume.size_bytes();
            let readers: Vec<_> = (0..32)
                .map(|reader| {
                    let (core, array, volume, model) =
                        (core.clone(), array.clone(), volume.clone(), model.clone());
                    core.clone().spawn(async move {
                        let mut at = reader * 512 * 7 % size;
                        while array.status(&core).await.members[0].device.as_deref() == Some("drive0") {
                            let (result, buf) = volume.read(at, BufMut::alloc(512)).await;
                            assert_eq!(result, Ok(()));
                            assert!(buf[..] == model[at as usize..][..512], "a read is wrong");
                            at = (at + 512 * 37) % size;
                        }
                    })
                })
                .collect();
            for reader in readers {
                reader.await;
            }
            let status = settled(&core, &array).await;
            assert!(status.members.iter().all(|member| member.state == MemberState::InSync), "{status:?}");
            assert_eq!(status.members[0].read_errors, 0, "{case:?}");
            array.stop(&core).await.expect("it stops");
        });
        assert!(matches!(outcome, wattle_rt::RunOutcome::Done(())), "{case:?}: {outcome:?}");
    }
}

/// A replacement is copied, so it needs nothing of the other members; where its member cannot be
/// read they help.
#[test]
fn a_replacement_survives_bad_sectors_of_whom_it_replaces() {
    for &case in CASES {
        let mut fixture = Fixture::new(case, 4, 2);
        let model = fixture.populate(15);
        let spare = case.members;
        let mut spec = fixture.spec();
        spec.replacements = vec![MemberSpec::missing(); case.members];
        spec.replacements[0] = fixture.blank(spare);
        for sector in [3, 77, 78, 200] {
            fixture.drive(0).latent(OFFSET.0 + sector);
        }
        let model = settle(&mut fixture, spec, model, 0);
        let mut drives = fixture.slots();
        drives[0] = spare;
        fixture.verify(&drives, &model, "replaced");
        assert!(
            fixture.records.last().is_some_and(|record| record.seats.iter().all(|seat| seat.bad.is_empty()))
        );
    }
}

/// A member that was away gets what it missed and nothing else.
#[test]
fn a_member_that_was_away_gets_only_what_it_missed() {
    for &case in CASES {
        let mut fixture = Fixture::new(case, 6, 2);
        let model = fixture.populate(16);
        let total = fixture.geometry.sync_sectors();
        let mut stale = Regions::new(Sector(16), total);
        [0, 3, 4, stale.count() - 1].into_iter().for_each(|region| stale.insert(region));
        let slot = case.members - 1;
        // What it missed is wrong on it; whatever else is written to it shows.
        for region in stale.iter() {
            for at in stale.range_of(region).start.0..stale.range_of(region).end.0 {
                let sectors: Vec<u64> = match case.level {
                    wattle_engine::geometry::Level::Raid10 => {
                        let copies = fixture.geometry.copies(Sector(at));
                        copies
                            .iter()
                            .filter(|copy| copy.member.index() == slot)
                            .map(|copy| copy.sector.0)
                            .collect()
                    }
                    _ => vec![at],
                };
                for sector in sectors {
                    fixture.drive(slot).poke((OFFSET.0 + sector) * 512, &[0x11; 512]);
                }
            }
        }
        let control = fixture.drive(slot);
        control.record_writes();
        let mut spec = fixture.spec();
        spec.members[slot] = MemberSpec { stale: Some(stale.clone()), ..fixture.blank(slot) };
        let model = settle(&mut fixture, spec, model, 0);
        fixture.verify(&fixture.slots(), &model, "returned");
        let written: u64 = control.take_write_log().iter().map(|write| write.len_bytes).sum();
        assert!(written > 0 && written < 512 * 256 * 3 / 4, "{case:?}: {written} bytes written");
    }
}

#[test]
fn a_second_member_that_fails_during_a_recovery_is_made_up_for() {
    for case in [CASES[7], CASES[8]] {
        let mut fixture = Fixture::new(case, 8, 2);
        let model = fixture.populate(17);
        fixture.scribble(1, 95);
        let mut spec = fixture.spec();
        spec.members[1] = fixture.blank(1);
        spec.tuning.sync.pace.max_bytes_per_second = 8 << 20;
        let spare = fixture.blank(case.members);
        let control = fixture.drive(2);
        let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
        fixture
            .world
            .run(async move |core: Core| {
                let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
                core.sleep(Duration::from_millis(5)).await;
                assert!(array.status(&core).await.sync.is_some_and(|sync| sync.action == JobKind::Recover));
                control.gone_now();
                let status = settled(&core, &array).await;
                assert_eq!(
                    (status.members[1].state, status.members[2].state),
                    (MemberState::InSync, MemberState::Faulty)
                );
                array.add(&core, MemberIx(2), spare).await.unwrap();
                let status = settled(&core, &array).await;
                assert_eq!(status.members[2].state, MemberState::InSync);
                array.stop(&core).await.expect("it stops");
            })
            .expect_done();
        let mut drives = fixture.slots();
        drives[2] = case.members;
        fixture.verify(&drives, &model, "second failure");
    }
}

/// Where a source cannot be read either, the range is recorded as bad on the member that was to get
/// it: no client reads made-up data.
#[test]
fn what_nobody_has_is_recorded_as_bad_and_never_made_up() {
    for case in [CASES[0], CASES[3], CASES[4], CASES[9], CASES[11]] {
        let mut fixture = Fixture::new(case, 9, 2);
        let model = fixture.populate(18);
        fixture.scribble(0, 94);
        // The sector of the first array sector that has a copy, or a row mate, on slot 0.
        let lost: Vec<(usize, u64)> = (1..case.members).map(|slot| (slot, 40)).collect();
        for &(slot, sector) in &lost {
            fixture.drive(slot).latent(OFFSET.0 + sector);
        }
        let mut spec = fixture.spec();
        spec.members[0] = fixture.blank(0);
        let geometry = fixture.geometry.clone();
        let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
        let readable = fixture
            .world
            .run(async move |core: Core| {
                let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
                let status = settled(&core, &array).await;
                assert_eq!(status.members[0].state, MemberState::InSync);
                let last = status.last.expect("a recovery ended");
                assert_eq!((last.action, last.end), (JobKind::Recover, JobEnd::Finished));
                assert!(last.bad_sectors_passed_on > 0, "{last:?}");
                assert_eq!(status.members[0].bad_sectors, last.bad_sectors_passed_on);
                let volume = array.volume().open(&core).expect("it runs");
                let mut readable = Vec::new();
                for lba in 0..geometry.array_sectors().0 {
                    let (result, buf) = volume.read(lba * 512, BufMut::alloc(512)).await;
                    assert!(matches!(result, Ok(()) | Err(VolumeError::Unreadable)), "{result:?}");
                    readable.push(result.is_ok().then(|| buf.to_vec()));
                }
                array.stop(&core).await.expect("it stops");
                readable
            })
            .expect_done();
        let unreadable = readable.iter().filter(|sector| sector.is_none()).count();
        assert!(unreadable > 0 && unreadable <= lost.len() + 1, "{case:?}: {unreadable} sectors");
        for (lba, found) in readable.iter().enumerate() {
            if let Some(found) = found {
                assert!(found[..] == model[lba * 512..][..512], "{case:?}: sector {lba} was made up");
            }
        }
    }
}

/// Where no member can record that a sector took nothing, the resync does not say that parity fits
/// there.
#[test]
fn a_resync_that_cannot_write_parity_trusts_nothing() {
    for case in [CASES[3], CASES[4], CASES[6]] {
        let mut fixture = Fixture::new(case, 11, 1);
        for slot in 0..case.members {
            fixture.scribble(slot, 60 + slot as u64);
        }
        let mut spec = ArraySpec { synced_below: Sector(0), ..fixture.spec() };
        for member in &mut spec.members {
            member.bad_entries_max = 0;
        }
        let last = case.members - 1;
        let controls: Vec<_> = (0..=last).map(|slot| fixture.drive(slot)).collect();
        let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
        fixture
            .world
            .run(async move |core: Core| {
                let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
                controls.iter().for_each(|control| control.fail_next_writes(1000));
                core.sleep(Duration::from_millis(200)).await;
                let status = array.status(&core).await;
                let last = status.last.clone().expect("it was tried");
                assert_eq!(last.end, JobEnd::Failed(JobFailure::NoRoom));
                assert!(status.synced_below < Sector::MAX, "{case:?}: {status:?}");
                // What was recorded says the same.
                assert!(records.0.borrow().iter().all(|record| record.synced_below < Sector::MAX));
                controls.iter().for_each(|control| control.fail_next_writes(0));
                array.stop(&core).await.expect("it stops");
            })
            .expect_done();
    }
}

/// The old parity of a row that lacks data was recorded as bad on its member only. Its replacement,
/// which holds the same, took the slot, and the missing data was made from it: something that
/// no client had written.
#[test]
fn parity_that_nobody_can_make_is_bad_on_the_replacement_too() {
    // Whether the member itself can be read there or not.
    let cases = [CASES[3], CASES[4], CASES[6]];
    for (case, readable) in cases.into_iter().flat_map(|case| [(case, true), (case, false)]) {
        let mut fixture = Fixture::new(case, 14, 1);
        fixture.populate(22);
        let (first, spare) = (fixture.geometry.stripe(StripeNo(0)), case.members);
        let (parity, data) = (first.p(), first.data_member(0));
        // Parity of some other time, copied to the replacement to the end.
        fixture.scribble(parity.index(), 96);
        fixture.scribble(spare, 96);
        let mut spec = ArraySpec { synced_below: Sector(0), ..fixture.spec() };
        spec.members[data.index()].bad = [Sector(0)..Sector(1)].into_iter().collect();
        if !readable {
            spec.members[parity.index()].bad = [Sector(0)..Sector(1)].into_iter().collect();
        }
        spec.replacements = vec![MemberSpec::missing(); case.members];
        let state = MemberState::Rebuilding { valid_below: Sector(MEMBER_SECTORS) };
        spec.replacements[parity.index()] = MemberSpec { state, ..fixture.in_sync(spare) };
        let lost = fixture.geometry.array_sector_of(StripeNo(0), 0, Sector(0));
        let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
        let read = fixture.world.run(async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
            settled(&core, &array).await;
            let volume = array.volume().open(&core).expect("it runs");
            let (read, _) = volume.read(lost.0 * 512, BufMut::alloc(512)).await;
            array.stop(&core).await.expect("it stops");
            read
        });
        assert_eq!(read.expect_done(), Err(VolumeError::Unreadable), "{case:?}: it was made up");
        let seat = &fixture.records.last().expect("that was recorded").seats[parity.index()];
        assert_eq!(seat.key, Some(MemberKey(spare as u32)), "{case:?}: the replacement has the slot");
        assert!(seat.bad.overlaps(Sector(0)..Sector(1)), "{case:?}: {:?}", seat.bad);
    }
}

/// Parity is made right in the middle of a range of bad sectors, and there is no room to say so: it
/// stays bad, and the resync goes on.
#[test]
fn a_resync_passes_bad_sectors_that_cannot_be_told_apart() {
    for case in [CASES[3], CASES[4], CASES[6]] {
        let mut fixture = Fixture::new(case, 13, 1);
        let model = fixture.populate(21);
        let first = fixture.geometry.stripe(StripeNo(0));
        let mut spec = ArraySpec { synced_below: Sector(0), ..fixture.spec() };
        // The first row lacks data, so its parity stays bad; that of the next three is made anew.
        for (slot, rows) in [(first.p(), 4), (first.data_member(0), 1)] {
            let who = &mut spec.members[slot.index()];
            who.bad = [Sector(0)..Sector(rows)].into_iter().collect();
            who.bad_entries_max = 1;
        }
        let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
        fixture
            .world
            .run(async move |core: Core| {
                let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
                core.sleep(Duration::from_millis(200)).await;
                let status = array.status(&core).await;
                assert_eq!(status.last.map(|last| last.end), Some(JobEnd::Finished), "{case:?}");
                assert_eq!((status.synced_below, status.degraded), (Sector::MAX, 0), "{case:?}");
                array.stop(&core).await.expect("it stops");
            })
            .expect_done();
        fixture.verify(&fixture.slots(), &model, "resynced around");
        let bad = &fixture.records.last().expect("that was recorded").seats[first.p().index()].bad;
        assert!(bad.overlaps(Sector(0)..Sector(1)), "nobody has the first row: {bad:?}");
    }
}

/// Parity that may be wrong recovers nothing: the member stays unfilled, and says so.
#[test]
fn missing_data_is_not_made_from_parity_that_may_be_wrong() {
    let case = CASES[4];
    let mut fixture = Fixture::new(case, 10, 1);
    fixture.populate(19);
    let mut spec = ArraySpec { synced_below: Sector(0), ..fixture.spec() };
    spec.members[0] = fixture.blank(0);
    let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
    fixture
        .world
        .run(async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
            core.sleep(Duration::from_millis(200)).await;
            let status = array.status(&core).await;
            assert_eq!(status.sync, None);
            assert!(matches!(status.members[0].state, MemberState::Rebuilding { .. }), "{status:?}");
            assert!(matches!(status.last.expect("it was tried").end, JobEnd::Failed(_)));
            array.stop(&core).await.expect("it stops");
        })
        .expect_done();
}
