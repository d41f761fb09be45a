//! Containers of firmware RAID: drives that carry IMSM or DDF metadata, and the volumes on them.
//!
//! Each part that a drive has of a volume becomes a member of its own, a window on the drive
//! ([`Extent`]), with facts in the words of md: generation, slots, failures, how far a rebuild
//! came. From there on a volume is an array like others, judged by the same rules
//! ([`crate::md::assemble`]), that is only read. `imsm` and `ddf` translate, `identity` tells which
//! drive of an IMSM container a file or device is, `clip` ends a volume where the container says
//! that it ends.
//!
//! Invariant: nothing here reads or writes but [`read`], which reads the metadata.

mod clip;
mod ddf;
mod identity;
mod imsm;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

use wattle_format::ddf::{self as ddf_format, Ddf};
use wattle_format::imsm::{self as imsm_format, Imsm};

use crate::md::facts::{BadBlockEntry, Features, MemberFacts, SuperblockFacts};
use crate::members::Member;
use crate::nodes::MemberId;
use crate::problem::{Code, Problem};

pub(crate) use clip::clip;

/// Whose metadata a container has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerFormat {
    /// Intel's.
    Imsm,
    /// The Common RAID Disk Data Format.
    Ddf,
}

impl fmt::Display for ContainerFormat {
    /// As mdadm calls it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Imsm => "imsm",
            Self::Ddf => "ddf",
        })
    }
}

/// What an array is as a volume of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerVolume {
    /// Whose metadata it is.
    pub format: ContainerFormat,
    /// What the volume holds; `None` if that follows from its members alone.
    pub size_sectors: Option<u64>,
    /// Why it is not read; `None` if it is.
    pub refused: Option<ContainerRefusal>,
}

/// Why a volume of a container is not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerRefusal {
    /// Its data is between two layouts.
    #[error("{what} is in progress")]
    Migrating {
        /// What is being done.
        what: &'static str,
    },
    /// A level, or a kind of it, that is not read here.
    #[error("its RAID level has the number {level:#x}, kind {kind:#x}, with {members} members")]
    Level {
        /// The level's number in the metadata.
        level: u8,
        /// What says more about it: IMSM's domains, DDF's qualifier.
        kind: u8,
        /// Its members.
        members: usize,
    },
    /// Striped over parts that are RAID themselves, in a way that is not read here.
    #[error("it is made of {parts} parts of RAID level {level:#x}, put together by {part_level:#x}")]
    Nested {
        /// How many.
        parts: u8,
        /// The level of each.
        level: u8,
        /// How they are put together.
        part_level: u8,
    },
    /// A number that cannot be.
    #[error("{field} is {found}")]
    Number {
        /// The field.
        field: &'static str,
        /// What it says.
        found: u64,
    },
}

/// What a drive says of its container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerMetadata {
    /// Intel's.
    Imsm(Imsm),
    /// The Common RAID Disk Data Format.
    Ddf(Ddf),
}

impl ContainerMetadata {
    /// Whether it says that the drive is part of a volume. A spare's does not.
    pub(crate) fn has_volumes(&self) -> bool {
        match self {
            Self::Imsm(imsm) => !imsm.volumes.is_empty(),
            Self::Ddf(ddf) => !ddf.configs.is_empty(),
        }
    }

    /// Whether what lies at the start of the drive, with so many sectors, may be the content of a
    /// mirrored volume there.
    pub(crate) fn may_hold(&self, sectors: u64) -> bool {
        let Self::Imsm(imsm) = self else {
            let Self::Ddf(ddf) = self else { return false };
            return ddf.configs.iter().any(|config| {
                config.level == 1 && config.component_sectors.is_some_and(|held| sectors <= held)
            });
        };
        imsm.volumes.iter().any(|volume| {
            volume.map.raw_level == 1 && volume.map.start_sector == 0 && sectors <= volume.size_sectors
        })
    }
}

/// Reads the metadata of a container on a drive; `None` if there is none.
pub(crate) fn read(member: &Member) -> Option<Result<ContainerMetadata, Problem>> {
    let size_bytes = member.device.size_bytes();
    read_from(size_bytes, &mut |at, len| member.read(at, len).ok())
        .map(|found| found.map_err(|error| damaged(&member.name, &error)))
}

/// As [`read`], from anything that can be read.
pub(crate) fn read_from(
    size_bytes: u64,
    read: &mut dyn FnMut(u64, usize) -> Option<Vec<u8>>,
) -> Option<Result<ContainerMetadata, String>> {
    if let Some(found) = imsm_format::find(size_bytes, read) {
        return Some(found.map(ContainerMetadata::Imsm).map_err(|error| format!("Intel RAID: {error}")));
    }
    let found = ddf_format::find(size_bytes, read)?;
    Some(found.map(ContainerMetadata::Ddf).map_err(|error| format!("DDF: {error}")))
}

fn damaged(name: &str, error: &str) -> Problem {
    Problem::new(
        Code::ContainerDamaged,
        format!("{name}: its metadata as a drive of firmware RAID cannot be used: {error}"),
        "where volumes lie on the drive is written there and nowhere else on it",
        "leave the drive out if the others are enough; if it is a copy, copy it again, to its very end",
    )
    .of_member(name)
}

/// A drive of a container.
#[derive(Debug, Clone)]
pub(crate) struct ContainerDrive<'a> {
    /// Which of the scan's members.
    pub id: MemberId,
    /// As the operator named it.
    pub name: &'a str,
    /// Its size.
    pub size_sectors: u64,
    /// The serial number that it tells of itself; a file tells none.
    pub serial: Option<String>,
    /// What it says.
    pub metadata: &'a ContainerMetadata,
}

/// What a drive has of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The drive.
    pub of: MemberId,
    /// Where the volume begins on it.
    pub start_sector: u64,
    /// How long it is there.
    pub len_sectors: u64,
    /// What the drive says of the volume, in md's words.
    pub facts: SuperblockFacts,
    /// What of it is recorded as lost, sectors from its start; `None` if that cannot be told.
    pub bad: Option<Vec<BadBlockEntry>>,
}

impl Extent {
    /// The facts of the member that it becomes.
    pub fn member_facts(&self, name: &str) -> MemberFacts {
        let facts = MemberFacts::new(name, self.len_sectors, self.facts.clone());
        MemberFacts { bad_blocks: self.bad.clone(), ..facts }
    }
}

/// What of a range of a drive is in these recorded runs (start and length, sectors of the drive),
/// in sectors from the range's start.
fn bad_in(range: &Range<u64>, runs: impl Iterator<Item = (u64, u64)>) -> Vec<BadBlockEntry> {
    let within = runs.filter_map(|(start, len)| {
        let (start, end) = (start.max(range.start), start.saturating_add(len).min(range.end));
        (start < end).then(|| BadBlockEntry { start_sector: start - range.start, len_sectors: end - start })
    });
    within.collect()
}

/// The feature by which lost blocks count, where there are some.
fn bad_feature(bad: Option<&[BadBlockEntry]>) -> Features {
    if bad.is_some_and(<[_]>::is_empty) { Features(0) } else { Features::BAD_BLOCKS }
}

/// The volumes on some drives.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    /// What each drive has of them.
    pub extents: Vec<Extent>,
    /// Something to know of a drive.
    pub notes: Vec<(MemberId, String)>,
    /// Why a drive is not used.
    pub problems: Vec<(MemberId, Problem)>,
    /// What would be drives of these containers if it were longer: the size of the smallest drive
    /// that is missing, and its container.
    pub missing: Vec<(u64, String)>,
}

/// Finds the volumes on drives of containers.
pub(crate) fn place(drives: &[ContainerDrive<'_>]) -> Placed {
    let mut placed = Placed::default();
    imsm::place(drives, &mut placed);
    ddf::place(drives, &mut placed);
    placed.extents.sort_by_key(|extent| extent.of);
    placed
}

/// What there is to know of a drive that has metadata and no part of a volume.
pub(crate) fn place_one(size_sectors: u64, metadata: &ContainerMetadata) -> Option<String> {
    let drive = ContainerDrive { id: MemberId::nth(0), name: "", size_sectors, serial: None, metadata };
    place(&[drive]).notes.into_iter().next().map(|(_, note)| note)
}

/// Why a member of a container is not written to.
pub(crate) fn not_written(name: &str) -> Problem {
    Problem::new(
        Code::ContainerReadOnly,
        format!("{name}: it belongs to a container of firmware RAID"),
        "wattle reads what firmware RAID keeps on its drives and does not write it",
        "change the container with mdadm or the firmware",
    )
    .of_member(name)
}

/// A member that is shorter than a drive that is missing: its metadata would be at its end.
pub(crate) fn too_short(name: &str, size_sectors: u64, missing: &[(u64, String)]) -> Option<Problem> {
    let (sectors, container) = missing.iter().find(|(sectors, _)| size_sectors < *sectors)?;
    let (found, wanted) = (size_sectors.saturating_mul(512), sectors.saturating_mul(512));
    Some(
        Problem::new(
            Code::ContainerTruncated,
            format!("{name}: it has no metadata of firmware RAID and is shorter than a drive that is missing"),
            format!(
                "it has {found} bytes, a drive of {container} that is not here has {wanted}, and what makes it one is at its end"
            ),
            "if it is a copy of that drive, copy it again, whole; a drive that hides its end (HPA) shows it with `hdparm -N`",
        )
        .of_member(name),
    )
}

/// An id that is always the same for the same volume: 16 bytes of two hashes of what names it.
fn volume_uuid(parts: &[&[u8]]) -> [u8; 16] {
    let bytes = parts.concat();
    let hash = |seed: u64| twox_hash::XxHash3_64::oneshot_with_seed(seed, &bytes).to_be_bytes();
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&hash(0));
    uuid[8..].copy_from_slice(&hash(1));
    uuid
}

/// A volume's name fit for a command line.
fn volume_name(name: &str, at: usize) -> String {
    let name = name.trim();
    if name.is_empty() { format!("volume{at}") } else { name.to_owned() }
}
