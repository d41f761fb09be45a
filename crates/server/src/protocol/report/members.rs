//! Of an array: its members and spares, and what each does.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::array::RangeReport;

/// What a slot's member, or a replacement, is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeatState {
    /// All of it is current.
    InSync,
    /// It is being filled.
    Rebuilding,
    /// No member is there.
    #[default]
    Missing,
    /// It failed, and is not used.
    Faulty,
}

impl SeatState {
    /// As JSON has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::InSync => "in_sync",
            Self::Rebuilding => "rebuilding",
            Self::Missing => "missing",
            Self::Faulty => "faulty",
        }
    }
}

/// What a member without a slot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpareState {
    /// It waits for an empty slot.
    Spare,
    /// It failed.
    Faulty,
    /// It was away or failed, and is not taken back by itself.
    Returning,
    /// It did not take a slot when it should have.
    Refused,
}

impl SpareState {
    /// As JSON has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Spare => "spare",
            Self::Faulty => "faulty",
            Self::Returning => "returning",
            Self::Refused => "refused",
        }
    }
}

/// A slot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberReport {
    /// Which.
    pub slot: u16,
    /// As it was named when the server was started; absent if nothing is there.
    pub member: Option<String>,
    /// What it is.
    pub state: SeatState,
    /// Current below this byte of its data, while it is being rebuilt.
    pub valid_below_bytes: Option<u64>,
    /// Since the start, corrected or not.
    pub read_errors: u64,
    /// Ranges of its data that hold nothing that can be read: its bad-block log. The first of them,
    /// if there are very many.
    #[serde(default)]
    pub bad_blocks: Vec<RangeReport>,
    /// All of them together.
    #[serde(default)]
    pub bad_bytes: u64,
    /// It answers much later than the others, and reads go around it where redundancy allows.
    #[serde(default)]
    pub slow: bool,
    /// For how long it has answered nothing although something waits for it; 0 below 15 seconds.
    #[serde(default)]
    pub silent_seconds: u64,
    /// What is under way on it is waited for even when it has failed: this server carries it out
    /// (copies with a map, several paths, overlays, volumes of another array, other machines).
    #[serde(default)]
    pub awaited: bool,
    /// Reads that were served from redundancy because it did not answer within the deadline.
    #[serde(default)]
    pub reads_overdue: u64,
    /// Its copies are read only where no other one can be.
    #[serde(default)]
    pub write_mostly: bool,
    /// Its connection, if it lies across a network.
    #[serde(default)]
    pub remote: Option<RemoteReport>,
    /// What went to it since it took the slot, metadata not counted.
    #[serde(default)]
    pub traffic: TrafficReport,
}

/// What the superblocks of an array say, beyond what the rest of its report does: what mdadm shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordedReport {
    /// The array's name with the host in front; empty for 0.90, which has none.
    pub name: String,
    /// When the array was made; absent if a damaged superblock names a time that cannot be.
    pub created: Option<String>,
    /// When the superblocks were written last.
    pub updated: Option<String>,
    /// The event count.
    pub events: u64,
    /// Of 0.90: the number that the array would like to have.
    pub preferred_minor: Option<u32>,
    /// What is used of each member; 0 for linear and RAID 0.
    pub member_bytes: u64,
    /// The numbers that the superblocks give members and spares, by their names.
    pub numbers: BTreeMap<String, u32>,
}

/// How the connection to a member across a network is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoteState {
    /// It answers.
    Connected,
    /// It has not answered for a while.
    Waiting,
    /// It was given up, and is tried again.
    Away,
}

/// The connection to a member across a network. How long it takes to answer is in the member's
/// traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteReport {
    /// How it is.
    pub state: RemoteState,
    /// Since when it is away.
    pub away_since: Option<String>,
    /// How often it was tried since.
    pub attempts: u64,
    /// What became of the last attempt.
    pub reason: Option<String>,
    /// Its code.
    pub reason_code: Option<String>,
    /// The ways to it, in the order of preference.
    pub paths: Vec<PathReport>,
}

/// One way to a member across a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathReport {
    /// Its address.
    pub path: String,
    /// `in_use`, `ready` or `failed`.
    pub state: String,
    /// How often it was lost or did not answer in time.
    pub failures: u64,
}

/// How long things took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyReport {
    /// How many there were.
    pub count: u64,
    /// All of them together: its growth in some time, divided by that time, is the mean number
    /// under way.
    pub sum_us: u64,
    /// Half of them took at most this long.
    pub p50_us: u64,
    /// 99 of a hundred did.
    pub p99_us: u64,
    /// 999 of a thousand did.
    pub p99_9_us: u64,
    /// How many took less than each of [`LATENCY_BOUNDS`]; absent if there were none.
    #[serde(skip_serializing_if = "is_all_zero")]
    pub below: [u64; LATENCY_BOUNDS.len()],
}

/// The times that [`LatencyReport::below`] counts by: from 16 µs to 17 s, each four times the one
/// before. They are powers of two of nanoseconds, for which the counts are exact.
pub const LATENCY_BOUNDS: [Duration; 11] = {
    let mut bounds = [Duration::ZERO; 11];
    let mut at = 0;
    while at < bounds.len() {
        bounds[at] = Duration::from_nanos(1 << (14 + 2 * at));
        at += 1;
    }
    bounds
};

fn is_all_zero(counts: &[u64]) -> bool {
    counts.iter().all(|count| *count == 0)
}

/// Clients' requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestsReport {
    /// Reads.
    pub reads: LatencyReport,
    /// Writes.
    pub writes: LatencyReport,
    /// Flushes.
    pub flushes: LatencyReport,
}

/// What a member was asked to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrafficReport {
    /// Reads.
    pub reads: LatencyReport,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: LatencyReport,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: LatencyReport,
    /// Under way now.
    pub in_flight: u64,
}

/// A member without a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpareReport {
    /// As it was named.
    pub member: String,
    /// What it waits for.
    pub state: SpareState,
    /// Why it is refused, or not taken back by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_the_words_of_json() {
        for state in [SeatState::InSync, SeatState::Rebuilding, SeatState::Missing, SeatState::Faulty] {
            assert_eq!(serde_json::to_value(state).unwrap(), state.word());
        }
        for state in [SpareState::Spare, SpareState::Faulty, SpareState::Returning, SpareState::Refused] {
            assert_eq!(serde_json::to_value(state).unwrap(), state.word());
        }
    }
}
