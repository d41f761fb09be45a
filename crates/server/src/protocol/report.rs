//! The shapes of `wattle status --json`, which are also what a server tells over its control
//! socket.
//!
//! Sizes are integers of bytes, times RFC 3339. Fields are only ever added: an older server leaves
//! out what it does not know, so what was added later has a default.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::reservations::ReservationReport;

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
    /// Processor time since it was started.
    pub cpu_ms: u64,
}

/// An array being served. Also the shape of `wattle status --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayReport {
    /// Its name.
    pub name: String,
    /// As mdadm shows it; absent for an array without metadata.
    pub uuid: Option<String>,
    /// `raid5`.
    pub level: String,
    /// `left-symmetric`; absent where the level has no choice.
    pub layout: Option<String>,
    /// Absent where the level has none.
    pub chunk_bytes: Option<u64>,
    /// What clients see.
    pub size_bytes: u64,
    /// The smallest request that is efficient.
    #[serde(default)]
    pub io_min_bytes: u64,
    /// The request size that keeps every member busy; 0 if there is none.
    #[serde(default)]
    pub io_opt_bytes: u64,
    /// What it is fit for.
    pub health: Health,
    /// `[UU_U]`.
    pub slots: String,
    /// `clean`, or `active` (writes in flight, or just ended); `clean, not synced` and
    /// `active, not synced` where parity or copies are not trusted.
    pub state: String,
    /// Parity and copies are known to agree with the data, so that the redundancy that the members
    /// promise is there.
    pub synced: bool,
    /// Nothing is written.
    pub read_only: bool,
    /// Nothing was recognised on it when the server started, and nothing was written since.
    #[serde(default)]
    pub blank: bool,
    /// Where clients connect.
    pub exports: Vec<String>,
    /// Why it is read-only or not redundant, which checks were overridden.
    pub notes: Vec<String>,
    /// How many slots have no member that is in sync.
    pub degraded: usize,
    /// So many further members can be lost, whichever they are, and all data is still there: at
    /// least; absent of an older server.
    #[serde(default)]
    pub redundancy_left: Option<usize>,
    /// By slot.
    pub members: Vec<MemberReport>,
    /// What is being made to replace members, by the slot it will take.
    #[serde(default)]
    pub replacements: Vec<MemberReport>,
    /// Members without a slot: waiting for work, or for an operator to take them back.
    #[serde(default)]
    pub spares: Vec<SpareReport>,
    /// The version of the superblocks, `1.2`; absent without metadata.
    #[serde(default)]
    pub metadata: Option<String>,
    /// md's number of the layout; absent where the level has none.
    #[serde(default)]
    pub layout_code: Option<u32>,
    /// What the array uses of each member; absent where members differ.
    #[serde(default)]
    pub member_bytes: Option<u64>,
    /// What makes parity and copies agree after a crash: `bitmap`, `ppl`, `resync`, or `none` where
    /// there is nothing to agree.
    #[serde(default)]
    pub consistency: Option<String>,
    /// The write-intent bitmap.
    #[serde(default)]
    pub bitmap: Option<BitmapReport>,
    /// What of it the last recorded scrub still says something about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<RecordStateReport>,
    /// The background work that runs or is paused.
    #[serde(default)]
    pub sync: Option<JobStatus>,
    /// Nothing runs in the background until it is resumed.
    #[serde(default)]
    pub paused: bool,
    /// Checks and repairs, the last one first, also of earlier runs of the server.
    #[serde(default)]
    pub scrubs: Vec<ScrubReport>,
    /// What `wattle set` changes.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// What happened since the start, the last first.
    #[serde(default)]
    pub events: Vec<EventReport>,
    /// Since the start.
    pub counters: Counters,
    /// Clients' requests since the start, and how long they took.
    #[serde(default)]
    pub requests: RequestsReport,
    /// The clean cache of blocks and parity that writes need; absent where there is no parity.
    #[serde(default)]
    pub cache: Option<CacheReport>,
    /// What it decided about its speed, and what an operator decided instead, the latest last.
    #[serde(default)]
    pub tuning: Vec<TunedReport>,
    /// What the members' superblocks say; absent without metadata.
    #[serde(default)]
    pub recorded: Option<RecordedReport>,
}

impl ArrayReport {
    /// mdadm's exit status of `--detail --test`; whole members whose parity is not trusted are no
    /// redundancy.
    pub fn check_status(&self) -> u8 {
        self.health.check_status().max(u8::from(!self.synced))
    }
}

/// What an array is fit for; in the order of severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Every slot is in sync.
    Good,
    /// Some are not; all data is there.
    Degraded,
    /// More failed than redundancy covers.
    Unusable,
}

impl Health {
    /// mdadm's exit status of `--detail --test`.
    pub fn check_status(self) -> u8 {
        self as u8
    }

    /// In a word. Members may be whole and their parity not be trusted: that is not good.
    pub fn word(self, synced: bool) -> &'static str {
        match (self, synced) {
            (Self::Good, true) => "good",
            (Self::Good, false) => "not synced",
            (Self::Degraded, _) => "degraded",
            (Self::Unusable, _) => "unusable",
        }
    }
}

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
    /// It was away, and is not taken back by itself.
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

/// Something that was decided about an array's speed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunedReport {
    /// When; absent of what was not noted with its time.
    pub time: Option<String>,
    /// What.
    pub what: String,
    /// The measurement behind it, or what it overrides.
    pub why: String,
}

/// The clean cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheReport {
    /// The ceiling as md counts: entries of 4 KiB for each member.
    pub stripe_cache_size: u64,
    /// What it holds, counted like that.
    pub stripe_cache_active: u64,
    /// What it has room for now.
    pub size_bytes: u64,
    /// What it never has more room than.
    pub ceiling_bytes: u64,
    /// What it holds.
    pub active_bytes: u64,
    /// Blocks that writes needed and found.
    pub hits: u64,
    /// Blocks that writes needed and had to read.
    pub misses: u64,
    /// Blocks that made room for others.
    pub evictions: u64,
    /// Why it grew the last time.
    pub grown: Option<CacheGrowthReport>,
    /// Why it keeps nothing at the moment.
    pub paused: Option<CachePauseReport>,
}

/// The processor time of 4096 rows that were written in parts, of late.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachePauseReport {
    /// Microseconds with the cache.
    pub with_us: u64,
    /// Microseconds without it.
    pub without_us: u64,
}

/// Why a cache grew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheGrowthReport {
    /// Room before.
    pub from_bytes: u64,
    /// Room since.
    pub to_bytes: u64,
    /// Rows that were written; of these,
    pub rows: u64,
    /// so many came again after they had made room for others.
    pub again: u64,
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
    /// Why it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeReport {
    /// Its first byte.
    pub start_byte: u64,
    /// How many.
    pub len_bytes: u64,
}

/// A write-intent bitmap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BitmapReport {
    /// What a bit stands for.
    pub chunk_bytes: u64,
    /// How many bits there are.
    pub bits: u64,
    /// How many of them are set: what a crash now would have to resync.
    pub bits_set: u64,
}

/// Background work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStatus {
    /// `resync`, `recovery` (also of a replacement), `check` or `repair`.
    pub action: String,
    /// The members that are being filled.
    #[serde(default)]
    pub members: Vec<String>,
    /// How far it is, in the space of md's `sync_completed`: bytes of a member's data, for RAID 10
    /// of the array's.
    pub done_bytes: u64,
    /// Where it ends.
    pub total_bytes: u64,
    /// Speed of each member, over the last seconds.
    pub speed_bytes_per_sec: u64,
    /// At that speed; absent while nothing moves.
    pub remaining_secs: Option<u64>,
    /// Until it is resumed.
    pub paused: bool,
    /// What keeps it from being faster.
    pub limited_by: Option<LimitReport>,
    /// Sectors of 512 bytes that did not agree, so far: md's `mismatch_cnt`.
    pub mismatch_sectors: u64,
}

/// What limits background work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitReport {
    /// `sync_speed_max`, `foreground`, `member` or `paused`.
    pub kind: String,
    /// In words, with the member and the figures.
    pub text: String,
}

/// A check or repair, as it is kept in the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// Tells the runs of one array apart.
    pub run: u64,
    /// `check` or `repair`.
    pub action: String,
    /// What a repair took for right: `data`, `proof`, `majority` or a member.
    #[serde(default)]
    pub source: Option<String>,
    /// When it began.
    pub started: String,
    /// How long it took; absent while it runs, or if its end was not seen.
    #[serde(default)]
    pub duration_secs: Option<u64>,
    /// `running`, `done`, `aborted`, `failed`, or `interrupted`: the server ended first.
    pub outcome: String,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<String>,
    /// What it went over; absent while it runs, if its end was not seen, and in runs of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covered: Option<CoveredReport>,
    /// Sectors of 512 bytes that did not agree: md's `mismatch_cnt`.
    #[serde(default)]
    pub mismatch_sectors: u64,
    /// How many of these were made to agree.
    #[serde(default)]
    pub repaired_sectors: u64,
    /// Sectors that could not be compared, because they cannot be read.
    #[serde(default)]
    pub unreadable_sectors: u64,
    /// Sectors that were not compared, because a member did not answer in time.
    #[serde(default)]
    pub late_sectors: u64,
    /// Sectors that were not compared, because what they would be compared with is missing or bad.
    #[serde(default)]
    pub alone_sectors: u64,
    /// Blocks that could not be read and were rewritten from redundancy.
    #[serde(default)]
    pub rewritten_blocks: u64,
    /// Where they are: the first of them.
    #[serde(default)]
    pub mismatches: Vec<MismatchReport>,
    /// There are more than are listed.
    #[serde(default)]
    pub truncated: bool,
    /// What the record of an earlier scrub told, and whether this one left one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<ScrubRecordReport>,
}

/// What a check or repair went over, in the space of md's `sync_completed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoveredReport {
    /// Where it began.
    pub from_byte: u64,
    /// Everything below was compared.
    pub to_byte: u64,
    /// Where one ends that goes over the whole array.
    pub whole_bytes: u64,
}

/// What records of scrubs told a scrub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubRecordReport {
    /// What it found is the record that the next one compares with.
    pub recorded: bool,
    /// Bytes of members that were compared with the last record.
    pub compared_bytes: u64,
    /// Sectors of members that rotted silently, as the others prove: they can be made anew, or
    /// were.
    pub proven_sectors: u64,
    /// Sectors of members that rotted silently and that nothing can be made anew from.
    pub rotted_sectors: u64,
    /// Sectors of members that are not what they were although nothing was written and redundancy
    /// agrees.
    pub unexplained_sectors: u64,
}

/// What of an array is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordStateReport {
    /// When the scrub ended that recorded it.
    pub recorded: String,
    /// Regions that were written since: nothing is known of these.
    pub written_regions: u64,
    /// All regions.
    pub regions: u64,
    /// The most bytes that its file takes.
    pub file_bytes: u64,
}

impl ArrayReport {
    /// Whether its level has redundancy at all.
    #[must_use]
    pub fn is_redundant(&self) -> bool {
        matches!(self.level.as_str(), "raid1" | "raid4" | "raid5" | "raid6" | "raid10")
    }

    /// The last check or repair that went over the whole array: what a part of one did not find
    /// says nothing of the rest.
    #[must_use]
    pub fn last_done(&self) -> Option<&ScrubReport> {
        self.scrubs.iter().find(|run| run.is_whole())
    }

    /// The check or repair that left something that has not been found right since: the last whole
    /// one, or one that ended before it was whole after that.
    #[must_use]
    pub fn last_found(&self) -> Option<&ScrubReport> {
        let since = self.scrubs.iter().take_while(|run| !run.is_whole());
        since.chain(self.last_done()).find(|run| run.left().total() > 0)
    }
}

/// What a check or repair left, in sectors: anything but nothing is worth an alert.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubLeft {
    /// They do not agree.
    pub differ: u64,
    /// They were not compared: they cannot be read, were not in time, or are alone.
    pub not_compared: u64,
    /// They are not what was recorded although redundancy agrees.
    pub unexplained: u64,
}

impl ScrubLeft {
    /// All of them.
    #[must_use]
    pub fn total(self) -> u64 {
        self.differ + self.not_compared + self.unexplained
    }

    /// What was found, in words: each follows "it found that".
    #[must_use]
    pub fn words(self) -> Vec<String> {
        let parts = [
            (self.differ, "do not agree"),
            (self.not_compared, "could not be compared"),
            (self.unexplained, "are not as recorded although redundancy agrees"),
        ];
        let found = parts.into_iter().filter(|(sectors, _)| *sectors > 0);
        found.map(|(sectors, what)| format!("{sectors} sectors {what}")).collect()
    }
}

impl ScrubReport {
    /// Whether it came to its end, and that is the array's.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let whole = |covered: CoveredReport| covered.from_byte == 0 && covered.to_byte >= covered.whole_bytes;
        self.outcome == "done" && self.covered.is_none_or(whole)
    }

    /// What it left.
    #[must_use]
    pub fn left(&self) -> ScrubLeft {
        ScrubLeft {
            differ: self.mismatch_sectors.saturating_sub(self.repaired_sectors),
            not_compared: self.unreadable_sectors + self.late_sectors + self.alone_sectors,
            unexplained: self.record.map_or(0, |record| record.unexplained_sectors),
        }
    }

    /// When it began, in seconds since 1970; `None` if that is no time.
    #[must_use]
    pub fn started_secs(&self) -> Option<u64> {
        crate::time::parse_rfc3339(&self.started)
    }

    /// When it ended, in seconds since 1970.
    #[must_use]
    pub fn ended_secs(&self) -> Option<u64> {
        Some(self.started_secs()? + self.duration_secs.unwrap_or(0))
    }
}

/// A place where parity or copies do not agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MismatchReport {
    /// Where the data that it covers starts in the array.
    pub array_start_byte: u64,
    /// How much of the array it covers.
    pub array_len_bytes: u64,
    /// Where it is on each member, in its data area.
    pub member_start_byte: u64,
    /// How much of each member.
    pub member_len_bytes: u64,
    /// The slot that is the odd one out, where that can be told.
    #[serde(default)]
    pub slot: Option<u16>,
    /// Its member.
    #[serde(default)]
    pub member: Option<String>,
    /// What does not agree: `parity` or `copies`.
    pub kind: String,
    /// The slots whose copy is not what the majority says, or if there is none, what the first
    /// says.
    #[serde(default)]
    pub differ: Vec<u16>,
    /// What the last recorded scrub says: `rotted` (the member is not what it was, and the others
    /// prove it), `rotted, no source` (and nothing gives what it was), `written` (since then, so
    /// that nothing is known).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventReport {
    /// When.
    pub time: String,
    /// What.
    pub what: String,
}

/// What an array has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Reads of clients.
    pub reads: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Writes of clients.
    pub writes: u64,
    /// Bytes that they wrote.
    pub write_bytes: u64,
    /// Flushes of clients.
    pub flushes: u64,
    /// Rows written whole.
    pub rows_full: u64,
    /// Rows of which the rest was read for their parity.
    pub rows_reconstruct: u64,
    /// Rows of which old data and parity were read for their parity.
    pub rows_read_modify: u64,
    /// Rows written with members missing.
    pub rows_degraded: u64,
    /// Rows of which a block was computed from the others.
    pub rows_recovered: u64,
    /// Blocks that writes read first.
    pub pre_reads: u64,
    /// Writes that went out together with others.
    pub merged: u64,
    /// Blocks that could not be read and were rewritten from redundancy.
    pub repaired: u64,
    /// Bytes read ahead of clients that read in sequence.
    pub ahead_bytes: u64,
    /// Reads that were answered with what had been read ahead.
    pub ahead_reads: u64,
    /// Writes that are not aligned to the members' blocks.
    pub unaligned: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts read them.
    #[test]
    fn states_are_the_words_of_json() {
        for state in [SeatState::InSync, SeatState::Rebuilding, SeatState::Missing, SeatState::Faulty] {
            assert_eq!(serde_json::to_value(state).unwrap(), state.word());
        }
        for state in [SpareState::Spare, SpareState::Faulty, SpareState::Returning, SpareState::Refused] {
            assert_eq!(serde_json::to_value(state).unwrap(), state.word());
        }
    }

    #[test]
    fn a_part_of_a_scrub_is_no_scrub_of_the_array() {
        let run = |outcome: &str, covered: serde_json::Value| -> ScrubReport {
            serde_json::from_value(serde_json::json!({
                "run": 1, "action": "check", "started": "", "outcome": outcome, "covered": covered
            }))
            .unwrap()
        };
        let covered =
            |from: u64, to: u64| serde_json::json!({"from_byte": from, "to_byte": to, "whole_bytes": 8192});
        assert!(run("done", covered(0, 8192)).is_whole());
        assert!(!run("done", covered(4096, 8192)).is_whole() && !run("done", covered(0, 4096)).is_whole());
        assert!(!run("aborted", covered(0, 8192)).is_whole());
        // Of an earlier version.
        assert!(run("done", serde_json::Value::Null).is_whole());
    }

    #[test]
    fn check_statuses_are_those_of_mdadm() {
        let statuses = [Health::Good, Health::Degraded, Health::Unusable].map(Health::check_status);
        assert_eq!(statuses, [0, 1, 2]);
    }
}
