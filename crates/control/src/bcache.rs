//! Devices of bcache: what is known of them, and the data of a backing device as a device, which is
//! only read.
//!
//! Invariant: a backing device whose cache has what it lacks is not read, unless the operator says
//! so; nothing is ever written to one, because its cache would not know of it.

use wattle_engine::{VolumeError, VolumeRef};
use wattle_format::bcache::{
    AT_BYTES, BackingState, BcacheError, BcacheMode, BcacheRole, BcacheSuperblock, SUPERBLOCK_BYTES,
};
use wattle_rt::{BufMut, Core, Device, IoError, Reply, Serve};

use std::sync::Arc;

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
}

impl BcacheDevice {
    /// Reads the superblock of a member that has one.
    pub(crate) fn read(member: &Member) -> Result<Self, Problem> {
        let name = &member.name;
        let bytes = member.read(AT_BYTES, SUPERBLOCK_BYTES)?;
        let superblock = BcacheSuperblock::parse(&bytes).map_err(|error| unusable(name, &error))?;
        Ok(Self { superblock, problem: None, note: None })
    }

    /// Where its data begins, bytes; `None` of a cache device.
    #[must_use]
    pub fn data_at_bytes(&self) -> Option<u64> {
        match self.superblock.role {
            BcacheRole::Backing { data_sector, .. } => Some(data_sector * 512),
            BcacheRole::Cache => None,
        }
    }

    /// Decides whether the data of the backing device `name` is to be read.
    pub(crate) fn judge(&mut self, name: &str, forced: Forced) -> Result<(), Problem> {
        let BcacheRole::Backing { state, .. } = self.superblock.role else { return Ok(()) };
        match state {
            BackingState::Detached | BackingState::Clean => {}
            BackingState::Stale => {
                self.note = Some(format!(
                    "{name}: it was used without its cache since they were together; what only the cache had then is not there"
                ));
            }
            BackingState::Dirty if forced.has(Check::Cache) => {
                self.note = Some(format!(
                    "{name}: --force={}: what only its cache has is passed over, and what is read may be old or torn in any place",
                    Check::Cache
                ));
            }
            BackingState::Dirty => return Err(dirty(name, &self.set_uuid())),
        }
        Ok(())
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

/// The data of a backing device that is open. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct BackingData {
    below: VolumeRef,
    data_at_bytes: u64,
}

impl BackingData {
    /// What is on a backing device, as a device of this name that is only read; `None` if nothing
    /// of it is there.
    pub fn device(
        core: &Core,
        name: &str,
        below: VolumeRef,
        (data_at_bytes, block_bytes): (u64, u32),
    ) -> Result<Option<Device>, VolumeError> {
        let opened = below.open(core)?;
        let block = if opened.block_bytes().max(block_bytes) <= 512 { 512 } else { 4096 };
        let room = below.size_bytes().saturating_sub(data_at_bytes);
        let len = room / u64::from(block) * u64::from(block);
        if len == 0 {
            return Ok(None);
        }
        let data = Arc::new(Self { below, data_at_bytes });
        Ok(Some(Device::served(name, len, block, false, core, data)))
    }
}

impl Serve for BackingData {
    fn read(&self, core: &Core, offset: u64, buf: BufMut) -> Reply<(Result<(), IoError>, BufMut)> {
        let (this, core) = (self.clone(), core.clone());
        Box::pin(async move {
            match this.below.open(&core) {
                Err(error) => (Err(error.into()), buf),
                Ok(below) => {
                    let (result, buf) = below.read(this.data_at_bytes + offset, buf).await;
                    (result.map_err(IoError::from), buf)
                }
            }
        })
    }

    fn flush(&self, _: &Core) -> Reply<Result<(), IoError>> {
        Box::pin(std::future::ready(Ok(())))
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

fn dirty(name: &str, set_uuid: &str) -> Problem {
    Problem::new(
        Code::BcacheDirty,
        format!("{name} is a backing device of bcache, and dirty: its newest data is on its cache"),
        format!("what the caches of the set {set_uuid} have is not read here, and what is on this device is old in places that only they know"),
        format!(
            "let Linux write it back (with both devices, `echo writethrough > /sys/block/bcacheN/bcache/cache_mode`, and wait for \
             `state` to be clean); --force={} reads this device without what only its cache has",
            Check::Cache
        ),
    )
    .of_member(name)
    .forced_by(Check::Cache)
}
