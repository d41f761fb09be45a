//! Plots of what was swept.

use std::collections::BTreeMap;
use std::path::Path;

use wattle_control::{Code, Problem};

use super::report::RunReport;
use super::usage;
use crate::cli::SimulateArgs;
use crate::output::plot::{Axis, Chart, Panel, Series, png, svg};

/// Writes the chart into the files that were asked for.
///
/// # Errors
/// There is no chart, or a file cannot be written.
pub fn write(args: &SimulateArgs, chart: impl FnOnce() -> Result<Chart, Problem>) -> Result<(), Problem> {
    if args.svg.is_none() && args.png.is_none() {
        return Ok(());
    }
    let chart = chart()?;
    if let Some(path) = &args.svg {
        save(path, svg(&chart).as_bytes())?;
    }
    if let Some(path) = &args.png {
        let bytes = png(&chart).map_err(|error| failed(path, &error))?;
        save(path, &bytes)?;
    }
    Ok(())
}

fn save(path: &Path, bytes: &[u8]) -> Result<(), Problem> {
    std::fs::write(path, bytes).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> Problem {
    Problem::new(
        Code::OutputFailed,
        format!("{}: {error}", path.display()),
        "the plot could not be written",
        "name a file in a directory that can be written",
    )
}

/// The first key goes to the right; each combination of the others is a curve, or a colour of bars,
/// beside its limit.
///
/// # Errors
/// Nothing was swept.
pub fn chart(runs: &[RunReport], latency: bool) -> Result<Chart, Problem> {
    let Some((key, _)) = runs.first().and_then(|run| run.swept.first()) else {
        return Err(usage("--svg, --png: there is nothing to draw without --sweep or --preset".to_owned()));
    };
    let mut places: Vec<&str> = Vec::new();
    // In the order of the runs: the numbers keep it.
    let mut curves: Vec<String> = Vec::new();
    let mut found: BTreeMap<(usize, usize), &RunReport> = BTreeMap::new();
    for run in runs {
        let place = index_of(&mut places, run.swept[0].1.as_str());
        let name: Vec<_> = run.swept[1..].iter().map(|(key, value)| format!("{key} {value}")).collect();
        let curve = index_of(&mut curves, name.join(", "));
        found.insert((curve, place), run);
    }
    let series = |value: &dyn Fn(&RunReport) -> f64, name: &str, beside: bool| -> Vec<Series> {
        let curve = |(index, curve): (usize, &String)| Series {
            name: if curve.is_empty() { name.to_owned() } else { format!("{name}, {curve}") },
            values: (0..places.len()).map(|place| found.get(&(index, place)).map(|run| value(run))).collect(),
            beside: beside.then_some(index),
        };
        curves.iter().enumerate().map(curve).collect()
    };
    let mut iops = series(&|run| run.iops, "IOPS", false);
    iops.extend(one_line_each(series(&|run| run.limit_iops, "limit", true)));
    let efficiency = series(&|run| run.efficiency * 100.0, "efficiency", false);
    let mut panels = vec![
        Panel { name: "IOPS".to_owned(), series: iops },
        Panel { name: "of the limit, %".to_owned(), series: efficiency },
    ];
    if latency {
        let mut times = series(&|run| run.lat_us.p50, "p50", false);
        times.extend(series(&|run| run.lat_us.p99, "p99", true));
        panels.push(Panel { name: "latency, us; dashed: p99".to_owned(), series: times });
    }
    Ok(Chart { title: title(runs, key), axis: axis(key, &places), panels })
}

/// Limits that are the same are one line.
fn one_line_each(limits: Vec<Series>) -> Vec<Series> {
    let mut lines: Vec<Series> = Vec::new();
    for limit in limits {
        match lines.iter_mut().find(|line| line.values == limit.values) {
            Some(line) => line.name = "limit".to_owned(),
            None => lines.push(limit),
        }
    }
    lines
}

fn index_of<T: PartialEq>(known: &mut Vec<T>, value: T) -> usize {
    known.iter().position(|known| *known == value).unwrap_or_else(|| {
        known.push(value);
        known.len() - 1
    })
}

fn axis(key: &str, places: &[&str]) -> Axis {
    // Depths and sizes go up in powers: names side by side say more than numbers far apart.
    let numbers: Option<Vec<f64>> = match key {
        "members" | "degraded" | "rwmixread" => places.iter().map(|place| place.parse().ok()).collect(),
        _ => None,
    };
    match numbers {
        Some(values) if values.len() > 1 => Axis::Numbers { name: key.to_owned(), values },
        _ => Axis::Names {
            name: key.to_owned(),
            names: places.iter().map(|place| (*place).to_owned()).collect(),
        },
    }
}

/// What varied, and what all runs have in common.
fn title(runs: &[RunReport], key: &str) -> String {
    let run = &runs[0];
    let swept = |key: &str| run.swept.iter().any(|(swept, _)| swept == key);
    let mut parts = Vec::new();
    if !swept("level") {
        parts.push(run.array.level.clone());
    }
    if key != "drive" && !swept("drive") {
        parts.push(run.array.drives[0].clone());
    }
    if !swept("rw") {
        parts.push(run.workload.rw.to_owned());
    }
    if !swept("bs") {
        parts.push(format!("bs {}", wattle_control::size::Iec(run.workload.bs)));
    }
    let depth = |run: &RunReport| run.workload.iodepth;
    let per_member = |run: &RunReport| run.workload.iodepth / run.array.members as usize;
    if runs.iter().all(|other| depth(other) == depth(run)) {
        parts.push(format!("iodepth {}", depth(run)));
    } else if !swept("iodepth") {
        parts.push(format!("iodepth {} per member", per_member(run)));
    }
    let varied: Vec<_> = run.swept.iter().map(|(key, _)| key.as_str()).collect();
    format!("by {}: {}", varied.join(" and "), parts.join(", "))
}
