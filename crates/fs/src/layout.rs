//! How a file system is laid out, as far as it concerns what lies below: what it was told of
//! stripes, and its groups.
//!
//! Only superblocks are read, so that this works of a file system that is in use.

/// How a file system is laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystemLayout {
    /// `ext2`, `ext3`, `ext4`, `xfs`.
    pub kind: &'static str,
    /// The version of XFS's format; 0 elsewhere.
    pub version: u8,
    /// Its size.
    pub size_bytes: u64,
    /// Its blocks.
    pub block_bytes: u64,
    /// What it takes for one drive's part of a stripe: XFS's `sunit`, ext's stride. `None` if it
    /// was told nothing.
    pub stripe_unit_bytes: Option<u64>,
    /// What it takes for the data of a stripe: XFS's `swidth`, ext's stripe width.
    pub stripe_width_bytes: Option<u64>,
    /// Allocation groups of XFS, block groups of ext.
    pub groups: u64,
    /// How large each is; the last may be smaller.
    pub group_bytes: u64,
    /// The unit of XFS's log, if it has one.
    pub log_unit_bytes: Option<u64>,
}
