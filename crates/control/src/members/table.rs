//! The partition table of a member, and what it counts in.
//!
//! A GPT shows what it counts in by the place of its header. An MBR does not: a drive behind a USB
//! bridge that shows it in sectors of 4096 bytes has a table in these, and as an image the same
//! table is met in sectors of 512. Systems count in the device's sectors, and so it is here with
//! every block device: what uses its partitions sees the same device. Where it is an image and all
//! entries fit either way, what the partitions begin with decides. Invariant: partitions are
//! written by the other size only where each of them begins with something in that, and none in
//! the device's own; where what is there does not tell, they are only read.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use wattle_format::partition::{self, Partition, PartitionTable, TableKind, TableProblem};
use wattle_format::probe::{self, SignatureKind};

use super::access::superblocks_at;
use super::{Member, Whole};

/// What is found further in on a partition may be of something else that ends where it ends.
const HEAD_BYTES: u64 = 1 << 20;

/// Where a superblock of ext2, ext3 or ext4 says of which group of blocks it is.
const EXT_GROUP_AT: u64 = 1024 + 90;

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
    let (of_own, of_other) = beginnings(&Whole::new(member.clone()), &own, &other);
    let is_clear = of_own == 0 && of_other > 0 && of_other == places(&other);
    let other_size = TableProblem::SectorSize { table_bytes, device_bytes };
    let (mut table, problem) = match of_own.cmp(&of_other) {
        Ordering::Less if member.below.is_block_device() && is_clear => {
            (own, TableProblem::OtherSectorSize { table_bytes, device_bytes })
        }
        _ if member.below.is_block_device() => return Some(own),
        Ordering::Greater => return Some(own),
        Ordering::Less if is_clear => (other, other_size),
        // What is found is read, and not enough to write by.
        Ordering::Less => {
            let doubt =
                TableProblem::SectorSizeUnknown { used_bytes: table_bytes, table_bytes, device_bytes };
            (other, doubt)
        }
        Ordering::Equal => {
            let doubt =
                TableProblem::SectorSizeUnknown { used_bytes: device_bytes, table_bytes, device_bytes };
            (own, doubt)
        }
    };
    table.problems.insert(0, problem);
    Some(table)
}

fn counted_in(member: &Member, sector_bytes: u32) -> Option<PartitionTable> {
    partition::decode(member.device.size_bytes(), sector_bytes, |offset_bytes, len_bytes| {
        member.read(offset_bytes, len_bytes).ok()
    })
}

/// How many places of a table may begin with something: the records of logical partitions, and
/// partitions.
fn places(table: &PartitionTable) -> usize {
    table.partitions.iter().filter(|partition| partition.fault.is_none()).count()
}

/// How many places of each table have what partitions begin with. What lies in a file system that
/// is counted is a part of that, whatever it looks like.
fn beginnings(whole: &Arc<Whole>, own: &PartitionTable, other: &PartitionTable) -> (usize, usize) {
    let of_own = own.partitions.iter().map(|partition| (partition, true));
    let of_other = other.partitions.iter().map(|partition| (partition, false));
    let mut partitions: Vec<_> = of_own.chain(of_other).collect();
    partitions.retain(|(partition, _)| partition.is_usable());
    partitions.sort_by_key(|(partition, _)| partition.start_sectors);
    let (mut shown_own, mut shown_other) = (records(own), records(other));
    let mut file_systems: Vec<Range<u64>> = Vec::new();
    for (partition, is_own) in partitions {
        let (start, len) = (partition.start_sectors, partition.len_sectors);
        let is_inside = |known: &Range<u64>| known.start < start && start < known.end;
        if file_systems.iter().any(is_inside) {
            continue;
        }
        let Some(begins) = begins_with(whole, partition) else { continue };
        if is_own {
            shown_own += 1;
        } else {
            shown_other += 1;
        }
        if begins == Beginning::FileSystem {
            file_systems.push(start..start.saturating_add(len));
        }
    }
    (shown_own, shown_other)
}

/// How many records of logical partitions are where they belong.
fn records(table: &PartitionTable) -> usize {
    let hidden =
        table.problems.iter().filter(|problem| matches!(problem, TableProblem::Chain { .. })).count();
    let extended = table.partitions.iter().filter(|partition| partition.kind.is_extended()).count();
    extended.saturating_sub(hidden)
}

/// What a partition begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beginning {
    /// A file system: what lies in it is its own.
    FileSystem,
    /// Something else that is recognised.
    Other,
}

/// What a partition begins with; `None` if nothing is recognised.
fn begins_with(whole: &Arc<Whole>, partition: &Partition) -> Option<Beginning> {
    let part = Member::part(whole, String::new(), partition.start_sectors, partition.len_sectors).ok()?;
    let size_bytes = part.device.size_bytes();
    let read = |range: Range<u64>| {
        let bytes = part.read(range.start, (range.end - range.start) as usize).ok()?;
        Some((range.start, bytes))
    };
    let parts: Vec<_> = probe::ranges(size_bytes).into_iter().filter_map(read).collect();
    let parts: Vec<_> = parts.iter().map(|(at, bytes)| (*at, bytes.as_slice())).collect();
    let mut found: Vec<_> = probe::identify(size_bytes, &parts);
    found.retain(|found| found.offset_bytes < HEAD_BYTES && !is_spare_copy(&part, found.kind));
    match () {
        // An array's members may begin with what lies on it.
        () if !superblocks_at(&part).is_empty() => Some(Beginning::Other),
        () if found.iter().any(|found| found.kind.is_file_system()) => Some(Beginning::FileSystem),
        () => (!found.is_empty()).then_some(Beginning::Other),
    }
}

/// Whether what is recognised is in the middle of a file system: one of the copies of its
/// superblock.
fn is_spare_copy(part: &Member, kind: SignatureKind) -> bool {
    use SignatureKind::{Ext2, Ext3, Ext4};
    matches!(kind, Ext2 | Ext3 | Ext4) && part.read(EXT_GROUP_AT, 2).is_ok_and(|group| group != [0, 0])
}
