//! Why a text is no volume group, and what can be wrong with one that is.

use std::fmt;

use super::text::TextError;

/// Which part of a volume group is meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupPart {
    /// The volume group itself.
    Vg,
    /// A PV, by its name in the text.
    Pv(String),
    /// An LV.
    Lv(String),
    /// A segment of an LV, from 1.
    Segment(String, usize),
}

impl fmt::Display for GroupPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupPart::Vg => f.write_str("the volume group"),
            GroupPart::Pv(name) => write!(f, "PV {name}"),
            GroupPart::Lv(name) => write!(f, "LV {name}"),
            GroupPart::Segment(lv, number) => write!(f, "segment {number} of LV {lv}"),
        }
    }
}

/// Why a text cannot be taken as a volume group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VgError {
    /// Not even the grammar holds.
    #[error(transparent)]
    Text(#[from] TextError),
    /// `contents` or `version` is not LVM2's.
    #[error("the metadata does not say that it is LVM2's text format, version 1")]
    Contents,
    /// There must be one section at the top.
    #[error("the metadata describes {found} volume groups instead of one")]
    NotOneVg {
        /// How many.
        found: usize,
    },
    /// A key that must be there.
    #[error("{place} has no {key}")]
    Missing {
        /// Where.
        place: GroupPart,
        /// The key.
        key: &'static str,
    },
    /// A key with a value of the wrong kind; negative numbers count as such.
    #[error("{key} of {place} is not {expected}")]
    Value {
        /// Where.
        place: GroupPart,
        /// The key.
        key: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// Something other than sections in a list of PVs or LVs.
    #[error("{list} has {key}, which is no section")]
    NotSection {
        /// `physical_volumes` or `logical_volumes`.
        list: &'static str,
        /// The key.
        key: String,
    },
    /// Segments are numbered from 1 to `segment_count`.
    #[error("LV {lv} promises {promised} segments, and they are not there with the numbers from 1 on")]
    Segments {
        /// The LV.
        lv: String,
        /// Its `segment_count`.
        promised: u64,
    },
}

/// What is wrong with a volume group that could be read. Any of them means: look, do not touch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupProblem {
    /// Status words say what must be understood, flags what may be ignored.
    #[error("{place} has the status {word}, which is not known")]
    UnknownStatus {
        /// Where.
        place: GroupPart,
        /// The word.
        word: String,
    },
    /// Two PVs or two LVs of one name.
    #[error("there are two of {place}")]
    DuplicateName {
        /// Both.
        place: GroupPart,
    },
    /// Two PVs or two LVs with one id.
    #[error("{place} has the id of another")]
    DuplicateId {
        /// The second.
        place: GroupPart,
    },
    /// Nothing can be allocated in extents of no size, or past 32 bits of sectors.
    #[error("extents of {sectors} sectors")]
    ExtentSize {
        /// The stored value.
        sectors: u64,
    },
    /// Numbers whose sums or products leave 63 bits.
    #[error("the sizes of {place} are larger than any device")]
    TooLarge {
        /// Where.
        place: GroupPart,
    },
    /// A hole between segments, or two that overlap.
    #[error("{place} starts at extent {start}, the one before it ends at {expected}")]
    NotContiguous {
        /// The segment.
        place: GroupPart,
        /// Where it starts.
        start: u64,
        /// Where it should.
        expected: u64,
    },
    /// A segment of no extents.
    #[error("{place} has no extents")]
    Empty {
        /// The segment.
        place: GroupPart,
    },
    /// Counts that contradict one another.
    #[error("{place}: {why}")]
    Shape {
        /// The segment.
        place: GroupPart,
        /// What does not fit.
        why: &'static str,
    },
    /// No PV and no LV of this name.
    #[error("{place} refers to {name}, which does not exist")]
    UnknownReference {
        /// The segment.
        place: GroupPart,
        /// The name.
        name: String,
    },
    /// Extents behind the last one.
    #[error("{place} uses {name} up to extent {end}, which has {extents}")]
    Beyond {
        /// The segment.
        place: GroupPart,
        /// The PV or LV it uses.
        name: String,
        /// First extent after those used.
        end: u64,
        /// Extents there are.
        extents: u64,
    },
    /// Two segments on one extent.
    #[error("{place} and {other} both use extent {extent} of {name}")]
    Overlap {
        /// A segment.
        place: GroupPart,
        /// The other.
        other: GroupPart,
        /// The PV or LV.
        name: String,
        /// First extent they share.
        extent: u64,
    },
    /// An LV that is made of itself.
    #[error("LV {lv} is made of itself")]
    Loop {
        /// One LV of the loop.
        lv: String,
    },
}
