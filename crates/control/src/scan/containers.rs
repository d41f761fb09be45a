//! Drives of firmware RAID in a scan: each part that a drive has of a volume becomes a member.

use super::{MemberOrigin, MemberScan};
use crate::lvm::physical;
use crate::md::container::{self, ContainerDrive, ContainerMetadata, Extent};
use crate::md::superblocks::superblocks_of;
use crate::members::{Member, Whole, partitions_of};
use crate::nodes::{MemberId, Nodes};
use crate::signature::{FoundSignature, signatures};

/// What is said of a drive that was used in another way since.
const LEFT_OVER: &str = "it has metadata of firmware RAID at its end, left from before";

/// Finds out whether a member is a drive of firmware RAID, and what it is then.
///
/// A superblock of md at the start of a drive may be the content of a mirrored volume, which begins
/// where the drive does. It is, if it fits into one; otherwise firmware's metadata was left behind
/// at the end of a drive that md uses now.
pub(super) fn look_at(found: &mut MemberScan) {
    let metadata = match container::read(&found.member) {
        None => return,
        Some(Err(problem)) => {
            if found.facts.is_none() && found.problem.is_none() {
                // What is in partitions is found all the same.
                match partitions_of(&found.member) {
                    Some(_) => found.note = Some(problem.what),
                    None => found.problem = Some(problem),
                }
            }
            return;
        }
        Some(Ok(metadata)) => metadata,
    };
    if let Some(facts) = &found.facts {
        let own = &facts.superblock;
        let end = own.data_offset_sectors.saturating_add(own.data_size_sectors);
        if !metadata.has_volumes() || !metadata.may_hold(end) {
            found.note = Some(LEFT_OVER.to_owned());
            return;
        }
        found.note = Some("its md superblock is the content of a volume of firmware RAID".to_owned());
        (found.facts, found.chosen, found.problem) = (None, None, None);
        found.superblocks.clear();
    }
    if metadata.has_volumes() && is_left_over(&found.member, &metadata) {
        found.note = Some(LEFT_OVER.to_owned());
        return;
    }
    if metadata.has_volumes() {
        found.problem = None;
        found.damaged.clear();
    }
    found.container = metadata.has_volumes().then(|| metadata.clone());
    if found.container.is_none() {
        found.note = container::place_one(found.member.size_sectors(), &metadata);
    }
}

/// Whether a drive was partitioned and used after its container was given up. A table of partitions
/// with a size that no mirrored volume has is that of the drive, or of a volume that is striped;
/// and what lies in the partitions of such a volume is not where the drive alone would have it.
fn is_left_over(member: &Member, metadata: &ContainerMetadata) -> bool {
    let Some(table) = partitions_of(member) else { return false };
    let usable: Vec<_> = table.partitions.iter().filter(|partition| partition.is_usable()).collect();
    let ends = usable.iter().map(|partition| partition.start_sectors.saturating_add(partition.len_sectors));
    if ends.max().is_none_or(|end| metadata.may_hold(end)) {
        return false;
    }
    let whole = Whole::new(member.clone());
    usable.iter().any(|partition| {
        let (start, len) = (partition.start_sectors, partition.len_sectors);
        Member::part(&whole, member.name.clone(), start, len).is_ok_and(|part| {
            !superblocks_of(&part).valid.is_empty()
                || matches!(physical::read(&part), Some(Ok(_)))
                || signatures(&part).is_ok_and(|found| found.iter().any(FoundSignature::is_file_system))
        })
    })
}

/// Adds what the drives from `first` on have of volumes.
pub(super) fn expand(members: &mut Nodes<MemberId, MemberScan>, first: MemberId) {
    let mut drives = Vec::new();
    for (id, seen) in members.entries().filter(|(id, _)| *id >= first) {
        let Some(metadata) = &seen.container else { continue };
        drives.push(ContainerDrive {
            id,
            name: &seen.member.name,
            size_sectors: seen.member.size_sectors(),
            serial: seen.member.serial(),
            metadata,
        });
    }
    if drives.is_empty() {
        return;
    }
    let placed = container::place(&drives);
    for (id, note) in placed.notes {
        members[id].note.get_or_insert(note);
    }
    for (id, problem) in placed.problems {
        members[id].problem.get_or_insert(problem);
    }
    let mut whole = None;
    for extent in &placed.extents {
        let drive = &members[extent.of].member;
        let shared = match &whole {
            Some((of, shared)) if *of == extent.of => shared,
            _ => &whole.insert((extent.of, Whole::new(drive.clone()))).1,
        };
        if let Some(part) = part(drive, shared, extent) {
            members.push(part);
        }
    }
    for id in members.ids().filter(|id| *id >= first).collect::<Vec<_>>() {
        let seen = &members[id];
        let is_stranger = seen.origin == MemberOrigin::Given
            && seen.facts.is_none()
            && seen.container.is_none()
            && seen.physical.is_none()
            && seen.problem.is_none()
            && seen.backup.is_none();
        let size = seen.member.size_sectors();
        if let Some(problem) =
            container::too_short(&seen.member.name, size, &placed.missing).filter(|_| is_stranger)
        {
            members[id].problem = Some(problem);
        }
    }
}

/// What a drive has of a volume, as a member. Its content is the array's and is not looked at.
fn part(drive: &Member, shared: &std::sync::Arc<Whole>, extent: &Extent) -> Option<MemberScan> {
    let name = format!("{}:{}", drive.name, extent.facts.set_name);
    let part = Member::part(shared, name.clone(), extent.start_sector, extent.len_sectors).ok()?;
    let facts = Some(extent.member_facts(&name));
    let origin = MemberOrigin::Container { of: extent.of, start_sector: extent.start_sector };
    Some(MemberScan { facts, ..super::bare(part, origin) })
}
