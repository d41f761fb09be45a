//! Any array under any load keeps what figures promise: no rate beyond its limit, latency that
//! agrees with rate and depth, a rate that does not depend on how long it was counted, a job that
//! moves, and a name for what is busy.

use std::time::Duration;

use wattle_advise::limits::Limit;
use wattle_drives::{Drive, Media, ModelDrive, PRESETS};
use wattle_engine::geometry::{Level, LevelKind, default_layout};
use wattle_modelled::{
    DATA_OFFSET, HeldBack, Load, Measured, ModelledSetup, Ramp, Rw, Study, WriteHoleGuard, member_bytes_max,
    used_up,
};
use wattle_rt::Rng;

/// Cases of every run of the tests.
const FEW: u64 = 24;
/// Of those, one in so many is counted for twice as long, too; of the long run, each.
const DOUBLED: u64 = 4;
/// Cases of the long run.
const MANY: u64 = 2000;
/// A load beside a rebuild that has not settled by then, in virtual time, is said not to be steady:
/// a job moves some hundred gigabytes in an hour.
const BESIDE_AT_MOST: Duration = Duration::from_secs(300);

fn one_of<T: Clone>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.below(all.len() as u64) as usize].clone()
}

/// A case: the same seed is the same case.
fn case(seed: u64) -> Study {
    let mut rng = Rng::new(seed).fork();
    let rng = &mut rng;
    loop {
        let preset = one_of(rng, PRESETS).name;
        let level = one_of(rng, &[Level::Raid0, Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10]);
        let members = match level {
            Level::Raid1 => 2 + rng.below(2) as u32,
            Level::Raid6 => 4 + rng.below(9) as u32,
            _ => 3 + rng.below(10) as u32,
        };
        let drives: Vec<Drive> =
            (0..members).map(|_| used_up(preset.parse::<ModelDrive>().unwrap().drive)).collect();
        let layout = match level {
            Level::Raid10 => one_of(rng, &[0x102, 0x201, 0x1_0201]),
            level => default_layout(level),
        };
        let redundant = level.kind() != LevelKind::Striped;
        let missing = if redundant && rng.below(3) == 0 { 1 } else { 0 };
        let guard = match level {
            Level::Raid5 if missing == 0 && rng.below(4) == 0 => WriteHoleGuard::Ppl,
            Level::Raid0 => WriteHoleGuard::Resync,
            _ => WriteHoleGuard::Bitmap,
        };
        let bs_bytes = one_of(rng, &[4, 4, 8, 16, 64, 128, 256, 1024]) << 10;
        let load = Load {
            rw: one_of(rng, &[Rw::Read, Rw::Write, Rw::ReadWrite, Rw::RandRead, Rw::RandWrite, Rw::RandRw]),
            bs_bytes,
            iodepth: one_of(rng, &[1, 2, 4, 8, 16, 32, 64, 128]),
            rwmixread: one_of(rng, &[30, 50, 70]),
            fsync: if rng.below(10) == 0 { 32 } else { 0 },
            seed,
            ..Load::new()
        };
        let setup = ModelledSetup {
            level,
            layout,
            members,
            chunk_bytes: one_of(rng, &[16, 64, 128, 256, 512, 1024]) << 10,
            member_bytes: member_bytes_max(&drives),
            data_offset: DATA_OFFSET,
            missing,
            guard,
            cache_bytes: None,
            cores: 1,
            seed,
        };
        if setup.check().is_ok() {
            return Study { setup, drives, load: load.until_steady() };
        }
    }
}

fn told(study: &Study) -> String {
    let (setup, load) = (&study.setup, &study.load);
    let name = PRESETS.iter().find(|preset| used_up(preset.drive()) == study.drives[0]).unwrap().name;
    format!(
        "{} layout {:x} over {} x {name}, {} missing, chunk {}k, {:?}; {} {} % bs {}k x {} fsync {}",
        setup.level,
        setup.layout,
        setup.members,
        setup.missing,
        setup.chunk_bytes >> 10,
        setup.guard,
        load.rw.name(),
        load.rwmixread,
        load.bs_bytes >> 10,
        load.depth(),
        load.fsync
    )
}

/// What clients have in flight as rate and latency have it, as a part of what they have.
fn little(measured: &Measured, load: &Load) -> f64 {
    let all = [&measured.reads, &measured.writes, &measured.flushes];
    let took: f64 = all.iter().map(|one| one.count() as f64 * one.mean().as_secs_f64()).sum();
    took / measured.window.as_secs_f64() / load.depth() as f64
}

/// The limit of what was counted: of a mix by the part of reads that was drawn.
fn drawn_limit(study: &Study, nominal: &Limit, measured: &Measured) -> Limit {
    let (reads, writes) = (measured.reads.count() as f64, measured.writes.count() as f64);
    match study.load.read_part() {
        part if part <= 0.0 || part >= 1.0 || reads + writes == 0.0 => nominal.clone(),
        _ => study.limit_of(reads / (reads + writes)).unwrap(),
    }
}

/// What is wrong with a case; and whether it was steady.
fn wrong(study: &Study, doubled: u64) -> (Vec<String>, bool) {
    let mut wrong = Vec::new();
    let found = study.run().unwrap();
    let measured = &found.measured;
    let steady = measured.ramped.steady == Some(true);
    // Of a mix by the part of reads that chance drew: large requests are few.
    let drawn = drawn_limit(study, &found.limit, measured);
    let part = measured.per_second() / drawn.per_second;
    if part > 1.01 {
        wrong.push(format!("{:.1} % of {}", part * 100.0, drawn.formula));
    }
    if steady {
        let little = little(measured, &study.load);
        if (little - 1.0).abs() > 0.02 {
            wrong.push(format!("Little's law: {little:.3} of what is in flight"));
        }
    }
    // Counted for twice as long, from the same moment on.
    if steady && study.load.seed.is_multiple_of(doubled) {
        let ramp = Ramp::For(measured.ramped.took);
        let load = Load { ramp, runtime: Some(measured.window * 2), ..study.load.clone() };
        let again = study.setup.measure(study.configs(), &load).unwrap();
        let changed = again.per_second() / measured.per_second() - 1.0;
        if changed.abs() > 0.02 {
            wrong.push(format!("twice the time: {:+.1} %", changed * 100.0));
        }
    }
    let lost = study.setup.lost().unwrap();
    let mut busy: Vec<f64> = (0..study.setup.members)
        .filter(|slot| !lost.contains(wattle_engine::units::MemberIx(*slot as u16)))
        .map(|slot| measured.uses()[slot as usize].busy)
        .collect();
    busy.sort_by(f64::total_cmp);
    let (middle, most) = (busy[(busy.len() - 1) / 2], busy[busy.len() - 1]);
    let named = match found.held_back {
        HeldBack::Drives { .. } | HeldBack::PreReads { .. } => middle >= 0.9,
        HeldBack::SlowMember(_) | HeldBack::Uneven(_) => most >= 0.9,
        HeldBack::Depth { .. } | HeldBack::Order { .. } | HeldBack::Log { .. } => middle < 0.9,
        HeldBack::Flushes { .. } => measured.flushes.count() > 0,
    };
    if !named {
        wrong.push(format!("{} with members {middle:.2} to {most:.2} busy", found.held_back));
    }
    // While the member is filled: nothing beyond what the whole array would do, and it moves.
    if study.setup.missing == 1
        && study.load.seed.is_multiple_of(2)
        && study.setup.guard != WriteHoleGuard::Ppl
    {
        let mut load = study.load.clone();
        if let Ramp::UntilSettled(settled) = &mut load.ramp {
            settled.at_most = BESIDE_AT_MOST;
        }
        match (Study { load, ..study.clone() }).run_beside_rebuild() {
            Err(error) => wrong.push(format!("beside a rebuild: {error}")),
            Ok(beside) => {
                let whole = Study { setup: ModelledSetup { missing: 0, ..study.setup }, ..study.clone() };
                let limit =
                    |study: &Study, nominal: &Limit| drawn_limit(study, nominal, &beside.measured).per_second;
                let most = limit(study, &found.limit).max(limit(&whole, &whole.limit().unwrap()));
                let part = beside.measured.per_second() / most;
                let settled = beside.measured.ramped.steady == Some(true);
                if part > 1.01 {
                    wrong.push(format!("beside a rebuild {:.1} % of the limit", part * 100.0));
                }
                if settled && (beside.bytes_per_second <= 0.0) {
                    wrong.push("a rebuild that does not move is called steady".to_owned());
                }
                if beside.bytes_per_second > 1.01 * beside.takes_bytes_per_second {
                    wrong.push("a rebuild faster than its drive".to_owned());
                }
                let little = little(&beside.measured, &study.load);
                if settled && (little - 1.0).abs() > 0.02 {
                    wrong.push(format!("Little's law beside a rebuild: {little:.3}"));
                }
            }
        }
    }
    (wrong, steady)
}

fn check(seeds: std::ops::Range<u64>, doubled: u64) {
    let (mut bad, mut unsteady, all) = (0, 0, seeds.end - seeds.start);
    for seed in seeds {
        let study = case(seed);
        let (wrong, steady) = wrong(&study, doubled);
        unsteady += u64::from(!steady);
        if !steady {
            eprintln!("seed {seed}: not steady: {}", told(&study));
        }
        if !wrong.is_empty() {
            bad += 1;
            eprintln!("seed {seed}: {}: {}", told(&study), wrong.join("; "));
        }
    }
    eprintln!("{all} cases, {bad} wrong, {unsteady} not steady");
    assert_eq!(bad, 0, "of {all} cases");
}

#[test]
fn some_random_cases_keep_their_word() {
    check(0..FEW, DOUBLED);
}

/// Small writes in sequence to copies, parity that a disk skips, a drive that collects later, a mix
/// of a few large requests, and large writes to copies side by side, each beyond the limit that it
/// had; stripes that cost more where a member is missing, counted for too few turns; and small
/// writes in sequence, counted before the clean cache had the time to grow.
#[test]
fn cases_that_were_wrong_keep_their_word() {
    for seed in [321, 417, 1066, 1106, 1216, 1226, 1508, 1795, 1811] {
        check(seed..seed + 1, 1);
    }
}

/// `scripts/bench random-cases [FROM [TO]]`.
#[test]
#[ignore = "takes long; `scripts/bench random-cases`"]
fn many_random_cases_keep_their_word() {
    let number = |name, or| std::env::var(name).ok().map_or(or, |text| text.parse().unwrap());
    check(number("CASES_FROM", 0)..number("CASES_TO", MANY), 1);
}

/// Twelve disks written to beside a rebuild were called steady while their caches filled.
#[test]
fn a_cache_that_fills_is_no_steady_state() {
    let drives = vec![used_up("sata7200".parse::<ModelDrive>().unwrap().drive); 12];
    let setup = ModelledSetup {
        level: Level::Raid6,
        layout: default_layout(Level::Raid6),
        members: 12,
        chunk_bytes: 512 << 10,
        member_bytes: member_bytes_max(&drives),
        data_offset: DATA_OFFSET,
        missing: 1,
        guard: WriteHoleGuard::Bitmap,
        cache_bytes: None,
        cores: 1,
        seed: 1,
    };
    assert!(matches!(drives[0].model.media, Media::Disk(_)));
    let load = Load { rw: Rw::Write, bs_bytes: 1 << 20, iodepth: 8, ..Load::new() }.until_steady();
    let study = Study { setup, drives, load };
    let found = study.run().unwrap();
    assert!(found.efficiency() < 1.01, "{}", found.efficiency());
    assert!((little(&found.measured, &study.load) - 1.0).abs() < 0.02);
    let beside = study.run_beside_rebuild().unwrap();
    assert!(beside.measured.ramped.steady == Some(false) || beside.bytes_per_second > 0.0);
    assert!(found.measured.window > Duration::from_millis(500));
}
