//! What is said about volume groups that cannot be used.

use wattle_format::lvm;

use crate::problem::{Code, Problem};

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

pub(super) fn impossible_group(group: &str, found: &[lvm::Problem]) -> Problem {
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
        "give the missing ones, or read what is left with --read-only (cat, copy and get read without asking)",
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
