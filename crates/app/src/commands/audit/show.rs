//! An audit for people and for programs.

use serde::Serialize;
use wattle_advise::audit::{AuditReport, Finding, Severity, Unchecked};
use wattle_control::Problem;
use wattle_server::protocol::SCHEMA_VERSION;

use super::fragments::{self, FragmentsReport};
use crate::output::text::printable;
use crate::output::{self, Screen};

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    findings: Vec<FindingReport<'a>>,
    /// Findings that the baseline has, and that are not among these.
    suppressed: usize,
    unchecked: Vec<UncheckedReport<'a>>,
    file_systems: Vec<FragmentsReport<'a>>,
}

#[derive(Serialize)]
struct FindingReport<'a> {
    code: String,
    severity: &'static str,
    title: &'static str,
    subject: &'a str,
    evidence: &'a str,
    cost: &'a str,
    fix: &'a str,
}

#[derive(Serialize)]
struct UncheckedReport<'a> {
    what: &'a str,
    why: &'a str,
}

/// # Errors
/// It cannot be written.
pub fn show_json(report: &AuditReport, suppressed: usize) -> Result<(), Problem> {
    output::print_json(&document(report, suppressed))
}

/// With the figures of all file systems, if `verbose`.
///
/// # Errors
/// It cannot be written.
pub fn show(report: &AuditReport, suppressed: usize, verbose: bool, screen: Screen) -> Result<(), Problem> {
    let figures = if verbose { fragments::render(&report.file_systems, screen) } else { String::new() };
    output::print_fitted(&(figures + &render(report, suppressed, screen)))
}

/// The document of `--json`.
pub fn document(report: &AuditReport, suppressed: usize) -> impl Serialize + '_ {
    Document {
        schema_version: SCHEMA_VERSION,
        findings: report.findings.iter().map(finding_report).collect(),
        suppressed,
        unchecked: report
            .unchecked
            .iter()
            .map(|Unchecked { what, why }| UncheckedReport { what, why })
            .collect(),
        file_systems: report.file_systems.iter().map(fragments::report).collect(),
    }
}

fn finding_report(finding: &Finding) -> FindingReport<'_> {
    FindingReport {
        code: finding.code.id(),
        severity: finding.code.severity().name(),
        title: finding.code.title(),
        subject: &finding.subject,
        evidence: &finding.evidence,
        cost: &finding.cost,
        fix: &finding.fix,
    }
}

fn render(report: &AuditReport, suppressed: usize, screen: Screen) -> String {
    let style = screen.style;
    let mut text = String::new();
    for finding in &report.findings {
        let severity = finding.code.severity();
        let head = format!("{severity}[{}]", finding.code);
        let head = match severity {
            Severity::Error => style.red(&head),
            Severity::Warning => style.yellow(&head),
            Severity::Note => head,
        };
        text.push_str(&format!("{head}: {}: {}\n", printable(&finding.subject), finding.code.title()));
        for (label, words) in [("found", &finding.evidence), ("costs", &finding.cost), ("fix", &finding.fix)]
        {
            text.push_str(&format!("  {}: {}\n", style.bold(label), printable(words)));
        }
    }
    for Unchecked { what, why } in &report.unchecked {
        text.push_str(&printable(&format!("not checked: {what}: {why}")));
        text.push('\n');
    }
    text.push_str(&format!("{}\n", summary(report, suppressed)));
    text
}

/// `2 errors, 1 warning; 3 not checked`.
fn summary(report: &AuditReport, suppressed: usize) -> String {
    let count = |severity: Severity| {
        report.findings.iter().filter(|finding| finding.code.severity() == severity).count()
    };
    let counted = Severity::ALL.iter().rev().map(|&severity| (count(severity), severity.name()));
    let mut parts: Vec<_> =
        counted.filter(|(count, _)| *count > 0).map(|(count, name)| plural(count, name)).collect();
    if parts.is_empty() {
        parts.push("nothing found".to_owned());
    }
    let mut text = parts.join(", ");
    if suppressed > 0 {
        text.push_str(&format!("; {suppressed} known"));
    }
    if !report.unchecked.is_empty() {
        text.push_str(&format!("; {} not checked", report.unchecked.len()));
    }
    text
}

fn plural(count: usize, name: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}
