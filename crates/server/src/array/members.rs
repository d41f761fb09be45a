//! Which member an operator means, and what it means when the engine says no.

use wattle_control::{Code, Problem, shell_word};
use wattle_engine::ArrayStatus;
use wattle_engine::FailError;
use wattle_engine::error::LeaveError;
use wattle_engine::geometry::LevelKind;
use wattle_engine::units::{MemberIx, Sector};

/// The members in the seats of an array: the slots, then the replacements.
pub struct Seats<'a> {
    array: &'a str,
    slots: usize,
    names: Vec<Option<String>>,
}

impl<'a> Seats<'a> {
    /// The seats as they are now.
    pub fn of(array: &'a str, status: &ArrayStatus) -> Self {
        let all = status.members.iter().chain(&status.replacements);
        Self { array, slots: status.members.len(), names: all.map(|member| member.device.clone()).collect() }
    }

    /// What to call the member in a seat.
    pub fn name(&self, seat: MemberIx) -> &str {
        self.names.get(seat.index()).and_then(Option::as_deref).unwrap_or("-")
    }

    /// The name of the one member that is asked for; as it was asked if there is no such one.
    pub fn full_name(&self, asked: &str) -> String {
        let found = self.find(asked).ok().and_then(|seat| self.names[seat.index()].clone());
        found.unwrap_or_else(|| asked.to_owned())
    }

    /// The seat of a member: by its name as given, by its file name if no other has the same, by
    /// slot.
    pub fn find(&self, asked: &str) -> Result<MemberIx, Problem> {
        let seats_where = |matches: &dyn Fn(&str) -> bool| -> Vec<u16> {
            let seats = (0..).zip(&self.names);
            seats.filter(|(_, name)| name.as_deref().is_some_and(matches)).map(|(seat, _)| seat).collect()
        };
        let file_name = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
        let by_path = seats_where(&|name| name == asked);
        let by_file_name = seats_where(&|name| file_name(name) == asked);
        // The server may have been started in another directory than the command was.
        let tail = format!("/{}", asked.trim_start_matches("./"));
        let by_end = seats_where(&|name| asked.contains('/') && name.ends_with(&tail));
        let is_slot = |slot: &u16| usize::from(*slot) < self.slots;
        let by_slot: Vec<u16> = asked.parse().ok().filter(is_slot).into_iter().collect();
        for found in [by_path, by_file_name, by_end, by_slot] {
            match found[..] {
                [seat] => return Ok(MemberIx(seat)),
                [] => {}
                [..] => {
                    return Err(Problem::new(
                        Code::Usage,
                        format!("{asked} means {} members of {}", found.len(), self.array),
                        "several members have this name",
                        "name the member by its path or its slot: `wattle status` shows them",
                    ));
                }
            }
        }
        let names: Vec<_> = self.names.iter().flatten().map(String::as_str).collect();
        Err(Problem::new(
            Code::BadMember,
            format!("{asked} is not a member of {}", self.array),
            format!("its members are {}", names.join(", ")),
            "name one of them by its path, its file name or its slot",
        ))
    }
}

/// Why a member was not failed.
pub fn fail_problem(array: &str, member: &str, error: FailError, status: &ArrayStatus) -> Problem {
    if matches!(error, FailError::LastCopy(_)) && is_untrusted(status) {
        return untrusted_problem(array, member);
    }
    let (code, why, next) = match error {
        FailError::LastCopy(_) => (
            Code::LastCopy,
            "its data would be gone: nothing else holds a copy of it",
            "replace the members that are missing first (`wattle add`); to end the array use `wattle stop`",
        ),
        FailError::NotPresent(_) => (
            Code::BadMember,
            "it is missing or has failed already",
            "`wattle status` shows the members' states",
        ),
        FailError::ReadOnly => (
            Code::ReadOnlyMember,
            "the failure could not be recorded in the other members' superblocks",
            "serve the array without --read-only",
        ),
        FailError::NotRecorded => (
            Code::MetadataNotWritten,
            "a failure counts only once the survivors' superblocks say so",
            "look at the other members: `wattle status`",
        ),
        _ => (Code::ServerFailed, "the array is being stopped", "`wattle status` shows what is served"),
    };
    Problem::new(code, format!("{array}: {member} was not failed: {error}"), why, next).of_member(member)
}

/// No member is spared, whole as they all are, because what would replace it is not known to be
/// right.
pub fn is_untrusted(status: &ArrayStatus) -> bool {
    status.level.kind() == LevelKind::Parity && status.synced_below != Sector::MAX
}

/// The consequence for the member that was to be failed.
pub fn untrusted_problem(array: &str, member: &str) -> Problem {
    Problem::new(
        Code::LastCopy,
        format!("{array}: {member} was not failed: parity is not known to be right, so it cannot stand in for it"),
        "its data would be gone: the array was not stopped cleanly, or was never synchronised",
        "wait until it is resynced (`wattle status` shows how far that is), or copy the data off first: `wattle cat`",
    )
    .of_member(member)
}

/// Why a member was not removed.
pub fn leave_problem(array: &str, member: &str, error: LeaveError) -> Problem {
    let (code, why, next) = match error {
        LeaveError::InUse(_) => (
            Code::MemberWorks,
            "a member that works is part of the array's redundancy",
            format!(
                "fail it first if that is what you want: `wattle fail {} {}`; or replace it: `wattle replace`",
                shell_word(array),
                shell_word(member)
            ),
        ),
        LeaveError::NotPresent(_) => {
            (Code::BadMember, "no member is in that slot", "`wattle status` shows the members".to_owned())
        }
        LeaveError::Broken => (
            Code::VolumeFailed,
            "what the last members that failed hold may be all there is",
            "`wattle stop` it, and see what `wattle why` says of its members".to_owned(),
        ),
        LeaveError::NotRecorded => (
            Code::MetadataNotWritten,
            "the others have to know which devices are members",
            "look at the other members: `wattle status`".to_owned(),
        ),
        _ => (
            Code::ServerFailed,
            "the array is being stopped",
            "`wattle status` shows what is served".to_owned(),
        ),
    };
    Problem::new(code, format!("{array}: {member} was not removed: {error}"), why, next).of_member(member)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(names: &[Option<&str>], slots: usize) -> Seats<'static> {
        Seats { array: "data", slots, names: names.iter().map(|name| name.map(str::to_owned)).collect() }
    }

    #[test]
    fn a_member_is_named_by_path_then_file_then_slot() {
        let seats = seats(&[Some("/a/x.img"), None, Some("/b/y.img"), Some("0"), Some("/c/new.img")], 4);
        let seat = |asked: &str| seats.find(asked).map(|seat| seat.0).map_err(|problem| problem.code);
        assert_eq!(seat("/a/x.img"), Ok(0));
        assert_eq!(seat("y.img"), Ok(2));
        assert_eq!(seat("./b/y.img"), Ok(2));
        assert_eq!(seat("2"), Ok(2));
        assert_eq!(seat("1"), Ok(1));
        // A replacement has a name and no slot.
        assert_eq!(seat("new.img"), Ok(4));
        // Failing the wrong drive is the worst that could happen here: a name comes before a
        // number.
        assert_eq!(seat("0"), Ok(3));
        assert_eq!(seat("4"), Err(Code::BadMember));
        assert_eq!(seat("img"), Err(Code::BadMember));
    }

    #[test]
    fn a_name_of_two_members_names_neither() {
        let seats = seats(&[Some("/a/x.img"), Some("/b/x.img")], 2);
        assert_eq!(seats.find("x.img").unwrap_err().code, Code::Usage);
        assert_eq!(seats.find("/b/x.img").unwrap(), MemberIx(1));
    }
}
