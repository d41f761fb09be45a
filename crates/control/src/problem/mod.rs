//! The message to an operator when something is wrong: what, why, what next, and a stable code.
//!
//! Every error of this crate becomes a [`Problem`]. The codes are one table ([`Code`]):
//! `wattle explain`, the exit status and the documentation read it, and nothing else assigns a
//! number. A number is never reused. The safety checks that an operator may override one by one are
//! one list too ([`Check`]).

mod codes;
mod shell;

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use wattle_rt::IoError;

pub use codes::Code;
pub use shell::shell_word;

/// How a command ended when it did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// It was tried, or could not be.
    Failed,
    /// What was asked for makes no sense as it was asked.
    Usage,
    /// It could be done and was not: a safety check says that data may be lost or wrong.
    Refused,
}

impl FailureKind {
    /// The exit status: 1 failed, 2 usage, 3 refused.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Refused => 3,
        }
    }
}

impl Code {
    /// `WTL-0042`.
    #[must_use]
    pub fn id(self) -> String {
        format!("WTL-{:04}", self as u16)
    }

    /// The code of `WTL-0042`, `wtl-42` or `42`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.get(..4).filter(|p| p.eq_ignore_ascii_case("wtl-")).map_or(text, |_| &text[4..]);
        let number: u16 = digits.parse().ok()?;
        Self::ALL.iter().copied().find(|code| *code as u16 == number)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WTL-{:04}", *self as u16)
    }
}

/// What an operator is told. Sentences without a final stop; `next` is an instruction.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what}: {why} ({code})")]
pub struct Problem {
    /// The stable code.
    pub code: Code,
    /// The member it is about, as the operator named it.
    pub member: Option<String>,
    /// What is wrong, naming the member and the field.
    pub what: String,
    /// Why that is a problem: what was found, what was expected.
    pub why: String,
    /// What to do next.
    pub next: String,
    /// The check that was not passed, if it may be overridden.
    pub force: Option<Check>,
    /// The cause may be gone in a moment without an operator: the same attempt may then succeed.
    pub is_transient: bool,
}

impl Problem {
    /// A problem that is about no member.
    #[must_use]
    pub fn new(code: Code, what: impl Into<String>, why: impl Into<String>, next: impl Into<String>) -> Self {
        Self {
            code,
            member: None,
            what: what.into(),
            why: why.into(),
            next: next.into(),
            force: None,
            is_transient: false,
        }
    }

    /// Work that may block has no thread to be done on.
    #[must_use]
    pub fn no_thread(error: IoError) -> Self {
        Self::new(
            Code::BackendUnavailable,
            format!("a thread to look at drives with: {error}"),
            "the system gives no more threads",
            "raise the limit of processes (`ulimit -u`)",
        )
    }

    /// The same about one member.
    #[must_use]
    pub fn of_member(mut self, member: impl Into<String>) -> Self {
        self.member = Some(member.into());
        self
    }

    /// The same, overridable by `--force=check`.
    #[must_use]
    pub fn forced_by(mut self, check: Check) -> Self {
        self.force = Some(check);
        self
    }

    /// The same, of a cause that may be gone in a moment, if `is_transient` says so.
    #[must_use]
    pub fn transient(mut self, is_transient: bool) -> Self {
        self.is_transient = is_transient;
        self
    }

    /// How a command that meets it ends.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.code.kind()
    }

    /// The exit status: 1, 2 or 3.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        self.kind().exit_code()
    }
}

/// A safety check that `--force=NAME` overrides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Use a dirty and degraded array with parity.
    DirtyDegraded,
    /// Create over whatever is on the members.
    Signature,
    /// Use the freshest side of an array that was run in two halves.
    SplitBrain,
    /// Where a member has several superblocks, take the one whose array was created last.
    NewestSuperblock,
    /// Let a benchmark write over what an array holds.
    Overwrite,
    /// Make a volume smaller than the file system on it.
    FileSystem,
    /// Restore an earlier text of a group with pools, whose own books may not fit it.
    Pool,
    /// Bring back what was there before, over what was written since.
    WrittenSince,
    /// Bring back what was on the members that are there; write what lies on an array without
    /// members that it counts on.
    MissingMember,
    /// Erase a member of an array that was not stopped, or of a volume group.
    InUse,
    /// Begin though what comes out will not fit where it goes.
    Space,
    /// Take the recorded position of a reshape for the place where the kernel was.
    ReshapePosition,
    /// Take back a logical block size that members do not have themselves.
    BlockSize,
    /// Do without what a journal holds, where it is missing or cannot be followed.
    Journal,
    /// Read what lies below a cache without what only the cache has.
    Cache,
    /// Use a physical volume whose text is older than its group's.
    OlderPhysical,
    /// Read a RAID 0 whose layout is not recorded in the original one.
    Raid0Original,
    /// Read a RAID 0 whose layout is not recorded in the alternate one.
    Raid0Alternate,
}

impl Check {
    /// Every check.
    pub const ALL: &'static [Check] = &[
        Self::DirtyDegraded,
        Self::Signature,
        Self::SplitBrain,
        Self::NewestSuperblock,
        Self::Overwrite,
        Self::FileSystem,
        Self::Pool,
        Self::WrittenSince,
        Self::MissingMember,
        Self::InUse,
        Self::Space,
        Self::ReshapePosition,
        Self::BlockSize,
        Self::Journal,
        Self::Cache,
        Self::OlderPhysical,
        Self::Raid0Original,
        Self::Raid0Alternate,
    ];

    /// As on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BlockSize => "block-size",
            Self::ReshapePosition => "reshape-position",
            Self::Journal => "journal",
            Self::Cache => "cache",
            Self::OlderPhysical => "older-physical",
            Self::Raid0Original => "raid0-original",
            Self::Raid0Alternate => "raid0-alternate",
            Self::DirtyDegraded => "dirty-degraded",
            Self::Signature => "signature",
            Self::SplitBrain => "split-brain",
            Self::NewestSuperblock => "newest-superblock",
            Self::Overwrite => "overwrite",
            Self::FileSystem => "file-system",
            Self::Pool => "pool",
            Self::WrittenSince => "written-since",
            Self::MissingMember => "missing-member",
            Self::InUse => "in-use",
            Self::Space => "space",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// `--force` named a check that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{name}` is not a check that can be overridden")]
pub struct UnknownCheck {
    /// As it was given.
    pub name: String,
}

impl FromStr for Check {
    type Err = UnknownCheck;

    fn from_str(name: &str) -> Result<Self, UnknownCheck> {
        Self::ALL
            .iter()
            .copied()
            .find(|check| check.name() == name)
            .ok_or_else(|| UnknownCheck { name: name.to_owned() })
    }
}

impl From<UnknownCheck> for Problem {
    fn from(error: UnknownCheck) -> Self {
        let names: Vec<_> = Check::ALL.iter().map(|check| check.name()).collect();
        Self::new(
            Code::UnknownCheck,
            format!("--force={}", error.name),
            error.to_string(),
            format!("use the name that the refusal gave: one of {}", names.join(", ")),
        )
    }
}

/// The checks an operator overrides in one command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forced(u32);

impl Forced {
    /// Adds a check.
    #[must_use]
    pub fn with(self, check: Check) -> Self {
        Self(self.0 | 1 << check as u8)
    }

    /// Whether the operator overrides `check`.
    #[must_use]
    pub fn has(self, check: Check) -> bool {
        self.0 & 1 << check as u8 != 0
    }
}

impl FromIterator<Check> for Forced {
    fn from_iter<I: IntoIterator<Item = Check>>(checks: I) -> Self {
        checks.into_iter().fold(Self::default(), Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_ordered_and_parse_back() {
        // A number used twice would make `explain` and every script that matches on it lie.
        assert!(Code::ALL.windows(2).all(|pair| (pair[0] as u16) < pair[1] as u16));
        for &code in Code::ALL {
            assert_eq!(Code::parse(&code.id()), Some(code));
            assert_eq!(Code::parse(&code.id().to_lowercase()), Some(code));
            assert!(code.explanation().len() > 40, "{code} explains itself");
        }
        assert_eq!(Code::parse("WTL-9999"), None);
        assert_eq!(Code::parse("wtl"), None);
        assert_eq!(Code::parse("49"), Some(Code::DirtyDegraded));
    }

    #[test]
    fn only_named_checks_are_overridden() {
        for &check in Check::ALL {
            assert_eq!(check.name().parse(), Ok(check));
            assert!(Forced::default().with(check).has(check) && !Forced::default().has(check));
        }
        let problem = Problem::from("all".parse::<Check>().unwrap_err());
        assert_eq!(problem.exit_code(), 2);
        assert!(problem.next.contains("dirty-degraded"));
    }
}
