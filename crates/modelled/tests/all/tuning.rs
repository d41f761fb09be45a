//! What the engine settles on by itself against the best of what a hand could set, found by sweeps:
//! loads on real drives' models.
//!
//! `cargo test -p wattle-modelled --test all tuning:: -- --nocapture` prints the figures.

use std::time::Duration;

use wattle_drives::Preset;
use wattle_engine::ArrayTuning;
use wattle_engine::geometry::Level;
use wattle_engine::job::{Goal, Pace};
use wattle_modelled::{
    DATA_OFFSET, Load, LoadBesideRebuild, ModelledSetup, Ramp, Rw, WriteHoleGuard, drive,
    rebuild_beside_tuned, rebuild_tuned,
};
use wattle_rt::DriveConfig;

/// Of the best that a hand could set.
const BOUND: f64 = 0.95;

fn setup(level: Level, layout: u32, members: u32) -> ModelledSetup {
    ModelledSetup {
        level,
        layout,
        members,
        chunk_bytes: 64 << 10,
        member_bytes: 8 << 30,
        data_offset: DATA_OFFSET,
        missing: 0,
        guard: WriteHoleGuard::Bitmap,
        cache_bytes: None,
        cores: 1,
        seed: 1,
    }
}

fn raid5(members: u32) -> ModelledSetup {
    setup(Level::Raid5, 2, members)
}

fn drives(preset: &str, count: u32) -> Vec<DriveConfig> {
    let facts = Preset::named(preset).expect("it is one of the presets").drive();
    (0..count).map(|number| drive::config(&facts, format!("{preset}-{number}"))).collect()
}

/// Compares and tells.
fn compare(name: &str, by_itself: f64, by_hand: &[(String, f64)]) {
    let (setting, best) = by_hand.iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("something was tried");
    let part = by_itself / best;
    eprintln!("{name}: {by_itself:.0} by itself, {best:.0} at best ({setting}): {:.1} %", part * 100.0);
    assert!(part >= BOUND, "{name}: {by_hand:?}");
}

/// Settings of the cache and of the buffers of writes that someone might try.
fn tunings() -> Vec<(String, ArrayTuning)> {
    let caches = [0, 16, 256].map(|mib: usize| {
        let mut tuning = ArrayTuning::default();
        tuning.cache.bytes_max = mib << 20;
        (format!("stripe cache of {mib} MiB"), tuning)
    });
    let buffers = [4, 128].map(|mib: usize| {
        let tuning = ArrayTuning { stripe_buffer_bytes: mib << 20, ..ArrayTuning::default() };
        (format!("buffers of {mib} MiB"), tuning)
    });
    caches.into_iter().chain(buffers).collect()
}

fn per_second(setup: &ModelledSetup, preset: &str, load: &Load, tuning: &ArrayTuning) -> f64 {
    let mut site = setup.build(drives(preset, setup.members)).expect("there is such an array");
    let mut spec = wattle_modelled::with_used_intent(site.spec());
    spec.tuning = *tuning;
    let metadata = |core: &_, members: &[_]| -> Box<dyn wattle_engine::metadata::Metadata> {
        Box::new(wattle_modelled::MetadataCost::new(core, members, std::rc::Rc::default()))
    };
    site.measure(load, spec, metadata).expect("the load fits").per_second()
}

fn loads_by_hand_and_by_itself(name: &str, setup: &ModelledSetup, preset: &str, load: &Load) {
    let by_itself = per_second(setup, preset, load, &ArrayTuning::default());
    let by_hand: Vec<(String, f64)> = tunings()
        .into_iter()
        .map(|(name, tuning)| (name, per_second(setup, preset, load, &tuning)))
        .collect();
    compare(name, by_itself, &by_hand);
}

/// Random writes, counted for a moment.
fn short() -> Load {
    let (ramp, runtime) = (Ramp::For(Duration::from_millis(300)), Some(Duration::from_millis(700)));
    Load { norandommap: true, ramp, runtime, ..Load::new() }
}

/// The first of the field notes: RAID 5 of six SSDs, of which md's default cache made half of what
/// they can.
#[test]
fn random_writes_to_six_ssds() {
    let load = Load { iodepth: 248, ..short() };
    loads_by_hand_and_by_itself("random writes, six X25-M", &raid5(6), "x25m", &load);
    // Also where a cache helps.
    let small = Load { size_bytes: Some(48 << 20), ..load };
    loads_by_hand_and_by_itself("the same in 48 MiB", &raid5(6), "x25m", &small);
}

#[test]
fn reads_and_writes_mixed() {
    let load = Load { rw: Rw::RandRw, rwmixread: 70, iodepth: 64, ..short() };
    loads_by_hand_and_by_itself("70 reads, 30 writes, six SATA SSDs", &raid5(6), "sata-ssd", &load);
}

/// The fifth: layouts on a few small disks.
#[test]
fn a_home_server_of_four_disks() {
    let (ramp, runtime) = (Ramp::For(Duration::from_secs(2)), Some(Duration::from_secs(8)));
    let random = Load { iodepth: 16, size_bytes: Some(1 << 30), ramp, runtime, ..short() };
    let sequential = Load { rw: Rw::Write, bs_bytes: 64 << 10, iodepth: 8, ramp, runtime, ..short() };
    for (name, setup) in [
        ("RAID 5", raid5(4)),
        ("RAID 10 near", setup(Level::Raid10, 0x102, 4)),
        ("RAID 10 far", setup(Level::Raid10, 0x201, 4)),
    ] {
        loads_by_hand_and_by_itself(&format!("{name}, random writes"), &setup, "sata7200-small", &random);
        loads_by_hand_and_by_itself(&format!("{name}, sequential"), &setup, "sata7200-small", &sequential);
    }
}

/// The third: a rebuild of seven disks, for which six knobs were turned.
#[test]
fn a_rebuild_of_seven_disks() {
    let setup = ModelledSetup { member_bytes: 1 << 30, ..raid5(7) };
    let speed = |tune: &dyn Fn(&mut wattle_engine::job::JobTuning)| {
        let done = rebuild_tuned(&setup, drives("sata7200", 7), |tuning| tune(tuning));
        done.expect("there is such an array").bytes_per_second()
    };
    let mut by_hand = Vec::new();
    for step in [256 << 10, 4 << 20] {
        by_hand.push((format!("steps of {} KiB", step >> 10), speed(&|tuning| tuning.step_bytes = step)));
    }
    for window in [2 << 20, 64 << 20] {
        by_hand.push((
            format!("a window of {} MiB", window >> 20),
            speed(&|tuning| tuning.window_bytes = window),
        ));
    }
    for stripes_max in [32, 512] {
        by_hand.push((
            format!("{stripes_max} stripes at once"),
            speed(&|tuning| tuning.stripes_max = stripes_max),
        ));
    }
    compare("a rebuild of seven disks", speed(&|_| {}), &by_hand);
}

/// A rebuild is steered by what clients notice of it; a hand would try fixed speeds.
#[test]
fn a_rebuild_beside_clients_who_are_to_be_answered_in_time() {
    let setup = ModelledSetup { missing: 1, member_bytes: 24 << 30, ..raid5(6) };
    let load = Load {
        rw: Rw::RandRw,
        rwmixread: 70,
        iodepth: 16,
        norandommap: true,
        ramp: Ramp::For(Duration::from_secs(4)),
        runtime: Some(Duration::from_secs(3)),
        ..Load::new()
    };
    let run = |tune: &dyn Fn(&mut wattle_engine::job::JobTuning)| -> LoadBesideRebuild {
        rebuild_beside_tuned(&setup, drives("sata-ssd", 6), &load, |tuning| tune(tuning)).expect("it fits")
    };
    let p99 = |beside: &LoadBesideRebuild| beside.measured.all().percentile(99.0);
    let fixed = |mib: u64| {
        run(&|tuning| {
            tuning.pace = Pace { min_bytes_per_second: mib << 20, max_bytes_per_second: mib << 20 };
        })
    };
    let within = p99(&fixed(5)) * 2;
    let steered = run(&|tuning| tuning.goal = Goal::Within(within));
    // The highest speed that keeps to it, within 5 MiB/s.
    let (mut good, mut bad, mut by_hand) = (5_u64, 400, Vec::new());
    while bad - good > 5 {
        let mib = good.midpoint(bad);
        let beside = fixed(mib);
        if p99(&beside) > within {
            bad = mib;
        } else {
            good = mib;
            by_hand.push((format!("sync_speed of {mib} MiB/s"), beside.bytes_per_second));
        }
    }
    let name = format!("a rebuild with 99 of 100 requests within {within:?} ({:?})", p99(&steered));
    compare(&name, steered.bytes_per_second, &by_hand);
    assert!(p99(&steered) <= within * 21 / 20, "{name}");
}
