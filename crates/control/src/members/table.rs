//! The partition table of a member, and what it counts in.
//!
//! A GPT shows what it counts in by the place of its header. An MBR does not: a drive behind a USB
//! bridge that shows it in sectors of 4096 bytes has a table in these, and without the bridge, or
//! as an image, the same table is met in sectors of 512. Systems count in the device's sectors;
//! where all entries fit either way, what is found at the places decides. Invariant: where that
//! does not tell, partitions are only read.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use wattle_format::partition::{self, Partition, PartitionTable, TableKind, TableProblem};
use wattle_format::probe;

use super::access::superblocks_at;
use super::{Member, Whole};

/// What is found further in on a partition may be of something else that ends where it ends.
const HEAD_BYTES: u64 = 1 << 20;

/// The partition table on a member.
pub(crate) fn partitions_of(member: &Member) -> Option<PartitionTable> {
    let device_bytes = if member.device.logical_block_bytes() == 4096 { 4096 } else { 512 };
    let own = counted_in(member, device_bytes)?;
    let table_bytes = if device_bytes == 512 { 4096 } else { 512 };
    let fits = |table: &PartitionTable| {
        let has_chain = |problem: &TableProblem| matches!(problem, TableProblem::Chain { .. });
        table.kind == TableKind::Mbr
            && table.partitions.iter().all(|partition| partition.fault.is_none())
            && !table.problems.iter().any(has_chain)
    };
    let other = match own.kind {
        TableKind::Mbr => counted_in(member, table_bytes).filter(fits),
        TableKind::Gpt => None,
    };
    let Some(other) = other else { return Some(own) };
    let whole = Whole::new(member.clone());
    let (of_own, of_other) = (shown(&whole, &own), shown(&whole, &other));
    let (mut table, problem) = match of_own.cmp(&of_other) {
        Ordering::Greater => return Some(own),
        Ordering::Less => (other, TableProblem::SectorSize { table_bytes, device_bytes }),
        Ordering::Equal => (own, TableProblem::SectorSizeUnknown { table_bytes, device_bytes }),
    };
    table.problems.insert(0, problem);
    Some(table)
}

fn counted_in(member: &Member, sector_bytes: u32) -> Option<PartitionTable> {
    partition::decode(member.device.size_bytes(), sector_bytes, |offset_bytes, len_bytes| {
        member.read(offset_bytes, len_bytes).ok()
    })
}

/// How many entries of a table have something at their places: the records of logical partitions,
/// or what any partition begins with.
fn shown(whole: &Arc<Whole>, table: &PartitionTable) -> usize {
    let hidden =
        table.problems.iter().filter(|problem| matches!(problem, TableProblem::Chain { .. })).count();
    let extended = table.partitions.iter().filter(|partition| partition.kind.is_extended()).count();
    let shows = |partition: &&Partition| partition.is_usable() && shows_something(whole, partition);
    table.partitions.iter().filter(shows).count() + extended.saturating_sub(hidden)
}

fn shows_something(whole: &Arc<Whole>, partition: &Partition) -> bool {
    let (start, len) = (partition.start_sectors, partition.len_sectors);
    let Ok(part) = Member::part(whole, String::new(), start, len) else { return false };
    let size_bytes = part.device.size_bytes();
    let read = |range: Range<u64>| {
        let bytes = part.read(range.start, (range.end - range.start) as usize).ok()?;
        Some((range.start, bytes))
    };
    let parts: Vec<_> = probe::ranges(size_bytes).into_iter().filter_map(read).collect();
    let parts: Vec<_> = parts.iter().map(|(at, bytes)| (*at, bytes.as_slice())).collect();
    let signatures = probe::identify(size_bytes, &parts);
    !superblocks_at(&part).is_empty() || signatures.iter().any(|found| found.offset_bytes < HEAD_BYTES)
}
