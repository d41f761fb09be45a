//! A model holds what its figures say: every preset, alone in its world, through the executor.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use wattle_drives::{Disk, Drive, DriveModel, Flash, Media, PRESETS};
use wattle_rt::sim::DriveTotals;
use wattle_rt::{Buf, BufMut, Core, Device, DriveConfig, Durability, Rng, SimWorld, WorldConfig};

/// What is asked of a drive.
#[derive(Clone, Debug)]
struct Load {
    depth: usize,
    request_bytes: u64,
    reads_percent: u64,
    random: bool,
    /// Where it goes; all of the drive if it is empty.
    reach: std::ops::Range<u64>,
    warm_up: Duration,
    window: Duration,
}

const RANDOM: Load = Load {
    depth: 1,
    request_bytes: 4096,
    reads_percent: 100,
    random: true,
    reach: 0..0,
    warm_up: Duration::from_millis(50),
    window: Duration::from_millis(500),
};

/// What came of it.
#[derive(Clone, Copy, Debug)]
struct Measured {
    per_second: f64,
    bytes_per_second: f64,
    /// In seconds.
    mean_latency: f64,
    busy: f64,
}

fn measure(drive: &Drive, load: &Load) -> Measured {
    let mut world = SimWorld::new(WorldConfig {
        seed: 1,
        time_limit: Duration::MAX,
        poll_limit: u64::MAX,
        ..WorldConfig::default()
    });
    world.keep_order();
    let config = DriveConfig { kept_bytes: 0..0, ..wattle_modelled::drive::config(drive, "drive") };
    let device = world.add_drive(config);
    let control = world.drive(&device);
    let reach = if load.reach.is_empty() { 0..drive.size_bytes } else { load.reach.clone() };
    let (done, cursor) = (Rc::new(Cell::new(0u64)), Rc::new(Cell::new(0u64)));
    let load = load.clone();
    let run = async |core: Core| {
        for number in 0..load.depth {
            let (core2, device, done, cursor) = (core.clone(), device.clone(), done.clone(), cursor.clone());
            let (load, reach) = (load.clone(), reach.clone());
            core.spawn(async move {
                let mut rng = Rng::new(number as u64 + 7);
                loop {
                    one(&core2, &device, &load, &reach, &cursor, &mut rng).await;
                    done.set(done.get() + 1);
                }
            });
        }
        core.sleep(load.warm_up).await;
        let (before, from) = (control.totals(), done.get());
        core.sleep(load.window).await;
        let totals: DriveTotals = control.totals() - before;
        (totals, done.get() - from)
    };
    let (totals, count) = world.run(run).expect_done();
    let seconds = load.window.as_secs_f64();
    Measured {
        per_second: count as f64 / seconds,
        bytes_per_second: (count * load.request_bytes) as f64 / seconds,
        mean_latency: load.depth as f64 * seconds / count as f64,
        busy: totals.busy.as_secs_f64() / seconds,
    }
}

async fn one(
    core: &Core,
    device: &Device,
    load: &Load,
    reach: &std::ops::Range<u64>,
    cursor: &Cell<u64>,
    rng: &mut Rng,
) {
    let places = (reach.end - reach.start) / load.request_bytes;
    let place = if load.random { rng.below(places) } else { cursor.replace(cursor.get() + 1) % places };
    let (at, len) = (reach.start + place * load.request_bytes, load.request_bytes as usize);
    if rng.below(100) < load.reads_percent {
        core.read(device, at, BufMut::alloc(len)).await.0.unwrap();
    } else {
        core.write(device, at, Buf::zeros(len), Durability::Cached).await.unwrap();
    }
}

#[track_caller]
fn near(what: &str, is: f64, should: f64) {
    let off = is / should - 1.0;
    assert!(off.abs() < 0.01, "{what}: {is:.1} instead of {should:.1}, {:+.2} % off", off * 100.0);
}

/// Presets of flash, in their steady state: without the fast space.
fn flash_drives() -> impl Iterator<Item = (&'static str, Drive, Flash)> {
    PRESETS.iter().filter_map(|preset| {
        let mut drive = preset.drive();
        let Media::Flash(flash) = &mut drive.model.media else { return None };
        flash.burst_bytes = 0;
        let flash = flash.clone();
        Some((preset.name, drive, flash))
    })
}

fn disks() -> impl Iterator<Item = (&'static str, Drive, Disk)> {
    PRESETS.iter().filter_map(|preset| match preset.drive() {
        drive @ Drive { model: DriveModel { media: Media::Disk(_), .. }, .. } => {
            let Media::Disk(disk) = drive.model.media.clone() else { return None };
            Some((preset.name, drive, disk))
        }
        _ => None,
    })
}

#[test]
fn flash_alone_takes_its_latency() {
    for (name, drive, flash) in flash_drives() {
        let read = measure(&drive, &RANDOM);
        near(name, read.mean_latency, flash.read_latency.as_secs_f64());
        let write = measure(&drive, &Load { reads_percent: 0, ..RANDOM });
        let slowest = flash.write_latency.as_secs_f64().max(1.0 / flash.writes_per_second as f64);
        near(name, write.mean_latency, slowest);
    }
}

#[test]
fn flash_holds_its_rates_of_random_requests_at_every_depth_that_can_reach_them() {
    for (name, drive, flash) in flash_drives() {
        let (reads, writes) = (flash.reads_per_second as f64, flash.writes_per_second as f64);
        let needed = (reads * flash.read_latency.as_secs_f64()).ceil() as usize;
        for depth in [32, 128, 512] {
            let load = Load { depth, ..RANDOM };
            if depth > 3 * needed {
                let read = measure(&drive, &load);
                near(&format!("{name}, reads at {depth}"), read.per_second, reads);
                near(&format!("{name}, reads at {depth}, busy"), read.busy, 1.0);
                let mixed = measure(&drive, &Load { reads_percent: 50, ..load.clone() });
                near(
                    &format!("{name}, mixed at {depth}"),
                    mixed.per_second,
                    2.0 / (1.0 / reads + 1.0 / writes),
                );
                near(&format!("{name}, mixed at {depth}, busy"), mixed.busy, 1.0);
            }
            let write = measure(&drive, &Load { reads_percent: 0, ..load });
            near(&format!("{name}, writes at {depth}"), write.per_second, writes);
        }
    }
}

#[test]
fn flash_holds_its_bandwidths() {
    for (name, drive, flash) in flash_drives() {
        for (request_bytes, depth) in [(128 << 10, 16), (1 << 20, 4), (1 << 20, 32)] {
            let window = Duration::from_secs(4);
            let load = Load { depth, request_bytes, random: false, window, ..RANDOM };
            let read = measure(&drive, &load);
            near(name, read.bytes_per_second, flash.read_bytes_per_second as f64);
            let write = measure(&drive, &Load { reads_percent: 0, ..load });
            near(name, write.bytes_per_second, flash.write_bytes_per_second as f64);
        }
    }
}

#[test]
fn a_disk_streams_as_fast_as_its_zone() {
    for (name, drive, disk) in disks() {
        let zone = drive.size_bytes / 16;
        let outer = (0..zone, disk.outer_bytes_per_second);
        let inner = (drive.size_bytes - zone).next_multiple_of(1 << 20)..drive.size_bytes;
        let inner = (inner, disk.inner_bytes_per_second);
        for (reach, bandwidth) in [outer, inner] {
            for (request_bytes, depth) in [(64 << 10, 1), (64 << 10, 32), (1 << 20, 1), (1 << 20, 8)] {
                for reads_percent in [100, 0] {
                    let load = Load {
                        depth,
                        request_bytes,
                        reads_percent,
                        random: false,
                        reach: reach.clone(),
                        warm_up: Duration::from_secs(2),
                        window: Duration::from_secs(10),
                    };
                    let what = format!("{name}, {reads_percent} % reads of {request_bytes} at {depth}");
                    near(&what, measure(&drive, &load).bytes_per_second, bandwidth as f64);
                }
            }
        }
    }
}

#[test]
fn a_disk_seeks_and_waits_for_its_platter() {
    for (name, drive, disk) in disks() {
        let load = Load { window: Duration::from_secs(600), ..RANDOM };
        let read = measure(&drive, &load);
        let half_a_turn = 30.0 / f64::from(disk.turns_per_minute);
        let passes = 4096.0 / (disk.outer_bytes_per_second + disk.inner_bytes_per_second) as f64 * 2.0;
        let expected = disk.command.as_secs_f64() + disk.seek_average.as_secs_f64() + half_a_turn + passes;
        near(name, read.mean_latency, expected);
    }
}

#[test]
fn a_queue_saves_a_disk_seeks() {
    for (name, drive, _) in disks() {
        let load = Load { warm_up: Duration::from_secs(5), window: Duration::from_secs(60), ..RANDOM };
        let alone = measure(&drive, &load).per_second;
        let queued = measure(&drive, &Load { depth: 32, ..load.clone() });
        let gain = queued.per_second / alone;
        assert!(
            (2.0..3.5).contains(&gain),
            "{name}: {alone:.0} reads a second become {:.0}",
            queued.per_second
        );
        near(&format!("{name}, busy"), queued.busy, 1.0);
        // The cache collects more writes than the queue holds reads.
        let written = measure(&drive, &Load { reads_percent: 0, ..load }).per_second;
        assert!(written > queued.per_second, "{name}: {written:.0} writes a second");
    }
}
