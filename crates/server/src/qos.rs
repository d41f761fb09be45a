//! Quality of service of volumes: what can be set, and what a volume reports of it.

use std::collections::BTreeMap;
use std::time::Duration;

use wattle_control::size::parse_size;
use wattle_engine::volume::qos::{
    QOS_BURSTS, QOS_GOALS, QOS_WEIGHTS, QosLimits, QosRate, QosScope, QosStatus, QosUnit,
};

use crate::protocol::report::VolumeQosReport;

/// One setting of a volume and its new value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QosChange {
    /// A limit of all clients together.
    Volume(QosRate, Option<u64>),
    /// A limit of each client.
    Client(QosRate, Option<u64>),
    /// How much of a limit that was not used is kept for later.
    Burst(Duration),
    /// The share beside other volumes.
    Weight(u32),
    /// The goal, if there is one.
    Goal(Option<Duration>),
}

/// Every key that is a rate: whose it is, and which.
const RATES: [(&str, bool, QosRate); 8] = [
    ("iops", false, rate(QosUnit::Requests, QosScope::All)),
    ("read_iops", false, rate(QosUnit::Requests, QosScope::Reads)),
    ("write_iops", false, rate(QosUnit::Requests, QosScope::Writes)),
    ("bandwidth", false, rate(QosUnit::Bytes, QosScope::All)),
    ("read_bandwidth", false, rate(QosUnit::Bytes, QosScope::Reads)),
    ("write_bandwidth", false, rate(QosUnit::Bytes, QosScope::Writes)),
    ("client_iops", true, rate(QosUnit::Requests, QosScope::All)),
    ("client_bandwidth", true, rate(QosUnit::Bytes, QosScope::All)),
];

const fn rate(unit: QosUnit, scope: QosScope) -> QosRate {
    QosRate { unit, scope }
}

/// Whether a setting is one of volumes and not of arrays.
#[must_use]
pub fn is_key(key: &str) -> bool {
    matches!(key, "burst" | "weight" | "latency_goal") || RATES.iter().any(|(name, ..)| *name == key)
}

/// Understands a value of a key of [`is_key`]; `None` if it makes no sense for it.
#[must_use]
pub fn parse(key: &str, value: &str) -> Option<QosChange> {
    if let Some((_, of_client, rate)) = RATES.into_iter().find(|(name, ..)| *name == key) {
        let limit = match (value, rate.unit) {
            ("none", _) => None,
            (_, QosUnit::Requests) => Some(value.parse().ok()?),
            (_, QosUnit::Bytes) => Some(parse_size(value.strip_suffix("/s").unwrap_or(value)).ok()?),
        };
        let allowed = limit.is_none_or(|limit| rate.allowed().contains(&limit));
        let change = if of_client { QosChange::Client } else { QosChange::Volume };
        return allowed.then_some(change(rate, limit));
    }
    let time = || humantime::parse_duration(value).ok();
    match (key, value) {
        ("burst", _) => time().filter(|burst| QOS_BURSTS.contains(burst)).map(QosChange::Burst),
        ("weight", _) => {
            value.parse().ok().filter(|weight| QOS_WEIGHTS.contains(weight)).map(QosChange::Weight)
        }
        ("latency_goal", "none") => Some(QosChange::Goal(None)),
        ("latency_goal", _) => {
            time().filter(|goal| QOS_GOALS.contains(goal)).map(|goal| QosChange::Goal(Some(goal)))
        }
        _ => None,
    }
}

impl QosChange {
    /// What holds once it is made.
    #[must_use]
    pub fn made(self, before: QosLimits) -> QosLimits {
        let mut after = before;
        match self {
            Self::Volume(rate, limit) => after.volume.0[rate.index()] = limit,
            Self::Client(rate, limit) => after.client.0[rate.index()] = limit,
            Self::Burst(burst) => after.burst = burst,
            Self::Weight(weight) => after.weight = weight,
            Self::Goal(goal) => after.goal = goal,
        }
        after
    }
}

/// What is set, as it can be typed.
#[must_use]
pub fn shown(limits: &QosLimits) -> BTreeMap<String, String> {
    let none = || "none".to_owned();
    let rates = RATES.into_iter().map(|(key, of_client, rate)| {
        let rates = if of_client { limits.client } else { limits.volume };
        let text = rates.0[rate.index()].map_or_else(none, |limit| match rate.unit {
            QosUnit::Requests => limit.to_string(),
            QosUnit::Bytes => typed_size(limit),
        });
        (key, text)
    });
    let time = |time: Duration| humantime::format_duration(time).to_string();
    let others = [
        ("burst", time(limits.burst)),
        ("weight", limits.weight.to_string()),
        ("latency_goal", limits.goal.map_or_else(none, time)),
    ];
    rates.chain(others).map(|(key, text)| (key.to_owned(), text)).collect()
}

/// A size in the largest unit that leaves it whole.
fn typed_size(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let whole = units.into_iter().find(|(shift, _)| bytes.is_multiple_of(1 << shift));
    whole.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// What a volume reports; `None` if there is nothing to report.
#[must_use]
pub fn report(volume: &str, status: &QosStatus) -> Option<VolumeQosReport> {
    let QosStatus { limits, totals, depth_thousandths } = status;
    if *limits == QosLimits::default() && totals.limited + totals.shared + totals.waiting_shared == 0 {
        return None;
    }
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    Some(VolumeQosReport {
        volume: volume.to_owned(),
        settings: shown(limits),
        requests: totals.requests,
        bytes: totals.bytes,
        limited: totals.limited,
        limited_us: micros(totals.limited_time),
        waiting_limited: totals.waiting_limited,
        shared: totals.shared,
        shared_us: micros(totals.shared_time),
        waiting_shared: totals.waiting_shared,
        depth_thousandths: depth_thousandths.filter(|_| limits.goal.is_none()),
    })
}

/// Whether a volume has a goal of latency.
#[must_use]
pub fn has_goal(report: &VolumeQosReport) -> bool {
    report.settings.get("latency_goal").is_some_and(|goal| goal != "none")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_typed() {
        let typed = [
            ("iops", "5000"),
            ("read_bandwidth", "100M"),
            ("client_iops", "100"),
            ("client_bandwidth", "65537"),
            ("burst", "2s"),
            ("weight", "300"),
            ("latency_goal", "5ms"),
        ];
        let mut limits = QosLimits::default();
        for (key, value) in typed {
            assert!(is_key(key));
            limits = parse(key, value).unwrap_or_else(|| panic!("{key}={value}")).made(limits);
        }
        let settings = shown(&limits);
        for (key, value) in typed {
            assert_eq!(settings[key], value);
        }
        for (key, value) in &settings {
            limits = parse(key, value).unwrap_or_else(|| panic!("{key}={value}")).made(limits);
        }
        assert_eq!(shown(&limits), settings);
        for key in ["iops", "read_bandwidth", "client_iops", "client_bandwidth", "latency_goal"] {
            limits = parse(key, "none").unwrap().made(limits);
        }
        let default = QosLimits { burst: limits.burst, weight: 300, ..QosLimits::default() };
        assert_eq!(limits, default);
        let status = |limits| QosStatus { limits, ..QosStatus::default() };
        assert!(!has_goal(&report("one", &status(limits)).unwrap()));
        let goal = Some(Duration::from_millis(5));
        assert!(has_goal(&report("one", &status(QosLimits { goal, ..limits })).unwrap()));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (key, values) in [
            ("iops", &["0", "-1", "1.5", "100000001", "50M", ""][..]),
            ("bandwidth", &["0", "63K", "2T", "fast", "18446744073709551616"]),
            ("client_bandwidth", &["1"]),
            ("burst", &["none", "0s", "301s", "2"]),
            ("weight", &["0", "10001", "none"]),
            ("latency_goal", &["1us", "61s", "5"]),
            ("goal", &["5ms"]),
        ] {
            for value in values {
                assert_eq!(parse(key, value), None, "{key}={value}");
            }
        }
    }
}
