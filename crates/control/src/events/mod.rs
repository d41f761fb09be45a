//! What happens to a running array: one type from the place where it happens to the log, `status`
//! and `why`, in the order in which it happens.
//!
//! What the engine reports ([`wattle_engine::Metadata::failed`]) and what operators order is added
//! when it happens. What only shows in the array's state (a member that is slow, a job that ended)
//! is found by comparing two looks at it ([`between`]).

mod observe;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use wattle_engine::job::JobKind;
use wattle_engine::{FailCause, MemberKey, MemberState};
use wattle_rt::WallTime;

use crate::problem::Problem;
pub use observe::{Covered, Observed, ObservedMember, between};

/// Events that are kept: the last ones.
const KEPT: usize = 1000;

/// The member that an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventMember {
    /// Its key; `None` where the array keeps no metadata.
    pub key: Option<MemberKey>,
    /// Its name.
    pub name: String,
}

/// Where a member is, or was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventPlace {
    /// In this slot.
    Slot(u16),
    /// Beside the member of this slot, to replace it.
    Replacement(u16),
}

/// What becomes of a member that joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filling {
    /// All of it is written.
    Full,
    /// It was away, and gets what it missed.
    Missed,
}

/// What happened to background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobChange {
    /// It started.
    Started,
    /// It ended.
    Ended,
    /// It ended, and this one started.
    EndedFor(JobKind),
    /// It was paused.
    Paused,
    /// It goes on.
    Resumed,
}

/// What an array is fit for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventHealth {
    /// Every slot is in sync; `synced` if parity and copies agree too.
    Good {
        /// Parity and copies are known to agree.
        synced: bool,
    },
    /// Some are not; all data is there.
    Degraded,
    /// More failed than redundancy covers.
    Unusable,
}

/// Something that happened to an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArrayEvent {
    /// A member failed, and the array goes on without it. The cause is absent where no metadata is
    /// kept.
    Failed {
        /// Which.
        member: EventMember,
        /// Where it was.
        place: EventPlace,
        /// Why.
        cause: Option<FailCause>,
    },
    /// A member left its place.
    Left {
        /// Which.
        member: EventMember,
        /// Where it was.
        place: EventPlace,
    },
    /// A member, or a spare, was removed by the operator's order.
    Removed {
        /// Which.
        member: EventMember,
    },
    /// A member joined, and is being filled.
    Joined {
        /// Which.
        member: EventMember,
        /// Where it is.
        place: EventPlace,
        /// How much of it is written.
        filling: Filling,
    },
    /// A spare was added.
    Spare {
        /// Which.
        member: EventMember,
    },
    /// A member that was being filled is in sync.
    InSync {
        /// Which.
        member: EventMember,
        /// Where it is.
        place: EventPlace,
    },
    /// A member that is in sync took a slot.
    Took {
        /// Which.
        member: EventMember,
        /// Where it is.
        place: EventPlace,
    },
    /// A member's replacement took its slot.
    Replaced {
        /// The member that was replaced.
        member: EventMember,
        /// Its slot.
        slot: u16,
    },
    /// A member became slow, or is not slow any more.
    Slow {
        /// Which.
        member: EventMember,
        /// Where it is.
        place: EventPlace,
        /// It is slow.
        slow: bool,
    },
    /// A member answers nothing although something waits for it, or answers again.
    Silent {
        /// Which.
        member: EventMember,
        /// Where it is.
        place: EventPlace,
        /// It answers nothing.
        silent: bool,
    },
    /// Reads of a member failed.
    ReadErrors {
        /// Which.
        member: EventMember,
        /// Where it is.
        place: EventPlace,
        /// How many.
        count: u64,
    },
    /// What is known of a member's bad blocks changed.
    BadBlocks {
        /// Which.
        member: EventMember,
        /// Where it is.
        place: EventPlace,
        /// Bytes that are bad.
        bytes: u64,
        /// Bytes that were.
        before_bytes: u64,
    },
    /// The operator had the bad blocks of a member repaired.
    BadBlocksRepaired {
        /// Which.
        member: EventMember,
        /// Sectors that are still bad.
        left_sectors: u64,
    },
    /// A member across a network does not answer, and is given up.
    RemoteAway {
        /// Which.
        member: EventMember,
        /// Where it was.
        place: EventPlace,
        /// How long it was waited for; nothing if its connection ended before.
        waited: Duration,
    },
    /// A member across a network that was away answers, and is taken back.
    RemoteBack {
        /// Which.
        member: EventMember,
    },
    /// Reads of a member go to other copies while one can be had, or not any more.
    WriteMostly {
        /// Which.
        member: EventMember,
        /// They do.
        on: bool,
    },
    /// A member that was away is not taken back without an order.
    StaysAway {
        /// Which.
        member: EventMember,
        /// Why.
        problem: Box<Problem>,
    },
    /// Another server writes to the members, and this one writes nothing any more.
    Overtaken {
        /// Where that was seen.
        member: EventMember,
        /// What.
        problem: Box<Problem>,
    },
    /// A spare did not take an empty slot.
    SpareRefused {
        /// Which.
        member: EventMember,
        /// Why.
        problem: Box<Problem>,
    },
    /// Parity was made right from the partial parity logs.
    LogsReplayed {
        /// How many pieces of it.
        pieces: usize,
    },
    /// Background work changed.
    Job {
        /// Which.
        action: JobKind,
        /// How.
        change: JobChange,
    },
    /// Parity and copies are known to agree everywhere.
    Synced,
    /// What the array is fit for changed.
    Health {
        /// The array's name.
        array: String,
        /// What it is fit for.
        health: EventHealth,
        /// The members, by slot.
        slots: Vec<MemberState>,
    },
}

impl ArrayEvent {
    /// The member that it is about.
    #[must_use]
    pub fn member(&self) -> Option<&EventMember> {
        match self {
            Self::Failed { member, .. }
            | Self::Left { member, .. }
            | Self::Removed { member }
            | Self::Joined { member, .. }
            | Self::Spare { member }
            | Self::InSync { member, .. }
            | Self::Took { member, .. }
            | Self::Replaced { member, .. }
            | Self::Slow { member, .. }
            | Self::Silent { member, .. }
            | Self::ReadErrors { member, .. }
            | Self::BadBlocks { member, .. }
            | Self::BadBlocksRepaired { member, .. }
            | Self::RemoteAway { member, .. }
            | Self::RemoteBack { member }
            | Self::WriteMostly { member, .. }
            | Self::StaysAway { member, .. }
            | Self::Overtaken { member, .. }
            | Self::SpareRefused { member, .. } => Some(member),
            Self::LogsReplayed { .. } | Self::Job { .. } | Self::Synced | Self::Health { .. } => None,
        }
    }
}

impl fmt::Display for EventMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Display for EventPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(slot) => write!(f, "slot {slot}"),
            Self::Replacement(slot) => write!(f, "replacement for slot {slot}"),
        }
    }
}

/// What failed, in words.
fn cause_text(cause: FailCause) -> &'static str {
    match cause {
        FailCause::Order => "by order",
        FailCause::Write => "a write to it failed",
        FailCause::Read => "it is gone, or too many of its reads failed",
        FailCause::Flush => "a flush failed, and what it lost is unknown",
        FailCause::Log => "its partial parity log could not be written",
        FailCause::Bitmap => "its bitmap could not be written",
        FailCause::Superblock => "its superblock could not be written",
        FailCause::BadBlocks => "its bad-block log is full",
        FailCause::Silent => "it did not answer in time",
    }
}

/// md's word for background work.
#[must_use]
pub fn action_word(action: JobKind) -> &'static str {
    match action {
        JobKind::Resync => "resync",
        JobKind::Recover => "recovery",
        JobKind::Check => "check",
        JobKind::Repair => "repair",
    }
}

/// `[UU_U]`: up, or not, by slot. As mdstat shows it, so a member that is being rebuilt is not up.
#[must_use]
pub fn slots_view(states: &[MemberState]) -> String {
    let letter = |state: &MemberState| if *state == MemberState::InSync { 'U' } else { '_' };
    format!("[{}]", states.iter().map(letter).collect::<String>())
}

impl fmt::Display for ArrayEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { member, place, cause: Some(FailCause::Order) } => {
                write!(f, "{member} in {place} was failed")
            }
            Self::Failed { member, place, cause: Some(cause) } => {
                write!(f, "{member} ({place}) failed: {}", cause_text(*cause))
            }
            Self::Failed { member, place, cause: None } => write!(f, "{member} ({place}) failed"),
            Self::Left { member, place } => write!(f, "{member} left {place}"),
            Self::Removed { member } => write!(f, "{member} was removed"),
            Self::Joined { member, place: EventPlace::Slot(slot), filling: Filling::Full } => {
                write!(f, "{member} joined in slot {slot} and is being filled")
            }
            Self::Joined { member, place: EventPlace::Slot(slot), filling: Filling::Missed } => {
                write!(f, "{member} is back in slot {slot}; it gets what it missed")
            }
            Self::Joined { member, place: EventPlace::Replacement(slot), .. } => {
                write!(f, "{member} is being made to replace the member of slot {slot}")
            }
            Self::Spare { member } => write!(f, "{member} is a spare now"),
            Self::InSync { member, place } => write!(f, "{member} ({place}) is in sync"),
            Self::Took { member, place } => write!(f, "{member} is in {place}, in sync"),
            Self::Replaced { member, slot } => write!(f, "{member} (slot {slot}) was replaced"),
            Self::Slow { member, place, slow: true } => {
                write!(f, "{member} ({place}) is slow: reads go around it where they can")
            }
            Self::Slow { member, place, slow: false } => write!(f, "{member} ({place}) is not slow any more"),
            Self::Silent { member, place, silent: true } => {
                write!(f, "{member} ({place}) answers nothing: what needs it waits")
            }
            Self::Silent { member, place, silent: false } => write!(f, "{member} ({place}) answers again"),
            Self::ReadErrors { member, place, count } => {
                write!(f, "{member} ({place}): {count} reads failed")
            }
            Self::BadBlocks { member, place, bytes, before_bytes } => {
                write!(f, "{member} ({place}): {bytes} bytes of bad blocks, {before_bytes} before")
            }
            Self::BadBlocksRepaired { member, left_sectors } => {
                write!(f, "bad blocks of {member}: {left_sectors} sectors are left")
            }
            Self::RemoteAway { member, place, waited } if waited.is_zero() => {
                write!(f, "{member} ({place}) is away: its server cannot be reached, or gave other answers")
            }
            Self::RemoteAway { member, place, waited } => {
                let seconds = waited.as_secs_f64();
                write!(f, "{member} ({place}) is away: it did not answer for {seconds:.1} s")
            }
            Self::RemoteBack { member } => write!(f, "{member} answers again, and is taken back"),
            Self::WriteMostly { member, on: true } => {
                write!(f, "{member} is write-mostly: reads go to other copies while one can be had")
            }
            Self::WriteMostly { member, on: false } => write!(f, "{member} is not write-mostly any more"),
            Self::StaysAway { member, problem } => {
                write!(f, "{member} does not come back by itself: {}: {}", problem.what, problem.why)
            }
            Self::Overtaken { problem, .. } | Self::SpareRefused { problem, .. } => {
                write!(f, "{}: {}", problem.what, problem.why)
            }
            Self::LogsReplayed { pieces } => {
                write!(f, "the partial parity logs were followed: {pieces} pieces of parity made right")
            }
            Self::Job { action, change } => {
                let word = action_word(*action);
                match change {
                    JobChange::Started => write!(f, "{word} started"),
                    JobChange::Ended => write!(f, "{word} ended"),
                    JobChange::EndedFor(next) => write!(f, "{word} ended, {} started", action_word(*next)),
                    JobChange::Paused => write!(f, "{word} paused"),
                    JobChange::Resumed => write!(f, "{word} resumed"),
                }
            }
            Self::Synced => f.write_str("parity and copies agree everywhere"),
            Self::Health { array, health, slots } => {
                let slots = slots_view(slots);
                match health {
                    EventHealth::Good { synced: true } => write!(f, "{slots} good"),
                    EventHealth::Good { synced: false } => write!(f, "{slots} not synced"),
                    EventHealth::Degraded => write!(f, "{slots} degraded"),
                    EventHealth::Unusable => write!(
                        f,
                        "{slots} unusable: nothing is written any more; `wattle why {array}` says what now"
                    ),
                }
            }
        }
    }
}

/// An event and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// When.
    pub at: WallTime,
    /// What.
    pub event: ArrayEvent,
}

/// The last events of an array, the oldest first, and how many came before them. Its clones are the
/// same log.
#[derive(Debug, Clone, Default)]
pub struct EventLog(Rc<RefCell<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Recorded>,
    forgotten: usize,
}

impl EventLog {
    /// Adds one.
    pub fn add(&self, at: WallTime, event: ArrayEvent) {
        let mut kept = self.0.borrow_mut();
        if kept.events.len() == KEPT {
            kept.events.pop_front();
            kept.forgotten += 1;
        }
        kept.events.push_back(Recorded { at, event });
    }

    /// The events after the first `seen` of all, as far as they are kept.
    #[must_use]
    pub fn since(&self, seen: usize) -> Vec<Recorded> {
        let kept = self.0.borrow();
        kept.events.iter().skip(seen.saturating_sub(kept.forgotten)).cloned().collect()
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> usize {
        let kept = self.0.borrow();
        kept.forgotten + kept.events.len()
    }
}

#[cfg(test)]
mod tests {
    use wattle_engine::units::Sector;

    use super::*;

    fn left(sectors: u64) -> ArrayEvent {
        let member = EventMember { key: None, name: "a".to_owned() };
        ArrayEvent::BadBlocksRepaired { member, left_sectors: sectors }
    }

    #[test]
    fn however_much_happens_the_last_is_known() {
        let events = EventLog::default();
        let mut seen = 0;
        for n in 0..3 * KEPT {
            events.add(WallTime { secs: n as u64, micros: 0 }, left(n as u64));
            let new: Vec<_> = events.since(seen).into_iter().map(|recorded| recorded.event).collect();
            assert_eq!(new, [left(n as u64)]);
            seen = events.count();
        }
        assert_eq!((events.since(0).len(), &events.since(0)[0].event), (KEPT, &left(2000)));
        assert!(events.since(seen).is_empty());
    }

    #[test]
    fn a_failure_names_its_cause() {
        let failed = |cause| ArrayEvent::Failed {
            member: EventMember { key: Some(MemberKey(1)), name: "b".to_owned() },
            place: EventPlace::Slot(1),
            cause,
        };
        for (cause, text) in [
            (None, "b (slot 1) failed"),
            (Some(FailCause::Order), "b in slot 1 was failed"),
            (Some(FailCause::Write), "b (slot 1) failed: a write to it failed"),
            (Some(FailCause::Flush), "b (slot 1) failed: a flush failed, and what it lost is unknown"),
            (Some(FailCause::Superblock), "b (slot 1) failed: its superblock could not be written"),
        ] {
            assert_eq!(failed(cause).to_string(), text);
        }
    }

    #[test]
    fn health_is_shown_as_mdstat_does() {
        let rebuilding = MemberState::Rebuilding { valid_below: Sector(8) };
        let states =
            [MemberState::InSync, MemberState::Missing, rebuilding, MemberState::Faulty, MemberState::InSync];
        assert_eq!(slots_view(&states), "[U___U]");
    }
}
