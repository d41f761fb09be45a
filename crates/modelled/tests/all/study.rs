//! Named drives under a load: what is reached of the limit, and what is said to hold an array back.

use wattle_drives::{Drive, ModelDrive};
use wattle_engine::geometry::Level;
use wattle_modelled::{
    DATA_OFFSET, HeldBack, Load, ModelledSetup, Rw, Study, StudyResult, WriteHoleGuard, member_bytes_max,
    used_up,
};

fn named(text: &str) -> Drive {
    used_up(text.parse::<ModelDrive>().unwrap().drive)
}

/// RAID 5 with chunks of 64 KiB and a bitmap over these drives.
fn raid5(drives: Vec<Drive>, load: Load) -> Study {
    let setup = ModelledSetup {
        level: Level::Raid5,
        layout: 2,
        members: drives.len() as u32,
        chunk_bytes: 64 << 10,
        member_bytes: member_bytes_max(&drives),
        data_offset: DATA_OFFSET,
        missing: 0,
        guard: WriteHoleGuard::Bitmap,
        cache_bytes: None,
        cores: 1,
        seed: 1,
    };
    Study { setup, drives, load: load.until_steady() }
}

fn six(load: Load) -> Study {
    raid5(vec![named("x25m"); 6], load)
}

fn with(study: Study, change: impl FnOnce(&mut ModelledSetup)) -> StudyResult {
    let mut study = study;
    change(&mut study.setup);
    study.run().unwrap()
}

#[track_caller]
fn reaches(finding: &StudyResult, part: f64) {
    // A limit may be missed by what chance makes of a window.
    assert!((part..1.01).contains(&finding.efficiency()), "{}: {:?}", finding.efficiency(), finding.limit);
}

#[test]
fn random_writes_come_within_3_percent_of_the_limit() {
    let finding = six(Load { iodepth: 248, ..Load::new() }).run().unwrap();
    reaches(&finding, 0.97);
    assert!((finding.limit.per_second - 40_000.0).abs() < 1.0);
    assert!(matches!(finding.held_back, HeldBack::Drives { .. }), "{}", finding.held_back);
    let raid6 = with(six(Load { iodepth: 248, ..Load::new() }), |setup| setup.level = Level::Raid6);
    reaches(&raid6, 0.95);
}

#[test]
fn one_request_at_a_time_is_held_back_by_its_depth() {
    let finding = six(Load::new()).run().unwrap();
    reaches(&finding, 1.0 / 1.10);
    assert!(matches!(finding.held_back, HeldBack::Depth { in_flight: 1, .. }), "{}", finding.held_back);
}

#[test]
fn reads_use_every_member_also_with_one_missing() {
    let load = || Load { rw: Rw::RandRead, iodepth: 248, ..Load::new() };
    reaches(&six(load()).run().unwrap(), 0.98);
    reaches(&with(six(load()), |setup| setup.missing = 1), 0.95);
}

/// RAID 6 makes what is missing of P or Q, whichever member has less to do, so that none has more
/// to do than another.
#[test]
fn recovery_spreads_over_the_members_that_are_left() {
    let load = Load { rw: Rw::RandRead, iodepth: 248, ..Load::new() };
    let finding = with(six(load), |setup| (setup.level, setup.missing) = (Level::Raid6, 1));
    reaches(&finding, 0.97);
    assert!(matches!(finding.held_back, HeldBack::Drives { .. }), "{}", finding.held_back);
}

/// One stream from two copies: flash gives all it has as soon as a few requests are in flight. A
/// disk's head passes over what it leaves to the other, so one disk has the stream to itself, until
/// parts can be so long that the way to the next one is worth it.
#[test]
fn copies_share_a_stream_if_that_is_worth_it() {
    let times_one = |drive: &str, bs_bytes, iodepth| {
        let load = Load { rw: Rw::Read, bs_bytes, iodepth, ..Load::new() };
        let finding = with(raid5(vec![named(drive); 2], load), |setup| setup.level = Level::Raid1);
        2.0 * finding.efficiency()
    };
    assert!(times_one("x25m", 64 << 10, 4) > 1.9);
    assert!(times_one("x25m", 1 << 20, 1) > 1.9);
    for (bs_bytes, iodepth) in [(64 << 10, 1), (64 << 10, 32), (1 << 20, 4)] {
        let times = times_one("sata7200", bs_bytes, iodepth);
        assert!((0.99..1.01).contains(&times), "{times}");
    }
    assert!(times_one("sata7200", 1 << 20, 32) > 1.7);
}

/// Of two heads the nearer one goes, which the limit knows.
#[test]
fn random_reads_of_copies_go_to_the_nearer_head() {
    let load = Load { rw: Rw::RandRead, ..Load::new() };
    let one = with(raid5(vec![named("sata7200")], load.clone()), |setup| {
        (setup.level, setup.guard) = (Level::Linear, WriteHoleGuard::None);
    });
    let two = with(raid5(vec![named("sata7200"); 2], load), |setup| setup.level = Level::Raid1);
    let times = two.measured.per_second() / one.measured.per_second();
    assert!(times > 1.1, "{times}");
    reaches(&two, 0.9);
}

#[test]
fn a_slow_member_is_told_from_one_that_has_more_to_do() {
    let mut drives = vec![named("x25m"); 4];
    drives[2] = named("x25m,read_iops=8k,write_iops=4k");
    let finding = raid5(drives, Load { iodepth: 64, ..Load::new() }).run().unwrap();
    let HeldBack::SlowMember(crowd) = finding.held_back else { panic!("{}", finding.held_back) };
    assert!(crowd.slot.0 == 2 && crowd.queue > 10.0 * crowd.others, "{crowd:?}");
    // The partner of the one that is missing does the work of both.
    let load = Load { rw: Rw::RandRead, iodepth: 64, ..Load::new() };
    let finding = with(six(load), |setup| {
        (setup.level, setup.layout, setup.missing) = (Level::Raid10, 0x102, 1);
    });
    let HeldBack::Uneven(crowd) = finding.held_back else { panic!("{}", finding.held_back) };
    assert_eq!(crowd.slot.0, 4);
}

#[test]
fn flushes_and_logs_are_named() {
    let finding = six(Load { iodepth: 32, fsync: 8, ..Load::new() }).run().unwrap();
    assert!(matches!(finding.held_back, HeldBack::Flushes { part } if part > 0.1), "{}", finding.held_back);
    let finding = with(six(Load { iodepth: 64, ..Load::new() }), |setup| setup.guard = WriteHoleGuard::Ppl);
    assert!(matches!(finding.held_back, HeldBack::Log { .. }), "{}", finding.held_back);
}

/// What a disk does depends on how far its head goes: it is measured alone on the same part, and
/// the array comes near that.
#[test]
fn disks_are_judged_by_what_one_does_alone() {
    let load = Load { rw: Rw::RandRead, iodepth: 96, size_bytes: Some(4 << 30), ..Load::new() };
    let finding = raid5(vec![named("sata7200"); 3], load).run().unwrap();
    assert!((0.9..1.05).contains(&finding.efficiency()), "{} {:?}", finding.efficiency(), finding.limit);
}

/// What is written again and again to a part of an array that the clean cache holds is not read
/// first: a limit that counted the reads would be exceeded.
#[test]
fn the_limit_knows_what_the_clean_cache_holds() {
    let small = |mib: u64| Load { iodepth: 64, size_bytes: Some(mib << 20), ..Load::new() };
    let finding = six(small(32)).run().unwrap();
    assert!((finding.limit.per_second - 60_000.0).abs() < 1.0, "{:?}", finding.limit);
    assert!(finding.limit.formula.contains("100 % of what is read first is in the clean cache"));
    reaches(&finding, 0.8);
    // Half of it is held.
    let finding = six(small(107)).run().unwrap();
    assert!(finding.efficiency() < 1.01, "{}: {:?}", finding.efficiency(), finding.limit);
    assert!(finding.limit.per_second > 45_000.0, "{:?}", finding.limit);
    let finding = six(Load { iodepth: 64, ..Load::new() }).run().unwrap();
    assert!((finding.limit.per_second - 40_000.0).abs() < 1.0, "{:?}", finding.limit);
}
