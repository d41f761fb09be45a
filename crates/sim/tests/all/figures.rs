//! The engine on modelled drives in virtual time, held to its bounds. The tables are `sim figures`.

use std::time::Duration;

use wattle_engine::geometry::Level;
use wattle_modelled::{Measured, SWEEP, with_intent, with_log};
use wattle_sim::figures::jobs::{self, MeasuredWork};
use wattle_sim::figures::layers::{self, Laid};
use wattle_sim::figures::path::{self, PathCase};
use wattle_sim::figures::{AccessPattern, FigureLoad, FigureSetup, costs, limits};

/// Without anything to slow it down, random writes come close to what the drives can do, and a
/// write alone takes one turn of reads and one of writes.
#[test]
fn random_writes_to_raid_5_come_close_to_the_limit_of_the_drives() {
    let setup = FigureSetup::RAID5;
    let deep = setup.measure(&FigureLoad::random_writes(64)).per_second();
    let limit = limits::random_writes_per_second(&setup, 4096);
    assert!((0.90..=1.0).contains(&(deep / limit)), "{deep} of {limit} per second");
    let alone = setup.measure(&FigureLoad::random_writes(1)).per_second();
    let limit = 1.0 / limits::write_alone_seconds(&setup, 4096);
    assert!((0.99..=1.01).contains(&(alone / limit)), "{alone} of {limit} per second");
}

/// Figures that differ from run to run would prove nothing.
#[test]
fn equal_set_ups_give_equal_figures() {
    let once = |cores| {
        let load = FigureLoad { reads_percent: 30, ..FigureLoad::random_writes(18) };
        let measured = FigureSetup { cores, ..FigureSetup::RAID6 }.measure(&load);
        (measured.members.clone(), measured.all().percentile(99.0), measured.per_second().to_bits())
    };
    assert_eq!(once(1), once(1));
    assert_eq!(once(3), once(3));
}

/// Bits are set before the first write to a region; a later write there pays nothing.
#[test]
fn a_bitmap_costs_at_most_3_percent() {
    let setup = FigureSetup { member_bytes: 1 << 40, ..FigureSetup::RAID5 };
    let cost = costs::cost(&setup, &costs::dirty(64, 0..512, &setup), |spec| with_intent(spec, SWEEP));
    assert!((500..=512).contains(&cost.counts.marked.get()), "{:?}", cost.counts);
    assert!(cost.part() <= 0.03, "{:.1} %", cost.part() * 100.0);
}

/// What is alone waits for nothing: md's bitmap makes such writes a hundred times as slow.
#[test]
fn a_bitmap_costs_a_write_alone_at_most_5_percent() {
    let setup = FigureSetup { member_bytes: 1 << 40, ..FigureSetup::RAID5 };
    let cost = costs::cost(&setup, &costs::dirty(1, 0..16, &setup), |spec| with_intent(spec, SWEEP));
    assert_eq!(cost.counts.marked.get(), 16, "{:?}", cost.counts);
    assert!(cost.part() <= 0.05, "{:.1} %", cost.part() * 100.0);
}

/// A log write that many stripes share costs little where many wait; md documents 30 to 40 %.
#[test]
fn a_partial_parity_log_costs_at_most_15_percent() {
    let cost = costs::cost(&FigureSetup::RAID5, &FigureLoad::random_writes(64), with_log);
    let writes = |measured: &Measured| {
        let writes: u64 = measured.members.iter().map(|totals| totals.writes).sum();
        writes as f64 / measured.writes.count() as f64
    };
    let (without, with) = (writes(&cost.without), writes(&cost.with));
    assert!((1.9..=2.1).contains(&without) && with > without + 0.1, "{without} and {with} writes for one");
    assert!(cost.part() <= 0.15, "{:.1} %", cost.part() * 100.0);
}

const LEVELS: [FigureSetup; 5] = [
    FigureSetup::RAID5,
    FigureSetup::RAID6,
    FigureSetup::raid10(0x102),
    FigureSetup::raid10(0x201),
    FigureSetup::raid10(0x10201),
];

/// With nothing beside, whatever goes over the whole array goes as fast as the drives.
#[track_caller]
fn reaches_95_percent(work: MeasuredWork) {
    for setup in LEVELS {
        let setup = FigureSetup { member_bytes: 128 << 20, ..setup };
        let speed = jobs::alone(&setup, work).bytes_per_second();
        let part = speed / work.limit_bytes_per_second();
        assert!(
            (0.95..=1.0).contains(&part),
            "{setup:?}: {work:?} at {:.1} % of what drives allow",
            part * 100.0
        );
    }
}

#[test]
fn a_rebuild_alone_keeps_its_target_busy() {
    reaches_95_percent(MeasuredWork::Rebuild);
}

#[test]
fn a_replacement_alone_keeps_its_target_busy() {
    reaches_95_percent(MeasuredWork::Replace);
}

#[test]
fn a_check_alone_keeps_every_member_busy() {
    reaches_95_percent(MeasuredWork::Check);
}

#[test]
fn a_resync_alone_keeps_every_member_busy() {
    reaches_95_percent(MeasuredWork::Resync);
}

/// Beside clients a rebuild gets its share, and they wait at most twice as long, from the moment
/// when it begins: as compared to the array with the member missing. Random requests of 4 KiB.
#[track_caller]
fn shares_with_clients(setup: FigureSetup, loads: &[(usize, u32)]) {
    for &(depth, reads_percent) in loads {
        let settled = jobs::clients(depth, reads_percent);
        let begun = FigureLoad { warm_up: Duration::ZERO, ..settled.clone() };
        for load in [settled, begun] {
            let beside = jobs::beside(&setup, MeasuredWork::Rebuild, &load);
            let part = beside.bytes_per_second / MeasuredWork::Rebuild.limit_bytes_per_second();
            let p99 = |measured: &Measured| measured.all().percentile(99.0);
            let (without, with) = (p99(&beside.without), p99(&beside.with));
            let what = format!(
                "QD {depth}, {reads_percent} % reads, after {:?}: {:.1} % of the member's bandwidth, p99 {without:?} without, {with:?} \
                 with it",
                load.warm_up,
                part * 100.0
            );
            assert!(part >= 0.30, "{what}");
            assert!(with <= without * 2, "{what}");
        }
    }
}

#[test]
fn a_rebuild_of_raid_5_shares_with_clients() {
    shares_with_clients(FigureSetup::RAID5, &[(16, 70), (64, 70), (64, 0)]);
}

#[test]
fn a_rebuild_of_raid_6_shares_with_clients() {
    shares_with_clients(FigureSetup::RAID6, &[(16, 70), (64, 70), (64, 0)]);
}

#[test]
fn a_rebuild_of_raid_10_shares_with_clients() {
    for layout in [0x102, 0x201, 0x10201] {
        shares_with_clients(FigureSetup::raid10(layout), &[(16, 70), (64, 70), (64, 0)]);
    }
}

/// What a case reaches of what the drives allow, which is as much as it has to.
#[track_caller]
fn reaches(cases: &[PathCase]) {
    assert!(!cases.is_empty());
    for case in cases {
        let short =
            FigureLoad { window: case.load.window.min(Duration::from_millis(200)), ..case.load.clone() };
        let measured = PathCase { load: short, ..case.clone() }.measure();
        let part = case.reached(&measured);
        let (name, depth) = (&case.name, case.load.depth);
        assert!(
            (case.bound..=1.03).contains(&part),
            "{name}, QD {depth}: {:.1} % of the limit",
            part * 100.0
        );
    }
}

/// The cases that are over so many members.
fn over(members: &[u32], cases: Vec<PathCase>) -> Vec<PathCase> {
    cases.into_iter().filter(|case| members.contains(&case.setup.members)).collect()
}

/// Nothing that drives could work on is held back: with few members and one deep queue, and with
/// many that are kept busy.
#[test]
fn random_writes_to_raid_5_reach_97_percent_of_the_limit() {
    reaches(&over(&[3, 4, 6, 24], path::raid5()));
}

#[test]
fn random_writes_to_raid_6_reach_95_percent_of_the_limit() {
    reaches(&over(&[4, 6, 24], path::raid6()));
}

/// A write alone takes one turn of reads and one of writes.
#[test]
fn a_write_alone_takes_a_read_and_a_write() {
    reaches(&path::alone());
}

/// With members missing too: RAID 6 takes P or Q, whichever member has less to do.
#[test]
fn random_reads_reach_what_the_drives_allow() {
    let (raid6, others): (Vec<_>, Vec<_>) =
        path::reads().into_iter().partition(|case| case.setup.level == Level::Raid6);
    reaches(&over(&[3, 24], others));
    reaches(&raid6);
}

/// One stream uses all copies as soon as there is enough of it in flight.
#[test]
fn sequential_reads_of_copies_come_as_fast_as_from_raid_0() {
    let cases = path::copies().into_iter().filter(|case| case.load.reads_percent == 100 && case.bound > 0.0);
    reaches(&cases.collect::<Vec<_>>());
}

/// A client that waits for each answer before it asks again is read ahead of.
#[test]
fn one_who_reads_in_sequence_keeps_every_member_busy() {
    reaches(&path::ahead());
}

/// What of a stream is under way together leaves as whole stripes: nothing is read first, however
/// small the requests.
#[test]
fn sequential_writes_reach_97_percent_and_read_nothing() {
    let cases = over(&[3, 6, 24], path::sequential());
    for case in cases.iter().filter(|case| case.bound > 0.0) {
        reaches(std::slice::from_ref(case));
        let reads: u64 = case.measure().members.iter().map(|member| member.reads).sum();
        let stripes =
            0.5 * case.limit_per_second * case.load.request_bytes as f64 / case.setup.chunk_bytes as f64;
        assert!((reads as f64) < 0.01 * stripes, "{} at QD {}: {reads} reads", case.name, case.load.depth);
    }
}

/// One alone does not wait; a few write together what they have, and are not slower for it than
/// one after the other.
#[test]
fn shallow_sequential_writes_do_not_wait_for_what_cannot_come() {
    let setup = FigureSetup::x25m(6);
    let per_second = |depth| {
        let load = FigureLoad {
            request_bytes: 64 << 10,
            access: AccessPattern::Sequential,
            ..FigureLoad::random_writes(depth)
        };
        setup.measure(&load).per_second()
    };
    let alone = 1.0 / limits::write_alone_seconds(&setup, 64 << 10);
    assert!((0.98..1.02).contains(&(per_second(1) / alone)), "{} of {alone}", per_second(1));
    for (depth, times) in [(2, 1.5), (3, 2.0), (4, 2.4), (8, 6.0)] {
        assert!(
            per_second(depth) >= times * alone,
            "QD {depth}: {} against {alone} alone",
            per_second(depth)
        );
    }
}

/// A logical volume costs nothing where wattle puts it; where it is not aligned to the stripes,
/// whole stripes are whole no longer.
#[test]
fn a_logical_volume_runs_at_95_percent_of_what_is_below_it() {
    for laid in layers::all() {
        let short =
            FigureLoad { window: laid.load.window.min(Duration::from_millis(200)), ..laid.load.clone() };
        let (below, above) = Laid { load: short, ..laid.clone() }.measure();
        let part = above.per_second() / below.per_second();
        match laid.bound {
            Some(bound) => assert!(part >= bound, "{}: {:.1} %", laid.name, part * 100.0),
            None => assert!(part < 0.95, "{}: misaligned, and {:.1} % all the same", laid.name, part * 100.0),
        }
    }
}
