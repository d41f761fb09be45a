//! Devices of bcache: what is known of them, what a cache device has of its backing devices, and
//! the data of a backing device as a device, which is only read.
//!
//! Invariants:
//! - A backing device whose cache has what it lacks is read with that cache, or not at all, unless
//!   the operator says so.
//! - What a cache has is read from there, what is in both places too: so does Linux.
//! - Nothing is ever written to either: the other would not know of it.
//! - What cannot be followed of a cache's metadata refuses the cache as a whole. No byte is read
//!   from where damaged metadata says.

mod data;
mod fault;
mod journal;
mod set;
#[cfg(test)]
mod tests;
mod tree;

use std::sync::Arc;

use wattle_format::bcache::{
    AT_BYTES, BackingState, BcacheError, BcacheMode, BcacheRole, BcacheSuperblock, SUPERBLOCK_BYTES,
};

pub(crate) use data::{BackingData, BackingPlace};
pub(crate) use set::CacheSet;

use crate::members::Member;
use crate::problem::{Check, Code, Forced, Problem};

/// What is known of a device of bcache.
#[derive(Debug, Clone)]
pub struct BcacheDevice {
    /// Its superblock.
    pub superblock: BcacheSuperblock,
    /// Why it cannot be read, if it cannot.
    pub problem: Option<Problem>,
    /// What to know of what is read of it.
    pub note: Option<String>,
    /// Of a backing device that is read with its cache: which that is.
    pub cache: Option<UsedCache>,
    /// Of a cache device, once that was needed: what it has, or why that cannot be read.
    pub(crate) contents: Option<Result<Arc<CacheSet>, Problem>>,
}

/// The cache device that a backing device is read with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedCache {
    /// Its name.
    pub name: String,
    /// What it has that the backing device lacks, bytes.
    pub dirty_bytes: u64,
}

impl BcacheDevice {
    /// Reads the superblock of a member that has one.
    pub(crate) fn read(member: &Member) -> Result<Self, Problem> {
        let name = &member.name;
        let bytes = member.read(AT_BYTES, SUPERBLOCK_BYTES)?;
        let superblock = BcacheSuperblock::parse(&bytes).map_err(|error| unusable(name, &error))?;
        Ok(Self { superblock, problem: None, note: None, cache: None, contents: None })
    }

    /// Where its data begins, bytes; `None` of a cache device.
    #[must_use]
    pub fn data_at_bytes(&self) -> Option<u64> {
        match self.superblock.role {
            BcacheRole::Backing { data_sector, .. } => Some(data_sector * 512),
            BcacheRole::Cache => None,
        }
    }

    /// How a backing device stands to its cache; `None` of a cache device.
    pub(crate) fn state(&self) -> Option<BackingState> {
        match self.superblock.role {
            BcacheRole::Backing { state, .. } => Some(state),
            BcacheRole::Cache => None,
        }
    }

    /// Decides whether the data of the backing device `name` is to be read alone, because of
    /// `why_alone`.
    pub(crate) fn judge_alone(
        &mut self,
        name: &str,
        forced: Forced,
        why_alone: Option<Problem>,
    ) -> Result<(), Problem> {
        match (self.state(), why_alone) {
            (None | Some(BackingState::Detached), _) | (Some(BackingState::Clean), None) => {}
            (Some(BackingState::Clean), Some(problem)) => {
                self.note =
                    Some(format!("{name}: it is clean, and is read without its cache: {}", problem.what));
            }
            (Some(BackingState::Stale), _) => {
                self.note = Some(format!(
                    "{name}: it was used without its cache since they were together; what only the cache had then is not there"
                ));
            }
            (Some(BackingState::Dirty), _) if forced.has(Check::Cache) => {
                self.note = Some(format!(
                    "{name}: --force={}: what only its cache has is passed over, and what is read may be old or torn in any place",
                    Check::Cache
                ));
            }
            (Some(BackingState::Dirty), Some(problem)) => return Err(problem),
            (Some(BackingState::Dirty), None) => return Err(dirty(name, &self.set_uuid(), "")),
        }
        Ok(())
    }

    /// Of a cache device, what backing devices lack of what it has, bytes: as it was read with one
    /// of them, or else is read now. 0 where that cannot be told.
    pub(crate) fn only_there_bytes(&self, member: &Member) -> u64 {
        match (&self.superblock.role, &self.contents) {
            (BcacheRole::Backing { .. }, _) | (_, Some(Err(_))) => 0,
            (_, Some(Ok(contents))) => contents.dirty_bytes(),
            (_, None) => {
                let read = |at_bytes, len_bytes| member.read(at_bytes, len_bytes);
                let contents = CacheSet::read(member.device.size_bytes(), false, &read);
                contents.map_or(0, |contents| contents.dirty_bytes())
            }
        }
    }

    /// The id of its caches, as text.
    #[must_use]
    pub fn set_uuid(&self) -> String {
        let hex: String = self.superblock.set_uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }

    /// What it is, in a few words.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut parts = match self.superblock.role {
            BcacheRole::Cache => vec![format!("bcache cache device of the set {}", self.set_uuid())],
            BcacheRole::Backing { mode, state, .. } => {
                let of = match state {
                    BackingState::Detached => "no cache".to_owned(),
                    _ => format!("{}, caches of the set {}", state_word(state), self.set_uuid()),
                };
                vec!["bcache backing device".to_owned(), mode_word(mode).to_owned(), of]
            }
        };
        parts.extend(self.cache.as_ref().map(|cache| {
            format!(
                "read with its cache {}, which has {} bytes that are only there",
                cache.name, cache.dirty_bytes
            )
        }));
        if let Some(Err(problem)) = &self.contents {
            parts.push(format!("not read ({})", problem.code));
        }
        parts.extend(self.problem.as_ref().map(|problem| format!("not opened ({})", problem.code)));
        parts.join(", ")
    }
}

/// A word for a mode, as Linux has it in sysfs.
#[must_use]
pub fn mode_word(mode: BcacheMode) -> &'static str {
    match mode {
        BcacheMode::WriteThrough => "writethrough",
        BcacheMode::WriteBack => "writeback",
        BcacheMode::WriteAround => "writearound",
        BcacheMode::None => "none",
    }
}

/// A word for a state, as Linux has it in sysfs.
#[must_use]
pub fn state_word(state: BackingState) -> &'static str {
    match state {
        BackingState::Detached => "no cache",
        BackingState::Clean => "clean",
        BackingState::Dirty => "dirty",
        BackingState::Stale => "inconsistent",
    }
}

fn unusable(name: &str, error: &BcacheError) -> Problem {
    let next = match error {
        BcacheError::Checksum { .. } => "`bcache-super-show` shows its fields; work on a copy",
        _ => "open it with Linux, on a copy",
    };
    Problem::new(
        Code::BcacheUnusable,
        format!("{name}: bcache: {error}"),
        "where its data begins, and whether its cache has newer data, is not known",
        next,
    )
    .of_member(name)
}

/// The cache of a dirty backing device is not among the members; `others` says which caches are.
pub(crate) fn dirty(name: &str, set_uuid: &str, others: &str) -> Problem {
    Problem::new(
        Code::BcacheDirty,
        format!("{name} is a backing device of bcache, and dirty: its newest data is on its cache"),
        format!("the cache device of the set {set_uuid} is not among the members{others}, and what is on this device is old in places that only it knows"),
        format!(
            "give the cache device of the set {set_uuid} too (`wattle scan` tells it); --force={} reads this device without what only its cache has",
            Check::Cache
        ),
    )
    .of_member(name)
    .forced_by(Check::Cache)
}

/// The cache device `cache` is of the set of the backing device `name`, and does not know it.
pub(crate) fn not_known(name: &str, cache: &str) -> Problem {
    Problem::new(
        Code::BcacheDirty,
        format!("{name} is a backing device of bcache, and its cache {cache} does not know it"),
        "the id of the device is not in the cache's table, or is there twice",
        format!("check that both are copies of one moment; --force={} reads this device alone", Check::Cache),
    )
    .of_member(name)
    .forced_by(Check::Cache)
}

/// Several members say that they are the cache device of a set.
pub(crate) fn several_caches(name: &str, caches: &[&str]) -> Problem {
    Problem::new(
        Code::BcacheDirty,
        format!(
            "{name} is a backing device of bcache, and several members are the cache of its set: {}",
            caches.join(", ")
        ),
        "copies of one cache device have the same ids, and which of them is the newest is not known",
        "give only the one that was last used with it",
    )
    .of_member(name)
    .forced_by(Check::Cache)
}
