//! Background work in an operator's terms: what runs and what limits it, and what checks and
//! repairs found.

use wattle_control::events::action_word;
use wattle_control::size::Iec;
use wattle_control::{Code, Problem, shell_word};
use wattle_engine::ArrayStatus;
use wattle_engine::geometry::{Level, LevelKind};
use wattle_engine::job::{
    FinishedJob as Ended, JobEnd, JobError, JobKind, LimitedBy, Mismatch, MismatchKind, SumFindings,
    SumVerdict, SyncStatus,
};
use wattle_engine::units::{MemberIx, SECTOR_BYTES, Sector};
use wattle_engine::{MemberState, RepairSource as Source};

use super::members::Seats;
use crate::protocol::RepairChoice;
use crate::protocol::report::{
    CoveredReport, JobStatus, LimitReport, MismatchReport, ScrubRecordReport, ScrubReport,
};

/// The seats of members that are being filled.
pub fn filling(status: &ArrayStatus) -> Vec<MemberIx> {
    let seats = (0..).map(MemberIx).zip(status.members.iter().chain(&status.replacements));
    seats
        .filter(|(_, member)| matches!(member.state, MemberState::Rebuilding { .. }))
        .map(|(seat, _)| seat)
        .collect()
}

/// What runs. `filling` are the members that are being filled, `speed_max` the limit that is set.
pub fn sync_report(
    sync: &SyncStatus,
    seats: &Seats<'_>,
    filling: &[MemberIx],
    speed_max: Option<u64>,
) -> JobStatus {
    let filling = if sync.action == JobKind::Recover { filling } else { &[] };
    JobStatus {
        action: action_word(sync.action).to_owned(),
        members: filling.iter().map(|seat| seats.name(*seat).to_owned()).collect(),
        done_bytes: bytes(sync.position),
        total_bytes: bytes(sync.end),
        speed_bytes_per_sec: sync.speed_bytes_per_second,
        remaining_secs: sync.time_left.map(|left| left.as_secs()),
        paused: sync.paused,
        limited_by: limit(sync, seats, speed_max),
        mismatch_sectors: sync.mismatch_sectors,
    }
}

fn limit(sync: &SyncStatus, seats: &Seats<'_>, speed_max: Option<u64>) -> Option<LimitReport> {
    let (kind, text) = match sync.limited_by {
        LimitedBy::Nothing => return None,
        LimitedBy::Paused => {
            ("paused", "a pause: `wattle check NAME --resume`, or sync_action=idle".to_owned())
        }
        LimitedBy::SpeedMax => {
            let speed = speed_max.map(|speed| format!(" ({}/s)", Iec(speed))).unwrap_or_default();
            ("sync_speed_max", format!("sync_speed_max{speed}"))
        }
        LimitedBy::Foreground => (
            "foreground",
            "clients: it makes way for their requests, down to its share; sync_speed_min raises that"
                .to_owned(),
        ),
        LimitedBy::Member(seat) => ("member", format!("{}: its requests take the longest", seats.name(seat))),
    };
    Some(LimitReport { kind: kind.to_owned(), text })
}

/// A run that begins.
pub fn begun(run: u64, action: JobKind, source: Option<String>, started: String) -> ScrubReport {
    ScrubReport {
        run,
        action: action_word(action).to_owned(),
        source,
        started,
        duration_secs: None,
        outcome: "running".to_owned(),
        error: None,
        covered: None,
        mismatch_sectors: 0,
        repaired_sectors: 0,
        unreadable_sectors: 0,
        late_sectors: 0,
        alone_sectors: 0,
        rewritten_blocks: 0,
        mismatches: Vec::new(),
        truncated: false,
        record: None,
    }
}

/// The same when it ended.
pub fn ended(begun: &ScrubReport, end: &Ended, seats: &Seats<'_>) -> ScrubReport {
    let (outcome, error) = match end.end {
        JobEnd::Finished => ("done", None),
        JobEnd::Aborted => ("aborted", None),
        JobEnd::Failed(why) => ("failed", Some(why.to_string())),
    };
    ScrubReport {
        duration_secs: Some(end.ended.saturating_since(end.started).as_secs()),
        outcome: outcome.to_owned(),
        error,
        covered: Some(CoveredReport {
            from_byte: bytes(end.covered.start),
            to_byte: bytes(end.covered.end),
            whole_bytes: bytes(end.whole),
        }),
        mismatch_sectors: end.mismatch_sectors,
        repaired_sectors: repaired_sectors(begun, end),
        unreadable_sectors: end.unreadable_sectors,
        late_sectors: end.late_sectors,
        alone_sectors: end.alone_sectors,
        rewritten_blocks: end.repaired,
        mismatches: end.mismatches.iter().map(|mismatch| place(mismatch, seats)).collect(),
        truncated: end.mismatches_not_listed > 0,
        record: record(&end.sums),
        ..begun.clone()
    }
}

/// What a repair made to agree.
fn repaired_sectors(begun: &ScrubReport, end: &Ended) -> u64 {
    match (begun.action.as_str(), begun.source.as_deref()) {
        ("repair", Some("record")) => end.sums.proven_sectors,
        _ => end.agreed_sectors,
    }
}

/// `None` where there was no record and none is left.
fn record(sums: &SumFindings) -> Option<ScrubRecordReport> {
    (*sums != SumFindings::default()).then_some(ScrubRecordReport {
        recorded: sums.recorded,
        compared_bytes: sums.compared_sectors.saturating_mul(SECTOR_BYTES),
        proven_sectors: sums.proven_sectors,
        rotted_sectors: sums.rotted_sectors,
        unexplained_sectors: sums.unexplained_sectors,
    })
}

fn place(mismatch: &Mismatch, seats: &Seats<'_>) -> MismatchReport {
    let (kind, differ) = match &mismatch.kind {
        MismatchKind::Parity => ("parity", Vec::new()),
        MismatchKind::Copies { differ } => ("copies", differ.iter().map(|seat| seat.0).collect()),
    };
    MismatchReport {
        array_start_byte: bytes(mismatch.array.start),
        array_len_bytes: bytes(mismatch.array.end - mismatch.array.start),
        member_start_byte: bytes(mismatch.member.start),
        member_len_bytes: bytes(mismatch.member.end - mismatch.member.start),
        slot: mismatch.culprit.map(|seat| seat.0),
        member: mismatch.culprit.map(|seat| seats.name(seat).to_owned()),
        kind: kind.to_owned(),
        differ,
        record: match mismatch.sums {
            SumVerdict::Nothing => None,
            SumVerdict::Written => Some("written".to_owned()),
            SumVerdict::Proven => Some("rotted".to_owned()),
            SumVerdict::Rotted => Some("rotted, no source".to_owned()),
        },
    }
}

/// What the engine is told to take for right.
pub fn engine_source(source: &RepairChoice, seats: &Seats<'_>) -> Result<Source, Problem> {
    match source {
        RepairChoice::Data => Ok(Source::ParityFromData),
        RepairChoice::Proof => Ok(Source::Raid6Culprit),
        RepairChoice::Majority => Ok(Source::Majority),
        RepairChoice::Record => Ok(Source::Sums),
        RepairChoice::Member(member) => seats.find(member).map(Source::CopyFrom),
    }
}

/// The source as the history keeps it.
pub fn source_name(source: &RepairChoice) -> String {
    match source {
        RepairChoice::Data => "data".to_owned(),
        RepairChoice::Proof => "proof".to_owned(),
        RepairChoice::Majority => "majority".to_owned(),
        RepairChoice::Record => "record".to_owned(),
        RepairChoice::Member(member) => member.clone(),
    }
}

/// Where a level lets its own kind of repair be taken for granted, as md does for
/// `sync_action=repair`.
pub fn source_as_md(level: Level) -> Option<RepairChoice> {
    (level.kind() == LevelKind::Parity).then_some(RepairChoice::Data)
}

/// Why no check or repair was started, of an array that can lose so many members.
pub fn job_problem(array: &str, redundancy: usize, what: &str, error: JobError) -> Problem {
    let word = shell_word(array);
    let (code, why, next) = match error {
        JobError::AlreadyRunning => (
            Code::JobRunning,
            "one at a time: two would read the same members against each other".to_owned(),
            format!(
                "wait for it (`wattle status {word}` shows how far it is), or end it: `wattle check {word} --abort`"
            ),
        ),
        JobError::ReadOnly => (
            Code::ReadOnlyMember,
            "what cannot be read is written again, and an array that is served read-only is not written"
                .to_owned(),
            "serve the array without --read-only".to_owned(),
        ),
        JobError::Broken => (
            Code::VolumeFailed,
            "more members failed than redundancy covers".to_owned(),
            format!("`wattle why {word}` tells what is left"),
        ),
        JobError::Frozen => (
            Code::ServerFailed,
            "sync_action is frozen".to_owned(),
            format!("`wattle set {word} sync_action=idle` lets background work run again"),
        ),
        JobError::NeedsSource | JobError::WrongSource => (
            Code::Usage,
            "with the wrong source, damage becomes permanent".to_owned(),
            "state the source: `wattle repair --help`".to_owned(),
        ),
        JobError::NothingToCheck if redundancy == 0 => (
            Code::BadRequest,
            "its level has no redundancy: there is nothing to compare".to_owned(),
            "reading all of it shows whether it can be read".to_owned(),
        ),
        JobError::NothingToCheck => (
            Code::BadRequest,
            "with the members that are missing there is nothing left to compare".to_owned(),
            format!("bring the missing members back first: `wattle why {word}` says how"),
        ),
        JobError::NoSums => (
            Code::SumsNotKept,
            "no state directory, one that cannot be written, no redundancy, or an overlay; the server's log tells which"
                .to_owned(),
            "`wattle explain WTL-0275`; without --record the scrub is as ever".to_owned(),
        ),
        JobError::NothingRecorded => (
            Code::NothingRecorded,
            "there was none, its file is lost, or something else ran the array since".to_owned(),
            format!("record it: `wattle check {word} --record`"),
        ),
        JobError::OutOfRange => {
            (Code::Usage, "it lies beyond the end".to_owned(), "`wattle status` shows the size".to_owned())
        }
        _ => (
            Code::ServerFailed,
            "the array is being stopped".to_owned(),
            "`wattle status` shows what is served".to_owned(),
        ),
    };
    Problem::new(code, format!("{array}: the {what} was not started: {error}"), why, next)
}

fn bytes(sectors: Sector) -> u64 {
    sectors.0.saturating_mul(SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a RAID 0 lacks is no member.
    #[test]
    fn what_cannot_be_checked_says_what_is_missing() {
        let of = |redundancy| job_problem("my data", redundancy, "check", JobError::NothingToCheck);
        let (without, degraded) = (of(0), of(1));
        assert!(!format!("{} {}", without.why, without.next).contains("missing"), "{without}");
        assert!(degraded.next.contains("`wattle why 'my data'`"), "{degraded}");
        let running = job_problem("my data", 1, "check", JobError::AlreadyRunning);
        assert!(running.next.contains("wattle check 'my data' --abort"), "{running}");
    }
}
