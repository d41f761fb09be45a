//! What to build of drives: from a wish to every number of a stack, as pure functions.
//!
//! [`mod@candidates`] are all the ways that keep what was asked for: so many failures survived, so
//! much room. Which of them is fastest is not decided here but measured (`modelled`); among those
//! that are equally fast [`Candidate::taste`] decides. [`PlannedStack::of`] then makes one of them
//! into numbers, every layer aligned to the one below.

mod align;
mod bands;
mod candidates;
mod file_system;
mod loss;
mod shape;
mod stack;
mod workload;

pub use align::{first_member, groups_spread};
pub use bands::{Band, bands};
pub use candidates::{Candidate, candidates};
pub use file_system::{Ext4, FileSystemKind, FileSystemOptions, XfsNumbers};
pub use loss::{Loss, Reliability};
pub use shape::{PlanLevel, PlanShape};
pub use stack::{ArrayPlan, Cache, PlannedStack, WriteHole};
pub use workload::{NAMED, Named, Workload};

/// What covers a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerCutCover {
    /// Nothing but a resync of everything.
    Resync,
    /// A write-intent bitmap.
    Bitmap,
    /// A partial parity log (RAID 5).
    Ppl,
}

impl PowerCutCover {
    /// Its name, as `create --consistency` takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Resync => "resync",
            Self::Bitmap => "bitmap",
            Self::Ppl => "ppl",
        }
    }
}

/// Where the metadata's format lets data lie on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPlacement {
    /// Where it starts.
    pub data_offset_bytes: u64,
    /// How much of it there is.
    pub data_bytes: u64,
}

/// Tells that for a member of so many bytes, a level, a chunk and whether there is a partial parity
/// log.
pub type PlaceOf = fn(PlanLevel, u64, u64, bool) -> DataPlacement;

/// What is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// The size of each drive, spares among them.
    pub sizes_bytes: Vec<u64>,
    /// The drives have heads that move.
    pub rotational: bool,
    /// Bytes of a file system, at least.
    pub capacity_bytes: Option<u64>,
    /// So many drives may fail, whichever they are.
    pub survive: u32,
    /// So many drives wait for others to fail.
    pub spares: u32,
    /// What it is for.
    pub workload: Workload,
    /// Only this level.
    pub level: Option<PlanLevel>,
    /// Only this layout of RAID 10.
    pub layout: Option<PlanShape>,
    /// Only this chunk.
    pub chunk_bytes: Option<u64>,
    /// What covers a power cut, where the level has a choice; `None` for what suits the use.
    pub consistency: Option<PowerCutCover>,
    /// What goes on top.
    pub file_system: FileSystemKind,
    /// Cores of the machine.
    pub cores: u32,
}

/// Why nothing can be built as wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WishError {
    /// Spares and failures leave no drive.
    #[error(
        "{survive} failures are to be survived and {spares} drives are to be spares, and there are {drives} drives in all"
    )]
    TooFewDrives {
        /// How many there are.
        drives: u32,
        /// Failures to survive.
        survive: u32,
        /// Spares.
        spares: u32,
    },
    /// The level does not survive so much.
    #[error("{level} survives {most} failed drives, whichever they are, and {survive} are to be survived")]
    Level {
        /// The level.
        level: PlanLevel,
        /// What it survives.
        most: u32,
        /// Failures to survive.
        survive: u32,
    },
    /// The level needs more drives.
    #[error(
        "{level} that survives {survive} failures needs at least {least} drives, and there are {drives} beside the spares"
    )]
    Members {
        /// The level.
        level: PlanLevel,
        /// Failures to survive.
        survive: u32,
        /// Members it needs.
        least: u32,
        /// Drives there are.
        drives: u32,
    },
    /// The level takes no array of so many drives, and they are not divided into equal ones.
    #[error(
        "{what} has at most {most} members, and there are {drives} drives beside the spares that make no equal arrays of that"
    )]
    TooManyDrives {
        /// The level, and its log.
        what: String,
        /// Members it has at most.
        most: u32,
        /// Drives there are.
        drives: u32,
    },
    /// Only RAID 10 has such layouts.
    #[error("only raid10 has the layout {layout}, and the level is to be {level}")]
    Layout {
        /// The layout.
        layout: String,
        /// The level.
        level: PlanLevel,
    },
    /// The layout keeps too few copies.
    #[error("the layout {layout} keeps {copies} copies, and {survive} failures are to be survived")]
    Copies {
        /// The layout.
        layout: String,
        /// Copies it keeps.
        copies: u32,
        /// Failures to survive.
        survive: u32,
    },
    /// No array has such chunks.
    #[error("a chunk of {0} bytes: expected a power of two from 4 KiB to 64 MiB")]
    Chunk(u64),
    /// A partial parity log is RAID 5's.
    #[error("only raid5 has a partial parity log, and the level is to be {0}")]
    Log(PlanLevel),
    /// Nothing of that kind has room for so much.
    #[error(
        "{wanted} bytes are wanted, and the roomiest that survives {survive} failures has {most}: {what}"
    )]
    Capacity {
        /// Bytes wanted.
        wanted: u64,
        /// Bytes that fit.
        most: u64,
        /// Failures to survive.
        survive: u32,
        /// What has room for these.
        what: String,
    },
    /// The drives are too small for anything.
    #[error(
        "the drives are too small: the smallest has {smallest} bytes, and no array with its metadata fits"
    )]
    TooSmall {
        /// The smallest.
        smallest: u64,
    },
    /// The file system is not made so small.
    #[error("the file system is made on {least} bytes or more, and the roomiest volume has {most}")]
    FileSystem {
        /// Bytes it takes at least.
        least: u64,
        /// Bytes that fit.
        most: u64,
    },
    /// A spare stands in for drives of one array only.
    #[error("spares among drives of different sizes: bands have arrays of their own, and a spare serves one")]
    SparesOfBands,
}
