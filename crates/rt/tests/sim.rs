//! The simulated world: equal seeds are equal worlds, power cuts leave what they may leave and
//! nothing else, faults do what they say.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::needless_pass_by_value,
    clippy::semicolon_if_nothing_returned,
    reason = "tests"
)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use wattle_rt::{
    Buf, BufMut, Core, Device, DriveConfig, Durability, IoError, IoErrorKind, RunOutcome, SimWorld, Unmap,
    WorldConfig,
};

const SECTOR: usize = 512;

fn world(seed: u64) -> SimWorld {
    SimWorld::new(WorldConfig { seed, ..WorldConfig::default() })
}

fn sector(byte: u8) -> Buf {
    Buf::copy_of(&[byte; SECTOR])
}

async fn write(core: &Core, drive: &Device, at: u64, byte: u8) -> Result<(), IoError> {
    core.write(drive, at * SECTOR as u64, sector(byte), Durability::Cached).await
}

async fn read(core: &Core, drive: &Device, at: u64) -> Result<u8, IoError> {
    let (result, buf) = core.read(drive, at * SECTOR as u64, BufMut::alloc(SECTOR)).await;
    result.map(|()| {
        assert!(buf.iter().all(|&byte| byte == buf[0]), "a sector write is atomic");
        buf[0]
    })
}

/// The first byte of each of the first `count` sectors.
fn peek(world: &SimWorld, drive: &Device, count: u64) -> Vec<u8> {
    let bytes = world.drive(drive).peek(0, count as usize * SECTOR);
    bytes.chunks(SECTOR).map(|sector| sector[0]).collect()
}

/// What the first sectors hold after a power cut, over many seeds.
fn after_cuts(seeds: u64, count: u64, program: impl AsyncFn(&Core, &Device)) -> BTreeSet<Vec<u8>> {
    let mut seen = BTreeSet::new();
    // Enough for every outcome under Miri, which is slow.
    let seeds = if cfg!(miri) { seeds.min(24) } else { seeds };
    for seed in 0..seeds {
        let mut world = world(seed);
        let drive = world.add_drive(DriveConfig::default());
        world.run(async |core| program(&core, &drive).await).expect_done();
        world.power_cut_now();
        seen.insert(peek(&world, &drive, count));
    }
    seen
}

fn set(items: &[&[u8]]) -> BTreeSet<Vec<u8>> {
    items.iter().map(|item| item.to_vec()).collect()
}

/// A busy little program whose trace depends on every decision of the world.
async fn busy(core: Core, drive: Device) -> u64 {
    let order = Rc::new(RefCell::new(Vec::new()));
    let tasks: Vec<_> = (0..20u64)
        .map(|index| {
            let (core2, drive, order) = (core.clone(), drive.clone(), order.clone());
            core.spawn(async move {
                write(&core2, &drive, index % 7, index as u8).await.unwrap();
                let other = index as usize % core2.cores();
                let hop = core2.call(wattle_rt::CoreIx(other), move |core| async move {
                    core.sleep(Duration::from_micros(index)).await;
                    core.index().0
                });
                assert_eq!(hop.await, other);
                read(&core2, &drive, index % 7).await.unwrap();
                order.borrow_mut().push(index);
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    order.borrow().iter().fold(0, |hash: u64, index| hash.wrapping_mul(31) + index)
}

#[test]
fn equal_seeds_are_equal_worlds_and_others_differ() {
    let trace = |seed| {
        let mut world = SimWorld::new(WorldConfig { seed, cores: 3, ..WorldConfig::default() });
        let drive = world.add_drive(DriveConfig::default());
        let order = world.run(async |core| busy(core, drive.clone()).await).expect_done();
        (world.trace_hash(), order, world.now(), world.ops_submitted())
    };
    let seeds = if cfg!(miri) { 4 } else { 20 };
    let all: BTreeSet<_> = (0..seeds).map(|seed| trace(seed).0).collect();
    assert_eq!(all.len() as u64, seeds);
    let orders: BTreeSet<_> = (0..seeds).map(|seed| trace(seed).1).collect();
    assert!(orders.len() as u64 > seeds * 3 / 4, "tasks and completions come in many orders");
    for seed in 0..seeds {
        assert_eq!(trace(seed), trace(seed));
    }
}

#[test]
fn unflushed_sectors_survive_in_every_subset() {
    let seen = after_cuts(100, 2, async |core, drive| {
        core.writev(drive, 0, vec![sector(1), sector(2)], Durability::Cached).await.unwrap();
    });
    assert_eq!(seen, set(&[&[0, 0], &[0, 2], &[1, 0], &[1, 2]]));
}

#[test]
fn any_version_of_an_unflushed_sector_may_land() {
    let seen = after_cuts(100, 1, async |core, drive| {
        for version in 1..=3 {
            write(core, drive, 0, version).await.unwrap();
        }
    });
    assert_eq!(seen, set(&[&[0], &[1], &[2], &[3]]));
}

#[test]
fn flushed_and_forced_writes_always_survive() {
    let seen = after_cuts(100, 4, async |core, drive| {
        write(core, drive, 0, 1).await.unwrap();
        write(core, drive, 1, 1).await.unwrap();
        core.flush(drive).await.unwrap();
        write(core, drive, 1, 2).await.unwrap();
        write(core, drive, 2, 3).await.unwrap();
        core.write(drive, 2 * SECTOR as u64, sector(4), Durability::Fua).await.unwrap();
        core.write(drive, 3 * SECTOR as u64, sector(5), Durability::Fua).await.unwrap();
    });
    // A forced write also ends the older, cached version of its sector.
    assert_eq!(seen, set(&[&[1, 1, 4, 5], &[1, 2, 4, 5]]));
}

#[test]
fn a_flush_covers_only_what_completed_before_it_was_submitted() {
    let seen = after_cuts(200, 1, async |core, drive| {
        let late = core.write(drive, 0, sector(1), Durability::Cached);
        let flush = core.flush(drive);
        late.await.unwrap();
        flush.await.unwrap();
    });
    assert_eq!(seen, set(&[&[0], &[1]]));
}

#[test]
fn zeroing_is_volatile_like_any_write() {
    let seen = after_cuts(100, 2, async |core, drive| {
        write(core, drive, 0, 1).await.unwrap();
        write(core, drive, 1, 2).await.unwrap();
        core.flush(drive).await.unwrap();
        core.write_zeroes(drive, 0, 2 * SECTOR as u64, Unmap::Yes).await.unwrap();
    });
    assert_eq!(seen, set(&[&[0, 0], &[0, 2], &[1, 0], &[1, 2]]));
}

#[test]
fn a_drive_without_a_volatile_cache_keeps_what_completed() {
    for seed in 0..if cfg!(miri) { 5 } else { 50 } {
        let mut world = world(seed);
        let drive = world.add_drive(DriveConfig { volatile_cache: false, ..DriveConfig::default() });
        world.run(async |core| write(&core, &drive, 3, 9).await).expect_done().unwrap();
        world.power_cut_now();
        assert_eq!(peek(&world, &drive, 4)[3], 9);
    }
}

#[test]
fn a_write_in_flight_lands_in_any_part_and_sometimes_becomes_unreadable() {
    let mut seen = BTreeSet::new();
    for seed in 0..if cfg!(miri) { 80 } else { 300 } {
        let config = WorldConfig { seed, torn_unreadable_ppm: 300_000, ..WorldConfig::default() };
        let mut world = SimWorld::new(config);
        let drive = world.add_drive(DriveConfig::default());
        world.power_cut_after_ops(1);
        let outcome = world.run(async |core| {
            core.writev(&drive, 0, vec![sector(1), sector(1)], Durability::Fua).await.unwrap();
        });
        assert_eq!(outcome, RunOutcome::PowerCut);
        let control = world.drive(&drive);
        let state = |at: u64| {
            if control.is_unreadable(at) {
                'x'
            } else {
                char::from(b'0' + peek(&world, &drive, 2)[at as usize])
            }
        };
        seen.insert((state(0), state(1)));
    }
    assert_eq!(seen.len(), 9, "old, new or unreadable, each sector on its own: {seen:?}");
}

#[test]
fn a_cut_can_be_enumerated_by_hand() {
    let mut seen = BTreeSet::new();
    for subset in 0..8usize {
        let mut world = world(1);
        let drive = world.add_drive(DriveConfig::default());
        let mut asked = 0;
        world.choose_power_cuts(move |n| {
            assert_eq!(n, 2);
            asked += 1;
            subset >> (asked - 1) & 1
        });
        world.run(async |core| {
            for at in 0..3 {
                write(&core, &drive, at, 1).await.unwrap();
            }
        });
        world.power_cut_now();
        seen.insert(peek(&world, &drive, 3));
    }
    assert_eq!(seen.len(), 8);
}

#[test]
fn cuts_come_when_planned_and_a_restart_sees_the_same_drive() {
    let mut world = world(3);
    let drive = world.add_drive(DriveConfig::default());
    let at = world.now() + Duration::from_millis(5);
    world.power_cut_at(at);
    let outcome = world.run(async |core| {
        core.write(&drive, 0, sector(7), Durability::Fua).await.unwrap();
        loop {
            core.sleep(Duration::from_micros(300)).await;
        }
    });
    assert_eq!((outcome, world.now()), (RunOutcome::PowerCut::<()>, at));
    assert_eq!(world.run(async |core| read(&core, &drive, 0).await).expect_done(), Ok(7));

    for op in 1..=4u64 {
        let before = world.ops_submitted();
        world.power_cut_after_ops(op);
        let outcome = world.run(async |core| {
            for at in 0..10 {
                write(&core, &drive, at, 1).await.unwrap();
            }
        });
        assert_eq!((outcome, world.ops_submitted() - before), (RunOutcome::PowerCut, op));
    }
}

#[test]
fn a_restart_without_a_power_cut_loses_nothing() {
    let mut world = world(4);
    let drive = world.add_drive(DriveConfig::default());
    world.run(async |core| drop(core.write(&drive, 0, sector(5), Durability::Cached))).expect_done();
    world.run(async |core| core.sleep(Duration::from_secs(1)).await).expect_done();
    // Dropped before it was ever submitted or not, an eager write that left in the last batch
    // lands.
    assert_eq!(peek(&world, &drive, 1), [5]);
}

#[test]
fn what_cannot_move_is_reported_with_its_place() {
    let mut world = world(5);
    let drive = world.add_drive(DriveConfig { name: "sda".to_owned(), ..DriveConfig::default() });
    world.drive(&drive).stall(Duration::MAX);
    let RunOutcome::Stuck(report) = world.run(async |core| {
        drop(core.spawn(std::future::pending::<()>()));
        write(&core, &drive, 0, 1).await
    }) else {
        panic!("a stalled drive blocks for ever")
    };
    assert!(report[0].contains("write sda at 0 for 512 bytes") && report[0].contains("sim.rs"), "{report:?}");
    assert!(report[1].contains("task waits, spawned at"), "{report:?}");
}

#[test]
fn a_task_that_spins_ends_at_the_poll_limit_and_one_that_dawdles_at_the_time_limit() {
    let config =
        WorldConfig { poll_limit: 1000, time_limit: Duration::from_secs(5), ..WorldConfig::default() };
    let mut world = SimWorld::new(config);
    let spin: RunOutcome<()> = world.run(async |core| {
        loop {
            core.yield_now().await;
        }
    });
    assert_eq!(spin, RunOutcome::TimeLimit);
    assert_eq!(world.run(async |core| core.sleep(Duration::from_secs(6)).await), RunOutcome::TimeLimit);
    assert_eq!(world.run(async |core| core.sleep(Duration::from_secs(4)).await), RunOutcome::Done(()));
}

#[test]
fn a_gone_drive_answers_gone_until_it_comes_back() {
    let mut world = world(6);
    let drive = world.add_drive(DriveConfig::default());
    let control = world.drive(&drive);
    control.gone_after_ops(2);
    world
        .run(async |core| {
            write(&core, &drive, 0, 1).await.unwrap();
            assert_eq!(read(&core, &drive, 0).await, Ok(1));
            assert_eq!(read(&core, &drive, 0).await.unwrap_err().kind(), IoErrorKind::Gone);
            assert_eq!(core.flush(&drive).await.unwrap_err().kind(), IoErrorKind::Gone);
            control.come_back();
            assert_eq!(read(&core, &drive, 0).await, Ok(1));
            let in_flight = write(&core, &drive, 1, 1);
            let pull = async {
                core.sleep(Duration::from_micros(1)).await;
                control.gone_now();
            };
            let task = core.spawn({
                let (core, drive) = (core.clone(), drive.clone());
                async move { core.write(&drive, 0, sector(1), Durability::Cached).await }
            });
            pull.await;
            assert_eq!(task.await.unwrap_err().kind(), IoErrorKind::Gone);
            assert_eq!(in_flight.await.unwrap_err().kind(), IoErrorKind::Gone);
        })
        .expect_done();
}

#[test]
fn latent_sectors_fail_until_rewritten_and_transient_faults_pass() {
    let mut world = world(7);
    let drive = world.add_drive(DriveConfig::default());
    let control = world.drive(&drive);
    control.latent(2);
    world
        .run(async |core| {
            let (result, _) = core.read(&drive, 0, BufMut::alloc(4 * SECTOR)).await;
            assert_eq!(result.unwrap_err().kind(), IoErrorKind::Medium);
            assert_eq!(read(&core, &drive, 1).await, Ok(0));
            write(&core, &drive, 2, 3).await.unwrap();
            assert_eq!(read(&core, &drive, 2).await, Ok(3));

            control.fail_next_writes(1);
            assert_eq!(write(&core, &drive, 5, 1).await, Err(IoError::MEDIUM));
            assert_eq!(write(&core, &drive, 5, 2).await, Ok(()));
            control.fail_next_flushes(1);
            assert_eq!(core.flush(&drive).await, Err(IoError::MEDIUM));
            assert_eq!(control.unflushed_sectors(), 2);
            control.lying_flush(true);
            assert_eq!(core.flush(&drive).await, Ok(()));
            assert_eq!(control.unflushed_sectors(), 2);
            control.lying_flush(false);
            assert_eq!(core.flush(&drive).await, Ok(()));
            assert_eq!(control.unflushed_sectors(), 0);

            control.lose_next_writes(1);
            write(&core, &drive, 5, 9).await.unwrap();
            assert_eq!(read(&core, &drive, 5).await, Ok(2));
            control.misdirect_next_write(3);
            write(&core, &drive, 5, 8).await.unwrap();
            assert_eq!((read(&core, &drive, 5).await, read(&core, &drive, 8).await), (Ok(2), Ok(8)));

            control.no_write_zeroes(true);
            let refused = core.write_zeroes(&drive, 0, 512, Unmap::No).await.unwrap_err();
            assert_eq!(refused.kind(), IoErrorKind::Unsupported);
            assert_eq!(core.write(&drive, 100, sector(1), Durability::Cached).await, Err(IoError::INVALID));
        })
        .expect_done();
}

#[test]
fn stalls_and_slowness_take_their_time() {
    let mut world = world(8);
    let drive = world.add_drive(DriveConfig::default());
    let control = world.drive(&drive);
    world
        .run(async |core| {
            let start = core.now();
            control.stall(Duration::from_secs(3));
            write(&core, &drive, 0, 1).await.unwrap();
            assert!(core.now() - start >= Duration::from_secs(3));
            control.slow(1000);
            let start = core.now();
            write(&core, &drive, 0, 1).await.unwrap();
            assert!(core.now() - start >= Duration::from_millis(50));
        })
        .expect_done();
}

#[test]
fn bandwidth_is_shared() {
    let mut world = world(9);
    let drive = world.add_drive(DriveConfig {
        size_bytes: 64 << 20,
        write_bytes_per_second: 100 << 20,
        ops_per_second: 100_000,
        ..DriveConfig::default()
    });
    let took = world
        .run(async |core| {
            let start = core.now();
            let writes: Vec<_> = (0..50)
                .map(|at| core.write(&drive, at << 20, Buf::zeros(1 << 20), Durability::Cached))
                .collect();
            for write in writes {
                write.await.unwrap();
            }
            core.now() - start
        })
        .expect_done();
    assert!((500..502).contains(&took.as_millis()), "50 MiB at 100 MiB/s took {took:?}");
}

#[test]
fn snapshots_peeks_and_pokes() {
    let mut world = world(10);
    let drive = world.add_drive(DriveConfig { sector_bytes: 4096, ..DriveConfig::default() });
    let control = world.drive(&drive);
    control.poke(5000, b"hello");
    assert_eq!(control.peek(4998, 9), b"\0\0hello\0\0");
    let snapshot = control.snapshot();
    world
        .run(async |core| {
            core.write(&drive, 4096, Buf::zeros(4096), Durability::Cached).await.unwrap();
        })
        .expect_done();
    assert_eq!((control.peek(5000, 5), control.peek_durable(5000, 5)), (vec![0; 5], b"hello".to_vec()));
    control.restore(&snapshot);
    assert_eq!(control.peek(5000, 5), b"hello");
    assert_eq!(control.unflushed_sectors(), 0);
}

/// Zeroing a range that a large drive never held must not cost its size.
#[test]
fn zeroing_a_huge_empty_drive_is_free() {
    let mut world = world(11);
    let drive = world.add_drive(DriveConfig { size_bytes: 1 << 44, ..DriveConfig::default() });
    world
        .run(async |core| {
            write(&core, &drive, 1 << 34, 1).await.unwrap();
            core.write_zeroes(&drive, 0, 1 << 44, Unmap::Yes).await.unwrap();
            assert_eq!(read(&core, &drive, 1 << 34).await, Ok(0));
        })
        .expect_done();
    // One page of 4 KiB held data; the other two billion were never touched.
    assert_eq!(world.drive(&drive).unflushed_sectors(), 8);
}

/// The smallest run that does something: restart, write, cut. Many seeds must be affordable.
#[test]
fn small_runs_are_cheap() {
    let runs = Cell::new(0);
    let seeds = if cfg!(miri) { 20 } else { 2000 };
    for seed in 0..seeds {
        let mut world = world(seed);
        let drive = world.add_drive(DriveConfig::default());
        world.power_cut_after_ops(1 + seed % 20);
        let _ = world.run(async |core| {
            for at in 0..20 {
                write(&core, &drive, at, at as u8).await.unwrap();
            }
        });
        runs.set(runs.get() + 1);
    }
    assert_eq!(runs.get(), seeds);
}

/// A drive of 100k reads or 50k writes a second, 80 and 20 µs, 2000 and 1000 MB/s, without a
/// volatile cache.
fn modelled() -> DriveConfig {
    let micros = |n| Duration::from_micros(n)..Duration::from_micros(n);
    DriveConfig {
        size_bytes: 1 << 40,
        sector_bytes: 4096,
        read_latency: micros(80),
        write_latency: micros(20),
        flush_latency: micros(5),
        read_bytes_per_second: 2_000_000_000,
        write_bytes_per_second: 1_000_000_000,
        reads_per_second: 100_000,
        writes_per_second: 50_000,
        volatile_cache: false,
        kept_bytes: 0..1 << 20,
        ..DriveConfig::default()
    }
}

#[test]
fn reads_and_writes_share_the_time_of_a_drive() {
    let mut world = world(12);
    world.keep_order();
    let drive = world.add_drive(modelled());
    let control = world.drive(&drive);
    world
        .run(async |core| {
            let read = |at: u64, len| core.read(&drive, at << 20, BufMut::alloc(len));
            let write = |at: u64, len| core.write(&drive, at << 20, Buf::zeros(len), Durability::Cached);
            let micros = |from| (core.now() - from).as_micros();
            // Alone, each takes its share of a second and its latency.
            let start = core.now();
            read(1, 4096).await.0.unwrap();
            assert_eq!(micros(start), 10 + 80);
            let start = core.now();
            write(1, 4096).await.unwrap();
            assert_eq!(micros(start), 20 + 20);
            // Large ones are bound by bandwidth.
            let start = core.now();
            write(1, 1 << 20).await.unwrap();
            assert_eq!(micros(start), 1048 + 20);
            let start = core.now();
            read(1, 2 << 20).await.0.unwrap();
            assert_eq!(micros(start), 1048 + 80);
            // A hundred of each add up; what waits for one waits for the other.
            let (start, before) = (core.now(), control.totals());
            let ops: Vec<_> = (0..100).map(|at| (read(at, 4096), write(at, 4096))).collect();
            // A flush of a drive without a cache has nothing to wait for.
            core.flush(&drive).await.unwrap();
            assert_eq!(micros(start), 5);
            let (mut reads, mut writes) = (0, 0);
            for (read, write) in ops {
                read.await.0.unwrap();
                reads = micros(start);
                write.await.unwrap();
                writes = micros(start);
            }
            assert_eq!((reads, writes), (100 * 10 + 99 * 20 + 80, 3060));
            let totals = control.totals() - before;
            assert_eq!((totals.reads, totals.writes, totals.flushes), (100, 100, 1));
            assert_eq!((totals.read_bytes, totals.written_bytes), (409_600, 409_600));
            assert_eq!(totals.busy, Duration::from_micros(3000));
            // Reads wait 30 k + 10 + 80 µs for k from 0 to 99, writes 30 k + 30 + 20.
            assert_eq!(totals.in_flight.as_micros(), 157_500 + 153_500 + 5);
        })
        .expect_done();
}

#[test]
fn a_busy_time_counts_as_it_passes() {
    let mut world = world(13);
    world.keep_order();
    let drive = world.add_drive(modelled());
    let control = world.drive(&drive);
    world
        .run(async |core| {
            let write = core.write(&drive, 0, Buf::zeros(1_000_000 / 4096 * 4096), Durability::Cached);
            core.sleep(Duration::from_micros(400)).await;
            assert_eq!(control.totals().busy, Duration::from_micros(400));
            assert_eq!(control.totals().in_flight, Duration::from_micros(400));
            write.await.unwrap();
        })
        .expect_done();
}

#[test]
fn what_is_not_kept_reads_as_zeros() {
    let mut world = world(14);
    let drive = world.add_drive(modelled());
    let control = world.drive(&drive);
    control.latent(1 << 20);
    world
        .run(async |core| {
            let far = (1 << 20) * 4096;
            for at in [4096, far] {
                let data = Buf::copy_of(&[7; 8192]);
                core.write(&drive, at, data, Durability::Cached).await.unwrap();
            }
            // It was unreadable, and the write made it readable like any other.
            for (at, expected) in [(4096, 7), (far, 0)] {
                let (result, buf) = core.read(&drive, at, BufMut::copy_of(&[1; 8192])).await;
                result.unwrap();
                assert!(buf.iter().all(|&byte| byte == expected));
            }
            let edge = (1 << 20) - 4096;
            core.write(&drive, edge, Buf::copy_of(&[9; 8192]), Durability::Cached).await.unwrap();
            let (_, buf) = core.read(&drive, edge, BufMut::alloc(8192)).await;
            assert_eq!((buf[0], buf[4095], buf[4096]), (9, 9, 0));
        })
        .expect_done();
}
