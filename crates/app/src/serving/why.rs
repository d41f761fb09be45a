//! Why an array is as it is, as `wattle why` shows it.

use wattle_control::{ArrayScan, Scan};

use crate::control_socket::why::{DecisionReport, WhyReport};

/// Of every array on members that nobody serves.
pub fn offline(scan: &Scan) -> Vec<WhyReport> {
    scan.arrays.iter().map(|array| of_scan(scan, array)).collect()
}

fn of_scan(scan: &Scan, array: &ArrayScan) -> WhyReport {
    let assembly = &array.assembly;
    let about_array = assembly.problems().into_iter().map(|problem| DecisionReport {
        member: None,
        what: problem.what,
        why: problem.why,
        next: Some(problem.next),
    });
    let about_members = array.members.iter().zip(&assembly.verdicts).map(|(&ix, verdict)| DecisionReport {
        member: Some(scan.members[ix].member.name.clone()),
        what: verdict.to_string(),
        why: String::new(),
        next: None,
    });
    WhyReport {
        array: assembly.name().to_owned(),
        uuid: Some(assembly.uuid().to_string()),
        decisions: about_array.chain(about_members).collect(),
    }
}
