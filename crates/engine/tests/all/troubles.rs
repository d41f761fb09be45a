//! Members that read badly or slowly: what they cannot deliver comes from redundancy, what they
//! cannot take is recorded.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use wattle_engine::geometry::Level;
use wattle_engine::metadata::{ArrayRecord, LocalBoxFuture, Metadata, NoMetadata};
use wattle_engine::planted::{self, Bug};
use wattle_engine::units::{MemberIx, MemberSet, Sector};
use wattle_engine::{
    ArrayHandle, ArraySpec, FailCause, MemberKey, MemberSpec, MemberState, Volume, VolumeError,
};
use wattle_rt::{
    Buf, BufMut, Core, CoreIx, Device, DriveConfig, DriveControl, Durability, SimWorld, Unmap, WorldConfig,
};

use crate::support::drives::drives;
use crate::support::members::in_sync;
use crate::support::plain::plain;

const MEMBER_SECTORS: u64 = 256;

/// The members that failed, why, and how many records there were before.
type Failure = (Vec<(MemberIx, Option<MemberKey>)>, FailCause, usize);

/// Makes a drive fail.
type Plant = fn(&DriveControl);

/// Remembers what was recorded; members may have no bad-block log.
#[derive(Clone, Default)]
struct Recorder {
    records: Rc<RefCell<Vec<ArrayRecord>>>,
    /// Failures, and how many records there were before each.
    failures: Rc<RefCell<Vec<Failure>>>,
    without_log: bool,
    /// The member of this key takes no record.
    refuses: Rc<Cell<Option<MemberKey>>>,
}

impl Metadata for Recorder {
    fn failed(&self, members: &[(MemberIx, Option<MemberKey>)], cause: FailCause) {
        self.failures.borrow_mut().push((members.to_vec(), cause, self.records.borrow().len()));
    }

    fn commit<'a>(&'a self, record: &'a ArrayRecord) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        self.records.borrow_mut().push(record.clone());
        let seats = (0..).map(MemberIx).zip(&record.seats);
        let full =
            seats.filter(|(_, seat)| self.without_log && seat.state.writable() && !seat.bad.is_empty());
        let refuses = self.refuses.get();
        let not_taken = (0..)
            .map(MemberIx)
            .zip(&record.seats)
            .filter(|(_, seat)| seat.state.writable() && refuses.is_some() && seat.key == refuses);
        let refused: MemberSet = full.chain(not_taken).map(|(seat, _)| seat).collect();
        Box::pin(std::future::ready(if refused.is_empty() { Ok(()) } else { Err(refused) }))
    }

    fn mark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        NoMetadata.mark(regions)
    }

    fn unmark<'a>(&'a self, regions: &'a [u64]) -> LocalBoxFuture<'a, Result<(), MemberSet>> {
        NoMetadata.unmark(regions)
    }
}

struct Fixture {
    world: SimWorld,
    drives: Vec<Device>,
    level: Level,
}

impl Fixture {
    fn new(level: Level, members: usize) -> Self {
        let mut world = SimWorld::new(WorldConfig { seed: 7, cores: 2, ..WorldConfig::default() });
        let config = DriveConfig { size_bytes: MEMBER_SECTORS * 512, ..DriveConfig::default() };
        let drives = drives(&mut world, members, &config);
        Self { world, drives, level }
    }

    fn spec(&self) -> ArraySpec {
        let geometry = plain(self.level, self.drives.len(), 32, MEMBER_SECTORS);
        ArraySpec::new("a", geometry, in_sync(&self.drives, Sector(0), &[]))
    }

    /// The slot and sector that array sector 0 is read from first.
    fn first(&self) -> (usize, u64) {
        match self.level {
            Level::Raid1 => (0, 0),
            _ => {
                let run = self.spec().geometry.data_place(Sector(0));
                (run.member.index(), run.sector.0)
            }
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 512 * 13) as u8).collect()
}

async fn fill(volume: &Volume) -> Vec<u8> {
    let bytes = pattern(volume.size_bytes() as usize);
    volume.write(0, BufMut::copy_of(&bytes).freeze(), Durability::Fua).await.unwrap();
    bytes
}

async fn read(volume: &Volume, at: u64, len: usize) -> Vec<u8> {
    let (result, buf) = volume.read(at, BufMut::alloc(len)).await;
    result.unwrap();
    buf.to_vec()
}

#[test]
fn a_stalled_member_delays_one_read_by_the_deadline_and_the_next_not_at_all() {
    for level in [Level::Raid5, Level::Raid6, Level::Raid1] {
        let mut fixture = Fixture::new(level, if level == Level::Raid1 { 2 } else { 4 });
        let (slot, _) = fixture.first();
        let control = fixture.world.drive(&fixture.drives[slot]);
        let spec = fixture.spec();
        let deadline = spec.tuning.read_deadline;
        let run = fixture.world.run(async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, Box::new(Recorder::default())).await;
            let volume = array.volume().open(&core).unwrap();
            let bytes = fill(&volume).await;
            control.stall(Duration::from_secs(60));
            let started = core.now();
            // Mirrors may choose the other copy by themselves: enough reads ask both.
            for at in 0..4 {
                assert!(read(&volume, at * 4096, 4096).await == bytes[at as usize * 4096..][..4096]);
            }
            let took = core.now() - started;
            assert!(took >= deadline && took < 2 * deadline, "{level}: {took:?}");
            let started = core.now();
            assert!(read(&volume, 0, 65536).await == bytes[..65536]);
            assert!(core.now() - started < Duration::from_millis(10), "{level}: {:?}", core.now() - started);
            let status = array.status(&core).await;
            let slow: Vec<bool> = status.members.iter().map(|member| member.slow).collect();
            assert!(slow.iter().enumerate().all(|(ix, &is)| is == (ix == slot)), "{slow:?}");
            assert!(status.members[slot].late_reads > 0);
            assert_eq!(status.members[slot].state, MemberState::InSync);
            // It is asked again once it is well, and counts as slow no more.
            core.sleep(Duration::from_secs(61)).await;
            for _ in 0..4 {
                assert!(read(&volume, 0, 65536).await == bytes[..65536]);
            }
            assert!(array.status(&core).await.members.iter().all(|member| !member.slow));
            array.stop(&core).await.unwrap();
        });
        run.expect_done();
    }
}

/// Whether clients are answered in each of so many periods of 5 s while a drive hangs, and how many
/// operations are on their way in the end.
fn answered_while_a_drive_hangs(periods: usize) -> (bool, usize) {
    const CLIENTS: u64 = 300;
    let mut fixture = Fixture::new(Level::Raid5, 3);
    let control = fixture.world.drive(&fixture.drives[0]);
    let spec = fixture.spec();
    let run = fixture.world.run(async move |core: Core| {
        let array = ArrayHandle::start(&core, spec, Box::new(Recorder::default())).await;
        fill(&array.volume().open(&core).unwrap()).await;
        control.stall(Duration::from_secs(3600));
        let answered = Rc::new(Cell::new(0));
        for client in 0..CLIENTS {
            let (volume, answered) = (array.volume().open(&core).unwrap(), answered.clone());
            let (pause, core_of) = (Duration::from_millis(100), core.clone());
            core.spawn(async move {
                for round in 0.. {
                    let at = (client * 7 + round * 13) * 4096 % (volume.size_bytes() - 4096) / 4096 * 4096;
                    read(&volume, at, 4096).await;
                    answered.update(|count| count + 1);
                    core_of.sleep(pause).await;
                }
            });
        }
        let mut all = true;
        for _ in 0..periods {
            let before = answered.get();
            core.sleep(Duration::from_secs(5)).await;
            all &= answered.get() > before;
        }
        (all, core.ops_in_flight())
    });
    run.expect_done()
}

/// What was given up keeps its room on the core, which all drives share.
#[test]
fn a_drive_that_hangs_does_not_take_the_room_of_the_others() {
    let (answered, in_flight) = answered_while_a_drive_hangs(30);
    assert!(answered && in_flight < 700, "answered: {answered}, in flight: {in_flight}");
    let _planted = planted::plant(&[Bug::OneDriveTakesAll]);
    assert!(!answered_while_a_drive_hangs(30).0);
}

/// Levels without redundancy, too, and writes: the operator is told what everything waits for.
#[test]
fn a_member_that_answers_nothing_is_said_to_be_silent_until_it_does() {
    for level in [Level::Raid0, Level::Raid1, Level::Raid5] {
        let mut fixture = Fixture::new(level, 3);
        let control = fixture.world.drive(&fixture.drives[0]);
        let spec = fixture.spec();
        let run = fixture.world.run(async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, Box::new(Recorder::default())).await;
            let volume = array.volume().open(&core).unwrap();
            fill(&volume).await;
            let silent = async || {
                let members = array.status(&core).await.members;
                let seconds = |time: Duration| time.as_secs();
                members.iter().map(|member| member.silent_for().map(seconds)).collect::<Vec<_>>()
            };
            control.stall(Duration::from_secs(60));
            let write = core.spawn({
                let volume = array.volume().open(&core).unwrap();
                async move {
                    let all = pattern(volume.size_bytes() as usize);
                    volume.write(0, BufMut::copy_of(&all).freeze(), Durability::Cached).await
                }
            });
            core.sleep(Duration::from_secs(10)).await;
            assert_eq!(silent().await, [None; 3], "{level}");
            core.sleep(Duration::from_secs(20)).await;
            let told = silent().await;
            assert_eq!(told, [Some(30), None, None], "{level}");
            core.sleep(Duration::from_secs(31)).await;
            write.await.unwrap();
            assert_eq!(silent().await, [None; 3], "{level}");
            array.stop(&core).await.unwrap();
        });
        run.expect_done();
    }
}

/// However the array waits for it: for a flush, a record, or a write alone.
#[test]
fn an_order_to_fail_a_drive_that_hangs_does_not_wait_for_it() {
    for level in [Level::Raid1, Level::Raid5] {
        for waits_for in ["a flush", "a write"] {
            let mut fixture = Fixture::new(level, 3);
            let control = fixture.world.drive(&fixture.drives[1]);
            let spec = fixture.spec();
            let run = fixture.world.run(async move |core: Core| {
                let array = ArrayHandle::start(&core, spec, Box::new(Recorder::default())).await;
                let volume = array.volume().open(&core).unwrap();
                let bytes = fill(&volume).await;
                control.stall(Duration::from_secs(600));
                let begun = core.now();
                let write = core.spawn({
                    let (volume, bytes) = (array.volume().open(&core).unwrap(), bytes.clone());
                    async move {
                        let all = BufMut::copy_of(&bytes).freeze();
                        let written = volume.write(0, all, Durability::Cached).await;
                        if waits_for == "a flush" { volume.flush().await } else { written }
                    }
                });
                core.sleep(Duration::from_secs(20)).await;
                let seat = array.fail(&core, MemberIx(1)).await.unwrap();
                assert_eq!(seat, MemberIx(1));
                write.await.unwrap();
                let took = core.now() - begun;
                assert!(took < Duration::from_secs(22), "{level}, {waits_for}: {took:?}");
                let status = array.status(&core).await;
                assert_eq!(status.members[1].state, MemberState::Faulty);
                assert!(read(&volume, 0, bytes.len()).await == bytes);
                array.stop(&core).await.unwrap();
            });
            run.expect_done();
        }
    }
}

/// The core that owns the range has not met the stalled copy itself.
#[test]
fn a_stalled_copy_delays_reads_of_another_core_by_the_deadline_alone() {
    let mut fixture = Fixture::new(Level::Raid1, 3);
    let controls: Vec<_> = fixture.drives.iter().map(|drive| fixture.world.drive(drive)).collect();
    let spec = fixture.spec();
    let deadline = spec.tuning.read_deadline;
    let run = fixture.world.run(async move |core: Core| {
        let array = ArrayHandle::start(&core, spec, Box::new(Recorder::default())).await;
        let volume = array.volume().open(&core).unwrap();
        let bytes = fill(&volume).await;
        // Copies that fail and copies that stall, in every order; the last one answers.
        for (bad, stalled) in [(None, 0), (Some(0), 1), (Some(1), 0), (Some(2), 1), (Some(1), 2)] {
            bad.into_iter().for_each(|slot: usize| (0..8).for_each(|sector| controls[slot].latent(sector)));
            controls[stalled].stall(Duration::from_secs(60));
            let handle = array.volume();
            let expected = bytes[..4096].to_vec();
            core.call(CoreIx(1), move |core| async move {
                let volume = handle.open(&core).unwrap();
                for _ in 0..4 {
                    let started = core.now();
                    assert!(read(&volume, 0, 4096).await == expected);
                    let took = core.now() - started;
                    assert!(took < 3 * deadline, "bad {bad:?}, stalled {stalled}: {took:?}");
                }
            })
            .await;
            core.sleep(Duration::from_secs(200)).await;
            volume.write(0, BufMut::copy_of(&bytes[..4096]).freeze(), Durability::Fua).await.unwrap();
        }
        array.stop(&core).await.unwrap();
    });
    run.expect_done();
}

#[test]
fn a_deadline_that_is_set_holds_for_reads_under_way() {
    let mut fixture = Fixture::new(Level::Raid5, 4);
    let (slot, _) = fixture.first();
    let control = fixture.world.drive(&fixture.drives[slot]);
    let mut spec = fixture.spec();
    spec.tuning.read_deadline = Duration::from_secs(600);
    let run = fixture.world.run(async move |core: Core| {
        let array = ArrayHandle::start(&core, spec, Box::new(Recorder::default())).await;
        let volume = array.volume().open(&core).unwrap();
        let bytes = fill(&volume).await;
        control.stall(Duration::from_secs(60));
        let reading = core.spawn({
            let (core, volume) = (core.clone(), volume.clone());
            async move { (read(&volume, 0, 4096).await, core.now()) }
        });
        core.sleep(Duration::from_secs(1)).await;
        let set = core.now();
        array.set_read_deadline(&core, Duration::from_millis(20)).await;
        let (answer, at) = reading.await;
        assert!(answer == bytes[..4096]);
        assert!(at - set < Duration::from_millis(30), "{:?}", at - set);
        array.stop(&core).await.unwrap();
    });
    run.expect_done();
}

#[test]
fn sectors_that_neither_read_nor_take_a_rewrite_are_recorded_and_good_again_once_written() {
    for level in [Level::Raid5, Level::Raid6, Level::Raid1] {
        let mut fixture = Fixture::new(level, if level == Level::Raid1 { 2 } else { 4 });
        let (slot, sector) = fixture.first();
        let control = fixture.world.drive(&fixture.drives[slot]);
        let spec = fixture.spec();
        let run = fixture.world.run(async move |core: Core| {
            let recorder = Recorder::default();
            let array = ArrayHandle::start(&core, spec, Box::new(recorder.clone())).await;
            let volume = array.volume().open(&core).unwrap();
            let bytes = fill(&volume).await;
            let bad = |recorder: &Recorder| {
                let record = recorder.records.borrow().last().cloned().unwrap();
                record.seats[slot].bad.iter().collect::<Vec<_>>()
            };
            (sector..sector + 8).for_each(|sector| control.latent(sector));
            control.fail_next_writes(1);
            for _ in 0..4 {
                assert!(read(&volume, 0, 4096).await == bytes[..4096], "{level}");
            }
            assert_eq!(bad(&recorder), [Sector(sector)..Sector(sector + 8)], "{level}");
            let status = array.status(&core).await;
            assert_eq!(status.members[slot].state, MemberState::InSync);
            assert_eq!(status.members[slot].bad_sectors, 8);
            // Part of it is written: that part is good, and durably so before the write is
            // acknowledged.
            volume.write(512, Buf::zeros(512), Durability::Cached).await.unwrap();
            assert_eq!(
                bad(&recorder),
                [Sector(sector)..Sector(sector + 1), Sector(sector + 2)..Sector(sector + 8)],
                "{level}"
            );
            volume.write(0, BufMut::copy_of(&bytes[..4096]).freeze(), Durability::Cached).await.unwrap();
            assert_eq!(bad(&recorder), [], "{level}");
            assert!(read(&volume, 0, 65536).await == bytes[..65536], "{level}");
            array.stop(&core).await.unwrap();
        });
        run.expect_done();
    }
}

#[test]
fn a_member_without_a_bad_block_log_is_failed_instead() {
    let mut fixture = Fixture::new(Level::Raid5, 4);
    let (slot, sector) = fixture.first();
    let control = fixture.world.drive(&fixture.drives[slot]);
    let spec = fixture.spec();
    let run = fixture.world.run(async move |core: Core| {
        let recorder = Recorder { without_log: true, ..Recorder::default() };
        let array = ArrayHandle::start(&core, spec, Box::new(recorder.clone())).await;
        let volume = array.volume().open(&core).unwrap();
        let bytes = fill(&volume).await;
        control.latent(sector);
        control.fail_next_writes(1);
        assert!(read(&volume, 0, 4096).await == bytes[..4096]);
        assert_eq!(array.status(&core).await.members[slot].state, MemberState::Faulty);
        assert!(recorder.records.borrow().last().unwrap().failed.contains(MemberIx(slot as u16)));
        assert!(read(&volume, 0, 65536).await == bytes[..65536]);
        array.stop(&core).await.unwrap();
    });
    run.expect_done();
}

/// A failure is reported with its cause, and before the record that says so.
#[test]
fn a_failure_is_reported_with_its_cause_before_it_is_recorded() {
    let rows: [(FailCause, Plant); 3] = [
        (FailCause::Write, |control| control.fail_next_writes(1)),
        (FailCause::Flush, |control| control.fail_next_flushes(1)),
        (FailCause::Order, |_| ()),
    ];
    for (cause, provoke) in rows {
        let mut fixture = Fixture::new(Level::Raid1, 2);
        let control = fixture.world.drive(&fixture.drives[1]);
        let spec = fixture.spec();
        let run = fixture.world.run(async move |core: Core| {
            let recorder = Recorder::default();
            let array = ArrayHandle::start(&core, spec, Box::new(recorder.clone())).await;
            let volume = array.volume().open(&core).unwrap();
            fill(&volume).await;
            provoke(&control);
            if cause == FailCause::Order {
                array.fail(&core, MemberIx(1)).await.unwrap();
            }
            volume.write(4096, Buf::zeros(4096), Durability::Cached).await.unwrap();
            volume.flush().await.unwrap();
            assert_eq!(array.status(&core).await.members[1].state, MemberState::Faulty, "{cause:?}");
            let failures = recorder.failures.borrow().clone();
            let [(members, found, before)] = &failures[..] else { panic!("{cause:?}: {failures:?}") };
            assert_eq!((&members[..], *found), (&[(MemberIx(1), None)][..], cause));
            assert!(
                !recorder.records.borrow()[..*before]
                    .iter()
                    .any(|record| record.failed.contains(MemberIx(1)))
            );
            assert!(recorder.records.borrow()[*before].failed.contains(MemberIx(1)), "{cause:?}");
            array.stop(&core).await.unwrap();
        });
        run.expect_done();
    }
}

/// The last record still has the member that was in the seat before it.
#[test]
fn a_member_that_fails_as_it_joins_is_reported_by_its_own_key() {
    let mut fixture = Fixture::new(Level::Raid1, 2);
    let size_bytes = MEMBER_SECTORS * 512;
    let newcomer = fixture.world.add_drive(DriveConfig { size_bytes, ..DriveConfig::default() });
    let mut spec = fixture.spec();
    (0..).zip(&mut spec.members).for_each(|(key, member)| member.key = Some(MemberKey(key)));
    let run = fixture.world.run(async move |core: Core| {
        let recorder = Recorder::default();
        let array = ArrayHandle::start(&core, spec, Box::new(recorder.clone())).await;
        array.fail(&core, MemberIx(1)).await.unwrap();
        recorder.refuses.set(Some(MemberKey(2)));
        let newcomer =
            MemberSpec { key: Some(MemberKey(2)), ..MemberSpec::blank(newcomer.clone(), Sector(0)) };
        assert!(array.add(&core, MemberIx(1), newcomer).await.is_err());
        let failures = recorder.failures.borrow().clone();
        let failures: Vec<_> = failures.iter().map(|(members, cause, _)| (&members[..], *cause)).collect();
        let expected = [
            (&[(MemberIx(1), Some(MemberKey(1)))][..], FailCause::Order),
            (&[(MemberIx(1), Some(MemberKey(2)))][..], FailCause::Superblock),
        ];
        assert_eq!(failures, expected);
        array.stop(&core).await.unwrap();
    });
    run.expect_done();
}

/// A member that cannot record what of it is good again must not cost the record of another that
/// did not take the write.
#[test]
fn who_did_not_take_a_write_is_failed_whatever_becomes_of_bad_sectors() {
    let mut fixture = Fixture::new(Level::Raid1, 2);
    let mut spec = fixture.spec();
    // One entry, and room for one: writing in its middle would need two.
    spec.members[0].bad = [Sector(0)..Sector(24)].into_iter().collect();
    spec.members[0].bad_entries_max = 1;
    let control = fixture.world.drive(&fixture.drives[1]);
    let run = fixture.world.run(async move |core: Core| {
        let recorder = Recorder::default();
        let array = ArrayHandle::start(&core, spec, Box::new(recorder.clone())).await;
        let volume = array.volume().open(&core).unwrap();
        control.fail_next_writes(1);
        let written = volume.write(4096, Buf::zeros(4096), Durability::Cached).await;
        assert_eq!(written, Err(VolumeError::Unreadable));
        let status = array.status(&core).await;
        assert_eq!(
            (status.members[0].state, status.members[1].state),
            (MemberState::InSync, MemberState::Faulty)
        );
        assert!(!status.broken, "{status:?}");
        assert!(recorder.records.borrow().last().unwrap().failed.contains(MemberIx(1)));
        array.stop(&core).await.unwrap();
    });
    run.expect_done();
}

#[test]
fn known_bad_sectors_are_never_asked_for() {
    let mut fixture = Fixture::new(Level::Raid5, 4);
    let (slot, sector) = fixture.first();
    let mut spec = fixture.spec();
    spec.members[slot].bad = [Sector(sector)..Sector(sector + 3)].into_iter().collect();
    let control = fixture.world.drive(&fixture.drives[slot]);
    let run = fixture.world.run(async move |core: Core| {
        let array = ArrayHandle::start(&core, spec, Box::new(Recorder::default())).await;
        let volume = array.volume().open(&core).unwrap();
        // Zeros everywhere, and the parity of zeros; what lies in the bad sectors is garbage.
        control.poke(sector * 512, &[0xee; 3 * 512]);
        assert!(read(&volume, 0, 65536).await == vec![0; 65536]);
        volume.write(4096, Buf::zeros(512), Durability::Cached).await.unwrap();
        assert!(read(&volume, 0, 65536).await == vec![0; 65536]);
        assert_eq!(array.status(&core).await.members[slot].bad_sectors, 3);
        array.stop(&core).await.unwrap();
    });
    run.expect_done();
}

/// What drives hang on most is a discard. The array goes on, and so does what asked for it.
#[test]
fn a_member_that_hangs_on_zeros_is_said_to_be_silent_and_failed_by_order() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 4)] {
        let mut fixture = Fixture::new(level, members);
        let control = fixture.world.drive(&fixture.drives[1]);
        let spec = fixture.spec();
        let run = fixture.world.run(async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, Box::new(Recorder::default())).await;
            let volume = array.volume().open(&core).unwrap();
            fill(&volume).await;
            control.stall(Duration::from_secs(3600));
            let begun = core.now();
            let zeroed = array.volume().open(&core).unwrap();
            let zeroing = core.spawn(async move {
                zeroed.write_zeroes(0, zeroed.size_bytes(), Unmap::Yes, Durability::Cached).await
            });
            core.sleep(Duration::from_secs(20)).await;
            let silent = array.status(&core).await.members[1].silent_for();
            assert_eq!(silent.map(|time| time.as_secs()), Some(20), "{level}");
            array.fail(&core, MemberIx(1)).await.unwrap();
            assert_eq!(zeroing.await, Ok(()), "{level}");
            assert!(core.now() - begun < Duration::from_secs(22), "{level}: {:?}", core.now() - begun);
            assert!(read(&volume, 0, 65536).await == vec![0; 65536]);
            assert_eq!(array.status(&core).await.members[1].state, MemberState::Faulty);
            array.stop(&core).await.unwrap();
        });
        run.expect_done();
    }
}

/// A flush of much takes long, and the drive answers what else it is asked meanwhile.
#[test]
fn a_member_that_answers_others_is_not_silent_for_one_that_takes_long() {
    let mut fixture = Fixture::new(Level::Raid1, 1);
    let minute = Duration::from_secs(60);
    let size_bytes = MEMBER_SECTORS * 512;
    let config = DriveConfig { size_bytes, flush_latency: minute..minute, ..DriveConfig::default() };
    fixture.drives.push(fixture.world.add_drive(config));
    let spec = fixture.spec();
    let run = fixture.world.run(async move |core: Core| {
        let array = ArrayHandle::start(&core, spec, Box::new(Recorder::default())).await;
        let volume = array.volume().open(&core).unwrap();
        let write = async || volume.write(0, Buf::zeros(4096), Durability::Cached).await.unwrap();
        let silent = async || {
            let silent = array.status(&core).await.members[1].silent_for();
            silent.map(|time| time.as_secs())
        };
        write().await;
        let flushed = array.volume().open(&core).unwrap();
        let flushing = core.spawn(async move { flushed.flush().await });
        for _ in 0..20 {
            core.sleep(Duration::from_secs(1)).await;
            write().await;
        }
        assert_eq!(silent().await, None);
        // That a copy of it is read says nothing of what it does with writes.
        for _ in 0..20 {
            core.sleep(Duration::from_secs(1)).await;
            read(&volume, 0, 4096).await;
            read(&volume, 65536, 4096).await;
        }
        assert_eq!(silent().await, Some(20));
        flushing.await.unwrap();
        assert_eq!(silent().await, None);
        array.stop(&core).await.unwrap();
    });
    run.expect_done();
}
