//! What is said about volume groups that cannot be used.

use wattle_engine::VolumeError;
use wattle_format::lvm;

use super::overlay::{OverlayError, RUNS_MAX};
use super::raid::Refusal;
use crate::problem::{Check, Code, Problem};

/// A group that is open, with a text that another process wrote since.
pub(crate) fn overtaken(group: &str) -> Problem {
    Problem::new(
        Code::Changed,
        format!("{group}: its LVM2 metadata is not what it was when it was opened here"),
        "another process changed the volume group; it is not changed from here any more, because what looks free may hold that process's \
         volumes",
        "find that process (`wattle vg list` shows the group as it is now); stop the server of the group and start it again, \
         or repeat the command where none has the group",
    )
}

pub(super) fn in_doubt(group: &str) -> Problem {
    Problem::new(
        Code::GroupInDoubt,
        format!("{group}: it is in doubt whether its last change counts"),
        "a drive failed while that was written; after a power cut the group may be as it was before, or as it was to be, so that nothing is \
         changed on top of it, and what would be lost with either is only read",
        "see what is wrong with the drive; stop the server of the group and start it again, which shows what counts",
    )
}

pub(super) fn no_label(member: &str) -> Problem {
    Problem::new(
        Code::ReadFailed,
        format!("{member}: what its LVM2 label says is not known"),
        "the group's next text has to be written there too; nothing was written",
        "see what is wrong with the drive",
    )
    .of_member(member)
}

pub(super) fn damaged_metadata(member: &str, why: &str) -> Problem {
    Problem::new(
        Code::DamagedVolumeGroup,
        format!("{member}: its LVM2 metadata area: {why}"),
        "without a whole text nothing tells which volumes are on it",
        "give every physical volume of the group: each holds a copy; or restore one (`vgcfgrestore`, /etc/lvm/backup)",
    )
    .of_member(member)
}

pub(crate) fn damaged_label(member: &str, why: &str) -> Problem {
    Problem::new(
        Code::DamagedVolumeGroup,
        format!("{member}: its LVM2 label: {why}"),
        "a label that does not hold cannot be relied on, so the member is no physical volume",
        "leave it out if the others are enough, or write its label again (`pvcreate --uuid --restorefile`)",
    )
    .of_member(member)
}

pub(super) fn split_metadata(group: &str, why: &str) -> Problem {
    Problem::new(
        Code::SplitVolumeGroup,
        format!("the volume group {group}: {why}"),
        "physical volumes of it were changed apart from one another, and which of them is right cannot be told",
        "give only the physical volumes of the side that is to be believed",
    )
}

pub(super) fn duplicate_physical(group: &str, id: &str, members: &[&str]) -> Problem {
    Problem::new(
        Code::DuplicatePhysical,
        format!("{} are one physical volume ({id}) of {group}", members.join(" and ")),
        "one is a copy of the other (a cloned disk, an image beside its disk), and they may have diverged",
        "give only the one you trust",
    )
}

pub(super) fn claimed_twice(member: &str, groups: &[String]) -> Problem {
    Problem::new(
        Code::SplitVolumeGroup,
        format!("{member} is a physical volume of {} at once", groups.join(" and of ")),
        "the texts of several groups name it, and its own metadata areas do not tell which of them it is in now",
        "give only the physical volumes of the group that it is in",
    )
    .of_member(member)
}

pub(super) fn extents_on_area(member: &str) -> Problem {
    Problem::new(
        Code::BadVolume,
        format!("{member}: its extents would lie on its metadata area"),
        "a volume there would be written over by the next change of the group, and the group's text by the volume",
        "make it fewer extents (`wattle pv resize`, `pvresize`); volumes that have the last ones are moved first (`wattle lv move`)",
    )
    .of_member(member)
}

/// Another process changed a group between a commit and the look at what came of it.
pub(crate) fn overtaken_afterwards(group: &str) -> Problem {
    Problem::new(
        Code::GroupInDoubt,
        format!("{group}: another process changed its LVM2 metadata at the same time"),
        "the group's text is neither the one before this change nor the one after it, so that this change may be lost; the group is not \
         changed from here any more, and what would be lost is only read",
        "find that process (`wattle vg list` shows the group as it is now); stop the server of the group and start it again, and \
         repeat the command if its change is not there",
    )
}

pub(super) fn impossible_group(group: &str, found: &[lvm::GroupProblem]) -> Problem {
    let found: Vec<_> = found.iter().take(3).map(ToString::to_string).collect();
    Problem::new(
        Code::DamagedVolumeGroup,
        format!("the volume group {group}: {}", found.join("; ")),
        "its checksum is right and what it says cannot be, or is newer than this version",
        "restore an earlier text (`vgcfgrestore`), or use the system that wrote it",
    )
}

pub(super) fn missing_physical(volume: &str, missing: &[String]) -> Problem {
    Problem::new(
        Code::MissingPhysical,
        format!("{volume} is partly on physical volumes that are missing: {}", missing.join(", ")),
        "what is written there would be lost",
        "give the missing ones, copy again what was cut short, or read what is left with --read-only (cat, copy and get read without asking)",
    )
}

pub(super) fn short_physical(what: &str, pv: &str, end_bytes: u64, size_bytes: u64) -> Problem {
    Problem::new(
        Code::ShortPhysical,
        format!(
            "{what}: the physical volume {pv} has {size_bytes} bytes, and its extents would end at {end_bytes}"
        ),
        "what it is on was made smaller, or is a copy that was cut short; nothing can be read or written past its end",
        "copy it again, whole, if it is a copy (made longer it would hold zeros there); if nothing lies past its end, `wattle pv resize` lets the group know",
    )
}

pub(super) fn unsupported(volume: &str, kind: &str) -> Problem {
    Problem::new(
        Code::UnsupportedVolume,
        format!("{volume} is of the type {kind}"),
        "this version cannot read what such volumes are made of",
        "activate it where LVM2 and the kernel's module for it are (`lvchange -ay`)",
    )
}

pub(super) fn pool(volume: &str, kind: &str) -> Problem {
    Problem::new(
        Code::UnsupportedVolume,
        format!("{volume} is a {kind}"),
        "it is what other volumes are made of, and none itself",
        "name one of the volumes in it",
    )
}

pub(super) fn too_scattered(volume: &str) -> Problem {
    Problem::new(
        Code::UnsupportedVolume,
        format!("{volume} is scattered over more than {RUNS_MAX} places"),
        "this version keeps no larger map in memory",
        "activate it where LVM2 and the kernel's module for it are (`lvchange -ay`)",
    )
}

/// The maps of a group's volumes are larger than what one group is given.
pub(super) fn group_too_scattered(volume: &str, runs_max: usize) -> Problem {
    Problem::new(
        Code::UnsupportedVolume,
        format!("{volume}: the volumes of its group are scattered over more than {runs_max} places"),
        "this version keeps no more maps of a group in memory, and those of others were read before it",
        "activate it where LVM2 and the kernel's module for it are (`lvchange -ay`)",
    )
}

pub(super) fn not_made_yet(volume: &str, pool: &str) -> Problem {
    Problem::new(
        Code::UnsupportedVolume,
        format!("{volume}: the pool {pool} was not told yet to make it"),
        "the power failed, or LVM2 was ended, when it was being made: nothing is in it",
        "LVM2 makes it when it activates the pool next (`lvchange -ay`)",
    )
}

pub(super) fn damaged(volume: &str, part: &str, why: &str) -> Problem {
    Problem::new(
        Code::DamagedVolume,
        format!("{volume}: on {part}: {why}"),
        "where its blocks are cannot be known from it",
        "see `wattle explain WTL-0125`; work on copies of the drives",
    )
}

pub(super) fn unmappable(volume: &str, part: &str, error: OverlayError) -> Problem {
    match error {
        OverlayError::Scattered => too_scattered(volume),
        OverlayError::Twice { .. } => damaged(volume, part, &error.to_string()),
    }
}

pub(super) fn unreadable(volume: &str, offset_bytes: u64, error: VolumeError) -> Problem {
    let code = match error {
        VolumeError::Missing => Code::MissingPhysical,
        _ => Code::ReadFailed,
    };
    Problem::new(
        code,
        format!("{volume}: at byte {offset_bytes}: {error}"),
        "what others are made of is said there",
        "give the physical volumes that are missing; a drive that is dying is copied first (ddrescue)",
    )
}

pub(super) fn invalid_snapshot(volume: &str) -> Problem {
    Problem::new(
        Code::InvalidSnapshot,
        format!("{volume}: its store overflowed or failed"),
        "since then what was changed in its origin was not kept, so the snapshot is no state that ever was",
        "its origin is whole; remove the snapshot (`lvremove`)",
    )
}

pub(super) fn cache_missing(volume: &str, missing: &[String]) -> Problem {
    Problem::new(
        Code::CacheMissing,
        format!("{volume}: its cache is on physical volumes that are missing: {}", missing.join(", ")),
        "it is a write-back cache: blocks of it may be newer than the origin's, and only the cache says which",
        "give the physical volumes that the cache is on",
    )
}

pub(super) fn damaged_writecache(volume: &str, cache: &str, why: &str) -> Problem {
    Problem::new(
        Code::DamagedWritecache,
        format!("{volume}: its writecache on {cache}: {why}"),
        "blocks of it are newer than the origin's, and which they are is said there only",
        "see `wattle explain WTL-0344`; work on copies of the drives",
    )
}

pub(super) fn integrity_journal(volume: &str) -> Problem {
    let force = Check::Journal;
    Problem::new(
        Code::IntegrityJournal,
        format!("{volume}: it has checksums, and a journal (`--raidintegritymode journal`)"),
        "what was written last may be only in its journal, which this version does not read",
        format!(
            "activate it where LVM2 is (`lvchange -ay`); --force={force} reads its data without the journal"
        ),
    )
    .forced_by(force)
}

pub(super) fn mirror_in_doubt(volume: &str, why: &str) -> Problem {
    Problem::new(
        Code::MissingPhysical,
        format!("{volume}: the first leg of the mirror is missing or out of date, and {why}"),
        "where the legs are not known to be alike, only the first can be relied on",
        "give the physical volume that the first leg is on",
    )
}

pub(super) fn raid_refused(volume: &str, refusal: Refusal) -> Problem {
    let (code, next) = match refusal {
        Refusal::Reshaping => {
            (Code::Reshaping, "activate it where LVM2 is, and let the change come to its end")
        }
        Refusal::Foreign { .. } => {
            (Code::DamagedVolume, "restore the text that belongs to it (`vgcfgrestore`)")
        }
        Refusal::AllNew => (Code::NotEnoughMembers, "give the physical volumes of the other images"),
    };
    Problem::new(code, format!("{volume}: {refusal}"), "which block is where cannot be told", next)
}

pub(super) fn too_few_images(volume: &str, why: &[String]) -> Problem {
    Problem::new(
        Code::NotEnoughMembers,
        format!("{volume}: {}", why.join("; ")),
        "more of its images cannot be used than its redundancy covers",
        "give the physical volumes that are missing",
    )
}

pub(super) fn not_mapped(volume: &str, why: &str) -> Problem {
    Problem::new(
        Code::DamagedVolumeGroup,
        format!("{volume}: {why}"),
        "the volume group's text describes a volume that cannot be",
        "restore an earlier text (`vgcfgrestore`)",
    )
}

pub(super) fn same_names(group: &str, id: &str) -> String {
    format!("another volume group is called {group} too: name this one by its UUID, {id}")
}
