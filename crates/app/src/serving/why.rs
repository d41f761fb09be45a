//! Why an array is as it is, as `wattle why` shows it.

use wattle_control::Scan;
use wattle_control::why::{Why, why};

use crate::control_socket::why::{DecisionReport, WhyReport};

/// Of every array on members that nobody serves.
pub fn offline(scan: &Scan) -> Vec<WhyReport> {
    scan.arrays.iter().map(|array| report(why(scan, array))).collect()
}

/// The decisions that an array was started from.
pub fn report(why: Why) -> WhyReport {
    let decisions = why.decisions.into_iter().map(|decision| DecisionReport {
        member: decision.member,
        what: decision.what,
        why: decision.why,
        next: decision.next,
    });
    WhyReport { array: why.array, uuid: Some(why.uuid.to_string()), decisions: decisions.collect() }
}
