//! Loads on arrays of modelled drives: what comes out is what went in, digit by digit, on every
//! machine.

use std::time::Duration;

use wattle_engine::geometry::Level;
use wattle_modelled::{
    DATA_OFFSET, Load, LoadError, MeasureError, Measured, ModelledSetup, Ramp, Rw, SetupError, Steady,
    WriteHoleGuard, rebuild,
};
use wattle_rt::DriveConfig;

/// Drives of 40k reads and 20k writes a second, 100 and 150 us, 200 and 100 MB/s.
fn drives(count: u32) -> Vec<DriveConfig> {
    let always = |micros| Duration::from_micros(micros)..Duration::from_micros(micros);
    let drive = |number| DriveConfig {
        size_bytes: 1 << 30,
        sector_bytes: 512,
        read_latency: always(75),
        write_latency: always(100),
        flush_latency: always(5),
        read_bytes_per_second: 200_000_000,
        write_bytes_per_second: 100_000_000,
        reads_per_second: 40_000,
        writes_per_second: 20_000,
        volatile_cache: false,
        name: format!("drive{number}"),
        ..DriveConfig::default()
    };
    (0..count).map(drive).collect()
}

fn raid5(members: u32) -> ModelledSetup {
    ModelledSetup {
        level: Level::Raid5,
        layout: 2,
        members,
        chunk_bytes: 64 << 10,
        member_bytes: (1 << 30) - (2 << 20),
        data_offset: DATA_OFFSET,
        missing: 0,
        guard: WriteHoleGuard::Bitmap,
        cache_bytes: None,
        cores: 1,
        seed: 1,
    }
}

fn measure(setup: &ModelledSetup, load: &Load) -> Measured {
    setup.measure(drives(setup.members), load).expect("the array and the load fit")
}

#[test]
fn random_writes_come_to_what_the_drives_allow() {
    let load = Load { iodepth: 248, norandommap: true, ..Load::new() };
    let measured = measure(&raid5(6), &load);
    // Two reads and two writes each.
    let limit = 6.0 / (2.0 / 40_000.0 + 2.0 / 20_000.0);
    let part = measured.per_second() / limit;
    assert!((0.9..=1.02).contains(&part), "{part:.3} of the limit");
    assert_eq!(measured.ramped.steady, Some(true));
    assert_eq!(measured.reads.count(), 0);
    assert!(measured.members.iter().all(|member| member.reads > 0 && member.writes > 0));
}

#[test]
fn a_request_alone_takes_a_read_and_a_write() {
    let measured = measure(&raid5(6), &Load::new());
    let (p50, p99) = (measured.writes.percentile(50.0), measured.writes.percentile(99.0));
    assert_eq!((p50.as_micros(), p99.as_micros()), (250, 250));
    let counted = measured.window.as_secs_f64() * measured.per_second();
    assert_eq!(counted.round() as u64, measured.writes.count());
}

/// Nothing but the arguments decides: not the machine, not the time, not what ran before.
#[test]
fn equal_arguments_give_equal_digits() {
    let load = Load { rw: Rw::RandRw, rwmixread: 70, iodepth: 8, numjobs: 3, ..Load::new() };
    let digits = |cores, seed| {
        let measured = measure(&ModelledSetup { cores, ..raid5(4) }, &Load { seed, ..load.clone() });
        let drives = measured.members.clone();
        (measured.reads, measured.writes, drives, measured.window, measured.ramped.took)
    };
    assert_eq!(digits(1, 1), digits(1, 1));
    assert_eq!(digits(3, 1), digits(3, 1));
    assert_ne!(digits(1, 1), digits(1, 2));
    let on_a_thread = std::thread::scope(|scope| scope.spawn(|| digits(2, 7)).join().unwrap());
    assert_eq!(on_a_thread, digits(2, 7));
}

#[test]
fn a_mix_has_its_share_of_reads_and_flushes_come_in_between() {
    let load = Load { rw: Rw::RandRw, rwmixread: 30, iodepth: 16, fsync: 10, ..Load::new() };
    let measured = measure(&raid5(4), &load);
    let part = measured.reads.count() as f64 / measured.all().count() as f64;
    assert!((0.27..0.33).contains(&part), "{part}");
    let flushes = measured.writes.count() as f64 / measured.flushes.count() as f64;
    assert!((9.0..11.0).contains(&flushes), "a flush after {flushes} writes");
    assert!(measured.members.iter().all(|member| member.flushes > 0));
}

#[test]
fn a_fixed_ramp_and_runtime_are_kept() {
    let (ramp, runtime) = (Duration::from_millis(30), Duration::from_millis(70));
    let load = Load { ramp: Ramp::For(ramp), runtime: Some(runtime), ..Load::new() };
    let measured = measure(&raid5(3), &load);
    assert_eq!((measured.ramped.took, measured.ramped.steady, measured.window), (ramp, None, runtime));
    assert_eq!(measured.writes.count(), 70_000 / 250);
}

/// What never settles is measured all the same, and says so.
#[test]
fn a_load_that_is_not_steady_says_so() {
    let steady = Steady { within: -1.0, requests_at_most: 30_000, ..Steady::default() };
    let load = Load { ramp: Ramp::UntilSteady(steady), iodepth: 16, ..Load::new() };
    let measured = measure(&raid5(3), &load);
    assert_eq!(measured.ramped.steady, Some(false));
    assert!(measured.writes.count() > 0);
}

#[test]
fn what_is_missing_is_not_touched_and_reads_cost_more() {
    let load = Load { rw: Rw::RandRead, iodepth: 64, ..Load::new() };
    let (whole, degraded) =
        (measure(&raid5(4), &load), measure(&ModelledSetup { missing: 1, ..raid5(4) }, &load));
    assert_eq!((degraded.members[3].reads, degraded.members[3].writes), (0, 0));
    assert!(degraded.per_second() < 0.6 * whole.per_second());
    // Of RAID 10 near, half of the members may be missing, though not two that hold the same.
    let raid10 = ModelledSetup { level: Level::Raid10, layout: 0x102, missing: 2, ..raid5(4) };
    let slots: Vec<_> = raid10.lost().unwrap().iter().map(|slot| slot.0).collect();
    assert_eq!(slots, [1, 3]);
}

#[test]
fn a_log_costs_writes_and_no_answer() {
    let load = Load { iodepth: 64, ..Load::new() };
    let (without, with) = (
        measure(&raid5(5), &load),
        measure(&ModelledSetup { guard: WriteHoleGuard::Ppl, ..raid5(5) }, &load),
    );
    let writes = |measured: &Measured| {
        let writes: u64 = measured.members.iter().map(|member| member.writes).sum();
        writes as f64 / measured.writes.count() as f64
    };
    assert!(writes(&with) > writes(&without) + 0.1);
    assert!(with.per_second() < without.per_second());
}

#[test]
fn what_cannot_be_is_an_error() {
    let nowhere = Load { offset_bytes: 1 << 40, ..Load::new() };
    let error = raid5(3).measure(drives(3), &nowhere).unwrap_err();
    assert!(matches!(error, MeasureError::Load(LoadError::NoRoom { job: 0, .. })), "{error}");
    let error = ModelledSetup { missing: 2, ..raid5(3) }.measure(drives(3), &Load::new()).unwrap_err();
    assert!(matches!(error, MeasureError::Setup(SetupError::Missing { missing: 2, .. })), "{error}");
    let error = ModelledSetup { members: 0, ..raid5(3) }.measure(drives(0), &Load::new()).unwrap_err();
    assert!(matches!(error, MeasureError::Setup(SetupError::Geometry(_))), "{error}");
    let raid6 = ModelledSetup { level: Level::Raid6, guard: WriteHoleGuard::Ppl, ..raid5(4) };
    assert!(matches!(raid6.build(drives(4)), Err(SetupError::NoLog(Level::Raid6))));
}

/// A rebuild goes as fast as the member that is filled takes it.
#[test]
fn a_rebuild_is_as_fast_as_its_target() {
    let rebuilt = rebuild(&ModelledSetup { member_bytes: 64 << 20, ..raid5(4) }, drives(4)).unwrap();
    let part = rebuilt.bytes_per_second() / 100e6;
    assert!((0.9..=1.0).contains(&part), "{part:.3} of what the member takes");
    assert!(rebuilt.drives[3].reads == 0 && rebuilt.drives[0].writes < 20);
}
