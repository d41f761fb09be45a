//! Of an array: what it is and how it does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wattle_control::shell_word;

use super::members::{MemberReport, RecordedReport, RequestsReport, SeatState, SpareReport};
use super::scrubs::{JobStatus, ScrubReport, last_done, last_found};

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
    /// What tells it from the others of its server: its UUID, or its name if it has none.
    #[must_use]
    pub fn id(&self) -> &str {
        self.uuid.as_deref().unwrap_or(&self.name)
    }

    /// mdadm's exit status of `--detail --test`; whole members whose parity is not trusted, or that
    /// answer nothing, are no redundancy.
    pub fn check_status(&self) -> u8 {
        let is_silent = self.members.iter().any(|member| member.silent_seconds > 0);
        self.health.check_status().max(u8::from(!self.synced || is_silent))
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

    /// The order that gives it a member, and what comes before it. `None` if no order does: without
    /// metadata nothing records its members, without redundancy nothing fills one, and of an array
    /// that is broken a member that failed may hold all there is.
    #[must_use]
    pub fn add_order(&self, device: &str) -> Option<String> {
        let first = self.before_change()?;
        Some(format!("{first}wattle add {} {device}", shell_word(&self.name)))
    }

    /// The order that replaces a member while it still works, and what comes before it: by what
    /// `with` says, `--with DEVICE`. `None` where no order does, as [`Self::add_order`].
    #[must_use]
    pub fn replace_order(&self, member: &str, with: &str) -> Option<String> {
        let first = self.before_change()?;
        Some(format!("{first}wattle replace {} {} {with}", shell_word(&self.name), shell_word(member)))
    }

    /// What comes before an order that changes members; `None` if no order does.
    fn before_change(&self) -> Option<&'static str> {
        if self.uuid.is_none() || !self.is_redundant() || self.health == Health::Unusable {
            return None;
        }
        Some(if self.read_only { "serve it without --read-only, then " } else { "" })
    }

    /// The orders that put another member into the place of one that failed, as
    /// [`Self::add_order`].
    #[must_use]
    pub fn renew_order(&self, failed: &str) -> Option<String> {
        let add = self.add_order("DEVICE")?;
        // Only its server knows of it: at the next start it is in no slot.
        let first = match self.read_only {
            true => String::new(),
            false => format!("wattle remove {} {}, then ", shell_word(&self.name), shell_word(failed)),
        };
        Some(format!("{first}{add}"))
    }

    /// The order that lets what it lacks be filled: a member waits for it, and background work is
    /// held.
    #[must_use]
    pub fn release_order(&self) -> Option<String> {
        let mut members = self.members.iter().chain(&self.replacements);
        let waits = self.paused && self.sync.is_none();
        (waits && members.any(|member| member.state == SeatState::Rebuilding)).then(|| self.resume_order())
    }

    /// The order that lets background work go on that is held: where it is only paused, that ends
    /// no check.
    #[must_use]
    pub fn resume_order(&self) -> String {
        let name = shell_word(&self.name);
        match self.settings.get("sync_action").is_some_and(|action| action == "frozen") {
            true => format!("wattle set {name} sync_action=idle"),
            false => format!("wattle check {name} --resume"),
        }
    }

    /// The last check or repair that went over the whole array: what a part of one did not find
    /// says nothing of the rest.
    #[must_use]
    pub fn last_done(&self) -> Option<&ScrubReport> {
        last_done(self.scrubs.iter())
    }

    /// The check or repair that left something that has not been found right since: the last whole
    /// one, or one that ended before it was whole after that.
    #[must_use]
    pub fn last_found(&self) -> Option<&ScrubReport> {
        last_found(self.scrubs.iter())
    }
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

    #[test]
    fn check_statuses_are_those_of_mdadm() {
        let statuses = [Health::Good, Health::Degraded, Health::Unusable].map(Health::check_status);
        assert_eq!(statuses, [0, 1, 2]);
    }
}
