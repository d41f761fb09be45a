//! The partial parity log from the outside: what is written when. Whether a crash is made up for is
//! tested where logs are followed, in `control`. Virtual time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use wattle_engine::geometry::{Geometry, Level};
use wattle_engine::job::{JobEnd, JobKind, Pace};
use wattle_engine::metadata::{ArrayRecord, NoMetadata};
use wattle_engine::state::ppl::{LogArea, LogEntry, LogFormat, LogSpec};
use wattle_engine::units::{MemberIx, Sector, StripeNo};
use wattle_engine::{ArrayHandle, ArraySpec, Job, MemberSpec, MemberState, Volume};
use wattle_rt::{
    Buf, BufMut, Core, Device, DriveConfig, DriveControl, Durability, SimWorld, Unmap, WorldConfig,
    WriteRecord,
};

use crate::support::commits::OnCommit;
use crate::support::drives::drives;
use crate::support::plain::plain;
use crate::support::run::run;
use crate::support::zeros::zeros;

const MEMBERS: usize = 4;
const CHUNK: u64 = 16;
const MEMBER_SECTORS: u64 = 1024;
const LOG: LogArea = LogArea { offset_bytes: 4096, size_bytes: 64 << 10 };
const DATA_BYTES: u64 = LOG.offset_bytes + LOG.size_bytes;
const STRIPE_BYTES: usize = (MEMBERS - 1) * CHUNK as usize * 512;
const BLOCK: usize = 4096;

/// A format of this test: a magic byte, the generation, the number of entries, and each entry's
/// first sector and bytes.
#[derive(Debug)]
struct Plain {
    entries_max: usize,
}

impl LogFormat for Plain {
    fn header(&self, generation: u64, entries: &[LogEntry]) -> Buf {
        let mut page = BufMut::zeroed(4096);
        let words = entries
            .iter()
            .flat_map(|entry| [entry.first.0, u64::from(entry.data_bytes), entry.partial_bytes()]);
        let words = [0xface, generation, entries.len() as u64].into_iter().chain(words);
        for (target, word) in page.chunks_exact_mut(8).zip(words) {
            target.copy_from_slice(&word.to_le_bytes());
        }
        page.freeze()
    }

    fn entries_max(&self) -> usize {
        self.entries_max
    }

    fn payload_max_bytes(&self) -> usize {
        32 << 10
    }
}

/// A header of it: generation, and first sector, bytes and bytes of partial parity of each entry.
fn header(bytes: &[u8]) -> Option<(u64, Vec<[u64; 3]>)> {
    let word = |at: usize| u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().expect("eight bytes"));
    let entries = || (0..word(2) as usize).map(|ix| std::array::from_fn(|field| word(3 + 3 * ix + field)));
    (word(0) == 0xface).then(|| (word(1), entries().collect()))
}

struct Fixture {
    world: SimWorld,
    drives: Vec<Device>,
    geometry: Geometry,
    entries_max: usize,
}

impl Fixture {
    fn new(cores: usize) -> Self {
        let mut world = SimWorld::new(WorldConfig { seed: 5, cores, ..WorldConfig::default() });
        let size_bytes = DATA_BYTES + MEMBER_SECTORS * 512;
        let config = DriveConfig { size_bytes, ..DriveConfig::default() };
        let drives = drives(&mut world, MEMBERS + 1, &config);
        let geometry = plain(Level::Raid5, MEMBERS, CHUNK, MEMBER_SECTORS);
        Self { world, drives, geometry, entries_max: 148 }
    }

    fn drive(&self, slot: usize) -> DriveControl {
        self.world.drive(&self.drives[slot])
    }

    fn member(&self, slot: usize) -> MemberSpec {
        MemberSpec {
            log: Some(LOG),
            ..MemberSpec::in_sync(self.drives[slot].clone(), Sector(DATA_BYTES / 512))
        }
    }

    fn spec(&self, missing: &[usize]) -> ArraySpec {
        let member = |slot| if missing.contains(&slot) { MemberSpec::missing() } else { self.member(slot) };
        let spec = ArraySpec::new("a", self.geometry.clone(), (0..MEMBERS).map(member).collect());
        let format = Arc::new(Plain { entries_max: self.entries_max });
        ArraySpec { log: Some(LogSpec { ring: false, format }), ..spec }
    }

    /// Records what the members complete from here on.
    fn record(&self) {
        (0..MEMBERS).for_each(|slot| self.drive(slot).record_writes());
    }

    /// What was written since: to the logs, and everything else but superblocks (there are none).
    fn written(&self) -> (Vec<WriteRecord>, Vec<WriteRecord>) {
        let all = (0..MEMBERS).flat_map(|slot| self.drive(slot).take_write_log());
        all.partition(|write| write.offset_bytes < DATA_BYTES)
    }

    /// The slot of the parity of a stripe.
    fn parity(&self, stripe: u64) -> usize {
        self.geometry.stripe(StripeNo(stripe)).p().index()
    }

    fn log(&self, slot: usize) -> (u64, Vec<[u64; 3]>) {
        header(&self.drive(slot).peek(LOG.offset_bytes, 4096)).expect("there is a log")
    }

    /// The entries of the newest log of a ring: where the logs from its start on lead.
    fn newest(&self, slot: usize) -> Vec<[u64; 3]> {
        let (mut newest, mut at) = ((0, Vec::new()), 0);
        while at < LOG.size_bytes
            && let Some(next) = header(&self.drive(slot).peek(LOG.offset_bytes + at, 4096))
            && next.0 > newest.0
        {
            at += 4096 + next.1.iter().map(|[_, _, partial]| partial).sum::<u64>();
            newest = next;
        }
        newest.1
    }

    fn run<T>(&mut self, spec: ArraySpec, main: impl AsyncFnOnce(Core, ArrayHandle, Volume) -> T) -> T {
        run(&mut self.world, spec, main)
    }
}

async fn write(volume: &Volume, at: usize, len: usize, fill: u8) {
    let buf = BufMut::copy_of(&vec![fill; len]).freeze();
    assert_eq!(volume.write(at as u64, buf, Durability::Cached).await, Ok(()));
}

#[test]
fn entries_are_durable_before_data_and_parity() {
    for cores in [1, 3] {
        let mut fixture = Fixture::new(cores);
        for (at, len) in [(0, BLOCK), (BLOCK, 3 * BLOCK), (STRIPE_BYTES, STRIPE_BYTES)] {
            let parity = fixture.parity((at / STRIPE_BYTES) as u64);
            fixture.record();
            let spec = fixture.spec(&[]);
            fixture.run(spec, async |_, _, volume| write(&volume, at, len, 2).await);
            let (logs, rest) = fixture.written();
            let entry = logs.iter().max_by_key(|write| write.completed).expect("there is an entry");
            assert_eq!(entry.durability, Durability::Fua);
            assert!(rest.len() >= 2, "data and parity");
            assert!(
                rest.iter().all(|write| write.completed > entry.completed),
                "{at} {len}: {entry:?} {rest:?}"
            );
            let (generation, entries) = fixture.log(parity);
            let full = len == STRIPE_BYTES;
            let bytes: u64 = entries.iter().map(|[_, bytes, _]| bytes).sum();
            assert_eq!((generation, bytes), (1, len as u64));
            assert!(entries.iter().all(|[_, _, partial]| (*partial == 0) == full), "{entries:?}");
        }
    }
}

/// What came while a log was being written leaves together; a write that comes alone does not wait.
#[test]
fn many_stripes_share_a_log_write() {
    let mut fixture = Fixture::new(1);
    let spec = fixture.spec(&[]);
    fixture.run(spec, async |core, _, volume| {
        write(&volume, 0, BLOCK, 1).await;
        let alone = core.now();
        write(&volume, STRIPE_BYTES, BLOCK, 1).await;
        // A read, a log write and a write, each at most 150 µs, and the odd late completion.
        assert!(core.now() - alone < Duration::from_micros(600), "{:?}", core.now() - alone);
    });
    fixture.record();
    let spec = fixture.spec(&[]);
    fixture.run(spec, async |core, _, volume| {
        let writes: Vec<_> = (0..40)
            .map(|stripe| {
                let volume = volume.clone();
                core.spawn(async move { write(&volume, stripe * STRIPE_BYTES, BLOCK, 3).await })
            })
            .collect();
        for write in writes {
            write.await;
        }
    });
    let (logs, _) = fixture.written();
    // Per member: two or three to empty it, one for the first write, and what else came had to
    // share.
    assert!(logs.len() <= MEMBERS * 7, "{} log writes for 40 stripes", logs.len());
}

/// A log is replaced only when what it is about has ended and is flushed: at the time of each log
/// write but the first, nothing is left in a volatile cache.
#[test]
fn a_log_is_replaced_when_what_it_is_about_is_durable() {
    let mut fixture = Fixture::new(1);
    let (spec, drives) =
        (fixture.spec(&[]), (0..MEMBERS).map(|slot| fixture.drive(slot)).collect::<Vec<_>>());
    fixture.record();
    fixture.run(spec, async |_, _, volume| {
        for turn in 0..10 {
            write(&volume, BLOCK * (turn % 2), BLOCK, turn as u8).await;
        }
    });
    let parity = fixture.parity(0);
    let mut all: Vec<_> = (0..MEMBERS)
        .flat_map(|slot| drives[slot].take_write_log().into_iter().map(move |write| (slot, write)))
        .collect();
    all.sort_by_key(|(_, write)| write.completed);
    let is_log = |(slot, write): &(usize, WriteRecord)| *slot == parity && write.offset_bytes < DATA_BYTES;
    // Emptied in three writes.
    assert_eq!(all.iter().filter(|write| is_log(write)).count(), 3 + 10);
    for (before, after) in all.iter().zip(&all[1..]) {
        if before.1.offset_bytes >= DATA_BYTES && is_log(after) {
            // A flush lies between: data, flush, log.
            assert!(
                after.1.completed - before.1.completed >= Duration::from_micros(100),
                "{before:?} {after:?}"
            );
        }
    }
}

#[test]
fn a_log_that_cannot_be_written_costs_its_member_and_not_the_write() {
    let mut fixture = Fixture::new(2);
    let parity = fixture.parity(0);
    let (spec, drive) = (fixture.spec(&[]), fixture.drive(parity));
    fixture.run(spec, async |core, array, volume| {
        write(&volume, STRIPE_BYTES, BLOCK, 1).await;
        drive.fail_next_writes(1);
        write(&volume, BLOCK, 2 * BLOCK, 7).await;
        assert_eq!(array.status(&core).await.members[parity].state, MemberState::Faulty);
        let (result, buf) = volume.read(BLOCK as u64, BufMut::alloc(2 * BLOCK)).await;
        assert!(result.is_ok() && buf.iter().all(|&byte| byte == 7));
        // Every way of writing, with a member missing.
        write(&volume, 0, 4 * STRIPE_BYTES, 8).await;
        assert_eq!(
            volume.write_zeroes(0, 8 * STRIPE_BYTES as u64, Unmap::Yes, Durability::Cached).await,
            Ok(())
        );
        let (result, buf) = volume.read(0, BufMut::alloc(9 * STRIPE_BYTES)).await;
        assert!(result.is_ok() && buf.iter().all(|&byte| byte == 0));
    });
}

/// Before the first record as dirty all logs are emptied; from then on the log comes first.
#[test]
fn a_member_that_hangs_on_its_log_is_said_to_be_silent_and_failed_by_order() {
    for logged in [false, true] {
        let mut fixture = Fixture::new(2);
        let parity = fixture.parity(0);
        let (spec, drive) = (fixture.spec(&[]), fixture.drive(parity));
        fixture.run(spec, async move |core, array, volume| {
            if logged {
                write(&volume, STRIPE_BYTES, BLOCK, 1).await;
                core.sleep(Duration::from_millis(10)).await;
            }
            drive.stall(Duration::from_secs(3600));
            let begun = core.now();
            let written = array.volume().open(&core).unwrap();
            let writing = core.spawn(async move { write(&written, BLOCK, 2 * BLOCK, 7).await });
            core.sleep(Duration::from_secs(20)).await;
            let silent = array.status(&core).await.members[parity].silent_for();
            assert!(silent.is_some_and(|time| time.as_secs() >= 19), "{logged}: {silent:?}");
            array.fail(&core, MemberIx(parity as u16)).await.unwrap();
            writing.await;
            assert!(core.now() - begun < Duration::from_secs(25), "{logged}: {:?}", core.now() - begun);
            let (result, buf) = volume.read(BLOCK as u64, BufMut::alloc(2 * BLOCK)).await;
            assert!(result.is_ok() && buf.iter().all(|&byte| byte == 7));
        });
    }
}

/// After a kill, a member whose failure was not recorded is back, and all logs say that its parity
/// is right: nothing may have been written without an entry until then.
#[test]
fn nothing_goes_unlogged_before_it_is_recorded_why() {
    for cores in [1, 2] {
        let mut fixture = Fixture::new(cores);
        let parity = fixture.parity(0);
        let (spec, drive) = (fixture.spec(&[]), fixture.drive(parity));
        let done = Rc::new(Cell::new(None));
        fixture.record();
        let recorded = done.clone();
        let outcome = fixture.world.run(async move |core: Core| {
            // Takes its time to record that members failed, and says when that was done.
            let metadata = OnCommit({
                let core = core.clone();
                async move |record: &ArrayRecord| {
                    if !record.failed.is_empty() {
                        core.sleep(Duration::from_millis(20)).await;
                        recorded.set(Some(core.now()));
                    }
                }
            });
            let array = ArrayHandle::start(&core, spec, Box::new(metadata)).await;
            let volume = array.volume().open(&core).expect("it runs");
            write(&volume, STRIPE_BYTES, BLOCK, 1).await;
            drive.fail_next_writes(1);
            // The log of the first is what fails; the other finds the member failed, of which
            // nothing is recorded.
            let first = core.spawn({
                let volume = volume.clone();
                async move { write(&volume, 0, BLOCK, 2).await }
            });
            core.sleep(Duration::from_millis(5)).await;
            assert_eq!(array.status(&core).await.members[parity].state, MemberState::Faulty);
            write(&volume, MEMBERS * STRIPE_BYTES, BLOCK, 3).await;
            first.await;
        });
        outcome.expect_done();
        let recorded = done.get().expect("a member failed");
        let (_, data) = fixture.written();
        let before = data.iter().filter(|write| write.completed < recorded).count();
        assert_eq!(before, 2, "data and parity of the first write, before the failure");
        assert_eq!(data.len(), 4, "and data of the two others");
    }
}

/// A replacement that has parity has its entries as well: it may be all that is left of the two.
#[test]
fn a_replacement_takes_the_log_too() {
    let mut fixture = Fixture::new(2);
    let parity = fixture.parity(0);
    let (spec, newcomer) = (fixture.spec(&[]), fixture.member(MEMBERS));
    let newcomer = MemberSpec { state: MemberState::Rebuilding { valid_below: Sector(0) }, ..newcomer };
    let logs = [fixture.drive(parity), fixture.drive(MEMBERS)];
    let log = |of: usize| header(&logs[of].peek(LOG.offset_bytes, 4096)).expect("there is a log").1;
    fixture.run(spec, async |core, array, volume| {
        write(&volume, 0, BLOCK, 1).await;
        array.pause(&core, true).await;
        array.replace(&core, MemberIx(parity as u16), newcomer).await.expect("the seat is free");
        assert_eq!((log(0).len(), log(1).len()), (1, 0), "it brings none along");
        write(&volume, 0, BLOCK, 2).await;
        assert_eq!((log(0).len(), log(1)), (1, log(0)));
        array.fail(&core, MemberIx(parity as u16)).await.expect("it can be spared");
        let before = log(0);
        write(&volume, BLOCK, BLOCK, 3).await;
        assert_eq!(log(0), before, "who failed is left alone");
        assert_eq!(log(1), [[(BLOCK / 512) as u64, BLOCK as u64, BLOCK as u64]]);
    });
}

/// Few entries to a log, so that zeroing goes in many steps.
#[test]
fn whole_stripes_are_zeroed_in_steps_that_have_entries() {
    for missing in [&[][..], &[2]] {
        let mut fixture = Fixture::new(2);
        fixture.entries_max = 3;
        let spec = fixture.spec(missing);
        fixture.run(spec, async |_, _, volume| {
            let size = volume.size_bytes() as usize;
            write(&volume, 0, size, 9).await;
            let (start, end) = (BLOCK, size - 3 * BLOCK);
            let zeroed =
                volume.write_zeroes(start as u64, (end - start) as u64, Unmap::Yes, Durability::Fua).await;
            assert_eq!(zeroed, Ok(()));
            let (result, buf) = volume.read(0, BufMut::alloc(size)).await;
            assert_eq!(result, Ok(()));
            let expected = |at: usize| if (start..end).contains(&at) { 0 } else { 9 };
            assert!(buf.iter().enumerate().all(|(at, &byte)| byte == expected(at)));
            assert_eq!(volume.discard(0, size as u64).await, Ok(()));
        });
    }
}

/// Whether a record says dirty, and the generation of the log then.
type Seen = (bool, Option<u64>);

/// Old entries must never be followed: not those of a run before, not those that a member brings
/// along.
#[test]
fn logs_are_emptied_before_anybody_could_follow_them() {
    let mut fixture = Fixture::new(1);
    let old = Plain { entries_max: 1 }.header(77, &[]);
    for slot in 0..=MEMBERS {
        fixture.drive(slot).poke(LOG.offset_bytes, &old);
        fixture.drive(slot).poke(LOG.offset_bytes + 8192, &old);
    }
    let (spec, newcomer) = (fixture.spec(&[]), fixture.member(MEMBERS));
    let newcomer = MemberSpec { state: MemberState::Rebuilding { valid_below: Sector(0) }, ..newcomer };
    for slot in [0, MEMBERS] {
        let (spec, newcomer) = (spec.clone(), newcomer.clone());
        let (drive, seen) = (fixture.drive(slot), Rc::new(RefCell::new(Vec::<Seen>::new())));
        // Says at each record what was in a drive's log.
        let watching = OnCommit({
            let (drive, seen) = (drive.clone(), seen.clone());
            async move |record: &ArrayRecord| {
                let log = header(&drive.peek_durable(LOG.offset_bytes, 4096));
                seen.borrow_mut().push((record.dirty, log.map(|(generation, _)| generation)));
            }
        });
        let outcome = fixture.world.run(async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, Box::new(watching)).await;
            let volume = array.volume().open(&core).expect("it runs");
            write(&volume, 0, BLOCK, 1).await;
            if slot == MEMBERS {
                array.fail(&core, MemberIx(1)).await.expect("it can be spared");
                array.add(&core, MemberIx(1), newcomer).await.expect("the seat is free");
            }
        });
        outcome.expect_done();
        let seen = seen.borrow();
        if slot == 0 {
            assert_eq!(
                seen[0],
                (true, Some(1)),
                "before the first record; parity is right, so every write has entries"
            );
        } else {
            assert_eq!(seen[2], (true, Some(0)), "before the record in which it joins: {seen:?}");
        }
        assert_eq!(drive.peek(LOG.offset_bytes + 8192, 4096), [0; 4096], "all of it");
    }
}

/// Logs said that parity was not to be trusted until they had an entry. A crash that cost the only
/// member whose log had been used then cost the array, although all parity was right.
#[test]
fn one_entry_is_enough_for_all_logs_to_count() {
    // While the array stays dirty a write asks for entries; otherwise the next record of it as
    // dirty brings them.
    for (cores, stays_dirty) in [(1, true), (2, true), (1, false)] {
        let mut fixture = Fixture::new(cores);
        let mut spec = ArraySpec { synced_below: Sector(0), unclean: true, ..fixture.spec(&[]) };
        spec.tuning.clean_delay = Duration::from_millis(if stays_dirty { 3_600_000 } else { 1 });
        let parity = fixture.parity(0);
        fixture.run(spec, async |core, array, volume| {
            for _ in 0..3 {
                write(&volume, 0, BLOCK, 1).await;
                core.sleep(Duration::from_millis(500)).await;
                assert_eq!(array.status(&core).await.dirty, stays_dirty);
            }
        });
        for slot in 0..MEMBERS {
            let (generation, entries) = fixture.log(slot);
            assert!(
                generation > 0,
                "{cores} {stays_dirty}: slot {slot} says that nothing is known of parity"
            );
            assert_eq!(entries.is_empty(), slot != parity, "{cores} {stays_dirty}: slot {slot}");
        }
    }
}

/// Every core asks for entries once parity is right. The logs that came of the first one's asking
/// are in use when the next one's turn comes; emptied then, a ring leads to none of the logs that
/// follow.
#[test]
fn logs_in_use_are_not_emptied_because_another_core_asked_too() {
    let mut fixture = Fixture::new(2);
    let mut spec = ArraySpec { synced_below: Sector(0), unclean: true, ..fixture.spec(&[]) };
    spec.tuning.clean_delay = Duration::from_hours(1);
    spec.tuning.sync.frozen = true;
    spec.log.as_mut().expect("it has logs").ring = true;
    fixture.run(spec, async |core, array, volume| {
        write(&volume, 0, BLOCK, 1).await;
        array.freeze(&core, false).await;
        while array.status(&core).await.synced_below != Sector::MAX {
            core.sleep(Duration::from_millis(10)).await;
        }
        // Both cores ask, and some writes come between their turns.
        let writes: Vec<_> = (0..2 * MEMBERS)
            .map(|stripe| {
                let volume = volume.clone();
                core.spawn(async move {
                    for fill in 2..4 {
                        write(&volume, stripe * STRIPE_BYTES, BLOCK, fill).await;
                    }
                })
            })
            .collect();
        for write in writes {
            write.await;
        }
        for stripe in 0..MEMBERS {
            write(&volume, stripe * STRIPE_BYTES, BLOCK, 4).await;
        }
    });
    for stripe in 0..MEMBERS {
        let first = (stripe * STRIPE_BYTES / 512) as u64;
        let newest = fixture.newest(fixture.parity(stripe as u64));
        assert_eq!(newest, [[first, BLOCK as u64, BLOCK as u64]], "stripe {stripe}");
    }
}

/// What an entry says of a row is not right any more once parity was repaired: followed after a
/// crash, it would undo that.
#[test]
fn no_entry_outlives_a_repair() {
    for cores in [1, 3] {
        let mut fixture = Fixture::new(cores);
        let parity = fixture.parity(0);
        let wrong = fixture.drive(parity);
        let spec = fixture.spec(&[]);
        fixture.run(spec, async |core, array, volume| {
            write(&volume, 0, BLOCK, 1).await;
            wrong.poke(DATA_BYTES + 512, &[0x55; 512]);
            write(&volume, BLOCK, BLOCK, 2).await;
            array.start_job(&core, Job::Repair { range: None, source: None }).await.unwrap();
            let report = loop {
                match array.report(&core).await {
                    Some(report) if report.action == JobKind::Repair => break report,
                    _ => core.sleep(Duration::from_millis(1)).await,
                }
            };
            assert!(report.agreed_sectors > 0, "{report:?}");
        });
        for slot in 0..MEMBERS {
            assert_eq!(fixture.log(slot).1, <[[u64; 3]; 0]>::default(), "{cores} cores, slot {slot}");
        }
    }
}

/// A refused write leaves a row as it is logged: the next one of the slot is not refused for it.
#[test]
fn a_write_that_is_refused_is_in_the_way_of_no_other() {
    let mut fixture = Fixture::new(1);
    let parity = fixture.parity(0);
    let other = (0..MEMBERS).find(|slot| *slot != parity).unwrap();
    let mut spec = fixture.spec(&[other]);
    // Three blocks in one entry, and room for one: the middle one cannot be taken out.
    spec.members[parity].bad = [Sector(0)..Sector(3 * BLOCK as u64 / 512)].into_iter().collect();
    spec.members[parity].bad_entries_max = 1;
    let stripes = MEMBERS as u64;
    assert_eq!(fixture.parity(stripes), parity);
    fixture.run(spec, async |_, _, volume| {
        let buf = Buf::copy_of(&[7; BLOCK]);
        let refused = volume.write(BLOCK as u64, buf, Durability::Cached).await;
        assert_eq!(refused, Err(wattle_engine::VolumeError::Unreadable));
        write(&volume, stripes as usize * STRIPE_BYTES, BLOCK, 8).await;
    });
}

/// Nor one that was ended before it was done: of what it repaired until then.
#[test]
fn no_entry_outlives_what_an_aborted_repair_wrote() {
    let mut fixture = Fixture::new(1);
    let parity = fixture.parity(0);
    let (wrong, mut spec) = (fixture.drive(parity), fixture.spec(&[]));
    // So slow that it is in the middle when it is ended.
    spec.tuning.sync.pace = Pace { min_bytes_per_second: 0, max_bytes_per_second: 256 << 10 };
    spec.tuning.sync.step_bytes = 8 << 10;
    fixture.run(spec, async |core, array, volume| {
        write(&volume, 0, BLOCK, 1).await;
        wrong.poke(DATA_BYTES + 512, &[0x55; 512]);
        write(&volume, BLOCK, BLOCK, 2).await;
        array.start_job(&core, Job::Repair { range: None, source: None }).await.unwrap();
        while array.status(&core).await.sync.is_none_or(|sync| sync.mismatch_sectors == 0) {
            core.sleep(Duration::from_millis(1)).await;
        }
        array.abort_job(&core).await;
        let report = loop {
            match array.report(&core).await {
                Some(report) if report.action == JobKind::Repair => break report,
                _ => core.sleep(Duration::from_millis(1)).await,
            }
        };
        assert_eq!(report.end, JobEnd::Aborted);
        assert!(report.agreed_sectors > 0, "{report:?}");
    });
    for slot in 0..MEMBERS {
        assert_eq!(fixture.log(slot).1, <[[u64; 3]; 0]>::default(), "slot {slot}");
    }
}

#[test]
fn the_log_of_a_stopped_array_keeps_none_of_its_drives() {
    let mut fixture = Fixture::new(2);
    let (geometry, size_bytes) = (fixture.geometry.clone(), DATA_BYTES + MEMBER_SECTORS * 512);
    let outcome = fixture.world.run(async move |core: Core| {
        let (devices, drives) = zeros(&core, MEMBERS, size_bytes);
        let member =
            |device| MemberSpec { log: Some(LOG), ..MemberSpec::in_sync(device, Sector(DATA_BYTES / 512)) };
        let spec = ArraySpec::new("a", geometry, devices.into_iter().map(member).collect());
        let format = Arc::new(Plain { entries_max: 148 });
        let spec = ArraySpec { log: Some(LogSpec { ring: true, format }), ..spec };
        let array = ArrayHandle::start(&core, spec, Box::new(NoMetadata)).await;
        let volume = array.volume().open(&core).unwrap();
        assert_eq!(volume.write(0, Buf::copy_of(&[1; BLOCK]), Durability::Cached).await, Ok(()));
        assert_eq!(drives.held(), MEMBERS);
        array.stop(&core).await.unwrap();
        assert_eq!(drives.held(), 0);
        drop(volume);
    });
    outcome.expect_done();
}
