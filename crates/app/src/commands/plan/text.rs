//! A plan for people.

use wattle_control::units::Units;

use super::report::{CandidateReport, PlanDocument, TrialReport};
use crate::output::Screen;
use crate::output::text::{printable, table};

/// Lines of the table of candidates.
const CANDIDATES_MAX: usize = 12;

pub fn render(report: &PlanDocument, screen: Screen) -> String {
    let Screen { units, style, .. } = screen;
    let best = &report.candidates[0];
    let mut text = format!("{}\n", style.bold(&headline(report, best, units)));
    if !report.assumed.is_empty() {
        text.push_str("\nassumed, because it was not given:\n");
        let rows = report.assumed.iter().map(|assumed| {
            vec![
                assumed.what.to_owned(),
                assumed.value.clone(),
                format!("{} ({})", assumed.because, assumed.option),
            ]
        });
        text.push_str(&table("  ", &rows.collect::<Vec<_>>()));
    }
    text.push_str("\nthe stack, and why:\n");
    let rows = report.plan.reasons.iter().map(|reason| {
        vec![reason.layer.to_owned(), reason.setting.to_owned(), reason.value.clone(), reason.why.clone()]
    });
    text.push_str(&table("  ", &rows.collect::<Vec<_>>()));
    text.push_str(&format!(
        "\nof {} candidates, simulated under {}:\n",
        report.candidates.len(),
        printable(&report.wanted.load)
    ));
    text.push_str(&table("  ", &candidates(report, units)));
    if let Some(loss) = &report.plan.loss {
        text.push_str(&format!("\nloss of data within a year: {}\n", odds(loss.per_year)));
        text.push_str(&format!("  {}\n", loss.formula));
    }
    text.push_str(&commands("Linux", &report.plan.commands.linux));
    text.push_str(&commands("after every start", &report.plan.commands.linux_settings));
    text.push_str(&commands("wattle", &report.plan.commands.wattle));
    if let Some(applied) = &report.applied {
        let results: Vec<String> = applied.done.iter().map(|done| done.result.clone()).collect();
        text.push_str(&commands("done", &results));
        if !applied.left.is_empty() {
            text.push_str(&commands("left to do", &applied.left));
        }
    }
    text
}

fn headline(report: &PlanDocument, best: &CandidateReport, units: Units) -> String {
    let mut models: Vec<&str> = report.drives.iter().map(|drive| drive.model.as_str()).collect();
    models.dedup();
    let mut parts =
        vec![format!("{} of {} x {}", best.what, report.drives.len(), printable(&models.join(" + ")))];
    parts.extend(best.chunk_bytes.map(|bytes| format!("chunk {}", units.show(bytes))));
    parts.push(units.show_capacity(best.size_bytes));
    parts.join(", ")
}

/// The best chunk of each kind.
fn candidates(report: &PlanDocument, units: Units) -> Vec<Vec<String>> {
    let heading =
        ["", "chunk", "room", "IOPS", "MB/s", "p99", "degraded", "rebuilding", "whole after", "loss/year"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let mut shown: Vec<&str> = Vec::new();
    for candidate in &report.candidates {
        if shown.contains(&candidate.what.as_str()) || shown.len() == CANDIDATES_MAX {
            continue;
        }
        shown.push(&candidate.what);
        let iops = |trial: &Option<TrialReport>| {
            trial.as_ref().map_or(String::new(), |trial| format!("{:.0}", trial.iops))
        };
        let measured = candidate.measured.as_ref();
        let about = if candidate.decided { "" } else { "~" };
        rows.push(vec![
            candidate.what.clone(),
            candidate.chunk_bytes.map_or(String::new(), |bytes| units.show(bytes)),
            units.show(candidate.size_bytes),
            measured.map_or(format!("at most {:.0}", candidate.limit_iops), |trial| {
                format!("{about}{:.0}", trial.iops)
            }),
            measured.map_or(String::new(), |trial| format!("{:.1}", trial.bandwidth / 1e6)),
            measured.map_or(String::new(), |trial| format!("{:.1} ms", trial.p99_us / 1e3)),
            iops(&candidate.degraded),
            iops(&candidate.rebuilding),
            candidate.exposed_hours.map_or(String::new(), |hours| format!("{hours:.0} h")),
            candidate.loss_per_year.map_or(String::new(), odds),
        ]);
    }
    rows
}

/// A probability.
fn odds(part: f64) -> String {
    if part >= 0.001 { format!("{:.1} %", part * 100.0) } else { format!("{part:.1e}") }
}

fn commands(heading: &str, lines: &[String]) -> String {
    let lines: String = lines.iter().map(|line| format!("  {}\n", printable(line))).collect();
    format!("\n{heading}:\n{lines}")
}
