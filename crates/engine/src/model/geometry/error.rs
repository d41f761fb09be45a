//! Why there is no such geometry.

use super::Level;
use crate::model::units::{MemberIx, Sector};

/// What is wrong with [`Params`](super::Params). Sizes are in sectors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// The level cannot have so few or so many members.
    #[error("raid_disks: {level} has {min} to {max} members, found {found}")]
    RaidDisks {
        /// The level asked for.
        level: Level,
        /// Fewest members.
        min: u32,
        /// Most members.
        max: u32,
        /// What was found.
        found: u32,
    },
    /// The level stripes data over its members and so needs a chunk.
    #[error("chunk: {level} needs one, found 0")]
    ChunkZero {
        /// The level asked for.
        level: Level,
    },
    /// The level's chunk must be a power of two.
    #[error("chunk: {level} needs a power of two, found {found} sectors")]
    ChunkNotPowerOfTwo {
        /// The level asked for.
        level: Level,
        /// What was found.
        found: Sector,
    },
    /// The chunk is smaller or larger than the level allows.
    #[error("chunk: {level} needs {min} to {max} sectors, found {found}")]
    ChunkRange {
        /// The level asked for.
        level: Level,
        /// Smallest chunk.
        min: Sector,
        /// Largest chunk.
        max: Sector,
        /// What was found.
        found: Sector,
    },
    /// The level has no layout of this number.
    #[error("layout: {level} has none numbered {found:#x}")]
    Layout {
        /// The level asked for.
        level: Level,
        /// What was found.
        found: u32,
    },
    /// A RAID 10 layout with one copy only, or with more copies than members.
    #[error("layout: {near} near times {far} far copies, expected 2 to {raid_disks} (the members)")]
    Raid10Copies {
        /// Near copies.
        near: u32,
        /// Far copies.
        far: u32,
        /// Members.
        raid_disks: u32,
    },
    /// RAID 0 over members of different sizes is mapped in one of two ways, and this array does not
    /// say which (docs/formats.md §8.1). Ask, or try both read-only; never guess.
    #[error(
        "layout: RAID 0 over members of different sizes needs 1 (original) or 2 (alternate), found {found:#x}"
    )]
    Raid0LayoutUnknown {
        /// What was found.
        found: u32,
    },
    /// RAID 0 and linear need the size of each member.
    #[error("member_sizes: one size per member expected ({expected}), found {found}")]
    MemberSizes {
        /// Number of members.
        expected: u32,
        /// Number of sizes.
        found: usize,
    },
    /// A member of a RAID 0 or linear array does not hold a single chunk.
    #[error("member_sizes: slot {slot} needs at least {min} sectors, found {found}")]
    MemberTooSmall {
        /// The member's slot.
        slot: MemberIx,
        /// Smallest size.
        min: Sector,
        /// What was found.
        found: Sector,
    },
    /// The component size does not hold a single chunk (of each far copy).
    #[error("component_size: at least {min} sectors expected, found {found}")]
    ComponentTooSmall {
        /// Smallest size.
        min: Sector,
        /// What was found.
        found: Sector,
    },
    /// A member or the array would be larger than a file can be.
    #[error("{field}: at most {max} sectors expected, found {found}")]
    TooLarge {
        /// Which size.
        field: SizeField,
        /// Largest size.
        max: Sector,
        /// What was found or follows from it; [`Sector::MAX`] if that is more than 64 bits hold.
        found: Sector,
    },
}

/// Which size is too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeField {
    /// The component size.
    Component,
    /// The size of the member in this slot.
    Member(MemberIx),
    /// The size of the array.
    Array,
}

impl std::fmt::Display for SizeField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Component => f.write_str("component_size"),
            Self::Member(slot) => write!(f, "member_sizes: slot {slot}"),
            Self::Array => f.write_str("array size"),
        }
    }
}
