//! `wattle why`: what was decided about an array and each of its members, from which event counts
//! and times, and what helps.

use std::path::Path;

use serde::Serialize;
use wattle_control::members::MemberAccess;
use wattle_control::{MemberScan, Problem, Scan};
use wattle_format::probe::SignatureKind;
use wattle_server::protocol::SCHEMA_VERSION;
use wattle_server::protocol::report::ArrayReport;
use wattle_server::protocol::why::{DecisionReport, WhyReport};
use wattle_server::socket::RuntimeDir;
use wattle_server::socket::client::{self, Servers, on_no_array};
use wattle_server::why;

use super::interval::{ArrayInterval, Snapshot};
use super::scan::devices::{self, ScannedFsReport};
use crate::cli::WhyArgs;
use crate::environment::runtime_dir;
use crate::members;
use crate::output::{self, Screen, text::printable};
use crate::target::ServedTarget;

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    arrays: Vec<WhyReport>,
    /// File systems that lie on several devices, which are members.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    file_systems: Vec<ScannedFsReport>,
}

/// # Errors
/// No such array is served, and no such member is there.
pub fn run(access: &MemberAccess, args: &WhyArgs, screen: Screen) -> Result<(), Problem> {
    if args.slow {
        return slow(args, screen);
    }
    if args.tuning {
        return tuning(args, screen);
    }
    let (arrays, file_systems) = match served(args)? {
        Some(reports) => (reports, Vec::new()),
        None => {
            let (scan, unopened) = members::look_each(access, &args.targets, &args.force)?;
            for problem in unopened {
                output::report(&problem, screen.style_err);
            }
            (why::offline(&scan), several_devices(&scan))
        }
    };
    if args.json.json {
        return output::print_json(&Report { schema_version: SCHEMA_VERSION, arrays, file_systems });
    }
    if arrays.is_empty() && file_systems.is_empty() {
        output::note("no array on these members");
    }
    let arrays = arrays.iter().map(|array| render(array, screen));
    let file_systems = file_systems.iter().map(|found| found.render(screen));
    output::print_fitted(&arrays.chain(file_systems).collect::<Vec<_>>().join("\n"))
}

/// The file systems on several of the members as they are.
fn several_devices(scan: &Scan) -> Vec<ScannedFsReport> {
    let kind =
        |seen: &MemberScan| seen.signatures.iter().any(|found| found.kind == Some(SignatureKind::Btrfs));
    let members = scan.members.iter().filter(|seen| seen.facts.is_none() && kind(seen));
    devices::look(members.map(|seen| seen.member.clone()).collect())
}

/// What `--json` shows of an array that is served, or of all.
///
/// # Errors
/// There is no such array, or its server does not answer.
pub fn document(dir: &RuntimeDir, array: Option<&str>) -> Result<serde_json::Value, Problem> {
    let servers = Servers::ask(dir);
    let of = |(socket, array): (&Path, &ArrayReport)| client::why(socket, array.id());
    let arrays = match array {
        Some(name) => {
            let meant = servers.meant(dir, name)?;
            meant.arrays.iter().map(|array| of((meant.socket, array))).collect::<Result<_, _>>()?
        }
        None => servers.arrays().map(of).collect::<Result<_, _>>()?,
    };
    Ok(serde_json::to_value(Report { schema_version: SCHEMA_VERSION, arrays, file_systems: Vec::new() })
        .unwrap_or_default())
}

#[derive(Serialize)]
struct SlowReport {
    schema_version: u32,
    arrays: Vec<ArrayInterval>,
}

/// What holds the arrays named back, from two looks at them.
fn slow(args: &WhyArgs, screen: Screen) -> Result<(), Problem> {
    let dir = runtime_dir(args.runtime.runtime_dir.as_deref());
    let before = Snapshot::now(&dir);
    for name in &args.targets {
        if before.since(&before, &dir, Some(name))?.is_empty() {
            return Err(on_no_array(name));
        }
    }
    let now = before.after(&dir, args.interval);
    let mut arrays = Vec::new();
    for name in &args.targets {
        arrays.extend(now.since(&before, &dir, Some(name))?);
    }
    if args.json.json {
        return output::print_json(&SlowReport { schema_version: SCHEMA_VERSION, arrays });
    }
    let reports: Vec<String> = arrays.iter().map(|array| render(&limits(array), screen)).collect();
    output::print_fitted(&reports.join("\n"))
}

fn limits(array: &ArrayInterval) -> WhyReport {
    let decisions = array.limited_by.iter().map(|limit| DecisionReport {
        member: None,
        what: format!("limited by {}", limit.kind.replace('_', " ")),
        why: limit.evidence.clone(),
        next: Some(limit.help.clone()),
    });
    WhyReport { array: array.array.clone(), uuid: None, decisions: decisions.collect() }
}

/// What the arrays named decided about their speed.
fn tuning(args: &WhyArgs, screen: Screen) -> Result<(), Problem> {
    let mut arrays = Vec::new();
    let mut targets = Vec::new();
    for name in &args.targets {
        targets.extend(ServedTarget::all(args.runtime.runtime_dir.as_deref(), name)?);
    }
    for array in targets.iter().map(ServedTarget::array) {
        let decisions = array.tuning.iter().map(|tuned| DecisionReport {
            member: None,
            what: tuned.time.iter().map(|time| format!("{time}  ")).chain([tuned.what.clone()]).collect(),
            why: tuned.why.clone(),
            next: None,
        });
        arrays.push(WhyReport {
            array: array.name.clone(),
            uuid: array.uuid.clone(),
            decisions: decisions.collect(),
        });
    }
    if args.json.json {
        return output::print_json(&Report {
            schema_version: SCHEMA_VERSION,
            arrays,
            file_systems: Vec::new(),
        });
    }
    let nothing = "  nothing was decided yet: no background work has run, and the cache was large enough\n";
    let report = |array: &WhyReport| {
        let text = render(array, screen);
        if array.decisions.is_empty() { format!("{text}{nothing}") } else { text }
    };
    output::print_fitted(&arrays.iter().map(report).collect::<Vec<_>>().join("\n"))
}

/// What the server says, if the one thing named is served: of the array, or of those that it lies
/// on.
fn served(args: &WhyArgs) -> Result<Option<Vec<WhyReport>>, Problem> {
    let targets = ServedTarget::all_if_served(args.runtime.runtime_dir.as_deref(), &args.targets)?;
    let why = |target: &ServedTarget| client::why(target.socket(), target.id());
    targets.map(|targets| targets.iter().map(why).collect()).transpose()
}

fn render(report: &WhyReport, screen: Screen) -> String {
    let style = screen.style;
    let uuid = report.uuid.as_ref().map(|uuid| format!("  {uuid}")).unwrap_or_default();
    let mut text = format!("{}{uuid}\n", style.bold(&printable(&report.array)));
    for DecisionReport { member, what, why, next } in &report.decisions {
        let whose = member.as_ref().map(|member| format!("{}: ", printable(member))).unwrap_or_default();
        text.push_str(&format!("  {whose}{}\n", printable(what)));
        if !why.is_empty() {
            text.push_str(&format!("    {}: {}\n", style.bold("why"), printable(why)));
        }
        if let Some(next) = next {
            text.push_str(&format!("    {}: {}\n", style.bold("next"), printable(next)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Style;
    use wattle_control::units::Units;

    #[test]
    fn a_decision_says_what_why_and_what_helps() {
        let decision = |member: Option<&str>, next: Option<&str>| DecisionReport {
            member: member.map(str::to_owned),
            what: "what".to_owned(),
            why: "because\n".to_owned(),
            next: next.map(str::to_owned),
        };
        let report = WhyReport {
            array: "data".to_owned(),
            uuid: Some("a:b:c:d".to_owned()),
            decisions: vec![decision(None, None), decision(Some("a.img"), Some("wattle add data a.img"))],
        };
        let plain = Screen { units: Units::Iec, style: Style::PLAIN, style_err: Style::PLAIN };
        let text = "data  a:b:c:d\n  what\n    why: because?\n  a.img: what\n    why: because?\n    next: wattle add data a.img\n";
        assert_eq!(render(&report, plain), text);
    }
}
