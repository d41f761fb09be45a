//! What a check finds, and what a repair makes of it.

use std::time::Duration;

use wattle_engine::geometry::{Level, LevelKind};
use wattle_engine::job::{FinishedJob, JobEnd, JobKind, MismatchKind, Pace};
use wattle_engine::units::{MemberIx, Sector, StripeNo};
use wattle_engine::{ArrayHandle, ArraySpec, Job, JobError, MemberSpec, RepairSource};
use wattle_rt::{BufMut, Core, DriveControl};

use super::world::{CASES, Fixture, OFFSET, settled};

/// Runs a job on an array and returns what it says.
fn job(fixture: &mut Fixture, spec: ArraySpec, job: Job) -> Result<FinishedJob, JobError> {
    let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
    fixture
        .world
        .run(async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
            let number = array.start_job(&core, job.clone()).await?;
            assert_eq!(array.start_job(&core, job).await, Err(JobError::AlreadyRunning));
            let report = loop {
                match array.report(&core).await {
                    Some(report) if matches!(report.action, JobKind::Check | JobKind::Repair) => {
                        break report;
                    }
                    _ => core.sleep(Duration::from_micros(300)).await,
                }
            };
            assert_eq!(report.number, Some(number));
            array.stop(&core).await.expect("it stops");
            Ok(report)
        })
        .expect_done()
}

const CHECK: Job = Job::Check { range: None };

fn repair(source: Option<RepairSource>) -> Job {
    Job::Repair { range: None, source }
}

fn flip(drive: &DriveControl, sector: u64, at: u64) {
    let byte = drive.peek((OFFSET.0 + sector) * 512 + at, 1)[0];
    drive.poke((OFFSET.0 + sector) * 512 + at, &[byte ^ 0x40]);
}

#[test]
fn nothing_is_found_and_nothing_written_where_all_is_right() {
    for (number, &case) in CASES.iter().enumerate() {
        let mut fixture = Fixture::new(case, number as u64, 2);
        let model = fixture.populate(31);
        let controls: Vec<_> = fixture.slots().into_iter().map(|slot| fixture.drive(slot)).collect();
        controls.iter().for_each(DriveControl::record_writes);
        let spec = fixture.spec();
        let report = job(&mut fixture, spec, CHECK).unwrap();
        assert_eq!(
            (report.end, report.mismatch_sectors, report.unreadable_sectors),
            (JobEnd::Finished, 0, 0)
        );
        assert_eq!(report.done, fixture.geometry.sync_sectors());
        assert!(controls.iter().all(|drive| drive.take_write_log().is_empty()), "{case:?}");
        fixture.verify(&fixture.slots(), &model, "checked");
    }
}

#[test]
fn a_check_says_where_parity_is_wrong_and_on_raid6_who() {
    for &case in CASES.iter().filter(|case| !matches!(case.level, Level::Raid1 | Level::Raid10)) {
        for slot in 0..case.members {
            let mut fixture = Fixture::new(case, slot as u64, 2);
            let model = fixture.populate(32);
            // Two sectors side by side, one elsewhere.
            for sector in [100, 101, 203] {
                flip(&fixture.drive(slot), sector, 17 + sector);
            }
            let spec = fixture.spec();
            let report = job(&mut fixture, spec, CHECK).unwrap();
            assert_eq!(report.mismatch_sectors, 3, "{case:?}");
            let found: Vec<_> = report.mismatches.iter().map(|m| m.member.start.0..m.member.end.0).collect();
            assert_eq!(found, [100..102, 203..204], "{case:?}");
            let culprit = (case.level == Level::Raid6).then_some(MemberIx(slot as u16));
            for mismatch in &report.mismatches {
                assert_eq!((mismatch.kind, mismatch.culprit), (MismatchKind::Parity, culprit), "{case:?}");
                // The array sectors of a wrong data block are named exactly.
                let place = fixture.geometry.array_sector_at(MemberIx(slot as u16), mismatch.member.start);
                if let (Some(lba), Some(_)) = (place, culprit) {
                    assert_eq!(mismatch.array.start, lba);
                    assert_eq!(
                        mismatch.array.end - mismatch.array.start,
                        mismatch.member.end - mismatch.member.start
                    );
                } else if let Some(lba) = place {
                    assert!(mismatch.array.contains(&lba), "{case:?}: {mismatch:?}");
                }
            }
            // A check changes nothing.
            let spec = fixture.spec();
            let again = job(&mut fixture, spec, CHECK).unwrap();
            assert_eq!(again.mismatches, report.mismatches);
            // A repair that trusts the data makes all agree; where the data was right it is still.
            let spec = fixture.spec();
            let report = job(&mut fixture, spec, repair(Some(RepairSource::ParityFromData))).unwrap();
            assert_eq!((report.action, report.mismatch_sectors), (JobKind::Repair, 3));
            let data = fixture.agrees("repaired");
            let hit = [100, 101, 203].map(|sector| {
                fixture.geometry.array_sector_at(MemberIx(slot as u16), Sector(sector)).is_some()
            });
            let wrong = (0..data.len() / 512)
                .filter(|at| data[at * 512..][..512] != model[at * 512..][..512])
                .count();
            assert_eq!(wrong, hit.iter().filter(|hit| **hit).count(), "{case:?}");
            let spec = fixture.spec();
            assert_eq!(job(&mut fixture, spec, CHECK).unwrap().mismatch_sectors, 0);
        }
    }
}

#[test]
fn raid6_repairs_the_block_that_p_and_q_prove_wrong() {
    for &case in CASES.iter().filter(|case| case.level == Level::Raid6) {
        for slot in 0..case.members {
            let mut fixture = Fixture::new(case, slot as u64, 2);
            let model = fixture.populate(33);
            for sector in [0, 63, 64, 200] {
                flip(&fixture.drive(slot), sector, 3);
                flip(&fixture.drive(slot), sector, 400);
            }
            let spec = fixture.spec();
            let report = job(&mut fixture, spec, repair(Some(RepairSource::Raid6Culprit))).unwrap();
            assert_eq!(report.mismatch_sectors, 4);
            fixture.verify(&fixture.slots(), &model, "the odd block was rewritten");
        }
        // Two wrong blocks in a row prove nothing: they are reported and left.
        let mut fixture = Fixture::new(case, 1, 1);
        fixture.populate(34);
        flip(&fixture.drive(0), 50, 1);
        flip(&fixture.drive(1), 50, 2);
        let before: Vec<_> =
            fixture.slots().iter().map(|slot| fixture.drive(*slot).peek(0, 256 * 512)).collect();
        let spec = fixture.spec();
        let report = job(&mut fixture, spec, repair(Some(RepairSource::Raid6Culprit))).unwrap();
        assert_eq!((report.mismatch_sectors, report.mismatches[0].culprit), (1, None));
        let after: Vec<_> =
            fixture.slots().iter().map(|slot| fixture.drive(*slot).peek(0, 256 * 512)).collect();
        assert!(before == after, "{case:?}: something was written");
    }
}

#[test]
fn copies_that_differ_are_found_and_repaired_from_the_stated_copy() {
    for &case in CASES.iter().filter(|case| matches!(case.level, Level::Raid1 | Level::Raid10)) {
        let mut fixture = Fixture::new(case, 2, 2);
        let model = fixture.populate(35);
        // A copy of an array sector that is not the first: wrong on its own.
        let copies = fixture.geometry.copies(Sector(30));
        let (wrong, right) = (copies.as_slice()[1], copies.as_slice()[0]);
        flip(&fixture.drive(wrong.member.index()), wrong.sector.0, 9);
        let spec = fixture.spec();
        let report = job(&mut fixture, spec, CHECK).unwrap();
        assert_eq!(report.mismatches.len(), 1, "{case:?}: {report:?}");
        let mismatch = &report.mismatches[0];
        assert_eq!(mismatch.array, Sector(30)..Sector(31));
        assert_eq!(mismatch.kind, MismatchKind::Copies { differ: [wrong.member].into_iter().collect() });
        let three = copies.as_slice().len() > 2;
        assert_eq!(mismatch.culprit, three.then_some(wrong.member));
        // Two copies: it cannot be told which is right.
        if !three {
            let spec = fixture.spec();
            assert_eq!(job(&mut fixture, spec, repair(None)), Err(JobError::NeedsSource));
        }
        let spec = fixture.spec();
        let source = if three { None } else { Some(RepairSource::CopyFrom(right.member)) };
        assert_eq!(job(&mut fixture, spec, repair(source)).unwrap().mismatch_sectors, 1);
        fixture.verify(&fixture.slots(), &model, "repaired");
    }
}

/// The sectors that cannot be read are what a check is for: they get their content back.
#[test]
fn a_check_rewrites_what_cannot_be_read() {
    for &case in CASES {
        let mut fixture = Fixture::new(case, 3, 2);
        let model = fixture.populate(36);
        let sectors = [0, 90, 91, 255];
        for sector in sectors {
            fixture.drive(1).latent(OFFSET.0 + sector);
        }
        let spec = fixture.spec();
        let report = job(&mut fixture, spec, CHECK).unwrap();
        assert_eq!((report.mismatch_sectors, report.unreadable_sectors), (0, 0), "{case:?}");
        let kept = |sector: &u64| {
            fixture.geometry.kind() == LevelKind::Parity
                || fixture.geometry.array_sector_at(MemberIx(1), Sector(*sector)).is_some()
        };
        let kept: Vec<u64> = sectors.into_iter().filter(kept).collect();
        assert_eq!(report.repaired, kept.len() as u64, "{case:?}");
        assert!(kept.iter().all(|sector| !fixture.drive(1).is_unreadable(OFFSET.0 + sector)), "{case:?}");
        fixture.verify(&fixture.slots(), &model, "rewritten");
    }
}

#[test]
fn a_degraded_raid6_is_checked_with_what_is_left() {
    for missing in 0..5 {
        let case = CASES[7];
        let mut fixture = Fixture::new(case, 3, 1);
        fixture.populate(37);
        let wrong = (missing + 1) % 5;
        flip(&fixture.drive(wrong), 70, 0);
        let mut spec = fixture.spec();
        spec.members[missing] = MemberSpec::missing();
        let report = job(&mut fixture, spec, CHECK).unwrap();
        // A wrong P or Q is seen only against the other one; wrong data always.
        assert!(report.mismatch_sectors <= 1);
        let map = fixture.geometry.stripe(wattle_engine::units::StripeNo(70 / 16));
        let lone_parity = [Some(map.p()), map.q()].contains(&Some(MemberIx(missing as u16)));
        assert_eq!(report.mismatch_sectors, 1, "without {missing}, parity missing: {lone_parity}");
        assert_eq!(report.mismatches[0].culprit, None);
    }
}

#[test]
fn what_cannot_be_done_is_refused() {
    let mut fixture = Fixture::new(CASES[4], 1, 1);
    fixture.populate(38);
    let spec = fixture.spec();
    let degraded = {
        let mut spec = spec.clone();
        spec.members[0] = MemberSpec::missing();
        spec
    };
    assert_eq!(job(&mut fixture, degraded, CHECK), Err(JobError::NothingToCheck));
    let read_only = ArraySpec { read_only: true, ..spec.clone() };
    assert_eq!(job(&mut fixture, read_only, CHECK), Err(JobError::ReadOnly));
    let wrong = repair(Some(RepairSource::CopyFrom(MemberIx(0))));
    assert_eq!(job(&mut fixture, spec.clone(), wrong), Err(JobError::WrongSource));
    let beyond = Job::Check { range: Some(Sector(0)..Sector(1 << 40)) };
    assert_eq!(job(&mut fixture, spec, beyond), Err(JobError::OutOfRange));
    let mut raid6 = Fixture::new(CASES[6], 1, 1);
    let spec = raid6.spec();
    assert_eq!(job(&mut raid6, spec, repair(None)), Err(JobError::NeedsSource));
}

#[test]
fn a_part_is_checked_if_a_part_is_asked_for() {
    for &case in &[CASES[1], CASES[4], CASES[7], CASES[9]] {
        let mut fixture = Fixture::new(case, 1, 2);
        fixture.populate(39);
        let spec = fixture.spec();
        let part = Sector(64)..Sector(128);
        let report = job(&mut fixture, spec, Job::Check { range: Some(part.clone()) }).unwrap();
        assert_eq!(report.done, Sector(64), "{case:?}");
        assert_eq!((report.covered, report.whole), (part, fixture.geometry.sync_sectors()), "{case:?}");
    }
}

#[test]
fn pause_abort_and_the_speed_limit_do_what_they_say() {
    for &case in &[CASES[1], CASES[4], CASES[8], CASES[11]] {
        let mut fixture = Fixture::new(case, 5, 2);
        let model = fixture.populate(40);
        fixture.scribble(0, 90);
        let mut spec = fixture.spec();
        spec.members[0] = fixture.blank(0);
        let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
        fixture
            .world
            .run(async move |core: Core| {
                // 128 KiB at 1 MiB/s take an eighth of a second.
                let pace = Pace { min_bytes_per_second: 0, max_bytes_per_second: 1 << 20 };
                spec.tuning.sync.pace = pace;
                let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
                core.sleep(Duration::from_millis(50)).await;
                let status = array.status(&core).await.sync.expect("it is under way");
                let bytes = status.position.0 * 512;
                assert!((30 << 10..80 << 10).contains(&bytes), "{case:?}: {status:?}");
                assert!(status.time_left.is_some() && status.end == Sector(256));
                array.pause(&core, true).await;
                core.sleep(Duration::from_millis(20)).await;
                let paused = array.status(&core).await.sync.expect("it rests");
                assert!(paused.paused);
                let recorded = records.last().expect("the pause was recorded").seats[0].state;
                let at = wattle_engine::MemberState::Rebuilding { valid_below: paused.position };
                assert_eq!(recorded, at, "{case:?}");
                core.sleep(Duration::from_secs(3)).await;
                assert_eq!(array.status(&core).await.sync.map(|sync| sync.position), Some(paused.position));
                array.pause(&core, false).await;
                array.set_pace(&core, Pace { max_bytes_per_second: u64::MAX, ..pace }).await;
                let before = core.now();
                settled(&core, &array).await;
                assert!(core.now() - before < Duration::from_millis(40), "the limit was lifted");
                array.set_pace(&core, pace).await;
                // A check that is aborted leaves what it found until then.
                array.start_job(&core, CHECK).await.unwrap();
                core.sleep(Duration::from_millis(20)).await;
                array.abort_job(&core).await;
                core.sleep(Duration::from_millis(20)).await;
                let report = array.report(&core).await.expect("it ended");
                assert_eq!((report.action, report.end), (JobKind::Check, JobEnd::Aborted));
                assert!(report.done > Sector(0) && report.done < Sector(200), "{case:?}: {report:?}");
                // And one that runs does not hold up a stop.
                array.start_job(&core, CHECK).await.unwrap();
                core.sleep(Duration::from_millis(5)).await;
                let before = core.now();
                array.stop(&core).await.expect("it stops");
                assert!(core.now() - before < Duration::from_millis(20));
            })
            .expect_done();
        fixture.verify(&fixture.slots(), &model, "in the end");
    }
}

/// What was found before a member joined is neither lost nor found by a run of its own.
#[test]
fn a_check_that_a_recovery_interrupts_is_one_run_and_keeps_what_it_found() {
    for abort in [false, true] {
        let mut fixture = Fixture::new(CASES[7], 5, 2);
        fixture.populate(42);
        flip(&fixture.drive(0), 0, 7);
        let (spec, newcomer) = (fixture.spec(), fixture.blank(fixture.case.members));
        let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
        let whole = fixture.geometry.sync_sectors();
        fixture
            .world
            .run(async move |core: Core| {
                let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
                array.fail(&core, MemberIx(4)).await.expect("redundancy covers it");
                let pace = Pace { min_bytes_per_second: 0, max_bytes_per_second: 1 << 20 };
                array.set_pace(&core, pace).await;
                array.start_job(&core, CHECK).await.unwrap();
                core.sleep(Duration::from_millis(50)).await;
                assert!(array.status(&core).await.sync.is_some_and(|sync| sync.mismatch_sectors > 0));
                array.add(&core, MemberIx(4), newcomer).await.expect("the slot is free");
                core.sleep(Duration::from_millis(10)).await;
                assert_eq!(array.status(&core).await.sync.map(|sync| sync.action), Some(JobKind::Recover));
                if abort {
                    array.abort_job(&core).await;
                    core.sleep(Duration::from_millis(20)).await;
                    assert!(!array.job_is_asked_for(&core).await, "it is taken back at once");
                } else {
                    array.set_pace(&core, Pace { max_bytes_per_second: u64::MAX, ..pace }).await;
                    settled(&core, &array).await;
                }
                let report = array.report(&core).await.expect("it ended");
                let end = if abort { JobEnd::Aborted } else { JobEnd::Finished };
                assert_eq!((report.action, report.end, report.mismatch_sectors), (JobKind::Check, end, 1));
                assert_eq!(report.covered == (Sector(0)..whole), !abort, "{report:?}");
                assert_eq!((report.covered.start, report.whole), (Sector(0), whole));
                array.stop(&core).await.expect("it stops");
            })
            .expect_done();
    }
}

/// Its end is waited for, and says how it was.
#[test]
fn a_check_that_never_begins_ends_all_the_same() {
    for (breaks, paused) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut fixture = Fixture::new(CASES[4], 7, 2);
        fixture.populate(43);
        let (spec, whole) = (fixture.spec(), fixture.geometry.sync_sectors());
        let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
        let controls = [fixture.drive(0), fixture.drive(1)];
        fixture
            .world
            .run(async move |core: Core| {
                let mut spec = ArraySpec { synced_below: Sector(0), ..spec };
                spec.tuning.sync.pace = Pace { min_bytes_per_second: 0, max_bytes_per_second: 256 << 10 };
                let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
                let number = array.start_job(&core, CHECK).await.expect("it waits for the resync");
                core.sleep(Duration::from_millis(10)).await;
                array.pause(&core, paused).await;
                if breaks {
                    controls.iter().for_each(DriveControl::gone_now);
                    let volume = array.volume().open(&core).expect("it runs");
                    let (_, _) = volume.read(0, BufMut::alloc(volume.size_bytes() as usize)).await;
                } else {
                    array.abort_job(&core).await;
                }
                core.sleep(Duration::from_secs(1)).await;
                let status = array.status(&core).await;
                assert_eq!(status.broken, breaks);
                let [end] = &status.asked_ends[..] else { panic!("{:?}", status.asked_ends) };
                assert_eq!((end.number, end.action), (Some(number), JobKind::Check));
                assert_eq!((end.covered.clone(), end.whole), (Sector(0)..Sector(0), whole));
                assert_eq!(matches!(end.end, JobEnd::Failed(_)), breaks, "{end:?}");
                let _ = array.stop(&core).await;
            })
            .expect_done();
    }
}

/// What needs the array to itself gets it, in the middle of everything.
#[test]
fn exclusive_requests_pass_between_steps() {
    for &case in CASES {
        let mut fixture = Fixture::new(case, 6, 3);
        let mut model = fixture.populate(41);
        let mut spec = fixture.spec();
        fixture.scribble(0, 89);
        spec.members[0] = fixture.blank(0);
        let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
        fixture
            .world
            .run(async move |core: Core| {
                let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
                let volume = array.volume().open(&core).expect("it runs");
                for at in 0..20 {
                    let unmap = wattle_rt::Unmap::No;
                    let zeroed =
                        volume.write_zeroes(at * 1111, 700, unmap, wattle_rt::Durability::Cached).await;
                    assert_eq!(zeroed, Ok(()));
                }
                settled(&core, &array).await;
                array.stop(&core).await.expect("it stops");
            })
            .expect_done();
        for at in 0..20 {
            model[at * 1111..at * 1111 + 700].fill(0);
        }
        fixture.verify(&fixture.slots(), &model, "in the end");
    }
}

/// What is said to have been repaired was written.
#[test]
fn a_repair_counts_what_it_made_to_agree_and_nothing_else() {
    let raid1 = CASES.iter().find(|case| case.level == Level::Raid1 && case.members == 3).unwrap();
    let raid10 = CASES.iter().find(|case| case.level == Level::Raid10 && case.layout == 0x102).unwrap();
    let raid6 = CASES.iter().find(|case| case.level == Level::Raid6 && case.members == 5).unwrap();
    let from = |slot| Some(RepairSource::CopyFrom(MemberIx(slot)));
    // The slot with the wrong sector, one that is missing, the source, and what it can mend.
    let rows = [
        (raid1, 2, None, from(0), 1),
        (raid1, 2, Some(1), from(1), 0),
        (raid1, 2, None, Some(RepairSource::Majority), 1),
        (raid10, 3, None, from(0), 0),
        (raid10, 3, None, from(2), 1),
        (raid6, 1, None, Some(RepairSource::ParityFromData), 1),
        (raid6, 1, Some(4), Some(RepairSource::ParityFromData), 0),
    ];
    for (case, wrong, missing, source, mended) in rows {
        let mut fixture = Fixture::new(*case, 8, 2);
        fixture.populate(40);
        flip(&fixture.drive(wrong), 100, 5);
        let mut spec = fixture.spec();
        missing.into_iter().for_each(|slot: usize| spec.members[slot] = MemberSpec::missing());
        let report = job(&mut fixture, spec.clone(), repair(source)).unwrap();
        let found = (report.mismatch_sectors, report.agreed_sectors);
        assert_eq!(found, (1, mended), "{case:?} {missing:?} {source:?}");
        let report = job(&mut fixture, spec, CHECK).unwrap();
        assert_eq!(report.mismatch_sectors, 1 - mended, "{case:?} {missing:?} {source:?}");
    }
}

#[test]
fn what_had_nothing_to_be_compared_with_is_told() {
    let raid5 = CASES.iter().find(|case| case.level == Level::Raid5 && case.members == 4).unwrap();
    let raid1 = CASES.iter().find(|case| case.level == Level::Raid1 && case.members == 2).unwrap();
    let raid10 = CASES.iter().find(|case| case.level == Level::Raid10 && case.layout == 0x102).unwrap();
    for case in [raid5, raid1] {
        let mut fixture = Fixture::new(*case, 9, 2);
        fixture.populate(41);
        let mut spec = fixture.spec();
        spec.members[1].bad = [Sector(100)..Sector(104)].into_iter().collect();
        let report = job(&mut fixture, spec, CHECK).unwrap();
        assert_eq!((report.mismatch_sectors, report.alone_sectors), (0, 4), "{case:?}");
    }
    // One pair has lost a member; then each has.
    let mut fixture = Fixture::new(*raid10, 10, 2);
    fixture.populate(42);
    let mut spec = fixture.spec();
    spec.members[1] = MemberSpec::missing();
    let report = job(&mut fixture, spec.clone(), CHECK).unwrap();
    let half = fixture.geometry.array_sectors().0 / 2;
    assert_eq!((report.mismatch_sectors, report.alone_sectors), (0, half));
    spec.members[3] = MemberSpec::missing();
    assert_eq!(job(&mut fixture, spec, CHECK), Err(JobError::NothingToCheck));
}

/// A drive that loses its cache right after a repair was reported.
#[test]
fn what_is_reported_repaired_is_durable() {
    for &case in CASES.iter().filter(|case| case.level == Level::Raid6 || case.level == Level::Raid1) {
        let mut fixture = Fixture::new(case, 11, 1);
        let model = fixture.populate(43);
        flip(&fixture.drive(1), 100, 5);
        let source = match case.level {
            Level::Raid1 => RepairSource::CopyFrom(MemberIx(0)),
            _ => RepairSource::Raid6Culprit,
        };
        let (spec, drives, records) = (fixture.spec(), fixture.drives.clone(), fixture.records.clone());
        let control = fixture.drive(1);
        let run = fixture.world.run(async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
            array.start_job(&core, repair(Some(source))).await.unwrap();
            while array.report(&core).await.is_none_or(|report| report.action != JobKind::Repair) {
                core.sleep(Duration::from_micros(100)).await;
            }
            control.lose_cache();
            array.stop(&core).await.unwrap();
        });
        run.expect_done();
        fixture.verify(&fixture.slots(), &model, "repaired, and then without what was not durable");
    }
}

#[test]
fn what_a_member_did_not_take_is_not_called_repaired() {
    let raid5 = CASES.iter().find(|case| case.level == Level::Raid5 && case.members == 4).unwrap();
    let raid1 = CASES.iter().find(|case| case.level == Level::Raid1 && case.members == 3).unwrap();
    for (case, source) in
        [(raid5, RepairSource::ParityFromData), (raid1, RepairSource::CopyFrom(MemberIx(0)))]
    {
        let mut fixture = Fixture::new(*case, 12, 1);
        fixture.populate(44);
        let slot = match case.level {
            Level::Raid5 => fixture.geometry.stripe(StripeNo(0)).p().index(),
            _ => 2,
        };
        flip(&fixture.drive(slot), 0, 5);
        fixture.drive(slot).fail_next_writes(1);
        let spec = fixture.spec();
        let report = job(&mut fixture, spec, repair(Some(source))).unwrap();
        assert_eq!((report.mismatch_sectors, report.agreed_sectors), (1, 0), "{case:?}");
    }
}
