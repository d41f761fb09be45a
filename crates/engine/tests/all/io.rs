//! Every level against a plain array of bytes: random reads, writes, zeros and discards, at any
//! alignment and concurrency, whole and with members lost before or while it runs, on one core and
//! on several. Virtual time, fixed seeds.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use wattle_engine::geometry::{Level, LevelKind};
use wattle_engine::metadata::NoMetadata;
use wattle_engine::units::{MemberIx, Sector};
use wattle_engine::{ArrayHandle, ArraySpec, MemberState, Volume, VolumeError};
use wattle_rt::{
    Buf, BufMut, Core, CoreIx, Device, DriveConfig, Durability, Rng, RunOutcome, SimWorld, Unmap,
    WorldConfig, race,
};

use crate::support::case::{Case, case};
use crate::support::drives::drives;
use crate::support::members::in_sync;
use crate::support::zeros::zeros;

const CASES: &[Case] = &[
    case(Level::Linear, 0, 3, 0),
    case(Level::Raid0, 2, 3, 8),
    case(Level::Raid1, 0, 2, 0),
    case(Level::Raid1, 0, 3, 0),
    case(Level::Raid4, 0, 4, 16),
    case(Level::Raid5, 2, 3, 8),
    case(Level::Raid5, 0, 4, 16),
    case(Level::Raid5, 3, 5, 8),
    case(Level::Raid5, 2, 2, 8),
    case(Level::Raid6, 2, 4, 8),
    case(Level::Raid6, 9, 5, 16),
    case(Level::Raid6, 18, 6, 8),
    case(Level::Raid10, 0x102, 4, 8),
    case(Level::Raid10, 0x102, 3, 8),
    case(Level::Raid10, 0x201, 4, 16),
    case(Level::Raid10, 0x10201, 5, 8),
    case(Level::Raid10, 0x103, 4, 8),
];

const MEMBER_SECTORS: u64 = 256;
const OFFSET: Sector = Sector(16);

struct Fixture {
    world: SimWorld,
    drives: Vec<Device>,
    case: Case,
}

impl Fixture {
    fn new(case: Case, seed: u64, cores: usize) -> Self {
        let mut world = SimWorld::new(WorldConfig { seed, cores, ..WorldConfig::default() });
        let size_bytes = (MEMBER_SECTORS + OFFSET.0) * 512;
        let config = DriveConfig { size_bytes, ..DriveConfig::default() };
        let drives = drives(&mut world, case.members, &config);
        Self { world, drives, case }
    }

    fn spec(&self, missing: &[usize]) -> ArraySpec {
        let members = in_sync(&self.drives, OFFSET, missing);
        ArraySpec::new("a", self.case.geometry(MEMBER_SECTORS), members)
    }
}

/// Requests from several tasks, each in its own part of the volume, checked against a model as they
/// go.
async fn work(core: Core, volume: Volume, model: Rc<RefCell<Vec<u8>>>, seed: u64, requests: usize) {
    let workers = 4;
    let size = volume.size_bytes();
    let part = size / workers / 512 * 512;
    let tasks: Vec<_> = (0..workers)
        .map(|worker| {
            let (volume, model) = (volume.clone(), model.clone());
            core.spawn(async move {
                let mut rng = Rng::new(seed ^ worker.wrapping_mul(0x9e37_79b9));
                for _ in 0..requests {
                    let block = if rng.below(10) == 0 { 1 } else { 512 };
                    let start = worker * part + rng.below(part / block) * block;
                    let len = ((1 + rng.below(40)) * block).min(worker * part + part - start);
                    let range = start as usize..(start + len) as usize;
                    match rng.below(12) {
                        0..=4 => {
                            let (result, buf) = volume.read(start, BufMut::alloc(len as usize)).await;
                            assert_eq!(result, Ok(()), "read of {range:?}");
                            assert!(buf[..] == model.borrow()[range.clone()], "read of {range:?} differs");
                        }
                        5..=9 => {
                            let mut buf = BufMut::alloc(len as usize);
                            rng.fill(&mut buf);
                            model.borrow_mut()[range].copy_from_slice(&buf);
                            let fua = if rng.coin() { Durability::Fua } else { Durability::Cached };
                            assert_eq!(volume.write(start, buf.freeze(), fua).await, Ok(()));
                        }
                        10 => {
                            model.borrow_mut()[range].fill(0);
                            let zeroed =
                                volume.write_zeroes(start, len, Unmap::Yes, Durability::Cached).await;
                            assert_eq!(zeroed, Ok(()));
                        }
                        _ => assert_eq!(volume.flush().await, Ok(())),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
}

async fn check(volume: &Volume, model: &Rc<RefCell<Vec<u8>>>) {
    let (result, buf) = volume.read(0, BufMut::alloc(volume.size_bytes() as usize)).await;
    assert_eq!(result, Ok(()));
    assert!(buf[..] == model.borrow()[..], "the whole volume differs from the model");
}

fn run<T: std::fmt::Debug + 'static>(
    fixture: &mut Fixture,
    what: &str,
    main: impl AsyncFnOnce(Core) -> T + 'static,
) -> T {
    match fixture.world.run(main) {
        RunOutcome::Done(value) => value,
        other => panic!("{:?} {what}: {other:?}", fixture.case),
    }
}

/// Losses a case survives, at most two: none, each single one, some pairs.
fn losses(case: Case) -> Vec<Vec<usize>> {
    let geometry = case.geometry(MEMBER_SECTORS);
    let n = case.members;
    let singles = (0..n).map(|slot| vec![slot]);
    let pairs = (0..n).flat_map(|a| (a + 1..n).map(move |b| vec![a, b]));
    let survives =
        |lost: &Vec<usize>| geometry.survives(&lost.iter().map(|&slot| MemberIx(slot as u16)).collect());
    std::iter::once(vec![]).chain(singles.chain(pairs).filter(survives)).collect()
}

#[test]
fn every_level_reads_back_what_was_written_with_every_tolerable_loss() {
    for (number, &case) in CASES.iter().enumerate() {
        for cores in [1, 3] {
            let mut fixture = Fixture::new(case, number as u64, cores);
            let size = (case.geometry(MEMBER_SECTORS).array_sectors().0 * 512) as usize;
            let mut contents = vec![0; size];
            for (round, missing) in losses(case).into_iter().enumerate() {
                if round > 0 {
                    // A member that was away has missed writes: what follows starts from whole
                    // members again.
                    fixture = Fixture::new(case, (number * 100 + round) as u64, cores);
                    contents.fill(0);
                }
                for degraded in [false, true] {
                    let missing = if degraded { &missing[..] } else { &[] };
                    if degraded && missing.is_empty() {
                        continue;
                    }
                    let spec = fixture.spec(missing);
                    let before = contents.clone();
                    let seed = (number * 1000 + round * 10) as u64 + u64::from(degraded);
                    contents = run(&mut fixture, &format!("without {missing:?}"), async move |core: Core| {
                        let model = Rc::new(RefCell::new(before));
                        let array = ArrayHandle::start(&core, spec, Box::new(NoMetadata)).await;
                        let volume = array.volume().open(&core).unwrap();
                        check(&volume, &model).await;
                        work(core.clone(), volume.clone(), model.clone(), seed, 25).await;
                        check(&volume, &model).await;
                        assert_eq!(array.stop(&core).await, Ok(()));
                        model.take()
                    });
                }
            }
        }
    }
}

#[test]
fn a_member_that_goes_away_in_mid_flight_costs_nothing() {
    for (number, &case) in CASES.iter().enumerate() {
        for lost in losses(case).into_iter().skip(1) {
            let mut fixture = Fixture::new(case, number as u64, 2);
            for (i, &slot) in lost.iter().enumerate() {
                fixture.world.drive(&fixture.drives[slot]).gone_after_ops(20 + 15 * i as u64);
            }
            let spec = fixture.spec(&[]);
            let slots = lost.clone();
            run(&mut fixture, &format!("losing {lost:?}"), async move |core: Core| {
                let array = ArrayHandle::start(&core, spec, Box::new(NoMetadata)).await;
                let volume = array.volume().open(&core).unwrap();
                let model = Rc::new(RefCell::new(vec![0; volume.size_bytes() as usize]));
                work(core.clone(), volume.clone(), model.clone(), 7, 60).await;
                check(&volume, &model).await;
                let status = array.status(&core).await;
                for slot in slots {
                    assert_eq!(status.members[slot].state, MemberState::Faulty, "{status:?}");
                }
                assert!(!status.broken);
                array.stop(&core).await.unwrap();
            });
        }
    }
}

/// Whichever core a write of a part of a stripe came in on and whichever owns that: once it was
/// begun it ends, and keeps the array until then.
#[test]
fn a_write_that_nobody_waits_for_is_finished_before_the_array_stops() {
    const LEN: u64 = 2048;
    for (number, &case) in CASES.iter().enumerate().filter(|(_, case)| case.level.kind() == LevelKind::Parity)
    {
        let mut fixture = Fixture::new(case, 60 + number as u64, 3);
        let spec = fixture.spec(&[]);
        let wanted = run(&mut fixture, "giving up", async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, Box::new(NoMetadata)).await;
            let volume = array.volume().open(&core).unwrap();
            let mut wanted = vec![0; volume.size_bytes() as usize];
            for (number, part) in wanted.chunks_exact_mut(LEN as usize).enumerate() {
                part.fill((number % 255 + 1) as u8);
                let write = volume.write(number as u64 * LEN, Buf::copy_of(part), Durability::Cached);
                if number == 0 {
                    // A write that is given up before the array is recorded dirty has written
                    // nothing.
                    assert_eq!(write.await, Ok(()));
                } else {
                    race(write, core.yield_now()).await;
                }
            }
            array.stop(&core).await.unwrap();
            wanted
        });
        let spec = fixture.spec(&[]);
        run(&mut fixture, "reading what was given up", async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, Box::new(NoMetadata)).await;
            let volume = array.volume().open(&core).unwrap();
            check(&volume, &Rc::new(RefCell::new(wanted))).await;
            array.stop(&core).await.unwrap();
        });
    }
}

#[test]
fn latent_errors_are_read_around_and_rewritten() {
    for (number, &case) in
        CASES.iter().enumerate().filter(|(_, case)| case.geometry(MEMBER_SECTORS).redundancy() > 0)
    {
        let mut fixture = Fixture::new(case, 40 + number as u64, 2);
        let spec = fixture.spec(&[]);
        let contents = run(&mut fixture, "filling", async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, Box::new(NoMetadata)).await;
            let volume = array.volume().open(&core).unwrap();
            let model = Rc::new(RefCell::new(vec![0; volume.size_bytes() as usize]));
            work(core.clone(), volume, model.clone(), 11, 60).await;
            array.stop(&core).await.unwrap();
            model.take()
        });
        let bad: Vec<u64> = [0, 9, 60, 100].map(|sector| OFFSET.0 + sector).into();
        for &sector in &bad {
            fixture.world.drive(&fixture.drives[1]).latent(sector);
        }
        let spec = fixture.spec(&[]);
        run(&mut fixture, "reading around", async move |core: Core| {
            let model = Rc::new(RefCell::new(contents));
            let array = ArrayHandle::start(&core, spec, Box::new(NoMetadata)).await;
            let volume = array.volume().open(&core).unwrap();
            check(&volume, &model).await;
            work(core.clone(), volume.clone(), model.clone(), 13, 30).await;
            check(&volume, &model).await;
            let status = array.status(&core).await;
            assert!(status.members.iter().all(|member| member.state == MemberState::InSync), "{status:?}");
            array.stop(&core).await.unwrap();
        });
    }
}

/// The same sectors written by many at once: whichever write wins, all copies and parity agree on
/// it.
#[test]
fn writes_that_overlap_leave_redundancy_that_agrees() {
    for (number, &case) in
        CASES.iter().enumerate().filter(|(_, case)| case.geometry(MEMBER_SECTORS).redundancy() > 0)
    {
        let mut fixture = Fixture::new(case, 80 + number as u64, 3);
        let spec = fixture.spec(&[]);
        let whole = run(&mut fixture, "overlapping", async move |core: Core| {
            let array = ArrayHandle::start(&core, spec, Box::new(NoMetadata)).await;
            let handles: Vec<_> = (0..6u8)
                .map(|writer| {
                    let volume = array.volume();
                    let at = wattle_rt::CoreIx(usize::from(writer) % core.cores());
                    core.call(at, move |core| async move {
                        let volume = volume.open(&core).unwrap();
                        let writes = (0..30u64).map(|round| {
                            let mut buf = BufMut::alloc(6 * 512);
                            buf.fill(writer * 30 + round as u8);
                            let (volume, start) = (volume.clone(), round * 7 % 20 * 512);
                            core.spawn(
                                async move { volume.write(start, buf.freeze(), Durability::Cached).await },
                            )
                        });
                        for write in writes.collect::<Vec<_>>() {
                            assert_eq!(write.await, Ok(()));
                        }
                    })
                })
                .collect();
            for handle in handles {
                handle.await;
            }
            core.sleep(Duration::from_millis(500)).await;
            assert!(!array.status(&core).await.dirty, "idle arrays are recorded clean");
            let volume = array.volume().open(&core).unwrap();
            let (result, buf) = volume.read(0, BufMut::alloc(32 * 512)).await;
            assert_eq!(result, Ok(()));
            array.stop(&core).await.unwrap();
            buf.to_vec()
        });
        for missing in losses(case).into_iter().skip(1) {
            let spec = fixture.spec(&missing);
            let degraded = run(&mut fixture, "comparing", async move |core: Core| {
                let array = ArrayHandle::start(&core, spec, Box::new(NoMetadata)).await;
                let volume = array.volume().open(&core).unwrap();
                let (result, buf) = volume.read(0, BufMut::alloc(32 * 512)).await;
                assert_eq!(result, Ok(()));
                array.stop(&core).await.unwrap();
                buf.to_vec()
            });
            assert!(whole == degraded, "{case:?} without {missing:?} tells another story");
        }
    }
}

/// A client that stays connected has the volume for as long as it likes.
#[test]
fn what_is_kept_of_a_stopped_array_keeps_none_of_its_drives() {
    for (number, &case) in CASES.iter().enumerate() {
        let mut fixture = Fixture::new(case, 200 + number as u64, 2);
        run(&mut fixture, "stopping", async move |core: Core| {
            let size_bytes = (MEMBER_SECTORS + OFFSET.0) * 512;
            let (devices, drives) = zeros(&core, case.members, size_bytes);
            let members = in_sync(&devices, OFFSET, &[]);
            drop(devices);
            let spec = ArraySpec::new("a", case.geometry(MEMBER_SECTORS), members);
            let array = ArrayHandle::start(&core, spec, Box::new(NoMetadata)).await;
            for ix in 0..core.cores() {
                let volume = array.volume();
                let keep = move |core: Core| async move {
                    // No key of the engine's: those begin at 1.
                    core.put_local(u64::MAX, Rc::new(volume.open(&core).unwrap()));
                };
                core.call(CoreIx(ix), keep).await;
            }
            let volume = array.volume().open(&core).unwrap();
            assert_eq!(volume.write(512, Buf::copy_of(&[1; 512]), Durability::Cached).await, Ok(()));
            assert_eq!(volume.read(0, BufMut::alloc(8192)).await.0, Ok(()));
            assert_eq!(drives.held(), case.members);
            array.stop(&core).await.unwrap();
            assert_eq!(drives.held(), 0, "{case:?}");
            assert_eq!(volume.read(0, BufMut::alloc(512)).await.0, Err(VolumeError::Stopped));
        });
    }
}
