//! What can be wrong with a superblock, and why a field cannot be set.

use super::features::Features;
use super::location::Version;

/// One failed load check (docs/formats.md §1.5). A superblock may fail several.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuperblockError {
    /// The range read ended early; missing bytes were taken as zero.
    #[error("only {got} of the superblock's {need} bytes could be read")]
    Truncated {
        /// Bytes needed.
        need: usize,
        /// Bytes given.
        got: usize,
    },
    /// The contents do not add up: damaged, torn, or rewritten by something that is not md.
    #[error("superblock checksum is {stored:08x}, the bytes add up to {computed:08x}")]
    BadChecksum {
        /// The stored value.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// Neither of the known major versions.
    #[error("superblock major version is {found}, known are 0 and 1")]
    MajorVersion {
        /// The stored value.
        found: u32,
    },
    /// A 0.x superblock that is not 0.90 or 0.91.
    #[error("superblock version is 0.{found}, known are 0.90 and 0.91")]
    MinorVersion {
        /// The stored value.
        found: u32,
    },
    /// More role entries (1.x) or slots (0.90) than the version allows.
    #[error("superblock lists {found} devices, at most {max} are possible")]
    TooManyDevices {
        /// The stored value.
        found: u32,
        /// The limit.
        max: u32,
    },
    /// A 0.90 superblock whose own descriptor number lies outside the table.
    #[error("superblock calls its own device number {found}, the table ends at {max}")]
    DeviceNumber {
        /// The stored value.
        found: u32,
        /// The last valid number.
        max: u32,
    },
    /// A 0.90 array without slots.
    #[error("superblock describes an array of no devices")]
    NoRaidDisks,
    /// It was written for another place: the device was resized, or this is another device's
    /// superblock.
    #[error("superblock was written for sector {stored} and found at sector {found_at}")]
    WrongOffset {
        /// super_offset, in sectors.
        stored: u64,
        /// Where it was read, in sectors.
        found_at: u64,
    },
    /// Feature bits this crate does not know: their meaning may be anything, so the array is not
    /// touched.
    #[error("unknown feature bits {0:#x}")]
    UnknownFeatures(u32),
    /// Known feature bits that exclude one another (§1.2).
    #[error("feature bits exclude one another: {0}")]
    ConflictingFeatures(Features),
    /// The raid0-layout bit on another level.
    #[error("the raid0-layout feature bit is set on an array of level {level}")]
    Raid0LayoutOnLevel {
        /// The stored level.
        level: i32,
    },
    /// Fewer than 10 data sectors.
    #[error("superblock claims a data area of {found} sectors, at least 10 are needed")]
    DataTooSmall {
        /// data_size, in sectors.
        found: u64,
    },
    /// A byte that must be zero is not: a newer format may have given it a meaning.
    #[error("reserved byte {offset} of the superblock is not zero")]
    ReservedNotZero {
        /// Offset of the first such byte in the superblock.
        offset: usize,
    },
    /// A logical block size (§10.1) that is no power of two from 512.
    #[error("superblock claims logical blocks of {found} bytes")]
    LogicalBlockSize {
        /// The stored value.
        found: u32,
    },
    /// The bad block log is longer than the 8 sectors readers accept.
    #[error("bad block log of {found} sectors, at most 8 are possible")]
    BadBlockLogSize {
        /// The stored value.
        found: u16,
    },
    /// The bad block unit is 2^shift sectors; shift must be below 64.
    #[error("bad block unit of 2^{found} sectors")]
    BadBlockShift {
        /// The stored value.
        found: u8,
    },
    /// The data would overwrite the superblock.
    #[error(
        "data starts at sector {data_offset}, inside the superblock that ends at sector {superblock_end}"
    )]
    DataOverSuperblock {
        /// The smaller of data_offset and data_offset + new_offset, in sectors.
        data_offset: i128,
        /// First sector after the superblock.
        superblock_end: u64,
    },
    /// The device is smaller than the superblock says its data is.
    #[error("device has room for {have} data sectors, the superblock claims {need}")]
    DeviceTooSmall {
        /// Sectors claimed.
        need: u64,
        /// Sectors there are.
        have: u64,
    },
}

/// Why a field of a superblock could not be set. The superblock is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// This metadata version has no place for it.
    #[error("metadata version {version} cannot store {field}")]
    NotInVersion {
        /// The superblock's version.
        version: Version,
        /// The field's name.
        field: &'static str,
    },
    /// The value does not fit.
    #[error("{field} = {value} does not fit into the superblock (at most {max})")]
    TooLarge {
        /// The field's name.
        field: &'static str,
        /// The value asked for.
        value: u64,
        /// The largest that fits.
        max: u64,
    },
}
