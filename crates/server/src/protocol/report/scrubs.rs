//! Of an array: its background work, its checks and repairs, and what they left.

use serde::{Deserialize, Serialize};

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

/// Of runs, the last first, the last one that went over the whole array.
pub fn last_done<'a>(mut runs: impl Iterator<Item = &'a ScrubReport>) -> Option<&'a ScrubReport> {
    runs.find(|run| run.is_whole())
}

/// Of runs, the last first, the one whose findings stand: the last whole one, or one since then
/// that ended before it was whole.
pub fn last_found<'a>(runs: impl Iterator<Item = &'a ScrubReport> + Clone) -> Option<&'a ScrubReport> {
    let since = runs.clone().take_while(|run| !run.is_whole());
    since.chain(last_done(runs)).find(|run| run.left().total() > 0)
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

impl MismatchReport {
    /// What it takes in JSON, names of fields and the longest numbers included.
    pub(super) fn bytes_max(&self) -> usize {
        const FIELDS: usize = 320;
        const SLOT: usize = 6;
        FIELDS + self.member.as_ref().map_or(0, String::len) + SLOT * self.differ.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
