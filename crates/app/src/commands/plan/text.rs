//! A plan for people.

use wattle_control::units::Units;

use super::report::{CandidateReport, PlanDocument, TrialReport};
use crate::output::Screen;
use crate::output::blocks::blocks;
use crate::output::text::{printable, table};

/// Lines of the table of candidates.
const CANDIDATES_MAX: usize = 12;

/// `width` is that of the screen, if there is one.
pub fn render(report: &PlanDocument, screen: Screen, width: Option<usize>) -> String {
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
    let candidates = shown(report);
    text.push_str(&blocks("  ", &table_of(&candidates, units), 2, width));
    text.push_str(&legend(&candidates));
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
fn shown(report: &PlanDocument) -> Vec<&CandidateReport> {
    let mut shown: Vec<&CandidateReport> = Vec::new();
    for candidate in &report.candidates {
        let kind = (&candidate.what, candidate.consistency);
        if !shown.iter().any(|other| (&other.what, other.consistency) == kind) {
            shown.push(candidate);
        }
    }
    // What keeps less is last, and no less of interest.
    let less = shown.iter().filter(|candidate| candidate.keeps_less).count();
    let rest = shown.split_off(shown.len() - less);
    shown.truncate(CANDIDATES_MAX.saturating_sub(less));
    shown.extend(rest);
    shown
}

fn table_of(candidates: &[&CandidateReport], units: Units) -> Vec<Vec<String>> {
    let heading = [
        "",
        "consistency",
        "write hole",
        "chunk",
        "room",
        "IOPS",
        "MB/s",
        "p99",
        "degraded",
        "rebuilding",
        "whole after",
        "loss/year",
    ];
    let row = |candidate: &&CandidateReport| {
        let iops = |trial: &Option<TrialReport>| {
            trial.as_ref().map_or(String::new(), |trial| format!("{:.0}", trial.iops))
        };
        let measured = candidate.measured.as_ref();
        let about = if candidate.decided { "" } else { "~" };
        vec![
            candidate.what.clone(),
            candidate.consistency.unwrap_or("-").to_owned(),
            candidate.write_hole.to_owned(),
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
        ]
    };
    std::iter::once(heading.map(str::to_owned).to_vec()).chain(candidates.iter().map(row)).collect()
}

/// What the signs in the table mean, as far as they are in it.
fn legend(candidates: &[&CandidateReport]) -> String {
    let any = |is: &dyn Fn(&CandidateReport) -> bool| candidates.iter().any(|candidate| is(candidate));
    let hole = |name: &'static str| any(&move |candidate| candidate.write_hole == name);
    let mut lines = Vec::new();
    if any(&|candidate| candidate.measured.is_some() && !candidate.decided) {
        lines.push("~: measured briefly; it was clear by then that it is slower");
    }
    if any(&|candidate| candidate.measured.is_none()) {
        lines.push("at most: not measured, since its drives allow less than half of the best");
    }
    if any(&|candidate| candidate.consistency == Some("ppl")) {
        lines.push("consistency ppl: a partial parity log, which each write waits for; bitmap: it does not");
    }
    if hole("open") || hole("closed") || hole("2 missing") {
        lines.push(
            "write hole: whether a power cut while a member is missing can change what was not written",
        );
    }
    if hole("2 missing") {
        lines.push("write hole 2 missing: only while two members are");
    }
    if any(&|candidate| candidate.keeps_less) {
        lines.push("last: the same with a bitmap, which keeps less; --consistency bitmap has it compete");
    }
    lines.into_iter().map(|line| format!("  {line}\n")).collect()
}

/// A probability.
fn odds(part: f64) -> String {
    if part >= 0.001 { format!("{:.1} %", part * 100.0) } else { format!("{part:.1e}") }
}

fn commands(heading: &str, lines: &[String]) -> String {
    let lines: String = lines.iter().map(|line| format!("  {}\n", printable(line))).collect();
    format!("\n{heading}:\n{lines}")
}
