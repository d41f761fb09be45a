//! Figures as tables of text, each with the bound it is held to.

use std::fmt::Write;
use std::time::Duration;

use wattle_modelled::{Measured, SWEEP, with_intent, with_log};

use super::costs::{Cost, cost, dirty};
use super::jobs::{self, MeasuredWork};
use super::layers;
use super::limits;
use super::load::FigureLoad;
use super::path;
use super::site::FigureSetup;

/// A table under a name.
pub struct Table {
    /// What it is asked for by.
    pub name: &'static str,
    /// Makes it; takes a few seconds.
    pub make: fn() -> String,
}

/// Every table.
pub const TABLES: &[Table] = &[
    Table { name: "limits", make: against_limits },
    Table { name: "raid5", make: || path::table(&path::raid5()) },
    Table { name: "raid6", make: || path::table(&path::raid6()) },
    Table { name: "alone", make: || path::table(&path::alone()) },
    Table { name: "reads", make: || path::table(&path::reads()) },
    Table { name: "sequential", make: || path::table(&path::sequential()) },
    Table { name: "ahead", make: || path::table(&path::ahead()) },
    Table { name: "cache", make: || path::table(&path::cache()) },
    Table { name: "copies", make: || path::table(&path::copies()) },
    Table { name: "intent", make: intent },
    Table { name: "log", make: log },
    Table { name: "jobs", make: jobs },
    Table { name: "beside", make: beside },
    Table { name: "onset", make: onset },
    Table { name: "layers", make: || layers::table(&layers::all()) },
];

const SETUPS: [(&str, FigureSetup); 5] = [
    ("RAID 5", FigureSetup::RAID5),
    ("RAID 6", FigureSetup::RAID6),
    ("RAID 10 near", FigureSetup::raid10(0x102)),
    ("RAID 10 far", FigureSetup::raid10(0x201)),
    ("RAID 10 offset", FigureSetup::raid10(0x10201)),
];

/// Rows of one line each, columns aligned; the first row is the heading.
pub(super) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

pub(super) fn row(cells: &[&dyn std::fmt::Display]) -> Vec<String> {
    cells.iter().map(ToString::to_string).collect()
}

pub(super) fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

pub(super) fn micros(measured: &Measured, percentile: f64) -> u128 {
    measured.all().percentile(percentile).as_micros()
}

/// Least and most busy member.
pub(super) fn busy(measured: &Measured) -> String {
    let uses = measured.uses();
    let (least, most) = uses
        .iter()
        .fold((f64::MAX, 0.0f64), |(least, most), member| (least.min(member.busy), most.max(member.busy)));
    format!("{:.0}-{:.0} %", least * 100.0, most * 100.0)
}

/// Random requests of 4 KiB on an array in sync, without bitmap or log, against what the drives
/// could do at best.
fn against_limits() -> String {
    let mut rows = vec![row(&[
        &"4 KiB random",
        &"QD",
        &"per second",
        &"limit",
        &"of it",
        &"p50 us",
        &"p99 us",
        &"members busy",
    ])];
    for (name, setup) in SETUPS {
        for (kind, reads_percent) in [("write", 0), ("read", 100)] {
            for depth in [1, 64, 256] {
                let load = FigureLoad { reads_percent, ..FigureLoad::random_writes(depth) };
                let measured = setup.measure(&load);
                let limit = match (reads_percent, depth) {
                    (0, 1) => 1.0 / limits::write_alone_seconds(&setup, 4096),
                    (0, _) => limits::random_writes_per_second(&setup, 4096),
                    (_, 1) => 1.0 / limits::read_alone_seconds(&setup, 4096),
                    _ => limits::random_reads_per_second(&setup, 4096),
                };
                rows.push(row(&[
                    &format!("{name} {kind}"),
                    &depth,
                    &format!("{:.0}", measured.per_second()),
                    &format!("{limit:.0}"),
                    &percent(measured.per_second() / limit),
                    &micros(&measured, 50.0),
                    &micros(&measured, 99.0),
                    &busy(&measured),
                ]));
            }
        }
    }
    aligned(&rows)
}

fn cost_row(name: &str, depth: usize, cost: &Cost, bound: &str) -> Vec<String> {
    row(&[
        &name,
        &depth,
        &format!("{:.0}", cost.without.per_second()),
        &format!("{:.0}", cost.with.per_second()),
        &percent(cost.part()),
        &bound,
        &micros(&cost.without, 99.0),
        &micros(&cost.with, 99.0),
    ])
}

fn cost_heading(what: &str) -> Vec<String> {
    let with = format!("with {what}");
    row(&[&"4 KiB random writes", &"QD", &"without", &with, &"cost", &"bound", &"p99 us without", &"with"])
}

/// What a write-intent bitmap costs, over 8 members.
fn intent() -> String {
    let mut rows = vec![cost_heading("bitmap")];
    let large = |setup| FigureSetup { member_bytes: 1 << 40, ..setup };
    let setups = [
        ("RAID 5", FigureSetup::RAID5),
        ("RAID 6", FigureSetup::RAID6),
        ("RAID 10 near", FigureSetup::raid10(0x102)),
    ];
    for (name, setup) in setups.map(|(name, setup)| (name, large(setup))) {
        for (depth, regions, bound) in [(64, 1024, "3 %"), (1, 16, "5 %")] {
            let cost = cost(&setup, &dirty(depth, 0..regions, &setup), |spec| with_intent(spec, SWEEP));
            rows.push(cost_row(&format!("{name}, dirty regions"), depth, &cost, bound));
        }
        // A sweep looks at every region: here a hundred times as often as it does.
        let often = |spec| with_intent(spec, Duration::from_millis(50));
        let cost_of_sweeps = cost(&setup, &dirty(64, 0..1024, &setup), often);
        rows.push(cost_row(&format!("{name}, dirty regions, sweeps at 20 Hz"), 64, &cost_of_sweeps, "3 %"));
        for depth in [64, 1] {
            let load = FigureLoad { warm_up: Duration::ZERO, ..FigureLoad::random_writes(depth) };
            rows.push(cost_row(
                &format!("{name}, first touch, 16384 regions"),
                depth,
                &cost(&setup, &load, |spec| with_intent(spec, SWEEP)),
                "",
            ));
        }
    }
    aligned(&rows)
}

/// What a partial parity log costs on RAID 5.
fn log() -> String {
    let mut rows = vec![cost_heading("log")];
    for members in [4, 8, 16] {
        for depth in [1, 16, 64, 256] {
            let setup = FigureSetup { members, ..FigureSetup::RAID5 };
            let bound = if (members, depth) == (8, 64) { "15 %" } else { "" };
            let cost = cost(&setup, &FigureLoad::random_writes(depth), with_log);
            rows.push(cost_row(&format!("RAID 5 over {members} members"), depth, &cost, bound));
        }
    }
    aligned(&rows)
}

fn megabytes(bytes_per_second: f64) -> String {
    format!("{:.0}", bytes_per_second / 1e6)
}

/// Rebuild, replacement, check and resync of members of 1 GiB with nothing beside.
fn jobs() -> String {
    let mut rows =
        vec![row(&[&"alone", &"MB/s and member", &"drives allow", &"of it", &"bound", &"members busy"])];
    for (name, setup) in SETUPS {
        for work in MeasuredWork::ALL {
            let alone = jobs::alone(&FigureSetup { member_bytes: 1 << 30, ..setup }, work);
            let limit = work.limit_bytes_per_second();
            let busy: Vec<f64> = alone.uses().iter().map(|member| member.busy * 100.0).collect();
            let least =
                busy.iter().take(setup.members as usize).fold(f64::MAX, |least, busy| least.min(*busy));
            let most = busy.iter().fold(0.0f64, |most, busy| most.max(*busy));
            rows.push(row(&[
                &format!("{name} {work:?}"),
                &megabytes(alone.bytes_per_second()),
                &megabytes(limit),
                &percent(alone.bytes_per_second() / limit),
                &"95 %",
                &format!("{least:.0}-{most:.0} %"),
            ]));
        }
    }
    aligned(&rows)
}

/// The same beside clients with random requests of 4 KiB, when the job has settled.
fn beside() -> String {
    let mut rows = vec![beside_heading()];
    for (name, setup) in SETUPS {
        for work in [MeasuredWork::Rebuild, MeasuredWork::Check] {
            for (reads_percent, depth) in [(70, 1), (70, 16), (70, 64), (0, 64), (100, 64)] {
                rows.push(beside_row(name, &setup, work, &jobs::clients(depth, reads_percent)));
            }
        }
        let load = jobs::clients(64, 70);
        rows.push(beside_row(name, &setup, MeasuredWork::Replace, &load));
        let more = FigureSetup { cores: 4, ..setup };
        rows.push(beside_row(&format!("{name}, 4 cores,"), &more, MeasuredWork::Rebuild, &load));
    }
    aligned(&rows)
}

/// The same, counted from the moment when the job begins.
fn onset() -> String {
    let mut rows = vec![beside_heading()];
    for (name, setup) in SETUPS {
        for (reads_percent, depth) in [(70, 16), (70, 64), (0, 64)] {
            let load = jobs::clients(depth, reads_percent);
            let load = FigureLoad { warm_up: Duration::ZERO, ..load };
            rows.push(beside_row(name, &setup, MeasuredWork::Rebuild, &load));
        }
    }
    aligned(&rows)
}

fn beside_heading() -> Vec<String> {
    row(&[
        &"beside clients",
        &"reads",
        &"QD",
        &"MB/s and member",
        &"of the drive's",
        &"bound",
        &"p99 us: whole",
        &"job at rest",
        &"beside it",
        &"ratio",
        &"bound",
        &"requests left",
    ])
}

fn beside_row(name: &str, setup: &FigureSetup, work: MeasuredWork, load: &FigureLoad) -> Vec<String> {
    let beside = jobs::beside(setup, work, load);
    let (without, with) = (micros(&beside.without, 99.0), micros(&beside.with, 99.0));
    row(&[
        &format!("{name} {work:?}"),
        &format!("{} %", load.reads_percent),
        &load.depth,
        &megabytes(beside.bytes_per_second),
        &percent(beside.bytes_per_second / work.limit_bytes_per_second()),
        &if work == MeasuredWork::Rebuild { "30 %" } else { "" },
        &micros(&beside.whole, 99.0),
        &without,
        &with,
        &format!("{:.2}", with as f64 / without as f64),
        &if work == MeasuredWork::Rebuild { "2.00" } else { "" },
        &percent(beside.with.per_second() / beside.without.per_second()),
    ])
}
