//! Partitions of what is scanned: those that can be used become members, and of every other one it
//! is said why it is not.

use std::sync::Arc;

use wattle_format::md::RawSuperblock;
use wattle_format::partition::{Partition, PartitionFault, PartitionTable, TableProblem};
use wattle_format::probe::SignatureKind;

use super::{MemberOrigin, MemberScan, Scan, judge_damaged, look_at};
use crate::md::container::ContainerMetadata;
use crate::members::{Member, Whole, partitions_of};
use crate::nodes::MemberId;
use crate::problem::{Code, Forced, Problem};
use crate::signature::FoundSignature;

/// What is said of a drive of Windows' Logical Disk Manager.
const DYNAMIC_DISK: &str = "it is a dynamic disk of Windows (LDM): its volumes, spanned and mirrored ones too, are in a \
                            database at its end that is not read here; Windows and `ldmtool` on Linux put them together";

impl Scan {
    /// A table on a device that is a member as a whole is the content of its array, or left over.
    /// But a superblock near the end of the device is near the end of its last partition too.
    pub(super) fn add_with_partitions(&mut self, mut whole: MemberScan, forced: Forced) {
        if whole.container.as_ref().is_some_and(ContainerMetadata::has_volumes) {
            self.members.push(whole);
            return;
        }
        let (of, table) = (self.members.next_id(), partitions_of(&whole.member));
        let Some(table) = table.filter(|_| !whole.is_below_another() || whole.facts.is_some()) else {
            self.members.push(whole);
            return;
        };
        if let Some(found) = whole.outranks(&table) {
            // No system uses such a table. A write to one of its partitions would go over what
            // was made on the drive since.
            let note = format!(
                "what is left of an older GPT is not used: no protective MBR announces it, and {} lies on the drive as a whole",
                found.what
            );
            whole.note.get_or_insert(note);
            self.members.push(whole);
            return;
        }
        let shared = Whole::new(whole.member.clone());
        let mut parts = Vec::new();
        for partition in table.partitions.iter().filter(|partition| partition.is_usable()) {
            let name = format!("{}:p{}", whole.member.name, partition.number);
            let part = Member::partition(&shared, name, &table, partition);
            let Ok(part) = part else { continue };
            let part = look_at(part, MemberOrigin::Partition { of, number: partition.number }, forced);
            parts.push((partition, part));
        }
        let place = |raw: &RawSuperblock| raw.fields().found_at_sectors();
        let own = whole.superblock().map(|own| (own.version(), own.found_at_sectors()));
        let damaged = whole.damaged.first().map(RawSuperblock::fields);
        let damaged = damaged.map(|fields| (fields.version(), fields.found_at_sectors()));
        if let Some((version, at)) = own.or(damaged).filter(|_| !parts.is_empty()) {
            let same = |(partition, part): &&(&Partition, MemberScan)| {
                let valid = part.superblock().map(|own| own.found_at_sectors());
                // What is damaged for both is the partition's: no table in an array has a partition
                // where the array's superblock is.
                let damaged = part.damaged.iter().filter(|_| own.is_none()).map(place);
                valid.into_iter().chain(damaged).any(|found_at| partition.start_sectors + found_at == at)
            };
            if let Some((partition, _)) = parts.iter().find(same) {
                whole.note = Some(format!(
                    "its {version} superblock is that of partition {}, which ends where the device ends and holds all of its array's \
                     data",
                    partition.number
                ));
                (whole.facts, whole.chosen, whole.problem) = (None, None, None);
                whole.superblocks.clear();
                whole.damaged.retain(|raw| place(raw) != at);
                judge_damaged(&mut whole);
            } else if whole.chosen.is_some() {
                self.members.push(whole);
                return;
            }
        }
        if whole.is_only_a_table() || !parts.is_empty() && whole.facts.is_none() {
            whole.say_of_table(&table);
            for (partition, fault) in
                table.partitions.iter().filter_map(|partition| Some((partition, partition.fault?)))
            {
                match cut_off((&whole.member.name, &shared), partition, fault, of, forced) {
                    Some(part) => parts.push((partition, part)),
                    None => whole.unused_partitions.push(unusable(&whole.member.name, partition, fault)),
                }
            }
        }
        if parts.is_empty() {
            self.members.push(whole);
            return;
        }
        if table.partitions.iter().any(|partition| partition.kind.is_ldm()) {
            whole.note.get_or_insert_with(|| DYNAMIC_DISK.to_owned());
        }
        parts.sort_by_key(|(partition, _)| partition.number);
        whole.table = Some(table.clone());
        self.members.push(whole);
        for (_, part) in parts {
            self.members.push(part);
        }
    }
}

impl MemberScan {
    /// What is not as it should be about its table as a whole.
    fn say_of_table(&mut self, table: &PartitionTable) {
        let words = |problems: Vec<&TableProblem>| problems.into_iter().map(ToString::to_string).collect();
        let (hiding, others): (Vec<_>, Vec<_>) =
            table.problems.iter().partition(|problem| table.hides_partitions(problem));
        self.table_notes = words(others);
        let hiding: Vec<String> = words(hiding);
        if !hiding.is_empty() {
            let problem = Problem::new(
                Code::PartitionsUnknown,
                format!("{}: {}", self.member.name, hiding.join("; ")),
                "partitions that may be there are not known, and what lies in them is not found",
                "copy the drive, and mend the table on the copy (`gdisk`, `testdisk`)",
            );
            self.unused_partitions.push(problem.of_member(&self.member.name));
        }
    }

    /// What begins the drive as a whole, where its table is what is left of an older GPT: without a
    /// protective MBR, and behind that.
    fn outranks(&self, table: &PartitionTable) -> Option<&FoundSignature> {
        let is_left_over = table.problems.contains(&TableProblem::NoProtectiveMbr);
        let first = |is_meant: &dyn Fn(&&FoundSignature) -> bool| {
            self.signatures.iter().filter(is_meant).min_by_key(|found| found.offset_bytes)
        };
        let copy = first(&|found| found.kind == Some(SignatureKind::Gpt))?;
        let other = first(&|found| !is_of_table(found))?;
        (is_left_over && other.offset_bytes < copy.offset_bytes).then_some(other)
    }

    /// Whether nothing is on it but a partition table, and what tables leave of LUKS2. What a boot
    /// sector of a file system has in the place of a table's entries is code.
    fn is_only_a_table(&self) -> bool {
        self.facts.is_none()
            && self.physical.is_none()
            && self.superblocks.is_empty()
            && self.damaged.is_empty()
            && self.signatures.iter().all(is_of_table)
    }
}

/// Whether it is a partition table, or what tables leave of LUKS2.
fn is_of_table(found: &FoundSignature) -> bool {
    use SignatureKind::{Gpt, Luks2Second, Mbr};
    matches!(found.kind, Some(Mbr | Gpt | Luks2Second))
}

/// What is there of a partition that ends past the end of the device, if that is a member of an
/// array which knows itself that it was cut off: the array says then what it lacks. Nothing else of
/// such a partition is used.
fn cut_off(
    (name, shared): (&str, &Arc<Whole>),
    partition: &Partition,
    fault: PartitionFault,
    of: MemberId,
    forced: Forced,
) -> Option<MemberScan> {
    let PartitionFault::BeyondDevice { device_sectors, .. } = fault else { return None };
    let len_sectors = device_sectors.checked_sub(partition.start_sectors).filter(|sectors| *sectors > 0)?;
    if partition.kind.is_extended() {
        return None;
    }
    let part =
        Member::part(shared, format!("{name}:p{}", partition.number), partition.start_sectors, len_sectors)
            .ok()?;
    let part = look_at(part, MemberOrigin::Partition { of, number: partition.number }, forced);
    let is_cut_off = part.problem.as_ref().is_some_and(|problem| problem.code == Code::Truncated);
    (is_cut_off && part.facts.is_some()).then_some(part)
}

/// Why a partition is not used, and what helps.
fn unusable(whole: &str, partition: &Partition, fault: PartitionFault) -> Problem {
    let (code, why, next) = match fault {
        PartitionFault::BeyondDevice { .. } => (
            Code::PartitionCutOff,
            "its end is not there, so it is not used: a copy that stopped early, an adapter that hides the end of a drive, or the table of a \
             larger array that the drive is a member of",
            "copy the drive again, whole; or give the other members of its array",
        ),
        _ => (
            Code::PartitionUnusable,
            "which bytes are its own cannot be told, so it is not used",
            "see the whole table (`sfdisk -d`), and correct it on a copy of the drive, or in an overlay",
        ),
    };
    let what = format!("{whole}: partition {} is not used: {fault}", partition.number);
    Problem::new(code, what, why, next).of_member(whole)
}
