//! The clean cache holds what the members hold, whatever happens to them: each test also runs with
//! the bug that it is about.

use std::time::Duration;

use wattle_engine::geometry::Level;
use wattle_engine::job::JobKind;
use wattle_engine::planted::{self, Bug};
use wattle_engine::units::{MemberIx, Sector};
use wattle_engine::{ArrayHandle, Job, MemberState, RepairSource, Volume};
use wattle_rt::{Buf, Core, CoreIx, Durability, Unmap};

use super::world::{Fixture, OFFSET, settled};
use crate::support::case::{Case, case};

/// Chunks of two pages; a write of a page reads its old content and parity.
const CASES: [Case; 2] = [case(Level::Raid5, 2, 5, 16), case(Level::Raid6, 2, 7, 16)];
const CHUNK: u64 = 16 * 512;
const PAGE: u64 = 4096;

/// Sectors of `drives` (by slot) whose parity is not what their data says, whatever that is.
fn wrong(fixture: &Fixture, drives: &[usize]) -> usize {
    let mut model = vec![0; (fixture.geometry.array_sectors().0 * 512) as usize];
    let of = |slot: usize, sector: u64| fixture.drive(drives[slot]).peek((OFFSET.0 + sector) * 512, 512);
    for lba in 0..fixture.geometry.array_sectors().0 {
        let place = fixture.geometry.data_place(Sector(lba));
        let bytes = of(place.member.index(), place.sector.0);
        model[(lba * 512) as usize..][..512].copy_from_slice(&bytes);
    }
    let sectors = fixture.geometry.sync_sectors().0;
    let places = (0..drives.len()).flat_map(|slot| (0..sectors).map(move |sector| (slot, sector)));
    let differs = |&(slot, sector): &(usize, u64)| {
        fixture.right(slot, sector, &model).is_some_and(|right| right != of(slot, sector))
    };
    places.filter(differs).count()
}

async fn write(volume: &Volume, at: u64, byte: u8) {
    assert_eq!(volume.write(at, Buf::copy_of(&[byte; PAGE as usize]), Durability::Cached).await, Ok(()));
}

/// Writes the first page of every chunk (0), or of every third chunk beginning with that one.
async fn write_all(volume: &Volume, byte: u8, some: u64) {
    let chunks = volume.size_bytes() / CHUNK;
    for chunk in (some..chunks).step_by(if some == 0 { 1 } else { 3 }) {
        write(volume, chunk * CHUNK, byte).await;
    }
}

/// As [`write_all`], on the other core and once with each byte.
async fn elsewhere(core: &Core, array: &ArrayHandle, bytes: &'static [u8], some: u64) {
    let array = array.clone();
    let writes = async move |core: Core| {
        let volume = array.volume().open(&core).expect("it runs");
        for byte in bytes {
            write_all(&volume, *byte, some).await;
        }
    };
    core.call(CoreIx(1), writes).await;
}

/// What befalls an array whose clean cache is full.
#[derive(Clone, Copy, Debug)]
enum Story {
    /// A member fails, is written past, and its place is filled anew.
    Replaced,
    /// A drive lost something without a word, and a repair takes that for right.
    Repaired,
    /// Ranges are zeroed, discarded, and written beside blocks.
    Exclusive,
    /// Clients on the other core write it all again and again, one on this core once, and then they
    /// again.
    Lent,
}

/// Tells `story` with these bugs; how many sectors are wrong in the end.
fn wrong_after(case: Case, story: Story, bugs: &[Bug]) -> usize {
    let _planted = planted::plant(bugs);
    let mut fixture = Fixture::new(case, 5, 2);
    fixture.populate(3);
    let spec = fixture.spec();
    let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
    let (blank, flipped) = (fixture.blank(case.members), fixture.drive(1));
    let outcome = fixture.world.run(async move |core: Core| {
        let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
        let volume = array.volume().open(&core).expect("it runs");
        if !matches!(story, Story::Lent) {
            write_all(&volume, 1, 0).await;
            write_all(&volume, 2, 0).await;
        }
        match story {
            Story::Lent => elsewhere(&core, &array, &[1, 2, 3], 0).await,
            Story::Replaced => {
                array.fail(&core, MemberIx(0)).await.expect("redundancy covers it");
                write_all(&volume, 3, 0).await;
                array.add(&core, MemberIx(0), blank).await.expect("the slot is free");
                let status = settled(&core, &array).await;
                assert_eq!(status.members[0].state, MemberState::InSync);
            }
            Story::Repaired => {
                for sector in (OFFSET.0..OFFSET.0 + 128).step_by(8) {
                    let byte = flipped.peek(sector * 512, 1)[0];
                    flipped.poke(sector * 512, &[byte ^ 0x40]);
                }
                let job = Job::Repair { range: None, source: Some(RepairSource::ParityFromData) };
                array.start_job(&core, job).await.expect("nothing else is done");
                while array.report(&core).await.is_none_or(|report| report.action != JobKind::Repair) {
                    core.sleep(Duration::from_micros(300)).await;
                }
            }
            Story::Exclusive => {
                volume.write_zeroes(0, 20 * CHUNK, Unmap::No, Durability::Cached).await.expect("drives can");
                volume.discard(20 * CHUNK, 20 * CHUNK).await.expect("drives can");
                volume
                    .write(50 * CHUNK + 100, Buf::copy_of(&[9; 3000]), Durability::Cached)
                    .await
                    .expect("it runs");
            }
        }
        // Other chunks of the same rows.
        write_all(&volume, 4, 1).await;
        if matches!(story, Story::Lent) {
            // Others again: what was made of the parity before is told from right by it.
            elsewhere(&core, &array, &[5], 2).await;
        }
        array.stop(&core).await.expect("it stops");
    });
    outcome.expect_done();
    let mut drives = fixture.slots();
    if matches!(story, Story::Replaced) {
        drives[0] = case.members;
    }
    wrong(&fixture, &drives)
}

#[test]
fn rows_that_are_written_again_are_not_read_again() {
    for case in CASES {
        for bytes in [0, 1 << 20] {
            let mut fixture = Fixture::new(case, 4, 2);
            fixture.populate(3);
            let mut spec = fixture.spec();
            spec.tuning.cache.bytes_max = 2 * bytes;
            let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
            let (first, last) = fixture
                .world
                .run(async move |core: Core| {
                    let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
                    let volume = array.volume().open(&core).expect("it runs");
                    write_all(&volume, 1, 0).await;
                    write_all(&volume, 2, 0).await;
                    let first = array.status(&core).await;
                    write_all(&volume, 1, 0).await;
                    write_all(&volume, 2, 0).await;
                    let last = array.status(&core).await;
                    array.stop(&core).await.expect("it stops");
                    (first, last)
                })
                .expect_done();
            let pre_reads = last.counters.pre_reads - first.counters.pre_reads;
            let cache = last.cache;
            if bytes == 0 {
                assert!(
                    pre_reads >= 32 && cache.hits == 0 && cache.ceiling_bytes == 0,
                    "{case:?}: {pre_reads} {cache:?}"
                );
            } else {
                assert!(pre_reads == 0 && cache.hits >= 32, "{case:?}: {pre_reads} {cache:?}");
                assert!(
                    cache.active_bytes >= 8 * PAGE && cache.active_bytes <= cache.size_bytes,
                    "{cache:?}"
                );
                assert!(
                    cache.misses == last.counters.pre_reads && cache.size_bytes <= cache.ceiling_bytes,
                    "{cache:?}"
                );
            }
            assert_eq!(wrong(&fixture, &fixture.slots()), 0);
        }
    }
}

/// Nothing is wrong after a story, and something is with these bugs.
#[track_caller]
fn wrong_only_with(story: Story, bugs: &[Bug]) {
    for case in CASES {
        assert_eq!(wrong_after(case, story, &[]), 0, "{case:?}");
        assert!(wrong_after(case, story, bugs) > 0, "{case:?}: the bug is not found");
    }
}

#[test]
fn nothing_is_kept_of_a_member_that_failed() {
    // Filling the place anew makes it forget, too.
    wrong_only_with(Story::Replaced, &[Bug::CacheKeepsOverChanges, Bug::CacheKeepsOverJobs]);
}

#[test]
fn nothing_is_kept_of_what_a_job_may_have_written() {
    wrong_only_with(Story::Repaired, &[Bug::CacheKeepsOverJobs]);
}

#[test]
fn nothing_is_kept_of_what_was_written_past_the_stripes() {
    wrong_only_with(Story::Exclusive, &[Bug::CacheKeepsOverChanges]);
}

#[test]
fn nothing_is_lent_of_which_there_is_something() {
    wrong_only_with(Story::Lent, &[Bug::CacheLendsKept]);
}

/// The ceiling changes at any moment, and holds from then on.
#[test]
fn its_ceiling_can_be_changed_under_way() {
    for case in CASES {
        let mut fixture = Fixture::new(case, 6, 2);
        fixture.populate(3);
        let spec = fixture.spec();
        let (drives, records) = (fixture.drives.clone(), fixture.records.clone());
        let outcome = fixture.world.run(async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, records.metadata(&core, &drives)).await;
            let volume = array.volume().open(&core).expect("it runs");
            let writes = core.spawn({
                let volume = array.volume().open(&core).expect("it runs");
                async move {
                    for byte in 1..7 {
                        write_all(&volume, byte, u64::from(byte) % 2).await;
                    }
                }
            });
            for bytes in [0, 2 << 20, 256 << 10, 4 << 20] {
                array.set_cache_bytes(&core, bytes).await;
                core.sleep(Duration::from_millis(5)).await;
                let cache = array.status(&core).await.cache;
                assert!(cache.ceiling_bytes == bytes as u64 && cache.size_bytes <= bytes as u64, "{cache:?}");
            }
            writes.await;
            let hits = array.status(&core).await.cache.hits;
            write_all(&volume, 8, 0).await;
            write_all(&volume, 9, 0).await;
            let cache = array.status(&core).await.cache;
            assert!(cache.hits >= hits + 32 && cache.active_bytes > 0, "{cache:?}");
            array.stop(&core).await.expect("it stops");
        });
        outcome.expect_done();
        assert_eq!(wrong(&fixture, &fixture.slots()), 0, "{case:?}");
    }
}
