//! Members that are copies of drives, and what is not in them: the map that a copying program left
//! (GNU ddrescue's format) says which parts of the drive were read. The others are zeros, or
//! whatever the file held before, and are unreadable sectors here.
//!
//! Invariants:
//! 1. A byte that the map of a member does not call finished is never answered as data, until it
//!    was written.
//! 2. The map on disk calls finished only what is durable in the file. What it calls unread may be
//!    good by now: redundancy, or an error, answers for it then.
//! 3. A flush, or a forced write, that covers a write over what was unread is acknowledged only
//!    once the map on disk calls that finished: what is durable is found again.
//! 4. A map that cannot be understood, or does not fit its file, is neither followed nor passed
//!    over: its member is refused until the operator says what to do.

mod guard;
mod map;

use thiserror::Error;
use wattle_format::rescue_map::RescueMapError;
use wattle_rt::IoError;

pub(crate) use self::guard::guard;
pub use self::map::CopyMap;
use crate::problem::{Code, Problem, shell_word};

/// Why a member cannot be used with its map.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CopyMapError {
    /// It cannot be read.
    #[error("its map {path}: {reason}")]
    Open {
        /// The map.
        path: String,
        /// What the system says.
        reason: String,
    },
    /// It is no map.
    #[error("its map {path}: {source}")]
    Format {
        /// The map.
        path: String,
        /// What is wrong.
        source: RescueMapError,
    },
    /// It says nothing of the file's end.
    #[error("its map {path} is about {map_bytes} bytes, and the file has {file_bytes}")]
    Smaller {
        /// The map.
        path: String,
        /// Where its last area ends.
        map_bytes: u64,
        /// The size of the file.
        file_bytes: u64,
    },
    /// It calls copied what the file does not have.
    #[error(
        "its map {path} says that it is copied to byte {copied_to}, and the file ends at byte {file_bytes}"
    )]
    Beyond {
        /// The map.
        path: String,
        /// Where the last part that was copied ends.
        copied_to: u64,
        /// The size of the file.
        file_bytes: u64,
    },
    /// It is not what it was when it was read.
    #[error("its map {path} changed")]
    Changed {
        /// The map.
        path: String,
    },
    /// The file is to be written and ends before the drive did.
    #[error("it ends at byte {file_bytes}, and the drive that it is a copy of had {map_bytes} bytes")]
    Short {
        /// The size of the file.
        file_bytes: u64,
        /// The size of the drive.
        map_bytes: u64,
    },
    /// The file is to be written, and its map cannot be.
    #[error("its map {path} cannot be written: {reason}")]
    NotWritable {
        /// The map.
        path: String,
        /// What the system says.
        reason: String,
    },
    /// Nothing serves it.
    #[error("{source}")]
    Core {
        /// Why.
        source: IoError,
    },
}

impl CopyMapError {
    /// As an operator is told of it.
    #[must_use]
    pub fn problem(&self, member: &str) -> Problem {
        let (what, word) = (format!("{member}: {self}"), shell_word(member));
        let name_it = format!(
            "name the map of this copy with `--map {word}=FILE`; `--map {word}=none` does without one, and takes what was not \
             read for data"
        );
        let unknown = "without it nothing tells which parts of the copy were read from the drive";
        let (why, next) = match self {
            Self::Open { .. } => (unknown.to_owned(), name_it),
            Self::Format { .. } => {
                (format!("it is no map of a copy, is damaged, or is just being written; {unknown}"), name_it)
            }
            Self::Smaller { map_bytes, file_bytes, .. } => (
                "it is the map of another copy, or does not say whether the end was read".to_owned(),
                format!(
                    "{name_it}; if it is the map, let the copy go on, or say that the end was not read with a line more in it: `{map_bytes} {} ?`",
                    file_bytes - map_bytes
                ),
            ),
            Self::Beyond { .. } => (
                "it is the map of another copy, or the file was cut off since".to_owned(),
                format!("copy the drive again with this map; or {name_it}"),
            ),
            Self::Changed { .. } => (
                "another program writes it, perhaps one that is still copying".to_owned(),
                "wait until the copy is made, or end that program, and try again".to_owned(),
            ),
            Self::Short { map_bytes, .. } => (
                "what redundancy has of the missing end would be written behind the end of the file".to_owned(),
                format!("give it its size first: `truncate -s {map_bytes} {word}`; or use --read-only or --overlay"),
            ),
            Self::NotWritable { .. } => (
                "the file is to be written, and what is written over sectors that were not read has to be noted there, or it would be \
                 called unread the next time"
                    .to_owned(),
                "make the map and its directory writable, or use --read-only or --overlay".to_owned(),
            ),
            Self::Core { .. } => {
                ("reads of the copy are looked at one by one".to_owned(), "free resources of this machine".to_owned())
            }
        };
        Problem::new(Code::CopyMapUnusable, what, why, next).of_member(member)
    }
}
