//! Where several members lack something, each in its own place: redundancy that others need is not
//! given up for troubles that it can bear.

use std::time::Duration;

use wattle_engine::geometry::Level;
use wattle_engine::units::{MemberIx, Sector, StripeNo};
use wattle_engine::{ArrayHandle, ArraySpec, ArrayStatus, MemberSpec, MemberState, Volume};
use wattle_rt::{Buf, BufMut, Core, Durability};

use super::world::{Fixture, OFFSET, settled};
use crate::support::case::{Case, case};

const CHUNK: u64 = 8;
const RAID5: Case = case(Level::Raid5, 2, 4, CHUNK);
const RAID1: Case = case(Level::Raid1, 0, 2, 0);
const RAID10: Case = case(Level::Raid10, 0x102, 4, CHUNK);

fn run<T>(
    fixture: &mut Fixture,
    spec: ArraySpec,
    main: impl AsyncFnOnce(Core, ArrayHandle, Volume) -> T,
) -> T {
    let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
    let run = fixture.world.run(async move |core: Core| {
        let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
        let volume = array.volume().open(&core).unwrap();
        let outcome = main(core.clone(), array.clone(), volume).await;
        array.stop(&core).await.unwrap();
        outcome
    });
    run.expect_done()
}

async fn content(volume: &Volume) -> Vec<u8> {
    let (result, buf) = volume.read(0, BufMut::alloc(volume.size_bytes() as usize)).await;
    result.unwrap();
    buf.to_vec()
}

fn states(status: &ArrayStatus) -> Vec<MemberState> {
    status.members.iter().map(|member| member.state).collect()
}

/// What a member has in this stripe, as a sector of the array.
fn lba_of(fixture: &Fixture, slot: usize, sector: u64) -> Option<Sector> {
    fixture.geometry.array_sector_at(MemberIx(slot as u16), Sector(sector))
}

#[test]
fn a_member_with_many_bad_sectors_that_makes_up_for_listed_ones_of_another_stays() {
    for case in [RAID5, RAID1] {
        let mut fixture = Fixture::new(case, 1, 2);
        let model = fixture.populate(3);
        let mut spec = fixture.spec();
        spec.members[1].bad = [Sector(200)..Sector(208)].into_iter().collect();
        fixture.drive(1).poke((OFFSET.0 + 200) * 512, &[0xee; 8 * 512]);
        // Each of its own, in rows of which the others have everything.
        let drive = fixture.drive(0);
        (0..120).step_by(2).for_each(|sector| drive.latent(OFFSET.0 + sector));
        run(&mut fixture, spec, async |core, array, volume| {
            assert!(content(&volume).await == model, "{case:?}");
            assert!(states(&array.status(&core).await).iter().all(|state| *state == MemberState::InSync));
            assert!(content(&volume).await == model, "{case:?}");
        });
    }
}

#[test]
fn a_refused_write_costs_sectors_where_the_member_makes_up_for_others() {
    for case in [RAID5, RAID1, RAID10] {
        let mut fixture = Fixture::new(case, 2, 2);
        let mut model = fixture.populate(4);
        let mut spec = fixture.spec();
        spec.members[1].bad = [Sector(200)..Sector(208)].into_iter().collect();
        fixture.drive(1).poke((OFFSET.0 + 200) * 512, &[0xee; 8 * 512]);
        let drive = fixture.drive(0);
        let lba = (0..8).find_map(|chunk| lba_of(&fixture, 0, chunk * CHUNK)).unwrap();
        let at = lba.0 as usize * 512;
        model[at..at + 4096].fill(0x77);
        let status = run(&mut fixture, spec, async |core, array, volume| {
            drive.fail_next_writes(1);
            volume.write(at as u64, Buf::copy_of(&[0x77; 4096]), Durability::Cached).await.unwrap();
            assert!(content(&volume).await == model, "{case:?}");
            array.status(&core).await
        });
        assert!(states(&status).iter().all(|state| *state == MemberState::InSync), "{case:?}");
        assert_eq!(status.members[0].bad_sectors, 8, "{case:?}");
        // And so it was recorded before the write was acknowledged.
        let record =
            fixture.records.0.borrow().iter().find(|record| !record.seats[0].bad.is_empty()).cloned();
        assert!(record.is_some_and(|record| record.dirty), "{case:?}");
    }
}

/// Neither the data nor what it could be made from: the client is told.
#[test]
fn a_refused_write_where_nothing_else_has_it_is_an_error() {
    for case in [RAID5, RAID1, RAID10] {
        let mut fixture = Fixture::new(case, 3, 1);
        let model = fixture.populate(5);
        let lba = (0..8).find_map(|chunk| lba_of(&fixture, 0, chunk * CHUNK)).unwrap();
        let sector = match case.level {
            Level::Raid5 => fixture.geometry.data_place(lba).sector,
            _ => fixture.geometry.copies(lba).iter().find(|copy| copy.member.0 == 1).unwrap().sector,
        };
        let mut spec = fixture.spec();
        // Of the same row, and another one that member 0 makes up for.
        let other = Sector(sector.0 + 5 * CHUNK);
        let bad = [sector..sector + Sector(8), other..other + Sector(8)];
        spec.members[1].bad = bad.iter().cloned().collect();
        let (drive, elsewhere) = (fixture.drive(0), lba_of(&fixture, 1, other.0));
        run(&mut fixture, spec, async |core, array, volume| {
            // Only the write to member 0 fails; what is listed on the other takes it.
            drive.fail_next_writes(1);
            let written = volume.write(lba.0 * 512, Buf::copy_of(&[0x77; 4096]), Durability::Cached).await;
            if case.level == Level::Raid5 {
                written.unwrap_err();
            } else {
                // The other copy took it, and is listed no more.
                written.unwrap();
            }
            let status = array.status(&core).await;
            assert!(!status.broken && states(&status)[0] == MemberState::InSync, "{case:?} {status:?}");
            // What member 0 makes up for elsewhere is still there.
            if let Some(lba) = elsewhere {
                let (result, buf) = volume.read(lba.0 * 512, BufMut::alloc(4096)).await;
                result.unwrap();
                assert!(buf[..] == model[lba.0 as usize * 512..][..4096], "{case:?}");
            }
        });
    }
}

/// After a crash, before its resync: no member can be made up for.
#[test]
fn bad_sectors_do_not_break_an_array_whose_parity_is_not_trusted_yet() {
    let mut fixture = Fixture::new(RAID5, 4, 2);
    let model = fixture.populate(6);
    let mut spec = fixture.spec();
    spec.synced_below = Sector(0);
    spec.unclean = true;
    let drive = fixture.drive(0);
    let parity = |sector: &u64| lba_of(&fixture, 0, *sector).is_none();
    let bad: Vec<u64> = (0..128).step_by(2).filter(parity).collect();
    assert!(!bad.is_empty());
    (0..128).step_by(2).for_each(|sector| drive.latent(OFFSET.0 + sector));
    run(&mut fixture, spec, async |core, array, volume| {
        for _ in 0..200 {
            core.sleep(Duration::from_millis(1)).await;
        }
        let status = array.status(&core).await;
        assert!(!status.broken, "{status:?}");
        let lba = 150 * 3;
        volume.write(lba * 512, Buf::copy_of(&[9; 512]), Durability::Cached).await.unwrap();
        let (result, buf) = volume.read(lba * 512 + 512, BufMut::alloc(512)).await;
        result.unwrap();
        assert!(buf[..] == model[(lba as usize + 1) * 512..][..512]);
    });
}

/// The new drive would hold less than the one that it replaces.
#[test]
fn a_replacement_that_does_not_take_a_write_fails_and_the_member_stays() {
    for (case, missing) in [(RAID1, true), (RAID1, false), (RAID5, false)] {
        let mut fixture = Fixture::new(case, 5, 1);
        let model = fixture.populate(7);
        let mut spec = fixture.spec();
        if missing {
            spec.members[1] = MemberSpec::missing();
        }
        let (new, control) = (fixture.blank(case.members), fixture.drive(case.members));
        let status = run(&mut fixture, spec, async |core, array, volume| {
            control.fail_next_writes(1);
            array.replace(&core, MemberIx(0), new).await.unwrap();
            let status = settled(&core, &array).await;
            assert!(content(&volume).await == model, "{case:?}");
            status
        });
        assert_eq!(states(&status)[0], MemberState::InSync, "{case:?}");
        assert_eq!(
            status.members[0].device.as_deref(),
            fixture.in_sync(0).device.as_ref().map(wattle_rt::Device::name)
        );
        assert_eq!(status.replacements[0].state, MemberState::Faulty, "{case:?}");
        assert_eq!(status.members[0].bad_sectors, 0);
    }
}

/// One request of which a member takes one part, that it listed as bad, and misses another.
#[test]
fn what_a_member_missed_is_listed_also_where_it_took_something_that_was() {
    const CHUNK: u64 = 64;
    // The parity of both ends of a chunk; either write may come first, and fail.
    for listed in [0, CHUNK - 8] {
        let mut fixture = Fixture::new(case(Level::Raid5, 2, 4, CHUNK), 6, 1);
        let mut model = fixture.populate(8);
        let parity = fixture.geometry.stripe(StripeNo(0)).p().index();
        let mut spec = fixture.spec();
        spec.members[parity].bad = [Sector(listed)..Sector(listed + 8)].into_iter().collect();
        let other = (parity + 1) % 4;
        spec.members[other].bad = [Sector(200)..Sector(208)].into_iter().collect();
        fixture.drive(other).poke((OFFSET.0 + 200) * 512, &[0xee; 8 * 512]);
        let drive = fixture.drive(parity);
        let at = (CHUNK as usize - 8) * 512;
        model[at..at + 8192].fill(0x77);
        let status = run(&mut fixture, spec, async |core, array, volume| {
            drive.fail_next_writes(1);
            volume.write(at as u64, Buf::copy_of(&[0x77; 8192]), Durability::Cached).await.unwrap();
            assert!(content(&volume).await == model, "{listed}");
            array.status(&core).await
        });
        assert!(states(&status).iter().all(|state| *state == MemberState::InSync), "{listed}");
        assert_eq!(status.members[parity].bad_sectors, 8, "{listed}");
        // What is not listed is right.
        let bad = fixture.records.last().unwrap().seats[parity].bad.clone();
        for sector in (0..CHUNK).filter(|sector| !bad.overlaps(Sector(*sector)..Sector(sector + 1))) {
            let right = fixture.right(parity, sector, &model).unwrap();
            assert!(
                fixture.drive(parity).peek((OFFSET.0 + sector) * 512, 512) == right,
                "{listed}: {sector}"
            );
        }
    }
}
