//! New arrays: a plan that is pure and can be shown, and its execution.
//!
//! Numbers are mdadm's (docs/formats.md §1.8), so that an array made here is the array that mdadm
//! would have made. Two things differ, and the plan says so:
//! - A RAID 5 has all its members from the start, as `mdadm --create --force` makes it, instead of
//!   rebuilding its last one.
//! - Where every member's data area is known to hold only zeros, parity and copies agree already:
//!   the array starts clean. Otherwise it starts dirty (`resync_offset` 0): parity is not trusted
//!   until something has synchronised it.
//!
//! Order of writes: old superblocks that would be found again are wiped; bitmaps and bad-block
//! logs; flush; superblocks last; flush. A crash leaves either nothing that assembles as the new
//! array, or all of it.
//!
//! Invariant: [`mod@plan`] has checked everything, and every member is claimed, before
//! [`CreatePlan::execute`] writes a byte; what it is going to overwrite is in an undo log before
//! ([`crate::undo`]).

mod check;
mod execute;
mod mdadm;
mod plan;
mod shape;

pub use execute::ExecuteError;
pub use plan::{MemberContents, minor, plan};

use wattle_engine::geometry::{Geometry, Level};
use wattle_format::md::{Superblock, Uuid, Version};
use wattle_rt::WallTime;

use crate::md::compat::Compatibility;
use crate::md::superblocks::superblocks_of;
use crate::members::{Member, MemberAddress, MemberError};
use crate::problem::{Forced, Problem};
use crate::signature::{FoundSignature, signatures};

/// What an operator asks for.
#[derive(Debug, Clone)]
pub struct CreateRequest {
    /// The array's name as it is stored: `name` or `host:name`, at most 32 bytes.
    pub name: String,
    /// The level.
    pub level: Level,
    /// By slot; `None` for `missing`.
    pub members: Vec<Option<Member>>,
    /// Spares.
    pub spares: Vec<Member>,
    /// Metadata version.
    pub version: Version,
    /// Bytes; the default of the level if `None`.
    pub chunk_bytes: Option<u64>,
    /// By mdadm's names; the default of the level if `None`.
    pub layout: Option<String>,
    /// Bytes from the start of each member; mdadm's choice if `None`.
    pub data_offset_bytes: Option<u64>,
    /// Bytes used of each member; as much as the smallest one has if `None`.
    pub size_bytes: Option<u64>,
    /// The operator vouches that parity and copies agree.
    pub assume_clean: bool,
    /// What tells which parts differ after a crash.
    pub consistency: Consistency,
    /// Seconds between sweeps that clear the bitmap's bits, at least 1; mdadm's if `None`.
    pub bitmap_sweep_secs: Option<u32>,
    /// Names of members whose copies are read only where no other one can be.
    pub write_mostly: Vec<String>,
    /// Checks the operator overrides.
    pub forced: Forced,
    /// The array's UUID, random. The devices' UUIDs are derived from it.
    pub set_uuid: Uuid,
    /// When.
    pub now: WallTime,
}

/// What tells which parts of an array differ after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// Nothing: all of it is synchronised.
    Resync,
    /// A write-intent bitmap beside the superblock.
    Bitmap {
        /// Bytes for each bit; mdadm's choice if `None`.
        chunk_bytes: Option<u64>,
    },
    /// A partial parity log. Not supported yet.
    Ppl,
    /// A journal device. Not supported yet.
    Journal,
}

/// What will be written, and why it is right.
#[derive(Debug)]
pub struct CreatePlan {
    /// The array's map.
    pub geometry: Geometry,
    /// The first member's superblock, for showing what the array will be.
    pub superblock: Superblock,
    /// Members in slot order, then spares.
    pub devices: Vec<DevicePlan>,
    /// Whether the array starts clean.
    pub clean: bool,
    /// Why it does or does not.
    pub clean_reason: &'static str,
    /// What else will open it.
    pub compatibility: Compatibility,
    /// The mdadm command that makes the same array.
    pub mdadm_command: String,
    /// Refusals that the operator overrides.
    pub overridden: Vec<Problem>,
}

/// One device of a plan.
#[derive(Debug, Clone)]
pub struct DevicePlan {
    /// The member.
    pub member: Member,
    /// Its slot; `None` for a spare.
    pub slot: Option<u16>,
    /// In the order they are written; the superblock is the last.
    pub writes: Vec<PlannedWrite>,
}

/// A range and what goes there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedWrite {
    /// What it is: `superblock`, `bitmap`, `bad-block log`, `zeros over the md 0.90 superblock`.
    pub what: String,
    /// Where.
    pub offset_bytes: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Looks at what is on a member, for [`mod@plan`].
///
/// # Errors
/// The member cannot be read.
pub fn inspect(member: &Member) -> Result<MemberContents, MemberError> {
    let exact = superblocks_of(member);
    if let Some(error) = exact.unreadable.first() {
        return Err(error.clone());
    }
    let found = exact.valid.iter().map(|superblock| (superblock.version(), superblock.found_at_sectors()));
    let damaged = exact.damaged.iter().map(|raw| (raw.fields().version(), raw.fields().found_at_sectors()));
    let superblocks: Vec<_> = found
        .chain(damaged)
        .map(|(version, sector)| FoundSignature {
            what: format!("md {version} superblock"),
            offset_bytes: sector * 512,
            uuid: None,
            kind: None,
        })
        .collect();
    Ok(MemberContents {
        size_sectors: member.size_sectors(),
        superblocks,
        signatures: signatures(member)?,
        zeros: reads_as_zeros(member)?,
        exact,
    })
}

/// Files and devices up to this size are read to learn whether they hold only zeros; larger ones
/// must say so themselves.
const READ_FOR_ZEROS_MAX_BYTES: u64 = 256 << 20;
/// The same for drives in memory, which are read in seconds.
const READ_MEMORY_MAX_BYTES: u64 = 16 << 30;

/// Whether the whole member is known to read as zeros: a file, or a part of one, without a byte of
/// data, or one that was read.
fn reads_as_zeros(member: &Member) -> Result<bool, MemberError> {
    const PIECE_BYTES: u64 = 1 << 20;
    let max_bytes = match member.address {
        MemberAddress::Null { .. } => return Ok(true),
        MemberAddress::Mem { .. } | MemberAddress::Model => READ_MEMORY_MAX_BYTES,
        MemberAddress::Path(_) | MemberAddress::Part if member.is_hole() => return Ok(true),
        MemberAddress::Path(_)
        | MemberAddress::Paths(_)
        | MemberAddress::Remote
        | MemberAddress::Part
        | MemberAddress::Layer => READ_FOR_ZEROS_MAX_BYTES,
    };
    let size_bytes = member.device.size_bytes();
    if size_bytes > max_bytes {
        return Ok(false);
    }
    let mut at = 0;
    while at < size_bytes {
        let len = PIECE_BYTES.min(size_bytes - at);
        if member.read(at, len as usize)?.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        at += len;
    }
    Ok(true)
}
