//! What an array decided by itself about its speed, from what it measured, and what an operator
//! decided instead.

use std::collections::BTreeMap;

use wattle_control::units::Units;
use wattle_engine::ArrayStatus;
use wattle_engine::job::{Decided, Goal, ShareDecision};
use wattle_rt::Instant;

use crate::protocol::report::TunedReport;

/// Settings with their defaults, and what setting them overrides.
const DEFAULTS: &[(&str, &str, &str)] = &[
    ("sync_speed_min", "1000", "background work keeps this speed whatever clients notice of it"),
    ("sync_speed_max", "none", "background work is held to this also where more would disturb no client"),
    ("read_deadline", "2s", "a member counts as slow after this time"),
    ("remote_timeout", "2s", "a member across a network is given up after this time"),
    ("paths", "order", "reads of a member go by all paths to it in turn"),
    ("goal", "throughput", "it says what background work takes beside clients"),
    ("stripe_cache_size", "", "the cache of what writes read before grows up to this and no further"),
    (
        "read_ahead_kb",
        "",
        "so far ahead of clients that read in sequence is read, whatever keeps the members busy",
    ),
];

/// `own` are the settings whose default depends on the array, as long as they were not set.
pub fn tuned(
    status: &ArrayStatus,
    settings: &BTreeMap<String, String>,
    own: &BTreeMap<&str, String>,
    time: impl Fn(Instant) -> String,
) -> Vec<TunedReport> {
    let overridden = DEFAULTS.iter().filter_map(|(key, default, why)| {
        let default = own.get(key).map_or(*default, String::as_str);
        let value = settings.get(*key).filter(|value| *value != default)?;
        Some(TunedReport {
            time: None,
            what: format!("{key} is {value}, as an operator set it (by itself {default})"),
            why: (*why).to_owned(),
        })
    });
    let grown = status.cache.growth.map(|growth| TunedReport {
        time: None,
        what: format!(
            "the cache of what writes read before has room for {} on a core, not {}",
            size(growth.to_bytes),
            size(growth.from_bytes)
        ),
        why: format!(
            "of {} rows written in parts {} had been a while before and were not there any more",
            growth.rows, growth.again
        ),
    });
    let paused = status.cache.pause.map(|pause| TunedReport {
        time: None,
        what: "nothing is kept of what writes read before, for the time being".to_owned(),
        why: format!(
            "4096 rows took a core that never sleeps {:.1} ms without, {:.1} ms with it",
            pause.without.as_secs_f64() * 1e3,
            pause.with.as_secs_f64() * 1e3
        ),
    });
    let decided = status.decisions.iter().map(|decision| of_decision(decision, time(decision.at)));
    overridden.chain(grown).chain(paused).chain(decided).collect()
}

fn of_decision(decision: &ShareDecision, time: String) -> TunedReport {
    let (what, why) = match decision.what {
        Decided::Speed { bytes_per_second } => (
            format!("background work reckons with {}/s of each member", size(bytes_per_second)),
            "so long its first steps took, small and large ones, one by one".to_owned(),
        ),
        Decided::Share { from, to, requests: 0, .. } => (
            format!("background work beside clients takes {} of that, not {}", percent(to), percent(from)),
            "the goal was set".to_owned(),
        ),
        Decided::Share { from, to, requests, late } => (
            format!("background work beside clients takes {} of that, not {}", percent(to), percent(from)),
            format!("of {requests} requests {late} were answered later than the goal has it"),
        ),
    };
    TunedReport { time: Some(time), what, why }
}

/// What `goal` is set to.
pub fn goal(goal: Goal) -> String {
    match goal {
        Goal::Throughput => "throughput".to_owned(),
        Goal::Latency => "latency".to_owned(),
        Goal::Within(time) => humantime::format_duration(time).to_string(),
    }
}

fn size(bytes: u64) -> String {
    Units::Iec.show(bytes)
}

fn percent(thousandths: u64) -> String {
    format!("{}.{} %", thousandths / 10, thousandths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_says_what_it_was_made_from() {
        let share = |requests, late| ShareDecision {
            at: Instant::from_nanos(7),
            what: Decided::Share { from: 455, to: 413, requests, late },
        };
        let told = of_decision(&share(2000, 31), "then".to_owned());
        assert_eq!(told.time.as_deref(), Some("then"));
        assert_eq!(told.what, "background work beside clients takes 41.3 % of that, not 45.5 %");
        assert_eq!(told.why, "of 2000 requests 31 were answered later than the goal has it");
        assert_eq!(of_decision(&share(0, 0), String::new()).why, "the goal was set");
    }
}
