//! Why what a cache device has is not read.

use wattle_format::bcache::{BcacheError, CacheDamage};

use crate::members::MemberError;
use crate::problem::{Check, Code, Problem};

/// A part of a cache's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CachePart {
    /// An entry of the journal, by its number.
    Entry(u64),
    /// The journal.
    Journal,
    /// A bucket of generations.
    Generations,
    /// The table of backing devices.
    Table,
    /// A node of the tree, with so many levels below it.
    Node(u16),
}

/// An entry of the journal behind the newest whole one.
#[derive(Debug, Clone)]
pub(crate) struct TornEntry {
    /// What it says its number is.
    pub seq: u64,
    /// Where it is.
    pub at_bytes: u64,
    /// What is wrong with it.
    pub damage: CacheDamage,
}

/// Why what a cache device has is not read. Places are bytes from the start of the device.
#[derive(Debug, Clone)]
pub(crate) enum CacheFault {
    /// The device does not give it.
    Unread(MemberError),
    /// Its superblock is not used.
    Superblock(BcacheError),
    /// It was never used.
    Unused,
    /// It is smaller than its superblock says.
    TooSmall { needed_bytes: u64 },
    /// A part of its metadata is damaged.
    Damaged { part: CachePart, at_bytes: u64, damage: CacheDamage },
    /// A part of its metadata cannot be so, though its checksum is right.
    Impossible { part: CachePart, at_bytes: u64, what: &'static str },
    /// The journal has no entry at all.
    NoJournal,
    /// An entry of the journal is missing that is still needed.
    MissingEntry { seq: u64, newest: u64 },
    /// What would be the newest entry of the journal is not whole.
    Torn(TornEntry),
    /// There are more runs of sectors than are kept track of.
    TooMany { runs_max: usize },
}

impl From<MemberError> for CacheFault {
    fn from(error: MemberError) -> Self {
        Self::Unread(error)
    }
}

impl CachePart {
    fn words(self) -> String {
        match self {
            Self::Entry(seq) => format!("entry {seq} of the journal"),
            Self::Journal => "the journal".to_owned(),
            Self::Generations => "a bucket of generations".to_owned(),
            Self::Table => "the table of backing devices".to_owned(),
            Self::Node(0) => "a leaf of the tree".to_owned(),
            Self::Node(level) => format!("a node of the tree, of level {level},"),
        }
    }
}

impl CacheFault {
    /// As a problem of the cache device `name`.
    pub fn problem(self, name: &str) -> Problem {
        let what = match self {
            Self::Unread(error) => return error.into(),
            Self::Superblock(error) => format!("its superblock: {error}"),
            Self::Unused => "it was never used as a cache, or all that it had was given up".to_owned(),
            Self::TooSmall { needed_bytes } => {
                format!("it is smaller than the {needed_bytes} bytes that its superblock says")
            }
            Self::Damaged { part, at_bytes, damage } => {
                format!("{} at byte {at_bytes} is damaged: {damage}", part.words())
            }
            Self::Impossible { part, at_bytes, what } => {
                format!("{} at byte {at_bytes} cannot be: it {what}", part.words())
            }
            Self::NoJournal => "its journal has no entry".to_owned(),
            Self::MissingEntry { seq, newest } => {
                format!("entry {seq} of its journal is missing, and the newest, {newest}, needs it")
            }
            Self::Torn(entry) => return torn(name, &entry),
            Self::TooMany { runs_max } => {
                format!(
                    "it has more than {runs_max} runs of sectors that were not written back, which is the limit"
                )
            }
        };
        Problem::new(
            Code::BcacheDamaged,
            format!("{name}: bcache: {what}"),
            "which sectors of its backing devices have newer data on it is not known, and nothing is made up",
            format!(
                "work on copies, and let Linux try it on other copies; --force={} reads a backing device without what only the cache has",
                Check::Cache
            ),
        )
        .of_member(name)
    }
}

fn torn(name: &str, entry: &TornEntry) -> Problem {
    let TornEntry { seq, at_bytes, damage } = entry;
    Problem::new(
        Code::BcacheDamaged,
        format!("{name}: bcache: behind the newest whole entry of the journal begins another, {seq}, at byte {at_bytes}, that is not whole: {damage}"),
        "a crash cut it off, and then none of it was acknowledged; or it was damaged later, and what it has is newer than all else",
        format!("--force={} passes over it, as Linux does", Check::Journal),
    )
    .of_member(name)
    .forced_by(Check::Journal)
}
