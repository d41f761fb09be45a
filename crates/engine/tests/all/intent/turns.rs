//! A bitmap that comes, goes, and becomes another one while the array runs.

use wattle_engine::planted::{self, Bug};

use super::*;

/// Takes the bitmap away and brings another one, again and again.
pub(super) async fn turn(
    core: Core,
    array: ArrayHandle,
    (records, drives): (Rc<Records>, Vec<DriveControl>),
    total: Sector,
    seed: u64,
) {
    let mut rng = Rng::new(seed ^ 0x7475_726e);
    loop {
        core.sleep(Duration::from_micros(rng.below(4000))).await;
        let turns = records.turns.get();
        let on = turns % 2 == 1;
        let region = region_of(kept_after(turns));
        let spec = on.then(|| IntentSpec { marked: Regions::full(region, total), sweep: SWEEP });
        if array.set_intent(&core, spec).await.is_err() {
            return;
        }
        if rng.below(2) == 0 {
            // What is in flight now still is when the next sweep looks.
            drives[rng.below(drives.len() as u64) as usize].stall(SWEEP * 3);
        }
    }
}

/// A bitmap that comes and goes under load: a member that says there is one has all of its bits.
#[test]
fn whenever_the_power_goes_a_bitmap_that_came_and_went_is_whole() {
    let (mut turns, mut differing, mut cleared) = (0, 0, 0);
    for (case, seed) in CASES.into_iter().flat_map(|case| (300..360).map(move |seed| (case, seed))) {
        let cut = 1 + Rng::new(seed * 977).below(1800);
        let fixture = life_with(case, seed, cut, Mutant::No, seed % 4 == 0, true);
        fixture.check(&format!("seed {seed} cut {cut}"));
        turns += fixture.records.turns.get();
        cleared += fixture.records.unmarks.get();
        differing += usize::from(
            (0..case.members).any(|slot| fixture.lacking(slot).is_some_and(|(d, _)| !d.is_empty())),
        );
    }
    assert!(
        turns > 500 && cleared > 100 && differing > 50,
        "{turns} turns, {cleared} times cleared, {differing} lives in which something differs"
    );
}

#[test]
fn a_bitmap_that_is_recorded_without_its_bits_is_caught() {
    let mut lives = CASES.into_iter().flat_map(|case| (300..400).map(move |seed| (case, seed)));
    let caught = lives.any(|(case, seed)| {
        let cut = 1 + Rng::new(seed * 977).below(1800);
        let fixture = life_with(case, seed, cut, Mutant::TurnWithout, false, true);
        let mut lacking = (0..case.members).filter_map(|slot| fixture.lacking(slot));
        lacking.any(|(differing, set)| !differing.is_subset(&set))
    });
    assert!(caught, "nothing notices {:?}", Mutant::TurnWithout);
}

/// Sweeps know of no write that was in flight before: its bits could be cleared under it.
#[test]
fn a_bitmap_comes_and_goes_with_nothing_in_flight() {
    let turns_beside_a_write = |case: Case, on: bool| {
        let mut fixture = Fixture::new(case, 1, 2);
        let (start, records, drives) = (fixture.starter(), fixture.records.clone(), fixture.drives());
        let full = || IntentSpec { marked: Regions::full(REGION, fixture.marked.total()), sweep: SWEEP };
        let (spec, before) = (on.then(full), (!on).then(full));
        fixture
            .world
            .run(async move |core: Core| {
                let array = start(&core).await;
                write(&core, &array.volume(), 0, 1, 1).await;
                array.set_intent(&core, before).await.unwrap();
                let turns = records.turns.get();
                drives.iter().for_each(|drive| drive.stall(SWEEP));
                let volume = array.volume().open(&core).unwrap();
                let write = async move { volume.write(0, Buf::zeros(512), Durability::Cached).await };
                let written = core.spawn(write);
                core.sleep(SWEEP / 8).await;
                let (setter, set) = (core.clone(), array.clone());
                let set = core.spawn(async move { set.set_intent(&setter, spec).await });
                core.sleep(SWEEP / 2).await;
                let beside = records.turns.get() - turns;
                let written = written.await.is_ok();
                assert_eq!(set.await, Ok(()));
                assert_eq!(records.turns.get() - turns, 1);
                array.stop(&core).await.unwrap();
                (beside, written)
            })
            .expect_done()
    };
    for (case, on) in CASES.into_iter().flat_map(|case| [(case, true), (case, false)]) {
        assert_eq!(turns_beside_a_write(case, on), (0, true), "{case:?} {on}");
        let _planted = planted::plant(&[Bug::IntentInFlight]);
        assert_eq!(turns_beside_a_write(case, on).0, 1, "{case:?} {on}: nothing notices");
    }
}
