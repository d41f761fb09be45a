//! What is durable before a repair writes: members that are away are counted out, and have bits
//! for it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use wattle_engine::geometry::{Level, LevelKind};
use wattle_engine::intent::IntentSpec;
use wattle_engine::metadata::{ArrayRecord, LocalBoxFuture, Metadata};
use wattle_engine::units::{MemberIx, MemberSet, Sector};
use wattle_engine::{ArrayHandle, Job, MemberState, Regions, RepairSource};
use wattle_rt::{Core, DriveControl};

use super::world::{CASES, Fixture, OFFSET};

const REGION: Sector = Sector(32);

/// What was to be made durable, and how many writes of data there were before.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Record { dirty: bool, in_use: usize },
    Mark(Vec<u64>),
    Unmark(Vec<u64>),
}

struct Listener {
    drives: Vec<DriveControl>,
    told: Rc<RefCell<Vec<(Told, usize)>>>,
}

impl Listener {
    fn hear(&self, told: Told) {
        let writes = self.drives.iter().map(|drive| drive.take_write_log().len()).sum();
        self.told.borrow_mut().push((told, writes));
    }
}

impl Metadata for Listener {
    fn commit<'a>(&'a self, record: &'a ArrayRecord) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        let in_use = record.seats.iter().filter(|seat| seat.state == MemberState::InSync).count();
        self.hear(Told::Record { dirty: record.dirty, in_use });
        Box::pin(async { Ok(()) })
    }

    fn mark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        self.hear(Told::Mark(regions.to_vec()));
        Box::pin(async { Ok(()) })
    }

    fn unmark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        self.hear(Told::Unmark(regions.to_vec()));
        Box::pin(async { Ok(()) })
    }
}

/// Repairs an array whose member in slot 0 differs in a sector, if it does. Says what was made
/// durable before which write.
fn told(fixture: &mut Fixture, missing: &[usize], differs: Option<u64>, bitmap: bool) -> Vec<(Told, usize)> {
    fixture.populate(7);
    if let Some(sector) = differs {
        let at = (OFFSET.0 + sector) * 512;
        let byte = fixture.drive(0).peek(at, 1)[0];
        fixture.drive(0).poke(at, &[byte ^ 0x11]);
    }
    let mut spec = fixture.spec();
    missing.iter().for_each(|slot| spec.members[*slot] = wattle_engine::MemberSpec::missing());
    let marked = Regions::new(REGION, fixture.geometry.sync_sectors());
    spec.intent = bitmap.then_some(IntentSpec { marked, sweep: Duration::from_millis(2) });
    let source = match fixture.geometry.kind() {
        LevelKind::Parity => RepairSource::ParityFromData,
        _ => RepairSource::CopyFrom(MemberIx(0)),
    };
    let drives: Vec<_> = (0..fixture.case.members).map(|slot| fixture.drive(slot)).collect();
    drives.iter().for_each(DriveControl::record_writes);
    let told: Rc<RefCell<Vec<(Told, usize)>>> = Rc::default();
    let listener = Listener { drives: drives.clone(), told: told.clone() };
    fixture
        .world
        .run(async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, Box::new(listener)).await;
            array.start_job(&core, Job::Repair { range: None, source: Some(source) }).await.unwrap();
            while array.report(&core).await.is_none() {
                core.sleep(Duration::from_micros(300)).await;
            }
            array.stop(&core).await.expect("it stops");
        })
        .expect_done();
    Rc::unwrap_or_clone(told).into_inner()
}

#[test]
fn a_repair_is_recorded_before_it_writes() {
    for (number, &case) in CASES.iter().enumerate() {
        for bitmap in [false, true] {
            let mut fixture = Fixture::new(case, number as u64, 2);
            let told = told(&mut fixture, &[], Some(100), bitmap);
            let record = Told::Record { dirty: false, in_use: case.members };
            assert_eq!(told[0], (record, 0), "{case:?}: {told:?}");
            if bitmap {
                let (Told::Mark(regions), 0) = &told[1] else { panic!("{case:?}: {told:?}") };
                assert!(!regions.is_empty());
            }
            let records = told.iter().filter(|(what, _)| matches!(what, Told::Record { .. }));
            assert_eq!(records.count(), 1, "a resync after a crash would choose: {told:?}");
            fixture.agrees("repaired");
        }
    }
}

#[test]
fn a_repair_that_finds_nothing_records_nothing() {
    for (number, &case) in CASES.iter().enumerate() {
        let mut fixture = Fixture::new(case, number as u64, 2);
        assert_eq!(told(&mut fixture, &[], None, true), [], "{case:?}");
    }
}

/// A member that is away is counted out, and what was changed without it stays marked.
#[test]
fn a_repair_counts_out_members_that_are_away() {
    for &case in CASES.iter().filter(|case| case.level == Level::Raid1 && case.members == 3) {
        let mut fixture = Fixture::new(case, 3, 2);
        let told = told(&mut fixture, &[2], Some(100), true);
        assert_eq!(told[0], (Told::Record { dirty: false, in_use: 2 }, 0));
        assert_eq!(told[1], (Told::Mark(vec![3]), 0));
        assert!(!told.iter().any(|(what, _)| matches!(what, Told::Unmark(_))), "{told:?}");
    }
}
