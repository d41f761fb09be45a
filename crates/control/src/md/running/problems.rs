//! What an operator is told of an array that runs.

use wattle_engine::error::{FailError, JoinError, LeaveError};

use super::RunningArray;
use crate::problem::{Code, Problem, shell_word};

impl RunningArray {
    pub(super) fn problem(
        &self,
        code: Code,
        what: impl Into<String>,
        why: impl Into<String>,
        next: impl Into<String>,
    ) -> Problem {
        Problem::new(code, format!("{}: {}", self.name, what.into()), why, next)
    }

    pub(super) fn not_taken(&self, member: &str, why: &str) -> Problem {
        self.problem(
            Code::MetadataNotWritten,
            format!("{member} was not taken in: {why}"),
            "what a member needs beside its data could not be written on it",
            "see what is wrong with that device, or use another",
        )
        .of_member(member)
    }

    /// A member that was away is not filled by itself.
    pub(super) fn misses_all(&self, member: &str) -> Problem {
        self.problem(
            Code::RemoteMissesAll,
            format!("{member} is not taken back by itself"),
            "no bitmap says what it missed, so all of it would be written over",
            format!(
                "to have all of it written: `wattle add {} {}`",
                shell_word(&self.name),
                shell_word(member)
            ),
        )
        .of_member(member)
    }

    pub(super) fn join_problem(&self, member: &str, error: JoinError) -> Problem {
        let (code, why, next) = match error {
            JoinError::ReadOnly => {
                (Code::ReadOnlyMember, "nothing may be recorded", "serve it without --read-only")
            }
            JoinError::Broken => (
                Code::VolumeFailed,
                "more members failed than its redundancy covers",
                "`wattle status` tells which",
            ),
            JoinError::NotRecorded => (
                Code::MetadataNotWritten,
                "a member counts only once the superblocks say so",
                "look at the members: `wattle status`",
            ),
            JoinError::BlockSize => (
                Code::BlocksTooLarge,
                "clients may write less than one of its blocks",
                "use a drive with blocks as small as the others'",
            ),
            JoinError::Stopped => {
                (Code::ServerFailed, "the array is being stopped", "`wattle status` shows what is served")
            }
            _ => (
                Code::NoPlace,
                "the slot has a working member, or none that could be replaced",
                "`wattle status` shows the slots",
            ),
        };
        self.problem(code, format!("{member} was not taken in: {error}"), why, next).of_member(member)
    }

    pub(super) fn fail_problem(&self, member: &str, error: FailError) -> Problem {
        let (code, why, next) = match error {
            FailError::LastCopy(_) => (
                Code::LastCopy,
                "its data would be gone: nothing else holds a copy of it that is known to be right",
                "bring missing members back, or wait until the array is synchronised: `wattle status`",
            ),
            FailError::NotPresent(_) => (
                Code::BadMember,
                "it is missing or has failed already",
                "`wattle status` shows the members' states",
            ),
            FailError::ReadOnly => {
                (Code::ReadOnlyMember, "nothing may be recorded", "serve it without --read-only")
            }
            FailError::NotRecorded => (
                Code::MetadataNotWritten,
                "a failure counts only once the survivors' superblocks say so",
                "look at the other members: `wattle status`",
            ),
            _ => (Code::ServerFailed, "the array is being stopped", "`wattle status` shows what is served"),
        };
        self.problem(code, format!("{member} was not failed: {error}"), why, next).of_member(member)
    }

    pub(super) fn leave_problem(&self, member: &str, error: LeaveError) -> Problem {
        let (code, why, next) = match error {
            LeaveError::InUse(_) => (
                Code::MemberWorks,
                "a member that works is part of the array's redundancy",
                "fail it first, if that is what you want; or replace it",
            ),
            LeaveError::NotPresent(_) => {
                (Code::BadMember, "it was let go of already", "`wattle status` shows the members")
            }
            LeaveError::Broken => (
                Code::VolumeFailed,
                "what the last members that failed hold may be all there is",
                "stop the array, and see what `wattle why` says of its members",
            ),
            LeaveError::NotRecorded => (
                Code::MetadataNotWritten,
                "the others have to know which devices are members",
                "look at the other members: `wattle status`",
            ),
            _ => (Code::ServerFailed, "the array is being stopped", "`wattle status` shows what is served"),
        };
        self.problem(code, format!("{member} was not removed: {error}"), why, next).of_member(member)
    }
}

pub(super) fn not_a_member(asked: &str, array: &str, names: &[&str]) -> Problem {
    Problem::new(
        Code::BadMember,
        format!("{asked} is not a member of {array}"),
        format!("its members are {}", names.join(", ")),
        "name one of them by its path, its file name or its slot",
    )
}

pub(super) fn made_up(name: &str) -> Problem {
    Problem::new(
        Code::BadMember,
        format!("{name}: a made-up drive is gone when the server ends, or forgets at once"),
        "the array would count on redundancy that is not there",
        "name a file or a block device",
    )
    .of_member(name)
}
