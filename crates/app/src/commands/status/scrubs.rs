//! What checks and repairs found, for people: where, and what that means.

use wattle_control::shell_word;
use wattle_server::events::scrub_end;
use wattle_server::protocol::report::{ArrayReport, MismatchReport, ScrubReport};

use crate::output::Screen;
use crate::output::text::printable;

/// Places of a scrub that are listed; `--json` has more.
const PLACES_SHOWN: usize = 8;

/// The same in the colour of how it ended.
pub fn style_scrub(scrub: &ScrubReport, screen: Screen) -> String {
    let text = scrub_line(scrub);
    match (scrub.outcome.as_str(), scrub.mismatch_sectors + scrub.left().total()) {
        ("failed", _) => screen.style.red(&text),
        ("done" | "running", 0) => text,
        _ => screen.style.yellow(&text),
    }
}

/// One line of the history.
pub fn scrub_line(scrub: &ScrubReport) -> String {
    format!("{} {}", scrub.started, scrub_end(scrub))
}

/// Where it found something, and what that means.
pub fn places(array: &ArrayReport, scrub: &ScrubReport) -> Vec<String> {
    if scrub.mismatches.is_empty() {
        return Vec::new();
    }
    let mut lines: Vec<_> = scrub.mismatches.iter().take(PLACES_SHOWN).map(place).collect();
    if scrub.truncated || scrub.mismatches.len() > PLACES_SHOWN {
        lines.push("… and more: `wattle status --json` lists what was kept".to_owned());
    }
    if scrub.mismatch_sectors > scrub.repaired_sectors {
        let name = shell_word(&array.name);
        lines.extend(meaning(&array.level, scrub).into_iter().map(|line| line.replace("NAME", &name)));
    }
    lines
}

fn place(mismatch: &MismatchReport) -> String {
    let end = |start: u64, len: u64| start.saturating_add(len);
    let rotted = match mismatch.record.as_deref() {
        Some("rotted") => Some("rotted silently: the others give what was recorded"),
        Some("rotted, no source") => Some("rotted silently, and nothing gives what was recorded"),
        _ => None,
    };
    let odd = rotted.unwrap_or("is the odd one out");
    let whose = match (&mismatch.member, mismatch.slot) {
        (Some(member), Some(slot)) => format!("{} (slot {slot}) {odd}", printable(member)),
        (None, Some(slot)) => format!("slot {slot} is the odd one out"),
        _ => match (mismatch.kind.as_str(), &mismatch.differ[..]) {
            ("parity", _) => "parity does not fit the data".to_owned(),
            (_, []) => "copies differ".to_owned(),
            (_, differ) => format!("copies differ: slot {}", list(differ)),
        },
    };
    format!(
        "array bytes {}..{}, members' data at {}..{}: {whose}",
        mismatch.array_start_byte,
        end(mismatch.array_start_byte, mismatch.array_len_bytes),
        mismatch.member_start_byte,
        end(mismatch.member_start_byte, mismatch.member_len_bytes),
    )
}

fn list(slots: &[u16]) -> String {
    slots.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// What a mismatch means and what to do: a number alone has frightened many for nothing, and calmed
/// others wrongly. `NAME` stands for the array.
fn meaning(level: &str, scrub: &ScrubReport) -> Vec<&'static str> {
    let rotted = |mismatch: &&MismatchReport| mismatch.record.as_deref() == Some("rotted");
    if scrub.mismatches.iter().filter(rotted).count() > 0 {
        return vec![
            "means: a drive changed what it held, without an error: reads of it return that. `wattle repair NAME --source record`",
            "makes it anew from the others, and writes nothing that the record does not prove; a member that is named often",
            "should be replaced",
        ];
    }
    let located = scrub.mismatches.iter().any(|mismatch| mismatch.slot.is_some());
    match level {
        "raid1" | "raid10" => vec![
            "means: copies differ, and md keeps no checksum that could tell which is right. Memory that a client changed while it",
            "was written leaves harmless ones; a drive that lost or changed data leaves real ones. Compare the file's content, then",
            "`wattle repair NAME --source MEMBER` copies that member's version to the others",
        ],
        "raid6" if located => vec![
            "means: P and Q agree that the member named holds wrong bytes: reads of its data return them. `wattle repair NAME",
            "--source proof` makes them anew from the others; a member that is named often should be replaced",
        ],
        "raid6" => vec![
            "means: more than one block of the stripe is wrong, so nothing tells which. `wattle repair NAME --source data` makes P and",
            "Q fit the data as it is, and forgets that something was wrong: check the files there first",
        ],
        _ => vec![
            "means: parity does not fit the data. Reads return the data as it is; if a member is lost now, its blocks in these stripes",
            "come back wrong. One parity cannot tell whether it or the data is wrong: check the files there, then",
            "`wattle repair NAME --source data` makes parity fit the data",
        ],
    }
}
