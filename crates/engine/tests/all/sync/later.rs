//! Copies that writes leave to the recovery: they come in the end, whatever happens on the way.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use wattle_engine::geometry::LevelKind;
use wattle_engine::units::Sector;
use wattle_engine::{ArrayHandle, ArraySpec, MemberSpec, MemberState, Regions, Volume};
use wattle_rt::{BufMut, Core, Durability, Rng};

use super::world::{CASES, Fixture, MEMBER_SECTORS, OFFSET, settled};
use crate::support::case::Case;

type Model = Rc<RefCell<Vec<u8>>>;

fn mirrored() -> impl Iterator<Item = Case> {
    CASES.iter().copied().filter(|case| Fixture::new(*case, 0, 1).geometry.kind() == LevelKind::Mirrored)
}

async fn write(volume: &Volume, model: &Model, at: u64, len: u64, rng: &mut Rng) {
    let mut buf = BufMut::alloc(len as usize);
    rng.fill(&mut buf);
    model.borrow_mut()[at as usize..(at + len) as usize].copy_from_slice(&buf);
    assert_eq!(volume.write(at, buf.freeze(), Durability::Cached).await, Ok(()));
}

/// All of an array, anew, in pieces that no chunk's end cuts.
async fn write_all(volume: &Volume, model: &Model) {
    for at in (0..volume.size_bytes()).step_by(4096) {
        let len = 4096.min(volume.size_bytes() - at);
        write(volume, model, at, len, &mut Rng::new(at)).await;
    }
}

/// Several writers, each at random in its part of the array: as long as it takes to fill a member
/// slowly, and longer.
async fn write_beside(core: &Core, volume: &Volume, model: &Model, seed: u64) {
    let part = volume.size_bytes() / 4 / 512 * 512;
    let writers: Vec<_> = (0..4u64)
        .map(|number| {
            let (core, volume, model) = (core.clone(), volume.clone(), model.clone());
            core.clone().spawn(async move {
                let mut rng = Rng::new(seed << 8 | number);
                let end = core.now() + Duration::from_millis(80);
                while core.now() < end {
                    let at = rng.below(part / 512) * 512;
                    let len = (512 * (1 + rng.below(24))).min(part - at);
                    write(&volume, &model, number * part + at, len, &mut rng).await;
                    core.sleep(Duration::from_micros(rng.below(1500))).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await;
    }
}

/// Steps of a few blocks, for some 30 ms in all.
fn slowly(mut spec: ArraySpec) -> ArraySpec {
    spec.tuning.sync.pace.max_bytes_per_second = 4 << 20;
    spec
}

#[test]
fn a_write_beyond_the_position_leaves_out_the_member_that_is_filled() {
    let position = MEMBER_SECTORS / 2;
    for case in mirrored() {
        let mut fixture = Fixture::new(case, 1, 2);
        let model = fixture.populate(31);
        fixture
            .drive(1)
            .poke((OFFSET.0 + position) * 512, &vec![0x55; (MEMBER_SECTORS - position) as usize * 512]);
        let control = fixture.drive(1);
        let mut spec = fixture.spec();
        spec.members[1].state = MemberState::Rebuilding { valid_below: Sector(position) };
        spec.tuning.sync.frozen = true;
        let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
        let model: Model = Rc::new(RefCell::new(model));
        let shared = model.clone();
        let written = fixture
            .world
            .run(async move |core: Core| {
                let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
                let volume = array.volume().open(&core).expect("it runs");
                control.record_writes();
                write_all(&volume, &shared).await;
                let written = control.take_write_log();
                array.freeze(&core, false).await;
                settled(&core, &array).await;
                array.stop(&core).await.expect("it stops");
                written
            })
            .expect_done();
        let border = (OFFSET.0 + position) * 512;
        assert!(written.iter().all(|write| write.offset_bytes + write.len_bytes <= border), "{case:?}");
        let below: u64 = written.iter().map(|write| write.len_bytes).sum();
        let held = (0..position).filter(|sector| fixture.right(1, *sector, &model.borrow()).is_some());
        assert_eq!(below, held.count() as u64 * 512, "{case:?}: what is filled gets every write");
        fixture.verify(&fixture.slots(), &model.borrow(), "in the end");
    }
}

/// Nothing but what it missed is copied to it, so it must not miss more.
#[test]
fn a_member_that_gets_only_what_it_missed_gets_every_write() {
    for case in mirrored() {
        let mut fixture = Fixture::new(case, 2, 2);
        let model: Model = Rc::new(RefCell::new(fixture.populate(32)));
        let mut stale = Regions::new(Sector(16), fixture.geometry.sync_sectors());
        stale.insert(2);
        let mut spec = fixture.spec();
        spec.members[1] = MemberSpec { stale: Some(stale), ..fixture.blank(1) };
        spec.tuning.sync.frozen = true;
        let (drives, records, shared) = (fixture.drives.clone(), fixture.records.clone(), model.clone());
        fixture
            .world
            .run(async move |core: Core| {
                let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
                write_all(&array.volume().open(&core).expect("it runs"), &shared).await;
                array.stop(&core).await.expect("it stops");
            })
            .expect_done();
        fixture.verify(&fixture.slots(), &model.borrow(), "as written");
    }
}

#[test]
fn writers_beside_a_slow_recovery_leave_copies_that_agree() {
    for (number, case) in mirrored().enumerate() {
        for seed in 0..12 {
            let mut fixture = Fixture::new(case, seed, 1 + seed as usize % 3);
            let model: Model = Rc::new(RefCell::new(fixture.populate(33)));
            let slot = (number + seed as usize) % case.members;
            fixture.scribble(slot, 90);
            let mut spec = slowly(fixture.spec());
            spec.members[slot] = fixture.blank(slot);
            let control = fixture.drive(slot);
            let (drives, records, shared) = (fixture.drives.clone(), fixture.records.clone(), model.clone());
            fixture
                .world
                .run(async move |core: Core| {
                    let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
                    let volume = array.volume().open(&core).expect("it runs");
                    write_beside(&core, &volume, &shared, seed).await;
                    // Stopped in the middle and taken up again, it goes on from where it was.
                    array.pause(&core, true).await;
                    write_beside(&core, &volume, &shared, !seed).await;
                    array.pause(&core, false).await;
                    settled(&core, &array).await;
                    array.stop(&core).await.expect("it stops");
                })
                .expect_done();
            assert!(control.totals().writes > 0);
            fixture.verify(&fixture.slots(), &model.borrow(), "beside writers");
        }
    }
}

/// The copy of a working member has left out what it would have got later; then that member is
/// gone.
#[test]
fn a_replacement_becomes_whole_though_whom_it_replaces_fails_in_the_middle() {
    for (number, &case) in CASES.iter().enumerate() {
        for seed in 0..4 {
            let mut fixture = Fixture::new(case, seed, 1 + seed as usize % 3);
            let model: Model = Rc::new(RefCell::new(fixture.populate(34)));
            let (slot, spare) = ((number + seed as usize) % case.members, case.members);
            fixture.scribble(spare, 89);
            let mut spec = slowly(fixture.spec());
            spec.replacements = vec![MemberSpec::missing(); case.members];
            spec.replacements[slot] = fixture.blank(spare);
            let original = fixture.drive(slot);
            let (drives, records, shared) = (fixture.drives.clone(), fixture.records.clone(), model.clone());
            fixture
                .world
                .run(async move |core: Core| {
                    let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
                    let volume = array.volume().open(&core).expect("it runs");
                    core.spawn({
                        let core = core.clone();
                        async move {
                            core.sleep(Duration::from_millis(4 + 5 * seed)).await;
                            original.gone_now();
                        }
                    });
                    write_beside(&core, &volume, &shared, seed).await;
                    let status = settled(&core, &array).await;
                    assert_eq!(status.members[slot].state, MemberState::InSync);
                    assert_eq!(status.replacements[slot].state, MemberState::Faulty);
                    array.stop(&core).await.expect("it stops");
                })
                .expect_done();
            let mut drives = fixture.slots();
            drives[slot] = spare;
            fixture.verify(&drives, &model.borrow(), "replaced");
        }
    }
}
