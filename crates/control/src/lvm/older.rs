//! Physical volumes whose own text is older than that of their group.
//!
//! A commit writes every physical volume that the text does not call missing. One with an older
//! text was away then, or is an older copy, and what lies on it may be as old. A power cut between
//! the headers of one commit looks almost the same; but by then the text that counts is
//! precommitted in every area, and that is the difference.

use wattle_format::lvm::area::Header;
use wattle_format::lvm::{AreaState, Id, Vg};

use super::physical::AreaScan;
use crate::problem::{Check, Code, Problem};

/// A physical volume that has only older texts of its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OlderPhysical {
    /// What the member that it is on is called.
    pub name: String,
    /// The highest sequence number on it.
    pub seqno: u64,
    /// The operator has it used all the same.
    pub is_forced: bool,
}

/// The text of a group that counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct CurrentText {
    pub vg: Id,
    pub seqno: u64,
    pub crc: u32,
}

/// The highest sequence number on a physical volume that should have the current text and has not.
/// `None` if it has, was about to get it, or has no area that tells.
pub(super) fn newest_older(areas: &[AreaScan], current: CurrentText) -> Option<u64> {
    let mut newest = None;
    for area in areas {
        let AreaState::Text { vg, seqno, .. } = area.state else { continue };
        if vg != current.vg {
            continue;
        }
        let precommitted = area.header.as_ref().and_then(Header::precommitted);
        if seqno >= current.seqno || precommitted.is_some_and(|text| text.crc == current.crc) {
            return None;
        }
        newest = newest.max(Some(seqno));
    }
    newest
}

/// Why what lies on one is not used.
#[must_use]
pub fn problem(vg: &Vg, older: &OlderPhysical) -> Problem {
    let force = Check::OlderPhysical;
    Problem::new(
        Code::OlderPhysical,
        format!(
            "{}: a physical volume of {} with an older text: its sequence number is {}, the group's {}",
            older.name, vg.name, older.seqno, vg.seqno
        ),
        "a change of a group is written to all that are there: it was away since then, or is an older copy, and what lies on it may \
         be out of date",
        format!(
            "give the one that was in use last; without {} what does not need it is read; --force={force} uses it as it is",
            older.name
        ),
    )
    .of_member(&older.name)
    .forced_by(force)
}

/// Why a part of a volume is not used that lies on a physical volume that the group went on
/// without.
pub(super) fn left_behind(part: &str, vg: &Vg) -> Problem {
    let force = Check::OlderPhysical;
    Problem::new(
        Code::OlderPhysical,
        format!("{}/{part} is on a physical volume that the group calls missing", vg.name),
        "the group went on without it, and nothing else that is here tells that it was not written to since",
        format!(
            "give the other parts of the volume; --force={force} uses it as it is, which may be out of date"
        ),
    )
    .forced_by(force)
}

/// Why an earlier text does not take back a physical volume that the group went on without.
pub(super) fn taken_back(vg: &Vg, member: &str) -> Problem {
    let force = Check::OlderPhysical;
    Problem::new(
        Code::OlderPhysical,
        format!("{member}: a physical volume that {} went on without", vg.name),
        "what lies on it may be out of date, and by the earlier text nothing would tell any more",
        format!(
            "take it back first with LVM2 (`vgextend --restoremissing`), or choose a later backup; --force={force} uses it as it is"
        ),
    )
    .of_member(member)
    .forced_by(force)
}

/// What is said where it is used all the same.
pub(super) fn forced_note(vg: &Vg, older: &OlderPhysical) -> String {
    format!(
        "{}: --force={}: its text is older ({} of {}), and what lies on it may be out of date",
        older.name,
        Check::OlderPhysical,
        older.seqno,
        vg.seqno
    )
}
