//! The values of the tables, by their identifiers.

use std::collections::BTreeMap;
use std::ops::Bound;

use wattle_server::protocol::report::{ArrayReport, Health, MemberReport, SeatState};

use super::ObjectId;
use crate::metrics::ServerSight;

const MIB: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Integer(i32),
    Gauge(u32),
}

impl Value {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Integer(_) => "integer",
            Self::Gauge(_) => "gauge",
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            // A value is one line.
            Self::Text(text) => text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
            Self::Integer(value) => value.to_string(),
            Self::Gauge(value) => value.to_string(),
        }
    }
}

fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

fn gauge(value: u64) -> Value {
    Value::Gauge(u32::try_from(value).unwrap_or(u32::MAX))
}

/// Saturates as agents do.
fn integer(value: u64) -> Value {
    Value::Integer(i32::try_from(value).unwrap_or(i32::MAX))
}

/// Everything that there is to tell at one time.
pub(super) struct Tree(BTreeMap<ObjectId, Value>);

impl Tree {
    pub(super) fn of(base: &ObjectId, servers: &[ServerSight]) -> Self {
        let mut tree = Table { base, values: BTreeMap::new() };
        let reports: Vec<_> = servers.iter().filter_map(|sight| sight.report.as_ref()).collect();
        let arrays: Vec<_> = reports.iter().flat_map(|report| &report.arrays).collect();
        let degraded = arrays.iter().filter(|array| array.check_status() != 0).count();
        let silent = servers.len() - reports.len();
        // How many there are, how many are not well, how many servers do not answer.
        for (scalar, count) in [(1, arrays.len()), (2, degraded), (3, silent)] {
            tree.put(&[scalar, 0], integer(count as u64));
        }
        let mut member_row = 0;
        for (row, array) in (1..).zip(&arrays) {
            tree.row(4, row, of_array(array));
            for member in array.members.iter().chain(&array.replacements) {
                member_row += 1;
                tree.row(5, member_row, of_member(array, member));
            }
        }
        let volumes = reports.iter().flat_map(|report| &report.volumes);
        for (row, volume) in (1..).zip(volumes) {
            tree.row(
                6,
                row,
                vec![text(&volume.name), gauge(volume.size_bytes / MIB), truth(volume.read_only)],
            );
        }
        Self(tree.values)
    }

    pub(super) fn get(&self, id: &ObjectId) -> Option<(&ObjectId, &Value)> {
        self.0.get_key_value(id)
    }

    pub(super) fn next(&self, id: &ObjectId) -> Option<(&ObjectId, &Value)> {
        self.0.range((Bound::Excluded(id), Bound::Unbounded)).next()
    }
}

struct Table<'a> {
    base: &'a ObjectId,
    values: BTreeMap<ObjectId, Value>,
}

impl Table<'_> {
    fn put(&mut self, below: &[u32], value: Value) {
        self.values.insert(ObjectId([&self.base.0, below].concat()), value);
    }

    /// Column 1 is the row's number; the others follow.
    fn row(&mut self, table: u32, row: u32, columns: Vec<Value>) {
        self.put(&[table, 1, 1, row], Value::Integer(i32::try_from(row).unwrap_or(i32::MAX)));
        for (column, value) in (2..).zip(columns) {
            self.put(&[table, 1, column, row], value);
        }
    }
}

/// SNMP's TruthValue.
fn truth(value: bool) -> Value {
    Value::Integer(if value { 1 } else { 2 })
}

fn of_array(array: &ArrayReport) -> Vec<Value> {
    let state = match (array.health, array.synced) {
        (Health::Good, true) => 1,
        (Health::Good, false) => 2,
        (Health::Degraded, _) => 3,
        (Health::Unusable, _) => 4,
    };
    let percent = array.sync.as_ref().map_or(100, |job| match job.total_bytes {
        0 => 0,
        total => u64::try_from(u128::from(job.done_bytes) * 100 / u128::from(total)).unwrap_or(100),
    });
    vec![
        text(&array.name),
        text(&array.level),
        Value::Integer(state),
        integer(array.degraded as u64),
        // -1: an older server does not tell.
        array.redundancy_left.map_or(Value::Integer(-1), |left| integer(left as u64)),
        text(array.sync.as_ref().map_or("idle", |job| job.action.as_str())),
        integer(percent),
        gauge(array.size_bytes / MIB),
        text(&array.slots),
        text(array.uuid.as_deref().unwrap_or("")),
    ]
}

fn of_member(array: &ArrayReport, member: &MemberReport) -> Vec<Value> {
    let state = match member.state {
        SeatState::InSync => 1,
        SeatState::Rebuilding => 2,
        SeatState::Missing => 3,
        SeatState::Faulty => 4,
    };
    vec![
        text(&array.name),
        text(member.member.as_deref().unwrap_or("")),
        Value::Integer(i32::from(member.slot)),
        Value::Integer(state),
        gauge(member.read_errors),
        gauge(member.bad_bytes / 512),
        truth(member.slow),
    ]
}

#[cfg(test)]
mod tests {
    use wattle_server::fixtures::{array, sync};
    use wattle_server::protocol::report::ServerReport;

    use super::*;

    #[test]
    fn a_walk_meets_every_value_once_and_in_order() {
        let mut data = array("data", "raid5", &["a", "b", "c"]);
        data.health = Health::Degraded;
        data.sync = Some(sync("recovery", 1 << 20, 4 << 20));
        let report = ServerReport {
            server: "data".to_owned(),
            pid: 1,
            arrays: vec![data],
            volumes: Vec::new(),
            groups: Vec::new(),
            threads: Vec::new(),
            cpu_ms: None,
            qos: Vec::new(),
            checkpoints: Vec::new(),
            reservations: Vec::new(),
            sole_array: None,
            stopped: Vec::new(),
        };
        let base: ObjectId = ".1.3.6".parse().unwrap();
        let silent = ServerSight { name: "b".to_owned(), report: None };
        let tree = Tree::of(&base, &[ServerSight { name: "data".to_owned(), report: Some(report) }, silent]);
        let (mut at, mut seen) = (base, 0);
        while let Some((id, value)) = tree.next(&at) {
            assert_eq!(tree.get(id), Some((id, value)));
            (at, seen) = (id.clone(), seen + 1);
        }
        assert_eq!(seen, 3 + 11 + 3 * 8);
        let value =
            |below: &str| tree.get(&format!(".1.3.6{below}").parse().unwrap()).map(|(_, value)| value.text());
        assert_eq!([".1.0", ".2.0", ".3.0"].map(value).map(Option::unwrap), ["1", "1", "1"]);
        assert_eq!(value(".4.1.2.1").as_deref(), Some("data"));
        assert_eq!(value(".4.1.4.1").as_deref(), Some("3"));
        assert_eq!(value(".4.1.8.1").as_deref(), Some("25"));
        assert_eq!(value(".5.1.3.3").as_deref(), Some("c"));
        assert_eq!(value(".5.1.3.4"), None);
    }
}
