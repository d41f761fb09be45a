//! Modelled drives: what queues, caches, fast space and garbage collection make of requests. That
//! the presets hold their own rates is tested in the laboratory.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use wattle_rt::model::{Disk, Flash, Media};
use wattle_rt::{
    BackendChoice, Buf, BufMut, Core, Device, DriveConfig, DriveControl, DriveModel, Durability, Instant,
    Rng, RunOutcome, RuntimeConfig, SimWorld, Traffic, WorldConfig, run,
};

const MIB: u64 = 1 << 20;

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// 100k reads or 50k writes a second, 90 and 40 µs alone, 2000 and 1000 MB/s.
fn flash() -> Flash {
    Flash {
        reads_per_second: 100_000,
        writes_per_second: 50_000,
        read_bytes_per_second: 2_000_000_000,
        write_bytes_per_second: 1_000_000_000,
        read_latency: micros(90),
        write_latency: micros(40),
        channels: 0,
        turnaround: Duration::ZERO,
        burst_bytes: 0,
        burst_writes_per_second: 0,
        burst_bytes_per_second: 0,
        refill_bytes_per_second: 0,
        collection_pause: Duration::ZERO,
        collection_share_ppm: 0,
    }
}

fn of_flash(flash: Flash) -> DriveModel {
    DriveModel { queue_depth: 1023, group: 0, cache_bytes: 0, flush: micros(5), media: Media::Flash(flash) }
}

/// 7,200 turns a minute, 200 MB/s at the beginning.
fn of_disk() -> DriveModel {
    let disk = Disk {
        turns_per_minute: 7200,
        seek_track: micros(1000),
        seek_average: micros(8500),
        seek_full: micros(18_000),
        outer_bytes_per_second: 200_000_000,
        inner_bytes_per_second: 100_000_000,
        link_bytes_per_second: 500_000_000,
        command: micros(50),
        read_ahead_bytes: 2 * MIB,
    };
    DriveModel {
        queue_depth: 32,
        group: 0,
        cache_bytes: 64 * MIB,
        flush: micros(100),
        media: Media::Disk(disk),
    }
}

fn config(model: DriveModel) -> DriveConfig {
    DriveConfig {
        size_bytes: 1 << 40,
        sector_bytes: 4096,
        volatile_cache: model.cache_bytes > 0,
        kept_bytes: 0..MIB,
        model: Some(model),
        ..DriveConfig::default()
    }
}

fn with(config: DriveConfig, seed: u64, test: impl AsyncFnOnce(Core, Device, DriveControl)) {
    let mut world = SimWorld::new(WorldConfig { seed, poll_limit: u64::MAX, ..WorldConfig::default() });
    world.keep_order();
    let drive = world.add_drive(config);
    let control = world.drive(&drive);
    world.run(async |core| test(core, drive, control).await).expect_done();
}

async fn read(core: &Core, drive: &Device, at: u64, len: u64) -> Instant {
    core.read(drive, at, BufMut::alloc(len as usize)).await.0.unwrap();
    core.now()
}

async fn write(core: &Core, drive: &Device, at: u64, len: u64) -> Instant {
    core.write(drive, at, Buf::zeros(len as usize), Durability::Cached).await.unwrap();
    core.now()
}

/// Starts requests of 4 KiB at once, `W` or `R`, and answers how long each took, in microseconds.
async fn burst(core: &Core, drive: &Device, kinds: &str) -> Vec<u64> {
    let from = core.now();
    let start = |(number, kind)| {
        let (core2, drive, at) = (core.clone(), drive.clone(), number as u64 * 4096);
        core.spawn(async move {
            match kind {
                'R' => read(&core2, &drive, at, 4096).await,
                _ => write(&core2, &drive, at, 4096).await,
            }
        })
    };
    let tasks: Vec<_> = kinds.chars().enumerate().map(start).collect();
    let mut took = Vec::new();
    for task in tasks {
        took.push((task.await - from).as_micros() as u64);
    }
    took
}

#[test]
#[cfg_attr(miri, ignore = "thousands of requests")]
fn flash_shares_its_time_between_reads_and_writes() {
    let micros = |n| micros(n)..micros(n);
    let limits = DriveConfig {
        read_latency: micros(80),
        write_latency: micros(20),
        flush_latency: micros(5),
        read_bytes_per_second: 2_000_000_000,
        write_bytes_per_second: 1_000_000_000,
        reads_per_second: 100_000,
        writes_per_second: 50_000,
        model: None,
        ..config(of_flash(flash()))
    };
    // The simple drive is a special case: the same requests take the same time on both.
    let trace = |config| {
        let log = Rc::new(Cell::new(Vec::new()));
        let seen = log.clone();
        with(config, 1, async |core, drive, control| {
            let mut rng = Rng::new(3);
            let mut took = Vec::new();
            for _ in 0..200 {
                let kinds: String = (0..rng.below(20)).map(|_| if rng.coin() { 'R' } else { 'W' }).collect();
                took.extend(burst(&core, &drive, &kinds).await);
                write(&core, &drive, 0, rng.below(64) * 4096 + 4096).await;
                took.push(core.now().as_nanos());
                core.flush(&drive).await.unwrap();
                core.sleep(Duration::from_micros(rng.below(100))).await;
            }
            let totals = control.totals();
            took.extend([totals.busy.as_nanos() as u64, totals.in_flight.as_nanos() as u64]);
            seen.set(took);
        });
        log.take()
    };
    assert_eq!(trace(config(of_flash(flash()))), trace(limits));
}

#[test]
fn what_the_drive_has_no_room_for_waits_in_the_order_of_arrival() {
    let narrow = DriveModel { queue_depth: 2, ..of_flash(flash()) };
    with(config(narrow), 1, async |core, drive, _| {
        // Two at a time: the third begins when the first is done.
        assert_eq!(burst(&core, &drive, "RRRRR").await, [90, 100, 180, 190, 270]);
    });
}

#[test]
fn channels_serve_one_at_a_time() {
    let one = Flash { channels: 1, ..flash() };
    with(config(of_flash(one)), 1, async |core, drive, _| {
        assert_eq!(burst(&core, &drive, "RRR").await, [90, 170, 250]);
    });
}

#[test]
fn grouping_beats_alternating_where_turning_costs() {
    let turning =
        Flash { turnaround: micros(30), read_latency: micros(10), write_latency: micros(20), ..flash() };
    let last = |group: u32| {
        let took = Rc::new(Cell::new(0));
        let seen = took.clone();
        let model = DriveModel { group, queue_depth: 1, ..of_flash(turning.clone()) };
        with(config(model), 1, async |core, drive, _| {
            seen.set(*burst(&core, &drive, &"RW".repeat(20)).await.iter().max().unwrap());
        });
        took.get()
    };
    assert_eq!(last(0), 20 * (10 + 20) + 39 * 30);
    // The first read is on its way before anything else is there to be grouped with.
    assert_eq!(last(20), 20 * (10 + 20) + 30);
    assert_eq!(last(10), 20 * (10 + 20) + 3 * 30);
}

#[test]
fn a_burst_ends_and_comes_back_with_rest() {
    let flash = Flash {
        burst_bytes: 100 * 4096,
        burst_writes_per_second: 100_000,
        burst_bytes_per_second: 2_000_000_000,
        refill_bytes_per_second: 4096 * 1000,
        write_latency: micros(10),
        ..flash()
    };
    with(config(of_flash(flash)), 1, async |core, drive, _| {
        let all = async |count: usize| *burst(&core, &drive, &"W".repeat(count)).await.last().unwrap();
        assert_eq!(all(150).await, 100 * 10 + 50 * 20);
        assert_eq!(all(10).await, 10 * 20);
        core.sleep(Duration::from_millis(40)).await;
        assert_eq!(all(50).await, 40 * 10 + 10 * 20);
        core.sleep(Duration::from_secs(10)).await;
        assert_eq!(all(150).await, 100 * 10 + 50 * 20);
    });
}

#[test]
#[cfg_attr(miri, ignore = "100,000 writes")]
fn collection_makes_a_tail_and_no_difference_to_the_rate() {
    let collecting =
        Flash { collection_pause: Duration::from_millis(2), collection_share_ppm: 200_000, ..flash() };
    let took = |seed| {
        let times = Rc::new(Cell::new(Vec::new()));
        let seen = times.clone();
        with(config(of_flash(collecting.clone())), seed, async |core, drive, _| {
            let mut times = Vec::new();
            for _ in 0..50_000 {
                times.extend(burst(&core, &drive, "W").await);
            }
            seen.set(times);
        });
        times.take()
    };
    let times = took(1);
    let mean = times.iter().sum::<u64>() as f64 / times.len() as f64;
    assert!((mean - 40.0).abs() < 0.4, "{mean}");
    let paused = times.iter().filter(|took| **took > 1000).count();
    // 50,000 writes leave 200 ms to collect, 2 ms at a time.
    assert!((80..=120).contains(&paused), "{paused}");
    assert!(times.iter().all(|took| *took < 3100));
    assert_eq!(times, took(1));
    assert_ne!(times, took(2));
}

#[test]
fn flushes_cost_what_there_is_to_flush() {
    let cached = DriveModel { cache_bytes: MIB, flush: micros(1000), ..of_flash(flash()) };
    with(config(cached), 1, async |core, drive, _| {
        let flush = async || {
            let from = core.now();
            core.flush(&drive).await.unwrap();
            (core.now() - from).as_micros()
        };
        assert_eq!(flush().await, 0);
        write(&core, &drive, 0, 4096).await;
        assert_eq!(flush().await, 1000);
        assert_eq!(flush().await, 0);
        let from = core.now();
        core.write(&drive, 0, Buf::zeros(4096), Durability::Fua).await.unwrap();
        assert_eq!((core.now() - from).as_micros(), 1040);
    });
}

#[test]
fn a_disk_caches_writes_until_a_flush() {
    with(config(of_disk()), 1, async |core, drive, control| {
        let (from, mut rng) = (core.now(), Rng::new(1));
        for _ in 0..20 {
            write(&core, &drive, rng.below(1 << 28) * 4096, 4096).await;
        }
        // A command and the way into the cache each.
        assert!(core.now() - from < micros(20 * 60));
        core.flush(&drive).await.unwrap();
        let took = core.now() - from;
        assert!((Duration::from_millis(50)..Duration::from_millis(200)).contains(&took), "{took:?}");
        assert!(control.totals().busy > took * 95 / 100);
        let from = core.now();
        core.flush(&drive).await.unwrap();
        assert_eq!(core.now() - from, micros(50));
    });
}

#[test]
fn a_disk_without_a_cache_misses_a_turn_between_writes() {
    let plain = DriveModel { cache_bytes: 0, ..of_disk() };
    with(config(plain), 1, async |core, drive, _| {
        write(&core, &drive, 0, 65536).await;
        let from = core.now();
        for number in 1..=10 {
            write(&core, &drive, number * 65536, 65536).await;
        }
        let each = (core.now() - from) / 10;
        // By the time the next one comes, its place has just passed.
        let turn = Duration::from_nanos(8_333_333) + Duration::from_nanos(65536 * 5);
        assert!(each.abs_diff(turn) < micros(5), "{each:?}");
    });
}

#[test]
fn a_disk_reads_ahead() {
    with(config(of_disk()), 1, async |core, drive, _| {
        let timed = async |at: u64| {
            let from = core.now();
            read(&core, &drive, at, 65536).await - from
        };
        timed(MIB).await;
        core.sleep(Duration::from_millis(3)).await;
        // 600 kB have passed under the head meanwhile.
        assert_eq!(timed(MIB + 65536).await.as_micros(), 50 + 131);
        assert_eq!(timed(MIB + 4 * 65536).await.as_micros(), 50 + 131);
        // What was skipped is still there; what lies before the start is not.
        assert_eq!(timed(MIB + 2 * 65536).await.as_micros(), 50 + 131);
        assert!(timed(0).await > Duration::from_millis(1));
    });
}

#[test]
fn nothing_waits_for_ever_for_a_head_that_is_busy_elsewhere() {
    with(config(of_disk()), 1, async |core, drive, _| {
        for number in 0..if cfg!(miri) { 7 } else { 31u64 } {
            let (core2, drive) = (core.clone(), drive.clone());
            core.spawn(async move {
                let mut rng = Rng::new(number);
                loop {
                    read(&core2, &drive, rng.below(1 << 10) * 65536, 4096).await;
                }
            });
        }
        core.sleep(Duration::from_millis(100)).await;
        let from = core.now();
        let took = read(&core, &drive, 1 << 39, 4096).await - from;
        assert!((Duration::from_millis(100)..Duration::from_secs(1)).contains(&took), "{took:?}");
    });
}

#[test]
fn a_drive_says_whether_it_has_a_head() {
    let modelled = |model: DriveModel| Device::modelled("modelled", 1 << 30, 4096, &model).rotational();
    assert_eq!([modelled(of_flash(flash())), modelled(of_disk())], [false, true]);
    with(config(of_flash(flash())), 1, async |_, drive, _| assert!(!drive.rotational()));
    with(config(of_disk()), 1, async |_, drive, _| assert!(drive.rotational()));
}

/// Also bytes of operations that no task waits for any more.
#[test]
fn bytes_count_as_under_way_until_the_drive_is_through_with_them() {
    with(config(of_flash(flash())), 1, async |core, drive, _| {
        let traffic = Rc::new(Traffic::default());
        let read = core.read(&drive, 0, BufMut::alloc(8192));
        read.count_in(&traffic, 8192);
        core.write(&drive, 8192, Buf::zeros(4096), Durability::Cached).count_in(&traffic, 4096);
        assert_eq!(traffic.bytes_in_flight(), 12288);
        read.await.0.unwrap();
        core.sleep(Duration::from_millis(100)).await;
        assert_eq!(traffic.bytes_in_flight(), 0);
    });
}

#[test]
fn power_cuts_stalls_and_ends_meet_what_a_model_has_in_flight() {
    for model in [of_flash(flash()), of_disk()] {
        let mut world = SimWorld::new(WorldConfig::default());
        let drive = world.add_drive(config(model));
        let control = world.drive(&drive);
        let program = async |core: Core| {
            let writes: Vec<_> = (0..64)
                .map(|at| core.write(&drive, at * 4096, Buf::copy_of(&[1; 4096]), Durability::Fua))
                .collect();
            for write in writes {
                write.await.unwrap();
            }
        };
        world.power_cut_after_ops(64);
        assert_eq!(world.run(program), RunOutcome::PowerCut);
        let landed = (0..64).filter(|at| control.peek(at * 4096, 1) == [1]).count();
        assert!((10..54).contains(&landed), "some land, some do not: {landed}");
        // After the cut it works as before, however long it stalls in between.
        let from = world.now();
        control.stall(Duration::from_secs(7));
        world.run(program).expect_done();
        assert!(world.now() - from >= Duration::from_secs(7));
        assert!((0..64).all(|at| control.peek(at * 4096, 1) == [1]));
        // A write that no task waits for any more lands too.
        world
            .run(async |core| drop(core.write(&drive, 0, Buf::copy_of(&[2; 4096]), Durability::Fua)))
            .expect_done();
        control.stall(Duration::MAX);
        let RunOutcome::Stuck(report) = world.run(program) else { panic!("nothing moves") };
        assert!(report[0].contains("write (FUA)"), "{report:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "real time")]
fn a_drive_in_real_time_holds_its_rates() {
    const DEPTH: usize = 512;
    let quiet = (0..10).any(|_| {
        let drive = Device::modelled("modelled", 1 << 30, 4096, &of_flash(flash()));
        let config = RuntimeConfig { cores: 1, backend: BackendChoice::Auto, ..RuntimeConfig::default() };
        let counts = run(config, async |core| {
            let mut counts = Vec::new();
            for reads in [true, false] {
                let (done, stop) = (Rc::new(Cell::new(0u32)), Rc::new(Cell::new(false)));
                let clients: Vec<_> = (0..DEPTH)
                    .map(|number| {
                        let (core2, drive, done, stop) =
                            (core.clone(), drive.clone(), done.clone(), stop.clone());
                        core.spawn(async move {
                            let at = number as u64 * 4096;
                            while !stop.get() {
                                if reads {
                                    read(&core2, &drive, at, 4096).await
                                } else {
                                    write(&core2, &drive, at, 4096).await
                                };
                                done.set(done.get() + 1);
                            }
                        })
                    })
                    .collect();
                core.sleep(Duration::from_millis(50)).await;
                let (from, before) = (core.now(), done.get());
                core.sleep(Duration::from_millis(200)).await;
                let seconds = (core.now() - from).as_secs_f64();
                counts.push(f64::from(done.get() - before) / seconds);
                stop.set(true);
                for client in clients {
                    client.await;
                }
            }
            counts
        })
        .unwrap();
        let [reads, writes] = counts[..] else { panic!("two loads") };
        assert!(reads < 110_000.0 && writes < 55_000.0, "{reads} reads, {writes} writes a second");
        reads > 90_000.0 && writes > 45_000.0
    });
    assert!(quiet, "never reached its rates");
}

#[test]
#[cfg_attr(miri, ignore = "real time")]
fn cores_share_a_drive_in_real_time() {
    let model = DriveModel { queue_depth: 1, ..of_flash(flash()) };
    for model in [model, of_disk()] {
        let drive = Device::modelled("modelled", 64 * MIB, 4096, &model);
        let config = RuntimeConfig { cores: 2, ..RuntimeConfig::default() };
        let took = run(config, async |core| {
            let from = core.now();
            let on = |ix| {
                let drive = drive.clone();
                core.call(wattle_rt::CoreIx(ix), move |core| async move {
                    for at in 0..20 {
                        write(&core, &drive, (at * 2 + ix as u64) * 4096, 4096).await;
                        core.flush(&drive).await.unwrap();
                    }
                })
            };
            let (first, second) = (on(0), core.spawn(on(1)));
            first.await;
            second.await;
            core.now() - from
        })
        .unwrap();
        // One at a time: each core's writes wait for the other's.
        assert!(took >= micros(40 * 40), "{took:?}");
    }
}
