//! The bytes on a member that tell that something is there: superblocks, labels, partition tables,
//! signatures of file systems. Zeros in these places leave it unrecognised; what it held is still
//! there.
//!
//! Places are found by the same recognition that `scan` and `create` use, again and again over what
//! would be left, until nothing is recognised any more: behind the first copy of a partition table
//! there is a second one.

use wattle_format::bcache::BackingState;
use wattle_format::md::{RawSuperblock, SUPERBLOCK_BYTES};
use wattle_format::probe;

use crate::lvm::physical;
use crate::md::assemble::SyncState;
use crate::md::superblocks::superblocks_of;
use crate::members::{Member, MemberError};
use crate::nodes::MemberId;
use crate::problem::{Check, Code, Problem};
use crate::signature::recognise;
use crate::stack::Stack;
use crate::undo::CoveredWrite;

const SECTOR_BYTES: u64 = 512;

/// Something to be erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// What it is.
    pub what: String,
    /// Where zeros go.
    pub offset_bytes: u64,
    /// How many.
    pub len_bytes: u64,
}

/// Everything that is recognised on a member, in the order in which it is erased.
///
/// # Errors
/// A place could not be read: something may be there.
pub fn traces(member: &Member) -> Result<Vec<Trace>, MemberError> {
    let size_bytes = member.device.size_bytes() / SECTOR_BYTES * SECTOR_BYTES;
    let mut traces: Vec<Trace> = Vec::new();
    let mut add = |what: String, from: u64, len_bytes: u64| {
        let from = from / SECTOR_BYTES * SECTOR_BYTES;
        let len_bytes = len_bytes.min(size_bytes.saturating_sub(from));
        if len_bytes > 0 {
            traces.push(Trace { what, offset_bytes: from, len_bytes });
        }
    };
    let superblocks = superblocks_of(member);
    if let Some(error) = superblocks.unreadable.into_iter().next() {
        return Err(error);
    }
    let mut superblock = |version, state, sector: u64| {
        add(
            format!("md {version} superblock{state}"),
            sector.saturating_mul(SECTOR_BYTES),
            SUPERBLOCK_BYTES as u64,
        );
    };
    for valid in &superblocks.valid {
        superblock(valid.version(), "", valid.found_at_sectors());
    }
    for damaged in superblocks.damaged.iter().map(RawSuperblock::fields) {
        superblock(damaged.version(), ", damaged", damaged.found_at_sectors());
    }
    let areas = physical::read(member).and_then(Result::ok).map(|physical| physical.areas);
    for area in areas.iter().flatten() {
        add("header of an LVM2 metadata area".to_owned(), area.place.offset_bytes, SECTOR_BYTES);
    }
    let mut parts = Vec::new();
    for range in probe::ranges(member.device.size_bytes()) {
        parts.push((range.start, member.read(range.start, (range.end - range.start) as usize)?));
    }
    for trace in &traces {
        blank(&mut parts, trace);
    }
    while let Some(found) = recognise(member.device.size_bytes(), &parts).into_iter().next() {
        let offset_bytes = found.offset_bytes / SECTOR_BYTES * SECTOR_BYTES;
        let trace = Trace { what: found.what, offset_bytes, len_bytes: SECTOR_BYTES };
        blank(&mut parts, &trace);
        traces.push(trace);
    }
    Ok(traces)
}

fn blank(parts: &mut [(u64, Vec<u8>)], trace: &Trace) {
    for (start, bytes) in parts {
        let end = *start + bytes.len() as u64;
        let from = trace.offset_bytes.clamp(*start, end) - *start;
        let to = (trace.offset_bytes + trace.len_bytes).clamp(*start, end) - *start;
        bytes[from as usize..to as usize].fill(0);
    }
}

/// The writes that erase these.
pub fn writes(site: usize, traces: &[Trace]) -> impl Iterator<Item = CoveredWrite> {
    traces.iter().map(move |trace| CoveredWrite {
        site,
        step: 0,
        offset_bytes: trace.offset_bytes,
        bytes: vec![0; trace.len_bytes as usize],
    })
}

/// What speaks against erasing a member: an array that may be running elsewhere, a volume group
/// that has it, writes that are only in a cache.
#[must_use]
pub fn refusal(stack: &Stack, member: MemberId) -> Option<Problem> {
    let name = &stack.scan.members[member].member.name;
    let refuse = |what: String, why: &str, next: &str| {
        let problem = Problem::new(Code::StillInUse, what, why, next);
        Some(problem.of_member(name).forced_by(Check::InUse))
    };
    let array = stack.scan.arrays.iter().find(|array| array.members.contains(&member));
    if let Some(array) = array.filter(|array| array.assembly.state != SyncState::Clean) {
        return refuse(
            format!(
                "{name} is a member of {}, which was not stopped, or only while it was resynced",
                array.assembly.name()
            ),
            "it may be running elsewhere, or need this member to be made whole: its superblocks do not tell",
            "stop it first (`wattle stop`, `mdadm --stop`); --force=in-use erases it all the same",
        );
    }
    if let Some(bcache) = &stack.scan.members[member].bcache {
        let bytes = bcache.only_there_bytes(&stack.scan.members[member].member);
        let next = "let Linux write them back first (`echo 1 > /sys/block/bcache0/bcache/detach`); --force=in-use erases it all the same";
        if bytes > 0 {
            return refuse(
                format!("{name} is a cache device of bcache, and has {bytes} bytes that are only there"),
                "these are writes that were acknowledged, and its backing devices lack them",
                next,
            );
        }
        if bcache.state() == Some(BackingState::Dirty) {
            return refuse(
                format!(
                    "{name} is a backing device of bcache, and dirty: its newest writes are only on its cache"
                ),
                "without its superblock what the cache has cannot be brought to its place any more",
                next,
            );
        }
    }
    let group = stack.groups.iter().find(|group| group.devices.contains(&Some(member)))?;
    refuse(
        format!("{name} is a physical volume of {}", group.vg.name),
        "what its volumes hold would be gone for the group",
        "take it out first (`wattle vg reduce`), or end the group (`wattle vg remove`); --force=in-use erases it all the same",
    )
}
