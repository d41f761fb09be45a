//! What is to be said of an array, and of the machine, in a sentence: pure functions of reports.

use serde::Serialize;
use wattle_server::protocol::report::{ArrayReport, Health, JobStatus, MemberReport, SeatState};

use crate::redundancy;

/// How things stand; the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineStanding {
    /// As it should be.
    Good,
    /// All redundancy is there, and something wants to be looked at.
    Attention,
    /// Redundancy is missing; all data is there.
    Degraded,
    /// It cannot be told.
    Unknown,
    /// Data cannot be had, or no more be written.
    Unusable,
}

impl MachineStanding {
    /// The exit status of `wattle status --check` that goes with it.
    #[must_use]
    pub fn check_status(self) -> u8 {
        match self {
            Self::Good | Self::Attention => 0,
            Self::Degraded => 1,
            Self::Unusable => 2,
            Self::Unknown => 4,
        }
    }
}

/// What is said of one array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArrayVerdict {
    /// How it stands.
    pub standing: MachineStanding,
    /// In a word or two.
    pub word: &'static str,
    /// What that means.
    pub meaning: String,
    /// What wants to be looked at beside that.
    pub remarks: Vec<String>,
    /// Further members that may fail.
    pub redundancy_left: usize,
    /// The same in words.
    pub redundancy: String,
    /// The exit status of `wattle status --check` that goes with it.
    pub check_status: u8,
}

/// What is said of all together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MachineVerdict {
    /// The worst of all.
    pub standing: MachineStanding,
    /// One line.
    pub headline: String,
    /// What follows from it.
    pub detail: String,
    /// The exit status of `wattle status --check`.
    pub check_status: u8,
}

/// An array as the machine's verdict sees it.
#[derive(Debug, Clone, Copy)]
pub struct JudgedArray<'a> {
    /// Its name.
    pub name: &'a str,
    /// What is said of it.
    pub verdict: &'a ArrayVerdict,
}

/// What is said of an array. `drives` are remarks on the drives of its members.
#[must_use]
pub fn of_array(array: &ArrayReport, drives: Vec<String>) -> ArrayVerdict {
    let mut remarks = remarks(array);
    remarks.extend(drives);
    let standing = match (array.health, array.synced) {
        (Health::Unusable, _) => MachineStanding::Unusable,
        (Health::Degraded, _) | (Health::Good, false) => MachineStanding::Degraded,
        (Health::Good, true) if remarks.is_empty() => MachineStanding::Good,
        (Health::Good, true) => MachineStanding::Attention,
    };
    let word = match standing {
        MachineStanding::Attention => "look at it",
        _ => array.health.word(array.synced),
    };
    let left = redundancy::left(array);
    ArrayVerdict {
        standing,
        word,
        meaning: meaning(array),
        remarks,
        redundancy_left: left,
        redundancy: redundancy_text(array, left),
        check_status: array.check_status(),
    }
}

fn meaning(array: &ArrayReport) -> String {
    let lacking: Vec<String> = array.members.iter().filter_map(|member| lack(array, member)).collect();
    match array.health {
        Health::Unusable => {
            "More failed than redundancy makes up for. Nothing is written any more, and some of the data cannot be read.".to_owned()
        }
        Health::Degraded if redundancy::left(array) == 0 && has_bad_blocks(array) => {
            format!(
                "{} What lies on bad blocks of the other members may be lost. All other data is there.",
                sentences(&lacking)
            )
        }
        Health::Degraded => format!("{} All data is there.", sentences(&lacking)),
        Health::Good if !array.synced => match &array.sync {
            Some(JobStatus { action, .. }) if action == "resync" => {
                "All members are there. Parity or copies are being made to agree.".to_owned()
            }
            _ => "All members are there. Parity or copies are not known to agree.".to_owned(),
        },
        Health::Good => match array.members.len() {
            1 => "Its member is in sync.".to_owned(),
            count => format!("All {count} members are in sync."),
        },
    }
}

/// Whether a member that is in sync lists blocks that it does not have.
fn has_bad_blocks(array: &ArrayReport) -> bool {
    array.members.iter().any(|member| member.state == SeatState::InSync && member.bad_bytes > 0)
}

/// What a slot lacks, if anything.
fn lack(array: &ArrayReport, member: &MemberReport) -> Option<String> {
    let slot = member.slot;
    let named = match &member.member {
        Some(name) => format!("Slot {slot} ({})", short(name)),
        None => format!("Slot {slot}"),
    };
    match member.state {
        SeatState::InSync => None,
        SeatState::Rebuilding if array.sync.as_ref().is_some_and(|job| job.paused) => {
            Some(format!("{named} waits to be filled: background work is paused"))
        }
        SeatState::Rebuilding if array.release_order().is_some() => {
            Some(format!("{named} waits to be filled: background work is held"))
        }
        SeatState::Rebuilding => Some(format!("{named} is being filled")),
        SeatState::Missing => Some(format!("{named} has no member")),
        SeatState::Faulty => Some(format!("{named} failed")),
    }
}

/// The first three of them, and how many more.
fn sentences(parts: &[String]) -> String {
    const TOLD: usize = 3;
    let mut text: String = parts.iter().take(TOLD).map(|part| format!("{part}. ")).collect();
    if parts.len() > TOLD {
        text.push_str(&format!("{} more are not in sync. ", parts.len() - TOLD));
    }
    text.trim_end().to_owned()
}

fn remarks(array: &ArrayReport) -> Vec<String> {
    let mut remarks = Vec::new();
    for member in &array.members {
        let name = member
            .member
            .as_deref()
            .map_or_else(|| format!("slot {}", member.slot), |name| short(name).to_owned());
        if member.slow {
            remarks.push(format!("{name} is slow: {} reads went around it.", member.reads_overdue));
        }
        if member.silent_seconds > 0 {
            remarks.push(format!("{name} has answered nothing for {} s.", member.silent_seconds));
        }
        if member.bad_bytes > 0 {
            remarks.push(format!("{name} has bad blocks: {} bytes of it cannot be read.", member.bad_bytes));
        }
    }
    if let Some(run) = array.last_found() {
        let left = run.left().words();
        remarks.extend(left.iter().map(|left| format!("The last {} found that {left}.", run.action)));
    }
    remarks
}

fn redundancy_text(array: &ArrayReport, left: usize) -> String {
    if !array.is_redundant() {
        return "none by design: any failure loses data".to_owned();
    }
    match (array.health, left) {
        (Health::Unusable, _) => "used up".to_owned(),
        (Health::Good, 0) if !array.synced => "none until parity is known to agree".to_owned(),
        (_, 0) => "none left: one more failure loses data".to_owned(),
        (_, 1) => "one more failure is survived".to_owned(),
        (_, left) => format!("{left} more failures are survived"),
    }
}

/// The last part of a path; addresses stay whole.
#[must_use]
pub fn short(name: &str) -> &str {
    match name.contains("://") || name.starts_with("nbd+") {
        true => name,
        false => name.rsplit('/').next().unwrap_or(name),
    }
}

/// What is said of the machine: its arrays, servers that do not answer, and servers that died.
#[must_use]
pub fn of_machine(arrays: &[JudgedArray<'_>], silent: usize, died: usize, volumes: usize) -> MachineVerdict {
    let worst = arrays.iter().map(|array| array.verdict.standing).max();
    let unknown = (silent + died > 0).then_some(MachineStanding::Unknown);
    let nothing = arrays.is_empty() && volumes == 0 && unknown.is_none();
    let standing = match (worst.max(unknown), nothing) {
        (_, true) => MachineStanding::Unknown,
        (standing, _) => standing.unwrap_or(MachineStanding::Good),
    };
    let named: Vec<JudgedArray<'_>> =
        arrays.iter().copied().filter(|array| array.verdict.standing == standing).collect();
    let (headline, detail) = match standing {
        _ if nothing => (
            "Nothing is being served".to_owned(),
            "`wattle serve MEMBER...` opens arrays and volumes.".to_owned(),
        ),
        MachineStanding::Unknown => unknown_text(silent, died),
        MachineStanding::Good => good_text(arrays, volumes),
        MachineStanding::Attention => {
            (subject(&named, "wants a look", "want a look"), of_first(&named, arrays))
        }
        MachineStanding::Degraded => (degraded_subject(&named), of_first(&named, arrays)),
        MachineStanding::Unusable => {
            (subject(&named, "is unusable", "are unusable"), of_first(&named, arrays))
        }
    };
    let check_status = match standing {
        MachineStanding::Unusable if unknown.is_some() => MachineStanding::Unknown.check_status(),
        MachineStanding::Good | MachineStanding::Attention => {
            // One that wants to be looked at may have a member that answers nothing.
            arrays.iter().map(|array| array.verdict.check_status).max().unwrap_or(0)
        }
        standing => standing.check_status(),
    };
    MachineVerdict { standing, headline, detail, check_status }
}

fn good_text(arrays: &[JudgedArray<'_>], volumes: usize) -> (String, String) {
    let redundant = arrays.iter().filter(|array| array.verdict.redundancy_left > 0);
    let least = redundant.clone().map(|array| array.verdict.redundancy_left).min();
    let detail = match (arrays.len(), least) {
        (0, _) => {
            format!("{} served, without arrays: no redundancy.", count(volumes, "volume is", "volumes are"))
        }
        (all, Some(least)) if redundant.count() == all => {
            format!(
                "{} whole; {} can fail in each.",
                count(all, "array is", "arrays are"),
                count(least, "member", "members")
            )
        }
        (all, _) => format!("{} whole; not all have redundancy.", count(all, "array is", "arrays are")),
    };
    ("All is well".to_owned(), detail)
}

fn unknown_text(silent: usize, died: usize) -> (String, String) {
    let headline = match (silent, died) {
        (0, died) => format!("{} without being stopped", count(died, "server ended", "servers ended")),
        (silent, _) => format!("{} not answer", count(silent, "server does", "servers do")),
    };
    (headline, "What its arrays are like cannot be told.".to_owned())
}

fn degraded_subject(named: &[JudgedArray<'_>]) -> String {
    match named {
        [one] => format!("{} is {}", one.name, one.verdict.word),
        _ => format!("{} arrays are degraded or not synced", named.len()),
    }
}

fn subject(named: &[JudgedArray<'_>], one: &str, several: &str) -> String {
    match named {
        [array] => format!("{} {one}", array.name),
        _ => format!("{} arrays {several}", named.len()),
    }
}

/// Of the array that has the least redundancy left, and of how many there are.
fn of_first(named: &[JudgedArray<'_>], all: &[JudgedArray<'_>]) -> String {
    let Some(worst) = named.iter().min_by_key(|array| array.verdict.redundancy_left) else {
        return String::new();
    };
    let of = if named.len() > 1 { format!("{}: ", worst.name) } else { String::new() };
    let others = match all.len() - named.len() {
        0 => String::new(),
        1 => " The other array stands better.".to_owned(),
        others => format!(" {others} other arrays stand better."),
    };
    let verdict = worst.verdict;
    let text = match verdict.standing {
        MachineStanding::Attention => verdict.remarks.first().cloned().unwrap_or_default(),
        MachineStanding::Unusable => verdict.meaning.clone(),
        _ => match (verdict.redundancy_left, verdict.word) {
            (0, "not synced") => "Until parity is known to agree, a failure can lose data.".to_owned(),
            (0, _) => "One more failure loses data.".to_owned(),
            (1, _) => "One more failure is survived.".to_owned(),
            (left, _) => format!("{left} more failures are survived."),
        },
    };
    format!("{of}{text}{others}")
}

fn count(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

#[cfg(test)]
mod tests {
    use wattle_server::fixtures::{array, sync};

    use super::*;

    fn degraded(name: &str, level: &str) -> ArrayReport {
        let mut data = array(name, level, &["/d/a", "/d/b", "/d/c", "/d/d"]);
        data.members[2].state = SeatState::Faulty;
        data.health = Health::Degraded;
        data.slots = "[UU_U]".to_owned();
        data
    }

    fn machine(arrays: &[ArrayReport], silent: usize, died: usize) -> MachineVerdict {
        let verdicts: Vec<_> = arrays.iter().map(|array| of_array(array, Vec::new())).collect();
        let judged =
            arrays.iter().zip(&verdicts).map(|(array, verdict)| JudgedArray { name: &array.name, verdict });
        of_machine(&judged.collect::<Vec<_>>(), silent, died, 0)
    }

    #[test]
    fn a_member_that_waits_for_held_work_is_not_being_filled() {
        let mut data = degraded("data", "raid5");
        data.members[2].state = SeatState::Rebuilding;
        data.paused = true;
        let meaning = meaning(&data);
        assert!(meaning.contains("waits to be filled: background work is held"), "{meaning}");
        data.paused = false;
        assert!(super::meaning(&data).contains("is being filled"));
    }

    #[test]
    fn a_whole_array_says_so() {
        let verdict = of_array(&array("data", "raid5", &["a", "b", "c"]), Vec::new());
        assert_eq!((verdict.standing, verdict.word), (MachineStanding::Good, "good"));
        assert_eq!(verdict.meaning, "All 3 members are in sync.");
        assert_eq!(verdict.redundancy, "one more failure is survived");
        let plain = of_array(&array("data", "raid0", &["a", "b"]), Vec::new());
        assert_eq!(plain.redundancy, "none by design: any failure loses data");
    }

    #[test]
    fn a_degraded_array_names_the_slot_and_what_is_left() {
        let verdict = of_array(&degraded("data", "raid5"), Vec::new());
        assert_eq!((verdict.standing, verdict.word), (MachineStanding::Degraded, "degraded"));
        assert_eq!(verdict.meaning, "Slot 2 (c) failed. All data is there.");
        assert_eq!(verdict.redundancy, "none left: one more failure loses data");
        let mut data = degraded("data", "raid6");
        data.members[2].state = SeatState::Rebuilding;
        data.sync = Some(sync("recovery", 1, 2));
        let verdict = of_array(&data, Vec::new());
        assert_eq!(verdict.meaning, "Slot 2 (c) is being filled. All data is there.");
        assert_eq!(verdict.redundancy, "one more failure is survived");
        data.sync = Some(JobStatus { paused: true, ..sync("recovery", 1, 2) });
        assert!(of_array(&data, Vec::new()).meaning.contains("background work is paused"));
    }

    #[test]
    fn parity_that_does_not_agree_yet_is_not_good() {
        let mut data = array("data", "raid5", &["a", "b", "c"]);
        data.synced = false;
        let verdict = of_array(&data, Vec::new());
        assert_eq!((verdict.standing, verdict.word), (MachineStanding::Degraded, "not synced"));
        assert_eq!(verdict.redundancy, "none until parity is known to agree");
        assert_eq!(machine(&[data], 0, 0).headline, "data is not synced");
    }

    #[test]
    fn what_is_slow_bad_or_failing_wants_a_look() {
        let mut data = array("data", "raid5", &["/d/a", "b", "c"]);
        data.members[0].slow = true;
        data.members[1].bad_bytes = 512;
        let verdict = of_array(&data, vec!["c: SMART says that it is failing.".to_owned()]);
        assert_eq!(
            (verdict.standing, verdict.word, verdict.remarks.len()),
            (MachineStanding::Attention, "look at it", 3)
        );
        assert!(verdict.remarks[0].starts_with("a is slow"));
        let said = machine(&[data], 0, 0);
        assert_eq!((said.headline.as_str(), said.check_status), ("data wants a look", 0));
    }

    #[test]
    fn a_member_that_answers_nothing_is_no_redundancy() {
        let mut data = array("data", "raid5", &["a", "b", "c"]);
        data.members[1].silent_seconds = 20;
        let said = machine(&[data, array("good", "raid1", &["a", "b"])], 0, 0);
        assert_eq!((said.headline.as_str(), said.check_status), ("data wants a look", 1));
    }

    /// Blocks that the only copy lacks are gone.
    #[test]
    fn a_degraded_array_with_bad_blocks_does_not_say_that_all_is_there() {
        let mut data = degraded("data", "raid5");
        assert!(of_array(&data, Vec::new()).meaning.ends_with(" failed. All data is there."));
        data.members[0].bad_bytes = 4096;
        let meaning = of_array(&data, Vec::new()).meaning;
        assert!(meaning.ends_with("may be lost. All other data is there."), "{meaning}");
        let mut data = degraded("data", "raid6");
        data.members[0].bad_bytes = 4096;
        assert!(of_array(&data, Vec::new()).meaning.ends_with(" All data is there."));
    }

    #[test]
    fn what_scrubs_left_is_told_until_a_whole_one_finds_it_right() {
        let run = |outcome: &str, differ: u64, unread: u64| {
            serde_json::from_value(serde_json::json!({
                "run": 1, "action": "check", "started": "", "outcome": outcome,
                "mismatch_sectors": differ, "unreadable_sectors": unread
            }))
            .unwrap()
        };
        let remarks = |scrubs| {
            let data = ArrayReport { scrubs, ..array("data", "raid5", &["a", "b", "c"]) };
            let verdict = of_array(&data, Vec::new());
            assert_eq!(verdict.standing == MachineStanding::Good, verdict.remarks.is_empty());
            verdict.remarks
        };
        let both = [
            "The last check found that 8 sectors do not agree.",
            "The last check found that 16 sectors could not be compared.",
        ];
        assert_eq!(remarks(vec![run("done", 8, 16)]), both);
        assert_eq!(remarks(vec![run("aborted", 0, 0), run("done", 8, 16)]), both);
        assert_eq!(remarks(vec![run("running", 0, 0), run("aborted", 8, 0), run("done", 0, 0)]), both[..1]);
        assert_eq!(remarks(vec![run("done", 0, 0), run("aborted", 8, 16)]), [""; 0]);
    }

    #[test]
    fn the_machine_is_as_its_worst_array() {
        let good = || array("good", "raid1", &["a", "b"]);
        let said = machine(&[good(), good()], 0, 0);
        assert_eq!((said.headline.as_str(), said.check_status), ("All is well", 0));
        assert_eq!(said.detail, "2 arrays are whole; 1 member can fail in each.");
        let said = machine(&[good(), degraded("data", "raid5")], 0, 0);
        assert_eq!((said.headline.as_str(), said.check_status), ("data is degraded", 1));
        assert_eq!(said.detail, "One more failure loses data. The other array stands better.");
        let said = machine(&[degraded("a", "raid6"), degraded("b", "raid5")], 0, 0);
        assert_eq!(said.headline, "2 arrays are degraded or not synced");
        assert!(said.detail == "b: One more failure loses data.", "{}", said.detail);
        let mut broken = degraded("data", "raid5");
        broken.health = Health::Unusable;
        let said = machine(&[broken, good()], 0, 0);
        assert_eq!((said.headline.as_str(), said.check_status), ("data is unusable", 2));
    }

    #[test]
    fn what_cannot_be_told_is_not_good() {
        let said = machine(&[array("data", "raid1", &["a", "b"])], 1, 0);
        assert_eq!((said.standing, said.check_status), (MachineStanding::Unknown, 4));
        assert_eq!(said.headline, "1 server does not answer");
        assert_eq!(machine(&[], 0, 2).headline, "2 servers ended without being stopped");
        let said = machine(&[], 0, 0);
        assert_eq!((said.headline.as_str(), said.check_status), ("Nothing is being served", 4));
        let said = of_machine(&[], 0, 0, 2);
        assert_eq!((said.headline.as_str(), said.check_status), ("All is well", 0));
        assert_eq!(said.detail, "2 volumes are served, without arrays: no redundancy.");
    }
}
