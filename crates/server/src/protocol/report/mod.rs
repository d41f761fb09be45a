//! The shapes of `wattle status --json`, which are also what a server tells over its control
//! socket.
//!
//! Sizes are integers of bytes, times RFC 3339. Fields are only ever added: an older server leaves
//! out what it does not know, so what was added later has a default.

mod array;
mod members;
mod scrubs;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::LINE_BYTES_MAX;
use super::reservations::ReservationReport;
pub use array::{
    ArrayReport, BitmapReport, CacheGrowthReport, CachePauseReport, CacheReport, Counters, EventReport,
    Health, RangeReport, RecordStateReport, TunedReport,
};
pub use members::{
    LATENCY_BOUNDS, LatencyReport, MemberReport, PathReport, RecordedReport, RemoteReport, RemoteState,
    RequestsReport, SeatState, SpareReport, SpareState, TrafficReport,
};
pub use scrubs::{
    CoveredReport, JobStatus, LimitReport, MismatchReport, ScrubLeft, ScrubRecordReport, ScrubReport,
    last_done, last_found,
};

/// Of what a status may be long, places where scrubs found something have at most this; the rest
/// is much shorter.
const PLACES_BYTES_MAX: usize = LINE_BYTES_MAX / 2;

/// A server and its arrays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerReport {
    /// Its name.
    pub server: String,
    /// Its process.
    pub pid: u32,
    /// What it serves.
    pub arrays: Vec<ArrayReport>,
    /// What lies on the arrays and is offered to clients in their stead.
    #[serde(default)]
    pub volumes: Vec<VolumeReport>,
    /// The volume groups that it has open.
    #[serde(default)]
    pub groups: Vec<GroupReport>,
    /// Its threads, and how much work they did.
    #[serde(default)]
    pub threads: Vec<ThreadReport>,
    /// Processor time of the process, that of threads that ended with it; absent where Linux does
    /// not tell, and from an older server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// What limits and shares do to volumes; those of which nothing is set and none waited are not
    /// listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub qos: Vec<VolumeQosReport>,
    /// Points in time since which it is known what has changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<CheckpointReport>,
    /// Volumes of which NVMe hosts have registered or reserved something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reservations: Vec<ReservationReport>,
    /// The array that all it serves lies on, by UUID or else by name: an order to an array may name
    /// the server too. Absent from an older server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sole_array: Option<String>,
    /// Arrays that were stopped while it goes on: their names stand for nothing of it any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<String>,
}

impl ServerReport {
    /// Lists no more places where scrubs found something than fit into an answer, of each run as
    /// much as of any other.
    #[must_use]
    pub fn with_places_that_fit(mut self) -> Self {
        let runs = self.arrays.iter_mut().flat_map(|array| &mut array.scrubs);
        let mut runs: Vec<_> = runs.filter(|run| !run.mismatches.is_empty()).collect();
        let each = PLACES_BYTES_MAX / runs.len().max(1);
        for run in &mut runs {
            let mut bytes = 0;
            let fit = run.mismatches.iter().take_while(|place| {
                bytes += place.bytes_max();
                bytes <= each
            });
            let fit = fit.count();
            run.truncated |= fit < run.mismatches.len();
            run.mismatches.truncate(fit);
        }
        self
    }
}

/// A checkpoint of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointReport {
    /// The volume.
    pub volume: String,
    /// The checkpoint.
    pub name: String,
    /// When it was made, in UTC.
    pub since: String,
    /// How much has changed since, at most.
    pub changed_bytes: u64,
}

/// The quality of service of a volume, counted since it was offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeQosReport {
    /// Its name: that of the array, or of what lies on it.
    pub volume: String,
    /// What `wattle set` changes.
    pub settings: BTreeMap<String, String>,
    /// Requests that a limit or a share was looked at for. Without limits, and as the only volume
    /// of its server, it has none.
    pub requests: u64,
    /// The bytes of these.
    pub bytes: u64,
    /// Requests that its own limits held back.
    pub limited: u64,
    /// How long, all together.
    pub limited_us: u64,
    /// Held back now.
    pub waiting_limited: u64,
    /// Requests that waited for those of other volumes.
    pub shared: u64,
    /// How long, all together.
    pub shared_us: u64,
    /// Waiting for other volumes now.
    pub waiting_shared: u64,
    /// Thousandths of a request that it and others may have under way on a core, where a volume
    /// with a `latency_goal` is in use and this one has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth_thousandths: Option<u64>,
}

/// A volume that clients are offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// The smallest request that is efficient.
    #[serde(default)]
    pub io_min_bytes: u64,
    /// The request size that keeps every drive busy; 0 if there is none.
    #[serde(default)]
    pub io_opt_bytes: u64,
    /// It is never written.
    pub read_only: bool,
    /// Nothing was recognised on it when the server started, and nothing was written since.
    #[serde(default)]
    pub blank: bool,
    /// The ways to it.
    pub exports: Vec<String>,
}

/// A volume group that a server has open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReport {
    /// Its name.
    pub name: String,
    /// Its id, as LVM2 shows it.
    pub uuid: String,
    /// The arrays that it lies on, by UUID.
    #[serde(default)]
    pub arrays: Vec<String>,
    /// All of its extents.
    #[serde(default)]
    pub size_bytes: u64,
    /// The extents that new volumes can have; extents that are not to be allocated are none.
    #[serde(default)]
    pub free_bytes: u64,
}

/// What a name that is no array's stands for: the arrays that the group or volume lies on, or that
/// the partition is of; none if there is no such thing.
pub fn below(groups: &[GroupReport], name: &str) -> Vec<String> {
    let owner = name.split_once('/').map_or(name, |(group, _)| group);
    if let Some(group) = groups.iter().find(|group| group.name == owner || group.uuid == name) {
        return group.arrays.clone();
    }
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let part = name.rsplit_once(":p").filter(|(_, text)| number(text));
    part.map(|(whole, _)| whole.to_owned()).into_iter().collect()
}

/// A thread of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// Its name.
    pub name: String,
    /// What tells it from others while it runs: Linux' number of it, that of the process for the
    /// first. 0 from an older server.
    #[serde(default)]
    pub tid: u32,
    /// Processor time since it was started.
    pub cpu_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Response, encode};

    fn scrub() -> ScrubReport {
        let place = MismatchReport {
            array_start_byte: u64::MAX,
            array_len_bytes: u64::MAX,
            member_start_byte: u64::MAX,
            member_len_bytes: u64::MAX,
            slot: Some(u16::MAX),
            member: Some("m".repeat(60)),
            kind: "parity".to_owned(),
            differ: vec![u16::MAX; 4],
            record: Some("rotted, no source".to_owned()),
        };
        let run = serde_json::json!({"run": 1, "action": "check", "started": "", "outcome": "done"});
        ScrubReport { mismatches: vec![place; 1000], ..serde_json::from_value(run).unwrap() }
    }

    fn server(arrays: usize) -> ServerReport {
        let mut array = crate::fixtures::array("data", "raid6", &["a", "b", "c", "d"]);
        array.scrubs = vec![scrub(), scrub()];
        let server = serde_json::json!({"server": "data", "pid": 1, "arrays": []});
        ServerReport { arrays: vec![array; arrays], ..serde_json::from_value(server).unwrap() }
    }

    /// Every order looks its array up in a status.
    #[test]
    fn a_status_of_arrays_that_disagree_in_many_places_can_be_taken() {
        let few = server(4);
        assert_eq!(few.clone().with_places_that_fit(), few);
        for arrays in [20, 200] {
            let told = server(arrays).with_places_that_fit();
            for run in told.arrays.iter().flat_map(|array| &array.scrubs) {
                assert!(run.truncated && !run.mismatches.is_empty() && run.mismatches.len() < 1000);
            }
            assert!(encode(&Response::Status(told)).len() < LINE_BYTES_MAX);
        }
    }
}
