//! Runs for people.

use wattle_control::units::Units;

use super::report::{
    RebuildReport, RunReport, SimulatedArrayReport, SimulatedLatencyReport, SimulatedMemberReport,
    WorkloadReport,
};
use crate::output::Screen;
use crate::output::blocks::blocks;
use crate::output::text::{printable, shortened, table};

/// Characters of a drive's name in the table of members.
const DRIVE_MAX: usize = 40;

/// Everything about one run.
/// `width` is that of the screen, if there is one.
pub fn one(run: &RunReport, screen: Screen, width: Option<usize>) -> String {
    let Screen { units, style, .. } = screen;
    let mut text = format!("{}\n", style.bold(&printable(&array(&run.array, units))));
    let mut facts = vec![
        ("load", workload(&run.workload, units)),
        ("IOPS", iops(run)),
        ("limit", format!("{:.0}: {}", run.limit_iops, run.limit_formula)),
        ("efficiency", percent(run.efficiency)),
        ("bandwidth", rate(run.bandwidth, units)),
        ("latency", latency(&run.lat_us)),
    ];
    if run.read_iops > 0.0 && run.write_iops > 0.0 {
        facts.push(("  reads", latency(&run.read_lat_us)));
        facts.push(("  writes", latency(&run.write_lat_us)));
    }
    facts.push(("steady", steady(run)));
    facts.push(("held back by", run.held_back.clone()));
    if let Some(rebuild) = &run.rebuild {
        facts.push(("rebuild", rebuilding(rebuild, units)));
        facts.push(("  beside it", beside(rebuild, run)));
    }
    let facts: Vec<_> = facts.into_iter().map(|(label, value)| vec![label.to_owned(), value]).collect();
    text.push_str(&table("  ", &facts));
    let mut rows = vec![
        ["slot", "at work", "queue", "reads/s", "writes/s", "read", "written", "drive"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(run.members.iter().map(|member| row(member, units)));
    text.push_str(&blocks("  ", &rows, 1, width));
    text
}

/// One line for each run, what was swept first.
pub fn table_of(runs: &[RunReport], screen: Screen, width: Option<usize>) -> String {
    let keys = runs.first().map_or(Vec::new(), |run| run.swept.iter().map(|(key, _)| key.clone()).collect());
    let heading = [
        "IOPS",
        "limit",
        "of it",
        "bandwidth",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "at work",
        "queue",
        "held back by",
    ];
    let rebuilt = runs.iter().any(|run| run.rebuild.is_some());
    let more = if rebuilt { &["rebuild", "of drive", "IOPS beside", "p99 us beside"][..] } else { &[] };
    let heading = heading.iter().chain(more).map(|word| (*word).to_owned());
    let mut rows = vec![keys.into_iter().chain(heading).collect::<Vec<_>>()];
    for run in runs {
        let there = || run.members.iter().filter(|member| member.util > 0.0);
        let mut row: Vec<_> = run.swept.iter().map(|(_, value)| printable(value)).collect();
        row.extend([
            format!("{:.0}", run.iops),
            format!("{:.0}", run.limit_iops),
            percent(run.efficiency),
            rate(run.bandwidth, screen.units),
            format!("{:.0}", run.lat_us.p50),
            format!("{:.0}", run.lat_us.p99),
            format!("{:.0}", run.lat_us.p99_9),
            span(there().map(|member| member.util * 100.0)) + " %",
            span(there().map(|member| member.queue_depth)),
            run.held_back_by.to_owned() + if run.steady == Some(false) { ", not steady" } else { "" },
        ]);
        row.extend(run.rebuild.iter().flat_map(|rebuild| {
            [
                rate(rebuild.bandwidth, screen.units),
                percent(rebuild.share),
                format!("{:.0}", rebuild.iops),
                format!("{:.0}", rebuild.lat_us.p99),
            ]
        }));
        rows.push(row);
    }
    let swept = runs.first().map_or(0, |run| run.swept.len());
    blocks("", &rows, swept, width)
}

fn rebuilding(rebuild: &RebuildReport, units: Units) -> String {
    let (bandwidth, share) = (rate(rebuild.bandwidth, units), percent(rebuild.share));
    let steady = if rebuild.steady == Some(false) { "; NOT steady" } else { "" };
    format!("{bandwidth}, {share} of what the drive takes that is filled{steady}")
}

/// What the rebuild does to the load.
fn beside(rebuild: &RebuildReport, run: &RunReport) -> String {
    let RebuildReport { iops, iops_ratio, lat_us, p99_ratio, .. } = rebuild;
    format!(
        "{iops:.0} IOPS, {} of those above; p99 {:.0} us for {:.0} us, {p99_ratio:.2} times",
        percent(*iops_ratio),
        lat_us.p99,
        run.lat_us.p99
    )
}

/// Least and most.
fn span(values: impl Iterator<Item = f64>) -> String {
    let (least, most) =
        values.fold((f64::INFINITY, 0.0f64), |(least, most), value| (least.min(value), most.max(value)));
    let (least, most) = (least.min(most), most);
    if format!("{least:.0}") == format!("{most:.0}") {
        format!("{most:.0}")
    } else {
        format!("{least:.0}-{most:.0}")
    }
}

fn array(array: &SimulatedArrayReport, units: Units) -> String {
    let mut drives = array.drives.clone();
    drives.dedup();
    let mut parts = vec![format!("{} over {} x {}", array.level, array.members, drives.join(" + "))];
    parts.extend(array.layout.clone());
    parts.extend(array.chunk_bytes.map(|bytes| format!("chunk {}", units.show(bytes))));
    parts.push(units.show_capacity(array.size_bytes));
    parts.push(array.consistency.to_owned());
    if array.missing > 0 {
        parts.push(format!("{} missing", array.missing));
    }
    parts.extend(array.cache_bytes.map(|bytes| format!("cache {}", units.show(bytes as u64))));
    if array.cores > 1 {
        parts.push(format!("{} cores", array.cores));
    }
    parts.join(", ")
}

fn workload(load: &WorkloadReport, units: Units) -> String {
    let mut parts =
        vec![load.rw.to_owned(), format!("bs {}", units.show(load.bs)), format!("iodepth {}", load.iodepth)];
    if load.numjobs > 1 {
        parts.push(format!("{} jobs", load.numjobs));
    }
    if matches!(load.rw, "readwrite" | "randrw") {
        parts.push(format!("{} % reads", load.rwmixread));
    }
    parts.extend(load.size.map(|size| format!("size {}", units.show(size))));
    if load.fsync > 0 {
        parts.push(format!("a flush after {} writes", load.fsync));
    }
    if load.norandommap {
        parts.push("norandommap".to_owned());
    }
    parts.join(", ")
}

fn iops(run: &RunReport) -> String {
    match (run.read_iops, run.write_iops) {
        (reads, writes) if reads > 0.0 && writes > 0.0 => {
            format!("{:.0} ({reads:.0} reads, {writes:.0} writes)", run.iops)
        }
        _ => format!("{:.0}", run.iops),
    }
}

fn latency(latency: &SimulatedLatencyReport) -> String {
    let SimulatedLatencyReport { mean, p50, p99, p99_9, max } = latency;
    format!("p50 {p50:.0} us, p99 {p99:.0} us, p99.9 {p99_9:.0} us, mean {mean:.0} us, longest {max:.0} us")
}

fn steady(run: &RunReport) -> String {
    let counted = format!("counted for {:.3} s", run.runtime_secs);
    match run.steady {
        Some(true) => format!("yes, after {:.3} s; {counted}", run.ramp_secs),
        Some(false) => format!(
            "NO: caches, a job or chance still moved the rate after {:.3} s; {counted}",
            run.ramp_secs + run.runtime_secs
        ),
        None => format!("not looked at, after a ramp of {:.3} s; {counted}", run.ramp_secs),
    }
}

fn row(member: &SimulatedMemberReport, units: Units) -> Vec<String> {
    vec![
        member.slot.to_string(),
        percent(member.util),
        format!("{:.1}", member.queue_depth),
        format!("{:.0}", member.reads_per_sec),
        format!("{:.0}", member.writes_per_sec),
        rate(member.read_bytes_per_sec, units),
        rate(member.written_bytes_per_sec, units),
        shortened(&printable(&member.drive), DRIVE_MAX),
    ]
}

pub fn rate(bytes_per_second: f64, units: Units) -> String {
    let bytes = bytes_per_second.round() as u64;
    match units {
        // Drives are sold by megabytes of 1000 x 1000.
        Units::Iec | Units::Si | Units::Lvm(_) => format!("{:.1} MB/s", bytes as f64 / 1e6),
        Units::Bytes => format!("{bytes} B/s"),
    }
}

pub fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}
